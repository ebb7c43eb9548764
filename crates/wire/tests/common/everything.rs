//! Functions that pass octets to every parser and parsed values to every accessor. For any octets, each
//! function returns without a panic, and its assertions hold. The fuzz targets `ipv6`, `icmpv6` and
//! `mobility` call these functions.

use std::hint::black_box;
use std::net::Ipv6Addr;

use carnet_wire::discovery::{HomeAgentDiscoveryReply, HomeAgentDiscoveryRequest};
use carnet_wire::extension::{self, ExtensionHeaders};
use carnet_wire::fragment::FragmentHeader;
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv6::Header;
use carnet_wire::mld;
use carnet_wire::mobility::flow_identification::{BindingIdentifiers, FlowActionOption, FlowSubOptions};
use carnet_wire::mobility::{
    DirectRoute, MobilityHeader, MobilityOption, MobilityOptions, ParsedMobilityMessage, PrefixTest,
    authentication_field,
};
use carnet_wire::nd::{
    AddressRegistration, NdOptions, NeighborAdvertisement, NeighborSolicitation, NestingInformation,
    RouterAdvertisement, RouterSolicitation, check_header,
};
use carnet_wire::prefix_discovery::{MobilePrefixAdvertisement, MobilePrefixSolicitation};

/// Parses octets as a packet that begins with the IPv6 header.
pub fn parse_packet(octets: &[u8]) {
    let _ = black_box(Header::parse(octets));
    if let Ok((header, payload)) = Header::parse_packet(octets) {
        assert_eq!(payload.len(), usize::from(header.payload_length));
        assert_eq!(Header::parse(&header.emit()), Ok(header));
        let _ = black_box(check_header(&header, payload));
    }
    let _ = black_box(icmpv6::answer_echo_request(octets));
    let _ = black_box(icmpv6::may_send_any_error(octets));
    if let Some((_, offset, _)) = extension::find_upper_layer(octets) {
        assert!(offset <= octets.len());
    }
    match mld::MldMessage::parse_packet(octets) {
        Some(Ok((_, mld::MldMessage::Report(records)))) => {
            let sources: usize = records.iter().map(|record| record.sources.iter().count()).sum();
            assert!(sources * 16 <= octets.len());
        }
        other => {
            let _ = black_box(other);
        }
    }
    match ExtensionHeaders::parse(octets) {
        Ok(extensions) => {
            assert!(extensions.upper_layer_offset <= octets.len());
            if let Some(at) = extensions.home_address_offset {
                assert_eq!(octets[at], extension::HOME_ADDRESS_OPTION);
                assert_eq!(octets[at + 2..at + 18], extensions.home_address.expect("both").octets());
            }
            parse_icmpv6(&octets[extensions.upper_layer_offset..]);
            parse_mobility_header(&octets[extensions.upper_layer_offset..]);
        }
        Err(error) => {
            let _ = black_box(error.to_string());
            if let Some(problem) = error.parameter_problem(40) {
                let Icmpv6ErrorMessage::ParameterProblem { pointer, .. } = problem else {
                    panic!("not a parameter problem: {problem:?}")
                };
                assert!((pointer as usize) < octets.len());
                let _ = black_box(icmpv6::may_send_error(problem, octets));
                let a = Ipv6Addr::LOCALHOST;
                assert!(icmpv6::error_packet(a, a, problem, octets).len() <= 1280);
            }
        }
    }
}

/// Parses octets as a Fragment header and as an ICMPv6 message.
pub fn parse_icmpv6(octets: &[u8]) {
    let _ = black_box(FragmentHeader::parse(octets));
    let _ = black_box(icmpv6::parse_error(octets));
    let _ = black_box(RouterSolicitation::parse(octets));
    let _ = black_box(NeighborSolicitation::parse(octets));
    let _ = black_box(NeighborAdvertisement::parse(octets));
    let _ = black_box(AddressRegistration::from_message(octets));
    let _ = black_box(HomeAgentDiscoveryRequest::parse(octets));
    let _ = black_box(MobilePrefixSolicitation::parse(octets));
    if let Ok(advertisement) = RouterAdvertisement::parse(octets) {
        assert!(advertisement.options().count() * 8 <= octets.len());
        for option in advertisement.options() {
            let _ = black_box(NestingInformation::read(&option));
        }
    }
    if let Ok(advertisement) = MobilePrefixAdvertisement::parse(octets) {
        assert!(advertisement.options.count() * 8 <= octets.len());
    }
    // If the test parses an option, writes it and parses it again, both parsed options are equal.
    if let Ok(options) = NdOptions::parse(octets) {
        for option in options {
            let mut again = Vec::new();
            option.emit_into(&mut again);
            let read = NdOptions::parse(&again).expect("just written").next();
            assert_eq!(read, Some(option));
        }
    }
    if let Ok(reply) = HomeAgentDiscoveryReply::parse(octets) {
        assert_eq!(reply.addresses().count() * 16 + 8, octets.len());
    }
}

/// Parses octets as a Mobility Header and as the options of a Mobility Header.
pub fn parse_mobility_header(octets: &[u8]) {
    let local = Ipv6Addr::LOCALHOST;
    let _ = black_box(MobilityHeader::parse_verified(octets, local, local));
    if let Ok(options) = MobilityOptions::parse(octets) {
        parse_options(options);
    }
    let _ = black_box(FlowSubOptions::parse(octets));
    let _ = black_box(BindingIdentifiers::parse(octets, "identifiers").map(|list| list.iter().count()));
    let _ =
        black_box(FlowActionOption::from_mobility_option(&FlowActionOption::vendor_specific_option(octets)));
    if let Ok(header) = MobilityHeader::parse(octets) {
        assert!(header.octets().len().is_multiple_of(8));
        let _ = black_box(header.verify_checksum(local, local));
        if let Ok(message) = DirectRoute::parse(&header) {
            let again = message.octets();
            let again = MobilityHeader::parse(&again).expect("just written");
            assert_eq!(DirectRoute::parse(&again), Ok(message));
        }
        if let Ok(test) = PrefixTest::parse(&header) {
            let again = test.emit_packet(local, local, 64);
            let again = MobilityHeader::parse(&again[40..]).expect("just written");
            assert_eq!(PrefixTest::parse(&again), Ok(test));
        }
        match header.message() {
            Ok(ParsedMobilityMessage::BindingUpdate(update)) => parse_options(update.options),
            Ok(ParsedMobilityMessage::BindingAcknowledgement(acknowledgement)) => {
                parse_options(acknowledgement.options)
            }
            Ok(ParsedMobilityMessage::Heartbeat(heartbeat)) => parse_options(heartbeat.options),
            Ok(ParsedMobilityMessage::BindingRefreshRequest(request)) => parse_options(request.options),
            Ok(ParsedMobilityMessage::BindingRevocation(revocation)) => parse_options(revocation.options),
            Ok(ParsedMobilityMessage::HomeAgentSwitch(switch)) => {
                assert!(switch.addresses().count() * 16 <= octets.len());
            }
            other => {
                let _ = black_box(other);
            }
        }
    }
    if let Ok(Some(field)) = authentication_field(octets) {
        assert_eq!(field.covered_range.end, field.data_range.start);
        assert!(field.data_range.end <= octets.len());
        let pieces = field.covered_octets(octets).expect("the same octets");
        assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), field.covered_range.len());
    }
}

fn parse_options(options: MobilityOptions<'_>) {
    for option in options.iter().flatten() {
        let _ = black_box((
            option.option_type(),
            option.data_length(),
            FlowActionOption::from_mobility_option(&option),
        ));
        if let MobilityOption::FlowIdentification { sub_options, .. } = option {
            let _ = black_box(FlowSubOptions::parse(sub_options));
        }
    }
}
