//! `[conformance]`: settings for a test system.

use std::net::{IpAddr, SocketAddr};

use super::keys::{Key, Section, key_with_default, required_key, text_kind};
use super::kinds;
use super::table::Table;

/// Values of the config table `[conformance]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conformance {
    /// Address of the upper tester, at which ETSI's test system reaches it (UDP).
    pub upper_tester: SocketAddr,
}

/// Expected value in an error message: `upper_tester`.
const EXPECTED_SOCKET_ADDRESS: &str = "[IPV6]:PORT or IPV4:PORT";

static UPPER_TESTER: Key<SocketAddr> = required_key(
    "upper_tester",
    text_kind("address and port", EXPECTED_SOCKET_ADDRESS, parse_tester_address),
    "Where the upper tester listens (UDP). It speaks ETSI's protocol for GeoNetworking and BTP (TR 103 099
     annex C) and needs `[geonet]`. Every program that reaches it can make the station send anything, claim
     another place and clear its location table. The station warns of that at its start.",
);
static ACCEPT_ANY_SOURCE: Key<bool> = key_with_default(
    "anywhere",
    kinds::BOOLEAN_KIND,
    "false",
    "Allows an `upper_tester` whose address is neither loopback nor link-local.",
);

/// Keys of the config table `[conformance]`.
pub(in crate::config) static SECTION: Section =
    Section::new("[conformance]", "conformance", &[&UPPER_TESTER, &ACCEPT_ANY_SOURCE]);

/// Position of the table in the file, and its values.
pub(super) struct UncheckedConformance {
    pub table_offset: usize,
    /// Config of the table; `None` if the table has an error.
    pub config: Option<Conformance>,
}

impl UncheckedConformance {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedConformance {
        UncheckedConformance { table_offset: table.table_offset(), config: read_conformance(table) }
    }
}

fn read_conformance(table: &Table<'_>) -> Option<Conformance> {
    let anywhere = table.read_key(&ACCEPT_ANY_SOURCE);
    let upper_tester = table.read_key(&UPPER_TESTER)?;
    if !is_loopback_or_link_local(upper_tester) && anywhere == Some(false) {
        let value = table.value_of_key(&UPPER_TESTER)?;
        let text = value.as_str().unwrap_or_default();
        value.report_error(&format!(
            "{text:?} is reachable from other networks, expected a loopback or link-local address, or \
             anywhere = true"
        ));
        return None;
    }
    anywhere.map(|_| Conformance { upper_tester })
}

fn parse_tester_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 || address.ip().is_multicast() => Err(format!(
            "{text:?} is no address to listen on, expected {EXPECTED_SOCKET_ADDRESS} of this machine"
        )),
        Ok(address) => Ok(address),
        Err(_) => Err(format!("{text:?} is no address with a port, expected {EXPECTED_SOCKET_ADDRESS}")),
    }
}

/// Returns whether only this machine or its neighbours on the link can reach the address.
fn is_loopback_or_link_local(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}
