//! Single values of `[geonet]`.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;

use super::super::geonet::{Coordinates, GeonetAddress, GeonetInterface, PositionSource};
use crate::address::MacAddress;

/// What is expected of the interface.
pub(in crate::config) const LINK: &str =
    "an interface name of 1 to 15 characters or \"udp:[ADDR]:PORT\" such as \"udp:[::1]:4747\"";
/// What is expected of an address.
pub(in crate::config) const GN_ADDRESS: &str = "\"auto\", \"managed:02:00:00:00:00:0a\" or \"anonymous\"";
/// What is expected of a position.
pub(in crate::config) const POSITION: &str =
    "\"gpsd://HOST:PORT\", \"fixed:LAT,LON\" in degrees or \"trace:FILE\"";
/// What is expected of a length.
pub(in crate::config) const LENGTH: &str = "a length from 1 m to 65535 m such as \"300m\" or \"1km\"";
/// What is expected of a pair of coordinates.
pub(in crate::config) const CENTER: &str = "[LATITUDE, LONGITUDE] in degrees";

/// Units of 0.1 microdegree in a degree.
const UNITS: f64 = 1e7;

/// A network interface, or the other end of a UDP link.
pub(in crate::config) fn link(text: &str) -> Result<GeonetInterface, String> {
    let Some(address) = text.strip_prefix("udp:") else {
        return super::interface(text)
            .map(GeonetInterface::Frames)
            .map_err(|message| message.replace(super::INTERFACE, LINK));
    };
    match address.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err(format!("{text:?} has no port, expected {LINK}")),
        Ok(address) => Ok(GeonetInterface::Udp(address)),
        Err(_) => Err(format!("{text:?} has no address and port behind udp:, expected {LINK}")),
    }
}

/// Where the address comes from.
pub(in crate::config) fn gn_address(text: &str) -> Result<GeonetAddress, String> {
    match text {
        "auto" => Ok(GeonetAddress::Auto),
        "anonymous" => Ok(GeonetAddress::Anonymous),
        _ => match text.strip_prefix("managed:") {
            Some(mac) => own_mac(mac).map(GeonetAddress::Managed),
            None => Err(format!("{text:?} is not known, expected {GN_ADDRESS}")),
        },
    }
}

/// A link-layer address that a station can have.
fn own_mac(text: &str) -> Result<MacAddress, String> {
    let mac: MacAddress = text.parse().map_err(|error: crate::address::ParseError| error.to_string())?;
    if mac.0[0] & 1 == 1 {
        Err(format!("{mac} is a group address, expected that of one station such as 02:00:00:00:00:0a"))
    } else if mac.0 == [0; 6] {
        Err(format!("{mac} is nobody's address, expected that of one station such as 02:00:00:00:00:0a"))
    } else {
        Ok(mac)
    }
}

/// Where the position comes from. A relative trace starts in the directory of the config file.
pub(in crate::config) fn position(text: &str, config_file: &str) -> Result<PositionSource, String> {
    if let Some(address) = text.strip_prefix("gpsd://") {
        gpsd(address).ok_or_else(|| {
            format!(
                "{text:?} names no host and port, expected \"gpsd://HOST:PORT\" such as \"gpsd://[::1]:2947\""
            )
        })
    } else if let Some(place) = text.strip_prefix("fixed:") {
        fixed(place).map(PositionSource::Fixed)
    } else if let Some(file) = text.strip_prefix("trace:") {
        let directory = Path::new(config_file).parent().unwrap_or(Path::new(""));
        super::path(file).map(|file| PositionSource::Trace(directory.join(file)))
    } else {
        Err(format!("{text:?} is no source of positions, expected {POSITION}"))
    }
}

/// `HOST:PORT`, an IPv6 address in brackets.
fn gpsd(text: &str) -> Option<PositionSource> {
    let (host, port) = text.rsplit_once(':')?;
    let digits = port.bytes().all(|octet| octet.is_ascii_digit());
    let port = port.parse().ok().filter(|port| *port != 0 && digits)?;
    let host = match host.strip_prefix('[') {
        Some(host) => {
            let host = host.strip_suffix(']')?;
            host.split('%').next()?.parse::<Ipv6Addr>().ok()?;
            host
        }
        None => host,
    };
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let named = !host.is_empty() && host.chars().all(good);
    (named || text.starts_with('[')).then(|| PositionSource::Gpsd { host: host.to_owned(), port })
}

/// `LAT,LON`
fn fixed(text: &str) -> Result<Coordinates, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let pair =
        text.split_once(',').and_then(|(latitude, longitude)| Some((number(latitude)?, number(longitude)?)));
    let Some((latitude, longitude)) = pair else {
        return Err(format!("{text:?} is no pair of numbers, expected \"fixed:LAT,LON\" in degrees"));
    };
    Ok(Coordinates { latitude: self::latitude(latitude)?, longitude: self::longitude(longitude)? })
}

/// A latitude in degrees.
pub(in crate::config) fn latitude(degrees: f64) -> Result<i32, String> {
    coordinate(degrees, 90.0).ok_or_else(|| format!("{degrees} is no latitude, expected -90 to 90 degrees"))
}

/// A longitude in degrees.
pub(in crate::config) fn longitude(degrees: f64) -> Result<i32, String> {
    coordinate(degrees, 180.0)
        .ok_or_else(|| format!("{degrees} is no longitude, expected -180 to 180 degrees"))
}

fn coordinate(degrees: f64, limit: f64) -> Option<i32> {
    (-limit..=limit).contains(&degrees).then(|| (degrees * UNITS).round() as i32)
}

/// Metres: a whole number with m or km.
pub(in crate::config) fn length(text: &str) -> Result<u16, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let scale = match unit {
        "m" => 1,
        "km" => 1000,
        _ => return Err(format!("{text:?} is no length, expected {LENGTH}")),
    };
    let metres = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    match metres.and_then(|metres| u16::try_from(metres).ok()) {
        Some(0) => Err(format!("{text:?} is nothing, expected {LENGTH}")),
        Some(metres) => Ok(metres),
        None if number.is_empty() => Err(format!("{text:?} is no length, expected {LENGTH}")),
        None => Err(format!("{text:?} is out of range, expected {LENGTH}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for (text, metres) in [("1m", 1), ("300m", 300), ("65535m", 65535), ("2km", 2000)] {
            assert_eq!(length(text), Ok(metres), "{text}");
        }
        for text in ["", "m", "300", "1.5km", "-1m", "300 m", "1mi", "1km5m"] {
            assert_eq!(length(text), Err(format!("{text:?} is no length, expected {LENGTH}")));
        }
        for text in ["65536m", "66km", "99999999999999999999km"] {
            assert_eq!(length(text), Err(format!("{text:?} is out of range, expected {LENGTH}")));
        }
    }

    #[test]
    fn positions() {
        let gpsd = |host: &str, port| Ok(PositionSource::Gpsd { host: host.to_owned(), port });
        assert_eq!(position("gpsd://[::1]:2947", "c.toml"), gpsd("::1", 2947));
        assert_eq!(position("gpsd://[fe80::1%eth0]:2947", "c.toml"), gpsd("fe80::1%eth0", 2947));
        assert_eq!(position("gpsd://gps.local:1", "c.toml"), gpsd("gps.local", 1));
        for text in [
            "",
            "localhost",
            ":2947",
            "localhost:",
            "localhost:0",
            "::1:2947",
            "[x]:2947",
            "a b:1",
            "a:65536",
            "a:1/d",
            "a:+1",
        ] {
            assert!(position(&format!("gpsd://{text}"), "c.toml").is_err(), "{text}");
        }
        let fixed = |latitude, longitude| Ok(PositionSource::Fixed(Coordinates { latitude, longitude }));
        assert_eq!(position("fixed:48.8375,2.1008", "c.toml"), fixed(488_375_000, 21_008_000));
        assert_eq!(position("fixed:-90, 180", "c.toml"), fixed(-900_000_000, 1_800_000_000));
        for (text, latitude) in [("90.1,0", "90.1"), ("nan,0", "NaN"), ("-inf,0", "-inf")] {
            assert_eq!(
                position(&format!("fixed:{text}"), "c.toml"),
                Err(format!("{latitude} is no latitude, expected -90 to 90 degrees"))
            );
        }
        assert_eq!(position("trace:a.csv", "/etc/c.toml"), Ok(PositionSource::Trace("/etc/a.csv".into())));
        assert_eq!(position("trace:/a.csv", "c.toml"), Ok(PositionSource::Trace("/a.csv".into())));
    }

    #[test]
    fn links() {
        assert_eq!(link("wlan1"), Ok(GeonetInterface::Frames("wlan1".into())));
        for text in ["127.0.0.1:4747", "[::1]:4747"] {
            let address = text.parse().expect("an address");
            assert_eq!(link(&format!("udp:{text}")), Ok(GeonetInterface::Udp(address)));
        }
        for text in
            ["udp:", "udp:4747", "udp:[::1]", "udp:::1:4747", "udp:host:4747", "udp:[::1]:0", "a:b", ""]
        {
            let message = link(text).expect_err(text);
            assert!(message.starts_with(&format!("{text:?} ")) && message.ends_with(LINK), "{message}");
        }
    }
}
