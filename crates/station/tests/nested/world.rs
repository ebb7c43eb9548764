//! Stations on links, with a small simulated kernel for each, in virtual time.
//!
//! The kernel of a node uses the rules and routes of its station's desired state, in their order, like Linux.
//! The kernel configures addresses from Router Advertisements and learns default routers. A visited link has
//! an access router that resolves addresses of its prefix by Neighbor Solicitations. All other networks are
//! the Internet. Packets for a home agent's network arrive at the home agent, and packets for a visited
//! network at its access router. All other packets arrive at the host of their destination address.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Address, Interface, LinkMessage, Rng, Time, WallTime};
use carnet_mobility::agents::HomeAgentSelectionConfig;
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents};
use carnet_mobility::mobile_router::{MobileRouterConfig, RegistrationMode, UplinkConfig};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_nemo::forwarding::desired::{
    EntryByKey, EntryChange, ForwardingEntry, PortMatch, RouteAction, Rule, TABLE_MAIN, TUNNEL_DEVICE,
    priority,
};
use carnet_station::io::{Command, Event, Input, NemoOutput, Output};
use carnet_station::{MobileRouterSettings, OwnTraffic, PersistentState, Station, StationConfig};
use carnet_virtual::{Timeline, configured_address, running_interface};
pub use carnet_virtual::{address, filled_packet as data, prefix as net};
use carnet_wire::extension::find_upper_layer;
use carnet_wire::icmpv6::{self, message_type};
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::nd::{
    self, AddressRegistration, NdOption, NeighborAdvertisement, NeighborSolicitation, RouterAdvertisement,
    RouterAdvertisementRepr,
};
use ipnet::Ipv6Net;

pub const WALL_START: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
/// Link-local address of the access router on every visited link.
const ACCESS_ROUTER_ADDRESS: &str = "fe80::ffff";
const ACCESS_ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0xff, 0xff];
pub const CORRESPONDENT_ADDRESS: &str = "2001:db8:99::1";
/// One-way delay of a link.
const LINK_DELAY: Duration = Duration::from_millis(1);
/// One-way delay of the Internet.
const INTERNET_DELAY: Duration = Duration::from_millis(10);

/// Link-layer address of a router on board that the config names. At first no node has this address; a test
/// may give it to a node.
pub const KNOWN_ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Returns the address of the host behind router `n`.
pub fn host_address_of(n: usize) -> Ipv6Addr {
    address(&format!("2001:db8:{n}:a::5"))
}

fn test_authentication() -> Authentication {
    Authentication::SharedKey(SecurityAssociation {
        spi: 300,
        key: [7; 16].into(),
        replay: ReplayProtection::Sequence,
    })
}

/// Returns the config of home agent `n`, for router `n`.
fn agent_config(n: usize) -> StationConfig {
    StationConfig {
        home_agent: Some(HomeAgentConfig {
            other_agents: OtherAgents::default(),
            address: address(&format!("2001:db8:{n}::1")),
            home_prefix: net(&format!("2001:db8:{n}::/64")),
            home_network: None,
            home_link: None,
            ndp_proxy: None,
            nat: Default::default(),
            max_lifetime: Duration::from_secs(600),
            force_udp: false,
            ipv4_address: None,
            multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
            nodes: vec![AuthorizedNode {
                nat: true,
                care_of_test: false,
                home_address: address(&format!("2001:db8:{n}::1234")),
                prefixes: [net(&format!("2001:db8:{n}:a::/64"))].into(),
                authentication: test_authentication(),
            }],
        }),
        ..StationConfig::default()
    }
}

fn router_config(n: usize, uplinks: &[&str], nesting: bool) -> StationConfig {
    let uplink = |(index, interface): (usize, &&str)| UplinkConfig {
        interface: (*interface).into(),
        priority: 10 * (index as u32 + 1),
        ..UplinkConfig::default()
    };
    StationConfig {
        mobile_router: Some(MobileRouterSettings {
            agents: HomeAgentSelectionConfig::default(),
            router: MobileRouterConfig {
                home_address: address(&format!("2001:db8:{n}::1234")),
                home_prefix: net(&format!("2001:db8:{n}::/64")),
                home_agent: address(&format!("2001:db8:{n}::1")),
                home_agent_ipv4: None,
                probes_portals: false,
                force_udp: false,
                liveness: None,
                policies: Vec::new(),
                ipv4_prefixes: Vec::new(),
                prefixes: vec![net(&format!("2001:db8:{n}:a::/64"))],
                mode: RegistrationMode::Explicit,
                lifetime: Duration::from_secs(60),
                authentication: test_authentication(),
                uplinks: uplinks.iter().enumerate().map(uplink).collect(),
            },
            lan: vec!["i0".into()],
            breakouts: Vec::new(),
            breaks_out_when_away: false,
            own_traffic: OwnTraffic::Uplinks,
            nesting_enabled: nesting,
            nested_routers: vec![KNOWN_ROUTER_MAC],
            direct_networks: Vec::new(),
            requires_direct_encryption: false,
        }),
        ..StationConfig::default()
    }
}

/// A node and its kernel.
pub struct NodeWithKernel {
    pub station: Station,
    pub interfaces: BTreeMap<String, Interface>,
    /// Name of the link to which each interface is connected.
    link_by_interface: BTreeMap<String, String>,
    kernel_entries: BTreeSet<EntryByKey>,
    pub events: Vec<Event>,
}

/// A visited link.
pub struct VisitedLink {
    pub prefix: Ipv6Net,
    /// Source addresses that a restrictive access router accepts; `None`: the access router accepts all.
    pub allowed_sources: Option<Vec<Ipv6Addr>>,
    /// Addresses that another node on the link uses already.
    pub taken_addresses: Vec<Ipv6Addr>,
    waiting_packets: Vec<Vec<u8>>,
}

enum MessageUnderway {
    /// Packet that arrives at a node's interface over a link: node, interface, packet.
    Arrive(String, String, Vec<u8>),
    /// Packet that arrives at an access router from its link: link, packet.
    Leave(String, Vec<u8>),
    /// Packet that crosses the Internet.
    Far(Vec<u8>),
    /// Neighbor Discovery message that arrives at an interface of a node: name of the node, then interface
    /// and message.
    Said(String, LinkMessage),
}

/// A packet that has reached a host.
#[derive(Debug, Clone)]
pub struct ArrivedPacket {
    pub packet: Vec<u8>,
}

#[derive(Default)]
pub struct NestedNetwork {
    pub now: Time,
    pub nodes: BTreeMap<String, NodeWithKernel>,
    pub visited_links: BTreeMap<String, VisitedLink>,
    /// Node and interface that have each address, by link and address.
    address_owners: BTreeMap<(String, Ipv6Addr), (String, String)>,
    messages_underway: Timeline<MessageUnderway>,
    pub arrived_packets: Vec<ArrivedPacket>,
    /// Numbers of outer IPv6 headers that packets had at an access router, by innermost source and
    /// destination.
    pub outer_header_counts: BTreeMap<(Ipv6Addr, Ipv6Addr), Vec<usize>>,
    /// Home agents that received tunnelled packets, by innermost source and destination.
    pub agents_on_path: BTreeMap<(Ipv6Addr, Ipv6Addr), Vec<String>>,
    /// Number of packets that each node's kernel dropped.
    pub dropped_packets: BTreeMap<String, usize>,
    /// Number of packets that have passed all links.
    pub link_transmission_count: usize,
    /// Number of Neighbor Discovery messages that stations have sent.
    pub sent_neighbor_messages: usize,
    /// Address registrations and their answers, each with its sender.
    pub registrations: Vec<(String, AddressRegistration)>,
}

/// Returns the innermost IPv6 header of a packet, and the number of headers around it.
pub fn innermost_header(packet: &[u8]) -> (Header, usize) {
    let (mut rest, mut around) = (packet, 0);
    loop {
        let header = Header::parse(rest).expect("a header");
        match find_upper_layer(rest) {
            Some((protocol::IPV6, offset, true)) => {
                rest = &rest[offset..];
                around += 1;
            }
            _ => return (header, around),
        }
    }
}

/// Returns whether the UDP ports of a packet are in a range. A fragment has no ports.
fn matches_ports(packet: &[u8], wanted: PortMatch) -> bool {
    let port = |at: usize| u16::from_be_bytes([packet[40 + at], packet[41 + at]]);
    packet[6] == protocol::UDP
        && match wanted {
            PortMatch::Source(first, last) => (first..=last).contains(&port(0)),
            PortMatch::Destination(first, last) => (first..=last).contains(&port(2)),
        }
}

pub fn link_local(node: &str, interface: &str) -> (Ipv6Addr, [u8; 6]) {
    let mut hash = 7_u16;
    for octet in node.bytes().chain(interface.bytes()) {
        hash = hash.wrapping_mul(31).wrapping_add(u16::from(octet));
    }
    let [a, b] = hash.to_be_bytes();
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, hash), [2, 0, 0, 0, a, b])
}

fn configured_address_of(address: Ipv6Addr, prefix_length: u8) -> Address {
    Address { prefix_length, ..configured_address(address) }
}

impl NestedNetwork {
    /// Creates visited links `v1` and `v2`, and the home agents of routers 1 to `count`.
    pub fn new(count: usize) -> NestedNetwork {
        let mut world = NestedNetwork::default();
        for n in 1..=2 {
            let prefix = net(&format!("2001:db8:f{n}::/64"));
            let visited = VisitedLink {
                prefix,
                allowed_sources: None,
                taken_addresses: Vec::new(),
                waiting_packets: Vec::new(),
            };
            world.visited_links.insert(format!("v{n}"), visited);
        }
        for n in 1..=count {
            world.add_node(&format!("ha{n}"), agent_config(n), &[]);
        }
        world
    }

    fn add_node(&mut self, name: &str, config: StationConfig, interfaces: &[(&str, &str)]) {
        let seed = name.bytes().fold(0, |sum, octet| sum * 31 + u64::from(octet));
        let station = Station::new(config, PersistentState::default(), Rng::new(seed), self.now, WALL_START);
        let links = interfaces.iter().map(|(name, link)| ((*name).into(), (*link).into())).collect();
        let node = NodeWithKernel {
            station,
            interfaces: BTreeMap::new(),
            link_by_interface: links,
            kernel_entries: BTreeSet::new(),
            events: Vec::new(),
        };
        self.nodes.insert(name.into(), node);
        self.handle_outputs(name);
        for (interface, _) in interfaces {
            let (own, link_address) = link_local(name, interface);
            // The station may have requested addresses on the interface before the interface existed.
            let wanted = self.nodes[name].kernel_entries.iter().filter_map(|entry| match &*entry.0 {
                ForwardingEntry::Address(it) if it.interface == *interface => {
                    Some(configured_address_of(it.address, it.prefix_length))
                }
                _ => None,
            });
            let addresses = [configured_address_of(own, 64)].into_iter().chain(wanted).collect();
            self.set_interface(name, running_interface(interface, link_address, addresses));
        }
    }

    /// Adds router `n` with these uplinks, each on a link. The router's own network is the link `nN`.
    pub fn add_router(&mut self, n: usize, uplinks: &[(&str, &str)], nesting: bool) {
        let names: Vec<&str> = uplinks.iter().map(|(name, _)| *name).collect();
        let own = format!("n{n}");
        let mut interfaces = uplinks.to_vec();
        interfaces.push(("i0", &own));
        self.add_node(&format!("mr{n}"), router_config(n, &names, nesting), &interfaces);
        for (_, link) in uplinks {
            self.send_access_advertisement(link);
        }
    }

    pub fn router_station(&self, n: usize) -> &Station {
        &self.nodes[&format!("mr{n}")].station
    }

    /// Returns the state of an uplink of router `n`, as operators see it.
    pub fn uplink_state(&self, n: usize, interface: &str) -> String {
        let uplinks = self.router_station(n).nemo().uplink_status(self.now);
        uplinks.into_iter().find(|uplink| uplink.interface == interface).expect("an uplink").state
    }

    /// Returns the registered care-of address of router `n`.
    pub fn care_of_address(&self, n: usize) -> Option<Ipv6Addr> {
        let bindings = self.router_station(n).nemo().binding_status(self.now);
        match bindings.first()?.care_of_address? {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }
    }

    pub fn command_handover(&mut self, n: usize, uplink: Option<&str>) {
        let command = Command::Handover { uplink: uplink.map(str::to_owned), policy: None };
        self.feed_input(&format!("mr{n}"), Input::Command(command));
    }

    /// Sets whether an interface has carrier. Without it, the addresses and routers of the interface vanish.
    pub fn set_carrier(&mut self, n: usize, interface: &str, running: bool) {
        let name = format!("mr{n}");
        let mut state = self.nodes[&name].interfaces[interface].clone();
        state.running = running;
        state.routers.clear();
        state.addresses.retain(|address| address.address.is_unicast_link_local());
        self.set_interface(&name, state);
    }

    fn set_interface(&mut self, name: &str, state: Interface) {
        let node = self.nodes.get_mut(name).expect("a node");
        node.interfaces.insert(state.name.clone(), state.clone());
        self.feed_input(name, Input::Interface(state));
    }

    fn feed_input(&mut self, name: &str, input: Input) {
        let node = self.nodes.get_mut(name).expect("a node");
        node.station.handle_input(self.now, WALL_START, input).expect("accepted");
        self.handle_outputs(name);
    }

    fn handle_outputs(&mut self, name: &str) {
        loop {
            let node = self.nodes.get_mut(name).expect("a node");
            let Some(output) = node.station.poll_output() else { break };
            match output {
                Output::Nemo(NemoOutput::Packet(packet)) => self.route_packet(name, TUNNEL_DEVICE, packet),
                Output::Nemo(NemoOutput::Icmpv6(message)) => self.send_neighbor_message(name, message),
                Output::Nemo(NemoOutput::Forwarding(change)) => self.apply_change(name, change),
                Output::Nemo(NemoOutput::Event(event)) => node.events.push(event),
                _ => {}
            }
        }
    }

    fn apply_change(&mut self, name: &str, change: EntryChange) {
        let node = self.nodes.get_mut(name).expect("a node");
        let (entry, wanted) = match change {
            EntryChange::Set(entry) => (entry, true),
            EntryChange::Remove(entry) => (entry, false),
        };
        if let ForwardingEntry::Address(address) = &*entry
            && let Some(interface) = node.interfaces.get_mut(&address.interface)
        {
            interface.addresses.retain(|a| a.address != address.address);
            if wanted {
                let deprecated = address.deprecated;
                interface.addresses.push(Address {
                    deprecated,
                    ..configured_address_of(address.address, address.prefix_length)
                });
            }
            // The kernel reports the new address to the station a moment later.
            let state = LinkMessage {
                interface: address.interface.clone(),
                source: Ipv6Addr::UNSPECIFIED,
                destination: Ipv6Addr::UNSPECIFIED,
                hop_limit: 0,
                peer: None,
                message: Vec::new(),
            };
            self.schedule_message(LINK_DELAY, MessageUnderway::Said(name.into(), state));
        }
        let node = self.nodes.get_mut(name).expect("a node");
        node.kernel_entries.remove(&EntryByKey(entry.clone()));
        if wanted {
            node.kernel_entries.insert(EntryByKey(entry));
        }
    }

    fn schedule_message(&mut self, after: Duration, flight: MessageUnderway) {
        self.messages_underway.schedule_at(self.now + after, flight);
    }

    /// Returns the nodes on a link, except for one node's interface.
    fn other_nodes_on(&self, link: &str, except: (&str, &str)) -> Vec<(String, String)> {
        let on = |(name, node): (&String, &NodeWithKernel)| {
            let of = node.link_by_interface.iter().filter(|(interface, on)| {
                *on == link && node.interfaces.get(*interface).is_some_and(|i| i.running)
            });
            of.map(|(interface, _)| (name.clone(), interface.clone())).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(on).filter(|(a, b)| (a.as_str(), b.as_str()) != except).collect()
    }

    /// Sends a Neighbor Discovery message of a station on one of its links.
    fn send_neighbor_message(&mut self, name: &str, message: LinkMessage) {
        self.sent_neighbor_messages += 1;
        if let Some(registration) = AddressRegistration::from_message(&message.message) {
            self.registrations.push((name.to_owned(), registration));
        }
        let node = &self.nodes[name];
        if !node.interfaces.get(&message.interface).is_some_and(|interface| interface.running) {
            return;
        }
        let Some(link) = node.link_by_interface.get(&message.interface).cloned() else { return };
        let peer = node.interfaces[&message.interface].link_address;
        for (other, interface) in self.other_nodes_on(&link, (name, &message.interface)) {
            let to_it =
                message.destination.is_multicast() || link_local(&other, &interface).0 == message.destination;
            if to_it {
                let said = LinkMessage { interface, peer, ..message.clone() };
                self.schedule_message(LINK_DELAY, MessageUnderway::Said(other, said));
            }
        }
        if let Ok(advertisement) = NeighborAdvertisement::parse(&message.message)
            && message.destination.is_multicast()
        {
            let who = (name.to_owned(), message.interface.clone());
            self.address_owners.insert((link.clone(), advertisement.target), who);
        }
        self.answer_as_access_router(name, &link, &message);
    }

    /// Simulates the access router: answers Router Solicitations and registrations of addresses.
    fn answer_as_access_router(&mut self, name: &str, link: &str, message: &LinkMessage) {
        let Some(visited) = self.visited_links.get_mut(link) else { return };
        match message.message.first() {
            Some(&message_type::ROUTER_SOLICITATION) => self.send_access_advertisement(link),
            Some(&message_type::NEIGHBOR_SOLICITATION) => {
                let solicitation = NeighborSolicitation::parse(&message.message).expect("well formed");
                if visited.taken_addresses.contains(&solicitation.target) {
                    let advertisement = NeighborAdvertisement {
                        target: solicitation.target,
                        router: false,
                        solicited: false,
                        override_: true,
                        target_link_address: Some([2, 0, 0, 0, 0, 9]),
                    };
                    let text = advertisement.emit();
                    self.send_to_all_nodes(name, &message.interface, address("fe80::9"), text);
                }
            }
            Some(&message_type::NEIGHBOR_ADVERTISEMENT) => {
                let advertisement = NeighborAdvertisement::parse(&message.message).expect("well formed");
                let who = (name.to_owned(), message.interface.clone());
                self.address_owners.insert((link.to_owned(), advertisement.target), who);
                for packet in std::mem::take(&mut visited.waiting_packets) {
                    self.deliver_to_visited(link, packet);
                }
            }
            _ => {}
        }
    }

    /// Sends a Neighbor Discovery message to all nodes, but delivers it only to one interface.
    pub fn send_to_all_nodes(&mut self, name: &str, interface: &str, source: Ipv6Addr, mut message: Vec<u8>) {
        icmpv6::set_checksum(&mut message, source, nd::ALL_NODES);
        let said = LinkMessage {
            interface: interface.into(),
            source,
            destination: nd::ALL_NODES,
            hop_limit: 255,
            peer: Some(ACCESS_ROUTER_MAC),
            message,
        };
        self.schedule_message(LINK_DELAY, MessageUnderway::Said(name.into(), said));
    }

    /// Sends the Router Advertisement of a link's access router to all nodes of the link.
    fn send_access_advertisement(&mut self, link: &str) {
        let Some(visited) = self.visited_links.get(link) else { return };
        let options = [
            NdOption::SourceLinkAddress(ACCESS_ROUTER_MAC),
            NdOption::PrefixInformation(nd::PrefixInformation {
                prefix: visited.prefix.network(),
                prefix_length: 64,
                on_link: true,
                autonomous: true,
                router_address: false,
                valid_lifetime: 3600,
                preferred_lifetime: 3600,
            }),
        ];
        let repr = RouterAdvertisementRepr {
            router_lifetime: 1800,
            options: &options,
            ..RouterAdvertisementRepr::default()
        };
        let message = nd::emit_router_advertisement(&repr);
        for (name, interface) in self.other_nodes_on(link, ("", "")) {
            self.send_to_all_nodes(&name, &interface, address(ACCESS_ROUTER_ADDRESS), message.clone());
        }
    }

    /// Simulates a node's kernel for a Router Advertisement: configures addresses (RFC 4862) and a default
    /// router.
    fn configure_addresses(&mut self, name: &str, message: &LinkMessage) {
        let Ok(advertisement) = RouterAdvertisement::parse(&message.message) else { return };
        if message.interface == "i0" {
            return;
        }
        let mut state = self.nodes[name].interfaces[&message.interface].clone();
        let before = state.clone();
        let interface_identifier = u128::from(link_local(name, &message.interface).0) & u128::from(u64::MAX);
        for option in advertisement.options() {
            if let NdOption::PrefixInformation(prefix) = option {
                let own = Ipv6Addr::from(u128::from(prefix.prefix) | interface_identifier);
                if !state.addresses.iter().any(|a| a.address == own) {
                    state.addresses.push(configured_address_of(own, 64));
                }
            }
        }
        match advertisement.router_lifetime {
            0 => state.routers.retain(|router| router.gateway != message.source),
            _ if state.routers.iter().all(|router| router.gateway != message.source) => {
                state.routers.push(message.source.into());
            }
            _ => {}
        }
        if state != before {
            self.set_interface(name, state);
        }
    }

    /// Simulates a node's kernel for a packet that arrived on an interface.
    fn route_packet(&mut self, name: &str, input: &str, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("a header");
        let node = &self.nodes[name];
        let proto = find_upper_layer(&packet).map_or(header.next_header, |(protocol, ..)| protocol);
        let mut rules: Vec<&Rule> = node
            .kernel_entries
            .iter()
            .filter_map(|entry| match &*entry.0 {
                ForwardingEntry::Rule(rule) => Some(&**rule),
                _ => None,
            })
            .collect();
        rules.sort_by_key(|rule| rule.priority);
        let matches = |rule: &&&Rule| {
            rule.input_interface.as_deref().is_none_or(|wanted| wanted == input)
                && rule.from.is_none_or(|from| from.contains(&header.source))
                && rule.to.is_none_or(|to| to.contains(&header.destination))
                && rule.protocol.is_none_or(|wanted| wanted == proto)
                && rule.ports.is_none_or(|wanted| matches_ports(&packet, wanted))
        };
        let is_local =
            node.interfaces.values().any(|i| i.addresses.iter().any(|a| a.address == header.destination));
        let mut tables: Vec<(u32, u32)> =
            rules.iter().filter(matches).map(|rule| (rule.priority, rule.table)).collect();
        tables.push((32_766, TABLE_MAIN));
        for (at, table) in tables {
            if at > priority::LOCAL_TABLE_RULE && is_local {
                return;
            }
            match self.route_lookup(name, table, header.destination) {
                Some(RouteAction::Forward { interface, gateway }) => {
                    return self.forward_to_link(
                        name,
                        &interface,
                        gateway.unwrap_or(header.destination),
                        packet,
                    );
                }
                Some(RouteAction::Unreachable) => break,
                Some(RouteAction::Local) => return,
                None => {}
            }
        }
        *self.dropped_packets.entry(name.into()).or_default() += 1;
    }

    fn route_lookup(&self, name: &str, table: u32, destination: Ipv6Addr) -> Option<RouteAction> {
        let node = &self.nodes[name];
        let routes = node.kernel_entries.iter().filter_map(|entry| match &*entry.0 {
            ForwardingEntry::Route(route)
                if route.table == table && route.destination.contains(&destination) =>
            {
                Some((route.destination.prefix_len(), Reverse(route.metric), (*route.action).clone()))
            }
            _ => None,
        });
        // Networks of the node's own links, which the main table contains.
        let connected = node.interfaces.values().filter(|_| table == TABLE_MAIN).flat_map(|interface| {
            let on = interface.addresses.iter().filter(|a| a.prefix_length == 64);
            let here = on.filter(|a| Ipv6Net::new(a.address, 64).is_ok_and(|net| net.contains(&destination)));
            here.map(|_| {
                let action = RouteAction::Forward { interface: interface.name.clone(), gateway: None };
                (64, Reverse(256), action)
            })
        });
        let best = routes.chain(connected).max_by_key(|(length, metric, _)| (*length, *metric));
        if best.is_none() && name.starts_with("ha") && table == TABLE_MAIN {
            return Some(RouteAction::Forward { interface: "far".into(), gateway: None });
        }
        best.map(|(_, _, action)| action)
    }

    fn forward_to_link(&mut self, name: &str, interface: &str, next_hop: Ipv6Addr, mut packet: Vec<u8>) {
        if interface == TUNNEL_DEVICE {
            return self.feed_input(name, Input::Packet(packet));
        }
        packet[7] -= 1;
        if packet[7] == 0 {
            return;
        }
        self.link_transmission_count += 1;
        if interface == "far" {
            return self.schedule_message(INTERNET_DELAY, MessageUnderway::Far(packet));
        }
        let node = &self.nodes[name];
        if !node.interfaces.get(interface).is_some_and(|interface| interface.running) {
            return;
        }
        let link = node.link_by_interface[interface].clone();
        if next_hop == address(ACCESS_ROUTER_ADDRESS) {
            return self.schedule_message(LINK_DELAY, MessageUnderway::Leave(link, packet));
        }
        let others = self.other_nodes_on(&link, (name, interface));
        let has = |(other, interface): &(String, String)| {
            self.nodes[other].interfaces[interface].addresses.iter().any(|a| a.address == next_hop)
        };
        let owner = others.into_iter().find(has);
        match owner.or_else(|| self.address_owners.get(&(link, next_hop)).cloned()) {
            Some((other, interface)) => {
                self.schedule_message(LINK_DELAY, MessageUnderway::Arrive(other, interface, packet))
            }
            // The destination is a host of this network, so the packet has arrived.
            None => self.arrived_packets.push(ArrivedPacket { packet }),
        }
    }

    /// Delivers a packet for an address of a visited link to its access router.
    fn deliver_to_visited(&mut self, link: &str, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("a header");
        let (inner, around) = innermost_header(&packet);
        let on_link = self.other_nodes_on(link, ("", ""));
        let owner = on_link.into_iter().find(|(name, interface)| {
            self.nodes[name].interfaces[interface].addresses.iter().any(|a| a.address == header.destination)
        });
        let owner =
            owner.or_else(|| self.address_owners.get(&(link.to_owned(), header.destination)).cloned());
        let visited = self.visited_links.get_mut(link).expect("a visited link");
        match owner {
            Some((name, interface)) => {
                self.outer_header_counts.entry((inner.source, inner.destination)).or_default().push(around);
                self.schedule_message(LINK_DELAY, MessageUnderway::Arrive(name, interface, packet));
            }
            None => {
                if visited.waiting_packets.len() < 100 {
                    visited.waiting_packets.push(packet);
                }
                let solicitation = NeighborSolicitation {
                    target: header.destination,
                    source_link_address: Some(ACCESS_ROUTER_MAC),
                };
                let mut message = solicitation.emit();
                let (source, group) =
                    (address(ACCESS_ROUTER_ADDRESS), nd::solicited_node_address(header.destination));
                icmpv6::set_checksum(&mut message, source, group);
                for (name, interface) in self.other_nodes_on(link, ("", "")) {
                    let said = LinkMessage {
                        interface,
                        source,
                        destination: group,
                        hop_limit: 255,
                        peer: Some(ACCESS_ROUTER_MAC),
                        message: message.clone(),
                    };
                    self.schedule_message(LINK_DELAY, MessageUnderway::Said(name, said));
                }
            }
        }
    }

    fn handle_arrival(&mut self, flight: MessageUnderway) {
        match flight {
            MessageUnderway::Arrive(name, interface, packet) => {
                if self.nodes[&name].interfaces[&interface].running {
                    self.route_packet(&name, &interface, packet);
                }
            }
            MessageUnderway::Leave(link, packet) => {
                let header = Header::parse(&packet).expect("a header");
                let (inner, around) = innermost_header(&packet);
                let visited = &self.visited_links[&link];
                let passes = visited.prefix.contains(&header.source)
                    && visited
                        .allowed_sources
                        .as_ref()
                        .is_none_or(|allowed| allowed.contains(&header.source));
                if passes {
                    self.outer_header_counts
                        .entry((inner.source, inner.destination))
                        .or_default()
                        .push(around);
                    self.schedule_message(INTERNET_DELAY, MessageUnderway::Far(packet));
                }
            }
            MessageUnderway::Far(packet) => {
                let header = Header::parse(&packet).expect("a header");
                let (inner, _) = innermost_header(&packet);
                let link = self
                    .visited_links
                    .iter()
                    .find(|(_, visited)| visited.prefix.contains(&header.destination));
                let link = link.map(|(name, _)| name.clone());
                let home = (1..=9).find(|n| net(&format!("2001:db8:{n}::/48")).contains(&header.destination));
                match (link, home) {
                    (Some(link), _) => self.deliver_to_visited(&link, packet),
                    (None, Some(n)) => {
                        let name = format!("ha{n}");
                        let seen = self.agents_on_path.entry((inner.source, inner.destination)).or_default();
                        if !seen.contains(&name) {
                            seen.push(name.clone());
                        }
                        self.route_packet(&name, "far", packet);
                    }
                    _ => self.arrived_packets.push(ArrivedPacket { packet }),
                }
            }
            MessageUnderway::Said(name, message) if message.message.is_empty() => {
                let state = self.nodes[&name].interfaces[&message.interface].clone();
                self.feed_input(&name, Input::Interface(state));
            }
            MessageUnderway::Said(name, message) => {
                if !self.nodes[&name].interfaces.get(&message.interface).is_some_and(|i| i.running) {
                    return;
                }
                self.feed_input(&name, Input::Icmpv6(message.clone()));
                self.configure_addresses(&name, &message);
            }
        }
    }

    /// Sends a packet of a host on board router `n`.
    pub fn send_from_host(&mut self, n: usize, destination: Ipv6Addr, length: usize) {
        let packet = data(host_address_of(n), destination, length);
        self.route_packet(&format!("mr{n}"), "i0", packet);
    }

    /// Delivers a packet to an interface of a node.
    pub fn deliver_packet(&mut self, name: &str, interface: &str, packet: Vec<u8>) {
        self.route_packet(name, interface, packet);
    }

    /// Sends a packet of the correspondent to `destination`.
    pub fn send_to_host(&mut self, destination: Ipv6Addr, length: usize) {
        self.schedule_message(
            INTERNET_DELAY,
            MessageUnderway::Far(data(address(CORRESPONDENT_ADDRESS), destination, length)),
        );
    }

    /// Lets time pass; calls `each` every 10 ms.
    pub fn advance_with(&mut self, span: Duration, mut each: impl FnMut(&mut NestedNetwork)) {
        let end = self.now + span;
        while self.now < end {
            each(self);
            self.advance_until(end.min(self.now + Duration::from_millis(10)));
        }
    }

    fn advance_until(&mut self, end: Time) {
        let mut steps = 0;
        while self.now < end {
            steps += 1;
            assert!(steps < 1_000_000, "the stations never come to rest");
            let timeouts = self.nodes.values().filter_map(|node| node.station.poll_timeout());
            let due = timeouts.chain(self.messages_underway.next_event_at()).chain([end]).min().expect("one");
            self.now = due.max(self.now);
            while let Some(flight) = self.messages_underway.pop_due_event(self.now) {
                self.handle_arrival(flight);
            }
            let names: Vec<String> = self.nodes.keys().cloned().collect();
            for name in names {
                if self.nodes[&name].station.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.feed_input(&name, Input::Timeout);
                }
            }
        }
    }

    /// Lets time pass.
    pub fn advance_seconds(&mut self, seconds: u64) {
        self.advance_until(self.now + Duration::from_secs(seconds));
    }

    /// Returns how many packets from `source` to `destination` have arrived.
    pub fn count_arrived(&self, source: Ipv6Addr, destination: Ipv6Addr) -> usize {
        let of = |arrived: &&ArrivedPacket| {
            Header::parse(&arrived.packet)
                .is_ok_and(|header| (header.source, header.destination) == (source, destination))
        };
        self.arrived_packets.iter().filter(of).count()
    }

    /// Deletes the records of all packets so far.
    pub fn clear_records(&mut self) {
        self.arrived_packets.clear();
        self.outer_header_counts.clear();
        self.agents_on_path.clear();
        self.dropped_packets.clear();
    }
}
