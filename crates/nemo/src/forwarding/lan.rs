//! The interfaces of the mobile network, and which prefixes each has.

use carnet_mobility::router_advertiser::HostConfiguration;
use ipnet::Ipv6Net;

/// An interface of the mobile network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanSettings {
    /// Name of the interface.
    pub interface: String,
    /// Prefixes of the interface, out of those of the mobile network. If empty, the interface shares the
    /// prefixes that no other interface has.
    pub prefixes: Vec<Ipv6Net>,
    /// Whether the router advertises the prefixes there, and adds `PREFIX::1`.
    pub advertise: bool,
    /// The MTU that hosts are told; `None`: one that fits into the tunnel.
    pub mtu: Option<u32>,
    /// Values for hosts, beside addresses and routes.
    pub hosts: HostConfiguration,
}

impl From<&str> for LanSettings {
    /// An interface of which the config says no more than its name.
    fn from(interface: &str) -> LanSettings {
        LanSettings {
            interface: interface.to_owned(),
            prefixes: Vec::new(),
            advertise: true,
            mtu: None,
            hosts: HostConfiguration::default(),
        }
    }
}

/// Chooses the link prefixes of each LAN interface from the mobile network prefixes. A link prefix is the
/// first /64 of one, or the prefix itself if it is longer.
///
/// An interface has the prefixes that its settings name. The other interfaces share the mobile network
/// prefixes without such a part. The first prefix goes to the first interface and so on; the last interface
/// gets the rest.
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
