//! Validates care-of addresses (status 174, RFC 6275 6.1.8 and 9.5.1), and chooses the tunnel end of an IPv4
//! care-of address (RFC 5555 4.2, 4.5).
//!
//! A mobile router may be behind another one. Then its care-of address is in the other router's prefix, and
//! the home agent reaches it through the other router's tunnel. If two routers were behind each other, the
//! home agent would encapsulate a packet for ever. So it refuses the Binding Update that would close such a
//! ring. The check follows all care-of addresses of a node.
//!
//! An IPv4 care-of address is the source of the Binding Update as the home agent receives it. If the node
//! names the same address in the message, no NAT is on the path, and plain IPv4 suffices. Otherwise a NAT has
//! changed the address, and only UDP passes a NAT.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carnet_base::Endpoint;
use carnet_wire::mobility::MobilityOption;
use carnet_wire::mobility::options::NO_KEEPALIVE;

use super::{BindingCache, HomeAgentConfig};
use crate::is_unicast_routable;

/// Keepalive interval in seconds for a node behind a NAT (RFC 5555 3.2.2). NATs of mobile operators drop a
/// mapping after 30 s; RFC 5555's 110 s are too long for them.
pub(super) const NAT_REFRESH_SECONDS: u32 = 25;

/// Returns whether `home_address` may be bound to `care_of_address` with the home agent's tunnel end `agent`.
pub(super) fn is_acceptable_care_of_address(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    home_address: Ipv6Addr,
    (agent, care_of_address): (Endpoint, Endpoint),
) -> bool {
    match care_of_address {
        Endpoint::Ipv6(address) => {
            is_unicast_routable(address)
                && address != config.address
                && !cache.prefix_table().is_home_address(address)
                && !would_close_tunnel_loop(config, cache, home_address, address)
        }
        Endpoint::Ipv4(address) => {
            is_unicast(address)
                && agent.ipv4() != Some(address)
                && !would_close_tunnel_loop(config, cache, home_address, address.to_ipv6_mapped())
        }
        Endpoint::Udp(socket) => {
            is_unicast(*socket.ip())
                && socket.port() != 0
                && agent != care_of_address
                && !would_close_tunnel_loop(config, cache, home_address, socket.ip().to_ipv6_mapped())
        }
    }
}

/// Returns whether an IPv4 address can belong to one host. Private addresses can, because the home agent may
/// be in a private network.
pub(super) fn is_unicast(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224 && !address.is_loopback()
}

/// Returns whether the tunnels by which the home agent reaches `care_of_address` lead back to the node
/// itself. IPv4 addresses are in IPv4-mapped form.
fn would_close_tunnel_loop(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    home_address: Ipv6Addr,
    care_of_address: Ipv6Addr,
) -> bool {
    let own = |address| {
        cache.prefix_table().owners_of_covering_prefixes(address).any(|owner| owner == home_address)
    };
    let mut hops = vec![care_of_address];
    let mut seen = BTreeSet::new();
    while let Some(hop) = hops.pop() {
        if own(hop) {
            return true;
        }
        if !seen.insert(hop) {
            continue;
        }
        // The search visits each care-of address at most once, and the configuration limits their number.
        debug_assert!(seen.len() <= 1 + config.nodes.len() * super::MAX_BINDINGS);
        let bindings = cache.bindings_leading_to(hop, home_address);
        hops.extend(bindings.map(|binding| match binding.care_of_address.address() {
            IpAddr::V6(address) => address,
            IpAddr::V4(address) => address.to_ipv6_mapped(),
        }));
    }
    false
}

/// Tunnel to a node in an IPv4 network, and the NAT Detection option for its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ipv4Path {
    /// Tunnel ends of the home agent and of the node.
    pub tunnel_ends: (Endpoint, Endpoint),
    /// NAT Detection option of the acknowledgement; `None` if plain IPv4 carries the packets.
    ///
    /// RFC 5555 4.2 requires the option in every acknowledgement inside UDP. By 4.4.2 a node that receives
    /// the option must use UDP. So with plain IPv4 the home agent sends no such option.
    pub nat_detection_option: Option<MobilityOption<'static>>,
}

/// Chooses between plain IPv4 and UDP for a Binding Update that came through IPv4 between these ends.
/// `declared` is the IPv4 care-of address that the message names. `force_udp` is true if the message has the
/// F flag or the operator's config demands UDP.
///
/// RFC 5555 4.5 lets the home agent grant or refuse the F flag; carnet grants it.
pub(super) fn ipv4_path(
    (agent, node): (Endpoint, Endpoint),
    declared: Option<Ipv4Addr>,
    force_udp: bool,
) -> Ipv4Path {
    if matches!(node, Endpoint::Ipv4(_)) {
        // Answer in plain IPv4 if the request came in plain IPv4, although RFC 5555 4.4.2 asks for UDP.
        return Ipv4Path { tunnel_ends: (agent, node), nat_detection_option: None };
    }
    let translated = declared.is_none() || declared != node.ipv4();
    let plain = agent.ipv4().zip(node.ipv4());
    match plain {
        Some((agent, node)) if !translated && !force_udp => {
            Ipv4Path { tunnel_ends: (agent.into(), node.into()), nat_detection_option: None }
        }
        _ => {
            let refresh = if translated { NAT_REFRESH_SECONDS } else { NO_KEEPALIVE };
            let nat_detection = MobilityOption::NatDetection { force_udp: !translated, refresh };
            Ipv4Path { tunnel_ends: (agent, node), nat_detection_option: Some(nat_detection) }
        }
    }
}
