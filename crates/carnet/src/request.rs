//! Requests of the HTTP server to the run loop.
//!
//! The server holds no state of the station. It sends a [`Request`] over a bounded channel and waits for the
//! answer in the one-shot channel that is part of it. A run loop that drops the answer is about to stop.

use carnet_api::model::{
    AnnouncedService, Area, AreaRequest, Binding, ChannelRequest, Counters, Dcc, DenmRequest, Drain,
    DrainRequest, GnPingEvent, GnPingRequest, GnReceived, GnSendRequest, Group, HandoverRequest, Ldm,
    Location, Policy, PseudonymRequest, RevokeRequest, Route, Security, SignalRequest, Status, Triggered,
    Tunnel, Uplink, Vehicle,
};
use carnet_station::io::DenmWish;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::facilities::{Filter, Subscription};

/// Result of a request, or the reason for an error, in plain words.
pub type Answer<T> = Result<T, String>;

/// A query or command, with the channel for the answer.
#[derive(Debug)]
pub enum Request {
    /// `GET /v1/status`
    Status(oneshot::Sender<Status>),
    /// `GET /v1/bindings`
    Bindings(oneshot::Sender<Vec<Binding>>),
    /// `GET /v1/uplinks`
    Uplinks(oneshot::Sender<Vec<Uplink>>),
    /// `GET /v1/tunnels`
    Tunnels(oneshot::Sender<Vec<Tunnel>>),
    /// `GET /v1/routes`
    Routes(oneshot::Sender<Vec<Route>>),
    /// `GET /v1/policies`
    Policies(oneshot::Sender<Vec<Policy>>),
    /// `GET /v1/counters`
    Counters(oneshot::Sender<Counters>),
    /// `GET /v1/drain`
    Drain(oneshot::Sender<Option<Drain>>),
    /// `POST /v1/drain`
    BeginDrain {
        /// Destinations, and the time limit.
        drain: DrainRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/drain/end`
    EndDrain(oneshot::Sender<Answer<()>>),
    /// `POST /v1/revoke`
    Revoke {
        /// Bindings to revoke.
        revoke: RevokeRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/handover`
    Handover {
        /// Handover to make.
        handover: HandoverRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/signal`
    Signal {
        /// Measured value.
        signal: SignalRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `GET /v1/neighbours`
    Neighbours(oneshot::Sender<Answer<Vec<Location>>>),
    /// `GET /v1/locations`
    Locations(oneshot::Sender<Answer<Vec<Location>>>),
    /// `GET /v1/areas`
    Areas(oneshot::Sender<Answer<Vec<Area>>>),
    /// `GET /v1/dcc`
    Dcc(oneshot::Sender<Answer<Dcc>>),
    /// `POST /v1/channel`
    Channel {
        /// Measured load.
        channel: ChannelRequest,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `GET /v1/groups`
    Groups(oneshot::Sender<Answer<Vec<Group>>>),
    /// `GET /v1/security`
    Security(oneshot::Sender<Answer<Security>>),
    /// `POST /v1/pseudonym`
    Pseudonym {
        /// Change or lock.
        pseudonym: PseudonymRequest,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/areas`
    SetArea {
        /// The area.
        area: AreaRequest,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/areas/remove`
    RemoveArea {
        /// Name of the area.
        name: String,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/gnsend`
    GnSend {
        /// The packet.
        packet: GnSendRequest,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/gnping`
    GnPing {
        /// Target, number of requests, and timeout.
        ping: GnPingRequest,
        /// Stream of events, or the reason for an error. The stream ends when the sender is dropped. If the
        /// receiver is gone, the ping ends.
        reply: oneshot::Sender<Answer<mpsc::Receiver<GnPingEvent>>>,
    },
    /// `GET /v1/vehicle`
    Vehicle(oneshot::Sender<Answer<Vehicle>>),
    /// `PUT /v1/vehicle`
    SetVehicle {
        /// Report about the vehicle.
        vehicle: Box<Vehicle>,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/denm` and the requests about an existing event
    Denm {
        /// Action on the event.
        wish: DenmWish,
        /// Content of the event, as a message.
        message: Vec<u8>,
        /// Repetition and area of the message.
        denm: Box<DenmRequest>,
        /// Identifier of a new event, or the reason for an error.
        reply: oneshot::Sender<Answer<Option<Triggered>>>,
    },
    /// `GET /v1/ldm`
    Ldm {
        /// Filter of the map.
        filter: Filter,
        /// Filtered map, or the reason for an error.
        reply: oneshot::Sender<Answer<Ldm>>,
    },
    /// `GET /v1/services`
    Services(oneshot::Sender<Answer<Vec<AnnouncedService>>>),
    /// `GET /v1/messages`
    Messages {
        /// Filter of the messages.
        filter: Filter,
        /// Later messages, or the reason for an error.
        reply: oneshot::Sender<Answer<Subscription>>,
    },
    /// `GET /v1/gnrecv`
    GnReceive(oneshot::Sender<Answer<broadcast::Receiver<GnReceived>>>),
}
