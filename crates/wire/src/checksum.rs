//! The Internet checksum over the IPv6 pseudo-header (RFC 8200 8.1, RFC 1071).
//!
//! One function serves sender and receiver. If the checksum field of the octets is zero, the function returns
//! the value for the field. If the field holds the right checksum, the function returns 0. UDP sends a
//! computed 0 as 0xffff; ICMPv6 and the Mobility Header have no such rule, so this module leaves the rule to
//! UDP code.

use std::net::Ipv6Addr;

/// Returns the checksum over the pseudo-header and `octets`.
///
/// The pseudo-header holds `source`, `destination`, the length of `octets` and `protocol`. The addresses are
/// those that the upper layer sees. With a Home Address option the source is the home address, not the
/// care-of address (RFC 6275 6.1.1). With a routing header the destination is the last one (RFC 8200 8.1).
///
/// Returns 0 if the checksum field in `octets` is right.
///
/// ```
/// use carnet_wire::checksum::upper_layer_checksum;
/// use std::net::Ipv6Addr;
/// let (a, b) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
/// let mut message = [128, 0, 0, 0, 0x12, 0x34, 0, 1];
/// let sum = upper_layer_checksum(a, b, 58, &message);
/// message[2..4].copy_from_slice(&sum.to_be_bytes());
/// assert_eq!(upper_layer_checksum(a, b, 58, &message), 0);
/// ```
pub fn upper_layer_checksum(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, octets: &[u8]) -> u16 {
    let addresses = ones_complement_add(
        ones_complement_sum(&source.octets()),
        ones_complement_sum(&destination.octets()),
    );
    !ones_complement_add(
        ones_complement_add(addresses, sum_of_protocol_and_length(protocol, octets.len())),
        ones_complement_sum(octets),
    )
}

/// Returns the part of the pseudo-header's sum that `protocol` and the upper-layer length contribute.
pub fn sum_of_protocol_and_length(protocol: u8, length: usize) -> u16 {
    let length = length as u64;
    fold_to_16_bits(u64::from(protocol) + (length & 0xffff) + (length >> 16))
}

/// Returns the one's complement sum of the 16-bit words, not inverted; an odd last octet is the high half of
/// a word.
pub fn ones_complement_sum(octets: &[u8]) -> u16 {
    // The sum does not depend on the byte order of the machine (RFC 1071 2 (B)). So this code adds in the
    // machine's order and swaps the result. It adds eight octets at a time in two sums, one for each half, so
    // that neither overflows. The compiler turns this loop into vector instructions.
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
    u16::from_be(fold_to_16_bits(low + high + (last & 0xffff_ffff) + (last >> 32)))
}

/// Adds in one's complement: `ones_complement_add(sum(a), sum(b))` is the sum of `a` followed by `b`, if `a`
/// has an even length. `ones_complement_add(x, !y)` subtracts `y` from `x`.
pub fn ones_complement_add(a: u16, b: u16) -> u16 {
    fold_to_16_bits(u64::from(a) + u64::from(b))
}

fn fold_to_16_bits(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
