//! The Internet checksum over the IPv6 pseudo-header (RFC 8200 8.1, RFC 1071).
//!
//! One sum serves both ends. Over octets whose checksum field is zero it is the value to write there; over
//! octets that carry a right checksum it is 0. UDP's rule that a computed 0 is sent as 0xffff is left to UDP:
//! neither ICMPv6 nor the Mobility Header has it.

use std::net::Ipv6Addr;

/// The checksum over the pseudo-header and `octets` as they are.
///
/// The pseudo-header holds `source`, `destination`, the length of `octets` and `protocol`. The addresses are the
/// ones that the upper layer sees: the home address in place of the care-of address when a Home Address option
/// is there, and the last destination of a routing header (RFC 8200 8.1, RFC 6275 6.1.1).
///
/// Returns 0 when `octets` carry a right checksum.
///
/// ```
/// use carnet_wire::checksum::upper_layer;
/// use std::net::Ipv6Addr;
/// let (a, b) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
/// let mut message = [128, 0, 0, 0, 0x12, 0x34, 0, 1];
/// let sum = upper_layer(a, b, 58, &message);
/// message[2..4].copy_from_slice(&sum.to_be_bytes());
/// assert_eq!(upper_layer(a, b, 58, &message), 0);
/// ```
pub fn upper_layer(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, octets: &[u8]) -> u16 {
    let addresses = add(sum(&source.octets()), sum(&destination.octets()));
    !add(add(addresses, protocol_and_length(protocol, octets.len())), sum(octets))
}

/// What protocol and upper-layer length add to the pseudo-header's sum.
pub fn protocol_and_length(protocol: u8, length: usize) -> u16 {
    let length = length as u64;
    fold(u64::from(protocol) + (length & 0xffff) + (length >> 16))
}

/// The one's complement sum of the 16-bit words, not inverted; an odd last octet counts as the high half of a
/// word.
pub fn sum(octets: &[u8]) -> u16 {
    // RFC 1071 2 (B): the order of octets does not matter as long as it is one order, so the sum is taken in the
    // machine's own and turned round at the end. Eight octets at a time, their halves apart, so that neither
    // overflows: the compiler makes of that what the machine can do at once.
    let (words, rest) = octets.as_chunks::<8>();
    let (mut low, mut high) = (0u64, 0u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        low += word & 0xffff_ffff;
        high += word >> 32;
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let last = u64::from_ne_bytes(last);
    u16::from_be(fold(low + high + (last & 0xffff_ffff) + (last >> 32)))
}

/// One's complement addition: `add(sum(a), sum(b))` is the sum of `a` and `b` when `a` has even length, and
/// `add(x, !y)` takes `y` off `x`.
pub fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
