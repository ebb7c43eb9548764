//! TS 102 869-2: the test purposes of DENM about reception and keep-alive forwarding. Each test has the id of
//! its purpose.

use crate::denm_support::{
    OWN, action, delivered, denm, drain, event, only, over, receive, repeated, run, station, witness,
};
use crate::support::{at, circle, place};
use carnet_geonet::Transport;
use carnet_its::ItsDrop;
use carnet_its::cdd::{
    MessageId, RequestResponseIndication, StationId, StationType, TransmissionInterval, ValidityDuration,
};
use carnet_its::den::{DenService, EventRequest, Parameters};
use carnet_its::denm::{AlacarteContainer, Denm, ImpactReductionContainer, LocationContainer, Termination};
use carnet_its::uper::encode;
use std::time::Duration;

#[test]
fn tc_den_msrv_bv_01() {
    let mut station = station();
    let sent = denm(1, at(500).date, at(600).date);
    assert_eq!(receive(&mut station, 1000, &sent), Ok(()));
    assert_eq!(delivered(&mut station), [sent]);
}

#[test]
fn tc_den_msrv_bv_02() {
    let mut station = witness();
    let newer = denm(1, at(500).date, at(700).date);
    assert_eq!(receive(&mut station, 1100, &newer), Ok(()));
    assert_eq!(delivered(&mut station), [newer]);
}

#[test]
fn tc_den_msrv_bo_03() {
    let mut station = witness();
    let mut end = over(denm(7, at(500).date, at(600).date), Termination::IsCancellation);
    end.denm.management.action_id.originating_station_id = OWN;
    assert_eq!(receive(&mut station, 1100, &end), Err(ItsDrop::OwnMessage));
    assert_eq!(delivered(&mut station), []);
}

#[test]
fn tc_den_msrv_bo_04() {
    let mut station = witness();
    let end = over(denm(7, at(500).date, at(600).date), Termination::IsCancellation);
    assert_eq!(receive(&mut station, 1100, &end), Err(ItsDrop::UnknownEvent));
    assert_eq!(delivered(&mut station), []);
}

#[test]
fn tc_den_msrv_bo_05() {
    let mut station = witness();
    assert_eq!(receive(&mut station, 1100, &denm(1, at(500).date, at(599).date)), Err(ItsDrop::Outdated));
    assert_eq!(delivered(&mut station), []);
}

#[test]
fn tc_den_msrv_bo_06() {
    let mut station = witness();
    for detection in [499, 500] {
        let same = denm(1, at(detection).date, at(600).date);
        assert_eq!(receive(&mut station, 1100, &same), Err(ItsDrop::Outdated), "{detection}");
    }
    assert_eq!(delivered(&mut station), []);
}

#[test]
fn tc_den_msrv_bv_07() {
    let mut station = witness();
    let again = denm(1, at(501).date, at(600).date);
    assert_eq!(receive(&mut station, 1100, &again), Ok(()));
    assert_eq!(delivered(&mut station), [again]);
}

#[test]
fn tc_den_msrv_bv_10() {
    let mut station = station();
    station.set_impact_reduction(Some(ImpactReductionContainer {
        position_of_pillars: carnet_its::cdd::PositionOfPillars(vec![carnet_its::cdd::PosPillar(4)]),
        ..ImpactReductionContainer::default()
    }));
    let mut asked = denm(1, at(500).date, at(600).date);
    asked.denm.alacarte = Some(AlacarteContainer {
        impact_reduction: Some(ImpactReductionContainer {
            position_of_pillars: carnet_its::cdd::PositionOfPillars(vec![carnet_its::cdd::PosPillar(5)]),
            ..ImpactReductionContainer::default()
        }),
        ..AlacarteContainer::default()
    });
    assert_eq!(receive(&mut station, 1000, &asked), Ok(()));
    let answer = only(&mut station, 1000).denm;
    assert_eq!(answer.management.action_id.originating_station_id, OWN);
    let impact = answer.alacarte.unwrap().impact_reduction.unwrap();
    assert_eq!(impact.request_response_indication, RequestResponseIndication::Response);
    assert_eq!(impact.position_of_pillars.0[0].0, 4);
    // The station answers once per event.
    asked.denm.management.reference_time = at(700).date;
    assert_eq!(receive(&mut station, 1100, &asked), Ok(()));
    assert_eq!(drain(&mut station, 1100), []);
}

/// Returns a message about event 1 with a transmission interval of 500 ms, for keep-alive forwarding.
fn kept_alive() -> Denm {
    let mut denm = denm(1, at(500).date, at(600).date);
    denm.denm.management.transmission_interval = Some(TransmissionInterval(500));
    denm.denm.location = Some(LocationContainer {
        traces: carnet_its::cdd::Traces(vec![carnet_its::cdd::PathHistory::default()]),
        ..LocationContainer::default()
    });
    denm.denm.alacarte = Some(AlacarteContainer::default());
    denm
}

/// Returns a station that received this message at 1000 ms.
fn forwarder() -> DenService {
    let mut station = station();
    receive(&mut station, 1000, &kept_alive()).unwrap();
    station
}

#[test]
fn tc_den_kafw_bv_01() {
    let mut station = forwarder();
    assert_eq!(run(&mut station, 1999), []);
    assert_eq!(run(&mut station, 2200).len(), 1);
}

#[test]
fn tc_den_kafw_bv_02() {
    let mut station = forwarder();
    let mut older = kept_alive();
    older.denm.management.reference_time = at(590).date;
    assert_eq!(receive(&mut station, 1900, &older), Err(ItsDrop::Outdated));
    assert_eq!(run(&mut station, 2200).len(), 1, "what is older does not keep it alive");
    // A further copy of the message restarts the forwarding timer: the originator or another forwarder has
    // just sent the message.
    let mut station = forwarder();
    assert_eq!(receive(&mut station, 1900, &kept_alive()), Err(ItsDrop::Outdated));
    assert_eq!(run(&mut station, 2899), []);
    assert_eq!(run(&mut station, 3100).len(), 1);
}

#[test]
fn tc_den_kafw_ti_03() {
    let mut delays: Vec<u64> = Vec::new();
    for seed in 0..40 {
        let mut station = DenService::new(Parameters::default(), OWN, StationType::PASSENGER_CAR, seed);
        station.handle_position(place(0.0, 0.0));
        receive(&mut station, 1000, &kept_alive()).unwrap();
        delays.push(run(&mut station, 3000)[0].0 - 1000);
    }
    assert!(delays.iter().all(|delay| (1000..=1150).contains(delay)), "{delays:?}");
    let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    assert!(most - least > 75, "random: {delays:?}");
    // min(..., validityDuration): the timer would expire with the event, so the station forwards nothing.
    let mut short = kept_alive();
    short.denm.management.transmission_interval = Some(TransmissionInterval(8000));
    let mut station = forwarder();
    short.denm.management.reference_time = at(610).date;
    receive(&mut station, 1000, &short).unwrap();
    assert_eq!(run(&mut station, 60_000), []);
}

/// Returns the DENM that the forwarder sends.
fn forwarded() -> Denm {
    run(&mut forwarder(), 2200).remove(0).1
}

#[test]
fn tc_den_kafw_bv_04() {
    assert_eq!(forwarded().header.station_id, OWN);
    assert_eq!(forwarded().header.message_id, MessageId::DENM);
}

#[test]
fn tc_den_kafw_bv_05() {
    assert_eq!(forwarded().denm.management.action_id, action(1));
}

#[test]
fn tc_den_kafw_bv_06() {
    assert_eq!(forwarded().denm.management.reference_time, at(600).date);
}

#[test]
fn tc_den_kafw_bv_07() {
    let mut station = forwarder();
    let mut end = over(kept_alive(), Termination::IsNegation);
    end.denm.management.reference_time = at(700).date;
    receive(&mut station, 1100, &end).unwrap();
    let sent = run(&mut station, 2300);
    assert_eq!(sent[0].1.denm.management.termination, Some(Termination::IsNegation));
}

#[test]
fn tc_den_kafw_bv_08() {
    assert_eq!(forwarded().denm, kept_alive().denm);
}

/// Beyond the purposes: the station forwards data that this release does not know octet by octet.
#[test]
fn forwarding_keeps_every_octet() {
    let mut octets = encode(&kept_alive()).unwrap();
    octets.extend([0xab; 3]);
    let mut station = station();
    station.handle_message(at(1000), &octets, Some(circle(1000))).unwrap();
    station.handle_timeout(at(2200));
    let sent = station.poll_transmit().unwrap();
    // The octets behind BTP-B header and station ID are equal.
    assert_eq!(sent.payload[10..], octets[6..]);
    assert_eq!(sent.transport, Transport::GeoBroadcast(circle(1000)));
}

#[test]
fn tc_den_kafw_bv_09() {
    let mut station = forwarder();
    let sent = run(&mut station, 60_000);
    // The event was detected at 500 ms and is valid for 10 s.
    assert!((7..=10).contains(&sent.len()) && sent.iter().all(|sent| sent.0 < 10_500), "{sent:?}");
    assert_eq!(station.sizes(), (0, 0));
}

#[test]
fn tc_den_kafw_bv_10() {
    let mut station = forwarder();
    station.handle_position(place(3000.0, 0.0));
    assert_eq!(run(&mut station, 60_000), []);
}

#[test]
fn tc_den_kafw_bv_11() {
    let mut station = station();
    let mut silent = kept_alive();
    silent.denm.management.transmission_interval = None;
    receive(&mut station, 1000, &silent).unwrap();
    assert_eq!(run(&mut station, 60_000), []);
}

/// Beyond the purposes: the station refuses events that have ended, and reference times in the future.
#[test]
fn denm_with_impossible_times_is_refused() {
    let mut station = station();
    let past = denm(1, at(0).date, at(0).date);
    assert_eq!(receive(&mut station, 10_000, &past), Err(ItsDrop::Expired));
    let future = denm(2, at(0).date, at(41_001).date);
    assert_eq!(receive(&mut station, 1000, &future), Err(ItsDrop::FromTheFuture));
    let future = denm(3, at(41_001).date, at(0).date);
    assert_eq!(receive(&mut station, 1000, &future), Err(ItsDrop::FromTheFuture));
    let tolerated = denm(4, at(0).date, at(40_999).date);
    assert_eq!(receive(&mut station, 1000, &tolerated), Ok(()));
    let request = EventRequest { detection_time: Some(at(0).date), ..repeated(500, 500, Some(1)) };
    assert_eq!(station.trigger(at(1000), &request), Err(ItsDrop::Expired));
}

/// Beyond the purposes: the station accepts a negation whose reference time equals that of the negated
/// message.
#[test]
fn station_accepts_negation_with_reference_time_of_negated_message() {
    let mut station = witness();
    let mut negation = over(denm(1, at(500).date, at(600).date), Termination::IsNegation);
    negation.header.station_id = StationId(5);
    assert_eq!(receive(&mut station, 1100, &negation), Ok(()));
    assert_eq!(delivered(&mut station).len(), 1);
    assert_eq!(receive(&mut station, 1200, &negation), Err(ItsDrop::Outdated));
    // An application cannot end an event that has already ended.
    assert_eq!(station.terminate(at(1300), action(1), &event()), Err(ItsDrop::UnknownEvent));
}

/// Beyond the purposes: the tables are bounded.
#[test]
fn den_service_tables_are_bounded() {
    let mut station = station();
    for number in 0..1000 {
        let mut denm = denm(number, at(500).date, at(600).date);
        denm.denm.management.validity_duration = ValidityDuration(10 + u32::from(number));
        assert_eq!(receive(&mut station, 1000, &denm), Ok(()));
    }
    assert_eq!(station.sizes().1, Parameters::default().received);
    assert_eq!(std::iter::from_fn(|| station.poll_event()).count(), 256);
    for _ in 0..Parameters::default().originated {
        station.trigger(at(1000), &event()).unwrap();
    }
    assert_eq!(station.trigger(at(1000), &event()), Err(ItsDrop::TableFull));
    // After 2,000 s all events have ended, and both tables are empty.
    station.handle_timeout(at(Duration::from_secs(2000).as_millis() as u64));
    assert_eq!(station.sizes(), (0, 0));
}
