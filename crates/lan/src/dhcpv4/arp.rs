//! ARP packets (RFC 826). With ARP requests the server finds out whether a host uses an address.

use std::net::Ipv4Addr;

use crate::LinkAddress;

/// Link-layer broadcast address.
pub const BROADCAST_ADDRESS: LinkAddress = [0xff; 6];

/// First octets of an ARP packet for IPv4 over Ethernet: hardware type 1, protocol type 0x0800, address
/// lengths 6 and 4.
const ETHERNET_IPV4_HEADER: [u8; 6] = [0, 1, 8, 0, 6, 4];
const OPERATION_REQUEST: u16 = 1;
const ARP_PACKET_LENGTH: usize = 28;

/// Addresses of the sender of an ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpSender {
    /// Link-layer address.
    pub link_address: LinkAddress,
    /// IPv4 address.
    pub address: Ipv4Addr,
}

/// Returns an ARP request for `target`. The caller sends it to the link-layer broadcast address.
pub fn arp_request(sender: ArpSender, target: Ipv4Addr) -> [u8; ARP_PACKET_LENGTH] {
    let mut packet = [0; ARP_PACKET_LENGTH];
    packet[..6].copy_from_slice(&ETHERNET_IPV4_HEADER);
    packet[6..8].copy_from_slice(&OPERATION_REQUEST.to_be_bytes());
    packet[8..14].copy_from_slice(&sender.link_address);
    packet[14..18].copy_from_slice(&sender.address.octets());
    packet[24..28].copy_from_slice(&target.octets());
    packet
}

/// Returns the sender of an ARP packet; padding may follow the packet. Returns `None` if the packet is
/// invalid, or if its sender only asks whether an address is free (RFC 5227 2.1.1).
pub fn parse_sender(packet: &[u8]) -> Option<ArpSender> {
    let (head, rest) = packet.get(..ARP_PACKET_LENGTH)?.split_first_chunk::<6>()?;
    let (link_address, rest) = rest.get(2..)?.split_first_chunk::<6>()?;
    let address = Ipv4Addr::from(*rest.first_chunk::<4>()?);
    (*head == ETHERNET_IPV4_HEADER && !address.is_unspecified())
        .then_some(ArpSender { link_address: *link_address, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arp_request_contains_sender_and_target_addresses() {
        let sender = ArpSender { link_address: [2, 0, 0, 0, 0, 1], address: Ipv4Addr::new(10, 42, 7, 1) };
        let packet = arp_request(sender, Ipv4Addr::new(10, 42, 7, 9));
        assert_eq!(packet[24..], [10, 42, 7, 9]);
        assert_eq!(super::parse_sender(&packet), Some(sender));
        assert_eq!(super::parse_sender(&[&packet[..], &[0; 18]].concat()), Some(sender));
    }

    #[test]
    fn invalid_arp_packets_and_arp_probes_have_no_sender() {
        let host = ArpSender { link_address: [2, 0, 0, 0, 0, 1], address: Ipv4Addr::UNSPECIFIED };
        let probe = arp_request(host, Ipv4Addr::new(10, 42, 7, 9));
        assert_eq!(parse_sender(&probe), None);
        let valid =
            arp_request(ArpSender { address: Ipv4Addr::new(10, 0, 0, 1), ..host }, Ipv4Addr::UNSPECIFIED);
        for length in 0..ARP_PACKET_LENGTH {
            assert_eq!(parse_sender(&valid[..length]), None);
        }
        let mut other_protocol = valid;
        other_protocol[2] = 0x86;
        assert_eq!(parse_sender(&other_protocol), None);
    }
}
