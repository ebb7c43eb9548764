//! Assumptions about the kernel's routing, which spare the programs a lookup for each packet (`bpf/ways.h`).
//!
//! The programs learn of an obstacle before their caches are invalidated, and of its end after that. So
//! entries that they cache meanwhile are invalid, too.

use crate::netlink::{Heard, Requests, rules_are_plain};

use super::programs::Programs;

/// Value of the map `POLICY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Policy {
    /// The kernel routes arriving packets by interface and destination only.
    pub(super) arriving: bool,
    /// The kernel routes packets from the tunnel device by interface and destination only.
    pub(super) leaving: bool,
    /// All destinations of routes with more than 64 bits are known.
    pub(super) networks: bool,
}

/// State of the kernel's routes and rules.
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// Routes reported since the last reading of all routes.
    heard: Heard,
    /// Whether rules are plain, for arriving packets and for packets that leave the tunnel device.
    plain: (bool, bool),
    /// Whether all routes have been read.
    known: bool,
}

impl Routing {
    fn policy(&self) -> Policy {
        let routes = self.known && !self.heard.forked;
        Policy {
            arriving: routes && self.plain.0,
            leaving: routes && self.plain.1,
            networks: !self.heard.full,
        }
    }

    /// Returns whether reading all routes again may remove an obstacle.
    pub(super) fn is_doubtful(&self) -> bool {
        !self.known || (self.heard.forked && self.heard.unforked)
    }

    /// Marks the routes to be read again.
    pub(super) fn doubt(&mut self) {
        self.known = false;
    }

    /// Writes the assumptions to newly loaded programs.
    pub(super) fn tell(&self, programs: &mut Programs) -> Result<(), String> {
        for half in &self.heard.crowded {
            programs.crowd(*half)?;
        }
        programs.set_policy(self.policy())
    }

    /// Reads all rules and routes. If that fails, the programs ask the kernel for each flow, as they do
    /// without assumptions.
    pub(super) fn learn(&mut self, programs: &mut Programs, requests: &mut Requests) -> Result<(), String> {
        match sure(requests, Requests::hear_all_routes) {
            Some(heard) => {
                // An obstacle that has vanished may return during this reading.
                let crowded = std::mem::take(&mut self.heard.crowded);
                let full = self.heard.full;
                self.heard = heard;
                self.heard.take_crowded(crowded, full);
                self.known = true;
            }
            None => self.known = false,
        }
        self.ask_rules(requests);
        for half in &self.heard.crowded {
            programs.crowd(*half)?;
        }
        programs.forget()?;
        programs.set_policy(self.policy())
    }

    fn ask_rules(&mut self, requests: &mut Requests) {
        self.plain = sure(requests, Requests::rules).map_or((false, false), |rules| rules_are_plain(&rules));
    }

    /// Handles a change of routes or rules: cached lookups of the programs are invalidated.
    pub(super) fn follow(
        &mut self,
        programs: &mut Programs,
        requests: &mut Requests,
        heard: Heard,
    ) -> Result<(), String> {
        let Heard { crowded, full, forked, unforked, rules, missed } = heard;
        for half in &crowded {
            programs.crowd(*half)?;
        }
        self.heard.take_crowded(crowded, full);
        // The order in which they came and went does not matter.
        self.heard.unforked = unforked || (self.heard.unforked && !forked);
        self.heard.forked |= forked;
        if rules || missed {
            self.plain = (false, false);
        }
        self.known &= !missed;
        programs.set_policy(self.policy())?;
        programs.forget()?;
        // Only a home agent uses this.
        if (rules || missed) && programs.ports.home_agent {
            self.ask_rules(requests);
            programs.set_policy(self.policy())?;
        }
        Ok(())
    }
}

/// Returns an answer only if all of it could be parsed.
fn sure<T>(requests: &mut Requests, ask: impl FnOnce(&mut Requests) -> crate::error::Result<T>) -> Option<T> {
    let unparsed = requests.unparsed;
    match ask(requests) {
        Ok(answer) => (requests.unparsed == unparsed).then_some(answer),
        Err(error) => {
            tracing::debug!("{error}");
            None
        }
    }
}
