//! DHCPv6 on the interfaces of the mobile network. The module connects the servers with their sockets. A
//! single delegator serves the routers on board of all interfaces.

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

use super::held_messages::HeldMessages;
use crate::settings::lan::{delegator_config, dhcpv6_servers};

/// Time until the next attempt to open a socket.
const SOCKET_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of replies that wait for the disk.
const MAX_HELD_REPLIES: usize = 1024;

/// The servers of all interfaces.
#[derive(Debug)]
pub struct Dhcpv6Service {
    dhcpv6_links: Vec<Dhcpv6Link>,
    prefix_delegator: PrefixDelegator,
    /// Replies, with their destinations, that wait until the records of delegated prefixes are on the disk.
    held_replies: HeldMessages<(Ipv6Addr, Vec<u8>)>,
}

#[derive(Debug)]
struct Dhcpv6Link {
    name: String,
    config: Dhcpv6Config,
    /// Whether the router itself is the DNS server of hosts if the config names no DNS server.
    forwards_dns: bool,
    prefixes: Vec<Ipv6Net>,
    dhcpv6_server: Dhcpv6Server,
    port: Option<Dhcpv6Port>,
    link_address: Option<[u8; 6]>,
    open_failure: Option<String>,
    next_open_attempt_at: Option<Time>,
}

impl Dhcpv6Service {
    /// Creates the servers of a config, with the stored records of delegated prefixes.
    pub fn new(config: &Config, stored: &[StoredDelegation], (now, wall): (Time, WallTime)) -> Dhcpv6Service {
        let delegator = PrefixDelegator::new(delegator_config(config), stored, now, wall);
        Dhcpv6Service {
            dhcpv6_links: Dhcpv6Service::configured_links(config),
            prefix_delegator: delegator,
            held_replies: HeldMessages::new(MAX_HELD_REPLIES),
        }
    }

    /// Applies a changed config. The caller then reports the interfaces that are up again.
    pub fn reconfigure(&mut self, config: &Config) {
        self.dhcpv6_links = Dhcpv6Service::configured_links(config);
        self.prefix_delegator.reconfigure(delegator_config(config));
    }

    fn configured_links(config: &Config) -> Vec<Dhcpv6Link> {
        let router = config.mobile_router.as_ref();
        let forwards = router.is_some_and(|router| !router.dns_forward_servers.is_empty());
        let prefixes = router.map(|router| router.prefixes.clone()).unwrap_or_default();
        let links = dhcpv6_servers(config).into_iter().map(|(name, config)| Dhcpv6Link {
            dhcpv6_server: Dhcpv6Server::new(config.clone()),
            forwards_dns: forwards && config.dns_servers.is_empty(),
            prefixes: prefixes.clone(),
            name,
            config,
            port: None,
            link_address: None,
            open_failure: None,
            next_open_attempt_at: None,
        });
        links.collect()
    }

    /// Handles the state of an interface.
    pub fn handle_interface(&mut self, now: Time, interface: &Interface) {
        for link in self.dhcpv6_links.iter_mut().filter(|link| link.name == interface.name) {
            link.handle_interface(now, interface);
        }
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, name: &str) {
        for link in self.dhcpv6_links.iter_mut().filter(|link| link.name == name) {
            (link.port, link.link_address, link.open_failure, link.next_open_attempt_at) =
                (None, None, None, None);
        }
    }

    /// Returns whether messages may be ready; if not, the task is woken when a message arrives.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let ports = self.dhcpv6_links.iter().filter_map(|link| link.port.as_ref());
        let count = ports.filter(|port| port.poll_readable(cx).is_ready()).count();
        if count > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns when the caller must call [`Self::process_received`] next even if no message arrives; `None`
    /// if never.
    pub fn poll_timeout(&self) -> Option<Time> {
        let has_news = self.prefix_delegator.has_changes().then_some(Time::ZERO);
        let retries = self.dhcpv6_links.iter().filter_map(|link| link.next_open_attempt_at);
        retries.chain(self.prefix_delegator.poll_timeout()).chain(has_news).min()
    }

    /// Answers the messages that are ready, ends delegations, and opens sockets again.
    pub fn process_received(&mut self, now: Time, wall: WallTime) {
        self.prefix_delegator.handle_timeout(now);
        for link in &mut self.dhcpv6_links {
            let Dhcpv6Link { name, port, dhcpv6_server: server, link_address, .. } = link;
            if let (Some(port), Some(own)) = (port, *link_address) {
                port.receive(|source, octets| {
                    let delegator = &mut self.prefix_delegator;
                    let reply = server.handle_message((now, wall), (name, own), source, octets, delegator);
                    match reply {
                        Some(Dhcpv6Reply { octets, waits_for_store: true }) => {
                            self.held_replies.push(now, None, name.clone(), (source, octets));
                        }
                        Some(reply) => port.send(source, &reply.octets),
                        None => {}
                    }
                });
            }
            if link.next_open_attempt_at.is_some_and(|retry| retry <= now) {
                link.open_sockets(now);
            }
        }
    }

    /// Returns the next output of the delegator.
    pub fn poll_output(&mut self) -> Option<DelegationOutput> {
        self.prefix_delegator.poll_output()
    }

    /// Returns the delegated prefixes if they have changed since the last call; otherwise `None`.
    pub fn take_delegated_prefixes(&mut self) -> Option<Vec<DelegatedPrefix>> {
        self.prefix_delegator.take_routes_changed().then(|| {
            let delegated = self.prefix_delegator.delegations().map(|delegation| DelegatedPrefix {
                prefix: delegation.prefix,
                interface: delegation.client.interface.clone(),
                router: delegation.router_address,
            });
            delegated.collect()
        })
    }

    /// Returns the service that delegates prefixes to routers on board.
    pub fn prefix_delegator(&self) -> &PrefixDelegator {
        &self.prefix_delegator
    }

    /// Holds the replies so far until the commit with this number is on the disk. If `commit` is `None`,
    /// sends the replies now.
    pub fn hold_replies(&mut self, now: Time, commit: Option<u64>) {
        self.held_replies.set_commit(commit.unwrap_or_default());
        if commit.is_none() {
            self.release_written(now, u64::MAX);
        }
    }

    /// Sends the replies that waited for a commit, which is on the disk now.
    pub fn release_written(&mut self, now: Time, commit: u64) {
        while let Some((interface, (destination, octets))) = self.held_replies.pop_written(now, commit) {
            let link = self.dhcpv6_links.iter().find(|link| link.name == interface);
            if let Some(port) = link.and_then(|link| link.port.as_ref()) {
                port.send(destination, &octets);
            }
        }
    }

    /// Returns the counters of all interfaces together, by name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut sums: Vec<(String, u64)> = Vec::new();
        for (name, count) in self.dhcpv6_links.iter().flat_map(|link| link.dhcpv6_server.counters()) {
            let name = format!("lan.dhcpv6.{name}");
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += count,
                None => sums.push((name, count)),
            }
        }
        sums
    }
}

impl Dhcpv6Link {
    fn handle_interface(&mut self, now: Time, interface: &Interface) {
        self.link_address = interface.link_address.filter(|_| interface.running);
        let mut config = self.config.clone();
        if self.forwards_dns {
            let addresses = interface.addresses.iter().filter(|own| !own.tentative && !own.duplicate);
            let is_ours = |address: &Ipv6Addr| self.prefixes.iter().any(|prefix| prefix.contains(address));
            config.dns_servers.extend(addresses.map(|own| own.address).find(is_ours));
        }
        self.dhcpv6_server.set_config(config);
        let is_open = self.port.as_ref().is_some_and(|port| port.is_on_interface(&self.name));
        if !is_open && self.link_address.is_some() {
            self.open_sockets(now);
        }
    }

    fn open_sockets(&mut self, now: Time) {
        self.port = None;
        let before = self.open_failure.take();
        match Dhcpv6Port::open(&self.name) {
            Ok(port) => {
                self.port = Some(port);
                self.next_open_attempt_at = None;
                if before.is_some() {
                    info!("the DHCPv6 server on {} is up", self.name);
                }
            }
            Err(error) => {
                let reason = super::explain_socket_error(&error, 547);
                if before.as_deref() != Some(&reason) {
                    warn!(
                        "cannot start the DHCPv6 server on {}: {reason}; trying again every 5 s",
                        self.name
                    );
                }
                self.open_failure = Some(reason);
                self.next_open_attempt_at = Some(now + SOCKET_RETRY_INTERVAL);
            }
        }
    }
}
