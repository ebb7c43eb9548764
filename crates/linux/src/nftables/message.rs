//! Encodes nftables objects as netlink messages, and decodes the parts of answers that carnet reads.
//!
//! See `linux/netfilter/nf_tables.h` and `linux/netfilter/nfnetlink.h`. Numbers in attributes are in network
//! byte order. A rule is a list of expressions: one loads a field of the packet into a register, the next one
//! compares the register. The kernel stops at the first comparison that fails.

use std::net::IpAddr;

use carnet_base::mapped;
use carnet_nemo::forwarding::packet_rules::{
    ConnectionState, HostIdentity, HostRate, LimitedHosts, Mark, PacketCount, PacketMatch, PacketRule,
    PortRange, RuleChain, RuleVerdict,
};
use ipnet::{IpNet, Ipv6Net};

use crate::generic_netlink::{
    FLAG_ACKNOWLEDGE, encode_attribute, encode_request, find_attribute, split_attributes,
};

/// Name of carnet's table.
pub(super) const TABLE_NAME_OF_CARNET: &str = "carnet_rules";

/// Number of nftables among the subsystems of netfilter.
const NFTABLES_SUBSYSTEM: u16 = 10;
/// Address family of tables for IPv4 and IPv6 (`NFPROTO_INET`).
pub(super) const FAMILY_INET: u8 = 1;
/// Types of the messages that begin and end a transaction.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// Message types of the subsystem.
pub(super) const NEW_TABLE: u16 = NFTABLES_SUBSYSTEM << 8;
pub(super) const GET_TABLE: u16 = NFTABLES_SUBSYSTEM << 8 | 1;
pub(super) const DELETE_TABLE: u16 = NFTABLES_SUBSYSTEM << 8 | 2;
const NEW_CHAIN: u16 = NFTABLES_SUBSYSTEM << 8 | 3;
pub(super) const GET_CHAIN: u16 = NFTABLES_SUBSYSTEM << 8 | 4;
const NEW_RULE: u16 = NFTABLES_SUBSYSTEM << 8 | 6;
pub(super) const GET_RULE: u16 = NFTABLES_SUBSYSTEM << 8 | 7;
const NEW_SET: u16 = NFTABLES_SUBSYSTEM << 8 | 9;
pub(super) const GET_SET: u16 = NFTABLES_SUBSYSTEM << 8 | 10;
pub(super) const GET_ELEMENTS: u16 = NFTABLES_SUBSYSTEM << 8 | 13;
pub(super) const GET_GENERATION: u16 = NFTABLES_SUBSYSTEM << 8 | 16;

/// Flags of requests that add objects.
const FLAG_CREATE: u16 = 0x400;
const FLAG_APPEND: u16 = 0x800;
/// Flag in the type of an attribute that contains attributes.
const NESTED_ATTRIBUTE: u16 = 0x8000;

/// Attributes of tables.
const TABLE_NAME: u16 = 1;
pub(super) const TABLE_FLAGS: u16 = 2;
pub(super) const TABLE_HANDLE: u16 = 4;
/// Attributes of chains, and of their hook.
const CHAIN_TABLE: u16 = 1;
pub(super) const CHAIN_HANDLE: u16 = 2;
const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
pub(super) const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
/// Attributes of rules, and of expressions in them.
pub(super) const RULE_TABLE: u16 = 1;
pub(super) const RULE_CHAIN: u16 = 2;
pub(super) const RULE_HANDLE: u16 = 3;
pub(super) const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
pub(super) const EXPRESSION_NAME: u16 = 1;
pub(super) const EXPRESSION_DATA: u16 = 2;
/// Attributes of the expression `counter`.
const COUNTER_OCTETS: u16 = 1;
const COUNTER_PACKETS: u16 = 2;
/// Attributes of sets.
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_DESCRIPTION: u16 = 9;
const SET_ID: u16 = 10;
const SET_TIMEOUT: u16 = 11;
/// Flags of a set to which rules add elements (`NFT_SET_EVAL`), and whose elements expire.
const SET_FLAGS_FILLED_BY_RULES: u32 = 0x20 | 0x10;
/// Maximum number of hosts in a set.
const MAX_HOSTS_IN_SET: u32 = 4096;
/// Time in milliseconds after a host's last packet at which the kernel removes the host from the set.
const SET_TIMEOUT_MS: u64 = 60_000;
/// Octets that a host may send at once in addition to the rate of one second. The number is the size of the
/// largest packet that a network card merges.
const HOST_BURST_OCTETS: u32 = 65_536;
/// Attribute of the ruleset's generation.
pub(super) const ATTRIBUTE_GENERATION: u16 = 1;

/// Verdicts of netfilter, which are also the policies of chains.
const VERDICT_DROP: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;
/// Number of the register for a verdict.
const VERDICT_REGISTER: u32 = 0;
/// Number of the first register of 16 octets, for values.
const FIRST_REGISTER: u32 = 1;
/// Number of the second register of 16 octets, for values.
const SECOND_REGISTER: u32 = 2;

/// Fields of the expression `meta`.
const META_MARK: u32 = 3;
const META_INPUT_NAME: u32 = 6;
const META_OUTPUT_NAME: u32 = 7;
const META_INPUT_TYPE: u32 = 8;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
/// Fields of the expression `ct`.
const CONNECTION_STATE: u32 = 0;
const CONNECTION_DIRECTION: u32 = 1;
const CONNECTION_MARK: u32 = 3;
const CONNECTION_ZONE: u32 = 17;
/// Direction of a connection's first packet, and direction of the answers.
const DIRECTION_ORIGINAL: u8 = 0;
const DIRECTION_REPLY: u8 = 1;
/// Headers of the expression `payload`.
const LINK_HEADER: u32 = 0;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// Operations of the expression `cmp`.
const COMPARE_EQUAL: u32 = 0;
const COMPARE_NOT_EQUAL: u32 = 1;
const COMPARE_AT_MOST: u32 = 3;
const COMPARE_AT_LEAST: u32 = 5;
/// Flag of the expression `nat`: the kernel replaces only the prefix of an address and keeps its other bits.
const KEEP_HOST_BITS: u32 = 0x40;

/// Address families of packets (`NFPROTO_IPV4`, `NFPROTO_IPV6`).
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
/// Type of an Ethernet interface (`ARPHRD_ETHER`).
const INTERFACE_TYPE_ETHERNET: u16 = 1;

/// Returns a netlink message to netfilter about tables of the family `inet`.
pub(super) fn encode_inet_message(kind: u16, flags: u16, sequence: u32, attributes: &[u8]) -> Vec<u8> {
    encode_family_message(kind, FAMILY_INET, flags, sequence, attributes)
}

/// Returns a netlink message to netfilter about tables of a family; 0 stands for all families.
pub(super) fn encode_family_message(
    kind: u16,
    family: u8,
    flags: u16,
    sequence: u32,
    attributes: &[u8],
) -> Vec<u8> {
    // In the messages that begin and end a transaction, the resource is the subsystem.
    let (family, resource) = match kind {
        BATCH_BEGIN | BATCH_END => (0, NFTABLES_SUBSYSTEM),
        _ => (family, 0),
    };
    // The header is `struct nfgenmsg`: address family, version, and a resource number.
    let [high, low] = resource.to_be_bytes();
    encode_request(kind, flags, sequence, [family, 0, high, low], attributes)
}

/// A transaction: the kernel executes all of its requests or none.
#[derive(Debug)]
pub(super) struct RulesetTransaction {
    pub(super) octets: Vec<u8>,
    /// Sequence number of the first message. The kernel gives an error of the whole transaction this number.
    pub(super) first_sequence: u32,
    /// Sequence number of the request that the kernel acknowledges.
    pub(super) last_sequence: u32,
}

impl RulesetTransaction {
    /// Returns the transaction that replaces carnet's table by one with these rules; without a rule it
    /// removes the table. `sequence` is the first unused sequence number.
    pub(super) fn replace_table<'a>(
        rules: impl Iterator<Item = &'a PacketRule> + Clone,
        sequence: u32,
    ) -> Self {
        let table = encode_string(TABLE_NAME, TABLE_NAME_OF_CARNET);
        // Adding the table first makes it exist in any case, so that its removal cannot fail.
        let mut requests = vec![(NEW_TABLE, FLAG_CREATE, table.clone()), (DELETE_TABLE, 0, table.clone())];
        if rules.clone().next().is_some() {
            requests.push((NEW_TABLE, FLAG_CREATE, table));
        }
        for role in
            RuleChain::ALL_CHAINS.into_iter().filter(|role| rules.clone().any(|rule| rule.chain == *role))
        {
            requests.push((NEW_CHAIN, FLAG_CREATE, new_chain_attributes(role)));
        }
        for (number, set) in rules.clone().filter_map(HostRateSet::rate_set_filled_by_rule).enumerate() {
            requests.push((NEW_SET, FLAG_CREATE, set.set_definition_attributes(number as u32 + 1)));
        }
        requests.extend(rules.map(|rule| (NEW_RULE, FLAG_CREATE | FLAG_APPEND, new_rule_attributes(rule))));
        let mut octets = encode_inet_message(BATCH_BEGIN, 0, sequence, &[]);
        let last = sequence.wrapping_add(requests.len() as u32);
        let mut number = sequence;
        for (kind, flags, attributes) in requests {
            number = number.wrapping_add(1);
            let flags = if number == last { flags | FLAG_ACKNOWLEDGE } else { flags };
            octets.extend(encode_inet_message(kind, flags, number, &attributes));
        }
        octets.extend(encode_inet_message(BATCH_END, 0, last.wrapping_add(1), &[]));
        RulesetTransaction { octets, first_sequence: sequence, last_sequence: last }
    }
}

/// Returns the attributes that name carnet's table.
pub(super) fn table_name_attribute() -> Vec<u8> {
    encode_string(TABLE_NAME, TABLE_NAME_OF_CARNET)
}

/// Returns the attributes that name a chain of carnet's table.
pub(super) fn chain_name_attribute(role: RuleChain) -> Vec<u8> {
    [encode_string(CHAIN_TABLE, TABLE_NAME_OF_CARNET), encode_string(CHAIN_NAME, chain_properties(role).name)]
        .concat()
}

/// Properties of a chain.
struct ChainProperties {
    name: &'static str,
    kind: &'static str,
    netfilter_hook: u32,
    chain_priority: i32,
}

/// Returns the properties of a chain. The priorities are those that `nft` calls raw, mangle, filter, srcnat
/// and dstnat.
fn chain_properties(role: RuleChain) -> ChainProperties {
    let (name, kind, hook, priority) = match role {
        RuleChain::Early => ("early", "filter", 0, -300),
        RuleChain::Prerouting => ("prerouting", "filter", 0, -150),
        RuleChain::Output => ("output", "route", 3, -150),
        RuleChain::Input => ("input", "filter", 1, 0),
        RuleChain::Forward => ("forward", "filter", 2, 0),
        RuleChain::SourceNat => ("postrouting", "nat", 4, 100),
        RuleChain::DestinationNat => ("dstnat", "nat", 0, -100),
    };
    ChainProperties { name, kind, netfilter_hook: hook, chain_priority: priority }
}

fn new_chain_attributes(role: RuleChain) -> Vec<u8> {
    let ChainProperties { kind, netfilter_hook: hook, chain_priority: priority, .. } = chain_properties(role);
    let hook = [encode_number(HOOK_NUMBER, hook), encode_number(HOOK_PRIORITY, priority as u32)].concat();
    let policy = encode_number(CHAIN_POLICY, VERDICT_ACCEPT);
    [chain_name_attribute(role), encode_nested(CHAIN_HOOK, &hook), policy, encode_string(CHAIN_TYPE, kind)]
        .concat()
}

/// A set of hosts' addresses, each with a rate limit. Rules of the table add the addresses.
struct HostRateSet {
    name: String,
    host_set_key: HostSetKey,
}

/// Field of a packet that names the host.
#[derive(Debug, Clone, Copy)]
enum HostSetKey {
    /// Link-layer address of the sender.
    LinkSource,
    /// IP address, of this family.
    Address { family: u8, is_source: bool },
}

impl HostRateSet {
    /// Returns the set to which a rule adds addresses; `None` if the rule has no limit for each host.
    fn rate_set_filled_by_rule(rule: &PacketRule) -> Option<HostRateSet> {
        rule.packets.over_rate.filter(|rate| rate.hosts == LimitedHosts::Each)?;
        HostRateSet::rate_set_for_packets(&rule.packets)
    }

    /// Returns the set for the addresses of a rate limit with these conditions; `None` if they contain no
    /// rate limit for each host.
    fn rate_set_for_packets(packets: &PacketMatch) -> Option<HostRateSet> {
        let by = packets.over_rate?.by;
        if by == HostIdentity::LinkAddress {
            let name = format!("from-{}", packets.input_interface.as_ref()?);
            return Some(HostRateSet { name, host_set_key: HostSetKey::LinkSource });
        }
        let (interface, prefix) = match &packets.input_interface {
            Some(interface) => (interface, packets.source?),
            None => (packets.output_interface.as_ref()?, packets.destination?),
        };
        let is_source = packets.input_interface.is_some();
        let (family, version) =
            if address_family_of(prefix) == FAMILY_IPV4 { (FAMILY_IPV4, 4) } else { (FAMILY_IPV6, 6) };
        let direction = if is_source { "from" } else { "to" };
        let key = HostSetKey::Address { family, is_source };
        Some(HostRateSet { name: format!("{direction}{version}-{interface}"), host_set_key: key })
    }

    /// Returns the attributes that create the set. Each set of a transaction needs a different `id`.
    fn set_definition_attributes(&self, id: u32) -> Vec<u8> {
        // The type is the number by which the program `nft` recognises addresses when it lists the elements.
        let (kind, length) = match self.host_set_key {
            HostSetKey::LinkSource => (9, 6),
            HostSetKey::Address { family: FAMILY_IPV4, .. } => (7, 4),
            HostSetKey::Address { .. } => (8, 16),
        };
        [
            encode_string(SET_TABLE, TABLE_NAME_OF_CARNET),
            encode_string(SET_NAME, &self.name),
            encode_number(SET_FLAGS, SET_FLAGS_FILLED_BY_RULES),
            encode_number(SET_KEY_TYPE, kind),
            encode_number(SET_KEY_LENGTH, length),
            encode_nested(SET_DESCRIPTION, &encode_number(1, MAX_HOSTS_IN_SET)),
            encode_number(SET_ID, id),
            encode_attribute(SET_TIMEOUT, &SET_TIMEOUT_MS.to_be_bytes()),
        ]
        .concat()
    }

    /// Returns the expressions that match packets over the rate.
    fn over_rate_expressions(&self, rate: HostRate) -> Vec<Vec<u8>> {
        // Only frames of an Ethernet interface have a link-layer address. On another interface, the source
        // address names the host.
        let is_ethernet = |operation| {
            vec![
                load_meta(META_INPUT_TYPE),
                compare_register(operation, &INTERFACE_TYPE_ETHERNET.to_ne_bytes()),
            ]
        };
        let (mut expressions, address) = match self.host_set_key {
            HostSetKey::LinkSource => (is_ethernet(COMPARE_EQUAL), load_payload(LINK_HEADER, 6, 6)),
            HostSetKey::Address { family: FAMILY_IPV4, is_source: true } => {
                (is_ethernet(COMPARE_NOT_EQUAL), load_payload(NETWORK_HEADER, 12, 4))
            }
            HostSetKey::Address { is_source: true, .. } => {
                (is_ethernet(COMPARE_NOT_EQUAL), load_payload(NETWORK_HEADER, 8, 16))
            }
            HostSetKey::Address { family: FAMILY_IPV4, .. } => {
                (Vec::new(), load_payload(NETWORK_HEADER, 16, 4))
            }
            HostSetKey::Address { .. } => (Vec::new(), load_payload(NETWORK_HEADER, 24, 16)),
        };
        expressions.push(address);
        // Attribute 4 selects a limit of octets, and attribute 5 makes the expression match above the rate.
        let limit = [
            encode_attribute(1, &rate.octets_per_s.to_be_bytes()),
            encode_attribute(2, &1u64.to_be_bytes()),
            encode_number(3, HOST_BURST_OCTETS),
            encode_number(4, 1),
            encode_number(5, 1),
        ];
        let limit = encode_expression("limit", &limit.concat());
        match rate.hosts {
            LimitedHosts::Each => {
                // The operation 1 (attribute 3) adds the address to the set, or extends its time in the set.
                let data = [
                    encode_string(1, &self.name),
                    encode_number(3, 1),
                    encode_number(4, FIRST_REGISTER),
                    encode_nested(7, &limit),
                ];
                expressions.push(encode_expression("dynset", &data.concat()));
            }
            LimitedHosts::Others => {
                // The flag 1 (attribute 5) inverts the lookup: the expression matches if the set lacks the
                // address.
                let data =
                    [encode_string(1, &self.name), encode_number(2, FIRST_REGISTER), encode_number(5, 1)];
                expressions.extend([encode_expression("lookup", &data.concat()), limit]);
            }
        }
        expressions
    }
}

fn new_rule_attributes(rule: &PacketRule) -> Vec<u8> {
    let mut expressions = condition_expressions(&rule.packets);
    if rule.counts {
        expressions.push(encode_expression("counter", &[]));
    }
    expressions.extend(verdict_expressions(rule.verdict));
    let expressions =
        expressions.iter().map(|it| encode_nested(LIST_ELEMENT, it)).collect::<Vec<_>>().concat();
    [
        encode_string(RULE_TABLE, TABLE_NAME_OF_CARNET),
        encode_string(RULE_CHAIN, chain_properties(rule.chain).name),
        encode_nested(RULE_EXPRESSIONS, &expressions),
    ]
    .concat()
}

/// Returns the count of a rule with these attributes; `None` if the rule does not count.
pub(super) fn parse_rule_count(rule: &[u8]) -> Option<PacketCount> {
    let expressions = find_attribute(rule, RULE_EXPRESSIONS)?;
    let counter = split_attributes(expressions).find_map(|(_, expression)| {
        let is_counter = find_attribute(expression, EXPRESSION_NAME) == Some(&b"counter\0"[..]);
        find_attribute(expression, EXPRESSION_DATA).filter(|_| is_counter)
    })?;
    let number = |kind| Some(u64::from_be_bytes(*find_attribute(counter, kind)?.first_chunk()?));
    Some(PacketCount { packets: number(COUNTER_PACKETS)?, octets: number(COUNTER_OCTETS)? })
}

/// Returns the expressions that compare a packet with these conditions.
fn condition_expressions(packets: &PacketMatch) -> Vec<Vec<u8>> {
    let mut expressions = Vec::new();
    let interfaces =
        [(META_INPUT_NAME, &packets.input_interface), (META_OUTPUT_NAME, &packets.output_interface)];
    for (field, name) in interfaces {
        if let Some(name) = name {
            expressions
                .extend([load_meta(field), compare_register(COMPARE_EQUAL, &padded_interface_name(name))]);
        }
    }
    if let Some(address) = packets.link_source {
        expressions.extend([
            load_meta(META_INPUT_TYPE),
            compare_register(COMPARE_EQUAL, &INTERFACE_TYPE_ETHERNET.to_ne_bytes()),
        ]);
        expressions.extend([load_payload(LINK_HEADER, 6, 6), compare_register(COMPARE_EQUAL, &address)]);
    }
    let family = [packets.source, packets.destination].into_iter().flatten().next().map(address_family_of);
    if let Some(family) = family {
        expressions.extend([load_meta(META_FAMILY), compare_register(COMPARE_EQUAL, &[family])]);
    }
    expressions
        .extend(packets.source.map(|prefix| match_address(prefix, AddressField::Source)).unwrap_or_default());
    let destination = packets.destination.map(|prefix| match_address(prefix, AddressField::Destination));
    expressions.extend(destination.unwrap_or_default());
    if let (Some(dscp), Some(family)) = (packets.dscp, family) {
        expressions.extend(match_traffic_class(dscp, family));
    }
    if let Some(protocol) = packets.protocol {
        expressions.extend([load_meta(META_PROTOCOL), compare_register(COMPARE_EQUAL, &[protocol])]);
    }
    for (offset, ports) in [(0, packets.source_ports), (2, packets.ports)] {
        if let Some(PortRange { first, last }) = ports {
            expressions.push(load_payload(TRANSPORT_HEADER, offset, 2));
            expressions.push(compare_register(COMPARE_AT_LEAST, &first.to_be_bytes()));
            expressions.push(compare_register(COMPARE_AT_MOST, &last.to_be_bytes()));
        }
    }
    if let Some(kind) = packets.icmp_type {
        expressions.extend([load_payload(TRANSPORT_HEADER, 0, 1), compare_register(COMPARE_EQUAL, &[kind])]);
    }
    let marks = [
        (load_meta(META_MARK), packets.mark),
        (load_connection_field(CONNECTION_MARK), packets.connection_mark),
    ];
    for (load, mark) in marks {
        if let Some(Mark { mask, value }) = mark {
            expressions.extend([load, mask_register(&mask.to_ne_bytes(), &[0; 4])]);
            expressions.push(compare_register(COMPARE_EQUAL, &value.to_ne_bytes()));
        }
    }
    if !packets.states.is_empty() {
        let bits = packets.states.iter().fold(0, |bits, state| bits | connection_state_bit(*state));
        expressions.push(load_connection_field(CONNECTION_STATE));
        expressions.extend([
            mask_register(&bits.to_ne_bytes(), &[0; 4]),
            compare_register(COMPARE_NOT_EQUAL, &[0; 4]),
        ]);
    }
    if packets.is_answer {
        expressions.extend([
            load_connection_field(CONNECTION_DIRECTION),
            compare_register(COMPARE_EQUAL, &[DIRECTION_REPLY]),
        ]);
    }
    let limit = packets.over_rate.zip(HostRateSet::rate_set_for_packets(packets));
    expressions.extend(limit.map(|(rate, set)| set.over_rate_expressions(rate)).unwrap_or_default());
    expressions
}

/// Returns the expressions that carry out the verdict of a rule.
fn verdict_expressions(verdict: RuleVerdict) -> Vec<Vec<u8>> {
    match verdict {
        RuleVerdict::Continue => Vec::new(),
        RuleVerdict::Accept => vec![end_with_verdict(VERDICT_ACCEPT)],
        RuleVerdict::Drop => vec![end_with_verdict(VERDICT_DROP)],
        RuleVerdict::Masquerade => vec![encode_expression("masq", &[])],
        RuleVerdict::SourcePrefix(prefix) | RuleVerdict::DestinationPrefix(prefix) => {
            // Attribute 1 says which address changes: 0 the source, 1 the destination.
            let kind = u32::from(matches!(verdict, RuleVerdict::DestinationPrefix(_)));
            let (family, first, last) = match mapped::to_ipv4(prefix) {
                Some(prefix) => {
                    (FAMILY_IPV4, prefix.network().octets().to_vec(), prefix.broadcast().octets().to_vec())
                }
                None => {
                    (FAMILY_IPV6, prefix.network().octets().to_vec(), prefix.broadcast().octets().to_vec())
                }
            };
            let data = [
                encode_number(1, kind),
                encode_number(2, family.into()),
                encode_number(3, FIRST_REGISTER),
                encode_number(4, SECOND_REGISTER),
                encode_number(7, KEEP_HOST_BITS),
            ];
            vec![
                load_register(FIRST_REGISTER, &first),
                load_register(SECOND_REGISTER, &last),
                encode_expression("nat", &data.concat()),
            ]
        }
        RuleVerdict::DestinationAddress(address) => {
            let (family, octets) = match address {
                IpAddr::V4(address) => (FAMILY_IPV4, address.octets().to_vec()),
                IpAddr::V6(address) => (FAMILY_IPV6, address.octets().to_vec()),
            };
            // The value 1 of attribute 1 makes the kernel change the destination address.
            let data =
                [encode_number(1, 1), encode_number(2, family.into()), encode_number(3, FIRST_REGISTER)];
            vec![load_register(FIRST_REGISTER, &octets), encode_expression("nat", &data.concat())]
        }
        RuleVerdict::SetMark(Mark { mask, value }) => vec![
            load_meta(META_MARK),
            mask_register(&(!mask).to_ne_bytes(), &value.to_ne_bytes()),
            encode_expression(
                "meta",
                &[encode_number(2, META_MARK), encode_number(3, FIRST_REGISTER)].concat(),
            ),
        ],
        RuleVerdict::SetConnectionMark(Mark { mask, value }) => vec![
            load_connection_field(CONNECTION_MARK),
            mask_register(&(!mask).to_ne_bytes(), &value.to_ne_bytes()),
            encode_expression(
                "ct",
                &[encode_number(2, CONNECTION_MARK), encode_number(4, FIRST_REGISTER)].concat(),
            ),
        ],
        RuleVerdict::Zone(zone) => {
            let data = [
                encode_number(2, CONNECTION_ZONE),
                encode_attribute(3, &[DIRECTION_ORIGINAL]),
                encode_number(4, FIRST_REGISTER),
            ];
            vec![load_register(FIRST_REGISTER, &zone.to_ne_bytes()), encode_expression("ct", &data.concat())]
        }
    }
}

/// Bit of a state in the expression `ct state`.
fn connection_state_bit(state: ConnectionState) -> u32 {
    match state {
        ConnectionState::Invalid => 1,
        ConnectionState::Established => 2,
        ConnectionState::Related => 4,
        ConnectionState::New => 8,
        ConnectionState::Untracked => 64,
    }
}

/// Address field of an IP header.
#[derive(Debug, Clone, Copy)]
enum AddressField {
    Source,
    Destination,
}

fn address_family_of(prefix: Ipv6Net) -> u8 {
    if mapped::to_ipv4(prefix).is_some() { FAMILY_IPV4 } else { FAMILY_IPV6 }
}

/// Returns the expressions that compare an address with a prefix; none if the prefix contains every address.
fn match_address(prefix: Ipv6Net, field: AddressField) -> Vec<Vec<u8>> {
    let prefix = mapped::to_ipv4(prefix).map_or(IpNet::V6(prefix), IpNet::V4);
    if prefix.prefix_len() == 0 {
        return Vec::new();
    }
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (network, mask) = (octets(prefix.network()), octets(prefix.netmask()));
    let offset = match (prefix, field) {
        (IpNet::V4(_), AddressField::Source) => 12,
        (IpNet::V4(_), AddressField::Destination) => 16,
        (IpNet::V6(_), AddressField::Source) => 8,
        (IpNet::V6(_), AddressField::Destination) => 24,
    };
    if prefix.prefix_len().is_multiple_of(8) {
        // A prefix of whole octets is compared octet by octet, without a mask.
        let length = usize::from(prefix.prefix_len() / 8);
        return vec![
            load_payload(NETWORK_HEADER, offset, length as u32),
            compare_register(COMPARE_EQUAL, &network[..length]),
        ];
    }
    let nothing = vec![0; mask.len()];
    vec![
        load_payload(NETWORK_HEADER, offset, mask.len() as u32),
        mask_register(&mask, &nothing),
        compare_register(COMPARE_EQUAL, &network),
    ]
}

/// Returns the expressions that compare the DSCP field with a value.
fn match_traffic_class(dscp: u8, family: u8) -> Vec<Vec<u8>> {
    let (offset, length, mask, value) = match family {
        FAMILY_IPV4 => (1, 1, vec![0xfc], vec![dscp << 2]),
        _ => {
            // The DSCP is the last four bits of the IPv6 header's first octet and two bits of its second
            // octet.
            let word = u16::from(dscp) << 6;
            (0, 2, 0x0fc0_u16.to_be_bytes().to_vec(), word.to_be_bytes().to_vec())
        }
    };
    let nothing = vec![0; mask.len()];
    vec![
        load_payload(NETWORK_HEADER, offset, length),
        mask_register(&mask, &nothing),
        compare_register(COMPARE_EQUAL, &value),
    ]
}

fn padded_interface_name(name: &str) -> [u8; libc::IFNAMSIZ] {
    let mut octets = [0; libc::IFNAMSIZ];
    for (octet, value) in octets[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *octet = value;
    }
    octets
}

/// Loads metadata of the packet into the register.
fn load_meta(field: u32) -> Vec<u8> {
    encode_expression("meta", &[encode_number(1, FIRST_REGISTER), encode_number(2, field)].concat())
}

/// Loads a field of the packet's connection into the register.
fn load_connection_field(field: u32) -> Vec<u8> {
    encode_expression("ct", &[encode_number(1, FIRST_REGISTER), encode_number(2, field)].concat())
}

/// Loads octets of a header into the register.
fn load_payload(header: u32, offset: u32, length: u32) -> Vec<u8> {
    let data = [
        encode_number(1, FIRST_REGISTER),
        encode_number(2, header),
        encode_number(3, offset),
        encode_number(4, length),
    ];
    encode_expression("payload", &data.concat())
}

/// Returns the expression of nftables that compares the register of the rule with a value.
fn compare_register(operation: u32, value: &[u8]) -> Vec<u8> {
    let data = [
        encode_number(1, FIRST_REGISTER),
        encode_number(2, operation),
        encode_nested(3, &encode_attribute(1, value)),
    ];
    encode_expression("cmp", &data.concat())
}

/// Clears the bits of the register that `mask` lacks, then inverts the bits in `inverted`.
fn mask_register(mask: &[u8], inverted: &[u8]) -> Vec<u8> {
    let data = [
        encode_number(1, FIRST_REGISTER),
        encode_number(2, FIRST_REGISTER),
        encode_number(3, mask.len() as u32),
        encode_nested(4, &encode_attribute(1, mask)),
        encode_nested(5, &encode_attribute(1, inverted)),
    ];
    encode_expression("bitwise", &data.concat())
}

/// Writes a value into a register.
fn load_register(register: u32, value: &[u8]) -> Vec<u8> {
    encode_expression(
        "immediate",
        &[encode_number(1, register), encode_nested(2, &encode_attribute(1, value))].concat(),
    )
}

/// Ends the evaluation with a verdict.
fn end_with_verdict(code: u32) -> Vec<u8> {
    let verdict = encode_nested(2, &encode_number(1, code));
    encode_expression("immediate", &[encode_number(1, VERDICT_REGISTER), encode_nested(2, &verdict)].concat())
}

fn encode_expression(name: &str, data: &[u8]) -> Vec<u8> {
    [encode_string(EXPRESSION_NAME, name), encode_nested(EXPRESSION_DATA, data)].concat()
}

fn encode_nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    encode_attribute(kind | NESTED_ATTRIBUTE, attributes)
}

fn encode_number(kind: u16, value: u32) -> Vec<u8> {
    encode_attribute(kind, &value.to_be_bytes())
}

fn encode_string(kind: u16, text: &str) -> Vec<u8> {
    encode_attribute(kind, &[text.as_bytes(), &[0]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generic_netlink::{FLAG_REQUEST, split_attributes, split_received};

    /// The expressions that `nft add rule inet x n ip6 saddr 2001:db8::/64 snat ip6 prefix to 2001:db9::/64`
    /// (nftables 1.0.6) sends.
    const EXPRESSIONS_OF_NFT: &[&str] = &[
        "24000180090001006d6574610000000014000280080002000000000f08000100000000012c00018008000100",
        "636d700020000280080001000000000108000200000000000c000380050001000a000000340001800c000100",
        "7061796c6f616400240002800800010000000001080002000000000108000300000000080800040000000008",
        "3000018008000100636d70002400028008000100000000010800020000000000100003800c00010020010db8",
        "00000000380001800e000100696d6d6564696174650000002400028008000100000000011800028014000100",
        "20010db9000000000000000000000000380001800e000100696d6d6564696174650000002400028008000100",
        "00000002180002801400010020010db900000000ffffffffffffffff38000180080001006e6174002c000280",
        "0800010000000000080002000000000a080003000000000108000400000000020800070000000040",
    ];

    /// Returns an attribute's octets with the attributes inside sorted: their order has no meaning.
    fn sort_attributes(octets: &[u8]) -> Vec<Vec<u8>> {
        let mut list: Vec<Vec<u8>> =
            split_attributes(octets).map(|(kind, value)| encode_attribute(kind, value)).collect();
        list.sort();
        list
    }

    /// Returns name and sorted data of each expression in a list.
    fn parse_expressions(list: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let data = |element: &[u8]| -> Vec<Vec<u8>> {
            split_attributes(element)
                .flat_map(|(kind, value)| match kind {
                    EXPRESSION_DATA => sort_attributes(value),
                    _ => vec![value.to_vec()],
                })
                .collect()
        };
        split_attributes(list).map(|(_, element)| data(element)).collect()
    }

    fn parse_prefix(text: &str) -> Ipv6Net {
        text.parse().expect("prefix")
    }

    fn rule(packets: PacketMatch, verdict: RuleVerdict) -> PacketRule {
        PacketRule { chain: RuleChain::SourceNat, order: 0, packets, counts: false, total: None, verdict }
    }

    #[test]
    fn rule_has_expressions_of_nft() {
        let packets = PacketMatch { source: Some(parse_prefix("2001:db8::/64")), ..PacketMatch::default() };
        let rule =
            new_rule_attributes(&rule(packets, RuleVerdict::SourcePrefix(parse_prefix("2001:db9::/64"))));
        let expressions =
            split_attributes(&rule).find(|(kind, _)| *kind == RULE_EXPRESSIONS).expect("a list").1;
        let of_nft = EXPRESSIONS_OF_NFT.concat();
        let of_nft: Vec<u8> = (0..of_nft.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&of_nft[at..at + 2], 16).expect("hex digits"))
            .collect();
        assert_eq!(parse_expressions(expressions), parse_expressions(&of_nft));
    }

    #[test]
    fn nftables_transaction_replaces_table_or_removes_it_if_empty() {
        let kinds = |transaction: &RulesetTransaction| -> Vec<(u16, u16)> {
            split_received(&transaction.octets).map(|message| (message.kind, message.flags)).collect()
        };
        let empty = RulesetTransaction::replace_table([].iter(), 7);
        assert_eq!((empty.first_sequence, empty.last_sequence), (7, 9));
        assert_eq!(
            kinds(&empty),
            [
                (BATCH_BEGIN, FLAG_REQUEST),
                (NEW_TABLE, FLAG_REQUEST | FLAG_CREATE),
                (DELETE_TABLE, FLAG_REQUEST | FLAG_ACKNOWLEDGE),
                (BATCH_END, FLAG_REQUEST)
            ]
        );
        let rules = [rule(PacketMatch::default(), RuleVerdict::Masquerade)];
        assert_eq!(
            kinds(&RulesetTransaction::replace_table(rules.iter(), 0)),
            [
                (BATCH_BEGIN, FLAG_REQUEST),
                (NEW_TABLE, FLAG_REQUEST | FLAG_CREATE),
                (DELETE_TABLE, FLAG_REQUEST),
                (NEW_TABLE, FLAG_REQUEST | FLAG_CREATE),
                (NEW_CHAIN, FLAG_REQUEST | FLAG_CREATE),
                (NEW_RULE, FLAG_REQUEST | FLAG_CREATE | FLAG_APPEND | FLAG_ACKNOWLEDGE),
                (BATCH_END, FLAG_REQUEST)
            ]
        );
    }
}
