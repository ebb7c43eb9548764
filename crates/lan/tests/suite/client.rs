//! Messages of DHCP clients, a server in virtual time, and the disk that it writes to.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_lan::LinkAddress;
use carnet_lan::dhcpv4::{Datagram, DhcpEvent, Output, Server, ServerConfig, StoredLease};

pub const DISCOVER: u8 = 1;
pub const OFFER: u8 = 2;
pub const REQUEST: u8 = 3;
pub const DECLINE: u8 = 4;
pub const ACK: u8 = 5;
pub const NAK: u8 = 6;
pub const RELEASE: u8 = 7;
pub const INFORM: u8 = 8;

pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 42, 7, 1);

pub fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 42, 7, last)
}

pub fn mac(number: u32) -> LinkAddress {
    let [a, b, c, d] = number.to_be_bytes();
    [2, 0, a, b, c, d]
}

pub fn config() -> ServerConfig {
    ServerConfig {
        prefix: "10.42.7.0/24".parse().expect("a prefix"),
        range: (address(100), address(109)),
        lease_time: Duration::from_secs(3600),
        reservations: Vec::new(),
        options: Vec::new(),
        dns: vec![address(53)],
        is_dns_server: false,
        search: vec!["bus.example".into()],
        mtu: Some(1400),
        prefers_ipv6_only: false,
        captive_portal: None,
    }
}

/// Fields of a client's message, from which the test makes the octets.
#[derive(Debug, Clone)]
pub struct Message {
    pub kind: u8,
    pub mac: LinkAddress,
    pub transaction: u32,
    pub ciaddr: Ipv4Addr,
    pub giaddr: Ipv4Addr,
    pub broadcast: bool,
    pub options: Vec<(u8, Vec<u8>)>,
}

impl Message {
    pub fn new(kind: u8, client: u32) -> Message {
        let none = Ipv4Addr::UNSPECIFIED;
        let options = Vec::new();
        let (mac, transaction) = (mac(client), client);
        Message { kind, mac, transaction, ciaddr: none, giaddr: none, broadcast: false, options }
    }

    pub fn with(mut self, code: u8, value: &[u8]) -> Message {
        self.options.push((code, value.to_vec()));
        self
    }

    pub fn wants(self, address: Ipv4Addr) -> Message {
        self.with(50, &address.octets())
    }

    pub fn with_server(self, server: Ipv4Addr) -> Message {
        self.with(54, &server.octets())
    }

    pub fn with_source(mut self, address: Ipv4Addr) -> Message {
        self.ciaddr = address;
        self
    }

    pub fn octets(&self) -> Vec<u8> {
        let mut octets = vec![1, 1, 6, 0];
        octets.extend(self.transaction.to_be_bytes());
        octets.extend([0, 0, if self.broadcast { 0x80 } else { 0 }, 0]);
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
pub struct Answer {
    pub kind: u8,
    pub transaction: u32,
    pub yiaddr: Ipv4Addr,
    pub mac: LinkAddress,
    pub options: BTreeMap<u8, Vec<u8>>,
    pub datagram: Datagram,
}

impl Answer {
    fn of(datagram: Datagram) -> Answer {
        let octets = datagram.message.clone();
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
        Answer {
            kind: options[&53][0],
            transaction: u32::from_be_bytes(octets[4..8].try_into().expect("four octets")),
            yiaddr: Ipv4Addr::from(<[u8; 4]>::try_from(&octets[16..20]).expect("four octets")),
            mac: octets[28..34].try_into().expect("six octets"),
            options,
            datagram,
        }
    }
}

/// A server, its clock, and a simulated disk with the stored records.
pub struct World {
    pub server: Server,
    pub now: Time,
    pub disk: BTreeMap<Ipv4Addr, StoredLease>,
    pub probes: Vec<Ipv4Addr>,
    pub events: Vec<DhcpEvent>,
}

impl World {
    pub fn new(config: ServerConfig) -> World {
        World::with_disk(config, BTreeMap::new(), Time::from_secs(1000))
    }

    pub fn with_disk(config: ServerConfig, disk: BTreeMap<Ipv4Addr, StoredLease>, now: Time) -> World {
        let leases: Vec<StoredLease> = disk.values().cloned().collect();
        let mut server = Server::new(config, &leases, now, wall(now));
        server.set_address(Some(SERVER));
        World { server, now, disk, probes: Vec::new(), events: Vec::new() }
    }

    /// Ends the server as `kill -9` does. Starts another server with the same disk.
    pub fn restart(self) -> World {
        let config = self.server.config().clone();
        World::with_disk(config, self.disk, self.now)
    }

    /// Passes a message to the server. Returns its answers at once.
    pub fn send(&mut self, message: &Message) -> Vec<Answer> {
        self.send_octets(&message.octets())
    }

    /// Passes any octets to the server. Returns its answers at once.
    pub fn send_octets(&mut self, octets: &[u8]) -> Vec<Answer> {
        self.server.handle_message(self.now, wall(self.now), octets);
        self.outputs()
    }

    /// Lets time pass, and returns the answers meanwhile.
    pub fn wait(&mut self, time: Duration) -> Vec<Answer> {
        let end = self.now + time;
        let mut answers = Vec::new();
        while let Some(due) = self.server.poll_timeout().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.server.handle_timeout(self.now, wall(self.now));
            answers.extend(self.outputs());
        }
        self.now = end;
        answers
    }

    fn outputs(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::Probe(address) => self.probes.push(address),
                Output::Store(address, Some(lease)) => {
                    self.disk.insert(address, lease);
                }
                Output::Store(address, None) => {
                    self.disk.remove(&address);
                }
                Output::Send(datagram) => {
                    let answer = Answer::of(datagram);
                    if answer.datagram.waits_for_store {
                        let stored = self.disk.get(&answer.yiaddr).map(|lease| lease.link_address);
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

    /// Obtains an address in the way of a client without an address. Returns the address.
    pub fn obtain(&mut self, client: u32) -> Option<Ipv4Addr> {
        let mut offers = self.send(&Message::new(DISCOVER, client));
        offers.extend(self.wait(Duration::from_millis(500)));
        let offer = offers.into_iter().find(|answer| answer.kind == OFFER && answer.mac == mac(client))?;
        let request = Message::new(REQUEST, client).wants(offer.yiaddr).with_server(SERVER);
        let answers = self.send(&request);
        let ack = answers.into_iter().find(|answer| answer.kind == ACK)?;
        assert_eq!(ack.yiaddr, offer.yiaddr);
        Some(ack.yiaddr)
    }
}

pub fn wall(now: Time) -> WallTime {
    WallTime::from_unix_nanos(1_700_000_000_000_000_000) + now.saturating_since(Time::ZERO)
}
