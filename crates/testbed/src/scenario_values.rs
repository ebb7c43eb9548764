//! Parses values in a scenario's notation: times, interfaces, prefixes, distances, bit rates.

use std::fmt;
use std::net::Ipv6Addr;

use serde::Deserialize;
use serde::de::{self, Deserializer};

use crate::clock::{MILLISECOND, SECOND};

/// An IPv6 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Address of the prefix.
    pub address: Ipv6Addr,
    /// Length in bits.
    pub length: u8,
}

impl Prefix {
    /// Returns whether the prefix contains the address.
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        let shift = 128 - u32::from(self.length);
        let cut = |a: Ipv6Addr| a.to_bits().checked_shr(shift).unwrap_or(0);
        cut(address) == cut(self.address)
    }
}

/// An interface of a node, written `NODE:INTERFACE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEnd {
    /// Name of the node.
    pub node: String,
    /// Name of the interface.
    pub interface: String,
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.interface)
    }
}

/// A duration, written `20s`, `500ms` or `10us`; stored in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub u64);

impl Duration {
    /// Returns the duration in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / SECOND as f64
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let unit = match &text[digits..] {
            "s" => SECOND,
            "ms" => MILLISECOND,
            "us" => 1000,
            _ => return Err(de::Error::custom(format!("{text:?} is no time, expected for example \"20s\""))),
        };
        let number: f64 = text[..digits]
            .parse()
            .map_err(|_| de::Error::custom(format!("{text:?} is no time, expected for example \"20s\"")))?;
        Ok(Self((number * unit as f64) as u64))
    }
}

impl<'de> Deserialize<'de> for LinkEnd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(':') {
            Some((node, interface)) if !node.is_empty() && (1..=15).contains(&interface.len()) => {
                Ok(Self { node: node.into(), interface: interface.into() })
            }
            _ => Err(de::Error::custom(format!("{text:?} is no interface, expected \"NODE:INTERFACE\""))),
        }
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.split_once('/')
            .and_then(|(a, l)| Some(Self { address: a.parse().ok()?, length: l.parse().ok()? }))
            .filter(|p| p.length <= 128)
            .ok_or_else(|| de::Error::custom(format!("{text:?} is no IPv6 prefix")))
    }
}

/// A distance, written `400m` or `1.5km`; stored in metres.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Metres(pub f64);

impl<'de> Deserialize<'de> for Metres {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = match text.strip_suffix("km") {
            Some(number) => number.parse().map(|km: f64| km * 1000.0),
            None => text.strip_suffix('m').unwrap_or("").parse(),
        };
        number.ok().filter(|m: &f64| m.is_finite() && *m > 0.0).map(Self).ok_or_else(|| {
            de::Error::custom(format!("{text:?} is no distance, expected for example \"400m\""))
        })
    }
}

/// A bit rate, written `6M` or `500k`; stored in bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitRate(pub u64);

impl<'de> Deserialize<'de> for BitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (number, unit) = match (text.strip_suffix('M'), text.strip_suffix('k')) {
            (Some(number), _) => (number, 1e6),
            (_, Some(number)) => (number, 1e3),
            _ => ("", 1.0),
        };
        number
            .parse()
            .ok()
            .map(|n: f64| n * unit)
            .filter(|rate| (125e3..=1e9).contains(rate))
            .map(|rate| Self(rate as u64))
            .ok_or_else(|| {
                de::Error::custom(format!(
                    "{text:?} is no bit rate from 125k to 1000M, expected for example \"6M\""
                ))
            })
    }
}

/// The rate of a link, written `20mbit`, `512kbit` or `1gbit`; stored in bit/s. With `0kbit` the link sends
/// no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRate(pub u64);

impl<'de> Deserialize<'de> for LinkRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = parse_with_unit(&text, &[("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)]);
        number.filter(|rate| (0.0..=1e10).contains(rate)).map(|rate| Self(rate as u64)).ok_or_else(|| {
            de::Error::custom(format!("{text:?} is no rate up to 10gbit, expected for example \"20mbit\""))
        })
    }
}

/// A number of octets, written `256kB`, `1.5MB` or `3000B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Octets(pub usize);

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = parse_with_unit(&text, &[("MB", 1e6), ("kB", 1e3), ("B", 1.0)]);
        number.filter(|n| (0.0..=1e8).contains(n)).map(|n| Self(n as usize)).ok_or_else(|| {
            de::Error::custom(format!("{text:?} is no size up to 100MB, expected for example \"256kB\""))
        })
    }
}

/// Parses a number with one of these units, and multiplies it by the unit's factor. Tries the units in order.
/// Returns `None` if no unit fits.
fn parse_with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, factor) = units.iter().find_map(|(unit, f)| Some((text.strip_suffix(unit)?, f)))?;
    Some(number.parse::<f64>().ok().filter(|n| n.is_finite())? * factor)
}
