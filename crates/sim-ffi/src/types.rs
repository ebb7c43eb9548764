//! The types of the C interface.

/// What `carnet_sim_abi_version` says for this header.
pub const CARNET_SIM_ABI_VERSION: u32 = 1;
/// What `carnet_sim_deadline` says where nothing is due.
pub const CARNET_SIM_NEVER: u64 = u64::MAX;

/// How a call went.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarnetSimStatus {
    /// Done; of `carnet_sim_poll_output`: there is an output.
    Done = 0,
    /// There is no output (any more).
    Empty = 1,
    /// A pointer is null that must not be, or a value does not exist.
    BadArgument = 2,
    /// `carnet_sim_poll_output` has not said yet that nothing is left.
    NotDrained = 3,
    /// The time is before that of an earlier call.
    TimeRunsBackwards = 4,
    /// The station refuses the input.
    Refused = 5,
    /// The station has panicked, now or before. It can only be freed.
    Panicked = 6,
}

/// What a station is made of.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimOptions {
    /// Text of the config file, UTF-8, without a zero at its end.
    pub config: *const u8,
    /// Its octets.
    pub config_length: usize,
    /// Path of a recording, UTF-8; null for none.
    pub record: *const u8,
    /// Its octets.
    pub record_length: usize,
    /// GN address; 0 for a station without GeoNetworking.
    pub gn_address: u64,
    /// What all randomness of the station comes from.
    pub seed: u64,
    /// Nanoseconds since the simulation began.
    pub now: u64,
    /// The date then, nanoseconds since 1970 (UTC).
    pub wall: u64,
}

/// Where a node is, in the units of EN 302 636-4-1 9.5.2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimPosition {
    /// TAI milliseconds since 2004-01-01, modulo 2^32.
    pub timestamp: u32,
    /// Tenths of a microdegree, north positive.
    pub latitude: i32,
    /// Tenths of a microdegree, east positive.
    pub longitude: i32,
    /// Centimetres per second.
    pub speed: i16,
    /// Tenths of a degree clockwise from North.
    pub heading: u16,
    /// PAI: the position is accurate.
    pub accurate: bool,
}

/// An IPv6 address of the host.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimAddress {
    /// The address, in network order.
    pub address: [u8; 16],
    /// Bits of its prefix.
    pub prefix_length: u8,
}

/// How a payload travels.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarnetSimTransport {
    /// To a station: `destination`.
    GeoUnicast = 0,
    /// To all in the circle of `radius` around `latitude`, `longitude`.
    GeoBroadcast = 1,
    /// To anybody in the circle.
    GeoAnycast = 2,
    /// To all within `hop_limit` hops.
    TopologicallyScoped = 3,
    /// To all in range; a beacon is spared.
    SingleHop = 4,
}

/// A payload to be sent (GN-DATA.request).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimRequest {
    /// How it travels: a `CarnetSimTransport`.
    pub transport: u32,
    /// GN address for `GeoUnicast`.
    pub destination: u64,
    /// Centre of the circle, tenths of a microdegree.
    pub latitude: i32,
    /// Centre of the circle, tenths of a microdegree.
    pub longitude: i32,
    /// Radius of the circle, metres.
    pub radius: u16,
    /// NH of the Common Header: 0 any, 1 BTP-A, 2 BTP-B, 3 IPv6.
    pub next_header: u8,
    /// Hops that it may go; 0 for the default.
    pub hop_limit: u8,
    /// Milliseconds that it may be on its way; 0 for the default.
    pub lifetime_ms: u64,
    /// Whether it may wait for a neighbour (SCF).
    pub store: bool,
}

/// What an output is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarnetSimOutputKind {
    /// A frame of EtherType 0x8947 for the radio: `source`, `destination`, the octets behind the EtherType.
    Frame = 0,
    /// A frame for the host: `link`, `source`, `destination`, `ether_type`, the octets behind it.
    HostFrame = 1,
    /// A payload that came over GeoNetworking for whoever listens: `station`, `next_header`, `hops`, the
    /// payload.
    Delivered = 2,
    /// An IPv6 packet that the tunnel device gives to the host's routing.
    Packet = 3,
    /// Anything else, as JSON like in the answer of `carnet replay`.
    Other = 4,
}

/// An output of a station.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimOutput {
    /// What it is.
    pub kind: CarnetSimOutputKind,
    /// The virtual interface.
    pub link: u32,
    /// GN address of the station that sent a payload; 0 where that is not known.
    pub station: u64,
    /// Link-layer source.
    pub source: [u8; 6],
    /// Link-layer destination.
    pub destination: [u8; 6],
    /// EtherType of a frame for the host.
    pub ether_type: u16,
    /// NH of a payload.
    pub next_header: u8,
    /// Hops that a payload, or an IPv6 packet, has gone; 0 where that is not known.
    pub hops: u8,
    /// Its octets, there until the next call for this station.
    pub octets: *const u8,
    /// How many.
    pub length: usize,
}
