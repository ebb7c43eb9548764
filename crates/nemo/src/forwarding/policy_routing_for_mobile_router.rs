//! Entries of the desired state for a mobile router.
//!
//! * Rules before the `local` table capture packets of the home agent to a care-of address. These rules lead
//!   the packets into the tunnel device before the kernel's own input, which would refuse them.
//! * Packets from the mobile network or the home address always go into the tunnel device. The forwarder
//!   decides whether a tunnel takes them, so a registration changes no kernel route.
//! * Packets that this machine sends from a care-of address leave by the uplink of that address, regardless
//!   of the main table.
//! * Rules refuse all other packets. The router does not forward from an uplink to the mobile network (past
//!   the home agent) or to another uplink. A host on board cannot send with a foreign source address (RFC
//!   3963 9).
//! * Packets that arrive over GeoNetworking must be for the mobile network.
//! * Uplinks behave like hosts on the visited network although the router forwards. They send no Router bit,
//!   do not join the all-routers group, and accept Router Advertisements (RFC 3963 5.6, 5.7).
//! * Tunnels inside IPv4 use sockets that are bound to their uplink, regardless of the main table. See
//!   [`policy_routing_for_ipv4_tunnels`].
//! * On the home link, routes lead packets of the mobile network out of that link without a tunnel. Until the
//!   home agent has acknowledged the return, packets of the tunnel leave as on a foreign link.
//! * A mobile node has no mobile network: only its own packets enter the tunnel. A program that has chosen no
//!   source address gets the home address (RFC 6724 5, rule 4). A rule ensures the choice, because the kernel
//!   would choose the uplink's address. Packets of a program that binds to a care-of address leave by the
//!   uplink of that address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};
use std::sync::Arc;

use carnet_base::mapped::{self, ALL_IPV4_PREFIX};
use carnet_base::{Endpoint, Interface};
use carnet_mobility::mobile_router::{Attachment, MAX_NEXT_HOPS, MobileRouterConfig, Path, Uplink};
use carnet_mobility::{Authentication, MobileRouter};
use carnet_wire::ipv6::protocol;
use ipnet::Ipv6Net;

use super::binding_tunnels::divide_among_tunnels;
use super::desired::{
    ForwardingEntry, InterfaceAddress, Route, RouteAction, Rule, SysctlSetting, TABLE_CAPTURE, TABLE_MAIN,
    TABLE_NEXT_HOP, TABLE_TUNNEL, TABLE_UNREACHABLE, TABLE_UPLINK, TUNNEL_DEVICE, Tunnel, TunnelEnd,
    TunnelSocket, priority,
};
use super::path_mtu::inner_mtu;
use super::policy_routing_for_breakouts::BreakoutPolicy;
use super::policy_routing_for_ipv4_tunnels;
use super::route_entries::{
    LOOPBACK_INTERFACE, ROUTE_METRIC, first_host_address, host_prefix, route_entry, route_into_tunnel_device,
    unreachable_route,
};

/// Protocols of the home agent's packets to a care-of address: tunnelled packets, Mobility Headers, and
/// fragments of either.
const CAPTURED_PROTOCOLS: [u8; 3] = [protocol::IPV6, protocol::MOBILITY, protocol::FRAGMENT];
/// Sysctl by which the kernel forwards IPv4 packets that arrive on an interface.
const IPV4_FORWARDING_SYSCTL: &str = "ipv4_forwarding";

/// Returns the interface settings in three groups, to be installed in this order and before all other
/// entries. Uplinks must accept Router Advertisements before forwarding is turned on; otherwise the kernel
/// drops the default routers that it knows.
/// `has_breakouts` says whether packets may leave without the tunnel.
pub(crate) fn sysctl_entries(
    router: &MobileRouter,
    lan: &[String],
    has_breakouts: bool,
) -> [Vec<ForwardingEntry>; 3] {
    let setting = |interface: &str, name: &str, value: &str| {
        ForwardingEntry::Setting(Box::new(SysctlSetting {
            interface: interface.into(),
            name: name.into(),
            value: value.into(),
        }))
    };
    let uplinks = || router.config().uplinks.iter().map(|u| u.interface.as_str());
    // With a strict reverse path filter the kernel accepts answers only on the uplink to which the main
    // table's route leads. This concerns answers of the home agent, and answers to packets that have left
    // without the tunnel.
    let with_ipv4 = uplinks().filter(|_| router.config().home_agent_ipv4.is_some() || has_breakouts);
    // Packets of the mobile network come out of the tunnel device, so an uplink needs no forwarding of IPv4.
    // If packets leave without the tunnel, their answers arrive on the uplink, which then needs it.
    let has_ipv4_networks = router.config().is_router() && !router.config().ipv4_prefixes.is_empty();
    let links: Vec<&str> = match lan {
        [] => vec!["all"],
        lan => {
            let outside = uplinks().filter(|_| has_breakouts);
            lan.iter().map(String::as_str).chain([TUNNEL_DEVICE]).chain(outside).collect()
        }
    };
    let links = links.into_iter().filter(|_| has_ipv4_networks);
    let ipv4_forwarding = links.map(|link| setting(link, IPV4_FORWARDING_SYSCTL, "1"));
    let forwarding = std::iter::once(setting("all", "forwarding", "1")).chain(ipv4_forwarding);
    [
        uplinks()
            .map(|uplink| setting(uplink, "accept_ra", "2"))
            // On the mobile network's links this router sends Router Advertisements and does not accept any.
            .chain(lan.iter().map(|interface| setting(interface, "accept_ra", "0")))
            .chain(with_ipv4.map(|uplink| setting(uplink, "rp_filter", "2")))
            .collect(),
        forwarding.collect(),
        uplinks().map(|uplink| setting(uplink, "forwarding", "0")).collect(),
    ]
}

/// Returns all entries but the settings, from the router's state and its LAN interfaces.
///
/// * `assigned`: the LAN interfaces that get the address `PREFIX::1`, each with its prefix.
/// * `stations`: the interfaces of IPv6 over GeoNetworking.
/// * `beside`: the state machines for other home agents, which the router tries or leaves. Their tunnels
///   accept packets but send only messages.
/// * `breakouts`: the policies for packets that leave without the tunnel.
pub(crate) fn router_entries<'a>(
    router: &MobileRouter,
    beside: impl Iterator<Item = &'a MobileRouter>,
    lan: &[String],
    assigned: &[(String, Ipv6Net)],
    stations: &[String],
    interfaces: &BTreeMap<String, Interface>,
    breakouts: &[BreakoutPolicy],
) -> Vec<ForwardingEntry> {
    let config = router.config();
    let mut entries = Vec::new();
    let default = Ipv6Net::default();
    entries.push(route_entry(TABLE_CAPTURE, default, ROUTE_METRIC, route_into_tunnel_device()));
    entries.push(entry_for_home_address(
        config,
        route_entry(TABLE_TUNNEL, default, ROUTE_METRIC, route_into_tunnel_device()),
    ));
    // If the tunnel device disappears, packets must not leave by another route.
    entries.push(unreachable_route(TABLE_TUNNEL, default));
    entries.push(unreachable_route(TABLE_UNREACHABLE, default));
    let beside: Vec<&MobileRouter> = beside.collect();
    let agents = std::iter::once(router).chain(beside.iter().copied());
    for agent in agents.map(|router| router.config().home_agent).filter(|agent| !agent.is_unspecified()) {
        for uplink in &config.uplinks {
            let esp = (config.authentication == Authentication::Ipsec).then_some(protocol::ESP);
            let ipv4 = (!config.ipv4_prefixes.is_empty()).then_some(protocol::IPV4);
            // Encrypted sessions inside IPv6 are UDP packets, so the tunnel device must get UDP of the home
            // agent as well.
            let udp = config.authentication.session().map(|_| protocol::UDP);
            for protocol in CAPTURED_PROTOCOLS.into_iter().chain(ipv4).chain(esp).chain(udp) {
                entries.push(ForwardingEntry::Rule(Box::new(Rule {
                    priority: priority::TUNNEL_CAPTURE,
                    input_interface: Some(uplink.interface.clone()),
                    from: Some(host_prefix(agent)),
                    to: None,
                    protocol: Some(protocol),
                    table: TABLE_CAPTURE,
                    ..Rule::default()
                })));
            }
        }
    }

    // The home address and its routes must exist before the de-registration, which uses the home address as
    // its source. The traffic leaves the tunnel when the home agent has acknowledged the de-registration.
    let home = router.home_link();
    let home_index = home
        .and_then(|home| router.uplinks().iter().position(|u| u.config.interface == home.config.interface));
    for (index, uplink) in config.uplinks.iter().enumerate() {
        if home_index != Some(index) {
            entries.push(rule_entry(
                priority::FROM_UPLINK,
                Some(&uplink.interface),
                None,
                None,
                TABLE_UNREACHABLE,
            ));
        }
    }
    let home_table = home_index.map_or(TABLE_TUNNEL, uplink_table);
    let mobile_table = if router.is_at_home() { home_table } else { TABLE_TUNNEL };
    let inside = lan_input_interfaces(lan);
    for prefix in &config.prefixes {
        entries.push(rule_entry(priority::TO_MOBILE_NETWORK, None, None, Some(*prefix), TABLE_MAIN));
        for input in &inside {
            entries.push(rule_entry(
                priority::FROM_MOBILE_NETWORK,
                *input,
                Some(*prefix),
                None,
                mobile_table,
            ));
        }
        // Without this route a packet to an unused part of the mobile network would loop.
        entries.push(unreachable_route(TABLE_MAIN, *prefix));
    }
    entries.extend(ipv4_entries(router, lan, home_index));
    for interface in stations {
        entries.push(rule_entry(priority::FROM_STATIONS, Some(interface), None, None, TABLE_UNREACHABLE));
    }
    for interface in lan {
        entries.push(rule_entry(priority::FROM_LAN, Some(interface), None, None, TABLE_UNREACHABLE));
    }
    let home_address = Some(host_prefix(config.home_address));
    entries.push(rule_entry(
        priority::FROM_MOBILE_NETWORK,
        Some(LOOPBACK_INTERFACE),
        home_address,
        None,
        mobile_table,
    ));
    if !config.is_router() {
        entries.push(rule_entry(
            priority::FROM_HOME_ADDRESS,
            Some(LOOPBACK_INTERFACE),
            None,
            None,
            mobile_table,
        ));
        // Routes name the home address as the source of their packets, so the address must always exist.
        entries.push(address_entry(TUNNEL_DEVICE, config.home_address));
    }
    if home.is_some() {
        // carnet sends the de-registration from the home address; its packet comes from the tunnel device.
        let input = Some(TUNNEL_DEVICE);
        entries.push(rule_entry(priority::FROM_MOBILE_NETWORK, input, home_address, None, home_table));
    }
    let at = home.map_or(TUNNEL_DEVICE, |home| home.config.interface.as_str());
    entries.push(address_entry(at, config.home_address));

    for (index, uplink) in router.uplinks().iter().enumerate() {
        let table = uplink_table(index);
        let interface = uplink.config.interface.clone();
        let forward = |gateway: Option<Ipv6Addr>| RouteAction::Forward {
            interface: interface.clone(),
            gateway: gateway.filter(|gateway| !gateway.is_unspecified()),
        };
        match uplink.attachment {
            Attachment::Foreign { ipv6: Some(_), .. } => {
                let ipv6 = uplink.care_of_addresses().into_iter().filter_map(|address| match address {
                    IpAddr::V6(address) => Some(address),
                    IpAddr::V4(_) => None,
                });
                entries.extend(entries_for_care_of_addresses(index, uplink, ipv6));
            }
            Attachment::Home { router: gateway } if home_index == Some(index) => {
                // A host on a foreign link may have forged the advertisement of the home prefix. So until the
                // home agent has acknowledged the return, packets of the tunnel go to their own router.
                if !router.is_at_home() {
                    let paths = router.paths().into_iter().filter(|path| path.uplink == index);
                    let ipv6 = paths.filter_map(|path| path.local.ipv6());
                    let ipv6 = ipv6.filter(|address| uplink.has_own_next_hop(*address));
                    entries.extend(entries_for_care_of_addresses(index, uplink, ipv6));
                }
                let link = route_entry(table, config.home_prefix, ROUTE_METRIC, forward(None));
                // If the operator has configured no default router, the home agent is the default router.
                let agent = Some(config.home_agent).filter(|agent| !agent.is_unspecified());
                let gateway = gateway.or(agent);
                let out =
                    gateway.map(|gateway| route_entry(table, default, ROUTE_METRIC, forward(Some(gateway))));
                entries
                    .extend(out.into_iter().chain([link]).map(|entry| entry_for_home_address(config, entry)));
            }
            _ => {}
        }
        entries.extend(policy_routing_for_ipv4_tunnels::ipv4_uplink_entries(uplink, |number| {
            next_hop_table(index, number)
        }));
    }

    entries.extend(tunnel_entries(router, &beside, breakouts));
    entries.extend(lan_addresses(assigned, interfaces));
    entries
}

/// Returns the routes and rules of the IPv4 mobile network, or of a mobile node's IPv4 home address, in
/// IPv4-mapped form. They equal the routes and rules of the IPv6 mobile network, with two differences. An
/// uplink may forward IPv4 to other networks than the mobile network, because an operator may translate
/// addresses there (NAT). On the home link the mobile network has no IPv4 route, because the home link has no
/// IPv4 home agent.
fn ipv4_entries(router: &MobileRouter, lan: &[String], home_index: Option<usize>) -> Vec<ForwardingEntry> {
    let config = router.config();
    if config.ipv4_prefixes.is_empty() {
        return Vec::new();
    }
    let mut entries = vec![
        route_entry(TABLE_TUNNEL, ALL_IPV4_PREFIX, ROUTE_METRIC, route_into_tunnel_device()),
        unreachable_route(TABLE_TUNNEL, ALL_IPV4_PREFIX),
        unreachable_route(TABLE_UNREACHABLE, ALL_IPV4_PREFIX),
    ];
    let table = if router.is_at_home() { TABLE_UNREACHABLE } else { TABLE_TUNNEL };
    for prefix in config.ipv4_prefixes.iter().copied().map(mapped::from_ipv4) {
        for (index, uplink) in config.uplinks.iter().enumerate() {
            if home_index != Some(index) {
                let input = Some(uplink.interface.as_str());
                entries.push(rule_entry(priority::FROM_UPLINK, input, None, Some(prefix), TABLE_UNREACHABLE));
            }
        }
        if !config.is_router() {
            entries.push(address_entry(TUNNEL_DEVICE, prefix.network()));
            entries.push(rule_entry(
                priority::FROM_MOBILE_NETWORK,
                Some(LOOPBACK_INTERFACE),
                Some(prefix),
                None,
                table,
            ));
            continue;
        }
        entries.push(rule_entry(priority::TO_MOBILE_NETWORK, None, None, Some(prefix), TABLE_MAIN));
        for input in lan_input_interfaces(lan) {
            entries.push(rule_entry(priority::FROM_MOBILE_NETWORK, input, Some(prefix), None, table));
        }
        entries.push(unreachable_route(TABLE_MAIN, prefix));
    }
    for interface in lan {
        entries.push(rule_entry(
            priority::FROM_LAN,
            Some(interface),
            Some(ALL_IPV4_PREFIX),
            None,
            TABLE_UNREACHABLE,
        ));
    }
    entries
}

/// Returns the routes to the routers of an uplink, and the rules that lead packets from these care-of
/// addresses to them. RFC 8028 3: a packet from a care-of address goes to the router that advertised its
/// prefix.
fn entries_for_care_of_addresses(
    index: usize,
    uplink: &Uplink,
    care_of_addresses: impl Iterator<Item = Ipv6Addr>,
) -> Vec<ForwardingEntry> {
    let mut entries = Vec::new();
    let default = Ipv6Net::default();
    for (number, router) in uplink.next_hops() {
        let table = next_hop_table(index, number);
        let interface = uplink.config.interface.clone();
        let gateway = Some(router).filter(|router| !router.is_unspecified());
        entries.push(route_entry(table, default, ROUTE_METRIC, RouteAction::Forward { interface, gateway }));
        entries.push(unreachable_route(table, default));
    }
    for care_of_address in care_of_addresses {
        let table = next_hop_table(index, uplink.table_of_address(care_of_address.into()));
        for input in [TUNNEL_DEVICE, LOOPBACK_INTERFACE] {
            let from = Some(host_prefix(care_of_address));
            entries.push(rule_entry(priority::FROM_CARE_OF_ADDRESS, Some(input), from, None, table));
        }
    }
    entries
}

/// Makes the home address the source of a mobile node's own packets on this route (RFC 6275 11.3.1). Without
/// this source, the kernel might choose another address that the uplink has in the home prefix.
fn entry_for_home_address(config: &MobileRouterConfig, entry: ForwardingEntry) -> ForwardingEntry {
    match entry {
        ForwardingEntry::Route(route) if !config.is_router() => {
            ForwardingEntry::Route(Route { source: Some(Box::new(config.home_address)), ..route })
        }
        entry => entry,
    }
}

fn rule_entry(
    priority: u32,
    input: Option<&str>,
    from: Option<Ipv6Net>,
    to: Option<Ipv6Net>,
    table: u32,
) -> ForwardingEntry {
    let input_interface = input.map(str::to_owned);
    ForwardingEntry::Rule(Box::new(Rule { priority, input_interface, from, to, table, ..Rule::default() }))
}

fn address_entry(interface: &str, address: Ipv6Addr) -> ForwardingEntry {
    ForwardingEntry::Address(InterfaceAddress {
        interface: interface.into(),
        address,
        prefix_length: 128,
        deprecated: false,
    })
}

/// Returns the input interfaces for packets of the mobile network: its links, and `lo` for this machine.
/// Without configured links, the operator routes packets to this machine, so the result contains `None` for
/// any interface.
pub(super) fn lan_input_interfaces(lan: &[String]) -> Vec<Option<&str>> {
    if lan.is_empty() {
        return vec![None];
    }
    lan.iter().map(|interface| Some(interface.as_str())).chain([Some(LOOPBACK_INTERFACE)]).collect()
}

/// Returns the tunnels, their distribution, and the sockets of tunnels inside IPv4.
fn tunnel_entries(
    router: &MobileRouter,
    beside: &[&MobileRouter],
    breakouts: &[BreakoutPolicy],
) -> Vec<ForwardingEntry> {
    let config = router.config();
    let mut inner = vec![host_prefix(config.home_address)];
    inner.extend(&config.prefixes);
    inner.extend(router.accepted_ipv4_prefixes().map(mapped::from_ipv4));
    let paths = router.paths();
    let living: Vec<_> = paths
        .iter()
        .filter(|path| path.may_transmit)
        .map(|path| (path.bid, (path.local, path.remote)))
        .collect();
    let (end, home_address) = (TunnelEnd::MobileRouter, config.home_address);
    let ways = divide_among_tunnels(end, home_address, config.home_agent, &living, router.flows(), breakouts);

    let interface = |uplink: usize| router.uplinks().get(uplink).map(|u| u.config.interface.clone());
    let mut sockets: BTreeSet<TunnelSocket> = BTreeSet::new();
    // A care-of address needs its socket before it is registered, for the first Binding Update.
    for (uplink, known) in router.uplinks().iter().enumerate() {
        let addresses = known.care_of_addresses().into_iter().filter(|_| config.home_agent_ipv4.is_some());
        let ipv4 = addresses.filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        for address in ipv4 {
            let udp = Endpoint::Udp(SocketAddrV4::new(address, known.udp_port));
            sockets.extend(
                [udp, address.into()].map(|local| TunnelSocket { local, interface: interface(uplink) }),
            );
        }
    }
    // A lost care-of address keeps its socket for packets that are still in transit.
    let others: Vec<Path> = beside.iter().flat_map(|router| router.paths()).collect();
    let inside_ipv4 = paths.iter().chain(&others).filter(|path| path.local.ipv6().is_none());
    sockets.extend(
        inside_ipv4.map(|path| TunnelSocket { local: path.local, interface: interface(path.uplink) }),
    );

    let session = config.authentication.session();
    // Put the tunnels of other home agents last, because they only receive.
    let tunnels = paths.iter().chain(&others).map(|path| {
        let mtu = router.uplinks().get(path.uplink).map_or(1280, |u| u.mtu());
        ForwardingEntry::Tunnel(Arc::new(Tunnel {
            end,
            home_address,
            bid: path.bid,
            local: path.local,
            remote: path.remote,
            inner: inner.clone(),
            transmit: ways.transmitting_tunnels.contains(&(path.local, path.remote)),
            mtu: inner_mtu(mtu, path.remote, session.is_some()),
            session,
        }))
    });
    let distribution =
        ways.distribution.clone().map(|distribution| ForwardingEntry::Distribution(Box::new(distribution)));
    sockets.into_iter().map(ForwardingEntry::Socket).chain(tunnels).chain(distribution).collect()
}

pub(super) fn uplink_table(index: usize) -> u32 {
    TABLE_UPLINK + u32::try_from(index).unwrap_or(u32::MAX - TABLE_UPLINK)
}

/// Returns the table of the router with this number on an uplink.
pub(super) fn next_hop_table(index: usize, number: usize) -> u32 {
    match number.checked_sub(1) {
        None => uplink_table(index),
        Some(further) => {
            let offset = index.saturating_mul(MAX_NEXT_HOPS - 1).saturating_add(further);
            TABLE_NEXT_HOP.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX))
        }
    }
}

/// Returns the addresses of an interface, IPv4 addresses in IPv4-mapped form.
fn interface_addresses(interface: &Interface) -> impl Iterator<Item = Ipv6Addr> {
    let ipv4 = interface.ipv4_addresses.iter().map(|address| address.addr().to_ipv6_mapped());
    interface.addresses.iter().map(|address| address.address).chain(ipv4)
}

/// Returns the address `PREFIX::1` for each LAN interface that has no other address in its prefix.
fn lan_addresses(
    assigned: &[(String, Ipv6Net)],
    interfaces: &BTreeMap<String, Interface>,
) -> Vec<ForwardingEntry> {
    assigned
        .iter()
        .filter_map(|(interface, prefix)| {
            let address = first_host_address(*prefix);
            let taken = interfaces.get(interface).is_some_and(|interface| {
                interface_addresses(interface).any(|other| prefix.contains(&other) && other != address)
            });
            (!taken).then_some(ForwardingEntry::Address(InterfaceAddress {
                interface: interface.clone(),
                address,
                prefix_length: prefix.prefix_len(),
                deprecated: false,
            }))
        })
        .collect()
}
