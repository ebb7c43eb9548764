//! Measures the memory that this process needs per binding of a home agent, by counting allocated octets.
//!
//! The allocator of this test counts the memory in use. Tables grow by doubling. With the number of bindings
//! here they are filled to the same fraction as with 100,000 bindings.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_linux::{FastPathConfig, Path, Platform, Ports};
use carnet_mobility::home_agent::{
    AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents, StoredBinding, StoredRegistration,
};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_station::io::{Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use ipnet::Ipv6Net;

/// The system's allocator, with a count of the octets in use. The count includes the allocator's own
/// overhead.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Returns the size that the GNU C library uses for an allocation of this size (malloc(3): eight octets more,
/// in steps of sixteen).
fn taken(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

// SAFETY: all calls go to the system's allocator. The counts are separate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, which is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of bindings: 100,000 / 32.
const BINDINGS: usize = 3125;

const WALL: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
/// Time after which path MTU discovery has ended on all paths, because no node answers in this test.
const SETTLED: Time = Time::from_secs(600);
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

fn address(network: u128, number: usize) -> Ipv6Addr {
    // The addresses are far apart, as the addresses of different operators are, and in no order.
    let scattered = (number as u32).wrapping_mul(0x9e37_79b1);
    Ipv6Addr::from(network << 96 | u128::from(scattered) << 64 | 1)
}

fn prefix(number: usize) -> Ipv6Net {
    Ipv6Net::new(address(0x2001_0dba, number), 64).unwrap().trunc()
}

fn home_agent() -> HomeAgentConfig {
    let node = |number| AuthorizedNode {
        nat: true,
        care_of_test: false,
        home_address: address(0x2001_0db9, number),
        prefixes: [prefix(number)].into(),
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
        max_lifetime: LIFETIME,
        ipv4_address: None,
        force_udp: false,
        multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
        others: OtherAgents::default(),
        nodes: (0..BINDINGS).map(node).collect(),
    }
}

fn bindings() -> Vec<StoredBinding> {
    let binding = |number| StoredBinding {
        sequence: Some(1),
        registration: Some(StoredRegistration {
            since: None,
            bid: None,
            priority: 0,
            care_of_address: address(0x2001_0dbb, number).into(),
            agent: None,
            mobile_router: true,
            link_local: false,
            ipv4_prefixes: Vec::new(),
            prefixes: vec![prefix(number)],
            lifetime_s: LIFETIME.as_secs(),
            expires: WALL + LIFETIME,
            previous: None,
            untested: false,
        }),
        ..StoredBinding::of(address(0x2001_0db9, number))
    };
    (0..BINDINGS).map(binding).collect()
}

fn carry_out(station: &mut Station, platform: &mut Platform) {
    while let Some(output) = station.poll_output() {
        if let Output::Nemo(NemoOutput::Forwarding(change)) = output {
            platform.apply(&change).unwrap();
        }
    }
    platform.commit();
}

/// Returns the octets per binding: first in total, then without the station's own data.
async fn per_binding(platform: &mut Platform, path: Path) -> (usize, usize) {
    let ports = Ports { home_agent: true, ..Ports::default() };
    let fast = FastPathConfig { paths: vec![path], flow_label_key: 1, bindings: 2 * BINDINGS, ports };
    let obstacles = match platform.accelerate(&fast) {
        Some(obstacles) => obstacles,
        None => platform.accelerated().await,
    };
    assert_eq!(platform.path(), path, "{obstacles:?}");
    let before = IN_USE.load(Ordering::Relaxed);
    let state = PersistentState { home_agent: bindings(), ..PersistentState::default() };
    let config = StationConfig { home_agent: Some(home_agent()), ..StationConfig::default() };
    let mut station = Station::new(config, state, Rng::new(1), Time::ZERO, WALL);
    carry_out(&mut station, platform);
    while let Some(due) = station.poll_timeout().filter(|due| *due < SETTLED) {
        station.handle_input(due, WALL + due.saturating_since(Time::ZERO), Input::Timeout).unwrap();
        carry_out(&mut station, platform);
    }
    assert_eq!(station.home_agent().unwrap().bindings().iter().count(), BINDINGS);
    let all = IN_USE.load(Ordering::Relaxed) - before;
    drop(station);
    let left = IN_USE.load(Ordering::Relaxed) - before;
    (all / BINDINGS, left / BINDINGS)
}

/// A change that needs more memory per binding must raise this limit, and say why it is worth 100,000 times
/// this memory.
#[test]
fn memory_for_each_binding_is_bounded() {
    for (path, most) in [(Path::Tun, 3700), (Path::Bpf, 5000)] {
        in_namespace(move |scratch| async move {
            let mut platform = scratch.open();
            let (all, left) = per_binding(&mut platform, path).await;
            println!("{}: {all} octets for a binding, {left} of them without the station", path.name());
            assert!(all <= most, "{}: {all} octets for a binding, expected no more than {most}", path.name());
        });
    }
}
