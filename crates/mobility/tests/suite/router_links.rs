//! Mobile router: an uplink that keeps its carrier changes to another link (RFC 6275 11.5.1), or leads
//! nowhere.

use std::time::Duration;

use carnet_mobility::Event;
use carnet_wire::nd::host_configuration::RecursiveDnsServers;

use crate::agent_and_routers::{AgentAndRouters, Link, PairSetup};
use crate::test_messages::*;
use crate::test_setup::autoconfigured_addresses;

const VISITED_NETWORK: &str = "2001:db8:f1::/64";
const OTHER_NETWORK: &str = "2001:db8:f2::/64";
/// Default router of the first network. `ROUTER_B` is that of the second.
const ROUTER_A: &str = "fe80::a";
const ROUTER_B: &str = "fe80::b";

/// Creates a home agent and a router that is registered over wifi in the first network, whose router has
/// advertised.
fn pair_in_first_network() -> AgentAndRouters {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.set_interface(0, "wifi", true, &["fe80::2"], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.register_router();
    pair.advance_seconds(5.0);
    pair.clear_records();
    pair
}

/// Gives wifi these addresses by autoconfiguration, and these default routers.
fn set_addresses_and_routers(pair: &mut AgentAndRouters, addresses: &[&str], routers: &[&str]) {
    set_addresses_with_static_ones(pair, addresses, &[], routers);
}

/// Gives wifi these addresses by autoconfiguration and by the operator, and these default routers.
fn set_addresses_with_static_ones(
    pair: &mut AgentAndRouters,
    addresses: &[&str],
    by_operator: &[&str],
    routers: &[&str],
) {
    let all: Vec<&str> = ["fe80::2"].into_iter().chain(addresses.iter().copied()).collect();
    let mut known = autoconfigured_addresses(&all);
    known.extend(crate::test_setup::addresses(by_operator));
    let routers = routers.iter().map(|router| addr(router).into()).collect();
    pair.set_uplink_state(0, "wifi", known, routers);
}

fn registered_care_of_address(pair: &AgentAndRouters) -> Option<std::net::Ipv6Addr> {
    pair.first_router().uplinks()[0].care_of_address()
}

/// The router of the old network is gone, but the kernel has kept the old address. The uplink uses the
/// address of the router that is there.
#[test]
fn router_registers_at_once_in_new_network_without_carrier_loss() {
    let mut pair = pair_in_first_network();
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)), "no address there yet");
    set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    assert_eq!(
        registered_care_of_address(&pair),
        Some(addr(CARE_OF_ADDRESS)),
        "the old router is still the first"
    );
    set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_B]);
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF_ADDRESS));
    pair.advance_seconds(0.1);
    assert!(pair.is_registered(0));
    // The uplink returns to the first network.
    set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_B, ROUTER_A]);
    assert_eq!(registered_care_of_address(&pair), Some(addr(OTHER_CARE_OF_ADDRESS)));
    set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
}

/// RFC 8910: a router names its captive portal. carnet reports and shows it, and changes no decision.
#[test]
fn the_captive_portal_in_a_router_advertisement_is_reported() {
    let mut pair = pair_in_first_network();
    let told = |pair: &mut AgentAndRouters, router: &str, uri: Option<&[u8]>| {
        let mut message = crate::test_setup::router_advertisement("wifi", router, &[VISITED_NETWORK]);
        if let Some(uri) = uri {
            let units = (2 + uri.len()).div_ceil(8);
            let mut option = vec![37, u8::try_from(units).expect("a length")];
            option.extend(uri);
            option.resize(8 * units, 0);
            message.message.extend(option);
            message.message[2..4].fill(0);
            carnet_wire::icmpv6::set_checksum(&mut message.message, message.source, message.destination);
        }
        pair.clear_records();
        pair.run_on_router(0, |machine, now, wall| machine.handle_link_message(now, wall, &message))
            .expect("a right advertisement");
        let told = |event: &&_| matches!(event, (_, _, Event::CaptivePortal { .. }));
        let events = pair.events.iter().filter(told).count();
        (events, pair.first_router().uplinks()[0].captive_portal().map(str::to_owned))
    };
    let portal = b"https://portal.example/terms";
    let uri = Some("https://portal.example/terms".to_owned());
    assert_eq!(told(&mut pair, ROUTER_A, Some(portal)), (1, uri.clone()));
    assert_eq!(told(&mut pair, ROUTER_A, Some(portal)), (0, uri.clone()));
    assert_eq!(told(&mut pair, ROUTER_B, None), (0, uri));
    assert_eq!(told(&mut pair, ROUTER_A, Some(b"urn:ietf:params:capport:unrestricted")), (0, None));
    assert_eq!(told(&mut pair, ROUTER_A, Some(portal)).0, 1);
    assert_eq!(told(&mut pair, ROUTER_A, None), (0, None));
    assert!(pair.is_registered(0));
}

/// RFC 8106: a host with access to a captive portal asks the DNS servers that a router of the link announces.
#[test]
fn dns_servers_of_router_advertisement_are_valid_for_their_lifetime() {
    let mut pair = pair_in_first_network();
    let announced = |pair: &mut AgentAndRouters, option: Option<(u32, &[&str])>| {
        let mut message = crate::test_setup::router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
        if let Some((lifetime, servers)) = option {
            let servers: Vec<_> = servers.iter().map(|it| addr(it)).collect();
            let mut option = vec![25, u8::try_from(1 + 2 * servers.len()).expect("a length")];
            option.extend(RecursiveDnsServers { lifetime, servers }.emit_data());
            message.message.extend(option);
            message.message[2..4].fill(0);
            carnet_wire::icmpv6::set_checksum(&mut message.message, message.source, message.destination);
        }
        pair.run_on_router(0, |machine, now, wall| machine.handle_link_message(now, wall, &message))
            .expect("a right advertisement");
        let uplink = &pair.first_router().uplinks()[0];
        let at = |seconds| uplink.dns_servers(pair.now + Duration::from_secs(seconds)).to_vec();
        [at(0), at(99), at(100)]
    };
    let [first, second] = ["2001:db8:53::1", "2001:db8:53::2"];
    let both = vec![addr(first), addr(second)];
    // Packets to a link-local server cannot pass the router.
    let servers = ["fe80::53", first, second];
    assert_eq!(announced(&mut pair, Some((100, &servers))), [both.clone(), both.clone(), vec![]]);
    // An advertisement without the DNS option changes nothing.
    assert_eq!(announced(&mut pair, None)[1], both);
    // A lifetime of zero removes one of the servers.
    assert_eq!(announced(&mut pair, Some((0, &[first])))[1], [addr(second)]);
    let many: Vec<String> = (1..=9).map(|number| format!("2001:db8:53::{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(announced(&mut pair, Some((u32::MAX, &many)))[2].len(), 3);
}

/// The kernel's report and the advertisement may come in any order.
#[test]
fn router_moves_to_the_prefix_that_is_advertised_last() {
    let mut pair = pair_in_first_network();
    set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_B, ROUTER_A]);
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    assert_eq!(registered_care_of_address(&pair), Some(addr(OTHER_CARE_OF_ADDRESS)));
}

/// Both routers advertise the prefix in use, so the uplink does not move. When the first router has gone, a
/// Binding Update tests the second one.
#[test]
fn a_second_router_of_the_same_network_changes_nothing() {
    let mut pair = pair_in_first_network();
    pair.receive_router_advertisement("wifi", ROUTER_B, &[VISITED_NETWORK, OTHER_NETWORK]);
    for (routers, updates) in [(&[ROUTER_A, ROUTER_B][..], 0), (&[ROUTER_B, ROUTER_A], 0), (&[ROUTER_B], 1)] {
        set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], routers);
        assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
        assert_eq!(pair.sent_updates().len(), updates);
    }
}

/// The operator's own address, which no router advertises, ranks after addresses that are advertised here,
/// and before addresses of a router that has gone.
#[test]
fn a_static_address_is_used_on_a_link_without_advertisements() {
    let mut pair = pair_in_first_network();
    set_addresses_with_static_ones(&mut pair, &[CARE_OF_ADDRESS], &["2001:db8:f9::9"], &[ROUTER_A]);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
    set_addresses_with_static_ones(&mut pair, &[CARE_OF_ADDRESS], &["2001:db8:f9::9"], &[ROUTER_B]);
    assert_eq!(registered_care_of_address(&pair), Some(addr("2001:db8:f9::9")));
}

/// A default route without gateway leads to the router that advertised last.
#[test]
fn point_to_point_uplink_uses_the_router_that_advertised_last() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS], &["::"]);
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    pair.register_router();
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
    set_addresses_and_routers(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &["::"]);
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF_ADDRESS));
}

// The following tests are about uplinks that are attached but do not reach the home agent.

fn update_sources(pair: &AgentAndRouters) -> Vec<(u64, std::net::Ipv6Addr)> {
    let start = pair.sent_updates()[0].0;
    pair.sent_updates().iter().map(|(at, u)| (at.saturating_since(start).as_secs(), u.source)).collect()
}

/// The preferred uplink has carrier, address and router, but leads nowhere: after three updates the router
/// uses the next uplink.
#[test]
fn router_replaces_uplink_without_answers_by_another() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.attach_both_uplinks();
    pair.advance_seconds(15.0);
    assert!(pair.is_registered(0));
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    let (dead, alive) = (addr(CARE_OF_ADDRESS), addr(OTHER_CARE_OF_ADDRESS));
    assert_eq!(update_sources(&pair), [(0, dead), (1, dead), (4, dead), (10, alive)]);
    assert!(pair.events.iter().any(|(_, _, event)| matches!(
        event,
        Event::Handover { to: Some(to), reason, .. }
            if to == "cell" && reason == "no answer from the home agent over wifi"
    )));
}

/// The registered uplink leads nowhere at a refresh. The router keeps the old path until the new one is
/// acknowledged. After a minute it tries the preferred uplink again, and uses it if it works.
#[test]
fn router_avoids_silently_failed_uplink_for_a_while() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_both_uplinks();
    pair.register_router();
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.advance_seconds(52.5); // the refresh was due at 45 s
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    assert!(pair.is_registered(0));
    pair.clear_records();
    pair.advance_seconds(58.0);
    assert!(pair.sent_updates().iter().all(|(_, update)| update.source == addr(OTHER_CARE_OF_ADDRESS)));
    for _ in 0..300 {
        pair.advance_seconds(0.1);
        assert_eq!(
            pair.path_of_first_router(),
            Some(addr(OTHER_CARE_OF_ADDRESS)),
            "the trial changes nothing"
        );
    }
    let trials =
        pair.sent_updates().iter().filter(|(_, update)| update.source == addr(CARE_OF_ADDRESS)).count();
    assert_eq!(trials, 3);
    pair.dead_addresses.clear();
    pair.advance_seconds(60.0);
    assert!(pair.is_registered(0));
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
}

/// Waiting traffic causes more updates, but the uplink is given up no earlier.
#[test]
fn waiting_traffic_does_not_keep_a_dead_uplink() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.attach_both_uplinks();
    for _ in 0..90 {
        pair.send_data_packet(0);
        pair.advance_seconds(0.1);
    }
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    assert_eq!(
        pair.sent_updates().iter().filter(|(_, update)| update.source == addr(CARE_OF_ADDRESS)).count(),
        4
    );
}

/// A demotion ends when the uplink has lost and regained its attachment, or by the operator's command.
#[test]
fn demotion_of_an_uplink_ends_by_reattachment_or_operator_command() {
    for by_operator in [true, false] {
        let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
        pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
        pair.attach_both_uplinks();
        pair.advance_seconds(15.0);
        assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
        pair.dead_addresses.clear();
        if by_operator {
            pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, None))
                .expect("handover");
        } else {
            pair.detach_uplink(0, "wifi");
            pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
        }
        pair.advance_seconds(2.0);
        assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
    }
}

/// The router does not give up an uplink that the operator has forced.
#[test]
fn a_forced_uplink_is_not_demoted() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.attach_both_uplinks();
    pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, Some("wifi")))
        .expect("handover");
    pair.advance_seconds(120.0);
    assert!(pair.sent_updates().iter().all(|(_, update)| update.source == addr(CARE_OF_ADDRESS)));
}

/// The home agent is down: the router tries each uplink in turn, then the back-off continues without flapping
/// between uplinks. When the home agent is back, the router finds an uplink that works.
#[test]
fn unreachable_home_agent_causes_no_uplink_flapping() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_both_uplinks();
    pair.register_router();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.advance_seconds(120.0);
    pair.clear_records();
    pair.advance_seconds(1800.0);
    let sources = update_sources(&pair);
    assert!(sources.len() < 90, "{} updates in half an hour", sources.len());
    let changes = sources.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    assert!(changes <= 30, "{changes} changes in half an hour");
    assert!(changes > 2, "each has its turn");
    pair.link_conditions = Link::LOSSLESS;
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.advance_seconds(200.0);
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
}

/// With one uplink the router follows the back-off of RFC 6275 11.8 in all cases.
#[test]
fn router_keeps_its_only_uplink_without_answers() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(100.0);
    assert_eq!(update_sources(&pair).iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 4, 10, 22, 46, 78]);
}
