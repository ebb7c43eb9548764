//! Interface between a router and a fast path.
//!
//! A fast path (programs in the kernel) sends, delivers and forwards GeoUnicast packets like those that the
//! router has handled shortly before. So most packets of a flow never reach the router. The fast path makes
//! no decisions: [`Accelerate`] defines its permissions, and each such message replaces the previous one of
//! its kind. Every other packet takes the slow path. The fast path reports its work in a [`Report`] about ten
//! times a second. From the report the router learns what it would learn from the packets: position vectors,
//! sequence numbers, packet data rates, and the stations in use.
//!
//! Router and fast path draw sequence numbers (8.3) from one [`SequenceNumbers`]; the fast path provides a
//! shared one.

use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{LongPositionVector, ShortPositionVector};
use serde::{Deserialize, Serialize};

use crate::MacAddress;

/// Octets of the headers of a GUC (9.2 to 9.8.2).
pub const HEADERS: usize = 60;

/// Time after which the router revokes an unused permission of the fast path.
pub const IDLE: Duration = Duration::from_secs(5);

/// Source of the sequence numbers of own packets (8.3).
pub trait SequenceNumbers: std::fmt::Debug + Send {
    /// Returns the next sequence number.
    fn next(&mut self) -> u16;
    /// Makes 0 the next sequence number: the station has restarted or has another address.
    fn restart(&mut self);
    /// Sets `next` as the next number. A replayed recording uses this, because its fast path drew the earlier
    /// numbers.
    fn replay(&mut self, next: u16);
}

/// Source of sequence numbers with one owner; the first number is 0 (PON_SQN_BV_01).
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnSequenceNumbers(u16);

impl SequenceNumbers for OwnSequenceNumbers {
    fn next(&mut self) -> u16 {
        let sequence = self.0;
        self.0 = sequence.wrapping_add(1);
        sequence
    }

    fn restart(&mut self) {
        self.0 = 0;
    }

    fn replay(&mut self, next: u16) {
        self.0 = next;
    }
}

/// Permission for a fast path, or its withdrawal; valid at once.
#[derive(Debug, Clone, PartialEq)]
pub enum Accelerate {
    /// Position vector of own packets. The fast path stops if its last vector is more than a few hundred
    /// milliseconds old, because the router then no longer corrects it.
    Position(LongPositionVector),
    /// The fast path may send own IPv6 packets to a station along this path.
    Way(Box<Way>),
    /// The fast path may no longer send own packets to this station.
    NoWay(MacAddress),
    /// The fast path may forward packets of other stations to a station along this path.
    Onward(Box<Onward>),
    /// The fast path may no longer forward packets to this station.
    NoOnward(MacAddress),
    /// The fast path may receive packets of this station, except duplicates; the list holds its last sequence
    /// numbers.
    Source(MacAddress, Vec<u16>),
    /// The fast path may no longer receive packets of this station.
    NoSource(MacAddress),
}

/// Path of own IPv6 packets to a station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// MID of the destination.
    pub destination: MacAddress,
    /// Link-layer address of the next hop.
    pub next_hop: MacAddress,
    /// Headers as the router would write them; the fast path fills in SN, PL and the position vector of the
    /// source.
    pub headers: [u8; HEADERS],
    /// Time at which the location table forgets one of the two stations unless it receives them again.
    pub until: Time,
}

/// Path of other stations' packets to a station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Onward {
    /// MID of the destination.
    pub destination: MacAddress,
    /// Link-layer address of the next hop.
    pub next_hop: MacAddress,
    /// Destination position that packets must have, latitude and longitude in 0.1 microdegree, because greedy
    /// forwarding used it. `None` if the destination is a neighbour, so that the position does not matter.
    pub place: Option<(i32, i32)>,
    /// Position of the destination, if the fast path must correct packets with an older position (C.3).
    pub known: Option<ShortPositionVector>,
    /// Time at which the location table forgets one of the two stations, as in [`Way`].
    pub until: Time,
}

/// Summary of the packets that a fast path has received from one station since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Newest position vector of the station; its 24 octets in a recording.
    #[serde(with = "octets_of")]
    pub vector: LongPositionVector,
    /// The fast path received a packet directly from the station.
    pub direct: bool,
    /// Octets of the GeoNetworking packets.
    pub octets: usize,
    /// Last sequence numbers of the station, oldest first.
    pub sequences: Vec<u16>,
}

/// Work of a fast path since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Sequence number of the next own packet.
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
    pub samples: Vec<Sample>,
    /// Destinations of own packets.
    pub ways: Vec<MacAddress>,
    /// Destinations of forwarded packets.
    pub onwards: Vec<MacAddress>,
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
