//! Stations as a whole, in virtual time: a home agent, a mobile router with its home agent, two GeoNetworking
//! stations.
//!
//! A [`story`] has their inputs. These are faults, besides panics: a timer that is due again at once without
//! end, an answer with too many packets, and an invalid packet. A binding that the config does not allow,
//! that no key has signed, or that never ends is a fault too. So is a saved state that a restarted station
//! cannot read.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::sync::OnceLock;
use std::time::Duration;

use carnet_api::config::Config;
use carnet_base::{Address, Endpoint, Interface, LinkMessage, Rng, Time, WallTime};
use carnet_mobility::home_agent::{MAX_BINDINGS, MAX_FLOWS};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_settings::recording::RecordedInput;
use carnet_station::io::{Frame, GeonetOutput, Input, NemoOutput, Output, Position};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::geonet::{self, GnAddress, StationType};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{
    MobilityHeader, MobilityOption, ParsedMobilityMessage, message_type, set_checksum,
};

use crate::story::{self, EventKind, StoryEvent, packet_fate};

/// Date when a story starts.
pub const WALL_TIME_AT_START: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
/// GN address of the first station.
pub const GN_ADDRESS: GnAddress = gn_address(FIRST_MAC);
const FIRST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SECOND_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const START_TIME: Time = Time::from_secs(1000);

/// The key that replaces each key in the configs. No message in a corpus was signed with this key. The next
/// constant is its SPI.
const AUTHENTICATION_KEY: [u8; 16] = [0x5e; 16];
const SPI: u32 = 300;
/// Maximum number of packets and frames that one input may cause. A successful search of the Location Service
/// sends all packets that waited for the station.
const MAX_OUTPUTS: usize = 300;
/// Maximum number of timeouts in one story. After them, time passes but no timer is handled.
const MAX_TIMEOUTS: usize = 200;
/// Maximum number of timeouts at one moment.
const MAX_TIMEOUTS_AT_ONE_MOMENT: usize = 64;
/// Maximum number of packets under way between the stations.
const MAX_PACKETS_UNDER_WAY: usize = 64;
/// Time longer than any lifetime that a home agent grants, including the time that the home agent keeps an
/// entry after its end.
const LONGER_THAN_ANY_LIFETIME: Duration = Duration::from_secs(600_000);

const fn gn_address(mac: [u8; 6]) -> GnAddress {
    GnAddress::new(false, StationType::PassengerCar, mac)
}

/// The configs of the recorded cases of `conformance/recorded`, and of stations with every part.
struct TestConfigs {
    home_agents: Vec<StationConfig>,
    mobile_routers: Vec<StationConfig>,
    vehicles: Vec<StationConfig>,
}

fn test_configs() -> &'static TestConfigs {
    static CONFIGS: OnceLock<TestConfigs> = OnceLock::new();
    CONFIGS.get_or_init(|| TestConfigs {
        home_agents: vec![
            parse_station_config(include_str!("../../../conformance/recorded/home-agent.toml"), GN_ADDRESS),
            parse_station_config(include_str!("../../../conformance/recorded/home-link.toml"), GN_ADDRESS),
            parse_station_config(include_str!("../../../conformance/recorded/ipv4.toml"), GN_ADDRESS),
        ],
        mobile_routers: vec![
            parse_station_config(
                include_str!("../../../conformance/recorded/mobile-router.toml"),
                GN_ADDRESS,
            ),
            parse_station_config(include_str!("../../../conformance/recorded/implicit.toml"), GN_ADDRESS),
            parse_station_config(include_str!("configs/router.toml"), GN_ADDRESS),
        ],
        vehicles: vec![
            parse_station_config(include_str!("configs/vehicle.toml"), GN_ADDRESS),
            parse_station_config(include_str!("configs/forwarder.toml"), gn_address(SECOND_MAC)),
        ],
    })
}

fn parse_station_config(text: &str, address: GnAddress) -> StationConfig {
    let config = Config::parse(text, "fuzz.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let mut config = carnet_settings::station_config(&config, Some(address));
    let agent = config.home_agent.iter_mut().flat_map(|agent| &mut agent.nodes);
    let router = config.mobile_router.iter_mut().map(|router| &mut router.router.authentication);
    for authentication in agent.map(|node| &mut node.authentication).chain(router) {
        if let Authentication::SharedKey(association) = authentication {
            association.key = AUTHENTICATION_KEY.into();
        }
    }
    config
}

/// Returns the config that the first octet of a story selects.
fn choose_config(choice: u8, among: &[StationConfig]) -> &StationConfig {
    &among[usize::from(choice) % among.len()]
}

/// Runs a story of a home agent alone. The story selects its config: plain, with a home link, or with IPv4.
pub fn fuzz_home_agent(octets: &[u8]) {
    let (choice, events) = story::parse_story(octets);
    let config = choose_config(choice, &test_configs().home_agents);
    let mut world = StationNetwork::new_with_configs(&[config]);
    events.for_each(|event| world.apply_event(event));
    world.finish_and_check();
}

/// Runs a story of a mobile router and its home agent. The home agent's answers reach the mobile router if
/// the story delivers them.
pub fn fuzz_mobile_router(octets: &[u8]) {
    let (choice, events) = story::parse_story(octets);
    let router = choose_config(choice, &test_configs().mobile_routers);
    let agent =
        &test_configs().home_agents[if router.mobile_router.as_ref().is_some_and(has_ipv4) { 2 } else { 0 }];
    let mut world = StationNetwork::new_with_configs(&[router, agent]);
    world.handle_input(0, Input::Interface(test_interface("w0", "2001:db8:f1::10", 1)));
    world.handle_input(0, Input::Interface(test_interface("w1", "2001:db8:f2::10", 2)));
    world.handle_input(0, Input::Interface(test_interface("i0", "2001:db8:a::1", 3)));
    events.for_each(|event| world.apply_event(event));
    world.finish_and_check();
}

fn has_ipv4(router: &carnet_station::MobileRouterSettings) -> bool {
    router.router.home_agent_ipv4.is_some()
}

/// Runs a story of a vehicle with every part of GeoNetworking, and a second station that forwards.
pub fn fuzz_geonet_station(octets: &[u8]) {
    let (_, events) = story::parse_story(octets);
    let [vehicle, forwarder] = &test_configs().vehicles[..] else { return };
    let mut world = StationNetwork::new_with_configs(&[vehicle, forwarder]);
    world.handle_input(0, Input::Interface(test_interface("w0", "2001:db8:f1::10", 1)));
    for (station, latitude) in [(0, 488_375_000), (1, 488_376_000)] {
        let position = Position {
            timestamp: 1_000_000,
            latitude,
            longitude: 21_008_000,
            accurate: true,
            speed: 500,
            heading: 900,
        };
        world.handle_input(station, Input::Position(position));
    }
    events.for_each(|event| world.apply_event(event));
    world.finish_and_check();
}

/// Passes the octets as lines of a recording to a station with every part.
pub fn fuzz_replay(octets: &[u8]) {
    let [vehicle, _] = &test_configs().vehicles[..] else { return };
    let config =
        StationConfig { home_agent: test_configs().home_agents[0].home_agent.clone(), ..vehicle.clone() };
    let mut world = StationNetwork::new_with_configs(&[&config]);
    for line in octets.split(|octet| *octet == b'\n').take(64) {
        let Ok(line) = serde_json::from_slice::<RecordedInput>(line) else { continue };
        world.now = world.now.max(line.time);
        world.handle_input(0, line.input);
    }
}

/// Starts a home agent, a mobile router and a vehicle with this stored state. Each must read back the state
/// that it saves.
pub fn start_with_stored_state(state: PersistentState, wall: WallTime) {
    for config in [
        &test_configs().home_agents[0],
        &test_configs().home_agents[1],
        &test_configs().mobile_routers[0],
        &test_configs().vehicles[0],
    ] {
        let mut station = Station::new(config.clone(), state.clone(), Rng::new(1), START_TIME, wall);
        let mut world = StationNetwork::new_without_stations();
        world.started_at = wall;
        while station.poll_output().is_some() {}
        world.stations.push(station);
        world.configs.push(config.clone());
        // Permit bindings although no message was signed in this run: they come from the stored state.
        world.signs_binding_updates = true;
        world.advance_to(START_TIME + Duration::from_secs(100));
        world.handle_input(0, Input::Timeout);
    }
}

fn test_interface(name: &str, address: &str, number: u8) -> Interface {
    let entry = |text: &str| Address {
        address: text.parse().unwrap_or(Ipv6Addr::UNSPECIFIED),
        prefix_length: 64,
        tentative: false,
        duplicate: false,
        deprecated: false,
        temporary: false,
        permanent: true,
    };
    Interface {
        name: name.into(),
        running: true,
        mtu: 1500,
        link_address: Some([2, 0, 0, 0, 1, number]),
        addresses: vec![entry("fe80::1"), entry(address)],
        routers: vec!["fe80::ffff".parse().unwrap_or(Ipv6Addr::UNSPECIFIED).into()],
        ipv4_addresses: vec![Ipv4Addr::new(198, 51, 100, number).into()],
        ipv4_routers: vec![Ipv4Addr::new(198, 51, 100, 254).into()],
    }
}

/// Packets under way from one station to the other.
enum PacketInTransit {
    Packet(Vec<u8>),
    Datagram { local: Endpoint, remote: Endpoint, packet: Vec<u8> },
    Frame(Frame),
}

impl PacketInTransit {
    fn octets_mut(&mut self) -> &mut Vec<u8> {
        match self {
            PacketInTransit::Packet(octets) | PacketInTransit::Datagram { packet: octets, .. } => octets,
            PacketInTransit::Frame(frame) => &mut frame.packet,
        }
    }

    fn copy_packet(&self) -> PacketInTransit {
        match self {
            PacketInTransit::Packet(octets) => PacketInTransit::Packet(octets.clone()),
            PacketInTransit::Datagram { local, remote, packet } => {
                PacketInTransit::Datagram { local: *local, remote: *remote, packet: packet.clone() }
            }
            PacketInTransit::Frame(frame) => PacketInTransit::Frame(frame.clone()),
        }
    }
}

struct StationNetwork {
    now: Time,
    started_at: WallTime,
    stations: Vec<Station>,
    configs: Vec<StationConfig>,
    /// Packets under way, each with the index of the station that receives it.
    packets_under_way: VecDeque<(usize, PacketInTransit)>,
    timeout_count: usize,
    /// Whether a message signed with [`AUTHENTICATION_KEY`] has been sent.
    signs_binding_updates: bool,
}

impl StationNetwork {
    fn new_without_stations() -> StationNetwork {
        StationNetwork {
            now: START_TIME,
            started_at: WALL_TIME_AT_START,
            stations: Vec::new(),
            configs: Vec::new(),
            packets_under_way: VecDeque::new(),
            timeout_count: 0,
            signs_binding_updates: false,
        }
    }

    fn new_with_configs(configs: &[&StationConfig]) -> StationNetwork {
        let mut world = StationNetwork::new_without_stations();
        // Permit bindings from the start if a mobile router exists, because it signs its messages.
        world.signs_binding_updates = configs.iter().any(|config| config.mobile_router.is_some());
        for (number, config) in configs.iter().enumerate() {
            let rng = Rng::new(number as u64);
            world.stations.push(Station::new(
                (*config).clone(),
                PersistentState::default(),
                rng,
                START_TIME,
                WALL_TIME_AT_START,
            ));
            world.configs.push((*config).clone());
            world.drain_outputs(number);
        }
        world
    }

    fn wall_time(&self) -> WallTime {
        let since = u64::try_from(self.now.saturating_since(START_TIME).as_nanos()).unwrap_or(u64::MAX);
        WallTime::from_unix_nanos(self.started_at.as_unix_nanos().saturating_add(since))
    }

    fn apply_event(&mut self, event: StoryEvent<'_>) {
        self.advance_to(self.now + event.time_since_previous);
        let station = event.station_index.min(self.stations.len() - 1);
        match event.kind {
            EventKind::Wait => self.handle_input(station, Input::Timeout),
            EventKind::Packet => self.handle_input(station, Input::Packet(event.content.to_vec())),
            EventKind::Signed => {
                let mut packet = event.content.to_vec();
                self.signs_binding_updates = true;
                sign_binding_update(&mut packet);
                self.handle_input(station, Input::Packet(packet));
            }
            EventKind::Icmpv6 => {
                if let Some(message) = parse_link_message(event.content) {
                    self.handle_input(station, Input::Icmpv6(message));
                }
            }
            EventKind::Datagram => {
                let Some(([class, a, b, c, d, high, low], packet)) = event.content.split_first_chunk() else {
                    return;
                };
                let remote = Ipv4Addr::new(*a, *b, *c, *d);
                let local = Ipv4Addr::new(192, 0, 2, 1);
                let (local, remote) = match u16::from_be_bytes([*high, *low]) {
                    0 => (Endpoint::Ipv4(local), Endpoint::Ipv4(remote)),
                    port => (
                        Endpoint::Udp(SocketAddrV4::new(local, 4191)),
                        Endpoint::Udp(SocketAddrV4::new(remote, port)),
                    ),
                };
                let mut packet = packet.to_vec();
                self.signs_binding_updates = true;
                sign_binding_update(&mut packet);
                self.handle_input(station, Input::Datagram { local, remote, traffic_class: *class, packet });
            }
            EventKind::Frame => {
                let Some((source, rest)) = event.content.split_first_chunk() else { return };
                let Some((destination, packet)) = rest.split_first_chunk() else { return };
                let (source, destination, packet) = (*source, *destination, packet.to_vec());
                self.handle_input(
                    station,
                    Input::Frame(Frame { source, destination, profile: None, packet }),
                );
            }
            EventKind::Input => {
                if let Ok(input) = serde_json::from_slice(event.content) {
                    self.handle_input(station, input);
                }
            }
            EventKind::Deliver => self.deliver_packet(event.content),
        }
    }

    fn deliver_packet(&mut self, content: &[u8]) {
        let Some([what, high, low, value]) = content.first_chunk() else { return };
        let next = match what & packet_fate::OVERTAKES_EARLIER {
            0 => self.packets_under_way.pop_front(),
            _ => self.packets_under_way.pop_back(),
        };
        let Some((to, mut packet)) = next else { return };
        if what & packet_fate::LOST != 0 {
            return;
        }
        if what & packet_fate::DUPLICATED != 0 {
            self.packets_under_way.push_back((to, packet.copy_packet()));
        }
        if what & packet_fate::CHANGED != 0 {
            let octets = packet.octets_mut();
            let at = usize::from(u16::from_be_bytes([*high, *low])) % octets.len().max(1);
            if let Some(octet) = octets.get_mut(at) {
                *octet ^= value;
            }
        }
        if what & packet_fate::CHECKSUM_CORRECTED != 0 && !matches!(packet, PacketInTransit::Frame(_)) {
            self.signs_binding_updates = true;
            sign_binding_update(packet.octets_mut());
        }
        self.handle_input(
            to,
            match packet {
                PacketInTransit::Packet(packet) => Input::Packet(packet),
                PacketInTransit::Datagram { local, remote, packet } => {
                    Input::Datagram { local, remote, traffic_class: 0, packet }
                }
                PacketInTransit::Frame(frame) => Input::Frame(frame),
            },
        );
    }

    /// Lets time pass and handles each timer that is due.
    fn advance_to(&mut self, until: Time) {
        let mut at_once = 0;
        while self.timeout_count < MAX_TIMEOUTS {
            let due = |station: &Station| station.poll_timeout().unwrap_or(Time::MAX);
            let next = (0..self.stations.len()).min_by_key(|number| due(&self.stations[*number]));
            let Some(next) = next.filter(|number| due(&self.stations[*number]) <= until) else { break };
            let due = due(&self.stations[next]);
            at_once = if due > self.now { 0 } else { at_once + 1 };
            assert!(
                at_once < MAX_TIMEOUTS_AT_ONE_MOMENT * self.stations.len(),
                "a timer is due again immediately, endlessly"
            );
            self.now = self.now.max(due);
            self.timeout_count += 1;
            self.handle_input(next, Input::Timeout);
        }
        self.now = self.now.max(until);
    }

    fn handle_input(&mut self, number: usize, input: Input) {
        let (now, wall) = (self.now, self.wall_time());
        // A refused input is an allowed result.
        let _ = self.stations[number].handle_input(now, wall, input);
        self.drain_outputs(number);
        self.check_status(number);
    }

    /// Takes a station's outputs. Packets for the other station enter the simulated network.
    fn drain_outputs(&mut self, number: usize) {
        let mut outputs = 0;
        while let Some(output) = self.stations[number].poll_output() {
            let sent = match output {
                Output::Nemo(NemoOutput::Packet(packet)) => {
                    let (header, payload) =
                        Header::parse_packet(&packet).expect("a sent packet has a valid IPv6 header");
                    assert_eq!(HEADER_LEN + payload.len(), packet.len(), "{header:?}");
                    PacketInTransit::Packet(packet)
                }
                Output::Nemo(NemoOutput::Encapsulated { local, remote, packet, .. }) => {
                    assert!(Header::parse_packet(&packet).is_ok(), "{packet:02x?}");
                    PacketInTransit::Datagram { local: remote, remote: local, packet }
                }
                Output::Geonet(GeonetOutput::Frame(frame)) => {
                    let read = geonet::Frame::parse(&frame.packet);
                    assert!(read.is_ok(), "{read:?}: {:02x?}", frame.packet);
                    PacketInTransit::Frame(frame)
                }
                Output::Nemo(NemoOutput::Icmpv6(_))
                | Output::Geonet(GeonetOutput::LanPacket { .. })
                | Output::Geonet(GeonetOutput::VirtualFrame(_)) => {
                    outputs += 1;
                    continue;
                }
                _ => continue,
            };
            outputs += 1;
            if self.configs.len() > 1 && self.packets_under_way.len() < MAX_PACKETS_UNDER_WAY {
                self.packets_under_way.push_back((1 - number.min(1), sent));
            }
        }
        assert!(outputs <= MAX_OUTPUTS, "{outputs} packets for one input");
    }

    /// Checks that the station keeps no state that its config forbids.
    fn check_status(&self, number: usize) {
        let station = &self.stations[number];
        if let (Some(agent), Some(config)) = (station.home_agent(), &self.configs[number].home_agent) {
            let mut count = 0;
            for binding in agent.bindings().iter() {
                count += 1;
                let node = config.nodes.iter().find(|node| node.home_address == binding.home_address);
                let node = node.expect("each binding belongs to a configured node");
                assert!(
                    node.authentication.signing_association().is_none() || self.signs_binding_updates,
                    "{binding:?}"
                );
                for prefix in binding.prefixes.iter() {
                    assert!(node.prefixes.iter().any(|own| own.contains(prefix)), "{binding:?}");
                }
            }
            assert!(count <= MAX_BINDINGS * config.nodes.len(), "{count} bindings");
            for node in &config.nodes {
                assert!(agent.flows(node.home_address).len() <= MAX_FLOWS);
            }
        }
        if let Some(router) = station.geonet() {
            assert!(router.location_table().len() <= 40_000);
        }
        if let Some(facilities) = station.facilities() {
            let (stations, events) = facilities.services().ldm.object_counts();
            assert!(stations <= 4096 && events <= 256, "{stations} stations, {events} events");
        }
    }

    /// Checks that every binding ends, and that the station reads the state that it saved.
    fn finish_and_check(mut self) {
        for number in 0..self.stations.len() {
            let state = self.stations[number].nemo().persistent_state(self.now, self.wall_time());
            let text = serde_json::to_string(&state).expect("a state is JSON");
            let read: PersistentState = serde_json::from_str(&text).expect("what was just written");
            assert_eq!(read, state, "{text}");
            let (config, wall) = (self.configs[number].clone(), self.wall_time());
            let mut again = Station::new(config, read, Rng::new(9), START_TIME, wall);
            while again.poll_output().is_some() {}
        }
        // Check only a home agent without a mobile router: a mobile router may still send Binding Updates, so
        // its binding does not end.
        if let ([agent], [_]) = (&self.configs[..], &self.stations[..])
            && agent.mobile_router.is_none()
        {
            self.advance_to(self.now + LONGER_THAN_ANY_LIFETIME);
            self.handle_input(0, Input::Timeout);
            let bindings = self.stations[0].home_agent().map_or(0, |agent| agent.bindings().iter().count());
            assert_eq!(bindings, 0, "bindings that do not end");
        }
    }
}

/// Returns the ICMPv6 message in the content of an event, with a correct checksum; `None` if the content is
/// too short.
fn parse_link_message(content: &[u8]) -> Option<LinkMessage> {
    let ([number, hop_limit], rest) = content.split_first_chunk()?;
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let (destination, message) = rest.split_first_chunk::<16>()?;
    let (source, destination) = (Ipv6Addr::from(*source), Ipv6Addr::from(*destination));
    let mut message = message.to_vec();
    icmpv6::set_checksum(&mut message, source, destination);
    Some(LinkMessage {
        interface: ["w0", "w1", "i0", "h0"][usize::from(number % 4)].into(),
        source,
        destination,
        hop_limit: *hop_limit,
        peer: Some([2, 0, 0, 0, 2, number / 4]),
        message,
    })
}

/// Gives a packet with a Mobility Header a correct checksum. If the packet has room for it, also computes the
/// authenticator with the key.
fn sign_binding_update(packet: &mut [u8]) {
    let Ok(header) = Header::parse(packet) else { return };
    let Ok(extensions) = ExtensionHeaders::parse(packet) else { return };
    if extensions.protocol != protocol::MOBILITY || extensions.fragment.is_some() {
        return;
    }
    let Some(octets) = packet.get_mut(extensions.upper_layer_offset..) else { return };
    let length = octets.get(1).map_or(0, |units| (usize::from(*units) + 1) * 8);
    let Some(octets) = octets.get_mut(..length) else { return };
    let source = extensions.home_address.unwrap_or(header.source);
    let destination = extensions.routing_home_address.unwrap_or(header.destination);
    let (care_of, home) = match octets.get(2) {
        Some(&message_type::BINDING_ACKNOWLEDGEMENT) => (header.destination, destination),
        _ => (alternate_care_of_address(octets).unwrap_or(header.source), source),
    };
    let association =
        SecurityAssociation { spi: SPI, key: AUTHENTICATION_KEY.into(), replay: ReplayProtection::Sequence };
    association.sign(octets, care_of, home);
    set_checksum(octets, source, destination);
}

/// Returns the Alternate Care-of Address of a Binding Update; `None` for another message, or without this
/// option.
fn alternate_care_of_address(octets: &[u8]) -> Option<Ipv6Addr> {
    let ParsedMobilityMessage::BindingUpdate(update) = MobilityHeader::parse(octets).ok()?.message().ok()?
    else {
        return None;
    };
    update.options.iter().flatten().find_map(|option| match option {
        MobilityOption::AlternateCareOfAddress(address) => Some(address),
        _ => None,
    })
}
