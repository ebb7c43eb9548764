//! The desired state of the data path, and the slow path that forwards packets without the kernel's help.
//!
//! [`desired`] holds the desired forwarding state and reports only changes; the platform installs them.
//! [`packet_rules`] has its rules of packet filter and NAT, and `inbound_filter` the rules for packets to the
//! mobile network. `policy_routing_for_home_agent` and `policy_routing_for_mobile_router` compute the entries
//! of the two roles. `policy_routing_for_neighbours` adds the routes to neighbouring mobile networks,
//! `policy_routing_for_direct_routes` the direct routes, and `policy_routing_for_nested_routers` the routes
//! of nested mobile routers. Both roles use `route_entries`, which builds parts of entries, and
//! `binding_tunnels`, which divides the traffic among several tunnels.
//!
//! [`forwarder`] is the slow path: it encapsulates and decapsulates one packet at a time, in place in a
//! [`packet::PacketBuffer`]. `inner_packet` reads inner packets of both families. [`fragments`] cuts and
//! reassembles outer packets. [`prefix_table`] finds the tunnel of an address. [`distribution`] chooses among
//! several tunnels, and [`duplicates`] finds the first copy of a duplicated packet. [`path_mtu`] finds the
//! path MTU of a tunnel, and [`mss`] lowers the segment size of TCP to it.

mod binding_tunnels;
pub mod desired;
pub mod distribution;
pub mod duplicates;
pub mod forwarder;
pub mod fragments;
mod inbound_filter;
pub(crate) mod inner_packet;
mod lan;
pub mod mss;
pub mod packet;
pub mod packet_rules;
pub mod path_mtu;
mod policy_routing_for_breakouts;
mod policy_routing_for_direct_routes;
mod policy_routing_for_home_agent;
mod policy_routing_for_ipv4_tunnels;
mod policy_routing_for_mobile_router;
mod policy_routing_for_neighbours;
mod policy_routing_for_nested_routers;
mod policy_routing_for_own_traffic;
pub mod prefix_table;
mod route_entries;

pub(crate) use inbound_filter::{closed_lan_entries, packet_filter_entries};
pub use lan::{
    AllowedPackets, InboundFilter, InboundPackets, LanSettings, PrefixAssignment, assign_prefixes,
};
pub(crate) use lan::{delegation_entries, lan_ipv4_prefixes, lan_prefixes};
pub use policy_routing_for_breakouts::BreakoutPolicy;
pub(crate) use policy_routing_for_breakouts::{
    PortalTarget, breakout_entries, closed_uplink_entries, is_usable_for_breakout, uplink_of_policy,
};
pub(crate) use policy_routing_for_direct_routes::direct_entries;
pub(crate) use policy_routing_for_home_agent::{home_agent_entries, mobile_router_entries};
pub(crate) use policy_routing_for_mobile_router::{router_entries, sysctl_entries};
pub(crate) use policy_routing_for_neighbours::neighbour_entries;
pub(crate) use policy_routing_for_nested_routers::nesting_entries;
pub use policy_routing_for_own_traffic::OwnTraffic;
pub(crate) use policy_routing_for_own_traffic::own_traffic_entries;
pub(crate) use route_entries::first_host_address;
