//! The location table (clause 8.1): positions of stations, which of them are neighbours, and duplicate
//! detection of their packets.
//!
//! Entries are in one array. A hash table finds them by the MID of their GN address, because the link layer
//! and the IPv6 adaptation know only the MID. The hash has a random seed, so that an attacker cannot choose
//! addresses that collide.
//!
//! *Position vectors.* Only a newer vector replaces an older one (C.2). Without signatures any sender can
//! claim that its vector is newer. A vector is implausible if its time stamp is ahead of this station's clock
//! by more than [`MAX_TIMESTAMP_LEAD`]. An implausible vector never replaces a plausible one. A plausible
//! vector always replaces an implausible one, so a forged vector from the future does not block the true
//! ones. If the entry has no plausible vector, the table accepts an implausible one. Otherwise a station with
//! a wrong clock would accept no vector.
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
use crate::packet_rate::AveragePacketRate;
use crate::spatial_index::SpatialIndex;
use crate::{GeonetDrop, MacAddress, Mib};

const NO_ENTRY: u32 = u32::MAX;

/// Largest lead of a position vector's time stamp over this station's clock. The value is one second more
/// than the leap seconds since 2004, which some stations omit.
pub const MAX_TIMESTAMP_LEAD: Duration = Duration::from_secs(Timestamp::LEAP_SECONDS as u64 + 1);

/// Largest memory in octets that one station needs: its entry, its item in the spatial index and its share of
/// the hash table.
pub const ENTRY_OCTETS: usize =
    size_of::<LocationTableEntry>() + SpatialIndex::ITEM_OCTETS + 2 * size_of::<(u64, u32)>();

/// Index of an entry; it stays valid until the table removes the entry.
pub type EntrySlot = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StationKind {
    Other = 0,
    Neighbour = 2,
}

/// A location table entry.
#[derive(Debug, Clone)]
pub struct LocationTableEntry {
    position_vector: LongPositionVector,
    /// Time at which the entry expires (T(LocTE)) and the table removes it.
    expires_at: Time,
    /// Time of the last packet of the station, direct or forwarded.
    last_packet_at: Time,
    /// Time until which the station is a neighbour; [`Time::ZERO`] if it is not a neighbour.
    neighbour_until: Time,
    /// Time until which the station's last beacon is valid, if the beacon announced a validity.
    pub(crate) beacon_valid_until: Time,
    /// Packet data rate of the station, PDR (B.2).
    pub(crate) packet_rate: AveragePacketRate,
    pub(crate) duplicates: DuplicatePacketList,
    previous_in_queue: u32,
    next_in_queue: u32,
    queue_number: u8,
    is_used: bool,
}

impl LocationTableEntry {
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
    pub(crate) fn expires_at(&self) -> Time {
        self.expires_at
    }

    /// Returns the time until which the station is a neighbour.
    pub(crate) fn neighbour_until(&self) -> Time {
        self.neighbour_until
    }

    /// Returns the time of the last packet of the station.
    pub fn last_received_at(&self) -> Time {
        self.last_packet_at
    }
}

/// Result of [`LocationTable::learn_position`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnOutcome {
    /// Entry of the station.
    pub slot: EntrySlot,
    /// Whether the table had no entry of the station before.
    pub is_new: bool,
    /// Whether the station has become a neighbour.
    pub is_new_neighbour: bool,
    /// Whether the table has stored the position vector.
    pub is_position_updated: bool,
    /// Whether the table did not store the position vector because its time stamp is too far ahead of this
    /// station's clock.
    pub from_the_future: bool,
}

#[derive(Debug, Clone, Copy)]
struct EntryQueue {
    first_entry: u32,
    last_entry: u32,
    len: usize,
}

/// The location table.
#[derive(Debug)]
pub struct LocationTable {
    entries: Vec<LocationTableEntry>,
    free_slots: Vec<u32>,
    slot_by_mid: HashMap<u64, u32, SeededHash>,
    /// Queues of the entries: other stations received once, other stations established, neighbours received
    /// once, neighbours established.
    queues: [EntryQueue; 4],
    neighbour_index: SpatialIndex,
    /// Counter that grows whenever a neighbour is added, removed or moves.
    neighbour_generation: u64,
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
            free_slots: Vec::new(),
            slot_by_mid: HashMap::with_hasher(SeededHash(seed)),
            queues: [EntryQueue { first_entry: NO_ENTRY, last_entry: NO_ENTRY, len: 0 }; 4],
            neighbour_index: SpatialIndex::default(),
            neighbour_generation: 0,
        }
    }

    /// Returns the number of stations in the table.
    pub fn len(&self) -> usize {
        self.slot_by_mid.len()
    }

    /// Returns whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.slot_by_mid.is_empty()
    }

    /// Returns the number of neighbours.
    pub fn neighbour_count(&self) -> usize {
        self.neighbour_index.len()
    }

    /// Returns a counter that changes whenever the neighbours or their positions change.
    pub fn neighbour_generation(&self) -> u64 {
        self.neighbour_generation
    }

    /// Returns the spatial index of the neighbours.
    pub fn neighbour_index(&self) -> &SpatialIndex {
        &self.neighbour_index
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = (EntrySlot, &LocationTableEntry)> {
        (0u32..).zip(&self.entries).filter(|(_, entry)| entry.is_used)
    }

    /// Returns the entry with a MID if it is still valid at `now`.
    pub fn find_slot_of_station(&self, now: Time, mid: u64) -> Option<EntrySlot> {
        let slot = *self.slot_by_mid.get(&mid)?;
        (self.entries[slot as usize].expires_at > now).then_some(slot)
    }

    /// Returns the entry in a slot.
    pub fn entry(&self, slot: EntrySlot) -> &LocationTableEntry {
        &self.entries[slot as usize]
    }

    pub(crate) fn entry_mut(&mut self, slot: EntrySlot) -> &mut LocationTableEntry {
        &mut self.entries[slot as usize]
    }

    /// Stores the position vector of a packet's source (C.2), and creates an entry for a new station.
    /// `direct` says that the packet came over one hop, so that the source is a neighbour. `clock` is the
    /// time of this station, if known.
    ///
    /// # Errors
    ///
    /// [`GeonetDrop::LocationTableFull`] for a new station if the table has no room.
    pub fn learn_position(
        &mut self,
        now: Time,
        mib: &Mib,
        pv: &LongPositionVector,
        direct: bool,
        clock: Option<Timestamp>,
    ) -> Result<LearnOutcome, GeonetDrop> {
        let mid = mid_key(pv.address);
        let Some(&slot) = self.slot_by_mid.get(&mid) else {
            let slot = self.insert(now, mib, pv, direct)?;
            let (is_new, updated, from_the_future) = (true, true, false);
            return Ok(LearnOutcome {
                slot,
                is_new,
                is_new_neighbour: direct,
                is_position_updated: updated,
                from_the_future,
            });
        };
        let entry = &mut self.entries[slot as usize];
        let expired = entry.expires_at <= now;
        let is_ahead = |timestamp: Timestamp| {
            let most = MAX_TIMESTAMP_LEAD.as_millis() as i64;
            clock.is_some_and(|clock| timestamp.milliseconds_since(clock) > most)
        };
        let known = entry.position_vector.timestamp;
        let from_the_future = !expired && is_ahead(pv.timestamp) && !is_ahead(known);
        let from_the_past = !expired && is_ahead(known) && !is_ahead(pv.timestamp);
        let updated = expired || from_the_past || (pv.timestamp.is_newer_than(known) && !from_the_future);
        if !updated {
            // An old position does not prove that the station is near now: the packet may be a replay.
            let new_neighbour =
                direct && *pv == entry.position_vector && self.is_still_neighbour(now, mib, slot);
            return Ok(LearnOutcome {
                slot,
                is_new: false,
                is_new_neighbour: new_neighbour,
                is_position_updated: false,
                from_the_future,
            });
        }
        if expired {
            entry.duplicates = DuplicatePacketList::default();
            entry.packet_rate = AveragePacketRate::default();
        }
        let moved =
            (pv.latitude, pv.longitude) != (entry.position_vector.latitude, entry.position_vector.longitude);
        entry.position_vector = *pv;
        entry.expires_at = now + mib.lifetime_location_entry;
        entry.last_packet_at = now;
        let was_neighbour = entry.is_neighbour();
        if was_neighbour && moved {
            let position = entry.position();
            self.neighbour_index.set_position(slot, position);
            self.neighbour_generation += 1;
        }
        if was_neighbour && !direct {
            // Leave the entry at its place in the queue: only direct packets of a neighbour move it to the
            // end.
            return Ok(LearnOutcome {
                slot,
                is_new: expired,
                is_new_neighbour: false,
                is_position_updated: true,
                from_the_future,
            });
        }
        if direct {
            if was_neighbour {
                let entry = &mut self.entries[slot as usize];
                entry.neighbour_until = now + mib.lifetime_neighbour.min(mib.lifetime_location_entry);
                self.move_to_queue(slot, StationKind::Neighbour as u8 + 1);
            } else {
                self.make_neighbour(now, mib, slot);
            }
        } else {
            self.move_to_queue(slot, StationKind::Other as u8 + 1);
        }
        let new_neighbour = !was_neighbour && self.entries[slot as usize].is_neighbour();
        Ok(LearnOutcome {
            slot,
            is_new: expired,
            is_new_neighbour: new_neighbour,
            is_position_updated: true,
            from_the_future,
        })
    }

    /// Renews the entry of a station that sends the same position vector again, such as a roadside unit with
    /// a measured position. Returns whether the station has become a neighbour.
    fn is_still_neighbour(&mut self, now: Time, mib: &Mib, slot: EntrySlot) -> bool {
        let entry = &mut self.entries[slot as usize];
        entry.expires_at = now + mib.lifetime_location_entry;
        let (queue, was_neighbour) = (entry.queue_number, entry.is_neighbour());
        if was_neighbour {
            entry.neighbour_until = now + mib.lifetime_neighbour.min(mib.lifetime_location_entry);
        }
        // The packet may be a copy of an earlier frame, so it does not move the entry to the queue of
        // established stations.
        self.move_to_queue(slot, queue);
        if !was_neighbour {
            self.make_neighbour(now, mib, slot);
        }
        !was_neighbour && self.entries[slot as usize].is_neighbour()
    }

    fn insert(
        &mut self,
        now: Time,
        mib: &Mib,
        pv: &LongPositionVector,
        direct: bool,
    ) -> Result<EntrySlot, GeonetDrop> {
        let kind = if direct { StationKind::Neighbour } else { StationKind::Other };
        self.make_room_for_station(now, mib, kind)?;
        let entry = LocationTableEntry {
            position_vector: *pv,
            expires_at: now + mib.lifetime_location_entry,
            last_packet_at: now,
            neighbour_until: Time::ZERO,
            beacon_valid_until: Time::MAX,
            packet_rate: AveragePacketRate::default(),
            duplicates: DuplicatePacketList::default(),
            previous_in_queue: NO_ENTRY,
            next_in_queue: NO_ENTRY,
            queue_number: kind as u8,
            is_used: true,
        };
        let slot = match self.free_slots.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.slot_by_mid.insert(mid_key(pv.address), slot);
        self.link_to_queue(slot, kind as u8);
        if direct {
            self.mark_neighbour(now, mib, slot);
        }
        Ok(slot)
    }

    /// Makes room for one more entry of a neighbour or of another station.
    fn make_room_for_station(&mut self, now: Time, mib: &Mib, kind: StationKind) -> Result<(), GeonetDrop> {
        let (once, established) = (kind as usize, kind as usize + 1);
        let limit = match kind {
            StationKind::Neighbour => mib.max_neighbours,
            StationKind::Other => mib.max_other_stations,
        };
        if self.queues[once].len + self.queues[established].len < limit {
            return Ok(());
        }
        for queue in [once, established] {
            let head = self.queues[queue].first_entry;
            let yields = head != NO_ENTRY
                && (queue == once
                    || kind == StationKind::Other
                    || self.entries[head as usize].neighbour_until <= now);
            if yields {
                self.remove(head);
                return Ok(());
            }
        }
        Err(GeonetDrop::LocationTableFull)
    }

    /// Makes the station a neighbour, if the number of neighbours is below its limit.
    fn make_neighbour(&mut self, now: Time, mib: &Mib, slot: EntrySlot) {
        if self.make_room_for_station(now, mib, StationKind::Neighbour).is_ok() {
            // The packet is the station's first direct packet. Forwarded packets before it do not count for
            // the queue of established neighbours.
            self.move_to_queue(slot, StationKind::Neighbour as u8);
            self.mark_neighbour(now, mib, slot);
        }
    }

    fn mark_neighbour(&mut self, now: Time, mib: &Mib, slot: EntrySlot) {
        let entry = &mut self.entries[slot as usize];
        entry.neighbour_until = now + mib.lifetime_neighbour.min(mib.lifetime_location_entry);
        self.neighbour_index.set_position(slot, entry.position());
        self.neighbour_generation += 1;
    }

    /// Makes the station a non-neighbour; its entry stays.
    pub fn remove_neighbour_status(&mut self, now: Time, mib: &Mib, slot: EntrySlot) {
        let entry = &mut self.entries[slot as usize];
        if !entry.is_neighbour() {
            return;
        }
        entry.neighbour_until = Time::ZERO;
        self.neighbour_index.remove(slot);
        self.neighbour_generation += 1;
        if self.make_room_for_station(now, mib, StationKind::Other).is_ok() {
            self.move_to_queue(slot, StationKind::Other as u8);
        } else {
            self.remove(slot);
        }
    }

    /// Removes a station.
    pub fn remove(&mut self, slot: EntrySlot) {
        self.unlink_from_queue(slot);
        let entry = &mut self.entries[slot as usize];
        entry.is_used = false;
        self.slot_by_mid.remove(&mid_key(entry.position_vector.address));
        if entry.is_neighbour() {
            self.neighbour_index.remove(slot);
            self.neighbour_generation += 1;
        }
        self.free_slots.push(slot);
    }

    /// Removes all stations, for example after a change of pseudonym (10.2.1.4).
    pub fn clear(&mut self) {
        while let Some(slot) =
            self.queues.iter().map(|queue| queue.first_entry).find(|&head| head != NO_ENTRY)
        {
            self.remove(slot);
        }
    }

    /// Removes entries and neighbours whose lifetime has ended.
    pub fn expire_entries(&mut self, now: Time, mib: &Mib) {
        for queue in [StationKind::Neighbour as usize, StationKind::Neighbour as usize + 1] {
            while let head = self.queues[queue].first_entry
                && head != NO_ENTRY
                && self.entries[head as usize].neighbour_until <= now
            {
                if self.entries[head as usize].expires_at > now {
                    self.remove_neighbour_status(now, mib, head);
                } else {
                    self.remove(head);
                }
            }
        }
        for queue in [StationKind::Other as usize, StationKind::Other as usize + 1] {
            while let head = self.queues[queue].first_entry
                && head != NO_ENTRY
                && self.entries[head as usize].expires_at <= now
            {
                self.remove(head);
            }
        }
    }

    /// Returns the earliest time at which [`Self::expire_entries`] has an entry to remove.
    pub fn next_expiry(&self) -> Option<Time> {
        let due = |queue: usize| {
            let head = self.queues[queue].first_entry;
            (head != NO_ENTRY).then(|| {
                let entry = &self.entries[head as usize];
                if entry.is_neighbour() { entry.neighbour_until } else { entry.expires_at }
            })
        };
        (0..4).filter_map(due).min()
    }

    fn move_to_queue(&mut self, slot: EntrySlot, queue: u8) {
        self.unlink_from_queue(slot);
        self.link_to_queue(slot, queue);
    }

    fn link_to_queue(&mut self, slot: EntrySlot, queue: u8) {
        let list = &mut self.queues[usize::from(queue)];
        let tail = std::mem::replace(&mut list.last_entry, slot);
        if tail == NO_ENTRY {
            list.first_entry = slot;
        }
        list.len += 1;
        let entry = &mut self.entries[slot as usize];
        (entry.previous_in_queue, entry.next_in_queue, entry.queue_number) = (tail, NO_ENTRY, queue);
        if tail != NO_ENTRY {
            self.entries[tail as usize].next_in_queue = slot;
        }
    }

    fn unlink_from_queue(&mut self, slot: EntrySlot) {
        let LocationTableEntry {
            previous_in_queue: previous, next_in_queue: next, queue_number: queue, ..
        } = self.entries[slot as usize];
        let list = &mut self.queues[usize::from(queue)];
        list.len -= 1;
        if previous == NO_ENTRY {
            list.first_entry = next;
        }
        if next == NO_ENTRY {
            list.last_entry = previous;
        }
        if previous != NO_ENTRY {
            self.entries[previous as usize].next_in_queue = next;
        }
        if next != NO_ENTRY {
            self.entries[next as usize].previous_in_queue = previous;
        }
    }

    /// Returns the number of entries for which the table has allocated memory.
    #[cfg(test)]
    fn allocated_entries(&self) -> usize {
        self.entries.len()
    }
}

/// Keyed hash of 48-bit numbers that needs only one multiplication.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeededHash(pub(crate) u64);

impl BuildHasher for SeededHash {
    type Hasher = FoldedHashBuilder;
    fn build_hasher(&self) -> FoldedHashBuilder {
        FoldedHashBuilder { hash_state: self.0 }
    }
}

/// Hasher of [`SeededHash`].
#[derive(Debug)]
pub(crate) struct FoldedHashBuilder {
    hash_state: u64,
}

impl Hasher for FoldedHashBuilder {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.hash_state ^ value) * 0x9e37_79b9_7f4a_7c15;
        self.hash_state = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.hash_state
    }
}

#[cfg(test)]
#[path = "location_table_tests.rs"]
mod tests;
