//! Link-layer addresses and octets as text, in the form of the config file, the JSON and the command line.
//! [`crate::geonet::GnAddress`] has the same kind of text.

use std::fmt;
use std::str::FromStr;

/// A 48-bit link-layer address, written as six groups of two hexadecimal digits.
///
/// ```
/// use carnet_wire::address::MacAddress;
/// assert_eq!("02:00:00:00:00:0A".parse(), Ok(MacAddress([2, 0, 0, 0, 0, 10])));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

/// Octets, written as two hexadecimal digits each.
///
/// ```
/// use carnet_wire::address::Octets;
/// assert_eq!("00ff".parse(), Ok(Octets(vec![0, 255])));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Octets(pub Vec<u8>);

/// A text that could not be parsed: what it is, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no {parsed_item}, expected {expected}")]
pub struct ParseError {
    pub(crate) found: String,
    pub(crate) parsed_item: &'static str,
    pub(crate) expected: &'static str,
}

/// Reads `groups` groups of exactly `digits` hexadecimal digits, with colons between, as one number; `None`
/// for a text of another form.
pub(crate) fn parse_hex_groups(text: &str, groups: usize, digits: usize) -> Option<u64> {
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

impl FromStr for MacAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<MacAddress, ParseError> {
        let value = parse_hex_groups(text, 6, 2).ok_or_else(|| ParseError {
            found: text.to_owned(),
            parsed_item: "MAC address",
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
            parsed_item: "string of octets",
            expected: "two hexadecimal digits for each octet such as 00ff",
        })
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

/// Implements serde's traits for types: JSON holds them as strings in the form of `Display` and `FromStr`.
/// The crate that uses the macro must depend on serde.
#[macro_export]
macro_rules! as_string {
    ($($name:ty),*) => {$(
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
    )*};
}

as_string!(MacAddress, Octets);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geonet::GnAddress;

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
