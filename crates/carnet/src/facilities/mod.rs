//! The facilities in a running station: connects the station's outputs to the applications.
//!
//! * [`mod@json`] formats messages as JSON, in the format of other gateways.
//! * [`vehicle`] and [`denm`] convert reports of applications to messages.
//! * [`filter`] selects messages for applications; [`ldm`] returns the map.
//! * [`words`] has the names of the numbers in the standard.

pub mod denm;
pub mod filter;
pub mod json;
pub mod ldm;
pub mod vehicle;
pub mod words;

use std::sync::Arc;

use carnet_api::model::{ActionId, Triggered, Vehicle};
use carnet_geonet::geodesy::Position;
use carnet_its::cam::Cam;
use carnet_its::denm::Denm;
use carnet_its::ldm::LocalDynamicMap;
use carnet_station::io::{Message, MessageKind, PositionQuality};
use carnet_wire::geonet::GeoArea;
use serde_json::json;
use tokio::sync::broadcast;

pub use filter::Filter;

/// Maximum number of messages that wait for a client that reads slowly.
const MESSAGES: usize = 256;

/// Answer to a query about messages if the station has no facilities.
pub const NO_FACILITIES: &str = "this station has no facilities: there is no [facilities] in its config";

/// A received message, or the end of an event, for applications.
#[derive(Debug)]
pub struct ReceivedMessage {
    pub kind: MessageKind,
    /// Position of the message's station or event; `None` passes every area filter.
    pub place: Option<Position>,
    pub station_type: u8,
    pub cause: Option<u8>,
    /// JSON text for applications.
    pub json: String,
}

/// Stream of received messages for one client, with the client's filter.
#[derive(Debug)]
pub struct Subscription {
    pub messages: broadcast::Receiver<Arc<ReceivedMessage>>,
    filter: Filter,
    area: Option<GeoArea>,
}

impl Subscription {
    /// Returns whether the client's filter accepts a message.
    pub fn wants(&self, heard: &ReceivedMessage) -> bool {
        self.filter.takes(heard, self.area.as_ref())
    }
}

/// The connection of the station to its applications.
#[derive(Debug)]
pub struct Applications {
    messages: broadcast::Sender<Arc<ReceivedMessage>>,
    /// Name of the station, which is the sender in messages for other gateways.
    name: String,
    /// Action ID of the event that was triggered last.
    triggered: Option<ActionId>,
    /// Last report of an application about the vehicle.
    pub vehicle: Vehicle,
    /// Quality of positions that the program last passed to the station.
    quality: Option<PositionQuality>,
}

impl Applications {
    pub fn new(name: &str) -> Applications {
        Applications {
            messages: broadcast::channel(MESSAGES).0,
            name: name.to_owned(),
            triggered: None,
            vehicle: Vehicle::default(),
            quality: None,
        }
    }

    /// Returns the quality of positions for the station if the quality has changed since the previous call.
    pub fn news(&mut self, quality: PositionQuality) -> Option<PositionQuality> {
        (self.quality.replace(quality) != Some(quality)).then_some(quality)
    }

    /// Passes a message to the applications. `milliseconds` is the date; `map` has the known events.
    pub fn hear(&self, milliseconds: u64, message: &Message, map: Option<&LocalDynamicMap>) {
        // If no application listens, the message need not be decoded.
        if self.messages.receiver_count() == 0 {
            return;
        }
        let told = match message.kind {
            MessageKind::Cam => Cam::from_octets(&message.octets).ok().map(|cam| json::cam(&cam)),
            MessageKind::Denm => Denm::from_octets(&message.octets).ok().map(|denm| {
                let (mut heard, json) = json::denm(&denm);
                // The message about the end of an event lacks the cause, so it comes from the map.
                let known = map.and_then(|map| map.event(denm.denm.management.action_id));
                let known = known.and_then(|event| event.event_type).map(|cause| cause.cause_code.0);
                heard.cause = heard.cause.or(known);
                (heard, json)
            }),
        };
        // A CAM that cannot be decoded completely does not reach applications. The map knows its station from
        // the first fields nevertheless.
        if let Some((mut heard, json)) = told {
            heard.json = json::envelope(message.kind, &self.name, milliseconds, json).to_string();
            let _ = self.messages.send(Arc::new(heard));
        }
    }

    /// Reports to the applications that an event has expired.
    pub fn over(&self, action: ActionId) {
        let json = json!({"type": "over", "action_id": action}).to_string();
        let heard =
            ReceivedMessage { kind: MessageKind::Denm, place: None, station_type: 0, cause: None, json };
        let _ = self.messages.send(Arc::new(heard));
    }

    /// Notes the action ID of a triggered event.
    pub fn triggered(&mut self, action: ActionId) {
        self.triggered = Some(action);
    }

    /// Returns the action ID of the last triggered event, and forgets it.
    pub fn take_triggered(&mut self) -> Option<Triggered> {
        self.triggered.take().map(|action_id| Triggered { action_id })
    }

    /// Returns the messages for `GET /v1/messages`.
    pub fn subscribe(&self, filter: Filter, area: Option<GeoArea>) -> Subscription {
        Subscription { messages: self.messages.subscribe(), filter, area }
    }
}
