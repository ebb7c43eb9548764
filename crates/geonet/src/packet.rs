//! A packet in the router: its octets, its destination and other properties that are not in its octets.

use carnet_base::Time;
use carnet_wire::geonet::{GeoArea, Lifetime, TrafficClass, set_lifetime};

use crate::dcc::DccProfile;
use crate::geodesy::{DistanceMetric, Position};

/// Destination of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ForwardingTarget {
    /// GUC and LS reply: the station with this MID, at the position in the packet.
    Station { mid: u64, metric: DistanceMetric },
    /// GBC: all stations in the area.
    Area { area: GeoArea, metric: DistanceMetric },
    /// GAC: any station in the area.
    Anybody { area: GeoArea, metric: DistanceMetric },
    /// TSB, SHB and LS request: all stations.
    Everybody,
}

impl ForwardingTarget {
    pub fn towards_station(mid: u64, position: Position) -> ForwardingTarget {
        ForwardingTarget::Station { mid, metric: DistanceMetric::new(position) }
    }

    /// Returns the metric of the distance to the destination; `None` for packets to all stations.
    pub fn distance_metric(&self) -> Option<&DistanceMetric> {
        match self {
            ForwardingTarget::Station { metric, .. }
            | ForwardingTarget::Area { metric, .. }
            | ForwardingTarget::Anybody { metric, .. } => Some(metric),
            ForwardingTarget::Everybody => None,
        }
    }
}

/// Properties of a buffered packet that are not in its octets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketProperties {
    /// MID of the source and SN, which identify the packet.
    pub identity: (u64, u16),
    pub target: ForwardingTarget,
    pub traffic_class: TrafficClass,
    /// DCC profile that the sender's request named.
    pub profile: Option<DccProfile>,
    /// SCF: the packet waits if the router has no next hop.
    pub may_wait_for_next_hop: bool,
    /// LT field of the packet.
    pub lifetime: Lifetime,
    /// Time at which the packet entered the buffer.
    pub waiting_since: Time,
    /// Whether this station is the source of the packet.
    pub is_own: bool,
}

impl PacketProperties {
    pub fn expires_at(&self) -> Time {
        self.waiting_since + self.lifetime.duration()
    }
}

/// A buffered packet.
#[derive(Debug)]
pub(crate) struct BufferedPacket {
    pub frame: Vec<u8>,
    pub properties: PacketProperties,
}

impl BufferedPacket {
    /// Reduces the lifetime of a packet that leaves the buffer by the time that it waited. Returns false if
    /// no lifetime remains.
    pub fn subtract_waiting_time(&mut self, now: Time) -> bool {
        let left =
            self.properties.lifetime.after_waiting(now.saturating_since(self.properties.waiting_since));
        self.properties.lifetime = left;
        self.properties.waiting_since = now;
        left.milliseconds() > 0 && set_lifetime(&mut self.frame, left).is_ok()
    }
}
