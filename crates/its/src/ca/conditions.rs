//! The generation frequency management of clause 6.1.3, by itself.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geodesy::Position;

use crate::cdd::{HeadingValue, SpeedValue};

/// The parameters of clause 6.1.3 and annex A, with their standard names and values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// `T_GenCamMin`.
    pub minimum_interval: Duration,
    /// `T_GenCamMax`.
    pub maximum_interval: Duration,
    /// `N_GenCam`: number of CAMs without a change of movement after which the interval is the longest again.
    pub consecutive: u8,
    /// Change of heading that is reason for a CAM, 0.1 degree.
    pub heading: u16,
    /// Change of position, metres.
    pub distance: f64,
    /// Change of speed, 0.01 m/s.
    pub speed: u16,
    /// At least so long from one low-frequency or special vehicle container to the next.
    pub low_frequency_interval: Duration,
    /// From one CAM of a roadside unit to the next.
    pub road_side_unit_interval: Duration,
    /// Longest age of the station's own data; not in the standard.
    pub maximum_age: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            minimum_interval: Duration::from_millis(100),
            maximum_interval: Duration::from_millis(1000),
            consecutive: 3,
            heading: 40,
            distance: 4.0,
            speed: 50,
            low_frequency_interval: Duration::from_millis(500),
            road_side_unit_interval: Duration::from_millis(1000),
            maximum_age: Duration::from_millis(2000),
        }
    }
}

/// Values that the conditions compare with the last CAM.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Dynamics {
    pub position: Option<Position>,
    pub heading: HeadingValue,
    pub speed: SpeedValue,
}

/// Why a CAM is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Condition 1: the movement changed.
    Movement,
    /// Condition 2: time has passed, or no CAM was sent before.
    Elapsed,
}

/// When the next CAM is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions {
    parameters: Parameters,
    /// `T_GenCam_DCC`.
    dcc: Duration,
    /// `T_GenCam`.
    interval: Duration,
    /// How many CAMs in a row were generated because time had passed.
    in_a_row: u8,
    last: Option<(Time, Dynamics)>,
}

impl Conditions {
    pub fn new(parameters: Parameters) -> Conditions {
        Conditions {
            parameters,
            dcc: parameters.minimum_interval,
            interval: parameters.maximum_interval,
            in_a_row: 0,
            last: None,
        }
    }

    pub fn set_interval_of_dcc(&mut self, interval: Duration) {
        let Parameters { minimum_interval, maximum_interval, .. } = self.parameters;
        self.dcc = interval.clamp(minimum_interval, maximum_interval.max(minimum_interval));
    }

    /// Whether the movement changed by more than a threshold. A value that is unavailable, now or then, has
    /// not changed.
    fn moved(&self, last: &Dynamics, current: &Dynamics) -> bool {
        let turned = match (last.heading, current.heading) {
            (HeadingValue::UNAVAILABLE, _) | (_, HeadingValue::UNAVAILABLE) => false,
            (last, current) => {
                let difference = last.0.abs_diff(current.0) % 3600;
                difference.min(3600 - difference) > self.parameters.heading
            }
        };
        let faster = match (last.speed, current.speed) {
            (SpeedValue::UNAVAILABLE, _) | (_, SpeedValue::UNAVAILABLE) => false,
            (last, current) => last.0.abs_diff(current.0) > self.parameters.speed,
        };
        let away = || match (last.position, current.position) {
            (Some(last), Some(current)) => last.distance(current) > self.parameters.distance,
            _ => false,
        };
        turned || faster || away()
    }

    /// When the next CAM of a vehicle is due, if it goes on like this; `None`: at once.
    pub fn due(&self, current: Dynamics) -> Option<Time> {
        let (at, last) = self.last.as_ref()?;
        let wait = if self.moved(last, &current) { self.dcc } else { self.interval.max(self.dcc) };
        Some(*at + wait)
    }

    /// Time at which the next CAM of a roadside unit is due.
    pub fn due_of_road_side_unit(&self) -> Option<Time> {
        let (at, _) = self.last.as_ref()?;
        Some(*at + self.parameters.road_side_unit_interval.max(self.dcc))
    }

    /// Whether a CAM is to be generated now, and why.
    pub fn hold(&self, now: Time, current: Dynamics) -> Option<Reason> {
        let Some((at, last)) = &self.last else { return Some(Reason::Elapsed) };
        let elapsed = now.saturating_since(*at);
        if elapsed >= self.dcc && self.moved(last, &current) {
            return Some(Reason::Movement);
        }
        (elapsed >= self.interval.max(self.dcc)).then_some(Reason::Elapsed)
    }

    /// Why a roadside unit sends a CAM now, if it does.
    pub fn hold_of_road_side_unit(&self, now: Time) -> Option<Reason> {
        self.due_of_road_side_unit().is_none_or(|due| due <= now).then_some(Reason::Elapsed)
    }

    /// A CAM was generated.
    pub fn generated(&mut self, now: Time, reason: Reason, dynamics: Dynamics) {
        match reason {
            Reason::Movement => {
                let Parameters { minimum_interval, maximum_interval, .. } = self.parameters;
                let elapsed = self.last.map_or(maximum_interval, |(at, _)| now.saturating_since(at));
                self.interval = elapsed.clamp(minimum_interval, maximum_interval.max(minimum_interval));
                self.in_a_row = 0;
            }
            Reason::Elapsed => {
                self.in_a_row = self.in_a_row.saturating_add(1);
                if self.in_a_row >= self.parameters.consecutive {
                    self.interval = self.parameters.maximum_interval;
                }
            }
        }
        self.last = Some((now, dynamics));
    }
}
