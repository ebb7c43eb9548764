//! Reads the rules of all programs that see forwarded packets, and finds out which parts of a packet they
//! use.
//!
//! The fast path forwards a packet past the rules only if they have accepted an earlier packet of the flow
//! (`bpf/tracked.h`). That is right for rules that use only interfaces, addresses, protocol, ports and
//! connection state: such rules treat all packets of an established connection alike. This module finds rules
//! that use more (a limit, a quota, the length, a mark, a set that changes), or that change a packet.
//!
//! The module ignores rules in chains that no forwarded packet visits, such as those of the hook `input`. It
//! also ignores rules about packets that the fast path leaves to the kernel in any case. These are other
//! protocols than TCP and UDP, TCP packets with SYN, FIN or RST, and packets outside of established
//! connections. Chains of NAT see only the first packet of a connection. The entry of connection tracking
//! says whether the connection has NAT.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::message::{
    EXPRESSION_DATA, EXPRESSION_NAME, FAMILY_INET, GET_CHAIN, GET_ELEMENTS, GET_RULE, GET_SET, RULE_CHAIN,
    RULE_EXPRESSIONS, RULE_HANDLE, RULE_TABLE, TABLE_NAME_OF_CARNET,
};
use super::netfilter_sockets::RequestSocket;
use crate::fast_path::RuleScope;
use crate::generic_netlink::{encode_attribute, find_attribute, split_attributes};

/// Address families of tables: IPv4, devices (`netdev`), IPv6.
const FAMILY_IPV4: u8 = 2;
const FAMILY_NETDEV: u8 = 5;
const FAMILY_IPV6: u8 = 10;

/// Hooks of packets that the machine forwards: prerouting, forward, postrouting, and ingress of `inet`.
const FORWARDING_HOOKS: [u32; 4] = [0, 2, 4, 5];

/// Attributes of chains and of their hooks.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
/// Attributes of sets and of their elements.
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_ELEMENTS: u16 = 3;
const ELEMENT_DATA: u16 = 2;
/// Flags of sets whose content changes without a new generation of the ruleset. Their elements have a timeout
/// or a state of their own, or rules add them.
const SET_FLAGS_THAT_CHANGE: u32 = 0x10 | 0x20 | 0x40 | 0x100;
/// Attribute of data that is a verdict, and its attribute with the name of a chain.
const DATA_VERDICT: u16 = 2;
const VERDICT_CHAIN: u16 = 2;

/// Fields of the expression `meta` that are equal for all packets of a flow: protocols, address family, and
/// the fields of both interfaces.
const FLOW_META_FIELDS: [u32; 13] = [1, 4, 5, 6, 7, 8, 9, 15, 16, 21, 22, 26, 27];
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
/// Fields of the expression `ct` that are equal for all packets of an established connection: state,
/// direction, status, family, addresses, protocol, ports, zone.
const FLOW_CT_FIELDS: [u32; 14] = [0, 1, 2, 7, 8, 9, 10, 11, 12, 17, 19, 20, 21, 22];
const CT_STATE: u32 = 0;
/// Names in `nft` of the fields of `meta` and `ct` that are not equal for all packets of a flow (`enum
/// nft_meta_keys`, `enum nft_ct_keys`).
const META_NAMES: [(u32, &str); 22] = [
    (0, "length"),
    (2, "priority"),
    (3, "mark"),
    (10, "skuid"),
    (11, "skgid"),
    (12, "nftrace"),
    (13, "rtclassid"),
    (14, "secmark"),
    (17, "ibrname"),
    (18, "obrname"),
    (19, "pkttype"),
    (20, "cpu"),
    (23, "cgroup"),
    (24, "random"),
    (25, "ipsec"),
    (28, "ibrpvid"),
    (29, "ibrvproto"),
    (30, "time"),
    (31, "day"),
    (32, "hour"),
    (33, "sdif"),
    (34, "sdifname"),
];
const CT_NAMES: [(u32, &str); 10] = [
    (3, "mark"),
    (4, "secmark"),
    (5, "expiration"),
    (6, "helper"),
    (13, "label"),
    (14, "packets"),
    (15, "bytes"),
    (16, "avgpkt"),
    (18, "event"),
    (23, "id"),
];
/// Bit of the state `established`.
const STATE_ESTABLISHED_BIT: u32 = 2;
/// TCP flags FIN, SYN and RST.
const SYN_FIN_RST_FLAGS: u8 = 7;

/// Operations of the expression `cmp`.
const COMPARE_EQUAL: u32 = 0;
const COMPARE_NOT_EQUAL: u32 = 1;

/// Parts of packets that the rules for one address family use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct IpFamilyRules {
    pub(crate) rule_scope: RuleScope,
    /// Text about a rule that uses more than the flow, and what it uses; `None` if there is no such rule.
    pub(crate) slow_path_reason: Option<String>,
}

impl IpFamilyRules {
    /// Notes that some rule uses the flow of a packet.
    pub(crate) fn note_flow_use(&mut self) {
        self.rule_scope = self.rule_scope.max(RuleScope::Flow);
    }

    /// Notes that some rule needs to see each packet; `reason` describes the rule and what it uses.
    pub(crate) fn note_packet_use(&mut self, reason: impl FnOnce() -> String) {
        self.rule_scope = RuleScope::Packet;
        self.slow_path_reason.get_or_insert_with(reason);
    }
}

/// Parts of forwarded packets that the rules use, by address family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RuleUses {
    pub(crate) ipv4_rules: IpFamilyRules,
    pub(crate) ipv6_rules: IpFamilyRules,
}

impl RuleUses {
    /// Applies `change` to the address families that a table of `family` contains. If `only` is given,
    /// applies it to this family only.
    fn change_family_rules(&mut self, family: u8, only: Option<u8>, change: impl Fn(&mut IpFamilyRules)) {
        for (of, rules) in [(FAMILY_IPV4, &mut self.ipv4_rules), (FAMILY_IPV6, &mut self.ipv6_rules)] {
            if (family == of || matches!(family, FAMILY_INET | FAMILY_NETDEV))
                && only.is_none_or(|it| it == of)
            {
                change(rules);
            }
        }
    }
}

/// A chain: family and name of its table, and its own name.
type ChainKey = (u8, Vec<u8>, Vec<u8>);

/// Returns what all rules in the kernel, except carnet's own, use of packets.
pub(super) fn read_rule_uses(requests: &mut RequestSocket) -> io::Result<RuleUses> {
    let mut uses = RuleUses::default();
    let chains = requests.list_objects(GET_CHAIN, 0, &[])?;
    // Chains that forwarded packets visit. The flag says whether they reach the chain only through chains of
    // NAT.
    let mut reached: Vec<(ChainKey, bool)> = Vec::new();
    for (family, chain) in &chains {
        let Some(hook) = find_attribute(chain, CHAIN_HOOK) else { continue };
        let is_forwarding = match *family {
            FAMILY_IPV4 | FAMILY_IPV6 | FAMILY_INET => {
                decode_number(hook, HOOK_NUMBER).is_some_and(|hook| FORWARDING_HOOKS.contains(&hook))
            }
            FAMILY_NETDEV => true,
            _ => false,
        };
        let key = (*family, decode_text(chain, CHAIN_TABLE), decode_text(chain, CHAIN_NAME));
        if !is_forwarding || (key.0 == FAMILY_INET && key.1 == TABLE_NAME_OF_CARNET.as_bytes()) {
            continue;
        }
        // 0 is the policy `drop`.
        if decode_number(chain, CHAIN_POLICY) == Some(0) {
            uses.change_family_rules(*family, None, IpFamilyRules::note_flow_use);
        }
        reached.push((key, decode_text(chain, CHAIN_TYPE) == b"nat"));
    }
    if reached.is_empty() {
        return Ok(uses);
    }
    let mut rules: BTreeMap<ChainKey, Vec<Vec<u8>>> = BTreeMap::new();
    for (family, rule) in requests.list_objects(GET_RULE, 0, &[])? {
        let key = (family, decode_text(&rule, RULE_TABLE), decode_text(&rule, RULE_CHAIN));
        rules.entry(key).or_default().push(rule);
    }
    let mut sets: BTreeMap<ChainKey, u32> = BTreeMap::new();
    for (family, set) in requests.list_objects(GET_SET, 0, &[])? {
        let flags = decode_number(&set, SET_FLAGS).unwrap_or(0);
        sets.insert((family, decode_text(&set, SET_TABLE), decode_text(&set, SET_NAME)), flags);
    }
    let mut known: BTreeSet<(ChainKey, bool)> = reached.iter().cloned().collect();
    while let Some((key, is_nat)) = reached.pop() {
        let (family, table, _) = &key;
        for rule in rules.get(&key).into_iter().flatten() {
            let expressions = expressions_of_rule(rule);
            let set_of = |name: &[u8]| sets.get(&(*family, table.clone(), name.to_vec())).copied();
            let PacketPartsOfRule {
                only_family: only,
                packet_use_reason: packet,
                is_left_to_kernel: is_of_kernel,
            } = examine_rule(*family, &expressions, set_of);
            if is_of_kernel {
                continue;
            }
            uses.change_family_rules(*family, only, IpFamilyRules::note_flow_use);
            if let Some(what) = packet.filter(|_| !is_nat) {
                uses.change_family_rules(*family, only, |rules| {
                    rules.note_packet_use(|| describe_rule_use(&key, rule, &what))
                });
            }
            let mut targets = jump_targets(&expressions);
            for map in verdict_map_names(&expressions) {
                let named = [
                    encode_attribute(SET_TABLE, &zero_terminated(table)),
                    encode_attribute(SET_NAME, &zero_terminated(&map)),
                ];
                for (_, elements) in requests.list_objects(GET_ELEMENTS, *family, &named.concat())? {
                    targets.extend(targets_of_elements(&elements));
                }
            }
            for target in targets {
                let target = ((*family, table.clone(), target), is_nat);
                if known.insert(target.clone()) {
                    reached.push(target);
                }
            }
        }
    }
    Ok(uses)
}

/// Returns the name of a rule and what it uses, for the operator.
fn describe_rule_use((family, table, chain): &ChainKey, rule: &[u8], what: &str) -> String {
    let family = match *family {
        FAMILY_IPV4 => "ip",
        FAMILY_IPV6 => "ip6",
        FAMILY_NETDEV => "netdev",
        _ => "inet",
    };
    let handle = find_attribute(rule, RULE_HANDLE).and_then(|it| it.first_chunk()).copied();
    format!(
        "table {family} {} chain {} handle {} uses {what}",
        String::from_utf8_lossy(table),
        String::from_utf8_lossy(chain),
        handle.map_or(0, u64::from_be_bytes),
    )
}

/// An expression of a rule: its name and its attributes.
type RuleExpression = (String, Vec<u8>);

fn expressions_of_rule(rule: &[u8]) -> Vec<RuleExpression> {
    let list = find_attribute(rule, RULE_EXPRESSIONS).unwrap_or_default();
    let one = |expression: &[u8]| {
        let data = find_attribute(expression, EXPRESSION_DATA).unwrap_or_default().to_vec();
        (String::from_utf8_lossy(&decode_text(expression, EXPRESSION_NAME)).into_owned(), data)
    };
    split_attributes(list).map(|(_, expression)| one(expression)).collect()
}

/// Parts of a packet that a rule uses.
#[derive(Debug, PartialEq, Eq, Default)]
struct PacketPartsOfRule {
    /// Address family of the packets that the rule matches; `None` if it may match all families of its table.
    only_family: Option<u8>,
    /// Text for the operator about the rule's use of a packet apart from the flow; `None` if the rule uses
    /// only the flow.
    packet_use_reason: Option<String>,
    /// Whether the rule matches only packets that the fast path leaves to the kernel.
    is_left_to_kernel: bool,
}

/// A field of the packet in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegisterField {
    Family,
    Protocol,
    State,
}

/// Finds out what a rule uses of packets. `set_of` returns the flags of a set.
fn examine_rule(
    family: u8,
    expressions: &[RuleExpression],
    set_of: impl Fn(&[u8]) -> Option<u32>,
) -> PacketPartsOfRule {
    let mut found = PacketPartsOfRule::default();
    // The field that the last expressions have loaded, the register that has it, and the mask that they have
    // applied.
    let mut loaded: Option<(RegisterField, u32, Option<Vec<u8>>)> = None;
    for (at, (name, data)) in expressions.iter().enumerate() {
        if !matches!(name.as_str(), "bitwise" | "cmp" | "counter") {
            loaded = None;
        }
        let mut load = |field| loaded = Some((field, register_number(data, 1), None));
        let of_packet = match name.as_str() {
            "meta" => match (decode_number(data, 2), decode_number(data, 3)) {
                (_, Some(_)) => Some("a changed mark or priority".to_owned()),
                (Some(META_FAMILY), _) => {
                    load(RegisterField::Family);
                    None
                }
                (Some(META_PROTOCOL), _) => {
                    load(RegisterField::Protocol);
                    None
                }
                (Some(key), _) if FLOW_META_FIELDS.contains(&key) => None,
                (key, _) => Some(describe_field("meta", &META_NAMES, key)),
            },
            "ct" => match (decode_number(data, 2), find_attribute(data, 4)) {
                (_, Some(_)) => Some("a changed field of the connection".to_owned()),
                (Some(CT_STATE), _) => {
                    load(RegisterField::State);
                    None
                }
                (Some(key), _) if FLOW_CT_FIELDS.contains(&key) => None,
                (key, _) => Some(describe_field("ct", &CT_NAMES, key)),
            },
            "payload" => match (decode_number(data, 2), decode_number(data, 3), decode_number(data, 4)) {
                _ if find_attribute(data, 5).is_some() => Some("a changed header".to_owned()),
                (Some(1), Some(offset), Some(length)) => {
                    match (family_seen_by_rule(family, &found), offset, length) {
                        (Some(FAMILY_IPV4), 9, 1) | (Some(FAMILY_IPV6), 6, 1) => {
                            load(RegisterField::Protocol);
                            None
                        }
                        (Some(FAMILY_IPV4), 12.., _) if offset + length <= 20 => None,
                        (Some(FAMILY_IPV6), 8.., _) if offset + length <= 40 => None,
                        _ => Some("a field of the IP header".to_owned()),
                    }
                }
                (Some(2), Some(offset), Some(length)) if offset + length <= 4 => None,
                (Some(2), Some(13), Some(1)) => {
                    found.is_left_to_kernel |=
                        matches_only_syn_fin_rst(expressions.get(at + 1..).unwrap_or_default());
                    Some("TCP flags".to_owned())
                }
                (Some(0), ..) => Some("a link-layer address".to_owned()),
                _ => Some("a field of a header".to_owned()),
            },
            "bitwise" => {
                if let Some((_, of, mask)) = &mut loaded
                    && *of == register_number(data, 1)
                {
                    *mask = find_attribute(data, 4).and_then(|it| find_attribute(it, 1)).map(<[u8]>::to_vec);
                    *of = register_number(data, 2);
                }
                None
            }
            "cmp" => {
                let value = find_attribute(data, 3).and_then(|it| find_attribute(it, 1)).unwrap_or_default();
                if let Some((field, of, mask)) = &loaded
                    && *of == register_number(data, 1)
                {
                    let is_equal = decode_number(data, 2) == Some(COMPARE_EQUAL);
                    match field {
                        RegisterField::Family if is_equal => found.only_family = value.first().copied(),
                        RegisterField::Protocol if is_equal => {
                            found.is_left_to_kernel |= value.first().is_some_and(|it| !matches!(*it, 6 | 17));
                        }
                        RegisterField::State => {
                            let mask = mask.as_ref().and_then(|mask| mask.first_chunk().copied());
                            let mask = mask.map_or(u32::MAX, u32::from_ne_bytes);
                            found.is_left_to_kernel |= decode_number(data, 2) == Some(COMPARE_NOT_EQUAL)
                                && mask & STATE_ESTABLISHED_BIT == 0;
                        }
                        _ => {}
                    }
                }
                None
            }
            "lookup" => match set_of(&decode_text(data, 1)) {
                Some(flags) if flags & SET_FLAGS_THAT_CHANGE == 0 => None,
                _ => Some(format!("set {}, which changes", String::from_utf8_lossy(&decode_text(data, 1)))),
            },
            // An object of type 1 is a counter.
            "objref" if decode_number(data, 1) == Some(1) => None,
            "range" | "byteorder" | "immediate" | "counter" | "reject" | "masq" | "nat" | "redir"
            | "notrack" => None,
            other => Some(other.to_owned()),
        };
        if found.is_left_to_kernel {
            found.packet_use_reason = None;
            return found;
        }
        if found.packet_use_reason.is_none() {
            found.packet_use_reason = of_packet;
        }
    }
    found
}

/// Returns a field of the expression `meta` or `ct` as `nft` writes it. Newer kernels may have other fields.
fn describe_field(expression: &str, names: &[(u32, &str)], key: Option<u32>) -> String {
    match names.iter().find(|(number, _)| Some(*number) == key) {
        Some((_, name)) => format!("{expression} {name}"),
        None => format!("{expression} field {}", key.unwrap_or(u32::MAX)),
    }
}

/// Returns the address family of the packets that a rule sees; `None` if it may see both families.
fn family_seen_by_rule(family: u8, found: &PacketPartsOfRule) -> Option<u8> {
    match family {
        FAMILY_IPV4 | FAMILY_IPV6 => Some(family),
        _ => found.only_family,
    }
}

/// Returns whether the expressions compare loaded TCP flags such that only packets with SYN, FIN or RST
/// remain.
fn matches_only_syn_fin_rst(expressions: &[RuleExpression]) -> bool {
    let (mask, rest) = match expressions {
        [(name, data), rest @ ..] if name == "bitwise" => {
            let mask = find_attribute(data, 4).and_then(|it| find_attribute(it, 1));
            (mask.and_then(|mask| mask.first().copied()).unwrap_or(0), rest)
        }
        rest => (0xff, rest),
    };
    match rest {
        [(name, data), ..] if name == "cmp" => {
            let value = find_attribute(data, 3).and_then(|it| find_attribute(it, 1));
            match (decode_number(data, 2), value.and_then(|value| value.first())) {
                (Some(COMPARE_EQUAL), Some(value)) => value & SYN_FIN_RST_FLAGS != 0,
                (Some(COMPARE_NOT_EQUAL), Some(0)) => mask != 0 && mask & !SYN_FIN_RST_FLAGS == 0,
                _ => false,
            }
        }
        _ => false,
    }
}

/// Returns the chains to which a rule's verdict jumps.
fn jump_targets(expressions: &[RuleExpression]) -> Vec<Vec<u8>> {
    let immediates = expressions.iter().filter(|(name, _)| name == "immediate");
    immediates.filter_map(|(_, data)| chain_of_verdict(find_attribute(data, 2)?)).collect()
}

/// Returns the names of the maps in which a rule looks its verdict up.
fn verdict_map_names(expressions: &[RuleExpression]) -> Vec<Vec<u8>> {
    let lookups =
        expressions.iter().filter(|(name, data)| name == "lookup" && decode_number(data, 3) == Some(0));
    lookups.map(|(_, data)| decode_text(data, 1)).collect()
}

/// Returns the chains to which the verdicts of a map's elements jump.
fn targets_of_elements(elements: &[u8]) -> Vec<Vec<u8>> {
    let list = find_attribute(elements, SET_ELEMENTS).unwrap_or_default();
    split_attributes(list)
        .filter_map(|(_, element)| chain_of_verdict(find_attribute(element, ELEMENT_DATA)?))
        .collect()
}

fn chain_of_verdict(data: &[u8]) -> Option<Vec<u8>> {
    let verdict = find_attribute(data, DATA_VERDICT)?;
    find_attribute(verdict, VERDICT_CHAIN).map(|_| decode_text(verdict, VERDICT_CHAIN))
}

/// Returns the number of a register in units of four octets: registers of four octets begin at 8, registers
/// of 16 octets at 1.
fn register_number(data: &[u8], kind: u16) -> u32 {
    match decode_number(data, kind).unwrap_or(u32::MAX) {
        wide @ 1..=4 => 4 + 4 * wide,
        other => other,
    }
}

fn decode_number(octets: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(*find_attribute(octets, kind)?.first_chunk()?))
}

/// Returns a string without the zero octet at its end.
fn decode_text(octets: &[u8], kind: u16) -> Vec<u8> {
    let value = find_attribute(octets, kind).unwrap_or_default();
    value.split(|octet| *octet == 0).next().unwrap_or_default().to_vec()
}

fn zero_terminated(text: &[u8]) -> Vec<u8> {
    [text, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// Returns what a ruleset uses, in a new network namespace; `None` if this machine cannot create one.
    fn uses_of_ruleset(ruleset: &str) -> Option<RuleUses> {
        let ruleset = ruleset.to_owned();
        let read = move || {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                assert!(std::env::var("CARNET_REQUIRE_ROOT").as_deref() != Ok("1"), "no network namespace");
                println!("\nSKIPPED: cannot make a network namespace");
                return None;
            }
            let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft");
            nft.stdin.take().expect("a pipe").write_all(ruleset.as_bytes()).expect("nft reads");
            assert!(nft.wait().expect("nft ends").success(), "{ruleset}");
            let mut requests = RequestSocket::open().expect("a socket");
            Some(super::read_rule_uses(&mut requests).expect("the kernel lists its rules"))
        };
        std::thread::spawn(read).join().expect("the thread ends")
    }

    /// Returns the scopes for IPv4 and IPv6 of one rule in a chain `forward`, and the reason for IPv4.
    fn scopes_of(family: &str, rule: &str) -> Option<(RuleScope, RuleScope, String)> {
        let uses = uses_of_ruleset(&format!(
            "table {family} t {{
                set steady {{ type inet_service; elements = {{ 53, 80 }}; }}
                set changing {{ type inet_service; flags dynamic; timeout 1h; }}
                chain other {{
 drop
 }}
                chain limiting {{
 limit rate 5/second accept
 }}
                chain f {{
 type filter hook forward priority 0
 {rule}
 }}
            }}"
        ))?;
        Some((
            uses.ipv4_rules.rule_scope,
            uses.ipv6_rules.rule_scope,
            uses.ipv4_rules.slow_path_reason.unwrap_or_default(),
        ))
    }

    #[test]
    fn rules_that_match_only_flows_keep_packets_on_the_fast_path() {
        use RuleScope::{Flow, Nothing};
        for (family, rule, ipv4, ipv6) in [
            ("inet", "", Nothing, Nothing),
            ("inet", "ct state established,related accept", Flow, Flow),
            ("inet", "ct state vmap { established : accept, invalid : drop }", Flow, Flow),
            ("inet", "iifname \"lan0\" oifname { \"a\", \"b\" } counter accept", Flow, Flow),
            ("inet", "ip saddr 10.0.0.0/8 tcp dport 22 reject", Flow, Nothing),
            ("inet", "ip6 daddr 2001:db8::1 udp dport @steady drop", Nothing, Flow),
            ("ip", "ip saddr 10.0.0.0/9 ip protocol tcp drop", Flow, Nothing),
            ("ip6", "ip6 saddr 2001:db8::/33 th sport 1000-2000 jump other", Nothing, Flow),
            ("inet", "tcp flags syn / syn,rst tcp option maxseg size set rt mtu", Nothing, Nothing),
            ("inet", "ct state new limit rate 5/second accept", Nothing, Nothing),
            ("inet", "meta l4proto icmp limit rate 5/second accept", Nothing, Nothing),
            ("inet", "icmpv6 type echo-request limit rate 5/second accept", Nothing, Nothing),
        ] {
            let Some(found) = scopes_of(family, rule) else { return };
            assert_eq!((found.0, found.1), (ipv4, ipv6), "{rule}: {}", found.2);
        }
    }

    #[test]
    fn rules_that_match_single_packets_are_reported_with_reason() {
        for (rule, what) in [
            ("limit rate 5/second accept", "limit"),
            ("quota over 10 mbytes drop", "quota"),
            ("meta length > 1000 drop", "uses meta length"),
            ("meta mark 7 drop", "uses meta mark"),
            ("meta mark set 7", "a changed mark"),
            ("ct mark 7 drop", "uses ct mark"),
            ("ct bytes > 1000 drop", "uses ct bytes"),
            ("meta hour \"8:00\"-\"9:00\" drop", "uses meta hour"),
            ("ip dscp cs1 drop", "a field of the IP header"),
            ("ip ttl 1 drop", "a field of the IP header"),
            ("ip dscp set cs1", "IP header"),
            ("tcp flags ack accept", "TCP flags"),
            ("tcp dport @changing drop", "set changing"),
            ("add @changing { tcp dport }", "dynset"),
            ("log accept", "log"),
            ("tcp dport 9 jump limiting", "chain limiting handle"),
            ("tcp dport vmap { 9 : jump limiting }", "chain limiting handle"),
        ] {
            let Some((ipv4, _, reason)) = scopes_of("inet", rule) else { return };
            assert_eq!(ipv4, RuleScope::Packet, "{rule}");
            assert!(reason.starts_with("table inet t chain ") && reason.contains(what), "{rule}: {reason}");
        }
    }

    #[test]
    fn ruleset_check_ignores_chains_without_forwarded_packets() {
        for (table, chain, scope) in [
            ("inet t", "type filter hook input priority 0; limit rate 5/second accept", RuleScope::Nothing),
            ("inet t", "type filter hook forward priority 0; policy drop", RuleScope::Flow),
            (
                "ip t",
                "type nat hook postrouting priority 100; fib saddr type local masquerade",
                RuleScope::Flow,
            ),
            ("ip t", "type filter hook prerouting priority 0; fib saddr type local drop", RuleScope::Packet),
            (
                "inet carnet_rules",
                "type filter hook forward priority 0; meta mark 7 drop",
                RuleScope::Nothing,
            ),
        ] {
            let chain = chain.replace("; ", "\n");
            let Some(uses) = uses_of_ruleset(&format!("table {table} {{\nchain c {{\n{chain}\n}}\n}}"))
            else {
                return;
            };
            assert_eq!(uses.ipv4_rules.rule_scope, scope, "{table}: {chain}");
        }
    }
}
