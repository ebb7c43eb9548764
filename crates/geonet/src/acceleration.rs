//! Interface between a router and a fast path.
//!
//! A fast path (programs in the kernel) sends, delivers and forwards GeoUnicast packets like those that the
//! router has handled shortly before. So most packets of a flow never reach the router. The fast path makes
//! no decisions: [`FastPathUpdate`] defines its permissions, and each such message replaces the previous one
//! of its kind. Every other packet takes the slow path. The fast path reports its work in a
//! [`FastPathReport`] about ten times a second. From the report the router learns what it would learn from
//! the packets: position vectors, sequence numbers, packet data rates, and the stations in use.
//!
//! Router and fast path draw sequence numbers (8.3) from one [`SequenceNumbers`]; a fast path brings its own,
//! which both share.

use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{LongPositionVector, ShortPositionVector};
use serde::{Deserialize, Serialize};

use crate::MacAddress;

/// Octets of the headers of a GUC (9.2 to 9.8.2).
pub const UNICAST_HEADERS_LENGTH: usize = 60;

/// Time without use after which the router withdraws a permission from the fast path.
pub const PERMISSION_IDLE_TIME: Duration = Duration::from_secs(5);

/// Source of the sequence numbers of own packets (8.3).
pub trait SequenceNumbers: std::fmt::Debug + Send {
    /// Returns the next sequence number.
    fn next_sequence_index(&mut self) -> u16;
    /// Makes 0 the next sequence number, because the station has restarted or changed its address.
    fn restart_sequence(&mut self);
    /// Sets `next` as the next sequence number. The replay of a recording calls this function, because the
    /// fast path of the recorded station used the numbers before `next`.
    fn set_next_sequence(&mut self, next: u16);
}

/// Counter of sequence numbers that only the router uses, not a fast path; the first number is 0
/// (PON_SQN_BV_01).
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnSequenceNumbers(u16);

impl SequenceNumbers for OwnSequenceNumbers {
    fn next_sequence_index(&mut self) -> u16 {
        let sequence = self.0;
        self.0 = sequence.wrapping_add(1);
        sequence
    }

    fn restart_sequence(&mut self) {
        self.0 = 0;
    }

    fn set_next_sequence(&mut self, next: u16) {
        self.0 = next;
    }
}

/// Change of a fast path's permissions. The fast path applies it at once.
#[derive(Debug, Clone, PartialEq)]
pub enum FastPathUpdate {
    /// Position vector for this station's own packets. The fast path stops when its last vector is more than
    /// a few hundred milliseconds old, because the router has then stopped.
    Position(LongPositionVector),
    /// Permits the fast path to send this station's IPv6 packets to another station along this path.
    Way(Box<OwnPacketPath>),
    /// Forbids the fast path to send this station's packets to the station with this address.
    NoOwnPacketPath(MacAddress),
    /// Permits the fast path to forward packets of other stations along this path.
    Onward(Box<ForwardingPath>),
    /// Forbids the fast path to forward packets to the station with this address.
    NoForwardingPath(MacAddress),
    /// Permits the fast path to receive packets of the station with this address. A packet with one of the
    /// listed sequence numbers is a duplicate.
    Source(MacAddress, Vec<u16>),
    /// Forbids the fast path to receive packets of the station with this address.
    NoSource(MacAddress),
}

/// Path of this station's own IPv6 packets to another station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPacketPath {
    /// MID of the destination.
    pub destination: MacAddress,
    /// Link-layer address of the next hop.
    pub next_hop: MacAddress,
    /// Headers that the router would write. The fast path replaces only the sequence number, the payload
    /// length and the source position vector.
    pub guc_headers: [u8; UNICAST_HEADERS_LENGTH],
    /// Time at which the location table removes the destination or the next hop, if no other packet of that
    /// station arrives before.
    pub valid_until: Time,
}

/// Path of packets that this station forwards for other stations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardingPath {
    /// MID of the destination.
    pub destination: MacAddress,
    /// Link-layer address of the next hop.
    pub next_hop: MacAddress,
    /// Destination position that a packet must contain, latitude and longitude in 0.1 microdegree: the router
    /// chose the next hop for this position. `None` if the destination is a neighbour, because its next hop
    /// does not depend on the position.
    pub required_position: Option<(i32, i32)>,
    /// Position vector of the destination. The fast path writes it into packets that contain an older one
    /// (C.3). `None` if the fast path shall not change packets.
    pub destination_vector: Option<ShortPositionVector>,
    /// Time at which the location table removes the destination or the next hop, if no other packet of that
    /// station arrives before.
    pub valid_until: Time,
}

/// Summary of the packets that a fast path has received from one station since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Newest position vector of the station. A recording writes its 24 octets in hexadecimal.
    #[serde(with = "octets_of")]
    pub vector: LongPositionVector,
    /// Whether the fast path received a packet directly from the station, not through a forwarder.
    pub direct: bool,
    /// Octets of the GeoNetworking packets.
    pub octets: usize,
    /// Last sequence numbers of the station, oldest first.
    pub sequences: Vec<u16>,
}

/// Report of a fast path: its work since its previous report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FastPathReport {
    /// Sequence number for the next packet of this station.
    pub next_sequence: u16,
    /// Number of own packets sent.
    pub sent: u64,
    /// Number of packets delivered.
    pub delivered: u64,
    /// Number of packets forwarded.
    pub forwarded: u64,
    /// Number of duplicates dropped.
    pub duplicates: u64,
    /// Stations from which the fast path received packets.
    pub samples: Vec<SourceReport>,
    /// Stations to which the fast path sent this station's own packets.
    #[serde(rename = "ways")]
    pub own_packet_destinations: Vec<MacAddress>,
    /// Stations to which the fast path forwarded packets.
    #[serde(rename = "onwards")]
    pub forwarding_destinations: Vec<MacAddress>,
}

/// Serializes a position vector as its octets in hexadecimal.
mod octets_of {
    use carnet_base::hex;
    use carnet_wire::geonet::LongPositionVector;
    use serde::{Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        vector: &LongPositionVector,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        hex::serialize(&vector.to_octets(), serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<LongPositionVector, D::Error> {
        let octets = hex::deserialize(deserializer)?;
        let whole: Result<&[u8; LongPositionVector::LEN], _> = octets.as_slice().try_into();
        let expected = "the octets of a long position vector";
        whole
            .map(LongPositionVector::from_octets)
            .map_err(|_| D::Error::invalid_length(octets.len(), &expected))
    }
}
