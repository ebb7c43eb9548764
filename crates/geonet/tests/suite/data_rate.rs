//! Annex B.2 with IPv6: a download leaves capacity for warnings.

use std::time::Duration;

use carnet_base::Rng;
use carnet_geonet::{Event, GeonetDrop, Mib, Request, Router, Transport};
use carnet_wire::geonet::{CommonNextHeader, GeoArea, HeaderType, Packet, Shape, TrafficClass};

use crate::air::{Air, address};
use crate::craft::{Iut, Station};

/// Returns a station, a forwarder, and a third station that only the forwarder reaches.
fn line() -> Air {
    let mut air = Air::new(&Mib::default(), 500.0, &[(0.0, 0.0), (400.0, 0.0), (800.0, 0.0)], 1);
    air.settle();
    air
}

fn denm(air: &mut Air, number: u8) {
    let there = air.position(2);
    let area = GeoArea {
        shape: Shape::Circle,
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
fn download(air: &mut Air) {
    let mut segment = [0; 1280];
    segment[6] = 6;
    let request = |payload| {
        let request = Request::new(Transport::GeoUnicast(address(2)), CommonNextHeader::Ipv6, payload);
        Request { maximum_hop_limit: Some(5), ..request }
    };
    air.request(0, request(&segment[..100])).expect("the destination is sought");
    air.run(Duration::from_millis(500));
    for number in 0..3125 {
        if number % 312 == 0 {
            air.locate_all();
            denm(air, (number / 312) as u8);
        }
        // The router may drop the packet if its buffers are full, as any link does.
        let _ = air.request(0, request(&segment));
        air.run(Duration::from_micros(3200));
    }
    air.run(Duration::from_secs(1));
}

fn warnings(air: &Air) -> usize {
    let broadcast = |header| matches!(header, HeaderType::GeoBroadcast(_));
    air.delivered.iter().filter(|(node, it)| *node == 2 && broadcast(it.header_type)).count()
}

/// Returns the octets that the forwarder has sent, in total and of IPv6.
fn forwarded(air: &Air) -> (usize, usize) {
    let mut all = (0, 0);
    for (_, node, _, frame) in &air.transmitted {
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
fn shaped_download_over_two_hops_leaves_rate_for_warnings() {
    let mut air = line();
    download(&mut air);
    assert_eq!(warnings(&air), 11);
    let (all, ipv6) = forwarded(&air);
    // IPv6 has four fifths of 100 kB/s for ten seconds, and the burst that may leave in advance.
    assert!((700_000..=880_000).contains(&ipv6) && all <= 1_050_000, "{all} {ipv6}");
    let lost = air.drops();
    assert!(lost.iter().any(|(node, reason, _)| (*node, *reason) == (0, GeonetDrop::OwnDataRate)));
    assert!(!lost.iter().any(|(_, reason, _)| *reason == GeonetDrop::PacketDataRate), "{lost:?}");
}

#[test]
fn forwarder_passes_warnings_of_unshaped_source() {
    let mut air = line();
    let unlimited = Mib { max_packet_data_rate: None, ..Mib::default() };
    air.routers[0] = Router::new(unlimited, address(0), Rng::new(9));
    air.locate_all();
    air.settle();
    download(&mut air);
    assert_eq!(warnings(&air), 11);
    let (all, ipv6) = forwarded(&air);
    assert!(ipv6 <= 950_000 && all <= 1_050_000, "{all} {ipv6}");
    assert!(air.drops().iter().any(|(node, reason, _)| (*node, *reason) == (1, GeonetDrop::PacketDataRate)));
}

#[test]
fn packets_to_a_neighbour_are_not_shaped() {
    let mut air = line();
    let mut segment = [0; 1280];
    segment[6] = 6;
    for _ in 0..3125 {
        let request = Request::new(Transport::GeoUnicast(address(1)), CommonNextHeader::Ipv6, &segment);
        air.request(0, request).expect("sent");
        air.run(Duration::from_micros(3200));
    }
    assert_eq!(air.delivered.iter().filter(|(node, _)| *node == 1).count(), 3125);
    denm(&mut air, 1);
    air.run(Duration::from_secs(1));
    assert_eq!(warnings(&air), 1);
}

#[test]
fn router_reports_rate_limited_source_once() {
    let mut iut = Iut::quiet(Mib::default());
    iut.knows(&[Station::e()]);
    let mut station = Station::b();
    for _ in 0..10_000 {
        station = station.next();
        iut.wait_ms(1);
        let _ = iut.hear(&station, &station.tsb(&[0; 1000]));
    }
    let told = Event::PacketDataRate { source: station.pv.address, limit: 100_000 };
    assert_eq!(iut.events.iter().filter(|event| **event == told).count(), 1);
    // The limit holds for packets of every class.
    assert!(iut.dropped(GeonetDrop::PacketDataRate) > 8_000);
}

/// Pings of hosts are ICMPv6 like Neighbor Discovery. After a flood of pings, other packets continue as
/// before.
#[test]
fn flood_of_icmpv6_delays_other_packets_only_briefly() {
    let mut air = line();
    let packet = |protocol| {
        let mut packet = [0; 1280];
        packet[6] = protocol;
        packet
    };
    let send = |air: &mut Air, payload: &[u8]| {
        let request = Request::new(Transport::GeoUnicast(address(2)), CommonNextHeader::Ipv6, payload);
        air.request(0, Request { maximum_hop_limit: Some(5), ..request })
    };
    send(&mut air, &packet(58)[..100]).expect("the destination is sought");
    air.run(Duration::from_millis(500));
    for number in 0..3125 {
        if number % 312 == 0 {
            air.locate_all();
        }
        let _ = send(&mut air, &packet(58));
        air.run(Duration::from_micros(3200));
    }
    air.run(Duration::from_secs(1));
    air.locate_all();
    send(&mut air, &packet(6)).expect("there is room again");
    let (before, _) = forwarded(&air);
    air.run(Duration::from_secs(1));
    assert!(forwarded(&air).0 > before, "it has been sent on");
}
