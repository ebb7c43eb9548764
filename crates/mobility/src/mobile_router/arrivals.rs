//! What packets that arrive over an uplink say of its path, beside heartbeats.
//!
//! The station counts the tunnelled packets of each path. Two conclusions are drawn from that:
//!
//! * **A path over which packets arrive has not failed.** Where a load is greater than the capacity,
//!   heartbeats wait in the queue of a modem for seconds, and many are lost. That is a *full* path: answers
//!   go on, with a delay that has grown. It keeps its traffic, for another uplink would be full as well, or
//!   dearer. It counts as failed if nothing at all arrives for [`FULL_SILENCE`], or no heartbeat is answered
//!   for [`NO_ANSWER`] (packets may arrive over a path that carries none from us).
//! * **A path over which packets have arrived all the time, both ways, and none arrive any more** is asked at
//!   once, without waiting for the next heartbeat. A series of [`DOUBTED_ALLOWED`] heartbeats decides. TCP's
//!   first retransmission, 200 ms and more after the last acknowledgement, finds the other uplink then.
//!
//! An idle path, one with a packet now and then, and one whose packets go in one direction only say nothing
//! by their silence: there heartbeats alone decide.

use std::time::Duration;

use carnet_base::Time;

/// Between two samples of the counts while packets arrive all the time.
pub(super) const SAMPLE: Duration = Duration::from_millis(25);
/// Packets that arrived all the time and arrive no more make a path doubtful after this time.
const GAP: Duration = Duration::from_millis(60);
/// Heartbeats in a row that a doubtful path may leave unanswered, the pause between them, and the time for an
/// answer at least.
pub(super) const DOUBTED_ALLOWED: usize = 4;
pub(super) const DOUBTED_PAUSE: Duration = Duration::from_millis(30);
pub(super) const DOUBTED_PATIENCE: Duration = Duration::from_millis(100);
/// A full path over which nothing arrives for this time has failed.
const FULL_SILENCE: Duration = Duration::from_millis(2500);
/// Between two heartbeats on a full path that carries traffic.
pub(super) const FULL_INTERVAL: Duration = Duration::from_millis(100);
/// A path without an answer to a heartbeat for this time has failed, whatever arrives over it.
const NO_ANSWER: Duration = Duration::from_secs(6);
/// A path is full when its round trips take this much longer than the least, and is not any more below half
/// of it.
const FULL_DELAY: Duration = Duration::from_millis(400);
/// A path without packets for this time has no load that its round trips could be long by.
const IDLE: Duration = Duration::from_secs(10);

/// Tunnelled packets over one uplink since some beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathTraffic {
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
}

/// What is known of the packets of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals {
    counts: Option<PathTraffic>,
    /// When something arrived last: a packet, or an answer of the home agent.
    last: Option<Time>,
    /// When the home agent answered last.
    last_answer: Option<Time>,
    /// The last samples, the newest lowest: whether packets arrived, and whether some were sent.
    received: u8,
    sent: u8,
    /// When the last of these was taken, and what has come since.
    sampled_at: Time,
    since: (bool, bool),
    /// Nothing arrives any more since traffic has flowed: a series of heartbeats is to decide.
    pub(super) is_doubtful: bool,
    /// Delay has grown with the load, and deliveries go on.
    pub(super) is_full: bool,
    /// The least round trip from before it was full.
    unloaded: Option<Duration>,
    /// When a packet was sent or received last.
    loaded_at: Option<Time>,
}

impl Arrivals {
    /// The home agent has answered, to a heartbeat after `rtt`; the least round trip of late was `least`.
    pub(super) fn answered(&mut self, now: Time, rtt: Option<Duration>, least: Option<Duration>) {
        self.last = Some(now);
        self.last_answer = Some(now);
        self.is_doubtful = false;
        if let (Some(rtt), Some(least)) = (rtt, least) {
            // Of a load that lasts for minutes the least round trip of late is a long one as well.
            let is_loaded = self.loaded_at.is_some_and(|at| now.saturating_since(at) < IDLE);
            let least = self.unloaded.filter(|_| is_loaded).map_or(least, |unloaded| unloaded.min(least));
            let limit = if self.is_full { FULL_DELAY / 2 } else { FULL_DELAY };
            self.is_full = rtt >= least + limit;
            self.unloaded = self.is_full.then_some(least);
        }
    }

    /// Takes in the counts; true when the path has become doubtful.
    pub(super) fn take(&mut self, now: Time, counts: PathTraffic) -> bool {
        let Some(before) = self.counts.replace(counts) else { return false };
        let (sent, received) = (counts.sent > before.sent, counts.received > before.received);
        if sent || received {
            self.loaded_at = Some(now);
        }
        if received {
            self.last = Some(now);
            self.is_doubtful = false;
        }
        self.since = (self.since.0 || sent, self.since.1 || received);
        if now.saturating_since(self.sampled_at) < SAMPLE {
            return false;
        }
        self.sampled_at = now;
        let (sent, received) = std::mem::take(&mut self.since);
        self.sent = self.sent << 1 | u8::from(sent);
        let silence = self.last.map_or(Duration::MAX, |at| now.saturating_since(at));
        if received || !self.flows() {
            self.received = self.received << 1 | u8::from(received);
        } else if silence >= GAP {
            self.received = 0;
            self.is_doubtful = self.sent != 0;
            return self.is_doubtful;
        }
        false
    }

    /// The path is another one: what is known of the former one does not count.
    pub(super) fn moved(&mut self) {
        *self = Arrivals { counts: self.counts, ..Arrivals::default() };
    }

    /// Packets have arrived in three of the last four samples.
    pub(super) fn flows(&self) -> bool {
        (self.received & 0b1111).count_ones() >= 3
    }

    /// Whether a path that has left so many heartbeats unanswered as one may has failed.
    pub(super) fn has_failed(&self, now: Time, patience: Duration) -> bool {
        let since = |at: Option<Time>| at.map_or(Duration::MAX, |at| now.saturating_since(at));
        let silence = if self.is_full { FULL_SILENCE } else { patience };
        since(self.last) >= silence || since(self.last_answer) >= NO_ANSWER
    }
}
