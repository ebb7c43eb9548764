//! The Location Service (10.2.4, 10.3.7) and its buffer (8.4).

use std::time::Duration;

use carnet_geonet::{BROADCAST, Event, GeonetDrop, Mib, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader, GnAddress, HeaderType};

use crate::radio_channel::{self, RadioChannel};
use crate::simulated_stations::*;

fn sought_address() -> GnAddress {
    SimulatedStation::a().position_vector.address
}

/// Returns a router that seeks A and has the neighbour B on the path to A.
fn router_seeking_station(payloads: &[&[u8]]) -> RouterUnderTest {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b()]);
    for payload in payloads {
        iut.request_payload(Transport::GeoUnicast(sought_address()), payload).expect("accepted");
    }
    iut
}

fn sent_header_types(iut: &RouterUnderTest) -> Vec<HeaderType> {
    iut.sent_transmissions.iter().map(|sent| HeaderType::from_octet(sent.frame[5])).collect()
}

/// PON_LOS_BV_01: the Location Service searches for a destination whose position is unknown.
#[test]
fn pon_los_bv_01_request() {
    let mut iut = router_seeking_station(&[b"x"]);
    let sent = iut.take_only_transmission();
    let packet = parse(&sent.frame);
    assert_eq!(sent.destination, BROADCAST);
    let ExtendedHeader::LocationServiceRequest { source, request, .. } = packet.extended else { panic!() };
    assert_eq!((source, request), (iut.position_vector(), sought_address()));
    assert_eq!((packet.basic.remaining_hop_limit, packet.common.maximum_hop_limit), (10, 10));
    assert_eq!(packet.common.next_header, CommonNextHeader::Any);
}

/// PON_LOS_BV_02: the Location Service runs only one search for a station at a time.
#[test]
fn pon_los_bv_02_one_search_per_station() {
    let iut = router_seeking_station(&[b"x", b"y", b"z"]);
    assert_eq!(sent_header_types(&iut), [HeaderType::LocationServiceRequest]);
}

/// PON_LOS_BV_03, PON_LOS_BV_04, PON_LOS_BV_13: The reply releases the waiting packets, first in first out.
/// The router reduces their lifetime by their wait and writes the destination's position.
#[test]
fn pon_los_bv_03_reply_flushes() {
    let mut iut = router_seeking_station(&[b"1", b"2"]);
    iut.advance_time(Duration::from_millis(5500));
    iut.request_payload(Transport::GeoUnicast(sought_address()), b"3").expect("accepted");
    iut.sent_transmissions.clear();
    let reply = SimulatedStation::a().ls_reply_frame(&iut.position_vector());
    iut.receive_unicast(&SimulatedStation::b(), &reply).expect("received");
    let seen: Vec<(Vec<u8>, u64)> = iut
        .sent_transmissions
        .iter()
        .map(|sent| {
            assert_eq!(sent.destination, SimulatedStation::b().mac);
            let packet = parse(&sent.frame);
            assert_eq!(
                packet.extended.destination(),
                Some(&SimulatedStation::a().position_vector.to_short())
            );
            (packet.payload.to_vec(), packet.basic.lifetime.duration().as_secs())
        })
        .collect();
    assert_eq!(seen, [(b"1".to_vec(), 54), (b"2".to_vec(), 54), (b"3".to_vec(), 60)]);
    assert!(iut.delivered_payloads.is_empty());
    // PON_LOS_BV_16: no further request leaves after the reply.
    iut.sent_transmissions.clear();
    iut.advance_time(Duration::from_secs(15));
    iut.assert_nothing_sent();
}

/// PON_LOS_BV_12, PON_LOS_BV_15, PON_LOS_BV_16, PON_LOS_BV_17: any packet of the sought station also releases
/// the waiting packets.
#[test]
fn pon_los_bv_12_any_packet_flushes() {
    let a = SimulatedStation::a();
    let me = RouterUnderTest::with_rare_beacons(Mib::default()).position_vector();
    for frame in [
        a.beacon_frame(),
        a.shb_frame(b"x"),
        a.tsb_frame(b"x"),
        a.guc_frame(&me, b"x"),
        a.guc_frame(&SimulatedStation::c().position_vector, b"x"),
        a.gbc_frame(etsi_area_2(), b"x"),
        a.gac_frame(etsi_area_1(), b"x"),
        a.ls_request_frame(SimulatedStation::c().position_vector.address),
    ] {
        let mut iut = router_seeking_station(&[b"waiting"]);
        iut.sent_transmissions.clear();
        let direct = frame[5] == 0x10 || frame[5] == 0x50;
        let sender = if direct { a } else { SimulatedStation::e() };
        iut.receive_broadcast(&sender, &frame).expect("received");
        let found = iut.sent_transmissions.iter().filter(|sent| sent.frame.ends_with(b"waiting")).count();
        assert_eq!(found, 1, "{:?}", sent_header_types(&iut));
        iut.sent_transmissions.clear();
        iut.advance_time(Duration::from_secs(15));
        iut.assert_nothing_sent();
    }
}

/// PON_LOS_TI_06, PON_LOS_BV_07, PON_LOS_BV_14: the router sends ten retransmissions a second apart, then
/// discards the packets.
#[test]
fn pon_los_ti_06_retransmission() {
    let mut iut = router_seeking_station(&[b"x", b"y"]);
    let mut sequences = Vec::new();
    for _ in 0..=10 {
        sequences.push(parse(&iut.take_only_transmission().frame).extended.sequence());
        iut.advance_milliseconds(999);
        iut.assert_nothing_sent();
        iut.advance_milliseconds(1);
    }
    iut.assert_nothing_sent();
    assert_eq!(iut.dropped_packets(GeonetDrop::LocationServiceFailed), 2);
    assert_eq!(iut.events, [Event::LocationUnknown(sought_address())]);
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "each request has its own number");
    assert_eq!(iut.router.counters().location_requests, 11);
    // After a failed search, the router may search for the station again.
    iut.request_payload(Transport::GeoUnicast(sought_address()), b"z").expect("accepted");
    iut.take_only_transmission();
}

/// PON_LOS_BV_05: the router discards waiting packets whose lifetime ends; the search continues.
#[test]
fn pon_los_bv_05_lifetime() {
    let mut iut = router_seeking_station(&[b"long"]);
    let request = Request::new(Transport::GeoUnicast(sought_address()), CommonNextHeader::BtpB, b"short");
    iut.request(Request { maximum_lifetime: Some(Duration::from_secs(2)), ..request }).expect("accepted");
    iut.advance_time(Duration::from_secs(2));
    assert_eq!(iut.dropped_packets(GeonetDrop::LifetimeExpired), 1);
    iut.sent_transmissions.clear();
    iut.receive_unicast(
        &SimulatedStation::b(),
        &SimulatedStation::a().ls_reply_frame(&iut.position_vector()),
    )
    .expect("received");
    assert!(iut.take_only_transmission().frame.ends_with(b"long"));
}

/// CAP_LOS_BV_01: itsGnLocationServicePacketBufferSize limits the buffer, which drops its oldest packets.
#[test]
fn cap_los_bv_01_overflow() {
    let payloads: Vec<[u8; 140]> = (0..10).map(|number| [number; 140]).collect();
    let slices: Vec<&[u8]> = payloads.iter().map(|payload| &payload[..]).collect();
    let mut iut = router_seeking_station(&slices);
    iut.sent_transmissions.clear();
    iut.receive_unicast(
        &SimulatedStation::b(),
        &SimulatedStation::a().ls_reply_frame(&iut.position_vector()),
    )
    .expect("received");
    // Five packets of 200 octets fit into 1024.
    let kept: Vec<u8> = iut.sent_transmissions.iter().map(|sent| sent.frame[sent.frame.len() - 1]).collect();
    assert_eq!(kept, [5, 6, 7, 8, 9]);
    assert_eq!(iut.dropped_packets(GeonetDrop::LocationServiceOverflow), 5);
}

/// A packet larger than the Location Service buffer waits if no other packet waits. With a buffer size of 0
/// no packet waits.
#[test]
fn a_packet_larger_than_the_buffer_waits_alone() {
    let large = [7; 1300];
    for (payloads, kept, lost) in [
        (vec![&large[..]], vec![7], 0),
        (vec![&b"1"[..], &large], vec![7], 1),
        (vec![&large[..], b"1", b"2"], vec![b'1', b'2'], 1),
    ] {
        let mut iut = router_seeking_station(&payloads);
        iut.sent_transmissions.clear();
        iut.receive_unicast(
            &SimulatedStation::b(),
            &SimulatedStation::a().ls_reply_frame(&iut.position_vector()),
        )
        .expect("received");
        let sent: Vec<u8> =
            iut.sent_transmissions.iter().map(|sent| sent.frame[sent.frame.len() - 1]).collect();
        assert_eq!((sent, iut.dropped_packets(GeonetDrop::LocationServiceOverflow)), (kept, lost));
    }
    let mut iut =
        RouterUnderTest::with_rare_beacons(Mib { location_service_buffer_size: 0, ..Mib::default() });
    iut.request_payload(Transport::GeoUnicast(sought_address()), b"1").expect("accepted");
    assert_eq!(iut.dropped_packets(GeonetDrop::LocationServiceOverflow), 1);
}

/// PON_LOS_BV_08: the sought station sends a reply.
#[test]
fn pon_los_bv_08_reply() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    iut.make_neighbours(&[b]);
    let request = b.with_later_timestamp(5).ls_request_frame(address(ROUTER_MAC));
    iut.receive_broadcast(&b, &request).expect("answered");
    let sent = iut.take_only_transmission();
    assert_eq!(sent.destination, b.mac);
    let packet = parse(&sent.frame);
    let ExtendedHeader::LocationServiceReply { source, destination, .. } = packet.extended else { panic!() };
    assert_eq!(
        (source, destination),
        (iut.position_vector(), b.with_later_timestamp(5).position_vector.to_short())
    );
    assert_eq!((packet.common.next_header, packet.basic.remaining_hop_limit), (CommonNextHeader::Any, 10));
    // PON_LOS_BO_09: the station does not answer a second copy of a request.
    assert_eq!(
        iut.receive_broadcast(&SimulatedStation::d(), &with_remaining_hops(request, 8)),
        Err(GeonetDrop::Duplicate)
    );
    iut.assert_nothing_sent();
    // The duplicate check uses the source and the sequence number. Other implementations by mistake use the
    // address that the request asks for.
    let e = SimulatedStation::e();
    iut.receive_broadcast(&e, &e.ls_request_frame(address(ROUTER_MAC))).expect("answered");
    iut.take_only_transmission();
}

/// PON_LOS_BV_10: the station forwards requests for other stations at once, also with SCF and without
/// neighbours.
#[test]
fn pon_los_bv_10_request_forwarded() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let frame = with_store_carry_forward(SimulatedStation::b().ls_request_frame(sought_address()));
    iut.receive_broadcast(&SimulatedStation::b(), &frame).expect("forwarded");
    let sent = iut.take_only_transmission();
    assert_eq!((sent.destination, sent.frame), (BROADCAST, with_remaining_hops(frame, 9)));
    assert_eq!(iut.router.counters().location_replies, 0);
}

/// PON_LOS_BV_11: the station forwards replies to other stations like GUC.
#[test]
fn pon_los_bv_11_reply_forwarded() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b()]);
    let frame = SimulatedStation::c().ls_reply_frame(&SimulatedStation::a().position_vector);
    iut.receive_unicast(&SimulatedStation::c(), &frame).expect("forwarded");
    let sent = iut.take_only_transmission();
    assert_eq!((sent.destination, sent.frame), (SimulatedStation::b().mac, with_remaining_hops(frame, 9)));
}

/// The number of searches is limited: a host that scans addresses cannot fill the router's memory.
#[test]
fn number_of_location_requests_is_bounded() {
    let mut iut =
        RouterUnderTest::with_rare_beacons(Mib { location_service_max_pending: 3, ..Mib::default() });
    for number in 0..3 {
        iut.request_payload(Transport::GeoUnicast(address([2, 0, 0, 0, 1, number])), b"x").expect("accepted");
    }
    let refused = iut.request_payload(Transport::GeoUnicast(address([2, 0, 0, 0, 1, 3])), b"x");
    assert_eq!(refused, Err(GeonetDrop::LocationServiceBusy));
    iut.request_payload(Transport::GeoUnicast(address([2, 0, 0, 0, 1, 1])), b"x").expect("under way already");
    assert_eq!(iut.sent_transmissions.len(), 3);
}

/// Over one to eight hops, the first packet to an unknown station arrives within two round trips. Request,
/// reply and packet each travel the path once. The other waiting packets arrive with the first one. Later
/// packets leave without a search.
#[test]
fn first_packet_to_unknown_station_arrives_within_two_round_trips() {
    for hops in 1..=8usize {
        let places: Vec<(f64, f64)> = (0..=hops).map(|node| (250.0 * node as f64, 0.0)).collect();
        // At the start the source knows its neighbours, but no station out of range.
        let mut air = RadioChannel::new(&Mib::default(), 300.0, &places, 7);
        air.advance_until_neighbours_known();
        if hops == 1 {
            air.routers[0].handle_address(radio_channel::address(0));
        }
        let arrival = |air: &mut RadioChannel, count: usize| {
            let begin = air.now;
            for _ in 0..1000 {
                air.advance_time(Duration::from_micros(100));
                if air.delivered_payloads.len() >= count {
                    assert!(air.delivered_payloads.iter().all(|(node, _)| *node == hops));
                    return air.now.saturating_since(begin);
                }
            }
            panic!("{hops} hops: {} of {count} have arrived", air.delivered_payloads.len())
        };
        let to = Transport::GeoUnicast(radio_channel::address(hops));
        air.send_payload(0, to, 10, b"first");
        air.send_payload(0, to, 10, b"right behind");
        let first = arrival(&mut air, 2);
        let requests = air.routers[0].counters().location_requests;
        air.delivered_payloads.clear();
        air.send_payload(0, to, 10, b"later");
        let one_way = arrival(&mut air, 1);
        assert_eq!((requests, air.routers[0].counters().location_requests), (1, 1), "{hops} hops");
        let round_trip = one_way * 2;
        assert!(first > round_trip && first <= round_trip * 2, "{hops} hops: {first:?}, one way {one_way:?}");
    }
}
