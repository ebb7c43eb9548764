//! Decides which frames are lost: each frame independently, or in bursts.
//!
//! Bursts use the model of Gilbert and Elliott (E. O. Elliott, "Estimates of error rates for codes on
//! burst-noise channels", 1963). The link is in a good or a bad state, and changes between them at random
//! between two frames. Each state has its own probability of loss.

use crate::medium::chance::{RandomDecisionKind, draw_uniform};

/// Parameters of bursts of loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Probability, for each frame, that the good state ends.
    pub enter_probability: f64,
    /// Probability, for each frame, that the bad state ends.
    pub leave_probability: f64,
    /// Probability of loss in the bad state.
    pub loss_in_burst: f64,
}

/// Probabilities of loss.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Probability of loss for each frame independently; with bursts, in the good state.
    pub random_loss: f64,
    /// Bursts of loss; `None` without bursts.
    pub burst: Option<Burst>,
}

/// State of one direction in the model: good or bad.
#[derive(Debug, Clone, Copy, Default)]
pub struct BurstState {
    is_in_burst: bool,
}

impl BurstState {
    /// Returns whether a frame is lost. `number` counts the frames of this direction.
    pub fn loses_frame(&mut self, loss: &Loss, seed: u64, number: u64) -> bool {
        self.is_in_burst = match &loss.burst {
            None => false,
            Some(burst) => {
                let change = draw_uniform(seed, RandomDecisionKind::Burst, &[number]);
                if self.is_in_burst {
                    change >= burst.leave_probability
                } else {
                    change < burst.enter_probability
                }
            }
        };
        let probability = match &loss.burst {
            Some(burst) if self.is_in_burst => burst.loss_in_burst,
            _ => loss.random_loss,
        };
        draw_uniform(seed, RandomDecisionKind::Loss, &[number]) < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_COUNT: u64 = 100_000;

    fn lost_frames(loss: &Loss) -> Vec<bool> {
        let mut state = BurstState::default();
        (0..FRAME_COUNT).map(|n| state.loses_frame(loss, 5, n)).collect()
    }

    fn lost_share(lost: &[bool]) -> f64 {
        lost.iter().filter(|l| **l).count() as f64 / lost.len() as f64
    }

    /// Returns the mean number of lost frames in a row.
    fn mean_burst_length(lost: &[bool]) -> f64 {
        let runs = lost.windows(2).filter(|w| w[0] && !w[1]).count();
        lost.iter().filter(|l| **l).count() as f64 / runs as f64
    }

    #[test]
    fn independent_loss_makes_no_bursts() {
        let lost = lost_frames(&Loss { random_loss: 0.05, burst: None });
        assert!((0.047..0.053).contains(&lost_share(&lost)), "{}", lost_share(&lost));
        // With independent losses of probability p, the mean number of lost frames in a row is 1 / (1 - p).
        assert!((1.03..1.08).contains(&mean_burst_length(&lost)), "{}", mean_burst_length(&lost));
    }

    #[test]
    fn loss_bursts_have_configured_length_and_rate() {
        let lost = lost_frames(&Loss {
            random_loss: 0.0,
            burst: Some(Burst { enter_probability: 0.01, leave_probability: 0.2, loss_in_burst: 1.0 }),
        });
        // In the long run the bad state has the share enter / (enter + leave) of all frames. It lasts 1 /
        // leave frames on average.
        assert!((0.042..0.053).contains(&lost_share(&lost)), "{}", lost_share(&lost));
        assert!((4.6..5.4).contains(&mean_burst_length(&lost)), "{}", mean_burst_length(&lost));
    }

    #[test]
    fn loss_of_0_and_100_percent_is_exact() {
        assert_eq!(lost_share(&lost_frames(&Loss::default())), 0.0);
        assert_eq!(lost_share(&lost_frames(&Loss { random_loss: 1.0, burst: None })), 1.0);
    }
}
