//! Binding Identifiers: which of the bindings in a Binding Update the home agent accepts (RFC 5648 6.2 and
//! 8.1).
//!
//! A fault of the message refuses the whole message. A fault of one binding refuses only that binding. The
//! home agent accepts the others and sets the status of the message to 4. It does not support a binding to
//! the home link beside other bindings (the H flag). It refuses this binding with status 169.

use std::collections::BTreeSet;
use std::net::IpAddr;

use carnet_base::Endpoint;
use carnet_wire::mobility::MobilityOption;
use carnet_wire::mobility::binding_status::BindingStatus;

use super::binding::{MAX_BINDINGS, NewBinding};
use super::binding_cache::BindingCache;
use super::care_of_address::{ipv4_path, is_acceptable_care_of_address, is_unicast};
use super::request::{BindingUpdateRequest, RequestedIdentifier};
use super::{HomeAgentConfig, MultipleCareOfAddresses};
use crate::is_unicast_routable;

/// Verdict on the Binding Identifier options of a registration.
pub(super) struct IdentifierVerdict {
    /// Accepted bindings; the list has at least one.
    pub bindings: Vec<NewBinding>,
    /// Status of the whole acknowledgement.
    pub status: BindingStatus,
    /// Status field of each Binding Identifier option, in their order.
    pub statuses: Vec<u8>,
    pub nat_detection: Option<MobilityOption<'static>>,
}

/// Returns the status that refuses all options of this Binding Update before they are read.
pub(super) fn status_refusing_all(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    request: &BindingUpdateRequest,
) -> Option<BindingStatus> {
    let registers = !request.is_deregistration();
    if request.has_malformed_identifier {
        return Some(BindingStatus::MCOA_MALFORMED);
    }
    match config.multiple_care_of_addresses {
        MultipleCareOfAddresses::Prohibited => return Some(BindingStatus::MCOA_PROHIBITED),
        MultipleCareOfAddresses::Single if request.identifiers.len() > 1 => {
            return Some(BindingStatus::MCOA_BULK_PROHIBITED);
        }
        _ => {}
    }
    // RFC 5648 6.2: without the O flag a binding with an identifier cannot replace a plain one.
    let plain = cache.bids(request.home_address).any(|bid| bid.is_none());
    (registers && plain && !request.replaces_all_bindings)
        .then_some(BindingStatus::MCOA_NON_MCOA_BINDING_EXISTS)
}

/// Validates each Binding Identifier option by itself.
///
/// # Errors
/// Returns the status of the message and of each option if it accepts no option.
pub(super) fn judge_identifiers(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    request: &BindingUpdateRequest,
) -> Result<IdentifierVerdict, (BindingStatus, Vec<u8>)> {
    let mut bids: BTreeSet<u16> =
        cache.bids(request.home_address).filter(|_| !request.replaces_all_bindings).flatten().collect();
    let mut named = BTreeSet::new();
    let mut judged = IdentifierVerdict {
        bindings: Vec::new(),
        status: BindingStatus::ACCEPTED,
        statuses: Vec::new(),
        nat_detection: None,
    };
    let mut refusal = None;
    for identifier in &request.identifiers {
        let verdict = if !named.insert(identifier.bid) {
            Err(BindingStatus::MCOA_MALFORMED)
        } else {
            requested_tunnel_ends(config, cache, request, identifier).and_then(|accepted| {
                if bids.len() >= MAX_BINDINGS && !bids.contains(&identifier.bid) {
                    return Err(BindingStatus::INSUFFICIENT_RESOURCES);
                }
                bids.insert(identifier.bid);
                Ok(accepted)
            })
        };
        match verdict {
            Ok((ends, nat_detection)) => {
                judged.statuses.push(BindingStatus::ACCEPTED.0);
                judged.nat_detection = judged.nat_detection.or(nat_detection);
                judged.bindings.push(NewBinding {
                    bid: Some(identifier.bid),
                    priority: identifier.bid_priority,
                    tunnel_ends: ends,
                });
            }
            Err(status) => {
                judged.statuses.push(status.0);
                refusal = Some(status);
            }
        }
    }
    match refusal {
        None => Ok(judged),
        // RFC 5648 6.2: the status of one binding is in its option, and the message has status 4.
        Some(_) if !judged.bindings.is_empty() => {
            Ok(IdentifierVerdict { status: BindingStatus::MCOA_NOTCOMPLETE, ..judged })
        }
        // RFC 5648: "Otherwise, the Status field of the Binding Identifier mobility option MUST be set to
        // zero". Status 167 is the exception: it goes into the option.
        Some(status)
            if judged.statuses.len() == 1 && status != BindingStatus::MCOA_UNKNOWN_CARE_OF_ADDRESS =>
        {
            Err((status, vec![0]))
        }
        Some(_) => Err((BindingStatus::MCOA_NOTCOMPLETE, judged.statuses)),
    }
}

type AcceptedBinding = ((Endpoint, Endpoint), Option<MobilityOption<'static>>);

/// Returns the tunnel ends of the binding that an option requests.
fn requested_tunnel_ends(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    request: &BindingUpdateRequest,
    identifier: &RequestedIdentifier,
) -> Result<AcceptedBinding, BindingStatus> {
    // RFC 5648 4.3, about the BID: "The value of zero is reserved".
    if identifier.bid == 0 {
        return Err(BindingStatus::MCOA_MALFORMED);
    }
    if identifier.is_home_binding {
        return Err(BindingStatus::MCOA_SIMULTANEOUS_PROHIBITED);
    }
    let known = cache.get(request.home_address, Some(identifier.bid)).map(|binding| binding.tunnel_ends());
    let inside = |declared| {
        let force_udp = request.force_udp || config.force_udp;
        request.tunnel_ends.map(|outer| {
            let path = ipv4_path(outer, declared, force_udp);
            (path.tunnel_ends, path.nat_detection_option)
        })
    };
    let single = request.identifiers.len() == 1;
    let (ends, nat_detection) = match identifier.care_of_address {
        Some(IpAddr::V6(address)) if !is_unicast_routable(address) => {
            return Err(BindingStatus::MCOA_MALFORMED);
        }
        Some(IpAddr::V4(address)) if !is_unicast(address) => return Err(BindingStatus::MCOA_MALFORMED),
        Some(IpAddr::V6(address)) => ((config.address.into(), address.into()), None),
        Some(IpAddr::V4(address)) => {
            // RFC 5648 8.1: an IPv4 binding takes the source of the message if the option names it or the
            // message has no other binding. In all other cases the home agent renews an IPv4 binding but does
            // not change it. Only a message over the path of a binding shows whether that path has a NAT.
            let here = single || request.tunnel_ends.and_then(|(_, node)| node.ipv4()) == Some(address);
            let renewed = known.filter(|(_, node)| match node {
                Endpoint::Ipv4(registered) => *registered == address,
                Endpoint::Udp(_) => true,
                Endpoint::Ipv6(_) => false,
            });
            match inside(Some(address)).filter(|_| here) {
                Some(path) => path,
                None => (renewed.ok_or(BindingStatus::INVALID_CARE_OF_ADDRESS)?, None),
            }
        }
        None => {
            // RFC 5648 5.1: an option without an address means the care-of address that the binding
            // already has.
            let known = known.ok_or(BindingStatus::MCOA_UNKNOWN_CARE_OF_ADDRESS)?;
            let (_, node) = known;
            let moved = node.ipv6().is_none() && single;
            // Only a plain IPv4 address counts as declared: a node behind a NAT does not know its outer
            // address and port.
            let declared = match node {
                Endpoint::Ipv4(address) => Some(address),
                _ => None,
            };
            inside(declared).filter(|_| moved).unwrap_or((known, None))
        }
    };
    if !is_acceptable_care_of_address(config, cache, request.home_address, ends) {
        return Err(BindingStatus::INVALID_CARE_OF_ADDRESS);
    }
    Ok((ends, nat_detection))
}
