//! A function that passes octets to every GeoNetworking parser. For any octets, the function returns without
//! a panic, and its assertions hold. The fuzz target `geonet` calls it.

use std::hint::black_box;

use carnet_wire::btp::{BtpA, BtpB};
use carnet_wire::geonet::{
    BasicHeader, CommonHeader, Error, ExtendedHeader, Frame, HeaderType, Lifetime, Packet,
    ShortPositionVector, set_destination, set_lifetime, set_remaining_hop_limit,
};

/// Passes octets to every parser; its assertions hold for any octets. Returns whether the octets are a
/// packet.
pub fn parse_everything(octets: &[u8]) -> bool {
    let _ = black_box((BasicHeader::parse(octets), CommonHeader::parse(octets)));
    let _ = black_box((BtpA::parse(octets), BtpB::parse(octets)));
    for header_type in 0..=0x62 {
        let header_type = HeaderType::from_octet(header_type);
        if let Ok(extended) = ExtendedHeader::parse(header_type, octets) {
            assert_eq!(extended.header_type(), header_type);
            assert!(extended.len() <= octets.len());
        }
    }
    match Frame::parse(octets) {
        Ok(Frame::Secured(secured)) => assert_eq!(secured.secured_message, &octets[4..]),
        Ok(Frame::Plain(packet)) => {
            assert_eq!(Packet::parse(octets), Ok(packet));
            assert!(packet.len() <= octets.len());
            assert_eq!(packet.payload, &octets[packet.payload_offset()..packet.len()]);
        }
        Err(error) => {
            assert_ne!(error, Error::Secured);
            assert!(!error.to_string().is_empty());
        }
    }
    let mut copy = octets.to_vec();
    let _ = black_box(set_destination(&mut copy, &ShortPositionVector::default()));
    let _ = black_box(set_remaining_hop_limit(&mut copy, 0));
    let _ = black_box(set_lifetime(&mut copy, Lifetime::ZERO));
    let Ok(packet) = Packet::parse(octets) else { return false };
    let again = packet.emit();
    assert_eq!(again.len(), packet.len());
    assert_eq!(Packet::parse(&again), Ok(packet));
    true
}
