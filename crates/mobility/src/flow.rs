//! Flow bindings (RFC 6089): which packets of a mobile node take which of its care-of addresses.
//!
//! Both sides keep the same list. RFC 6089 knows one action, a copy to every care-of address that is named;
//! what a flow shall have besides (the first that works, or a share to each) is said by a vendor-specific
//! option (RFC 5094), see [`FlowAction`]. The list is ordered by priority; the first entry that matches a
//! packet and has a binding left decides, and what matches none goes to the best binding.

pub use carnet_wire::mobility::flow::FlowAction;
pub use carnet_wire::mobility::selector::{Flow, Ipv4Selector, Ipv6Selector, Range, TrafficSelector};
use serde::{Deserialize, Serialize};

/// An entry of the flow bindings list (RFC 6089 4.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowBinding {
    /// The Flow Identifier, unique for a home address; not 0.
    pub fid: u16,
    /// FID-PRI: lower wins where several entries match; not 0.
    pub priority: u16,
    /// Which packets belong to it.
    pub selector: TrafficSelector,
    /// What becomes of them.
    pub action: FlowAction,
    /// Binding Identifiers with their weights, in the order in which they are preferred. A weight counts for
    /// [`FlowAction::Balance`] only.
    pub bids: Vec<(u16, u16)>,
}
