//! Mobile router: uplinks come and go (RFC 6275 11.5, 11.5.4) and traffic follows.

use std::time::Duration;

use carnet_mobility::mobile_router::State;
use carnet_mobility::{Event, OLD_PATH_GRACE};
use carnet_wire::icmpv6;

use crate::agent_and_routers::{AgentAndRouters, Link, PairSetup};
use crate::test_messages::*;
use crate::test_setup::autoconfigured_addresses;

fn registered_pair() -> AgentAndRouters {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_both_uplinks();
    pair.register_router();
    pair.advance_seconds(5.0);
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)), "wifi is preferred");
    pair.clear_records();
    pair
}

/// RFC 3963 5.3: the router tunnels nothing before the acknowledgement.
#[test]
fn router_has_no_path_before_the_first_acknowledgement() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    assert_eq!(pair.first_router().state(), State::Disconnected);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    assert_eq!(pair.path_of_first_router(), None);
    pair.advance_seconds(0.015);
    assert_eq!(pair.path_of_first_router(), None);
    pair.advance_seconds(0.01);
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
}

/// A refresh with an unchanged care-of address changes nothing that forwarding uses.
#[test]
fn a_refresh_changes_no_forwarding_state() {
    let mut pair = registered_pair();
    let seen = |pair: &AgentAndRouters| {
        (pair.path_of_first_router(), pair.first_router().active_uplink(), pair.first_router().paths())
    };
    let before = seen(&pair);
    let end = pair.now + Duration::from_secs(300);
    while pair.handle_next_event(end) {
        assert_eq!(seen(&pair), before);
    }
    assert!(pair.sent_updates().len() >= 5);
    assert!(!pair.events.iter().any(|(_, _, event)| matches!(event, Event::Handover { .. })));
}

/// Make before break: the old uplink, while it works, carries the traffic until the acknowledgement.
#[test]
fn the_old_path_stays_until_the_acknowledgement() {
    let mut pair = registered_pair();
    pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, Some("cell")))
        .expect("handover");
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF_ADDRESS));
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
    pair.advance_seconds(0.015);
    assert_eq!(
        pair.path_of_first_router(),
        Some(addr(CARE_OF_ADDRESS)),
        "the home agent has it, the answer is on its way"
    );
    assert_eq!(pair.registered_care_of_address(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    pair.advance_seconds(0.01);
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
}

/// Make before break with a long silence: the old uplink still carries the traffic.
#[test]
fn the_old_path_stays_while_the_new_one_is_not_acknowledged() {
    let mut pair = registered_pair();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, Some("cell")))
        .expect("handover");
    pair.advance_seconds(20.0);
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
    pair.advance_seconds(60.0);
    assert_eq!(pair.path_of_first_router(), None, "the registration has ended");
}

/// A hard cut: the path changes at the instant at which the Binding Update leaves.
#[test]
fn router_sends_traffic_right_after_the_update_after_link_loss() {
    let mut pair = registered_pair();
    pair.detach_uplink(0, "wifi");
    let (sent, update) = pair.sent_updates().remove(0);
    assert_eq!(sent, pair.now);
    assert_eq!(update.source, addr(OTHER_CARE_OF_ADDRESS));
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    assert!(pair.events.iter().any(|(at, _, event)| {
        *at == sent && matches!(event, Event::Handover { to: Some(to), .. } if to == "cell")
    }));
    pair.advance_seconds(0.1);
    assert!(pair.is_registered(0));
}

/// A hard cut with the rate limit reached: the router sends no data before the update that announces the new
/// address.
#[test]
fn router_sends_no_data_before_the_update_after_link_loss() {
    let mut pair = registered_pair();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    for round in 0..6 {
        pair.clear_records();
        let address = format!("2001:db8:f{}::10", 3 + round);
        pair.detach_uplink(0, "cell");
        pair.attach_uplink(0, "wifi", &address);
        let sent = pair.sent_updates().iter().any(|(_, update)| update.source == addr(&address));
        assert_eq!(pair.path_of_first_router(), sent.then(|| addr(&address)), "round {round}");
    }
}

/// The router at once registers a new address on the same uplink (a new access network).
#[test]
fn a_renumbered_uplink_is_registered_at_once() {
    let mut pair = registered_pair();
    pair.attach_uplink(0, "wifi", "2001:db8:f3::10");
    assert_eq!(pair.last_update().source, addr("2001:db8:f3::10"));
    pair.advance_seconds(0.1);
    assert!(pair.is_registered(0));
    assert_eq!(pair.registered_care_of_address(), Some(addr("2001:db8:f3::10")));
}

/// A preferred uplink that comes back must be up for UPLINK_SETTLING_TIME first if another one works.
#[test]
fn a_preferred_uplink_must_stay_up_before_it_is_used_again() {
    let mut pair = registered_pair();
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(10.0);
    pair.clear_records();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let back = pair.now;
    pair.advance_seconds(0.99);
    assert!(pair.sent_updates().is_empty());
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    pair.advance_seconds(0.1);
    assert_eq!(pair.sent_updates()[0].0, back + Duration::from_secs(1));
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
    assert!(pair.is_registered(0));
}

/// A flapping preferred uplink does not draw the traffic back and forth.
#[test]
fn router_does_not_return_to_flapping_preferred_uplink() {
    let mut pair = registered_pair();
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(10.0);
    pair.clear_records();
    for _ in 0..20 {
        pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
        pair.advance_seconds(0.8);
        pair.detach_uplink(0, "wifi");
        pair.advance_seconds(0.5);
    }
    assert!(pair.sent_updates().iter().all(|(_, update)| update.source == addr(OTHER_CARE_OF_ADDRESS)));
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
}

/// A router without a working uplink uses an uplink as soon as it comes up.
#[test]
fn the_only_uplink_is_used_at_once() {
    let mut pair = registered_pair();
    pair.detach_uplink(0, "wifi");
    pair.detach_uplink(0, "cell");
    pair.advance_seconds(1.0);
    assert_eq!(pair.path_of_first_router(), None);
    pair.clear_records();
    pair.attach_uplink(0, "wifi", "2001:db8:f3::10");
    assert_eq!(pair.sent_updates().len(), 1);
    // The wait also ends when the working uplink fails before the preferred one has been up for
    // UPLINK_SETTLING_TIME.
    let mut pair = registered_pair();
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(10.0);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(0.3);
    pair.clear_records();
    pair.detach_uplink(0, "cell");
    assert_eq!(pair.last_update().source, addr(CARE_OF_ADDRESS));
}

/// The uplink loses carrier and regains it with the same address within the lifetime: the home agent still
/// has the binding.
#[test]
fn short_carrier_loss_of_registered_uplink_needs_no_update() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.advance_seconds(5.0);
    pair.clear_records();
    pair.detach_uplink(0, "wifi");
    assert_eq!(pair.path_of_first_router(), None);
    pair.advance_seconds(0.2);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
    pair.advance_seconds(100.0);
    assert!(pair.is_registered(0), "and it is refreshed in time");
}

/// After an update from another uplink, which may have reached the home agent, the router registers again.
#[test]
fn interrupted_registration_is_completed() {
    let mut pair = registered_pair();
    pair.detach_uplink(0, "wifi"); // an update from cell leaves and arrives,
    pair.advance_seconds(0.012);
    pair.detach_uplink(0, "cell"); // its answer does not
    pair.advance_seconds(0.1);
    assert_eq!(pair.registered_care_of_address(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(0.1);
    assert_eq!(pair.registered_care_of_address(), Some(addr(CARE_OF_ADDRESS)));
    assert!(pair.is_registered(0));
}

/// The acknowledgement is lost, and the router returns to the first uplink by its own decision: it registers
/// again.
#[test]
fn router_that_returns_to_old_uplink_before_the_answer_registers_again() {
    let mut pair = registered_pair();
    pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, Some("cell")))
        .expect("handover");
    pair.advance_seconds(0.012);
    pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, Some("wifi")))
        .expect("handover");
    pair.advance_seconds(0.1);
    assert_eq!(pair.registered_care_of_address(), Some(addr(CARE_OF_ADDRESS)));
    assert!(pair.is_registered(0));
}

/// RFC 6275 11.5.4: after a move the router "SHOULD still accept packets at this address", the old care-of
/// address.
#[test]
fn packets_to_old_care_of_address_are_accepted() {
    let accepted = |pair: &AgentAndRouters| -> Vec<_> {
        pair.first_router().paths().iter().filter_map(|path| path.local.ipv6()).collect()
    };
    let mut pair = registered_pair();
    pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, Some("cell")))
        .expect("handover");
    pair.advance_seconds(60.0);
    assert_eq!(
        accepted(&pair),
        [addr(OTHER_CARE_OF_ADDRESS), addr(CARE_OF_ADDRESS)],
        "the path first, while both are attached"
    );
    // The uplink gets another address, but keeps the old one for a while.
    let mut pair = registered_pair();
    pair.set_interface(0, "wifi", true, &["fe80::2", "2001:db8:f3::10", CARE_OF_ADDRESS], &["fe80::ff"]);
    pair.advance_seconds(1.0);
    pair.detach_uplink(0, "cell");
    assert!(accepted(&pair).contains(&addr(CARE_OF_ADDRESS)));
    pair.advance_seconds(OLD_PATH_GRACE.as_secs_f64() + 60.0);
}

/// The router accepts packets at the old address also across a reload.
#[test]
fn reload_keeps_accepting_packets_to_old_care_of_address() {
    let mut pair = registered_pair();
    pair.detach_uplink(0, "cell");
    pair.receive_router_advertisement("wifi", "fe80::a", &["2001:db8:f3::/64"]);
    let addresses = autoconfigured_addresses(&["fe80::2", "2001:db8:f3::10", CARE_OF_ADDRESS]);
    pair.set_uplink_state(0, "wifi", addresses, vec![addr("fe80::a").into()]);
    pair.advance_seconds(1.0);
    let accepted = |pair: &AgentAndRouters| {
        pair.first_router().paths().iter().any(|path| path.local == addr(CARE_OF_ADDRESS))
    };
    assert!(accepted(&pair));
    pair.reconfigure_router(0);
    assert!(accepted(&pair));
    pair.advance_seconds(OLD_PATH_GRACE.as_secs_f64());
    assert!(!accepted(&pair));
}

/// Conformance item 64; RFC 3963 5.6: on a visited link the router sends no Neighbor Discovery messages but
/// Router Solicitations.
#[test]
fn router_sends_only_router_solicitations_on_visited_link() {
    let mut pair = registered_pair();
    pair.set_interface(0, "wifi", false, &[], &[]);
    pair.set_interface(0, "wifi", true, &["fe80::2"], &[]);
    pair.advance_seconds(100.0);
    assert!(!pair.link_messages.is_empty());
    for (_, _, message) in &pair.link_messages {
        assert_eq!(message.message[0], icmpv6::message_type::ROUTER_SOLICITATION);
        assert_eq!(message.hop_limit, 255);
    }
    assert!(pair.link_messages.len() < 20, "{} solicitations", pair.link_messages.len());
}

/// A router that is being shut down de-registers from the address that its traffic uses.
#[test]
fn shutdown_deregisters_the_router() {
    let mut pair = registered_pair();
    pair.run_on_router(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    let update = pair.last_update();
    assert_eq!(update.lifetime(), 0);
    assert_eq!(update.source, addr(CARE_OF_ADDRESS));
    assert!(update.options().prefixes.is_empty(), "RFC 3963 5.8");
    assert_eq!(pair.path_of_first_router(), None);
    assert!(!pair.first_router().is_quiescent());
    pair.advance_seconds(0.1);
    assert!(pair.first_router().is_quiescent());
    assert_eq!(pair.registered_care_of_address(), None);
    pair.clear_records();
    pair.advance_seconds(300.0);
    assert!(pair.sent_updates().is_empty());
}

/// The home agent does not answer: the router sends three de-registrations and stops.
#[test]
fn a_shutdown_without_answer_ends_after_three_updates() {
    let mut pair = registered_pair();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.run_on_router(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    pair.advance_seconds(10.0);
    assert_eq!(pair.sent_updates().len(), 3);
    assert!(pair.first_router().is_quiescent());
}

/// Without a registration a shutdown needs no de-registration, unless an update on its way may have arrived.
#[test]
fn a_shutdown_before_the_first_answer_deregisters_as_well() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.run_on_router(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    assert!(pair.first_router().is_quiescent());
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(0.012);
    assert!(pair.registered_care_of_address().is_some());
    pair.run_on_router(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    pair.advance_seconds(1.0);
    assert_eq!(pair.registered_care_of_address(), None);
    assert!(pair.first_router().is_quiescent());
}

/// Two routers at one home agent have independent bindings.
#[test]
fn two_routers_do_not_disturb_each_other() {
    let mut setup = PairSetup::plain_setup();
    setup
        .agent
        .nodes
        .push(crate::agent::authorized_node("2001:db8:1::5678", &[SECOND_MOBILE_NETWORK_PREFIX]));
    let mut second = setup.routers[0].clone();
    second.home_address = addr("2001:db8:1::5678");
    second.prefixes = vec![net(SECOND_MOBILE_NETWORK_PREFIX)];
    setup.routers.push(second);
    let mut pair = AgentAndRouters::new(setup);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.attach_uplink(1, "wifi", "2001:db8:f1::20");
    pair.advance_seconds(1.0);
    pair.attach_uplink(1, "wifi", "2001:db8:f4::20");
    pair.advance_seconds(100.0);
    assert!(pair.is_registered(0) && pair.is_registered(1));
}
