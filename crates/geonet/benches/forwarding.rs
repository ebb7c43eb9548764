//! Measures packets per second through one router on one core, from received octets to sent octets, without
//! any system call.
//!
//! Packets come from 4,096 distinct sources, each with its next sequence number, and the senders take turns.
//! Virtual time advances by a millisecond per packet, so that packet data rate control is active and passes
//! all packets. `one destination` is a flow, which the next-hop cache serves. `many destinations` searches
//! the spatial index for each packet.
#![allow(missing_docs, reason = "criterion's macros generate undocumented functions")]

use std::hint::black_box;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::{LocalPlane, Position};
use carnet_geonet::mib::AreaForwarding;
use carnet_geonet::{BROADCAST, MacAddress, Mib, Output, ReceivedFrame, Router};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GeoArea, GeoAreaShape, GnAddress, Lifetime, LongPositionVector, Packet,
    ShortPositionVector, StationType, Timestamp,
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const HOME_POSITION: Position = Position::new(488_375_000, 21_008_000);
const ROUTER_MAC: MacAddress = [2, 0, 0, 0, 0, 1];
const SOURCE_COUNT: u32 = 4096;
const PAYLOAD: [u8; 64] = [0xa5; 64];

fn position_at(east: f64, north: f64) -> Position {
    LocalPlane::new(HOME_POSITION).position_at(east, north)
}

fn gn_address(kind: u8, number: u32) -> GnAddress {
    let [_, b, c, d] = number.to_be_bytes();
    GnAddress::new(false, StationType::PassengerCar, [2, kind, 0, b, c, d])
}

fn position_vector(address: GnAddress, position: Position, timestamp: u32) -> LongPositionVector {
    LongPositionVector {
        address,
        timestamp: Timestamp(timestamp),
        latitude: position.latitude,
        longitude: position.longitude,
        accurate: true,
        ..LongPositionVector::default()
    }
}

fn count_outputs(router: &mut Router) -> u32 {
    let mut sent = 0;
    while let Some(output) = router.poll_output() {
        match output {
            Output::Transmit(transmission) => {
                sent += 1;
                router.recycle_buffer(black_box(transmission).frame);
            }
            Output::Deliver(delivery) => router.recycle_buffer(black_box(delivery).payload),
            Output::Accelerate(_) | Output::Event(_) => {}
        }
    }
    sent
}

/// Creates a router with `neighbours` neighbours within 900 m.
fn router_with_neighbours(neighbours: u32, area_forwarding: AreaForwarding) -> (Router, Vec<MacAddress>) {
    let mib = Mib {
        lifetime_location_entry: Duration::from_secs(1_000_000_000),
        lifetime_neighbour: Duration::from_secs(1_000_000_000),
        area_forwarding,
        ..Mib::default()
    };
    let mut rng = Rng::new(1);
    let mut router =
        Router::new(mib, GnAddress::new(false, StationType::PassengerCar, ROUTER_MAC), Rng::new(2));
    let now = Time::from_secs(1);
    router.handle_position(now, position_vector(GnAddress(0), HOME_POSITION, 1)).expect("on earth");
    let mut macs = Vec::new();
    while macs.len() < neighbours as usize {
        let (east, north) = (rng.number_below(1800) as f64 - 900.0, rng.number_below(1800) as f64 - 900.0);
        if east.hypot(north) > 900.0 {
            continue;
        }
        let source = position_vector(gn_address(1, macs.len() as u32), position_at(east, north), 1);
        let frame = single_hop_frame(source);
        router
            .handle_frame(
                now,
                ReceivedFrame { source: source.address.mid(), destination: BROADCAST, packet: &frame },
            )
            .expect("a neighbour");
        count_outputs(&mut router);
        macs.push(source.address.mid());
    }
    (router, macs)
}

fn single_hop_frame(source: LongPositionVector) -> Vec<u8> {
    encode_packet(ExtendedHeader::SingleHop { source, media_dependent: [0; 4] }, 1)
}

fn encode_packet(extended: ExtendedHeader, hops: u8) -> Vec<u8> {
    Packet::new(
        extended,
        CommonNextHeader::BtpB,
        Lifetime::from_duration(Duration::from_secs(60)),
        hops,
        &PAYLOAD,
    )
    .emit()
}

fn destination_position(number: u32, many: bool) -> Position {
    // A single destination lies 5 km to the north-east. Many destinations lie on an arc at a distance of 5
    // km.
    let angle = if many { f64::from(number % SOURCE_COUNT) / f64::from(SOURCE_COUNT) * 1.5 } else { 0.8 };
    position_at(5000.0 * angle.sin(), 5000.0 * angle.cos())
}

fn circular_area(centre: Position) -> GeoArea {
    GeoArea {
        shape: GeoAreaShape::Circle,
        latitude: centre.latitude,
        longitude: centre.longitude,
        distance_a: 500,
        distance_b: 0,
        angle: 0,
    }
}

/// Returns one packet of each source; the benchmark sets the sequence numbers later.
fn packets_of_all_sources(extended: impl Fn(u32, LongPositionVector) -> ExtendedHeader) -> Vec<Vec<u8>> {
    (0..SOURCE_COUNT)
        .map(|number| {
            encode_packet(
                extended(number, position_vector(gn_address(2, number), position_at(-3000.0, -3000.0), 1)),
                10,
            )
        })
        .collect()
}

/// Benchmark load: frames that pass through a router, each with a new sequence number.
struct BenchmarkLoad {
    router: Router,
    senders: Vec<MacAddress>,
    frames: Vec<Vec<u8>>,
    now: Time,
    next: usize,
    sequence: u16,
    /// Whether each packet comes from a station that is not in the router's location table.
    has_unknown_sources: bool,
}

impl BenchmarkLoad {
    fn pass_next_frame(&mut self) -> u32 {
        let at = self.next % self.frames.len();
        if at == 0 {
            self.sequence = self.sequence.wrapping_add(1);
        }
        let frame = &mut self.frames[at];
        frame[12..14].copy_from_slice(&self.sequence.to_be_bytes());
        if self.has_unknown_sources {
            frame[20..24].copy_from_slice(&(self.next as u32).to_be_bytes());
        }
        let source = self.senders[self.next % self.senders.len()];
        self.next += 1;
        self.now += Duration::from_millis(1);
        let frame = ReceivedFrame { source, destination: ROUTER_MAC, packet: frame };
        let _ = self.router.handle_frame(self.now, frame);
        count_outputs(&mut self.router)
    }
}

fn bench_forwarding(c: &mut Criterion) {
    let mut group = c.benchmark_group("forward");
    group.throughput(Throughput::Elements(1));
    for neighbours in [10u32, 100, 1_000, 10_000] {
        for many in [false, true] {
            let to = if many { "many destinations" } else { "one destination" };
            let guc = packets_of_all_sources(|number, source| {
                let place = destination_position(number, many);
                let destination = ShortPositionVector {
                    address: gn_address(3, number),
                    timestamp: Timestamp(1),
                    latitude: place.latitude,
                    longitude: place.longitude,
                };
                ExtendedHeader::GeoUnicast { sequence: 0, source, destination }
            });
            let gbc = packets_of_all_sources(|number, source| ExtendedHeader::GeoBroadcast {
                sequence: 0,
                source,
                area: circular_area(destination_position(number, many)),
            });
            for (name, frames) in [("guc greedy", guc), ("gbc greedy", gbc)] {
                let (router, senders) = router_with_neighbours(neighbours, AreaForwarding::Simple);
                let mut load = BenchmarkLoad {
                    router,
                    senders,
                    frames,
                    now: Time::from_secs(2),
                    next: 0,
                    sequence: 0,
                    has_unknown_sources: false,
                };
                // Let the router learn every source: it forwards one packet of each.
                for _ in 0..SOURCE_COUNT {
                    load.pass_next_frame();
                }
                assert!((0..SOURCE_COUNT).all(|_| load.pass_next_frame() == 1), "every packet is forwarded");
                group.bench_function(BenchmarkId::new(format!("{name}, {to}"), neighbours), |b| {
                    b.iter(|| load.pass_next_frame());
                });
            }
        }
    }
    let guc = packets_of_all_sources(|number, source| {
        let place = destination_position(number, false);
        let destination = ShortPositionVector {
            address: gn_address(3, number),
            timestamp: Timestamp(1),
            latitude: place.latitude,
            longitude: place.longitude,
        };
        ExtendedHeader::GeoUnicast { sequence: 0, source, destination }
    });
    let (known, senders) = router_with_neighbours(1_000, AreaForwarding::Simple);
    let now = Time::from_secs(2);
    let mut load = BenchmarkLoad {
        router: known,
        senders,
        frames: guc,
        now,
        next: 0,
        sequence: 0,
        has_unknown_sources: true,
    };
    // Fill the location table.
    assert!((0..10 * SOURCE_COUNT).all(|_| load.pass_next_frame() == 1), "every packet is forwarded");
    group.bench_function(BenchmarkId::new("guc greedy, every source new", 1_000), |b| {
        b.iter(|| load.pass_next_frame())
    });
    let inside = packets_of_all_sources(|_, source| ExtendedHeader::GeoBroadcast {
        sequence: 0,
        source,
        area: circular_area(HOME_POSITION),
    });
    let tsb = packets_of_all_sources(|_, source| ExtendedHeader::TopologicallyScoped { sequence: 0, source });
    for (name, frames) in [("gbc simple, inside the area", inside), ("tsb", tsb)] {
        let (router, senders) = router_with_neighbours(100, AreaForwarding::Simple);
        let mut load = BenchmarkLoad {
            router,
            senders,
            frames,
            now: Time::from_secs(2),
            next: 0,
            sequence: 0,
            has_unknown_sources: false,
        };
        assert!((0..SOURCE_COUNT).all(|_| load.pass_next_frame() == 1), "every packet is forwarded");
        group.bench_function(BenchmarkId::new(name, 100), |b| b.iter(|| load.pass_next_frame()));
    }
    group.finish();
}

fn bench_reception(c: &mut Criterion) {
    let mut group = c.benchmark_group("receive");
    group.throughput(Throughput::Elements(1));
    for (name, beacon) in [("shb", false), ("beacon", true)] {
        for neighbours in [10u32, 1_000, 10_000] {
            let (mut router, macs) = router_with_neighbours(neighbours, AreaForwarding::Simple);
            let mut rng = Rng::new(7);
            // The router receives each neighbour repeatedly. A neighbour moves 3 m per beacon, up and down a
            // road of 3 km.
            let mut stations: Vec<(Vec<u8>, i32)> = (0..neighbours)
                .map(|number| {
                    let position = position_at(rng.number_below(900) as f64, rng.number_below(900) as f64);
                    let source = position_vector(gn_address(1, number), position, 2);
                    let frame = if beacon {
                        Packet::new(
                            ExtendedHeader::Beacon { source },
                            CommonNextHeader::Any,
                            Lifetime(0x1a),
                            1,
                            &[],
                        )
                        .emit()
                    } else {
                        single_hop_frame(source)
                    };
                    (frame, position.latitude)
                })
                .collect();
            let (mut next, mut round) = (0usize, 2u32);
            let mut now = Time::from_secs(2);
            group.bench_function(BenchmarkId::new(name, neighbours), |b| {
                b.iter(|| {
                    let at = next % stations.len();
                    if at == 0 {
                        round += 1;
                    }
                    next += 1;
                    now += Duration::from_micros(100);
                    let (frame, latitude) = &mut stations[at];
                    *latitude += if round % 2000 < 1000 { 270 } else { -270 };
                    frame[20..24].copy_from_slice(&round.to_be_bytes());
                    frame[24..28].copy_from_slice(&latitude.to_be_bytes());
                    let frame = ReceivedFrame { source: macs[at], destination: BROADCAST, packet: frame };
                    router.handle_frame(now, frame).expect("a good frame");
                    count_outputs(&mut router)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench_forwarding, bench_reception);
criterion_main!(benches);
