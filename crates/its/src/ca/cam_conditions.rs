//! Generation frequency management (clause 6.1.3).

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geodesy::Position;

use crate::cdd::{HeadingValue, SpeedValue};

/// The parameters of clause 6.1.3 and annex A, with their standard names and values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CaParameters {
    /// Shortest interval of CAMs (`T_GenCamMin`).
    pub minimum_interval: Duration,
    /// Longest interval of CAMs (`T_GenCamMax`).
    pub maximum_interval: Duration,
    /// `N_GenCam`: number of CAMs without a change of movement after which the interval returns to the
    /// longest.
    pub max_consecutive_cams: u8,
    /// Change of heading that causes a CAM, 0.1 degree.
    pub min_heading_change: u16,
    /// Change of position that causes a CAM, metres.
    pub min_position_change: f64,
    /// Change of speed that causes a CAM, 0.01 m/s.
    pub min_speed_change: u16,
    /// Least time between two low-frequency or two special vehicle containers.
    pub low_frequency_interval: Duration,
    /// Interval of a roadside unit's CAMs.
    pub road_side_unit_interval: Duration,
    /// Longest age of the data about the station; not in the standard.
    pub maximum_data_age: Duration,
}

impl Default for CaParameters {
    fn default() -> Self {
        CaParameters {
            minimum_interval: Duration::from_millis(100),
            maximum_interval: Duration::from_millis(1000),
            max_consecutive_cams: 3,
            min_heading_change: 40,
            min_position_change: 4.0,
            min_speed_change: 50,
            low_frequency_interval: Duration::from_millis(500),
            road_side_unit_interval: Duration::from_millis(1000),
            maximum_data_age: Duration::from_millis(2000),
        }
    }
}

/// Position, heading and speed, which conditions 1 and 2 compare with the values of the last CAM.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct MovementValues {
    pub position: Option<Position>,
    pub heading: HeadingValue,
    pub speed: SpeedValue,
}

/// Reason for which the service generates a CAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GenerationReason {
    /// Condition 1: the movement changed.
    Movement,
    /// Condition 2: the interval `T_GenCam` has passed since the last CAM, or the service has not sent a CAM
    /// yet.
    Elapsed,
}

/// Values that decide when the next CAM is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct CamConditions {
    parameters: CaParameters,
    /// `T_GenCam_DCC`: interval that DCC permits.
    dcc_interval: Duration,
    /// `T_GenCam`: present generation interval.
    generation_interval: Duration,
    /// Number of CAMs in a row that condition 2 caused.
    consecutive_elapsed_cams: u8,
    last_cam_time_and_movement: Option<(Time, MovementValues)>,
}

impl CamConditions {
    pub fn new(parameters: CaParameters) -> CamConditions {
        CamConditions {
            parameters,
            dcc_interval: parameters.minimum_interval,
            generation_interval: parameters.maximum_interval,
            consecutive_elapsed_cams: 0,
            last_cam_time_and_movement: None,
        }
    }

    pub fn set_interval_of_dcc(&mut self, interval: Duration) {
        let CaParameters { minimum_interval, maximum_interval, .. } = self.parameters;
        self.dcc_interval = interval.clamp(minimum_interval, maximum_interval.max(minimum_interval));
    }

    /// Returns whether the movement changed by more than a threshold. A value that is or was unavailable
    /// counts as unchanged.
    fn has_movement_changed(&self, last: &MovementValues, current: &MovementValues) -> bool {
        let turned = match (last.heading, current.heading) {
            (HeadingValue::UNAVAILABLE, _) | (_, HeadingValue::UNAVAILABLE) => false,
            (last, current) => {
                let difference = last.0.abs_diff(current.0) % 3600;
                difference.min(3600 - difference) > self.parameters.min_heading_change
            }
        };
        let faster = match (last.speed, current.speed) {
            (SpeedValue::UNAVAILABLE, _) | (_, SpeedValue::UNAVAILABLE) => false,
            (last, current) => last.0.abs_diff(current.0) > self.parameters.min_speed_change,
        };
        let away = || match (last.position, current.position) {
            (Some(last), Some(current)) => last.distance_to(current) > self.parameters.min_position_change,
            _ => false,
        };
        turned || faster || away()
    }

    /// Returns the time at which the next CAM of a vehicle is due, if its position, heading and speed stay as
    /// they are now. Returns `None` if a CAM is due at once.
    pub fn next_cam_at(&self, current: MovementValues) -> Option<Time> {
        let (at, last) = self.last_cam_time_and_movement.as_ref()?;
        let wait = if self.has_movement_changed(last, &current) {
            self.dcc_interval
        } else {
            self.generation_interval.max(self.dcc_interval)
        };
        Some(*at + wait)
    }

    /// Returns the time at which the next CAM of a roadside unit is due; `None` if the service has not sent a
    /// CAM yet, so one is due at once.
    pub fn next_road_side_unit_cam_at(&self) -> Option<Time> {
        let (at, _) = self.last_cam_time_and_movement.as_ref()?;
        Some(*at + self.parameters.road_side_unit_interval.max(self.dcc_interval))
    }

    /// Returns the reason for which a CAM of a vehicle is due now; `None` if none is due.
    pub fn generation_reason(&self, now: Time, current: MovementValues) -> Option<GenerationReason> {
        let Some((at, last)) = &self.last_cam_time_and_movement else {
            return Some(GenerationReason::Elapsed);
        };
        let elapsed = now.saturating_since(*at);
        if elapsed >= self.dcc_interval && self.has_movement_changed(last, &current) {
            return Some(GenerationReason::Movement);
        }
        (elapsed >= self.generation_interval.max(self.dcc_interval)).then_some(GenerationReason::Elapsed)
    }

    /// Returns the reason for which a CAM of a roadside unit is due now; `None` if none is due.
    pub fn road_side_unit_reason(&self, now: Time) -> Option<GenerationReason> {
        self.next_road_side_unit_cam_at().is_none_or(|due| due <= now).then_some(GenerationReason::Elapsed)
    }

    /// Stores time, reason and movement values of a generated CAM.
    pub fn record_cam(&mut self, now: Time, reason: GenerationReason, dynamics: MovementValues) {
        match reason {
            GenerationReason::Movement => {
                let CaParameters { minimum_interval, maximum_interval, .. } = self.parameters;
                let elapsed = self
                    .last_cam_time_and_movement
                    .map_or(maximum_interval, |(at, _)| now.saturating_since(at));
                self.generation_interval =
                    elapsed.clamp(minimum_interval, maximum_interval.max(minimum_interval));
                self.consecutive_elapsed_cams = 0;
            }
            GenerationReason::Elapsed => {
                self.consecutive_elapsed_cams = self.consecutive_elapsed_cams.saturating_add(1);
                if self.consecutive_elapsed_cams >= self.parameters.max_consecutive_cams {
                    self.generation_interval = self.parameters.maximum_interval;
                }
            }
        }
        self.last_cam_time_and_movement = Some((now, dynamics));
    }
}
