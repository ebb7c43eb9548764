//! Messages of DHCP clients, a server in virtual time, and the disk that it writes to.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_lan::LinkAddress;
use carnet_lan::dhcpv4::{DhcpEvent, DhcpServer, DhcpServerConfig, DhcpServerMessage, Output, StoredLease};

pub const DHCP_DISCOVER: u8 = 1;
pub const DHCP_OFFER: u8 = 2;
pub const DHCP_REQUEST: u8 = 3;
pub const DHCP_DECLINE: u8 = 4;
pub const DHCP_ACK: u8 = 5;
pub const DHCP_NAK: u8 = 6;
pub const DHCP_RELEASE: u8 = 7;
pub const DHCP_INFORM: u8 = 8;

pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 42, 7, 1);

pub fn host_address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 42, 7, last)
}

pub fn client_mac(number: u32) -> LinkAddress {
    let [a, b, c, d] = number.to_be_bytes();
    [2, 0, a, b, c, d]
}

pub fn server_config() -> DhcpServerConfig {
    DhcpServerConfig {
        prefix: "10.42.7.0/24".parse().expect("a prefix"),
        address_range: (host_address(100), host_address(109)),
        lease_time: Duration::from_secs(3600),
        reservations: Vec::new(),
        options: Vec::new(),
        dns_servers: vec![host_address(53)],
        is_dns_server: false,
        search_domains: vec!["bus.example".into()],
        mtu: Some(1400),
        prefers_ipv6_only: false,
        captive_portal: None,
    }
}

/// Fields of a client's message, from which the test makes the octets.
#[derive(Debug, Clone)]
pub struct MessageBuilder {
    pub kind: u8,
    pub mac: LinkAddress,
    pub transaction_id: u32,
    pub ciaddr: Ipv4Addr,
    pub giaddr: Ipv4Addr,
    pub needs_broadcast: bool,
    pub options: Vec<(u8, Vec<u8>)>,
}

impl MessageBuilder {
    pub fn new(kind: u8, client: u32) -> MessageBuilder {
        let none = Ipv4Addr::UNSPECIFIED;
        let options = Vec::new();
        let (mac, transaction) = (client_mac(client), client);
        MessageBuilder {
            kind,
            mac,
            transaction_id: transaction,
            ciaddr: none,
            giaddr: none,
            needs_broadcast: false,
            options,
        }
    }

    pub fn with_option(mut self, code: u8, value: &[u8]) -> MessageBuilder {
        self.options.push((code, value.to_vec()));
        self
    }

    pub fn with_requested_address(self, address: Ipv4Addr) -> MessageBuilder {
        self.with_option(50, &address.octets())
    }

    pub fn with_server(self, server: Ipv4Addr) -> MessageBuilder {
        self.with_option(54, &server.octets())
    }

    pub fn with_client_address(mut self, address: Ipv4Addr) -> MessageBuilder {
        self.ciaddr = address;
        self
    }

    pub fn octets(&self) -> Vec<u8> {
        let mut octets = vec![1, 1, 6, 0];
        octets.extend(self.transaction_id.to_be_bytes());
        octets.extend([0, 0, if self.needs_broadcast { 0x80 } else { 0 }, 0]);
        octets.extend(self.ciaddr.octets());
        octets.extend([0; 8]);
        octets.extend(self.giaddr.octets());
        octets.extend(self.mac);
        octets.extend([0; 10 + 64 + 128]);
        octets.extend([99, 130, 83, 99, 53, 1, self.kind]);
        for (code, value) in &self.options {
            octets.push(*code);
            octets.push(value.len() as u8);
            octets.extend(value);
        }
        octets.push(255);
        octets
    }
}

/// An answer of the server, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedAnswer {
    pub kind: u8,
    pub transaction_id: u32,
    pub yiaddr: Ipv4Addr,
    pub mac: LinkAddress,
    pub options: BTreeMap<u8, Vec<u8>>,
    pub server_message: DhcpServerMessage,
}

impl ParsedAnswer {
    fn from_server_message(datagram: DhcpServerMessage) -> ParsedAnswer {
        let octets = datagram.message_octets.clone();
        assert_eq!(octets[..3], [2, 1, 6], "a reply for Ethernet");
        assert_eq!(octets[236..240], [99, 130, 83, 99]);
        let mut options: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        let mut rest = &octets[240..];
        while let [code, length, more @ ..] = rest
            && *code != 255
        {
            let (value, more) = more.split_at(usize::from(*length));
            options.entry(*code).or_default().extend(value);
            rest = more;
        }
        assert_eq!(rest.first(), Some(&255), "an end of the options");
        ParsedAnswer {
            kind: options[&53][0],
            transaction_id: u32::from_be_bytes(octets[4..8].try_into().expect("four octets")),
            yiaddr: Ipv4Addr::from(<[u8; 4]>::try_from(&octets[16..20]).expect("four octets")),
            mac: octets[28..34].try_into().expect("six octets"),
            options,
            server_message: datagram,
        }
    }
}

/// A server, its clock, and a simulated disk with the stored records.
pub struct TestNetwork {
    pub dhcp_server: DhcpServer,
    pub now: Time,
    pub stored_leases: BTreeMap<Ipv4Addr, StoredLease>,
    pub probed_addresses: Vec<Ipv4Addr>,
    pub events: Vec<DhcpEvent>,
}

impl TestNetwork {
    pub fn new(config: DhcpServerConfig) -> TestNetwork {
        TestNetwork::with_disk(config, BTreeMap::new(), Time::from_secs(1000))
    }

    pub fn with_disk(
        config: DhcpServerConfig,
        disk: BTreeMap<Ipv4Addr, StoredLease>,
        now: Time,
    ) -> TestNetwork {
        let leases: Vec<StoredLease> = disk.values().cloned().collect();
        let mut server = DhcpServer::new(config, &leases, now, wall_time(now));
        server.set_address(Some(SERVER_ADDRESS));
        TestNetwork {
            dhcp_server: server,
            now,
            stored_leases: disk,
            probed_addresses: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Ends the server as `kill -9` does. Starts another server with the same disk.
    pub fn restart_server(self) -> TestNetwork {
        let config = self.dhcp_server.config().clone();
        TestNetwork::with_disk(config, self.stored_leases, self.now)
    }

    /// Passes a message to the server. Returns its answers at once.
    pub fn send_message(&mut self, message: &MessageBuilder) -> Vec<ParsedAnswer> {
        self.send_octets(&message.octets())
    }

    /// Passes any octets to the server. Returns its answers at once.
    pub fn send_octets(&mut self, octets: &[u8]) -> Vec<ParsedAnswer> {
        self.dhcp_server.handle_message(self.now, wall_time(self.now), octets);
        self.take_answers()
    }

    /// Lets time pass, and returns the server's answers during this time.
    pub fn advance_time(&mut self, time: Duration) -> Vec<ParsedAnswer> {
        let end = self.now + time;
        let mut answers = Vec::new();
        while let Some(due) = self.dhcp_server.poll_timeout().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.dhcp_server.handle_timeout(self.now, wall_time(self.now));
            answers.extend(self.take_answers());
        }
        self.now = end;
        answers
    }

    fn take_answers(&mut self) -> Vec<ParsedAnswer> {
        let mut answers = Vec::new();
        while let Some(output) = self.dhcp_server.poll_output() {
            match output {
                Output::Probe(address) => self.probed_addresses.push(address),
                Output::Store(address, Some(lease)) => {
                    self.stored_leases.insert(address, lease);
                }
                Output::Store(address, None) => {
                    self.stored_leases.remove(&address);
                }
                Output::Send(datagram) => {
                    let answer = ParsedAnswer::from_server_message(datagram);
                    if answer.server_message.waits_for_store {
                        let stored = self.stored_leases.get(&answer.yiaddr).map(|lease| lease.link_address);
                        assert_eq!(
                            stored,
                            Some(answer.mac),
                            "the lease is stored before the acknowledgement"
                        );
                    }
                    answers.push(answer);
                }
                Output::Event(event) => self.events.push(event),
            }
        }
        answers
    }

    /// Obtains an address for a client that has none, and returns the address; `None` if the server gives
    /// none.
    pub fn obtain_address(&mut self, client: u32) -> Option<Ipv4Addr> {
        let mut offers = self.send_message(&MessageBuilder::new(DHCP_DISCOVER, client));
        offers.extend(self.advance_time(Duration::from_millis(500)));
        let offer = offers
            .into_iter()
            .find(|answer| answer.kind == DHCP_OFFER && answer.mac == client_mac(client))?;
        let request = MessageBuilder::new(DHCP_REQUEST, client)
            .with_requested_address(offer.yiaddr)
            .with_server(SERVER_ADDRESS);
        let answers = self.send_message(&request);
        let ack = answers.into_iter().find(|answer| answer.kind == DHCP_ACK)?;
        assert_eq!(ack.yiaddr, offer.yiaddr);
        Some(ack.yiaddr)
    }
}

pub fn wall_time(now: Time) -> WallTime {
    WallTime::from_unix_nanos(1_700_000_000_000_000_000) + now.saturating_since(Time::ZERO)
}
