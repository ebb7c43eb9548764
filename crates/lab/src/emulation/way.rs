//! One direction of a link.
//!
//! A frame waits in a bounded queue until those before it are sent. It takes its length divided by the rate
//! at the bottleneck, may be lost there, and arrives after the delay and a jitter. A queue that is large
//! against the rate causes bufferbloat; a full one drops the newest frame. Unless reordering is allowed, no
//! frame overtakes another. Everything may change at any time, for waiting frames too, but not for those
//! already sent.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::loss::{Loss, State};
use crate::medium::chance::{Matter, unit};

/// Room of a queue unless something else is said, octets: 170 frames of 1500.
pub const QUEUE: usize = 256_000;

/// Properties of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Properties {
    /// From the end of sending to the arrival, nanoseconds.
    pub delay: u64,
    /// A frame is later by 0 to this, nanoseconds.
    pub jitter: u64,
    /// Whether jitter may change the order.
    pub reorder: bool,
    /// Bits a second, link-layer header counted; without bound if `None`, at a standstill if 0.
    pub rate: Option<u64>,
    /// Room for waiting frames, octets.
    pub queue: usize,
    /// Loss by chance.
    pub loss: Loss,
    /// Takes all frames and delivers none.
    pub blackhole: bool,
}

impl Default for Properties {
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
    /// Frames that were sent into it.
    pub frames: u64,
    /// Frames that came out.
    pub delivered: u64,
    /// Octets that came out.
    pub octets: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames that the full queue did not take.
    pub overflow: u64,
    /// Frames that a black hole took.
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
    /// Their names and values, for metrics.
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

/// A frame on its way, in order of arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    at: u64,
    number: u64,
    frame: Vec<u8>,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Way {
    seed: u64,
    properties: Properties,
    loss: State,
    /// Frames that have passed the bottleneck.
    number: u64,
    waiting: VecDeque<Vec<u8>>,
    /// Octets of these.
    octets: usize,
    /// Rest of the first frame, in bits times 1e9 (so that a division by the rate gives nanoseconds), and
    /// since when.
    left: (u64, u64),
    flying: BinaryHeap<Reverse<Flying>>,
    /// When the last one arrives.
    last: u64,
    counters: Counters,
}

const NANO: u64 = 1_000_000_000;

impl Way {
    /// An empty way.
    pub fn new(seed: u64, properties: Properties) -> Self {
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

    /// Counters of the frames so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// From `now` on it does something else to frames.
    pub fn set(&mut self, now: u64, properties: Properties) {
        self.advance(now);
        if let Some(rate) = self.properties.rate {
            let sent = now.saturating_sub(self.left.1).saturating_mul(rate);
            self.left = (self.left.0.saturating_sub(sent), now);
        }
        self.properties = properties;
        self.advance(now);
    }

    /// Takes a frame.
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

    /// When the first waiting frame has been sent.
    fn sent_at(&self) -> Option<u64> {
        self.waiting.front()?;
        match self.properties.rate {
            None => Some(self.left.1),
            Some(0) => None,
            Some(rate) => Some(self.left.1 + self.left.0.div_ceil(rate)),
        }
    }

    /// Lets everything happen at the bottleneck that happens until `now`.
    fn advance(&mut self, now: u64) {
        while let Some(at) = self.sent_at().filter(|at| *at <= now) {
            let Some(frame) = self.waiting.pop_front() else { return };
            self.octets -= frame.len();
            let next = self.waiting.front().map_or(0, |f| f.len() as u64 * 8 * NANO);
            self.left = (next, at);
            self.fly(at, frame);
        }
    }

    /// A frame has passed the bottleneck.
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
            jitter => (unit(self.seed, Matter::Jitter, &[number]) * jitter as f64) as u64,
        };
        let mut at = at + p.delay + jitter;
        if !p.reorder {
            at = at.max(self.last);
        }
        self.last = self.last.max(at);
        self.flying.push(Reverse(Flying { at, number, frame }));
    }

    /// When [`Way::poll_output`] has to be asked next.
    pub fn poll_timeout(&self) -> Option<u64> {
        let arrival = self.flying.peek().map(|f| f.0.at);
        self.sent_at().into_iter().chain(arrival).min()
    }

    /// The next frame that has arrived by `now`, and when.
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
