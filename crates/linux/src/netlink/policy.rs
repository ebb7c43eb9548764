//! Finds out which packet fields the kernel's IPv6 routing uses besides the incoming interface and the
//! destination.
//!
//! A fast path may cache the next hop of a whole network only if no rule or route treats packets to this
//! network differently. This module learns that from the kernel's events, because reading a very long routing
//! table at each change would take too long. The module reads the whole table only at the start, and when an
//! obstacle may have vanished.

use std::collections::BTreeSet;

use carnet_nemo::forwarding::desired::TUNNEL_DEVICE;
use ipnet::Ipv6Net;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage};
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Requests, RuleInfo};
use crate::error::Result;

/// Maximum number of upper halves of addresses that the map `CROWDED` in `bpf/ways.h` stores.
pub(crate) const CROWDED_MAX: usize = 65536;

/// Packet fields that routes and rules use, according to the events so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Heard {
    /// Upper halves (64 bits) of the destinations of routes with prefixes longer than 64 bits.
    pub(crate) crowded: BTreeSet<u64>,
    /// Whether there are more than [`CROWDED_MAX`] such halves.
    pub(crate) full: bool,
    /// Whether a route depends on the source, or has several next hops.
    pub(crate) forked: bool,
    /// Whether the kernel has removed a route that depends on the source or had several next hops. It may
    /// have been the last such route.
    pub(crate) unforked: bool,
    /// Whether any rules have changed.
    pub(crate) rules: bool,
    /// Whether carnet may have missed events.
    pub(crate) missed: bool,
}

impl Heard {
    /// Notes the packet fields of a route or rule, from an event or an answer of the kernel.
    pub(super) fn hear(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewRoute(route) => self.hear_route(route, false),
            RouteNetlinkMessage::DelRoute(route) => self.hear_route(route, true),
            RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule) => self.hear_rule(rule),
            _ => {}
        }
    }

    fn hear_rule(&mut self, rule: &RuleMessage) {
        self.rules |= rule.header.family == AddressFamily::Inet6;
    }

    fn hear_route(&mut self, route: &RouteMessage, gone: bool) {
        let header = &route.header;
        if header.address_family != AddressFamily::Inet6 || header.flags.contains(RouteFlags::Cloned) {
            return;
        }
        let destination = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(*address),
            _ => None,
        });
        if let Some(destination) = destination
            && let Ok(network) = Ipv6Net::new(destination, header.destination_prefix_length)
        {
            self.crowd(network);
        }
        let forked = header.source_prefix_length > 0
            || route
                .attributes
                .iter()
                .any(|attribute| matches!(attribute, RouteAttribute::MultiPath(_) | RouteAttribute::NhId(_)));
        self.forked |= forked && !gone;
        self.unforked |= gone && forked;
        // Of a route with two next hops, one may have been removed, so that it no longer has several.
        self.unforked |= gone && !forked;
    }

    /// Adds the upper halves of addresses that another [`Heard`] has collected.
    pub(crate) fn take_crowded(&mut self, crowded: BTreeSet<u64>, full: bool) {
        self.full |= full;
        crowded.into_iter().for_each(|half| self.note(half));
    }

    /// Notes the upper half of a network's address, if a route to the network exists or existed and is longer
    /// than 64 bits.
    pub(crate) fn crowd(&mut self, network: Ipv6Net) {
        if network.prefix_len() > 64 {
            self.note((u128::from(network.network()) >> 64) as u64);
        }
    }

    fn note(&mut self, half: u64) {
        if self.crowded.len() < CROWDED_MAX {
            self.crowded.insert(half);
        } else {
            self.full |= !self.crowded.contains(&half);
        }
    }
}

/// Returns whether the rules use interface and destination only: for arriving packets, and for packets that
/// come out of the TUN device.
pub(crate) fn rules_are_plain(rules: &[RuleInfo]) -> (bool, bool) {
    let (mut arriving, mut leaving) = (true, true);
    for RuleInfo { rule, bare, .. } in rules {
        let plain = *bare
            && rule.from.is_none()
            && rule.protocol.is_none()
            && rule.to.is_none_or(|network| network.prefix_len() <= 64);
        if plain {
            continue;
        }
        match rule.input_interface.as_deref() {
            Some(TUNNEL_DEVICE) => leaving = false,
            // The rule concerns only packets that this machine itself sends.
            Some("lo") => {}
            Some(_) => arriving = false,
            None => (arriving, leaving) = (false, false),
        }
    }
    (arriving, leaving)
}

impl Requests {
    /// Reads all routes and returns the packet fields that they use.
    pub(crate) fn hear_all_routes(&mut self) -> Result<Heard> {
        let mut question = RouteMessage::default();
        question.header.address_family = AddressFamily::Inet6;
        let answers =
            self.dump(RouteNetlinkMessage::GetRoute(question), || "list the IPv6 routes".to_owned())?;
        let mut heard = Heard::default();
        answers.iter().for_each(|answer| heard.hear(answer));
        Ok(heard)
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags};

    use super::*;

    fn route(destination: &str, attributes: &[RouteAttribute]) -> RouteMessage {
        let network: Ipv6Net = destination.parse().expect("prefix");
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        message.header.destination_prefix_length = network.prefix_len();
        message.attributes = vec![RouteAttribute::Destination(RouteAddress::Inet6(network.addr()))];
        message.attributes.extend_from_slice(attributes);
        message
    }

    #[test]
    fn long_routes_crowd_their_network() {
        let mut heard = Heard::default();
        for destination in ["2001:db8:1:2::3/128", "2001:db8:1:2::/65", "2001:db8::/64", "::/0"] {
            heard.hear(&RouteNetlinkMessage::NewRoute(route(destination, &[])));
        }
        assert_eq!(heard, Heard { crowded: [0x2001_0db8_0001_0002].into(), ..Heard::default() });
        // The kernel's cached copies of routes do not count as routes.
        let mut cloned = route("2001:db8:9::1/128", &[]);
        cloned.header.flags = RouteFlags::Cloned;
        heard.hear(&RouteNetlinkMessage::NewRoute(cloned));
        assert_eq!(heard.crowded.len(), 1);
    }

    #[test]
    fn so_many_halves_and_no_more() {
        let mut heard = Heard::default();
        heard.take_crowded((0..CROWDED_MAX as u64 + 1).collect(), false);
        assert_eq!((heard.crowded.len(), heard.full), (CROWDED_MAX, true));
    }

    #[test]
    fn forks_come_and_go() {
        let mut by_source = route("2001:db8::/32", &[]);
        by_source.header.source_prefix_length = 48;
        let several = route("::/0", &[RouteAttribute::MultiPath(Vec::new())]);
        let object = route("::/0", &[RouteAttribute::NhId(7)]);
        for message in [by_source, several, object] {
            let mut heard = Heard::default();
            heard.hear(&RouteNetlinkMessage::NewRoute(message.clone()));
            assert_eq!((heard.forked, heard.unforked), (true, false));
            heard.hear(&RouteNetlinkMessage::DelRoute(message));
            assert_eq!((heard.forked, heard.unforked), (true, true));
        }
    }

    #[test]
    fn rules_that_look_at_more_than_interface_and_destination() {
        let source = RuleAttribute::Source(std::net::Ipv6Addr::LOCALHOST.into());
        let interface = |name: &str| RuleAttribute::Iifname(name.into());
        let to =
            RuleAttribute::Destination("2001:db8::".parse::<std::net::Ipv6Addr>().expect("address").into());
        let (both, none) = ((true, true), (false, false));
        for (attributes, inverted, length, expected) in [
            (vec![], false, 0, both),
            (vec![interface("eth0")], false, 0, both),
            (vec![to.clone()], false, 64, both),
            (vec![to.clone()], false, 65, none),
            (vec![to], true, 64, none),
            (vec![source.clone()], false, 0, none),
            (vec![interface("eth0"), source.clone()], false, 0, (false, true)),
            (vec![interface(TUNNEL_DEVICE), source.clone()], false, 0, (true, false)),
            (vec![interface("lo"), source], false, 0, both),
            (vec![RuleAttribute::FwMark(1)], false, 0, none),
            (vec![RuleAttribute::IpProtocol(17.into())], false, 0, none),
        ] {
            let mut message = RuleMessage::default();
            message.header.family = AddressFamily::Inet6;
            message.header.action = RuleAction::ToTable;
            message.header.dst_len = length;
            if inverted {
                message.header.flags = RuleFlags::Invert;
            }
            message.attributes = attributes.clone();
            let rule = RuleInfo::from_message(&message).expect("an IPv6 rule");
            assert_eq!(rules_are_plain(&[rule]), expected, "{attributes:?}, inverted: {inverted}, {length}");
        }
        let heard = |family| {
            let (mut heard, mut message) = (Heard::default(), RuleMessage::default());
            message.header.family = family;
            heard.hear(&RouteNetlinkMessage::NewRule(message));
            heard.rules
        };
        assert!(heard(AddressFamily::Inet6) && !heard(AddressFamily::Inet));
    }
}
