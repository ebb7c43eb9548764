//! Single values of the config file: what is in a string, and what is wrong with it.
//!
//! Every function gives the value or a message of the form "what is wrong, what was expected".

pub(super) mod geonet;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use carnet_base::Key;
use ipnet::Ipv6Net;

use super::ProbeUrl;

/// Longest path of a UNIX socket: `sun_path` of Linux less its terminating zero.
const SOCKET_PATH_MAX: usize = 107;

/// The lifetimes that a Binding Update can express: 16 bits of 4 s each (RFC 6275 6.1.7), and not zero.
const LIFETIME_MAX_S: u64 = 65535 * 4;

/// What is expected of an address.
pub(super) const ADDRESS: &str = "a global or unique local unicast address such as \"2001:db8:1::1\"";
/// What is expected of a prefix.
pub(super) const PREFIX: &str = "a prefix such as \"2001:db8:a::/64\"";
/// What is expected of a duration.
pub(super) const DURATION: &str = "a duration such as \"60s\", \"10m\" or \"1h30m\"";
/// What is expected of a volume.
pub(super) const VOLUME: &str = "a volume such as \"500MB\" or \"5GB\"";
/// What is expected of an interface.
pub(super) const INTERFACE: &str = "an interface name of 1 to 15 characters";
/// What is expected of a station's name.
pub(super) const NAME: &str = "1 to 63 letters, digits, `.`, `_` or `-`, with a letter or digit first";
/// What is expected of a key.
pub(super) const KEY: &str = "32 hexadecimal digits (16 octets)";

/// What is expected of an IPv4 address.
pub(super) const IPV4_ADDRESS: &str = "a unicast IPv4 address such as \"192.0.2.1\"";

/// An IPv4 address that routes beyond its link.
pub(super) fn ipv4_address(text: &str) -> Result<Ipv4Addr, String> {
    let address: Ipv4Addr =
        text.parse().map_err(|_| format!("{text:?} is no IPv4 address, expected {IPV4_ADDRESS}"))?;
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
    Err(format!("{address} is {what}, expected {IPV4_ADDRESS}"))
}

/// A unicast address that routes beyond its link.
pub(super) fn address(text: &str) -> Result<Ipv6Addr, String> {
    let address: Ipv6Addr = text.parse().map_err(|_| {
        let what = if text.parse::<std::net::Ipv4Addr>().is_ok() {
            "an IPv4 address"
        } else if text.contains('/') {
            "a prefix"
        } else {
            "no IPv6 address"
        };
        format!("{text:?} is {what}, expected {ADDRESS}")
    })?;
    match not_routed(address) {
        Some(what) => Err(format!("{address} is {what}, expected {ADDRESS}")),
        None => Ok(address),
    }
}

/// Between two heartbeats.
pub(super) fn heartbeat(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(50) || interval > Duration::from_secs(3600) {
        return Err(format!("{text:?} is out of range, expected 50ms to 1h"));
    }
    Ok(interval)
}

/// What is expected of `captive_portal_probe`.
pub(super) const PROBE_URL: &str =
    "a URL with an address, such as \"http://192.0.2.80/generate_204\" or \"http://[2001:db8:80::1]:8080/\"";
/// Octets of the longest URL.
const PROBE_URL_MAX: usize = 255;

/// The URL whose request tells of captive portals.
pub(super) fn probe_url(text: &str) -> Result<ProbeUrl, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {PROBE_URL}"));
    if text.len() > PROBE_URL_MAX {
        return Err(format!("the URL has {} octets, expected {PROBE_URL_MAX} at most", text.len()));
    }
    if !text.bytes().all(|octet| octet.is_ascii_graphic()) {
        return wrong("has characters that no URL has");
    }
    let Some(rest) = text.strip_prefix("http://") else {
        return wrong("does not begin with http://");
    };
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let address = authority.parse::<SocketAddr>();
    let host = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(authority);
    let is_bracketed = host.len() != authority.len();
    let alone = host.parse::<IpAddr>().ok().filter(|address| address.is_ipv6() == is_bracketed);
    let Some(address) = address.ok().or(alone.map(|address| SocketAddr::new(address, 80))) else {
        return wrong("names no host by its address");
    };
    let is_routed = match address.ip() {
        IpAddr::V4(ip) => ipv4_address(&ip.to_string()).is_ok(),
        IpAddr::V6(ip) => not_routed(ip).is_none(),
    };
    if !is_routed || address.port() == 0 {
        return wrong("has an address that no packet can be sent to");
    }
    Ok(ProbeUrl { address, authority: authority.to_owned(), path: path.to_owned() })
}

/// How long a signal counts without being renewed.
pub(super) fn signal_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    if timeout < Duration::from_secs(5) || timeout > Duration::from_secs(86_400) {
        return Err(format!("{text:?} is out of range, expected 5s to 1d"));
    }
    Ok(timeout)
}

/// A unicast prefix without host bits.
pub(super) fn prefix(text: &str) -> Result<Ipv6Net, String> {
    let prefix: Ipv6Net = text.parse().map_err(|_| {
        let what = match text.parse::<Ipv6Addr>() {
            Ok(_) => "an address without a prefix length",
            Err(_) => "no IPv6 prefix",
        };
        format!("{text:?} is {what}, expected {PREFIX}")
    })?;
    if prefix.trunc() != prefix {
        return Err(format!("{prefix} has host bits that are not zero, expected {}", prefix.trunc()));
    }
    let what = if prefix.prefix_len() == 0 { Some("everything") } else { not_routed(prefix.network()) };
    match what {
        Some(what) => Err(format!("{prefix} is {what}, expected a global or unique local unicast prefix")),
        None => Ok(prefix),
    }
}

/// What keeps an address from being a global or unique local unicast address.
fn not_routed(address: Ipv6Addr) -> Option<&'static str> {
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

/// A span of time: whole numbers with the units d, h, m, s, ms, the larger first.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let wrong = || format!("{text:?} is no duration, expected {DURATION}");
    let mut rest = text;
    let mut units = &UNITS[..];
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

/// An amount of data in octets: a whole number with the unit kB, MB, GB or TB, powers of a thousand; not
/// nothing.
pub(super) fn volume(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 4] =
        [("kB", 1000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)];
    let octets = UNITS.iter().find_map(|(unit, octets)| {
        let digits = text.strip_suffix(unit).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse::<u64>().ok()?.checked_mul(*octets)
    });
    match octets {
        None => Err(format!("{text:?} is no volume, expected {VOLUME}")),
        Some(0) => Err(format!("{text:?} lets nothing through, expected {VOLUME}")),
        Some(octets) => Ok(octets),
    }
}

/// A binding lifetime, rounded down to the 4 s that a Binding Update counts in (RFC 6275 6.1.7).
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = duration(text)?;
    if lifetime < Duration::from_secs(4) || lifetime > Duration::from_secs(LIFETIME_MAX_S) {
        return Err(format!("{text:?} is out of range, expected 4s to {LIFETIME_MAX_S}s"));
    }
    Ok(Duration::from_secs(lifetime.as_secs() / 4 * 4))
}

/// A window around the own clock, not empty.
pub(super) fn window(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("{text:?} accepts nothing, expected a duration above zero")),
        window => Ok(window),
    }
}

/// Time from one beacon to the next.
pub(super) fn beacon_interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(10) || interval > Duration::from_secs(3600) {
        return Err(format!("{text:?} is out of range, expected 10ms to 1h"));
    }
    Ok(interval)
}

/// Random time on top of a beacon interval.
pub(super) fn jitter(text: &str) -> Result<Duration, String> {
    let jitter = duration(text)?;
    if jitter > Duration::from_secs(3600) {
        return Err(format!("{text:?} is out of range, expected 0s to 1h"));
    }
    Ok(jitter)
}

/// The name of a network interface, as the kernel accepts it.
pub(super) fn interface(text: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {INTERFACE}"));
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

/// The name of a station: it becomes part of a file name.
pub(super) fn name(text: &str) -> Result<String, String> {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if first && text.len() <= 63 && text.chars().all(good) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no name, expected {NAME}"))
    }
}

/// A path.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        Err("the path is empty, expected a path".to_owned())
    } else if text.contains('\0') {
        Err("the path has a zero octet, expected a path".to_owned())
    } else {
        Ok(PathBuf::from(text))
    }
}

/// The path of a UNIX socket.
pub(super) fn socket(text: &str) -> Result<PathBuf, String> {
    if text.len() > SOCKET_PATH_MAX {
        let length = text.len();
        return Err(format!("the path has {length} octets, expected {SOCKET_PATH_MAX} at most for a socket"));
    }
    path(text)
}

/// A shared key. Messages do not repeat it.
pub(super) fn key(text: &str) -> Result<Key, String> {
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(format!("the key has the character {bad:?}, expected {KEY}"));
    }
    let wrong = || format!("the key has {} digits, expected {KEY}", text.len());
    if text.len() != 32 {
        return Err(wrong());
    }
    let mut key = Key::new([0; Key::OCTETS]);
    for (octet, digits) in key.octets_mut().iter_mut().zip(text.as_bytes().chunks(2)) {
        *octet = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .ok_or_else(wrong)?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let good = [
            ("60s", 60_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1m30s250ms", 90_250),
            ("0s", 0),
        ];
        for (text, milliseconds) in good {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "60", "s", "1.5s", "-1s", "1 s", "30m1h", "1s1s", "1S", "1y", "99999999999999999d"] {
            let message = format!("{text:?} is no duration, expected {DURATION}");
            assert_eq!(duration(text), Err(message));
        }
    }

    #[test]
    fn lifetimes_are_in_units_of_four_seconds() {
        assert_eq!(lifetime("4s"), Ok(Duration::from_secs(4)));
        assert_eq!(lifetime("63s"), Ok(Duration::from_secs(60)));
        assert_eq!(lifetime("262140s"), Ok(Duration::from_secs(262_140)));
        assert!(lifetime("3999ms").is_err());
        assert!(lifetime("262141s").is_err());
    }

    #[test]
    fn keys_are_read_and_never_repeated() {
        let octets: [u8; 16] = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(key("00112233445566778899aabbccddEEFF"), Ok(Key::new(octets)));
        assert_eq!(
            key("0011"),
            Err("the key has 4 digits, expected 32 hexadecimal digits (16 octets)".into())
        );
        let message = key("0123456789abcdef0123456789abcdeg");
        assert_eq!(
            message,
            Err("the key has the character 'g', expected 32 hexadecimal digits (16 octets)".into())
        );
        assert!(key(&"é".repeat(16)).is_err());
    }
}
