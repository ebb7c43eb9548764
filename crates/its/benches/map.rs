//! Measures the CAMs per second that one core enters into the map, from octets, and the cost of a query.
//!
//! Stations are within 4 km, send a CAM each second, and move by up to 3 m between two CAMs. For every CAM
//! the benchmark measures the partial decoding, the look-up, the write and sometimes the change of the cell.
#![allow(missing_docs, reason = "criterion's macros generate undocumented functions")]

use std::hint::black_box;

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::{LocalPlane, Position};
use carnet_its::cam::{Cam, GenerationDeltaTime};
use carnet_its::cdd::{MessageId, ReferencePosition, StationId, StationType};
use carnet_its::ldm::{LdmParameters, LocalDynamicMap, StationTypes};
use carnet_its::uper::encode;
use carnet_wire::geonet::{GeoArea, GeoAreaShape};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const HOME_POSITION: Position = Position::new(488_375_000, 21_008_000);
/// Number of CAMs per station that the benchmark prepares.
const CAMS_PER_STATION: usize = 8;

/// Returns the CAMs of `stations` stations, round after round.
fn cams_of_stations(stations: u32) -> Vec<Vec<u8>> {
    let plane = LocalPlane::new(HOME_POSITION);
    let mut rng = Rng::new(1);
    let mut places: Vec<(f64, f64)> = (0..stations)
        .map(|_| (rng.number_below(8000) as f64 - 4000.0, rng.number_below(8000) as f64 - 4000.0))
        .collect();
    (0..CAMS_PER_STATION)
        .flat_map(|_| {
            let round: Vec<Vec<u8>> = (0..)
                .zip(&mut places)
                .map(|(station, place)| {
                    place.0 += rng.number_below(7) as f64 - 3.0;
                    let position = plane.position_at(place.0, place.1);
                    let mut cam = Cam::default();
                    cam.header.message_id = MessageId::CAM;
                    cam.header.station_id = StationId(station);
                    // All CAMs have the same generation time, because the map would reject repeated rounds of
                    // CAMs as older ones.
                    cam.cam.generation_delta_time = GenerationDeltaTime(0);
                    let basic = &mut cam.cam.cam_parameters.basic_container;
                    basic.station_type = StationType::PASSENGER_CAR;
                    basic.reference_position =
                        ReferencePosition::at_coordinates(position.latitude, position.longitude);
                    encode(&cam).expect("a CAM")
                })
                .collect();
            round
        })
        .collect()
}

fn bench_map(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("map");
    for stations in [100, 1000, 4000] {
        let cams = cams_of_stations(stations);
        let mut map = LocalDynamicMap::new(LdmParameters::default(), 7);
        let mut time = 0_u64;
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("CAM", stations), |bencher| {
            let mut next = cams.iter().cycle();
            bencher.iter(|| {
                time += 1_000_000_000 / u64::from(stations);
                let cam = next.next().expect("a cycle");
                map.handle_cam(Time::from_nanos(time), black_box(cam)).expect("a CAM")
            });
        });
        let area = GeoArea {
            shape: GeoAreaShape::Circle,
            latitude: HOME_POSITION.latitude,
            longitude: HOME_POSITION.longitude,
            distance_a: 300,
            distance_b: 0,
            angle: 0,
        };
        let now = Time::from_nanos(time);
        group.bench_function(BenchmarkId::new("stations within 300 m of", stations), |bencher| {
            bencher.iter(|| map.stations_in(now, Some(black_box(&area)), StationTypes::ALL));
        });
    }
    group.finish();
}

criterion_group!(benches, bench_map);
criterion_main!(benches);
