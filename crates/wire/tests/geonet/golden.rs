//! The golden packets are parsed and emitted bit for bit, and the parser rejects invalid variants.

use crate::common::{parse_hex, to_hex};
use crate::fixtures;
use carnet_wire::btp::BtpA;
use carnet_wire::geonet::{
    BasicHeader, BasicNextHeader, CommonHeader, CommonNextHeader, Error, ExtendedHeader, GeoArea,
    GeoAreaShape, GnAddress, HeaderType, Lifetime, LongPositionVector, Packet, ShortPositionVector,
    StationType, Timestamp, TrafficClass, set_destination, set_lifetime, set_remaining_hop_limit,
};
use std::time::Duration;

/// An IPv6 packet: an ICMPv6 message of eight octets from one link-local address to another.
pub const IPV6_PACKET: &str = "
    6000000000083a40fe80000000000000000000fffe000001fe80000000000000000000fffe0000028000000000010001";
/// BTP-B header to port 2001, and four octets of payload.
const BTP_B_PACKET: &str = "07d1000002020000";

fn car_position() -> LongPositionVector {
    LongPositionVector {
        address: GnAddress::new(true, StationType::PassengerCar, [2, 0, 0, 0, 0, 1]),
        timestamp: Timestamp(0x0102_0304),
        latitude: 488_000_000,
        longitude: 23_000_000,
        accurate: true,
        speed: 1234,
        heading: 900,
    }
}

fn road_side_position() -> ShortPositionVector {
    ShortPositionVector {
        address: GnAddress::new(true, StationType::RoadSideUnit, [2, 0, 0, 0, 0, 2]),
        timestamp: Timestamp(0x0102_0300),
        latitude: 488_100_000,
        longitude: 23_100_000,
    }
}

fn example_area(shape: GeoAreaShape, distance_b: u16, angle: u16) -> GeoArea {
    GeoArea { shape, latitude: 488_050_000, longitude: 23_050_000, distance_a: 500, distance_b, angle }
}

/// Returns a packet of a mobile station with hop limit 10 and lifetime 60 s.
fn example_packet<'a>(
    extended: ExtendedHeader,
    next_header: CommonNextHeader,
    payload: &'a [u8],
) -> Packet<'a> {
    let mut packet = Packet::new(extended, next_header, Lifetime(0x1a), 10, payload);
    packet.common.mobile = true;
    packet
}

/// Checks both directions: the emitter makes these octets from the values, and the parser makes these values
/// from the octets.
fn check_both_directions(packet: Packet<'_>, golden: &str) {
    let octets = parse_hex(golden);
    assert_eq!(to_hex(&packet.emit()), to_hex(&octets));
    assert_eq!(Packet::parse(&octets), Ok(packet));
    assert_eq!(packet.len(), octets.len());
    let mut buffer = vec![0xee; octets.len() + 3];
    assert_eq!(packet.emit_into(&mut buffer), Ok(octets.len()));
    assert_eq!(to_hex(&buffer), to_hex(&octets) + "eeeeee");
}

#[test]
fn beacon_equals_recorded_packet() {
    let mut beacon =
        example_packet(ExtendedHeader::Beacon { source: car_position() }, CommonNextHeader::Any, &[]);
    beacon.basic.remaining_hop_limit = 1;
    beacon.common.maximum_hop_limit = 1;
    check_both_directions(beacon, fixtures::BEACON_PACKET);
}

#[test]
fn geo_unicast_equals_recorded_packet() {
    let extended = ExtendedHeader::GeoUnicast {
        sequence: 0x1234,
        source: car_position(),
        destination: road_side_position(),
    };
    check_both_directions(
        example_packet(extended, CommonNextHeader::Ipv6, &parse_hex(IPV6_PACKET)),
        fixtures::UNICAST_IPV6_PACKET,
    );
}

#[test]
fn geo_anycast_to_circle_equals_recorded_packet() {
    let extended = ExtendedHeader::GeoAnycast {
        sequence: 0x1234,
        source: car_position(),
        area: example_area(GeoAreaShape::Circle, 0, 0),
    };
    check_both_directions(
        example_packet(extended, CommonNextHeader::BtpB, &parse_hex(BTP_B_PACKET)),
        fixtures::ANYCAST_CIRCLE_PACKET,
    );
}

#[test]
fn geo_broadcast_to_rectangle_equals_recorded_packet() {
    let area = example_area(GeoAreaShape::Rectangle, 200, 45);
    let extended = ExtendedHeader::GeoBroadcast { sequence: 0x1234, source: car_position(), area };
    let payload = parse_hex(BTP_B_PACKET);
    let mut packet = example_packet(extended, CommonNextHeader::BtpB, &payload);
    packet.common.traffic_class = TrafficClass { store_carry_forward: true, channel_offload: false, id: 2 };
    check_both_directions(packet, fixtures::BROADCAST_RECTANGLE_PACKET);
}

#[test]
fn geo_broadcast_to_ellipse_equals_recorded_packet() {
    let area = example_area(GeoAreaShape::Ellipse, 200, 45);
    let extended = ExtendedHeader::GeoBroadcast { sequence: 0x1234, source: car_position(), area };
    check_both_directions(
        example_packet(extended, CommonNextHeader::Ipv6, &parse_hex(IPV6_PACKET)),
        fixtures::BROADCAST_ELLIPSE_IPV6_PACKET,
    );
}

#[test]
fn single_hop_broadcast_equals_recorded_packet() {
    let extended =
        ExtendedHeader::SingleHop { source: car_position(), media_dependent: [0x5a, 0x3c, 0xb8, 0x00] };
    let payload = parse_hex(BTP_B_PACKET);
    let mut packet = example_packet(extended, CommonNextHeader::BtpB, &payload);
    packet.basic.remaining_hop_limit = 1;
    packet.common.maximum_hop_limit = 1;
    packet.common.traffic_class.id = 2;
    check_both_directions(packet, fixtures::SINGLE_HOP_BROADCAST_PACKET);
}

#[test]
fn topologically_scoped_broadcast_equals_recorded_packet() {
    let mut payload = BtpA { destination_port: 2001, source_port: 2500 }.to_octets().to_vec();
    payload.extend(b"abcd");
    let extended = ExtendedHeader::TopologicallyScoped { sequence: 0x1234, source: car_position() };
    let mut packet = example_packet(extended, CommonNextHeader::BtpA, &payload);
    packet.basic.remaining_hop_limit = 3;
    packet.common.maximum_hop_limit = 5;
    packet.common.traffic_class.id = 2;
    check_both_directions(packet, fixtures::TOPOLOGICAL_BROADCAST_PACKET);
}

#[test]
fn location_service_request_equals_recorded_packet() {
    let extended = ExtendedHeader::LocationServiceRequest {
        sequence: 0x1234,
        source: car_position(),
        request: road_side_position().address,
    };
    check_both_directions(
        example_packet(extended, CommonNextHeader::Any, &[]),
        fixtures::LOCATION_SERVICE_REQUEST,
    );
}

#[test]
fn location_service_reply_equals_recorded_packet() {
    let source = LongPositionVector {
        address: road_side_position().address,
        timestamp: Timestamp(1),
        latitude: 488_100_000,
        longitude: 23_100_000,
        accurate: true,
        speed: 0,
        heading: 0,
    };
    let destination = ShortPositionVector { timestamp: Timestamp(2), ..car_position().to_short() };
    let extended = ExtendedHeader::LocationServiceReply { sequence: 0x1234, source, destination };
    check_both_directions(
        example_packet(extended, CommonNextHeader::Any, &[]),
        fixtures::LOCATION_SERVICE_REPLY,
    );
}

#[test]
fn parser_accepts_and_reports_hop_limit_above_its_maximum() {
    let extended = ExtendedHeader::GeoBroadcast {
        sequence: 0x1234,
        source: car_position(),
        area: example_area(GeoAreaShape::Circle, 0, 0),
    };
    let payload = parse_hex(BTP_B_PACKET);
    let mut packet = example_packet(extended, CommonNextHeader::BtpB, &payload);
    assert!(!packet.exceeds_maximum_hop_limit());
    packet.basic.remaining_hop_limit = 11;
    assert!(packet.exceeds_maximum_hop_limit());
    check_both_directions(packet, fixtures::PACKET_WITH_EXCESSIVE_HOP_LIMIT);
    for golden in &fixtures::GOLDEN_PACKETS[..9] {
        assert!(!Packet::parse(&parse_hex(golden)).expect("well formed").exceeds_maximum_hop_limit());
    }
}

#[test]
fn packet_with_negative_position_and_speed_is_encoded() {
    // The position is in Rio de Janeiro. The address is manual, has type 31 and all reserved bits; the speed
    // is 163.84 m/s backwards.
    let source = parse_hex("ffff 0242ac11 0002 80000001 f25c8d1e e6406a98 c000 0e0f");
    let mut octets = parse_hex("11001a01 00100000 00000100");
    octets.extend(&source);
    let packet = Packet::parse(&octets).expect("a beacon");
    let ExtendedHeader::Beacon { source } = packet.extended else { panic!("{packet:?}") };
    assert_eq!(source.address.station_type(), StationType::Other(31));
    assert_eq!(source.address.reserved_bits(), 0x3ff);
    assert_eq!(source.address.mid(), [0x02, 0x42, 0xac, 0x11, 0, 2]);
    assert_eq!((source.latitude, source.longitude), (-228_815_586, -431_986_024));
    assert_eq!((source.accurate, source.speed, source.heading), (true, -16384, 3599));
    assert!(source.is_on_globe());
    assert_eq!(packet.emit(), octets);
}

#[test]
fn reserved_bits_are_ignored_and_cleared() {
    for golden in fixtures::GOLDEN_PACKETS {
        let golden = parse_hex(golden);
        let mut octets = golden.clone();
        let packet = Packet::parse(&golden).expect("golden");
        octets[1] = 0xff;
        octets[4] |= 0x0f;
        octets[7] |= 0x7f;
        octets[11] = 0xff;
        if packet.extended.sequence().is_some() {
            octets[14..16].fill(0xff);
        }
        if packet.extended.area().is_some() {
            octets[54..56].fill(0xff);
        }
        assert_eq!(Packet::parse(&octets), Ok(packet));
        assert_eq!(packet.emit(), golden);
    }
}

#[test]
fn next_header_any_is_read_as_the_common_header() {
    let mut octets = parse_hex(fixtures::SINGLE_HOP_BROADCAST_PACKET);
    octets[0] = 0x10;
    let packet = Packet::parse(&octets).expect("clause 10.3.3");
    assert_eq!(packet.basic.next_header, BasicNextHeader::Any);
    assert_eq!(packet.emit(), octets);
}

#[test]
fn parser_keeps_payload_of_unknown_next_header() {
    for value in 0..=15u8 {
        let mut octets = parse_hex(fixtures::BROADCAST_RECTANGLE_PACKET);
        octets[4] = value << 4;
        let packet = Packet::parse(&octets).expect("a packet to be forwarded");
        let known = if value < 4 { Ok(()) } else { Err(Error::CommonNextHeader { found: value }) };
        assert_eq!(packet.check_next_header(), known);
        assert_eq!(packet.emit(), octets);
    }
}

#[test]
fn malformed_packet_is_refused_with_reason() {
    let change = |at: usize, value: u8| {
        let mut octets = parse_hex(fixtures::BROADCAST_RECTANGLE_PACKET);
        octets[at] = value;
        Packet::parse(&octets).expect_err("not a packet")
    };
    assert_eq!(change(0, 0x01), Error::Version { found: 0 });
    assert_eq!(change(0, 0x21), Error::Version { found: 2 });
    assert_eq!(change(0, 0x12), Error::Secured);
    assert_eq!(change(0, 0x13), Error::BasicNextHeader { found: 3 });
    assert_eq!(change(0, 0x1f), Error::BasicNextHeader { found: 15 });
    for octet in (0..=255u8).filter(|octet| {
        ![0x10, 0x20, 0x30, 0x31, 0x32, 0x40, 0x41, 0x42, 0x50, 0x51, 0x60, 0x61].contains(octet)
    }) {
        let found = if octet == 0 { HeaderType::Any } else { HeaderType::Unknown(octet) };
        let refused = change(5, octet);
        assert!(matches!(refused, Error::HeaderType { found: other, .. } if other == found), "{refused:?}");
    }
    assert_eq!(change(9, 9), Error::PayloadLength { announced: 9, available: 8 });
    assert_eq!(change(8, 1), Error::PayloadLength { announced: 264, available: 8 });
    assert_eq!(
        change(5, 0x43).to_string(),
        "common header: header type and subtype 4/3, expected 1/0, 2/0, 3/0 to 3/2, 4/0 to 4/2, 5/0, 5/1, \
         6/0 or 6/1"
    );
}

#[test]
fn octets_after_geonetworking_payload_are_removed() {
    let beacon = parse_hex(fixtures::BEACON_PACKET);
    let plain = Packet::parse(&beacon).expect("golden");
    for length in beacon.len()..=1500 {
        let mut padded = beacon.clone();
        padded.resize(length, 0xa5);
        assert_eq!(Packet::parse(&padded), Ok(plain), "padded to {length}");
    }
    let mut padded = beacon.clone();
    padded.resize(47, 0);
    // The content of a security envelope has no padding: octets behind the payload are an error.
    assert_eq!(Packet::parse_after_basic(plain.basic, &beacon[4..]), Ok(plain));
    let refused = Packet::parse_after_basic(plain.basic, &padded[4..46]);
    assert_eq!(refused, Err(Error::PayloadLength { announced: 0, available: 10 }));
}

#[test]
fn packet_truncated_at_any_octet_is_refused() {
    for golden in fixtures::GOLDEN_PACKETS {
        let golden = parse_hex(golden);
        let headers = Packet::parse(&golden).expect("golden").payload_offset();
        for end in 0..golden.len() {
            let refused = Packet::parse(&golden[..end]).expect_err("not whole");
            match refused {
                Error::Truncated { what, needed, found } => {
                    assert!(end < headers && found < needed, "{end}: {refused}");
                    let (name, before) = match end {
                        0..4 => ("basic header", 0),
                        4..12 => ("common header", 4),
                        _ => (what, 12),
                    };
                    assert_eq!((what, found), (name, end - before), "{refused}");
                    assert_eq!(
                        needed,
                        if end < 4 {
                            4
                        } else if end < 12 {
                            8
                        } else {
                            headers - 12
                        }
                    );
                }
                Error::PayloadLength { announced, available } => {
                    assert_eq!((announced, available), (golden.len() - headers, end - headers));
                }
                other => panic!("{end}: {other}"),
            }
        }
    }
}

#[test]
fn too_large_packet_leaves_buffer_unchanged() {
    let octets = parse_hex(fixtures::UNICAST_IPV6_PACKET);
    let packet = Packet::parse(&octets).expect("golden");
    for room in 0..octets.len() {
        let mut buffer = vec![0xee; room];
        assert_eq!(
            packet.emit_into(&mut buffer),
            Err(Error::Truncated { what: "packet buffer", needed: 108, found: room })
        );
        assert!(buffer.iter().all(|octet| *octet == 0xee));
    }
    let long = vec![0; 65536];
    let packet = Packet { payload: &long, ..packet };
    let refused = packet.emit_into(&mut vec![0; 70_000]);
    assert_eq!(refused, Err(Error::PayloadLength { announced: 65535, available: 65536 }));
    // The emitter writes the largest length that the field can hold.
    assert_eq!(Packet::parse(&packet.emit()).map(|packet| packet.payload.len()), Ok(65_535));
}

#[test]
fn encoder_writes_length_and_type_of_packet() {
    let octets = parse_hex(fixtures::BROADCAST_RECTANGLE_PACKET);
    let mut packet = Packet::parse(&octets).expect("golden");
    packet.common.payload_length = 4711;
    packet.common.header_type = HeaderType::Beacon;
    assert_eq!(packet.emit(), octets);
}

#[test]
fn forwarder_changes_only_hop_limit_lifetime_and_destination_position() {
    let newer = ShortPositionVector {
        address: GnAddress(0x1122_3344_5566_7788),
        timestamp: Timestamp(0x99aa_bbcc),
        latitude: -1,
        longitude: 0x0102_0304,
    };
    for octets in fixtures::all_packets() {
        let mut changed = octets.clone();
        set_remaining_hop_limit(&mut changed, 0x77).expect("a basic header");
        set_lifetime(&mut changed, Lifetime(0x55)).expect("a basic header");
        assert_eq!(changed[..4], [octets[0], 0, 0x55, 0x77]);
        assert_eq!(changed[4..], octets[4..]);

        let mut changed = octets.clone();
        match (octets[0], set_destination(&mut changed, &newer)) {
            (0x11, Ok(())) => {
                assert!([0x20, 0x61].contains(&octets[5]));
                assert_eq!((&changed[..40], &changed[60..]), (&octets[..40], &octets[60..]));
                assert_eq!(to_hex(&changed[40..60]), "112233445566778899aabbccffffffff01020304");
                let packet = Packet::parse(&changed).expect("still a packet");
                assert_eq!(packet.extended.destination(), Some(&newer));
                // If the buffer is one octet too short, it stays unchanged.
                let mut short = octets[..59].to_vec();
                assert_eq!(
                    set_destination(&mut short, &newer),
                    Err(Error::Truncated { what: "destination position vector", needed: 60, found: 59 })
                );
                assert_eq!(short, octets[..59]);
            }
            (0x11, Err(Error::HeaderType { expected: "2/0 or 6/1", found })) => {
                assert_eq!(found, HeaderType::from_octet(octets[5]));
                assert!(![0x20, 0x61].contains(&octets[5]));
                assert_eq!(changed, octets);
            }
            (0x12, Err(Error::Secured)) => assert_eq!(changed, octets),
            other => panic!("{other:?}"),
        }
    }
    let short = Err(Error::Truncated { what: "basic header", needed: 4, found: 3 });
    assert_eq!(set_remaining_hop_limit(&mut [0; 3], 1), short);
    assert_eq!(set_lifetime(&mut [0; 3], Lifetime::ZERO), short);
}

#[test]
fn packet_without_payload_is_encoded() {
    let basic = BasicHeader::parse(&parse_hex("1f0050ff")).expect("any next header");
    assert_eq!(basic.next_header, BasicNextHeader::Unknown(15));
    assert_eq!(basic.lifetime.duration(), Duration::from_secs(1));
    assert_eq!(to_hex(&basic.to_octets()), "1f0050ff");
    let common = CommonHeader::parse(&parse_hex("fffe c1ff ffff ff00")).expect("anything");
    assert_eq!(common.next_header, CommonNextHeader::Unknown(15));
    assert_eq!(common.header_type, HeaderType::Unknown(0xfe));
    assert!(common.traffic_class.store_carry_forward && common.traffic_class.channel_offload);
    assert_eq!((common.traffic_class.id, common.mobile), (1, true));
    assert_eq!(to_hex(&common.to_octets()), "f0fec180ffffff00");
    // The other seven bits of the flags octet do not set the mobility flag.
    assert!(!CommonHeader::parse(&parse_hex("0010007f00000100")).expect("a beacon's").mobile);
}
