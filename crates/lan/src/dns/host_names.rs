//! Names of the hosts on board, and answers about them without a server.
//!
//! The name of a host consists of a label and the domain of the vehicle. The label is the name that the host
//! sent with its DHCP request, or the name in its reservation. A host makes its IPv6 addresses itself. The
//! caller finds the IPv6 addresses at which the link-layer address of the lease has answered, and the table
//! has these addresses.
//!
//! No server gets queries about the domain [`DEFAULT_DOMAIN`], single labels, hosts with a lease, and domains
//! that have no server (RFC 6761). The same holds for the reverse names of the prefixes of the mobile
//! network, as RFC 6303 asks for private prefixes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::message::{
    CLASS_IN, DnsQuery, DnsQuestion, DnsResponseCode, encode_own_record, record_type, reverse_network,
};

/// Domain of the vehicle if the config has no search list. No server on the Internet knows this domain.
pub const DEFAULT_DOMAIN: &str = "lan";
/// Other domains that have no server (RFC 6761 6.3 and 6.4, RFC 6762 22.1, RFC 7686 2).
const DOMAINS_WITHOUT_SERVER: [&str; 4] = ["local", "localhost", "invalid", "onion"];
/// Time to live of the records in seconds. It is short, because hosts come and go.
const RECORD_TTL_SECONDS: u32 = 60;
/// Types of records that a validating host requests about a top-level domain. The forwarder passes these
/// queries to a server.
const RECORD_TYPES_ASKED_OF_SERVERS: [u16; 4] =
    [record_type::NS, record_type::SOA, record_type::DS, record_type::DNSKEY];

/// Maximum number of IPv6 addresses of a host. With this number, an answer has at most 512 octets.
const MAX_IPV6_PER_HOST: usize = 8;

/// Properties of an interface of the mobile network on which the visible names depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnBoardNetwork {
    /// Number by which the caller distinguishes the interfaces.
    pub network_number: usize,
    /// Whether hosts at this interface and hosts at other interfaces exchange no packets.
    pub is_isolated: bool,
}

impl OnBoardNetwork {
    /// Returns whether hosts of this network may learn the names of hosts of the network `other`.
    fn learns_names_of(self, other: OnBoardNetwork) -> bool {
        self.network_number == other.network_number || !(self.is_isolated || other.is_isolated)
    }
}

/// A host on board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedHost {
    /// Network of the host.
    pub network: OnBoardNetwork,
    /// Name of the host.
    pub name: String,
    /// IPv4 address of the host.
    pub ipv4_address: Ipv4Addr,
    /// IPv6 addresses of the host, the preferred first.
    pub ipv6_addresses: Vec<Ipv6Addr>,
}

/// Hosts on board, with their names and addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    /// Domains of the vehicle, without the final dot: each host has a name below each of them. Names below
    /// [`DEFAULT_DOMAIN`] exist in any case.
    pub name_domains: Vec<String>,
    /// Prefixes of the mobile network.
    pub prefixes: Vec<IpNet>,
    /// Hosts of each name. Two hosts may have the same name if their networks do not learn each other's
    /// names.
    hosts_by_name: BTreeMap<String, Vec<NamedHost>>,
    host_by_address: BTreeMap<IpAddr, (String, OnBoardNetwork)>,
}

/// Result of the search for a name among the names that the vehicle itself knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKnowledge<'a> {
    /// The name belongs to this host.
    Host(&'a NamedHost),
    /// The reverse name belongs to the host with this name.
    Reverse(&'a str),
    /// The name has no records, but names below it may have some.
    Zone,
    /// The vehicle knows that the name does not exist.
    Nothing,
}

impl HostNames {
    /// Creates the table of these hosts. If two hosts have one name, and their networks learn each other's
    /// names, the first host gets the name. Leaves out IPv6 addresses outside of the prefixes.
    pub fn new(
        domains: Vec<String>,
        prefixes: Vec<IpNet>,
        hosts: impl Iterator<Item = NamedHost>,
    ) -> HostNames {
        let mut names = HostNames { name_domains: domains, prefixes, ..HostNames::default() };
        for mut host in hosts {
            let is_inside =
                |address: &Ipv6Addr| names.prefixes.iter().any(|it| it.contains(&IpAddr::V6(*address)));
            host.ipv6_addresses.retain(is_inside);
            host.ipv6_addresses.truncate(MAX_IPV6_PER_HOST);
            let ipv6 = host.ipv6_addresses.iter().copied().map(IpAddr::V6);
            for address in ipv6.chain([IpAddr::V4(host.ipv4_address)]) {
                names.host_by_address.entry(address).or_insert_with(|| (host.name.clone(), host.network));
            }
            let known = names.hosts_by_name.entry(host.name.clone()).or_default();
            // Only the first host of each network gets the name. So the list is at most as long as the list
            // of networks.
            if !known.iter().any(|other| other.network == host.network) {
                known.push(host);
            }
        }
        names
    }

    /// Returns whether the answer to a question depends on the IPv6 addresses of hosts.
    pub fn depends_on_ipv6_addresses(&self, client: OnBoardNetwork, question: &DnsQuestion) -> bool {
        match reverse_network(&question.name_labels()) {
            Some((IpNet::V6(network), _)) => self.find_reverse_name(client, network.into(), true).is_some(),
            Some((IpNet::V4(_), _)) => false,
            None => {
                matches!(question.record_type, record_type::AAAA | record_type::ANY)
                    && matches!(self.find_name_for_client(client, question), Some(NameKnowledge::Host(_)))
            }
        }
    }

    /// Returns the answer to a query about a host or an address on board; `None` if a server has to answer.
    /// `client` is the network of the host that asks. For this host, names of hosts in networks that it must
    /// not learn do not exist.
    pub fn answer_about_host(&self, client: OnBoardNetwork, query: &DnsQuery) -> Option<Vec<u8>> {
        let known = self.find_name_for_client(client, &query.question)?;
        if query.question.record_class != CLASS_IN {
            return Some(query.empty_answer(DnsResponseCode::NotSupported));
        }
        let (code, records) = match known {
            NameKnowledge::Host(host) => {
                let ipv6 =
                    host.ipv6_addresses.iter().map(|address| (record_type::AAAA, address.octets().to_vec()));
                let ipv4 = (record_type::A, host.ipv4_address.octets().to_vec());
                (DnsResponseCode::Success, ipv6.chain([ipv4]).collect())
            }
            NameKnowledge::Reverse(name) => {
                (DnsResponseCode::Success, vec![(record_type::PTR, self.encode_full_name(name)?)])
            }
            NameKnowledge::Zone => (DnsResponseCode::Success, Vec::new()),
            NameKnowledge::Nothing => (DnsResponseCode::NoName, Vec::new()),
        };
        let wanted = query.question.record_type;
        let records = records.iter().filter(|(kind, _)| *kind == wanted || wanted == record_type::ANY);
        let records: Vec<Vec<u8>> =
            records.map(|(kind, data)| encode_own_record(*kind, RECORD_TTL_SECONDS, data)).collect();
        Some(query.local_answer(code, &records.concat(), u16::try_from(records.len()).ok()?))
    }

    /// Returns what the vehicle knows about the name of a question; `None` if a server may know it.
    fn find_name_for_client(
        &self,
        client: OnBoardNetwork,
        question: &DnsQuestion,
    ) -> Option<NameKnowledge<'_>> {
        let labels = question.name_labels();
        match reverse_network(&labels) {
            Some((network, is_whole)) => self.find_reverse_name(client, network, is_whole),
            None => self.find_host_record(client, &labels, question.record_type),
        }
    }

    /// Returns what the vehicle knows about the reverse name of a network. `is_whole` says that the name has
    /// only the labels of the network.
    fn find_reverse_name(
        &self,
        client: OnBoardNetwork,
        network: IpNet,
        is_whole: bool,
    ) -> Option<NameKnowledge<'_>> {
        self.prefixes.iter().find(|prefix| prefix.contains(&network))?;
        let is_host = network.prefix_len() == network.max_prefix_len();
        Some(match self.host_by_address.get(&network.addr()) {
            _ if is_whole && !is_host => NameKnowledge::Zone,
            Some((name, of)) if is_whole && client.learns_names_of(*of) => NameKnowledge::Reverse(name),
            _ => NameKnowledge::Nothing,
        })
    }

    fn find_host_record(
        &self,
        client: OnBoardNetwork,
        labels: &[&[u8]],
        kind: u16,
    ) -> Option<NameKnowledge<'_>> {
        let (name, domain) = labels.split_first()?;
        let is_default = labels.last() == Some(&DEFAULT_DOMAIN.as_bytes());
        if is_default && domain.is_empty() {
            return Some(NameKnowledge::Zone);
        }
        let is = |known: &str| {
            let known = known.split('.').map(str::as_bytes);
            known.clone().count() == domain.len()
                && known.zip(domain).all(|(known, label)| known.eq_ignore_ascii_case(label))
        };
        let is_of_config = self.name_domains.iter().any(|known| is(known));
        // The domain is empty if a host sends a query for a short name.
        let is_ours = domain.is_empty() || is(DEFAULT_DOMAIN) || is_of_config;
        let name = std::str::from_utf8(name).ok().filter(|_| is_ours);
        let hosts = name.and_then(|name| self.hosts_by_name.get(name)).into_iter().flatten();
        if let Some(host) = hosts.into_iter().find(|host| client.learns_names_of(host.network)) {
            return Some(NameKnowledge::Host(host));
        }
        if domain.is_empty() {
            return (!RECORD_TYPES_ASKED_OF_SERVERS.contains(&kind)).then_some(NameKnowledge::Nothing);
        }
        let is_without_server =
            is_default || DOMAINS_WITHOUT_SERVER.iter().any(|known| is_in_domain(labels, known));
        // For a name below a domain of the config that no host has, a server may have records.
        let mut others = self.name_domains.iter().filter(|known| !known.eq_ignore_ascii_case(DEFAULT_DOMAIN));
        (is_without_server && !others.any(|known| is_in_domain(labels, known)))
            .then_some(NameKnowledge::Nothing)
    }

    /// Returns the full name of a host in DNS wire format, with the first configured search domain, or
    /// `DEFAULT_DOMAIN` without a search list. Returns `None` if a label is too long.
    fn encode_full_name(&self, name: &str) -> Option<Vec<u8>> {
        let domain = self.name_domains.first().map_or(DEFAULT_DOMAIN, String::as_str);
        let mut octets: Vec<u8> = Vec::new();
        for label in std::iter::once(name).chain(domain.split('.')) {
            octets.push(u8::try_from(label.len()).ok()?);
            octets.extend(label.as_bytes());
        }
        octets.push(0);
        Some(octets)
    }
}

/// Returns whether a name is the domain itself or a name below it.
fn is_in_domain(labels: &[&[u8]], domain: &str) -> bool {
    let mut labels = labels.iter().rev();
    domain
        .split('.')
        .rev()
        .all(|known| labels.next().is_some_and(|label| known.as_bytes().eq_ignore_ascii_case(label)))
}
