//! A mobile router's and a home agent's station, connected in virtual time. One function simulates the
//! platforms, which route packets between the two stations.

mod common;

use std::time::Duration;

use carnet_base::Time;
use carnet_nemo::forwarding::desired::{EntryChange, ForwardingEntry, RouteAction, TABLE_MAIN};
use carnet_station::io::{Command, Event, Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, protocol};
use common::world::{NetworkBehaviour, station_at_time_zero, through_recording_format};
use common::{
    AGENT_ADDRESS, CORRESPONDENT_ADDRESS, FIRST_CARE_OF_ADDRESS, HOME_ADDRESS, HOST_ADDRESS,
    SECOND_CARE_OF_ADDRESS, WALL_TIME, address, agent_config, data_packet_between, interface, router_config,
};

const HOME_AGENT_INDEX: usize = 0;
const ROUTER_INDEX: usize = 1;

/// The Internet between the two stations, their kernels, and what the test records.
#[derive(Default)]
struct RecordingInternet {
    changes: Vec<EntryChange>,
    events: Vec<Event>,
    /// Packets that have come out of the tunnel, for the host or for the correspondent.
    arrived_packets: Vec<Vec<u8>>,
    /// Inputs of the router's station with their times, for a replay.
    router_inputs: Vec<(Time, Input)>,
    /// Outputs of the router's station, which a replay must repeat.
    router_outputs: Vec<Output>,
}

impl NetworkBehaviour for RecordingInternet {
    fn record_input(&mut self, now: Time, to: usize, input: &Input) {
        if to == ROUTER_INDEX {
            self.router_inputs.push((now, input.clone()));
        }
    }

    fn handle_output(world: &mut TwoStationWorld, from: usize, output: Output) {
        if from == ROUTER_INDEX {
            world.network_behaviour.router_outputs.push(output.clone());
        }
        match output {
            Output::Nemo(NemoOutput::Packet(packet)) => world.route_packet(packet, from),
            Output::Nemo(NemoOutput::Forwarding(change)) => world.network_behaviour.changes.push(change),
            Output::Nemo(NemoOutput::Event(event)) => world.network_behaviour.events.push(event),
            _ => {}
        }
    }
}

type TwoStationWorld = common::world::TestNetwork<RecordingInternet>;

impl TwoStationWorld {
    fn new() -> TwoStationWorld {
        let configs = [agent_config(&["2001:db8:a::/64"]), router_config(&["2001:db8:a::/64"])];
        TwoStationWorld::with_stations(
            configs.map(|config| station_at_time_zero(config, 7)),
            RecordingInternet::default(),
        )
    }

    /// Returns a world in which both uplinks are up and the router has registered.
    fn registered_world() -> TwoStationWorld {
        let mut world = TwoStationWorld::new();
        world.pass_recorded_input(
            ROUTER_INDEX,
            Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)),
        );
        world.pass_recorded_input(
            ROUTER_INDEX,
            Input::Interface(interface("w1", SECOND_CARE_OF_ADDRESS, true)),
        );
        let events = std::mem::take(&mut world.network_behaviour.events);
        assert!(events.iter().any(|e| matches!(e, Event::Registered { .. })), "{events:?}");
        world.network_behaviour.changes.clear();
        world
    }

    fn agent_station(&self) -> &Station {
        &self.stations[HOME_AGENT_INDEX]
    }

    /// Returns the state of the router's registration, as operators see it.
    fn registration_state(&self) -> String {
        self.router_station().nemo().mobile_router_status().expect("a mobile router").state
    }

    /// Returns the number of bindings at the home agent, as operators see it.
    fn binding_count(&self) -> u64 {
        self.agent_station().nemo().home_agent_status().expect("a home agent").bindings
    }

    fn router_station(&self) -> &Station {
        &self.stations[ROUTER_INDEX]
    }

    /// Simulates the kernels and the Internet for a packet that a station has written.
    fn route_packet(&mut self, packet: Vec<u8>, from: usize) {
        let header = Header::parse(&packet).expect("an IPv6 packet");
        let mut deliver = |to, packet| self.send_now(to, Input::Packet(packet));
        if header.destination == address(AGENT_ADDRESS) {
            deliver(HOME_AGENT_INDEX, packet);
        } else if [FIRST_CARE_OF_ADDRESS, SECOND_CARE_OF_ADDRESS].map(address).contains(&header.destination) {
            deliver(ROUTER_INDEX, packet);
        } else if header.destination == address(HOME_ADDRESS) {
            // The router's kernel has the home address and answers echoes. The home agent's kernel routes the
            // packet into the tunnel.
            match (from, icmpv6::answer_echo_request(&packet)) {
                (ROUTER_INDEX, Some(reply)) => deliver(ROUTER_INDEX, reply),
                (ROUTER_INDEX, None) => self.network_behaviour.arrived_packets.push(packet),
                _ => deliver(from, packet),
            }
        } else {
            self.network_behaviour.arrived_packets.push(packet);
        }
    }

    /// Sends a packet from the LAN; returns how many times it arrives.
    fn send_from_host(&mut self) -> usize {
        self.network_behaviour.arrived_packets.clear();
        self.pass_recorded_input(
            ROUTER_INDEX,
            Input::Packet(data_packet_between(HOST_ADDRESS, CORRESPONDENT_ADDRESS)),
        );
        self.network_behaviour
            .arrived_packets
            .iter()
            .filter(|packet| **packet == data_packet_between(HOST_ADDRESS, CORRESPONDENT_ADDRESS))
            .count()
    }

    /// Sends a packet to the LAN; returns how many times it arrives.
    fn send_from_correspondent(&mut self) -> usize {
        self.network_behaviour.arrived_packets.clear();
        self.pass_recorded_input(
            HOME_AGENT_INDEX,
            Input::Packet(data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS)),
        );
        self.network_behaviour
            .arrived_packets
            .iter()
            .filter(|packet| **packet == data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS))
            .count()
    }
}

#[test]
fn packets_of_registered_router_pass_in_both_directions() {
    let mut world = TwoStationWorld::new();
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (0, 0), "nothing passes before");
    assert_eq!(world.network_behaviour.arrived_packets.len(), 1, "the correspondent is told");
    let mut world = TwoStationWorld::registered_world();
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));
    assert_eq!(world.registration_state(), "registered");
    assert_eq!(world.binding_count(), 1);
}

#[test]
fn twenty_refreshes_change_nothing_on_the_data_path() {
    let mut world = TwoStationWorld::registered_world();
    world.run_for(Duration::from_secs(60 * 20));
    let refreshes = world
        .network_behaviour
        .events
        .iter()
        .filter(|e| matches!(e, Event::Registered { refresh: true, .. }));
    assert!(refreshes.count() >= 20, "{:?}", world.network_behaviour.events);
    assert_eq!(world.network_behaviour.changes, []);
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));
}

#[test]
fn a_preferred_uplink_is_changed_without_losing_a_packet() {
    let mut world = TwoStationWorld::registered_world();
    world.pass_recorded_input(
        ROUTER_INDEX,
        Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }),
    );
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));
    assert!(
        world
            .router_station()
            .nemo()
            .uplink_status(world.now)
            .iter()
            .any(|u| u.interface == "w1" && u.active)
    );
    // A handover changes tunnels, but no kernel route.
    let is_tunnel = |c: &EntryChange| {
        matches!(c, EntryChange::Set(entry)
if matches!(**entry, ForwardingEntry::Tunnel(_)))
    };
    assert!(world.network_behaviour.changes.iter().all(is_tunnel), "{:?}", world.network_behaviour.changes);
    // For some time after the handover, both ends accept packets on the old path.
    let old = data_packet_between(HOST_ADDRESS, CORRESPONDENT_ADDRESS);
    let late =
        carnet_virtual::packet(address(FIRST_CARE_OF_ADDRESS), address(AGENT_ADDRESS), protocol::IPV6, &old);
    world.network_behaviour.arrived_packets.clear();
    world.pass_recorded_input(HOME_AGENT_INDEX, Input::Packet(late.clone()));
    assert_eq!(world.network_behaviour.arrived_packets, [old]);
    world.run_for(Duration::from_secs(6));
    world.network_behaviour.arrived_packets.clear();
    world.pass_recorded_input(HOME_AGENT_INDEX, Input::Packet(late));
    assert_eq!(world.network_behaviour.arrived_packets, Vec::<Vec<u8>>::new(), "but not for ever");
}

/// Both ends know when the care-of address last changed. A renewal of the binding does not change this time.
#[test]
fn both_ends_know_time_at_present_care_of_address() {
    let stays = |world: &TwoStationWorld| {
        [world.agent_station(), world.router_station()]
            .map(|end| end.nemo().binding_status(world.now)[0].stay_s)
    };
    let world = TwoStationWorld::new();
    assert_eq!(world.router_station().nemo().binding_status(world.now)[0].stay_s, None, "nowhere yet");
    let mut world = TwoStationWorld::registered_world();
    world.run_for(Duration::from_secs(200));
    assert_eq!(stays(&world), [Some(200); 2]);
    world.pass_recorded_input(
        ROUTER_INDEX,
        Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }),
    );
    world.run_for(Duration::from_secs(7));
    assert_eq!(stays(&world), [Some(7); 2]);
}

#[test]
fn lost_uplink_moves_traffic_at_once() {
    let mut world = TwoStationWorld::registered_world();
    world.pass_recorded_input(ROUTER_INDEX, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, false)));
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));
    let returned = interface("w0", FIRST_CARE_OF_ADDRESS, true);
    world.pass_recorded_input(ROUTER_INDEX, Input::Interface(returned));
    assert!(
        world
            .router_station()
            .nemo()
            .uplink_status(world.now)
            .iter()
            .any(|u| u.interface == "w1" && u.active),
        "it has to settle"
    );
    world.run_for(Duration::from_secs(2));
    assert!(
        world
            .router_station()
            .nemo()
            .uplink_status(world.now)
            .iter()
            .any(|u| u.interface == "w0" && u.active)
    );
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));
}

/// Restarts the home agent without its state.
fn forget_bindings(world: &mut TwoStationWorld) {
    let config = agent_config(&["2001:db8:a::/64"]);
    world.restart_station(HOME_AGENT_INDEX, config, PersistentState::default(), 8);
}

#[test]
fn router_registers_again_at_home_agent_that_lost_its_bindings() {
    let mut world = TwoStationWorld::registered_world();
    world.run_for(Duration::from_secs(5));
    forget_bindings(&mut world);
    assert_eq!(world.send_from_host(), 0);
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1), "one packet was enough");
}

/// The home agent's machine answers like a machine without carnet: its ICMPv6 error says that it accepts no
/// tunnelled packets (RFC 4443 3.1). The router registers again at once. An error that quotes a packet that
/// the router has not sent changes nothing.
#[test]
fn icmpv6_error_about_tunnelled_packet_makes_router_register_again() {
    let mut world = TwoStationWorld::registered_world();
    world.run_for(Duration::from_secs(5));
    forget_bindings(&mut world);
    // The test withholds the tunnelled packet from the home agent, and itself builds the ICMPv6 errors of the
    // home agent's machine.
    world.pass_input(ROUTER_INDEX, Input::Packet(data_packet_between(HOST_ADDRESS, CORRESPONDENT_ADDRESS)));
    let mut tunnelled = None;
    while let Some(output) = world.stations[ROUTER_INDEX].poll_output() {
        if let Output::Nemo(NemoOutput::Packet(packet)) = output {
            tunnelled = Some(packet);
        }
    }
    let mut tunnelled = tunnelled.expect("a tunnelled packet");
    let error = |invoking: &[u8]| {
        let closed = icmpv6::Icmpv6ErrorMessage::DestinationUnreachable { code: 4 };
        let packet =
            icmpv6::error_packet(address(AGENT_ADDRESS), address(FIRST_CARE_OF_ADDRESS), closed, invoking);
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
    world.pass_recorded_input(ROUTER_INDEX, error(&tunnelled));
    assert_eq!(world.agent_station().nemo().binding_status(world.now).len(), 0, "a guess");
    tunnelled[3] ^= 1;
    world.pass_recorded_input(ROUTER_INDEX, error(&tunnelled));
    assert_eq!(world.agent_station().nemo().binding_status(world.now).len(), 1, "registered");
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));
}

#[test]
fn stored_state_needs_no_new_registration() {
    let mut world = TwoStationWorld::registered_world();
    let state = world.agent_station().nemo().persistent_state(world.now, world.wall_time());
    let text = serde_json::to_string(&state).expect("serialises");
    let state: PersistentState = serde_json::from_str(&text).expect("deserialises");
    world.restart_station(HOME_AGENT_INDEX, agent_config(&["2001:db8:a::/64"]), state, 8);
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));
}

#[test]
fn unauthorized_prefix_gets_no_traffic() {
    let mut world = TwoStationWorld::registered_world();
    let thief = router_config(&["2001:db8:a::/64", "2001:db8:b::/64"]);
    world.restart_station(ROUTER_INDEX, thief, PersistentState::default(), 9);
    world.pass_recorded_input(ROUTER_INDEX, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)));
    assert!(
        world.network_behaviour.events.iter().any(|e| matches!(e, Event::Rejected { status: 142 | 135, .. })),
        "{:?}",
        world.network_behaviour.events
    );
    assert_eq!(world.registration_state(), "refused");
    assert_eq!(
        world.agent_station().nemo().binding_status(world.now)[0].prefixes.len(),
        1,
        "the old binding stands"
    );
}

#[test]
fn equal_inputs_give_equal_outputs() {
    let mut world = TwoStationWorld::registered_world();
    world.pass_recorded_input(ROUTER_INDEX, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, false)));
    world.send_from_host();
    world.run_for(Duration::from_secs(200));
    world.pass_recorded_input(ROUTER_INDEX, Input::Command(Command::Shutdown));
    let mut replayed = Vec::new();
    let mut station = station_at_time_zero(router_config(&["2001:db8:a::/64"]), 7);
    let mut drain = |station: &mut Station| replayed.extend(std::iter::from_fn(|| station.poll_output()));
    drain(&mut station);
    for (time, input) in &world.network_behaviour.router_inputs {
        let wall = WALL_TIME + time.saturating_since(Time::ZERO);
        let read = through_recording_format(input);
        assert_eq!(read, *input);
        station.handle_input(*time, wall, read).expect("accepted");
        drain(&mut station);
    }
    assert_eq!(replayed, world.network_behaviour.router_outputs);
}

#[test]
fn reload_applies_only_config_differences() {
    let mut world = TwoStationWorld::registered_world();
    world.reconfigure_station(HOME_AGENT_INDEX, agent_config(&["2001:db8:a::/64", "2001:db8:b::/64"]));
    let prefix = "2001:db8:b::/64".parse().expect("a prefix");
    assert!(
        matches!(&world.network_behaviour.changes[..], [EntryChange::Set(entry)]
if matches!(&**entry, ForwardingEntry::Route(route)
if route.destination == prefix && route.table == TABLE_MAIN
&& *route.action == RouteAction::Unreachable)),
        "{:?}",
        world.network_behaviour.changes
    );
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));

    world.network_behaviour.changes.clear();
    world.reconfigure_station(ROUTER_INDEX, router_config(&["2001:db8:a::/64", "2001:db8:b::/64"]));
    assert!(
        !world.network_behaviour.changes.iter().any(|c| matches!(c, EntryChange::Remove(_))),
        "{:?}",
        world.network_behaviour.changes
    );
    assert_eq!((world.send_from_host(), world.send_from_correspondent()), (1, 1));
    assert_eq!(world.agent_station().nemo().binding_status(world.now)[0].prefixes.len(), 2);
    assert!(
        !world.network_behaviour.events.iter().any(|e| matches!(e, Event::Handover { .. })),
        "{:?}",
        world.network_behaviour.events
    );

    world.reconfigure_station(HOME_AGENT_INDEX, StationConfig::default());
    assert_eq!(world.agent_station().nemo().desired_entries().count(), 0);
}

#[test]
fn shutdown_deregisters_at_home_agent() {
    let mut world = TwoStationWorld::registered_world();
    world.pass_recorded_input(ROUTER_INDEX, Input::Command(Command::Shutdown));
    assert!(world.router_station().is_quiescent());
    assert_eq!(world.binding_count(), 0);
    assert_eq!(world.send_from_host(), 0);
    world.run_for(Duration::from_secs(6));
    assert_eq!(world.send_from_correspondent(), 0, "what was on its way may pass, later packets may not");
}
