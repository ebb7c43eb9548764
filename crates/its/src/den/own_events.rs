//! The originating ITS-S message table (EN 302 637-3 8.2.1): own events, and this station's negations of
//! other stations' events.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::{Time, TimerTable};
use carnet_wire::btp::port;
use carnet_wire::geonet::{GeoArea, TrafficClass};

use super::{
    DEFAULT_DESTINATION_RADIUS_M, EventRequest, MAX_DESTINATION_RADIUS_M, build_transmission, circular_area,
    with_at_least_one_trace,
};
use crate::cdd::{
    ActionId, ItsPduHeader, SequenceNumber, StationId, StationType, TimestampIts, TransmissionInterval,
};
use crate::denm::{DecentralizedEnvironmentalNotificationMessage, Denm, ManagementContainer, Termination};
use crate::io::encode_btp_payload;
use crate::{ItsDrop, ItsTime, MessageTransmission};

/// Traffic class of DENMs if the application gives none: DCC profile DP1.
const DENM_TRAFFIC_CLASS: TrafficClass =
    TrafficClass { store_carry_forward: false, channel_offload: false, id: 1 };

/// Timers of an event, with their standard names (8.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OwnEventTimer {
    /// `T_O_Validity`: the event ends.
    Validity(ActionId),
    /// `T_Repetition`: the service repeats the message of this event.
    Repetition(ActionId),
}

/// An event of this station.
#[derive(Debug)]
struct OwnEvent {
    denm: DecentralizedEnvironmentalNotificationMessage,
    area: GeoArea,
    traffic_class: TrafficClass,
    /// `T_O_Validity`: the end of the event.
    expires_at: Time,
    /// Repetition interval, and the end of `T_RepetitionDuration`.
    repetition_interval_and_end: Option<(Duration, Time)>,
}

/// The originating message table.
#[derive(Debug)]
pub(super) struct OriginatingTable {
    max_events: usize,
    events: BTreeMap<ActionId, Box<OwnEvent>>,
    timers: TimerTable<OwnEventTimer>,
    next_sequence: u16,
    ready_transmissions: VecDeque<MessageTransmission>,
}

impl OriginatingTable {
    pub fn new(capacity: usize) -> OriginatingTable {
        OriginatingTable {
            max_events: capacity,
            events: BTreeMap::new(),
            timers: TimerTable::new(),
            next_sequence: 0,
            ready_transmissions: VecDeque::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn contains(&self, action_id: ActionId) -> bool {
        self.events.contains_key(&action_id)
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    pub fn poll_transmit(&mut self) -> Option<MessageTransmission> {
        self.ready_transmissions.pop_front()
    }

    /// Performs AppDENM_trigger.
    pub fn trigger_event(
        &mut self,
        now: ItsTime,
        header: ItsPduHeader,
        station_type: StationType,
        request: &EventRequest,
    ) -> Result<ActionId, ItsDrop> {
        if self.events.len() >= self.max_events {
            return Err(ItsDrop::TableFull);
        }
        let action_id = ActionId {
            originating_station_id: header.station_id,
            sequence_number: self.unused_sequence_number(header.station_id),
        };
        let denm = build_message(now.timestamp, action_id, station_type, request);
        self.send_first_message(now, header, denm, request)?;
        self.next_sequence = action_id.sequence_number.0.wrapping_add(1);
        Ok(action_id)
    }

    /// Performs AppDENM_update.
    pub fn update_event(
        &mut self,
        now: ItsTime,
        header: ItsPduHeader,
        station_type: StationType,
        action_id: ActionId,
        request: &EventRequest,
    ) -> Result<(), ItsDrop> {
        let entry = self.events.get(&action_id).ok_or(ItsDrop::UnknownEvent)?;
        // An application cannot restart an ended event.
        if entry.denm.management.termination.is_some() {
            return Err(ItsDrop::UnknownEvent);
        }
        let mut denm = build_message(now.timestamp, action_id, station_type, request);
        denm.management.reference_time =
            reference_time_after(entry.denm.management.reference_time, now.timestamp);
        self.send_first_message(now, header, denm, request)
    }

    /// Performs AppDENM_termination by the originator.
    pub fn cancel_event(
        &mut self,
        now: ItsTime,
        header: ItsPduHeader,
        action_id: ActionId,
        request: &EventRequest,
    ) -> Result<(), ItsDrop> {
        let entry = self.events.get(&action_id).ok_or(ItsDrop::UnknownEvent)?;
        if entry.denm.management.termination.is_some() {
            return Err(ItsDrop::UnknownEvent);
        }
        let mut management = entry.denm.management;
        management.termination = Some(Termination::IsCancellation);
        management.reference_time = reference_time_after(management.reference_time, now.timestamp);
        let area = request.destination_area.unwrap_or(entry.area);
        let request =
            EventRequest { destination_area: Some(area), ..build_termination_request(&management, request) };
        self.send_first_message(now, header, build_termination_message(management), &request)
    }

    /// Sends a negation: this station, a witness, ends the event of another station (AppDENM_termination).
    /// `known` has the latest data of the event's originator.
    pub fn send_negation(
        &mut self,
        now: ItsTime,
        header: ItsPduHeader,
        station_type: StationType,
        known: &(ManagementContainer, GeoArea),
        request: &EventRequest,
    ) -> Result<(), ItsDrop> {
        if self.events.len() >= self.max_events {
            return Err(ItsDrop::TableFull);
        }
        // The negation has the reference time of the originator's message, so receivers know which state of
        // the event it ends.
        let management = ManagementContainer {
            termination: Some(Termination::IsNegation),
            detection_time: request.detection_time.unwrap_or(now.timestamp),
            station_type,
            ..known.0
        };
        let area = request.destination_area.unwrap_or(known.1);
        let request =
            EventRequest { destination_area: Some(area), ..build_termination_request(&management, request) };
        self.send_first_message(now, header, build_termination_message(management), &request)
    }

    /// Replaces the station ID in all own events. The next new event gets the sequence number
    /// `next_sequence`.
    pub fn change_station_id(&mut self, from: StationId, to: StationId, next_sequence: u16) {
        self.next_sequence = next_sequence;
        let own: Vec<ActionId> =
            self.events.keys().filter(|action| action.originating_station_id == from).copied().collect();
        for old in own {
            let new = ActionId { originating_station_id: to, ..old };
            let Some(mut entry) = self.events.remove(&old) else { continue };
            entry.denm.management.action_id = new;
            for (old, new) in [
                (OwnEventTimer::Validity(old), OwnEventTimer::Validity(new)),
                (OwnEventTimer::Repetition(old), OwnEventTimer::Repetition(new)),
            ] {
                if let Some(deadline) = self.timers.get(old) {
                    self.timers.stop_timer(old);
                    self.timers.set_deadline(new, deadline);
                }
            }
            self.events.insert(new, entry);
        }
    }

    pub fn handle_timeout(&mut self, now: Time, header: ItsPduHeader) {
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                OwnEventTimer::Validity(action) => {
                    self.events.remove(&action);
                    self.timers.stop_timer(OwnEventTimer::Repetition(action));
                }
                OwnEventTimer::Repetition(action) => self.repeat_event_message(now, header, action),
            }
        }
    }

    /// Repeats the latest message of an event, unless the event has ended.
    fn repeat_event_message(&mut self, now: Time, header: ItsPduHeader, action: ActionId) {
        let Some(entry) = self.events.get(&action) else { return };
        let Some((interval, until)) = entry.repetition_interval_and_end else { return };
        if now >= until || now >= entry.expires_at {
            return;
        }
        let denm = Denm { header, denm: entry.denm.clone() };
        if let Ok(payload) = encode_btp_payload(port::DENM, &denm) {
            let left = entry.expires_at.saturating_since(now);
            self.ready_transmissions.push_back(build_transmission(
                entry.area,
                entry.traffic_class,
                left,
                payload,
            ));
        }
        // The service omits repetitions whose time it missed.
        self.timers.set_deadline(OwnEventTimer::Repetition(action), now + interval);
    }

    /// Sends the first message of an event and stores the event.
    fn send_first_message(
        &mut self,
        now: ItsTime,
        header: ItsPduHeader,
        denm: DecentralizedEnvironmentalNotificationMessage,
        request: &EventRequest,
    ) -> Result<(), ItsDrop> {
        let management = denm.management;
        let position = management.event_position.position().ok_or(ItsDrop::NoPosition)?;
        let ends = management.detection_time.after_duration(management.validity_duration.as_duration());
        if ends <= now.timestamp {
            return Err(ItsDrop::Expired);
        }
        let expires = now.time + Duration::from_millis(ends.0 - now.timestamp.0);
        let radius = management
            .relevance_distance
            .map_or(DEFAULT_DESTINATION_RADIUS_M, |distance| distance.to_metres());
        let area = request
            .destination_area
            .unwrap_or_else(|| circular_area(position, radius.min(MAX_DESTINATION_RADIUS_M)));
        let traffic_class = request.traffic_class.unwrap_or(DENM_TRAFFIC_CLASS);
        let action = management.action_id;
        let message = Denm { header, denm };
        let payload = encode_btp_payload(port::DENM, &message)?;
        self.ready_transmissions.push_back(build_transmission(
            area,
            traffic_class,
            expires.saturating_since(now.time),
            payload,
        ));

        let repetition = request.repetition_interval.zip(request.repetition_duration);
        let repetition =
            repetition.map(|(interval, spell)| (interval.max(Duration::from_millis(1)), now.time + spell));
        self.timers.set_deadline(OwnEventTimer::Validity(action), expires);
        match repetition {
            Some((interval, _)) => {
                self.timers.set_deadline(OwnEventTimer::Repetition(action), now.time + interval)
            }
            None => self.timers.stop_timer(OwnEventTimer::Repetition(action)),
        }
        let entry = OwnEvent {
            denm: message.denm,
            area,
            traffic_class,
            expires_at: expires,
            repetition_interval_and_end: repetition,
        };
        self.events.insert(action, Box::new(entry));
        Ok(())
    }

    /// Returns the next sequence number that is not in use by an event of this station.
    fn unused_sequence_number(&self, station: StationId) -> SequenceNumber {
        let mut sequence = self.next_sequence;
        // The loop ends because the table holds fewer events than there are sequence numbers.
        while self
            .contains(ActionId { originating_station_id: station, sequence_number: SequenceNumber(sequence) })
        {
            sequence = sequence.wrapping_add(1);
        }
        SequenceNumber(sequence)
    }
}

/// Returns the message for a request.
fn build_message(
    date: TimestampIts,
    action_id: ActionId,
    station_type: StationType,
    request: &EventRequest,
) -> DecentralizedEnvironmentalNotificationMessage {
    let interval = request.transmission_interval.map(|interval| {
        let milliseconds = interval.as_millis().clamp(1, u128::from(TransmissionInterval::MOST));
        TransmissionInterval(milliseconds as u16)
    });
    DecentralizedEnvironmentalNotificationMessage {
        management: ManagementContainer {
            action_id,
            detection_time: request.detection_time.unwrap_or(date),
            reference_time: date,
            termination: None,
            event_position: request.event_position,
            relevance_distance: request.relevance_distance,
            relevance_traffic_direction: request.relevance_traffic_direction,
            validity_duration: request.validity_duration.unwrap_or_default(),
            transmission_interval: interval,
            station_type,
        },
        situation: request.situation.clone(),
        location: Some(with_at_least_one_trace(request.location.clone().unwrap_or_default())),
        alacarte: request.alacarte.clone(),
    }
}

/// Returns the message that ends an event. It has only the management container (EVTR-BV-04 and 05).
fn build_termination_message(
    management: ManagementContainer,
) -> DecentralizedEnvironmentalNotificationMessage {
    DecentralizedEnvironmentalNotificationMessage {
        management,
        ..DecentralizedEnvironmentalNotificationMessage::default()
    }
}

/// Returns the part of `request` that applies to the message that ends the event, with the position of the
/// event.
fn build_termination_request(management: &ManagementContainer, request: &EventRequest) -> EventRequest {
    EventRequest {
        event_position: management.event_position,
        situation: None,
        location: None,
        alacarte: None,
        ..request.clone()
    }
}

/// Returns a reference time later than `before`, even if the clock has not advanced.
fn reference_time_after(before: TimestampIts, now: TimestampIts) -> TimestampIts {
    TimestampIts(now.0.max(before.0 + 1))
}
