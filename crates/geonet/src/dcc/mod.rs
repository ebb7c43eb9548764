//! Decentralized Congestion Control of the access layer (ETSI TS 102 687 V1.2.1): a gate in front of the radio.
//!
//! All stations in range share one channel. Each measures how busy it is (the channel busy ratio, CBR) and sends less the
//! busier it finds it, so that the channel never fills: after a packet the [`Gate`] is closed for a time that [`reactive`]
//! (5.3) or [`adaptive`] (5.4, LIMERIC) control decides. What comes while it is closed waits in a queue of its
//! priority; when it opens, one packet goes, the first of the highest priority that has any.
//!
//! * *Priorities* are the DCC profiles DP0 to DP3, which ITS-G5 writes into the traffic class (EN 302 636-4-2):
//!   [`Profile::of`]. The default class is that of DP0, so what nobody gave a class (beacons, location service, IPv6) goes
//!   as DP3 all the same.
//! * *Queues are bounded, and the oldest goes first*: of position reports the newest is worth most. A packet that has waited
//!   longer than its lifetime is never sent.
//! * *Time on air* is that of 802.11p in a channel of 10 MHz: [`air_time`].
//! * *Where the busy ratio comes from* is not known here. It is looked at every 100 ms (T_CBR); a reading counts for a second,
//!   and without one [`Config::assumed`] does.
//! * *Constants* were taken from two independent implementations that cite the standard's tables, and agree:
//!   tables A.1, A.2 and 3, equations B.1 and B.2. Where the two say nothing, it stands in [`adaptive`].
//!
//! Left out: control of transmit power and data rate, more than one channel, the exchange of busy ratios among
//! neighbours (EN 302 636-4-2, TS 103 175: the local ratio is the global one), and the bursts that the profile of
//! the Car 2 Car consortium allows DP0.

pub mod adaptive;
pub mod reactive;

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{CommonNextHeader, HeaderType, TrafficClass};

use self::adaptive::Limeric;
use self::reactive::{Reactive, Table};

/// T_CBR: how often the busy ratio is looked at (5.2).
pub const INTERVAL: Duration = Duration::from_millis(100);
/// How long a reading counts.
pub const FRESH: Duration = Duration::from_secs(1);

carnet_base::drop_reasons! {
    /// Why a packet was not sent.
    pub enum DccDrop {
        /// Its queue was full, and it had waited longest.
        QueueFull = "queue_full",
        /// Its lifetime ended before the gate opened.
        LifetimeExpired = "lifetime_expired",
    }
}

/// The DCC profile of a packet: its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// What cannot wait.
    Dp0,
    /// DENMs.
    Dp1,
    /// CAMs.
    Dp2,
    /// Everything else.
    Dp3,
}

impl Profile {
    /// From the highest priority to the lowest.
    pub const ALL: [Profile; 4] = [Profile::Dp0, Profile::Dp1, Profile::Dp2, Profile::Dp3];

    /// The profile of a packet with these fields in its Common Header (EN 302 636-4-2: TC ID 0 to 3).
    pub fn of(class: TrafficClass, header_type: HeaderType, next_header: CommonNextHeader) -> Profile {
        let management = matches!(
            header_type,
            HeaderType::Beacon | HeaderType::LocationServiceRequest | HeaderType::LocationServiceReply
        );
        match class.id {
            0 if management || next_header == CommonNextHeader::Ipv6 => Profile::Dp3,
            0 => Profile::Dp0,
            1 => Profile::Dp1,
            2 => Profile::Dp2,
            _ => Profile::Dp3,
        }
    }
}

/// How the gate is controlled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Algorithm {
    /// By a state for every range of the busy ratio (5.3).
    Reactive(Table),
    /// By a share of the channel (5.4).
    Adaptive(adaptive::Parameters),
}

/// What a gate is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// How it is controlled.
    pub algorithm: Algorithm,
    /// Packets that wait at most, of each priority.
    pub queue_length: usize,
    /// Data rate of the radio in Mbit/s: 3, 6, 9, 12, 18, 24 or 27.
    pub data_rate: u8,
    /// The busy ratio while nobody tells it.
    pub assumed: f64,
}

impl Default for Config {
    fn default() -> Config {
        Config { algorithm: Algorithm::Reactive(Table::A1), queue_length: 10, data_rate: 6, assumed: 0.0 }
    }
}

/// How long a packet with so many octets behind the EtherType is on the air (IEEE 802.11, 17.4.3: OFDM with 10 MHz):
/// preamble and SIGNAL, then symbols of 8 us for SERVICE, MAC header, LLC, the octets, FCS and tail.
pub fn air_time(octets: usize, data_rate: u8) -> Duration {
    /// QoS data frame, LLC and SNAP, FCS.
    const AROUND: usize = 26 + 8 + 4;
    let bits = 16 + 8 * (octets + AROUND) + 6;
    // A symbol of 8 us carries 8 bits for every Mbit/s.
    let symbols = bits.div_ceil(8 * usize::from(data_rate.max(1)));
    // No packet is so long that this matters.
    Duration::from_micros(32 + 8 + 8 * u64::try_from(symbols).unwrap_or(u64::MAX / 16))
}

/// A packet for the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet<T> {
    /// Its priority.
    pub profile: Profile,
    /// For how long it may wait.
    pub lifetime: Duration,
    /// Octets behind the EtherType.
    pub octets: usize,
    /// Whatever is to be sent.
    pub content: T,
}

/// What a gate has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that went, by profile.
    pub sent: [u64; 4],
    /// Packets that had to wait.
    pub held: u64,
    /// Microseconds on the air.
    pub on_air_us: u64,
    dropped: [u64; DccDrop::ALL.len()],
}

impl Counters {
    /// Packets that were not sent, by reason.
    pub fn dropped(&self, reason: DccDrop) -> u64 {
        self.dropped[reason as usize]
    }
}

#[derive(Debug)]
enum Control {
    Reactive(Reactive),
    Adaptive(Limeric),
}

/// The last packet that went.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: Time,
    on_air: Duration,
}

/// The gate of one radio.
#[derive(Debug)]
pub struct Gate<T> {
    config: Config,
    control: Control,
    /// With the time at which the lifetime ends, and octets; by profile.
    queues: [VecDeque<(Time, usize, T)>; 4],
    /// The gate is open from here on.
    opens: Time,
    last: Option<Last>,
    reading: Option<(Time, f64)>,
    /// When the busy ratio is looked at next.
    look: Time,
    counters: Counters,
}

impl<T> Gate<T> {
    /// A gate that is open.
    pub fn new(config: Config) -> Gate<T> {
        Gate {
            control: match config.algorithm {
                Algorithm::Reactive(table) => Control::Reactive(Reactive::new(table)),
                Algorithm::Adaptive(parameters) => Control::Adaptive(Limeric::new(parameters)),
            },
            config,
            queues: Default::default(),
            opens: Time::ZERO,
            last: None,
            reading: None,
            look: Time::ZERO,
            counters: Counters::default(),
        }
    }

    /// What it is to be.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets that wait, by profile.
    pub fn waiting(&self) -> [usize; 4] {
        self.queues.each_ref().map(VecDeque::len)
    }

    /// When it opens, or did.
    pub fn opens(&self) -> Time {
        self.opens
    }

    /// The reading that counts now, and since when; `None` while [`Config::assumed`] does.
    pub fn reading(&self, now: Time) -> Option<(Time, f64)> {
        self.reading.filter(|(at, _)| now.saturating_since(*at) <= FRESH)
    }

    /// The state of reactive control.
    pub fn state(&self) -> Option<&'static str> {
        match &self.control {
            Control::Reactive(reactive) => Some(reactive.name()),
            Control::Adaptive(_) => None,
        }
    }

    /// The share of the channel that adaptive control allows this station.
    pub fn duty_cycle(&self) -> Option<f64> {
        match &self.control {
            Control::Reactive(_) => None,
            Control::Adaptive(limeric) => Some(limeric.duty_cycle()),
        }
    }

    /// The channel was busy for so much of the time, 0 to 1, measured now.
    pub fn handle_busy_ratio(&mut self, now: Time, ratio: f64) {
        self.reading = Some((now, ratio.clamp(0.0, 1.0)));
    }

    /// A packet that shall be sent: it is given back if it may go now, else it waits.
    pub fn offer(&mut self, now: Time, packet: Packet<T>) -> Option<T> {
        let Packet { profile, lifetime, octets, content } = packet;
        if now >= self.opens && self.queues.iter().all(VecDeque::is_empty) {
            self.went(now, profile, octets);
            return Some(content);
        }
        let queue = &mut self.queues[profile as usize];
        // What is over makes room before what is not.
        let before = queue.len();
        queue.retain(|(until, ..)| *until > now);
        let over = before - queue.len();
        let full = queue.len() >= self.config.queue_length.max(1);
        if full {
            queue.pop_front();
        }
        queue.push_back((now + lifetime, octets, content));
        self.counters.dropped[DccDrop::LifetimeExpired as usize] += over as u64;
        self.counters.dropped[DccDrop::QueueFull as usize] += u64::from(full);
        self.counters.held += 1;
        None
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let waits = self.queues.iter().any(|queue| !queue.is_empty());
        Some(if waits { self.opens.min(self.look) } else { self.look })
    }

    /// Time has passed. [`Self::poll_packet`] may have one afterwards.
    pub fn handle_timeout(&mut self, now: Time) {
        if now < self.look {
            return;
        }
        let late = now.saturating_since(self.look);
        self.look = if late < INTERVAL { self.look + INTERVAL } else { now + INTERVAL };
        let ratio = self.reading(now).map_or(self.config.assumed, |(_, ratio)| ratio);
        let changed = match &mut self.control {
            Control::Reactive(reactive) => reactive.handle_busy_ratio(ratio),
            Control::Adaptive(limeric) => limeric.handle_busy_ratio(ratio),
        };
        if changed && let Some(last) = self.last {
            self.opens = last.at + self.closed(last, Some((now, self.opens)));
        }
    }

    /// The next packet that may go.
    pub fn poll_packet(&mut self, now: Time) -> Option<T> {
        if now < self.opens {
            return None;
        }
        for profile in Profile::ALL {
            while let Some((until, octets, content)) = self.queues[profile as usize].pop_front() {
                if until > now {
                    self.went(now, profile, octets);
                    return Some(content);
                }
                self.counters.dropped[DccDrop::LifetimeExpired as usize] += 1;
            }
        }
        None
    }

    /// Nothing waits any more.
    pub fn clear(&mut self) {
        self.queues = Default::default();
    }

    fn went(&mut self, now: Time, profile: Profile, octets: usize) {
        let last = Last { at: now, on_air: air_time(octets, self.config.data_rate) };
        self.counters.sent[profile as usize] += 1;
        self.counters.on_air_us += u64::try_from(last.on_air.as_micros()).unwrap_or(u64::MAX);
        self.last = Some(last);
        self.opens = now + self.closed(last, None);
    }

    /// How long the gate is closed after a packet began; `since` is now and when it was to open, if that changes.
    fn closed(&self, last: Last, since: Option<(Time, Time)>) -> Duration {
        match &self.control {
            Control::Reactive(reactive) => reactive.closed(last.on_air),
            Control::Adaptive(limeric) => {
                let done = since
                    .map(|(now, opens)| (now.saturating_since(last.at), opens.saturating_since(last.at)));
                limeric.closed(last.on_air, done)
            }
        }
    }
}
