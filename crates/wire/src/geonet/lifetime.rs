//! The Lifetime field (clause 9.6.4): the time for which stations may buffer a packet on its path.
//!
//! The field has six bits of multiplier and two bits of base (50 ms, 1 s, 10 s, 100 s). Many durations have
//! several encodings (60 s: 6 x 10 s or 60 x 1 s), and a receiver accepts all of them. The encoder selects
//! the base with the smallest rounding error, and among equals the coarsest. It rounds down, so that no
//! packet outlives the requested lifetime. For a duration above 63 units of a base, the rounding error is up
//! to one unit of the next base. For example, 64.9 s become 60 s.

use std::fmt;
use std::time::Duration;

/// The Lifetime octet of the Basic Header.
///
/// Equality compares the octets: two encodings of one duration are different lifetimes. To compare durations,
/// use [`Lifetime::duration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Lifetime(pub u8);

/// The bases in milliseconds; the index is the value of the two low bits.
const BASES_MILLISECONDS: [u32; 4] = [50, 1_000, 10_000, 100_000];
/// The largest multiplier: the field has six bits.
const MULTIPLIER_MAX: u32 = 63;

impl Lifetime {
    /// A lifetime of 0: no station may buffer the packet.
    pub const ZERO: Lifetime = Lifetime(0);
    /// The longest lifetime, 6,300 s.
    pub const MAX: Lifetime = Lifetime(0xff);

    /// Returns the longest lifetime that does not exceed the duration.
    pub fn from_duration(duration: Duration) -> Lifetime {
        let wanted = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        let mut best = (0, Lifetime::ZERO);
        for (bits, base) in (0u8..).zip(BASES_MILLISECONDS) {
            let multiplier = (wanted / base).min(MULTIPLIER_MAX);
            let reached = multiplier * base;
            if reached >= best.0 && multiplier > 0 {
                // The cast is exact: the multiplier is at most 63.
                best = (reached, Lifetime((multiplier as u8) << 2 | bits));
            }
        }
        best.1
    }

    /// Returns the duration that the octet encodes.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.milliseconds() as u64)
    }

    /// Returns the duration that the octet encodes, in milliseconds.
    pub const fn milliseconds(self) -> u32 {
        let base = BASES_MILLISECONDS[(self.0 & 3) as usize];
        (self.0 >> 2) as u32 * base
    }

    /// Returns the lifetime that remains after a packet was buffered for `waited`, rounded down. If `waited`
    /// is zero, the octet stays unchanged.
    pub fn after_waiting(self, waited: Duration) -> Lifetime {
        if waited.is_zero() {
            return self;
        }
        Lifetime::from_duration(self.duration().saturating_sub(waited))
    }
}

impl From<Lifetime> for Duration {
    fn from(lifetime: Lifetime) -> Duration {
        lifetime.duration()
    }
}

impl From<Duration> for Lifetime {
    fn from(duration: Duration) -> Lifetime {
        Lifetime::from_duration(duration)
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.milliseconds())
    }
}
