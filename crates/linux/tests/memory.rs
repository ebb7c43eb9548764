//! Measures the memory that this process needs per binding of a home agent, by counting allocated octets.
//!
//! The allocator of this test counts the memory in use. Tables double their size when they are full. With
//! this number of bindings the tables are as full, in proportion, as with 100,000 bindings.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_linux::{DataPath, FastPathConfig, InterfaceRoles, Platform};
use carnet_mobility::home_agent::{
    AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents, StoredBinding, StoredRegistration,
};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_station::io::{Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use ipnet::Ipv6Net;

/// The system's allocator, with a count of the octets in use. The count includes the allocator's own
/// overhead.
struct CountingAllocator;

static ALLOCATED_OCTETS: AtomicUsize = AtomicUsize::new(0);

/// Returns the size that the GNU C library uses for an allocation of this size (malloc(3): eight octets more,
/// in steps of sixteen).
fn allocation_size(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

// SAFETY: all calls go to the system's allocator. The counts are separate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_OCTETS.fetch_add(allocation_size(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED_OCTETS.fetch_sub(allocation_size(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, which is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Number of bindings: 100,000 / 32.
const BINDING_COUNT: usize = 3125;

const WALL_TIME: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
/// Time after which path MTU discovery has ended on all paths, because no node answers its probes in this
/// test.
const TIME_AFTER_START: Time = Time::from_secs(600);
const BINDING_LIFETIME: Duration = Duration::from_secs(24 * 3600);

fn numbered_address(network: u128, number: usize) -> Ipv6Addr {
    // The addresses are far apart, as the addresses of different operators are, and in no order.
    let scattered = (number as u32).wrapping_mul(0x9e37_79b1);
    Ipv6Addr::from(network << 96 | u128::from(scattered) << 64 | 1)
}

fn mobile_network_prefix(number: usize) -> Ipv6Net {
    Ipv6Net::new(numbered_address(0x2001_0dba, number), 64).unwrap().trunc()
}

fn home_agent_config() -> HomeAgentConfig {
    let node = |number| AuthorizedNode {
        nat: true,
        care_of_test: false,
        home_address: numbered_address(0x2001_0db9, number),
        prefixes: [mobile_network_prefix(number)].into(),
        authentication: Authentication::SharedKey(SecurityAssociation {
            spi: 300,
            key: [7; 16].into(),
            replay: ReplayProtection::Sequence,
        }),
    };
    HomeAgentConfig {
        address: "2001:db8:1::1".parse().unwrap(),
        home_prefix: "2001:db8:1::/64".parse().unwrap(),
        home_network: None,
        home_link: None,
        ndp_proxy: None,
        nat: Default::default(),
        max_lifetime: BINDING_LIFETIME,
        ipv4_address: None,
        force_udp: false,
        multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
        others: OtherAgents::default(),
        nodes: (0..BINDING_COUNT).map(node).collect(),
    }
}

fn stored_bindings() -> Vec<StoredBinding> {
    let binding = |number| StoredBinding {
        sequence: Some(1),
        registration: Some(StoredRegistration {
            since: None,
            bid: None,
            priority: 0,
            care_of_address: numbered_address(0x2001_0dbb, number).into(),
            agent: None,
            mobile_router: true,
            link_local: false,
            ipv4_prefixes: Vec::new(),
            prefixes: vec![mobile_network_prefix(number)],
            lifetime_s: BINDING_LIFETIME.as_secs(),
            expires: WALL_TIME + BINDING_LIFETIME,
            previous: None,
            untested: false,
        }),
        ..StoredBinding::of(numbered_address(0x2001_0db9, number))
    };
    (0..BINDING_COUNT).map(binding).collect()
}

fn carry_out_outputs(station: &mut Station, platform: &mut Platform) {
    while let Some(output) = station.poll_output() {
        if let Output::Nemo(NemoOutput::Forwarding(change)) = output {
            platform.apply_change(&change).unwrap();
        }
    }
    platform.commit_to_fast_path();
}

/// Returns the octets per binding: first in total, then without the station's own data.
async fn memory_per_binding(platform: &mut Platform, path: DataPath) -> (usize, usize) {
    let ports = InterfaceRoles { home_agent: true, ..InterfaceRoles::default() };
    let fast = FastPathConfig {
        paths_by_preference: vec![path],
        flow_label_key: 1,
        binding_capacity: 2 * BINDING_COUNT,
        ports,
    };
    let obstacles = match platform.open_fast_path(&fast) {
        Some(obstacles) => obstacles,
        None => platform.fast_path_loaded().await,
    };
    assert_eq!(platform.path(), path, "{obstacles:?}");
    let before = ALLOCATED_OCTETS.load(Ordering::Relaxed);
    let state = PersistentState { home_agent: stored_bindings(), ..PersistentState::default() };
    let config = StationConfig { home_agent: Some(home_agent_config()), ..StationConfig::default() };
    let mut station = Station::new(config, state, Rng::new(1), Time::ZERO, WALL_TIME);
    carry_out_outputs(&mut station, platform);
    while let Some(due) = station.poll_timeout().filter(|due| *due < TIME_AFTER_START) {
        station.handle_input(due, WALL_TIME + due.saturating_since(Time::ZERO), Input::Timeout).unwrap();
        carry_out_outputs(&mut station, platform);
    }
    assert_eq!(station.home_agent().unwrap().bindings().iter().count(), BINDING_COUNT);
    let all = ALLOCATED_OCTETS.load(Ordering::Relaxed) - before;
    drop(station);
    let left = ALLOCATED_OCTETS.load(Ordering::Relaxed) - before;
    (all / BINDING_COUNT, left / BINDING_COUNT)
}

/// A change that needs more memory per binding must raise this limit. It must also say why its benefit is
/// worth this memory for each of 100,000 bindings.
#[test]
fn memory_for_each_binding_is_bounded() {
    for (path, most) in [(DataPath::Tun, 3700), (DataPath::Bpf, 5000)] {
        in_new_namespace(move |scratch| async move {
            let mut platform = scratch.open_platform();
            let (all, left) = memory_per_binding(&mut platform, path).await;
            println!("{}: {all} octets for a binding, {left} of them without the station", path.name());
            assert!(all <= most, "{}: {all} octets for a binding, expected no more than {most}", path.name());
        });
    }
}
