//! The interfaces of the mobile network, and the prefixes and the door of each.

use carnet_base::mapped;
use carnet_mobility::router_advertiser::HostConfiguration;
use ipnet::{Ipv4Net, Ipv6Net};

use super::packet_rules::PortRange;

/// Packets from outside that reach an interface on board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inbound {
    /// All packets.
    #[default]
    Any,
    /// Packets of connections that hosts on board began.
    Established,
}

impl Inbound {
    /// Returns the name in config and status.
    pub fn name(self) -> &'static str {
        match self {
            Inbound::Any => "any",
            Inbound::Established => "established",
        }
    }
}

/// An exception: packets from outside that pass without a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedPackets {
    /// Upper-layer protocol. Of ICMP and ICMPv6 only Echo Requests pass.
    pub protocol: u8,
    /// Destination ports; empty for all.
    pub ports: Vec<PortRange>,
    /// Destinations, in IPv4-mapped form for IPv4; empty for every host of the interface.
    pub destinations: Vec<Ipv6Net>,
}

/// Settings of the door of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Door {
    /// Packets from outside that pass.
    pub inbound: Inbound,
    /// Exceptions from [`Inbound::Established`].
    pub allowed: Vec<AllowedPackets>,
    /// Whether no packets pass between this interface and other interfaces on board.
    pub is_isolated: bool,
}

impl Door {
    /// Returns whether the door needs rules of the packet filter.
    pub(crate) fn needs_rules(&self) -> bool {
        self.is_isolated || self.inbound == Inbound::Established
    }
}

/// An interface of the mobile network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanSettings {
    /// Name of the interface.
    pub interface: String,
    /// Mobile network prefixes that this interface has. If empty, the interface shares the prefixes that no
    /// other interface names.
    pub prefixes: Vec<Ipv6Net>,
    /// IPv4 prefixes that this interface has. If empty, the interface shares the IPv4 prefixes that no other
    /// interface names.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Whether the router advertises the prefixes on this interface, and assigns `PREFIX::1` to it.
    pub advertise: bool,
    /// MTU in the advertisements to hosts; `None` advertises an MTU that fits into the tunnel.
    pub mtu: Option<u32>,
    /// Values for hosts that are neither addresses nor routes.
    pub hosts: HostConfiguration,
    /// Packets from outside that reach the hosts.
    pub door: Door,
}

impl From<&str> for LanSettings {
    /// Returns the settings of an interface for which the config gives only its name.
    fn from(interface: &str) -> LanSettings {
        LanSettings {
            interface: interface.to_owned(),
            prefixes: Vec::new(),
            ipv4_prefixes: Vec::new(),
            advertise: true,
            mtu: None,
            hosts: HostConfiguration::default(),
            door: Door::default(),
        }
    }
}

/// Chooses the link prefixes of each LAN interface. A link prefix is the first /64 of a mobile network
/// prefix, or the prefix itself if it is longer.
///
/// An interface has the prefixes that its settings name. The other interfaces share the remaining prefixes:
/// the first gets the first one and so on, and the last one gets the rest.
pub(crate) fn lan_prefixes(prefixes: &[Ipv6Net], lan: &[LanSettings]) -> Vec<(String, Ipv6Net)> {
    let named: Vec<(&LanSettings, &Ipv6Net)> =
        lan.iter().flat_map(|lan| lan.prefixes.iter().map(move |prefix| (lan, prefix))).collect();
    let free = prefixes.iter().filter(|prefix| !named.iter().any(|(_, part)| prefix.contains(*part)));
    let others: Vec<&LanSettings> = lan.iter().filter(|lan| lan.prefixes.is_empty()).collect();
    let shared =
        free.enumerate().filter_map(|(index, prefix)| Some((*others.get(index).or(others.last())?, prefix)));
    shared
        .chain(named.iter().copied())
        .filter_map(|(lan, prefix)| {
            let link = Ipv6Net::new(prefix.network(), prefix.prefix_len().max(64)).ok()?;
            Some((lan.interface.clone(), link))
        })
        .collect()
}

/// Chooses the IPv4 prefixes of the LAN interfaces, in IPv4-mapped form. An interface gets the prefixes of
/// its settings. The interfaces without such prefixes share those that no interface names. The first
/// interface gets the first prefix and so on, and the last one gets the remaining prefixes.
pub(crate) fn lan_ipv4_prefixes(prefixes: &[Ipv4Net], lan: &[LanSettings]) -> Vec<(String, Ipv6Net)> {
    let named: Vec<(&LanSettings, &Ipv4Net)> =
        lan.iter().flat_map(|lan| lan.ipv4_prefixes.iter().map(move |prefix| (lan, prefix))).collect();
    let free = prefixes.iter().filter(|prefix| !named.iter().any(|(_, part)| prefix.contains(*part)));
    let others: Vec<&LanSettings> = lan.iter().filter(|lan| lan.ipv4_prefixes.is_empty()).collect();
    let shared =
        free.enumerate().filter_map(|(index, prefix)| Some((*others.get(index).or(others.last())?, prefix)));
    let all = named.iter().copied().chain(shared).filter(|(lan, _)| lan.advertise);
    all.map(|(lan, prefix)| (lan.interface.clone(), mapped::from_ipv4(*prefix))).collect()
}
