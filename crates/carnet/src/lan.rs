//! Services for hosts on the interfaces of the mobile network: connects them with sockets, the stored state
//! and the operator.
//!
//! The registration of the mobile router does not depend on these services. If an interface is missing, or
//! another program has the port, the log says so once, and the service tries again.

mod dhcpv6;
mod dns;
mod held;
mod neighbours;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::task::Poll;
use std::time::Duration;

use carnet_api::config::Config;
use carnet_base::{Interface, Rng, Time, WallTime};
use carnet_lan::LinkAddress;
use carnet_lan::dhcpv4::arp::{self, ArpSender};
use carnet_lan::dhcpv4::{DhcpCounters, DhcpServer, Output, ServerConfig, ServerMessage, StoredLease, frame};
use carnet_lan::dhcpv6::delegation::PrefixDelegator;
use carnet_lan::dns::host_names::{BoardNetwork, NamedHost};
use carnet_linux::{DhcpInput, DhcpPort, DnsMessage};
use tracing::{info, warn};

use crate::settings::lan::{dhcp_servers, domains};
use crate::state::StoredLeases;
use dhcpv6::Dhcpv6Service;
use dns::DnsService;
use held::HeldMessages;
use neighbours::VerifiedAddresses;

/// Time until the next attempt to open the sockets of an interface.
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum number of messages that wait for the disk.
const MAX_HELD: usize = 4096;

/// Place of an interface in the list of services.
pub type Place = usize;

/// The services of all interfaces of the mobile network.
#[derive(Debug)]
pub struct LanServices {
    links: Vec<LanLink>,
    /// Messages that wait until a commit of the state is on the disk.
    held: HeldMessages<ServerMessage>,
    /// Leases of servers that an earlier config had.
    former: Vec<StoredLease>,
    dhcpv6: Dhcpv6Service,
    /// DNS forwarder, if the config has one.
    dns: Option<DnsService>,
    /// Domains of the hosts on board.
    domains: Vec<String>,
    /// IPv6 addresses of the hosts on board.
    neighbours: VerifiedAddresses,
    rng: Rng,
}

/// Work for [`LanServices`].
#[derive(Debug)]
pub enum LanEvent {
    /// Packets have arrived.
    Packets,
    /// A message about DNS has arrived.
    Dns(DnsMessage),
}

/// The services of one interface.
#[derive(Debug)]
pub struct LanLink {
    /// Name of the interface.
    pub name: String,
    /// DHCP server of the interface.
    pub server: DhcpServer,
    /// Sockets, while they are open.
    port: Option<DhcpPort>,
    /// Link-layer address of the interface while it is up.
    link_address: Option<[u8; 6]>,
    /// Reason why the sockets are not open.
    pub failure: Option<String>,
    /// Time of the next attempt to open the sockets.
    retry: Option<Time>,
    /// Messages that the kernel refused.
    write_errors: u64,
}

impl LanServices {
    /// Starts the services of the config with these stored leases.
    pub fn new(
        config: &Config,
        leases: &StoredLeases,
        mut rng: Rng,
        (now, wall): (Time, WallTime),
    ) -> LanServices {
        let links = dhcp_servers(config)
            .into_iter()
            .map(|(name, server)| LanLink::new(name, DhcpServer::new(server, &leases.addresses, now, wall)));
        let router = config.mobile_router.as_ref();
        let dns = router.and_then(|router| DnsService::new(router, rng.fork()));
        let (held, former, domains) = (HeldMessages::new(MAX_HELD), Vec::new(), domains(config));
        let links = links.collect();
        let dhcpv6 = Dhcpv6Service::new(config, &leases.prefixes, (now, wall));
        let neighbours = VerifiedAddresses::default();
        let mut services = LanServices { links, held, former, dhcpv6, dns, domains, neighbours, rng };
        services.publish_names();
        services
    }

    /// Applies a changed config. A server whose interface stays keeps its leases.
    pub fn reconfigure(&mut self, config: &Config, now: Time, wall: WallTime) {
        let mut before = std::mem::take(&mut self.links);
        // A prefix may have another interface now, and a server that is gone may come back.
        self.former.retain(|lease| lease.remaining_time(wall).is_some());
        self.former.extend(before.iter().flat_map(|link| link.server.lease_records(now, wall)));
        for (name, server) in dhcp_servers(config) {
            let old = before.iter().position(|link| link.name == name);
            let same = old.filter(|at| before[*at].server.config().prefix == server.prefix);
            self.links.push(match same.map(|at| before.swap_remove(at)) {
                Some(link) => link.reconfigured(server),
                None => LanLink::new(name, DhcpServer::new(server, &self.former, now, wall)),
            });
        }
        let links = &self.links;
        let is_served = |lease: &StoredLease| {
            links.iter().any(|link| link.server.config().prefix.contains(&lease.address))
        };
        self.former.retain(|lease| !is_served(lease));
        self.domains = domains(config);
        self.dhcpv6.reconfigure(config);
        match config.mobile_router.as_ref().filter(|router| !router.dns_forward.is_empty()) {
            None => self.dns = None,
            Some(router) => match &mut self.dns {
                Some(dns) => dns.reconfigure(router),
                None => self.dns = DnsService::new(router, self.rng.fork()),
            },
        }
        self.publish_names();
    }

    /// Passes the names of the hosts on board to the DNS forwarder.
    pub fn publish_names(&mut self) {
        let Some(dns) = &mut self.dns else { return };
        let neighbours = &self.neighbours;
        let networks: Vec<BoardNetwork> = self.links.iter().map(|link| dns.network(&link.name)).collect();
        let hosts = self.links.iter().zip(networks).flat_map(|(link, network)| {
            link.server.named_hosts().map(move |host| NamedHost {
                network,
                ipv6_addresses: neighbours.of(&link.name, host.link_address),
                name: host.name,
                ipv4_address: host.address,
            })
        });
        dns.set_hosts(self.domains.clone(), hosts);
    }

    /// Returns whether the answer to a message depends on IPv6 addresses of hosts that the caller should
    /// find anew: see [`Self::set_neighbours`].
    pub fn needs_neighbours(&self, now: Time, message: &DnsMessage) -> bool {
        self.neighbours.are_due(now) && self.dns.as_ref().is_some_and(|dns| dns.needs_ipv6(message))
    }

    /// Returns the link-layer addresses of the hosts with names, by interface.
    pub fn named_hosts(&self) -> Vec<(String, BTreeSet<LinkAddress>)> {
        let hosts = |link: &LanLink| link.server.named_hosts().map(|host| host.link_address).collect();
        self.links.iter().map(|link| (link.name.clone(), hosts(link))).collect()
    }

    /// Sets the IPv6 addresses at which hosts have lately answered, with interface and link-layer address.
    pub fn set_neighbours(&mut self, now: Time, found: Vec<(String, Ipv6Addr, LinkAddress)>) {
        self.neighbours.update(now, found);
        self.publish_names();
    }

    /// Returns the addresses at which carnet answers DNS queries on an interface, each with the reason if it
    /// does not answer there now.
    pub fn dns_addresses(&self, interface: &str) -> Vec<(IpAddr, Option<String>)> {
        self.dns.as_ref().map(|dns| dns.addresses(interface)).unwrap_or_default()
    }

    /// Returns the interfaces with services.
    pub fn links(&self) -> &[LanLink] {
        &self.links
    }

    /// Handles the state of an interface; `is_lan` says whether it is one of the mobile network.
    pub fn handle_interface(&mut self, now: Time, interface: &Interface, is_lan: bool) {
        for link in self.links.iter_mut().filter(|link| link.name == interface.name) {
            link.handle_interface(now, interface);
        }
        self.dhcpv6.handle_interface(now, interface);
        if let Some(dns) = self.dns.as_mut().filter(|_| is_lan) {
            dns.handle_interface(now, interface);
        }
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, name: &str) {
        for link in self.links.iter_mut().filter(|link| link.name == name) {
            link.close();
        }
        self.dhcpv6.handle_interface_gone(name);
        if let Some(dns) = &mut self.dns {
            dns.handle_interface_gone(name);
        }
    }

    /// Waits for work; without services it never returns. Safe to cancel.
    pub async fn next_event(&mut self) -> LanEvent {
        poll_fn(|cx| {
            let ports = self.links.iter().filter_map(|link| link.port.as_ref());
            // Every socket has to know the task.
            let count = ports.filter(|port| port.poll_readable(cx).is_ready()).count();
            if self.dhcpv6.poll_readable(cx).is_ready() || count > 0 {
                return Poll::Ready(LanEvent::Packets);
            }
            match &mut self.dns {
                Some(dns) => dns.poll_message(cx).map(LanEvent::Dns),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Sets the addresses from which DNS queries leave past the tunnel; none if they take the tunnel.
    pub fn set_uplink_addresses(&mut self, addresses: Vec<IpAddr>) {
        if let Some(dns) = &mut self.dns {
            dns.set_uplink_addresses(addresses);
        }
    }

    /// Handles a message about DNS.
    pub fn handle_dns(&mut self, now: Time, message: DnsMessage) {
        let host = match &message {
            DnsMessage::Query { host, interface, .. } => self.host_at(interface, *host),
            DnsMessage::Answer { .. } => None,
        };
        if let Some(dns) = &mut self.dns {
            dns.handle_message(now, message, host);
        }
    }

    /// Returns the link-layer address of the host with this address: that of its lease, or that at which the
    /// host has lately answered.
    fn host_at(&self, interface: &str, address: IpAddr) -> Option<LinkAddress> {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let link = self.links.iter().find(|link| link.name == interface)?;
                link.server.leaseholder(address)
            }
            IpAddr::V6(address) => self.neighbours.host_at(interface, address),
        }
    }

    /// Returns when [`Self::process`] has work without packets.
    pub fn poll_timeout(&self) -> Option<Time> {
        let dns = self.dns.as_ref().and_then(DnsService::poll_timeout);
        let dhcpv6 = self.dhcpv6.poll_timeout();
        self.links.iter().filter_map(LanLink::poll_timeout).chain(dhcpv6).chain(dns).min()
    }

    /// Passes received packets, the time and the MTU of the tunnel to the services.
    pub fn process(&mut self, now: Time, wall: WallTime, tunnel_mtu: Option<u32>) {
        for link in &mut self.links {
            link.server.set_tunnel_mtu(tunnel_mtu);
            link.process(now, wall);
        }
        self.dhcpv6.process(now, wall);
        if let Some(dns) = &mut self.dns {
            dns.handle_timeout(now);
        }
    }

    /// Returns the next output of a service, with its interface's place.
    pub fn poll_output(&mut self) -> Option<(Place, Output)> {
        let outputs = self.links.iter_mut().enumerate();
        outputs.filter_map(|(place, link)| Some((place, link.server.poll_output()?))).next()
    }

    /// Asks by ARP whether a host uses an address.
    pub fn probe(&mut self, place: Place, address: Ipv4Addr) {
        if let Some(link) = self.links.get_mut(place) {
            link.probe(address);
        }
    }

    /// Sends a message.
    pub fn send(&mut self, place: Place, datagram: &ServerMessage) {
        if let Some(link) = self.links.get_mut(place) {
            link.send(datagram);
        }
    }

    /// Holds a message until this commit is on the disk.
    pub fn hold(&mut self, now: Time, commit: u64, place: Place, datagram: ServerMessage) {
        let Some(interface) = self.links.get(place).map(|link| link.name.clone()) else { return };
        self.held.push(now, Some(commit), interface, datagram);
    }

    /// Returns the service that delegates prefixes.
    pub fn dhcpv6(&mut self) -> &mut Dhcpv6Service {
        &mut self.dhcpv6
    }

    /// Returns the delegated prefixes.
    pub fn delegator(&self) -> &PrefixDelegator {
        self.dhcpv6.delegator()
    }

    /// Sends the messages that waited for a commit, which is on the disk now.
    pub fn written(&mut self, now: Time, commit: u64) {
        self.dhcpv6.written(now, commit);
        while let Some((interface, datagram)) = self.held.pop_written(now, commit) {
            if let Some(link) = self.links.iter_mut().find(|link| link.name == interface) {
                link.send(&datagram);
            }
        }
    }

    /// Returns the counters of all interfaces together, by name; none without services.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let others = self.dhcpv6.counters().into_iter();
        let others = others.chain(self.dns.iter().flat_map(DnsService::counters));
        if self.links.is_empty() {
            return others.collect();
        }
        let mut sum = DhcpCounters::default();
        self.links.iter().for_each(|link| sum.add(link.server.counters()));
        let write_errors = self.links.iter().map(|link| link.write_errors).sum();
        let named = sum.named_counters().map(|(name, count)| (format!("lan.dhcp.{name}"), count));
        named.chain([("lan.dhcp.write_errors".to_owned(), write_errors)]).chain(others).collect()
    }
}

/// Returns the reason why a socket with this port cannot be opened, in words.
fn why(error: &io::Error, port: u16) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!("another program of this machine has port {port}"),
        io::ErrorKind::PermissionDenied => {
            format!("no permission for port {port}, which needs CAP_NET_BIND_SERVICE")
        }
        _ => error.to_string(),
    }
}

impl LanLink {
    fn new(name: String, server: DhcpServer) -> LanLink {
        let (port, link_address, failure, retry) = (None, None, None, None);
        LanLink { name, server, port, link_address, failure, retry, write_errors: 0 }
    }

    fn reconfigured(mut self, config: ServerConfig) -> LanLink {
        self.server.reconfigure(config);
        self
    }

    fn handle_interface(&mut self, now: Time, interface: &Interface) {
        let prefix = self.server.config().prefix;
        let own = interface.ipv4_addresses.iter().map(|net| net.addr());
        self.server.set_address(own.into_iter().find(|address| prefix.contains(address)));
        self.link_address = interface.link_address.filter(|_| interface.running);
        let is_open = self.port.as_ref().is_some_and(|port| port.is_on(&self.name));
        if !is_open && self.link_address.is_some() {
            self.open(now);
        }
    }

    /// Opens the sockets, or says why this is impossible.
    fn open(&mut self, now: Time) {
        self.port = None;
        let before = self.failure.take();
        match DhcpPort::open(&self.name) {
            Ok(port) => {
                self.port = Some(port);
                self.retry = None;
                if before.is_some() {
                    info!("the DHCP server on {} is up", self.name);
                }
            }
            Err(error) => {
                let reason = why(&error, 67);
                if before.as_deref() != Some(&reason) {
                    warn!("cannot start the DHCP server on {}: {reason}; trying again every 5 s", self.name);
                }
                self.failure = Some(reason);
                self.retry = Some(now + AGAIN);
            }
        }
    }

    /// Closes the sockets of an interface that is gone.
    fn close(&mut self) {
        (self.port, self.link_address, self.failure, self.retry) = (None, None, None, None);
        self.server.set_address(None);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.server.poll_timeout().into_iter().chain(self.retry).min()
    }

    fn process(&mut self, now: Time, wall: WallTime) {
        let LanLink { port, server, .. } = self;
        if let Some(port) = port {
            port.receive(|input| match input {
                DhcpInput::Message(message) => server.handle_message(now, wall, message),
                DhcpInput::Arp(packet) => server.handle_arp(now, packet),
            });
        }
        self.server.handle_timeout(now, wall);
        if self.retry.is_some_and(|retry| retry <= now) {
            self.open(now);
        }
    }

    fn probe(&mut self, target: Ipv4Addr) {
        let (Some(link_address), Some(address)) = (self.link_address, self.server.address()) else { return };
        let request = arp::arp_request(ArpSender { link_address, address }, target);
        self.count(self.port.as_ref().map(|port| port.send_arp(&request)));
    }

    fn send(&mut self, datagram: &ServerMessage) {
        let Some(packet) = frame::packet(datagram) else { return };
        self.count(self.port.as_ref().map(|port| port.send(datagram.link_destination, &packet)));
    }

    fn count(&mut self, sent: Option<io::Result<()>>) {
        if !matches!(sent, Some(Ok(()))) {
            self.write_errors += 1;
        }
    }
}
