//! Tests of the rules for packets of the router's own programs: some lead these packets into the tunnel,
//! others keep them outside.

mod common;

use carnet_base::mapped::{self, ALL_IPV4_PREFIX};
use carnet_base::{Rng, Time};
use carnet_nemo::forwarding::desired::{ForwardingEntry, Rule, TABLE_MAIN, TABLE_OWN_TRAFFIC, priority};
use carnet_nemo::forwarding::packet_rules::Mark;
use carnet_station::io::Input;
use carnet_station::{OwnTraffic, PersistentState, Station, StationConfig};
use common::{AGENT_ADDRESS, HOME_ADDRESS, WALL_TIME, interface, router_config};

const CARE_OF_ADDRESS: &str = "2001:db8:f1::10";

/// Returns a station with this setting for the router's own packets, one uplink and one interface on board.
fn station_with_own_traffic(own_traffic: OwnTraffic) -> Station {
    let mut config: StationConfig = router_config(&["2001:db8:a::/64"]);
    config.mobile_router.as_mut().expect("a mobile router").own_traffic = own_traffic;
    let mut station = Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
    while station.poll_output().is_some() {}
    let mut uplink = interface("w0", CARE_OF_ADDRESS, true);
    uplink.ipv4_addresses = vec!["192.0.2.10/24".parse().expect("an address")];
    for interface in [uplink, interface("i0", "2001:db8:a::1", true)] {
        station.handle_input(Time::ZERO, WALL_TIME, Input::Interface(interface)).expect("accepted");
        while station.poll_output().is_some() {}
    }
    station
}

/// Returns the rules from this priority on, as text.
fn describe_rules(station: &Station) -> Vec<String> {
    let text = |rule: &Rule| {
        let mark = rule.mark == Some(Mark { mask: u32::MAX, value: 0 });
        assert_eq!(rule.input_interface.as_deref(), Some("lo"));
        format!(
            "{} {} {} {}{}{}",
            rule.priority,
            rule.from.map_or("any".into(), mapped::format_prefix),
            rule.to.map_or("any".into(), mapped::format_prefix),
            rule.table,
            if mark { " unmarked" } else { "" },
            if rule.without_default { " specific" } else { "" },
        )
    };
    let own = priority::OWN_TRAFFIC_OUTSIDE_TUNNEL..=priority::OWN_TRAFFIC;
    let rules = station.nemo().desired_entries().filter_map(|entry| match entry {
        ForwardingEntry::Rule(rule) if own.contains(&rule.priority) => Some(text(rule)),
        _ => None,
    });
    rules.collect()
}

#[test]
fn own_traffic_takes_the_tunnel_only_if_configured() {
    assert_eq!(describe_rules(&station_with_own_traffic(OwnTraffic::Uplinks)), Vec::<String>::new());
    let station = station_with_own_traffic(OwnTraffic::Tunnel);
    let outside = priority::OWN_TRAFFIC_OUTSIDE_TUNNEL;
    let mut expected = vec![
        format!("{outside} any {AGENT_ADDRESS}/128 {TABLE_MAIN}"),
        format!("{outside} {CARE_OF_ADDRESS}/128 any {TABLE_MAIN}"),
        // Without an IPv4 network on board, IPv4 packets of the router's own programs stay outside the
        // tunnel. Answers from 192.0.2.10 stay outside in any case.
        format!("{outside} 192.0.2.10/32 any {TABLE_MAIN}"),
        format!("{} any any {TABLE_MAIN} specific", priority::OWN_SPECIFIC_ROUTES),
        format!("{} any any {TABLE_OWN_TRAFFIC} unmarked", priority::OWN_TRAFFIC),
    ];
    let mut found = describe_rules(&station);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let sources: Vec<_> = station
        .nemo()
        .desired_entries()
        .filter_map(|entry| match entry {
            ForwardingEntry::Route(route) if route.table == TABLE_OWN_TRAFFIC => Some(route),
            _ => None,
        })
        .map(|route| (route.leads_into_tunnel_device(), route.source.clone()))
        .collect();
    let home = Some(Box::new(HOME_ADDRESS.parse().expect("an address")));
    assert!(sources.contains(&(true, home)) && sources.contains(&(false, None)), "{sources:?}");
    let is_of_ipv4 = |entry: &ForwardingEntry| {
        matches!(entry, ForwardingEntry::Route(route)
        if route.destination == ALL_IPV4_PREFIX)
    };
    assert!(!station.nemo().desired_entries().any(is_of_ipv4));
    // The rules for carnet's own packets from a care-of address match before the rules for the router's other
    // programs.
    const { assert!(priority::FROM_CARE_OF_ADDRESS < priority::OWN_TRAFFIC_OUTSIDE_TUNNEL) };
    const { assert!(priority::FROM_MOBILE_NETWORK < priority::OWN_TRAFFIC_OUTSIDE_TUNNEL) };
}
