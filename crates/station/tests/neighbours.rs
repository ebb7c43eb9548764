//! Two mobile routers with radios and their home agent, in virtual time. Hosts on board exchange packets
//! while the vehicles meet and part. This test simulates the kernels (routes, neighbours) and the Internet,
//! with the routes and rules that the stations request.

mod common;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_geonet::Mib;
use carnet_geonet::ipv6_adaptation::addresses;
use carnet_geonet::mib::BeaconInterval;
use carnet_mobility::mnpp::Authorization;
use carnet_nemo::forwarding::desired::{
    EntryChange, ForwardingEntry, RouteAction, TABLE_MAIN, TABLE_NEIGHBOURS, TABLE_TUNNEL, priority,
};
use carnet_station::io::{
    Command, FastPathReport, Frame, GeonetOutput, Input, NemoOutput, Output, Position, VirtualFrame,
};
use carnet_station::{GeonetSettings, MnppSettings, StationConfig};
use carnet_wire::geonet::{GnAddress, StationType};
use carnet_wire::ipv6::{HEADER_LEN, Header};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::{AGENT_ADDRESS, address, agent_config, interface, router_config};

const RADIO_RANGE: f64 = 250.0;
/// Difference of longitude over one metre at the latitude of the test, in 0.1 microdegree.
const UNITS_PER_METRE: f64 = 136.4;

fn care_of_address_of(who: usize) -> String {
    format!("2001:db8:f{who}::10")
}

fn mac_of_vehicle(who: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, 0xa + who as u8]
}

fn host_address_of(who: usize) -> Ipv6Addr {
    [address("2001:db8:a::5"), address("2001:db8:b::5")][who]
}

fn home_address_of(who: usize) -> Ipv6Addr {
    [address("2001:db8:1::1234"), address("2001:db8:1::5678")][who]
}

fn vehicle_config(who: usize, authorization: Authorization) -> StationConfig {
    let mut config = router_config(&[["2001:db8:a::/64", "2001:db8:b::/64"][who]]);
    if let Some(router) = &mut config.mobile_router {
        router.router.home_address = home_address_of(who);
        router.router.uplinks.truncate(1);
    }
    config.geonet = Some(GeonetSettings {
        router_parameters: Mib {
            beacon_interval: BeaconInterval::ADAPTIVE,
            max_communication_range: RADIO_RANGE,
            ..Mib::default()
        },
        ipv6_config: Some(common::geonet_ipv6_config()),
        ..common::geonet_settings(GnAddress::new(false, StationType::PassengerCar, mac_of_vehicle(who)))
    });
    config.mnpp = Some(MnppSettings {
        interface: "gn0".into(),
        authorization,
        shortest_prefix_length: 48,
        announcement_hop_limit: 1,
        interval: Duration::from_secs(10),
    });
    config
}

/// Index of the home agent's station; the stations of the two vehicles have the indices 0 and 1.
const HOME_AGENT_INDEX: usize = 2;

/// The radio, the Internet and the kernels. The second vehicle drives past the first.
#[derive(Default)]
struct RadioAndInternet {
    kernel_entries: [BTreeMap<String, ForwardingEntry>; 2],
    /// Distance of vehicle 2 to the east of vehicle 1 in metres.
    distance_east: f64,
    /// Speed of vehicle 2 in m/s.
    speed: f64,
    /// Whether the radio is broken: no frame arrives.
    is_radio_broken: bool,
    /// Whether the radio reports unacknowledged frames.
    reports_unacknowledged: bool,
    /// Recent frames of vehicle 1, which an attacker may replay.
    overheard_frames: Vec<Frame>,
    /// Numbers of the packets that each host received, and whether each took the direct route.
    arrived_packets: [Vec<(u32, bool)>; 2],
    sent_packets: u32,
}

type NeighbourWorld = common::world::TestNetwork<RadioAndInternet>;

impl NetworkBehaviour for RadioAndInternet {
    fn handle_output(world: &mut NeighbourWorld, who: usize, output: Output) {
        match output {
            Output::Nemo(NemoOutput::Packet(packet)) => world.route_packet(who, packet),
            Output::Nemo(NemoOutput::Forwarding(change)) if who != HOME_AGENT_INDEX => {
                let wanted = &mut world.network_behaviour.kernel_entries[who];
                match change {
                    EntryChange::Set(entry) => {
                        wanted.insert(format!("{:?}", entry.key()), ForwardingEntry::clone(&entry));
                    }
                    EntryChange::Remove(entry) => {
                        wanted.remove(&format!("{:?}", entry.key()));
                    }
                }
            }
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                let group = frame.destination[0] & 1 != 0;
                let other = 1 - who;
                if who == 0 {
                    world.network_behaviour.overheard_frames.push(frame.clone());
                }
                let heard = !world.network_behaviour.is_radio_broken
                    && world.network_behaviour.distance_east.abs() <= RADIO_RANGE;
                if heard && (group || frame.destination == mac_of_vehicle(other)) {
                    world.send_now(other, Input::Frame(frame));
                } else if world.network_behaviour.reports_unacknowledged && !group {
                    world.send_now(who, Input::Unacknowledged(frame));
                }
            }
            Output::Geonet(GeonetOutput::Ipv6 { delivered, .. }) => {
                world.deliver_to_host(who, &delivered.payload, true)
            }
            _ => {}
        }
    }
}

impl NeighbourWorld {
    fn new(authorization: Authorization) -> NeighbourWorld {
        let mut agent = agent_config(&["2001:db8:a::/64"]);
        if let Some(agent) = &mut agent.home_agent {
            let mut other = agent.nodes[0].clone();
            other.home_address = home_address_of(1);
            other.prefixes = ["2001:db8:b::/64".parse().expect("a prefix")].into();
            agent.nodes.push(other);
        }
        let [first, second] =
            [0, 1].map(|who| station_at_time_zero(vehicle_config(who, authorization), 8 + who as u64));
        let surroundings = RadioAndInternet { distance_east: 1000.0, ..RadioAndInternet::default() };
        let mut world =
            NeighbourWorld::with_stations([first, second, station_at_time_zero(agent, 7)], surroundings);
        for who in [0, 1] {
            world.pass_recorded_input(who, Input::Interface(interface("w0", &care_of_address_of(who), true)));
            let status = world.stations[who].nemo().mobile_router_status().expect("a mobile router");
            assert_eq!(status.state, "registered");
        }
        world
    }

    /// Simulates the Internet and the kernels for a packet that a station has written.
    fn route_packet(&mut self, from: usize, packet: Vec<u8>) {
        let to = Header::parse(&packet).expect("an IPv6 packet").destination;
        if to == address(AGENT_ADDRESS) {
            return self.send_now(HOME_AGENT_INDEX, Input::Packet(packet));
        }
        for who in [0, 1] {
            if to == address(&care_of_address_of(who)) {
                return self.send_now(who, Input::Packet(packet));
            }
            // The home agent's kernel routes packets for mobile networks into the tunnel device.
            let inside =
                host_address_of(who).segments()[..4] == to.segments()[..4] || to == home_address_of(who);
            if inside && from == who {
                return self.deliver_to_host(who, &packet, false);
            } else if inside {
                return self.send_now(HOME_AGENT_INDEX, Input::Packet(packet));
            }
        }
    }

    fn deliver_to_host(&mut self, who: usize, packet: &[u8], straight: bool) {
        let header = Header::parse(packet).expect("an IPv6 packet");
        if header.destination == host_address_of(who) {
            let number = packet[HEADER_LEN..].first_chunk().expect("a number");
            self.network_behaviour.arrived_packets[who].push((u32::from_be_bytes(*number), straight));
        }
    }

    /// Returns the next hop of a vehicle's kernel for a neighbouring mobile network.
    fn direct_next_hop(&self, who: usize, to: Ipv6Addr) -> Option<Ipv6Addr> {
        self.network_behaviour.kernel_entries[who].values().find_map(|entry| match entry {
            ForwardingEntry::Route(route)
                if route.table == TABLE_NEIGHBOURS && route.destination.contains(&to) =>
            {
                match &*route.action {
                    RouteAction::Forward { interface, gateway } if interface == "gn0" => *gateway,
                    other => panic!("{other:?}"),
                }
            }
            _ => None,
        })
    }

    /// Sends a packet from a host on board to the host of the other vehicle.
    fn send_from_host(&mut self, who: usize) {
        let (from, to) = (host_address_of(who), host_address_of(1 - who));
        let packet =
            carnet_virtual::data_packet(from, to, &self.network_behaviour.sent_packets.to_be_bytes());
        self.network_behaviour.sent_packets += 1;
        let input = match self.direct_next_hop(who, to) {
            Some(gateway) => Input::VirtualFrame(VirtualFrame {
                link: 0,
                destination: addresses::mac_of_address(gateway).expect("a station's address"),
                source: mac_of_vehicle(who),
                ether_type: 0x86dd,
                payload: packet,
            }),
            None => Input::Packet(packet),
        };
        self.pass_recorded_input(who, input);
    }

    /// Lets 10 ms pass.
    fn advance_ten_milliseconds(&mut self) {
        self.now += Duration::from_millis(10);
        self.network_behaviour.distance_east += self.network_behaviour.speed * 0.01;
        let millis = (self.now.as_nanos() / 1_000_000) as u32;
        for who in [0, 1] {
            if millis.is_multiple_of(200) {
                let (metres, speed) =
                    [(0.0, 0.0), (self.network_behaviour.distance_east, self.network_behaviour.speed)][who];
                let position = Position {
                    timestamp: 1_000_000 + millis,
                    latitude: 488_375_000,
                    longitude: 21_008_000 + (metres * UNITS_PER_METRE) as i32,
                    accurate: true,
                    speed: (f64::abs(speed) * 100.0) as i16,
                    heading: if speed < 0.0 { 2700 } else { 900 },
                };
                self.pass_recorded_input(who, Input::Position(position));
            }
            if self.stations[who].poll_timeout().is_some_and(|due| due <= self.now) {
                self.pass_recorded_input(who, Input::Timeout);
            }
        }
        if self.stations[HOME_AGENT_INDEX].poll_timeout().is_some_and(|due| due <= self.now) {
            self.pass_recorded_input(HOME_AGENT_INDEX, Input::Timeout);
        }
    }

    /// Lets `seconds` pass. Both hosts send a packet every 10 ms.
    fn exchange_packets(&mut self, seconds: f64) {
        for _ in 0..(seconds * 100.0) as u32 {
            self.advance_ten_milliseconds();
            self.send_from_host(0);
            self.send_from_host(1);
        }
    }

    /// Returns counts of packets since the previous call: lost packets, packets on the direct route, and
    /// duplicates.
    fn take_packet_counts(&mut self) -> (u32, usize, usize) {
        let mut arrived: Vec<(u32, bool)> =
            self.network_behaviour.arrived_packets.iter_mut().flat_map(std::mem::take).collect();
        let straight = arrived.iter().filter(|(_, straight)| *straight).count();
        let all = arrived.len();
        arrived.sort();
        arrived.dedup_by_key(|(number, _)| *number);
        let lost = std::mem::take(&mut self.network_behaviour.sent_packets) - arrived.len() as u32;
        (lost, straight, all - arrived.len())
    }
}

#[test]
fn passing_vehicles_lose_no_packet_on_direct_route() {
    let mut world = NeighbourWorld::new(Authorization::HomeAgent);
    (world.network_behaviour.distance_east, world.network_behaviour.speed) = (600.0, -50.0);
    world.exchange_packets(24.0);
    let (lost, straight, twice) = world.take_packet_counts();
    assert_eq!((lost, twice), (0, 0));
    // The vehicles are nearer to each other than 237 m for 9.5 s. For about 8 s of this time direct routes
    // exist in both directions.
    assert!((1500..1900).contains(&straight), "{straight}");
    // Each station counts one neighbour that came into range and left the range.
    for who in [0, 1] {
        assert_eq!(world.direct_next_hop(who, host_address_of(1 - who)), None);
        let counters: BTreeMap<String, u64> = world.stations[who].counters().into_iter().collect();
        assert_eq!((counters["mnpp.met"], counters["mnpp.parted"]), (1, 1));
        let routes = world.stations[who].nemo().route_status(world.now);
        let [other, all] = &routes[..] else { panic!("{routes:?}") };
        assert_eq!((other.path.as_str(), all.path.as_str()), ("home_agent", "home_agent"));
        assert!(["about to leave", "no neighbour"].contains(&other.reason.as_str()), "{}", other.reason);
    }
}

#[test]
fn silent_radio_failure_costs_half_a_second() {
    for feedback in [false, true] {
        let mut world = NeighbourWorld::new(Authorization::HomeAgent);
        world.network_behaviour.reports_unacknowledged = feedback;
        world.network_behaviour.distance_east = 50.0;
        world.exchange_packets(5.0);
        let (lost, straight, _) = world.take_packet_counts();
        assert_eq!(lost, 0);
        assert!(straight > 300, "{straight}");
        let routes = world.stations[0].nemo().route_status(world.now);
        assert_eq!((routes[0].path.as_str(), routes[0].interface.as_deref()), ("direct", Some("gn0")));
        world.network_behaviour.is_radio_broken = true;
        world.exchange_packets(10.0);
        let (lost, _, twice) = world.take_packet_counts();
        assert_eq!(twice, 0);
        if feedback {
            assert_eq!(lost, 0);
        } else {
            // In the outage at least one packet is lost. Each of the two hosts loses at most 66 packets.
            assert!((1..=132).contains(&lost), "{lost}");
        }
        world.network_behaviour.is_radio_broken = false;
        world.exchange_packets(40.0);
        let (lost, straight, _) = world.take_packet_counts();
        assert_eq!(lost, 0);
        assert!(straight > 400, "{straight}");
    }
}

#[test]
fn proven_neighbouring_network_adds_exactly_one_route() {
    let mut world = NeighbourWorld::new(Authorization::HomeAgent);
    let before = world.network_behaviour.kernel_entries[0].clone();
    let rule = |priority, table| {
        let rules = before.values().filter(|entry| {
            matches!(entry, ForwardingEntry::Rule(rule)
                if rule.priority == priority && rule.table == table)
        });
        rules.count()
    };
    assert_eq!(rule(priority::TO_NEIGHBOURS, TABLE_NEIGHBOURS), 3);
    assert_eq!(rule(priority::FROM_MOBILE_NETWORK, TABLE_TUNNEL), 3);
    // In this test the interface to neighbours is not an uplink, so this rule does not exist.
    assert_eq!(rule(priority::FROM_NEIGHBOURS, TABLE_MAIN), 0);
    world.network_behaviour.distance_east = 50.0;
    world.exchange_packets(5.0);
    let mut after = world.network_behaviour.kernel_entries[0].clone();
    let is_new = |key: &String| !before.contains_key(key);
    let new: Vec<String> = after.keys().filter(|key| is_new(key)).cloned().collect();
    assert_eq!(new.len(), 1, "{new:?}");
    after.remove(&new[0]);
    assert_eq!(after, before);
    // A station that shuts down sends a last message, which removes the routes to it at its neighbours.
    world.pass_recorded_input(1, Input::Command(Command::Shutdown));
    assert_eq!(world.network_behaviour.kernel_entries[0], before);
}

/// A station does not see the packets of a fast path; the fast path reports them ten times a second.
#[test]
fn packets_of_fast_path_keep_direct_route_in_use() {
    let mut world = NeighbourWorld::new(Authorization::HomeAgent);
    world.network_behaviour.distance_east = 50.0;
    world.exchange_packets(3.0);
    let probes = |world: &NeighbourWorld| {
        let counters: BTreeMap<String, u64> = world.stations[0].counters().into_iter().collect();
        counters["mnpp.probes"]
    };
    for (ways, expected) in [(vec![], 3..8), (vec![mac_of_vehicle(1)], 17..23)] {
        // Wait until the last packets that the station itself saw are too old to keep the route in use.
        (0..300).for_each(|_| world.advance_ten_milliseconds());
        let before = probes(&world);
        for step in 0..500u16 {
            world.advance_ten_milliseconds();
            if step.is_multiple_of(10) {
                let next_sequence = 30_000 + 50 * step;
                let report = FastPathReport {
                    next_sequence,
                    own_packet_destinations: ways.clone(),
                    ..FastPathReport::default()
                };
                world.pass_recorded_input(0, Input::GeonetReport(report));
            }
        }
        let sent = probes(&world) - before;
        assert!(expected.contains(&sent), "{sent}");
    }
}

/// An attacker without a mobile network of its own announces the mobile network of the other vehicle.
#[test]
fn router_that_announces_foreign_network_gets_no_traffic() {
    for (authorization, believed) in [(Authorization::HomeAgent, false), (Authorization::Anybody, true)] {
        let mut world = NeighbourWorld::new(authorization);
        let mut liar = vehicle_config(1, authorization);
        let there = GnAddress::new(false, StationType::PassengerCar, [2, 0, 0, 0, 0, 0x66]);
        if let Some(geonet) = &mut liar.geonet {
            geonet.address = Some(there);
        }
        let mut liar = station_at_time_zero(liar, 3);
        let mut frames: Vec<Frame> = Vec::new();
        while liar.poll_output().is_some() {}
        for step in 0..400 {
            world.advance_ten_milliseconds();
            if step % 20 == 0 {
                let position = Position {
                    timestamp: 1_000_000 + step * 10,
                    latitude: 488_375_000,
                    longitude: 21_008_000,
                    accurate: true,
                    speed: 0,
                    heading: 0,
                };
                liar.handle_input(world.now, world.wall_time(), Input::Position(position)).expect("accepted");
                frames.extend(std::iter::from_fn(|| liar.poll_output()).filter_map(frame_of));
            }
            if liar.poll_timeout().is_some_and(|due| due <= world.now) {
                liar.handle_input(world.now, world.wall_time(), Input::Timeout).expect("accepted");
                frames.extend(std::iter::from_fn(|| liar.poll_output()).filter_map(frame_of));
            }
            for frame in std::mem::take(&mut frames) {
                world.pass_recorded_input(0, Input::Frame(frame));
            }
            for frame in std::mem::take(&mut world.network_behaviour.overheard_frames) {
                liar.handle_input(world.now, world.wall_time(), Input::Frame(frame)).expect("accepted");
                frames.extend(std::iter::from_fn(|| liar.poll_output()).filter_map(self::frame_of));
            }
        }
        assert_eq!(world.direct_next_hop(0, host_address_of(1)).is_some(), believed);
        let counters: BTreeMap<String, u64> = world.stations[0].counters().into_iter().collect();
        assert!(counters["mnpp.received"] > 0);
    }
}

fn frame_of(output: Output) -> Option<Frame> {
    match output {
        Output::Geonet(GeonetOutput::Frame(frame)) => Some(frame),
        _ => None,
    }
}
