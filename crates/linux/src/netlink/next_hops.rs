//! Reads next-hop objects (`ip nexthop`), to which routes refer by number.
//!
//! With the sysctl `net.ipv4.nexthop_compat_mode` a route from the kernel has the interface and gateway of
//! its object, too. Without the sysctl a route has only the number, and a change of the object causes an
//! event about the object only. Left out: encapsulation, and objects of a bridge's forwarding database, which
//! have no interface.

use std::net::IpAddr;

use netlink_packet_core::{DecodeError, NlasIterator};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};

use super::octets_at::octets_at;

/// Message types `RTM_NEWNEXTHOP`, `RTM_DELNEXTHOP` and `RTM_GETNEXTHOP`.
pub(super) const RTM_NEWNEXTHOP: u16 = 104;
pub(super) const RTM_DELNEXTHOP: u16 = 105;
pub(super) const RTM_GETNEXTHOP: u16 = 106;
/// Length in octets of `struct nhmsg`: family, scope, protocol, an octet of padding, and flags of four
/// octets.
pub(super) const NEXT_HOP_HEADER_LENGTH: usize = 8;
const FLAGS_OFFSET: usize = 4;
const RTNH_F_DEAD: u32 = 1;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
/// Length in octets of `struct nexthop_grp`, which begins with the number of a group's member.
const GROUP_ENTRY_LENGTH: usize = 8;

/// A next-hop object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NextHopObject {
    object_id: u32,
    interface: Option<u32>,
    gateway: Option<IpAddr>,
    /// Numbers of the members, if the object is a group.
    group_members: Vec<u32>,
    is_dead: bool,
}

impl NextHopObject {
    pub(super) fn parse(payload: &[u8]) -> std::result::Result<NextHopObject, DecodeError> {
        let short = || DecodeError::from("a next-hop object with less than its header");
        let flags = u32::from_ne_bytes(octets_at(payload, FLAGS_OFFSET).ok_or_else(short)?);
        let mut object = NextHopObject { is_dead: flags & RTNH_F_DEAD != 0, ..NextHopObject::default() };
        for attribute in NlasIterator::new(payload.get(NEXT_HOP_HEADER_LENGTH..).ok_or_else(short)?) {
            let attribute = attribute?;
            let value = attribute.value();
            let number = octets_at(value, 0).map(u32::from_ne_bytes);
            match attribute.kind() {
                NHA_ID => object.object_id = number.unwrap_or_default(),
                NHA_OIF => object.interface = number,
                NHA_GATEWAY => {
                    object.gateway = match value.len() {
                        4 => octets_at::<4>(value, 0).map(IpAddr::from),
                        16 => octets_at::<16>(value, 0).map(IpAddr::from),
                        _ => None,
                    };
                }
                NHA_GROUP => {
                    let entries = value.chunks_exact(GROUP_ENTRY_LENGTH);
                    object.group_members =
                        entries.filter_map(|it| octets_at(it, 0)).map(u32::from_ne_bytes).collect();
                }
                _ => {}
            }
        }
        Ok(object)
    }
}

/// All next-hop objects of the kernel; empty if no route refers to one.
#[derive(Debug, Default)]
pub(super) struct NextHopObjects(pub(super) Vec<NextHopObject>);

impl NextHopObjects {
    fn find_object(&self, id: u32) -> Option<&NextHopObject> {
        self.0.iter().find(|object| object.object_id == id)
    }

    /// Returns the next hops of a route that refers to a next-hop object: interface index and gateway, if
    /// any. The list is empty for other routes.
    pub(super) fn next_hops_of(&self, route: &RouteMessage) -> Vec<(u32, Option<IpAddr>)> {
        let Some(object) = next_hop_object_of(route).and_then(|id| self.find_object(id)) else {
            return Vec::new();
        };
        // The members are no groups themselves, because a group cannot contain groups.
        let members = object.group_members.iter().filter_map(|id| self.find_object(*id));
        let usable = std::iter::once(object).chain(members).filter(|object| !object.is_dead);
        usable.filter_map(|object| Some((object.interface?, object.gateway))).collect()
    }
}

/// Returns the number of the next-hop object to which a route refers. `None` if the route contains its next
/// hops.
pub(super) fn next_hop_object_of(route: &RouteMessage) -> Option<u32> {
    let mut id = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::NhId(number) => id = Some(*number),
            RouteAttribute::Oif(_) | RouteAttribute::MultiPath(_) => return None,
            _ => {}
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).expect("is short");
        let mut octets = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        octets.extend(value);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    fn decode_object(flags: u32, attributes: &[Vec<u8>]) -> NextHopObject {
        let payload = [&[10, 0, 3, 0][..], &flags.to_ne_bytes(), &attributes.concat()].concat();
        for length in 0..NEXT_HOP_HEADER_LENGTH {
            assert!(NextHopObject::parse(&payload[..length]).is_err(), "{length}");
        }
        NextHopObject::parse(&payload).expect("is right")
    }

    fn single_object(id: u32, interface: u32, gateway: &[u8], flags: u32) -> NextHopObject {
        let id = encode_attribute(NHA_ID, &id.to_ne_bytes());
        decode_object(
            flags,
            &[
                id,
                encode_attribute(NHA_OIF, &interface.to_ne_bytes()),
                encode_attribute(NHA_GATEWAY, gateway),
            ],
        )
    }

    #[test]
    fn route_with_next_hop_object_has_the_next_hops_of_the_object() {
        let entries = [1_u32, 9, 2, 9, 4, 9].map(u32::to_ne_bytes).concat();
        let group = decode_object(
            0,
            &[encode_attribute(NHA_ID, &3_u32.to_ne_bytes()), encode_attribute(NHA_GROUP, &entries)],
        );
        let router: std::net::Ipv6Addr = "fe80::1".parse().expect("an address");
        let objects = NextHopObjects(vec![
            single_object(1, 7, &router.octets(), 0),
            single_object(2, 8, &[192, 0, 2, 1], 0),
            group,
            single_object(4, 9, &[192, 0, 2, 9], RTNH_F_DEAD),
        ]);
        let hops = |attributes: &[RouteAttribute]| {
            let mut route = RouteMessage::default();
            route.attributes = attributes.to_vec();
            objects.next_hops_of(&route)
        };
        let (first, second) = ((7, Some(IpAddr::from(router))), (8, Some(IpAddr::from([192, 0, 2, 1]))));
        assert_eq!(hops(&[RouteAttribute::NhId(1)]), [first]);
        assert_eq!(hops(&[RouteAttribute::NhId(3)]), [first, second], "the last is dead");
        assert_eq!(hops(&[RouteAttribute::NhId(4)]), []);
        assert_eq!(hops(&[RouteAttribute::NhId(5)]), []);
        assert_eq!(hops(&[RouteAttribute::NhId(1), RouteAttribute::Oif(7)]), [], "the route names it");
    }
}
