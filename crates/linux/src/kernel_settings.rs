//! Reads, writes and restores settings of interfaces: sysctls under `/proc/sys/net/ipv6/conf`, the IPv4
//! sysctls `rp_filter`, `forwarding` and the two about redirects, and features ([`crate::offloads`]).
//!
//! The files under `/proc/sys/net` belong to the network namespace of the thread that opens them. The module
//! writes a value only if it differs from the desired value. It restores the original value only if no other
//! program has changed the setting since.
//!
//! Writing some sysctls of `all` (`forwarding`, `disable_ipv6` and others) overwrites the value of every
//! interface, when carnet sets them and when it restores them. So carnet stores the former values of all
//! interfaces together with the value of `all`. When carnet restores `all`, each interface gets its stored
//! value, unless another program has set another value since. An interface that appeared later gets the
//! former value of `default`. carnet identifies these interfaces by name only.
//!
//! `rp_filter` (RFC 3704) is a sysctl of IPv4. If the filter is strict (1 for the interface or for `all`),
//! the kernel checks by which interface it would answer a packet. It drops the packet if that is another
//! interface than the one at which the packet arrived. Only then carnet changes the filter; a loose or
//! disabled filter stays unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use carnet_nemo::forwarding::desired::SysctlSetting;

use crate::error::{Error, Result};
use crate::offloads;
use crate::undo_file::{ChangedSetting, RecordedChanges, UndoFile};

pub(crate) const ACCEPT_RA: &str = "accept_ra";
pub(crate) const FORWARDING: &str = "forwarding";

const IPV6_SYSCTL_ROOT: &str = "/proc/sys/net/ipv6/conf";
const IPV4_SYSCTL_ROOT: &str = "/proc/sys/net/ipv4/conf";
/// Name of the IPv4 sysctl `rp_filter`.
const RP_FILTER: &str = "rp_filter";
/// Value of `rp_filter` for a strict filter.
const STRICT_RP_FILTER: &str = "1";

/// Name of the setting `net.ipv4.conf.*.forwarding` in this module. It differs from the name of the IPv6
/// setting.
const IPV4_FORWARDING: &str = "ipv4_forwarding";
/// Prefix of the names of settings below `net.ipv4.conf`.
const IPV4_NAME_PREFIX: &str = "ipv4_";
/// Name of the setting that the kernel overwrites when it writes [`IPV4_FORWARDING`] of `all`.
const ACCEPT_REDIRECTS: &str = "ipv4_accept_redirects";

/// Name of the setting `net.netfilter.nf_conntrack_tcp_be_liberal`, which no interface has.
const TCP_BE_LIBERAL: &str = "nf_conntrack_tcp_be_liberal";
const NETFILTER_SYSCTL_ROOT: &str = "/proc/sys/net/netfilter";

/// Returns the setting with which connection tracking accepts TCP packets outside of the windows that it saw.
pub(crate) fn tcp_be_liberal_setting() -> SysctlSetting {
    // The setting is for the whole network namespace, as the settings of `default` are.
    SysctlSetting { interface: "default".into(), name: TCP_BE_LIBERAL.into(), value: "1".into() }
}

/// Returns the path of a sysctl.
fn sysctl_path(interface: &str, name: &str) -> String {
    match (name, name.strip_prefix(IPV4_NAME_PREFIX)) {
        (_, Some(ipv4)) => format!("{IPV4_SYSCTL_ROOT}/{interface}/{ipv4}"),
        (RP_FILTER, None) => format!("{IPV4_SYSCTL_ROOT}/{interface}/{name}"),
        (TCP_BE_LIBERAL, None) => format!("{NETFILTER_SYSCTL_ROOT}/{name}"),
        _ => format!("{IPV6_SYSCTL_ROOT}/{interface}/{name}"),
    }
}

/// Returns whether the interface name stands for all interfaces: `all` or `default`.
pub(crate) fn concerns_all_interfaces(interface: &str) -> bool {
    matches!(interface, "all" | "default")
}

/// Returns the name of a setting in messages for operators.
fn describe_setting(interface: &str, name: &str) -> String {
    match name {
        name if offloads::is_offload_feature(name) => format!("feature {name} of {interface}"),
        RP_FILTER => format!("net.ipv4.conf.{interface}.{name}"),
        TCP_BE_LIBERAL => format!("net.netfilter.{name}"),
        name if name.starts_with(IPV4_NAME_PREFIX) => {
            format!("net.ipv4.conf.{interface}.{}", name.trim_start_matches(IPV4_NAME_PREFIX))
        }
        _ => format!("net.ipv6.conf.{interface}.{name}"),
    }
}

/// Refuses a name of an interface or setting whose path would leave the directory.
pub(crate) fn check_setting_name(setting: &SysctlSetting) -> Result<()> {
    let name_is_fine =
        setting.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let interface_is_fine =
        !setting.interface.contains('/') && !matches!(setting.interface.as_str(), "" | "." | "..");
    if name_is_fine && interface_is_fine && !setting.name.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid {
        what: "setting".into(),
        expected: "the name of an interface and of a file below net.ipv6.conf".into(),
        got: format!("{:?} {:?}", setting.interface, setting.name),
    })
}

/// Access to the settings of a machine: those of the kernel, or simulated ones.
pub(crate) trait SettingsTree {
    /// Returns the value of a setting; `None` if the setting does not exist.
    fn read(&self, interface: &str, name: &str) -> io::Result<Option<String>>;
    /// Sets the value of a setting.
    fn write(&mut self, interface: &str, name: &str, value: &str) -> io::Result<()>;
    /// Returns all names that have sysctls: interfaces, `all` and `default`.
    fn interfaces(&self) -> io::Result<Vec<String>>;
}

/// The settings of the kernel.
struct ProcSys;

impl SettingsTree for ProcSys {
    fn read(&self, interface: &str, name: &str) -> io::Result<Option<String>> {
        read_setting(interface, name)
    }

    fn write(&mut self, interface: &str, name: &str, value: &str) -> io::Result<()> {
        write_setting(interface, name, value)
    }

    fn interfaces(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(IPV6_SYSCTL_ROOT)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(io::Result::transpose).collect()
    }
}

fn read_setting(interface: &str, name: &str) -> io::Result<Option<String>> {
    if offloads::is_offload_feature(name) {
        return offloads::read_feature(interface, name);
    }
    match fs::read_to_string(sysctl_path(interface, name)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if is_missing_setting(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether an error means that the setting or its interface does not exist.
fn is_missing_setting(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

fn write_setting(interface: &str, name: &str, value: &str) -> io::Result<()> {
    if offloads::is_offload_feature(name) {
        return offloads::write_feature(interface, name, value);
    }
    fs::write(sysctl_path(interface, name), value)
}

/// Reads and writes settings, and notes carnet's changes in the undo file.
pub(crate) struct KernelSettings {
    settings_tree: Box<dyn SettingsTree>,
    /// Number of times that carnet has written a setting.
    pub(crate) write_count: u64,
    /// Whether the process ends after this restoration of settings. carnet then restores a value even if it
    /// cannot write the undo file first.
    pub(crate) is_process_ending: bool,
}

impl std::fmt::Debug for KernelSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switches").field("writes", &self.write_count).finish_non_exhaustive()
    }
}

/// Outcome of writing a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// The setting has the desired value.
    Done,
    /// carnet leaves the setting as it is, see [`is_set_by_other_program`].
    LeftAlone,
    /// The setting or its interface does not exist.
    Missing,
}

/// Returns the setting that makes the kernel accept Router Advertisements even while the machine forwards.
pub(crate) fn accept_ra_setting(interface: &str) -> SysctlSetting {
    SysctlSetting { interface: interface.to_owned(), name: ACCEPT_RA.to_owned(), value: "2".to_owned() }
}

/// Returns whether carnet must leave the setting as it is. If the kernel ignores Router Advertisements,
/// another program handles them (NetworkManager, systemd-networkd), or the operator wants none.
fn is_set_by_other_program(setting: &SysctlSetting, current: &str) -> bool {
    setting.name == ACCEPT_RA && setting.value.trim() != "0" && current == "0"
}

/// Returns whether carnet has turned forwarding on for all interfaces of this machine.
pub(crate) fn has_enabled_forwarding(record: &RecordedChanges) -> bool {
    record.settings.iter().any(|s| {
        s.interface == "all" && s.name == FORWARDING && s.original_value == "0" && s.carnet_value != "0"
    })
}

/// Returns the interfaces on which carnet has changed the setting of this name.
pub(crate) fn interfaces_with_changed(record: &RecordedChanges, name: &str) -> Vec<String> {
    record.settings.iter().filter(|s| s.name == name).map(|s| s.interface.clone()).collect()
}

/// Returns the value that a setting would have without carnet. If the interface appeared after carnet wrote
/// `all`, `current` is carnet's value of `all`.
fn value_without_carnet(record: &RecordedChanges, setting: &SysctlSetting, current: String) -> String {
    let is_all =
        |s: &&ChangedSetting| s.interface == "all" && s.name == setting.name && s.carnet_value == current;
    let all = record.settings.iter().find(is_all).filter(|_| setting.interface != "all");
    let original = all.and_then(|all| {
        all.former_values.get(&setting.interface).or_else(|| all.former_values.get("default"))
    });
    original.cloned().unwrap_or(current)
}

impl KernelSettings {
    /// Returns access to the settings of the kernel.
    pub(crate) fn for_running_kernel() -> KernelSettings {
        KernelSettings::for_tree(Box::new(ProcSys))
    }

    /// Returns access to the settings of a simulated machine, or of another tree.
    pub(crate) fn for_tree(tree: Box<dyn SettingsTree>) -> KernelSettings {
        KernelSettings { settings_tree: tree, write_count: 0, is_process_ending: false }
    }

    fn write(&mut self, interface: &str, name: &str, value: &str) -> io::Result<()> {
        self.write_count += 1;
        if (interface, name) != ("all", IPV4_FORWARDING) {
            return self.settings_tree.write(interface, name, value);
        }
        // When forwarding changes, the kernel sets `accept_redirects` as for a host or for a router. It would
        // accept redirects again although the operator has turned that off, so restore the value afterwards.
        let redirects = self.settings_tree.read(interface, ACCEPT_REDIRECTS)?;
        self.settings_tree.write(interface, name, value)?;
        match redirects {
            Some(former) => self.settings_tree.write(interface, ACCEPT_REDIRECTS, &former),
            None => Ok(()),
        }
    }

    /// Returns the value of the setting of this name on every interface.
    fn read_on_all_interfaces(&self, name: &str) -> io::Result<BTreeMap<String, String>> {
        let mut values = BTreeMap::new();
        for interface in self.settings_tree.interfaces()? {
            if interface != "all"
                && let Some(value) = self.settings_tree.read(&interface, name)?
            {
                values.insert(interface, value);
            }
        }
        Ok(values)
    }

    /// Returns whether `rp_filter` is strict on an interface. The kernel uses the higher value of the
    /// interface and `all`.
    fn is_rp_filter_strict(&self, interface: &str) -> bool {
        let of = |interface| self.settings_tree.read(interface, RP_FILTER).ok().flatten().unwrap_or_default();
        [of("all"), of(interface)].into_iter().max().as_deref() == Some(STRICT_RP_FILTER)
    }

    /// Returns whether the setting has this value now.
    pub(crate) fn has_value(&self, interface: &str, name: &str, value: &str) -> Result<bool> {
        Ok(self.setting_value(interface, name)?.as_deref() == Some(value))
    }

    /// Returns the present value of the setting; `None` if the interface or the setting does not exist.
    fn setting_value(&self, interface: &str, name: &str) -> Result<Option<String>> {
        let current = self.settings_tree.read(interface, name);
        current.map_err(|error| {
            Error::from_kernel_refusal(format!("read {}", describe_setting(interface, name)), error)
        })
    }

    /// Returns whether the kernel accepts Router Advertisements on an interface.
    pub(crate) fn accepts_advertisements(&self, interface: &str) -> bool {
        let is = |name, value| self.has_value(interface, name, value).unwrap_or_default();
        is(ACCEPT_RA, "2") || is(ACCEPT_RA, "1") && is(FORWARDING, "0")
    }

    /// Returns a message about the value that another program has set in place of carnet's value. `None` if
    /// the value is unchanged.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not report the value.
    pub(crate) fn foreign_value(&self, setting: &SysctlSetting) -> Result<Option<String>> {
        let SysctlSetting { interface, name, value } = setting;
        let needed = value.trim();
        if name == RP_FILTER {
            for at in [interface.as_str(), "all"] {
                if self.has_value(at, name, STRICT_RP_FILTER)? {
                    let text = || {
                        format!("{} is {STRICT_RP_FILTER}, {needed} is needed", describe_setting(at, name))
                    };
                    return Ok(self.is_rp_filter_strict(interface).then(text));
                }
            }
            return Ok(None);
        }
        let Some(current) = self.setting_value(interface, name)? else { return Ok(None) };
        let is_foreign = current != needed && !is_set_by_other_program(setting, &current);
        Ok(is_foreign
            .then(|| format!("{} is {current}, {needed} is needed", describe_setting(interface, name))))
    }

    /// Returns whether writing this setting turns forwarding on while it is off.
    pub(crate) fn starts_forwarding(&self, setting: &SysctlSetting) -> Result<bool> {
        let (interface, name) = (setting.interface.as_str(), setting.name.as_str());
        Ok((interface, name) == ("all", FORWARDING)
            && setting.value.trim() != "0"
            && self.has_value(interface, name, "0")?)
    }

    /// Writes the desired value of a setting, and notes the original value in the undo file first.
    ///
    /// `index` is the index of the interface; 0 for `all` and `default`. The setting must have passed
    /// [`check_setting_name`].
    pub(crate) fn set_value(
        &mut self,
        setting: &SysctlSetting,
        index: u32,
        undo: &mut UndoFile,
    ) -> Result<WriteOutcome> {
        let SysctlSetting { interface, name, value } = setting;
        let failed = |e: io::Error| {
            Error::from_kernel_refusal(format!("set {} to {value}", describe_setting(interface, name)), e)
        };
        let Some(current) = self.settings_tree.read(interface, name).map_err(failed)? else {
            if concerns_all_interfaces(interface) {
                return Err(failed(io::Error::from_raw_os_error(libc::ENOENT)));
            }
            return Ok(WriteOutcome::Missing);
        };
        if name == RP_FILTER && !self.is_rp_filter_strict(interface) {
            return Ok(WriteOutcome::Done);
        }
        let right = current == value.trim();
        let known =
            undo.recorded_changes.settings.iter().position(|s| s.interface == *interface && s.name == *name);
        let ours = known
            .map(|at| &undo.recorded_changes.settings[at])
            .filter(|s| s.index == index)
            .map(|s| s.carnet_value.as_str());
        if is_set_by_other_program(setting, &current) && ours != Some("0") {
            return Ok(WriteOutcome::LeftAlone);
        }
        let earlier = known.filter(|at| undo.recorded_changes.settings[*at].index != index);
        if let Some(at) = earlier {
            // The record belongs to an earlier interface of this name, so delete the record.
            undo.recorded_changes.settings.remove(at);
        }
        let known = known.filter(|_| earlier.is_none());
        let returns = known.is_some_and(|at| undo.recorded_changes.settings[at].is_being_restored);
        let mut others = None;
        // If `all` no longer has carnet's value, the interfaces have their values from another program, so
        // record them again. The exception is an interrupted restoration by carnet itself.
        if interface == "all" && (known.is_none() || !right && !returns) {
            let mut values = self.read_on_all_interfaces(name).map_err(failed)?;
            for own in
                undo.recorded_changes.settings.iter().filter(|s| s.name == *name && s.interface != "all")
            {
                values.insert(own.interface.clone(), own.original_value.clone());
            }
            others = Some(values);
        }
        match known {
            Some(at) => {
                let changed = &mut undo.recorded_changes.settings[at];
                // An operator has changed `all` since carnet wrote it, so carnet must restore the operator's
                // value when it ends. A single interface does not allow this conclusion, because each write
                // to `all` overwrites its value.
                if interface == "all" && !right && !returns && current != changed.carnet_value {
                    changed.original_value = current;
                }
                changed.carnet_value = value.trim().to_owned();
                if let Some(others) = others {
                    changed.former_values = others;
                }
            }
            None => undo.recorded_changes.settings.push(ChangedSetting {
                interface: interface.clone(),
                index,
                name: name.clone(),
                original_value: value_without_carnet(&undo.recorded_changes, setting, current),
                carnet_value: value.trim().to_owned(),
                former_values: others.unwrap_or_default(),
                is_being_restored: false,
            }),
        }
        // Record the setting even if it has the desired value already: carnet must set it again after a write
        // to `all` has overwritten it.
        undo.save()?;
        if !right {
            self.write(interface, name, value).map_err(failed)?;
        }
        if let Some(changed) =
            known.filter(|_| returns).and_then(|at| undo.recorded_changes.settings.get_mut(at))
        {
            // The setting now has the desired value, so an interrupted restoration no longer matters.
            changed.is_being_restored = false;
            undo.save()?;
        }
        if interface == "all" {
            self.reapply_other_interfaces(name, &BTreeMap::new(), &undo.recorded_changes).map_err(failed)?;
        }
        Ok(WriteOutcome::Done)
    }

    /// Restores the value that a setting had before carnet changed it. `index` is the present index of the
    /// interface; `None` if it no longer exists.
    pub(crate) fn restore_value(
        &mut self,
        interface: &str,
        name: &str,
        index: Option<u32>,
        undo: &mut UndoFile,
    ) -> Result<()> {
        let Some(at) =
            undo.recorded_changes.settings.iter().position(|s| s.interface == interface && s.name == name)
        else {
            return Ok(());
        };
        if index == Some(undo.recorded_changes.settings[at].index) {
            self.restore_recorded_setting(at, undo)?;
        }
        undo.recorded_changes.settings.remove(at);
        undo.save()
    }

    /// Writes the original value, unless another program has changed the setting since.
    fn restore_recorded_setting(&mut self, at: usize, undo: &mut UndoFile) -> Result<()> {
        let ChangedSetting {
            interface,
            name,
            original_value: original,
            carnet_value: ours,
            former_values: mut others,
            is_being_restored: returns,
            ..
        } = undo.recorded_changes.settings[at].clone();
        let failed = |error| {
            Error::from_kernel_refusal(
                format!("restore {} to {original}", describe_setting(&interface, &name)),
                error,
            )
        };
        let current = self.settings_tree.read(&interface, &name).map_err(failed)?;
        match current.as_deref() {
            Some(current) if current == original && !returns => {}
            Some(current) if current == original || current == ours => {
                // Writing `all` will overwrite all interfaces, so record their values first.
                if interface == "all" && (!returns || undo.is_unsaved()) {
                    if !returns {
                        others = self
                            .original_values(&undo.recorded_changes, &undo.recorded_changes.settings[at])
                            .map_err(failed)?;
                    }
                    undo.recorded_changes.settings[at].former_values = others.clone();
                    undo.recorded_changes.settings[at].is_being_restored = true;
                    match undo.save() {
                        Err(error) if self.is_process_ending => {
                            tracing::warn!(
                                "{error}: if carnet crashes from here on, an operator must restore the \
                                 forwarding settings by hand"
                            );
                        }
                        saved => saved?,
                    }
                }
                if current != original {
                    self.write(&interface, &name, &original).map_err(failed)?;
                }
                if interface == "all" {
                    for own in undo.recorded_changes.settings.iter_mut().filter(|s| s.name == name) {
                        // This interface has the value of carnet's write to `all`. So restore the value that
                        // the interface had before.
                        if let Some(original) = others.get(&own.interface) {
                            own.original_value = original.clone();
                        }
                    }
                    self.reapply_other_interfaces(&name, &others, &undo.recorded_changes).map_err(failed)?;
                }
            }
            Some(current) => tracing::info!(
                interface,
                name,
                current,
                "carnet does not restore this kernel setting, because another program has changed it"
            ),
            None => {}
        }
        Ok(())
    }

    /// Returns the values that interfaces without a setting of carnet must get after a write to `all`. If
    /// another program has set a value since carnet wrote `all`, this value stays. Otherwise the interface
    /// gets its value from before. An interface that appeared later gets the former value for new interfaces.
    fn original_values(
        &self,
        record: &RecordedChanges,
        all: &ChangedSetting,
    ) -> io::Result<BTreeMap<String, String>> {
        let mut originals = all.former_values.clone();
        let own = interfaces_with_changed(record, &all.name);
        let mut current = self.read_on_all_interfaces(&all.name)?;
        current.retain(|interface, _| !own.contains(interface));
        let of_others: Vec<_> = current.extract_if(.., |_, value| *value != all.carnet_value).collect();
        originals.extend(of_others);
        let new = originals.get("default").cloned();
        for (interface, ours) in current {
            originals.entry(interface).or_insert_with(|| new.clone().unwrap_or(ours));
        }
        Ok(originals)
    }

    /// After a write to `all`, sets carnet's settings of single interfaces again, and restores `originals` on
    /// the others. Goes on after an error and returns the first one.
    fn reapply_other_interfaces(
        &mut self,
        name: &str,
        originals: &BTreeMap<String, String>,
        record: &RecordedChanges,
    ) -> io::Result<()> {
        let mut values = originals.clone();
        for own in record.settings.iter().filter(|s| s.name == name && s.interface != "all") {
            values.insert(own.interface.clone(), own.carnet_value.clone());
        }
        let mut result = Ok(());
        for (interface, value) in values {
            let this = match self.settings_tree.read(&interface, name) {
                Ok(Some(current)) if current != value => self.write(&interface, name, &value),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            // A vanished interface is no error, because an interface may vanish at any time.
            result = result
                .and(this.or_else(|error| if is_missing_setting(&error) { Ok(()) } else { Err(error) }));
        }
        result
    }
}

/// Returns whether the kernel has IPv6 in this network namespace.
pub(crate) fn ipv6_exists() -> bool {
    fs::metadata("/proc/sys/net").is_err() || fs::metadata(IPV6_SYSCTL_ROOT).is_ok()
}

/// Parts of Router Advertisements that the kernel uses on an interface that carnet has created, even while
/// the machine forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedAdvertisements {
    /// The kernel ignores Router Advertisements.
    Ignored,
    /// The kernel uses addresses and prefixes, but no default route.
    Addresses,
    /// The kernel uses addresses, prefixes and default routes.
    All,
}

/// Sets which parts of Router Advertisements the kernel uses. carnet need not restore this, because the
/// interface vanishes with the process.
pub(crate) fn accept_advertisements(interface: &str, taken: AcceptedAdvertisements) -> Result<()> {
    let (accept, default_router) = match taken {
        AcceptedAdvertisements::Ignored => ("0", "0"),
        AcceptedAdvertisements::Addresses => ("2", "0"),
        AcceptedAdvertisements::All => ("2", "1"),
    };
    // Write `accept_ra_defrtr` before `accept_ra`: otherwise the kernel could make a default route in
    // between.
    for (name, value) in [("accept_ra_defrtr", default_router), (ACCEPT_RA, accept)] {
        write_setting(interface, name, value)
            .map_err(|e| Error::from_kernel_refusal(format!("set net.ipv6.conf.{interface}.{name}"), e))?;
    }
    Ok(())
}

/// Lets the kernel announce a changed link-layer address of an interface to neighbours at once (RFC 4861
/// 7.2.6).
pub(crate) fn announce_address_changes(interface: &str) -> Result<()> {
    write_setting(interface, "ndisc_notify", "1").map_err(|error| {
        Error::from_kernel_refusal(format!("set net.ipv6.conf.{interface}.ndisc_notify"), error)
    })
}

/// Disables the kernel's IPv6 on an interface.
pub(crate) fn disable_ipv6(interface: &str) -> Result<()> {
    write_setting(interface, "disable_ipv6", "1")
        .map_err(|error| Error::from_kernel_refusal(format!("disable IPv6 on {interface}"), error))
}

/// Permits route lookups for IPv4 packets from this interface, although no IPv4 packets arrive at it. The
/// fast path uses these lookups to find the next hop of packets that it encapsulates in IPv4.
pub(crate) fn forward_ipv4_from(interface: &str) -> io::Result<()> {
    fs::write(format!("{IPV4_SYSCTL_ROOT}/{interface}/{FORWARDING}"), "1")
}

/// Enables IPv6 on the TUN device, in case the machine disables IPv6 on new interfaces.
pub(crate) fn enable_ipv6(interface: &str, writes: &mut u64) -> Result<()> {
    let failed = |e: io::Error| Error::from_kernel_refusal(format!("enable IPv6 on {interface}"), e);
    match read_setting(interface, "disable_ipv6").map_err(failed)? {
        Some(value) if value != "0" => {
            *writes += 1;
            write_setting(interface, "disable_ipv6", "0").map_err(failed)
        }
        _ => Ok(()),
    }
}
