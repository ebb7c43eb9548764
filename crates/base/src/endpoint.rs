//! One end of a tunnel: its address, and its encapsulation of the inner IPv6 packets.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// One end of a tunnel for IPv6 packets.
///
/// The text form, which is also the serde form, is the address. With UDP it is `udp:`, the address and the
/// port: `2001:db8::1`, `192.0.2.1`, `udp:192.0.2.1:4191`.
///
/// The size of 18 octets matters, because a home agent stores several endpoints for each of very many
/// bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// IPv6 in IPv6 (RFC 2473).
    Ipv6(Ipv6Addr),
    /// IPv6 in IPv4, protocol 41 (RFC 4213, RFC 5555 without a NAT on the path).
    Ipv4(Ipv4Addr),
    /// IPv6 in UDP in IPv4 (RFC 5555 with a NAT on the path; the home agent's port is 4191).
    Udp(SocketAddrV4),
}

impl Endpoint {
    /// Returns the address if the encapsulation is IPv6 in IPv6, otherwise `None`.
    pub fn ipv6(self) -> Option<Ipv6Addr> {
        match self {
            Endpoint::Ipv6(address) => Some(address),
            Endpoint::Ipv4(_) | Endpoint::Udp(_) => None,
        }
    }

    /// Returns the IPv4 address, with or without UDP; `None` for IPv6 in IPv6.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        match self {
            Endpoint::Ipv4(address) => Some(address),
            Endpoint::Udp(address) => Some(*address.ip()),
            Endpoint::Ipv6(_) => None,
        }
    }

    /// Returns the address, IPv6 or IPv4.
    pub fn address(self) -> IpAddr {
        match self {
            Endpoint::Ipv6(address) => address.into(),
            Endpoint::Ipv4(address) => address.into(),
            Endpoint::Udp(address) => (*address.ip()).into(),
        }
    }

    /// Returns the UDP port; `None` without UDP.
    pub fn port(self) -> Option<u16> {
        match self {
            Endpoint::Udp(address) => Some(address.port()),
            Endpoint::Ipv6(_) | Endpoint::Ipv4(_) => None,
        }
    }

    /// Returns the octets of headers that a tunnel with this end adds to the inner packet: IPv6 40, IPv4 20,
    /// UDP 8.
    pub fn encapsulation_overhead(self) -> u32 {
        match self {
            Endpoint::Ipv6(_) => 40,
            Endpoint::Ipv4(_) => 20,
            Endpoint::Udp(_) => 28,
        }
    }
}

/// Hashes an address as one number. Tables look up an endpoint for each packet, and the derived
/// implementation would hash octet by octet.
impl Hash for Endpoint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Endpoint::Ipv6(address) => state.write_u128(address.to_bits()),
            Endpoint::Ipv4(address) => state.write_u32(address.to_bits()),
            Endpoint::Udp(address) => {
                state.write_u64(u64::from(address.ip().to_bits()) << 16 | u64::from(address.port()));
            }
        }
    }
}

impl From<Ipv6Addr> for Endpoint {
    fn from(address: Ipv6Addr) -> Endpoint {
        Endpoint::Ipv6(address)
    }
}

/// Converts an address to an endpoint without UDP.
impl From<IpAddr> for Endpoint {
    fn from(address: IpAddr) -> Endpoint {
        match address {
            IpAddr::V6(address) => Endpoint::Ipv6(address),
            IpAddr::V4(address) => Endpoint::Ipv4(address),
        }
    }
}

impl From<Ipv4Addr> for Endpoint {
    fn from(address: Ipv4Addr) -> Endpoint {
        Endpoint::Ipv4(address)
    }
}

/// Compares a plain care-of address with an end of a tunnel.
impl PartialEq<Ipv6Addr> for Endpoint {
    fn eq(&self, address: &Ipv6Addr) -> bool {
        *self == Endpoint::Ipv6(*address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Ipv6(address) => write!(f, "{address}"),
            Endpoint::Ipv4(address) => write!(f, "{address}"),
            Endpoint::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

/// Error for a text that is not an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseEndpointError(String);

impl fmt::Display for ParseEndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no end of a tunnel, expected an IPv6 or IPv4 address or udp:IPV4-ADDRESS:PORT",
            self.0
        )
    }
}

impl std::error::Error for ParseEndpointError {}

impl FromStr for Endpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Endpoint, ParseEndpointError> {
        let endpoint = match text.strip_prefix("udp:") {
            Some(socket) => socket.parse().ok().map(Endpoint::Udp),
            None => {
                let ipv6 = text.parse().ok().map(Endpoint::Ipv6);
                ipv6.or_else(|| text.parse().ok().map(Endpoint::Ipv4))
            }
        };
        endpoint.ok_or_else(|| ParseEndpointError(text.to_string()))
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Endpoint, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnel_endpoint_survives_text_round_trip() {
        let ends = [
            ("2001:db8::1", Endpoint::Ipv6("2001:db8::1".parse().expect("address"))),
            ("192.0.2.1", Endpoint::Ipv4(Ipv4Addr::new(192, 0, 2, 1))),
            ("udp:192.0.2.1:4191", Endpoint::Udp("192.0.2.1:4191".parse().expect("socket"))),
        ];
        for (text, end) in ends {
            assert_eq!(end.to_string(), text);
            assert_eq!(text.parse(), Ok(end));
        }
        for text in [
            "",
            "udp:",
            "udp:192.0.2.1",
            "udp:[2001:db8::1]:4191",
            "192.0.2.1:4191",
            "192.0.2.256",
            "tcp:192.0.2.1:1",
            "::g",
        ] {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn endpoint_kinds_have_their_overhead_and_address() {
        let end = |text: &str| text.parse::<Endpoint>().expect("endpoint");
        assert_eq!(end("2001:db8::1").encapsulation_overhead(), 40);
        assert_eq!(end("192.0.2.1").encapsulation_overhead(), 20);
        assert_eq!(end("udp:192.0.2.1:1").encapsulation_overhead(), 28);
        assert_eq!((end("udp:192.0.2.1:1").port(), end("192.0.2.1").port()), (Some(1), None));
        assert_eq!(end("udp:192.0.2.1:1").address(), end("192.0.2.1").address());
        assert_eq!(end("udp:192.0.2.1:1").ipv4(), Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(end("udp:192.0.2.1:1").ipv6(), None);
        assert_eq!(end("2001:db8::1").ipv4(), None);
        assert_eq!(size_of::<Endpoint>(), 18);
        assert_eq!(end("2001:db8::1"), "2001:db8::1".parse::<Ipv6Addr>().expect("address"));
    }
}
