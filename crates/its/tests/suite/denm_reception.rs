//! TS 102 869-2: the test purposes of DENM about reception and keep-alive forwarding. Each test has the id of
//! its purpose.

use crate::denm_support::{
    OWN_STATION_ID, denm_of_other_station, event_request, own_action_id, receive_denm, receiving_service,
    repeated_event_request, run_until, service_of_own_station, take_delivered_denms, take_only_denm,
    take_sent_denms, with_termination,
};
use crate::support::{circle_around_home, now_at_milliseconds, position_at};
use carnet_geonet::Transport;
use carnet_its::ItsDrop;
use carnet_its::cdd::{
    MessageId, RequestResponseIndication, StationId, StationType, TransmissionInterval, ValidityDuration,
};
use carnet_its::den::{DenParameters, DenService, EventRequest};
use carnet_its::denm::{AlacarteContainer, Denm, ImpactReductionContainer, LocationContainer, Termination};
use carnet_its::uper::encode;
use std::time::Duration;

#[test]
fn tc_den_msrv_bv_01() {
    let mut station = service_of_own_station();
    let sent =
        denm_of_other_station(1, now_at_milliseconds(500).timestamp, now_at_milliseconds(600).timestamp);
    assert_eq!(receive_denm(&mut station, 1000, &sent), Ok(()));
    assert_eq!(take_delivered_denms(&mut station), [sent]);
}

#[test]
fn tc_den_msrv_bv_02() {
    let mut station = receiving_service();
    let newer =
        denm_of_other_station(1, now_at_milliseconds(500).timestamp, now_at_milliseconds(700).timestamp);
    assert_eq!(receive_denm(&mut station, 1100, &newer), Ok(()));
    assert_eq!(take_delivered_denms(&mut station), [newer]);
}

#[test]
fn tc_den_msrv_bo_03() {
    let mut station = receiving_service();
    let mut end = with_termination(
        denm_of_other_station(7, now_at_milliseconds(500).timestamp, now_at_milliseconds(600).timestamp),
        Termination::IsCancellation,
    );
    end.denm.management.action_id.originating_station_id = OWN_STATION_ID;
    assert_eq!(receive_denm(&mut station, 1100, &end), Err(ItsDrop::OwnMessage));
    assert_eq!(take_delivered_denms(&mut station), []);
}

#[test]
fn tc_den_msrv_bo_04() {
    let mut station = receiving_service();
    let end = with_termination(
        denm_of_other_station(7, now_at_milliseconds(500).timestamp, now_at_milliseconds(600).timestamp),
        Termination::IsCancellation,
    );
    assert_eq!(receive_denm(&mut station, 1100, &end), Err(ItsDrop::UnknownEvent));
    assert_eq!(take_delivered_denms(&mut station), []);
}

#[test]
fn tc_den_msrv_bo_05() {
    let mut station = receiving_service();
    assert_eq!(
        receive_denm(
            &mut station,
            1100,
            &denm_of_other_station(1, now_at_milliseconds(500).timestamp, now_at_milliseconds(599).timestamp)
        ),
        Err(ItsDrop::Outdated)
    );
    assert_eq!(take_delivered_denms(&mut station), []);
}

#[test]
fn tc_den_msrv_bo_06() {
    let mut station = receiving_service();
    for detection in [499, 500] {
        let same = denm_of_other_station(
            1,
            now_at_milliseconds(detection).timestamp,
            now_at_milliseconds(600).timestamp,
        );
        assert_eq!(receive_denm(&mut station, 1100, &same), Err(ItsDrop::Outdated), "{detection}");
    }
    assert_eq!(take_delivered_denms(&mut station), []);
}

#[test]
fn tc_den_msrv_bv_07() {
    let mut station = receiving_service();
    let again =
        denm_of_other_station(1, now_at_milliseconds(501).timestamp, now_at_milliseconds(600).timestamp);
    assert_eq!(receive_denm(&mut station, 1100, &again), Ok(()));
    assert_eq!(take_delivered_denms(&mut station), [again]);
}

#[test]
fn tc_den_msrv_bv_10() {
    let mut station = service_of_own_station();
    station.set_impact_reduction(Some(ImpactReductionContainer {
        position_of_pillars: carnet_its::cdd::PositionOfPillars(vec![carnet_its::cdd::PosPillar(4)]),
        ..ImpactReductionContainer::default()
    }));
    let mut asked =
        denm_of_other_station(1, now_at_milliseconds(500).timestamp, now_at_milliseconds(600).timestamp);
    asked.denm.alacarte = Some(AlacarteContainer {
        impact_reduction: Some(ImpactReductionContainer {
            position_of_pillars: carnet_its::cdd::PositionOfPillars(vec![carnet_its::cdd::PosPillar(5)]),
            ..ImpactReductionContainer::default()
        }),
        ..AlacarteContainer::default()
    });
    assert_eq!(receive_denm(&mut station, 1000, &asked), Ok(()));
    let answer = take_only_denm(&mut station, 1000).denm;
    assert_eq!(answer.management.action_id.originating_station_id, OWN_STATION_ID);
    let impact = answer.alacarte.unwrap().impact_reduction.unwrap();
    assert_eq!(impact.request_response_indication, RequestResponseIndication::Response);
    assert_eq!(impact.position_of_pillars.0[0].0, 4);
    // The station answers once per event.
    asked.denm.management.reference_time = now_at_milliseconds(700).timestamp;
    assert_eq!(receive_denm(&mut station, 1100, &asked), Ok(()));
    assert_eq!(take_sent_denms(&mut station, 1100), []);
}

/// Returns a message about event 1 with a transmission interval of 500 ms, for keep-alive forwarding.
fn denm_with_keep_alive_forwarding() -> Denm {
    let mut denm =
        denm_of_other_station(1, now_at_milliseconds(500).timestamp, now_at_milliseconds(600).timestamp);
    denm.denm.management.transmission_interval = Some(TransmissionInterval(500));
    denm.denm.location = Some(LocationContainer {
        traces: carnet_its::cdd::Traces(vec![carnet_its::cdd::PathHistory::default()]),
        ..LocationContainer::default()
    });
    denm.denm.alacarte = Some(AlacarteContainer::default());
    denm
}

/// Returns a service that received the message for keep-alive forwarding at 1000 ms.
fn forwarding_service() -> DenService {
    let mut station = service_of_own_station();
    receive_denm(&mut station, 1000, &denm_with_keep_alive_forwarding()).unwrap();
    station
}

#[test]
fn tc_den_kafw_bv_01() {
    let mut station = forwarding_service();
    assert_eq!(run_until(&mut station, 1999), []);
    assert_eq!(run_until(&mut station, 2200).len(), 1);
}

#[test]
fn tc_den_kafw_bv_02() {
    let mut station = forwarding_service();
    let mut older = denm_with_keep_alive_forwarding();
    older.denm.management.reference_time = now_at_milliseconds(590).timestamp;
    assert_eq!(receive_denm(&mut station, 1900, &older), Err(ItsDrop::Outdated));
    assert_eq!(run_until(&mut station, 2200).len(), 1, "what is older does not keep it alive");
    // A further copy of the message restarts the forwarding timer: the originator or another forwarder has
    // just sent the message.
    let mut station = forwarding_service();
    assert_eq!(receive_denm(&mut station, 1900, &denm_with_keep_alive_forwarding()), Err(ItsDrop::Outdated));
    assert_eq!(run_until(&mut station, 2899), []);
    assert_eq!(run_until(&mut station, 3100).len(), 1);
}

#[test]
fn tc_den_kafw_ti_03() {
    let mut delays: Vec<u64> = Vec::new();
    for seed in 0..40 {
        let mut station =
            DenService::new(DenParameters::default(), OWN_STATION_ID, StationType::PASSENGER_CAR, seed);
        station.handle_position(position_at(0.0, 0.0));
        receive_denm(&mut station, 1000, &denm_with_keep_alive_forwarding()).unwrap();
        delays.push(run_until(&mut station, 3000)[0].0 - 1000);
    }
    assert!(delays.iter().all(|delay| (1000..=1150).contains(delay)), "{delays:?}");
    let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    assert!(most - least > 75, "random: {delays:?}");
    // The forwarding timer is at most the validity of the event. Here it would expire together with the
    // event, so the station forwards nothing.
    let mut short = denm_with_keep_alive_forwarding();
    short.denm.management.transmission_interval = Some(TransmissionInterval(8000));
    let mut station = forwarding_service();
    short.denm.management.reference_time = now_at_milliseconds(610).timestamp;
    receive_denm(&mut station, 1000, &short).unwrap();
    assert_eq!(run_until(&mut station, 60_000), []);
}

/// Returns the DENM that `forwarding_service` sends.
fn forwarded_denm() -> Denm {
    run_until(&mut forwarding_service(), 2200).remove(0).1
}

#[test]
fn tc_den_kafw_bv_04() {
    assert_eq!(forwarded_denm().header.station_id, OWN_STATION_ID);
    assert_eq!(forwarded_denm().header.message_id, MessageId::DENM);
}

#[test]
fn tc_den_kafw_bv_05() {
    assert_eq!(forwarded_denm().denm.management.action_id, own_action_id(1));
}

#[test]
fn tc_den_kafw_bv_06() {
    assert_eq!(forwarded_denm().denm.management.reference_time, now_at_milliseconds(600).timestamp);
}

#[test]
fn tc_den_kafw_bv_07() {
    let mut station = forwarding_service();
    let mut end = with_termination(denm_with_keep_alive_forwarding(), Termination::IsNegation);
    end.denm.management.reference_time = now_at_milliseconds(700).timestamp;
    receive_denm(&mut station, 1100, &end).unwrap();
    let sent = run_until(&mut station, 2300);
    assert_eq!(sent[0].1.denm.management.termination, Some(Termination::IsNegation));
}

#[test]
fn tc_den_kafw_bv_08() {
    assert_eq!(forwarded_denm().denm, denm_with_keep_alive_forwarding().denm);
}

/// Beyond the ETSI test purposes: the station forwards unknown data, which a later release may have added,
/// without a change.
#[test]
fn forwarding_keeps_every_octet() {
    let mut octets = encode(&denm_with_keep_alive_forwarding()).unwrap();
    octets.extend([0xab; 3]);
    let mut station = service_of_own_station();
    station.handle_message(now_at_milliseconds(1000), &octets, Some(circle_around_home(1000))).unwrap();
    station.handle_timeout(now_at_milliseconds(2200));
    let sent = station.poll_transmit().unwrap();
    // The sent octets behind BTP-B header and station ID equal the received octets behind the station ID.
    assert_eq!(sent.payload[10..], octets[6..]);
    assert_eq!(sent.transport, Transport::GeoBroadcast(circle_around_home(1000)));
}

#[test]
fn tc_den_kafw_bv_09() {
    let mut station = forwarding_service();
    let sent = run_until(&mut station, 60_000);
    // The event was detected at 500 ms and is valid for 10 s.
    assert!((7..=10).contains(&sent.len()) && sent.iter().all(|sent| sent.0 < 10_500), "{sent:?}");
    assert_eq!(station.event_counts(), (0, 0));
}

#[test]
fn tc_den_kafw_bv_10() {
    let mut station = forwarding_service();
    station.handle_position(position_at(3000.0, 0.0));
    assert_eq!(run_until(&mut station, 60_000), []);
}

#[test]
fn tc_den_kafw_bv_11() {
    let mut station = service_of_own_station();
    let mut silent = denm_with_keep_alive_forwarding();
    silent.denm.management.transmission_interval = None;
    receive_denm(&mut station, 1000, &silent).unwrap();
    assert_eq!(run_until(&mut station, 60_000), []);
}

/// Beyond the ETSI test purposes: the station refuses events that have ended, and reference times in the
/// future.
#[test]
fn denm_with_impossible_times_is_refused() {
    let mut station = service_of_own_station();
    let past = denm_of_other_station(1, now_at_milliseconds(0).timestamp, now_at_milliseconds(0).timestamp);
    assert_eq!(receive_denm(&mut station, 10_000, &past), Err(ItsDrop::Expired));
    let future =
        denm_of_other_station(2, now_at_milliseconds(0).timestamp, now_at_milliseconds(41_001).timestamp);
    assert_eq!(receive_denm(&mut station, 1000, &future), Err(ItsDrop::FromTheFuture));
    let future =
        denm_of_other_station(3, now_at_milliseconds(41_001).timestamp, now_at_milliseconds(0).timestamp);
    assert_eq!(receive_denm(&mut station, 1000, &future), Err(ItsDrop::FromTheFuture));
    let tolerated =
        denm_of_other_station(4, now_at_milliseconds(0).timestamp, now_at_milliseconds(40_999).timestamp);
    assert_eq!(receive_denm(&mut station, 1000, &tolerated), Ok(()));
    let request = EventRequest {
        detection_time: Some(now_at_milliseconds(0).timestamp),
        ..repeated_event_request(500, 500, Some(1))
    };
    assert_eq!(station.trigger_event(now_at_milliseconds(1000), &request), Err(ItsDrop::Expired));
}

/// Beyond the ETSI test purposes: the station accepts a negation whose reference time equals that of the
/// negated message.
#[test]
fn station_accepts_negation_with_reference_time_of_negated_message() {
    let mut station = receiving_service();
    let mut negation = with_termination(
        denm_of_other_station(1, now_at_milliseconds(500).timestamp, now_at_milliseconds(600).timestamp),
        Termination::IsNegation,
    );
    negation.header.station_id = StationId(5);
    assert_eq!(receive_denm(&mut station, 1100, &negation), Ok(()));
    assert_eq!(take_delivered_denms(&mut station).len(), 1);
    assert_eq!(receive_denm(&mut station, 1200, &negation), Err(ItsDrop::Outdated));
    // An application cannot end an event that has already ended.
    assert_eq!(
        station.terminate_event(now_at_milliseconds(1300), own_action_id(1), &event_request()),
        Err(ItsDrop::UnknownEvent)
    );
}

/// Beyond the ETSI test purposes: the service limits the number of own events and of received events.
#[test]
fn den_service_tables_are_bounded() {
    let mut station = service_of_own_station();
    for number in 0..1000 {
        let mut denm = denm_of_other_station(
            number,
            now_at_milliseconds(500).timestamp,
            now_at_milliseconds(600).timestamp,
        );
        denm.denm.management.validity_duration = ValidityDuration(10 + u32::from(number));
        assert_eq!(receive_denm(&mut station, 1000, &denm), Ok(()));
    }
    assert_eq!(station.event_counts().1, DenParameters::default().max_received_events);
    assert_eq!(std::iter::from_fn(|| station.poll_event()).count(), 256);
    for _ in 0..DenParameters::default().max_own_events {
        station.trigger_event(now_at_milliseconds(1000), &event_request()).unwrap();
    }
    assert_eq!(station.trigger_event(now_at_milliseconds(1000), &event_request()), Err(ItsDrop::TableFull));
    // After 2,000 s all events have ended, and both tables are empty.
    station.handle_timeout(now_at_milliseconds(Duration::from_secs(2000).as_millis() as u64));
    assert_eq!(station.event_counts(), (0, 0));
}
