//! Measures an engine without any system call: data messages, handshakes, forged handshakes, and the memory
//! of 10,000 sessions. Beside it, measures the library alone over as many octets.
//!
//!     cargo bench -p carnet-wireguard --bench sessions
#![allow(missing_docs, reason = "criterion's macros generate undocumented functions")]
#![allow(clippy::disallowed_methods, reason = "the benchmark reads its own memory")]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carnet_base::Time;
use carnet_wireguard::{
    Engine, Output, Path, PathNumber, Peer, PeerId, PrivateKey, PublicKey, Received, Route, Settings,
    datagram_length,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sanstun::{Interface, Received as Parsed, ReceivedMessage, TunnelConfig};
use zeroize::Zeroizing;

/// The largest inner packet on an IPv6 path of 1500 octets.
const PAYLOAD: usize = 1408;
const NOW: Time = Time::from_secs(1);
const ROUTERS: u32 = 10_000;

fn engine(seed: u32) -> Engine {
    let mut octets = [7; 32];
    octets[4..8].copy_from_slice(&seed.to_le_bytes());
    let private_key = PrivateKey::from_random(octets);
    let unix = Duration::from_secs(1_795_737_600);
    Engine::new(Settings { private_key, seed: octets, now: NOW, unix })
}

fn add(engine: &mut Engine, id: u32, public_key: PublicKey) -> Path {
    assert!(engine.set_peer(Peer { id: PeerId(id), public_key, preshared_key: None }));
    Path { peer: PeerId(id), number: PathNumber::UNNUMBERED }
}

fn route(number: u32) -> Route {
    Route { socket: 0, remote: SocketAddr::from((number.to_be_bytes(), 4191)) }
}

/// Opens the session of a router at a home agent.
fn open(now: Time, router: &mut Engine, to_home: Path, home: &mut Engine, number: u32) {
    let mut buffer = [0; 256];
    let address = route(0x0a00_0000 + number);
    router.connect(now, to_home, route(1));
    while !home.is_established(Path { peer: PeerId(number), number: PathNumber::UNNUMBERED }) {
        while let Some(output) = router.poll_output() {
            if let Output::Send { datagram, .. } = output {
                home.receive(now, address, &datagram, &mut buffer);
            }
        }
        home.handle_handshakes(now, 8);
        while let Some(output) = home.poll_output() {
            if let Output::Send { datagram, .. } = output {
                router.receive(now, route(1), &datagram, &mut buffer);
            }
        }
        router.handle_handshakes(now, 8);
    }
}

fn resident_octets() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a file");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

fn memory() {
    let mut home = engine(0);
    let mut routers: Vec<(Engine, Path)> = (1..=ROUTERS)
        .map(|number| {
            let mut router = engine(number);
            add(&mut home, number, router.public_key());
            let path = add(&mut router, 1, home.public_key());
            (router, path)
        })
        .collect();
    let before = resident_octets();
    let start = Instant::now();
    for (number, (router, path)) in (1..).zip(&mut routers) {
        // 200 handshakes a second, below the limit for cookies.
        let now = NOW + Duration::from_millis(5 * u64::from(number));
        open(now, router, *path, &mut home, number);
    }
    let spent = start.elapsed();
    // Router and home agent have one session each.
    let each = (resident_octets() - before) / (2 * ROUTERS as usize);
    println!("{ROUTERS} sessions: {each} octets each, {:?} for a handshake of both ends", spent / ROUTERS);
}

fn bench(criterion: &mut Criterion) {
    memory();
    let (mut router, mut home) = (engine(1), engine(2));
    let to_home = add(&mut router, 1, home.public_key());
    add(&mut home, 1, router.public_key());
    open(NOW, &mut router, to_home, &mut home, 1);
    let payload = [0x60; PAYLOAD];
    let mut datagram = vec![0; datagram_length(PAYLOAD)];
    let mut buffer = vec![0; datagram.len()];

    let mut group = criterion.benchmark_group("data");
    group.throughput(Throughput::Bytes(PAYLOAD as u64));
    group.bench_function("send", |bencher| {
        bencher.iter(|| black_box(router.send(NOW, to_home, &payload, &mut datagram).is_ok()));
    });
    group.bench_function("send and receive", |bencher| {
        bencher.iter(|| {
            router.send(NOW, to_home, &payload, &mut datagram).expect("a session");
            let received = home.receive(NOW, route(0x0a00_0001), &datagram, &mut buffer);
            assert!(matches!(received, Received::Payload { .. }));
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
            home.receive(NOW, route(number), &forged, &mut buffer);
            home.handle_handshakes(NOW, 1);
        });
    });
    let mut stranger = engine(3);
    let to_home = add(&mut stranger, 1, home.public_key());
    stranger.connect(NOW, to_home, route(1));
    let Some(Output::Send { datagram, .. }) = stranger.poll_output() else { panic!("no initiation") };
    let mut now = NOW;
    group.bench_function("of an unknown key, decrypted", |bencher| {
        bencher.iter(|| {
            // One in 10 ms: below the limit for cookies.
            now += Duration::from_millis(10);
            home.receive(now, route(7), &datagram, &mut buffer);
            home.handle_handshakes(now, 1);
        });
    });
    for _ in 0..1000 {
        home.receive(now, route(7), &datagram, &mut buffer);
        home.handle_handshakes(now, 1);
    }
    group.bench_function("of an unknown key, answered with a cookie", |bencher| {
        bencher.iter(|| {
            home.receive(now, route(7), &datagram, &mut buffer);
            home.handle_handshakes(now, 1);
            assert!(matches!(home.poll_output(), Some(Output::Send { .. })));
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
