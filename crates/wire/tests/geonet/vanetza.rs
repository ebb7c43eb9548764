//! The parser reads frames of vanetza's socktap, and the emitter writes the same octets again.

use crate::common::parse_hex;
use crate::fixtures;
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{
    BasicNextHeader, CommonNextHeader, Error, ExtendedHeader, Frame, GnAddress, HeaderType, Packet,
    StationType, Timestamp, TrafficClass,
};
use std::time::Duration;

/// Capture time of frame 1 of the plain capture: 2026-11-21T19:09:52.701361Z.
const CAPTURED_AT_MILLISECONDS: i64 = 1_795_288_192_701;

/// Checks the part that all frames share: SHB from one of two stations, by BTP-B. Returns the number of the
/// station, 1 or 2.
fn check_common_part(packet: &Packet<'_>) -> u64 {
    assert_eq!(packet.basic.lifetime.duration(), Duration::from_secs(60));
    assert_eq!((packet.basic.remaining_hop_limit, packet.common.maximum_hop_limit), (1, 1));
    assert_eq!(packet.common.header_type, HeaderType::SingleHop);
    assert_eq!(packet.common.next_header, CommonNextHeader::BtpB);
    assert_eq!(packet.common.traffic_class, TrafficClass::default());
    assert!(packet.common.mobile);
    let ExtendedHeader::SingleHop { source, media_dependent } = packet.extended else { panic!("{packet:?}") };
    assert_eq!(media_dependent, [0; 4]);
    assert_eq!(source.address.station_type(), StationType::Unknown);
    assert!(source.address.is_manual() && source.accurate && source.is_on_globe());
    let station = source.address.0 & 0xff;
    assert_eq!(source.address, GnAddress(0x8000_0200_0000_0000 | station));
    let position = if station == 1 { (487_668_616, 114_320_679) } else { (487_678_616, 114_330_680) };
    assert_eq!((source.latitude, source.longitude), position);
    station
}

/// Checks which message the packet carries.
fn check_message(packet: &Packet<'_>) {
    let (header, payload) = BtpB::parse(packet.payload).expect("BTP-B");
    assert_eq!(header.destination_port_info, 0);
    match header.destination_port {
        // The payload is a CAM of protocol version 2.
        port::CAM => assert_eq!((payload[..2].to_vec(), payload.len()), (vec![2, 2], 41)),
        42 => assert_eq!(payload, [0xc0, 0xff, 0xee]),
        other => panic!("port {other}"),
    }
}

#[test]
fn packets_of_vanetza_are_decoded() {
    let stations = fixtures::VANETZA_PACKETS.map(|text| {
        let octets = parse_hex(text);
        let packet = Packet::parse(&octets).expect("vanetza's");
        assert_eq!(Frame::parse(&octets), Ok(Frame::Plain(packet)));
        assert_eq!(packet.emit(), octets);
        check_message(&packet);
        // Vanetza's timestamps lack the five leap seconds: the position was 701 ms old.
        let seen = Timestamp::from_unix_milliseconds(CAPTURED_AT_MILLISECONDS, 0);
        let age = seen.milliseconds_since(packet.extended.source().timestamp);
        assert!((0..1000).contains(&age), "{age} ms");
        check_common_part(&packet)
    });
    assert_eq!(stations, [2, 2, 1, 1]);
}

#[test]
fn secured_packets_of_vanetza_keep_their_envelope() {
    for text in fixtures::VANETZA_SECURED_PACKETS {
        let octets = parse_hex(text);
        assert_eq!(Packet::parse(&octets), Err(Error::Secured));
        let Ok(Frame::Secured(secured)) = Frame::parse(&octets) else { panic!("{text}") };
        assert_eq!(secured.basic.next_header, BasicNextHeader::Secured);
        assert_eq!(secured.basic.remaining_hop_limit, 1);
        assert_eq!(secured.secured_message, &octets[4..]);
        // In these envelopes the content begins at octet 7, and octet 6 is its length.
        let length = usize::from(secured.secured_message[6]);
        let inside = &secured.secured_message[7..7 + length];
        let packet = Packet::parse_after_basic(secured.basic, inside).expect("the packet inside");
        check_common_part(&packet);
        check_message(&packet);
        assert_eq!(packet.emit()[4..], *inside);
        assert_eq!(packet.emit()[..4], octets[..4]);
    }
}
