//! Makes random decisions that a seed determines.
//!
//! A draw is a hash of the seed and of its subject (radio, frame, try), and not the next number of a stream.
//! So events on one link do not change the draws of another link.

/// Kind of decision. Two decisions about one frame are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RandomDecisionKind {
    /// Slots of a back-off.
    Backoff,
    /// Loss of a frame that could have been received.
    Loss,
    /// Shadowing of a link.
    Shadowing,
    /// Additional delay of a frame.
    Jitter,
    /// Whether a burst of loss begins or ends.
    Burst,
    /// Kind and time of a random event on a link.
    Event,
}

/// Returns 64 random bits that the seed, the kind of decision and its subject `about` determine.
pub fn random_bits(seed: u64, matter: RandomDecisionKind, about: &[u64]) -> u64 {
    let start = mix_bits(seed ^ mix_bits(matter as u64 + 1));
    about.iter().fold(start, |state, word| mix_bits(state ^ mix_bits(*word)))
}

/// Returns a random number from 0 to below 1, determined as by [`random_bits`].
pub fn draw_uniform(seed: u64, matter: RandomDecisionKind, about: &[u64]) -> f64 {
    (random_bits(seed, matter, about) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns a random number of the normal distribution with mean 0 and deviation 1 (Box and Muller),
/// determined as by [`random_bits`].
pub fn draw_normal(seed: u64, matter: RandomDecisionKind, about: &[u64]) -> f64 {
    let bits = random_bits(seed, matter, about);
    // The radius is never 0, because 0 has no logarithm.
    let radius = ((bits >> 32) as f64 + 1.0) / 4_294_967_296.0;
    let angle = (bits & 0xffff_ffff) as f64 / 4_294_967_296.0;
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Applies the finalizer of SplitMix64, after one step of its sequence.
fn mix_bits(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_draw_depends_only_on_its_key() {
        assert_eq!(
            random_bits(7, RandomDecisionKind::Loss, &[1, 2]),
            random_bits(7, RandomDecisionKind::Loss, &[1, 2])
        );
        let others = [
            random_bits(8, RandomDecisionKind::Loss, &[1, 2]),
            random_bits(7, RandomDecisionKind::Backoff, &[1, 2]),
        ];
        assert!(others.iter().all(|d| *d != random_bits(7, RandomDecisionKind::Loss, &[1, 2])));
        assert_ne!(
            random_bits(7, RandomDecisionKind::Loss, &[1, 2]),
            random_bits(7, RandomDecisionKind::Loss, &[2, 1])
        );
    }

    #[test]
    fn random_draws_are_uniform() {
        let n = 10_000_u64;
        let below: usize = (0..n).filter(|i| draw_uniform(3, RandomDecisionKind::Loss, &[*i]) < 0.3).count();
        assert!((2800..3200).contains(&below), "{below} of {n} below 0.3");
        let values: Vec<f64> = (0..n).map(|i| draw_normal(3, RandomDecisionKind::Shadowing, &[i])).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let square = values.iter().map(|v| v * v).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.05 && (square - 1.0).abs() < 0.06, "mean {mean}, square {square}");
    }
}
