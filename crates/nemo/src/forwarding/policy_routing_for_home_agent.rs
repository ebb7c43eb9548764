//! Entries of the desired state for a home agent.
//!
//! A route leads the home agent's address into the tunnel device, so that carnet receives control packets
//! before the kernel, which would refuse them. The entries of a mobile node depend on its binding:
//!
//! * Node with a binding: routes lead its home address and its registered prefixes into the tunnel.
//! * Node without a binding: packets for the node must not follow a default route (RFC 3963 6.7). On a
//!   virtual home link its prefixes are unreachable. On a real home link a route leads packets for these
//!   prefixes to the home address. Any router at home has such a route (RFC 3963 6.5, example 1).
//! * Node registered at another home agent, on a virtual home link: a tunnel leads to that home agent.
//!
//! IPv4 prefixes of mobile networks are in IPv4-mapped form. They have the same routes, but none to a home
//! link, which has no IPv4 home addresses.
//!
//! NAT (`ipv4_nat`, `ipv6_nat`) changes the source of packets that come out of the tunnel device and leave by
//! the interface to the Internet. It changes all IPv4 sources, and the unique local sources of IPv6 (RFC
//! 4193). Such an IPv6 packet gets the machine's address on this interface. The rule of NAT sees only the
//! first packet of a connection, so two more rules count all packets. Left out: translation of a prefix that
//! the config does not name, because a prefix on the link also has addresses of other machines. For the
//! prefixes that it names (`ipv6_nat_prefixes`) the kernel exchanges the prefix in both directions, and keeps
//! the other bits. That is the purpose of RFC 6296, but not its algorithm. The kernel tracks the connections
//! and adapts their checksums, so no bits of the address make up for the prefix.
//!
//! Mobile networks that are parts of the home prefix (RFC 4887 6) need no other entries. Their prefixes are
//! longer than the prefix of the home link, so their routes win.

use std::net::{Ipv6Addr, SocketAddrV4};
use std::sync::Arc;

use carnet_base::{Endpoint, mapped};
use carnet_mobility::home_agent::{AuthorizedNode, Binding, Nat, TranslatedPrefix};
use carnet_mobility::{Authentication, HomeAgent, UDP_PORT};
use carnet_wire::ipv6::protocol;
use ipnet::Ipv6Net;

use super::binding_tunnels::divide_among_tunnels;
use super::desired::{
    ForwardingEntry, RouteAction, Rule, SysctlSetting, TABLE_CAPTURE, TABLE_MAIN, TABLE_PROTECTED_BY_IPSEC,
    TUNNEL_DEVICE, Tunnel, TunnelEnd, TunnelSocket, priority,
};
use super::packet_rules::{
    ConnectionState, CountedTraffic, PacketMatch, PacketRule, RuleChain, RuleVerdict, TrafficKind,
};
use super::path_mtu::{TunnelEnds, inner_mtu};
use super::policy_routing_for_breakouts::counting_rule;
use super::route_entries::{
    LOOPBACK_INTERFACE, ROUTE_METRIC, host_prefix, route_entry, route_into_tunnel_device, unreachable_route,
};

/// Metric of routes to nodes that are registered at another home agent. A routing daemon sees by it that it
/// must not announce these routes from here.
const RELAYED_ROUTE_METRIC: u32 = 2048;
/// Sysctls by which the kernel takes default routes and prefixes from Router Advertisements. The platform
/// sets them to 0, but only if the machine does not need them.
const ROUTER_ADVERTISEMENT_SYSCTLS: [&str; 2] = ["accept_ra_defrtr", "accept_ra_pinfo"];
/// Unique local addresses (RFC 4193 3.1).
const UNIQUE_LOCAL_PREFIX: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7);
/// Order of the rules for NAT in their chain: first those that exchange prefixes.
const ORDER_OF_PREFIXES: u32 = 490;
const ORDER_OF_NAT: u32 = 500;
/// Path MTU to another home agent before the first Packet Too Big arrives: the MTU of Ethernet.
const RELAY_PATH_MTU: u32 = 1500;

/// Splits a prefix into the parts that contain none of these addresses.
fn prefixes_without_addresses(prefix: Ipv6Net, addresses: &[Ipv6Addr]) -> Vec<Ipv6Net> {
    if !addresses.iter().any(|address| prefix.contains(address)) {
        return vec![prefix];
    }
    // The prefix of a single address cannot be split further, so the loop adds nothing for it.
    let halves = prefix.subnets(prefix.prefix_len() + 1).into_iter().flatten();
    halves.flat_map(|half| prefixes_without_addresses(half, addresses)).collect()
}

/// Returns the entries that do not depend on bindings.
pub(crate) fn home_agent_entries(agent: &HomeAgent) -> Vec<ForwardingEntry> {
    let config = agent.config();
    let setting = |interface: &str, name: &str, value: &str| {
        let (interface, name, value) = (interface.to_owned(), name.to_owned(), value.to_owned());
        ForwardingEntry::Setting(Box::new(SysctlSetting { interface, name, value }))
    };
    let mut entries = vec![
        setting("all", "forwarding", "1"),
        route_entry(TABLE_MAIN, host_prefix(config.address), ROUTE_METRIC, route_into_tunnel_device()),
    ];
    entries.extend(nat_entries(&config.nat).chain(prefix_translation_entries(&config.nat)));
    let is_ipv4 = |prefix: &Ipv6Net| mapped::to_ipv4(*prefix).is_some();
    if config.nodes.iter().any(|node| node.prefixes.iter().any(is_ipv4)) {
        entries.push(setting("all", "ipv4_forwarding", "1"));
        entries.push(setting("all", "ipv4_accept_redirects", "0"));
        // Packets between two mobile networks arrive by the tunnel device and leave by it. The kernel would
        // send their sources redirects, although source and next hop are not on one link (RFC 1812 5.2.7.2).
        // The kernel sends redirects if the setting of the interface or that of `all` permits them.
        let links = ["all", TUNNEL_DEVICE];
        entries.extend(links.map(|link| setting(link, "ipv4_send_redirects", "0")));
    }
    // RFC 4861 11.1: turn these sysctls off on the home link. Otherwise any host there could attract all
    // packets that leave this machine, by a Router Advertisement.
    let stopped = config
        .home_link
        .iter()
        .flat_map(|link| ROUTER_ADVERTISEMENT_SYSCTLS.map(|name| setting(link, name, "0")));
    entries.extend(stopped);
    if config.nodes.iter().any(|node| node.authentication == Authentication::Ipsec) {
        entries.extend(ipsec_entries(config.address));
    }
    let anycast = agent.anycast_addresses().iter();
    entries.extend(anycast.map(|anycast| {
        route_entry(TABLE_MAIN, host_prefix(*anycast), ROUTE_METRIC, route_into_tunnel_device())
    }));
    // RFC 4887 5.1: the aggregate prefix is routed to this machine, and packets to its unused parts would go
    // back by the default route. So make the aggregate unreachable, except for the addresses of other home
    // agents, if the home link is virtual and they are elsewhere.
    let peers: Vec<Ipv6Addr> = config.other_agents.peers.iter().map(|peer| peer.address).collect();
    let virtual_link = config.home_link.is_none().then_some(config.home_prefix);
    for prefix in virtual_link.into_iter().chain(config.home_network) {
        let elsewhere = if config.home_link.is_none() { &peers[..] } else { &[] };
        entries.extend(
            prefixes_without_addresses(prefix, elsewhere)
                .into_iter()
                .map(|part| unreachable_route(TABLE_MAIN, part)),
        );
    }
    if let Some(address) = config.ipv4_address {
        let ends = [Endpoint::Udp(SocketAddrV4::new(address, UDP_PORT)), Endpoint::Ipv4(address)];
        entries.extend(ends.map(|local| ForwardingEntry::Socket(TunnelSocket { local, interface: None })));
    }
    entries
}

/// Returns the rules by which packets of mobile networks get the address of the interface to the Internet,
/// and the rules that count these packets. They select packets of the tunnel device, to which the forwarder
/// writes no packet of other networks.
fn nat_entries(nat: &Nat) -> impl Iterator<Item = ForwardingEntry> {
    let families = [
        (&nat.ipv4_interface, mapped::ALL_IPV4_PREFIX, TrafficKind::Ipv4Nat),
        (&nat.ipv6_interface, UNIQUE_LOCAL_PREFIX, TrafficKind::Ipv6Nat),
    ];
    let with_nat = families.into_iter().filter_map(|(interface, source, kind)| {
        let interface = interface.as_ref()?;
        let outgoing = PacketMatch {
            input_interface: Some(TUNNEL_DEVICE.into()),
            output_interface: Some(interface.clone()),
            source: Some(source),
            ..PacketMatch::default()
        };
        let answers = PacketMatch {
            input_interface: Some(interface.clone()),
            output_interface: Some(TUNNEL_DEVICE.into()),
            destination: Some(source),
            states: vec![ConnectionState::Established, ConnectionState::Related],
            ..PacketMatch::default()
        };
        let count = |packets, is_outgoing| {
            let (kind, interface) = (kind.clone(), interface.clone());
            counting_rule(packets, CountedTraffic { kind, interface, is_outgoing })
        };
        let count_outgoing = count(outgoing.clone(), true);
        let translate = PacketRule {
            chain: RuleChain::SourceNat,
            order: ORDER_OF_NAT,
            packets: outgoing,
            counts: true,
            total: None,
            verdict: RuleVerdict::Masquerade,
        };
        Some([translate, count_outgoing, count(answers, false)])
    });
    with_nat.flatten().map(|rule| ForwardingEntry::PacketRule(Box::new(rule)))
}

/// Returns the rules that exchange prefixes of mobile networks for prefixes that are routed to this machine,
/// in both directions.
fn prefix_translation_entries(nat: &Nat) -> impl Iterator<Item = ForwardingEntry> {
    let interfaces = nat.ipv6_interface.iter();
    let pairs = interfaces.flat_map(|interface| nat.ipv6_prefixes.iter().map(move |pair| (interface, pair)));
    pairs.flat_map(|(interface, TranslatedPrefix { inside_prefix: inside, outside_prefix: outside })| {
        let out = PacketMatch {
            input_interface: Some(TUNNEL_DEVICE.into()),
            output_interface: Some(interface.clone()),
            source: Some(*inside),
            ..PacketMatch::default()
        };
        let into = PacketMatch {
            input_interface: Some(interface.clone()),
            destination: Some(*outside),
            ..PacketMatch::default()
        };
        let rules = [
            (RuleChain::SourceNat, out, RuleVerdict::SourcePrefix(*outside)),
            (RuleChain::DestinationNat, into, RuleVerdict::DestinationPrefix(*inside)),
        ];
        rules.map(|(chain, packets, verdict)| {
            let (order, counts, total) = (ORDER_OF_PREFIXES, true, None);
            ForwardingEntry::PacketRule(Box::new(PacketRule {
                chain,
                order,
                packets,
                counts,
                total,
                verdict,
            }))
        })
    })
}

/// Returns the entries by which the kernel's IPsec handles messages from and to the home agent's address. For
/// a received ESP packet, carnet removes the Home Address option (`station/protection.rs`), then the kernel
/// delivers it to this machine. Sent packets pass through carnet, which inserts the routing header.
fn ipsec_entries(address: Ipv6Addr) -> Vec<ForwardingEntry> {
    let rule = |input: &str, from: Option<Ipv6Net>, to: Option<Ipv6Net>, protocol, table| {
        let (input_interface, protocol) = (Some(input.to_owned()), Some(protocol));
        ForwardingEntry::Rule(Box::new(Rule {
            priority: priority::PROTECTED_BY_IPSEC,
            input_interface,
            from,
            to,
            protocol,
            table,
            ..Rule::default()
        }))
    };
    vec![
        route_entry(TABLE_PROTECTED_BY_IPSEC, host_prefix(address), ROUTE_METRIC, RouteAction::Local),
        route_entry(TABLE_CAPTURE, Ipv6Net::default(), ROUTE_METRIC, route_into_tunnel_device()),
        rule(TUNNEL_DEVICE, None, Some(host_prefix(address)), protocol::ESP, TABLE_PROTECTED_BY_IPSEC),
        rule(LOOPBACK_INTERFACE, Some(host_prefix(address)), None, protocol::MOBILITY, TABLE_CAPTURE),
    ]
}

/// Returns the entries of one node, with or without a binding.
pub(crate) fn mobile_router_entries(agent: &HomeAgent, node: &AuthorizedNode) -> Vec<ForwardingEntry> {
    let config = agent.config();
    let bindings = agent.bindings();
    let home_address = node.home_address;
    let inner: Vec<Ipv6Net> = std::iter::once(host_prefix(home_address))
        .chain(bindings.prefixes(home_address).iter().copied())
        .collect();
    let valid: Vec<Binding> = bindings.bindings_of(home_address).collect();
    // The home agent sends packets only to care-of addresses that have passed the care-of test.
    let tested = valid.iter().filter(|binding| binding.is_care_of_tested);
    let living: Vec<_> = tested.map(|binding| (binding.bid, binding.tunnel_ends())).collect();
    let bound = !valid.is_empty();
    let flows = bindings.flows(home_address);
    let ways = divide_among_tunnels(TunnelEnd::HomeAgent, home_address, config.address, &living, flows, &[]);
    let session = node.authentication.session();
    let tunnel = |bid, ends: TunnelEnds, transmit| {
        let (local, remote) = ends;
        ForwardingEntry::Tunnel(Arc::new(Tunnel {
            end: TunnelEnd::HomeAgent,
            home_address,
            bid,
            local,
            remote,
            inner: inner.clone(),
            transmit,
            mtu: inner_mtu(RELAY_PATH_MTU, remote, session.is_some()),
            session,
        }))
    };
    let mut entries = Vec::new();
    // The tunnel of a binding that has just ended still accepts packets. Without another tunnel the node is
    // de-registered: new packets use other routes, but packets in transit still reach the node. If no care-of
    // address has passed its test, packets keep their former route.
    let relay = agent.relay_of_node(home_address).filter(|_| !bound);
    let former = bindings.former_paths(home_address);
    let serves = living.is_empty() && relay.is_none();
    let last = former.iter().rposition(|path| path.is_care_of_tested).filter(|_| serves);
    for (place, path) in former.iter().enumerate() {
        entries.push(tunnel(None, (path.agent, path.care_of_address), Some(place) == last));
    }
    // The node has registered at another home agent: use that home agent's address as the care-of address.
    if let Some(relay) = relay {
        let inner: Vec<Ipv6Net> =
            std::iter::once(host_prefix(home_address)).chain(relay.prefixes.clone()).collect();
        let remote = Endpoint::Ipv6(relay.to);
        entries.extend(
            inner
                .iter()
                .map(|it| route_entry(TABLE_MAIN, *it, RELAYED_ROUTE_METRIC, route_into_tunnel_device())),
        );
        entries.push(ForwardingEntry::Tunnel(Arc::new(Tunnel {
            end: TunnelEnd::HomeAgent,
            home_address,
            bid: None,
            local: config.address.into(),
            remote,
            inner,
            transmit: true,
            mtu: inner_mtu(RELAY_PATH_MTU, remote, false),
            session: None,
        })));
    }
    // Bindings with the same two tunnel ends share one tunnel; the preferred binding defines it.
    for binding in valid.iter().rev() {
        let ends = binding.tunnel_ends();
        entries.push(tunnel(binding.bid, ends, ways.transmitting_tunnels.contains(&ends)));
    }
    entries
        .extend(ways.distribution.map(|distribution| ForwardingEntry::Distribution(Box::new(distribution))));
    if bound {
        for destination in inner.iter().copied() {
            entries.push(route_entry(TABLE_MAIN, destination, ROUTE_METRIC, route_into_tunnel_device()));
        }
    }
    for prefix in node.prefixes.iter() {
        match &config.home_link {
            // RFC 4887 5.3: a home address outside the home link's prefixes cannot be reached over the home
            // link.
            Some(home_link)
                if !bound
                    && config.home_prefix.contains(&home_address)
                    && mapped::to_ipv4(*prefix).is_none() =>
            {
                entries.push(route_entry(
                    TABLE_MAIN,
                    *prefix,
                    ROUTE_METRIC,
                    RouteAction::Forward { interface: home_link.clone(), gateway: Some(home_address) },
                ));
            }
            _ => entries.push(unreachable_route(TABLE_MAIN, *prefix)),
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_minus_excluded_addresses_is_split_into_longer_prefixes() {
        let prefix: Ipv6Net = "2001:db8:1::/64".parse().expect("a prefix");
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        assert_eq!(prefixes_without_addresses(prefix, &[address("2001:db8:2::1")]), [prefix]);
        let peers = [address("2001:db8:1::2"), address("2001:db8:1::3"), address("2001:db8:1:0:ff00::")];
        let parts = prefixes_without_addresses(prefix, &peers);
        assert!(parts.len() < 2 * 64, "{} parts", parts.len());
        let within = |address: Ipv6Addr| parts.iter().filter(|part| part.contains(&address)).count();
        assert!(peers.iter().all(|peer| within(*peer) == 0));
        for other in
            ["2001:db8:1::", "2001:db8:1::1", "2001:db8:1::4", "2001:db8:1::1:2", "2001:db8:1:0:ffff::1"]
        {
            assert_eq!(within(address(other)), 1, "{other}");
        }
    }
}
