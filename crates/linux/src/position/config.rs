//! Config of the source of positions.

use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Default port of gpsd.
const GPSD_PORT: u16 = 2947;

/// A source of positions, in the config `gpsd://HOST[:PORT][/DEVICE]`, `fixed:LATITUDE,LONGITUDE` or
/// `trace:FILE`.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionConfig {
    /// A receiver behind gpsd.
    Gpsd {
        /// Host name or address, without brackets.
        host: String,
        /// TCP port of gpsd; 2947 by default.
        port: u16,
        /// Path of the receiver that carnet uses; `None` for all receivers of gpsd.
        device: Option<String>,
    },
    /// A fixed position, for a station that does not move.
    Fixed {
        /// Latitude in degrees.
        latitude: f64,
        /// Longitude in degrees.
        longitude: f64,
    },
    /// Positions from a file; see [`super::position_trace`] for its format.
    Trace(PathBuf),
}

impl FromStr for PositionConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<PositionConfig> {
        let parsed = match text.split_once(':') {
            Some(("gpsd", rest)) => parse_gpsd(rest),
            Some(("fixed", rest)) => parse_fixed(rest),
            Some(("trace", file)) if !file.is_empty() => Some(PositionConfig::Trace(file.into())),
            _ => None,
        };
        parsed.ok_or_else(|| Error::Invalid {
            what: "position".into(),
            expected: "gpsd://HOST[:PORT][/DEVICE], fixed:LATITUDE,LONGITUDE or trace:FILE".into(),
            got: format!("`{text}`"),
        })
    }
}

fn parse_gpsd(rest: &str) -> Option<PositionConfig> {
    let rest = rest.strip_prefix("//")?;
    let (authority, device) = match rest.find('/') {
        Some(slash) => (&rest[..slash], &rest[slash..]),
        None => (rest, ""),
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return None;
    }
    let port = port.map_or(Some(GPSD_PORT), |port| port.parse().ok().filter(|port| *port != 0))?;
    let device = (device.len() > 1).then(|| device.to_owned());
    Some(PositionConfig::Gpsd { host: host.to_owned(), port, device })
}

fn parse_fixed(rest: &str) -> Option<PositionConfig> {
    let (latitude, longitude) = rest.split_once(',')?;
    let degrees = |text: &str, limit: f64| {
        text.trim().parse::<f64>().ok().filter(|degrees| (-limit..=limit).contains(degrees))
    };
    Some(PositionConfig::Fixed { latitude: degrees(latitude, 90.0)?, longitude: degrees(longitude, 180.0)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_source_texts_are_parsed() {
        let gpsd = |host: &str, port, device: Option<&str>| PositionConfig::Gpsd {
            host: host.into(),
            port,
            device: device.map(str::to_owned),
        };
        for (text, expected) in [
            ("gpsd://[::1]:2947", gpsd("::1", 2947, None)),
            ("gpsd://[::1]", gpsd("::1", 2947, None)),
            ("gpsd://localhost", gpsd("localhost", 2947, None)),
            ("gpsd://10.0.0.1:99/dev/ttyACM0", gpsd("10.0.0.1", 99, Some("/dev/ttyACM0"))),
            ("gpsd://10.0.0.1/", gpsd("10.0.0.1", 2947, None)),
            ("fixed:48.8375,2.1008", PositionConfig::Fixed { latitude: 48.8375, longitude: 2.1008 }),
            ("fixed:-90, 180", PositionConfig::Fixed { latitude: -90.0, longitude: 180.0 }),
            ("trace:a:b.txt", PositionConfig::Trace("a:b.txt".into())),
        ] {
            assert_eq!(text.parse::<PositionConfig>().expect(text), expected);
        }
    }

    #[test]
    fn invalid_position_source_is_refused() {
        for text in [
            "",
            "gpsd",
            "gpsd:",
            "gpsd://",
            "gpsd://[::1",
            "gpsd://[::1]2947",
            "gpsd://host:0",
            "gpsd://host:65536",
            "gpsd://a b",
            "fixed:91,0",
            "fixed:0,180.1",
            "fixed:NaN,0",
            "fixed:inf,0",
            "fixed:1",
            "trace:",
            "gps://x",
        ] {
            let error = text.parse::<PositionConfig>().expect_err(text).to_string();
            assert!(error.contains("fixed:LATITUDE"), "{error}");
        }
    }
}
