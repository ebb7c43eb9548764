//! Mobile IPv6 and NEMO Basic Support as state machines without I/O.
#![forbid(unsafe_code)]

mod event;
pub use event::Event;
