//! The test of new care-of addresses at the home agent's station. No packet of a correspondent goes to an
//! address that has not answered. A handover loses nothing by the test where the old path lives. Where it
//! does not, the test costs a round trip.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_mobility::flow::{Ipv6Selector, TrafficSelector};
use carnet_station::io::{Command, Input, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::checksum::upper_layer;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::flow::sub_options;
use carnet_wire::mobility::{BindingUpdateFlags, Builder, ControlPacket, MobilityOption};
use common::{
    AGENT, CORRESPONDENT, FIRST, HOME, HOST, SECOND, WALL, address, agent_config, data, interface,
    router_config,
};

/// From one station to the other.
const DELAY: Duration = Duration::from_millis(20);

fn tested(is_tested: bool) -> StationConfig {
    let mut config = agent_config(&["2001:db8:a::/64"]);
    if let Some(agent) = &mut config.home_agent {
        agent.nodes[0].care_of_test = is_tested;
    }
    config
}

fn counted(station: &Station, name: &str) -> u64 {
    let counters = station.counters();
    counters.iter().find(|(known, _)| known == name).map_or_else(|| panic!("no {name}"), |(_, count)| *count)
}

/// A mobile router's station and a home agent's with [`DELAY`] between them, and a correspondent that sends a
/// packet each millisecond.
struct World {
    now: Time,
    agent: Station,
    router: Station,
    /// On its way, in the order of arrival; true for the router's station. The number keeps the order.
    wire: BTreeMap<(Time, u64), (bool, Input)>,
    number: u64,
    /// The care-of addresses that are reached.
    reached: BTreeSet<&'static str>,
    sent: usize,
    arrived: usize,
    /// Packets of the correspondent to each care-of address.
    to: BTreeMap<Ipv6Addr, usize>,
}

impl World {
    fn new(is_tested: bool) -> World {
        let station =
            |config| Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL);
        let mut world = World {
            now: Time::ZERO,
            agent: station(tested(is_tested)),
            router: station(router_config(&["2001:db8:a::/64"])),
            wire: BTreeMap::new(),
            number: 0,
            reached: BTreeSet::from([FIRST, SECOND]),
            sent: 0,
            arrived: 0,
            to: BTreeMap::new(),
        };
        world.drain();
        world.tell_router(Input::Interface(interface("w0", FIRST, true)));
        world.tell_router(Input::Interface(interface("w1", SECOND, true)));
        world
    }

    fn tell_router(&mut self, input: Input) {
        self.router.handle_input(self.now, WALL, input).expect("accepted");
        self.drain();
    }

    fn tell_agent(&mut self, input: Input) {
        self.agent.handle_input(self.now, WALL, input).expect("accepted");
        self.drain();
    }

    fn send(&mut self, to_router: bool, after: Duration, packet: Vec<u8>) {
        self.number += 1;
        self.wire.insert((self.now + after, self.number), (to_router, Input::Packet(packet)));
    }

    fn drain(&mut self) {
        let of_agent: Vec<Output> = std::iter::from_fn(|| self.agent.poll_output()).collect();
        let of_router: Vec<Output> = std::iter::from_fn(|| self.router.poll_output()).collect();
        let packets = |outputs: Vec<Output>| {
            outputs.into_iter().filter_map(|output| match output {
                Output::Packet(packet) => Some(packet),
                _ => None,
            })
        };
        for packet in packets(of_agent) {
            let header = Header::parse(&packet).expect("an IPv6 packet");
            let place = header.destination.to_string();
            if packet.get(HEADER_LEN..) == Some(&data(CORRESPONDENT, HOST)) {
                *self.to.entry(header.destination).or_default() += 1;
            }
            if header.destination == address(HOME) {
                self.send(false, Duration::ZERO, packet);
            } else if self.reached.contains(place.as_str()) {
                self.send(true, DELAY, packet);
            }
        }
        for packet in packets(of_router) {
            let header = Header::parse(&packet).expect("an IPv6 packet");
            let reaches = |care_of_address: &&str| header.source == address(care_of_address);
            if header.destination == address(AGENT) {
                if self.reached.iter().any(reaches) {
                    self.send(false, DELAY, packet);
                }
            } else if header.destination == address(HOME) {
                // Its kernel answers.
                let reply = icmpv6::echo_reply(&packet).expect("nothing but echoes");
                self.send(true, Duration::ZERO, reply);
            } else if packet == data(CORRESPONDENT, HOST) {
                self.arrived += 1;
            }
        }
    }

    /// Lets time pass in which the correspondent sends, or not.
    fn pass(&mut self, milliseconds: u64, sends: bool) {
        for _ in 0..milliseconds {
            if sends {
                self.sent += 1;
                self.tell_agent(Input::Packet(data(CORRESPONDENT, HOST)));
            }
            let end = self.now + Duration::from_millis(1);
            loop {
                let timers = [self.agent.poll_timeout(), self.router.poll_timeout()].into_iter().flatten();
                let next = timers.chain(self.wire.keys().next().map(|(at, _)| *at)).min();
                let Some(next) = next.filter(|next| *next <= end) else { break };
                self.now = next.max(self.now);
                match self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                    Some(entry) => match entry.remove() {
                        (true, input) => self.tell_router(input),
                        (false, input) => self.tell_agent(input),
                    },
                    None => {
                        self.tell_agent(Input::Timeout);
                        self.tell_router(Input::Timeout);
                    }
                }
            }
            self.now = end;
        }
    }

    fn state(&self) -> &'static str {
        self.agent.binding_status(self.now)[0].state
    }

    /// Packets lost of those that are sent before this happens, and for two seconds after it.
    fn lost_by(&mut self, happens: impl FnOnce(&mut World)) -> usize {
        self.pass(500, true);
        happens(self);
        self.pass(2000, true);
        self.pass(100, false);
        self.sent - self.arrived
    }
}

#[test]
fn first_registration_carries_nothing_before_the_echo_and_tells_nobody() {
    let mut world = World::new(true);
    world.pass(DELAY.as_millis() as u64 + 1, false);
    assert_eq!(world.state(), "untested");
    world.agent.handle_input(world.now, WALL, Input::Packet(data(CORRESPONDENT, HOST))).expect("accepted");
    let outputs: Vec<Output> = std::iter::from_fn(|| world.agent.poll_output()).collect();
    assert!(outputs.is_empty(), "an error message would end the correspondent's connection: {outputs:?}");
    assert_eq!(counted(&world.agent, "tunnel.dropped.untested"), 1);
    world.pass(2 * DELAY.as_millis() as u64, false);
    assert_eq!(world.state(), "registered");
    assert_eq!(world.lost_by(|_| ()), 0);
    assert_eq!(counted(&world.agent, "mobility.care_of_tests_passed"), 1);
}

#[test]
fn make_before_break_loses_nothing_and_the_old_path_serves_until_the_echo() {
    let mut world = World::new(true);
    world.pass(1000, false);
    let command = Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None });
    assert_eq!(world.lost_by(|world| world.tell_router(command)), 0);
    let (old, new) = (world.to[&address(FIRST)], world.to[&address(SECOND)]);
    // A round trip of the registration's way there, and of the echo.
    assert!((500 + 55..=500 + 70).contains(&old), "{old} packets to the old address, {new} to the new one");
    assert_eq!(old + new, world.sent);
}

#[test]
fn break_before_make_costs_one_more_round_trip_unless_the_address_was_tested_lately() {
    let round_trip = 2 * DELAY.as_millis() as usize;
    let break_it = |world: &mut World| {
        world.reached.remove(FIRST);
        world.tell_router(Input::Interface(interface("w0", FIRST, false)));
    };
    let mut lost = Vec::new();
    for is_tested in [false, true] {
        let mut world = World::new(is_tested);
        world.pass(1000, false);
        lost.push(world.lost_by(break_it));
    }
    let mut world = World::new(true);
    world.pass(1000, false);
    for uplink in ["w1", "w0"] {
        world.tell_router(Input::Command(Command::Handover { uplink: Some(uplink.into()), policy: None }));
        world.pass(1000, false);
    }
    lost.push(world.lost_by(break_it));
    println!(
        "lost of 1000 packets a second, round trip {round_trip} ms: off, on, on and tested lately: {lost:?}"
    );
    let [off, on, lately] = lost[..] else { panic!("{lost:?}") };
    assert!((off + round_trip - 2..=off + round_trip + 2).contains(&on), "{lost:?}");
    assert!(lately <= off + 1, "{lost:?}");
}

/// A Binding Update for these care-of addresses and one flow of everything to all of them.
fn update(sequence: u16, care_of_addresses: &[String]) -> Vec<u8> {
    let bids: Vec<u16> = (1..).take(care_of_addresses.len()).collect();
    let selector = TrafficSelector::Ipv6(Ipv6Selector::default());
    let octets = sub_options(Some(&selector), &bids);
    let flow = MobilityOption::FlowIdentification { fid: 1, priority: 1, status: 0, sub_options: &octets };
    let mut builder = Builder::binding_update(sequence, BindingUpdateFlags::from_bits(0xc400), 15);
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
        destination: address(AGENT),
        hop_limit: 64,
        home_address: Some(address(HOME)),
        routing_home_address: None,
        mobility_header: &mut builder.option(&flow).finish(),
    }
    .emit()
}

/// The answer to an Echo Request through the tunnel, as any IPv6 node gives it.
fn echo_back(probe: &[u8]) -> Option<Vec<u8>> {
    let outer = Header::parse(probe).ok()?;
    let reply = icmpv6::echo_reply(probe.get(HEADER_LEN..)?)?;
    let back = Header {
        source: outer.destination,
        destination: outer.source,
        payload_length: reply.len() as u16,
        ..outer
    };
    Some([&back.emit()[..], &reply].concat())
}

/// Registrations are changed at random. An address that never answers gets no packet of a correspondent. The
/// home agent sends it an acknowledgement for each Binding Update, and probes of 96 octets: 48 at once and
/// two a second.
#[test]
fn never_tested_addresses_get_bounded_small_probes_over_mutated_registrations() {
    let mut rng = Rng::new(33);
    let mut config = tested(true);
    if let Some(agent) = &mut config.home_agent {
        agent.nodes[0].authentication = carnet_mobility::Authentication::None;
    }
    let mut station = Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL);
    while station.poll_output().is_some() {}
    let mut now = Time::ZERO;
    let answers = |place: Ipv6Addr| u128::from(place) >> 80 == u128::from(address("2001:db8:f1::")) >> 80;
    let (mut updates, mut update_octets, mut answered) = (0, 0, 0);
    // To those that never answer: probes, other packets of the home agent's own, data.
    let (mut probes, mut others, mut other_octets) = (0, 0, 0);
    let mut data_to_true = 0;
    let mut collect = |station: &mut Station, now: Time| {
        let mut waiting: Vec<Vec<u8>> = Vec::new();
        loop {
            let outputs: Vec<Output> = std::iter::from_fn(|| station.poll_output()).collect();
            for output in outputs {
                let Output::Packet(packet) = output else { continue };
                let header = Header::parse(&packet).expect("an IPv6 packet");
                let inner = packet.get(HEADER_LEN..).unwrap_or_default();
                let is_data =
                    inner == data(CORRESPONDENT, HOST) || inner.windows(60).any(|it| it == [0x55; 60]);
                if answers(header.destination) {
                    data_to_true += usize::from(is_data);
                    let reply = echo_back(&packet).filter(|_| header.next_header == protocol::IPV6);
                    answered += usize::from(reply.is_some());
                    waiting.extend(reply);
                } else if header.destination != address(CORRESPONDENT) {
                    assert!(!is_data, "{} has never answered", header.destination);
                    match header.next_header == protocol::IPV6 {
                        true => {
                            assert!(packet.len() == 96, "{} octets", packet.len());
                            probes += 1;
                        }
                        false => {
                            others += 1;
                            other_octets += packet.len();
                        }
                    }
                }
            }
            let Some(packet) = waiting.pop() else { return };
            station.handle_input(now, WALL, Input::Packet(packet)).expect("accepted");
        }
    };
    for round in 0..3_000_u16 {
        let count = rng.below(16) + 1;
        let care_of_addresses: Vec<String> = (0..count)
            .map(|_| {
                let place = if rng.chance(0.3) { "2001:db8:f1::" } else { "2001:db8:bad::" };
                format!("{place}{:x}", rng.below(999) + 1)
            })
            .collect();
        let mut packet = update(round, &care_of_addresses);
        if rng.chance(0.3) {
            let at = rng.below(packet.len() as u64 - 64) as usize + 64;
            packet[at] ^= 1 << rng.below(8);
            packet[68..70].copy_from_slice(&[0, 0]);
            let checksum = upper_layer(address(HOME), address(AGENT), protocol::MOBILITY, &packet[64..]);
            packet[68..70].copy_from_slice(&checksum.to_be_bytes());
        }
        updates += 1;
        update_octets += packet.len();
        station.handle_input(now, WALL, Input::Packet(packet)).expect("accepted");
        collect(&mut station, now);
        station.handle_input(now, WALL, Input::Packet(data(CORRESPONDENT, HOST))).expect("accepted");
        collect(&mut station, now);
        if rng.chance(0.3) {
            now += Duration::from_millis(rng.below(2000));
            station.handle_input(now, WALL, Input::Timeout).expect("accepted");
            collect(&mut station, now);
        }
    }
    let seconds = now.saturating_since(Time::ZERO).as_secs() as usize;
    println!(
        "{updates} updates of {update_octets} octets in {seconds} s; to addresses that never answer {probes} probes, {others} \
         answers of {other_octets} octets; {answered} echoes, {data_to_true} packets to addresses that answer"
    );
    assert!(probes <= 48 + 2 * (seconds + 1) && probes > 100, "{probes} probes in {seconds} s");
    assert!(others <= updates && other_octets <= update_octets, "{others}, {other_octets}");
    assert!(data_to_true > 100, "{data_to_true}");
}
