//! State of a station with a mobile network: its announcements and its reachability.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use ipnet::Ipv6Net;

use super::{MAX_CLAIMED_PREFIXES, MnppDrop};
use crate::path_liveness::{AnswerSchedule, PathLiveness, RequiredAnswers, RoundTrip};

/// Time after the last packet for which a station counts as busy.
const BUSY_PEER_TIME: Duration = Duration::from_secs(2);
/// Interval of probes while packets flow. [`IDLE_PROBE_INTERVAL`] is for idle stations.
const BUSY_PROBE_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time to wait for an answer. [`MAX_ANSWER_TIMEOUT`] is the maximum.
const MIN_ANSWER_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_ANSWER_TIMEOUT: Duration = Duration::from_millis(400);

/// Prefix length from which on a home agent assigns a prefix as a whole.
const WHOLE_PREFIX_LENGTH: u8 = 64;
/// Number of addresses of a shorter prefix that the router tests.
const TESTED_ADDRESS_COUNT: u32 = 8;
/// Number of unsuccessful tests after which a prefix counts as failed.
const MAX_FAILED_TESTS: u32 = 4;

/// A prefix that a station announces.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnnouncedPrefix {
    pub(super) prefix: Ipv6Net,
    pub(super) expires_at: Time,
    /// Cookies of the last two tests, the latest first: the answer to a test may arrive after the next test
    /// was sent.
    last_test_cookies: [Option<u64>; 2],
    /// Number of addresses of the prefix tested successfully in a row.
    answers_in_row: u32,
    /// Number of tests sent since the last proof.
    pub(super) tests_since_proof: u32,
    /// Time at which this router next tests whether the neighbour owns this prefix.
    pub(super) next_test_at: Time,
}

impl AnnouncedPrefix {
    /// Records that the router has sent a test with this cookie, and the time of the next. If the test before
    /// has no answer, the count of successful tests restarts at 0.
    pub(super) fn record_test(&mut self, cookie: u64, next: Time) {
        let [before, _] = self.last_test_cookies;
        if before.is_some() {
            self.answers_in_row = 0;
        }
        self.last_test_cookies = [Some(cookie), before];
        self.next_test_at = next;
        self.tests_since_proof = self.tests_since_proof.saturating_add(1);
    }
}

/// Path of packets to a station's prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteState {
    /// Packets go through the home agents, for this reason.
    ViaHomeAgents(&'static str),
    /// Packets go directly to the station.
    Direct,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link_local: Ipv6Addr,
    pub(super) announced_prefixes: Vec<AnnouncedPrefix>,
    pub(super) route_state: RouteState,
    /// Time since which `route_state` has been the same.
    pub(super) route_state_since: Time,
    /// Whether this router has sent an announcement since the station appeared.
    pub(super) has_sent_announcement: bool,
    /// Time of the next check of the station.
    pub(super) next_check_at: Time,
    /// Time of the last test of this station; before the first test, time of its appearance. The station with
    /// the earliest time gets the next test.
    pub(super) last_tested_at: Time,
    /// Whether this router has sent a test to this station.
    pub(super) has_sent_test: bool,
    /// Time of the last packet to the station; `None` before the first packet.
    last_used_at: Option<Time>,
    /// Time of the station's last answer; `None` before the first answer.
    pub(super) last_confirmed_at: Option<Time>,
    /// Liveness of the direct path. All probes since the last answer have the same cookie.
    pub(super) probes: PathLiveness<u64>,
    /// Number of recent failures. `paused_until` is the time before which the router does not try the station
    /// again.
    pub(super) recent_failures: u32,
    pub(super) paused_until: Time,
}

impl Peer {
    pub(super) fn new(now: Time, link_local: Ipv6Addr) -> Peer {
        Peer {
            link_local,
            announced_prefixes: Vec::new(),
            route_state: RouteState::ViaHomeAgents("not yet known"),
            route_state_since: now,
            has_sent_announcement: false,
            next_check_at: now,
            last_tested_at: now,
            has_sent_test: false,
            last_used_at: None,
            last_confirmed_at: None,
            probes: PathLiveness::new(RequiredAnswers::default(), RoundTrip::default()),
            recent_failures: 0,
            paused_until: now,
        }
    }

    pub(super) fn is_direct(&self) -> bool {
        self.route_state == RouteState::Direct
    }

    /// Returns the smoothed round trip of the probes; `None` before the first answer.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.probes.round_trip().smoothed()
    }

    /// Records that the station announces a prefix until `expires`.
    pub(super) fn record_announcement(
        &mut self,
        now: Time,
        prefix: Ipv6Net,
        expires: Time,
    ) -> Result<(), MnppDrop> {
        if let Some(claim) = self.announced_prefixes.iter_mut().find(|claim| claim.prefix == prefix) {
            claim.expires_at = expires;
            return Ok(());
        }
        if self.announced_prefixes.len() >= MAX_CLAIMED_PREFIXES {
            return Err(MnppDrop::TooMany);
        }
        self.announced_prefixes.push(AnnouncedPrefix {
            prefix,
            expires_at: expires,
            last_test_cookies: [None; 2],
            answers_in_row: 0,
            tests_since_proof: 0,
            next_test_at: now,
        });
        Ok(())
    }

    /// Handles a returned cookie of a test to an address of the prefix. Returns whether the prefix is now
    /// proven.
    pub(super) fn record_passed_test(
        &mut self,
        now: Time,
        prefix: Ipv6Net,
        cookie: u64,
    ) -> Result<bool, MnppDrop> {
        let asked = |claim: &&mut AnnouncedPrefix| {
            claim.prefix == prefix && claim.last_test_cookies.contains(&Some(cookie))
        };
        let claim = self.announced_prefixes.iter_mut().find(asked).ok_or(MnppDrop::Unasked)?;
        claim.last_test_cookies = [None; 2];
        claim.answers_in_row += 1;
        let is_proven = claim.answers_in_row
            >= if prefix.prefix_len() < WHOLE_PREFIX_LENGTH { TESTED_ADDRESS_COUNT } else { 1 };
        if is_proven {
            (claim.answers_in_row, claim.tests_since_proof) = (0, 0);
        } else {
            claim.next_test_at = now;
        }
        Ok(is_proven)
    }

    /// Returns whether the router has tested all prefixes of the station for a while without success.
    pub(super) fn have_tests_failed(&self) -> bool {
        self.announced_prefixes
            .iter()
            .all(|claim| claim.tests_since_proof >= MAX_FAILED_TESTS && claim.answers_in_row == 0)
    }

    /// Records that packets reach the other station in both directions.
    pub(super) fn record_contact(&mut self, now: Time) {
        self.last_confirmed_at = Some(now);
        self.probes.remove_outstanding_heartbeats();
    }

    /// Handles the answer to a probe.
    pub(super) fn record_probe_answer(&mut self, now: Time, cookie: u64) -> Result<(), MnppDrop> {
        self.probes.handle_answer(now, cookie).ok_or(MnppDrop::Unasked)?;
        self.record_contact(now);
        Ok(())
    }

    /// Records that this vehicle sends packets to the station. If the station was idle, its next check is
    /// soon.
    pub(super) fn record_sent_packet(&mut self, now: Time) {
        let idle = !self.is_busy(now);
        self.last_used_at = Some(now);
        if idle && self.is_direct() {
            self.next_check_at = self.next_check_at.min(self.next_probe_at(now).max(now));
        }
    }

    fn is_busy(&self, now: Time) -> bool {
        self.last_used_at.is_some_and(|used| now.saturating_since(used) < BUSY_PEER_TIME)
    }

    /// Returns when the next probe is due.
    pub(super) fn next_probe_at(&self, now: Time) -> Time {
        if !self.probes.has_no_outstanding_heartbeat() {
            return self.probes.next_event_at(&self.probe_schedule(0)).unwrap_or(now);
        }
        match self.last_confirmed_at {
            Some(confirmed) if self.is_direct() => {
                confirmed + if self.is_busy(now) { BUSY_PROBE_INTERVAL } else { IDLE_PROBE_INTERVAL }
            }
            _ => now,
        }
    }

    /// Returns the schedule of the probes. The path fails after `allowed` probes in a row without an answer.
    pub(super) fn probe_schedule(&self, allowed: usize) -> AnswerSchedule {
        let wait = self.answer_timeout();
        AnswerSchedule { interval: wait, answer_timeout: wait, quick_pause: wait, max_missed: allowed }
    }

    /// Returns the time to wait for an answer.
    fn answer_timeout(&self) -> Duration {
        let usual = self.probes.round_trip().answer_timeout().unwrap_or(MIN_ANSWER_TIMEOUT * 2);
        usual.clamp(MIN_ANSWER_TIMEOUT, MAX_ANSWER_TIMEOUT)
    }
}
