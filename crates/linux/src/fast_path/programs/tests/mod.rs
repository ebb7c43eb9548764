//! The programs run in the kernel on one packet at a time (`BPF_PROG_TEST_RUN`): packet in, packet out,
//! verdict.
//!
//! The oracle is the slow path: [`Forwarder`], and what the kernel does before and behind it. Whatever a
//! program hands on must be what the slow path would have sent, octet by octet; what it leaves alone must be
//! as it came. Each [`Bench`] is a network namespace, since programs ask the kernel's routing.

#![allow(clippy::unwrap_used)]

mod bench;
mod clauses;
mod distribution;
mod following;
mod mutations;
mod outside;
mod packets;
mod ways;
