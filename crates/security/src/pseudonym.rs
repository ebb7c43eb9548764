//! Change of pseudonym (TS 102 731, TR 103 415). Tickets have no name, but a ticket in long use identifies
//! its vehicle.
//!
//! A change protects only if an observer cannot link the station before and after it. So it comes after a
//! random distance and time, and everything changes at once. [`Pseudonym`] says when, [`Identity`] to what.
//! The name of the ticket gives the MID of the GN address, which is the link-layer address. The facilities
//! derive the station ID from it. The caller asks [`crate::Security::poll_identity`] at each position. If
//! there is a new identity, it does this between two messages:
//!
//! 1. the router's `handle_address`. The router clears its location table, drops packets that waited under
//!    the old address, and starts its sequence numbers at 0 (EN 302 636-4-1 10.2.1.4);
//! 2. the station ID of the facilities. They clear the path history and continue the sequence numbers of
//!    events at another value, which would link the two otherwise. The LDM stays, because its content of
//!    other stations does not identify this one;
//! 3. the link's address, before anything goes out, and those of IPv6 that are made of it.
//!
//! Nothing of the change is on the air: the next packet is of a station that was not there before, with its
//! certificate. A packet of the old one that comes back, sent on by others, is known by the ticket that
//! signed it and dropped.
//!
//! The station keeps its pseudonym while it reports an event (DENM), or while a person is in danger
//! ([`Pseudonym::lock`]). The config limits that time. TR 103 415 demands this, because the originator is
//! part of an event's identifier.
//!
//! The defaults are the known ones of the C2C-CC basic system profile. The first change comes after 800 to
//! 1,500 m, later ones after 800 m and 2 to 6 minutes each. Left out: silent periods and mix zones.

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::Position;
use carnet_wire::geonet::{GnAddress, StationType};

use crate::ids::HashedId8;

/// When to change.
#[derive(Debug, Clone, PartialEq)]
pub struct Strategy {
    /// Metres until the first change, from the least to the most.
    pub first_distance: (f64, f64),
    /// Metres between changes.
    pub distance: f64,
    /// Time on top of that, from the least to the most.
    pub time: (Duration, Duration),
    /// How long a change may be held back.
    pub longest_lock: Duration,
}

impl Default for Strategy {
    fn default() -> Strategy {
        Strategy {
            first_distance: (800.0, 1_500.0),
            distance: 800.0,
            time: (Duration::from_secs(120), Duration::from_secs(360)),
            longest_lock: Duration::from_secs(255),
        }
    }
}

/// Identity of a station from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The ticket that signs.
    pub ticket: HashedId8,
    /// The link-layer address, and the MID of the GN address.
    pub mid: [u8; 6],
}

impl Identity {
    /// That of a ticket. Two stations have the same one as seldom as two of 2^46 tickets.
    pub const fn of_ticket(ticket: HashedId8) -> Identity {
        let [_, _, c, d, e, f, g, h] = ticket.0;
        // Unicast and locally administered.
        Identity { ticket, mid: [c & 0xfc | 0x02, d, e, f, g, h] }
    }

    /// The GN address (EN 302 636-4-1 10.2.1.4).
    pub const fn gn_address(&self, station_type: StationType) -> GnAddress {
        GnAddress::new(false, station_type, self.mid)
    }
}

/// Decides when to change.
#[derive(Debug)]
pub struct Pseudonym {
    strategy: Strategy,
    rng: Rng,
    last_position: Option<Position>,
    /// Metres since the last change.
    travelled: f64,
    /// Metres and time that it takes.
    needed: (f64, Duration),
    /// When the distance was done.
    reached: Option<Time>,
    /// Since when a change is held back.
    locked: Option<Time>,
}

impl Pseudonym {
    /// At the start of a journey.
    pub fn new(strategy: Strategy, mut rng: Rng) -> Pseudonym {
        let (least, most) = strategy.first_distance;
        let share = rng.below(1 << 20) as f64 / (1_u64 << 20) as f64;
        let first = least + (most - least) * share;
        Pseudonym {
            strategy,
            rng,
            last_position: None,
            travelled: 0.0,
            needed: (first, Duration::ZERO),
            reached: None,
            locked: None,
        }
    }

    /// The station is here now.
    pub fn handle_position(&mut self, now: Time, position: Position) {
        if let Some(last) = self.last_position {
            self.travelled += last.distance(position);
        }
        self.last_position = Some(position);
        if self.travelled >= self.needed.0 {
            self.reached.get_or_insert(now);
        }
    }

    /// Holds changes back, or lets them go on.
    pub fn lock(&mut self, now: Time, locked: bool) {
        match locked {
            true => {
                self.locked.get_or_insert(now);
            }
            false => self.locked = None,
        }
    }

    /// Whether the station shall be another one now.
    pub fn is_due(&self, now: Time) -> bool {
        let held = self.locked.is_some_and(|since| now.saturating_since(since) < self.strategy.longest_lock);
        !held && self.reached.is_some_and(|reached| now.saturating_since(reached) >= self.needed.1)
    }

    /// It is.
    pub fn changed(&mut self) {
        let (least, most) = self.strategy.time;
        self.needed = (self.strategy.distance, self.rng.duration(least, most));
        (self.travelled, self.reached) = (0.0, None);
    }
}
