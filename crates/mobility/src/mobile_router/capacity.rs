//! Measures the capacity of an uplink if no other source reports it: the weight of its share in a policy that
//! balances.
//!
//! The measurement sends nothing. A path carries its capacity while packets wait somewhere on it. Then
//! heartbeats take longer than on an empty path, and the growth of the interface's counters is the capacity.
//! The router checks that between two samples of the counters, about a second apart. If the round trips of
//! two such spans in a row stay well above the least one of the last minutes, the busier direction is full. A
//! higher receive rate raises the estimate at any time (sent packets may still wait in a modem); a full path
//! that carries less lowers it gradually. The better direction counts.
//!
//! Without traffic there is no estimate: the configured capacity holds, which is also the upper limit. In
//! another network the measurement begins anew. Changes of a few per cent are not reported, and a change of a
//! share by less than a quarter is not sent to the home agent ([`super::flows`]).
//!
//! Left out: paths with less than 500 kbit/s, on which single conversations dominate, and paths whose queue
//! is too short to lengthen round trips.

use std::time::Duration;

use carnet_base::Time;

use super::Uplink;
use super::volume::Octets;

/// Least and greatest time between two samples.
const SPAN: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(3));
/// Least excess of round trips over the least one while packets wait. They must also take half as long again.
const WAIT: Duration = Duration::from_millis(10);
/// Time over which the least round trip counts; it may count for up to twice as long.
const MEMORY: Duration = Duration::from_secs(180);
/// Least rate in kbit/s that is a measurement.
const LEAST: u32 = 500;
/// Divisor of an estimate: a change by less than a twentieth is no change.
const SAME: u32 = 20;

/// Least round trips of heartbeats.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundTrips {
    least: Option<Duration>,
    /// Least round trip of the former period.
    former: Option<Duration>,
    since: Time,
    /// Least round trip since the last check.
    now: Option<Duration>,
}

impl RoundTrips {
    pub(super) fn note(&mut self, now: Time, rtt: Duration) {
        if now.saturating_since(self.since) >= MEMORY {
            self.former = self.least.take();
            self.since = now;
        }
        for least in [&mut self.least, &mut self.now] {
            *least = Some(least.map_or(rtt, |least| least.min(rtt)));
        }
    }

    /// Returns the least round trip of the last minutes.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least.into_iter().chain(self.former).min()
    }

    /// Whether all round trips since the last check were long; `None` without a round trip.
    fn are_long(&mut self) -> Option<bool> {
        let now = self.now.take()?;
        let least = self.least()?;
        Some(now > least + (least / 2).max(WAIT))
    }
}

/// Measurements of one uplink.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gauge {
    sample: Option<(Time, Octets)>,
    was_full: bool,
    /// Estimates in kbit/s, of the receiving and the sending direction.
    estimates: [Option<u32>; 2],
}

impl Gauge {
    /// Returns the rates of each direction since the last sample, in kbit/s; `None` if they are unknown.
    fn rates(&mut self, now: Time, octets: Octets) -> Option<[u32; 2]> {
        let (at, before) = match self.sample {
            Some((at, _)) if now.saturating_since(at) < SPAN.0 => return None,
            _ => self.sample.replace((now, octets))?,
        };
        let span = now.saturating_since(at);
        if octets.epoch != before.epoch || span > SPAN.1 {
            return None;
        }
        let rate = |now: u64, before: u64| {
            let bits = u128::from(now.checked_sub(before)?) * 8;
            u32::try_from(bits * 1_000_000 / span.as_nanos().max(1)).ok()
        };
        let sent = |octets: Octets| octets.total.saturating_sub(octets.received);
        Some([rate(octets.received, before.received)?, rate(sent(octets), sent(before))?])
    }

    fn learn(&mut self, rates: [u32; 2], is_full: bool) {
        let full = std::mem::replace(&mut self.was_full, is_full) && is_full;
        let busier = usize::from(rates[1] > rates[0]);
        for (direction, (estimate, rate)) in self.estimates.iter_mut().zip(rates).enumerate() {
            let is_told = full && direction == busier && rate >= LEAST;
            *estimate = match *estimate {
                None => is_told.then_some(rate),
                Some(known) if rate > known && (is_told || direction == 0) => Some(rate),
                Some(known) if is_told => Some(known - known.saturating_sub(rate) / 4),
                known => known,
            };
        }
    }
}

impl Uplink {
    /// Takes over the counters of the interface. Returns the capacity in kbit/s if it has changed.
    pub(super) fn measure_capacity(&mut self, now: Time, octets: Octets) -> Option<u32> {
        let rates = self.gauge.rates(now, octets)?;
        let long = self.path.trips.are_long();
        self.gauge.learn(rates, long.unwrap_or(false));
        let measured = self.gauge.estimates.into_iter().flatten().max()?;
        let measured = self.config.capacity.map_or(measured, |most| most.min(measured));
        let known = self.capacity.unwrap_or(0);
        (known.abs_diff(measured) > known / SAME).then_some(measured)
    }

    /// Clears the measurements, which do not hold for another network.
    pub(super) fn forget_capacity(&mut self) {
        self.gauge = Gauge::default();
        self.capacity = self.config.capacity;
    }
}
