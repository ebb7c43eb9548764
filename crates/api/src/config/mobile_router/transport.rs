//! Protocols and ports, as policies and inbound filters name them.

use std::ops::RangeInclusive;

use super::super::keys::{ValueKind, value_kind, words_kind};
use super::super::reader::{List, LocatedValue};

/// `protocol` of a policy, or of an exception of an inbound filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyProtocol {
    /// TCP, protocol 6.
    Tcp,
    /// UDP, protocol 17.
    Udp,
    /// ICMP of IPv4, protocol 1.
    Icmp,
    /// ICMPv6, protocol 58.
    Icmpv6,
}

pub(super) const PROTOCOL_KIND: ValueKind<PolicyProtocol> = words_kind(&[
    ("tcp", PolicyProtocol::Tcp),
    ("udp", PolicyProtocol::Udp),
    ("icmp", PolicyProtocol::Icmp),
    ("icmpv6", PolicyProtocol::Icmpv6),
]);

/// Expected value in an error message: `ports`.
const EXPECTED_PORTS: &str = "an array of ports such as 5000 or \"5000-5010\"";

pub(super) const PORT_RANGES_KIND: ValueKind<List<RangeInclusive<u16>>> =
    value_kind("array of ports", EXPECTED_PORTS, |value| {
        List::read_array(value, EXPECTED_PORTS, read_port_range)
    });

/// Reads a port, or a range of ports.
fn read_port_range(value: &LocatedValue<'_>) -> Option<RangeInclusive<u16>> {
    if value.as_str().is_none() {
        let port = value.read_integer(1, 65_535).and_then(|port| u16::try_from(port).ok())?;
        return Some(port..=port);
    }
    value.parse("a port or a range of ports such as \"5000-5010\"", |text| {
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
        match text.split_once('-').map(|(first, last)| (number(first), number(last))) {
            Some((Some(first), Some(last))) if first <= last => Ok(first..=last),
            _ => Err(format!("{text:?} is no range of ports, expected one such as \"5000-5010\"")),
        }
    })
}
