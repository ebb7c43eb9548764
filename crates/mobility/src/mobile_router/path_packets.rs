//! Decides by arriving packets whether a path works, in addition to heartbeats.
//!
//! The station counts the tunnelled packets of each path. The router draws two conclusions from the counts:
//!
//! * **A path over which packets arrive has not failed.** If the load exceeds the capacity, heartbeats wait
//!   in the queue of a modem for seconds. Many of them are lost. Such a path is *full*: the answers arrive
//!   late. The router leaves its traffic there, because another uplink would be full as well, or is more
//!   expensive. The path has failed if no packet arrives for [`SATURATED_PATH_FAILURE_TIME`], or if no
//!   heartbeat is answered for [`MAX_TIME_WITHOUT_ANSWER`]. The second condition detects a path that delivers
//!   packets but does not carry those of the router.
//! * **A path whose packets no longer arrive may have failed.** The router tests it if packets have flowed
//!   continuously in both directions. The test begins at once, before the next heartbeat is due. The router
//!   sends [`DOUBTED_PATH_MAX_LOST`] heartbeats in quick succession. So TCP's first retransmission, 200 ms or
//!   more after the last acknowledgement, already goes over the other uplink.
//!
//! On an idle path, or on a path with few packets or with packets in one direction only, missing packets show
//! nothing. There only heartbeats decide.

use std::time::Duration;

use carnet_base::Time;

/// Interval between two samples of the packet counts while packets arrive continuously.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);
/// Time without an arriving packet after which the router tests a path on which packets have arrived
/// continuously.
const SILENCE_BEFORE_PATH_TEST: Duration = Duration::from_millis(60);
/// Number of heartbeats in a row without an answer after which a doubtful path has failed.
/// [`DOUBTED_PATH_PAUSE`] is the pause between them, [`DOUBTED_PATH_ANSWER_TIMEOUT`] the minimum time to wait
/// for an answer.
pub(super) const DOUBTED_PATH_MAX_LOST: usize = 4;
pub(super) const DOUBTED_PATH_PAUSE: Duration = Duration::from_millis(30);
pub(super) const DOUBTED_PATH_ANSWER_TIMEOUT: Duration = Duration::from_millis(100);
/// Time without an arriving packet after which a full path has failed.
const SATURATED_PATH_FAILURE_TIME: Duration = Duration::from_millis(2500);
/// Interval between two heartbeats on a full path that carries traffic.
pub(super) const SATURATED_PATH_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Time without an answer to a heartbeat after which a path has failed, even if packets arrive over it.
const MAX_TIME_WITHOUT_ANSWER: Duration = Duration::from_secs(6);
/// Difference between present and shortest round trip above which a path is full. Below half of it, the path
/// is no longer full.
const SATURATED_PATH_DELAY: Duration = Duration::from_millis(400);
/// Time without packets after which load cannot be the reason for long round trips.
const IDLE_PATH_TIME: Duration = Duration::from_secs(10);

/// Number of tunnelled packets over one uplink, since the path exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathTraffic {
    /// Number of packets that the station has sent through the tunnels over the uplink.
    pub sent: u64,
    /// Number of packets that the station has received through the tunnels over the uplink.
    pub received: u64,
}

/// Record of arriving and leaving packets of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct PathPackets {
    last_counts: Option<PathTraffic>,
    /// Time of the last arriving packet, or of the last answer of the home agent if that is later. `None`
    /// before the first of them.
    last_received_at: Option<Time>,
    /// Time of the home agent's last answer; `None` before the first one.
    last_answer_at: Option<Time>,
    /// Last eight samples, the newest in the lowest bit: 1 if packets arrived. `sent_samples` has the same
    /// for sent packets.
    received_samples: u8,
    sent_samples: u8,
    /// Time of the last sample. `packets_since_sample` says whether packets have left and arrived since then.
    sampled_at: Time,
    packets_since_sample: (bool, bool),
    /// Whether packets have ceased to arrive during continuous traffic, so that quick heartbeats decide
    /// whether the path has failed.
    pub(super) is_doubtful: bool,
    /// Whether round trips have grown with the load while packets still arrive.
    pub(super) is_full: bool,
    /// Shortest round trip from before the path was full; `None` while the path is not full.
    unloaded_round_trip: Option<Duration>,
    /// Time of the last sent or received packet; `None` before the first one.
    last_packet_at: Option<Time>,
}

impl PathPackets {
    /// Records an answer of the home agent. If it answers a heartbeat, `rtt` is the round trip. `least` is
    /// the shortest recent round trip.
    pub(super) fn record_answer(&mut self, now: Time, rtt: Option<Duration>, least: Option<Duration>) {
        self.last_received_at = Some(now);
        self.last_answer_at = Some(now);
        self.is_doubtful = false;
        if let (Some(rtt), Some(least)) = (rtt, least) {
            // After minutes of load the shortest recent round trip is long as well, so the one from before
            // the load is used.
            let is_loaded = self.last_packet_at.is_some_and(|at| now.saturating_since(at) < IDLE_PATH_TIME);
            let least =
                self.unloaded_round_trip.filter(|_| is_loaded).map_or(least, |unloaded| unloaded.min(least));
            let limit = if self.is_full { SATURATED_PATH_DELAY / 2 } else { SATURATED_PATH_DELAY };
            self.is_full = rtt >= least + limit;
            self.unloaded_round_trip = self.is_full.then_some(least);
        }
    }

    /// Takes over new packet counts. Returns whether the path may have failed since the last call, so that
    /// the router must test it.
    pub(super) fn update_counts(&mut self, now: Time, counts: PathTraffic) -> bool {
        let Some(before) = self.last_counts.replace(counts) else { return false };
        let (sent, received) = (counts.sent > before.sent, counts.received > before.received);
        if sent || received {
            self.last_packet_at = Some(now);
        }
        if received {
            self.last_received_at = Some(now);
            self.is_doubtful = false;
        }
        self.packets_since_sample =
            (self.packets_since_sample.0 || sent, self.packets_since_sample.1 || received);
        if now.saturating_since(self.sampled_at) < SAMPLE_INTERVAL {
            return false;
        }
        self.sampled_at = now;
        let (sent, received) = std::mem::take(&mut self.packets_since_sample);
        self.sent_samples = self.sent_samples << 1 | u8::from(sent);
        let silence = self.last_received_at.map_or(Duration::MAX, |at| now.saturating_since(at));
        if received || !self.has_steady_arrivals() {
            self.received_samples = self.received_samples << 1 | u8::from(received);
        } else if silence >= SILENCE_BEFORE_PATH_TEST {
            self.received_samples = 0;
            self.is_doubtful = self.sent_samples != 0;
            return self.is_doubtful;
        }
        false
    }

    /// Clears the record, because another path has replaced the measured one.
    pub(super) fn reset_for_new_path(&mut self) {
        *self = PathPackets { last_counts: self.last_counts, ..PathPackets::default() };
    }

    /// Returns whether packets have arrived in at least three of the last four samples.
    pub(super) fn has_steady_arrivals(&self) -> bool {
        (self.received_samples & 0b1111).count_ones() >= 3
    }

    /// Returns whether a path has failed after the permitted number of heartbeats without an answer. It has
    /// failed if no packet has arrived for `patience` ([`SATURATED_PATH_FAILURE_TIME`] on a full path), or no
    /// answer for [`MAX_TIME_WITHOUT_ANSWER`].
    pub(super) fn has_failed(&self, now: Time, patience: Duration) -> bool {
        let since = |at: Option<Time>| at.map_or(Duration::MAX, |at| now.saturating_since(at));
        let silence = if self.is_full { SATURATED_PATH_FAILURE_TIME } else { patience };
        since(self.last_received_at) >= silence || since(self.last_answer_at) >= MAX_TIME_WITHOUT_ANSWER
    }
}
