//! DHCP server for one interface of the mobile network (RFC 2131, 2132).
//!
//! The server gives each client an address of its range, or the address that the config reserves for the
//! client's link-layer address. A client gets its former address again as long as no other client needed it.
//!
//! * **No address twice.** Before an offer, the server asks by ARP whether a host uses the address ([`arp`]).
//!   It also asks before it acknowledges an address that it has not offered, for example to a client that has
//!   restarted. If another host uses an address, or a client declines it, the server gives it to no client
//!   for some time. The caller stores a lease ([`Output::Store`]) before it sends the acknowledgement that
//!   follows.
//! * **Hostile clients** cannot take away an address from a client with a lease or a reservation. They can
//!   use up the free addresses. The table has one entry for each address of the config, and a limit for
//!   messages per second protects the processor and the disk.
//! * **Options**: the server sends the configured options that the client asks for, as many as fit into the
//!   largest message that the client accepts. If the link has a NAT64, the server tells clients that work
//!   without IPv4 that they need no address (RFC 8925).
//!
//! The server assumes that it is the only one on its link. It does not answer clients of which it has no
//! record (RFC 2131 4.3.2), unless they have an address of another network. Left out: relay agents (RFC
//! 1542), rapid commit (RFC 4039), FORCERENEW (RFC 3203), dynamic updates of DNS, BOOTP clients.

pub mod arp;
mod bindings;
mod config;
mod drop_reason;
mod events;
pub mod frame;
mod lease;
mod message;

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time, WallTime};

use crate::LinkAddress;
use bindings::{AddressBinding, AddressBindings, AddressState};
pub use config::{AddressReservation, DhcpServerConfig};
pub use drop_reason::DhcpDropReason;
pub use events::{DhcpCounters, DhcpEvent};
pub use lease::StoredLease;
pub use message::{DhcpClientId, valid_host_name};
use message::{DhcpClientMessage, DhcpMessageKind, DhcpReplyKind, DhcpServerReply};

/// Time for which the server waits for an ARP reply of a host that uses an address.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of addresses that the server probes by ARP at the same time.
const MAX_RUNNING_PROBES: usize = 1024;
/// Time for which the server reserves an address that it has offered.
const OFFER_LIFETIME: Duration = Duration::from_secs(10);
/// Time for which the server gives an address to no client, after it has learnt that another host uses the
/// address without a lease.
const ADDRESS_QUARANTINE_TIME: Duration = Duration::from_secs(600);
/// Maximum number of messages that the server processes in one burst.
const MESSAGE_BURST: u32 = 4096;
/// Time after which the server may process one more message, once a burst has used up `MESSAGE_BURST`.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(1);
/// Minimum time between two events about a lack of free addresses, and between two events about other DHCP
/// servers.
const EXHAUSTED_EVENT_INTERVAL: Duration = Duration::from_secs(60);

/// An output of the server. The caller carries out the outputs in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The caller sends this ARP request on the link.
    Probe(Ipv4Addr),
    /// The caller stores the record of an address; `None` removes the record.
    Store(Ipv4Addr, Option<StoredLease>),
    /// The caller sends this message.
    Send(DhcpServerMessage),
    /// The caller reports this event.
    Event(DhcpEvent),
}

/// A message of the server to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpServerMessage {
    /// Link-layer destination; broadcast for a client that cannot receive unicast packets yet.
    pub link_destination: LinkAddress,
    /// IPv4 source: the server's address.
    pub source: Ipv4Addr,
    /// IPv4 destination.
    pub destination: Ipv4Addr,
    /// The message. Its UDP source port is 67, its destination port is 68.
    pub message_octets: Vec<u8>,
    /// Whether the message has to wait until the records before it are stored.
    pub waits_for_store: bool,
}

/// A client with a lease, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpLeaseStatus {
    /// Address of the client.
    pub address: Ipv4Addr,
    /// Link-layer address of the client.
    pub link_address: LinkAddress,
    /// Name of the client.
    pub host_name: Option<String>,
    /// Time until the lease ends.
    pub remaining_time: Duration,
    /// Whether the config reserves the address for the client.
    pub is_reserved: bool,
}

/// A host with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedHost {
    /// Name of the host.
    pub name: String,
    /// Address of the host.
    pub address: Ipv4Addr,
    /// Link-layer address of the host.
    pub link_address: LinkAddress,
}

/// The server of one interface.
#[derive(Debug)]
pub struct DhcpServer {
    config: DhcpServerConfig,
    /// Address of the interface in the configured IPv4 prefix. Without this address the server does not
    /// answer.
    address: Option<Ipv4Addr>,
    /// MTU of the tunnel. The server sends it to hosts if the config has no MTU.
    tunnel_mtu: Option<u16>,
    address_bindings: AddressBindings,
    message_limiter: RateLimiter,
    exhausted_event_limiter: RateLimiter,
    other_server_limiter: RateLimiter,
    /// Address of the other DHCP server that a client selected last; `None` if no client has selected one.
    other_server: Option<Ipv4Addr>,
    counters: DhcpCounters,
    outputs: VecDeque<Output>,
}

impl DhcpServer {
    /// Creates a server without address. `leases` are stored records; the server takes those of its prefix.
    pub fn new(config: DhcpServerConfig, leases: &[StoredLease], now: Time, wall: WallTime) -> DhcpServer {
        let mut server = DhcpServer {
            address_bindings: AddressBindings::new(dynamic_addresses(&config)),
            config,
            address: None,
            tunnel_mtu: None,
            message_limiter: RateLimiter::new(MESSAGE_BURST, MESSAGE_INTERVAL),
            exhausted_event_limiter: RateLimiter::new(1, EXHAUSTED_EVENT_INTERVAL),
            other_server_limiter: RateLimiter::new(1, EXHAUSTED_EVENT_INTERVAL),
            other_server: None,
            counters: DhcpCounters::default(),
            outputs: VecDeque::new(),
        };
        let prefix = server.config.prefix;
        for lease in leases.iter().filter(|lease| prefix.contains(&lease.address)) {
            match lease.to_binding(now, wall) {
                Some(binding) => server.set_binding(lease.address, binding),
                None => server.outputs.push_back(Output::Store(lease.address, None)),
            }
        }
        server
    }

    /// Applies a changed config. Clients keep their leases. At the next renewal, the server refuses addresses
    /// that the config no longer allows.
    pub fn reconfigure(&mut self, config: DhcpServerConfig) {
        let mut bindings = AddressBindings::new(dynamic_addresses(&config));
        for (address, binding) in self.address_bindings.iter() {
            if config.prefix.contains(&address) {
                bindings.set_binding(address, binding.clone());
            } else if binding.state == AddressState::Leased {
                self.outputs.push_back(Output::Store(address, None));
            }
        }
        self.address = self.address.filter(|address| config.prefix.contains(address));
        self.address_bindings = bindings;
        self.config = config;
    }

    /// Sets the address of the interface; `None` if it has none in the prefix.
    pub fn set_address(&mut self, address: Option<Ipv4Addr>) {
        self.address = address;
    }

    /// Sets the MTU that the server sends to hosts if the config has none.
    pub fn set_tunnel_mtu(&mut self, mtu: Option<u32>) {
        self.tunnel_mtu = mtu.and_then(|mtu| u16::try_from(mtu).ok());
    }

    /// Returns the address of the interface; `None` if it has none in the prefix.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.address
    }

    /// Returns the config.
    pub fn config(&self) -> &DhcpServerConfig {
        &self.config
    }

    /// Returns the counters.
    pub fn counters(&self) -> &DhcpCounters {
        &self.counters
    }

    /// Returns the address of the other DHCP server that a client selected last; `None` if no client has
    /// selected one.
    pub fn other_server(&self) -> Option<Ipv4Addr> {
        self.other_server
    }

    /// Returns the clients with a lease, by address.
    pub fn active_leases(&self, now: Time) -> impl Iterator<Item = DhcpLeaseStatus> {
        let leased =
            self.address_bindings.iter().filter(|(_, binding)| binding.state == AddressState::Leased);
        leased.map(move |(address, binding)| DhcpLeaseStatus {
            address,
            link_address: binding.link_address,
            host_name: self.host_name_of(binding).map(str::to_owned),
            remaining_time: binding.state_ends_at.saturating_since(now),
            is_reserved: self.config.reservation_for(binding.link_address).is_some(),
        })
    }

    /// Returns the link-layer address of the client with a lease for this address; `None` without a lease.
    pub fn leaseholder(&self, address: Ipv4Addr) -> Option<LinkAddress> {
        let binding =
            self.address_bindings.get(address).filter(|binding| binding.state == AddressState::Leased);
        binding.map(|binding| binding.link_address)
    }

    /// Returns the hosts with names: those of reservations, then clients with a lease. A client does not get
    /// the name of a reservation.
    pub fn named_hosts(&self) -> impl Iterator<Item = NamedHost> {
        let reserved = self.config.reservations.iter().filter_map(|it| {
            let (name, address, link_address) = (it.name.clone()?, it.address, it.link_address);
            Some(NamedHost { name, address, link_address })
        });
        let leased =
            self.address_bindings.iter().filter(|(_, binding)| binding.state == AddressState::Leased);
        let named = leased.filter_map(|(address, binding)| {
            let (name, link_address) = (self.host_name_of(binding)?.to_owned(), binding.link_address);
            Some(NamedHost { name, address, link_address })
        });
        reserved.chain(named)
    }

    /// Returns the leases as records with the remaining time, for another server of the same prefix.
    pub fn lease_records(&self, now: Time, wall: WallTime) -> Vec<StoredLease> {
        let leased =
            self.address_bindings.iter().filter(|(_, binding)| binding.state == AddressState::Leased);
        let records = leased.map(|(address, binding)| StoredLease {
            address,
            client: binding.client_id.0.clone(),
            link_address: binding.link_address,
            host_name: binding.host_name.clone(),
            since: wall,
            seconds: u32::try_from(binding.state_ends_at.saturating_since(now).as_secs()).unwrap_or(u32::MAX),
        });
        records.collect()
    }

    /// Returns the number of all addresses for clients without reservation, and the number of free ones.
    pub fn total_and_free_addresses(&self) -> (usize, usize) {
        self.address_bindings.total_and_free_addresses()
    }

    /// Returns the next output; `None` if no output waits.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`]; `None` if no call is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.address_bindings.next_deadline()
    }

    /// Handles a UDP payload that arrived at port 67 of the interface.
    pub fn handle_message(&mut self, now: Time, wall: WallTime, octets: &[u8]) {
        self.counters.received_messages += 1;
        if let Err(reason) = self.answer_message(now, wall, octets) {
            self.counters.count_drop(reason);
        }
    }

    /// Handles an ARP packet of the link: its sender uses the address in the packet. An ARP packet of the
    /// address's own client is no conflict.
    pub fn handle_arp(&mut self, now: Time, octets: &[u8]) {
        let Some(host) = arp::parse_sender(octets) else { return };
        let Some(binding) = self.address_bindings.get(host.address) else { return };
        let AddressState::Probed(request) = &binding.state else { return };
        if binding.link_address == host.link_address {
            return;
        }
        let request = request.clone();
        self.counters.address_conflicts += 1;
        self.quarantine_address(now, host.address, host.link_address, false);
        if request.kind == DhcpMessageKind::Request {
            return self.refuse_request(&request);
        }
        // The address is in use, but the client still waits for an offer: look for another address.
        if let Err(reason) = self.handle_discover(now, *request) {
            self.counters.count_drop(reason);
        }
    }

    /// Ends the states of addresses whose time has come.
    pub fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        while let Some(address) = self.address_bindings.expired_address(now) {
            let Some(binding) = self.address_bindings.get(address).cloned() else { return };
            match &binding.state {
                AddressState::Probed(request) if request.kind != DhcpMessageKind::Request => {
                    self.offer_address(now, address, request);
                }
                // The config may have changed since the request.
                AddressState::Probed(request) if self.may_client_get_address(request, address) => {
                    self.grant_lease(now, wall, address, request);
                }
                AddressState::Probed(request) => {
                    self.address_bindings.remove_binding(address);
                    self.refuse_request(request);
                }
                AddressState::Leased => {
                    self.outputs.push_back(Output::Store(address, None));
                    self.address_bindings.set_binding(
                        address,
                        AddressBinding { state: AddressState::Former, state_ends_at: now, ..binding },
                    );
                }
                AddressState::Offered | AddressState::Quarantined | AddressState::Former => {
                    self.address_bindings.remove_binding(address);
                }
            }
        }
    }

    fn answer_message(&mut self, now: Time, wall: WallTime, octets: &[u8]) -> Result<(), DhcpDropReason> {
        if !self.message_limiter.try_take_token(now) {
            return Err(DhcpDropReason::RateLimit);
        }
        let request = DhcpClientMessage::parse(octets)?;
        let server = self.address.ok_or(DhcpDropReason::NoAddress)?;
        if let Some(other) = request.selected_server.filter(|selected| *selected != server) {
            return self.note_other_server(now, other, &request);
        }
        match request.kind {
            DhcpMessageKind::Discover => self.handle_discover(now, request),
            DhcpMessageKind::Request => self.handle_request(now, wall, &request),
            DhcpMessageKind::Decline => self.handle_decline(now, &request),
            DhcpMessageKind::Release => self.handle_release(now, &request),
            DhcpMessageKind::Inform => self.handle_inform(&request),
        }
    }

    /// Withdraws the offer to a client that has selected another server (RFC 2131 3.1 4).
    fn note_other_server(
        &mut self,
        now: Time,
        server: Ipv4Addr,
        request: &DhcpClientMessage,
    ) -> Result<(), DhcpDropReason> {
        let offered = self.address_bindings.binding_of_client(&request.client_id);
        if let Some((address, _)) = offered.filter(|(_, binding)| binding.state == AddressState::Offered) {
            self.address_bindings.remove_binding(address);
        }
        // Only a DHCPREQUEST proves another server on this link. A client that declines or releases an
        // address may name the server of its old link.
        if request.kind == DhcpMessageKind::Request {
            let is_new = self.other_server.replace(server) != Some(server);
            if is_new && self.other_server_limiter.try_take_token(now) {
                self.outputs.push_back(Output::Event(DhcpEvent::OtherServer { server }));
            }
        }
        Err(DhcpDropReason::OtherServer)
    }

    /// Finds an address for a client (RFC 2131 4.3.1). If the client already has the address, offers it at
    /// once. Otherwise probes first whether another host uses the address.
    fn handle_discover(&mut self, now: Time, request: DhcpClientMessage) -> Result<(), DhcpDropReason> {
        if let Some((address, binding)) = self.address_bindings.binding_of_client(&request.client_id)
            && self.config.may_host_have_address(request.link_address, address)
            && Some(address) != self.address
        {
            match binding.state {
                AddressState::Leased | AddressState::Offered => {
                    self.offer_address(now, address, &request);
                    return Ok(());
                }
                // The client has repeated its message while the server probes the address.
                AddressState::Probed(_) => return Ok(()),
                AddressState::Former | AddressState::Quarantined => {}
            }
        }
        let Some(address) = self.choose_address(&request) else {
            let (addresses, _) = self.address_bindings.total_and_free_addresses();
            if self.exhausted_event_limiter.try_take_token(now) {
                self.outputs.push_back(Output::Event(DhcpEvent::PoolExhausted { addresses }));
            }
            return Err(DhcpDropReason::PoolExhausted);
        };
        self.probe_address(now, address, &request)
    }

    /// Returns a free address for a client: the reserved, the former or the requested address. If none of
    /// these is free, returns the address that has been free for the longest time. Returns `None` if no
    /// usable address is free.
    fn choose_address(&self, request: &DhcpClientMessage) -> Option<Ipv4Addr> {
        let own = self.address;
        if let Some(reservation) = self.config.reservation_for(request.link_address) {
            let address = Some(reservation.address).filter(|address| Some(*address) != own)?;
            // If the same host had a lease with another client identifier, this lease ends.
            let is_own = |binding: &AddressBinding| {
                binding.link_address == request.link_address && binding.state != AddressState::Quarantined
            };
            let is_usable = self.address_bindings.is_free(address)
                || self.address_bindings.get(address).is_some_and(is_own);
            return is_usable.then_some(address);
        }
        let is_usable = |address: &Ipv4Addr| {
            Some(*address) != own
                && self.config.is_in_dynamic_range(*address)
                && self.address_bindings.is_free(*address)
        };
        let former = self.address_bindings.binding_of_client(&request.client_id).map(|(address, _)| address);
        former
            .filter(is_usable)
            .or(request.requested_address.filter(is_usable))
            .or_else(|| self.address_bindings.least_recently_used_address(|address| is_usable(&address)))
    }

    /// Handles a DHCPREQUEST (RFC 2131 4.3.2).
    fn handle_request(
        &mut self,
        now: Time,
        wall: WallTime,
        request: &DhcpClientMessage,
    ) -> Result<(), DhcpDropReason> {
        if request.selected_server.is_some() {
            let address = request.requested_address.ok_or(DhcpDropReason::MissingField)?;
            return self.acknowledge_request(now, wall, address, request);
        }
        if request.client_address.is_unspecified() {
            let address = request.requested_address.ok_or(DhcpDropReason::MissingField)?;
            return self.confirm_address(now, wall, address, request);
        }
        // The client renews or rebinds, so it already uses the address. If the server has lost its record of
        // the lease with the disk, a new lease begins.
        self.acknowledge_request(now, wall, request.client_address, request)
    }

    /// Gives a client the address that it requests, or refuses it. If the server has not offered or given
    /// this address to the client, it first probes the address. Such a request may be forged, or the server
    /// has lost its records.
    fn acknowledge_request(
        &mut self,
        now: Time,
        wall: WallTime,
        address: Ipv4Addr,
        request: &DhcpClientMessage,
    ) -> Result<(), DhcpDropReason> {
        // A client with a lease never requests a different address, so such a message is forged. Refuse it: a
        // probe of the requested address would end the client's lease.
        let of_client = self.address_bindings.binding_of_client(&request.client_id);
        let has_other = of_client.is_some_and(|(own, it)| own != address && it.state == AddressState::Leased);
        if has_other || !self.may_client_get_address(request, address) {
            self.refuse_request(request);
            return Ok(());
        }
        match self.address_bindings.get(address).map(|binding| &binding.state) {
            Some(AddressState::Leased | AddressState::Offered) => {
                self.grant_lease(now, wall, address, request);
                Ok(())
            }
            // The client has repeated its message while the server probes the address.
            Some(AddressState::Probed(_)) => Ok(()),
            Some(AddressState::Former | AddressState::Quarantined) | None => {
                self.probe_address(now, address, request)
            }
        }
    }

    /// Asks by ARP whether a host uses an address, before the answer to this request.
    fn probe_address(
        &mut self,
        now: Time,
        address: Ipv4Addr,
        request: &DhcpClientMessage,
    ) -> Result<(), DhcpDropReason> {
        if self.address_bindings.probe_count() >= MAX_RUNNING_PROBES {
            return Err(DhcpDropReason::Busy);
        }
        let binding = self.new_binding(request, AddressState::Probed(Box::new(request.clone())));
        self.set_binding(address, AddressBinding { state_ends_at: now + PROBE_TIMEOUT, ..binding });
        self.outputs.push_back(Output::Probe(address));
        Ok(())
    }

    /// Answers a client that has restarted and asks whether it may go on using its address (INIT-REBOOT).
    fn confirm_address(
        &mut self,
        now: Time,
        wall: WallTime,
        address: Ipv4Addr,
        request: &DhcpClientMessage,
    ) -> Result<(), DhcpDropReason> {
        let known = self.address_bindings.binding_of_client(&request.client_id);
        match known.filter(|(_, binding)| binding.state != AddressState::Quarantined) {
            _ if !self.config.prefix.contains(&address) => self.refuse_request(request),
            Some((of_client, _)) if of_client == address => {
                return self.acknowledge_request(now, wall, address, request);
            }
            Some(_) => self.refuse_request(request),
            None if self.config.reservation_for(request.link_address).is_some() => {
                return self.acknowledge_request(now, wall, address, request);
            }
            None => return Err(DhcpDropReason::UnknownClient),
        }
        Ok(())
    }

    /// Returns whether a client may have this address now.
    fn may_client_get_address(&self, request: &DhcpClientMessage, address: Ipv4Addr) -> bool {
        let reserved = self.config.reservation_for(request.link_address).map(|_| request.link_address);
        Some(address) != self.address
            && self.config.may_host_have_address(request.link_address, address)
            && self.address_bindings.is_available(address, &request.client_id, reserved)
    }

    /// Gives a client an address, or more time for its address.
    fn grant_lease(&mut self, now: Time, wall: WallTime, address: Ipv4Addr, request: &DhcpClientMessage) {
        let before = self.address_bindings.get(address);
        let is_renewal = before.is_some_and(|binding| {
            binding.state == AddressState::Leased && binding.client_id == request.client_id
        });
        let mut binding = self.new_binding(request, AddressState::Leased);
        if is_renewal && binding.host_name.is_none() {
            binding.host_name = before.and_then(|binding| binding.host_name.clone());
        }
        let host_name = binding.host_name.clone();
        self.set_binding(address, AddressBinding { state_ends_at: now + self.config.lease_time, ..binding });
        let record = StoredLease {
            address,
            client: request.client_id.0.clone(),
            link_address: request.link_address,
            host_name: host_name.clone(),
            since: wall,
            seconds: self.lease_seconds(),
        };
        self.outputs.push_back(Output::Store(address, Some(record)));
        self.counters.sent_acks += 1;
        self.send_reply(request, DhcpReplyKind::Ack, address);
        if !is_renewal {
            let link_address = request.link_address;
            self.outputs.push_back(Output::Event(DhcpEvent::Leased { address, link_address, host_name }));
        }
    }

    /// Offers an address to a client.
    fn offer_address(&mut self, now: Time, address: Ipv4Addr, request: &DhcpClientMessage) {
        let is_leased = self.address_bindings.get(address).is_some_and(|b| b.state == AddressState::Leased);
        if !is_leased {
            let binding = self.new_binding(request, AddressState::Offered);
            self.set_binding(address, AddressBinding { state_ends_at: now + OFFER_LIFETIME, ..binding });
        }
        self.counters.sent_offers += 1;
        self.send_reply(request, DhcpReplyKind::Offer, address);
    }

    /// Sends a DHCPNAK: the client may not use its address.
    fn refuse_request(&mut self, request: &DhcpClientMessage) {
        self.counters.sent_naks += 1;
        self.send_reply(request, DhcpReplyKind::Nak, Ipv4Addr::UNSPECIFIED);
    }

    /// Handles a DHCPDECLINE: a client has found another host with its address (RFC 2131 4.3.3).
    fn handle_decline(&mut self, now: Time, request: &DhcpClientMessage) -> Result<(), DhcpDropReason> {
        let address = request.requested_address.ok_or(DhcpDropReason::MissingField)?;
        let binding = self.address_bindings.get(address).ok_or(DhcpDropReason::NotOwner)?;
        let is_owner = binding.client_id == request.client_id
            && matches!(binding.state, AddressState::Leased | AddressState::Offered);
        if !is_owner {
            return Err(DhcpDropReason::NotOwner);
        }
        self.counters.declined_addresses += 1;
        self.quarantine_address(now, address, request.link_address, true);
        Ok(())
    }

    /// Handles a DHCPRELEASE (RFC 2131 4.3.4).
    fn handle_release(&mut self, now: Time, request: &DhcpClientMessage) -> Result<(), DhcpDropReason> {
        let address = request.client_address;
        let binding = self.address_bindings.get(address).ok_or(DhcpDropReason::NotOwner)?;
        if binding.client_id != request.client_id || binding.state != AddressState::Leased {
            return Err(DhcpDropReason::NotOwner);
        }
        let binding = AddressBinding { state: AddressState::Former, state_ends_at: now, ..binding.clone() };
        let link_address = binding.link_address;
        self.address_bindings.set_binding(address, binding);
        self.counters.released_leases += 1;
        self.outputs.push_back(Output::Store(address, None));
        self.outputs.push_back(Output::Event(DhcpEvent::Released { address, link_address }));
        Ok(())
    }

    /// Handles a DHCPINFORM: a client with a fixed address requests the configured options (RFC 2131 4.3.5).
    fn handle_inform(&mut self, request: &DhcpClientMessage) -> Result<(), DhcpDropReason> {
        if !self.config.prefix.contains(&request.client_address) {
            return Err(DhcpDropReason::NotOwner);
        }
        self.counters.sent_acks += 1;
        self.send_reply(request, DhcpReplyKind::Information, Ipv4Addr::UNSPECIFIED);
        Ok(())
    }

    /// Makes the server give an address to no client for some time, because a host uses it without a lease.
    fn quarantine_address(
        &mut self,
        now: Time,
        address: Ipv4Addr,
        link_address: LinkAddress,
        declined: bool,
    ) {
        let client = DhcpClientId(Vec::new());
        let (state, until) = (AddressState::Quarantined, now + ADDRESS_QUARANTINE_TIME);
        let was_leased = self.address_bindings.get(address).is_some_and(|b| b.state == AddressState::Leased);
        self.address_bindings.set_binding(
            address,
            AddressBinding { client_id: client, link_address, host_name: None, state, state_ends_at: until },
        );
        if was_leased {
            self.outputs.push_back(Output::Store(address, None));
        }
        self.outputs.push_back(Output::Event(DhcpEvent::InUse { address, link_address, declined }));
    }

    /// Sets the entry of an address. If the client had a lease for another address, removes the stored record
    /// of that lease.
    fn set_binding(&mut self, address: Ipv4Addr, binding: AddressBinding) {
        let other = self.address_bindings.set_binding(address, binding);
        if let Some((other, _)) = other.filter(|(_, binding)| binding.state == AddressState::Leased) {
            self.outputs.push_back(Output::Store(other, None));
        }
    }

    /// Returns an entry in this state for the sender of a request. The state ends at time 0 until the caller
    /// sets the time.
    fn new_binding(&self, request: &DhcpClientMessage, state: AddressState) -> AddressBinding {
        let reserved = self.config.reservation_for(request.link_address);
        AddressBinding {
            client_id: request.client_id.clone(),
            link_address: request.link_address,
            host_name: reserved.and_then(|r| r.name.clone()).or_else(|| request.host_name.clone()),
            state,
            state_ends_at: Time::ZERO,
        }
    }

    /// Returns the name of a client: the name in its reservation, otherwise the name that it sent. Returns
    /// `None` if neither exists.
    fn host_name_of<'a>(&'a self, binding: &'a AddressBinding) -> Option<&'a str> {
        let reserved = self.config.reservation_for(binding.link_address).and_then(|r| r.name.as_deref());
        reserved.or(binding.host_name.as_deref())
    }

    fn lease_seconds(&self) -> u32 {
        u32::try_from(self.config.lease_time.as_secs()).unwrap_or(u32::MAX)
    }

    /// Sends an answer to the destination that RFC 2131 4.1 gives for it.
    fn send_reply(&mut self, request: &DhcpClientMessage, kind: DhcpReplyKind, address: Ipv4Addr) {
        let Some(server) = self.address else { return };
        let mtu = self.config.mtu.or(self.tunnel_mtu);
        let reply = DhcpServerReply {
            client_message: request,
            kind,
            address,
            server_address: server,
            mtu,
            config: &self.config,
        };
        let message = reply.encode_reply(self.lease_seconds());
        let to_all =
            kind == DhcpReplyKind::Nak || request.client_address.is_unspecified() && request.needs_broadcast;
        let (link_destination, destination) = if to_all {
            (arp::BROADCAST_ADDRESS, Ipv4Addr::BROADCAST)
        } else if request.client_address.is_unspecified() {
            (request.link_address, address)
        } else {
            (request.link_address, request.client_address)
        };
        self.outputs.push_back(Output::Send(DhcpServerMessage {
            link_destination,
            source: server,
            destination,
            message_octets: message,
            waits_for_store: kind == DhcpReplyKind::Ack,
        }));
    }
}

/// Returns the addresses that the server may give to clients without reservation.
fn dynamic_addresses(config: &DhcpServerConfig) -> impl Iterator<Item = Ipv4Addr> {
    let (first, last) = config.address_range;
    (u32::from(first)..=u32::from(last))
        .map(Ipv4Addr::from)
        .filter(|address| config.is_in_dynamic_range(*address))
}
