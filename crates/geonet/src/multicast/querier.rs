//! Querier election and General Queries of one link (RFC 3810 7.6.2, 9.5 to 9.7).
//!
//! A router begins as querier and sends a few queries in quick succession. When a router with a lower address
//! sends a query, this router stops its own queries. It uses the Robustness Variable and Query Interval of
//! the other querier. When the other querier sends no more queries, this router becomes querier again.
//!
//! Queries have no authentication. One forged query with the largest numbers would silence this router for 61
//! hours. Meanwhile memberships would expire, because no router sends queries. So the other querier counts as
//! present only for the time that follows from the configured values, whatever interval it announces. After
//! that this router sends one query. If the other querier exists, its next query makes it the querier again.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mld::MldQuery;

use super::listeners::MldTiming;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuerierState {
    /// This router is the querier and sends its next query at `next`. `startup` counts the startup queries
    /// still to send.
    Querier { next: Time, startup: u8 },
    /// Another router is the querier. If it sends no query until `until`, this router becomes the querier.
    NonQuerier { until: Time, address: Ipv6Addr },
}

/// State of this router on a link: querier or non-querier.
#[derive(Debug)]
pub struct Querier {
    configured_timing: MldTiming,
    used_timing: MldTiming,
    state: QuerierState,
}

impl Querier {
    /// Creates the state of a router that begins as querier and sends a query at once.
    pub fn new(now: Time, timing: MldTiming) -> Querier {
        Querier {
            configured_timing: timing,
            used_timing: timing,
            state: QuerierState::Querier { next: now, startup: timing.robustness_variable },
        }
    }

    /// Returns the timers and counts in use on this link.
    pub fn timing_in_use(&self) -> &MldTiming {
        &self.used_timing
    }

    /// Returns whether this router is the querier.
    pub fn is_querier(&self) -> bool {
        matches!(self.state, QuerierState::Querier { .. })
    }

    /// Returns the address of the other router that is the querier; `None` if this router is the querier.
    pub fn other_querier(&self) -> Option<Ipv6Addr> {
        match self.state {
            QuerierState::Querier { .. } => None,
            QuerierState::NonQuerier { address, .. } => Some(address),
        }
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Time {
        match self.state {
            QuerierState::Querier { next, .. } => next,
            QuerierState::NonQuerier { until, .. } => until,
        }
    }

    /// Returns whether the caller must send a General Query now.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        if self.poll_timeout() > now {
            return false;
        }
        if !self.is_querier() {
            // The other querier is gone: return from the timers that it announced to the configured ones.
            self.used_timing = self.configured_timing;
        }
        let startup = match self.state {
            QuerierState::Querier { startup, .. } => startup.saturating_sub(1),
            QuerierState::NonQuerier { .. } => 0,
        };
        // 9.6: the Startup Query Interval is a quarter of the Query Interval.
        let wait =
            if startup > 0 { self.used_timing.query_interval / 4 } else { self.used_timing.query_interval };
        self.state = QuerierState::Querier { next: now + wait, startup };
        true
    }

    /// Handles the query of another router; returns whether that router is the querier.
    pub fn handle_query(&mut self, now: Time, own: Ipv6Addr, source: Ipv6Addr, query: &MldQuery<'_>) -> bool {
        // 7.6.2: the election compares the interface identifiers.
        let identifier = |address: Ipv6Addr| u128::from(address) as u64;
        if identifier(source) >= identifier(own) {
            return false;
        }
        // The present querier has a lower address than the sender, so it remains the querier.
        if self.other_querier().is_some_and(|other| identifier(other) < identifier(source)) {
            return false;
        }
        if let Some(v2) = query.version_2 {
            // 5.1.8, 5.1.9: a query with the value 0 does not announce this value, so the configured value
            // applies.
            let robustness = if v2.robustness_variable == 0 {
                self.configured_timing.robustness_variable
            } else {
                v2.robustness_variable
            };
            let interval = Duration::from_secs(v2.query_interval.into());
            let query_interval =
                if interval.is_zero() { self.configured_timing.query_interval } else { interval };
            self.used_timing =
                MldTiming { robustness_variable: robustness, query_interval, ..self.configured_timing };
        }
        let until = now
            + self.used_timing.other_querier_timeout().min(self.configured_timing.other_querier_timeout());
        self.state = QuerierState::NonQuerier { until, address: source };
        true
    }
}
