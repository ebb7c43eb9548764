//! Installs and removes carnet's own IPv4 routes and rules, for the routing tables of uplinks.
//!
//! Table and destination identify a route. Routes are `onlink`: the kernel then accepts a gateway even if no
//! other route leads to it. A modem may assign an address with a prefix length of 32 and a gateway outside
//! this prefix. A network manager may remove the route to the gateway for a moment.

use std::net::{IpAddr, Ipv4Addr};

use carnet_nemo::forwarding::desired::{Ipv4Route, Ipv4Rule};
use ipnet::Ipv4Net;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::ipv4_state::table_of;
use super::own_routes::{OwnRoute, set_own_route};
use super::{NetlinkRequests, ignore_errors};
use crate::ROUTE_PROTOCOL;
use crate::error::Result;

/// An IPv4 route in the kernel, with the fields that carnet uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ipv4RouteInfo {
    pub(crate) table: u32,
    pub(crate) destination: Ipv4Net,
    /// Origin of the route (`proto` in `ip route`).
    pub(crate) protocol: u8,
    pub(crate) index: Option<u32>,
    pub(crate) gateway: Option<Ipv4Addr>,
}

impl Ipv4RouteInfo {
    fn from_message(message: &RouteMessage) -> Option<Ipv4RouteInfo> {
        let header = &message.header;
        if header.address_family != AddressFamily::Inet {
            return None;
        }
        let (mut destination, mut index, mut gateway) = (Ipv4Addr::UNSPECIFIED, None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(address)) => destination = *address,
                RouteAttribute::Oif(number) => index = Some(*number),
                RouteAttribute::Gateway(RouteAddress::Inet(address)) => gateway = Some(*address),
                _ => {}
            }
        }
        Some(Ipv4RouteInfo {
            table: table_of(message),
            destination: Ipv4Net::new(destination, header.destination_prefix_length).ok()?,
            protocol: header.protocol.into(),
            index,
            gateway,
        })
    }
}

/// Returns the rule in an IPv4 rule message; `None` if the rule does not have the form of carnet's own rules.
fn parse_ipv4_rule(message: &RuleMessage) -> Option<Ipv4Rule> {
    let header = &message.header;
    let mut rule = Ipv4Rule {
        priority: 0,
        from: Ipv4Addr::UNSPECIFIED,
        output_interface: String::new(),
        table: header.table.into(),
        without_default: false,
    };
    let mut protocol = 0;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(number) => rule.priority = *number,
            RuleAttribute::Table(number) => rule.table = *number,
            RuleAttribute::Oifname(name) => rule.output_interface.clone_from(name),
            RuleAttribute::Source(IpAddr::V4(address)) => rule.from = *address,
            RuleAttribute::SuppressPrefixLen(length) => rule.without_default = *length == 0,
            RuleAttribute::Protocol(number) => protocol = u8::from(*number),
            _ => {}
        }
    }
    let is_own = header.family == AddressFamily::Inet && protocol == ROUTE_PROTOCOL;
    is_own.then_some(rule)
}

fn route_message(table: u32, destination: Ipv4Net) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = destination.prefix_len();
    message.header.table = u8::try_from(table).unwrap_or(0);
    message.header.protocol = RouteProtocol::from(ROUTE_PROTOCOL);
    message.attributes = vec![
        RouteAttribute::Table(table),
        RouteAttribute::Destination(RouteAddress::Inet(destination.network())),
    ];
    message
}

fn ipv4_rule_message(rule: &Ipv4Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.action = RuleAction::ToTable;
    message.header.table = u8::try_from(rule.table).unwrap_or(0);
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(RouteProtocol::from(ROUTE_PROTOCOL)),
    ];
    // Rules of older carnet versions may lack some of these fields; carnet must still recognise and remove
    // them.
    if !rule.from.is_unspecified() {
        message.header.src_len = 32;
        message.attributes.push(RuleAttribute::Source(rule.from.into()));
    }
    if rule.without_default {
        message.attributes.push(RuleAttribute::SuppressPrefixLen(0));
    }
    if !rule.output_interface.is_empty() {
        message.attributes.push(RuleAttribute::Oifname(rule.output_interface.clone()));
    }
    message
}

fn describe_route(route: &Ipv4Route) -> String {
    let Ipv4Route { table, destination, interface, gateway } = route;
    let via = gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
    format!("route {destination}{via} dev {interface} to table {table}")
}

fn describe_rule(rule: &Ipv4Rule) -> String {
    let Ipv4Rule { priority, from, output_interface, table, without_default } = rule;
    let suppressed = if *without_default { " suppress_prefixlength 0" } else { "" };
    format!("rule pref {priority} from {from} oif {output_interface} lookup {table}{suppressed}")
}

/// A route that carnet installs, and the index of its interface.
struct NewIpv4Route<'a> {
    route: &'a Ipv4Route,
    index: u32,
}

impl OwnRoute for NewIpv4Route<'_> {
    fn table(&self) -> u32 {
        self.route.table
    }

    fn message(&self) -> RouteMessage {
        let NewIpv4Route { route, index } = *self;
        let mut message = route_message(route.table, route.destination);
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Oif(index));
        match route.gateway {
            Some(gateway) => {
                message.header.scope = RouteScope::Universe;
                message.header.flags = RouteFlags::Onlink;
                message.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(gateway)));
            }
            None => message.header.scope = RouteScope::Link,
        }
        message
    }

    fn describe(&self) -> String {
        describe_route(self.route)
    }

    fn route_protocols(&self, requests: &mut NetlinkRequests) -> Result<Vec<u8>> {
        let known = requests.ipv4_table_requests().list_ipv4_routes(Some(self.route.table), None)?;
        let has_key = |it: &Ipv4RouteInfo| it.destination == self.route.destination;
        Ok(known.into_iter().filter(has_key).map(|it| it.protocol).collect())
    }
}

/// Requests about carnet's own IPv4 routes and rules.
pub(crate) struct Ipv4TableRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl Ipv4TableRequests<'_> {
    /// Returns the IPv4 routes of a table that have this routing protocol number. `None` means any table, or
    /// any number.
    pub(crate) fn list_ipv4_routes(
        &mut self,
        table: Option<u32>,
        protocol: Option<u8>,
    ) -> Result<Vec<Ipv4RouteInfo>> {
        let mut question = RouteMessage::default();
        question.header.address_family = AddressFamily::Inet;
        question.header.protocol = protocol.unwrap_or(0).into();
        question.attributes.extend(table.map(RouteAttribute::Table));
        let answers = self.0.dump_routes(question, || "list the IPv4 routes".to_owned())?;
        let routes = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => Ipv4RouteInfo::from_message(message),
            _ => None,
        });
        let wanted = |route: &Ipv4RouteInfo| {
            table.is_none_or(|it| it == route.table) && protocol.is_none_or(|it| it == route.protocol)
        };
        Ok(routes.filter(wanted).collect())
    }

    /// Installs a route over the interface with this index. `replace` says that carnet itself has installed a
    /// route with this key. Otherwise only a route of an earlier run may be replaced, and the function fails
    /// if another program has such a route.
    pub(crate) fn set_route(&mut self, route: &Ipv4Route, index: u32, replace: bool) -> Result<()> {
        set_own_route(self.0, &NewIpv4Route { route, index }, replace)
    }

    /// Removes carnet's IPv4 route with this key. A missing route is no error.
    pub(crate) fn delete_route(&mut self, table: u32, destination: Ipv4Net) -> Result<()> {
        let mut message = route_message(table, destination);
        message.header.scope = RouteScope::NoWhere;
        let result = self.0.request_change(RouteNetlinkMessage::DelRoute(message), 0, || {
            format!("remove route {destination} from table {table}")
        });
        ignore_errors(result, &[libc::ESRCH, libc::ENOENT, libc::ENODEV])
    }

    /// Returns the IPv4 rules with carnet's mark.
    pub(crate) fn list_own_rules(&mut self) -> Result<Vec<Ipv4Rule>> {
        let mut question = RuleMessage::default();
        question.header.family = AddressFamily::Inet;
        let answers = self
            .0
            .dump_objects(RouteNetlinkMessage::GetRule(question), || "list the IPv4 rules".to_owned())?;
        let rules = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRule(message) => parse_ipv4_rule(message),
            _ => None,
        });
        Ok(rules.collect())
    }

    /// Adds a rule. An existing rule is no error.
    pub(crate) fn add_rule(&mut self, rule: &Ipv4Rule) -> Result<()> {
        let message = RouteNetlinkMessage::NewRule(ipv4_rule_message(rule));
        let result = self
            .0
            .request_change(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add {}", describe_rule(rule)));
        ignore_errors(result, &[libc::EEXIST])
    }

    /// Removes an IPv4 rule of carnet. A missing rule is no error.
    pub(crate) fn delete_rule(&mut self, rule: &Ipv4Rule) -> Result<()> {
        let message = RouteNetlinkMessage::DelRule(ipv4_rule_message(rule));
        let result = self.0.request_change(message, 0, || format!("remove {}", describe_rule(rule)));
        ignore_errors(result, &[libc::ENOENT, libc::ESRCH])
    }
}
