//! Adaptive control (TS 102 687 5.4): LIMERIC gives every station the same share of the channel, and all
//! stations together at most the target.
//!
//! Every 200 ms the station averages the last two busy ratios, and averages this mean with the previous mean.
//! It then moves its duty cycle towards the target by a share of the distance. It also gives back a part of
//! its duty cycle. Stations with a large share therefore lose more than stations with a small one, and all
//! reach the same share. With N stations that all receive each other,
//! `alpha * delta = beta * (target - N * delta)`. Their sum is a little below the target
//! ([`Parameters::share`]).
//!
//! The standard does not define the share at the start. In this module a station begins in the middle between
//! the least and the greatest share. The first mean is that of the first two readings.

use std::time::Duration;

use super::LONGEST;

/// Parameters of table 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Part of its duty cycle that a station gives back at every step.
    pub alpha: f64,
    /// Part of the distance to the target that a station takes at every step.
    pub beta: f64,
    /// CBR_target: the busy ratio that control aims at.
    pub target: f64,
    /// Largest duty cycle of a station.
    pub most: f64,
    /// Smallest duty cycle of a station.
    pub least: f64,
    /// G+max: the largest increase of the duty cycle in one step.
    pub up: f64,
    /// G-max: the largest decrease of the duty cycle in one step, negative.
    pub down: f64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            alpha: 0.016,
            beta: 0.0012,
            target: 0.68,
            most: 0.03,
            least: 0.0006,
            up: 0.0005,
            down: -0.00025,
        }
    }
}

impl Parameters {
    /// Returns the final share of each of `stations` stations that receive each other, if no other station
    /// sends.
    pub fn share(&self, stations: u32) -> f64 {
        let Parameters { alpha, beta, target, most, least, .. } = self.possible();
        // The quotient is not a number if alpha and beta are both 0.
        within(beta * target / (alpha + f64::from(stations) * beta), least, most)
    }

    /// Returns the parameters with valid bounds: at most the whole channel, and more than nothing.
    fn possible(self) -> Parameters {
        let least = within(self.least, LEAST, 1.0);
        let down = within(self.down, -1.0, 1.0);
        Parameters {
            least,
            most: within(self.most, least, 1.0),
            down,
            up: within(self.up, down, 1.0),
            ..self
        }
    }
}

/// B.1: shortest time between packets.
const SHORTEST: Duration = Duration::from_millis(25);
/// Least duty cycle. Without a share a station would never send; the time on air divided by this value is
/// still finite.
const LEAST: f64 = 1e-18;

/// Returns the nearest value within the bounds; `least` if the value is not a number, which `clamp` would
/// keep.
fn within(value: f64, least: f64, most: f64) -> f64 {
    if value > least { value.min(most) } else { least }
}

/// The LIMERIC algorithm.
#[derive(Debug)]
pub struct Limeric {
    parameters: Parameters,
    /// Duty cycle of the station (delta).
    duty_cycle: f64,
    /// Average busy ratio (CBR_ITS-S); `None` before the second reading.
    average: Option<f64>,
    /// The first of two readings, before the second arrives.
    first: Option<f64>,
}

impl Limeric {
    /// Creates the state before the first reading of the busy ratio.
    pub fn new(parameters: Parameters) -> Limeric {
        let parameters = parameters.possible();
        let duty_cycle = f64::midpoint(parameters.least, parameters.most);
        Limeric { parameters, duty_cycle, average: None, first: None }
    }

    /// Returns delta, the share of the channel that the station may have.
    pub fn duty_cycle(&self) -> f64 {
        self.duty_cycle
    }

    /// Handles the busy ratio of the last 100 ms. Returns whether the function calculated a new duty cycle.
    pub(super) fn handle_busy_ratio(&mut self, ratio: f64) -> bool {
        let Some(first) = self.first.take() else {
            self.first = Some(ratio);
            return false;
        };
        let Parameters { alpha, beta, target, most, least, up, down } = self.parameters;
        // Step 1: average the busy ratios.
        let mean = f64::midpoint(first, ratio);
        let average = self.average.map_or(mean, |average| f64::midpoint(average, mean));
        self.average = Some(average);
        // Step 2: limit the offset towards the target.
        let offset = (beta * (target - average)).clamp(down, up);
        // Steps 3, 4 and 5: calculate and limit the duty cycle.
        self.duty_cycle = within((1.0 - alpha) * self.duty_cycle + offset, least, most);
        true
    }

    /// Returns the time for which the gate is closed from the beginning of a packet. If the gate is already
    /// closed, `done` holds the time since then and the planned total.
    pub(super) fn closed(&self, on_air: Duration, done: Option<(Duration, Duration)>) -> Duration {
        let whole = on_air.div_f64(self.duty_cycle);
        match done {
            // B.2: the remaining time changes in proportion to the total time.
            Some((waited, all)) if waited < all => {
                let left = (all - waited).as_secs_f64() / all.as_secs_f64();
                whole.mul_f64(left) + waited
            }
            // An open gate stays open.
            Some((_, all)) => return all,
            // B.1: the gate closes for the whole time.
            None => whole,
        }
        .clamp(SHORTEST, LONGEST)
    }
}
