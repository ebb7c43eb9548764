//! The parameters of the router: the MIB of EN 302 636-4-1 annex H, and what carnet adds to it.

use std::time::Duration;

/// How unicast packets, and area packets outside of their area, find their next hop
/// (`itsGnNonAreaForwardingAlgorithm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NonAreaForwarding {
    /// Greedy (E.2): to the neighbour that is nearest to the destination. Also what "unspecified" (0) means.
    #[default]
    Greedy,
    /// Contention-based (E.3): broadcast, and the receiver with the most progress is the fastest to repeat
    /// it.
    ContentionBased,
}

/// How a packet spreads inside of its area (`itsGnAreaForwardingAlgorithm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AreaForwarding {
    /// Simple (F.2): everybody repeats it once. Also what "unspecified" (0) means.
    Simple,
    /// Contention-based (F.3): the farthest receiver repeats it, those who hear that keep quiet.
    #[default]
    ContentionBased,
    /// Advanced (F.4): a chosen next hop at once, contention as a fallback, sectors.
    Advanced,
}

/// Rule for a station outside of the area that does not know whether the sender is inside (annex D).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownSender {
    /// V1.4.1: it goes on with the non-area algorithm.
    #[default]
    NonAreaForwarding,
    /// V1.2.1 and V1.3.1 (annex E there): it broadcasts at once.
    Broadcast,
}

/// How the station came by its address (`itsGnLocalAddrConfMethod`, 10.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressConfiguration {
    /// From the link-layer address, with duplicate address detection (10.2.1.2).
    #[default]
    Auto,
    /// By management (10.2.1.3).
    Managed,
    /// By the security entity, as a pseudonym (10.2.1.4).
    Anonymous,
}

/// Action if greedy forwarding finds no neighbour closer to the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// As in the standard: buffer the packet, or broadcast it.
    #[default]
    None,
    /// Around the void along a planar subgraph; a carnet extension, see `forwarding::perimeter`.
    Perimeter(Planarisation),
}

/// Which planar subgraph of the neighbours perimeter recovery walks along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planarisation {
    /// Gabriel graph: no neighbour inside the circle over the link. More links, shorter ways.
    #[default]
    Gabriel,
    /// Relative neighbourhood graph: no neighbour nearer to both ends than they are to each other.
    RelativeNeighbourhood,
}

/// When beacons are sent (10.2.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BeaconInterval {
    /// As in the standard: `itsGnBeaconServiceRetransmitTimer` plus up to `itsGnBeaconServiceMaxJitter`.
    Fixed,
    /// Faster with speed: R / (k speed) between the bounds, as in "TCP over Geo-routing for High Mobility",
    /// and slower in company.
    Adaptive {
        /// k: beacons while a neighbour stays in range; the paper takes 16.
        k: f64,
        /// The shortest interval; the paper takes 0.1 s.
        shortest: Duration,
        /// The longest interval; the paper takes 2 s.
        longest: Duration,
        /// Beacons per second that all stations in range together may send; infinity for no limit. Goes over
        /// `longest` where it has to.
        load_limit: f64,
    },
}

impl BeaconInterval {
    /// The adaptive interval with the paper's numbers and 500 beacons per second together.
    pub const ADAPTIVE: BeaconInterval = BeaconInterval::Adaptive {
        k: 16.0,
        shortest: Duration::from_millis(100),
        longest: Duration::from_secs(2),
        load_limit: 500.0,
    };
}

/// Next hops by where neighbours are by now; a carnet extension, see `forwarding::predictive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// How long the link to a next hop has to last still, as far as positions and speeds tell.
    pub link_lifetime: Duration,
}

/// Beacons over several hops, to spare the Location Service; a carnet extension.
///
/// Every `every`-th beacon goes out as a topologically scoped broadcast without payload, which any station
/// forwards and learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiHopBeacons {
    /// Hops that it may go.
    pub hops: u8,
    /// Number of beacons of which one goes over several hops.
    pub every: u32,
}

/// The parameters. [`Mib::default`] has the standard's values.
#[derive(Debug, Clone, PartialEq)]
pub struct Mib {
    /// `itsGnLocalAddrConfMethod`.
    pub address_configuration: AddressConfiguration,
    /// `itsGnIsMobile`: the station may move.
    pub is_mobile: bool,
    /// `itsGnMaxSduSize`, octets.
    pub max_sdu_size: usize,
    /// `itsGnLifetimeLocTE`: how long a position is believed.
    pub lifetime_location_entry: Duration,
    /// How long a neighbour counts as one without being heard; at most `lifetime_location_entry`, which is
    /// the standard's value. Not in the standard: a vehicle is out of range long before its position is
    /// worthless.
    pub lifetime_neighbour: Duration,
    /// `itsGnLocationServiceMaxRetrans`.
    pub location_service_max_retransmissions: u32,
    /// `itsGnLocationServiceRetransmitTimer`.
    pub location_service_retransmit_timer: Duration,
    /// `itsGnLocationServicePacketBufferSize`, octets per sought station.
    pub location_service_buffer_size: usize,
    /// Stations that may be sought at once; not in the standard.
    pub location_service_max_pending: usize,
    /// `itsGnBeaconServiceRetransmitTimer`.
    pub beacon_retransmit_timer: Duration,
    /// `itsGnBeaconServiceMaxJitter`.
    pub beacon_max_jitter: Duration,
    /// Fixed or adaptive beacons.
    pub beacon_interval: BeaconInterval,
    /// With adaptive beacons: the speed that counts is that of the fastest neighbour where this station is
    /// slower. How long two stations stay in range is a matter of both. Not in the standard.
    pub beacon_company_speed: bool,
    /// Distance in metres between the station and the place that its last beacon predicts, at which it sends
    /// a beacon at once. Such a distance arises when it turns or brakes. Not in the standard.
    pub beacon_deviation: Option<f64>,
    /// Validity of a beacon in beacon intervals, announced in its lifetime (LT). A station without a beacon
    /// for that time stops being a neighbour. Not in the standard, where the lifetime of a beacon has no
    /// meaning.
    pub beacon_lifetime: Option<u32>,
    /// Beacons over several hops.
    pub multi_hop_beacons: Option<MultiHopBeacons>,
    /// Whether any broadcast of an own packet counts as a beacon, and a packet that comes from its source
    /// directly makes the source a neighbour. In the standard only SHB does. To be switched on everywhere or
    /// nowhere.
    pub piggyback: bool,
    /// `itsGnDefaultHopLimit`.
    pub default_hop_limit: u8,
    /// `itsGnDPLLength`, up to 16.
    pub duplicate_packet_list_length: usize,
    /// `itsGnMaxPacketLifetime`.
    pub max_packet_lifetime: Duration,
    /// `itsGnDefaultPacketLifetime`.
    pub default_packet_lifetime: Duration,
    /// `itsGnMaxPacketDataRate` in octets per second; `None` forwards without limit.
    pub max_packet_data_rate: Option<u32>,
    /// `itsGnMaxPacketDataRateEmaBeta`, 0 to 1: the weight of the past.
    pub packet_data_rate_beta: f32,
    /// `itsGnMaxGeoAreaSize` in square metres.
    pub max_area_size: f64,
    /// `itsGnMinPacketRepetitionInterval`.
    pub min_repetition_interval: Duration,
    /// `itsGnNonAreaForwardingAlgorithm`.
    pub non_area_forwarding: NonAreaForwarding,
    /// `itsGnAreaForwardingAlgorithm`.
    pub area_forwarding: AreaForwarding,
    /// Action of a station outside of the area if it does not know whether the sender is inside.
    pub unknown_sender: UnknownSender,
    /// Around voids, or not.
    pub recovery: Recovery,
    /// By where neighbours are, or by where they were.
    pub prediction: Option<Prediction>,
    /// Time for which a next hop is kept although a better one appeared, so that packets of a flow do not
    /// overtake each other. With zero the router always takes the best one. Not in the standard.
    pub next_hop_hold: Duration,
    /// `itsGnCbfMinTime`.
    pub cbf_min_time: Duration,
    /// `itsGnCbfMaxTime`.
    pub cbf_max_time: Duration,
    /// `itsGnDefaultMaxCommunicationRange`, metres.
    pub max_communication_range: f64,
    /// `itsGnBroadcastCBFDefSectorAngle`, degrees.
    pub sector_angle: f64,
    /// MAX_COUNTER of F.4: number of received copies that ends the contention.
    pub advanced_max_counter: u32,
    /// `itsGnUcForwardingPacketBufferSize`, octets.
    pub unicast_buffer_size: usize,
    /// `itsGnBcForwardingPacketBufferSize`, octets.
    pub broadcast_buffer_size: usize,
    /// `itsGnCbfPacketBufferSize`, octets.
    pub cbf_buffer_size: usize,
    /// Neighbours that the location table holds; not in the standard.
    pub max_neighbours: usize,
    /// Other stations that the location table holds; not in the standard.
    pub max_other_stations: usize,
}

impl Mib {
    /// The least time between two beacons, whatever asks for the second one.
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
            beacon_company_speed: false,
            beacon_deviation: None,
            beacon_lifetime: None,
            multi_hop_beacons: None,
            piggyback: false,
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
            recovery: Recovery::None,
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
