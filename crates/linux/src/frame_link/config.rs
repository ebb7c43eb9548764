//! Config of the medium that carries frames.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use super::MacAddress;
use crate::error::{Error, Result};

/// Where frames are sent and received.
///
/// The config text is the name of an interface, or `udp:ADDRESS[,PEER...]`. With a multicast group as
/// `ADDRESS` (`udp:[ff02::4:8947%wlan0]:8947`, `udp:239.255.89.47%eth0:8947`), frames go to the group.
/// Otherwise `ADDRESS` is an address of this machine (`udp:[::]:8947,[2001:db8::2]:8947`), and frames go to
/// each peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameLinkConfig {
    /// An interface with Ethernet frames, by name. The interface may appear later.
    Interface(String),
    /// UDP datagrams.
    Udp(UdpConfig),
}

/// Frames in UDP datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpConfig {
    /// Address at which datagrams arrive: an own address, or a multicast group.
    pub local: SocketAddr,
    /// The interface on which a multicast group is joined, by name; the interface may appear later. With
    /// `None` the kernel chooses the interface by its routes.
    pub interface: Option<String>,
    /// Peers that get each frame. Datagrams from them are accepted, whatever the port. Empty for a multicast
    /// group.
    pub peer_addresses: Vec<SocketAddr>,
    /// The station's own MAC address; `None` for a random, locally administered one.
    pub address: Option<MacAddress>,
    /// Largest payload of a frame, in octets after the two MAC addresses. IP fragments datagrams that do not
    /// fit a link.
    pub mtu: u32,
}

impl UdpConfig {
    /// The MTU of Ethernet in octets, which radios for GeoNetworking have, too.
    pub const ETHERNET_MTU: u32 = 1500;
}

impl FromStr for FrameLinkConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<FrameLinkConfig> {
        let invalid = |expected: &str, got: &str| Error::Invalid {
            what: "link".into(),
            expected: expected.into(),
            got: format!("`{got}`"),
        };
        let Some(addresses) = text.strip_prefix("udp:") else {
            // The kernel's rule for interface names (IFNAMSIZ, `dev_valid_name`).
            let bad = |c: char| c == '/' || c == ':' || c.is_whitespace();
            return if text.is_empty() || text.len() > 15 || text.contains(bad) || [".", ".."].contains(&text)
            {
                Err(invalid("an interface's name, or udp:ADDRESS[,PEER...]", text))
            } else {
                Ok(FrameLinkConfig::Interface(text.to_owned()))
            };
        };
        let mut parts = addresses.split(',');
        let first = parts.next().unwrap_or_default();
        let (local, interface) =
            parse_address(first).ok_or_else(|| invalid("[IPV6]:PORT or IPV4:PORT", first))?;
        let peers = parts
            .map(|part| match parse_address(part) {
                Some((address, None))
                    if address.port() != 0
                        && !address.ip().is_multicast()
                        && address.is_ipv6() == local.is_ipv6() =>
                {
                    Ok(address)
                }
                _ => Err(invalid(
                    "a peer's [IPV6]:PORT or IPV4:PORT, of the same family as the station's address",
                    part,
                )),
            })
            .collect::<Result<Vec<_>>>()?;
        match (local.ip().is_multicast(), peers.is_empty()) {
            (true, false) => Err(invalid("either peers or a multicast group", addresses)),
            (false, true) => {
                Err(invalid("a multicast group, or peers after the station's address", addresses))
            }
            _ if local.port() == 0 => Err(invalid("a port", first)),
            _ if !local.ip().is_multicast() && interface.is_some() => {
                Err(invalid("the station's address without an interface name", first))
            }
            _ => Ok(FrameLinkConfig::Udp(UdpConfig {
                local,
                interface,
                peer_addresses: peers,
                address: None,
                mtu: UdpConfig::ETHERNET_MTU,
            })),
        }
    }
}

/// Splits `[fe80::1%eth0]:8947` or `239.1.1.1%eth0:8947` into the address and the interface's name. A numeric
/// scope, as in `[fe80::1%2]:8947`, stays with the address. Returns `None` for an invalid text.
fn parse_address(text: &str) -> Option<(SocketAddr, Option<String>)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let (host, six) = match host.strip_prefix('[') {
        Some(rest) => (rest.strip_suffix(']')?, true),
        None => (host, false),
    };
    let (ip, zone) = match host.split_once('%') {
        Some((_, "")) => return None,
        Some((ip, zone)) => (ip, Some(zone)),
        None => (host, None),
    };
    if six {
        let ip: Ipv6Addr = ip.parse().ok()?;
        let scope = zone.and_then(|zone| zone.parse::<u32>().ok());
        let name = zone.filter(|_| scope.is_none()).map(str::to_owned);
        Some((SocketAddrV6::new(ip, port, 0, scope.unwrap_or(0)).into(), name))
    } else {
        Some((SocketAddr::new(IpAddr::V4(ip.parse().ok()?), port), zone.map(str::to_owned)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_udp_config(text: &str) -> UdpConfig {
        match text.parse() {
            Ok(FrameLinkConfig::Udp(config)) => config,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn config_text_distinguishes_interface_and_address() {
        assert_eq!("wlan1".parse::<FrameLinkConfig>().ok(), Some(FrameLinkConfig::Interface("wlan1".into())));
        let group = parse_udp_config("udp:[ff02::4:8947%wlan0]:8947");
        assert_eq!(group.local, "[ff02::4:8947]:8947".parse().expect("address"));
        assert_eq!(group.interface.as_deref(), Some("wlan0"));
        assert_eq!(parse_udp_config("udp:239.1.2.3%eth0:9").interface.as_deref(), Some("eth0"));
        assert_eq!(parse_udp_config("udp:[ff02::1%3]:9").local, "[ff02::1%3]:9".parse().expect("address"));
        let list = parse_udp_config("udp:[::]:8947,[2001:db8::2]:8947,[::1]:1");
        assert_eq!((list.peer_addresses.len(), list.interface), (2, None));
    }

    #[test]
    fn invalid_frame_link_text_is_refused_with_reason() {
        for (text, expected) in [
            ("", "interface"),
            ("a name", "interface"),
            ("sixteen-octets-x", "interface"),
            ("udp:", "IPV6"),
            ("udp:eth0", "IPV6"),
            ("udp:[::]:8947", "peers"),
            ("udp:[ff02::1%]:8947", "IPV6"),
            ("udp:[ff02::1%a]:0", "port"),
            ("udp:[::]:8947,eth0", "peer"),
            ("udp:[::]:8947,[::1]:0", "peer"),
            ("udp:[::]:8947,192.0.2.1:1", "family"),
            ("udp:[::1%a]:8947,[::1]:1", "without an interface name"),
            ("udp:[ff02::1%a]:8947,[::1]:1", "multicast"),
        ] {
            let error = text.parse::<FrameLinkConfig>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
