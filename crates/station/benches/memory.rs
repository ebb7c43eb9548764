//! Memory of one binding of a home agent in the station. The benchmark subtracts the heap in use of two
//! stations. At the first, very many mobile routers have registered with authenticated Binding Updates. The
//! second knows the routers only from its config.
//!
//! The figure leaves out data that the program keeps outside the station: entries in the kernel, and each
//! record's place in the state file. It also leaves out the overhead of an allocator. `carnet-lab bench
//! --only registrations` measures the resident memory of the program itself.
//!
//! cargo bench -p carnet-station --bench memory [-- ROUTERS]

use std::alloc::System;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::mobility::{BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption};
use ipnet::Ipv6Net;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED_HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const HOME_AGENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const WALL_TIME: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);

fn home_address(index: u32) -> Ipv6Addr {
    Ipv6Addr::from((0x2001_0db8_0001_u128 << 80) | u128::from(index + 0x1000))
}

fn prefix(index: u32) -> Ipv6Net {
    let address = (0x2001_0db8_u128 << 96) | (u128::from(0x1000_0000 + index) << 64);
    Ipv6Net::new(Ipv6Addr::from(address), 64).expect("a length below 129")
}

fn care_of_address(index: u32) -> Ipv6Addr {
    Ipv6Addr::from((0x2001_0db8_00f1_u128 << 80) | (u128::from(index) << 8) | 0x1_0000_0000)
}

fn association() -> SecurityAssociation {
    SecurityAssociation { spi: 300, key: [7; 16].into(), replay: ReplayProtection::Sequence }
}

fn binding_update(index: u32, sequence: u16) -> Vec<u8> {
    let flags = BindingUpdateFlags {
        acknowledge: true,
        home_registration: true,
        mobile_router: true,
        ..BindingUpdateFlags::default()
    };
    let mut message = MobilityHeaderBuilder::binding_update(sequence, flags, 150)
        .option(&MobilityOption::AlternateCareOfAddress(care_of_address(index)))
        .option(&MobilityOption::MobileNetworkPrefix { prefix: prefix(index).network(), prefix_length: 64 })
        .option(&association().empty_authentication_option())
        .finish();
    association().sign(&mut message, care_of_address(index), home_address(index));
    ControlPacket {
        source: care_of_address(index),
        destination: HOME_AGENT_ADDRESS,
        hop_limit: 64,
        home_address: Some(home_address(index)),
        routing_home_address: None,
        mobility_header: &mut message,
    }
    .emit()
}

fn main() {
    let routers = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(100_000_u32);
    let nodes = (0..routers).map(|index| AuthorizedNode {
        nat: true,
        care_of_test: false,
        home_address: home_address(index),
        prefixes: [prefix(index)].into(),
        authentication: Authentication::SharedKey(association()),
    });
    let start = Region::new(COUNTED_HEAP);
    let live = || {
        let stats = start.change();
        (stats.bytes_allocated as f64 - stats.bytes_deallocated as f64) / f64::from(routers)
    };
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
            nodes: nodes.collect(),
        }),
        ..StationConfig::default()
    };
    let mut station = Station::new(config, PersistentState::default(), Rng::new(1), Time::ZERO, WALL_TIME);
    while station.poll_output().is_some() {}
    let known = live();
    let mut buffer = PacketBuffer::new();
    for round in 1..=2 {
        for index in 0..routers {
            let now = Time::ZERO + Duration::from_micros(u64::from(index) * 50);
            buffer.copy_from(&binding_update(index, round));
            station.handle_packet(now, WALL_TIME, &mut buffer);
            while station.poll_output().is_some() {}
        }
        let bound = station.home_agent().map_or(0, |agent| agent.bindings().iter().count());
        assert_eq!(bound, routers as usize, "all are bound");
        println!(
            "round {round}: {:.0} octets for each binding, beside {known:.0} for each known router",
            live() - known
        );
    }
}
