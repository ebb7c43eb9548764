//! Installs the desired entries in the kernel, and keeps them installed.
//!
//! For every entry the installer stores the desired value and the installed value. If a change only restores
//! the installed value, the installer makes no system call. An entry waits if its interface is missing or
//! down, or if the kernel has refused the entry. The installer tries it again whenever interfaces, addresses
//! or routes have changed, and after a refusal also at intervals ([`crate::kernel_state_keeper`]). The
//! installer notices entries that the kernel drops, for example routes when an interface goes down, and
//! entries that an operator deletes. It installs these entries again.
//!
//! **Doubt.** If a request fails, the kernel may have executed it, because only the answer may be lost. So if
//! an installation failed, the installer still removes the entry at the end. If a removal failed, the
//! installer tries it again later. It recognises carnet's entries by their mark (origin), and never removes
//! other entries.
//!
//! **The local rule.** The kernel looks up its `local` table first, by a rule of priority 0. No other rule
//! can precede it. To capture packets to a care-of address, the installer moves the rule down to
//! [`priority::LOCAL_TABLE_RULE`]. It adds the new rule before it deletes the old rule. At the end it
//! restores the old rule first. So the kernel always finds the machine's own addresses. Another program that
//! moves the rule back to priority 0 hides the captured packets from carnet.
//!
//! **Other programs.** The kernel reports when another program changes a setting, or adds the local rule
//! again at priority 0. The installer corrects both, after pauses that grow with each repetition
//! ([`crate::setting_contest`]). [`EntryInstaller::obstacle_messages`] names what differs from the station's
//! needs.
//!
//! A captured packet is routed into the tunnel device and not delivered to the machine. So in a firewall it
//! passes the FORWARD hook, from the uplink to the tunnel device, and never INPUT. A firewall that forbids
//! forwarding must accept protocols 41, 4 (IPv4 on board), 135 and 44 from the home agent there.
//!
//! **Router Advertisements.** A machine that begins to forward forgets its advertised default routes and
//! ignores further advertisements, unless `accept_ra` is 2. So the installer changes `accept_ra` of each
//! interface from 1 to 2 before it turns `all.forwarding` on. Interfaces that appear later get 2 at once. All
//! these interfaces get 1 again when forwarding ends. `default` stays unchanged.
//! [`crate::advertisement_settings`] limits the effect of advertisements on a home agent's home link.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use carnet_base::mapped;
use carnet_nemo::forwarding::desired::{
    EntryByKey, EntryChange, ForwardingEntry, InterfaceAddress, Ipv4Route, Route, RouteAction, Rule,
    SysctlSetting, TUNNEL_DEVICE, TunnelSocket, priority,
};
use ipnet::Ipv6Net;

use crate::ROUTE_PROTOCOL;
use crate::advertisement_settings::{
    ConditionalSetting, is_conditional_setting, obstacle_to_writing_setting,
};
use crate::datagrams::DatagramSockets;
use crate::desired_entries::{DesiredEntries, EntryState};
use crate::error::{Error, Result};
use crate::fast_path::{self, DataPath, FastPath, FastPathConfig, LoadingResult};
use crate::interface_observer::InterfaceObserver;
use crate::kernel_settings::{self, KernelSettings, WriteOutcome};
use crate::netlink::{
    AddressInfo, ChangedParts, Ipv4RouteInfo, LinkInfo, NetlinkRequests, RouteInfo, RoutingFields,
    effective_metric, is_ipv4_rule,
};
use crate::nftables::{RuleTable, RulesetWatch};
use crate::offloads;
use crate::setting_contest::{ContestAction, SettingContest};
use crate::tunnel::KnownSenders;
use crate::undo_file::{AddedAddress, ChangedSetting, UndoFile};

/// Interval at which carnet reads the fast path's neighbours in use and reports them to the kernel. It is
/// shorter than the kernel's own interval (`base_reachable_time`).
pub(crate) const NEIGHBOUR_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Number of the kernel's table of local addresses.
const TABLE_LOCAL: u32 = 255;
/// Routing protocol number of the kernel's own rules (`RTPROT_KERNEL`), which carnet gives to the local rule
/// that it restores.
const KERNEL_ROUTE_PROTOCOL: u8 = 2;

/// Returns the rule of this priority that looks up the `local` table for all packets.
fn local_table_rule(priority: u32) -> Rule {
    Rule { priority, table: TABLE_LOCAL, ..Rule::default() }
}

/// Outcome of an attempt to install an entry.
enum InstallOutcome {
    /// The entry is installed, on the interface of this index (0 without one).
    Done(u32),
    /// Another program has already installed this address. The number is the prefix length of its address.
    Foreign(u32),
    /// The entry is a setting that carnet must not write now.
    LeftAlone(u32),
    /// The entry must wait, because its interface is missing or down.
    Later,
    /// The entry may be installed: the request on the interface of this index failed, or only the kernel's
    /// answer was lost.
    Perhaps(u32, Error),
}

/// Priority of the rule for the local table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LocalRulePriority {
    /// The kernel's rule for the `local` table is at its usual priority 0.
    InPlace,
    /// The rule is at [`priority::LOCAL_TABLE_RULE`], and perhaps still at 0 as well.
    Moving,
    /// The rule is only at [`priority::LOCAL_TABLE_RULE`].
    Moved,
}

/// Number of attempts to remove all entries when the station ends.
const MAX_REMOVAL_ATTEMPTS: usize = 4;
/// Maximum number of obstacles that the station reports.
const MAX_OBSTACLES: usize = 16;
/// Message to the operator if another program has moved the rule for the `local` table back to priority 0.
const EARLY_LOCAL_RULE_MESSAGE: &str = "another program has moved the rule for the `local` table back to \
    priority 0, so packets for carnet's tunnels do not reach carnet";

/// Number of failed attempts after which carnet logs a refusal whose cause usually goes away soon. These
/// attempts take about five seconds.
const ATTEMPTS_BEFORE_LOG: u32 = 3;

/// Last message about an entry that carnet cannot install.
#[derive(Debug, Default)]
struct EntryError {
    message_text: String,
    /// Number of attempts at intervals that have failed with this message.
    failed_attempts: u32,
    /// Whether the message is in the log already.
    is_logged: bool,
}

/// A part of the kernel's state that another program can change against the station's needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ContestedState {
    /// A setting, by its key.
    Setting(EntryByKey),
    /// The priority of the rule for the local table.
    LocalRule,
}

/// Stores desired and installed entries, and makes the kernel's state equal the desired entries.
#[derive(Debug)]
pub(crate) struct EntryInstaller {
    pub(crate) requests: NetlinkRequests,
    pub(crate) kernel_settings: KernelSettings,
    undo_file: UndoFile,
    desired_entries: DesiredEntries,
    waiting_entries: BTreeSet<EntryByKey>,
    /// Last message about each entry that carnet cannot install, so that the log has it once. These messages
    /// are not in [`EntryState`], because there are many entries and few of them have a message.
    entry_errors: BTreeMap<EntryByKey, EntryError>,
    /// Entries that are no longer desired but that the installer could not remove yet, with the index of
    /// their interface.
    entries_to_remove: BTreeMap<EntryByKey, u32>,
    /// Whether the kernel has refused a request since carnet last tried all waiting entries.
    has_refused_requests: bool,
    /// Whether carnet must check `accept_ra` of all interfaces, because an interface may have stopped
    /// accepting Router Advertisements.
    accept_ra_check_due: bool,
    /// Whether the installer could not read all settings after a change that another program may have made.
    settings_check_due: bool,
    local_rule_priority: LocalRulePriority,
    pub(crate) tunnel_index: u32,
    pub(crate) fast_path: FastPath,
    pub(crate) datagrams: DatagramSockets,
    /// Remote tunnel ends that the steering program of the TUN device knows. `None` if the device has only
    /// one queue.
    pub(crate) known_senders: Option<KnownSenders>,
    /// Whether routes, rules or addresses have changed since the last commit.
    routing_changed: bool,
    /// Packet fields in the routes and rules that carnet has changed since the last commit, for the fast
    /// path.
    changed_routing_fields: RoutingFields,
    /// Whether anything but carnet's own routes into the TUN device has changed since the last commit. The
    /// fast path then reads all routes.
    foreign_routing_changed: bool,
    /// Number of entries that carnet installed again after the kernel or another program had removed them.
    pub(crate) restored_entries: u64,
    /// Settings that another program has lately changed against carnet's value, with the state of each
    /// contest.
    setting_contests: BTreeMap<ContestedState, SettingContest>,
    /// Messages for the operator about contested settings, which the caller has not fetched yet.
    operator_messages: Vec<String>,
    /// Desired sysctls of home links that carnet writes only under a condition
    /// ([`crate::advertisement_settings`]).
    conditional_settings: Vec<ConditionalSetting>,
    /// Table of the packet filter, which has all rules of the desired state.
    pub(crate) rule_table: RuleTable,
    /// Prefixes of mobile networks. The packet rules translate the sources in these prefixes (NAT).
    nat_sources: Vec<Ipv6Net>,
    /// The packet filter's rules of all programs.
    ruleset_watch: RulesetWatch,
    /// Messages about [`Self::ruleset_watch`] that are in the log.
    ruleset_messages: BTreeSet<String>,
}

impl EntryInstaller {
    /// Creates an installer without desired entries. First it removes the entries that a crashed carnet left.
    /// The caller must hold the TUN device: this proves that no other station runs in this namespace.
    pub(crate) fn open(
        mut requests: NetlinkRequests,
        switches: KernelSettings,
        undo: UndoFile,
        tunnel_index: u32,
    ) -> Result<EntryInstaller> {
        remove_leftover_rules(&mut requests)?;
        remove_leftover_routes(&mut requests)?;
        fast_path::remove_leftovers(&mut requests)?;
        let mut installer = EntryInstaller {
            requests,
            kernel_settings: switches,
            undo_file: undo,
            desired_entries: DesiredEntries::new(tunnel_index),
            waiting_entries: BTreeSet::new(),
            entry_errors: BTreeMap::new(),
            entries_to_remove: BTreeMap::new(),
            has_refused_requests: false,
            accept_ra_check_due: false,
            settings_check_due: false,
            local_rule_priority: LocalRulePriority::InPlace,
            tunnel_index,
            fast_path: FastPath::default(),
            datagrams: DatagramSockets::default(),
            known_senders: None,
            routing_changed: false,
            changed_routing_fields: RoutingFields::default(),
            foreign_routing_changed: false,
            restored_entries: 0,
            setting_contests: BTreeMap::new(),
            operator_messages: Vec::new(),
            conditional_settings: Vec::new(),
            rule_table: RuleTable::default(),
            nat_sources: Vec::new(),
            ruleset_watch: RulesetWatch::default(),
            ruleset_messages: BTreeSet::new(),
        };
        if installer.undo_file.recorded_changes.rule_table {
            installer.rule_table.expect_leftover_table();
        }
        installer.revert_recorded_changes()?;
        Ok(installer)
    }

    fn revert_recorded_changes(&mut self) -> Result<()> {
        let mut left = self.requests.address_requests().list_ipv6()?;
        left.extend(self.requests.address_requests().list_ipv4()?);
        let names: BTreeMap<u32, String> = self
            .requests
            .link_requests()
            .list_links()?
            .into_iter()
            .map(|link| (link.index, link.name))
            .collect();
        let recorded = std::mem::take(&mut self.undo_file.recorded_changes.addresses);
        for known in left {
            let Some(interface) = names.get(&known.index) else { continue };
            if self.is_own_address(&recorded, interface, &known) {
                let AddressInfo { index, address, .. } = known;
                self.requests.address_requests().delete_address(
                    index,
                    interface,
                    address.address,
                    address.prefix_length,
                )?;
            }
        }
        let settings = self.undo_file.recorded_changes.settings.clone();
        for changed in settings.into_iter().rev() {
            self.restore_setting(&changed.interface, &changed.name)?;
        }
        // Packet rules of the former run stay in force until the first commit replaces their table.
        if self.undo_file.recorded_changes.rule_table {
            self.undo_file.save()
        } else {
            self.undo_file.delete()
        }
    }

    /// Returns whether carnet has added an address. The address's mark decides, because another program may
    /// have replaced a recorded address since. On a kernel without marks carnet's own record decides.
    fn is_own_address(&self, recorded: &[AddedAddress], interface: &str, known: &AddressInfo) -> bool {
        let AddressInfo { index, address, .. } = known;
        let is_it = |it: &AddedAddress| {
            (it.index, &*it.interface, it.address, it.prefix_length)
                == (*index, interface, address.address, address.prefix_length)
        };
        known.is_own_address()
            || !self.requests.kernel_stores_address_protocol() && recorded.iter().any(is_it)
    }

    /// Returns the prefix length of an address on an interface, if carnet has added the address; otherwise
    /// `None`.
    fn own_prefix_length(&mut self, index: u32, interface: &str, address: Ipv6Addr) -> Result<Option<u8>> {
        let known = self.requests.address_requests().list_family_of(address)?.into_iter();
        let mut known = known.filter(|known| (known.index, known.address.address) == (index, address));
        let own = known
            .find(|known| self.is_own_address(&self.undo_file.recorded_changes.addresses, interface, known));
        Ok(own.map(|known| known.address.prefix_length))
    }

    /// Applies a change of the desired forwarding state to the kernel.
    pub(crate) fn apply_change(&mut self, change: &EntryChange) -> Result<()> {
        match change {
            EntryChange::Set(entry) => {
                let entry = EntryByKey(entry.clone());
                let mut wanted = EntryState::default();
                if let Some((before, known)) = self.desired_entries.get_with_state(&entry) {
                    wanted = known;
                    if before.0 != entry.0 {
                        self.entry_errors.remove(&entry);
                        // If another program has added the address, carnet uses it instead of an address of
                        // its own, whatever its prefix length.
                        wanted.has_foreign_address &= matches!(*entry.0, ForwardingEntry::Address(_));
                    }
                }
                let settled = wanted.needs_no_request(&entry);
                self.desired_entries.set(entry.clone(), wanted);
                if settled {
                    return Ok(());
                }
                match self.install_entry(&entry) {
                    Err(error) if is_temporary_error(&error) => {
                        tracing::debug!(
                            "carnet will repeat a request that the kernel could not execute now: {error}"
                        );
                        Ok(())
                    }
                    result => result,
                }
            }
            EntryChange::Remove(entry) => self.remove_entry(&EntryByKey(entry.clone())),
        }
    }

    /// Reports to the kernel which neighbours the fast path uses, because the kernel does not see the fast
    /// path's packets.
    pub(crate) fn keep_neighbours_alive(&mut self) {
        for (index, address) in self.fast_path.neighbours_used_within(2 * NEIGHBOUR_REPORT_INTERVAL) {
            // Ignore the error if the kernel has forgotten the neighbour: it resolves the neighbour again for
            // the next packet.
            if let Err(error) = self.requests.neighbour_requests().report_use(index, address) {
                tracing::debug!("{error}");
            }
        }
    }

    fn remove_entry(&mut self, key: &EntryByKey) -> Result<()> {
        self.waiting_entries.remove(key);
        self.entry_errors.remove(key);
        let Some((EntryByKey(entry), wanted)) = self.desired_entries.remove(key) else { return Ok(()) };
        match wanted.installed_entry {
            Some(installed) => self.remove_undesired(installed, wanted.interface_index),
            None => self.forget_recorded_change(&entry),
        }
    }

    /// Removes an entry that is no longer desired. If the kernel refuses, carnet tries again later.
    fn remove_undesired(&mut self, entry: Arc<ForwardingEntry>, index: u32) -> Result<()> {
        let result = self.remove_from_kernel(&entry, index);
        if result.is_err() {
            self.has_refused_requests = true;
            self.entries_to_remove.insert(EntryByKey(entry), index);
        }
        result
    }

    /// Deletes the record of an entry from the undo file, because the kernel no longer has the entry.
    fn forget_recorded_change(&mut self, entry: &ForwardingEntry) -> Result<()> {
        match entry {
            ForwardingEntry::Setting(setting) => self.restore_removed_setting(setting),
            ForwardingEntry::Address(InterfaceAddress { interface, address, .. }) => {
                self.forget_recorded_address(interface, *address);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn forget_recorded_address(&mut self, interface: &str, address: Ipv6Addr) {
        let recorded = self.undo_file.recorded_changes.addresses.len();
        self.undo_file
            .recorded_changes
            .addresses
            .retain(|a| (&*a.interface, a.address) != (interface, address));
        if self.undo_file.recorded_changes.addresses.len() != recorded {
            self.save_undo_file();
        }
    }

    /// Writes the undo file, which lists the changes that carnet has made. A failed write is repeated later.
    fn save_undo_file(&mut self) {
        if let Err(error) = self.undo_file.save() {
            self.has_refused_requests = true;
            tracing::warn!("cannot write the undo file: {error}; carnet will try again");
        }
    }

    /// Installs the desired entry of `key`, unless it is installed already.
    fn install_entry(&mut self, key: &EntryByKey) -> Result<()> {
        let stale = self.entries_to_remove.remove_entry(key);
        let Some((entry, mut wanted)) = self.desired_entries.get_with_state(key) else { return Ok(()) };
        if let Some((EntryByKey(stale), index)) = stale
            && wanted.installed_entry.is_none()
        {
            (wanted.installed_entry, wanted.interface_index, wanted.is_state_unknown) =
                (Some(stale), index, true);
            self.desired_entries.set(entry.clone(), wanted.clone());
        }
        let index = wanted.interface_index;
        let EntryByKey(entry) = entry;
        let previous = wanted.installed_entry.clone().filter(|_| !wanted.is_state_unknown);
        let result = self.put_entry(&entry, previous.as_deref());
        let mut stale = None;
        if let Some((key, mut wanted)) = self.desired_entries.get_with_state(key) {
            match &result {
                Ok(InstallOutcome::Done(index) | InstallOutcome::LeftAlone(index)) => {
                    wanted.installed_entry = Some(entry.clone());
                    (wanted.interface_index, wanted.is_state_unknown) = (*index, false);
                    wanted.has_foreign_address = false;
                }
                Ok(InstallOutcome::Foreign(index)) => {
                    wanted.installed_entry = None;
                    (wanted.interface_index, wanted.is_state_unknown) = (*index, false);
                    wanted.has_foreign_address = true;
                }
                // The new entry has to wait. Remove the former entry now, because it is no longer desired.
                Ok(InstallOutcome::Later) => {
                    stale = wanted.installed_entry.take();
                    wanted.is_state_unknown = false;
                }
                Ok(InstallOutcome::Perhaps(index, _)) => {
                    wanted.installed_entry = Some(entry.clone());
                    (wanted.interface_index, wanted.is_state_unknown) = (*index, true);
                }
                Err(_) => {}
            }
            if let Ok(InstallOutcome::LeftAlone(_)) = result {
                self.waiting_entries.remove(&key);
                wanted.was_removed_by_others = false;
                let text = "carnet leaves accept_ra at 0 on this interface: another program handles its \
                     Router Advertisements, or an operator has turned them off";
                if let ForwardingEntry::Setting(setting) = &*entry
                    && self.entry_errors.entry(key.clone()).or_default().record_new_message(text, true)
                {
                    tracing::info!("{}: {text}", setting.interface);
                }
            } else if matches!(result, Ok(InstallOutcome::Done(_) | InstallOutcome::Foreign(_))) {
                self.waiting_entries.remove(&key);
                let was_lost = std::mem::take(&mut wanted.was_removed_by_others);
                self.restored_entries += u64::from(was_lost && !wanted.has_foreign_address);
                self.entry_errors.remove(&key);
            } else {
                self.waiting_entries.insert(key.clone());
            }
            self.desired_entries.set(key, wanted);
        }
        if let Some(stale) = stale {
            self.remove_undesired(stale, index)?;
        }
        let result = match result {
            Ok(InstallOutcome::Perhaps(_, error)) => Err(error),
            other => other.map(drop),
        };
        self.has_refused_requests |= result.is_err();
        result
    }

    /// Returns the index of an interface; `None` if the interface is missing, or if it is down although
    /// `must_be_up`.
    fn interface_index_of(&mut self, interface: &str, must_be_up: bool) -> Result<Option<u32>> {
        if interface == TUNNEL_DEVICE {
            return Ok(Some(self.tunnel_index));
        }
        let link = self.requests.link_requests().find_link(interface)?;
        Ok(link.filter(|link| link.is_up || !must_be_up).map(|link| link.index))
    }

    fn put_entry(
        &mut self,
        entry: &ForwardingEntry,
        previous: Option<&ForwardingEntry>,
    ) -> Result<InstallOutcome> {
        self.note_own_change(entry);
        self.routing_changed |= !is_independent_of_routing(entry);
        if !matches!(entry, ForwardingEntry::PacketRule(_)) && self.rule_table.has_urgent_rules() {
            self.commit_packet_rules();
        }
        match entry {
            // The next commit installs all packet rules in one transaction.
            ForwardingEntry::PacketRule(rule) => {
                self.rule_table.add_rule(rule);
                Ok(InstallOutcome::Done(0))
            }
            ForwardingEntry::Setting(setting) => {
                kernel_settings::check_setting_name(setting)?;
                if self.kernel_settings.starts_forwarding(setting)? {
                    let links = self.requests.link_requests().list_links()?;
                    self.keep_router_advertisements(links.iter())?;
                }
                let index = match kernel_settings::concerns_all_interfaces(&setting.interface) {
                    true => Some(0),
                    false => self.interface_index_of(&setting.interface, false)?,
                };
                let Some(index) = index else { return Ok(InstallOutcome::Later) };
                if is_conditional_setting(setting) && !self.may_write_setting(setting, index) {
                    return Ok(InstallOutcome::Later);
                }
                Ok(match self.kernel_settings.set_value(setting, index, &mut self.undo_file) {
                    Ok(WriteOutcome::Done) => InstallOutcome::Done(index),
                    Ok(WriteOutcome::LeftAlone) => InstallOutcome::LeftAlone(index),
                    Ok(WriteOutcome::Missing) => InstallOutcome::Later,
                    Err(error) => InstallOutcome::Perhaps(index, error),
                })
            }
            ForwardingEntry::Address(address) => self.put_address(address, previous),
            ForwardingEntry::Route(route) => self.put_route(route, previous.is_some()),
            // A tunnel needs no request to the kernel, because the TUN device carries the packets of every
            // tunnel.
            ForwardingEntry::Tunnel(tunnel) => {
                self.fast_path.set_tunnel(tunnel);
                // The tunnel replaces one with the same ends, so its remote end is already counted.
                self.known_senders.iter_mut().for_each(|known| known.add(tunnel, previous.is_none()));
                Ok(InstallOutcome::Done(0))
            }
            ForwardingEntry::Socket(socket) => self.put_socket(socket),
            ForwardingEntry::Ipv4Route(route) => self.put_ipv4_route(route, previous.is_some()),
            ForwardingEntry::Ipv4Rule(rule) => Ok(match self.requests.ipv4_table_requests().add_rule(rule) {
                Ok(()) => InstallOutcome::Done(0),
                Err(error) => InstallOutcome::Perhaps(0, error),
            }),
            ForwardingEntry::Distribution(distribution) => {
                self.fast_path.set_distribution(distribution, true);
                Ok(InstallOutcome::Done(0))
            }
            ForwardingEntry::Rule(rule) => {
                if rule.priority < priority::LOCAL_TABLE_RULE {
                    self.move_local_rule()?;
                }
                Ok(match self.requests.rule_requests().add_rule(rule, ROUTE_PROTOCOL) {
                    Ok(()) => InstallOutcome::Done(0),
                    Err(error) => InstallOutcome::Perhaps(0, error),
                })
            }
        }
    }

    /// Notes carnet's own change for the fast path, because the kernel sends no events about carnet's own
    /// changes.
    fn note_own_change(&mut self, entry: &ForwardingEntry) {
        self.foreign_routing_changed |= match entry {
            _ if is_independent_of_routing(entry) => false,
            ForwardingEntry::Route(route) => !route.leads_into_tunnel_device(),
            _ => true,
        };
        match entry {
            ForwardingEntry::Route(route) => self.changed_routing_fields.note_long_prefix(route.destination),
            // An added address also gives the kernel a host route (/128), so note it as a long prefix.
            ForwardingEntry::Address(InterfaceAddress { address, .. }) => {
                self.changed_routing_fields.note_long_prefix((*address).into())
            }
            ForwardingEntry::Rule(_) => self.changed_routing_fields.rules_changed = true,
            _ => {}
        }
    }

    fn put_address(
        &mut self,
        address: &InterfaceAddress,
        previous: Option<&ForwardingEntry>,
    ) -> Result<InstallOutcome> {
        let InterfaceAddress { interface, address, prefix_length, deprecated } = address;
        let Some(index) = self.interface_index_of(interface, false)? else {
            return Ok(InstallOutcome::Later);
        };
        // The kernel cannot change the prefix length of an address, so delete the address and add it again.
        if let Some(ForwardingEntry::Address(old)) = previous
            && old.prefix_length != *prefix_length
            && self.own_prefix_length(index, interface, *address)? == Some(old.prefix_length)
        {
            self.requests.address_requests().delete_address(index, interface, *address, old.prefix_length)?;
        }
        let added = match deprecated {
            true => self.requests.address_requests().add_deprecated_address(index, interface, *address),
            false => self.requests.address_requests().add_address(index, interface, *address, *prefix_length),
        };
        match added {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {
                match self.own_prefix_length(index, interface, *address)? {
                    None => {
                        // The undo file lists an address that carnet set earlier. Another program has
                        // replaced it by its own, which carnet must not remove.
                        self.forget_recorded_address(interface, *address);
                        return Ok(InstallOutcome::Foreign(index));
                    }
                    // An earlier attempt has added the address, and only the kernel's answer was lost.
                    Some(length) if length == *prefix_length => {}
                    Some(length) => {
                        self.requests
                            .address_requests()
                            .delete_address(index, interface, *address, length)?;
                        return Ok(InstallOutcome::Perhaps(index, e));
                    }
                }
            }
            Err(e) if is_interface_gone(&e) => return Ok(InstallOutcome::Later),
            Err(e) => return Ok(InstallOutcome::Perhaps(index, e)),
        }
        self.undo_file
            .recorded_changes
            .addresses
            .retain(|a| (&a.interface, a.address) != (interface, *address));
        self.undo_file.recorded_changes.addresses.push(AddedAddress {
            interface: interface.clone(),
            index,
            address: *address,
            prefix_length: *prefix_length,
        });
        self.save_undo_file();
        Ok(InstallOutcome::Done(index))
    }

    fn put_route(&mut self, route: &Route, replace: bool) -> Result<InstallOutcome> {
        let index = match &*route.action {
            RouteAction::Unreachable => None,
            RouteAction::Local => Some(self.tunnel_index),
            RouteAction::Forward { interface, .. } => match self.interface_index_of(interface, true)? {
                Some(index) => Some(index),
                None => return Ok(InstallOutcome::Later),
            },
        };
        match self.requests.route_requests().set_route(route, index, replace) {
            Ok(()) => Ok(InstallOutcome::Done(index.unwrap_or(0))),
            Err(e) if is_interface_gone(&e) => Ok(InstallOutcome::Later),
            Err(e @ Error::RouteTaken { .. }) => Err(e),
            Err(e) => Ok(InstallOutcome::Perhaps(index.unwrap_or(0), e)),
        }
    }

    fn put_ipv4_route(&mut self, route: &Ipv4Route, replace: bool) -> Result<InstallOutcome> {
        let Some(index) = self.interface_index_of(&route.interface, true)? else {
            return Ok(InstallOutcome::Later);
        };
        match self.requests.ipv4_table_requests().set_route(route, index, replace) {
            Ok(()) => Ok(InstallOutcome::Done(index)),
            Err(e) if is_interface_gone(&e) => Ok(InstallOutcome::Later),
            Err(e @ Error::RouteTaken { .. }) => Err(e),
            Err(e) => Ok(InstallOutcome::Perhaps(index, e)),
        }
    }

    fn put_socket(&mut self, socket: &TunnelSocket) -> Result<InstallOutcome> {
        let index = match &socket.interface {
            Some(interface) => self.interface_index_of(interface, true)?,
            None => Some(0),
        };
        let Some(index) = index else { return Ok(InstallOutcome::Later) };
        // If the fast path handles tunnelled packets in IPv4, it needs single packets. The kernel then must
        // not merge packets for this socket.
        match self.datagrams.open(socket, !self.fast_path.handles_datagrams()) {
            Ok(()) => {
                self.fast_path.set_socket(socket, index);
                Ok(InstallOutcome::Done(index))
            }
            Err(e) => {
                let on = socket.interface.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
                let error = Error::from_kernel_refusal(format!("open a socket for {}{on}", socket.local), e);
                if is_interface_gone(&error) { Ok(InstallOutcome::Later) } else { Err(error) }
            }
        }
    }

    /// Removes an entry that carnet has installed, but no entry of another program.
    fn remove_from_kernel(&mut self, entry: &ForwardingEntry, index: u32) -> Result<()> {
        self.note_own_change(entry);
        self.routing_changed |= !is_independent_of_routing(entry);
        match entry {
            ForwardingEntry::PacketRule(rule) => {
                self.rule_table.remove_rule(rule);
                Ok(())
            }
            ForwardingEntry::Setting(setting) => self.restore_removed_setting(setting),
            ForwardingEntry::Address(InterfaceAddress { interface, address, .. }) => {
                // Check the owner's mark again, because an operator may have replaced the address since.
                if let Some(length) = self.own_prefix_length(index, interface, *address)? {
                    self.requests.address_requests().delete_address(index, interface, *address, length)?;
                }
                self.forget_recorded_address(interface, *address);
                Ok(())
            }
            ForwardingEntry::Route(route) => {
                self.requests.route_requests().delete_route(route.table, route.destination, route.metric)
            }
            ForwardingEntry::Tunnel(tunnel) => {
                self.fast_path.remove_tunnel(tunnel);
                self.known_senders.iter_mut().for_each(|known| known.remove(tunnel));
                Ok(())
            }
            ForwardingEntry::Socket(socket) => {
                self.datagrams.close(socket);
                self.fast_path.remove_socket(socket);
                Ok(())
            }
            ForwardingEntry::Distribution(distribution) => {
                self.fast_path.set_distribution(distribution, false);
                Ok(())
            }
            ForwardingEntry::Rule(rule) => {
                self.requests.rule_requests().delete_rule(rule, ROUTE_PROTOCOL)?;
                self.move_local_rule_if_needed()
            }
            ForwardingEntry::Ipv4Route(route) => {
                self.requests.ipv4_table_requests().delete_route(route.table, route.destination)
            }
            ForwardingEntry::Ipv4Rule(rule) => self.requests.ipv4_table_requests().delete_rule(rule),
        }
    }

    /// Installs all rules of the packet filter together, if they have changed. After an error the next
    /// retry tries again.
    pub(crate) fn commit_packet_rules(&mut self) {
        if !self.rule_table.is_commit_due() {
            return;
        }
        if self.rule_table.has_rules() && !self.undo_file.recorded_changes.rule_table {
            self.undo_file.recorded_changes.rule_table = true;
            self.save_undo_file();
        }
        self.leave_nat_packets_to_kernel();
        self.leave_filtered_packets_to_kernel();
        let before = self.rule_table.error().map(str::to_owned);
        match self.rule_table.commit_rules() {
            Ok(()) => {
                if !self.rule_table.has_rules()
                    && std::mem::take(&mut self.undo_file.recorded_changes.rule_table)
                {
                    self.save_undo_file();
                }
                if before.is_some() {
                    tracing::info!(
                        "the kernel now accepts the nftables table `carnet_rules`, which it refused before"
                    );
                }
            }
            Err(error) => {
                self.has_refused_requests = true;
                if before.as_deref() != self.rule_table.error() {
                    tracing::error!("{error}");
                }
            }
        }
    }

    /// Before the packet rules are in force, makes the fast path leave to the kernel all packets that these
    /// rules have to see.
    fn leave_filtered_packets_to_kernel(&mut self) {
        if self.fast_path.set_filtered_interfaces(self.rule_table.filtered_interfaces()) {
            self.update_fast_path_interfaces();
        }
    }

    /// Reads events about the packet filter rules of all programs, and passes changes to the fast path.
    pub(crate) fn poll_ruleset(&mut self, cx: &mut Context<'_>) {
        if self.ruleset_watch.poll_changes(cx) {
            self.apply_ruleset_change();
        }
    }

    /// If BPF programs forward packets, checks whether the packet filter rules of any program have changed
    /// since the last second.
    fn check_ruleset(&mut self) {
        if !matches!(self.fast_path.path(), DataPath::Bpf | DataPath::Xdp) {
            return;
        }
        if self.ruleset_watch.advance_one_second() {
            self.apply_ruleset_change();
        }
        if self.fast_path.has_tracked_flows() {
            self.accept_untracked_tcp_windows();
        }
    }

    /// Passes the packet filter rules of all programs to the fast path, and logs which rules prevent its use.
    fn apply_ruleset_change(&mut self) {
        let value = self.ruleset_watch.ruleset_value();
        if let Err(why) = self.fast_path.set_ruleset(value) {
            tracing::error!("carnet has closed the fast path, and all packets take the slow path: {why}");
        }
        self.update_fast_path_interfaces();
        let scope = value.ipv4_scope.max(value.ipv6_scope);
        let conntrack =
            self.fast_path.conntrack_obstacle().filter(|_| scope > 0 || self.rule_table.has_rules());
        let conntrack = conntrack.map(|why| {
            format!(
                "packets that rules of the packet filter examine take the slow path, because BPF programs \
                 cannot use the kernel's connection tracking: {why}"
            )
        });
        let rules = self.ruleset_watch.slow_path_reasons().into_iter().map(|(reason, versions)| {
            format!(
                "all {versions} packets take the slow path because of a rule of the packet filter: {reason}"
            )
        });
        for message in conntrack.into_iter().chain(rules) {
            if self.ruleset_messages.insert(message.clone()) {
                tracing::warn!("{message}");
            }
        }
    }

    /// Makes connection tracking accept TCP packets outside of the window that it has seen. It does not see
    /// the packets that the fast path forwards, and would call the last packets of a connection invalid.
    fn accept_untracked_tcp_windows(&mut self) {
        let setting = kernel_settings::tcp_be_liberal_setting();
        if !self.kernel_settings.has_value(&setting.interface, &setting.name, &setting.value).unwrap_or(true)
            && let Err(error) = self.kernel_settings.set_value(&setting, 0, &mut self.undo_file)
            && self.ruleset_messages.insert(error.to_string())
        {
            tracing::warn!("{error}");
        }
    }

    /// Passes the present interfaces to the fast path.
    fn update_fast_path_interfaces(&mut self) {
        match self.requests.link_requests().list_links() {
            Ok(links) => {
                let links = links.into_iter().map(|link| (link.name.clone(), link)).collect();
                for complaint in self.fast_path.update_interfaces(&links) {
                    tracing::warn!("{complaint}");
                }
            }
            Err(error) => {
                tracing::error!(
                    "carnet closes the fast path, because its packets would bypass nftables: {error}"
                );
                self.fast_path.remove_all_entries(&mut self.requests);
            }
        }
    }

    /// Installs the rules of the packet filter again, after another program has changed them.
    pub(crate) fn restore_packet_rules(&mut self) {
        tracing::warn!(
            "another program has changed the nftables table `inet carnet_rules`: carnet restores it"
        );
        self.restored_entries += 1;
        self.commit_packet_rules();
    }

    /// Moves the local rule back to priority 0 when no rule has to precede it any more.
    fn move_local_rule_if_needed(&mut self) -> Result<()> {
        let needed = |entry: &EntryByKey| {
            matches!(&*entry.0, ForwardingEntry::Rule(r)
if r.priority < priority::LOCAL_TABLE_RULE)
        };
        if self.local_rule_priority != LocalRulePriority::InPlace
            && !self.fast_path.has_rules_before_local_table()
            && !self.desired_entries.entries().any(needed)
        {
            self.restore_local_rule()?;
        }
        Ok(())
    }

    /// Returns table and destination of each route into the TUN device.
    fn routes_into_tunnel_device(&self) -> BTreeSet<(u32, Ipv6Net)> {
        let routes = self.desired_entries.installed_entries().filter_map(|entry| match entry {
            ForwardingEntry::Route(route) if route.leads_into_tunnel_device() => {
                Some((route.table, route.destination))
            }
            _ => None,
        });
        routes.into_iter().collect()
    }

    /// Makes room in the fast path for the number of bindings in this config.
    pub(crate) fn grow_fast_path(&mut self, config: &FastPathConfig) -> std::result::Result<(), String> {
        self.fast_path.grow_maps(config, self.tunnel_index, &mut self.requests)
    }

    /// If a thread has loaded the programs of a fast path, starts to use this path and passes all tunnels to
    /// it. Returns the result of the loading; `None` until the thread has finished.
    pub(crate) fn poll_fast_path(&mut self, cx: &mut Context<'_>) -> Option<LoadingResult> {
        let EntryInstaller { fast_path, requests, tunnel_index, desired_entries: wanted, datagrams, .. } =
            self;
        let loaded = fast_path.poll_loading(cx, *tunnel_index, requests)?;
        if !matches!(loaded, LoadingResult::NotGrown(_)) && fast_path.path() != DataPath::Tun {
            wanted
                .installed_entries()
                .filter_map(ForwardingEntry::as_tunnel)
                .for_each(|tunnel| fast_path.set_tunnel(tunnel));
        }
        datagrams.allow_merged_receive(!fast_path.handles_datagrams());
        // Make the next commit compute the fast path's state from all routes.
        (self.routing_changed, self.foreign_routing_changed) = (true, true);
        // Read the packet rules before interfaces get their programs, so that no packet passes without the
        // rules.
        self.ruleset_watch.advance_one_second();
        self.apply_ruleset_change();
        Some(loaded)
    }

    /// Makes the fast path leave packets to the kernel that come out of a tunnel and need NAT. Its programs
    /// would forward these packets without NAT.
    fn leave_nat_packets_to_kernel(&mut self) {
        let prefixes = self.rule_table.nat_sources();
        if prefixes == self.nat_sources {
            return;
        }
        self.nat_sources.clone_from(&prefixes);
        let EntryInstaller { fast_path, desired_entries: wanted, .. } = self;
        let tunnels = || wanted.installed_entries().filter_map(ForwardingEntry::as_tunnel);
        tunnels().for_each(|tunnel| fast_path.remove_tunnel(tunnel));
        fast_path.leave_prefixes_to_kernel(prefixes);
        tunnels().for_each(|tunnel| fast_path.set_tunnel(tunnel));
    }

    /// Applies the changes since the last commit to the fast path. After an error, the fast path is closed.
    pub(crate) fn commit_to_fast_path(&mut self) -> std::result::Result<(), String> {
        self.commit_packet_rules();
        if self.fast_path.has_rules_before_local_table()
            && let Err(error) = self.move_local_rule()
        {
            self.fast_path.remove_all_entries(&mut self.requests);
            return Err(error.to_string());
        }
        let mut slow = None;
        if std::mem::take(&mut self.routing_changed) {
            let heard = std::mem::take(&mut self.changed_routing_fields);
            let narrow = !std::mem::take(&mut self.foreign_routing_changed);
            self.fast_path.invalidate_next_hops(&mut self.requests, heard, narrow)?;
            let has_devices = self.fast_path.path() == DataPath::Kernel;
            slow = has_devices.then(|| self.routes_into_tunnel_device());
        }
        let result = self.fast_path.commit_changes(&mut self.requests, slow);
        if let Err(error) = self.move_local_rule_if_needed() {
            tracing::warn!("{error}");
        }
        result
    }

    /// Records that carnet wants this sysctl on an interface that may be on the home link
    /// ([`crate::advertisement_settings`]). Returns whether carnet may write it now.
    fn may_write_setting(&mut self, setting: &SysctlSetting, index: u32) -> bool {
        match self.conditional_settings.iter().find(|it| it.setting == *setting) {
            Some(known) => known.permitted_interface_index == Some(index),
            None => {
                self.conditional_settings
                    .push(ConditionalSetting { setting: setting.clone(), permitted_interface_index: None });
                false
            }
        }
    }

    /// Checks whether carnet may write the sysctls of home links, and warns about those that it may not
    /// write.
    pub(crate) fn check_conditional_settings(&mut self, observer: &InterfaceObserver) {
        for ConditionalSetting { setting, permitted_interface_index: allowed } in
            &mut self.conditional_settings
        {
            let Some(link) = observer.links_by_name.get(&setting.interface) else { continue };
            if *allowed == Some(link.index) {
                continue;
            }
            let key = EntryByKey(Arc::new(ForwardingEntry::Setting(Box::new(setting.clone()))));
            let SysctlSetting { interface, name, .. } = &*setting;
            let is_open = self.kernel_settings.accepts_advertisements(interface)
                && !self.kernel_settings.has_value(interface, name, "0").unwrap_or_default();
            match obstacle_to_writing_setting(setting, observer.route_and_address_origins(link.index)) {
                None => *allowed = Some(link.index),
                Some(text) if is_open => {
                    if self.entry_errors.entry(key).or_default().record_new_message(&text, true) {
                        tracing::warn!("{text}");
                    }
                }
                Some(_) => {
                    self.entry_errors.remove(&key);
                }
            }
        }
    }

    fn restore_removed_setting(&mut self, setting: &SysctlSetting) -> Result<()> {
        let SysctlSetting { interface, name, .. } = setting;
        self.conditional_settings.retain(|it| it.setting != *setting);
        self.restore_setting(interface, name)?;
        if name == kernel_settings::ACCEPT_RA
            && kernel_settings::has_enabled_forwarding(&self.undo_file.recorded_changes)
        {
            // No desired entry sets `accept_ra` on this interface any more, so treat it like every other
            // interface.
            let links = self.requests.link_requests().list_links()?;
            return self.keep_router_advertisements(links.iter().filter(|link| link.name == *interface));
        }
        if (interface.as_str(), name.as_str()) != ("all", kernel_settings::FORWARDING) {
            return Ok(());
        }
        for kept in kernel_settings::interfaces_with_changed(
            &self.undo_file.recorded_changes,
            kernel_settings::ACCEPT_RA,
        ) {
            if self.desired_setting_value(&kernel_settings::accept_ra_setting(&kept)).is_none() {
                self.restore_setting(&kept, kernel_settings::ACCEPT_RA)?;
            }
        }
        Ok(())
    }

    /// Makes interfaces accept Router Advertisements although the machine forwards. Leaves out an interface
    /// for which a desired entry sets `accept_ra`, even if that entry is not installed yet.
    fn keep_router_advertisements<'a>(&mut self, links: impl Iterator<Item = &'a LinkInfo>) -> Result<()> {
        for link in links.filter(|link| link.name != TUNNEL_DEVICE && link.name != "lo") {
            let setting = kernel_settings::accept_ra_setting(&link.name);
            let wants_another =
                self.desired_setting_value(&setting).is_some_and(|wanted| wanted != setting.value);
            if !wants_another && self.kernel_settings.has_value(&setting.interface, &setting.name, "1")? {
                self.kernel_settings.set_value(&setting, link.index, &mut self.undo_file)?;
            }
        }
        Ok(())
    }

    /// Returns the desired value of a setting, if any.
    fn desired_setting_value(&self, setting: &SysctlSetting) -> Option<&str> {
        match &*self
            .desired_entries
            .get(&EntryByKey(Arc::new(ForwardingEntry::Setting(Box::new(setting.clone())))))?
            .0
        {
            ForwardingEntry::Setting(wanted) => Some(&wanted.value),
            _ => None,
        }
    }

    /// Turns on receive offload (merging of a flow's packets) on these interfaces, and off on all others; see
    /// [`offloads`]. If the kernel refuses, forwarding is only slower.
    pub(crate) fn enable_receive_offload<'a>(&mut self, links: impl Iterator<Item = &'a LinkInfo> + Clone) {
        let is = |changed: &ChangedSetting, link: &LinkInfo| {
            (changed.index, &changed.interface) == (link.index, &link.name)
        };
        let settings = self.undo_file.recorded_changes.settings.iter();
        let known: Vec<_> = settings.filter(|one| offloads::is_offload_feature(&one.name)).cloned().collect();
        for changed in known.iter().rev().filter(|changed| !links.clone().any(|link| is(changed, link))) {
            if let Err(error) = self.restore_setting(&changed.interface, &changed.name) {
                tracing::warn!("{error}");
            }
        }
        for link in links {
            for name in offloads::OFFLOAD_FEATURES {
                if known.iter().any(|changed| changed.name == name && is(changed, link)) {
                    continue;
                }
                let setting =
                    SysctlSetting { interface: link.name.clone(), name: name.into(), value: "1".into() };
                if let Err(error) = self.kernel_settings.set_value(&setting, link.index, &mut self.undo_file)
                {
                    tracing::debug!("cannot change a kernel setting that makes forwarding faster: {error}");
                }
            }
        }
    }

    fn restore_setting(&mut self, interface: &str, name: &str) -> Result<()> {
        let index = match kernel_settings::concerns_all_interfaces(interface) {
            true => Some(0),
            false => self.requests.link_requests().find_link(interface)?.map(|link| link.index),
        };
        self.kernel_settings.restore_value(interface, name, index, &mut self.undo_file)
    }

    fn move_local_rule(&mut self) -> Result<()> {
        if self.local_rule_priority == LocalRulePriority::Moved {
            return Ok(());
        }
        self.local_rule_priority = LocalRulePriority::Moving;
        self.requests
            .rule_requests()
            .add_rule(&local_table_rule(priority::LOCAL_TABLE_RULE), ROUTE_PROTOCOL)?;
        // If another program has already moved the rule, no rule of this priority exists.
        for info in self.requests.rule_requests().list_rules()? {
            if info.is_table_lookup && info.rule == local_table_rule(0) {
                self.requests.rule_requests().delete_rule(&info.rule, info.protocol)?;
            }
        }
        self.local_rule_priority = LocalRulePriority::Moved;
        Ok(())
    }

    fn restore_local_rule(&mut self) -> Result<()> {
        // Until the kernel confirms the move, the rule may exist at both priorities.
        self.local_rule_priority = LocalRulePriority::Moving;
        restore_local_rule(&mut self.requests)?;
        self.local_rule_priority = LocalRulePriority::InPlace;
        Ok(())
    }

    /// Reads the changed parts of the kernel's state, and installs lost entries again.
    pub(crate) fn reconcile_with_kernel(
        &mut self,
        dirty: ChangedParts,
        links: &BTreeMap<String, LinkInfo>,
        addresses: &[AddressInfo],
    ) -> Result<()> {
        if dirty.links_changed || dirty.addresses_changed || dirty.settings_changed {
            self.note_changed_settings(links);
        }
        if dirty.links_changed || dirty.addresses_changed {
            let keeps_marks = self.requests.kernel_stores_address_protocol();
            let is_ipv4 = |key: &EntryByKey| {
                matches!(&*key.0, ForwardingEntry::Address(a)
if mapped::is_ipv4(a.address))
            };
            let ipv4 = match self.desired_entries.entries().any(is_ipv4) {
                true => self.requests.address_requests().list_ipv4()?,
                false => Vec::new(),
            };
            let addresses: BTreeMap<(u32, Ipv6Addr), bool> = addresses
                .iter()
                .chain(&ipv4)
                .map(|a| ((a.index, a.address.address), a.is_own_address()))
                .collect();
            self.mark_removed_entries(|entry, wanted| {
                let index = wanted.interface_index;
                let same = |name: &str| links.get(name).is_some_and(|link| link.index == index);
                match entry {
                    ForwardingEntry::Setting(s) => {
                        kernel_settings::concerns_all_interfaces(&s.interface) || same(&s.interface)
                    }
                    ForwardingEntry::Socket(TunnelSocket { interface: Some(interface), .. }) => {
                        same(interface)
                    }
                    // If another program has put its own entry in place of carnet's, carnet's entry counts as
                    // lost.
                    ForwardingEntry::Address(a) => {
                        let known = addresses.get(&(index, a.address));
                        same(&a.interface)
                            && known
                                .is_some_and(|is_ours| *is_ours || wanted.has_foreign_address || !keeps_marks)
                    }
                    ForwardingEntry::Route(route) => route.interface().is_none_or(|interface| {
                        interface == TUNNEL_DEVICE
                            || same(interface) && links.get(interface).is_some_and(|link| link.is_up)
                    }),
                    _ => true,
                }
            });
        }
        self.accept_ra_check_due |= dirty.links_changed;
        if dirty.own_routes_changed
            && self.desired_entries.entries().any(|key| matches!(*key.0, ForwardingEntry::Route(_)))
        {
            let mut routes = self.requests.route_requests().list_routes(None, Some(ROUTE_PROTOCOL))?;
            let is_ipv4 = |key: &EntryByKey| {
                matches!(&*key.0, ForwardingEntry::Route(r)
if mapped::to_ipv4(r.destination).is_some())
            };
            if self.desired_entries.entries().any(is_ipv4) {
                routes.extend(self.requests.route_requests().list_ipv4_routes(None, Some(ROUTE_PROTOCOL))?);
            }
            let routes: BTreeMap<_, RouteInfo> =
                routes.into_iter().map(|r| ((r.table, r.destination, r.metric), r)).collect();
            self.mark_removed_entries(|entry, wanted| match entry {
                ForwardingEntry::Route(route) => routes
                    .get(&(route.table, route.destination, effective_metric(route.metric)))
                    .is_some_and(|found| route_matches(route, wanted.interface_index, found)),
                _ => true,
            });
        }
        if dirty.own_rules_changed
            && self.desired_entries.entries().any(|key| matches!(*key.0, ForwardingEntry::Rule(_)))
        {
            self.check_packet_rules()?;
        }
        self.check_ipv4_entries(dirty)?;
        self.retry_waiting_entries(links, false);
        self.restored_entries +=
            self.fast_path.mark_removed_entries(&mut self.requests, dirty, links, addresses)?;
        Ok(())
    }

    /// Marks every setting that another program has changed as waiting. If a changed value cannot be read,
    /// carnet reads the settings again after one second.
    fn note_changed_settings(&mut self, links: &BTreeMap<String, LinkInfo>) {
        let mut changed = Vec::new();
        self.settings_check_due = false;
        for (key, wanted) in self.desired_entries.entries_with_states() {
            let ForwardingEntry::Setting(setting) = &*key.0 else { continue };
            let same =
                || links.get(&setting.interface).is_some_and(|link| link.index == wanted.interface_index);
            if wanted.needs_no_request(key)
                && (kernel_settings::concerns_all_interfaces(&setting.interface) || same())
            {
                match self.kernel_settings.foreign_value(setting) {
                    Ok(None) => {}
                    Ok(Some(found)) => {
                        let lost =
                            EntryState { installed_entry: None, was_removed_by_others: true, ..wanted };
                        changed.push((key.clone(), lost, found));
                    }
                    Err(error) => {
                        tracing::debug!("cannot read a kernel setting: {error}; carnet will try again");
                        (self.settings_check_due, self.has_refused_requests) = (true, true);
                    }
                }
            }
        }
        for (key, lost, found) in changed {
            self.desired_entries.set(key.clone(), lost);
            self.waiting_entries.insert(key.clone());
            self.record_setting_contest(ContestedState::Setting(key), &found);
        }
    }

    /// Notes that another program has changed a setting to `found`.
    fn record_setting_contest(&mut self, what: ContestedState, found: &str) {
        let notice = self.setting_contests.entry(what).or_default().count_foreign_change(found);
        self.operator_messages.push(notice);
    }

    /// Returns whether carnet has to wait before it restores this setting, or the local rule.
    fn is_correction_postponed(&self, what: &ContestedState) -> bool {
        self.setting_contests.get(what).is_some_and(SettingContest::is_waiting)
    }

    /// Advances all contests by one second. Returns whether a correction is due now.
    pub(crate) fn advance_one_second(&mut self) -> bool {
        self.check_ruleset();
        let mut is_due = false;
        self.setting_contests.retain(|_, contest| match contest.advance_one_second() {
            ContestAction::Nothing => true,
            ContestAction::Due => {
                is_due = true;
                true
            }
            ContestAction::Over => false,
        });
        is_due
    }

    /// Returns whether another program has changed any setting lately.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn has_setting_contest(&self) -> bool {
        !self.setting_contests.is_empty()
    }

    /// Returns the messages for the operator that were not returned before.
    pub(crate) fn take_operator_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.operator_messages)
    }

    /// Returns a message for each difference between this machine's state and the station's needs.
    pub(crate) fn obstacle_messages(&self) -> Vec<String> {
        let contests = self.setting_contests.values().filter_map(SettingContest::obstacle_message);
        let is_obstacle =
            |key: &EntryByKey, it: &EntryError| it.is_logged && self.waiting_entries.contains(key);
        let refused = self.entry_errors.iter().filter(|(key, it)| is_obstacle(key, it));
        let rules = self.rule_table.error().map(str::to_owned);
        let refused = refused.map(|(_, it)| it.message_text.clone());
        rules.into_iter().chain(contests).chain(refused).take(MAX_OBSTACLES).collect()
    }

    /// If an installed entry is no longer present in the kernel, marks it as waiting.
    fn mark_removed_entries(&mut self, is_there: impl Fn(&ForwardingEntry, &EntryState) -> bool) {
        let is_removed = |(key, wanted): &(&EntryByKey, EntryState)| {
            wanted.needs_no_request(key) && !is_there(&key.0, wanted)
        };
        let removed: Vec<(EntryByKey, EntryState)> = self
            .desired_entries
            .entries_with_states()
            .filter(is_removed)
            .map(|(key, wanted)| (key.clone(), wanted))
            .collect();
        for (key, wanted) in removed {
            tracing::debug!(key = ?key.0.key(), "the kernel has lost this entry: carnet installs it again");
            self.waiting_entries.insert(key.clone());
            let lost = EntryState {
                installed_entry: None,
                has_foreign_address: false,
                was_removed_by_others: true,
                ..wanted
            };
            self.desired_entries.set(key, lost);
        }
    }

    /// Checks whether IPv4 routes or rules were lost, and marks them as waiting.
    fn check_ipv4_entries(&mut self, dirty: ChangedParts) -> Result<()> {
        // When an interface loses its last IPv4 address, the kernel removes the interface's routes without an
        // event.
        let has_route =
            || self.desired_entries.entries().any(|key| matches!(*key.0, ForwardingEntry::Ipv4Route(_)));
        if (dirty.own_routes_changed || dirty.links_changed || dirty.addresses_changed) && has_route() {
            let routes = self.requests.ipv4_table_requests().list_ipv4_routes(None, Some(ROUTE_PROTOCOL))?;
            let routes: BTreeMap<_, Ipv4RouteInfo> =
                routes.into_iter().map(|route| ((route.table, route.destination), route)).collect();
            self.mark_removed_entries(|entry, wanted| match entry {
                ForwardingEntry::Ipv4Route(route) => {
                    routes.get(&(route.table, route.destination)).is_some_and(|it| {
                        it.index == Some(wanted.interface_index) && it.gateway == route.gateway
                    })
                }
                _ => true,
            });
        }
        if dirty.own_rules_changed
            && self.desired_entries.entries().any(|key| matches!(*key.0, ForwardingEntry::Ipv4Rule(_)))
        {
            let rules = self.requests.ipv4_table_requests().list_own_rules()?;
            self.mark_removed_entries(|entry, _| match entry {
                ForwardingEntry::Ipv4Rule(rule) => rules.contains(rule),
                _ => true,
            });
        }
        Ok(())
    }

    fn check_packet_rules(&mut self) -> Result<()> {
        let mut rules = self.requests.rule_requests().list_rules()?;
        if self
            .desired_entries
            .entries()
            .any(|key| matches!(&*key.0, ForwardingEntry::Rule(rule) if is_ipv4_rule(rule)))
        {
            rules.extend(self.requests.rule_requests().list_ipv4_rules()?);
        }
        self.mark_removed_entries(|entry, _| match entry {
            ForwardingEntry::Rule(rule) => {
                rules.iter().any(|r| r.protocol == ROUTE_PROTOCOL && r.rule == **rule)
            }
            _ => true,
        });
        if self.local_rule_priority == LocalRulePriority::Moved {
            let ours = local_table_rule(priority::LOCAL_TABLE_RULE);
            if !rules.iter().any(|r| r.protocol == ROUTE_PROTOCOL && r.rule == ours) {
                self.requests.rule_requests().add_rule(&ours, ROUTE_PROTOCOL)?;
                self.restored_entries += 1;
            }
            if rules.iter().any(|r| r.is_table_lookup && r.rule == local_table_rule(0))
                && !self.is_correction_postponed(&ContestedState::LocalRule)
            {
                self.record_setting_contest(ContestedState::LocalRule, EARLY_LOCAL_RULE_MESSAGE);
                self.delete_early_local_rules()?;
            }
        }
        Ok(())
    }

    /// Deletes the local rule at priority 0 that another program has restored, except during the pause
    /// between two corrections.
    fn delete_early_local_rules(&mut self) -> Result<()> {
        if self.local_rule_priority != LocalRulePriority::Moved
            || self.is_correction_postponed(&ContestedState::LocalRule)
        {
            return Ok(());
        }
        for info in self.requests.rule_requests().list_rules()? {
            if info.is_table_lookup && info.rule == local_table_rule(0) {
                self.requests.rule_requests().delete_rule(&info.rule, info.protocol)?;
                self.restored_entries += 1;
            }
        }
        Ok(())
    }

    /// Tries again to install waiting entries whose interface exists, and to remove entries whose removal
    /// failed. `by_clock` says that a second has passed; otherwise an event is the cause.
    pub(crate) fn retry_waiting_entries(&mut self, links: &BTreeMap<String, LinkInfo>, by_clock: bool) {
        self.has_refused_requests = false;
        self.rule_table.retry_at_next_commit();
        self.commit_packet_rules();
        if let Err(error) = self.remove_undesired_entries() {
            tracing::warn!(
                "cannot remove an outdated route, rule, address or setting from the kernel: {error}; carnet \
                 will try again"
            );
        }
        if self.undo_file.is_unsaved() {
            self.save_undo_file();
        }
        if self.settings_check_due {
            self.note_changed_settings(links);
        }
        if std::mem::take(&mut self.accept_ra_check_due)
            && kernel_settings::has_enabled_forwarding(&self.undo_file.recorded_changes)
            && let Err(error) = self.keep_router_advertisements(links.values())
        {
            (self.accept_ra_check_due, self.has_refused_requests) = (true, true);
            tracing::warn!("cannot set accept_ra of the interfaces: {error}; carnet will try again");
        }
        if self.setting_contests.contains_key(&ContestedState::LocalRule)
            && let Err(error) = self.delete_early_local_rules()
        {
            self.has_refused_requests = true;
            tracing::warn!(
                "cannot move the rule for the local routing table: {error}; carnet will try again"
            );
        }
        let ready = |key: &EntryByKey| {
            if self.is_correction_postponed(&ContestedState::Setting(key.clone())) {
                return false;
            }
            let Some(EntryByKey(entry)) = self.desired_entries.get(key) else { return false };
            match &**entry {
                ForwardingEntry::Setting(s) => {
                    kernel_settings::concerns_all_interfaces(&s.interface) || links.contains_key(&s.interface)
                }
                ForwardingEntry::Address(a) => links.contains_key(&a.interface),
                ForwardingEntry::Route(route) => route.interface().is_none_or(|interface| {
                    interface == TUNNEL_DEVICE || links.get(interface).is_some_and(|link| link.is_up)
                }),
                ForwardingEntry::Ipv4Route(route) => {
                    links.get(&route.interface).is_some_and(|link| link.is_up)
                }
                _ => true,
            }
        };
        let keys: Vec<EntryByKey> = self.waiting_entries.iter().filter(|key| ready(key)).cloned().collect();
        for key in keys {
            if let Err(error) = self.install_entry(&key) {
                let complaint = self.entry_errors.entry(key).or_default();
                complaint.failed_attempts += u32::from(by_clock);
                let lasts = !is_temporary_error(&error) || complaint.failed_attempts >= ATTEMPTS_BEFORE_LOG;
                if complaint.record_new_message(&error.to_string(), lasts) {
                    tracing::warn!("cannot install an entry in the kernel: {error}; carnet will try again");
                }
            }
        }
    }

    /// Returns all entries of the desired forwarding state.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn desired_entries(&self) -> impl Iterator<Item = &ForwardingEntry> + Clone {
        self.desired_entries.entries().map(|entry| &*entry.0)
    }

    /// Returns the number of entries that the installer stores, of all kinds.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn entry_count(&self) -> usize {
        let record = &self.undo_file.recorded_changes;
        self.desired_entries.len()
            + self.waiting_entries.len()
            + self.entry_errors.len()
            + self.entries_to_remove.len()
            + self.setting_contests.len()
            + self.operator_messages.len()
            + record.settings.len()
            + record.addresses.len()
    }

    /// Returns whether the kernel has refused a request that carnet must send again.
    pub(crate) fn has_failed_entries(&self) -> bool {
        self.has_refused_requests
    }

    /// Tries again to remove the entries whose removal has failed. Returns the first error.
    fn remove_undesired_entries(&mut self) -> Result<()> {
        let mut result = Ok(());
        for (EntryByKey(entry), index) in std::mem::take(&mut self.entries_to_remove).into_iter().rev() {
            result = result.and(self.remove_undesired(entry, index));
        }
        result
    }

    /// Removes all entries in reverse order of their installation, and goes on after an error. Returns the
    /// first error.
    pub(crate) fn remove_all_entries(&mut self) -> Result<()> {
        self.fast_path.remove_all_entries(&mut self.requests);
        self.enable_receive_offload(std::iter::empty());
        let mut result = Ok(());
        for attempt in 1..=MAX_REMOVAL_ATTEMPTS {
            self.kernel_settings.is_process_ending = attempt == MAX_REMOVAL_ATTEMPTS;
            result = self.remove_installed_entries(attempt == MAX_REMOVAL_ATTEMPTS);
            match &result {
                Ok(()) => break,
                Err(error) if attempt < MAX_REMOVAL_ATTEMPTS => {
                    tracing::warn!(
                        "cannot remove all entries of carnet from the kernel: {error}; carnet will try again"
                    )
                }
                Err(_) => {}
            }
        }
        result
    }

    /// Removes all remaining entries, the last one first, and goes on after errors. Returns the first error.
    /// A setting is restored only after all entries that were installed later are gone; the last attempt
    /// ignores this. Otherwise `accept_ra` could become 1 while the machine still forwards, and the interface
    /// would lose its default routers.
    fn remove_installed_entries(&mut self, is_last: bool) -> Result<()> {
        let mut result = Ok(());
        let mut keep_first = |new: Result<()>| {
            if let (Ok(()), Err(_)) = (&result, &new) {
                result = new;
            } else if let Err(error) = new {
                tracing::warn!("{error}");
            }
        };
        keep_first(self.remove_undesired_entries());
        let mut keys: Vec<EntryByKey> = self.desired_entries.entries().cloned().collect();
        keys.sort();
        let is_setting = |key: &EntryByKey| matches!(*key.0, ForwardingEntry::Setting(_));
        for key in keys.iter().rev() {
            if is_last || !is_setting(key) || !self.entries_to_remove.keys().any(is_setting) {
                keep_first(self.remove_entry(key));
            }
        }
        if self.local_rule_priority != LocalRulePriority::InPlace {
            keep_first(self.restore_local_rule());
        }
        keep_first(self.requests.link_requests().delete_link(self.tunnel_index));
        if !is_last && self.desired_entries.entries().any(is_setting) {
            return result;
        }
        // Restore the settings that are still in the undo file: those of vanished interfaces, and those whose
        // restoration failed.
        for changed in self.undo_file.recorded_changes.settings.clone().into_iter().rev() {
            keep_first(self.restore_setting(&changed.interface, &changed.name));
        }
        // Remove the packet rules last, so that packets pass the filter as long as the machine forwards.
        if self.undo_file.recorded_changes.rule_table {
            let closed = self.rule_table.remove_table();
            self.undo_file.recorded_changes.rule_table = closed.is_err();
            self.save_undo_file();
            keep_first(closed);
        }
        if self.undo_file.recorded_changes == Default::default() {
            keep_first(self.undo_file.delete());
        }
        result
    }
}

impl EntryError {
    /// Stores a message about an entry. Returns true if the caller has to log it: `lasts` says that the error
    /// is not temporary, and the log does not have this message yet.
    fn record_new_message(&mut self, text: &str, lasts: bool) -> bool {
        if self.message_text != text {
            (self.message_text, self.is_logged) = (text.to_owned(), false);
        }
        lasts && !std::mem::replace(&mut self.is_logged, true)
    }
}

/// Returns whether the cause of an error usually goes away. A network manager may have turned IPv6 off while
/// it configures the interface (EACCES). The interface may have no address in the gateway's subnet yet, or
/// the kernel may be short of memory.
fn is_temporary_error(error: &Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EACCES
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EAGAIN
                | libc::EBUSY
                | libc::ENOBUFS
                | libc::ENOMEM
        )
    )
}

/// Returns whether the entry is of a kind that does not change the kernel's routing.
fn is_independent_of_routing(entry: &ForwardingEntry) -> bool {
    matches!(
        entry,
        ForwardingEntry::PacketRule(_)
            | ForwardingEntry::Tunnel(_)
            | ForwardingEntry::Distribution(_)
            | ForwardingEntry::Socket(_)
    )
}

/// Returns whether an error means that the interface has just vanished or gone down.
fn is_interface_gone(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO | libc::ENETDOWN))
}

/// Returns whether the kernel's route equals the desired one.
fn route_matches(route: &Route, index: u32, found: &RouteInfo) -> bool {
    match &*route.action {
        RouteAction::Unreachable => found.is_unreachable,
        RouteAction::Local => matches!(found.next_hops.as_slice(), [hop] if hop.index == index),
        RouteAction::Forward { gateway, .. } => {
            matches!(found.next_hops.as_slice(), [hop] if hop.index == index && hop.gateway == *gateway)
        }
    }
}

/// Restores the kernel's own rule for the local table, at priority 0 and without carnet's mark. Then deletes
/// carnet's rule for the local table.
fn restore_local_rule(requests: &mut NetlinkRequests) -> Result<()> {
    let is_local = |r: &crate::netlink::RuleInfo| {
        r.is_table_lookup && r.protocol != ROUTE_PROTOCOL && r.rule == local_table_rule(r.rule.priority)
    };
    if !requests.rule_requests().list_rules()?.iter().any(is_local) {
        requests.rule_requests().add_rule(&local_table_rule(0), KERNEL_ROUTE_PROTOCOL)?;
    }
    requests.rule_requests().delete_rule(&local_table_rule(priority::LOCAL_TABLE_RULE), ROUTE_PROTOCOL)
}

/// Removes every rule that has carnet's mark.
fn remove_leftover_rules(requests: &mut NetlinkRequests) -> Result<()> {
    let ours = |r: &crate::netlink::RuleInfo| {
        r.protocol == ROUTE_PROTOCOL && r.rule != local_table_rule(r.rule.priority)
    };
    for info in requests.rule_requests().list_rules()?.into_iter().filter(ours) {
        requests.rule_requests().delete_rule_with_action(&info.rule, info.rule_action, ROUTE_PROTOCOL)?;
    }
    // Rules of uplinks have fields that this list does not decode, so `list_own_rules` reads them.
    for info in requests
        .rule_requests()
        .list_ipv4_rules()?
        .into_iter()
        .filter(|info| ours(info) && info.is_table_lookup)
    {
        requests.rule_requests().delete_rule_with_action(&info.rule, info.rule_action, ROUTE_PROTOCOL)?;
    }
    for rule in requests.ipv4_table_requests().list_own_rules()? {
        requests.ipv4_table_requests().delete_rule(&rule)?;
    }
    // Restore the local rule even if no rule of carnet was found: without any local rule the machine does not
    // receive its own packets.
    restore_local_rule(requests)
}

/// Removes every route that has carnet's mark.
fn remove_leftover_routes(requests: &mut NetlinkRequests) -> Result<()> {
    for route in requests.route_requests().list_routes(None, Some(ROUTE_PROTOCOL))? {
        requests.route_requests().delete_route(route.table, route.destination, route.metric)?;
    }
    for route in requests.ipv4_table_requests().list_ipv4_routes(None, Some(ROUTE_PROTOCOL))? {
        requests.ipv4_table_requests().delete_route(route.table, route.destination)?;
    }
    Ok(())
}
