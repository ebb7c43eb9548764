//! Sends and receives Mobility Header messages under the kernel's IPsec (RFC 4877), through a raw socket.
//!
//! The socket can send from any source address, even one that this machine does not own. It also sets the
//! flow label, which ESP in transport mode keeps. All received messages have arrived under ESP. A policy of
//! the socket itself (`IPV6_XFRM_POLICY`) makes the kernel require that, whatever the policies of the machine
//! say. The kernel compares a packet's addresses with those of the security association. The IKE daemon
//! creates the associations. It decides which peer may have an association for which addresses.
//!
//! Left out: AH, and a policy for sent messages. Their protection depends on the policies of the machine.

use std::future::{pending, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use carnet_wire::ipv6::protocol;
use socket2::{Domain, Protocol, Type};
use tokio::io::unix::AsyncFd;

use crate::async_descriptor::watch_readable;
use crate::error::{Error, Result};

/// Socket options `IPV6_XFRM_POLICY`, `IPV6_FLOWINFO_SEND` and `IPV6_FLOWINFO` of `linux/in6.h`.
const IPV6_XFRM_POLICY: libc::c_int = 35;
const IPV6_FLOWINFO_SEND: libc::c_int = 33;
const IPV6_FLOWINFO: libc::c_int = 11;
/// Lengths in octets of `struct xfrm_userpolicy_info` and `struct xfrm_user_tmpl` of `linux/xfrm.h`.
const XFRM_POLICY_LENGTH: usize = 168;
const XFRM_TEMPLATE_LENGTH: usize = 64;
/// Maximum length of a Mobility Header in octets (RFC 6275 6.1.1).
const MAX_MESSAGE_LENGTH: usize = 2048;
const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// A message that arrived under ESP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpsecMessage {
    /// Address of the sender.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Flow label of the packet.
    pub flow_label: u32,
    /// Mobility Header message.
    pub mobility_message: Vec<u8>,
}

/// Socket for messages under ESP; cheap to clone. `None` if the config does not use IPsec: carnet then gets
/// no such messages.
#[derive(Debug, Clone, Default)]
pub struct IpsecSocket(Option<Arc<AsyncFd<socket2::Socket>>>);

impl IpsecSocket {
    pub(crate) fn open() -> Result<IpsecSocket> {
        Ok(IpsecSocket(Some(Arc::new(open_socket().map_err(|source| {
            Error::from_kernel_refusal(
                "open a socket for messages under IPsec, which auth = \"ipsec\" needs: the kernel needs \
                 CONFIG_XFRM_USER and CONFIG_INET6_ESP (modules xfrm_user, esp6), the process CAP_NET_ADMIN \
                 and CAP_NET_RAW",
                source,
            )
        })?))))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until a message may be ready; without a socket, never returns. The future may be dropped.
    pub async fn readable(&self) -> io::Result<()> {
        match &self.0 {
            Some(file) => {
                poll_fn(|cx| match file.poll_read_ready(cx) {
                    Poll::Ready(ready) => Poll::Ready(ready.map(|_| ())),
                    Poll::Pending => Poll::Pending,
                })
                .await
            }
            None => pending().await,
        }
    }

    /// Returns the next received message; `None` if no message waits.
    pub fn receive(&self) -> Option<IpsecMessage> {
        let file = self.0.as_ref()?;
        loop {
            match receive_message(file.get_ref()) {
                Ok(message) => return message,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The socket is empty: clear its readiness, so that the next message wakes the waiting
                    // task.
                    let mut cx = Context::from_waker(Waker::noop());
                    if let Poll::Ready(Ok(mut guard)) = file.poll_read_ready(&mut cx) {
                        guard.clear_ready();
                    }
                    return None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends a Mobility Header message.
    ///
    /// # Errors
    /// Fails with the kernel's error. The kernel also refuses a message if a policy requires a security
    /// association that the IKE daemon is still creating.
    pub fn send(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        label: u32,
        message: &[u8],
    ) -> io::Result<()> {
        match &self.0 {
            Some(file) => send_message(file.get_ref(), source, destination, label, message),
            None => Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
        }
    }
}

/// Makes the kernel load its IPsec module, which it does when a privileged program opens a NETLINK_XFRM
/// socket. The caller must call this before the process drops its capabilities. If it fails,
/// `IpsecSocket::open_socket` reports the cause later.
pub fn load_kernel_module() {
    drop(netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_XFRM));
}

fn open_socket() -> io::Result<AsyncFd<socket2::Socket>> {
    let mobility = Protocol::from(libc::c_int::from(protocol::MOBILITY));
    let socket = socket2::Socket::new(Domain::IPV6, Type::RAW, Some(mobility))?;
    socket.set_nonblocking(true)?;
    // Permit an address that is assigned to no interface, as the home agent's address may be.
    socket.set_freebind_v6(true)?;
    // Set the policy before the socket is used. Messages that arrived before the policy are discarded below.
    set_socket_option(&socket, IPV6_XFRM_POLICY, &esp_only_policy())?;
    for (name, value) in [(libc::IPV6_RECVPKTINFO, 1), (IPV6_FLOWINFO, 1), (IPV6_FLOWINFO_SEND, 1)] {
        let value: libc::c_int = value;
        set_socket_option(&socket, name, &value.to_ne_bytes())?;
    }
    while !matches!(receive_message(&socket), Err(error) if error.kind() == io::ErrorKind::WouldBlock) {}
    watch_readable(socket)
}

/// Returns a policy for received messages: ESP in transport mode, with any keys and addresses.
fn esp_only_policy() -> Vec<u8> {
    let mut octets = vec![0; XFRM_POLICY_LENGTH + XFRM_TEMPLATE_LENGTH];
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = octets.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    let family = (libc::AF_INET6 as u16).to_ne_bytes();
    // Set the fields sel.family and sel.proto.
    put(40, &family);
    put(44, &[protocol::MOBILITY]);
    // Set the field lft: four limits of octets and packets, all unlimited.
    put(56, &[0xff; 32]);
    // The fields dir and action stay 0: received packets are allowed if they match the template. The
    // template's fields are id.proto, family, mode (0, transport) and algorithms (any).
    put(XFRM_POLICY_LENGTH + 20, &[protocol::ESP]);
    put(XFRM_POLICY_LENGTH + 24, &family);
    put(XFRM_POLICY_LENGTH + 52, &[0xff; 12]);
    octets
}

fn set_socket_option(socket: &socket2::Socket, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel reads the octets of `value`, by its length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Buffer with the alignment that control messages need.
#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

fn send_message(
    socket: &socket2::Socket,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    label: u32,
    message: &[u8],
) -> io::Result<()> {
    let address = SocketAddrV6::new(destination, 0, (label & FLOW_LABEL_MASK).to_be(), 0);
    let address = socket2::SockAddr::from(address);
    let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: source.octets() }, ipi6_ifindex: 0 };
    let mut control = ControlBuffer([0; 128]);
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    // SAFETY: all zeros is a valid `msghdr`. Every pointer in it points to a value that lives until `sendmsg`
    // returns, with the right length. The kernel writes to none of them. The control message fits into
    // `control`.
    let sent = unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_name = address.as_ptr().cast_mut().cast();
        header.msg_namelen = address.len();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of_val(&info) as u32) as _;
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::IPPROTO_IPV6;
        (*first).cmsg_type = libc::IPV6_PKTINFO;
        (*first).cmsg_len = libc::CMSG_LEN(size_of_val(&info) as u32) as _;
        libc::CMSG_DATA(first).cast::<libc::in6_pktinfo>().write_unaligned(info);
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message; `None` if it is invalid.
fn receive_message(socket: &socket2::Socket) -> io::Result<Option<IpsecMessage>> {
    let mut octets = vec![0; MAX_MESSAGE_LENGTH];
    let mut control = ControlBuffer([0; 128]);
    let (mut label, mut destination) = (0, None);
    let mut part = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    // SAFETY: all zeros is a valid `sockaddr_in6` and a valid `msghdr`. Every pointer in the `msghdr` points
    // to a value that lives until the end of the block, with the right length. Control messages are read only
    // within the length that the kernel reports, and unaligned.
    let (length, source) = unsafe {
        let mut address: libc::sockaddr_in6 = MaybeUninit::zeroed().assume_init();
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_name = (&raw mut address).cast();
        header.msg_namelen = size_of_val(&address) as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of_val(&control) as _;
        let length = libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT);
        let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
        let mut at = libc::CMSG_FIRSTHDR(&raw const header);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    destination = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr));
                }
                (libc::IPPROTO_IPV6, IPV6_FLOWINFO) => {
                    label = u32::from_be(data.cast::<u32>().read_unaligned()) & FLOW_LABEL_MASK;
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&raw const header, at);
        }
        (length, Ipv6Addr::from(address.sin6_addr.s6_addr))
    };
    octets.truncate(length);
    Ok(destination.map(|destination| IpsecMessage {
        source,
        destination,
        flow_label: label,
        mobility_message: octets,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipsec_policy_has_the_kernels_layout() {
        assert_eq!(size_of::<libc::in6_pktinfo>(), 20);
        let octets = esp_only_policy();
        assert_eq!(octets.len(), 232);
        // Only these fields are not 0: family and protocol of the selector, the limits, protocol and family
        // of the template, and its algorithms.
        let set: Vec<usize> = (0..octets.len()).filter(|at| octets[*at] != 0).collect();
        let expected = [40, 44].into_iter().chain(56..88).chain([188, 192]).chain(220..232);
        assert_eq!(set, expected.collect::<Vec<_>>());
    }
}
