//! Change of pseudonym (TS 102 731, TR 103 415). Tickets have no name, but a ticket that a vehicle uses for a
//! long time identifies the vehicle.
//!
//! A change protects only if an observer cannot link the old and the new identity of the station. So a change
//! comes after a random distance and time, and all addresses and numbers change at once. [`PseudonymChanger`]
//! decides when the identity changes; [`StationIdentity`] is the new identity. The name of the ticket gives
//! the MID of the GN address, which is the link-layer address. The facilities derive the station ID from it.
//! The caller calls [`crate::SecurityStation::poll_identity`] at each position. If it returns a new identity,
//! the caller sets the following between two messages:
//!
//! 1. the address of the router, by `handle_address`. The router clears its location table, drops packets
//!    that waited under the old address, and starts its sequence numbers at 0 (EN 302 636-4-1 10.2.1.4);
//! 2. the station ID of the facilities. They clear the path history and continue the sequence numbers of
//!    events at another value, because both would link the two identities. The LDM stays, because its content
//!    of other stations does not identify this one;
//! 3. the address of the link before the next packet leaves, and the IPv6 addresses derived from it.
//!
//! The change itself is not visible on the air: the next packet comes from a station with a new address and
//! its certificate. If other stations forward a packet of the old identity back, the station recognises its
//! ticket and drops the packet.
//!
//! The station keeps its pseudonym while it reports an event (DENM), or while a person is in danger
//! ([`PseudonymChanger::set_lock`]). The config limits the time of this lock. TR 103 415 requires the lock,
//! because the originator is part of an event's identifier.
//!
//! The defaults are those of the C2C-CC basic system profile. The first change comes after 800 to 1,500 m,
//! later ones after 800 m and 2 to 6 minutes each. Left out: silent periods and mix zones.

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::Position;
use carnet_wire::geonet::{GnAddress, StationType};

use crate::ids::HashedId8;

/// Parameters of the changes of pseudonym.
#[derive(Debug, Clone, PartialEq)]
pub struct PseudonymStrategy {
    /// Smallest and largest distance in metres before the first change of pseudonym.
    pub first_change_distance: (f64, f64),
    /// Distance in metres that the station travels between later changes of pseudonym.
    pub later_change_distance: f64,
    /// Time from the end of the distance to the change of pseudonym: a random time between these two values.
    pub random_time_after_distance: (Duration, Duration),
    /// Longest time for which a lock prevents a change.
    pub max_lock_time: Duration,
}

impl Default for PseudonymStrategy {
    fn default() -> PseudonymStrategy {
        PseudonymStrategy {
            first_change_distance: (800.0, 1_500.0),
            later_change_distance: 800.0,
            random_time_after_distance: (Duration::from_secs(120), Duration::from_secs(360)),
            max_lock_time: Duration::from_secs(255),
        }
    }
}

/// A new identity of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationIdentity {
    /// The ticket that signs.
    pub ticket: HashedId8,
    /// Link-layer address, and MID of the GN address.
    pub mid: [u8; 6],
}

impl StationIdentity {
    /// Returns the identity that belongs to a ticket. Its MID has 46 random bits, so two stations hardly ever
    /// get the same MID.
    pub const fn of_ticket(ticket: HashedId8) -> StationIdentity {
        let [_, _, c, d, e, f, g, h] = ticket.0;
        // The address is unicast and locally administered.
        StationIdentity { ticket, mid: [c & 0xfc | 0x02, d, e, f, g, h] }
    }

    /// Returns the GN address (EN 302 636-4-1 10.2.1.4).
    pub const fn gn_address(&self, station_type: StationType) -> GnAddress {
        GnAddress::new(false, station_type, self.mid)
    }
}

/// Decides when the station changes its pseudonym.
#[derive(Debug)]
pub struct PseudonymChanger {
    strategy: PseudonymStrategy,
    rng: Rng,
    last_position: Option<Position>,
    /// Distance in metres that the station has travelled since the last change of pseudonym.
    travelled_distance: f64,
    /// Distance in metres and time that must pass before the next change of pseudonym.
    required_distance_and_time: (f64, Duration),
    /// Time at which the station had travelled the distance that a change needs; `None` before.
    distance_reached_at: Option<Time>,
    /// Time since which a lock prevents changes.
    locked_since: Option<Time>,
}

impl PseudonymChanger {
    /// Creates the state at the start of a journey, before the first change of pseudonym.
    pub fn new(strategy: PseudonymStrategy, mut rng: Rng) -> PseudonymChanger {
        let (least, most) = strategy.first_change_distance;
        let share = rng.number_below(1 << 20) as f64 / (1_u64 << 20) as f64;
        let first = least + (most - least) * share;
        PseudonymChanger {
            strategy,
            rng,
            last_position: None,
            travelled_distance: 0.0,
            required_distance_and_time: (first, Duration::ZERO),
            distance_reached_at: None,
            locked_since: None,
        }
    }

    /// Handles the position of the station.
    pub fn handle_position(&mut self, now: Time, position: Position) {
        if let Some(last) = self.last_position {
            self.travelled_distance += last.distance_to(position);
        }
        self.last_position = Some(position);
        if self.travelled_distance >= self.required_distance_and_time.0 {
            self.distance_reached_at.get_or_insert(now);
        }
    }

    /// Prevents changes of pseudonym while `locked` is true, but for no longer than
    /// [`PseudonymStrategy::max_lock_time`].
    pub fn set_lock(&mut self, now: Time, locked: bool) {
        match locked {
            true => {
                self.locked_since.get_or_insert(now);
            }
            false => self.locked_since = None,
        }
    }

    /// Returns whether a change of pseudonym is due.
    pub fn is_due(&self, now: Time) -> bool {
        let held =
            self.locked_since.is_some_and(|since| now.saturating_since(since) < self.strategy.max_lock_time);
        !held
            && self
                .distance_reached_at
                .is_some_and(|reached| now.saturating_since(reached) >= self.required_distance_and_time.1)
    }

    /// Handles a completed change.
    pub fn handle_change(&mut self) {
        let (least, most) = self.strategy.random_time_after_distance;
        self.required_distance_and_time =
            (self.strategy.later_change_distance, self.rng.duration_between(least, most));
        (self.travelled_distance, self.distance_reached_at) = (0.0, None);
    }
}
