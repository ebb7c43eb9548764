//! The facilities in a running station: connects the station's outputs to the applications.
//!
//! * [`message_json`] formats messages as JSON, in the format of other gateways.
//! * [`vehicle_data`] and [`denm_requests`] convert reports of applications to messages.
//! * [`message_filter`] selects messages for applications; [`ldm_objects`] returns the map.
//! * [`named_numbers`] has the names of the numbers in the standard.

pub mod denm_requests;
pub mod ldm_objects;
pub mod message_filter;
pub mod message_json;
pub mod named_numbers;
pub mod vehicle_data;

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

pub use message_filter::MessageFilter;

/// Maximum number of messages that wait for a client that reads slowly.
const MAX_WAITING_MESSAGES: usize = 256;

/// Answer to a query about messages if the station has no facilities.
pub const ERROR_NO_FACILITIES: &str =
    "this station has no facilities: there is no [facilities] in its config";

/// A received message, or the end of an event, for applications.
#[derive(Debug)]
pub struct ReceivedMessage {
    pub kind: MessageKind,
    /// Position of the station or event that the message describes. `None` passes every area filter.
    pub message_position: Option<Position>,
    pub station_type: u8,
    pub event_cause: Option<u8>,
    /// JSON text for applications.
    pub json_text: String,
}

/// Stream of received messages for one client, with the client's filter.
#[derive(Debug)]
pub struct MessageSubscription {
    pub message_receiver: broadcast::Receiver<Arc<ReceivedMessage>>,
    message_filter: MessageFilter,
    filter_area: Option<GeoArea>,
}

impl MessageSubscription {
    /// Returns whether the client's filter accepts a message.
    pub fn accepts_message(&self, message: &ReceivedMessage) -> bool {
        self.message_filter.accepts_message(message, self.filter_area.as_ref())
    }
}

/// The connection of the station to its applications.
#[derive(Debug)]
pub struct Applications {
    message_sender: broadcast::Sender<Arc<ReceivedMessage>>,
    /// Name of the station, which is the sender in messages for other gateways.
    name: String,
    /// Action ID of the event that was triggered last, until the caller takes it.
    last_triggered: Option<ActionId>,
    /// Last report of an application about the vehicle.
    pub vehicle_report: Vehicle,
    /// Quality of the position that the program last reported to the station; `None` before the first report.
    last_position_quality: Option<PositionQuality>,
}

impl Applications {
    pub fn new(name: &str) -> Applications {
        Applications {
            message_sender: broadcast::channel(MAX_WAITING_MESSAGES).0,
            name: name.to_owned(),
            last_triggered: None,
            vehicle_report: Vehicle::default(),
            last_position_quality: None,
        }
    }

    /// Returns the quality of the position if it has changed since the previous call, otherwise `None`.
    pub fn changed_quality(&mut self, quality: PositionQuality) -> Option<PositionQuality> {
        (self.last_position_quality.replace(quality) != Some(quality)).then_some(quality)
    }

    /// Passes a message to the applications. `milliseconds` is the time since 1970; `map` has the known
    /// events.
    pub fn pass_message(&self, milliseconds: u64, message: &Message, map: Option<&LocalDynamicMap>) {
        // If no application listens, do not decode the message.
        if self.message_sender.receiver_count() == 0 {
            return;
        }
        let told = match message.kind {
            MessageKind::Cam => {
                Cam::from_octets(&message.octets).ok().map(|cam| message_json::cam_as_json(&cam))
            }
            MessageKind::Denm => Denm::from_octets(&message.octets).ok().map(|denm| {
                let (mut heard, json) = message_json::denm_as_json(&denm);
                // A DENM that ends an event lacks the cause, so the cause comes from the map.
                let known = map.and_then(|map| map.event(denm.denm.management.action_id));
                let known = known.and_then(|event| event.event_type).map(|cause| cause.cause_code.0);
                heard.event_cause = heard.event_cause.or(known);
                (heard, json)
            }),
        };
        // A CAM that cannot be decoded completely does not reach applications. Its first fields suffice for
        // the station's entry in the map.
        if let Some((mut heard, json)) = told {
            heard.json_text =
                message_json::message_in_envelope(message.kind, &self.name, milliseconds, json).to_string();
            let _ = self.message_sender.send(Arc::new(heard));
        }
    }

    /// Reports to the applications that an event has expired.
    pub fn report_expired_event(&self, action: ActionId) {
        let json = json!({"type": "over", "action_id": action}).to_string();
        let heard = ReceivedMessage {
            kind: MessageKind::Denm,
            message_position: None,
            station_type: 0,
            event_cause: None,
            json_text: json,
        };
        let _ = self.message_sender.send(Arc::new(heard));
    }

    /// Notes the action ID of a triggered event.
    pub fn record_triggered_event(&mut self, action: ActionId) {
        self.last_triggered = Some(action);
    }

    /// Returns the action ID of the event that was triggered last. A second call returns `None`.
    pub fn take_triggered_event(&mut self) -> Option<Triggered> {
        self.last_triggered.take().map(|action_id| Triggered { action_id })
    }

    /// Returns the messages for `GET /v1/messages`.
    pub fn subscribe_messages(&self, filter: MessageFilter, area: Option<GeoArea>) -> MessageSubscription {
        MessageSubscription {
            message_receiver: self.message_sender.subscribe(),
            message_filter: filter,
            filter_area: area,
        }
    }
}
