//! Several machines for one home agent: which of them it is, and what it has acknowledged, without I/O.
//!
//! A home agent, as mobile routers know it by its address, is a *seat*. The machines that may be it are its *members*:
//! one has the seat, the others wait. What they share is a [`store`]: keys with revisions, changed by transactions that
//! compare first, and watched in the order of the changes, as etcd has it (its KV and Watch services of version 3.4).
//! [`seat`] decides; whether a member reaches its routers, and says so, has a part in who it is, and none in that it is one.
//!
//! Left out: the store itself and the connection to it, which the runner has; how the routes to the home agent follow it
//! (its prefixes are routes of the kernel, which a routing daemon announces).
#![forbid(unsafe_code)]

mod config;
mod links;
mod others;
mod retries;
pub mod seat;
pub mod store;

pub use config::SeatConfig;
pub use others::GONE;
pub use seat::{Output, Role, Seat};
pub use store::{Change, Event, Key, Outcome, Presence, RequestId, Revision, Snapshot, Token, Transaction};
