//! Tests of the care-of address test (RFC 6275 15.3) at the home agent's station. The home agent sends no
//! packet of a correspondent to an address that has not answered the test. If the old path still works, a
//! handover loses no packet because of the test. Otherwise the packets of one round trip are lost.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, Rng, Time};
use carnet_mobility::flow::{Ipv6Selector, TrafficSelector};
use carnet_station::io::{Command, Input, NemoOutput, Output, StoredStatePart};
use carnet_station::{PersistentState, StationConfig};
use carnet_wire::checksum::upper_layer_checksum;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::flow_identification::emit_sub_options;
use carnet_wire::mobility::{BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::{
    AGENT_ADDRESS, CORRESPONDENT_ADDRESS, FIRST_CARE_OF_ADDRESS, HOME_ADDRESS, HOST_ADDRESS,
    SECOND_CARE_OF_ADDRESS, address, agent_config, data_packet_between, interface, router_config,
};

/// One-way delay between the stations.
const ONE_WAY_DELAY: Duration = Duration::from_millis(20);

fn config_with_test(is_tested: bool) -> StationConfig {
    let mut config = agent_config(&["2001:db8:a::/64"]);
    if let Some(agent) = &mut config.home_agent {
        agent.nodes[0].care_of_test = is_tested;
    }
    config
}

const HOME_AGENT_INDEX: usize = 0;
const ROUTER_INDEX: usize = 1;

/// The network with [`ONE_WAY_DELAY`] between a home agent's station and a mobile router's, and a
/// correspondent that sends a packet each millisecond.
struct DelayedInternet {
    /// Care-of addresses to which the network delivers packets of the home agent.
    reached_addresses: BTreeSet<&'static str>,
    /// Care-of addresses from which packets arrive, although packets to these addresses are lost.
    unreachable_addresses: BTreeSet<&'static str>,
    /// Stored record of the router at the home agent, as JSON.
    stored_record: String,
    sent_packets: usize,
    arrived_packets: usize,
    /// Number of the correspondent's packets to each care-of address.
    packets_by_address: BTreeMap<Ipv6Addr, usize>,
}

type InternetWorld = common::world::TestNetwork<DelayedInternet>;

impl NetworkBehaviour for DelayedInternet {
    fn handle_output(world: &mut InternetWorld, from: usize, output: Output) {
        match output {
            Output::Nemo(NemoOutput::Packet(packet)) if from == HOME_AGENT_INDEX => {
                world.route_from_agent(packet)
            }
            Output::Nemo(NemoOutput::Packet(packet)) => world.route_from_router(packet),
            Output::Nemo(NemoOutput::Persist(StoredStatePart::Node(node)))
                if from == HOME_AGENT_INDEX && node == address(HOME_ADDRESS) =>
            {
                let record = world.stations[HOME_AGENT_INDEX].nemo().stored_binding(
                    world.now,
                    world.wall_time(),
                    node,
                );
                world.network_behaviour.stored_record = serde_json::to_string(&record).expect("a record");
            }
            _ => {}
        }
    }
}

impl InternetWorld {
    fn new(is_tested: bool) -> InternetWorld {
        let internet = DelayedInternet {
            reached_addresses: BTreeSet::from([FIRST_CARE_OF_ADDRESS, SECOND_CARE_OF_ADDRESS]),
            unreachable_addresses: BTreeSet::new(),
            stored_record: String::new(),
            sent_packets: 0,
            arrived_packets: 0,
            packets_by_address: BTreeMap::new(),
        };
        let configs = [config_with_test(is_tested), router_config(&["2001:db8:a::/64"])];
        let mut world =
            InternetWorld::with_stations(configs.map(|config| station_at_time_zero(config, 7)), internet);
        world.pass_recorded_input(
            ROUTER_INDEX,
            Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)),
        );
        world.pass_recorded_input(
            ROUTER_INDEX,
            Input::Interface(interface("w1", SECOND_CARE_OF_ADDRESS, true)),
        );
        world
    }

    /// Replaces the home agent by another machine that starts with the stored record.
    fn replace_home_agent_by_standby(&mut self) {
        let record = serde_json::from_str(&self.network_behaviour.stored_record).expect("a record");
        let state = PersistentState { home_agent: vec![record], ..PersistentState::default() };
        self.restart_station(HOME_AGENT_INDEX, config_with_test(true), state, 8);
    }

    fn order_handover_to(&mut self, uplink: &str) {
        let command = Command::Handover { uplink: Some(uplink.into()), policy: None };
        self.pass_recorded_input(ROUTER_INDEX, Input::Command(command));
    }

    fn route_from_agent(&mut self, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("an IPv6 packet");
        let place = header.destination.to_string();
        if packet.get(HEADER_LEN..) == Some(&data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS)) {
            *self.network_behaviour.packets_by_address.entry(header.destination).or_default() += 1;
        }
        if header.destination == address(HOME_ADDRESS) {
            self.send_now(HOME_AGENT_INDEX, Input::Packet(packet));
        } else if self.network_behaviour.reached_addresses.contains(place.as_str())
            && !self.network_behaviour.unreachable_addresses.contains(place.as_str())
        {
            self.send_after(ONE_WAY_DELAY, ROUTER_INDEX, Input::Packet(packet));
        }
    }

    fn route_from_router(&mut self, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("an IPv6 packet");
        if header.destination == address(AGENT_ADDRESS) {
            if self.network_behaviour.reached_addresses.iter().any(|place| header.source == address(place)) {
                self.send_after(ONE_WAY_DELAY, HOME_AGENT_INDEX, Input::Packet(packet));
            }
        } else if header.destination == address(HOME_ADDRESS) {
            // The router's kernel answers the Echo Request.
            let reply = icmpv6::answer_echo_request(&packet).expect("nothing but echoes");
            self.send_now(ROUTER_INDEX, Input::Packet(reply));
        } else if packet == data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS) {
            self.network_behaviour.arrived_packets += 1;
        }
    }

    /// Runs the world for `milliseconds`. `sends` says whether the correspondent sends packets meanwhile.
    fn advance_time(&mut self, milliseconds: u64, sends: bool) {
        for _ in 0..milliseconds {
            if sends {
                self.network_behaviour.sent_packets += 1;
                self.pass_input(
                    HOME_AGENT_INDEX,
                    Input::Packet(data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS)),
                );
            }
            self.run_for(Duration::from_millis(1));
        }
    }

    fn registration_state(&self) -> String {
        self.stations[HOME_AGENT_INDEX].nemo().binding_status(self.now)[0].state.clone()
    }

    /// Returns how many packets of the correspondent are lost from half a second before the event `happens`
    /// to two seconds after it.
    fn count_lost_during(&mut self, happens: impl FnOnce(&mut InternetWorld)) -> usize {
        self.advance_time(500, true);
        happens(self);
        self.advance_time(2000, true);
        self.advance_time(100, false);
        self.network_behaviour.sent_packets - self.network_behaviour.arrived_packets
    }
}

#[test]
fn home_agent_forwards_nothing_before_first_care_of_test_answer() {
    let mut world = InternetWorld::new(true);
    world.advance_time(ONE_WAY_DELAY.as_millis() as u64 + 1, false);
    assert_eq!(world.registration_state(), "untested");
    world.pass_input(
        HOME_AGENT_INDEX,
        Input::Packet(data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS)),
    );
    let outputs: Vec<Output> =
        std::iter::from_fn(|| world.stations[HOME_AGENT_INDEX].poll_output()).collect();
    assert!(outputs.is_empty(), "an error message would end the correspondent's connection: {outputs:?}");
    assert_eq!(world.counter(HOME_AGENT_INDEX, "tunnel.dropped.untested"), 1);
    world.advance_time(2 * ONE_WAY_DELAY.as_millis() as u64, false);
    assert_eq!(world.registration_state(), "registered");
    assert_eq!(world.count_lost_during(|_| ()), 0);
    assert_eq!(world.counter(HOME_AGENT_INDEX, "mobility.care_of_tests_passed"), 1);
}

#[test]
fn make_before_break_handover_uses_old_path_until_care_of_test_succeeds() {
    let mut world = InternetWorld::new(true);
    world.advance_time(1000, false);
    assert_eq!(world.count_lost_during(|world| world.order_handover_to("w1")), 0);
    let (old, new) = (
        world.network_behaviour.packets_by_address[&address(FIRST_CARE_OF_ADDRESS)],
        world.network_behaviour.packets_by_address[&address(SECOND_CARE_OF_ADDRESS)],
    );
    // The home agent sends to the old address until it has received the Binding Update and the Echo Reply.
    // This takes one and a half round trips, which are 60 ms.
    assert!((500 + 55..=500 + 70).contains(&old), "{old} packets to the old address, {new} to the new one");
    assert_eq!(old + new, world.network_behaviour.sent_packets);
}

#[test]
fn break_before_make_handover_to_untested_address_costs_a_round_trip() {
    let round_trip = 2 * ONE_WAY_DELAY.as_millis() as usize;
    let break_it = |world: &mut InternetWorld| {
        world.network_behaviour.reached_addresses.remove(FIRST_CARE_OF_ADDRESS);
        world.pass_recorded_input(
            ROUTER_INDEX,
            Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, false)),
        );
    };
    let mut lost = Vec::new();
    for is_tested in [false, true] {
        let mut world = InternetWorld::new(is_tested);
        world.advance_time(1000, false);
        lost.push(world.count_lost_during(break_it));
    }
    let mut world = InternetWorld::new(true);
    world.advance_time(1000, false);
    for uplink in ["w1", "w0"] {
        world.order_handover_to(uplink);
        world.advance_time(1000, false);
    }
    lost.push(world.count_lost_during(break_it));
    println!(
        "lost of 1000 packets a second, round trip {round_trip} ms: off, on, on and tested lately: {lost:?}"
    );
    let [off, on, lately] = lost[..] else { panic!("{lost:?}") };
    assert!((off + round_trip - 2..=off + round_trip + 2).contains(&on), "{lost:?}");
    assert!(lately <= off + 1, "{lost:?}");
}

/// Another home agent of the fleet becomes leader while the new care-of address has not answered the test
/// yet.
#[test]
fn standby_that_takes_over_sends_nothing_to_untested_care_of_address() {
    for goes_back in [false, true] {
        let mut world = InternetWorld::new(true);
        world.advance_time(1000, false);
        world.network_behaviour.unreachable_addresses.insert(SECOND_CARE_OF_ADDRESS);
        world.order_handover_to("w1");
        world.advance_time(500, true);
        assert_eq!(world.registration_state(), "untested");
        world.replace_home_agent_by_standby();
        assert_eq!(world.registration_state(), "untested");
        world.advance_time(1000, true);
        world.advance_time(ONE_WAY_DELAY.as_millis() as u64, false);
        assert_eq!(
            (
                world.network_behaviour.arrived_packets,
                world.network_behaviour.packets_by_address.get(&address(SECOND_CARE_OF_ADDRESS))
            ),
            (world.network_behaviour.sent_packets, None)
        );
        if goes_back {
            world.order_handover_to("w0");
        } else {
            world.network_behaviour.unreachable_addresses.clear();
        }
        world.advance_time(2000, true);
        assert_eq!(world.registration_state(), "registered");
        world.advance_time(100, false);
        assert_eq!(
            world.network_behaviour.sent_packets - world.network_behaviour.arrived_packets,
            0,
            "{goes_back}"
        );
        assert_eq!(
            world.network_behaviour.packets_by_address.contains_key(&address(SECOND_CARE_OF_ADDRESS)),
            !goes_back
        );
    }
}

/// Returns a Binding Update with these care-of addresses and one flow binding. The flow binding asks the home
/// agent to copy packets to all of them.
fn binding_update(sequence: u16, care_of_addresses: &[String]) -> Vec<u8> {
    let bids: Vec<u16> = (1..).take(care_of_addresses.len()).collect();
    let selector = TrafficSelector::Ipv6(Ipv6Selector::default());
    let octets = emit_sub_options(Some(&selector), &bids);
    let flow = MobilityOption::FlowIdentification { fid: 1, priority: 1, status: 0, sub_options: &octets };
    let mut builder =
        MobilityHeaderBuilder::binding_update(sequence, BindingUpdateFlags::from_bits(0xc400), 15);
    for (bid, care_of_address) in bids.iter().zip(care_of_addresses) {
        builder = builder.option(&MobilityOption::BindingIdentifier {
            bid: *bid,
            status: 0,
            home: false,
            priority: 0,
            care_of_address: Some(address(care_of_address).into()),
        });
    }
    ControlPacket {
        source: address(&care_of_addresses[0]),
        destination: address(AGENT_ADDRESS),
        hop_limit: 64,
        home_address: Some(address(HOME_ADDRESS)),
        routing_home_address: None,
        mobility_header: &mut builder.option(&flow).finish(),
    }
    .emit()
}

/// Returns the Echo Reply to an Echo Request that arrived through the tunnel, as every IPv6 node sends it.
fn echo_reply_to(probe: &[u8]) -> Option<Vec<u8>> {
    let outer = Header::parse(probe).ok()?;
    let reply = icmpv6::answer_echo_request(probe.get(HEADER_LEN..)?)?;
    let back = Header {
        source: outer.destination,
        destination: outer.source,
        payload_length: reply.len() as u16,
        ..outer
    };
    Some([&back.emit()[..], &reply].concat())
}

/// A network in which only addresses of one prefix answer probes, and the counters of the packets that the
/// home agent sends.
#[derive(Default)]
struct HalfSilentNetwork {
    /// Number of Echo Replies from the addresses that answer.
    echo_replies: usize,
    /// Number of packets of the correspondent to addresses that answer.
    data_packets_to_answering: usize,
    /// Number of probes to addresses that never answer.
    unanswered_probes: usize,
    /// Number of packets other than probes to addresses that never answer.
    other_packets: usize,
    /// Octets of the packets in `other_packets`.
    other_octets: usize,
}

impl NetworkBehaviour for HalfSilentNetwork {
    fn handle_output(world: &mut common::world::TestNetwork<HalfSilentNetwork>, _: usize, output: Output) {
        let Output::Nemo(NemoOutput::Packet(packet)) = output else { return };
        let header = Header::parse(&packet).expect("an IPv6 packet");
        let inner = packet.get(HEADER_LEN..).unwrap_or_default();
        let is_data = inner == data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS)
            || inner.windows(60).any(|it| it == [0x55; 60]);
        let is_tunnelled = header.next_header == protocol::IPV6;
        let net = &mut world.network_behaviour;
        if u128::from(header.destination) >> 80 == u128::from(address("2001:db8:f1::")) >> 80 {
            net.data_packets_to_answering += usize::from(is_data);
            if let Some(reply) = echo_reply_to(&packet).filter(|_| is_tunnelled) {
                net.echo_replies += 1;
                world.send_now(HOME_AGENT_INDEX, Input::Packet(reply));
            }
        } else if header.destination != address(CORRESPONDENT_ADDRESS) {
            assert!(!is_data, "{} has never answered", header.destination);
            if is_tunnelled {
                assert!(packet.len() == 96, "{} octets", packet.len());
                net.unanswered_probes += 1;
            } else {
                net.other_packets += 1;
                net.other_octets += packet.len();
            }
        }
    }
}

/// The test changes registrations at random. The home agent sends no packet of a correspondent to an address
/// that never answers. It sends to this address only an acknowledgement for each Binding Update, and probes
/// of 96 octets: 48 at once, then two a second.
#[test]
fn silent_care_of_address_gets_bounded_probes_over_random_registrations() {
    let mut rng = Rng::new(33);
    let mut config = config_with_test(true);
    if let Some(agent) = &mut config.home_agent {
        agent.nodes[0].authentication = carnet_mobility::Authentication::None;
    }
    let mut world = common::world::TestNetwork::with_stations(
        [station_at_time_zero(config, 7)],
        HalfSilentNetwork::default(),
    );
    let (mut updates, mut update_octets) = (0, 0);
    for round in 0..3_000_u16 {
        let count = rng.number_below(16) + 1;
        let care_of_addresses: Vec<String> = (0..count)
            .map(|_| {
                let place =
                    if rng.is_true_with_probability(0.3) { "2001:db8:f1::" } else { "2001:db8:bad::" };
                format!("{place}{:x}", rng.number_below(999) + 1)
            })
            .collect();
        let mut packet = binding_update(round, &care_of_addresses);
        if rng.is_true_with_probability(0.3) {
            let at = rng.number_below(packet.len() as u64 - 64) as usize + 64;
            packet[at] ^= 1 << rng.number_below(8);
            packet[68..70].copy_from_slice(&[0, 0]);
            let checksum = upper_layer_checksum(
                address(HOME_ADDRESS),
                address(AGENT_ADDRESS),
                protocol::MOBILITY,
                &packet[64..],
            );
            packet[68..70].copy_from_slice(&checksum.to_be_bytes());
        }
        updates += 1;
        update_octets += packet.len();
        world.pass_recorded_input(HOME_AGENT_INDEX, Input::Packet(packet));
        world.pass_recorded_input(
            HOME_AGENT_INDEX,
            Input::Packet(data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS)),
        );
        if rng.is_true_with_probability(0.3) {
            world.run_for(Duration::from_millis(rng.number_below(2000)));
        }
    }
    let seconds = world.now.saturating_since(Time::ZERO).as_secs() as usize;
    let HalfSilentNetwork {
        echo_replies: answered,
        data_packets_to_answering: data_to_true,
        unanswered_probes: probes,
        other_packets: others,
        other_octets,
    } = world.network_behaviour;
    println!(
        "{updates} updates of {update_octets} octets in {seconds} s; to addresses that never answer {probes} \
         probes, {others} answers of {other_octets} octets; {answered} echoes, {data_to_true} packets to \
         addresses that answer"
    );
    assert!(probes <= 48 + 2 * (seconds + 1) && probes > 100, "{probes} probes in {seconds} s");
    assert!(others <= updates && other_octets <= update_octets, "{others}, {other_octets}");
    assert!(data_to_true > 100, "{data_to_true}");
}

/// The network of a home agent whose mobile router an attacker controls. The test notes the addresses that
/// have answered an Echo Request, and the addresses that have received data.
struct AttackedNetwork {
    config: StationConfig,
    /// Addresses that the attacker really has: they answer Echo Requests. All other addresses never answer.
    reachable_endpoints: Vec<Endpoint>,
    answered_endpoints: BTreeSet<Endpoint>,
    /// Destination of the last data packet.
    last_data_destination: Option<Endpoint>,
    /// Number of data packets.
    data_count: usize,
}

type AttackedWorld = common::world::TestNetwork<AttackedNetwork>;

impl NetworkBehaviour for AttackedNetwork {
    fn handle_output(world: &mut AttackedWorld, _: usize, output: Output) {
        let (place, packet) = match output {
            Output::Nemo(NemoOutput::Packet(packet)) => {
                (Endpoint::Ipv6(Header::parse(&packet).expect("a packet").destination), packet)
            }
            Output::Nemo(NemoOutput::Encapsulated { remote, packet, .. }) => (remote, packet),
            _ => return,
        };
        if place == parse_endpoint(CORRESPONDENT_ADDRESS) {
            return;
        }
        if packet.windows(60).any(|octets| octets == [0x55; 60]) {
            assert!(
                world.network_behaviour.answered_endpoints.contains(&place),
                "{place} has got data before it has answered"
            );
            world.network_behaviour.last_data_destination = Some(place);
            world.network_behaviour.data_count += 1;
        }
        if !world.network_behaviour.reachable_endpoints.contains(&place) {
            return;
        }
        let reply = match place {
            Endpoint::Ipv6(_) => echo_reply_to(&packet).map(Input::Packet),
            _ => icmpv6::answer_echo_request(&packet).map(|packet| Input::Datagram {
                local: parse_endpoint(HOME_AGENT_UDP_ENDPOINT),
                remote: place,
                traffic_class: 0,
                packet,
            }),
        };
        if let Some(reply) = reply {
            world.network_behaviour.answered_endpoints.insert(place);
            world.send_now(HOME_AGENT_INDEX, reply);
        }
    }

    /// Ignores that a station has refused an input: the test checks only the packets that are sent.
    fn handle_refusal(&mut self, _: &str) {}
}

const HOME_AGENT_UDP_ENDPOINT: &str = "udp:198.51.100.2:4191";

fn parse_endpoint(text: &str) -> Endpoint {
    text.parse().expect("an endpoint")
}

fn config_without_key(is_tested: bool) -> StationConfig {
    let mut config = config_with_test(is_tested);
    if let Some(agent) = &mut config.home_agent {
        agent.ipv4_address = "198.51.100.2".parse().ok();
        agent.nodes[0].authentication = carnet_mobility::Authentication::None;
    }
    config
}

impl AttackedWorld {
    fn new(true_places: &[&str], home_link: Option<&str>) -> AttackedWorld {
        let mut config = config_without_key(true);
        if let Some(agent) = &mut config.home_agent {
            agent.home_link = home_link.map(str::to_owned);
        }
        let siege = AttackedNetwork {
            config: config.clone(),
            reachable_endpoints: true_places.iter().map(|place| parse_endpoint(place)).collect(),
            answered_endpoints: BTreeSet::new(),
            last_data_destination: None,
            data_count: 0,
        };
        let mut besieged = AttackedWorld::with_stations([station_at_time_zero(config, 7)], siege);
        besieged.register_attacker();
        besieged
    }

    fn register_attacker(&mut self) {
        let home_link =
            self.network_behaviour.config.home_agent.as_ref().and_then(|agent| agent.home_link.clone());
        if let Some(home_link) = home_link {
            self.pass_recorded_input(
                HOME_AGENT_INDEX,
                Input::Interface(interface(&home_link, AGENT_ADDRESS, true)),
            );
        }
    }

    fn restart_agent(&mut self, seed: u64) {
        let kept = self.stations[HOME_AGENT_INDEX].nemo().persistent_state(self.now, self.wall_time());
        let text = serde_json::to_string(&kept).expect("a state");
        let kept = serde_json::from_str(&text).expect("a state");
        self.restart_station(HOME_AGENT_INDEX, self.network_behaviour.config.clone(), kept, seed);
        self.register_attacker();
    }

    /// Sends a packet to the mobile network, and returns the outer destination with which it leaves the home
    /// agent.
    fn send_and_get_destination(&mut self, destination: &str) -> Option<Endpoint> {
        self.network_behaviour.last_data_destination = None;
        self.pass_recorded_input(
            HOME_AGENT_INDEX,
            Input::Packet(data_packet_between(CORRESPONDENT_ADDRESS, destination)),
        );
        self.network_behaviour.last_data_destination
    }

    /// Sends a Binding Update from an address, inside UDP if the address is an IPv4 address.
    fn send_binding_update(&mut self, from: Endpoint, builder: MobilityHeaderBuilder) {
        let ipv6 = from.ipv6();
        let packet = ControlPacket {
            source: ipv6.unwrap_or(address(HOME_ADDRESS)),
            destination: address(AGENT_ADDRESS),
            hop_limit: 64,
            home_address: ipv6.map(|_| address(HOME_ADDRESS)),
            routing_home_address: None,
            mobility_header: &mut builder.finish(),
        }
        .emit();
        let input = match ipv6 {
            Some(_) => Input::Packet(packet),
            None => Input::Datagram {
                local: parse_endpoint(HOME_AGENT_UDP_ENDPOINT),
                remote: from,
                traffic_class: 0,
                packet,
            },
        };
        self.pass_recorded_input(HOME_AGENT_INDEX, input);
    }
}

fn update_flags(overwrite: bool) -> BindingUpdateFlags {
    BindingUpdateFlags {
        acknowledge: true,
        home_registration: true,
        mobile_router: true,
        overwrite,
        ..BindingUpdateFlags::default()
    }
}

#[test]
fn home_agent_uses_old_path_for_five_seconds_while_new_address_is_silent() {
    for places in
        [[FIRST_CARE_OF_ADDRESS, "2001:db8:bad::1"], ["udp:192.0.2.7:40000", "udp:203.0.113.9:40000"]]
    {
        let mut besieged = AttackedWorld::new(&places[..1], None);
        for (sequence, place) in (1..).zip(places) {
            besieged.send_binding_update(
                parse_endpoint(place),
                MobilityHeaderBuilder::binding_update(sequence, update_flags(false), 150),
            );
        }
        for _ in 0..49 {
            assert_eq!(besieged.send_and_get_destination(HOST_ADDRESS), Some(parse_endpoint(places[0])));
            besieged.run_for(Duration::from_millis(100));
        }
        besieged.run_for(Duration::from_millis(100));
        for _ in 0..590 {
            assert_eq!(
                (
                    besieged.send_and_get_destination(HOST_ADDRESS),
                    besieged.send_and_get_destination(HOME_ADDRESS)
                ),
                (None, None)
            );
            besieged.run_for(Duration::from_secs(1));
        }
        // The binding to the new address stays in use, and renewals of the binding do not bring back the old
        // address.
        for sequence in 3..20 {
            besieged.send_binding_update(
                parse_endpoint(places[1]),
                MobilityHeaderBuilder::binding_update(sequence, update_flags(false), 150),
            );
            assert_eq!(besieged.send_and_get_destination(HOST_ADDRESS), None);
            besieged.run_for(Duration::from_secs(1));
        }
    }
}

/// An attacker registers addresses that answer and addresses that never answer. Binding Updates come over
/// IPv6 and UDP, with or without Binding Identifiers, with or without care-of addresses. Some have an
/// Alternate Care-of Address or flow bindings, and some de-register. In between the home agent restarts or
/// gets another config.
#[test]
fn silent_care_of_address_gets_no_data_over_random_registrations() {
    const TRUE_ENDPOINTS: [&str; 5] =
        ["2001:db8:f1::1", "2001:db8:f1::2", "2001:db8:f2::1", "udp:192.0.2.7:40000", "udp:192.0.2.8:4191"];
    const FALSE_ENDPOINTS: [&str; 5] = [
        "2001:db8:bad::1",
        "2001:db8:bad::2",
        "2001:db8:f1::3",
        "udp:192.0.2.7:40001",
        "udp:203.0.113.9:4191",
    ];
    let (mut data_count, mut restarts) = (0, 0);
    for seed in 1..=8 {
        let mut rng = Rng::new(seed);
        // In every second run the home agent has a real home link, with duplicate address detection.
        let mut besieged = AttackedWorld::new(&TRUE_ENDPOINTS, [None, Some("h0")][seed as usize % 2]);
        let place = |rng: &mut Rng| {
            let places = if rng.is_true_with_probability(0.5) { TRUE_ENDPOINTS } else { FALSE_ENDPOINTS };
            parse_endpoint(places[rng.number_below(places.len() as u64) as usize])
        };
        for sequence in 1..=1_500 {
            let from = place(&mut rng);
            let lifetime =
                if rng.is_true_with_probability(0.1) { 0 } else { rng.number_below(20) as u16 + 1 };
            let mut builder = MobilityHeaderBuilder::binding_update(
                sequence,
                update_flags(rng.is_true_with_probability(0.3)),
                lifetime,
            );
            if let Some(own) = from.ipv4() {
                let told = if rng.is_true_with_probability(0.5) {
                    own
                } else {
                    "10.0.0.7".parse().expect("an address")
                };
                builder = builder.option(&MobilityOption::Ipv4CareOfAddress(told));
            } else if rng.is_true_with_probability(0.2)
                && let Some(other) = place(&mut rng).ipv6()
            {
                builder = builder.option(&MobilityOption::AlternateCareOfAddress(other));
            }
            let bids: Vec<u16> = (0..rng.number_below(4)).map(|_| rng.number_below(3) as u16 + 1).collect();
            for bid in &bids {
                let named = place(&mut rng);
                let care_of_address = match rng.is_true_with_probability(0.3) {
                    true => None,
                    false => named.ipv6().map(Into::into).or(named.ipv4().map(Into::into)),
                };
                builder = builder.option(&MobilityOption::BindingIdentifier {
                    bid: *bid,
                    status: 0,
                    home: false,
                    priority: rng.number_below(3) as u8,
                    care_of_address,
                });
            }
            let octets = emit_sub_options(Some(&TrafficSelector::Ipv6(Ipv6Selector::default())), &bids);
            if !bids.is_empty() && rng.is_true_with_probability(0.5) {
                let flow = MobilityOption::FlowIdentification {
                    fid: 1,
                    priority: 1,
                    status: 0,
                    sub_options: &octets,
                };
                builder = builder.option(&flow);
            }
            besieged.send_binding_update(from, builder);
            for destination in [HOST_ADDRESS, HOME_ADDRESS] {
                besieged.send_and_get_destination(destination);
            }
            if rng.is_true_with_probability(0.5) {
                besieged.run_for(Duration::from_millis(rng.number_below(7_000)));
                besieged.send_and_get_destination(HOST_ADDRESS);
            }
            if rng.is_true_with_probability(0.03) {
                besieged.restart_agent(rng.random_u64());
                restarts += 1;
                besieged.send_and_get_destination(HOST_ADDRESS);
            }
            if rng.is_true_with_probability(0.03) {
                if let Some(agent) = &mut besieged.network_behaviour.config.home_agent {
                    agent.max_lifetime = Duration::from_secs(300 + rng.number_below(300));
                }
                besieged.reconfigure_station(HOME_AGENT_INDEX, besieged.network_behaviour.config.clone());
                besieged.send_and_get_destination(HOST_ADDRESS);
            }
        }
        data_count += besieged.network_behaviour.data_count;
    }
    println!("{data_count} packets to places that have answered, {restarts} restarts");
    assert!(data_count > 5_000 && restarts > 100, "{data_count}, {restarts}");
}

/// A node sees the tokens in the tests of its own addresses. The home agent must not use such a token again
/// for an address of a third party.
#[test]
fn care_of_test_tokens_do_not_repeat_after_home_agent_is_reconfigured() {
    let mut tokens = BTreeSet::new();
    let mut besieged = AttackedWorld::new(&[], None);
    for round in 0..3 {
        for number in 1..=4_u16 {
            let place = address(&format!("2001:db8:bad:{round}::{number:x}"));
            let builder = MobilityHeaderBuilder::binding_update(number, update_flags(false), 15);
            let packet = ControlPacket {
                source: place,
                destination: address(AGENT_ADDRESS),
                hop_limit: 64,
                home_address: Some(address(HOME_ADDRESS)),
                routing_home_address: None,
                mobility_header: &mut builder.finish(),
            }
            .emit();
            besieged.pass_input(HOME_AGENT_INDEX, Input::Packet(packet));
            for output in std::iter::from_fn(|| besieged.stations[HOME_AGENT_INDEX].poll_output()) {
                if let Output::Nemo(NemoOutput::Packet(packet)) = output
                    && packet.len() == 96
                {
                    assert!(tokens.insert(packet[88..].to_vec()), "round {round}, update {number}");
                }
            }
        }
        for config in [StationConfig::default(), config_without_key(true)] {
            besieged.reconfigure_station(HOME_AGENT_INDEX, config);
        }
        besieged.run_for(Duration::from_secs(100));
    }
    assert_eq!(tokens.len(), 12);
}
