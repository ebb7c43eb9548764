//! Models a radio medium: range, access and reception.
//!
//! The model has no clock, socket or thread. Every call has the time as an argument, and [`channel`] returns
//! the time at which it needs the next call. All randomness comes from the seed of the scenario ([`chance`]).
//! The same seed, places and frames at the same times give the same result. `crate::radio` runs the model in
//! real time between the interfaces of the nodes.
//!
//! The model is IEEE 802.11 outside the context of a BSS on a 10 MHz channel, as in ETSI EN 302 663 (ITS-G5).
//! [`timing`] has the durations, [`propagation`] the range, [`mobility`] the places of the nodes. [`channel`]
//! has access to the medium, collisions, acknowledgements and retransmissions. Left out: several channels,
//! rates that adapt, the four access categories (all frames are best effort), DCC, fading within a frame,
//! Doppler.

pub mod chance;
pub mod channel;
pub mod geometry;
pub mod mobility;
pub mod propagation;
pub mod stats;
pub mod timing;

#[cfg(test)]
#[path = "channel_tests.rs"]
mod channel_tests;
