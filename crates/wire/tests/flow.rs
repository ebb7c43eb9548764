//! The options of flow bindings, octet by octet as in the figures of RFC 6088 and RFC 6089.

mod common;

use carnet_wire::Error;
use carnet_wire::mobility::flow_identification::{
    FlowAction, FlowActionOption, FlowSubOptions, SelectorField, emit_binding_identifiers, emit_sub_options,
};
use carnet_wire::mobility::traffic_selector::{Ipv4Selector, Ipv6Selector, TrafficSelector, ValueRange};
use carnet_wire::mobility::{BindingUpdateFlags, MobilityHeaderBuilder, MobilityOption, MobilityOptions};
use common::{parse_hex, to_hex};

fn without_spaces(text: &str) -> String {
    to_hex(&parse_hex(text))
}

/// A flow of UDP packets to port 5000 is bound to Binding Identifier 2. The expected Flow Identification
/// option is made by hand, after RFC 6089 figures 2, 4 and 5 and RFC 6088 figure 2.
#[test]
fn flow_option_with_one_binding_is_parsed() {
    let selector = TrafficSelector::Ipv6(Ipv6Selector {
        destination_port: Some(ValueRange::single(5000)),
        next_header: Some(ValueRange::single(17)),
        ..Ipv6Selector::default()
    });
    // From the left, K (destination port) is bit 10 and O (next header) is bit 14: 0000 0000 0010 0010.
    let by_hand = "2d 17  0004 000a 00 00   03 09 02 00 0022 0000 1388 11   00   02 02 0002";
    let octets = emit_sub_options(Some(&selector), &[2]);
    let option = MobilityOption::FlowIdentification { fid: 4, priority: 10, status: 0, sub_options: &octets };
    let message =
        MobilityHeaderBuilder::binding_update(1, BindingUpdateFlags::default(), 1).option(&option).finish();
    // The Binding Update's fixed part is 12 octets. After 4 octets of padding, the option begins at a
    // multiple of 8.
    let by_hand = by_hand.replacen("17", &format!("{:02x}", 6 + octets.len()), 1);
    assert_eq!(to_hex(&message[12..]), without_spaces(&format!("0102 0000 {by_hand}")));

    let padded = parse_hex(&by_hand);
    let read: Vec<_> = MobilityOptions::parse(&padded).expect("structure").iter().collect();
    assert_eq!(read, [Ok(option)]);
    let read = FlowSubOptions::parse(&octets).expect("sub-options");
    assert_eq!(read.selector, Some(SelectorField::Known(selector)));
    assert_eq!(read.bids.expect("a reference").iter().collect::<Vec<_>>(), [2]);
}

/// Every field of an IPv6 selector is at its place (RFC 6088 figure 2).
#[test]
fn ipv6_selector_with_all_fields_is_parsed() {
    let selector = Ipv6Selector {
        source: Some(ValueRange::new(
            "2001:db8:c::".parse().expect("address"),
            "2001:db8:c::ff".parse().expect("address"),
        )),
        destination: Some(ValueRange::single("2001:db8:a::1".parse().expect("address"))),
        spi: Some(ValueRange::new(0x100, 0x1ff)),
        flow_label: Some(ValueRange::new(0x12345, 0x12346)),
        source_port: Some(ValueRange::new(1, 2)),
        destination_port: Some(ValueRange::new(3, 4)),
        traffic_class: Some(ValueRange::new(0xb8, 0xbc)),
        next_header: Some(ValueRange::new(6, 17)),
    };
    let by_hand = "03 52  02 00 efff 0000
        20010db8000c00000000000000000000 20010db8000c000000000000000000ff
        20010db8000a00000000000000000001
        00000100 000001ff 00012345 00012346 0001 0002 0003 0004 b8 bc 06 11";
    let octets = emit_sub_options(Some(&TrafficSelector::Ipv6(selector)), &[]);
    assert_eq!(to_hex(&octets), without_spaces(by_hand));
    // "The receiver SHOULD ignore the first 8 bits" of a flow label. The parser also ignores reserved bits.
    let dirty = by_hand.replace("00012345", "ff012345").replace("02 00 efff 0000", "02 77 efff 9999");
    let read = FlowSubOptions::parse(&parse_hex(&dirty)).expect("sub-options").selector;
    assert_eq!(read, Some(SelectorField::Known(TrafficSelector::Ipv6(selector))));
}

/// Every field of an IPv4 selector is at its place (RFC 6088 figure 1).
#[test]
fn ipv4_selector_with_all_fields_is_parsed() {
    let address = |last| std::net::Ipv4Addr::new(192, 0, 2, last);
    let selector = Ipv4Selector {
        source: Some(ValueRange::new(address(1), address(9))),
        destination: Some(ValueRange::single(address(77))),
        spi: Some(ValueRange::new(1, 2)),
        source_port: Some(ValueRange::single(53)),
        destination_port: Some(ValueRange::new(5000, 5010)),
        differentiated_services: Some(ValueRange::single(0xb8)),
        protocol: Some(ValueRange::new(6, 17)),
    };
    // Flags A to N: 1110 1110 1110 11, then two reserved bits.
    let by_hand = "03 23  01 00 eeec 0000 c0000201 c0000209 c000024d 00000001 00000002
        0035 1388 1392 b8 06 11";
    let octets = emit_sub_options(Some(&TrafficSelector::Ipv4(selector)), &[]);
    assert_eq!(to_hex(&octets), without_spaces(by_hand));
    let read = FlowSubOptions::parse(&octets).expect("sub-options").selector;
    assert_eq!(read, Some(SelectorField::Known(TrafficSelector::Ipv4(selector))));
}

#[test]
fn invalid_flow_sub_options_are_refused() {
    let parse = |text: &str| FlowSubOptions::parse(&parse_hex(text)).map(|read| read.selector.is_some());
    let selector = "traffic selector";
    // The parser rejects a last value without a first value, a range with last before first, and more or
    // fewer octets than the flags announce.
    let alone = Error::Order { what: selector, expected: "the last of a range only with the first" };
    assert_eq!(parse("03 08 02 00 0010 0000 1388"), Err(alone));
    let backwards = Error::Order { what: selector, expected: "the first of a range before the last" };
    assert_eq!(parse("03 0a 02 00 0030 0000 1388 1387"), Err(backwards));
    assert!(matches!(parse("03 09 02 00 0020 0000 1388 00"), Err(Error::Length { .. })));
    assert!(matches!(parse("03 07 02 00 0020 0000 13"), Err(Error::Truncated { .. })));
    assert!(matches!(parse("03 05 02 00 0000 00"), Err(Error::Truncated { .. })));
    assert!(matches!(parse("03 00"), Err(Error::Truncated { .. })));
    // RFC 6089 4.2.1.3, 4.2.1.4: an option has at most one sub-option of each kind.
    assert_eq!(parse("02 02 0001 02 02 0002"), Err(Error::Repeated { what: "binding reference sub-option" }));
    let twice = "03 06 02 00 0000 0000".repeat(2);
    assert_eq!(parse(&twice), Err(Error::Repeated { what: "traffic selector sub-option" }));
    // The parser rejects a list without a BID, an incomplete BID, and a length beyond the end.
    assert!(matches!(parse("02 00"), Err(Error::Length { .. })));
    assert!(matches!(parse("02 03 000100"), Err(Error::Length { .. })));
    assert!(matches!(parse("02 04 0001"), Err(Error::Truncated { .. })));
    assert!(matches!(parse("07"), Err(Error::Truncated { .. })));
    // The parser skips unknown sub-options and padding, and returns the number of an unknown format.
    assert_eq!(parse("00 01 03 ffffff c8 01 00 03 06 02 00 0000 0000"), Ok(true));
    let unknown = parse_hex("03 03 09 00 ff");
    let unknown = FlowSubOptions::parse(&unknown).expect("sub-options");
    assert_eq!(unknown.selector, Some(SelectorField::Unknown { format: 9 }));
    assert_eq!(parse(""), Ok(false));
}

#[test]
fn flow_summary_option_is_parsed() {
    let octets = [&[44, 6][..], &emit_binding_identifiers(&[1, 2, 0x0304])].concat();
    assert_eq!(to_hex(&octets), without_spaces("2c06 0001 0002 0304"));
    let read: Vec<_> = MobilityOptions::parse(&octets).expect("structure").iter().collect();
    let [Ok(MobilityOption::FlowSummary(fids))] = read[..] else { panic!("{read:?}") };
    assert_eq!(fids.iter().collect::<Vec<_>>(), [1, 2, 0x0304]);
}

#[test]
fn flow_action_option_is_parsed() {
    let option =
        FlowActionOption { fid: 7, action: FlowAction::Balance, binding_weights: vec![(1, 50), (2, 20)] };
    let data = option.emit();
    assert_eq!(to_hex(&data), without_spaces("0007 02 00 0001 0032 0002 0014"));
    let message = MobilityHeaderBuilder::binding_update(1, BindingUpdateFlags::default(), 1)
        .option(&FlowActionOption::vendor_specific_option(&data))
        .finish();
    assert_eq!(
        to_hex(&message[12..]),
        without_spaces("0100 13 11 00007ed9 01 0007 02 00 0001 0032 0002 0014 0105 0000000000")
    );
    let read = |text: &str| {
        FlowActionOption::from_mobility_option(&FlowActionOption::vendor_specific_option(&parse_hex(text)))
    };
    assert!(matches!(read("0007 00 00"), Some(Err(Error::Value { found: 0, .. }))));
    assert!(matches!(read("0007 04 00"), Some(Err(Error::Value { found: 4, .. }))));
    assert!(matches!(read("0007 02 00 0001 0000"), Some(Err(Error::Value { found: 0, .. }))));
    assert!(matches!(read("0007 02 00 0001 00"), Some(Err(Error::Length { .. }))));
    assert!(matches!(read("0007 02"), Some(Err(Error::Truncated { .. }))));
    assert_eq!(FlowActionOption::from_mobility_option(&MobilityOption::RestartCounter(1)), None);
}
