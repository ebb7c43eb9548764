//! Reads, adds and removes IPv6 policy routing rules, and the IPv4 rules of mobile networks. A rule with a
//! prefix in IPv4-mapped form ([`carnet_base::mapped`]) is an IPv4 rule; [`ALL_IPV4_PREFIX`] stands
//! for any address.

use std::net::{IpAddr, Ipv4Addr};

use carnet_base::mapped::{self, ALL_IPV4_PREFIX};
use carnet_nemo::forwarding::desired::{PortMatch, Rule};
use carnet_nemo::forwarding::packet_rules::Mark;
use ipnet::Ipv6Net;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{NetlinkRequests, ignore_errors};
use crate::error::Result;

/// Action of a routing rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum KernelRuleAction {
    /// The kernel looks up the rule's table.
    #[default]
    Lookup,
    /// The kernel skips all rules before the first rule of this priority, which must be higher than the
    /// rule's own. If no rule has this priority, the kernel goes on with the next rule.
    Goto(u32),
    /// The kernel goes on with the next rule. Such a rule is the target of a `goto`.
    Nothing,
    /// The kernel drops the packet silently.
    Discard,
    /// An action that carnet never uses.
    Other,
}

/// An IPv6 rule in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleInfo {
    /// The part of the rule that carnet's own rules can have.
    pub(crate) rule: Rule,
    /// Action of this rule.
    pub(crate) rule_action: KernelRuleAction,
    /// Routing protocol number of the rule (`proto` in `ip rule`).
    pub(crate) protocol: u8,
    /// Whether the rule looks up a table and [`RuleInfo::rule`] has all of its fields.
    pub(crate) is_table_lookup: bool,
    /// Whether [`RuleInfo::rule`] surely has the whole rule: the kernel sent no unknown attribute, and the
    /// rule is not inverted.
    pub(crate) is_complete: bool,
}

impl RuleInfo {
    pub(super) fn from_message(message: &RuleMessage) -> Option<RuleInfo> {
        let header = &message.header;
        let is_ipv4 = header.family == AddressFamily::Inet;
        if !is_ipv4 && header.family != AddressFamily::Inet6 {
            return None;
        }
        let ipv4_prefix = |address: Ipv4Addr, length: u8| {
            Ipv6Net::new(address.to_ipv6_mapped(), length.checked_add(ALL_IPV4_PREFIX.prefix_len())?).ok()
        };
        let mut rule = Rule { table: u32::from(header.table), ..Rule::default() };
        let (mut mark, mut mask) = (None, None);
        let (mut protocol, mut plain) = (0, header.action == RuleAction::ToTable && header.tos == 0);
        let mut known = !header.flags.contains(RuleFlags::Invert);
        let mut action = match header.action {
            RuleAction::ToTable => KernelRuleAction::Lookup,
            RuleAction::Nop => KernelRuleAction::Nothing,
            RuleAction::Blackhole => KernelRuleAction::Discard,
            _ => KernelRuleAction::Other,
        };
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(number) => rule.priority = *number,
                RuleAttribute::Table(number) => rule.table = *number,
                RuleAttribute::Iifname(name) => rule.input_interface = Some(name.clone()),
                RuleAttribute::Source(IpAddr::V6(a)) => rule.from = Ipv6Net::new(*a, header.src_len).ok(),
                RuleAttribute::Destination(IpAddr::V6(a)) => rule.to = Ipv6Net::new(*a, header.dst_len).ok(),
                RuleAttribute::Source(IpAddr::V4(a)) => rule.from = ipv4_prefix(*a, header.src_len),
                RuleAttribute::Destination(IpAddr::V4(a)) => rule.to = ipv4_prefix(*a, header.dst_len),
                RuleAttribute::IpProtocol(number) => rule.protocol = Some(u8::from(*number)),
                RuleAttribute::SourcePortRange(it) => rule.ports = Some(PortMatch::Source(it.start, it.end)),
                RuleAttribute::DestinationPortRange(it) => {
                    plain &= rule.ports.is_none();
                    rule.ports = Some(PortMatch::Destination(it.start, it.end));
                }
                RuleAttribute::Protocol(number) => protocol = u8::from(*number),
                RuleAttribute::FwMark(value) => mark = Some(*value),
                RuleAttribute::FwMask(value) => mask = Some(*value),
                RuleAttribute::SuppressPrefixLen(0) => rule.without_default = true,
                RuleAttribute::Goto(priority) => action = KernelRuleAction::Goto(*priority),
                // The kernel always sends these attributes. `u32::MAX` or `false` means that the rule does
                // not use the attribute.
                RuleAttribute::SuppressPrefixLen(u32::MAX)
                | RuleAttribute::SuppressIfGroup(u32::MAX)
                | RuleAttribute::L3MDev(false) => {}
                RuleAttribute::Other(_) => known = false,
                _ => plain = false,
            }
        }
        // A mark without a mask is compared in all its bits.
        let mask = mask.or(mark.map(|_| u32::MAX)).filter(|mask| *mask != 0);
        rule.mark = mask.map(|mask| Mark { mask, value: mark.unwrap_or_default() });
        if is_ipv4 && rule.from.is_none() && rule.to.is_none() {
            rule.from = Some(ALL_IPV4_PREFIX);
        }
        Some(RuleInfo {
            rule,
            rule_action: action,
            protocol,
            is_table_lookup: plain,
            is_complete: plain && known,
        })
    }
}

/// Returns whether a rule is one of IPv4.
pub(crate) fn is_ipv4(rule: &Rule) -> bool {
    [rule.from, rule.to].into_iter().flatten().any(|prefix| mapped::to_ipv4(prefix).is_some())
}

fn rule_message(rule: &Rule, action: KernelRuleAction, protocol: u8) -> RuleMessage {
    let mut message = RuleMessage::default();
    let is_ipv4 = is_ipv4(rule);
    message.header.family = if is_ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.action = match action {
        // In a request to delete a rule, an unspecified action matches any action.
        KernelRuleAction::Other => RuleAction::Unspec,
        KernelRuleAction::Lookup => RuleAction::ToTable,
        KernelRuleAction::Goto(_) => RuleAction::Goto,
        KernelRuleAction::Nothing => RuleAction::Nop,
        KernelRuleAction::Discard => RuleAction::Blackhole,
    };
    message.header.table = u8::try_from(rule.table).unwrap_or(0);
    let front = if is_ipv4 { ALL_IPV4_PREFIX.prefix_len() } else { 0 };
    let length = |prefix: Option<Ipv6Net>| prefix.map_or(0, |it| it.prefix_len().saturating_sub(front));
    message.header.src_len = length(rule.from);
    message.header.dst_len = length(rule.to);
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.priority));
    attributes.extend((rule.table != 0).then_some(RuleAttribute::Table(rule.table)));
    if let KernelRuleAction::Goto(priority) = action {
        attributes.push(RuleAttribute::Goto(priority));
    }
    attributes.push(RuleAttribute::Protocol(RouteProtocol::from(protocol)));
    attributes.extend(rule.input_interface.clone().map(RuleAttribute::Iifname));
    let from = rule.from.filter(|prefix| *prefix != ALL_IPV4_PREFIX);
    attributes.extend(from.map(|p| RuleAttribute::Source(p.addr().to_canonical())));
    attributes.extend(rule.to.map(|p| RuleAttribute::Destination(p.addr().to_canonical())));
    attributes.extend(rule.protocol.map(|p| RuleAttribute::IpProtocol(i32::from(p).into())));
    attributes.extend(rule.ports.map(|ports| match ports {
        PortMatch::Source(start, end) => RuleAttribute::SourcePortRange(RulePortRange { start, end }),
        PortMatch::Destination(start, end) => {
            RuleAttribute::DestinationPortRange(RulePortRange { start, end })
        }
    }));
    if let Some(Mark { mask, value }) = rule.mark {
        // Without `FRA_FWMARK` the kernel compares the masked mark with 0, so leave out the attribute for a
        // mark of 0.
        attributes.extend((value != 0).then_some(RuleAttribute::FwMark(value)));
        attributes.push(RuleAttribute::FwMask(mask));
    }
    attributes.extend(rule.without_default.then_some(RuleAttribute::SuppressPrefixLen(0)));
    message
}

/// Returns the rule in the notation of `ip rule`.
fn describe_rule(rule: &Rule, action: KernelRuleAction) -> String {
    let mut text = format!("rule pref {}", rule.priority);
    let range = |ports, is_source| match ports {
        Some(PortMatch::Source(first, last)) if is_source => Some(format!("{first}-{last}")),
        Some(PortMatch::Destination(first, last)) if !is_source => Some(format!("{first}-{last}")),
        _ => None,
    };
    for (word, value) in [
        ("iif", rule.input_interface.clone()),
        ("from", rule.from.map(mapped::format_prefix)),
        ("to", rule.to.map(mapped::format_prefix)),
        ("ipproto", rule.protocol.map(|p| p.to_string())),
        ("sport", range(rule.ports, true)),
        ("dport", range(rule.ports, false)),
        ("fwmark", rule.mark.map(|Mark { mask, value }| format!("{value:#x}/{mask:#x}"))),
    ] {
        if let Some(value) = value {
            text.push_str(&format!(" {word} {value}"));
        }
    }
    text + &match action {
        KernelRuleAction::Lookup if rule.without_default => {
            format!(" lookup {} suppress_prefixlength 0", rule.table)
        }
        KernelRuleAction::Lookup => format!(" lookup {}", rule.table),
        KernelRuleAction::Goto(priority) => format!(" goto {priority}"),
        KernelRuleAction::Nothing => " nop".to_owned(),
        KernelRuleAction::Discard => " blackhole".to_owned(),
        KernelRuleAction::Other => String::new(),
    }
}

/// Requests about IPv6 policy routing rules.
pub(crate) struct RuleRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl RuleRequests<'_> {
    /// Returns all IPv6 rules, in the kernel's order of lookup.
    pub(crate) fn list_rules(&mut self) -> Result<Vec<RuleInfo>> {
        self.list_rules_of_family(AddressFamily::Inet6)
    }

    /// Returns all IPv4 rules, with their prefixes in IPv4-mapped form.
    pub(crate) fn list_ipv4_rules(&mut self) -> Result<Vec<RuleInfo>> {
        self.list_rules_of_family(AddressFamily::Inet)
    }

    fn list_rules_of_family(&mut self, family: AddressFamily) -> Result<Vec<RuleInfo>> {
        let mut question = RuleMessage::default();
        question.header.family = family;
        let answers =
            self.0.dump_objects(RouteNetlinkMessage::GetRule(question), || "list the rules".to_owned())?;
        let rules = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRule(message) if message.header.family == family => {
                RuleInfo::from_message(message)
            }
            _ => None,
        });
        Ok(rules.collect())
    }

    /// Adds a rule of origin `protocol`. An existing rule is no error.
    pub(crate) fn add_rule(&mut self, rule: &Rule, protocol: u8) -> Result<()> {
        self.add_rule_with_action(rule, KernelRuleAction::Lookup, protocol)
    }

    /// Adds a rule with any action, like [`Self::add_rule`]. The table is 0 if the action does not look up a
    /// table.
    pub(crate) fn add_rule_with_action(
        &mut self,
        rule: &Rule,
        action: KernelRuleAction,
        protocol: u8,
    ) -> Result<()> {
        let message = rule_message(rule, action, protocol);
        let result =
            self.0.request_change(RouteNetlinkMessage::NewRule(message), NLM_F_CREATE | NLM_F_EXCL, || {
                format!("add {}", describe_rule(rule, action))
            });
        ignore_errors(result, &[libc::EEXIST])
    }

    /// Removes a rule of origin `protocol`. A missing rule is no error.
    pub(crate) fn delete_rule(&mut self, rule: &Rule, protocol: u8) -> Result<()> {
        self.delete_rule_with_action(rule, KernelRuleAction::Lookup, protocol)
    }

    /// Removes a rule with any action, as [`Self::delete_rule`] does.
    pub(crate) fn delete_rule_with_action(
        &mut self,
        rule: &Rule,
        action: KernelRuleAction,
        protocol: u8,
    ) -> Result<()> {
        let message = rule_message(rule, action, protocol);
        let result = self.0.request_change(RouteNetlinkMessage::DelRule(message), 0, || {
            format!("remove {}", describe_rule(rule, action))
        });
        ignore_errors(result, &[libc::ENOENT, libc::ESRCH])
    }
}
