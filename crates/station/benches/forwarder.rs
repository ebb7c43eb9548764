//! Cost of the slow path per packet, without any system call. The benchmarks encapsulate and decapsulate
//! packets through the whole station. For comparison they also measure a plain copy of the same octets.
#![allow(missing_docs, reason = "criterion's macros generate undocumented functions")]

use std::hint::black_box;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_mobility::Authentication;
use carnet_mobility::home_agent::{
    AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents, StoredBinding, StoredRegistration,
};
use carnet_nemo::forwarding::forwarder::ForwardingVerdict;
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ipnet::Ipv6Net;

const HOME_AGENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const CORRESPONDENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);
const WALL_TIME: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);

fn prefix(index: u32) -> Ipv6Net {
    let address = (0x2001_0db8_u128 << 96) | (u128::from(0x1000_0000 + index) << 64);
    Ipv6Net::new(Ipv6Addr::from(address), 64).expect("a length below 129")
}

fn host_address(index: u32) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(prefix(index).network()) | 5)
}

fn care_of_address(index: u32) -> Ipv6Addr {
    Ipv6Addr::from((0x2001_0db8_00f1_u128 << 80) | u128::from(index) | 0x1_0000_0000)
}

/// Creates a home agent with `count` bindings.
fn home_agent(count: u32) -> Station {
    let home_address =
        |index: u32| Ipv6Addr::from((0x2001_0db8_0001_u128 << 80) | u128::from(index + 0x1000));
    let nodes = (0..count)
        .map(|index| AuthorizedNode {
            nat: true,
            care_of_test: false,
            home_address: home_address(index),
            prefixes: [prefix(index)].into(),
            authentication: Authentication::None,
        })
        .collect();
    let stored = (0..count)
        .map(|index| StoredBinding {
            sequence: Some(1),
            registration: Some(StoredRegistration {
                since: None,
                bid: None,
                priority: 0,
                care_of_address: care_of_address(index).into(),
                agent: None,
                mobile_router: true,
                link_local: false,
                ipv4_prefixes: Vec::new(),
                prefixes: vec![prefix(index)],
                lifetime_s: 600,
                expires: WALL_TIME + Duration::from_secs(600),
                previous: None,
                untested: false,
            }),
            ..StoredBinding::of(home_address(index))
        })
        .collect();
    let config = StationConfig {
        home_agent: Some(HomeAgentConfig {
            other_agents: OtherAgents::default(),
            address: HOME_AGENT_ADDRESS,
            home_prefix: "2001:db8:1::/64".parse().expect("a prefix"),
            home_network: None,
            home_link: None,
            ndp_proxy: None,
            nat: Default::default(),
            max_lifetime: Duration::from_secs(600),
            force_udp: false,
            ipv4_address: None,
            multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
            nodes,
        }),
        ..StationConfig::default()
    };
    let state = PersistentState { home_agent: stored, ..PersistentState::default() };
    let mut station = Station::new(config, state, Rng::new(1), Time::ZERO, WALL_TIME);
    while station.poll_output().is_some() {}
    station
}

fn packet(next_header: u8, source: Ipv6Addr, destination: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        traffic_class: 0,
        flow_label: 1,
        payload_length: u16::try_from(payload.len()).expect("fits"),
        next_header,
        hop_limit: 63,
        source,
        destination,
    };
    [&header.emit()[..], payload].concat()
}

fn bench_forwarder(criterion: &mut Criterion) {
    for bindings in [1_u32, 10_000] {
        let mut station = home_agent(bindings);
        let mut group = criterion.benchmark_group(format!("home agent, {bindings} bindings"));
        for size in [64_usize, 1250] {
            let payload = vec![0xaa; size - HEADER_LEN];
            // Use as many destinations as bindings, so that the processor's caches work as with a fleet's
            // traffic.
            let towards: Vec<Vec<u8>> = (0..bindings)
                .map(|index| {
                    packet(protocol::NO_NEXT_HEADER, CORRESPONDENT_ADDRESS, host_address(index), &payload)
                })
                .collect();
            let from: Vec<Vec<u8>> = (0..bindings)
                .map(|index| {
                    let inner = packet(
                        protocol::NO_NEXT_HEADER,
                        host_address(index),
                        CORRESPONDENT_ADDRESS,
                        &payload,
                    );
                    packet(protocol::IPV6, care_of_address(index), HOME_AGENT_ADDRESS, &inner)
                })
                .collect();
            let mut buffer = PacketBuffer::new();
            group.throughput(Throughput::Elements(1));
            let mut next = (0..towards.len()).cycle();
            group.bench_function(BenchmarkId::new("copy only", size), |b| {
                b.iter(|| buffer.copy_from(black_box(&towards[next.next().unwrap_or_default()])));
            });
            for (name, packets) in [("encapsulate", &towards), ("decapsulate", &from)] {
                group.bench_function(BenchmarkId::new(name, size), |b| {
                    b.iter(|| {
                        buffer.copy_from(black_box(&packets[next.next().unwrap_or_default()]));
                        let verdict = station.handle_packet(Time::ZERO, WALL_TIME, &mut buffer);
                        assert_eq!(verdict, ForwardingVerdict::Forward);
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, bench_forwarder);
criterion_main!(benches);
