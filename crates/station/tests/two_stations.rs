//! A mobile router's and a home agent's station, connected in virtual time. One function plays the platforms,
//! which route packets between the two stations.

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_station::forwarding::desired::{Change, Entry, RouteAction, TABLE_MAIN};
use carnet_station::io::{Command, Event, Input, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, protocol};
use common::{
    AGENT, CORRESPONDENT, FIRST, HOME, HOST, SECOND, WALL, address, agent_config, data, interface,
    router_config,
};

/// Two stations and the network between them.
struct World {
    now: Time,
    agent: Station,
    router: Station,
    changes: Vec<Change>,
    events: Vec<Event>,
    /// Packets that came out of the tunnel, for the host or for the correspondent.
    arrived: Vec<Vec<u8>>,
    /// Inputs of the router's station with their times, and below its outputs, for replay.
    inputs: Vec<(Time, Input)>,
    outputs: Vec<Output>,
    /// Packets on the wire; `true` for a packet to the router's station.
    wire: VecDeque<(bool, Input)>,
}

impl World {
    fn new() -> World {
        let station =
            |config| Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL);
        let mut world = World {
            now: Time::ZERO,
            agent: station(agent_config(&["2001:db8:a::/64"])),
            router: station(router_config(&["2001:db8:a::/64"])),
            changes: Vec::new(),
            events: Vec::new(),
            arrived: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            wire: VecDeque::new(),
        };
        world.settle();
        world
    }

    /// Returns a world in which both uplinks are up and the router has registered.
    fn registered() -> World {
        let mut world = World::new();
        world.tell_router(Input::Interface(interface("w0", FIRST, true)));
        world.tell_router(Input::Interface(interface("w1", SECOND, true)));
        assert!(world.events.iter().any(|e| matches!(e, Event::Registered { .. })), "{:?}", world.events);
        world.changes.clear();
        world.events.clear();
        world
    }

    fn tell_router(&mut self, input: Input) {
        self.feed_router(input);
        self.settle();
    }

    fn tell_agent(&mut self, input: Input) {
        self.agent.handle_input(self.now, WALL, input).expect("accepted");
        self.settle();
    }

    /// Carries packets between the two stations until no packet is left.
    fn settle(&mut self) {
        for _ in 0..1000 {
            while let Some(output) = self.agent.poll_output() {
                self.carry(output, false);
            }
            while let Some(output) = self.router.poll_output() {
                self.outputs.push(output.clone());
                self.carry(output, true);
            }
            match self.wire.pop_front() {
                Some((true, input)) => self.feed_router(input),
                Some((false, input)) => {
                    self.agent.handle_input(self.now, WALL, input).expect("accepted");
                }
                None => return,
            }
        }
        panic!("the stations never come to rest");
    }

    fn carry(&mut self, output: Output, from_router: bool) {
        match output {
            Output::Packet(packet) => self.route(packet, from_router),
            Output::Forwarding(change) => self.changes.push(change),
            Output::Event(event) => self.events.push(event),
            Output::Encapsulated { .. }
            | Output::Protect { .. }
            | Output::Icmpv6(_)
            | Output::Persist(_)
            | Output::ProbePortal { .. }
            | Output::Frame(_)
            | Output::Delivered(_)
            | Output::Message(_)
            | Output::EventOver(_)
            | Output::Triggered(_)
            | Output::VirtualLink(_)
            | Output::VirtualLinkGone(_)
            | Output::VirtualFrame(_)
            | Output::Accelerate(_)
            | Output::Ipv6 { .. }
            | Output::LanPacket { .. }
            | Output::Subscription { .. } => {}
        }
    }

    /// Plays the kernels and the Internet for a packet that a station has written.
    fn route(&mut self, packet: Vec<u8>, from_router: bool) {
        let header = Header::parse(&packet).expect("an IPv6 packet");
        let input = Input::Packet(packet.clone());
        if header.destination == address(AGENT) {
            self.wire.push_back((false, input));
        } else if [FIRST, SECOND].contains(&header.destination.to_string().as_str()) {
            self.wire.push_back((true, input));
        } else if header.destination == address(HOME) {
            // The router's kernel has the home address and answers echoes. The home agent's kernel routes the
            // packet into the tunnel.
            match (from_router, icmpv6::echo_reply(&packet)) {
                (true, Some(reply)) => self.wire.push_back((true, Input::Packet(reply))),
                (true, None) => self.arrived.push(packet),
                (false, _) => self.wire.push_back((false, input)),
            }
        } else {
            self.arrived.push(packet);
        }
    }

    fn feed_router(&mut self, input: Input) {
        self.inputs.push((self.now, input.clone()));
        self.router.handle_input(self.now, WALL, input).expect("accepted");
    }

    /// Sends a packet from the LAN; returns how many times it arrives.
    fn host_sends(&mut self) -> usize {
        self.arrived.clear();
        self.tell_router(Input::Packet(data(HOST, CORRESPONDENT)));
        self.arrived.iter().filter(|packet| **packet == data(HOST, CORRESPONDENT)).count()
    }

    /// Sends a packet to the LAN; returns how many times it arrives.
    fn correspondent_sends(&mut self) -> usize {
        self.arrived.clear();
        self.tell_agent(Input::Packet(data(CORRESPONDENT, HOST)));
        self.arrived.iter().filter(|packet| **packet == data(CORRESPONDENT, HOST)).count()
    }

    /// Lets time pass, and runs the timers.
    fn sleep(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let next = [self.agent.poll_timeout(), self.router.poll_timeout()].into_iter().flatten().min();
            match next.filter(|next| *next <= end) {
                Some(next) => {
                    self.now = next.max(self.now);
                    self.tell_agent(Input::Timeout);
                    self.tell_router(Input::Timeout);
                }
                None => break,
            }
        }
        self.now = end;
    }
}

#[test]
fn registered_packets_pass_in_both_directions() {
    let mut world = World::new();
    assert_eq!((world.host_sends(), world.correspondent_sends()), (0, 0), "nothing passes before");
    assert_eq!(world.arrived.len(), 1, "the correspondent is told");
    let mut world = World::registered();
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
    assert_eq!(world.router.status().mobile_router, Some("registered"));
    assert_eq!(world.agent.status().home_agent_bindings, Some(1));
}

#[test]
fn twenty_refreshes_change_nothing_on_the_data_path() {
    let mut world = World::registered();
    world.sleep(Duration::from_secs(60 * 20));
    let refreshes = world.events.iter().filter(|e| matches!(e, Event::Registered { refresh: true, .. }));
    assert!(refreshes.count() >= 20, "{:?}", world.events);
    assert_eq!(world.changes, []);
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
}

#[test]
fn a_preferred_uplink_is_changed_without_losing_a_packet() {
    let mut world = World::registered();
    world.tell_router(Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }));
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
    assert!(world.router.uplink_status(world.now).iter().any(|u| u.interface == "w1" && u.active));
    // A handover changes tunnels, but no kernel route.
    let is_tunnel = |c: &Change| matches!(c, Change::Set(entry) if matches!(**entry, Entry::Tunnel(_)));
    assert!(world.changes.iter().all(is_tunnel), "{:?}", world.changes);
    // Both ends accept packets on the old path for some time after the handover.
    let old = data(HOST, CORRESPONDENT);
    let mut late = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: u16::try_from(old.len()).expect("fits"),
        next_header: protocol::IPV6,
        hop_limit: 60,
        source: address(FIRST),
        destination: address(AGENT),
    }
    .emit()
    .to_vec();
    late.extend_from_slice(&old);
    world.arrived.clear();
    world.tell_agent(Input::Packet(late.clone()));
    assert_eq!(world.arrived, [old]);
    world.sleep(Duration::from_secs(6));
    world.arrived.clear();
    world.tell_agent(Input::Packet(late));
    assert_eq!(world.arrived, Vec::<Vec<u8>>::new(), "but not for ever");
}

/// Both ends know the time of the last move; refreshes of the binding do not change it.
#[test]
fn both_ends_know_how_long_a_router_has_been_where_it_is() {
    let stays = |world: &World| {
        [&world.agent, &world.router]
            .map(|end| end.binding_status(world.now)[0].stay.map(|stay| stay.as_secs()))
    };
    let world = World::new();
    assert_eq!(world.router.binding_status(world.now)[0].stay, None, "nowhere yet");
    let mut world = World::registered();
    world.sleep(Duration::from_secs(200));
    assert_eq!(stays(&world), [Some(200); 2]);
    world.tell_router(Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }));
    world.sleep(Duration::from_secs(7));
    assert_eq!(stays(&world), [Some(7); 2]);
}

#[test]
fn a_hard_cut_moves_traffic_at_once() {
    let mut world = World::registered();
    world.tell_router(Input::Interface(interface("w0", FIRST, false)));
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
    let returned = interface("w0", FIRST, true);
    world.tell_router(Input::Interface(returned));
    assert!(
        world.router.uplink_status(world.now).iter().any(|u| u.interface == "w1" && u.active),
        "it has to settle"
    );
    world.sleep(Duration::from_secs(2));
    assert!(world.router.uplink_status(world.now).iter().any(|u| u.interface == "w0" && u.active));
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
}

/// Restarts the home agent without its state.
fn forget_bindings(world: &mut World) {
    let config = agent_config(&["2001:db8:a::/64"]);
    world.agent = Station::new(config, PersistentState::default(), Rng::new(8), world.now, WALL);
    world.settle();
}

#[test]
fn an_agent_that_lost_its_bindings_is_told_by_the_next_packet() {
    let mut world = World::registered();
    world.sleep(Duration::from_secs(5));
    forget_bindings(&mut world);
    assert_eq!(world.host_sends(), 0);
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1), "one packet was enough");
}

/// The home agent's machine sends an ICMPv6 error, as a machine without carnet does: it accepts no tunnelled
/// packets (RFC 4443 3.1). The router registers again at once. An error that quotes a packet that the router
/// has not sent changes nothing.
#[test]
fn an_icmpv6_error_about_a_tunnelled_packet_makes_the_router_register_again() {
    let mut world = World::registered();
    world.sleep(Duration::from_secs(5));
    forget_bindings(&mut world);
    // In this test the home agent's own messages are lost.
    world.feed_router(Input::Packet(data(HOST, CORRESPONDENT)));
    let mut tunnelled = None;
    while let Some(output) = world.router.poll_output() {
        if let Output::Packet(packet) = output {
            tunnelled = Some(packet);
        }
    }
    let mut tunnelled = tunnelled.expect("a tunnelled packet");
    let error = |invoking: &[u8]| {
        let closed = icmpv6::ErrorMessage::DestinationUnreachable { code: 4 };
        let packet = icmpv6::error_packet(address(AGENT), address(FIRST), closed, invoking);
        let header = Header::parse(&packet).expect("an IPv6 packet");
        Input::Icmpv6(carnet_base::LinkMessage {
            interface: "w0".into(),
            source: header.source,
            destination: header.destination,
            hop_limit: header.hop_limit,
            peer: None,
            message: packet[40..].to_vec(),
        })
    };
    tunnelled[3] ^= 1;
    world.tell_router(error(&tunnelled));
    assert_eq!(world.agent.binding_status(world.now).len(), 0, "a guess");
    tunnelled[3] ^= 1;
    world.tell_router(error(&tunnelled));
    assert_eq!(world.agent.binding_status(world.now).len(), 1, "registered");
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
}

#[test]
fn with_stored_state_nothing_has_to_be_registered_again() {
    let mut world = World::registered();
    let state = world.agent.persistent_state(world.now, WALL);
    let text = serde_json::to_string(&state).expect("serialises");
    let state: PersistentState = serde_json::from_str(&text).expect("deserialises");
    world.agent = Station::new(agent_config(&["2001:db8:a::/64"]), state, Rng::new(8), world.now, WALL);
    world.settle();
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
}

#[test]
fn what_one_router_may_not_register_goes_nowhere() {
    let mut world = World::registered();
    let thief = Station::new(
        router_config(&["2001:db8:a::/64", "2001:db8:b::/64"]),
        PersistentState::default(),
        Rng::new(9),
        world.now,
        WALL,
    );
    world.router = thief;
    world.settle();
    world.tell_router(Input::Interface(interface("w0", FIRST, true)));
    assert!(
        world.events.iter().any(|e| matches!(e, Event::Rejected { status: 142 | 135, .. })),
        "{:?}",
        world.events
    );
    assert_eq!(world.router.status().mobile_router, Some("refused"));
    assert_eq!(world.agent.binding_status(world.now)[0].prefixes.len(), 1, "the old binding stands");
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let mut world = World::registered();
    world.tell_router(Input::Interface(interface("w0", FIRST, false)));
    world.host_sends();
    world.sleep(Duration::from_secs(200));
    world.tell_router(Input::Command(Command::Shutdown));
    let mut replayed = Vec::new();
    let config = router_config(&["2001:db8:a::/64"]);
    let mut station = Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL);
    let mut drain = |station: &mut Station| replayed.extend(std::iter::from_fn(|| station.poll_output()));
    drain(&mut station);
    for (time, input) in &world.inputs {
        let line = serde_json::to_string(input).expect("serialises");
        let input: Input = serde_json::from_str(&line).expect("deserialises");
        assert_eq!(serde_json::to_string(&input).expect("serialises"), line);
        station.handle_input(*time, WALL, input).expect("accepted");
        drain(&mut station);
    }
    assert_eq!(replayed, world.outputs);
}

#[test]
fn a_new_configuration_changes_only_the_difference() {
    let mut world = World::registered();
    world.agent.reconfigure(world.now, WALL, agent_config(&["2001:db8:a::/64", "2001:db8:b::/64"]));
    world.settle();
    let prefix = "2001:db8:b::/64".parse().expect("a prefix");
    assert!(
        matches!(&world.changes[..], [Change::Set(entry)] if matches!(&**entry, Entry::Route(route)
            if route.destination == prefix && *route.action == RouteAction::Unreachable && route.table == TABLE_MAIN)),
        "{:?}",
        world.changes
    );
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));

    world.changes.clear();
    world.router.reconfigure(world.now, WALL, router_config(&["2001:db8:a::/64", "2001:db8:b::/64"]));
    world.settle();
    assert!(!world.changes.iter().any(|c| matches!(c, Change::Remove(_))), "{:?}", world.changes);
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
    assert_eq!(world.agent.binding_status(world.now)[0].prefixes.len(), 2);
    assert!(!world.events.iter().any(|e| matches!(e, Event::Handover { .. })), "{:?}", world.events);

    world.agent.reconfigure(world.now, WALL, StationConfig::default());
    world.settle();
    assert_eq!(world.agent.desired_entries().count(), 0);
}

#[test]
fn shutdown_tells_the_agent() {
    let mut world = World::registered();
    world.tell_router(Input::Command(Command::Shutdown));
    assert!(world.router.is_quiescent());
    assert_eq!(world.agent.status().home_agent_bindings, Some(0));
    assert_eq!(world.host_sends(), 0);
    world.sleep(Duration::from_secs(6));
    assert_eq!(world.correspondent_sends(), 0, "what was on its way may pass, later packets may not");
}
