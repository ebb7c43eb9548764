//! Conversions between IPv6 addresses, GeoNetworking addresses and the MAC addresses of the virtual
//! interfaces.
//!
//! The MID of a GN address is the MAC address of the station's virtual interfaces. The interface identifier
//! is its modified EUI-64 (RFC 4291 appendix A, RFC 2464 4): ff:fe in the middle and the universal/local bit
//! inverted. So an IPv6 address with such an interface identifier names its station.

use std::net::Ipv6Addr;

use crate::MacAddress;

/// Link-layer address that stands for geographic anycast in the host's neighbour cache. EN 302 636-6-1 sends
/// packets to a geographic anycast address into an area, so no station's address fits. The address is locally
/// administered.
pub const ANYCAST_MAC: MacAddress = [0x02, 0x47, 0x41, 0x43, 0x00, 0x7d];

/// The link-layer address of ff02::1, all nodes.
pub const ALL_NODES_MAC: MacAddress = [0x33, 0x33, 0, 0, 0, 1];

/// Interface identifiers of geographic anycast: RFC 2526 with anycast identifier 0x7d. The RFC writes ones
/// before the identifier; ETSI's test suite writes zeros and a one.
const ANYCAST_IDENTIFIERS: [u64; 2] = [0xfdff_ffff_ffff_fffd, 0xfd00_0000_0000_00fd];

/// An IPv6 prefix with its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Address that contains the bits of the prefix; the bits behind the length do not matter.
    pub address: Ipv6Addr,
    /// Length of the prefix, at most 128 bits.
    pub prefix_length: u8,
}

impl Prefix {
    /// Returns whether an address begins with the prefix.
    pub fn contains_address(&self, address: Ipv6Addr) -> bool {
        let shift = 128 - u32::from(self.prefix_length.min(128));
        let different = u128::from(self.address) ^ u128::from(address);
        different.checked_shr(shift).unwrap_or(0) == 0
    }

    /// Returns whether both prefixes have the same length and the same leading bits.
    pub fn equals_prefix(&self, other: &Prefix) -> bool {
        self.prefix_length == other.prefix_length && self.contains_address(other.address)
    }
}

/// Returns the modified EUI-64 of a MAC address.
pub fn interface_identifier(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns the link-local address of the station with this MAC address.
pub fn link_local_address(mac: MacAddress) -> Ipv6Addr {
    Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(interface_identifier(mac)))
}

/// Returns the MAC address of the station that a unicast address names; `None` if its interface identifier
/// names no station.
pub fn mac_of_address(address: Ipv6Addr) -> Option<MacAddress> {
    if address.is_multicast() {
        return None;
    }
    let [.., a, b, c, 0xff, 0xfe, d, e, f] = address.octets() else { return None };
    let mac = [a ^ 2, b, c, d, e, f];
    (mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}

/// Returns the link-layer address of an IPv6 multicast address (RFC 2464 7).
pub fn group_mac(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// Returns whether an address is a geographic anycast address: a subnet prefix and a reserved interface
/// identifier.
pub fn is_geographic_anycast(address: Ipv6Addr) -> bool {
    !address.is_multicast() && ANYCAST_IDENTIFIERS.contains(&(u128::from(address) as u64))
}

/// Returns the prefix in a prefix-based multicast address (RFC 3306 4); `None` for another address.
pub fn prefix_of_group(group: Ipv6Addr) -> Option<Prefix> {
    const PREFIX_BASED_FLAG: u8 = 0x20;
    let [0xff, flags, _, length, prefix @ .., _, _, _, _] = group.octets() else { return None };
    if flags & PREFIX_BASED_FLAG == 0 || length == 0 || length > 64 {
        return None;
    }
    let address = Ipv6Addr::from(u128::from(u64::from_be_bytes(prefix)) << 64);
    Some(Prefix { address, prefix_length: length })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv6_address(text: &str) -> Ipv6Addr {
        text.parse().expect("an IPv6 address")
    }

    #[test]
    fn interface_identifier_gives_the_mid_of_its_station_only() {
        let mac = [0x02, 0, 0, 0, 0, 0x0a];
        assert_eq!(link_local_address(mac), ipv6_address("fe80::ff:fe00:a"));
        assert_eq!(mac_of_address(link_local_address(mac)), Some(mac));
        assert_eq!(
            mac_of_address(ipv6_address("2001:db8::babc:beff:feba:be01")),
            Some([0xb8, 0xbc, 0xbe, 0xba, 0xbe, 1])
        );
        // These addresses belong to no station: a group MAC address, a zero MAC address, an identifier
        // without ff:fe, a multicast address.
        for address in ["fe80::100:ff:fe00:a", "fe80::200:ff:fe00:0", "2001:db8::1", "ff02::ff:fe00:a"] {
            assert_eq!(mac_of_address(ipv6_address(address)), None, "{address}");
        }
    }

    #[test]
    fn multicast_groups_map_to_mac_addresses_and_prefixes() {
        assert_eq!(group_mac(ipv6_address("ff02::1")), ALL_NODES_MAC);
        assert_eq!(group_mac(ipv6_address("ff02::1:ff12:3456")), [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        let group = ipv6_address("ff3e:40:2001:db8:1::1");
        assert_eq!(
            prefix_of_group(group),
            Some(Prefix { address: ipv6_address("2001:db8:1::"), prefix_length: 64 })
        );
        for group in ["ff1e:40:2001:db8:1::1", "ff3e:41:2001:db8:1::1", "ff3e::1", "2001:db8::1"] {
            assert_eq!(prefix_of_group(ipv6_address(group)), None, "{group}");
        }
    }

    #[test]
    fn geographic_anycast_identifier_has_two_encodings() {
        assert!(is_geographic_anycast(ipv6_address("2001:db8::fdff:ffff:ffff:fffd")));
        assert!(is_geographic_anycast(ipv6_address("2001:db8::fd00:0:0:fd")));
        // The Mobile IPv6 Home-Agents anycast address of RFC 2526 is not a geographic anycast address.
        assert!(!is_geographic_anycast(ipv6_address("2001:db8::fdff:ffff:ffff:fffe")));
    }

    #[test]
    fn prefix_comparison_works_for_every_length() {
        let prefix = |text: &str, length| Prefix { address: ipv6_address(text), prefix_length: length };
        assert!(prefix("::", 0).contains_address(ipv6_address("ff02::1")));
        assert!(prefix("2001:db8::", 64).contains_address(ipv6_address("2001:db8::ffff")));
        assert!(!prefix("2001:db8::", 64).contains_address(ipv6_address("2001:db8:0:1::")));
        assert!(
            prefix("::1", 128).contains_address(ipv6_address("::1"))
                && !prefix("::1", 128).contains_address(ipv6_address("::"))
        );
        assert!(prefix("2001:db8::1", 64).equals_prefix(&prefix("2001:db8::", 64)));
        assert!(!prefix("2001:db8::", 63).equals_prefix(&prefix("2001:db8::", 64)));
    }
}
