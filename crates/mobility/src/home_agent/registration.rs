//! What a Binding Update asks for, and the verdict on it.
//!
//! [`Request::parse`] gathers what the message says; [`judge`] applies the tests of RFC 6275 9.5.1 and
//! 10.3.1, RFC 3963 6.2 and RFC 4285 in order and changes nothing. Everything is refused that was not
//! configured: a home address that nobody entered is not even answered.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::WallTime;
use carnet_wire::Error;
use carnet_wire::mobility::options::option_type;
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{BindingUpdate, MobilityOption};
use ipnet::Ipv6Net;

use super::binding_cache::{BindingCache, BindingState};
use super::care_of_address::is_acceptable;
use super::{AuthorizedNode, HomeAgentConfig};
use crate::sequence::is_later;
use crate::{
    MobilityDrop, MobilityMessage, ReplayProtection, is_newer, is_unicast_routable, lifetime_from_units,
};

/// More prefixes than this in one Binding Update are refused: a router has a handful.
const MAX_PREFIXES: usize = 32;
/// Stands for a Mobile Network Prefix option that no prefix can be read from; it is refused as invalid.
const NO_PREFIX: MobilityOption<'static> =
    MobilityOption::MobileNetworkPrefix { prefix: Ipv6Addr::UNSPECIFIED, prefix_length: 0 };

/// A Binding Update with everything that matters about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// Where it came from, and where the acknowledgement goes.
    pub source: Ipv6Addr,
    /// The home address.
    pub home_address: Ipv6Addr,
    /// Whether a Home Address option named it, so that the acknowledgement needs a routing header.
    pub away: bool,
    /// The care-of address to be registered.
    pub care_of_address: Ipv6Addr,
    pub sequence: u16,
    pub home_registration: bool,
    pub mobile_router: bool,
    pub link_local: bool,
    pub lifetime: Duration,
    /// The Mobile Network Prefix options as they came; host bits may be set.
    pub prefixes: Vec<(Ipv6Addr, u8)>,
    /// NTP timestamp of the Message-ID option.
    pub timestamp: Option<u64>,
    pub nonce_indices: bool,
}

impl Request {
    /// Reads the options. Unknown options are skipped (RFC 6275 6.2.1).
    pub fn parse(message: &MobilityMessage<'_>, update: &BindingUpdate<'_>) -> Result<Request, MobilityDrop> {
        let mut request = Request {
            source: message.source,
            home_address: message.home_address.unwrap_or(message.source),
            away: message.home_address.is_some(),
            care_of_address: message.source,
            sequence: update.sequence,
            home_registration: update.flags.home_registration,
            mobile_router: update.flags.mobile_router,
            link_local: update.flags.link_local,
            lifetime: lifetime_from_units(update.lifetime),
            prefixes: Vec::new(),
            timestamp: None,
            nonce_indices: false,
        };
        for option in update.options.iter() {
            let option = match option {
                Ok(option) => option,
                // RFC 3963 6.6: a prefix length that no prefix has is an invalid prefix, not a garbled message.
                Err(Error::Value { .. }) => NO_PREFIX,
                Err(_) => return Err(MobilityDrop::Malformed),
            };
            match option {
                MobilityOption::AlternateCareOfAddress(address) => request.care_of_address = address,
                MobilityOption::MobileNetworkPrefix { prefix, prefix_length } => {
                    request.prefixes.push((prefix, prefix_length));
                }
                MobilityOption::MessageIdentifier(timestamp) => request.timestamp = Some(timestamp),
                MobilityOption::Unknown { option_type: option_type::NONCE_INDICES, .. } => {
                    request.nonce_indices = true
                }
                _ => {}
            }
        }
        if !is_unicast_routable(request.home_address) || !is_unicast_routable(request.source) {
            return Err(MobilityDrop::HomeAddress);
        }
        if !is_unicast_routable(request.care_of_address) {
            return Err(MobilityDrop::CareOfAddress);
        }
        Ok(request)
    }

    /// Lifetime zero, or the home address as care-of address (RFC 6275 9.5.1, RFC 3963 6.2).
    pub fn is_deregistration(&self) -> bool {
        self.lifetime.is_zero() || self.care_of_address == self.home_address
    }
}

/// What is to be done about a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing is sent.
    Ignore(MobilityDrop),
    /// A Binding Acknowledgement with this status; what is registered stays as it is.
    Reject {
        status: Status,
        reason: MobilityDrop,
        /// Sequence number for the answer.
        sequence: u16,
        /// Timestamp for the answer's Message-ID option.
        timestamp: Option<u64>,
    },
    /// The binding is to be removed.
    Deregister,
    /// The binding is to be created or renewed.
    Register { prefixes: Vec<Ipv6Net>, lifetime: Duration },
}

/// What the agent knows of a node besides its binding.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Replay {
    /// The last sequence number accepted, kept beyond the life of the binding.
    pub sequence: Option<u16>,
    /// The last timestamp accepted.
    pub timestamp: Option<u64>,
}

/// Judges a request of an authorised node. `message` is the Mobility Header as it came.
pub(super) fn judge(
    config: &HomeAgentConfig,
    node: &AuthorizedNode,
    replay: &Replay,
    cache: &BindingCache,
    wall: WallTime,
    request: &Request,
    message: &[u8],
) -> Verdict {
    let binding = cache.get(request.home_address);
    let reject = |status, reason| Verdict::Reject {
        status,
        reason,
        sequence: request.sequence,
        timestamp: request.timestamp,
    };

    // RFC 4285 5.1.1: whoever has a security association has to use it.
    if let Some(association) = node.authentication.association() {
        match association.verify(message, request.care_of_address, request.home_address) {
            Ok(()) => {}
            Err(reason @ MobilityDrop::AuthenticationFailed) => {
                return reject(Status::AUTHENTICATION_FAILED, reason);
            }
            Err(reason) => return Verdict::Ignore(reason),
        }
        if let ReplayProtection::Timestamp { window } = association.replay
            && let Some(verdict) = judge_timestamp(replay, wall, window, request)
        {
            return verdict;
        }
    }

    // RFC 6275 9.5.1. With a shared key the last number is remembered beyond the binding, or an old
    // message could be played again; without one, "any Sequence Number value" is accepted then.
    let last = match node.authentication.association() {
        Some(_) => replay.sequence.or(binding.map(|b| b.sequence)),
        None => binding.map(|b| b.sequence),
    };
    if let Some(last) = last
        && !is_newer(request.sequence, last)
    {
        return Verdict::Reject {
            status: Status::SEQUENCE_OUT_OF_WINDOW,
            reason: MobilityDrop::Sequence,
            sequence: last,
            timestamp: request.timestamp,
        };
    }

    // RFC 3963 6.2 and RFC 6275 9.5.1, 10.3.1.
    let bound = binding.filter(|b| b.is_valid());
    if !request.home_registration {
        return if request.mobile_router {
            reject(Status::MOBILE_ROUTER_NOT_PERMITTED, MobilityDrop::Refused)
        } else if bound.is_some() {
            // RFC 6275 9.5.1: the binding is a home registration and stays one.
            reject(Status::TYPE_CHANGE_DISALLOWED, MobilityDrop::Refused)
        } else {
            Verdict::Ignore(MobilityDrop::NotHomeRegistration)
        };
    }
    if request.nonce_indices {
        return Verdict::Ignore(MobilityDrop::NonceIndices);
    }
    if request.is_deregistration() {
        // RFC 3963 6.2: the R flag and any prefixes are ignored here. RFC 6275 10.3.2: 133 without an entry;
        // one whose address is still being tested is an entry.
        return match binding.filter(|b| b.state != BindingState::Deleted) {
            Some(_) => Verdict::Deregister,
            None => reject(Status::NOT_HOME_AGENT, MobilityDrop::Refused),
        };
    }
    if !request.away {
        // RFC 6275 10.3.1: "A Home Address destination option MUST be present".
        return reject(Status::UNSPECIFIED, MobilityDrop::Refused);
    }
    if bound.is_some_and(|b| b.mobile_router != request.mobile_router) {
        return reject(Status::TYPE_CHANGE_DISALLOWED, MobilityDrop::Refused);
    }
    if !is_acceptable(config, cache, request.home_address, request.care_of_address) {
        return reject(Status::INVALID_CARE_OF_ADDRESS, MobilityDrop::CareOfAddress);
    }
    let prefixes = if request.mobile_router {
        match judge_prefixes(config, node, request) {
            Ok(prefixes) => prefixes,
            Err(status) => return reject(status, MobilityDrop::Refused),
        }
    } else {
        Vec::new()
    };
    Verdict::Register { prefixes, lifetime: request.lifetime.min(config.max_lifetime) }
}

/// RFC 4285 6: close enough to our clock, and later than any accepted before.
fn judge_timestamp(replay: &Replay, wall: WallTime, window: Duration, request: &Request) -> Option<Verdict> {
    let reject = |status, timestamp| {
        Some(Verdict::Reject {
            status,
            reason: MobilityDrop::Timestamp,
            sequence: request.sequence,
            timestamp: Some(timestamp),
        })
    };
    let Some(timestamp) = request.timestamp else {
        return reject(Status::MESSAGE_ID_REQUIRED, wall.to_ntp());
    };
    let close = WallTime::from_ntp(timestamp, wall).distance(wall) <= window;
    if close && replay.timestamp.is_none_or(|last| is_later(timestamp, last)) {
        return None;
    }
    // "copies only the low-order 32 bits ..., and supplies the high-order 32 bits from its own time".
    let answer = (wall.to_ntp() & 0xffff_ffff_0000_0000) | (timestamp & 0xffff_ffff);
    reject(Status::ID_MISMATCH, answer)
}

/// RFC 3963 6.2: all prefixes or none.
fn judge_prefixes(
    config: &HomeAgentConfig,
    node: &AuthorizedNode,
    request: &Request,
) -> Result<Vec<Ipv6Net>, Status> {
    if !config.serves_mobile_routers() {
        return Err(Status::MOBILE_ROUTER_NOT_PERMITTED);
    }
    if request.prefixes.is_empty() {
        // Implicit mode: what the configuration says belongs to this home address.
        return if node.prefixes.is_empty() {
            Err(Status::FORWARDING_SETUP_FAILED)
        } else {
            Ok(node.prefixes.clone())
        };
    }
    if request.prefixes.len() > MAX_PREFIXES {
        return Err(Status::INVALID_PREFIX);
    }
    let mut prefixes = Vec::with_capacity(request.prefixes.len());
    for &(address, length) in &request.prefixes {
        let prefix = Ipv6Net::new(address, length).map_err(|_| Status::INVALID_PREFIX)?;
        if length == 0 || prefix.addr() != prefix.network() || !is_unicast_routable(address) {
            return Err(Status::INVALID_PREFIX);
        }
        prefixes.push(prefix);
    }
    // The Prefix Table of RFC 3963 6.1.2: the prefix itself, or a part of it.
    if !prefixes.iter().all(|prefix| node.prefixes.iter().any(|own| own.contains(prefix))) {
        return Err(Status::NOT_AUTHORIZED_FOR_PREFIX);
    }
    prefixes.sort();
    prefixes.dedup();
    Ok(prefixes)
}
