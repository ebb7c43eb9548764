//! A station with a mobile network: what it announces, and how it can be reached.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use ipnet::Ipv6Net;

use super::{MAX_CLAIMS, MnppDrop};
use crate::path_liveness::{PathLiveness, Proof, RoundTrip, Sequence};

/// Packets were sent so lately: they go on being sent.
const BUSY: Duration = Duration::from_secs(2);
/// Between probes, where packets go and where none do.
const BUSY_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Bounds of the wait for an answer.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// Networks of this length and longer ones are nobody's in part.
const WHOLE: u8 = 64;
/// So many addresses of a shorter prefix are tested.
const SAMPLES: u32 = 8;
/// Tests of a prefix after which it does not look as if it were proven.
const IN_VAIN: u32 = 4;

/// A prefix that a station announces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) prefix: Ipv6Net,
    pub(super) expires: Time,
    /// Of the tests under way, the last first: an answer may take longer than it is waited for.
    cookies: [Option<u64>; 2],
    /// Addresses of the prefix that were tested with success, one after another.
    passed: u32,
    /// Tests sent since the last proof.
    pub(super) tries: u32,
    /// When the next is due.
    pub(super) next: Time,
}

impl Claim {
    /// A test with this cookie was sent, and the next is due then. Where one before it was not answered, it
    /// begins anew.
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

/// How packets for a station's prefixes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// By way of the home agents, and why.
    Away(&'static str),
    /// Straight.
    Direct,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link_local: Ipv6Addr,
    pub(super) claims: Vec<Claim>,
    pub(super) standing: Standing,
    /// Since when it is so.
    pub(super) since: Time,
    /// It has been heard, and what we announce was sent since.
    pub(super) greeted: bool,
    /// When it is to be looked at.
    pub(super) due: Time,
    /// When a test was last sent for its sake, or it appeared: who has waited longest has the next one.
    pub(super) served: Time,
    /// A test was sent for its sake.
    pub(super) asked: bool,
    /// When packets were last sent to it.
    used: Option<Time>,
    /// When it last answered.
    pub(super) confirmed: Option<Time>,
    /// Probes; those without an answer since the last one have the same cookie.
    pub(super) probes: PathLiveness<u64>,
    /// It fell silent so many times lately, and is not tried before then.
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

    /// The smoothed round trip.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.probes.round_trip().smoothed()
    }

    /// It announces a prefix until then.
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

    /// It returned a cookie that was sent to an address of the prefix; true when that proves the prefix.
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

    /// All that it announces has been asked about for a while, in vain.
    pub(super) fn is_in_vain(&self) -> bool {
        self.claims.iter().all(|claim| claim.tries >= IN_VAIN && claim.passed == 0)
    }

    /// It hears us, and we hear it.
    pub(super) fn confirm(&mut self, now: Time) {
        self.confirmed = Some(now);
        self.probes.forget();
    }

    /// It answered a probe.
    pub(super) fn answered(&mut self, now: Time, cookie: u64) -> Result<(), MnppDrop> {
        self.probes.answer(now, cookie).ok_or(MnppDrop::Unasked)?;
        self.confirm(now);
        Ok(())
    }

    /// Packets are sent to it. One that was idle is soon looked at.
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

    /// When the next probe is due.
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

    /// How long an answer may take.
    fn wait(&self) -> Duration {
        let usual = self.probes.round_trip().timeout().unwrap_or(SHORTEST_WAIT * 2);
        usual.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }
}
