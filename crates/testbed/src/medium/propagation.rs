//! Computes the strength of an arriving frame, in dB above the receiver's sensitivity.
//!
//! The path loss is log-distance. With the exponent n, a frame arrives at the distance d with a margin of 10
//! n log10(range / d) dB. So a frame at `range` is just readable. Shadowing by obstacles adds a normally
//! distributed number of dB. The shadowing depends on the link and the places of its ends, and is the same in
//! both directions. It changes whenever an end has moved by the decorrelation distance (Gudmundson 1991, in
//! steps). Without shadowing the range is a circle (unit disc model).

use super::chance::{RandomDecisionKind, draw_normal};
use super::geometry::Point;

/// Smallest distance in the formula, in metres: a nearer frame is not stronger.
const NEAREST_DISTANCE_METRES: f64 = 1.0;

/// Parameters of the radio propagation in a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Propagation {
    /// Distance at which a frame is just readable without shadowing, in metres.
    pub range_metres: f64,
    /// Distance in metres up to which a radio senses a frame, without shadowing. Frames also disturb each
    /// other up to this distance.
    pub sense_range_metres: f64,
    /// Path loss exponent.
    pub path_loss_exponent: f64,
    /// Standard deviation of the shadowing, dB.
    pub shadowing_db: f64,
    /// Distance in metres after which a moving node gets another value of the shadowing.
    pub decorrelation_metres: f64,
    /// Seed of the shadowing.
    pub seed: u64,
}

impl Propagation {
    /// Returns by how many dB the strength of a frame from one radio to another exceeds the limit of
    /// reception.
    pub fn link_margin_db(&self, from: (usize, Point), to: (usize, Point)) -> f64 {
        let distance = from.1.distance_to(to.1).max(NEAREST_DISTANCE_METRES);
        let loss = 10.0 * self.path_loss_exponent * (self.range_metres / distance).log10();
        if self.shadowing_db == 0.0 {
            return loss;
        }
        let (low, high) = if from.0 < to.0 { (from, to) } else { (to, from) };
        let cell = |metres: f64| (metres / self.decorrelation_metres).floor() as i64 as u64;
        let about =
            [low.0 as u64, high.0 as u64, cell(low.1.x), cell(low.1.y), cell(high.1.x), cell(high.1.y)];
        loss + self.shadowing_db * draw_normal(self.seed, RandomDecisionKind::Shadowing, &about)
    }

    /// Returns the lowest margin in dB at which a frame is readable.
    pub fn min_readable_margin_db(&self) -> f64 {
        // Slightly below 0, so that rounding does not shorten the range.
        -1e-9
    }

    /// Returns the lowest margin in dB at which a frame keeps the medium busy and spoils other frames.
    pub fn min_noticed_margin_db(&self) -> f64 {
        10.0 * self.path_loss_exponent * (self.range_metres / self.sense_range_metres).log10() - 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range_without_shadowing() -> Propagation {
        Propagation {
            range_metres: 400.0,
            sense_range_metres: 600.0,
            path_loss_exponent: 2.0,
            shadowing_db: 0.0,
            decorrelation_metres: 25.0,
            seed: 1,
        }
    }

    fn node_at(x: f64) -> Point {
        Point { x, y: 0.0 }
    }

    #[test]
    fn radio_range_without_shadowing_is_a_disc() {
        let p = range_without_shadowing();
        let margin = |d: f64| p.link_margin_db((0, node_at(0.0)), (1, node_at(d)));
        assert!(margin(400.0) >= p.min_readable_margin_db() && margin(400.01) < p.min_readable_margin_db());
        assert!(margin(600.0) >= p.min_noticed_margin_db() && margin(600.01) < p.min_noticed_margin_db());
        // At half the distance a frame is 6 dB stronger. At distance 0 the margin is finite.
        assert!((margin(200.0) - 6.02).abs() < 0.01);
        assert!(margin(0.0).is_finite());
    }

    #[test]
    fn shadowing_depends_on_link_and_position() {
        let p = Propagation { shadowing_db: 6.0, path_loss_exponent: 2.7, ..range_without_shadowing() };
        let (a, b) = ((3, node_at(0.0)), (9, node_at(300.0)));
        assert_eq!(p.link_margin_db(a, b), p.link_margin_db(b, a));
        assert_eq!(p.link_margin_db(a, b), p.link_margin_db(a, b));
        let plain = Propagation { shadowing_db: 0.0, ..p.clone() };
        let shadow = |p: &Propagation, b: (usize, Point)| p.link_margin_db(a, b) - plain.link_margin_db(a, b);
        // The shadowing is constant within a square of 25 m. It differs in the next square, for other radios,
        // and with another seed.
        assert!((shadow(&p, (9, node_at(301.0))) - shadow(&p, b)).abs() < 1e-9);
        assert_ne!(shadow(&p, (9, node_at(330.0))), shadow(&p, b));
        assert_ne!(shadow(&p, (8, b.1)), shadow(&p, b));
        assert_ne!(shadow(&Propagation { seed: 2, ..p.clone() }, b), shadow(&p, b));
    }

    #[test]
    fn shadowing_lets_half_of_the_frames_reach_the_range() {
        let p = Propagation { shadowing_db: 6.0, ..range_without_shadowing() };
        let reached = (0..1000)
            .filter(|n| {
                p.link_margin_db((0, node_at(0.0)), (n + 1, node_at(400.0))) >= p.min_readable_margin_db()
            })
            .count();
        assert!((450..550).contains(&reached), "{reached} of 1000");
    }
}
