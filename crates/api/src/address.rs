//! GeoNetworking and link-layer addresses and octets, as the config file, the JSON and the command line
//! write them.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A GeoNetworking address: 64 bits, written as 16 hexadecimal digits in four groups.
///
/// ```
/// use carnet_api::address::GnAddress;
/// let address = GnAddress(0x1400_0200_0000_000a);
/// assert_eq!(address.to_string(), "1400:0200:0000:000a");
/// assert_eq!("1400:0200:0000:000A".parse(), Ok(address));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GnAddress(pub u64);

/// A 48-bit link-layer address, written as six groups of two hexadecimal digits.
///
/// ```
/// use carnet_api::address::MacAddress;
/// assert_eq!("02:00:00:00:00:0A".parse(), Ok(MacAddress([2, 0, 0, 0, 0, 10])));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

/// Octets, written as two hexadecimal digits each.
///
/// ```
/// use carnet_api::address::Octets;
/// assert_eq!("00ff".parse(), Ok(Octets(vec![0, 255])));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Octets(pub Vec<u8>);

/// A text that could not be parsed: what it is, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no {what}, expected {expected}")]
pub struct ParseError {
    found: String,
    what: &'static str,
    expected: &'static str,
}

/// Reads `groups` groups of exactly `digits` hexadecimal digits, with colons between, as one number.
fn groups(text: &str, groups: usize, digits: usize) -> Option<u64> {
    let mut value = 0;
    let mut count = 0;
    for group in text.split(':') {
        count += 1;
        if group.len() != digits || count > groups {
            return None;
        }
        for digit in group.chars() {
            value = value << 4 | u64::from(digit.to_digit(16)?);
        }
    }
    (count == groups).then_some(value)
}

impl FromStr for GnAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<GnAddress, ParseError> {
        groups(text, 4, 4).map(GnAddress).ok_or_else(|| ParseError {
            found: text.to_owned(),
            what: "GeoNetworking address",
            expected: "four groups of four hexadecimal digits such as 1400:0200:0000:000a",
        })
    }
}

impl FromStr for MacAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<MacAddress, ParseError> {
        let value = groups(text, 6, 2).ok_or_else(|| ParseError {
            found: text.to_owned(),
            what: "MAC address",
            expected: "six groups of two hexadecimal digits such as 02:00:00:00:00:0a",
        })?;
        let [_, _, octets @ ..] = value.to_be_bytes();
        Ok(MacAddress(octets))
    }
}

impl FromStr for Octets {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Octets, ParseError> {
        let octet = |pair: &[u8]| {
            let digit = |character: u8| char::from(character).to_digit(16);
            let [high, low] = pair else { return None };
            u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
        };
        let octets: Option<Vec<u8>> = text.as_bytes().chunks(2).map(octet).collect();
        octets.map(Octets).ok_or_else(|| ParseError {
            found: text.to_owned(),
            what: "string of octets",
            expected: "two hexadecimal digits for each octet such as 00ff",
        })
    }
}

impl fmt::Display for GnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) as u16);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// Makes the types strings in JSON, in the form of `Display` and `FromStr`.
macro_rules! as_string {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}
pub(crate) use as_string;

as_string!(GnAddress, MacAddress, Octets);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gn_addresses_are_written_in_groups_of_four_digits() {
        let json = |text: &str| serde_json::from_str::<GnAddress>(text);
        assert_eq!(json("\"0000:0000:0000:0001\"").expect("an address"), GnAddress(1));
        assert_eq!(serde_json::to_string(&GnAddress(u64::MAX)).expect("JSON"), "\"ffff:ffff:ffff:ffff\"");
        assert_eq!(
            serde_json::to_string(&MacAddress([2, 0, 0, 0xab, 0, 1])).expect("JSON"),
            "\"02:00:00:ab:00:01\""
        );
        for text in
            ["", "1400:0200:0000", "1400:0200:0000:000a:0000", "1400:0200:0000:a", "1400:0200:0000:000g"]
        {
            assert_eq!(
                text.parse::<GnAddress>().expect_err(text).to_string(),
                format!(
                    "{text:?} is no GeoNetworking address, expected four groups of four hexadecimal digits \
                     such as 1400:0200:0000:000a"
                )
            );
        }
        for text in ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:1", "02-00-00-00-00-01"] {
            assert_eq!(
                text.parse::<MacAddress>().expect_err(text).to_string(),
                format!(
                    "{text:?} is no MAC address, expected six groups of two hexadecimal digits such as \
                     02:00:00:00:00:0a"
                )
            );
        }
    }

    #[test]
    fn mac_addresses_have_two_digits_for_each_octet() {
        assert_eq!("".parse(), Ok(Octets::default()));
        assert_eq!("DEADbeef".parse::<Octets>().expect("octets").to_string(), "deadbeef");
        for text in ["0", "0g", "é", "+1", "0x00"] {
            assert!(text.parse::<Octets>().is_err(), "{text}");
        }
    }
}
