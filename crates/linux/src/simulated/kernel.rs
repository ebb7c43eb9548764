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
const QUEUE: usize = 64;
/// Names whose settings concern all interfaces.
const COMMON: [&str; 2] = ["all", "default"];

/// Owner of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ObjectOwner {
    /// The kernel, an operator or another program owns the object.
    Other,
    /// carnet owns the object.
    Station,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) running: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnAddress {
    pub(super) index: u32,
    pub(super) address: Ipv6Addr,
    pub(super) prefix_length: u8,
    pub(super) protocol: u8,
    pub(super) deprecated: bool,
    pub(super) maker: ObjectOwner,
}

/// Action of a route on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Unreachable,
    Local(u32),
    Forward(u32, Option<Ipv6Addr>),
}

impl Action {
    fn index(self) -> Option<u32> {
        match self {
            Action::Unreachable => None,
            Action::Local(index) | Action::Forward(index, _) => Some(index),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownRoute {
    pub(super) table: u32,
    pub(super) destination: Ipv6Net,
    pub(super) metric: u32,
    pub(super) protocol: u8,
    pub(super) action: Action,
    pub(super) maker: ObjectOwner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownRule {
    pub(super) rule: Rule,
    pub(super) protocol: u8,
    pub(super) maker: ObjectOwner,
}

/// An IPv4 route. A route without a gateway has the scope of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownIpv4Route {
    pub(super) table: u32,
    pub(super) destination: Ipv4Net,
    pub(super) protocol: u8,
    pub(super) index: u32,
    pub(super) gateway: Option<Ipv4Addr>,
    pub(super) maker: ObjectOwner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownIpv4Rule {
    pub(super) rule: Ipv4Rule,
    pub(super) protocol: u8,
    pub(super) maker: ObjectOwner,
}

/// An event that the kernel sends to sockets.
#[derive(Debug, Clone)]
pub(super) enum News {
    Link(Link, bool),
    Address(OwnAddress, bool),
    Route(KnownRoute, bool),
    Rule(KnownRule, bool),
    Ipv4Address(u32, Ipv4Net, bool),
    Ipv4Route(KnownIpv4Route, bool),
    Ipv4Rule(KnownIpv4Rule, bool),
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
pub(super) struct State {
    pub(super) links: Vec<Link>,
    pub(super) addresses: Vec<OwnAddress>,
    pub(super) routes: Vec<KnownRoute>,
    pub(super) rules: Vec<KnownRule>,
    /// IPv4 addresses, each with the index of its interface.
    pub(super) ipv4_addresses: Vec<(u32, Ipv4Net)>,
    pub(super) ipv4_routes: Vec<KnownIpv4Route>,
    pub(super) ipv4_rules: Vec<KnownIpv4Rule>,
    /// Indices of interfaces on which IPv6 is disabled now.
    pub(super) without_ipv6: BTreeSet<u32>,
    /// Interfaces whose value of `forwarding` the test does not check after carnet has ended, because their
    /// original value is unknown.
    left_forwarding: BTreeSet<String>,
    /// For each setting its present value, and the value that it would have without carnet.
    switches: BTreeMap<(String, String), (String, String)>,
    next_index: u32,
    /// Events that carnet's socket has not read yet; `None` while carnet has no socket.
    pub(super) unread_events: Option<VecDeque<(News, ObjectOwner)>>,
    pub(super) overrun: bool,
    /// Number of events that the kernel will lose next.
    pub(super) events_to_lose: u32,
    /// carnet's changes to objects of other programs.
    pub(super) foreign_changes: Vec<String>,
    pub(super) rng: Rng,
    /// Probability that a request or a write of a setting fails.
    pub(super) failure_probability: f64,
    pub(super) boot: u32,
    /// Whether addresses store the mark of their owner; a kernel before Linux 5.18 does not.
    pub(super) keeps_marks: bool,
    /// Number of steps until the process counts as dead, and the disk, which then accepts no request either.
    pub(super) steps_until_death: Option<(u32, SimulatedDisk)>,
}

pub(super) fn local_rule(priority: u32) -> Rule {
    Rule { priority, table: TABLE_LOCAL, ..Rule::default() }
}

impl State {
    pub(super) fn new(rng: Rng) -> State {
        let mut state = State {
            links: Vec::new(),
            addresses: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
            ipv4_addresses: Vec::new(),
            ipv4_routes: Vec::new(),
            ipv4_rules: Vec::new(),
            switches: BTreeMap::new(),
            next_index: 1,
            unread_events: None,
            overrun: false,
            events_to_lose: 0,
            foreign_changes: Vec::new(),
            rng,
            failure_probability: 0.0,
            boot: 0,
            keeps_marks: true,
            left_forwarding: BTreeSet::new(),
            without_ipv6: BTreeSet::new(),
            steps_until_death: None,
        };
        for (name, value) in DEFAULTS {
            for common in COMMON {
                state.switches.insert((common.into(), name.into()), (value.into(), value.into()));
            }
        }
        let main = Rule { priority: 32766, table: TABLE_MAIN, ..local_rule(0) };
        for rule in [local_rule(0), main] {
            state.rules.push(KnownRule { rule, protocol: PROTOCOL_KERNEL, maker: ObjectOwner::Other });
        }
        let index = state.add_link("lo");
        state.set_link(index, true, true);
        state
    }

    /// Counts one step of the process, that is, one request. Returns whether the process is dead.
    pub(super) fn step(&mut self) -> bool {
        let Some((left, disk)) = &mut self.steps_until_death else { return false };
        *left = left.saturating_sub(1);
        if *left == 0 {
            disk.set_dead(true);
        }
        *left == 0
    }

    fn send_event(&mut self, news: News, by: ObjectOwner) {
        let Some(queue) = &mut self.unread_events else { return };
        // The filter of carnet's socket drops events about routes and rules that carnet has changed.
        let is_filtered =
            matches!(news, News::Route(..) | News::Rule(..) | News::Ipv4Route(..) | News::Ipv4Rule(..));
        if by == ObjectOwner::Station && is_filtered {
            return;
        }
        if queue.len() >= QUEUE || self.events_to_lose > 0 {
            self.events_to_lose = self.events_to_lose.saturating_sub(1);
            self.overrun = true;
            return;
        }
        queue.push_back((news, by));
    }

    pub(super) fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    pub(super) fn add_link(&mut self, name: &str) -> u32 {
        let index = self.next_index;
        self.next_index += 1;
        let link = Link { index, name: name.into(), up: false, running: false };
        for (switch, _) in DEFAULTS {
            let value = self.switches[&("default".to_owned(), switch.to_owned())].clone();
            self.switches.insert((name.into(), switch.into()), value);
        }
        self.links.push(link.clone());
        self.send_event(News::Link(link, true), ObjectOwner::Other);
        index
    }

    pub(super) fn set_link(&mut self, index: u32, up: bool, running: bool) {
        let Some(link) = self.links.iter_mut().find(|link| link.index == index) else { return };
        let was_up = std::mem::replace(&mut link.up, up);
        link.running = up && running;
        let link = link.clone();
        self.send_event(News::Link(link, true), ObjectOwner::Other);
        if was_up && !up {
            self.empty(index);
            // When an interface goes down, its IPv4 routes vanish and its IPv4 addresses stay.
            self.ipv4_routes.retain(|it| it.index != index);
        }
    }

    /// Removes addresses and routes of an interface. Some kernels send no events about these removals.
    fn empty(&mut self, index: u32) {
        let tells = self.rng.chance(0.5);
        for address in self.addresses.extract_if(.., |it| it.index == index).collect::<Vec<_>>() {
            self.send_event(News::Address(address, false), ObjectOwner::Other);
        }
        for route in self.routes.extract_if(.., |it| it.action.index() == Some(index)).collect::<Vec<_>>() {
            if tells {
                self.send_event(News::Route(route, false), ObjectOwner::Other);
            }
        }
    }

    pub(super) fn remove_link(&mut self, index: u32) -> RequestResult {
        let at = self.links.iter().position(|link| link.index == index).ok_or(libc::ENODEV)?;
        self.empty(index);
        self.ipv4_routes.retain(|it| it.index != index);
        self.ipv4_addresses.retain(|(at, _)| *at != index);
        let link = self.links.remove(at);
        self.switches.retain(|(interface, _), _| *interface != link.name);
        self.send_event(News::Link(link, false), ObjectOwner::Other);
        Ok(())
    }

    pub(super) fn add_address(&mut self, mut address: OwnAddress) -> RequestResult {
        if !self.keeps_marks {
            address.protocol = 0;
        }
        let is_same = |it: &OwnAddress| (it.index, it.address) == (address.index, address.address);
        if !self.links.iter().any(|link| link.index == address.index) {
            return Err(libc::ENODEV);
        }
        if self.addresses.iter().any(is_same) {
            return Err(libc::EEXIST);
        }
        let (index, maker) = (address.index, address.maker);
        let route = |table, destination, action| KnownRoute {
            table,
            destination,
            metric: 256,
            protocol: PROTOCOL_KERNEL,
            action,
            maker,
        };
        self.routes.push(route(TABLE_LOCAL, address.address.into(), Action::Local(index)));
        if let Ok(prefix) = Ipv6Net::new(address.address, address.prefix_length)
            && address.prefix_length < 128
        {
            self.routes.push(route(TABLE_MAIN, prefix.trunc(), Action::Forward(index, None)));
        }
        self.addresses.push(address.clone());
        self.send_event(News::Address(address, true), maker);
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
        let is = |it: &OwnAddress| (it.index, it.address, it.prefix_length) == (index, address, length);
        let at = self.addresses.iter().position(is).ok_or(libc::EADDRNOTAVAIL)?;
        let gone = self.addresses.remove(at);
        self.blame(by, gone.maker, || format!("address {address}/{length} deleted"));
        self.routes.retain(|it| {
            !(it.protocol == PROTOCOL_KERNEL
                && it.action.index() == Some(index)
                && (it.table == TABLE_LOCAL && it.destination.addr() == address
                    || it.table == TABLE_MAIN
                        && it.destination.prefix_len() == length
                        && it.destination.contains(&address)))
        });
        self.send_event(News::Address(gone, false), by);
        Ok(())
    }

    pub(super) fn add_route(&mut self, route: KnownRoute, exclusive: bool) -> RequestResult {
        if let Some(index) = route.action.index() {
            let link = self.links.iter().find(|link| link.index == index).ok_or(libc::ENODEV)?;
            if !link.up {
                return Err(libc::ENETDOWN);
            }
            if self.without_ipv6.contains(&index) {
                return Err(libc::EACCES);
            }
        }
        let is_same = |it: &KnownRoute| {
            (it.table, it.destination, it.metric) == (route.table, route.destination, route.metric)
        };
        let maker = route.maker;
        match self.routes.iter().position(is_same) {
            Some(_) if exclusive => return Err(libc::EEXIST),
            Some(at) => {
                let before = std::mem::replace(&mut self.routes[at], route.clone());
                self.blame(maker, before.maker, || format!("route to {} replaced", before.destination));
            }
            None => self.routes.push(route.clone()),
        }
        self.send_event(News::Route(route, true), maker);
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
        let is = |it: &KnownRoute| {
            (it.table, it.destination, it.metric) == (table, destination, metric)
                && (protocol == 0 || it.protocol == protocol)
        };
        let at = self.routes.iter().position(is).ok_or(libc::ESRCH)?;
        let gone = self.routes.remove(at);
        self.blame(by, gone.maker, || format!("route to {destination} deleted"));
        self.send_event(News::Route(gone, false), by);
        Ok(())
    }

    pub(super) fn add_rule(&mut self, rule: KnownRule) -> RequestResult {
        if self.rules.iter().any(|it| (&it.rule, it.protocol) == (&rule.rule, rule.protocol)) {
            return Err(libc::EEXIST);
        }
        let at = self.rules.iter().take_while(|it| it.rule.priority <= rule.rule.priority).count();
        self.rules.insert(at, rule.clone());
        let maker = rule.maker;
        self.send_event(News::Rule(rule, true), maker);
        Ok(())
    }

    pub(super) fn delete_rule(&mut self, rule: &Rule, protocol: u8, by: ObjectOwner) -> RequestResult {
        let is = |it: &KnownRule| it.rule == *rule && (protocol == 0 || it.protocol == protocol);
        let at = self.rules.iter().position(is).ok_or(libc::ENOENT)?;
        let gone = self.rules.remove(at);
        // carnet may delete only its own rules, and the rule of the local table, which it moves.
        if gone.rule != local_rule(0) {
            self.blame(by, gone.maker, || format!("rule {rule:?} deleted"));
        }
        self.send_event(News::Rule(gone, false), by);
        Ok(())
    }

    pub(super) fn add_ipv4_address(&mut self, index: u32, address: Ipv4Net) {
        if !self.ipv4_addresses.contains(&(index, address)) {
            self.ipv4_addresses.push((index, address));
            self.send_event(News::Ipv4Address(index, address, true), ObjectOwner::Other);
        }
    }

    /// Deletes an IPv4 address. If it is the interface's last one, its routes vanish without an event.
    pub(super) fn delete_ipv4_address(&mut self, index: u32, address: Ipv4Net) {
        self.ipv4_addresses.retain(|known| *known != (index, address));
        if !self.ipv4_addresses.iter().any(|(at, _)| *at == index) {
            self.ipv4_routes.retain(|it| it.index != index);
        }
        self.send_event(News::Ipv4Address(index, address, false), ObjectOwner::Other);
    }

    pub(super) fn add_ipv4_route(&mut self, route: KnownIpv4Route, exclusive: bool) -> RequestResult {
        let link = self.links.iter().find(|link| link.index == route.index).ok_or(libc::ENODEV)?;
        if !link.up {
            return Err(libc::ENETDOWN);
        }
        let is_same = |it: &KnownIpv4Route| (it.table, it.destination) == (route.table, route.destination);
        let maker = route.maker;
        match self.ipv4_routes.iter().position(is_same) {
            Some(_) if exclusive => return Err(libc::EEXIST),
            Some(at) => {
                let before = std::mem::replace(&mut self.ipv4_routes[at], route.clone());
                self.blame(maker, before.maker, || format!("route to {} replaced", before.destination));
            }
            None => self.ipv4_routes.push(route.clone()),
        }
        self.send_event(News::Ipv4Route(route, true), maker);
        Ok(())
    }

    pub(super) fn delete_ipv4_route(
        &mut self,
        table: u32,
        destination: Ipv4Net,
        protocol: u8,
        by: ObjectOwner,
    ) -> RequestResult {
        let is = |it: &KnownIpv4Route| {
            (it.table, it.destination) == (table, destination) && (protocol == 0 || it.protocol == protocol)
        };
        let at = self.ipv4_routes.iter().position(is).ok_or(libc::ESRCH)?;
        let gone = self.ipv4_routes.remove(at);
        self.blame(by, gone.maker, || format!("route to {destination} deleted"));
        self.send_event(News::Ipv4Route(gone, false), by);
        Ok(())
    }

    pub(super) fn add_ipv4_rule(&mut self, rule: KnownIpv4Rule) -> RequestResult {
        if self.ipv4_rules.iter().any(|it| it.rule == rule.rule) {
            return Err(libc::EEXIST);
        }
        let at = self.ipv4_rules.iter().take_while(|it| it.rule.priority <= rule.rule.priority).count();
        self.ipv4_rules.insert(at, rule.clone());
        let maker = rule.maker;
        self.send_event(News::Ipv4Rule(rule, true), maker);
        Ok(())
    }

    pub(super) fn delete_ipv4_rule(
        &mut self,
        rule: &Ipv4Rule,
        protocol: u8,
        by: ObjectOwner,
    ) -> RequestResult {
        let is = |it: &KnownIpv4Rule| it.rule == *rule && (protocol == 0 || it.protocol == protocol);
        let at = self.ipv4_rules.iter().position(is).ok_or(libc::ENOENT)?;
        let gone = self.ipv4_rules.remove(at);
        self.blame(by, gone.maker, || format!("rule {rule:?} deleted"));
        self.send_event(News::Ipv4Rule(gone, false), by);
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
        let index = self.link(interface).filter(|link| link.running)?.index;
        let holds = |it: &&KnownIpv4Rule| it.rule.from == from && it.rule.output_interface == interface;
        let rules = self.ipv4_rules.iter().filter(holds);
        let lookups = rules.map(|it| (it.rule.table, it.rule.without_default)).chain([(TABLE_MAIN, false)]);
        lookups.into_iter().find_map(|(table, without_default)| {
            let leads =
                |it: &&KnownIpv4Route| (it.table, it.index) == (table, index) && it.destination.contains(&to);
            let best = self.ipv4_routes.iter().filter(leads).max_by_key(|it| it.destination.prefix_len());
            let best = best.filter(|it| !without_default || it.destination.prefix_len() > 0);
            best.map(|route| route.gateway)
        })
    }

    /// Excludes `forwarding` of some interfaces from the check of leftovers, if carnet has not changed it for
    /// `all`. These are the interfaces on which it differs from the value without carnet.
    pub(super) fn forgive_forwarding(&mut self) {
        let of = |interface: &str| self.switches.get(&(interface.to_owned(), "forwarding".to_owned()));
        if of("all").is_some_and(|(is, without)| is == without) {
            let left =
                self.interfaces().into_iter().filter(|it| of(it).is_some_and(|(is, without)| is != without));
            self.left_forwarding.extend(left.collect::<Vec<_>>());
        }
    }

    fn blame(&mut self, by: ObjectOwner, whose: ObjectOwner, what: impl FnOnce() -> String) {
        if (by, whose) == (ObjectOwner::Station, ObjectOwner::Other) {
            self.foreign_changes.push(what());
        }
    }

    pub(super) fn switch(&self, interface: &str, name: &str) -> Option<String> {
        self.switches.get(&(interface.to_owned(), name.to_owned())).map(|(is, _)| is.clone())
    }

    pub(super) fn interfaces(&self) -> Vec<String> {
        self.links.iter().map(|link| link.name.clone()).chain(COMMON.map(str::to_owned)).collect()
    }

    pub(super) fn set_switch(
        &mut self,
        interface: &str,
        name: &str,
        value: &str,
        by: ObjectOwner,
    ) -> RequestResult {
        if !self.switches.contains_key(&(interface.to_owned(), name.to_owned())) {
            return Err(libc::ENOENT);
        }
        let concerned: Vec<String> = match (interface, name) {
            ("all", "forwarding") => self.interfaces(),
            _ => vec![interface.to_owned()],
        };
        for interface in concerned {
            let Some((is, without)) = self.switches.get_mut(&(interface.clone(), name.to_owned())) else {
                continue;
            };
            let before = std::mem::replace(is, value.to_owned());
            if by == ObjectOwner::Other {
                *without = value.to_owned();
            }
            if name != "accept_ra" && before != value {
                self.send_event(News::Setting, ObjectOwner::Other);
            }
            let accepts = self.switch(&interface, "accept_ra").unwrap_or_default();
            if name == "forwarding" && before == "0" && value != "0" && accepts != "2" {
                let index = self.link(&interface).map_or(0, |link| link.index);
                let forgotten = |it: &mut KnownRoute| {
                    it.protocol == PROTOCOL_ADVERTISED && it.action.index() == Some(index)
                };
                for route in self.routes.extract_if(.., forgotten).collect::<Vec<_>>() {
                    self.blame(by, route.maker, || format!("default route over {interface} removed"));
                    self.send_event(News::Route(route, false), ObjectOwner::Other);
                }
            }
        }
        Ok(())
    }

    /// Returns whether the kernel accepts Router Advertisements on an interface.
    fn hears_advertisements(&self, interface: &str) -> bool {
        match self.switch(interface, "accept_ra").as_deref() {
            Some("2") => true,
            Some("1") => self.switch(interface, "forwarding").as_deref() == Some("0"),
            _ => false,
        }
    }

    /// Handles a Router Advertisement on an interface, which adds an address and a default route.
    pub(super) fn advertise(&mut self, interface: &str, router: Ipv6Addr, address: Ipv6Addr) {
        let Some(link) = self.link(interface).cloned().filter(|link| link.running) else { return };
        if !self.hears_advertisements(interface) {
            return;
        }
        let is_of_another = |it: &OwnAddress| {
            it.index == link.index
                && it.maker == ObjectOwner::Other
                && it.address != address
                && it.prefix_length == 64
        };
        for old in self.addresses.clone().into_iter().filter(is_of_another) {
            let _ = self.delete_address(old.index, old.address, old.prefix_length, ObjectOwner::Other);
        }
        let index = link.index;
        let _ = self.add_address(OwnAddress {
            index,
            address,
            prefix_length: 64,
            protocol: PROTOCOL_KERNEL,
            deprecated: false,
            maker: ObjectOwner::Other,
        });
        let action = Action::Forward(index, Some(router));
        // The default routes of several interfaces need different metrics.
        let metric = 1024 + index;
        let route = KnownRoute {
            table: TABLE_MAIN,
            destination: Ipv6Net::default(),
            metric,
            protocol: PROTOCOL_ADVERTISED,
            action,
            maker: ObjectOwner::Other,
        };
        if !self.routes.contains(&route) {
            let _ = self.add_route(route, false);
        }
    }

    /// Handles the end of carnet's process: the TUN device vanishes, and the kernel sends no more events.
    pub(super) fn abandon(&mut self) {
        self.unread_events = None;
        self.overrun = false;
        if let Some(index) = self.link(TUNNEL_DEVICE).map(|link| link.index) {
            let _ = self.remove_link(index);
        }
    }

    /// Returns the objects that carnet has left, and the missing objects of other programs. To be called
    /// while carnet does not run.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let mut left = self.foreign_changes.clone();
        let of = |maker: ObjectOwner| maker == ObjectOwner::Station;
        left.extend(
            self.routes.iter().filter(|it| of(it.maker)).map(|it| format!("left in the kernel: {it:?}")),
        );
        left.extend(
            self.addresses.iter().filter(|it| of(it.maker)).map(|it| format!("left in the kernel: {it:?}")),
        );
        left.extend(
            self.ipv4_routes.iter().filter(|it| of(it.maker)).map(|it| format!("left in the kernel: {it:?}")),
        );
        left.extend(
            self.ipv4_rules.iter().filter(|it| of(it.maker)).map(|it| format!("left in the kernel: {it:?}")),
        );
        // A rule for the local table at priority 0, of the kernel or restored by another program.
        let is_local = |it: &&KnownRule| {
            it.rule == local_rule(0) && (it.protocol == PROTOCOL_KERNEL || it.maker == ObjectOwner::Other)
        };
        let rules = self.rules.iter().filter(|it| of(it.maker) && !is_local(it));
        left.extend(rules.map(|it| format!("left in the kernel: {it:?}")));
        if self.rules.first().as_ref().is_none_or(|first| !is_local(first)) {
            left.push(format!("the local rule is not the first: {:?}", self.rules));
        }
        for ((interface, name), (is, without)) in &self.switches {
            let may_stay = name == "forwarding" && self.left_forwarding.contains(interface);
            if is != without && interface != TUNNEL_DEVICE && !may_stay {
                left.push(format!("{interface}.{name} is {is}, was {without}"));
            }
        }
        left.extend(self.link(TUNNEL_DEVICE).map(|link| format!("left in the kernel: {link:?}")));
        left
    }

    /// Returns the number of objects with carnet's mark.
    pub(super) fn count_marked_objects(&self) -> usize {
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
        for KnownRule { rule, .. } in &self.rules {
            let matches = rule.input_interface.as_deref().is_none_or(|it| it == input)
                && rule.from.is_none_or(|it| it.contains(&source))
                && rule.to.is_none_or(|it| it.contains(&destination))
                && rule.protocol.is_none_or(|it| it == protocol)
                // The packets have no ports.
                && rule.ports.is_none();
            if !matches {
                continue;
            }
            let routes = self.routes.iter().filter(|route| {
                let is_up = |index| self.links.iter().any(|link| link.index == index && link.running);
                route.table == rule.table
                    && route.destination.contains(&destination)
                    && route.action.index().is_none_or(is_up)
            });
            let best = routes.max_by_key(|it| (it.destination.prefix_len(), u32::MAX - it.metric));
            match best.map(|route| route.action) {
                None => {}
                Some(Action::Unreachable) => return PacketPath::Nowhere,
                Some(Action::Local(_)) => return PacketPath::Local,
                Some(Action::Forward(index, gateway)) => {
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
const DEFAULTS: [(&str, &str); 3] = [("forwarding", "0"), ("accept_ra", "1"), ("rp_filter", "0")];
