//! Options by which a router configures hosts: DNS servers and search list (RFC 8106 5.1, 5.2), the prefix of
//! a NAT64 (RFC 8781 4), and the captive portal (RFC 8910 2.3).
//!
//! Each type reads its option and returns the octets behind the option's length. A receiver ignores an option
//! with an invalid length or field: `read` then returns `None`.
//!
//! ```text
//!  |   25   | length | reserved (2) | lifetime (4) | addresses (16 each) ...
//!  |   31   | length | reserved (2) | lifetime (4) | domain names (RFC 1035 3.1), then zeros
//!  |   38   |   2    | lifetime / 8 (13 bits), code of the prefix length (3 bits) | 96 bits of the prefix
//!  |   37   | length | URI, then zeros
//! ```
//!
//! Left out: compressed domain names, which RFC 8106 5.2 forbids, and names with octets that are no printable
//! ASCII.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::nd_option::{NdOption, option_type};
use crate::octets::{address_at, array_at, octets_from, u8_at, u16_at, u32_at};

/// Octets after type and length in the longest option, whose length is 255 units of 8 octets.
const MAX_OPTION_DATA: usize = 255 * 8 - 2;
/// Length in octets of the reserved field and the lifetime, which the two DNS options have in common.
const DNS_OPTION_HEAD_LEN: usize = 6;
/// The most addresses that one Recursive DNS Server option holds.
pub const MAX_DNS_SERVERS: usize = (MAX_OPTION_DATA - DNS_OPTION_HEAD_LEN) / 16;
/// The most octets of a domain name, with the length of each label and the root.
const MAX_DOMAIN_NAME_LEN: usize = 255;
/// The most octets of a label.
const MAX_DOMAIN_LABEL_LEN: usize = 63;
/// The prefix lengths of RFC 8781 4, in the order of their codes.
const PREF64_LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];
/// The longest lifetime of a PREF64 option, seconds.
pub const MAX_PREF64_LIFETIME: u16 = 8191 * 8;
const NAME_IN_ERRORS: &str = "host configuration option";

/// Recursive DNS Server option (RFC 8106 5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecursiveDnsServers {
    /// Time for which hosts may use the servers, seconds; 0: they must not use them any more; 0xffffffff:
    /// infinity.
    pub lifetime: u32,
    /// Addresses of the servers.
    pub servers: Vec<Ipv6Addr>,
}

impl RecursiveDnsServers {
    /// Reads the option; `None` for another option or an invalid one.
    pub fn read(option: &NdOption<'_>) -> Option<Self> {
        let data = option_data_of_type(option, option_type::RECURSIVE_DNS_SERVER)?;
        let addresses = octets_from(data, DNS_OPTION_HEAD_LEN, NAME_IN_ERRORS).ok()?;
        // RFC 8106 5.3.1: an odd length, and at least 3.
        if addresses.is_empty() || !addresses.len().is_multiple_of(16) {
            return None;
        }
        let servers = (0..addresses.len()).step_by(16).map(|at| address_at(addresses, at, NAME_IN_ERRORS));
        Some(RecursiveDnsServers {
            lifetime: u32_at(data, 2, NAME_IN_ERRORS).ok()?,
            servers: servers.collect::<Result<_, _>>().ok()?,
        })
    }

    /// Returns the octets behind the option's length: at most [`MAX_DNS_SERVERS`] addresses.
    pub fn emit_data(&self) -> Vec<u8> {
        let mut data = emit_dns_option_head(self.lifetime);
        data.extend(self.servers.iter().take(MAX_DNS_SERVERS).flat_map(Ipv6Addr::octets));
        data
    }
}

/// DNS Search List option (RFC 8106 5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSearchList {
    /// Time for which hosts may use the names, seconds; 0: they must not use them any more; 0xffffffff:
    /// infinity.
    pub lifetime: u32,
    /// Domain names without the dot of the root.
    pub domains: Vec<String>,
}

impl DnsSearchList {
    /// Reads the option; `None` for another option or an invalid one.
    pub fn read(option: &NdOption<'_>) -> Option<Self> {
        let data = option_data_of_type(option, option_type::DNS_SEARCH_LIST)?;
        let mut domains = Vec::new();
        let mut left = octets_from(data, DNS_OPTION_HEAD_LEN, NAME_IN_ERRORS).ok()?;
        while left.first().is_some_and(|length| *length != 0) {
            let (domain, behind) = parse_domain_name(left)?;
            domains.push(domain);
            left = behind;
        }
        let lifetime = u32_at(data, 2, NAME_IN_ERRORS).ok()?;
        (!domains.is_empty()).then_some(DnsSearchList { lifetime, domains })
    }

    /// Returns the octets behind the option's length. It omits a name that has no encoding, and every name
    /// that does not fit into the option.
    pub fn emit_data(&self) -> Vec<u8> {
        let mut data = emit_dns_option_head(self.lifetime);
        for name in self.domains.iter().filter_map(|domain| encode_domain_name(domain)) {
            if data.len() + name.len() <= MAX_OPTION_DATA {
                data.extend(name);
            }
        }
        data
    }
}

/// Returns the encoding of a domain name (RFC 1035 3.1); `None` if the name cannot be encoded.
pub fn encode_domain_name(domain: &str) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    for label in domain.split('.') {
        let is_label = (1..=MAX_DOMAIN_LABEL_LEN).contains(&label.len())
            && label.bytes().all(|it| it.is_ascii_graphic());
        name.push(u8::try_from(label.len()).ok().filter(|_| is_label)?);
        name.extend_from_slice(label.as_bytes());
    }
    name.push(0);
    (name.len() <= MAX_DOMAIN_NAME_LEN).then_some(name)
}

/// Reads a domain name, and returns it with the octets behind it; `None` if the encoding is invalid.
fn parse_domain_name(octets: &[u8]) -> Option<(String, &[u8])> {
    let mut labels = Vec::new();
    let mut left = octets;
    loop {
        let length = usize::from(u8_at(left, 0, NAME_IN_ERRORS).ok()?);
        let behind = octets_from(left, 1, NAME_IN_ERRORS).ok()?;
        if length == 0 {
            let is_short = octets.len() - behind.len() <= MAX_DOMAIN_NAME_LEN;
            return is_short.then(|| (labels.join("."), behind));
        }
        let label = behind.get(..length).filter(|_| length <= MAX_DOMAIN_LABEL_LEN)?;
        if !label.iter().all(|octet| octet.is_ascii_graphic() && *octet != b'.') {
            return None;
        }
        labels.push(String::from_utf8(label.to_vec()).ok()?);
        left = octets_from(behind, length, NAME_IN_ERRORS).ok()?;
    }
}

/// PREF64 option (RFC 8781 4): the prefix of a NAT64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pref64 {
    lifetime: u16,
    prefix: Ipv6Net,
}

impl Pref64 {
    /// Returns an option; `None` for another prefix length than 96, 64, 56, 48, 40 and 32.
    ///
    /// `lifetime` is in seconds; 0 means that hosts must not use the prefix any more. The function rounds the
    /// lifetime up to a multiple of 8 s and limits it to [`MAX_PREF64_LIFETIME`] (RFC 8781 4.1).
    pub fn new(prefix: Ipv6Net, lifetime: u16) -> Option<Self> {
        let lifetime = lifetime.min(MAX_PREF64_LIFETIME).next_multiple_of(8);
        PREF64_LENGTHS.contains(&prefix.prefix_len()).then_some(Pref64 { lifetime, prefix: prefix.trunc() })
    }

    /// Lifetime in seconds, a multiple of 8.
    pub fn lifetime(&self) -> u16 {
        self.lifetime
    }

    /// The prefix, without host bits.
    pub fn prefix(&self) -> Ipv6Net {
        self.prefix
    }

    /// Reads the option; `None` for another option or an invalid one.
    pub fn read(option: &NdOption<'_>) -> Option<Self> {
        let data = option_data_of_type(option, option_type::PREF64)?;
        let scaled = u16_at(data, 0, NAME_IN_ERRORS).ok()?;
        let length = PREF64_LENGTHS.get(usize::from(scaled & 7))?;
        let mut octets = [0; 16];
        let [high @ .., _, _, _, _] = &mut octets;
        *high = array_at::<12>(data, 2, NAME_IN_ERRORS).ok().filter(|_| data.len() == 14)?;
        Pref64::new(Ipv6Net::new(octets.into(), *length).ok()?, scaled & !7)
    }

    /// Returns the octets behind the option's length.
    pub fn emit_data(&self) -> Vec<u8> {
        let code = PREF64_LENGTHS.iter().position(|length| *length == self.prefix.prefix_len());
        let code = code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
        let mut data = (self.lifetime | code).to_be_bytes().to_vec();
        data.extend(self.prefix.network().octets().iter().take(12));
        data
    }
}

/// Captive-Portal option (RFC 8910 2.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptivePortal {
    /// URI of the portal's API (RFC 8908), or [`Self::UNRESTRICTED`].
    pub uri: String,
}

impl CaptivePortal {
    /// URI that means that the network has no captive portal (RFC 8910 2).
    pub const UNRESTRICTED: &'static str = "urn:ietf:params:capport:unrestricted";

    /// Reads the option; `None` for another option or an invalid one.
    pub fn read(option: &NdOption<'_>) -> Option<Self> {
        let data = option_data_of_type(option, option_type::CAPTIVE_PORTAL)?;
        let end = data.iter().rposition(|octet| *octet != 0)? + 1;
        let uri = String::from_utf8(data.get(..end)?.to_vec()).ok()?;
        uri.bytes().all(|octet| octet.is_ascii_graphic()).then_some(CaptivePortal { uri })
    }

    /// Returns the octets behind the option's length.
    pub fn emit_data(&self) -> Vec<u8> {
        self.uri.bytes().take(MAX_OPTION_DATA).collect()
    }
}

/// Returns the octets behind the length of an option of this type; `None` for another type.
fn option_data_of_type<'a>(option: &NdOption<'a>, wanted: u8) -> Option<&'a [u8]> {
    match *option {
        NdOption::Unknown { option_type, data } if option_type == wanted => Some(data),
        _ => None,
    }
}

/// Returns the reserved octets and the lifetime of a DNS option.
fn emit_dns_option_head(lifetime: u32) -> Vec<u8> {
    let mut data = vec![0; 2];
    data.extend(lifetime.to_be_bytes());
    data
}
