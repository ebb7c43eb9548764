//! The home agent's answers about the IPv4 prefixes of the mobile network (RFC 5555 4.4.2).
//!
//! Each acknowledged Binding Update has an IPv4 Address Acknowledgement for each IPv4 prefix. The tunnel
//! carries packets of an IPv4 prefix from the first answer that accepts it. A home agent that knows no IPv4
//! prefixes leaves the option out: the router reports this once, and the IPv6 prefixes go on. The router
//! repeats its options in each Binding Update, so it uses a prefix as soon as the home agent accepts it.
//!
//! Left out: dynamic IPv4 home addresses, and prefixes that the home agent chooses.

use std::net::Ipv6Addr;

use carnet_wire::mobility::{BindingAcknowledgement, MobilityOption, ipv4_status};
use ipnet::Ipv4Net;

use crate::Event;

/// Last answer of the home agent about an IPv4 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ipv4PrefixState {
    /// The home agent has not acknowledged a registration yet.
    #[default]
    Unanswered,
    /// The home agent forwards the packets of the prefix.
    Accepted,
    /// The home agent forwards only a part of the prefix, of this length.
    OtherLength(u8),
    /// The home agent has refused the prefix with this status.
    Refused(u8),
    /// The acknowledgement has no answer about the prefix.
    Unsupported,
}

impl Ipv4PrefixState {
    /// Returns whether the tunnel carries packets of the prefix.
    pub fn is_accepted(self) -> bool {
        self == Ipv4PrefixState::Accepted
    }

    /// Returns the status of the answer; `None` without an answer.
    pub fn status(self) -> Option<u8> {
        match self {
            Ipv4PrefixState::Unanswered | Ipv4PrefixState::Unsupported => None,
            Ipv4PrefixState::Accepted | Ipv4PrefixState::OtherLength(_) => Some(ipv4_status::SUCCESS),
            Ipv4PrefixState::Refused(status) => Some(status),
        }
    }

    /// Returns the meaning of the answer for the operator.
    pub fn meaning(self) -> String {
        match self {
            Ipv4PrefixState::Unanswered => "not acknowledged yet".to_owned(),
            Ipv4PrefixState::Accepted => "accepted".to_owned(),
            Ipv4PrefixState::OtherLength(length) => {
                format!("the home agent accepts only a prefix of {length} bits")
            }
            Ipv4PrefixState::Refused(status) => {
                format!("refused with status {status}, {}", status_meaning(status))
            }
            Ipv4PrefixState::Unsupported => {
                "the home agent does not answer about IPv4 prefixes: does it support RFC 5555?".to_owned()
            }
        }
    }

    /// Returns the event that reports this answer.
    pub(super) fn to_event(self, prefix: Ipv4Net, home_agent: Ipv6Addr) -> Event {
        Event::Ipv4Prefix {
            prefix,
            home_agent,
            status: self.status(),
            accepted: self.is_accepted(),
            reason: self.meaning(),
        }
    }
}

/// Returns the meaning of a status of RFC 5555 3.2.1.
fn status_meaning(status: u8) -> &'static str {
    match status {
        ipv4_status::PROHIBITED => "administratively prohibited",
        ipv4_status::INCORRECT_ADDRESS => "incorrect IPv4 home address",
        ipv4_status::INVALID_ADDRESS => "invalid IPv4 address",
        ipv4_status::NO_DYNAMIC_ADDRESS => "dynamic IPv4 home address assignment not available",
        ipv4_status::PREFIX_UNAUTHORIZED => "prefix allocation unauthorized",
        _ => "reason unspecified",
    }
}

/// The IPv4 prefixes of the config, each with its last answer.
#[derive(Debug, Default)]
pub(super) struct Ipv4Networks(Vec<(Ipv4Net, Ipv4PrefixState)>);

impl Ipv4Networks {
    pub(super) fn new(prefixes: &[Ipv4Net]) -> Ipv4Networks {
        Ipv4Networks(prefixes.iter().map(|prefix| (*prefix, Ipv4PrefixState::default())).collect())
    }

    /// Returns the prefixes with their answers.
    pub(super) fn all_prefixes(&self) -> &[(Ipv4Net, Ipv4PrefixState)] {
        &self.0
    }

    /// Takes over the home agent's answers about IPv4 prefixes from the state before a reload of the config.
    pub(super) fn adopt_answers(&mut self, old: &Ipv4Networks) {
        for (prefix, state) in &mut self.0 {
            *state = old.0.iter().find(|(other, _)| other == prefix).map_or(*state, |(_, state)| *state);
        }
    }

    /// Takes the answers out of the acknowledgement of a registration. Returns the prefixes whose answer has
    /// changed, each with the new answer.
    pub(super) fn handle_acknowledgement(
        &mut self,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> Vec<(Ipv4Net, Ipv4PrefixState)> {
        let mut changes = Vec::new();
        for (prefix, state) in &mut self.0 {
            let answer = prefix_answer(acknowledgement, *prefix);
            if std::mem::replace(state, answer) != answer {
                changes.push((*prefix, answer));
            }
        }
        changes
    }
}

/// Returns the answer of an acknowledgement about a prefix.
fn prefix_answer(acknowledgement: &BindingAcknowledgement<'_>, prefix: Ipv4Net) -> Ipv4PrefixState {
    let answers = acknowledgement.options.iter().filter_map(|option| match option {
        Ok(MobilityOption::Ipv4AddressAcknowledgement { status, prefix_length, address }) => {
            (address == prefix.network()).then_some((status, prefix_length))
        }
        _ => None,
    });
    match answers.last() {
        None => Ipv4PrefixState::Unsupported,
        // RFC 5555 3.2.1: "Values from 0 to 127 indicate success."
        Some((status, _)) if status >= ipv4_status::UNSPECIFIED => Ipv4PrefixState::Refused(status),
        Some((_, length)) if length == 0 || length > prefix.prefix_len() => {
            Ipv4PrefixState::OtherLength(length)
        }
        Some(_) => Ipv4PrefixState::Accepted,
    }
}
