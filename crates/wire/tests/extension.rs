//! The chain of extension headers: fields that the parser returns, packets that it rejects, and pointers of
//! the Parameter Problems.

mod common;

use carnet_wire::Error;
use carnet_wire::extension::{
    ExtensionHeaders, MAX_HEADERS, SEQUENCE_OPTION, emit_home_address_options_header,
    emit_home_address_routing_header, emit_sequence_options_header, find_upper_layer,
};
use carnet_wire::fragment::FragmentHeader;
use carnet_wire::icmpv6::{Icmpv6ErrorMessage, may_send_error};
use carnet_wire::ipv6::{Header, is_unicast_routable, protocol};
use common::parse_address;
use std::net::Ipv6Addr;

const HOME_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x1234);

/// Returns a packet with the given first header and payload.
fn ipv6_packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: u16::try_from(payload.len()).expect("short"),
        next_header,
        hop_limit: 64,
        source: parse_address("2001:db8::1"),
        destination: parse_address("2001:db8::2"),
    };
    [&header.emit()[..], payload].concat()
}

fn parameter_problem_of(packet: &[u8]) -> Option<(u8, u32)> {
    let error = ExtensionHeaders::parse(packet).expect_err("a fault");
    match error.parameter_problem(0)? {
        Icmpv6ErrorMessage::ParameterProblem { code, pointer } => Some((code, pointer)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn packet_without_extension_header_is_parsed() {
    let extensions = ExtensionHeaders::parse(&ipv6_packet(protocol::UDP, &[0; 8])).expect("fine");
    assert_eq!((extensions.protocol, extensions.upper_layer_offset), (protocol::UDP, 40));
    assert_eq!(extensions.home_address.or(extensions.routing_home_address), None);
    let nothing = ExtensionHeaders::parse(&ipv6_packet(protocol::NO_NEXT_HEADER, &[])).expect("fine");
    assert_eq!((nothing.protocol, nothing.upper_layer_offset), (protocol::NO_NEXT_HEADER, 40));
}

#[test]
fn every_known_extension_header_is_parsed() {
    // The headers are hop-by-hop, destination options with a tunnel limit, routing, home address, and
    // fragment 0.
    let mut payload = vec![protocol::DESTINATION_OPTIONS, 0, 5, 2, 0, 0, 1, 0];
    payload.extend(emit_sequence_options_header(protocol::DESTINATION_OPTIONS, 0x0102_0304));
    payload.extend([protocol::ROUTING, 0, 4, 1, 3, 1, 1, 0]);
    payload.extend(emit_home_address_routing_header(
        protocol::DESTINATION_OPTIONS,
        parse_address("2001:db8::99"),
    ));
    payload.extend(emit_home_address_options_header(protocol::FRAGMENT, HOME_ADDRESS));
    let fragment = FragmentHeader { next_header: 17, offset: 0, more_fragments: true, identification: 7 };
    payload.extend(fragment.emit());
    payload.extend([0; 8]);
    let extensions = ExtensionHeaders::parse(&ipv6_packet(protocol::HOP_BY_HOP, &payload)).expect("fine");
    assert_eq!(
        extensions,
        ExtensionHeaders {
            home_address: Some(HOME_ADDRESS),
            home_address_offset: Some(40 + 8 + 8 + 8 + 24 + 6),
            routing_home_address: Some(parse_address("2001:db8::99")),
            tunnel_encapsulation_limit: Some(3),
            tunnel_encapsulation_limit_offset: Some(40 + 8 + 8 + 4),
            sequence: Some(0x0102_0304),
            fragment: Some(fragment),
            protocol: protocol::UDP,
            upper_layer_offset: 40 + 8 + 8 + 8 + 24 + 24 + 8,
        }
    );
}

#[test]
fn later_fragment_ends_header_chain() {
    let fragment = FragmentHeader {
        next_header: protocol::DESTINATION_OPTIONS,
        offset: 1232,
        more_fragments: false,
        identification: 7,
    };
    let payload = [&fragment.emit()[..], &[0xff; 16]].concat();
    let it = ipv6_packet(protocol::FRAGMENT, &payload);
    let extensions = ExtensionHeaders::parse(&it).expect("fine");
    assert_eq!(extensions.fragment, Some(fragment));
    assert_eq!((extensions.protocol, extensions.upper_layer_offset), (protocol::DESTINATION_OPTIONS, 48));
    assert_eq!(find_upper_layer(&it), Some((protocol::DESTINATION_OPTIONS, 48, false)));
    let twice = [&[protocol::FRAGMENT, 0, 0, 1, 0, 0, 0, 1][..], &[6, 0, 0, 0, 0, 0, 0, 2]].concat();
    assert_eq!(
        ExtensionHeaders::parse(&ipv6_packet(protocol::FRAGMENT, &twice)),
        Err(Error::Repeated { what: "fragment header" })
    );
}

/// An extension header with [`SEQUENCE_OPTION`] gives the sequence number of a copied packet.
#[test]
fn duplicate_number_option_is_parsed() {
    let whole = |option: &[u8]| [&[protocol::NO_NEXT_HEADER, 0][..], option].concat();
    let parse = |next_header, option: &[u8]| {
        ExtensionHeaders::parse(&ipv6_packet(next_header, &whole(option))).expect("fine").sequence
    };
    let numbered = [SEQUENCE_OPTION, 4, 0xff, 0, 0, 1];
    assert_eq!(parse(protocol::DESTINATION_OPTIONS, &numbered), Some(0xff00_0001));
    // The parser ignores the option if its length is not 4, or if it is in a Hop-by-Hop Options header.
    assert_eq!(parse(protocol::DESTINATION_OPTIONS, &[SEQUENCE_OPTION, 3, 1, 2, 3, 0]), None);
    assert_eq!(parse(protocol::HOP_BY_HOP, &numbered), None);
}

/// RFC 8200 4.2: the two highest bits of an unknown option say how a receiver handles the packet.
#[test]
fn unknown_options_follow_their_action_bits() {
    let with = |option_type| {
        ipv6_packet(protocol::DESTINATION_OPTIONS, &[protocol::UDP, 0, 0, option_type, 2, 0, 0, 0])
    };
    assert!(ExtensionHeaders::parse(&with(0x1e)).is_ok(), "00 is skipped");
    for option_type in [0x5e, 0x9e, 0xde] {
        let error = ExtensionHeaders::parse(&with(option_type));
        assert_eq!(error, Err(Error::UnrecognizedOption { option_type, offset: 43 }));
    }
    assert_eq!(parameter_problem_of(&with(0x5e)), None, "01 is silent");
    assert_eq!(parameter_problem_of(&with(0x9e)), Some((2, 43)));
    assert_eq!(parameter_problem_of(&with(0xde)), Some((2, 43)));
    // If the destination is multicast, only an option type with highest bits 10 causes an answer.
    for (option_type, answered) in [(0x9e, true), (0xde, false)] {
        let mut multicast = with(option_type);
        multicast[24] = 0xff;
        let error = ExtensionHeaders::parse(&multicast).expect_err("unknown option");
        let problem = error.parameter_problem(0).expect("answered");
        assert_eq!(may_send_error(problem, &multicast), answered);
    }
    // A Home Address option belongs in destination options, not in hop-by-hop options.
    let mut hop_by_hop = emit_home_address_options_header(protocol::UDP, HOME_ADDRESS).to_vec();
    assert!(ExtensionHeaders::parse(&ipv6_packet(protocol::DESTINATION_OPTIONS, &hop_by_hop)).is_ok());
    assert_eq!(parameter_problem_of(&ipv6_packet(protocol::HOP_BY_HOP, &hop_by_hop)), Some((2, 46)));
    hop_by_hop.truncate(20);
    let cut = ExtensionHeaders::parse(&ipv6_packet(protocol::DESTINATION_OPTIONS, &hop_by_hop));
    assert_eq!(cut, Err(Error::Truncated { what: "options header", needed: 64, found: 60 }));
}

#[test]
fn invalid_home_address_options_are_refused() {
    let mut long = emit_home_address_options_header(protocol::UDP, HOME_ADDRESS);
    long[7] = 17;
    let refused = ExtensionHeaders::parse(&ipv6_packet(protocol::DESTINATION_OPTIONS, &long));
    assert_eq!(refused, Err(Error::Truncated { what: "option", needed: 65, found: 64 }));
    let mut short = emit_home_address_options_header(protocol::UDP, HOME_ADDRESS);
    short[7] = 15;
    let refused = ExtensionHeaders::parse(&ipv6_packet(protocol::DESTINATION_OPTIONS, &short));
    assert_eq!(refused, Err(Error::Length { what: "home address option", expected: "16", found: 15 }));
    // RFC 6275 6.3: a packet has at most one Home Address option.
    let twice = [
        emit_home_address_options_header(protocol::DESTINATION_OPTIONS, HOME_ADDRESS),
        emit_home_address_options_header(protocol::UDP, HOME_ADDRESS),
    ]
    .concat();
    let refused = ExtensionHeaders::parse(&ipv6_packet(protocol::DESTINATION_OPTIONS, &twice));
    assert_eq!(refused, Err(Error::Repeated { what: "home address option" }));
    // The header ends behind the Option Type: the option lacks its length octet.
    let header = [protocol::UDP, 0, 1, 3, 0, 0, 0, 0xc9];
    assert!(ExtensionHeaders::parse(&ipv6_packet(protocol::DESTINATION_OPTIONS, &header)).is_err());
}

/// RFC 6275 6.4.1 and 11.3.3, RFC 8200 4.4: which routing headers the parser rejects.
#[test]
fn invalid_routing_headers_are_refused() {
    let good = emit_home_address_routing_header(protocol::UDP, HOME_ADDRESS);
    for (at, value, what, offset) in
        [(1, 4, "header length", 41), (3, 0, "segments left", 43), (3, 2, "segments left", 43)]
    {
        let mut payload = [&good[..], &[0; 16]].concat();
        payload[at] = value;
        let it = ipv6_packet(protocol::ROUTING, &payload);
        let expected = good[at];
        let error = Error::HomeAddressRouting { what, expected, found: value, offset };
        assert_eq!(ExtensionHeaders::parse(&it), Err(error));
        assert_eq!(parameter_problem_of(&it), None, "RFC 6275 11.3.3: silently discarded");
    }
    let twice = [emit_home_address_routing_header(protocol::ROUTING, HOME_ADDRESS), good].concat();
    let refused = ExtensionHeaders::parse(&ipv6_packet(protocol::ROUTING, &twice));
    assert_eq!(refused, Err(Error::Repeated { what: "type 2 routing header" }));
    // The parser skips a routing header of unknown type if it has no segments left, and rejects it otherwise.
    let mut other = good;
    other[2] = 4;
    assert_eq!(parameter_problem_of(&ipv6_packet(protocol::ROUTING, &other)), Some((0, 42)));
    other[3] = 0;
    let skipped = ExtensionHeaders::parse(&ipv6_packet(protocol::ROUTING, &other)).expect("skipped");
    assert_eq!((skipped.routing_home_address, skipped.upper_layer_offset), (None, 64));
}

#[test]
fn hop_by_hop_options_must_come_first() {
    let payload = [[protocol::HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0], [17, 0, 1, 4, 0, 0, 0, 0]].concat();
    assert_eq!(parameter_problem_of(&ipv6_packet(protocol::DESTINATION_OPTIONS, &payload)), Some((1, 40)));
    assert_eq!(parameter_problem_of(&ipv6_packet(protocol::HOP_BY_HOP, &payload)), Some((1, 40)));
}

#[test]
fn number_of_extension_headers_is_bounded() {
    let chain = |count: usize| {
        let mut payload = [protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(count);
        let last = payload.len() - 8;
        payload[last] = protocol::UDP;
        ipv6_packet(protocol::DESTINATION_OPTIONS, &payload)
    };
    assert_eq!(ExtensionHeaders::parse(&chain(MAX_HEADERS)).expect("eight").upper_layer_offset, 40 + 64);
    assert_eq!(find_upper_layer(&chain(MAX_HEADERS)), Some((protocol::UDP, 40 + 64, true)));
    let error = ExtensionHeaders::parse(&chain(MAX_HEADERS + 1));
    assert_eq!(error, Err(Error::TooManyHeaders { limit: MAX_HEADERS }));
    assert_eq!(find_upper_layer(&chain(MAX_HEADERS + 1)), None);
}

#[test]
fn octets_beyond_payload_length_are_ignored() {
    let mut it = ipv6_packet(
        protocol::DESTINATION_OPTIONS,
        &emit_home_address_options_header(protocol::UDP, HOME_ADDRESS),
    );
    it[5] = 16;
    assert!(matches!(ExtensionHeaders::parse(&it), Err(Error::Truncated { needed: 64, found: 56, .. })));
    it[5] = 25;
    let missing = Error::Truncated { what: "IPv6 payload", needed: 65, found: 64 };
    assert_eq!(ExtensionHeaders::parse(&it), Err(missing));
    it[0] = 0x45;
    assert_eq!(Header::parse(&it), Err(Error::Value { what: "IP version", expected: "6", found: 4 }));
}

#[test]
fn unicast_and_routable_addresses_are_recognised() {
    for yes in ["2001:db8::1", "fd00::1", "64:ff9b::1", "64:ff9b::c000:201", "64:ff9b:1:2::1", "100::1"] {
        assert!(is_unicast_routable(parse_address(yes)), "{yes}");
    }
    for no in ["::", "::1", "fe80::1", "ff02::1", "ff0e::1", "::ffff:192.0.2.1", "::192.0.2.1", "::2"] {
        assert!(!is_unicast_routable(parse_address(no)), "{no}");
    }
    // These addresses are inside of ::/8 and outside of the NAT64 prefixes, so they are reserved.
    for no in
        ["64:ff9b:0:1::1", "64:ff9b:0:0:1::1", "64:ff9b::1:0:0:1", "64:ff9b:2::1", "63:ff9b::1", "ff::1"]
    {
        assert!(!is_unicast_routable(parse_address(no)), "{no}");
    }
}
