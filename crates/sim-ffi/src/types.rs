//! The types of the C interface.

/// Version of this header, to compare with `carnet_sim_abi_version`.
pub const CARNET_SIM_ABI_VERSION: u32 = 1;
/// Result of `carnet_sim_deadline` if no timer runs.
pub const CARNET_SIM_NEVER: u64 = u64::MAX;

/// Result of a call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarnetSimStatus {
    /// The call succeeded; `carnet_sim_poll_output` has written an output.
    Done = 0,
    /// There is no further output.
    Empty = 1,
    /// A pointer is null where null is not allowed, or a value is not one of its enumeration.
    BadArgument = 2,
    /// The caller has not called `carnet_sim_poll_output` until it returned `Empty`.
    NotDrained = 3,
    /// The time is before the time of an earlier call.
    TimeRunsBackwards = 4,
    /// The station refuses the input; `carnet_sim_last_error` has the reason.
    Refused = 5,
    /// The station has panicked in this call or before. The caller can only free it.
    Panicked = 6,
}

/// Options of a new station.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimOptions {
    /// Text of the config file, UTF-8, without a terminating zero.
    pub config: *const u8,
    /// Length of the text in octets.
    pub config_length: usize,
    /// Path of a recording, UTF-8; null for no recording.
    pub record: *const u8,
    /// Length of the path in octets.
    pub record_length: usize,
    /// GN address; 0 for a station without GeoNetworking.
    pub gn_address: u64,
    /// Seed of all random numbers of the station.
    pub seed: u64,
    /// Nanoseconds since the simulation began.
    pub now: u64,
    /// Date at `now`, nanoseconds since 1970 (UTC).
    pub wall: u64,
}

/// Position of a node, in the units of EN 302 636-4-1 9.5.2.
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
    /// Position accuracy indicator (PAI).
    pub accurate: bool,
}

/// An IPv6 address of the host.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimAddress {
    /// The address, in network order.
    pub address: [u8; 16],
    /// Prefix length in bits.
    pub prefix_length: u8,
}

/// Transport of a payload.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarnetSimTransport {
    /// To a station: `destination`.
    GeoUnicast = 0,
    /// To all stations in the circle of `radius` around `latitude`, `longitude`.
    GeoBroadcast = 1,
    /// To any one station in the circle.
    GeoAnycast = 2,
    /// To all stations within `hop_limit` hops.
    TopologicallyScoped = 3,
    /// To all stations in range; it replaces a beacon.
    SingleHop = 4,
}

/// A payload to send (GN-DATA.request).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimRequest {
    /// A `CarnetSimTransport`.
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
    /// Hop limit; 0 for the default.
    pub hop_limit: u8,
    /// Lifetime in milliseconds; 0 for the default.
    pub lifetime_ms: u64,
    /// Whether the packet may wait for a neighbour (SCF).
    pub store: bool,
}

/// Kind of an output.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarnetSimOutputKind {
    /// A frame of EtherType 0x8947 for the radio: `source`, `destination`, the octets behind the EtherType.
    Frame = 0,
    /// A frame for the host: `link`, `source`, `destination`, `ether_type`, the octets behind it.
    HostFrame = 1,
    /// A payload received over GeoNetworking, for its receiver: `station`, `next_header`, `hops`, the
    /// payload.
    Delivered = 2,
    /// An IPv6 packet from the tunnel device, for the host's routing.
    Packet = 3,
    /// Any other output, as JSON like in the answer of `carnet replay`.
    Other = 4,
}

/// An output of a station.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CarnetSimOutput {
    /// Kind of the output.
    pub kind: CarnetSimOutputKind,
    /// Virtual interface of a frame for the host.
    pub link: u32,
    /// GN address of the station that sent a payload; 0 if unknown.
    pub station: u64,
    /// Link-layer source of a frame.
    pub source: [u8; 6],
    /// Link-layer destination of a frame.
    pub destination: [u8; 6],
    /// EtherType of a frame for the host.
    pub ether_type: u16,
    /// NH of a payload.
    pub next_header: u8,
    /// Hops that a payload, or an IPv6 packet, has taken; 0 if unknown.
    pub hops: u8,
    /// Octets of the output, valid until the next call for this station.
    pub octets: *const u8,
    /// Number of octets of the output.
    pub length: usize,
}
