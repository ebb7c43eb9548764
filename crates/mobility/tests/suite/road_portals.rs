//! Captive portals: a probe finds them on an uplink over which the home agent does not answer.

use std::time::Duration;

use carnet_mobility::Event;
use carnet_mobility::mobile_router::{MobileRouterConfig, PortalProbe};

use crate::road::*;

const PORTAL: &str = "https://portal.example/terms";

fn probing() -> MobileRouterConfig {
    MobileRouterConfig { probes_portals: true, ..config() }
}

fn registered(config: MobileRouterConfig) -> Road {
    let mut road = Road::new(config);
    road.attach_all();
    road.run(5.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(road.probes, [], "every uplink has answers");
    road.forget();
    road
}

fn without_identifiers() -> MobileRouterConfig {
    let mut config = probing();
    config.uplinks.iter_mut().for_each(|uplink| uplink.bid = None);
    config
}

fn probed(road: &mut Road, name: &str, probe: &PortalProbe) {
    road.router_does(|router, now, wall| router.handle_portal_probe(now, wall, name, probe));
}

fn portal_of(road: &Road, name: &str) -> Option<String> {
    let uplink = road.router.uplink_called(name).expect("an uplink");
    road.router.uplinks()[uplink].captive_portal().map(str::to_owned)
}

/// Takes the events about portals: the uplink, and whether a probe was redirected.
fn told(road: &Road) -> Vec<(&str, bool)> {
    let of = |event| match event {
        &Event::CaptivePortal { ref uplink, redirects, .. } => Some((uplink.as_str(), redirects)),
        _ => None,
    };
    road.events.iter().filter_map(|(_, event)| of(event)).collect()
}

#[test]
fn captive_portal_is_found_and_uplink_returns_after_login() {
    for config in [probing(), without_identifiers()] {
        let mut road = Road::new(config);
        road.attach("wifi", Some("2001:db8:f1::10"), None);
        road.attach("cell", Some("2001:db8:f2::10"), None);
        road.run(5.0);
        road.forget();
        road.black_hole("wifi", true);
        road.run_while(25.0, "a probe", |road| road.probes.is_empty());
        assert_eq!(road.probes[0].1, "wifi");
        assert_eq!(road.probes[0].2, ["2001:db8:f1::10".parse::<std::net::IpAddr>().expect("an address")]);
        assert_eq!(portal_of(&road, "wifi"), None);

        let redirected = PortalProbe::Redirected(PORTAL.into());
        probed(&mut road, "wifi", &redirected);
        assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL));
        assert_eq!(told(&road), [("wifi", true)]);
        // The router repeats the probe, and reports the portal once.
        for _ in 0..5 {
            let count = road.probes.len();
            road.run_while(21.0, "another probe", |road| road.probes.len() == count);
            probed(&mut road, "wifi", &redirected);
        }
        assert_eq!(told(&road), [("wifi", true)]);
        assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL));
        // One missing answer changes nothing.
        let count = road.probes.len();
        road.run_while(21.0, "another probe", |road| road.probes.len() == count);
        probed(&mut road, "wifi", &PortalProbe::Unanswered);
        assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL));

        // A passenger accepts the terms.
        road.black_hole("wifi", false);
        probed(&mut road, "wifi", &PortalProbe::Passed);
        assert_eq!(portal_of(&road, "wifi"), None);
        road.run_while(3.0, "carried over wifi", |road| road.transmits().first() != Some(&"wifi"));
        road.forget();
        road.run(120.0);
        assert_eq!(road.probes, []);
    }
}

#[test]
fn uplinks_without_any_answer_are_probed_one_at_a_time_and_ever_more_seldom() {
    let mut road = registered(probing());
    for name in ["wifi", "cell", "sat"] {
        road.black_hole(name, true);
    }
    road.run(3600.0);
    let gaps = road.probes.windows(2).map(|pair| pair[1].0.saturating_since(pair[0].0));
    assert!(gaps.min().is_some_and(|gap| gap >= Duration::from_secs(29)), "no result comes: one at a time");
    road.forget();
    // Every probe gets its result at once.
    let end = road.now + Duration::from_secs(3600);
    let mut seen = 0;
    while road.now < end {
        road.run(0.5);
        while seen < road.probes.len() {
            let name = road.probes[seen].1.clone();
            probed(&mut road, &name, &PortalProbe::Unanswered);
            seen += 1;
        }
    }
    for name in ["wifi", "cell", "sat"] {
        let count = road.probes.iter().filter(|(_, uplink, _)| uplink == name).count();
        assert!((4..=20).contains(&count), "{name}: {count}");
    }
    assert_eq!(told(&road), []);
}

#[test]
fn no_probe_is_sent_without_config_or_without_uplink() {
    let mut road = registered(config());
    road.black_hole("wifi", true);
    road.run(300.0);
    assert_eq!(road.probes, []);
    probed(&mut road, "wifi", &PortalProbe::Redirected(PORTAL.into()));
    assert_eq!(portal_of(&road, "wifi"), None);

    let mut road = registered(probing());
    for name in ["wifi", "cell", "sat"] {
        road.detach(name);
    }
    road.run(300.0);
    assert_eq!(road.probes, []);
}

#[test]
fn captive_portal_is_forgotten_with_its_network() {
    let mut road = registered(probing());
    road.black_hole("wifi", true);
    road.run_while(25.0, "a probe", |road| road.probes.is_empty());
    for rubbish in ["", "https://a b/", "\x1b[2J", &"x".repeat(256)] {
        probed(&mut road, "wifi", &PortalProbe::Redirected(rubbish.into()));
        assert_eq!(portal_of(&road, "wifi"), None, "{rubbish:?}");
    }
    probed(&mut road, "no such uplink", &PortalProbe::Redirected(PORTAL.into()));
    probed(&mut road, "wifi", &PortalProbe::Redirected(PORTAL.into()));
    assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL));
    road.detach("wifi");
    assert_eq!(portal_of(&road, "wifi"), None);
    // A late result says nothing about the next network.
    probed(&mut road, "wifi", &PortalProbe::Redirected(PORTAL.into()));
    assert_eq!(portal_of(&road, "wifi"), None);
}

#[test]
fn late_portal_probe_result_of_former_network_is_ignored() {
    let mut road = registered(probing());
    road.black_hole("wifi", true);
    road.run_while(25.0, "a probe", |road| road.probes.is_empty());
    road.detach("wifi");
    road.attach("wifi", Some("2001:db8:f1::20"), None);
    probed(&mut road, "wifi", &PortalProbe::Redirected(PORTAL.into()));
    assert_eq!(portal_of(&road, "wifi"), None);
    assert_eq!(told(&road), []);
    // The router also probes the network that follows.
    road.forget();
    road.run_while(25.0, "a probe", |road| road.probes.is_empty());
    probed(&mut road, "wifi", &PortalProbe::Redirected(PORTAL.into()));
    assert_eq!(portal_of(&road, "wifi").as_deref(), Some(PORTAL));
}

#[test]
fn changing_portal_answers_do_not_disturb_working_uplink() {
    for config in [probing(), without_identifiers()] {
        let mut road = Road::new(config);
        road.attach("wifi", Some("2001:db8:f1::10"), None);
        road.attach("cell", Some("2001:db8:f2::10"), None);
        road.run(5.0);
        road.black_hole("wifi", true);
        road.run_while(30.0, "carried over cell", |road| road.transmits().first() != Some(&"cell"));
        road.forget();
        let (mut seen, mut passes) = (0, false);
        let end = road.now + Duration::from_secs(1800);
        while road.now < end {
            road.run(0.1);
            assert!(road.is_carried() && road.transmits().first() == Some(&"cell"), "{}", road.describe());
            while seen < road.probes.len() {
                seen += 1;
                passes = !passes;
                let probe = if passes { PortalProbe::Redirected(PORTAL.into()) } else { PortalProbe::Passed };
                probed(&mut road, "wifi", &probe);
            }
        }
        assert!(seen > 50);
        assert!(told(&road).len() <= 5 + 1800 / 60, "{}", told(&road).len());
    }
}
