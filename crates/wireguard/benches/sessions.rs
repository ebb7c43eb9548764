//! Measures a session engine without any system call: data messages, handshakes, forged handshakes, and the
//! memory of 10,000 sessions. Also measures the work of a home agent that opens 1,000 paths. For comparison,
//! measures the library `sanstun` alone with payloads of the same length.
//!
//! cargo bench -p carnet-wireguard --bench sessions
#![allow(missing_docs, reason = "criterion's macros generate undocumented functions")]
#![allow(clippy::disallowed_methods, reason = "the benchmark reads its own memory")]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carnet_base::Time;
use carnet_wireguard::{
    DatagramRoute, EngineSettings, Output, PathNumber, PeerId, PrivateKey, PublicKey, ReceivedDatagram,
    RemotePeer, SessionEngine, SessionPath, datagram_length,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sanstun::{Interface, Received as Parsed, ReceivedMessage, TunnelConfig};
use zeroize::Zeroizing;

/// Length of the largest inner packet, if the outer packet is IPv6 and may have 1500 octets.
const PAYLOAD_LENGTH: usize = 1408;
const BENCHMARK_TIME: Time = Time::from_secs(1);
const ROUTER_COUNT: u32 = 10_000;
/// Routers to which a new leader of a fleet opens sessions.
const TAKEOVER_COUNT: u32 = 1000;

fn new_engine(seed: u32) -> SessionEngine {
    let mut octets = [7; 32];
    octets[4..8].copy_from_slice(&seed.to_le_bytes());
    let private_key = PrivateKey::from_random(octets);
    let unix = Duration::from_secs(1_795_737_600);
    SessionEngine::new(EngineSettings {
        private_key,
        random_seed: octets,
        now: BENCHMARK_TIME,
        unix_time_at_start: unix,
    })
}

fn add_router(engine: &mut SessionEngine, id: u32, public_key: PublicKey) -> SessionPath {
    assert!(engine.set_peer(
        BENCHMARK_TIME,
        RemotePeer { peer_id: PeerId(id), public_keys: vec![public_key], preshared_key: None }
    ));
    SessionPath { peer_id: PeerId(id), path_number: PathNumber::UNNUMBERED }
}

fn datagram_route(number: u32) -> DatagramRoute {
    DatagramRoute { socket: 0, remote: SocketAddr::from((number.to_be_bytes(), 4191)) }
}

/// Opens the WireGuard session of a router at a home agent.
fn open_session(
    now: Time,
    router: &mut SessionEngine,
    to_home: SessionPath,
    home: &mut SessionEngine,
    number: u32,
) {
    let mut buffer = [0; 256];
    let address = datagram_route(0x0a00_0000 + number);
    router.open_session(now, to_home, datagram_route(1));
    while !home.is_established(SessionPath { peer_id: PeerId(number), path_number: PathNumber::UNNUMBERED }) {
        while let Some(output) = router.poll_output() {
            if let Output::Send { datagram, .. } = output {
                home.receive_datagram(now, address, &datagram, &mut buffer);
            }
        }
        home.handle_waiting_handshakes(now, 8);
        while let Some(output) = home.poll_output() {
            if let Output::Send { datagram, .. } = output {
                router.receive_datagram(now, datagram_route(1), &datagram, &mut buffer);
            }
        }
        router.handle_waiting_handshakes(now, 8);
    }
}

fn resident_memory_octets() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a file");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

fn measure_memory() {
    let mut home = new_engine(0);
    let mut routers: Vec<(SessionEngine, SessionPath)> = (1..=ROUTER_COUNT)
        .map(|number| {
            let mut router = new_engine(number);
            add_router(&mut home, number, router.public_keys()[0]);
            let path = add_router(&mut router, 1, home.public_keys()[0]);
            (router, path)
        })
        .collect();
    let before = resident_memory_octets();
    let start = Instant::now();
    for (number, (router, path)) in (1..).zip(&mut routers) {
        // One handshake every 5 ms: below the rate from which the home agent demands cookies.
        let now = BENCHMARK_TIME + Duration::from_millis(5 * u64::from(number));
        open_session(now, router, *path, &mut home, number);
    }
    let spent = start.elapsed();
    // Router and home agent have one session each.
    let each = (resident_memory_octets() - before) / (2 * ROUTER_COUNT as usize);
    println!(
        "{ROUTER_COUNT} sessions: {each} octets each, {:?} for a handshake of both ends",
        spent / ROUTER_COUNT
    );
}

/// Measures the time that a home agent spends on the handshakes that it begins itself, without the routers'
/// part.
fn measure_takeover() {
    let mut home = new_engine(0);
    let mut routers: Vec<SessionEngine> = Vec::new();
    for number in 1..=TAKEOVER_COUNT {
        let mut router = new_engine(number);
        add_router(&mut home, number, router.public_keys()[0]);
        add_router(&mut router, 1, home.public_keys()[0]);
        routers.push(router);
    }
    let mut buffer = [0; 256];
    let mut spent = Duration::ZERO;
    for (number, router) in (1..).zip(&mut routers) {
        let path = SessionPath { peer_id: PeerId(number), path_number: PathNumber::UNNUMBERED };
        let address = datagram_route(0x0a00_0000 + number);
        let begin = Instant::now();
        home.open_session(BENCHMARK_TIME, path, address);
        let initiation = home.poll_output();
        spent += begin.elapsed();
        let Some(Output::Send { datagram, .. }) = initiation else { panic!("no initiation") };
        router.receive_datagram(BENCHMARK_TIME, datagram_route(1), &datagram, &mut buffer);
        router.handle_waiting_handshakes(BENCHMARK_TIME, 8);
        let mut sent = Vec::new();
        while let Some(output) = router.poll_output() {
            if let Output::Send { datagram, .. } = output {
                sent.push(datagram);
            }
        }
        let begin = Instant::now();
        for datagram in sent {
            home.receive_datagram(BENCHMARK_TIME, address, &datagram, &mut buffer);
        }
        home.handle_waiting_handshakes(BENCHMARK_TIME, 8);
        while home.poll_output().is_some() {}
        spent += begin.elapsed();
        assert!(home.is_established(path));
    }
    println!(
        "{TAKEOVER_COUNT} paths opened by the home agent: {spent:?} of one core, {:?} each",
        spent / TAKEOVER_COUNT
    );
}

fn benchmark_sessions(criterion: &mut Criterion) {
    measure_takeover();
    measure_memory();
    let (mut router, mut home) = (new_engine(1), new_engine(2));
    let to_home = add_router(&mut router, 1, home.public_keys()[0]);
    add_router(&mut home, 1, router.public_keys()[0]);
    open_session(BENCHMARK_TIME, &mut router, to_home, &mut home, 1);
    let payload = [0x60; PAYLOAD_LENGTH];
    let mut datagram = vec![0; datagram_length(PAYLOAD_LENGTH)];
    let mut buffer = vec![0; datagram.len()];

    let mut group = criterion.benchmark_group("data");
    group.throughput(Throughput::Bytes(PAYLOAD_LENGTH as u64));
    group.bench_function("send", |bencher| {
        bencher.iter(|| {
            black_box(router.send_payload(BENCHMARK_TIME, to_home, &payload, &mut datagram).is_ok())
        });
    });
    group.bench_function("send and receive", |bencher| {
        bencher.iter(|| {
            router.send_payload(BENCHMARK_TIME, to_home, &payload, &mut datagram).expect("a session");
            let received =
                home.receive_datagram(BENCHMARK_TIME, datagram_route(0x0a00_0001), &datagram, &mut buffer);
            assert!(matches!(received, ReceivedDatagram::Payload { .. }));
        });
    });
    let now = Instant::now();
    let interface =
        |seed: u8| Interface::new(Zeroizing::new([seed; 32]), now, Duration::from_secs(1_795_737_600));
    let (mut a, mut b) = (interface(1), interface(2));
    let mut to_b = a.new_tunnel(b.static_public(), TunnelConfig::default(), now).expect("a tunnel");
    let mut to_a = b.new_tunnel(a.static_public(), TunnelConfig::default(), now).expect("a tunnel");
    let from: SocketAddr = ([10, 0, 0, 1], 1).into();
    let initiation = to_b.initiate_handshake(now).expect("an initiation");
    let Ok(Parsed::Message(ReceivedMessage::HandshakeInitiation(message))) =
        b.receive(from, &initiation, now)
    else {
        panic!("no initiation")
    };
    let response = to_a.handle_handshake_initiation(message, now).expect("a response");
    let Ok(Parsed::Message(ReceivedMessage::HandshakeResponse(message))) = a.receive(from, &response, now)
    else {
        panic!("no response")
    };
    to_b.handle_handshake_response(message, now).expect("a keepalive");
    group.bench_function("send and receive, library alone", |bencher| {
        bencher.iter(|| {
            to_b.begin_encapsulate(now).expect("a session").encrypt(&payload, &mut datagram).expect("room");
            let Ok(Parsed::Message(ReceivedMessage::TransportData(message))) =
                b.receive(from, &datagram, now)
            else {
                panic!("no data")
            };
            let pending = to_a.begin_decapsulate(message, now).expect("a session");
            let decrypted = pending.decrypt(&datagram, &mut buffer[..]);
            assert!(to_a.commit_decapsulate(decrypted, now).is_ok());
        });
    });
    group.finish();

    let mut group = criterion.benchmark_group("handshake");
    let mut forged = [0; 148];
    forged[0] = 1;
    let mut number = 0;
    group.bench_function("forged without the public key", |bencher| {
        bencher.iter(|| {
            number += 1;
            home.receive_datagram(BENCHMARK_TIME, datagram_route(number), &forged, &mut buffer);
            home.handle_waiting_handshakes(BENCHMARK_TIME, 1);
        });
    });
    let mut stranger = new_engine(3);
    let to_home = add_router(&mut stranger, 1, home.public_keys()[0]);
    stranger.open_session(BENCHMARK_TIME, to_home, datagram_route(1));
    let Some(Output::Send { datagram, .. }) = stranger.poll_output() else { panic!("no initiation") };
    let mut now = BENCHMARK_TIME;
    group.bench_function("of an unknown key, decrypted", |bencher| {
        bencher.iter(|| {
            // One handshake every 10 ms: below the rate from which the home agent demands cookies.
            now += Duration::from_millis(10);
            home.receive_datagram(now, datagram_route(7), &datagram, &mut buffer);
            home.handle_waiting_handshakes(now, 1);
        });
    });
    for _ in 0..1000 {
        home.receive_datagram(now, datagram_route(7), &datagram, &mut buffer);
        home.handle_waiting_handshakes(now, 1);
    }
    group.bench_function("of an unknown key, answered with a cookie", |bencher| {
        bencher.iter(|| {
            home.receive_datagram(now, datagram_route(7), &datagram, &mut buffer);
            home.handle_waiting_handshakes(now, 1);
            assert!(matches!(home.poll_output(), Some(Output::Send { .. })));
        });
    });
    group.finish();
}

criterion_group!(benches, benchmark_sessions);
criterion_main!(benches);
