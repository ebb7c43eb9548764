//! Encodes the rtnetlink messages that carnet sends, and decodes the parts of messages that carnet reads.
//!
//! The packet crates can decode all messages about interfaces, queues and filters of any kernel module. That
//! code would be a twelfth of the program. So this module itself decodes the few messages that carnet needs,
//! and skips all others. Of an interface it reads the attributes of [`LinkInfo`](super::LinkInfo), of a
//! neighbour its addresses and state, of a filter only its presence.

use netlink_packet_core::{
    DecodeError, Emitable, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator, Parseable,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo as LinkKind, LinkLayerType, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::tc::TcMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::fields::at;
use super::next_hops::{self, NextHopObject};

/// A message of rtnetlink.
#[derive(Debug)]
pub(super) enum Message {
    /// A message that the packet crates decode.
    Route(RouteNetlinkMessage),
    /// A message about a next-hop object.
    NextHop(NextHopObject),
    /// The request for all next-hop objects.
    GetNextHops,
    /// A message of a kind that carnet does not read.
    Other,
}

/// Length of `struct ifinfomsg` in octets.
const LINK_HEADER: usize = 16;
/// Length of `struct ndmsg` in octets.
const NEIGHBOUR_HEADER: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        match self {
            Message::Route(message) => message.message_type(),
            Message::GetNextHops => next_hops::GET,
            Message::NextHop(_) | Message::Other => libc::NLMSG_NOOP as u16,
        }
    }

    fn buffer_len(&self) -> usize {
        match self {
            Message::Route(message) => body(message).map_or(0, Emitable::buffer_len),
            Message::GetNextHops => next_hops::HEADER,
            Message::NextHop(_) | Message::Other => 0,
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        match self {
            Message::Route(message) => body(message).into_iter().for_each(|body| body.emit(buffer)),
            // A body of zeros requests objects of every family and kind.
            Message::GetNextHops => buffer.fill(0),
            Message::NextHop(_) | Message::Other => {}
        }
    }
}

/// Returns the body of a message; `None` for a kind that carnet does not send.
fn body(message: &RouteNetlinkMessage) -> Option<&dyn Emitable> {
    use RouteNetlinkMessage::*;
    Some(match message {
        NewLink(link) | DelLink(link) | GetLink(link) | SetLink(link) => link,
        NewAddress(address) | DelAddress(address) | GetAddress(address) => address,
        NewRoute(route) | DelRoute(route) | GetRoute(route) => route,
        NewRule(rule) | DelRule(rule) | GetRule(rule) => rule,
        NewNeighbour(neighbour) | DelNeighbour(neighbour) | GetNeighbour(neighbour) => neighbour,
        NewQueueDiscipline(queue) | DelQueueDiscipline(queue) => queue,
        DelTrafficFilter(filter) | GetTrafficFilter(filter) => filter,
        _ => return None,
    })
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        use RouteNetlinkMessage::*;
        Ok(Message::Route(match header.message_type {
            libc::RTM_NEWLINK => NewLink(link(payload)?),
            libc::RTM_DELLINK => DelLink(link(payload)?),
            libc::RTM_NEWADDR => NewAddress(AddressMessage::parse(payload)?),
            libc::RTM_DELADDR => DelAddress(AddressMessage::parse(payload)?),
            libc::RTM_NEWROUTE => NewRoute(RouteMessage::parse(payload)?),
            libc::RTM_DELROUTE => DelRoute(RouteMessage::parse(payload)?),
            libc::RTM_NEWRULE => NewRule(RuleMessage::parse(payload)?),
            libc::RTM_DELRULE => DelRule(RuleMessage::parse(payload)?),
            libc::RTM_NEWNEIGH => NewNeighbour(neighbour(payload)?),
            libc::RTM_DELNEIGH => DelNeighbour(neighbour(payload)?),
            libc::RTM_NEWTFILTER => NewTrafficFilter(TcMessage::default()),
            next_hops::NEW => return NextHopObject::parse(payload).map(Message::NextHop),
            _ => return Ok(Message::Other),
        }))
    }
}

fn link(payload: &[u8]) -> Result<LinkMessage, DecodeError> {
    let short = || DecodeError::from("an interface with less than its header");
    let mut message = LinkMessage::default();
    message.header.interface_family = payload.first().ok_or_else(short)?.to_owned().into();
    message.header.link_layer_type =
        LinkLayerType::from(u16::from_ne_bytes(at(payload, 2).ok_or_else(short)?));
    message.header.index = u32::from_ne_bytes(at(payload, 4).ok_or_else(short)?);
    let flags = u32::from_ne_bytes(at(payload, 8).ok_or_else(short)?);
    message.header.flags = LinkFlags::from_bits_retain(flags);
    for attribute in NlasIterator::new(payload.get(LINK_HEADER..).ok_or_else(short)?) {
        let attribute = attribute?;
        message.attributes.extend(link_attribute(attribute.kind(), attribute.value()));
    }
    Ok(message)
}

fn neighbour(payload: &[u8]) -> Result<NeighbourMessage, DecodeError> {
    let short = || DecodeError::from("a neighbour with less than its header");
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::from(payload.first().ok_or_else(short)?.to_owned());
    message.header.ifindex = u32::from_ne_bytes(at(payload, 4).ok_or_else(short)?);
    message.header.state = NeighbourState::from(u16::from_ne_bytes(at(payload, 8).ok_or_else(short)?));
    for attribute in NlasIterator::new(payload.get(NEIGHBOUR_HEADER..).ok_or_else(short)?) {
        let attribute = attribute?;
        if attribute.kind() == NDA_LLADDR {
            message.attributes.push(NeighbourAttribute::LinkLayerAddress(attribute.value().to_vec()));
        }
        if attribute.kind() == NDA_DST {
            message.attributes.extend(match message.header.family {
                AddressFamily::Inet => at::<4>(attribute.value(), 0)
                    .map(|octets| NeighbourAttribute::Destination(NeighbourAddress::Inet(octets.into()))),
                AddressFamily::Inet6 => at::<16>(attribute.value(), 0)
                    .map(|octets| NeighbourAttribute::Destination(NeighbourAddress::Inet6(octets.into()))),
                _ => None,
            });
        }
    }
    Ok(message)
}

fn link_attribute(kind: u16, value: &[u8]) -> Option<LinkAttribute> {
    let number = || at(value, 0).map(u32::from_ne_bytes);
    Some(match kind {
        libc::IFLA_ADDRESS => LinkAttribute::Address(value.to_vec()),
        libc::IFLA_IFNAME => LinkAttribute::IfName(text(value)),
        libc::IFLA_MTU => LinkAttribute::Mtu(number()?),
        libc::IFLA_GROUP => LinkAttribute::Group(number()?),
        libc::IFLA_LINKINFO => {
            let kinds = NlasIterator::new(value).map_while(|inner| inner.ok());
            let name =
                kinds.filter(|inner| inner.kind() == libc::IFLA_INFO_KIND).map(|inner| text(inner.value()));
            let is = |name: String| (name == "ip6tnl").then_some(LinkKind::Kind(InfoKind::Ip6Tnl));
            LinkAttribute::LinkInfo(name.filter_map(is).collect())
        }
        _ => return None,
    })
}

/// Decodes a text attribute, without its final zero octet.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(kind: u16, payload: &[u8]) -> Result<Option<RouteNetlinkMessage>, DecodeError> {
        let mut header = NetlinkHeader::default();
        header.message_type = kind;
        Message::deserialize(&header, payload).map(|message| match message {
            Message::Route(message) => Some(message),
            _ => None,
        })
    }

    /// A message that the netlink-packet crate has encoded must be decoded to the same values by this module.
    #[test]
    fn interface_message_is_decoded_as_encoded() {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        message.attributes = vec![
            LinkAttribute::IfName("veth0".into()),
            LinkAttribute::Mtu(1400),
            LinkAttribute::Group(13500),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 9]),
            LinkAttribute::LinkInfo(vec![LinkKind::Kind(InfoKind::Ip6Tnl)]),
        ];
        let mut written = vec![0; message.buffer_len()];
        message.emit(&mut written);
        assert_eq!(
            read(libc::RTM_NEWLINK, &written).expect("is right"),
            Some(RouteNetlinkMessage::NewLink(message))
        );
        for length in 0..LINK_HEADER {
            assert!(read(libc::RTM_NEWLINK, &written[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn neighbour_message_is_decoded_as_encoded() {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.ifindex = 7;
        message.header.state = NeighbourState::Failed;
        let address = NeighbourAddress::Inet6("fe80::1".parse().expect("an address"));
        message.attributes = vec![
            NeighbourAttribute::Destination(address),
            NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 9]),
        ];
        let mut written = vec![0; message.buffer_len()];
        message.emit(&mut written);
        assert_eq!(
            read(libc::RTM_NEWNEIGH, &written).expect("is right"),
            Some(RouteNetlinkMessage::NewNeighbour(message))
        );
        for length in 0..NEIGHBOUR_HEADER {
            assert!(read(libc::RTM_NEWNEIGH, &written[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn unknown_message_kinds_and_attributes_are_ignored() {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::LinkInfo(vec![LinkKind::Kind(InfoKind::Veth)]),
            LinkAttribute::TxQueueLen(1000),
        ];
        let mut written = vec![0; message.buffer_len()];
        message.emit(&mut written);
        let Ok(Some(RouteNetlinkMessage::DelLink(read_back))) = read(libc::RTM_DELLINK, &written) else {
            panic!("cannot decode the message of an interface");
        };
        assert_eq!(read_back.attributes, [LinkAttribute::LinkInfo(Vec::new())]);
        assert_eq!(read(libc::RTM_NEWQDISC, &[0; 20]).expect("is right"), None);
    }

    proptest! {
        #[test]
        fn random_netlink_messages_cause_no_panic(
            kind in 16_u16..120,
            octets in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = read(kind, &octets);
        }
    }
}
