//! The virtual interfaces and the IPv6 subnets on them.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::GeoArea;
use carnet_wire::nd::{NdOption, RouterAdvertisement};

use super::addresses::Prefix;
use crate::MacAddress;
use crate::geodesy::{self, Position};

/// Largest number of stored prefixes of a link; a limit, because any station may send Router Advertisements.
const MAX_PREFIXES_PER_LINK: usize = 8;
/// Infinite lifetime (RFC 4861 4.6.2).
const INFINITE_LIFETIME: u32 = u32::MAX;

/// Identifier of a virtual interface, constant while the station runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Kind of virtual link of an interface (EN 302 636-6-1 clause 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// Topological virtual link (TVL): all stations within the hop limit.
    Topological,
    /// Static geographic virtual link (GVL): all stations in the area.
    Geographic(GeoArea),
    /// Dynamic geographic virtual link (GVL): receives the packets to areas that have no link of their own.
    Dynamic,
}

/// Properties of a virtual interface of the host: Ethernet, with the station's MAC address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualLink {
    /// Identifier of the interface.
    pub id: LinkId,
    /// Name of the interface in the host.
    pub name: String,
    /// MAC address of the interface: the MID of the station's GN address.
    pub address: MacAddress,
    /// Largest IPv6 packet, octets.
    pub mtu: u32,
    /// Whether the sublayer created this interface because of a Router Advertisement. Such an interface is
    /// for hosts, which configure themselves from advertisements.
    pub learned_from_advertisement: bool,
}

/// A virtual link.
#[derive(Debug)]
pub(super) struct Ipv6Link {
    pub id: LinkId,
    pub name: String,
    pub kind: LinkKind,
    pub is_learnt: bool,
    /// Subnets of the link, each with the time of its end.
    prefixes: Vec<(Prefix, Option<Time>)>,
    /// Addresses of the host on the interface, with their prefix lengths.
    addresses: Vec<(Ipv6Addr, u8)>,
}

impl Ipv6Link {
    pub fn new(id: LinkId, name: String, kind: LinkKind) -> Ipv6Link {
        Ipv6Link { id, name, kind, is_learnt: false, prefixes: Vec::new(), addresses: Vec::new() }
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

    /// Adds a subnet that does not expire.
    pub fn add_prefix(&mut self, prefix: Prefix) {
        self.prefixes.push((prefix, None));
    }

    /// Returns whether the address is in a subnet of this link. Every link contains all link-local addresses.
    pub fn is_on_link(&self, address: Ipv6Addr) -> bool {
        address.is_unicast_link_local()
            || self.prefixes.iter().any(|(prefix, _)| prefix.contains_address(address))
            || self.addresses.iter().any(|(own, length)| {
                !own.is_unicast_link_local()
                    && Prefix { address: *own, prefix_length: *length }.contains_address(address)
            })
    }

    /// Stores the prefixes of a Router Advertisement (RFC 4861 6.3.4). A router cannot end prefixes that the
    /// operator has configured. A prefix with lifetime 0 expires at once.
    pub fn learn_prefixes(&mut self, now: Time, advertisement: &RouterAdvertisement<'_>) {
        for option in advertisement.options() {
            let NdOption::PrefixInformation(information) = option else { continue };
            if !information.on_link && !information.autonomous {
                continue;
            }
            let prefix = Prefix { address: information.prefix, prefix_length: information.prefix_length };
            let until = match information.valid_lifetime {
                INFINITE_LIFETIME => Time::MAX,
                seconds => now + Duration::from_secs(seconds.into()),
            };
            let room = self.prefixes.len() < MAX_PREFIXES_PER_LINK;
            match self.prefixes.iter_mut().find(|(known, _)| known.equals_prefix(&prefix)) {
                Some((_, Some(known))) => *known = until,
                Some((_, None)) => {}
                None if information.valid_lifetime > 0 && room => self.prefixes.push((prefix, Some(until))),
                None => {}
            }
        }
    }

    /// Returns the subnets of the link.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.prefixes.iter().map(|(prefix, _)| *prefix)
    }

    /// Removes the prefixes of Router Advertisements.
    pub fn forget_learnt_prefixes(&mut self) {
        self.prefixes.retain(|(_, until)| until.is_none());
    }

    /// Removes expired prefixes; returns whether any prefix remains.
    pub fn expire_prefixes(&mut self, now: Time) -> bool {
        self.prefixes.retain(|(_, until)| until.is_none_or(|until| until > now));
        !self.prefixes.is_empty()
    }

    /// Returns the time at which the next prefix expires.
    pub fn next_expiry(&self) -> Option<Time> {
        self.prefixes.iter().filter_map(|(_, until)| *until).min()
    }

    /// Returns the time at which the link ends: when its last prefix expires. A link from the config has no
    /// end.
    pub fn ends_at(&self) -> Time {
        match self.is_learnt {
            true => self.prefixes.iter().filter_map(|(_, until)| *until).max().unwrap_or(Time::ZERO),
            false => Time::MAX,
        }
    }
}
