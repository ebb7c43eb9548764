//! Mobile router: refusals of the home agent (RFC 3963 5.3, 5.4, RFC 6275 11.7.3, RFC 4285 5.3, 6).

use std::time::Duration;

use carnet_mobility::mobile_router::State;
use carnet_mobility::{Authentication, Event, MobilityDrop, ReplayProtection, SecurityAssociation};
use carnet_wire::mobility::binding_status::BindingStatus;

use crate::agent::authorized_node;
use crate::agent_and_routers::{AgentAndRouters, Link, PairSetup};
use crate::test_messages::*;

/// Creates a router whose Binding Updates the test answers in the home agent's place.
fn pair_without_agent() -> AgentAndRouters {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair
}

fn pair_registered_by_test() -> AgentAndRouters {
    let mut pair = pair_without_agent();
    pair.answer_last_update(0).expect("accepted");
    pair.advance_seconds(46.0); // the refresh has left
    pair
}

fn count_rejections(pair: &AgentAndRouters) -> usize {
    pair.events.iter().filter(|(_, _, event)| matches!(event, Event::Rejected { .. })).count()
}

/// Conformance item 64; RFC 3963 5.4: statuses 140 to 143 end the service: the router logs the refusal, does
/// not repeat the update, and assumes no binding.
#[test]
fn refusal_statuses_of_nemo_stop_registration() {
    for status in [140, 141, 142, 143] {
        for mut pair in [pair_without_agent(), pair_registered_by_test()] {
            pair.answer_last_update(status).expect("an answer");
            assert_eq!(pair.first_router().state(), State::Refused(BindingStatus(status)));
            assert!(pair.first_router().registration().is_none(), "5.4: no binding cache entry");
            assert_eq!(pair.path_of_first_router(), None);
            assert_eq!(count_rejections(&pair), 1, "5.4: it must log the information");
            pair.clear_records();
            pair.advance_seconds(300.0);
            pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
            pair.send_data_packet(0);
            pair.advance_seconds(299.0);
            assert!(pair.sent_updates().is_empty(), "{status}");
        }
    }
}

/// Returns the pauses in seconds between the updates of a router that gets this status each time, within an
/// hour.
fn pauses_between_updates(mut pair: AgentAndRouters, status: u8, is_answered: bool) -> Vec<u64> {
    let mut asked = vec![pair.now];
    pair.answer_last_update(status).expect("an answer");
    pair.clear_records();
    let end = pair.now + Duration::from_secs(3600);
    while pair.handle_next_event(end) {
        if let Some((at, _)) = pair.sent_updates().pop() {
            asked.push(at);
            if is_answered {
                pair.answer_last_update(status).expect("an answer");
            }
            pair.clear_records();
        }
        pair.send_data_packet(0);
    }
    asked.windows(2).map(|pair| pair[1].saturating_since(pair[0]).as_secs()).collect()
}

/// RFC 6275 11.7.3 and 11.8: statuses 129 and 131 to 133 may pass soon, above all if the home agent has
/// acknowledged this router before. The pauses double.
#[test]
fn router_retries_after_temporary_refusals_with_doubling_pauses() {
    for status in [129, 131, 132, 133] {
        for is_answered in [true, false] {
            let known = pauses_between_updates(pair_registered_by_test(), status, is_answered);
            assert_eq!(known[..11], [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600], "{status} {is_answered}");
            let unknown = pauses_between_updates(pair_without_agent(), status, is_answered);
            assert_eq!(unknown[..7], [32, 64, 128, 256, 512, 600, 600], "{status} {is_answered}");
        }
    }
}

/// The home agent has only just started and refuses the refresh once: two seconds later the router is
/// registered again.
#[test]
fn registered_router_retries_two_seconds_after_a_temporary_refusal() {
    for status in [129, 131, 132, 133] {
        let mut pair = pair_registered_by_test();
        pair.answer_last_update(status).expect("an answer");
        assert_eq!(pair.first_router().state(), State::Refused(BindingStatus(status)));
        pair.link_conditions = Link::LOSSLESS;
        pair.advance_seconds(2.1);
        assert!(pair.is_registered(0), "{status}");
        // The next refusal counts as a first one again.
        pair.advance_seconds(40.0);
        pair.link_conditions = Link::LOSES_EVERYTHING;
        pair.clear_records();
        pair.advance_seconds(10.0);
        pair.answer_last_update(status).expect("an answer");
        pair.link_conditions = Link::LOSSLESS;
        pair.advance_seconds(2.1);
        assert!(pair.is_registered(0), "{status}");
    }
}

/// After ten minutes the router asks again by a single update. The service starts only when the home agent
/// accepts it.
#[test]
fn router_retries_every_ten_minutes_after_a_refusal() {
    for status in [140, 141, 142, 143] {
        let mut pair = pair_without_agent();
        pair.answer_last_update(status).expect("an answer");
        pair.clear_records();
        // Unanswered updates follow every ten minutes, whatever traffic and hints occur.
        for _ in 0..1300 {
            pair.advance_seconds(1.0);
            pair.send_data_packet(0);
            assert_eq!(pair.first_router().state(), State::Refused(BindingStatus(status)));
        }
        assert_eq!(pair.sent_updates().len(), 2, "{status}");
        assert!(pair.sent_updates().iter().all(|(_, update)| update.lifetime() > 0));
        // The home agent refuses again.
        pair.advance_seconds(500.0);
        assert_eq!(pair.sent_updates().len(), 3);
        pair.answer_last_update(142).expect("an answer");
        assert_eq!(pair.first_router().state(), State::Refused(BindingStatus(142)));
        assert_eq!(count_rejections(&pair), 1);
        pair.advance_seconds(599.0);
        assert_eq!(pair.sent_updates().len(), 3);
        // The home agent accepts at last.
        pair.advance_seconds(2.0);
        assert_eq!(pair.sent_updates().len(), 4);
        assert!(!pair.first_router().may_advertise());
        pair.answer_last_update(0).expect("an answer");
        assert_eq!(pair.first_router().state(), State::Registered);
        assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
        assert!(pair.first_router().may_advertise());
    }
}

/// The acceptance follows a refusal. Either the refusal answered another sender's message with the same
/// number, or the home agent has a new config and received the update twice. The router then asks again at
/// once: it neither waits ten minutes nor trusts the acceptance.
#[test]
fn accepted_update_after_refusal_ends_the_pause() {
    for mut pair in [pair_without_agent(), pair_registered_by_test()] {
        let asked = pair.last_update();
        pair.answer_last_update(142).expect("an answer");
        pair.clear_records();
        // An acceptance of another number is not for this router's update.
        let other = TestAcknowledgement {
            sequence: asked.sequence().wrapping_add(1),
            ..TestAcknowledgement::answering(&asked, 0)
        };
        assert_eq!(pair.deliver_to_router(0, &other.to_packet()), Err(MobilityDrop::Unexpected));
        pair.deliver_to_router(0, &TestAcknowledgement::answering(&asked, 142).to_packet())
            .expect_err("once is enough");
        assert_eq!(pair.first_router().state(), State::Refused(BindingStatus(142)));
        pair.deliver_to_router(0, &TestAcknowledgement::answering(&asked, 0).to_packet())
            .expect("accepted after all");
        assert_eq!((pair.first_router().state(), pair.sent_updates().len()), (State::Registering, 1));
        assert!(pair.first_router().registration().is_none());
        // The router accepts each answer once.
        pair.answer_last_update(142).expect("an answer");
        pair.deliver_to_router(0, &TestAcknowledgement::answering(&asked, 0).to_packet())
            .expect_err("an old number");
        assert_eq!(pair.first_router().state(), State::Refused(BindingStatus(142)));
        let asked = pair.last_update();
        pair.deliver_to_router(0, &TestAcknowledgement::answering(&asked, 0).to_packet())
            .expect("accepted after all");
        pair.answer_last_update(0).expect("accepted");
        assert_eq!(pair.first_router().state(), State::Registered);
        pair.advance_seconds(700.0);
    }
}

/// For a router with a key only an acceptance with a right MAC counts.
#[test]
fn router_ignores_unsigned_acceptance_after_a_refusal() {
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let asked = pair.last_update();
    let answer = |status, key: SecurityAssociation| {
        TestAcknowledgement { association: Some(key), ..TestAcknowledgement::answering(&asked, status) }
            .to_packet()
    };
    pair.deliver_to_router(0, &answer(142, test_association())).expect("an answer");
    let wrong = SecurityAssociation { key: [9; 16].into(), ..test_association() };
    assert_eq!(pair.deliver_to_router(0, &answer(0, wrong)), Err(MobilityDrop::AuthenticationFailed));
    let unsigned = TestAcknowledgement::answering(&asked, 0).to_packet();
    assert_eq!(pair.deliver_to_router(0, &unsigned), Err(MobilityDrop::AuthenticationMissing));
    assert_eq!(pair.first_router().state(), State::Refused(BindingStatus(142)));
    pair.deliver_to_router(0, &answer(0, test_association())).expect("accepted after all");
    assert_eq!(pair.first_router().state(), State::Registering);
}

/// A refused router without an uplink asks once, as soon as it has one. After a temporary refusal it retries
/// as usual.
#[test]
fn refused_router_retries_once_when_an_uplink_comes_up() {
    let mut pair = pair_without_agent();
    pair.answer_last_update(140).expect("an answer");
    pair.detach_uplink(0, "wifi");
    pair.clear_records();
    pair.advance_seconds(2000.0);
    assert!(pair.sent_updates().is_empty());
    pair.attach_uplink(0, "wifi", OTHER_CARE_OF_ADDRESS);
    assert_eq!(pair.sent_updates().len(), 1);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(500.0);
    assert_eq!(pair.sent_updates().len(), 1);
    pair.advance_seconds(101.0);
    assert_eq!((pair.sent_updates().len(), pair.last_update().source), (2, addr(CARE_OF_ADDRESS)));
    pair.answer_last_update(128).expect("an answer");
    pair.advance_seconds(33.0);
    assert_eq!(pair.sent_updates().len(), 3);
}

/// RFC 3963 5.4.2: after status 141 or 142 the router "MUST also stop advertising the prefix".
#[test]
fn prefixes_are_not_advertised_after_141_and_142() {
    for (status, may) in [(140, true), (141, false), (142, false), (143, true)] {
        let mut pair = pair_without_agent();
        assert!(pair.first_router().may_advertise());
        pair.answer_last_update(status).expect("an answer");
        assert_eq!(pair.first_router().may_advertise(), may, "{status}");
    }
}

/// The operator's command makes the router ask at once.
#[test]
fn operator_command_makes_refused_router_retry_at_once() {
    let mut pair = pair_without_agent();
    pair.answer_last_update(142).expect("an answer");
    pair.clear_records();
    pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, None)).expect("handover");
    assert_eq!(pair.sent_updates().len(), 1);
    assert!(pair.first_router().may_advertise());
    pair.answer_last_update(0).expect("accepted");
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
}

/// RFC 3963 5.3: the answer lacks the R flag: the router de-registers and does not register again.
#[test]
fn router_deregisters_after_acknowledgement_without_r_flag() {
    for mut pair in [pair_without_agent(), pair_registered_by_test()] {
        let mut answer = TestAcknowledgement::answering(&pair.last_update(), 0);
        answer.mobile_router = false;
        pair.clear_records();
        pair.deliver_to_router(0, &answer.to_packet()).expect("an answer");
        assert_eq!(pair.path_of_first_router(), None);
        let update = pair.last_update();
        assert_eq!(update.lifetime(), 0);
        assert!(update.options().prefixes.is_empty(), "RFC 3963 5.8");
        pair.answer_last_update(0).expect("an answer");
        pair.clear_records();
        pair.advance_seconds(599.0);
        assert!(pair.sent_updates().is_empty());
        assert!(!pair.events.iter().any(|(_, _, e)| matches!(e, Event::Deregistered { .. })));
    }
}

/// The uplink goes away meanwhile: the remaining de-registrations leave from the router's current address, or
/// not at all.
#[test]
fn deregistration_is_repeated_from_the_current_care_of_address() {
    let mut pair = pair_without_agent();
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    let mut answer = TestAcknowledgement::answering(&pair.last_update(), 0);
    answer.mobile_router = false;
    pair.deliver_to_router(0, &answer.to_packet()).expect("an answer");
    pair.detach_uplink(0, "wifi");
    pair.clear_records();
    pair.advance_seconds(120.0); // the pair checks every source address
    assert!(pair.sent_updates().iter().all(|(_, update)| update.source == addr(OTHER_CARE_OF_ADDRESS)));
}

/// Conformance item 64; RFC 6275 11.7.3: after status 135 the router at once sends the number after the named
/// one.
#[test]
fn status_135_is_followed_at_once_by_the_next_number() {
    let mut pair = pair_without_agent();
    let mut answer = TestAcknowledgement::answering(&pair.last_update(), 135);
    answer.sequence = pair.last_update().sequence().wrapping_add(1000);
    let next = answer.sequence.wrapping_add(1);
    pair.deliver_to_router(0, &answer.to_packet()).expect("an answer");
    assert_eq!(pair.sent_updates().len(), 2);
    assert_eq!(pair.sent_updates()[0].0, pair.sent_updates()[1].0, "at the same instant");
    assert_eq!(pair.last_update().sequence(), next);
    assert_eq!(count_rejections(&pair), 0);
}

/// A duplicate of status 135 names a number that the outstanding update has passed already. Every
/// transmission has a number greater than the one before (11.8).
#[test]
fn a_duplicate_of_status_135_is_ignored() {
    let mut pair = pair_without_agent();
    let mut answer = TestAcknowledgement::answering(&pair.last_update(), 135);
    answer.sequence = pair.last_update().sequence().wrapping_add(1000);
    pair.deliver_to_router(0, &answer.to_packet()).expect("an answer");
    assert_eq!(pair.deliver_to_router(0, &answer.to_packet()), Err(MobilityDrop::Unexpected));
    assert_eq!(pair.sent_updates().len(), 2);
}

/// A home agent that always answers 135 causes no storm of updates (UMIP sends 200 a second then).
#[test]
fn repeated_status_135_falls_back_to_retransmission_back_off() {
    let mut pair = pair_without_agent();
    for _ in 0..300 {
        let mut answer = TestAcknowledgement::answering(&pair.last_update(), 135);
        answer.sequence = answer.sequence.wrapping_add(20_000);
        let _ = pair.deliver_to_router(0, &answer.to_packet());
        pair.advance_seconds(0.1);
    }
    assert!(pair.sent_updates().len() <= 10, "{} updates in 30 s", pair.sent_updates().len());
}

/// RFC 6275 11.7.3 with 9.5.1: status 139 means that the home agent has a binding of another kind; the router
/// removes it.
#[test]
fn router_removes_foreign_binding_and_registers_again_after_status_139() {
    let mut setup = PairSetup::plain_setup();
    setup.seed = 5;
    let mut pair = AgentAndRouters::new(setup);
    // Another sender has registered this home address without the R flag.
    let foreign = TestUpdate::node_update(1).with_alternate_care_of_address(CARE_OF_ADDRESS);
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let before = pair.last_update().sequence().wrapping_sub(5);
    pair.inject_packet(TestUpdate { sequence: before, ..foreign }.to_packet());
    pair.advance_seconds(0.1);
    assert_eq!(pair.registered_care_of_address(), Some(addr(CARE_OF_ADDRESS)));
    pair.link_conditions = Link::LOSSLESS;
    pair.register_router();
    let statuses: Vec<u8> = pair
        .sent_packets
        .iter()
        .filter(|sent| sent.sending_router.is_none())
        .map(|sent| sent.received_packet.status())
        .collect();
    assert_eq!(statuses[statuses.len() - 3..], [139, 0, 0]);
}

/// RFC 4285 5.3: after status 146 the node "SHOULD stop sending new Binding Updates". The router pauses for
/// half a minute, with traffic or without.
#[test]
fn status_146_is_followed_by_a_pause() {
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let mut answer = TestAcknowledgement::answering(&pair.last_update(), 146);
    answer.association = Some(test_association());
    pair.deliver_to_router(0, &answer.to_packet()).expect("an answer");
    pair.clear_records();
    for _ in 0..290 {
        pair.send_data_packet(0);
        pair.advance_seconds(0.1);
    }
    assert!(pair.sent_updates().is_empty());
    pair.advance_seconds(2.0);
    assert_eq!(pair.sent_updates().len(), 1);
}

/// The home agent answers forgeries with status 146. While a binding is registered, an attacker is a more
/// likely cause of 146 than a new key. The router continues its refresh.
#[test]
fn status_146_does_not_delay_the_refresh_of_a_binding() {
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.advance_seconds(40.0);
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.clear_records();
    for _ in 0..10 {
        pair.advance_seconds(1.0);
        if let Some((_, update)) = pair.sent_updates().pop() {
            let mut answer = TestAcknowledgement::answering(&update, 146);
            answer.association = Some(test_association());
            pair.deliver_to_router(0, &answer.to_packet()).expect("an answer");
        }
    }
    assert!(pair.sent_updates().len() >= 3, "{} updates", pair.sent_updates().len());
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
    pair.link_conditions = Link::LOSSLESS;
    pair.advance_seconds(8.0);
    assert!(pair.is_registered(0));
}

/// RFC 6275 11.7.3: the router retries temporary refusals slowly, and its registration stays meanwhile.
#[test]
fn temporary_refusals_are_tried_again_slowly() {
    for status in [128, 130, 134] {
        let mut pair = pair_registered_by_test();
        pair.answer_last_update(status).expect("an answer");
        assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
        pair.clear_records();
        pair.advance_seconds(31.9);
        assert!(pair.sent_updates().is_empty());
        pair.advance_seconds(0.2);
        assert_eq!(pair.sent_updates().len(), 1);
    }
}

/// A real home agent answers a foreign prefix with status 142, and the tunnel of the prefix's owner stays.
#[test]
fn home_agent_refuses_router_with_a_foreign_prefix() {
    let mut setup = PairSetup::plain_setup();
    setup.agent.nodes = vec![authorized_node(HOME_ADDRESS, &[SECOND_MOBILE_NETWORK_PREFIX])];
    let mut pair = AgentAndRouters::new(setup);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(1.0);
    assert_eq!(pair.first_router().state(), State::Refused(BindingStatus(142)));
    assert_eq!(pair.registered_care_of_address(), None);
}

fn timestamp_association() -> SecurityAssociation {
    SecurityAssociation {
        replay: ReplayProtection::Timestamp { window: Duration::from_secs(7) },
        ..test_association()
    }
}

fn pair_with_clock_lead(ahead: Duration) -> AgentAndRouters {
    let mut setup = PairSetup::authenticated_setup();
    setup.agent.nodes[0].authentication = Authentication::SharedKey(timestamp_association());
    setup.routers[0].authentication = Authentication::SharedKey(timestamp_association());
    let mut pair = AgentAndRouters::new(setup);
    pair.routers[0].clock_lead = ahead;
    pair
}

/// RFC 4285 6: after status 144 "the Mobile Node MUST adjust its timestamp".
#[test]
fn router_adjusts_its_timestamps_after_status_144() {
    for ahead in [0, 5, 3600, 86_400 * 365] {
        let mut pair = pair_with_clock_lead(Duration::from_secs(ahead));
        pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
        let took = pair.register_router();
        assert!(took < Duration::from_secs(1), "{ahead}: {took:?}");
        let updates = pair.sent_updates().len();
        assert_eq!(updates, if ahead > 7 { 2 } else { 1 }, "{ahead}");
        pair.advance_seconds(300.0);
        assert!(pair.is_registered(0));
        assert!(pair.sent_updates().len() < 12);
    }
}

/// RFC 4285 6: an answer with another timestamp than the update's is "silently" discarded.
#[test]
fn an_answer_with_another_timestamp_is_ignored() {
    let mut pair = pair_with_clock_lead(Duration::ZERO);
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    let mut answer = TestAcknowledgement::answering(&pair.last_update(), 0);
    answer.association = Some(timestamp_association());
    assert_eq!(pair.deliver_to_router(0, &answer.to_packet()), Err(MobilityDrop::Timestamp));
    answer.options.push(carnet_wire::mobility::MobilityOption::MessageIdentifier(1));
    assert_eq!(pair.deliver_to_router(0, &answer.to_packet()), Err(MobilityDrop::Timestamp));
    let timestamp = pair.last_update().options().timestamp.expect("a timestamp");
    answer.options = vec![carnet_wire::mobility::MobilityOption::MessageIdentifier(timestamp)];
    pair.deliver_to_router(0, &answer.to_packet()).expect("accepted");
}

/// The router also adjusts its clock by the answer to a de-registration.
#[test]
fn a_deregistration_with_a_wrong_clock_is_repeated() {
    let mut pair = pair_with_clock_lead(Duration::ZERO);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.routers[0].clock_lead = Duration::from_secs(1000);
    pair.run_on_router(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    pair.advance_seconds(1.0);
    assert_eq!(pair.registered_care_of_address(), None);
    assert!(pair.first_router().is_quiescent());
}

/// RFC 5905 6: NTP timestamps begin anew on 2036-02-07T06:28:16Z; registrations continue, and old ones stay
/// old.
#[test]
fn timestamps_last_beyond_the_end_of_the_ntp_era() {
    let mut pair = pair_with_clock_lead(Duration::from_secs(2));
    let end = Duration::from_secs(2_085_978_496);
    let clock = carnet_base::WallTime::from_unix_nanos((end - Duration::from_secs(250)).as_nanos() as u64);
    pair.wall_start = clock; // the pair begins at 100 s
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    pair.advance_seconds(600.0);
    assert!(pair.is_registered(0));
    let statuses: Vec<u8> = pair
        .sent_packets
        .iter()
        .filter(|sent| sent.sending_router.is_none())
        .map(|sent| sent.received_packet.status())
        .collect();
    assert!(statuses.iter().all(|status| *status == 0), "{statuses:?}");
    let old = pair.sent_updates()[0].1.options().timestamp.expect("a timestamp");
    assert!(old > pair.last_update().options().timestamp.expect("a timestamp"), "it has wrapped");
}

/// A home agent that always answers 144 causes no storm of updates.
#[test]
fn repeated_status_144_falls_back_to_retransmission_back_off() {
    let mut pair = pair_with_clock_lead(Duration::ZERO);
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    for _ in 0..300 {
        let mut answer = TestAcknowledgement::answering(&pair.last_update(), 144);
        answer
            .options
            .push(carnet_wire::mobility::MobilityOption::MessageIdentifier(pair.wall_time().to_ntp()));
        answer.association = Some(timestamp_association());
        let _ = pair.deliver_to_router(0, &answer.to_packet());
        pair.advance_seconds(0.1);
    }
    assert!(pair.sent_updates().len() <= 10, "{} updates in 30 s", pair.sent_updates().len());
}

/// RFC 4285 6: every timestamp is greater than the one before, also within one instant and after the clock
/// was set back.
#[test]
fn timestamps_of_updates_only_increase() {
    let mut pair = pair_with_clock_lead(Duration::from_secs(3));
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    pair.register_router();
    pair.attach_uplink(0, "cell", "2001:db8:f3::10");
    pair.attach_uplink(0, "cell", CARE_OF_ADDRESS);
    pair.routers[0].clock_lead = Duration::ZERO;
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    pair.advance_seconds(1.5);
    assert!(pair.is_registered(0));
    let stamps: Vec<u64> = pair
        .sent_updates()
        .iter()
        .map(|(_, update)| update.options().timestamp.expect("a timestamp"))
        .collect();
    assert!(stamps.windows(2).all(|pair| pair[0] < pair[1]), "{stamps:x?}");
}

/// A reload keeps sequence numbers, timestamps and registration.
#[test]
fn a_new_configuration_keeps_sequence_numbers_timestamps_and_registration() {
    let mut pair = pair_with_clock_lead(Duration::from_secs(3));
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    pair.register_router();
    let before = pair.last_update();
    pair.routers[0].clock_lead = Duration::ZERO;
    pair.reconfigure_router(0);
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)), "traffic goes on");
    pair.advance_seconds(1.0);
    assert!(pair.is_registered(0));
    let after = pair.last_update();
    assert_eq!(after.sequence(), before.sequence().wrapping_add(1));
    assert!(after.options().timestamp > before.options().timestamp);
    assert_eq!(pair.sent_updates().len(), 2);
}
