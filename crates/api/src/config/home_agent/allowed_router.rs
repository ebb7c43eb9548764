//! Config table `[[home_agent.mobile_router]]`.

use std::net::Ipv6Addr;

use ipnet::{Ipv4Net, Ipv6Net};

use super::super::auth::{self, Auth};
use super::super::keys::{Key, OptionalKey, Section, key_with_default, optional_key, required_key};
use super::super::kinds;
use super::super::reader::{List, Located};
use super::super::table::{Table, all};

/// `[[home_agent.mobile_router]]`: a node that may register with this home agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedRouter {
    /// Home address.
    pub home_address: Ipv6Addr,
    /// The only prefixes that the node may register; empty for a mobile node.
    pub prefixes: Vec<Ipv6Net>,
    /// The only IPv4 prefixes that the node may register.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Authentication of the node's Binding Updates.
    pub node_auth: Auth,
    /// Whether a NAT may be between the node and the home agent.
    pub allows_nat: bool,
    /// Whether the home agent sends packets to a new care-of address only after an Echo Reply from it
    /// (`care_of_test`).
    pub care_of_test: bool,
}

static HOME_ADDRESS: Key<Ipv6Addr> = required_key(
    "home_address",
    kinds::ADDRESS_KIND,
    "Its home address, in the home prefix or in one of `prefixes`. No two routers have the same.",
);
static PREFIXES: Key<List<Ipv6Net>> = key_with_default(
    "prefixes",
    kinds::PREFIXES_KIND,
    "[]",
    "The only prefixes that it may register. No prefix overlaps another prefix of this or any other router.",
);
static IPV4_PREFIXES: Key<List<Ipv4Net>> = key_with_default(
    "ipv4_prefixes",
    kinds::IPV4_PREFIXES_KIND,
    "[]",
    "The only IPv4 prefixes that it may register (RFC 5555), public or private. No prefix overlaps another
     prefix of this or any other router. See [IPv4 on board](#ipv4-on-board).",
);
pub(in crate::config) static AUTH: Key<Auth> = required_key(
    "auth",
    auth::AUTH_KIND,
    "How the home agent authenticates its Binding Updates, see [auth](#auth).",
);
static ALLOW_NAT: Key<bool> = key_with_default(
    "nat",
    kinds::BOOLEAN_KIND,
    "true",
    "Whether a NAT may be between it and the home agent. With `false` the home agent accepts an IPv4 care-of
     address only if the Binding Update comes from it. An attacker who forwards a genuine Binding Update from
     his own address then gets no packets.",
);
static CARE_OF_TEST: OptionalKey<bool> = optional_key(
    "care_of_test",
    kinds::ON_OR_OFF_KIND,
    "As in `[home_agent]`, for this router. Without this key that value holds.",
);

/// Keys of the config table `[[home_agent.mobile_router]]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[[home_agent.mobile_router]]",
    "home_agent.mobile_router",
    &[&HOME_ADDRESS, &PREFIXES, &IPV4_PREFIXES, &AUTH, &ALLOW_NAT, &CARE_OF_TEST],
);

/// The parsed table, with the values that the checks compare with other tables.
pub(in crate::config) struct UncheckedRouter {
    pub home_address: Option<Located<Ipv6Addr>>,
    pub prefixes: List<Ipv6Net>,
    pub ipv4_prefixes: List<Ipv4Net>,
    pub auth: Option<Located<Auth>>,
    pub config: Option<AllowedRouter>,
}

impl UncheckedRouter {
    /// Reads the table; `care_of_test` is the home agent's default.
    pub(super) fn read_table(table: &Table<'_>, care_of_test: bool) -> UncheckedRouter {
        let home_address = table.read_key_with_offset(&HOME_ADDRESS);
        let prefixes = table.read_key(&PREFIXES).unwrap_or_default();
        let ipv4_prefixes = table.read_key(&IPV4_PREFIXES).unwrap_or_default();
        let auth = table.read_key_with_offset(&AUTH);
        let config = all!(AllowedRouter {
            home_address: home_address.map(|address| address.value),
            prefixes: prefixes.complete_items(),
            ipv4_prefixes: ipv4_prefixes.complete_items(),
            node_auth: auth.as_ref().map(|auth| auth.value.clone()),
            allows_nat: table.read_key(&ALLOW_NAT),
            care_of_test: table.read_key(&CARE_OF_TEST).map(|own| own.unwrap_or(care_of_test)),
        });
        UncheckedRouter { home_address, prefixes, ipv4_prefixes, auth, config }
    }
}
