//! Annex B.2 with IPv6: a download leaves capacity for warnings.

use std::time::Duration;

use carnet_base::Rng;
use carnet_geonet::{Event, GeonetDrop, Mib, Request, Router, Transport};
use carnet_wire::geonet::{CommonNextHeader, GeoArea, GeoAreaShape, HeaderType, Packet, TrafficClass};

use crate::radio_channel::{RadioChannel, address};
use crate::simulated_stations::{RouterUnderTest, SimulatedStation};

/// Returns a station, a forwarder, and a third station that only the forwarder reaches.
fn three_stations_in_line() -> RadioChannel {
    let mut air = RadioChannel::new(&Mib::default(), 500.0, &[(0.0, 0.0), (400.0, 0.0), (800.0, 0.0)], 1);
    air.advance_until_neighbours_known();
    air
}

fn send_denm(air: &mut RadioChannel, number: u8) {
    let there = air.position(2);
    let area = GeoArea {
        shape: GeoAreaShape::Circle,
        latitude: there.latitude,
        longitude: there.longitude,
        distance_a: 100,
        distance_b: 0,
        angle: 0,
    };
    let payload = [7, 0xd2, 0, 0, number];
    let request = Request::new(Transport::GeoBroadcast(area), CommonNextHeader::BtpB, &payload);
    let traffic_class = TrafficClass { id: 1, ..TrafficClass::default() };
    air.request(0, Request { traffic_class, ..request }).expect("accepted");
}

/// Sends 4 MB of TCP segments to the third station within ten seconds, and a DENM each second.
fn send_download(air: &mut RadioChannel) {
    let mut segment = [0; 1280];
    segment[6] = 6;
    let request = |payload| {
        let request = Request::new(Transport::GeoUnicast(address(2)), CommonNextHeader::Ipv6, payload);
        Request { maximum_hop_limit: Some(5), ..request }
    };
    air.request(0, request(&segment[..100])).expect("the destination is sought");
    air.advance_time(Duration::from_millis(500));
    for number in 0..3125 {
        if number % 312 == 0 {
            air.update_all_positions();
            send_denm(air, (number / 312) as u8);
        }
        // The router may drop the packet if its buffers are full, as any link does.
        let _ = air.request(0, request(&segment));
        air.advance_time(Duration::from_micros(3200));
    }
    air.advance_time(Duration::from_secs(1));
}

fn count_delivered_denms(air: &RadioChannel) -> usize {
    let broadcast = |header| matches!(header, HeaderType::GeoBroadcast(_));
    air.delivered_payloads.iter().filter(|(node, it)| *node == 2 && broadcast(it.header_type)).count()
}

/// Returns the octets that the forwarder has sent, in total and of IPv6.
fn forwarded_octets(air: &RadioChannel) -> (usize, usize) {
    let mut all = (0, 0);
    for (_, node, _, frame) in &air.transmitted_frames {
        let packet = Packet::parse(frame).expect("a packet");
        let of_the_source = packet.extended.source().address.mid() == address(0).mid();
        if *node == 1 && of_the_source {
            all.0 += frame.len();
            all.1 += if packet.common.next_header == CommonNextHeader::Ipv6 { frame.len() } else { 0 };
        }
    }
    all
}

#[test]
fn source_shapes_its_ipv6_download_to_leave_data_rate_for_warnings() {
    let mut air = three_stations_in_line();
    send_download(&mut air);
    assert_eq!(count_delivered_denms(&air), 11);
    let (all, ipv6) = forwarded_octets(&air);
    // IPv6 may use four fifths of 100 kB/s for ten seconds, plus the burst that may leave in advance.
    assert!((700_000..=880_000).contains(&ipv6) && all <= 1_050_000, "{all} {ipv6}");
    let lost = air.all_drop_counts();
    assert!(lost.iter().any(|(node, reason, _)| (*node, *reason) == (0, GeonetDrop::OwnDataRate)));
    assert!(!lost.iter().any(|(_, reason, _)| *reason == GeonetDrop::PacketDataRate), "{lost:?}");
}

#[test]
fn forwarder_passes_warnings_of_unshaped_source() {
    let mut air = three_stations_in_line();
    let unlimited = Mib { max_packet_data_rate: None, ..Mib::default() };
    air.routers[0] = Router::new(unlimited, address(0), Rng::new(9));
    air.update_all_positions();
    air.advance_until_neighbours_known();
    send_download(&mut air);
    assert_eq!(count_delivered_denms(&air), 11);
    let (all, ipv6) = forwarded_octets(&air);
    assert!(ipv6 <= 950_000 && all <= 1_050_000, "{all} {ipv6}");
    assert!(
        air.all_drop_counts()
            .iter()
            .any(|(node, reason, _)| (*node, *reason) == (1, GeonetDrop::PacketDataRate))
    );
}

#[test]
fn packets_to_a_neighbour_are_not_shaped() {
    let mut air = three_stations_in_line();
    let mut segment = [0; 1280];
    segment[6] = 6;
    for _ in 0..3125 {
        let request = Request::new(Transport::GeoUnicast(address(1)), CommonNextHeader::Ipv6, &segment);
        air.request(0, request).expect("sent");
        air.advance_time(Duration::from_micros(3200));
    }
    assert_eq!(air.delivered_payloads.iter().filter(|(node, _)| *node == 1).count(), 3125);
    send_denm(&mut air, 1);
    air.advance_time(Duration::from_secs(1));
    assert_eq!(count_delivered_denms(&air), 1);
}

#[test]
fn router_reports_rate_limited_source_once() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::e()]);
    let mut station = SimulatedStation::b();
    for _ in 0..10_000 {
        station = station.next();
        iut.advance_milliseconds(1);
        let _ = iut.receive_broadcast(&station, &station.tsb_frame(&[0; 1000]));
    }
    let told = Event::PacketDataRate { source: station.position_vector.address, limit: 100_000 };
    assert_eq!(iut.events.iter().filter(|event| **event == told).count(), 1);
    // The limit holds for packets of every class.
    assert!(iut.dropped_packets(GeonetDrop::PacketDataRate) > 8_000);
}

/// Pings of hosts are ICMPv6 like Neighbor Discovery. After a flood of pings, other packets continue as
/// before.
#[test]
fn flood_of_icmpv6_delays_other_packets_only_briefly() {
    let mut air = three_stations_in_line();
    let packet = |protocol| {
        let mut packet = [0; 1280];
        packet[6] = protocol;
        packet
    };
    let send = |air: &mut RadioChannel, payload: &[u8]| {
        let request = Request::new(Transport::GeoUnicast(address(2)), CommonNextHeader::Ipv6, payload);
        air.request(0, Request { maximum_hop_limit: Some(5), ..request })
    };
    send(&mut air, &packet(58)[..100]).expect("the destination is sought");
    air.advance_time(Duration::from_millis(500));
    for number in 0..3125 {
        if number % 312 == 0 {
            air.update_all_positions();
        }
        let _ = send(&mut air, &packet(58));
        air.advance_time(Duration::from_micros(3200));
    }
    air.advance_time(Duration::from_secs(1));
    air.update_all_positions();
    send(&mut air, &packet(6)).expect("there is room again");
    let (before, _) = forwarded_octets(&air);
    air.advance_time(Duration::from_secs(1));
    assert!(forwarded_octets(&air).0 > before, "it has been sent on");
}
