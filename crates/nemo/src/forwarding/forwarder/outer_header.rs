//! The outer header of an inner packet (RFC 2473 3.1).

use std::net::Ipv6Addr;

use carnet_wire::ipv6::{Header, protocol, tunnel_flow_label};

use super::TUNNEL_HOP_LIMIT;

/// Returns the outer header of an inner packet of `length` octets; `None` if the length does not fit into the
/// header. `secret` is the key of the flow label.
#[inline]
pub(super) fn outer_header(
    secret: u64,
    ends: (Ipv6Addr, Ipv6Addr),
    inner: &Header,
    length: usize,
) -> Option<Header> {
    Some(Header {
        // RFC 6040 4.1, normal mode: copy the inner packet's ECN field. Also copy its DSCP (RFC 2983, uniform
        // model).
        traffic_class: inner.traffic_class,
        flow_label: tunnel_flow_label(secret, inner),
        payload_length: u16::try_from(length).ok()?,
        next_header: protocol::IPV6,
        hop_limit: TUNNEL_HOP_LIMIT,
        source: ends.0,
        destination: ends.1,
    })
}
