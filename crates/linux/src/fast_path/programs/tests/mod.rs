//! The tests run the programs in the kernel on one packet at a time (`BPF_PROG_TEST_RUN`): packet in, packet
//! out, verdict.
//!
//! The oracle is the slow path: [`Forwarder`], and the kernel's work before and after it. A packet that a
//! program forwards must be the slow path's, octet by octet; a packet that it leaves alone must be unchanged.
//! Each [`Bench`] is a network namespace, because programs ask the kernel's routing.

#![allow(clippy::unwrap_used)]

mod bench;
mod clauses;
mod distribution;
mod following;
mod mutations;
mod outside;
mod packets;
mod ways;
