//! One direction of a link.
//!
//! A frame waits in a bounded queue until the frames before it are sent. Sending a frame at the bottleneck
//! takes its length divided by the rate. Then the frame may be lost; otherwise it arrives after the delay and
//! a jitter. If the queue is large compared with the rate, frames wait long (bufferbloat); a full queue drops
//! the newest frame. Unless reordering is allowed, no frame overtakes another. All properties may change at
//! any time. A change affects waiting frames too, but no frames that have been sent.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::loss::{BurstState, Loss};
use crate::medium::chance::{RandomDecisionKind, draw_uniform};

/// Default capacity of a queue in octets: 170 frames of 1500 octets.
pub const DEFAULT_QUEUE_OCTETS: usize = 256_000;

/// Properties of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionProperties {
    /// Delay from the end of sending to the arrival, in nanoseconds.
    pub delay: u64,
    /// Largest random addition to the delay of a frame, in nanoseconds.
    pub jitter: u64,
    /// Whether the jitter may reorder frames.
    pub may_reorder: bool,
    /// Rate in bits per second, including link-layer headers. `None` is unlimited; with 0 the direction sends
    /// no frame.
    pub rate: Option<u64>,
    /// Capacity of the queue in octets.
    pub queue_octets: usize,
    /// Random loss.
    pub loss: Loss,
    /// Whether the direction accepts all frames but delivers no frame.
    pub drops_all_frames: bool,
}

impl Default for DirectionProperties {
    fn default() -> Self {
        Self {
            delay: 0,
            jitter: 0,
            may_reorder: false,
            rate: None,
            queue_octets: DEFAULT_QUEUE_OCTETS,
            loss: Loss::default(),
            drops_all_frames: false,
        }
    }
}

/// Counters of the frames of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that entered the direction.
    pub entered_frames: u64,
    /// Frames that were delivered.
    pub delivered_frames: u64,
    /// Number of octets that were delivered.
    pub octets: u64,
    /// Frames lost at random.
    pub lost_frames: u64,
    /// Frames that the full queue dropped.
    pub queue_overflows: u64,
    /// Frames that were lost while the direction dropped all frames (black hole).
    pub blackholed_frames: u64,
}

impl std::ops::Sub for Counters {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self {
            entered_frames: self.entered_frames - o.entered_frames,
            delivered_frames: self.delivered_frames - o.delivered_frames,
            octets: self.octets - o.octets,
            lost_frames: self.lost_frames - o.lost_frames,
            queue_overflows: self.queue_overflows - o.queue_overflows,
            blackholed_frames: self.blackholed_frames - o.blackholed_frames,
        }
    }
}

impl Counters {
    /// Returns the counters' names and values, for metrics.
    pub fn named_values(&self) -> [(&'static str, f64); 6] {
        [
            ("frames", self.entered_frames as f64),
            ("delivered", self.delivered_frames as f64),
            ("octets", self.octets as f64),
            ("lost", self.lost_frames as f64),
            ("overflow", self.queue_overflows as f64),
            ("vanished", self.blackholed_frames as f64),
        ]
    }
}

/// A sent frame that has not arrived; ordered by arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FrameInTransit {
    arrives_at: u64,
    number: u64,
    frame: Vec<u8>,
}

/// One direction of an emulated link.
#[derive(Debug)]
pub struct LinkDirection {
    seed: u64,
    properties: DirectionProperties,
    burst_state: BurstState,
    /// Number of frames that have passed the bottleneck.
    sent_frame_count: u64,
    waiting_frames: VecDeque<Vec<u8>>,
    /// Number of octets of the waiting frames.
    queued_octets: usize,
    /// Unsent part of the first frame, and the time since which it is being sent. The part is in bits times
    /// 1e9, so that a division by the rate gives nanoseconds.
    partly_sent_frame: (u64, u64),
    frames_in_transit: BinaryHeap<Reverse<FrameInTransit>>,
    /// Time in nanoseconds at which the last sent frame arrives.
    last_arrival_at: u64,
    counters: Counters,
}

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

impl LinkDirection {
    /// Creates a direction without frames.
    pub fn new(seed: u64, properties: DirectionProperties) -> Self {
        Self {
            seed,
            properties,
            burst_state: BurstState::default(),
            sent_frame_count: 0,
            waiting_frames: VecDeque::new(),
            queued_octets: 0,
            partly_sent_frame: (0, 0),
            frames_in_transit: BinaryHeap::new(),
            last_arrival_at: 0,
            counters: Counters::default(),
        }
    }

    /// Returns the counters of this direction since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sets the properties from `now` on.
    pub fn set_properties(&mut self, now: u64, properties: DirectionProperties) {
        self.send_until(now);
        if let Some(rate) = self.properties.rate {
            let sent = now.saturating_sub(self.partly_sent_frame.1).saturating_mul(rate);
            self.partly_sent_frame = (self.partly_sent_frame.0.saturating_sub(sent), now);
        }
        self.properties = properties;
        self.send_until(now);
    }

    /// Accepts a frame at the sending end.
    pub fn enqueue(&mut self, now: u64, frame: Vec<u8>) {
        self.send_until(now);
        self.counters.entered_frames += 1;
        if self.properties.rate.is_none() {
            return self.start_transit(now, frame);
        }
        if self.queued_octets + frame.len() > self.properties.queue_octets {
            self.counters.queue_overflows += 1;
            return;
        }
        if self.waiting_frames.is_empty() {
            self.partly_sent_frame = (frame.len() as u64 * 8 * NANOSECONDS_PER_SECOND, now);
        }
        self.queued_octets += frame.len();
        self.waiting_frames.push_back(frame);
    }

    /// Returns the time at which the first waiting frame has been sent completely; `None` if no frame waits,
    /// or the rate is 0.
    fn next_sent_at(&self) -> Option<u64> {
        self.waiting_frames.front()?;
        match self.properties.rate {
            None => Some(self.partly_sent_frame.1),
            Some(0) => None,
            Some(rate) => Some(self.partly_sent_frame.1 + self.partly_sent_frame.0.div_ceil(rate)),
        }
    }

    /// Sends the waiting frames that are completely sent by the time `now`.
    fn send_until(&mut self, now: u64) {
        while let Some(at) = self.next_sent_at().filter(|at| *at <= now) {
            let Some(frame) = self.waiting_frames.pop_front() else { return };
            self.queued_octets -= frame.len();
            let next = self.waiting_frames.front().map_or(0, |f| f.len() as u64 * 8 * NANOSECONDS_PER_SECOND);
            self.partly_sent_frame = (next, at);
            self.start_transit(at, frame);
        }
    }

    /// Handles a frame that the bottleneck has completely sent.
    fn start_transit(&mut self, at: u64, frame: Vec<u8>) {
        let number = self.sent_frame_count;
        self.sent_frame_count += 1;
        let p = &self.properties;
        if p.drops_all_frames {
            self.counters.blackholed_frames += 1;
            return;
        }
        if self.burst_state.loses_frame(&p.loss, self.seed, number) {
            self.counters.lost_frames += 1;
            return;
        }
        let jitter = match p.jitter {
            0 => 0,
            jitter => (draw_uniform(self.seed, RandomDecisionKind::Jitter, &[number]) * jitter as f64) as u64,
        };
        let mut at = at + p.delay + jitter;
        if !p.may_reorder {
            at = at.max(self.last_arrival_at);
        }
        self.last_arrival_at = self.last_arrival_at.max(at);
        self.frames_in_transit.push(Reverse(FrameInTransit { arrives_at: at, number, frame }));
    }

    /// Returns the time at which the next frame arrives, or the first waiting frame has been sent; `None` if
    /// neither will happen.
    pub fn poll_timeout(&self) -> Option<u64> {
        let arrival = self.frames_in_transit.peek().map(|f| f.0.arrives_at);
        self.next_sent_at().into_iter().chain(arrival).min()
    }

    /// Returns the next frame that has arrived by `now`, with its arrival time; `None` if no frame has
    /// arrived.
    pub fn poll_output(&mut self, now: u64) -> Option<(u64, Vec<u8>)> {
        self.send_until(now);
        self.frames_in_transit.peek().filter(|f| f.0.arrives_at <= now)?;
        let Reverse(FrameInTransit { arrives_at: at, frame, .. }) = self.frames_in_transit.pop()?;
        self.counters.delivered_frames += 1;
        self.counters.octets += frame.len() as u64;
        Some((at, frame))
    }
}

#[cfg(test)]
#[path = "way_tests.rs"]
mod tests;
