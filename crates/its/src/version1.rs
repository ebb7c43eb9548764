//! Reads CAM and DENM of protocol version 1 as messages of version 2. The standards of version 1 are EN 302
//! 637-2 V1.3.2 and EN 302 637-3 V1.2.2 with TS 102 894-2 V1.2.1.
//!
//! Most data elements have the same encoding in both versions; carnet encodes such values and decodes them
//! again. The following values differ:
//!
//! * *CurvatureValue* counts 1/30,000 m in 16 bits; in version 2 it counts 1/10,000 m in 11 bits.
//! * *LanePosition* and *DrivingLaneStatus* count lanes from outside, in version 2 from inside. The
//!   conversion needs the number of lanes, which the message does not contain. So carnet omits a driving
//!   lane; the hard shoulder becomes the outer hard shoulder of version 2.
//! * *CauseCode*, *DangerousGoodsExtended*, *ProtectedCommunicationZone* and *CenDsrcTollingZone* have no
//!   extension marker.
//! * *phoneNumber* allows any characters; in version 2 it has at most sixteen digits. carnet omits other
//!   phone numbers.
//!
//! The header of the result says version 2, like its values.

pub use crate::asn1::version1::{
    cam_pdu_descriptions as cam, denm_pdu_descriptions as denm, its_container as cdd,
};

use crate::asn1::release1::{cam_pdu_descriptions as cam_version2, denm_pdu_descriptions as denm_version2};
use crate::cdd::{
    CauseCode, CauseCodeType, CenDsrcTollingZone, ClosedLanes, Curvature, CurvatureConfidence,
    CurvatureValue, DangerousGoodsExtended, LanePosition, PhoneNumber, ProtectedCommunicationZone,
    ProtectedCommunicationZonesRsu, ProtocolVersion, SubCauseCodeType,
};
use crate::uper::{Error, Uper, decode, encode};

/// Number of protocol version 1 in the ITS PDU header.
pub const VERSION: u8 = 1;

/// Returns whether the header of a message says protocol version 1.
pub fn is_version_1(octets: &[u8]) -> bool {
    octets.first() == Some(&VERSION)
}

/// Converts a value of a type that both versions encode alike.
fn convert_same_encoding<A: Uper, B: Uper>(value: &A) -> Result<B, Error> {
    decode(&encode(value)?)
}

fn convert_optional<A: Uper, B: Uper>(value: Option<&A>) -> Result<Option<B>, Error> {
    value.map(convert_same_encoding).transpose()
}

fn convert_cause(value: &cdd::CauseCode) -> CauseCode {
    CauseCode {
        cause_code: CauseCodeType(value.cause_code.0),
        sub_cause_code: SubCauseCodeType(value.sub_cause_code.0),
    }
}

fn convert_curvature(value: &cdd::Curvature) -> Result<Curvature, Error> {
    const CURVATURE_OUT_OF_RANGE: i32 = 1022;
    let curvature_value = match value.curvature_value {
        cdd::CurvatureValue::UNAVAILABLE => CurvatureValue::UNAVAILABLE,
        cdd::CurvatureValue(value) => {
            // Round to the nearest value of version 2.
            let value = i32::from(value);
            CurvatureValue(
                ((value + value.signum()) / 3).clamp(-CURVATURE_OUT_OF_RANGE, CURVATURE_OUT_OF_RANGE) as i16,
            )
        }
    };
    let curvature_confidence: CurvatureConfidence = convert_same_encoding(&value.curvature_confidence)?;
    Ok(Curvature { curvature_value, curvature_confidence })
}

fn convert_lane(value: cdd::LanePosition) -> Option<LanePosition> {
    const OUTER_HARD_SHOULDER: i8 = 14;
    match value.0 {
        -1 => Some(LanePosition(-1)),
        0 => Some(LanePosition(OUTER_HARD_SHOULDER)),
        _ => None,
    }
}

fn convert_closed_lanes(value: &cdd::ClosedLanes) -> Result<ClosedLanes, Error> {
    Ok(ClosedLanes {
        outerhard_shoulder_status: convert_optional(value.hard_shoulder_status.as_ref())?,
        ..ClosedLanes::default()
    })
}

fn convert_zone(value: &cdd::ProtectedCommunicationZone) -> Result<ProtectedCommunicationZone, Error> {
    Ok(ProtectedCommunicationZone {
        protected_zone_type: convert_same_encoding(&value.protected_zone_type)?,
        expiry_time: convert_optional(value.expiry_time.as_ref())?,
        protected_zone_latitude: convert_same_encoding(&value.protected_zone_latitude)?,
        protected_zone_longitude: convert_same_encoding(&value.protected_zone_longitude)?,
        protected_zone_radius: convert_optional(value.protected_zone_radius.as_ref())?,
        protected_zone_id: convert_optional(value.protected_zone_id.as_ref())?,
    })
}

fn convert_tolling_zone(value: &cdd::CenDsrcTollingZone) -> Result<CenDsrcTollingZone, Error> {
    Ok(CenDsrcTollingZone {
        protected_zone_latitude: convert_same_encoding(&value.protected_zone_latitude)?,
        protected_zone_longitude: convert_same_encoding(&value.protected_zone_longitude)?,
        cen_dsrc_tolling_zone_id: convert_optional(value.cen_dsrc_tolling_zone_id.as_ref())?,
    })
}

fn convert_dangerous_goods(value: &cdd::DangerousGoodsExtended) -> Result<DangerousGoodsExtended, Error> {
    Ok(DangerousGoodsExtended {
        dangerous_goods_type: convert_same_encoding(&value.dangerous_goods_type)?,
        un_number: convert_same_encoding(&value.un_number)?,
        elevated_temperature: value.elevated_temperature,
        tunnels_restricted: value.tunnels_restricted,
        limited_quantity: value.limited_quantity,
        emergency_action_code: convert_optional(value.emergency_action_code.as_ref())?,
        phone_number: value
            .phone_number
            .as_ref()
            .map(|number| PhoneNumber(number.0.clone()))
            .filter(|number| encode(number).is_ok()),
        company_name: convert_optional(value.company_name.as_ref())?,
    })
}

/// Decodes a CAM of version 1 and converts it to version 2.
///
/// # Errors
///
/// An error that says why the octets are not a CAM.
#[inline(never)]
pub fn read_cam(octets: &[u8]) -> Result<cam_version2::Cam, Error> {
    use cam_version2::{
        BasicVehicleContainerHighFrequency, CamParameters, CoopAwareness, EmergencyContainer,
        HighFrequencyContainer, RoadWorksContainerBasic, RsuContainerHighFrequency, SafetyCarContainer,
        SpecialVehicleContainer,
    };
    let message: cam::Cam = decode(octets)?;
    let parameters = &message.cam.cam_parameters;
    let high_frequency_container = match &parameters.high_frequency_container {
        cam::HighFrequencyContainer::BasicVehicleContainerHighFrequency(high) => {
            HighFrequencyContainer::BasicVehicleContainerHighFrequency(BasicVehicleContainerHighFrequency {
                heading: convert_same_encoding(&high.heading)?,
                speed: convert_same_encoding(&high.speed)?,
                drive_direction: convert_same_encoding(&high.drive_direction)?,
                vehicle_length: convert_same_encoding(&high.vehicle_length)?,
                vehicle_width: convert_same_encoding(&high.vehicle_width)?,
                longitudinal_acceleration: convert_same_encoding(&high.longitudinal_acceleration)?,
                curvature: convert_curvature(&high.curvature)?,
                curvature_calculation_mode: convert_same_encoding(&high.curvature_calculation_mode)?,
                yaw_rate: convert_same_encoding(&high.yaw_rate)?,
                acceleration_control: convert_optional(high.acceleration_control.as_ref())?,
                lane_position: high.lane_position.and_then(convert_lane),
                steering_wheel_angle: convert_optional(high.steering_wheel_angle.as_ref())?,
                lateral_acceleration: convert_optional(high.lateral_acceleration.as_ref())?,
                vertical_acceleration: convert_optional(high.vertical_acceleration.as_ref())?,
                performance_class: convert_optional(high.performance_class.as_ref())?,
                cen_dsrc_tolling_zone: high
                    .cen_dsrc_tolling_zone
                    .as_ref()
                    .map(convert_tolling_zone)
                    .transpose()?,
            })
        }
        cam::HighFrequencyContainer::RsuContainerHighFrequency(unit) => {
            let zones = unit.protected_communication_zones_rsu.as_ref();
            let zones =
                zones.map(|zones| zones.0.iter().map(convert_zone).collect::<Result<_, _>>()).transpose()?;
            HighFrequencyContainer::RsuContainerHighFrequency(RsuContainerHighFrequency {
                protected_communication_zones_rsu: zones.map(ProtectedCommunicationZonesRsu),
            })
        }
        other @ cam::HighFrequencyContainer::Other(_) => convert_same_encoding(other)?,
    };
    let special_vehicle_container = match &parameters.special_vehicle_container {
        None => None,
        Some(cam::SpecialVehicleContainer::RoadWorksContainerBasic(works)) => {
            Some(SpecialVehicleContainer::RoadWorksContainerBasic(RoadWorksContainerBasic {
                roadworks_sub_cause_code: convert_optional(works.roadworks_sub_cause_code.as_ref())?,
                light_bar_siren_in_use: convert_same_encoding(&works.light_bar_siren_in_use)?,
                closed_lanes: works.closed_lanes.as_ref().map(convert_closed_lanes).transpose()?,
            }))
        }
        Some(cam::SpecialVehicleContainer::EmergencyContainer(vehicle)) => {
            Some(SpecialVehicleContainer::EmergencyContainer(EmergencyContainer {
                light_bar_siren_in_use: convert_same_encoding(&vehicle.light_bar_siren_in_use)?,
                incident_indication: vehicle.incident_indication.as_ref().map(convert_cause),
                emergency_priority: convert_optional(vehicle.emergency_priority.as_ref())?,
            }))
        }
        Some(cam::SpecialVehicleContainer::SafetyCarContainer(car)) => {
            Some(SpecialVehicleContainer::SafetyCarContainer(SafetyCarContainer {
                light_bar_siren_in_use: convert_same_encoding(&car.light_bar_siren_in_use)?,
                incident_indication: car.incident_indication.as_ref().map(convert_cause),
                traffic_rule: convert_optional(car.traffic_rule.as_ref())?,
                speed_limit: convert_optional(car.speed_limit.as_ref())?,
            }))
        }
        Some(other) => Some(convert_same_encoding(other)?),
    };
    Ok(cam_version2::Cam {
        header: convert_header(&message.header)?,
        cam: CoopAwareness {
            generation_delta_time: convert_same_encoding(&message.cam.generation_delta_time)?,
            cam_parameters: CamParameters {
                basic_container: convert_same_encoding(&parameters.basic_container)?,
                high_frequency_container,
                low_frequency_container: convert_optional(parameters.low_frequency_container.as_ref())?,
                special_vehicle_container,
            },
        },
    })
}

fn convert_header(header: &cdd::ItsPduHeader) -> Result<crate::cdd::ItsPduHeader, Error> {
    Ok(crate::cdd::ItsPduHeader { protocol_version: ProtocolVersion(2), ..convert_same_encoding(header)? })
}

/// Decodes a DENM of version 1 and converts it to version 2.
///
/// # Errors
///
/// An error that says why the octets are not a DENM.
#[inline(never)]
pub fn read_denm(octets: &[u8]) -> Result<denm_version2::Denm, Error> {
    use denm_version2::{
        AlacarteContainer, DecentralizedEnvironmentalNotificationMessage, RoadWorksContainerExtended,
        SituationContainer, StationaryVehicleContainer,
    };
    let message: denm::Denm = decode(octets)?;
    let body = &message.denm;
    let situation = |situation: &denm::SituationContainer| {
        Ok(SituationContainer {
            information_quality: convert_same_encoding(&situation.information_quality)?,
            event_type: convert_cause(&situation.event_type),
            linked_cause: situation.linked_cause.as_ref().map(convert_cause),
            event_history: convert_optional(situation.event_history.as_ref())?,
        })
    };
    let road_works = |works: &denm::RoadWorksContainerExtended| {
        Ok(RoadWorksContainerExtended {
            light_bar_siren_in_use: convert_optional(works.light_bar_siren_in_use.as_ref())?,
            closed_lanes: works.closed_lanes.as_ref().map(convert_closed_lanes).transpose()?,
            restriction: convert_optional(works.restriction.as_ref())?,
            speed_limit: convert_optional(works.speed_limit.as_ref())?,
            incident_indication: works.incident_indication.as_ref().map(convert_cause),
            recommended_path: convert_optional(works.recommended_path.as_ref())?,
            starting_point_speed_limit: convert_optional(works.starting_point_speed_limit.as_ref())?,
            traffic_flow_rule: convert_optional(works.traffic_flow_rule.as_ref())?,
            reference_denms: convert_optional(works.reference_denms.as_ref())?,
        })
    };
    let stationary = |vehicle: &denm::StationaryVehicleContainer| {
        Ok(StationaryVehicleContainer {
            stationary_since: convert_optional(vehicle.stationary_since.as_ref())?,
            stationary_cause: vehicle.stationary_cause.as_ref().map(convert_cause),
            carrying_dangerous_goods: vehicle
                .carrying_dangerous_goods
                .as_ref()
                .map(convert_dangerous_goods)
                .transpose()?,
            number_of_occupants: convert_optional(vehicle.number_of_occupants.as_ref())?,
            vehicle_identification: convert_optional(vehicle.vehicle_identification.as_ref())?,
            energy_storage_type: convert_optional(vehicle.energy_storage_type.as_ref())?,
        })
    };
    let alacarte = |more: &denm::AlacarteContainer| {
        Ok(AlacarteContainer {
            lane_position: more.lane_position.and_then(convert_lane),
            impact_reduction: convert_optional(more.impact_reduction.as_ref())?,
            external_temperature: convert_optional(more.external_temperature.as_ref())?,
            road_works: more.road_works.as_ref().map(road_works).transpose()?,
            positioning_solution: convert_optional(more.positioning_solution.as_ref())?,
            stationary_vehicle: more.stationary_vehicle.as_ref().map(stationary).transpose()?,
        })
    };
    Ok(denm_version2::Denm {
        header: convert_header(&message.header)?,
        denm: DecentralizedEnvironmentalNotificationMessage {
            management: convert_same_encoding(&body.management)?,
            situation: body.situation.as_ref().map(situation).transpose()?,
            location: convert_optional(body.location.as_ref())?,
            alacarte: body.alacarte.as_ref().map(alacarte).transpose()?,
        },
    })
}
