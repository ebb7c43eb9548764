//! Signalling through encrypted sessions: both ends believe a message because of the session's key, and drop
//! messages that come outside of the session.

use carnet_mobility::mobile_router::State;
use carnet_mobility::{Authentication, MobilityDrop, MobilityMessage, SessionPeer};

use crate::agent_heartbeat::heartbeat_request;
use crate::test_messages::parse_mobility_message;
use crate::vehicle_on_road::*;

const PEER: SessionPeer = SessionPeer(5);

/// Creates a mobile router with three uplinks and a home agent, whose messages pass through sessions.
fn vehicle_with_sessions() -> VehicleOnRoad {
    let authentication = Authentication::Session(PEER);
    let mut home = agent_config();
    home.nodes[0].authentication = authentication.clone();
    let mut road = VehicleOnRoad::with_configs(
        carnet_mobility::mobile_router::MobileRouterConfig { authentication, ..config() },
        home,
        1,
    );
    road.session = Some(PEER);
    road
}

#[test]
fn several_uplinks_register_through_sessions_without_a_mac() {
    let mut road = vehicle_with_sessions();
    road.attach_all_uplinks();
    road.advance_seconds(0.1);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(road.last_update().received_packet.options().spi, None, "no authentication option");
    assert_eq!(road.router.state(), State::Registered);
    road.advance_seconds(120.0);
    assert!(road.is_traffic_carried());
    assert!(road.sent_heartbeats.len() > 100, "{} heartbeats", road.sent_heartbeats.len());
    assert_eq!(road.dropped_messages, []);
    // The router leaves an uplink that goes silent, and removes its binding at the home agent.
    road.set_losing_everything("wifi", true);
    road.advance_seconds(5.0);
    assert_eq!(road.transmitting_uplinks().first(), Some(&"cell"));
    assert_eq!(road.preferred_bids(), [2, 3]);
}

/// The home agent drops a message in the clear, and a message of another router's session.
#[test]
fn home_agent_drops_messages_outside_of_the_session_of_their_node() {
    for session in [None, Some(SessionPeer(6))] {
        let mut road = vehicle_with_sessions();
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
        road.advance_seconds(1.0);
        road.clear_records();
        road.session = session;
        road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
        road.advance_seconds(2.0);
        assert_eq!(road.bound_bids(), [1], "{session:?}");
        // The home agent has dropped all Binding Updates and heartbeats, except at most two that are still on
        // their way.
        let sent = road.sent_updates.len() + road.sent_heartbeats.len();
        assert!(!road.sent_updates.is_empty() && road.sent_heartbeats.len() > 4);
        assert!(
            road.dropped_messages.iter().all(|&reason| reason == MobilityDrop::NotProtected),
            "{:?}",
            road.dropped_messages
        );
        assert!(
            road.dropped_messages.len() + 2 >= sent,
            "{} of {sent} messages dropped",
            road.dropped_messages.len()
        );
    }
}

/// A heartbeat in the clear from the care-of address of a binding gets no answer either.
#[test]
fn home_agent_answers_heartbeats_only_in_the_session() {
    let mut road = vehicle_with_sessions();
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.advance_seconds(1.0);
    let wall = road.wall_time();
    let heartbeat = heartbeat_request("2001:db8:f1::10", 9);
    let message = parse_mobility_message(&heartbeat).expect("a heartbeat");
    for session in [None, Some(SessionPeer(6))] {
        let message = MobilityMessage { session, ..message };
        let answered = road.agent.handle_message(road.now, wall, message);
        assert_eq!(answered, Err(MobilityDrop::NotProtected), "{session:?}");
        assert!(road.agent.poll_output().is_none());
    }
    assert_eq!(road.agent.handle_message(road.now, wall, message.in_session(PEER)), Ok(()));
    assert!(road.agent.poll_output().is_some());
}

#[test]
fn router_drops_acknowledgement_outside_of_the_session() {
    let mut road = vehicle_with_sessions();
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    let end = road.now + std::time::Duration::from_secs(1);
    while road.bound_bids().is_empty() && road.handle_next_event(end) {}
    assert_eq!(road.bound_bids(), [1]);
    road.session = None;
    road.advance_seconds(0.5);
    assert_ne!(road.router.state(), State::Registered);
    assert!(road.dropped_messages.contains(&MobilityDrop::NotProtected));
    road.session = Some(PEER);
    road.advance_seconds(5.0);
    assert_eq!(road.router.state(), State::Registered);
}
