//! The desired entries, each with its installation state.
//!
//! A home agent has very many entries, and nearly all are installed as desired. The set stores such an entry
//! without a state. A table has the states of all other entries.

use std::collections::HashSet;
use std::sync::Arc;

use carnet_nemo::forwarding::desired::{EntryByKey, ForwardingEntry, RouteAction};
use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};

/// Installation state of a desired entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EntryState {
    /// Entry that the kernel has now under this key; `None` if it has none. While a change waits, it differs
    /// from the desired entry.
    pub(crate) installed_entry: Option<Arc<ForwardingEntry>>,
    /// Index of the interface to which the installed entry belongs.
    pub(crate) interface_index: u32,
    /// Whether carnet does not know the kernel's state of this entry: the entry may be missing, or equal
    /// [`Self::installed_entry`] or the desired entry.
    pub(crate) is_state_unknown: bool,
    /// Whether another program has added the same address, which carnet uses instead of an own entry.
    pub(crate) has_foreign_address: bool,
    /// Whether the kernel or another program has removed the installed entry.
    pub(crate) was_removed_by_others: bool,
}

impl EntryState {
    /// Returns whether the entry needs no request to the kernel.
    pub(crate) fn needs_no_request(&self, entry: &EntryByKey) -> bool {
        self.has_foreign_address || !self.is_state_unknown && self.installed_entry.as_ref() == Some(&entry.0)
    }
}

/// Desired entries by key, with their states.
#[derive(Debug)]
pub(crate) struct DesiredEntries {
    entries: HashSet<EntryByKey, RandomState>,
    /// States of the entries that differ from [`Self::usual_state`].
    unusual_states: HashMap<EntryByKey, EntryState>,
    /// Index of the TUN device.
    tunnel_index: u32,
}

impl DesiredEntries {
    /// Returns an empty set. `tunnel_index` is the index of the TUN device.
    pub(crate) fn new(tunnel_index: u32) -> DesiredEntries {
        DesiredEntries { entries: HashSet::default(), unusual_states: HashMap::new(), tunnel_index }
    }

    /// Returns the state of an entry that is installed as desired and belongs to the TUN device or to no
    /// interface. An installed entry of another interface has another state, because the index differs.
    fn usual_state(&self, entry: &EntryByKey) -> EntryState {
        let is_on_tunnel_device = matches!(&*entry.0, ForwardingEntry::Route(route)
if route.leads_into_tunnel_device() || *route.action == RouteAction::Local);
        EntryState {
            installed_entry: Some(entry.0.clone()),
            interface_index: if is_on_tunnel_device { self.tunnel_index } else { 0 },
            ..EntryState::default()
        }
    }

    /// Returns the number of entries.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns all entries, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &EntryByKey> + Clone {
        self.entries.iter()
    }

    /// Returns all entries with their states, in no order.
    pub(crate) fn entries_with_states(&self) -> impl Iterator<Item = (&EntryByKey, EntryState)> {
        self.entries.iter().map(|entry| (entry, self.state_of(entry)))
    }

    /// Returns the entries that the kernel has now, in no order.
    pub(crate) fn installed_entries(&self) -> impl Iterator<Item = &ForwardingEntry> {
        self.entries.iter().filter_map(|entry| match self.unusual_states.get(entry) {
            Some(state) => state.installed_entry.as_deref(),
            None => Some(&*entry.0),
        })
    }

    /// Returns the desired entry with this key.
    pub(crate) fn get(&self, key: &EntryByKey) -> Option<&EntryByKey> {
        self.entries.get(key)
    }

    /// Returns the desired entry with this key, and its state; `None` if no such entry is desired.
    pub(crate) fn get_with_state(&self, key: &EntryByKey) -> Option<(EntryByKey, EntryState)> {
        self.entries.get(key).map(|entry| (entry.clone(), self.state_of(entry)))
    }

    fn state_of(&self, entry: &EntryByKey) -> EntryState {
        self.unusual_states.get(entry).cloned().unwrap_or_else(|| self.usual_state(entry))
    }

    /// Sets a desired entry and its state; replaces the entry with the same key.
    pub(crate) fn set(&mut self, entry: EntryByKey, state: EntryState) {
        if state == self.usual_state(&entry) {
            self.unusual_states.remove(&entry);
        } else {
            self.unusual_states.insert(entry.clone(), state);
        }
        self.entries.replace(entry);
    }

    /// Removes a desired entry, and returns it with its state; `None` if the set does not have it.
    pub(crate) fn remove(&mut self, key: &EntryByKey) -> Option<(EntryByKey, EntryState)> {
        let entry = self.entries.take(key)?;
        let state = self.unusual_states.remove(key).unwrap_or_else(|| self.usual_state(&entry));
        Some((entry, state))
    }
}
