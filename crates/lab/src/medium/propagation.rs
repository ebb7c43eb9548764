//! Strength of an arriving frame, in dB above the receiver's sensitivity.
//!
//! The path loss is log-distance. With the exponent n, a frame arrives at the distance d with a margin of 10
//! n log10(range / d) dB. So a frame at `range` is just readable. Shadowing by obstacles adds a normally
//! distributed number of dB. It depends on the link and the places of its ends, and is the same in both
//! directions. It changes when an end has moved by the decorrelation distance (Gudmundson 1991, in steps).
//! Without shadowing this is the unit disc.

use super::chance::{Matter, normal};
use super::geometry::Point;

/// Distance in metres below which a frame does not get stronger.
const NEAREST: f64 = 1.0;

/// The propagation of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Propagation {
    /// Distance at which a frame is just readable without shadowing, in metres.
    pub range: f64,
    /// Distance at which a frame is just sensed without shadowing, in metres. Interference reaches as far.
    pub sense_range: f64,
    /// Path loss exponent.
    pub exponent: f64,
    /// Standard deviation of the shadowing, dB.
    pub shadowing: f64,
    /// Distance that a node moves until its shadowing changes, in metres.
    pub decorrelation: f64,
    /// Seed of the shadowing.
    pub seed: u64,
}

impl Propagation {
    /// Returns the margin of a frame from one radio to another, in dB.
    pub fn margin(&self, from: (usize, Point), to: (usize, Point)) -> f64 {
        let distance = from.1.distance(to.1).max(NEAREST);
        let loss = 10.0 * self.exponent * (self.range / distance).log10();
        if self.shadowing == 0.0 {
            return loss;
        }
        let (low, high) = if from.0 < to.0 { (from, to) } else { (to, from) };
        let cell = |metres: f64| (metres / self.decorrelation).floor() as i64 as u64;
        let about =
            [low.0 as u64, high.0 as u64, cell(low.1.x), cell(low.1.y), cell(high.1.x), cell(high.1.y)];
        loss + self.shadowing * normal(self.seed, Matter::Shadowing, &about)
    }

    /// Returns the least margin of a readable frame.
    pub fn readable(&self) -> f64 {
        // The tolerance keeps the rounding of a logarithm from shortening the range.
        -1e-9
    }

    /// Returns the least margin of a frame that keeps the medium busy and spoils others.
    pub fn noticed(&self) -> f64 {
        10.0 * self.exponent * (self.range / self.sense_range).log10() - 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disc() -> Propagation {
        Propagation {
            range: 400.0,
            sense_range: 600.0,
            exponent: 2.0,
            shadowing: 0.0,
            decorrelation: 25.0,
            seed: 1,
        }
    }

    fn at(x: f64) -> Point {
        Point { x, y: 0.0 }
    }

    #[test]
    fn without_shadowing_it_is_a_disc() {
        let p = disc();
        let margin = |d: f64| p.margin((0, at(0.0)), (1, at(d)));
        assert!(margin(400.0) >= p.readable() && margin(400.01) < p.readable());
        assert!(margin(600.0) >= p.noticed() && margin(600.01) < p.noticed());
        // Half the distance is 6 dB stronger. At distance 0 the margin is finite.
        assert!((margin(200.0) - 6.02).abs() < 0.01);
        assert!(margin(0.0).is_finite());
    }

    #[test]
    fn shadowing_is_a_property_of_the_link_and_the_place() {
        let p = Propagation { shadowing: 6.0, exponent: 2.7, ..disc() };
        let (a, b) = ((3, at(0.0)), (9, at(300.0)));
        assert_eq!(p.margin(a, b), p.margin(b, a));
        assert_eq!(p.margin(a, b), p.margin(a, b));
        let plain = Propagation { shadowing: 0.0, ..p.clone() };
        let shadow = |p: &Propagation, b: (usize, Point)| p.margin(a, b) - plain.margin(a, b);
        // Compares the same square of 25 m, the next square, another radio, and another seed.
        assert!((shadow(&p, (9, at(301.0))) - shadow(&p, b)).abs() < 1e-9);
        assert_ne!(shadow(&p, (9, at(330.0))), shadow(&p, b));
        assert_ne!(shadow(&p, (8, b.1)), shadow(&p, b));
        assert_ne!(shadow(&Propagation { seed: 2, ..p.clone() }, b), shadow(&p, b));
    }

    #[test]
    fn shadowing_lets_half_of_the_frames_reach_the_range() {
        let p = Propagation { shadowing: 6.0, ..disc() };
        let reached =
            (0..1000).filter(|n| p.margin((0, at(0.0)), (n + 1, at(400.0))) >= p.readable()).count();
        assert!((450..550).contains(&reached), "{reached} of 1000");
    }
}
