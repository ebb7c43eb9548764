//! `[[mobile_router.lan]]`, or the name of the interface alone.

mod dhcp;
mod inbound_filter;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use carnet_nemo::forwarding::{PrefixAssignment, assign_prefixes};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::super::conflicts::check_disjoint;
use super::super::errors::ErrorSink;
use super::super::keys::{
    DeclaredKey, Disclosure, Key, OptionalKey, Section, ValueKind, integer_kind, key_with_default,
    optional_key, required_key, text_kind, value_kind,
};
use super::super::reader::{List, Located, LocatedValue};
use super::super::table::{Table, all};
use super::super::{kinds, values};

pub use dhcp::{Dhcp, DhcpOption, DhcpReservation};
pub use inbound_filter::{AllowedPackets, InboundFilter, InboundPolicy};

/// Maximum length of the servers or names in one DNS option of a Router Advertisement of 1280 octets. The
/// IPv6 header takes 40 octets, the fixed part 16, the link-layer address 8, and the option's fixed part 8.
const MAX_DNS_LENGTH: usize = 1280 - 40 - 16 - 8 - 8;
/// Maximum number of DNS servers.
const MAX_DNS_SERVERS: usize = MAX_DNS_LENGTH / 16;
/// Length of the shortest prefix that routers on board get.
const MIN_DELEGATED_LENGTH: i64 = 32;
/// Maximum length of the URI: a longer one does not fit into the option of DHCP for IPv4 (RFC 8910 2).
const MAX_URI_LENGTH: usize = 255;

/// Values of the config table `[[mobile_router.lan]]`, or of a name in `mobile_router.lan`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lan {
    /// Name of the interface.
    pub interface: String,
    /// Prefixes of the interface. If empty, the interface gets a share of the prefixes that no other
    /// interface's table has.
    pub prefixes: Vec<Ipv6Net>,
    /// IPv4 prefixes of the interface. If empty, the interface gets a share of the prefixes that no other
    /// interface's table has.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// DNS servers for hosts.
    pub dns_servers: Vec<IpAddr>,
    /// Domain names that hosts append to short names.
    pub search_domains: Vec<String>,
    /// NAT64 prefix that the Router Advertisements announce to hosts.
    pub nat64_prefix: Option<Ipv6Net>,
    /// MTU that hosts get; `None` for an MTU at which their packets fit into the tunnel.
    pub mtu: Option<u32>,
    /// URI of the captive portal's API.
    pub captive_portal: Option<String>,
    /// Length of the prefixes that routers on the interface get (RFC 8415); `None` if they get none.
    pub delegated_prefix_length: Option<u8>,
    /// Whether carnet gives the interface an address and advertises its prefixes.
    pub sends_router_advertisements: bool,
    /// DHCP for IPv4.
    pub dhcp: Dhcp,
    /// Firewall for packets from outside to hosts on this interface.
    pub inbound_filter: InboundFilter,
}

impl Lan {
    /// Creates the config of an interface that the config file only names.
    pub(in crate::config) fn named(interface: &str, advertise: bool) -> Lan {
        Lan {
            interface: interface.to_owned(),
            prefixes: Vec::new(),
            ipv4_prefixes: Vec::new(),
            dns_servers: Vec::new(),
            search_domains: Vec::new(),
            nat64_prefix: None,
            mtu: None,
            captive_portal: None,
            delegated_prefix_length: None,
            sends_router_advertisements: advertise,
            dhcp: Dhcp::default(),
            inbound_filter: InboundFilter::default(),
        }
    }
}

impl Lan {
    /// Returns whether carnet answers DHCPv6 requests on the interface. `forwards` says whether carnet
    /// forwards DNS queries of hosts.
    pub fn has_dhcpv6(&self, forwards: bool) -> bool {
        let has_dns = forwards || self.dns_servers.iter().any(IpAddr::is_ipv6);
        self.sends_router_advertisements
            && self.dhcp.enabled
            && (has_dns || !self.search_domains.is_empty() || self.delegated_prefix_length.is_some())
    }
}

/// Returns the first prefix that each interface gets. `of_router` are the prefixes of the mobile network, and
/// `named` those that the table of each interface names.
pub(super) fn first_prefix_of_each_lan<'a, P: Copy + Into<IpNet> + 'a>(
    of_router: &[P],
    named: impl Iterator<Item = &'a [P]> + Clone,
) -> Vec<Option<P>> {
    let mut first = vec![None; named.clone().count()];
    let PrefixAssignment { prefixes_of_named_interfaces: named, prefixes_without_interface: shared } =
        assign_prefixes(of_router, named.enumerate());
    for (index, prefix) in named.into_iter().chain(shared) {
        if let Some(first @ None) = first.get_mut(index) {
            *first = Some(prefix);
        }
    }
    first
}

const EXPECTED_LANS: &str = "an array of interfaces, or tables [[mobile_router.lan]]";
const EXPECTED_SERVERS: &str = "an array of addresses";
const EXPECTED_SERVER: &str = "a unicast address such as \"2001:db8:53::53\" or \"192.0.2.53\"";
const EXPECTED_PREFIXES: &str = "an array of prefixes";
const EXPECTED_DOMAINS: &str = "an array of domain names";
const EXPECTED_DOMAIN: &str = "a domain name such as \"bus.example\"";
const EXPECTED_NAT64_PREFIX: &str = "a prefix of 96, 64, 56, 48, 40 or 32 bits, such as \"64:ff9b::/96\"";
const EXPECTED_PORTAL: &str = "a URI such as \"https://portal.example/api\"";

/// Type of the key `lan`: an array of names, tables, or both.
pub(super) const LANS_KIND: ValueKind<List<UncheckedLan>> =
    value_kind("array of interfaces, or tables", EXPECTED_LANS, |value| {
        List::read_array(value, EXPECTED_LANS, UncheckedLan::read_lan)
    })
    .with_table(&SECTION, &[])
    .with_disclosure(Disclosure::Open);
/// Type of a list of prefixes of both families.
pub(super) const PREFIXES_KIND: ValueKind<List<IpNet>> =
    value_kind("array of prefixes", EXPECTED_PREFIXES, |value| {
        List::read_array(value, EXPECTED_PREFIXES, |item| item.parse(values::EXPECTED_PREFIX, parse_prefix))
    });
pub(super) const SERVERS_KIND: ValueKind<List<IpAddr>> =
    value_kind("array of addresses", EXPECTED_SERVERS, |value| {
        List::read_array(value, EXPECTED_SERVERS, |item| item.parse(EXPECTED_SERVER, parse_dns_server))
    });
const DOMAINS_KIND: ValueKind<List<String>> =
    value_kind("array of domain names", EXPECTED_DOMAINS, |value| {
        List::read_array(value, EXPECTED_DOMAINS, |item| item.parse(EXPECTED_DOMAIN, parse_domain))
    });

static INTERFACE: Key<String> = required_key("interface", kinds::INTERFACE_KIND, "Its name.");
static PREFIXES: Key<List<IpNet>> = key_with_default(
    "prefixes",
    PREFIXES_KIND,
    "[]",
    "Prefixes of the interface, each a /64 or shorter out of `mobile_router.prefixes`, or an IPv4 prefix
     out of `mobile_router.ipv4_prefixes`. A shorter one than a /64 gives its first /64. Without this key the
     interface shares the prefixes of the mobile network that no table names: the first goes to the first such
     interface, and so on; the last such interface gets the rest. The same holds for IPv4 prefixes.",
);
static DNS_SERVERS: Key<List<IpAddr>> = key_with_default(
    "dns",
    SERVERS_KIND,
    "[]",
    "DNS servers for hosts, the preferred first, at most 75 (RFC 8106). Many hosts use three of them. Hosts
     learn IPv6 addresses by Router Advertisements, and IPv4 addresses by DHCP. A link-local address is one of
     this link.",
);
static SEARCH_DOMAINS: Key<List<String>> = key_with_default(
    "search",
    DOMAINS_KIND,
    "[]",
    "Domain names that hosts append to short names (RFC 8106), all together at most 1208 octets. A name counts
     two octets more than its characters.",
);
static NAT64_PREFIX: OptionalKey<Ipv6Net> = optional_key(
    "pref64",
    text_kind("prefix", EXPECTED_NAT64_PREFIX, parse_nat64_prefix),
    "Prefix of the NAT64 that hosts reach (RFC 8781), of 96, 64, 56, 48, 40 or 32 bits.",
);
static MTU: OptionalKey<u32> = optional_key(
    "mtu",
    integer_kind(1280, 65_535),
    "MTU that hosts are told. Without this key it is one that fits into the tunnel.",
);
static CAPTIVE_PORTAL: OptionalKey<String> = optional_key(
    "captive_portal",
    text_kind("URI", EXPECTED_PORTAL, parse_captive_portal),
    "URI of the API of the captive portal on board (RFC 8910, RFC 8908), at most 255 characters.",
);
static DELEGATED_PREFIX_LENGTH: OptionalKey<u8> = optional_key(
    "delegate",
    integer_kind(MIN_DELEGATED_LENGTH, 64),
    "Length of the prefixes that routers on this interface get for the links behind them by DHCPv6 (RFC 8415),
     from 32 to 64. carnet takes the prefixes from those parts of `mobile_router.prefixes` that no interface
     uses and no other interface names, at most 1024. A router has its prefix for `dhcp_lease`. Without this
     key routers get none. See [on-board.md](on-board.md#routers-on-board).",
);
static SEND_ROUTER_ADVERTISEMENTS: OptionalKey<bool> = optional_key(
    "advertise",
    kinds::BOOLEAN_KIND,
    "As [`advertise`](#mobile_router), for this interface. Without this key that value holds.",
);

/// Keys of the config table `[[mobile_router.lan]]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[[mobile_router.lan]]",
    "mobile_router.lan",
    &[
        &INTERFACE,
        &PREFIXES,
        &DNS_SERVERS,
        &SEARCH_DOMAINS,
        &NAT64_PREFIX,
        &MTU,
        &CAPTIVE_PORTAL,
        &DELEGATED_PREFIX_LENGTH,
        &SEND_ROUTER_ADVERTISEMENTS,
        &dhcp::DHCP_ENABLED,
        &dhcp::ADDRESS_RANGE,
        &dhcp::LEASE_TIME,
        &dhcp::RESERVATIONS_KEY,
        &dhcp::OPTIONS_KEY,
        &inbound_filter::INBOUND_POLICY,
        &inbound_filter::ALLOWED_PACKETS,
        &inbound_filter::IS_ISOLATED,
        &inbound_filter::RATE_LIMIT,
    ],
);

/// The parsed table, with the values that the checks compare with other tables.
#[derive(Clone)]
pub(in crate::config) struct UncheckedLan {
    pub interface: Option<Located<String>>,
    prefixes: List<Ipv6Net>,
    ipv4_prefixes: List<Ipv4Net>,
    dns: List<IpAddr>,
    search: List<String>,
    /// Value of the key `advertise`, if present; the outer `None` if the key has an error.
    pub advertise: Option<Option<bool>>,
    /// Position of the first value in the table that hosts get by Router Advertisements.
    for_hosts: Option<usize>,
    delegate: Option<Located<u8>>,
    dhcp: dhcp::UncheckedDhcp,
    inbound_filter: inbound_filter::UncheckedInboundFilter,
    config: Option<Lan>,
}

impl UncheckedLan {
    /// Reads a name or a table; `None` for another type.
    fn read_lan(value: &LocatedValue<'_>) -> Option<UncheckedLan> {
        if value.as_str().is_some() {
            let interface = kinds::INTERFACE_KIND.read_value(value)?;
            return Some(UncheckedLan::from_interface_name(Located {
                value: interface,
                offset: value.offset(),
            }));
        }
        let table = Table::of_value(&SECTION, value)?;
        let interface = table.read_key_with_offset(&INTERFACE);
        let (prefixes, ipv4_prefixes) = split_by_family(table.read_key(&PREFIXES).unwrap_or_default());
        let (dns, search) = (
            table.read_key(&DNS_SERVERS).unwrap_or_default(),
            table.read_key(&SEARCH_DOMAINS).unwrap_or_default(),
        );
        let advertise = table.read_key(&SEND_ROUTER_ADVERTISEMENTS);
        let dhcp = dhcp::UncheckedDhcp::read_table(&table);
        let inbound_filter = inbound_filter::UncheckedInboundFilter::read_table(&table);
        let delegate = table.find_key_with_offset(&DELEGATED_PREFIX_LENGTH);
        let config = all!(Lan {
            interface: interface.clone().map(|interface| interface.value),
            prefixes: prefixes.complete_items(),
            ipv4_prefixes: ipv4_prefixes.complete_items(),
            dns_servers: dns.complete_items(),
            search_domains: search.complete_items(),
            nat64_prefix: table.read_key(&NAT64_PREFIX),
            mtu: table.read_key(&MTU),
            captive_portal: table.read_key(&CAPTIVE_PORTAL),
            delegated_prefix_length: delegate.map(|length| length.map(|length| length.value)),
            // `finish` replaces this value by `advertise` of `[mobile_router]`.
            sends_router_advertisements: Some(true),
            dhcp: dhcp.config.clone(),
            inbound_filter: inbound_filter.config.clone(),
        });
        let keys: [&dyn DeclaredKey; 5] =
            [&DNS_SERVERS, &SEARCH_DOMAINS, &NAT64_PREFIX, &MTU, &CAPTIVE_PORTAL];
        let for_hosts = keys.iter().find_map(|key| table.value_of_key(*key)).map(|value| value.offset());
        Some(UncheckedLan {
            interface,
            prefixes,
            ipv4_prefixes,
            dns,
            search,
            advertise,
            for_hosts,
            delegate: delegate.flatten(),
            dhcp,
            inbound_filter,
            config,
        })
    }

    /// Creates the draft of an interface that the config file only names.
    fn from_interface_name(interface: Located<String>) -> UncheckedLan {
        let config = Lan::named(&interface.value, true);
        UncheckedLan {
            interface: Some(interface),
            prefixes: List::default(),
            ipv4_prefixes: List::default(),
            dns: List::default(),
            search: List::default(),
            advertise: Some(None),
            for_hosts: None,
            delegate: None,
            dhcp: dhcp::UncheckedDhcp::from_interface_name(),
            inbound_filter: inbound_filter::UncheckedInboundFilter::from_interface_name(),
            config: Some(config),
        }
    }

    /// Returns the config if the table has no error. `advertise` is the value of `[mobile_router]`.
    pub(super) fn into_lan(self, advertise: bool) -> Option<Lan> {
        Some(Lan { sends_router_advertisements: self.advertise?.unwrap_or(advertise), ..self.config? })
    }
}

/// Separates the prefixes of the two address families.
fn split_by_family(prefixes: List<IpNet>) -> (List<Ipv6Net>, List<Ipv4Net>) {
    let whole = prefixes.all_valid;
    let (mut ipv6, mut ipv4) = (Vec::new(), Vec::new());
    for Located { value, offset: at } in prefixes.valid_items {
        match value {
            IpNet::V6(value) => ipv6.push(Located { value, offset: at }),
            IpNet::V4(value) => ipv4.push(Located { value, offset: at }),
        }
    }
    (List { valid_items: ipv6, all_valid: whole }, List { valid_items: ipv4, all_valid: whole })
}

/// Returns [`first_prefix_of_each_lan`] of lists with their positions in the file.
fn first_prefixes_of_lists<'a, P: Copy + Into<IpNet> + 'a>(
    of_router: &List<P>,
    named: impl Iterator<Item = &'a List<P>>,
) -> Vec<Option<P>> {
    let values = |list: &List<P>| -> Vec<P> { list.valid_items.iter().map(|prefix| prefix.value).collect() };
    let named: Vec<Vec<P>> = named.map(values).collect();
    first_prefix_of_each_lan(&values(of_router), named.iter().map(Vec::as_slice))
}

/// Reports conflicts between IPv4 values of the tables. Returns the first IPv4 prefix of each interface.
fn check_ipv4(
    lans: &[Located<UncheckedLan>],
    of_router: &List<Ipv4Net>,
    sink: &ErrorSink<'_>,
) -> Vec<Option<Ipv4Net>> {
    let lists = lans.iter().map(|lan| &lan.value.ipv4_prefixes);
    let named: Vec<Located<Ipv4Net>> =
        lists.clone().flat_map(|list| list.valid_items.iter().copied()).collect();
    check_disjoint(&named, sink);
    for prefix in &named {
        let contains = |whole: &Located<Ipv4Net>| whole.value.contains(&prefix.value);
        if of_router.all_valid && !of_router.valid_items.iter().any(contains) {
            let message = "is outside, expected a part of one of `mobile_router.ipv4_prefixes`";
            sink.push(prefix.offset, format!("{} {message}", prefix.value));
        }
    }
    let shares = first_prefixes_of_lists(of_router, lists);
    for (lan, share) in lans.iter().zip(&shares) {
        let list = &lan.value.ipv4_prefixes;
        if of_router.all_valid && list.all_valid {
            lan.value.dhcp.check_values(*share, sink);
        }
        let server = lan.value.dns.valid_items.iter().find(|server| server.value.is_ipv4());
        if let Some(server) = server.filter(|_| share.is_none() && of_router.all_valid && list.all_valid) {
            let message = "is for DHCP, but this interface has no IPv4 prefix, expected IPv6 addresses";
            sink.push(server.offset, format!("{} {message}", server.value));
        }
    }
    shares
}

/// Reports conflicts between values of the tables. `prefixes`, `ipv4_prefixes` and `advertise` are the values
/// of `[mobile_router]`.
pub(super) fn check_lans(
    lans: &[Located<UncheckedLan>],
    prefixes: &List<Ipv6Net>,
    ipv4_prefixes: &List<Ipv4Net>,
    advertise: Option<bool>,
    sink: &ErrorSink<'_>,
) {
    let on_board: Vec<IpNet> = match prefixes.all_valid && ipv4_prefixes.all_valid {
        true => {
            let ipv6 = prefixes.valid_items.iter().map(|prefix| IpNet::V6(prefix.value));
            ipv6.chain(ipv4_prefixes.valid_items.iter().map(|prefix| IpNet::V4(prefix.value))).collect()
        }
        false => Vec::new(),
    };
    lans.iter().for_each(|lan| lan.value.inbound_filter.check_values(&on_board, sink));
    let ipv4_shares = check_ipv4(lans, ipv4_prefixes, sink);
    let named: Vec<Located<Ipv6Net>> =
        lans.iter().flat_map(|lan| lan.value.prefixes.valid_items.iter().copied()).collect();
    check_disjoint(&named, sink);
    for prefix in &named {
        let of_router = |whole: &Located<Ipv6Net>| whole.value.contains(&prefix.value);
        if prefixes.all_valid && !prefixes.valid_items.iter().any(of_router) {
            let message = "is outside, expected a part of one of `mobile_router.prefixes`";
            sink.push(prefix.offset, format!("{} {message}", prefix.value));
        } else if prefix.value.prefix_len() > 64 {
            sink.push(
                prefix.offset,
                format!("{} is too long for hosts, expected /64 or shorter", prefix.value),
            );
        }
    }
    let shares = first_prefixes_of_lists(prefixes, lans.iter().map(|lan| &lan.value.prefixes));
    let shares = shares.into_iter().zip(ipv4_shares);
    for (lan, (share, ipv4_share)) in lans.iter().map(|lan| &lan.value).zip(shares) {
        check_fits_in_advertisement(lan, sink);
        check_unique(&lan.dns.valid_items, "a server", sink);
        check_unique(&lan.search.valid_items, "in the list", sink);
        let Some(advertises) = lan.advertise.and_then(|own| own.or(advertise)) else { continue };
        let Some(at) = lan.for_hosts else { continue };
        if lan.dhcp.serves_prefix(ipv4_share) {
            continue;
        }
        if !advertises {
            sink.push(
                at,
                "these values need Router Advertisements on this interface, expected advertise = \
                           true",
            );
        } else if share.is_none()
            && prefixes.all_valid
            && !prefixes.valid_items.is_empty()
            && lan.prefixes.all_valid
        {
            let message = "no prefix is left for this interface, expected `prefixes` in its table";
            sink.push(at, message);
        }
    }
}

/// Returns the prefix of an interface's link: the first /64 of its prefix, or a longer prefix itself.
pub(super) fn link_prefix(prefix: Ipv6Net) -> Ipv6Net {
    Ipv6Net::new(prefix.network(), prefix.prefix_len().max(64)).unwrap_or(prefix)
}

/// Reports an interface that cannot delegate prefixes to routers although it has `delegate`. `advertise` is
/// the value of `[mobile_router]`.
pub(super) fn check_delegation(
    lans: &[Located<UncheckedLan>],
    prefixes: &List<Ipv6Net>,
    home_address: Option<Ipv6Addr>,
    advertise: Option<bool>,
    sink: &ErrorSink<'_>,
) {
    let lists = || lans.iter().map(|lan| &lan.value.prefixes);
    let is_whole = prefixes.all_valid && lists().all(|list| list.all_valid);
    let values =
        |list: &List<Ipv6Net>| -> Vec<Ipv6Net> { list.valid_items.iter().map(|it| it.value).collect() };
    let named: Vec<Vec<Ipv6Net>> = lists().map(values).collect();
    let interfaces = named.iter().enumerate().map(|(index, own)| (index, own.as_slice()));
    let PrefixAssignment { prefixes_of_named_interfaces: named, prefixes_without_interface: shared } =
        assign_prefixes(&values(prefixes), interfaces);
    for (index, lan) in lans.iter().map(|lan| &lan.value).enumerate() {
        // Prefixes that another interface's table has are not delegated on this interface.
        let of_lans =
            named.iter().map(|(owner, prefix)| if *owner == index { link_prefix(*prefix) } else { *prefix });
        let links = of_lans.chain(shared.iter().map(|(_, prefix)| link_prefix(*prefix)));
        let used: Vec<Ipv6Net> = links.chain(home_address.map(Ipv6Net::from)).collect();
        let Some(Located { value: length, offset: at }) = lan.delegate else { continue };
        if lan.dhcp.config.as_ref().is_some_and(|dhcp| !dhcp.enabled) {
            sink.push(at, "routers get prefixes by DHCP, expected dhcp_enabled = true");
        } else if lan.advertise.and_then(|own| own.or(advertise)) == Some(false) {
            let message = "routers need Router Advertisements on this interface, expected advertise = true";
            sink.push(at, message);
        } else if is_whole
            && !prefixes.valid_items.iter().any(|prefix| has_unused_part(prefix.value, length, &used))
        {
            let message = format!(
                "no /{length} is left beside the interfaces, expected a shorter prefix in \
                 `mobile_router.prefixes`"
            );
            sink.push(at, message);
        }
    }
}

/// Returns whether a prefix has a part of this length that no used network overlaps.
fn has_unused_part(prefix: Ipv6Net, length: u8, used: &[Ipv6Net]) -> bool {
    if prefix.prefix_len() > length || used.iter().any(|used| used.contains(&prefix)) {
        return false;
    }
    // The parts of this length that overlap a used network: one part if the network is longer, several if it
    // is shorter. Used networks do not overlap each other.
    let number = |bits: u8| 1u128.checked_shl(bits.into()).unwrap_or(u128::MAX);
    let inside = || used.iter().filter(|used| prefix.contains(*used));
    let part = |used: &Ipv6Net| Ipv6Net::new(used.network(), length).ok().map(|part| part.trunc());
    let long = inside().filter(|used| used.prefix_len() >= length);
    let long: BTreeSet<Ipv6Net> = long.filter_map(part).collect();
    let short = inside().filter_map(|used| length.checked_sub(used.prefix_len()).filter(|bits| *bits > 0));
    let taken = short.map(number).fold(long.len() as u128, u128::saturating_add);
    taken < number(length - prefix.prefix_len())
}

/// Checks that the servers and the names each fit into a Router Advertisement.
fn check_fits_in_advertisement(lan: &UncheckedLan, sink: &ErrorSink<'_>) {
    if let Some(first) = lan.dns.valid_items.get(MAX_DNS_SERVERS) {
        let message =
            format!("a Router Advertisement has room for {MAX_DNS_SERVERS} servers, expected no more");
        sink.push(first.offset, message);
    }
    let mut octets = 0;
    for domain in &lan.search.valid_items {
        octets += domain.value.len() + 2;
        if octets > MAX_DNS_LENGTH {
            let message = format!(
                "a Router Advertisement has room for {MAX_DNS_LENGTH} octets of names, expected no more"
            );
            sink.push(domain.offset, message);
            return;
        }
    }
}

/// Checks that no value occurs twice.
pub(super) fn check_unique<T: PartialEq + std::fmt::Display>(
    items: &[Located<T>],
    what: &str,
    sink: &ErrorSink<'_>,
) {
    for (index, item) in items.iter().enumerate() {
        if let Some(other) = items.iter().take(index).find(|other| other.value == item.value) {
            let place = sink.format_position(other.offset);
            sink.push(item.offset, format!("{} is {what} already at {place}, expected another", item.value));
        }
    }
}

/// Parses a prefix of either address family.
fn parse_prefix(text: &str) -> Result<IpNet, String> {
    if text.contains(':') {
        values::parse_prefix(text).map(IpNet::V6)
    } else {
        values::parse_ipv4_prefix(text).map(IpNet::V4)
    }
}

/// Parses the address of a DNS server, which must be unicast.
fn parse_dns_server(text: &str) -> Result<IpAddr, String> {
    if text.parse::<std::net::Ipv4Addr>().is_ok() {
        return values::parse_ipv4_address(text).map(IpAddr::V4);
    }
    let address: Ipv6Addr =
        text.parse().map_err(|_| format!("{text:?} is no address, expected {EXPECTED_SERVER}"))?;
    match values::reason_not_routed(address).filter(|_| !address.is_unicast_link_local()) {
        Some(what) => Err(format!("{address} is {what}, expected {EXPECTED_SERVER}")),
        None => Ok(address.into()),
    }
}

/// Parses a domain name of letters, digits, hyphens and underscores, in lower case.
fn parse_domain(text: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_DOMAIN}"));
    let is_part = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_');
    if let Some(bad) = text.chars().find(|c| !u8::try_from(*c).is_ok_and(|c| is_part(c) || c == b'.')) {
        return wrong(&format!("has the character {bad:?}"));
    }
    if text.split('.').any(str::is_empty) {
        return wrong("has an empty label");
    }
    if text.split('.').any(|label| label.len() > 63) {
        return wrong("has a label of more than 63 characters");
    }
    if text.split('.').any(|label| label.starts_with('-') || label.ends_with('-')) {
        return wrong("has a hyphen at the end of a label");
    }
    if text.len() > 253 {
        return wrong("has more than 253 characters");
    }
    Ok(text.to_ascii_lowercase())
}

/// Parses a prefix of a length that RFC 6052 2.2 allows.
fn parse_nat64_prefix(text: &str) -> Result<Ipv6Net, String> {
    let prefix = values::parse_prefix(text)?;
    if !matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96) {
        let length = prefix.prefix_len();
        return Err(format!("{prefix} has {length} bits, expected {EXPECTED_NAT64_PREFIX}"));
    }
    if prefix.network().octets()[8] != 0 {
        return Err(format!(
            "{prefix} has bits from 64 to 71 that are not zero, expected {EXPECTED_NAT64_PREFIX}"
        ));
    }
    Ok(prefix)
}

/// Parses the URI of a captive portal's API, which must be HTTPS (RFC 8908 3).
fn parse_captive_portal(text: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_PORTAL}"));
    let is_uri = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(c);
    if let Some(bad) = text.chars().find(|c| !is_uri(*c)) {
        return wrong(&format!("has the character {bad:?}"));
    }
    let Some(rest) = text.strip_prefix("https://") else { return wrong("does not begin with https://") };
    if rest.split(['/', '?', '#']).next().is_none_or(str::is_empty) {
        return wrong("has no host");
    }
    if text.len() > MAX_URI_LENGTH {
        return wrong(&format!("has more than {MAX_URI_LENGTH} characters"));
    }
    Ok(text.to_owned())
}
