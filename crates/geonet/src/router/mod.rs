//! The router: it receives, delivers, forwards and originates packets (clause 10.3).
//!
//! `receive` validates packets and learns from them; `source` builds the packets of upper layers. `forward`
//! forwards a packet by the algorithms of [`crate::forwarding`]; `feedback` selects another next hop if the
//! link could not reach the first, and returns packets to an upper layer. `service` has the Location
//! Service, beacons and other timers. `accelerate` lets a fast path send packets like those of this router.
//! All of them use the state in this file.
//!
//! **Use.** Each `handle_*` takes the time and an input. The caller then calls [`Router::poll_output`] until
//! it returns `None` (asserted in debug builds), and [`Router::handle_timeout`] at the time that
//! [`Router::poll_timeout`] returns. The router sends nothing before the first position. The caller may
//! return buffers of sent frames with [`Router::recycle`]; then forwarding a packet allocates nothing.

mod accelerate;
mod feedback;
mod forward;
mod receive;
mod service;
mod source;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time, TimerTable};
use carnet_wire::geonet::{GnAddress, LongPositionVector, Timestamp};

use crate::acceleration::{FastPathReport, OwnSequenceNumbers, SequenceNumbers};
use crate::buffers::PacketBuffer;
use crate::forwarding::contention_based::{ContentionBuffer, Identity};
use crate::forwarding::greedy::{NextHopCache, RetainedNextHops};
use crate::forwarding::predictive::AnnouncedMovement;
use crate::geodesy::Position;
use crate::io::{Event, Output};
use crate::location_table::{LocationTable, Slot, mid_key};
use crate::mib::NonAreaForwarding;
use crate::packet_rate::Shaper;
use crate::{GeonetDrop, MacAddress, Mib};
use accelerate::Acceleration;

/// Largest number of buffers that the router keeps for the next packets.
const MAX_POOLED_BUFFERS: usize = 256;
/// Number of stored own position vectors, by which the router recognises echoes of its own packets.
const MAX_OWN_POSITIONS: usize = 1024;
/// Number of stored packets in perimeter mode.
const MAX_PERIMETER_PACKETS: usize = 256;
/// Shortest interval between two changes of the station's address, after a burst of conflicts.
const CONFLICT_INTERVAL: Duration = Duration::from_secs(10);
/// Largest number of stations that the router remembers as unreachable. The next constant is the time for
/// which it sends no packets to them.
const MAX_UNREACHABLE_STATIONS: usize = 64;
const UNREACHABLE_TIME: Duration = Duration::from_secs(1);
/// Largest number of packets under repetition.
const MAX_REPETITIONS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Beacon,
    LocationTable,
    Buffers,
    Search(u64),
    Contention(Identity),
    Repeat(u32),
    /// The last beacon of a neighbour is no longer valid.
    Silence,
    /// The shaper may release an own packet (annex B.2).
    Shaper,
}

/// Counters of the router.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Payloads delivered to the upper layer.
    pub delivered: u64,
    /// Packets of other stations forwarded.
    pub forwarded: u64,
    /// Own packets passed to the link, beacons and repetitions included.
    pub sent: u64,
    /// Beacons among the sent packets.
    pub beacons: u64,
    /// Location Service requests among the sent packets.
    pub location_requests: u64,
    /// Location Service replies among the sent packets.
    pub location_replies: u64,
    /// Position vectors that the router did not store, because their time stamp is ahead of this station's
    /// clock.
    pub from_the_future: u64,
    /// Packets that entered perimeter mode at this station.
    pub recoveries: u64,
    /// Frames to one station for which the link received no acknowledgement.
    pub unacknowledged: u64,
    /// Number of frames without acknowledgement whose packets went to another next hop. Such a packet counts
    /// again in `sent` or `forwarded`.
    pub rerouted: u64,
    dropped: [u64; GeonetDrop::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            received: 0,
            delivered: 0,
            forwarded: 0,
            sent: 0,
            beacons: 0,
            location_requests: 0,
            location_replies: 0,
            from_the_future: 0,
            recoveries: 0,
            unacknowledged: 0,
            rerouted: 0,
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
    mib: Mib,
    address: GnAddress,
    /// This station's position vector, EPV (8.2); `None` until the first position arrives.
    position: Option<LongPositionVector>,
    /// Source of the sequence numbers (8.3).
    sequence_numbers: Box<dyn SequenceNumbers>,
    acceleration: Option<Box<Acceleration>>,
    table: LocationTable,
    next_hops: NextHopCache,
    held_next_hops: RetainedNextHops,
    /// Forwarding packet buffer of unicast packets (8.5).
    unicast_buffer: PacketBuffer,
    /// Forwarding packet buffer of broadcast packets (8.5).
    broadcast_buffer: PacketBuffer,
    contention: ContentionBuffer,
    searches: BTreeMap<u64, Box<service::LocationServiceSearch>>,
    repetitions: BTreeMap<u32, source::RepeatedPacket>,
    next_repetition: u32,
    own_positions: VecDeque<OwnPosition>,
    /// Timestamp of the last position and the time at which it arrived: together they give the station's
    /// clock.
    clock: Option<(Timestamp, Time)>,
    /// Timestamp of the first position. Packets of this router have no older timestamp.
    first_position: Option<Timestamp>,
    /// The planar subgraph, with the generation of the neighbours and the own position for which it was
    /// computed.
    planar: Option<(u64, Position, Vec<Slot>)>,
    /// Stations that the link layer recently could not reach, with the time of the failure. Only for
    /// prediction, which also sends packets to stations that are not neighbours.
    unreachable_stations: VecDeque<(u64, Time)>,
    /// Received packets in perimeter mode: source, SN, RHL.
    walks: VecDeque<(u64, u16, u8)>,
    /// Limits the changes of address, so that an attacker cannot cause a change with every frame.
    conflicts: RateLimiter,
    last_beacon: Time,
    /// Time and speed of the last packet from the fastest neighbour.
    fastest_neighbour: (Time, i16),
    /// Last computed beacon interval, and the speed and number of neighbours from which it was computed.
    interval: Option<((i16, usize), (Duration, Duration))>,
    /// Movement that the last beacon announced; `Some` only if the station sends a beacon when it deviates
    /// from it.
    announced_movement: Option<AnnouncedMovement>,
    beacons_sent: u32,
    timers: TimerTable<Timer>,
    /// Whether the timer of the location table runs.
    table_timer: bool,
    /// Own packets that wait for the packet data rate (annex B.2).
    shaper: Shaper,
    /// Whether the router has reported to operators that a source exceeds the packet data rate.
    told_of_data_rate: bool,
    outputs: VecDeque<Output>,
    pool: Vec<Vec<u8>>,
    counters: Counters,
    rng: Rng,
}

impl Router {
    /// Creates a router with an empty location table and without a position. The MID of `address` is the
    /// link-layer address.
    pub fn new(mib: Mib, address: GnAddress, mut rng: Rng) -> Router {
        Router {
            address,
            position: None,
            sequence_numbers: Box::new(OwnSequenceNumbers::default()),
            acceleration: None,
            table: LocationTable::new(rng.u64()),
            next_hops: NextHopCache::default(),
            held_next_hops: RetainedNextHops::default(),
            unicast_buffer: PacketBuffer::default(),
            broadcast_buffer: PacketBuffer::default(),
            contention: ContentionBuffer::new(rng.u64()),
            searches: BTreeMap::new(),
            repetitions: BTreeMap::new(),
            next_repetition: 0,
            own_positions: VecDeque::with_capacity(MAX_OWN_POSITIONS),
            clock: None,
            first_position: None,
            planar: None,
            unreachable_stations: VecDeque::new(),
            walks: VecDeque::with_capacity(MAX_PERIMETER_PACKETS),
            conflicts: RateLimiter::new(3, CONFLICT_INTERVAL),
            last_beacon: Time::ZERO,
            fastest_neighbour: (Time::ZERO, 0),
            interval: None,
            announced_movement: None,
            beacons_sent: 0,
            timers: TimerTable::new(),
            table_timer: false,
            shaper: Shaper::default(),
            told_of_data_rate: false,
            outputs: VecDeque::new(),
            pool: Vec::new(),
            counters: Counters::default(),
            rng,
            mib,
        }
    }

    /// Returns the parameters of the router.
    pub fn mib(&self) -> &Mib {
        &self.mib
    }

    /// Returns GN_ADDR of this station.
    pub fn address(&self) -> GnAddress {
        self.address
    }

    /// Returns EPV, the position vector of this station (8.2); `None` before the first position.
    pub fn position_vector(&self) -> Option<&LongPositionVector> {
        self.position.as_ref()
    }

    /// Returns the location table.
    pub fn location_table(&self) -> &LocationTable {
        &self.table
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the octets in the unicast forwarding buffer, the broadcast forwarding buffer and the
    /// contention buffer.
    pub fn buffered_octets(&self) -> (usize, usize, usize) {
        (self.unicast_buffer.octets(), self.broadcast_buffer.octets(), self.contention.octets())
    }

    /// Returns the next action for the caller.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    /// Accepts the octets of a sent frame or delivered payload, whose memory the router uses again.
    pub fn recycle(&mut self, mut octets: Vec<u8>) {
        if self.pool.len() < MAX_POOLED_BUFFERS {
            octets.clear();
            self.pool.push(octets);
        }
    }

    /// Sets a new address from management or from the security entity (10.2.1.3, 10.2.1.4). The location
    /// table becomes empty, the next sequence number is 0, and the router drops repetitions and waiting
    /// packets of the old address. Otherwise an observer could link the two pseudonyms.
    pub fn handle_address(&mut self, address: GnAddress) {
        self.set_address(address);
        self.table.clear();
        self.own_positions.clear();
        self.sequence_numbers.restart();
    }

    /// Returns to the initial state, with `address`. Drops the location table, waiting packets and timers;
    /// the next sequence number is 0. Keeps parameters, counters and the last position.
    pub fn reset(&mut self, now: Time, address: GnAddress) {
        self.assert_drained();
        let rng = Rng::new(self.rng.u64());
        let fresh = Router::new(self.mib.clone(), address, rng);
        let old = std::mem::replace(self, fresh);
        (self.counters, self.pool) = (old.counters, old.pool);
        (self.sequence_numbers, self.acceleration) = (old.sequence_numbers, old.acceleration);
        self.sequence_numbers.restart();
        self.withdraw_permissions();
        if let Some(position) = old.position {
            self.position = Some(LongPositionVector { address, ..position });
            self.clock = old.clock;
            self.schedule_beacon(now, true);
        }
    }

    /// Withdraws all permissions of the fast path after a change of address or a reset.
    fn withdraw_permissions(&mut self) {
        let Some(acceleration) = &mut self.acceleration else { return };
        self.outputs.extend(acceleration.withdraw());
    }

    /// Changes the address and drops all packets with the old address. After a conflict that address belongs
    /// to another station.
    fn set_address(&mut self, address: GnAddress) {
        self.address = address;
        self.withdraw_permissions();
        self.repetitions.clear();
        self.drop_own_packet();
        if let Some(position) = &mut self.position {
            position.address = address;
        }
        if let Some(slot) = self.table.find(Time::ZERO, mid_key(address)) {
            self.table.remove(slot);
        }
    }

    /// Handles a new position (10.2.2). Ignores the address in `position`; `accurate` is PAI. Without a GNSS
    /// fix, the caller passes the last position with `accurate: false`.
    ///
    /// # Errors
    ///
    /// [`GeonetDrop::AbsurdPosition`] for a position that is not on the globe.
    pub fn handle_position(&mut self, now: Time, position: LongPositionVector) -> Result<(), GeonetDrop> {
        self.assert_drained();
        if !position.is_on_globe() {
            return Err(GeonetDrop::AbsurdPosition);
        }
        self.first_position.get_or_insert(position.timestamp);
        // Without a GNSS fix the caller repeats the last position. Its timestamp must continue to age, so do
        // not store a new time for it.
        if self.clock.is_none_or(|(last, _)| last != position.timestamp) {
            self.clock = Some((position.timestamp, now));
        }
        let first = self.position.replace(LongPositionVector { address: self.address, ..position }).is_none();
        self.schedule_beacon(now, first);
        accelerate::update(self, now);
        Ok(())
    }

    /// Makes `numbers` the source of sequence numbers.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        self.sequence_numbers = numbers;
    }

    /// Starts a fast path without permissions. `hop_limit` is the hop limit of IPv6 packets; the default if
    /// `None`.
    pub fn accelerate(&mut self, hop_limit: Option<u8>) {
        if self.mib.non_area_forwarding != NonAreaForwarding::Greedy {
            return;
        }
        self.acceleration = Some(Box::new(Acceleration::new(hop_limit)));
    }

    /// Stops the fast path. Its permissions end without further outputs.
    pub fn decelerate(&mut self) {
        self.acceleration = None;
    }

    /// Returns whether the fast path has any permission; then the router expects reports.
    pub fn is_accelerated(&self) -> bool {
        self.acceleration.as_ref().is_some_and(|acceleration| !acceleration.is_idle())
    }

    /// Handles a report of the fast path.
    pub fn handle_report(&mut self, now: Time, report: &FastPathReport) {
        self.assert_drained();
        accelerate::handle_report(self, now, report);
    }

    /// Returns this station's time (TST), which the position vectors define; `None` until the first position
    /// arrives.
    pub(super) fn clock(&self, now: Time) -> Option<Timestamp> {
        let (timestamp, at) = self.clock?;
        Some(timestamp.wrapping_add(now.saturating_since(at)))
    }

    /// Returns the position of this station. May be called only after the first position has arrived.
    fn own_coordinates(&self) -> Position {
        self.position.map_or(Position::default(), |pv| Position::new(pv.latitude, pv.longitude))
    }

    /// Returns the link-layer address of this station.
    fn mac(&self) -> MacAddress {
        self.address.mid()
    }

    fn sequence(&mut self) -> u16 {
        self.sequence_numbers.next()
    }

    /// Returns an empty buffer.
    fn buffer(&mut self) -> Vec<u8> {
        self.pool.pop().unwrap_or_default()
    }

    fn count_drop(&mut self, reason: GeonetDrop) {
        self.counters.dropped[reason as usize] += 1;
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn neighbour_mac(&self, slot: Slot) -> MacAddress {
        self.table.entry(slot).mac()
    }

    /// Panics in debug builds if outputs are left, because the caller must take all of them before the next
    /// input.
    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "the caller must call poll_output until it returns None");
    }
}
