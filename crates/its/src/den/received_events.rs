//! The receiving ITS-S message table (EN 302 637-3 8.2.2) and keep-alive forwarding (8.2.3).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::{Rng, Time, TimerTable};
use carnet_geonet::geodesy::{Position, is_inside};
use carnet_wire::geonet::{GeoArea, TrafficClass};

use super::{
    DenEvent, DenParameters, MAX_DESTINATION_RADIUS_M, build_transmission, circular_area, is_event_ended_by,
    prepend_btp_header, relevance_area,
};
use crate::cdd::{ActionId, StationId};
use crate::denm::{Denm, ManagementContainer};
use crate::{ItsDrop, ItsTime, MessageTransmission};

/// Largest number of events that wait for the application; the service drops the oldest ones.
const MAX_UNDELIVERED_EVENTS: usize = 256;
/// Random part of `T_Forwarding`.
const MAX_FORWARDING_JITTER: Duration = Duration::from_millis(150);
/// Octets of the station ID in a message.
const STATION_ID_OCTETS: std::ops::Range<usize> = 2..6;

/// Timers of an event, with their standard names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReceivedEventTimer {
    /// `T_R_Validity`: the event ends.
    Validity(ActionId),
    /// `T_Forwarding`: no station has sent a message about the event for a while, so this station forwards
    /// it.
    Forwarding(ActionId),
}

/// An event of another station, with the content of its latest message.
#[derive(Debug)]
struct ReceivedEvent {
    management: ManagementContainer,
    /// The message as received.
    octets: Vec<u8>,
    /// Relevance area of the event.
    relevance_area: GeoArea,
    /// Destination area of the received packet.
    destination_area: GeoArea,
    expires_at: Time,
}

/// Change of an event by a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventUpdate {
    /// Whether the message is the first one about this event.
    pub is_first: bool,
}

/// The receiving message table.
#[derive(Debug)]
pub(super) struct ReceivingTable {
    max_events: usize,
    events: BTreeMap<ActionId, Box<ReceivedEvent>>,
    timers: TimerTable<ReceivedEventTimer>,
    ready_transmissions: VecDeque<MessageTransmission>,
    undelivered_events: VecDeque<DenEvent>,
}

impl ReceivingTable {
    pub fn new(capacity: usize) -> ReceivingTable {
        ReceivingTable {
            max_events: capacity,
            events: BTreeMap::new(),
            timers: TimerTable::new(),
            ready_transmissions: VecDeque::new(),
            undelivered_events: VecDeque::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    pub fn poll_transmit(&mut self) -> Option<MessageTransmission> {
        self.ready_transmissions.pop_front()
    }

    pub fn poll_event(&mut self) -> Option<DenEvent> {
        self.undelivered_events.pop_front()
    }

    /// Returns the data and the destination area of an event; `None` if the event is unknown or has ended.
    pub fn find_event_to_negate(
        &self,
        now: ItsTime,
        action_id: ActionId,
    ) -> Option<(ManagementContainer, GeoArea)> {
        let entry = self.events.get(&action_id)?;
        (entry.expires_at > now.time && !is_event_ended_by(entry.management.termination))
            .then_some((entry.management, entry.destination_area))
    }

    /// Handles a message of another station.
    pub fn handle_message(
        &mut self,
        now: ItsTime,
        denm: Denm,
        octets: &[u8],
        area: Option<GeoArea>,
        parameters: &DenParameters,
        rng: &mut Rng,
    ) -> Result<EventUpdate, ItsDrop> {
        let management = denm.denm.management;
        let action = management.action_id;
        let tolerance = parameters.clock_tolerance;
        let latest = now.timestamp.after_duration(tolerance);
        if management.reference_time > latest || management.detection_time > latest {
            return Err(ItsDrop::FromTheFuture);
        }
        let ends = management.detection_time.after_duration(management.validity_duration.as_duration());
        if ends <= now.timestamp {
            return Err(ItsDrop::Expired);
        }
        let centre = management.event_position.position().ok_or(ItsDrop::NoPosition)?;
        let expires = now.time + Duration::from_millis(ends.0 - now.timestamp.0);

        let first = match self.events.get(&action).map(|entry| entry.management) {
            None if is_event_ended_by(management.termination) => return Err(ItsDrop::UnknownEvent),
            None => true,
            Some(known) => {
                let order = management.reference_time.cmp(&known.reference_time);
                // A negation has the reference time of the message that it ends. So accept the negation
                // although it is not newer than that message.
                let negation =
                    is_event_ended_by(management.termination) && !is_event_ended_by(known.termination);
                let newer = order
                    .then(management.detection_time.cmp(&known.detection_time))
                    .then(negation.cmp(&false));
                // The originator or another forwarder has just sent this message or a newer one, so restart
                // the forwarding timer.
                if order.is_ge() {
                    self.restart_forwarding(now.time, &known, parameters, rng);
                }
                if newer.is_le() {
                    return Err(ItsDrop::Outdated);
                }
                false
            }
        };
        if first {
            self.make_room_for_event()?;
        }
        let destination_area = area.unwrap_or_else(|| {
            let radius = management
                .relevance_distance
                .map_or(super::DEFAULT_DESTINATION_RADIUS_M, |distance| distance.to_metres());
            circular_area(centre, radius.min(MAX_DESTINATION_RADIUS_M))
        });
        let relevance = management
            .relevance_distance
            .and_then(|distance| relevance_area(&management.event_position, distance))
            .unwrap_or(destination_area);
        let entry = ReceivedEvent {
            management,
            octets: octets.to_vec(),
            relevance_area: relevance,
            destination_area,
            expires_at: expires,
        };
        self.events.insert(action, Box::new(entry));
        self.timers.set_deadline(ReceivedEventTimer::Validity(action), expires);
        self.restart_forwarding(now.time, &management, parameters, rng);
        self.queue_event_for_delivery(DenEvent::Received { denm: Box::new(denm), expires });
        Ok(EventUpdate { is_first: first })
    }

    /// Makes room for one more event; a full table removes the event that ends first.
    fn make_room_for_event(&mut self) -> Result<(), ItsDrop> {
        while self.events.len() >= self.max_events {
            let (action, _) =
                self.events.iter().min_by_key(|(_, entry)| entry.expires_at).ok_or(ItsDrop::TableFull)?;
            let action = *action;
            self.remove_event(action);
        }
        Ok(())
    }

    fn remove_event(&mut self, action: ActionId) {
        self.events.remove(&action);
        self.timers.stop_timer(ReceivedEventTimer::Validity(action));
        self.timers.stop_timer(ReceivedEventTimer::Forwarding(action));
        self.queue_event_for_delivery(DenEvent::Ended(action));
    }

    fn queue_event_for_delivery(&mut self, event: DenEvent) {
        if self.undelivered_events.len() >= MAX_UNDELIVERED_EVENTS {
            self.undelivered_events.pop_front();
        }
        self.undelivered_events.push_back(event);
    }

    /// Restarts `T_Forwarding` (8.2.3): twice the originator's transmission interval and a random time, so
    /// that not all forwarders send together. Without a transmission interval, no station keeps the event
    /// alive.
    fn restart_forwarding(
        &mut self,
        now: Time,
        management: &ManagementContainer,
        parameters: &DenParameters,
        rng: &mut Rng,
    ) {
        let Some(interval) = management.transmission_interval.filter(|_| parameters.keep_alive_forwarding)
        else {
            return self.timers.stop_timer(ReceivedEventTimer::Forwarding(management.action_id));
        };
        let twice = Duration::from_millis(2 * u64::from(interval.0));
        let delay = twice + rng.duration_between(Duration::ZERO, MAX_FORWARDING_JITTER);
        let delay = delay.min(management.validity_duration.as_duration());
        self.timers.set_deadline(ReceivedEventTimer::Forwarding(management.action_id), now + delay);
    }

    pub fn handle_timeout(&mut self, now: Time, own: StationId, position: Option<Position>, rng: &mut Rng) {
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                ReceivedEventTimer::Validity(action) => self.remove_event(action),
                ReceivedEventTimer::Forwarding(action) => {
                    self.forward_message(now, action, own, position, rng)
                }
            }
        }
    }

    /// Forwards another station's message, if this station is in the event's relevance area.
    fn forward_message(
        &mut self,
        now: Time,
        action: ActionId,
        own: StationId,
        position: Option<Position>,
        rng: &mut Rng,
    ) {
        let Some(entry) = self.events.get(&action).filter(|entry| entry.expires_at > now) else { return };
        let management = entry.management;
        // KAFW-BV-10: outside the relevance area, the station stops forwarding until the message arrives
        // again.
        if !position.is_some_and(|position| is_inside(&entry.relevance_area, position)) {
            return;
        }
        let mut octets = entry.octets.clone();
        if let Some(station) = octets.get_mut(STATION_ID_OCTETS) {
            station.copy_from_slice(&own.0.to_be_bytes());
        }
        let traffic_class = TrafficClass { id: 1, ..TrafficClass::default() };
        let left = entry.expires_at.saturating_since(now);
        self.ready_transmissions.push_back(build_transmission(
            entry.destination_area,
            traffic_class,
            left,
            prepend_btp_header(&octets),
        ));
        let parameters = DenParameters { keep_alive_forwarding: true, ..DenParameters::default() };
        self.restart_forwarding(now, &management, &parameters, rng);
    }
}
