//! Flow bindings (RFC 6089): they decide over which of a mobile node's care-of addresses a packet goes.
//!
//! Mobile router and home agent have the same list. RFC 6089 defines one action: a copy of the packet to
//! every care-of address of the flow. A vendor-specific option (RFC 5094) requests another action: failover,
//! or a share of the flows for each address; see [`FlowAction`]. The list is ordered by priority. The first
//! entry that matches a packet and has a valid binding decides. A packet without a matching entry takes the
//! best binding.

pub use carnet_wire::mobility::flow_identification::FlowAction;
pub use carnet_wire::mobility::traffic_selector::{
    FlowFields, Ipv4Selector, Ipv6Selector, TrafficSelector, ValueRange,
};
use serde::{Deserialize, Serialize};

/// An entry of the flow bindings list (RFC 6089 4.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowBinding {
    /// The Flow Identifier, unique for a home address; not 0.
    pub fid: u16,
    /// FID-PRI: the lower value wins if several entries match; not 0.
    pub priority: u16,
    /// Selector of the flow's packets.
    pub selector: TrafficSelector,
    /// Action: how the bindings share the packets of the flow.
    pub action: FlowAction,
    /// Binding Identifiers with their weights, the preferred first. Only [`FlowAction::Balance`] uses the
    /// weights.
    pub bids: Vec<(u16, u16)>,
}
