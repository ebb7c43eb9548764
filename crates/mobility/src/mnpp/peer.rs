//! A station with a mobile network: its announcements, and its reachability.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use ipnet::Ipv6Net;

use super::{MAX_CLAIMS, MnppDrop};
use crate::path_liveness::{PathLiveness, Proof, RoundTrip, Sequence};

/// Time after the last packet for which a station counts as busy.
const BUSY: Duration = Duration::from_secs(2);
/// Interval of probes while packets flow. [`IDLE_INTERVAL`] is for idle stations.
const BUSY_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Least wait for an answer. [`LONGEST_WAIT`] is the upper bound.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// Length from which on a network belongs to one router as a whole.
const WHOLE: u8 = 64;
/// Number of addresses that are tested of a shorter prefix.
const SAMPLES: u32 = 8;
/// Tests without success after which a prefix counts as tested in vain.
const IN_VAIN: u32 = 4;

/// A prefix that a station announces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) prefix: Ipv6Net,
    pub(super) expires: Time,
    /// Cookies of the outstanding tests, the last first: an answer may arrive after the next test was sent.
    cookies: [Option<u64>; 2],
    /// Addresses of the prefix that were tested with success in a row.
    passed: u32,
    /// Tests sent since the last proof.
    pub(super) tries: u32,
    /// Time of the next test.
    pub(super) next: Time,
}

impl Claim {
    /// Records that a test with this cookie was sent, and when the next is due. Without an answer to the test
    /// before, the row of tests begins anew.
    pub(super) fn tested(&mut self, cookie: u64, next: Time) {
        let [before, _] = self.cookies;
        if before.is_some() {
            self.passed = 0;
        }
        self.cookies = [Some(cookie), before];
        self.next = next;
        self.tries = self.tries.saturating_add(1);
    }
}

/// Path of packets for a station's prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Packets go by the home agents, for this reason.
    Away(&'static str),
    /// Packets go directly.
    Direct,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link_local: Ipv6Addr,
    pub(super) claims: Vec<Claim>,
    pub(super) standing: Standing,
    /// Time since when the standing holds.
    pub(super) since: Time,
    /// Whether an announcement was sent since the station was heard.
    pub(super) greeted: bool,
    /// Time of the next check.
    pub(super) due: Time,
    /// Time of the last test for this station, or of its arrival: the station that has waited longest gets
    /// the next test.
    pub(super) served: Time,
    /// Whether a test was sent for this station.
    pub(super) asked: bool,
    /// Time of the last packet to the station.
    used: Option<Time>,
    /// Time of its last answer.
    pub(super) confirmed: Option<Time>,
    /// Probes. All probes since the last answer have one cookie.
    pub(super) probes: PathLiveness<u64>,
    /// Number of recent failures, and the time before which the station is not tried again.
    pub(super) failures: u32,
    pub(super) hold: Time,
}

impl Peer {
    pub(super) fn new(now: Time, link_local: Ipv6Addr) -> Peer {
        Peer {
            link_local,
            claims: Vec::new(),
            standing: Standing::Away("not yet known"),
            since: now,
            greeted: false,
            due: now,
            served: now,
            asked: false,
            used: None,
            confirmed: None,
            probes: PathLiveness::new(Proof::default(), RoundTrip::default()),
            failures: 0,
            hold: now,
        }
    }

    pub(super) fn is_direct(&self) -> bool {
        self.standing == Standing::Direct
    }

    /// Returns the smoothed round trip.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.probes.round_trip().smoothed()
    }

    /// Records that the station announces a prefix until `expires`.
    pub(super) fn claim(&mut self, now: Time, prefix: Ipv6Net, expires: Time) -> Result<(), MnppDrop> {
        if let Some(claim) = self.claims.iter_mut().find(|claim| claim.prefix == prefix) {
            claim.expires = expires;
            return Ok(());
        }
        if self.claims.len() >= MAX_CLAIMS {
            return Err(MnppDrop::TooMany);
        }
        self.claims.push(Claim { prefix, expires, cookies: [None; 2], passed: 0, tries: 0, next: now });
        Ok(())
    }

    /// Handles a returned cookie that was sent to an address of the prefix. Returns true if the answer proves
    /// the prefix.
    pub(super) fn passed(&mut self, now: Time, prefix: Ipv6Net, cookie: u64) -> Result<bool, MnppDrop> {
        let asked = |claim: &&mut Claim| claim.prefix == prefix && claim.cookies.contains(&Some(cookie));
        let claim = self.claims.iter_mut().find(asked).ok_or(MnppDrop::Unasked)?;
        claim.cookies = [None; 2];
        claim.passed += 1;
        let is_proven = claim.passed >= if prefix.prefix_len() < WHOLE { SAMPLES } else { 1 };
        if is_proven {
            (claim.passed, claim.tries) = (0, 0);
        } else {
            claim.next = now;
        }
        Ok(is_proven)
    }

    /// Whether all prefixes of the station have been tested for a while, in vain.
    pub(super) fn is_in_vain(&self) -> bool {
        self.claims.iter().all(|claim| claim.tries >= IN_VAIN && claim.passed == 0)
    }

    /// Records that both stations hear each other.
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

    /// Records that packets are sent to the station. A station that was idle is checked soon.
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

    /// Returns the intervals of probes, of which `allowed` in a row may stay without an answer.
    pub(super) fn sequence(&self, allowed: usize) -> Sequence {
        let wait = self.wait();
        Sequence { interval: wait, patience: wait, pause: wait, allowed }
    }

    /// Returns how long an answer may take.
    fn wait(&self) -> Duration {
        let usual = self.probes.round_trip().timeout().unwrap_or(SHORTEST_WAIT * 2);
        usual.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }
}
