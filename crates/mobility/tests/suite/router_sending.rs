//! Mobile router: contents and times of Binding Updates (RFC 6275 11.7.1, 11.8, RFC 3963 5.2).

use std::time::Duration;

use carnet_base::{Interface, Time};
use carnet_mobility::MobilityDrop;
use carnet_mobility::mobile_router::{RegistrationMode, State};
use carnet_wire::mobility::{BindingUpdateFlags, MobilityHeaderBuilder, MobilityOption};

use crate::agent_and_routers::{AgentAndRouters, Link, PairSetup, addresses};
use crate::test_messages::*;

/// Creates a router whose Binding Updates are all lost.
fn pair_with_lost_updates() -> AgentAndRouters {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair
}

fn gaps_between_updates(updates: &[(Time, ReceivedPacket)]) -> Vec<f64> {
    updates.windows(2).map(|pair| pair[1].0.saturating_since(pair[0].0).as_secs_f64()).collect()
}

/// Returns whether every number is greater than the one before (RFC 6275 11.8).
fn are_numbers_increasing(updates: &[(Time, ReceivedPacket)]) -> bool {
    updates.windows(2).all(|pair| pair[1].1.sequence() == pair[0].1.sequence().wrapping_add(1))
}

/// RFC 6275 11.7.1, RFC 3963 5.2: the update has the flags A, H and R and the prefixes. It also has a Home
/// Address and an Alternate Care-of Address option.
#[test]
fn explicit_mode_update_names_prefixes() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let update = pair.last_update();
    assert_eq!((update.source, update.destination), (addr(CARE_OF_ADDRESS), addr(HOME_AGENT_ADDRESS)));
    assert_eq!(update.home_address, Some(addr(HOME_ADDRESS)));
    assert_eq!(update.options().alternate_care_of_address, Some(addr(CARE_OF_ADDRESS)));
    assert_eq!(update.options().prefixes, [net(MOBILE_NETWORK_PREFIX)]);
    assert_eq!(update.lifetime(), 15);
    let ReceivedMessage::Update { flags, .. } = update.message else { panic!("no update") };
    assert_eq!(flags, BindingUpdateFlags { ..ROUTER_FLAGS });
    assert_eq!(pair.first_router().state(), State::Registering);
}

/// RFC 3963 5.2: in implicit mode an update has no prefix option.
#[test]
fn implicit_mode_update_names_no_prefixes() {
    let mut setup = PairSetup::plain_setup();
    setup.routers[0].mode = RegistrationMode::Implicit;
    let mut pair = AgentAndRouters::new(setup);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    assert!(pair.last_update().options().prefixes.is_empty());
    pair.register_router();
}

/// Conformance item 64; RFC 3963 5.2: explicit mode names the prefixes in "all Binding Updates, including
/// those sent to refresh".
#[test]
fn refreshes_name_the_prefixes_again() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(200.0);
    let updates = pair.sent_updates();
    assert!(updates.len() >= 4, "{}", updates.len());
    assert!(updates.iter().all(|(_, update)| update.options().prefixes == [net(MOBILE_NETWORK_PREFIX)]));
    assert!(are_numbers_increasing(&updates));
    assert!(pair.is_registered(0));
}

/// Conformance item 63; RFC 6275 11.8, 13: the router retransmits after 1.5 s, doubled up to 32 s, with a new
/// number each time.
#[test]
fn first_registrations_are_retransmitted_from_one_and_a_half_seconds_on() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(150.0);
    let updates = pair.sent_updates();
    assert_eq!(gaps_between_updates(&updates), [1.5, 3.0, 6.0, 12.0, 24.0, 32.0, 32.0, 32.0]);
    assert!(are_numbers_increasing(&updates));
}

/// Conformance item 63; RFC 6275 11.8, 12: with a binding the router retransmits after 1 s, doubled each
/// time.
#[test]
fn refreshes_are_retransmitted_from_one_second_on() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.clear_records();
    pair.advance_seconds(150.0);
    let updates = pair.sent_updates();
    assert_eq!(gaps_between_updates(&updates)[..6], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    assert!(are_numbers_increasing(&updates));
    assert!(pair.first_router().registration().is_none(), "the lifetime has ended meanwhile");
}

/// A move starts a back-off of its own (RFC 6275 11.8: "for different care-of addresses").
#[test]
fn router_restarts_retransmission_back_off_after_a_move() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", "2001:db8:f3::10");
    pair.advance_seconds(10.0);
    pair.clear_records();
    pair.attach_uplink(0, "wifi", OTHER_CARE_OF_ADDRESS);
    pair.advance_seconds(8.0);
    assert_eq!(gaps_between_updates(&pair.sent_updates()), [1.0, 2.0, 4.0]);
}

/// RFC 6275 11.8: never more than `MAX_UPDATE_RATE` updates a second, however the uplinks flap (the pair
/// checks this at every update). The update for the final state still leaves.
#[test]
fn flapping_uplinks_never_exceed_the_update_rate_limit() {
    let mut pair = pair_with_lost_updates();
    for round in 0..200 {
        pair.attach_uplink(0, "wifi", if round % 2 == 0 { CARE_OF_ADDRESS } else { "2001:db8:f3::10" });
        pair.advance_seconds(0.01);
        if round % 3 == 0 {
            pair.detach_uplink(0, "wifi");
        }
    }
    pair.attach_uplink(0, "wifi", OTHER_CARE_OF_ADDRESS);
    pair.advance_seconds(1.0);
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF_ADDRESS));
}

/// A tentative address is no care-of address; UMIP, for example, wrongly sends from one.
#[test]
fn router_sends_no_update_from_a_tentative_duplicate_or_own_address() {
    let mut pair = pair_with_lost_updates();
    let mut interface = Interface {
        name: "wifi".into(),
        running: true,
        mtu: 1500,
        link_address: None,
        addresses: addresses(&["fe80::2", CARE_OF_ADDRESS]),
        routers: vec![addr("fe80::ff").into()],
        ..Interface::default()
    };
    let show = |pair: &mut AgentAndRouters, interface: &Interface| {
        let interface = interface.clone();
        pair.routers[0].interfaces.insert("wifi".into(), interface.clone());
        pair.run_on_router(0, |machine, now, wall| machine.handle_interface(now, wall, &interface));
        pair.sent_updates().len()
    };
    interface.addresses[1].tentative = true;
    assert_eq!(show(&mut pair, &interface), 0);
    interface.addresses[1].tentative = false;
    interface.addresses[1].duplicate = true;
    assert_eq!(show(&mut pair, &interface), 0);
    // RFC 4888 2.8: packets to a care-of address in the router's own mobile network would loop.
    interface.addresses = addresses(&["fe80::2", "2001:db8:a::5"]);
    assert_eq!(show(&mut pair, &interface), 0);
    interface.addresses = addresses(&["fe80::2", HOME_ADDRESS]);
    assert_eq!(show(&mut pair, &interface), 0);
    interface.addresses = addresses(&["fe80::2", CARE_OF_ADDRESS]);
    interface.routers.clear();
    assert_eq!(show(&mut pair, &interface), 0);
    interface.routers.push(addr("fe80::ff").into());
    assert_eq!(show(&mut pair, &interface), 1);
}

/// While traffic waits, an update leaves every two seconds. Without traffic the back-off of RFC 6275 11.8
/// applies.
#[test]
fn waiting_traffic_shortens_the_back_off_but_not_below_two_seconds() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(40.0);
    pair.clear_records();
    for _ in 0..100 {
        pair.send_data_packet(0);
        pair.advance_seconds(0.1);
    }
    let gaps = gaps_between_updates(&pair.sent_updates());
    assert!(gaps.len() >= 3, "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= 2.0), "{gaps:?}");
    assert!(are_numbers_increasing(&pair.sent_updates()));
}

/// RFC 6275 11.7.3: the lifetime counts from the sending of the update, and is at most the requested one.
#[test]
fn binding_lifetime_counts_from_sending_of_update() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let (sent, update) = pair.sent_updates().remove(0);
    pair.advance_seconds(0.5);
    let mut answer = TestAcknowledgement::answering(&update, 0);
    answer.lifetime = 10;
    pair.deliver_to_router(0, &answer.to_packet()).expect("accepted");
    let registration = *pair.first_router().registration().expect("registered");
    assert_eq!(registration.expires_at, sent + Duration::from_secs(40));
    pair.advance_seconds(39.0);
    assert!(pair.first_router().registration().is_some());
    pair.advance_seconds(0.6);
    assert!(pair.first_router().registration().is_none());
    assert_eq!(pair.path_of_first_router(), None, "RFC 3963 5.3: no tunnel without registration");

    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let mut answer = TestAcknowledgement::answering(&pair.last_update(), 0);
    answer.lifetime = 0xffff;
    pair.deliver_to_router(0, &answer.to_packet()).expect("accepted");
    assert_eq!(pair.first_router().registration().expect("registered").lifetime, Duration::from_secs(60));
}

/// RFC 6275 11.7.3: a remaining lifetime of 0 is no registration. The router does not repeat the update
/// without a pause.
#[test]
fn an_acknowledged_lifetime_of_zero_is_no_registration() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    for _ in 0..50 {
        let mut answer = TestAcknowledgement::answering(&pair.last_update(), 0);
        answer.lifetime = 0;
        let _ = pair.deliver_to_router(0, &answer.to_packet());
        pair.advance_seconds(1.0);
        assert_eq!(pair.path_of_first_router(), None);
    }
    assert!(pair.sent_updates().len() <= 10, "{} updates", pair.sent_updates().len());
}

/// RFC 6275 11.7.3: the router follows Binding Refresh Advice.
#[test]
fn refresh_advice_is_followed() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let mut answer = TestAcknowledgement::answering(&pair.last_update(), 0);
    answer.options.push(MobilityOption::BindingRefreshAdvice(5));
    pair.deliver_to_router(0, &answer.to_packet()).expect("accepted");
    pair.clear_records();
    pair.advance_seconds(19.9);
    assert!(pair.sent_updates().is_empty());
    pair.advance_seconds(0.2);
    assert_eq!(pair.sent_updates().len(), 1);
}

/// RFC 6275 6.1.8: status 1 is an acceptance.
#[test]
fn status_1_counts_as_accepted() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.answer_last_update(1).expect("accepted");
    assert_eq!(pair.first_router().state(), State::Registered);
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
}

/// Conformance item 64; RFC 6275 11.7.3, 6.4: the router ignores an acknowledgement that does not answer its
/// update.
#[test]
fn acknowledgements_of_other_updates_are_ignored() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let right = TestAcknowledgement::answering(&pair.last_update(), 0);
    let wrong = [
        (
            TestAcknowledgement { sequence: right.sequence.wrapping_add(1), ..right.clone() },
            MobilityDrop::Unexpected,
        ),
        (
            TestAcknowledgement { sequence: right.sequence.wrapping_sub(1), ..right.clone() },
            MobilityDrop::Unexpected,
        ),
        (TestAcknowledgement { routing_home_address: None, ..right.clone() }, MobilityDrop::WrongParty),
        (
            TestAcknowledgement { routing_home_address: Some(addr("2001:db8:1::5678")), ..right.clone() },
            MobilityDrop::WrongParty,
        ),
        (TestAcknowledgement { source: addr("2001:db8:1::2"), ..right.clone() }, MobilityDrop::WrongParty),
    ];
    for (answer, reason) in wrong {
        assert_eq!(pair.deliver_to_router(0, &answer.to_packet()), Err(reason), "{answer:?}");
        assert_eq!(pair.first_router().state(), State::Registering);
    }
    let mut broken = right.to_packet();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    assert_eq!(pair.deliver_to_router(0, &broken), Err(MobilityDrop::BadChecksum));
    pair.deliver_to_router(0, &right.to_packet()).expect("accepted");
    // The router accepts an acknowledgement once.
    assert_eq!(pair.deliver_to_router(0, &right.to_packet()), Err(MobilityDrop::Unexpected));
}

/// RFC 6275 11.7.3: the answer to an earlier transmission of the same update counts.
#[test]
fn answer_to_earlier_transmission_is_accepted() {
    let mut pair = pair_with_lost_updates();
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let (sent, first) = pair.sent_updates().remove(0);
    pair.advance_seconds(2.0);
    assert_eq!(pair.sent_updates().len(), 2);
    pair.deliver_to_router(0, &TestAcknowledgement::answering(&first, 0).to_packet()).expect("accepted");
    assert_eq!(
        pair.first_router().registration().expect("registered").expires_at,
        sent + Duration::from_secs(60)
    );
    pair.clear_records();
    pair.advance_seconds(30.0);
    assert!(pair.sent_updates().is_empty(), "no retransmission any more");
}

/// Conformance item 59; RFC 4285 5.1.1: with a key, answers without a right MAC are ignored, whatever their
/// status.
#[test]
fn acknowledgements_without_a_right_mac_are_ignored() {
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    assert!(pair.last_update().is_signed(&test_association(), CARE_OF_ADDRESS, HOME_ADDRESS));
    for status in [0, 135, 139, 142, 146] {
        assert_eq!(pair.answer_last_update(status), Err(MobilityDrop::AuthenticationMissing), "{status}");
        let mut answer = TestAcknowledgement::answering(&pair.last_update(), status);
        answer.association =
            Some(carnet_mobility::SecurityAssociation { key: [9; 16].into(), ..test_association() });
        assert_eq!(
            pair.deliver_to_router(0, &answer.to_packet()),
            Err(MobilityDrop::AuthenticationFailed),
            "{status}"
        );
    }
    assert_eq!(pair.first_router().state(), State::Registering);
    assert_eq!(pair.sent_updates().len(), 1);
    let mut answer = TestAcknowledgement::answering(&pair.last_update(), 0);
    answer.association = Some(test_association());
    pair.deliver_to_router(0, &answer.to_packet()).expect("accepted");
}

fn binding_error_packet(status: u8, home: &str) -> Vec<u8> {
    control_packet(
        addr(HOME_AGENT_ADDRESS),
        addr(CARE_OF_ADDRESS),
        None,
        &mut MobilityHeaderBuilder::binding_error(status, addr(home)).finish(),
    )
}

/// A Binding Error is only a hint: it makes the router register again, first at once and then at growing
/// intervals.
#[test]
fn a_binding_error_makes_the_router_register_again_but_not_often() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.advance_seconds(5.0);
    pair.clear_records();
    let path = pair.path_of_first_router();
    let start = pair.now;
    // A hint arrives every 0.1 s. Each update that follows a hint also renews the binding for 60 s, so no
    // other update is due in the first 64 s.
    for _ in 0..1000 {
        let _ = pair.deliver_to_router(0, &binding_error_packet(1, HOME_ADDRESS));
        pair.advance_seconds(0.1);
        assert_eq!(pair.path_of_first_router(), path, "a hint changes nothing else");
    }
    let at: Vec<f64> = pair
        .sent_updates()
        .iter()
        .map(|(at, _)| at.saturating_since(start).as_secs_f64().round())
        .filter(|at| *at < 64.0)
        .collect();
    assert_eq!(at, [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0]);
    assert!(pair.sent_updates().len() < 10);
    assert!(pair.is_registered(0));
}

/// ICMPv6 errors of the home agent about tunnelled packets: without acknowledgements the router registers
/// every two seconds. A home agent that acknowledges and still refuses packets has another fault; the router
/// asks it at growing intervals.
#[test]
fn icmp_errors_about_tunnelled_packets_cause_an_update_every_two_seconds() {
    let errors = |pair: &mut AgentAndRouters, seconds: u32| {
        let start = pair.now;
        pair.clear_records();
        for _ in 0..seconds * 10 {
            let _ = pair.run_on_router(0, |machine, now, wall| {
                machine.handle_tunnel_error(now, wall, addr(HOME_AGENT_ADDRESS))
            });
            pair.advance_seconds(0.1);
        }
        let at = |at: &Time| at.saturating_since(start).as_secs_f64();
        pair.sent_updates().iter().map(|(time, _)| at(time)).collect::<Vec<f64>>()
    };
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    let refused = pair
        .run_on_router(0, |machine, now, wall| machine.handle_tunnel_error(now, wall, addr("2001:db8:1::2")));
    assert_eq!(refused, Err(MobilityDrop::WrongParty));
    // The home agent is down, and its machine sends ICMPv6 errors.
    pair.is_agent_down = true;
    let at = errors(&mut pair, 40);
    assert!(at[0] < 0.1, "the first at once: {at:?}");
    let longest = at.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    assert!(longest < 2.2 && at.len() < 45, "{at:?}");
    pair.restart_agent(false);
    pair.is_agent_down = false;
    errors(&mut pair, 2);
    assert!(pair.is_registered(0), "within two seconds");
    // The home agent is up, and the errors continue.
    let at = errors(&mut pair, 60);
    assert!(at.len() <= 8, "{at:?}");
}

/// The router follows a hint at once again after five minutes without a hint, or after a change of its
/// care-of address.
#[test]
fn router_follows_first_binding_error_at_once_after_five_quiet_minutes() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    let hints = |pair: &mut AgentAndRouters| {
        pair.clear_records();
        for _ in 0..200 {
            let care_of = pair.path_of_first_router().expect("a path");
            let mut error = MobilityHeaderBuilder::binding_error(1, addr(HOME_ADDRESS)).finish();
            let _ = pair
                .deliver_to_router(0, &control_packet(addr(HOME_AGENT_ADDRESS), care_of, None, &mut error));
            pair.advance_seconds(0.1);
        }
        pair.sent_updates().len()
    };
    assert_eq!(hints(&mut pair), 5, "at 0, 1, 3, 7 and 15 s");
    assert!(hints(&mut pair) <= 1);
    pair.advance_seconds(301.0);
    assert_eq!(hints(&mut pair), 5);
    pair.attach_uplink(0, "wifi", OTHER_CARE_OF_ADDRESS);
    pair.advance_seconds(2.0);
    assert_eq!(hints(&mut pair), 5);
}

/// RFC 6275 11.3.6: an error with status 2 is about a message type, not about a binding. An error with
/// another home address is about another node.
#[test]
fn other_binding_errors_are_ignored() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.advance_seconds(5.0);
    pair.clear_records();
    for packet in [
        binding_error_packet(2, HOME_ADDRESS),
        binding_error_packet(1, "2001:db8:1::5678"),
        binding_error_packet(3, HOME_ADDRESS),
    ] {
        assert!(pair.deliver_to_router(0, &packet).is_err());
    }
    assert!(pair.sent_updates().is_empty());
}

/// A home agent without its state gets the registration back after the first packet of traffic.
#[test]
fn first_traffic_restores_a_binding_that_the_home_agent_lost() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.advance_seconds(5.0);
    pair.restart_agent(false);
    assert_eq!(pair.registered_care_of_address(), None);
    pair.send_data_packet(0);
    pair.advance_while(0.1, "the binding", |pair| pair.registered_care_of_address().is_none());
    assert!(pair.is_registered(0));
    // The home agent loses its state once more a little later.
    pair.advance_seconds(1.0);
    pair.restart_agent(false);
    let lost = pair.now;
    while pair.registered_care_of_address().is_none() {
        assert!(pair.now.saturating_since(lost) < Duration::from_secs(3));
        pair.send_data_packet(0);
        pair.advance_seconds(0.1);
    }
}

/// A restarted router without state sends a number that the home agent refuses as old. It registers after
/// status 135.
#[test]
fn a_router_that_lost_its_sequence_number_registers_after_status_135() {
    for seed in 0..20 {
        let mut setup = PairSetup::authenticated_setup();
        setup.seed = seed;
        let mut pair = AgentAndRouters::new(setup);
        pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
        pair.register_router();
        pair.restart_router(0, false);
        let took = pair.register_router();
        assert!(took < Duration::from_millis(100), "seed {seed}: {took:?}");
    }
}

/// A router with its stored number registers without status 135.
#[test]
fn a_router_that_knows_its_sequence_number_registers_at_once() {
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.clear_records();
    pair.restart_router(0, true);
    pair.register_router();
    assert_eq!(pair.sent_updates().len(), 1);
}

/// Hints that any sender can forge in the home agent's name do not delay hints that quote a packet of the
/// router.
#[test]
fn forged_binding_errors_do_not_delay_icmp_errors_that_quote_a_packet() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    for _ in 0..2000 {
        let care_of = pair.path_of_first_router().expect("a path");
        let mut error = MobilityHeaderBuilder::binding_error(1, addr(HOME_ADDRESS)).finish();
        let _ =
            pair.deliver_to_router(0, &control_packet(addr(HOME_AGENT_ADDRESS), care_of, None, &mut error));
        pair.advance_seconds(0.1);
    }
    pair.restart_agent(false);
    let refused = pair.run_on_router(0, |machine, now, wall| {
        machine.handle_tunnel_error(now, wall, addr(HOME_AGENT_ADDRESS))
    });
    assert_eq!(refused, Ok(()));
    pair.advance_seconds(0.5);
    assert!(pair.is_registered(0));
}
