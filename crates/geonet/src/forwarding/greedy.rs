//! Greedy forwarding (E.2): to the neighbour that is nearest to the destination, if it is strictly nearer
//! than this station.
//!
//! Distances are those of [`Metric`], which every station computes alike for a packet: it cannot come back.
//! The search goes through the spatial index; its result is cached per destination and holds until a
//! neighbour comes, goes or moves, or this station does. With `next_hop_hold` it holds longer, as long as the
//! next hop still is a neighbour and nearer than this station, so that the packets of a flow keep their
//! order.

use std::time::Duration;

use carnet_base::Time;

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
    chosen: Time,
}

/// The next hops chosen last, by destination.
#[derive(Debug)]
pub struct NextHopCache {
    lines: Vec<Option<Cached>>,
    hits: u64,
}

impl Default for NextHopCache {
    fn default() -> Self {
        NextHopCache { lines: vec![None; CACHED], hits: 0 }
    }
}

impl NextHopCache {
    /// The neighbour to which a packet for the metric's destination goes, `None` in a void.
    pub fn next_hop(
        &mut self,
        now: Time,
        table: &LocationTable,
        metric: &Metric,
        ego: Position,
        hold: Duration,
    ) -> Option<Slot> {
        let destination = metric.destination;
        let line = &mut self.lines[Self::line(destination)];
        if let Some(cached) = line.as_ref().filter(|cached| cached.destination == destination) {
            if cached.generation == table.generation() && cached.ego == ego {
                self.hits += 1;
                return cached.next_hop;
            }
            let held = |slot: Slot| {
                now.saturating_since(cached.chosen) < hold
                    && table.index().position(slot).is_some_and(|p| metric.squared(p) < metric.squared(ego))
            };
            if let Some(slot) = cached.next_hop.filter(|&slot| held(slot)) {
                self.hits += 1;
                return Some(slot);
            }
        }
        let next_hop = table.index().nearest(metric, metric.squared(ego)).map(|(slot, _)| slot);
        *line = Some(Cached { destination, generation: table.generation(), ego, next_hop, chosen: now });
        next_hop
    }

    /// The next hop that was chosen last for a destination, if that is not longer ago than `hold`; whether it still
    /// is one is the caller's business. For [`super::predictive`].
    pub fn held(&self, now: Time, destination: Position, hold: Duration) -> Option<Slot> {
        let cached = self.lines[Self::line(destination)].as_ref()?;
        let held = cached.destination == destination && now.saturating_since(cached.chosen) < hold;
        cached.next_hop.filter(|_| held)
    }

    /// Remembers a next hop for [`Self::held`].
    pub fn hold(&mut self, now: Time, destination: Position, slot: Slot) {
        // No generation: it is valid for nobody else.
        let (generation, ego, next_hop) = (u64::MAX, destination, Some(slot));
        self.lines[Self::line(destination)] =
            Some(Cached { destination, generation, ego, next_hop, chosen: now });
    }

    fn line(destination: Position) -> usize {
        let mixed = (destination.latitude as u32).wrapping_mul(0x9e37_79b9)
            ^ (destination.longitude as u32).wrapping_mul(0x85eb_ca6b);
        (mixed >> 24) as usize % CACHED
    }

    /// How many searches the cache has saved.
    pub fn hits(&self) -> u64 {
        self.hits
    }
}
