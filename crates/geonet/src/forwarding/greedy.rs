//! Greedy forwarding (E.2): to the neighbour that is nearest to the destination, if it is strictly nearer
//! than this station.
//!
//! Distances are those of [`Metric`], which every station computes alike for a packet: it cannot come back.
//! The search goes through the spatial index; its result is cached per destination and holds until a
//! neighbour comes, goes or moves, or this station does. With `next_hop_hold` a next hop is kept longer
//! ([`HeldNextHops`]), as long as it still is a neighbour and nearer than this station, so that the packets of a
//! flow keep their order.

use std::time::Duration;

use carnet_base::Time;

use super::Target;
use crate::geodesy::{Metric, Position};
use crate::location_table::{LocationTable, Slot};

/// Next hops that are remembered; a power of two.
const CACHED: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Cached {
    destination: Position,
    generation: u64,
    ego: Position,
    next_hop: Option<Slot>,
}

/// The next hops chosen last, by destination.
#[derive(Debug)]
pub struct NextHopCache {
    lines: Vec<Option<Cached>>,
}

impl Default for NextHopCache {
    fn default() -> Self {
        NextHopCache { lines: vec![None; CACHED] }
    }
}

impl NextHopCache {
    /// The neighbour to which a packet for the metric's destination goes, `None` in a void.
    pub fn next_hop(&mut self, table: &LocationTable, metric: &Metric, ego: Position) -> Option<Slot> {
        let destination = metric.destination;
        let line = &mut self.lines[line(place_key(destination))];
        if let Some(cached) = line
            && cached.destination == destination
            && cached.generation == table.generation()
            && cached.ego == ego
        {
            return cached.next_hop;
        }
        let next_hop = table.index().nearest(metric, metric.squared(ego)).map(|(slot, _)| slot);
        *line = Some(Cached { destination, generation: table.generation(), ego, next_hop });
        next_hop
    }
}

#[derive(Debug, Clone, Copy)]
struct Held {
    towards: Towards,
    next_hop: Slot,
    chosen: Time,
}

/// What packets that shall go the same way have in common: the station they go to, wherever it is by now, or the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Towards {
    Station(u64),
    Place(Position),
}

impl Towards {
    fn of(target: &Target) -> Option<Towards> {
        match target {
            Target::Station { mid, .. } => Some(Towards::Station(*mid)),
            _ => target.metric().map(|metric| Towards::Place(metric.destination)),
        }
    }

    fn line(self) -> usize {
        match self {
            Towards::Station(mid) => line((mid ^ mid >> 24) as u32),
            Towards::Place(place) => line(place_key(place)),
        }
    }
}

/// The next hops that are kept although a better one may have appeared.
#[derive(Debug, Default)]
pub struct HeldNextHops {
    /// None before the first one.
    lines: Vec<Option<Held>>,
}

impl HeldNextHops {
    /// The next hop that was chosen last on the way to a target, if that is not longer ago than `hold`; whether it still
    /// is one is the caller's business.
    pub(crate) fn get(&self, now: Time, target: &Target, hold: Duration) -> Option<Slot> {
        let towards = Towards::of(target)?;
        let held = self.lines.get(towards.line()).copied().flatten()?;
        let counts = held.towards == towards && now.saturating_since(held.chosen) < hold;
        counts.then_some(held.next_hop)
    }

    /// Remembers a next hop for [`Self::get`].
    pub(crate) fn set(&mut self, now: Time, target: &Target, next_hop: Slot) {
        let Some(towards) = Towards::of(target) else { return };
        if self.lines.is_empty() {
            self.lines = vec![None; CACHED];
        }
        self.lines[towards.line()] = Some(Held { towards, next_hop, chosen: now });
    }
}

fn place_key(place: Position) -> u32 {
    (place.latitude as u32).wrapping_mul(0x9e37_79b9) ^ (place.longitude as u32).wrapping_mul(0x85eb_ca6b)
}

fn line(key: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9) >> 24) as usize % CACHED
}
