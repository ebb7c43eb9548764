//! The crate `geonetworking` 0.4.2 as independent check: this crate parses carnet's packets and emits the
//! same octets.
//!
//! The cases avoid faults of that crate. It reads the 15 bits of the speed as unsigned and panics on a
//! negative speed. So the test compares only emitted octets for negative speeds. The crate rejects station
//! types without a name, and finds the payload of a secured GUC at the wrong offset.

use crate::common::{RandomNumbers, parse_hex, to_hex};
use crate::fixtures;
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, Frame, GeoArea, GeoAreaShape, GnAddress, Lifetime, LongPositionVector,
    Packet, ShortPositionVector, StationType, Timestamp, TrafficClass,
};
use geonetworking::en302636_4_1 as theirs;
use geonetworking::{Decode, Encode};

/// Returns a number with a random count of bits.
fn random_number(numbers: &mut RandomNumbers) -> u32 {
    (numbers.next_u64() >> 16) as u32
}

fn random_address(numbers: &mut RandomNumbers) -> GnAddress {
    let value = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15][numbers.number_below(13)];
    let mid = [(); 6].map(|()| random_number(numbers) as u8);
    let address = GnAddress::new(random_number(numbers) & 1 == 1, StationType::from_value(value), mid);
    GnAddress(address.0 | u64::from(random_number(numbers) & 0x3ff) << 48)
}

fn random_long_vector(numbers: &mut RandomNumbers) -> LongPositionVector {
    LongPositionVector {
        address: random_address(numbers),
        timestamp: Timestamp(random_number(numbers)),
        latitude: random_number(numbers) as i32,
        longitude: random_number(numbers) as i32,
        accurate: random_number(numbers) & 1 == 1,
        speed: (random_number(numbers) & 0x3fff) as i16,
        heading: random_number(numbers) as u16,
    }
}

fn random_extended_header(numbers: &mut RandomNumbers) -> ExtendedHeader {
    use ExtendedHeader::*;
    let source = random_long_vector(numbers);
    let destination = random_long_vector(numbers).to_short();
    let sequence = random_number(numbers) as u16;
    let area = GeoArea {
        shape: [GeoAreaShape::Circle, GeoAreaShape::Rectangle, GeoAreaShape::Ellipse]
            [numbers.number_below(3)],
        latitude: random_number(numbers) as i32,
        longitude: random_number(numbers) as i32,
        distance_a: random_number(numbers) as u16,
        distance_b: random_number(numbers) as u16,
        angle: random_number(numbers) as u16,
    };
    match numbers.number_below(8) {
        0 => Beacon { source },
        1 => SingleHop { source, media_dependent: random_number(numbers).to_be_bytes() },
        2 => TopologicallyScoped { sequence, source },
        3 => GeoUnicast { sequence, source, destination },
        4 => GeoBroadcast { sequence, source, area },
        5 => GeoAnycast { sequence, source, area },
        6 => LocationServiceRequest { sequence, source, request: destination.address },
        _ => LocationServiceReply { sequence, source, destination },
    }
}

fn compare_addresses(theirs: &theirs::Address, ours: GnAddress) {
    assert_eq!(theirs.manually_configured, ours.is_manual());
    assert_eq!(theirs.station_type as u8, ours.station_type().value());
    assert_eq!(theirs.reserved.value(), ours.reserved_bits());
    assert_eq!(theirs.address, ours.mid());
}

fn compare_long_vectors(theirs: &theirs::LongPositionVector, ours: &LongPositionVector) {
    compare_addresses(&theirs.gn_address, ours.address);
    assert_eq!(theirs.timestamp.0, ours.timestamp.0);
    assert_eq!((theirs.latitude, theirs.longitude), (ours.latitude, ours.longitude));
    assert_eq!(theirs.position_accuracy, ours.accurate);
    assert_eq!(theirs.speed.value(), ours.speed);
    assert_eq!(theirs.heading, ours.heading);
}

fn compare_short_vectors(theirs: &theirs::ShortPositionVector, ours: &ShortPositionVector) {
    compare_addresses(&theirs.gn_address, ours.address);
    assert_eq!(theirs.timestamp.0, ours.timestamp.0);
    assert_eq!((theirs.latitude, theirs.longitude), (ours.latitude, ours.longitude));
}

fn compare_areas(
    theirs: (i32, i32, u16, u16, u16),
    (their_type, their_shape): (bool, theirs::AreaType),
    ours: &GeoArea,
) {
    assert!(their_type);
    assert_eq!(theirs, (ours.latitude, ours.longitude, ours.distance_a, ours.distance_b, ours.angle));
    let shape = match their_shape {
        theirs::AreaType::Circular => GeoAreaShape::Circle,
        theirs::AreaType::Rectangular => GeoAreaShape::Rectangle,
        theirs::AreaType::Ellipsoidal => GeoAreaShape::Ellipse,
    };
    assert_eq!(shape, ours.shape);
}

fn compare_extended_headers(
    header_type: theirs::HeaderType,
    theirs: &theirs::ExtendedHeader,
    ours: &ExtendedHeader,
) {
    use theirs::{BroadcastType, ExtendedHeader as T, HeaderType, LocationServiceType};
    let scoped = HeaderType::TopologicallyScopedBroadcast;
    match (theirs, ours) {
        (T::Beacon(t), ExtendedHeader::Beacon { source }) => {
            assert_eq!(header_type, HeaderType::Beacon);
            compare_long_vectors(&t.source_position_vector, source);
        }
        (T::SHB(t), ExtendedHeader::SingleHop { source, media_dependent }) => {
            assert_eq!(header_type, scoped(BroadcastType::SingleHop));
            compare_long_vectors(&t.source_position_vector, source);
            assert_eq!(t.media_dependent_data, *media_dependent);
        }
        (T::TSB(t), ExtendedHeader::TopologicallyScoped { sequence, source }) => {
            assert_eq!(header_type, scoped(BroadcastType::MultiHop));
            assert_eq!(t.sequence_number, *sequence);
            compare_long_vectors(&t.source_position_vector, source);
        }
        (T::GUC(t), ExtendedHeader::GeoUnicast { sequence, source, destination }) => {
            assert_eq!(header_type, HeaderType::GeoUnicast);
            assert_eq!(t.sequence_number, *sequence);
            compare_long_vectors(&t.source_position_vector, source);
            compare_short_vectors(&t.destination_position_vector, destination);
        }
        (T::GBC(t), ExtendedHeader::GeoBroadcast { sequence, source, area }) => {
            assert_eq!(t.sequence_number, *sequence);
            compare_long_vectors(&t.source_position_vector, source);
            let values = (t.geo_area_position_latitude, t.geo_area_position_longitude);
            let values = (values.0, values.1, t.distance_a, t.distance_b, t.angle);
            let HeaderType::GeoBroadcast(shape) = header_type else { panic!("{header_type:?}") };
            compare_areas(values, (true, shape), area);
        }
        (T::GAC(t), ExtendedHeader::GeoAnycast { sequence, source, area }) => {
            assert_eq!(t.sequence_number, *sequence);
            compare_long_vectors(&t.source_position_vector, source);
            let values = (t.geo_area_position_latitude, t.geo_area_position_longitude);
            let values = (values.0, values.1, t.distance_a, t.distance_b, t.angle);
            let HeaderType::GeoAnycast(shape) = header_type else { panic!("{header_type:?}") };
            compare_areas(values, (true, shape), area);
        }
        (T::LSRequest(t), ExtendedHeader::LocationServiceRequest { sequence, source, request }) => {
            assert_eq!(header_type, HeaderType::LocationService(LocationServiceType::Request));
            assert_eq!(t.sequence_number, *sequence);
            compare_long_vectors(&t.source_position_vector, source);
            compare_addresses(&t.request_gn_address, *request);
        }
        (T::LSReply(t), ExtendedHeader::LocationServiceReply { sequence, source, destination }) => {
            assert_eq!(header_type, HeaderType::LocationService(LocationServiceType::Reply));
            assert_eq!(t.sequence_number, *sequence);
            compare_long_vectors(&t.source_position_vector, source);
            compare_short_vectors(&t.destination_position_vector, destination);
        }
        (theirs, ours) => panic!("{theirs:?} is not {ours:?}"),
    }
}

/// Checks that the crate parses carnet's octets and emits the same octets.
fn compare_packets(ours: &Packet<'_>) {
    let octets = ours.emit();
    let context = to_hex(&octets);
    let decoded = geonetworking::Packet::decode(&octets[..]).expect(&context);
    assert_eq!(decoded.bytes_consumed, octets.len(), "{context}");
    let geonetworking::Packet::Unsecured { basic, common, extended, payload } = &decoded.decoded else {
        panic!("{context}")
    };
    assert_eq!(basic.version.value(), ours.basic.version);
    assert_eq!(basic.next_header as u8, ours.basic.next_header.value());
    assert_eq!(
        u64::from(basic.lifetime.as_milliseconds()),
        ours.basic.lifetime.duration().as_millis() as u64
    );
    assert_eq!(basic.remaining_hop_limit, ours.basic.remaining_hop_limit);
    assert_eq!(common.next_header as u8, ours.common.next_header.value());
    let class = &common.traffic_class;
    assert_eq!(class.store_carry_forward, ours.common.traffic_class.store_carry_forward);
    assert_eq!(class.channel_offload, ours.common.traffic_class.channel_offload);
    assert_eq!(class.traffic_class_id.value(), ours.common.traffic_class.id);
    assert_eq!(common.flags[0], ours.common.mobile);
    assert_eq!(usize::from(common.payload_length), ours.payload.len());
    assert_eq!(common.maximum_hop_limit, ours.common.maximum_hop_limit);
    let extended = extended.as_ref().expect("an extended header");
    compare_extended_headers(common.header_type_and_subtype, extended, &ours.extended);
    assert_eq!(*payload, ours.payload);
    assert_eq!(to_hex(&decoded.decoded.encode_to_vec().expect(&context)), context);
}

#[test]
fn ten_thousand_packets_are_encoded_like_other_crate() {
    let mut numbers = RandomNumbers::new(0x2004_0101_0000_0005);
    let mut types = std::collections::BTreeSet::new();
    for _ in 0..10_000 {
        let payload: Vec<u8> =
            (0..numbers.number_below(40)).map(|_| random_number(&mut numbers) as u8).collect();
        let next_header = CommonNextHeader::from_value(numbers.number_below(4) as u8);
        let lifetime = Lifetime(random_number(&mut numbers) as u8);
        let extended = random_extended_header(&mut numbers);
        let mut packet =
            Packet::new(extended, next_header, lifetime, random_number(&mut numbers) as u8, &payload);
        packet.basic.remaining_hop_limit = random_number(&mut numbers) as u8;
        packet.common.traffic_class = TrafficClass::from_octet(random_number(&mut numbers) as u8);
        packet.common.mobile = random_number(&mut numbers) & 1 == 1;
        types.insert(packet.common.header_type.octet());
        compare_packets(&packet);
    }
    assert_eq!(types.len(), 12, "every type and shape: {types:x?}");
}

#[test]
fn recorded_packets_are_decoded_like_other_crate() {
    for text in fixtures::GOLDEN_PACKETS.into_iter().chain(fixtures::VANETZA_PACKETS) {
        compare_packets(&Packet::parse(&parse_hex(text)).expect("well formed"));
    }
}

#[test]
fn negative_speeds_are_encoded_like_other_crate() {
    for speed in -16384..=16383 {
        let ours = LongPositionVector { speed, accurate: speed % 2 == 0, ..LongPositionVector::default() };
        let address = theirs::Address::new(false, theirs::StationType::Unknown, [0; 6]);
        let theirs =
            theirs::LongPositionVector::try_new(address, theirs::Timestamp(0), 0, 0, ours.accurate, speed, 0)
                .expect("15 bits");
        let theirs = theirs.encode_to_vec().expect("octets");
        assert_eq!(ours.to_octets()[..], theirs[..]);
        assert_eq!(LongPositionVector::from_octets(&ours.to_octets()).speed, speed);
    }
}

#[test]
fn geonetworking_crate_and_carnet_decode_equal_secured_packets() {
    for text in fixtures::VANETZA_SECURED_PACKETS {
        let octets = parse_hex(text);
        let decoded = geonetworking::Packet::decode(&octets[..]).expect("vanetza's").decoded;
        let geonetworking::Packet::Secured { secured, common, extended, .. } = &decoded else {
            panic!("{text}")
        };
        let Ok(Frame::Secured(frame)) = Frame::parse(&octets) else { panic!("{text}") };
        let inside = secured.data_payload().expect("signed data");
        let ours = Packet::parse_after_basic(frame.basic, inside).expect("a packet");
        compare_extended_headers(
            common.header_type_and_subtype,
            extended.as_ref().expect("an extended header"),
            &ours.extended,
        );
        assert_eq!(decoded.payload(), Some(ours.payload));
    }
}
