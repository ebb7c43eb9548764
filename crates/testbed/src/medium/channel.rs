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

use super::chance::{RandomDecisionKind, draw_uniform, random_bits};
use super::mobility::Track;
use super::propagation::Propagation;
use super::stats::Counters;
use super::timing::{
    Airtime, CLEAR_CHANNEL_ASSESSMENT_TIME, CONTENTION_WINDOW_MAX, CONTENTION_WINDOW_MIN,
    DISTRIBUTED_INTERFRAME_SPACE, MAX_TRANSMISSION_ATTEMPTS, SHORT_INTERFRAME_SPACE, SLOT_TIME,
};

/// A link-layer address.
pub type MacAddress = [u8; 6];
/// A frame with its Ethernet header, as the node's interface sends it.
pub type Frame = Arc<[u8]>;

/// Parameters of a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelParameters {
    /// Seed of all random decisions except the shadowing.
    pub seed: u64,
    /// Propagation between radios.
    pub propagation: Propagation,
    /// Margin in dB by which a frame must be stronger than all others together to be received. With `None`
    /// overlapping frames are always lost.
    pub capture_threshold_db: Option<f64>,
    /// Share of the receivable frames that are lost at random, 0 to 1.
    pub loss_probability: f64,
    /// Durations of frames on the air.
    pub airtime: Airtime,
    /// Maximum number of frames that wait in a radio.
    pub queue_length: usize,
}

/// An event on the channel, which the caller has to carry out or record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelOutput {
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
enum ChannelEvent {
    /// A frame on the air ends; the value is the number of its transmission.
    End(u64),
    /// A radio answers a frame with an acknowledgement.
    Acknowledge { radio: usize, transmission: u64, to: usize },
    /// A radio has waited long enough for the medium.
    Attempt { radio: usize, token: u64 },
    /// A radio has waited long enough for an acknowledgement.
    NoAcknowledgement { radio: usize, token: u64 },
    /// The other radios begin to sense a frame on the air; the value is the number of its transmission.
    Noticed(u64),
}

/// A frame on the air.
#[derive(Debug)]
struct Transmission {
    sender: usize,
    content: TransmissionContent,
    /// Radios that sense the frame.
    radios_sensing_transmission: Vec<usize>,
}

#[derive(Debug, Clone)]
enum TransmissionContent {
    Data { frame: Frame, number: u64 },
    Acknowledgement { to: usize },
}

/// A frame that arrives at a radio.
#[derive(Debug)]
struct ArrivingFrame {
    transmission: u64,
    /// Margin above the receiver's sensitivity, in dB.
    link_margin_db: f64,
    loss_cause: Option<LossCause>,
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
    attempts: u32,
}

#[derive(Debug)]
struct RadioState {
    mac: MacAddress,
    track: Track,
    queue: VecDeque<Frame>,
    frame_to_send: Option<FrameToSend>,
    /// Remaining slots of the back-off; `None` if the radio has not drawn a back-off.
    backoff_slots: Option<u32>,
    /// Largest number of slots of the next back-off.
    contention_window: u32,
    /// Number of frames on the air that this radio senses, including its own frame.
    busy_transmissions: u32,
    /// Time in nanoseconds at which the medium became busy or idle.
    channel_state_since: u64,
    is_sending: bool,
    /// Whether the radio is behind a wall: no frame reaches it or leaves it, and the radio does not know
    /// that.
    is_enclosed: bool,
    /// Whether the radio waits for an acknowledgement.
    awaits_acknowledgement: bool,
    /// Number of the present attempt or wait. Scheduled events with an older number have no effect.
    attempt_number: u64,
    enqueued_frames: u64,
    random_draw_count: u64,
    arriving_frames: Vec<ArrivingFrame>,
    /// For each other radio, the number of its last frame that arrived here, to drop a second copy.
    last_frame_numbers: BTreeMap<usize, u64>,
    counters: Counters,
}

impl RadioState {
    /// Returns the time at which the radio may send, if the medium stays idle.
    fn may_send_at(&self) -> u64 {
        self.channel_state_since
            + DISTRIBUTED_INTERFRAME_SPACE
            + u64::from(self.backoff_slots.unwrap_or(0)) * SLOT_TIME
    }
}

/// The channel with all its radios.
#[derive(Debug)]
pub struct Channel {
    parameters: ChannelParameters,
    radios: Vec<RadioState>,
    transmissions_on_air: BTreeMap<u64, Transmission>,
    events: BinaryHeap<Reverse<(u64, u64, ChannelEvent)>>,
    outputs: VecDeque<ChannelOutput>,
    now: u64,
    /// Number of events so far. Events of the same time happen in the order of their numbers.
    event_count: u64,
    transmission_count: u64,
    /// Time in nanoseconds of second 0 of the tracks.
    track_start: u64,
}

impl Channel {
    /// Creates a channel with these radios. Second 0 of their tracks is at `epoch`.
    pub fn new(parameters: ChannelParameters, epoch: u64, radios: Vec<(MacAddress, Track)>) -> Channel {
        let radio = |(mac, track)| RadioState {
            mac,
            track,
            queue: VecDeque::new(),
            frame_to_send: None,
            backoff_slots: None,
            contention_window: CONTENTION_WINDOW_MIN,
            busy_transmissions: 0,
            channel_state_since: 0,
            is_sending: false,
            awaits_acknowledgement: false,
            attempt_number: 0,
            enqueued_frames: 0,
            random_draw_count: 0,
            arriving_frames: Vec::new(),
            last_frame_numbers: BTreeMap::new(),
            is_enclosed: false,
            counters: Counters::default(),
        };
        Channel {
            parameters,
            radios: radios.into_iter().map(radio).collect(),
            transmissions_on_air: BTreeMap::new(),
            events: BinaryHeap::new(),
            outputs: VecDeque::new(),
            now: 0,
            event_count: 0,
            transmission_count: 0,
            track_start: epoch,
        }
    }

    /// Queues a frame that a node passes to its radio. If `now` is before the channel's present time, the
    /// present time counts.
    pub fn enqueue(&mut self, now: u64, radio: usize, frame: Frame) {
        self.handle_timeout(now);
        let r = &mut self.radios[radio];
        if r.queue.len() >= self.parameters.queue_length {
            r.counters.queue_overflows += 1;
            self.outputs.push_back(ChannelOutput::Done { radio, frame, tries: 0, acknowledged: false });
            return;
        }
        r.queue.push_back(frame);
        self.take_next_frame(radio);
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
                ChannelEvent::End(transmission) => self.end_transmission(transmission),
                ChannelEvent::Acknowledge { radio, transmission, to } => {
                    self.send_acknowledgement(radio, transmission, to)
                }
                ChannelEvent::Attempt { radio, token } => self.attempt_transmission(radio, token),
                ChannelEvent::NoAcknowledgement { radio, token } => self.retry_after_timeout(radio, token),
                ChannelEvent::Noticed(transmission) => self.start_sensing_transmission(transmission),
            }
        }
        self.now = self.now.max(now);
    }

    /// Returns the next output that the caller has to execute; `None` if all are executed.
    pub fn poll_output(&mut self) -> Option<ChannelOutput> {
        self.outputs.pop_front()
    }

    /// Returns the present counters of each radio.
    pub fn counters(&self) -> Vec<Counters> {
        let counters = |r: &RadioState| {
            let busy = if r.busy_transmissions > 0 { self.now - r.channel_state_since } else { 0 };
            Counters { busy_nanoseconds: r.counters.busy_nanoseconds + busy, ..r.counters }
        };
        self.radios.iter().map(counters).collect()
    }

    fn schedule_event(&mut self, at: u64, event: ChannelEvent) {
        self.event_count += 1;
        self.events.push(Reverse((at, self.event_count, event)));
    }

    /// Draws a random number of slots for a radio's back-off.
    fn draw_backoff(&mut self, radio: usize) {
        let r = &mut self.radios[radio];
        r.random_draw_count += 1;
        let bits = random_bits(
            self.parameters.seed,
            RandomDecisionKind::Backoff,
            &[radio as u64, r.random_draw_count],
        );
        r.backoff_slots = Some((bits % u64::from(r.contention_window + 1)) as u32);
    }

    /// If the radio has no frame to send, takes the next one from its queue.
    fn take_next_frame(&mut self, radio: usize) {
        let now = self.now;
        let r = &mut self.radios[radio];
        if r.frame_to_send.is_some() {
            return;
        }
        let Some(frame) = r.queue.pop_front() else { return };
        r.enqueued_frames += 1;
        r.frame_to_send = Some(FrameToSend { frame, number: r.enqueued_frames, attempts: 0 });
        if r.backoff_slots.is_none()
            && (r.busy_transmissions > 0 || now < r.channel_state_since + DISTRIBUTED_INTERFRAME_SPACE)
        {
            self.draw_backoff(radio);
        }
        self.schedule_attempt(radio);
    }

    /// If the medium is idle, schedules the time at which the radio may send its current frame. Cancels the
    /// attempt that was scheduled before.
    fn schedule_attempt(&mut self, radio: usize) {
        let r = &mut self.radios[radio];
        r.attempt_number += 1;
        if r.frame_to_send.is_none() || r.awaits_acknowledgement || r.busy_transmissions > 0 {
            return;
        }
        let (at, token) = (r.may_send_at().max(self.now), r.attempt_number);
        self.schedule_event(at, ChannelEvent::Attempt { radio, token });
    }

    fn attempt_transmission(&mut self, radio: usize, token: u64) {
        let r = &mut self.radios[radio];
        if r.attempt_number != token || r.is_sending {
            return;
        }
        let Some(current) = &mut r.frame_to_send else { return };
        current.attempts += 1;
        let (frame, number, tries) = (current.frame.clone(), current.number, current.attempts);
        r.backoff_slots = None;
        r.counters.sent_frames += 1;
        r.counters.retries += u64::from(tries > 1);
        self.outputs.push_back(ChannelOutput::Sent { at: self.now, radio, frame: frame.clone() });
        let airtime = self.parameters.airtime.frame_airtime(frame.len());
        self.start_transmission(radio, TransmissionContent::Data { frame, number }, airtime);
    }

    fn send_acknowledgement(&mut self, radio: usize, transmission: u64, to: usize) {
        debug_assert!(self.transmission_count >= transmission);
        if !self.radios[radio].is_sending {
            let airtime = self.parameters.airtime.acknowledgement_airtime();
            self.start_transmission(radio, TransmissionContent::Acknowledgement { to }, airtime);
        }
    }

    /// Puts a radio behind a wall or removes the wall. Frames that are already on the air still arrive.
    pub fn set_enclosed(&mut self, radio: usize, walled: bool) {
        if let Some(radio) = self.radios.get_mut(radio) {
            radio.is_enclosed = walled;
        }
    }

    /// Gives a radio another link-layer address. From now on the radio receives and acknowledges frames to
    /// that address.
    pub fn set_address(&mut self, radio: usize, mac: MacAddress) {
        if let Some(radio) = self.radios.get_mut(radio) {
            radio.mac = mac;
        }
    }

    /// Returns the link-layer address of a radio; `None` if no radio has this index.
    pub fn address(&self, radio: usize) -> Option<MacAddress> {
        self.radios.get(radio).map(|radio| radio.mac)
    }

    /// Puts a frame on the air.
    fn start_transmission(&mut self, radio: usize, what: TransmissionContent, airtime: u64) {
        let seconds = (self.now as f64 - self.track_start as f64) / 1e9;
        self.transmission_count += 1;
        let transmission = self.transmission_count;
        let propagation = &self.parameters.propagation;
        let mut hearers = Vec::new();
        let walled = self.radios[radio].is_enclosed;
        if let Some(place) = self.radios[radio].track.position_at(seconds).filter(|_| !walled) {
            let others = self.radios.iter_mut().enumerate();
            for (n, other) in others.filter(|(n, other)| *n != radio && !other.is_enclosed) {
                let Some(there) = other.track.position_at(seconds) else { continue };
                let margin = propagation.link_margin_db((radio, place), (n, there));
                if margin < propagation.min_noticed_margin_db() {
                    continue;
                }
                hearers.push(n);
                let spoiled = other.is_sending.then_some(LossCause::HalfDuplex);
                other.arriving_frames.push(ArrivingFrame {
                    transmission,
                    link_margin_db: margin,
                    loss_cause: spoiled,
                });
                mark_collisions(&mut other.arriving_frames, self.parameters.capture_threshold_db);
            }
        }
        let r = &mut self.radios[radio];
        r.is_sending = true;
        r.counters.airtime_nanoseconds += airtime;
        for arriving in &mut r.arriving_frames {
            arriving.loss_cause.get_or_insert(LossCause::HalfDuplex);
        }
        self.transmissions_on_air.insert(
            transmission,
            Transmission { sender: radio, content: what, radios_sensing_transmission: hearers },
        );
        self.handle_channel_busy(radio);
        self.schedule_event(self.now + CLEAR_CHANNEL_ASSESSMENT_TIME, ChannelEvent::Noticed(transmission));
        self.schedule_event(self.now + airtime, ChannelEvent::End(transmission));
    }

    fn start_sensing_transmission(&mut self, transmission: u64) {
        let Some(hearers) =
            self.transmissions_on_air.get(&transmission).map(|t| t.radios_sensing_transmission.clone())
        else {
            return;
        };
        for radio in hearers {
            self.handle_channel_busy(radio);
        }
    }

    fn handle_channel_busy(&mut self, radio: usize) {
        let now = self.now;
        let r = &mut self.radios[radio];
        r.busy_transmissions += 1;
        if r.busy_transmissions > 1 {
            return;
        }
        let contends = r.frame_to_send.is_some() && !r.awaits_acknowledgement && !r.is_sending;
        let elapsed = now.saturating_sub(r.channel_state_since + DISTRIBUTED_INTERFRAME_SPACE) / SLOT_TIME;
        r.backoff_slots = match r.backoff_slots {
            Some(_) if !contends && now >= r.may_send_at() => None,
            Some(slots) => Some(slots.saturating_sub(u32::try_from(elapsed).unwrap_or(u32::MAX))),
            None => None,
        };
        r.channel_state_since = now;
        r.attempt_number += u64::from(!r.awaits_acknowledgement);
        if contends && r.backoff_slots.is_none() {
            self.draw_backoff(radio);
        }
    }

    fn handle_channel_idle(&mut self, radio: usize) {
        let now = self.now;
        let r = &mut self.radios[radio];
        r.busy_transmissions -= 1;
        if r.busy_transmissions > 0 {
            return;
        }
        r.counters.busy_nanoseconds += now - r.channel_state_since;
        r.channel_state_since = now;
        if !r.awaits_acknowledgement {
            self.schedule_attempt(radio);
        }
    }

    /// Handles the end of a frame on the air.
    fn end_transmission(&mut self, transmission: u64) {
        let Some(Transmission { sender: radio, content: what, radios_sensing_transmission: hearers }) =
            self.transmissions_on_air.remove(&transmission)
        else {
            return;
        };
        self.radios[radio].is_sending = false;
        for hearer in hearers {
            let arriving = &mut self.radios[hearer].arriving_frames;
            let found = arriving.iter().position(|a| a.transmission == transmission);
            let arrived = found.map(|at| arriving.swap_remove(at));
            self.handle_channel_idle(hearer);
            if let Some(arrived) =
                arrived.filter(|a| a.link_margin_db >= self.parameters.propagation.min_readable_margin_db())
            {
                self.handle_readable_frame(hearer, radio, transmission, &what, arrived.loss_cause);
            }
        }
        let r = &mut self.radios[radio];
        match &what {
            TransmissionContent::Data { frame, .. } if is_group_frame(frame) => {
                let current = r.frame_to_send.take();
                self.handle_channel_idle(radio);
                self.finish_frame(radio, current, false);
            }
            TransmissionContent::Data { .. } => {
                r.awaits_acknowledgement = true;
                r.attempt_number += 1;
                let token = r.attempt_number;
                let at = self.now + self.parameters.airtime.acknowledgement_timeout();
                self.schedule_event(at, ChannelEvent::NoAcknowledgement { radio, token });
                self.handle_channel_idle(radio);
            }
            TransmissionContent::Acknowledgement { .. } => self.handle_channel_idle(radio),
        }
    }

    /// Handles the end of a frame that a receiver could read.
    fn handle_readable_frame(
        &mut self,
        radio: usize,
        from: usize,
        transmission: u64,
        what: &TransmissionContent,
        spoiled: Option<LossCause>,
    ) {
        let at = self.now;
        let r = &mut self.radios[radio];
        let lost = || {
            let about = [transmission, from as u64, radio as u64];
            self.parameters.loss_probability > 0.0
                && draw_uniform(self.parameters.seed, RandomDecisionKind::Loss, &about)
                    < self.parameters.loss_probability
        };
        match (what, spoiled) {
            (TransmissionContent::Data { frame, .. }, _)
                if !is_group_frame(frame) && !is_addressed_to(r.mac, frame) => {}
            (TransmissionContent::Data { .. }, Some(LossCause::Collision)) => r.counters.collided_frames += 1,
            (TransmissionContent::Data { .. }, Some(LossCause::HalfDuplex)) => {
                r.counters.half_duplex_losses += 1
            }
            (TransmissionContent::Data { .. }, None) if lost() => r.counters.random_losses += 1,
            (TransmissionContent::Data { frame, number }, None) => {
                let to_me = is_addressed_to(r.mac, frame);
                if !to_me || r.last_frame_numbers.insert(from, *number) != Some(*number) {
                    r.counters.received_frames += 1;
                    self.outputs.push_back(ChannelOutput::Received { at, radio, frame: frame.clone() });
                }
                if to_me {
                    self.schedule_event(
                        at + SHORT_INTERFRAME_SPACE,
                        ChannelEvent::Acknowledge { radio, transmission, to: from },
                    );
                }
            }
            (TransmissionContent::Acknowledgement { to }, None)
                if *to == radio && r.awaits_acknowledgement && !lost() =>
            {
                r.awaits_acknowledgement = false;
                let current = r.frame_to_send.take();
                self.finish_frame(radio, current, true);
            }
            (TransmissionContent::Acknowledgement { .. }, _) => {}
        }
    }

    /// Handles a missing acknowledgement.
    fn retry_after_timeout(&mut self, radio: usize, token: u64) {
        let r = &mut self.radios[radio];
        if r.attempt_number != token || !r.awaits_acknowledgement {
            return;
        }
        r.awaits_acknowledgement = false;
        if r.frame_to_send.as_ref().is_none_or(|c| c.attempts >= MAX_TRANSMISSION_ATTEMPTS) {
            r.counters.unacknowledged_frames += 1;
            let current = r.frame_to_send.take();
            self.finish_frame(radio, current, false);
        } else {
            r.contention_window = (r.contention_window * 2 + 1).min(CONTENTION_WINDOW_MAX);
            self.draw_backoff(radio);
            self.schedule_attempt(radio);
        }
    }

    /// Ends the current frame. A back-off precedes the next frame (IEEE 802.11-2020 10.3.4.3).
    fn finish_frame(&mut self, radio: usize, current: Option<FrameToSend>, acknowledged: bool) {
        if let Some(FrameToSend { frame, attempts: tries, .. }) = current {
            self.outputs.push_back(ChannelOutput::Done { radio, frame, tries, acknowledged });
        }
        let r = &mut self.radios[radio];
        r.contention_window = CONTENTION_WINDOW_MIN;
        self.draw_backoff(radio);
        self.take_next_frame(radio);
    }
}

/// Returns whether the frame is for the station with this address.
fn is_addressed_to(mac: MacAddress, frame: &[u8]) -> bool {
    frame.get(..6).is_some_and(|to| to == mac)
}

/// Returns whether the frame is for all stations or a group.
fn is_group_frame(frame: &[u8]) -> bool {
    frame.first().is_some_and(|octet| octet & 1 == 1)
}

/// Marks frames as lost that arrive at a receiver at the same time. With capture, the receiver still gets a
/// frame that is strong enough.
fn mark_collisions(arriving: &mut [ArrivingFrame], capture: Option<f64>) {
    if arriving.len() < 2 {
        return;
    }
    let power = |margin: f64| 10_f64.powf(margin / 10.0);
    let all: f64 = arriving.iter().map(|a| power(a.link_margin_db)).sum();
    for one in arriving {
        let own = power(one.link_margin_db);
        let stronger = 10.0 * (own / (all - own).max(f64::MIN_POSITIVE)).log10();
        if capture.is_none_or(|needed| stronger < needed) {
            one.loss_cause.get_or_insert(LossCause::Collision);
        }
    }
}
