//! `[conformance]`: settings for a test system.

use std::net::{IpAddr, SocketAddr};

use super::keys::{Key, Section, required, text, with_default};
use super::kinds;
use super::table::Table;

/// Values of the config table `[conformance]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conformance {
    /// Address of the upper tester, at which ETSI's test system reaches it (UDP).
    pub upper_tester: SocketAddr,
}

/// Expected value in an error message: `upper_tester`.
const EXPECTED: &str = "[IPV6]:PORT or IPV4:PORT";

static UPPER_TESTER: Key<SocketAddr> = required(
    "upper_tester",
    text("address and port", EXPECTED, address),
    "Where the upper tester listens (UDP). It speaks ETSI's protocol for GeoNetworking and BTP (TR 103 099
     annex C) and needs `[geonet]`. Every program that reaches it can make the station send anything, claim
     another place and clear its location table. The station warns of that at its start.",
);
static ANYWHERE: Key<bool> = with_default(
    "anywhere",
    kinds::BOOLEAN,
    "false",
    "Allows an `upper_tester` whose address is neither loopback nor link-local.",
);

/// Keys of the config table `[conformance]`.
pub(in crate::config) static SECTION: Section =
    Section::new("[conformance]", "conformance", &[&UPPER_TESTER, &ANYWHERE]);

/// Position of the table in the file, and its values.
pub(super) struct Draft {
    pub at: usize,
    /// Config of the table; `None` if the table has an error.
    pub config: Option<Conformance>,
}

impl Draft {
    pub(super) fn read(table: &Table<'_>) -> Draft {
        Draft { at: table.at(), config: read(table) }
    }
}

fn read(table: &Table<'_>) -> Option<Conformance> {
    let anywhere = table.take(&ANYWHERE);
    let upper_tester = table.take(&UPPER_TESTER)?;
    if !is_near(upper_tester) && anywhere == Some(false) {
        let value = table.value(&UPPER_TESTER)?;
        let text = value.as_str().unwrap_or_default();
        value.refuse(&format!(
            "{text:?} is reachable from other networks, expected a loopback or link-local address, or \
             anywhere = true"
        ));
        return None;
    }
    anywhere.map(|_| Conformance { upper_tester })
}

fn address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 || address.ip().is_multicast() => {
            Err(format!("{text:?} is no address to listen on, expected {EXPECTED} of this machine"))
        }
        Ok(address) => Ok(address),
        Err(_) => Err(format!("{text:?} is no address with a port, expected {EXPECTED}")),
    }
}

/// Returns whether only this machine, or a neighbour on the link, can reach the address.
fn is_near(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}
