//! Unit tests of the small types: addresses, times, lifetimes, station types, BTP.

use carnet_wire::Error;
use carnet_wire::btp::{self, BtpA, BtpB, port};
use carnet_wire::geonet::{
    ETHERTYPE, GnAddress, HeaderType, Lifetime, LongPositionVector, ShortPositionVector, StationType,
    Timestamp, TrafficClass, VERSION,
};
use std::time::Duration;

#[test]
fn gn_address_has_type_and_link_layer_parts() {
    let address = GnAddress::new(true, StationType::PassengerCar, [2, 0, 0, 0, 0, 1]);
    assert_eq!(address, GnAddress(0x9400_0200_0000_0001));
    assert!(address.is_manual());
    assert_eq!(address.station_type(), StationType::PassengerCar);
    assert_eq!(address.mid(), [2, 0, 0, 0, 0, 1]);
    assert_eq!(address.reserved_bits(), 0);
    let address = GnAddress::new(false, StationType::RoadSideUnit, [0xff; 6]);
    assert_eq!(address, GnAddress(0x3c00_ffff_ffff_ffff));
    assert!(!address.is_manual());
    // A station type of more than five bits does not set the manual bit.
    assert_eq!(GnAddress::new(false, StationType::Other(0xe5), [0; 6]), GnAddress(0x1400_0000_0000_0000));
}

#[test]
fn gn_address_survives_text_round_trip() {
    let address = GnAddress(0x9400_0200_0000_00af);
    assert_eq!(address.to_string(), "9400:0200:0000:00af");
    assert_eq!("9400:0200:0000:00AF".parse(), Ok(address));
    assert_eq!("0000:0000:0000:0000".parse(), Ok(GnAddress(0)));
    for text in [
        "",
        ":::",
        "9400:0200:0000",
        "9400:0200:0000:00a",
        "9400:0200:0000:00af:",
        "9400:0200:0000:00af:0000",
        "9400:0200:0000:+0af",
        "9400:0200:0000:00ag",
        " 9400:0200:0000:00af",
        "94000200000000af",
        "9400-0200-0000-00af",
        "9400:0200:0000:0ä1",
    ] {
        let refused = text.parse::<GnAddress>().expect_err(text);
        assert!(refused.to_string().contains("four groups of four hexadecimal digits"), "{refused}");
    }
}

#[test]
fn station_types_survive_text_round_trip() {
    let named = [
        (0, StationType::Unknown, "unknown"),
        (1, StationType::Pedestrian, "pedestrian"),
        (2, StationType::Cyclist, "cyclist"),
        (3, StationType::Moped, "moped"),
        (4, StationType::Motorcycle, "motorcycle"),
        (5, StationType::PassengerCar, "passenger_car"),
        (6, StationType::Bus, "bus"),
        (7, StationType::LightTruck, "light_truck"),
        (8, StationType::HeavyTruck, "heavy_truck"),
        (9, StationType::Trailer, "trailer"),
        (10, StationType::SpecialVehicle, "special_vehicle"),
        (11, StationType::Tram, "tram"),
        (15, StationType::RoadSideUnit, "road_side_unit"),
    ];
    for (value, station_type, name) in named {
        assert_eq!(StationType::from_value(value), station_type);
        assert_eq!(station_type.value(), value);
        assert_eq!(station_type.to_string(), name);
        assert_eq!(name.parse(), Ok(station_type));
    }
    for value in 0..32 {
        let station_type = StationType::from(value);
        assert_eq!(u8::from(station_type), value);
        assert_eq!(GnAddress::new(true, station_type, [7; 6]).station_type(), station_type);
        assert_eq!(station_type.to_string().parse(), Ok(station_type));
        assert_eq!(value.to_string().parse(), Ok(station_type));
    }
    let refused = "car".parse::<StationType>().expect_err("no name");
    assert!(refused.to_string().starts_with("station type \"car\": expected one of unknown, pedestrian,"));
    assert!("32".parse::<StationType>().is_err());
}

#[test]
fn gn_timestamp_of_known_date() {
    // The epoch is 2004-01-01T00:00:00Z; no leap second had occurred since then.
    assert_eq!(Timestamp::from_unix_milliseconds(1_072_915_200_000, 0), Timestamp(0));
    // The time is 2026-11-21T12:00:00Z.
    let noon = 1_795_262_400_000;
    assert_eq!(Timestamp::from_unix_milliseconds(noon, Timestamp::LEAP_SECONDS), Timestamp(792_699_272));
    assert_eq!(Timestamp(792_699_272), Timestamp(0x2f3f_a188));
    assert_eq!(Timestamp::from_unix_milliseconds(noon, 0), Timestamp(792_694_272));
    // A time before the epoch gives the last timestamp before the wrap.
    assert_eq!(Timestamp::from_unix_milliseconds(1_072_915_199_999, 0), Timestamp(u32::MAX));
    // A timestamp before the epoch: 250 times 2^32 ms are 1,073,741,824,000 ms.
    assert_eq!(Timestamp::from_unix_milliseconds(0, 5), Timestamp(826_624_000 + 5000));
}

#[test]
fn gn_timestamps_compare_across_wrap() {
    let newer = |a, b| Timestamp(a).is_newer_than(Timestamp(b));
    assert!(newer(1, 0) && !newer(0, 1) && !newer(7, 7));
    assert!(newer(0, u32::MAX) && !newer(u32::MAX, 0));
    assert!(newer(5, 0xffff_fff0) && !newer(0xffff_fff0, 5));
    // The first numbers are ahead by just under half the range, the next ones by exactly half. Annex C.2
    // compares with TSTmax/2 = 2^31 - 0.5.
    assert!(newer(0x7fff_ffff, 0) && !newer(0, 0x7fff_ffff));
    assert!(newer(0, 0x8000_0000) && !newer(0x8000_0000, 0));
    assert!(newer(0x1234, 0x8000_1234) && !newer(0x8000_1234, 0x1234));
    assert!(newer(0, 0x8000_0001) && !newer(0x8000_0001, 0));

    assert_eq!(Timestamp(3).milliseconds_since(Timestamp(u32::MAX)), 4);
    assert_eq!(Timestamp(u32::MAX).milliseconds_since(Timestamp(3)), -4);
    assert_eq!(Timestamp(9).milliseconds_since(Timestamp(9)), 0);
    assert_eq!(Timestamp(0).milliseconds_since(Timestamp(1 << 31)), 1 << 31);
    assert_eq!(Timestamp(1 << 31).milliseconds_since(Timestamp(0)), -(1 << 31));
    let second = Duration::from_micros(1_000_999);
    assert_eq!(Timestamp(u32::MAX).wrapping_add(second), Timestamp(999));
    assert_eq!(Timestamp(999).wrapping_sub(second), Timestamp(u32::MAX));
    let turn = Duration::from_millis(1 << 32);
    assert_eq!(Timestamp(5).wrapping_add(turn), Timestamp(5));
}

#[test]
fn gn_lifetime_is_encoded_and_decoded() {
    let octet = |milliseconds| Lifetime::from_duration(Duration::from_millis(milliseconds)).0;
    let encoded = [
        (0, 0x00),
        (49, 0x00),
        (50, 0x04),
        (99, 0x04),
        (950, 19 << 2),
        (999, 19 << 2),
        (1_000, 1 << 2 | 1),
        (1_050, 21 << 2),
        (3_150, 63 << 2),
        (3_999, 63 << 2),
        (4_000, 4 << 2 | 1),
        (60_000, 0x1a),
        (59_999, 59 << 2 | 1),
        (63_000, 63 << 2 | 1),
        (69_999, 63 << 2 | 1),
        (70_000, 7 << 2 | 2),
        (600_000, 6 << 2 | 3),
        (630_000, 63 << 2 | 2),
        (6_300_000, 0xff),
        (6_300_001, 0xff),
        (u64::from(u32::MAX) + 51, 0xff),
    ];
    for (milliseconds, expected) in encoded {
        assert_eq!(octet(milliseconds), expected, "{milliseconds} ms");
    }
    assert_eq!(Lifetime::from(Duration::MAX), Lifetime::MAX);
    // 60 s: the parser accepts both encodings.
    assert_eq!(Lifetime(0x1a).duration(), Duration::from_secs(60));
    assert_eq!(Lifetime(0xf1).duration(), Duration::from_secs(60));
    assert_eq!(Duration::from(Lifetime::MAX), Duration::from_secs(6300));
    assert_eq!(Lifetime(0x04).to_string(), "50 ms");
}

#[test]
fn gn_lifetime_shrinks_by_waiting_time() {
    let wait = Duration::from_millis;
    assert_eq!(Lifetime(0xf1).after_waiting(Duration::ZERO), Lifetime(0xf1), "as the source wrote it");
    assert_eq!(Lifetime(0x1a).after_waiting(wait(1)).duration(), Duration::from_secs(59));
    assert_eq!(Lifetime(0x1a).after_waiting(wait(30_000)), Lifetime(3 << 2 | 2));
    assert_eq!(Lifetime(0x1a).after_waiting(wait(59_900)).milliseconds(), 100);
    assert_eq!(Lifetime(0x1a).after_waiting(wait(60_000)), Lifetime::ZERO);
    assert_eq!(Lifetime(0x1a).after_waiting(Duration::MAX), Lifetime::ZERO);
}

#[test]
fn protocol_numbers_match_the_standard() {
    assert_eq!((ETHERTYPE, VERSION), (0x8947, 1));
    for octet in 0..=255u8 {
        assert_eq!(TrafficClass::from_octet(octet).octet(), octet);
        assert_eq!(HeaderType::from_octet(octet).octet(), octet);
    }
    let offload = TrafficClass { store_carry_forward: false, channel_offload: true, id: 0xff };
    assert_eq!(offload.octet(), 0x7f, "a wrong id does not set the flags");
    assert_eq!(HeaderType::from_octet(0x51).to_string(), "5/1");
}

#[test]
fn too_large_speed_becomes_largest_value() {
    let round = |speed| {
        let vector = LongPositionVector { speed, ..LongPositionVector::default() };
        let back = LongPositionVector::from_octets(&vector.to_octets());
        assert!(!back.accurate, "speed does not reach PAI");
        back.speed
    };
    assert_eq!((round(i16::MIN), round(-16385), round(-16384)), (-16384, -16384, -16384));
    assert_eq!((round(-1), round(0), round(1)), (-1, 0, 1));
    assert_eq!((round(16383), round(16384), round(i16::MAX)), (16383, 16383, 16383));
}

#[test]
fn invalid_positions_are_recognised() {
    let on = |latitude, longitude| {
        let vector = LongPositionVector { latitude, longitude, ..LongPositionVector::default() };
        let short = ShortPositionVector::from(&vector);
        assert_eq!(short.is_on_globe(), vector.is_on_globe());
        vector.is_on_globe()
    };
    assert!(on(900_000_000, 1_800_000_000) && on(-900_000_000, -1_800_000_000) && on(0, 0));
    assert!(!on(900_000_001, 0) && !on(-900_000_001, 0) && !on(i32::MIN, 0));
    assert!(!on(0, 1_800_000_001) && !on(0, -1_800_000_001) && !on(0, i32::MIN));
}

#[test]
fn btp_headers_are_encoded_and_decoded() {
    let octets = [0x07, 0xd1, 0x09, 0xc4, 1, 2];
    let (a, payload) = BtpA::parse(&octets).expect("six octets");
    assert_eq!((a, payload), (BtpA { destination_port: port::CAM, source_port: 2500 }, &[1, 2][..]));
    assert_eq!(a.to_octets(), octets[..4]);
    let (b, payload) = BtpB::parse(&octets[..4]).expect("four octets");
    assert_eq!((b.destination_port, b.destination_port_info, payload), (2001, 2500, &[][..]));
    assert_eq!(b.to_octets(), octets[..4]);
    for end in 0..4 {
        let refused = |what| Error::Truncated { what, needed: 4, found: end };
        assert_eq!(BtpA::parse(&octets[..end]), Err(refused("BTP-A header")));
        assert_eq!(BtpB::parse(&octets[..end]), Err(refused("BTP-B header")));
    }
}

#[test]
fn well_known_btp_ports_match_the_standard() {
    let known = [
        (2001, "CAM"),
        (2002, "DENM"),
        (2003, "MAPEM"),
        (2004, "SPATEM"),
        (2005, "SAEM"),
        (2006, "IVIM"),
        (2009, "CPM"),
        (2018, "VAM"),
        (2023, "MRM"),
        (2026, "MIM"),
    ];
    for (number, message) in known {
        assert_eq!(btp::message_name_of_port(number), Some(message));
    }
    assert!((2001..=2026).all(|number| btp::message_name_of_port(number).is_some()));
    assert_eq!(
        (btp::message_name_of_port(2000), btp::message_name_of_port(2027), btp::message_name_of_port(42)),
        (None, None, None)
    );
    assert_eq!((port::CAM, port::DENM, port::SAEM, port::MIM), (2001, 2002, 2005, 2026));
}
