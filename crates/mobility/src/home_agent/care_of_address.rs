//! Which addresses may be care-of addresses (status 174, RFC 6275 6.1.8 and 9.5.1), and which end of a tunnel
//! an IPv4 one is (RFC 5555 4.2, 4.5).
//!
//! Mobile routers may stand behind each other: one whose care-of address lies in another's prefix is reached
//! through the other's tunnel. Only a ring of them, in which every packet would be wrapped for ever, is
//! refused; the Binding Update that would close it is the one that meets the refusal. A node with several
//! care-of addresses is reached by each of them.
//!
//! An IPv4 care-of address is the one that the Binding Update came from, as we see it. When the node says the
//! same, plain IPv4 will do; otherwise there is a NAT, and only UDP passes it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use carnet_base::Endpoint;
use carnet_wire::mobility::MobilityOption;
use carnet_wire::mobility::options::NO_KEEPALIVE;

use super::{BindingCache, HomeAgentConfig};
use crate::is_unicast_routable;

/// Seconds after which a node behind a NAT is asked to say something (RFC 5555 3.2.2). NATs of mobile
/// operators forget after 30; RFC 5555's 110 is too long for them.
pub(super) const NAT_REFRESH: u32 = 25;

/// Whether `home_address` may be bound to `care_of_address` by way of `agent`, our end.
pub(super) fn is_acceptable(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    home_address: Ipv6Addr,
    (agent, care_of_address): (Endpoint, Endpoint),
) -> bool {
    match care_of_address {
        Endpoint::Ipv6(address) => {
            is_unicast_routable(address)
                && address != config.address
                && !cache.owners().is_home_address(address)
                && !closes_ring(config, cache, home_address, address)
        }
        Endpoint::Ipv4(address) => is_unicast(address) && agent.ipv4() != Some(address),
        Endpoint::Udp(socket) => is_unicast(*socket.ip()) && socket.port() != 0 && agent != care_of_address,
    }
}

/// Whether an IPv4 address can be one host's. Private ones can: the home agent may be in a private network.
pub(super) fn is_unicast(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224 && !address.is_loopback()
}

/// Follows the tunnels from `care_of_address` outwards: does a way lead back to the node itself?
fn closes_ring(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    home_address: Ipv6Addr,
    care_of_address: Ipv6Addr,
) -> bool {
    let own = |address| cache.owners().of_prefixes_around(address).any(|owner| owner == home_address);
    let mut hops = vec![care_of_address];
    let mut seen = BTreeSet::new();
    while let Some(hop) = hops.pop() {
        if own(hop) {
            return true;
        }
        if !seen.insert(hop) {
            continue;
        }
        // No more care-of addresses than the configuration allows lead anywhere.
        debug_assert!(seen.len() <= 1 + config.nodes.len() * super::MAX_BINDINGS);
        hops.extend(cache.leading_to(hop, home_address).filter_map(|binding| binding.care_of_address.ipv6()));
    }
    false
}

/// How a node inside an IPv4 network is reached, and what it is told about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ipv4Path {
    /// Our end and the node's.
    pub ends: (Endpoint, Endpoint),
    /// The NAT Detection option for the acknowledgement; none where plain IPv4 carries the packets.
    ///
    /// RFC 5555 4.2 wants the option in every acknowledgement inside UDP, and by 4.4.2 a node that gets it
    /// has to use UDP. A node can only act upon the second.
    pub nat_detection: Option<MobilityOption<'static>>,
}

/// Chooses between plain IPv4 and UDP for a Binding Update that came inside IPv4 between `outer`. `declared`
/// is the IPv4 care-of address that it names; `force_udp` is the F flag, or our own wish.
///
/// An F flag is always granted (RFC 5555 4.5 leaves it to the home agent).
pub(super) fn ipv4_path(
    (agent, node): (Endpoint, Endpoint),
    declared: Option<Ipv4Addr>,
    force_udp: bool,
) -> Ipv4Path {
    if matches!(node, Endpoint::Ipv4(_)) {
        // Not in UDP, as RFC 5555 4.4.2 wants it: what came that way goes back that way.
        return Ipv4Path { ends: (agent, node), nat_detection: None };
    }
    let translated = declared.is_none() || declared != node.ipv4();
    let plain = agent.ipv4().zip(node.ipv4());
    match plain {
        Some((agent, node)) if !translated && !force_udp => {
            Ipv4Path { ends: (agent.into(), node.into()), nat_detection: None }
        }
        _ => {
            let refresh = if translated { NAT_REFRESH } else { NO_KEEPALIVE };
            let nat_detection = MobilityOption::NatDetection { force_udp: !translated, refresh };
            Ipv4Path { ends: (agent, node), nat_detection: Some(nat_detection) }
        }
    }
}
