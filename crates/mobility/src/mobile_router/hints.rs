//! Hints that the home agent misses our binding: Binding Error, Binding Refresh Request, and ICMPv6 errors from its address
//! about tunnelled packets.
//!
//! Nothing authenticates them and the acknowledgement that follows does not tell whether the binding had been
//! there all along. So the first is followed at once and each further one doubles the time until the next,
//! unless something has changed meanwhile that makes a lost binding likely: another care-of address, or a
//! lifetime that ended.
//!
//! An ICMPv6 error quotes a packet of ours, which the station has checked by its flow label: who made it has seen that packet.
//! While the home agent acknowledges nothing, such hints are followed every [`DEMAND_INTERVAL`], for they come only while
//! traffic waits.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};

use super::binding_update_list::Exchange;
use super::{DEMAND_INTERVAL, MobileRouter};
use crate::MobilityDrop;

/// Between the first hint that is followed and the next, and the least between two Binding Updates.
const HINT_INTERVAL: Duration = Duration::from_secs(1);
/// The interval doubles up to this.
const MAX_HINT_INTERVAL: Duration = Duration::from_secs(64);
/// After so long without any hint the next is a first one again.
const HINT_QUIET: Duration = Duration::from_secs(300);

/// How often hints are followed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hints {
    /// When the last one came, followed or not.
    heard: Option<Time>,
    /// When the next may be followed, and how long the wait after that one is.
    next: Option<(Time, Duration)>,
    /// When one was followed last, and whether the home agent has acknowledged a registration since.
    followed: Option<(Time, bool)>,
}

impl Hints {
    /// A hint has come; whether it is one to follow. `is_proven` says that it quotes a packet of ours.
    fn allow(&mut self, now: Time, is_proven: bool) -> bool {
        let quiet = self.heard.is_none_or(|at| now.saturating_since(at) >= HINT_QUIET);
        self.heard = Some(now);
        if quiet {
            self.next = None;
        }
        let waits = self.followed.is_some_and(|(at, acknowledged)| {
            is_proven && !acknowledged && now.saturating_since(at) >= DEMAND_INTERVAL
        });
        waits || self.next.is_none_or(|(at, _)| at <= now)
    }

    /// A hint was followed.
    fn followed(&mut self, now: Time) {
        let wait = self.next.map_or(HINT_INTERVAL, |(_, wait)| wait);
        self.next = Some((now + wait, (wait * 2).min(MAX_HINT_INTERVAL)));
        self.followed = Some((now, false));
    }

    /// The home agent has acknowledged a registration.
    pub(super) fn acknowledged(&mut self) {
        if let Some((_, acknowledged)) = &mut self.followed {
            *acknowledged = true;
        }
    }
}

impl MobileRouter {
    /// The home agent's address has said by an ICMPv6 error that it does not take a packet which this router has tunnelled
    /// to it; the packet is proven to be ours.
    ///
    /// # Errors
    /// Why it had no effect.
    pub fn handle_tunnel_error(
        &mut self,
        now: Time,
        wall: WallTime,
        home_agent: Ipv6Addr,
    ) -> Result<(), MobilityDrop> {
        self.assert_drained();
        if home_agent != self.config.home_agent {
            return Err(MobilityDrop::WrongParty);
        }
        self.follow_hint(now, wall, true)
    }

    /// An unauthenticated hint that the home agent misses our binding.
    pub(super) fn hint(&mut self, now: Time, wall: WallTime) -> Result<(), MobilityDrop> {
        self.follow_hint(now, wall, false)
    }

    fn follow_hint(&mut self, now: Time, wall: WallTime, is_proven: bool) -> Result<(), MobilityDrop> {
        if self.at_home || self.stopping || self.refused.is_some() {
            return Err(MobilityDrop::Unexpected);
        }
        if !self.hints.allow(now, is_proven) {
            return Err(MobilityDrop::RateLimited);
        }
        if self.is_multiple() {
            self.register_all_again(now);
            self.reconcile(now, wall);
            self.hints.followed(now);
            return Ok(());
        }
        match self.exchange.as_ref().map(Exchange::last_sent) {
            None => self.refresh(now, wall),
            // The answer to what was just sent may be on its way.
            Some(_) if self.exchange.as_ref().is_some_and(|e| e.held) => return Ok(()),
            Some(last) if last.is_none_or(|at| now.saturating_since(at) >= HINT_INTERVAL) => {
                self.transmit(now, wall);
            }
            Some(_) => return Ok(()),
        }
        self.hints.followed(now);
        Ok(())
    }
}
