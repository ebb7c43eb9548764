//! The SSP bits that a message needs for its restricted content (EN 302 637-2 and EN 302 637-3, clauses on
//! service specific permissions).
//!
//! The bits of CAM represent the special containers and their content, the bits of DENM the cause codes.
//! Messages of other applications need no bits here: their standards have their own tables, and the
//! application must check them.

use carnet_its::cam::{Cam, HighFrequencyContainer, SpecialVehicleContainer};
use carnet_its::cdd::{CauseCodeType, EmergencyPriority, TrafficRule};
use carnet_its::denm::Denm;

use crate::permissions::{Psid, PsidSsp, Ssp};

/// Version octet of an SSP whose bits [`SspBits`] describes.
pub const SSP_VERSION: u8 = 1;

/// SSP bits from the three octets after the version octet. The first bit in the standard's tables is the
/// highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SspBits(pub u32);

const fn mask_of_bit(number: u32) -> u32 {
    0x80_0000 >> number
}

impl SspBits {
    /// Returns the SSP bits that a CAM or DENM needs; `None` if the octets are not such a message.
    pub fn bits_of_message(psid: Psid, message: &[u8]) -> Option<SspBits> {
        match psid {
            Psid::CAM => Cam::from_octets(message).ok().map(|cam| SspBits(ssp_bits_of_cam(&cam))),
            Psid::DENM => Denm::from_octets(message).ok().map(|denm| SspBits(ssp_bits_of_denm(&denm))),
            _ => Some(SspBits(0)),
        }
    }

    /// Returns whether permissions cover all of these SSP bits. Without SSP, the permissions cover only
    /// content that needs no bit.
    pub fn are_permitted_by(self, permissions: &PsidSsp) -> bool {
        let granted = match &permissions.ssp {
            // After the version octet, the SSP of a CAM has two octets and the SSP of a DENM three.
            Some(Ssp::Bitmap(octets)) => match octets.as_slice() {
                [SSP_VERSION, a, b] => u32::from_be_bytes([0, *a, *b, 0]),
                [SSP_VERSION, a, b, c] => u32::from_be_bytes([0, *a, *b, *c]),
                _ => 0,
            },
            _ => 0,
        };
        self.0 & !granted == 0
    }
}

fn ssp_bits_of_cam(cam: &Cam) -> u32 {
    let parameters = &cam.cam.cam_parameters;
    let mut bits = match &parameters.high_frequency_container {
        HighFrequencyContainer::BasicVehicleContainerHighFrequency(vehicle)
            if vehicle.cen_dsrc_tolling_zone.is_some() =>
        {
            mask_of_bit(0)
        }
        HighFrequencyContainer::RsuContainerHighFrequency(unit)
            if unit.protected_communication_zones_rsu.is_some() =>
        {
            mask_of_bit(0)
        }
        _ => 0,
    };
    bits |= match &parameters.special_vehicle_container {
        None => 0,
        Some(SpecialVehicleContainer::PublicTransportContainer(_)) => mask_of_bit(1),
        Some(SpecialVehicleContainer::SpecialTransportContainer(_)) => mask_of_bit(2),
        Some(SpecialVehicleContainer::DangerousGoodsContainer(_)) => mask_of_bit(3),
        Some(SpecialVehicleContainer::RoadWorksContainerBasic(works)) => {
            mask_of_bit(4) | works.closed_lanes.as_ref().map_or(0, |_| mask_of_bit(8))
        }
        Some(SpecialVehicleContainer::RescueContainer(_)) => mask_of_bit(5),
        Some(SpecialVehicleContainer::EmergencyContainer(emergency)) => {
            let asks = |priority| emergency.emergency_priority.is_some_and(|all| all.contains(priority));
            mask_of_bit(6)
                | if asks(EmergencyPriority::REQUEST_FOR_RIGHT_OF_WAY) { mask_of_bit(9) } else { 0 }
                | if asks(EmergencyPriority::REQUEST_FOR_FREE_CROSSING_AT_A_TRAFFIC_LIGHT) {
                    mask_of_bit(10)
                } else {
                    0
                }
        }
        Some(SpecialVehicleContainer::SafetyCarContainer(car)) => {
            mask_of_bit(7)
                | match car.traffic_rule {
                    Some(TrafficRule::NoPassing) => mask_of_bit(11),
                    Some(TrafficRule::NoPassingForTrucks) => mask_of_bit(12),
                    _ => 0,
                }
                | car.speed_limit.as_ref().map_or(0, |_| mask_of_bit(13))
        }
        // The SSP bit for a container of a later release is unknown, so demand a bit that no certificate has.
        Some(SpecialVehicleContainer::Other(_)) => mask_of_bit(23),
    };
    bits
}

fn ssp_bits_of_denm(denm: &Denm) -> u32 {
    let causes = [
        CauseCodeType::TRAFFIC_CONDITION,
        CauseCodeType::ACCIDENT,
        CauseCodeType::ROADWORKS,
        CauseCodeType::ADVERSE_WEATHER_CONDITION_ADHESION,
        CauseCodeType::HAZARDOUS_LOCATION_SURFACE_CONDITION,
        CauseCodeType::HAZARDOUS_LOCATION_OBSTACLE_ON_THE_ROAD,
        CauseCodeType::HAZARDOUS_LOCATION_ANIMAL_ON_THE_ROAD,
        CauseCodeType::HUMAN_PRESENCE_ON_THE_ROAD,
        CauseCodeType::WRONG_WAY_DRIVING,
        CauseCodeType::RESCUE_AND_RECOVERY_WORK_IN_PROGRESS,
        CauseCodeType::ADVERSE_WEATHER_CONDITION_EXTREME_WEATHER_CONDITION,
        CauseCodeType::ADVERSE_WEATHER_CONDITION_VISIBILITY,
        CauseCodeType::ADVERSE_WEATHER_CONDITION_PRECIPITATION,
        CauseCodeType::SLOW_VEHICLE,
        CauseCodeType::DANGEROUS_END_OF_QUEUE,
        CauseCodeType::VEHICLE_BREAKDOWN,
        CauseCodeType::POST_CRASH,
        CauseCodeType::HUMAN_PROBLEM,
        CauseCodeType::STATIONARY_VEHICLE,
        CauseCodeType::EMERGENCY_VEHICLE_APPROACHING,
        CauseCodeType::HAZARDOUS_LOCATION_DANGEROUS_CURVE,
        CauseCodeType::COLLISION_RISK,
        CauseCodeType::SIGNAL_VIOLATION,
        CauseCodeType::DANGEROUS_SITUATION,
    ];
    let Some(situation) = &denm.denm.situation else { return 0 };
    let cause = situation.event_type.cause_code;
    // Every station may send a cause code that has no SSP bit.
    causes.iter().position(|other| *other == cause).map_or(0, |number| mask_of_bit(number as u32))
}
