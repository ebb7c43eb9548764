//! `[[mobile_router.lan]]`, or the name of the interface alone.

mod dhcp;
mod door;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use carnet_nemo::forwarding::{PrefixShares, share_out_prefixes};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::super::conflicts::apart;
use super::super::errors::Sink;
use super::super::keys::{
    Declared, Disclosure, Key, Kind, Optional, Section, integer, optional, required, text, value,
    with_default,
};
use super::super::reader::{At, List, Value};
use super::super::table::{Table, all};
use super::super::{kinds, values};

pub use dhcp::{Dhcp, DhcpOption, DhcpReservation};
pub use door::{Allowed, Door, Inbound};

/// Maximum length of the servers or names in one DNS option of a Router Advertisement of 1280 octets. The
/// IPv6 header takes 40 octets, the fixed part 16, the link-layer address 8, and the option's fixed part 8.
const MAX_DNS: usize = 1280 - 40 - 16 - 8 - 8;
/// Maximum number of DNS servers.
const MAX_SERVERS: usize = MAX_DNS / 16;
/// Length of the shortest prefix that routers on board get.
const MIN_DELEGATED: i64 = 32;
/// Maximum length of the URI: a longer one does not fit into the option of DHCP for IPv4 (RFC 8910 2).
const MAX_URI: usize = 255;

/// `[[mobile_router.lan]]`, or a name in `mobile_router.lan`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lan {
    /// Name of the interface.
    pub interface: String,
    /// Prefixes of the interface. If empty, the interface shares the prefixes that no other interface has.
    pub prefixes: Vec<Ipv6Net>,
    /// IPv4 prefixes of the interface. If empty, the interface shares the prefixes that no other interface
    /// has.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// DNS servers for hosts.
    pub dns: Vec<IpAddr>,
    /// Domain names that hosts append to short names.
    pub search: Vec<String>,
    /// Prefix of the NAT64.
    pub pref64: Option<Ipv6Net>,
    /// MTU for hosts; `None` for one with which packets fit into the tunnel.
    pub mtu: Option<u32>,
    /// URI of the captive portal's API.
    pub captive_portal: Option<String>,
    /// Length of the prefixes that routers on the interface get (RFC 8415); `None` if they get none.
    pub delegate: Option<u8>,
    /// Whether carnet gives the interface an address and advertises its prefixes.
    pub advertise: bool,
    /// DHCP for IPv4.
    pub dhcp: Dhcp,
    /// Packets from outside that reach hosts.
    pub door: Door,
}

impl Lan {
    /// Creates an interface of which the config only has the name.
    pub(in crate::config) fn named(interface: &str, advertise: bool) -> Lan {
        Lan {
            interface: interface.to_owned(),
            prefixes: Vec::new(),
            ipv4_prefixes: Vec::new(),
            dns: Vec::new(),
            search: Vec::new(),
            pref64: None,
            mtu: None,
            captive_portal: None,
            delegate: None,
            advertise,
            dhcp: Dhcp::default(),
            door: Door::default(),
        }
    }
}

impl Lan {
    /// Returns whether carnet answers DHCPv6 requests on the interface. `forwards` says whether carnet
    /// forwards DNS queries of hosts.
    pub fn has_dhcpv6(&self, forwards: bool) -> bool {
        let has_dns = forwards || self.dns.iter().any(IpAddr::is_ipv6);
        self.advertise && self.dhcp.enabled && (has_dns || !self.search.is_empty() || self.delegate.is_some())
    }
}

/// Returns the first prefix that [`share_out_prefixes`] gives each interface. `of_router` are the prefixes of
/// the mobile network, and `named` those that the table of each interface names.
pub(super) fn first_shares<'a, P: Copy + Into<IpNet> + 'a>(
    of_router: &[P],
    named: impl Iterator<Item = &'a [P]> + Clone,
) -> Vec<Option<P>> {
    let mut first = vec![None; named.clone().count()];
    let PrefixShares { prefixes_of_named_interfaces: named, prefixes_without_interface: shared } =
        share_out_prefixes(of_router, named.enumerate());
    for (index, prefix) in named.into_iter().chain(shared) {
        if let Some(first @ None) = first.get_mut(index) {
            *first = Some(prefix);
        }
    }
    first
}

const EXPECTED: &str = "an array of interfaces, or tables [[mobile_router.lan]]";
const EXPECTED_SERVERS: &str = "an array of addresses";
const EXPECTED_SERVER: &str = "a unicast address such as \"2001:db8:53::53\" or \"192.0.2.53\"";
const EXPECTED_PREFIXES: &str = "an array of prefixes";
const EXPECTED_DOMAINS: &str = "an array of domain names";
const EXPECTED_DOMAIN: &str = "a domain name such as \"bus.example\"";
const EXPECTED_PREF64: &str = "a prefix of 96, 64, 56, 48, 40 or 32 bits, such as \"64:ff9b::/96\"";
const EXPECTED_PORTAL: &str = "a URI such as \"https://portal.example/api\"";

/// Type of the key `lan`: an array of names, tables, or both.
pub(super) const KIND: Kind<List<Draft>> =
    value("array of interfaces, or tables", EXPECTED, |value| List::read(value, EXPECTED, Draft::read))
        .with_table(&SECTION, &[])
        .disclosed(Disclosure::Open);
/// Type of a list of prefixes of both families.
pub(super) const PREFIXES_KIND: Kind<List<IpNet>> = value("array of prefixes", EXPECTED_PREFIXES, |value| {
    List::read(value, EXPECTED_PREFIXES, |item| item.parse(values::PREFIX, prefix))
});
pub(super) const SERVERS: Kind<List<IpAddr>> = value("array of addresses", EXPECTED_SERVERS, |value| {
    List::read(value, EXPECTED_SERVERS, |item| item.parse(EXPECTED_SERVER, server))
});
const DOMAINS: Kind<List<String>> = value("array of domain names", EXPECTED_DOMAINS, |value| {
    List::read(value, EXPECTED_DOMAINS, |item| item.parse(EXPECTED_DOMAIN, domain))
});

static INTERFACE: Key<String> = required("interface", kinds::INTERFACE, "Its name.");
static PREFIXES: Key<List<IpNet>> = with_default(
    "prefixes",
    PREFIXES_KIND,
    "[]",
    "Prefixes of the interface, each a /64 or shorter out of `mobile_router.prefixes`, or an IPv4 prefix
     out of `mobile_router.ipv4_prefixes`. A shorter one than a /64 gives its first /64. Without this key the
     interface shares the prefixes of the mobile network that no table names: the first goes to the first such
     interface, and so on; the last such interface gets the rest. The same holds for IPv4 prefixes.",
);
static DNS: Key<List<IpAddr>> = with_default(
    "dns",
    SERVERS,
    "[]",
    "DNS servers for hosts, the preferred first, at most 75 (RFC 8106). Many hosts use three of them. Hosts
     learn IPv6 addresses by Router Advertisements, and IPv4 addresses by DHCP. A link-local address is one of
     this link.",
);
static SEARCH: Key<List<String>> = with_default(
    "search",
    DOMAINS,
    "[]",
    "Domain names that hosts append to short names (RFC 8106), all together at most 1208 octets. A name counts
     two octets more than its characters.",
);
static PREF64: Optional<Ipv6Net> = optional(
    "pref64",
    text("prefix", EXPECTED_PREF64, pref64),
    "Prefix of the NAT64 that hosts reach (RFC 8781), of 96, 64, 56, 48, 40 or 32 bits.",
);
static MTU: Optional<u32> = optional(
    "mtu",
    integer(1280, 65_535),
    "MTU that hosts are told. Without this key it is one that fits into the tunnel.",
);
static CAPTIVE_PORTAL: Optional<String> = optional(
    "captive_portal",
    text("URI", EXPECTED_PORTAL, portal),
    "URI of the API of the captive portal on board (RFC 8910, RFC 8908), at most 255 characters.",
);
static DELEGATE: Optional<u8> = optional(
    "delegate",
    integer(MIN_DELEGATED, 64),
    "Length of the prefixes that routers on this interface get for the links behind them by DHCPv6 (RFC 8415),
     from 32 to 64. carnet takes the prefixes from those parts of `mobile_router.prefixes` that no interface
     uses and no other interface names, at most 1024. A router has its prefix for `dhcp_lease`. Without this
     key routers get none. See [on-board.md](on-board.md#routers-on-board).",
);
static ADVERTISE: Optional<bool> = optional(
    "advertise",
    kinds::BOOLEAN,
    "As [`advertise`](#mobile_router), for this interface. Without this key that value holds.",
);

/// Keys of the config table `[[mobile_router.lan]]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[[mobile_router.lan]]",
    "mobile_router.lan",
    &[
        &INTERFACE,
        &PREFIXES,
        &DNS,
        &SEARCH,
        &PREF64,
        &MTU,
        &CAPTIVE_PORTAL,
        &DELEGATE,
        &ADVERTISE,
        &dhcp::ENABLED,
        &dhcp::RANGE,
        &dhcp::LEASE,
        &dhcp::RESERVATIONS,
        &dhcp::OPTIONS,
        &door::INBOUND,
        &door::ALLOW,
        &door::ISOLATED,
        &door::RATE_LIMIT,
    ],
);

/// The parsed table, with the values that the checks compare with other tables.
#[derive(Clone)]
pub(in crate::config) struct Draft {
    pub interface: Option<At<String>>,
    prefixes: List<Ipv6Net>,
    ipv4_prefixes: List<Ipv4Net>,
    dns: List<IpAddr>,
    search: List<String>,
    /// Value of the key `advertise`, if present; the outer `None` if the key has an error.
    pub advertise: Option<Option<bool>>,
    /// Position of the first value in the table that Router Advertisements contain.
    for_hosts: Option<usize>,
    delegate: Option<At<u8>>,
    dhcp: dhcp::Draft,
    door: door::Draft,
    config: Option<Lan>,
}

impl Draft {
    /// Reads a name or a table; `None` for another type.
    fn read(value: &Value<'_>) -> Option<Draft> {
        if value.as_str().is_some() {
            let interface = kinds::INTERFACE.read(value)?;
            return Some(Draft::of(At { value: interface, at: value.at() }));
        }
        let table = Table::of(&SECTION, value)?;
        let interface = table.take_at(&INTERFACE);
        let (prefixes, ipv4_prefixes) = by_family(table.take(&PREFIXES).unwrap_or_default());
        let (dns, search) = (table.take(&DNS).unwrap_or_default(), table.take(&SEARCH).unwrap_or_default());
        let advertise = table.take(&ADVERTISE);
        let dhcp = dhcp::Draft::read(&table);
        let door = door::Draft::read(&table);
        let delegate = table.find_at(&DELEGATE);
        let config = all!(Lan {
            interface: interface.clone().map(|interface| interface.value),
            prefixes: prefixes.complete(),
            ipv4_prefixes: ipv4_prefixes.complete(),
            dns: dns.complete(),
            search: search.complete(),
            pref64: table.take(&PREF64),
            mtu: table.take(&MTU),
            captive_portal: table.take(&CAPTIVE_PORTAL),
            delegate: delegate.map(|length| length.map(|length| length.value)),
            // `finish` replaces this value by `advertise` of `[mobile_router]`.
            advertise: Some(true),
            dhcp: dhcp.config.clone(),
            door: door.config.clone(),
        });
        let keys: [&dyn Declared; 5] = [&DNS, &SEARCH, &PREF64, &MTU, &CAPTIVE_PORTAL];
        let for_hosts = keys.iter().find_map(|key| table.value(*key)).map(|value| value.at());
        Some(Draft {
            interface,
            prefixes,
            ipv4_prefixes,
            dns,
            search,
            advertise,
            for_hosts,
            delegate: delegate.flatten(),
            dhcp,
            door,
            config,
        })
    }

    /// Creates the draft of an interface of which the config only has the name.
    fn of(interface: At<String>) -> Draft {
        let config = Lan::named(&interface.value, true);
        Draft {
            interface: Some(interface),
            prefixes: List::default(),
            ipv4_prefixes: List::default(),
            dns: List::default(),
            search: List::default(),
            advertise: Some(None),
            for_hosts: None,
            delegate: None,
            dhcp: dhcp::Draft::named(),
            door: door::Draft::named(),
            config: Some(config),
        }
    }

    /// Returns the config if the table has no error. `advertise` is the value of `[mobile_router]`.
    pub(super) fn finish(self, advertise: bool) -> Option<Lan> {
        Some(Lan { advertise: self.advertise?.unwrap_or(advertise), ..self.config? })
    }
}

/// Separates the prefixes of the two address families.
fn by_family(prefixes: List<IpNet>) -> (List<Ipv6Net>, List<Ipv4Net>) {
    let whole = prefixes.whole;
    let (mut ipv6, mut ipv4) = (Vec::new(), Vec::new());
    for At { value, at } in prefixes.items {
        match value {
            IpNet::V6(value) => ipv6.push(At { value, at }),
            IpNet::V4(value) => ipv4.push(At { value, at }),
        }
    }
    (List { items: ipv6, whole }, List { items: ipv4, whole })
}

/// Returns [`first_shares`] of lists with their positions in the file.
fn first_shares_of_lists<'a, P: Copy + Into<IpNet> + 'a>(
    of_router: &List<P>,
    named: impl Iterator<Item = &'a List<P>>,
) -> Vec<Option<P>> {
    let values = |list: &List<P>| -> Vec<P> { list.items.iter().map(|prefix| prefix.value).collect() };
    let named: Vec<Vec<P>> = named.map(values).collect();
    first_shares(&values(of_router), named.iter().map(Vec::as_slice))
}

/// Reports conflicts between IPv4 values of the tables. Returns the first IPv4 prefix of each interface.
fn check_ipv4(lans: &[At<Draft>], of_router: &List<Ipv4Net>, sink: &Sink<'_>) -> Vec<Option<Ipv4Net>> {
    let lists = lans.iter().map(|lan| &lan.value.ipv4_prefixes);
    let named: Vec<At<Ipv4Net>> = lists.clone().flat_map(|list| list.items.iter().copied()).collect();
    apart(&named, sink);
    for prefix in &named {
        let contains = |whole: &At<Ipv4Net>| whole.value.contains(&prefix.value);
        if of_router.whole && !of_router.items.iter().any(contains) {
            let message = "is outside, expected a part of one of `mobile_router.ipv4_prefixes`";
            sink.push(prefix.at, format!("{} {message}", prefix.value));
        }
    }
    let shares = first_shares_of_lists(of_router, lists);
    for (lan, share) in lans.iter().zip(&shares) {
        let list = &lan.value.ipv4_prefixes;
        if of_router.whole && list.whole {
            lan.value.dhcp.check(*share, sink);
        }
        let server = lan.value.dns.items.iter().find(|server| server.value.is_ipv4());
        if let Some(server) = server.filter(|_| share.is_none() && of_router.whole && list.whole) {
            let message = "is for DHCP, but this interface has no IPv4 prefix, expected IPv6 addresses";
            sink.push(server.at, format!("{} {message}", server.value));
        }
    }
    shares
}

/// Reports conflicts between values of the tables. `prefixes`, `ipv4_prefixes` and `advertise` are the values
/// of `[mobile_router]`.
pub(super) fn check(
    lans: &[At<Draft>],
    prefixes: &List<Ipv6Net>,
    ipv4_prefixes: &List<Ipv4Net>,
    advertise: Option<bool>,
    sink: &Sink<'_>,
) {
    let on_board: Vec<IpNet> = match prefixes.whole && ipv4_prefixes.whole {
        true => {
            let ipv6 = prefixes.items.iter().map(|prefix| IpNet::V6(prefix.value));
            ipv6.chain(ipv4_prefixes.items.iter().map(|prefix| IpNet::V4(prefix.value))).collect()
        }
        false => Vec::new(),
    };
    lans.iter().for_each(|lan| lan.value.door.check(&on_board, sink));
    let ipv4_shares = check_ipv4(lans, ipv4_prefixes, sink);
    let named: Vec<At<Ipv6Net>> =
        lans.iter().flat_map(|lan| lan.value.prefixes.items.iter().copied()).collect();
    apart(&named, sink);
    for prefix in &named {
        let of_router = |whole: &At<Ipv6Net>| whole.value.contains(&prefix.value);
        if prefixes.whole && !prefixes.items.iter().any(of_router) {
            let message = "is outside, expected a part of one of `mobile_router.prefixes`";
            sink.push(prefix.at, format!("{} {message}", prefix.value));
        } else if prefix.value.prefix_len() > 64 {
            sink.push(prefix.at, format!("{} is too long for hosts, expected /64 or shorter", prefix.value));
        }
    }
    let shares = first_shares_of_lists(prefixes, lans.iter().map(|lan| &lan.value.prefixes));
    let shares = shares.into_iter().zip(ipv4_shares);
    for (lan, (share, ipv4_share)) in lans.iter().map(|lan| &lan.value).zip(shares) {
        check_size(lan, sink);
        once(&lan.dns.items, "a server", sink);
        once(&lan.search.items, "in the list", sink);
        let Some(advertises) = lan.advertise.and_then(|own| own.or(advertise)) else { continue };
        let Some(at) = lan.for_hosts else { continue };
        if lan.dhcp.serves(ipv4_share) {
            continue;
        }
        if !advertises {
            sink.push(
                at,
                "these values need Router Advertisements on this interface, expected advertise = \
                           true",
            );
        } else if share.is_none() && prefixes.whole && !prefixes.items.is_empty() && lan.prefixes.whole {
            let message = "no prefix is left for this interface, expected `prefixes` in its table";
            sink.push(at, message);
        }
    }
}

/// Returns the prefix of an interface's link: the first /64 of its prefix, or a longer prefix itself.
pub(super) fn link(prefix: Ipv6Net) -> Ipv6Net {
    Ipv6Net::new(prefix.network(), prefix.prefix_len().max(64)).unwrap_or(prefix)
}

/// Reports a table whose routers shall get prefixes, but cannot. `used` are the networks that no router gets,
/// and `advertise` is the value of `[mobile_router]`.
pub(super) fn check_delegation(
    lans: &[At<Draft>],
    prefixes: &List<Ipv6Net>,
    home_address: Option<Ipv6Addr>,
    advertise: Option<bool>,
    sink: &Sink<'_>,
) {
    let lists = || lans.iter().map(|lan| &lan.value.prefixes);
    let is_whole = prefixes.whole && lists().all(|list| list.whole);
    let values = |list: &List<Ipv6Net>| -> Vec<Ipv6Net> { list.items.iter().map(|it| it.value).collect() };
    let named: Vec<Vec<Ipv6Net>> = lists().map(values).collect();
    let interfaces = named.iter().enumerate().map(|(index, own)| (index, own.as_slice()));
    let PrefixShares { prefixes_of_named_interfaces: named, prefixes_without_interface: shared } =
        share_out_prefixes(&values(prefixes), interfaces);
    for (index, lan) in lans.iter().map(|lan| &lan.value).enumerate() {
        // A router gets no part of a prefix that another interface names.
        let of_lans =
            named.iter().map(|(owner, prefix)| if *owner == index { link(*prefix) } else { *prefix });
        let links = of_lans.chain(shared.iter().map(|(_, prefix)| link(*prefix)));
        let used: Vec<Ipv6Net> = links.chain(home_address.map(Ipv6Net::from)).collect();
        let Some(At { value: length, at }) = lan.delegate else { continue };
        if lan.dhcp.config.as_ref().is_some_and(|dhcp| !dhcp.enabled) {
            sink.push(at, "routers get prefixes by DHCP, expected dhcp_enabled = true");
        } else if lan.advertise.and_then(|own| own.or(advertise)) == Some(false) {
            let message = "routers need Router Advertisements on this interface, expected advertise = true";
            sink.push(at, message);
        } else if is_whole && !prefixes.items.iter().any(|prefix| has_room(prefix.value, length, &used)) {
            let message = format!(
                "no /{length} is left beside the interfaces, expected a shorter prefix in \
                 `mobile_router.prefixes`"
            );
            sink.push(at, message);
        }
    }
}

/// Returns whether a prefix has a part of this length that no used network overlaps.
fn has_room(prefix: Ipv6Net, length: u8, used: &[Ipv6Net]) -> bool {
    if prefix.prefix_len() > length || used.iter().any(|used| used.contains(&prefix)) {
        return false;
    }
    // The parts of this length that have addresses of a used network: one part for a long prefix, and several
    // for a short one. Used networks do not overlap.
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
fn check_size(lan: &Draft, sink: &Sink<'_>) {
    if let Some(first) = lan.dns.items.get(MAX_SERVERS) {
        let message = format!("a Router Advertisement has room for {MAX_SERVERS} servers, expected no more");
        sink.push(first.at, message);
    }
    let mut octets = 0;
    for domain in &lan.search.items {
        octets += domain.value.len() + 2;
        if octets > MAX_DNS {
            let message =
                format!("a Router Advertisement has room for {MAX_DNS} octets of names, expected no more");
            sink.push(domain.at, message);
            return;
        }
    }
}

/// Checks that no value occurs twice.
pub(super) fn once<T: PartialEq + std::fmt::Display>(items: &[At<T>], what: &str, sink: &Sink<'_>) {
    for (index, item) in items.iter().enumerate() {
        if let Some(other) = items.iter().take(index).find(|other| other.value == item.value) {
            let place = sink.place(other.at);
            sink.push(item.at, format!("{} is {what} already at {place}, expected another", item.value));
        }
    }
}

/// Parses a prefix of either address family.
fn prefix(text: &str) -> Result<IpNet, String> {
    if text.contains(':') {
        values::prefix(text).map(IpNet::V6)
    } else {
        values::ipv4_prefix(text).map(IpNet::V4)
    }
}

/// Parses the address of a DNS server, which must be unicast.
fn server(text: &str) -> Result<IpAddr, String> {
    if text.parse::<std::net::Ipv4Addr>().is_ok() {
        return values::ipv4_address(text).map(IpAddr::V4);
    }
    let address: Ipv6Addr =
        text.parse().map_err(|_| format!("{text:?} is no address, expected {EXPECTED_SERVER}"))?;
    match values::not_routed(address).filter(|_| !address.is_unicast_link_local()) {
        Some(what) => Err(format!("{address} is {what}, expected {EXPECTED_SERVER}")),
        None => Ok(address.into()),
    }
}

/// Parses a domain name of letters, digits, hyphens and underscores, in lower case.
fn domain(text: &str) -> Result<String, String> {
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
fn pref64(text: &str) -> Result<Ipv6Net, String> {
    let prefix = values::prefix(text)?;
    if !matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96) {
        let length = prefix.prefix_len();
        return Err(format!("{prefix} has {length} bits, expected {EXPECTED_PREF64}"));
    }
    if prefix.network().octets()[8] != 0 {
        return Err(format!("{prefix} has bits from 64 to 71 that are not zero, expected {EXPECTED_PREF64}"));
    }
    Ok(prefix)
}

/// Parses the URI of a captive portal's API, which must be HTTPS (RFC 8908 3).
fn portal(text: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_PORTAL}"));
    let is_uri = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(c);
    if let Some(bad) = text.chars().find(|c| !is_uri(*c)) {
        return wrong(&format!("has the character {bad:?}"));
    }
    let Some(rest) = text.strip_prefix("https://") else { return wrong("does not begin with https://") };
    if rest.split(['/', '?', '#']).next().is_none_or(str::is_empty) {
        return wrong("has no host");
    }
    if text.len() > MAX_URI {
        return wrong(&format!("has more than {MAX_URI} characters"));
    }
    Ok(text.to_owned())
}
