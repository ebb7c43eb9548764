//! Fuzzes the services for hosts on board (DHCP, DHCPv6, DNS) with messages that hostile hosts and servers
//! may send.
//!
//! The input is a list of messages. Each has an octet for its kind, one for the sender or the time, two for
//! its length, and its content.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_lan::dhcpv4::{self, AddressReservation, DhcpServer, DhcpServerConfig, Output, StoredLease};
use carnet_lan::dhcpv6::delegation::{
    DelegatingInterface, DelegationOutput, DelegatorConfig, PrefixDelegator, StoredDelegation,
};
use carnet_lan::dhcpv6::{Dhcpv6Config, Dhcpv6Server};
use carnet_lan::dns::host_names::{HostNames, NamedHost, OnBoardNetwork};
use carnet_lan::dns::{DnsForwarder, DnsQueryClient, DnsQueryId, DnsTransport, Output as DnsOutput};

/// Maximum number of messages of one input.
const MAX_MESSAGES: usize = 64;

/// Returns the messages of an input: kind, sender or time, content.
fn split_messages(mut octets: &[u8]) -> Vec<(u8, u8, &[u8])> {
    let mut found = Vec::new();
    while let Some(([kind, number, high, low], rest)) = octets.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        found.push((*kind, *number, content));
        octets = rest;
        if found.len() == MAX_MESSAGES {
            break;
        }
    }
    found
}

fn dhcp_server_config() -> DhcpServerConfig {
    let address = |last| Ipv4Addr::new(10, 42, 7, last);
    DhcpServerConfig {
        prefix: "10.42.7.0/24".parse().expect("a prefix"),
        address_range: (address(100), address(107)),
        lease_time: Duration::from_secs(120),
        reservations: vec![AddressReservation {
            link_address: [2, 0, 0, 0, 0, 1],
            address: address(9),
            name: Some("camera".into()),
        }],
        options: vec![(42, vec![10, 42, 7, 1])],
        dns_servers: vec![address(53)],
        is_dns_server: true,
        search_domains: vec!["bus.example".into()],
        mtu: Some(1400),
        prefers_ipv6_only: true,
        captive_portal: Some("https://portal.example/api".into()),
    }
}

/// A DHCP server, and the leases that it has stored on the disk.
struct DhcpServerNetwork {
    dhcp_server: DhcpServer,
    stored_leases: BTreeMap<Ipv4Addr, StoredLease>,
    now: Time,
}

impl DhcpServerNetwork {
    fn new(disk: BTreeMap<Ipv4Addr, StoredLease>, now: Time) -> DhcpServerNetwork {
        let leases: Vec<StoredLease> = disk.values().cloned().collect();
        let mut server = DhcpServer::new(dhcp_server_config(), &leases, now, wall_time_at(now));
        server.set_address(Some(Ipv4Addr::new(10, 42, 7, 1)));
        let mut world = DhcpServerNetwork { dhcp_server: server, stored_leases: disk, now };
        world.handle_outputs();
        world
    }

    fn handle_outputs(&mut self) {
        while let Some(output) = self.dhcp_server.poll_output() {
            match output {
                Output::Store(address, Some(lease)) => {
                    assert!(dhcp_server_config().prefix.contains(&address));
                    self.stored_leases.insert(address, lease);
                }
                Output::Store(address, None) => {
                    self.stored_leases.remove(&address);
                }
                Output::Send(datagram) => {
                    assert!(datagram.message_octets.len() <= 1472, "{}", datagram.message_octets.len());
                    let your = <[u8; 4]>::try_from(&datagram.message_octets[16..20]).expect("four octets");
                    let stored = self.stored_leases.contains_key(&Ipv4Addr::from(your));
                    assert!(!datagram.waits_for_store || stored, "stored before it is acknowledged");
                    assert!(dhcpv4::frame::encode_packet(&datagram).is_some());
                }
                Output::Probe(_) | Output::Event(_) => {}
            }
        }
        // The server leases at most the eight addresses of its range and the reserved address, and all its
        // leases are on the disk.
        let held: Vec<Ipv4Addr> =
            self.dhcp_server.active_leases(self.now).map(|lease| lease.address).collect();
        assert!(held.len() <= 9);
        assert_eq!(held, self.stored_leases.keys().copied().collect::<Vec<_>>());
    }
}

fn wall_time_at(now: Time) -> WallTime {
    WallTime::from_unix_nanos(1_700_000_000_000_000_000) + now.saturating_since(Time::ZERO)
}

/// A server of delegated prefixes, and the delegations that it has stored on the disk.
struct DelegationNetwork {
    prefix_delegator: PrefixDelegator,
    stored_delegations: BTreeMap<Ipv6Addr, StoredDelegation>,
}

impl DelegationNetwork {
    fn new(disk: BTreeMap<Ipv6Addr, StoredDelegation>, now: Time) -> DelegationNetwork {
        let stored: Vec<StoredDelegation> = disk.values().cloned().collect();
        let prefix = |text: &str| text.parse().expect("a prefix");
        let delegation_lifetime = Duration::from_secs(120);
        let config = DelegatorConfig {
            prefixes: vec![prefix("2001:db8:a::/61")],
            networks_in_use: vec![prefix("2001:db8:a::/64")],
            interfaces: vec![DelegatingInterface {
                name: "i0".into(),
                prefix_length: 64,
                delegation_lifetime,
                networks_of_other_interfaces: Vec::new(),
            }],
        };
        let mut world = DelegationNetwork {
            prefix_delegator: PrefixDelegator::new(config, &stored, now, wall_time_at(now)),
            stored_delegations: disk,
        };
        world.perform_delegation_outputs();
        world
    }

    /// Carries out the outputs of the server of delegated prefixes. Returns whether a record was stored.
    fn perform_delegation_outputs(&mut self) -> bool {
        let mut has_stored = false;
        while let Some(output) = self.prefix_delegator.poll_output() {
            match output {
                DelegationOutput::Store(prefix, Some(record)) => {
                    self.stored_delegations.insert(prefix.network(), record);
                    has_stored = true;
                }
                DelegationOutput::Store(prefix, None) => {
                    self.stored_delegations.remove(&prefix.network());
                }
                DelegationOutput::Event(_) => {}
            }
        }
        let held: Vec<Ipv6Addr> =
            self.prefix_delegator.delegations().map(|delegation| delegation.prefix.network()).collect();
        assert!(held.len() <= 7);
        assert_eq!(held, self.stored_delegations.keys().copied().collect::<Vec<_>>());
        has_stored
    }
}

/// Passes messages and ARP packets to the servers of DHCP and DHCPv6, lets time pass, and kills and restarts
/// the program.
pub fn fuzz_dhcp(octets: &[u8]) {
    let mut world = DhcpServerNetwork::new(BTreeMap::new(), Time::from_secs(100));
    let mut dhcpv6 = Dhcpv6Server::new(Dhcpv6Config {
        dns_servers: vec![Ipv6Addr::LOCALHOST],
        search_domains: vec!["bus.example".into()],
        captive_portal: None,
    });
    let mut delegations = DelegationNetwork::new(BTreeMap::new(), world.now);
    for (kind, number, content) in split_messages(octets) {
        match kind {
            0 => world.dhcp_server.handle_message(world.now, wall_time_at(world.now), content),
            1 => world.dhcp_server.handle_arp(world.now, content),
            2 => {
                let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number.into());
                let times = (world.now, wall_time_at(world.now));
                let at = ("i0", [2, 0, 0, 0, 0, 1]);
                let reply =
                    dhcpv6.handle_message(times, at, source, content, &mut delegations.prefix_delegator);
                let has_stored = delegations.perform_delegation_outputs();
                assert!(reply.is_none_or(|reply| has_stored || !reply.waits_for_store));
            }
            3 => {
                world = DhcpServerNetwork::new(world.stored_leases, world.now);
                delegations = DelegationNetwork::new(delegations.stored_delegations, world.now);
            }
            _ => {
                let end = world.now + Duration::from_secs(number.into());
                while let Some(due) = world.dhcp_server.poll_timeout().filter(|due| *due <= end) {
                    world.now = due.max(world.now);
                    world.dhcp_server.handle_timeout(world.now, wall_time_at(world.now));
                    world.handle_outputs();
                }
                world.now = end;
                delegations.prefix_delegator.handle_timeout(end);
                delegations.perform_delegation_outputs();
            }
        }
        world.handle_outputs();
    }
}

/// A query that the DNS forwarder has sent: its identifier, the server, and the ID field of the message.
type PendingDnsQuery = (DnsQueryId, IpAddr, [u8; 2]);

fn collect_dns_queries(forwarder: &mut DnsForwarder, asked: &mut Vec<PendingDnsQuery>) {
    while let Some(output) = forwarder.poll_output() {
        match output {
            DnsOutput::Ask { query, server, octets, .. } => {
                asked.push((query, server, [octets[0], octets[1]]))
            }
            DnsOutput::Answer(client, octets) => {
                assert!(octets.len() >= 12 && octets[2] & 0x80 != 0, "an answer");
                assert!(client.transport == DnsTransport::Tcp || octets.len() <= 1232, "{}", octets.len());
            }
            DnsOutput::Done(query) => asked.retain(|(id, ..)| *id != query),
        }
    }
}

/// On-board network to which all simulated hosts belong.
const HOST_NETWORK: OnBoardNetwork = OnBoardNetwork { network_number: 0, is_isolated: false };

/// Passes queries of hosts and answers of servers to the DNS forwarder, and lets time pass.
pub fn fuzz_dns(octets: &[u8]) {
    let servers = vec![IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
    let mut forwarder = DnsForwarder::new(servers, Rng::new(7));
    let ipv6 = vec!["2001:db8:a::9".parse().expect("an address")];
    let hosts = [NamedHost {
        network: HOST_NETWORK,
        name: "camera".to_owned(),
        ipv4_address: Ipv4Addr::new(10, 42, 7, 9),
        ipv6_addresses: ipv6,
    }];
    let prefixes = ["10.42.7.0/24", "2001:db8:a::/64"].map(|prefix| prefix.parse().expect("a prefix"));
    forwarder.set_names(HostNames::new(vec!["bus.example".into()], prefixes.into(), hosts.into_iter()));
    let (mut now, mut asked) = (Time::from_secs(100), Vec::new());
    for (place, (kind, number, content)) in split_messages(octets).into_iter().enumerate() {
        match kind {
            0 | 1 => {
                let transport = if kind == 0 { DnsTransport::Udp } else { DnsTransport::Tcp };
                let address = IpAddr::from([10, 42, 7, number]);
                let client = DnsQueryClient {
                    client_number: place as u64,
                    address,
                    link_address: None,
                    network: HOST_NETWORK,
                    transport,
                };
                forwarder.handle_query(now, client, content);
            }
            // The message answers the last query: write the ID of that query over its first two octets, as
            // far as it has them.
            2 => {
                if let Some((query, server, id)) = asked.last().copied() {
                    let mut content = content.to_vec();
                    content.iter_mut().zip(id).for_each(|(octet, id)| *octet = id);
                    forwarder.handle_answer(now, query, server, &content);
                }
            }
            3 => {
                if let Some((query, server, _)) = asked.last().copied() {
                    forwarder.handle_failure(now, query, server);
                }
            }
            _ => {
                now += Duration::from_secs(number.into());
                forwarder.handle_timeout(now);
            }
        }
        collect_dns_queries(&mut forwarder, &mut asked);
        assert!(forwarder.waiting_query_count() <= 96 && forwarder.cache_size().1 <= 512 << 10);
    }
    // After 80 s without further messages, no query waits any more.
    for _ in 0..8 {
        now += Duration::from_secs(10);
        forwarder.handle_timeout(now);
        collect_dns_queries(&mut forwarder, &mut asked);
    }
    assert_eq!(forwarder.waiting_query_count(), 0);
}
