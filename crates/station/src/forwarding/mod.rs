//! What the protocols want from the data path, and the slow path that does it without the kernel's help.
//!
//! [`desired`] holds the desired forwarding state and tells only what changed; the platform carries the
//! changes out. [`forwarder`] is the slow path: it encapsulates and decapsulates one packet at a time.

pub mod desired;
pub mod forwarder;
