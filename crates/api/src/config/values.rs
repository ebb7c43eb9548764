//! Strings of the config file: their parsers and error messages.
//!
//! Every function returns the value or a message of the form "what is wrong, what was expected".

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};

use carnet_wire::address::{MacAddress, ParseError};

/// Longest lifetime that a Binding Update can express: 16 bits of 4 s each (RFC 6275 6.1.7).
const MAX_LIFETIME_SECONDS: u64 = 65535 * 4;

/// Expected value in an error message: an address.
pub(super) const EXPECTED_ADDRESS: &str =
    "a global or unique local unicast address such as \"2001:db8:1::1\"";
/// Expected value in an error message: a prefix.
pub(super) const EXPECTED_PREFIX: &str = "a prefix such as \"2001:db8:a::/64\"";
/// Expected value in an error message: a duration.
pub(super) const EXPECTED_DURATION: &str = "a duration such as \"60s\", \"10m\" or \"1h30m\"";
/// Expected value in an error message: an interface.
pub(super) const EXPECTED_INTERFACE: &str = "an interface name of 1 to 15 characters";
/// Expected value in an error message: a station's name.
pub(super) const EXPECTED_NAME: &str =
    "1 to 63 letters, digits, `.`, `_` or `-`, with a letter or digit first";

/// Expected value in an error message: an IPv4 address.
pub(super) const EXPECTED_IPV4_ADDRESS: &str = "a unicast IPv4 address such as \"192.0.2.1\"";

/// Parses an IPv4 address that is routed beyond its link.
pub(super) fn parse_ipv4_address(text: &str) -> Result<Ipv4Addr, String> {
    let address: Ipv4Addr =
        text.parse().map_err(|_| format!("{text:?} is no IPv4 address, expected {EXPECTED_IPV4_ADDRESS}"))?;
    let what = if address.is_unspecified() {
        "the unspecified address"
    } else if address.is_loopback() {
        "a loopback address"
    } else if address.is_multicast() || address.is_broadcast() {
        "for several receivers"
    } else if address.is_link_local() {
        "a link-local address"
    } else {
        return Ok(address);
    };
    Err(format!("{address} is {what}, expected {EXPECTED_IPV4_ADDRESS}"))
}

/// Expected value in an error message: an IPv4 prefix.
pub(super) const EXPECTED_IPV4_PREFIX: &str = "an IPv4 prefix such as \"10.42.7.0/24\"";

/// Parses an IPv4 unicast prefix without host bits. Private prefixes are valid.
pub(super) fn parse_ipv4_prefix(text: &str) -> Result<Ipv4Net, String> {
    let prefix: Ipv4Net = text.parse().map_err(|_| {
        let what = match text.parse::<Ipv4Addr>() {
            Ok(_) => "an address without a prefix length",
            Err(_) => "no IPv4 prefix",
        };
        format!("{text:?} is {what}, expected {EXPECTED_IPV4_PREFIX}")
    })?;
    if prefix.trunc() != prefix {
        return Err(format!("{prefix} has host bits that are not zero, expected {}", prefix.trunc()));
    }
    let (first, last) = (prefix.network(), prefix.broadcast());
    let what = if prefix.prefix_len() == 0 {
        "everything"
    } else if first.octets()[0] == 0 {
        "in 0.0.0.0/8, which no host has"
    } else if first.octets()[0] <= 127 && last.octets()[0] >= 127 {
        "loopback"
    } else if first.is_link_local() || prefix.contains(&Ipv4Net::new_assert(LINK_LOCAL_NETWORK, 16)) {
        "link-local"
    } else if last.octets()[0] >= 240 {
        "reserved"
    } else if last.octets()[0] >= 224 {
        "multicast"
    } else {
        return Ok(prefix);
    };
    Err(format!("{prefix} is {what}, expected a unicast prefix such as \"10.42.7.0/24\""))
}

/// First address of the link-local prefix (RFC 3927).
const LINK_LOCAL_NETWORK: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 0);

/// Parses a unicast address that is routed beyond its link.
pub(super) fn parse_address(text: &str) -> Result<Ipv6Addr, String> {
    let address: Ipv6Addr = text.parse().map_err(|_| {
        let what = if text.parse::<std::net::Ipv4Addr>().is_ok() {
            "an IPv4 address"
        } else if text.contains('/') {
            "a prefix"
        } else {
            "no IPv6 address"
        };
        format!("{text:?} is {what}, expected {EXPECTED_ADDRESS}")
    })?;
    match reason_not_routed(address) {
        Some(what) => Err(format!("{address} is {what}, expected {EXPECTED_ADDRESS}")),
        None => Ok(address),
    }
}

/// Parses a unicast prefix without host bits.
pub(super) fn parse_prefix(text: &str) -> Result<Ipv6Net, String> {
    let prefix: Ipv6Net = text.parse().map_err(|_| {
        let what = match text.parse::<Ipv6Addr>() {
            Ok(_) => "an address without a prefix length",
            Err(_) => "no IPv6 prefix",
        };
        format!("{text:?} is {what}, expected {EXPECTED_PREFIX}")
    })?;
    if prefix.trunc() != prefix {
        return Err(format!("{prefix} has host bits that are not zero, expected {}", prefix.trunc()));
    }
    let what =
        if prefix.prefix_len() == 0 { Some("everything") } else { reason_not_routed(prefix.network()) };
    match what {
        Some(what) => Err(format!("{prefix} is {what}, expected a global or unique local unicast prefix")),
        None => Ok(prefix),
    }
}

/// Returns why an address is no global or unique local unicast address; `None` if it is one.
pub(super) fn reason_not_routed(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_unspecified() {
        Some("unspecified")
    } else if address.is_loopback() {
        Some("loopback")
    } else if address.is_multicast() {
        Some("multicast")
    } else if address.is_unicast_link_local() {
        Some("link-local")
    } else if address.segments()[0] & 0xffc0 == 0xfec0 {
        Some("site-local (deprecated by RFC 3879)")
    } else if address.to_ipv4_mapped().is_some() {
        Some("IPv4-mapped")
    } else {
        None
    }
}

/// Parses a duration: whole numbers with the units d, h, m, s, ms, the larger first.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    const DURATION_UNITS: [(&str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let wrong = || format!("{text:?} is no duration, expected {EXPECTED_DURATION}");
    let mut rest = text;
    let mut units = &DURATION_UNITS[..];
    let mut total: u64 = 0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let index = units.iter().position(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let milliseconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(units[index].1));
        total = milliseconds.and_then(|ms| total.checked_add(ms)).ok_or_else(wrong)?;
        units = &units[index + 1..];
        rest = tail;
    }
    Ok(Duration::from_millis(total))
}

/// Parses a binding lifetime, rounded down to the 4 s units of a Binding Update (RFC 6275 6.1.7).
pub(super) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = parse_duration(text)?;
    if lifetime < Duration::from_secs(4) || lifetime > Duration::from_secs(MAX_LIFETIME_SECONDS) {
        return Err(format!("{text:?} is out of range, expected 4s to {MAX_LIFETIME_SECONDS}s"));
    }
    Ok(Duration::from_secs(lifetime.as_secs() / 4 * 4))
}

/// Parses the name of a network interface, as the kernel accepts it.
pub(super) fn parse_interface(text: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_INTERFACE}"));
    if text.is_empty() {
        wrong("is empty")
    } else if text.len() > 15 {
        wrong("is too long")
    } else if text == "." || text == ".." {
        wrong("is no interface name")
    } else if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '/' | ':')) {
        wrong(&format!("has the character {bad:?}"))
    } else {
        Ok(text.to_owned())
    }
}

/// Parses the name of a station, which becomes part of a file name.
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if first && text.len() <= 63 && text.chars().all(good) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no name, expected {EXPECTED_NAME}"))
    }
}

/// Parses a path.
pub(super) fn parse_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        Err("the path is empty, expected a path".to_owned())
    } else if text.contains('\0') {
        Err("the path has a zero octet, expected a path".to_owned())
    } else {
        Ok(PathBuf::from(text))
    }
}

/// Expected value in an error message: a length.
pub(super) const EXPECTED_LENGTH: &str = "a length from 1 m to 65535 m such as \"300m\" or \"1km\"";

/// Parses metres: a whole number with m or km.
pub(super) fn parse_length(text: &str) -> Result<u16, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let scale = match unit {
        "m" => 1,
        "km" => 1000,
        _ => return Err(format!("{text:?} is no length, expected {EXPECTED_LENGTH}")),
    };
    let metres = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    match metres.and_then(|metres| u16::try_from(metres).ok()) {
        Some(0) => Err(format!("{text:?} is zero, expected {EXPECTED_LENGTH}")),
        Some(metres) => Ok(metres),
        None if number.is_empty() => Err(format!("{text:?} is no length, expected {EXPECTED_LENGTH}")),
        None => Err(format!("{text:?} is out of range, expected {EXPECTED_LENGTH}")),
    }
}

/// Parses a link-layer address that a station can have.
pub(super) fn parse_own_mac(text: &str) -> Result<MacAddress, String> {
    let mac: MacAddress = text.parse().map_err(|error: ParseError| error.to_string())?;
    if mac.0[0] & 1 == 1 {
        Err(format!(
            "{mac} is a group address, expected the address of one station such as \
                     02:00:00:00:00:0a"
        ))
    } else if mac.0 == [0; 6] {
        Err(format!(
            "{mac} is no station's address, expected the address of one station such as \
                     02:00:00:00:00:0a"
        ))
    } else {
        Ok(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_or_refused() {
        let good = [
            ("60s", 60_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1m30s250ms", 90_250),
            ("0s", 0),
        ];
        for (text, milliseconds) in good {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "60", "s", "1.5s", "-1s", "1 s", "30m1h", "1s1s", "1S", "1y", "99999999999999999d"] {
            let message = format!("{text:?} is no duration, expected {EXPECTED_DURATION}");
            assert_eq!(parse_duration(text), Err(message));
        }
    }

    #[test]
    fn lifetimes_must_be_multiples_of_four_seconds() {
        assert_eq!(parse_lifetime("4s"), Ok(Duration::from_secs(4)));
        assert_eq!(parse_lifetime("63s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_lifetime("262140s"), Ok(Duration::from_secs(262_140)));
        assert!(parse_lifetime("3999ms").is_err());
        assert!(parse_lifetime("262141s").is_err());
    }

    #[test]
    fn lengths_in_metres_are_parsed_or_refused() {
        for (text, metres) in [("1m", 1), ("300m", 300), ("65535m", 65535), ("2km", 2000)] {
            assert_eq!(parse_length(text), Ok(metres), "{text}");
        }
        for text in ["", "m", "300", "1.5km", "-1m", "300 m", "1mi", "1km5m"] {
            assert_eq!(parse_length(text), Err(format!("{text:?} is no length, expected {EXPECTED_LENGTH}")));
        }
        for text in ["65536m", "66km", "99999999999999999999km"] {
            assert_eq!(
                parse_length(text),
                Err(format!("{text:?} is out of range, expected {EXPECTED_LENGTH}"))
            );
        }
    }
}
