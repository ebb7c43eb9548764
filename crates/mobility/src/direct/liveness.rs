//! Decides whether the direct path works: heartbeats (RFC 5847 in purpose, which knows home agents only) from
//! the registered care-of address to the bound one.
//!
//! Heartbeats have the key of the binding, and so have the answers: requests of strangers in a router's name
//! take nothing from its answers. The cookie of each is random, so that only a node that sees it can answer.
//! A heartbeat without an answer in time is followed by three more, 100 ms apart. If the last of them gets no
//! answer either, the path has failed. After three answers in a row, or a new binding, the path is used
//! again. An answer that there is no binding, which cannot have a key, ends this router's registration at
//! once.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};

use super::peer::Peer;
use super::tokens::{sign, verify};
use super::{Direct, DirectDrop};
use crate::path_liveness::{PathLiveness, Sequence};

/// This router's care-of address and the other router's.
pub(super) type Ends = (Ipv6Addr, Ipv6Addr);

/// Interval of heartbeats if packets went within [`IN_USE`]. [`IDLE_INTERVAL`] is for other paths.
const INTERVAL: Duration = Duration::from_millis(250);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a path counts as used. It is longer than a fast path takes to report use.
pub(super) const IN_USE: Duration = Duration::from_secs(15);
/// Pause between the heartbeats of a series that follows one without an answer.
const QUICK: Duration = Duration::from_millis(100);
/// Heartbeats in a row without an answer that make the path fail.
const LOST: usize = 4;
/// Least time for an answer. [`SLACK`] is added to two round trips.
const PATIENCE: Duration = Duration::from_millis(200);
const SLACK: Duration = Duration::from_millis(50);
/// Status of an answer: there is no binding.
const UNKNOWN: u8 = 128;

/// Returns how long an answer may take.
fn patience(beats: &PathLiveness<u64>) -> Duration {
    beats.round_trip().smoothed().map_or(PATIENCE, |rtt| (rtt * 2 + SLACK).max(PATIENCE))
}

/// Returns the intervals of the heartbeats to a router.
fn sequence(now: Time, peer: &Peer) -> Sequence {
    let beats = &peer.heartbeats;
    let in_use = peer.used.is_some_and(|used| now.saturating_since(used) <= IN_USE);
    let interval = if in_use && !beats.has_failed() { INTERVAL } else { IDLE_INTERVAL };
    Sequence { interval, patience: patience(beats), pause: QUICK, allowed: LOST }
}

impl Direct {
    /// Returns when the next heartbeat leaves, or the path is given up.
    pub(super) fn next_beat(&self, now: Time, peer: &Peer) -> Option<Time> {
        self.path_of(peer)?;
        Some(peer.heartbeats.next_of(&sequence(now, peer)).unwrap_or(now))
    }

    /// Sends the heartbeat that is due.
    pub(super) fn beat(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        let (Some(ends), Some(registration)) = (self.path_of(peer), &peer.registration) else { return };
        let key = registration.key;
        if self.next_beat(now, peer).is_none_or(|at| at > now) {
            return;
        }
        if peer.heartbeats.is_exhausted(&sequence(now, peer)) {
            return self.fail(now, home_address, "no answer");
        }
        let cookie = self.rng.u64();
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        if peer.heartbeats.has_failed() && peer.heartbeats.forget() {
            peer.heartbeats.interrupt();
        }
        peer.heartbeats.sent(now, cookie);
        self.counters.heartbeats += 1;
        let mut message = DirectRoute {
            cookie,
            home_address: self.config.home_address,
            care_of_address: ends.0,
            ..DirectRoute::new(DirectRouteKind::Heartbeat)
        };
        sign(&mut message, &key);
        self.send_straight(ends, &message);
    }

    /// Handles a failure of the direct path: packets go by the home agent, and the router asks anew where the
    /// other end is.
    pub(super) fn fail(&mut self, now: Time, home_address: Ipv6Addr, reason: &'static str) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        peer.heartbeats.restart();
        peer.heartbeats.fail();
        peer.heartbeats.note_sent(now);
        // The other router may have moved.
        (peer.home, peer.exchange, peer.hold) = (None, None, now);
        self.set_direct(now, home_address, false, reason);
        self.look(now, home_address);
    }

    pub(super) fn answer_heartbeat(
        &mut self,
        now: Time,
        ends: Ends,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        if message.care_of_address != ends.1 {
            return Err(DirectDrop::CareOfAddress);
        }
        let mut answer = DirectRoute {
            cookie: message.cookie,
            status: UNKNOWN,
            care_of_address: ends.0,
            ..DirectRoute::new(DirectRouteKind::HeartbeatResponse)
        };
        let known = self.peers.get_mut(&message.home_address);
        let bound = known.and_then(|peer| {
            let binding = peer.binding.as_ref().filter(|binding| binding.is_at(ends.1))?;
            Some((binding.key_of(message), &mut peer.beats))
        });
        let share = match bound {
            Some((key, beats)) => {
                let key = key.ok_or(DirectDrop::Authenticator)?;
                (answer.status, answer.home_address) = (0, self.config.home_address);
                sign(&mut answer, &key);
                beats
            }
            None => &mut self.answers,
        };
        if !share.allow(now) {
            return Err(DirectDrop::RateLimited);
        }
        self.send_straight(ends, &answer);
        Ok(())
    }

    pub(super) fn take_heartbeat_response(
        &mut self,
        now: Time,
        _: Ends,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        // The cookie identifies the router: an answer without a binding has no name.
        let asked = self.peers.iter_mut().find_map(|(home_address, peer)| {
            let sent = peer.heartbeats.sent_at(message.cookie)?;
            Some((*home_address, peer, sent))
        });
        let (home_address, peer, sent) = asked.ok_or(DirectDrop::Unasked)?;
        let beats = &mut peer.heartbeats;
        // A router without a binding has no key either.
        let is_its = |key| message.status >= UNKNOWN || verify(message, key);
        if !peer.registration.as_ref().is_some_and(|registration| is_its(&registration.key)) {
            return Err(DirectDrop::Authenticator);
        }
        if message.status >= UNKNOWN {
            beats.round_trip_mut().measure(now.saturating_since(sent));
            peer.registration = None;
            (peer.home, peer.hold) = (None, now);
        } else {
            beats.answer(now, message.cookie);
        }
        peer.heartbeats.forget();
        self.look(now, home_address);
        Ok(())
    }
}
