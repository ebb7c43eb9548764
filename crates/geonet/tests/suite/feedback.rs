//! Unicast frames that the link reports as not acknowledged. The standard does not use such feedback.

use std::time::Duration;

use carnet_base::Rng;
use carnet_geonet::mib::{AreaForwarding, Planarisation, VoidRecovery};
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Request, Transmission, Transport};
use carnet_wire::geonet::{CommonNextHeader, HeaderType, TrafficClass};

use crate::radio_channel::{self, RadioChannel};
use crate::simulated_stations::*;

#[test]
fn unacknowledged_packet_takes_next_best_neighbour_until_none_is_left() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let (a, b, c, d) =
        (SimulatedStation::a(), SimulatedStation::b(), SimulatedStation::c(), SimulatedStation::d());
    iut.make_neighbours(&[b, c, d]);
    let frame = c.guc_frame(&a.position_vector, b"payload");
    iut.receive_unicast(&c, &frame).expect("forwarded");
    let first = iut.take_only_transmission();
    assert_eq!(first.destination, b.mac);
    iut.report_unacknowledged(&first).expect("sent on");
    let second = iut.take_only_transmission();
    assert_eq!(second, Transmission { destination: d.mac, ..first.clone() });
    assert_eq!(second.frame, with_remaining_hops(frame, 9));
    // The packet does not go back to C, because C is not nearer to the destination. The router broadcasts the
    // packet, as it does without neighbours (E.2).
    iut.report_unacknowledged(&second).expect("sent on");
    let third = iut.take_only_transmission();
    assert_eq!(third, Transmission { destination: BROADCAST, ..first });
    assert_eq!(iut.router.location_table().neighbour_count(), 1);
    let counters = iut.router.counters();
    assert_eq!((counters.unacknowledged_frames, counters.rerouted_frames), (2, 2));
    // A station becomes a neighbour again when a packet arrives from it.
    iut.make_neighbours(&[d.with_later_timestamp(1)]);
    iut.receive_unicast(&c, &c.next().guc_frame(&a.position_vector, b"x")).expect("forwarded");
    assert_eq!(iut.take_only_transmission().destination, d.mac);
}

/// The unreachable neighbour was the destination, and the packet has SCF: the packet waits until the
/// destination is a neighbour again.
#[test]
fn unacknowledged_packet_with_store_carry_forward_waits() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    iut.make_neighbours(&[b]);
    iut.request_payload_with_scf(Transport::GeoUnicast(b.position_vector.address), b"payload")
        .expect("accepted");
    let sent = iut.take_only_transmission();
    iut.report_unacknowledged(&sent).expect("waits");
    iut.assert_nothing_sent();
    assert!(iut.router.buffered_octets().0 > 0);
    iut.make_neighbours(&[b.with_later_timestamp(100)]);
    let again = iut.take_only_transmission();
    assert_eq!((again.destination, parse(&again.frame).payload), (b.mac, &b"payload"[..]));
}

#[test]
fn unacknowledged_packet_to_area_takes_another_neighbour() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let (b, d) = (SimulatedStation::b(), SimulatedStation::d());
    iut.make_neighbours(&[b, d]);
    for transport in [Transport::GeoBroadcast(etsi_area_2()), Transport::GeoAnycast(etsi_area_2())] {
        iut.make_neighbours(&[b.with_later_timestamp(1), d.with_later_timestamp(1)]);
        iut.request_payload(transport, b"x").expect("accepted");
        let sent = iut.take_only_transmission();
        assert_eq!(sent.destination, b.mac);
        iut.report_unacknowledged(&sent).expect("sent on");
        assert_eq!(iut.take_only_transmission(), Transmission { destination: d.mac, ..sent });
        iut.router.reset_to_initial(iut.now, address(ROUTER_MAC));
        iut.advance_milliseconds(1000);
        iut.sent_transmissions.clear();
    }
}

/// F.4: inside the area the contention timer already runs, so the router does not select another next hop.
#[test]
fn advanced_forwarding_leaves_unacknowledged_packet_to_contention() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib {
        area_forwarding: AreaForwarding::Advanced,
        ..Mib::default()
    });
    let (b, c, d) = (SimulatedStation::b(), SimulatedStation::c(), SimulatedStation::d());
    iut.make_neighbours(&[b, c, d]);
    // The IUT is inside the area, and B is nearer to its centre.
    let area = circular_area(b.position(), 1000);
    iut.receive_unicast(&c, &c.gbc_frame(area, b"x")).expect("forwarded");
    let sent = iut.take_only_transmission();
    assert_eq!(sent.destination, b.mac);
    iut.report_unacknowledged(&sent).expect("nothing to do");
    iut.assert_nothing_sent();
    iut.advance_milliseconds(100);
    assert_eq!(iut.take_only_transmission().destination, BROADCAST);
}

/// A returned frame that is invalid, or was sent to a group, changes nothing: group frames have no
/// acknowledgement.
#[test]
fn invalid_link_layer_feedback_changes_nothing() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b()]);
    iut.request_payload(Transport::TopologicallyScoped, b"x").expect("accepted");
    let sent = iut.take_only_transmission();
    iut.report_unacknowledged(&sent).expect("nothing to do");
    assert_eq!(iut.router.location_table().neighbour_count(), 1);
    // The frame's destination is a station that the router does not know.
    let stranger = Transmission { destination: [2, 9, 9, 9, 9, 9], ..sent };
    iut.report_unacknowledged(&stranger).expect("nothing to do");
    let guc = SimulatedStation::c().guc_frame(&SimulatedStation::a().position_vector, b"payload");
    let mut rng = Rng::new(7);
    for _ in 0..20_000 {
        let mut frame = guc.clone();
        frame.truncate(1 + rng.number_below(guc.len() as u64) as usize);
        let at = rng.number_below(frame.len() as u64) as usize;
        frame[at] = rng.number_below(256) as u8;
        let _ = iut.report_unacknowledged(&Transmission { frame, ..stranger.clone() });
    }
    assert!(iut.dropped_packets(GeonetDrop::Malformed) > 0);
    iut.sent_transmissions.clear();
}

/// In perimeter mode, a packet that could not be delivered gets a new recovery header and goes along another
/// edge.
#[test]
fn packet_in_perimeter_mode_takes_another_edge_after_failure() {
    let recovery = VoidRecovery::Perimeter(Planarisation::Gabriel);
    let mut iut = RouterUnderTest::with_rare_beacons(Mib { recovery, ..Mib::default() });
    let (a, c) = (SimulatedStation::a(), SimulatedStation::c());
    let (left, right) = (
        SimulatedStation::station_at(1, position_at(-200.0, -50.0)),
        SimulatedStation::station_at(2, position_at(200.0, -50.0)),
    );
    iut.make_neighbours(&[left, right]);
    let frame = c.guc_frame(&a.position_vector, b"payload");
    iut.receive_unicast(&c, &frame).expect("forwarded");
    let first = iut.take_only_transmission();
    assert!(matches!(parse(&first.frame).common.next_header, CommonNextHeader::Unknown(15)));
    iut.report_unacknowledged(&first).expect("sent on");
    let second = iut.take_only_transmission();
    assert_ne!(first.destination, second.destination);
    assert!([left.mac, right.mac].contains(&second.destination));
    assert_eq!(parse(&second.frame).payload.len(), 32 + 7);
    iut.report_unacknowledged(&second).expect("sent on");
    assert_eq!(
        iut.take_only_transmission(),
        Transmission { destination: BROADCAST, frame: with_remaining_hops(frame, 9), ..first }
    );
}

/// Simulates vehicles on a motorway in both directions, with shadowing: a single beacon may make a neighbour
/// of a station that is seldom in range. Returns the delivered packets over some 1.2 km in per cent, and the
/// frames per packet.
fn simulate_motorway(feedback: bool) -> (f64, f64) {
    const VEHICLE_COUNT: usize = 60;
    const SENT_PACKETS: usize = if cfg!(debug_assertions) { 80 } else { 300 };
    let beacon = Duration::from_secs(1);
    let mib = Mib { beacon_retransmit_timer: beacon, beacon_max_jitter: beacon / 4, ..Mib::default() };
    let mut rng = Rng::new(100);
    let cars: Vec<(f64, f64, f64)> = (0..VEHICLE_COUNT)
        .map(|car| {
            let (lane, speed) = if car % 2 == 0 { (0.0, 30.0) } else { (15.0, -30.0) };
            (
                car as f64 * 66.0 + rng.number_below(30) as f64,
                lane,
                speed * (0.8 + rng.number_below(40) as f64 / 100.0),
            )
        })
        .collect();
    let places: Vec<(f64, f64)> = cars.iter().map(|car| (car.0, car.1)).collect();
    let mut air = RadioChannel::new(&mib, 500.0, &places, 3);
    (air.shadowing_deviation_db, air.reports_unacknowledged) = (3.0, feedback);
    air.advance_time(Duration::from_secs(4));
    air.transmitted_frames.clear();
    air.delivered_payloads.clear();
    for number in 0..SENT_PACKETS {
        for (place, car) in air.router_positions.iter_mut().zip(&cars) {
            place.0 += car.2 * 0.1;
        }
        air.update_all_positions();
        let from = (number * 7) % (VEHICLE_COUNT - 20);
        air.send_payload(
            from,
            Transport::GeoUnicast(radio_channel::address(from + 18)),
            10,
            &(number as u16).to_be_bytes(),
        );
        air.advance_time(Duration::from_millis(100));
    }
    air.advance_time(Duration::from_secs(2));
    let mut arrived: Vec<&[u8]> =
        air.delivered_payloads.iter().map(|(_, delivery)| &delivery.payload[..]).collect();
    let copies = arrived.len();
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), copies, "delivered twice");
    let frames = air.count_sent_frames(|kind| kind == HeaderType::GeoUnicast);
    (100.0 * arrived.len() as f64 / SENT_PACKETS as f64, frames as f64 / SENT_PACKETS as f64)
}

/// Under shadowing greedy forwarding loses packets to neighbours at the edge of the range; feedback finds
/// another next hop.
#[test]
fn feedback_brings_packets_over_a_motorway() {
    let ((without, few), (with, frames)) = (simulate_motorway(false), simulate_motorway(true));
    println!(
        "delivered without feedback {without:.1} % ({few:.1} frames each), with {with:.1} % ({frames:.1})"
    );
    assert!(without < 60.0 && with > 95.0, "without {without} %, with {with} %");
}

/// The upper layer takes back packets that wait for a station, because it knows a better path for them; an
/// extension of the standard.
#[test]
fn upper_layer_can_withdraw_packets_that_wait_for_a_station() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let (a, b) = (SimulatedStation::a(), SimulatedStation::b());
    let ipv6 = |to: SimulatedStation, payload: &'static [u8], store: bool| Request {
        traffic_class: TrafficClass { store_carry_forward: store, ..TrafficClass::default() },
        ..Request::new(Transport::GeoUnicast(to.position_vector.address), CommonNextHeader::Ipv6, payload)
    };
    // The position of A is unknown, and B has just left.
    iut.request(ipv6(a, b"to a", false)).expect("sought");
    iut.make_neighbours(&[b]);
    iut.sent_transmissions.clear();
    iut.request(ipv6(b, b"to b", true)).expect("sent");
    let sent = iut.take_only_transmission();
    iut.report_unacknowledged(&sent).expect("waits");
    assert!(iut.router.buffered_octets().0 > 0);
    assert_eq!(iut.router.remove_packets_for(b.mac), [b"to b".to_vec()]);
    assert_eq!(iut.router.remove_packets_for(b.mac), [] as [Vec<u8>; 0]);
    assert_eq!(iut.router.buffered_octets().0, 0);
    assert_eq!(iut.router.remove_packets_for(a.mac), [b"to a".to_vec()]);
    // The upper layer can also take back a frame that the link layer returns, if the closure that it passes
    // returns true for the packet.
    iut.make_neighbours(&[b.with_later_timestamp(1)]);
    let (now, frame) = (iut.now, &sent.frame);
    assert_eq!(iut.router.take_back_unacknowledged(now, b.mac, frame, |_| false), None);
    assert_eq!(iut.router.location_table().neighbour_count(), 1);
    let back = iut.router.take_back_unacknowledged(now, b.mac, frame, |payload| payload == b"to b");
    assert_eq!(back, Some(b"to b".to_vec()));
    assert_eq!(iut.router.location_table().neighbour_count(), 0);
    // The router does not take back a frame of another station.
    let foreign = a.guc_frame(&b.position_vector, b"payload");
    assert_eq!(iut.router.take_back_unacknowledged(now, b.mac, &foreign, |_| true), None);
}
