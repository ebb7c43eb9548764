//! Config table `[[mobile_router.policy]]`.

use std::ops::RangeInclusive;

use carnet_mobility::flow::FlowAction;
use ipnet::Ipv6Net;

use super::super::errors::Sink;
use super::super::keys::{
    Key, Kind, Optional, Section, integer, optional, required, value, with_default, words,
};
use super::super::kinds;
use super::super::reader::{At, List, Value};
use super::super::table::{Table, all};
use super::uplink;

/// Maximum number of flow bindings of one mobile router.
const MAX_FLOWS: usize = 32;

/// `[[mobile_router.policy]]`: packets that match every configured field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Unique name.
    pub name: String,
    /// DiffServ code points; empty for any.
    pub dscp: Vec<u8>,
    /// Protocol.
    pub protocol: Option<PolicyProtocol>,
    /// Ports at either end; empty for any.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Prefixes of the hosts at the other end; empty for any.
    pub prefixes: Vec<Ipv6Net>,
    /// Use of the uplinks.
    pub action: FlowAction,
    /// Uplinks with a `bid`, the preferred first, at least one.
    pub uplinks: Vec<String>,
}

/// `protocol` of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyProtocol {
    /// TCP, protocol 6.
    Tcp,
    /// UDP, protocol 17.
    Udp,
    /// ICMPv6, protocol 58.
    Icmpv6,
}

/// Expected value in an error message: `ports`.
const EXPECTED_PORTS: &str = "an array of ports such as 5000 or \"5000-5010\"";

const CODE_POINT: Kind<u8> = integer(0, 63);
const CODE_POINTS: Kind<List<u8>> =
    value("array of integers, 0 to 63", "an array of integers from 0 to 63", |value| {
        List::read(value, "an array of integers from 0 to 63", |item| CODE_POINT.read(item))
    });
const PORT_RANGES: Kind<List<RangeInclusive<u16>>> =
    value("array of ports", EXPECTED_PORTS, |value| List::read(value, EXPECTED_PORTS, port));

static NAME: Key<String> = required("name", kinds::NAME, "Its name; no two policies have the same.");
static DSCP: Key<List<u8>> =
    with_default("dscp", CODE_POINTS, "[]", "DiffServ code points. An empty array matches any.");
static PROTOCOL: Optional<PolicyProtocol> = optional(
    "protocol",
    words(&[("tcp", PolicyProtocol::Tcp), ("udp", PolicyProtocol::Udp), ("icmpv6", PolicyProtocol::Icmpv6)]),
    "The protocol. Without this key any matches.",
);
static PORTS: Key<List<RangeInclusive<u16>>> = with_default(
    "ports",
    PORT_RANGES,
    "[]",
    r#"Ports at either end, such as `5000` or `"5000-5010"`. An empty array matches any."#,
);
static PREFIXES: Key<List<Ipv6Net>> = with_default(
    "prefixes",
    kinds::PREFIXES,
    "[]",
    "Prefixes of the hosts at the other end. An empty array matches any.",
);
static ACTION: Key<FlowAction> = required(
    "action",
    words(&[
        ("failover", FlowAction::Failover),
        ("balance", FlowAction::Balance),
        ("duplicate", FlowAction::Duplicate),
    ]),
    r#"`"failover"`: the first live uplink of `uplinks`. `"balance"`: each conversation takes one of them, by
       a hash of its addresses and ports. The hash counts nothing, so few conversations may leave an uplink
       without any: 8 of them miss one with a share of 28 % in 7 of 100 cases. `"duplicate"`: each packet
       takes the first four live uplinks and the receiver keeps the first copy; a home agent that does not
       support this gets `"failover"`."#,
);
static UPLINKS: Key<List<String>> =
    required("uplinks", kinds::INTERFACES, "Uplinks with a `bid`, in order of preference.");

/// Keys of the config table `[[mobile_router.policy]]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[[mobile_router.policy]]",
    "mobile_router.policy",
    &[&NAME, &DSCP, &PROTOCOL, &PORTS, &PREFIXES, &ACTION, &UPLINKS],
);

/// Keys of the config table `[[mobile_node.policy]]`.
pub(in crate::config) static SECTION_OF_NODE: Section =
    Section::new("[[mobile_node.policy]]", "mobile_node.policy", SECTION.keys);

/// The parsed table, with the values that the checks compare with other tables.
pub(super) struct Draft {
    name: Option<At<String>>,
    /// Number of flow bindings that the policy needs.
    flows: usize,
    uplinks: List<String>,
    /// Position of the table in the file.
    at: usize,
    pub config: Option<Policy>,
}

impl Draft {
    pub(super) fn read(table: &Table<'_>) -> Draft {
        let name = table.take_at(&NAME);
        let uplinks = table.take(&UPLINKS).unwrap_or_default();
        let action = table.take(&ACTION);
        let dscp = table.take(&DSCP).unwrap_or_default().complete();
        let ports = table.take(&PORTS).unwrap_or_default().complete();
        let prefixes = table.take(&PREFIXES).unwrap_or_default();
        let count = |length: usize| length.max(1);
        // A port matches source or destination, so each port needs two flows.
        let flows = count(dscp.as_ref().map_or(0, Vec::len))
            .saturating_mul(count(prefixes.items.len()))
            .saturating_mul(count(ports.as_ref().map_or(0, Vec::len) * 2));
        let config = all!(Policy {
            name: name.clone().map(|name| name.value),
            dscp: dscp,
            protocol: table.take(&PROTOCOL),
            ports: ports,
            prefixes: prefixes.complete(),
            action: action,
            uplinks: uplinks.complete(),
        });
        Draft { name, flows, uplinks, at: table.at(), config }
    }
}

/// Checks all policies together: names, number of flows, and uplinks, each of which needs a `bid`.
pub(super) fn check(policies: &[Draft], uplinks: &[uplink::Draft], sink: &Sink<'_>) {
    let mut names: Vec<&At<String>> = Vec::new();
    let mut flows = 0;
    for policy in policies {
        if let Some(name) = &policy.name {
            match names.iter().find(|other| other.value == name.value) {
                Some(other) => {
                    let place = sink.place(other.at);
                    sink.push(
                        name.at,
                        format!("{:?} is the policy at {place}, expected another name", name.value),
                    );
                }
                None => names.push(name),
            }
        }
        if policy.uplinks.items.is_empty() && policy.uplinks.whole {
            sink.push(policy.at, "the policy has no uplink, expected at least one in `uplinks`".to_owned());
        }
        for interface in &policy.uplinks.items {
            let uplink = uplinks
                .iter()
                .find(|uplink| uplink.interface.as_ref().is_some_and(|name| name.value == interface.value));
            if uplink.is_none_or(|uplink| matches!(uplink.bid, Some(None))) {
                let message = format!("{:?} is no uplink with a `bid`, expected one", interface.value);
                sink.push(interface.at, message);
            }
        }
        flows += policy.flows;
        if flows > MAX_FLOWS && flows - policy.flows <= MAX_FLOWS {
            let message = format!(
                "the policies make more than {MAX_FLOWS} flow bindings, expected fewer code points, prefixes \
                 or ports"
            );
            sink.push(policy.at, message);
        }
    }
}

/// Reads a port, or a range of ports.
fn port(value: &Value<'_>) -> Option<RangeInclusive<u16>> {
    if value.as_str().is_none() {
        let port = value.integer(1, 65_535).and_then(|port| u16::try_from(port).ok())?;
        return Some(port..=port);
    }
    value.parse("a port or a range of ports such as \"5000-5010\"", |text| {
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
        match text.split_once('-').map(|(first, last)| (number(first), number(last))) {
            Some((Some(first), Some(last))) if first <= last => Ok(first..=last),
            _ => Err(format!("{text:?} is no range of ports, expected one such as \"5000-5010\"")),
        }
    })
}
