//! The virtual interfaces, and what is known of the IPv6 subnets on them.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::GeoArea;
use carnet_wire::nd::{NdOption, RouterAdvertisement};

use super::addresses::Prefix;
use crate::MacAddress;
use crate::geodesy::{self, Position};

/// Largest number of prefixes stored for a link, because any station may send Router Advertisements.
const PREFIXES: usize = 8;
/// A lifetime without end (RFC 4861 4.6.2).
const FOREVER: u32 = u32::MAX;

/// Names a virtual interface as long as the station runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Kind of virtual link of an interface (EN 302 636-6-1 clause 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// TVL: all stations within some hops.
    Topological,
    /// Static GVL: all stations in the area.
    Geographic(GeoArea),
    /// Dynamic GVL: where packets to other areas arrive.
    Dynamic,
}

/// A virtual interface as the host shall have it: Ethernet, with the station's MAC address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualLink {
    /// Which one.
    pub id: LinkId,
    /// Its name in the host.
    pub name: String,
    /// MID of the station's GN address.
    pub address: MacAddress,
    /// The longest IPv6 packet.
    pub mtu: u32,
    /// It was made because of a Router Advertisement, and is for hosts: they configure themselves by such.
    pub learnt: bool,
}

/// A virtual link.
#[derive(Debug)]
pub(super) struct Link {
    pub id: LinkId,
    pub name: String,
    pub kind: LinkKind,
    pub learnt: bool,
    /// Its subnets, and until when.
    prefixes: Vec<(Prefix, Option<Time>)>,
    /// Addresses of the host on the interface, with prefix lengths.
    addresses: Vec<(Ipv6Addr, u8)>,
}

impl Link {
    pub fn new(id: LinkId, name: String, kind: LinkKind) -> Link {
        Link { id, name, kind, learnt: false, prefixes: Vec::new(), addresses: Vec::new() }
    }

    pub fn area(&self) -> Option<&GeoArea> {
        match &self.kind {
            LinkKind::Geographic(area) => Some(area),
            _ => None,
        }
    }

    pub fn is_around(&self, position: Position) -> bool {
        self.area().is_some_and(|area| geodesy::is_inside(area, position))
    }

    pub fn set_addresses(&mut self, addresses: Vec<(Ipv6Addr, u8)>) {
        self.addresses = addresses;
    }

    pub fn has_address(&self, address: Ipv6Addr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// A subnet for ever.
    pub fn add_prefix(&mut self, prefix: Prefix) {
        self.prefixes.push((prefix, None));
    }

    /// Whether the address is in a subnet of this link. Link-local ones are in all of them.
    pub fn is_on_link(&self, address: Ipv6Addr) -> bool {
        address.is_unicast_link_local()
            || self.prefixes.iter().any(|(prefix, _)| prefix.contains(address))
            || self.addresses.iter().any(|(own, length)| {
                !own.is_unicast_link_local() && Prefix { address: *own, length: *length }.contains(address)
            })
    }

    /// Stores the prefixes of a Router Advertisement (RFC 4861 6.3.4). A router cannot end prefixes that the
    /// operator has configured. A prefix with lifetime 0 expires at once.
    pub fn learn(&mut self, now: Time, advertisement: &RouterAdvertisement<'_>) {
        for option in advertisement.options() {
            let NdOption::PrefixInformation(information) = option else { continue };
            if !information.on_link && !information.autonomous {
                continue;
            }
            let prefix = Prefix { address: information.prefix, length: information.prefix_length };
            let until = match information.valid_lifetime {
                FOREVER => Time::MAX,
                seconds => now + Duration::from_secs(seconds.into()),
            };
            let room = self.prefixes.len() < PREFIXES;
            match self.prefixes.iter_mut().find(|(known, _)| known.is(&prefix)) {
                Some((_, Some(known))) => *known = until,
                Some((_, None)) => {}
                None if information.valid_lifetime > 0 && room => self.prefixes.push((prefix, Some(until))),
                None => {}
            }
        }
    }

    /// Its subnets.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.prefixes.iter().map(|(prefix, _)| *prefix)
    }

    /// Forgets what routers have said.
    pub fn forget(&mut self) {
        self.prefixes.retain(|(_, until)| until.is_none());
    }

    /// Forgets prefixes that have run out; whether any is left.
    pub fn expire(&mut self, now: Time) -> bool {
        self.prefixes.retain(|(_, until)| until.is_none_or(|until| until > now));
        !self.prefixes.is_empty()
    }

    /// When a prefix runs out next.
    pub fn next_expiry(&self) -> Option<Time> {
        self.prefixes.iter().filter_map(|(_, until)| *until).min()
    }

    /// Returns the end of the link's lifetime: that of its longest-lived prefix, and never for a link that
    /// was not learnt.
    pub fn lifetime(&self) -> Time {
        match self.learnt {
            true => self.prefixes.iter().filter_map(|(_, until)| *until).max().unwrap_or(Time::ZERO),
            false => Time::MAX,
        }
    }
}
