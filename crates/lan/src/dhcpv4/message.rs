//! Messages of clients and answers of the server, in the octets of RFC 2131 2 and RFC 2132.
//!
//! Left out: options in the fields for file name and server name (option 52), which no client uses.

use std::net::Ipv4Addr;

use carnet_wire::nd::host_configuration::encode_domain_name;

use super::config::ServerConfig;
use super::drop_reason::DhcpDrop;
use crate::LinkAddress;

/// Codes of options (RFC 2132, and the RFC that each comment names).
mod code {
    pub const PAD: u8 = 0;
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN_NAME: u8 = 15;
    pub const MTU: u8 = 26;
    pub const BROADCAST: u8 = 28;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const PARAMETERS: u8 = 55;
    pub const MAX_SIZE: u8 = 57;
    pub const RENEWAL: u8 = 58;
    pub const REBINDING: u8 = 59;
    pub const CLIENT_ID: u8 = 61;
    /// Client FQDN (RFC 4702).
    pub const FQDN: u8 = 81;
    /// IPv6-Only Preferred (RFC 8925).
    pub const IPV6_ONLY: u8 = 108;
    /// Captive-Portal (RFC 8910).
    pub const CAPTIVE_PORTAL: u8 = 114;
    /// Domain Search (RFC 3397).
    pub const SEARCH: u8 = 119;
    pub const END: u8 = 255;
}

/// Length in octets of the header. The next constant is the magic cookie behind the header (RFC 2131 3).
const HEADER: usize = 236;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
/// Offsets in the header.
const OPERATION: usize = 0;
const HARDWARE: usize = 1;
const TRANSACTION: usize = 4;
const FLAGS: usize = 10;
const CLIENT_ADDRESS: usize = 12;
const YOUR_ADDRESS: usize = 16;
const RELAY: usize = 24;
const CLIENT_HARDWARE: usize = 28;
/// Values of the operation.
const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
/// Hardware type, and the length of its addresses in octets.
const ETHERNET: [u8; 2] = [1, 6];
/// Flag B in the first octet of the flags: the client cannot receive unicast packets yet.
const BROADCAST: u8 = 0x80;
/// Maximum length of one option's value in octets.
const MAX_VALUE: usize = 255;

/// Time in seconds for which a client that can do without IPv4 does not request an address: the default of
/// RFC 8925 3.4 (`V6ONLY_WAIT`).
const V6ONLY_WAIT: u32 = 1800;
/// Lengths in octets: the IPv4 and UDP headers before the message, the shortest packet and the longest
/// packet. Every client accepts the shortest (RFC 2131 2). The longest fits into an Ethernet frame.
const HEADERS: usize = 28;
const MIN_PACKET: u16 = 576;
const MAX_PACKET: u16 = 1500;
/// Length in octets to which a message is padded, as BOOTP needs it (RFC 1542 2.1).
const MIN_MESSAGE: usize = 300;
/// Maximum length of a client identifier in octets.
const MAX_CLIENT_ID: usize = 255;
/// Maximum length of a name in octets (RFC 1035 2.3.4).
const MAX_LABEL: usize = 63;

/// Identity of a client: its client identifier (option 61), or its hardware type and link-layer address (RFC
/// 2131 4.2).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub Vec<u8>);

/// Type of a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// DHCPDISCOVER.
    Discover,
    /// DHCPREQUEST.
    Request,
    /// DHCPDECLINE.
    Decline,
    /// DHCPRELEASE.
    Release,
    /// DHCPINFORM.
    Inform,
}

/// A valid message of a client on the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Type of the message.
    pub kind: Kind,
    /// Transaction ID.
    pub transaction: u32,
    /// Whether the client cannot receive unicast packets yet.
    pub broadcast: bool,
    /// Address that the client uses; unspecified if it has none.
    pub client_address: Ipv4Addr,
    /// Link-layer address of the client.
    pub link_address: LinkAddress,
    /// Identity of the client.
    pub client: ClientId,
    /// Whether the client has sent its identity as an option.
    pub has_client_id: bool,
    /// Address that the client requests; `None` if it requests none.
    pub requested: Option<Ipv4Addr>,
    /// Server that the client has selected.
    pub server: Option<Ipv4Addr>,
    /// Name of the client, valid for DNS.
    pub host_name: Option<String>,
    /// Codes of the options that the client requests; `None` if its message has no such list.
    pub parameters: Option<Vec<u8>>,
    /// Maximum length of an answer with its headers, in octets.
    pub max_size: u16,
}

impl Request {
    /// Parses a message of a client.
    ///
    /// # Errors
    /// Returns the reason for which the server does not answer the message.
    pub fn parse(octets: &[u8]) -> Result<Request, DhcpDrop> {
        let (header, rest) = octets.split_first_chunk::<HEADER>().ok_or(DhcpDrop::Malformed)?;
        let options = rest.strip_prefix(&MAGIC).ok_or(DhcpDrop::Malformed)?;
        if header[OPERATION] != BOOT_REQUEST {
            return Err(DhcpDrop::Malformed);
        }
        let address =
            |at: usize| Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if !address(RELAY).is_unspecified() {
            return Err(DhcpDrop::Relayed);
        }
        let link_address: LinkAddress = std::array::from_fn(|octet| header[CLIENT_HARDWARE + octet]);
        let is_group = link_address[0] & 1 == 1;
        if header[HARDWARE..][..2] != ETHERNET || is_group || link_address == [0; 6] {
            return Err(DhcpDrop::LinkAddress);
        }
        let options = Options::read(options)?;
        let has_client_id = options.client.is_some();
        let hardware = || [&[1], &link_address[..]].concat();
        Ok(Request {
            kind: options.kind.ok_or(DhcpDrop::Malformed)?,
            transaction: u32::from_be_bytes(std::array::from_fn(|octet| header[TRANSACTION + octet])),
            broadcast: header[FLAGS] & BROADCAST != 0,
            client_address: address(CLIENT_ADDRESS),
            link_address,
            client: ClientId(options.client.unwrap_or_else(hardware)),
            has_client_id,
            requested: options.requested.filter(|address| !address.is_unspecified()),
            server: options.server,
            host_name: options.host_name.or(options.fqdn),
            parameters: options.parameters,
            max_size: options.max_size.unwrap_or(MIN_PACKET).clamp(MIN_PACKET, MAX_PACKET),
        })
    }

    /// Returns whether the client wants an option. If its message has no list of options, it wants every
    /// option that it needs not request by its code.
    fn wants(&self, code: u8) -> bool {
        self.parameters.as_ref().is_none_or(|codes| codes.contains(&code))
    }
}

/// Options of a client's message. A repeated option has no effect.
#[derive(Debug, Default)]
struct Options {
    kind: Option<Kind>,
    client: Option<Vec<u8>>,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    host_name: Option<String>,
    fqdn: Option<String>,
    parameters: Option<Vec<u8>>,
    max_size: Option<u16>,
}

impl Options {
    /// Reads the options up to their end. An option that is longer than the message makes it invalid.
    fn read(mut octets: &[u8]) -> Result<Options, DhcpDrop> {
        let mut options = Options::default();
        while let Some((code, rest)) = octets.split_first() {
            match *code {
                code::PAD => octets = rest,
                code::END => break,
                code => {
                    let (length, rest) = rest.split_first().ok_or(DhcpDrop::Malformed)?;
                    let (data, rest) =
                        rest.split_at_checked(usize::from(*length)).ok_or(DhcpDrop::Malformed)?;
                    options.add(code, data);
                    octets = rest;
                }
            }
        }
        Ok(options)
    }

    fn add(&mut self, code: u8, data: &[u8]) {
        let address = || data.try_into().ok().map(|octets: [u8; 4]| Ipv4Addr::from(octets));
        match code {
            code::MESSAGE_TYPE => self.kind = self.kind.or(kind(data)),
            code::CLIENT_ID if (2..=MAX_CLIENT_ID).contains(&data.len()) => {
                self.client.get_or_insert_with(|| data.to_vec());
            }
            code::REQUESTED_ADDRESS => self.requested = self.requested.or(address()),
            code::SERVER => self.server = self.server.or(address()),
            code::HOST_NAME => self.host_name = self.host_name.take().or(host_name(data)),
            code::FQDN => self.fqdn = self.fqdn.take().or(fqdn(data)),
            code::PARAMETERS => {
                self.parameters.get_or_insert_with(|| data.iter().copied().take(255).collect());
            }
            code::MAX_SIZE => {
                self.max_size = self.max_size.or(data.try_into().ok().map(u16::from_be_bytes));
            }
            _ => {}
        }
    }
}

/// Returns the type of a client's message; `None` for types of servers and unknown ones.
fn kind(data: &[u8]) -> Option<Kind> {
    match data {
        [1] => Some(Kind::Discover),
        [3] => Some(Kind::Request),
        [4] => Some(Kind::Decline),
        [7] => Some(Kind::Release),
        [8] => Some(Kind::Inform),
        _ => None,
    }
}

/// Returns a name that is valid as a label of DNS: the first label of `octets` in lower case. Blanks and
/// underscores become hyphens; other characters that a host name may not contain are left out (RFC 1123
/// 2.1).
pub fn host_name(octets: &[u8]) -> Option<String> {
    let mut name = String::new();
    for octet in octets {
        match octet {
            b'.' | 0 => break,
            b' ' | b'_' | b'-' if !name.is_empty() => name.push('-'),
            octet if octet.is_ascii_alphanumeric() => name.push(octet.to_ascii_lowercase().into()),
            _ => {}
        }
        if name.len() == MAX_LABEL {
            break;
        }
    }
    name.truncate(name.trim_end_matches('-').len());
    (!name.is_empty()).then_some(name)
}

/// Returns the first label of a Client FQDN option, which has the flags and two unused octets before the name
/// (RFC 4702 2).
fn fqdn(data: &[u8]) -> Option<String> {
    /// Flag E: the name is in the wire format of DNS.
    const ENCODED: u8 = 4;
    let ([flags, _, _], name) = data.split_first_chunk()?;
    if flags & ENCODED == 0 {
        return host_name(name);
    }
    let (length, rest) = name.split_first()?;
    host_name(rest.get(..usize::from(*length))?)
}

/// Type of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// DHCPOFFER.
    Offer,
    /// DHCPACK with an address.
    Ack,
    /// DHCPACK to a DHCPINFORM, without an address.
    Information,
    /// DHCPNAK, which refuses an address.
    Nak,
}

/// An answer of the server.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The client's message.
    pub request: &'a Request,
    /// Type of the answer.
    pub kind: ReplyKind,
    /// Address for the client.
    pub address: Ipv4Addr,
    /// Address of the server.
    pub server: Ipv4Addr,
    /// MTU of the link.
    pub mtu: Option<u16>,
    /// Config of the server.
    pub config: &'a ServerConfig,
}

impl Reply<'_> {
    /// Returns the octets of the message. Leaves out options that do not fit.
    pub fn message(&self, lease_seconds: u32) -> Vec<u8> {
        let room = usize::from(self.request.max_size) - HEADERS;
        let mut message = self.header();
        for (code, value) in self.options(lease_seconds) {
            let mut option = Vec::new();
            // RFC 3396 7: a longer value takes several options of the same code.
            for part in value.chunks(MAX_VALUE) {
                option.extend([code, part.len() as u8]);
                option.extend(part);
            }
            // One octet must remain for the end option.
            if message.len() + option.len() < room {
                message.extend(option);
            }
        }
        message.push(code::END);
        message.resize(message.len().max(MIN_MESSAGE), 0);
        message
    }

    /// Returns the message without options.
    fn header(&self) -> Vec<u8> {
        let Reply { request, kind, address, .. } = self;
        let client_address = match kind {
            ReplyKind::Ack | ReplyKind::Information => request.client_address,
            ReplyKind::Offer | ReplyKind::Nak => Ipv4Addr::UNSPECIFIED,
        };
        let mut header = [0; HEADER];
        let mut set = |at: usize, octets: &[u8]| header[at..at + octets.len()].copy_from_slice(octets);
        set(OPERATION, &[BOOT_REPLY]);
        set(HARDWARE, &ETHERNET);
        set(TRANSACTION, &request.transaction.to_be_bytes());
        set(FLAGS, &[if request.broadcast { BROADCAST } else { 0 }]);
        set(CLIENT_ADDRESS, &client_address.octets());
        set(YOUR_ADDRESS, &address.octets());
        set(CLIENT_HARDWARE, &request.link_address);
        [&header[..], &MAGIC].concat()
    }

    /// Returns codes and values of the options, the most important first.
    fn options(&self, lease_seconds: u32) -> Vec<(u8, Vec<u8>)> {
        let Reply { request, kind, server, .. } = self;
        let message_type = match kind {
            ReplyKind::Offer => 2,
            ReplyKind::Ack | ReplyKind::Information => 5,
            ReplyKind::Nak => 6,
        };
        let mut options =
            vec![(code::MESSAGE_TYPE, vec![message_type]), (code::SERVER, server.octets().to_vec())];
        // RFC 6842 3: a server returns the client identifier.
        if request.has_client_id {
            options.push((code::CLIENT_ID, request.client.0.clone()));
        }
        if matches!(kind, ReplyKind::Offer | ReplyKind::Ack) {
            let times = [
                (code::LEASE_TIME, lease_seconds),
                (code::RENEWAL, lease_seconds / 2),
                (code::REBINDING, lease_seconds - lease_seconds / 8),
            ];
            options.extend(times.map(|(code, seconds)| (code, seconds.to_be_bytes().to_vec())));
        }
        if *kind != ReplyKind::Nak {
            self.add_values(&mut options);
        }
        options
    }

    /// Adds the options that do not depend on the client's address, such as DNS servers.
    fn add_values(&self, options: &mut Vec<(u8, Vec<u8>)>) {
        let Reply { request, server, config, .. } = self;
        options.push((code::SUBNET_MASK, config.prefix.netmask().octets().to_vec()));
        options.push((code::ROUTER, server.octets().to_vec()));
        let own = config.is_dns_server.then_some(*server);
        let dns: Vec<u8> = own.iter().chain(&config.dns).flat_map(|server| server.octets()).collect();
        let search: Vec<u8> =
            config.search.iter().filter_map(|name| encode_domain_name(name)).flatten().collect();
        let text = |text: &str| text.as_bytes().to_vec();
        let optional = [
            (code::DNS, (!dns.is_empty()).then_some(dns)),
            (code::BROADCAST, Some(config.prefix.broadcast().octets().to_vec())),
            (code::DOMAIN_NAME, config.search.first().map(|name| text(name))),
            (code::SEARCH, (!search.is_empty()).then_some(search)),
            (code::MTU, self.mtu.map(|mtu| mtu.to_be_bytes().to_vec())),
            (code::CAPTIVE_PORTAL, config.captive_portal.as_deref().map(text)),
        ];
        let wanted = optional.into_iter().filter(|(code, _)| request.wants(*code));
        options.extend(wanted.filter_map(|(code, value)| Some((code, value?))));
        // RFC 8925 3.3: only a client that requests this option gets it.
        let names_it = request.parameters.as_ref().is_some_and(|codes| codes.contains(&code::IPV6_ONLY));
        if config.prefers_ipv6_only && names_it {
            options.push((code::IPV6_ONLY, V6ONLY_WAIT.to_be_bytes().to_vec()));
        }
        options.extend(config.options.iter().filter(|(code, _)| request.wants(*code)).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_has_only_valid_characters() {
        for (sent, name) in [
            ("Camera_1", Some("camera-1")),
            ("Anna's phone", Some("annas-phone")),
            ("tablet.lan", Some("tablet")),
            ("--x--", Some("x")),
            ("\u{1f68c}", None),
            ("", None),
            ("a\0b", Some("a")),
        ] {
            assert_eq!(host_name(sent.as_bytes()).as_deref(), name, "{sent:?}");
        }
        assert_eq!(host_name(&[b'a'; 300]).map(|name| name.len()), Some(63));
    }

    #[test]
    fn fqdn_in_both_encodings_gives_its_first_label() {
        assert_eq!(fqdn(b"\x00\x00\x00host.bus.example").as_deref(), Some("host"));
        assert_eq!(fqdn(b"\x04\x00\x00\x04host\x03bus\x00").as_deref(), Some("host"));
        assert_eq!(fqdn(b"\x04\x00\x00\x09host"), None);
        assert_eq!(fqdn(b"\x04\x00"), None);
    }
}
