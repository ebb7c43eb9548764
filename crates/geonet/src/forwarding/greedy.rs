//! Greedy forwarding (E.2): the next hop is the neighbour nearest to the destination, if it is strictly
//! nearer than this station.
//!
//! [`Metric`] gives the distances. Every station computes them alike for a packet, so a packet cannot return.
//! The search uses the spatial index. A cache keeps the result for each destination until a neighbour
//! appears, leaves or moves, or this station moves. With `next_hop_hold` the router keeps a next hop longer
//! ([`HeldNextHops`]) while it is a neighbour and nearer than this station. So the packets of a flow keep
//! their order.

use std::time::Duration;

use carnet_base::Time;

use crate::geodesy::{Metric, Position};
use crate::location_table::{LocationTable, Slot};
use crate::packet::Target;

/// Number of cached next hops; a power of two.
const CACHED: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Cached {
    destination: Position,
    generation: u64,
    ego: Position,
    next_hop: Option<Slot>,
}

/// Cache of the last chosen next hops, by destination.
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
    /// Returns the neighbour that is the next hop to the metric's destination; `None` in a void.
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

/// Next hops that the router keeps although a better neighbour may have appeared.
#[derive(Debug, Default)]
pub struct HeldNextHops {
    /// Held next hops by hash of the target; empty before the first `set`.
    lines: Vec<Option<Held>>,
}

impl HeldNextHops {
    /// Returns the last next hop to a target if the router chose it at most `hold` ago. The caller checks
    /// whether this station still is a valid next hop.
    pub(crate) fn get(&self, now: Time, target: &Target, hold: Duration) -> Option<Slot> {
        let towards = Towards::of(target)?;
        let held = self.lines.get(towards.line()).copied().flatten()?;
        let counts = held.towards == towards && now.saturating_since(held.chosen) < hold;
        counts.then_some(held.next_hop)
    }

    /// Stores a next hop for [`Self::get`].
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
