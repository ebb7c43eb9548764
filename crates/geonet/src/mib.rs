//! The parameters of the router: the MIB of EN 302 636-4-1 annex H, and the parameters of carnet's
//! extensions.

use std::time::Duration;

/// Algorithm for the next hop of unicast packets, and of area packets outside their area
/// (`itsGnNonAreaForwardingAlgorithm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NonAreaForwarding {
    /// Greedy (E.2): the next hop is the neighbour nearest to the destination. The value "unspecified" (0)
    /// also means greedy.
    #[default]
    Greedy,
    /// Contention-based (E.3): the station broadcasts, and the receiver with the most progress repeats the
    /// packet first.
    ContentionBased,
}

/// Algorithm for packets inside their area (`itsGnAreaForwardingAlgorithm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AreaForwarding {
    /// Simple (F.2): every station repeats the packet once. The value "unspecified" (0) also means simple.
    Simple,
    /// Contention-based (F.3): the farthest receiver repeats the packet, and stations that receive the
    /// repetition do not.
    #[default]
    ContentionBased,
    /// Advanced (F.4): a next hop forwards at once, other stations repeat by contention if it fails, and
    /// sectors limit repetitions.
    Advanced,
}

/// Rule for a station outside of the area that does not know whether the sender is inside (annex D).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownSender {
    /// V1.4.1: the station uses the non-area forwarding algorithm.
    #[default]
    NonAreaForwarding,
    /// V1.2.1 and V1.3.1 (annex E in these versions): the station broadcasts at once.
    Broadcast,
}

/// Method by which the station gets its address (`itsGnLocalAddrConfMethod`, 10.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressConfiguration {
    /// Derived from the link-layer address, with duplicate address detection (10.2.1.2).
    #[default]
    Auto,
    /// Set by management (10.2.1.3).
    Managed,
    /// Set by the security entity, as a pseudonym (10.2.1.4).
    Anonymous,
}

/// Action of the router if greedy forwarding finds no neighbour closer to the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VoidRecovery {
    /// The action of the standard: buffer or broadcast the packet.
    #[default]
    None,
    /// GPSR's perimeter mode: the packet goes around the void along a planar graph; a carnet extension, see
    /// `forwarding::perimeter`.
    Perimeter(Planarisation),
}

/// Planar subgraph of the neighbours that perimeter recovery uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planarisation {
    /// Gabriel graph: no neighbour lies inside the circle over a link. The graph has more links and shorter
    /// paths.
    #[default]
    Gabriel,
    /// Relative neighbourhood graph: keeps a link if no neighbour is nearer to both of its ends than they are
    /// to each other.
    RelativeNeighbourhood,
}

/// Interval of beacons (10.2.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BeaconInterval {
    /// Fixed as in the standard: `itsGnBeaconServiceRetransmitTimer` plus up to
    /// `itsGnBeaconServiceMaxJitter`.
    Fixed,
    /// Adaptive: R / (k speed) between the bounds, as in "TCP over Geo-routing for High Mobility". Many
    /// neighbours make the interval longer.
    Adaptive {
        /// k: number of beacons while a neighbour stays in range; 16 in the paper.
        k: f64,
        /// Shortest interval; 0.1 s in the paper.
        shortest: Duration,
        /// Longest interval; 2 s in the paper.
        longest: Duration,
        /// Beacons per second that all stations in range together may send; infinity for no limit. The limit
        /// may make the interval longer than `longest`.
        load_limit: f64,
    },
}

impl BeaconInterval {
    /// The adaptive interval with the paper's values and a limit of 500 beacons per second.
    pub const ADAPTIVE: BeaconInterval = BeaconInterval::Adaptive {
        k: 16.0,
        shortest: Duration::from_millis(100),
        longest: Duration::from_secs(2),
        load_limit: 500.0,
    };
}

/// Parameters of next hops by predicted positions; a carnet extension, see `forwarding::predictive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// Minimum remaining lifetime of the link to a next hop, predicted from positions and speeds.
    pub link_lifetime: Duration,
}

/// Multi-hop beacons, which save Location Service requests; a carnet extension.
///
/// The station sends every `every`-th beacon as a topologically scoped broadcast without payload. All
/// stations forward this packet and learn the station's position from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiHopBeacons {
    /// Hop limit of the beacon.
    pub hop_limit: u8,
    /// Number of beacons from one multi-hop beacon to the next.
    pub beacon_period: u32,
}

/// The parameters of the router. [`Mib::default`] has the values of the standard.
#[derive(Debug, Clone, PartialEq)]
pub struct Mib {
    /// Method of address configuration (`itsGnLocalAddrConfMethod`).
    pub address_configuration: AddressConfiguration,
    /// `itsGnIsMobile`: the station may move.
    pub is_mobile: bool,
    /// Largest payload, octets (`itsGnMaxSduSize`).
    pub max_sdu_size: usize,
    /// `itsGnLifetimeLocTE`: lifetime of a location table entry.
    pub lifetime_location_entry: Duration,
    /// Time without a packet after which a station is no longer a neighbour. At most
    /// `lifetime_location_entry`, which is the standard's value. Not in the standard: a vehicle leaves the
    /// radio range long before its position becomes useless.
    pub lifetime_neighbour: Duration,
    /// Largest number of retransmissions of a Location Service request (`itsGnLocationServiceMaxRetrans`).
    pub location_service_max_retransmissions: u32,
    /// Interval of Location Service requests (`itsGnLocationServiceRetransmitTimer`).
    pub location_service_retransmit_timer: Duration,
    /// Size of the Location Service packet buffer, octets per sought station
    /// (`itsGnLocationServicePacketBufferSize`).
    pub location_service_buffer_size: usize,
    /// Largest number of stations that the Location Service seeks at once; not in the standard.
    pub location_service_max_pending: usize,
    /// Fixed beacon interval (`itsGnBeaconServiceRetransmitTimer`).
    pub beacon_retransmit_timer: Duration,
    /// Largest random part of the beacon interval (`itsGnBeaconServiceMaxJitter`).
    pub beacon_max_jitter: Duration,
    /// Fixed or adaptive beacons.
    pub beacon_interval: BeaconInterval,
    /// Whether adaptive beacons take the speed of the fastest neighbour if it is faster than this station.
    /// The time for which two stations stay in range depends on both speeds. Not in the standard.
    pub uses_fastest_neighbour_speed: bool,
    /// Distance in metres between the present position and the position that the last beacon predicts. Above
    /// this distance the station sends a beacon at once, for example after a turn. Not in the standard.
    pub max_beacon_deviation: Option<f64>,
    /// Validity of a beacon in beacon intervals, announced in its lifetime (LT). After that time without a
    /// beacon, the station is no longer a neighbour. Not in the standard, where the lifetime of a beacon has
    /// no meaning.
    pub beacon_lifetime: Option<u32>,
    /// Beacons over several hops.
    pub multi_hop_beacons: Option<MultiHopBeacons>,
    /// Whether any broadcast of an own packet counts as a beacon, and any packet directly from its source
    /// makes the source a neighbour. In the standard only SHB has both effects. Set the parameter in all
    /// stations or in none.
    pub is_piggybacking_on: bool,
    /// Hop limit of packets whose request gives none (`itsGnDefaultHopLimit`).
    pub default_hop_limit: u8,
    /// Length of the duplicate packet list, up to 16 (`itsGnDPLLength`).
    pub duplicate_packet_list_length: usize,
    /// Longest lifetime of a packet (`itsGnMaxPacketLifetime`).
    pub max_packet_lifetime: Duration,
    /// Lifetime of packets whose request gives none (`itsGnDefaultPacketLifetime`).
    pub default_packet_lifetime: Duration,
    /// Largest packet data rate of a source or sender, octets per second (`itsGnMaxPacketDataRate`). With
    /// `None` the router forwards without limit.
    pub max_packet_data_rate: Option<u32>,
    /// `itsGnMaxPacketDataRateEmaBeta`, 0 to 1: weight of the previous average.
    pub packet_data_rate_beta: f32,
    /// Largest size of an area, square metres (`itsGnMaxGeoAreaSize`).
    pub max_area_size: f64,
    /// Shortest repetition interval (`itsGnMinPacketRepetitionInterval`).
    pub min_repetition_interval: Duration,
    /// Algorithm outside the destination area (`itsGnNonAreaForwardingAlgorithm`).
    pub non_area_forwarding: NonAreaForwarding,
    /// Algorithm inside the destination area (`itsGnAreaForwardingAlgorithm`).
    pub area_forwarding: AreaForwarding,
    /// Action of a station outside of the area if it does not know whether the sender is inside.
    pub unknown_sender: UnknownSender,
    /// Action if greedy forwarding fails at a void.
    pub recovery: VoidRecovery,
    /// Next hops by predicted positions; `None` to use received positions.
    pub prediction: Option<Prediction>,
    /// Time for which the router keeps a next hop after a better neighbour appears, so that packets of a flow
    /// do not overtake each other. With zero the router always takes the best neighbour. Not in the standard.
    pub next_hop_hold: Duration,
    /// Shortest contention timer (`itsGnCbfMinTime`).
    pub cbf_min_time: Duration,
    /// Longest contention timer (`itsGnCbfMaxTime`).
    pub cbf_max_time: Duration,
    /// Radio range, metres (`itsGnDefaultMaxCommunicationRange`).
    pub max_communication_range: f64,
    /// Half angle of the contention sector, degrees (`itsGnBroadcastCBFDefSectorAngle`).
    pub sector_angle: f64,
    /// MAX_COUNTER of F.4: number of received copies that ends the contention.
    pub advanced_max_counter: u32,
    /// Size of the unicast forwarding buffer, octets (`itsGnUcForwardingPacketBufferSize`).
    pub unicast_buffer_size: usize,
    /// Size of the broadcast forwarding buffer, octets (`itsGnBcForwardingPacketBufferSize`).
    pub broadcast_buffer_size: usize,
    /// Size of the contention buffer, octets (`itsGnCbfPacketBufferSize`).
    pub cbf_buffer_size: usize,
    /// Largest number of neighbours in the location table; not in the standard.
    pub max_neighbours: usize,
    /// Largest number of other stations in the location table; not in the standard.
    pub max_other_stations: usize,
}

impl Mib {
    /// Returns the shortest time that may pass between two beacons, whatever causes the second one.
    pub(crate) fn shortest_beacon_interval(&self) -> Duration {
        match self.beacon_interval {
            BeaconInterval::Fixed => self.beacon_retransmit_timer,
            BeaconInterval::Adaptive { shortest, .. } => shortest,
        }
    }
}

impl Default for Mib {
    fn default() -> Self {
        Mib {
            address_configuration: AddressConfiguration::Auto,
            is_mobile: true,
            max_sdu_size: 1398,
            lifetime_location_entry: Duration::from_secs(20),
            lifetime_neighbour: Duration::from_secs(20),
            location_service_max_retransmissions: 10,
            location_service_retransmit_timer: Duration::from_secs(1),
            location_service_buffer_size: 1024,
            location_service_max_pending: 256,
            beacon_retransmit_timer: Duration::from_secs(3),
            beacon_max_jitter: Duration::from_millis(750),
            beacon_interval: BeaconInterval::Fixed,
            uses_fastest_neighbour_speed: false,
            max_beacon_deviation: None,
            beacon_lifetime: None,
            multi_hop_beacons: None,
            is_piggybacking_on: false,
            default_hop_limit: 10,
            duplicate_packet_list_length: 8,
            max_packet_lifetime: Duration::from_secs(600),
            default_packet_lifetime: Duration::from_secs(60),
            max_packet_data_rate: Some(100_000),
            packet_data_rate_beta: 0.9,
            max_area_size: 10e6,
            min_repetition_interval: Duration::from_millis(100),
            non_area_forwarding: NonAreaForwarding::default(),
            area_forwarding: AreaForwarding::default(),
            unknown_sender: UnknownSender::default(),
            recovery: VoidRecovery::None,
            prediction: None,
            next_hop_hold: Duration::ZERO,
            cbf_min_time: Duration::from_millis(1),
            cbf_max_time: Duration::from_millis(100),
            max_communication_range: 1000.0,
            sector_angle: 30.0,
            advanced_max_counter: 3,
            unicast_buffer_size: 256_000,
            broadcast_buffer_size: 1_024_000,
            cbf_buffer_size: 256_000,
            max_neighbours: 16_384,
            max_other_stations: 16_384,
        }
    }
}
