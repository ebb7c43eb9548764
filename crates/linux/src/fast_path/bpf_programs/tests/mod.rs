//! The tests run the programs in the kernel on one packet at a time (`BPF_PROG_TEST_RUN`), and check the
//! resulting packet and the verdict.
//!
//! The oracle is the slow path: `Forwarder` of carnet-nemo, and the kernel's work before and after it. A
//! packet that a program forwards must equal the slow path's packet in every octet. A packet that a program
//! leaves to the slow path must be unchanged. Each `TestBench` is a network namespace, because programs look
//! up the kernel's routes.

#![allow(clippy::unwrap_used)]

mod bench;
mod cached_next_hops;
mod clauses;
mod distribution;
mod ipv4_inside;
mod mutations;
mod outside;
mod packets;
mod routing_changes;
mod tracked_connections;
