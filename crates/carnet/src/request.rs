//! What the HTTP server asks of the run loop.
//!
//! The server holds no state of the station: it sends a [`Request`] over a bounded channel and waits for
//! the answer in the one-shot channel that is part of it. A run loop that drops the answer is one that is
//! about to stop.

use carnet_api::model::{Binding, Counters, Status, Tunnel, Uplink};
use tokio::sync::oneshot;

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
    /// `GET /v1/counters`
    Counters(oneshot::Sender<Counters>),
    /// `POST /v1/handover`
    Handover {
        /// Interface name of the uplink to use; `None` ends an earlier wish.
        uplink: Option<String>,
        /// Done, or why not, in plain words.
        reply: oneshot::Sender<Result<(), String>>,
    },
}
