//! ICMPv6: error packets, cases without an answer, echo (RFC 4443), and the checks of Neighbor Discovery (RFC
//! 4861).

mod common;

use carnet_wire::Error;
use carnet_wire::discovery::{HomeAgentDiscoveryReply, HomeAgentDiscoveryRequest, emit_discovery_reply};
use carnet_wire::icmpv6::{
    Icmpv6ErrorMessage, answer_echo_request, emit_packet, error_packet, may_send_any_error, may_send_error,
    message_type, parse_error, verify_checksum,
};
use carnet_wire::ipv6::{Header, MIN_MTU, protocol};
use carnet_wire::nd::{
    NdOption, NdOptions, NeighborAdvertisement, NeighborSolicitation, PrefixInformation, RouteInformation,
    RoutePreference, RouterAdvertisement, RouterAdvertisementRepr, RouterSolicitation, check_header,
    emit_router_advertisement, solicited_node_address,
};
use common::{parse_address, parse_hex, to_hex};
use std::net::Ipv6Addr;

const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const MULTICAST_GROUP: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1);

const ERROR_MESSAGES: [Icmpv6ErrorMessage; 4] = [
    Icmpv6ErrorMessage::DestinationUnreachable { code: 3 },
    Icmpv6ErrorMessage::PacketTooBig { mtu: 1400 },
    Icmpv6ErrorMessage::TimeExceeded { code: 0 },
    Icmpv6ErrorMessage::ParameterProblem { code: 1, pointer: 40 },
];

fn udp_packet(source: Ipv6Addr, destination: Ipv6Addr, length: u16) -> Vec<u8> {
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: length,
        next_header: protocol::UDP,
        hop_limit: 64,
        source,
        destination,
    };
    [&header.emit()[..], &vec![0; usize::from(length)]].concat()
}

#[test]
fn icmpv6_error_quotes_at_most_the_minimum_mtu() {
    for error in ERROR_MESSAGES {
        for length in [0, 100, 1184, 1192, 1193, 1400, 9000] {
            let invoking = udp_packet(B, parse_address("2001:db8:5::5"), length);
            let made = error_packet(A, B, error, &invoking);
            assert_eq!(made.len(), (48 + invoking.len()).min(MIN_MTU));
            let (header, message) = Header::parse_packet(&made).expect("IPv6");
            assert_eq!((header.source, header.destination, header.hop_limit), (A, B, 64));
            assert_eq!(header.next_header, protocol::ICMPV6);
            assert_eq!(verify_checksum(A, B, message), Ok(()));
            let (back, quoted) = parse_error(message).expect("an error");
            assert_eq!(back, error);
            assert_eq!(quoted, &invoking[..quoted.len()]);
        }
    }
}

#[test]
fn icmpv6_error_has_the_layout_of_rfc_4443() {
    let made = error_packet(A, B, Icmpv6ErrorMessage::PacketTooBig { mtu: 1400 }, &[0xaa]);
    assert_eq!(to_hex(&made[40..42]), "0200");
    assert_eq!(to_hex(&made[44..]), "00000578aa");
    let made = error_packet(A, B, Icmpv6ErrorMessage::ParameterProblem { code: 2, pointer: 0x2a }, &[]);
    assert_eq!(to_hex(&made[40..42]), "0402");
    assert_eq!(to_hex(&made[44..]), "0000002a");
    let unknown = parse_error(&[5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(unknown, Err(Error::Value { what: "ICMPv6 type", expected: "1, 2, 3 or 4", found: 5 }));
}

#[test]
fn wrong_icmpv6_checksum_is_refused() {
    let mut made = emit_packet(A, B, 64, vec![128, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(verify_checksum(A, B, &made[40..]), Ok(()));
    assert!(matches!(verify_checksum(A, MULTICAST_GROUP, &made[40..]), Err(Error::Checksum { .. })));
    for bit in 0..64 {
        made[40 + bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(verify_checksum(A, B, &made[40..]), Err(Error::Checksum { .. })), "bit {bit}");
        made[40 + bit / 8] ^= 1 << (bit % 8);
    }
}

/// RFC 4443 2.4 (e): the packets about which a node sends no error.
#[test]
fn icmpv6_error_is_not_sent_where_rfc_4443_forbids_it() {
    assert!(may_send_any_error(&udp_packet(A, B, 8)));
    // (e.1) and (e.2): a node does not answer errors and redirects; it may answer informational messages.
    for (message_type, answered) in [
        (1, false),
        (4, false),
        (100, false),
        (127, false),
        (128, true),
        (135, true),
        (137, false),
        (255, true),
    ] {
        let invoking = emit_packet(A, B, 64, vec![message_type, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(may_send_any_error(&invoking), answered, "type {message_type}");
        // The rule also holds for an ICMPv6 message behind an extension header.
        let mut behind = invoking[..40].to_vec();
        behind[6] = protocol::DESTINATION_OPTIONS;
        behind[5] = 16;
        behind.extend([protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0]);
        behind.extend(&invoking[40..]);
        assert_eq!(may_send_any_error(&behind), answered, "type {message_type} behind options");
        // The octets end before the ICMPv6 type: a node does not answer.
        assert!(!may_send_any_error(&behind[..48]));
        assert!(!may_send_any_error(&invoking[..40]));
    }
    // A later fragment of an ICMPv6 message may be part of an error.
    let mut fragment = udp_packet(A, B, 16);
    fragment[6] = protocol::FRAGMENT;
    fragment[40..44].copy_from_slice(&[protocol::ICMPV6, 0, 0, 8]);
    assert!(!may_send_any_error(&fragment));
    fragment[40] = protocol::UDP;
    assert!(may_send_any_error(&fragment));
    // (e.3): a node does not answer a multicast destination, with two exceptions.
    assert!(!may_send_any_error(&udp_packet(A, MULTICAST_GROUP, 8)));
    for error in ERROR_MESSAGES {
        let too_big = matches!(error, Icmpv6ErrorMessage::PacketTooBig { .. });
        assert_eq!(may_send_error(error, &udp_packet(A, MULTICAST_GROUP, 8)), too_big);
        // (e.6): a node does not answer an unspecified or multicast source.
        for source in [Ipv6Addr::UNSPECIFIED, MULTICAST_GROUP] {
            assert!(!may_send_error(error, &udp_packet(source, B, 8)));
            assert!(!may_send_error(error, &udp_packet(source, MULTICAST_GROUP, 8)));
        }
        assert!(may_send_error(error, &udp_packet(A, B, 8)));
    }
    assert!(!may_send_any_error(&[]));
    assert!(!may_send_any_error(&[0x45; 40]));
}

#[test]
fn echo_request_and_reply_are_encoded_and_decoded() {
    let request = emit_packet(A, B, 3, parse_hex("8000000012340001deadbeef0102"));
    let reply = answer_echo_request(&request).expect("an echo request");
    assert_eq!(reply, emit_packet(B, A, 64, parse_hex("8100000012340001deadbeef0102")));
    // The reply does not contain octets behind the payload (Ethernet padding).
    let padded = [&request[..], &[0; 6]].concat();
    assert_eq!(answer_echo_request(&padded), Some(reply.clone()));
    // A node does not answer an Echo Reply, a wrong checksum, a multicast destination, an invalid source or a
    // truncated message.
    assert_eq!(answer_echo_request(&reply), None);
    let mut wrong = request.clone();
    wrong[50] ^= 1;
    assert_eq!(answer_echo_request(&wrong), None);
    assert_eq!(
        answer_echo_request(&emit_packet(A, MULTICAST_GROUP, 3, vec![128, 0, 0, 0, 0, 0, 0, 0])),
        None
    );
    assert_eq!(
        answer_echo_request(&emit_packet(MULTICAST_GROUP, A, 3, vec![128, 0, 0, 0, 0, 0, 0, 0])),
        None
    );
    assert_eq!(
        answer_echo_request(&emit_packet(Ipv6Addr::UNSPECIFIED, A, 3, vec![128, 0, 0, 0, 0, 0, 0, 0])),
        None
    );
    assert_eq!(answer_echo_request(&emit_packet(A, B, 3, vec![128, 0, 0, 0, 0, 0])), None);
    assert_eq!(answer_echo_request(&request[..50]), None);
}

#[test]
fn neighbor_discovery_needs_hop_limit_255() {
    let message = RouterSolicitation { source_link_address: None }.emit();
    let made = emit_packet(parse_address("fe80::1"), parse_address("ff02::2"), 255, message);
    let (header, message) = Header::parse_packet(&made).expect("IPv6");
    assert_eq!(check_header(&header, message), Ok(()));
    let routed = Header { hop_limit: 254, ..header };
    let expected = Error::Value { what: "neighbor discovery hop limit", expected: "255", found: 254 };
    assert_eq!(check_header(&routed, message), Err(expected));
    assert!(check_header(&Header { next_header: 17, ..header }, message).is_err());
    assert!(check_header(&Header { source: A, ..header }, message).is_err());
}

/// RFC 4861 6.1 and 7.1: a message needs code 0, its full length, a target that is not multicast, and no
/// option of length 0.
#[test]
fn invalid_neighbor_discovery_messages_are_refused() {
    let solicitation = NeighborSolicitation { target: A, source_link_address: Some([2, 0, 0, 0, 0, 1]) };
    let good = solicitation.emit();
    assert_eq!(to_hex(&good), "870000000000000020010db80000000000000000000000010101020000000001");
    let parse = NeighborSolicitation::parse;
    assert_eq!(parse(&good), Ok(solicitation));
    for end in (0..24).chain(25..32) {
        assert!(matches!(parse(&good[..end]), Err(Error::Truncated { .. })), "{end}");
    }
    assert_eq!(parse(&good[..24]), Ok(NeighborSolicitation { target: A, source_link_address: None }));
    let with = |at: usize, value: u8| {
        let mut octets = good.clone();
        octets[at] = value;
        octets
    };
    assert_eq!(parse(&with(1, 1)), Err(Error::Value { what: "ICMPv6 code", expected: "0", found: 1 }));
    assert_eq!(
        parse(&with(8, 0xff)),
        Err(Error::Value { what: "first octet of the target", expected: "not multicast", found: 0xff })
    );
    assert_eq!(
        parse(&with(25, 0)),
        Err(Error::Length { what: "neighbor discovery option", expected: "at least 1", found: 0 })
    );
    assert!(matches!(parse(&with(25, 2)), Err(Error::Truncated { .. })));
    // A receiver ignores the reserved field and unknown options.
    assert_eq!(parse(&with(5, 0xff)), Ok(solicitation));
    let unknown = NeighborSolicitation { target: A, source_link_address: None };
    assert_eq!(parse(&with(24, 0xee)), Ok(unknown));

    let advertisement = NeighborAdvertisement {
        target: A,
        router: true,
        solicited: false,
        override_: true,
        target_link_address: Some([2, 0, 0, 0, 0, 1]),
    };
    assert_eq!(
        to_hex(&advertisement.emit()),
        "88000000a000000020010db80000000000000000000000010201020000000001"
    );
    assert!(NeighborAdvertisement::parse(&good).is_err(), "another type");
}

#[test]
fn invalid_neighbor_discovery_options_are_unknown() {
    let read = |text: &str| {
        let octets = parse_hex(text);
        let options = NdOptions::parse(&octets).expect("structure");
        let (count, known) =
            (options.count(), options.filter(|option| !matches!(option, NdOption::Unknown { .. })).count());
        (count, known)
    };
    // Three invalid options: prefix length 129, a Prefix Information option of one unit, a link-layer address
    // option of two units.
    assert_eq!(read(&format!("030481c0{}", "00".repeat(28))), (1, 0));
    assert_eq!(read(&format!("030480c0{}", "00".repeat(28))), (1, 1));
    assert_eq!(read("0301400000000000"), (1, 0));
    assert_eq!(read("0102000000000000 0000000000000000 0101000000000000"), (2, 1));
    // RFC 4191 2.3: a prefix of 65 bits needs three units, a prefix of 1 bit needs two; a receiver ignores
    // preference 10.
    assert_eq!(read("1802410000000010 20010db800000000"), (1, 0));
    assert_eq!(read("1801010000000010"), (1, 0));
    assert_eq!(read("1801000000000010"), (1, 1));
    assert_eq!(read("1801001000000010"), (1, 0));
    assert_eq!(read("1804000000000010 0000000000000000 0000000000000000 0000000000000000"), (1, 0));
}

#[test]
fn route_information_option_has_shortest_length() {
    for (prefix_length, units, expected) in [
        (0, 1, "::"),
        (1, 2, "8000::"),
        (48, 2, "ffff:ffff:ffff::"),
        (64, 2, "ffff:ffff:ffff:ffff::"),
        (65, 3, "ffff:ffff:ffff:ffff:8000::"),
        (128, 3, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ] {
        let route = RouteInformation {
            prefix: Ipv6Addr::from(u128::MAX),
            prefix_length,
            preference: RoutePreference::Low,
            lifetime: 600,
        };
        let mut octets = Vec::new();
        NdOption::RouteInformation(route).emit_into(&mut octets);
        assert_eq!((octets.len(), octets[1], octets[3]), (usize::from(units) * 8, units, 0x18));
        let back = NdOptions::parse(&octets).expect("structure").next();
        let expected = RouteInformation { prefix: parse_address(expected), ..route };
        assert_eq!(back, Some(NdOption::RouteInformation(expected)));
    }
}

#[test]
fn router_preference_is_encoded_and_decoded() {
    let emit = |preference, router_lifetime| {
        let repr = RouterAdvertisementRepr { preference, router_lifetime, ..Default::default() };
        emit_router_advertisement(&repr)
    };
    for (preference, bits) in
        [(RoutePreference::High, 0x08), (RoutePreference::Medium, 0), (RoutePreference::Low, 0x18)]
    {
        let octets = emit(preference, 30);
        assert_eq!(octets[5], bits);
        assert_eq!(RouterAdvertisement::parse(&octets).expect("fine").preference, preference);
        // RFC 4191 2.2: a Router Advertisement with lifetime 0 carries no preference.
        assert_eq!(emit(preference, 0)[5], 0);
    }
    let mut reserved = emit(RoutePreference::Medium, 30);
    reserved[5] = 0x10;
    let read = RouterAdvertisement::parse(&reserved).expect("fine");
    assert_eq!(read.preference, RoutePreference::Medium);
    assert!(RoutePreference::High > RoutePreference::Medium);
    assert!(RoutePreference::Medium > RoutePreference::Low);
}

#[test]
fn prefix_information_has_the_layout_of_rfc_4861() {
    let mut octets = Vec::new();
    NdOption::PrefixInformation(PrefixInformation {
        prefix: parse_address("2001:db8:1::1"),
        prefix_length: 64,
        on_link: true,
        autonomous: false,
        router_address: true,
        valid_lifetime: 0x0102_0304,
        preferred_lifetime: 0x0506_0708,
    })
    .emit_into(&mut octets);
    assert_eq!(
        to_hex(&octets),
        "030440a0010203040506070800000000".to_owned() + "20010db8000100000000000000000001"
    );
}

#[test]
fn solicited_node_address_follows_rfc_4291() {
    assert_eq!(
        solicited_node_address(parse_address("2001:db8::12:3456:789a")),
        parse_address("ff02::1:ff56:789a")
    );
}

#[test]
fn invalid_home_agent_discovery_messages_are_refused() {
    let reply = emit_discovery_reply(7, false, &[A, B]);
    assert_eq!(reply.len(), 40);
    let read = HomeAgentDiscoveryReply::parse(&reply).expect("fine");
    assert_eq!((read.identifier, read.mobile_router), (7, false));
    assert_eq!(read.addresses().collect::<Vec<_>>(), [A, B]);
    let cut = HomeAgentDiscoveryReply::parse(&reply[..39]);
    let expected = Error::Length { what: "home agent addresses", expected: "a multiple of 16", found: 31 };
    assert_eq!(cut, Err(expected));
    assert!(HomeAgentDiscoveryRequest::parse(&reply).is_err());
    let request = HomeAgentDiscoveryRequest { identifier: 0xabcd, mobile_router: true }.emit();
    assert_eq!(to_hex(&request), "90000000abcd8000");
    assert_eq!(request[0], message_type::DHAAD_REQUEST);
    for end in 0..8 {
        assert!(matches!(HomeAgentDiscoveryRequest::parse(&request[..end]), Err(Error::Truncated { .. })));
    }
}
