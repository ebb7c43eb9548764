//! A home agent, two mobile routers and the Internet between them, in virtual time. The module checks the
//! invariants at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_linux::simulated::PacketPath;
use carnet_mobility::mobile_router::State;
use carnet_mobility::{Authentication, ReplayProtection};
use carnet_station::StationConfig;
use carnet_station::io::Input;
use carnet_virtual::{Link, Timeline, packet};
use carnet_wire::extension::{ExtensionHeaders, find_upper_layer};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{MobilityHeader, MobilityOption, ParsedMobilityMessage};
use ipnet::Ipv6Net;

use super::node::{Node, NodeOutput, ProcessEnd, STATE_FILE};
use crate::state::{Journal, records_to_state};

pub const HOME_AGENT: Ipv6Addr = test_address(1, 1);
pub const HOME_ADDRESSES: [Ipv6Addr; 2] = [test_address(1, 0x1234), test_address(1, 0x5678)];
const MOBILE_NETWORK_PREFIXES: [Ipv6Addr; 2] = [test_address(0xa, 0), test_address(0xb, 0)];
const ON_BOARD_HOSTS: [Ipv6Addr; 2] = [test_address(0xa, 5), test_address(0xb, 5)];
const CORRESPONDENT: Ipv6Addr = test_address(0x99, 1);
const ATTACKER: Ipv6Addr = test_address(0x666, 1);
/// Link-local address of the access router on every link.
pub const ACCESS_ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xffff);
pub const UPLINKS: [&str; 2] = ["w0", "w1"];
/// Longest one-way delay of the network without faults.
pub const MAX_LINK_DELAY: Duration = Duration::from_millis(20);
/// Length of the payload of data packets, in octets.
const DATA_PACKET_LENGTH: usize = 60;
/// Packet number of forged data, which no host may receive.
const FORGED_PACKET_NUMBER: u32 = u32::MAX;
/// Time for which a former care-of address is still valid. Both ends accept packets on the previous path for
/// a while, and a packet may also wait for the disk.
const BINDING_GRACE_PERIOD: Duration = Duration::from_secs(60);
const ADVERTISEMENT_INTERVAL: Duration = Duration::from_secs(60);
/// Number of steps without progress of the clock after which the test fails. Only an endless loop reaches
/// this number.
const MAX_STEPS_AT_ONE_TIME: u32 = 10_000;
/// Number of packets on the wire above which the network does not duplicate packets.
const MAX_PACKETS_ON_WIRE: usize = 50;
/// Offset of the hop limit in a packet.
const HOP_LIMIT_OFFSET: usize = 7;
/// Largest number of messages that attackers record.
const MAX_RECORDED_UPDATES: usize = 30;
/// Maximum time for which a packet waits for the disk, in units of 4 s as in a binding's lifetime.
const MAX_STALE_LIFETIME_UNITS: u16 = 8;
/// Maximum size in octets of a journal that the test reads at every acknowledgement. It reads a larger
/// journal only at some acknowledgements.
const MAX_JOURNAL_SIZE: u64 = 4000;

/// Returns the address 2001:db8:NETWORK::HOST.
const fn test_address(network: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, host)
}

/// Returns the /64 prefix of an address.
pub fn network_of(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::new_assert(address, 64).trunc()
}

/// Returns the mobile network of a router.
pub fn mobile_network_prefix(router: usize) -> Ipv6Net {
    network_of(MOBILE_NETWORK_PREFIXES[router])
}

pub fn care_of_address(router: usize, uplink: usize, network: u64) -> Ipv6Addr {
    test_address(0xf00 + 0x10 * uplink as u16 + network as u16, 10 + router as u16)
}

/// Returns a data packet that contains a number.
fn data_packet(source: Ipv6Addr, destination: Ipv6Addr, number: u32) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(DATA_PACKET_LENGTH, 0x55);
    carnet_virtual::data_packet(source, destination, &payload)
}

fn data_packet_number(packet: &[u8]) -> Option<u32> {
    let octets = packet.get(HEADER_LEN..HEADER_LEN + 4)?;
    (packet.len() == HEADER_LEN + DATA_PACKET_LENGTH)
        .then(|| u32::from_be_bytes(octets.try_into().expect("four")))
}

/// Returns a packet that contains `inner` as a tunnelled packet.
pub fn tunnelled_packet(source: Ipv6Addr, destination: Ipv6Addr, inner: &[u8]) -> Vec<u8> {
    packet(source, destination, protocol::IPV6, inner)
}

/// Returns a network between the machines that loses no packet, with at most this delay.
pub const fn link_without_faults(delay: Duration) -> Link {
    Link { delay_range: (Duration::from_millis(1), delay), ..Link::LOSSLESS }
}

#[derive(Debug)]
enum NetworkEvent {
    /// A packet arrives at a machine, on an interface.
    Packet(usize, String, Vec<u8>),
    /// The routers on the links send Router Advertisements.
    Advertisements,
}

/// All machines and the wire between them.
pub struct SimulatedNetwork {
    pub now: Time,
    /// Machines: the home agent first, then the mobile routers.
    pub nodes: Vec<Node>,
    pub simulated_link: Link,
    pub rng: Rng,
    scheduled_events: Timeline<NetworkEvent>,
    /// Number of steps since the virtual clock last advanced.
    steps_at_this_time: u32,
    /// Network to which each uplink of each router is attached; `None` if it has no network.
    pub attached_networks: [[Option<u64>; 2]; 2],
    /// All care-of addresses that each router has had.
    past_care_of_addresses: [BTreeSet<Ipv6Addr>; 2],
    /// Last time at which the home agent had a binding of this router with this care-of address.
    last_bound_at: BTreeMap<(usize, Ipv6Addr), Time>,
    /// Last sequence number that each router got acknowledged.
    acknowledged_sequence_numbers: [Option<u16>; 2],
    /// Timestamp of each router that was on the disk when the last acknowledgement to it left.
    stored_timestamps: [u64; 2],
    /// Binding Updates that attackers have recorded.
    recorded_updates: Vec<Vec<u8>>,
    last_packet_number: u32,
    /// Nanoseconds by which the machines' clocks are ahead of the right time. The test may set single clocks
    /// to another time.
    pub clocks_ahead: i64,
    /// Numbers of the data packets that have arrived.
    pub arrived_packets: BTreeSet<u32>,
}

impl SimulatedNetwork {
    pub fn new(agent: StationConfig, routers: [StationConfig; 2], mut rng: Rng) -> SimulatedNetwork {
        let nodes =
            std::iter::once(agent).chain(routers).map(|config| Node::new(config, rng.fork_generator()));
        let mut world = SimulatedNetwork {
            now: Time::ZERO,
            nodes: nodes.collect(),
            simulated_link: link_without_faults(MAX_LINK_DELAY),
            rng,
            scheduled_events: Timeline::default(),
            steps_at_this_time: 0,
            attached_networks: [[Some(0), None], [Some(0), None]],
            past_care_of_addresses: Default::default(),
            last_bound_at: BTreeMap::new(),
            acknowledged_sequence_numbers: [None; 2],
            stored_timestamps: [0; 2],
            recorded_updates: Vec::new(),
            last_packet_number: 0,
            clocks_ahead: 0,
            arrived_packets: BTreeSet::new(),
        };
        (0..3).for_each(|index| world.set_up_machine(index));
        world.schedule_event(Duration::ZERO, NetworkEvent::Advertisements);
        world
    }

    /// Gives the simulated kernel of a machine the state that a kernel has after boot.
    fn set_up_machine(&mut self, index: usize) {
        let kernel = self.nodes[index].kernel.clone();
        let names: &[&str] = if index == 0 { &["eth0", "o0"] } else { &["w0", "w1", "i0", "o0"] };
        for name in names {
            kernel.add_link(name);
        }
        for name in ["eth0", "i0", "o0"] {
            kernel.set_link(name, true, true);
        }
        // An operator's entries, which carnet must not change.
        kernel.add_address("o0", test_address(0x77, 1), 64);
        kernel.add_route(1234, network_of(test_address(0x78, 0)), 1024, "o0");
        if self.rng.is_true_with_probability(0.3) {
            kernel.set_setting("o0", "forwarding", "1");
        }
        // In some runs the operator has a route with the same destination and metric as one of carnet's
        // routes.
        if index == 0 && self.rng.is_true_with_probability(0.2) {
            kernel.add_route(254, HOME_ADDRESSES[0].into(), 1024, "o0");
        }
        if index == 0 {
            kernel.add_address("eth0", test_address(0x98, 2), 64);
            kernel.add_route(254, Ipv6Net::default(), 1024, "eth0");
        } else {
            for uplink in 0..2 {
                self.connect_uplink(index - 1, uplink);
            }
        }
    }

    /// Connects an uplink to its network.
    fn connect_uplink(&mut self, router: usize, uplink: usize) {
        let kernel = &self.nodes[1 + router].kernel;
        match self.attached_networks[router][uplink] {
            Some(network) => {
                let address = care_of_address(router, uplink, network);
                self.past_care_of_addresses[router].insert(address);
                kernel.set_link(UPLINKS[uplink], true, true);
                kernel.receive_advertisement(UPLINKS[uplink], ACCESS_ROUTER, address);
            }
            None => kernel.set_link(UPLINKS[uplink], self.rng.is_true_with_probability(0.5), false),
        }
    }

    /// Moves an uplink to another network. If the interface was removed, creates it again.
    pub fn attach_uplink(&mut self, router: usize, uplink: usize, network: Option<u64>) {
        self.attached_networks[router][uplink] = network;
        if self.nodes[1 + router].kernel.is_running(UPLINKS[uplink]).is_none() {
            self.nodes[1 + router].kernel.add_link(UPLINKS[uplink]);
        }
        self.connect_uplink(router, uplink);
        self.run_until_idle();
    }

    /// Removes the interface of an uplink.
    pub fn remove_uplink_interface(&mut self, router: usize, uplink: usize) {
        self.attached_networks[router][uplink] = None;
        self.nodes[1 + router].kernel.remove_link(UPLINKS[uplink]);
        self.run_until_idle();
    }

    fn schedule_event(&mut self, after: Duration, event: NetworkEvent) {
        self.scheduled_events.schedule_at(self.now + after, event);
    }

    pub fn handle_input(&mut self, index: usize, input: Input) {
        let now = self.now;
        self.nodes[index].handle_input(now, input);
        self.run_until_idle();
    }

    pub fn end_process(&mut self, index: usize, end: ProcessEnd) {
        let now = self.now;
        self.nodes[index].end_process(now, end);
        self.run_until_idle();
    }

    /// Lets `span` of virtual time pass.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.run_next_event(end) {}
        self.now = end;
    }

    /// Executes the next event if it is due before `end`; otherwise returns `false`.
    pub fn run_next_event(&mut self, end: Time) -> bool {
        let due = self.nodes.iter().map(|node| node.next_action_at(self.now));
        let (at, index) = due
            .enumerate()
            .filter_map(|(index, at)| Some((at?, index)))
            .chain(self.scheduled_events.next_event_at().map(|at| (at, usize::MAX)))
            .min()
            .expect("advertisements never end");
        if at > end {
            return false;
        }
        self.steps_at_this_time = if at > self.now { 0 } else { self.steps_at_this_time + 1 };
        assert!(
            self.steps_at_this_time < MAX_STEPS_AT_ONE_TIME,
            "time does not pass: {}",
            self.nodes.get(index).map(Node::pending_timers).unwrap_or_default()
        );
        self.now = at.max(self.now);
        let now = self.now;
        match self.nodes.get_mut(index) {
            Some(node) => node.run_due_actions(now),
            None => match self.scheduled_events.pop_due_event(now) {
                Some(NetworkEvent::Packet(index, interface, packet)) => {
                    self.receive_packet(index, &interface, packet);
                }
                _ => {
                    for (router, uplink) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        if let Some(network) = self.attached_networks[router][uplink] {
                            let address = care_of_address(router, uplink, network);
                            let kernel = &self.nodes[1 + router].kernel;
                            kernel.receive_advertisement(UPLINKS[uplink], ACCESS_ROUTER, address);
                        }
                    }
                    self.schedule_event(ADVERTISEMENT_INTERVAL, NetworkEvent::Advertisements);
                }
            },
        }
        self.run_until_idle();
        true
    }

    /// Runs events until no further event is due at this moment.
    fn run_until_idle(&mut self) {
        for _ in 0..1000 {
            let now = self.now;
            let mut rests = true;
            for index in 0..self.nodes.len() {
                self.nodes[index].handle_kernel_events(now);
                self.check_bindings();
                for left in std::mem::take(&mut self.nodes[index].outputs) {
                    rests = false;
                    match left {
                        NodeOutput::Packet(packet) => self.forward_station_packet(index, packet),
                        NodeOutput::Ended(ProcessEnd::PowerCut) => self.set_up_machine(index),
                        NodeOutput::Ended(_) => {}
                        NodeOutput::Began(kept) if index == 0 => self.check_stored_state(&kept),
                        NodeOutput::Began(_) => {}
                    }
                }
                let misdeeds = self.nodes[index].kernel.foreign_changes();
                assert!(misdeeds.is_empty(), "machine {index}: {misdeeds:#?}");
            }
            if rests {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Handles a packet that a machine receives on an interface.
    fn receive_packet(&mut self, index: usize, interface: &str, mut packet: Vec<u8>) {
        let node = &mut self.nodes[index];
        if interface != "carnet0" && node.kernel.is_running(interface) != Some(true) {
            return;
        }
        let Ok(header) = Header::parse(&packet) else { return };
        let protocol = find_upper_layer(&packet).map_or(0, |(protocol, ..)| protocol);
        match node.kernel.packet_path(interface, header.source, header.destination, protocol) {
            PacketPath::Out(..) if header.hop_limit <= 1 => {}
            PacketPath::Out(out, _) if out == "carnet0" => {
                packet[HOP_LIMIT_OFFSET] -= 1;
                let now = self.now;
                node.handle_tunnel_packet(now, &packet);
            }
            PacketPath::Out(out, _) => {
                packet[HOP_LIMIT_OFFSET] -= 1;
                self.send_packet(index, &out, packet);
            }
            PacketPath::Local | PacketPath::Nowhere => {}
        }
    }

    /// Sends a packet of a machine out of an interface.
    fn send_packet(&mut self, index: usize, interface: &str, packet: Vec<u8>) {
        let Ok(header) = Header::parse(&packet) else { return };
        let (source, destination) = (header.source, header.destination);
        if index > 0 && interface == "i0" {
            return self.record_arrival(&packet);
        }
        if index > 0 {
            let uplink = if interface == "w0" { 0 } else { 1 };
            let place = self.attached_networks[index - 1][uplink];
            let is_own = place.is_some_and(|network| care_of_address(index - 1, uplink, network) == source);
            // RFC 2827: a visited network forwards only packets with its own source addresses.
            if !is_own || !interface.starts_with('w') {
                return;
            }
        }
        if destination == CORRESPONDENT {
            return self.record_arrival(&packet);
        }
        let mut to = None;
        for (router, uplink) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            if self.attached_networks[router][uplink].map(|it| care_of_address(router, uplink, it))
                == Some(destination)
            {
                to = Some((1 + router, UPLINKS[uplink]));
            }
        }
        if network_of(HOME_AGENT).contains(&destination) {
            to = Some((0, "eth0"));
        }
        let Some((to, interface)) = to else { return };
        // Above this limit, the network duplicates no packets: an operator's routes may form a loop, in which
        // copies would multiply.
        let duplicate = if self.scheduled_events.len() < MAX_PACKETS_ON_WIRE {
            self.simulated_link.duplication_probability
        } else {
            0.0
        };
        let link = Link { duplication_probability: duplicate, ..self.simulated_link };
        for span in link.arrival_delays(&mut self.rng) {
            self.schedule_event(span, NetworkEvent::Packet(to, interface.into(), packet.clone()));
        }
    }

    fn record_arrival(&mut self, packet: &[u8]) {
        if let Some(number) = data_packet_number(packet) {
            assert_ne!(number, FORGED_PACKET_NUMBER, "what came from nowhere was let out");
            self.arrived_packets.insert(number);
        }
    }

    /// Handles a packet that a station has written into the tunnel device.
    fn forward_station_packet(&mut self, index: usize, packet: Vec<u8>) {
        if index > 0 {
            self.check_router_tunnel(index - 1, &packet);
        }
        if index == 0 {
            self.check_home_agent_tunnel(&packet);
            self.check_acknowledgement(&packet);
        } else if find_upper_layer(&packet).is_some_and(|(protocol, ..)| protocol == protocol::MOBILITY) {
            if self.recorded_updates.len() >= MAX_RECORDED_UPDATES {
                self.recorded_updates.remove(0);
            }
            self.recorded_updates.push(packet.clone());
        }
        self.receive_packet(index, "carnet0", packet);
    }

    /// Sends a packet from a host of the mobile network to its correspondent, and a packet back; returns the
    /// numbers of both.
    pub fn exchange_data_packets(&mut self, router: usize) -> [u32; 2] {
        self.last_packet_number += 2;
        let numbers = [self.last_packet_number - 1, self.last_packet_number];
        self.receive_packet(1 + router, "i0", data_packet(ON_BOARD_HOSTS[router], CORRESPONDENT, numbers[0]));
        self.receive_packet(0, "eth0", data_packet(CORRESPONDENT, ON_BOARD_HOSTS[router], numbers[1]));
        self.run_until_idle();
        numbers
    }

    /// Sends one message of every kind of attack.
    pub fn attack_once(&mut self) {
        let router = self.rng.number_below(2) as usize;
        let other = 1 - router;
        // Attack: a tunnelled packet without a binding, and a tunnelled packet of one router whose source is
        // in the other router's network.
        let inner = data_packet(ON_BOARD_HOSTS[router], CORRESPONDENT, FORGED_PACKET_NUMBER);
        let uplink = self.rng.number_below(2) as usize;
        let theirs =
            self.attached_networks[other][uplink].map(|network| care_of_address(other, uplink, network));
        // Attack: a tunnelled packet from a care-of address that the router has left.
        let left = |it: &&Ipv6Addr| {
            let bound = self.last_bound_at.get(&(router, **it));
            bound.is_none_or(|at| self.now.saturating_since(*at) >= BINDING_GRACE_PERIOD)
        };
        let left = self.past_care_of_addresses[router]
            .iter()
            .copied()
            .find(|it| self.has_complete_kernel_state(0) && left(&it));
        for source in [Some(ATTACKER), theirs, left].into_iter().flatten() {
            self.receive_packet(0, "eth0", tunnelled_packet(source, HOME_AGENT, &inner));
        }
        self.send_attacker_packets(router, uplink);
        let count = self.recorded_updates.len() as u64;
        if count > 0 {
            let packet = self.recorded_updates[self.rng.number_below(count) as usize].clone();
            // Attack: a recorded message is sent again unchanged, from another address, and with a changed
            // octet.
            let mut elsewhere = packet.clone();
            elsewhere[8..24].copy_from_slice(&ATTACKER.octets());
            let mut other = packet.clone();
            let at = HEADER_LEN + self.rng.number_below((packet.len() - HEADER_LEN) as u64) as usize;
            other[at] ^= 1 << self.rng.number_below(8);
            let mut all = [packet, elsewhere, other];
            // The attacker's copy may arrive before the original message.
            all.rotate_left(self.rng.number_below(3) as usize);
            for packet in all {
                self.receive_packet(0, "eth0", packet);
            }
        }
        self.run_until_idle();
    }

    /// Returns whether the process of a machine runs and its kernel has all entries. A process that has just
    /// started or has failed may still lack rules.
    fn has_complete_kernel_state(&self, index: usize) -> bool {
        let process = self.nodes[index].process.as_ref();
        process.is_some_and(|process| process.machine.differences().is_empty())
    }

    /// Sends packets of attackers on the links of a router, and on board: no such packet may bypass the
    /// tunnel.
    fn send_attacker_packets(&mut self, router: usize, uplink: usize) {
        if !self.has_complete_kernel_state(1 + router) {
            return;
        }
        let inner = data_packet(CORRESPONDENT, ON_BOARD_HOSTS[router], FORGED_PACKET_NUMBER);
        self.receive_packet(1 + router, UPLINKS[uplink], inner.clone());
        if let Some(network) = self.attached_networks[router][uplink] {
            let address = care_of_address(router, uplink, network);
            self.receive_packet(1 + router, UPLINKS[uplink], tunnelled_packet(ATTACKER, address, &inner));
            self.receive_packet(1 + router, "i0", data_packet(address, CORRESPONDENT, FORGED_PACKET_NUMBER));
        }
    }

    /// Delivers a packet to the home agent's machine.
    pub fn inject_at_home_agent(&mut self, packet: Vec<u8>) {
        self.receive_packet(0, "eth0", packet);
        self.run_until_idle();
    }

    /// Checks invariant 1: the router requested each binding, within its rights.
    fn check_bindings(&mut self) {
        let Some(process) = &self.nodes[0].process else { return };
        let agent = process.station.home_agent().expect("it is one");
        for (router, home) in HOME_ADDRESSES.into_iter().enumerate() {
            let prefix = mobile_network_prefix(router);
            for binding in agent.bindings().bindings_of(home) {
                let Some(care_of_address) = binding.care_of_address.ipv6() else {
                    panic!("a binding to {:?}", binding.care_of_address);
                };
                assert!(
                    self.past_care_of_addresses[router].contains(&care_of_address),
                    "a binding to {care_of_address}"
                );
                assert!(
                    binding.prefixes.iter().all(|it| *it == prefix),
                    "a binding of {:?}",
                    binding.prefixes
                );
                self.last_bound_at.insert((router, care_of_address), self.now);
            }
        }
    }

    /// Checks invariant 2: a packet enters a tunnel only towards a binding, or towards a former binding
    /// within its grace period.
    fn check_home_agent_tunnel(&self, packet: &[u8]) {
        let Ok((outer, inner)) = Header::parse_packet(packet) else { return };
        if outer.next_header != protocol::IPV6 || outer.source != HOME_AGENT {
            return;
        }
        let Ok(inner) = Header::parse(inner) else { return };
        let is_inside = |router: &usize| {
            mobile_network_prefix(*router).contains(&inner.destination)
                || HOME_ADDRESSES[*router] == inner.destination
        };
        let router = (0..2).find(is_inside);
        let Some(router) = router else { return };
        let bound = self.last_bound_at.get(&(router, outer.destination));
        assert!(
            bound.is_some_and(|at| self.now.saturating_since(*at) < BINDING_GRACE_PERIOD),
            "{} went to {} without a binding, at {:?}; the last one was there at {bound:?}",
            inner.destination,
            outer.destination,
            self.now
        );
    }

    /// Checks invariant 2 at the router, which may be moving to another care-of address. If the home agent
    /// has lost the binding, the router may use the tunnel until the lifetime ends.
    fn check_router_tunnel(&self, router: usize, packet: &[u8]) {
        let Ok(outer) = Header::parse(packet) else { return };
        if outer.next_header != protocol::IPV6 || outer.destination != HOME_AGENT {
            return;
        }
        let settings = self.nodes[1 + router].config.mobile_router.as_ref().expect("a router");
        let bound =
            self.last_bound_at.iter().filter(|((whose, _), _)| *whose == router).map(|(_, at)| *at).max();
        assert!(
            bound.is_some_and(
                |at| self.now.saturating_since(at) < settings.router.lifetime + BINDING_GRACE_PERIOD
            ),
            "the router sent from {} without a binding, at {:?}; the last one was there at {bound:?}",
            outer.source,
            self.now
        );
    }

    /// Checks invariant 3: an acknowledged binding survives a crash at any moment.
    fn check_acknowledgement(&mut self, packet: &[u8]) {
        let Ok(extensions) = ExtensionHeaders::parse(packet) else { return };
        if extensions.protocol != protocol::MOBILITY {
            return;
        }
        let header =
            MobilityHeader::parse(&packet[extensions.upper_layer_offset..]).expect("its own message");
        let Ok(ParsedMobilityMessage::BindingAcknowledgement(message)) = header.message() else { return };
        let Some(home_address) = extensions.routing_home_address.filter(|_| message.status < 128) else {
            return;
        };
        let router = HOME_ADDRESSES.iter().position(|home| *home == home_address).expect("a router of ours");
        let destination = Header::parse(packet).expect("a packet").destination;
        let sequence = message.sequence;
        let newer = |last: u16| sequence.wrapping_sub(last) < 0x8000;
        if self.acknowledged_sequence_numbers[router].is_none_or(newer) {
            self.acknowledged_sequence_numbers[router] = Some(sequence);
        }
        let size = self.nodes[0].disk.file_size(Path::new(STATE_FILE)) as u64;
        if size > MAX_JOURNAL_SIZE && self.rng.number_below(size) > MAX_JOURNAL_SIZE {
            return;
        }
        let disk = self.nodes[0].disk.after_power_cut();
        let (_, found) =
            Journal::open_journal(Box::new(disk), Path::new(STATE_FILE), &[]).expect("a good file");
        let kept = records_to_state(Path::new(STATE_FILE), found.current_records)
            .expect("what was written can be read");
        let node = kept.home_agent.iter().find(|node| node.home_address == home_address);
        let node = node.unwrap_or_else(|| panic!("{home_address} was told of {sequence}, which is nowhere"));
        let last = node.sequence.unwrap_or_else(|| panic!("no sequence number of {home_address} is kept"));
        let behind = sequence.wrapping_sub(last);
        assert!(behind == 0 || behind >= 0x8000, "{sequence} was acknowledged, {last} is kept");
        // An attacker may have sent a router's update from another address. The answer then goes to that
        // address, although the update names another care-of address. If the binding's lifetime is shorter
        // than the wait for the disk, the binding may have ended when the answer leaves.
        if behind == 0
            && message.lifetime > MAX_STALE_LIFETIME_UNITS
            && self.past_care_of_addresses[router].contains(&destination)
        {
            let registration = node.registration.as_ref().and_then(|it| it.care_of_address.ipv6());
            assert_eq!(registration, Some(destination), "{sequence} is acknowledged, and not kept");
        }
        // The answer to a router without timestamps contains the home agent's time, which no record contains.
        let settings = self.nodes[1 + router].config.mobile_router.as_ref().expect("a router");
        let has_timestamps = matches!(
            &settings.router.authentication,
            Authentication::SharedKey(key) if matches!(key.replay, ReplayProtection::Timestamp { .. })
        );
        let accepted = message.options.iter().find_map(|option| match option {
            Ok(MobilityOption::MessageIdentifier(timestamp)) => Some(timestamp).filter(|_| has_timestamps),
            _ => None,
        });
        assert!(node.timestamp >= accepted, "{accepted:?} was acknowledged, {:?} is kept", node.timestamp);
        self.stored_timestamps[router] = self.stored_timestamps[router].max(node.timestamp.unwrap_or(0));
    }

    /// Checks invariant 3: the sequence numbers of replay protection never decrease.
    fn check_stored_state(&mut self, kept: &carnet_station::PersistentState) {
        let wall = self.nodes[0].wall_time(self.now);
        let agent = self.nodes[0].process.as_ref().and_then(|process| process.station.home_agent());
        for node in agent.iter().flat_map(|_| &kept.home_agent) {
            let bound = agent.and_then(|agent| agent.bindings().best_valid_binding(node.home_address));
            let bound = bound.map(|binding| binding.care_of_address);
            let registration = node.registration.as_ref().filter(|it| it.expires > wall);
            let registered = registration.map(|it| it.care_of_address);
            assert!(
                registered.is_none() || bound == registered,
                "{}: {registered:?} is kept, and {bound:?} is there after the restart",
                node.home_address
            );
        }
        for (router, home) in HOME_ADDRESSES.iter().enumerate() {
            let known = kept.home_agent.iter().filter(|node| node.home_address == *home);
            for path in known.flat_map(|node| &node.former) {
                // The binding had this care-of address until now. If the clock was set back, the address's
                // grace period begins again.
                self.last_bound_at.extend(path.care_of_address.ipv6().map(|it| ((router, it), self.now)));
            }
            let Some(acknowledged) = self.acknowledged_sequence_numbers[router] else { continue };
            let node = kept.home_agent.iter().find(|node| node.home_address == *home);
            let last = node.and_then(|node| node.sequence);
            assert!(
                last.is_some_and(|last| last.wrapping_sub(acknowledged) < 0x8000),
                "{home}: {acknowledged} was acknowledged, the restart knows {last:?}"
            );
            let timestamp = node.and_then(|node| node.timestamp).unwrap_or(0);
            assert!(timestamp >= self.stored_timestamps[router], "{home}: an old timestamp would be taken");
        }
    }

    /// Returns whether a router is registered with its preferred uplink, at both ends.
    pub fn is_registered(&self, router: usize) -> bool {
        let machine = self.nodes[1 + router].process.as_ref().map(|it| it.station.mobile_router());
        let is = machine.flatten().is_some_and(|machine| machine.state() == State::Registered);
        let agent = self.nodes[0].process.as_ref().and_then(|process| process.station.home_agent());
        let binding = agent.and_then(|agent| agent.bindings().best_valid_binding(HOME_ADDRESSES[router]));
        let care_of_address = binding.and_then(|binding| binding.care_of_address.ipv6());
        is && care_of_address
            == self.attached_networks[router][0].map(|network| self::care_of_address(router, 0, network))
    }

    /// Returns the differences between the kernels' entries and the desired state.
    pub fn kernel_differences(&self) -> Vec<String> {
        let all = self.nodes.iter().enumerate().flat_map(|(index, node)| {
            let differences = node.process.as_ref().map(|process| process.machine.differences());
            let differences =
                differences.unwrap_or_else(|| vec![format!("it does not run: {}", node.last_start_error)]);
            differences.into_iter().map(move |text| format!("machine {index}: {text}"))
        });
        all.collect()
    }
}
