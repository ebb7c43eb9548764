//! Mobile router on its home link, with a home agent there (RFC 6275 11.5.5, 10.3.2, RFC 3963 5.8).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_mobility::Event;
use carnet_mobility::mobile_router::State;
use carnet_wire::{icmpv6, nd};

use crate::agent_and_routers::{ADDRESS_ON_HOME_LINK, AgentAndRouters, Link, PairSetup};
use crate::test_messages::*;

fn pair_away_from_home() -> AgentAndRouters {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup().with_home_link());
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    pair.register_router();
    pair.advance_seconds(10.0);
    pair.clear_records();
    pair
}

/// Returns the Neighbor Advertisements that the router has sent on the home link.
fn sent_advertisements(pair: &AgentAndRouters) -> Vec<nd::NeighborAdvertisement> {
    pair.link_messages
        .iter()
        .filter(|(_, from, message)| {
            *from == Some(0) && message.message[0] == icmpv6::message_type::NEIGHBOR_ADVERTISEMENT
        })
        .map(|(_, _, message)| {
            icmpv6::verify_checksum(message.source, message.destination, &message.message).expect("checksum");
            assert_eq!((message.hop_limit, message.destination), (255, nd::ALL_NODES));
            nd::NeighborAdvertisement::parse(&message.message).expect("advertisement")
        })
        .collect()
}

/// The first registration waits for duplicate address detection of the home address: 1.5 s suffice (RFC 6275
/// 13).
#[test]
fn router_does_not_retransmit_first_registration_during_dad() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup().with_home_link());
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    let took = pair.register_router();
    assert!((1.0..1.1).contains(&took.as_secs_f64()), "{took:?}");
    assert_eq!(pair.sent_updates().len(), 1);
}

/// The home agent's duplicate address detection before the first registration takes a second, which is no
/// round trip. Without heartbeats the next acknowledgement measures the round trip.
#[test]
fn router_does_not_measure_dad_delay_as_round_trip_time() {
    let mut setup = PairSetup::plain_setup().with_home_link();
    setup.routers[0].uplinks[1].bid = Some(2);
    let mut pair = AgentAndRouters::new(setup);
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    let took =
        pair.advance_while(5.0, "registration", |pair| pair.first_router().state() != State::Registered);
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert_eq!(pair.first_router().quality(1), None);
    pair.advance_seconds(60.0);
    assert!(pair.sent_updates().len() >= 2, "renewed");
    let rtt = pair.first_router().quality(1).expect("measured").rtt;
    assert_eq!(rtt, Duration::from_millis(20));
}

/// A neighbour on the home link has the address: status 134. The router retries after 32 s, when the
/// neighbour may be gone.
#[test]
fn a_neighbour_with_the_home_address_delays_the_registration() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup().with_home_link());
    pair.neighbour_addresses.push(addr(HOME_ADDRESS));
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    pair.advance_seconds(5.0);
    assert_eq!(pair.registered_care_of_address(), None);
    assert!(pair.events.iter().any(|(_, _, e)| matches!(e, Event::Rejected { status: 134, .. })));
    pair.clear_records();
    pair.advance_seconds(26.0);
    assert!(pair.sent_updates().is_empty());
    pair.neighbour_addresses.clear();
    pair.advance_seconds(5.0);
    assert!(pair.is_registered(0));
}

/// RFC 6275 11.5.5: the de-registration has the A and H flags, lifetime 0, the home address as source, and no
/// Home Address option.
#[test]
fn router_coming_home_deregisters_from_its_home_address() {
    let mut pair = pair_away_from_home();
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(1.0); // the second uplink works, so wifi has to settle first
    let update = pair.last_update();
    assert_eq!((update.source, update.home_address), (addr(HOME_ADDRESS), None));
    assert_eq!(update.lifetime(), 0);
    assert!(update.options().prefixes.is_empty(), "RFC 3963 5.8");
    let ReceivedMessage::Update { flags, .. } = update.message else { panic!("no update") };
    assert!(flags.acknowledge && flags.home_registration);
    assert!(pair.path_of_first_router().is_some(), "for what was on its way into the tunnel");
    assert_eq!(pair.first_router().state(), State::Home);
    assert!(sent_advertisements(&pair).is_empty(), "not before the answer");
    pair.advance_seconds(0.1);
    assert_eq!(pair.registered_care_of_address(), None);
    assert!(pair.events.iter().any(|(_, _, event)| matches!(event, Event::AtHome { .. })));
    pair.advance_seconds(5.0);
    assert_eq!(pair.path_of_first_router(), None);
}

/// Until it answers, the home agent sends everything to the care-of address, and the router still sends
/// everything into the tunnel.
#[test]
fn router_uses_tunnel_until_its_return_home_is_acknowledged() {
    let mut pair = pair_away_from_home();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    for _ in 0..30 {
        pair.advance_seconds(1.0);
        assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
        assert_eq!(pair.first_router().active_uplink(), Some(1));
        assert_eq!(pair.first_router().home_link().expect("found").config.interface, "wifi");
        assert!(!pair.first_router().is_at_home() && pair.first_router().home_uplink().is_none());
    }
    assert!(!pair.events.iter().any(|(_, _, e)| matches!(e, Event::AtHome { .. } | Event::Handover { .. })));
    pair.link_conditions = Link::LOSSLESS;
    let acknowledged = |pair: &AgentAndRouters| pair.first_router().is_at_home();
    pair.advance_while(40.0, "the acknowledgement", |pair| !acknowledged(pair));
    assert_eq!(pair.first_router().active_uplink(), Some(0));
    assert!(
        pair.events.iter().any(|(_, _, e)| matches!(e, Event::Handover { to: Some(to), .. } if to == "wifi"))
    );
    assert_eq!(pair.registered_care_of_address(), None);
}

/// The same uplink comes home and keeps the old address: until the answer the router sends from the address
/// that the home agent still accepts.
#[test]
fn router_uses_old_address_at_home_until_deregistration_is_acknowledged() {
    let mut pair = pair_away_from_home();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.set_interface(
        0,
        "cell",
        true,
        &["fe80::2", ADDRESS_ON_HOME_LINK, OTHER_CARE_OF_ADDRESS],
        &["fe80::ff"],
    );
    pair.advance_seconds(10.0);
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    let accepted: Vec<(Option<Ipv6Addr>, usize)> =
        pair.first_router().paths().iter().map(|path| (path.local.ipv6(), path.uplink)).collect();
    assert_eq!(accepted, [(Some(addr(OTHER_CARE_OF_ADDRESS)), 1)]);
    pair.link_conditions = Link::LOSSLESS;
    pair.advance_seconds(10.0);
    assert!(pair.first_router().is_at_home());
}

/// The router leaves home before the answer. The home agent may have received the de-registration, so the
/// router registers again.
#[test]
fn router_that_leaves_home_before_the_answer_registers_again() {
    let mut pair = pair_away_from_home();
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(1.012);
    assert_eq!(pair.registered_care_of_address(), None, "it has heard it");
    pair.detach_uplink(0, "wifi");
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF_ADDRESS));
    pair.register_router();
    assert!(!pair.first_router().is_at_home());
}

/// A link that advertises the home prefix is the home link, whatever the best address is.
#[test]
fn an_advertised_home_prefix_identifies_the_home_link() {
    const HOME_LINK_ROUTER: &str = "fe80::ff";
    let mut pair = pair_away_from_home();
    // The home address itself does not show that the router is at home, because a station puts it on the home
    // link's interface.
    pair.set_interface(0, "wifi", true, &["fe80::2", CARE_OF_ADDRESS, HOME_ADDRESS], &[HOME_LINK_ROUTER]);
    pair.receive_router_advertisement("wifi", HOME_LINK_ROUTER, &["2001:db8:f1::/64"]);
    pair.advance_seconds(2.0);
    // Another router advertised the home prefix, and left before it was a default router here.
    pair.receive_router_advertisement("wifi", "fe80::77", &[HOME_PREFIX]);
    assert!(pair.first_router().home_link().is_none());
    pair.receive_router_advertisement("wifi", HOME_LINK_ROUTER, &[HOME_PREFIX]);
    assert!(pair.first_router().home_link().is_some());
    pair.advance_seconds(1.5);
    assert!(pair.first_router().is_at_home());
    // The link changes without loss of carrier.
    pair.receive_router_advertisement("wifi", "fe80::b", &["2001:db8:f3::/64"]);
    pair.set_interface(0, "wifi", true, &["fe80::2", ADDRESS_ON_HOME_LINK, "2001:db8:f3::10"], &["fe80::b"]);
    assert!(pair.first_router().home_link().is_none());
    pair.register_router();
    assert_eq!(pair.path_of_first_router(), Some(addr("2001:db8:f3::10")));
}

/// An address in the home prefix shows that the router is at home, also if the first router advertises
/// another prefix.
#[test]
fn an_address_in_the_home_prefix_identifies_the_home_link() {
    let mut pair = pair_away_from_home();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.receive_router_advertisement("wifi", "fe80::ff", &["2001:db8:f1::/64"]);
    pair.set_interface(0, "wifi", true, &["fe80::2", ADDRESS_ON_HOME_LINK, CARE_OF_ADDRESS], &["fe80::ff"]);
    pair.advance_seconds(2.0);
    assert!(pair.first_router().is_at_home());
}

/// RFC 6275 11.5.5: after the answer the router advertises the home address on the home link: O set, S clear,
/// with its link-layer address.
#[test]
fn the_router_announces_its_address_on_the_home_link_after_the_acknowledgement() {
    let mut pair = pair_away_from_home();
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(2.0);
    let said = sent_advertisements(&pair);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].target, addr(HOME_ADDRESS));
    assert!(said[0].override_ && !said[0].solicited && said[0].router);
    assert_eq!(said[0].target_link_address, Some([2, 0, 0, 0, 1, 0]));
}

/// After a refused de-registration the router does not use the home address: the home agent still defends it.
#[test]
fn a_refused_deregistration_is_tried_again_and_not_announced() {
    let mut pair = pair_away_from_home();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(1.0);
    pair.answer_last_update(130).expect("an answer");
    assert!(sent_advertisements(&pair).is_empty());
    pair.link_conditions = Link::LOSSLESS;
    pair.advance_seconds(40.0);
    assert_eq!(pair.registered_care_of_address(), None);
    assert_eq!(sent_advertisements(&pair).len(), 1);
}

/// RFC 6275 10.3.2: status 133 means that there was no binding to end; the router is at home all the same.
#[test]
fn router_that_starts_at_home_accepts_status_133() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup().with_home_link());
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(1.0);
    assert_eq!(pair.first_router().state(), State::Home);
    assert_eq!(pair.sent_updates().len(), 1);
    assert_eq!(sent_advertisements(&pair).len(), 1);
    pair.advance_seconds(100.0);
    assert_eq!(pair.sent_updates().len(), 1);
}

/// The router repeats a lost de-registration until the home agent answers.
#[test]
fn the_deregistration_is_repeated_until_it_is_answered() {
    let mut pair = pair_away_from_home();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(10.0);
    assert!(pair.sent_updates().len() >= 3);
    assert!(pair.registered_care_of_address().is_some());
    pair.link_conditions = Link::LOSSLESS;
    pair.advance_seconds(10.0);
    assert_eq!(pair.registered_care_of_address(), None);
}

/// A router that leaves home registers, and the home agent tests and defends the address again.
#[test]
fn router_leaving_home_registers_again() {
    let mut pair = pair_away_from_home();
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(30.0);
    pair.clear_records();
    pair.detach_uplink(0, "wifi");
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF_ADDRESS));
    pair.register_router();
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
}

/// RFC 6275 10.3.2: a refresh from the visited link that arrives after the de-registration does not undo it.
#[test]
fn late_refresh_from_visited_link_does_not_undo_the_return_home() {
    let mut pair = pair_away_from_home();
    let late = TestUpdate::explicit_update(
        pair.first_router().registration().expect("registered").sequence.wrapping_add(1),
    )
    .from(OTHER_CARE_OF_ADDRESS);
    pair.link_conditions = Link::LOSES_EVERYTHING;
    // A refresh leaves and is lost. So the router has really sent an update with the number of the late
    // refresh.
    pair.advance_seconds(40.0);
    assert!(!pair.sent_updates().is_empty());
    pair.link_conditions = Link::LOSSLESS;
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(2.0);
    assert_eq!(pair.registered_care_of_address(), None);
    pair.inject_packet(late.to_packet());
    pair.advance_seconds(2.0);
    assert_eq!(pair.registered_care_of_address(), None);
    let last = pair.sent_packets.iter().rev().find(|sent| sent.sending_router.is_none()).expect("an answer");
    assert_eq!(last.received_packet.status(), 135);
    assert_eq!(pair.first_router().state(), State::Home);
}

/// A shutdown at home waits for an outstanding de-registration.
#[test]
fn router_shut_down_at_home_finishes_the_deregistration() {
    let mut pair = pair_away_from_home();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(1.1);
    pair.link_conditions = Link::LOSSLESS;
    pair.run_on_router(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    pair.advance_seconds(5.0);
    assert_eq!(pair.registered_care_of_address(), None);
    assert!(pair.first_router().is_quiescent());
}
