//! A host in one vehicle sends to a group; only the hosts in the group's area get the packet. The test uses
//! random placements.

use std::collections::BTreeSet;
use std::time::Duration;

use carnet_base::Rng;
use carnet_geonet::Mib;
use carnet_geonet::geodesy;
use carnet_geonet::ipv6_adaptation::{HostFrame, Ipv6Adaptation, Ipv6Area, Ipv6Config, LinkId, addresses};
use carnet_geonet::mib::{AreaForwarding, Planarisation, VoidRecovery};

use crate::host_and_router::{IPV6_ETHERTYPE, config, parse_address, udp_packet};
use crate::radio_channel::{RadioChannel, address, mac_of_node};
use crate::simulated_stations::{circular_area, position_at};

const GROUP_ADDRESS: &str = "ff3e:40:2001:db8:1::1";
const PLACEMENT_COUNT: u64 = 1000;
const STATION_COUNT: usize = 15;
const RADIO_RANGE: f64 = 400.0;
/// Side of the square that contains the stations, metres.
const SQUARE_SIDE: u64 = 1600;

/// Returns the stations that packets from `start` can reach if only stations of `among` forward them; `start`
/// included.
fn reachable_stations(air: &RadioChannel, start: usize, among: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut found = BTreeSet::from([start]);
    let mut waiting = vec![start];
    while let Some(node) = waiting.pop() {
        let near = |other: &usize| {
            let (a, b) = (air.router_positions[node], air.router_positions[*other]);
            (a.0 - b.0).hypot(a.1 - b.1) <= RADIO_RANGE
        };
        for other in among.iter().copied().filter(near) {
            if found.insert(other) {
                waiting.push(other);
            }
        }
    }
    found
}

/// Counts of stations over all random placements of the stations.
#[derive(Debug, Default)]
struct PlacementResults {
    /// Number of stations inside the area that have a path from the source.
    connected_inside: usize,
    /// Number of the stations of `connected_inside` that received the packet.
    receivers_inside: usize,
    /// The same two counts, only for sources inside the area and for paths over stations inside.
    flood_connected: usize,
    flood_received: usize,
    /// Number of placements in which all connected stations inside reach each other without leaving the area.
    connected_placements: usize,
    /// Number of these placements in which exactly the connected stations inside received the packet.
    exact_placements: usize,
    receivers_outside: usize,
    duplicate_deliveries: usize,
    split_placements: usize,
}

fn run_placements(area_forwarding: AreaForwarding) -> PlacementResults {
    let mut outcome = PlacementResults::default();
    // On its path to the area, a packet goes around a void in perimeter mode.
    let recovery = VoidRecovery::Perimeter(Planarisation::Gabriel);
    let mib = Mib {
        area_forwarding,
        recovery,
        max_communication_range: RADIO_RANGE,
        is_mobile: false,
        ..Mib::default()
    };
    for number in 0..PLACEMENT_COUNT {
        let mut rng = Rng::new(number);
        let mut spot = || (rng.number_below(SQUARE_SIDE) as f64, rng.number_below(SQUARE_SIDE) as f64);
        let (east, north) = spot();
        let places: Vec<(f64, f64)> = (0..STATION_COUNT).map(|_| spot()).collect();
        let area = circular_area(position_at(east, north), 500);
        let mut air = RadioChannel::new(&mib, RADIO_RANGE, &places, number);
        air.advance_until_neighbours_known();
        let group =
            Ipv6Area { area, group: Some(parse_address(GROUP_ADDRESS)), prefix: None, interface: None };
        let config = Ipv6Config { areas: vec![group], hop_limit: Some(30), ..config() };
        let mut hosts: Vec<Ipv6Adaptation> =
            (0..STATION_COUNT).map(|node| Ipv6Adaptation::new(config.clone(), address(node))).collect();

        let data =
            udp_packet(addresses::link_local_address(mac_of_node(0)), parse_address(GROUP_ADDRESS), 100);
        let to = addresses::group_mac(parse_address(GROUP_ADDRESS));
        let frame =
            HostFrame { destination: to, source: mac_of_node(0), ether_type: IPV6_ETHERTYPE, payload: &data };
        let request = hosts[0]
            .handle_host_frame(carnet_base::Time::ZERO, LinkId(0), frame)
            .expect("sent")
            .expect("a request");
        air.request(0, request).expect("accepted");
        air.advance_time(Duration::from_secs(2));

        let inside: BTreeSet<usize> =
            (0..STATION_COUNT).filter(|node| geodesy::is_inside(&area, air.position(*node))).collect();
        let mut heard = BTreeSet::new();
        let (now, delivered) = (air.now, std::mem::take(&mut air.delivered_payloads));
        for (node, delivery) in &delivered {
            let placed = hosts[*node].handle_delivery(now, delivery).expect("placed");
            assert_eq!((placed.link, placed.destination, placed.source), (LinkId(0), to, mac_of_node(0)));
            assert_eq!(delivery.payload, data);
            outcome.duplicate_deliveries += usize::from(!heard.insert(*node));
        }
        outcome.receivers_outside += heard.difference(&inside).count();
        let mut others = inside.clone();
        others.remove(&0);
        let everybody = (0..STATION_COUNT).collect();
        let connected: BTreeSet<usize> =
            reachable_stations(&air, 0, &everybody).intersection(&others).copied().collect();
        outcome.connected_inside += connected.len();
        outcome.receivers_inside += connected.intersection(&heard).count();
        assert!(heard.is_subset(&connected), "{number}: heard without a connection");
        // If the stations inside reach each other without leaving the area, exactly these stations must
        // receive the packet.
        let whole = connected
            .iter()
            .next()
            .is_none_or(|first| connected.is_subset(&reachable_stations(&air, *first, &inside)));
        outcome.connected_placements += usize::from(whole);
        outcome.exact_placements += usize::from(whole && heard == connected);
        if inside.contains(&0) {
            let mut flooded = reachable_stations(&air, 0, &inside);
            flooded.remove(&0);
            outcome.flood_connected += flooded.len();
            outcome.flood_received += flooded.intersection(&heard).count();
        }
        // If a station inside received the packet, every station that it reaches over stations inside must
        // have received it, too.
        let split = others.iter().filter(|node| !heard.contains(node));
        let split = split.filter(|node| {
            let near = reachable_stations(&air, **node, &inside);
            near.intersection(&heard).next().is_some()
        });
        outcome.split_placements += split.count();
    }
    outcome
}

/// With simple forwarding and recovery, each station inside with a path gets the packet once, and no station
/// outside delivers it. GeoBroadcast does not leave the area, so it misses stations inside whose only path
/// leads over stations outside.
#[test]
fn geobroadcast_reaches_exactly_the_connected_hosts_inside_the_area() {
    let simple = run_placements(AreaForwarding::Simple);
    println!("simple: {simple:?}");
    assert_eq!((simple.receivers_outside, simple.duplicate_deliveries, simple.split_placements), (0, 0, 0));
    assert_eq!(simple.flood_received, simple.flood_connected);
    assert_eq!(simple.exact_placements, simple.connected_placements);
    assert!(simple.connected_placements > 950 && simple.flood_connected > 400, "{simple:?}");
    assert!(simple.receivers_inside * 100 >= simple.connected_inside * 95, "{simple:?}");
}

/// Contention-based forwarding saves most of the frames. A few stations miss the packet, because every
/// station in their range relied on another station to forward it.
#[test]
fn contention_based_geobroadcast_reaches_nearly_all_stations_inside() {
    let contention = run_placements(AreaForwarding::ContentionBased);
    println!("contention: {contention:?}");
    assert_eq!((contention.receivers_outside, contention.duplicate_deliveries), (0, 0));
    assert!(contention.flood_received * 100 >= contention.flood_connected * 95, "{contention:?}");
}
