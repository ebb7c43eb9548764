//! Properties that hold for all values: the parser returns the written value, and no octets make a parser
//! panic.

mod common;

use carnet_wire::checksum::upper_layer_checksum;
use carnet_wire::discovery::{HomeAgentDiscoveryReply, HomeAgentDiscoveryRequest, emit_discovery_reply};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::fragment::FragmentHeader;
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage, answer_echo_request, error_packet, parse_error};
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::flow_identification::{
    BindingIdentifiers, FlowAction, FlowActionOption, FlowSubOptions, SelectorField, emit_sub_options,
};
use carnet_wire::mobility::traffic_selector::{Ipv4Selector, Ipv6Selector, TrafficSelector, ValueRange};
use carnet_wire::mobility::{
    BindingError, BindingUpdateFlags, ControlPacket, MobilityHeader, MobilityHeaderBuilder, MobilityOption,
    ParsedMobilityMessage, authentication_field, set_checksum,
};
use carnet_wire::nd::{
    HomeAgentInformation, NdOption, NeighborAdvertisement, NeighborSolicitation, PrefixInformation,
    RouteInformation, RoutePreference, RouterAdvertisement, RouterAdvertisementRepr, RouterSolicitation,
    emit_router_advertisement,
};
use common::parse_everything;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A mobility option that owns its data.
#[derive(Debug, Clone)]
enum OwnedOption {
    Advice(u16),
    CareOf(Ipv6Addr),
    Prefix(Ipv6Addr, u8),
    Identifier(u8, Vec<u8>),
    Authentication(u8, u32, Vec<u8>),
    Message(u64),
    Vendor(u32, u8, Vec<u8>),
    Restart(u32),
    HomeIpv4(u8, bool, Ipv4Addr),
    AcknowledgedIpv4(u8, u8, Ipv4Addr),
    Nat(bool, u32),
    CareOfIpv4(Ipv4Addr),
    Binding(u16, u8, bool, u8, Option<IpAddr>),
    Summary(Vec<u8>),
    Flow(u16, u16, u8, Vec<u8>),
    Unknown(u8, Vec<u8>),
}

impl OwnedOption {
    fn as_mobility_option(&self) -> MobilityOption<'_> {
        match self {
            OwnedOption::Advice(interval) => MobilityOption::BindingRefreshAdvice(*interval),
            OwnedOption::CareOf(address) => MobilityOption::AlternateCareOfAddress(*address),
            OwnedOption::Prefix(prefix, length) => {
                MobilityOption::MobileNetworkPrefix { prefix: *prefix, prefix_length: *length }
            }
            OwnedOption::Identifier(subtype, identifier) => {
                MobilityOption::MobileNodeIdentifier { subtype: *subtype, identifier }
            }
            OwnedOption::Authentication(subtype, spi, data) => {
                MobilityOption::Authentication { subtype: *subtype, spi: *spi, data }
            }
            OwnedOption::Message(time) => MobilityOption::MessageIdentifier(*time),
            OwnedOption::Vendor(vendor, sub_type, data) => {
                MobilityOption::VendorSpecific { vendor: *vendor, sub_type: *sub_type, data }
            }
            OwnedOption::Restart(counter) => MobilityOption::RestartCounter(*counter),
            OwnedOption::HomeIpv4(prefix_length, prefix, address) => MobilityOption::Ipv4HomeAddress {
                prefix_length: *prefix_length,
                prefix: *prefix,
                address: *address,
            },
            OwnedOption::AcknowledgedIpv4(status, prefix_length, address) => {
                MobilityOption::Ipv4AddressAcknowledgement {
                    status: *status,
                    prefix_length: *prefix_length,
                    address: *address,
                }
            }
            OwnedOption::Nat(force_udp, refresh) => {
                MobilityOption::NatDetection { force_udp: *force_udp, refresh: *refresh }
            }
            OwnedOption::CareOfIpv4(address) => MobilityOption::Ipv4CareOfAddress(*address),
            OwnedOption::Binding(bid, status, home, priority, care_of_address) => {
                MobilityOption::BindingIdentifier {
                    bid: *bid,
                    status: *status,
                    home: *home,
                    priority: *priority,
                    care_of_address: *care_of_address,
                }
            }
            OwnedOption::Summary(fids) => {
                MobilityOption::FlowSummary(BindingIdentifiers::parse(fids, "fids").expect("a multiple of 2"))
            }
            OwnedOption::Flow(fid, priority, status, sub_options) => MobilityOption::FlowIdentification {
                fid: *fid,
                priority: *priority,
                status: *status,
                sub_options,
            },
            OwnedOption::Unknown(option_type, data) => {
                MobilityOption::Unknown { option_type: *option_type, data }
            }
        }
    }
}

fn any_address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from)
}

fn any_unicast_address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(|bits| Ipv6Addr::from((bits & !(0xff << 120)) | (0x20 << 120)))
}

fn any_link_address() -> impl Strategy<Value = Option<[u8; 6]>> {
    option::of(any::<[u8; 6]>())
}

fn any_mobility_option() -> impl Strategy<Value = OwnedOption> {
    let unknown = any::<u8>().prop_filter("an unknown type", |option_type| {
        !matches!(option_type, 0 | 1 | 2 | 3 | 6 | 8 | 9 | 10 | 19 | 28..=32 | 35 | 44 | 45)
    });
    let later = prop_oneof![
        (any::<u32>(), any::<u8>(), vec(any::<u8>(), 0..20))
            .prop_map(|(vendor, sub_type, data)| OwnedOption::Vendor(vendor, sub_type, data)),
        any::<u32>().prop_map(OwnedOption::Restart),
        (0..64u8, any::<bool>(), any::<Ipv4Addr>())
            .prop_map(|(length, prefix, address)| OwnedOption::HomeIpv4(length, prefix, address)),
        (any::<u8>(), 0..64u8, any::<Ipv4Addr>())
            .prop_map(|(status, length, address)| OwnedOption::AcknowledgedIpv4(status, length, address)),
        any::<(bool, u32)>().prop_map(|(force, refresh)| OwnedOption::Nat(force, refresh)),
        any::<Ipv4Addr>().prop_map(OwnedOption::CareOfIpv4),
        (any::<(u16, u8, bool)>(), 0..128u8, option::of(any::<IpAddr>())).prop_map(
            |((bid, status, home), priority, care_of)| OwnedOption::Binding(
                bid, status, home, priority, care_of
            )
        ),
        vec(any::<[u8; 2]>(), 1..10).prop_map(|fids| OwnedOption::Summary(fids.concat())),
        (any::<(u16, u16, u8)>(), vec(any::<u8>(), 0..60))
            .prop_map(|((fid, priority, status), data)| OwnedOption::Flow(fid, priority, status, data)),
    ];
    let first = prop_oneof![
        any::<u16>().prop_map(OwnedOption::Advice),
        any_address().prop_map(OwnedOption::CareOf),
        (any_address(), 0..=128u8).prop_map(|(prefix, length)| OwnedOption::Prefix(prefix, length)),
        (any::<u8>(), vec(any::<u8>(), 1..40)).prop_map(|(subtype, id)| OwnedOption::Identifier(subtype, id)),
        (any::<u8>(), any::<u32>(), vec(any::<u8>(), 0..20))
            .prop_map(|(subtype, spi, data)| OwnedOption::Authentication(subtype, spi, data)),
        any::<u64>().prop_map(OwnedOption::Message),
        (unknown, vec(any::<u8>(), 0..40))
            .prop_map(|(option_type, data)| OwnedOption::Unknown(option_type, data)),
    ];
    prop_oneof![first, later]
}

/// Returns no range, a single value, or a range of several values.
fn any_range<T: Arbitrary + Ord + Copy + std::fmt::Debug>() -> impl Strategy<Value = Option<ValueRange<T>>> {
    prop_oneof![
        Just(None),
        any::<T>().prop_map(|value| Some(ValueRange::single(value))),
        any::<(T, T)>().prop_map(|(a, b)| Some(ValueRange::new(a.min(b), a.max(b)))),
    ]
}

fn any_traffic_selector() -> impl Strategy<Value = TrafficSelector> {
    let label = prop_oneof![
        Just(None),
        (0..1u32 << 20, 0..1u32 << 20).prop_map(|(a, b)| Some(ValueRange::new(a.min(b), a.max(b)))),
    ];
    let ipv6 = (
        (any_range::<Ipv6Addr>(), any_range::<Ipv6Addr>(), any_range::<u32>(), label),
        (any_range::<u16>(), any_range::<u16>(), any_range::<u8>(), any_range::<u8>()),
    )
        .prop_map(|(first, second)| {
            let (source, destination, spi, flow_label) = first;
            let (source_port, destination_port, traffic_class, next_header) = second;
            TrafficSelector::Ipv6(Ipv6Selector {
                source,
                destination,
                spi,
                flow_label,
                source_port,
                destination_port,
                traffic_class,
                next_header,
            })
        });
    let ipv4 = (
        (any_range::<Ipv4Addr>(), any_range::<Ipv4Addr>(), any_range::<u32>()),
        (any_range::<u16>(), any_range::<u16>(), any_range::<u8>(), any_range::<u8>()),
    )
        .prop_map(|(first, second)| {
            let (source, destination, spi) = first;
            let (source_port, destination_port, differentiated_services, protocol) = second;
            TrafficSelector::Ipv4(Ipv4Selector {
                source,
                destination,
                spi,
                source_port,
                destination_port,
                differentiated_services,
                protocol,
            })
        });
    prop_oneof![ipv6, ipv4]
}

fn any_binding_update_flags() -> impl Strategy<Value = BindingUpdateFlags> {
    any::<u16>().prop_map(BindingUpdateFlags::from_bits)
}

/// Checks that the parser returns the expected options and that the header is well-formed.
fn check_options_read_back(octets: &[u8], expected: &[OwnedOption]) -> Result<(), TestCaseError> {
    let header = MobilityHeader::parse(octets).expect("what the builder made");
    prop_assert_eq!(header.octets(), octets);
    prop_assert_eq!(octets[4..6].to_vec(), vec![0, 0]);
    let options = match header.message().expect("what the builder made") {
        ParsedMobilityMessage::BindingUpdate(update) => update.options,
        ParsedMobilityMessage::BindingAcknowledgement(acknowledgement) => acknowledgement.options,
        ParsedMobilityMessage::BindingRefreshRequest(request) => request.options,
        other => panic!("no options in {other:?}"),
    };
    let read: Vec<_> = options.iter().map(|option| option.expect("what the builder made")).collect();
    let expected: Vec<_> = expected.iter().map(OwnedOption::as_mobility_option).collect();
    prop_assert_eq!(read, expected);
    Ok(())
}

fn any_nd_option() -> impl Strategy<Value = NdOption<'static>> {
    let preference =
        prop_oneof![Just(RoutePreference::Low), Just(RoutePreference::Medium), Just(RoutePreference::High)];
    let masked = |prefix: Ipv6Addr, length: u8| {
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Ipv6Addr::from(u128::from(prefix) & mask)
    };
    prop_oneof![
        any::<[u8; 6]>().prop_map(NdOption::SourceLinkAddress),
        any::<[u8; 6]>().prop_map(NdOption::TargetLinkAddress),
        any::<u32>().prop_map(NdOption::Mtu),
        (any_address(), 0..=128u8, any::<[bool; 3]>(), any::<[u32; 2]>()).prop_map(
            |(prefix, prefix_length, [on_link, autonomous, router_address], [valid, preferred])| {
                NdOption::PrefixInformation(PrefixInformation {
                    prefix,
                    prefix_length,
                    on_link,
                    autonomous,
                    router_address,
                    valid_lifetime: valid,
                    preferred_lifetime: preferred,
                })
            }
        ),
        (any::<bool>(), any::<u16>(), any::<u16>()).prop_map(
            |(mobile_router_support, preference, lifetime)| {
                NdOption::HomeAgentInformation(HomeAgentInformation {
                    mobile_router_support,
                    preference,
                    lifetime,
                })
            }
        ),
        (any_address(), 0..=128u8, preference, any::<u32>()).prop_map(
            move |(prefix, prefix_length, preference, lifetime)| {
                let prefix = masked(prefix, prefix_length);
                NdOption::RouteInformation(RouteInformation { prefix, prefix_length, preference, lifetime })
            }
        ),
        Just(NdOption::Unknown { option_type: 25, data: &[1; 22] }),
        any::<u32>().prop_map(NdOption::AdvertisementInterval),
        Just(NdOption::Unknown { option_type: 9, data: &[2; 6] }),
    ]
}

/// The length in the pseudo-header has 32 bits (RFC 8200 8.1).
#[test]
fn checksum_of_long_message_uses_32_bit_length() {
    let (a, b) = (Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
    assert_eq!(upper_layer_checksum(a, b, 0, &vec![0; 0x2_0000]), !2);
    assert_eq!(upper_layer_checksum(a, b, 0, &vec![0; 0x2_0003]), !5);
}

proptest! {
    #[test]
    fn ipv6_header_survives_encoding_and_decoding(
        traffic_class in any::<u8>(),
        flow_label in 0..0x10_0000u32,
        payload_length in any::<u16>(),
        next_header in any::<u8>(),
        hop_limit in any::<u8>(),
        source in any_address(),
        destination in any_address(),
    ) {
        let header = Header {
            traffic_class, flow_label, payload_length, next_header, hop_limit, source, destination,
        };
        prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn fragment_header_survives_encoding_and_decoding(
        next_header in any::<u8>(),
        offset in (0..0x2000u16).prop_map(|units| units * 8),
        more in any::<bool>(),
        identification in any::<u32>(),
    ) {
        let header = FragmentHeader { next_header, offset, more_fragments: more, identification };
        prop_assert_eq!(FragmentHeader::parse(&header.emit()), Ok(header));
    }

    /// The checksum equals the definition: the sum of the 16-bit words, folded once at the end with
    /// arithmetic modulo 65535.
    #[test]
    fn checksum_verifies_for_random_messages(
        source in any_address(), destination in any_address(), next in any::<u8>(),
        octets in vec(any::<u8>(), 0..200),
    ) {
        let mut all = [source.octets(), destination.octets()].concat();
        all.extend(u32::try_from(octets.len()).expect("short").to_be_bytes());
        all.extend([0, 0, 0, next]);
        all.extend(&octets);
        if !all.len().is_multiple_of(2) {
            all.push(0);
        }
        let sum: u64 = all.chunks(2).map(|word| u64::from(word[0]) * 256 + u64::from(word[1])).sum();
        let folded = if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 };
        prop_assert_eq!(u64::from(upper_layer_checksum(source, destination, next, &octets)), 0xffff - folded);
    }

    #[test]
    fn binding_update_survives_encoding_and_decoding(
        sequence in any::<u16>(),
        flags in any_binding_update_flags(),
        lifetime in any::<u16>(),
        options in vec(any_mobility_option(), 0..12),
    ) {
        let mut builder = MobilityHeaderBuilder::binding_update(sequence, flags, lifetime);
        for option in &options {
            builder = builder.option(&option.as_mobility_option());
        }
        let octets = builder.try_finish().expect("fits");
        check_options_read_back(&octets, &options)?;
        let header = MobilityHeader::parse(&octets).expect("fine");
        let Ok(ParsedMobilityMessage::BindingUpdate(update)) = header.message() else {
            panic!("a binding update")
        };
        prop_assert_eq!((update.sequence, update.flags, update.lifetime), (sequence, flags, lifetime));
    }

    #[test]
    fn binding_acknowledgement_survives_encoding_and_decoding(
        (status, key_management, mobile_router) in any::<(u8, bool, bool)>(),
        (sequence, lifetime) in any::<(u16, u16)>(),
        options in vec(any_mobility_option(), 0..12),
    ) {
        let mut builder =
            MobilityHeaderBuilder::binding_acknowledgement(
                status, key_management, mobile_router, sequence, lifetime,
            );
        for option in &options {
            builder = builder.option(&option.as_mobility_option());
        }
        let octets = builder.try_finish().expect("fits");
        check_options_read_back(&octets, &options)?;
        let header = MobilityHeader::parse(&octets).expect("fine");
        let Ok(ParsedMobilityMessage::BindingAcknowledgement(it)) = header.message() else {
            panic!("an acknowledgement")
        };
        prop_assert_eq!(
            (it.status, it.key_management, it.mobile_router),
            (status, key_management, mobile_router)
        );
        prop_assert_eq!((it.sequence, it.lifetime), (sequence, lifetime));
    }

    #[test]
    fn binding_refresh_request_survives_encoding_and_decoding(options in vec(any_mobility_option(), 0..12)) {
        let builder = MobilityHeaderBuilder::binding_refresh_request();
        let builder = options.iter().fold(builder, |builder, option| {
            builder.option(&option.as_mobility_option())
        });
        check_options_read_back(&builder.try_finish().expect("fits"), &options)?;
    }

    #[test]
    fn binding_error_survives_encoding_and_decoding(status in any::<u8>(), home_address in any_address()) {
        let octets = MobilityHeaderBuilder::binding_error(status, home_address).finish();
        let header = MobilityHeader::parse(&octets).expect("fine");
        prop_assert_eq!(
            header.message(),
            Ok(ParsedMobilityMessage::BindingError(BindingError { status, home_address })),
        );
    }

    #[test]
    fn heartbeat_survives_encoding_and_decoding(
        sequence in any::<u32>(),
        counter in option::of(any::<u32>()),
        kind in 0..3,
    ) {
        let builder = match kind {
            0 => MobilityHeaderBuilder::heartbeat_request(sequence),
            1 => MobilityHeaderBuilder::heartbeat_response(sequence),
            _ => MobilityHeaderBuilder::unsolicited_heartbeat(),
        };
        let builder = counter.iter().fold(builder, |b, n| b.option(&MobilityOption::RestartCounter(*n)));
        let octets = builder.try_finish().expect("fits");
        let header = MobilityHeader::parse(&octets).expect("fine");
        let Ok(ParsedMobilityMessage::Heartbeat(it)) = header.message() else { panic!("a heartbeat") };
        let expected = (kind == 2, kind > 0, if kind == 2 { 0 } else { sequence });
        prop_assert_eq!((it.unsolicited, it.response, it.sequence), expected);
        let read: Vec<_> = it.options.iter().collect();
        let expected: Vec<_> = counter.iter().map(|n| Ok(MobilityOption::RestartCounter(*n))).collect();
        prop_assert_eq!(read, expected);
    }

    /// A message has a Flow Identification option with a selector and a binding reference. The parser returns
    /// the written values, and every field has the offset that RFC 6088 requires.
    #[test]
    fn flow_sub_options_survive_encoding_and_decoding(
        before in vec(any_mobility_option(), 0..3),
        selector in option::of(any_traffic_selector()),
        bids in vec(any::<u16>(), 0..17),
    ) {
        let octets = emit_sub_options(selector.as_ref(), &bids);
        let read = FlowSubOptions::parse(&octets).expect("what was written");
        prop_assert_eq!(read.selector, selector.map(SelectorField::Known));
        let found: Vec<_> = read.bids.map(|bids| bids.iter().collect()).unwrap_or_default();
        prop_assert_eq!(found, bids.clone());

        let builder = before.iter().fold(
            MobilityHeaderBuilder::binding_update(1, BindingUpdateFlags::default(), 1),
            |builder, option| builder.option(&option.as_mobility_option()),
        );
        let start = builder.header_length();
        let option =
            MobilityOption::FlowIdentification { fid: 1, priority: 2, status: 0, sub_options: &octets };
        let message = builder.option(&option).finish();
        let at = (start..).find(|at| at % 8 == 0).expect("a place");
        prop_assert_eq!(message[at], 45);
        if !bids.is_empty() {
            let reference = at + 8 + octets.len() - 2 - 2 * bids.len();
            prop_assert_eq!((message[reference], reference % 2), (2, 0));
        }
        if selector.is_some() {
            // Type, length, format and reserved octet, flags and reserved octets precede the fields. The
            // fields begin at a multiple of 8.
            prop_assert_eq!((message[at + 8], (at + 16) % 8), (3, 0));
        }
    }

    /// No octets in a Flow Identification option or a Vendor Specific one make the parsers panic.
    #[test]
    fn random_flow_sub_options_cause_no_panic(octets in vec(prop_oneof![0..4u8, any::<u8>()], 0..255)) {
        if let Ok(read) = FlowSubOptions::parse(&octets) {
            prop_assert!(read.bids.is_none_or(|bids| bids.iter().count() > 0));
        }
        let option = FlowActionOption::vendor_specific_option(&octets);
        let _ = FlowActionOption::from_mobility_option(&option);
    }

    #[test]
    fn flow_action_survives_encoding_and_decoding(
        fid in any::<u16>(),
        action in prop_oneof![
            Just(FlowAction::Failover),
            Just(FlowAction::Balance),
            Just(FlowAction::Duplicate)
        ],
        weights in vec((any::<u16>(), 1..=u16::MAX), 0..17),
    ) {
        let option = FlowActionOption { fid, action, binding_weights: weights };
        let data = option.emit();
        let vendor_option = FlowActionOption::vendor_specific_option(&data);
        prop_assert_eq!(FlowActionOption::from_mobility_option(&vendor_option), Some(Ok(option)));
        let other = MobilityOption::VendorSpecific { vendor: 10_415, sub_type: 1, data: &data };
        prop_assert_eq!(FlowActionOption::from_mobility_option(&other), None);
    }

    /// Two messages with different authentication data differ only in the range that `authentication_field`
    /// returns, whatever options stand before it.
    #[test]
    fn authentication_option_survives_encoding_and_decoding(
        before in vec(any_mobility_option().prop_filter("no authentication", |option| {
            !matches!(option, OwnedOption::Authentication(..))
        }), 0..6),
        spi in any::<u32>(),
        data in vec(any::<u8>(), 12),
    ) {
        let builder = before.iter().fold(
            MobilityHeaderBuilder::binding_update(1, BindingUpdateFlags::default(), 1),
            |builder, option| builder.option(&option.as_mobility_option()),
        );
        let with = |data: &[u8]| {
            builder.clone().option(&MobilityOption::Authentication { subtype: 1, spi, data }).finish()
        };
        let mut octets = with(&[0; 12]);
        let field = authentication_field(&octets).expect("fine").expect("there");
        prop_assert_eq!(field.spi, spi);
        octets[field.data_range].copy_from_slice(&data);
        prop_assert_eq!(octets, with(&data));
    }

    #[test]
    fn control_packet_survives_encoding_and_decoding(
        source in any_address(),
        destination in any_address(),
        home_address in option::of(any_address()),
        routing_home_address in option::of(any_address()),
        hop_limit in any::<u8>(),
        options in vec(any_mobility_option(), 0..4),
    ) {
        let builder = options.iter().fold(
            MobilityHeaderBuilder::binding_update(1, BindingUpdateFlags::default(), 1),
            |builder, option| builder.option(&option.as_mobility_option()),
        );
        let mut mobility_header = builder.finish();
        let packet = ControlPacket {
            source, destination, hop_limit, home_address, routing_home_address,
            mobility_header: &mut mobility_header,
        }.emit();
        let (header, payload) = Header::parse_packet(&packet).expect("IPv6");
        prop_assert_eq!(payload.len() + 40, packet.len());
        prop_assert_eq!(
            (header.source, header.destination, header.hop_limit),
            (source, destination, hop_limit)
        );
        let extensions = ExtensionHeaders::parse(&packet).expect("extension headers");
        prop_assert_eq!(extensions.protocol, protocol::MOBILITY);
        prop_assert_eq!(extensions.home_address, home_address);
        prop_assert_eq!(extensions.routing_home_address, routing_home_address);
        let header =
            MobilityHeader::parse(&packet[extensions.upper_layer_offset..]).expect("mobility header");
        prop_assert_eq!(header.octets(), &mobility_header[..]);
        let verified = header.verify_checksum(
            home_address.unwrap_or(source),
            routing_home_address.unwrap_or(destination),
        );
        prop_assert_eq!(verified, Ok(()));
        let mut again = mobility_header.clone();
        set_checksum(&mut again, home_address.unwrap_or(source), routing_home_address.unwrap_or(destination));
        prop_assert_eq!(again, mobility_header);
    }

    #[test]
    fn neighbor_solicitation_survives_encoding_and_decoding(
        target in any_unicast_address(),
        source_link_address in any_link_address(),
    ) {
        let message = NeighborSolicitation { target, source_link_address };
        prop_assert_eq!(NeighborSolicitation::parse(&message.emit()), Ok(message));
        let message = RouterSolicitation { source_link_address };
        prop_assert_eq!(RouterSolicitation::parse(&message.emit()), Ok(message));
    }

    #[test]
    fn neighbor_advertisement_survives_encoding_and_decoding(
        target in any_unicast_address(),
        [router, solicited, override_] in any::<[bool; 3]>(),
        target_link_address in any_link_address(),
    ) {
        let message = NeighborAdvertisement { target, router, solicited, override_, target_link_address };
        prop_assert_eq!(NeighborAdvertisement::parse(&message.emit()), Ok(message));
    }

    #[test]
    fn router_advertisements_survive_encoding_and_decoding(
        hop_limit in any::<u8>(),
        [managed, other, home_agent] in any::<[bool; 3]>(),
        router_lifetime in 1..=u16::MAX,
        [reachable_time, retrans_timer] in any::<[u32; 2]>(),
        options in vec(any_nd_option(), 0..10),
    ) {
        let repr = RouterAdvertisementRepr {
            hop_limit, managed, other_configuration: other, home_agent, preference: RoutePreference::High,
            router_lifetime,
            reachable_time, retrans_timer, options: &options,
        };
        let message = emit_router_advertisement(&repr);
        prop_assert!(message.len().is_multiple_of(8));
        let read = RouterAdvertisement::parse(&message).expect("fine");
        let read_options: Vec<_> = read.options().collect();
        prop_assert_eq!(RouterAdvertisementRepr {
            hop_limit: read.hop_limit,
            managed: read.managed,
            other_configuration: read.other_configuration,
            home_agent: read.home_agent,
            preference: read.preference,
            router_lifetime: read.router_lifetime,
            reachable_time: read.reachable_time,
            retrans_timer: read.retrans_timer,
            options: &read_options,
        }, repr);
    }

    #[test]
    fn home_agent_discovery_survives_encoding_and_decoding(
        identifier in any::<u16>(),
        mobile_router in any::<bool>(),
        addresses in vec(any_address(), 0..77),
    ) {
        let request = HomeAgentDiscoveryRequest { identifier, mobile_router };
        prop_assert_eq!(HomeAgentDiscoveryRequest::parse(&request.emit()), Ok(request));
        let reply = emit_discovery_reply(identifier, mobile_router, &addresses);
        prop_assert!(40 + reply.len() <= 1280);
        let read = HomeAgentDiscoveryReply::parse(&reply).expect("fine");
        prop_assert_eq!((read.identifier, read.mobile_router), (identifier, mobile_router));
        prop_assert_eq!(read.addresses().collect::<Vec<_>>(), addresses);
    }

    #[test]
    fn icmpv6_errors_survive_encoding_and_decoding(
        source in any_address(),
        destination in any_address(),
        code in any::<u8>(),
        field in any::<u32>(),
        kind in 0..4,
        invoking in vec(any::<u8>(), 0..2000),
    ) {
        let error = match kind {
            0 => Icmpv6ErrorMessage::DestinationUnreachable { code },
            1 => Icmpv6ErrorMessage::PacketTooBig { mtu: field },
            2 => Icmpv6ErrorMessage::TimeExceeded { code },
            _ => Icmpv6ErrorMessage::ParameterProblem { code, pointer: field },
        };
        let packet = error_packet(source, destination, error, &invoking);
        prop_assert!(packet.len() <= 1280);
        let (_, message) = Header::parse_packet(&packet).expect("IPv6");
        prop_assert_eq!(icmpv6::verify_checksum(source, destination, message), Ok(()));
        let (read, quoted) = parse_error(message).expect("an error");
        prop_assert_eq!(read, error);
        prop_assert_eq!(quoted.len(), invoking.len().min(1232));
        prop_assert!(invoking.starts_with(quoted));
    }

    #[test]
    fn echo_survives_encoding_and_decoding(
        source in any_unicast_address(),
        destination in any_unicast_address(),
        data in vec(any::<u8>(), 4..300),
    ) {
        let request = icmpv6::emit_packet(source, destination, 9, [&[128, 0, 0, 0][..], &data].concat());
        let reply = icmpv6::emit_packet(destination, source, 64, [&[129, 0, 0, 0][..], &data].concat());
        prop_assert_eq!(answer_echo_request(&request), Some(reply));
    }

    #[test]
    fn random_octets_cause_no_panic_in_parsers(octets in vec(any::<u8>(), 0..300)) {
        parse_everything(&octets);
    }

    /// Arbitrary octets behind a header whose Next Header is a known protocol do not panic the parser.
    #[test]
    fn random_payload_causes_no_panic_in_parsers(
        next_header in prop_oneof![Just(0u8), Just(43), Just(44), Just(58), Just(60), Just(135)],
        payload in vec(prop_oneof![any::<u8>(), 0..4u8, Just(0xc9), Just(59), Just(60), Just(135)], 0..200),
    ) {
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: u16::try_from(payload.len()).expect("short"),
            next_header,
            hop_limit: 255,
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::LOCALHOST,
        };
        parse_everything(&[&header.emit()[..], &payload].concat());
    }

    /// Arbitrary options in a Mobility Header of every type do not panic the parser.
    #[test]
    fn random_mobility_header_causes_no_panic(
        message_type in 0..20u8,
        data in vec(prop_oneof![any::<u8>(), 0..20u8], 0..31).prop_map(|mut data| {
            data.resize(data.len().next_multiple_of(8) + 2, 0);
            data
        }),
    ) {
        let mut octets = vec![59, u8::try_from((6 + data.len()) / 8 - 1).expect("shor\
            t"), message_type, 0, 0, 0];
        octets.extend(data);
        parse_everything(&octets);
    }
}
