//! Greedy forwarding (E.2): to the neighbour that is nearest to the destination, if it is strictly nearer
//! than this station.
//!
//! Distances are those of [`Metric`], which every station computes alike for a packet, so a packet cannot
//! return. The search uses the spatial index. A cache keeps the result for each destination until a neighbour
//! appears, leaves or moves, or this station moves. With `next_hop_hold` a next hop is kept longer
//! ([`HeldNextHops`]) while it is a neighbour and nearer than this station. So the packets of a flow keep
//! their order.

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

/// Target of packets that take the same path: the destination station, wherever it is, or the destination
/// place.
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
    /// Returns the last next hop on the path to a target if its choice is at most `hold` ago. The caller
    /// checks whether it still is a next hop.
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
