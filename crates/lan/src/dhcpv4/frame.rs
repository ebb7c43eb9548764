//! IPv4 and UDP headers of the server's messages. A client without address cannot answer ARP requests, so the
//! server sends its messages through a packet socket.

use std::net::Ipv4Addr;

use carnet_wire::checksum;

use super::DhcpServerMessage;

/// UDP ports of DHCP server and client (RFC 2131 4.1).
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

const IPV4_HEADER_LENGTH: usize = 20;
const UDP_HEADER_LENGTH: usize = 8;
const PROTOCOL_UDP: u8 = 17;

/// Returns the IPv4 packet of a message; `None` if the message is too long for one packet.
pub fn encode_packet(datagram: &DhcpServerMessage) -> Option<Vec<u8>> {
    let DhcpServerMessage { source, destination, message_octets: message, .. } = datagram;
    let udp_length = u16::try_from(UDP_HEADER_LENGTH + message.len()).ok()?;
    let total = udp_length.checked_add(IPV4_HEADER_LENGTH as u16)?;
    let mut header = [0; IPV4_HEADER_LENGTH];
    // Version 4 and header length of five words. DSCP is CS6 (network control), as for other control
    // messages.
    header[..2].copy_from_slice(&[0x45, 0xc0]);
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[8..10].copy_from_slice(&[64, PROTOCOL_UDP]);
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let sum = !checksum::ones_complement_sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());

    let mut udp = Vec::with_capacity(udp_length.into());
    udp.extend(SERVER_PORT.to_be_bytes());
    udp.extend(CLIENT_PORT.to_be_bytes());
    udp.extend(udp_length.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(message);
    let sum = udp_checksum(*source, *destination, &udp);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    Some([&header[..], &udp].concat())
}

/// Returns the UDP checksum over the pseudo-header of IPv4 (RFC 768); 0xffff stands for 0.
fn udp_checksum(source: Ipv4Addr, destination: Ipv4Addr, udp: &[u8]) -> u16 {
    let addresses = checksum::ones_complement_add(
        checksum::ones_complement_sum(&source.octets()),
        checksum::ones_complement_sum(&destination.octets()),
    );
    let pseudo = checksum::ones_complement_add(
        addresses,
        checksum::sum_of_protocol_and_length(PROTOCOL_UDP, udp.len()),
    );
    match !checksum::ones_complement_add(pseudo, checksum::ones_complement_sum(udp)) {
        0 => 0xffff,
        sum => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dhcp_frame_has_valid_lengths_and_checksums() {
        let datagram = DhcpServerMessage {
            link_destination: [0xff; 6],
            source: Ipv4Addr::new(10, 42, 7, 1),
            destination: Ipv4Addr::BROADCAST,
            message_octets: vec![1, 2, 3],
            waits_for_store: false,
        };
        let packet = encode_packet(&datagram).expect("a packet");
        assert_eq!(packet.len(), 31);
        assert_eq!(checksum::ones_complement_sum(&packet[..20]), 0xffff);
        let pseudo = [&packet[12..20], &[0, PROTOCOL_UDP, 0, 11]].concat();
        assert_eq!(
            checksum::ones_complement_add(
                checksum::ones_complement_sum(&pseudo),
                checksum::ones_complement_sum(&packet[20..])
            ),
            0xffff
        );
        assert_eq!(
            super::encode_packet(&DhcpServerMessage { message_octets: vec![0; 65_510], ..datagram }),
            None
        );
    }
}
