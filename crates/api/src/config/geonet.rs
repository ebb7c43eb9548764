//! `[geonet]` of the config file: the GeoNetworking router.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv6Net;

use super::mib::Mib;
use crate::address::MacAddress;

pub use crate::model::AreaShape;

/// `[geonet]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geonet {
    /// Where frames go to and come from.
    pub interface: GeonetInterface,
    /// What kind of station it is; part of its address.
    pub station_type: StationType,
    /// Where its address comes from.
    pub address: GeonetAddress,
    /// Whether the interface gets the link-layer address that the station's address has.
    pub set_link_address: bool,
    /// Where its position comes from.
    pub position: PositionSource,
    /// IPv6 over GeoNetworking, if there shall be any.
    pub ipv6: Option<Ipv6>,
    /// Straight ways to the mobile networks of vehicles in radio range, if these are sought.
    pub mnpp: Option<Mnpp>,
    /// Multicast between the mobile network and IPv6 over GeoNetworking, if there shall be any.
    pub multicast: Option<Multicast>,
    /// Congestion control, if there shall be any.
    pub dcc: Option<Dcc>,
    /// How packets find their way.
    pub forwarding: Forwarding,
    /// When beacons are sent.
    pub beacon: Beacon,
    /// How far the radio reaches, in metres (`itsGnDefaultMaxCommunicationRange`).
    pub range_m: u16,
    /// The version of EN 302 636-4-1 whose rules hold where versions differ.
    pub standard: Standard,
    /// The parameters of the standard that have no key here.
    pub mib: Mib,
    /// The areas that have a name, in the order of the file.
    pub areas: Vec<Area>,
}

/// `geonet.interface`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GeonetInterface {
    /// Frames of EtherType 0x8947 on this network interface.
    Frames(String),
    /// Frames in UDP datagrams.
    Udp(UdpLink),
}

/// Frames in UDP datagrams: `udp:ADDRESS[,PEER...]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpLink {
    /// Where datagrams arrive: an own address, or a multicast group to which they also go.
    pub local: SocketAddr,
    /// The interface of a multicast group, by name: what stands behind `%`. A numeric scope is in `local`.
    pub interface: Option<String>,
    /// To whom datagrams go; empty for a multicast group, and for nothing else.
    pub peers: Vec<SocketAddr>,
}

impl GeonetInterface {
    /// The name of the network interface, if it is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            GeonetInterface::Frames(name) => Some(name),
            GeonetInterface::Udp(_) => None,
        }
    }
}

/// `geonet.station_type`: the numbers are those of TS 102 894-2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum StationType {
    /// `unknown`
    #[default]
    Unknown = 0,
    /// `pedestrian`
    Pedestrian = 1,
    /// `cyclist`
    Cyclist = 2,
    /// `moped`
    Moped = 3,
    /// `motorcycle`
    Motorcycle = 4,
    /// `passenger_car`
    PassengerCar = 5,
    /// `bus`
    Bus = 6,
    /// `light_truck`
    LightTruck = 7,
    /// `heavy_truck`
    HeavyTruck = 8,
    /// `trailer`
    Trailer = 9,
    /// `special_vehicle`
    SpecialVehicle = 10,
    /// `tram`
    Tram = 11,
    /// `road_side_unit`
    RoadSideUnit = 15,
}

impl StationType {
    /// All of them, with their names in the config file.
    pub const NAMES: [(&str, StationType); 13] = [
        ("unknown", StationType::Unknown),
        ("pedestrian", StationType::Pedestrian),
        ("cyclist", StationType::Cyclist),
        ("moped", StationType::Moped),
        ("motorcycle", StationType::Motorcycle),
        ("passenger_car", StationType::PassengerCar),
        ("bus", StationType::Bus),
        ("light_truck", StationType::LightTruck),
        ("heavy_truck", StationType::HeavyTruck),
        ("trailer", StationType::Trailer),
        ("special_vehicle", StationType::SpecialVehicle),
        ("tram", StationType::Tram),
        ("road_side_unit", StationType::RoadSideUnit),
    ];

    /// Its number in an address.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// `geonet.address` (`itsGnLocalAddrConfMethod`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GeonetAddress {
    /// From the link-layer address of the interface; changed when another station has it.
    #[default]
    Auto,
    /// From this link-layer address.
    Managed(MacAddress),
    /// A random one, new at each start.
    Anonymous,
}

/// `geonet.position`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PositionSource {
    /// A gpsd.
    Gpsd {
        /// Its host: a name, or an address without brackets.
        host: String,
        /// Its port, 2947 unless given.
        port: u16,
        /// The only one of its receivers that counts, by its path.
        device: Option<String>,
    },
    /// The station stays there.
    Fixed(Coordinates),
    /// The station moves as the file says; a relative path has been joined to the config file's directory.
    Trace(PathBuf),
}

/// A place on the globe (WGS 84), in the units of the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coordinates {
    /// 0.1 microdegree, north positive.
    pub latitude: i32,
    /// 0.1 microdegree, east positive.
    pub longitude: i32,
}

impl Coordinates {
    /// Latitude and longitude in degrees.
    pub fn degrees(self) -> (f64, f64) {
        (f64::from(self.latitude) / 1e7, f64::from(self.longitude) / 1e7)
    }
}

/// `geonet.ipv6_interface` and `geonet.ipv6`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6 {
    /// The interface to everybody within some hops.
    pub interface: String,
    /// The interface where packets to areas without one come out.
    pub dynamic_interface: Option<String>,
    /// So many interfaces may be made because of Router Advertisements.
    pub learnt_links: u8,
    /// Hops that packets go; `mib.default_hop_limit` if `None`.
    pub hop_limit: Option<u8>,
    /// How long a packet that has overtaken others may wait for them.
    pub reorder_wait: Duration,
    /// Which packets have, by their hops.
    pub reorder_rule: ReorderRule,
    /// What waits.
    pub reorder_hold: ReorderHold,
    /// Octets that wait at the radio from which on packets leave with Congestion Experienced.
    pub congestion_mark: Option<u32>,
    /// Packets that the radio does not carry are cut, for stations that can put them together.
    pub fragments: bool,
}

/// `geonet.ipv6.reorder_rule`: which packets that leave numbers out wait for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReorderRule {
    /// Those that came over fewer hops than the one before.
    #[default]
    Shorter,
    /// Those that came over another number of hops.
    Changed,
    /// All.
    Always,
}

/// `geonet.ipv6.reorder_hold`: what waits when packets have overtaken others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReorderHold {
    /// They do themselves.
    #[default]
    Packets,
    /// The host's duplicate acknowledgements.
    Acknowledgements,
}

/// `geonet.mnpp`: Mobile Network Prefix Provisioning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mnpp {
    /// Whose word is taken for a prefix.
    pub authorization: Authorization,
    /// The least length of a prefix that is taken.
    pub shortest_prefix: u8,
    /// Hops that announcements go, and packets to those who are met.
    pub hops: u8,
    /// The longest time between announcements while there are neighbours.
    pub interval: Duration,
}

/// `geonet.mnpp.authorization`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authorization {
    /// That of the prefix owner's home agent.
    #[default]
    HomeAgent,
    /// Anybody's.
    None,
}

/// `geonet.multicast`: an MLD proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multicast {
    /// Interfaces of the mobile network, at least one.
    pub lan: Vec<String>,
    /// Whether groups without an area go out as well.
    pub unmapped: bool,
    /// MLD's Robustness Variable, 1 to 7.
    pub robustness: u8,
    /// MLD's Query Interval.
    pub query_interval: Duration,
    /// MLD's Query Response Interval, shorter than that.
    pub query_response_interval: Duration,
}

/// `geonet.forwarding`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Towards a station, or towards an area from outside.
    pub unicast: UnicastForwarding,
    /// Inside of an area.
    pub area: AreaForwarding,
    /// Where greedy forwarding finds nobody nearer.
    pub recovery: Recovery,
    /// How long the link to a next hop has to last by where both are and how they move; `None` looks at where
    /// they were, as the standard has it.
    pub link_lifetime: Option<Duration>,
}

/// `geonet.forwarding.unicast` (`itsGnNonAreaForwardingAlgorithm`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnicastForwarding {
    /// Greedy (EN 302 636-4-1 E.2).
    #[default]
    Greedy,
    /// Contention-based (E.3).
    ContentionBased,
}

/// `geonet.forwarding.area` (`itsGnAreaForwardingAlgorithm`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AreaForwarding {
    /// Simple (F.2).
    Simple,
    /// Contention-based (F.3).
    #[default]
    ContentionBased,
    /// Advanced (F.4).
    Advanced,
}

/// `geonet.forwarding.recovery`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Recovery {
    /// None; the packet is buffered or broadcast, as the standard has it.
    #[default]
    None,
    /// GPSR's perimeter mode, an extension of the standard.
    Gpsr(Planarisation),
}

/// `geonet.forwarding.planarisation`: the planar subgraph of the neighbours that perimeter mode walks along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Planarisation {
    /// Gabriel graph.
    #[default]
    Gabriel,
    /// Relative neighbourhood graph.
    RelativeNeighbourhood,
}

/// `geonet.dcc`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dcc {
    /// How the gate is controlled.
    pub algorithm: DccAlgorithm,
    /// Which table of the standard holds for reactive control.
    pub time_on_air: DccTimeOnAir,
    /// Mbit/s of the radio.
    pub data_rate: u8,
    /// Packets of each priority that wait at most.
    pub queue_length: u16,
    /// How busy the channel is while nobody tells, percent.
    pub assumed_busy: u8,
}

/// `geonet.dcc.algorithm`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DccAlgorithm {
    /// A time between packets for every range of the busy ratio.
    #[default]
    Reactive,
    /// A share of the channel (LIMERIC).
    Adaptive,
}

/// `geonet.dcc.time_on_air`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DccTimeOnAir {
    /// Up to 1 ms: table A.1.
    #[default]
    Millisecond,
    /// Up to 500 us: table A.2.
    Half,
}

/// `geonet.beacon`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beacon {
    /// How often.
    pub interval: BeaconInterval,
    /// Whether the speed of the fastest neighbour counts where it is higher.
    pub company_speed: bool,
    /// Metres by which others may be wrong about where the station is before it sends a beacon at once.
    pub deviation_m: Option<u16>,
    /// Intervals for which a beacon counts; `None` where beacons do not say.
    pub lifetime: Option<u8>,
    /// Whether any own broadcast counts as a beacon.
    pub piggyback: bool,
    /// Beacons that go further than one hop.
    pub multi_hop: Option<MultiHopBeacons>,
}

/// How often beacons are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeaconInterval {
    /// As in the standard.
    Fixed {
        /// `itsGnBeaconServiceRetransmitTimer`
        interval: Duration,
        /// `itsGnBeaconServiceMaxJitter`
        jitter: Duration,
    },
    /// Faster with speed: `range` / (`beacons_in_range` * speed).
    Adaptive {
        /// Beacons while a station crosses the range.
        beacons_in_range: u32,
        /// The shortest interval.
        shortest: Duration,
        /// The longest interval.
        longest: Duration,
        /// Beacons per second that all stations in range together may send; `None` for no limit.
        load_limit: Option<u32>,
    },
}

/// Beacons over several hops, an extension of the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiHopBeacons {
    /// Hops that they go, above 1.
    pub hops: u8,
    /// One beacon in so many.
    pub every: u32,
}

/// `geonet.standard`: a version of EN 302 636-4-1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standard {
    /// V1.4.1: a station outside of an area that does not know where the sender is goes on with the unicast
    /// algorithm.
    #[default]
    V1_4_1,
    /// V1.2.1 and V1.3.1: it broadcasts the packet at once.
    V1_3_1,
}

/// `[[geonet.area]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Its name; no two are the same.
    pub name: String,
    /// Its shape.
    pub shape: AreaShape,
    /// Its centre.
    pub center: Coordinates,
    /// Metres from the centre to the edge: the radius; or along the angle. Above 0.
    pub distance_a_m: u16,
    /// Metres from the centre to the edge across the angle, above 0; 0 for a circle.
    pub distance_b_m: u16,
    /// Degrees clockwise from North, 0 to 359; 0 for a circle.
    pub angle_deg: u16,
    /// The IPv6 multicast group of everybody inside.
    pub group: Option<Ipv6Addr>,
    /// The IPv6 subnet of the area.
    pub prefix: Option<Ipv6Net>,
    /// The interface to everybody inside.
    pub ipv6_interface: Option<String>,
}
