//! Judges a path by the packets that arrive over it, besides heartbeats.
//!
//! The station counts the tunnelled packets of each path. The router draws two conclusions from the counts:
//!
//! * **A path over which packets arrive has not failed.** If a load is greater than the capacity, heartbeats
//!   wait in the queue of a modem for seconds, and many are lost. Such a path is *full*: answers continue,
//!   with a longer delay. It keeps its traffic, because another uplink would be full as well, or more
//!   expensive. It counts as failed if no packet arrives for [`FULL_SILENCE`], or no heartbeat is answered
//!   for [`NO_ANSWER`] (packets may arrive over a path that carries none from the router).
//! * **If packets have arrived continuously, in both directions, and no longer arrive**, the router checks
//!   the path at once, without waiting for the next heartbeat. A series of [`DOUBTED_ALLOWED`] heartbeats
//!   decides. TCP's first retransmission, 200 ms or more after the last acknowledgement, then finds the other
//!   uplink.
//!
//! An idle path, a path with few packets, and a path with packets in one direction only show nothing by their
//! silence: there only heartbeats decide.

use std::time::Duration;

use carnet_base::Time;

/// Interval between two samples of the counts while packets arrive continuously.
pub(super) const SAMPLE: Duration = Duration::from_millis(25);
/// Time without packets after which a path becomes doubtful on which they arrived continuously.
const GAP: Duration = Duration::from_millis(60);
/// Heartbeats in a row that a doubtful path may leave unanswered. [`DOUBTED_PAUSE`] is the pause between
/// them, [`DOUBTED_PATIENCE`] the least time for an answer.
pub(super) const DOUBTED_ALLOWED: usize = 4;
pub(super) const DOUBTED_PAUSE: Duration = Duration::from_millis(30);
pub(super) const DOUBTED_PATIENCE: Duration = Duration::from_millis(100);
/// Time without any packet after which a full path has failed.
const FULL_SILENCE: Duration = Duration::from_millis(2500);
/// Interval between two heartbeats on a full path that carries traffic.
pub(super) const FULL_INTERVAL: Duration = Duration::from_millis(100);
/// Time without an answer to a heartbeat after which a path has failed, whatever packets arrive over it.
const NO_ANSWER: Duration = Duration::from_secs(6);
/// Excess of the round trips over the least one at which a path is full. Below half of it the path is no
/// longer full.
const FULL_DELAY: Duration = Duration::from_millis(400);
/// Time without packets after which a load no longer explains long round trips.
const IDLE: Duration = Duration::from_secs(10);

/// Tunnelled packets over one uplink since some beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathTraffic {
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
}

/// Record of the packets of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals {
    counts: Option<PathTraffic>,
    /// Time of the last packet, or of the last answer of the home agent.
    last: Option<Time>,
    /// Time of the home agent's last answer.
    last_answer: Option<Time>,
    /// Last samples, the newest in the lowest bit: whether packets arrived. `sent` has the same for sent
    /// packets.
    received: u8,
    sent: u8,
    /// Time of the last sample. `since` says whether packets have arrived and left since then.
    sampled_at: Time,
    since: (bool, bool),
    /// Whether packets have ceased to arrive while traffic flowed, so that a series of heartbeats decides.
    pub(super) is_doubtful: bool,
    /// Whether the delay has grown with the load, and packets still arrive.
    pub(super) is_full: bool,
    /// Least round trip from before the path was full.
    unloaded: Option<Duration>,
    /// Time of the last packet, sent or received.
    loaded_at: Option<Time>,
}

impl Arrivals {
    /// Records an answer of the home agent, to a heartbeat after `rtt`. `least` is the least recent round
    /// trip.
    pub(super) fn answered(&mut self, now: Time, rtt: Option<Duration>, least: Option<Duration>) {
        self.last = Some(now);
        self.last_answer = Some(now);
        self.is_doubtful = false;
        if let (Some(rtt), Some(least)) = (rtt, least) {
            // During a load of minutes the least recent round trip is a long one as well.
            let is_loaded = self.loaded_at.is_some_and(|at| now.saturating_since(at) < IDLE);
            let least = self.unloaded.filter(|_| is_loaded).map_or(least, |unloaded| unloaded.min(least));
            let limit = if self.is_full { FULL_DELAY / 2 } else { FULL_DELAY };
            self.is_full = rtt >= least + limit;
            self.unloaded = self.is_full.then_some(least);
        }
    }

    /// Takes over the counts; returns true if the path has become doubtful.
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

    /// Clears the record for another path.
    pub(super) fn moved(&mut self) {
        *self = Arrivals { counts: self.counts, ..Arrivals::default() };
    }

    /// Whether packets have arrived in three of the last four samples.
    pub(super) fn flows(&self) -> bool {
        (self.received & 0b1111).count_ones() >= 3
    }

    /// Whether a path has failed that has left the permitted number of heartbeats unanswered.
    pub(super) fn has_failed(&self, now: Time, patience: Duration) -> bool {
        let since = |at: Option<Time>| at.map_or(Duration::MAX, |at| now.saturating_since(at));
        let silence = if self.is_full { FULL_SILENCE } else { patience };
        since(self.last) >= silence || since(self.last_answer) >= NO_ANSWER
    }
}
