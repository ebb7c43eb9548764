//! One direction of a link.
//!
//! A frame waits in a bounded queue until the frames before it are sent. Sending a frame at the bottleneck
//! takes its length divided by the rate. Then the frame may be lost; otherwise it arrives after the delay and
//! a jitter. If the queue is large compared with the rate, frames wait long (bufferbloat); a full queue drops
//! the newest frame. Unless reordering is allowed, no frame overtakes another. All properties may change at
//! any time. A change affects waiting frames too, but no frames that have been sent.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::loss::{Loss, State};
use crate::medium::chance::{DecisionKind, uniform_draw};

/// Default capacity of a queue in octets: 170 frames of 1500 octets.
pub const QUEUE: usize = 256_000;

/// Properties of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionProperties {
    /// Delay from the end of sending to the arrival, in nanoseconds.
    pub delay: u64,
    /// Largest random addition to the delay of a frame, in nanoseconds.
    pub jitter: u64,
    /// Whether the jitter may reorder frames.
    pub reorder: bool,
    /// Rate in bits per second, including link-layer headers. `None` is unlimited; with 0 the direction sends
    /// no frame.
    pub rate: Option<u64>,
    /// Capacity of the queue in octets.
    pub queue: usize,
    /// Random loss.
    pub loss: Loss,
    /// Whether the direction accepts all frames but delivers no frame.
    pub blackhole: bool,
}

impl Default for DirectionProperties {
    fn default() -> Self {
        Self {
            delay: 0,
            jitter: 0,
            reorder: false,
            rate: None,
            queue: QUEUE,
            loss: Loss::default(),
            blackhole: false,
        }
    }
}

/// Counters of the frames of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that entered the direction.
    pub frames: u64,
    /// Frames that were delivered.
    pub delivered: u64,
    /// Number of octets that were delivered.
    pub octets: u64,
    /// Frames lost at random.
    pub lost: u64,
    /// Frames that the full queue dropped.
    pub overflow: u64,
    /// Frames that were lost in a black hole.
    pub vanished: u64,
}

impl std::ops::Sub for Counters {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self {
            frames: self.frames - o.frames,
            delivered: self.delivered - o.delivered,
            octets: self.octets - o.octets,
            lost: self.lost - o.lost,
            overflow: self.overflow - o.overflow,
            vanished: self.vanished - o.vanished,
        }
    }
}

impl Counters {
    /// Returns the counters' names and values, for metrics.
    pub fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("frames", self.frames as f64),
            ("delivered", self.delivered as f64),
            ("octets", self.octets as f64),
            ("lost", self.lost as f64),
            ("overflow", self.overflow as f64),
            ("vanished", self.vanished as f64),
        ]
    }
}

/// A sent frame that has not arrived; ordered by arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    at: u64,
    number: u64,
    frame: Vec<u8>,
}

/// One direction of an emulated link.
#[derive(Debug)]
pub struct LinkDirection {
    seed: u64,
    properties: DirectionProperties,
    loss: State,
    /// Number of frames that have passed the bottleneck.
    number: u64,
    waiting: VecDeque<Vec<u8>>,
    /// Number of octets of the waiting frames.
    octets: usize,
    /// Unsent part of the first frame, and the time since which it is being sent. The part is in bits times
    /// 1e9, so that a division by the rate gives nanoseconds.
    left: (u64, u64),
    flying: BinaryHeap<Reverse<Flying>>,
    /// Time in nanoseconds at which the last sent frame arrives.
    last: u64,
    counters: Counters,
}

const NANO: u64 = 1_000_000_000;

impl LinkDirection {
    /// Creates a direction without frames.
    pub fn new(seed: u64, properties: DirectionProperties) -> Self {
        Self {
            seed,
            properties,
            loss: State::default(),
            number: 0,
            waiting: VecDeque::new(),
            octets: 0,
            left: (0, 0),
            flying: BinaryHeap::new(),
            last: 0,
            counters: Counters::default(),
        }
    }

    /// Returns the counters of this direction since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sets the properties from `now` on.
    pub fn set(&mut self, now: u64, properties: DirectionProperties) {
        self.advance(now);
        if let Some(rate) = self.properties.rate {
            let sent = now.saturating_sub(self.left.1).saturating_mul(rate);
            self.left = (self.left.0.saturating_sub(sent), now);
        }
        self.properties = properties;
        self.advance(now);
    }

    /// Accepts a frame at the sending end.
    pub fn enqueue(&mut self, now: u64, frame: Vec<u8>) {
        self.advance(now);
        self.counters.frames += 1;
        if self.properties.rate.is_none() {
            return self.fly(now, frame);
        }
        if self.octets + frame.len() > self.properties.queue {
            self.counters.overflow += 1;
            return;
        }
        if self.waiting.is_empty() {
            self.left = (frame.len() as u64 * 8 * NANO, now);
        }
        self.octets += frame.len();
        self.waiting.push_back(frame);
    }

    /// Returns the time at which the first waiting frame has been sent completely; `None` if no frame waits,
    /// or the rate is 0.
    fn sent_at(&self) -> Option<u64> {
        self.waiting.front()?;
        match self.properties.rate {
            None => Some(self.left.1),
            Some(0) => None,
            Some(rate) => Some(self.left.1 + self.left.0.div_ceil(rate)),
        }
    }

    /// Sends the waiting frames that are completely sent by the time `now`.
    fn advance(&mut self, now: u64) {
        while let Some(at) = self.sent_at().filter(|at| *at <= now) {
            let Some(frame) = self.waiting.pop_front() else { return };
            self.octets -= frame.len();
            let next = self.waiting.front().map_or(0, |f| f.len() as u64 * 8 * NANO);
            self.left = (next, at);
            self.fly(at, frame);
        }
    }

    /// Handles a frame that the bottleneck has completely sent.
    fn fly(&mut self, at: u64, frame: Vec<u8>) {
        let number = self.number;
        self.number += 1;
        let p = &self.properties;
        if p.blackhole {
            self.counters.vanished += 1;
            return;
        }
        if self.loss.loses(&p.loss, self.seed, number) {
            self.counters.lost += 1;
            return;
        }
        let jitter = match p.jitter {
            0 => 0,
            jitter => (uniform_draw(self.seed, DecisionKind::Jitter, &[number]) * jitter as f64) as u64,
        };
        let mut at = at + p.delay + jitter;
        if !p.reorder {
            at = at.max(self.last);
        }
        self.last = self.last.max(at);
        self.flying.push(Reverse(Flying { at, number, frame }));
    }

    /// Returns the time at which the next frame arrives, or the first waiting frame has been sent; `None` if
    /// neither will happen.
    pub fn poll_timeout(&self) -> Option<u64> {
        let arrival = self.flying.peek().map(|f| f.0.at);
        self.sent_at().into_iter().chain(arrival).min()
    }

    /// Returns the next frame that has arrived by `now`, with its arrival time; `None` if no frame has
    /// arrived.
    pub fn poll_output(&mut self, now: u64) -> Option<(u64, Vec<u8>)> {
        self.advance(now);
        self.flying.peek().filter(|f| f.0.at <= now)?;
        let Reverse(Flying { at, frame, .. }) = self.flying.pop()?;
        self.counters.delivered += 1;
        self.counters.octets += frame.len() as u64;
        Some((at, frame))
    }
}

#[cfg(test)]
#[path = "way_tests.rs"]
mod tests;
