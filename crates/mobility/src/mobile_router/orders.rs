//! Orders of the home agent: to go to another one (Home Agent Switch, RFC 5142 6), and to give up bindings
//! (Binding Revocation, RFC 5846 10).
//!
//! Both move or end traffic, so both have to be authentic. With a shared key RFC 4285's option authenticates
//! them; its MAC covers the message's destination in place of a care-of address. The Message-ID option must
//! be greater than in any notice before (remembered across restarts) and close to the home agent's time
//! ([`super::notices`]). Without a key the router can check only the addresses; then a switch leads only to
//! home agents that the operator has named (see [`crate::agents`]).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_wire::mobility::options::Options;
use carnet_wire::mobility::revocation::revocation_status;
use carnet_wire::mobility::{BindingRevocation, MobilityOption, RevocationFlags};

use super::Registration;
use super::notices::Notices;
use crate::binding_update_list::{BindingUpdateList, UpdateNumbers};
use crate::{Authentication, MobilityDrop, MobilityMessage};

/// Most home agents of one Home Agent Switch message that the router reads.
pub(super) const MAX_ALTERNATIVES: usize = 16;

/// Time for which the router repeats the answer to a revocation: the home agent repeats the indication after
/// one and two seconds.
pub(super) const REPETITIONS: Duration = Duration::from_secs(10);

/// An acknowledged revocation, whose acknowledgement may be lost.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) sequence: u16,
    /// This router's end of the path that the indication came by.
    pub(super) came_to: Endpoint,
    pub(super) by: (usize, Registration),
    pub(super) status: u8,
    pub(super) until: Time,
}

impl Answered {
    /// Whether an indication repeats this one.
    pub(super) fn is_of(&self, message: &MobilityMessage<'_>, revocation: &BindingRevocation<'_>) -> bool {
        self.sequence == revocation.sequence && self.came_to == came_to(message)
    }
}

/// Returns this router's end of the path that a message came by.
pub(super) fn came_to(message: &MobilityMessage<'_>) -> Endpoint {
    message.outer.map_or(Endpoint::Ipv6(message.destination), |(local, _)| local)
}

/// The home agent's order to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Home agents to go to, the first to be tried first; empty if the router has to find one.
    pub to: Vec<Ipv6Addr>,
    /// Whether the home agent's authorship is proven.
    pub authenticated: bool,
}

/// Proof that a notice is the home agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Router and home agent have neither key nor IPsec.
    None,
    /// The notice has a timestamp and a MAC, and the router has stored the timestamp.
    Key,
    /// The notice came under IPsec.
    Ipsec,
}

/// Orders of the home agent. The notices are one value for all home agents of this router, because these
/// share a key. RFC 4285's authenticator does not cover which of them has sent a message. Otherwise a
/// recorded notice of one could be replayed in the name of another.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) switch: Option<Switch>,
    /// Timestamps of the home agent's orders, by its clock.
    pub(super) notices: Notices,
    pub(super) last_revocation: Option<Answered>,
}

impl Orders {
    /// Verifies that a notice comes from the home agent and is no replay.
    ///
    /// # Errors
    /// Returns why the router does not accept the notice.
    pub(super) fn verify(
        &mut self,
        (now, wall): (Time, WallTime),
        message: &MobilityMessage<'_>,
        options: Options<'_>,
        octets: &[u8],
        (numbers, home_address): (&UpdateNumbers, Ipv6Addr),
    ) -> Result<Proof, MobilityDrop> {
        if numbers.authentication == Authentication::Ipsec {
            // The message has been admitted, and the kernel refuses replays (RFC 4303 3.4.3).
            return Ok(Proof::Ipsec);
        }
        if numbers.authentication.association().is_none() {
            return Ok(Proof::None);
        }
        numbers.authentication.verify(octets, message.destination, home_address)?;
        let time = options.iter().find_map(|option| match option {
            Ok(MobilityOption::MessageIdentifier(time)) => Some(time),
            _ => None,
        });
        let time = time.ok_or(MobilityDrop::Timestamp)?;
        let clock = numbers.replay_window().map(|window| (numbers.clock(wall), window));
        if !self.notices.accept(now, time, clock) {
            return Err(MobilityDrop::Timestamp);
        }
        Ok(Proof::Key)
    }
}

/// Returns the status of a revocation (RFC 5846 10.1), and the identifiers that it names.
pub(super) fn judge_revocation(
    revocation: &BindingRevocation<'_>,
    list: &BindingUpdateList,
) -> (u8, Vec<u16>) {
    let RevocationFlags { proxy, ipv4_only, global } = revocation.flags;
    let mut named = Vec::new();
    let mut ipv4_home = false;
    for option in revocation.options.iter() {
        match option {
            Ok(MobilityOption::BindingIdentifier { bid, .. }) => named.push(bid),
            Ok(MobilityOption::Ipv4HomeAddress { .. }) => ipv4_home = true,
            _ => {}
        }
    }
    let known =
        |bid: &u16| list.bindings.iter().any(|binding| binding.bid == Some(*bid) && binding.is_known());
    let status = if proxy {
        revocation_status::PROXY_NOT_SUPPORTED
    } else if global {
        revocation_status::GLOBAL_NOT_AUTHORIZED
    } else if ipv4_only && !ipv4_home {
        revocation_status::IPV4_HOME_ADDRESS_REQUIRED
    } else if ipv4_only || (!named.is_empty() && !named.iter().any(known)) {
        revocation_status::NO_BINDING
    } else if named.iter().all(known) {
        revocation_status::SUCCESS
    } else {
        revocation_status::PARTIAL_SUCCESS
    };
    (status, named)
}
