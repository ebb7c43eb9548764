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
    let length = octets.len() as u64;
    let mut sum = u64::from(protocol) + (length & 0xffff) + (length >> 16);
    sum += words(&source.octets()) + words(&destination.octets()) + words(octets);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The plain sum of the 16-bit words; an odd last octet counts as the high half of a word.
fn words(octets: &[u8]) -> u64 {
    let mut pairs = octets.chunks_exact(2);
    let sum: u64 = pairs
        .by_ref()
        .map(|pair| match *pair {
            [high, low] => u64::from(u16::from_be_bytes([high, low])),
            _ => 0,
        })
        .sum();
    sum + pairs.remainder().first().map_or(0, |&octet| u64::from(octet) << 8)
}
