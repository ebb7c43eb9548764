//! Sends and receives GeoNetworking frames in UDP datagrams.
//!
//! Octets 0 to 5 are the destination's MAC address, octets 6 to 11 the source's. From octet 12 on, the
//! datagram has the octets that follow the EtherType on Ethernet. The format has no version and no checksum
//! of its own, so no other protocol may use the port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::{FrameDropReason, MacAddress, UdpConfig};
use crate::clock::random_octets;
use crate::error::{Error, Result};

/// Number of octets before the GeoNetworking packet in a datagram.
pub(super) const UDP_FRAME_HEADER_LENGTH: usize = 12;

/// Opens a socket with the configured addresses. `index` is the index of the configured interface, if any.
pub(super) fn open_udp_socket(config: &UdpConfig, index: Option<u32>) -> io::Result<Socket> {
    let mut local = config.local;
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if local.ip().is_multicast() {
        // Bind to the group's address, so that the socket gets no other datagrams to this port.
        if let Some(name) = &config.interface {
            socket.bind_device(Some(name.as_bytes()))?;
        }
        let scope = match &mut local {
            SocketAddr::V6(six) => {
                six.set_scope_id(index.unwrap_or(six.scope_id()));
                six.scope_id()
            }
            SocketAddr::V4(_) => index.unwrap_or(0),
        };
        match local.ip() {
            IpAddr::V6(group) => {
                socket.join_multicast_v6(&group, scope)?;
                socket.set_multicast_loop_v6(false)?;
                if scope != 0 {
                    socket.set_multicast_if_v6(scope)?;
                }
            }
            IpAddr::V4(group) => {
                let interface = match scope {
                    0 => InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED),
                    index => InterfaceIndexOrAddress::Index(index),
                };
                socket.join_multicast_v4_n(&group, &interface)?;
                socket.set_multicast_loop_v4(false)?;
            }
        }
    }
    // Permit an address that this machine does not have yet: its interface may appear later.
    match local {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Returns source, destination and packet of a datagram, if it is for the station with this address.
pub(super) fn parse<'a>(
    config: &UdpConfig,
    own: MacAddress,
    datagram: &'a [u8],
    from: Option<SocketAddr>,
) -> std::result::Result<(MacAddress, MacAddress, &'a [u8]), FrameDropReason> {
    let known = |from: SocketAddr| config.peer_addresses.iter().any(|peer| peer.ip() == from.ip());
    if !config.peer_addresses.is_empty() && !from.is_some_and(known) {
        return Err(FrameDropReason::Stranger);
    }
    let (header, packet) =
        datagram.split_first_chunk::<UDP_FRAME_HEADER_LENGTH>().ok_or(FrameDropReason::Malformed)?;
    let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = header;
    let (source, destination) = ([s0, s1, s2, s3, s4, s5], [d0, d1, d2, d3, d4, d5]);
    if s0 & 1 != 0 {
        return Err(FrameDropReason::Malformed);
    }
    // The lowest bit of the first octet marks a group (IEEE 802-2014 8.2.2).
    if d0 & 1 == 0 && destination != own {
        return Err(FrameDropReason::OtherStation);
    }
    Ok((source, destination, packet))
}

/// Returns a random, locally administered address.
pub(super) fn random_link_address() -> Result<MacAddress> {
    let [a, b, c, d, e, f] =
        random_octets().map_err(|e| Error::from_kernel_refusal("choose a random MAC address", e))?;
    Ok([a & 0xfc | 0x02, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_MAC: MacAddress = [2, 0, 0, 0, 0, 1];

    fn config(peers: &[&str]) -> UdpConfig {
        UdpConfig {
            local: "[::]:8947".parse().expect("address"),
            interface: None,
            peer_addresses: peers.iter().flat_map(|peer| peer.parse()).collect(),
            address: Some(OWN_MAC),
            mtu: UdpConfig::ETHERNET_MTU,
        }
    }

    #[test]
    fn datagrams_to_station_and_groups_are_accepted() {
        let from = "[2001:db8::2]:1".parse().ok();
        let config = config(&["[2001:db8::2]:8947"]);
        let mut datagram = [&OWN_MAC[..], &[2, 0, 0, 0, 0, 2], b"packet"].concat();
        let parsed = parse(&config, OWN_MAC, &datagram, from);
        assert_eq!(parsed, Ok(([2, 0, 0, 0, 0, 2], OWN_MAC, &b"packet"[..])));
        datagram[..6].fill(0xff);
        assert_eq!(parse(&config, OWN_MAC, &datagram, from).map(|(_, d, _)| d), Ok([0xff; 6]));
        datagram[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
        assert_eq!(parse(&config, OWN_MAC, &datagram, from), Err(FrameDropReason::OtherStation));
    }

    #[test]
    fn datagrams_of_unknown_peers_and_short_ones_are_dropped() {
        let config = config(&["[2001:db8::2]:8947"]);
        let datagram = [&OWN_MAC[..], &[2, 0, 0, 0, 0, 2]].concat();
        let from = "[2001:db8::2]:1".parse().ok();
        assert!(parse(&config, OWN_MAC, &datagram, from).is_ok());
        for length in 0..UDP_FRAME_HEADER_LENGTH {
            assert_eq!(parse(&config, OWN_MAC, &datagram[..length], from), Err(FrameDropReason::Malformed));
        }
        assert_eq!(
            parse(&config, OWN_MAC, &datagram, "[::1]:1".parse().ok()),
            Err(FrameDropReason::Stranger)
        );
        let group = [&OWN_MAC[..], &[3, 0, 0, 0, 0, 2]].concat();
        assert_eq!(parse(&config, OWN_MAC, &group, from), Err(FrameDropReason::Malformed));
    }

    #[test]
    fn random_addresses_are_local_and_no_groups() {
        for _ in 0..20 {
            assert_eq!(random_link_address().expect("address")[0] & 3, 2);
        }
    }
}
