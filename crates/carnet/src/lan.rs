//! Services for hosts on the interfaces of the mobile network. The module connects the services with sockets,
//! the stored state and the operator.
//!
//! The registration of the mobile router does not depend on these services. If an interface is missing, or
//! another program uses a service's port, the log says so once, and the service tries again.

mod dhcpv6;
mod dns;
mod held_messages;
mod verified_addresses;

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
use carnet_lan::dhcpv4::{
    DhcpCounters, DhcpServer, DhcpServerConfig, DhcpServerMessage, Output, StoredLease, frame,
};
use carnet_lan::dhcpv6::delegation::PrefixDelegator;
use carnet_lan::dns::host_names::{NamedHost, OnBoardNetwork};
use carnet_linux::{DhcpInput, DhcpPort, DnsMessage};
use tracing::{info, warn};

use crate::settings::lan::{dhcp_servers, host_domains};
use crate::state::StoredLeases;
use dhcpv6::Dhcpv6Service;
use dns::DnsService;
use held_messages::HeldMessages;
use verified_addresses::VerifiedAddresses;

/// Time until the next attempt to open the sockets of an interface.
const SOCKET_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of messages that wait until their records are on the disk.
const MAX_HELD_MESSAGES: usize = 4096;

/// Index of an interface in the list of services.
pub type LinkIndex = usize;

/// The services of all interfaces of the mobile network.
#[derive(Debug)]
pub struct LanServices {
    lan_links: Vec<LanLink>,
    /// Messages that wait until a commit of the state is on the disk.
    held_messages: HeldMessages<DhcpServerMessage>,
    /// Leases that DHCP servers of an earlier config granted.
    leases_of_former_servers: Vec<StoredLease>,
    dhcpv6: Dhcpv6Service,
    /// DNS forwarder, if the config has one.
    dns_service: Option<DnsService>,
    /// DNS domains in which the hosts on board have names.
    host_domains: Vec<String>,
    /// IPv6 addresses of the hosts on board.
    verified_addresses: VerifiedAddresses,
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
    pub dhcp_server: DhcpServer,
    /// Sockets, while they are open.
    port: Option<DhcpPort>,
    /// Link-layer address of the interface while it is up.
    link_address: Option<[u8; 6]>,
    /// Reason why the sockets are not open; `None` if they are open or have not been tried.
    pub open_failure: Option<String>,
    /// Time of the next attempt to open the sockets; `None` if no attempt is planned.
    next_open_attempt_at: Option<Time>,
    /// Number of messages that the kernel refused to send.
    write_errors: u64,
}

impl LanServices {
    /// Starts the services of a config with the leases that were stored at the last run.
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
        let dns = router.and_then(|router| DnsService::new(router, rng.fork_generator()));
        let (held, former, domains) =
            (HeldMessages::new(MAX_HELD_MESSAGES), Vec::new(), host_domains(config));
        let links = links.collect();
        let dhcpv6 = Dhcpv6Service::new(config, &leases.prefixes, (now, wall));
        let neighbours = VerifiedAddresses::default();
        let mut services = LanServices {
            lan_links: links,
            held_messages: held,
            leases_of_former_servers: former,
            dhcpv6,
            dns_service: dns,
            host_domains: domains,
            verified_addresses: neighbours,
            rng,
        };
        services.publish_host_names();
        services
    }

    /// Applies a changed config. A DHCP server keeps its leases if the new config still has its interface.
    pub fn reconfigure(&mut self, config: &Config, now: Time, wall: WallTime) {
        let mut before = std::mem::take(&mut self.lan_links);
        // Remove only expired leases. The others stay, because a prefix may move to another interface, and a
        // removed interface may return to the config.
        self.leases_of_former_servers.retain(|lease| lease.remaining_time(wall).is_some());
        self.leases_of_former_servers
            .extend(before.iter().flat_map(|link| link.dhcp_server.lease_records(now, wall)));
        for (name, server) in dhcp_servers(config) {
            let old = before.iter().position(|link| link.name == name);
            let same = old.filter(|at| before[*at].dhcp_server.config().prefix == server.prefix);
            self.lan_links.push(match same.map(|at| before.swap_remove(at)) {
                Some(link) => link.with_config(server),
                None => {
                    LanLink::new(name, DhcpServer::new(server, &self.leases_of_former_servers, now, wall))
                }
            });
        }
        let links = &self.lan_links;
        let is_served = |lease: &StoredLease| {
            links.iter().any(|link| link.dhcp_server.config().prefix.contains(&lease.address))
        };
        self.leases_of_former_servers.retain(|lease| !is_served(lease));
        self.host_domains = host_domains(config);
        self.dhcpv6.reconfigure(config);
        match config.mobile_router.as_ref().filter(|router| !router.dns_forward_servers.is_empty()) {
            None => self.dns_service = None,
            Some(router) => match &mut self.dns_service {
                Some(dns) => dns.reconfigure(router),
                None => self.dns_service = DnsService::new(router, self.rng.fork_generator()),
            },
        }
        self.publish_host_names();
    }

    /// Passes the names of the hosts on board to the DNS forwarder.
    pub fn publish_host_names(&mut self) {
        let Some(dns) = &mut self.dns_service else { return };
        let addresses_by_host = self.verified_addresses.addresses_by_host();
        let ipv6_addresses = |interface: &str, host: LinkAddress| {
            addresses_by_host.get(&(interface, host)).cloned().unwrap_or_default()
        };
        let ipv6_addresses = &ipv6_addresses;
        let networks: Vec<OnBoardNetwork> =
            self.lan_links.iter().map(|link| dns.network_of_interface(&link.name)).collect();
        let hosts = self.lan_links.iter().zip(networks).flat_map(|(link, network)| {
            link.dhcp_server.named_hosts().map(move |host| NamedHost {
                network,
                ipv6_addresses: ipv6_addresses(&link.name, host.link_address),
                name: host.name,
                ipv4_address: host.address,
            })
        });
        dns.set_hosts(self.host_domains.clone(), hosts);
    }

    /// Returns whether the answer to a message depends on IPv6 addresses of hosts that the caller must look
    /// up again and pass to [`Self::set_neighbours`].
    pub fn needs_neighbours(&self, now: Time, message: &DnsMessage) -> bool {
        self.verified_addresses.needs_update(now)
            && self.dns_service.as_ref().is_some_and(|dns| dns.needs_ipv6(message))
    }

    /// Returns the link-layer addresses of the hosts that have a name, by interface; none without a DNS
    /// forwarder.
    pub fn hosts_with_names(&self) -> Vec<(String, BTreeSet<LinkAddress>)> {
        if self.dns_service.is_none() {
            return Vec::new();
        }
        let hosts = |link: &LanLink| link.dhcp_server.named_hosts().map(|host| host.link_address).collect();
        self.lan_links.iter().map(|link| (link.name.clone(), hosts(link))).collect()
    }

    /// Sets the IPv6 addresses at which hosts have lately answered, each with its interface and link-layer
    /// address.
    pub fn set_neighbours(&mut self, now: Time, found: Vec<(String, Ipv6Addr, LinkAddress)>) {
        self.verified_addresses.update_verified(now, found);
        self.publish_host_names();
    }

    /// Handles the kernel's report that a neighbour answers at an IPv6 address. The address counts if the
    /// neighbour is a host with a name.
    pub fn handle_reachable_neighbour(
        &mut self,
        now: Time,
        interface: &str,
        address: Ipv6Addr,
        link_address: LinkAddress,
    ) {
        let mut links = self.lan_links.iter().filter(|link| link.name == interface);
        let has_name =
            links.any(|link| link.dhcp_server.named_hosts().any(|host| host.link_address == link_address));
        if self.dns_service.is_some()
            && has_name
            && self.verified_addresses.record_answer(now, interface.to_owned(), address, link_address)
        {
            self.publish_host_names();
        }
    }

    /// Returns the addresses at which carnet answers DNS queries on an interface, each with the reason if it
    /// does not answer there now.
    pub fn dns_addresses(&self, interface: &str) -> Vec<(IpAddr, Option<String>)> {
        self.dns_service.as_ref().map(|dns| dns.addresses(interface)).unwrap_or_default()
    }

    /// Returns the interfaces with services.
    pub fn service_links(&self) -> &[LanLink] {
        &self.lan_links
    }

    /// Handles the state of an interface; `is_lan` says whether it is one of the mobile network.
    pub fn handle_interface(&mut self, now: Time, interface: &Interface, is_lan: bool) {
        for link in self.lan_links.iter_mut().filter(|link| link.name == interface.name) {
            link.handle_interface(now, interface);
        }
        self.dhcpv6.handle_interface(now, interface);
        if let Some(dns) = self.dns_service.as_mut().filter(|_| is_lan) {
            dns.handle_interface(now, interface);
        }
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, name: &str) {
        for link in self.lan_links.iter_mut().filter(|link| link.name == name) {
            link.close_sockets();
        }
        self.dhcpv6.handle_interface_gone(name);
        if let Some(dns) = &mut self.dns_service {
            dns.handle_interface_gone(name);
        }
    }

    /// Waits for work; without services it never returns. Safe to cancel.
    pub async fn next_event(&mut self) -> LanEvent {
        poll_fn(|cx| {
            let ports = self.lan_links.iter().filter_map(|link| link.port.as_ref());
            // Poll every socket: only a polled socket wakes the task later.
            let count = ports.filter(|port| port.poll_readable(cx).is_ready()).count();
            if self.dhcpv6.poll_readable(cx).is_ready() || count > 0 {
                return Poll::Ready(LanEvent::Packets);
            }
            match &mut self.dns_service {
                Some(dns) => dns.poll_message(cx).map(LanEvent::Dns),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Sets the source addresses of DNS queries that leave outside of the tunnel; none if queries take the
    /// tunnel.
    pub fn set_uplink_addresses(&mut self, addresses: Vec<IpAddr>) {
        if let Some(dns) = &mut self.dns_service {
            dns.set_uplink_addresses(addresses);
        }
    }

    /// Handles a message about DNS.
    pub fn handle_dns_message(&mut self, now: Time, message: DnsMessage) {
        let host = match &message {
            DnsMessage::Query { host, interface, .. } => self.host_at(interface, *host),
            DnsMessage::Answer { .. } => None,
        };
        if let Some(dns) = &mut self.dns_service {
            dns.handle_message(now, message, host);
        }
    }

    /// Returns the link-layer address of the host with this address. The lease has it, or the kernel's
    /// neighbour table if the host has lately answered there.
    fn host_at(&self, interface: &str, address: IpAddr) -> Option<LinkAddress> {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let link = self.lan_links.iter().find(|link| link.name == interface)?;
                link.dhcp_server.leaseholder(address)
            }
            IpAddr::V6(address) => self.verified_addresses.host_at_address(interface, address),
        }
    }

    /// Returns when the caller must call [`Self::process_received`] next even if no packet arrives; `None` if
    /// never.
    pub fn poll_timeout(&self) -> Option<Time> {
        let dns = self.dns_service.as_ref().and_then(DnsService::poll_timeout);
        let dhcpv6 = self.dhcpv6.poll_timeout();
        self.lan_links.iter().filter_map(LanLink::poll_timeout).chain(dhcpv6).chain(dns).min()
    }

    /// Passes received packets, the time and the MTU of the tunnel to the services.
    pub fn process_received(&mut self, now: Time, wall: WallTime, tunnel_mtu: Option<u32>) {
        for link in &mut self.lan_links {
            link.dhcp_server.set_tunnel_mtu(tunnel_mtu);
            link.process_received(now, wall);
        }
        self.dhcpv6.process_received(now, wall);
        if let Some(dns) = &mut self.dns_service {
            dns.handle_timeout(now);
        }
    }

    /// Returns the next output of a service, with the index of its interface; `None` if no output waits.
    pub fn poll_output(&mut self) -> Option<(LinkIndex, Output)> {
        let outputs = self.lan_links.iter_mut().enumerate();
        outputs.filter_map(|(place, link)| Some((place, link.dhcp_server.poll_output()?))).next()
    }

    /// Asks by ARP whether a host uses an address.
    pub fn send_arp_probe(&mut self, link: LinkIndex, address: Ipv4Addr) {
        if let Some(link) = self.lan_links.get_mut(link) {
            link.send_arp_probe(address);
        }
    }

    /// Sends a message.
    pub fn send_message(&mut self, place: LinkIndex, datagram: &DhcpServerMessage) {
        if let Some(link) = self.lan_links.get_mut(place) {
            link.send_message(datagram);
        }
    }

    /// Holds a message until this commit is on the disk.
    pub fn hold_message(&mut self, now: Time, commit: u64, link: LinkIndex, datagram: DhcpServerMessage) {
        let Some(interface) = self.lan_links.get(link).map(|link| link.name.clone()) else { return };
        self.held_messages.push(now, Some(commit), interface, datagram);
    }

    /// Returns the service that delegates prefixes.
    pub fn dhcpv6_service_mut(&mut self) -> &mut Dhcpv6Service {
        &mut self.dhcpv6
    }

    /// Returns the delegated prefixes.
    pub fn prefix_delegator(&self) -> &PrefixDelegator {
        self.dhcpv6.prefix_delegator()
    }

    /// Sends the messages that waited for a commit, which is on the disk now.
    pub fn release_written(&mut self, now: Time, commit: u64) {
        self.dhcpv6.release_written(now, commit);
        while let Some((interface, datagram)) = self.held_messages.pop_written(now, commit) {
            if let Some(link) = self.lan_links.iter_mut().find(|link| link.name == interface) {
                link.send_message(&datagram);
            }
        }
    }

    /// Returns the counters of all interfaces together, by name; none without services.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let others = self.dhcpv6.counters().into_iter();
        let others = others.chain(self.dns_service.iter().flat_map(DnsService::counters));
        if self.lan_links.is_empty() {
            return others.collect();
        }
        let mut sum = DhcpCounters::default();
        self.lan_links.iter().for_each(|link| sum.add_counters(link.dhcp_server.counters()));
        let write_errors = self.lan_links.iter().map(|link| link.write_errors).sum();
        let named = sum.named_counters().map(|(name, count)| (format!("lan.dhcp.{name}"), count));
        named.chain([("lan.dhcp.write_errors".to_owned(), write_errors)]).chain(others).collect()
    }
}

/// Explains in words why a socket with this port cannot be opened.
fn explain_socket_error(error: &io::Error, port: u16) -> String {
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
        LanLink {
            name,
            dhcp_server: server,
            port,
            link_address,
            open_failure: failure,
            next_open_attempt_at: retry,
            write_errors: 0,
        }
    }

    fn with_config(mut self, config: DhcpServerConfig) -> LanLink {
        self.dhcp_server.reconfigure(config);
        self
    }

    fn handle_interface(&mut self, now: Time, interface: &Interface) {
        let prefix = self.dhcp_server.config().prefix;
        let own = interface.ipv4_addresses.iter().map(|net| net.addr());
        self.dhcp_server.set_address(own.into_iter().find(|address| prefix.contains(address)));
        self.link_address = interface.link_address.filter(|_| interface.running);
        let is_open = self.port.as_ref().is_some_and(|port| port.is_on_interface(&self.name));
        if !is_open && self.link_address.is_some() {
            self.open_sockets(now);
        }
    }

    /// Opens the sockets. After a failure, stores the reason and the time of the next attempt.
    fn open_sockets(&mut self, now: Time) {
        self.port = None;
        let before = self.open_failure.take();
        match DhcpPort::open(&self.name) {
            Ok(port) => {
                self.port = Some(port);
                self.next_open_attempt_at = None;
                if before.is_some() {
                    info!("the DHCP server on {} is up", self.name);
                }
            }
            Err(error) => {
                let reason = explain_socket_error(&error, 67);
                if before.as_deref() != Some(&reason) {
                    warn!("cannot start the DHCP server on {}: {reason}; trying again every 5 s", self.name);
                }
                self.open_failure = Some(reason);
                self.next_open_attempt_at = Some(now + SOCKET_RETRY_INTERVAL);
            }
        }
    }

    /// Closes the sockets of an interface that has disappeared.
    fn close_sockets(&mut self) {
        (self.port, self.link_address, self.open_failure, self.next_open_attempt_at) =
            (None, None, None, None);
        self.dhcp_server.set_address(None);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.dhcp_server.poll_timeout().into_iter().chain(self.next_open_attempt_at).min()
    }

    fn process_received(&mut self, now: Time, wall: WallTime) {
        let LanLink { port, dhcp_server: server, .. } = self;
        if let Some(port) = port {
            port.receive(|input| match input {
                DhcpInput::Message(message) => server.handle_message(now, wall, message),
                DhcpInput::Arp(packet) => server.handle_arp(now, packet),
            });
        }
        self.dhcp_server.handle_timeout(now, wall);
        if self.next_open_attempt_at.is_some_and(|retry| retry <= now) {
            self.open_sockets(now);
        }
    }

    fn send_arp_probe(&mut self, target: Ipv4Addr) {
        let (Some(link_address), Some(address)) = (self.link_address, self.dhcp_server.address()) else {
            return;
        };
        let request = arp::arp_request(ArpSender { link_address, address }, target);
        self.count_write_error(self.port.as_ref().map(|port| port.send_arp(&request)));
    }

    fn send_message(&mut self, datagram: &DhcpServerMessage) {
        let Some(packet) = frame::encode_packet(datagram) else { return };
        self.count_write_error(self.port.as_ref().map(|port| port.send(datagram.link_destination, &packet)));
    }

    fn count_write_error(&mut self, sent: Option<io::Result<()>>) {
        if !matches!(sent, Some(Ok(()))) {
            self.write_errors += 1;
        }
    }
}
