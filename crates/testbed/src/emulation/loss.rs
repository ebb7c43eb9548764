//! Decides which frames are lost: each frame independently, or in bursts.
//!
//! Bursts use the model of Gilbert and Elliott (E. O. Elliott, "Estimates of error rates for codes on
//! burst-noise channels", 1963). The link is in a good or a bad state, and changes between them at random
//! between two frames. Each state has its own probability of loss.

use crate::medium::chance::{DecisionKind, uniform_draw};

/// Parameters of bursts of loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Probability, for each frame, that the good state ends.
    pub enter: f64,
    /// Probability, for each frame, that the bad state ends.
    pub leave: f64,
    /// Probability of loss in the bad state.
    pub loss: f64,
}

/// Probabilities of loss.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Probability of loss for each frame independently; with bursts, in the good state.
    pub random: f64,
    /// Bursts of loss; `None` without bursts.
    pub burst: Option<Burst>,
}

/// State of one direction in the model: good or bad.
#[derive(Debug, Clone, Copy, Default)]
pub struct State {
    bad: bool,
}

impl State {
    /// Returns whether a frame is lost. `number` counts the frames of this direction.
    pub fn loses(&mut self, loss: &Loss, seed: u64, number: u64) -> bool {
        self.bad = match &loss.burst {
            None => false,
            Some(burst) => {
                let change = uniform_draw(seed, DecisionKind::Burst, &[number]);
                if self.bad { change >= burst.leave } else { change < burst.enter }
            }
        };
        let probability = match &loss.burst {
            Some(burst) if self.bad => burst.loss,
            _ => loss.random,
        };
        uniform_draw(seed, DecisionKind::Loss, &[number]) < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: u64 = 100_000;

    fn lost(loss: &Loss) -> Vec<bool> {
        let mut state = State::default();
        (0..FRAMES).map(|n| state.loses(loss, 5, n)).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|l| **l).count() as f64 / lost.len() as f64
    }

    /// Returns the mean number of lost frames in a row.
    fn run_length(lost: &[bool]) -> f64 {
        let runs = lost.windows(2).filter(|w| w[0] && !w[1]).count();
        lost.iter().filter(|l| **l).count() as f64 / runs as f64
    }

    #[test]
    fn independent_loss_makes_no_bursts() {
        let lost = lost(&Loss { random: 0.05, burst: None });
        assert!((0.047..0.053).contains(&share(&lost)), "{}", share(&lost));
        // With independent losses of probability p, the mean number of lost frames in a row is 1 / (1 - p).
        assert!((1.03..1.08).contains(&run_length(&lost)), "{}", run_length(&lost));
    }

    #[test]
    fn loss_bursts_have_configured_length_and_rate() {
        let lost = lost(&Loss { random: 0.0, burst: Some(Burst { enter: 0.01, leave: 0.2, loss: 1.0 }) });
        // In the long run the bad state has the share enter / (enter + leave) of all frames. It lasts 1 /
        // leave frames on average.
        assert!((0.042..0.053).contains(&share(&lost)), "{}", share(&lost));
        assert!((4.6..5.4).contains(&run_length(&lost)), "{}", run_length(&lost));
    }

    #[test]
    fn loss_of_0_and_100_percent_is_exact() {
        assert_eq!(share(&lost(&Loss::default())), 0.0);
        assert_eq!(share(&lost(&Loss { random: 1.0, burst: None })), 1.0);
    }
}
