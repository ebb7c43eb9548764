//! Decentralized Congestion Control of the access layer (ETSI TS 102 687 V1.2.1): a gate in front of the
//! radio.
//!
//! All stations in range share one channel. Each measures the channel busy ratio (CBR) and sends less as the
//! ratio grows, so that the channel never fills. After a packet the [`DccGate`] is closed for a time that
//! [`reactive`] (5.3) or [`adaptive`] (5.4, LIMERIC) control computes. A packet that arrives meanwhile waits
//! in a queue of its priority. When the gate opens, it releases the first packet of the highest priority.
//!
//! * *Priorities* are the DCC profiles DP0 to DP3, which ITS-G5 writes into the traffic class (EN 302
//!   636-4-2): [`DccProfile::dcc_profile_of`]. The gate deviates from the class twice. Class 0 means DP0, but
//!   packets without a class (beacons, pings, IPv6) have class 0, too; only packets that request DP0 get it.
//!   A forwarded packet always has DP3, whatever class its source wrote.
//! * *Queues are bounded, and a full one drops its oldest packet*, because the newest position report has the
//!   most value. A packet that replaces its predecessor ([`GatePacket::replaces_waiting_packet`]) removes it
//!   from the queue. The gate never sends a packet that has waited longer than its lifetime.
//! * *Time on air* is that of 802.11p in a channel of 10 MHz: [`air_time`].
//! * *The busy ratio* comes from the caller. The gate reads it every 100 ms (T_CBR); before the first reading
//!   [`GateConfig::assumed_busy_ratio`] counts. A reading older than a second is stale. If the source has
//!   stopped, the channel may still be busy. So the greater of the last reading and the assumed ratio counts
//!   until the next reading.
//! * *Constants* come from independent implementations that cite the tables of the standard. Table A.1 comes
//!   from one implementation. Tables A.2 and 3 and equations B.1 and B.2 come from two that agree.
//!   [`adaptive`] says where these implementations give no rule.
//!
//! Left out: control of transmit power and data rate, and more than one channel. The gate does not allow the
//! bursts of DP0 in the profile of the Car 2 Car consortium. Also left out is the exchange of busy ratios
//! among neighbours (EN 302 636-4-2, TS 103 175): the local ratio is the global one.

pub mod adaptive;
pub mod reactive;

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::TrafficClass;

use self::adaptive::Limeric;
use self::reactive::{ReactiveControl, ReactiveTable};

/// T_CBR: interval at which the gate evaluates the busy ratio (5.2).
pub const BUSY_RATIO_INTERVAL: Duration = Duration::from_millis(100);
/// Age in seconds above which a reading of the busy ratio is stale.
pub const MAX_BUSY_RATIO_AGE: Duration = Duration::from_secs(1);
/// Longest time for which a controller closes the gate (B.1; the longest T_off of the tables).
pub(crate) const MAX_GATE_CLOSED_TIME: Duration = Duration::from_secs(1);
/// Assumed packet length in octets before the first packet of a profile leaves: about the length of a signed
/// CAM.
const TYPICAL_PACKET_OCTETS: usize = 350;

carnet_base::drop_reasons! {
    /// Reason for which the gate did not send a packet.
    pub enum DccDrop {
        /// The queue was full, and the packet was its oldest.
        QueueFull = "queue_full",
        /// The lifetime of the packet ended before the gate opened.
        LifetimeExpired = "lifetime_expired",
        /// A newer packet replaced this packet in the queue, for example a newer CAM.
        Replaced = "replaced",
        /// The packet carries an address that the station has given up.
        AddressChanged = "address_changed",
        /// The packet waited to be forwarded by contention (F.3), and another station forwarded it first.
        Overheard = "overheard",
        /// The station returned to its initial state.
        Reset = "reset",
    }
}

/// The DCC profile of a packet: its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DccProfile {
    /// DCC profile of packets that must not wait.
    Dp0,
    /// DCC profile of DENMs.
    Dp1,
    /// DCC profile of CAMs.
    Dp2,
    /// DCC profile of all other packets.
    Dp3,
}

impl DccProfile {
    /// All profiles from the highest priority to the lowest.
    pub const ALL_PROFILES: [DccProfile; 4] =
        [DccProfile::Dp0, DccProfile::Dp1, DccProfile::Dp2, DccProfile::Dp3];

    /// Returns the DCC profile of a packet. An own packet has the profile that its request names, otherwise
    /// the profile of its traffic class (EN 302 636-4-2: TC ID 1 to 3). A traffic class alone never gives
    /// DP0. Forwarded packets have DP3, the lowest priority.
    pub fn dcc_profile_of(class: TrafficClass, asked: Option<DccProfile>, own: bool) -> DccProfile {
        match (own, asked, class.id) {
            (true, Some(profile), _) => profile,
            (true, None, 1) => DccProfile::Dp1,
            (true, None, 2) => DccProfile::Dp2,
            _ => DccProfile::Dp3,
        }
    }
}

/// Control algorithm of the gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ControlAlgorithm {
    /// Reactive control: a state for every range of the busy ratio (5.3).
    Reactive(ReactiveTable),
    /// Adaptive control: a share of the channel (5.4).
    Adaptive(adaptive::LimericParameters),
}

/// Configuration of a DCC gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateConfig {
    /// Control algorithm.
    pub control_algorithm: ControlAlgorithm,
    /// Largest number of waiting packets of each priority.
    pub queue_length: usize,
    /// Data rate of the radio in Mbit/s: 3, 6, 9, 12, 18, 24 or 27. The rate 4.5 is left out, because it is
    /// not an integer.
    pub data_rate: u8,
    /// Busy ratio that the gate assumes before the first reading. While the last reading is stale, the gate
    /// assumes at least this ratio.
    pub assumed_busy_ratio: f64,
}

impl Default for GateConfig {
    fn default() -> GateConfig {
        GateConfig {
            control_algorithm: ControlAlgorithm::Reactive(ReactiveTable::A1),
            queue_length: 10,
            data_rate: 6,
            assumed_busy_ratio: 0.0,
        }
    }
}

/// Returns the time on air of a packet with this number of octets behind the EtherType. The packet has a
/// preamble and SIGNAL, then symbols of 8 us for SERVICE, MAC header, LLC, the octets, FCS and tail (IEEE
/// 802.11, 17.4.3: OFDM with 10 MHz).
pub fn air_time(octets: usize, data_rate: u8) -> Duration {
    /// Octets that the link layer adds to a packet: header of a QoS data frame, LLC and SNAP, FCS.
    const LINK_LAYER_OVERHEAD_OCTETS: usize = 26 + 8 + 4;
    let bits = 16 + 8 * (octets + LINK_LAYER_OVERHEAD_OCTETS) + 6;
    // A symbol of 8 us carries 8 bits for every Mbit/s.
    let symbols = bits.div_ceil(8 * usize::from(data_rate.max(1)));
    // The fallback value is never used: no packet is long enough for the conversion to fail.
    Duration::from_micros(32 + 8 + 8 * u64::try_from(symbols).unwrap_or(u64::MAX / 16))
}

/// A packet for the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatePacket<T> {
    /// DCC profile, which is the priority of the packet.
    pub profile: DccProfile,
    /// Time for which the packet may wait in the gate.
    pub lifetime: Duration,
    /// Octets behind the EtherType.
    pub octets: usize,
    /// Whether this packet replaces the waiting packets of its profile whose value of this field is true as
    /// well.
    pub replaces_waiting_packet: bool,
    /// The packet itself, in the caller's form.
    pub packet_content: T,
}

/// Counters of a gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of sent packets, by profile.
    pub sent_by_profile: [u64; 4],
    /// Number of packets that had to wait because the gate was closed.
    pub held_packets: u64,
    /// Total time on air of the sent packets, microseconds.
    pub on_air_us: u64,
    /// Number of times that the source of the busy ratio stopped reporting.
    pub stale_reports: u64,
    dropped: [u64; DccDrop::ALL.len()],
}

impl Counters {
    /// Returns the number of packets dropped for a reason.
    pub fn dropped(&self, reason: DccDrop) -> u64 {
        self.dropped[reason as usize]
    }
}

#[derive(Debug)]
enum RateController {
    Reactive(ReactiveControl),
    Adaptive(Limeric),
}

#[derive(Debug, Clone, Copy)]
struct LastSentPacket {
    sent_at: Time,
    on_air: Duration,
}

#[derive(Debug)]
struct QueuedPacket<T> {
    /// End of the packet's lifetime.
    expires_at: Time,
    octets: usize,
    replaces_waiting_packet: bool,
    packet_content: T,
}

/// The gate of one radio.
#[derive(Debug)]
pub struct DccGate<T> {
    config: GateConfig,
    controller: RateController,
    /// Waiting packets by profile.
    queues_by_profile: [VecDeque<QueuedPacket<T>>; 4],
    /// Time at which the gate opens, or has opened.
    opens_at: Time,
    last_sent: Option<LastSentPacket>,
    /// Time on air of the last packet of each profile.
    last_air_times: [Duration; 4],
    busy_ratio_reading: Option<(Time, f64)>,
    is_busy_ratio_stale: bool,
    /// Time at which the gate next evaluates the busy ratio.
    next_evaluation_at: Time,
    counters: Counters,
}

impl<T> DccGate<T> {
    /// Creates an open gate.
    pub fn new(config: GateConfig) -> DccGate<T> {
        DccGate {
            controller: match config.control_algorithm {
                ControlAlgorithm::Reactive(table) => RateController::Reactive(ReactiveControl::new(table)),
                ControlAlgorithm::Adaptive(parameters) => RateController::Adaptive(Limeric::new(parameters)),
            },
            last_air_times: [air_time(TYPICAL_PACKET_OCTETS, config.data_rate); 4],
            config,
            queues_by_profile: Default::default(),
            opens_at: Time::ZERO,
            last_sent: None,
            busy_ratio_reading: None,
            is_busy_ratio_stale: false,
            next_evaluation_at: Time::ZERO,
            counters: Counters::default(),
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &GateConfig {
        &self.config
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of waiting packets, by profile.
    pub fn queue_lengths(&self) -> [usize; 4] {
        self.queues_by_profile.each_ref().map(VecDeque::len)
    }

    /// Returns the total length of all waiting packets in octets.
    pub fn backlog_octets(&self) -> usize {
        self.queues_by_profile.iter().flatten().map(|waiting| waiting.octets).sum()
    }

    /// Returns for how long the gate would close after a packet of this profile that is as long as the
    /// previous one. A service must not send at a shorter interval (EN 302 637-2 6.1.3, `T_GenCam_DCC`).
    pub fn min_interval_after(&self, profile: DccProfile) -> Duration {
        let on_air = self.last_air_times[profile as usize];
        match &self.controller {
            RateController::Reactive(reactive) => reactive.gate_closed_time(on_air),
            RateController::Adaptive(limeric) => limeric.gate_closed_time(on_air, None),
        }
    }

    /// Returns the time at which the gate opens or opened.
    pub fn gate_opens_at(&self) -> Time {
        self.opens_at
    }

    /// Returns the last reading of the busy ratio and its time; `None` if the reading is stale.
    pub fn busy_ratio_reading(&self, now: Time) -> Option<(Time, f64)> {
        self.busy_ratio_reading.filter(|(at, _)| now.saturating_since(*at) <= MAX_BUSY_RATIO_AGE)
    }

    /// Returns the busy ratio from which the controller computes now.
    pub fn busy_ratio(&self, now: Time) -> f64 {
        match (self.busy_ratio_reading(now), self.busy_ratio_reading) {
            (Some((_, ratio)), _) => ratio,
            (None, Some((_, stale))) => stale.max(self.config.assumed_busy_ratio),
            (None, None) => self.config.assumed_busy_ratio,
        }
    }

    /// Returns the name of the state of reactive control; `None` with adaptive control.
    pub fn reactive_state_name(&self) -> Option<&'static str> {
        match &self.controller {
            RateController::Reactive(reactive) => Some(reactive.name()),
            RateController::Adaptive(_) => None,
        }
    }

    /// Returns the share of the channel that adaptive control allows this station; `None` with reactive
    /// control.
    pub fn duty_cycle(&self) -> Option<f64> {
        match &self.controller {
            RateController::Reactive(_) => None,
            RateController::Adaptive(limeric) => Some(limeric.duty_cycle()),
        }
    }

    /// Handles a channel busy ratio of 0 to 1, measured now.
    pub fn handle_busy_ratio(&mut self, now: Time, ratio: f64) {
        self.busy_ratio_reading = Some((now, ratio.clamp(0.0, 1.0)));
    }

    /// Accepts a packet for sending. Returns the packet if it may leave now; otherwise the packet waits in
    /// its queue.
    pub fn transmit_or_hold_packet(&mut self, now: Time, packet: GatePacket<T>) -> Option<T> {
        let GatePacket {
            profile,
            lifetime,
            octets,
            replaces_waiting_packet: replaces,
            packet_content: content,
        } = packet;
        if now >= self.opens_at && self.queues_by_profile.iter().all(VecDeque::is_empty) {
            self.record_sent_packet(now, profile, octets);
            return Some(content);
        }
        let queue = &mut self.queues_by_profile[profile as usize];
        // Expired and replaced packets leave the queue first; only then does a full queue drop its oldest
        // packet.
        let before = queue.len();
        queue.retain(|waiting| waiting.expires_at > now);
        let valid = queue.len();
        queue.retain(|waiting| !(replaces && waiting.replaces_waiting_packet));
        let replaced = valid - queue.len();
        let full = queue.len() >= self.config.queue_length.max(1);
        if full {
            queue.pop_front();
        }
        queue.push_back(QueuedPacket {
            expires_at: now + lifetime,
            octets,
            replaces_waiting_packet: replaces,
            packet_content: content,
        });
        self.counters.dropped[DccDrop::LifetimeExpired as usize] += (before - valid) as u64;
        self.counters.dropped[DccDrop::Replaced as usize] += replaced as u64;
        self.counters.dropped[DccDrop::QueueFull as usize] += u64::from(full);
        self.counters.held_packets += 1;
        None
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let waits = self.queues_by_profile.iter().any(|queue| !queue.is_empty());
        Some(if waits { self.opens_at.min(self.next_evaluation_at) } else { self.next_evaluation_at })
    }

    /// Handles the timers that are due: evaluates the busy ratio and opens the gate. The caller then calls
    /// [`Self::poll_packet`]. Returns whether the busy ratio was evaluated, which may change
    /// [`Self::min_interval_after`].
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        if now < self.next_evaluation_at {
            return false;
        }
        let late = now.saturating_since(self.next_evaluation_at);
        self.next_evaluation_at = if late < BUSY_RATIO_INTERVAL {
            self.next_evaluation_at + BUSY_RATIO_INTERVAL
        } else {
            now + BUSY_RATIO_INTERVAL
        };
        let stale = self.busy_ratio_reading.is_some() && self.busy_ratio_reading(now).is_none();
        self.counters.stale_reports += u64::from(stale && !self.is_busy_ratio_stale);
        self.is_busy_ratio_stale = stale;
        let ratio = self.busy_ratio(now);
        let changed = match &mut self.controller {
            RateController::Reactive(reactive) => reactive.handle_busy_ratio(ratio),
            RateController::Adaptive(limeric) => limeric.handle_busy_ratio(ratio),
        };
        if changed && let Some(last) = self.last_sent {
            self.opens_at = last.sent_at + self.gate_closed_time(last, Some((now, self.opens_at)));
        }
        true
    }

    /// Returns the next packet that may leave, and its profile.
    pub fn poll_packet(&mut self, now: Time) -> Option<(DccProfile, T)> {
        if now < self.opens_at {
            return None;
        }
        for profile in DccProfile::ALL_PROFILES {
            while let Some(QueuedPacket { expires_at: until, octets, packet_content: content, .. }) =
                self.queues_by_profile[profile as usize].pop_front()
            {
                if until > now {
                    self.record_sent_packet(now, profile, octets);
                    return Some((profile, content));
                }
                self.counters.dropped[DccDrop::LifetimeExpired as usize] += 1;
            }
        }
        None
    }

    /// Drops the waiting packets for which `unwanted` returns true, and counts them by `reason`.
    pub fn discard_waiting_packets(&mut self, reason: DccDrop, unwanted: impl Fn(&T) -> bool) {
        for queue in &mut self.queues_by_profile {
            let before = queue.len();
            queue.retain(|waiting| !unwanted(&waiting.packet_content));
            self.counters.dropped[reason as usize] += (before - queue.len()) as u64;
        }
    }

    fn record_sent_packet(&mut self, now: Time, profile: DccProfile, octets: usize) {
        let last = LastSentPacket { sent_at: now, on_air: air_time(octets, self.config.data_rate) };
        self.counters.sent_by_profile[profile as usize] += 1;
        self.counters.on_air_us += u64::try_from(last.on_air.as_micros()).unwrap_or(u64::MAX);
        self.last_sent = Some(last);
        self.last_air_times[profile as usize] = last.on_air;
        self.opens_at = now + self.gate_closed_time(last, None);
    }

    /// Returns the time for which the gate stays closed after the start of the last packet. `since` is `None`
    /// when the packet starts. When the function computes the time again, `since` holds the present time, and
    /// the opening time by the previous call.
    fn gate_closed_time(&self, last: LastSentPacket, since: Option<(Time, Time)>) -> Duration {
        match &self.controller {
            RateController::Reactive(reactive) => reactive.gate_closed_time(last.on_air),
            RateController::Adaptive(limeric) => {
                let done = since.map(|(now, opens)| {
                    (now.saturating_since(last.sent_at), opens.saturating_since(last.sent_at))
                });
                limeric.gate_closed_time(last.on_air, done)
            }
        }
    }
}
