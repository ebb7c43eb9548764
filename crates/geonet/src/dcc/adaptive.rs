//! Adaptive control (TS 102 687 5.4): LIMERIC, which gives every station the same share of the channel, and
//! all together at most the target.
//!
//! Every 200 ms the station averages the last two busy ratios, and that mean with the mean before. It then
//! moves its duty cycle towards the target by a share of the distance. It also gives back a part of its duty
//! cycle. Stations with a large share therefore lose more than stations with a small one, and all reach the
//! same share. With N stations that all receive each other, `alpha * delta = beta * (target - N * delta)`: a
//! little below the target ([`Parameters::share`]).
//!
//! The standard does not say with which share a station begins: here in the middle between the least and the
//! greatest. The first mean is that of the first two readings.

use std::time::Duration;

use super::LONGEST;

/// Table 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Part of its share that a station gives back at every step.
    pub alpha: f64,
    /// Part of the distance to the target that a station takes at every step.
    pub beta: f64,
    /// CBR_target: how busy the channel shall be.
    pub target: f64,
    /// The most it may have.
    pub most: f64,
    /// The least it always has.
    pub least: f64,
    /// G+max: the most that one step adds.
    pub up: f64,
    /// G-max: the most that one step takes away, negative.
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
        // Not a number where nothing is given back and nothing taken.
        within(beta * target / (alpha + f64::from(stations) * beta), least, most)
    }

    /// The same with bounds that are in order: no more than all of the channel, and more than nothing.
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

/// B.1: the shortest time between packets.
const SHORTEST: Duration = Duration::from_millis(25);
/// A station without any share would never send: the time on air divided by this is still a time.
const LEAST: f64 = 1e-18;

/// The nearest value between the two; the least where there is no number, which `clamp` would keep.
fn within(value: f64, least: f64, most: f64) -> f64 {
    if value > least { value.min(most) } else { least }
}

/// The algorithm.
#[derive(Debug)]
pub struct Limeric {
    parameters: Parameters,
    /// delta
    duty_cycle: f64,
    /// CBR_ITS-S, once there were two readings.
    average: Option<f64>,
    /// The first of two readings.
    first: Option<f64>,
}

impl Limeric {
    /// A station that has not heard anything yet.
    pub fn new(parameters: Parameters) -> Limeric {
        let parameters = parameters.possible();
        let duty_cycle = f64::midpoint(parameters.least, parameters.most);
        Limeric { parameters, duty_cycle, average: None, first: None }
    }

    /// delta: the share of the channel that the station may have.
    pub fn duty_cycle(&self) -> f64 {
        self.duty_cycle
    }

    /// The busy ratio was this in the last 100 ms. Says whether the duty cycle was calculated anew.
    pub(super) fn handle_busy_ratio(&mut self, ratio: f64) -> bool {
        let Some(first) = self.first.take() else {
            self.first = Some(ratio);
            return false;
        };
        let Parameters { alpha, beta, target, most, least, up, down } = self.parameters;
        // Step 1.
        let mean = f64::midpoint(first, ratio);
        let average = self.average.map_or(mean, |average| f64::midpoint(average, mean));
        self.average = Some(average);
        // Step 2.
        let offset = (beta * (target - average)).clamp(down, up);
        // Steps 3, 4 and 5.
        self.duty_cycle = within((1.0 - alpha) * self.duty_cycle + offset, least, most);
        true
    }

    /// How long the gate is closed from the beginning of a packet; `done` is how long it has been, and was to
    /// be, if it is closed already.
    pub(super) fn closed(&self, on_air: Duration, done: Option<(Duration, Duration)>) -> Duration {
        let whole = on_air.div_f64(self.duty_cycle);
        match done {
            // B.2: what is left is stretched, or shrinks, like the whole.
            Some((waited, all)) if waited < all => {
                let left = (all - waited).as_secs_f64() / all.as_secs_f64();
                whole.mul_f64(left) + waited
            }
            // An open gate stays open.
            Some((_, all)) => return all,
            // B.1
            None => whole,
        }
        .clamp(SHORTEST, LONGEST)
    }
}
