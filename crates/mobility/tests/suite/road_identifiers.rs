//! Several care-of addresses at once: the mobile router's side of RFC 5648, with BID-PRI of RFC 6089.

use std::time::Duration;

use carnet_base::Endpoint;
use carnet_mobility::home_agent::MultipleCareOfAddresses;
use carnet_mobility::mobile_router::{HeartbeatIntervals, State};
use carnet_mobility::{Authentication, Event};

use crate::test_messages::*;
use crate::vehicle_on_road::*;

/// The first Binding Update registers all uplinks:
///
/// * O flag (RFC 5648 5.9).
/// * A Binding Identifier option for each uplink (5.3).
/// * Care-of address and BID-PRI in each option (4.3 and RFC 6089 4.1).
/// * No Alternate Care-of Address option (5.2).
#[test]
fn all_uplinks_are_registered_by_one_binding_update() {
    let mut road = VehicleOnRoad::new(config());
    road.attach_all_uplinks();
    road.advance_seconds(0.1);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(road.sent_updates.len(), 1);
    let update = road.last_update();
    assert!(update.replaces_all_bindings, "5.9");
    assert_eq!(update.received_packet.options().alternate_care_of_address, None, "5.2");
    let expected = [(1, 10, "2001:db8:f1::10"), (2, 20, "2001:db8:f2::10"), (3, 30, "2001:db8:f3::10")];
    assert_eq!(update.binding_identifiers, expected.map(|(bid, pri, a)| (bid, pri, Some(addr(a).into()))));
    assert_eq!(road.transmitting_uplinks(), ["wifi", "cell", "sat"]);
    assert_eq!(road.router.state(), State::Registered);
    assert!(road.is_traffic_carried());
}

/// RFC 5648 5.2: the router adds a later uplink without the O flag, and the other bindings stay.
#[test]
fn an_uplink_that_comes_up_later_is_added() {
    let mut road = VehicleOnRoad::new(config());
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.advance_seconds(1.0);
    road.clear_records();
    road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
    road.advance_seconds(0.1);
    assert_eq!(road.sent_updates.len(), 1);
    assert!(!road.last_update().replaces_all_bindings);
    assert_eq!(road.last_update().bids(), [2]);
    assert_eq!(road.last_update().uplink, "cell", "from where it is to be found");
    assert_eq!(road.bound_bids(), [1, 2]);
}

/// RFC 5648 4.1: all bindings share one sequence number.
#[test]
fn bindings_of_a_router_share_the_sequence_number() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.advance_seconds(200.0);
    assert!(road.sent_updates.len() >= 4);
    let numbers: Vec<u16> =
        road.sent_updates.iter().map(|update| update.received_packet.sequence()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{numbers:?}");
}

/// RFC 5648 5.3: one update renews the bindings that are due together, and the path does not change.
#[test]
fn bindings_are_renewed_together() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    let paths = road.router.paths();
    road.advance_seconds(55.0);
    assert_eq!(road.sent_updates.len(), 1, "{:#?}", road.sent_updates);
    assert_eq!(road.last_update().bids(), [1, 2, 3]);
    assert!(!road.last_update().replaces_all_bindings);
    assert_eq!(road.router.paths(), paths);
    assert!(!road.events.iter().any(|(_, event)| matches!(event, Event::Handover { .. })));
}

/// RFC 5648 5.4: the router at once de-registers the binding of a lost uplink over another uplink. Traffic
/// has a path before and afterwards.
#[test]
fn a_lost_uplink_is_deregistered_over_another() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.detach_uplink("wifi");
    assert_eq!(road.transmitting_uplinks(), ["cell", "sat"], "no registration is needed for that");
    assert!(road.is_traffic_to_agent_carried());
    road.advance_seconds(0.02);
    assert_eq!(road.sent_updates.len(), 1);
    let update = road.last_update();
    assert_eq!(
        (update.bids(), update.received_packet.lifetime(), update.uplink.as_str()),
        (vec![1], 0, "cell")
    );
    assert_eq!(update.binding_identifiers[0].2, None, "5.1: the home agent knows the address");
    road.advance_seconds(0.1);
    assert_eq!(road.bound_bids(), [2, 3]);
    assert!(road.is_traffic_carried());
    road.clear_records();
    // The uplink comes back: make before break.
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.advance_while(3.0, "wifi carries traffic again", |road| road.transmitting_uplinks()[0] != "wifi");
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    road.advance_seconds(1.0);
    assert_eq!(road.preferred_bids(), [1, 2, 3]);
}

/// All uplinks but one go and come back, one after the other: traffic always has a path.
#[test]
fn last_working_uplink_carries_all_traffic() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    for (down, up) in [("wifi", "cell"), ("cell", "sat")] {
        road.detach_uplink(down);
        assert_eq!(road.transmitting_uplinks()[0], up);
        road.advance_seconds(0.1);
        assert!(road.is_traffic_carried());
    }
    road.detach_uplink("sat");
    assert!(road.transmitting_uplinks().is_empty());
    road.advance_seconds(5.0);
    road.attach_uplink("cell", Some("2001:db8:f2::20"), None);
    road.advance_while(1.0, "carried", |road| !road.is_traffic_carried());
    road.advance_seconds(2.0);
    assert_eq!(road.bound_bids(), [2]);
}

/// A care-of address changes: the binding is replaced, the others stay.
#[test]
fn new_care_of_address_replaces_old_in_its_binding() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.attach_uplink("wifi", Some("2001:db8:f1::20"), None);
    assert_eq!(road.transmitting_uplinks()[0], "cell", "until the new one is registered");
    road.advance_seconds(0.1);
    assert_eq!(road.sent_updates.len(), 1);
    assert_eq!(road.last_update().bids(), [1]);
    assert_eq!(road.transmitting_uplinks()[0], "wifi");
    assert_eq!(road.registered_endpoints()[0], endpoint_of("2001:db8:f1::20"));
    assert!(road.is_traffic_carried());
}

/// The new care-of address leads nowhere: the router reports the loss of the old one over another uplink.
#[test]
fn new_care_of_address_without_answer_keeps_other_uplink() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.set_losing_everything("wifi", true);
    road.attach_uplink("wifi", Some("2001:db8:f1::20"), None);
    road.advance_while(0.5, "carried", |road| !road.is_traffic_carried());
    assert_eq!(road.transmitting_uplinks(), ["cell", "sat"]);
    assert_eq!(road.bound_bids(), [2, 3]);
}

/// The new care-of address works, but the answer comes after the router has removed the binding: in the end
/// the right care-of address is registered.
#[test]
fn late_answer_over_new_care_of_address_is_accepted() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.network_mut("wifi").delay_range = (Duration::from_millis(200), Duration::from_millis(200));
    road.attach_uplink("wifi", Some("2001:db8:f1::20"), None);
    road.advance_seconds(3.0);
    assert_eq!(road.preferred_bids(), [1, 2, 3]);
    assert!(road.is_traffic_carried());
    assert_eq!(road.transmitting_uplinks()[0], "wifi");
}

/// The router loses an uplink before the answer to its registration, which the home agent has accepted. The
/// router de-registers it over another uplink, at once or as soon as it has one.
#[test]
fn uplink_lost_before_acknowledgement_is_deregistered() {
    for alone in [false, true] {
        let mut road = VehicleOnRoad::new(config());
        if !alone {
            road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
            road.advance_seconds(1.0);
        }
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
        road.advance_seconds(if alone { 0.025 } else { 0.015 });
        assert!(road.bound_bids().contains(&1));
        road.detach_uplink("wifi");
        if alone {
            road.advance_seconds(0.5);
            road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
        }
        road.advance_while(1.0, "carried", |road| !road.is_traffic_carried());
        road.advance_seconds(0.1);
        assert_eq!(road.bound_bids(), [2]);
    }
}

/// A handover by the operator changes only priorities: the router loses no packets and de-registers nothing.
#[test]
fn handover_between_registered_uplinks_changes_only_priorities() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.run_on_router(|router, now, wall| router.handle_handover(now, wall, Some("sat")))
        .expect("an uplink");
    assert_eq!(road.transmitting_uplinks(), ["sat", "wifi", "cell"]);
    road.advance_seconds(0.1);
    assert_eq!(road.preferred_bids()[0], 3);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    road.run_on_router(|router, now, wall| router.handle_handover(now, wall, None)).expect("automatic");
    road.advance_seconds(1.0);
    assert_eq!(road.preferred_bids(), [1, 2, 3]);
}

/// RFC 5648 5.7: the acknowledgement has no Binding Identifier option: the router sends plain registrations
/// from then on.
#[test]
fn home_agent_without_bid_support_gets_plain_registrations() {
    let mut road = VehicleOnRoad::new(VehicleOnRoad::config_without_key());
    road.is_agent_down = true;
    road.attach_all_uplinks();
    road.advance_seconds(0.1);
    let answer = TestAcknowledgement::answering(&road.last_update().received_packet, 0);
    road.deliver_to_router(None, &answer.to_packet());
    assert_eq!(road.transmitting_uplinks(), ["wifi"]);
    assert!(road.router.bindings().iter().all(|binding| binding.registration.is_none()));
    road.is_agent_down = false;
    road.agent_config = VehicleOnRoad::agent_config_without_key();
    road.restart_agent();
    road.clear_records();
    road.advance_seconds(60.0);
    assert!(!road.sent_updates.is_empty());
    assert!(
        road.sent_updates
            .iter()
            .all(|update| update.binding_identifiers.is_empty() && !update.replaces_all_bindings)
    );
    assert!(road.is_traffic_carried());
    // The router registers one uplink at a time.
    road.detach_uplink("wifi");
    road.advance_seconds(1.0);
    assert_eq!(road.transmitting_uplinks(), ["cell"]);
    assert!(road.is_traffic_carried());
}

/// RFC 5648 5.7: after status 166 the router "MUST stop registering multiple bindings".
#[test]
fn status_166_ends_in_plain_registrations() {
    let mut agent = agent_config();
    agent.multiple_care_of_addresses = MultipleCareOfAddresses::Prohibited;
    let mut road = VehicleOnRoad::with_configs(config(), agent, 1);
    road.attach_all_uplinks();
    road.advance_seconds(2.0);
    assert_eq!(road.agent.bindings().bindings_of(addr(HOME_ADDRESS)).next().map(|b| b.bid), Some(None));
    assert_eq!(road.transmitting_uplinks(), ["wifi"]);
    let identified = road.sent_updates.iter().filter(|update| !update.binding_identifiers.is_empty()).count();
    assert_eq!(identified, 1);
    assert!(road.is_traffic_carried());
}

/// RFC 5648 5.7, status 168: the router registers each binding by a Binding Update of its own.
#[test]
fn status_168_ends_bulk_registration() {
    let mut agent = agent_config();
    agent.multiple_care_of_addresses = MultipleCareOfAddresses::Single;
    let mut road = VehicleOnRoad::with_configs(config(), agent, 1);
    road.attach_all_uplinks();
    road.advance_seconds(3.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(road.sent_updates[0].binding_identifiers.len(), 3);
    assert!(road.sent_updates[1..].iter().all(|update| update.binding_identifiers.len() == 1));
    assert!(road.is_traffic_carried());
    road.clear_records();
    road.advance_seconds(100.0);
    assert!(road.sent_updates.iter().all(|update| update.binding_identifiers.len() == 1));
    assert_eq!(road.bound_bids(), [1, 2, 3]);
}

/// RFC 5648 5.7: after status 165 the router "MUST set 'O' flag" in the next update. This update replaces a
/// former plain binding.
#[test]
fn router_sets_the_o_flag_after_status_165() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    // The home agent gets a plain binding without the router's knowledge.
    road.agent = carnet_mobility::HomeAgent::new(road.agent_config.clone());
    let sequence = road.router.stored_state().sequence.expect("a number");
    let update = TestUpdate::explicit_update(sequence)
        .with_alternate_care_of_address(CARE_OF_ADDRESS)
        .with_signature()
        .to_packet();
    road.deliver_to_agent(&update);
    assert_eq!(road.bound_bids(), [0; 0]);
    road.advance_seconds(60.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert!(road.sent_updates.iter().any(|update| update.replaces_all_bindings));
}

/// RFC 5648 6.2: status 4, and an own status for one binding: the others are registered, and the router
/// retries the refused one later.
#[test]
fn one_refused_binding_keeps_the_others() {
    let mut config = VehicleOnRoad::config_without_key();
    // Send heartbeats so rarely that they do not detect the failure of the home agent.
    config.liveness = Some(HeartbeatIntervals {
        busy_interval: Duration::from_secs(300),
        idle_interval: Duration::from_secs(300),
    });
    let mut road = VehicleOnRoad::with_configs(config, VehicleOnRoad::agent_config_without_key(), 1);
    road.is_agent_down = true;
    road.attach_all_uplinks();
    road.advance_seconds(0.1);
    let mut answer = TestAcknowledgement::answering(&road.last_update().received_packet, 4);
    for (bid, status) in [(1, 0), (2, 174), (3, 0)] {
        answer.options.push(identifier_option(bid, status));
    }
    road.deliver_to_router(None, &answer.to_packet());
    assert_eq!(road.transmitting_uplinks(), ["wifi", "sat"]);
    assert!(road.events.iter().any(|(_, event)| matches!(event, Event::Rejected { status: 174, .. })));
    road.clear_records();
    road.is_agent_down = false;
    road.advance_seconds(40.0);
    let again = road.sent_updates.iter().find(|update| update.bids().contains(&2)).expect("again");
    assert!(again.sent_at >= carnet_base::Time::from_secs(132), "not before 32 s: {}", again.sent_at);
}

/// RFC 6275 11.7.3: the router at once sends the number after the one that the home agent names.
#[test]
fn status_135_is_corrected_at_once() {
    let mut road = VehicleOnRoad::new(config());
    road.attach_all_uplinks();
    road.advance_seconds(1.0);
    let mut stored = road.router.stored_state();
    stored.sequence = stored.sequence.map(|last| last.wrapping_sub(100));
    let mut rng = carnet_base::Rng::new(5);
    road.router = carnet_mobility::MobileRouter::new(road.config.clone(), &mut rng);
    road.router.restore(stored);
    road.clear_records();
    road.attach_all_uplinks();
    road.advance_seconds(0.2);
    assert_eq!(road.sent_updates.len(), 2);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert!(road.is_traffic_carried());
}

/// RFC 3963 5.4: a refusal of the router itself ends the service. The router asks again after ten minutes.
#[test]
fn a_refusal_of_the_router_stops_the_service() {
    let mut agent = agent_config();
    agent.nodes[0].prefixes = [net("2001:db8:b::/64")].into();
    let mut road = VehicleOnRoad::with_configs(config(), agent, 1);
    road.attach_all_uplinks();
    road.advance_seconds(60.0);
    assert!(matches!(road.router.state(), State::Refused(_)));
    assert!(road.transmitting_uplinks().is_empty());
    assert!(road.sent_updates.len() <= 3, "{:#?}", road.sent_updates);
    road.agent_config = agent_config();
    road.restart_agent();
    road.advance_seconds(610.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert!(road.is_traffic_carried());
}

/// An acceptance arrives for the Binding Update that was refused before: the router asks again at once.
#[test]
fn accepted_binding_after_refusal_is_registered_at_once() {
    let mut agent = VehicleOnRoad::agent_config_without_key();
    agent.nodes[0].prefixes = [net("2001:db8:b::/64")].into();
    let mut road = VehicleOnRoad::with_configs(VehicleOnRoad::config_without_key(), agent, 1);
    road.attach_all_uplinks();
    road.advance_seconds(60.0);
    assert!(matches!(road.router.state(), State::Refused(_)));
    let asked = road.last_update().received_packet.clone();
    road.agent_config = VehicleOnRoad::agent_config_without_key();
    road.restart_agent();
    road.clear_records();
    let mut answer = TestAcknowledgement::answering(&asked, 0);
    answer.options = vec![identifier_option(1, 0)];
    road.deliver_to_router(None, &answer.to_packet());
    road.advance_seconds(1.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert!(road.is_traffic_carried());
}

/// RFC 5648 5.5.1: on the home link the router de-registers all bindings (RFC 6275 11.5.5), and registers
/// them again when it leaves.
#[test]
fn returning_home_ends_all_bindings() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.attach_uplink("wifi", Some("2001:db8:1::99"), None);
    let update = road.last_update().clone();
    assert!(update.binding_identifiers.is_empty());
    assert_eq!(update.received_packet.lifetime(), 0);
    road.advance_seconds(1.0);
    assert_eq!(road.agent.bindings().bindings_of(addr(HOME_ADDRESS)).count(), 0);
    assert!(road.router.is_at_home());
    road.clear_records();
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.advance_seconds(1.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert!(road.sent_updates[0].replaces_all_bindings);
    assert!(road.is_traffic_carried());
}

/// RFC 5648 5.4: at a shutdown one plain de-registration ends all bindings.
#[test]
fn shutdown_deregisters_everything() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.run_on_router(|router, now, wall| router.handle_shutdown(now, wall));
    assert_eq!(road.sent_updates.len(), 1);
    assert!(road.last_update().binding_identifiers.is_empty());
    road.advance_seconds(0.1);
    assert_eq!(road.agent.bindings().bindings_of(addr(HOME_ADDRESS)).count(), 0);
    assert!(road.router.is_quiescent());
}

/// A home agent that has lost its bindings reports that at the next heartbeat at the latest.
#[test]
fn a_router_registers_again_at_once_when_its_home_agent_lost_the_binding() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.restart_agent();
    assert!(!road.is_traffic_carried());
    road.advance_while(2.0, "carried", |road| !road.is_traffic_carried());
    // The other bindings follow within 2.5 s: the router may send three Binding Updates per second, and uses
    // some for failed uplinks.
    road.advance_seconds(2.5);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
}

/// A reload keeps the registered bindings, and drops an uplink that is no longer configured.
#[test]
fn reloaded_config_changes_bindings() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    let mut config = config();
    config.uplinks.remove(2);
    let mut rng = carnet_base::Rng::new(9);
    let old =
        std::mem::replace(&mut road.router, carnet_mobility::MobileRouter::new(config.clone(), &mut rng));
    road.config = config;
    road.run_on_router(|router, now, wall| router.adopt_state_of(now, wall, &old));
    assert_eq!(road.transmitting_uplinks()[0], "wifi", "without a break");
    for interface in road.interfaces.clone().values() {
        road.run_on_router(|router, now, wall| router.handle_interface(now, wall, interface));
        assert_eq!(road.transmitting_uplinks()[0], "wifi", "without a break");
    }
    road.advance_seconds(2.0);
    assert_eq!(road.bound_bids(), [1, 2]);
    assert!(road.is_traffic_carried());
}

/// Some uplinks have no identifier: the router registers one plain binding while such an uplink is the best.
#[test]
fn router_registers_one_plain_binding_while_uplink_without_bid_is_best() {
    let mut config = config();
    config.uplinks[0].bid = None;
    let mut road = VehicleOnRoad::new(config);
    road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
    road.attach_uplink("sat", Some("2001:db8:f3::10"), None);
    road.advance_seconds(2.0);
    assert_eq!(road.bound_bids(), [2, 3]);
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    let mut gap = 0;
    let end = road.now + Duration::from_secs(5);
    while road.handle_next_event(end) {
        gap += usize::from(!road.is_traffic_to_agent_carried());
    }
    assert_eq!(gap, 0);
    assert_eq!(road.registered_endpoints(), [Endpoint::Ipv6(addr("2001:db8:f1::10"))]);
    assert_eq!(road.transmitting_uplinks(), ["wifi"]);
    road.detach_uplink("wifi");
    road.advance_seconds(1.0);
    assert_eq!(road.bound_bids(), [2, 3]);
    assert!(road.is_traffic_carried());
}

/// Identifiers also work without a key.
#[test]
fn bindings_with_bid_work_without_authentication() {
    let mut road = VehicleOnRoad::with_configs(
        VehicleOnRoad::config_without_key(),
        VehicleOnRoad::agent_config_without_key(),
        3,
    );
    assert_eq!(road.config.authentication, Authentication::None);
    road.attach_all_uplinks();
    road.advance_seconds(0.2);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
}
