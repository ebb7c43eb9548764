//! What the home agent sends: acknowledgements, Binding Errors, Parameter Problems (RFC 6275 9.2, 9.3.3, 9.5.4).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::icmpv6;
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{Builder, ControlPacket, MobilityOption};

use super::HomeAgent;
use super::registration::Request;
use crate::{HOP_LIMIT, MobilityDrop, MobilityMessage, Output, lifetime_units};

impl HomeAgent {
    pub(super) fn acknowledge_registration(&mut self, request: &Request) {
        self.acknowledge(request, Status::ACCEPTED, request.sequence, request.lifetime, request.timestamp);
    }

    /// Sends a Binding Acknowledgement (RFC 6275 9.5.4, RFC 3963 6.6, RFC 4285 5.1.1).
    pub(super) fn acknowledge(
        &mut self,
        request: &Request,
        status: Status,
        sequence: u16,
        lifetime: Duration,
        timestamp: Option<u64>,
    ) {
        let supports_routers = request.mobile_router && self.config.serves_mobile_routers();
        let mut builder = Builder::binding_acknowledgement(
            status.0,
            false,
            supports_routers,
            sequence,
            lifetime_units(lifetime),
        );
        if let Some(timestamp) = timestamp {
            builder = builder.option(&MobilityOption::MessageIdentifier(timestamp));
        }
        let association =
            self.nodes.get(&request.home_address).and_then(|node| node.authentication.association());
        if let Some(association) = association {
            builder = builder.option(&association.blank_option());
        }
        let mut mobility_header = builder.finish();
        if let Some(association) = association {
            association.sign(&mut mobility_header, request.care_of_address, request.home_address);
        }
        let packet = ControlPacket {
            source: self.config.address,
            destination: request.source,
            hop_limit: HOP_LIMIT,
            home_address: None,
            routing_home_address: request.away.then_some(request.home_address),
            mobility_header: &mut mobility_header,
        };
        self.outputs.push_back(Output::Packet(packet.emit()));
    }

    pub(super) fn binding_error(
        &mut self,
        now: Time,
        destination: Ipv6Addr,
        home_address: Ipv6Addr,
        status: u8,
    ) {
        if !crate::is_unicast_routable(destination) || !self.binding_errors.allow(now) {
            return;
        }
        let mut mobility_header = Builder::binding_error(status, home_address).finish();
        let packet = ControlPacket {
            source: self.config.address,
            destination,
            hop_limit: HOP_LIMIT,
            home_address: None,
            routing_home_address: None,
            mobility_header: &mut mobility_header,
        };
        self.outputs.push_back(Output::Packet(packet.emit()));
    }

    /// RFC 6275 9.2: wrong Payload Proto and short messages are answered with Parameter Problem.
    pub(super) fn malformed(
        &mut self,
        now: Time,
        message: &MobilityMessage<'_>,
        error: carnet_wire::Error,
    ) -> MobilityDrop {
        if let Some(problem) = error.parameter_problem(message.offset)
            && icmpv6::may_answer_with(problem, message.packet)
            && self.strangers.allow(now)
        {
            let packet = icmpv6::error_packet(self.config.address, message.source, problem, message.packet);
            self.outputs.push_back(Output::Packet(packet));
        }
        error.into()
    }
}
