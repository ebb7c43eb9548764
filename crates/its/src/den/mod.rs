//! The Decentralized Environmental Notification basic service (EN 302 637-3 V1.3.1 clauses 6 and 8).
//!
//! An application triggers, updates and ends an event. The service sends it into its area, repeats it on
//! request, and stores the events of other stations. A station that keeps events alive (6.1.4) repeats
//! another station's message. It does so if no station has sent the message for a while and the station is
//! within the event's area.
//!
//! `originating` is the half that sends, `receiving` the half that listens and forwards; this file joins
//! them.
//!
//! Rules that are not obvious from the standard:
//!
//! * *Bounds.* Both tables are bounded. A full table of received events gives up the one that would end
//!   first; a full table of own events refuses.
//! * *A reference time in the future* would make all later messages of its originator outdated. So the
//!   service accepts it only up to [`Parameters::clock_tolerance`]: some stations have clocks without the
//!   leap seconds.
//! * *Relevance area*: the standard leaves its shape to the applications. Here it is the circle of the
//!   relevance distance around the event; without one, the area to which the network brought the message.
//! * *A forwarded message* is what came, octet by octet, but for the station ID of its header: what a later
//!   release added stays in it.
//! * *Requests for data about an impact* (ImpactReductionContainer with `request`): The service answers with
//!   an event of this station's own if it has such data, once per event.
//!
//! Left out: traffic class and relevance by direction of traffic, which are the applications' business.

mod originating;
mod receiving;

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::Transport;
use carnet_geonet::geodesy::Position;
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{GeoArea, Shape, TrafficClass};

use crate::cdd::{
    ActionId, ItsPduHeader, MessageId, ReferencePosition, RelevanceDistance, RelevanceTrafficDirection,
    RequestResponseIndication, StationId, StationType, TimestampIts, Traces, ValidityDuration,
};
use crate::denm::{
    AlacarteContainer, Denm, ImpactReductionContainer, LocationContainer, SituationContainer, Termination,
};
use crate::{ItsDrop, Now, Transmission};
use originating::Originating;
use receiving::Receiving;

/// The largest radius of a destination area that the network takes (itsGnMaxGeoAreaSize, 10 km²), metres.
const LARGEST_RADIUS: u16 = 1_784;
/// Radius if the application gives none.
const DEFAULT_RADIUS: u16 = 1_000;

/// Bounds and tolerances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// How many events of its own a station may have at once.
    pub originated: usize,
    /// How many events of others are remembered.
    pub received: usize,
    /// Whether events of others are kept alive.
    pub keep_alive_forwarding: bool,
    /// How far ahead another station's clock may be.
    pub clock_tolerance: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            originated: 64,
            received: 256,
            keep_alive_forwarding: true,
            clock_tolerance: Duration::from_secs(40),
        }
    }
}

/// Content of an event from an application (AppDENM_trigger and AppDENM_update, 5.4.1).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventRequest {
    /// When it was detected, or detected again; now if `None`.
    pub detection_time: Option<TimestampIts>,
    /// Where it is.
    pub event_position: ReferencePosition,
    /// How long it lasts after its detection; 600 s if `None`.
    pub validity_duration: Option<ValidityDuration>,
    /// For how long it is repeated, from now; with no interval it is not.
    pub repetition_duration: Option<Duration>,
    /// How often it is repeated; with no duration it is not. At least a millisecond.
    pub repetition_interval: Option<Duration>,
    /// Transmission interval in the message, by which receivers keep the event alive; by the standard it is
    /// the repetition interval.
    pub transmission_interval: Option<Duration>,
    /// How far it matters.
    pub relevance_distance: Option<RelevanceDistance>,
    /// To whom it matters.
    pub relevance_traffic_direction: Option<RelevanceTrafficDirection>,
    /// Cause of the event.
    pub situation: Option<SituationContainer>,
    /// Traces that lead to the event. A message has at least one trace, so without any the service adds one
    /// without points.
    pub location: Option<LocationContainer>,
    /// More.
    pub alacarte: Option<AlacarteContainer>,
    /// Where the message goes; around the event as far as it matters if `None`.
    pub destination_area: Option<GeoArea>,
    /// How it is to be treated; DCC profile DP1 if `None`.
    pub traffic_class: Option<TrafficClass>,
}

/// Something that applications want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A message about an event of another: new, or newer than what was known.
    Received {
        /// The message.
        denm: Box<Denm>,
        /// Until when it holds.
        expires: Time,
    },
    /// An event of another is over, because its time is.
    Ended(ActionId),
}

/// The service of one station.
#[derive(Debug)]
pub struct DenService {
    parameters: Parameters,
    station_id: StationId,
    station_type: StationType,
    rng: Rng,
    position: Option<Position>,
    impact_reduction: Option<ImpactReductionContainer>,
    originating: Originating,
    receiving: Receiving,
}

impl DenService {
    /// A service without events.
    pub fn new(
        parameters: Parameters,
        station_id: StationId,
        station_type: StationType,
        seed: u64,
    ) -> DenService {
        DenService {
            originating: Originating::new(parameters.originated),
            receiving: Receiving::new(parameters.received),
            parameters,
            station_id,
            station_type,
            rng: Rng::new(seed),
            position: None,
            impact_reduction: None,
        }
    }

    /// Speaks under another number from now on, of the events that are going on too (6.1.2.3). New events are
    /// counted from anywhere: a number that goes on would tell who the station was.
    pub fn set_station_id(&mut self, station_id: StationId) {
        self.originating.rename(self.station_id, station_id, self.rng.u16());
        self.station_id = station_id;
    }

    /// Where the station is: what is kept alive depends on it.
    pub fn handle_position(&mut self, position: Position) {
        self.position = Some(position);
    }

    /// Sets the construction data of the vehicle for answers to requests before an impact; without it the
    /// service does not answer.
    pub fn set_impact_reduction(&mut self, data: Option<ImpactReductionContainer>) {
        self.impact_reduction = data;
    }

    /// A new event (AppDENM_trigger, 8.2.1.2). Returns how to speak of it.
    ///
    /// # Errors
    /// [`ItsDrop::Expired`] if its time is over already, [`ItsDrop::TableFull`], [`ItsDrop::NoPosition`],
    /// [`ItsDrop::NotEncodable`].
    pub fn trigger(&mut self, now: Now, request: &EventRequest) -> Result<ActionId, ItsDrop> {
        let header = self.header();
        self.originating.trigger(now, header, self.station_type, request)
    }

    /// More about an event of this station (AppDENM_update, 8.2.1.3).
    ///
    /// # Errors
    /// [`ItsDrop::UnknownEvent`] if it is not an event of this station, or is over; and the errors of
    /// [`Self::trigger`].
    pub fn update(&mut self, now: Now, action_id: ActionId, request: &EventRequest) -> Result<(), ItsDrop> {
        let header = self.header();
        self.originating.update(now, header, self.station_type, action_id, request)
    }

    /// An event is over (AppDENM_termination, 8.2.1.4): of one of its own the station says so as its
    /// originator (cancellation), of another's as a witness (negation). `request` says where the event was to
    /// be seen and for how long its end is repeated.
    ///
    /// # Errors
    /// [`ItsDrop::UnknownEvent`] if neither this station nor another said anything of it; and those of
    /// [`Self::trigger`].
    pub fn terminate(
        &mut self,
        now: Now,
        action_id: ActionId,
        request: &EventRequest,
    ) -> Result<(), ItsDrop> {
        let header = self.header();
        if self.originating.contains(action_id) {
            return self.originating.cancel(now, header, action_id, request);
        }
        let known = self.receiving.negatable(now, action_id).ok_or(ItsDrop::UnknownEvent)?;
        self.originating.negate(now, header, self.station_type, &known, request)
    }

    /// Whether an event is this station's own, and goes on or has ended lately.
    pub fn is_own(&self, action_id: ActionId) -> bool {
        self.originating.contains(action_id)
    }

    fn header(&self) -> ItsPduHeader {
        ItsPduHeader { message_id: MessageId::DENM, station_id: self.station_id, ..ItsPduHeader::default() }
    }

    /// A message for the DENM port, without the BTP header; `area` is where the network brought it.
    ///
    /// # Errors
    /// Why it has no effect: [`ItsDrop`].
    pub fn handle_message(&mut self, now: Now, octets: &[u8], area: Option<GeoArea>) -> Result<(), ItsDrop> {
        let denm = Denm::from_octets(octets).map_err(|_| ItsDrop::Malformed)?;
        crate::ca::check_header(&denm.header, MessageId::DENM)?;
        let own = self.station_id;
        if denm.header.station_id == own || denm.denm.management.action_id.originating_station_id == own {
            // An event of this station's own that came back. Its end, too, is this station's business alone.
            return Err(ItsDrop::OwnMessage);
        }
        let asked =
            denm.denm.alacarte.as_ref().and_then(|more| more.impact_reduction.as_ref()).is_some_and(
                |impact| impact.request_response_indication == RequestResponseIndication::Request,
            );
        let management = denm.denm.management;
        let situation = denm.denm.situation.clone();
        let news = self.receiving.handle(now, denm, octets, area, &self.parameters, &mut self.rng)?;
        if news.first && asked {
            self.answer(now, management.event_position, situation);
        }
        Ok(())
    }

    /// Answers a request for data about an impact.
    fn answer(&mut self, now: Now, position: ReferencePosition, situation: Option<SituationContainer>) {
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
        // With no room for it the other side gets no answer, and does not depend on one.
        let _ = self.trigger(now, &request);
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.originating.next_deadline(), self.receiving.next_deadline()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Now) {
        let header = self.header();
        self.originating.handle_timeout(now.time, header);
        self.receiving.handle_timeout(now.time, self.station_id, self.position, &mut self.rng);
    }

    /// The next message to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmission> {
        self.originating.poll_transmit().or_else(|| self.receiving.poll_transmit())
    }

    /// The next thing that applications want to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.receiving.poll_event()
    }

    /// How many events of its own, and of others, the station knows.
    pub fn sizes(&self) -> (usize, usize) {
        (self.originating.len(), self.receiving.len())
    }
}

/// A message into an area.
fn transmission(
    area: GeoArea,
    traffic_class: TrafficClass,
    validity: Duration,
    payload: Vec<u8>,
) -> Transmission {
    Transmission {
        // 5.3.4.1: GeoBroadcast.
        transport: Transport::GeoBroadcast(area),
        traffic_class,
        // No longer than the event lasts, nor than the network allows (itsGnMaxPacketLifetime).
        maximum_lifetime: validity.clamp(Duration::from_millis(50), Duration::from_secs(600)),
        maximum_hop_limit: None,
        payload,
    }
}

/// The circle around an event within which it matters.
fn relevance_area(position: &ReferencePosition, distance: RelevanceDistance) -> Option<GeoArea> {
    let position = position.position()?;
    Some(circle(position, distance.metres()))
}

fn circle(centre: Position, radius: u16) -> GeoArea {
    GeoArea {
        shape: Shape::Circle,
        latitude: centre.latitude,
        longitude: centre.longitude,
        distance_a: radius,
        distance_b: 0,
        angle: 0,
    }
}

/// A message as it is handed to the network, with the BTP-B header in front.
fn with_port(octets: &[u8]) -> Vec<u8> {
    let header = BtpB { destination_port: port::DENM, destination_port_info: 0 }.to_octets();
    [&header[..], octets].concat()
}

/// At least one trace (MSGF-BV-02); the list has no fewer.
fn with_trace(mut location: LocationContainer) -> LocationContainer {
    if location.traces.0.is_empty() {
        location.traces = Traces(vec![crate::cdd::PathHistory::default()]);
    }
    location
}

/// Whether a message says that an event is over.
fn is_over(termination: Option<Termination>) -> bool {
    termination.is_some()
}
