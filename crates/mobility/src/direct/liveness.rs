//! Decides whether the direct path works, by heartbeats from this router's registered care-of address to the
//! care-of address in the other router's binding. RFC 5847 defines Heartbeats between mobile node and home
//! agent; these have the same purpose.
//!
//! The key of the binding authenticates heartbeats and answers, so forged requests do not use up the limit of
//! answers. Each heartbeat has a random cookie, so that only a node that receives it can answer. If a
//! heartbeat gets no answer in time, the router sends three more, 100 ms apart. If these get no answer
//! either, the path has failed. The router uses the path again after three answers in a row, or after a new
//! binding. If the other router has no binding, its answer cannot be authenticated; such an answer ends this
//! router's registration at once.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};

use super::peer::Peer;
use super::session_keys::DirectEnds;
use super::tokens::{sign_message, verify_message};
use super::{DirectDrop, DirectRouteState};
use crate::path_liveness::{AnswerSchedule, PathLiveness};

/// Interval of heartbeats while packets use the path, see [`ROUTE_IN_USE_TIME`]. [`IDLE_HEARTBEAT_INTERVAL`]
/// is the interval for other paths.
const BUSY_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a path counts as used after a packet. It is longer than the interval at which a fast path
/// reports use.
pub(super) const ROUTE_IN_USE_TIME: Duration = Duration::from_secs(15);
/// Pause between the additional heartbeats that this router sends after one heartbeat got no answer.
const QUICK_HEARTBEAT_PAUSE: Duration = Duration::from_millis(100);
/// Number of heartbeats in a row without an answer after which the path has failed.
const MAX_LOST_HEARTBEATS: usize = 4;
/// Minimum time to wait for an answer. Otherwise the time is two round trips and [`ANSWER_TIMEOUT_MARGIN`].
const MIN_ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
const ANSWER_TIMEOUT_MARGIN: Duration = Duration::from_millis(50);
/// Status of an answer: the other router has no binding for this router.
const STATUS_UNKNOWN_BINDING: u8 = 128;

/// Returns how long this router waits for the answer to a heartbeat.
fn answer_timeout(beats: &PathLiveness<u64>) -> Duration {
    beats
        .round_trip()
        .smoothed()
        .map_or(MIN_ANSWER_TIMEOUT, |rtt| (rtt * 2 + ANSWER_TIMEOUT_MARGIN).max(MIN_ANSWER_TIMEOUT))
}

/// Returns the interval and the timeouts of the heartbeats to a router.
fn heartbeat_schedule(now: Time, peer: &Peer) -> AnswerSchedule {
    let beats = &peer.heartbeats;
    let in_use = peer.last_used_at.is_some_and(|used| now.saturating_since(used) <= ROUTE_IN_USE_TIME);
    let interval =
        if in_use && !beats.has_failed() { BUSY_HEARTBEAT_INTERVAL } else { IDLE_HEARTBEAT_INTERVAL };
    AnswerSchedule {
        interval,
        answer_timeout: answer_timeout(beats),
        quick_pause: QUICK_HEARTBEAT_PAUSE,
        max_missed: MAX_LOST_HEARTBEATS,
    }
}

impl DirectRouteState {
    /// Returns when the next heartbeat leaves, or when the path fails if no further answer arrives; `None`
    /// without a direct path.
    pub(super) fn next_heartbeat_at(&self, now: Time, peer: &Peer) -> Option<Time> {
        self.path_of_peer(peer)?;
        Some(peer.heartbeats.next_event_at(&heartbeat_schedule(now, peer)).unwrap_or(now))
    }

    /// Sends the heartbeat that is due.
    pub(super) fn send_due_heartbeat(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        let (Some((local, remote)), Some(registration)) = (self.path_of_peer(peer), &peer.registration)
        else {
            return;
        };
        let ends = DirectEnds { local, remote, session: self.session_of_peer(peer) };
        let key = registration.key;
        if self.next_heartbeat_at(now, peer).is_none_or(|at| at > now) {
            return;
        }
        if peer.heartbeats.is_exhausted(&heartbeat_schedule(now, peer)) {
            return self.handle_path_failure(now, home_address, "no answer");
        }
        let cookie = self.rng.random_u64();
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        if peer.heartbeats.has_failed() && peer.heartbeats.remove_outstanding_heartbeats() {
            peer.heartbeats.restart_answer_count();
        }
        peer.heartbeats.record_sent_heartbeat(now, cookie);
        self.counters.sent_heartbeats += 1;
        let mut message = DirectRoute {
            cookie,
            home_address: self.config.home_address,
            care_of_address: ends.local,
            ..DirectRoute::new(DirectRouteKind::Heartbeat)
        };
        sign_message(&mut message, &key);
        self.send_directly(ends, &message);
    }

    /// Handles a failure of the direct path: packets go through the home agent, and this router asks again
    /// for the other router's care-of address.
    pub(super) fn handle_path_failure(&mut self, now: Time, home_address: Ipv6Addr, reason: &'static str) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        peer.heartbeats.clear_loss_counts();
        peer.heartbeats.mark_failed();
        peer.heartbeats.record_sending_time(now);
        // Ask again for the other router's care-of address, because it may have a new one.
        (peer.home_tokens, peer.outstanding_exchange, peer.paused_until) = (None, None, now);
        self.set_route_direct(now, home_address, false, reason);
        self.check_peer(now, home_address);
    }

    pub(super) fn answer_heartbeat(
        &mut self,
        now: Time,
        ends: DirectEnds,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        if message.care_of_address != ends.remote {
            return Err(DirectDrop::CareOfAddress);
        }
        let mut answer = DirectRoute {
            cookie: message.cookie,
            status: STATUS_UNKNOWN_BINDING,
            care_of_address: ends.local,
            ..DirectRoute::new(DirectRouteKind::HeartbeatResponse)
        };
        let known = self.peers.get_mut(&message.home_address);
        let keys = &self.session_keys;
        let bound = known.and_then(|peer| {
            let binding = peer.binding.as_ref().filter(|binding| {
                binding.accepts_care_of_address(ends.remote) && binding.session(keys) == ends.session
            })?;
            Some((binding.authenticating_key(message), &mut peer.heartbeat_answer_limit))
        });
        let share = match bound {
            Some((key, beats)) => {
                let key = key.ok_or(DirectDrop::Authenticator)?;
                (answer.status, answer.home_address) = (0, self.config.home_address);
                sign_message(&mut answer, &key);
                beats
            }
            None => &mut self.answer_limit,
        };
        if !share.try_take_token(now) {
            return Err(DirectDrop::RateLimited);
        }
        self.send_directly(ends, &answer);
        Ok(())
    }

    pub(super) fn handle_heartbeat_response(
        &mut self,
        now: Time,
        ends: DirectEnds,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        // The answer of a router without a binding contains no home address, so the cookie identifies the
        // router.
        let asked = self.peers.iter_mut().find_map(|(home_address, peer)| {
            let sent = peer.heartbeats.sent_at(message.cookie)?;
            Some((*home_address, peer, sent))
        });
        let (home_address, peer, sent) = asked.ok_or(DirectDrop::Unasked)?;
        self.session_keys.check_session(peer.remote_key, ends)?;
        let beats = &mut peer.heartbeats;
        // If the other router has no binding, it has no key, and nothing authenticates its answer.
        let is_its = |key| message.status >= STATUS_UNKNOWN_BINDING || verify_message(message, key);
        if !peer.registration.as_ref().is_some_and(|registration| is_its(&registration.key)) {
            return Err(DirectDrop::Authenticator);
        }
        if message.status >= STATUS_UNKNOWN_BINDING {
            beats.round_trip_mut().add_measurement(now.saturating_since(sent));
            peer.registration = None;
            (peer.home_tokens, peer.paused_until) = (None, now);
        } else {
            beats.handle_answer(now, message.cookie);
        }
        peer.heartbeats.remove_outstanding_heartbeats();
        self.check_peer(now, home_address);
        Ok(())
    }
}
