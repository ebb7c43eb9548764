//! Measures the CAMs and DENMs per second that one core encodes and decodes.
#![allow(missing_docs, reason = "criterion's macros generate undocumented functions")]

use std::hint::black_box;

use carnet_its::cam::{
    BasicVehicleContainerLowFrequency, Cam, HighFrequencyContainer, LowFrequencyContainer,
};
use carnet_its::cdd::{
    CauseCode, CauseCodeType, DeltaAltitude, DeltaLatitude, DeltaLongitude, DeltaReferencePosition,
    MessageId, PathDeltaTime, PathHistory, PathPoint, ReferencePosition, StationId, StationType, Traces,
};
use carnet_its::denm::{Denm, LocationContainer, SituationContainer};
use carnet_its::ldm::PartialCam;
use carnet_its::uper::{decode, encode_into};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn path_history(points: usize) -> PathHistory {
    let point = PathPoint {
        path_position: DeltaReferencePosition {
            delta_latitude: DeltaLatitude(-1234),
            delta_longitude: DeltaLongitude(2345),
            delta_altitude: DeltaAltitude::UNAVAILABLE,
        },
        path_delta_time: Some(PathDeltaTime(77)),
    };
    PathHistory(vec![point; points])
}

/// Returns a car's CAM. If `points` is set, the CAM has a low-frequency container with that number of points.
fn cam_of_car(points: Option<usize>) -> Cam {
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
            path_history: path_history(points),
            ..BasicVehicleContainerLowFrequency::default()
        })
    });
    cam
}

fn example_denm() -> Denm {
    let mut denm = Denm::default();
    denm.header.message_id = MessageId::DENM;
    denm.denm.management.event_position = ReferencePosition::at_coordinates(488_375_000, 21_008_000);
    denm.denm.situation = Some(SituationContainer {
        event_type: CauseCode { cause_code: CauseCodeType::STATIONARY_VEHICLE, ..CauseCode::default() },
        ..SituationContainer::default()
    });
    denm.denm.location =
        Some(LocationContainer { traces: Traces(vec![path_history(10)]), ..LocationContainer::default() });
    denm
}

fn bench_messages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("messages");
    group.throughput(Throughput::Elements(1));
    for (name, cam) in [("CAM", cam_of_car(None)), ("CAM with 23 points", cam_of_car(Some(23)))] {
        let mut octets = Vec::new();
        encode_into(&cam, &mut octets).expect("a CAM");
        group.bench_function(format!("encode {name}"), |bencher| {
            let mut room = Vec::new();
            bencher.iter(|| encode_into(black_box(&cam), &mut room).expect("a CAM"));
        });
        group.bench_function(format!("decode {name}"), |bencher| {
            bencher.iter(|| decode::<Cam>(black_box(&octets)).expect("a CAM"));
        });
        group.bench_function(format!("glance at {name}"), |bencher| {
            bencher.iter(|| PartialCam::from_octets(black_box(&octets)).expect("a CAM"));
        });
    }
    let denm = example_denm();
    let mut octets = Vec::new();
    encode_into(&denm, &mut octets).expect("a DENM");
    group.bench_function("encode DENM", |bencher| {
        let mut room = Vec::new();
        bencher.iter(|| encode_into(black_box(&denm), &mut room).expect("a DENM"));
    });
    group.bench_function("decode DENM", |bencher| {
        bencher.iter(|| decode::<Denm>(black_box(&octets)).expect("a DENM"));
    });
    group.finish();
}

criterion_group!(benches, bench_messages);
criterion_main!(benches);
