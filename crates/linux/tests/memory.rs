//! Measures the memory that this process needs per binding of a home agent, by counting allocated octets.
//!
//! The allocator of this test counts the memory in use. Tables double their size when they are full. With
//! this number of bindings the tables are as full, in proportion, as with 100,000 bindings.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime, mapped};
use carnet_linux::{DataPath, FastPathConfig, InterfaceRoles, Platform};
use carnet_mobility::home_agent::{
    AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents, StoredBinding, StoredRegistration,
};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_station::io::{Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use ipnet::{Ipv4Net, Ipv6Net};

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

/// Limit for the memory of a binding with an IPv4 and an IPv6 prefix. The unit is the memory of a binding
/// with an IPv6 prefix only. The memory of the whole process includes the config.
const MAX_RATIO_OF_IPV4: f64 = 1.22;

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

/// Returns the IPv4 prefix of a mobile network: a /26 of 10.0.0.0/8.
fn ipv4_prefix(number: usize) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::from(10 << 24 | (number as u32) << 6), 26).unwrap()
}

fn home_agent_config(has_ipv4: bool) -> HomeAgentConfig {
    let node = |number| AuthorizedNode {
        nat: true,
        care_of_test: false,
        home_address: numbered_address(0x2001_0db9, number),
        prefixes: has_ipv4
            .then(|| mapped::from_ipv4(ipv4_prefix(number)))
            .into_iter()
            .chain([mobile_network_prefix(number)])
            .collect(),
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
        other_agents: OtherAgents::default(),
        nodes: (0..BINDING_COUNT).map(node).collect(),
    }
}

fn stored_bindings(has_ipv4: bool) -> Vec<StoredBinding> {
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
            ipv4_prefixes: has_ipv4.then(|| ipv4_prefix(number)).into_iter().collect(),
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

fn perform_outputs(station: &mut Station, platform: &mut Platform) {
    while let Some(output) = station.poll_output() {
        if let Output::Nemo(NemoOutput::Forwarding(change)) = output {
            platform.apply_change(&change).unwrap();
        }
    }
    platform.commit_to_fast_path();
}

/// Returns the octets per binding: first in total, then without the station's own data.
async fn memory_per_binding(platform: &mut Platform, path: DataPath, has_ipv4: bool) -> (usize, usize) {
    let ports = InterfaceRoles { is_home_agent: true, ..InterfaceRoles::default() };
    let fast = FastPathConfig {
        paths_by_preference: vec![path],
        flow_label_key: 1,
        binding_capacity: 2 * BINDING_COUNT,
        interface_roles: ports,
    };
    let obstacles = match platform.open_fast_path(&fast) {
        Some(obstacles) => obstacles,
        None => platform.wait_for_fast_path().await,
    };
    assert_eq!(platform.data_path(), path, "{obstacles:?}");
    let before = ALLOCATED_OCTETS.load(Ordering::Relaxed);
    let state = PersistentState { home_agent: stored_bindings(has_ipv4), ..PersistentState::default() };
    let config = StationConfig { home_agent: Some(home_agent_config(has_ipv4)), ..StationConfig::default() };
    let mut station = Station::new(config, state, Rng::new(1), Time::ZERO, WALL_TIME);
    perform_outputs(&mut station, platform);
    while let Some(due) = station.poll_timeout().filter(|due| *due < TIME_AFTER_START) {
        station.handle_input(due, WALL_TIME + due.saturating_since(Time::ZERO), Input::Timeout).unwrap();
        perform_outputs(&mut station, platform);
    }
    assert_eq!(station.home_agent().unwrap().bindings().iter().count(), BINDING_COUNT);
    let all = ALLOCATED_OCTETS.load(Ordering::Relaxed) - before;
    drop(station);
    let left = ALLOCATED_OCTETS.load(Ordering::Relaxed) - before;
    (all / BINDING_COUNT, left / BINDING_COUNT)
}

/// Returns the octets per binding, see [`memory_per_binding`].
fn measure_memory(path: DataPath, has_ipv4: bool) -> usize {
    let (sender, receiver) = mpsc::channel();
    in_new_namespace(move |scratch| async move {
        let mut platform = scratch.open_platform();
        sender.send(memory_per_binding(&mut platform, path, has_ipv4).await).unwrap();
    });
    let (all, left) = receiver.recv().unwrap();
    let networks = if has_ipv4 { "with" } else { "without" };
    println!(
        "{}, {networks} an IPv4 prefix: {all} octets for a binding, {left} of them without the station",
        path.name()
    );
    all
}

/// A change that needs more memory per binding must raise these limits, and say why it is worth 100,000 times
/// this memory.
#[test]
fn memory_for_each_binding_is_bounded() {
    for (path, most) in [(DataPath::Tun, 1750), (DataPath::Bpf, 2500)] {
        let [without_ipv4, with_ipv4] = [false, true].map(|has_ipv4| measure_memory(path, has_ipv4));
        assert!(
            without_ipv4 <= most,
            "{}: {without_ipv4} octets for a binding, expected no more than {most}",
            path.name()
        );
        assert!(
            with_ipv4 as f64 <= MAX_RATIO_OF_IPV4 * without_ipv4 as f64,
            "{}: {with_ipv4} octets for a binding with an IPv4 prefix, and {without_ipv4} without",
            path.name()
        );
    }
}
