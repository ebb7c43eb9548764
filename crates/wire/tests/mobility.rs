//! The Mobility Header's rules (RFC 6275 6.1, 6.2, 9.2; RFC 3963 4; RFC 4285 5).

mod common;

use carnet_wire::Error;
use carnet_wire::icmpv6::Icmpv6ErrorMessage;
use carnet_wire::mobility::flow_identification::BindingIdentifiers;
use carnet_wire::mobility::{
    BindingError, BindingStatus, BindingUpdateFlags, ControlPacket, MobilityHeader, MobilityHeaderBuilder,
    MobilityOption, MobilityOptions, ParsedMobilityMessage, authentication_field, builder, set_checksum,
};
use common::{parse_address, parse_hex, to_hex};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const IPV4_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const C: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 3);

fn update_builder() -> MobilityHeaderBuilder {
    MobilityHeaderBuilder::binding_update(7, BindingUpdateFlags::default(), 15)
}

fn mn_ha_option(data: &[u8]) -> MobilityOption<'_> {
    MobilityOption::Authentication { subtype: 1, spi: 300, data }
}

fn mn_aaa_option(data: &[u8]) -> MobilityOption<'_> {
    MobilityOption::Authentication { subtype: 2, spi: 3, data }
}

#[test]
fn mobility_messages_without_options_are_parsed() {
    // RFC 6275: a Binding Update or Binding Acknowledgement without options has 4 octets of padding.
    assert_eq!(to_hex(&update_builder().finish()), "3b01050000000007 0000000f01020000".replace(' ', ""));
    let acknowledgement = MobilityHeaderBuilder::binding_acknowledgement(135, true, true, 0x1234, 0).finish();
    assert_eq!(to_hex(&acknowledgement), "3b010600000087c01234000001020000");
    assert_eq!(to_hex(&MobilityHeaderBuilder::binding_refresh_request().finish()), "3b00000000000000");
    let error = MobilityHeaderBuilder::binding_error(1, A).finish();
    assert_eq!(to_hex(&error), "3b020700000001002001 0db8000000000000000000000001".replace(' ', ""));
    let header = MobilityHeader::parse(&error).expect("fine");
    let expected = BindingError { status: BindingError::UNKNOWN_BINDING, home_address: A };
    assert_eq!(header.message(), Ok(ParsedMobilityMessage::BindingError(expected)));
}

#[test]
fn each_mobility_flag_is_encoded_and_decoded() {
    let all = BindingUpdateFlags::from_bits(0xffff);
    assert!(all.proxy && !all.overwrite, "with P, bit 0x0040 is not O");
    assert_eq!(all.bits(), 0xff80);
    type FlagAccessor = fn(&BindingUpdateFlags) -> bool;
    let named: [(u16, FlagAccessor); 10] = [
        (0x8000, |flags| flags.acknowledge),
        (0x4000, |flags| flags.home_registration),
        (0x2000, |flags| flags.link_local),
        (0x1000, |flags| flags.key_management),
        (0x0800, |flags| flags.map),
        (0x0400, |flags| flags.mobile_router),
        (0x0200, |flags| flags.proxy),
        (0x0100, |flags| flags.force_udp),
        (0x0080, |flags| flags.tlv),
        (0x0040, |flags| flags.overwrite),
    ];
    for (bit, named_flag) in named {
        let flags = BindingUpdateFlags::from_bits(bit);
        assert!(named_flag(&flags), "{bit:#06x}");
        assert_eq!(flags.bits(), bit);
        let others = named.iter().filter(|(_, other)| other(&flags)).count();
        assert_eq!(others, 1, "{bit:#06x}");
    }
    for bit in [0x20, 0x10, 8, 4, 2, 1] {
        assert_eq!(BindingUpdateFlags::from_bits(bit), BindingUpdateFlags::default());
    }
}

/// RFC 6275 9.2: the parser checks the checksum, then the payload protocol, then the length; the errors give
/// the pointer of the Parameter Problem.
#[test]
fn invalid_mobility_headers_are_refused() {
    let mut good = update_builder().finish();
    set_checksum(&mut good, A, B);
    assert!(MobilityHeader::parse_verified(&good, A, B).is_ok());
    let checksum = Error::Checksum { what: "mobility header", found: u16::from_be_bytes([good[4], good[5]]) };
    assert_eq!(MobilityHeader::parse_verified(&good, A, C), Err(checksum));

    let problem = |error: Error| match error.parameter_problem(100) {
        Some(Icmpv6ErrorMessage::ParameterProblem { code, pointer }) => Some((code, pointer)),
        other => panic!("{other:?}"),
    };
    let mut payload = good.clone();
    payload[0] = 6;
    let error = Error::PayloadProtocol { found: 6 };
    assert_eq!(MobilityHeader::parse(&payload), Err(error));
    assert_eq!(problem(error), Some((0, 100)));
    // The parser checks the checksum first; a node does not answer a wrong checksum.
    let silent = MobilityHeader::parse_verified(&payload, A, B).expect_err("checksum");
    assert!(matches!(silent, Error::Checksum { .. }));
    assert_eq!(silent.parameter_problem(100), None);
    set_checksum(&mut payload, A, B);
    assert_eq!(MobilityHeader::parse_verified(&payload, A, B), Err(error));

    let mut short = good[..8].to_vec();
    short[1] = 0;
    set_checksum(&mut short, A, B);
    let error = Error::HeaderLength { message_type: 5, needed: 12, found: 8 };
    assert_eq!(MobilityHeader::parse_verified(&short, A, B), Err(error));
    assert_eq!(problem(error), Some((0, 101)));

    for (message_type, units) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 1), (6, 1), (7, 2), (99, 0)] {
        for length in 0..4 {
            let mut octets = vec![0; (usize::from(length) + 1) * 8];
            octets[..3].copy_from_slice(&[59, length, message_type]);
            let fits = MobilityHeader::parse(&octets).is_ok();
            assert_eq!(fits, length >= units, "type {message_type}, Header Len {length}");
        }
    }
}

#[test]
fn mobility_header_ends_at_its_length() {
    let mut good = update_builder().finish();
    set_checksum(&mut good, A, B);
    let longer = [&good[..], &[0xff; 5]].concat();
    let header = MobilityHeader::parse_verified(&longer, A, B).expect("what follows is ignored");
    assert_eq!(header.octets(), good);
    for end in 0..good.len() {
        assert!(matches!(MobilityHeader::parse(&good[..end]), Err(Error::Truncated { .. })), "{end}");
    }
}

#[test]
fn unknown_mobility_message_types_are_kept() {
    let header = parse_hex("3b00ff0000000000");
    let header = MobilityHeader::parse(&header).expect("fine");
    assert!(!header.is_known_type());
    assert_eq!(header.message(), Ok(ParsedMobilityMessage::Other(255)));
    // RFC 6275 9.2: the parser checks the MH Type before the payload protocol.
    let both = parse_hex("0600ff0000000000");
    assert_eq!(
        MobilityHeader::parse(&both).and_then(|header| header.message()),
        Ok(ParsedMobilityMessage::Other(255))
    );
    let test_init = parse_hex("3b010100000000000000000000000000");
    let test_init = MobilityHeader::parse(&test_init).expect("fine");
    assert!(test_init.is_known_type());
    assert_eq!(test_init.message(), Ok(ParsedMobilityMessage::Other(1)));
}

#[test]
fn mobility_option_beyond_the_message_refuses_it() {
    for last in ["03ff0000", "0310 0000", "c8030000", "01030000", "00000003", "000000c8"] {
        let octets = parse_hex(&format!("3b010500000000070000000f{last}"));
        let header = MobilityHeader::parse(&octets).expect("fine");
        assert!(matches!(header.message(), Err(Error::Truncated { .. })), "{last}");
    }
    for last in ["00000000", "01020000", "00010100", "c8020000", "c801ff00", "000000 00"] {
        let octets = parse_hex(&format!("3b010500000000070000000f{last}"));
        let header = MobilityHeader::parse(&octets).expect("fine");
        assert!(header.message().is_ok(), "{last}");
    }
}

#[test]
fn every_message_type_refuses_options_beyond_its_end() {
    for octets in [
        MobilityHeaderBuilder::binding_refresh_request()
            .option(&MobilityOption::BindingRefreshAdvice(1))
            .finish(),
        MobilityHeaderBuilder::binding_acknowledgement(0, false, false, 1, 1).finish(),
        MobilityHeaderBuilder::binding_error(1, A).option(&MobilityOption::BindingRefreshAdvice(1)).finish(),
    ] {
        let mut octets = octets;
        assert!(MobilityHeader::parse(&octets).expect("fine").message().is_ok());
        // The last option is a padding of four octets.
        let at = octets.len() - 3;
        octets[at] = 3;
        let message = MobilityHeader::parse(&octets).expect("fine").message();
        assert!(matches!(message, Err(Error::Truncated { .. })), "{message:?}");
    }
}

#[test]
fn mobility_option_with_wrong_length_is_a_single_error() {
    let one = |text: &str| {
        let octets = parse_hex(text);
        let options = MobilityOptions::parse(&octets).expect("structure");
        let read: Vec<_> = options.iter().collect();
        // The parser still reads the options after an invalid one.
        let more = [&octets[..], &parse_hex("02020005")].concat();
        let last = MobilityOptions::parse(&more).expect("structure").iter().last();
        assert_eq!(last, Some(Ok(MobilityOption::BindingRefreshAdvice(5))));
        assert_eq!(read.len(), 1);
        read[0].map(|option| option.option_type())
    };
    let length = |what, expected, found| Err(Error::Length { what, expected, found });
    assert_eq!(one("020100"), length("binding refresh advice option", "2", 1));
    assert_eq!(one("0203000000"), length("binding refresh advice option", "2", 3));
    assert_eq!(
        one(&format!("030f{}", "00".repeat(15))),
        length("alternate care-of address option", "16", 15)
    );
    assert_eq!(one(&format!("0310{}", "00".repeat(16))), Ok(3));
    assert_eq!(one(&format!("0611{}", "00".repeat(17))), length("mobile network prefix option", "18", 17));
    assert_eq!(one(&format!("06120080{}", "00".repeat(16))), Ok(6));
    let long = Error::Value { what: "mobile network prefix length", expected: "at most 128", found: 129 };
    assert_eq!(one(&format!("06120081{}", "00".repeat(16))), Err(long));
    assert_eq!(one("080101"), length("mobile node identifier option", "at least 2", 1));
    assert_eq!(one("0904 01000001"), length("authentication option", "at least 5", 4));
    assert_eq!(one("0905 0100000001"), Ok(9));
    assert_eq!(one("0a0700000000000000"), length("message identifier option", "8", 7));
    // An option of an unknown type may have any length.
    assert_eq!(one("c80100"), Ok(200));
    assert_eq!(one("2a00"), Ok(42));
}

/// Options of RFC 5094, 5555, 5648, 5847 and 6089: the parser rejects each wrong length and ignores reserved
/// bits.
#[test]
fn length_of_each_mobility_option_is_checked() {
    let all = [
        (19, "vendor specific option", "at least 5", vec![5, 6, 30]),
        (28, "restart counter option", "4", vec![4]),
        (29, "IPv4 home address option", "6", vec![6]),
        (30, "IPv4 address acknowledgement option", "6", vec![6]),
        (31, "NAT detection option", "6", vec![6]),
        (32, "IPv4 care-of address option", "6", vec![6]),
        (35, "binding identifier option", "4, 8 or 20", vec![4, 8, 20]),
        (44, "flow summary option", "a positive multiple of 2", vec![2, 4, 254]),
        (45, "flow identification option", "at least 6", vec![6, 7, 255]),
    ];
    for (option_type, what, expected, good) in all {
        for length in 0..=255u8 {
            let octets = [&[option_type, length][..], &vec![0xff; usize::from(length)]].concat();
            let options = MobilityOptions::parse(&octets).expect("structure");
            let read: Vec<_> = options.iter().collect();
            let found = usize::from(length);
            let fits = good.contains(&length)
                || expected.starts_with("at least") && length >= good[0]
                || expected.ends_with("multiple of 2") && length > 0 && length.is_multiple_of(2);
            if fits {
                let option = read[0].expect("a length that fits");
                assert_eq!((option.option_type(), option.data_length()), (option_type, found));
            } else {
                assert_eq!(read, [Err(Error::Length { what, expected, found })]);
            }
            let typed: Vec<_> = options.iter_with_types().collect();
            assert_eq!(typed, [(option_type, read[0])]);
        }
    }
    let one = |text: &str| {
        let octets = parse_hex(text);
        MobilityOptions::parse(&octets)
            .expect("structure")
            .iter()
            .next()
            .expect("one")
            .map(|o| format!("{o:?}"))
    };
    let as_text = |option: MobilityOption<'_>| Ok(format!("{option:?}"));
    let address = Ipv4Addr::new(192, 0, 2, 7);
    assert_eq!(
        one("1d06 63ff c0000207"),
        as_text(MobilityOption::Ipv4HomeAddress { prefix_length: 24, prefix: true, address })
    );
    assert_eq!(
        one("1e06 8463 c0000207"),
        as_text(MobilityOption::Ipv4AddressAcknowledgement { status: 132, prefix_length: 24, address })
    );
    assert_eq!(
        one("1f06 7fff 00000019"),
        as_text(MobilityOption::NatDetection { force_udp: false, refresh: 25 })
    );
    assert_eq!(one("2006 ffff c0000207"), as_text(MobilityOption::Ipv4CareOfAddress(address)));
    let bid = |status, home, priority, care_of_address| {
        as_text(MobilityOption::BindingIdentifier { bid: 0x102, status, home, priority, care_of_address })
    };
    assert_eq!(one("2304 0102 a7 ff"), bid(167, true, 127, None));
    assert_eq!(one("2308 0102 00 05 c0000207"), bid(0, false, 5, Some(address.into())));
}

fn binding_identifier_option(care_of_address: Option<IpAddr>) -> MobilityOption<'static> {
    MobilityOption::BindingIdentifier { bid: 1, status: 0, home: false, priority: 10, care_of_address }
}

/// The builder puts each option at its alignment, with the least padding before it.
#[test]
fn every_mobility_option_is_aligned() {
    let data = [0xaa; 32];
    let all = [
        (MobilityOption::BindingRefreshAdvice(1), 2, 0),
        (MobilityOption::AlternateCareOfAddress(A), 8, 6),
        (MobilityOption::MobileNetworkPrefix { prefix: A, prefix_length: 64 }, 8, 4),
        (MobilityOption::MobileNodeIdentifier { subtype: 1, identifier: b"a@b" }, 1, 0),
        (mn_ha_option(&data[..12]), 4, 1),
        (MobilityOption::MessageIdentifier(1), 8, 2),
        (MobilityOption::Unknown { option_type: 4, data: &data[..4] }, 2, 0),
        (MobilityOption::Unknown { option_type: 5, data: &data[..12] }, 8, 2),
        (MobilityOption::Unknown { option_type: 26, data: &data[..16] }, 8, 6),
        (MobilityOption::VendorSpecific { vendor: 32_473, sub_type: 1, data: &data[..3] }, 4, 2),
        (MobilityOption::RestartCounter(7), 4, 2),
        (MobilityOption::Ipv4HomeAddress { prefix_length: 32, prefix: false, address: IPV4_ADDRESS }, 4, 0),
        (
            MobilityOption::Ipv4AddressAcknowledgement {
                status: 0,
                prefix_length: 32,
                address: IPV4_ADDRESS,
            },
            4,
            0,
        ),
        (MobilityOption::NatDetection { force_udp: true, refresh: 25 }, 4, 0),
        (MobilityOption::Ipv4CareOfAddress(IPV4_ADDRESS), 4, 0),
        (binding_identifier_option(None), 2, 0),
        (binding_identifier_option(Some(IPV4_ADDRESS.into())), 8, 2),
        (binding_identifier_option(Some(A.into())), 8, 2),
        (MobilityOption::FlowSummary(BindingIdentifiers::parse(&data[..4], "").expect("two")), 2, 0),
        // The selector in the option requires the alignment of 8n.
        (
            MobilityOption::FlowIdentification { fid: 1, priority: 1, status: 0, sub_options: &data[..5] },
            8,
            0,
        ),
        (MobilityOption::Unknown { option_type: 200, data: &data[..3] }, 1, 0),
    ];
    for filler in 0..8 {
        for (option, unit, offset) in all {
            let before =
                update_builder().option(&MobilityOption::Unknown { option_type: 99, data: &data[..filler] });
            let at = 14 + filler;
            let octets = before.option(&option).finish();
            let place = (at..).find(|place| place % unit == offset).expect("a place");
            assert_eq!(octets[place], option.option_type(), "{option:?} after {at}");
            match place - at {
                0 => {}
                1 => assert_eq!(octets[at], 0, "Pad1"),
                n => {
                    let expected = [&[1, u8::try_from(n - 2).expect("short")][..], &vec![0; n - 2]].concat();
                    assert_eq!(octets[at..place], expected, "PadN");
                }
            }
            assert!(octets.len().is_multiple_of(8));
            assert_eq!(usize::from(octets[1]), octets.len() / 8 - 1);
            let end = place + 2 + option.data_length();
            assert!(octets.len() - end < 8, "no more padding at the end than needed");
        }
    }
}

#[test]
fn mobility_options_beyond_buffer_are_omitted() {
    let prefix = MobilityOption::MobileNetworkPrefix { prefix: A, prefix_length: 64 };
    let mut some = update_builder();
    for _ in 0..84 {
        some = some.option(&prefix);
    }
    // The message has 12 + 20 + 83 * 24 = 2024 octets. One more prefix fills the header to its last octet,
    // 2048.
    assert_eq!(some.clone().try_finish().expect("fits").len(), 2024);
    let full = some.option(&prefix);
    assert_eq!(full.clone().try_finish().expect("fits").len(), builder::MAX_LEN);
    let small = full.clone().option(&MobilityOption::Unknown { option_type: 200, data: &[] });
    assert!(matches!(small.try_finish(), Err(Error::Value { found: 200, .. })));
    let over = full.option(&prefix);
    assert!(matches!(over.clone().try_finish(), Err(Error::Value { found: 6, .. })));
    let octets = over.finish();
    assert_eq!((octets.len(), octets[1]), (builder::MAX_LEN, 255));
    assert!(MobilityHeader::parse(&octets).expect("fine").message().is_ok());
    let long = update_builder().option(&MobilityOption::Unknown { option_type: 200, data: &[0; 256] });
    assert!(matches!(long.clone().try_finish(), Err(Error::Value { found: 200, .. })));
    assert_eq!(long.finish(), update_builder().finish());
}

#[test]
fn mobility_checksum_covers_routing_header_addresses() {
    let cases = [
        (None, None, A, B, 40, 135),
        (Some(C), None, C, B, 64, 60),
        (None, Some(C), A, C, 64, 43),
        (Some(C), Some(parse_address("2001:db8::4")), C, parse_address("2001:db8::4"), 88, 43),
    ];
    for (home_address, routing_home_address, pseudo_source, pseudo_destination, offset, next) in cases {
        let mut mobility_header = update_builder().finish();
        let packet = ControlPacket {
            source: A,
            destination: B,
            hop_limit: 64,
            home_address,
            routing_home_address,
            mobility_header: &mut mobility_header,
        }
        .emit();
        let extensions = carnet_wire::extension::ExtensionHeaders::parse(&packet).expect("fine");
        assert_eq!((extensions.upper_layer_offset, packet[6]), (offset, next));
        assert_eq!(extensions.home_address, home_address);
        assert_eq!(extensions.routing_home_address, routing_home_address);
        let read = MobilityHeader::parse_verified(&packet[offset..], pseudo_source, pseudo_destination);
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(packet[offset..], mobility_header);
    }
}

#[test]
fn authentication_option_must_be_last() {
    let data = [0x55; 12];
    let find = |builder: MobilityHeaderBuilder| authentication_field(&builder.finish());
    assert_eq!(find(update_builder()), Ok(None));
    assert_eq!(find(update_builder().option(&mn_aaa_option(&data))), Ok(None));
    assert_eq!(find(MobilityHeaderBuilder::binding_refresh_request()), Ok(None));
    let field = find(update_builder().option(&mn_ha_option(&data))).expect("fine").expect("there");
    assert_eq!((field.spi, field.covered_range, field.data_range), (300, 0..20, 20..32));
    // Behind MN-HA only MN-AAA and padding may follow.
    let both = find(update_builder().option(&mn_ha_option(&data)).option(&mn_aaa_option(&data)));
    assert_eq!(both.expect("fine").expect("there").covered_range, 0..20);
    let advice = MobilityOption::BindingRefreshAdvice(3);
    let unknown = MobilityOption::Unknown { option_type: 200, data: &[] };
    let identified = MobilityOption::MobileNodeIdentifier { subtype: 1, identifier: b"bus@example" };
    for option in [advice, unknown, identified] {
        let refused = find(update_builder().option(&mn_ha_option(&data)).option(&option));
        assert!(matches!(refused, Err(Error::Order { .. })), "{option:?}");
        let before = find(update_builder().option(&option).option(&mn_ha_option(&data)));
        assert!(matches!(before, Ok(Some(_))), "{option:?}");
    }
    let acknowledged =
        MobilityHeaderBuilder::binding_acknowledgement(0, false, true, 7, 15).option(&mn_ha_option(&data));
    assert!(matches!(find(acknowledged), Ok(Some(_))));
    // RFC 4285 5: a message has at most one option of each subtype, and MN-HA before MN-AAA.
    let repeated = find(update_builder().option(&mn_ha_option(&data)).option(&mn_ha_option(&data)));
    assert_eq!(repeated, Err(Error::Repeated { what: "MN-HA authentication option" }));
    let repeated = find(
        update_builder()
            .option(&mn_ha_option(&data))
            .option(&mn_aaa_option(&data))
            .option(&mn_aaa_option(&data)),
    );
    assert_eq!(repeated, Err(Error::Repeated { what: "MN-AAA authentication option" }));
    let swapped = find(update_builder().option(&mn_aaa_option(&data)).option(&mn_ha_option(&data)));
    assert!(matches!(swapped, Err(Error::Order { .. })));
    // An authentication option too short for its SPI is an error.
    let short = parse_hex("3b02050000000007 0000000f 0904 01000000 010400000000".replace(' ', "").as_str());
    let expected = Error::Length { what: "authentication option", expected: "at least 5", found: 4 };
    assert_eq!(authentication_field(&short), Err(expected));
    // The parser accepts empty authentication data: the caller knows the algorithm and its length.
    let empty = find(update_builder().option(&mn_ha_option(&[]))).expect("fine").expect("there");
    assert!(empty.data_range.is_empty());
}

#[test]
fn mac_covers_the_checksum_field_as_zero() {
    let mut octets = update_builder().option(&mn_ha_option(&[0; 12])).finish();
    let before = authentication_field(&octets).expect("fine").expect("there");
    let covered = |octets: &[u8]| before.covered_octets(octets).expect("the same header").concat();
    let with_zero = covered(&octets);
    assert_eq!(with_zero, octets[..20]);
    set_checksum(&mut octets, A, B);
    assert_ne!(octets[4..6], [0, 0]);
    assert_eq!(covered(&octets), with_zero);
    assert_eq!(before.covered_octets(&octets[..19]), None);
}

#[test]
fn binding_acknowledgement_statuses_match_the_rfcs() {
    assert!(!BindingStatus::ACCEPTED.is_rejection());
    assert!(!BindingStatus(127).is_rejection());
    assert!(BindingStatus(128).is_rejection());
    assert_eq!(BindingStatus::INVALID_CARE_OF_ADDRESS.0, 174);
    assert_eq!(BindingStatus::NOT_AUTHORIZED_FOR_PREFIX.to_string(), "142 (Not Authorized for Prefix)");
    assert_eq!(BindingStatus(200).meaning(), "unassigned");
    assert_eq!(u8::from(BindingStatus::from(135)), 135);
}
