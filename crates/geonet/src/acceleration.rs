//! Interface between a router and a fast path.
//!
//! A fast path (programs in the kernel) sends, delivers and forwards GeoUnicast packets like those that the
//! router has handled shortly before. So most packets of a flow never reach the router. The fast path makes
//! no decisions: [`Accelerate`] says what it may do, and each such message replaces the one before. Every
//! other packet takes the slow path. The fast path reports its work in a [`Report`] about ten times a second.
//! From it the router learns what the packets would have taught it: position vectors, sequence numbers,
//! packet data rates, and which stations are in use.
//!
//! Both draw sequence numbers (8.3) from one [`SequenceNumbers`]; a fast path brings one that it shares.

use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{LongPositionVector, ShortPositionVector};
use serde::{Deserialize, Serialize};

use crate::MacAddress;

/// Octets of the headers of a GUC (9.2 to 9.8.2).
pub const HEADERS: usize = 60;

/// How long something unused stays with the fast path.
pub const IDLE: Duration = Duration::from_secs(5);

/// Where the sequence numbers of own packets come from (8.3).
pub trait SequenceNumbers: std::fmt::Debug + Send {
    /// The next one.
    fn next(&mut self) -> u16;
    /// The one after this is 0: the station has begun anew, or has another address.
    fn restart(&mut self);
    /// In a recording, the fast path of that time had drawn those before `next`.
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

/// Permission for a fast path, valid from now on.
#[derive(Debug, Clone, PartialEq)]
pub enum Accelerate {
    /// Own packets bear this position vector. Without one the last of which is a few hundred milliseconds old
    /// at most, it does nothing: the router is not there to correct it.
    Position(LongPositionVector),
    /// Own IPv6 packets to a station go this way.
    Way(Box<Way>),
    /// They no longer do.
    NoWay(MacAddress),
    /// Packets of others to a station go this way.
    Onward(Box<Onward>),
    /// They no longer do.
    NoOnward(MacAddress),
    /// Packets of this station may be taken, save these duplicates: the last of its sequence numbers.
    Source(MacAddress, Vec<u16>),
    /// No longer.
    NoSource(MacAddress),
}

/// How own IPv6 packets get to a station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// MID of the destination.
    pub destination: MacAddress,
    /// Link-layer address of the next hop.
    pub next_hop: MacAddress,
    /// The headers as the router would write them; SN, PL and the source's position vector are to be filled
    /// in.
    pub headers: [u8; HEADERS],
    /// Until when the location table will know both stations without further news.
    pub until: Time,
}

/// How packets of others get to a station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Onward {
    /// MID of the destination.
    pub destination: MacAddress,
    /// Link-layer address of the next hop.
    pub next_hop: MacAddress,
    /// Where packets have to say that the destination is, latitude and longitude in 0.1 microdegree: greedy
    /// forwarding went by that. `None`: it does not matter, for the destination is a neighbour.
    pub place: Option<(i32, i32)>,
    /// Where the destination is, if packets that know it less well shall be corrected (C.3).
    pub known: Option<ShortPositionVector>,
    /// As in [`Way`].
    pub until: Time,
}

/// Packets that a fast path has received from one station since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Its newest position vector; its 24 octets in a recording.
    #[serde(with = "octets_of")]
    pub vector: LongPositionVector,
    /// Whether a packet came from it directly.
    pub direct: bool,
    /// Octets of GeoNetworking packets.
    pub octets: usize,
    /// The last sequence numbers, oldest first.
    pub sequences: Vec<u16>,
}

/// Work of a fast path since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// The sequence number of the next own packet.
    pub next_sequence: u16,
    /// Own packets sent.
    pub sent: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets forwarded.
    pub forwarded: u64,
    /// Duplicates dropped.
    pub duplicates: u64,
    /// Whom it has heard.
    pub samples: Vec<Sample>,
    /// Destinations to which own packets went.
    pub ways: Vec<MacAddress>,
    /// Destinations to which packets of others went.
    pub onwards: Vec<MacAddress>,
}

/// A position vector as its octets, in hexadecimal.
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
