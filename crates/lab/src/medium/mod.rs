//! A radio medium as a model: who hears whom, when a frame may go, what becomes of it.
//!
//! The model knows no clock, no socket and no thread: every call says what time it is, and [`channel`] tells
//! when it wants to be called next. All chance comes from the seed of the scenario ([`chance`]): with the
//! same seed, the same places and the same frames at the same times the outcome is the same. `crate::radio`
//! runs it in real time between the interfaces of the nodes.
//!
//! What is modelled is IEEE 802.11 outside the context of a BSS on a 10 MHz channel, as ETSI EN 302 663
//! (ITS-G5) has it: [`timing`] for the times, [`propagation`] for reach, [`channel`] for access to the
//! medium, collisions, acknowledgements and retransmissions, [`mobility`] for where the nodes are. Left out:
//! several channels, rates that adapt, the four access categories (all frames are best effort), DCC, fading
//! within a frame, Doppler.

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
