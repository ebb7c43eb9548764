//! What the protocols want from the data path, and the slow path that does it without the kernel's help.
//!
//! [`desired`] holds the desired forwarding state and tells only what changed; the platform carries the
//! changes out. [`forwarder`] is the slow path: it encapsulates and decapsulates one packet at a time, in
//! place in a [`packet::PacketBuffer`]. [`fragments`] cuts and joins outer packets, [`prefix_table`] finds
//! the tunnel of an address. [`distribution`] chooses among several, and [`duplicates`] knows the first copy
//! of a packet that takes them all. [`path_mtu`] finds out what fits into a tunnel, [`mss`] tells TCP.
//! `for_home_agent` and `for_mobile_router` say what the two roles want, `for_neighbours` what the ways to
//! neighbouring mobile networks add to it, `for_direct` what direct routes to others do, `for_nested` what
//! mobile routers behind each other do, `ways` what both roles do with several tunnels.

pub mod desired;
pub mod distribution;
pub mod duplicates;
mod for_direct;
mod for_home_agent;
mod for_mobile_router;
mod for_neighbours;
mod for_nested;
pub mod forwarder;
pub mod fragments;
pub mod mss;
pub mod packet;
pub mod path_mtu;
pub mod prefix_table;
mod ways;

pub(crate) use for_direct::direct_entries;
pub(crate) use for_home_agent::{agent_entries, node_entries};
pub(crate) use for_mobile_router::{lan_prefixes, router_entries, setting_entries};
pub(crate) use for_neighbours::neighbour_entries;
pub(crate) use for_nested::nesting_entries;
