//! Options of DHCPv6 messages (RFC 8415 21): parsing those of clients, and encoding those of the server.

use std::net::Ipv6Addr;
use std::time::Duration;

use ipnet::Ipv6Net;

use super::Dhcpv6DropReason;

/// Codes of options (RFC 8415 21, RFC 3646, RFC 8910).
pub(super) mod option_code {
    pub const CLIENT_ID: u16 = 1;
    pub const SERVER_ID: u16 = 2;
    pub const IA_NA: u16 = 3;
    pub const IA_TA: u16 = 4;
    pub const OPTION_REQUEST: u16 = 6;
    pub const STATUS_CODE: u16 = 13;
    pub const DNS_SERVERS: u16 = 23;
    pub const DOMAIN_SEARCH: u16 = 24;
    pub const IA_PD: u16 = 25;
    pub const IA_PREFIX: u16 = 26;
    pub const INFORMATION_REFRESH_TIME: u16 = 32;
    pub const CAPTIVE_PORTAL: u16 = 103;
}
/// Maximum length of a client's DUID in octets (RFC 8415 11.1).
const MAX_DUID_LENGTH: usize = 130;
/// Maximum number of IA_PD and of IA_NA options in a message, and of prefixes in an IA_PD option. The server
/// ignores further ones.
const MAX_IDENTITY_ASSOCIATIONS: usize = 4;
const MAX_REQUESTED_PREFIXES: usize = 4;

/// Status codes (RFC 8415 21.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dhcpv6StatusCode {
    Success = 0,
    NoAddrsAvail = 2,
    NoBinding = 3,
    NoPrefixAvail = 6,
}

impl Dhcpv6StatusCode {
    /// Returns the value of a Status Code option.
    pub(super) fn status_option_value(self, text: &str) -> Vec<u8> {
        [&(self as u16).to_be_bytes(), text.as_bytes()].concat()
    }

    /// Returns a Status Code option.
    pub(super) fn to_option(self, text: &str) -> Vec<u8> {
        let mut octets = Vec::new();
        push_option(&mut octets, option_code::STATUS_CODE, &self.status_option_value(text))
            .map_or_else(Vec::new, |()| octets)
    }
}

/// Request for a prefix: an IA_PD option of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PrefixRequest {
    pub iaid: u32,
    /// Prefixes that the client has, or wants.
    pub prefixes: Vec<Ipv6Net>,
}

/// Request for an address: an IA_NA option of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddressRequest {
    pub iaid: u32,
}

/// Options of a client's message.
#[derive(Debug, Default)]
pub(super) struct Dhcpv6ClientMessage<'a> {
    pub client_duid: Option<&'a [u8]>,
    pub server_duid: Option<&'a [u8]>,
    pub requested_options: Vec<u16>,
    pub prefix_requests: Vec<PrefixRequest>,
    pub address_requests: Vec<AddressRequest>,
    has_ia_ta: bool,
}

impl<'a> Dhcpv6ClientMessage<'a> {
    pub(super) fn parse(octets: &'a [u8]) -> Result<Dhcpv6ClientMessage<'a>, Dhcpv6DropReason> {
        let mut request = Dhcpv6ClientMessage::default();
        for option in split_options(octets) {
            let (code, value) = option?;
            match code {
                option_code::CLIENT_ID if value.len() > MAX_DUID_LENGTH => {
                    return Err(Dhcpv6DropReason::Malformed);
                }
                option_code::CLIENT_ID => request.client_duid = request.client_duid.or(Some(value)),
                option_code::SERVER_ID => request.server_duid = request.server_duid.or(Some(value)),
                option_code::OPTION_REQUEST => {
                    let codes = value.as_chunks::<2>().0.iter().map(|code| u16::from_be_bytes(*code));
                    request.requested_options.extend(codes);
                }
                option_code::IA_PD => {
                    let association = parse_ia_pd(value)?;
                    let is_known = request.prefix_requests.iter().any(|known| known.iaid == association.iaid);
                    if request.prefix_requests.len() < MAX_IDENTITY_ASSOCIATIONS && !is_known {
                        request.prefix_requests.push(association);
                    }
                }
                option_code::IA_NA => {
                    let (iaid, _) = value.split_first_chunk::<12>().ok_or(Dhcpv6DropReason::Malformed)?;
                    let [a, b, c, d, ..] = *iaid;
                    if request.address_requests.len() < MAX_IDENTITY_ASSOCIATIONS {
                        request
                            .address_requests
                            .push(AddressRequest { iaid: u32::from_be_bytes([a, b, c, d]) });
                    }
                }
                option_code::IA_TA => request.has_ia_ta = true,
                _ => {}
            }
        }
        Ok(request)
    }

    /// Returns whether the client requests addresses or prefixes.
    pub(super) fn has_associations(&self) -> bool {
        self.has_ia_ta || !self.address_requests.is_empty() || !self.prefix_requests.is_empty()
    }
}

/// Parses the value of an IA_PD option (RFC 8415 21.21, 21.22).
fn parse_ia_pd(value: &[u8]) -> Result<PrefixRequest, Dhcpv6DropReason> {
    // The client's suggestions for the two times after the IAID are ignored.
    let ([a, b, c, d, ..], content) = value.split_first_chunk::<12>().ok_or(Dhcpv6DropReason::Malformed)?;
    let mut association = PrefixRequest { iaid: u32::from_be_bytes([*a, *b, *c, *d]), prefixes: Vec::new() };
    for option in split_options(content) {
        let (code, value) = option?;
        if code != option_code::IA_PREFIX {
            continue;
        }
        let (_lifetimes, rest) = value.split_first_chunk::<8>().ok_or(Dhcpv6DropReason::Malformed)?;
        let (length, rest) = rest.split_first().ok_or(Dhcpv6DropReason::Malformed)?;
        let (address, _) = rest.split_first_chunk::<16>().ok_or(Dhcpv6DropReason::Malformed)?;
        let prefix =
            Ipv6Net::new(Ipv6Addr::from(*address), *length).map_err(|_| Dhcpv6DropReason::Malformed)?;
        // A client may state only the length that it wants; the address is then `::`. Such a prefix names no
        // network.
        if association.prefixes.len() < MAX_REQUESTED_PREFIXES && !prefix.network().is_unspecified() {
            association.prefixes.push(prefix.trunc());
        }
    }
    Ok(association)
}

/// Returns code and value of each option. If the octets end inside an option, the last item is an error.
pub(super) fn split_options(
    mut octets: &[u8],
) -> impl Iterator<Item = Result<(u16, &[u8]), Dhcpv6DropReason>> {
    std::iter::from_fn(move || {
        if octets.is_empty() {
            return None;
        }
        let option = octets.split_first_chunk::<4>().and_then(|([a, b, c, d], rest)| {
            let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*c, *d])))?;
            octets = rest;
            Some((u16::from_be_bytes([*a, *b]), value))
        });
        if option.is_none() {
            octets = &[];
        }
        Some(option.ok_or(Dhcpv6DropReason::Malformed))
    })
}

/// Appends an option; `None` if the value is too long for an option.
pub(super) fn push_option(octets: &mut Vec<u8>, code: u16, value: &[u8]) -> Option<()> {
    let length = u16::try_from(value.len()).ok()?;
    octets.extend(code.to_be_bytes());
    octets.extend(length.to_be_bytes());
    octets.extend(value);
    Some(())
}

/// Appends a prefix with its lifetimes, which are equal (RFC 8415 21.22).
pub(super) fn push_ia_prefix(octets: &mut Vec<u8>, prefix: Ipv6Net, lifetime: Duration) {
    let lifetime = lifetime_seconds(lifetime).to_be_bytes();
    let value = [&lifetime, &lifetime, &[prefix.prefix_len()][..], &prefix.network().octets()].concat();
    let _always_fits = push_option(octets, option_code::IA_PREFIX, &value);
}

/// Returns a duration in seconds, below the value that means infinity (RFC 8415 7.7).
pub(super) fn lifetime_seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).min(u32::MAX - 1)
}
