//! Networking state of a simulated kernel, and the actions that a kernel takes by itself. Routes and
//! addresses vanish with their interface. Writing a setting of `all` overwrites all interfaces. A machine
//! forgets its default routers when it begins to forward.
//!
//! The kernel stores the owner of each object. carnet's objects must vanish when carnet ends, and objects of
//! other programs must stay. The simulated kernel notes each violation as a fault of carnet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};

use carnet_base::Rng;
use carnet_nemo::forwarding::desired::{Ipv4Rule, Rule, TABLE_MAIN, TUNNEL_DEVICE};
use ipnet::{Ipv4Net, Ipv6Net};

use super::SimulatedDisk;
use crate::ROUTE_PROTOCOL;

pub(super) const TABLE_LOCAL: u32 = 255;
pub(super) const PROTOCOL_KERNEL: u8 = 2;
const PROTOCOL_ADVERTISED: u8 = 9;
/// Maximum number of events that wait in a socket.
const EVENT_QUEUE_LENGTH: usize = 64;
/// Names whose settings concern all interfaces.
const COMMON_SETTING_NAMES: [&str; 2] = ["all", "default"];

/// Owner of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ObjectOwner {
    /// The kernel, an operator or another program owns the object.
    Other,
    /// carnet owns the object.
    Station,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimulatedLink {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) is_up: bool,
    pub(super) is_running: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimulatedAddress {
    pub(super) index: u32,
    pub(super) address: Ipv6Addr,
    pub(super) prefix_length: u8,
    pub(super) protocol: u8,
    pub(super) is_deprecated: bool,
    pub(super) created_by: ObjectOwner,
}

/// Action of a route on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimulatedRouteAction {
    Unreachable,
    Local(u32),
    Forward(u32, Option<Ipv6Addr>),
}

impl SimulatedRouteAction {
    fn index(self) -> Option<u32> {
        match self {
            SimulatedRouteAction::Unreachable => None,
            SimulatedRouteAction::Local(index) | SimulatedRouteAction::Forward(index, _) => Some(index),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimulatedRoute {
    pub(super) table: u32,
    pub(super) destination: Ipv6Net,
    pub(super) metric: u32,
    pub(super) protocol: u8,
    pub(super) route_action: SimulatedRouteAction,
    pub(super) created_by: ObjectOwner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimulatedRule {
    pub(super) rule: Rule,
    pub(super) protocol: u8,
    pub(super) created_by: ObjectOwner,
}

/// An IPv4 route. A route without a gateway has the scope of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimulatedIpv4Route {
    pub(super) table: u32,
    pub(super) destination: Ipv4Net,
    pub(super) protocol: u8,
    pub(super) index: u32,
    pub(super) gateway: Option<Ipv4Addr>,
    pub(super) created_by: ObjectOwner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimulatedIpv4Rule {
    pub(super) rule: Ipv4Rule,
    pub(super) protocol: u8,
    pub(super) created_by: ObjectOwner,
}

/// An event that the kernel sends to sockets.
#[derive(Debug, Clone)]
pub(super) enum KernelEvent {
    Link(SimulatedLink, bool),
    Address(SimulatedAddress, bool),
    Route(SimulatedRoute, bool),
    Rule(SimulatedRule, bool),
    Ipv4Address(u32, Ipv4Net, bool),
    Ipv4Route(SimulatedIpv4Route, bool),
    Ipv4Rule(SimulatedIpv4Rule, bool),
    /// A setting has changed; the kernel sends events about some settings.
    Setting,
}

/// Where the kernel sends a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketPath {
    /// The kernel delivers the packet to this machine itself.
    Local,
    /// The kernel sends the packet out of this interface, to this next hop. Without a next hop the
    /// destination is on the link.
    Out(String, Option<Ipv6Addr>),
    /// The kernel drops the packet.
    Nowhere,
}

/// Result of a request; the error is an errno.
pub(super) type RequestResult = Result<(), i32>;

/// Networking state of a simulated kernel.
#[derive(Debug)]
pub(super) struct KernelState {
    pub(super) links: Vec<SimulatedLink>,
    pub(super) addresses: Vec<SimulatedAddress>,
    pub(super) routes: Vec<SimulatedRoute>,
    pub(super) rules: Vec<SimulatedRule>,
    /// IPv4 addresses, each with the index of its interface.
    pub(super) ipv4_addresses: Vec<(u32, Ipv4Net)>,
    pub(super) ipv4_routes: Vec<SimulatedIpv4Route>,
    pub(super) ipv4_rules: Vec<SimulatedIpv4Rule>,
    /// Indices of interfaces on which IPv6 is disabled now.
    pub(super) links_without_ipv6: BTreeSet<u32>,
    /// Interfaces whose original value of `forwarding` is unknown. After carnet has ended, the test does not
    /// check the value of `forwarding` on them.
    interfaces_left_forwarding: BTreeSet<String>,
    /// For each setting its present value, and the value that it would have without carnet.
    setting_values: BTreeMap<(String, String), (String, String)>,
    next_index: u32,
    /// Events that carnet's socket has not read yet; `None` while carnet has no socket.
    pub(super) unread_events: Option<VecDeque<(KernelEvent, ObjectOwner)>>,
    pub(super) has_lost_events: bool,
    /// Number of events that the kernel will lose next.
    pub(super) events_to_lose: u32,
    /// carnet's changes to objects of other programs.
    pub(super) foreign_changes: Vec<String>,
    pub(super) rng: Rng,
    /// Probability that a request or a write of a setting fails.
    pub(super) failure_probability: f64,
    pub(super) boot_number: u32,
    /// Whether addresses store the mark of their owner; a kernel before Linux 5.18 does not.
    pub(super) stores_address_protocol: bool,
    /// Number of further steps after which the process counts as dead, with the disk, which then refuses all
    /// requests too. `None` if the process does not die.
    pub(super) steps_until_death: Option<(u32, SimulatedDisk)>,
}

pub(super) fn local_rule(priority: u32) -> Rule {
    Rule { priority, table: TABLE_LOCAL, ..Rule::default() }
}

impl KernelState {
    pub(super) fn new(rng: Rng) -> KernelState {
        let mut state = KernelState {
            links: Vec::new(),
            addresses: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
            ipv4_addresses: Vec::new(),
            ipv4_routes: Vec::new(),
            ipv4_rules: Vec::new(),
            setting_values: BTreeMap::new(),
            next_index: 1,
            unread_events: None,
            has_lost_events: false,
            events_to_lose: 0,
            foreign_changes: Vec::new(),
            rng,
            failure_probability: 0.0,
            boot_number: 0,
            stores_address_protocol: true,
            interfaces_left_forwarding: BTreeSet::new(),
            links_without_ipv6: BTreeSet::new(),
            steps_until_death: None,
        };
        for (name, value) in INITIAL_SETTINGS {
            for common in COMMON_SETTING_NAMES {
                state.setting_values.insert((common.into(), name.into()), (value.into(), value.into()));
            }
        }
        let main = Rule { priority: 32766, table: TABLE_MAIN, ..local_rule(0) };
        for rule in [local_rule(0), main] {
            state.rules.push(SimulatedRule {
                rule,
                protocol: PROTOCOL_KERNEL,
                created_by: ObjectOwner::Other,
            });
        }
        let index = state.add_link("lo");
        state.set_link(index, true, true);
        state
    }

    /// Counts one step of the process, that is, one request. Returns whether the process is dead.
    pub(super) fn count_step(&mut self) -> bool {
        let Some((left, disk)) = &mut self.steps_until_death else { return false };
        *left = left.saturating_sub(1);
        if *left == 0 {
            disk.set_process_died(true);
        }
        *left == 0
    }

    fn send_event(&mut self, news: KernelEvent, by: ObjectOwner) {
        let Some(queue) = &mut self.unread_events else { return };
        // The filter of carnet's socket drops events about routes and rules that carnet has changed.
        let is_filtered = matches!(
            news,
            KernelEvent::Route(..)
                | KernelEvent::Rule(..)
                | KernelEvent::Ipv4Route(..)
                | KernelEvent::Ipv4Rule(..)
        );
        if by == ObjectOwner::Station && is_filtered {
            return;
        }
        if queue.len() >= EVENT_QUEUE_LENGTH || self.events_to_lose > 0 {
            self.events_to_lose = self.events_to_lose.saturating_sub(1);
            self.has_lost_events = true;
            return;
        }
        queue.push_back((news, by));
    }

    pub(super) fn find_link(&self, name: &str) -> Option<&SimulatedLink> {
        self.links.iter().find(|link| link.name == name)
    }

    pub(super) fn add_link(&mut self, name: &str) -> u32 {
        let index = self.next_index;
        self.next_index += 1;
        let link = SimulatedLink { index, name: name.into(), is_up: false, is_running: false };
        for (switch, _) in INITIAL_SETTINGS {
            let value = self.setting_values[&("default".to_owned(), switch.to_owned())].clone();
            self.setting_values.insert((name.into(), switch.into()), value);
        }
        self.links.push(link.clone());
        self.send_event(KernelEvent::Link(link, true), ObjectOwner::Other);
        index
    }

    pub(super) fn set_link(&mut self, index: u32, up: bool, running: bool) {
        let Some(link) = self.links.iter_mut().find(|link| link.index == index) else { return };
        let was_up = std::mem::replace(&mut link.is_up, up);
        link.is_running = up && running;
        let link = link.clone();
        self.send_event(KernelEvent::Link(link, true), ObjectOwner::Other);
        if was_up && !up {
            self.remove_addresses_and_routes(index);
            // When an interface goes down, its IPv4 routes vanish and its IPv4 addresses stay.
            self.ipv4_routes.retain(|it| it.index != index);
        }
    }

    /// Removes addresses and routes of an interface. Some kernels send no events about these removals.
    fn remove_addresses_and_routes(&mut self, index: u32) {
        let tells = self.rng.is_true_with_probability(0.5);
        for address in self.addresses.extract_if(.., |it| it.index == index).collect::<Vec<_>>() {
            self.send_event(KernelEvent::Address(address, false), ObjectOwner::Other);
        }
        for route in
            self.routes.extract_if(.., |it| it.route_action.index() == Some(index)).collect::<Vec<_>>()
        {
            if tells {
                self.send_event(KernelEvent::Route(route, false), ObjectOwner::Other);
            }
        }
    }

    pub(super) fn remove_link(&mut self, index: u32) -> RequestResult {
        let at = self.links.iter().position(|link| link.index == index).ok_or(libc::ENODEV)?;
        self.remove_addresses_and_routes(index);
        self.ipv4_routes.retain(|it| it.index != index);
        self.ipv4_addresses.retain(|(at, _)| *at != index);
        let link = self.links.remove(at);
        self.setting_values.retain(|(interface, _), _| *interface != link.name);
        self.send_event(KernelEvent::Link(link, false), ObjectOwner::Other);
        Ok(())
    }

    pub(super) fn add_address(&mut self, mut address: SimulatedAddress) -> RequestResult {
        if !self.stores_address_protocol {
            address.protocol = 0;
        }
        let is_same = |it: &SimulatedAddress| (it.index, it.address) == (address.index, address.address);
        if !self.links.iter().any(|link| link.index == address.index) {
            return Err(libc::ENODEV);
        }
        if self.addresses.iter().any(is_same) {
            return Err(libc::EEXIST);
        }
        let (index, maker) = (address.index, address.created_by);
        let route = |table, destination, action| SimulatedRoute {
            table,
            destination,
            metric: 256,
            protocol: PROTOCOL_KERNEL,
            route_action: action,
            created_by: maker,
        };
        self.routes.push(route(TABLE_LOCAL, address.address.into(), SimulatedRouteAction::Local(index)));
        if let Ok(prefix) = Ipv6Net::new(address.address, address.prefix_length)
            && address.prefix_length < 128
        {
            self.routes.push(route(TABLE_MAIN, prefix.trunc(), SimulatedRouteAction::Forward(index, None)));
        }
        self.addresses.push(address.clone());
        self.send_event(KernelEvent::Address(address, true), maker);
        Ok(())
    }

    pub(super) fn delete_address(
        &mut self,
        index: u32,
        address: Ipv6Addr,
        length: u8,
        by: ObjectOwner,
    ) -> RequestResult {
        if !self.links.iter().any(|link| link.index == index) {
            return Err(libc::ENODEV);
        }
        let is = |it: &SimulatedAddress| (it.index, it.address, it.prefix_length) == (index, address, length);
        let at = self.addresses.iter().position(is).ok_or(libc::EADDRNOTAVAIL)?;
        let gone = self.addresses.remove(at);
        self.record_foreign_change(by, gone.created_by, || format!("address {address}/{length} deleted"));
        self.routes.retain(|it| {
            !(it.protocol == PROTOCOL_KERNEL
                && it.route_action.index() == Some(index)
                && (it.table == TABLE_LOCAL && it.destination.addr() == address
                    || it.table == TABLE_MAIN
                        && it.destination.prefix_len() == length
                        && it.destination.contains(&address)))
        });
        self.send_event(KernelEvent::Address(gone, false), by);
        Ok(())
    }

    pub(super) fn add_route(&mut self, route: SimulatedRoute, exclusive: bool) -> RequestResult {
        if let Some(index) = route.route_action.index() {
            let link = self.links.iter().find(|link| link.index == index).ok_or(libc::ENODEV)?;
            if !link.is_up {
                return Err(libc::ENETDOWN);
            }
            if self.links_without_ipv6.contains(&index) {
                return Err(libc::EACCES);
            }
        }
        let is_same = |it: &SimulatedRoute| {
            (it.table, it.destination, it.metric) == (route.table, route.destination, route.metric)
        };
        let maker = route.created_by;
        match self.routes.iter().position(is_same) {
            Some(_) if exclusive => return Err(libc::EEXIST),
            Some(at) => {
                let before = std::mem::replace(&mut self.routes[at], route.clone());
                self.record_foreign_change(maker, before.created_by, || {
                    format!("route to {} replaced", before.destination)
                });
            }
            None => self.routes.push(route.clone()),
        }
        self.send_event(KernelEvent::Route(route, true), maker);
        Ok(())
    }

    pub(super) fn delete_route(
        &mut self,
        table: u32,
        destination: Ipv6Net,
        metric: u32,
        protocol: u8,
        by: ObjectOwner,
    ) -> RequestResult {
        let is = |it: &SimulatedRoute| {
            (it.table, it.destination, it.metric) == (table, destination, metric)
                && (protocol == 0 || it.protocol == protocol)
        };
        let at = self.routes.iter().position(is).ok_or(libc::ESRCH)?;
        let gone = self.routes.remove(at);
        self.record_foreign_change(by, gone.created_by, || format!("route to {destination} deleted"));
        self.send_event(KernelEvent::Route(gone, false), by);
        Ok(())
    }

    pub(super) fn add_rule(&mut self, rule: SimulatedRule) -> RequestResult {
        if self.rules.iter().any(|it| (&it.rule, it.protocol) == (&rule.rule, rule.protocol)) {
            return Err(libc::EEXIST);
        }
        let at = self.rules.iter().take_while(|it| it.rule.priority <= rule.rule.priority).count();
        self.rules.insert(at, rule.clone());
        let maker = rule.created_by;
        self.send_event(KernelEvent::Rule(rule, true), maker);
        Ok(())
    }

    pub(super) fn delete_rule(&mut self, rule: &Rule, protocol: u8, by: ObjectOwner) -> RequestResult {
        let is = |it: &SimulatedRule| it.rule == *rule && (protocol == 0 || it.protocol == protocol);
        let at = self.rules.iter().position(is).ok_or(libc::ENOENT)?;
        let gone = self.rules.remove(at);
        // carnet may delete only its own rules, and the rule of the local table, which it moves.
        if gone.rule != local_rule(0) {
            self.record_foreign_change(by, gone.created_by, || format!("rule {rule:?} deleted"));
        }
        self.send_event(KernelEvent::Rule(gone, false), by);
        Ok(())
    }

    pub(super) fn add_ipv4_address(&mut self, index: u32, address: Ipv4Net) {
        if !self.ipv4_addresses.contains(&(index, address)) {
            self.ipv4_addresses.push((index, address));
            self.send_event(KernelEvent::Ipv4Address(index, address, true), ObjectOwner::Other);
        }
    }

    /// Deletes an IPv4 address. If it is the interface's last one, its routes vanish without an event.
    pub(super) fn delete_ipv4_address(&mut self, index: u32, address: Ipv4Net) {
        self.ipv4_addresses.retain(|known| *known != (index, address));
        if !self.ipv4_addresses.iter().any(|(at, _)| *at == index) {
            self.ipv4_routes.retain(|it| it.index != index);
        }
        self.send_event(KernelEvent::Ipv4Address(index, address, false), ObjectOwner::Other);
    }

    pub(super) fn add_ipv4_route(&mut self, route: SimulatedIpv4Route, exclusive: bool) -> RequestResult {
        let link = self.links.iter().find(|link| link.index == route.index).ok_or(libc::ENODEV)?;
        if !link.is_up {
            return Err(libc::ENETDOWN);
        }
        let is_same =
            |it: &SimulatedIpv4Route| (it.table, it.destination) == (route.table, route.destination);
        let maker = route.created_by;
        match self.ipv4_routes.iter().position(is_same) {
            Some(_) if exclusive => return Err(libc::EEXIST),
            Some(at) => {
                let before = std::mem::replace(&mut self.ipv4_routes[at], route.clone());
                self.record_foreign_change(maker, before.created_by, || {
                    format!("route to {} replaced", before.destination)
                });
            }
            None => self.ipv4_routes.push(route.clone()),
        }
        self.send_event(KernelEvent::Ipv4Route(route, true), maker);
        Ok(())
    }

    pub(super) fn delete_ipv4_route(
        &mut self,
        table: u32,
        destination: Ipv4Net,
        protocol: u8,
        by: ObjectOwner,
    ) -> RequestResult {
        let is = |it: &SimulatedIpv4Route| {
            (it.table, it.destination) == (table, destination) && (protocol == 0 || it.protocol == protocol)
        };
        let at = self.ipv4_routes.iter().position(is).ok_or(libc::ESRCH)?;
        let gone = self.ipv4_routes.remove(at);
        self.record_foreign_change(by, gone.created_by, || format!("route to {destination} deleted"));
        self.send_event(KernelEvent::Ipv4Route(gone, false), by);
        Ok(())
    }

    pub(super) fn add_ipv4_rule(&mut self, rule: SimulatedIpv4Rule) -> RequestResult {
        if self.ipv4_rules.iter().any(|it| it.rule == rule.rule) {
            return Err(libc::EEXIST);
        }
        let at = self.ipv4_rules.iter().take_while(|it| it.rule.priority <= rule.rule.priority).count();
        self.ipv4_rules.insert(at, rule.clone());
        let maker = rule.created_by;
        self.send_event(KernelEvent::Ipv4Rule(rule, true), maker);
        Ok(())
    }

    pub(super) fn delete_ipv4_rule(
        &mut self,
        rule: &Ipv4Rule,
        protocol: u8,
        by: ObjectOwner,
    ) -> RequestResult {
        let is = |it: &SimulatedIpv4Rule| it.rule == *rule && (protocol == 0 || it.protocol == protocol);
        let at = self.ipv4_rules.iter().position(is).ok_or(libc::ENOENT)?;
        let gone = self.ipv4_rules.remove(at);
        self.record_foreign_change(by, gone.created_by, || format!("rule {rule:?} deleted"));
        self.send_event(KernelEvent::Ipv4Rule(gone, false), by);
        Ok(())
    }

    /// Returns the next hop of a packet from a socket that is bound to this interface and address. The outer
    /// option is `None` if the interface has no route to the destination, the inner one if the destination is
    /// on the link.
    pub(super) fn ipv4_next_hop(
        &self,
        interface: &str,
        from: Ipv4Addr,
        to: Ipv4Addr,
    ) -> Option<Option<Ipv4Addr>> {
        let index = self.find_link(interface).filter(|link| link.is_running)?.index;
        let holds = |it: &&SimulatedIpv4Rule| it.rule.from == from && it.rule.output_interface == interface;
        let rules = self.ipv4_rules.iter().filter(holds);
        let lookups = rules.map(|it| (it.rule.table, it.rule.without_default)).chain([(TABLE_MAIN, false)]);
        lookups.into_iter().find_map(|(table, without_default)| {
            let leads = |it: &&SimulatedIpv4Route| {
                (it.table, it.index) == (table, index) && it.destination.contains(&to)
            };
            let best = self.ipv4_routes.iter().filter(leads).max_by_key(|it| it.destination.prefix_len());
            let best = best.filter(|it| !without_default || it.destination.prefix_len() > 0);
            best.map(|route| route.gateway)
        })
    }

    /// Makes the check of leftovers ignore interfaces whose `forwarding` differs now from the value without
    /// carnet. Does nothing if carnet has changed `forwarding` of `all`.
    pub(super) fn accept_own_forwarding(&mut self) {
        let of = |interface: &str| self.setting_values.get(&(interface.to_owned(), "forwarding".to_owned()));
        if of("all").is_some_and(|(is, without)| is == without) {
            let left =
                self.interfaces().into_iter().filter(|it| of(it).is_some_and(|(is, without)| is != without));
            self.interfaces_left_forwarding.extend(left.collect::<Vec<_>>());
        }
    }

    fn record_foreign_change(&mut self, by: ObjectOwner, whose: ObjectOwner, what: impl FnOnce() -> String) {
        if (by, whose) == (ObjectOwner::Station, ObjectOwner::Other) {
            self.foreign_changes.push(what());
        }
    }

    pub(super) fn setting_value(&self, interface: &str, name: &str) -> Option<String> {
        self.setting_values.get(&(interface.to_owned(), name.to_owned())).map(|(is, _)| is.clone())
    }

    pub(super) fn interfaces(&self) -> Vec<String> {
        self.links
            .iter()
            .map(|link| link.name.clone())
            .chain(COMMON_SETTING_NAMES.map(str::to_owned))
            .collect()
    }

    pub(super) fn set_setting(
        &mut self,
        interface: &str,
        name: &str,
        value: &str,
        by: ObjectOwner,
    ) -> RequestResult {
        if !self.setting_values.contains_key(&(interface.to_owned(), name.to_owned())) {
            return Err(libc::ENOENT);
        }
        let concerned: Vec<String> = match (interface, name) {
            ("all", "forwarding") => self.interfaces(),
            _ => vec![interface.to_owned()],
        };
        for interface in concerned {
            let Some((is, without)) = self.setting_values.get_mut(&(interface.clone(), name.to_owned()))
            else {
                continue;
            };
            let before = std::mem::replace(is, value.to_owned());
            if by == ObjectOwner::Other {
                *without = value.to_owned();
            }
            if name != "accept_ra" && before != value {
                self.send_event(KernelEvent::Setting, ObjectOwner::Other);
            }
            let accepts = self.setting_value(&interface, "accept_ra").unwrap_or_default();
            if name == "forwarding" && before == "0" && value != "0" && accepts != "2" {
                let index = self.find_link(&interface).map_or(0, |link| link.index);
                let forgotten = |it: &mut SimulatedRoute| {
                    it.protocol == PROTOCOL_ADVERTISED && it.route_action.index() == Some(index)
                };
                for route in self.routes.extract_if(.., forgotten).collect::<Vec<_>>() {
                    self.record_foreign_change(by, route.created_by, || {
                        format!("default route over {interface} removed")
                    });
                    self.send_event(KernelEvent::Route(route, false), ObjectOwner::Other);
                }
            }
        }
        Ok(())
    }

    /// Returns whether the kernel accepts Router Advertisements on an interface.
    fn accepts_advertisements(&self, interface: &str) -> bool {
        match self.setting_value(interface, "accept_ra").as_deref() {
            Some("2") => true,
            Some("1") => self.setting_value(interface, "forwarding").as_deref() == Some("0"),
            _ => false,
        }
    }

    /// Handles a Router Advertisement on an interface, which adds an address and a default route.
    pub(super) fn receive_advertisement(&mut self, interface: &str, router: Ipv6Addr, address: Ipv6Addr) {
        let Some(link) = self.find_link(interface).cloned().filter(|link| link.is_running) else { return };
        if !self.accepts_advertisements(interface) {
            return;
        }
        let is_of_another = |it: &SimulatedAddress| {
            it.index == link.index
                && it.created_by == ObjectOwner::Other
                && it.address != address
                && it.prefix_length == 64
        };
        for old in self.addresses.clone().into_iter().filter(is_of_another) {
            let _ = self.delete_address(old.index, old.address, old.prefix_length, ObjectOwner::Other);
        }
        let index = link.index;
        let _ = self.add_address(SimulatedAddress {
            index,
            address,
            prefix_length: 64,
            protocol: PROTOCOL_KERNEL,
            is_deprecated: false,
            created_by: ObjectOwner::Other,
        });
        let action = SimulatedRouteAction::Forward(index, Some(router));
        // Use different metrics, so that several interfaces can have default routes.
        let metric = 1024 + index;
        let route = SimulatedRoute {
            table: TABLE_MAIN,
            destination: Ipv6Net::default(),
            metric,
            protocol: PROTOCOL_ADVERTISED,
            route_action: action,
            created_by: ObjectOwner::Other,
        };
        if !self.routes.contains(&route) {
            let _ = self.add_route(route, false);
        }
    }

    /// Handles the end of carnet's process: the TUN device vanishes, and the kernel sends no more events.
    pub(super) fn release_process_resources(&mut self) {
        self.unread_events = None;
        self.has_lost_events = false;
        if let Some(index) = self.find_link(TUNNEL_DEVICE).map(|link| link.index) {
            let _ = self.remove_link(index);
        }
    }

    /// Returns the objects that carnet has left, and the missing objects of other programs. The caller must
    /// call this only while carnet does not run.
    pub(super) fn leftover_objects(&self) -> Vec<String> {
        let mut left = self.foreign_changes.clone();
        let of = |maker: ObjectOwner| maker == ObjectOwner::Station;
        left.extend(
            self.routes.iter().filter(|it| of(it.created_by)).map(|it| format!("left in the kernel: {it:?}")),
        );
        left.extend(
            self.addresses
                .iter()
                .filter(|it| of(it.created_by))
                .map(|it| format!("left in the kernel: {it:?}")),
        );
        left.extend(
            self.ipv4_routes
                .iter()
                .filter(|it| of(it.created_by))
                .map(|it| format!("left in the kernel: {it:?}")),
        );
        left.extend(
            self.ipv4_rules
                .iter()
                .filter(|it| of(it.created_by))
                .map(|it| format!("left in the kernel: {it:?}")),
        );
        // Any rule for the local table at priority 0 counts: the kernel's own, or one that another program
        // has restored.
        let is_local = |it: &&SimulatedRule| {
            it.rule == local_rule(0)
                && (it.protocol == PROTOCOL_KERNEL || it.created_by == ObjectOwner::Other)
        };
        let rules = self.rules.iter().filter(|it| of(it.created_by) && !is_local(it));
        left.extend(rules.map(|it| format!("left in the kernel: {it:?}")));
        if self.rules.first().as_ref().is_none_or(|first| !is_local(first)) {
            left.push(format!("the local rule is not the first: {:?}", self.rules));
        }
        for ((interface, name), (is, without)) in &self.setting_values {
            let may_stay = name == "forwarding" && self.interfaces_left_forwarding.contains(interface);
            if is != without && interface != TUNNEL_DEVICE && !may_stay {
                left.push(format!("{interface}.{name} is {is}, was {without}"));
            }
        }
        left.extend(self.find_link(TUNNEL_DEVICE).map(|link| format!("left in the kernel: {link:?}")));
        left
    }

    /// Returns the number of objects with carnet's mark.
    pub(super) fn count_objects_of_carnet(&self) -> usize {
        self.routes.iter().filter(|it| it.protocol == ROUTE_PROTOCOL).count()
            + self.rules.iter().filter(|it| it.protocol == ROUTE_PROTOCOL).count()
            + self.ipv4_routes.iter().filter(|it| it.protocol == ROUTE_PROTOCOL).count()
            + self.ipv4_rules.iter().filter(|it| it.protocol == ROUTE_PROTOCOL).count()
    }

    /// Returns what the kernel does with a packet that arrived on an interface. `lo` stands for packets of
    /// this machine itself.
    pub(super) fn packet_path(
        &self,
        input: &str,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: u8,
    ) -> PacketPath {
        for SimulatedRule { rule, .. } in &self.rules {
            let matches = rule.input_interface.as_deref().is_none_or(|it| it == input)
                && rule.from.is_none_or(|it| it.contains(&source))
                && rule.to.is_none_or(|it| it.contains(&destination))
                && rule.protocol.is_none_or(|it| it == protocol)
                // A rule with ports does not match, because the simulated packets have no ports.
                && rule.ports.is_none();
            if !matches {
                continue;
            }
            let routes = self.routes.iter().filter(|route| {
                let is_up = |index| self.links.iter().any(|link| link.index == index && link.is_running);
                route.table == rule.table
                    && route.destination.contains(&destination)
                    && route.route_action.index().is_none_or(is_up)
            });
            let best = routes.max_by_key(|it| (it.destination.prefix_len(), u32::MAX - it.metric));
            match best.map(|route| route.route_action) {
                None => {}
                Some(SimulatedRouteAction::Unreachable) => return PacketPath::Nowhere,
                Some(SimulatedRouteAction::Local(_)) => return PacketPath::Local,
                Some(SimulatedRouteAction::Forward(index, gateway)) => {
                    let name = self.links.iter().find(|link| link.index == index);
                    return name
                        .map_or(PacketPath::Nowhere, |link| PacketPath::Out(link.name.clone(), gateway));
                }
            }
        }
        PacketPath::Nowhere
    }
}

/// Settings of every interface, with their initial values.
const INITIAL_SETTINGS: [(&str, &str); 3] = [("forwarding", "0"), ("accept_ra", "1"), ("rp_filter", "0")];
