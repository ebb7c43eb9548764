//! Messages for the test and the benchmark of carnet's codec and the codec of c-its-parser.

use carnet_its::cam::{
    BasicVehicleContainerLowFrequency, Cam, HighFrequencyContainer, LowFrequencyContainer,
};
use carnet_its::cdd::{
    DeltaAltitude, DeltaLatitude, DeltaLongitude, DeltaReferencePosition, MessageId, PathDeltaTime,
    PathHistory, PathPoint, ReferencePosition, StationId, StationType,
};

/// Returns a car's CAM. If `points` is set, the CAM has a low-frequency container with that number of points.
pub fn test_cam(points: Option<usize>) -> Cam {
    let point = PathPoint {
        path_position: DeltaReferencePosition {
            delta_latitude: DeltaLatitude(-1234),
            delta_longitude: DeltaLongitude(2345),
            delta_altitude: DeltaAltitude::UNAVAILABLE,
        },
        path_delta_time: Some(PathDeltaTime(77)),
    };
    let mut cam = Cam::default();
    cam.header.message_id = MessageId::CAM;
    cam.header.station_id = StationId(4711);
    let parameters = &mut cam.cam.cam_parameters;
    parameters.basic_container.station_type = StationType::PASSENGER_CAR;
    parameters.basic_container.reference_position =
        ReferencePosition::at_coordinates(488_375_000, 21_008_000);
    parameters.high_frequency_container = HighFrequencyContainer::default();
    parameters.low_frequency_container = points.map(|points| {
        LowFrequencyContainer::BasicVehicleContainerLowFrequency(BasicVehicleContainerLowFrequency {
            path_history: PathHistory(vec![point; points]),
            ..BasicVehicleContainerLowFrequency::default()
        })
    });
    cam
}

/// Returns the messages of this name that pycrate made with random values (`../tests/pycrate-vectors`).
pub fn vectors_with_name(name: &str) -> impl Iterator<Item = Vec<u8>> {
    include_str!("../../tests/suite/vectors.txt").lines().filter_map(move |line| {
        let digits = line.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next()?;
        let octet = |index: usize| u8::from_str_radix(digits.get(index..index + 2)?, 16).ok();
        (0..digits.len()).step_by(2).map(octet).collect()
    })
}
