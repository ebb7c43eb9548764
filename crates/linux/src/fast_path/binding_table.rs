//! Computes the content of the fast path's maps from the tunnels.
//!
//! The programs (`bpf/tunnel.h`) know *bindings*: all tunnels of one home address at one end. A binding has a
//! slot, prefixes lead to the slot, and the slot's value has the paths for sending and receiving. A handover
//! is one new value in one slot. Rules that distribute packets among several tunnels are stored under a
//! number, which the value contains. This module computes the [`MapOperation`]s that change the maps from one
//! commit to the next. Between two operations no packet is forwarded wrongly; at worst the slow path handles
//! it. The module itself writes no map.
//!
//! The size of the maps is bounded, and so is the share of one binding. A router that registers very many
//! prefixes, or prefixes of many different lengths, takes no room from other routers. If the maps have no
//! room for a binding, the slow path handles all its packets. The slow path also handles every binding with a
//! prefix that contains a prefix of such a binding. If the maps contained only the shorter prefix, the
//! programs would send packets to the wrong binding.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::Ipv6Addr;
use std::sync::Arc;

use carnet_base::{Endpoint, SmallMap};
use carnet_nemo::forwarding::desired::{Tunnel, TunnelEnd};
use ipnet::Ipv6Net;

use super::TunnelEnds;
use super::flow_rules::{self, FlowRule, RuleListValue};
use super::map_values::{
    BindingValue, LengthsValue, MAX_PATHS_PER_BINDING, MAX_PREFIX_LENGTHS, PathValue, PrefixKey,
};

/// Maximum number of prefixes of one binding, including the home address.
pub(crate) const MAX_PREFIXES_PER_BINDING: usize = 64;
/// Maximum number of different prefix lengths of one binding.
pub(crate) const MAX_LENGTHS_PER_BINDING: usize = 8;

/// One write to a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapOperation {
    /// Writes the prefix lengths of the tunnel end with this number into the map `LENGTHS`.
    SetLengths(u32, LengthsValue),
    /// Writes a binding into the map `BINDINGS`, at its slot.
    SetBinding(BindingValue),
    /// Writes the slot of a prefix into the map `PREFIXES`.
    SetPrefix(PrefixKey, u32),
    /// Removes a prefix that no binding owns any more.
    RemovePrefix(PrefixKey),
    /// Empties a slot of the map `BINDINGS`.
    RemoveBinding(u32),
    /// Writes the rules with this number ([`BindingTable::added_rules`]) into the map `RULES`.
    SetRules(u32),
    /// Removes rules that no binding uses any more.
    RemoveRules(u32),
    /// Invalidates all cached lookups: those of flows, and cached next hops.
    Forget,
    /// Invalidates cached lookups of flows. Cached next hops stay valid, except those of a removed binding,
    /// whose version number has changed.
    ForgetFlows,
}

/// Returns the number by which the programs know a tunnel end.
fn tunnel_end_number(end: TunnelEnd) -> u32 {
    match end {
        TunnelEnd::MobileRouter => 0,
        // The direct tunnels of a mobile router are looked up like a home agent's tunnels. No station has
        // both kinds.
        TunnelEnd::HomeAgent | TunnelEnd::Direct => 1,
    }
}

fn prefix_key(end: u32, prefix: Ipv6Net) -> PrefixKey {
    let bits = u128::from(prefix.network());
    let length = u32::from(prefix.prefix_len());
    PrefixKey { high_bits: (bits >> 64) as u64, low_bits: bits as u64, length, tunnel_end: end }
}

/// Name of a binding: the number of the tunnel end, and the home address.
type NumberedBindingKey = (u32, Ipv6Addr);

/// A binding with its tunnels, and its entries in the maps.
#[derive(Debug, Default)]
struct TableBinding {
    tunnels: SmallMap<TunnelEnds, Arc<Tunnel>>,
    /// Whether the slow path sends the binding's packets.
    is_left_to_slow_path: bool,
    /// Rules that distribute the binding's packets among its tunnels, if any.
    flow_rules: Option<Vec<FlowRule>>,
    /// Ends of the tunnel that carnet last allowed to transmit; `None` if it has not allowed any.
    last_transmitting_ends: Option<TunnelEnds>,
    map_slot: Option<u32>,
    installed_value: Option<InstalledBinding>,
    /// Prefixes of the binding, sorted.
    prefixes: Box<[PrefixKey]>,
}

/// Content of a binding's [`BindingValue`] in the maps. To save memory it stores only used paths; most
/// bindings have one.
#[derive(Debug, Default)]
struct InstalledBinding {
    path_values: Box<[(PathValue, u32)]>,
    transmitting_paths: u32,
    rule_list_number: u32,
}

impl InstalledBinding {
    fn from_value(value: &BindingValue) -> InstalledBinding {
        let paths = value.paths.iter().copied().zip(value.path_mtus).take(value.accepting_paths as usize);
        InstalledBinding {
            path_values: paths.collect(),
            transmitting_paths: value.transmitting_paths,
            rule_list_number: value.rule_list_number,
        }
    }

    /// Returns whether the installed value equals `value`, except for the number of its rules.
    fn equals_value(&self, value: &BindingValue) -> bool {
        self.transmitting_paths == value.transmitting_paths
            && self.path_values == InstalledBinding::from_value(value).path_values
    }

    fn ends_of_transmitting_paths(&self) -> impl Iterator<Item = TunnelEnds> {
        self.path_values.iter().take(self.transmitting_paths as usize).map(|(path, _)| path.tunnel_ends())
    }
}

impl TableBinding {
    /// Returns the value of the slot and its rules. `sockets` has the interface index of each socket of a
    /// tunnel inside IPv4.
    fn to_map_values(
        &self,
        slot: u32,
        sockets: &HashMap<Endpoint, u32>,
    ) -> (BindingValue, Option<RuleListValue>) {
        let interface = |(local, _): &TunnelEnds| match local {
            Endpoint::Ipv6(_) => Some(0),
            local => sockets.get(local).copied(),
        };
        let transmits = |ends: &TunnelEnds| {
            !self.is_left_to_slow_path && self.tunnels.get(ends).is_some_and(|t| t.transmit)
        };
        let all = || self.tunnels.keys().copied().filter(transmits);
        let mut sending: Vec<TunnelEnds> = match self.flow_rules {
            None => {
                self.last_transmitting_ends.filter(transmits).or_else(|| all().next()).into_iter().collect()
            }
            Some(_) => all().collect(),
        };
        let mut value = BindingValue { traffic_slot: slot, ..BindingValue::default() };
        if sending.len() > MAX_PATHS_PER_BINDING || sending.iter().any(|ends| interface(ends).is_none()) {
            sending.clear();
        }
        let mut rules = None;
        if let (Some(wanted), false) = (&self.flow_rules, sending.is_empty()) {
            rules = flow_rules::to_map_value(wanted, &sending, |ends| self.tunnels.contains_key(ends));
            if rules.is_none() {
                sending.clear();
            }
        }
        value.transmitting_paths = u32::try_from(sending.len()).unwrap_or(0);
        let others = self.tunnels.keys().copied().filter(|ends| !sending.contains(ends));
        let usable = sending.iter().copied().chain(others).filter_map(|ends| Some((ends, interface(&ends)?)));
        // The value has room for [`MAX_PATHS_PER_BINDING`] paths. Packets from further paths take the slow
        // path.
        for ((path, mtu), (ends, interface)) in value.paths.iter_mut().zip(&mut value.path_mtus).zip(usable) {
            *path = PathValue::new(ends, interface);
            let sends = value.accepting_paths < value.transmitting_paths;
            *mtu = self.tunnels.get(&ends).filter(|_| sends).map_or(0, |tunnel| tunnel.mtu);
            value.accepting_paths += 1;
        }
        (value, rules)
    }
}

/// Changes of the maps that one round of a commit has computed.
#[derive(Debug, Default)]
struct MapChanges {
    /// Values of the bindings that the commit adds to the maps.
    added_values: Vec<BindingValue>,
    changed_values: Vec<BindingValue>,
    gained_prefixes: BTreeMap<PrefixKey, u32>,
    removed_prefixes: BTreeSet<PrefixKey>,
    /// Slots that have become empty.
    emptied_slots: Vec<u32>,
    /// Numbers of the rule sets that the commit adds to the maps.
    added_rules: Vec<u32>,
    replaced_rules: Vec<u32>,
    /// For each kind of tunnel end (by its number): whether the commit moves a prefix from one binding to
    /// another.
    prefix_moved: [bool; 2],
    /// For each kind of tunnel end (by its number): whether the commit removes a binding from the maps, so
    /// that it uses the slow path.
    binding_evicted: [bool; 2],
}

/// Reason why the maps have no room for a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NoRoomReason {
    /// The binding has more prefixes, or more different lengths, than one binding may have.
    Greedy,
    /// All slots or prefixes are in use.
    Full,
    /// The bindings of this tunnel end already have the maximum number of different prefix lengths.
    Lengths,
    /// A prefix of this binding contains a prefix of another binding that has no room.
    Around,
}

/// Desired bindings, bindings in the maps, and the changes since the last commit.
#[derive(Debug)]
pub(crate) struct BindingTable {
    bindings: HashMap<NumberedBindingKey, TableBinding>,
    /// Bindings for which the slow path sends all packets.
    slow_path_bindings: BTreeSet<NumberedBindingKey>,
    /// Bindings whose packets are distributed, with their rules.
    distribution_rules: HashMap<NumberedBindingKey, Vec<FlowRule>>,
    /// Index of the interface that each socket of tunnels inside IPv4 is bound to.
    socket_interfaces: HashMap<Endpoint, u32>,
    /// Rules in the maps, by number.
    rules_by_number: HashMap<u32, RuleListValue>,
    /// Number of bindings with a tunnel between these ends.
    bindings_by_tunnel: HashMap<TunnelEnds, usize>,
    changed_bindings: BTreeSet<NumberedBindingKey>,
    slot_by_prefix: HashMap<PrefixKey, u32>,
    /// Free slots, in the order in which they became free. The slot that is free for the longest time is used
    /// first, because a running program may still read the former binding of a slot.
    free_slots: VecDeque<u32>,
    next_slot: u32,
    /// Key of the binding whose value is in each slot of the BPF map; `None` for a free slot.
    binding_by_slot: Vec<Option<NumberedBindingKey>>,
    last_rules_number: u32,
    slot_limit: u32,
    max_prefixes: usize,
    /// For each kind of tunnel end (by its number): number of prefixes in the maps, by length.
    prefixes_by_length: [BTreeMap<u32, usize>; 2],
    published_lengths: [LengthsValue; 2],
    /// Bindings without room, with the reason.
    bindings_without_room: BTreeMap<NumberedBindingKey, NoRoomReason>,
    /// Prefixes of the bindings for which the maps have no room, each with the number of such bindings.
    prefixes_without_room: BTreeMap<PrefixKey, usize>,
}

impl BindingTable {
    /// Creates an empty table for `slots` bindings and `prefixes` prefixes.
    pub(crate) fn new(slots: u32, prefixes: u32) -> BindingTable {
        BindingTable {
            bindings: HashMap::new(),
            slow_path_bindings: BTreeSet::new(),
            distribution_rules: HashMap::new(),
            socket_interfaces: HashMap::new(),
            rules_by_number: HashMap::new(),
            bindings_by_tunnel: HashMap::new(),
            changed_bindings: BTreeSet::new(),
            slot_by_prefix: HashMap::new(),
            free_slots: VecDeque::new(),
            next_slot: 0,
            binding_by_slot: Vec::new(),
            last_rules_number: 0,
            slot_limit: slots,
            max_prefixes: prefixes as usize,
            prefixes_by_length: [BTreeMap::new(), BTreeMap::new()],
            published_lengths: [LengthsValue::default(); 2],
            bindings_without_room: BTreeMap::new(),
            prefixes_without_room: BTreeMap::new(),
        }
    }

    /// Adds or changes a tunnel.
    pub(crate) fn set_tunnel(&mut self, tunnel: &Arc<Tunnel>) {
        let name = (tunnel_end_number(tunnel.end), tunnel.home_address);
        let ends = (tunnel.local, tunnel.remote);
        let binding = self.bindings.entry(name).or_default();
        binding.is_left_to_slow_path = self.slow_path_bindings.contains(&name);
        binding.flow_rules = self.distribution_rules.get(&name).cloned();
        if tunnel.transmit {
            binding.last_transmitting_ends = Some(ends);
        }
        if binding.tunnels.insert(ends, tunnel.clone()).is_none() {
            *self.bindings_by_tunnel.entry(ends).or_default() += 1;
        }
        self.changed_bindings.insert(name);
    }

    /// Removes a tunnel.
    pub(crate) fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        let name = (tunnel_end_number(tunnel.end), tunnel.home_address);
        if let Some(binding) = self.bindings.get_mut(&name)
            && binding.tunnels.remove(&(tunnel.local, tunnel.remote)).is_some()
        {
            let ends = (tunnel.local, tunnel.remote);
            if let Some(count) = self.bindings_by_tunnel.get_mut(&ends) {
                *count -= 1;
                if *count == 0 {
                    self.bindings_by_tunnel.remove(&ends);
                }
            }
            self.changed_bindings.insert(name);
        }
    }

    /// Sets whether the slow path sends a binding's packets.
    pub(crate) fn leave_to_slow_path(&mut self, (end, home_address): (TunnelEnd, Ipv6Addr), held: bool) {
        let name = (tunnel_end_number(end), home_address);
        let _ =
            if held { self.slow_path_bindings.insert(name) } else { self.slow_path_bindings.remove(&name) };
        if let Some(binding) = self.bindings.get_mut(&name)
            && std::mem::replace(&mut binding.is_left_to_slow_path, held) != held
        {
            self.changed_bindings.insert(name);
        }
    }

    /// Sets the rules that distribute a binding's packets; `None` for no distribution.
    pub(crate) fn set_distribution(
        &mut self,
        (end, home_address): (TunnelEnd, Ipv6Addr),
        rules: Option<Vec<FlowRule>>,
    ) {
        let name = (tunnel_end_number(end), home_address);
        let _ = match &rules {
            Some(rules) => self.distribution_rules.insert(name, rules.clone()),
            None => self.distribution_rules.remove(&name),
        };
        if let Some(binding) = self.bindings.get_mut(&name)
            && binding.flow_rules != rules
        {
            binding.flow_rules = rules;
            self.changed_bindings.insert(name);
        }
    }

    /// Sets the interface index to which the socket of tunnels inside IPv4 is bound, 0 if it is bound to no
    /// interface. With `None` the slow path handles all packets of this local end.
    pub(crate) fn set_socket_interface(&mut self, local: Endpoint, index: Option<u32>) {
        let before = match index {
            Some(index) => self.socket_interfaces.insert(local, index),
            None => self.socket_interfaces.remove(&local),
        };
        if before != index {
            let concerned =
                self.bindings.iter().filter(|(_, b)| b.tunnels.keys().any(|ends| ends.0 == local));
            self.changed_bindings.extend(concerned.map(|(name, _)| *name));
        }
    }

    /// Returns the rules with this number, as they have to be in the maps; `None` if no rules have the
    /// number.
    pub(crate) fn added_rules(&self, number: u32) -> Option<&RuleListValue> {
        self.rules_by_number.get(&number)
    }

    /// Returns whether a tunnel exists between these ends.
    pub(crate) fn has_tunnel(&self, ends: TunnelEnds) -> bool {
        self.bindings_by_tunnel.contains_key(&ends)
    }

    /// Returns whether [`Self::commit_changes`] has changes to write.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changed_bindings.is_empty()
    }

    /// Returns the tunnel ends between which the binding in a slot sends, in the order of its paths.
    pub(crate) fn transmitting_ends(&self, slot: u32) -> impl Iterator<Item = TunnelEnds> {
        let binding = self.binding_in_slot(slot).and_then(|name| self.bindings.get(&name));
        binding
            .and_then(|binding| binding.installed_value.as_ref())
            .into_iter()
            .flat_map(InstalledBinding::ends_of_transmitting_paths)
    }

    fn binding_in_slot(&self, slot: u32) -> Option<NumberedBindingKey> {
        self.binding_by_slot.get(slot as usize).copied().flatten()
    }

    /// Returns the number of slots that have ever been in use.
    pub(crate) fn used_slot_count(&self) -> u32 {
        self.next_slot
    }

    /// Returns a message for each reason why the slow path has to handle some bindings.
    pub(crate) fn obstacle_messages(&self) -> impl Iterator<Item = String> {
        let reasons: BTreeSet<NoRoomReason> = self.bindings_without_room.values().copied().collect();
        reasons.into_iter().map(|reason| match reason {
            NoRoomReason::Greedy => format!(
                "a binding with more than {MAX_PREFIXES_PER_BINDING} prefixes, or prefixes of more than \
                 {MAX_LENGTHS_PER_BINDING} different lengths"
            ),
            NoRoomReason::Full => {
                format!("more than {} bindings or {} prefixes", self.slot_limit, self.max_prefixes)
            }
            NoRoomReason::Lengths => format!("prefixes of more than {MAX_PREFIX_LENGTHS} different lengths"),
            NoRoomReason::Around => {
                "a binding whose prefixes contain the prefix of a binding in the slow path".into()
            }
        })
    }

    /// Returns the writes that update the maps to the present tunnels.
    pub(crate) fn commit_changes(&mut self) -> Vec<MapOperation> {
        let mut names = std::mem::take(&mut self.changed_bindings);
        let mut operations = Vec::new();
        let mut closed = [false; 2];
        let mut first = true;
        let mut moved = false;
        loop {
            let (round, evicted, disturbed) = self.update_bindings(std::mem::take(&mut names));
            moved |= disturbed;
            // Removed bindings make room for waiting ones, and a new prefix may contain the prefix of a
            // waiting binding. So repeat the rounds until one changes nothing.
            let idle = round.is_empty() && !std::mem::take(&mut first);
            operations.extend(round);
            let around = self.bindings_covering_missing_prefixes();
            for end in 0..2 {
                closed[end] |= evicted[end] || around.iter().any(|(of, _)| *of as usize == end);
            }
            if idle {
                names = around;
            }
            if self.bindings_without_room.is_empty() || (idle && names.is_empty()) {
                break;
            }
            names.extend(self.bindings_without_room.keys());
            if self.all_bindings_fit() {
                names.iter().for_each(|name| self.clear_lack_of_room(*name));
            }
        }
        // While bindings wait for room, their packets could match a shorter prefix of another binding. So the
        // programs find no bindings of this kind of tunnel end until the last round.
        for end in (0..2).filter(|end| closed[*end as usize]) {
            operations
                .retain(|operation| !matches!(operation, MapOperation::SetLengths(of, _) if *of == end));
            operations.insert(0, MapOperation::SetLengths(end, LengthsValue::default()));
            operations.push(MapOperation::SetLengths(end, self.published_lengths[end as usize]));
        }
        // The binding of an address has changed, so lookups cached before are wrong.
        moved |= closed != [false; 2]
            || operations.iter().any(|operation| self.adds_prefix_inside_another(operation));
        let of_bindings = |operation: &MapOperation| {
            use MapOperation::{RemoveRules, SetBinding, SetRules};
            matches!(operation, SetBinding(_) | SetRules(_) | RemoveRules(_))
        };
        if !operations.iter().all(of_bindings) {
            operations.push(if moved { MapOperation::Forget } else { MapOperation::ForgetFlows });
        }
        operations
    }

    /// Returns whether an operation adds a prefix inside a prefix of another binding.
    fn adds_prefix_inside_another(&self, operation: &MapOperation) -> bool {
        let MapOperation::SetPrefix(prefix, slot) = operation else { return false };
        let mut shorter = self.prefixes_by_length[prefix.tunnel_end as usize]
            .keys()
            .filter(|length| **length < prefix.length);
        shorter.any(|length| {
            self.slot_by_prefix.get(&prefix.shorten_to(*length)).is_some_and(|owner| owner != slot)
        })
    }

    /// Returns whether the maps have room for all bindings.
    fn all_bindings_fit(&self) -> bool {
        let prefixes: usize = self.prefixes_without_room.values().sum();
        let lengths = |end: u32| {
            let outside = self
                .prefixes_without_room
                .keys()
                .filter(|prefix| prefix.tunnel_end == end)
                .map(|prefix| prefix.length);
            self.prefixes_by_length[end as usize]
                .keys()
                .copied()
                .chain(outside)
                .collect::<BTreeSet<_>>()
                .len()
        };
        self.bindings.len() <= self.slot_limit as usize
            && self.slot_by_prefix.len() + prefixes <= self.max_prefixes
            && (0..2).all(|end| lengths(end) <= MAX_PREFIX_LENGTHS)
            && !self.bindings_without_room.values().any(|obstacle| *obstacle == NoRoomReason::Greedy)
    }

    /// Returns the bindings in the maps with a prefix that contains a prefix of a binding without room.
    fn bindings_covering_missing_prefixes(&self) -> BTreeSet<NumberedBindingKey> {
        let mut names = BTreeSet::new();
        for prefix in self.prefixes_without_room.keys() {
            for length in self.prefixes_by_length[prefix.tunnel_end as usize]
                .keys()
                .filter(|length| **length <= prefix.length)
            {
                names.extend(
                    self.slot_by_prefix
                        .get(&prefix.shorten_to(*length))
                        .and_then(|slot| self.binding_in_slot(*slot)),
                );
            }
        }
        names
    }

    /// Returns whether one of these prefixes contains a prefix of another binding without room.
    fn contains_prefix_without_room(&self, wanted: &BTreeSet<PrefixKey>) -> bool {
        wanted.iter().any(|prefix| {
            // In the order of keys, the longer prefixes inside a prefix follow directly after it.
            let after = self.prefixes_without_room.range(PrefixKey { length: 0, tunnel_end: 0, ..*prefix }..);
            let mut inside = after.take_while(|(other, _)| {
                other.shorten_to(prefix.length).address_bits() == prefix.address_bits()
            });
            inside.any(|(other, _)| other.tunnel_end == prefix.tunnel_end && other.length >= prefix.length)
        })
    }

    /// Returns the writes to the maps that add, change and remove these bindings.
    ///
    /// Between any two writes, the lookup of an address finds the old binding, the new binding or none. For
    /// this, the writes have an order. A new binding comes before the prefixes that lead to it. A prefix is
    /// added before the shorter prefix that contains it, and removed after it. All other changes come between
    /// additions and removals.
    ///
    /// If a prefix passes from one binding to another, no order works. The programs then find no bindings of
    /// this end until all writes are done. Cached lookups stay valid meanwhile, so only new flows take the
    /// slow path.
    ///
    /// Also returns, for each end, whether bindings have been left to the slow path, and whether a prefix has
    /// passed from one binding to another.
    fn update_bindings(
        &mut self,
        names: BTreeSet<NumberedBindingKey>,
    ) -> (Vec<MapOperation>, [bool; 2], bool) {
        let mut changes = MapChanges::default();
        for name in names {
            self.update_binding(name, &mut changes);
        }
        let (mut operations, mut last) = (Vec::new(), Vec::new());
        for end in 0..2 {
            let (before, after) = (self.published_lengths[end], self.lengths_value(end));
            self.published_lengths[end] = after;
            // A length in the list without a prefix costs only a useless lookup. A missing length makes
            // lookups miss its prefixes.
            let closed = before.length_count == 0 || after.length_count == 0 || changes.prefix_moved[end];
            let meanwhile = if closed { LengthsValue::default() } else { before.merge_lengths(&after) };
            if meanwhile != before {
                operations.push(MapOperation::SetLengths(end as u32, meanwhile));
            }
            if after != meanwhile {
                last.push(MapOperation::SetLengths(end as u32, after));
            }
        }
        operations.extend(changes.added_rules.into_iter().map(MapOperation::SetRules));
        operations.extend(changes.added_values.into_iter().map(MapOperation::SetBinding));
        let mut gained: Vec<(PrefixKey, u32)> = changes.gained_prefixes.into_iter().collect();
        gained.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.length));
        operations.extend(gained.into_iter().map(|(prefix, slot)| MapOperation::SetPrefix(prefix, slot)));
        operations.extend(changes.changed_values.into_iter().map(MapOperation::SetBinding));
        let mut lost: Vec<PrefixKey> = changes.removed_prefixes.into_iter().collect();
        // If another binding has taken over a prefix that this binding loses, the prefix stays in the map.
        lost.retain(|prefix| !self.slot_by_prefix.contains_key(prefix));
        lost.sort_by_key(|prefix| prefix.length);
        operations.extend(lost.into_iter().map(MapOperation::RemovePrefix));
        operations.extend(changes.emptied_slots.iter().copied().map(MapOperation::RemoveBinding));
        self.free_slots.extend(changes.emptied_slots);
        operations.extend(changes.replaced_rules.into_iter().map(MapOperation::RemoveRules));
        operations.extend(last);
        (operations, changes.binding_evicted, changes.prefix_moved != [false; 2])
    }

    fn lengths_value(&self, end: usize) -> LengthsValue {
        LengthsValue::new(&self.prefixes_by_length[end].keys().copied().collect())
    }

    fn update_binding(&mut self, name: NumberedBindingKey, changes: &mut MapChanges) {
        let Some(binding) = self.bindings.get_mut(&name) else { return };
        let end = name.0 as usize;
        let wanted: BTreeSet<PrefixKey> = binding
            .tunnels
            .values()
            .flat_map(|t| &t.inner)
            .map(|prefix| prefix_key(name.0, *prefix))
            .collect();
        if binding.tunnels.is_empty() {
            self.clear_lack_of_room(name);
            self.withdraw_binding(name, changes);
            self.bindings.remove(&name);
            return;
        }
        let slot = binding.map_slot;
        // Take the binding off the list of those without room. Otherwise its own prefixes would count as
        // prefixes without room, and it could never be installed.
        self.clear_lack_of_room(name);
        let slot = match self.find_slot(&wanted, slot, changes) {
            Ok(slot) => slot,
            Err(obstacle) => {
                changes.binding_evicted[end] |= slot.is_some();
                self.withdraw_binding(name, changes);
                for prefix in &wanted {
                    *self.prefixes_without_room.entry(*prefix).or_default() += 1;
                }
                if let Some(binding) = self.bindings.get_mut(&name) {
                    binding.prefixes = wanted.into_iter().collect();
                }
                self.bindings_without_room.insert(name, obstacle);
                return;
            }
        };
        let Some(binding) = self.bindings.get_mut(&name) else { return };
        if self.binding_by_slot.len() <= slot as usize {
            self.binding_by_slot.resize(slot as usize + 1, None);
        }
        self.binding_by_slot[slot as usize] = Some(name);
        let is_new = binding.map_slot.replace(slot).is_none();
        let prefixes = wanted.iter().copied().collect();
        let before: BTreeSet<PrefixKey> =
            std::mem::replace(&mut binding.prefixes, prefixes).into_iter().collect();
        let (mut value, mut rules) = binding.to_map_values(slot, &self.socket_interfaces);
        let installed = binding.installed_value.take().unwrap_or_default();
        if rules.is_some()
            && installed.rule_list_number == 0
            && self.rules_by_number.len() >= self.slot_limit as usize
        {
            // The map of rules has no room, so the slow path sends this binding's packets.
            (value.transmitting_paths, rules) = (0, None);
        }
        if is_new
            || !installed.equals_value(&value)
            || rules.as_ref() != self.rules_by_number.get(&installed.rule_list_number)
        {
            if self.rules_by_number.remove(&installed.rule_list_number).is_some() {
                changes.replaced_rules.push(installed.rule_list_number);
            }
            if let Some(rules) = rules {
                self.last_rules_number = self.last_rules_number.wrapping_add(1).max(1);
                value.rule_list_number = self.last_rules_number;
                self.rules_by_number.insert(value.rule_list_number, rules);
                changes.added_rules.push(value.rule_list_number);
            }
            binding.installed_value = Some(InstalledBinding::from_value(&value));
            if is_new { &mut changes.added_values } else { &mut changes.changed_values }.push(value);
        } else {
            binding.installed_value = Some(installed);
        }
        changes.prefix_moved[end] |= !is_new && before != wanted;
        for prefix in &wanted {
            let owner = self.slot_by_prefix.insert(*prefix, slot);
            if owner.is_none() {
                *self.prefixes_by_length[end].entry(prefix.length).or_default() += 1;
            }
            if owner != Some(slot) {
                changes.prefix_moved[end] |= owner.is_some();
                changes.gained_prefixes.insert(*prefix, slot);
            }
        }
        for prefix in before.difference(&wanted) {
            self.remove_prefix(*prefix, slot, changes);
        }
    }

    /// Returns a slot for a binding with these prefixes: its present slot if it has one.
    fn find_slot(
        &mut self,
        wanted: &BTreeSet<PrefixKey>,
        slot: Option<u32>,
        changes: &MapChanges,
    ) -> Result<u32, NoRoomReason> {
        let lengths: BTreeSet<u32> = wanted.iter().map(|prefix| prefix.length).collect();
        if wanted.len() > MAX_PREFIXES_PER_BINDING || lengths.len() > MAX_LENGTHS_PER_BINDING {
            return Err(NoRoomReason::Greedy);
        }
        if self.contains_prefix_without_room(wanted) {
            return Err(NoRoomReason::Around);
        }
        let known = wanted.first().map(|prefix| &self.prefixes_by_length[prefix.tunnel_end as usize]);
        if known.is_some_and(|known| {
            lengths.iter().chain(known.keys()).collect::<BTreeSet<_>>().len() > MAX_PREFIX_LENGTHS
        }) {
            return Err(NoRoomReason::Lengths);
        }
        // A removed prefix occupies an entry of the map until its removal is written to the map.
        let occupied = self.slot_by_prefix.len() + changes.removed_prefixes.len();
        // A prefix that another binding owns now is already in the map and needs no new entry.
        let added = wanted.iter().filter(|prefix| !self.slot_by_prefix.contains_key(prefix)).count();
        if occupied + added > self.max_prefixes {
            return Err(NoRoomReason::Full);
        }
        slot.or_else(|| self.free_slots.pop_front())
            .or_else(|| {
                let fresh = (self.next_slot < self.slot_limit).then_some(self.next_slot)?;
                self.next_slot += 1;
                Some(fresh)
            })
            .ok_or(NoRoomReason::Full)
    }

    /// Removes a binding from the list of those without room. The table then checks again whether it has
    /// room.
    fn clear_lack_of_room(&mut self, name: NumberedBindingKey) {
        if self.bindings_without_room.remove(&name).is_none() {
            return;
        }
        let prefixes = self.bindings.get_mut(&name).map(|binding| std::mem::take(&mut binding.prefixes));
        for prefix in prefixes.unwrap_or_default() {
            if let Some(count) = self.prefixes_without_room.get_mut(&prefix) {
                *count -= 1;
                if *count == 0 {
                    self.prefixes_without_room.remove(&prefix);
                }
            }
        }
    }

    /// Removes a binding from the maps.
    fn withdraw_binding(&mut self, name: NumberedBindingKey, changes: &mut MapChanges) {
        let Some(binding) = self.bindings.get_mut(&name) else { return };
        let Some(slot) = binding.map_slot.take() else { return };
        let installed = binding.installed_value.take().unwrap_or_default();
        if self.rules_by_number.remove(&installed.rule_list_number).is_some() {
            changes.replaced_rules.push(installed.rule_list_number);
        }
        for prefix in std::mem::take(&mut binding.prefixes) {
            self.remove_prefix(prefix, slot, changes);
        }
        if let Some(name) = self.binding_by_slot.get_mut(slot as usize) {
            *name = None;
        }
        changes.emptied_slots.push(slot);
    }

    /// Takes a prefix from a binding. The prefix stays in the map if another binding has taken it over.
    fn remove_prefix(&mut self, prefix: PrefixKey, slot: u32, changes: &mut MapChanges) {
        if self.slot_by_prefix.get(&prefix) != Some(&slot) {
            return;
        }
        self.slot_by_prefix.remove(&prefix);
        let lengths = &mut self.prefixes_by_length[prefix.tunnel_end as usize];
        if let Some(count) = lengths.get_mut(&prefix.length) {
            *count -= 1;
            if *count == 0 {
                lengths.remove(&prefix.length);
            }
        }
        changes.removed_prefixes.insert(prefix);
    }
}

#[cfg(test)]
mod tests;
