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

use super::next_hops::{self, NextHopObject};
use super::octets_at::octets_at;

/// A message of rtnetlink.
#[derive(Debug)]
pub(super) enum RtnetlinkMessage {
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
const LINK_HEADER_LENGTH: usize = 16;
/// Length of `struct ndmsg` in octets.
const NEIGHBOUR_HEADER_LENGTH: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

impl NetlinkSerializable for RtnetlinkMessage {
    fn message_type(&self) -> u16 {
        match self {
            RtnetlinkMessage::Route(message) => message.message_type(),
            RtnetlinkMessage::GetNextHops => next_hops::RTM_GETNEXTHOP,
            RtnetlinkMessage::NextHop(_) | RtnetlinkMessage::Other => libc::NLMSG_NOOP as u16,
        }
    }

    fn buffer_len(&self) -> usize {
        match self {
            RtnetlinkMessage::Route(message) => message_body(message).map_or(0, Emitable::buffer_len),
            RtnetlinkMessage::GetNextHops => next_hops::NEXT_HOP_HEADER_LENGTH,
            RtnetlinkMessage::NextHop(_) | RtnetlinkMessage::Other => 0,
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        match self {
            RtnetlinkMessage::Route(message) => {
                message_body(message).into_iter().for_each(|body| body.emit(buffer))
            }
            // A body of zeros requests objects of every family and kind.
            RtnetlinkMessage::GetNextHops => buffer.fill(0),
            RtnetlinkMessage::NextHop(_) | RtnetlinkMessage::Other => {}
        }
    }
}

/// Returns the body of a message; `None` for a kind that carnet does not send.
fn message_body(message: &RouteNetlinkMessage) -> Option<&dyn Emitable> {
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

impl NetlinkDeserializable for RtnetlinkMessage {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        use RouteNetlinkMessage::*;
        Ok(RtnetlinkMessage::Route(match header.message_type {
            libc::RTM_NEWLINK => NewLink(decode_link(payload)?),
            libc::RTM_DELLINK => DelLink(decode_link(payload)?),
            libc::RTM_NEWADDR => NewAddress(AddressMessage::parse(payload)?),
            libc::RTM_DELADDR => DelAddress(AddressMessage::parse(payload)?),
            libc::RTM_NEWROUTE => NewRoute(RouteMessage::parse(payload)?),
            libc::RTM_DELROUTE => DelRoute(RouteMessage::parse(payload)?),
            libc::RTM_NEWRULE => NewRule(RuleMessage::parse(payload)?),
            libc::RTM_DELRULE => DelRule(RuleMessage::parse(payload)?),
            libc::RTM_NEWNEIGH => NewNeighbour(decode_neighbour(payload)?),
            libc::RTM_DELNEIGH => DelNeighbour(decode_neighbour(payload)?),
            libc::RTM_NEWTFILTER => NewTrafficFilter(TcMessage::default()),
            next_hops::RTM_NEWNEXTHOP => return NextHopObject::parse(payload).map(RtnetlinkMessage::NextHop),
            _ => return Ok(RtnetlinkMessage::Other),
        }))
    }
}

fn decode_link(payload: &[u8]) -> Result<LinkMessage, DecodeError> {
    let short = || DecodeError::from("an interface with less than its header");
    let mut message = LinkMessage::default();
    message.header.interface_family = payload.first().ok_or_else(short)?.to_owned().into();
    message.header.link_layer_type =
        LinkLayerType::from(u16::from_ne_bytes(octets_at(payload, 2).ok_or_else(short)?));
    message.header.index = u32::from_ne_bytes(octets_at(payload, 4).ok_or_else(short)?);
    let flags = u32::from_ne_bytes(octets_at(payload, 8).ok_or_else(short)?);
    message.header.flags = LinkFlags::from_bits_retain(flags);
    for attribute in NlasIterator::new(payload.get(LINK_HEADER_LENGTH..).ok_or_else(short)?) {
        let attribute = attribute?;
        message.attributes.extend(decode_link_attribute(attribute.kind(), attribute.value()));
    }
    Ok(message)
}

fn decode_neighbour(payload: &[u8]) -> Result<NeighbourMessage, DecodeError> {
    let short = || DecodeError::from("a neighbour with less than its header");
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::from(payload.first().ok_or_else(short)?.to_owned());
    message.header.ifindex = u32::from_ne_bytes(octets_at(payload, 4).ok_or_else(short)?);
    message.header.state = NeighbourState::from(u16::from_ne_bytes(octets_at(payload, 8).ok_or_else(short)?));
    for attribute in NlasIterator::new(payload.get(NEIGHBOUR_HEADER_LENGTH..).ok_or_else(short)?) {
        let attribute = attribute?;
        if attribute.kind() == NDA_LLADDR {
            message.attributes.push(NeighbourAttribute::LinkLayerAddress(attribute.value().to_vec()));
        }
        if attribute.kind() == NDA_DST {
            message.attributes.extend(match message.header.family {
                AddressFamily::Inet => octets_at::<4>(attribute.value(), 0)
                    .map(|octets| NeighbourAttribute::Destination(NeighbourAddress::Inet(octets.into()))),
                AddressFamily::Inet6 => octets_at::<16>(attribute.value(), 0)
                    .map(|octets| NeighbourAttribute::Destination(NeighbourAddress::Inet6(octets.into()))),
                _ => None,
            });
        }
    }
    Ok(message)
}

fn decode_link_attribute(kind: u16, value: &[u8]) -> Option<LinkAttribute> {
    let number = || octets_at(value, 0).map(u32::from_ne_bytes);
    Some(match kind {
        libc::IFLA_ADDRESS => LinkAttribute::Address(value.to_vec()),
        libc::IFLA_IFNAME => LinkAttribute::IfName(decode_text(value)),
        libc::IFLA_MTU => LinkAttribute::Mtu(number()?),
        libc::IFLA_GROUP => LinkAttribute::Group(number()?),
        libc::IFLA_LINKINFO => {
            let kinds = NlasIterator::new(value).map_while(|inner| inner.ok());
            let name = kinds
                .filter(|inner| inner.kind() == libc::IFLA_INFO_KIND)
                .map(|inner| decode_text(inner.value()));
            let is = |name: String| (name == "ip6tnl").then_some(LinkKind::Kind(InfoKind::Ip6Tnl));
            LinkAttribute::LinkInfo(name.filter_map(is).collect())
        }
        _ => return None,
    })
}

/// Decodes a text attribute, without its final zero octet.
fn decode_text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode_message(kind: u16, payload: &[u8]) -> Result<Option<RouteNetlinkMessage>, DecodeError> {
        let mut header = NetlinkHeader::default();
        header.message_type = kind;
        RtnetlinkMessage::deserialize(&header, payload).map(|message| match message {
            RtnetlinkMessage::Route(message) => Some(message),
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
            decode_message(libc::RTM_NEWLINK, &written).expect("is right"),
            Some(RouteNetlinkMessage::NewLink(message))
        );
        for length in 0..LINK_HEADER_LENGTH {
            assert!(decode_message(libc::RTM_NEWLINK, &written[..length]).is_err(), "{length}");
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
            decode_message(libc::RTM_NEWNEIGH, &written).expect("is right"),
            Some(RouteNetlinkMessage::NewNeighbour(message))
        );
        for length in 0..NEIGHBOUR_HEADER_LENGTH {
            assert!(decode_message(libc::RTM_NEWNEIGH, &written[..length]).is_err(), "{length}");
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
        let Ok(Some(RouteNetlinkMessage::DelLink(read_back))) = decode_message(libc::RTM_DELLINK, &written)
        else {
            panic!("cannot decode the message of an interface");
        };
        assert_eq!(read_back.attributes, [LinkAttribute::LinkInfo(Vec::new())]);
        assert_eq!(decode_message(libc::RTM_NEWQDISC, &[0; 20]).expect("is right"), None);
    }

    proptest! {
        #[test]
        fn random_netlink_messages_cause_no_panic(
            kind in 16_u16..120,
            octets in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = decode_message(kind, &octets);
        }
    }
}
