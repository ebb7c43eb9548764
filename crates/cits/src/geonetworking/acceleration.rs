//! Messages between the GeoNetworking router and a fast path, as serde types; see
//! `carnet_geonet::acceleration`.

use carnet_base::{Time, hex};
use carnet_geonet::MacAddress;
pub use carnet_geonet::acceleration::{FastPathReport, PERMISSION_IDLE_TIME, SequenceNumbers, SourceReport};
use serde::{Deserialize, Serialize};

/// Change of the state that the router gives the fast path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerate {
    /// Values that hold for all packets. The router sends them again with every [`FastPathReport`]. Without
    /// these values for some time, the fast path handles no packets.
    General(GeneralState),
    /// Next hop of this station's IPv6 packets to another station.
    Way(OwnPacketPath),
    /// The fast path must not send this station's packets to this destination.
    NoWay(MacAddress),
    /// Next hop of packets that this station forwards to another station.
    Onward(ForwardingPath),
    /// The fast path must not forward packets to this destination.
    NoOnward(MacAddress),
    /// The fast path may accept packets of this station.
    Source {
        /// MID of the station.
        station: MacAddress,
        /// Recent sequence numbers of the station: a packet with one of them is a duplicate.
        sequences: Vec<u16>,
    },
    /// The fast path must not accept packets of this source.
    NoSource(MacAddress),
}

/// Values that hold for all packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneralState {
    /// Position vector (LPV) of this station's packets (9.5.2), 24 octets.
    #[serde(with = "hex")]
    pub vector: Vec<u8>,
    /// Whether the fast path may deliver packets to the host: the station has one virtual interface and no
    /// reordering buffer.
    pub delivers: bool,
    /// Octets of the longest IPv6 packet; 0 without IPv6.
    pub mtu: u32,
    /// Value of `itsGnDPLLength`: sequence numbers remembered for each source.
    pub duplicate_packet_list_length: u32,
}

/// Next hop and headers of this station's IPv6 packets to another station.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnPacketPath {
    /// MID of the destination.
    pub destination: MacAddress,
    /// Link-layer address of the next hop.
    pub next_hop: MacAddress,
    /// Headers of the packets, 60 octets. The fast path fills in SN, PL and the source's position vector.
    #[serde(with = "hex")]
    pub headers: Vec<u8>,
    /// Time until which the next hop is valid without an update.
    pub until: Time,
}

/// Next hop of packets that this station forwards to another station.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardingPath {
    /// MID of the destination.
    pub destination: MacAddress,
    /// Link-layer address of the next hop.
    pub next_hop: MacAddress,
    /// Position (latitude, longitude) of the destination that a packet must contain; `None` if any position
    /// will do.
    pub place: Option<(i32, i32)>,
    /// Position vector (SPV) of the destination, 20 octets. If a packet contains an older vector, the fast
    /// path replaces it by this one (C.3). The field is empty if the fast path shall not change packets.
    #[serde(with = "hex")]
    pub known: Vec<u8>,
    /// Time until which the next hop is valid without an update.
    pub until: Time,
}
