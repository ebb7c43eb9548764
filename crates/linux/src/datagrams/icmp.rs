//! ICMP errors about packets of protocols 41 and 4. The kernel does not put these errors into the error queue
//! of a raw socket.
//!
//! A raw ICMP socket at the same address receives only Destination Unreachable messages (`ICMP_FILTER`). Of
//! these, only "fragmentation needed and DF set" about a packet of this tunnel socket is used (RFC 1191 4).
//! An attacker can forge such a message, because it proves nothing about its sender.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use carnet_base::Endpoint;
use socket2::{Domain, Protocol, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::PacketTooBigReport;
use super::socket_option::set_socket_option;
use crate::async_descriptor::watch_readable;

/// The socket option `ICMP_FILTER` of linux/icmp.h and its level `SOL_RAW`.
const SOL_RAW: i32 = 255;
const ICMP_FILTER: i32 = 1;
const ICMP_DESTINATION_UNREACHABLE: u8 = 3;
const ICMP_FRAGMENTATION_NEEDED: u8 = 4;
const IPV6_IN_IPV4: u8 = 41;
const IPV4_IN_IPV4: u8 = 4;
const IPV4_HEADER_LENGTH: usize = 20;
const ICMP_HEADER_LENGTH: usize = 8;
/// Octets for two IPv4 headers with options and the ICMP header.
const MAX_ICMP_MESSAGE: usize = 256;

#[derive(Debug)]
pub(super) struct IcmpErrorSocket {
    local: Ipv4Addr,
    icmp_socket: AsyncFd<socket2::Socket>,
}

impl IcmpErrorSocket {
    pub(super) fn open(local: Ipv4Addr, interface: Option<&str>) -> io::Result<IcmpErrorSocket> {
        let socket = socket2::Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
        socket.set_nonblocking(true)?;
        set_socket_option(&socket, SOL_RAW, ICMP_FILTER, !(1 << ICMP_DESTINATION_UNREACHABLE))?;
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.set_freebind_v4(true)?;
        socket.bind(&std::net::SocketAddr::from((local, 0)).into())?;
        Ok(IcmpErrorSocket { local, icmp_socket: watch_readable(socket)? })
    }

    pub(super) fn icmp_socket(&self) -> &AsyncFd<socket2::Socket> {
        &self.icmp_socket
    }

    /// Returns the too-big reports from the ICMP messages in the socket. Makes no system call if the socket
    /// has no message.
    pub(super) fn read_too_big_reports(&self) -> Vec<PacketTooBigReport> {
        let mut complaints = Vec::new();
        let mut message = [0; MAX_ICMP_MESSAGE];
        while let Ok(length) = self.icmp_socket.try_io(Interest::READABLE, |socket| {
            Ok(nix::sys::socket::recv(
                socket.as_raw_fd(),
                &mut message,
                nix::sys::socket::MsgFlags::MSG_DONTWAIT,
            )?)
        }) {
            complaints
                .extend(message.get(..length).and_then(|message| parse_too_big_report(self.local, message)));
        }
        complaints
    }
}

/// Parses an ICMP message with its IPv4 header; `None` if it does not concern a packet from `local`.
fn parse_too_big_report(local: Ipv4Addr, packet: &[u8]) -> Option<PacketTooBigReport> {
    let (_, message) = split_ipv4_header(packet)?;
    let [kind, code, _, _, _, _, high, low] = *message.get(..ICMP_HEADER_LENGTH)?.as_array()?;
    let (quoted, _) = split_ipv4_header(message.get(ICMP_HEADER_LENGTH..)?)?;
    let address = |at: usize| quoted.get(at..at + 4)?.as_array::<4>().copied().map(Ipv4Addr::from);
    let ours = address(12)? == local && matches!(quoted.get(9), Some(&(IPV6_IN_IPV4 | IPV4_IN_IPV4)));
    let mtu = u32::from(u16::from_be_bytes([high, low]));
    // A router from before RFC 1191 sends an MTU of zero, from which carnet cannot learn the path MTU.
    let fits = (kind, code) == (ICMP_DESTINATION_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED) && ours && mtu > 0;
    fits.then_some(PacketTooBigReport { local: local.into(), remote: Endpoint::Ipv4(address(16)?), mtu })
}

/// Splits a packet into its IPv4 header and its payload; `None` if it is no IPv4 packet.
fn split_ipv4_header(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(packet.first()? & 0x0f) * 4;
    if length < IPV4_HEADER_LENGTH || packet.first()? >> 4 != 4 {
        return None;
    }
    packet.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn icmp_message() -> Vec<u8> {
        let ip = |protocol, source: [u8; 4], destination: [u8; 4]| {
            let mut header = [0; IPV4_HEADER_LENGTH];
            header[0] = 0x45;
            header[9] = protocol;
            header[12..16].copy_from_slice(&source);
            header[16..].copy_from_slice(&destination);
            header
        };
        let quoted = ip(41, LOCAL_ADDRESS.octets(), [198, 51, 100, 9]);
        let icmp = [3, 4, 0, 0, 0, 0, 0x05, 0x14];
        [&ip(1, [203, 0, 113, 1], LOCAL_ADDRESS.octets())[..], &icmp, &quoted, &[0x60; 8]].concat()
    }

    #[test]
    fn icmp_errors_about_other_packets_are_ignored() {
        let told = PacketTooBigReport {
            local: LOCAL_ADDRESS.into(),
            remote: "198.51.100.9".parse().expect("endpoint"),
            mtu: 1300,
        };
        assert_eq!(parse_too_big_report(LOCAL_ADDRESS, &icmp_message()), Some(told));
        assert_eq!(parse_too_big_report(Ipv4Addr::new(192, 0, 2, 2), &icmp_message()), None);
        for (at, value) in [(20, 11), (21, 3), (26, 0), (28 + 9, 17), (28, 0x65), (0, 0x41)] {
            let mut other = icmp_message();
            other[at] = value;
            if at == 26 {
                other[27] = 0;
            }
            assert_eq!(parse_too_big_report(LOCAL_ADDRESS, &other), None, "octet {at}");
        }
        for length in 0..icmp_message().len() {
            assert_eq!(
                parse_too_big_report(LOCAL_ADDRESS, &icmp_message()[..length]).is_some(),
                length >= 48,
                "{length} octets"
            );
        }
    }
}
