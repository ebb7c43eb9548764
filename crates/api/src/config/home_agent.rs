//! Config table `[home_agent]`.

mod allowed_router;
mod peer;

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_mobility::ReplayProtection;
use carnet_mobility::home_agent::{MultipleCareOfAddresses, TranslatedPrefix};
use ipnet::Ipv6Net;

use super::auth::Auth;
use super::conflicts::{
    check_disjoint, check_home_address, check_home_agent_outside_prefixes,
    check_ipv4_home_agents_outside_prefixes,
};
use super::errors::ErrorSink;
use super::keys::{
    Key, OptionalKey, Section, TableKey, ValueKind, integer_kind, key_with_default, optional_key,
    required_key, table_array, value_kind, words_kind,
};
use super::reader::{List, Located};
use super::session_keys::DEFAULT_TUNNEL_PORT;
use super::table::{Table, all};
use super::{kinds, values};

pub use allowed_router::AllowedRouter;
pub use peer::PeerAgent;

/// Values of the config table `[home_agent]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeAgent {
    /// Address of the home agent, which carnet assigns; no other program may assign it.
    pub address: Ipv6Addr,
    /// Address of this machine at which mobile routers in IPv4 networks register; `None` if they cannot.
    pub ipv4_address: Option<Ipv4Addr>,
    /// Whether packets inside IPv4 always go in UDP.
    pub always_uses_udp: bool,
    /// UDP port of encrypted sessions.
    pub tunnel_port: u16,
    /// Whether a mobile router may have several care-of addresses.
    pub multiple_care_of: MultipleCareOfAddresses,
    /// Default of `care_of_test` for the mobile routers.
    pub care_of_test: bool,
    /// Prefix of the home link.
    pub home_prefix: Ipv6Net,
    /// Prefix that is routed to this machine and contains the home prefix and mobile networks; `None` if
    /// there is no such prefix.
    pub home_network: Option<Ipv6Net>,
    /// Interface of the home link; `None` for a virtual one.
    pub home_link: Option<String>,
    /// Interface, not on the home link, on which the home agent answers Neighbor Solicitations for registered
    /// mobile networks.
    pub ndp_proxy: Option<String>,
    /// Interface at which IPv4 packets of mobile networks get the machine's address; `None` for plain routes.
    pub ipv4_nat: Option<String>,
    /// Interface at which packets with unique local source addresses get the machine's address.
    pub ipv6_nat: Option<String>,
    /// Unique local prefixes that the home agent translates at the interface `ipv6_nat`, each to another
    /// prefix, in both directions.
    pub ipv6_nat_prefixes: Vec<TranslatedPrefix>,
    /// Longest granted lifetime, a multiple of 4 s from 4 s to 262140 s.
    pub max_lifetime: Duration,
    /// Preference among the home agents of the home link (RFC 6275 7.4); the higher value wins.
    pub preference: u16,
    /// Whether the home agent answers discovery requests (RFC 6275 10.5), and advertises itself on the home
    /// link.
    pub answers_dhaad: bool,
    /// Other home agents that serve the same home prefix and the same mobile routers.
    pub peer_agents: Vec<PeerAgent>,
    /// Mobile routers (and mobile nodes) that may register.
    pub mobile_routers: Vec<AllowedRouter>,
}

impl HomeAgent {
    /// Returns warnings about a valid table, one line each. `has_state_dir` says whether the station stores
    /// its state.
    pub(super) fn warnings(&self, has_state_dir: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let prefixes = || self.mobile_routers.iter().flat_map(|router| &router.prefixes);
        if self.ipv4_nat.is_some() && self.mobile_routers.iter().all(|router| router.ipv4_prefixes.is_empty())
        {
            warnings.push("home_agent.ipv4_nat: no mobile router has `ipv4_prefixes`".to_owned());
        }
        if self.ipv6_nat.is_some() && !prefixes().any(|prefix| prefix.addr().is_unique_local()) {
            warnings.push("home_agent.ipv6_nat: no mobile router has unique local `prefixes`".to_owned());
        }
        if self.mobile_routers.is_empty() {
            warnings.push("no [[home_agent.mobile_router]]: no mobile router can register".to_owned());
        }
        for router in self.mobile_routers.iter().filter(|router| router.node_auth == Auth::None) {
            warnings.push(format!(
                "home_agent.mobile_router {}: auth = \"none\": anyone who reaches the home agent can \
                 take over the traffic of this mobile router",
                router.home_address
            ));
        }
        let by_sequence = |router: &AllowedRouter| {
            router
                .node_auth
                .shared_key_auth()
                .is_some_and(|mac| mac.replay_protection == ReplayProtection::Sequence)
        };
        let shared = |router: &AllowedRouter| {
            router.node_auth.shared_key_auth().is_some_and(|mac| mac.differs_per_home_agent.is_none())
        };
        if self.answers_dhaad && self.home_link.is_some() && self.mobile_routers.iter().any(shared) {
            warnings.push(
                "home_agent.mobile_router: auth without `per_agent`: if another home agent of the home link \
                 has the same key, an attacker can replay messages to one home agent at the other"
                    .to_owned(),
            );
        }
        let known = std::iter::once(self.home_prefix).chain(self.home_network);
        if !known.into_iter().any(|prefix| prefix.contains(&self.address)) {
            warnings.push(format!(
                "home_agent.address {}: neither in home_prefix nor in home_network; expected an address \
                 that is on no interface and is routed to this machine",
                self.address
            ));
        }
        if !self.peer_agents.is_empty()
            && self.mobile_routers.iter().any(|it| it.node_auth.session_keys().is_some())
        {
            warnings.push(
                "home_agent.peer: packets that home agents relay to each other are in the clear".to_owned(),
            );
        }
        for peer in &self.peer_agents {
            let known = std::iter::once(self.home_prefix).chain(self.home_network);
            if !known.into_iter().any(|prefix| prefix.contains(&peer.address)) {
                warnings.push(format!(
                    "home_agent.peer {}: neither in home_prefix nor in home_network; is it a home agent of \
                     this home prefix?",
                    peer.address
                ));
            }
        }
        if !has_state_dir && self.mobile_routers.iter().any(by_sequence) {
            warnings.push(
                "home_agent without station.state_dir: after a restart the home agent does not detect \
                 replayed Binding Updates"
                    .to_owned(),
            );
        }
        let has_sessions = |router: &AllowedRouter| matches!(router.node_auth, Auth::Sessions(_));
        let is_each_encrypted =
            !self.mobile_routers.is_empty() && self.mobile_routers.iter().all(has_sessions);
        if is_each_encrypted && self.always_uses_udp {
            warnings.push(
                "home_agent.udp has no effect, because each mobile router has a `public_key`: encrypted \
                 sessions always use UDP"
                    .to_owned(),
            );
        }
        if self.tunnel_port != DEFAULT_TUNNEL_PORT && !self.mobile_routers.iter().any(has_sessions) {
            warnings.push(
                "home_agent.tunnel_port has no effect, because no mobile router has a `public_key`: it is \
                 the port of encrypted sessions"
                    .to_owned(),
            );
        }
        if !has_state_dir && self.mobile_routers.iter().any(has_sessions) {
            warnings.push(
                "home_agent without station.state_dir: after a restart the home agent does not know the next \
                 keys that mobile routers have announced (`carnet key rotate`)"
                    .to_owned(),
            );
        }
        warnings
    }
}

static ADDRESS: Key<Ipv6Addr> = required_key(
    "address",
    kinds::ADDRESS_KIND,
    "Address of the home agent. carnet owns it: assign it to no interface. It must not be in a prefix of a
     mobile router, nor be a home address.",
);
static IPV4_ADDRESS: OptionalKey<Ipv4Addr> = optional_key(
    "ipv4_address",
    kinds::IPV4_ADDRESS_KIND,
    "Address of this machine at which mobile routers in IPv4 networks register, by UDP port 4191 (RFC 5555).
     Behind a NAT that forwards the port, it is the inner address. Without this key mobile routers cannot
     register over IPv4.",
);
static ALWAYS_UDP: Key<bool> = key_with_default(
    "udp",
    kinds::BOOLEAN_KIND,
    "false",
    "Use UDP inside IPv4 even without a NAT. Needed if only the UDP port is forwarded to this machine.",
);
static TUNNEL_PORT: Key<u16> = key_with_default(
    "tunnel_port",
    integer_kind(1, 65_535),
    "51820",
    "UDP port of the encrypted sessions, over IPv6 at `address` and over IPv4 at `ipv4_address`. It is in use
     if a mobile router has a `public_key`, see [tunnel](tunnel.md).",
);
static MULTIPLE_CARE_OF: Key<MultipleCareOfAddresses> = key_with_default(
    "multiple_care_of",
    words_kind(&[
        ("bulk", MultipleCareOfAddresses::Bulk),
        ("single", MultipleCareOfAddresses::Single),
        ("none", MultipleCareOfAddresses::Prohibited),
    ]),
    "\"bulk\"",
    r#"Whether a mobile router may register several uplinks at once (RFC 5648). `"bulk"`: one Binding Update
       may carry all of them. `"single"`: each uplink has a Binding Update of its own. `"none"`: the mobile
       router registers its best uplink only."#,
);
static CARE_OF_TEST: Key<bool> = key_with_default(
    "care_of_test",
    kinds::ON_OR_OFF_KIND,
    "\"on\"",
    r#"With `"on"` a new care-of address gets packets only after it has answered an Echo Request with random
       data, see [below](#test-of-a-care-of-address). It holds for all mobile routers that have no
       `care_of_test` of their own."#,
);
static HOME_PREFIX: Key<Ipv6Net> = required_key(
    "home_prefix",
    kinds::PREFIX_KIND,
    "Prefix of the home link. It may contain the mobile networks (RFC 4887 6); on a real home link this
     machine then answers for those that are away.",
);
static HOME_NETWORK: OptionalKey<Ipv6Net> = optional_key(
    "home_network",
    kinds::PREFIX_KIND,
    "The one prefix that is routed to this machine, if it contains the home prefix and the mobile networks
     beside it (RFC 4887 5). The home agent makes its unused parts unreachable instead of sending their
     packets back.",
);
static HOME_LINK: OptionalKey<String> = optional_key(
    "home_link",
    kinds::INTERFACE_KIND,
    "Interface of the home link. The interface has an address of its own in the home prefix, different from
     the home agent's. Without this key the home link is virtual: home addresses exist only as bindings.
     carnet keeps Router Advertisements on the home link from changing this machine's routes where it can
     ([threats](threats.md#on-the-visited-link-and-on-the-home-link)).",
);
static NDP_PROXY: OptionalKey<String> = optional_key(
    "ndp_proxy",
    kinds::INTERFACE_KIND,
    "Interface on whose link the machine's prefix is, if the provider does not route it
     ([cookbook](cookbook-cloud.md#a-64-that-is-only-on-the-link)). The home agent answers Neighbor
     Solicitations there for its address, for registered home addresses, and for each address of registered
     mobile networks (RFC 4861 7.2.8). It answers at most 500 multicast solicitations a second. The home link
     stays virtual. It must be another interface than `home_link`.",
);
/// Maximum number of prefixes in `ipv6_nat_prefixes`, which bounds the number of rules in the kernel.
const MAX_TRANSLATED_PREFIXES: usize = 16;
const EXPECTED_PREFIX_PAIRS: &str = "an array of pairs of prefixes";
const EXPECTED_PREFIX_PAIR: &str =
    "a unique local prefix and another one of the same length, such as \"fd00:42::/48 2001:db8:42::/48\"";
const PREFIX_PAIRS_KIND: ValueKind<List<TranslatedPrefix>> =
    value_kind("array of pairs of prefixes", EXPECTED_PREFIX_PAIRS, |value| {
        List::read_array(value, EXPECTED_PREFIX_PAIRS, |item| {
            item.parse(EXPECTED_PREFIX_PAIR, parse_prefix_pair)
        })
    });

/// Parses two prefixes of the same length: a unique local prefix, and the prefix on the Internet that
/// replaces it.
fn parse_prefix_pair(text: &str) -> Result<TranslatedPrefix, String> {
    let wrong = |what: String| Err(format!("{what}, expected {EXPECTED_PREFIX_PAIR}"));
    let Some((inside, outside)) = text.split_once(' ') else {
        return wrong(format!("{text:?} is no pair of prefixes"));
    };
    let (inside, outside) = (values::parse_prefix(inside)?, values::parse_prefix(outside.trim_start())?);
    if inside.prefix_len() != outside.prefix_len() {
        return wrong(format!("{inside} and {outside} differ in length"));
    }
    // A prefix shorter than /7 contains addresses that are not unique local (RFC 4193).
    let is_unique_local = |prefix: Ipv6Net| prefix.prefix_len() >= 7 && prefix.network().is_unique_local();
    if !is_unique_local(inside) {
        return wrong(format!("{inside} is not unique local"));
    }
    if is_unique_local(outside) {
        return wrong(format!("{outside} is unique local"));
    }
    Ok(TranslatedPrefix { inside_prefix: inside, outside_prefix: outside })
}

static IPV4_NAT: OptionalKey<String> = optional_key(
    "ipv4_nat",
    kinds::INTERFACE_KIND,
    "Interface to the Internet. IPv4 packets of mobile networks that leave by it get its IPv4 address (NAT,
     masquerade), see [cookbook](cookbook-cloud.md#nat). Without this key IPv4 mobile networks have plain
     routes.",
);
static IPV6_NAT: OptionalKey<String> = optional_key(
    "ipv6_nat",
    kinds::INTERFACE_KIND,
    "Interface to the Internet. IPv6 packets of mobile networks that leave by it and have a unique local
     source address (fc00::/7) get its IPv6 address (NAT, masquerade). Packets with other source addresses
     keep them.",
);
static IPV6_NAT_PREFIXES: Key<List<TranslatedPrefix>> = key_with_default(
    "ipv6_nat_prefixes",
    PREFIX_PAIRS_KIND,
    "[]",
    r#"Pairs of prefixes such as `"fd00:42::/48 2001:db8:42::/48"`, at most 16. At `ipv6_nat` the kernel
       replaces the first prefix, a unique local one of mobile networks, by the second one. For packets from
       outside it replaces the second one by the first one. The second prefix must be routed to this machine,
       and no interface may have it. All other unique local addresses get the address of the interface. See
       [cookbook](cookbook-cloud.md#nat)."#,
);
static MAX_LIFETIME: Key<Duration> = key_with_default(
    "max_lifetime",
    kinds::LIFETIME_KIND,
    "\"10m\"",
    "Longest lifetime that the home agent grants to a binding.",
);
static PREFERENCE_KEY: Key<u16> = key_with_default(
    "preference",
    integer_kind(0, 65_535),
    "0",
    "Preference among the home agents of the home link (RFC 6275 7.4); the higher number wins.",
);
static ANSWER_DHAAD: Key<bool> = key_with_default(
    "dhaad",
    kinds::BOOLEAN_KIND,
    "false",
    "Home agent address discovery. The home agent answers requests to the home agents' anycast address of the
     home prefix (`...:fdff:ffff:ffff:fffe`; route it here like the home agent's address). The answer names
     this home agent, its peers and those that it receives on the home link. It answers any source, once a
     second for each /64 network and 50 times a second in total. A home prefix shorter than 64 bits has the
     anycast address in its first /64, in that of `address` and in those of home addresses (eight at most).
     Those that are mobile networks do not have it: routers ask in the others. On a `home_link` the home agent
     also announces itself in Router Advertisements (H flag, its address, Home Agent Information). They make
     it no default router, and hosts make no addresses from them. The home prefix has to be a /64 or
     shorter.",
);
static PEER_AGENTS: TableKey = table_array(
    "peer",
    &peer::SECTION,
    "Other home agents to which mobile routers can move, see [[[home_agent.peer]]](#home_agentpeer).",
);
static MOBILE_ROUTERS: TableKey = table_array(
    "mobile_router",
    &allowed_router::SECTION,
    "The mobile routers that may register, see [[[home_agent.mobile_router]]](#home_agentmobile_router).",
);

/// Keys of the config table `[home_agent]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[home_agent]",
    "home_agent",
    &[
        &ADDRESS,
        &IPV4_ADDRESS,
        &ALWAYS_UDP,
        &TUNNEL_PORT,
        &MULTIPLE_CARE_OF,
        &CARE_OF_TEST,
        &HOME_PREFIX,
        &HOME_NETWORK,
        &HOME_LINK,
        &NDP_PROXY,
        &IPV4_NAT,
        &IPV6_NAT,
        &IPV6_NAT_PREFIXES,
        &MAX_LIFETIME,
        &PREFERENCE_KEY,
        &ANSWER_DHAAD,
        &PEER_AGENTS,
        &MOBILE_ROUTERS,
    ],
);

/// The parsed table, with the values that the checks compare with other tables.
pub(super) struct UncheckedHomeAgent {
    pub address: Option<Located<Ipv6Addr>>,
    ipv4_address: Option<Located<Ipv4Addr>>,
    home_prefix: Option<Located<Ipv6Net>>,
    home_network: Option<Located<Ipv6Net>>,
    pub home_link: Option<Located<String>>,
    pub ndp_proxy: Option<Located<String>>,
    /// Whether the table has `ipv6_nat`, perhaps with an error.
    has_ipv6_nat: bool,
    nat_prefixes: List<TranslatedPrefix>,
    answers_dhaad: bool,
    pub peer_agents: Vec<peer::UncheckedPeer>,
    pub allowed_routers: Vec<allowed_router::UncheckedRouter>,
    /// Config of the table; `None` if the table has an error.
    pub config: Option<HomeAgent>,
}

impl UncheckedHomeAgent {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedHomeAgent {
        let routers = table.subtables(&MOBILE_ROUTERS);
        let address = table.read_key_with_offset(&ADDRESS);
        let ipv4_address = table.find_key_with_offset(&IPV4_ADDRESS);
        let care_of_test = table.read_key(&CARE_OF_TEST);
        let home_prefix = table.read_key_with_offset(&HOME_PREFIX);
        let home_network = table.find_key_with_offset(&HOME_NETWORK);
        let home_link = table.find_key_with_offset(&HOME_LINK);
        let ndp_proxy = table.find_key_with_offset(&NDP_PROXY);
        let dhaad = table.read_key(&ANSWER_DHAAD);
        let peers: Option<Vec<peer::UncheckedPeer>> = table
            .subtables(&PEER_AGENTS)
            .map(|tables| tables.iter().map(peer::UncheckedPeer::read_table).collect());
        let mut routers: Option<Vec<allowed_router::UncheckedRouter>> = routers.map(|tables| {
            let read =
                |table| allowed_router::UncheckedRouter::read_table(table, care_of_test.unwrap_or_default());
            tables.iter().map(read).collect()
        });
        let ipv6_nat = table.find_key_with_offset(&IPV6_NAT);
        let nat_prefixes = table.read_key(&IPV6_NAT_PREFIXES).unwrap_or_default();
        let config = all!(HomeAgent {
            address: address.map(|address| address.value),
            ipv4_address: ipv4_address.map(|address| address.map(|address| address.value)),
            always_uses_udp: table.read_key(&ALWAYS_UDP),
            tunnel_port: table.read_key(&TUNNEL_PORT),
            multiple_care_of: table.read_key(&MULTIPLE_CARE_OF),
            care_of_test: care_of_test,
            home_prefix: home_prefix.map(|prefix| prefix.value),
            home_network: home_network.map(|network| network.map(|network| network.value)),
            home_link: home_link.clone().map(|link| link.map(|link| link.value)),
            ndp_proxy: ndp_proxy.clone().map(|link| link.map(|link| link.value)),
            ipv4_nat: table.find_key_with_offset(&IPV4_NAT).map(|it| it.map(|it| it.value)),
            ipv6_nat: ipv6_nat.clone().map(|it| it.map(|it| it.value)),
            ipv6_nat_prefixes: nat_prefixes.complete_items(),
            max_lifetime: table.read_key(&MAX_LIFETIME),
            preference: table.read_key(&PREFERENCE_KEY),
            answers_dhaad: dhaad,
            peer_agents: peers.as_ref().and_then(|peers| peers.iter().map(|peer| peer.config).collect()),
            mobile_routers: routers
                .as_mut()
                .and_then(|routers| routers.iter_mut().map(|router| router.config.take()).collect()),
        });
        UncheckedHomeAgent {
            address,
            ipv4_address: ipv4_address.flatten(),
            home_prefix,
            home_network: home_network.flatten(),
            home_link: home_link.flatten(),
            ndp_proxy: ndp_proxy.flatten(),
            has_ipv6_nat: ipv6_nat.is_none_or(|interface| interface.is_some()),
            nat_prefixes,
            answers_dhaad: dhaad.unwrap_or_default(),
            peer_agents: peers.unwrap_or_default(),
            allowed_routers: routers.unwrap_or_default(),
            config,
        }
    }

    /// Reports conflicts between values of the table.
    pub(super) fn check_values(&self, sink: &ErrorSink<'_>) {
        if let (Some(network), Some(home)) = (self.home_network, self.home_prefix)
            && !network.value.contains(&home.value)
        {
            let place = sink.format_position(home.offset);
            let message = format!(
                "{} does not contain the home prefix {} at {place}, expected one that does",
                network.value, home.value
            );
            sink.push(network.offset, message);
        }
        if let Some((link, proxy)) = self.home_link.as_ref().zip(self.ndp_proxy.as_ref())
            && link.value == proxy.value
        {
            let place = sink.format_position(link.offset);
            let message =
                format!("{} is the home link at {place}, where the home agent answers already", proxy.value);
            sink.push(proxy.offset, format!("{message}, expected another interface"));
        }
        self.check_nat_prefixes(sink);
        let (mut prefixes, mut ipv4_prefixes) = (Vec::new(), Vec::new());
        let mut home_addresses: HashMap<Ipv6Addr, Located<Ipv6Addr>> = HashMap::new();
        for router in &self.allowed_routers {
            check_home_address(router.home_address, self.home_prefix, &router.prefixes, sink);
            if let Some(own) = router.home_address {
                let first = *home_addresses.entry(own.value).or_insert(own);
                if first.offset != own.offset {
                    let place = sink.format_position(first.offset);
                    sink.push(
                        own.offset,
                        format!("{} is the home address at {place}, expected another", own.value),
                    );
                }
                if let Some(address) = self.address.filter(|address| address.value == own.value) {
                    let place = sink.format_position(address.offset);
                    sink.push(
                        own.offset,
                        format!("{} is the home agent at {place}, expected another", own.value),
                    );
                }
            }
            check_home_agent_outside_prefixes(self.address, &router.prefixes, sink);
            check_ipv4_home_agents_outside_prefixes(
                self.ipv4_address.as_slice(),
                &router.ipv4_prefixes,
                sink,
            );
            prefixes.extend(&router.prefixes.valid_items);
            ipv4_prefixes.extend(&router.ipv4_prefixes.valid_items);
        }
        check_disjoint(&prefixes, sink);
        check_disjoint(&ipv4_prefixes, sink);
        self.check_peers(sink);
        // RFC 2526: an anycast address belongs to a /64, so the home prefix must not be longer.
        if let Some(prefix) =
            self.home_prefix.filter(|prefix| self.answers_dhaad && prefix.value.prefix_len() > 64)
        {
            let message = "has no anycast address for home agents, expected /64 or shorter with `dhaad`";
            sink.push(prefix.offset, format!("{} {message}", prefix.value));
        }
    }

    /// Checks the translated prefixes of the NAT (`ipv6_nat_prefixes`).
    fn check_nat_prefixes(&self, sink: &ErrorSink<'_>) {
        let pairs = &self.nat_prefixes.valid_items;
        if let Some(first) = pairs.first().filter(|_| !self.has_ipv6_nat) {
            sink.push(first.offset, "these prefixes need an interface, expected the key `ipv6_nat`");
        }
        if let Some(pair) = pairs.get(MAX_TRANSLATED_PREFIXES) {
            sink.push(
                pair.offset,
                format!("too many pairs of prefixes, expected at most {MAX_TRANSLATED_PREFIXES}"),
            );
        }
        let of = |part: fn(&TranslatedPrefix) -> Ipv6Net| -> Vec<Located<Ipv6Net>> {
            pairs.iter().map(|pair| Located { value: part(&pair.value), offset: pair.offset }).collect()
        };
        let (inside, outside) = (of(|pair| pair.inside_prefix), of(|pair| pair.outside_prefix));
        check_disjoint(&inside, sink);
        check_disjoint(&outside, sink);
        let networks = self.allowed_routers.iter().flat_map(|router| &router.prefixes.valid_items);
        let own = networks.chain(&self.home_prefix).chain(&self.home_network);
        for (pair, own) in outside.iter().flat_map(|pair| own.clone().map(move |own| (pair, own))) {
            if pair.value.contains(&own.value) || own.value.contains(&pair.value) {
                let place = sink.format_position(own.offset);
                let message = format!("{} overlaps {} at {place}", pair.value, own.value);
                sink.push(pair.offset, format!("{message}, expected a prefix without another use"));
            }
        }
    }

    /// Checks the other home agents, which have the same mobile routers as this one.
    fn check_peers(&self, sink: &ErrorSink<'_>) {
        let peers: Vec<Located<Ipv6Addr>> = self.peer_agents.iter().filter_map(|peer| peer.address).collect();
        for (index, peer) in peers.iter().enumerate() {
            let taken = |other: &Located<Ipv6Addr>, what: &str| {
                let place = sink.format_position(other.offset);
                sink.push(peer.offset, format!("{} is {what} at {place}, expected another", peer.value));
            };
            if let Some(own) = self.address.filter(|own| own.value == peer.value) {
                taken(&own, "this home agent");
            }
            if let Some(other) = peers.iter().take(index).find(|other| other.value == peer.value) {
                taken(other, "a peer already");
            }
            for router in &self.allowed_routers {
                if let Some(home) = router.home_address.filter(|home| home.value == peer.value) {
                    taken(&home, "the home address");
                }
                check_home_agent_outside_prefixes(Some(*peer), &router.prefixes, sink);
            }
        }
        for auth in self
            .allowed_routers
            .iter()
            .filter_map(|router| router.auth.as_ref())
            .filter(|_| !peers.is_empty())
        {
            if auth.value.shared_key_auth().is_some_and(|mac| mac.differs_per_home_agent.is_none()) {
                let message = "with a [[home_agent.peer]] the key must say whether it differs for each home \
                               agent, expected per_agent = true, or per_agent = false for a key that no \
                               other home agent has";
                sink.push(auth.offset, message);
            }
        }
    }
}
