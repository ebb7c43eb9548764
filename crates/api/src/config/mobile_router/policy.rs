//! Config table `[[mobile_router.policy]]`.

use std::ops::RangeInclusive;

use carnet_mobility::flow::FlowAction;
use ipnet::IpNet;

use super::super::errors::ErrorSink;
use super::super::keys::{
    Key, OptionalKey, Section, ValueKind, integer_kind, key_with_default, optional_key, required_key,
    value_kind, words_kind,
};
use super::super::kinds;
use super::super::reader::{List, Located};
use super::super::table::{Table, all};
use super::transport::{PORT_RANGES_KIND, PROTOCOL_KIND, PolicyProtocol};
use super::{MobileRouter, lan, uplink};

/// Maximum number of flow bindings of one mobile router.
const MAX_FLOW_BINDINGS: usize = 32;

/// `[[mobile_router.policy]]`: packets that match every configured field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Unique name.
    pub name: String,
    /// DiffServ code points; empty for any.
    pub code_points: Vec<u8>,
    /// Protocol.
    pub protocol: Option<PolicyProtocol>,
    /// Ports at either end; empty for any.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Prefixes of the hosts at the other end; empty for any.
    pub prefixes: Vec<IpNet>,
    /// Interfaces of the hosts on board; empty for all.
    pub lan_interfaces: Vec<String>,
    /// Path of the packets: an uplink of the tunnel, or an uplink without the tunnel.
    pub policy_action: PolicyAction,
    /// Uplinks, the preferred first. In the tunnel there is at least one, and each has a `bid`. Without the
    /// tunnel an empty list stands for the uplink in use.
    pub uplinks: Vec<String>,
}

/// Value of the key `action` of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyAction {
    /// Packets take the tunnel, and the action selects among the uplinks of the policy.
    Tunnel(FlowAction),
    /// Packets leave by an uplink without the tunnel.
    Breakout,
}

/// Pair of prefixes, of one address family, that the packets of a policy have at their two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyNetworks {
    /// Prefix of the hosts at the other end; `None` for any.
    pub remote: Option<IpNet>,
    /// Prefix of the hosts on board; `None` for any.
    pub on_board: Option<IpNet>,
}

impl Policy {
    /// Returns each pair of a remote prefix and an on-board prefix that packets of the policy may have.
    pub fn prefix_combinations(&self, router: &MobileRouter) -> Vec<PolicyNetworks> {
        let remote = values_or_any(self.prefixes.iter().copied());
        let shares = router.lan_networks().into_iter();
        let on_board =
            shares.filter(|(lan, _)| self.lan_interfaces.contains(&lan.interface)).map(|(_, share)| share);
        let on_board = if self.lan_interfaces.is_empty() { vec![None] } else { on_board.map(Some).collect() };
        let all = remote.iter().flat_map(|remote| {
            on_board.iter().map(|on_board| PolicyNetworks { remote: *remote, on_board: *on_board })
        });
        all.filter(|networks| self.is_of_one_family(networks)).collect()
    }

    /// Returns the number of flow bindings that the policy needs, or of selectors if its packets leave
    /// without the tunnel.
    fn flow_binding_count(&self, router: &MobileRouter) -> usize {
        // A port matches source or destination, so each port needs two flows.
        let ports = (self.ports.len() * 2).max(1);
        self.prefix_combinations(router)
            .len()
            .saturating_mul(self.code_points.len().max(1))
            .saturating_mul(ports)
    }

    /// Returns whether both prefixes and the protocol belong to one address family, so that a packet can
    /// match them.
    fn is_of_one_family(&self, networks: &PolicyNetworks) -> bool {
        let is_ipv4 = |prefix: IpNet| matches!(prefix, IpNet::V4(_));
        let of_protocol = match self.protocol {
            Some(PolicyProtocol::Icmp) => Some(true),
            Some(PolicyProtocol::Icmpv6) => Some(false),
            Some(PolicyProtocol::Tcp | PolicyProtocol::Udp) | None => None,
        };
        let ends = [networks.remote, networks.on_board].map(|prefix| prefix.map(is_ipv4));
        let mut families = ends.into_iter().chain([of_protocol]).flatten();
        let first = families.next();
        families.all(|family| Some(family) == first)
    }
}

/// Returns each value as `Some`. Without values, returns a single `None`, which stands for any value.
pub fn values_or_any<T>(values: impl Iterator<Item = T>) -> Vec<Option<T>> {
    let values: Vec<Option<T>> = values.map(Some).collect();
    if values.is_empty() { vec![None] } else { values }
}

const CODE_POINT_KIND: ValueKind<u8> = integer_kind(0, 63);
const CODE_POINTS_KIND: ValueKind<List<u8>> =
    value_kind("array of integers, 0 to 63", "an array of integers from 0 to 63", |value| {
        List::read_array(value, "an array of integers from 0 to 63", |item| CODE_POINT_KIND.read_value(item))
    });
static NAME: Key<String> = required_key("name", kinds::NAME_KIND, "Its name; no two policies have the same.");
static CODE_POINTS: Key<List<u8>> =
    key_with_default("dscp", CODE_POINTS_KIND, "[]", "DiffServ code points. An empty array matches any.");
static PROTOCOL: OptionalKey<PolicyProtocol> = optional_key(
    "protocol",
    PROTOCOL_KIND,
    r#"The protocol. `"icmp"` is that of IPv4. Without this key any matches."#,
);
static PORTS: Key<List<RangeInclusive<u16>>> = key_with_default(
    "ports",
    PORT_RANGES_KIND,
    "[]",
    r#"Ports at either end, such as `5000` or `"5000-5010"`. An empty array matches any."#,
);
static PREFIXES: Key<List<IpNet>> = key_with_default(
    "prefixes",
    lan::PREFIXES_KIND,
    "[]",
    "Prefixes of the hosts at the other end, of IPv6 and IPv4. An empty array matches any.",
);
static LAN_INTERFACES: Key<List<String>> = key_with_default(
    "lan",
    kinds::INTERFACES_KIND,
    "[]",
    "Interfaces of `lan` whose hosts send and receive the packets. The policy selects them by the prefixes of
     these interfaces. An empty array matches all hosts on board.",
);
static POLICY_ACTION: Key<PolicyAction> = required_key(
    "action",
    words_kind(&[
        ("failover", PolicyAction::Tunnel(FlowAction::Failover)),
        ("balance", PolicyAction::Tunnel(FlowAction::Balance)),
        ("duplicate", PolicyAction::Tunnel(FlowAction::Duplicate)),
        ("breakout", PolicyAction::Breakout),
    ]),
    r#"`"failover"`: the first live uplink of `uplinks`. `"balance"`: each conversation takes one of them, by
       a hash of its addresses and ports. The hash counts nothing, so few conversations may leave an uplink
       without any: 8 of them miss one with a share of 28 % in 7 of 100 cases. `"duplicate"`: each packet
       takes the first four live uplinks and the receiver keeps the first copy; a home agent that does not
       support this gets `"failover"`. `"breakout"`: packets of hosts on board leave by an uplink without the
       tunnel, see [on-board.md](on-board.md#past-the-tunnel)."#,
);
static UPLINKS: Key<List<String>> = key_with_default(
    "uplinks",
    kinds::INTERFACES_KIND,
    "[]",
    r#"Uplinks with a `bid`, in order of preference; at least one. With `"breakout"` they need no `bid`, and
       without this key packets leave by the uplink in use."#,
);

/// Keys of the config table `[[mobile_router.policy]]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[[mobile_router.policy]]",
    "mobile_router.policy",
    &[&NAME, &CODE_POINTS, &PROTOCOL, &PORTS, &PREFIXES, &LAN_INTERFACES, &POLICY_ACTION, &UPLINKS],
);

/// Keys of the config table `[[mobile_node.policy]]`.
pub(in crate::config) static SECTION_OF_NODE: Section = Section::new(
    "[[mobile_node.policy]]",
    "mobile_node.policy",
    &[&NAME, &CODE_POINTS, &PROTOCOL, &PORTS, &PREFIXES, &POLICY_ACTION, &UPLINKS],
);

/// The parsed table, with the values that the checks compare with other tables.
pub(super) struct UncheckedPolicy {
    name: Option<Located<String>>,
    policy_action: Option<PolicyAction>,
    lan_interfaces: List<String>,
    uplinks: List<String>,
    /// Position of the table in the file.
    table_offset: usize,
    pub config: Option<Policy>,
}

impl UncheckedPolicy {
    /// Reads the table; `has_lan` says whether the station has a mobile network.
    pub(super) fn read_table(table: &Table<'_>, has_lan: bool) -> UncheckedPolicy {
        let name = table.read_key_with_offset(&NAME);
        let uplinks = table.read_key(&UPLINKS).unwrap_or_default();
        let action = table.read_key(&POLICY_ACTION);
        let dscp = table.read_key(&CODE_POINTS).unwrap_or_default().complete_items();
        let ports = table.read_key(&PORTS).unwrap_or_default().complete_items();
        let prefixes = table.read_key(&PREFIXES).unwrap_or_default();
        let lan = if has_lan { table.read_key(&LAN_INTERFACES).unwrap_or_default() } else { List::default() };
        let config = all!(Policy {
            name: name.clone().map(|name| name.value),
            code_points: dscp,
            protocol: table.read_key(&PROTOCOL),
            ports: ports,
            prefixes: prefixes.complete_items(),
            lan_interfaces: lan.complete_items(),
            policy_action: action,
            uplinks: uplinks.complete_items(),
        });
        UncheckedPolicy {
            name,
            policy_action: action,
            lan_interfaces: lan,
            uplinks,
            table_offset: table.table_offset(),
            config,
        }
    }
}

/// Checks all policies together: names, interfaces of the mobile network (`lans`), and uplinks, each of which
/// needs a `bid`.
pub(super) fn check_policies(
    policies: &[UncheckedPolicy],
    uplinks: &[uplink::UncheckedUplink],
    lans: &List<lan::UncheckedLan>,
    sink: &ErrorSink<'_>,
) {
    let mut names: Vec<&Located<String>> = Vec::new();
    for policy in policies {
        if let Some(name) = &policy.name {
            match names.iter().find(|other| other.value == name.value) {
                Some(other) => {
                    let place = sink.format_position(other.offset);
                    sink.push(
                        name.offset,
                        format!("{:?} is the policy at {place}, expected another name", name.value),
                    );
                }
                None => names.push(name),
            }
        }
        let breaks_out = policy.policy_action == Some(PolicyAction::Breakout);
        if breaks_out && lans.valid_items.is_empty() && lans.all_valid {
            let message =
                "only packets of hosts on board can leave without the tunnel, expected `mobile_router.lan`";
            sink.push(policy.table_offset, message.to_owned());
        }
        if policy.uplinks.valid_items.is_empty()
            && policy.uplinks.all_valid
            && policy.policy_action.is_some()
            && !breaks_out
        {
            sink.push(
                policy.table_offset,
                "the policy has no uplink, expected at least one in `uplinks`".to_owned(),
            );
        }
        for interface in &policy.uplinks.valid_items {
            let uplink = uplinks
                .iter()
                .find(|uplink| uplink.interface.as_ref().is_some_and(|name| name.value == interface.value));
            let lacks_bid =
                |uplink: &uplink::UncheckedUplink| !breaks_out && matches!(uplink.bid, Some(None));
            if uplink.is_none_or(lacks_bid) {
                let with = if breaks_out { "" } else { " with a `bid`" };
                let message = format!("{:?} is no uplink{with}, expected one", interface.value);
                sink.push(interface.offset, message);
            }
        }
        for interface in policy.lan_interfaces.valid_items.iter().filter(|_| lans.all_valid) {
            let names = lans.valid_items.iter().filter_map(|lan| lan.value.interface.as_ref());
            if !names.into_iter().any(|name| name.value == interface.value) {
                let message =
                    format!("{:?} is not in `mobile_router.lan`, expected one of these", interface.value);
                sink.push(interface.offset, message);
            }
        }
    }
}

/// Checks the flow bindings of the policies of a router without other errors: there are not too many, and
/// each policy can match packets.
pub(super) fn check_flow_bindings(policies: &[UncheckedPolicy], router: &MobileRouter, sink: &ErrorSink<'_>) {
    let mut flows = 0_usize;
    for (policy, config) in policies.iter().zip(&router.policies) {
        let own = config.flow_binding_count(router);
        let is_known = |name: &String| router.lan_interfaces.iter().any(|lan| lan.interface == *name);
        if own == 0 && config.lan_interfaces.iter().all(is_known) {
            let message = "no packet can match the policy, expected `prefixes`, `lan` and `protocol` of one \
                           address family";
            sink.push(policy.table_offset, message.to_owned());
        }
        let before = flows;
        flows = flows.saturating_add(own);
        if flows > MAX_FLOW_BINDINGS && before <= MAX_FLOW_BINDINGS {
            let message = format!(
                "the policies make more than {MAX_FLOW_BINDINGS} flow bindings, expected fewer code points, \
                 prefixes or ports"
            );
            sink.push(policy.table_offset, message);
        }
    }
}
