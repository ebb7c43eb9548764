//! Greedy forwarding among neighbours that are still in range: a carnet extension of E.2.
//!
//! A position vector has a station's past position, speed and heading. Greedy forwarding uses only the
//! position and prefers neighbours at the edge of the range, which leave it first. At motorway speed many
//! neighbours have left before the router selects them. With prediction, the router extrapolates the position
//! of each neighbour to the present time. A neighbour is a candidate only if the link to it lasts for
//! [`crate::mib::Prediction::link_lifetime`]. The speeds of both stations and the range of the radio
//! (`itsGnDefaultMaxCommunicationRange`) give that time. The candidate nearest to the destination is the next
//! hop as in E.2, if it is nearer than this station by [`MIN_PROGRESS_METRES`]. Predicted positions differ
//! between stations. Without that margin two stations could each believe the other to be nearer and exchange
//! a packet without end.
//!
//! Prediction needs only the position of the destination. If the destination is in range, the router sends
//! the packet to it directly, whether it is a neighbour or not. (A stationary station among fast ones sends
//! beacons rarely.)
//!
//! The age of a vector is the difference of its timestamp and this station's clock. The age is at least the
//! time since reception and at most [`MAX_CLOCK_DIFFERENCE`] more, so that a wrong clock has little effect.
//! The router extrapolates a vector by at most [`MAX_EXTRAPOLATION`].
//!
//! The search visits the neighbours nearer to the destination than this station, with a margin for their
//! movement. The search has no cache, because the predicted positions change with time.

use std::cell::Cell;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::LongPositionVector;

use crate::geodesy::{DistanceMetric, LocalPlane, Position};
use crate::location_table::{EntrySlot, LocationTable, LocationTableEntry};

/// Least distance in metres by which a next hop must be nearer to the destination than this station.
pub const MIN_PROGRESS_METRES: f64 = 1.0;
/// Largest amount by which the age of a vector by its timestamp may exceed the time since its reception. A
/// wrong clock of the sender then has little effect.
pub const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);
/// Longest time for which the router extrapolates a station's movement.
pub const MAX_EXTRAPOLATION: Duration = Duration::from_secs(10);

/// Predicts from position and movement of this station which neighbours stay in range.
#[derive(Debug, Clone, Copy)]
pub struct NeighbourPredictor {
    now: Time,
    own_vector: LongPositionVector,
    own_position: Position,
    plane: LocalPlane,
    velocity: (f64, f64),
    /// Radio range, metres.
    radio_range: f64,
    /// Time for which the link to a next hop must last, seconds.
    required_link_lifetime: f64,
}

impl NeighbourPredictor {
    /// Creates the predictor of a station at the time `now`; `vector` is the station's position vector.
    pub fn new(
        now: Time,
        vector: LongPositionVector,
        range: f64,
        link_lifetime: Duration,
    ) -> NeighbourPredictor {
        let place = Position::new(vector.latitude, vector.longitude);
        NeighbourPredictor {
            now,
            own_vector: vector,
            own_position: place,
            plane: LocalPlane::new(place),
            velocity: velocity(&vector),
            radio_range: range,
            required_link_lifetime: link_lifetime.as_secs_f64(),
        }
    }

    /// Returns the age of a station's vector, seconds.
    fn age_seconds(&self, entry: &LocationTableEntry) -> f64 {
        let heard = self.now.saturating_since(entry.last_received_at());
        let told = self.own_vector.timestamp.milliseconds_since(entry.position_vector().timestamp);
        let told = Duration::from_millis(u64::try_from(told).unwrap_or(0));
        told.clamp(heard, heard + MAX_CLOCK_DIFFERENCE).min(MAX_EXTRAPOLATION).as_secs_f64()
    }

    /// Returns the predicted position of a station in metres east and north of this station, and its
    /// velocity.
    fn extrapolate_offset_and_velocity(&self, entry: &LocationTableEntry) -> ((f64, f64), (f64, f64)) {
        let (east, north) = self.plane.offset_of(entry.position());
        let (v_east, v_north) = velocity(entry.position_vector());
        let age = self.age_seconds(entry);
        ((east + v_east * age, north + v_north * age), (v_east, v_north))
    }

    /// Returns whether a station at `offset` metres with this relative velocity stays in range for the
    /// required link lifetime.
    fn does_link_last_long_enough(&self, offset: (f64, f64), velocity: (f64, f64)) -> bool {
        let is_near =
            |(east, north): (f64, f64)| east * east + north * north <= self.radio_range * self.radio_range;
        let east = offset.0 + (velocity.0 - self.velocity.0) * self.required_link_lifetime;
        let north = offset.1 + (velocity.1 - self.velocity.1) * self.required_link_lifetime;
        // The range is a disc, and a disc is convex. A station that is in range at both ends of its straight
        // path is in range all the time.
        is_near(offset) && is_near((east, north))
    }

    /// Returns whether a station in the table is in range.
    pub fn is_in_range(&self, entry: &LocationTableEntry) -> bool {
        let (offset, velocity) = self.extrapolate_offset_and_velocity(entry);
        self.does_link_last_long_enough(offset, velocity)
    }

    /// Returns whether a station at this place is in range.
    pub fn is_position_in_range(&self, place: Position) -> bool {
        self.does_link_last_long_enough(self.plane.offset_of(place), (0.0, 0.0))
    }

    /// Returns whether a station is in range and nearer to a packet's destination than this station.
    pub fn is_in_range_and_nearer(&self, metric: &DistanceMetric, entry: &LocationTableEntry) -> bool {
        let (offset, velocity) = self.extrapolate_offset_and_velocity(entry);
        let own = metric.squared_distance(self.own_position).sqrt();
        self.does_link_last_long_enough(offset, velocity)
            && metric.squared_distance(self.plane.position_at(offset.0, offset.1)).sqrt()
                < own - MIN_PROGRESS_METRES
    }

    /// Returns the neighbour that becomes the next hop of a packet, among those that `accept` accepts.
    /// Returns `None` if no such neighbour is nearer to the destination than this station.
    pub fn next_hop(
        &self,
        table: &LocationTable,
        metric: &DistanceMetric,
        accept: impl Fn(&LocationTableEntry) -> bool,
    ) -> Option<EntrySlot> {
        let own = metric.squared_distance(self.own_position).sqrt();
        let best: Cell<(f64, Option<EntrySlot>)> =
            Cell::new(((own - MIN_PROGRESS_METRES).max(0.0).powi(2), None));
        // Stop the search at a neighbour that is farther from the destination than this station by more than
        // the radio range. Such a neighbour would have to move by more than this range to come nearer, so it
        // cannot be a next hop.
        let bound = (own + self.radio_range).powi(2);
        table.neighbour_index().nearest_item_where(metric, bound, |slot| {
            let entry = table.entry(slot);
            let (offset, velocity) = self.extrapolate_offset_and_velocity(entry);
            if self.does_link_last_long_enough(offset, velocity) && accept(entry) {
                let place = self.plane.position_at(offset.0, offset.1);
                let squared = metric.squared_distance(place);
                if squared < best.get().0 {
                    best.set((squared, Some(slot)));
                }
            }
            // Return false, so that the search visits all neighbours. The index has only their old positions,
            // so the nearest in the index may not be nearest now.
            false
        });
        best.get().1
    }
}

/// Position and velocity in this station's last beacon, from which neighbours extrapolate. The router
/// compares each new position with the extrapolation, so this type stores precomputed values.
#[derive(Debug, Clone, Copy)]
pub struct AnnouncedMovement {
    sent_at: Time,
    plane: LocalPlane,
    velocity: (f64, f64),
}

impl AnnouncedMovement {
    /// Stores the position vector `vector` that this station sent at the time `when`.
    pub fn new(when: Time, vector: &LongPositionVector) -> AnnouncedMovement {
        let place = Position::new(vector.latitude, vector.longitude);
        AnnouncedMovement { sent_at: when, plane: LocalPlane::new(place), velocity: velocity(vector) }
    }

    /// Returns the time since the station sent the vector.
    pub fn age_of_vector(&self, now: Time) -> Duration {
        now.saturating_since(self.sent_at)
    }

    /// Returns whether `place`, the present position of this station, is within `metres` of the position that
    /// its last beacon predicts for `now`.
    pub fn is_near_announced_position(&self, now: Time, place: Position, metres: f64) -> bool {
        let (east, north) = self.plane.offset_of(place);
        let seconds = self.age_of_vector(now).as_secs_f64();
        let (east, north) = (east - self.velocity.0 * seconds, north - self.velocity.1 * seconds);
        east * east + north * north <= metres * metres
    }
}

/// Returns the velocity in metres per second, east and north.
pub fn velocity(vector: &LongPositionVector) -> (f64, f64) {
    let speed = f64::from(vector.speed) / 100.0;
    let (sin, cos) = (f64::from(vector.heading) / 10.0).to_radians().sin_cos();
    (speed * sin, speed * cos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mib;
    use carnet_wire::geonet::{GnAddress, Timestamp};

    const OWN_POSITION: Position = Position::new(488_375_000, 21_008_000);

    /// Returns the position vector of a station `east` and `north` metres from `OWN_POSITION`, with a speed
    /// in m/s.
    fn position_vector(
        mid: u64,
        east: f64,
        north: f64,
        speed: f64,
        heading: u16,
        at: u32,
    ) -> LongPositionVector {
        let place = LocalPlane::new(OWN_POSITION).position_at(east, north);
        LongPositionVector {
            address: GnAddress(mid),
            timestamp: Timestamp(at),
            latitude: place.latitude,
            longitude: place.longitude,
            accurate: true,
            speed: (speed * 100.0) as i16,
            heading: heading * 10,
        }
    }

    fn location_table(heard: &[(u64, LongPositionVector)]) -> LocationTable {
        let mut table = LocationTable::new(1);
        for (milliseconds, vector) in heard {
            table
                .learn_position(Time::from_millis(*milliseconds), &Mib::default(), vector, true, None)
                .expect("room");
        }
        table
    }

    fn predictor_at(at: u32) -> NeighbourPredictor {
        let own = position_vector(1, 0.0, 0.0, 0.0, 0, at);
        NeighbourPredictor::new(Time::from_millis(u64::from(at)), own, 250.0, Duration::from_millis(200))
    }

    fn chosen_next_hop(table: &LocationTable, at: u32) -> Option<u64> {
        let metric = DistanceMetric::new(LocalPlane::new(OWN_POSITION).position_at(1000.0, 0.0));
        let slot = predictor_at(at).next_hop(table, &metric, |_| true)?;
        Some(table.entry(slot).address().0)
    }

    #[test]
    fn prediction_skips_departed_neighbour_and_chooses_an_arriving_one() {
        // Station 2 moves north at 50 m/s from the edge of the range. Station 3 does not move and is nearer
        // to this station. Station 4 enters the range.
        let heard = [
            (0, position_vector(2, 230.0, 0.0, 50.0, 0, 0)),
            (0, position_vector(3, 150.0, 0.0, 0.0, 0, 0)),
            (0, position_vector(4, 300.0, 0.0, 50.0, 270, 0)),
        ];
        let table = location_table(&heard);
        assert_eq!(chosen_next_hop(&table, 0), Some(2));
        // After 1.9 s, station 2 is 249 m away and leaves within the required link lifetime of 200 ms;
        // station 4 is 205 m away.
        assert_eq!(chosen_next_hop(&table, 1900), Some(4));
        // After 5 s, station 4 is nearer than station 3.
        assert_eq!(chosen_next_hop(&table, 5000), Some(3));
    }

    #[test]
    fn prediction_chooses_no_next_hop_in_a_void() {
        // These neighbours cannot be the next hop: one behind this station, one nearer by less than a metre,
        // and one out of range.
        let heard = [
            (0, position_vector(2, -100.0, 0.0, 0.0, 0, 0)),
            (0, position_vector(3, 0.5, 20.0, 0.0, 0, 0)),
            (0, position_vector(4, 260.0, 0.0, 0.0, 0, 0)),
        ];
        assert_eq!(chosen_next_hop(&location_table(&heard), 0), None);
    }

    #[test]
    fn wrong_clock_of_a_neighbour_has_little_effect_on_prediction() {
        // The timestamp of a vector is an hour old or a day ahead, but the vector has just arrived.
        let old = position_vector(2, 100.0, 0.0, 50.0, 90, 0);
        let table_of_old = location_table(&[(3_600_000, old)]);
        let offset = predictor_at(3_600_000).extrapolate_offset_and_velocity(table_of_old.entry(0)).0;
        assert!((offset.0 - 150.0).abs() < 0.1, "{offset:?}");
        let new = position_vector(2, 100.0, 0.0, 50.0, 90, 86_400_000);
        let table_of_new = location_table(&[(1000, new)]);
        let offset = predictor_at(3000).extrapolate_offset_and_velocity(table_of_new.entry(0)).0;
        assert!((offset.0 - 200.0).abs() < 0.1, "two seconds since it was heard: {offset:?}");
        // The router extrapolates a vector by at most 10 s.
        let offset = predictor_at(18_000).extrapolate_offset_and_velocity(table_of_new.entry(0)).0;
        assert!((offset.0 - 600.0).abs() < 0.1, "{offset:?}");
    }

    #[test]
    fn predictor_recognises_position_in_radio_range() {
        let plane = LocalPlane::new(OWN_POSITION);
        assert!(predictor_at(0).is_position_in_range(plane.position_at(249.0, 0.0)));
        assert!(!predictor_at(0).is_position_in_range(plane.position_at(251.0, 0.0)));
    }
}
