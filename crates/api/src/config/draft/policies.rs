//! `[[mobile_router.policy]]` as it stands in the file.

use std::ops::RangeInclusive;

use ipnet::Ipv6Net;

use super::super::reader::{At, Table, Value};
use super::super::{Policy, PolicyAction, PolicyProtocol, schema, values};
use super::List;

/// What is expected of `ports`.
const PORTS: &str = "an array of ports such as 5000 or \"5000-5010\"";

/// A policy.
pub(in super::super) struct PolicyDraft {
    pub name: Option<At<String>>,
    pub dscp: Option<Vec<u8>>,
    protocol: Option<Option<PolicyProtocol>>,
    pub ports: Option<Vec<RangeInclusive<u16>>>,
    pub prefixes: List<Ipv6Net>,
    action: Option<PolicyAction>,
    pub uplinks: List<String>,
    /// Where the table begins.
    pub at: usize,
}

impl PolicyDraft {
    pub(super) fn read(table: &Table<'_>) -> PolicyDraft {
        let protocols =
            [("tcp", PolicyProtocol::Tcp), ("udp", PolicyProtocol::Udp), ("icmpv6", PolicyProtocol::Icmpv6)];
        let actions = [
            ("failover", PolicyAction::Failover),
            ("balance", PolicyAction::Balance),
            ("duplicate", PolicyAction::Duplicate),
        ];
        let name = table.need("name", values::NAME);
        let uplinks = table.need("uplinks", "an array of interfaces");
        let action = table.need("action", "\"failover\", \"balance\" or \"duplicate\"");
        PolicyDraft {
            name: name.and_then(|value| value.parse(values::NAME, values::name)),
            dscp: integers(table.get("dscp"), "an array of integers from 0 to 63", |value| {
                value.integer(0, 63).and_then(|dscp| u8::try_from(dscp.value).ok())
            }),
            protocol: match table.get("protocol") {
                Some(value) => value.word(&protocols, &[]).map(|protocol| Some(protocol.value)),
                None => Some(None),
            },
            ports: integers(table.get("ports"), PORTS, port),
            prefixes: List::read(
                table.get("prefixes"),
                "an array of prefixes",
                values::PREFIX,
                values::prefix,
            ),
            action: action.and_then(|value| value.word(&actions, &[])).map(|action| action.value),
            uplinks: List::read(uplinks, "an array of interfaces", values::INTERFACE, values::interface),
            at: table.at(),
        }
    }

    pub(super) fn finish(self) -> Option<Policy> {
        Some(Policy {
            name: self.name?.value,
            dscp: self.dscp?,
            protocol: self.protocol?,
            ports: self.ports?,
            prefixes: self.prefixes.finish()?,
            action: self.action?,
            uplinks: self.uplinks.finish()?,
        })
    }
}

/// The tables, if they are all in order.
pub(super) fn policies(
    value: Option<Value<'_>>,
    section: &'static schema::Section,
) -> Option<Vec<PolicyDraft>> {
    match value {
        Some(value) => Some(value.tables(section)?.iter().map(PolicyDraft::read).collect()),
        None => Some(Vec::new()),
    }
}

/// An array whose elements `read` understands; an absent one is empty.
fn integers<T>(
    value: Option<Value<'_>>,
    expected: &str,
    read: impl Fn(&Value<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let Some(value) = value else { return Some(Vec::new()) };
    let items = value.array(expected)?;
    // Every wrong one is told, not the first alone.
    let read: Vec<Option<T>> = items.iter().map(read).collect();
    read.into_iter().collect()
}

/// A port, or a range of them.
fn port(value: &Value<'_>) -> Option<RangeInclusive<u16>> {
    if value.as_str().is_none() {
        let port = value.integer(1, 65_535).and_then(|port| u16::try_from(port.value).ok())?;
        return Some(port..=port);
    }
    let range = value.parse("a port or a range of ports such as \"5000-5010\"", |text| {
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
        match text.split_once('-').map(|(first, last)| (number(first), number(last))) {
            Some((Some(first), Some(last))) if first <= last => Ok(first..=last),
            _ => Err(format!("{text:?} is no range of ports, expected one such as \"5000-5010\"")),
        }
    });
    range.map(|range| range.value)
}
