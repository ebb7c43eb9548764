//! Greedy forwarding at voids, with and without perimeter recovery.

use std::time::Duration;

use carnet_base::Rng;
use carnet_geonet::mib::{Planarisation, VoidRecovery};
use carnet_geonet::{Mib, Transport};
use carnet_wire::geonet::{CommonNextHeader, HeaderType};

use crate::radio_channel::{RadioChannel, address};
use crate::simulated_stations::circular_area;

fn mib_with_recovery(recovery: VoidRecovery) -> Mib {
    let lifetime_location_entry = Duration::from_secs(60);
    Mib { recovery, lifetime_location_entry, default_hop_limit: 255, ..Mib::default() }
}

/// A U-shaped placement that is open towards the destination: the source's neighbours all lead away from the
/// destination.
///
/// ```text
///   2---3---4---5
///   |           |
///   1---0   .   8   (0 is the source, 8 the destination; nobody in between)
/// ```
fn placement_with_void() -> Vec<(f64, f64)> {
    vec![
        (0.0, 0.0),
        (-180.0, 0.0),
        (-180.0, 200.0),
        (0.0, 260.0),
        (200.0, 300.0),
        (400.0, 260.0),
        (600.0, 260.0),
        (700.0, 150.0),
        (700.0, 0.0),
    ]
}

#[test]
fn greedy_forwarding_stops_at_a_void() {
    let mut air = RadioChannel::new(&mib_with_recovery(VoidRecovery::None), 250.0, &placement_with_void(), 1);
    air.advance_until_neighbours_known();
    air.send_payload(0, Transport::GeoUnicast(address(8)), 50, b"x");
    air.advance_time(Duration::from_millis(900));
    air.send_payload(0, Transport::GeoUnicast(address(8)), 50, b"x");
    air.advance_time(Duration::from_secs(1));
    assert!(air.delivered_payloads.is_empty());
}

/// Perimeter recovery delivers a packet across a void that greedy forwarding cannot cross.
#[test]
fn perimeter_recovery_crosses_a_void() {
    for planarisation in [Planarisation::Gabriel, Planarisation::RelativeNeighbourhood] {
        let mut air = RadioChannel::new(
            &mib_with_recovery(VoidRecovery::Perimeter(planarisation)),
            250.0,
            &placement_with_void(),
            1,
        );
        air.advance_until_neighbours_known();
        air.send_payload(0, Transport::GeoUnicast(address(8)), 50, b"payload");
        // The reply of the Location Service returns around the void as well.
        air.advance_time(Duration::from_millis(500));
        let [(8, delivery)] = &air.delivered_payloads[..] else {
            panic!("{:?} {:?}", air.delivered_payloads, air.all_drop_counts())
        };
        assert_eq!((&delivery.payload[..], delivery.next_header), (&b"payload"[..], CommonNextHeader::BtpB));
        assert!(air.routers[0].counters().perimeter_recoveries > 0);
        // A packet to an area beyond the void arrives, too.
        air.delivered_payloads.clear();
        let area = circular_area(air.position(8), 50);
        air.send_payload(0, Transport::GeoAnycast(area), 50, b"area");
        air.advance_time(Duration::from_millis(100));
        assert!(matches!(&air.delivered_payloads[..], [(8, delivery)] if delivery.payload == b"area"));
    }
}

/// If no station is at the destination, the router drops the packet when its walk is back at the first edge.
#[test]
fn perimeter_mode_drops_packet_to_unreachable_place() {
    let mut places = placement_with_void();
    places.truncate(6);
    let mut air = RadioChannel::new(
        &mib_with_recovery(VoidRecovery::Perimeter(Planarisation::Gabriel)),
        250.0,
        &places,
        1,
    );
    air.advance_until_neighbours_known();
    let area = circular_area(crate::simulated_stations::position_at(3000.0, 0.0), 50);
    air.send_payload(0, Transport::GeoAnycast(area), 255, b"x");
    air.advance_time(Duration::from_secs(1));
    let sent = air.count_sent_frames(|kind| matches!(kind, HeaderType::GeoAnycast(_)));
    assert!(sent > 5 && sent < 40, "{sent} {:?} {:?}", air.all_drop_counts(), air.transmitted_frames);
    let unreachable: u64 = air
        .routers
        .iter()
        .map(|router| router.counters().dropped(carnet_geonet::GeonetDrop::Unreachable))
        .sum();
    assert_eq!(unreachable, 1);
}

/// In random connected topologies of 100 stations every packet arrives, and none goes in circles.
#[test]
fn perimeter_recovery_delivers_in_random_topologies() {
    let topologies = if cfg!(debug_assertions) { 60 } else { 1000 };
    let mut rng = Rng::new(2026);
    let mut recovered = 0;
    let mut longest = 0;
    for topology in 0..topologies {
        let planarisation = [Planarisation::Gabriel, Planarisation::RelativeNeighbourhood][topology % 2];
        let mut air = loop {
            let places: Vec<(f64, f64)> = (0..100)
                .map(|_| (rng.number_below(200_000) as f64 / 100.0, rng.number_below(200_000) as f64 / 100.0))
                .collect();
            let mib = mib_with_recovery(VoidRecovery::Perimeter(planarisation));
            // The range is just large enough to connect the nodes, so there are many voids.
            let air = RadioChannel::new(&mib, 290.0 + rng.number_below(60) as f64, &places, rng.random_u64());
            if air.is_connected() {
                break air;
            }
        };
        air.advance_until_neighbours_known();
        for _ in 0..10 {
            let (from, to) = (rng.number_below(100) as usize, rng.number_below(100) as usize);
            if from == to {
                continue;
            }
            air.transmitted_frames.clear();
            air.delivered_payloads.clear();
            air.send_payload(from, Transport::GeoUnicast(address(to)), 255, b"x");
            air.advance_time(Duration::from_millis(500));
            let reached: Vec<usize> = air.delivered_payloads.iter().map(|(node, _)| *node).collect();
            assert_eq!(reached, [to], "topology {topology}: {from} to {to} {:?}", air.all_drop_counts());
            longest = longest.max(air.count_sent_frames(|kind| kind == HeaderType::GeoUnicast));
        }
        recovered += air.routers.iter().map(|router| router.counters().perimeter_recoveries).sum::<u64>();
    }
    assert!(recovered as usize > topologies / 2, "{recovered} packets met a void");
    println!("{recovered} packets met a void, the longest way had {longest} transmissions");
}

/// A station without the extension forwards a packet in perimeter mode greedily, and changes only its hop
/// limit. As the destination, it does not deliver the payload.
#[test]
fn stations_without_perimeter_recovery_ignore_its_header() {
    use crate::simulated_stations::{RouterUnderTest, SimulatedStation, with_remaining_hops};
    use carnet_geonet::{GeonetDrop, Output, ReceivedFrame};
    let mut walking = RouterUnderTest::with_rare_beacons(mib_with_recovery(VoidRecovery::Perimeter(
        Planarisation::Gabriel,
    )));
    walking.make_neighbours(&[SimulatedStation::c()]);
    let (a, e) = (SimulatedStation::a(), SimulatedStation::e());
    walking.receive_unicast(&e, &e.guc_frame(&a.position_vector, b"payload")).expect("forwarded");
    let sent = walking.take_only_transmission();
    assert_eq!((sent.destination, sent.frame[4] >> 4), (SimulatedStation::c().mac, 15));

    let mut plain = RouterUnderTest::with_rare_beacons(Mib::default());
    plain.make_neighbours(&[SimulatedStation::b()]);
    plain.receive_unicast(&e, &sent.frame).expect("forwarded greedily");
    let onward = plain.take_only_transmission();
    assert_eq!(
        (onward.destination, &onward.frame),
        (SimulatedStation::b().mac, &with_remaining_hops(sent.frame.clone(), 8))
    );
    // The destination is a router without the extension.
    let mut there = carnet_geonet::Router::new(Mib::default(), a.position_vector.address, Rng::new(1));
    there.handle_position(plain.now, a.position_vector).expect("on earth");
    let frame = ReceivedFrame { source: e.mac, destination: a.mac, packet: &sent.frame };
    there.handle_frame(plain.now, frame).expect("received");
    assert!(!matches!(there.poll_output(), Some(Output::Deliver(_))));
    assert_eq!(there.counters().dropped(GeonetDrop::UnknownNextHeader), 1);
    // A destination with the extension restores and delivers the original packet.
    let mut there = carnet_geonet::Router::new(
        mib_with_recovery(VoidRecovery::Perimeter(Planarisation::Gabriel)),
        a.position_vector.address,
        Rng::new(1),
    );
    there.handle_position(plain.now, a.position_vector).expect("on earth");
    there.handle_frame(plain.now, frame).expect("received");
    let Some(Output::Deliver(delivery)) = there.poll_output() else { panic!() };
    assert_eq!((&delivery.payload[..], delivery.next_header), (&b"payload"[..], CommonNextHeader::BtpB));
}

/// The station at which perimeter mode ends restores the original packet to the octet.
#[test]
fn packet_is_restored_after_perimeter_mode() {
    use crate::simulated_stations::{RouterUnderTest, SimulatedStation, with_remaining_hops};
    let recovery = VoidRecovery::Perimeter(Planarisation::Gabriel);
    let (a, e) = (SimulatedStation::a(), SimulatedStation::e());
    let original = e.guc_frame(&a.position_vector, b"payload");
    let mut walking = RouterUnderTest::with_rare_beacons(mib_with_recovery(recovery));
    walking.make_neighbours(&[SimulatedStation::c()]);
    walking.receive_unicast(&e, &original).expect("forwarded");
    let walking = walking.take_only_transmission().frame;
    // This station is 50 m nearer to the destination than the point where perimeter mode began.
    let mut nearer = RouterUnderTest::with_rare_beacons(mib_with_recovery(recovery));
    nearer.set_position(crate::simulated_stations::position_at(0.0, 50.0), 1_000_001);
    nearer.make_neighbours(&[SimulatedStation::b()]);
    nearer.receive_unicast(&SimulatedStation::c(), &walking).expect("forwarded");
    let sent = nearer.take_only_transmission();
    assert_eq!((sent.destination, sent.frame), (SimulatedStation::b().mac, with_remaining_hops(original, 8)));
    // The station drops the same frame when it arrives a second time.
    assert_eq!(
        nearer.receive_unicast(&SimulatedStation::c(), &walking),
        Err(carnet_geonet::GeonetDrop::Duplicate)
    );
}

/// A packet in perimeter mode arrives in a unicast frame, and only one station continues it. In a broadcast
/// frame its copies would multiply, so the router drops it.
#[test]
fn perimeter_packet_in_broadcast_frame_is_dropped() {
    use crate::simulated_stations::{RouterUnderTest, SimulatedStation};
    use carnet_geonet::GeonetDrop;
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_recovery(VoidRecovery::Perimeter(
        Planarisation::Gabriel,
    )));
    iut.make_neighbours(&[SimulatedStation::c()]);
    let e = SimulatedStation::e();
    iut.receive_unicast(&e, &e.guc_frame(&SimulatedStation::a().position_vector, b"x")).expect("forwarded");
    let walking = iut.take_only_transmission().frame;
    let mut other = RouterUnderTest::with_rare_beacons(mib_with_recovery(VoidRecovery::Perimeter(
        Planarisation::Gabriel,
    )));
    other.make_neighbours(&[
        SimulatedStation::c(),
        SimulatedStation::station_at(5, crate::simulated_stations::position_at(-150.0, -10.0)),
    ]);
    assert_eq!(other.receive_broadcast(&e, &walking), Err(GeonetDrop::BadRecoveryHeader));
    other.assert_nothing_sent();
    other.receive_unicast(&e, &walking).expect("forwarded");
    other.take_only_transmission();
}

/// B.2: the packet data rate also limits packets in perimeter mode.
#[test]
fn perimeter_packets_count_for_data_rate() {
    use crate::simulated_stations::{RouterUnderTest, SimulatedStation};
    use carnet_geonet::GeonetDrop;
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_recovery(VoidRecovery::Perimeter(
        Planarisation::Gabriel,
    )));
    iut.make_neighbours(&[SimulatedStation::c()]);
    let e = SimulatedStation::e();
    iut.receive_unicast(&e, &e.guc_frame(&SimulatedStation::a().position_vector, &[0; 1000]))
        .expect("forwarded");
    let walking = iut.take_only_transmission().frame;
    let mut other = RouterUnderTest::with_rare_beacons(mib_with_recovery(VoidRecovery::Perimeter(
        Planarisation::Gabriel,
    )));
    other.make_neighbours(&[
        e,
        SimulatedStation::station_at(5, crate::simulated_stations::position_at(-150.0, -10.0)),
    ]);
    // Send some 200 kB/s for ten seconds; each packet is a new one.
    for sequence in 0..2000u16 {
        let mut frame = walking.clone();
        frame[12..14].copy_from_slice(&sequence.to_be_bytes());
        let _ = other.receive_unicast(&e, &frame);
        other.advance_milliseconds(5);
    }
    assert!(other.sent_transmissions.len() > 500, "{}", other.sent_transmissions.len());
    assert!(
        other.dropped_packets(GeonetDrop::PacketDataRate) > 500,
        "{}",
        other.dropped_packets(GeonetDrop::PacketDataRate)
    );
}

/// Thousands of stations that claim one position do not make recovery slow.
#[test]
fn perimeter_recovery_works_with_stations_at_one_position() {
    use crate::simulated_stations::{RouterUnderTest, SimulatedStation};
    use carnet_wire::geonet::{GnAddress, StationType};
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_recovery(VoidRecovery::Perimeter(
        Planarisation::Gabriel,
    )));
    let mut rng = Rng::new(4);
    for number in 0..5_000u16 {
        let spot = crate::simulated_stations::position_at(
            -200.0 + rng.number_below(500) as f64 / 100.0,
            rng.number_below(500) as f64 / 100.0,
        );
        let mut fake = SimulatedStation::station_at(0, spot);
        let [x, y] = number.to_be_bytes();
        fake.mac = [2, 7, 7, 7, x, y];
        fake.position_vector.address = GnAddress::new(false, StationType::PassengerCar, fake.mac);
        iut.receive_broadcast(&fake, &fake.beacon_frame()).expect("a neighbour");
    }
    let e = SimulatedStation::e();
    let start = iut.router.counters().perimeter_recoveries;
    for sequence in 0..20 {
        iut.make_neighbours(&[e
            .with_later_timestamp(u64::from(sequence))
            .moved_to(crate::simulated_stations::position_at(0.0, -100.0 - f64::from(sequence)))]);
        let frame = SimulatedStation { sequence, ..e }.guc_frame(
            &SimulatedStation::station_at(9, crate::simulated_stations::position_at(5000.0, 0.0))
                .position_vector,
            b"x",
        );
        iut.receive_unicast(&e, &frame).expect("forwarded");
    }
    assert_eq!(iut.router.counters().perimeter_recoveries - start, 20);
}
