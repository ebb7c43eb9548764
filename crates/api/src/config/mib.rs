//! `[geonet.mib]`: the parameters of the GeoNetworking router that have no key of their own elsewhere
//! (EN 302 636-4-1 annex H), and what carnet adds to them.

use std::time::Duration;

/// `[geonet.mib]`, with the standard's values as the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mib {
    /// `itsGnIsMobile`; `None` for what fits the position: a fixed one does not move.
    pub is_mobile: Option<bool>,
    /// `itsGnMaxSduSize`, octets.
    pub max_sdu_size: u32,
    /// `itsGnLifetimeLocTE`
    pub lifetime_location_entry: Duration,
    /// How long a neighbour is one without being heard, at most `lifetime_location_entry`.
    pub lifetime_neighbour: Duration,
    /// `itsGnLocationServiceMaxRetrans`
    pub location_service_max_retransmissions: u32,
    /// `itsGnLocationServiceRetransmitTimer`
    pub location_service_retransmit_timer: Duration,
    /// `itsGnLocationServicePacketBufferSize`, octets.
    pub location_service_buffer_size: u32,
    /// Stations that may be sought at once.
    pub location_service_max_pending: u32,
    /// `itsGnDefaultHopLimit`
    pub default_hop_limit: u8,
    /// `itsGnDPLLength`
    pub duplicate_packet_list_length: u32,
    /// `itsGnMaxPacketLifetime`
    pub max_packet_lifetime: Duration,
    /// `itsGnDefaultPacketLifetime`
    pub default_packet_lifetime: Duration,
    /// `itsGnMaxPacketDataRate`, kilobytes per second; `None` for no limit.
    pub max_packet_data_rate: Option<u32>,
    /// `itsGnMaxPacketDataRateEmaBeta`, percent.
    pub packet_data_rate_beta: u8,
    /// `itsGnMaxGeoAreaSize`, square kilometres.
    pub max_area_size: u32,
    /// `itsGnMinPacketRepetitionInterval`
    pub min_repetition_interval: Duration,
    /// How long a next hop is kept although a better one appeared.
    pub next_hop_hold: Duration,
    /// `itsGnCbfMinTime`
    pub cbf_min_time: Duration,
    /// `itsGnCbfMaxTime`, not below `cbf_min_time`.
    pub cbf_max_time: Duration,
    /// `itsGnBroadcastCBFDefSectorAngle`, degrees.
    pub sector_angle: u32,
    /// MAX_COUNTER of F.4.
    pub advanced_max_counter: u32,
    /// `itsGnUcForwardingPacketBufferSize`, octets.
    pub unicast_buffer_size: u32,
    /// `itsGnBcForwardingPacketBufferSize`, octets.
    pub broadcast_buffer_size: u32,
    /// `itsGnCbfPacketBufferSize`, octets.
    pub cbf_buffer_size: u32,
    /// Neighbours that the location table holds.
    pub max_neighbours: u32,
    /// Other stations that the location table holds.
    pub max_other_stations: u32,
    /// `itsGnPaiInterval`, metres.
    pub pai_interval_m: u16,
    /// `itsGnMinUpdateFrequencyLPV`: the longest time from one update of the own position to the next.
    pub position_update_interval: Duration,
}

impl Default for Mib {
    fn default() -> Mib {
        Mib {
            is_mobile: None,
            max_sdu_size: 1398,
            lifetime_location_entry: Duration::from_secs(20),
            lifetime_neighbour: Duration::from_secs(20),
            location_service_max_retransmissions: 10,
            location_service_retransmit_timer: Duration::from_secs(1),
            location_service_buffer_size: 1024,
            location_service_max_pending: 256,
            default_hop_limit: 10,
            duplicate_packet_list_length: 8,
            max_packet_lifetime: Duration::from_secs(600),
            default_packet_lifetime: Duration::from_secs(60),
            max_packet_data_rate: Some(100),
            packet_data_rate_beta: 90,
            max_area_size: 10,
            min_repetition_interval: Duration::from_millis(100),
            next_hop_hold: Duration::ZERO,
            cbf_min_time: Duration::from_millis(1),
            cbf_max_time: Duration::from_millis(100),
            sector_angle: 30,
            advanced_max_counter: 3,
            unicast_buffer_size: 256_000,
            broadcast_buffer_size: 1_024_000,
            cbf_buffer_size: 256_000,
            max_neighbours: 16_384,
            max_other_stations: 16_384,
            pai_interval_m: 80,
            position_update_interval: Duration::from_secs(1),
        }
    }
}
