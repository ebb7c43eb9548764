//! Generic netlink: encodes and decodes messages, sends requests to a family of the kernel, and receives its
//! events.
//!
//! See `linux/netlink.h` and `linux/genetlink.h`. All values are in this machine's byte order.

use std::collections::BTreeMap;
use std::io;
use std::task::{Context, Poll};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use tokio::io::unix::AsyncFd;

use crate::async_descriptor::watch_readable;

/// Length of the header of a netlink message in octets.
const NETLINK_HEADER_LENGTH: usize = 16;
/// Length in octets of the second header, which generic netlink and netfilter have.
const PROTOCOL_HEADER_LENGTH: usize = 4;
/// Length of an attribute's header in octets.
const ATTRIBUTE_HEADER_LENGTH: usize = 4;
/// Flag that each request has.
pub(crate) const FLAG_REQUEST: u16 = 0x1;
/// Flag of a request that the kernel acknowledges.
pub(crate) const FLAG_ACKNOWLEDGE: u16 = 0x4;
/// Flags of a request for all objects.
pub(crate) const FLAG_DUMP: u16 = 0x300;
/// Types of control messages of netlink.
pub(crate) const MESSAGE_ERROR: u16 = 2;
pub(crate) const MESSAGE_DONE: u16 = 3;
/// Number of the control family, which returns the numbers of other families by their names. The next
/// constants are its command and the attributes of its answer.
const CONTROL_FAMILY: u16 = 16;
const COMMAND_GET_FAMILY: u8 = 3;
const ATTRIBUTE_FAMILY_ID: u16 = 1;
const ATTRIBUTE_FAMILY_NAME: u16 = 2;
const ATTRIBUTE_MULTICAST_GROUPS: u16 = 7;
const ATTRIBUTE_GROUP_NAME: u16 = 1;
const ATTRIBUTE_GROUP_ID: u16 = 2;
/// Size of the receive buffer in octets: more than the kernel sends at a time.
const RECEIVE_BUFFER_SIZE: usize = 32 * 1024;
/// Maximum number of datagrams of an answer.
const MAX_ANSWER_PARTS: usize = 64;

/// A message from or to a generic netlink family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GenericNetlinkMessage {
    /// Number of the family, or the type of a control message.
    pub(crate) family: u16,
    pub(crate) command: u8,
    /// Attributes after the headers.
    pub(crate) attributes: Vec<u8>,
}

/// A received netlink message, whatever its protocol.
pub(crate) struct ReceivedMessage<'a> {
    /// Type of the message.
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// Octets after the netlink header.
    message_body: &'a [u8],
}

impl ReceivedMessage<'_> {
    /// Returns the result that a message of type [`MESSAGE_ERROR`] reports: an acknowledgement, or the
    /// kernel's error.
    pub(crate) fn check_error(&self) -> io::Result<()> {
        match u32_at(self.message_body, 0).map_or(0, |code| code as i32) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        }
    }

    /// Returns the first octet of the header that follows the netlink header: in netfilter the address
    /// family.
    pub(crate) fn address_family(&self) -> u8 {
        self.message_body.first().copied().unwrap_or_default()
    }

    /// Returns the attributes after the protocol's header; `None` if the message ends within this header.
    pub(crate) fn attributes(&self) -> Option<&[u8]> {
        self.message_body.get(PROTOCOL_HEADER_LENGTH..)
    }
}

/// A family: its number, and the numbers of its multicast groups by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GenericNetlinkFamily {
    pub(crate) family_id: u16,
    pub(crate) multicast_groups: BTreeMap<String, u32>,
}

/// Encodes an attribute with its header and padding.
pub(crate) fn encode_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (ATTRIBUTE_HEADER_LENGTH + value.len()) as u16;
    let mut octets = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    octets.extend(value);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// Returns the attributes in these octets, up to the first invalid one.
pub(crate) fn split_attributes(octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(ATTRIBUTE_HEADER_LENGTH..length)?;
        // Bits 14 and 15 of the type are flags: byte order, and nested.
        let kind = u16_at(rest, 2)? & 0x3fff;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the value of the first attribute of this kind; `None` if there is no such attribute.
pub(crate) fn find_attribute(octets: &[u8], kind: u16) -> Option<&[u8]> {
    split_attributes(octets).find(|(k, _)| *k == kind).map(|(_, value)| value)
}

pub(crate) fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(octets.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(octets.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the netlink messages in received octets, up to the first invalid one.
pub(crate) fn split_received(octets: &[u8]) -> impl Iterator<Item = ReceivedMessage<'_>> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let message = ReceivedMessage {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            message_body: rest.get(NETLINK_HEADER_LENGTH..length)?,
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Splits received octets into messages. An error message of the kernel becomes the error of this function.
pub(crate) fn split_messages(octets: &[u8]) -> io::Result<Vec<GenericNetlinkMessage>> {
    let mut messages = Vec::new();
    for message in split_received(octets) {
        if message.kind == MESSAGE_ERROR {
            message.check_error()?;
        }
        if matches!(message.kind, MESSAGE_ERROR | MESSAGE_DONE) {
            messages.push(GenericNetlinkMessage { family: MESSAGE_DONE, command: 0, attributes: Vec::new() });
        } else if let (Some(command), Some(attributes)) = (message.message_body.first(), message.attributes())
        {
            let (family, command) = (message.kind, *command);
            messages.push(GenericNetlinkMessage { family, command, attributes: attributes.to_vec() });
        }
    }
    Ok(messages)
}

/// Encodes a request of a protocol over netlink.
pub(crate) fn encode_request(
    kind: u16,
    flags: u16,
    sequence: u32,
    protocol_header: [u8; PROTOCOL_HEADER_LENGTH],
    attributes: &[u8],
) -> Vec<u8> {
    let length = (NETLINK_HEADER_LENGTH + PROTOCOL_HEADER_LENGTH + attributes.len()) as u32;
    let mut octets = Vec::with_capacity(length as usize);
    octets.extend(length.to_ne_bytes());
    octets.extend(kind.to_ne_bytes());
    octets.extend((FLAG_REQUEST | flags).to_ne_bytes());
    octets.extend(sequence.to_ne_bytes());
    // The port may be 0, because the kernel knows the port of the socket.
    octets.extend([0; 4]);
    octets.extend(protocol_header);
    octets.extend(attributes);
    octets
}

fn encode_generic_request(family: u16, flags: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    // Only one request is sent at a time, so the sequence number may be 0. The header is `struct genlmsghdr`:
    // command, version, and two reserved octets.
    encode_request(family, flags, 0, [command, 1, 0, 0], attributes)
}

/// A socket for requests. The kernel answers within the call that sends the request.
pub(crate) struct RequestSocket {
    socket: Socket,
}

impl std::fmt::Debug for RequestSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestSocket").finish_non_exhaustive()
    }
}

impl RequestSocket {
    pub(crate) fn open() -> io::Result<RequestSocket> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(RequestSocket { socket })
    }

    /// Sends a command about all objects and returns the answers.
    pub(crate) fn dump_objects(
        &mut self,
        family: u16,
        command: u8,
        attributes: &[u8],
    ) -> io::Result<Vec<GenericNetlinkMessage>> {
        self.exchange_request(&encode_generic_request(family, FLAG_DUMP, command, attributes))
    }

    /// Sends a command about one object, and returns the answers that precede the kernel's acknowledgement.
    pub(crate) fn request_change(
        &mut self,
        family: u16,
        command: u8,
        attributes: &[u8],
    ) -> io::Result<Vec<GenericNetlinkMessage>> {
        self.exchange_request(&encode_generic_request(family, FLAG_ACKNOWLEDGE, command, attributes))
    }

    /// Returns a generic netlink family by its name. Fails with `NotFound` if the kernel has no such family.
    pub(crate) fn find_family(&mut self, name: &str) -> io::Result<GenericNetlinkFamily> {
        let name = encode_attribute(ATTRIBUTE_FAMILY_NAME, &[name.as_bytes(), &[0]].concat());
        let answers = self.request_change(CONTROL_FAMILY, COMMAND_GET_FAMILY, &name)?;
        let family = answers.iter().find_map(|answer| decode_family(&answer.attributes));
        family.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn exchange_request(&mut self, request: &[u8]) -> io::Result<Vec<GenericNetlinkMessage>> {
        self.socket.send(request, 0)?;
        let mut answers = Vec::new();
        let mut buffer = Vec::with_capacity(RECEIVE_BUFFER_SIZE);
        for _ in 0..MAX_ANSWER_PARTS {
            buffer.clear();
            self.socket.recv(&mut buffer, 0)?;
            let mut messages = split_messages(&buffer)?;
            let done = messages.iter().position(|message| message.family == MESSAGE_DONE);
            answers.extend(messages.drain(..done.unwrap_or(messages.len())));
            if done.is_some() {
                return Ok(answers);
            }
        }
        Err(io::Error::from(io::ErrorKind::InvalidData))
    }
}

/// Receives the events of one multicast group of generic netlink.
#[derive(Debug, Default)]
pub(crate) struct MulticastEvents(Option<AsyncFd<Socket>>);

impl MulticastEvents {
    /// Joins a multicast group. If that fails, for example outside of a tokio runtime, no event ever arrives.
    pub(crate) fn join_group(group: u32) -> MulticastEvents {
        let listen = || -> io::Result<AsyncFd<Socket>> {
            let mut socket = Socket::new(NETLINK_GENERIC)?;
            socket.bind_auto()?;
            socket.set_non_blocking(true)?;
            socket.add_membership(group)?;
            watch_readable(socket)
        };
        MulticastEvents(tokio::runtime::Handle::try_current().ok().and_then(|_| listen().ok()))
    }

    /// Returns whether a message for which `matters` returns true has arrived since the last call, or may
    /// have been lost.
    pub(crate) fn poll_matching(
        &mut self,
        cx: &mut Context<'_>,
        matters: impl Fn(&[GenericNetlinkMessage]) -> bool,
    ) -> bool {
        let Some(events) = &self.0 else { return false };
        let mut happened = false;
        let mut buffer = Vec::with_capacity(8192);
        while let Poll::Ready(Ok(mut ready)) = events.poll_read_ready(cx) {
            buffer.clear();
            match ready.try_io(|events| events.get_ref().recv(&mut buffer, 0)) {
                Ok(Ok(_)) => happened |= matters(&split_messages(&buffer).unwrap_or_default()),
                // The kernel has dropped events. Assume that one of them was about a change that the caller
                // waits for.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => happened = true,
                Ok(Err(_)) => {
                    self.0 = None;
                    break;
                }
                Err(_would_block) => {}
            }
        }
        happened
    }
}

/// Decodes a family from the attributes of the control family's answer; `None` if the answer has no number of
/// a family.
fn decode_family(octets: &[u8]) -> Option<GenericNetlinkFamily> {
    let id = u16_at(find_attribute(octets, ATTRIBUTE_FAMILY_ID)?, 0)?;
    let groups = split_attributes(find_attribute(octets, ATTRIBUTE_MULTICAST_GROUPS).unwrap_or_default());
    let group = |(_, octets): (u16, &[u8])| {
        let name = find_attribute(octets, ATTRIBUTE_GROUP_NAME)?.strip_suffix(&[0])?;
        Some((
            String::from_utf8_lossy(name).into_owned(),
            u32_at(find_attribute(octets, ATTRIBUTE_GROUP_ID)?, 0)?,
        ))
    };
    Some(GenericNetlinkFamily { family_id: id, multicast_groups: groups.filter_map(group).collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a message of a family in the kernel's format.
    fn encode_message(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
        encode_generic_request(family, 0, command, attributes)
    }

    #[test]
    fn netlink_attributes_nest_and_are_padded() {
        let inner = [encode_attribute(7, &[0xc3]), encode_attribute(13, &[1, 2, 3, 4, 5])].concat();
        let octets =
            [encode_attribute(3, &5_u32.to_ne_bytes()), encode_attribute(21 | 0x8000, &inner)].concat();
        assert_eq!(octets.len() % 4, 0);
        let found = find_attribute(&octets, 21).expect("is there");
        assert_eq!(split_attributes(found).collect::<Vec<_>>(), [(7, &[0xc3][..]), (13, &[1, 2, 3, 4, 5])]);
        assert_eq!(find_attribute(&octets, 3).and_then(|v| u32_at(v, 0)), Some(5));
        assert_eq!(find_attribute(&octets, 4), None);
    }

    #[test]
    fn multicast_groups_of_netlink_family_are_found() {
        let group = |n: u16, name: &str, id: u32| {
            let name = encode_attribute(ATTRIBUTE_GROUP_NAME, &[name.as_bytes(), &[0]].concat());
            encode_attribute(n, &[name, encode_attribute(ATTRIBUTE_GROUP_ID, &id.to_ne_bytes())].concat())
        };
        let groups = encode_attribute(
            ATTRIBUTE_MULTICAST_GROUPS,
            &[group(1, "scan", 5), group(2, "mlme", 7)].concat(),
        );
        let octets = [encode_attribute(ATTRIBUTE_FAMILY_ID, &28_u16.to_ne_bytes()), groups].concat();
        let found = decode_family(&octets).expect("is there");
        assert_eq!((found.family_id, found.multicast_groups.get("mlme")), (28, Some(&7)));
    }

    #[test]
    fn netlink_error_is_returned() {
        let mut octets = encode_message(MESSAGE_ERROR, 0, &[]);
        octets[16..20].copy_from_slice(&(-19_i32).to_ne_bytes());
        assert_eq!(split_messages(&octets).expect_err("is one").raw_os_error(), Some(libc::ENODEV));
        octets[16..20].fill(0);
        assert_eq!(split_messages(&octets).expect("is success")[0].family, MESSAGE_DONE);
    }

    #[test]
    fn generic_netlink_controller_answers() {
        let mut questions = RequestSocket::open().expect("the kernel has generic netlink");
        assert_eq!(questions.find_family("nlctrl").expect("is there").family_id, CONTROL_FAMILY);
        let error = questions.find_family("no such family").expect_err("is not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #[test]
        fn random_generic_netlink_messages_cause_no_panic(
            octets in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = split_messages(&octets);
            let _ = decode_family(&octets);
            prop_assert!(split_attributes(&octets).count() <= octets.len() / 4 + 1);
        }
    }
}
