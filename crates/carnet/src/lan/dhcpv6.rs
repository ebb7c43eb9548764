//! DHCPv6 on the interfaces of the mobile network: connects the servers with their sockets. One delegator
//! gives prefixes to the routers on board of all interfaces.

use std::net::Ipv6Addr;
use std::task::{Context, Poll};
use std::time::Duration;

use carnet_api::config::Config;
use carnet_base::{Interface, Time, WallTime};
use carnet_lan::dhcpv6::delegation::{DelegationOutput, PrefixDelegator, StoredDelegation};
use carnet_lan::dhcpv6::{Dhcpv6Config, Dhcpv6Reply, Dhcpv6Server};
use carnet_linux::Dhcpv6Port;
use carnet_nemo::input::DelegatedPrefix;
use ipnet::Ipv6Net;
use tracing::{info, warn};

use super::held::HeldMessages;
use crate::settings::lan::{delegator_config, dhcpv6_servers};

/// Time until the next attempt to open a socket.
const AGAIN: Duration = Duration::from_secs(5);

/// Maximum number of replies that wait for the disk.
const MAX_HELD: usize = 1024;

/// The servers of all interfaces.
#[derive(Debug)]
pub struct Dhcpv6Service {
    links: Vec<Link>,
    delegator: PrefixDelegator,
    /// Replies with their destinations that wait until records of delegated prefixes are on the disk.
    held: HeldMessages<(Ipv6Addr, Vec<u8>)>,
}

#[derive(Debug)]
struct Link {
    name: String,
    config: Dhcpv6Config,
    /// Whether the router itself is the DNS server, if the config names none.
    forwards: bool,
    prefixes: Vec<Ipv6Net>,
    server: Dhcpv6Server,
    port: Option<Dhcpv6Port>,
    link_address: Option<[u8; 6]>,
    failure: Option<String>,
    retry: Option<Time>,
}

impl Dhcpv6Service {
    /// Creates the servers of a config, with the stored records of delegated prefixes.
    pub fn new(config: &Config, stored: &[StoredDelegation], (now, wall): (Time, WallTime)) -> Dhcpv6Service {
        let delegator = PrefixDelegator::new(delegator_config(config), stored, now, wall);
        Dhcpv6Service { links: Dhcpv6Service::links(config), delegator, held: HeldMessages::new(MAX_HELD) }
    }

    /// Applies a changed config. Interfaces that are up have to be reported again.
    pub fn reconfigure(&mut self, config: &Config) {
        self.links = Dhcpv6Service::links(config);
        self.delegator.reconfigure(delegator_config(config));
    }

    fn links(config: &Config) -> Vec<Link> {
        let router = config.mobile_router.as_ref();
        let forwards = router.is_some_and(|router| !router.dns_forward.is_empty());
        let prefixes = router.map(|router| router.prefixes.clone()).unwrap_or_default();
        let links = dhcpv6_servers(config).into_iter().map(|(name, config)| Link {
            server: Dhcpv6Server::new(config.clone()),
            forwards: forwards && config.dns_servers.is_empty(),
            prefixes: prefixes.clone(),
            name,
            config,
            port: None,
            link_address: None,
            failure: None,
            retry: None,
        });
        links.collect()
    }

    /// Handles the state of an interface.
    pub fn handle_interface(&mut self, now: Time, interface: &Interface) {
        for link in self.links.iter_mut().filter(|link| link.name == interface.name) {
            link.handle_interface(now, interface);
        }
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, name: &str) {
        for link in self.links.iter_mut().filter(|link| link.name == name) {
            (link.port, link.link_address, link.failure, link.retry) = (None, None, None, None);
        }
    }

    /// Returns whether messages may be ready; if not, wakes the task when they are.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let ports = self.links.iter().filter_map(|link| link.port.as_ref());
        let count = ports.filter(|port| port.poll_readable(cx).is_ready()).count();
        if count > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns when [`Self::process`] has work without messages.
    pub fn poll_timeout(&self) -> Option<Time> {
        let has_news = self.delegator.has_changes().then_some(Time::ZERO);
        let retries = self.links.iter().filter_map(|link| link.retry);
        retries.chain(self.delegator.poll_timeout()).chain(has_news).min()
    }

    /// Answers the messages that are ready, ends delegations, and opens sockets again.
    pub fn process(&mut self, now: Time, wall: WallTime) {
        self.delegator.handle_timeout(now);
        for link in &mut self.links {
            let Link { name, port, server, link_address, .. } = link;
            if let (Some(port), Some(own)) = (port, *link_address) {
                port.receive(|source, octets| {
                    let delegator = &mut self.delegator;
                    let reply = server.handle_message((now, wall), (name, own), source, octets, delegator);
                    match reply {
                        Some(Dhcpv6Reply { octets, waits_for_store: true }) => {
                            self.held.push(now, None, name.clone(), (source, octets));
                        }
                        Some(reply) => port.send(source, &reply.octets),
                        None => {}
                    }
                });
            }
            if link.retry.is_some_and(|retry| retry <= now) {
                link.open(now);
            }
        }
    }

    /// Returns the next output of the delegator.
    pub fn poll_output(&mut self) -> Option<DelegationOutput> {
        self.delegator.poll_output()
    }

    /// Returns the delegated prefixes if they have changed since the last call.
    pub fn take_delegated(&mut self) -> Option<Vec<DelegatedPrefix>> {
        self.delegator.take_routes_changed().then(|| {
            let delegated = self.delegator.delegations().map(|delegation| DelegatedPrefix {
                prefix: delegation.prefix,
                interface: delegation.client.interface.clone(),
                router: delegation.router_address,
            });
            delegated.collect()
        })
    }

    /// Returns the delegator.
    pub fn delegator(&self) -> &PrefixDelegator {
        &self.delegator
    }

    /// Holds the replies so far until this commit is on the disk. Without a commit, sends them now.
    pub fn hold(&mut self, now: Time, commit: Option<u64>) {
        self.held.set_commit(commit.unwrap_or_default());
        if commit.is_none() {
            self.written(now, u64::MAX);
        }
    }

    /// Sends the replies that waited for a commit, which is on the disk now.
    pub fn written(&mut self, now: Time, commit: u64) {
        while let Some((interface, (destination, octets))) = self.held.pop_written(now, commit) {
            let link = self.links.iter().find(|link| link.name == interface);
            if let Some(port) = link.and_then(|link| link.port.as_ref()) {
                port.send(destination, &octets);
            }
        }
    }

    /// Returns the counters of all interfaces together, by name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut sums: Vec<(String, u64)> = Vec::new();
        for (name, count) in self.links.iter().flat_map(|link| link.server.counters()) {
            let name = format!("lan.dhcpv6.{name}");
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += count,
                None => sums.push((name, count)),
            }
        }
        sums
    }
}

impl Link {
    fn handle_interface(&mut self, now: Time, interface: &Interface) {
        self.link_address = interface.link_address.filter(|_| interface.running);
        let mut config = self.config.clone();
        if self.forwards {
            let addresses = interface.addresses.iter().filter(|own| !own.tentative && !own.duplicate);
            let is_ours = |address: &Ipv6Addr| self.prefixes.iter().any(|prefix| prefix.contains(address));
            config.dns_servers.extend(addresses.map(|own| own.address).find(is_ours));
        }
        self.server.set_config(config);
        let is_open = self.port.as_ref().is_some_and(|port| port.is_on(&self.name));
        if !is_open && self.link_address.is_some() {
            self.open(now);
        }
    }

    fn open(&mut self, now: Time) {
        self.port = None;
        let before = self.failure.take();
        match Dhcpv6Port::open(&self.name) {
            Ok(port) => {
                self.port = Some(port);
                self.retry = None;
                if before.is_some() {
                    info!("the DHCPv6 server on {} is up", self.name);
                }
            }
            Err(error) => {
                let reason = super::why(&error, 547);
                if before.as_deref() != Some(&reason) {
                    warn!(
                        "cannot start the DHCPv6 server on {}: {reason}; trying again every 5 s",
                        self.name
                    );
                }
                self.failure = Some(reason);
                self.retry = Some(now + AGAIN);
            }
        }
    }
}
