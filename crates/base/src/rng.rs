//! Seeded randomness. The program that runs the station chooses the seed; equal seeds give equal runs on
//! every machine.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Deserializer, Serialize, de::Error};

/// Seed of a generator. In a recording the seed is a number or 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Seed {
    /// A number, for simulations and tests with reproducible results. Keys from such a generator are not
    /// secret.
    Number(u64),
    /// Octets from an unpredictable source. A generator with such a seed may produce keys of up to 256 bits.
    Octets(
        #[serde(serialize_with = "crate::hex::serialize", deserialize_with = "deserialize_seed_octets")]
        [u8; 32],
    ),
}

impl Default for Seed {
    fn default() -> Seed {
        Seed::Number(0)
    }
}

fn deserialize_seed_octets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let octets = crate::hex::deserialize(deserializer)?;
    let found = octets.len();
    octets.try_into().map_err(|_| D::Error::custom(format!("expected 32 octets, found {found}")))
}

/// A seeded generator whose sequence never changes between versions or machines (ChaCha8).
#[derive(Debug, Clone)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// Creates the generator that the number `seed` determines.
    pub fn new(seed: u64) -> Rng {
        Rng(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Creates the generator that `seed` determines.
    pub fn from_seed(seed: Seed) -> Rng {
        match seed {
            Seed::Number(number) => Rng::new(number),
            Seed::Octets(octets) => Rng(ChaCha8Rng::from_seed(octets)),
        }
    }

    /// Creates a second generator from the same seed: another stream of the same ChaCha key. Its numbers
    /// reveal nothing about the numbers of [`Rng::from_seed`].
    pub fn independent_of_seed(seed: Seed) -> Rng {
        let Rng(mut generator) = Rng::from_seed(seed);
        generator.set_stream(1);
        Rng(generator)
    }

    /// Returns another stream of the same ChaCha key, for a part of the program. The function draws no number
    /// from this generator. The numbers of the new stream reveal nothing about the numbers of this generator.
    /// [`Rng::independent_of_seed`] uses stream 1.
    pub fn separate_stream(&self, number: u64) -> Rng {
        let mut generator = self.0.clone();
        generator.set_stream(number);
        Rng(generator)
    }

    /// Creates an independent generator for a part of the program, as unpredictable as this one.
    pub fn fork_generator(&mut self) -> Rng {
        let mut octets = [0; 32];
        self.0.fill_bytes(&mut octets);
        Rng::from_seed(Seed::Octets(octets))
    }

    /// Returns sixteen random bits.
    pub fn random_u16(&mut self) -> u16 {
        (self.0.next_u32() >> 16) as u16
    }

    /// Returns sixty-four random bits.
    pub fn random_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from 0 to `bound - 1`; 0 if `bound` is 0. The bias is below `bound / 2^64`.
    pub fn number_below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with this probability.
    pub fn is_true_with_probability(&mut self, probability: f64) -> bool {
        ((self.0.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Returns a span from `low` up to but not including `high`; `low` if the range is empty.
    pub fn duration_between(&mut self, low: Duration, high: Duration) -> Duration {
        let width = high.saturating_sub(low).as_nanos();
        low + Duration::from_nanos(self.number_below(u64::try_from(width).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.random_u64() == b.random_u64()));
        assert_ne!(Rng::new(7).random_u64(), Rng::new(8).random_u64());
    }

    /// Every bit of a seed changes the random numbers, also those of a forked generator.
    #[test]
    fn every_bit_of_a_seed_changes_the_sequence() {
        let first = |octets: [u8; 32]| {
            let mut rng = Rng::from_seed(Seed::Octets(octets));
            (rng.fork_generator().random_u64(), rng.random_u64())
        };
        let mut seen = std::collections::BTreeSet::from([first([0; 32])]);
        for bit in 0..256 {
            let mut octets = [0; 32];
            octets[bit / 8] = 1 << (bit % 8);
            assert!(seen.insert(first(octets)), "bit {bit}");
        }
        assert_eq!(Rng::from_seed(Seed::Number(7)).random_u64(), Rng::new(7).random_u64());
    }

    #[test]
    fn independent_generator_shares_no_number() {
        let seed = Seed::Octets([9; 32]);
        let (mut one, mut other) = (Rng::from_seed(seed), Rng::independent_of_seed(seed));
        let drawn: std::collections::BTreeSet<u64> = (0..1000).map(|_| one.random_u64()).collect();
        assert!((0..1000).all(|_| !drawn.contains(&other.random_u64())));
        assert_eq!(Rng::independent_of_seed(seed).random_u64(), Rng::independent_of_seed(seed).random_u64());
    }

    #[test]
    fn random_numbers_stay_in_their_range() {
        let mut rng = Rng::new(1);
        assert_eq!(rng.number_below(0), 0);
        assert!((0..1000).all(|_| rng.number_below(3) < 3));
        assert!((0..1000).all(|_| !rng.is_true_with_probability(0.0) && rng.is_true_with_probability(1.0)));
        let (low, high) = (Duration::from_millis(5), Duration::from_millis(6));
        assert!((0..1000).map(|_| rng.duration_between(low, high)).all(|d| d >= low && d < high));
        assert_eq!(rng.duration_between(high, low), high);
    }
}
