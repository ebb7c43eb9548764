//! Properties that hold for all values.

use carnet_wire::btp::{BtpA, BtpB};
use carnet_wire::geonet::{
    BasicHeader, BasicNextHeader, CommonHeader, CommonNextHeader, ExtendedHeader, GeoArea, GeoAreaShape,
    GnAddress, HeaderType, Lifetime, LongPositionVector, Packet, ShortPositionVector, StationType, Timestamp,
    TrafficClass, VERSION, set_destination,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

fn any_address() -> impl Strategy<Value = GnAddress> {
    any::<u64>().prop_map(GnAddress)
}

fn any_long_vector() -> impl Strategy<Value = LongPositionVector> {
    (any_address(), any::<u32>(), any::<i32>(), any::<i32>(), any::<bool>(), -16384..=16383i16, any::<u16>())
        .prop_map(|(address, timestamp, latitude, longitude, accurate, speed, heading)| LongPositionVector {
            address,
            timestamp: Timestamp(timestamp),
            latitude,
            longitude,
            accurate,
            speed,
            heading,
        })
}

fn any_short_vector() -> impl Strategy<Value = ShortPositionVector> {
    any_long_vector().prop_map(|long| long.to_short())
}

fn any_area() -> impl Strategy<Value = GeoArea> {
    let shape =
        prop_oneof![Just(GeoAreaShape::Circle), Just(GeoAreaShape::Rectangle), Just(GeoAreaShape::Ellipse)];
    (shape, any::<i32>(), any::<i32>(), any::<u16>(), any::<u16>(), any::<u16>()).prop_map(
        |(shape, latitude, longitude, distance_a, distance_b, angle)| GeoArea {
            shape,
            latitude,
            longitude,
            distance_a,
            distance_b,
            angle,
        },
    )
}

fn any_extended_header() -> impl Strategy<Value = ExtendedHeader> {
    use ExtendedHeader::*;
    prop_oneof![
        any_long_vector().prop_map(|source| Beacon { source }),
        (any_long_vector(), any::<[u8; 4]>())
            .prop_map(|(source, media_dependent)| SingleHop { source, media_dependent }),
        (any::<u16>(), any_long_vector())
            .prop_map(|(sequence, source)| TopologicallyScoped { sequence, source }),
        (any::<u16>(), any_long_vector(), any_short_vector())
            .prop_map(|(sequence, source, destination)| GeoUnicast { sequence, source, destination }),
        (any::<u16>(), any_long_vector(), any_area()).prop_map(|(sequence, source, area)| GeoBroadcast {
            sequence,
            source,
            area
        }),
        (any::<u16>(), any_long_vector(), any_area()).prop_map(|(sequence, source, area)| GeoAnycast {
            sequence,
            source,
            area
        }),
        (any::<u16>(), any_long_vector(), any_address())
            .prop_map(|(sequence, source, request)| LocationServiceRequest { sequence, source, request }),
        (any::<u16>(), any_long_vector(), any_short_vector()).prop_map(|(sequence, source, destination)| {
            LocationServiceReply { sequence, source, destination }
        }),
    ]
}

/// Returns a Basic, a Common and an extended header whose type and length agree.
fn any_headers() -> impl Strategy<Value = (BasicHeader, CommonHeader, ExtendedHeader)> {
    let basic = (any::<bool>(), any::<u8>(), any::<u8>());
    let common = (0..16u8, any::<u8>(), any::<bool>(), any::<u8>());
    (basic, common, any_extended_header()).prop_map(|(basic, common, extended)| {
        let (any, lifetime, remaining_hop_limit) = basic;
        let (next_header, traffic_class, mobile, maximum_hop_limit) = common;
        let basic = BasicHeader {
            version: VERSION,
            next_header: if any { BasicNextHeader::Any } else { BasicNextHeader::Common },
            lifetime: Lifetime(lifetime),
            remaining_hop_limit,
        };
        let common = CommonHeader {
            next_header: CommonNextHeader::from_value(next_header),
            header_type: extended.header_type(),
            traffic_class: TrafficClass::from_octet(traffic_class),
            mobile,
            payload_length: 0,
            maximum_hop_limit,
        };
        (basic, common, extended)
    })
}

proptest! {
    #[test]
    fn geonetworking_packets_survive_encoding_and_decoding(
        (basic, mut common, extended) in any_headers(),
        payload in vec(any::<u8>(), 0..200),
    ) {
        common.payload_length = u16::try_from(payload.len()).expect("short");
        let packet = Packet { basic, common, extended, payload: &payload };
        let octets = packet.emit();
        prop_assert_eq!(octets.len(), packet.len());
        prop_assert_eq!(octets.len(), 12 + extended.len() + payload.len());
        prop_assert_eq!(Packet::parse(&octets), Ok(packet));
        prop_assert_eq!(Packet::parse_after_basic(basic, &octets[4..]), Ok(packet));
        let mut buffer = vec![0; octets.len()];
        prop_assert_eq!(packet.emit_into(&mut buffer), Ok(octets.len()));
        prop_assert_eq!(&buffer, &octets);
        let mut appended = vec![1, 2, 3];
        packet.append_to(&mut appended);
        prop_assert_eq!(&appended[3..], &octets[..]);
        prop_assert_eq!(packet.exceeds_maximum_hop_limit(), octets[3] > octets[10]);
        // The parser rejects the packet if one octet is missing.
        prop_assert!(Packet::parse(&octets[..octets.len() - 1]).is_err());
    }

    #[test]
    fn geonetworking_accessors_agree_with_decoder(extended in any_extended_header()) {
        use ExtendedHeader::*;
        let header_type = extended.header_type();
        prop_assert_eq!(HeaderType::from_octet(header_type.octet()), header_type);
        let has =
            (extended.sequence().is_some(), extended.destination().is_some(), extended.area().is_some());
        prop_assert_eq!(has, match extended {
            Beacon { .. } | SingleHop { .. } => (false, false, false),
            TopologicallyScoped { .. } | LocationServiceRequest { .. } => (true, false, false),
            GeoUnicast { .. } | LocationServiceReply { .. } => (true, true, false),
            GeoBroadcast { .. } | GeoAnycast { .. } => (true, false, true),
        });
    }

    #[test]
    fn rewritten_destination_is_decoded(mut headers in any_headers(), new in any_short_vector()) {
        let (basic, common, extended) = &mut headers;
        let mut octets = Packet { basic: *basic, common: *common, extended: *extended, payload: &[] }.emit();
        let written = set_destination(&mut octets, &new);
        match extended {
            ExtendedHeader::GeoUnicast { destination, .. }
            | ExtendedHeader::LocationServiceReply { destination, .. } => {
                prop_assert_eq!(written, Ok(()));
                *destination = new;
            }
            _ => prop_assert!(written.is_err()),
        }
        prop_assert_eq!(Packet::parse(&octets).map(|packet| packet.extended), Ok(*extended));
    }

    #[test]
    fn position_vectors_survive_encoding_and_decoding(long in any::<[u8; 24]>(), short in any::<[u8; 20]>()) {
        prop_assert_eq!(LongPositionVector::from_octets(&long).to_octets(), long);
        prop_assert_eq!(ShortPositionVector::from_octets(&short).to_octets(), short);
    }

    #[test]
    fn gn_addresses_survive_text_round_trip(bits in any::<u64>()) {
        let address = GnAddress(bits);
        let text = address.to_string();
        prop_assert_eq!(text.len(), 19);
        prop_assert_eq!(text.parse(), Ok(address));
        prop_assert_eq!(u64::from_str_radix(&text.replace(':', ""), 16), Ok(bits));
    }

    #[test]
    fn gn_addresses_are_built_from_parts(manual in any::<bool>(), value in 0..32u8, mid in any::<[u8; 6]>()) {
        let address = GnAddress::new(manual, StationType::from_value(value), mid);
        prop_assert_eq!(address.is_manual(), manual);
        prop_assert_eq!(address.station_type().value(), value);
        prop_assert_eq!(address.mid(), mid);
        prop_assert_eq!(address.reserved_bits(), 0);
    }

    #[test]
    fn one_of_two_gn_timestamps_is_newer(a in any::<u32>(), b in any::<u32>(), shift in any::<u32>()) {
        prop_assume!(a != b);
        let (x, y) = (Timestamp(a), Timestamp(b));
        prop_assert_ne!(x.is_newer_than(y), y.is_newer_than(x));
        prop_assert_eq!(x.milliseconds_since(y), -y.milliseconds_since(x));
        prop_assert_eq!(x.milliseconds_since(y) > 0, x.is_newer_than(y));
        // A timestamp that is ahead by less than half the range is newer, whatever the first timestamp is.
        let ahead = Duration::from_millis(u64::from(b >> 1));
        prop_assert_eq!(Timestamp(shift).wrapping_add(ahead).is_newer_than(Timestamp(shift)), b >> 1 != 0);
        prop_assert_eq!(x.wrapping_add(ahead).wrapping_sub(ahead), x);
    }

    #[test]
    fn gn_lifetime_is_rounded_down(milliseconds in 0..7_000_000u64) {
        let wanted = Duration::from_millis(milliseconds);
        let lifetime = Lifetime::from_duration(wanted);
        let best = (0..=255).map(|octet| Lifetime(octet).duration()).filter(|other| *other <= wanted).max();
        prop_assert_eq!(Some(lifetime.duration()), best);
    }

    #[test]
    fn gn_lifetime_never_grows(octet in any::<u8>(), waited in 0..7_000_000u64) {
        let waited = Duration::from_millis(waited);
        let left = Lifetime(octet).after_waiting(waited).duration();
        prop_assert!(left <= Lifetime(octet).duration().saturating_sub(waited));
        let lifetime = Lifetime(octet).duration();
        prop_assert_eq!(Lifetime::from_duration(lifetime).duration(), lifetime);
    }

    #[test]
    fn btp_headers_survive_encoding_and_decoding(octets in vec(any::<u8>(), 4..20)) {
        let (a, behind_a) = BtpA::parse(&octets).expect("four octets");
        let (b, behind_b) = BtpB::parse(&octets).expect("four octets");
        prop_assert_eq!([&a.to_octets()[..], behind_a].concat(), octets.clone());
        prop_assert_eq!([&b.to_octets()[..], behind_b].concat(), octets);
    }
}
