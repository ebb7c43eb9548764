//! Messages of clients and answers of the server, in the octets of RFC 2131 2 and RFC 2132.
//!
//! Left out: options in the fields for file name and server name (option 52), which no client uses.

use std::net::Ipv4Addr;

use carnet_wire::nd::host_configuration::encode_domain_name;

use super::config::DhcpServerConfig;
use super::drop_reason::DhcpDropReason;
use crate::LinkAddress;

/// Codes of options (RFC 2132, and the RFC that each comment names).
mod option_code {
    pub const PAD: u8 = 0;
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS_SERVERS: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN_NAME: u8 = 15;
    pub const MTU: u8 = 26;
    pub const BROADCAST: u8 = 28;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER_IDENTIFIER: u8 = 54;
    pub const PARAMETER_REQUEST_LIST: u8 = 55;
    pub const MAX_MESSAGE_SIZE: u8 = 57;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const CLIENT_ID: u8 = 61;
    /// Client FQDN (RFC 4702).
    pub const CLIENT_FQDN: u8 = 81;
    /// IPv6-Only Preferred (RFC 8925).
    pub const IPV6_ONLY_PREFERRED: u8 = 108;
    /// Captive-Portal (RFC 8910).
    pub const CAPTIVE_PORTAL: u8 = 114;
    /// Domain Search (RFC 3397).
    pub const DOMAIN_SEARCH: u8 = 119;
    pub const END: u8 = 255;
}

/// Length in octets of the header, without the magic cookie.
const HEADER_LENGTH: usize = 236;
/// Magic cookie behind the header (RFC 2131 3).
const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Offsets in the header.
const OPERATION_OFFSET: usize = 0;
const HARDWARE_TYPE_OFFSET: usize = 1;
const TRANSACTION_ID_OFFSET: usize = 4;
const FLAGS_OFFSET: usize = 10;
const CLIENT_ADDRESS_OFFSET: usize = 12;
const YOUR_ADDRESS_OFFSET: usize = 16;
const RELAY_ADDRESS_OFFSET: usize = 24;
const CLIENT_HARDWARE_OFFSET: usize = 28;
/// Values of the operation.
const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
/// Hardware type, and the length of its addresses in octets.
const HARDWARE_ETHERNET: [u8; 2] = [1, 6];
/// Flag B in the first octet of the flags: the client cannot receive unicast packets yet.
const FLAG_BROADCAST: u8 = 0x80;
/// Maximum length of one option's value in octets.
const MAX_OPTION_LENGTH: usize = 255;

/// Time in seconds for which a client that can do without IPv4 does not request an address: the default of
/// RFC 8925 3.4 (`IPV6_ONLY_WAIT_SECONDS`).
const IPV6_ONLY_WAIT_SECONDS: u32 = 1800;
/// Length in octets of the IPv4 and UDP headers before the message.
const IP_AND_UDP_HEADERS_LENGTH: usize = 28;
/// Length in octets of the largest packet that every client accepts (RFC 2131 2).
const MIN_PACKET_SIZE: u16 = 576;
/// Length in octets of the largest packet in an Ethernet frame.
const MAX_PACKET_SIZE: u16 = 1500;
/// Minimum length of a message in octets, as BOOTP requires (RFC 1542 2.1). The server pads shorter messages.
const MIN_MESSAGE_LENGTH: usize = 300;
/// Maximum length of a client identifier in octets.
const MAX_CLIENT_ID_LENGTH: usize = 255;
/// Maximum length of a name in octets (RFC 1035 2.3.4).
const MAX_LABEL_LENGTH: usize = 63;

/// Identity of a client: its client identifier (option 61), or its hardware type and link-layer address (RFC
/// 2131 4.2).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DhcpClientId(pub Vec<u8>);

/// Type of a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DhcpMessageKind {
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
pub struct DhcpClientMessage {
    /// Type of the message.
    pub kind: DhcpMessageKind,
    /// Transaction ID.
    pub transaction_id: u32,
    /// Whether the client cannot receive unicast packets yet.
    pub needs_broadcast: bool,
    /// Address that the client uses; unspecified if it has none.
    pub client_address: Ipv4Addr,
    /// Link-layer address of the client.
    pub link_address: LinkAddress,
    /// Identity of the client.
    pub client_id: DhcpClientId,
    /// Whether the client has sent a client identifier (option 61).
    pub has_client_id: bool,
    /// Address that the client requests; `None` if it requests none.
    pub requested_address: Option<Ipv4Addr>,
    /// Server that the client has selected; `None` if the message names no server.
    pub selected_server: Option<Ipv4Addr>,
    /// Name of the client, valid for DNS; `None` if the client has sent no name that can be made valid.
    pub host_name: Option<String>,
    /// Codes of the options that the client requests; `None` if its message has no such list.
    pub requested_options: Option<Vec<u8>>,
    /// Maximum length of an answer with its headers, in octets.
    pub max_message_size: u16,
}

impl DhcpClientMessage {
    /// Parses a message of a client.
    ///
    /// # Errors
    /// Returns the reason for which the server does not answer the message.
    pub fn parse(octets: &[u8]) -> Result<DhcpClientMessage, DhcpDropReason> {
        let (header, rest) = octets.split_first_chunk::<HEADER_LENGTH>().ok_or(DhcpDropReason::Malformed)?;
        let options = rest.strip_prefix(&MAGIC_COOKIE).ok_or(DhcpDropReason::Malformed)?;
        if header[OPERATION_OFFSET] != BOOT_REQUEST {
            return Err(DhcpDropReason::Malformed);
        }
        let address =
            |at: usize| Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if !address(RELAY_ADDRESS_OFFSET).is_unspecified() {
            return Err(DhcpDropReason::Relayed);
        }
        let link_address: LinkAddress = std::array::from_fn(|octet| header[CLIENT_HARDWARE_OFFSET + octet]);
        let is_group = link_address[0] & 1 == 1;
        if header[HARDWARE_TYPE_OFFSET..][..2] != HARDWARE_ETHERNET || is_group || link_address == [0; 6] {
            return Err(DhcpDropReason::LinkAddress);
        }
        let options = DhcpClientOptions::parse_options(options)?;
        let has_client_id = options.client_id.is_some();
        let hardware = || [&[1], &link_address[..]].concat();
        Ok(DhcpClientMessage {
            kind: options.kind.ok_or(DhcpDropReason::Malformed)?,
            transaction_id: u32::from_be_bytes(std::array::from_fn(|octet| {
                header[TRANSACTION_ID_OFFSET + octet]
            })),
            needs_broadcast: header[FLAGS_OFFSET] & FLAG_BROADCAST != 0,
            client_address: address(CLIENT_ADDRESS_OFFSET),
            link_address,
            client_id: DhcpClientId(options.client_id.unwrap_or_else(hardware)),
            has_client_id,
            requested_address: options.requested_address.filter(|address| !address.is_unspecified()),
            selected_server: options.selected_server,
            host_name: options.host_name.or(options.fqdn),
            requested_options: options.requested_options,
            max_message_size: options
                .max_message_size
                .unwrap_or(MIN_PACKET_SIZE)
                .clamp(MIN_PACKET_SIZE, MAX_PACKET_SIZE),
        })
    }

    /// Returns whether the client wants an option: its list of requested options contains the code, or its
    /// message has no list.
    fn wants_option(&self, code: u8) -> bool {
        self.requested_options.as_ref().is_none_or(|codes| codes.contains(&code))
    }
}

/// Options of a client's message. If an option is repeated, the server uses the first one.
#[derive(Debug, Default)]
struct DhcpClientOptions {
    kind: Option<DhcpMessageKind>,
    client_id: Option<Vec<u8>>,
    requested_address: Option<Ipv4Addr>,
    selected_server: Option<Ipv4Addr>,
    host_name: Option<String>,
    fqdn: Option<String>,
    requested_options: Option<Vec<u8>>,
    max_message_size: Option<u16>,
}

impl DhcpClientOptions {
    /// Reads the options up to the end option. An option that is longer than the rest of the message makes
    /// the message invalid.
    fn parse_options(mut octets: &[u8]) -> Result<DhcpClientOptions, DhcpDropReason> {
        let mut options = DhcpClientOptions::default();
        while let Some((code, rest)) = octets.split_first() {
            match *code {
                option_code::PAD => octets = rest,
                option_code::END => break,
                code => {
                    let (length, rest) = rest.split_first().ok_or(DhcpDropReason::Malformed)?;
                    let (data, rest) =
                        rest.split_at_checked(usize::from(*length)).ok_or(DhcpDropReason::Malformed)?;
                    options.add_option(code, data);
                    octets = rest;
                }
            }
        }
        Ok(options)
    }

    fn add_option(&mut self, code: u8, data: &[u8]) {
        let address = || data.try_into().ok().map(|octets: [u8; 4]| Ipv4Addr::from(octets));
        match code {
            option_code::MESSAGE_TYPE => self.kind = self.kind.or(parse_message_kind(data)),
            option_code::CLIENT_ID if (2..=MAX_CLIENT_ID_LENGTH).contains(&data.len()) => {
                self.client_id.get_or_insert_with(|| data.to_vec());
            }
            option_code::REQUESTED_ADDRESS => self.requested_address = self.requested_address.or(address()),
            option_code::SERVER_IDENTIFIER => self.selected_server = self.selected_server.or(address()),
            option_code::HOST_NAME => self.host_name = self.host_name.take().or(valid_host_name(data)),
            option_code::CLIENT_FQDN => self.fqdn = self.fqdn.take().or(host_name_of_fqdn(data)),
            option_code::PARAMETER_REQUEST_LIST => {
                self.requested_options.get_or_insert_with(|| data.iter().copied().take(255).collect());
            }
            option_code::MAX_MESSAGE_SIZE => {
                self.max_message_size =
                    self.max_message_size.or(data.try_into().ok().map(u16::from_be_bytes));
            }
            _ => {}
        }
    }
}

/// Returns the type of a client's message; `None` for types of servers and unknown ones.
fn parse_message_kind(data: &[u8]) -> Option<DhcpMessageKind> {
    match data {
        [1] => Some(DhcpMessageKind::Discover),
        [3] => Some(DhcpMessageKind::Request),
        [4] => Some(DhcpMessageKind::Decline),
        [7] => Some(DhcpMessageKind::Release),
        [8] => Some(DhcpMessageKind::Inform),
        _ => None,
    }
}

/// Returns a name that is valid as a label of DNS: the first label of `octets` in lower case. Blanks and
/// underscores become hyphens; other characters that a host name may not contain are left out (RFC 1123 2.1).
/// Returns `None` if no valid name remains.
pub fn valid_host_name(octets: &[u8]) -> Option<String> {
    let mut name = String::new();
    for octet in octets {
        match octet {
            b'.' | 0 => break,
            b' ' | b'_' | b'-' if !name.is_empty() => name.push('-'),
            octet if octet.is_ascii_alphanumeric() => name.push(octet.to_ascii_lowercase().into()),
            _ => {}
        }
        if name.len() == MAX_LABEL_LENGTH {
            break;
        }
    }
    name.truncate(name.trim_end_matches('-').len());
    (!name.is_empty()).then_some(name)
}

/// Returns the first label of a Client FQDN option, which has the flags and two unused octets before the name
/// (RFC 4702 2). Returns `None` if it is no valid name.
fn host_name_of_fqdn(data: &[u8]) -> Option<String> {
    /// Flag E: the name is in the wire format of DNS.
    const FLAG_DNS_ENCODING: u8 = 4;
    let ([flags, _, _], name) = data.split_first_chunk()?;
    if flags & FLAG_DNS_ENCODING == 0 {
        return valid_host_name(name);
    }
    let (length, rest) = name.split_first()?;
    valid_host_name(rest.get(..usize::from(*length))?)
}

/// Type of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DhcpReplyKind {
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
pub struct DhcpServerReply<'a> {
    /// The client's message.
    pub client_message: &'a DhcpClientMessage,
    /// Type of the answer.
    pub kind: DhcpReplyKind,
    /// Address for the client.
    pub address: Ipv4Addr,
    /// Address of the server.
    pub server_address: Ipv4Addr,
    /// MTU of the link.
    pub mtu: Option<u16>,
    /// Config of the server.
    pub config: &'a DhcpServerConfig,
}

impl DhcpServerReply<'_> {
    /// Returns the octets of the message. Leaves out options that do not fit.
    pub fn encode_reply(&self, lease_seconds: u32) -> Vec<u8> {
        let room = usize::from(self.client_message.max_message_size) - IP_AND_UDP_HEADERS_LENGTH;
        let mut message = self.encode_header();
        for (code, value) in self.reply_options(lease_seconds) {
            let mut option = Vec::new();
            // RFC 3396 7: a value of more than 255 octets takes several options of the same code.
            for part in value.chunks(MAX_OPTION_LENGTH) {
                option.extend([code, part.len() as u8]);
                option.extend(part);
            }
            // One octet must remain for the end option.
            if message.len() + option.len() < room {
                message.extend(option);
            }
        }
        message.push(option_code::END);
        message.resize(message.len().max(MIN_MESSAGE_LENGTH), 0);
        message
    }

    /// Returns the message without options.
    fn encode_header(&self) -> Vec<u8> {
        let DhcpServerReply { client_message: request, kind, address, .. } = self;
        let client_address = match kind {
            DhcpReplyKind::Ack | DhcpReplyKind::Information => request.client_address,
            DhcpReplyKind::Offer | DhcpReplyKind::Nak => Ipv4Addr::UNSPECIFIED,
        };
        let mut header = [0; HEADER_LENGTH];
        let mut set = |at: usize, octets: &[u8]| header[at..at + octets.len()].copy_from_slice(octets);
        set(OPERATION_OFFSET, &[BOOT_REPLY]);
        set(HARDWARE_TYPE_OFFSET, &HARDWARE_ETHERNET);
        set(TRANSACTION_ID_OFFSET, &request.transaction_id.to_be_bytes());
        set(FLAGS_OFFSET, &[if request.needs_broadcast { FLAG_BROADCAST } else { 0 }]);
        set(CLIENT_ADDRESS_OFFSET, &client_address.octets());
        set(YOUR_ADDRESS_OFFSET, &address.octets());
        set(CLIENT_HARDWARE_OFFSET, &request.link_address);
        [&header[..], &MAGIC_COOKIE].concat()
    }

    /// Returns codes and values of the options, the most important first.
    fn reply_options(&self, lease_seconds: u32) -> Vec<(u8, Vec<u8>)> {
        let DhcpServerReply { client_message: request, kind, server_address: server, .. } = self;
        let message_type = match kind {
            DhcpReplyKind::Offer => 2,
            DhcpReplyKind::Ack | DhcpReplyKind::Information => 5,
            DhcpReplyKind::Nak => 6,
        };
        let mut options = vec![
            (option_code::MESSAGE_TYPE, vec![message_type]),
            (option_code::SERVER_IDENTIFIER, server.octets().to_vec()),
        ];
        // RFC 6842 3: a server returns the client identifier.
        if request.has_client_id {
            options.push((option_code::CLIENT_ID, request.client_id.0.clone()));
        }
        if matches!(kind, DhcpReplyKind::Offer | DhcpReplyKind::Ack) {
            let times = [
                (option_code::LEASE_TIME, lease_seconds),
                (option_code::RENEWAL_TIME, lease_seconds / 2),
                (option_code::REBINDING_TIME, lease_seconds - lease_seconds / 8),
            ];
            options.extend(times.map(|(code, seconds)| (code, seconds.to_be_bytes().to_vec())));
        }
        if *kind != DhcpReplyKind::Nak {
            self.add_configured_options(&mut options);
        }
        options
    }

    /// Adds the options that do not depend on the client's address, such as DNS servers.
    fn add_configured_options(&self, options: &mut Vec<(u8, Vec<u8>)>) {
        let DhcpServerReply { client_message: request, server_address: server, config, .. } = self;
        options.push((option_code::SUBNET_MASK, config.prefix.netmask().octets().to_vec()));
        options.push((option_code::ROUTER, server.octets().to_vec()));
        let own = config.is_dns_server.then_some(*server);
        let dns: Vec<u8> = own.iter().chain(&config.dns_servers).flat_map(|server| server.octets()).collect();
        let search: Vec<u8> =
            config.search_domains.iter().filter_map(|name| encode_domain_name(name)).flatten().collect();
        let text = |text: &str| text.as_bytes().to_vec();
        let optional = [
            (option_code::DNS_SERVERS, (!dns.is_empty()).then_some(dns)),
            (option_code::BROADCAST, Some(config.prefix.broadcast().octets().to_vec())),
            (option_code::DOMAIN_NAME, config.search_domains.first().map(|name| text(name))),
            (option_code::DOMAIN_SEARCH, (!search.is_empty()).then_some(search)),
            (option_code::MTU, self.mtu.map(|mtu| mtu.to_be_bytes().to_vec())),
            (option_code::CAPTIVE_PORTAL, config.captive_portal.as_deref().map(text)),
        ];
        let wanted = optional.into_iter().filter(|(code, _)| request.wants_option(*code));
        options.extend(wanted.filter_map(|(code, value)| Some((code, value?))));
        // RFC 8925 3.3: only a client that requests this option gets it.
        let names_it = request
            .requested_options
            .as_ref()
            .is_some_and(|codes| codes.contains(&option_code::IPV6_ONLY_PREFERRED));
        if config.prefers_ipv6_only && names_it {
            options.push((option_code::IPV6_ONLY_PREFERRED, IPV6_ONLY_WAIT_SECONDS.to_be_bytes().to_vec()));
        }
        options.extend(config.options.iter().filter(|(code, _)| request.wants_option(*code)).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dhcp_host_name_keeps_only_valid_characters() {
        for (sent, name) in [
            ("Camera_1", Some("camera-1")),
            ("Anna's phone", Some("annas-phone")),
            ("tablet.lan", Some("tablet")),
            ("--x--", Some("x")),
            ("\u{1f68c}", None),
            ("", None),
            ("a\0b", Some("a")),
        ] {
            assert_eq!(valid_host_name(sent.as_bytes()).as_deref(), name, "{sent:?}");
        }
        assert_eq!(valid_host_name(&[b'a'; 300]).map(|name| name.len()), Some(63));
    }

    #[test]
    fn fqdn_in_both_encodings_gives_its_first_label() {
        assert_eq!(host_name_of_fqdn(b"\x00\x00\x00host.bus.example").as_deref(), Some("host"));
        assert_eq!(host_name_of_fqdn(b"\x04\x00\x00\x04host\x03bus\x00").as_deref(), Some("host"));
        assert_eq!(host_name_of_fqdn(b"\x04\x00\x00\x09host"), None);
        assert_eq!(host_name_of_fqdn(b"\x04\x00"), None);
    }
}
