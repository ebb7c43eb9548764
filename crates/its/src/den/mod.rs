//! The Decentralized Environmental Notification basic service (EN 302 637-3 V1.3.1 clauses 6 and 8).
//!
//! An application triggers, updates and ends an event. The service sends the event to its area, repeats it on
//! request, and stores the events of other stations. With keep-alive forwarding (6.1.4), a station repeats
//! another station's message. It does so if no station has sent the message for a while and the station is
//! within the event's relevance area.
//!
//! `own_events` sends own events, `received_events` handles and forwards received events; this file has the
//! interface of both.
//!
//! Rules that are not obvious from the standard:
//!
//! * *Bounds.* Both tables are bounded. A full table of received events removes the event that ends first. A
//!   full table of own events refuses a new event.
//! * *A reference time in the future* would make all later messages of its originator outdated. So the
//!   service accepts it only up to [`DenParameters::clock_tolerance`]: some stations have clocks without the
//!   leap seconds.
//! * *Relevance area*: the standard leaves its shape to the applications. In this service it is the circle of
//!   the relevance distance around the event. Without a relevance distance it is the destination area of the
//!   received packet.
//! * *A forwarded message* has the octets of the received one, except the station ID in its header. So
//!   additions of a later release stay in the message.
//! * *Requests for data before an impact*: a message has an ImpactReductionContainer with `request`. If the
//!   station has such data, the service answers once per event, with an event of its own.
//!
//! Left out: traffic class and relevance by direction of traffic, which the applications handle.

mod own_events;
mod received_events;

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::Transport;
use carnet_geonet::geodesy::Position;
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{GeoArea, GeoAreaShape, TrafficClass};

use crate::cdd::{
    ActionId, ItsPduHeader, MessageId, ReferencePosition, RelevanceDistance, RelevanceTrafficDirection,
    RequestResponseIndication, StationId, StationType, TimestampIts, Traces, ValidityDuration,
};
use crate::denm::{
    AlacarteContainer, Denm, ImpactReductionContainer, LocationContainer, SituationContainer, Termination,
};
use crate::{ItsDrop, ItsTime, MessageTransmission};
use own_events::OriginatingTable;
use received_events::ReceivingTable;

/// Largest radius of a destination area that the router accepts (itsGnMaxGeoAreaSize, 10 km²), metres.
const MAX_DESTINATION_RADIUS_M: u16 = 1_784;
/// Radius of the destination area if the application gives none, metres.
const DEFAULT_DESTINATION_RADIUS_M: u16 = 1_000;

/// Bounds and tolerances of the service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DenParameters {
    /// Largest number of the station's own events.
    pub max_own_events: usize,
    /// Largest number of stored events of other stations.
    pub max_received_events: usize,
    /// Whether the service keeps events of other stations alive.
    pub keep_alive_forwarding: bool,
    /// Largest accepted lead of another station's clock over this station's clock.
    pub clock_tolerance: Duration,
}

impl Default for DenParameters {
    fn default() -> Self {
        DenParameters {
            max_own_events: 64,
            max_received_events: 256,
            keep_alive_forwarding: true,
            clock_tolerance: Duration::from_secs(40),
        }
    }
}

/// Content of an event from an application (AppDENM_trigger and AppDENM_update, 5.4.1).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventRequest {
    /// Time of the detection or of a new detection; now if `None`.
    pub detection_time: Option<TimestampIts>,
    /// Position of the event.
    pub event_position: ReferencePosition,
    /// Validity after the detection; 600 s if `None`.
    pub validity_duration: Option<ValidityDuration>,
    /// Time from now for which the service repeats the message. Without [`Self::repetition_interval`] the
    /// service does not repeat it.
    pub repetition_duration: Option<Duration>,
    /// Interval of the repetitions, at least a millisecond. Without [`Self::repetition_duration`] the service
    /// does not repeat.
    pub repetition_interval: Option<Duration>,
    /// Transmission interval in the message, by which receivers keep the event alive; in the standard it
    /// equals the repetition interval.
    pub transmission_interval: Option<Duration>,
    /// Distance from the event within which the event is relevant.
    pub relevance_distance: Option<RelevanceDistance>,
    /// Traffic directions for which the event is relevant.
    pub relevance_traffic_direction: Option<RelevanceTrafficDirection>,
    /// Cause of the event.
    pub situation: Option<SituationContainer>,
    /// Traces that lead to the event. If the list is empty, the service adds a trace without points, because
    /// a message needs at least one.
    pub location: Option<LocationContainer>,
    /// Further data about the event.
    pub alacarte: Option<AlacarteContainer>,
    /// Destination area of the message. If it is `None`, the message goes to a circle around the event with
    /// the relevance distance as radius.
    pub destination_area: Option<GeoArea>,
    /// Traffic class; DCC profile DP1 if `None`.
    pub traffic_class: Option<TrafficClass>,
}

/// An output for applications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenEvent {
    /// A message about another station's event: a new event, or a newer state of a known event.
    Received {
        /// The received message.
        denm: Box<Denm>,
        /// Time at which the event ends.
        expires: Time,
    },
    /// An event of another station has ended, because its validity is over.
    Ended(ActionId),
}

/// The Decentralized Environmental Notification basic service of one station.
#[derive(Debug)]
pub struct DenService {
    parameters: DenParameters,
    station_id: StationId,
    station_type: StationType,
    rng: Rng,
    own_position: Option<Position>,
    impact_reduction: Option<ImpactReductionContainer>,
    own_events: OriginatingTable,
    received_events: ReceivingTable,
}

impl DenService {
    /// Creates a service without events.
    pub fn new(
        parameters: DenParameters,
        station_id: StationId,
        station_type: StationType,
        seed: u64,
    ) -> DenService {
        DenService {
            own_events: OriginatingTable::new(parameters.max_own_events),
            received_events: ReceivingTable::new(parameters.max_received_events),
            parameters,
            station_id,
            station_type,
            rng: Rng::new(seed),
            own_position: None,
            impact_reduction: None,
        }
    }

    /// Sets a new station ID, also for events that continue (6.1.2.3). The sequence numbers of new events
    /// start at a random number: if they continued, receivers could link the new station ID to the old one.
    pub fn set_station_id(&mut self, station_id: StationId) {
        self.own_events.change_station_id(self.station_id, station_id, self.rng.random_u16());
        self.station_id = station_id;
    }

    /// Handles the position of the station, on which keep-alive forwarding depends.
    pub fn handle_position(&mut self, position: Position) {
        self.own_position = Some(position);
    }

    /// Sets the construction data of the vehicle for answers to requests before an impact; without it the
    /// service does not answer.
    pub fn set_impact_reduction(&mut self, data: Option<ImpactReductionContainer>) {
        self.impact_reduction = data;
    }

    /// Creates an event (AppDENM_trigger, 8.2.1.2). Returns its action ID.
    ///
    /// # Errors
    /// [`ItsDrop::Expired`] if the event has already ended, [`ItsDrop::TableFull`], [`ItsDrop::NoPosition`]
    /// or [`ItsDrop::NotEncodable`].
    pub fn trigger_event(&mut self, now: ItsTime, request: &EventRequest) -> Result<ActionId, ItsDrop> {
        let header = self.pdu_header();
        self.own_events.trigger_event(now, header, self.station_type, request)
    }

    /// Updates an event of this station (AppDENM_update, 8.2.1.3).
    ///
    /// # Errors
    /// [`ItsDrop::UnknownEvent`] if the event is not one of this station, or has ended; and the errors of
    /// [`Self::trigger_event`].
    pub fn update_event(
        &mut self,
        now: ItsTime,
        action_id: ActionId,
        request: &EventRequest,
    ) -> Result<(), ItsDrop> {
        let header = self.pdu_header();
        self.own_events.update_event(now, header, self.station_type, action_id, request)
    }

    /// Ends an event (AppDENM_termination, 8.2.1.4). This station ends its own event by a cancellation, and
    /// another station's event by a negation. `request` has the event's position and the time for which the
    /// service repeats the message.
    ///
    /// # Errors
    ///
    /// [`ItsDrop::UnknownEvent`] if the service does not know the event; and the errors of
    /// [`Self::trigger_event`].
    pub fn terminate_event(
        &mut self,
        now: ItsTime,
        action_id: ActionId,
        request: &EventRequest,
    ) -> Result<(), ItsDrop> {
        let header = self.pdu_header();
        if self.own_events.contains(action_id) {
            return self.own_events.cancel_event(now, header, action_id, request);
        }
        let known = self.received_events.find_event_to_negate(now, action_id).ok_or(ItsDrop::UnknownEvent)?;
        self.own_events.send_negation(now, header, self.station_type, &known, request)
    }

    /// Returns whether an event is this station's own, and continues or has ended recently.
    pub fn is_own_event(&self, action_id: ActionId) -> bool {
        self.own_events.contains(action_id)
    }

    fn pdu_header(&self) -> ItsPduHeader {
        ItsPduHeader { message_id: MessageId::DENM, station_id: self.station_id, ..ItsPduHeader::default() }
    }

    /// Handles a message for the DENM port, without the BTP header; `area` is the destination area of its
    /// packet.
    ///
    /// # Errors
    /// The reason for which the message has no effect: [`ItsDrop`].
    pub fn handle_message(
        &mut self,
        now: ItsTime,
        octets: &[u8],
        area: Option<GeoArea>,
    ) -> Result<(), ItsDrop> {
        let denm = Denm::from_octets(octets).map_err(|_| ItsDrop::Malformed)?;
        crate::ca::check_header(&denm.header, MessageId::DENM)?;
        let own = self.station_id;
        if denm.header.station_id == own || denm.denm.management.action_id.originating_station_id == own {
            // The message is about an own event: an echo, or another station's attempt to end the event.
            return Err(ItsDrop::OwnMessage);
        }
        let asked =
            denm.denm.alacarte.as_ref().and_then(|more| more.impact_reduction.as_ref()).is_some_and(
                |impact| impact.request_response_indication == RequestResponseIndication::Request,
            );
        let management = denm.denm.management;
        let situation = denm.denm.situation.clone();
        let news =
            self.received_events.handle_message(now, denm, octets, area, &self.parameters, &mut self.rng)?;
        if news.is_first && asked {
            self.answer_impact_request(now, management.event_position, situation);
        }
        Ok(())
    }

    /// Answers another station's request for data before an impact with an event of this station.
    fn answer_impact_request(
        &mut self,
        now: ItsTime,
        position: ReferencePosition,
        situation: Option<SituationContainer>,
    ) {
        let Some(mut impact) = self.impact_reduction.clone() else { return };
        impact.request_response_indication = RequestResponseIndication::Response;
        let request = EventRequest {
            event_position: position,
            relevance_distance: Some(RelevanceDistance::LessThan50m),
            validity_duration: Some(ValidityDuration(1)),
            situation: Some(situation.unwrap_or_default()),
            location: Some(LocationContainer::default()),
            alacarte: Some(AlacarteContainer {
                impact_reduction: Some(impact),
                ..AlacarteContainer::default()
            }),
            ..EventRequest::default()
        };
        // If the table has no room, this station does not answer. The other station then works without the
        // data.
        let _ = self.trigger_event(now, &request);
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.own_events.next_deadline(), self.received_events.next_deadline()].into_iter().flatten().min()
    }

    /// Sends and repeats the messages that are due.
    pub fn handle_timeout(&mut self, now: ItsTime) {
        let header = self.pdu_header();
        self.own_events.handle_timeout(now.time, header);
        self.received_events.handle_timeout(now.time, self.station_id, self.own_position, &mut self.rng);
    }

    /// Returns the next message to send.
    pub fn poll_transmit(&mut self) -> Option<MessageTransmission> {
        self.own_events.poll_transmit().or_else(|| self.received_events.poll_transmit())
    }

    /// Returns the next event for applications.
    pub fn poll_event(&mut self) -> Option<DenEvent> {
        self.received_events.poll_event()
    }

    /// Returns the number of this station's events, and the number of other stations' events.
    pub fn event_counts(&self) -> (usize, usize) {
        (self.own_events.len(), self.received_events.len())
    }
}

/// Returns the transmission of a message to an area.
fn build_transmission(
    area: GeoArea,
    traffic_class: TrafficClass,
    validity: Duration,
    payload: Vec<u8>,
) -> MessageTransmission {
    MessageTransmission {
        // 5.3.4.1: a DENM is sent by GeoBroadcast.
        transport: Transport::GeoBroadcast(area),
        traffic_class,
        // The packet's lifetime is the validity of the event, limited to the router's largest lifetime
        // (itsGnMaxPacketLifetime).
        maximum_lifetime: validity.clamp(Duration::from_millis(50), Duration::from_secs(600)),
        maximum_hop_limit: None,
        payload,
    }
}

/// Returns the circle around an event with the event's relevance distance as radius; `None` if the position
/// of the event is unavailable.
fn relevance_area(position: &ReferencePosition, distance: RelevanceDistance) -> Option<GeoArea> {
    let position = position.position()?;
    Some(circular_area(position, distance.to_metres()))
}

fn circular_area(centre: Position, radius: u16) -> GeoArea {
    GeoArea {
        shape: GeoAreaShape::Circle,
        latitude: centre.latitude,
        longitude: centre.longitude,
        distance_a: radius,
        distance_b: 0,
        angle: 0,
    }
}

/// Returns the octets of a message with the BTP-B header of the DENM port in front.
fn prepend_btp_header(octets: &[u8]) -> Vec<u8> {
    let header = BtpB { destination_port: port::DENM, destination_port_info: 0 }.to_octets();
    [&header[..], octets].concat()
}

/// Adds a trace without points if the list of traces is empty, because a message needs at least one trace
/// (MSGF-BV-02).
fn with_at_least_one_trace(mut location: LocationContainer) -> LocationContainer {
    if location.traces.0.is_empty() {
        location.traces = Traces(vec![crate::cdd::PathHistory::default()]);
    }
    location
}

/// Returns whether a message ends an event, as a cancellation or a negation.
fn is_event_ended_by(termination: Option<Termination>) -> bool {
    termination.is_some()
}
