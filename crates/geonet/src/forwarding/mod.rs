//! The forwarding algorithms (annexes D, E and F). They make the decisions; the router executes them.
//!
//! * [`greedy`]: the neighbour nearest to the destination (E.2), with a cache of next hops.
//! * [`contention_based`]: timers and the buffer of packets in contention (E.3, F.3).
//! * [`advanced`]: the contention sector of F.4.
//! * [`predictive`]: greedy forwarding among neighbours that are still in range, a carnet extension.
//! * [`perimeter`]: paths around voids, a carnet extension.
//!
//! This file: the choice of the forwarding algorithm of a packet (annex D).

pub mod advanced;
pub mod contention_based;
pub mod greedy;
pub mod perimeter;
pub mod predictive;

use carnet_wire::geonet::{GeoArea, LongPositionVector};

use crate::geodesy::{self, Position};
use crate::mib::UnknownSender;

/// Decision of annex D for a packet to an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaForwardingDecision {
    /// This station is inside the area: use the area forwarding algorithm.
    Area,
    /// This station is outside the area: use the non-area forwarding algorithm.
    NonArea,
    /// This station is outside and the sender inside: discard the packet, because it must not leave the area.
    Discard,
    /// This station is outside and has no accurate position of the sender: broadcast at once (V1.2.1 and
    /// V1.3.1).
    Broadcast,
}

/// Makes the decision of annex D. `sender` is the position vector of the station that sent the frame; `None`
/// at the source or if the position is unknown.
pub fn decide_for_area(
    area: &GeoArea,
    ego: Position,
    is_source: bool,
    sender: Option<&LongPositionVector>,
    unknown_sender: UnknownSender,
) -> AreaForwardingDecision {
    if geodesy::is_inside(area, ego) {
        return AreaForwardingDecision::Area;
    }
    if is_source {
        return AreaForwardingDecision::NonArea;
    }
    match sender.filter(|pv| pv.accurate) {
        Some(pv) if geodesy::is_inside(area, Position::new(pv.latitude, pv.longitude)) => {
            AreaForwardingDecision::Discard
        }
        Some(_) => AreaForwardingDecision::NonArea,
        None => match unknown_sender {
            UnknownSender::NonAreaForwarding => AreaForwardingDecision::NonArea,
            UnknownSender::Broadcast => AreaForwardingDecision::Broadcast,
        },
    }
}
