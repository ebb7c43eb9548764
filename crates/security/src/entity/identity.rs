//! Identity of the station: the ticket that signs, and its changes.
//!
//! Without pseudonyms ([`crate::SecurityConfig::pseudonym_strategy`]) the station signs with a ticket until
//! it expires, and then with the next one under the same address. With pseudonyms each ticket has its own
//! address, so the ticket changes only together with the address. If the current ticket is not valid, the
//! station sends nothing until its address changes. A new ticket must not sign packets with the old address.

use std::time::Duration;

use carnet_base::Time;

use super::{SecurityStation, SecurityTime};
use crate::ids::HashedId8;
use crate::pseudonym::StationIdentity;
use crate::time::ValidityPeriod;

/// Time before the end of a ticket's validity at which the station changes to the next ticket.
const TICKET_CHANGE_MARGIN: Duration = Duration::from_secs(2);

impl SecurityStation {
    /// Returns the identity of the station at the start, from a random valid ticket. `None` without
    /// pseudonyms or without a valid ticket.
    pub fn first_identity(&mut self, now: SecurityTime) -> Option<StationIdentity> {
        self.pseudonym_state.as_ref()?;
        let first = self.random_other_ticket(now, None)?;
        self.use_ticket(first);
        Some(StationIdentity::of_ticket(first))
    }

    /// Returns the new identity of the station if a change is due, otherwise `None`. A change is due if the
    /// distance and the time of the strategy have passed, or if the ticket expires. The caller calls this
    /// function after each position, between two messages.
    pub fn poll_identity(&mut self, now: SecurityTime) -> Option<StationIdentity> {
        self.restore_valid_tickets(now);
        let place = self.own_coordinates();
        let pseudonym = self.pseudonym_state.as_mut()?;
        if let Some(place) = place {
            pseudonym.handle_position(now.time, place);
        }
        let due = pseudonym.is_due(now.time);
        if due || !self.can_current_ticket_sign(now) { self.change_pseudonym(now) } else { None }
    }

    /// Changes the identity at once, and returns the new one. Returns `None` if pseudonyms are off or no
    /// other ticket is valid.
    pub fn change_pseudonym(&mut self, now: SecurityTime) -> Option<StationIdentity> {
        self.pseudonym_state.as_ref()?;
        let next = self.random_other_ticket(now, self.current_ticket())?;
        self.use_ticket(next);
        self.counters.pseudonym_changes += 1;
        if let Some(pseudonym) = &mut self.pseudonym_state {
            pseudonym.handle_change();
        }
        Some(StationIdentity::of_ticket(next))
    }

    /// Locks or unlocks the pseudonym: see [`crate::pseudonym::PseudonymChanger::set_lock`].
    pub fn lock_pseudonym(&mut self, now: Time, locked: bool) {
        if let Some(pseudonym) = &mut self.pseudonym_state {
            pseudonym.set_lock(now, locked);
        }
    }

    /// Returns whether `name` is a ticket of this station that does not sign now. A message with the
    /// signature of such a ticket is an own message from before a change of pseudonym.
    pub(super) fn is_own_former_ticket(&self, name: HashedId8) -> bool {
        self.pseudonym_state.is_some() && self.current_ticket() != Some(name) && self.is_own_ticket(name)
    }

    fn can_current_ticket_sign(&self, now: SecurityTime) -> bool {
        let current = self.current_ticket();
        self.own_tickets_where(|validity| is_valid_with_margin(validity, now))
            .any(|name| Some(name) == current)
    }

    /// Returns a random valid ticket other than `but`; `None` without such a ticket. A ticket that ends
    /// within [`TICKET_CHANGE_MARGIN`] is chosen only if `but` is no longer valid.
    fn random_other_ticket(&mut self, now: SecurityTime, but: Option<HashedId8>) -> Option<HashedId8> {
        let other = |name: &HashedId8| Some(*name) != but;
        let mut choice: Vec<_> =
            self.own_tickets_where(|validity| is_valid_with_margin(validity, now)).filter(other).collect();
        // Use a ticket that ends soon only if the station could not sign otherwise.
        if choice.is_empty() && !self.own_tickets(now).iter().any(|name| Some(*name) == but) {
            choice = self.own_tickets(now);
        }
        self.choose_random_ticket(&choice)
    }
}

/// Returns whether the ticket is valid now and stays valid for [`TICKET_CHANGE_MARGIN`].
fn is_valid_with_margin(validity: &ValidityPeriod, now: SecurityTime) -> bool {
    validity.contains_time(now.certificate_time)
        && validity.contains_time(now.certificate_time.saturating_add(TICKET_CHANGE_MARGIN))
}
