//! Receives and sends ICMPv6 on links, below the kernel's own IPv6.
//!
//! A home agent answers Neighbor Solicitations for addresses that the kernel does not know. A mobile router
//! needs errors about packets whose source is behind a tunnel. An ICMPv6 socket receives neither. So one
//! packet socket per watched link receives these messages. A filter in the kernel drops all other packets.
//! One further socket sends on any link.
//!
//! The place of the packet sockets in the kernel ([`CapturePoint`]) determines the cost for each packet. The
//! sockets receive the same messages at either place.
//!
//! Left out: ICMPv6 in fragments or behind extension headers, which Neighbor Discovery forbids (RFC 6980) and
//! ICMPv6 errors do not have. After a type 2 routing header the sockets do receive answers to mobile prefix
//! discovery (RFC 6275 6.8) and Echo Replies (RFC 6275 9.3.2). Without one they receive Echo Replies from
//! link-local addresses only, which a mobile router's probes of access routers cause.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

use carnet_station::io::LinkMessage;
use carnet_wire::extension::{ExtensionHeaders, HOME_ADDRESS_ROUTING_HEADER_LEN};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::protocol::{ICMPV6, ROUTING};
use carnet_wire::ipv6::{HEADER_LEN, Header};
use socket2::{Domain, SockFilter, Socket, Type};
use tokio::io::unix::AsyncFd;

use crate::async_descriptor::watch_readable;
use crate::error::{Error, Result};
use crate::event::PlatformEvent;
use crate::netlink::LinkInfo;
use crate::packet_socket::{
    self, BPF_JUMP_IF_AT_LEAST, BPF_JUMP_IF_EQUAL, BPF_LOAD_HALF_WORD, BPF_LOAD_WORD, BPF_RETURN,
    OFFSET_PACKET_TYPE, packet_socket_address, send_packet,
};

/// Size of the buffer in octets: the longest IPv6 packet without a jumbo payload.
const PACKET_BUFFER_SIZE: usize = HEADER_LEN + 0xffff;
/// Largest number of messages that carnet reads from one link before it reads from the next link.
const MAX_MESSAGES_PER_POLL: usize = 64;

/// Point in the kernel at which the sockets get copies of a link's packets. Their filter drops all but a few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CapturePoint {
    /// Before the kernel's own IPv6. At this point the kernel shares the packet with no other receiver, so
    /// forwarding needs no copy of its headers.
    First,
    /// Where the kernel's own IPv6 gets the packets. The kernel must copy a packet's headers before it
    /// changes them, which costs about 200 ns for each forwarded packet. Packets that a BPF program at the
    /// ingress forwards do not reach this point.
    BesideIpv6,
}

impl CapturePoint {
    fn protocol(self) -> libc::c_int {
        match self {
            CapturePoint::First => libc::ETH_P_ALL,
            CapturePoint::BesideIpv6 => libc::ETH_P_IPV6,
        }
    }
}

/// Sockets for ICMPv6 on the watched links, and one for sending on all links.
#[derive(Debug)]
pub(crate) struct LinkSockets {
    link_listeners: Vec<LinkListener>,
    capture_point: CapturePoint,
    sender_socket: Socket,
    packet_buffer: Vec<u8>,
    pub(crate) received_messages: u64,
    pub(crate) malformed_messages: u64,
    pub(crate) sent_messages: u64,
}

/// A link on which the platform receives ICMPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedInterface {
    /// Name of the interface.
    pub name: String,
    /// Whether to receive the packets to all multicast groups, as a home agent must for proxy Neighbor
    /// Discovery.
    pub needs_all_multicast: bool,
}

#[derive(Debug)]
struct LinkListener {
    watched_interface: WatchedInterface,
    /// The socket, and the index of the interface to which it is bound; `None` while the interface is
    /// missing.
    socket: Option<(u32, AsyncFd<Socket>)>,
    last_logged_error: Option<String>,
}

impl LinkSockets {
    /// Prepares to watch these links. The sockets exist after [`LinkSockets::update_interfaces`].
    pub(crate) fn open(watched: Vec<WatchedInterface>) -> Result<LinkSockets> {
        // With protocol 0 the kernel passes no received packets to this socket, which only sends.
        let sender = Socket::new(Domain::PACKET, Type::DGRAM, None)
            .and_then(|s| s.set_nonblocking(true).map(|()| s))
            .map_err(|e| Error::from_kernel_refusal("open a packet socket", e))?;
        let listeners = watched
            .into_iter()
            .map(|watched| LinkListener { watched_interface: watched, socket: None, last_logged_error: None })
            .collect();
        Ok(LinkSockets {
            link_listeners: listeners,
            capture_point: CapturePoint::First,
            sender_socket: sender,
            packet_buffer: vec![0; PACKET_BUFFER_SIZE],
            received_messages: 0,
            malformed_messages: 0,
            sent_messages: 0,
        })
    }

    /// Sets the point at which sockets get packets, for sockets that [`LinkSockets::update_interfaces`] opens
    /// from now on.
    pub(crate) fn set_capture_point(&mut self, place: CapturePoint) {
        if self.capture_point != place {
            self.capture_point = place;
            for listener in &mut self.link_listeners {
                listener.socket = None;
            }
        }
    }

    /// Sets the links to watch. If a link was watched before, it keeps its socket.
    pub(crate) fn set_watched(&mut self, watched: Vec<WatchedInterface>) {
        let mut old = std::mem::take(&mut self.link_listeners);
        self.link_listeners = watched
            .into_iter()
            .map(|watched| match old.iter().position(|listener| listener.watched_interface == watched) {
                Some(at) => old.swap_remove(at),
                None => LinkListener { watched_interface: watched, socket: None, last_logged_error: None },
            })
            .collect();
    }

    /// Opens sockets on watched interfaces that have appeared, and closes the sockets of vanished interfaces.
    pub(crate) fn update_interfaces(&mut self, links: &BTreeMap<String, LinkInfo>) {
        for listener in &mut self.link_listeners {
            let index = links.get(&listener.watched_interface.name).map(|link| link.index);
            if index == listener.socket.as_ref().map(|(index, _)| *index) {
                continue;
            }
            listener.socket = None;
            let Some(index) = index else { continue };
            match open_listener(index, self.capture_point, listener.watched_interface.needs_all_multicast) {
                Ok(socket) => {
                    listener.socket = Some((index, socket));
                    listener.last_logged_error = None;
                }
                Err(error) => {
                    let text =
                        format!("cannot receive ICMPv6 on {}: {error}", listener.watched_interface.name);
                    if listener.last_logged_error.as_ref() != Some(&text) {
                        tracing::warn!("{text}");
                        listener.last_logged_error = Some(text);
                    }
                }
            }
        }
    }

    /// Reads arrived packets and registers a wake-up for more. After a full batch it wakes the task at once,
    /// because the socket has not registered a wake-up then.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        events: &mut VecDeque<PlatformEvent>,
    ) -> io::Result<()> {
        for listener in &self.link_listeners {
            let Some((_, socket)) = &listener.socket else { continue };
            let mut left = MAX_MESSAGES_PER_POLL;
            while left > 0
                && let Poll::Ready(guard) = socket.poll_read_ready(cx)
            {
                let mut guard = guard?;
                while left > 0 {
                    match receive_packet(guard.get_inner(), &mut self.packet_buffer) {
                        Ok((length, peer)) => {
                            left -= 1;
                            match parse(&listener.watched_interface.name, &self.packet_buffer[..length], peer)
                            {
                                Some(message) => {
                                    self.received_messages += 1;
                                    events.push_back(PlatformEvent::Icmpv6(message));
                                }
                                None => self.malformed_messages += 1,
                            }
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            guard.clear_ready();
                            break;
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        // The interface is down. The socket receives again when it is up.
                        Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            if left == 0 {
                cx.waker().wake_by_ref();
            }
        }
        Ok(())
    }

    /// Sends `message` on `link` and fills in its checksum.
    pub(crate) fn send(&mut self, link: &LinkInfo, message: &LinkMessage) -> Result<()> {
        let peer = match (link.link_address, message.destination.is_multicast()) {
            (None, _) => None,
            // RFC 2464 7: the link-layer address of an IPv6 multicast destination.
            (Some(_), true) => {
                let [.., a, b, c, d] = message.destination.octets();
                Some([0x33, 0x33, a, b, c, d])
            }
            (Some(_), false) => Some(message.peer.ok_or_else(|| Error::Invalid {
                what: format!("ICMPv6 message to {} on {}", message.destination, message.interface),
                expected: "the link-layer address of a unicast receiver".into(),
                got: "none".into(),
            })?),
        };
        let packet = compose_packet(message).ok_or_else(|| Error::Invalid {
            what: format!("ICMPv6 message to {} on {}", message.destination, message.interface),
            expected: "between 4 and 65535 octets".into(),
            got: format!("{} octets", message.message.len()),
        })?;
        send_packet(&self.sender_socket, (link.index, libc::ETH_P_IPV6), peer, &packet).map_err(|e| {
            let LinkMessage { interface, source, destination, .. } = message;
            Error::from_kernel_refusal(
                format!("send an ICMPv6 message from {source} to {destination} on {interface}"),
                e,
            )
        })?;
        self.sent_messages += 1;
        Ok(())
    }
}

/// Returns the IPv6 packet that carries `message`; `None` if the message is shorter than an ICMPv6 header or
/// too long for a packet.
fn compose_packet(message: &LinkMessage) -> Option<Vec<u8>> {
    let length = u16::try_from(message.message.len()).ok().filter(|length| *length >= 4)?;
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: length,
        next_header: ICMPV6,
        hop_limit: message.hop_limit,
        source: message.source,
        destination: message.destination,
    };
    let mut packet = Vec::with_capacity(HEADER_LEN + usize::from(length));
    packet.extend(header.emit());
    packet.extend(&message.message);
    icmpv6::set_checksum(&mut packet[HEADER_LEN..], message.source, message.destination);
    Some(packet)
}

/// Returns the message in an IPv6 packet. If the packet has a type 2 routing header, the message's
/// destination is the final destination. Returns `None` if the lengths are inconsistent. Padding of the link
/// may follow the packet.
fn parse(interface: &str, packet: &[u8], peer: Option<[u8; 6]>) -> Option<LinkMessage> {
    let (header, payload) = Header::parse_packet(packet).ok()?;
    let whole = packet.get(..HEADER_LEN + payload.len())?;
    let extensions = ExtensionHeaders::parse(whole).ok()?;
    let message = whole.get(extensions.upper_layer_offset..)?;
    if extensions.protocol != ICMPV6 || extensions.home_address.is_some() || message.len() < 4 {
        return None;
    }
    Some(LinkMessage {
        interface: interface.to_owned(),
        source: header.source,
        destination: extensions.routing_home_address.unwrap_or(header.destination),
        hop_limit: header.hop_limit,
        peer,
        message: message.to_vec(),
    })
}

/// Returns a filter that accepts incoming ICMPv6 errors (1 to 4), Neighbor Discovery without Redirect (133 to
/// 136) and answers to home agent discovery (145). It also accepts Echo Replies (129) from link-local
/// addresses. After a type 2 routing header the filter accepts all Echo Replies and answers to mobile prefix
/// discovery (147). The kernel's own IPv6 may not process that header. In a `SOCK_DGRAM` packet socket the
/// packet begins with the IPv6 header.
fn icmpv6_filter() -> [SockFilter; 30] {
    const BPF_LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const BPF_JUMP_IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const OFFSET_PROTOCOL: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    const OFFSET_VLAN_TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32;
    const OFFSET_PAYLOAD: u32 = HEADER_LEN as u32;
    /// Offset of the source address in the IPv6 header.
    const OFFSET_SOURCE_ADDRESS: u32 = 8;
    /// Next Header and Hdr Ext Len of a type 2 routing header before ICMPv6 (RFC 6275 6.4.1).
    const TYPE_2_ROUTING_BEFORE_ICMPV6: u32 = (ICMPV6 as u32) << 8 | 2;
    [
        SockFilter::new(BPF_LOAD_WORD, 0, 0, OFFSET_PROTOCOL),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 27, libc::ETH_P_IPV6 as u32),
        SockFilter::new(BPF_LOAD_BYTE, 0, 0, 6),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 1, 0, u32::from(ICMPV6)),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 24, u32::from(ROUTING)),
        SockFilter::new(BPF_LOAD_WORD, 0, 0, OFFSET_VLAN_TAG),
        // Drop a frame with a VLAN tag, because the VLAN is another link.
        SockFilter::new(BPF_JUMP_IF_ANY_BIT, 22, 0, 0xfff),
        SockFilter::new(BPF_LOAD_WORD, 0, 0, OFFSET_PACKET_TYPE),
        // Drop frames to other stations (PACKET_OTHERHOST, 3) and frames that this machine sends
        // (PACKET_OUTGOING, 4).
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 20, 0, 3),
        SockFilter::new(BPF_LOAD_BYTE, 0, 0, 6),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 7, 0, u32::from(ICMPV6)),
        SockFilter::new(BPF_LOAD_HALF_WORD, 0, 0, OFFSET_PAYLOAD),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 16, TYPE_2_ROUTING_BEFORE_ICMPV6),
        SockFilter::new(BPF_LOAD_BYTE, 0, 0, OFFSET_PAYLOAD + 2),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 14, 2),
        SockFilter::new(BPF_LOAD_BYTE, 0, 0, OFFSET_PAYLOAD + HOME_ADDRESS_ROUTING_HEADER_LEN as u32),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 11, 0, u32::from(icmpv6::message_type::ECHO_REPLY)),
        SockFilter::new(
            BPF_JUMP_IF_EQUAL,
            10,
            11,
            u32::from(icmpv6::message_type::MOBILE_PREFIX_ADVERTISEMENT),
        ),
        SockFilter::new(BPF_LOAD_BYTE, 0, 0, OFFSET_PAYLOAD),
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 0, 9, 1),
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 0, 7, 5),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 6, 0, u32::from(icmpv6::message_type::DHAAD_REPLY)),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 2, 0, u32::from(icmpv6::message_type::ECHO_REPLY)),
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 0, 5, 133),
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 4, 3, 137),
        // Accept an Echo Reply whose source is in fe80::/10.
        SockFilter::new(BPF_LOAD_HALF_WORD, 0, 0, OFFSET_SOURCE_ADDRESS),
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 0, 2, 0xfe80),
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 1, 0, 0xfec0),
        SockFilter::new(BPF_RETURN, 0, 0, u32::MAX),
        SockFilter::new(BPF_RETURN, 0, 0, 0),
    ]
}

/// Opens a socket that receives ICMPv6 on the interface with this index.
fn open_listener(index: u32, place: CapturePoint, all_multicast: bool) -> io::Result<AsyncFd<Socket>> {
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    // Attach the filter before binding, so that the socket gets no unfiltered packet.
    socket.attach_filter(&icmpv6_filter())?;
    // A kernel before 4.20 lacks this option, and the filter drops outgoing packets there. So ignore an
    // error.
    let _ = set_packet_option(&socket, libc::PACKET_IGNORE_OUTGOING, &1i32);
    packet_socket::bind_to_interface(&socket, index, place.protocol())?;
    if all_multicast {
        receive_all_multicast(&socket, index)?;
    }
    watch_readable(socket)
}

/// Lets the interface receive frames to every multicast group for as long as the socket is open.
fn receive_all_multicast(socket: &Socket, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_packet_option(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

fn set_packet_option<T>(socket: &Socket, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is live, and the length is that of its type.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives one packet. Returns its length in `buffer`, and the sender's link-layer address, if any.
fn receive_packet(socket: &Socket, buffer: &mut [u8]) -> io::Result<(usize, Option<[u8; 6]>)> {
    let mut address = packet_socket_address(0, libc::ETH_P_IPV6, None);
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `buffer` is writable for its length, and `address` for `length` octets. Both outlive the call,
    // and any octets are a valid `sockaddr_ll`.
    let received = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
            (&raw mut address).cast(),
            &raw mut length,
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let [a, b, c, d, e, f, ..] = address.sll_addr;
    Ok((received, (address.sll_halen == 6).then_some([a, b, c, d, e, f])))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// A Neighbor Solicitation captured between two Linux machines, with its IPv6 header.
    const CAPTURED_SOLICITATION: &str = "6000000000203aff20010db800f100000000000000000001ff0200000000\
        000000000001ff0000108700";

    #[test]
    fn composed_icmpv6_packet_is_parsed() {
        let mut message = LinkMessage {
            interface: "h0".into(),
            source: "fe80::1".parse().expect("address"),
            destination: "ff02::1".parse().expect("address"),
            hop_limit: 255,
            peer: None,
            message: vec![136, 0, 9, 9, 1, 2, 3],
        };
        let mut packet = compose_packet(&message).expect("packet");
        // The checksum is right if the sum over the whole message is all ones (RFC 1071).
        let verified = icmpv6::verify_checksum(message.source, message.destination, &packet[HEADER_LEN..]);
        assert_eq!(verified, Ok(()));
        message.message[2..4].copy_from_slice(&packet[HEADER_LEN + 2..HEADER_LEN + 4]);
        assert_eq!(parse("h0", &packet, None), Some(message.clone()));
        packet.extend([0; 9]);
        assert_eq!(parse("h0", &packet, None), Some(message));
        for length in 0..HEADER_LEN + 7 {
            assert_eq!(parse("h0", &packet[..length], None), None);
        }
    }

    #[test]
    fn truncated_icmpv6_message_is_refused() {
        let octets: Vec<u8> = (0..CAPTURED_SOLICITATION.len())
            .step_by(2)
            .filter_map(|at| u8::from_str_radix(&CAPTURED_SOLICITATION[at..at + 2], 16).ok())
            .collect();
        assert_eq!(octets.len(), 42);
        assert_eq!(parse("h0", &octets, None), None);
    }

    #[test]
    fn invalid_icmpv6_messages_are_not_sent() {
        let mut message = LinkMessage {
            interface: "h0".into(),
            source: Ipv6Addr::UNSPECIFIED,
            destination: Ipv6Addr::LOCALHOST,
            hop_limit: 255,
            peer: None,
            message: vec![0; 3],
        };
        assert_eq!(compose_packet(&message), None);
        message.message.resize(65536, 0);
        assert_eq!(compose_packet(&message), None);
    }
}
