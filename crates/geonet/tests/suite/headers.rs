//! Header processing (10.3.3, 10.3.5), and the headers of own packets (10.3.2, 10.3.4).

use std::time::Duration;

use carnet_geonet::{GeonetDrop, Mib, Output, ReceivedFrame, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader, HeaderType, Timestamp, TrafficClass};

use crate::simulated_stations::*;

/// FDV_BAH_BV_01, FDV_COH_BV_03, FDV_SHB_BV_01, PON_SHB_BV_01: an own SHB has the default values.
#[test]
fn fdv_shb_bv_01_own_single_hop_packets() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.request_payload(Transport::SingleHop([1, 2, 3, 4]), b"cam").expect("accepted");
    let sent = iut.take_only_transmission();
    let packet = parse(&sent.frame);
    assert_eq!(sent.destination, carnet_geonet::BROADCAST);
    assert_eq!((packet.basic.version, packet.basic.remaining_hop_limit), (1, 1));
    assert_eq!(packet.basic.lifetime.duration(), Duration::from_secs(60));
    assert_eq!(packet.common.maximum_hop_limit, 1);
    assert!(packet.common.mobile);
    assert_eq!(packet.payload, b"cam");
    let ExtendedHeader::SingleHop { source, media_dependent } = packet.extended else { panic!() };
    assert_eq!((source, media_dependent), (iut.position_vector(), [1, 2, 3, 4]));
}

/// FDV_TSB_BV_01, FDV_GBC_BV_01, FDV_GAC_BV_01, PON_TSB_BV_01: an own packet has the requested hop limit,
/// lifetime and traffic class.
#[test]
fn fdv_tsb_bv_01_requested_parameters() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    for (transport, kind) in [
        (Transport::TopologicallyScoped, HeaderType::TopologicallyScoped),
        (Transport::GeoBroadcast(etsi_area_1()), HeaderType::GeoBroadcast(etsi_area_1().shape)),
        (Transport::GeoAnycast(etsi_area_1()), HeaderType::GeoAnycast(etsi_area_1().shape)),
    ] {
        let request = Request::new(transport, CommonNextHeader::BtpA, b"x");
        let traffic_class = TrafficClass { store_carry_forward: false, channel_offload: true, id: 5 };
        let request = Request {
            maximum_lifetime: Some(Duration::from_secs(7)),
            maximum_hop_limit: Some(4),
            traffic_class,
            ..request
        };
        iut.request(request).expect("accepted");
        let sent = iut.take_only_transmission();
        let packet = parse(&sent.frame);
        assert_eq!((packet.common.header_type, packet.common.next_header), (kind, CommonNextHeader::BtpA));
        assert_eq!((packet.basic.remaining_hop_limit, packet.common.maximum_hop_limit), (4, 4));
        assert_eq!(packet.basic.lifetime.duration(), Duration::from_secs(7));
        assert_eq!((packet.common.traffic_class, sent.traffic_class), (traffic_class, traffic_class));
    }
}

/// FDV_BAH_BI_02: the router discards packets of other protocol versions.
#[test]
fn fdv_bah_bi_02_other_versions() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    for version in [0u8, 2, 15] {
        let mut frame = SimulatedStation::b().shb_frame(b"x");
        frame[0] = version << 4 | 1;
        assert_eq!(iut.receive_broadcast(&SimulatedStation::b(), &frame), Err(GeonetDrop::WrongVersion));
    }
    assert!(iut.router.location_table().is_empty() && iut.delivered_payloads.is_empty());
}

/// FDV_COH_BO_04: the router discards a packet whose RHL exceeds MHL.
#[test]
fn fdv_coh_bo_04_more_hops_left_than_at_the_start() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    for frame in [
        b.tsb_frame(b"x"),
        b.gbc_frame(etsi_area_1(), b"x"),
        b.guc_frame(&iut.position_vector(), b"x"),
        b.shb_frame(b"x"),
        b.beacon_frame(),
    ] {
        let hops = frame[10] + 1;
        assert_eq!(
            iut.receive_broadcast(&b, &with_remaining_hops(frame, hops)),
            Err(GeonetDrop::HopLimitExceedsMaximum)
        );
    }
    assert!(iut.router.location_table().is_empty() && iut.delivered_payloads.is_empty());
    iut.assert_nothing_sent();
}

/// PON_SQN_BV_01, PON_SQN_BV_02: the first sequence number is 0, each packet has the next number, and the
/// numbers wrap.
#[test]
fn pon_sqn_bv_01_sequence_numbers() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    for expected in 0..=65_536u32 {
        iut.request_payload(Transport::GeoBroadcast(etsi_area_1()), b"x").expect("accepted");
        let sent = iut.take_only_transmission();
        assert_eq!(parse(&sent.frame).extended.sequence(), Some(expected as u16));
        iut.router.recycle_buffer(sent.frame);
    }
}

/// PON_LPV_BV_01: own packets carry the latest position.
#[test]
fn pon_lpv_bv_01_the_latest_position() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.set_position(position_at(10.0, 10.0), 1_000_500);
    iut.request_payload(Transport::SingleHop([0; 4]), b"x").expect("accepted");
    let source = *parse(&iut.take_only_transmission().frame).extended.source();
    assert_eq!((source.timestamp, source.address), (Timestamp(1_000_500), address(ROUTER_MAC)));
    assert_eq!(source.latitude, position_at(10.0, 10.0).latitude);
}

/// The router refuses invalid send requests and stays unchanged.
#[test]
fn router_refuses_invalid_send_requests() {
    let mut iut = RouterUnderTest::without_position(Mib::default());
    assert_eq!(iut.request_payload(Transport::SingleHop([0; 4]), b"x"), Err(GeonetDrop::NoPosition));
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let broadcast = Transport::GeoBroadcast(etsi_area_1());
    assert_eq!(iut.request_payload(broadcast, &[0; 1399]), Err(GeonetDrop::SduTooLarge));
    let request = Request::new(broadcast, CommonNextHeader::BtpB, b"x");
    for lifetime in [Duration::ZERO, Duration::from_millis(20), Duration::from_secs(601)] {
        let request = Request { maximum_lifetime: Some(lifetime), ..request };
        assert_eq!(iut.request(request), Err(GeonetDrop::BadLifetime), "{lifetime:?}");
    }
    let request = Request { maximum_hop_limit: Some(0), ..request };
    assert_eq!(iut.request(request), Err(GeonetDrop::BadHopLimit));
    // B.3: the area is too large.
    assert_eq!(
        iut.request_payload(Transport::GeoAnycast(circular_area(ROUTER_POSITION, 1785)), b"x"),
        Err(GeonetDrop::AreaTooLarge)
    );
    assert_eq!(
        iut.request_payload(Transport::GeoUnicast(address(ROUTER_MAC)), b"x"),
        Err(GeonetDrop::OwnDestination)
    );
    iut.assert_nothing_sent();
    iut.request_payload(Transport::GeoBroadcast(circular_area(ROUTER_POSITION, 1784)), b"x")
        .expect("just small enough");
    assert_eq!(parse(&iut.take_only_transmission().frame).extended.sequence(), Some(0));
}

/// The router does not forward the padding of a short link frame.
#[test]
fn padding_is_not_forwarded() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::d()]);
    let mut frame = SimulatedStation::b().tsb_frame(b"x");
    let length = frame.len();
    frame.resize(46, 0xee);
    iut.receive_broadcast(&SimulatedStation::b(), &frame).expect("forwarded");
    assert_eq!(iut.take_only_transmission().frame.len(), length);
}

/// The router recognises a secured packet and drops it with a drop reason of its own.
#[test]
fn secured_packet_goes_to_security_entity() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let mut frame = SimulatedStation::b().shb_frame(b"x");
    frame[0] = 0x12;
    assert_eq!(iut.receive_broadcast(&SimulatedStation::b(), &frame), Err(GeonetDrop::Secured));
    assert_eq!(iut.dropped_packets(GeonetDrop::Secured), 1);
}

/// The router forwards a packet with an unknown next header, but does not deliver it.
#[test]
fn unknown_payloads_are_forwarded_and_not_delivered() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let mut frame = SimulatedStation::b().tsb_frame(b"x");
    frame[4] = 0x90;
    iut.receive_broadcast(&SimulatedStation::b(), &frame).expect("forwarded");
    assert_eq!(iut.take_only_transmission().frame[4], 0x90);
    assert!(iut.delivered_payloads.is_empty());
    assert_eq!(iut.dropped_packets(GeonetDrop::UnknownNextHeader), 1);
}

/// The router reuses the memory of sent frames.
#[test]
fn forwarding_reuses_buffers() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib { max_packet_data_rate: None, ..Mib::default() });
    let mut seen = std::collections::BTreeSet::new();
    let mut station = SimulatedStation::b();
    for _ in 0..1000 {
        station = station.next();
        let frame = ReceivedFrame {
            source: station.mac,
            destination: carnet_geonet::BROADCAST,
            packet: &station.tsb_frame(b"payload"),
        };
        iut.router.handle_frame(iut.now, frame).expect("forwarded");
        while let Some(output) = iut.router.poll_output() {
            match output {
                Output::Transmit(sent) => {
                    seen.insert(sent.frame.as_ptr() as usize);
                    iut.router.recycle_buffer(sent.frame);
                }
                Output::Deliver(delivery) => iut.router.recycle_buffer(delivery.payload),
                Output::Accelerate(_) | Output::Event(_) => {}
            }
        }
    }
    assert!(seen.len() <= 4, "{} buffers", seen.len());
}

/// FDV_COH_BV_01, FDV_COH_BV_02: the field PL is the length of the payload, and 0 for a packet without
/// payload.
#[test]
fn fdv_coh_bv_01_payload_length() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    for length in [0, 1, 300, 1398] {
        for transport in [Transport::SingleHop([0; 4]), Transport::GeoBroadcast(etsi_area_1())] {
            iut.request_payload(transport, &vec![7; length]).expect("accepted");
            let sent = iut.take_only_transmission();
            assert_eq!(usize::from(parse(&sent.frame).common.payload_length), length);
        }
    }
}

/// FDV_BEA_BV_03, FDV_BEA_BV_04, PON_GNA_BV_01: a beacon has the position that the station last received, and
/// its GN address contains the link-layer address.
#[test]
fn fdv_bea_bv_03_position_vector() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let measured = carnet_wire::geonet::LongPositionVector {
        address: address([9; 6]),
        timestamp: Timestamp(0xffff_fff0),
        latitude: -338_000_001,
        longitude: -703_000_002,
        accurate: false,
        speed: -123,
        heading: 3599,
    };
    iut.router.handle_position(iut.now, measured).expect("a place on earth");
    iut.request_payload(Transport::Beacon, b"").expect("sent");
    let sent = iut.take_only_transmission();
    let source = *parse(&sent.frame).extended.source();
    assert_eq!(source, carnet_wire::geonet::LongPositionVector { address: address(ROUTER_MAC), ..measured });
    assert_eq!((source.address.mid(), source.address.is_manual()), (ROUTER_MAC, false));
}

/// The router handles the golden frames of the reference, which tshark decodes as expected.
#[test]
fn frames_equal_recorded_frames() {
    let frames = [
        ("beacon", "11001a0100100080000001009400020000000001010203041d164a00015ef3c084d20384", Ok(()), 0),
        (
            "gac",
            "11001a0a2030008000080a00123400009400020000000001010203041d164a00015ef3c084d203841d170d50015fb710\
             01f400000000000007d1000002020000",
            Ok(()),
            0,
        ),
        (
            "gbc",
            "11001a0a2041828000080a00123500009400020000000001010203041d164a00015ef3c084d203841d170d50015fb710\
             01f400c8002d000007d1000002020000",
            Ok(()),
            0,
        ),
        (
            "shb",
            "11001a0120500280000801009400020000000001010203041d164a00015ef3c084d203845a3cb80007d100000202000\
             0",
            Ok(()),
            1,
        ),
        (
            "tsb",
            "11001a031051028000080500123600009400020000000001010203041d164a00015ef3c084d2038407d109c46162636\
             4",
            Ok(()),
            1,
        ),
        (
            "ls request",
            "11001a0a0060008000000a00123700009400020000000001010203041d164a00015ef3c084d20384bc0002000000000\
             2",
            Ok(()),
            0,
        ),
        (
            "ls reply",
            "11001a0a0061008000000a0012340000bc00020000000002000000011d17d0a001607a60800000009400020000000001\
             000000021d164a00015ef3c0",
            Ok(()),
            0,
        ),
        (
            "rhl > mhl",
            "11001a0b2040008000080a00123400009400020000000001010203041d164a00015ef3c084d203841d170d50015fb710\
             01f400000000000007d1000002020000",
            Err(GeonetDrop::HopLimitExceedsMaximum),
            0,
        ),
    ];
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    // The frames contain the address of the router under test, so give the router another address.
    iut.router.handle_address(address([2, 0, 0, 0, 0, 0x42]));
    for (name, hex, result, delivered) in frames {
        let octets: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex"))
            .collect();
        iut.delivered_payloads.clear();
        let sender = SimulatedStation { mac: [2, 0, 0, 0, 0, 0x77], ..SimulatedStation::b() };
        assert_eq!(iut.receive_broadcast(&sender, &octets), result, "{name}");
        assert_eq!(iut.delivered_payloads.len(), delivered, "{name}");
    }
    assert_eq!(iut.router.location_table().len(), 2);
}
