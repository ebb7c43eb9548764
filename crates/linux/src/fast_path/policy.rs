//! Finds out whether the kernel routes by interface and destination only. While that is so, the programs
//! cache next hops instead of asking the kernel for each flow (`bpf/ways.h`).
//!
//! An obstacle is a route or rule that uses other fields of a packet. First carnet writes a new obstacle into
//! the map `POLICY`. Then it invalidates the programs' caches. It removes a past obstacle from the map after
//! that. So entries that the programs cache in between are invalid, too.

use crate::netlink::{Heard, Requests, rules_are_plain};

use super::programs::Programs;
use super::values::Policy;

/// State of the kernel's routes and rules.
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// Properties of the routes that the kernel has reported, at the last reading of all routes and since.
    heard: Heard,
    /// Whether the kernel's rules use interface and destination only: for arriving packets, and for packets
    /// that leave the tunnel device.
    plain: (bool, bool),
    /// Whether carnet has read all routes, and no later event was lost.
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

    /// Notes that carnet has to read all routes again.
    pub(super) fn doubt(&mut self) {
        self.known = false;
    }

    /// Writes what is known of routes and rules to newly loaded programs.
    pub(super) fn tell(&self, programs: &mut Programs) -> Result<(), String> {
        for half in &self.heard.crowded {
            programs.crowd(*half)?;
        }
        programs.set_policy(self.policy())
    }

    /// Reads all rules and routes. If that fails, the programs ask the kernel for each flow and cache no next
    /// hops.
    pub(super) fn learn(&mut self, programs: &mut Programs, requests: &mut Requests) -> Result<(), String> {
        match sure(requests, Requests::hear_all_routes) {
            Some(heard) => {
                // Forget the earlier obstacles before the reading, because an obstacle may appear again
                // during the reading.
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

    /// Handles a change of routes or rules, and invalidates the programs' cached lookups.
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
        // Routes with several next hops may have appeared and vanished in any order; reading all routes again
        // clears the doubt.
        self.heard.unforked = unforked || (self.heard.unforked && !forked);
        self.heard.forked |= forked;
        if rules || missed {
            self.plain = (false, false);
        }
        self.known &= !missed;
        programs.set_policy(self.policy())?;
        programs.forget()?;
        // Only a home agent caches next hops, so only a home agent needs the rules.
        if (rules || missed) && programs.ports.home_agent {
            self.ask_rules(requests);
            programs.set_policy(self.policy())?;
        }
        Ok(())
    }
}

/// Returns the kernel's answer only if carnet could parse all its messages.
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
