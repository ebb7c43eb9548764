//! Models the radio channel: access to the medium, collisions and reception.
//!
//! Access is CSMA/CA by IEEE 802.11 (10.3, DCF). A radio with a frame waits until the medium is idle for
//! DIFS. After a busy medium it also waits a random number of slots, which stop counting while the medium is
//! busy. Two radios collide if they do not hear each other, draw the same slot, or begin before they can
//! sense each other. A radio receives nothing while it sends. Overlapping frames spoil each other at a
//! receiver. With capture, a receiver gets a frame that is stronger than the sum of the others by the capture
//! margin, even if it began second. A unicast frame is acknowledged, and otherwise sent again after a longer
//! back-off, up to seven tries. A broadcast frame is sent once.
//!
//! For each frame the model uses the positions of the nodes at its beginning. Propagation takes no time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use super::chance::{DecisionKind, draw, uniform_draw};
use super::mobility::Track;
use super::propagation::Propagation;
use super::stats::Counters;
use super::timing::{Airtime, CCA, CW_MAX, CW_MIN, DIFS, SIFS, SLOT, TRIES};

/// A link-layer address.
pub type Mac = [u8; 6];
/// A frame with its Ethernet header, as the node's interface sends it.
pub type Frame = Arc<[u8]>;

/// Parameters of a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Seed of all random decisions except the shadowing.
    pub seed: u64,
    /// Propagation between radios.
    pub propagation: Propagation,
    /// Margin in dB by which a frame must be stronger than all others together to be received. With `None`
    /// overlapping frames are always lost.
    pub capture: Option<f64>,
    /// Share of the receivable frames that are lost at random, 0 to 1.
    pub loss: f64,
    /// Durations of frames on the air.
    pub airtime: Airtime,
    /// Maximum number of frames that wait in a radio.
    pub queue: usize,
}

/// An event that the channel reports to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A radio began to send a frame.
    Sent {
        /// Begin of the frame, in nanoseconds.
        at: u64,
        /// Index of the radio.
        radio: usize,
        /// The frame.
        frame: Frame,
    },
    /// A radio has received a frame.
    Received {
        /// End of the frame, in nanoseconds.
        at: u64,
        /// Index of the radio.
        radio: usize,
        /// The frame.
        frame: Frame,
    },
    /// A radio has finished with one of its own frames, successfully or not.
    Done {
        /// Index of the radio.
        radio: usize,
        /// The frame.
        frame: Frame,
        /// Number of tries; 0 if the queue was full.
        tries: u32,
        /// Whether the destination has acknowledged the frame; always false for a broadcast frame.
        acknowledged: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A frame on the air ends.
    End(u64),
    /// A radio answers a frame with an acknowledgement.
    Acknowledge { radio: usize, transmission: u64, to: usize },
    /// A radio has waited long enough for the medium.
    Attempt { radio: usize, token: u64 },
    /// A radio has waited long enough for an acknowledgement.
    NoAcknowledgement { radio: usize, token: u64 },
    /// The other radios begin to sense a frame on the air.
    Noticed(u64),
}

/// A frame on the air.
#[derive(Debug)]
struct Transmission {
    radio: usize,
    what: EventKind,
    /// Radios that sense the frame.
    hearers: Vec<usize>,
}

#[derive(Debug, Clone)]
enum EventKind {
    Data { frame: Frame, number: u64 },
    Acknowledgement { to: usize },
}

/// A frame that arrives at a radio.
#[derive(Debug)]
struct ArrivingFrame {
    transmission: u64,
    /// Margin above the receiver's sensitivity, in dB.
    margin: f64,
    spoiled: Option<LossCause>,
}

#[derive(Debug, Clone, Copy)]
enum LossCause {
    Collision,
    HalfDuplex,
}

/// The frame that a radio tries to send.
#[derive(Debug)]
struct FrameToSend {
    frame: Frame,
    number: u64,
    tries: u32,
}

#[derive(Debug)]
struct Radio {
    mac: Mac,
    track: Track,
    queue: VecDeque<Frame>,
    current: Option<FrameToSend>,
    /// Remaining slots of the back-off; `None` if the radio has not drawn a back-off.
    backoff: Option<u32>,
    /// Largest number of slots of the next back-off.
    window: u32,
    /// Number of frames on the air that this radio senses, including its own frame.
    busy: u32,
    /// Time in nanoseconds at which the medium became busy or idle.
    since: u64,
    sending: bool,
    /// Whether the radio is behind a wall: no frame reaches it or leaves it, and the radio does not know
    /// that.
    is_walled: bool,
    /// Whether the radio waits for an acknowledgement.
    waiting: bool,
    /// Number of the present attempt or wait. Scheduled events with an older number have no effect.
    token: u64,
    frames: u64,
    draws: u64,
    arriving: Vec<ArrivingFrame>,
    /// For each other radio, the number of its last frame that arrived here, to drop a second copy.
    last: BTreeMap<usize, u64>,
    counters: Counters,
}

impl Radio {
    /// Returns the time at which the radio may send, if the medium stays idle.
    fn free(&self) -> u64 {
        self.since + DIFS + u64::from(self.backoff.unwrap_or(0)) * SLOT
    }
}

/// The channel with all its radios.
#[derive(Debug)]
pub struct Channel {
    parameters: Parameters,
    radios: Vec<Radio>,
    air: BTreeMap<u64, Transmission>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    outputs: VecDeque<Output>,
    now: u64,
    /// Number of events so far. Events of the same time happen in the order of their numbers.
    order: u64,
    transmissions: u64,
    /// Time in nanoseconds of second 0 of the tracks.
    epoch: u64,
}

impl Channel {
    /// Creates a channel with these radios. Second 0 of their tracks is at `epoch`.
    pub fn new(parameters: Parameters, epoch: u64, radios: Vec<(Mac, Track)>) -> Channel {
        let radio = |(mac, track)| Radio {
            mac,
            track,
            queue: VecDeque::new(),
            current: None,
            backoff: None,
            window: CW_MIN,
            busy: 0,
            since: 0,
            sending: false,
            waiting: false,
            token: 0,
            frames: 0,
            draws: 0,
            arriving: Vec::new(),
            last: BTreeMap::new(),
            is_walled: false,
            counters: Counters::default(),
        };
        Channel {
            parameters,
            radios: radios.into_iter().map(radio).collect(),
            air: BTreeMap::new(),
            events: BinaryHeap::new(),
            outputs: VecDeque::new(),
            now: 0,
            order: 0,
            transmissions: 0,
            epoch,
        }
    }

    /// Queues a frame that a node passes to its radio. If `now` is before the channel's present time, the
    /// present time counts.
    pub fn enqueue(&mut self, now: u64, radio: usize, frame: Frame) {
        self.handle_timeout(now);
        let r = &mut self.radios[radio];
        if r.queue.len() >= self.parameters.queue {
            r.counters.overflow += 1;
            self.outputs.push_back(Output::Done { radio, frame, tries: 0, acknowledged: false });
            return;
        }
        r.queue.push_back(frame);
        self.next_frame(radio);
    }

    /// Returns the time at which the caller must call [`Channel::handle_timeout`]; `None` if no event is
    /// scheduled.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Executes all events that are due by now, in order. Each event has its own exact time, even if the call
    /// is late.
    pub fn handle_timeout(&mut self, now: u64) {
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at <= now
            && let Some(Reverse((at, _, event))) = self.events.pop()
        {
            self.now = self.now.max(at);
            match event {
                Event::End(transmission) => self.end(transmission),
                Event::Acknowledge { radio, transmission, to } => self.acknowledge(radio, transmission, to),
                Event::Attempt { radio, token } => self.attempt(radio, token),
                Event::NoAcknowledgement { radio, token } => self.try_again(radio, token),
                Event::Noticed(transmission) => self.noticed(transmission),
            }
        }
        self.now = self.now.max(now);
    }

    /// Returns the next output that the caller has to execute; `None` if all are executed.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the present counters of each radio.
    pub fn counters(&self) -> Vec<Counters> {
        let counters = |r: &Radio| {
            let busy = if r.busy > 0 { self.now - r.since } else { 0 };
            Counters { busy: r.counters.busy + busy, ..r.counters }
        };
        self.radios.iter().map(counters).collect()
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    /// Draws a random number of slots for a radio's back-off.
    fn draw_backoff(&mut self, radio: usize) {
        let r = &mut self.radios[radio];
        r.draws += 1;
        let bits = draw(self.parameters.seed, DecisionKind::Backoff, &[radio as u64, r.draws]);
        r.backoff = Some((bits % u64::from(r.window + 1)) as u32);
    }

    /// If the radio has no frame to send, takes the next one from its queue.
    fn next_frame(&mut self, radio: usize) {
        let now = self.now;
        let r = &mut self.radios[radio];
        if r.current.is_some() {
            return;
        }
        let Some(frame) = r.queue.pop_front() else { return };
        r.frames += 1;
        r.current = Some(FrameToSend { frame, number: r.frames, tries: 0 });
        if r.backoff.is_none() && (r.busy > 0 || now < r.since + DIFS) {
            self.draw_backoff(radio);
        }
        self.plan_attempt(radio);
    }

    /// Schedules the sending of the current frame, while the medium is idle.
    fn plan_attempt(&mut self, radio: usize) {
        let r = &mut self.radios[radio];
        r.token += 1;
        if r.current.is_none() || r.waiting || r.busy > 0 {
            return;
        }
        let (at, token) = (r.free().max(self.now), r.token);
        self.plan(at, Event::Attempt { radio, token });
    }

    fn attempt(&mut self, radio: usize, token: u64) {
        let r = &mut self.radios[radio];
        if r.token != token || r.sending {
            return;
        }
        let Some(current) = &mut r.current else { return };
        current.tries += 1;
        let (frame, number, tries) = (current.frame.clone(), current.number, current.tries);
        r.backoff = None;
        r.counters.sent += 1;
        r.counters.retries += u64::from(tries > 1);
        self.outputs.push_back(Output::Sent { at: self.now, radio, frame: frame.clone() });
        let airtime = self.parameters.airtime.of_frame(frame.len());
        self.transmit(radio, EventKind::Data { frame, number }, airtime);
    }

    fn acknowledge(&mut self, radio: usize, transmission: u64, to: usize) {
        debug_assert!(self.transmissions >= transmission);
        if !self.radios[radio].sending {
            let airtime = self.parameters.airtime.of_acknowledgement();
            self.transmit(radio, EventKind::Acknowledgement { to }, airtime);
        }
    }

    /// Puts a radio behind a wall or removes the wall. Frames that are already on the air still arrive.
    pub fn set_walled(&mut self, radio: usize, walled: bool) {
        if let Some(radio) = self.radios.get_mut(radio) {
            radio.is_walled = walled;
        }
    }

    /// Gives a radio another link-layer address. From now on the radio receives and acknowledges frames to
    /// that address.
    pub fn set_address(&mut self, radio: usize, mac: Mac) {
        if let Some(radio) = self.radios.get_mut(radio) {
            radio.mac = mac;
        }
    }

    /// Returns the link-layer address of a radio; `None` if no radio has this index.
    pub fn address(&self, radio: usize) -> Option<Mac> {
        self.radios.get(radio).map(|radio| radio.mac)
    }

    /// Puts a frame on the air.
    fn transmit(&mut self, radio: usize, what: EventKind, airtime: u64) {
        let seconds = (self.now as f64 - self.epoch as f64) / 1e9;
        self.transmissions += 1;
        let transmission = self.transmissions;
        let propagation = &self.parameters.propagation;
        let mut hearers = Vec::new();
        let walled = self.radios[radio].is_walled;
        if let Some(place) = self.radios[radio].track.at(seconds).filter(|_| !walled) {
            let others = self.radios.iter_mut().enumerate();
            for (n, other) in others.filter(|(n, other)| *n != radio && !other.is_walled) {
                let Some(there) = other.track.at(seconds) else { continue };
                let margin = propagation.link_margin_db((radio, place), (n, there));
                if margin < propagation.min_noticed_margin_db() {
                    continue;
                }
                hearers.push(n);
                let spoiled = other.sending.then_some(LossCause::HalfDuplex);
                other.arriving.push(ArrivingFrame { transmission, margin, spoiled });
                spoil(&mut other.arriving, self.parameters.capture);
            }
        }
        let r = &mut self.radios[radio];
        r.sending = true;
        r.counters.airtime += airtime;
        for arriving in &mut r.arriving {
            arriving.spoiled.get_or_insert(LossCause::HalfDuplex);
        }
        self.air.insert(transmission, Transmission { radio, what, hearers });
        self.becomes_busy(radio);
        self.plan(self.now + CCA, Event::Noticed(transmission));
        self.plan(self.now + airtime, Event::End(transmission));
    }

    fn noticed(&mut self, transmission: u64) {
        let Some(hearers) = self.air.get(&transmission).map(|t| t.hearers.clone()) else { return };
        for radio in hearers {
            self.becomes_busy(radio);
        }
    }

    fn becomes_busy(&mut self, radio: usize) {
        let now = self.now;
        let r = &mut self.radios[radio];
        r.busy += 1;
        if r.busy > 1 {
            return;
        }
        let contends = r.current.is_some() && !r.waiting && !r.sending;
        let elapsed = now.saturating_sub(r.since + DIFS) / SLOT;
        r.backoff = match r.backoff {
            Some(_) if !contends && now >= r.free() => None,
            Some(slots) => Some(slots.saturating_sub(u32::try_from(elapsed).unwrap_or(u32::MAX))),
            None => None,
        };
        r.since = now;
        r.token += u64::from(!r.waiting);
        if contends && r.backoff.is_none() {
            self.draw_backoff(radio);
        }
    }

    fn becomes_idle(&mut self, radio: usize) {
        let now = self.now;
        let r = &mut self.radios[radio];
        r.busy -= 1;
        if r.busy > 0 {
            return;
        }
        r.counters.busy += now - r.since;
        r.since = now;
        if !r.waiting {
            self.plan_attempt(radio);
        }
    }

    /// Handles the end of a frame on the air.
    fn end(&mut self, transmission: u64) {
        let Some(Transmission { radio, what, hearers }) = self.air.remove(&transmission) else { return };
        self.radios[radio].sending = false;
        for hearer in hearers {
            let arriving = &mut self.radios[hearer].arriving;
            let found = arriving.iter().position(|a| a.transmission == transmission);
            let arrived = found.map(|at| arriving.swap_remove(at));
            self.becomes_idle(hearer);
            if let Some(arrived) =
                arrived.filter(|a| a.margin >= self.parameters.propagation.min_readable_margin_db())
            {
                self.arrived(hearer, radio, transmission, &what, arrived.spoiled);
            }
        }
        let r = &mut self.radios[radio];
        match &what {
            EventKind::Data { frame, .. } if is_group(frame) => {
                let current = r.current.take();
                self.becomes_idle(radio);
                self.finish(radio, current, false);
            }
            EventKind::Data { .. } => {
                r.waiting = true;
                r.token += 1;
                let token = r.token;
                let at = self.now + self.parameters.airtime.acknowledgement_timeout();
                self.plan(at, Event::NoAcknowledgement { radio, token });
                self.becomes_idle(radio);
            }
            EventKind::Acknowledgement { .. } => self.becomes_idle(radio),
        }
    }

    /// Handles the end of a frame that a receiver could read.
    fn arrived(
        &mut self,
        radio: usize,
        from: usize,
        transmission: u64,
        what: &EventKind,
        spoiled: Option<LossCause>,
    ) {
        let at = self.now;
        let r = &mut self.radios[radio];
        let lost = || {
            let about = [transmission, from as u64, radio as u64];
            self.parameters.loss > 0.0
                && uniform_draw(self.parameters.seed, DecisionKind::Loss, &about) < self.parameters.loss
        };
        match (what, spoiled) {
            (EventKind::Data { frame, .. }, _) if !is_group(frame) && !is_for(r.mac, frame) => {}
            (EventKind::Data { .. }, Some(LossCause::Collision)) => r.counters.collided += 1,
            (EventKind::Data { .. }, Some(LossCause::HalfDuplex)) => r.counters.half_duplex += 1,
            (EventKind::Data { .. }, None) if lost() => r.counters.lost += 1,
            (EventKind::Data { frame, number }, None) => {
                let to_me = is_for(r.mac, frame);
                if !to_me || r.last.insert(from, *number) != Some(*number) {
                    r.counters.received += 1;
                    self.outputs.push_back(Output::Received { at, radio, frame: frame.clone() });
                }
                if to_me {
                    self.plan(at + SIFS, Event::Acknowledge { radio, transmission, to: from });
                }
            }
            (EventKind::Acknowledgement { to }, None) if *to == radio && r.waiting && !lost() => {
                r.waiting = false;
                let current = r.current.take();
                self.finish(radio, current, true);
            }
            (EventKind::Acknowledgement { .. }, _) => {}
        }
    }

    /// Handles a missing acknowledgement.
    fn try_again(&mut self, radio: usize, token: u64) {
        let r = &mut self.radios[radio];
        if r.token != token || !r.waiting {
            return;
        }
        r.waiting = false;
        if r.current.as_ref().is_none_or(|c| c.tries >= TRIES) {
            r.counters.unacknowledged += 1;
            let current = r.current.take();
            self.finish(radio, current, false);
        } else {
            r.window = (r.window * 2 + 1).min(CW_MAX);
            self.draw_backoff(radio);
            self.plan_attempt(radio);
        }
    }

    /// Ends the current frame. A back-off precedes the next frame (IEEE 802.11-2020 10.3.4.3).
    fn finish(&mut self, radio: usize, current: Option<FrameToSend>, acknowledged: bool) {
        if let Some(FrameToSend { frame, tries, .. }) = current {
            self.outputs.push_back(Output::Done { radio, frame, tries, acknowledged });
        }
        let r = &mut self.radios[radio];
        r.window = CW_MIN;
        self.draw_backoff(radio);
        self.next_frame(radio);
    }
}

/// Returns whether the frame is for the station with this address.
fn is_for(mac: Mac, frame: &[u8]) -> bool {
    frame.get(..6).is_some_and(|to| to == mac)
}

/// Returns whether the frame is for all stations or a group.
fn is_group(frame: &[u8]) -> bool {
    frame.first().is_some_and(|octet| octet & 1 == 1)
}

/// Marks frames as lost that arrive at a receiver at the same time. With capture, the receiver still gets a
/// frame that is strong enough.
fn spoil(arriving: &mut [ArrivingFrame], capture: Option<f64>) {
    if arriving.len() < 2 {
        return;
    }
    let power = |margin: f64| 10_f64.powf(margin / 10.0);
    let all: f64 = arriving.iter().map(|a| power(a.margin)).sum();
    for one in arriving {
        let own = power(one.margin);
        let stronger = 10.0 * (own / (all - own).max(f64::MIN_POSITIVE)).log10();
        if capture.is_none_or(|needed| stronger < needed) {
            one.spoiled.get_or_insert(LossCause::Collision);
        }
    }
}
