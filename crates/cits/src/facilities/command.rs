//! Applications' orders to the facilities.

use std::time::Duration;

use carnet_base::{Time, hex};
use carnet_its::ItsDrop;
use carnet_its::cdd::{ActionId, Traces};
use carnet_its::den::EventRequest;
use carnet_its::denm::{Denm, LocationContainer};
use carnet_wire::geonet::TrafficClass;
use serde::{Deserialize, Serialize};

use super::plane::Facilities;
use crate::position::Area;

/// Largest time by which an event's detection time may be ahead of the station's clock.
const DETECTION_AHEAD: Duration = Duration::from_secs(60);

/// An application's request about an event (EN 302 637-3 5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenmWish {
    /// AppDENM_trigger: a new event.
    Trigger,
    /// AppDENM_update: new content of an own event.
    Update,
    /// AppDENM_termination of an own event.
    Cancel,
    /// AppDENM_termination of another station's event.
    Negate,
}

/// An application's request about an event, with the content of the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenmOrder {
    /// The application's request.
    pub wish: DenmWish,
    /// Content of the event as a DENM: UPER octets, without the BTP header. The station ignores the DENM's
    /// header, reference time and termination, and the action ID of a new event. A detection time of 0 means
    /// now. Without a position the event is at the station.
    #[serde(with = "hex")]
    pub denm: Vec<u8>,
    /// Duration of the repetition in milliseconds. The station repeats only with both duration and interval.
    pub repetition_duration_ms: Option<u64>,
    /// Interval of the repetition in milliseconds. The station repeats only with both duration and interval.
    pub repetition_interval_ms: Option<u64>,
    /// Destination area; if `None`, the relevance area around the event.
    pub area: Option<Area>,
    /// Traffic Class (9.7.5), eight bits; `None`: the default of the service.
    #[serde(default)]
    pub traffic_class: Option<u8>,
}

impl Facilities {
    /// Executes an application's order about an event. Returns the action ID of a new event.
    pub(crate) fn handle_order(&mut self, now: Time, order: &DenmOrder) -> Result<Option<ActionId>, String> {
        let denm: Denm = Denm::from_octets(&order.denm).map_err(|error| {
            format!(
                "the request does not contain a DENM: \
                 {error}"
            )
        })?;
        let management = denm.denm.management;
        let action_id = management.action_id;
        let at = self.now(now);
        if management.detection_time > at.date.later(DETECTION_AHEAD) {
            return Err(format!(
                "the detection time of the event, {}, is in the future: expected at most {}",
                management.detection_time.0, at.date.0
            ));
        }
        let here = self.position.map(|position| self.reference(&position));
        let is_here = management.event_position.position().is_none();
        let event_position = if is_here { here.unwrap_or_default() } else { management.event_position };
        // If the event is at the station's own position, the event's trace is the path of the station.
        let way = || LocationContainer { traces: Traces(vec![self.path.history()]), ..Default::default() };
        let mut location = denm.denm.location.or_else(|| is_here.then(way));
        // An application that states the event's movement sends either no trace or a trace without points.
        let has_none =
            |location: &LocationContainer| location.traces.0.iter().all(|trace| trace.0.is_empty());
        if let Some(location) = location.as_mut().filter(|location| is_here && has_none(location)) {
            location.traces = way().traces;
        }
        let milliseconds = |span: Option<u64>| span.map(Duration::from_millis);
        let request = EventRequest {
            detection_time: Some(management.detection_time).filter(|time| time.0 > 0),
            event_position,
            validity_duration: Some(management.validity_duration),
            repetition_duration: milliseconds(order.repetition_duration_ms),
            repetition_interval: milliseconds(order.repetition_interval_ms),
            transmission_interval: management
                .transmission_interval
                .map(|interval| Duration::from_millis(interval.0.into())),
            relevance_distance: management.relevance_distance,
            relevance_traffic_direction: management.relevance_traffic_direction,
            situation: denm.denm.situation,
            location,
            alacarte: denm.denm.alacarte,
            destination_area: order.area.map(Into::into),
            traffic_class: order.traffic_class.map(TrafficClass::from_octet),
        };
        let den = &mut self.services.den;
        let result = match order.wish {
            DenmWish::Trigger => den.trigger(at, &request).map(Some),
            DenmWish::Update => den.update(at, action_id, &request).map(|()| None),
            DenmWish::Cancel if !den.is_own(action_id) => {
                return Err(format!("event {} does not belong to this station", words(action_id)));
            }
            DenmWish::Negate if den.is_own(action_id) => {
                return Err(format!(
                    "event {} belongs to this station: cancel it instead of negating it",
                    words(action_id)
                ));
            }
            DenmWish::Cancel | DenmWish::Negate => den.terminate(at, action_id, &request).map(|()| None),
        };
        result.map_err(|reason| match reason {
            ItsDrop::UnknownEvent => format!("event {} does not exist, or it has ended", words(action_id)),
            ItsDrop::NoPosition => "the request has no event position, and this station has no position \
                 of its own"
                .into(),
            ItsDrop::Expired => "the event has already ended".into(),
            ItsDrop::TableFull => "this station already has the largest number of events".into(),
            other => format!("the station cannot send the message about the event: {other}"),
        })
    }
}

fn words(action: ActionId) -> String {
    format!("{}:{}", action.originating_station_id.0, action.sequence_number.0)
}
