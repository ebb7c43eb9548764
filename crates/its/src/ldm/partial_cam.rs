//! Partial decoding of a CAM: only the few fields that the map needs.
//!
//! In a CAM all fields up to the width of the vehicle are at fixed bits, so a few loads are enough. The
//! function does not check later octets. Only an addition to the basic container would move the fields. No
//! release has such an addition. If a CAM has one, the map decodes the CAM in full.

use carnet_geonet::geodesy::Position;

use crate::ItsDrop;
use crate::ca::check_header;
use crate::cam::{GenerationDeltaTime, HighFrequencyContainer};
use crate::cdd::{
    DriveDirection, HeadingValue, ItsPduHeader, MessageId, ProtocolVersion, SemiAxisLength, SpeedValue,
    StationId, StationType, VehicleLengthValue, VehicleWidth,
};
use crate::uper::Reader;

/// Fields of a CAM that the map needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialCam {
    /// Station ID of the sender.
    pub station_id: StationId,
    /// Type of the sender.
    pub station_type: StationType,
    /// Time of the position, modulo 65,536 ms.
    pub generation_delta_time: GenerationDeltaTime,
    /// Position of the sender.
    pub position: Position,
    /// Confidence of the position: the longer half axis.
    pub confidence: SemiAxisLength,
    /// Heading of the sender. A roadside unit does not send this field and the fields below; they have the
    /// value "unavailable".
    pub heading: HeadingValue,
    /// Speed.
    pub speed: SpeedValue,
    /// Drive direction: forwards or backwards.
    pub drive_direction: DriveDirection,
    /// Length of the vehicle.
    pub vehicle_length: VehicleLengthValue,
    /// Width of the vehicle.
    pub vehicle_width: VehicleWidth,
}

/// Returns the field of `width` bits whose lowest bit is bit number `low` of `bits`.
const fn extract_bit_field(bits: u64, width: u32, low: u32) -> u64 {
    bits >> low & ((1 << width) - 1)
}

impl PartialCam {
    /// Decodes the fields of a CAM without the BTP header.
    ///
    /// # Errors
    /// [`ItsDrop::Malformed`], [`ItsDrop::WrongMessage`], [`ItsDrop::WrongVersion`] or
    /// [`ItsDrop::NoPosition`].
    pub fn from_octets(octets: &[u8]) -> Result<PartialCam, ItsDrop> {
        // The fields up to the alternative of the high-frequency container have 201 bits.
        if octets.len() < 26 {
            return Err(ItsDrop::Malformed);
        }
        let mut reader = Reader::new(octets);
        let mut next = |width: u32| reader.read_bits(width, "CAM");
        // Protocol version 8 bits, message ID 8, station ID 32.
        let bits = next(48);
        let header = ItsPduHeader {
            protocol_version: ProtocolVersion(extract_bit_field(bits, 8, 40) as u8),
            message_id: MessageId(extract_bit_field(bits, 8, 32) as u8),
            station_id: StationId(extract_bit_field(bits, 32, 0) as u32),
        };
        check_header(&header, MessageId::CAM)?;
        // Generation time 16 bits; flags of the parameters for additions, low-frequency and special
        // container; flag of the basic container for additions; station type 8 bits.
        let bits = next(28);
        if extract_bit_field(bits, 1, 8) == 1 {
            return Self::from_decoded_cam(octets);
        }
        let generation_delta_time = GenerationDeltaTime(extract_bit_field(bits, 16, 12) as u16);
        let station_type = StationType(extract_bit_field(bits, 8, 0) as u8);
        let latitude = next(31) as i64 - 900_000_000;
        let longitude = next(32) as i64 - 1_800_000_000;
        // Confidence ellipse 12, 12 and 12 bits; altitude 20 bits.
        let bits = next(56);
        let confidence = SemiAxisLength(extract_bit_field(bits, 12, 44) as u16);
        // The next bits: confidence of the altitude (4), flag for additions, and alternative of the
        // high-frequency container.
        let bits = next(6);
        let position = checked_position(latitude, longitude)?;
        let mut glance = PartialCam {
            station_id: header.station_id,
            station_type,
            generation_delta_time,
            position,
            confidence,
            heading: HeadingValue::UNAVAILABLE,
            speed: SpeedValue::UNAVAILABLE,
            drive_direction: DriveDirection::Unavailable,
            vehicle_length: VehicleLengthValue::UNAVAILABLE,
            vehicle_width: VehicleWidth::UNAVAILABLE,
        };
        if extract_bit_field(bits, 2, 0) != 0 {
            return Ok(glance);
        }
        // Flags of seven optional components; heading 12 and 7 bits, speed 14 and 7 bits.
        let bits = next(47);
        glance.heading = HeadingValue(extract_bit_field(bits, 12, 28) as u16);
        glance.speed = SpeedValue(extract_bit_field(bits, 14, 7) as u16);
        // Drive direction 2 bits, length 10 and 3 bits, width 6 bits.
        let bits = next(21);
        let direction = extract_bit_field(bits, 2, 19) as usize;
        glance.drive_direction = *DriveDirection::ALL.get(direction).ok_or(ItsDrop::Malformed)?;
        glance.vehicle_length = VehicleLengthValue(extract_bit_field(bits, 10, 9) as u16 + 1);
        glance.vehicle_width = VehicleWidth(extract_bit_field(bits, 6, 0) as u8 + 1);
        let beyond = reader.error().is_some();
        if beyond
            || glance.heading > HeadingValue::UNAVAILABLE
            || glance.vehicle_width > VehicleWidth::UNAVAILABLE
        {
            return Err(ItsDrop::Malformed);
        }
        Ok(glance)
    }

    /// Decodes the whole CAM and returns the fields that the map needs; for CAMs that the quick decoding does
    /// not support.
    fn from_decoded_cam(octets: &[u8]) -> Result<PartialCam, ItsDrop> {
        let cam = crate::ca::parse_cam(octets)?;
        let parameters = cam.cam.cam_parameters;
        let reference = parameters.basic_container.reference_position;
        let vehicle = match parameters.high_frequency_container {
            HighFrequencyContainer::BasicVehicleContainerHighFrequency(vehicle) => vehicle,
            _ => Default::default(),
        };
        Ok(PartialCam {
            station_id: cam.header.station_id,
            station_type: parameters.basic_container.station_type,
            generation_delta_time: cam.cam.generation_delta_time,
            position: reference.position().ok_or(ItsDrop::NoPosition)?,
            confidence: reference.position_confidence_ellipse.semi_major_confidence,
            heading: vehicle.heading.heading_value,
            speed: vehicle.speed.speed_value,
            drive_direction: vehicle.drive_direction,
            vehicle_length: vehicle.vehicle_length.vehicle_length_value,
            vehicle_width: vehicle.vehicle_width,
        })
    }
}

/// Returns the position with these coordinates.
///
/// # Errors
///
/// [`ItsDrop::Malformed`] or [`ItsDrop::NoPosition`]: the coordinates are outside their range or unavailable.
fn checked_position(latitude: i64, longitude: i64) -> Result<Position, ItsDrop> {
    if latitude > 900_000_001 || longitude > 1_800_000_001 {
        return Err(ItsDrop::Malformed);
    }
    let position = Position::new(latitude as i32, longitude as i32);
    if position.is_on_earth() { Ok(position) } else { Err(ItsDrop::NoPosition) }
}
