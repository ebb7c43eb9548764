//! Identity of the station: which of its tickets signs, and when another one takes over.
//!
//! Without pseudonyms ([`crate::Config::pseudonyms`]) a ticket signs until it has run out, and then the next
//! one does, under the same address. With them a ticket has its address: none takes over in silence. A
//! station without a ticket that holds does not send, rather than sign with the next one what bears the old
//! address.

use std::time::Duration;

use carnet_base::Time;

use super::{Now, Security};
use crate::ids::HashedId8;
use crate::pseudonym::Identity;
use crate::time::ValidityPeriod;

/// So long before a ticket runs out the next one takes over.
const MARGIN: Duration = Duration::from_secs(2);

impl Security {
    /// At the start: who the station is, one of its tickets that hold now, where it has pseudonyms and such a
    /// ticket.
    pub fn first_identity(&mut self, now: Now) -> Option<Identity> {
        self.pseudonym.as_ref()?;
        let first = self.another_ticket(now, None)?;
        self.use_ticket(first);
        Some(Identity::of_ticket(first))
    }

    /// Whether the station shall be another one from now on, and who: it has gone far enough for long enough,
    /// or its ticket runs out. To be asked after each position, and between two messages.
    pub fn poll_identity(&mut self, now: Now) -> Option<Identity> {
        self.revive_tickets(now);
        let place = self.place();
        let pseudonym = self.pseudonym.as_mut()?;
        if let Some(place) = place {
            pseudonym.handle_position(now.time, place);
        }
        let due = pseudonym.is_due(now.time);
        if due || !self.current_holds(now) { self.change_pseudonym(now) } else { None }
    }

    /// The station is another one from now on, if it has pseudonyms and there is another ticket that holds.
    pub fn change_pseudonym(&mut self, now: Now) -> Option<Identity> {
        self.pseudonym.as_ref()?;
        let next = self.another_ticket(now, self.current_ticket())?;
        self.use_ticket(next);
        self.counters.pseudonyms += 1;
        if let Some(pseudonym) = &mut self.pseudonym {
            pseudonym.changed();
        }
        Some(Identity::of_ticket(next))
    }

    /// Holds changes back, or lets them go on: see [`crate::pseudonym::Pseudonym::lock`].
    pub fn lock_pseudonym(&mut self, now: Time, locked: bool) {
        if let Some(pseudonym) = &mut self.pseudonym {
            pseudonym.lock(now, locked);
        }
    }

    /// Whether this ticket of the station does not sign now. Messages with its signature are the station's
    /// own, from before a change of pseudonym.
    pub(super) fn is_former(&self, name: HashedId8) -> bool {
        self.pseudonym.is_some() && self.current_ticket() != Some(name) && self.is_own_ticket(name)
    }

    fn current_holds(&self, now: Now) -> bool {
        let current = self.current_ticket();
        self.tickets_that(|validity| is_good(validity, now)).any(|name| Some(name) == current)
    }

    /// Any ticket but this one that holds, and for a while if there is such.
    fn another_ticket(&mut self, now: Now, but: Option<HashedId8>) -> Option<HashedId8> {
        let other = |name: &HashedId8| Some(*name) != but;
        let mut choice: Vec<_> = self.tickets_that(|validity| is_good(validity, now)).filter(other).collect();
        // Of one that is about to end nothing is won, unless the station could not sign at all.
        if choice.is_empty() && !self.own_tickets(now).iter().any(|name| Some(*name) == but) {
            choice = self.own_tickets(now);
        }
        self.draw(&choice)
    }
}

/// Whether it holds now and for a while.
fn is_good(validity: &ValidityPeriod, now: Now) -> bool {
    validity.contains(now.date) && validity.contains(now.date.saturating_add(MARGIN))
}
