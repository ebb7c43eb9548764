//! `[conformance]` as it was read.

use std::net::SocketAddr;

use super::super::conformance::{Conformance, is_near};
use super::super::reader::Table;

const ADDRESS: &str = "[IPV6]:PORT or IPV4:PORT";

/// `[conformance]`
pub(in crate::config) struct ConformanceDraft {
    /// Where the table stands in the file.
    pub at: usize,
    upper_tester: Option<SocketAddr>,
}

impl ConformanceDraft {
    pub(in crate::config) fn read(at: usize, table: &Table<'_>) -> ConformanceDraft {
        let anywhere = match table.get("anywhere") {
            Some(value) => value.boolean(),
            None => Some(false),
        };
        let parse = |text: &str| match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 || address.ip().is_multicast() => {
                Err(format!("{text:?} is nothing to listen at, expected {ADDRESS} of this machine"))
            }
            Ok(address) if !is_near(address) && anywhere == Some(false) => Err(format!(
                "{text:?} can be reached from afar, expected a loopback or link-local address, or \
                 anywhere = true beside it"
            )),
            Ok(address) => Ok(address),
            Err(_) => Err(format!("{text:?} is no address with a port, expected {ADDRESS}")),
        };
        let upper_tester = table.need("upper_tester", ADDRESS);
        ConformanceDraft {
            at,
            upper_tester: upper_tester
                .and_then(|value| value.parse(ADDRESS, parse))
                .map(|address| address.value)
                .filter(|_| anywhere.is_some()),
        }
    }

    pub(in crate::config) fn finish(self) -> Option<Conformance> {
        Some(Conformance { upper_tester: self.upper_tester? })
    }
}
