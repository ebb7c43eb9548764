//! What an uplink can carry, measured where nobody says it: the weight of its share where a policy balances.
//!
//! Nothing is sent for it. While packets wait somewhere on the way, a path carries what it can: then
//! heartbeats take longer than they ever do on an empty path, and what the interface's counters have grown by
//! is the capacity. That is looked at between two samples of the counters, about a second apart. Where the
//! round trips of two such times in a row stay well above the least one of the last minutes, the busier
//! direction is full. What is received faster than that raises the estimate whenever it happens (what is sent
//! may yet wait in a modem); a full path that carries less lowers it by and by. The better of the two
//! directions counts.
//!
//! Without traffic there is no estimate: what the operator has configured holds, which is also the most that
//! is believed. In another network everything begins anew. Changes of a few per cent are not told; of a share
//! that changes by less than a quarter the home agent does not hear ([`super::flows`]).
//!
//! Left out: paths with less than 500 kbit/s, on which one conversation more or less says nothing, and paths
//! with a queue so short that round trips do not show it.

use std::time::Duration;

use carnet_base::Time;

use super::Uplink;
use super::volume::Octets;

/// Between two samples.
const SPAN: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(3));
/// Packets wait where round trips take half as long again as the least one, and at least so much longer.
const WAIT: Duration = Duration::from_millis(10);
/// The least round trip is that of so long, or up to twice as long.
const MEMORY: Duration = Duration::from_secs(180);
/// Kilobits in a second that say something.
const LEAST: u32 = 500;
/// An estimate that is another by less than a twentieth is the same.
const SAME: u32 = 20;

/// The least round trips of heartbeats.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundTrips {
    least: Option<Duration>,
    /// Of the time before.
    former: Option<Duration>,
    since: Time,
    /// Since somebody asked.
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

    /// The least one of the last minutes.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least.into_iter().chain(self.former).min()
    }

    /// Whether all round trips since this was asked were long ones; `None` where there were none.
    fn are_long(&mut self) -> Option<bool> {
        let now = self.now.take()?;
        let least = self.least()?;
        Some(now > least + (least / 2).max(WAIT))
    }
}

/// What is known of one uplink.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gauge {
    sample: Option<(Time, Octets)>,
    was_full: bool,
    /// In kbit/s: of what is received, and of what is sent.
    estimates: [Option<u32>; 2],
}

impl Gauge {
    /// Octets of each direction per second since the last sample, in kbit/s; `None` where they cannot be
    /// told.
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
    /// Takes in the counters of the interface. Returns the capacity in kbit/s if the known one differs from
    /// it.
    pub(super) fn measure_capacity(&mut self, now: Time, octets: Octets) -> Option<u32> {
        let rates = self.gauge.rates(now, octets)?;
        let long = self.path.trips.are_long();
        self.gauge.learn(rates, long.unwrap_or(false));
        let measured = self.gauge.estimates.into_iter().flatten().max()?;
        let measured = self.config.capacity.map_or(measured, |most| most.min(measured));
        let known = self.capacity.unwrap_or(0);
        (known.abs_diff(measured) > known / SAME).then_some(measured)
    }

    /// Forgets the measurements: they say nothing about another network.
    pub(super) fn forget_capacity(&mut self) {
        self.gauge = Gauge::default();
        self.capacity = self.config.capacity;
    }
}
