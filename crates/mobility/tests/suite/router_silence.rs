//! What a mobile router says of uplinks over which nothing comes back.

use carnet_mobility::Event;
use carnet_mobility::mobile_router::{Attachment, Response, State};

use crate::craft::*;
use crate::pair::{Conditions, Pair};
use crate::road::{self, Road};
use crate::setup::Setup;

fn warnings(events: &[Event]) -> Vec<&str> {
    let warnings = events.iter().filter_map(|event| match event {
        Event::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    warnings.collect()
}

/// Without Binding Identifiers: asked first, then silent, with the time of the next Binding Update.
#[test]
fn the_only_uplink_brings_no_answer() {
    let mut pair = Pair::new(Setup::authenticated());
    pair.conditions = Conditions::DEAF;
    pair.attach(0, "wifi", CARE_OF);
    assert_eq!(pair.machine().response(0), Response::Asked);
    pair.run(20.0);
    let Response::Silent { again: Some(again) } = pair.machine().response(0) else {
        panic!("{:?}", pair.machine().response(0));
    };
    assert!(again > pair.now);
    let events: Vec<Event> = pair.events.iter().map(|(_, _, event)| event.clone()).collect();
    let said = warnings(&events);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("the SPI 300") && said[0].contains(HOME), "{said:?}");
    pair.conditions = Conditions::GOOD;
    pair.run(40.0);
    assert_eq!(pair.machine().response(0), Response::Answers);
}

/// With them: the one that answers and the one that does not are told apart, and the operator hears of it once.
#[test]
fn one_of_two_identified_uplinks_brings_no_answer() {
    let mut road = Road::new(road::config());
    road.network("cell").ipv6_dead = true;
    road.attach("wifi", Some("2001:db8:f1::10"), None);
    road.run(1.0);
    road.attach("cell", Some("2001:db8:f2::10"), None);
    road.run(1.0);
    assert_eq!(road.router.state(), State::Registered);
    let cell = road.router.uplink_called("cell").expect("an uplink");
    let wifi = road.router.uplink_called("wifi").expect("an uplink");
    assert_eq!(road.router.response(cell), Response::Asked);
    road.run(60.0);
    assert!(
        matches!(road.router.response(cell), Response::Silent { again: Some(again) } if again > road.now)
    );
    assert_eq!(road.router.response(wifi), Response::Answers);
    let events: Vec<Event> = road.events.iter().map(|(_, event)| event.clone()).collect();
    let said = warnings(&events);
    assert_eq!(said.iter().filter(|text| text.contains("over cell after 4")).count(), 1, "{said:?}");
    road.network("cell").ipv6_dead = false;
    road.run(60.0);
    assert_eq!(road.router.response(cell), Response::Answers);
}

/// An uplink that has nothing but IPv4 says what is missing in the config.
#[test]
fn ipv4_without_an_ipv4_home_agent_is_said() {
    let down = |home_agent_ipv4: bool| {
        let mut config = road::config();
        config.home_agent_ipv4 = config.home_agent_ipv4.filter(|_| home_agent_ipv4);
        let mut road = Road::new(config);
        road.attach("wifi", None, Some("10.1.0.2".parse().expect("an address")));
        road.router.uplinks()[0].attachment
    };
    assert!(matches!(down(true), Attachment::Foreign { ipv4: Some(_), .. }));
    assert_eq!(down(false), Attachment::Down("IPv4 only, and mobile_router.home_agent_ipv4 is not set"));
}
