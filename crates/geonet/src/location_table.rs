//! The location table (clause 8.1): positions of stations, the neighbours among them, and their received
//! packets.
//!
//! Entries are in one array. A hash table finds them by the MID of their GN address. Its hash has a random
//! seed, so that an attacker cannot choose addresses that collide. The key is the MID and not the whole
//! address, because the link layer and the IPv6 adaptation know only the MID.
//!
//! *Position vectors.* Only a newer one replaces an older one (C.2). Without signatures any sender can claim
//! that its vector is newer. So a time stamp that is ahead of this station's clock by more than [`MAX_AHEAD`]
//! never replaces a plausible one. A plausible one always replaces one that is ahead: a forged vector from
//! the future does not lock out the true ones. If the entry has no plausible vector, the table accepts an
//! implausible one. Otherwise a station with a wrong clock would accept no vector.
//!
//! *Neighbours* (IS_NEIGHBOUR): single-hop packets make a station a neighbour (10.3.6.3, 10.3.10.3),
//! forwarded packets do not. The spatial index contains the neighbours as well.
//!
//! **Bounds.** Neighbours and other stations have separate room, so that packets from far away cannot replace
//! neighbours. Each kind has two queues: stations received once, and established ones. A new station in a
//! full table replaces the oldest one received once. Only its lifetime ends an established neighbour. A flood
//! of fabricated stations therefore replaces only its own entries. An entry takes at most 256 octets, with
//! its share of all indexes ([`ENTRY_OCTETS`]).

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

/// Largest lead of a position vector's time stamp over this station's clock. It is one second more than the
/// leap seconds since 2004, which some stations leave out.
pub const MAX_AHEAD: Duration = Duration::from_secs(Timestamp::LEAP_SECONDS as u64 + 1);

/// Octets that one entry costs at most: the entry, its place in the spatial index and in the hash table.
pub const ENTRY_OCTETS: usize = size_of::<Entry>() + SpatialIndex::ITEM_OCTETS + 2 * size_of::<(u64, u32)>();

/// The number of an entry, valid until the entry is removed.
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
    /// When the entry is forgotten (T(LocTE)).
    expires: Time,
    /// When the station was heard last, directly or not.
    heard: Time,
    /// Until when it counts as a neighbour; [`Time::ZERO`] if it does not.
    neighbour_until: Time,
    /// Until when its last beacon counts, where that is said.
    pub(crate) believed_until: Time,
    /// PDR (B.2).
    pub(crate) rate: PacketRate,
    pub(crate) duplicates: DuplicatePacketList,
    previous: u32,
    next: u32,
    queue: u8,
    used: bool,
}

impl Entry {
    /// Its position vector (LPV).
    pub fn position_vector(&self) -> &LongPositionVector {
        &self.position_vector
    }

    /// Its GN address.
    pub fn address(&self) -> GnAddress {
        self.position_vector.address
    }

    /// Where it is.
    pub fn position(&self) -> Position {
        Position::new(self.position_vector.latitude, self.position_vector.longitude)
    }

    /// Its link-layer address.
    pub fn mac(&self) -> MacAddress {
        self.position_vector.address.mid()
    }

    /// IS_NEIGHBOUR.
    pub fn is_neighbour(&self) -> bool {
        self.neighbour_until > Time::ZERO
    }

    /// When it is forgotten.
    pub(crate) fn expires(&self) -> Time {
        self.expires
    }

    /// Until when it counts as a neighbour.
    pub(crate) fn neighbour_until(&self) -> Time {
        self.neighbour_until
    }

    /// When its position vector was updated last.
    pub fn heard(&self) -> Time {
        self.heard
    }
}

/// Result of [`LocationTable::learn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learnt {
    /// The station's entry.
    pub slot: Slot,
    /// It was unknown before.
    pub is_new: bool,
    /// It was no neighbour before and is one now.
    pub new_neighbour: bool,
    /// Its position vector was updated.
    pub updated: bool,
    /// Its position vector was not updated because the time stamp is ahead of this station's clock.
    pub from_the_future: bool,
}

#[derive(Debug, Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    len: usize,
}

/// The table.
#[derive(Debug)]
pub struct LocationTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_mid: HashMap<u64, u32, SeededHash>,
    /// Others heard once, others established, neighbours heard once, neighbours established.
    queues: [Queue; 4],
    index: SpatialIndex,
    /// Grows whenever a neighbour comes, goes or moves.
    generation: u64,
}

/// The MID as a number.
pub fn mid_key(address: GnAddress) -> u64 {
    address.0 & 0xffff_ffff_ffff
}

/// Whether the MID can be one station's: neither zero nor a group address.
pub fn names_station(address: GnAddress) -> bool {
    let mid = address.mid();
    mid[0] & 1 == 0 && mid != [0; 6]
}

/// The number of a link-layer address.
pub fn mac_key(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl LocationTable {
    /// An empty table; `seed` keeps the hash unpredictable.
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

    /// How many stations are known.
    pub fn len(&self) -> usize {
        self.by_mid.len()
    }

    /// Returns whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.by_mid.is_empty()
    }

    /// How many neighbours there are.
    pub fn neighbours(&self) -> usize {
        self.index.len()
    }

    /// Changes whenever the neighbours or their positions change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The neighbours by place.
    pub fn index(&self) -> &SpatialIndex {
        &self.index
    }

    /// Everybody in the table.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        (0u32..).zip(&self.entries).filter(|(_, entry)| entry.used)
    }

    /// The entry with a MID that is still valid at `now`.
    pub fn find(&self, now: Time, mid: u64) -> Option<Slot> {
        let slot = *self.by_mid.get(&mid)?;
        (self.entries[slot as usize].expires > now).then_some(slot)
    }

    /// The entry in a slot.
    pub fn entry(&self, slot: Slot) -> &Entry {
        &self.entries[slot as usize]
    }

    pub(crate) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// Stores the position vector of a packet's source (C.2); makes an entry for a new station. `direct`: the
    /// packet came in one hop, so that the source is a neighbour. `clock` is the time of this station, if
    /// known.
    ///
    /// # Errors
    /// [`GeonetDrop::LocationTableFull`] for a new station if the table has no room.
    pub fn learn(
        &mut self,
        now: Time,
        mib: &Mib,
        pv: &LongPositionVector,
        direct: bool,
        clock: Option<Timestamp>,
    ) -> Result<Learnt, GeonetDrop> {
        let mid = mid_key(pv.address);
        let Some(&slot) = self.by_mid.get(&mid) else {
            let slot = self.insert(now, mib, pv, direct)?;
            let (is_new, updated, from_the_future) = (true, true, false);
            return Ok(Learnt { slot, is_new, new_neighbour: direct, updated, from_the_future });
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
            // An old position says nothing about who is near now: it may be a recording.
            let new_neighbour = direct && *pv == entry.position_vector && self.still_there(now, mib, slot);
            return Ok(Learnt { slot, is_new: false, new_neighbour, updated: false, from_the_future });
        }
        if expired {
            entry.duplicates = DuplicatePacketList::default();
            entry.rate = PacketRate::default();
        }
        let moved =
            (pv.latitude, pv.longitude) != (entry.position_vector.latitude, entry.position_vector.longitude);
        entry.position_vector = *pv;
        entry.expires = now + mib.lifetime_location_entry;
        entry.heard = now;
        let was_neighbour = entry.is_neighbour();
        if was_neighbour && moved {
            let position = entry.position();
            self.index.set(slot, position);
            self.generation += 1;
        }
        if was_neighbour && !direct {
            // Its queue is in the order in which the neighbours were heard directly.
            return Ok(Learnt {
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
        Ok(Learnt { slot, is_new: expired, new_neighbour, updated: true, from_the_future })
    }

    /// Renews an entry after a packet with the known position, as from a road side unit whose position was
    /// measured once. Returns whether it is a new neighbour.
    fn still_there(&mut self, now: Time, mib: &Mib, slot: Slot) -> bool {
        let entry = &mut self.entries[slot as usize];
        entry.expires = now + mib.lifetime_location_entry;
        let (queue, was_neighbour) = (entry.queue, entry.is_neighbour());
        if was_neighbour {
            entry.neighbour_until = now + mib.lifetime_neighbour.min(mib.lifetime_location_entry);
        }
        // As established as it was: one frame may come twice.
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
            heard: now,
            neighbour_until: Time::ZERO,
            believed_until: Time::MAX,
            rate: PacketRate::default(),
            duplicates: DuplicatePacketList::default(),
            previous: NONE,
            next: NONE,
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

    /// Sees to it that one more of a kind has room.
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

    /// Moves a station that is no neighbour among the neighbours, if there is room.
    fn become_neighbour(&mut self, now: Time, mib: &Mib, slot: Slot) {
        if self.make_room(now, mib, Kind::Neighbour).is_ok() {
            // Heard directly for the first time: whatever packets from afar said does not establish it.
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

    /// The station no longer is a neighbour; what is known of it stays known.
    pub fn demote(&mut self, now: Time, mib: &Mib, slot: Slot) {
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

    /// Forgets a station.
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

    /// Forgets everybody, as after a change of pseudonym (10.2.1.4).
    pub fn clear(&mut self) {
        while let Some(slot) = self.queues.iter().map(|queue| queue.head).find(|&head| head != NONE) {
            self.remove(slot);
        }
    }

    /// Lets lifetimes run out.
    pub fn expire(&mut self, now: Time, mib: &Mib) {
        for queue in [Kind::Neighbour as usize, Kind::Neighbour as usize + 1] {
            while let head = self.queues[queue].head
                && head != NONE
                && self.entries[head as usize].neighbour_until <= now
            {
                if self.entries[head as usize].expires > now {
                    self.demote(now, mib, head);
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

    /// When [`Self::expire`] has something to do at the earliest.
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
        (entry.previous, entry.next, entry.queue) = (tail, NONE, queue);
        if tail != NONE {
            self.entries[tail as usize].next = slot;
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let Entry { previous, next, queue, .. } = self.entries[slot as usize];
        let list = &mut self.queues[usize::from(queue)];
        list.len -= 1;
        if previous == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = previous;
        }
        if previous != NONE {
            self.entries[previous as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
    }

    /// Entries that memory is held for.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.entries.len()
    }
}

/// A keyed hash for 48-bit numbers: one multiplication, folded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeededHash(pub(crate) u64);

impl BuildHasher for SeededHash {
    type Hasher = Folded;
    fn build_hasher(&self) -> Folded {
        Folded { state: self.0 }
    }
}

/// See [`SeededHash`].
#[derive(Debug)]
pub(crate) struct Folded {
    state: u64,
}

impl Hasher for Folded {
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
