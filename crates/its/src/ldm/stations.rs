//! Table of stations by station ID, position and age, in bounded memory.
//!
//! Every station has a slot. Lists through the slots hold the stations of a cell of the earth's surface, and
//! all stations in the order of their last CAM. Another CAM from the same cell costs one look-up and a few
//! writes.

use std::collections::HashMap;

use carnet_base::Time;
use carnet_geonet::geodesy::{Position, is_inside};
use carnet_wire::geonet::{GeoArea, Shape};
use foldhash::fast::FixedState;

use super::StationObject;

/// Bits of the width and height of a cell: 2^15 units of 0.1 microdegree, 364 m from south to north.
const CELL_SIZE_BITS: u32 = 15;
/// Metres per 0.1 microdegree of latitude at the equator, where this value is least.
const METRES_PER_UNIT: f64 = 0.011_05;
/// Marks a missing slot.
const NO_SLOT: u32 = u32::MAX;

/// Previous and next slot in a list.
#[derive(Debug, Clone, Copy)]
struct Links {
    before: u32,
    behind: u32,
}

#[derive(Debug, Clone)]
struct Slot {
    object: StationObject,
    cell: u64,
    in_cell: Links,
    /// Links of the list by age; the previous station in the list was received earlier.
    in_age: Links,
}

/// The table of stations.
#[derive(Debug)]
pub(super) struct Stations {
    capacity: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_id: HashMap<u32, u32, FixedState>,
    /// First slot of each cell.
    by_cell: HashMap<u64, u32, FixedState>,
    oldest: u32,
    latest: u32,
}

/// Returns the cell of a position.
fn cell(position: Position) -> u64 {
    key(position.latitude >> CELL_SIZE_BITS, position.longitude >> CELL_SIZE_BITS)
}

fn key(row: i32, column: i32) -> u64 {
    u64::from(row.cast_unsigned()) << 32 | u64::from(column.cast_unsigned())
}

impl Stations {
    /// Creates a table for at least one station. `seed` prevents an attacker from choosing station IDs that
    /// collide.
    pub fn new(capacity: usize, seed: u64) -> Stations {
        Stations {
            capacity: capacity.clamp(1, NO_SLOT as usize - 1),
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::with_hasher(FixedState::with_seed(seed)),
            by_cell: HashMap::with_hasher(FixedState::with_seed(seed)),
            oldest: NO_SLOT,
            latest: NO_SLOT,
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn get(&self, station_id: u32) -> Option<&StationObject> {
        let slot = *self.by_id.get(&station_id)?;
        self.slots.get(slot as usize).map(|slot| &slot.object)
    }

    fn slot(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize)
    }

    /// Stores an object in place of the station's old one, and returns true. If `older` returns true for the
    /// old object, the function keeps the old object and returns false. A full table removes the station
    /// without a CAM for the longest time.
    pub fn insert(&mut self, object: StationObject, older: impl Fn(&StationObject) -> bool) -> bool {
        let id = object.station_id.0;
        let to = cell(object.position);
        if let Some(number) = self.by_id.get(&id).copied() {
            let Some(slot) = self.slots.get_mut(number as usize) else { return false };
            if older(&slot.object) {
                return false;
            }
            slot.object = object;
            if slot.cell != to {
                self.leave_cell(number);
                self.enter_cell(number, to);
            }
            if self.latest != number {
                self.leave_age(number);
                self.enter_age(number);
            }
            return true;
        }
        if self.len() >= self.capacity {
            self.remove_oldest();
        }
        let none = Links { before: NO_SLOT, behind: NO_SLOT };
        let slot = Slot { object, cell: to, in_cell: none, in_age: none };
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.slot(number) {
                    *place = slot;
                }
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.by_id.insert(id, number);
        self.enter_cell(number, to);
        self.enter_age(number);
        true
    }

    fn enter_cell(&mut self, number: u32, to: u64) {
        let head = self.by_cell.insert(to, number).unwrap_or(NO_SLOT);
        if let Some(slot) = self.slot(number) {
            slot.cell = to;
            slot.in_cell = Links { before: NO_SLOT, behind: head };
        }
        if let Some(slot) = self.slot(head) {
            slot.in_cell.before = number;
        }
    }

    fn leave_cell(&mut self, number: u32) {
        let Some((cell, Links { before, behind })) = self.slot(number).map(|slot| (slot.cell, slot.in_cell))
        else {
            return;
        };
        if let Some(slot) = self.slot(before) {
            slot.in_cell.behind = behind;
        } else if behind == NO_SLOT {
            self.by_cell.remove(&cell);
        } else {
            self.by_cell.insert(cell, behind);
        }
        if let Some(slot) = self.slot(behind) {
            slot.in_cell.before = before;
        }
    }

    fn enter_age(&mut self, number: u32) {
        let latest = std::mem::replace(&mut self.latest, number);
        if let Some(slot) = self.slot(number) {
            slot.in_age = Links { before: latest, behind: NO_SLOT };
        }
        match self.slot(latest) {
            Some(slot) => slot.in_age.behind = number,
            None => self.oldest = number,
        }
    }

    fn leave_age(&mut self, number: u32) {
        let Some(Links { before, behind }) = self.slot(number).map(|slot| slot.in_age) else { return };
        match self.slot(before) {
            Some(slot) => slot.in_age.behind = behind,
            None => self.oldest = behind,
        }
        match self.slot(behind) {
            Some(slot) => slot.in_age.before = before,
            None => self.latest = before,
        }
    }

    fn remove_oldest(&mut self) {
        let number = self.oldest;
        let Some(id) = self.slot(number).map(|slot| slot.object.station_id.0) else { return };
        self.leave_cell(number);
        self.leave_age(number);
        self.by_id.remove(&id);
        self.free.push(number);
    }

    /// Returns the time at which the first station expires.
    pub fn next_expiry(&self) -> Option<Time> {
        self.slots.get(self.oldest as usize).map(|slot| slot.object.expires)
    }

    /// Removes the stations that have expired.
    pub fn expire(&mut self, now: Time) {
        while self.next_expiry().is_some_and(|expires| expires <= now) {
            self.remove_oldest();
        }
    }

    /// Returns all stations, the latest first.
    pub fn iter(&self) -> impl Iterator<Item = &StationObject> {
        let mut next = self.latest;
        std::iter::from_fn(move || {
            let slot = self.slots.get(next as usize)?;
            next = slot.in_age.before;
            Some(&slot.object)
        })
    }

    /// Calls `take` with every station in an area.
    pub fn for_each_in<'a>(&'a self, area: &GeoArea, mut take: impl FnMut(&'a StationObject)) {
        let mut inside = |object: &'a StationObject| {
            if is_inside(area, object.position) {
                take(object);
            }
        };
        match cells(area) {
            // If the area touches more cells than the map has stations, or has no valid range of cells,
            // visiting all stations is faster.
            Some((rows, columns)) if rows.clone().count() * columns.clone().count() <= self.len() => {
                for row in rows {
                    for column in columns.clone() {
                        let mut next = self.by_cell.get(&key(row, column)).copied().unwrap_or(NO_SLOT);
                        while let Some(slot) = self.slots.get(next as usize) {
                            inside(&slot.object);
                            next = slot.in_cell.behind;
                        }
                    }
                }
            }
            _ => self.iter().for_each(inside),
        }
    }
}

type Range = std::ops::RangeInclusive<i32>;

/// Returns the rows and columns of cells that an area touches; `None` across the date line and near the
/// poles.
fn cells(area: &GeoArea) -> Option<(Range, Range)> {
    let (a, b) = (f64::from(area.distance_a), f64::from(area.distance_b));
    let reach = if area.shape == Shape::Circle { a } else { a.hypot(b) };
    let latitude = reach / METRES_PER_UNIT + 1.0;
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
