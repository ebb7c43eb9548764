//! A simulated machine for tests: the part of the kernel that [`Platform`](crate::Platform) uses, and a disk.
//! Both can fail on request. Only tests contain this module.
//!
//! The tests run carnet's real code, down to the octets of netlink: requests, the installer, the observer,
//! the undo file. Left out: the TUN device, sockets and fast paths. Tests ask [`KernelTunnels::packet_path`]
//! and [`KernelTunnels::ipv4_next_hop`] where a packet would go.

mod channel;
mod differences;
mod disk;
mod kernel;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::rc::Rc;

use carnet_base::Rng;
use carnet_nemo::forwarding::desired::{EntryChange, TABLE_MAIN, TUNNEL_DEVICE};
use ipnet::{Ipv4Net, Ipv6Net};

use crate::entry_installer::EntryInstaller;
use crate::error::Result;
use crate::event::PlatformEvent;
use crate::kernel_settings::KernelSettings;
use crate::kernel_state_keeper::KernelStateKeeper;
use crate::netlink::NetlinkRequests;
use crate::undo_file::{UndoFile, UndoFileValidity};

use channel::{SimulatedChannel, SimulatedSettings};
pub use disk::SimulatedDisk;
pub use kernel::PacketPath;
use kernel::{
    KernelState, ObjectOwner, SimulatedAddress, SimulatedIpv4Route, SimulatedRoute, SimulatedRouteAction,
    SimulatedRule, local_rule,
};

/// A simulated kernel; clones share its state.
#[derive(Debug, Clone)]
pub struct SimulatedKernel(Rc<RefCell<KernelState>>);

impl SimulatedKernel {
    /// Creates a kernel that has just booted, with a loopback interface.
    pub fn new(rng: Rng) -> SimulatedKernel {
        SimulatedKernel(Rc::new(RefCell::new(KernelState::new(rng))))
    }

    /// Sets the probability that a request fails.
    pub fn set_failure_probability(&self, trouble: f64) {
        self.0.borrow_mut().failure_probability = trouble;
    }

    /// Sets the number of steps after which the process counts as dead: from then on the kernel and the disk
    /// refuse all requests. With `None` the process does not die.
    pub fn set_steps_until_death(&self, fuse: Option<(u32, SimulatedDisk)>) {
        let mut state = self.0.borrow_mut();
        if let (None, Some((_, disk))) = (&fuse, &state.steps_until_death) {
            disk.set_process_died(false);
        }
        state.steps_until_death = fuse;
    }

    /// Returns whether the simulated process is dead.
    pub fn has_process_died(&self) -> bool {
        self.0.borrow().steps_until_death.as_ref().is_some_and(|(left, _)| *left == 0)
    }

    /// Counts one step of the process. Returns whether the process is dead.
    pub fn count_step(&self) -> bool {
        self.0.borrow_mut().count_step()
    }

    /// Makes the kernel lose the next events; carnet's socket then gets an error.
    pub fn lose_events(&self) {
        let mut state = self.0.borrow_mut();
        state.events_to_lose = 1 + state.rng.number_below(5) as u32;
    }

    /// Makes this kernel like one before Linux 5.18, which stores no mark of an address.
    pub fn store_no_address_protocols(&self) {
        self.0.borrow_mut().stores_address_protocol = false;
    }

    /// Adds an interface that is down.
    pub fn add_link(&self, name: &str) {
        self.0.borrow_mut().add_link(name);
    }

    /// Removes an interface.
    pub fn remove_link(&self, name: &str) {
        let index = self.0.borrow().find_link(name).map(|link| link.index);
        let _ = index.map(|index| self.0.borrow_mut().remove_link(index));
    }

    /// Returns whether the interface has a carrier; `None` if the interface does not exist.
    pub fn is_running(&self, name: &str) -> Option<bool> {
        self.0.borrow().find_link(name).map(|link| link.is_running)
    }

    /// Sets whether an interface is up, and whether it has a carrier.
    pub fn set_link(&self, name: &str, up: bool, running: bool) {
        let index = self.0.borrow().find_link(name).map(|link| link.index);
        let _ = index.map(|index| self.0.borrow_mut().set_link(index, up, running));
    }

    /// Receives a Router Advertisement on an interface, which adds an address and a default route.
    pub fn receive_advertisement(&self, interface: &str, router: Ipv6Addr, address: Ipv6Addr) {
        self.0.borrow_mut().receive_advertisement(interface, router, address);
    }

    /// Sets a setting as an operator does. Does nothing if the setting already has this value.
    pub fn set_setting(&self, interface: &str, name: &str, value: &str) {
        let mut state = self.0.borrow_mut();
        if state.setting_value(interface, name).as_deref() != Some(value) {
            let _ = state.set_setting(interface, name, value, ObjectOwner::Other);
        }
    }

    /// Turns IPv6 off on an interface, as another program does, or on again. While it is off, the kernel
    /// refuses routes through the interface (EACCES).
    pub fn disable_ipv6(&self, name: &str, is_disabled: bool) {
        let mut state = self.0.borrow_mut();
        let index = state.find_link(name).map_or(0, |link| link.index);
        match is_disabled {
            true => state.links_without_ipv6.insert(index),
            false => state.links_without_ipv6.remove(&index),
        };
    }

    /// Adds the rule of the `local` table at priority 0, as another program does.
    pub fn restore_local_rule(&self) {
        let rule = SimulatedRule { rule: local_rule(0), protocol: 3, created_by: ObjectOwner::Other };
        let _ = self.0.borrow_mut().add_rule(rule);
    }

    /// Makes the check of leftovers ignore interfaces whose `forwarding` differs now from the value without
    /// carnet. Does nothing if carnet has changed `forwarding` of `all`.
    pub fn accept_own_forwarding(&self) {
        self.0.borrow_mut().accept_own_forwarding();
    }

    /// Adds a route as an operator would.
    pub fn add_route(&self, table: u32, destination: Ipv6Net, metric: u32, interface: &str) {
        let index = self.0.borrow().find_link(interface).map(|link| link.index);
        let Some(index) = index else { return };
        let action = SimulatedRouteAction::Forward(index, None);
        let maker = ObjectOwner::Other;
        let route = SimulatedRoute {
            table,
            destination,
            metric,
            protocol: 3,
            route_action: action,
            created_by: maker,
        };
        let _ = self.0.borrow_mut().add_route(route, true);
    }

    /// Adds an address to an interface as an operator would.
    pub fn add_address(&self, interface: &str, address: Ipv6Addr, prefix_length: u8) {
        let index = self.0.borrow().find_link(interface).map(|link| link.index);
        let Some(index) = index else { return };
        let (protocol, deprecated, maker) = (0, false, ObjectOwner::Other);
        let address = SimulatedAddress {
            index,
            address,
            prefix_length,
            protocol,
            is_deprecated: deprecated,
            created_by: maker,
        };
        let _ = self.0.borrow_mut().add_address(address);
    }

    /// Adds an IPv4 address to an interface as a network manager would.
    pub fn add_ipv4_address(&self, interface: &str, address: Ipv4Net) {
        let mut state = self.0.borrow_mut();
        if let Some(index) = state.find_link(interface).map(|link| link.index) {
            state.add_ipv4_address(index, address);
        }
    }

    /// Removes an IPv4 address, as a network manager does. If it is the interface's last one, its routes
    /// vanish.
    pub fn delete_ipv4_address(&self, interface: &str, address: Ipv4Net) {
        let mut state = self.0.borrow_mut();
        if let Some(index) = state.find_link(interface).map(|link| link.index) {
            state.delete_ipv4_address(index, address);
        }
    }

    /// Adds an IPv4 route to the main table, as a network manager does; replaces a route to the same
    /// destination.
    pub fn set_ipv4_route(&self, destination: Ipv4Net, gateway: Option<Ipv4Addr>, interface: &str) {
        let mut state = self.0.borrow_mut();
        let Some(index) = state.find_link(interface).map(|link| link.index) else { return };
        let (table, protocol, maker) = (TABLE_MAIN, 3, ObjectOwner::Other);
        let route = SimulatedIpv4Route { table, destination, protocol, index, gateway, created_by: maker };
        let _ = state.add_ipv4_route(route, false);
    }

    /// Returns the next hop of a packet from a socket that is bound to this interface and address. The outer
    /// option is `None` if the interface has no route to the destination, the inner one if the destination is
    /// on the link.
    pub fn ipv4_next_hop(&self, interface: &str, from: Ipv4Addr, to: Ipv4Addr) -> Option<Option<Ipv4Addr>> {
        self.0.borrow().ipv4_next_hop(interface, from, to)
    }

    /// Removes an object that carnet has made, as an operator would. Takes `number` modulo the number of
    /// these objects as the object's index.
    pub fn remove_own_object(&self, number: usize) {
        let mut state = self.0.borrow_mut();
        let is_ours = |maker: ObjectOwner| maker == ObjectOwner::Station;
        let (routes, rules) = (state.routes.clone(), state.rules.clone());
        let routes: Vec<_> = routes.iter().filter(|it| is_ours(it.created_by) && it.protocol != 2).collect();
        let rules: Vec<_> = rules.iter().filter(|it| is_ours(it.created_by) && it.protocol != 2).collect();
        let addresses = state.addresses.clone();
        let addresses: Vec<_> = addresses.iter().filter(|it| is_ours(it.created_by)).collect();
        let ipv4_routes = state.ipv4_routes.clone();
        let ipv4_routes: Vec<_> = ipv4_routes.iter().filter(|it| is_ours(it.created_by)).collect();
        let ipv4_rules = state.ipv4_rules.clone();
        let ipv4_rules: Vec<_> = ipv4_rules.iter().filter(|it| is_ours(it.created_by)).collect();
        let ipv6 = routes.len() + rules.len() + addresses.len();
        let all = ipv6 + ipv4_routes.len() + ipv4_rules.len();
        let Some(number) = number.checked_rem(all) else { return };
        let by = ObjectOwner::Other;
        let _ = if let Some(route) = routes.get(number) {
            state.delete_route(route.table, route.destination, route.metric, route.protocol, by)
        } else if let Some(rule) = rules.get(number - routes.len()) {
            state.delete_rule(&rule.rule, rule.protocol, by)
        } else if let Some(it) = addresses.get(number - routes.len() - rules.len()) {
            state.delete_address(it.index, it.address, it.prefix_length, by)
        } else if let Some(it) = ipv4_routes.get(number - ipv6) {
            state.delete_ipv4_route(it.table, it.destination, it.protocol, by)
        } else {
            let it = ipv4_rules[number - ipv6 - ipv4_routes.len()];
            state.delete_ipv4_rule(&it.rule, it.protocol, by)
        };
    }

    /// Returns what the kernel does with a packet that arrived on an interface. `lo` stands for packets of
    /// this machine itself.
    pub fn packet_path(
        &self,
        input: &str,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: u8,
    ) -> PacketPath {
        self.0.borrow().packet_path(input, source, destination, protocol)
    }

    /// Handles the end of carnet's process.
    pub fn end_process(&self) {
        self.0.borrow_mut().release_process_resources();
    }

    /// Boots the machine again after a power cut.
    pub fn reboot(&self) {
        let mut state = self.0.borrow_mut();
        let (rng, boot) = (state.rng.fork_generator(), state.boot_number + 1);
        *state = KernelState::new(rng);
        state.boot_number = boot;
    }

    /// Returns carnet's changes to objects of other programs.
    pub fn foreign_changes(&self) -> Vec<String> {
        self.0.borrow().foreign_changes.clone()
    }

    /// Returns the objects that carnet has left or changed. The caller must call this only while carnet does
    /// not run.
    pub fn leftover_objects(&self) -> Vec<String> {
        self.0.borrow().leftover_objects()
    }

    /// Returns the number of routes and rules with carnet's mark.
    pub fn count_objects_of_carnet(&self) -> usize {
        self.0.borrow().count_objects_of_carnet()
    }

    /// Returns a text for each object that is not the kernel's own.
    pub fn describe_objects(&self) -> Vec<String> {
        let state = self.0.borrow();
        let routes = state.routes.iter().filter(|it| it.table != TABLE_MAIN || it.protocol != 2);
        let rules = state.rules.iter().map(|it| format!("{:?}", it.rule));
        let ipv4 = state.ipv4_routes.iter().filter(|it| it.table != TABLE_MAIN);
        let ipv4 = ipv4.map(|it| format!("{it:?}"));
        let ipv4 = ipv4.chain(state.ipv4_rules.iter().map(|it| format!("{:?}", it.rule)));
        routes.map(|it| format!("{it:?}")).chain(rules).chain(ipv4).collect()
    }
}

/// A process that uses the platform on a simulated machine.
#[derive(Debug)]
pub struct SimulatedPlatform {
    simulated_kernel: SimulatedKernel,
    state_keeper: KernelStateKeeper,
    events: VecDeque<PlatformEvent>,
    consecutive_failures: u32,
}

impl SimulatedPlatform {
    /// Opens the platform, as [`Platform::open`](crate::Platform::open) does.
    ///
    /// # Errors
    /// Fails as [`Platform::open`](crate::Platform::open) does. After an error no object of this process
    /// remains.
    pub fn open(kernel: &SimulatedKernel, disk: &SimulatedDisk, undo: &Path) -> Result<SimulatedPlatform> {
        let result = SimulatedPlatform::try_open(kernel, disk, undo);
        if result.is_err() {
            kernel.end_process();
        }
        result
    }

    fn try_open(kernel: &SimulatedKernel, disk: &SimulatedDisk, undo: &Path) -> Result<SimulatedPlatform> {
        let mut state = kernel.0.borrow_mut();
        let index = state.add_link(TUNNEL_DEVICE);
        let place = UndoFileValidity { boot_id: state.boot_number.to_string(), netns: 1, netns_cookie: 1 };
        drop(state);
        let requests = NetlinkRequests::over_channel(Box::new(SimulatedChannel::new(kernel.0.clone())));
        let switches = KernelSettings::for_tree(Box::new(SimulatedSettings(kernel.0.clone())));
        let undo = UndoFile::open_on_disk(Box::new(disk.clone()), undo, place);
        let installer = EntryInstaller::open(requests, switches, undo, index)?;
        let mut state = kernel.0.borrow_mut();
        state.unread_events = Some(VecDeque::new());
        state.set_link(index, true, true);
        drop(state);
        let keeper = KernelStateKeeper::new(installer);
        let mut machine = SimulatedPlatform {
            simulated_kernel: kernel.clone(),
            state_keeper: keeper,
            events: VecDeque::new(),
            consecutive_failures: 0,
        };
        machine.refresh()?;
        Ok(machine)
    }

    /// Applies a change, as [`Platform::apply_change`](crate::Platform::apply_change) does.
    ///
    /// # Errors
    /// Fails as [`Platform::apply_change`](crate::Platform::apply_change) does.
    pub fn apply_change(&mut self, change: &EntryChange) -> Result<()> {
        self.state_keeper.entry_installer.apply_change(change)
    }

    /// Applies the changes since the last commit to the fast path, like
    /// [`Platform::commit_to_fast_path`](crate::Platform::commit_to_fast_path).
    pub fn commit_changes(&mut self) {
        self.state_keeper.commit_changes();
    }

    /// Reads the kernel's events, and returns the events of the platform that they cause.
    ///
    /// # Errors
    /// Fails as [`Platform::next_event`](crate::Platform::next_event) does.
    pub fn poll_events(&mut self) -> Result<Vec<PlatformEvent>> {
        let (news, overrun) = {
            let mut state = self.simulated_kernel.0.borrow_mut();
            let news = state.unread_events.as_mut().map(std::mem::take).unwrap_or_default();
            (news, std::mem::take(&mut state.has_lost_events))
        };
        for (news, by) in news {
            self.state_keeper.netlink_changes.handle_datagram(&channel::event_message(news, by));
        }
        if overrun {
            self.state_keeper.netlink_changes.handle_overrun();
        }
        let result = self.refresh();
        self.consecutive_failures = if result.is_err() { self.consecutive_failures + 1 } else { 0 };
        result.map(|()| self.events.drain(..).collect())
    }

    /// Returns the value of [`Platform::consecutive_failures`](crate::Platform::consecutive_failures).
    pub fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures
    }

    fn refresh(&mut self) -> Result<()> {
        self.state_keeper.refresh(&mut self.events, |_, _| {})
    }

    /// Returns whether the platform has events to return or state to read.
    pub fn has_pending_work(&self) -> bool {
        let state = self.simulated_kernel.0.borrow();
        state.has_lost_events
            || state.unread_events.as_ref().is_some_and(|news| !news.is_empty())
            || self.state_keeper.netlink_changes.changed_parts.is_any_changed()
            || !self.events.is_empty()
    }

    /// Returns whether the platform still has to repeat a refused request.
    pub fn has_refused_requests(&self) -> bool {
        self.state_keeper.entry_installer.has_failed_entries()
            || self.state_keeper.entry_installer.has_setting_contest()
    }

    /// Returns the value of [`Platform::obstacle_messages`](crate::Platform::obstacle_messages).
    pub fn obstacle_messages(&self) -> Vec<String> {
        self.state_keeper.entry_installer.obstacle_messages()
    }

    /// Advances the platform by one second.
    pub fn advance_one_second(&mut self) {
        self.state_keeper.advance_one_second();
    }

    /// Returns a text for each difference between the kernel's state and the desired state.
    pub fn differences(&self) -> Vec<String> {
        let state = self.simulated_kernel.0.borrow();
        differences::differences_from(&state, self.state_keeper.entry_installer.desired_entries())
    }

    /// Returns the number of entries that the platform stores.
    pub fn entry_count(&self) -> usize {
        self.state_keeper.entry_installer.entry_count() + self.events.len()
    }

    /// Closes the platform, as [`Platform::close`](crate::Platform::close) does.
    ///
    /// # Errors
    /// Fails as [`Platform::close`](crate::Platform::close) does.
    pub fn close(mut self) -> Result<()> {
        let result = self.state_keeper.entry_installer.remove_all_entries();
        self.simulated_kernel.end_process();
        result
    }
}

#[cfg(test)]
mod tests;
