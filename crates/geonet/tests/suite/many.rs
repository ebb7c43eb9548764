//! Many stations: lines, grids, floods of an area, and the Location Service over several hops.

use std::time::Duration;

use carnet_geonet::mib::{AreaForwarding, NonAreaForwarding};
use carnet_geonet::{Mib, Transport};
use carnet_wire::geonet::HeaderType;

use crate::radio_channel::{RadioChannel, address};
use crate::simulated_stations::circular_area;

fn stations_in_line(count: usize) -> Vec<(f64, f64)> {
    (0..count).map(|node| (200.0 * node as f64, 0.0)).collect()
}

/// In a line of ten stations, 200 m apart, the Location Service finds the far end, and the packet takes nine
/// hops.
#[test]
fn packet_and_location_request_reach_end_of_a_line_of_stations() {
    let mut air = RadioChannel::new(&Mib::default(), 250.0, &stations_in_line(10), 1);
    air.advance_until_neighbours_known();
    air.send_payload(0, Transport::GeoUnicast(address(9)), 10, b"there");
    air.advance_time(Duration::from_millis(100));
    let [(9, delivery)] = &air.delivered_payloads[..] else { panic!("{:?}", air.delivered_payloads) };
    assert_eq!((&delivery.payload[..], delivery.remaining_hop_limit), (&b"there"[..], 2));
    assert_eq!(air.count_sent_frames(|kind| kind == HeaderType::GeoUnicast), 9);
    // Each station sends the request once, and the reply goes along the line.
    assert_eq!(air.count_sent_frames(|kind| kind == HeaderType::LocationServiceRequest), 9);
    assert_eq!(air.count_sent_frames(|kind| kind == HeaderType::LocationServiceReply), 9);
    // The reverse direction needs no Location Service any more.
    air.send_payload(9, Transport::GeoUnicast(address(0)), 10, b"back");
    air.advance_time(Duration::from_millis(100));
    assert!(matches!(&air.delivered_payloads[1..], [(0, delivery)] if delivery.payload == b"back"));
    assert_eq!(air.count_sent_frames(|kind| kind == HeaderType::LocationServiceRequest), 9);
}

/// A path of nine hops needs a hop limit of nine.
#[test]
fn hop_limit_counts_hops_of_a_line() {
    for (hops, arrives) in [(9, true), (8, false)] {
        let mut air = RadioChannel::new(&Mib::default(), 250.0, &stations_in_line(10), 1);
        air.advance_until_neighbours_known();
        air.send_payload(0, Transport::GeoUnicast(address(9)), hops, b"x");
        air.advance_time(Duration::from_secs(1));
        assert_eq!(!air.delivered_payloads.is_empty(), arrives, "{hops}");
    }
}

/// A station that leaves interrupts the path; link feedback finds the alternative at once.
#[test]
fn packet_takes_detour_after_link_failure() {
    // Two paths lead from 0 to 3: over 1 and over 2.
    let places = [(0.0, 0.0), (180.0, 60.0), (170.0, -80.0), (350.0, 0.0)];
    let mut air = RadioChannel::new(&Mib::default(), 250.0, &places, 1);
    air.advance_until_neighbours_known();
    air.send_payload(0, Transport::GeoUnicast(address(3)), 10, b"1");
    air.advance_time(Duration::from_millis(100));
    let now = air.now;
    air.routers[0].handle_link_failure(now, crate::radio_channel::mac_of_node(1));
    air.send_payload(0, Transport::GeoUnicast(address(3)), 10, b"2");
    air.advance_time(Duration::from_millis(100));
    let senders: Vec<_> =
        air.delivered_payloads.iter().map(|(node, delivery)| (*node, delivery.link_layer_sender)).collect();
    assert_eq!(
        senders,
        [(3, crate::radio_channel::mac_of_node(1)), (3, crate::radio_channel::mac_of_node(2))]
    );
}

fn stations_in_grid(side: usize, spacing: f64) -> Vec<(f64, f64)> {
    (0..side * side).map(|node| ((node % side) as f64 * spacing, (node / side) as f64 * spacing)).collect()
}

/// In a grid of 49 stations a packet goes from one corner into an area at the opposite corner. Every station
/// inside gets the packet once, under all algorithms.
#[test]
fn broadcast_reaches_each_station_in_area_once() {
    for area_forwarding in [AreaForwarding::Simple, AreaForwarding::ContentionBased, AreaForwarding::Advanced]
    {
        for non_area_forwarding in [NonAreaForwarding::Greedy, NonAreaForwarding::ContentionBased] {
            let mib = Mib {
                area_forwarding,
                non_area_forwarding,
                max_communication_range: 250.0,
                ..Mib::default()
            };
            let places = stations_in_grid(7, 170.0);
            let mut air = RadioChannel::new(&mib, 250.0, &places, 1);
            air.advance_until_neighbours_known();
            let area = circular_area(air.position(48), 400);
            air.send_payload(0, Transport::GeoBroadcast(area), 20, b"denm");
            air.advance_time(Duration::from_secs(2));
            let mut reached: Vec<usize> = air.delivered_payloads.iter().map(|(node, _)| *node).collect();
            reached.sort_unstable();
            let corner = places[48];
            let inside: Vec<usize> = (0..49)
                .filter(|&node| (places[node].0 - corner.0).hypot(places[node].1 - corner.1) < 400.0)
                .collect();
            assert_eq!(reached, inside, "{area_forwarding:?} {non_area_forwarding:?}");
            air.delivered_payloads.clear();
            air.send_payload(0, Transport::GeoAnycast(area), 20, b"any");
            air.advance_time(Duration::from_secs(2));
            assert!(!air.delivered_payloads.is_empty(), "{area_forwarding:?} {non_area_forwarding:?}");
        }
    }
}

/// A packet to an area with 50 stations takes at most 8 transmissions with contention, and 50 without.
#[test]
fn contention_limits_copies_in_area_of_fifty_stations() {
    // The road is 1 km long and has 50 stations, each with a range of 500 m.
    let places: Vec<(f64, f64)> = (0..50).map(|node| (20.4 * node as f64, 3.5 * (node % 4) as f64)).collect();
    for (area_forwarding, most) in
        [(AreaForwarding::Simple, 50), (AreaForwarding::ContentionBased, 8), (AreaForwarding::Advanced, 8)]
    {
        let mib = Mib { area_forwarding, max_communication_range: 500.0, ..Mib::default() };
        for source in [0, 25, 49] {
            let mut air = RadioChannel::new(&mib, 500.0, &places, 7);
            air.advance_until_neighbours_known();
            let area = circular_area(air.position(25), 700);
            air.send_payload(source, Transport::GeoBroadcast(area), 10, b"denm");
            air.advance_time(Duration::from_millis(500));
            assert_eq!(air.delivered_payloads.len(), 49, "{area_forwarding:?}");
            let cost = air.count_sent_frames(|kind| matches!(kind, HeaderType::GeoBroadcast(_)));
            assert!(cost <= most, "{area_forwarding:?} from {source}: {cost} transmissions");
            if area_forwarding == AreaForwarding::Simple {
                assert_eq!(cost, 50);
            }
        }
    }
}

/// A station carries a waiting packet: it drives towards the destination and delivers the packet there.
#[test]
fn store_carry_forward_delivers_after_meeting_next_hop() {
    use carnet_geonet::Request;
    use carnet_wire::geonet::CommonNextHeader;
    let mib = Mib { lifetime_neighbour: Duration::from_secs(4), ..Mib::default() };
    let places = [(0.0, 0.0), (-200.0, 0.0), (1500.0, 0.0)];
    let mut air = RadioChannel::new(&mib, 250.0, &places, 1);
    air.advance_until_neighbours_known();
    let area = circular_area(air.position(2), 50);
    let request = Request::new(Transport::GeoAnycast(area), CommonNextHeader::BtpB, b"carried");
    air.request(0, Request { traffic_class: crate::simulated_stations::STORE_CARRY_FORWARD, ..request })
        .expect("accepted");
    for step in 0..30 {
        air.router_positions[0].0 = 50.0 * f64::from(step);
        air.advance_time(Duration::from_secs(1));
        air.update_all_positions();
    }
    assert!(matches!(&air.delivered_payloads[..], [(2, delivery)] if delivery.payload == b"carried"));
}
