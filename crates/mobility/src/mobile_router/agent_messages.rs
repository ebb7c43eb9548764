//! Requests of the home agent: to register with another one (Home Agent Switch, RFC 5142 6), and to end
//! bindings (Binding Revocation, RFC 5846 10).
//!
//! Both move or end traffic, so both must be authenticated. With a shared key RFC 4285's option authenticates
//! them; its MAC covers the message's destination in the place of a care-of address. The timestamp in the
//! Message-ID option must be greater than in all earlier messages, also after a restart. It must also be
//! close to the home agent's time ([`super::notices`]). Without a key the router can check only the
//! addresses. Then a Home Agent Switch can only name home agents that the operator has configured (see
//! [`crate::agents`]).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_wire::mobility::options::MobilityOptions;
use carnet_wire::mobility::revocation::revocation_status;
use carnet_wire::mobility::{BindingRevocation, MobilityOption, RevocationFlags};

use super::Registration;
use super::notices::Notices;
use crate::binding_update_list::{BindingUpdateList, SequenceAndTimestampState};
use crate::{Authentication, MobilityDrop, MobilityMessage};

/// Maximum number of home agents in one Home Agent Switch message that the router reads.
pub(super) const MAX_SWITCH_TARGETS: usize = 16;

/// Time for which the router answers repetitions of a revocation. The home agent repeats the indication after
/// one and after two more seconds.
pub(super) const REVOCATION_REPETITION_TIME: Duration = Duration::from_secs(10);

/// A revocation that the router has acknowledged. The home agent repeats it if the acknowledgement is lost.
#[derive(Debug, Clone)]
pub(super) struct AnsweredRevocation {
    pub(super) sequence: u16,
    /// This router's end of the path over which the indication came.
    pub(super) received_at_endpoint: Endpoint,
    pub(super) answering_registration: (usize, Registration),
    pub(super) status: u8,
    pub(super) answer_repetitions_until: Time,
}

impl AnsweredRevocation {
    /// Returns whether an indication repeats the revocation that the router has already acknowledged.
    pub(super) fn is_repetition(
        &self,
        message: &MobilityMessage<'_>,
        revocation: &BindingRevocation<'_>,
    ) -> bool {
        self.sequence == revocation.sequence && self.received_at_endpoint == receiving_endpoint(message)
    }
}

/// Returns this router's end of the path over which a message came.
pub(super) fn receiving_endpoint(message: &MobilityMessage<'_>) -> Endpoint {
    message.tunnel_ends.map_or(Endpoint::Ipv6(message.destination), |(local, _)| local)
}

/// The home agent's request to register with another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeAgentSwitchRequest {
    /// Home agents to register with, in the order in which the router tries them. The list is empty if the
    /// router must discover one.
    pub target_agents: Vec<Ipv6Addr>,
    /// Whether the message was authenticated.
    pub is_authenticated: bool,
}

/// Proof that a message comes from the home agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageProof {
    /// None, because router and home agent have neither a key nor IPsec.
    None,
    /// A MAC. The router has checked and stored the timestamp.
    Key,
    /// The notice came under IPsec.
    Ipsec,
    /// The notice came through the session of the home agent's key.
    Session,
}

/// Requests of the home agents. All home agents of this router share one value of `notices`, because they
/// share a key. The MAC of RFC 4285 does not cover which home agent has sent a message. With separate values
/// an attacker could replay a recorded message of one home agent in the name of another.
#[derive(Debug, Default)]
pub(super) struct AgentMessages {
    pub(super) pending_switch: Option<HomeAgentSwitchRequest>,
    /// Timestamps of the home agents' messages.
    pub(super) notices: Notices,
    pub(super) last_revocation: Option<AnsweredRevocation>,
}

impl AgentMessages {
    /// Verifies that a message comes from the home agent and is no replay.
    ///
    /// # Errors
    /// Returns why the router does not accept the message.
    pub(super) fn verify_notice(
        &mut self,
        (now, wall): (Time, WallTime),
        message: &MobilityMessage<'_>,
        options: MobilityOptions<'_>,
        octets: &[u8],
        (numbers, home_address): (&SequenceAndTimestampState, Ipv6Addr),
    ) -> Result<MessageProof, MobilityDrop> {
        if numbers.authentication == Authentication::Ipsec {
            // The caller has checked the IPsec protection, and the kernel refuses replays (RFC 4303
            // 3.4.3).
            return Ok(MessageProof::Ipsec);
        }
        if let Authentication::Session(_) = numbers.authentication {
            // The caller has checked the session, and the session refuses replays.
            return Ok(MessageProof::Session);
        }
        if numbers.authentication.signing_association().is_none() {
            return Ok(MessageProof::None);
        }
        numbers.authentication.verify(octets, message.destination, home_address)?;
        let time = options.iter().find_map(|option| match option {
            Ok(MobilityOption::MessageIdentifier(time)) => Some(time),
            _ => None,
        });
        let time = time.ok_or(MobilityDrop::Timestamp)?;
        let clock = numbers.timestamp_window().map(|window| (numbers.home_agent_time(wall), window));
        if !self.notices.accept_timestamp(now, time, clock) {
            return Err(MobilityDrop::Timestamp);
        }
        Ok(MessageProof::Key)
    }
}

/// Returns the status for the acknowledgement of a revocation (RFC 5846 10.1), and the identifiers that the
/// revocation names.
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
    let known = |bid: &u16| {
        list.identified_entries
            .iter()
            .any(|binding| binding.bid == Some(*bid) && binding.may_agent_have_binding())
    };
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
