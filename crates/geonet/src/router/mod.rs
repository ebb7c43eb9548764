//! The router: it receives, delivers, forwards and originates packets (clause 10.3).
//!
//! `receive` validates packets and learns from them; `own_packets` builds the packets of upper layers.
//! `forward` forwards a packet by the algorithms of [`crate::forwarding`]; `link_feedback` selects another
//! next hop if the link could not reach the first, and returns packets to an upper layer.
//! `location_service_and_beacons` has the Location Service, beacons and other timers. `fast_path_permissions`
//! lets a fast path send packets like those of this router. All of them use the state in this file.
//!
//! **Use.** Each `handle_*` takes the time and an input. The caller then calls [`Router::poll_output`] until
//! it returns `None` (asserted in debug builds), and [`Router::handle_timeout`] at the time that
//! [`Router::poll_timeout`] returns. The router sends nothing before the first position. The caller may
//! return buffers of sent frames with [`Router::recycle_buffer`]; then forwarding a packet allocates nothing.

mod fast_path_permissions;
mod forward;
mod link_feedback;
mod location_service_and_beacons;
mod own_packets;
mod receive;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time, TimerTable};
use carnet_wire::geonet::{GnAddress, LongPositionVector, Timestamp};

use crate::acceleration::{FastPathReport, OwnSequenceNumbers, SequenceNumbers};
use crate::forwarding::contention_based::{ContentionBuffer, PacketIdentity};
use crate::forwarding::greedy::{NextHopCache, RetainedNextHops};
use crate::forwarding::predictive::AnnouncedMovement;
use crate::geodesy::Position;
use crate::io::{Event, Output};
use crate::location_table::{EntrySlot, LocationTable, mid_key};
use crate::mib::NonAreaForwarding;
use crate::packet_buffer::PacketBuffer;
use crate::packet_rate::YieldingPacketShaper;
use crate::{GeonetDrop, MacAddress, Mib};
use fast_path_permissions::Acceleration;

/// Largest number of buffers that the router keeps for the next packets.
const MAX_POOLED_BUFFERS: usize = 256;
/// Number of stored own position vectors, by which the router recognises echoes of its own packets.
const MAX_OWN_POSITIONS: usize = 1024;
/// Largest number of stored identities of packets in perimeter mode.
const MAX_PERIMETER_PACKETS: usize = 256;
/// Shortest interval between two changes of the station's address because of conflicts, after an initial
/// burst.
const ADDRESS_CONFLICT_INTERVAL: Duration = Duration::from_secs(10);
/// Largest number of stations that the router remembers as unreachable.
const MAX_UNREACHABLE_STATIONS: usize = 64;
/// Time for which the router sends no packets directly to an unreachable station.
const UNREACHABLE_STATION_TIME: Duration = Duration::from_secs(1);
/// Largest number of packets under repetition.
const MAX_REPETITIONS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Beacon,
    LocationTable,
    Buffers,
    Search(u64),
    Contention(PacketIdentity),
    Repeat(u32),
    /// End of the validity of a neighbour's last beacon.
    Silence,
    /// The shaper may release an own packet (annex B.2).
    Shaper,
}

/// Counters of the router.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Frames received.
    pub received_frames: u64,
    /// Payloads delivered to the upper layer.
    pub delivered_payloads: u64,
    /// Packets of other stations forwarded.
    pub forwarded_packets: u64,
    /// Own packets passed to the link, beacons and repetitions included.
    pub sent_packets: u64,
    /// Beacons among the sent packets.
    pub sent_beacons: u64,
    /// Location Service requests among the sent packets.
    pub location_requests: u64,
    /// Location Service replies among the sent packets.
    pub location_replies: u64,
    /// Position vectors that the router did not store, because their time stamp is too far ahead of this
    /// station's clock.
    pub from_the_future: u64,
    /// Packets that entered perimeter mode at this station.
    pub perimeter_recoveries: u64,
    /// Frames to one station for which the link received no acknowledgement.
    pub unacknowledged_frames: u64,
    /// Number of frames without acknowledgement whose packets went to another next hop. Such a packet counts
    /// again in [`Counters::sent_packets`] or [`Counters::forwarded_packets`].
    pub rerouted_frames: u64,
    dropped: [u64; GeonetDrop::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            received_frames: 0,
            delivered_payloads: 0,
            forwarded_packets: 0,
            sent_packets: 0,
            sent_beacons: 0,
            location_requests: 0,
            location_replies: 0,
            from_the_future: 0,
            perimeter_recoveries: 0,
            unacknowledged_frames: 0,
            rerouted_frames: 0,
            dropped: [0; GeonetDrop::ALL.len()],
        }
    }
}

impl Counters {
    /// Returns the number of packets dropped for `reason`.
    pub fn dropped(&self, reason: GeonetDrop) -> u64 {
        self.dropped[reason as usize]
    }
}

/// Timestamp and coordinates of a sent position.
type OwnPosition = (Timestamp, i32, i32);

/// A GeoNetworking router. See the module documentation for how to drive it.
#[derive(Debug)]
pub struct Router {
    parameters: Mib,
    address: GnAddress,
    /// This station's position vector, EPV (8.2); `None` until the first position arrives.
    own_position_vector: Option<LongPositionVector>,
    /// Source of the sequence numbers (8.3).
    sequence_numbers: Box<dyn SequenceNumbers>,
    acceleration: Option<Box<Acceleration>>,
    location_table: LocationTable,
    next_hop_cache: NextHopCache,
    retained_next_hops: RetainedNextHops,
    /// Forwarding packet buffer of unicast packets (8.5).
    unicast_buffer: PacketBuffer,
    /// Forwarding packet buffer of broadcast packets (8.5).
    broadcast_buffer: PacketBuffer,
    contention_buffer: ContentionBuffer,
    running_searches: BTreeMap<u64, Box<location_service_and_beacons::LocationServiceSearch>>,
    repeated_packets: BTreeMap<u32, own_packets::RepeatedPacket>,
    next_repetition_number: u32,
    recent_own_positions: VecDeque<OwnPosition>,
    /// Timestamp of the last position and the time at which it arrived: together they give the station's
    /// clock.
    last_position_time: Option<(Timestamp, Time)>,
    /// Timestamp of the first position after the start. No packet of this router has an older timestamp.
    first_position_at: Option<Timestamp>,
    /// The planar subgraph, with the generation of the neighbours and the own position for which it was
    /// computed.
    planar_subgraph: Option<(u64, Position, Vec<EntrySlot>)>,
    /// Stations that the link layer recently could not reach, with the time of the failure. Only for
    /// prediction, which also sends packets to stations that are not neighbours.
    unreachable_stations: VecDeque<(u64, Time)>,
    /// Received packets in perimeter mode: source, SN, RHL.
    seen_perimeter_packets: VecDeque<(u64, u16, u8)>,
    /// Limits the changes of address, so that an attacker cannot cause a change with every frame.
    conflict_limiter: RateLimiter,
    last_beacon_at: Time,
    /// Time and speed of the last packet from the fastest neighbour.
    fastest_neighbour_speed: (Time, i16),
    /// Last computed beacon interval, and the speed and number of neighbours from which it was computed.
    beacon_interval_cache: Option<((i16, usize), (Duration, Duration))>,
    /// Movement that the last beacon announced; `Some` only if the station sends a beacon when it deviates
    /// from that movement.
    announced_movement: Option<AnnouncedMovement>,
    sent_beacon_count: u32,
    timers: TimerTable<Timer>,
    /// Whether the timer of the location table runs.
    is_table_timer_set: bool,
    /// Own packets that wait for the packet data rate (annex B.2).
    shaper: YieldingPacketShaper,
    /// Whether the router has reported to operators that a source exceeds the packet data rate.
    has_reported_data_rate: bool,
    outputs: VecDeque<Output>,
    free_buffers: Vec<Vec<u8>>,
    counters: Counters,
    rng: Rng,
}

impl Router {
    /// Creates a router with an empty location table and without a position. The MID of `address` is the
    /// link-layer address.
    pub fn new(mib: Mib, address: GnAddress, mut rng: Rng) -> Router {
        Router {
            address,
            own_position_vector: None,
            sequence_numbers: Box::new(OwnSequenceNumbers::default()),
            acceleration: None,
            location_table: LocationTable::new(rng.random_u64()),
            next_hop_cache: NextHopCache::default(),
            retained_next_hops: RetainedNextHops::default(),
            unicast_buffer: PacketBuffer::default(),
            broadcast_buffer: PacketBuffer::default(),
            contention_buffer: ContentionBuffer::new(rng.random_u64()),
            running_searches: BTreeMap::new(),
            repeated_packets: BTreeMap::new(),
            next_repetition_number: 0,
            recent_own_positions: VecDeque::with_capacity(MAX_OWN_POSITIONS),
            last_position_time: None,
            first_position_at: None,
            planar_subgraph: None,
            unreachable_stations: VecDeque::new(),
            seen_perimeter_packets: VecDeque::with_capacity(MAX_PERIMETER_PACKETS),
            conflict_limiter: RateLimiter::new(3, ADDRESS_CONFLICT_INTERVAL),
            last_beacon_at: Time::ZERO,
            fastest_neighbour_speed: (Time::ZERO, 0),
            beacon_interval_cache: None,
            announced_movement: None,
            sent_beacon_count: 0,
            timers: TimerTable::new(),
            is_table_timer_set: false,
            shaper: YieldingPacketShaper::default(),
            has_reported_data_rate: false,
            outputs: VecDeque::new(),
            free_buffers: Vec::new(),
            counters: Counters::default(),
            rng,
            parameters: mib,
        }
    }

    /// Returns the parameters of the router.
    pub fn mib(&self) -> &Mib {
        &self.parameters
    }

    /// Returns GN_ADDR of this station.
    pub fn address(&self) -> GnAddress {
        self.address
    }

    /// Returns EPV, the position vector of this station (8.2); `None` before the first position.
    pub fn position_vector(&self) -> Option<&LongPositionVector> {
        self.own_position_vector.as_ref()
    }

    /// Returns the location table.
    pub fn location_table(&self) -> &LocationTable {
        &self.location_table
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the octets in the unicast forwarding buffer, the broadcast forwarding buffer and the
    /// contention buffer.
    pub fn buffered_octets(&self) -> (usize, usize, usize) {
        (self.unicast_buffer.octets(), self.broadcast_buffer.octets(), self.contention_buffer.octets())
    }

    /// Returns the next action for the caller.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    /// Takes back the octets of a sent frame or delivered payload, so that the router can use their memory
    /// for the next packet.
    pub fn recycle_buffer(&mut self, mut octets: Vec<u8>) {
        if self.free_buffers.len() < MAX_POOLED_BUFFERS {
            octets.clear();
            self.free_buffers.push(octets);
        }
    }

    /// Sets a new address from management or from the security entity (10.2.1.3, 10.2.1.4). The location
    /// table becomes empty, the next sequence number is 0, and the router drops repetitions and waiting
    /// packets of the old address. Otherwise an observer could link the two pseudonyms.
    pub fn handle_address(&mut self, address: GnAddress) {
        self.set_address(address);
        self.location_table.clear();
        self.recent_own_positions.clear();
        self.sequence_numbers.restart_sequence();
    }

    /// Returns to the initial state, with `address`. Drops the location table, waiting packets and timers;
    /// the next sequence number is 0. Keeps parameters, counters and the last position.
    pub fn reset_to_initial(&mut self, now: Time, address: GnAddress) {
        self.assert_drained();
        let rng = Rng::new(self.rng.random_u64());
        let fresh = Router::new(self.parameters.clone(), address, rng);
        let old = std::mem::replace(self, fresh);
        (self.counters, self.free_buffers) = (old.counters, old.free_buffers);
        (self.sequence_numbers, self.acceleration) = (old.sequence_numbers, old.acceleration);
        self.sequence_numbers.restart_sequence();
        self.withdraw_permissions();
        if let Some(position) = old.own_position_vector {
            self.own_position_vector = Some(LongPositionVector { address, ..position });
            self.last_position_time = old.last_position_time;
            self.schedule_beacon(now, true);
        }
    }

    /// Withdraws all permissions of the fast path after a change of address or a reset.
    fn withdraw_permissions(&mut self) {
        let Some(acceleration) = &mut self.acceleration else { return };
        self.outputs.extend(acceleration.withdraw_permissions());
    }

    /// Changes the address and drops all packets with the old address: after a conflict the old address
    /// belongs to another station.
    fn set_address(&mut self, address: GnAddress) {
        self.address = address;
        self.withdraw_permissions();
        self.repeated_packets.clear();
        self.drop_own_packet();
        if let Some(position) = &mut self.own_position_vector {
            position.address = address;
        }
        if let Some(slot) = self.location_table.find_slot_of_station(Time::ZERO, mid_key(address)) {
            self.location_table.remove(slot);
        }
    }

    /// Handles a new position (10.2.2). Ignores the address in `position`; its field `accurate` is PAI.
    /// Without a GNSS fix, the caller passes the last position with `accurate: false`.
    ///
    /// # Errors
    ///
    /// [`GeonetDrop::AbsurdPosition`] for a position that is not on the globe.
    pub fn handle_position(&mut self, now: Time, position: LongPositionVector) -> Result<(), GeonetDrop> {
        self.assert_drained();
        if !position.is_on_globe() {
            return Err(GeonetDrop::AbsurdPosition);
        }
        self.first_position_at.get_or_insert(position.timestamp);
        // Without a GNSS fix the caller repeats the last position. Its timestamp must continue to age, so do
        // not store a new time for it.
        if self.last_position_time.is_none_or(|(last, _)| last != position.timestamp) {
            self.last_position_time = Some((position.timestamp, now));
        }
        let first = self
            .own_position_vector
            .replace(LongPositionVector { address: self.address, ..position })
            .is_none();
        self.schedule_beacon(now, first);
        fast_path_permissions::output_changed_permissions(self, now);
        Ok(())
    }

    /// Makes `numbers` the source of sequence numbers.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        self.sequence_numbers = numbers;
    }

    /// Starts a fast path without permissions. `hop_limit` is the hop limit of IPv6 packets; the default if
    /// `None`.
    pub fn start_fast_path(&mut self, hop_limit: Option<u8>) {
        if self.parameters.non_area_forwarding != NonAreaForwarding::Greedy {
            return;
        }
        self.acceleration = Some(Box::new(Acceleration::new(hop_limit)));
    }

    /// Stops the fast path. Its permissions end without further outputs.
    pub fn stop_fast_path(&mut self) {
        self.acceleration = None;
    }

    /// Returns whether the fast path has any permission; then the router expects reports.
    pub fn is_accelerated(&self) -> bool {
        self.acceleration.as_ref().is_some_and(|acceleration| !acceleration.has_no_permissions())
    }

    /// Handles a report of the fast path.
    pub fn handle_report(&mut self, now: Time, report: &FastPathReport) {
        self.assert_drained();
        fast_path_permissions::handle_report(self, now, report);
    }

    /// Returns this station's time (TST), computed from the timestamp of its last position; `None` until the
    /// first position arrives.
    pub(super) fn own_timestamp(&self, now: Time) -> Option<Timestamp> {
        let (timestamp, at) = self.last_position_time?;
        Some(timestamp.wrapping_add(now.saturating_since(at)))
    }

    /// Returns the position of this station. May be called only after the first position has arrived.
    fn own_coordinates(&self) -> Position {
        self.own_position_vector.map_or(Position::default(), |pv| Position::new(pv.latitude, pv.longitude))
    }

    /// Returns the link-layer address of this station.
    fn mac(&self) -> MacAddress {
        self.address.mid()
    }

    fn next_sequence_number(&mut self) -> u16 {
        self.sequence_numbers.next_sequence_index()
    }

    /// Returns an empty buffer, if possible a recycled one.
    fn take_buffer(&mut self) -> Vec<u8> {
        self.free_buffers.pop().unwrap_or_default()
    }

    fn count_drop(&mut self, reason: GeonetDrop) {
        self.counters.dropped[reason as usize] += 1;
    }

    fn push_event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn neighbour_mac(&self, slot: EntrySlot) -> MacAddress {
        self.location_table.entry(slot).mac()
    }

    /// Panics in debug builds if outputs are left, because the caller must take all of them before the next
    /// input.
    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "the caller must call poll_output until it returns None");
    }
}
