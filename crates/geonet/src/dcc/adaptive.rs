//! Adaptive control (TS 102 687 5.4): LIMERIC gives every station the same share of the channel, and all
//! stations together at most the target.
//!
//! Every 200 ms the station averages the last two busy ratios, and averages this mean with the previous mean.
//! It then moves its duty cycle towards the target by a share of the distance. It also gives back a part of
//! its duty cycle. Stations with a large share therefore lose more than stations with a small one, and all
//! reach the same share. With N stations that all receive each other, the share `delta` of each follows from
//! `alpha * delta = beta * (target - N * delta)`. The sum of all shares is a little below the target
//! ([`LimericParameters::equal_share`]).
//!
//! The standard does not define the share at the start. In this module a station begins in the middle between
//! the least and the greatest share. The first mean is that of the first two readings.

use std::time::Duration;

use super::MAX_GATE_CLOSED_TIME;

/// Parameters of LIMERIC (TS 102 687, table 3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimericParameters {
    /// Fraction of its duty cycle by which a station reduces the duty cycle at every step.
    pub alpha: f64,
    /// Fraction of the difference between target and busy ratio by which a station changes its duty cycle at
    /// every step.
    pub beta: f64,
    /// CBR_target: the busy ratio that control aims at.
    pub target_busy_ratio: f64,
    /// Largest duty cycle of a station.
    pub max_duty_cycle: f64,
    /// Smallest duty cycle of a station.
    pub min_duty_cycle: f64,
    /// G+max: the largest increase of the duty cycle in one step.
    pub max_increase: f64,
    /// G-max: the largest decrease of the duty cycle in one step, negative.
    pub max_decrease: f64,
}

impl Default for LimericParameters {
    fn default() -> LimericParameters {
        LimericParameters {
            alpha: 0.016,
            beta: 0.0012,
            target_busy_ratio: 0.68,
            max_duty_cycle: 0.03,
            min_duty_cycle: 0.0006,
            max_increase: 0.0005,
            max_decrease: -0.00025,
        }
    }
}

impl LimericParameters {
    /// Returns the duty cycle to which each of `stations` stations converges, if all of them receive each
    /// other and no other station sends.
    pub fn equal_share(&self, stations: u32) -> f64 {
        let LimericParameters {
            alpha,
            beta,
            target_busy_ratio: target,
            max_duty_cycle: most,
            min_duty_cycle: least,
            ..
        } = self.with_valid_bounds();
        // The quotient is not a number if alpha and beta are both 0.
        clamp_or_least(beta * target / (alpha + f64::from(stations) * beta), least, most)
    }

    /// Returns the parameters with valid bounds of the duty cycle: above 0 and at most 1.
    fn with_valid_bounds(self) -> LimericParameters {
        let least = clamp_or_least(self.min_duty_cycle, MIN_DUTY_CYCLE, 1.0);
        let down = clamp_or_least(self.max_decrease, -1.0, 1.0);
        LimericParameters {
            min_duty_cycle: least,
            max_duty_cycle: clamp_or_least(self.max_duty_cycle, least, 1.0),
            max_decrease: down,
            max_increase: clamp_or_least(self.max_increase, down, 1.0),
            ..self
        }
    }
}

/// B.1: shortest time between packets.
const MIN_PACKET_INTERVAL: Duration = Duration::from_millis(25);
/// Lower bound of the duty cycle: with 0 the station would never send. The bound is so large that the time on
/// air divided by it is finite.
const MIN_DUTY_CYCLE: f64 = 1e-18;

/// Limits `value` to the bounds. Returns `least` if `value` is not a number; `clamp` would return the invalid
/// value.
fn clamp_or_least(value: f64, least: f64, most: f64) -> f64 {
    if value > least { value.min(most) } else { least }
}

/// The LIMERIC algorithm.
#[derive(Debug)]
pub struct Limeric {
    parameters: LimericParameters,
    /// Duty cycle of the station (delta).
    duty_cycle: f64,
    /// Average busy ratio (CBR_ITS-S); `None` before the second reading.
    average_busy_ratio: Option<f64>,
    /// First of the two channel busy ratios that the algorithm averages, while the second has not arrived.
    first_busy_ratio: Option<f64>,
}

impl Limeric {
    /// Creates the controller in its state before the first reading of the busy ratio.
    pub fn new(parameters: LimericParameters) -> Limeric {
        let parameters = parameters.with_valid_bounds();
        let duty_cycle = f64::midpoint(parameters.min_duty_cycle, parameters.max_duty_cycle);
        Limeric { parameters, duty_cycle, average_busy_ratio: None, first_busy_ratio: None }
    }

    /// Returns delta, the share of the channel that the station may have.
    pub fn duty_cycle(&self) -> f64 {
        self.duty_cycle
    }

    /// Handles the busy ratio of the last 100 ms. Returns whether the duty cycle was computed again.
    pub(super) fn handle_busy_ratio(&mut self, ratio: f64) -> bool {
        let Some(first) = self.first_busy_ratio.take() else {
            self.first_busy_ratio = Some(ratio);
            return false;
        };
        let LimericParameters {
            alpha,
            beta,
            target_busy_ratio: target,
            max_duty_cycle: most,
            min_duty_cycle: least,
            max_increase: up,
            max_decrease: down,
        } = self.parameters;
        // Step 1: average the busy ratios.
        let mean = f64::midpoint(first, ratio);
        let average = self.average_busy_ratio.map_or(mean, |average| f64::midpoint(average, mean));
        self.average_busy_ratio = Some(average);
        // Step 2: limit the offset towards the target.
        let offset = (beta * (target - average)).clamp(down, up);
        // Steps 3, 4 and 5: calculate and limit the duty cycle.
        self.duty_cycle = clamp_or_least((1.0 - alpha) * self.duty_cycle + offset, least, most);
        true
    }

    /// Returns the time for which the gate is closed from the beginning of a packet. `done` is `Some` if the
    /// gate has already closed for this packet. It holds the time since the beginning of the packet, and the
    /// closing time by the previous call.
    pub(super) fn gate_closed_time(&self, on_air: Duration, done: Option<(Duration, Duration)>) -> Duration {
        let whole = on_air.div_f64(self.duty_cycle);
        match done {
            // B.2: if the closing time changes while the gate is closed, the remaining time changes by the
            // same factor.
            Some((waited, all)) if waited < all => {
                let left = (all - waited).as_secs_f64() / all.as_secs_f64();
                whole.mul_f64(left) + waited
            }
            // The gate is already open for this packet, so it stays open.
            Some((_, all)) => return all,
            // B.1: the gate closes for the full computed time.
            None => whole,
        }
        .clamp(MIN_PACKET_INTERVAL, MAX_GATE_CLOSED_TIME)
    }
}
