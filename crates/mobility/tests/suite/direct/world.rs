//! Mobile routers with distant home agents and a short path between their care-of addresses, in virtual time.
//! In each step (10 ms unless the test sets another) every router's network sends one packet to each other
//! network. The world counts for each packet whether it arrived, and over which path.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_mobility::direct::{DirectConfig, DirectDrop, Output};
use carnet_mobility::{Direct, Event};
use carnet_virtual::Timeline;
pub use carnet_virtual::{address, prefix};
use carnet_wire::ipv6::{HEADER_LEN, Header};
use carnet_wire::mobility::{DirectRoute, MobilityHeader};
use ipnet::Ipv6Net;

/// Returns the home address of router `number`.
pub fn home(number: usize) -> Ipv6Addr {
    address(&format!("2001:db8:{}::{:x}", number + 1, 0x1000 + number))
}

pub fn network(number: usize) -> Ipv6Net {
    prefix(&format!("2001:db8:a{number}::/64"))
}

pub fn care_of(number: usize, uplink: usize) -> Ipv6Addr {
    address(&format!("2001:db8:f{number}{uplink}::10"))
}

pub fn host(number: usize) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(network(number).network()) | 0x99)
}

pub fn config(number: usize) -> DirectConfig {
    DirectConfig {
        prefixes: vec![network(number)],
        home_address: home(number),
        home_prefix: prefix(&format!("2001:db8:{}::/64", number + 1)),
        networks: vec![prefix("2001:db8:a0::/44")],
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Home,
    Straight,
}

/// A packet on its way, with its sender and its path.
#[derive(Debug, Clone)]
pub struct Packet {
    pub from: usize,
    pub way: Way,
    pub octets: Vec<u8>,
}

/// Counts of the packets of one network to another, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub straight: u32,
    pub home: u32,
    pub lost: u32,
}

/// A data packet on the direct path.
#[derive(Debug)]
struct Data {
    from: usize,
    to: usize,
    local: Ipv6Addr,
    remote: Ipv6Addr,
}

/// Returns whether a message passes.
type Filter = Box<dyn FnMut(&Packet, &DirectRoute) -> bool>;

pub struct World {
    pub now: Time,
    pub routers: Vec<Direct>,
    pub home_delay: Duration,
    pub straight_delay: Duration,
    /// Care-of addresses whose link is up.
    pub up: BTreeSet<Ipv6Addr>,
    /// Whether the direct path drops everything without an error.
    pub cut: bool,
    /// Whether the path by the home agents drops everything.
    pub home_cut: bool,
    /// Decides whether a message passes.
    pub filter: Filter,
    pub sending: bool,
    pub step: Duration,
    /// All packets that were sent, for tests that replay them.
    pub log: Vec<Packet>,
    pub results: Vec<Result<(), DirectDrop>>,
    /// Reports of a router that packets to prefixes go directly (true) or not.
    pub paths: Vec<(usize, Vec<Ipv6Net>, bool)>,
    packets: Timeline<Packet>,
    data: Timeline<Data>,
    seen: BTreeMap<(usize, usize), Seen>,
}

impl World {
    /// A world with `count` routers, each with its first uplink.
    pub fn new(count: usize) -> World {
        let routers = (0..count).map(|number| Direct::new(config(number), Rng::new(7 + number as u64)));
        let mut world = World {
            now: Time::from_secs(1000),
            routers: routers.collect(),
            home_delay: Duration::from_millis(80),
            straight_delay: Duration::from_millis(7),
            up: BTreeSet::new(),
            cut: false,
            home_cut: false,
            filter: Box::new(|_, _| true),
            sending: true,
            step: Duration::from_millis(10),
            log: Vec::new(),
            results: Vec::new(),
            paths: Vec::new(),
            packets: Timeline::default(),
            data: Timeline::default(),
            seen: BTreeMap::new(),
        };
        for number in 0..count {
            world.set_care_of(number, &[care_of(number, 0)]);
        }
        world
    }

    /// Gives the router these care-of addresses, the best first. Their links are up, and those of its other
    /// addresses are down.
    pub fn set_care_of(&mut self, number: usize, addresses: &[Ipv6Addr]) {
        let own: Vec<Ipv6Addr> = (0..4).map(|uplink| care_of(number, uplink)).collect();
        self.up.retain(|address| !own.contains(address));
        self.up.extend(addresses);
        self.routers[number].handle_care_of_addresses(self.now, addresses.to_vec(), true);
        self.drain(number);
    }

    pub fn drain(&mut self, from: usize) {
        while let Some(output) = self.routers[from].poll_output() {
            match output {
                Output::ThroughTunnel(octets) => self.send(Packet { from, way: Way::Home, octets }),
                Output::Straight(octets) => self.send(Packet { from, way: Way::Straight, octets }),
                Output::Event(Event::Path { prefixes, direct, .. }) => {
                    self.paths.push((from, prefixes, direct));
                }
                Output::Routes | Output::Event(_) => {}
            }
        }
    }

    pub fn send(&mut self, packet: Packet) {
        let delay = if packet.way == Way::Home { self.home_delay } else { self.straight_delay };
        self.log.push(packet.clone());
        self.packets.schedule(self.now + delay, packet);
    }

    fn deliver(&mut self, packet: Packet) {
        let header = Header::parse(&packet.octets).expect("a packet");
        let message = read(&packet.octets);
        if !(self.filter)(&packet, &message) {
            return;
        }
        let to = match packet.way {
            Way::Home if self.home_cut => None,
            Way::Home => (0..self.routers.len()).find(|number| {
                home(*number) == header.destination || network(*number).contains(&header.destination)
            }),
            Way::Straight if self.cut || !self.up.contains(&header.source) => None,
            Way::Straight => self.owner(header.destination),
        };
        let Some(to) = to else { return };
        let router = &mut self.routers[to];
        let result = match packet.way {
            Way::Home => router.handle_inner(self.now, header.source, header.destination, &message),
            Way::Straight => router.handle_straight(self.now, header.source, header.destination, &message),
        };
        self.results.push(result);
        self.drain(to);
    }

    fn owner(&self, care_of_address: Ipv6Addr) -> Option<usize> {
        let has = |number: &usize| (0..4).any(|uplink| care_of(*number, uplink) == care_of_address);
        (0..self.routers.len()).find(has).filter(|_| self.up.contains(&care_of_address))
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let pairs = (0..self.routers.len()).flat_map(|a| (0..self.routers.len()).map(move |b| (a, b)));
            for (from, to) in pairs.collect::<Vec<_>>() {
                if from != to && self.sending {
                    self.send_data(from, to);
                }
            }
            let next = self.now + self.step;
            while self.now < next {
                let timers = self.routers.iter().filter_map(Direct::poll_timeout).min();
                let arrivals = self.packets.next_time().into_iter().chain(self.data.next_time());
                let at = timers.into_iter().chain(arrivals).min().unwrap_or(next);
                self.now = at.clamp(self.now, next);
                if at > next {
                    break;
                }
                while let Some(data) = self.data.pop_due(self.now) {
                    self.receive_data(&data);
                }
                while let Some(packet) = self.packets.pop_due(self.now) {
                    self.deliver(packet);
                }
                for number in 0..self.routers.len() {
                    if self.routers[number].poll_timeout().is_some_and(|at| at <= self.now) {
                        self.routers[number].handle_timeout(self.now);
                        self.drain(number);
                    }
                }
            }
        }
    }

    fn send_data(&mut self, from: usize, to: usize) {
        self.routers[from].handle_use(self.now, host(to));
        let tunnels = self.routers[from].tunnels();
        let mut taken = tunnels
            .iter()
            .filter(|tunnel| tunnel.transmit && tunnel.inner.iter().any(|inner| inner.contains(&host(to))));
        let tunnel = taken.next();
        assert!(taken.next().is_none(), "one way for each packet");
        let seen = self.seen.entry((from, to)).or_default();
        match tunnel {
            // A packet through the home agents counts as delivered at once.
            None => seen.home += 1,
            Some(tunnel) => {
                let data = Data { from, to, local: tunnel.local, remote: tunnel.remote };
                self.data.schedule(self.now + self.straight_delay, data);
            }
        }
    }

    fn receive_data(&mut self, data: &Data) {
        let arrives = !self.cut && self.up.contains(&data.local) && self.owner(data.remote) == Some(data.to);
        let taken = arrives
            && self.routers[data.to].tunnels().iter().any(|tunnel| {
                (tunnel.local, tunnel.remote) == (data.remote, data.local)
                    && tunnel.inner.iter().any(|inner| inner.contains(&host(data.from)))
            });
        let seen = self.seen.entry((data.from, data.to)).or_default();
        *(if taken { &mut seen.straight } else { &mut seen.lost }) += 1;
    }

    /// Takes the counts of the packets since the last call.
    pub fn seen(&mut self, from: usize, to: usize) -> Seen {
        self.seen.remove(&(from, to)).unwrap_or_default()
    }

    pub fn forget_seen(&mut self) {
        self.seen.clear();
    }

    pub fn is_direct(&self, from: usize, to: usize) -> bool {
        self.routers[from].routes().any(|route| route.home_address == home(to) && route.direct)
    }

    pub fn dropped(&self, number: usize, reason: DirectDrop) -> u64 {
        self.routers[number].counters().dropped(reason)
    }
}

pub fn read(packet: &[u8]) -> DirectRoute {
    let header = Header::parse(packet).expect("a packet");
    let octets = packet.get(HEADER_LEN..).expect("more than a header");
    let header =
        MobilityHeader::parse_verified(octets, header.source, header.destination).expect("a message");
    DirectRoute::parse(&header).expect("one about direct routes")
}
