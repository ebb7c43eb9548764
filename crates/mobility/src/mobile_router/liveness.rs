//! Whether an uplink that is up leads anywhere: heartbeats towards the home agent (RFC 5847).
//!
//! A Heartbeat request leaves from every registered care-of address the way data leaves from there, more
//! often where data goes. One that stays unanswered for longer than round trips take draws a quick series of
//! more at once, so that no time is lost in which TCP's timeout doubles; when all of these are missed, for
//! which there is more patience, the path has failed: its binding is ended over another uplink, traffic
//! moves, and the uplink is registered again, and again with less and less haste when it keeps failing. An
//! uplink that has come back so carries traffic once a few heartbeats in a row were answered. Where it is the
//! only one, it goes on being used.
//!
//! Each path's loss, round-trip time and jitter come of the same. RFC 5847 3 recommends no less than 30 s
//! between requests, for nodes that stay where they are; here the interval is the operator's. A home agent
//! that knows no heartbeats says so by a Binding Error (status 2) and is asked again much later.
//!
//! Behind a NAT a heartbeat is the keepalive of RFC 5555 4.3 as well: the home agent, which finds it coming
//! from elsewhere than was registered, answers with a Binding Error, upon which the router registers at once;
//! see `keepalives`.
//!
//! A home agent that asks in its turn is answered, by the path that it asked by. Left out there: a restart
//! counter, for a router that has lost its state registers anew.

mod keepalives;

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{Endpoint, RateLimiter, Time, WallTime};
use carnet_wire::mobility::Builder;

use super::arrivals::{
    Arrivals, DOUBTED_ALLOWED, DOUBTED_PATIENCE, DOUBTED_PAUSE, FULL_INTERVAL, PathTraffic, SAMPLE,
};
use super::capacity::RoundTrips;
use super::{MobileRouter, Registration, Timer};
use crate::binding_update_list::refresh_after;
use crate::path_liveness::{PathLiveness, Proof, RoundTrip, Timing};
use crate::{Event, MobilityDrop, MobilityMessage};

/// How often, and how long, heartbeats are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// Between two on a path that carries traffic.
    pub busy: Duration,
    /// Between two on any other.
    pub idle: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Liveness { busy: Duration::from_millis(250), idle: Duration::from_secs(1) }
    }
}

/// A failed path is one that so many in a row were lost on (`MISSING_HEARTBEATS_ALLOWED`, RFC 5847 5, is 3
/// there).
const ALLOWED: usize = 5;
/// Between the quick ones that follow one whose answer is late.
const SUSPICION: Duration = Duration::from_millis(50);
/// An answer is late after this at least. Then more are asked for; nothing is missed yet.
const LATE: Duration = Duration::from_millis(40);
/// How long an answer may take at least and at most, and while nothing is known.
const PATIENCE: (Duration, Duration, Duration) =
    (Duration::from_millis(120), Duration::from_millis(700), Duration::from_millis(300));
/// Behind a NAT, so many lost in a row and a Binding Update tells the home agent the mapping.
const NAT_DOUBT: usize = 2;
/// An uplink that has failed is registered again after this long at first; doubles up to the second.
const HOLD_DOWN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// An uplink that lived so long has not failed before.
const FORGIVEN: Duration = Duration::from_secs(120);
/// How long a home agent without heartbeats is left in peace.
const UNSUPPORTED: Duration = Duration::from_secs(600);
/// Keepalives behind a NAT: the first interval, the step, and the longest (`NATKATIMEOUT`, RFC 5555 6).
const KEEPALIVE: (Duration, Duration, Duration) =
    (Duration::from_secs(25), Duration::from_secs(10), Duration::from_secs(110));
/// The shortest interval that is tried.
const MIN_KEEPALIVE: Duration = Duration::from_secs(5);

/// Figures of one uplink's path, of the last 64 heartbeats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean difference between one round trip and the next (RFC 3550 6.4.1).
    pub jitter: Duration,
    /// The part of the heartbeats that was not answered, 0 to 1.
    pub loss: f64,
}

/// Path over one uplink.
#[derive(Debug, Clone)]
pub(super) struct PathState {
    /// The care-of address that this is about, and whether in UDP.
    over: Option<(IpAddr, bool)>,
    pub(super) liveness: PathLiveness<u32>,
    failures: u32,
    failed_at: Option<Time>,
    /// Behind a NAT: between keepalives, and an interval that was too long.
    keepalive: Option<Duration>,
    too_long: Option<Duration>,
    /// Between two attempts over IPv6 where IPv4 carries the uplink, and when the last was.
    pub(super) ipv6_interval: Option<Duration>,
    pub(super) ipv6_tried_at: Option<Time>,
    /// Those without an answer when it was said that the home agent knows none: an answer proves that wrong.
    denied: Vec<u32>,
    pub(super) trips: RoundTrips,
    pub(super) arrivals: Arrivals,
    /// Number of the last heartbeat. Each path counts for itself, from a random number. So a listener on one
    /// path does not know the numbers of another, and cannot answer there in place of the home agent.
    sequence: u32,
}

impl PathState {
    pub(super) fn new(sequence: u32) -> PathState {
        PathState {
            over: None,
            liveness: PathLiveness::new(Proof::default(), RoundTrip::following_queues()),
            failures: 0,
            failed_at: None,
            keepalive: None,
            too_long: None,
            ipv6_interval: None,
            ipv6_tried_at: None,
            denied: Vec::new(),
            trips: RoundTrips::default(),
            arrivals: Arrivals::default(),
            sequence,
        }
    }

    /// When an answer has taken longer than answers take (RFC 6298 2).
    fn late(&self) -> Duration {
        self.liveness.round_trip().timeout().unwrap_or(PATIENCE.2).clamp(LATE, PATIENCE.1)
    }

    /// When an answer is not waited for any longer.
    pub(super) fn patience(&self) -> Duration {
        self.late().max(if self.arrivals.is_doubtful { DOUBTED_PATIENCE } else { PATIENCE.0 })
    }

    /// How many may be lost in a row, and the pause between those of a series.
    fn series(&self) -> (usize, Duration) {
        if self.arrivals.is_doubtful { (DOUBTED_ALLOWED, DOUBTED_PAUSE) } else { (ALLOWED, SUSPICION) }
    }

    /// Whether a heartbeat that was sent since then should have been answered by now.
    pub(super) fn is_unanswered_since(&self, now: Time, since: Time) -> bool {
        let due = self.liveness.round_trip().smoothed().unwrap_or(PATIENCE.2);
        self.liveness.is_unanswered_since(now, since, due)
    }

    fn quality(&self) -> Option<Quality> {
        let round_trip = self.liveness.round_trip();
        let rtt = round_trip.smoothed()?;
        Some(Quality { rtt, jitter: round_trip.jitter(), loss: self.liveness.loss() })
    }

    /// Returns how long answers take at most, if that was measured.
    pub(super) fn answer_time(&self) -> Option<Duration> {
        self.liveness.round_trip().smoothed().map(|_| self.late())
    }

    /// Whether packets or answers arrive, so that the path has not failed.
    pub(super) fn is_alive(&self, now: Time) -> bool {
        !self.arrivals.has_failed(now, self.patience())
    }
}

/// Heartbeats as far as all paths to a home agent have them in common.
#[derive(Debug)]
pub(super) struct Heartbeats {
    /// How often they are sent; never if absent.
    pub(super) config: Option<Liveness>,
    /// The home agent's Restart Counter (RFC 5847 3.2).
    restart_counter: Option<u32>,
    /// Until when no heartbeat is sent, because the home agent knows none.
    pub(super) unknown_until: Option<Time>,
    /// Limit of the answers to Heartbeat requests, which nothing authenticates.
    answers: RateLimiter,
}

impl Heartbeats {
    /// Heartbeats to a home agent that may know them.
    pub(super) fn new(config: Option<Liveness>) -> Heartbeats {
        Heartbeats {
            config,
            restart_counter: None,
            unknown_until: None,
            answers: RateLimiter::new(100, Duration::from_millis(10)),
        }
    }

    /// Whether keepalives behind a NAT are more frequent than heartbeats on an idle path.
    fn are_rare(&self) -> bool {
        self.config.is_none_or(|it| it.idle >= KEEPALIVE.0)
    }

    /// Whether heartbeats tell which paths live.
    pub(super) fn are_sent(&self) -> bool {
        self.config.is_some() && self.unknown_until.is_none()
    }
}

impl MobileRouter {
    /// Returns the figures that heartbeats have measured over an uplink.
    pub fn quality(&self, uplink: usize) -> Option<Quality> {
        self.uplinks.path(uplink)?.quality()
    }

    /// Whether an uplink that is up has been found to lead nowhere.
    pub fn is_silent(&self, uplink: usize) -> bool {
        self.uplinks.is_silent(uplink)
    }

    /// The path over an uplink is registered, for the first time or with another care-of address unless
    /// `same`.
    pub(super) fn path_registered(
        &mut self,
        now: Time,
        uplink: usize,
        registration: Registration,
        same: bool,
    ) {
        let is_probing = self.uplinks.heartbeats.are_sent();
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        path.judge_ipv6_attempt(now);
        let over = Some((registration.care_of_address, registration.udp));
        if path.over != over || !same {
            path.over = over;
            path.liveness.restart();
            path.arrivals.moved();
            path.too_long = path.too_long.filter(|_| same);
            path.keepalive = path.keepalive.filter(|_| same);
        }
        path.liveness.show(is_probing);
        path.arrivals.answered(now, None, None);
        match self.uplinks[uplink].next_ipv6_attempt(now, registration.care_of_address) {
            Some(at) if self.timers.get(Timer::Ipv6(uplink)).is_none() => {
                self.timers.set(Timer::Ipv6(uplink), at);
            }
            Some(_) => {}
            None => self.timers.stop(Timer::Ipv6(uplink)),
        }
        self.schedule_heartbeat(now, uplink, now);
    }

    /// An acknowledgement has come over an uplink. Where no heartbeat measures the round trip, that does;
    /// `took` is absent if the home agent may have waited before it answered.
    pub(super) fn path_answered(&mut self, now: Time, uplink: usize, took: Option<Duration>) {
        let heartbeats = self.uplinks.heartbeats.are_sent();
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        path.judge_ipv6_attempt(now);
        let round_trip = path.liveness.round_trip_mut();
        if let Some(took) = took.filter(|_| round_trip.smoothed().is_none() || !heartbeats) {
            round_trip.measure(took);
        }
        // Their answers may still come, behind a queue, and say that the path is alive.
        path.liveness.excuse();
        path.arrivals.answered(now, None, None);
    }

    /// The registration whose path over an uplink heartbeats are for.
    pub(super) fn heartbeat_path(&self, uplink: usize) -> Option<Registration> {
        if self.stopping || self.home.at_home || self.refusals.status.is_some() {
            return None;
        }
        let of_binding =
            self.list.binding_of(uplink).and_then(|index| self.list.bindings[index].registration);
        let plain =
            self.list.registration.filter(|r| self.uplinks[uplink].has_care_of_address(r.care_of_address));
        let registration = of_binding.or(plain)?;
        self.uplinks[uplink].has_care_of_address(registration.care_of_address).then_some(registration)
    }

    /// Between two heartbeats on an uplink; `None` for none.
    fn heartbeat_interval(&self, uplink: usize) -> Option<Duration> {
        let registration = self.heartbeat_path(uplink)?;
        let path = self.uplinks.path(uplink)?;
        let keepalive = registration.udp.then(|| path.keepalive_interval());
        if self.uplinks.heartbeats.unknown_until.is_some() {
            return keepalive.map(|_| KEEPALIVE.0);
        }
        let busy = self.is_busy(uplink) || path.liveness.is_proving();
        let liveness = self.uplinks.heartbeats.config.map(|it| if busy { it.busy } else { it.idle });
        // Of those on a full path many are lost.
        let full = path.arrivals.is_full && busy && !path.liveness.has_failed();
        let liveness = liveness.map(|interval| if full { interval.min(FULL_INTERVAL) } else { interval });
        liveness.into_iter().chain(keepalive).min()
    }

    /// Whether an uplink carries traffic: the best one, and those that policies name.
    fn is_busy(&self, uplink: usize) -> bool {
        self.active_uplink() == Some(uplink)
            || self.flows.effective.iter().any(|flow| {
                let bid = self.uplinks[uplink].config.bid;
                let used = if flow.action == crate::flow::FlowAction::Failover { 1 } else { flow.bids.len() };
                flow.bids.iter().take(used).any(|(other, _)| Some(*other) == bid)
            })
    }

    fn schedule_heartbeat(&mut self, now: Time, uplink: usize, not_before: Time) {
        let Some(interval) = self.heartbeat_interval(uplink) else {
            match self.uplinks.heartbeats.unknown_until.filter(|_| self.uplinks.heartbeats.config.is_some()) {
                Some(until) => self.timers.set(Timer::Heartbeat(uplink), until.max(not_before)),
                None => self.timers.stop(Timer::Heartbeat(uplink)),
            }
            return;
        };
        let Some(path) = self.uplinks.path(uplink) else { return };
        let from = path.liveness.last_sent().map_or(now, |sent| sent + interval);
        self.timers.set(Timer::Heartbeat(uplink), from.max(not_before));
    }

    /// Sets the timers of all uplinks by what they carry now.
    pub(super) fn schedule_heartbeats(&mut self, now: Time) {
        for uplink in 0..self.uplinks.len() {
            if !self.uplinks[uplink].path.liveness.is_quiet() {
                if self.heartbeat_path(uplink).is_some() {
                    continue;
                }
                self.uplinks[uplink].path.liveness.forget();
            }
            self.schedule_heartbeat(now, uplink, now);
        }
    }

    /// The timer of an uplink: something was missed, or the next is due.
    pub(super) fn heartbeat_due(&mut self, now: Time, wall: WallTime, uplink: usize) {
        let Some(registration) = self.heartbeat_path(uplink) else { return };
        if self.uplinks.heartbeats.unknown_until.is_some_and(|until| until <= now) {
            self.uplinks.heartbeats.unknown_until = None;
        }
        if self.uplinks.heartbeats.unknown_until.is_some() {
            // The keepalive of RFC 5555 4.3 then: a Binding Update.
            self.uplinks[uplink].path.liveness.note_sent(now);
            self.keepalive_by_update(now, wall, uplink);
            self.schedule_heartbeat(now, uplink, now);
            return;
        }
        let path = &mut self.uplinks[uplink].path;
        let patience = path.patience();
        let newly = path.liveness.expire(now, patience);
        let late = path.late();
        let is_late = path.liveness.is_late(now, late);
        if is_late && path.liveness.missed() == newly && path.liveness.open() + newly == 1 {
            self.ask_the_others(now, uplink);
        }
        let path = &mut self.uplinks[uplink].path;
        let (allowed, pause) = path.series();
        let is_decided = path.liveness.missed() >= allowed && !path.liveness.has_failed();
        if is_decided && !path.arrivals.has_failed(now, patience) {
            // Deliveries go on.
            path.arrivals.is_full = true;
            path.arrivals.is_doubtful = false;
            self.renew_while_full(now, uplink);
        } else if is_decided {
            self.path_failed(now, uplink);
            self.reconcile(now, wall);
            self.demote_failed(now, wall, uplink);
            if self.heartbeat_path(uplink).is_none() {
                return;
            }
        }
        let path = &self.uplinks[uplink].path;
        let is_doubted = newly > 0 && path.liveness.missed() == NAT_DOUBT;
        if is_doubted && registration.udp && !path.liveness.has_failed() {
            // A NAT that has forgotten us is as silent as a path that leads nowhere, but a Binding Update
            // mends it.
            if self.uplinks.heartbeats.are_rare() {
                self.uplinks[uplink].path.mapping_lost();
            }
            self.keepalive_by_update(now, wall, uplink);
        }
        let interval = self.heartbeat_interval(uplink).unwrap_or(KEEPALIVE.0);
        let path = &self.uplinks[uplink].path;
        // In a series: until it is decided. Afterwards, and before, at the interval.
        let suspicious = path.liveness.missed() > 0 || is_late || path.arrivals.is_doubtful;
        let is_series = suspicious && !is_decided && !path.liveness.has_failed() && !path.arrivals.is_full;
        let gap = if is_series { pause } else { interval };
        let timing = Timing { gap, is_series, late, patience, allowed };
        let has_enough = path.liveness.has_enough(&timing);
        if !has_enough && path.liveness.is_due(now, &timing) {
            self.send_heartbeat(now, uplink, registration);
        }
        let next = self.uplinks[uplink].path.liveness.next(now, &timing, has_enough);
        self.timers.set(Timer::Heartbeat(uplink), next);
    }

    /// An answer is late on one path: those that may have to take over are asked before they do.
    pub(super) fn ask_the_others(&mut self, now: Time, uplink: usize) {
        for other in 0..self.uplinks.len() {
            let path = &mut self.uplinks[other].path;
            if other != uplink
                && path.liveness.is_quiet()
                && self.timers.get(Timer::Heartbeat(other)).is_some()
            {
                path.liveness.hasten(now, SUSPICION);
                self.timers.set(Timer::Heartbeat(other), now);
            }
        }
    }

    fn send_heartbeat(&mut self, now: Time, uplink: usize, registration: Registration) {
        let path = &mut self.uplinks[uplink].path;
        path.sequence = path.sequence.wrapping_add(1);
        let sequence = path.sequence;
        let mut mobility_header = Builder::heartbeat_request(sequence).finish();
        let output = self.composer().heartbeat_packet(uplink, registration, &mut mobility_header);
        let path = &mut self.uplinks[uplink].path;
        path.liveness.sent(now, sequence);
        self.outputs.push_back(output);
    }

    /// A Heartbeat request (RFC 5847 3: "MUST respond").
    pub(super) fn heartbeat_asked(
        &mut self,
        now: Time,
        message: &MobilityMessage<'_>,
        sequence: u32,
    ) -> Result<(), MobilityDrop> {
        let came_to = message.outer.map_or(Endpoint::Ipv6(message.destination), |(local, _)| local);
        let paths = (0..self.uplinks.len()).filter_map(|uplink| Some((uplink, self.heartbeat_path(uplink)?)));
        let by = paths
            .into_iter()
            .find(|(uplink, registration)| self.composer().local_end(*uplink, registration) == came_to);
        let (uplink, registration) = by.ok_or(MobilityDrop::Unexpected)?;
        if !self.uplinks.heartbeats.answers.allow(now) {
            return Err(MobilityDrop::RateLimited);
        }
        let mut mobility_header = Builder::heartbeat_response(sequence).finish();
        let output = self.composer().heartbeat_packet(uplink, registration, &mut mobility_header);
        self.outputs.push_back(output);
        Ok(())
    }

    /// A Heartbeat response. It says something about a path only where it has come by that path.
    pub(super) fn heartbeat_answered(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        sequence: u32,
        restart_counter: Option<u32>,
    ) -> Result<(), MobilityDrop> {
        let came_to = message.outer.map_or(Endpoint::Ipv6(message.destination), |(local, _)| local);
        let by = |uplink: usize| {
            self.heartbeat_path(uplink).is_some_and(|r| self.composer().local_end(uplink, &r) == came_to)
        };
        let waits = |path: &PathState| path.liveness.awaits(sequence);
        let find = |waits: &dyn Fn(&PathState) -> bool| {
            (0..self.uplinks.len()).find(|&uplink| waits(&self.uplinks[uplink].path) && by(uplink))
        };
        if find(&|path| path.denied.contains(&sequence)).is_some() {
            // Whoever said that the home agent knows no heartbeats was somebody else.
            self.uplinks.heartbeats.unknown_until = None;
            for path in self.uplinks.paths_mut() {
                path.denied.clear();
            }
            self.schedule_heartbeats(now);
            return Ok(());
        }
        let uplink = find(&waits).ok_or(MobilityDrop::Unexpected)?;
        let path = &mut self.uplinks[uplink].path;
        let answer = path.liveness.answer(now, sequence).ok_or(MobilityDrop::Unexpected)?;
        path.trips.note(now, answer.round_trip);
        let was_full = path.arrivals.is_full;
        path.arrivals.answered(now, Some(answer.round_trip), path.trips.least());
        let is_full_now = path.arrivals.is_full && !was_full;
        if path.failed_at.is_some_and(|at| now.saturating_since(at) >= FORGIVEN) {
            path.failures = 0;
        }
        let nat = self.heartbeat_path(uplink).filter(|registration| registration.udp);
        let heartbeats = &self.uplinks.heartbeats;
        let is_idle = heartbeats.are_rare() && (heartbeats.config.is_none() || !self.is_busy(uplink));
        if let Some(registration) = nat.filter(|_| is_idle)
            && self.uplinks[uplink].path.over == Some((registration.care_of_address, true))
        {
            self.uplinks[uplink].path.keepalive_answered();
        }
        // RFC 5847 3.2: another counter, and the home agent has lost our bindings.
        let before = self.uplinks.heartbeats.restart_counter;
        self.uplinks.heartbeats.restart_counter = restart_counter.or(before);
        if before.is_some_and(|before| restart_counter.is_some_and(|counter| counter != before)) {
            // Not authenticated, and no more than a hint.
            let _ = self.hint(now, wall);
        }
        if answer.came_back {
            // The only uplink, and with it the home agent, is back: the others have their chance as well.
            for binding in &mut self.list.bindings {
                binding.held_until = None;
                if let Some(attempt) = &mut binding.attempt {
                    attempt.next = attempt.next.min(now);
                }
            }
        }
        if is_full_now {
            self.renew_while_full(now, uplink);
        }
        if answer.came_back || answer.is_proven {
            self.evaluate(now, wall, "a silent uplink answers again");
        }
        let path = &self.uplinks[uplink].path;
        let waits = path.liveness.oldest_sent().map(|at| at + path.patience());
        self.schedule_heartbeat(now, uplink, now);
        if let (Some(judged), Some(next)) = (waits, self.timers.get(Timer::Heartbeat(uplink))) {
            self.timers.set(Timer::Heartbeat(uplink), judged.min(next).max(now));
        }
        Ok(())
    }

    /// The path over an uplink has failed. Where another is registered and lives, the home agent is told
    /// there.
    pub(super) fn path_failed(&mut self, now: Time, uplink: usize) {
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        let since = path.failed_at.replace(now);
        path.failures = match since {
            Some(before) if now.saturating_since(before) < FORGIVEN => path.failures.saturating_add(1),
            _ => 0,
        };
        path.liveness.fail();
        let hold = (HOLD_DOWN.0 * 2_u32.pow(path.failures.min(8))).min(HOLD_DOWN.1);
        let over = path.over;
        let name = self.uplinks[uplink].config.interface.clone();
        let reason = format!("no answer from the home agent over {name}");
        self.outputs.push_back(crate::Output::Event(Event::Warning { message: reason.clone() }));
        // Another address or router, another family, or another encapsulation may get through at once.
        let rival = over.is_some_and(|(address, udp)| {
            if address.is_ipv4() && !udp && !self.uplinks[uplink].needs_udp {
                self.uplinks[uplink].needs_udp = true;
                return true;
            }
            if self.candidate_failed(now, uplink, address) {
                return true;
            }
            let link = &mut self.uplinks[uplink];
            let rival = link.care_of_addresses().iter().any(|other| other.is_ipv6() != address.is_ipv6());
            if rival && link.lost != Some(address) {
                link.lost = Some(address);
                return true;
            }
            false
        });
        if let Some(index) = self.list.binding_of(uplink).filter(|_| self.is_multiple()) {
            if self.list.others_live(&self.uplinks, uplink) {
                self.handovers.reason = Some((now, reason.clone()));
                self.list.forget(now, index);
                self.watch_grace();
                self.list.bindings[index].again = true;
                self.list.bindings[index].held_until = (!rival).then_some(now + hold);
            } else if self.list.bindings[index].attempt.is_none() {
                self.list.bindings[index].again = true;
            }
            self.timers.set(Timer::Bindings, now);
        }
        self.forwarding_changed(&reason);
    }

    /// Without identifiers: the next uplink is registered instead.
    fn demote_failed(&mut self, now: Time, wall: WallTime, uplink: usize) {
        if self.is_multiple() || self.uplinks.target != Some(uplink) || self.list.exchange.is_some() {
            return;
        }
        let others = (0..self.uplinks.len())
            .any(|other| other != uplink && !self.uplinks[other].care_of_addresses().is_empty());
        if others && self.uplinks.forced != Some(uplink) && self.uplinks.demoted_until(uplink).is_none() {
            self.demote_uplink(now, wall, uplink, crate::binding_update_list::INITIAL_BINDACK_TIMEOUT);
        } else {
            self.list.doubtful = true;
            self.evaluate(now, wall, "no answer from the home agent");
        }
    }

    /// A Binding Error with status 2: the home agent knows no heartbeats (RFC 5847 3).
    pub(super) fn heartbeats_unknown(&mut self, now: Time) -> Result<(), MobilityDrop> {
        // Nothing authenticates it: one that has answered before is asked until it is silent, by every path;
        // or a stranger could bring those back that lead nowhere.
        let lives = |uplink: usize| {
            let path = &self.uplinks[uplink].path;
            path.liveness.has_answered()
                && !path.liveness.has_failed()
                && self.heartbeat_path(uplink).is_some()
        };
        let doubted = |path: &PathState| {
            let liveness = &path.liveness;
            !liveness.is_quiet() && (!liveness.has_answered() || liveness.has_failed())
        };
        if !self.uplinks.paths().any(doubted) || (0..self.uplinks.len()).any(lives) {
            return Err(MobilityDrop::Unexpected);
        }
        self.uplinks.heartbeats.unknown_until = Some(now + UNSUPPORTED);
        for path in self.uplinks.paths_mut() {
            path.denied = path.liveness.take_outstanding();
            path.liveness.reset();
        }
        self.schedule_heartbeats(now);
        Ok(())
    }

    /// Whether the care-of address that the path is over is none any more.
    pub(super) fn path_is_gone(&self, uplink: usize) -> bool {
        let over = self.uplinks.path(uplink).and_then(|path| path.over);
        over.is_some_and(|(address, _)| !self.uplinks[uplink].has_care_of_address(address))
    }

    /// An uplink has another care-of address: what was found out about the path is about another one.
    pub(super) fn path_moved(&mut self, uplink: usize) {
        self.timers.stop(Timer::Ipv6(uplink));
        if let Some(path) = self.uplinks.path_mut(uplink) {
            let PathState { failures, failed_at, sequence, .. } = *path;
            *path = PathState { failures, failed_at, ..PathState::new(sequence) };
        }
    }

    /// Whether an uplink carries what it can, and more waits. Only heartbeats show that, and when it is over.
    pub fn is_full(&self, uplink: usize) -> bool {
        self.uplinks.is_full(uplink)
    }

    /// An uplink has become full: its registration is renewed earlier than was planned.
    pub(super) fn renew_while_full(&mut self, now: Time, uplink: usize) {
        let is_multiple = self.is_multiple();
        let of_binding = self.list.binding_of(uplink).filter(|_| is_multiple);
        let plain =
            self.list.registration.filter(|registration| !is_multiple && registration.uplink == uplink);
        let (timer, registration) = match of_binding {
            Some(index) => (Timer::Bindings, self.list.bindings[index].registration),
            None => (Timer::Refresh, plain),
        };
        let Some(registration) = registration else { return };
        let due = registration.expires - registration.lifetime + refresh_after(registration.lifetime, true);
        if self.timers.get(timer).is_some_and(|at| at > due) {
            self.timers.set(timer, due.max(now));
        }
    }

    /// Takes in the station's counts of tunnelled packets, by uplink. To be called before
    /// [`Self::handle_timeout`].
    pub fn handle_traffic(&mut self, now: Time, counts: impl IntoIterator<Item = (usize, PathTraffic)>) {
        for (uplink, counts) in counts {
            let is_watched = self.uplinks.heartbeats.are_sent() && self.heartbeat_path(uplink).is_some();
            let Some(path) = self.uplinks.path_mut(uplink) else { continue };
            let is_doubtful = path.arrivals.take(now, counts);
            if is_doubtful && is_watched && !path.liveness.has_failed() {
                path.arrivals.is_doubtful = true;
                self.ask_the_others(now, uplink);
                self.timers.set(Timer::Heartbeat(uplink), now);
            } else {
                path.arrivals.is_doubtful &= is_watched && !path.liveness.has_failed();
            }
        }
        let pause = self.sample_pause();
        match pause.map(|pause| now + pause) {
            Some(next) if self.timers.get(Timer::Traffic).is_none_or(|at| at > next) => {
                self.timers.set(Timer::Traffic, next);
            }
            Some(_) => {}
            None => self.timers.stop(Timer::Traffic),
        }
    }

    /// The timer by which the station counts anew.
    pub(super) fn traffic_due(&mut self, now: Time) {
        if let Some(pause) = self.sample_pause() {
            self.timers.set(Timer::Traffic, now + pause);
        }
    }

    /// Until the counts are looked at again; `None` where they say nothing.
    fn sample_pause(&self) -> Option<Duration> {
        let liveness = self.uplinks.heartbeats.config.filter(|_| self.uplinks.heartbeats.are_sent())?;
        let flows = self.uplinks.paths().any(|path| path.arrivals.flows());
        Some(if flows { SAMPLE } else { liveness.busy.max(SAMPLE) })
    }

    /// The home agent has not found a packet where it expected it: behind a NAT the mapping is another.
    pub(in crate::mobile_router) fn mappings_lost(&mut self, message: &MobilityMessage<'_>) {
        let Some((local, _)) = message.outer else { return };
        let uplink = (0..self.uplinks.len()).find(|&uplink| {
            self.heartbeat_path(uplink)
                .is_some_and(|r| r.udp && self.composer().local_end(uplink, &r) == local)
        });
        if let Some(uplink) = uplink {
            self.uplinks[uplink].path.mapping_lost();
        }
    }

    /// Behind a NAT, with a home agent that knows no heartbeats.
    pub(super) fn keepalive_by_update(&mut self, now: Time, wall: WallTime, uplink: usize) {
        match self.list.binding_of(uplink).filter(|_| self.is_multiple()) {
            Some(index) => {
                self.list.bindings[index].again = true;
                self.reconcile(now, wall);
            }
            None => self.refresh(now, wall),
        }
    }

    /// A Binding Update leaves over an uplink: it is as good as a keepalive.
    pub(super) fn update_sent(&mut self, now: Time, uplink: usize) {
        let is_rare = self.uplinks.heartbeats.are_rare();
        if let Some(path) = self.uplinks.path_mut(uplink).filter(|_| is_rare) {
            path.update_sent(now);
        }
    }
}
