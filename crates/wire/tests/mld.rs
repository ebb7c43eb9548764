//! MLD messages: golden messages of scapy 2.8.0, and invalid messages.

mod common;

use carnet_wire::mld::{GroupRecordType, MAX_QUERIED_SOURCES, MldMessage, MldQueryRepr};
use carnet_wire::{Error, icmpv6};
use common::{RandomNumbers, parse_address, parse_hex};

/// A General Query with a Maximum Response Delay of 10 s, QRV 2 and QQI 125 s.
const GENERAL_QUERY_PACKET: &str = "\
    6000000000240001fe800000000000000000000000000005ff020000000000000000000000000001\
    3a00050200000100820056922710000000000000000000000000000000000000027d0000";
/// Query about two sources of ff1e::42, with S, QRV 3, QQIC 0x8f and a Maximum Response Delay of 1 s.
const SOURCE_SPECIFIC_QUERY_PACKET: &str = "\
    6000000000440001fe800000000000000000000000000005ff1e00000000000000000000000000423\
    a000502000001008200155303e80000ff1e00000000000000000000000000420b8f000220010db800\
                            000000000000000000000120010db8000000000000000000000002";
/// A report with two records: TO_EX({}) of ff1e::42, and BLOCK of two sources of ff1e::43 with four octets of
/// auxiliary data.
const MLD_REPORT_PACKET: &str = "\
    60000000005c0001fe800000000000000000000000000064ff0200000000000000000000000000163a00050\
    2000001008f00496f0000000204000000ff1e000000000000000000000000004206010002ff1e0000000000\
    00000000000000004320010db800000000000000000000000120010db800000000000000000000000261626\
    364";

fn parse(packet: &[u8]) -> Result<MldMessage<'_>, Error> {
    MldMessage::parse_packet(packet).expect("an MLD message").map(|(_, message)| message)
}

/// Returns the packet with the right checksum.
fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    let (source, destination) = (address_octets_at(&packet, 8), address_octets_at(&packet, 24));
    if let Some(message) = packet.get_mut(48..) {
        icmpv6::set_checksum(message, source.into(), destination.into());
    }
    packet
}

fn address_octets_at(packet: &[u8], at: usize) -> [u8; 16] {
    packet[at..at + 16].try_into().expect("an address")
}

#[test]
fn mld_queries_are_encoded_and_decoded() {
    let sources = [parse_address("2001:db8::1"), parse_address("2001:db8::2")];
    let general = MldQueryRepr {
        maximum_response_delay: 10_000,
        group: None,
        suppress_router_timers: false,
        robustness_variable: 2,
        query_interval: 125,
        sources: &[],
    };
    assert_eq!(general.emit_packet(parse_address("fe80::5")), parse_hex(GENERAL_QUERY_PACKET));
    let group = Some(parse_address("ff1e::42"));
    // QQIC 0x8f encodes (0xf | 0x10) << 3, which is 248 s.
    let about = MldQueryRepr {
        maximum_response_delay: 1000,
        group,
        suppress_router_timers: true,
        robustness_variable: 3,
        query_interval: 248,
        sources: &sources,
    };
    assert_eq!(about.emit_packet(parse_address("fe80::5")), parse_hex(SOURCE_SPECIFIC_QUERY_PACKET));
    for (packet, repr) in [(GENERAL_QUERY_PACKET, general), (SOURCE_SPECIFIC_QUERY_PACKET, about)] {
        let packet = parse_hex(packet);
        let Ok(MldMessage::Query(query)) = parse(&packet) else { panic!("a query") };
        assert_eq!((query.maximum_response_delay, query.group), (repr.maximum_response_delay, repr.group));
        let v2 = query.version_2.expect("version 2");
        assert_eq!(
            (v2.suppress_router_timers, v2.robustness_variable, v2.query_interval),
            (repr.suppress_router_timers, repr.robustness_variable, repr.query_interval)
        );
        assert_eq!(v2.sources.iter().collect::<Vec<_>>(), repr.sources);
    }
    // The emitter writes as many sources as fit a packet of 1280 octets, and QRV 0 for a Robustness Variable
    // above 7.
    let many = [sources[0]; MAX_QUERIED_SOURCES + 1];
    let packet = MldQueryRepr { sources: &many, robustness_variable: 8, ..about }
        .emit_packet(parse_address("fe80::5"));
    assert!((1265..=1280).contains(&packet.len()), "{}", packet.len());
    let Ok(MldMessage::Query(query)) = parse(&packet) else { panic!("a query") };
    let v2 = query.version_2.expect("version 2");
    assert_eq!((v2.sources.len(), v2.robustness_variable), (MAX_QUERIED_SOURCES, 0));
}

#[test]
fn mldv2_records_are_decoded_and_extra_octets_ignored() {
    let packet = parse_hex(MLD_REPORT_PACKET);
    let Ok(MldMessage::Report(records)) = parse(&packet) else { panic!("a report") };
    let read: Vec<_> =
        records.iter().map(|it| (it.record_type, it.group, it.sources.iter().collect::<Vec<_>>())).collect();
    let sources = vec![parse_address("2001:db8::1"), parse_address("2001:db8::2")];
    let expected = [
        (Some(GroupRecordType::ToExclude), parse_address("ff1e::42"), vec![]),
        (Some(GroupRecordType::Block), parse_address("ff1e::43"), sources),
    ];
    assert_eq!(read, expected);
    // A report announces more records than it has, or a record exceeds the message: the parser returns the
    // records before the fault.
    for (at, octet) in [(55, 9), (79, 3)] {
        let mut packet = parse_hex(MLD_REPORT_PACKET);
        packet[at] = octet;
        let packet = with_checksum(packet);
        let Ok(MldMessage::Report(records)) = parse(&packet) else { panic!("a report") };
        assert_eq!(records.iter().count(), if at == 55 { 2 } else { 1 });
    }
}

#[test]
fn mldv1_query_is_recognised_by_length() {
    let version_1 = |kind: u8| {
        let mut packet = parse_hex(GENERAL_QUERY_PACKET);
        packet.truncate(72);
        (packet[5], packet[48]) = (32, kind);
        packet[56..72].copy_from_slice(&parse_address("ff1e::42").octets());
        with_checksum(packet)
    };
    let group = parse_address("ff1e::42");
    let packet = version_1(130);
    let Ok(MldMessage::Query(query)) = parse(&packet) else { panic!("a query") };
    assert_eq!((query.group, query.version_2), (Some(group), None));
    assert_eq!(parse(&version_1(131)), Ok(MldMessage::ReportV1(group)));
    assert_eq!(parse(&version_1(132)), Ok(MldMessage::DoneV1(group)));
    // RFC 3810 8.1: a query of 26 octets has no valid version.
    let mut packet = version_1(130);
    packet.extend([0, 0]);
    packet[5] = 34;
    assert!(parse(&with_checksum(packet)).is_err());
}

#[test]
fn mld_packets_that_rfc_3810_discards_are_refused() {
    let changed = |at: usize, octet: u8| {
        let mut packet = parse_hex(MLD_REPORT_PACKET);
        packet[at] = octet;
        packet
    };
    assert_eq!(
        parse(&changed(7, 255)),
        Err(Error::Value { what: "MLD hop limit", expected: "1", found: 255 })
    );
    for packet in [changed(44, 1), changed(42, 6), changed(8, 0x20), changed(50, 0)] {
        assert!(parse(&packet).is_err());
    }
    // A query about an address that is not multicast is invalid.
    let mut unicast = parse_hex(SOURCE_SPECIFIC_QUERY_PACKET);
    unicast[56] = 0x20;
    assert!(parse(&with_checksum(unicast)).is_err());
    // A packet without the Router Alert option is invalid, and a packet without MLD message is ignored.
    let mut plain = parse_hex(MLD_REPORT_PACKET);
    plain.drain(40..48);
    (plain[5], plain[6]) = (84, 58);
    assert!(parse(&plain).is_err());
    assert_eq!(MldMessage::parse_packet(&changed(48, 135)), None);
    assert_eq!(MldMessage::parse_packet(&changed(6, 17)), None);
    assert_eq!(MldMessage::parse_packet(&[]), None);
}

#[test]
fn mutated_mld_messages_cause_no_panic() {
    let packets = [GENERAL_QUERY_PACKET, SOURCE_SPECIFIC_QUERY_PACKET, MLD_REPORT_PACKET].map(parse_hex);
    let mut numbers = RandomNumbers::new(3810);
    for _ in 0..50_000 {
        let mut packet = packets[numbers.number_below(packets.len())].clone();
        packet.truncate(49 + numbers.number_below(packet.len() - 48));
        for _ in 0..=numbers.number_below(4) {
            let at = numbers.number_below(packet.len());
            packet[at] = numbers.number_below(256) as u8;
        }
        let payload = u16::try_from(packet.len() - 40).expect("short");
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
        let packet = with_checksum(packet);
        if let Some(Ok((_, MldMessage::Report(records)))) = MldMessage::parse_packet(&packet) {
            assert!(records.iter().map(|record| record.sources.iter().count()).sum::<usize>() < 100);
        }
    }
}
