//! The home agents of a mobile router, and those beside a home agent.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::reader::{At, Table, Value};
use super::super::{HomeAgents, PeerAgent, schema, values};
use super::List;

/// What is expected of `home_agent`.
const HOME_AGENT: &str = values::ADDRESS;
/// What is expected of an array of them.
const SEVERAL: &str = "an address, \"discover\", or an array of addresses";

/// `home_agent` and `home_agent_ipv4` of `[mobile_router]`.
pub(in crate::config) struct HomeAgentsDraft {
    /// The addresses, the preferred first; `None` when something is wrong with them.
    pub addresses: Option<List<Ipv6Addr>>,
    pub discover: bool,
    /// Their IPv4 addresses, in the same order.
    pub ipv4_addresses: Option<List<Ipv4Addr>>,
}

impl HomeAgentsDraft {
    pub fn read(table: &Table<'_>) -> HomeAgentsDraft {
        let value = table.need("home_agent", HOME_AGENT);
        let (elements, whole) = match &value {
            None => (Vec::new(), false),
            Some(value) if value.is_array() => match value.array(SEVERAL) {
                Some(elements) => (elements, true),
                None => (Vec::new(), false),
            },
            Some(_) => (Vec::new(), true),
        };
        let one = value.as_ref().filter(|value| !value.is_array());
        let all: Vec<&Value<'_>> = elements.iter().chain(one).collect();
        let discover = all.iter().any(|value| value.as_str() == Some("discover"));
        let named: Vec<&&Value<'_>> = all.iter().filter(|v| v.as_str() != Some("discover")).collect();
        let items: Vec<At<Ipv6Addr>> =
            named.iter().filter_map(|value| value.parse(HOME_AGENT, values::address)).collect();
        let whole = whole && items.len() == named.len();
        if let Some(value) = value.as_ref().filter(|_| whole && all.is_empty()) {
            value.refuse(&format!("there is no home agent, expected {SEVERAL}"));
        }
        let complete = whole && !all.is_empty();
        HomeAgentsDraft {
            addresses: value.is_some().then_some(List { items, whole: complete }),
            discover,
            ipv4_addresses: ipv4_addresses(table),
        }
    }

    pub fn finish(self) -> Option<HomeAgents> {
        Some(HomeAgents {
            addresses: self.addresses?.finish()?,
            ipv4_addresses: self.ipv4_addresses?.finish()?,
            discover: self.discover,
        })
    }

    /// The addresses that are in order.
    pub fn items(&self) -> &[At<Ipv6Addr>] {
        self.addresses.as_ref().map_or(&[], |list| &list.items)
    }
}

fn ipv4_addresses(table: &Table<'_>) -> Option<List<Ipv4Addr>> {
    match table.get("home_agent_ipv4") {
        Some(value) if value.is_array() => {
            let expected = "an IPv4 address, or an array of them";
            Some(List::read(Some(value), expected, values::IPV4_ADDRESS, values::ipv4_address))
        }
        Some(value) => {
            let address = value.parse(values::IPV4_ADDRESS, values::ipv4_address);
            Some(List { whole: address.is_some(), items: address.into_iter().collect() })
        }
        None => Some(List { items: Vec::new(), whole: true }),
    }
}

/// `[[home_agent.peer]]`
pub(in crate::config) struct PeerDraft {
    pub address: Option<At<Ipv6Addr>>,
    preference: Option<u16>,
}

impl PeerDraft {
    /// All of them.
    pub fn read_all(table: &Table<'_>) -> Option<Vec<PeerDraft>> {
        let Some(value) = table.get("peer") else { return Some(Vec::new()) };
        Some(value.tables(&schema::PEER)?.iter().map(PeerDraft::read).collect())
    }

    fn read(table: &Table<'_>) -> PeerDraft {
        PeerDraft { address: super::address(table, "address"), preference: preference(table) }
    }

    pub fn finish(self) -> Option<PeerAgent> {
        Some(PeerAgent { address: self.address?.value, preference: self.preference? })
    }
}

/// A home agent's preference (RFC 6275 7.4).
pub(super) fn preference(table: &Table<'_>) -> Option<u16> {
    match table.get("preference") {
        Some(value) => {
            value.integer(0, u32::from(u16::MAX)).and_then(|preference| u16::try_from(preference.value).ok())
        }
        None => Some(0),
    }
}
