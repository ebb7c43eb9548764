//! Estimates the capacity of an uplink, if no other program reports it. The capacity is the uplink's weight
//! in a policy that balances flows.
//!
//! The estimate sends no packets of its own. While packets wait in a queue of the path, the path carries its
//! full capacity. Heartbeats then take longer than on an empty path, and the growth of the interface's
//! counters is the capacity. The router compares samples of the counters, about a second apart. If the round
//! trips stay well above the shortest one of the last minutes for two samples in a row, the busier direction
//! is full. A higher receive rate raises the estimate at any time; a higher send rate does not, because
//! packets may still wait in a modem. A full path with a lower rate lowers the estimate gradually. The
//! capacity of an uplink is that of its faster direction.
//!
//! Without traffic there is no estimate, and the router uses the configured capacity, which is also the upper
//! limit. In another network the estimate starts again. The router does not report changes of a few per cent.
//! It does not send the home agent a change of a weight by less than a quarter ([`super::flows`]).
//!
//! Left out: paths with less than 500 kbit/s, where a single flow dominates, and paths whose queue is too
//! short to lengthen round trips.

use std::time::Duration;

use carnet_base::Time;

use super::Uplink;
use super::data_volume::InterfaceOctets;

/// Minimum and maximum time between two samples.
const SAMPLE_INTERVAL_RANGE: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(3));
/// Minimum difference between a round trip and the shortest one while packets wait in a queue. The round trip
/// must also be at least 1.5 times the shortest one.
const MIN_QUEUE_DELAY: Duration = Duration::from_millis(10);
/// Time for which the shortest round trip is valid. It may remain valid for up to twice as long.
const SHORTEST_ROUND_TRIP_VALIDITY: Duration = Duration::from_secs(180);
/// Minimum rate in kbit/s for an estimate.
const MIN_ESTIMATED_RATE: u32 = 500;
/// Divisor of an estimate: a change by less than a twentieth is not reported.
const UNREPORTED_CHANGE_DIVISOR: u32 = 20;

/// Shortest round trips of heartbeats.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundTrips {
    shortest_of_this_period: Option<Duration>,
    /// Shortest round trip of the period before the present one; `None` if that period had no round trip. A
    /// period lasts
    /// [`SHORTEST_ROUND_TRIP_VALIDITY`].
    shortest_of_last_period: Option<Duration>,
    period_began_at: Time,
    /// Shortest round trip since the last check; `None` if there was no round trip.
    shortest_since_check: Option<Duration>,
}

impl RoundTrips {
    pub(super) fn record_round_trip(&mut self, now: Time, rtt: Duration) {
        if now.saturating_since(self.period_began_at) >= SHORTEST_ROUND_TRIP_VALIDITY {
            self.shortest_of_last_period = self.shortest_of_this_period.take();
            self.period_began_at = now;
        }
        for least in [&mut self.shortest_of_this_period, &mut self.shortest_since_check] {
            *least = Some(least.map_or(rtt, |least| least.min(rtt)));
        }
    }

    /// Returns the shortest round trip of the last minutes; `None` without a measurement.
    pub(super) fn shortest_round_trip(&self) -> Option<Duration> {
        self.shortest_of_this_period.into_iter().chain(self.shortest_of_last_period).min()
    }

    /// Returns whether all round trips since the last check were long; `None` if there was no round trip.
    fn take_were_round_trips_long(&mut self) -> Option<bool> {
        let now = self.shortest_since_check.take()?;
        let least = self.shortest_round_trip()?;
        Some(now > least + (least / 2).max(MIN_QUEUE_DELAY))
    }
}

/// State of the capacity estimate of one uplink.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CapacityEstimate {
    last_sample: Option<(Time, InterfaceOctets)>,
    was_saturated: bool,
    /// Estimates of the receiving and of the sending direction, in kbit/s.
    rate_estimates_by_direction: [Option<u32>; 2],
}

impl CapacityEstimate {
    /// Returns the rates of each direction since the last sample, in kbit/s; `None` if they are unknown.
    fn rates_since_sample(&mut self, now: Time, octets: InterfaceOctets) -> Option<[u32; 2]> {
        let (at, before) = match self.last_sample {
            Some((at, _)) if now.saturating_since(at) < SAMPLE_INTERVAL_RANGE.0 => return None,
            _ => self.last_sample.replace((now, octets))?,
        };
        let span = now.saturating_since(at);
        if octets.epoch != before.epoch || span > SAMPLE_INTERVAL_RANGE.1 {
            return None;
        }
        let rate = |now: u64, before: u64| {
            let bits = u128::from(now.checked_sub(before)?) * 8;
            u32::try_from(bits * 1_000_000 / span.as_nanos().max(1)).ok()
        };
        let sent = |octets: InterfaceOctets| octets.total.saturating_sub(octets.received);
        Some([rate(octets.received, before.received)?, rate(sent(octets), sent(before))?])
    }

    fn update_estimates(&mut self, rates: [u32; 2], is_full: bool) {
        let full = std::mem::replace(&mut self.was_saturated, is_full) && is_full;
        let busier = usize::from(rates[1] > rates[0]);
        for (direction, (estimate, rate)) in
            self.rate_estimates_by_direction.iter_mut().zip(rates).enumerate()
        {
            let is_told = full && direction == busier && rate >= MIN_ESTIMATED_RATE;
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
    /// Takes over the counters of the interface. Returns the capacity in kbit/s; `None` if it has not
    /// changed.
    pub(super) fn measure_capacity(&mut self, now: Time, octets: InterfaceOctets) -> Option<u32> {
        let rates = self.capacity_estimate.rates_since_sample(now, octets)?;
        let long = self.path.round_trips.take_were_round_trips_long();
        self.capacity_estimate.update_estimates(rates, long.unwrap_or(false));
        let measured = self.capacity_estimate.rate_estimates_by_direction.into_iter().flatten().max()?;
        let measured = self.config.capacity.map_or(measured, |most| most.min(measured));
        let known = self.capacity.unwrap_or(0);
        (known.abs_diff(measured) > known / UNREPORTED_CHANGE_DIVISOR).then_some(measured)
    }

    /// Clears the estimate, because it is not valid for another network.
    pub(super) fn forget_capacity(&mut self) {
        self.capacity_estimate = CapacityEstimate::default();
        self.capacity = self.config.capacity;
    }
}
