//! A station with a mobile network: what it announces, and how it can be reached.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use ipnet::Ipv6Net;

use super::{MAX_CLAIMS, MnppDrop};

/// Packets were sent so lately: they go on being sent.
const BUSY: Duration = Duration::from_secs(2);
/// Between probes, where packets go and where none do.
const BUSY_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Bounds of the wait for an answer.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// A prefix that a station announces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) prefix: Ipv6Net,
    pub(super) expires: Time,
    /// Of the test under way.
    pub(super) cookie: Option<u64>,
    /// Tests since the last proof.
    pub(super) tries: u32,
    /// When the next is due.
    pub(super) next: Time,
}

/// How packets for a station's prefixes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// By way of the home agents, and why.
    Away(&'static str),
    /// Straight.
    Direct,
}

/// A probe that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) cookie: u64,
    pub(super) first: Time,
    pub(super) last: Time,
    pub(super) sent: u32,
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
    /// When packets were last sent to it.
    used: Option<Time>,
    /// When it last answered.
    pub(super) confirmed: Option<Time>,
    pub(super) probe: Option<Probe>,
    /// Round trip, smoothed, and its variation (RFC 6298).
    round_trip: Option<(Duration, Duration)>,
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
            used: None,
            confirmed: None,
            probe: None,
            round_trip: None,
            failures: 0,
            hold: now,
        }
    }

    pub(super) fn is_direct(&self) -> bool {
        self.standing == Standing::Direct
    }

    /// The smoothed round trip.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.round_trip.map(|(smoothed, _)| smoothed)
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
        self.claims.push(Claim { prefix, expires, cookie: None, tries: 0, next: now });
        Ok(())
    }

    /// It returned the cookie that was sent to the prefix.
    pub(super) fn proven(&mut self, prefix: Ipv6Net, cookie: u64) -> Result<(), MnppDrop> {
        let claim = self.claims.iter_mut().find(|c| c.prefix == prefix && c.cookie == Some(cookie));
        let claim = claim.ok_or(MnppDrop::Unasked)?;
        (claim.cookie, claim.tries) = (None, 0);
        Ok(())
    }

    /// It hears us, and we hear it.
    pub(super) fn confirm(&mut self, now: Time) {
        self.confirmed = Some(now);
        self.probe = None;
    }

    /// It answered a probe.
    pub(super) fn answered(&mut self, now: Time, cookie: u64) -> Result<(), MnppDrop> {
        let probe = self.probe.filter(|probe| probe.cookie == cookie).ok_or(MnppDrop::Unasked)?;
        // Which of several is answered cannot be told (Karn).
        if probe.sent == 1 {
            let sample = now.saturating_since(probe.first);
            self.round_trip = Some(match self.round_trip {
                None => (sample, sample / 2),
                Some((smoothed, variation)) => {
                    let difference = smoothed.abs_diff(sample);
                    ((smoothed * 7 + sample) / 8, (variation * 3 + difference) / 4)
                }
            });
        }
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
        match (&self.probe, self.confirmed) {
            (Some(probe), _) => probe.last + self.wait(),
            (None, Some(confirmed)) if self.is_direct() => {
                confirmed + if self.is_busy(now) { BUSY_INTERVAL } else { IDLE_INTERVAL }
            }
            (None, _) => now,
        }
    }

    /// How long an answer may take.
    fn wait(&self) -> Duration {
        let usual =
            self.round_trip.map_or(SHORTEST_WAIT * 2, |(smoothed, variation)| smoothed + variation * 4);
        usual.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }
}
