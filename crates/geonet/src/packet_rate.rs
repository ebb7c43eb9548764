//! Packet data rate control (annex B.2): how many octets per second a station sends, as a moving average.
//!
//! The octets are summed up over [`WINDOW`]; the mean of each window enters PDR with weight 1 - beta.
//! Sampling per packet, as the formula could also be read, would take two packets in one millisecond for a
//! flood.

use std::time::Duration;

use carnet_base::Time;

/// How long octets are summed up before they enter the average.
const WINDOW: Duration = Duration::from_millis(500);

/// The rate of one station.
#[derive(Debug, Clone, Copy, Default)]
pub struct PacketRate {
    /// Octets per second.
    average: f32,
    octets: u32,
    window: Time,
}

impl PacketRate {
    /// PDR in octets per second.
    pub fn average(&self) -> f32 {
        self.average
    }

    /// Counts a packet; `beta` is `itsGnMaxPacketDataRateEmaBeta`. Returns the rate in octets per second.
    pub fn count(&mut self, now: Time, octets: usize, beta: f32) -> f32 {
        if self.window == Time::ZERO {
            self.window = now;
        }
        let elapsed = now.saturating_since(self.window);
        if elapsed >= WINDOW {
            let measured = self.octets as f32 / elapsed.as_secs_f32();
            let windows = (elapsed.as_nanos() / WINDOW.as_nanos()).min(1000) as i32;
            let past = beta.powi(windows);
            self.average = past * self.average + (1.0 - past) * measured;
            (self.octets, self.window) = (0, now);
        }
        self.octets = self.octets.saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
        self.average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, per_second: u64, octets: usize) -> f32 {
        let mut rate = PacketRate::default();
        let mut last = 0.0;
        for packet in 0..seconds * per_second {
            let now = Time::from_secs(1) + Duration::from_nanos(packet * 1_000_000_000 / per_second);
            last = rate.count(now, octets, 0.9);
        }
        last
    }

    /// B.2
    #[test]
    fn the_average_reaches_the_rate() {
        assert!((after(60, 100, 1000) / 100_000.0 - 1.0).abs() < 0.02);
        assert!((after(60, 2, 1000) / 2_000.0 - 1.0).abs() < 0.02);
        assert_eq!(after(1, 1, 1000), 0.0);
    }

    #[test]
    fn a_short_burst_is_no_flood_and_silence_forgets() {
        let mut rate = PacketRate::default();
        let start = Time::from_secs(1);
        for packet in 0..20 {
            assert!(rate.count(start + Duration::from_micros(packet), 1000, 0.9) < 1.0);
        }
        let later = rate.count(start + Duration::from_secs(1), 1000, 0.9);
        assert!(later > 1_000.0 && later < 10_000.0, "{later}");
        assert!(rate.count(start + Duration::from_secs(60), 1000, 0.9) < 100.0);
    }
}
