//! Greedy forwarding (E.2): the next hop is the neighbour nearest to the destination, if it is strictly
//! nearer than this station.
//!
//! [`DistanceMetric`] gives the distances. Every station computes the same distances for a packet, so the
//! packet cannot return to a station that forwarded it. The search uses the spatial index. A cache keeps the
//! result for each destination until a neighbour appears, leaves or moves, or this station moves. With
//! `next_hop_hold` the router keeps a next hop longer ([`RetainedNextHops`]) while it is a neighbour and
//! nearer than this station. So the packets of a flow keep their order.

use std::time::Duration;

use carnet_base::Time;

use crate::geodesy::{DistanceMetric, Position};
use crate::location_table::{EntrySlot, LocationTable};
use crate::packet::ForwardingTarget;

/// Number of cached next hops; a power of two.
const CACHE_LINE_COUNT: usize = 256;

#[derive(Debug, Clone, Copy)]
struct CachedNextHop {
    destination: Position,
    table_generation: u64,
    own_position: Position,
    next_hop: Option<EntrySlot>,
}

/// Cache of recently chosen next hops, by destination.
#[derive(Debug)]
pub struct NextHopCache {
    cached_next_hops: Vec<Option<CachedNextHop>>,
}

impl Default for NextHopCache {
    fn default() -> Self {
        NextHopCache { cached_next_hops: vec![None; CACHE_LINE_COUNT] }
    }
}

impl NextHopCache {
    /// Returns the neighbour that is the next hop to the metric's destination; `None` if no neighbour is
    /// nearer to the destination than `ego`.
    pub fn next_hop(
        &mut self,
        table: &LocationTable,
        metric: &DistanceMetric,
        ego: Position,
    ) -> Option<EntrySlot> {
        let destination = metric.destination;
        let line = &mut self.cached_next_hops[cache_line(position_key(destination))];
        if let Some(cached) = line
            && cached.destination == destination
            && cached.table_generation == table.neighbour_generation()
            && cached.own_position == ego
        {
            return cached.next_hop;
        }
        let next_hop =
            table.neighbour_index().nearest_item(metric, metric.squared_distance(ego)).map(|(slot, _)| slot);
        *line = Some(CachedNextHop {
            destination,
            table_generation: table.neighbour_generation(),
            own_position: ego,
            next_hop,
        });
        next_hop
    }
}

#[derive(Debug, Clone, Copy)]
struct RetainedNextHop {
    target_key: RetainedTargetKey,
    next_hop: EntrySlot,
    chosen_at: Time,
}

/// Key under which the router stores a next hop: the destination station, or the destination position of
/// packets to an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetainedTargetKey {
    Station(u64),
    Place(Position),
}

impl RetainedTargetKey {
    fn key_of_target(target: &ForwardingTarget) -> Option<RetainedTargetKey> {
        match target {
            ForwardingTarget::Station { mid, .. } => Some(RetainedTargetKey::Station(*mid)),
            _ => target.distance_metric().map(|metric| RetainedTargetKey::Place(metric.destination)),
        }
    }

    fn cache_line(self) -> usize {
        match self {
            RetainedTargetKey::Station(mid) => cache_line((mid ^ mid >> 24) as u32),
            RetainedTargetKey::Place(place) => cache_line(position_key(place)),
        }
    }
}

/// Next hops that the router keeps although a better neighbour may have appeared.
#[derive(Debug, Default)]
pub struct RetainedNextHops {
    /// Stored next hops by the hash of their target; the list is empty before the first call of `set`.
    retained_next_hops: Vec<Option<RetainedNextHop>>,
}

impl RetainedNextHops {
    /// Returns the next hop to a target that the router chose at most `hold` ago. The caller checks whether
    /// the station can still be a next hop.
    pub(crate) fn get(&self, now: Time, target: &ForwardingTarget, hold: Duration) -> Option<EntrySlot> {
        let towards = RetainedTargetKey::key_of_target(target)?;
        let held = self.retained_next_hops.get(towards.cache_line()).copied().flatten()?;
        let counts = held.target_key == towards && now.saturating_since(held.chosen_at) < hold;
        counts.then_some(held.next_hop)
    }

    /// Stores the next hop to a target; [`Self::get`] returns it later.
    pub(crate) fn store_next_hop(&mut self, now: Time, target: &ForwardingTarget, next_hop: EntrySlot) {
        let Some(towards) = RetainedTargetKey::key_of_target(target) else { return };
        if self.retained_next_hops.is_empty() {
            self.retained_next_hops = vec![None; CACHE_LINE_COUNT];
        }
        self.retained_next_hops[towards.cache_line()] =
            Some(RetainedNextHop { target_key: towards, next_hop, chosen_at: now });
    }
}

fn position_key(place: Position) -> u32 {
    (place.latitude as u32).wrapping_mul(0x9e37_79b9) ^ (place.longitude as u32).wrapping_mul(0x85eb_ca6b)
}

fn cache_line(key: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9) >> 24) as usize % CACHE_LINE_COUNT
}
