//! The forwarding algorithms (annexes D, E and F) as decisions; the router carries them out.
//!
//! * [`greedy`]: to the neighbour nearest to the destination (E.2), with a cache of next hops.
//! * [`contention_based`]: timers and the buffer of packets in contention (E.3, F.3).
//! * [`advanced`]: the sector of F.4.
//! * [`predictive`]: greedy among neighbours that are still there, a carnet extension.
//! * [`perimeter`]: around voids, a carnet extension.
//!
//! Here: where a packet is going, and which algorithm is in charge of it (annex D).

pub mod advanced;
pub mod contention_based;
pub mod greedy;
pub mod perimeter;
pub mod predictive;

use carnet_wire::geonet::{GeoArea, LongPositionVector};

use crate::geodesy::{self, Metric, Position};
use crate::mib::UnknownSender;

/// Where a packet is going.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// GUC and LS reply: to the station with this MID, said to be there.
    Station { mid: u64, metric: Metric },
    /// GBC: to everybody in the area.
    Area { area: GeoArea, metric: Metric },
    /// GAC: to any one station in the area.
    Anybody { area: GeoArea, metric: Metric },
    /// TSB, SHB, LS request.
    Everybody,
}

impl Target {
    pub fn station(mid: u64, position: Position) -> Target {
        Target::Station { mid, metric: Metric::new(position) }
    }

    /// Returns the metric of the distance to the destination.
    pub fn metric(&self) -> Option<&Metric> {
        match self {
            Target::Station { metric, .. } | Target::Area { metric, .. } | Target::Anybody { metric, .. } => {
                Some(metric)
            }
            Target::Everybody => None,
        }
    }
}

/// Annex D: what a station does with a packet to an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// It is inside: the area forwarding algorithm.
    Area,
    /// It is outside: the non-area forwarding algorithm.
    NonArea,
    /// It is outside and the sender was inside: the packet shall not come out again.
    Discard,
    /// It is outside and knows nothing certain of the sender: broadcast at once (V1.2.1 and V1.3.1).
    Broadcast,
}

/// Annex D. `sender` is the position vector of the station from which the packet came directly, `None` for
/// the source or where it is not known.
pub fn select(
    area: &GeoArea,
    ego: Position,
    is_source: bool,
    sender: Option<&LongPositionVector>,
    unknown_sender: UnknownSender,
) -> Selection {
    if geodesy::is_inside(area, ego) {
        return Selection::Area;
    }
    if is_source {
        return Selection::NonArea;
    }
    match sender.filter(|pv| pv.accurate) {
        Some(pv) if geodesy::is_inside(area, Position::new(pv.latitude, pv.longitude)) => Selection::Discard,
        Some(_) => Selection::NonArea,
        None => match unknown_sender {
            UnknownSender::NonAreaForwarding => Selection::NonArea,
            UnknownSender::Broadcast => Selection::Broadcast,
        },
    }
}
