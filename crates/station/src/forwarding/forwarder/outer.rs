//! The header that goes in front of an inner packet (RFC 2473 3.1).

use std::net::Ipv6Addr;

use carnet_wire::ipv6::{Header, protocol};

use super::TUNNEL_HOP_LIMIT;

/// The outer header of an inner packet of `length` octets; `None` when that is too much for any. `secret` is the
/// key of the flow label.
#[inline]
pub(super) fn header(
    secret: u64,
    ends: (Ipv6Addr, Ipv6Addr),
    inner: &Header,
    length: usize,
) -> Option<Header> {
    Some(Header {
        // RFC 6040 4.1, normal mode: the ECN field is copied; so is the DSCP (RFC 2983 uniform model).
        traffic_class: inner.traffic_class,
        flow_label: flow_label(secret, inner),
        payload_length: u16::try_from(length).ok()?,
        next_header: protocol::IPV6,
        hop_limit: TUNNEL_HOP_LIMIT,
        source: ends.0,
        destination: ends.1,
    })
}

/// A flow label that spreads inner flows over equal paths (RFC 6438 3): a keyed hash of addresses and label.
#[inline]
pub(super) fn flow_label(secret: u64, inner: &Header) -> u32 {
    let mut hash = secret;
    let label = u128::from(inner.flow_label);
    for word in [u128::from(inner.source), u128::from(inner.destination), label] {
        for half in [word as u64, (word >> 64) as u64] {
            hash = (hash ^ half).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
    }
    hash = hash.wrapping_add(secret.rotate_left(32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // Zero would mean "not labelled".
    ((hash >> 44) as u32).max(1)
}
