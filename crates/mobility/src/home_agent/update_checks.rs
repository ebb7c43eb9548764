//! Validates a Binding Update and returns a verdict.
//!
//! [`judge_request`] applies the tests of RFC 6275 9.5.1 and 10.3.1, RFC 3963 6.2, RFC 4285 and RFC 5648 6.2
//! in this order. It changes no state. It refuses prefixes and addresses that are not in the config. It does
//! not answer an update of an unknown home address.

use std::sync::Arc;
use std::time::Duration;

use carnet_base::{WallTime, mapped};
use carnet_wire::mobility::MobilityOption;
use carnet_wire::mobility::binding_status::BindingStatus;
use ipnet::Ipv6Net;

use super::binding::NewBinding;
use super::binding_cache::BindingCache;
use super::care_of_address::{ipv4_path, is_acceptable_care_of_address};
use super::ipv4_homes::{self, Ipv4Answer};
use super::replay_state::ReplayState;
use super::request::BindingUpdateRequest;
use super::{AuthorizedNode, HomeAgentConfig, binding_identifiers};
use crate::security::DEFAULT_TIMESTAMP_WINDOW;
use crate::sequence::{MAX_USED_NUMBERS, count_used_numbers, is_later};
use crate::{MobilityDrop, ReplayProtection, is_newer, is_unicast_routable};

/// Maximum number of prefixes in one Binding Update. A router has only a few.
const MAX_PREFIXES: usize = 32;

/// Changes that an accepted registration makes, and values for its acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registration {
    pub bindings: Vec<NewBinding>,
    /// Whether the registration ends all other bindings of the node.
    pub replaces_all_bindings: bool,
    pub prefixes: Arc<[Ipv6Net]>,
    pub lifetime: Duration,
    pub status: BindingStatus,
    /// Status field of each Binding Identifier option of the acknowledgement, in their order.
    pub statuses: Vec<u8>,
    /// NAT Detection option of the acknowledgement; `None` for an acknowledgement without this option.
    pub nat_detection_option: Option<MobilityOption<'static>>,
    /// Answers to the IPv4 Home Address options.
    pub ipv4_answers: Vec<Ipv4Answer>,
}

/// Verdict on a [`BindingUpdateRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UpdateVerdict {
    /// The home agent sends no answer, for this reason.
    Ignore(MobilityDrop),
    /// The home agent sends a Binding Acknowledgement with this status, and the bindings stay as they are.
    Reject {
        status: BindingStatus,
        reason: MobilityDrop,
        /// Sequence number for the answer.
        sequence: u16,
        /// Timestamp for the answer's Message-ID option; `None` if the answer has no such option.
        timestamp: Option<u64>,
        /// Status field of each Binding Identifier option of the acknowledgement, in their order.
        statuses: Vec<u8>,
    },
    /// The home agent removes the bindings with these identifiers; `None` for all.
    Deregister {
        bids: Option<Vec<u16>>,
        status: BindingStatus,
        /// Status field of each Binding Identifier option.
        statuses: Vec<u8>,
    },
    /// The home agent creates or renews bindings.
    Register(Registration),
}

/// Validates a request of a node that is in the config. `message` is the Mobility Header as received.
pub(super) fn judge_request(
    config: &HomeAgentConfig,
    node: &AuthorizedNode,
    replay: &ReplayState,
    cache: &BindingCache,
    wall: WallTime,
    request: &BindingUpdateRequest,
    message: &[u8],
) -> UpdateVerdict {
    let reject = |status, reason| UpdateVerdict::Reject {
        status,
        reason,
        sequence: request.sequence,
        timestamp: request.timestamp,
        statuses: vec![0; request.identifiers.len()],
    };

    // RFC 4285 5.1.1: a node with a security association must use it.
    if let Some(association) = node.authentication.signing_association() {
        match node.authentication.verify(message, request.authenticated_address(), request.home_address) {
            Ok(()) => {}
            Err(reason @ MobilityDrop::AuthenticationFailed) => {
                return reject(BindingStatus::AUTHENTICATION_FAILED, reason);
            }
            Err(reason) => return UpdateVerdict::Ignore(reason),
        }
        // RFC 6275 15.3: sequence numbers detect a replay only within 2^15 numbers.
        let numbers = cache.used_sequence_numbers(request.home_address, &node.authentication, request.spi);
        let window = match association.replay {
            ReplayProtection::Timestamp { window } => Some(window),
            ReplayProtection::Sequence => {
                are_sequence_numbers_used_up(numbers, replay.sequence, request.sequence)
                    .then_some(DEFAULT_TIMESTAMP_WINDOW)
            }
        };
        if let Some(window) = window
            && let Some((status, timestamp)) = judge_timestamp(replay, wall, window, request)
        {
            return UpdateVerdict::Reject {
                status,
                reason: MobilityDrop::Timestamp,
                sequence: request.sequence,
                timestamp: Some(timestamp),
                statuses: vec![0; request.identifiers.len()],
            };
        }
    }

    // RFC 6275 9.5.1. With a shared key the home agent stores the last number even after the binding has
    // ended. So a replay has no effect. Without a key it accepts "any Sequence Number value" after the
    // binding has ended. All bindings of a node share the number (RFC 5648 4.1).
    let known = cache.sequence(request.home_address);
    let last = match node.authentication.signing_association() {
        Some(_) => replay.sequence.or(known),
        None => known,
    };
    if let Some(last) = last
        && !is_newer(request.sequence, last)
    {
        return UpdateVerdict::Reject {
            status: BindingStatus::SEQUENCE_OUT_OF_WINDOW,
            reason: MobilityDrop::Sequence,
            sequence: last,
            timestamp: request.timestamp,
            statuses: vec![0; request.identifiers.len()],
        };
    }

    // RFC 3963 6.2 and RFC 6275 9.5.1, 10.3.1: checks of the H and R flags.
    let bound = cache.router_flag_of(request.home_address);
    if !request.home_registration {
        return if request.mobile_router {
            reject(BindingStatus::MOBILE_ROUTER_NOT_PERMITTED, MobilityDrop::Refused)
        } else if bound.is_some() {
            // RFC 6275 9.5.1: the type of an existing binding, home registration, must not change.
            reject(BindingStatus::TYPE_CHANGE_DISALLOWED, MobilityDrop::Refused)
        } else {
            UpdateVerdict::Ignore(MobilityDrop::NotHomeRegistration)
        };
    }
    if request.has_nonce_indices {
        return UpdateVerdict::Ignore(MobilityDrop::NonceIndices);
    }
    if request.has_identifiers()
        && let Some(status) = binding_identifiers::status_refusing_all(config, cache, request)
    {
        return reject(status, MobilityDrop::Refused);
    }
    if request.source == config.address {
        // The care-of address is the home agent's own, so the acknowledgement would return to the home
        // agent.
        return UpdateVerdict::Ignore(MobilityDrop::CareOfAddress);
    }
    if request.was_moved_into_tunnel() || request.alternate_care_of_address == Some(config.address) {
        return reject(BindingStatus::INVALID_CARE_OF_ADDRESS, MobilityDrop::CareOfAddress);
    }
    if request.is_deregistration() {
        return judge_deregistration(cache, request)
            .unwrap_or_else(|status| reject(status, MobilityDrop::Refused));
    }
    if !request.has_home_address_option && request.tunnel_ends.is_none() {
        // RFC 6275 10.3.1: "A Home Address destination option MUST be present". Inside IPv4 the packet's own
        // source is the home address (RFC 5555 4.2).
        return reject(BindingStatus::UNSPECIFIED, MobilityDrop::Refused);
    }
    if bound.is_some_and(|is_router| is_router != request.mobile_router) {
        return reject(BindingStatus::TYPE_CHANGE_DISALLOWED, MobilityDrop::Refused);
    }
    if !node.nat && !request.names_outer_address() && !renews_outer_address(cache, request) {
        return reject(BindingStatus::INVALID_CARE_OF_ADDRESS, MobilityDrop::CareOfAddress);
    }
    let (ipv4_prefixes, ipv4_homes) = ipv4_homes::judge_ipv4_homes(node, request);
    let prefixes = if request.mobile_router {
        judge_prefixes(config, node, request, ipv4_prefixes)
    } else {
        // A mobile node has no mobile network, but it may have an IPv4 home address.
        Ok(shared_prefixes(&node.prefixes, ipv4_prefixes))
    };
    let lifetime = request.lifetime.min(config.max_lifetime);
    if request.has_identifiers() {
        // `binding_identifiers` validates the bindings one by one; the checks that concern all of them come
        // first.
        let prefixes = match prefixes {
            Ok(prefixes) => prefixes,
            Err(status) => return reject(status, MobilityDrop::Refused),
        };
        return match binding_identifiers::judge_identifiers(config, cache, request) {
            Ok(judged) => UpdateVerdict::Register(Registration {
                bindings: judged.bindings,
                replaces_all_bindings: request.replaces_all_bindings,
                prefixes,
                lifetime,
                status: judged.status,
                statuses: judged.statuses,
                nat_detection_option: judged.nat_detection,
                ipv4_answers: ipv4_homes,
            }),
            Err((status, statuses)) => UpdateVerdict::Reject {
                status,
                reason: MobilityDrop::Refused,
                sequence: request.sequence,
                timestamp: request.timestamp,
                statuses,
            },
        };
    }
    let (ends, nat_detection) = match request.tunnel_ends {
        Some(outer) => {
            let force_udp = request.force_udp || config.force_udp;
            let path = ipv4_path(outer, request.ipv4_care_of_address, force_udp);
            (path.tunnel_ends, path.nat_detection_option)
        }
        None => ((config.address.into(), request.plain_care_of_address().into()), None),
    };
    if !is_acceptable_care_of_address(config, cache, request.home_address, ends) {
        return reject(BindingStatus::INVALID_CARE_OF_ADDRESS, MobilityDrop::CareOfAddress);
    }
    match prefixes {
        Ok(prefixes) => UpdateVerdict::Register(Registration {
            bindings: vec![NewBinding { bid: None, priority: 0, tunnel_ends: ends }],
            // RFC 5648 6.2: a plain Binding Update replaces all bindings with identifiers.
            replaces_all_bindings: true,
            prefixes,
            lifetime,
            status: BindingStatus::ACCEPTED,
            statuses: Vec::new(),
            nat_detection_option: nat_detection,
            ipv4_answers: ipv4_homes,
        }),
        Err(status) => reject(status, MobilityDrop::Refused),
    }
}

/// Returns whether a Binding Update without care-of addresses renews a binding whose IPv4 address is the
/// source of the update.
fn renews_outer_address(cache: &BindingCache, request: &BindingUpdateRequest) -> bool {
    request.tunnel_ends.is_some_and(|(_, node)| {
        request.identifiers.iter().filter(|it| it.care_of_address.is_none()).any(|identifier| {
            let binding = cache.get(request.home_address, Some(identifier.bid));
            binding.is_some_and(|binding| binding.care_of_address.ipv4() == node.ipv4())
        })
    })
}

/// Validates a de-registration. The R flag and any prefixes are ignored (RFC 3963 6.2). Refuses it with
/// status 133 if the node has no binding (RFC 6275 10.3.2, RFC 5648 6.2). A binding whose home address is
/// still being tested counts as a binding.
fn judge_deregistration(
    cache: &BindingCache,
    request: &BindingUpdateRequest,
) -> Result<UpdateVerdict, BindingStatus> {
    let home_address = request.home_address;
    if request.identifiers.is_empty() {
        return match cache.bids(home_address).next() {
            Some(_) => Ok(UpdateVerdict::Deregister {
                bids: None,
                status: BindingStatus::ACCEPTED,
                statuses: Vec::new(),
            }),
            None => Err(BindingStatus::NOT_HOME_AGENT),
        };
    }
    let mut bids = Vec::new();
    let mut statuses = Vec::new();
    for identifier in &request.identifiers {
        if cache.bids(home_address).any(|bid| bid == Some(identifier.bid)) && !bids.contains(&identifier.bid)
        {
            bids.push(identifier.bid);
            statuses.push(BindingStatus::ACCEPTED.0);
        } else {
            statuses.push(BindingStatus::NOT_HOME_AGENT.0);
        }
    }
    match (bids.len(), request.identifiers.len()) {
        (0, _) => Err(BindingStatus::NOT_HOME_AGENT),
        (known, all) => {
            let status = if known == all { BindingStatus::ACCEPTED } else { BindingStatus::MCOA_NOTCOMPLETE };
            Ok(UpdateVerdict::Deregister { bids: Some(bids), status, statuses })
        }
    }
}

/// Returns whether a key has used too many of its sequence numbers (`numbers`), so that the home agent
/// accepts `sequence` only with a timestamp. `last` is the last accepted number. A number that is not newer
/// than `last` is refused as old, so this function returns false for it.
pub(super) fn are_sequence_numbers_used_up(numbers: u32, last: Option<u16>, sequence: u16) -> bool {
    let is_newer = last.is_none_or(|last| is_newer(sequence, last));
    numbers > MAX_USED_NUMBERS || is_newer && count_used_numbers(numbers, last, sequence) > MAX_USED_NUMBERS
}

/// Checks that a timestamp is close to the home agent's time, and later than all accepted timestamps (RFC
/// 4285 6). If not, returns the status and the timestamp of the answer.
///
/// The home agent's clock may be behind the last accepted timestamp: it may have been fast before, or not be
/// set since the start. Then the home agent's time counts on from that timestamp. So it need not refuse nodes
/// until the clock has reached that time, and it accepts no message twice.
fn judge_timestamp(
    replay: &ReplayState,
    wall: WallTime,
    window: Duration,
    request: &BindingUpdateRequest,
) -> Option<(BindingStatus, u64)> {
    let last = replay.timestamp.map(|last| WallTime::from_ntp(last, wall));
    let ahead = last.filter(|last| *last > wall + window);
    let time = ahead.map_or(wall, |last| last + Duration::from_secs(1));
    let Some(timestamp) = request.timestamp else {
        return Some((BindingStatus::MESSAGE_ID_REQUIRED, time.to_ntp()));
    };
    let close = WallTime::from_ntp(timestamp, time).absolute_difference(time) <= window;
    if close && replay.timestamp.is_none_or(|last| is_later(timestamp, last)) {
        return None;
    }
    // RFC 4285 6: the home agent "copies only the low-order 32 bits ..., and supplies the high-order 32 bits
    // from its own time".
    let answer = (time.to_ntp() & 0xffff_ffff_0000_0000) | (timestamp & 0xffff_ffff);
    Some((BindingStatus::ID_MISMATCH, answer))
}

/// Accepts all IPv6 prefixes of an update or none of them (RFC 3963 6.2). Returns them together with the
/// accepted IPv4 prefixes, which have answers of their own.
fn judge_prefixes(
    config: &HomeAgentConfig,
    node: &AuthorizedNode,
    request: &BindingUpdateRequest,
    ipv4_prefixes: Vec<Ipv6Net>,
) -> Result<Arc<[Ipv6Net]>, BindingStatus> {
    if !config.serves_mobile_routers() {
        return Err(BindingStatus::MOBILE_ROUTER_NOT_PERMITTED);
    }
    let mut prefixes = ipv4_prefixes;
    if request.prefixes.is_empty() {
        // In implicit mode the prefixes of this home address come from the config.
        prefixes.extend(node.prefixes.iter().filter(|prefix| mapped::to_ipv4(**prefix).is_none()));
        return if prefixes.is_empty() {
            Err(BindingStatus::FORWARDING_SETUP_FAILED)
        } else {
            Ok(shared_prefixes(&node.prefixes, prefixes))
        };
    }
    if request.prefixes.len() > MAX_PREFIXES {
        return Err(BindingStatus::INVALID_PREFIX);
    }
    let mut ipv6 = Vec::with_capacity(request.prefixes.len());
    for &(address, length) in &request.prefixes {
        let prefix = Ipv6Net::new(address, length).map_err(|_| BindingStatus::INVALID_PREFIX)?;
        if length == 0 || prefix.addr() != prefix.network() || !is_unicast_routable(address) {
            return Err(BindingStatus::INVALID_PREFIX);
        }
        ipv6.push(prefix);
    }
    // The prefix table (RFC 3963 6.1.2) must have the prefix itself, or a shorter prefix that contains it.
    if !ipv6.iter().all(|prefix| node.prefixes.iter().any(|own| own.contains(prefix))) {
        return Err(BindingStatus::NOT_AUTHORIZED_FOR_PREFIX);
    }
    ipv6.sort();
    ipv6.dedup();
    prefixes.extend(ipv6);
    Ok(shared_prefixes(&node.prefixes, prefixes))
}

/// Returns the prefixes of a node. Uses the shared list of the config if it is equal, to save memory.
pub(super) fn shared_prefixes(own: &Arc<[Ipv6Net]>, prefixes: Vec<Ipv6Net>) -> Arc<[Ipv6Net]> {
    if **own == *prefixes { own.clone() } else { prefixes.into() }
}
