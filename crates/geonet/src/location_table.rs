//! The location table (clause 8.1): positions of stations, which of them are neighbours, and duplicate
//! detection of their packets.
//!
//! Entries are in one array. A hash table finds them by the MID of their GN address. The hash has a random
//! seed, so that an attacker cannot choose addresses that collide. The key is the MID and not the whole
//! address, because the link layer and the IPv6 adaptation know only the MID.
//!
//! *Position vectors.* Only a newer vector replaces an older one (C.2). Without signatures any sender can
//! claim that its vector is newer. A vector is implausible if its time stamp is ahead of this station's clock
//! by more than [`MAX_AHEAD`]. An implausible vector never replaces a plausible one. A plausible vector
//! always replaces an implausible one, so a forged vector from the future does not block the true ones. If
//! the entry has no plausible vector, the table accepts an implausible one. Otherwise a station with a wrong
//! clock would accept no vector.
//!
//! *Neighbours* (IS_NEIGHBOUR): single-hop packets make their source a neighbour (10.3.6.3, 10.3.10.3),
//! forwarded packets do not. The spatial index contains the neighbours.
//!
//! **Bounds.** Neighbours and other stations have separate room, so that packets from far away cannot replace
//! neighbours. Each kind has two queues: stations received once, and established stations. A new station in a
//! full table replaces the oldest station received once. An established neighbour leaves the table only when
//! its lifetime ends. A flood of fabricated stations therefore replaces only its own entries. An entry takes
//! at most 256 octets, with its share of all indexes ([`ENTRY_OCTETS`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{GnAddress, LongPositionVector, Timestamp};

use crate::duplicates::DuplicatePacketList;
use crate::geodesy::Position;
use crate::packet_rate::PacketRate;
use crate::spatial_index::SpatialIndex;
use crate::{GeonetDrop, MacAddress, Mib};

const NONE: u32 = u32::MAX;

/// Largest lead of a position vector's time stamp over this station's clock. The value is one second more
/// than the leap seconds since 2004, which some stations omit.
pub const MAX_AHEAD: Duration = Duration::from_secs(Timestamp::LEAP_SECONDS as u64 + 1);

/// Largest memory in octets that one station needs: its entry, its item in the spatial index and its slot in
/// the hash table.
pub const ENTRY_OCTETS: usize = size_of::<Entry>() + SpatialIndex::ITEM_OCTETS + 2 * size_of::<(u64, u32)>();

/// Index of an entry; it stays valid until the table removes the entry.
pub type Slot = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other = 0,
    Neighbour = 2,
}

/// A location table entry.
#[derive(Debug, Clone)]
pub struct Entry {
    position_vector: LongPositionVector,
    /// Time at which the entry expires (T(LocTE)) and the table removes it.
    expires: Time,
    /// Time of the last packet of the station, direct or forwarded.
    last_packet: Time,
    /// Time until which the station is a neighbour; [`Time::ZERO`] if it is not a neighbour.
    neighbour_until: Time,
    /// Time until which the station's last beacon is valid, if the beacon announced a validity.
    pub(crate) beacon_valid_until: Time,
    /// Packet data rate of the station, PDR (B.2).
    pub(crate) rate: PacketRate,
    pub(crate) duplicates: DuplicatePacketList,
    previous_in_queue: u32,
    next_in_queue: u32,
    queue: u8,
    used: bool,
}

impl Entry {
    /// Returns the position vector of the station (LPV).
    pub fn position_vector(&self) -> &LongPositionVector {
        &self.position_vector
    }

    /// Returns the GN address of the station.
    pub fn address(&self) -> GnAddress {
        self.position_vector.address
    }

    /// Returns the position of the station.
    pub fn position(&self) -> Position {
        Position::new(self.position_vector.latitude, self.position_vector.longitude)
    }

    /// Returns the link-layer address of the station.
    pub fn mac(&self) -> MacAddress {
        self.position_vector.address.mid()
    }

    /// Returns whether the station is a neighbour (IS_NEIGHBOUR).
    pub fn is_neighbour(&self) -> bool {
        self.neighbour_until > Time::ZERO
    }

    /// Returns the time at which the table removes the entry.
    pub(crate) fn expires(&self) -> Time {
        self.expires
    }

    /// Returns the time until which the station is a neighbour.
    pub(crate) fn neighbour_until(&self) -> Time {
        self.neighbour_until
    }

    /// Returns the time of the last packet of the station.
    pub fn last_received(&self) -> Time {
        self.last_packet
    }
}

/// Result of [`LocationTable::learn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnOutcome {
    /// Entry of the station.
    pub slot: Slot,
    /// The table had no entry of the station before.
    pub is_new: bool,
    /// The station has become a neighbour.
    pub new_neighbour: bool,
    /// The table has stored the position vector.
    pub updated: bool,
    /// The table has not stored the position vector, because its time stamp is ahead of this station's clock.
    pub from_the_future: bool,
}

#[derive(Debug, Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    len: usize,
}

/// The location table.
#[derive(Debug)]
pub struct LocationTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_mid: HashMap<u64, u32, SeededHash>,
    /// Queues of the entries: other stations received once, other stations established, neighbours received
    /// once, neighbours established.
    queues: [Queue; 4],
    index: SpatialIndex,
    /// Counter that grows whenever a neighbour is added, removed or moves.
    generation: u64,
}

/// Returns the MID as a number.
pub fn mid_key(address: GnAddress) -> u64 {
    address.0 & 0xffff_ffff_ffff
}

/// Returns whether the MID can belong to a station: neither zero nor a group address.
pub fn is_station_mid(address: GnAddress) -> bool {
    let mid = address.mid();
    mid[0] & 1 == 0 && mid != [0; 6]
}

/// Returns a link-layer address as a number.
pub fn mac_key(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl LocationTable {
    /// Creates an empty table; `seed` makes the hash unpredictable.
    pub fn new(seed: u64) -> LocationTable {
        LocationTable {
            entries: Vec::new(),
            free: Vec::new(),
            by_mid: HashMap::with_hasher(SeededHash(seed)),
            queues: [Queue { head: NONE, tail: NONE, len: 0 }; 4],
            index: SpatialIndex::default(),
            generation: 0,
        }
    }

    /// Returns the number of stations in the table.
    pub fn len(&self) -> usize {
        self.by_mid.len()
    }

    /// Returns whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.by_mid.is_empty()
    }

    /// Returns the number of neighbours.
    pub fn neighbours(&self) -> usize {
        self.index.len()
    }

    /// Returns a counter that changes whenever the neighbours or their positions change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the spatial index of the neighbours.
    pub fn index(&self) -> &SpatialIndex {
        &self.index
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        (0u32..).zip(&self.entries).filter(|(_, entry)| entry.used)
    }

    /// Returns the entry with a MID if it is still valid at `now`.
    pub fn find(&self, now: Time, mid: u64) -> Option<Slot> {
        let slot = *self.by_mid.get(&mid)?;
        (self.entries[slot as usize].expires > now).then_some(slot)
    }

    /// Returns the entry in a slot.
    pub fn entry(&self, slot: Slot) -> &Entry {
        &self.entries[slot as usize]
    }

    pub(crate) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// Stores the position vector of a packet's source (C.2), and creates an entry for a new station.
    /// `direct` says that the packet came over one hop, so that the source is a neighbour. `clock` is the
    /// time of this station, if known.
    ///
    /// # Errors
    ///
    /// [`GeonetDrop::LocationTableFull`] for a new station if the table has no room.
    pub fn learn(
        &mut self,
        now: Time,
        mib: &Mib,
        pv: &LongPositionVector,
        direct: bool,
        clock: Option<Timestamp>,
    ) -> Result<LearnOutcome, GeonetDrop> {
        let mid = mid_key(pv.address);
        let Some(&slot) = self.by_mid.get(&mid) else {
            let slot = self.insert(now, mib, pv, direct)?;
            let (is_new, updated, from_the_future) = (true, true, false);
            return Ok(LearnOutcome { slot, is_new, new_neighbour: direct, updated, from_the_future });
        };
        let entry = &mut self.entries[slot as usize];
        let expired = entry.expires <= now;
        let is_ahead = |timestamp: Timestamp| {
            let most = MAX_AHEAD.as_millis() as i64;
            clock.is_some_and(|clock| timestamp.milliseconds_since(clock) > most)
        };
        let known = entry.position_vector.timestamp;
        let from_the_future = !expired && is_ahead(pv.timestamp) && !is_ahead(known);
        let from_the_past = !expired && is_ahead(known) && !is_ahead(pv.timestamp);
        let updated = expired || from_the_past || (pv.timestamp.is_newer_than(known) && !from_the_future);
        if !updated {
            // An old position does not prove that the station is near now: the packet may be a replay.
            let new_neighbour = direct && *pv == entry.position_vector && self.still_there(now, mib, slot);
            return Ok(LearnOutcome { slot, is_new: false, new_neighbour, updated: false, from_the_future });
        }
        if expired {
            entry.duplicates = DuplicatePacketList::default();
            entry.rate = PacketRate::default();
        }
        let moved =
            (pv.latitude, pv.longitude) != (entry.position_vector.latitude, entry.position_vector.longitude);
        entry.position_vector = *pv;
        entry.expires = now + mib.lifetime_location_entry;
        entry.last_packet = now;
        let was_neighbour = entry.is_neighbour();
        if was_neighbour && moved {
            let position = entry.position();
            self.index.set(slot, position);
            self.generation += 1;
        }
        if was_neighbour && !direct {
            // Keep the entry's position in the queue: only direct packets of a neighbour move it back.
            return Ok(LearnOutcome {
                slot,
                is_new: expired,
                new_neighbour: false,
                updated: true,
                from_the_future,
            });
        }
        if direct {
            if was_neighbour {
                let entry = &mut self.entries[slot as usize];
                entry.neighbour_until = now + mib.lifetime_neighbour.min(mib.lifetime_location_entry);
                self.requeue(slot, Kind::Neighbour as u8 + 1);
            } else {
                self.become_neighbour(now, mib, slot);
            }
        } else {
            self.requeue(slot, Kind::Other as u8 + 1);
        }
        let new_neighbour = !was_neighbour && self.entries[slot as usize].is_neighbour();
        Ok(LearnOutcome { slot, is_new: expired, new_neighbour, updated: true, from_the_future })
    }

    /// Renews the entry of a station that sends the same position vector again; a road side unit with a
    /// measured position does so. Returns whether the station has become a neighbour.
    fn still_there(&mut self, now: Time, mib: &Mib, slot: Slot) -> bool {
        let entry = &mut self.entries[slot as usize];
        entry.expires = now + mib.lifetime_location_entry;
        let (queue, was_neighbour) = (entry.queue, entry.is_neighbour());
        if was_neighbour {
            entry.neighbour_until = now + mib.lifetime_neighbour.min(mib.lifetime_location_entry);
        }
        // The packet may be a copy of an earlier frame, so it does not move the entry to the queue of
        // established stations.
        self.requeue(slot, queue);
        if !was_neighbour {
            self.become_neighbour(now, mib, slot);
        }
        !was_neighbour && self.entries[slot as usize].is_neighbour()
    }

    fn insert(
        &mut self,
        now: Time,
        mib: &Mib,
        pv: &LongPositionVector,
        direct: bool,
    ) -> Result<Slot, GeonetDrop> {
        let kind = if direct { Kind::Neighbour } else { Kind::Other };
        self.make_room(now, mib, kind)?;
        let entry = Entry {
            position_vector: *pv,
            expires: now + mib.lifetime_location_entry,
            last_packet: now,
            neighbour_until: Time::ZERO,
            beacon_valid_until: Time::MAX,
            rate: PacketRate::default(),
            duplicates: DuplicatePacketList::default(),
            previous_in_queue: NONE,
            next_in_queue: NONE,
            queue: kind as u8,
            used: true,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.by_mid.insert(mid_key(pv.address), slot);
        self.link(slot, kind as u8);
        if direct {
            self.mark_neighbour(now, mib, slot);
        }
        Ok(slot)
    }

    /// Makes room for one more entry of a kind.
    fn make_room(&mut self, now: Time, mib: &Mib, kind: Kind) -> Result<(), GeonetDrop> {
        let (once, established) = (kind as usize, kind as usize + 1);
        let limit = match kind {
            Kind::Neighbour => mib.max_neighbours,
            Kind::Other => mib.max_other_stations,
        };
        if self.queues[once].len + self.queues[established].len < limit {
            return Ok(());
        }
        for queue in [once, established] {
            let head = self.queues[queue].head;
            let yields = head != NONE
                && (queue == once
                    || kind == Kind::Other
                    || self.entries[head as usize].neighbour_until <= now);
            if yields {
                self.remove(head);
                return Ok(());
            }
        }
        Err(GeonetDrop::LocationTableFull)
    }

    /// Makes the station a neighbour, if the number of neighbours is below its limit.
    fn become_neighbour(&mut self, now: Time, mib: &Mib, slot: Slot) {
        if self.make_room(now, mib, Kind::Neighbour).is_ok() {
            // The packet is the station's first direct packet. Forwarded packets before it do not count for
            // the queue of established neighbours.
            self.requeue(slot, Kind::Neighbour as u8);
            self.mark_neighbour(now, mib, slot);
        }
    }

    fn mark_neighbour(&mut self, now: Time, mib: &Mib, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        entry.neighbour_until = now + mib.lifetime_neighbour.min(mib.lifetime_location_entry);
        self.index.set(slot, entry.position());
        self.generation += 1;
    }

    /// Makes the station a non-neighbour; its entry stays.
    pub fn remove_neighbour_status(&mut self, now: Time, mib: &Mib, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        if !entry.is_neighbour() {
            return;
        }
        entry.neighbour_until = Time::ZERO;
        self.index.remove(slot);
        self.generation += 1;
        if self.make_room(now, mib, Kind::Other).is_ok() {
            self.requeue(slot, Kind::Other as u8);
        } else {
            self.remove(slot);
        }
    }

    /// Removes a station.
    pub fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        let entry = &mut self.entries[slot as usize];
        entry.used = false;
        self.by_mid.remove(&mid_key(entry.position_vector.address));
        if entry.is_neighbour() {
            self.index.remove(slot);
            self.generation += 1;
        }
        self.free.push(slot);
    }

    /// Removes all stations, for example after a change of pseudonym (10.2.1.4).
    pub fn clear(&mut self) {
        while let Some(slot) = self.queues.iter().map(|queue| queue.head).find(|&head| head != NONE) {
            self.remove(slot);
        }
    }

    /// Removes entries and neighbours whose lifetime has ended.
    pub fn expire(&mut self, now: Time, mib: &Mib) {
        for queue in [Kind::Neighbour as usize, Kind::Neighbour as usize + 1] {
            while let head = self.queues[queue].head
                && head != NONE
                && self.entries[head as usize].neighbour_until <= now
            {
                if self.entries[head as usize].expires > now {
                    self.remove_neighbour_status(now, mib, head);
                } else {
                    self.remove(head);
                }
            }
        }
        for queue in [Kind::Other as usize, Kind::Other as usize + 1] {
            while let head = self.queues[queue].head
                && head != NONE
                && self.entries[head as usize].expires <= now
            {
                self.remove(head);
            }
        }
    }

    /// Returns the earliest time at which [`Self::expire`] has an entry to remove.
    pub fn next_expiry(&self) -> Option<Time> {
        let due = |queue: usize| {
            let head = self.queues[queue].head;
            (head != NONE).then(|| {
                let entry = &self.entries[head as usize];
                if entry.is_neighbour() { entry.neighbour_until } else { entry.expires }
            })
        };
        (0..4).filter_map(due).min()
    }

    fn requeue(&mut self, slot: Slot, queue: u8) {
        self.unlink(slot);
        self.link(slot, queue);
    }

    fn link(&mut self, slot: Slot, queue: u8) {
        let list = &mut self.queues[usize::from(queue)];
        let tail = std::mem::replace(&mut list.tail, slot);
        if tail == NONE {
            list.head = slot;
        }
        list.len += 1;
        let entry = &mut self.entries[slot as usize];
        (entry.previous_in_queue, entry.next_in_queue, entry.queue) = (tail, NONE, queue);
        if tail != NONE {
            self.entries[tail as usize].next_in_queue = slot;
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let Entry { previous_in_queue: previous, next_in_queue: next, queue, .. } =
            self.entries[slot as usize];
        let list = &mut self.queues[usize::from(queue)];
        list.len -= 1;
        if previous == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = previous;
        }
        if previous != NONE {
            self.entries[previous as usize].next_in_queue = next;
        }
        if next != NONE {
            self.entries[next as usize].previous_in_queue = previous;
        }
    }

    /// Returns the number of entries for which the table has allocated memory.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.entries.len()
    }
}

/// Keyed hash of 48-bit numbers, which needs one multiplication.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeededHash(pub(crate) u64);

impl BuildHasher for SeededHash {
    type Hasher = FoldedHashBuilder;
    fn build_hasher(&self) -> FoldedHashBuilder {
        FoldedHashBuilder { state: self.0 }
    }
}

/// Hasher of [`SeededHash`].
#[derive(Debug)]
pub(crate) struct FoldedHashBuilder {
    state: u64,
}

impl Hasher for FoldedHashBuilder {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.state ^ value) * 0x9e37_79b9_7f4a_7c15;
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
#[path = "location_table_tests.rs"]
mod tests;
