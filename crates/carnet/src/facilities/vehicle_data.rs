//! Converts an application's report about the vehicle to a CAM for the station.

use carnet_api::config::VehicleRole as Role;
use carnet_api::model::Vehicle;
use carnet_its::cam::{
    BasicVehicleContainerLowFrequency, Cam, EmergencyContainer, HighFrequencyContainer,
    LowFrequencyContainer, PublicTransportContainer, RescueContainer, RoadWorksContainerBasic,
    SafetyCarContainer, SpecialTransportContainer, SpecialVehicleContainer as Special,
};
use carnet_its::cdd::{
    AccelerationControl, CurvatureValue, DriveDirection, ExteriorLights, HeadingValue, LanePosition,
    LateralAcceleration, LateralAccelerationValue, LightBarSirenInUse, LongitudinalAccelerationValue,
    SpeedValue, SteeringWheelAngle, SteeringWheelAngleValue, VehicleLengthValue, VehicleRole, VehicleWidth,
    VerticalAcceleration, VerticalAccelerationValue, YawRateValue,
};

/// Names of the standard's light bits, the first bit first.
const EXTERIOR_LIGHT_NAMES: [&str; 8] = [
    "low_beam_headlights_on",
    "high_beam_headlights_on",
    "left_turn_signal_on",
    "right_turn_signal_on",
    "daytime_running_lights_on",
    "reverse_light_on",
    "fog_light_on",
    "parking_lights_on",
];
const ACCELERATION_CONTROL_NAMES: [&str; 7] = [
    "brake_pedal_engaged",
    "gas_pedal_engaged",
    "emergency_brake_engaged",
    "collision_warning_engaged",
    "acc_engaged",
    "cruise_control_engaged",
    "speed_limiter_engaged",
];

/// Returns the vehicle data as a CAM; `role` is the vehicle's role if the report has no role.
///
/// # Errors
/// Returns the mistake, with the expected value.
pub fn cam_of_vehicle(vehicle: &Vehicle, role: Role) -> Result<Vec<u8>, String> {
    let mut cam = Cam::default();
    let parameters = &mut cam.cam.cam_parameters;
    let HighFrequencyContainer::BasicVehicleContainerHighFrequency(high) =
        &mut parameters.high_frequency_container
    else {
        return Err("a vehicle has a vehicle's container".into());
    };
    if let Some(speed) = scale_value("speed_mps", vehicle.speed_mps, 100.0, 0, 16_382)? {
        high.speed.speed_value = SpeedValue(speed as u16);
    }
    if let Some(heading) = scale_value("heading_deg", vehicle.heading_deg, 10.0, 0, 3600)? {
        high.heading.heading_value = HeadingValue(heading as u16 % 3600);
    }
    high.drive_direction = match vehicle.drive_direction.as_deref() {
        None => DriveDirection::Unavailable,
        Some("forward") => DriveDirection::Forward,
        Some("backward") => DriveDirection::Backward,
        Some(other) => {
            return Err(format!("drive_direction is {other:?}, expected forward or backward"));
        }
    };
    if let Some(curvature) = scale_value("curvature_per_m", vehicle.curvature_per_m, 10_000.0, -1022, 1022)? {
        high.curvature.curvature_value = CurvatureValue(curvature as i16);
    }
    if let Some(rate) = scale_value("yaw_rate_dps", vehicle.yaw_rate_dps, 100.0, -32_766, 32_766)? {
        high.yaw_rate.yaw_rate_value = YawRateValue(rate as i16);
    }
    let acceleration = |name, value| scale_value(name, value, 10.0, -160, 160);
    let along = "longitudinal_acceleration_mps2";
    if let Some(value) = acceleration(along, vehicle.longitudinal_acceleration_mps2)? {
        high.longitudinal_acceleration.longitudinal_acceleration_value =
            LongitudinalAccelerationValue(value as i16);
    }
    high.lateral_acceleration = acceleration("lateral_acceleration_mps2", vehicle.lateral_acceleration_mps2)?
        .map(|value| LateralAcceleration {
            lateral_acceleration_value: LateralAccelerationValue(value as i16),
            ..LateralAcceleration::default()
        });
    high.vertical_acceleration =
        acceleration("vertical_acceleration_mps2", vehicle.vertical_acceleration_mps2)?.map(|value| {
            VerticalAcceleration {
                vertical_acceleration_value: VerticalAccelerationValue(value as i16),
                ..VerticalAcceleration::default()
            }
        });
    let angle =
        scale_value("steering_wheel_angle_deg", vehicle.steering_wheel_angle_deg, 1.0 / 1.5, -511, 511)?;
    high.steering_wheel_angle = angle.map(|value| SteeringWheelAngle {
        steering_wheel_angle_value: SteeringWheelAngleValue(value as i16),
        ..SteeringWheelAngle::default()
    });
    high.lane_position = vehicle.lane.map(lane_position).transpose()?;
    if let Some(control) = &vehicle.acceleration_control {
        high.acceleration_control = Some(AccelerationControl(bits_from_names(
            "acceleration_control",
            control,
            &ACCELERATION_CONTROL_NAMES,
        )?));
    }
    if let Some(length) = scale_value("length_m", vehicle.length_m, 10.0, 1, 1021)? {
        high.vehicle_length.vehicle_length_value = VehicleLengthValue(length as u16);
    }
    if let Some(width) = scale_value("width_m", vehicle.width_m, 10.0, 1, 60)? {
        high.vehicle_width = VehicleWidth(width as u8);
    }
    let role = match &vehicle.role {
        None => role,
        Some(name) => {
            let known = Role::NAMES.iter().find(|(known, _)| known == name);
            let names = Role::NAMES.map(|(name, _)| name).join(", ");
            known.ok_or_else(|| format!("role is {name:?}, expected one of {names}"))?.1
        }
    };
    let vehicle_role = VehicleRole::ALL.get(role as usize).copied().unwrap_or_default();
    parameters.special_vehicle_container = special_container(vehicle, vehicle_role)?;
    parameters.low_frequency_container =
        Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(BasicVehicleContainerLowFrequency {
            vehicle_role,
            exterior_lights: ExteriorLights(bits_from_names(
                "exterior_lights",
                &vehicle.exterior_lights,
                &EXTERIOR_LIGHT_NAMES,
            )?),
            ..BasicVehicleContainerLowFrequency::default()
        }));
    cam.to_octets().map_err(|error| error.to_string())
}

/// Returns the special container of vehicles with this role.
fn special_container(vehicle: &Vehicle, role: VehicleRole) -> Result<Option<Special>, String> {
    let light_bar_siren_in_use =
        LightBarSirenInUse(u8::from(vehicle.light_bar) << 1 | u8::from(vehicle.siren));
    let special = match role {
        VehicleRole::PublicTransport => Special::PublicTransportContainer(PublicTransportContainer {
            embarkation_status: vehicle.embarkation,
            pt_activation: None,
        }),
        VehicleRole::SpecialTransport => Special::SpecialTransportContainer(SpecialTransportContainer {
            light_bar_siren_in_use,
            ..SpecialTransportContainer::default()
        }),
        VehicleRole::RoadWork => Special::RoadWorksContainerBasic(RoadWorksContainerBasic {
            light_bar_siren_in_use,
            ..RoadWorksContainerBasic::default()
        }),
        VehicleRole::Rescue => Special::RescueContainer(RescueContainer { light_bar_siren_in_use }),
        VehicleRole::Emergency => Special::EmergencyContainer(EmergencyContainer {
            light_bar_siren_in_use,
            ..EmergencyContainer::default()
        }),
        VehicleRole::SafetyCar => Special::SafetyCarContainer(SafetyCarContainer {
            light_bar_siren_in_use,
            ..SafetyCarContainer::default()
        }),
        _ if vehicle.light_bar || vehicle.siren => {
            return Err("the CAM of this role has no light bar or siren, expected no light_bar and no \
                        siren"
                .into());
        }
        _ => return Ok(None),
    };
    if vehicle.embarkation && role != VehicleRole::PublicTransport {
        return Err("embarkation goes with the role public_transport only".into());
    }
    Ok(Some(special))
}

/// Converts a value to the standard's units; `None` stays `None`.
pub fn scale_value(
    name: &str,
    value: Option<f64>,
    scale: f64,
    least: i32,
    most: i32,
) -> Result<Option<i32>, String> {
    let Some(value) = value else { return Ok(None) };
    let number = (value * scale).round();
    if (f64::from(least)..=f64::from(most)).contains(&number) {
        return Ok(Some(number as i32));
    }
    let (least, most) = (f64::from(least) / scale, f64::from(most) / scale);
    Err(format!("{name} is {value}, expected {least} to {most}"))
}

/// Converts a lane number to the standard's lane position.
pub fn lane_position(lane: i8) -> Result<LanePosition, String> {
    if (LanePosition::LEAST..=LanePosition::MOST).contains(&lane) {
        return Ok(LanePosition(lane));
    }
    Err(format!("lane is {lane}, expected {} to {}", LanePosition::LEAST, LanePosition::MOST))
}

fn bits_from_names(name: &str, given: &[String], names: &[&str]) -> Result<u8, String> {
    given.iter().try_fold(0, |bits, word| {
        let bit = names.iter().position(|known| known == word);
        let bit =
            bit.ok_or_else(|| format!("{name}: {word:?} is not known, expected {}", names.join(", ")))?;
        Ok(bits | 1 << (names.len() - 1 - bit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cam_from_json(json: &str) -> Result<Cam, String> {
        let vehicle: Vehicle = serde_json::from_str(json).expect("a vehicle");
        cam_of_vehicle(&vehicle, Role::Default).map(|octets| Cam::from_octets(&octets).expect("a CAM"))
    }

    #[test]
    fn vehicle_data_is_converted_to_units_of_the_standard() {
        let cam = cam_from_json(
            r#"{"speed_mps": 13.89, "heading_deg": 360, "yaw_rate_dps": -4.5, "curvature_per_m": 0.01,
                "longitudinal_acceleration_mps2": -16, "steering_wheel_angle_deg": 15, "lane": -1,
                "length_m": 12,
                "exterior_lights": ["low_beam_headlights_on", "parking_lights_on"],
                "acceleration_control": ["brake_pedal_engaged"], "role": "rescue", "siren": true}"#,
        )
        .expect("a CAM");
        let parameters = cam.cam.cam_parameters;
        let HighFrequencyContainer::BasicVehicleContainerHighFrequency(high) =
            parameters.high_frequency_container
        else {
            panic!("{parameters:?}")
        };
        assert_eq!((high.speed.speed_value.0, high.heading.heading_value.0), (1389, 0));
        assert_eq!((high.yaw_rate.yaw_rate_value.0, high.curvature.curvature_value.0), (-450, 100));
        assert_eq!(high.longitudinal_acceleration.longitudinal_acceleration_value.0, -160);
        assert_eq!(high.steering_wheel_angle.map(|angle| angle.steering_wheel_angle_value.0), Some(10));
        assert_eq!(
            (high.lane_position, high.vehicle_length.vehicle_length_value.0),
            (Some(LanePosition(-1)), 120)
        );
        assert_eq!(high.acceleration_control, Some(AccelerationControl::BRAKE_PEDAL_ENGAGED));
        assert_eq!((high.lateral_acceleration, high.vehicle_width), (None, VehicleWidth::UNAVAILABLE));
        let Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(low)) =
            parameters.low_frequency_container
        else {
            panic!("no low-frequency container")
        };
        let lights = ExteriorLights::LOW_BEAM_HEADLIGHTS_ON.0 | ExteriorLights::PARKING_LIGHTS_ON.0;
        assert_eq!((low.vehicle_role, low.exterior_lights.0), (VehicleRole::Rescue, lights));
        let siren = LightBarSirenInUse::SIREN_ACTIVATED;
        let rescue = RescueContainer { light_bar_siren_in_use: siren };
        assert_eq!(parameters.special_vehicle_container, Some(Special::RescueContainer(rescue)));
    }

    #[test]
    fn invalid_vehicle_data_is_refused_with_reason() {
        for (json, expected) in [
            (r#"{"speed_mps": 164}"#, "speed_mps is 164, expected 0 to 163.82"),
            (r#"{"heading_deg": -1}"#, "heading_deg is -1, expected 0 to 360"),
            (r#"{"lane": 15}"#, "lane is 15, expected -1 to 14"),
            (r#"{"drive_direction": "up"}"#, "drive_direction is \"up\", expected forward or backward"),
            (
                r#"{"exterior_lights": ["disco"]}"#,
                "exterior_lights: \"disco\" is not known, expected low_beam",
            ),
            (r#"{"role": "king"}"#, "role is \"king\", expected one of default, public_transport"),
            (
                r#"{"siren": true}"#,
                "the CAM of this role has no light bar or siren, expected no light_bar \
                and no siren",
            ),
            (r#"{"role": "rescue", "embarkation": true}"#, "embarkation goes with the role public_transport"),
        ] {
            let told = cam_from_json(json).expect_err(json);
            assert!(told.contains(expected), "{json}: {told}");
        }
    }
}
