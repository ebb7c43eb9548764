//! Status and events of a mobile router about uplinks over which no answer comes.

use carnet_mobility::Event;
use carnet_mobility::mobile_router::{AgentResponse, Attachment, MobileRouterConfig, State, UplinkConfig};

use crate::agent_and_routers::{AgentAndRouters, Link};
use crate::test_messages::*;
use crate::test_setup::PairSetup;
use crate::vehicle_on_road::{self, VehicleOnRoad};

fn warning_texts(events: &[Event]) -> Vec<&str> {
    let warnings = events.iter().filter_map(|event| match event {
        Event::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    warnings.collect()
}

/// Without Binding Identifiers: the status of the uplink is first `Asked`, then `Silent` with the time of the
/// next Binding Update.
#[test]
fn silent_only_uplink_is_reported() {
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    assert_eq!(pair.first_router().agent_response(0), AgentResponse::Asked);
    pair.advance_seconds(20.0);
    let AgentResponse::Silent { again: Some(again) } = pair.first_router().agent_response(0) else {
        panic!("{:?}", pair.first_router().agent_response(0));
    };
    assert!(again > pair.now);
    let events: Vec<Event> = pair.events.iter().map(|(_, _, event)| event.clone()).collect();
    let said = warning_texts(&events);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("the SPI 300") && said[0].contains(HOME_ADDRESS), "{said:?}");
    pair.link_conditions = Link::LOSSLESS;
    pair.advance_seconds(40.0);
    assert_eq!(pair.first_router().agent_response(0), AgentResponse::Answers);
}

/// With Binding Identifiers: the status shows which uplink gets answers and which does not, and the operator
/// gets one event.
#[test]
fn silent_uplink_with_bid_is_reported() {
    let mut road = VehicleOnRoad::new(vehicle_on_road::config());
    road.network_mut("cell").loses_ipv6 = true;
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.advance_seconds(1.0);
    road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
    road.advance_seconds(1.0);
    assert_eq!(road.router.state(), State::Registered);
    let cell = road.router.uplink_by_name("cell").expect("an uplink");
    let wifi = road.router.uplink_by_name("wifi").expect("an uplink");
    assert_eq!(road.router.agent_response(cell), AgentResponse::Asked);
    road.advance_seconds(60.0);
    assert!(matches!(
    road.router.agent_response(cell),
    AgentResponse::Silent { again: Some(again) } if again > road.now
    ));
    assert_eq!(road.router.agent_response(wifi), AgentResponse::Answers);
    let events: Vec<Event> = road.events.iter().map(|(_, event)| event.clone()).collect();
    let said = warning_texts(&events);
    assert_eq!(said.iter().filter(|text| text.contains("over cell after 4")).count(), 1, "{said:?}");
    road.network_mut("cell").loses_ipv6 = false;
    road.advance_seconds(60.0);
    assert_eq!(road.router.agent_response(cell), AgentResponse::Answers);
}

/// The status of an uplink with only IPv4 names the missing config value.
#[test]
fn missing_ipv4_home_agent_is_reported() {
    let down = |home_agent_ipv4: bool| {
        let mut config = vehicle_on_road::config();
        config.home_agent_ipv4 = config.home_agent_ipv4.filter(|_| home_agent_ipv4);
        let mut road = VehicleOnRoad::new(config);
        road.attach_uplink("wifi", None, Some("10.1.0.2".parse().expect("an address")));
        road.router.uplinks()[0].attachment
    };
    assert!(matches!(down(true), Attachment::Foreign { ipv4: Some(_), .. }));
    assert_eq!(down(false), Attachment::Down("IPv4 only, and mobile_router.home_agent_ipv4 is not set"));
}

/// The home agent refuses, or its answers do not verify: the status shows which.
#[test]
fn a_refused_uplink_shows_the_reason() {
    let answered = |answer: &dyn Fn(&mut TestAcknowledgement)| {
        let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
        pair.link_conditions = Link::LOSES_EVERYTHING;
        pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
        let mut acknowledgement = TestAcknowledgement {
            association: Some(test_association()),
            ..TestAcknowledgement::answering(&pair.last_update(), 0)
        };
        answer(&mut acknowledgement);
        let _ = pair.deliver_to_router(0, &acknowledgement.to_packet());
        assert!(matches!(pair.first_router().agent_response(0), AgentResponse::Refused { again: Some(_) }));
        pair.first_router().refusal_text().expect("a reason")
    };
    assert_eq!(answered(&|it| it.status = 132), "status 132, Not home subnet");
    assert_eq!(answered(&|it| it.status = 130), "status 130, Insufficient resources");
    assert_eq!(answered(&|it| it.status = 146), "wrong key (status 146)");
    let wrong = answered(&|it| {
        it.association =
            Some(carnet_mobility::SecurityAssociation { key: [9; 16].into(), ..test_association() });
    });
    assert!(wrong.contains("wrong MAC"), "{wrong}");

    // The router of this network registers its uplinks with Binding Identifiers.
    let mut config = vehicle_on_road::config();
    config.liveness = None;
    let mut road = VehicleOnRoad::new(config);
    road.is_agent_down = true;
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.advance_seconds(0.1);
    let refused = TestAcknowledgement {
        association: Some(test_association()),
        ..TestAcknowledgement::answering(&road.last_update().received_packet, 130)
    };
    road.deliver_to_router(None, &refused.to_packet());
    assert!(matches!(road.router.agent_response(0), AgentResponse::Refused { again: Some(_) }));
    road.is_agent_down = false;
    road.advance_seconds(40.0);
    assert_eq!(road.router.agent_response(0), AgentResponse::Answers);
}

/// RFC 4861 6.3.7, RFC 7559: an unanswered Binding Update does not shorten the pauses between Router
/// Solicitations. They begin anew when a path falls silent that had answers.
#[test]
fn router_solicitations_become_rarer_while_home_agent_is_silent() {
    let without_identifiers =
        vehicle_on_road::config().uplinks.into_iter().map(|uplink| UplinkConfig { bid: None, ..uplink });
    let without_identifiers =
        MobileRouterConfig { uplinks: without_identifiers.collect(), ..vehicle_on_road::config() };
    for config in [vehicle_on_road::config(), without_identifiers] {
        let mut road = VehicleOnRoad::new(config);
        road.is_agent_down = true;
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(std::net::Ipv4Addr::new(10, 0, 0, 2)));
        road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
        road.advance_seconds(600.0);
        road.clear_records();
        road.advance_seconds(3600.0);
        for name in ["wifi", "cell"] {
            let over = road.router_solicitations.iter().filter(|(_, uplink)| uplink == name).count();
            assert!((50..=60).contains(&over), "{over} over {name} in an hour");
        }
        road.is_agent_down = false;
        road.advance_while(120.0, "carried", |road| !road.is_traffic_carried());
        road.advance_seconds(300.0);
        let carrying = road.transmitting_uplinks()[0].to_owned();
        road.clear_records();
        road.set_losing_everything(&carrying, true);
        road.advance_seconds(60.0);
        let over = road.router_solicitations.iter().filter(|(_, uplink)| *uplink == carrying).count();
        assert!(over >= 5, "{over} over {carrying}: {:?}", road.router_solicitations);
    }
}
