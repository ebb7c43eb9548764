//! Finds out which packet fields the kernel's IPv6 routing uses besides the incoming interface and the
//! destination.
//!
//! A fast path may cache the next hop of a whole network only if the kernel routes all packets to this
//! network alike. This module learns that from the kernel's events, because reading a very long routing table
//! at each change would take too long. The module reads the whole table only at the start, and when a route
//! or rule that prevents caching may have vanished.

use std::collections::BTreeSet;

use carnet_nemo::forwarding::desired::TUNNEL_DEVICE;
use ipnet::Ipv6Net;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage};
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{NetlinkRequests, RuleInfo};
use crate::error::Result;

/// Largest number of upper address halves (64 bits) in the map `CROWDED` of `bpf/ways.h`.
pub(crate) const MAX_UPPER_HALVES_OF_LONG_PREFIXES: usize = 65536;

/// Packet fields on which the kernel's routes and rules depend, by the events so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RoutingFields {
    /// Upper halves (64 bits) of the destinations of routes with prefixes longer than 64 bits.
    pub(crate) upper_halves_of_long_prefixes: BTreeSet<u64>,
    /// Whether more than [`MAX_UPPER_HALVES_OF_LONG_PREFIXES`] halves exist.
    pub(crate) has_too_many_prefixes: bool,
    /// Whether a route depends on the source, or has several next hops.
    pub(crate) has_source_or_multipath_route: bool,
    /// Whether the kernel has removed a route that depends on the source or has several next hops. It may
    /// have been the last such route, so carnet reads all routes.
    pub(crate) removed_source_or_multipath_route: bool,
    /// Whether any rules have changed.
    pub(crate) rules_changed: bool,
    /// Whether carnet may have missed events.
    pub(crate) may_have_missed_events: bool,
}

impl RoutingFields {
    /// Reads all routes and returns the packet fields that they use.
    pub(crate) fn read_from_all_routes(requests: &mut NetlinkRequests) -> Result<RoutingFields> {
        let mut question = RouteMessage::default();
        question.header.address_family = AddressFamily::Inet6;
        let answers = requests
            .dump_objects(RouteNetlinkMessage::GetRoute(question), || "list the IPv6 routes".to_owned())?;
        let mut heard = RoutingFields::default();
        answers.iter().for_each(|answer| heard.note_message(answer));
        Ok(heard)
    }

    /// Notes the packet fields of a route or rule, from an event or an answer of the kernel.
    pub(super) fn note_message(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewRoute(route) => self.note_route(route, false),
            RouteNetlinkMessage::DelRoute(route) => self.note_route(route, true),
            RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule) => self.note_rule(rule),
            _ => {}
        }
    }

    fn note_rule(&mut self, rule: &RuleMessage) {
        self.rules_changed |= rule.header.family == AddressFamily::Inet6;
    }

    fn note_route(&mut self, route: &RouteMessage, gone: bool) {
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
            self.note_long_prefix(network);
        }
        let forked = header.source_prefix_length > 0
            || route
                .attributes
                .iter()
                .any(|attribute| matches!(attribute, RouteAttribute::MultiPath(_) | RouteAttribute::NhId(_)));
        self.has_source_or_multipath_route |= forked && !gone;
        self.removed_source_or_multipath_route |= gone && forked;
        // The kernel may have removed one of a route's two next hops. The route then no longer is a multipath
        // route.
        self.removed_source_or_multipath_route |= gone && !forked;
    }

    /// Adds upper halves of addresses that another [`RoutingFields`] has collected. `full` says that there
    /// were too many halves, so some are missing.
    pub(crate) fn add_long_prefix_halves(&mut self, crowded: BTreeSet<u64>, full: bool) {
        self.has_too_many_prefixes |= full;
        crowded.into_iter().for_each(|half| self.note_long_prefix_half(half));
    }

    /// Notes the upper half of a network's address, if a route to the network exists or existed and is longer
    /// than 64 bits.
    pub(crate) fn note_long_prefix(&mut self, network: Ipv6Net) {
        if network.prefix_len() > 64 {
            self.note_long_prefix_half((u128::from(network.network()) >> 64) as u64);
        }
    }

    fn note_long_prefix_half(&mut self, half: u64) {
        if self.upper_halves_of_long_prefixes.len() < MAX_UPPER_HALVES_OF_LONG_PREFIXES {
            self.upper_halves_of_long_prefixes.insert(half);
        } else {
            self.has_too_many_prefixes |= !self.upper_halves_of_long_prefixes.contains(&half);
        }
    }
}

/// Returns whether the rules depend only on interface and destination. The first value is for packets that
/// arrive at an interface, the second for packets out of the TUN device.
pub(crate) fn use_only_interface_and_destination(rules: &[RuleInfo]) -> (bool, bool) {
    let (mut arriving, mut leaving) = (true, true);
    for RuleInfo { rule, is_complete: bare, .. } in rules {
        let plain = *bare
            && rule.from.is_none()
            && rule.protocol.is_none()
            && rule.ports.is_none()
            && rule.mark.is_none()
            && !rule.without_default
            && rule.to.is_none_or(|network| network.prefix_len() <= 64);
        if plain {
            continue;
        }
        match rule.input_interface.as_deref() {
            Some(TUNNEL_DEVICE) => leaving = false,
            // The rule matches only packets of this machine itself, which do not matter here.
            Some("lo") => {}
            Some(_) => arriving = false,
            None => (arriving, leaving) = (false, false),
        }
    }
    (arriving, leaving)
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
    fn long_route_adds_upper_half_of_its_network() {
        let mut heard = RoutingFields::default();
        for destination in ["2001:db8:1:2::3/128", "2001:db8:1:2::/65", "2001:db8::/64", "::/0"] {
            heard.note_message(&RouteNetlinkMessage::NewRoute(route(destination, &[])));
        }
        assert_eq!(
            heard,
            RoutingFields {
                upper_halves_of_long_prefixes: [0x2001_0db8_0001_0002].into(),
                ..RoutingFields::default()
            }
        );
        // The kernel's cached copies of routes do not count as routes.
        let mut cloned = route("2001:db8:9::1/128", &[]);
        cloned.header.flags = RouteFlags::Cloned;
        heard.note_message(&RouteNetlinkMessage::NewRoute(cloned));
        assert_eq!(heard.upper_halves_of_long_prefixes.len(), 1);
    }

    #[test]
    fn number_of_upper_halves_of_networks_is_bounded() {
        let mut heard = RoutingFields::default();
        heard.add_long_prefix_halves((0..MAX_UPPER_HALVES_OF_LONG_PREFIXES as u64 + 1).collect(), false);
        assert_eq!(
            (heard.upper_halves_of_long_prefixes.len(), heard.has_too_many_prefixes),
            (MAX_UPPER_HALVES_OF_LONG_PREFIXES, true)
        );
    }

    #[test]
    fn observer_notices_added_and_removed_multipath_routes() {
        let mut by_source = route("2001:db8::/32", &[]);
        by_source.header.source_prefix_length = 48;
        let several = route("::/0", &[RouteAttribute::MultiPath(Vec::new())]);
        let object = route("::/0", &[RouteAttribute::NhId(7)]);
        for message in [by_source, several, object] {
            let mut heard = RoutingFields::default();
            heard.note_message(&RouteNetlinkMessage::NewRoute(message.clone()));
            assert_eq!(
                (heard.has_source_or_multipath_route, heard.removed_source_or_multipath_route),
                (true, false)
            );
            heard.note_message(&RouteNetlinkMessage::DelRoute(message));
            assert_eq!(
                (heard.has_source_or_multipath_route, heard.removed_source_or_multipath_route),
                (true, true)
            );
        }
    }

    #[test]
    fn observer_notices_routing_rules_with_other_selectors() {
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
            assert_eq!(
                use_only_interface_and_destination(&[rule]),
                expected,
                "{attributes:?}, inverted: {inverted}, {length}"
            );
        }
        let heard = |family| {
            let (mut heard, mut message) = (RoutingFields::default(), RuleMessage::default());
            message.header.family = family;
            heard.note_message(&RouteNetlinkMessage::NewRule(message));
            heard.rules_changed
        };
        assert!(heard(AddressFamily::Inet6) && !heard(AddressFamily::Inet));
    }
}
