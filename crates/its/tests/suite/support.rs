//! Clocks, positions and messages that several tests use.

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_geonet::Transport;
use carnet_geonet::geodesy::{LocalPlane, Position};
use carnet_its::cam::{
    BasicContainer, BasicVehicleContainerHighFrequency, Cam, CamParameters, CoopAwareness,
    GenerationDeltaTime, HighFrequencyContainer,
};
use carnet_its::cdd::{
    Heading, HeadingValue, ItsPduHeader, MessageId, ReferencePosition, Speed, SpeedValue, StationId,
    StationType, TimestampIts,
};
use carnet_its::uper::{Uper, decode};
use carnet_its::{ItsTime, MessageTransmission};
use carnet_wire::btp::BtpB;
use carnet_wire::geonet::{GeoArea, GeoAreaShape};

/// Position at which the tests' stations are.
pub const HOME_POSITION: Position = Position::new(488_375_000, 21_008_000);

/// Returns the time `milliseconds` after the start of the test, on 2026-11-22.
pub fn now_at_milliseconds(milliseconds: u64) -> ItsTime {
    let date = TimestampIts::from_wall_time(WallTime::from_unix_nanos(
        (1_795_300_000_000 + milliseconds) * 1_000_000,
    ));
    ItsTime { time: Time::from_millis(milliseconds), timestamp: date }
}

/// Returns the time of the test with this monotonic time and the date that belongs to it.
pub fn now_at(time: Time) -> ItsTime {
    ItsTime { time, ..now_at_milliseconds(time.as_nanos() / 1_000_000) }
}

/// Returns the position `east` and `north` metres from [`HOME_POSITION`].
pub fn position_at(east: f64, north: f64) -> Position {
    LocalPlane::new(HOME_POSITION).position_at(east, north)
}

/// Returns the position `east` and `north` metres from [`HOME_POSITION`] as reference position of a message.
pub fn reference_position_at(east: f64, north: f64) -> ReferencePosition {
    let position = position_at(east, north);
    ReferencePosition::at_coordinates(position.latitude, position.longitude)
}

/// Returns a circle around [`HOME_POSITION`].
pub fn circle_around_home(radius: u16) -> GeoArea {
    GeoArea {
        shape: GeoAreaShape::Circle,
        latitude: HOME_POSITION.latitude,
        longitude: HOME_POSITION.longitude,
        distance_a: radius,
        distance_b: 0,
        angle: 0,
    }
}

/// Returns a message without its BTP-B header, and its port.
pub fn decode_transmission<T: Uper>(transmission: &MessageTransmission) -> (u16, T) {
    let (header, message) = BtpB::parse(&transmission.payload).unwrap();
    assert_eq!(header.destination_port_info, 0);
    (header.destination_port, decode(message).unwrap())
}

/// Returns whether the transmission is a single-hop broadcast.
pub fn is_single_hop(transmission: &MessageTransmission) -> bool {
    matches!(transmission.transport, Transport::SingleHop(_)) && transmission.maximum_hop_limit == Some(1)
}

/// Returns a CAM of a car.
pub fn cam_of_station(station: u32, time: u16, position: ReferencePosition, heading: u16, speed: u16) -> Cam {
    let vehicle = BasicVehicleContainerHighFrequency {
        heading: Heading { heading_value: HeadingValue(heading), ..Heading::default() },
        speed: Speed { speed_value: SpeedValue(speed), ..Speed::default() },
        ..BasicVehicleContainerHighFrequency::default()
    };
    Cam {
        header: ItsPduHeader {
            message_id: MessageId::CAM,
            station_id: StationId(station),
            ..ItsPduHeader::default()
        },
        cam: CoopAwareness {
            generation_delta_time: GenerationDeltaTime(time),
            cam_parameters: CamParameters {
                basic_container: BasicContainer {
                    station_type: StationType::PASSENGER_CAR,
                    reference_position: position,
                },
                high_frequency_container: HighFrequencyContainer::BasicVehicleContainerHighFrequency(vehicle),
                low_frequency_container: None,
                special_vehicle_container: None,
            },
        },
    }
}

/// Returns the octets of hex digits; ignores white space.
pub fn octets_of_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Returns a duration of milliseconds.
pub const fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
