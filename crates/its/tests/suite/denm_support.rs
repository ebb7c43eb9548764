//! A station with the DEN basic service under test, and messages for it.

use crate::support::{
    circle_around_home, decode_transmission, milliseconds, now_at, now_at_milliseconds, position_at,
    reference_position_at,
};
use carnet_base::Time;
use carnet_its::ItsDrop;
use carnet_its::cdd::{
    ActionId, CauseCode, CauseCodeType, MessageId, RelevanceDistance, SequenceNumber, StationId, StationType,
    SubCauseCodeType, TimestampIts, ValidityDuration,
};
use carnet_its::den::{DenEvent, DenParameters, DenService, EventRequest};
use carnet_its::denm::{Denm, SituationContainer, Termination};
use carnet_its::uper::encode;
use carnet_wire::btp::port;

pub const OWN_STATION_ID: StationId = StationId(4711);
pub const OTHER_STATION_ID: StationId = StationId(815);

/// Time at which the service sent a message in milliseconds, and the message.
pub type SentDenm = (u64, Denm);

pub fn service_of_own_station() -> DenService {
    let mut service =
        DenService::new(DenParameters::default(), OWN_STATION_ID, StationType::PASSENGER_CAR, 7);
    service.handle_position(position_at(0.0, 0.0));
    service
}

/// Returns an event: a stationary vehicle.
pub fn event_request() -> EventRequest {
    EventRequest {
        event_position: reference_position_at(30.0, 0.0),
        relevance_distance: Some(RelevanceDistance::LessThan500m),
        situation: Some(SituationContainer {
            event_type: CauseCode {
                cause_code: CauseCodeType::STATIONARY_VEHICLE,
                sub_cause_code: SubCauseCodeType(2),
            },
            ..SituationContainer::default()
        }),
        ..EventRequest::default()
    }
}

/// Returns an event that the service repeats; interval and duration are in milliseconds, the validity in
/// seconds.
pub fn repeated_event_request(interval: u64, duration: u64, validity: Option<u32>) -> EventRequest {
    EventRequest {
        repetition_interval: Some(milliseconds(interval)),
        repetition_duration: Some(milliseconds(duration)),
        transmission_interval: Some(milliseconds(interval)),
        validity_duration: validity.map(ValidityDuration),
        ..event_request()
    }
}

pub fn take_sent_denms(service: &mut DenService, time: u64) -> Vec<SentDenm> {
    std::iter::from_fn(|| service.poll_transmit())
        .map(|transmission| {
            let (port, denm) = decode_transmission(&transmission);
            assert_eq!(port, port::DENM);
            (time, denm)
        })
        .collect()
}

/// Runs the service until `until`; returns the sent messages.
pub fn run_until(service: &mut DenService, until: u64) -> Vec<SentDenm> {
    let mut sent = Vec::new();
    while let Some(due) = service.poll_timeout().filter(|due| *due <= Time::from_millis(until)) {
        service.handle_timeout(now_at(due));
        sent.extend(take_sent_denms(service, due.as_nanos() / 1_000_000));
    }
    sent
}

/// Returns the message that the service sends next, and asserts that no other message waits.
pub fn take_only_denm(service: &mut DenService, time: u64) -> Denm {
    let mut sent = take_sent_denms(service, time);
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.remove(0).1
}

/// Returns a message of another station about event `number` with these detection and reference times.
pub fn denm_of_other_station(number: u16, detection: TimestampIts, reference_time: TimestampIts) -> Denm {
    let mut denm = Denm::default();
    denm.header.message_id = MessageId::DENM;
    denm.header.station_id = OTHER_STATION_ID;
    let management = &mut denm.denm.management;
    management.action_id =
        ActionId { originating_station_id: OTHER_STATION_ID, sequence_number: SequenceNumber(number) };
    management.detection_time = detection;
    management.reference_time = reference_time;
    management.event_position = reference_position_at(30.0, 0.0);
    management.relevance_distance = Some(RelevanceDistance::LessThan500m);
    management.validity_duration = ValidityDuration(10);
    denm.denm.situation = event_request().situation;
    denm
}

/// Returns the message that ends an event.
pub fn with_termination(mut denm: Denm, termination: Termination) -> Denm {
    denm.denm.management.termination = Some(termination);
    denm.denm.situation = None;
    denm
}

pub fn receive_denm(service: &mut DenService, time: u64, denm: &Denm) -> Result<(), ItsDrop> {
    service.handle_message(now_at_milliseconds(time), &encode(denm).unwrap(), Some(circle_around_home(1000)))
}

/// Returns the DENMs that the service passed to the application.
pub fn take_delivered_denms(service: &mut DenService) -> Vec<Denm> {
    std::iter::from_fn(|| service.poll_event())
        .filter_map(|event| match event {
            DenEvent::Received { denm, .. } => Some(*denm),
            DenEvent::Ended(_) => None,
        })
        .collect()
}

pub fn trigger_event(service: &mut DenService, time: u64, request: &EventRequest) -> (ActionId, Denm) {
    let action = service.trigger_event(now_at_milliseconds(time), request).unwrap();
    (action, take_only_denm(service, time))
}

/// Returns a station that received event 1 at 1000 ms.
pub fn receiving_service() -> DenService {
    let mut station = service_of_own_station();
    receive_denm(
        &mut station,
        1000,
        &denm_of_other_station(1, now_at_milliseconds(500).timestamp, now_at_milliseconds(600).timestamp),
    )
    .unwrap();
    take_delivered_denms(&mut station);
    station
}

pub fn own_action_id(number: u16) -> ActionId {
    ActionId { originating_station_id: OTHER_STATION_ID, sequence_number: SequenceNumber(number) }
}
