//! Seeded randomness. The runner draws the seed; equal seeds give equal runs on every machine.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A seeded generator whose sequence never changes between versions or machines (ChaCha8).
#[derive(Debug, Clone)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// A generator that `seed` determines.
    pub fn new(seed: u64) -> Rng {
        Rng(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Sixteen random bits.
    pub fn u16(&mut self) -> u16 {
        (self.0.next_u32() >> 16) as u16
    }

    /// Sixty-four random bits.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to `bound - 1`, 0 when `bound` is 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `1 / probability` calls.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.0.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A span from `low` up to but not including `high`; `low` when the range is empty.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        let width = high.saturating_sub(low).as_nanos();
        low + Duration::from_nanos(self.below(u64::try_from(width).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.u64() == b.u64()));
        assert_ne!(Rng::new(7).u64(), Rng::new(8).u64());
    }

    #[test]
    fn ranges_hold() {
        let mut rng = Rng::new(1);
        assert_eq!(rng.below(0), 0);
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert!((0..1000).all(|_| !rng.chance(0.0) && rng.chance(1.0)));
        let (low, high) = (Duration::from_millis(5), Duration::from_millis(6));
        assert!((0..1000).map(|_| rng.duration(low, high)).all(|d| d >= low && d < high));
        assert_eq!(rng.duration(high, low), high);
    }
}
