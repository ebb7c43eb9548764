//! State of a station with a mobile network: its announcements and its reachability.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use ipnet::Ipv6Net;

use super::{MAX_CLAIMS, MnppDrop};
use crate::path_liveness::{AnswerSchedule, PathLiveness, RequiredAnswers, RoundTrip};

/// Time after the last packet for which a station counts as busy.
const BUSY: Duration = Duration::from_secs(2);
/// Interval of probes while packets flow. [`IDLE_INTERVAL`] is for idle stations.
const BUSY_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time to wait for an answer. [`LONGEST_WAIT`] is the maximum.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// Prefix length from which on a home agent assigns a prefix as a whole.
const WHOLE: u8 = 64;
/// Number of addresses of a shorter prefix that the router tests.
const SAMPLES: u32 = 8;
/// Number of unsuccessful tests after which a prefix counts as failed.
const IN_VAIN: u32 = 4;

/// A prefix that a station announces.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnnouncedPrefix {
    pub(super) prefix: Ipv6Net,
    pub(super) expires: Time,
    /// Cookies of the last two tests, the latest first: the answer to a test may arrive after the next test
    /// was sent.
    cookies: [Option<u64>; 2],
    /// Number of addresses of the prefix tested successfully in a row.
    answers_in_row: u32,
    /// Number of tests sent since the last proof.
    pub(super) tries: u32,
    /// Time of the next test.
    pub(super) next_test: Time,
}

impl AnnouncedPrefix {
    /// Records that the router has sent a test with this cookie, and the time of the next. If the test before
    /// has no answer, the count of successful tests restarts at 0.
    pub(super) fn record_test(&mut self, cookie: u64, next: Time) {
        let [before, _] = self.cookies;
        if before.is_some() {
            self.answers_in_row = 0;
        }
        self.cookies = [Some(cookie), before];
        self.next_test = next;
        self.tries = self.tries.saturating_add(1);
    }
}

/// Path of packets to a station's prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteState {
    /// Packets go through the home agents, for this reason.
    ViaHomeAgents(&'static str),
    /// Packets go directly.
    Direct,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link_local: Ipv6Addr,
    pub(super) announced_prefixes: Vec<AnnouncedPrefix>,
    pub(super) route_state: RouteState,
    /// Start of `route_state`.
    pub(super) since: Time,
    /// Whether this router has sent an announcement since the station appeared.
    pub(super) announcement_sent: bool,
    /// Time of the next check.
    pub(super) due: Time,
    /// Time of the last test of this station; before the first test, time of its appearance. The station with
    /// the earliest time gets the next test.
    pub(super) served: Time,
    /// Whether this router has sent a test to this station.
    pub(super) is_tested: bool,
    /// Time of the last packet to the station.
    used: Option<Time>,
    /// Time of the station's last answer.
    pub(super) confirmed: Option<Time>,
    /// Liveness of the direct path. All probes since the last answer have the same cookie.
    pub(super) probes: PathLiveness<u64>,
    /// Number of recent failures. `hold_until` is the time before which the router does not try the station
    /// again.
    pub(super) failures: u32,
    pub(super) hold_until: Time,
}

impl Peer {
    pub(super) fn new(now: Time, link_local: Ipv6Addr) -> Peer {
        Peer {
            link_local,
            announced_prefixes: Vec::new(),
            route_state: RouteState::ViaHomeAgents("not yet known"),
            since: now,
            announcement_sent: false,
            due: now,
            served: now,
            is_tested: false,
            used: None,
            confirmed: None,
            probes: PathLiveness::new(RequiredAnswers::default(), RoundTrip::default()),
            failures: 0,
            hold_until: now,
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
    pub(super) fn announce(&mut self, now: Time, prefix: Ipv6Net, expires: Time) -> Result<(), MnppDrop> {
        if let Some(claim) = self.announced_prefixes.iter_mut().find(|claim| claim.prefix == prefix) {
            claim.expires = expires;
            return Ok(());
        }
        if self.announced_prefixes.len() >= MAX_CLAIMS {
            return Err(MnppDrop::TooMany);
        }
        self.announced_prefixes.push(AnnouncedPrefix {
            prefix,
            expires,
            cookies: [None; 2],
            answers_in_row: 0,
            tries: 0,
            next_test: now,
        });
        Ok(())
    }

    /// Handles a returned cookie of a test to an address of the prefix. Returns whether the prefix is now
    /// proven.
    pub(super) fn passed(&mut self, now: Time, prefix: Ipv6Net, cookie: u64) -> Result<bool, MnppDrop> {
        let asked =
            |claim: &&mut AnnouncedPrefix| claim.prefix == prefix && claim.cookies.contains(&Some(cookie));
        let claim = self.announced_prefixes.iter_mut().find(asked).ok_or(MnppDrop::Unasked)?;
        claim.cookies = [None; 2];
        claim.answers_in_row += 1;
        let is_proven = claim.answers_in_row >= if prefix.prefix_len() < WHOLE { SAMPLES } else { 1 };
        if is_proven {
            (claim.answers_in_row, claim.tries) = (0, 0);
        } else {
            claim.next_test = now;
        }
        Ok(is_proven)
    }

    /// Returns whether the router has tested all prefixes of the station for a while without success.
    pub(super) fn tests_failed(&self) -> bool {
        self.announced_prefixes.iter().all(|claim| claim.tries >= IN_VAIN && claim.answers_in_row == 0)
    }

    /// Records that packets reach the other station in both directions.
    pub(super) fn confirm(&mut self, now: Time) {
        self.confirmed = Some(now);
        self.probes.forget();
    }

    /// Handles the answer to a probe.
    pub(super) fn answered(&mut self, now: Time, cookie: u64) -> Result<(), MnppDrop> {
        self.probes.answer(now, cookie).ok_or(MnppDrop::Unasked)?;
        self.confirm(now);
        Ok(())
    }

    /// Records that this vehicle sends packets to the station. If the station was idle, its next check is
    /// soon.
    pub(super) fn used(&mut self, now: Time) {
        let idle = !self.is_busy(now);
        self.used = Some(now);
        if idle && self.is_direct() {
            self.due = self.due.min(self.next_probe(now).max(now));
        }
    }

    fn is_busy(&self, now: Time) -> bool {
        self.used.is_some_and(|used| now.saturating_since(used) < BUSY)
    }

    /// Returns when the next probe is due.
    pub(super) fn next_probe(&self, now: Time) -> Time {
        if !self.probes.is_quiet() {
            return self.probes.next_of(&self.sequence(0)).unwrap_or(now);
        }
        match self.confirmed {
            Some(confirmed) if self.is_direct() => {
                confirmed + if self.is_busy(now) { BUSY_INTERVAL } else { IDLE_INTERVAL }
            }
            _ => now,
        }
    }

    /// Returns the schedule of the probes. The path fails after `allowed` probes in a row without an answer.
    pub(super) fn sequence(&self, allowed: usize) -> AnswerSchedule {
        let wait = self.wait();
        AnswerSchedule { interval: wait, timeout: wait, pause: wait, allowed }
    }

    /// Returns the time to wait for an answer.
    fn wait(&self) -> Duration {
        let usual = self.probes.round_trip().timeout().unwrap_or(SHORTEST_WAIT * 2);
        usual.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }
}
