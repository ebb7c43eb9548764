//! TS 102 869-2: the test purposes of DENM about the originating station. Each test has the id of its
//! purpose.
//!
//! The ETSI test purposes apply to edition V1.2.1 with protocolVersion 1; a DENM of V1.3.1 has 2.

use crate::denm_support::{
    OWN_STATION_ID, denm_of_other_station, event_request, own_action_id, receive_denm, receiving_service,
    repeated_event_request, run_until, service_of_own_station, take_only_denm, take_sent_denms,
    trigger_event,
};
use crate::support::{circle_around_home, now_at_milliseconds, position_at, reference_position_at};
use carnet_geonet::Transport;
use carnet_its::ItsDrop;
use carnet_its::cdd::{
    ActionId, CauseCode, CauseCodeType, MessageId, ProtocolVersion, SequenceNumber, StationId,
    SubCauseCodeType,
};
use carnet_its::den::EventRequest;
use carnet_its::denm::{AlacarteContainer, Termination};

#[test]
fn tc_den_msgf_bv_01() {
    let (_, denm) = trigger_event(&mut service_of_own_station(), 0, &event_request());
    assert_eq!((denm.header.protocol_version, denm.header.message_id), (ProtocolVersion(2), MessageId::DENM));
    assert_eq!(denm.header.station_id, OWN_STATION_ID);
}

#[test]
fn tc_den_msgf_bv_02() {
    let (_, denm) = trigger_event(&mut service_of_own_station(), 0, &event_request());
    assert!(!denm.denm.location.unwrap().traces.0.is_empty());
}

#[test]
fn tc_den_evgn_bv_01() {
    let (action, denm) = trigger_event(&mut service_of_own_station(), 0, &event_request());
    assert_eq!(denm.denm.management.action_id, action);
    assert_eq!(denm.denm.management.termination, None);
}

#[test]
fn tc_den_evgn_bv_02() {
    let mut station = service_of_own_station();
    let mut actions: Vec<ActionId> =
        (0..10).map(|_| trigger_event(&mut station, 0, &event_request()).0).collect();
    actions.sort_unstable();
    actions.dedup();
    assert_eq!(actions.len(), 10);
}

#[test]
fn tc_den_evgn_bv_03() {
    let (action, _) = trigger_event(&mut service_of_own_station(), 0, &event_request());
    assert_eq!(action.originating_station_id, OWN_STATION_ID);
}

#[test]
fn tc_den_evgn_bv_04() {
    let (_, denm) = trigger_event(&mut service_of_own_station(), 0, &event_request());
    let expected =
        CauseCode { cause_code: CauseCodeType::STATIONARY_VEHICLE, sub_cause_code: SubCauseCodeType(2) };
    assert_eq!(denm.denm.situation.unwrap().event_type, expected);
}

#[test]
fn tc_den_evgn_bv_05() {
    let mut station = service_of_own_station();
    trigger_event(&mut station, 0, &event_request());
    let (_, denm) = trigger_event(&mut station, 1234, &event_request());
    assert_eq!(denm.denm.management.reference_time, now_at_milliseconds(1234).timestamp);
    assert_eq!(denm.denm.management.detection_time, now_at_milliseconds(1234).timestamp);
}

#[test]
fn tc_den_evgn_bv_07() {
    let mut station = service_of_own_station();
    let numbers: Vec<u16> =
        (0..5).map(|_| trigger_event(&mut station, 0, &event_request()).0.sequence_number.0).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

#[test]
fn tc_den_evgn_bv_10() {
    let mut station = service_of_own_station();
    trigger_event(&mut station, 0, &event_request());
    station.set_station_id(StationId(99));
    let (action, denm) = trigger_event(&mut station, 10, &event_request());
    assert_eq!(action.originating_station_id, StationId(99));
    assert_eq!(denm.header.station_id, StationId(99));
}

#[test]
fn tc_den_evup_bv_01() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &event_request());
    station
        .update_event(
            now_at_milliseconds(100),
            action,
            &EventRequest { alacarte: Some(AlacarteContainer::default()), ..event_request() },
        )
        .unwrap();
    assert!(take_only_denm(&mut station, 100).denm.alacarte.is_some());
}

#[test]
fn tc_den_evup_bv_02() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &event_request());
    station.update_event(now_at_milliseconds(100), action, &event_request()).unwrap();
    assert_eq!(take_only_denm(&mut station, 100).denm.management.action_id, action);
}

#[test]
fn tc_den_evup_bv_03() {
    let mut station = service_of_own_station();
    let (action, first) = trigger_event(&mut station, 0, &event_request());
    station.update_event(now_at_milliseconds(100), action, &event_request()).unwrap();
    let second = take_only_denm(&mut station, 100).denm.management.reference_time;
    assert_eq!(second, now_at_milliseconds(100).timestamp);
    assert!(second > first.denm.management.reference_time);
    // The reference time also increases if the clock has not advanced.
    station.update_event(now_at_milliseconds(100), action, &event_request()).unwrap();
    assert!(take_only_denm(&mut station, 100).denm.management.reference_time > second);
}

#[test]
fn tc_den_evup_bo_04() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &event_request());
    let unknown = ActionId { sequence_number: SequenceNumber(77), ..action };
    assert_eq!(
        station.update_event(now_at_milliseconds(100), unknown, &event_request()),
        Err(ItsDrop::UnknownEvent)
    );
    assert_eq!(take_sent_denms(&mut station, 100), []);
}

#[test]
fn tc_den_evtr_bv_01() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &event_request());
    station.terminate_event(now_at_milliseconds(100), action, &EventRequest::default()).unwrap();
    let management = take_only_denm(&mut station, 100).denm.management;
    assert_eq!(management.action_id, action);
    assert_eq!(management.termination, Some(Termination::IsCancellation));
    // An application cannot update or end an ended event.
    assert_eq!(
        station.update_event(now_at_milliseconds(200), action, &event_request()),
        Err(ItsDrop::UnknownEvent)
    );
    assert_eq!(
        station.terminate_event(now_at_milliseconds(200), action, &event_request()),
        Err(ItsDrop::UnknownEvent)
    );
}

#[test]
fn tc_den_evtr_bv_02() {
    let mut station = receiving_service();
    station.terminate_event(now_at_milliseconds(2000), own_action_id(1), &EventRequest::default()).unwrap();
    let denm = take_only_denm(&mut station, 2000);
    assert_eq!(denm.denm.management.action_id, own_action_id(1));
    assert_eq!(denm.denm.management.termination, Some(Termination::IsNegation));
    assert_eq!(denm.header.station_id, OWN_STATION_ID);
}

#[test]
fn tc_den_evtr_bv_03() {
    let mut station = receiving_service();
    receive_denm(
        &mut station,
        1500,
        &denm_of_other_station(1, now_at_milliseconds(500).timestamp, now_at_milliseconds(1400).timestamp),
    )
    .unwrap();
    station.terminate_event(now_at_milliseconds(2000), own_action_id(1), &EventRequest::default()).unwrap();
    assert_eq!(
        take_only_denm(&mut station, 2000).denm.management.reference_time,
        now_at_milliseconds(1400).timestamp
    );
}

#[test]
fn tc_den_evtr_bv_04() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &event_request());
    station.terminate_event(now_at_milliseconds(100), action, &event_request()).unwrap();
    let body = take_only_denm(&mut station, 100).denm;
    assert_eq!((body.situation, body.location, body.alacarte), (None, None, None));
}

#[test]
fn tc_den_evtr_bv_05() {
    let mut station = receiving_service();
    station.terminate_event(now_at_milliseconds(2000), own_action_id(1), &event_request()).unwrap();
    let body = take_only_denm(&mut station, 2000).denm;
    assert_eq!((body.situation, body.location, body.alacarte), (None, None, None));
}

#[test]
fn tc_den_evtr_bo_06() {
    let mut station = receiving_service();
    let (own, _) = trigger_event(&mut station, 1000, &event_request());
    let unknown = ActionId { sequence_number: SequenceNumber(77), ..own };
    assert_eq!(
        station.terminate_event(now_at_milliseconds(2000), unknown, &event_request()),
        Err(ItsDrop::UnknownEvent)
    );
    assert_eq!(take_sent_denms(&mut station, 2000), []);
}

#[test]
fn tc_den_evtr_bo_07() {
    let mut station = receiving_service();
    assert_eq!(
        station.terminate_event(now_at_milliseconds(2000), own_action_id(77), &event_request()),
        Err(ItsDrop::UnknownEvent)
    );
    assert_eq!(take_sent_denms(&mut station, 2000), []);
}

#[test]
fn tc_den_evtr_bv_08() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &event_request());
    station.terminate_event(now_at_milliseconds(100), action, &event_request()).unwrap();
    assert_eq!(
        take_only_denm(&mut station, 100).denm.management.reference_time,
        now_at_milliseconds(100).timestamp
    );
}

#[test]
fn tc_den_evrp_ti_01() {
    let mut station = service_of_own_station();
    trigger_event(&mut station, 0, &repeated_event_request(500, 2200, Some(10)));
    let times: Vec<u64> = run_until(&mut station, 9_000).iter().map(|sent| sent.0).collect();
    assert_eq!(times, [500, 1000, 1500, 2000]);
}

#[test]
fn tc_den_evrp_bv_02() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &repeated_event_request(500, 5000, Some(10)));
    let mut newer = repeated_event_request(500, 5000, Some(10));
    newer.event_position = reference_position_at(40.0, 0.0);
    station.update_event(now_at_milliseconds(600), action, &newer).unwrap();
    take_sent_denms(&mut station, 600);
    let sent = run_until(&mut station, 1100);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1.denm.management.event_position, reference_position_at(40.0, 0.0));
}

/// The service repeats the message no longer than the event is valid.
#[test]
fn tc_den_evrp_bv_03() {
    let mut station = service_of_own_station();
    trigger_event(&mut station, 0, &repeated_event_request(500, 60_000, Some(2)));
    let times: Vec<u64> = run_until(&mut station, 60_000).iter().map(|sent| sent.0).collect();
    assert_eq!(times, [500, 1000, 1500]);
    assert_eq!(station.event_counts(), (0, 0));
    assert_eq!(station.poll_timeout(), None);
}

#[test]
fn tc_den_evrp_bv_04() {
    let mut station = service_of_own_station();
    trigger_event(&mut station, 0, &repeated_event_request(500, 1200, Some(60)));
    let times: Vec<u64> = run_until(&mut station, 59_000).iter().map(|sent| sent.0).collect();
    assert_eq!(times, [500, 1000]);
    assert_eq!(station.event_counts(), (1, 0));
}

#[test]
fn tc_den_evrp_bv_05() {
    let mut station = service_of_own_station();
    trigger_event(
        &mut station,
        0,
        &EventRequest { repetition_interval: None, ..repeated_event_request(500, 5000, Some(10)) },
    );
    assert_eq!(run_until(&mut station, 20_000), []);
}

#[test]
fn tc_den_evrp_bv_06() {
    let mut station = service_of_own_station();
    trigger_event(
        &mut station,
        0,
        &EventRequest { repetition_duration: None, ..repeated_event_request(500, 5000, Some(10)) },
    );
    assert_eq!(run_until(&mut station, 20_000), []);
}

#[test]
fn tc_den_evrp_bv_08() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &repeated_event_request(500, 5000, Some(10)));
    station.set_station_id(StationId(99));
    let sent = run_until(&mut station, 500);
    assert_eq!(sent.len(), 1);
    let renamed = ActionId { originating_station_id: StationId(99), ..action };
    assert_eq!(sent[0].1.denm.management.action_id, renamed);
    assert_eq!(sent[0].1.header.station_id, StationId(99));
    // The station can end the event only by its new action ID.
    assert_eq!(
        station.terminate_event(now_at_milliseconds(600), action, &event_request()),
        Err(ItsDrop::UnknownEvent)
    );
    assert_eq!(station.terminate_event(now_at_milliseconds(600), renamed, &event_request()), Ok(()));
}

#[test]
fn tc_den_evrp_bv_09() {
    let mut station = service_of_own_station();
    let (action, _) = trigger_event(&mut station, 0, &repeated_event_request(500, 5000, Some(10)));
    let sent = run_until(&mut station, 4000);
    assert!(sent.len() == 8 && sent.iter().all(|(_, denm)| denm.denm.management.action_id == action));
}

#[test]
fn tc_den_evrp_bv_10() {
    let mut station = service_of_own_station();
    let (action, first) = trigger_event(&mut station, 0, &repeated_event_request(500, 5000, Some(10)));
    for (_, denm) in run_until(&mut station, 4000) {
        assert_eq!(denm.denm.management.action_id, action);
        assert_eq!(denm.denm.management.reference_time, first.denm.management.reference_time);
    }
}

/// The default validity is 600 s.
#[test]
fn tc_den_evrp_bv_11() {
    let mut station = service_of_own_station();
    trigger_event(&mut station, 0, &repeated_event_request(10_000, 1_000_000, None));
    let times: Vec<u64> = run_until(&mut station, 1_000_000).iter().map(|sent| sent.0).collect();
    assert_eq!((times.len(), times.last()), (59, Some(&590_000)));
}

#[test]
fn tc_den_par_bv_01() {
    let mut station = service_of_own_station();
    station.trigger_event(now_at_milliseconds(0), &event_request()).unwrap();
    let transmission = station.poll_transmit().unwrap();
    assert_eq!(transmission.payload[..4], [0x07, 0xd2, 0, 0]);
    assert_eq!(transmission.to_request().next_header, carnet_wire::geonet::CommonNextHeader::BtpB);
}

#[test]
fn tc_den_par_bv_02() {
    let mut station = service_of_own_station();
    station.trigger_event(now_at_milliseconds(0), &event_request()).unwrap();
    let Transport::GeoBroadcast(area) = station.poll_transmit().unwrap().transport else { panic!("no GBC") };
    let centre = position_at(30.0, 0.0);
    assert_eq!((area.latitude, area.longitude, area.distance_a), (centre.latitude, centre.longitude, 500));
    // The destination area that the application gives takes precedence over the relevance circle.
    let request = EventRequest { destination_area: Some(circle_around_home(42)), ..event_request() };
    station.trigger_event(now_at_milliseconds(0), &request).unwrap();
    assert_eq!(station.poll_transmit().unwrap().transport, Transport::GeoBroadcast(circle_around_home(42)));
}
