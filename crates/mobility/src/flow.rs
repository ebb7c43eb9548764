//! Flow bindings (RFC 6089): they decide which packets of a mobile node take which of its care-of addresses.
//!
//! Both sides keep the same list. RFC 6089 knows one action: a copy to every care-of address of the flow. A
//! vendor-specific option (RFC 5094) asks for other actions, failover or a share for each address; see
//! [`FlowAction`]. The list is ordered by priority. The first entry that matches a packet and has a valid
//! binding decides; a packet without a matching entry goes by the best binding.

pub use carnet_wire::mobility::flow::FlowAction;
pub use carnet_wire::mobility::selector::{Flow, Ipv4Selector, Ipv6Selector, Range, TrafficSelector};
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
    /// Action: how the flow's bindings share the packets.
    pub action: FlowAction,
    /// Binding Identifiers with their weights, in the order of preference. A weight counts for
    /// [`FlowAction::Balance`] only.
    pub bids: Vec<(u16, u16)>,
}
