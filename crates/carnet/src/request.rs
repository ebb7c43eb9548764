//! Requests of the HTTP server to the run loop.
//!
//! The server holds no state of the station. It sends a [`StationRequest`] over a bounded channel and waits
//! for the answer. The request contains the one-shot channel for the answer. If the run loop drops this
//! channel, the station is about to stop.

use carnet_api::model::{
    AnnouncedService, Area, AreaRequest, Binding, ChannelRequest, Counters, Dcc, DenmRequest, Drain,
    DrainRequest, GnPingEvent, GnPingRequest, GnReceived, GnSendRequest, Group, HandoverRequest, Keys, Lan,
    Ldm, Location, Policy, PortalRequest, PseudonymRequest, RevokeRequest, Route, Security, SignalRequest,
    Status, Triggered, Tunnel, Uplink, Vehicle,
};
use carnet_station::io::DenmAction;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::facilities::{MessageFilter, MessageSubscription};

/// Answer to a request, or the reason for an error, in plain words.
pub type Answer<T> = Result<T, String>;

/// A query or a command, with the channel for its answer.
#[derive(Debug)]
pub enum StationRequest {
    /// Query of `GET /v1/status`.
    Status(oneshot::Sender<Status>),
    /// Query of `GET /v1/bindings`.
    Bindings(oneshot::Sender<Vec<Binding>>),
    /// Query of `GET /v1/uplinks`.
    Uplinks(oneshot::Sender<Vec<Uplink>>),
    /// Query of `GET /v1/tunnels`.
    Tunnels(oneshot::Sender<Vec<Tunnel>>),
    /// Query of `GET /v1/routes`.
    Routes(oneshot::Sender<Vec<Route>>),
    /// Query of `GET /v1/policies`.
    Policies(oneshot::Sender<Vec<Policy>>),
    /// Query of `GET /v1/lan`.
    Lan(oneshot::Sender<Vec<Lan>>),
    /// Query of `GET /v1/keys`.
    Keys(oneshot::Sender<Answer<Keys>>),
    /// Command of `POST /v1/keys/read`.
    ReadKeys(oneshot::Sender<Answer<()>>),
    /// Query of `GET /v1/counters`.
    Counters(oneshot::Sender<Counters>),
    /// Query of `GET /v1/drain`.
    Drain(oneshot::Sender<Option<Drain>>),
    /// Command of `POST /v1/drain`.
    BeginDrain {
        /// Home agents to which the mobile nodes shall move, and the time limit.
        drain: DrainRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/drain/end`.
    EndDrain(oneshot::Sender<Answer<()>>),
    /// Command of `POST /v1/revoke`.
    Revoke {
        /// Bindings to revoke.
        revoke: RevokeRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/handover`.
    Handover {
        /// Uplink that carries the traffic from now on.
        handover: HandoverRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/portal`.
    Portal {
        /// Host that gets access to the captive portal of an uplink, or the end of the access.
        portal: PortalRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/signal`.
    Signal {
        /// Measured signal strength of an uplink.
        signal: SignalRequest,
        /// Success, or the reason for an error, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Query of `GET /v1/neighbours`.
    Neighbours(oneshot::Sender<Answer<Vec<Location>>>),
    /// Query of `GET /v1/locations`.
    Locations(oneshot::Sender<Answer<Vec<Location>>>),
    /// Query of `GET /v1/areas`.
    Areas(oneshot::Sender<Answer<Vec<Area>>>),
    /// Query of `GET /v1/dcc`.
    Dcc(oneshot::Sender<Answer<Dcc>>),
    /// Command of `POST /v1/channel`.
    Channel {
        /// Measured load of the channel.
        channel: ChannelRequest,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Query of `GET /v1/groups`.
    Groups(oneshot::Sender<Answer<Vec<Group>>>),
    /// Query of `GET /v1/security`.
    Security(oneshot::Sender<Answer<Security>>),
    /// Command of `POST /v1/pseudonym`.
    Pseudonym {
        /// Whether to change the pseudonym or to lock it.
        pseudonym: PseudonymRequest,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/areas`.
    SetArea {
        /// Area that the station sets.
        area: AreaRequest,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/areas/remove`.
    RemoveArea {
        /// Name of the area.
        name: String,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/gnsend`.
    GnSend {
        /// Packet that the station sends.
        packet: GnSendRequest,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/gnping`.
    GnPing {
        /// Target of the ping, number of requests, and timeout.
        ping: GnPingRequest,
        /// Stream of events, or the reason for an error. If the sender is dropped, the stream ends. If the
        /// receiver is dropped, the ping ends.
        reply: oneshot::Sender<Answer<mpsc::Receiver<GnPingEvent>>>,
    },
    /// Query of `GET /v1/vehicle`.
    Vehicle(oneshot::Sender<Answer<Vehicle>>),
    /// Command of `PUT /v1/vehicle`.
    SetVehicle {
        /// Report about the vehicle.
        vehicle: Box<Vehicle>,
        /// Success, or the reason for an error.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// Command of `POST /v1/denm`, or of a request about an existing event.
    Denm {
        /// Action on the event: trigger, update or terminate.
        wish: DenmAction,
        /// Content of the event, as a DENM.
        message: Vec<u8>,
        /// Repetition of the DENM, and its destination area.
        denm: Box<DenmRequest>,
        /// Identifier if the event is new, or the reason for an error.
        reply: oneshot::Sender<Answer<Option<Triggered>>>,
    },
    /// Query of `GET /v1/ldm`.
    Ldm {
        /// Filter for the objects of the map.
        filter: MessageFilter,
        /// Objects of the map that pass the filter, or the reason for an error.
        reply: oneshot::Sender<Answer<Ldm>>,
    },
    /// Query of `GET /v1/services`.
    Services(oneshot::Sender<Answer<Vec<AnnouncedService>>>),
    /// Query of `GET /v1/messages`.
    Messages {
        /// Filter for the messages.
        filter: MessageFilter,
        /// Stream of the messages that arrive from now on, or the reason for an error.
        reply: oneshot::Sender<Answer<MessageSubscription>>,
    },
    /// Query of `GET /v1/gnrecv`.
    GnReceive(oneshot::Sender<Answer<broadcast::Receiver<GnReceived>>>),
}
