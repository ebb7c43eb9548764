//! Octets as a string of hexadecimal digits, for `#[serde(with = "carnet_base::hex")]`.

use std::fmt::Write;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Returns two digits per octet.
pub fn encode(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len() * 2);
    for octet in octets {
        let _ = write!(text, "{octet:02x}");
    }
    text
}

/// Writes two digits per octet.
pub fn serialize<S: Serializer>(octets: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode(octets))
}

/// Reads two digits per octet.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(D::Error::custom("expected an even number of hexadecimal digits"));
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(D::Error::custom))
        .collect()
}
