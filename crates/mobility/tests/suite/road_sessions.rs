//! Signalling through encrypted sessions: both ends believe a message because of the session's key, and
//! accept no message of the node elsewhere.

use carnet_mobility::mobile_router::State;
use carnet_mobility::{Authentication, MobilityDrop, MobilityMessage, SessionPeer};

use crate::agent_heartbeat::request;
use crate::craft::mobility_message;
use crate::road::*;

const PEER: SessionPeer = SessionPeer(5);

/// A mobile router with three uplinks and a home agent, whose messages pass through sessions.
fn in_sessions() -> Road {
    let authentication = Authentication::Session(PEER);
    let mut home = agent_config();
    home.nodes[0].authentication = authentication.clone();
    let mut road = Road::with(
        carnet_mobility::mobile_router::MobileRouterConfig { authentication, ..config() },
        home,
        1,
    );
    road.session = Some(PEER);
    road
}

#[test]
fn several_uplinks_register_through_sessions_without_a_mac() {
    let mut road = in_sessions();
    road.attach_all();
    road.run(0.1);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(road.last().seen.options().spi, None, "no authentication option");
    assert_eq!(road.router.state(), State::Registered);
    road.run(120.0);
    assert!(road.is_carried());
    assert!(road.heartbeats.len() > 100, "{} heartbeats", road.heartbeats.len());
    assert_eq!(road.drops, []);
    // The router leaves an uplink that goes silent, and the home agent hears of it.
    road.black_hole("wifi", true);
    road.run(5.0);
    assert_eq!(road.transmits().first(), Some(&"cell"));
    assert_eq!(road.preferred_bids(), [2, 3]);
}

/// The home agent drops a message in the clear, and a message of another router's session.
#[test]
fn home_agent_drops_messages_outside_of_the_session_of_their_node() {
    for session in [None, Some(SessionPeer(6))] {
        let mut road = in_sessions();
        road.attach("wifi", Some("2001:db8:f1::10"), None);
        road.run(1.0);
        road.forget();
        road.session = session;
        road.attach("cell", Some("2001:db8:f2::10"), None);
        road.run(2.0);
        assert_eq!(road.bound_bids(), [1], "{session:?}");
        // The home agent drops each Binding Update and each heartbeat; some are still on their way.
        let sent = road.updates.len() + road.heartbeats.len();
        assert!(!road.updates.is_empty() && road.heartbeats.len() > 4);
        assert!(road.drops.iter().all(|&reason| reason == MobilityDrop::NotProtected), "{:?}", road.drops);
        assert!(road.drops.len() + 2 >= sent, "{} of {sent} messages dropped", road.drops.len());
    }
}

/// A heartbeat in the clear from the care-of address of a binding gets no answer either.
#[test]
fn home_agent_answers_heartbeats_only_in_the_session() {
    let mut road = in_sessions();
    road.attach("wifi", Some("2001:db8:f1::10"), None);
    road.run(1.0);
    let wall = road.wall();
    let heartbeat = request("2001:db8:f1::10", 9);
    let message = mobility_message(&heartbeat).expect("a heartbeat");
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
    let mut road = in_sessions();
    road.attach("wifi", Some("2001:db8:f1::10"), None);
    let end = road.now + std::time::Duration::from_secs(1);
    while road.bound_bids().is_empty() && road.step(end) {}
    assert_eq!(road.bound_bids(), [1]);
    road.session = None;
    road.run(0.5);
    assert_ne!(road.router.state(), State::Registered);
    assert!(road.drops.contains(&MobilityDrop::NotProtected));
    road.session = Some(PEER);
    road.run(5.0);
    assert_eq!(road.router.state(), State::Registered);
}
