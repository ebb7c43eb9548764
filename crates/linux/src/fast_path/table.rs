//! What the maps of the fast path shall hold, as it follows from the tunnels.
//!
//! The programs (`bpf/tunnel.h`) know *bindings*: all tunnels of one home address at one end. A binding has a slot,
//! prefixes lead to the slot, and the slot's value says where packets are sent to and taken from. A handover is one
//! new value in one slot. This module computes the [`Operation`]s that bring the maps from one commit to the next,
//! in an order in which a packet in between is never forwarded wrongly, at worst left to the slow path; it touches no
//! map itself.
//!
//! The maps are bounded. If a station has more bindings, or prefixes of more different lengths, than there is room
//! for, the fast path of that end is closed: with only some of the prefixes known, a packet could go to the wrong one.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::Ipv6Addr;

use carnet_station::forwarding::desired::TunnelEnd;
use ipnet::Ipv6Net;

use super::Tunnel;

/// Paths of a binding (`PATHS`).
pub(crate) const PATHS: usize = 4;
/// Different lengths of prefixes at one end (`LENGTHS_MAX`).
pub(crate) const LENGTHS_MAX: usize = 16;

/// `struct path`: addresses in network byte order.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PathValue {
    pub(crate) local: [u8; 16],
    pub(crate) remote: [u8; 16],
}

/// `struct binding`.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BindingValue {
    pub(crate) paths: [PathValue; PATHS],
    pub(crate) accepted: u32,
    pub(crate) transmit: u32,
    pub(crate) mtu: u32,
    pub(crate) slot: u32,
    /// Another one after each change, never that of another binding: what the programs remember ends with it.
    pub(crate) version: u32,
    pub(crate) zero: u32,
}

/// `struct prefix`.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PrefixKey {
    pub(crate) high: u64,
    pub(crate) low: u64,
    pub(crate) length: u32,
    pub(crate) end: u32,
}

/// `struct lengths`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LengthsValue {
    pub(crate) count: u32,
    pub(crate) length: [u32; LENGTHS_MAX],
}

impl LengthsValue {
    fn used(&self) -> impl Iterator<Item = u32> + '_ {
        self.length.iter().copied().take(self.count as usize)
    }

    /// So many lengths, or none if there are too many.
    fn new(lengths: &BTreeSet<u32>) -> LengthsValue {
        let mut value = LengthsValue::default();
        if lengths.len() <= LENGTHS_MAX {
            for (to, length) in value.length.iter_mut().zip(lengths.iter().rev()) {
                *to = *length;
                value.count += 1;
            }
        }
        value
    }

    fn union(&self, other: &LengthsValue) -> LengthsValue {
        LengthsValue::new(&self.used().chain(other.used()).collect())
    }
}

/// One write to a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// `LENGTHS` of an end.
    SetLengths(u32, LengthsValue),
    /// `BINDINGS` at the value's slot.
    SetBinding(BindingValue),
    /// `PREFIXES`: the slot of a prefix.
    SetPrefix(PrefixKey, u32),
    /// A prefix is nobody's any more.
    RemovePrefix(PrefixKey),
    /// A slot is empty.
    RemoveBinding(u32),
    /// What the programs remember of prefixes is wrong.
    Forget,
}

/// The number of an end in the programs.
fn number(end: TunnelEnd) -> u32 {
    match end {
        TunnelEnd::MobileRouter => 0,
        TunnelEnd::HomeAgent => 1,
    }
}

fn key(end: u32, prefix: Ipv6Net) -> PrefixKey {
    let bits = u128::from(prefix.network());
    let length = u32::from(prefix.prefix_len());
    PrefixKey { high: (bits >> 64) as u64, low: bits as u64, length, end }
}

/// End and home address.
type Name = (u32, Ipv6Addr);

/// A binding and what of it is in the maps.
#[derive(Debug, Default)]
struct Binding {
    tunnels: BTreeMap<(Ipv6Addr, Ipv6Addr), Tunnel>,
    /// What it sends is the slow path's.
    held: bool,
    /// Which tunnel was told last to transmit.
    latest: Option<(Ipv6Addr, Ipv6Addr)>,
    slot: Option<u32>,
    installed: Option<BindingValue>,
    prefixes: BTreeSet<PrefixKey>,
}

impl Binding {
    /// The value of the slot.
    fn value(&self, slot: u32) -> BindingValue {
        let transmits =
            |ends: &(Ipv6Addr, Ipv6Addr)| !self.held && self.tunnels.get(ends).is_some_and(|t| t.transmit);
        let sending = self.latest.filter(transmits).or_else(|| self.tunnels.keys().copied().find(transmits));
        let others = self.tunnels.keys().copied().filter(|ends| Some(*ends) != sending);
        let mut value = BindingValue { slot, ..BindingValue::default() };
        // What does not fit is accepted by the slow path.
        for (path, (local, remote)) in value.paths.iter_mut().zip(sending.into_iter().chain(others)) {
            *path = PathValue { local: local.octets(), remote: remote.octets() };
            value.accepted += 1;
        }
        if let Some(tunnel) = sending.and_then(|ends| self.tunnels.get(&ends)) {
            value.transmit = 1;
            value.mtu = tunnel.mtu;
        }
        value
    }
}

/// What becomes different in the maps.
#[derive(Debug, Default)]
struct Changes {
    /// Of bindings that had none.
    fresh: Vec<BindingValue>,
    values: Vec<BindingValue>,
    gained: BTreeMap<PrefixKey, u32>,
    lost: BTreeSet<PrefixKey>,
    /// Slots that nobody has any more.
    emptied: Vec<u32>,
    /// By end: whether prefixes pass from one living binding to another.
    disturbed: [bool; 2],
}

/// The bindings, and the changes since the last commit.
#[derive(Debug)]
pub(crate) struct Table {
    bindings: HashMap<Name, Binding>,
    /// Those of which the slow path sends everything.
    held: BTreeSet<Name>,
    dirty: BTreeSet<Name>,
    owners: HashMap<PrefixKey, u32>,
    /// Slots that were in use once and are free, the longest first: a packet that is on its way through a program
    /// shall not meet another binding in the slot that it was led to.
    free: VecDeque<u32>,
    next_slot: u32,
    /// What each slot sends to.
    sending: HashMap<u32, PathValue>,
    version: u32,
    slots: u32,
    prefixes_max: usize,
    /// How many prefixes of each length there are, by end.
    lengths: [BTreeMap<u32, usize>; 2],
    published: [LengthsValue; 2],
    /// Bindings for which there is no room.
    homeless: BTreeSet<Name>,
}

impl Table {
    /// An empty table for so many bindings and prefixes.
    pub(crate) fn new(slots: u32, prefixes: u32) -> Table {
        Table {
            bindings: HashMap::new(),
            held: BTreeSet::new(),
            dirty: BTreeSet::new(),
            owners: HashMap::new(),
            free: VecDeque::new(),
            next_slot: 0,
            sending: HashMap::new(),
            version: 0,
            slots,
            prefixes_max: prefixes as usize,
            lengths: [BTreeMap::new(), BTreeMap::new()],
            published: [LengthsValue::default(); 2],
            homeless: BTreeSet::new(),
        }
    }

    /// A tunnel is there, or is another than before.
    pub(crate) fn set(&mut self, tunnel: &Tunnel) {
        let name = (number(tunnel.end), tunnel.home_address);
        let ends = (tunnel.local, tunnel.remote);
        let binding = self.bindings.entry(name).or_default();
        binding.held = self.held.contains(&name);
        if tunnel.transmit {
            binding.latest = Some(ends);
        }
        binding.tunnels.insert(ends, tunnel.clone());
        self.dirty.insert(name);
    }

    /// A tunnel is gone.
    pub(crate) fn remove(&mut self, tunnel: &Tunnel) {
        let name = (number(tunnel.end), tunnel.home_address);
        if let Some(binding) = self.bindings.get_mut(&name)
            && binding.tunnels.remove(&(tunnel.local, tunnel.remote)).is_some()
        {
            self.dirty.insert(name);
        }
    }

    /// Leaves what a binding sends to the slow path, or no longer.
    pub(crate) fn hold(&mut self, (end, home_address): (TunnelEnd, Ipv6Addr), held: bool) {
        let name = (number(end), home_address);
        let _ = if held { self.held.insert(name) } else { self.held.remove(&name) };
        if let Some(binding) = self.bindings.get_mut(&name)
            && std::mem::replace(&mut binding.held, held) != held
        {
            self.dirty.insert(name);
        }
    }

    /// Whether [`Self::commit`] has anything to do.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The ends between which the binding in a slot sends.
    pub(crate) fn ends_of(&self, slot: u32) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let path = self.sending.get(&slot)?;
        Some((path.local.into(), path.remote.into()))
    }

    /// The number of slots that have ever been in use.
    pub(crate) fn slots_used(&self) -> u32 {
        self.next_slot
    }

    /// Why an end is closed, if one is.
    pub(crate) fn obstacle(&self) -> Option<String> {
        if !self.homeless.is_empty() {
            return Some(format!("more than {} bindings or {} prefixes", self.slots, self.prefixes_max));
        }
        let crowded = self.lengths.iter().any(|lengths| lengths.len() > LENGTHS_MAX);
        crowded.then(|| format!("prefixes of more than {LENGTHS_MAX} different lengths"))
    }

    /// What is to be written so that the maps are as the tunnels are now.
    pub(crate) fn commit(&mut self) -> Vec<Operation> {
        let mut names = std::mem::take(&mut self.dirty);
        names.extend(&self.homeless);
        let mut operations = Vec::new();
        loop {
            let round = self.round(names);
            // What went makes room, and a prefix that came may be one that another binding was to bring.
            let idle = round.is_empty();
            operations.extend(round);
            if self.homeless.is_empty() || idle {
                break;
            }
            names = self.homeless.clone();
        }
        if operations.iter().any(|operation| !matches!(operation, Operation::SetBinding(_))) {
            operations.push(Operation::Forget);
        }
        operations
    }

    /// Brings these bindings up to date.
    ///
    /// Between any two writes an address leads where it led before or where it leads afterwards, or nowhere. Bindings
    /// that come and go get that by the order alone: new ones are there before prefixes lead to them, a prefix comes
    /// before the shorter one that it is part of, and goes after that; others change in between. Where prefixes pass from one binding to another
    /// no order is right, and the end is closed meanwhile. (What is remembered of packets holds all the time, so that
    /// only new flows see the closed end.)
    fn round(&mut self, names: BTreeSet<Name>) -> Vec<Operation> {
        let mut changes = Changes::default();
        for name in names {
            self.update(name, &mut changes);
        }
        let (mut operations, mut last) = (Vec::new(), Vec::new());
        for end in 0..2 {
            let (before, after) = (self.published[end], self.lengths_value(end));
            self.published[end] = after;
            // A length that nobody has finds nothing, but one that is missing hides a prefix.
            let closed = before.count == 0 || after.count == 0 || changes.disturbed[end];
            let meanwhile = if closed { LengthsValue::default() } else { before.union(&after) };
            if meanwhile != before {
                operations.push(Operation::SetLengths(end as u32, meanwhile));
            }
            if after != meanwhile {
                last.push(Operation::SetLengths(end as u32, after));
            }
        }
        operations.extend(changes.fresh.into_iter().map(Operation::SetBinding));
        let mut gained: Vec<(PrefixKey, u32)> = changes.gained.into_iter().collect();
        gained.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.length));
        operations.extend(gained.into_iter().map(|(prefix, slot)| Operation::SetPrefix(prefix, slot)));
        operations.extend(changes.values.into_iter().map(Operation::SetBinding));
        let mut lost: Vec<PrefixKey> = changes.lost.into_iter().collect();
        // Another binding may have taken it over.
        lost.retain(|prefix| !self.owners.contains_key(prefix));
        lost.sort_by_key(|prefix| prefix.length);
        operations.extend(lost.into_iter().map(Operation::RemovePrefix));
        operations.extend(changes.emptied.iter().copied().map(Operation::RemoveBinding));
        self.free.extend(changes.emptied);
        operations.extend(last);
        operations
    }

    fn lengths_value(&self, end: usize) -> LengthsValue {
        if self.homeless.iter().any(|(of, _)| *of as usize == end) {
            return LengthsValue::default();
        }
        LengthsValue::new(&self.lengths[end].keys().copied().collect())
    }

    fn update(&mut self, name: Name, changes: &mut Changes) {
        let Some(binding) = self.bindings.get_mut(&name) else { return };
        let end = name.0 as usize;
        if binding.tunnels.is_empty() {
            let Some(binding) = self.bindings.remove(&name) else { return };
            self.homeless.remove(&name);
            let Some(slot) = binding.slot else { return };
            for prefix in binding.prefixes {
                self.lose(prefix, slot, changes);
            }
            self.sending.remove(&slot);
            changes.emptied.push(slot);
            return;
        }
        let wanted: BTreeSet<PrefixKey> =
            binding.tunnels.values().flat_map(|t| &t.inner).map(|prefix| key(name.0, *prefix)).collect();
        // What is lost makes room only when it is gone.
        let occupied = self.owners.len() + changes.lost.len();
        // One that another binding has now is there already.
        let added = wanted.iter().filter(|prefix| !self.owners.contains_key(prefix)).count();
        let slot = match binding.slot {
            _ if occupied + added > self.prefixes_max => None,
            Some(slot) => Some(slot),
            None => self.free.pop_front().or_else(|| {
                let fresh = (self.next_slot < self.slots).then_some(self.next_slot)?;
                self.next_slot += 1;
                Some(fresh)
            }),
        };
        let Some(slot) = slot else {
            self.homeless.insert(name);
            // The end is closed from now on. What is not wanted any more makes room.
            let unwanted: Vec<PrefixKey> = binding.prefixes.difference(&wanted).copied().collect();
            binding.prefixes.retain(|prefix| wanted.contains(prefix));
            let slot = binding.slot;
            for (prefix, slot) in unwanted.into_iter().zip(slot.into_iter().cycle()) {
                self.lose(prefix, slot, changes);
            }
            return;
        };
        self.homeless.remove(&name);
        let is_new = binding.slot.replace(slot).is_none();
        let before = std::mem::replace(&mut binding.prefixes, wanted.clone());
        let value = binding.value(slot);
        if binding.installed.map(|old| BindingValue { version: 0, ..old }) != Some(value) {
            self.version = self.version.wrapping_add(1).max(1);
            let value = BindingValue { version: self.version, ..value };
            binding.installed = Some(value);
            match value.transmit {
                0 => self.sending.remove(&slot),
                _ => self.sending.insert(slot, value.paths[0]),
            };
            if is_new { &mut changes.fresh } else { &mut changes.values }.push(value);
        }
        changes.disturbed[end] |= !is_new && before != wanted;
        for prefix in &wanted {
            let owner = self.owners.insert(*prefix, slot);
            if owner.is_none() {
                *self.lengths[end].entry(prefix.length).or_default() += 1;
            }
            if owner != Some(slot) {
                changes.disturbed[end] |= owner.is_some();
                changes.gained.insert(*prefix, slot);
            }
        }
        for prefix in before.difference(&wanted) {
            self.lose(*prefix, slot, changes);
        }
    }

    /// A binding has lost a prefix, which another may have taken over.
    fn lose(&mut self, prefix: PrefixKey, slot: u32, changes: &mut Changes) {
        if self.owners.get(&prefix) != Some(&slot) {
            return;
        }
        self.owners.remove(&prefix);
        let lengths = &mut self.lengths[prefix.end as usize];
        if let Some(count) = lengths.get_mut(&prefix.length) {
            *count -= 1;
            if *count == 0 {
                lengths.remove(&prefix.length);
            }
        }
        changes.lost.insert(prefix);
    }
}

#[cfg(test)]
mod tests;
