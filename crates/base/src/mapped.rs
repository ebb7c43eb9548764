//! IPv4 prefixes in IPv4-mapped form (RFC 4291 2.5.5.2): `10.42.7.0/24` is `::ffff:10.42.7.0/120`.
//!
//! The tables of mobile network prefixes contain IPv6 and IPv4 prefixes. With the IPv4-mapped form, both have
//! one type and one longest-prefix match. IPv6 packets cannot use such addresses: parsers and the forwarder
//! refuse IPv4-mapped addresses in IPv6 headers and options.

use ipnet::{Ipv4Net, Ipv6Net};
use std::net::Ipv6Addr;

/// Number of bits in front of an IPv4 address in its IPv4-mapped form.
const MAPPED_PREFIX_BITS: u8 = 96;
/// The prefix of all IPv4 addresses.
pub const ALL_IPV4_PREFIX: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), MAPPED_PREFIX_BITS);

/// Returns an IPv4 prefix in IPv4-mapped form.
pub fn from_ipv4(prefix: Ipv4Net) -> Ipv6Net {
    let address = prefix.addr().to_ipv6_mapped();
    Ipv6Net::new(address, prefix.prefix_len() + MAPPED_PREFIX_BITS).unwrap_or(Ipv6Net::from(address))
}

/// Returns the IPv4 prefix of a prefix in IPv4-mapped form; `None` for an IPv6 prefix.
pub fn to_ipv4(prefix: Ipv6Net) -> Option<Ipv4Net> {
    let length = prefix.prefix_len().checked_sub(MAPPED_PREFIX_BITS)?;
    Ipv4Net::new(prefix.addr().to_ipv4_mapped()?, length).ok()
}

/// Returns whether an address is in IPv4-mapped form.
pub fn is_ipv4(address: Ipv6Addr) -> bool {
    address.to_bits() >> 32 == 0xffff
}

/// Divides prefixes into IPv6 prefixes and IPv4 prefixes.
pub fn split_by_family(prefixes: impl IntoIterator<Item = Ipv6Net>) -> (Vec<Ipv6Net>, Vec<Ipv4Net>) {
    let (mut ipv6, mut ipv4) = (Vec::new(), Vec::new());
    for prefix in prefixes {
        match to_ipv4(prefix) {
            Some(prefix) => ipv4.push(prefix),
            None => ipv6.push(prefix),
        }
    }
    (ipv6, ipv4)
}

/// Joins prefixes of both families in the order of a registration: IPv4 prefixes first, each family sorted.
pub fn join_families(ipv6: &[Ipv6Net], ipv4: &[Ipv4Net]) -> Vec<Ipv6Net> {
    let mut prefixes: Vec<Ipv6Net> = ipv4.iter().copied().map(from_ipv4).collect();
    prefixes.sort();
    prefixes.extend(ipv6);
    prefixes
}

/// Returns a prefix as text: an IPv4 prefix in the notation of IPv4.
pub fn format_prefix(prefix: Ipv6Net) -> String {
    to_ipv4(prefix).map_or_else(|| prefix.to_string(), |ipv4| ipv4.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_prefix_is_restored_from_its_mapped_form() {
        for (ipv4, mapped) in [
            ("0.0.0.0/0", "::ffff:0.0.0.0/96"),
            ("10.42.7.0/24", "::ffff:10.42.7.0/120"),
            ("192.0.2.1/32", "::ffff:192.0.2.1/128"),
        ] {
            let ipv4: Ipv4Net = ipv4.parse().expect("a prefix");
            let mapped: Ipv6Net = mapped.parse().expect("a prefix");
            assert_eq!(from_ipv4(ipv4), mapped);
            assert_eq!(to_ipv4(mapped), Some(ipv4));
            assert!(ALL_IPV4_PREFIX.contains(&mapped) && is_ipv4(mapped.addr()));
            assert_eq!(format_prefix(mapped), ipv4.to_string());
        }
        for ipv6 in ["2001:db8::/64", "::/0", "::ffff:0.0.0.0/95", "64:ff9b::192.0.2.1/128"] {
            let ipv6: Ipv6Net = ipv6.parse().expect("a prefix");
            assert_eq!(to_ipv4(ipv6), None, "{ipv6}");
            assert_eq!(split_by_family([ipv6]), (vec![ipv6], Vec::new()));
        }
    }
}
