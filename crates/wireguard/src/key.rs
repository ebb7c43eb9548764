//! Keys, and their text form: 32 octets as 44 characters of base64, as `wg genkey` and `wg pubkey` write
//! them.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::{Zeroize, Zeroizing};

/// Length of each key, octets.
const KEY_LENGTH: usize = 32;
/// Length of the text of a key, characters.
const BASE64_KEY_LENGTH: usize = 44;

/// Error for a text that is no key. The message does not repeat the text, which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text does not have 44 characters; the value is its length.
    #[error("a key has {BASE64_KEY_LENGTH} characters of base64, found {0}")]
    Length(usize),
    /// The text is not base64 of 32 octets.
    #[error("cannot read the key: expected base64 of {KEY_LENGTH} octets")]
    Base64,
    /// The key is all zeros, or another weak point of the curve, with which X25519 gives no shared secret.
    #[error("the key has no shared secret: expected the output of `carnet key` or `wg genkey`")]
    Weak,
}

/// Reads 32 octets of base64. White space around the text is ignored.
fn decode_base64(text: &str) -> Result<Zeroizing<[u8; KEY_LENGTH]>, KeyError> {
    let text = text.trim();
    if text.len() != BASE64_KEY_LENGTH {
        return Err(KeyError::Length(text.len()));
    }
    // The decoder needs room for three octets of each four characters, so for 33 octets.
    let mut room = Zeroizing::new([0; 33]);
    let octets = STANDARD.decode_slice(text, &mut room[..]).map_err(|_| KeyError::Base64)?;
    if octets != KEY_LENGTH {
        return Err(KeyError::Base64);
    }
    let mut key = Zeroizing::new([0; KEY_LENGTH]);
    key.copy_from_slice(&room[..KEY_LENGTH]);
    Ok(key)
}

/// Writes 32 octets as base64.
fn encode_base64(octets: &[u8; KEY_LENGTH]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(BASE64_KEY_LENGTH));
    STANDARD.encode_string(octets, &mut text);
    text
}

/// A private key of X25519. Dropping the key wipes it, and `Debug` does not show it.
#[derive(Clone)]
pub struct PrivateKey(Box<[u8; KEY_LENGTH]>);

impl PrivateKey {
    /// Makes a key of 32 random octets. By RFC 7748 5, sets one bit of the key to one and three bits to zero.
    pub fn from_random(mut octets: [u8; KEY_LENGTH]) -> PrivateKey {
        octets[0] &= 248;
        octets[31] = (octets[31] & 127) | 64;
        let key = PrivateKey(Box::new(octets));
        octets.zeroize();
        key
    }

    /// Returns the public key that belongs to this key.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(sanstun::PublicKey::from(&self.to_static_secret()).to_bytes())
    }

    /// Returns the key as base64.
    pub fn to_text(&self) -> Zeroizing<String> {
        encode_base64(&self.0)
    }

    pub(crate) fn to_static_secret(&self) -> sanstun::StaticSecret {
        sanstun::StaticSecret::from(Zeroizing::new(*self.0))
    }
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PrivateKey, KeyError> {
        let octets = decode_base64(text)?;
        if octets.iter().all(|&octet| octet == 0) {
            return Err(KeyError::Weak);
        }
        Ok(PrivateKey(Box::new(*octets)))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(secret)")
    }
}

/// A public key of X25519.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub(crate) [u8; KEY_LENGTH]);

impl PublicKey {
    /// Returns the octets.
    pub fn octets(&self) -> &[u8; KEY_LENGTH] {
        &self.0
    }
}

impl From<[u8; KEY_LENGTH]> for PublicKey {
    fn from(octets: [u8; KEY_LENGTH]) -> PublicKey {
        PublicKey(octets)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let octets = decode_base64(text)?;
        if octets.iter().all(|&octet| octet == 0) {
            return Err(KeyError::Weak);
        }
        Ok(PublicKey(*octets))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A key that both ends share beside their key pairs, against later attacks by quantum computers.
#[derive(Clone)]
pub struct PresharedKey(Box<[u8; KEY_LENGTH]>);

impl PresharedKey {
    /// Makes a key of 32 random octets.
    pub fn from_random(mut octets: [u8; KEY_LENGTH]) -> PresharedKey {
        let key = PresharedKey(Box::new(octets));
        octets.zeroize();
        key
    }

    /// Returns the key as base64.
    pub fn to_text(&self) -> Zeroizing<String> {
        encode_base64(&self.0)
    }

    pub(crate) fn to_library_key(&self) -> sanstun::PresharedKey {
        sanstun::PresharedKey::from(Zeroizing::new(*self.0))
    }
}

impl Drop for PresharedKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PresharedKey, KeyError> {
        decode_base64(text).map(|octets| PresharedKey(Box::new(*octets)))
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two key pairs of RFC 7748 6.1, as base64.
    #[test]
    fn public_keys_are_those_of_rfc_7748() {
        for (private, public) in [
            ("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=", "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="),
            ("XasIfmJKikt54X+Lg4AO5m87sSkmGLb9HC+LJ/+I4Os=", "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="),
        ] {
            let key: PrivateKey = private.parse().expect("private key");
            assert_eq!(key.public_key().to_string(), public);
            assert_eq!(*key.to_text(), private);
            assert_eq!(public.parse::<PublicKey>().expect("public key"), key.public_key());
        }
    }

    #[test]
    fn private_key_from_random_octets_is_valid_for_other_programs() {
        let key = PrivateKey::from_random([0xff; 32]);
        assert_eq!(*key.to_text(), "+P///////////////////////////////////////38=");
        let again: PrivateKey = key.to_text().parse().expect("private key");
        assert_eq!(again.public_key(), key.public_key());
    }

    #[test]
    fn invalid_key_text_is_refused_and_not_quoted_in_the_error() {
        for (text, error) in [
            ("", KeyError::Length(0)),
            ("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo", KeyError::Length(43)),
            ("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTm==", KeyError::Base64),
            ("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTm-=", KeyError::Base64),
            ("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmoo", KeyError::Base64),
            ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", KeyError::Weak),
        ] {
            assert_eq!(text.parse::<PublicKey>().expect_err(text), error);
            assert_eq!(text.parse::<PrivateKey>().expect_err(text), error);
        }
        assert!("\n hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo= \n".parse::<PublicKey>().is_ok());
    }

    #[test]
    fn debug_output_hides_secret_keys() {
        let key = PrivateKey::from_random([7; 32]);
        assert_eq!(format!("{key:?}"), "PrivateKey(secret)");
        assert_eq!(format!("{:?}", PresharedKey::from_random([7; 32])), "PresharedKey(secret)");
        assert_eq!(format!("{:?}", key.public_key()), format!("PublicKey({})", key.public_key()));
    }
}
