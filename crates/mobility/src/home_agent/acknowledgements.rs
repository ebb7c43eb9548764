//! Messages that the home agent sends: acknowledgements, Binding Errors, Parameter Problems (RFC 6275 9.2,
//! 9.3.3, 9.5.4).
//!
//! Each answer has the encapsulation of its request. The answer to a request inside IPv4 or UDP goes to the
//! address and port of the request (RFC 5555 4.2).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, RateLimiter, Time};
use carnet_wire::icmpv6;
use carnet_wire::mobility::binding_status::BindingStatus;
use carnet_wire::mobility::flow_identification::FlowActionOption;
use carnet_wire::mobility::{ControlPacket, MobilityHeaderBuilder, MobilityOption};

use super::HomeAgentConfig;
use super::flows::FlowAnswers;
use super::ipv4_homes::Ipv4Answer;
use super::request::BindingUpdateRequest;
use crate::{HOP_LIMIT, MobilityMessage, Output, lifetime_units};

/// Size of a Mobility Header, in octets, up to which the home agent copies the sub-options of flows into an
/// acknowledgement. The flow options without sub-options are small, so the packet with all headers stays
/// below the minimum MTU of 1280.
const MAX_COPIED_PACKET_OCTETS: usize = 640;

/// Contents of a Binding Acknowledgement.
#[derive(Debug, Clone, Default)]
pub(super) struct AcknowledgementContent {
    pub sequence: u16,
    pub lifetime: Duration,
    /// Timestamp for the Message-ID option of the acknowledgement; `None` if it has no such option.
    pub timestamp: Option<u64>,
    /// Status field of each Binding Identifier option; an option beyond the end of this list gets 0.
    pub statuses: Vec<u8>,
    pub nat_detection_option: Option<MobilityOption<'static>>,
    pub flow_answers: FlowAnswers,
    /// Answers to the IPv4 Home Address options of an accepted registration.
    pub ipv4_answers: Vec<Ipv4Answer>,
}

impl AcknowledgementContent {
    /// Creates the answer to a refused request or a de-registration, which grants no lifetime and no
    /// prefixes.
    pub fn with_nothing_granted(request: &BindingUpdateRequest) -> AcknowledgementContent {
        AcknowledgementContent {
            sequence: request.sequence,
            timestamp: request.timestamp,
            ..AcknowledgementContent::default()
        }
    }
}

/// Returns the output for an IPv6 packet. If `outer` names the ends of an IPv4 or UDP tunnel, the packet goes
/// through this tunnel.
pub(super) fn build_encapsulated_output(outer: Option<(Endpoint, Endpoint)>, packet: Vec<u8>) -> Output {
    match outer {
        None | Some((Endpoint::Ipv6(_), _)) => Output::Packet(packet),
        Some((local, remote)) => Output::Encapsulated { local, remote, packet },
    }
}

/// Returns a Binding Acknowledgement (RFC 6275 9.5.4, RFC 3963 6.6, RFC 4285 5.1.1, RFC 5648 6.2, RFC 6089
/// 5.3.5, RFC 5555 4.5).
pub(super) fn build_acknowledgement(
    config: &HomeAgentConfig,
    request: &BindingUpdateRequest,
    status: BindingStatus,
    answer: &AcknowledgementContent,
) -> Output {
    let supports_routers = request.mobile_router && config.serves_mobile_routers();
    let mut builder = MobilityHeaderBuilder::binding_acknowledgement(
        status.0,
        false,
        supports_routers,
        answer.sequence,
        lifetime_units(answer.lifetime),
    );
    // RFC 5648 8.2: an IPv4 Address Acknowledgement option "MUST be present before any Binding Identifier
    // mobility option".
    for home in &answer.ipv4_answers {
        builder = builder.option(&home.to_option());
    }
    for (index, identifier) in request.identifiers.iter().enumerate() {
        // RFC 5648 4.3: no care-of address "in any messages other than a Binding Update".
        builder = builder.option(&MobilityOption::BindingIdentifier {
            bid: identifier.bid,
            status: answer.statuses.get(index).copied().unwrap_or(0),
            home: identifier.is_home_binding,
            priority: identifier.bid_priority,
            care_of_address: None,
        });
    }
    if let Some(option) = &answer.nat_detection_option {
        builder = builder.option(option);
    }
    if let Some(timestamp) = answer.timestamp {
        builder = builder.option(&MobilityOption::MessageIdentifier(timestamp));
    }
    builder = add_flow_options(builder, &answer.flow_answers);
    // RFC 4285 5.1: the acknowledgement uses the request's security association, also if the node uses
    // another one for later messages.
    let node = config.node(request.home_address);
    let association = node.and_then(|node| node.authentication.association_of(request.spi));
    if let Some(association) = association {
        builder = builder.option(&association.empty_authentication_option());
    }
    let mut mobility_header = builder.finish();
    if let Some(association) = association {
        association.sign(&mut mobility_header, request.authenticated_address(), request.home_address);
    }
    let packet = ControlPacket {
        source: config.address,
        destination: request.source,
        hop_limit: HOP_LIMIT,
        home_address: None,
        routing_home_address: request.has_home_address_option.then_some(request.home_address),
        mobility_header: &mut mobility_header,
    };
    build_encapsulated_output(request.tunnel_ends, packet.emit())
}

/// Returns a Binding Error to a sender without a binding (RFC 6275 9.3.3).
pub(super) fn build_binding_error(
    config: &HomeAgentConfig,
    outer: Option<(Endpoint, Endpoint)>,
    destination: Ipv6Addr,
    home_address: Ipv6Addr,
    status: u8,
) -> Output {
    let mut mobility_header = MobilityHeaderBuilder::binding_error(status, home_address).finish();
    let packet = ControlPacket {
        source: config.address,
        destination,
        hop_limit: HOP_LIMIT,
        home_address: None,
        routing_home_address: None,
        mobility_header: &mut mobility_header,
    };
    build_encapsulated_output(outer, packet.emit())
}

/// Returns the ICMPv6 Parameter Problem for a message with a wrong Payload Proto or Header Len (RFC 6275
/// 9.2). Returns `None` if ICMPv6 forbids an error for this packet, or if the limit of answers to
/// unauthenticated sources is reached.
pub(super) fn build_parameter_problem(
    config: &HomeAgentConfig,
    unknown_source_limits: &mut RateLimiter,
    now: Time,
    message: &MobilityMessage<'_>,
    error: carnet_wire::Error,
) -> Option<Output> {
    let problem = error.parameter_problem(message.mobility_header_offset)?;
    if !icmpv6::may_send_error(problem, message.packet) || !unknown_source_limits.try_take_token(now) {
        return None;
    }
    let packet = icmpv6::error_packet(config.address, message.source, problem, message.packet);
    Some(build_encapsulated_output(message.tunnel_ends, packet))
}

/// Copies the flow options with their statuses. Copies their sub-options as long as the packet has room.
fn add_flow_options(mut builder: MobilityHeaderBuilder, flows: &FlowAnswers) -> MobilityHeaderBuilder {
    for (asked, status) in &flows.options {
        let fits = builder.header_length() + asked.sub_options.len() <= MAX_COPIED_PACKET_OCTETS;
        builder = builder.option(&MobilityOption::FlowIdentification {
            fid: asked.fid,
            priority: asked.fid_priority,
            status: *status,
            sub_options: if fits { &asked.sub_options } else { &[] },
        });
    }
    for action in &flows.actions {
        let data = action.emit();
        if builder.header_length() + data.len() <= MAX_COPIED_PACKET_OCTETS {
            builder = builder.option(&FlowActionOption::vendor_specific_option(&data));
        }
    }
    builder
}
