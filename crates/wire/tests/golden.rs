//! Packets that other implementations made: carnet parses them and emits them bit for bit.

mod common;

use carnet_wire::checksum::upper_layer_checksum;
use carnet_wire::discovery::{
    HomeAgentDiscoveryReply, HomeAgentDiscoveryRequest, emit_discovery_reply, home_agents_anycast,
};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::{
    BindingUpdateFlags, ControlPacket, MobilityHeader, MobilityHeaderBuilder, MobilityOption,
    ParsedMobilityMessage, authentication_field, set_checksum,
};
use carnet_wire::nd::{
    HomeAgentInformation, NdOption, NeighborAdvertisement, NeighborSolicitation, PrefixInformation,
    RouterAdvertisement, RouterAdvertisementRepr, check_header, emit_router_advertisement,
    solicited_node_address,
};
use carnet_wire::{Error, icmpv6};
use common::fixtures::{self as fixture, CARE_OF_ADDRESS, HOME_ADDRESS, HOME_AGENT};
use common::{parse_address, parse_hex, to_hex};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

const MOBILE_ROUTER_FLAGS: BindingUpdateFlags = BindingUpdateFlags {
    acknowledge: true,
    home_registration: true,
    mobile_router: true,
    link_local: false,
    key_management: false,
    map: false,
    proxy: false,
    force_udp: false,
    tlv: false,
    overwrite: false,
};

fn prefix_option() -> MobilityOption<'static> {
    MobilityOption::MobileNetworkPrefix { prefix: parse_address("2001:db8:2::"), prefix_length: 64 }
}

/// Returns the Mobility Header of a packet. Its checksum is verified with the addresses that the extension
/// headers name.
fn mobility_header(packet: &[u8]) -> MobilityHeader<'_> {
    let header = Header::parse(packet).expect("IPv6");
    let extensions = ExtensionHeaders::parse(packet).expect("extension headers");
    assert_eq!(extensions.protocol, protocol::MOBILITY);
    MobilityHeader::parse_verified(
        &packet[extensions.upper_layer_offset..],
        extensions.home_address.unwrap_or(header.source),
        extensions.routing_home_address.unwrap_or(header.destination),
    )
    .expect("mobility header")
}

fn options_of<'a>(message: &ParsedMobilityMessage<'a>) -> Vec<MobilityOption<'a>> {
    let options = match message {
        ParsedMobilityMessage::BindingUpdate(update) => update.options,
        ParsedMobilityMessage::BindingAcknowledgement(acknowledgement) => acknowledgement.options,
        other => panic!("no options in {other:?}"),
    };
    options.iter().map(|option| option.expect("option")).collect()
}

/// Returns the octets of the builder as hex, with the checksum of the golden messages.
fn hex_with_checksum(mut octets: Vec<u8>) -> String {
    set_checksum(&mut octets, HOME_ADDRESS, HOME_AGENT);
    to_hex(&octets)
}

fn without_spaces(text: &str) -> String {
    to_hex(&parse_hex(text))
}

#[test]
fn explicit_binding_update_equals_recorded_packet() {
    let packet = fixture::golden_packet(fixture::GOLDEN_EXPLICIT);
    let header = mobility_header(&packet);
    assert_eq!(to_hex(header.octets()), without_spaces(fixture::GOLDEN_EXPLICIT), "checksum included");
    let message = header.message().expect("message");
    let ParsedMobilityMessage::BindingUpdate(update) = message else { panic!("{message:?}") };
    assert_eq!((update.sequence, update.flags, update.lifetime), (1, MOBILE_ROUTER_FLAGS, 60));
    let expected = [MobilityOption::AlternateCareOfAddress(CARE_OF_ADDRESS), prefix_option()];
    assert_eq!(options_of(&message), expected);

    let mut builder = MobilityHeaderBuilder::binding_update(1, MOBILE_ROUTER_FLAGS, 60);
    for option in &expected {
        builder = builder.option(option);
    }
    assert_eq!(hex_with_checksum(builder.finish()), without_spaces(fixture::GOLDEN_EXPLICIT));
}

#[test]
fn update_with_binding_identifier_equals_recorded_packet() {
    let packet = fixture::golden_packet(fixture::GOLDEN_BINDING_IDENTIFIER);
    let header = mobility_header(&packet);
    let message = header.message().expect("message");
    let ParsedMobilityMessage::BindingUpdate(update) = message else { panic!("{message:?}") };
    let flags = BindingUpdateFlags { overwrite: true, ..MOBILE_ROUTER_FLAGS };
    assert_eq!((update.sequence, update.flags, update.lifetime), (2, flags, 60));
    let identifier = MobilityOption::BindingIdentifier {
        bid: 1,
        status: 0,
        home: false,
        priority: 10,
        care_of_address: Some(CARE_OF_ADDRESS.into()),
    };
    let expected = [identifier, prefix_option()];
    assert_eq!(options_of(&message), expected);

    let mut builder = MobilityHeaderBuilder::binding_update(2, flags, 60);
    for option in &expected {
        builder = builder.option(option);
    }
    assert_eq!(hex_with_checksum(builder.finish()), without_spaces(fixture::GOLDEN_BINDING_IDENTIFIER));
}

/// RFC 4285 5.1: the first 96 bits of HMAC-SHA1 over care-of address, home address and the covered octets.
fn compute_authenticator(pieces: [&[u8]; 3]) -> [u8; 12] {
    let key = parse_hex("000102030405060708090a0b0c0d0e0f");
    let mut mac = <Hmac<Sha1> as KeyInit>::new_from_slice(&key).expect("any length");
    mac.update(&CARE_OF_ADDRESS.octets());
    mac.update(&HOME_ADDRESS.octets());
    for piece in pieces {
        mac.update(piece);
    }
    let mut data = [0; 12];
    data.copy_from_slice(&mac.finalize().into_bytes()[..12]);
    data
}

#[test]
fn authenticated_update_equals_recorded_packet() {
    let golden = parse_hex(fixture::GOLDEN_AUTHENTICATED);
    let field = authentication_field(&golden).expect("well formed").expect("there");
    assert_eq!((field.subtype, field.spi), (1, 300));
    assert_eq!((field.covered_range.clone(), field.data_range.clone()), (0..40, 40..52));
    let covered = field.covered_octets(&golden).expect("pieces");
    assert_eq!(compute_authenticator(covered), golden[field.data_range.clone()]);

    // Then the reverse: build the message with zero authentication data, and fill in the MAC, then the
    // checksum.
    let mut octets = MobilityHeaderBuilder::binding_update(3, MOBILE_ROUTER_FLAGS, 60)
        .option(&prefix_option())
        .option(&MobilityOption::Authentication { subtype: 1, spi: 300, data: &[0; 12] })
        .finish();
    let place = authentication_field(&octets).expect("well formed").expect("there");
    let data = compute_authenticator(place.covered_octets(&octets).expect("pieces"));
    octets[place.data_range].copy_from_slice(&data);
    assert_eq!(hex_with_checksum(octets), without_spaces(fixture::GOLDEN_AUTHENTICATED));
}

#[test]
fn binding_update_of_umip_is_decoded() {
    let packet = parse_hex(fixture::UMIP_BINDING_UPDATE);
    let (source, home) =
        (parse_address("2001:db8:f1:0:b869:f2ff:feba:1aeb"), parse_address("2001:db8:1::100"));
    let extensions = ExtensionHeaders::parse(&packet).expect("extension headers");
    assert_eq!(extensions.home_address, Some(home));
    assert_eq!(extensions.home_address_offset, Some(46));
    assert_eq!(extensions.upper_layer_offset, 64);
    assert_eq!(extensions.routing_home_address, None);
    let header = mobility_header(&packet);
    let message = header.message().expect("message");
    let ParsedMobilityMessage::BindingUpdate(update) = message else { panic!("{message:?}") };
    assert_eq!((update.sequence, update.flags, update.lifetime), (15717, MOBILE_ROUTER_FLAGS, 15));
    let expected = [MobilityOption::AlternateCareOfAddress(source), prefix_option()];
    assert_eq!(options_of(&message), expected);
    // UMIP computes the checksum over the home address, never the care-of address.
    let wrong = header.verify_checksum(source, HOME_AGENT);
    assert_eq!(wrong, Err(Error::Checksum { what: "mobility header", found: 0x3477 }));

    let mut octets = MobilityHeaderBuilder::binding_update(15717, MOBILE_ROUTER_FLAGS, 15)
        .option(&expected[0])
        .option(&expected[1])
        .finish();
    let made = ControlPacket {
        source,
        destination: HOME_AGENT,
        hop_limit: 63,
        home_address: Some(home),
        routing_home_address: None,
        mobility_header: &mut octets,
    }
    .emit();
    assert_same_but_flow_label(&made, &packet);
}

#[test]
fn deregistration_of_umip_is_decoded() {
    let packet = parse_hex(fixture::UMIP_DEREGISTRATION);
    let message = mobility_header(&packet).message().expect("message");
    let ParsedMobilityMessage::BindingUpdate(update) = message else { panic!("{message:?}") };
    assert_eq!((update.sequence, update.flags, update.lifetime), (15719, MOBILE_ROUTER_FLAGS, 0));
    let source = parse_address("2001:db8:f1:0:b869:f2ff:feba:1aeb");
    assert_eq!(options_of(&message), [MobilityOption::AlternateCareOfAddress(source)]);
}

#[test]
fn binding_acknowledgement_of_umip_is_decoded() {
    for (text, sequence, lifetime) in
        [(fixture::UMIP_BINDING_ACKNOWLEDGEMENT, 15717, 15), (fixture::UMIP_DEREGISTERED, 15719, 0)]
    {
        let packet = parse_hex(text);
        let extensions = ExtensionHeaders::parse(&packet).expect("extension headers");
        let home = parse_address("2001:db8:1::100");
        assert_eq!(extensions.routing_home_address, Some(home));
        assert_eq!((extensions.home_address, extensions.upper_layer_offset), (None, 64));
        let message = mobility_header(&packet).message().expect("message");
        let ParsedMobilityMessage::BindingAcknowledgement(it) = message else { panic!("{message:?}") };
        assert_eq!((it.status, it.key_management, it.mobile_router), (0, false, true));
        assert_eq!((it.sequence, it.lifetime), (sequence, lifetime));
        assert_eq!(options_of(&message), []);

        let made = ControlPacket {
            source: HOME_AGENT,
            destination: parse_address("2001:db8:f1:0:b869:f2ff:feba:1aeb"),
            hop_limit: 64,
            home_address: None,
            routing_home_address: Some(home),
            mobility_header: &mut MobilityHeaderBuilder::binding_acknowledgement(
                0, false, true, sequence, lifetime,
            )
            .finish(),
        }
        .emit();
        assert_same_but_flow_label(&made, &packet);
    }
}

/// Compares all octets except the flow label: Linux chooses a flow label, and carnet sends 0.
fn assert_same_but_flow_label(made: &[u8], captured: &[u8]) {
    let mut captured = captured.to_vec();
    captured[1..4].fill(0);
    assert_eq!(to_hex(made), to_hex(&captured));
}

#[test]
fn router_advertisement_of_umip_is_decoded() {
    let packet = parse_hex(fixture::UMIP_ROUTER_ADVERTISEMENT);
    let (header, message) = Header::parse_packet(&packet).expect("IPv6");
    check_header(&header, message).expect("hop limit and checksum");
    let advertisement = RouterAdvertisement::parse(message).expect("router advertisement");
    let expected = [
        NdOption::PrefixInformation(PrefixInformation {
            prefix: HOME_AGENT,
            prefix_length: 64,
            on_link: true,
            autonomous: true,
            router_address: true,
            valid_lifetime: 36000,
            preferred_lifetime: 18000,
        }),
        NdOption::SourceLinkAddress([0xae, 0x29, 0xbe, 0x08, 0xc1, 0x4d]),
        NdOption::HomeAgentInformation(HomeAgentInformation {
            mobile_router_support: true,
            preference: 20,
            lifetime: 10000,
        }),
    ];
    assert_eq!(advertisement.options().collect::<Vec<_>>(), expected);
    assert!(advertisement.home_agent && !advertisement.managed && !advertisement.other_configuration);
    assert_eq!((advertisement.hop_limit, advertisement.router_lifetime), (64, 30));

    let repr = RouterAdvertisementRepr {
        hop_limit: 64,
        home_agent: true,
        router_lifetime: 30,
        options: &expected,
        ..Default::default()
    };
    let made = icmpv6::emit_packet(header.source, header.destination, 255, emit_router_advertisement(&repr));
    assert_same_but_flow_label(&made, &packet);
}

#[test]
fn neighbor_discovery_of_umip_is_decoded() {
    let packet = parse_hex(fixture::UMIP_NEIGHBOR_SOLICITATION);
    let (header, message) = Header::parse_packet(&packet).expect("IPv6");
    check_header(&header, message).expect("hop limit and checksum");
    let solicitation = NeighborSolicitation {
        target: HOME_AGENT,
        source_link_address: Some([0x4e, 0x73, 0x97, 0x1a, 0x9c, 0xc4]),
    };
    assert_eq!(NeighborSolicitation::parse(message), Ok(solicitation));
    assert_eq!(header.destination, solicited_node_address(HOME_AGENT));
    let made = icmpv6::emit_packet(header.source, header.destination, 255, solicitation.emit());
    assert_eq!(to_hex(&made), to_hex(&packet));

    let packet = parse_hex(fixture::UMIP_DUPLICATE_DETECTION);
    let (header, message) = Header::parse_packet(&packet).expect("IPv6");
    // UMIP sends packets from the unspecified address with a wrong checksum; tshark reports the same.
    let wrong = Error::Checksum { what: "ICMPv6 message", found: 0x4b40 };
    assert_eq!(check_header(&header, message), Err(wrong));
    let target = parse_address("2001:db8:1::100");
    assert_eq!(
        NeighborSolicitation::parse(message),
        Ok(NeighborSolicitation { target, source_link_address: None })
    );
    assert_eq!(header.destination, solicited_node_address(target));

    for (text, target, solicited, override_) in [
        (fixture::UMIP_NEIGHBOR_ADVERTISEMENT, HOME_AGENT, true, true),
        (fixture::UMIP_PROXY_ADVERTISEMENT, target, false, false),
    ] {
        let packet = parse_hex(text);
        let (header, message) = Header::parse_packet(&packet).expect("IPv6");
        check_header(&header, message).expect("hop limit and checksum");
        let advertisement = NeighborAdvertisement {
            target,
            router: true,
            solicited,
            override_,
            target_link_address: Some([0xae, 0x29, 0xbe, 0x08, 0xc1, 0x4d]),
        };
        assert_eq!(NeighborAdvertisement::parse(message), Ok(advertisement));
        let made = icmpv6::emit_packet(header.source, header.destination, 255, advertisement.emit());
        assert_same_but_flow_label(&made, &packet);
    }
}

#[test]
fn home_agent_discovery_of_umip_is_decoded() {
    let packet = parse_hex(fixture::UMIP_DISCOVERY_REQUEST);
    let (header, message) = Header::parse_packet(&packet).expect("IPv6");
    icmpv6::verify_checksum(header.source, header.destination, message).expect("checksum");
    let request = HomeAgentDiscoveryRequest { identifier: 1, mobile_router: true };
    assert_eq!(HomeAgentDiscoveryRequest::parse(message), Ok(request));
    assert_eq!(header.destination, home_agents_anycast(HOME_AGENT));
    let made = icmpv6::emit_packet(header.source, header.destination, 63, request.emit());
    assert_same_but_flow_label(&made, &packet);

    let packet = parse_hex(fixture::UMIP_DISCOVERY_REPLY);
    let (header, message) = Header::parse_packet(&packet).expect("IPv6");
    icmpv6::verify_checksum(header.source, header.destination, message).expect("checksum");
    let reply = HomeAgentDiscoveryReply::parse(message).expect("reply");
    assert_eq!((reply.identifier, reply.mobile_router), (1, true));
    assert_eq!(reply.addresses().collect::<Vec<_>>(), [HOME_AGENT]);
    let made = emit_discovery_reply(1, true, &[HOME_AGENT]);
    assert_same_but_flow_label(&icmpv6::emit_packet(header.source, header.destination, 64, made), &packet);
}

#[test]
fn tunnelled_echo_of_umip_is_decoded() {
    let packet = parse_hex(fixture::UMIP_TUNNELLED_ECHO);
    let outer = ExtensionHeaders::parse(&packet).expect("extension headers");
    assert_eq!((outer.protocol, outer.upper_layer_offset), (protocol::IPV6, 40));
    let inner = &packet[40..];
    let (header, message) = Header::parse_packet(inner).expect("IPv6");
    assert_eq!(upper_layer_checksum(header.source, header.destination, protocol::ICMPV6, message), 0);
    let reply = icmpv6::answer_echo_request(inner).expect("an echo request");
    let (back, answer) = Header::parse_packet(&reply).expect("IPv6");
    assert_eq!((back.source, back.destination), (header.destination, header.source));
    assert_eq!(icmpv6::verify_checksum(back.source, back.destination, answer), Ok(()));
    assert_eq!((answer[0], answer[1]), (129, 0));
    assert_eq!(answer[4..], message[4..]);
    assert_eq!(icmpv6::answer_echo_request(&packet), None, "the tunnel's packet is no echo request");
}
