//! Compact state of one node in the binding cache. A home agent may have very many nodes, and nearly all have
//! one binding.
//!
//! The cache builds a [`Binding`] from this state for each caller. This module stores values once that all
//! bindings of the node (RFC 5648 4.1) or all nodes share. State that only few nodes have is in a separate
//! allocation, so the other nodes need only a pointer for it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use carnet_base::{Endpoint, SmallList, Time};
use ipnet::Ipv6Net;

use super::binding::{Binding, BindingState, CareOfAddressAge, FormerPath, MAX_BINDINGS, preference_rank};
use super::replay_state::{KeyNumbers, ReplayState};
use crate::flow::FlowBinding;
use crate::sequence::count_used_numbers;

/// Maximum number of former care-of addresses of one node; the home agent removes the oldest first.
const MAX_FORMER_PATHS: usize = 2 * MAX_BINDINGS;
/// Maximum number of former care-of addresses of one node that still count as tested. The home agent removes
/// the address first that the node left first.
const MAX_TESTED_ADDRESSES: usize = MAX_BINDINGS;
/// The home agent stores how many sequence numbers a node has used under each of its keys. This is the
/// maximum number of keys without the first key of the config. It removes the key first that was used longest
/// ago. If the operator configures a removed key again, its count starts at 0, so old replays under it are
/// possible.
const MAX_OTHER_KEYS: usize = 32;
/// Divisor of the lifetime: the home agent asks for a renewal when an eighth of the lifetime is left. A node
/// renews earlier by itself, so at this time its update must have been lost.
const REFRESH_WORTH: u32 = 8;

/// Kind of the next event of a binding. At equal times the expiry comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DueEvent {
    /// The lifetime ends.
    Expiry,
    /// The home agent asks the node to renew the binding.
    RefreshRequest,
}

/// Ends of a tunnel, first that of the home agent. The variants of common tunnels need no allocation.
#[derive(Debug, Clone)]
enum TunnelEnds {
    /// Tunnel in IPv6: the home agent's end is its IPv6 address, the node's end is this care-of address.
    Ipv6(Ipv6Addr),
    Ipv4([Ipv4Addr; 2]),
    Udp([SocketAddrV4; 2]),
    Other(Box<(Endpoint, Endpoint)>),
}

impl TunnelEnds {
    fn new(home_agent: Ipv6Addr, ends: (Endpoint, Endpoint)) -> TunnelEnds {
        match ends {
            (agent, Endpoint::Ipv6(node)) if agent == home_agent => TunnelEnds::Ipv6(node),
            (Endpoint::Ipv4(agent), Endpoint::Ipv4(node)) => TunnelEnds::Ipv4([agent, node]),
            (Endpoint::Udp(agent), Endpoint::Udp(node)) => TunnelEnds::Udp([agent, node]),
            ends => TunnelEnds::Other(Box::new(ends)),
        }
    }

    fn to_endpoints(&self, home_agent: Ipv6Addr) -> (Endpoint, Endpoint) {
        match self {
            TunnelEnds::Ipv6(node) => (home_agent.into(), (*node).into()),
            TunnelEnds::Ipv4([agent, node]) => ((*agent).into(), (*node).into()),
            TunnelEnds::Udp([agent, node]) => (Endpoint::Udp(*agent), Endpoint::Udp(*node)),
            TunnelEnds::Other(ends) => **ends,
        }
    }
}

/// State of one binding of the node.
#[derive(Debug, Clone)]
pub(super) struct BindingEntry {
    pub bid: Option<u16>,
    pub state: BindingState,
    pub mobile_router: bool,
    link_local: bool,
    /// Whether the home agent has asked the node to renew the binding, or will never ask.
    is_refresh_requested: bool,
    /// Whether the care-of address was tested, see [`Binding::is_care_of_tested`].
    pub is_care_of_tested: bool,
    priority: u8,
    /// Lifetime in seconds, a multiple of four.
    lifetime: u32,
    tunnel_ends: TunnelEnds,
    care_of_address_age: CareOfAddressAge,
    expires_at: Time,
}

impl BindingEntry {
    fn new(home_agent: Ipv6Addr, binding: &Binding) -> BindingEntry {
        let margin = binding.lifetime / REFRESH_WORTH;
        BindingEntry {
            bid: binding.bid,
            state: binding.state,
            mobile_router: binding.mobile_router,
            link_local: binding.link_local,
            is_refresh_requested: margin.as_secs() < 1,
            is_care_of_tested: binding.is_care_of_tested,
            priority: binding.priority,
            lifetime: u32::try_from(binding.lifetime.as_secs()).unwrap_or(u32::MAX),
            tunnel_ends: TunnelEnds::new(home_agent, binding.tunnel_ends()),
            care_of_address_age: binding.care_of_address_age,
            expires_at: binding.expires_at,
        }
    }

    pub fn is_valid(&self) -> bool {
        self.state == BindingState::Valid
    }

    pub fn preference_rank(&self) -> (u8, Option<u16>) {
        preference_rank(self.priority, self.bid)
    }

    pub fn tunnel_ends(&self, home_agent: Ipv6Addr) -> (Endpoint, Endpoint) {
        self.tunnel_ends.to_endpoints(home_agent)
    }

    fn lifetime(&self) -> Duration {
        Duration::from_secs(self.lifetime.into())
    }

    fn next_event(&self) -> (Time, DueEvent) {
        match self.is_refresh_requested {
            false => (self.expires_at - self.lifetime() / REFRESH_WORTH, DueEvent::RefreshRequest),
            true => (self.expires_at, DueEvent::Expiry),
        }
    }
}

/// State that few nodes have.
#[derive(Debug, Default)]
struct RareNodeState {
    /// Former paths from which the home agent still accepts packets, the oldest first.
    former_paths: Vec<FormerPath>,
    /// Flow bindings, ordered by priority (RFC 6089 4.3).
    flows: Vec<FlowBinding>,
    /// Prefixes of bindings whose home address is still being tested. [`NodeState::prefixes`] has the
    /// prefixes of the valid bindings.
    pending_prefixes: BTreeMap<Option<u16>, Arc<[Ipv6Net]>>,
    /// Used sequence numbers of all keys but the first in the config, including keys that the config no
    /// longer has. The key used longest ago is first.
    other_keys: Vec<KeyNumbers>,
    /// Care-of addresses that the node has left and that still count as tested, each with the time until
    /// which it does. The address that the node left first is first.
    tested_addresses: Vec<(Endpoint, Time)>,
}

impl RareNodeState {
    fn is_empty(&self) -> bool {
        self.former_paths.is_empty()
            && self.flows.is_empty()
            && self.pending_prefixes.is_empty()
            && self.other_keys.is_empty()
            && self.tested_addresses.is_empty()
    }
}

/// State of one node.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    /// Bindings in the order of their Binding Identifiers, or one plain binding.
    bindings: SmallList<BindingEntry>,
    /// Prefixes of the last accepted registration.
    prefixes: Arc<[Ipv6Net]>,
    rare_node_state: Option<Box<RareNodeState>>,
    /// Last accepted sequence number; `None` if the home agent knows none. It is kept for
    /// `MAX_DELETE_BCE_TIMEOUT` after a de-registration. So the home agent refuses an old Binding Update that
    /// arrives late from the visited link (RFC 6275 10.3.2).
    pub sequence: Option<u16>,
    /// Sequence number in the node's [`ReplayState`]; `None` before the first one. `accepted_timestamp` and
    /// `has_timestamp` are the timestamp in this state.
    accepted_sequence: Option<u16>,
    /// Number of sequence numbers that the node has used under the first key of the config, see
    /// [`NodeState::count_sequence_number`].
    used_sequence_numbers: u32,
    accepted_timestamp: u64,
    has_timestamp: bool,
}

impl NodeState {
    /// Returns whether the node has no state.
    pub fn is_empty(&self) -> bool {
        self.is_unbound()
            && self.sequence.is_none()
            && self.former_paths().is_empty()
            && self.accepted_sequence.is_none()
            && !self.has_timestamp
    }

    /// Returns whether the node has no binding in any state.
    pub fn is_unbound(&self) -> bool {
        self.binding_entries().is_empty()
    }

    /// Returns the bindings by Binding Identifier, in any state.
    pub fn binding_entries(&self) -> &[BindingEntry] {
        self.bindings.as_slice()
    }

    /// Returns the binding with this identifier; `None` without such a binding.
    pub fn entry(&self, bid: Option<u16>) -> Option<&BindingEntry> {
        self.binding_entries().get(self.position_of_binding(bid).ok()?)
    }

    fn position_of_binding(&self, bid: Option<u16>) -> Result<usize, usize> {
        self.binding_entries().binary_search_by_key(&bid, |entry| entry.bid)
    }

    /// Builds a [`Binding`] for a caller.
    pub fn to_binding(&self, home_agent: Ipv6Addr, home_address: Ipv6Addr, entry: &BindingEntry) -> Binding {
        let tested = match entry.state {
            BindingState::Testing => {
                self.rare_node_state.as_ref().and_then(|rest| rest.pending_prefixes.get(&entry.bid))
            }
            BindingState::Valid => None,
        };
        let (agent, care_of_address) = entry.tunnel_ends(home_agent);
        Binding {
            home_address,
            bid: entry.bid,
            priority: entry.priority,
            care_of_address,
            care_of_address_age: entry.care_of_address_age,
            agent,
            mobile_router: entry.mobile_router,
            link_local: entry.link_local,
            prefixes: tested.unwrap_or(&self.prefixes).clone(),
            sequence: self.sequence.unwrap_or_default(),
            lifetime: entry.lifetime(),
            expires_at: entry.expires_at,
            state: entry.state,
            is_care_of_tested: entry.is_care_of_tested,
        }
    }

    /// Adds a binding, or replaces the binding with the same identifier. The sequence number, flags and
    /// prefixes of a valid binding then apply to all bindings of the node.
    pub fn insert(&mut self, home_agent: Ipv6Addr, binding: &Binding) {
        self.change_rare_node_state(|rest| drop(rest.pending_prefixes.remove(&binding.bid)));
        let entry = BindingEntry::new(home_agent, binding);
        match self.position_of_binding(entry.bid) {
            Ok(at) => self.bindings.as_mut_slice()[at] = entry,
            Err(at) => self.bindings.insert(at, entry),
        }
        if !binding.is_valid() {
            let rest = self.rare_node_state.get_or_insert_default();
            rest.pending_prefixes.insert(binding.bid, binding.prefixes.clone());
            return;
        }
        self.sequence = Some(binding.sequence);
        // RFC 5648 4.1 and 5.3: all bindings share the sequence number and the flags. They share the
        // prefixes too, because each Binding Update names all prefixes (RFC 3963 6.2).
        self.prefixes = binding.prefixes.clone();
        for entry in self.bindings.as_mut_slice() {
            entry.mobile_router = binding.mobile_router;
            entry.link_local = binding.link_local;
        }
        if let Some(rest) = &mut self.rare_node_state {
            rest.pending_prefixes.values_mut().for_each(|prefixes| prefixes.clone_from(&binding.prefixes));
        }
    }

    /// Removes a binding.
    pub fn remove(&mut self, bid: Option<u16>) {
        if let Ok(at) = self.position_of_binding(bid) {
            self.bindings.remove(at);
        }
        self.change_rare_node_state(|rest| drop(rest.pending_prefixes.remove(&bid)));
    }

    /// Returns the next event of the valid bindings, with its time and its binding; `None` without a valid
    /// binding.
    pub fn next_event(&self) -> Option<(Time, DueEvent, Option<u16>)> {
        let valid = self.binding_entries().iter().filter(|entry| entry.is_valid());
        let due = valid.map(|entry| {
            let (at, due) = entry.next_event();
            (at, due, entry.bid)
        });
        due.min()
    }

    /// Records that the home agent has asked the node to renew a binding.
    pub fn mark_refresh_requested(&mut self, bid: Option<u16>) {
        if let Ok(at) = self.position_of_binding(bid)
            && let Some(entry) = self.bindings.as_mut_slice().get_mut(at)
        {
            entry.is_refresh_requested = true;
        }
    }

    /// Returns the prefixes of the last accepted registration.
    pub fn prefixes(&self) -> &[Ipv6Net] {
        &self.prefixes
    }

    /// Applies `change` to the state that few nodes have, if this node has it. Frees it if it is empty
    /// afterwards.
    fn change_rare_node_state(&mut self, change: impl FnOnce(&mut RareNodeState)) {
        if let Some(rest) = &mut self.rare_node_state {
            change(rest);
            self.rare_node_state.take_if(|rest| rest.is_empty());
        }
    }

    /// Returns the former paths from which packets are still accepted, oldest first.
    pub fn former_paths(&self) -> &[FormerPath] {
        self.rare_node_state.as_ref().map_or(&[], |rest| &rest.former_paths)
    }

    /// Adds a former path: the home agent accepts packets from it until the end of its grace period.
    pub fn add_former_path(&mut self, path: FormerPath) {
        let former = &mut self.rare_node_state.get_or_insert_default().former_paths;
        former.retain(|old| (old.agent, old.care_of_address) != (path.agent, path.care_of_address));
        if former.len() >= MAX_FORMER_PATHS {
            former.remove(0);
        }
        former.push(path);
    }

    /// Records that a care-of address that the node has left counts as tested until `until`.
    pub fn record_tested_address(&mut self, now: Time, care_of_address: Endpoint, until: Time) {
        let left = &mut self.rare_node_state.get_or_insert_default().tested_addresses;
        left.retain(|(address, until)| *address != care_of_address && *until > now);
        if left.len() >= MAX_TESTED_ADDRESSES {
            left.remove(0);
        }
        left.push((care_of_address, until));
    }

    /// Returns whether a care-of address that the node has left still counts as tested.
    pub fn was_address_tested(&self, now: Time, care_of_address: Endpoint) -> bool {
        let left = self.rare_node_state.as_ref().map_or(&[][..], |rest| &rest.tested_addresses);
        left.iter().any(|(address, until)| *address == care_of_address && *until > now)
    }

    /// Marks the bindings with these tunnel ends as tested. Returns whether the node has such bindings.
    pub fn mark_care_of_tested(&mut self, home_agent: Ipv6Addr, ends: (Endpoint, Endpoint)) -> bool {
        let mut found = false;
        for entry in self.bindings.as_mut_slice() {
            if entry.is_valid() && entry.tunnel_ends(home_agent) == ends {
                entry.is_care_of_tested = true;
                found = true;
            }
        }
        found
    }

    /// Removes the former paths for which `keep` returns false. Returns whether it removed any.
    pub fn retain_former_paths(&mut self, keep: impl FnMut(&FormerPath) -> bool) -> bool {
        let before = self.former_paths().len();
        self.change_rare_node_state(|rest| rest.former_paths.retain(keep));
        self.former_paths().len() != before
    }

    /// Returns the earliest end of a former path's grace period; `None` without a former path.
    pub fn grace_period_ends_at(&self) -> Option<Time> {
        self.former_paths().iter().map(|path| path.accept_packets_until).min()
    }

    /// Returns the flow bindings, ordered by priority.
    pub fn flows(&self) -> &[FlowBinding] {
        self.rare_node_state.as_ref().map_or(&[], |rest| &rest.flows)
    }

    /// Replaces the flow bindings.
    pub fn set_flows(&mut self, flows: Vec<FlowBinding>) {
        if flows.is_empty() {
            self.change_rare_node_state(|rest| rest.flows = flows);
        } else {
            self.rare_node_state.get_or_insert_default().flows = flows;
        }
    }

    /// Returns the replay protection state.
    pub fn replay_state(&self) -> ReplayState {
        ReplayState {
            sequence: self.accepted_sequence,
            timestamp: self.has_timestamp.then_some(self.accepted_timestamp),
        }
    }

    /// Returns how many sequence numbers the node has used under a key. `other_key` is the fingerprint of the
    /// key; `None` is the first key of the config.
    pub fn used_sequence_numbers(&self, other_key: Option<u64>) -> u32 {
        let Some(key) = other_key else { return self.used_sequence_numbers };
        let others = self.rare_node_state.as_ref().map_or(&[][..], |rest| &rest.other_keys);
        others.iter().find(|other| other.key == key).map_or(0, |other| other.numbers)
    }

    /// Records that the home agent accepted this sequence number under a key. `other_key` is the fingerprint
    /// of the key; `None` is the first key of the config. All keys of a node share one sequence of numbers.
    pub fn count_sequence_number(&mut self, other_key: Option<u64>, sequence: u16) {
        let last = self.accepted_sequence;
        let passed =
            |numbers: u32| if numbers == 0 { 0 } else { count_used_numbers(numbers, last, sequence) };
        self.used_sequence_numbers = if other_key.is_none() {
            count_used_numbers(self.used_sequence_numbers, last, sequence)
        } else {
            passed(self.used_sequence_numbers)
        };
        if let Some(rest) = &mut self.rare_node_state {
            for other in &mut rest.other_keys {
                other.numbers = passed(other.numbers);
            }
        }
        if let Some(key) = other_key {
            let others = &mut self.rare_node_state.get_or_insert_default().other_keys;
            let at = others.iter().position(|other| other.key == key);
            let used = at.map_or(KeyNumbers { key, numbers: 1 }, |at| others.remove(at));
            if others.len() >= MAX_OTHER_KEYS {
                others.remove(0);
            }
            others.push(used);
        }
    }

    /// Returns the used sequence numbers of all keys but the first in the config.
    pub fn other_key_numbers(&self) -> &[KeyNumbers] {
        self.rare_node_state.as_ref().map_or(&[], |rest| &rest.other_keys)
    }

    /// Sets the counts of used sequence numbers, see [`Self::used_sequence_numbers`].
    pub fn set_used_sequence_numbers(&mut self, numbers: u32, mut other_keys: Vec<KeyNumbers>) {
        self.used_sequence_numbers = numbers;
        other_keys.drain(..other_keys.len().saturating_sub(MAX_OTHER_KEYS));
        if other_keys.is_empty() {
            self.change_rare_node_state(|rest| rest.other_keys = other_keys);
        } else {
            self.rare_node_state.get_or_insert_default().other_keys = other_keys;
        }
    }

    /// Sets the replay protection state, see [`Self::replay_state`].
    pub fn set_replay_state(&mut self, replay: ReplayState) {
        self.accepted_sequence = replay.sequence;
        self.has_timestamp = replay.timestamp.is_some();
        self.accepted_timestamp = replay.timestamp.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME_AGENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

    fn test_binding(care_of_address: &str) -> Binding {
        Binding {
            home_address: Ipv6Addr::LOCALHOST,
            bid: None,
            priority: 0,
            care_of_address: care_of_address.parse().expect("an end"),
            care_of_address_age: CareOfAddressAge::beginning_now(Time::ZERO),
            agent: HOME_AGENT_ADDRESS.into(),
            mobile_router: true,
            link_local: false,
            prefixes: ["2001:db8:a::/64".parse().expect("a prefix")].into(),
            sequence: 7,
            lifetime: Duration::from_secs(40),
            expires_at: Time::from_secs(100),
            state: BindingState::Valid,
            is_care_of_tested: true,
        }
    }

    fn describe_binding(binding: &Binding) -> String {
        format!("{binding:?}")
    }

    /// The size of this value is the memory that a home agent needs for each node of a fleet.
    #[test]
    fn node_with_one_binding_needs_one_list_entry() {
        assert!(size_of::<NodeState>() <= 104, "{} octets", size_of::<NodeState>());
        let mut node = NodeState::default();
        for care_of_address in ["2001:db8:f1::10", "192.0.2.1", "udp:192.0.2.1:4191"] {
            let mut binding = test_binding(care_of_address);
            match binding.care_of_address {
                Endpoint::Ipv6(_) => {}
                Endpoint::Ipv4(_) => binding.agent = "198.51.100.1".parse().expect("an end"),
                Endpoint::Udp(_) => binding.agent = "udp:198.51.100.1:4191".parse().expect("an end"),
            }
            node.insert(HOME_AGENT_ADDRESS, &binding);
            assert!(node.bindings.is_stored_inline() && node.rare_node_state.is_none());
            assert!(
                !matches!(node.binding_entries()[0].tunnel_ends, TunnelEnds::Other(_)),
                "{care_of_address}"
            );
        }
    }

    #[test]
    fn a_recorded_binding_is_restored_unchanged() {
        for ends in [
            ("2001:db8:1::1", "2001:db8:f1::10"),
            ("2001:db8:1::2", "2001:db8:f1::10"),
            ("192.0.2.1", "198.51.100.1"),
            ("udp:192.0.2.1:4191", "udp:198.51.100.1:1"),
            ("2001:db8:1::1", "198.51.100.1"),
        ] {
            for state in [BindingState::Valid, BindingState::Testing] {
                let agent = ends.0.parse().expect("an end");
                let binding = Binding { agent, state, bid: Some(3), priority: 9, ..test_binding(ends.1) };
                let mut node = NodeState::default();
                node.insert(HOME_AGENT_ADDRESS, &binding);
                node.sequence = Some(binding.sequence);
                let entry = node.entry(Some(3)).expect("inserted");
                assert_eq!(
                    describe_binding(&node.to_binding(HOME_AGENT_ADDRESS, binding.home_address, entry)),
                    describe_binding(&binding),
                    "{ends:?}"
                );
            }
        }
    }

    #[test]
    fn bindings_of_a_node_are_ordered_by_bid() {
        let mut node = NodeState::default();
        let bids = |node: &NodeState| {
            node.binding_entries().iter().filter_map(|entry| entry.bid).collect::<Vec<_>>()
        };
        for bid in [5, 2, 9, 5] {
            node.insert(HOME_AGENT_ADDRESS, &Binding { bid: Some(bid), ..test_binding("2001:db8:f1::10") });
        }
        assert_eq!(bids(&node), [2, 5, 9]);
        node.remove(Some(4));
        node.remove(Some(5));
        assert_eq!(bids(&node), [2, 9]);
        node.remove(Some(2));
        assert!(bids(&node) == [9] && node.bindings.is_stored_inline());
        node.remove(Some(9));
        node.sequence = None;
        assert!(node.is_empty() && node.entry(Some(9)).is_none());
    }

    #[test]
    fn node_deadline_is_refresh_request_then_expiry() {
        let mut node = NodeState::default();
        let at = |bid, seconds, state| Binding {
            bid: Some(bid),
            expires_at: Time::from_secs(seconds),
            state,
            ..test_binding("2001:db8:f1::10")
        };
        node.insert(HOME_AGENT_ADDRESS, &at(1, 50, BindingState::Testing));
        assert_eq!(node.next_event(), None);
        node.insert(HOME_AGENT_ADDRESS, &at(2, 100, BindingState::Valid));
        node.insert(HOME_AGENT_ADDRESS, &at(3, 99, BindingState::Valid));
        assert_eq!(node.next_event(), Some((Time::from_secs(94), DueEvent::RefreshRequest, Some(3))));
        node.mark_refresh_requested(Some(3));
        assert_eq!(node.next_event(), Some((Time::from_secs(95), DueEvent::RefreshRequest, Some(2))));
        node.mark_refresh_requested(Some(2));
        assert_eq!(node.next_event(), Some((Time::from_secs(99), DueEvent::Expiry, Some(3))));
        let short = Binding { lifetime: Duration::from_secs(4), ..at(4, 98, BindingState::Valid) };
        node.insert(HOME_AGENT_ADDRESS, &short);
        assert_eq!(
            node.next_event(),
            Some((Time::from_secs(98), DueEvent::Expiry, Some(4))),
            "nobody is asked for so little"
        );
    }

    #[test]
    fn node_frees_rare_state_with_its_last_former_path() {
        let mut node = NodeState::default();
        let path = |text: &str, until| FormerPath {
            agent: HOME_AGENT_ADDRESS.into(),
            care_of_address: text.parse().expect("an end"),
            accept_packets_until: Time::from_secs(until),
            is_care_of_tested: true,
        };
        node.add_former_path(path("2001:db8::1", 2));
        node.add_former_path(path("2001:db8::2", 1));
        assert_eq!((node.former_paths().len(), node.grace_period_ends_at()), (2, Some(Time::from_secs(1))));
        assert!(!node.is_empty() && !node.retain_former_paths(|_| true));
        assert!(
            node.retain_former_paths(|path| path.accept_packets_until > Time::from_secs(1))
                && node.rare_node_state.is_some()
        );
        assert!(node.retain_former_paths(|_| false) && node.rare_node_state.is_none() && node.is_empty());
        let replay = ReplayState { sequence: None, timestamp: Some(0) };
        node.set_replay_state(replay);
        assert!(
            !node.is_empty() && node.replay_state().timestamp == Some(0),
            "replays are held off for ever"
        );
    }
}
