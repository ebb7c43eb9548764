//! Config table `[[home_agent.peer]]`.

use std::net::Ipv6Addr;

use super::super::keys::{Key, Section, integer_kind, key_with_default, required_key};
use super::super::kinds;
use super::super::reader::Located;
use super::super::table::{Table, all};

/// `[[home_agent.peer]]`: another home agent at which the same mobile routers may register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAgent {
    /// Address.
    pub address: Ipv6Addr,
    /// Preference; the higher value wins.
    pub preference: u16,
}

static ADDRESS: Key<Ipv6Addr> = required_key("address", kinds::ADDRESS_KIND, "Its address.");
static PREFERENCE_KEY: Key<u16> =
    key_with_default("preference", integer_kind(0, 65_535), "0", "Its preference; the higher number wins.");

/// Keys of the config table `[[home_agent.peer]]`.
pub(in crate::config) static SECTION: Section =
    Section::new("[[home_agent.peer]]", "home_agent.peer", &[&ADDRESS, &PREFERENCE_KEY]);

/// The parsed table, with the values that the checks compare with other tables.
pub(in crate::config) struct UncheckedPeer {
    pub address: Option<Located<Ipv6Addr>>,
    pub config: Option<PeerAgent>,
}

impl UncheckedPeer {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedPeer {
        let address = table.read_key_with_offset(&ADDRESS);
        let config = all!(PeerAgent {
            address: address.map(|address| address.value),
            preference: table.read_key(&PREFERENCE_KEY),
        });
        UncheckedPeer { address, config }
    }
}
