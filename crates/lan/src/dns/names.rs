//! Names of the hosts on board: answers about them, without a server.
//!
//! A host has the name that it sent with its DHCP request, or that of its reservation, below the domain of
//! the vehicle. The reverse names of all addresses on board belong to the vehicle, too: such queries never
//! leave it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use super::message::{CLASS_IN, Code, Query, own_record, record, reverse_address};

/// Domain of the vehicle without a search list: no server knows it.
pub const DEFAULT_DOMAIN: &str = "lan";
/// Time to live of the records in seconds: hosts come and go.
const TTL: u32 = 60;

/// Hosts on board, with their names and addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    /// Domains below which the names are, without the final dot. Names below [`DEFAULT_DOMAIN`] are known
    /// even if it is not among them.
    pub domains: Vec<String>,
    /// Prefixes of the mobile network.
    pub prefixes: Vec<Ipv4Net>,
    by_name: BTreeMap<String, Ipv4Addr>,
    by_address: BTreeMap<Ipv4Addr, String>,
}

impl HostNames {
    /// Creates the table of these hosts. If two hosts have one name, the first gets it.
    pub fn new(
        domains: Vec<String>,
        prefixes: Vec<Ipv4Net>,
        hosts: impl Iterator<Item = (String, Ipv4Addr)>,
    ) -> HostNames {
        let mut names = HostNames { domains, prefixes, ..HostNames::default() };
        for (name, address) in hosts {
            names.by_address.entry(address).or_insert_with(|| name.clone());
            names.by_name.entry(name).or_insert(address);
        }
        names
    }

    /// Returns the answer to a query about a host or an address on board; `None` if a server has to answer.
    pub fn answer(&self, query: &Query) -> Option<Vec<u8>> {
        if query.question.class != CLASS_IN {
            return None;
        }
        let labels = query.question.labels()?;
        match reverse_address(&labels) {
            Some(IpAddr::V4(address)) => self.reverse(query, address),
            Some(IpAddr::V6(_)) => None,
            None => self.forward(query, &labels),
        }
    }

    fn reverse(&self, query: &Query, address: Ipv4Addr) -> Option<Vec<u8>> {
        if !self.prefixes.iter().any(|prefix| prefix.contains(&address)) {
            return None;
        }
        let Some(name) = self.by_address.get(&address) else {
            return Some(query.local(Code::NoName, &[], 0));
        };
        let wanted = matches!(query.question.kind, record::PTR | record::ANY);
        let domain = self.domains.first().map_or(DEFAULT_DOMAIN, String::as_str);
        let full = std::iter::once(name.as_str()).chain(domain.split('.'));
        let mut data: Vec<u8> = Vec::new();
        for label in full {
            data.push(u8::try_from(label.len()).ok()?);
            data.extend(label.as_bytes());
        }
        data.push(0);
        let records = if wanted { own_record(record::PTR, TTL, &data) } else { Vec::new() };
        Some(query.local(Code::Success, &records, wanted.into()))
    }

    fn forward(&self, query: &Query, labels: &[&str]) -> Option<Vec<u8>> {
        let (name, domain) = labels.split_first()?;
        let domain = domain.join(".");
        let is_default = domain == DEFAULT_DOMAIN || labels == [DEFAULT_DOMAIN];
        // Hosts ask for short names too.
        let is_short = domain.is_empty() && labels != [DEFAULT_DOMAIN];
        let is_ours = is_short || is_default || self.domains.contains(&domain);
        let address = self.by_name.get(*name).filter(|_| is_ours && labels != [DEFAULT_DOMAIN]);
        match address {
            Some(address) => {
                let wanted = matches!(query.question.kind, record::A | record::ANY);
                let records = own_record(record::A, TTL, &address.octets());
                let records = if wanted { records } else { Vec::new() };
                Some(query.local(Code::Success, &records, wanted.into()))
            }
            // The domain of the config may have other names, which a server knows.
            None if is_default => Some(query.local(Code::NoName, &[], 0)),
            None => None,
        }
    }
}
