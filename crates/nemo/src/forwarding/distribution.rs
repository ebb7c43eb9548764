//! Selects the tunnel of a packet if the home address has several tunnels.
//!
//! A home address with several registered care-of addresses (RFC 5648) has a list of rules (flow bindings,
//! RFC 6089). The first rule that matches a packet and has a working tunnel decides. The action of a rule is
//! one of three:
//!
//! * `failover`: the first working tunnel of the list.
//! * `balance`: one tunnel for each flow (addresses, protocol, ports). Rendezvous hashing with weights
//!   selects the tunnel with the best score for that flow. When a tunnel fails, only its own flows move, each
//!   to its second best tunnel. When a tunnel returns, only the flows move for which it has the best score.
//!   Weights are measured values and vary all the time. The distributor keeps the old weights as long as no
//!   share changes by more than a quarter.
//! * `duplicate`: the first four working tunnels of the list. The receiver keeps the first copy of each
//!   packet ([`super::duplicates`]).
//!
//! Later fragments of a packet do not contain the ports. They take the tunnel of the packet's first fragment
//! if that fragment arrived before them. Otherwise the distributor uses the fields that the later fragment
//! contains. The distributor remembers first fragments for a limited time and in limited number.
//!
//! A fast path chooses by the same rules, weights and hash key, and therefore the same tunnel
//! (`bpf/choice.h`). For this reason the hash uses integers only.
//!
//! A selector of IPv4 matches IPv4 packets alone (RFC 6088). A selector of IPv6 that names neither addresses
//! nor flow label matches IPv4 packets, too: their DSCP, protocol and ports compare like those of IPv6.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_mobility::flow::{FlowAction, FlowFields};
use carnet_wire::extension::find_upper_layer;
use carnet_wire::fragment::FragmentHeader;
use carnet_wire::ipv4;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};

use super::desired::{DistributionMember, DistributionRule, FlowDistribution, TunnelEnd};
use super::inner_packet;
use super::path_mtu::TunnelEnds;

/// Internal value of the weight 1: integers can then express fractions of a weight.
const WEIGHT_UNIT: f64 = 4096.0;
/// Largest factor by which the share of a member may change without new weights. The distributor then keeps
/// the old weights, so that no flow moves.
const WEIGHT_TOLERANCE: f64 = 1.25;
/// Largest number of tunnels to which one packet is copied. RFC 6089 4.2 has no limit. Without one, a node
/// could register sixteen care-of addresses of a third party, which would receive each packet sixteen times.
pub const MAX_COPIES: usize = 4;
/// Largest number of fragmented packets whose first fragment's ports are stored.
const MAX_FRAGMENTED_PACKETS: usize = 256;
const FRAGMENT_FLOW_LIFETIME: Duration = Duration::from_secs(10);

const PROTOCOL_DCCP: u8 = 33;
const PROTOCOL_SCTP: u8 = 132;
const PROTOCOL_UDP_LITE: u8 = 136;

/// Tunnels that a rule selects for a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelChoice {
    /// The packet goes into this tunnel.
    One(TunnelEnds),
    /// A copy of the packet goes into each of these tunnels, at most [`MAX_COPIES`].
    All(Vec<TunnelEnds>),
    /// No tunnel of the rule works.
    None,
}

/// Key of a fragmented packet: source, destination and Identification.
type FragmentedPacketId = (Ipv6Addr, Ipv6Addr, u32);

/// Rules of a home address, with the state of `balance` and of fragmented packets.
#[derive(Debug, Clone)]
pub struct FlowDistributor {
    end: TunnelEnd,
    rules: Vec<WeightedRule>,
    /// Secret key of the flow hash. It prevents a sender from selecting a tunnel by its addresses and ports.
    flow_hash_key: u64,
    fragmented_flows: HashMap<FragmentedPacketId, (Time, FlowFields)>,
    /// Keys of the fragmented packets, in the order of arrival.
    fragment_arrival_order: VecDeque<(Time, FragmentedPacketId)>,
}

#[derive(Debug, Clone)]
struct WeightedRule {
    rule: DistributionRule,
    /// Identity of each member and its weight in use, which is not 0.
    weights_in_use: Vec<(u64, u32)>,
}

/// Returns the identity of a member, independent of its weight. With a Binding Identifier, the identity is
/// independent of the addresses, too.
fn member_identity(member: &DistributionMember) -> u64 {
    match member.bid {
        Some(bid) => mix_hash_bits(u64::from(bid) | 1 << 32),
        None => [member.local, member.remote]
            .iter()
            .flat_map(|end| end.to_string().into_bytes())
            .fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
                (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
            }),
    }
}

fn mix_hash_bits(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl FlowDistributor {
    /// Creates the distributor for these rules. The new distributor keeps the weights and fragments of
    /// `before`. Without `before`, `key` is the key of its hash: the key of outer flow labels
    /// ([`super::forwarder::Forwarder::flow_label_key`]).
    pub fn new(
        distribution: &FlowDistribution,
        before: Option<FlowDistributor>,
        key: u64,
    ) -> FlowDistributor {
        let rules = distribution.rules.iter();
        let rules = rules.map(|rule| {
            let old = before.iter().flat_map(|before| &before.rules);
            // Rules have no names: a new rule keeps the state of the old rule with the same selector.
            let old = old.clone().find(|old| old.rule.selector == rule.selector);
            WeightedRule { rule: rule.clone(), weights_in_use: weights_to_use(rule, old) }
        });
        let rules = rules.collect();
        match before {
            Some(before) => FlowDistributor { end: distribution.end, rules, ..before },
            None => FlowDistributor {
                end: distribution.end,
                rules,
                flow_hash_key: key,
                fragmented_flows: HashMap::new(),
                fragment_arrival_order: VecDeque::new(),
            },
        }
    }

    /// Returns whether a rule sends packets into several tunnels at once.
    pub fn has_duplicating_rule(&self) -> bool {
        self.rules.iter().any(|rule| rule.rule.action == FlowAction::Duplicate)
    }

    /// Returns the rules, each with the identity and the present weight (not 0) of its members.
    pub fn rules(&self) -> impl Iterator<Item = (&DistributionRule, &[(u64, u32)])> {
        self.rules.iter().map(|WeightedRule { rule, weights_in_use: weights }| (rule, weights.as_slice()))
    }

    /// Chooses the tunnels for `packet`. `exists` says whether a tunnel works.
    pub fn choose_tunnels(
        &mut self,
        now: Time,
        header: &Header,
        packet: &[u8],
        exists: impl Fn(&TunnelEnds) -> bool,
    ) -> TunnelChoice {
        let flow = self.flow_of_packet(now, header, packet);
        let seen = match self.end {
            TunnelEnd::HomeAgent | TunnelEnd::Direct => flow,
            TunnelEnd::MobileRouter => flow.reversed(),
        };
        for WeightedRule { rule, weights_in_use: weights } in &self.rules {
            if rule.selector.is_some_and(|selector| !selector.matches(&seen)) {
                continue;
            }
            let ends = |member: &DistributionMember| (member.local, member.remote);
            let mut living = rule.members.iter().zip(weights).filter(|(member, _)| exists(&ends(member)));
            let choice = match rule.action {
                FlowAction::Failover => living.next().map(|(member, _)| TunnelChoice::One(ends(member))),
                FlowAction::Balance => {
                    let conversation = self.conversation_hash(&seen);
                    living
                        .map(|(member, weight)| (member, member_score(conversation, *weight)))
                        .min_by_key(|(_, score)| *score)
                        .map(|(member, _)| TunnelChoice::One(ends(member)))
                }
                FlowAction::Duplicate => {
                    let all: Vec<TunnelEnds> =
                        living.map(|(member, _)| ends(member)).take(MAX_COPIES).collect();
                    (!all.is_empty()).then_some(TunnelChoice::All(all))
                }
            };
            if let Some(choice) = choice {
                return choice;
            }
        }
        TunnelChoice::None
    }

    /// Returns a keyed hash of the flow: addresses, protocol and ports. Both directions have the same hash,
    /// so two ends with the same key choose the same tunnel.
    fn conversation_hash(&self, flow: &FlowFields) -> u64 {
        let ports = flow.ports.map_or(0, |(one, other)| u64::from(one) << 16 | u64::from(other));
        let rest = u64::from(flow.next_header) << 32 | ports;
        let mut hash = self.flow_hash_key;
        for address in [u128::from(flow.source), u128::from(flow.destination)] {
            hash = mix_hash_bits(hash ^ address as u64);
            hash = mix_hash_bits(hash ^ (address >> 64) as u64);
        }
        mix_hash_bits(hash ^ rest)
    }

    /// Returns the fields of a packet that selectors compare.
    fn flow_of_packet(&mut self, now: Time, header: &Header, packet: &[u8]) -> FlowFields {
        let mut flow = FlowFields {
            source: header.source,
            destination: header.destination,
            traffic_class: header.traffic_class,
            flow_label: header.flow_label,
            next_header: header.next_header,
            ports: None,
            spi: None,
        };
        let Some((upper, offset, whole)) = upper_layer_of(packet) else { return flow };
        flow.next_header = upper;
        let rest = packet.get(offset..).unwrap_or_default();
        if whole {
            let word = |at: usize| rest.get(at..at + 4).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
            match upper {
                protocol::TCP | protocol::UDP | PROTOCOL_DCCP | PROTOCOL_SCTP | PROTOCOL_UDP_LITE => {
                    flow.ports =
                        word(0).map(|[a, b, c, d]| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
                }
                protocol::ESP => flow.spi = word(0).map(u32::from_be_bytes),
                protocol::AUTHENTICATION => flow.spi = word(4).map(u32::from_be_bytes),
                _ => {}
            }
        }
        let Some((identification, is_later, more)) = fragment_header_of(packet) else { return flow };
        let name = (header.source, header.destination, identification);
        if is_later {
            let known = self.fragmented_flows.get(&name);
            return known
                .filter(|(since, _)| now.saturating_since(*since) < FRAGMENT_FLOW_LIFETIME)
                .map_or(flow, |(_, first)| *first);
        }
        if more {
            self.store_fragmented_flow(now, name, flow);
        }
        flow
    }

    fn store_fragmented_flow(&mut self, now: Time, name: FragmentedPacketId, flow: FlowFields) {
        while let Some((since, oldest)) = self.fragment_arrival_order.front().copied() {
            if self.fragment_arrival_order.len() < MAX_FRAGMENTED_PACKETS
                && now.saturating_since(since) < FRAGMENT_FLOW_LIFETIME
            {
                break;
            }
            self.fragment_arrival_order.pop_front();
            // Keep the entry if a later fragment has renewed it.
            if self.fragmented_flows.get(&oldest).is_some_and(|(at, _)| *at == since) {
                self.fragmented_flows.remove(&oldest);
            }
        }
        self.fragmented_flows.insert(name, (now, flow));
        self.fragment_arrival_order.push_back((now, name));
    }
}

/// Finds the upper layer of an IPv4 or IPv6 packet. The returned values are those of [`find_upper_layer`];
/// `None` if the headers are incomplete.
fn upper_layer_of(packet: &[u8]) -> Option<(u8, usize, bool)> {
    if !inner_packet::is_ipv4(packet) {
        return find_upper_layer(packet);
    }
    let header = ipv4::Header::parse(packet).ok()?;
    Some((header.protocol, header.header_length, !header.is_later_fragment()))
}

/// Returns the Identification of a fragment, whether the fragment is a later one of its packet, and whether
/// more fragments follow. Returns `None` if the packet is no fragment.
fn fragment_header_of(packet: &[u8]) -> Option<(u32, bool, bool)> {
    if inner_packet::is_ipv4(packet) {
        let header = ipv4::Header::parse(packet).ok()?;
        let is_fragment = header.more_fragments || header.is_later_fragment();
        let of = (header.identification.into(), header.is_later_fragment(), header.more_fragments);
        return is_fragment.then_some(of);
    }
    let fragment = ipv6_fragment_header_of(packet)?;
    Some((fragment.identification, fragment.is_later_fragment(), fragment.more_fragments))
}

/// Returns the Fragment header of an IPv6 packet, if any.
fn ipv6_fragment_header_of(packet: &[u8]) -> Option<FragmentHeader> {
    let mut next = Header::parse(packet).ok()?.next_header;
    let mut offset = HEADER_LEN;
    for _ in 0..carnet_wire::extension::MAX_HEADERS {
        match next {
            protocol::FRAGMENT => return FragmentHeader::parse(packet.get(offset..)?).ok(),
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                next = *packet.get(offset)?;
                offset += (usize::from(*packet.get(offset + 1)?) + 1) * 8;
            }
            _ => return None,
        }
    }
    None
}

/// Returns -log2(`hash` / 2^64) with 24 fractional bits. For uniform hashes the results are exponentially
/// distributed.
fn negative_log2(hash: u64) -> u64 {
    let hash = hash | 1;
    let zeros = u64::from(hash.leading_zeros());
    let mut mantissa = (hash << zeros) >> 32;
    let mut fraction = 0;
    for _ in 0..24 {
        mantissa = (mantissa * mantissa) >> 31;
        let bit = mantissa >> 32;
        fraction = fraction << 1 | bit;
        mantissa >>= bit;
    }
    ((zeros + 1) << 24) - fraction
}

/// Returns the score of a member; the member with the lowest score is the best. The score is an exponential
/// variate with the weight as its rate. So each member has the lowest score with a probability in proportion
/// to its weight.
fn member_score(conversation: u64, (member, weight): (u64, u32)) -> u64 {
    (negative_log2(mix_hash_bits(conversation ^ member)) << 32) / u64::from(weight.max(1))
}

/// Returns the weights to use: the previous weights, unless a share changes by more than
/// [`WEIGHT_TOLERANCE`].
fn weights_to_use(rule: &DistributionRule, before: Option<&WeightedRule>) -> Vec<(u64, u32)> {
    let in_use = |weight: f64| (weight * WEIGHT_UNIT).round().clamp(1.0, f64::from(u32::MAX)) as u32;
    // Take a weight of 0 as 1. To exclude a tunnel, the operator removes it from the rule.
    let wanted: Vec<(u64, f64)> = rule
        .members
        .iter()
        .map(|member| (member_identity(member), f64::from(member.weight.max(1))))
        .collect();
    let old =
        |id: u64| before?.weights_in_use.iter().find(|(known, _)| *known == id).map(|(_, weight)| *weight);
    // For each member that was in the rule before: its old weight divided by its new weight.
    let ratios: Vec<f64> = wanted
        .iter()
        .filter_map(|(id, weight)| old(*id).map(|old| f64::from(old) / WEIGHT_UNIT / weight))
        .collect();
    let (least, most) =
        ratios.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), r| (least.min(*r), most.max(*r)));
    if ratios.is_empty() || most > least * WEIGHT_TOLERANCE {
        return wanted.into_iter().map(|(id, weight)| (id, in_use(weight))).collect();
    }
    let scale = (least * most).sqrt();
    wanted.into_iter().map(|(id, weight)| (id, old(id).unwrap_or(in_use(weight * scale)))).collect()
}

#[cfg(test)]
mod tests;
