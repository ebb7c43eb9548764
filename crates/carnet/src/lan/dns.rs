//! DNS forwarder for hosts of the mobile network. The module connects the forwarder with sockets.
//!
//! The forwarder answers on each address that an interface of the mobile network has in a prefix of the
//! mobile network. Queries to servers have such an address as their source, so that they take the tunnel. If
//! the home agent is away and packets of hosts leave outside of the tunnel, the source is an address of the
//! uplink.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use carnet_api::config::MobileRouter;
use carnet_base::{Interface, Rng, Time};
use carnet_lan::LinkAddress;
use carnet_lan::dns::host_names::{HostNames, NamedHost, OnBoardNetwork};
use carnet_lan::dns::{DnsForwarder, DnsQueryClient, DnsQueryId, DnsTransport, Output};
use carnet_linux::{DnsMessage, DnsPort, DnsReply, query_server};
use ipnet::IpNet;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{info, warn};

/// Number of messages that may wait for the run loop.
const MAX_WAITING_MESSAGES: usize = 256;
/// Maximum number of queries for which the forwarder stores where to send the answer. A host that gets no
/// answer sends its query again.
const MAX_WAITING_CLIENTS: usize = 4096;
/// Time until the next attempt to open a socket.
const SOCKET_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The forwarder and its sockets.
#[derive(Debug)]
pub struct DnsService {
    dns_forwarder: DnsForwarder,
    /// Prefixes of the mobile network.
    prefixes: Vec<IpNet>,
    /// Interfaces of the mobile network by name.
    networks_by_name: BTreeMap<String, OnBoardNetwork>,
    /// Addresses of the uplink from which queries leave while the home agent is away.
    uplink_addresses: Vec<IpAddr>,
    ports: BTreeMap<(String, IpAddr), DnsSocket>,
    /// Socket and destination, or TCP connection, of the answer to each host, by the number of the client.
    waiting_clients: BTreeMap<u64, DnsReply>,
    next_client_number: u64,
    /// Tasks that wait for an answer of a DNS server, by query.
    query_tasks: BTreeMap<DnsQueryId, Vec<AbortHandle>>,
    message_sender: mpsc::Sender<DnsMessage>,
    message_receiver: mpsc::Receiver<DnsMessage>,
    next_open_attempt_at: Option<Time>,
}

/// Sockets at one address of the router.
#[derive(Debug, Default)]
struct DnsSocket {
    open_port: Option<DnsPort>,
    open_failure: Option<String>,
}

impl DnsService {
    /// Creates the forwarder of a config; `None` if the config has none.
    pub fn new(router: &MobileRouter, rng: Rng) -> Option<DnsService> {
        let (sender, inbox) = mpsc::channel(MAX_WAITING_MESSAGES);
        (!router.dns_forward_servers.is_empty()).then(|| DnsService {
            dns_forwarder: DnsForwarder::new(router.dns_forward_servers.clone(), rng),
            prefixes: mobile_network_prefixes(router),
            networks_by_name: networks_of_router(router),
            uplink_addresses: Vec::new(),
            ports: BTreeMap::new(),
            waiting_clients: BTreeMap::new(),
            next_client_number: 0,
            query_tasks: BTreeMap::new(),
            message_sender: sender,
            message_receiver: inbox,
            next_open_attempt_at: None,
        })
    }

    /// Applies a changed config with a forwarder.
    pub fn reconfigure(&mut self, router: &MobileRouter) {
        self.dns_forwarder.set_servers(router.dns_forward_servers.clone());
        self.prefixes = mobile_network_prefixes(router);
        self.networks_by_name = networks_of_router(router);
        let (networks, prefixes) = (&self.networks_by_name, &self.prefixes);
        self.ports.retain(|(interface, address), _| {
            networks.contains_key(interface) && is_in_any_prefix(prefixes, *address)
        });
    }

    /// Returns whether the answer to a message depends on the IPv6 addresses of hosts on board.
    pub fn needs_ipv6(&self, message: &DnsMessage) -> bool {
        matches!(message, DnsMessage::Query { interface, octets, .. }
            if self.dns_forwarder.depends_on_ipv6_addresses(self.network_of_interface(interface), octets))
    }

    /// Returns the network on this interface. If the config has no such interface, returns an isolated
    /// network, whose hosts find no names of other networks.
    pub fn network_of_interface(&self, interface: &str) -> OnBoardNetwork {
        let unknown = OnBoardNetwork { network_number: self.networks_by_name.len(), is_isolated: true };
        self.networks_by_name.get(interface).copied().unwrap_or(unknown)
    }

    /// Sets the source addresses of queries that leave outside of the tunnel; none if queries take the
    /// tunnel.
    pub fn set_uplink_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.uplink_addresses = addresses;
    }

    /// Sets the hosts on board, and the domains of their names.
    pub fn set_hosts(&mut self, domains: Vec<String>, hosts: impl Iterator<Item = NamedHost>) {
        self.dns_forwarder.set_names(HostNames::new(domains, self.prefixes.clone(), hosts));
    }

    /// Returns the addresses at which the forwarder answers on an interface, each with the reason if it does
    /// not answer there now.
    pub fn addresses(&self, interface: &str) -> Vec<(IpAddr, Option<String>)> {
        let ports = self.ports.iter().filter(|((name, _), _)| name == interface);
        ports.map(|((_, address), port)| (*address, port.open_failure.clone())).collect()
    }

    /// Handles a change of the addresses of an interface of the mobile network.
    pub fn handle_interface(&mut self, now: Time, interface: &Interface) {
        let ipv4 = interface.ipv4_addresses.iter().map(|own| IpAddr::V4(own.addr()));
        let ipv6 = interface.addresses.iter().filter(|own| !own.tentative && !own.duplicate);
        let all = ipv4.chain(ipv6.map(|own| IpAddr::V6(own.address)));
        let own: BTreeSet<IpAddr> =
            all.filter(|address| interface.running && is_in_any_prefix(&self.prefixes, *address)).collect();
        self.ports.retain(|(name, address), _| *name != interface.name || own.contains(address));
        for address in own {
            self.ports.entry((interface.name.clone(), address)).or_default();
        }
        self.open_missing_sockets(now);
    }

    /// Closes the sockets of an interface that has disappeared.
    pub fn handle_interface_gone(&mut self, name: &str) {
        self.ports.retain(|(interface, _), _| interface != name);
    }

    /// Opens the sockets that are not open.
    fn open_missing_sockets(&mut self, now: Time) {
        self.next_open_attempt_at = None;
        for ((interface, address), port) in &mut self.ports {
            if port.open_port.is_some() {
                continue;
            }
            let before = port.open_failure.take();
            match DnsPort::open(interface, *address, &self.message_sender) {
                Ok(sockets) => {
                    port.open_port = Some(sockets);
                    if before.is_some() {
                        info!("the DNS forwarder at {address} on {interface} is up");
                    }
                }
                Err(error) => {
                    let reason = super::explain_socket_error(&error, 53);
                    if before.as_deref() != Some(&reason) {
                        warn!(
                            "cannot start the DNS forwarder at {address} on {interface}: {reason}; trying \
                             again every 5 s"
                        );
                    }
                    port.open_failure = Some(reason);
                    self.next_open_attempt_at = Some(now + SOCKET_RETRY_INTERVAL);
                }
            }
        }
    }

    /// Returns the next message. If no message is ready, the task is woken when one arrives.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<DnsMessage> {
        match self.message_receiver.poll_recv(cx) {
            Poll::Ready(Some(message)) => Poll::Ready(message),
            // The service itself owns a sender, so the channel is never closed.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Returns when the caller must call [`Self::handle_timeout`] next; `None` if never.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.dns_forwarder.poll_timeout().into_iter().chain(self.next_open_attempt_at).min()
    }

    /// Handles a message of a host or a server. `link_address` is that of the host, if it is known.
    pub fn handle_message(&mut self, now: Time, message: DnsMessage, link_address: Option<LinkAddress>) {
        match message {
            DnsMessage::Query { host, interface, back, octets } => {
                let transport = if back.is_connection() { DnsTransport::Tcp } else { DnsTransport::Udp };
                let number = self.next_client_number;
                self.next_client_number += 1;
                self.waiting_clients.insert(number, back);
                if self.waiting_clients.len() > MAX_WAITING_CLIENTS {
                    self.waiting_clients.pop_first();
                }
                let network = self.network_of_interface(&interface);
                let client =
                    DnsQueryClient { client_number: number, address: host, link_address, network, transport };
                self.dns_forwarder.handle_query(now, client, &octets);
            }
            DnsMessage::Answer { query, server, octets: Some(octets) } => {
                self.dns_forwarder.handle_answer(now, DnsQueryId(query), server, &octets);
            }
            DnsMessage::Answer { query, server, octets: None } => {
                self.dns_forwarder.handle_failure(now, DnsQueryId(query), server);
            }
        }
        self.carry_out_forwarder_outputs(now);
    }

    /// Repeats queries that have no answer yet, and tries again to open sockets.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.next_open_attempt_at.is_some_and(|retry| retry <= now) {
            self.open_missing_sockets(now);
        }
        self.dns_forwarder.handle_timeout(now);
        self.carry_out_forwarder_outputs(now);
    }

    fn carry_out_forwarder_outputs(&mut self, now: Time) {
        while let Some(output) = self.dns_forwarder.poll_output() {
            match output {
                Output::Ask { query, server, transport, octets } => match self.source_address_for(server) {
                    Some(source) => {
                        let over_connection = transport == DnsTransport::Tcp;
                        let answers = self.message_sender.clone();
                        let task = query_server(query.0, (source, server), over_connection, octets, answers);
                        let tasks = self.query_tasks.entry(query).or_default();
                        tasks.retain(|task| !task.is_finished());
                        tasks.push(task);
                    }
                    None => self.dns_forwarder.handle_failure(now, query, server),
                },
                Output::Done(query) => {
                    self.query_tasks.remove(&query).iter().flatten().for_each(AbortHandle::abort);
                }
                Output::Answer(client, octets) => {
                    if let Some(back) = self.waiting_clients.remove(&client.client_number) {
                        back.send_answer(octets);
                    }
                }
            }
        }
    }

    /// Returns the source address of a query to this server; `None` if there is no address of the server's
    /// address family.
    fn source_address_for(&self, server: IpAddr) -> Option<IpAddr> {
        let on_board = self.ports.keys().map(|(_, address)| *address);
        let of_uplink = self.uplink_addresses.iter().copied();
        of_uplink.chain(on_board).find(|address| address.is_ipv4() == server.is_ipv4())
    }

    /// Returns the counters by name.
    pub fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        self.dns_forwarder.counters().named_counters().map(|(name, count)| (format!("lan.dns.{name}"), count))
    }
}

/// Returns the prefixes of the mobile network.
fn mobile_network_prefixes(router: &MobileRouter) -> Vec<IpNet> {
    let ipv6 = router.prefixes.iter().copied().map(IpNet::V6);
    ipv6.chain(router.ipv4_prefixes.iter().copied().map(IpNet::V4)).collect()
}

/// Returns the interfaces of the mobile network by name.
fn networks_of_router(router: &MobileRouter) -> BTreeMap<String, OnBoardNetwork> {
    let networks = router.lan_interfaces.iter().enumerate().map(|(number, lan)| {
        (
            lan.interface.clone(),
            OnBoardNetwork { network_number: number, is_isolated: lan.inbound_filter.is_isolated },
        )
    });
    networks.collect()
}

fn is_in_any_prefix(prefixes: &[IpNet], address: IpAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(&address))
}
