//! A socket of a tunnel: its options, and its error queue.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;

use carnet_base::Endpoint;
use carnet_nemo::forwarding::desired;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, Type};
use tokio::io::unix::AsyncFd;

use super::PacketTooBigReport;
use super::icmp::IcmpErrorSocket;
use super::socket_option::set_socket_option;
use crate::async_descriptor::watch_readable;

/// Protocol number of IPv6 inside IPv4 (RFC 4213), `IPPROTO_IPV6`.
const IPV6_IN_IPV4: i32 = 41;
/// Protocol number of IPv4 inside IPv4 (RFC 2003), `IPPROTO_IPIP`.
const IPV4_IN_IPV4: i32 = 4;
/// TTL of the outer header, the same as the hop limit of all tunnels (RFC 2473 6.3).
const OUTER_TTL: u32 = 64;
/// Buffer size of the socket in octets, for each direction. A burst of TCP segments fits (see `QUEUE_LENGTH`
/// of the TUN device).
const SOCKET_BUFFER_OCTETS: usize = 4 << 20;
/// Maximum number of errors that one call reads from the error queue.
const MAX_READ_ERRORS: usize = 64;

/// IP versions of the inner packets that a socket carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InnerIpVersion {
    /// Packets of both families: a UDP socket.
    Both,
    Ipv6,
    Ipv4,
}

impl InnerIpVersion {
    /// Returns the IP versions of the packets in each socket of a local end: one UDP socket for both, or two
    /// raw sockets.
    pub(super) fn inner_versions_of_socket(local: Endpoint) -> &'static [InnerIpVersion] {
        match local {
            Endpoint::Udp(_) | Endpoint::Ipv6(_) => &[InnerIpVersion::Both],
            Endpoint::Ipv4(_) => &[InnerIpVersion::Ipv6, InnerIpVersion::Ipv4],
        }
    }
}

#[derive(Debug)]
pub(super) struct OpenTunnelSocket {
    pub(super) desired_socket: desired::TunnelSocket,
    pub(super) file: AsyncFd<socket2::Socket>,
    inner_version: InnerIpVersion,
    /// Whether received packets begin with an IPv4 header, as in a raw socket.
    pub(super) is_raw: bool,
    /// Socket for ICMP errors about packets of a raw socket; `None` if this socket does not own one.
    pub(super) icmp_errors: Option<IcmpErrorSocket>,
}

impl OpenTunnelSocket {
    pub(super) fn open(
        wanted: &desired::TunnelSocket,
        carried: InnerIpVersion,
        merge: bool,
    ) -> io::Result<OpenTunnelSocket> {
        let (local, kind, protocol) = match wanted.local {
            Endpoint::Udp(local) => (local, Type::DGRAM, Protocol::UDP),
            Endpoint::Ipv4(address) => {
                let protocol = if carried == InnerIpVersion::Ipv4 { IPV4_IN_IPV4 } else { IPV6_IN_IPV4 };
                (SocketAddrV4::new(address, 0), Type::RAW, Protocol::from(protocol))
            }
            Endpoint::Ipv6(_) => return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        };
        let is_raw = kind == Type::RAW;
        let socket = socket2::Socket::new(Domain::IPV4, kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        if let Some(interface) = &wanted.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        // Permit to bind an address that this machine does not have yet: a standby home agent gets the
        // address when it takes over.
        socket.set_freebind_v4(true)?;
        socket.set_ttl_v4(OUTER_TTL)?;
        socket.set_recv_tos_v4(true)?;
        setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        socket.bind(&local.into())?;
        for (force, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Only the first option exceeds the kernel's limit on buffer sizes. In a user namespace the
            // kernel refuses this option; the second option then sets the size up to the limit.
            let _ = set_socket_option(&socket, libc::SOL_SOCKET, force, SOCKET_BUFFER_OCTETS as libc::c_int)
                .or_else(|_| {
                    set_socket_option(&socket, libc::SOL_SOCKET, plain, SOCKET_BUFFER_OCTETS as libc::c_int)
                });
        }
        let icmp = match wanted.local {
            // The raw socket for IPv6 also owns the ICMP socket, which receives the errors about both
            // protocols.
            Endpoint::Ipv4(address) if carried == InnerIpVersion::Ipv6 => {
                Some(IcmpErrorSocket::open(address, wanted.interface.as_deref())?)
            }
            Endpoint::Ipv4(_) | Endpoint::Udp(_) | Endpoint::Ipv6(_) => None,
        };
        let opened = OpenTunnelSocket {
            desired_socket: wanted.clone(),
            file: watch_readable(socket)?,
            inner_version: carried,
            is_raw,
            icmp_errors: icmp,
        };
        opened.allow_fragments(false)?;
        if merge {
            opened.allow_merged_receive(true);
        }
        Ok(opened)
    }

    /// Returns whether the socket carries packets of this family.
    pub(super) fn carries_ip_version(&self, is_ipv4: bool) -> bool {
        match self.inner_version {
            InnerIpVersion::Both => true,
            InnerIpVersion::Ipv4 => is_ipv4,
            InnerIpVersion::Ipv6 => !is_ipv4,
        }
    }

    /// Sets whether the kernel may merge several packets into one burst.
    pub(super) fn allow_merged_receive(&self, merge: bool) {
        if !self.is_raw {
            // A kernel before Linux 5.0 does not support the option, and returns single packets.
            let _ = setsockopt(self.file.get_ref(), sockopt::UdpGroSegment, &merge);
        }
    }

    /// Sets whether this machine and routers may fragment the outer packets.
    pub(super) fn allow_fragments(&self, allow: bool) -> io::Result<()> {
        let how = if allow { libc::IP_PMTUDISC_DONT } else { libc::IP_PMTUDISC_PROBE };
        set_socket_option(self.file.get_ref(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, how)
    }

    /// Returns the remote end of a tunnel at this address: without a port for a raw socket, with the port for
    /// a UDP socket.
    pub(super) fn remote_endpoint_at(&self, address: SocketAddrV4) -> Endpoint {
        if self.is_raw { Endpoint::Ipv4(*address.ip()) } else { Endpoint::Udp(address) }
    }

    /// Returns the reports of too large packets from the socket's error queue, and drops all other errors.
    pub(super) fn take_too_big_reports(&self) -> Vec<PacketTooBigReport> {
        let mut complaints = Vec::new();
        let mut control = nix::cmsg_space!([u8; 256]);
        for _ in 0..MAX_READ_ERRORS {
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let descriptor = self.file.get_ref().as_raw_fd();
            let Ok(message) = recvmsg::<SockaddrStorage>(descriptor, &mut [], Some(&mut control), flags)
            else {
                break;
            };
            // The address in the message is the destination of the packet that caused the error.
            let Some(remote) = message.address.as_ref().and_then(ipv4_socket_address) else { continue };
            for control in message.cmsgs().into_iter().flatten() {
                let ControlMessageOwned::Ipv4RecvErr(error, _) = control else { continue };
                if error.ee_errno == libc::EMSGSIZE as u32 && error.ee_info > 0 {
                    let (local, remote) = (self.desired_socket.local, self.remote_endpoint_at(remote));
                    complaints.push(PacketTooBigReport { local, remote, mtu: error.ee_info });
                }
            }
        }
        complaints
    }
}

/// Converts an IPv4 address and port from the kernel's format; `None` if the address is no IPv4 address.
pub(super) fn ipv4_socket_address(address: &SockaddrStorage) -> Option<SocketAddrV4> {
    address.as_sockaddr_in().map(|address| SocketAddrV4::new(address.ip(), address.port()))
}
