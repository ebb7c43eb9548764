//! Names of the hosts on board, and answers about them without a server.
//!
//! A host has the name that it sent with its DHCP request, or that of its reservation, below the domain of
//! the vehicle. A host makes its IPv6 addresses itself. The table has those at which the host with the
//! link-layer address of the lease has answered; the caller finds them.
//!
//! No server gets queries about the domain [`DEFAULT_DOMAIN`], single labels, hosts with a lease, and domains
//! that have no server (RFC 6761). The same holds for the reverse names of the prefixes of the mobile
//! network, as RFC 6303 asks for private ones.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::message::{CLASS_IN, Code, Query, Question, own_record, record, reverse_network};

/// Domain of the vehicle if the config has no search list. No server on the Internet knows this domain.
pub const DEFAULT_DOMAIN: &str = "lan";
/// Other domains that have no server (RFC 6761 6.3 and 6.4, RFC 6762 22.1, RFC 7686 2).
const DOMAINS_WITHOUT_SERVER: [&str; 4] = ["local", "localhost", "invalid", "onion"];
/// Time to live of the records in seconds: hosts come and go.
const TTL: u32 = 60;
/// Types of records that a validating host requests about a top-level domain.
const TYPES_OF_TOP_LEVEL_DOMAINS: [u16; 4] = [record::NS, record::SOA, record::DS, record::DNSKEY];

/// Maximum number of IPv6 addresses of a host: they fit into an answer of 512 octets.
const MAX_IPV6: usize = 8;

/// An interface of the mobile network, as far as names depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Number by which the caller distinguishes the interfaces.
    pub number: usize,
    /// Whether hosts at this interface and hosts at other interfaces exchange no packets.
    pub is_isolated: bool,
}

impl Network {
    /// Returns whether hosts of this network learn the names of hosts of `other`.
    fn knows(self, other: Network) -> bool {
        self.number == other.number || !(self.is_isolated || other.is_isolated)
    }
}

/// A host on board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Network of the host.
    pub network: Network,
    /// Name of the host.
    pub name: String,
    /// IPv4 address of the host.
    pub ipv4: Ipv4Addr,
    /// IPv6 addresses of the host, the preferred first.
    pub ipv6: Vec<Ipv6Addr>,
}

/// Hosts on board, with their names and addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    /// Domains below which the names are, without the final dot. Names below [`DEFAULT_DOMAIN`] are known
    /// even if it is not among them.
    pub domains: Vec<String>,
    /// Prefixes of the mobile network.
    pub prefixes: Vec<IpNet>,
    /// Hosts of each name. Hosts of networks that do not know each other may have the same name.
    by_name: BTreeMap<String, Vec<Host>>,
    by_address: BTreeMap<IpAddr, (String, Network)>,
}

/// Result of the search for a name in the knowledge of the vehicle itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known<'a> {
    /// The name belongs to this host.
    Host(&'a Host),
    /// The reverse name belongs to the host with this name.
    Reverse(&'a str),
    /// The name has no records, but names below it may have some.
    Zone,
    /// The vehicle knows that the name does not exist.
    Nothing,
}

impl HostNames {
    /// Creates the table of these hosts. If two hosts have one name and know each other, the first gets it.
    /// Leaves out IPv6 addresses outside of the prefixes.
    pub fn new(domains: Vec<String>, prefixes: Vec<IpNet>, hosts: impl Iterator<Item = Host>) -> HostNames {
        let mut names = HostNames { domains, prefixes, ..HostNames::default() };
        for mut host in hosts {
            let is_inside =
                |address: &Ipv6Addr| names.prefixes.iter().any(|it| it.contains(&IpAddr::V6(*address)));
            host.ipv6.retain(is_inside);
            host.ipv6.truncate(MAX_IPV6);
            let ipv6 = host.ipv6.iter().copied().map(IpAddr::V6);
            for address in ipv6.chain([IpAddr::V4(host.ipv4)]) {
                names.by_address.entry(address).or_insert_with(|| (host.name.clone(), host.network));
            }
            let known = names.by_name.entry(host.name.clone()).or_default();
            // The first host of a network gets the name. So the list is at most as long as that of the
            // networks.
            if !known.iter().any(|other| other.network == host.network) {
                known.push(host);
            }
        }
        names
    }

    /// Returns whether the answer to a question depends on the IPv6 addresses of hosts.
    pub fn needs_ipv6(&self, client: Network, question: &Question) -> bool {
        match reverse_network(&question.labels()) {
            Some((IpNet::V6(network), _)) => self.reverse(client, network.into(), true).is_some(),
            Some((IpNet::V4(_), _)) => false,
            None => {
                matches!(question.kind, record::AAAA | record::ANY)
                    && matches!(self.find(client, question), Some(Known::Host(_)))
            }
        }
    }

    /// Returns the answer to a query about a host or an address on board; `None` if a server has to answer.
    /// `client` is the network of the host that asks. Names of hosts that it does not know do not exist for
    /// it.
    pub fn answer(&self, client: Network, query: &Query) -> Option<Vec<u8>> {
        let known = self.find(client, &query.question)?;
        if query.question.class != CLASS_IN {
            return Some(query.empty(Code::NotSupported));
        }
        let (code, records) = match known {
            Known::Host(host) => {
                let ipv6 = host.ipv6.iter().map(|address| (record::AAAA, address.octets().to_vec()));
                let ipv4 = (record::A, host.ipv4.octets().to_vec());
                (Code::Success, ipv6.chain([ipv4]).collect())
            }
            Known::Reverse(name) => (Code::Success, vec![(record::PTR, self.full_name(name)?)]),
            Known::Zone => (Code::Success, Vec::new()),
            Known::Nothing => (Code::NoName, Vec::new()),
        };
        let wanted = query.question.kind;
        let records = records.iter().filter(|(kind, _)| *kind == wanted || wanted == record::ANY);
        let records: Vec<Vec<u8>> = records.map(|(kind, data)| own_record(*kind, TTL, data)).collect();
        Some(query.local(code, &records.concat(), u16::try_from(records.len()).ok()?))
    }

    /// Returns what the vehicle knows about the name of a question; `None` if a server may know it.
    fn find(&self, client: Network, question: &Question) -> Option<Known<'_>> {
        let labels = question.labels();
        match reverse_network(&labels) {
            Some((network, is_whole)) => self.reverse(client, network, is_whole),
            None => self.forward(client, &labels, question.kind),
        }
    }

    /// Returns what the vehicle knows about the reverse name of a network. `is_whole` says whether the name
    /// has no labels besides those of the network.
    fn reverse(&self, client: Network, network: IpNet, is_whole: bool) -> Option<Known<'_>> {
        self.prefixes.iter().find(|prefix| prefix.contains(&network))?;
        let is_host = network.prefix_len() == network.max_prefix_len();
        Some(match self.by_address.get(&network.addr()) {
            _ if is_whole && !is_host => Known::Zone,
            Some((name, of)) if is_whole && client.knows(*of) => Known::Reverse(name),
            _ => Known::Nothing,
        })
    }

    fn forward(&self, client: Network, labels: &[&[u8]], kind: u16) -> Option<Known<'_>> {
        let (name, domain) = labels.split_first()?;
        let is_default = labels.last() == Some(&DEFAULT_DOMAIN.as_bytes());
        if is_default && domain.is_empty() {
            return Some(Known::Zone);
        }
        let is = |known: &str| {
            let known = known.split('.').map(str::as_bytes);
            known.clone().count() == domain.len()
                && known.zip(domain).all(|(known, label)| known.eq_ignore_ascii_case(label))
        };
        let is_of_config = self.domains.iter().any(|known| is(known));
        // Hosts also send queries for short names, without a domain.
        let is_ours = domain.is_empty() || is(DEFAULT_DOMAIN) || is_of_config;
        let name = std::str::from_utf8(name).ok().filter(|_| is_ours);
        let hosts = name.and_then(|name| self.by_name.get(name)).into_iter().flatten();
        if let Some(host) = hosts.into_iter().find(|host| client.knows(host.network)) {
            return Some(Known::Host(host));
        }
        if domain.is_empty() {
            return (!TYPES_OF_TOP_LEVEL_DOMAINS.contains(&kind)).then_some(Known::Nothing);
        }
        let is_without_server =
            is_default || DOMAINS_WITHOUT_SERVER.iter().any(|known| is_below(labels, known));
        // A server may know other names in a domain of the config.
        let mut others = self.domains.iter().filter(|known| !known.eq_ignore_ascii_case(DEFAULT_DOMAIN));
        (is_without_server && !others.any(|known| is_below(labels, known))).then_some(Known::Nothing)
    }

    /// Returns the name of a host below the first domain, in the octets of DNS.
    fn full_name(&self, name: &str) -> Option<Vec<u8>> {
        let domain = self.domains.first().map_or(DEFAULT_DOMAIN, String::as_str);
        let mut octets: Vec<u8> = Vec::new();
        for label in std::iter::once(name).chain(domain.split('.')) {
            octets.push(u8::try_from(label.len()).ok()?);
            octets.extend(label.as_bytes());
        }
        octets.push(0);
        Some(octets)
    }
}

/// Returns whether a name is a domain or below it.
fn is_below(labels: &[&[u8]], domain: &str) -> bool {
    let mut labels = labels.iter().rev();
    domain
        .split('.')
        .rev()
        .all(|known| labels.next().is_some_and(|label| known.as_bytes().eq_ignore_ascii_case(label)))
}
