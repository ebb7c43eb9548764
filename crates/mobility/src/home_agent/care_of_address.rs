//! Judges care-of addresses (status 174, RFC 6275 6.1.8 and 9.5.1), and chooses the tunnel end of an IPv4
//! care-of address (RFC 5555 4.2, 4.5).
//!
//! Mobile routers may be behind each other: a router whose care-of address lies in another's prefix is
//! reached through the other's tunnel. The home agent refuses only a ring of them, in which every packet
//! would be encapsulated for ever. It refuses the Binding Update that would close the ring. A node with
//! several care-of addresses is reached by each of them.
//!
//! An IPv4 care-of address is the source of the Binding Update as the home agent sees it. If the node names
//! the same address, plain IPv4 suffices; otherwise there is a NAT, which only UDP passes.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use carnet_base::Endpoint;
use carnet_wire::mobility::MobilityOption;
use carnet_wire::mobility::options::NO_KEEPALIVE;

use super::{BindingCache, HomeAgentConfig};
use crate::is_unicast_routable;

/// Keepalive interval in seconds for a node behind a NAT (RFC 5555 3.2.2). NATs of mobile operators drop a
/// mapping after 30 s; RFC 5555's 110 s are too long for them.
pub(super) const NAT_REFRESH: u32 = 25;

/// Whether `home_address` may be bound to `care_of_address` over `agent`, the home agent's end.
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

/// Whether an IPv4 address can belong to one host. Private addresses can: the home agent may be in a private
/// network.
pub(super) fn is_unicast(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224 && !address.is_loopback()
}

/// Whether the tunnels from `care_of_address` outwards lead back to the node itself.
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
        // The search sees at most the care-of addresses that the configuration permits.
        debug_assert!(seen.len() <= 1 + config.nodes.len() * super::MAX_BINDINGS);
        hops.extend(cache.leading_to(hop, home_address).filter_map(|binding| binding.care_of_address.ipv6()));
    }
    false
}

/// Path to a node in an IPv4 network, and the answer about its NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ipv4Path {
    /// The home agent's end and the node's.
    pub ends: (Endpoint, Endpoint),
    /// NAT Detection option of the acknowledgement; `None` if plain IPv4 carries the packets.
    ///
    /// RFC 5555 4.2 requires the option in every acknowledgement inside UDP, and by 4.4.2 a node that gets it
    /// must use UDP. A node cannot act on both with plain IPv4, so the option comes only with UDP.
    pub nat_detection: Option<MobilityOption<'static>>,
}

/// Chooses between plain IPv4 and UDP for a Binding Update that came inside IPv4 between the ends of `outer`.
/// `declared` is the IPv4 care-of address that the update names; `force_udp` is the F flag or the operator's
/// config.
///
/// The home agent always grants the F flag (RFC 5555 4.5 leaves it to the home agent).
pub(super) fn ipv4_path(
    (agent, node): (Endpoint, Endpoint),
    declared: Option<Ipv4Addr>,
    force_udp: bool,
) -> Ipv4Path {
    if matches!(node, Endpoint::Ipv4(_)) {
        // A request in plain IPv4 is answered in plain IPv4, not in UDP as RFC 5555 4.4.2 has it.
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
