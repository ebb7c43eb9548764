//! Keeps the kernel in the desired state: reads the state after events, and retries what has failed.
//!
//! The keeper installs entries that wait for an interface when interfaces change. If the kernel refused an
//! entry, for example for lack of memory, no event may follow. So the keeper also tries refused entries at
//! intervals. The first interval is one second, and each further interval is twice as long.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::task::Context;

use crate::entry_installer::EntryInstaller;
use crate::error::{Error, Result};
use crate::event::PlatformEvent;
use crate::interface_observer::InterfaceObserver;
use crate::netlink::{ChangedParts, NetlinkChanges};

/// Longest interval between two attempts at refused entries, in seconds.
const MAX_RETRY_PAUSE_S: u32 = 32;

/// The desired and installed entries, and the source of the kernel's events.
#[derive(Debug)]
pub(crate) struct KernelStateKeeper {
    pub(crate) entry_installer: EntryInstaller,
    pub(crate) interface_observer: InterfaceObserver,
    pub(crate) netlink_changes: NetlinkChanges,
    /// Whether to read the routes again at the next second. A router whose default route had expired has sent
    /// a Router Advertisement, and the kernel may not have renewed the route yet.
    routes_reading_due: bool,
    /// Seconds between two attempts to install refused entries.
    retry_pause_s: u32,
    /// Remaining seconds until the next attempt to install refused entries.
    seconds_to_retry: u32,
}

impl KernelStateKeeper {
    pub(crate) fn new(installer: EntryInstaller) -> KernelStateKeeper {
        KernelStateKeeper {
            entry_installer: installer,
            interface_observer: InterfaceObserver::default(),
            netlink_changes: NetlinkChanges::default(),
            routes_reading_due: false,
            retry_pause_s: 1,
            seconds_to_retry: 1,
        }
    }

    /// Reads the changed parts of the kernel's state, restores lost entries, and collects events for the
    /// station. Calls `follow` with the interfaces before it restores entries. After an error, the next call
    /// reads the whole state.
    pub(crate) fn refresh(
        &mut self,
        events: &mut VecDeque<PlatformEvent>,
        follow: impl FnOnce(&mut EntryInstaller, &InterfaceObserver),
    ) -> Result<()> {
        let dirty = std::mem::take(&mut self.netlink_changes.changed_parts);
        if !dirty.is_any_changed() {
            return Ok(());
        }
        let result = self.read_changed_state(dirty, events, follow);
        if result.is_err() {
            self.netlink_changes.changed_parts = ChangedParts::ALL_PARTS_CHANGED;
        }
        result
    }

    fn read_changed_state(
        &mut self,
        dirty: ChangedParts,
        events: &mut VecDeque<PlatformEvent>,
        follow: impl FnOnce(&mut EntryInstaller, &InterfaceObserver),
    ) -> Result<()> {
        let KernelStateKeeper {
            entry_installer: installer,
            interface_observer: observer,
            netlink_changes: news,
            ..
        } = self;
        observer.refresh(dirty, &mut installer.requests)?;
        news.router_neighbours = observer.default_gateways();
        if !observer.links_by_name.values().any(|link| link.index == installer.tunnel_index) {
            return Err(Error::tunnel_device_gone_error());
        }
        follow(installer, observer);
        events.extend(observer.interface_changes());
        installer.check_conditional_settings(observer);
        let result = installer.reconcile_with_kernel(dirty, &observer.links_by_name, &observer.addresses);
        events.extend(installer.take_operator_messages().into_iter().map(PlatformEvent::Notice));
        result?;
        self.commit_changes();
        Ok(())
    }

    /// Reads all settings again, and restores those that another program has changed.
    pub(crate) fn recheck_settings(&mut self) {
        self.netlink_changes.changed_parts.settings_changed = true;
    }

    /// Handles a Router Advertisement. If the router's default route had expired, the kernel renews the route
    /// without an event. So the keeper reads the routes now, and again at the next second.
    pub(crate) fn handle_router_advertisement(&mut self, interface: &str, router: Ipv6Addr) {
        if !self.routes_reading_due && self.interface_observer.had_expired_route(interface, router) {
            self.routes_reading_due = true;
            self.netlink_changes.changed_parts.routers_changed = true;
        }
    }

    /// Tries refused entries again, and restores entries that another program has changed. The caller calls
    /// this function each second.
    pub(crate) fn advance_one_second(&mut self) {
        if self.entry_installer.rule_table.advance_one_second() {
            self.entry_installer.restore_packet_rules();
        }
        self.entry_installer.commit_packet_rules();
        if self.entry_installer.advance_one_second() {
            self.entry_installer.retry_waiting_entries(&self.interface_observer.links_by_name, false);
            self.commit_changes();
        }
        self.netlink_changes.changed_parts.routers_changed |=
            std::mem::take(&mut self.routes_reading_due) | self.interface_observer.has_expired_route();
        if !self.entry_installer.has_failed_entries() {
            (self.retry_pause_s, self.seconds_to_retry) = (1, 1);
            return;
        }
        self.seconds_to_retry = self.seconds_to_retry.saturating_sub(1);
        if self.seconds_to_retry == 0 {
            self.entry_installer.retry_waiting_entries(&self.interface_observer.links_by_name, true);
            self.commit_changes();
            self.retry_pause_s = (2 * self.retry_pause_s).min(MAX_RETRY_PAUSE_S);
            self.seconds_to_retry = self.retry_pause_s;
        }
    }

    /// Reads events about the packet filter, and restores carnet's table if another program has changed it.
    pub(crate) fn poll_packet_rules(&mut self, cx: &mut Context<'_>) {
        if self.entry_installer.rule_table.poll_foreign_change(cx) {
            self.entry_installer.restore_packet_rules();
        }
        self.entry_installer.poll_ruleset(cx);
    }

    /// Applies the changes since the last commit to the fast path.
    pub(crate) fn commit_changes(&mut self) {
        log_closed_fast_path(self.entry_installer.commit_to_fast_path());
    }
}

/// Logs that the fast path is closed, if `result` is an error.
pub(crate) fn log_closed_fast_path(result: std::result::Result<(), String>) {
    if let Err(why) = result {
        tracing::error!("carnet has closed the fast path, and all packets take the slow path: {why}");
    }
}
