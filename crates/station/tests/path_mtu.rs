//! Path MTU discovery of both ends over a simulated network in virtual time. Each uplink and direction has an
//! MTU. The network delivers ICMPv6 errors or filters them, and loses, delays and reorders packets. The test
//! also simulates the kernels: the owner of the home address, and the forwarding into the tunnel device.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_nemo::forwarding::desired::{EntryChange, ForwardingEntry};
use carnet_station::Station;
use carnet_station::io::{Command, Input, NemoOutput, Output};
use carnet_virtual::Link;
use carnet_wire::extension::{HOME_ADDRESS_ROUTING_HEADER_LEN, emit_home_address_options_header};
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::nd::{NdOption, RouterAdvertisement};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::{
    AGENT_ADDRESS, CORRESPONDENT_ADDRESS, FIRST_CARE_OF_ADDRESS, HOME_ADDRESS, HOST_ADDRESS,
    SECOND_CARE_OF_ADDRESS, address, agent_config, interface, router_config,
};

/// Index of the home agent's station.
const HOME_AGENT_INDEX: usize = 0;
/// Index of the mobile router's station.
const ROUTER_INDEX: usize = 1;

/// Path from one uplink through the network to the home agent.
#[derive(Debug, Clone, Copy)]
struct NetworkPath {
    /// Path MTU of packets from the router, then path MTU of packets to the router, in octets.
    mtu: [usize; 2],
    /// Whether Packet Too Big messages of routers on the path arrive.
    reports_too_big: bool,
    is_passable: bool,
}

struct MtuInternet {
    paths_by_address: BTreeMap<&'static str, NetworkPath>,
    link_conditions: Link,
    /// Whether the router's kernel answers Echo Requests.
    answers_echo: bool,
    /// Whether the router's kernel answers probes like a node with route optimization: from the care-of
    /// address, with a Home Address option.
    route_optimization: bool,
    /// Whether the router's kernel sends its ICMPv6 error outside the tunnel, from an address without a
    /// binding.
    sends_errors_directly: bool,
    /// Source address of the home agent's Echo Replies if the home agent answers like a correspondent node
    /// with a binding; `None` if it does not.
    echo_reply_source: Option<&'static str>,
    /// Whether a data path outside the station (kernel or fast path) has already decapsulated the packets
    /// that arrive at the tunnel ends.
    is_decapsulated_outside: bool,
    rng: Rng,
    /// Tunnel MTUs that the stations have set, each with its time, the station and the care-of address.
    set_mtus: Vec<(Time, usize, String, u32)>,
    /// MTUs in Router Advertisements to the LAN, with their times.
    advertised_mtus: Vec<(Time, u32)>,
    /// Outer packets that the stations have sent: time, index of the station, length in octets.
    sent_packets: Vec<(Time, usize, usize)>,
    /// Inner packets for hosts, and ICMPv6 errors to these hosts.
    arrived_packets: Vec<Vec<u8>>,
    quotable_packet: Option<Vec<u8>>,
}

type MtuWorld = common::world::TestNetwork<MtuInternet>;

impl NetworkBehaviour for MtuInternet {
    fn handle_output(world: &mut MtuWorld, from: usize, output: Output) {
        match output {
            Output::Nemo(NemoOutput::Packet(packet)) => world.handle_decapsulated_packet(from, packet),
            Output::Nemo(NemoOutput::Forwarding(EntryChange::Set(entry))) => {
                if let ForwardingEntry::Tunnel(t) = &*entry
                    && t.transmit
                {
                    let care_of = if from == HOME_AGENT_INDEX { t.remote } else { t.local };
                    world.network_behaviour.set_mtus.push((world.now, from, care_of.to_string(), t.mtu));
                }
            }
            Output::Nemo(NemoOutput::Icmpv6(LinkMessage { message, .. }))
                if message.first() == Some(&icmpv6::message_type::ROUTER_ADVERTISEMENT) =>
            {
                let advertisement = RouterAdvertisement::parse(&message).expect("valid");
                for option in advertisement.options() {
                    if let NdOption::Mtu(mtu) = option {
                        world.network_behaviour.advertised_mtus.push((world.now, mtu));
                    }
                }
            }
            _ => {}
        }
    }
}

impl MtuWorld {
    fn new(first: NetworkPath, second: NetworkPath) -> MtuWorld {
        let delay = (Duration::from_millis(20), Duration::from_millis(22));
        let internet = MtuInternet {
            paths_by_address: BTreeMap::from([
                (FIRST_CARE_OF_ADDRESS, first),
                (SECOND_CARE_OF_ADDRESS, second),
            ]),
            link_conditions: Link { delay_range: delay, ..Link::LOSSLESS },
            answers_echo: true,
            route_optimization: false,
            sends_errors_directly: false,
            echo_reply_source: None,
            is_decapsulated_outside: false,
            rng: Rng::new(3),
            set_mtus: Vec::new(),
            advertised_mtus: Vec::new(),
            sent_packets: Vec::new(),
            arrived_packets: Vec::new(),
            quotable_packet: None,
        };
        let agent = station_at_time_zero(agent_config(&["2001:db8:a::/64"]), 1);
        MtuWorld::with_stations(
            [agent, station_at_time_zero(router_config(&["2001:db8:a::/64"]), 2)],
            internet,
        )
    }

    fn start_stations(&mut self) {
        let mut lan = interface("i0", "2001:db8:a::1", true);
        lan.routers.clear();
        for interface in
            [lan, interface("w0", FIRST_CARE_OF_ADDRESS, true), interface("w1", SECOND_CARE_OF_ADDRESS, true)]
        {
            self.pass_recorded_input(ROUTER_INDEX, Input::Interface(interface));
        }
    }

    /// Simulates the kernel for a packet from the tunnel device: forwards or delivers the packet.
    fn handle_decapsulated_packet(&mut self, side: usize, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("a packet");
        let destination = header.destination.to_string();
        let outer = |at: &std::net::Ipv6Addr| {
            [FIRST_CARE_OF_ADDRESS, SECOND_CARE_OF_ADDRESS].into_iter().find(|f| address(f) == *at)
        };
        match (side, outer(&header.source), outer(&header.destination)) {
            (ROUTER_INDEX, Some(care_of), _) => self.transmit_outer(side, care_of, packet),
            (HOME_AGENT_INDEX, _, Some(care_of)) => match self.network_behaviour.echo_reply_source {
                Some(source) if is_echo_reply(&packet[HEADER_LEN..]) => {
                    self.answer_echo_directly(care_of, source, &packet[HEADER_LEN..]);
                }
                _ => self.transmit_outer(side, care_of, packet),
            },
            (ROUTER_INDEX, ..) if destination == HOME_ADDRESS => {
                if let (true, Some(reply)) =
                    (self.network_behaviour.answers_echo, icmpv6::answer_echo_request(&packet))
                {
                    match self.network_behaviour.route_optimization {
                        true => {
                            let source = if self.network_behaviour.sends_errors_directly {
                                SECOND_CARE_OF_ADDRESS
                            } else {
                                FIRST_CARE_OF_ADDRESS
                            };
                            self.transmit_outer(
                                side,
                                FIRST_CARE_OF_ADDRESS,
                                to_route_optimized_packet(source, &reply),
                            );
                        }
                        false => self.send_now(side, Input::Packet(reply)),
                    }
                }
            }
            (HOME_AGENT_INDEX, ..) if destination == HOME_ADDRESS || destination == AGENT_ADDRESS => {
                self.send_now(side, Input::Packet(packet));
            }
            _ => self.network_behaviour.arrived_packets.push(packet),
        }
    }

    fn transmit_outer(&mut self, side: usize, care_of: &'static str, packet: Vec<u8>) {
        self.network_behaviour.sent_packets.push((self.now, side, packet.len()));
        let way = self.network_behaviour.paths_by_address[care_of];
        let (mtu, other) =
            if side == ROUTER_INDEX { (way.mtu[0], HOME_AGENT_INDEX) } else { (way.mtu[1], ROUTER_INDEX) };
        let header = Header::parse(&packet).expect("a packet");
        if packet.len() > 1000 && header.next_header == protocol::IPV6 {
            self.network_behaviour.quotable_packet = Some(packet.clone());
        }
        if !way.is_passable
            || self
                .network_behaviour
                .rng
                .is_true_with_probability(self.network_behaviour.link_conditions.loss_probability)
        {
            return;
        }
        let delay = self.network_behaviour.rng.duration_between(
            self.network_behaviour.link_conditions.delay_range.0,
            self.network_behaviour.link_conditions.delay_range.1,
        );
        if packet.len() <= mtu {
            let inner = packet.get(HEADER_LEN..).unwrap_or_default();
            let for_end = |inner: &Header| {
                [AGENT_ADDRESS, HOME_ADDRESS].contains(&inner.destination.to_string().as_str())
            };
            let packet = match Header::parse(inner) {
                Ok(header) if self.network_behaviour.is_decapsulated_outside && for_end(&header) => {
                    inner.to_vec()
                }
                _ => packet,
            };
            self.send_after(delay, other, Input::Packet(packet));
        } else if way.reports_too_big {
            let error = Icmpv6ErrorMessage::PacketTooBig { mtu: u32::try_from(mtu).expect("small") };
            let on_the_way = address("2001:db8:ee::1");
            self.deliver_error(delay, side, &icmpv6::error_packet(on_the_way, header.source, error, &packet));
        }
    }

    /// Delivers an answer of the home agent with a type 2 routing header to the router, as it arrives on the
    /// router's link.
    fn answer_echo_directly(&mut self, care_of: &'static str, source: &str, packet: &[u8]) {
        let (header, message) = Header::parse_packet(packet).expect("a packet");
        let way = self.network_behaviour.paths_by_address[care_of];
        if !way.is_passable || packet.len() + HOME_ADDRESS_ROUTING_HEADER_LEN > way.mtu[1] {
            return;
        }
        let mut message = message.to_vec();
        icmpv6::set_checksum(&mut message, address(source), header.destination);
        let message = LinkMessage {
            interface: if care_of == FIRST_CARE_OF_ADDRESS { "w0".into() } else { "w1".into() },
            peer: None,
            source: address(source),
            destination: header.destination,
            hop_limit: 60,
            message,
        };
        let delay = self.network_behaviour.rng.duration_between(
            self.network_behaviour.link_conditions.delay_range.0,
            self.network_behaviour.link_conditions.delay_range.1,
        );
        self.send_after(delay, ROUTER_INDEX, Input::Icmpv6(message));
    }

    /// Delivers an ICMPv6 error to a tunnel end.
    fn deliver_error(&mut self, delay: Duration, side: usize, packet: &[u8]) {
        let (header, message) = Header::parse_packet(packet).expect("a packet");
        let input = match side {
            HOME_AGENT_INDEX => Input::Packet(packet.to_vec()),
            _ => Input::Icmpv6(LinkMessage {
                interface: "w0".into(),
                peer: None,
                source: header.source,
                destination: header.destination,
                hop_limit: 60,
                message: message.to_vec(),
            }),
        };
        self.send_after(delay, side, input);
    }

    /// Lets seconds pass; hosts send a packet every second in both directions.
    fn exchange_for(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.exchange_packets(100);
            self.run_for(Duration::from_secs(1));
        }
    }

    fn exchange_packets(&mut self, length: usize) {
        self.pass_recorded_input(
            ROUTER_INDEX,
            Input::Packet(data_packet_of(HOST_ADDRESS, CORRESPONDENT_ADDRESS, length)),
        );
        self.pass_recorded_input(
            HOME_AGENT_INDEX,
            Input::Packet(data_packet_of(CORRESPONDENT_ADDRESS, HOST_ADDRESS, length)),
        );
    }

    /// Sends a packet of this length in each direction. Returns how many of the two arrive.
    fn count_passing(&mut self, length: usize) -> usize {
        self.network_behaviour.arrived_packets.clear();
        self.exchange_packets(length);
        self.run_for(Duration::from_millis(200));
        self.network_behaviour.arrived_packets.iter().filter(|packet| packet.len() == length).count()
    }

    /// Returns the MTU of the transmitting tunnel, at each of its two ends.
    fn tunnel_mtus(&self) -> (usize, usize) {
        let mtu = |station: &Station| {
            station
                .nemo()
                .slow_path_forwarder()
                .tunnels()
                .find(|(tunnel, _)| tunnel.transmit)
                .map_or(0, |(_, mtu)| mtu)
        };
        (mtu(&self.stations[ROUTER_INDEX]), mtu(&self.stations[HOME_AGENT_INDEX]))
    }

    fn octets_sent_since(&self, since: Time) -> usize {
        self.network_behaviour
            .sent_packets
            .iter()
            .filter(|(at, ..)| *at >= since)
            .map(|(_, _, length)| length)
            .sum()
    }
}

fn data_packet_of(source: &str, destination: &str, length: usize) -> Vec<u8> {
    carnet_virtual::filled_packet(address(source), address(destination), length)
}

const fn network_path(mtu: usize, tells: bool) -> NetworkPath {
    NetworkPath { mtu: [mtu, mtu], reports_too_big: tells, is_passable: true }
}

const WIDE_PATH: NetworkPath = network_path(1500, true);
const ONE_SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_wide_path_is_confirmed_with_one_probe_of_each_end() {
    let mut world = MtuWorld::new(WIDE_PATH, WIDE_PATH);
    world.start_stations();
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
    let probes = |station: &Station| {
        let counters: BTreeMap<String, u64> = station.counters().into_iter().collect();
        (counters["tunnel.probes"], counters["tunnel.probes_answered"])
    };
    assert_eq!(
        (probes(&world.stations[ROUTER_INDEX]), probes(&world.stations[HOME_AGENT_INDEX])),
        ((1, 1), (1, 1))
    );
    // The path is idle: for an hour the stations send only the registration.
    world.run_for(Duration::from_secs(3600));
    assert_eq!(
        (probes(&world.stations[ROUTER_INDEX]), probes(&world.stations[HOME_AGENT_INDEX])),
        ((1, 1), (1, 1))
    );
    // The station confirms the MTU of a used path from time to time.
    world.exchange_for(600);
    let (sent, answered) = probes(&world.stations[ROUTER_INDEX]);
    assert!((8..=15).contains(&sent) && sent == answered, "{sent}");
    assert!(
        world.network_behaviour.set_mtus.iter().all(|(.., mtu)| *mtu == 1460),
        "{:?}",
        world.network_behaviour.set_mtus
    );
}

/// Returns a packet of the home address in the form for a correspondent node with a binding (RFC 6275 6.3,
/// 11.3.1).
fn to_route_optimized_packet(care_of: &str, packet: &[u8]) -> Vec<u8> {
    let (header, payload) = Header::parse_packet(packet).expect("a packet");
    let option = emit_home_address_options_header(header.next_header, header.source);
    let header = Header {
        source: address(care_of),
        next_header: protocol::DESTINATION_OPTIONS,
        payload_length: u16::try_from(option.len() + payload.len()).expect("fits"),
        ..header
    };
    [&header.emit()[..], &option, payload].concat()
}

/// RFC 6275 9.3.1: a home agent processes the Home Address option if it has a binding for that home address.
#[test]
fn home_agent_accepts_probe_answers_with_a_home_address_option() {
    let mut world = MtuWorld::new(network_path(1400, false), WIDE_PATH);
    world.network_behaviour.route_optimization = true;
    world.start_stations();
    world.run_for(ONE_SECOND);
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
    let counters: BTreeMap<String, u64> = world.stations[HOME_AGENT_INDEX].counters().into_iter().collect();
    assert!(counters["tunnel.probes_answered"] > 0, "{counters:?}");
    assert_eq!(counters.get("tunnel.dropped.upper_layer").copied().unwrap_or_default(), 0);
}

/// A probe answer with a Home Address option proves nothing if its source has no binding.
#[test]
fn home_agent_drops_probe_answers_from_an_address_without_binding() {
    let mut world = MtuWorld::new(network_path(1400, false), WIDE_PATH);
    world.network_behaviour.route_optimization = true;
    world.network_behaviour.sends_errors_directly = true;
    world.start_stations();
    world.run_for(ONE_SECOND);
    assert_eq!(world.tunnel_mtus(), (1360, 1460));
    let counters: BTreeMap<String, u64> = world.stations[HOME_AGENT_INDEX].counters().into_iter().collect();
    assert_eq!(counters["tunnel.probes_answered"], 0);
}

fn is_echo_reply(packet: &[u8]) -> bool {
    Header::parse_packet(packet).is_ok_and(|(header, message)| {
        header.next_header == protocol::ICMPV6 && message.first() == Some(&icmpv6::message_type::ECHO_REPLY)
    })
}

/// RFC 6275 9.3.2: a home agent that answers like a correspondent node sends its answer outside the tunnel.
#[test]
fn router_accepts_probe_answers_with_a_routing_header() {
    let mut world = MtuWorld::new(network_path(1400, false), WIDE_PATH);
    world.network_behaviour.echo_reply_source = Some(AGENT_ADDRESS);
    world.start_stations();
    world.run_for(ONE_SECOND);
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
    let counters: BTreeMap<String, u64> = world.stations[ROUTER_INDEX].counters().into_iter().collect();
    assert!(counters["tunnel.probes_answered"] > 0, "{counters:?}");
}

/// A probe answer with a routing header proves nothing if it does not come from the home agent.
#[test]
fn router_drops_probe_answers_of_others_with_a_routing_header() {
    let mut world = MtuWorld::new(network_path(1400, false), WIDE_PATH);
    world.network_behaviour.echo_reply_source = Some(CORRESPONDENT_ADDRESS);
    world.start_stations();
    world.run_for(ONE_SECOND);
    assert_eq!(world.tunnel_mtus(), (1460, 1360));
    let counters: BTreeMap<String, u64> = world.stations[ROUTER_INDEX].counters().into_iter().collect();
    assert_eq!(counters["tunnel.probes_answered"], 0);
    assert!(counters["tunnel.dropped.upper_layer"] > 0, "{counters:?}");
}

#[test]
fn probing_works_if_kernel_decapsulates() {
    let mut world = MtuWorld::new(network_path(1400, false), WIDE_PATH);
    world.network_behaviour.is_decapsulated_outside = true;
    world.start_stations();
    world.run_for(ONE_SECOND);
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
}

#[test]
fn mtu_black_hole_is_found_within_a_second() {
    for (mtu, expected) in
        [(1400, 1360), (1492, 1452), (1410, 1360), (1320, 1280), (1280, 1240), (1300, 1240)]
    {
        let mut world = MtuWorld::new(network_path(mtu, false), WIDE_PATH);
        world.start_stations();
        world.run_for(ONE_SECOND);
        assert_eq!(world.tunnel_mtus(), (expected, expected), "{mtu}");
        assert_eq!(world.count_passing(expected), 2);
        assert_eq!(world.count_passing(1280), 2, "in fragments, if need be");
        if expected >= 1280 {
            assert_eq!(world.count_passing(expected + 1), 0);
            assert!(
                world.network_behaviour.arrived_packets.iter().any(|packet| packet[6] == protocol::ICMPV6),
                "Packet Too Big"
            );
        }
        // After the search, the station confirms the MTU about once a minute, and searches for a larger size
        // seven times in the hour. No other probes cost traffic.
        let before = (world.now, world.network_behaviour.set_mtus.len());
        world.exchange_for(3600);
        assert_eq!(
            world.network_behaviour.set_mtus.len(),
            before.1,
            "{:?}",
            world.network_behaviour.set_mtus
        );
        let octets = world.octets_sent_since(before.0) - 2 * 3600 * 140;
        assert!(octets < 1_000_000, "{octets}");
        // If the path changes to a larger MTU, the station uses it after ten minutes or a little more.
        world.network_behaviour.paths_by_address.insert(FIRST_CARE_OF_ADDRESS, WIDE_PATH);
        world.exchange_for(800);
        assert_eq!(world.tunnel_mtus(), (1460, 1460), "{mtu}");
    }
}

#[test]
fn packet_too_big_sets_mtu_within_a_round_trip() {
    let mut world = MtuWorld::new(network_path(1400, true), WIDE_PATH);
    world.start_stations();
    world.run_for(Duration::from_millis(250));
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
    assert_eq!(world.count_passing(1360), 2);
    world.exchange_for(590);
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
    // A probe tests the path before the MTU of the Packet Too Big expires, so hosts see no change.
    let changes = world.network_behaviour.set_mtus.len();
    world.exchange_for(1800);
    assert_eq!(
        (world.tunnel_mtus(), world.network_behaviour.set_mtus.len()),
        ((1360, 1360), changes),
        "{:?}",
        world.network_behaviour.set_mtus
    );
    world.network_behaviour.paths_by_address.insert(FIRST_CARE_OF_ADDRESS, WIDE_PATH);
    world.exchange_for(620);
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
}

#[test]
fn packet_too_big_expires_on_idle_path() {
    let mut world = MtuWorld::new(network_path(1400, true), WIDE_PATH);
    world.start_stations();
    world.run_for(ONE_SECOND);
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
    world.network_behaviour.paths_by_address.insert(FIRST_CARE_OF_ADDRESS, WIDE_PATH);
    world.run_for(Duration::from_secs(590));
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
    world.run_for(Duration::from_secs(15));
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
}

#[test]
fn without_probe_answers_only_packet_too_big_changes_mtu() {
    let mut world = MtuWorld::new(network_path(1500, true), WIDE_PATH);
    // From now on, the answers of the home agent's kernel to the probes are lost on their way back.
    world.network_behaviour.answers_echo = false;
    world.network_behaviour.paths_by_address.insert(
        FIRST_CARE_OF_ADDRESS,
        NetworkPath { mtu: [1500, 0], reports_too_big: false, is_passable: true },
    );
    world.start_stations();
    world.run_for(Duration::from_secs(60));
    // No answers arrive over this path, so the router does not register over it. No tunnel gets an MTU other
    // than 1460.
    assert!(
        world.network_behaviour.set_mtus.iter().all(|(.., mtu)| *mtu == 1460),
        "{:?}",
        world.network_behaviour.set_mtus
    );
    world.network_behaviour.paths_by_address.insert(FIRST_CARE_OF_ADDRESS, WIDE_PATH);
    world.exchange_for(120);
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
    let agent_probes = |world: &MtuWorld| {
        let counters: BTreeMap<String, u64> =
            world.stations[HOME_AGENT_INDEX].counters().into_iter().collect();
        (counters["tunnel.probes"], counters["tunnel.probes_answered"])
    };
    // Each search for a larger MTU fails, and the pauses between the searches grow.
    let before = agent_probes(&world);
    world.exchange_for(3600);
    let after = agent_probes(&world);
    assert_eq!(after.1, 0);
    assert!(after.0 - before.0 < 12 * 20, "{before:?} {after:?}");
    // RFC 8201: the station uses the MTU of a Packet Too Big for ten minutes, then the MTU of the link again.
    world.network_behaviour.paths_by_address.insert(FIRST_CARE_OF_ADDRESS, network_path(1400, true));
    for _ in 0..3 {
        world.exchange_packets(1460);
        world.run_for(ONE_SECOND);
    }
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
    world.network_behaviour.paths_by_address.insert(FIRST_CARE_OF_ADDRESS, WIDE_PATH);
    world.exchange_for(620);
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
}

#[test]
fn loss_and_reordering_do_not_disturb_mtu_search() {
    for seed in 0..40 {
        for (mtu, expected) in [(1500, 1460), (1400, 1360)] {
            let mut world = MtuWorld::new(network_path(mtu, false), WIDE_PATH);
            world.network_behaviour.rng = Rng::new(seed);
            world.network_behaviour.link_conditions.loss_probability = 0.1;
            world.network_behaviour.link_conditions.delay_range =
                (Duration::from_millis(10), Duration::from_millis(60));
            world.start_stations();
            world.exchange_for(60);
            assert_eq!(
                world.tunnel_mtus(),
                (expected, expected),
                "seed {seed}, {mtu}: {:?}",
                world.network_behaviour.set_mtus
            );
        }
    }
}

#[test]
fn each_direction_has_its_own_path_mtu() {
    let mut world = MtuWorld::new(
        NetworkPath { mtu: [1500, 1400], reports_too_big: false, is_passable: true },
        WIDE_PATH,
    );
    world.start_stations();
    world.run_for(ONE_SECOND);
    // The router's first probes had no answers, because the home agent did not yet know the MTU of the path
    // to the router. Later probes had answers.
    assert_eq!(world.tunnel_mtus().1, 1360);
    world.exchange_for(900);
    assert_eq!(world.tunnel_mtus(), (1460, 1360), "answers come in fragments");
}

#[test]
fn slow_round_trips_do_not_lower_mtu() {
    let mut world = MtuWorld::new(WIDE_PATH, WIDE_PATH);
    world.network_behaviour.link_conditions.delay_range =
        (Duration::from_millis(500), Duration::from_millis(900));
    world.start_stations();
    world.exchange_for(120);
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
    assert!(
        world.network_behaviour.set_mtus.iter().all(|(.., mtu)| *mtu == 1460),
        "{:?}",
        world.network_behaviour.set_mtus
    );
}

#[test]
fn handover_changes_mtu_and_advertises_it_at_once() {
    let mut world = MtuWorld::new(WIDE_PATH, network_path(1400, false));
    world.start_stations();
    world.exchange_for(20);
    assert_eq!(
        world.network_behaviour.advertised_mtus.last().map(|(_, mtu)| *mtu),
        Some(1460),
        "{:?}",
        world.network_behaviour.advertised_mtus
    );
    world.pass_recorded_input(
        ROUTER_INDEX,
        Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }),
    );
    world.run_for(ONE_SECOND);
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
    world.exchange_for(10);
    assert_eq!(
        world.network_behaviour.advertised_mtus.last().map(|(_, mtu)| *mtu),
        Some(1360),
        "{:?}",
        world.network_behaviour.advertised_mtus
    );
    let before = world.now;
    world.pass_recorded_input(
        ROUTER_INDEX,
        Input::Command(Command::Handover { uplink: Some("w0".into()), policy: None }),
    );
    world.run_for(Duration::from_millis(200));
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
    world.exchange_for(900);
    // The MTU in Router Advertisements rises only after the path has had the larger MTU for some time.
    let told: BTreeSet<u32> = world
        .network_behaviour
        .advertised_mtus
        .iter()
        .filter(|t| t.0 < before + Duration::from_secs(600))
        .map(|t| t.1)
        .collect();
    assert_eq!(told, BTreeSet::from([1360, 1460]));
    let after = world
        .network_behaviour
        .advertised_mtus
        .iter()
        .filter(|t| t.0 >= before)
        .map(|t| t.1)
        .collect::<Vec<_>>();
    assert!(after.is_sorted() && after.first() == Some(&1360) && after.last() == Some(&1460), "{after:?}");
}

#[test]
fn smaller_path_mtu_is_detected_while_the_path_is_in_use() {
    let mut world = MtuWorld::new(WIDE_PATH, WIDE_PATH);
    world.start_stations();
    world.exchange_for(100);
    world.network_behaviour.paths_by_address.insert(FIRST_CARE_OF_ADDRESS, network_path(1400, false));
    world.exchange_for(80);
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
}

#[test]
fn idle_path_is_probed_when_used_again() {
    let mut world = MtuWorld::new(WIDE_PATH, WIDE_PATH);
    world.start_stations();
    world.run_for(Duration::from_secs(1000));
    world.network_behaviour.paths_by_address.insert(FIRST_CARE_OF_ADDRESS, network_path(1400, false));
    world.run_for(Duration::from_secs(1000));
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
    world.exchange_packets(100);
    world.run_for(ONE_SECOND);
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
}

#[test]
fn probing_of_unreachable_node_ends() {
    let mut world = MtuWorld::new(WIDE_PATH, NetworkPath { is_passable: false, ..WIDE_PATH });
    world.start_stations();
    world.run_for(ONE_SECOND);
    world
        .network_behaviour
        .paths_by_address
        .insert(FIRST_CARE_OF_ADDRESS, NetworkPath { is_passable: false, ..WIDE_PATH });
    let agent = |world: &MtuWorld| {
        let counters: BTreeMap<String, u64> =
            world.stations[HOME_AGENT_INDEX].counters().into_iter().collect();
        counters["tunnel.probes"]
    };
    let before = agent(&world);
    world.run_for(Duration::from_secs(50));
    assert_eq!(agent(&world), before);
}

#[test]
fn unproven_icmp_messages_do_not_lower_mtu() {
    let mut world = MtuWorld::new(WIDE_PATH, WIDE_PATH);
    world.start_stations();
    world.exchange_for(5);
    world.exchange_packets(1400);
    let quotable = world.network_behaviour.quotable_packet.clone().expect("a packet");
    let mut rng = Rng::new(9);
    for side in [ROUTER_INDEX, HOME_AGENT_INDEX] {
        let (local, remote) = match side {
            ROUTER_INDEX => (address(FIRST_CARE_OF_ADDRESS), address(AGENT_ADDRESS)),
            _ => (address(AGENT_ADDRESS), address(FIRST_CARE_OF_ADDRESS)),
        };
        for round in 0..2000_u32 {
            let mut header = Header::parse(&quotable).expect("a header");
            (header.source, header.destination) = (local, remote);
            header.flow_label = rng.number_below(1 << 20) as u32;
            let mut forged = quotable.clone();
            forged[..HEADER_LEN].copy_from_slice(&header.emit());
            if round % 2 == 0 {
                // The packet that the error quotes has an inner source address that an attacker has chosen.
                forged[48..64].copy_from_slice(&address("2001:db8:bad::1").octets());
            }
            let error = Icmpv6ErrorMessage::PacketTooBig { mtu: 1280 + round % 100 };
            let source = address("2001:db8:ee::2");
            world.deliver_error(Duration::ZERO, side, &icmpv6::error_packet(source, local, error, &forged));
        }
        world.run_for(ONE_SECOND);
    }
    world.exchange_for(200);
    assert_eq!(world.tunnel_mtus(), (1460, 1460));
    assert!(
        world.network_behaviour.set_mtus.iter().all(|(.., mtu)| *mtu == 1460),
        "{:?}",
        world.network_behaviour.set_mtus
    );
}

#[test]
fn forged_probe_answers_do_not_hide_black_hole() {
    let mut world = MtuWorld::new(network_path(1400, false), WIDE_PATH);
    let mut rng = Rng::new(9);
    world.start_stations();
    for round in 0..40_u16 {
        let mut message = vec![129, 0, 0, 0, 0, 0];
        message.extend_from_slice(&(round % 3).to_be_bytes());
        message.extend_from_slice(&rng.random_u64().to_be_bytes());
        message.extend_from_slice(&1460_u32.to_be_bytes());
        // An attacker can forge the outer source address if no router checks it.
        let reply = icmpv6::emit_packet(address(HOME_ADDRESS), address(AGENT_ADDRESS), 64, message);
        let outer = carnet_virtual::packet(
            address(FIRST_CARE_OF_ADDRESS),
            address(AGENT_ADDRESS),
            protocol::IPV6,
            &reply,
        );
        for packet in [reply, outer] {
            world.send_now(HOME_AGENT_INDEX, Input::Packet(packet));
        }
        world.run_for(Duration::from_millis(25));
    }
    assert_eq!(world.tunnel_mtus(), (1360, 1360));
}
