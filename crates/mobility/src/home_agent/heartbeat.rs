//! Answers Heartbeats (RFC 5847): a node asks over each of its paths whether the home agent is reachable.
//!
//! RFC 5847 requires an answer to every request. This home agent answers only requests over a registered
//! path. So an attacker cannot direct answers at a victim. A rate limit, several times above the need of a
//! node, bounds the answers. If a request with a known home address comes from an unregistered IPv4 address,
//! the home agent sends a Binding Error. So the node registers from there. The home agent sends no requests
//! itself, because nodes renew their bindings.

use std::net::Ipv6Addr;

use carnet_base::Endpoint;
use carnet_wire::mobility::message::Heartbeat;
use carnet_wire::mobility::{ControlPacket, MobilityHeaderBuilder, MobilityOption};

use super::acknowledgements::build_encapsulated_output;
use super::{BindingCache, HomeAgentConfig};
use crate::{HOP_LIMIT, MobilityMessage, Output};

/// Returns the home address of the node that sent a request; `None` if the request did not come over a
/// registered path.
pub(super) fn sender_of_heartbeat_request(
    cache: &BindingCache,
    message: &MobilityMessage<'_>,
) -> Option<Ipv6Addr> {
    let care_of_address = message.tunnel_ends.map_or(Endpoint::Ipv6(message.source), |(_, node)| node);
    match message.tunnel_ends {
        // A request inside IPv4 has the home address as its IPv6 source.
        Some(_) => cache
            .bindings_of(message.source)
            .any(|binding| binding.care_of_address == care_of_address)
            .then_some(message.source),
        None => cache.node_bound_to(care_of_address),
    }
}

/// Returns the Heartbeat response to a request, with the restart counter (RFC 5847 3.2).
pub(super) fn build_heartbeat_response(
    config: &HomeAgentConfig,
    restart_counter: u32,
    message: &MobilityMessage<'_>,
    heartbeat: &Heartbeat<'_>,
) -> Output {
    let mut mobility_header = MobilityHeaderBuilder::heartbeat_response(heartbeat.sequence)
        .option(&MobilityOption::RestartCounter(restart_counter))
        .finish();
    let packet = ControlPacket {
        source: config.address,
        destination: message.source,
        hop_limit: HOP_LIMIT,
        home_address: None,
        routing_home_address: None,
        mobility_header: &mut mobility_header,
    };
    build_encapsulated_output(message.tunnel_ends, packet.emit())
}
