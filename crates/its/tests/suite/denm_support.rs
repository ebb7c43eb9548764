//! A station with the DEN basic service under test, and messages for it.

use crate::support::{at, circle, ms, now, place, reference, unpack};
use carnet_base::Time;
use carnet_its::ItsDrop;
use carnet_its::cdd::{
    ActionId, CauseCode, CauseCodeType, MessageId, RelevanceDistance, SequenceNumber, StationId, StationType,
    SubCauseCodeType, TimestampIts, ValidityDuration,
};
use carnet_its::den::{DenService, Event, EventRequest, Parameters};
use carnet_its::denm::{Denm, SituationContainer, Termination};
use carnet_its::uper::encode;
use carnet_wire::btp::port;

pub const OWN: StationId = StationId(4711);
pub const OTHER: StationId = StationId(815);

/// Time at which the service sent a message in milliseconds, and the message.
pub type Sent = (u64, Denm);

pub fn station() -> DenService {
    let mut service = DenService::new(Parameters::default(), OWN, StationType::PASSENGER_CAR, 7);
    service.handle_position(place(0.0, 0.0));
    service
}

/// Returns an event: a stationary vehicle.
pub fn event() -> EventRequest {
    EventRequest {
        event_position: reference(30.0, 0.0),
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

/// Returns an event with repetitions.
pub fn repeated(interval: u64, duration: u64, validity: Option<u32>) -> EventRequest {
    EventRequest {
        repetition_interval: Some(ms(interval)),
        repetition_duration: Some(ms(duration)),
        transmission_interval: Some(ms(interval)),
        validity_duration: validity.map(ValidityDuration),
        ..event()
    }
}

pub fn drain(service: &mut DenService, time: u64) -> Vec<Sent> {
    std::iter::from_fn(|| service.poll_transmit())
        .map(|transmission| {
            let (port, denm) = unpack(&transmission);
            assert_eq!(port, port::DENM);
            (time, denm)
        })
        .collect()
}

/// Runs the service until `until`; returns the sent messages.
pub fn run(service: &mut DenService, until: u64) -> Vec<Sent> {
    let mut sent = Vec::new();
    while let Some(due) = service.poll_timeout().filter(|due| *due <= Time::from_millis(until)) {
        service.handle_timeout(now(due));
        sent.extend(drain(service, due.as_nanos() / 1_000_000));
    }
    sent
}

/// Returns the only waiting message.
pub fn only(service: &mut DenService, time: u64) -> Denm {
    let mut sent = drain(service, time);
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.remove(0).1
}

/// Returns a message of another station about event `number` with these detection and reference times.
pub fn denm(number: u16, detection: TimestampIts, reference_time: TimestampIts) -> Denm {
    let mut denm = Denm::default();
    denm.header.message_id = MessageId::DENM;
    denm.header.station_id = OTHER;
    let management = &mut denm.denm.management;
    management.action_id =
        ActionId { originating_station_id: OTHER, sequence_number: SequenceNumber(number) };
    management.detection_time = detection;
    management.reference_time = reference_time;
    management.event_position = reference(30.0, 0.0);
    management.relevance_distance = Some(RelevanceDistance::LessThan500m);
    management.validity_duration = ValidityDuration(10);
    denm.denm.situation = event().situation;
    denm
}

/// Returns the message that ends an event.
pub fn over(mut denm: Denm, termination: Termination) -> Denm {
    denm.denm.management.termination = Some(termination);
    denm.denm.situation = None;
    denm
}

pub fn receive(service: &mut DenService, time: u64, denm: &Denm) -> Result<(), ItsDrop> {
    service.handle_message(at(time), &encode(denm).unwrap(), Some(circle(1000)))
}

/// Returns the DENMs that the service passed to the application.
pub fn delivered(service: &mut DenService) -> Vec<Denm> {
    std::iter::from_fn(|| service.poll_event())
        .filter_map(|event| match event {
            Event::Received { denm, .. } => Some(*denm),
            Event::Ended(_) => None,
        })
        .collect()
}

pub fn trigger(service: &mut DenService, time: u64, request: &EventRequest) -> (ActionId, Denm) {
    let action = service.trigger(at(time), request).unwrap();
    (action, only(service, time))
}

/// Returns a station that received event 1 at 1000 ms.
pub fn witness() -> DenService {
    let mut station = station();
    receive(&mut station, 1000, &denm(1, at(500).date, at(600).date)).unwrap();
    delivered(&mut station);
    station
}

pub fn action(number: u16) -> ActionId {
    ActionId { originating_station_id: OTHER, sequence_number: SequenceNumber(number) }
}
