//! Finds the routing tables that the kernel looks up for packets that this machine itself sends. Each lookup
//! applies to certain source addresses.
//!
//! The tables are in the order of the rules that lead to them. The result holds for packets without a mark,
//! with any destination and protocol. Left out: carnet's own rules, which lead to its own tables. Left out
//! too: rules that match a mark, ports, users or a destination, rules that suppress default routes, and
//! `goto`.

use ipnet::IpNet;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::NetlinkRequests;
use crate::ROUTE_PROTOCOL;
use crate::error::Result;

/// A lookup of a routing table by a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableLookup {
    pub(crate) table: u32,
    /// Source prefix for which the kernel uses this lookup; `None` for any source.
    pub(crate) source: Option<IpNet>,
    /// Outgoing interface for which the kernel uses this lookup; `None` for any interface.
    pub(crate) interface: Option<String>,
}

impl TableLookup {
    fn main_table_lookup() -> TableLookup {
        TableLookup { table: u32::from(libc::RT_TABLE_MAIN), source: None, interface: None }
    }
}

/// Returns the priority of a rule and the table lookup that it causes; `None` if the rule does not matter for
/// default routes.
fn lookup_of_rule(message: &RuleMessage) -> Option<(u32, TableLookup)> {
    let header = &message.header;
    if header.action != RuleAction::ToTable || header.tos != 0 {
        return None;
    }
    let mut found = TableLookup { table: header.table.into(), ..TableLookup::main_table_lookup() };
    let (mut priority, mut marked) = (0, false);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Table(number) => found.table = *number,
            RuleAttribute::Protocol(protocol) if u8::from(*protocol) == ROUTE_PROTOCOL => return None,
            RuleAttribute::Source(address) => found.source = IpNet::new(*address, header.src_len).ok(),
            RuleAttribute::Oifname(name) => found.interface = Some(name.clone()),
            RuleAttribute::Iifname(name) if name == "lo" => {}
            RuleAttribute::FwMark(mark) => marked = *mark != 0,
            RuleAttribute::Protocol(_)
            | RuleAttribute::FwMask(_)
            | RuleAttribute::SuppressPrefixLen(u32::MAX)
            | RuleAttribute::SuppressIfGroup(u32::MAX)
            | RuleAttribute::L3MDev(false) => {}
            RuleAttribute::Other(_) => {}
            _ => return None,
        }
    }
    // A rule with "not fwmark" matches packets that do not have this mark.
    let inverted = header.flags.contains(RuleFlags::Invert);
    let plain = found.source.is_none() && found.interface.is_none();
    let holds = if inverted { marked && plain } else { !marked };
    (holds && found.table != u32::from(libc::RT_TABLE_LOCAL)).then_some((priority, found))
}

/// Returns the table lookups of these rules in their order. Without rules, the kernel looks up the main
/// table.
fn lookups_of_rules<'a>(rules: impl Iterator<Item = &'a RuleMessage>) -> Vec<TableLookup> {
    let mut found: Vec<(u32, TableLookup)> = rules.filter_map(lookup_of_rule).collect();
    found.sort_by_key(|(priority, _)| *priority);
    let mut found: Vec<TableLookup> = found.into_iter().map(|(_, lookup)| lookup).collect();
    if found.is_empty() {
        found.push(TableLookup::main_table_lookup());
    }
    found
}

/// Returns the table lookups for packets that this machine itself sends, in the kernel's order.
pub(crate) fn table_lookups(requests: &mut NetlinkRequests, ipv4: bool) -> Result<Vec<TableLookup>> {
    let mut question = RuleMessage::default();
    question.header.family = if ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let family = question.header.family;
    let answers =
        requests.dump_objects(RouteNetlinkMessage::GetRule(question), || "list the rules".to_owned())?;
    Ok(lookups_of_rules(answers.iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRule(message) if message.header.family == family => Some(message),
        _ => None,
    })))
}

/// Returns the intersection of two prefixes, which is the longer one. `None` as a prefix stands for all
/// addresses. Fails if no address is in both prefixes.
pub(crate) fn prefix_intersection(
    one: Option<IpNet>,
    other: Option<IpNet>,
) -> std::result::Result<Option<IpNet>, ()> {
    match (one, other) {
        (Some(one), Some(other)) if other.contains(&one) => Ok(Some(one)),
        (Some(one), Some(other)) if one.contains(&other) => Ok(Some(other)),
        (Some(_), Some(_)) => Err(()),
        (one, other) => Ok(one.or(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn rule(priority: u32, table: u32, invert: bool, attributes: &[RuleAttribute]) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.action = RuleAction::ToTable;
        message.header.src_len = 64;
        if invert {
            message.header.flags = RuleFlags::Invert;
        }
        message.attributes = vec![RuleAttribute::Priority(priority), RuleAttribute::Table(table)];
        message.attributes.extend_from_slice(attributes);
        message
    }

    #[test]
    fn routing_tables_are_searched_in_rule_order() {
        let from: Ipv6Addr = "2001:db8:1::".parse().expect("an address");
        let prefix: IpNet = "2001:db8:1::/64".parse().expect("a prefix");
        let rules = [
            rule(32766, 254, false, &[]),
            rule(0, 255, false, &[]),
            rule(100, 7, false, &[RuleAttribute::Source(from.into())]),
            rule(101, 8, false, &[RuleAttribute::Oifname("wwan0".into())]),
            rule(102, 9, true, &[RuleAttribute::FwMark(1)]),
            rule(103, 10, false, &[RuleAttribute::FwMark(1)]),
            rule(104, 254, false, &[RuleAttribute::SuppressPrefixLen(0)]),
            rule(105, 11, false, &[RuleAttribute::Iifname("lan0".into())]),
            rule(106, 12, false, &[RuleAttribute::Protocol(ROUTE_PROTOCOL.into())]),
            rule(107, 13, true, &[RuleAttribute::Source(from.into())]),
        ];
        let found = lookups_of_rules(rules.iter());
        let expected =
            [(7, Some(prefix), None), (8, None, Some("wwan0")), (9, None, None), (254, None, None)];
        let expected = expected.map(|(table, source, interface)| TableLookup {
            table,
            source,
            interface: interface.map(str::to_owned),
        });
        assert_eq!(found, expected);
        assert_eq!(lookups_of_rules([].iter()), [TableLookup::main_table_lookup()]);
    }

    #[test]
    fn prefix_overlap_is_recognised() {
        let prefix = |text: &str| -> Option<IpNet> { text.parse().ok() };
        let (wide, narrow, other) =
            (prefix("2001:db8::/32"), prefix("2001:db8:1::/64"), prefix("fe80::/126"));
        assert_eq!(prefix_intersection(wide, narrow), Ok(narrow));
        assert_eq!(prefix_intersection(narrow, wide), Ok(narrow));
        assert_eq!(prefix_intersection(narrow, other), Err(()));
        assert_eq!(prefix_intersection(None, other), Ok(other));
        assert_eq!(prefix_intersection(None, None), Ok(None));
    }
}
