//! Captive portals: a probe finds them on an uplink over which the home agent does not answer.

use std::time::Duration;

use carnet_mobility::Event;
use carnet_mobility::mobile_router::{MobileRouterConfig, PortalProbe};

use crate::vehicle_on_road::*;

const PORTAL_URL: &str = "https://portal.example/terms";

fn config_with_probes() -> MobileRouterConfig {
    MobileRouterConfig { probes_portals: true, ..config() }
}

fn registered_road(config: MobileRouterConfig) -> VehicleOnRoad {
    let mut road = VehicleOnRoad::new(config);
    road.attach_all_uplinks();
    road.advance_seconds(5.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(road.portal_requests, [], "every uplink has answers");
    road.clear_records();
    road
}

fn config_without_identifiers() -> MobileRouterConfig {
    let mut config = config_with_probes();
    config.uplinks.iter_mut().for_each(|uplink| uplink.bid = None);
    config
}

fn report_probe(road: &mut VehicleOnRoad, name: &str, probe: &PortalProbe) {
    road.run_on_router(|router, now, wall| router.handle_portal_probe(now, wall, name, probe));
}

fn portal_of(road: &VehicleOnRoad, name: &str) -> Option<String> {
    let uplink = road.router.uplink_by_name(name).expect("an uplink");
    road.router.uplinks()[uplink].captive_portal().map(str::to_owned)
}

/// Takes the events about portals: the uplink, and whether a probe was redirected.
fn portal_events(road: &VehicleOnRoad) -> Vec<(&str, bool)> {
    let of = |event| match event {
        &Event::CaptivePortal { ref uplink, redirects, .. } => Some((uplink.as_str(), redirects)),
        _ => None,
    };
    road.events.iter().filter_map(|(_, event)| of(event)).collect()
}

#[test]
fn captive_portal_is_found_and_uplink_returns_after_login() {
    for config in [config_with_probes(), config_without_identifiers()] {
        let mut road = VehicleOnRoad::new(config);
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
        road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
        road.advance_seconds(5.0);
        road.clear_records();
        road.set_losing_everything("wifi", true);
        road.advance_while(25.0, "a probe", |road| road.portal_requests.is_empty());
        assert_eq!(road.portal_requests[0].1, "wifi");
        assert_eq!(
            road.portal_requests[0].2,
            ["2001:db8:f1::10".parse::<std::net::IpAddr>().expect("an address")]
        );
        assert_eq!(portal_of(&road, "wifi"), None);

        let redirected = PortalProbe::Redirected(PORTAL_URL.into());
        report_probe(&mut road, "wifi", &redirected);
        assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL_URL));
        assert_eq!(portal_events(&road), [("wifi", true)]);
        // The router repeats the probe, and reports the portal once.
        for _ in 0..5 {
            let count = road.portal_requests.len();
            road.advance_while(21.0, "another probe", |road| road.portal_requests.len() == count);
            report_probe(&mut road, "wifi", &redirected);
        }
        assert_eq!(portal_events(&road), [("wifi", true)]);
        assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL_URL));
        // A single probe without an answer changes nothing.
        let count = road.portal_requests.len();
        road.advance_while(21.0, "another probe", |road| road.portal_requests.len() == count);
        report_probe(&mut road, "wifi", &PortalProbe::Unanswered);
        assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL_URL));

        // A passenger accepts the terms of the portal, and the network forwards packets.
        road.set_losing_everything("wifi", false);
        report_probe(&mut road, "wifi", &PortalProbe::Passed);
        assert_eq!(portal_of(&road, "wifi"), None);
        road.advance_while(3.0, "carried over wifi", |road| {
            road.transmitting_uplinks().first() != Some(&"wifi")
        });
        road.clear_records();
        road.advance_seconds(120.0);
        assert_eq!(road.portal_requests, []);
    }
}

#[test]
fn router_probes_silent_uplinks_for_portals_one_by_one_and_less_often() {
    let mut road = registered_road(config_with_probes());
    for name in ["wifi", "cell", "sat"] {
        road.set_losing_everything(name, true);
    }
    road.advance_seconds(3600.0);
    let gaps = road.portal_requests.windows(2).map(|pair| pair[1].0.saturating_since(pair[0].0));
    assert!(gaps.min().is_some_and(|gap| gap >= Duration::from_secs(29)), "no result comes: one at a time");
    road.clear_records();
    // In this hour every probe gets its result at once.
    let end = road.now + Duration::from_secs(3600);
    let mut seen = 0;
    while road.now < end {
        road.advance_seconds(0.5);
        while seen < road.portal_requests.len() {
            let name = road.portal_requests[seen].1.clone();
            report_probe(&mut road, &name, &PortalProbe::Unanswered);
            seen += 1;
        }
    }
    for name in ["wifi", "cell", "sat"] {
        let count = road.portal_requests.iter().filter(|(_, uplink, _)| uplink == name).count();
        assert!((4..=20).contains(&count), "{name}: {count}");
    }
    assert_eq!(portal_events(&road), []);
}

#[test]
fn no_probe_is_sent_without_config_or_without_uplink() {
    let mut road = registered_road(config());
    road.set_losing_everything("wifi", true);
    road.advance_seconds(300.0);
    assert_eq!(road.portal_requests, []);
    report_probe(&mut road, "wifi", &PortalProbe::Redirected(PORTAL_URL.into()));
    assert_eq!(portal_of(&road, "wifi"), None);

    let mut road = registered_road(config_with_probes());
    for name in ["wifi", "cell", "sat"] {
        road.detach_uplink(name);
    }
    road.advance_seconds(300.0);
    assert_eq!(road.portal_requests, []);
}

#[test]
fn captive_portal_is_forgotten_with_its_network() {
    let mut road = registered_road(config_with_probes());
    road.set_losing_everything("wifi", true);
    road.advance_while(25.0, "a probe", |road| road.portal_requests.is_empty());
    for rubbish in ["", "https://a b/", "\x1b[2J", &"x".repeat(256)] {
        report_probe(&mut road, "wifi", &PortalProbe::Redirected(rubbish.into()));
        assert_eq!(portal_of(&road, "wifi"), None, "{rubbish:?}");
    }
    report_probe(&mut road, "no such uplink", &PortalProbe::Redirected(PORTAL_URL.into()));
    report_probe(&mut road, "wifi", &PortalProbe::Redirected(PORTAL_URL.into()));
    assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL_URL));
    road.detach_uplink("wifi");
    assert_eq!(portal_of(&road, "wifi"), None);
    // A late result says nothing about the next network.
    report_probe(&mut road, "wifi", &PortalProbe::Redirected(PORTAL_URL.into()));
    assert_eq!(portal_of(&road, "wifi"), None);
}

#[test]
fn late_portal_probe_result_of_former_network_is_ignored() {
    let mut road = registered_road(config_with_probes());
    road.set_losing_everything("wifi", true);
    road.advance_while(25.0, "a probe", |road| road.portal_requests.is_empty());
    road.detach_uplink("wifi");
    road.attach_uplink("wifi", Some("2001:db8:f1::20"), None);
    report_probe(&mut road, "wifi", &PortalProbe::Redirected(PORTAL_URL.into()));
    assert_eq!(portal_of(&road, "wifi"), None);
    assert_eq!(portal_events(&road), []);
    // The router also probes the network that follows.
    road.clear_records();
    road.advance_while(25.0, "a probe", |road| road.portal_requests.is_empty());
    report_probe(&mut road, "wifi", &PortalProbe::Redirected(PORTAL_URL.into()));
    assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL_URL));
}

#[test]
fn changing_portal_answers_do_not_disturb_working_uplink() {
    for config in [config_with_probes(), config_without_identifiers()] {
        let mut road = VehicleOnRoad::new(config);
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
        road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
        road.advance_seconds(5.0);
        road.set_losing_everything("wifi", true);
        road.advance_while(30.0, "carried over cell", |road| {
            road.transmitting_uplinks().first() != Some(&"cell")
        });
        road.clear_records();
        let (mut seen, mut passes) = (0, false);
        let end = road.now + Duration::from_secs(1800);
        while road.now < end {
            road.advance_seconds(0.1);
            assert!(
                road.is_traffic_carried() && road.transmitting_uplinks().first() == Some(&"cell"),
                "{}",
                road.describe_state()
            );
            while seen < road.portal_requests.len() {
                seen += 1;
                passes = !passes;
                let probe =
                    if passes { PortalProbe::Redirected(PORTAL_URL.into()) } else { PortalProbe::Passed };
                report_probe(&mut road, "wifi", &probe);
            }
        }
        assert!(seen > 50);
        assert!(portal_events(&road).len() <= 5 + 1800 / 60, "{}", portal_events(&road).len());
    }
}
