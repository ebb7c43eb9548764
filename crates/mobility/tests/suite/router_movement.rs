//! Mobile router: uplinks come and go (RFC 6275 11.5, 11.5.4) and traffic follows.

use std::time::Duration;

use carnet_mobility::mobile_router::State;
use carnet_mobility::{Event, OLD_PATH_GRACE};
use carnet_wire::icmpv6;

use crate::craft::*;
use crate::pair::{Link, Pair, Setup};
use crate::setup::autoconfigured;

fn registered() -> Pair {
    let mut pair = Pair::new(Setup::plain());
    pair.attach_both();
    pair.register();
    pair.run(5.0);
    assert_eq!(pair.path(), Some(addr(CARE_OF)), "wifi is preferred");
    pair.forget();
    pair
}

/// RFC 3963 5.3: the router tunnels nothing before the acknowledgement.
#[test]
fn there_is_no_path_before_the_first_acknowledgement() {
    let mut pair = Pair::new(Setup::plain());
    assert_eq!(pair.machine().state(), State::Disconnected);
    pair.attach(0, "wifi", CARE_OF);
    assert_eq!(pair.path(), None);
    pair.run(0.015);
    assert_eq!(pair.path(), None);
    pair.run(0.01);
    assert_eq!(pair.path(), Some(addr(CARE_OF)));
}

/// A refresh with an unchanged care-of address changes nothing that forwarding uses.
#[test]
fn a_refresh_changes_no_forwarding_state() {
    let mut pair = registered();
    let seen = |pair: &Pair| (pair.path(), pair.machine().active_uplink(), pair.machine().paths());
    let before = seen(&pair);
    let end = pair.now + Duration::from_secs(300);
    while pair.step(end) {
        assert_eq!(seen(&pair), before);
    }
    assert!(pair.updates().len() >= 5);
    assert!(!pair.events.iter().any(|(_, _, event)| matches!(event, Event::Handover { .. })));
}

/// Make before break: the old uplink, while it works, carries the traffic until the acknowledgement.
#[test]
fn the_old_path_stays_until_the_acknowledgement() {
    let mut pair = registered();
    pair.router_does(0, |machine, now, wall| machine.handle_handover(now, wall, Some("cell")))
        .expect("handover");
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF));
    assert_eq!(pair.path(), Some(addr(CARE_OF)));
    pair.run(0.015);
    assert_eq!(pair.path(), Some(addr(CARE_OF)), "the home agent has it, the answer is on its way");
    assert_eq!(pair.bound(), Some(addr(OTHER_CARE_OF)));
    pair.run(0.01);
    assert_eq!(pair.path(), Some(addr(OTHER_CARE_OF)));
}

/// Make before break with a long silence: the old uplink still carries the traffic.
#[test]
fn the_old_path_stays_while_the_new_one_is_not_acknowledged() {
    let mut pair = registered();
    pair.conditions = Link::LOSING_EVERYTHING;
    pair.router_does(0, |machine, now, wall| machine.handle_handover(now, wall, Some("cell")))
        .expect("handover");
    pair.run(20.0);
    assert_eq!(pair.path(), Some(addr(CARE_OF)));
    pair.run(60.0);
    assert_eq!(pair.path(), None, "the registration has ended");
}

/// A hard cut: the path changes at the instant at which the Binding Update leaves.
#[test]
fn after_a_hard_cut_traffic_follows_the_update_at_once() {
    let mut pair = registered();
    pair.detach(0, "wifi");
    let (sent, update) = pair.updates().remove(0);
    assert_eq!(sent, pair.now);
    assert_eq!(update.source, addr(OTHER_CARE_OF));
    assert_eq!(pair.path(), Some(addr(OTHER_CARE_OF)));
    assert!(pair.events.iter().any(|(at, _, event)| {
        *at == sent && matches!(event, Event::Handover { to: Some(to), .. } if to == "cell")
    }));
    pair.run(0.1);
    assert!(pair.is_registered(0));
}

/// A hard cut with the rate limit reached: the router sends no data before the update that announces the new
/// address.
#[test]
fn after_a_hard_cut_no_data_precede_the_update() {
    let mut pair = registered();
    pair.conditions = Link::LOSING_EVERYTHING;
    for round in 0..6 {
        pair.forget();
        let address = format!("2001:db8:f{}::10", 3 + round);
        pair.detach(0, "cell");
        pair.attach(0, "wifi", &address);
        let sent = pair.updates().iter().any(|(_, update)| update.source == addr(&address));
        assert_eq!(pair.path(), sent.then(|| addr(&address)), "round {round}");
    }
}

/// The router at once registers a new address on the same uplink (a new access network).
#[test]
fn a_renumbered_uplink_is_registered_at_once() {
    let mut pair = registered();
    pair.attach(0, "wifi", "2001:db8:f3::10");
    assert_eq!(pair.last_update().source, addr("2001:db8:f3::10"));
    pair.run(0.1);
    assert!(pair.is_registered(0));
    assert_eq!(pair.bound(), Some(addr("2001:db8:f3::10")));
}

/// A preferred uplink that comes back must be up for SETTLING_TIME first if another one works.
#[test]
fn a_preferred_uplink_must_stay_up_before_it_is_used_again() {
    let mut pair = registered();
    pair.detach(0, "wifi");
    pair.run(10.0);
    pair.forget();
    pair.attach(0, "wifi", CARE_OF);
    let back = pair.now;
    pair.run(0.99);
    assert!(pair.updates().is_empty());
    assert_eq!(pair.path(), Some(addr(OTHER_CARE_OF)));
    pair.run(0.1);
    assert_eq!(pair.updates()[0].0, back + Duration::from_secs(1));
    assert_eq!(pair.path(), Some(addr(CARE_OF)));
    assert!(pair.is_registered(0));
}

/// A flapping preferred uplink does not draw the traffic back and forth.
#[test]
fn a_flapping_preferred_uplink_is_left_alone() {
    let mut pair = registered();
    pair.detach(0, "wifi");
    pair.run(10.0);
    pair.forget();
    for _ in 0..20 {
        pair.attach(0, "wifi", CARE_OF);
        pair.run(0.8);
        pair.detach(0, "wifi");
        pair.run(0.5);
    }
    assert!(pair.updates().iter().all(|(_, update)| update.source == addr(OTHER_CARE_OF)));
    assert_eq!(pair.path(), Some(addr(OTHER_CARE_OF)));
}

/// Without a working uplink the router does not wait.
#[test]
fn the_only_uplink_is_used_at_once() {
    let mut pair = registered();
    pair.detach(0, "wifi");
    pair.detach(0, "cell");
    pair.run(1.0);
    assert_eq!(pair.path(), None);
    pair.forget();
    pair.attach(0, "wifi", "2001:db8:f3::10");
    assert_eq!(pair.updates().len(), 1);
    // The wait also ends when the working uplink fails while the other settles.
    let mut pair = registered();
    pair.detach(0, "wifi");
    pair.run(10.0);
    pair.attach(0, "wifi", CARE_OF);
    pair.run(0.3);
    pair.forget();
    pair.detach(0, "cell");
    assert_eq!(pair.last_update().source, addr(CARE_OF));
}

/// The uplink loses carrier and regains it with the same address within the lifetime: the home agent still
/// has the binding.
#[test]
fn short_carrier_loss_of_registered_uplink_needs_no_update() {
    let mut pair = Pair::new(Setup::plain());
    pair.attach(0, "wifi", CARE_OF);
    pair.register();
    pair.run(5.0);
    pair.forget();
    pair.detach(0, "wifi");
    assert_eq!(pair.path(), None);
    pair.run(0.2);
    pair.attach(0, "wifi", CARE_OF);
    assert_eq!(pair.path(), Some(addr(CARE_OF)));
    pair.run(100.0);
    assert!(pair.is_registered(0), "and it is refreshed in time");
}

/// After an update from another uplink, which may have reached the home agent, the router registers again.
#[test]
fn interrupted_registration_is_completed() {
    let mut pair = registered();
    pair.detach(0, "wifi"); // an update from cell leaves and arrives,
    pair.run(0.012);
    pair.detach(0, "cell"); // its answer does not
    pair.run(0.1);
    assert_eq!(pair.bound(), Some(addr(OTHER_CARE_OF)));
    pair.attach(0, "wifi", CARE_OF);
    pair.run(0.1);
    assert_eq!(pair.bound(), Some(addr(CARE_OF)));
    assert!(pair.is_registered(0));
}

/// The answer is lost and the router returns to the first uplink on its own: it registers again.
#[test]
fn return_to_old_uplink_before_answer_is_registered() {
    let mut pair = registered();
    pair.router_does(0, |machine, now, wall| machine.handle_handover(now, wall, Some("cell")))
        .expect("handover");
    pair.run(0.012);
    pair.router_does(0, |machine, now, wall| machine.handle_handover(now, wall, Some("wifi")))
        .expect("handover");
    pair.run(0.1);
    assert_eq!(pair.bound(), Some(addr(CARE_OF)));
    assert!(pair.is_registered(0));
}

/// RFC 6275 11.5.4: "SHOULD still accept packets at this address" after the move.
#[test]
fn packets_to_old_care_of_address_are_accepted() {
    let accepted = |pair: &Pair| -> Vec<_> {
        pair.machine().paths().iter().filter_map(|path| path.local.ipv6()).collect()
    };
    let mut pair = registered();
    pair.router_does(0, |machine, now, wall| machine.handle_handover(now, wall, Some("cell")))
        .expect("handover");
    pair.run(60.0);
    assert_eq!(
        accepted(&pair),
        [addr(OTHER_CARE_OF), addr(CARE_OF)],
        "the path first, while both are attached"
    );
    // A renumbered uplink that keeps the old address for a while.
    let mut pair = registered();
    pair.set_interface(0, "wifi", true, &["fe80::2", "2001:db8:f3::10", CARE_OF], &["fe80::ff"]);
    pair.run(1.0);
    pair.detach(0, "cell");
    assert!(accepted(&pair).contains(&addr(CARE_OF)));
    pair.run(OLD_PATH_GRACE.as_secs_f64() + 60.0);
}

/// The router accepts packets at the old address also across a reload.
#[test]
fn reload_keeps_accepting_packets_to_old_care_of_address() {
    let mut pair = registered();
    pair.detach(0, "cell");
    pair.hear_router("wifi", "fe80::a", &["2001:db8:f3::/64"]);
    let addresses = autoconfigured(&["fe80::2", "2001:db8:f3::10", CARE_OF]);
    pair.tell(0, "wifi", addresses, vec![addr("fe80::a").into()]);
    pair.run(1.0);
    let accepted = |pair: &Pair| pair.machine().paths().iter().any(|path| path.local == addr(CARE_OF));
    assert!(accepted(&pair));
    pair.reconfigure_router(0);
    assert!(accepted(&pair));
    pair.run(OLD_PATH_GRACE.as_secs_f64());
    assert!(!accepted(&pair));
}

/// Conformance item 64; RFC 3963 5.6: on a visited link the router sends no Neighbor Discovery messages but
/// Router Solicitations.
#[test]
fn a_visited_link_hears_router_solicitations_only() {
    let mut pair = registered();
    pair.set_interface(0, "wifi", false, &[], &[]);
    pair.set_interface(0, "wifi", true, &["fe80::2"], &[]);
    pair.run(100.0);
    assert!(!pair.link.is_empty());
    for (_, _, message) in &pair.link {
        assert_eq!(message.message[0], icmpv6::types::ROUTER_SOLICITATION);
        assert_eq!(message.hop_limit, 255);
    }
    assert!(pair.link.len() < 20, "{} solicitations", pair.link.len());
}

/// A router that is being shut down de-registers from the address that its traffic uses.
#[test]
fn a_shutdown_deregisters() {
    let mut pair = registered();
    pair.router_does(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    let update = pair.last_update();
    assert_eq!(update.lifetime(), 0);
    assert_eq!(update.source, addr(CARE_OF));
    assert!(update.options().prefixes.is_empty(), "RFC 3963 5.8");
    assert_eq!(pair.path(), None);
    assert!(!pair.machine().is_quiescent());
    pair.run(0.1);
    assert!(pair.machine().is_quiescent());
    assert_eq!(pair.bound(), None);
    pair.forget();
    pair.run(300.0);
    assert!(pair.updates().is_empty());
}

/// The home agent does not answer: the router sends three de-registrations and stops.
#[test]
fn a_shutdown_without_answer_ends_after_three_updates() {
    let mut pair = registered();
    pair.conditions = Link::LOSING_EVERYTHING;
    pair.router_does(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    pair.run(10.0);
    assert_eq!(pair.updates().len(), 3);
    assert!(pair.machine().is_quiescent());
}

/// Without a registration a shutdown needs no de-registration, unless an update on its way may have arrived.
#[test]
fn a_shutdown_before_the_first_answer_deregisters_as_well() {
    let mut pair = Pair::new(Setup::plain());
    pair.router_does(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    assert!(pair.machine().is_quiescent());
    let mut pair = Pair::new(Setup::plain());
    pair.attach(0, "wifi", CARE_OF);
    pair.run(0.012);
    assert!(pair.bound().is_some());
    pair.router_does(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    pair.run(1.0);
    assert_eq!(pair.bound(), None);
    assert!(pair.machine().is_quiescent());
}

/// Two routers at one home agent have independent bindings.
#[test]
fn two_routers_do_not_disturb_each_other() {
    let mut setup = Setup::plain();
    setup.agent.nodes.push(crate::agent::node("2001:db8:1::5678", &[SECOND_PREFIX]));
    let mut second = setup.routers[0].clone();
    second.home_address = addr("2001:db8:1::5678");
    second.prefixes = vec![net(SECOND_PREFIX)];
    setup.routers.push(second);
    let mut pair = Pair::new(setup);
    pair.attach(0, "wifi", CARE_OF);
    pair.attach(1, "wifi", "2001:db8:f1::20");
    pair.run(1.0);
    pair.attach(1, "wifi", "2001:db8:f4::20");
    pair.run(100.0);
    assert!(pair.is_registered(0) && pair.is_registered(1));
}
