//! A mobile router's and a home agent's station, connected in virtual time. One function plays the platforms,
//! which route packets between the two stations.

mod common;

use std::time::Duration;

use carnet_base::Time;
use carnet_nemo::forwarding::desired::{Change, Entry, RouteAction, TABLE_MAIN};
use carnet_station::io::{Command, Event, Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, protocol};
use common::world::{Network, recorded, station};
use common::{
    AGENT, CORRESPONDENT, FIRST, HOME, HOST, SECOND, WALL, address, agent_config, data, interface,
    router_config,
};

const HOME_AGENT: usize = 0;
const ROUTER: usize = 1;

/// The Internet between the two stations, their kernels, and records.
#[derive(Default)]
struct Internet {
    changes: Vec<Change>,
    events: Vec<Event>,
    /// Packets that have come out of the tunnel, for the host or for the correspondent.
    arrived: Vec<Vec<u8>>,
    /// Inputs of the router's station with their times, and below its outputs, for replay.
    inputs: Vec<(Time, Input)>,
    outputs: Vec<Output>,
}

impl Network for Internet {
    fn note(&mut self, now: Time, to: usize, input: &Input) {
        if to == ROUTER {
            self.inputs.push((now, input.clone()));
        }
    }

    fn carry(world: &mut World, from: usize, output: Output) {
        if from == ROUTER {
            world.net.outputs.push(output.clone());
        }
        match output {
            Output::Nemo(NemoOutput::Packet(packet)) => world.route(packet, from),
            Output::Nemo(NemoOutput::Forwarding(change)) => world.net.changes.push(change),
            Output::Nemo(NemoOutput::Event(event)) => world.net.events.push(event),
            _ => {}
        }
    }
}

type World = common::world::World<Internet>;

impl World {
    fn new() -> World {
        let configs = [agent_config(&["2001:db8:a::/64"]), router_config(&["2001:db8:a::/64"])];
        World::of(configs.map(|config| station(config, 7)), Internet::default())
    }

    /// Returns a world in which both uplinks are up and the router has registered.
    fn registered() -> World {
        let mut world = World::new();
        world.tell(ROUTER, Input::Interface(interface("w0", FIRST, true)));
        world.tell(ROUTER, Input::Interface(interface("w1", SECOND, true)));
        let events = std::mem::take(&mut world.net.events);
        assert!(events.iter().any(|e| matches!(e, Event::Registered { .. })), "{events:?}");
        world.net.changes.clear();
        world
    }

    fn agent(&self) -> &Station {
        &self.stations[HOME_AGENT]
    }

    /// Returns the state of the router's registration, as operators see it.
    fn state(&self) -> String {
        self.router().nemo().mobile_router_status().expect("a mobile router").state
    }

    /// Returns the number of bindings at the home agent, as operators see it.
    fn bindings(&self) -> u64 {
        self.agent().nemo().home_agent_status().expect("a home agent").bindings
    }

    fn router(&self) -> &Station {
        &self.stations[ROUTER]
    }

    /// Plays the kernels and the Internet for a packet that a station has written.
    fn route(&mut self, packet: Vec<u8>, from: usize) {
        let header = Header::parse(&packet).expect("an IPv6 packet");
        let mut deliver = |to, packet| self.deliver(to, Input::Packet(packet));
        if header.destination == address(AGENT) {
            deliver(HOME_AGENT, packet);
        } else if [FIRST, SECOND].map(address).contains(&header.destination) {
            deliver(ROUTER, packet);
        } else if header.destination == address(HOME) {
            // The router's kernel has the home address and answers echoes. The home agent's kernel routes the
            // packet into the tunnel.
            match (from, icmpv6::echo_reply(&packet)) {
                (ROUTER, Some(reply)) => deliver(ROUTER, reply),
                (ROUTER, None) => self.net.arrived.push(packet),
                _ => deliver(from, packet),
            }
        } else {
            self.net.arrived.push(packet);
        }
    }

    /// Sends a packet from the LAN; returns how many times it arrives.
    fn host_sends(&mut self) -> usize {
        self.net.arrived.clear();
        self.tell(ROUTER, Input::Packet(data(HOST, CORRESPONDENT)));
        self.net.arrived.iter().filter(|packet| **packet == data(HOST, CORRESPONDENT)).count()
    }

    /// Sends a packet to the LAN; returns how many times it arrives.
    fn correspondent_sends(&mut self) -> usize {
        self.net.arrived.clear();
        self.tell(HOME_AGENT, Input::Packet(data(CORRESPONDENT, HOST)));
        self.net.arrived.iter().filter(|packet| **packet == data(CORRESPONDENT, HOST)).count()
    }
}

#[test]
fn packets_of_registered_router_pass_in_both_directions() {
    let mut world = World::new();
    assert_eq!((world.host_sends(), world.correspondent_sends()), (0, 0), "nothing passes before");
    assert_eq!(world.net.arrived.len(), 1, "the correspondent is told");
    let mut world = World::registered();
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
    assert_eq!(world.state(), "registered");
    assert_eq!(world.bindings(), 1);
}

#[test]
fn twenty_refreshes_change_nothing_on_the_data_path() {
    let mut world = World::registered();
    world.run(Duration::from_secs(60 * 20));
    let refreshes = world.net.events.iter().filter(|e| matches!(e, Event::Registered { refresh: true, .. }));
    assert!(refreshes.count() >= 20, "{:?}", world.net.events);
    assert_eq!(world.net.changes, []);
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
}

#[test]
fn a_preferred_uplink_is_changed_without_losing_a_packet() {
    let mut world = World::registered();
    world.tell(ROUTER, Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }));
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
    assert!(world.router().nemo().uplink_status(world.now).iter().any(|u| u.interface == "w1" && u.active));
    // A handover changes tunnels, but no kernel route.
    let is_tunnel = |c: &Change| matches!(c, Change::Set(entry) if matches!(**entry, Entry::Tunnel(_)));
    assert!(world.net.changes.iter().all(is_tunnel), "{:?}", world.net.changes);
    // For some time after the handover, both ends accept packets on the old path.
    let old = data(HOST, CORRESPONDENT);
    let late = carnet_virtual::packet(address(FIRST), address(AGENT), protocol::IPV6, &old);
    world.net.arrived.clear();
    world.tell(HOME_AGENT, Input::Packet(late.clone()));
    assert_eq!(world.net.arrived, [old]);
    world.run(Duration::from_secs(6));
    world.net.arrived.clear();
    world.tell(HOME_AGENT, Input::Packet(late));
    assert_eq!(world.net.arrived, Vec::<Vec<u8>>::new(), "but not for ever");
}

/// Both ends know when the care-of address last changed. A renewal of the binding does not change this time.
#[test]
fn both_ends_know_time_at_present_care_of_address() {
    let stays = |world: &World| {
        [world.agent(), world.router()].map(|end| end.nemo().binding_status(world.now)[0].stay_s)
    };
    let world = World::new();
    assert_eq!(world.router().nemo().binding_status(world.now)[0].stay_s, None, "nowhere yet");
    let mut world = World::registered();
    world.run(Duration::from_secs(200));
    assert_eq!(stays(&world), [Some(200); 2]);
    world.tell(ROUTER, Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }));
    world.run(Duration::from_secs(7));
    assert_eq!(stays(&world), [Some(7); 2]);
}

#[test]
fn lost_uplink_moves_traffic_at_once() {
    let mut world = World::registered();
    world.tell(ROUTER, Input::Interface(interface("w0", FIRST, false)));
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
    let returned = interface("w0", FIRST, true);
    world.tell(ROUTER, Input::Interface(returned));
    assert!(
        world.router().nemo().uplink_status(world.now).iter().any(|u| u.interface == "w1" && u.active),
        "it has to settle"
    );
    world.run(Duration::from_secs(2));
    assert!(world.router().nemo().uplink_status(world.now).iter().any(|u| u.interface == "w0" && u.active));
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
}

/// Restarts the home agent without its state.
fn forget_bindings(world: &mut World) {
    let config = agent_config(&["2001:db8:a::/64"]);
    world.restart(HOME_AGENT, config, PersistentState::default(), 8);
}

#[test]
fn router_registers_again_at_home_agent_that_lost_its_bindings() {
    let mut world = World::registered();
    world.run(Duration::from_secs(5));
    forget_bindings(&mut world);
    assert_eq!(world.host_sends(), 0);
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1), "one packet was enough");
}

/// The home agent's machine answers like one without carnet: an ICMPv6 error says that it accepts no
/// tunnelled packets (RFC 4443 3.1). The router registers again at once. An error that quotes a packet that
/// the router has not sent changes nothing.
#[test]
fn an_icmpv6_error_about_a_tunnelled_packet_makes_the_router_register_again() {
    let mut world = World::registered();
    world.run(Duration::from_secs(5));
    forget_bindings(&mut world);
    // In this test the home agent's own messages are lost.
    world.feed(ROUTER, Input::Packet(data(HOST, CORRESPONDENT)));
    let mut tunnelled = None;
    while let Some(output) = world.stations[ROUTER].poll_output() {
        if let Output::Nemo(NemoOutput::Packet(packet)) = output {
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
    world.tell(ROUTER, error(&tunnelled));
    assert_eq!(world.agent().nemo().binding_status(world.now).len(), 0, "a guess");
    tunnelled[3] ^= 1;
    world.tell(ROUTER, error(&tunnelled));
    assert_eq!(world.agent().nemo().binding_status(world.now).len(), 1, "registered");
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
}

#[test]
fn stored_state_needs_no_new_registration() {
    let mut world = World::registered();
    let state = world.agent().nemo().persistent_state(world.now, world.wall());
    let text = serde_json::to_string(&state).expect("serialises");
    let state: PersistentState = serde_json::from_str(&text).expect("deserialises");
    world.restart(HOME_AGENT, agent_config(&["2001:db8:a::/64"]), state, 8);
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
}

#[test]
fn unauthorized_prefix_gets_no_traffic() {
    let mut world = World::registered();
    let thief = router_config(&["2001:db8:a::/64", "2001:db8:b::/64"]);
    world.restart(ROUTER, thief, PersistentState::default(), 9);
    world.tell(ROUTER, Input::Interface(interface("w0", FIRST, true)));
    assert!(
        world.net.events.iter().any(|e| matches!(e, Event::Rejected { status: 142 | 135, .. })),
        "{:?}",
        world.net.events
    );
    assert_eq!(world.state(), "refused");
    assert_eq!(world.agent().nemo().binding_status(world.now)[0].prefixes.len(), 1, "the old binding stands");
}

#[test]
fn equal_inputs_give_equal_outputs() {
    let mut world = World::registered();
    world.tell(ROUTER, Input::Interface(interface("w0", FIRST, false)));
    world.host_sends();
    world.run(Duration::from_secs(200));
    world.tell(ROUTER, Input::Command(Command::Shutdown));
    let mut replayed = Vec::new();
    let mut station = station(router_config(&["2001:db8:a::/64"]), 7);
    let mut drain = |station: &mut Station| replayed.extend(std::iter::from_fn(|| station.poll_output()));
    drain(&mut station);
    for (time, input) in &world.net.inputs {
        let wall = WALL + time.saturating_since(Time::ZERO);
        let read = recorded(input);
        assert_eq!(read, *input);
        station.handle_input(*time, wall, read).expect("accepted");
        drain(&mut station);
    }
    assert_eq!(replayed, world.net.outputs);
}

#[test]
fn reload_applies_only_config_differences() {
    let mut world = World::registered();
    world.reconfigure(HOME_AGENT, agent_config(&["2001:db8:a::/64", "2001:db8:b::/64"]));
    let prefix = "2001:db8:b::/64".parse().expect("a prefix");
    assert!(
        matches!(&world.net.changes[..], [Change::Set(entry)] if matches!(&**entry, Entry::Route(route)
            if route.destination == prefix && route.table == TABLE_MAIN
                && *route.action == RouteAction::Unreachable)),
        "{:?}",
        world.net.changes
    );
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));

    world.net.changes.clear();
    world.reconfigure(ROUTER, router_config(&["2001:db8:a::/64", "2001:db8:b::/64"]));
    assert!(!world.net.changes.iter().any(|c| matches!(c, Change::Remove(_))), "{:?}", world.net.changes);
    assert_eq!((world.host_sends(), world.correspondent_sends()), (1, 1));
    assert_eq!(world.agent().nemo().binding_status(world.now)[0].prefixes.len(), 2);
    assert!(!world.net.events.iter().any(|e| matches!(e, Event::Handover { .. })), "{:?}", world.net.events);

    world.reconfigure(HOME_AGENT, StationConfig::default());
    assert_eq!(world.agent().nemo().desired_entries().count(), 0);
}

#[test]
fn shutdown_deregisters_at_home_agent() {
    let mut world = World::registered();
    world.tell(ROUTER, Input::Command(Command::Shutdown));
    assert!(world.router().is_quiescent());
    assert_eq!(world.bindings(), 0);
    assert_eq!(world.host_sends(), 0);
    world.run(Duration::from_secs(6));
    assert_eq!(world.correspondent_sends(), 0, "what was on its way may pass, later packets may not");
}
