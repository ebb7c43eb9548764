//! Single values of `[geonet]`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::time::Duration;

use ipnet::Ipv6Net;

use super::super::values::{self, parse_own_mac};
use super::{Coordinates, GeonetAddress, GeonetInterface, PositionSource, UdpLink};

/// Expected value in an error message: the interface.
pub(super) const EXPECTED_LINK: &str = "an interface name of 1 to 15 characters or \"udp:ADDRESS[,PEER...]\"";
/// Expected value in an error message: an address.
pub(super) const EXPECTED_GN_ADDRESS: &str = "\"auto\", \"managed:02:00:00:00:00:0a\" or \"anonymous\"";
/// Expected value in an error message: a position.
pub(super) const EXPECTED_POSITION: &str =
    "\"gpsd://HOST[:PORT]\", \"fixed:LAT,LON\" in degrees or \"trace:FILE\"";
/// Expected value in an error message: a pair of coordinates.
pub(super) const EXPECTED_CENTER: &str = "[LATITUDE, LONGITUDE] in degrees";

/// Expected value in an error message: a multicast group.
pub(super) const EXPECTED_GROUP: &str =
    "a multicast address of more than link scope such as \"ff3e:40:2001:db8:1::1\"";

/// Default port of gpsd.
const GPSD_PORT: u16 = 2947;

/// Units of 0.1 microdegree in a degree.
const UNITS_PER_DEGREE: f64 = 1e7;

/// Parses the group of an area. Groups of link scope are refused, because hosts use them for Neighbor
/// Discovery.
pub(in crate::config) fn group(text: &str) -> Result<Ipv6Addr, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_GROUP}"));
    match text.parse::<Ipv6Addr>() {
        Ok(group) if !group.is_multicast() => wrong("is no multicast address"),
        Ok(group) if group.octets()[1] & 0x0f <= 2 => wrong("does not leave its link"),
        Ok(group) => Ok(group),
        Err(_) => wrong("is no IPv6 address"),
    }
}

/// Parses the time for which packets wait for the packets that they have overtaken, at most 1 s.
pub(super) fn parse_reorder_wait(text: &str) -> Result<Duration, String> {
    let wait = values::parse_duration(text)?;
    match wait <= Duration::from_secs(1) {
        true => Ok(wait),
        false => Err(format!("{text:?} is too long, expected 1s at most")),
    }
}

/// Parses the time for which the link to a next hop must last. The time has a maximum, because the present
/// speed predicts positions only for a short time.
pub(super) fn parse_link_lifetime(text: &str) -> Result<Duration, String> {
    let span = values::parse_duration(text)?;
    match span <= Duration::from_secs(10) {
        true => Ok(span),
        false => Err(format!("{text:?} is too long, expected 10s at most")),
    }
}

/// Parses the interval of announcements. An announcement is valid for three intervals, at most ten minutes.
pub(super) fn parse_announcement_interval(text: &str) -> Result<Duration, String> {
    let interval = values::parse_duration(text)?;
    match (Duration::from_secs(1)..=Duration::from_secs(200)).contains(&interval) {
        true => Ok(interval),
        false => Err(format!("{text:?} is out of range, expected 1s to 200s")),
    }
}

/// Parses MLD's Query Interval, 1 s to 31,744 s. A shorter interval only loads the link, and the field of a
/// query cannot express a longer one.
pub(super) fn parse_query_interval(text: &str) -> Result<Duration, String> {
    parse_duration_between(text, 1, 31_744)
}

/// Parses MLD's Query Response Interval. The field of a query can express at most 8,387 s.
pub(super) fn parse_query_response_interval(text: &str) -> Result<Duration, String> {
    parse_duration_between(text, 0, 8_387)
}

/// Parses a duration from `least` to `most` seconds. The minimum is 100 ms if `least` is 0.
fn parse_duration_between(text: &str, least: u64, most: u64) -> Result<Duration, String> {
    let time = values::parse_duration(text)?;
    let least = Duration::from_secs(least).max(Duration::from_millis(100));
    match (least..=Duration::from_secs(most)).contains(&time) {
        true => Ok(time),
        false => Err(format!("{text:?} is not permitted here, expected {least:?} to {most}s")),
    }
}

/// Parses the subnet of an area, a /64 or shorter, so that interface identifiers fit in.
pub(super) fn parse_subnet(text: &str) -> Result<Ipv6Net, String> {
    let prefix = values::parse_prefix(text)?;
    match prefix.prefix_len() {
        ..=64 => Ok(prefix),
        _ => Err(format!("{prefix} has no room for interface identifiers, expected /64 or shorter")),
    }
}

/// Parses a network interface, or `udp:` with addresses.
pub(super) fn parse_link(text: &str) -> Result<GeonetInterface, String> {
    match text.strip_prefix("udp:") {
        Some(addresses) => parse_udp_link(addresses).map(GeonetInterface::Udp),
        None => values::parse_interface(text)
            .map(GeonetInterface::Frames)
            .map_err(|message| message.replace(values::EXPECTED_INTERFACE, EXPECTED_LINK)),
    }
}

/// Parses `ADDRESS[,PEER...]`: a multicast group alone, or an own address and at least one peer.
fn parse_udp_link(text: &str) -> Result<UdpLink, String> {
    let (first, rest) = match text.split_once(',') {
        Some((first, rest)) => (first, Some(rest)),
        None => (text, None),
    };
    let wrong = |text: &str, what: &str| Err(format!("{text:?} {what}"));
    let Some((local, interface)) = parse_socket_address(first) else {
        return wrong(first, "is no address with a port, expected [IPV6]:PORT or IPV4:PORT behind udp:");
    };
    let group = local.ip().is_multicast();
    if group && rest.is_some() {
        return wrong(first, "is a multicast group, expected no peers behind it");
    }
    if !group && interface.is_some() {
        return wrong(first, "is an own address, expected it without an interface");
    }
    if !group && rest.is_none() {
        return wrong(
            first,
            "is an own address, expected a multicast group, or peers behind it: udp:ADDRESS,PEER",
        );
    }
    let mut peers = Vec::new();
    for peer in rest.into_iter().flat_map(|rest| rest.split(',')) {
        match parse_socket_address(peer) {
            Some((address, None)) if !address.ip().is_multicast() && address.is_ipv6() == local.is_ipv6() => {
                peers.push(address);
            }
            _ => {
                let kind = if local.is_ipv6() { "[IPV6]:PORT" } else { "IPV4:PORT" };
                return wrong(peer, &format!("is no peer of {local}, expected {kind} of one station"));
            }
        }
    }
    Ok(UdpLink { local, interface, peer_addresses: peers })
}

/// Parses `[fe80::1%eth0]:8947` or `239.1.1.1%eth0:8947`, and returns the name of the interface separately;
/// `None` for port 0.
fn parse_socket_address(text: &str) -> Option<(SocketAddr, Option<String>)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = parse_port_number(port)?;
    let (host, six) = match host.strip_prefix('[') {
        Some(host) => (host.strip_suffix(']')?, true),
        None => (host, false),
    };
    let (address, zone) = match host.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (host, None),
    };
    if !six {
        let address: Ipv4Addr = address.parse().ok()?;
        let name = zone.map(values::parse_interface).transpose().ok()?;
        return Some((SocketAddr::new(address.into(), port), name));
    }
    let address: Ipv6Addr = address.parse().ok()?;
    let scope = zone.and_then(|zone| zone.parse::<u32>().ok());
    let name = zone.filter(|_| scope.is_none()).map(values::parse_interface).transpose().ok()?;
    Some((SocketAddrV6::new(address, port, 0, scope.unwrap_or(0)).into(), name))
}

fn parse_port_number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|octet| octet.is_ascii_digit());
    text.parse().ok().filter(|port| *port != 0 && digits)
}

/// Parses the source of the GN address.
pub(super) fn parse_gn_address(text: &str) -> Result<GeonetAddress, String> {
    match text {
        "auto" => Ok(GeonetAddress::Auto),
        "anonymous" => Ok(GeonetAddress::Anonymous),
        _ => match text.strip_prefix("managed:") {
            Some(mac) => parse_own_mac(mac).map(GeonetAddress::Managed),
            None => Err(format!("{text:?} is not known, expected {EXPECTED_GN_ADDRESS}")),
        },
    }
}

/// Parses the source of the position. A relative path of a trace file
/// counts from the directory of the config file.
pub(super) fn parse_position(text: &str, config_file: &str) -> Result<PositionSource, String> {
    if let Some(address) = text.strip_prefix("gpsd://") {
        parse_gpsd(address).ok_or_else(|| {
            format!(
                "{text:?} names no host, expected \"gpsd://HOST[:PORT][/DEVICE]\" such as \
                 \"gpsd://[::1]:2947\""
            )
        })
    } else if let Some(place) = text.strip_prefix("fixed:") {
        parse_fixed_position(place).map(PositionSource::Fixed)
    } else if let Some(file) = text.strip_prefix("trace:") {
        let directory = Path::new(config_file).parent().unwrap_or(Path::new(""));
        values::parse_path(file).map(|file| PositionSource::Trace(directory.join(file)))
    } else {
        Err(format!("{text:?} is no source of positions, expected {EXPECTED_POSITION}"))
    }
}

/// Parses `HOST[:PORT][/DEVICE]`, with an IPv6 address in brackets.
fn parse_gpsd(text: &str) -> Option<PositionSource> {
    let (authority, device) = text.split_at(text.find('/').unwrap_or(text.len()));
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed.split_once(']')?;
            host.split('%').next()?.parse::<Ipv6Addr>().ok()?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.is_empty() || !(authority.starts_with('[') || host.chars().all(named)) {
        return None;
    }
    let port = port.map_or(Some(GPSD_PORT), parse_port_number)?;
    let device = (device.len() > 1).then(|| device.to_owned());
    Some(PositionSource::Gpsd { host: host.to_owned(), port, device })
}

/// Parses `LAT,LON`.
fn parse_fixed_position(text: &str) -> Result<Coordinates, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let pair =
        text.split_once(',').and_then(|(latitude, longitude)| Some((number(latitude)?, number(longitude)?)));
    let Some((latitude, longitude)) = pair else {
        return Err(format!("{text:?} is no pair of numbers, expected \"fixed:LAT,LON\" in degrees"));
    };
    Ok(Coordinates {
        latitude: self::parse_latitude(latitude)?,
        longitude: self::parse_longitude(longitude)?,
    })
}

/// Parses a latitude in degrees.
pub(super) fn parse_latitude(degrees: f64) -> Result<i32, String> {
    parse_coordinate(degrees, 90.0)
        .ok_or_else(|| format!("{degrees} is no latitude, expected -90 to 90 degrees"))
}

/// Parses a longitude in degrees.
pub(super) fn parse_longitude(degrees: f64) -> Result<i32, String> {
    parse_coordinate(degrees, 180.0)
        .ok_or_else(|| format!("{degrees} is no longitude, expected -180 to 180 degrees"))
}

fn parse_coordinate(degrees: f64, limit: f64) -> Option<i32> {
    (-limit..=limit).contains(&degrees).then(|| (degrees * UNITS_PER_DEGREE).round() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_texts_are_parsed_or_refused() {
        let gpsd = |host: &str, port, device: Option<&str>| {
            Ok(PositionSource::Gpsd { host: host.to_owned(), port, device: device.map(str::to_owned) })
        };
        assert_eq!(parse_position("gpsd://[::1]:2947", "c.toml"), gpsd("::1", 2947, None));
        assert_eq!(parse_position("gpsd://[::1]", "c.toml"), gpsd("::1", 2947, None));
        assert_eq!(parse_position("gpsd://[fe80::1%eth0]:1", "c.toml"), gpsd("fe80::1%eth0", 1, None));
        assert_eq!(parse_position("gpsd://gps.local", "c.toml"), gpsd("gps.local", 2947, None));
        assert_eq!(
            parse_position("gpsd://10.0.0.1:9/dev/ttyACM0", "c.toml"),
            gpsd("10.0.0.1", 9, Some("/dev/ttyACM0"))
        );
        for text in [
            "",
            ":2947",
            "a:",
            "a:0",
            "::1:2947",
            "[x]:2947",
            "[::1",
            "[::1]2947",
            "a b:1",
            "a:65536",
            "a:+1",
        ] {
            assert!(parse_position(&format!("gpsd://{text}"), "c.toml").is_err(), "{text}");
        }
        let fixed = |latitude, longitude| Ok(PositionSource::Fixed(Coordinates { latitude, longitude }));
        assert_eq!(parse_position("fixed:48.8375,2.1008", "c.toml"), fixed(488_375_000, 21_008_000));
        assert_eq!(parse_position("fixed:-90, 180", "c.toml"), fixed(-900_000_000, 1_800_000_000));
        for (text, latitude) in [("90.1,0", "90.1"), ("nan,0", "NaN"), ("-inf,0", "-inf")] {
            assert_eq!(
                parse_position(&format!("fixed:{text}"), "c.toml"),
                Err(format!("{latitude} is no latitude, expected -90 to 90 degrees"))
            );
        }
        assert_eq!(
            parse_position("trace:a.csv", "/etc/c.toml"),
            Ok(PositionSource::Trace("/etc/a.csv".into()))
        );
        assert_eq!(parse_position("trace:/a.csv", "c.toml"), Ok(PositionSource::Trace("/a.csv".into())));
    }

    #[test]
    fn radio_interface_texts_are_parsed_or_refused() {
        let udp = |text: &str| match parse_link(&format!("udp:{text}")) {
            Ok(GeonetInterface::Udp(udp)) => udp,
            other => panic!("{text}: {other:?}"),
        };
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(parse_link("wlan1"), Ok(GeonetInterface::Frames("wlan1".into())));
        assert_eq!(
            udp("[ff02::4:8947%wlan0]:8947"),
            UdpLink {
                local: address("[ff02::4:8947]:8947"),
                interface: Some("wlan0".into()),
                peer_addresses: vec![]
            }
        );
        assert_eq!(udp("239.1.2.3%eth0:9").interface.as_deref(), Some("eth0"));
        assert_eq!(udp("[ff02::1%3]:9").local, address("[ff02::1%3]:9"));
        assert_eq!(
            udp("[::]:8947,[2001:db8::2]:8947,[::1]:1"),
            UdpLink {
                local: address("[::]:8947"),
                interface: None,
                peer_addresses: vec![address("[2001:db8::2]:8947"), address("[::1]:1")],
            }
        );
        let no_address = "is no address with a port, expected [IPV6]:PORT or IPV4:PORT behind udp:";
        for (text, at, reason) in [
            ("", "", no_address),
            ("4747", "4747", no_address),
            ("[::1]", "[::1]", no_address),
            ("::1:4747", "::1:4747", no_address),
            ("host:4747", "host:4747", no_address),
            ("[ff02::1]:0", "[ff02::1]:0", no_address),
            ("[ff02::1%]:1", "[ff02::1%]:1", no_address),
            (
                "[::]:1",
                "[::]:1",
                "is an own address, expected a multicast group, or peers behind it: udp:ADDRESS,PEER",
            ),
            ("[::%a]:1,[::1]:1", "[::%a]:1", "is an own address, expected it without an interface"),
            ("[ff02::1]:1,[::1]:1", "[ff02::1]:1", "is a multicast group, expected no peers behind it"),
            ("[::]:1,1.2.3.4:1", "1.2.3.4:1", "is no peer of [::]:1, expected [IPV6]:PORT of one station"),
            ("0.0.0.0:1,", "", "is no peer of 0.0.0.0:1, expected IPV4:PORT of one station"),
        ] {
            assert_eq!(parse_link(&format!("udp:{text}")), Err(format!("{at:?} {reason}")));
        }
        for text in ["a:b", "", "sixteen-octets-x"] {
            let message = parse_link(text).expect_err(text);
            assert!(
                message.starts_with(&format!("{text:?} ")) && message.ends_with(EXPECTED_LINK),
                "{message}"
            );
        }
    }
}
