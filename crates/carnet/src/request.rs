//! What the HTTP server asks of the run loop.
//!
//! The server holds no state of the station: it sends a [`Request`] over a bounded channel and waits for
//! the answer in the one-shot channel that is part of it. A run loop that drops the answer is one that is
//! about to stop.

use carnet_api::model::{
    AnnouncedService, Area, AreaRequest, Binding, ChannelRequest, Counters, Dcc, DenmRequest, Drain,
    DrainRequest, GnPingEvent, GnPingRequest, GnReceived, GnSendRequest, Group, HandoverRequest, Ldm,
    Location, Policy, PseudonymRequest, RevokeRequest, Route, Security, SignalRequest, Status, Triggered,
    Tunnel, Uplink, Vehicle,
};
use carnet_station::io::DenmWish;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::facilities::{Filter, Subscription};

/// What was asked for, or why there is none, in plain words.
pub type Answer<T> = Result<T, String>;

/// A question or a wish, with the way back for the answer.
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
        /// Where to, and for how long.
        drain: DrainRequest,
        /// Begun, or why not, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/drain/end`
    EndDrain(oneshot::Sender<Answer<()>>),
    /// `POST /v1/revoke`
    Revoke {
        /// Whose bindings.
        revoke: RevokeRequest,
        /// Begun, or why not, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/handover`
    Handover {
        /// What is wished for.
        handover: HandoverRequest,
        /// Done, or why not, in plain words.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/signal`
    Signal {
        /// What was measured.
        signal: SignalRequest,
        /// Done, or why not, in plain words.
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
        /// How busy it was.
        channel: ChannelRequest,
        /// Done, or why not.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `GET /v1/groups`
    Groups(oneshot::Sender<Answer<Vec<Group>>>),
    /// `GET /v1/security`
    Security(oneshot::Sender<Answer<Security>>),
    /// `POST /v1/pseudonym`
    Pseudonym {
        /// Whether to change it, or not to.
        pseudonym: PseudonymRequest,
        /// Done, or why not.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/areas`
    SetArea {
        /// The area.
        area: AreaRequest,
        /// Done, or why not.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/areas/remove`
    RemoveArea {
        /// Its name.
        name: String,
        /// Done, or why not.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/gnsend`
    GnSend {
        /// The packet.
        packet: GnSendRequest,
        /// Sent, or why not.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/gnping`
    GnPing {
        /// Whom to ask, how often, and how long to wait.
        ping: GnPingRequest,
        /// What comes of it, at once, or why nothing can. The stream ends when the sender is dropped; when
        /// the receiver is gone, nobody waits any more, and no further request has to be sent.
        reply: oneshot::Sender<Answer<mpsc::Receiver<GnPingEvent>>>,
    },
    /// `GET /v1/vehicle`
    Vehicle(oneshot::Sender<Answer<Vehicle>>),
    /// `PUT /v1/vehicle`
    SetVehicle {
        /// What is known of it.
        vehicle: Box<Vehicle>,
        /// Done, or why not.
        reply: oneshot::Sender<Answer<()>>,
    },
    /// `POST /v1/denm` and what follows it
    Denm {
        /// What is wanted of the event.
        wish: DenmWish,
        /// What is said of it, as a message.
        message: Vec<u8>,
        /// And the rest.
        denm: Box<DenmRequest>,
        /// What a new event is called, or why nothing was said.
        reply: oneshot::Sender<Answer<Option<Triggered>>>,
    },
    /// `GET /v1/ldm`
    Ldm {
        /// What of it.
        filter: Filter,
        /// That.
        reply: oneshot::Sender<Answer<Ldm>>,
    },
    /// `GET /v1/services`
    Services(oneshot::Sender<Answer<Vec<AnnouncedService>>>),
    /// `GET /v1/messages`
    Messages {
        /// Which of them.
        filter: Filter,
        /// What comes from now on.
        reply: oneshot::Sender<Answer<Subscription>>,
    },
    /// `GET /v1/gnrecv`
    GnReceive(oneshot::Sender<Answer<broadcast::Receiver<GnReceived>>>),
}
