//! Packet data rate control (annex B.2): a moving average of the octets per second from a station.
//!
//! The router adds up the octets over [`AVERAGE_WINDOW`]; the mean of each window enters PDR with weight 1 -
//! beta. The formula of the standard could also mean one sample for each packet. But then two packets in one
//! millisecond would count as a flood.
//!
//! *Yielding packets* ([`is_yielding_traffic`]) are IPv6 and packets with DCC profile DP2 or DP3. They may
//! use four fifths of the limit, so that the last fifth stays free for warnings. Above four fifths a
//! forwarder drops them. A forwarder counts a yielding packet only if it forwards the packet. It counts every
//! other packet when it receives the packet. So it stops forwarding for a source or sender above the limit,
//! whatever the class of its packets. An own yielding packet over more than one hop waits in the
//! [`YieldingPacketShaper`].

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{CommonNextHeader, TrafficClass};

use crate::packet::BufferedPacket;

/// Share of the limit that yielding packets may use.
const YIELDING_RATE_SHARE: f32 = 0.8;
/// Factor by which a source may exceed its share within one window. It is above 1, because packets from a
/// shaper arrive in bursts.
const MAX_WINDOW_FACTOR: f32 = 1.2;
/// Time by which own yielding packets may be ahead of their share of the data rate, so that a short burst
/// leaves at once.
const YIELDING_BURST_TIME: Duration = Duration::from_millis(100);
/// Longest wait of own yielding packets, seconds.
const MAX_WAIT_S: f32 = 0.5;

/// Time over which the router sums up octets before they enter the average.
const AVERAGE_WINDOW: Duration = Duration::from_millis(500);

/// Packet data rate of one station.
#[derive(Debug, Clone, Copy, Default)]
pub struct AveragePacketRate {
    /// Moving average, octets per second.
    average_octets_per_second: f32,
    octets: u32,
    window_start: Time,
}

impl AveragePacketRate {
    /// Returns PDR in octets per second.
    pub fn average_octets_per_second(&self) -> f32 {
        self.average_octets_per_second
    }

    /// Returns whether the rate is below `most` octets per second, both on average and since the present
    /// window began.
    pub fn is_below_limit(&mut self, now: Time, most: f32, beta: f32) -> bool {
        self.count_packet(now, 0, beta) <= most
            && (self.octets as f32) < MAX_WINDOW_FACTOR * most * AVERAGE_WINDOW.as_secs_f32()
    }

    /// Counts a packet; `beta` is `itsGnMaxPacketDataRateEmaBeta`. Returns the rate in octets per second.
    pub fn count_packet(&mut self, now: Time, octets: usize, beta: f32) -> f32 {
        if self.window_start == Time::ZERO {
            self.window_start = now;
        }
        let elapsed = now.saturating_since(self.window_start);
        if elapsed >= AVERAGE_WINDOW {
            let measured = self.octets as f32 / elapsed.as_secs_f32();
            let windows = (elapsed.as_nanos() / AVERAGE_WINDOW.as_nanos()).min(1000) as i32;
            let past = beta.powi(windows);
            self.average_octets_per_second = past * self.average_octets_per_second + (1.0 - past) * measured;
            (self.octets, self.window_start) = (0, now);
        }
        self.octets = self.octets.saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
        self.average_octets_per_second
    }
}

/// Returns whether packets of this kind yield: they leave a fifth of the limit to other packets.
pub fn is_yielding_traffic(next_header: CommonNextHeader, traffic_class: TrafficClass) -> bool {
    next_header == CommonNextHeader::Ipv6 || traffic_class.id >= 2
}

/// Returns the part of a limit that yielding packets may use.
pub fn yielding_rate_limit(limit: u32) -> f32 {
    limit as f32 * YIELDING_RATE_SHARE
}

/// Leaky bucket that limits this station's yielding packets to their share of the data rate.
#[derive(Default)]
pub struct YieldingPacketShaper {
    /// Time at which the bucket is empty.
    bucket_empty_at: Time,
    octets: usize,
    waiting_packets: VecDeque<BufferedPacket>,
}

impl fmt::Debug for YieldingPacketShaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaper")
            .field("empty", &self.bucket_empty_at)
            .field("octets", &self.octets)
            .finish_non_exhaustive()
    }
}

/// Decision of the shaper about an own packet.
#[derive(Debug)]
pub enum PacketShaperDecision {
    /// The caller sends the packet now.
    Goes(BufferedPacket),
    /// The packet waits in the shaper. If no other packet waits, the value is the time at which the shaper
    /// can send the packet; otherwise `None`.
    Waits(Option<Time>),
    /// The shaper has no room for the packet.
    Overflow(BufferedPacket),
}

impl YieldingPacketShaper {
    /// Decides whether an own packet leaves now. The packet leaves if the rate permits it and no other packet
    /// waits. An `urgent` packet also leaves if the station is less than half a second ahead of the permitted
    /// rate. Every packet that leaves counts for the rate of later packets.
    pub fn shape_packet(
        &mut self,
        now: Time,
        limit: u32,
        urgent: bool,
        packet: BufferedPacket,
    ) -> PacketShaperDecision {
        let rate = yielding_rate_limit(limit).max(1.0);
        let ahead = self.bucket_empty_at.saturating_since(now).as_secs_f32();
        if (urgent && ahead < MAX_WAIT_S)
            || (self.waiting_packets.is_empty() && self.bucket_has_room_at() <= now)
        {
            self.count_octets(now, rate, packet.frame.len());
            return PacketShaperDecision::Goes(packet);
        }
        if (self.octets + packet.frame.len()) as f32 > rate * MAX_WAIT_S {
            return PacketShaperDecision::Overflow(packet);
        }
        let first = self.waiting_packets.is_empty();
        self.octets += packet.frame.len();
        self.waiting_packets.push_back(packet);
        PacketShaperDecision::Waits(first.then(|| self.bucket_has_room_at()))
    }

    /// Returns the next packet that may leave now. If none may leave, the error is the time at which the
    /// first waiting packet may leave; `None` if no packet waits.
    pub fn poll_packet(&mut self, now: Time, limit: u32) -> Result<BufferedPacket, Option<Time>> {
        let rate = yielding_rate_limit(limit).max(1.0);
        let due = self.bucket_has_room_at();
        if due > now {
            return Err((!self.waiting_packets.is_empty()).then_some(due));
        }
        let packet = self.waiting_packets.pop_front().ok_or(None)?;
        self.octets -= packet.frame.len();
        self.count_octets(now, rate, packet.frame.len());
        Ok(packet)
    }

    /// Removes and returns all waiting packets.
    pub fn clear(&mut self) -> VecDeque<BufferedPacket> {
        self.octets = 0;
        std::mem::take(&mut self.waiting_packets)
    }

    fn count_octets(&mut self, now: Time, rate: f32, octets: usize) {
        self.bucket_empty_at = self.bucket_empty_at.max(now) + Duration::from_secs_f32(octets as f32 / rate);
    }

    /// Returns the time at which the bucket has room.
    fn bucket_has_room_at(&self) -> Time {
        Time::from_nanos(
            self.bucket_empty_at.as_nanos().saturating_sub(YIELDING_BURST_TIME.as_nanos() as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate_after(seconds: u64, per_second: u64, octets: usize) -> f32 {
        let mut rate = AveragePacketRate::default();
        let mut last = 0.0;
        for packet in 0..seconds * per_second {
            let now = Time::from_secs(1) + Duration::from_nanos(packet * 1_000_000_000 / per_second);
            last = rate.count_packet(now, octets, 0.9);
        }
        last
    }

    /// B.2: the average converges to the rate at which packets arrive.
    #[test]
    fn average_packet_rate_converges_to_sent_rate() {
        assert!((rate_after(60, 100, 1000) / 100_000.0 - 1.0).abs() < 0.02);
        assert!((rate_after(60, 2, 1000) / 2_000.0 - 1.0).abs() < 0.02);
        assert_eq!(rate_after(1, 1, 1000), 0.0);
    }

    #[test]
    fn short_burst_passes_rate_limit_and_average_falls_in_silence() {
        let mut rate = AveragePacketRate::default();
        let start = Time::from_secs(1);
        for packet in 0..20 {
            assert!(rate.count_packet(start + Duration::from_micros(packet), 1000, 0.9) < 1.0);
        }
        let later = rate.count_packet(start + Duration::from_secs(1), 1000, 0.9);
        assert!(later > 1_000.0 && later < 10_000.0, "{later}");
        assert!(rate.count_packet(start + Duration::from_secs(60), 1000, 0.9) < 100.0);
    }
}
