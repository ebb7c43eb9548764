//! Heartbeats to the home agent (RFC 5847): they show whether an uplink that is up reaches the home agent.
//!
//! A Heartbeat request leaves from every registered care-of address with the encapsulation of data packets,
//! more often while traffic flows. If an answer takes longer than usual round trips, the router at once sends
//! several quick heartbeats. So it detects a failure before TCP's timeout has doubled often. The path has
//! failed if none of the quick heartbeats is answered; for these the router waits longer. Then it removes the
//! binding over another uplink, moves the traffic, and registers the uplink again. If the uplink fails
//! repeatedly, the pauses before this registration grow. An uplink that works again carries traffic after a
//! few answers in a row. If there is only one uplink, it stays in use.
//!
//! The same heartbeats measure loss, round-trip time and jitter of each path. RFC 5847 3 recommends 30 s or
//! more between requests, for nodes that do not move; in carnet the operator sets the interval. A home agent
//! that does not support heartbeats answers with a Binding Error (status 2), and the router tries heartbeats
//! again much later.
//!
//! Behind a NAT a heartbeat is also the keepalive of RFC 5555 4.3. If it arrives from another address or port
//! than the registered one, the home agent answers with a Binding Error. The router then registers at once;
//! see `keepalives`.
//!
//! The router answers a home agent's request over the path of the request. The answer has no restart counter,
//! because a router that has lost its state registers anew.

mod keepalives;

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{Endpoint, RateLimiter, Time, WallTime};
use carnet_wire::mobility::MobilityHeaderBuilder;

use super::capacity::RoundTrips;
use super::path_packets::{
    DOUBTED_PATH_ANSWER_TIMEOUT, DOUBTED_PATH_MAX_LOST, DOUBTED_PATH_PAUSE, PathPackets, PathTraffic,
    SAMPLE_INTERVAL, SATURATED_PATH_HEARTBEAT_INTERVAL,
};
use super::{MobileRouter, MobileRouterTimer, Registration};
use crate::binding_update_list::{Exchange, INITIAL_BINDACK_TIMEOUT};
use crate::path_liveness::{IntervalSchedule, PathLiveness, RequiredAnswers, RoundTrip};
use crate::{Event, MobilityDrop, MobilityMessage};

/// Intervals of heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatIntervals {
    /// Interval of heartbeats on a path that carries traffic.
    pub busy_interval: Duration,
    /// Interval of heartbeats on all other paths.
    pub idle_interval: Duration,
}

impl Default for HeartbeatIntervals {
    fn default() -> Self {
        HeartbeatIntervals {
            busy_interval: Duration::from_millis(250),
            idle_interval: Duration::from_secs(1),
        }
    }
}

/// Number of lost heartbeats in a row after which a path has failed (`MISSING_HEARTBEATS_ALLOWED`, whose
/// default in RFC 5847 5 is 3).
const MAX_LOST_HEARTBEATS: usize = 5;
/// Pause between the quick heartbeats after a late answer.
const QUICK_HEARTBEAT_PAUSE: Duration = Duration::from_millis(50);
/// Minimum time after which an answer is late. Then quick heartbeats begin, but the late one does not count
/// as lost yet.
const MIN_LATE_TIME: Duration = Duration::from_millis(40);
/// Time to wait for an answer: the minimum, the maximum, and the value before the first measurement.
const ANSWER_TIMEOUT_RANGE: (Duration, Duration, Duration) =
    (Duration::from_millis(120), Duration::from_millis(700), Duration::from_millis(300));
/// Number of lost heartbeats in a row after which a router behind a NAT sends a Binding Update. The NAT may
/// have lost its mapping.
const LOSSES_BEFORE_NAT_DOUBT: usize = 2;
/// First and longest hold-down of a failed uplink. It doubles with each failure.
const HOLD_DOWN_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// Time without a failure after which the hold-down starts again at its minimum.
const HOLD_DOWN_RESET_TIME: Duration = Duration::from_secs(120);
/// Time after which the router tries heartbeats again with a home agent that does not support them.
const UNSUPPORTED_RETRY_TIME: Duration = Duration::from_secs(600);
/// Interval of keepalives behind a NAT: the first, the increment, and the longest (`NATKATIMEOUT`, RFC 5555
/// 6).
const KEEPALIVE_RANGE: (Duration, Duration, Duration) =
    (Duration::from_secs(25), Duration::from_secs(10), Duration::from_secs(110));
/// Minimum interval of keepalives.
const MIN_KEEPALIVE: Duration = Duration::from_secs(5);

/// Measured quality of one uplink's path, from the last 64 heartbeats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathQuality {
    /// Smoothed round-trip time of the path.
    pub rtt: Duration,
    /// Mean difference between one round trip and the next (RFC 3550 6.4.1).
    pub jitter: Duration,
    /// Fraction of the heartbeats without an answer, 0 to 1.
    pub loss: f64,
}

/// State of the path over one uplink.
#[derive(Debug, Clone)]
pub(super) struct PathState {
    /// Care-of address of the path, and whether its packets go inside UDP. `None` before the first
    /// registration.
    path_address: Option<(IpAddr, bool)>,
    pub(super) liveness: PathLiveness<u32>,
    failure_count: u32,
    failed_at: Option<Time>,
    /// Interval of keepalives behind a NAT; `None` stands for the first value of [`KEEPALIVE_RANGE`].
    /// `too_long_keepalive` is the shortest interval in which the NAT lost its mapping.
    keepalive_interval: Option<Duration>,
    too_long_keepalive: Option<Duration>,
    /// Interval of attempts to return to IPv6, while IPv4 carries the uplink's traffic; otherwise `None`.
    pub(super) ipv6_interval: Option<Duration>,
    pub(super) ipv6_tried_at: Option<Time>,
    /// Numbers of the heartbeats that were outstanding when a Binding Error said that the home agent supports
    /// no heartbeats. An answer to one of them shows that the error was forged.
    denied_heartbeats: Vec<u32>,
    pub(super) round_trips: RoundTrips,
    pub(super) path_packets: PathPackets,
    /// Number of the last heartbeat. Each path counts from its own random number. So an attacker who reads
    /// one path does not know the numbers of another, and cannot forge answers there.
    sequence: u32,
}

impl PathState {
    pub(super) fn new(sequence: u32) -> PathState {
        PathState {
            path_address: None,
            liveness: PathLiveness::new(RequiredAnswers::default(), RoundTrip::following_queue_delay()),
            failure_count: 0,
            failed_at: None,
            keepalive_interval: None,
            too_long_keepalive: None,
            ipv6_interval: None,
            ipv6_tried_at: None,
            denied_heartbeats: Vec::new(),
            round_trips: RoundTrips::default(),
            path_packets: PathPackets::default(),
            sequence,
        }
    }

    /// Returns the time after which an answer is late (RFC 6298 2).
    fn late_time(&self) -> Duration {
        self.liveness
            .round_trip()
            .answer_timeout()
            .unwrap_or(ANSWER_TIMEOUT_RANGE.2)
            .clamp(MIN_LATE_TIME, ANSWER_TIMEOUT_RANGE.1)
    }

    /// Returns the time after which a heartbeat without an answer counts as lost.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.late_time().max(if self.path_packets.is_doubtful {
            DOUBTED_PATH_ANSWER_TIMEOUT
        } else {
            ANSWER_TIMEOUT_RANGE.0
        })
    }

    /// Returns how many quick heartbeats may be lost in a row, and the pause between them.
    fn quick_heartbeat_series(&self) -> (usize, Duration) {
        if self.path_packets.is_doubtful {
            (DOUBTED_PATH_MAX_LOST, DOUBTED_PATH_PAUSE)
        } else {
            (MAX_LOST_HEARTBEATS, QUICK_HEARTBEAT_PAUSE)
        }
    }

    /// Returns whether the answer to a heartbeat that was sent after `since` is overdue.
    pub(super) fn is_unanswered_since(&self, now: Time, since: Time) -> bool {
        let due = self.liveness.round_trip().smoothed().unwrap_or(ANSWER_TIMEOUT_RANGE.2);
        self.liveness.is_unanswered_since(now, since, due)
    }

    fn quality(&self) -> Option<PathQuality> {
        let round_trip = self.liveness.round_trip();
        let rtt = round_trip.smoothed()?;
        Some(PathQuality { rtt, jitter: round_trip.jitter(), loss: self.liveness.loss_fraction() })
    }

    /// Returns the longest time that answers take; `None` without a measurement.
    pub(super) fn usual_answer_time(&self) -> Option<Duration> {
        self.liveness.round_trip().smoothed().map(|_| self.late_time())
    }

    /// Returns whether packets or answers arrive, so that the path has not failed.
    pub(super) fn is_alive(&self, now: Time) -> bool {
        !self.path_packets.has_failed(now, self.answer_timeout())
    }
}

/// State of heartbeats that all paths to a home agent share.
#[derive(Debug)]
pub(super) struct Heartbeats {
    /// Intervals of heartbeats; `None` without heartbeats.
    pub(super) config: Option<HeartbeatIntervals>,
    /// The Restart Counter in the home agent's last Heartbeat response (RFC 5847 3.2); `None` before the
    /// first one.
    restart_counter: Option<u32>,
    /// Time until which the router sends no heartbeats, because the home agent does not support them. `None`
    /// if the home agent supports them as far as the router knows.
    pub(super) unsupported_until: Option<Time>,
    /// Rate limit of answers to Heartbeat requests, which have no authentication.
    answer_limit: RateLimiter,
}

impl Heartbeats {
    /// Creates the state for a home agent that may support heartbeats.
    pub(super) fn new(config: Option<HeartbeatIntervals>) -> Heartbeats {
        Heartbeats {
            config,
            restart_counter: None,
            unsupported_until: None,
            answer_limit: RateLimiter::new(100, Duration::from_millis(10)),
        }
    }

    /// Returns whether the heartbeats of an idle path are too rare to be the keepalives behind a NAT.
    fn are_heartbeats_rare(&self) -> bool {
        self.config.is_none_or(|it| it.idle_interval >= KEEPALIVE_RANGE.0)
    }

    /// Returns whether the router sends heartbeats, so that it detects failed paths.
    pub(super) fn are_heartbeats_sent(&self) -> bool {
        self.config.is_some() && self.unsupported_until.is_none()
    }
}

impl MobileRouter {
    /// Returns the quality of an uplink that heartbeats have measured; `None` before the first measurement.
    pub fn quality(&self, uplink: usize) -> Option<PathQuality> {
        self.uplinks.path(uplink)?.quality()
    }

    /// Returns whether an uplink is up but does not reach the home agent.
    pub fn has_path_failed(&self, uplink: usize) -> bool {
        self.uplinks.has_path_failed(uplink)
    }

    /// Handles a registration of an uplink. `same` is true if its care-of address is unchanged.
    pub(super) fn record_registered_path(
        &mut self,
        now: Time,
        uplink: usize,
        registration: Registration,
        same: bool,
    ) {
        let is_probing = self.uplinks.heartbeats.are_heartbeats_sent();
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        path.judge_ipv6_attempt(now);
        let over = Some((registration.care_of_address, registration.uses_udp));
        if path.path_address != over || !same {
            path.path_address = over;
            path.liveness.clear_loss_counts();
            path.path_packets.reset_for_new_path();
            path.too_long_keepalive = path.too_long_keepalive.filter(|_| same);
            path.keepalive_interval = path.keepalive_interval.filter(|_| same);
        }
        path.liveness.handle_other_sign_of_life(is_probing);
        path.path_packets.record_answer(now, None, None);
        match self.uplinks[uplink].next_ipv6_attempt(now, registration.care_of_address) {
            Some(at) if self.timers.get(MobileRouterTimer::Ipv6(uplink)).is_none() => {
                self.timers.set_deadline(MobileRouterTimer::Ipv6(uplink), at);
            }
            Some(_) => {}
            None => self.timers.stop_timer(MobileRouterTimer::Ipv6(uplink)),
        }
        self.schedule_heartbeat(now, uplink, now);
    }

    /// Handles an acknowledgement over an uplink. If the router sends no heartbeats, `took` measures the
    /// round trip. It is `None` if the home agent may have delayed its answer.
    pub(super) fn record_path_answer(&mut self, now: Time, uplink: usize, took: Option<Duration>) {
        let heartbeats = self.uplinks.heartbeats.are_heartbeats_sent();
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        path.judge_ipv6_attempt(now);
        let round_trip = path.liveness.round_trip_mut();
        if let Some(took) = took.filter(|_| round_trip.smoothed().is_none() || !heartbeats) {
            round_trip.add_measurement(took);
        }
        // Do not count the outstanding heartbeats as lost: their answers may still wait in a queue.
        path.liveness.exempt_outstanding_from_loss();
        path.path_packets.record_answer(now, None, None);
    }

    /// Returns the registration whose path the heartbeats over an uplink test; `None` if the router sends no
    /// heartbeats over it.
    pub(super) fn heartbeat_path(&self, uplink: usize) -> Option<Registration> {
        if self.is_stopping || self.home_presence.at_home || self.refusal_state.stop_status.is_some() {
            return None;
        }
        let of_binding = self
            .binding_update_list
            .entry_of_uplink(uplink)
            .and_then(|index| self.binding_update_list.identified_entries[index].registration);
        let plain = self
            .binding_update_list
            .entry_without_identifier
            .registration
            .filter(|r| self.uplinks[uplink].has_care_of_address(r.care_of_address));
        let registration = of_binding.or(plain)?;
        self.uplinks[uplink].has_care_of_address(registration.care_of_address).then_some(registration)
    }

    /// Returns the interval of heartbeats on an uplink; `None` without heartbeats.
    fn heartbeat_interval(&self, uplink: usize) -> Option<Duration> {
        let registration = self.heartbeat_path(uplink)?;
        let path = self.uplinks.path(uplink)?;
        let keepalive = registration.uses_udp.then(|| path.keepalive_interval());
        if self.uplinks.heartbeats.unsupported_until.is_some() {
            return keepalive.map(|_| KEEPALIVE_RANGE.0);
        }
        let busy = self.is_busy(uplink) || path.liveness.is_recovering();
        let liveness =
            self.uplinks.heartbeats.config.map(|it| if busy { it.busy_interval } else { it.idle_interval });
        // A full path loses many heartbeats, so they are sent more often.
        let full = path.path_packets.is_full && busy && !path.liveness.has_failed();
        let liveness = liveness
            .map(|interval| if full { interval.min(SATURATED_PATH_HEARTBEAT_INTERVAL) } else { interval });
        liveness.into_iter().chain(keepalive).min()
    }

    /// Returns whether an uplink carries traffic: the best one, and those that policies use.
    fn is_busy(&self, uplink: usize) -> bool {
        self.active_uplink() == Some(uplink)
            || self.flow_states.effective_flows.iter().any(|flow| {
                let bid = self.uplinks[uplink].config.bid;
                let used = if flow.action == crate::flow::FlowAction::Failover { 1 } else { flow.bids.len() };
                flow.bids.iter().take(used).any(|(other, _)| Some(*other) == bid)
            })
    }

    fn schedule_heartbeat(&mut self, now: Time, uplink: usize, not_before: Time) {
        let Some(interval) = self.heartbeat_interval(uplink) else {
            match self
                .uplinks
                .heartbeats
                .unsupported_until
                .filter(|_| self.uplinks.heartbeats.config.is_some())
            {
                Some(until) => {
                    self.timers.set_deadline(MobileRouterTimer::Heartbeat(uplink), until.max(not_before))
                }
                None => self.timers.stop_timer(MobileRouterTimer::Heartbeat(uplink)),
            }
            return;
        };
        let Some(path) = self.uplinks.path(uplink) else { return };
        let from = path.liveness.last_sent_at().map_or(now, |sent| sent + interval);
        self.timers.set_deadline(MobileRouterTimer::Heartbeat(uplink), from.max(not_before));
    }

    /// Sets the heartbeat timers of all uplinks by their present traffic.
    pub(super) fn schedule_heartbeats(&mut self, now: Time) {
        for uplink in 0..self.uplinks.len() {
            if !self.uplinks[uplink].path.liveness.has_no_outstanding_heartbeat() {
                if self.heartbeat_path(uplink).is_some() {
                    continue;
                }
                self.uplinks[uplink].path.liveness.remove_outstanding_heartbeats();
            }
            self.schedule_heartbeat(now, uplink, now);
        }
    }

    /// Handles the heartbeat timer of an uplink: a heartbeat was lost, or the next one is due.
    pub(super) fn send_due_heartbeat(&mut self, now: Time, wall: WallTime, uplink: usize) {
        let Some(registration) = self.heartbeat_path(uplink) else { return };
        if self.uplinks.heartbeats.unsupported_until.is_some_and(|until| until <= now) {
            self.uplinks.heartbeats.unsupported_until = None;
        }
        if self.uplinks.heartbeats.unsupported_until.is_some() {
            // The Binding Update also refreshes the NAT's mapping, so it replaces a keepalive (RFC 5555
            // 4.3).
            self.uplinks[uplink].path.liveness.record_sending_time(now);
            self.send_update_as_keepalive(now, wall, uplink);
            self.schedule_heartbeat(now, uplink, now);
            return;
        }
        let path = &mut self.uplinks[uplink].path;
        let patience = path.answer_timeout();
        let newly = path.liveness.mark_overdue_heartbeats(now, patience);
        let late = path.late_time();
        let is_late = path.liveness.is_answer_late(now, late);
        if is_late
            && path.liveness.missed_in_a_row() == newly
            && path.liveness.unanswered_heartbeat_count() + newly == 1
        {
            self.send_heartbeats_on_other_paths(now, uplink);
        }
        let path = &mut self.uplinks[uplink].path;
        let (allowed, pause) = path.quick_heartbeat_series();
        let is_decided = path.liveness.missed_in_a_row() >= allowed && !path.liveness.has_failed();
        if is_decided && !path.path_packets.has_failed(now, patience) {
            // Packets still arrive although heartbeats are lost, so the path is full.
            path.path_packets.is_full = true;
            path.path_packets.is_doubtful = false;
            self.renew_on_saturated_path(now, uplink);
        } else if is_decided {
            self.handle_path_failure(now, uplink);
            self.reconcile_bindings(now, wall);
            self.demote_failed_uplink(now, wall, uplink);
            if self.heartbeat_path(uplink).is_none() {
                return;
            }
        }
        let path = &self.uplinks[uplink].path;
        let is_doubted = newly > 0 && path.liveness.missed_in_a_row() == LOSSES_BEFORE_NAT_DOUBT;
        if is_doubted && registration.uses_udp && !path.liveness.has_failed() {
            // After the NAT has lost its mapping no answers arrive, as on a failed path. But a Binding
            // Update creates a new mapping.
            if self.uplinks.heartbeats.are_heartbeats_rare() {
                self.uplinks[uplink].path.shorten_keepalive();
            }
            self.send_update_as_keepalive(now, wall, uplink);
        }
        let interval = self.heartbeat_interval(uplink).unwrap_or(KEEPALIVE_RANGE.0);
        let path = &self.uplinks[uplink].path;
        // The short pause applies only while quick heartbeats decide whether the path has failed.
        let suspicious = path.liveness.missed_in_a_row() > 0 || is_late || path.path_packets.is_doubtful;
        let is_series =
            suspicious && !is_decided && !path.liveness.has_failed() && !path.path_packets.is_full;
        let gap = if is_series { pause } else { interval };
        let timing = IntervalSchedule {
            interval: gap,
            is_quick_series: is_series,
            late_time: late,
            answer_timeout: patience,
            max_missed: allowed,
        };
        let has_enough = path.liveness.has_sent_enough_heartbeats(&timing);
        if !has_enough && path.liveness.is_due(now, &timing) {
            self.send_heartbeat(now, uplink, registration);
        }
        let next = self.uplinks[uplink].path.liveness.next_check_at(now, &timing, has_enough);
        self.timers.set_deadline(MobileRouterTimer::Heartbeat(uplink), next);
    }

    /// Sends heartbeats over the paths that may have to replace a path whose answer is late.
    pub(super) fn send_heartbeats_on_other_paths(&mut self, now: Time, uplink: usize) {
        for other in 0..self.uplinks.len() {
            let path = &mut self.uplinks[other].path;
            if other != uplink
                && path.liveness.has_no_outstanding_heartbeat()
                && self.timers.get(MobileRouterTimer::Heartbeat(other)).is_some()
            {
                path.liveness.make_next_heartbeat_due(now, QUICK_HEARTBEAT_PAUSE);
                self.timers.set_deadline(MobileRouterTimer::Heartbeat(other), now);
            }
        }
    }

    fn send_heartbeat(&mut self, now: Time, uplink: usize, registration: Registration) {
        let path = &mut self.uplinks[uplink].path;
        path.sequence = path.sequence.wrapping_add(1);
        let sequence = path.sequence;
        let mut mobility_header = MobilityHeaderBuilder::heartbeat_request(sequence).finish();
        let output =
            self.message_composer().build_heartbeat_packet(uplink, registration, &mut mobility_header);
        let path = &mut self.uplinks[uplink].path;
        path.liveness.record_sent_heartbeat(now, sequence);
        self.outputs.push_back(output);
    }

    /// Handles a Heartbeat request (RFC 5847 3: "MUST respond").
    pub(super) fn answer_heartbeat(
        &mut self,
        now: Time,
        message: &MobilityMessage<'_>,
        sequence: u32,
    ) -> Result<(), MobilityDrop> {
        let came_to = message.tunnel_ends.map_or(Endpoint::Ipv6(message.destination), |(local, _)| local);
        let paths = (0..self.uplinks.len()).filter_map(|uplink| Some((uplink, self.heartbeat_path(uplink)?)));
        let by = paths.into_iter().find(|(uplink, registration)| {
            self.message_composer().local_tunnel_end(*uplink, registration) == came_to
        });
        let (uplink, registration) = by.ok_or(MobilityDrop::Unexpected)?;
        if !self.uplinks.heartbeats.answer_limit.try_take_token(now) {
            return Err(MobilityDrop::RateLimited);
        }
        let mut mobility_header = MobilityHeaderBuilder::heartbeat_response(sequence).finish();
        let output =
            self.message_composer().build_heartbeat_packet(uplink, registration, &mut mobility_header);
        self.outputs.push_back(output);
        Ok(())
    }

    /// Handles a Heartbeat response. It counts for a path only if it came over that path.
    pub(super) fn handle_heartbeat_answer(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        sequence: u32,
        restart_counter: Option<u32>,
    ) -> Result<(), MobilityDrop> {
        let came_to = message.tunnel_ends.map_or(Endpoint::Ipv6(message.destination), |(local, _)| local);
        let by = |uplink: usize| {
            self.heartbeat_path(uplink)
                .is_some_and(|r| self.message_composer().local_tunnel_end(uplink, &r) == came_to)
        };
        let waits = |path: &PathState| path.liveness.awaits_answer_to(sequence);
        let find = |waits: &dyn Fn(&PathState) -> bool| {
            (0..self.uplinks.len()).find(|&uplink| waits(&self.uplinks[uplink].path) && by(uplink))
        };
        if find(&|path| path.denied_heartbeats.contains(&sequence)).is_some() {
            // The answer shows that another sender had forged the Binding Error.
            self.uplinks.heartbeats.unsupported_until = None;
            for path in self.uplinks.paths_mut() {
                path.denied_heartbeats.clear();
            }
            self.schedule_heartbeats(now);
            return Ok(());
        }
        let uplink = find(&waits).ok_or(MobilityDrop::Unexpected)?;
        let path = &mut self.uplinks[uplink].path;
        let answer = path.liveness.handle_answer(now, sequence).ok_or(MobilityDrop::Unexpected)?;
        path.round_trips.record_round_trip(now, answer.round_trip);
        let was_full = path.path_packets.is_full;
        path.path_packets.record_answer(now, Some(answer.round_trip), path.round_trips.shortest_round_trip());
        let is_full_now = path.path_packets.is_full && !was_full;
        if path.failed_at.is_some_and(|at| now.saturating_since(at) >= HOLD_DOWN_RESET_TIME) {
            path.failure_count = 0;
        }
        let nat = self.heartbeat_path(uplink).filter(|registration| registration.uses_udp);
        let heartbeats = &self.uplinks.heartbeats;
        let is_idle =
            heartbeats.are_heartbeats_rare() && (heartbeats.config.is_none() || !self.is_busy(uplink));
        if let Some(registration) = nat.filter(|_| is_idle)
            && self.uplinks[uplink].path.path_address == Some((registration.care_of_address, true))
        {
            self.uplinks[uplink].path.lengthen_keepalive();
        }
        // RFC 5847 3.2: a changed counter shows that the home agent has lost the bindings.
        let before = self.uplinks.heartbeats.restart_counter;
        self.uplinks.heartbeats.restart_counter = restart_counter.or(before);
        if before.is_some_and(|before| restart_counter.is_some_and(|counter| counter != before)) {
            // The counter has no authentication, so it is only a hint.
            let _ = self.handle_binding_loss_hint(now, wall);
        }
        if answer.is_path_restored {
            if let Some((address, _)) = self.uplinks[uplink].path.path_address {
                self.uplinks[uplink].record_recovered_candidate(address, &self.config);
                self.set_candidate_timer(now, uplink);
            }
            // The other uplinks need not wait any longer: all uplinks had failed, and one of them now works
            // again.
            for binding in &mut self.binding_update_list.identified_entries {
                binding.resume_request(now);
            }
        }
        if is_full_now {
            self.renew_on_saturated_path(now, uplink);
        }
        if answer.is_path_restored || answer.is_proven {
            self.evaluate_uplinks(now, wall, "the home agent answers over a failed uplink again");
        }
        let path = &self.uplinks[uplink].path;
        let waits = path.liveness.oldest_sent_at().map(|at| at + path.answer_timeout());
        self.schedule_heartbeat(now, uplink, now);
        if let (Some(judged), Some(next)) = (waits, self.timers.get(MobileRouterTimer::Heartbeat(uplink))) {
            self.timers.set_deadline(MobileRouterTimer::Heartbeat(uplink), judged.min(next).max(now));
        }
        Ok(())
    }

    /// Handles a failure of the path over an uplink. The router removes its binding over another registered
    /// uplink that works.
    pub(super) fn handle_path_failure(&mut self, now: Time, uplink: usize) {
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        let since = path.failed_at.replace(now);
        path.failure_count = match since {
            Some(before) if now.saturating_since(before) < HOLD_DOWN_RESET_TIME => {
                path.failure_count.saturating_add(1)
            }
            _ => 0,
        };
        path.liveness.mark_failed();
        let hold = (HOLD_DOWN_RANGE.0 * 2_u32.pow(path.failure_count.min(8))).min(HOLD_DOWN_RANGE.1);
        let over = path.path_address;
        let name = self.uplinks[uplink].config.interface.clone();
        let reason = format!("no answer from the home agent over {name}");
        self.outputs.push_back(crate::Output::Event(Event::Warning { message: reason.clone() }));
        // Another address, router, IP version or encapsulation of the uplink may work, so the router tries
        // it at once.
        let rival = over.is_some_and(|(address, udp)| {
            if address.is_ipv4() && !udp && !self.uplinks[uplink].needs_udp {
                self.uplinks[uplink].needs_udp = true;
                return true;
            }
            if self.handle_failed_candidate(now, uplink, address) {
                return true;
            }
            self.retry_return_home_early(now, uplink);
            let link = &mut self.uplinks[uplink];
            let rival = link.care_of_addresses().iter().any(|other| other.is_ipv6() != address.is_ipv6());
            if rival && link.unanswered_address != Some(address) {
                link.unanswered_address = Some(address);
                return true;
            }
            false
        });
        if let Some(index) =
            self.binding_update_list.entry_of_uplink(uplink).filter(|_| self.uses_binding_identifiers())
        {
            if self.binding_update_list.is_other_uplink_working(&self.uplinks, uplink) {
                self.reported_handovers.last_change = Some((now, reason.clone()));
                self.binding_update_list.end_binding(now, index);
                self.set_grace_timer();
                self.binding_update_list.identified_entries[index].is_request_due_again = true;
                self.binding_update_list.identified_entries[index].registration_exchange =
                    (!rival).then(|| Exchange::new_held_until(now + hold));
            } else if self.binding_update_list.identified_entries[index].outstanding_request().is_none() {
                self.binding_update_list.identified_entries[index].is_request_due_again = true;
            }
            self.timers.set_deadline(MobileRouterTimer::Bindings, now);
        }
        self.report_forwarding_change(&reason);
    }

    /// Avoids the failed uplink and registers the next one, if bindings have no identifiers.
    fn demote_failed_uplink(&mut self, now: Time, wall: WallTime, uplink: usize) {
        if self.uses_binding_identifiers()
            || self.uplinks.target_uplink != Some(uplink)
            || self.binding_update_list.entry_without_identifier.registration_exchange.is_some()
        {
            return;
        }
        let others = (0..self.uplinks.len())
            .any(|other| other != uplink && !self.uplinks[other].care_of_addresses().is_empty());
        if others
            && self.uplinks.forced_uplink != Some(uplink)
            && self.uplinks.demoted_until(uplink).is_none()
        {
            self.demote_uplink(now, wall, uplink, INITIAL_BINDACK_TIMEOUT);
        } else {
            self.binding_update_list.entry_without_identifier.is_request_due_again = true;
            self.evaluate_uplinks(now, wall, "no answer from the home agent");
        }
    }

    /// Handles a Binding Error with status 2: the home agent does not support heartbeats (RFC 5847 3).
    pub(super) fn handle_unsupported_heartbeats(&mut self, now: Time) -> Result<(), MobilityDrop> {
        // The error has no authentication. So the router believes it only if the home agent has not
        // answered heartbeats before, or is silent on every path. Otherwise an attacker could make failed
        // paths count as working.
        let lives = |uplink: usize| {
            let path = &self.uplinks[uplink].path;
            path.liveness.has_answered()
                && !path.liveness.has_failed()
                && self.heartbeat_path(uplink).is_some()
        };
        let doubted = |path: &PathState| {
            let liveness = &path.liveness;
            !liveness.has_no_outstanding_heartbeat() && (!liveness.has_answered() || liveness.has_failed())
        };
        if !self.uplinks.paths().any(doubted) || (0..self.uplinks.len()).any(lives) {
            return Err(MobilityDrop::Unexpected);
        }
        self.uplinks.heartbeats.unsupported_until = Some(now + UNSUPPORTED_RETRY_TIME);
        for path in self.uplinks.paths_mut() {
            path.denied_heartbeats = path.liveness.take_outstanding_heartbeats();
            path.liveness.reset_to_initial();
        }
        self.schedule_heartbeats(now);
        Ok(())
    }

    /// Returns whether the uplink no longer has the care-of address of the path.
    pub(super) fn has_lost_path_address(&self, uplink: usize) -> bool {
        let over = self.uplinks.path(uplink).and_then(|path| path.path_address);
        over.is_some_and(|(address, _)| !self.uplinks[uplink].has_care_of_address(address))
    }

    /// Clears the state of a path when its uplink has another care-of address.
    pub(super) fn handle_moved_path(&mut self, uplink: usize) {
        self.timers.stop_timer(MobileRouterTimer::Ipv6(uplink));
        if let Some(path) = self.uplinks.path_mut(uplink) {
            let PathState { failure_count: failures, failed_at, sequence, .. } = *path;
            *path = PathState { failure_count: failures, failed_at, ..PathState::new(sequence) };
        }
    }

    /// Returns whether an uplink carries its full capacity, so that packets wait in a queue. Only heartbeats
    /// detect this.
    pub fn is_path_saturated(&self, uplink: usize) -> bool {
        self.uplinks.is_path_saturated(uplink)
    }

    /// Renews the registration of a full uplink earlier than planned.
    pub(super) fn renew_on_saturated_path(&mut self, now: Time, uplink: usize) {
        let is_multiple = self.uses_binding_identifiers();
        let of_binding = self.binding_update_list.entry_of_uplink(uplink).filter(|_| is_multiple);
        let plain = self
            .binding_update_list
            .entry_without_identifier
            .registration
            .filter(|registration| !is_multiple && registration.uplink == uplink);
        let (timer, registration) = match of_binding {
            Some(index) => {
                (MobileRouterTimer::Bindings, self.binding_update_list.identified_entries[index].registration)
            }
            None => (MobileRouterTimer::Refresh, plain),
        };
        let Some(registration) = registration else { return };
        let due = registration.renew_at(true);
        if self.timers.get(timer).is_some_and(|at| at > due) {
            self.timers.set_deadline(timer, due.max(now));
        }
    }

    /// Takes over the station's counts of tunnelled packets for each uplink. Call it before
    /// [`Self::handle_timeout`].
    pub fn handle_traffic(&mut self, now: Time, counts: impl IntoIterator<Item = (usize, PathTraffic)>) {
        for (uplink, counts) in counts {
            let is_watched =
                self.uplinks.heartbeats.are_heartbeats_sent() && self.heartbeat_path(uplink).is_some();
            let Some(path) = self.uplinks.path_mut(uplink) else { continue };
            let is_doubtful = path.path_packets.update_counts(now, counts);
            if is_doubtful && is_watched && !path.liveness.has_failed() {
                path.path_packets.is_doubtful = true;
                self.send_heartbeats_on_other_paths(now, uplink);
                self.timers.set_deadline(MobileRouterTimer::Heartbeat(uplink), now);
            } else {
                path.path_packets.is_doubtful &= is_watched && !path.liveness.has_failed();
            }
        }
        let pause = self.next_sample_pause();
        match pause.map(|pause| now + pause) {
            Some(next) if self.timers.get(MobileRouterTimer::Traffic).is_none_or(|at| at > next) => {
                self.timers.set_deadline(MobileRouterTimer::Traffic, next);
            }
            Some(_) => {}
            None => self.timers.stop_timer(MobileRouterTimer::Traffic),
        }
    }

    /// Handles the timer of the packet counts.
    pub(super) fn sample_traffic(&mut self, now: Time) {
        if let Some(pause) = self.next_sample_pause() {
            self.timers.set_deadline(MobileRouterTimer::Traffic, now + pause);
        }
    }

    /// Returns the time until the next check of the packet counts; `None` if no path has continuous traffic.
    fn next_sample_pause(&self) -> Option<Duration> {
        let liveness =
            self.uplinks.heartbeats.config.filter(|_| self.uplinks.heartbeats.are_heartbeats_sent())?;
        let flows = self.uplinks.paths().any(|path| path.path_packets.has_steady_arrivals());
        Some(if flows { SAMPLE_INTERVAL } else { liveness.busy_interval.max(SAMPLE_INTERVAL) })
    }

    /// Handles the report that a packet reached the home agent from another address or port than the
    /// registered one, because the NAT's mapping has changed.
    pub(in crate::mobile_router) fn mappings_lost(&mut self, message: &MobilityMessage<'_>) {
        let Some((local, _)) = message.tunnel_ends else { return };
        let uplink = (0..self.uplinks.len()).find(|&uplink| {
            self.heartbeat_path(uplink)
                .is_some_and(|r| r.uses_udp && self.message_composer().local_tunnel_end(uplink, &r) == local)
        });
        if let Some(uplink) = uplink {
            self.uplinks[uplink].path.shorten_keepalive();
        }
    }

    /// Sends a Binding Update as a keepalive, if the router is behind a NAT and the home agent does not
    /// support heartbeats.
    pub(super) fn send_update_as_keepalive(&mut self, now: Time, wall: WallTime, uplink: usize) {
        match self.binding_update_list.entry_of_uplink(uplink).filter(|_| self.uses_binding_identifiers()) {
            Some(index) => {
                self.binding_update_list.identified_entries[index].is_request_due_again = true;
                self.reconcile_bindings(now, wall);
            }
            None => self.renew_registration(now, wall),
        }
    }

    /// Records a Binding Update over an uplink, which also is a keepalive.
    pub(super) fn record_sent_update(&mut self, now: Time, uplink: usize) {
        let is_rare = self.uplinks.heartbeats.are_heartbeats_rare();
        if let Some(path) = self.uplinks.path_mut(uplink).filter(|_| is_rare) {
            path.record_sent_update(now);
        }
    }
}
