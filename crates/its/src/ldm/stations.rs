//! Table of stations by station ID, position and age, in bounded memory.
//!
//! Every station has a slot. Lists through the slots hold the stations of a cell of the earth's surface, and
//! all stations in the order of their last CAM. Another CAM from the same cell costs one look-up and a few
//! writes.

use std::collections::HashMap;

use carnet_base::Time;
use carnet_geonet::geodesy::{Position, is_inside};
use carnet_wire::geonet::{GeoArea, GeoAreaShape};
use foldhash::fast::FixedState;

use super::StationObject;

/// Bits of the width and height of a cell: 2^15 units of 0.1 microdegree, 364 m from south to north.
const CELL_SIZE_BITS: u32 = 15;
/// Metres per 0.1 microdegree of latitude at the equator, where this value is least.
const METRES_PER_COORDINATE_UNIT: f64 = 0.011_05;
/// Marks a missing slot.
const ABSENT_SLOT: u32 = u32::MAX;

/// Previous and next slot in a list.
#[derive(Debug, Clone, Copy)]
struct ListLinks {
    previous_slot: u32,
    next_slot: u32,
}

#[derive(Debug, Clone)]
struct StationSlot {
    object: StationObject,
    cell_key: u64,
    links_in_cell: ListLinks,
    /// Links of the list by age; the previous station in the list was received earlier.
    links_by_age: ListLinks,
}

/// The table of stations.
#[derive(Debug)]
pub(super) struct Stations {
    max_stations: usize,
    slots: Vec<StationSlot>,
    free_slots: Vec<u32>,
    slot_by_id: HashMap<u32, u32, FixedState>,
    /// First slot of each cell.
    first_slot_by_cell: HashMap<u64, u32, FixedState>,
    oldest_slot: u32,
    latest_slot: u32,
}

/// Returns the cell of a position.
fn cell_key_of_position(position: Position) -> u64 {
    cell_key(position.latitude >> CELL_SIZE_BITS, position.longitude >> CELL_SIZE_BITS)
}

fn cell_key(row: i32, column: i32) -> u64 {
    u64::from(row.cast_unsigned()) << 32 | u64::from(column.cast_unsigned())
}

impl Stations {
    /// Creates a table for at least one station. `seed` prevents an attacker from choosing station IDs that
    /// collide.
    pub fn new(capacity: usize, seed: u64) -> Stations {
        Stations {
            max_stations: capacity.clamp(1, ABSENT_SLOT as usize - 1),
            slots: Vec::new(),
            free_slots: Vec::new(),
            slot_by_id: HashMap::with_hasher(FixedState::with_seed(seed)),
            first_slot_by_cell: HashMap::with_hasher(FixedState::with_seed(seed)),
            oldest_slot: ABSENT_SLOT,
            latest_slot: ABSENT_SLOT,
        }
    }

    pub fn len(&self) -> usize {
        self.slot_by_id.len()
    }

    pub fn get(&self, station_id: u32) -> Option<&StationObject> {
        let slot = *self.slot_by_id.get(&station_id)?;
        self.slots.get(slot as usize).map(|slot| &slot.object)
    }

    fn slot_mut(&mut self, slot: u32) -> Option<&mut StationSlot> {
        self.slots.get_mut(slot as usize)
    }

    /// Stores the new data of a station and returns true. If `older` returns true for the station's stored
    /// data, keeps these and returns false. If the table is full, removes the station without a CAM for the
    /// longest time.
    pub fn insert(&mut self, object: StationObject, older: impl Fn(&StationObject) -> bool) -> bool {
        let id = object.station_id.0;
        let to = cell_key_of_position(object.position);
        if let Some(number) = self.slot_by_id.get(&id).copied() {
            let Some(slot) = self.slots.get_mut(number as usize) else { return false };
            if older(&slot.object) {
                return false;
            }
            slot.object = object;
            if slot.cell_key != to {
                self.remove_from_cell(number);
                self.add_to_cell(number, to);
            }
            if self.latest_slot != number {
                self.remove_from_age_list(number);
                self.add_as_latest(number);
            }
            return true;
        }
        if self.len() >= self.max_stations {
            self.remove_oldest();
        }
        let none = ListLinks { previous_slot: ABSENT_SLOT, next_slot: ABSENT_SLOT };
        let slot = StationSlot { object, cell_key: to, links_in_cell: none, links_by_age: none };
        let number = match self.free_slots.pop() {
            Some(number) => {
                if let Some(place) = self.slot_mut(number) {
                    *place = slot;
                }
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.slot_by_id.insert(id, number);
        self.add_to_cell(number, to);
        self.add_as_latest(number);
        true
    }

    fn add_to_cell(&mut self, number: u32, to: u64) {
        let head = self.first_slot_by_cell.insert(to, number).unwrap_or(ABSENT_SLOT);
        if let Some(slot) = self.slot_mut(number) {
            slot.cell_key = to;
            slot.links_in_cell = ListLinks { previous_slot: ABSENT_SLOT, next_slot: head };
        }
        if let Some(slot) = self.slot_mut(head) {
            slot.links_in_cell.previous_slot = number;
        }
    }

    fn remove_from_cell(&mut self, number: u32) {
        let Some((cell, ListLinks { previous_slot: before, next_slot: behind })) =
            self.slot_mut(number).map(|slot| (slot.cell_key, slot.links_in_cell))
        else {
            return;
        };
        if let Some(slot) = self.slot_mut(before) {
            slot.links_in_cell.next_slot = behind;
        } else if behind == ABSENT_SLOT {
            self.first_slot_by_cell.remove(&cell);
        } else {
            self.first_slot_by_cell.insert(cell, behind);
        }
        if let Some(slot) = self.slot_mut(behind) {
            slot.links_in_cell.previous_slot = before;
        }
    }

    fn add_as_latest(&mut self, number: u32) {
        let latest = std::mem::replace(&mut self.latest_slot, number);
        if let Some(slot) = self.slot_mut(number) {
            slot.links_by_age = ListLinks { previous_slot: latest, next_slot: ABSENT_SLOT };
        }
        match self.slot_mut(latest) {
            Some(slot) => slot.links_by_age.next_slot = number,
            None => self.oldest_slot = number,
        }
    }

    fn remove_from_age_list(&mut self, number: u32) {
        let Some(ListLinks { previous_slot: before, next_slot: behind }) =
            self.slot_mut(number).map(|slot| slot.links_by_age)
        else {
            return;
        };
        match self.slot_mut(before) {
            Some(slot) => slot.links_by_age.next_slot = behind,
            None => self.oldest_slot = behind,
        }
        match self.slot_mut(behind) {
            Some(slot) => slot.links_by_age.previous_slot = before,
            None => self.latest_slot = before,
        }
    }

    fn remove_oldest(&mut self) {
        let number = self.oldest_slot;
        let Some(id) = self.slot_mut(number).map(|slot| slot.object.station_id.0) else { return };
        self.remove_from_cell(number);
        self.remove_from_age_list(number);
        self.slot_by_id.remove(&id);
        self.free_slots.push(number);
    }

    /// Returns the time at which the first station expires.
    pub fn next_expiry(&self) -> Option<Time> {
        self.slots.get(self.oldest_slot as usize).map(|slot| slot.object.expires_at)
    }

    /// Removes the stations that have expired.
    pub fn expire_stations(&mut self, now: Time) {
        while self.next_expiry().is_some_and(|expires| expires <= now) {
            self.remove_oldest();
        }
    }

    /// Returns all stations, beginning with the one whose CAM arrived last.
    pub fn iter(&self) -> impl Iterator<Item = &StationObject> {
        let mut next = self.latest_slot;
        std::iter::from_fn(move || {
            let slot = self.slots.get(next as usize)?;
            next = slot.links_by_age.previous_slot;
            Some(&slot.object)
        })
    }

    /// Calls `take` with every station in an area.
    pub fn for_each_station_in<'a>(&'a self, area: &GeoArea, mut take: impl FnMut(&'a StationObject)) {
        let mut inside = |object: &'a StationObject| {
            if is_inside(area, object.position) {
                take(object);
            }
        };
        match cells_of_area(area) {
            // If the area touches more cells than the map has stations, or has no valid range of cells,
            // visiting all stations is faster.
            Some((rows, columns)) if rows.clone().count() * columns.clone().count() <= self.len() => {
                for row in rows {
                    for column in columns.clone() {
                        let mut next = self
                            .first_slot_by_cell
                            .get(&cell_key(row, column))
                            .copied()
                            .unwrap_or(ABSENT_SLOT);
                        while let Some(slot) = self.slots.get(next as usize) {
                            inside(&slot.object);
                            next = slot.links_in_cell.next_slot;
                        }
                    }
                }
            }
            _ => self.iter().for_each(inside),
        }
    }
}

type CellRange = std::ops::RangeInclusive<i32>;

/// Returns the rows and columns of cells that an area touches; `None` across the date line and near the
/// poles.
fn cells_of_area(area: &GeoArea) -> Option<(CellRange, CellRange)> {
    let (a, b) = (f64::from(area.distance_a), f64::from(area.distance_b));
    let reach = if area.shape == GeoAreaShape::Circle { a } else { a.hypot(b) };
    let latitude = reach / METRES_PER_COORDINATE_UNIT + 1.0;
    let cosine = (f64::from(area.latitude) * 1e-7).to_radians().cos();
    // Beyond 84 degrees an area may cover many meridians.
    if cosine < 0.1 {
        return None;
    }
    // At the far side of the area, nearer to the pole, the meridians are closer; a margin of 1 % is more than
    // enough.
    let longitude = latitude / cosine * 1.01;
    let range = |centre: i32, reach: f64, limit: i64| {
        let (low, high) = (i64::from(centre) - reach as i64, i64::from(centre) + reach as i64);
        (low >= -limit && high <= limit)
            .then_some(low as i32 >> CELL_SIZE_BITS..=high as i32 >> CELL_SIZE_BITS)
    };
    Some((range(area.latitude, latitude, 900_000_000)?, range(area.longitude, longitude, 1_800_000_000)?))
}
