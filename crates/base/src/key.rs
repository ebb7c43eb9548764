//! A shared key in memory.

use std::fmt;
use std::hint::black_box;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// A shared key of 128 bits (RFC 4285). Dropping the key wipes it, and `Debug` does not show it. A comparison
/// of keys takes the same time whether they are equal or not.
///
/// The octets are in their own allocation. A move of the key copies only the pointer, so it leaves no copy of
/// the octets in memory. With the octets inside the struct, a vector that grows would leave copies.
#[derive(Clone)]
pub struct Key(Box<[u8; Key::LENGTH]>);

impl Key {
    /// Length of a key, octets.
    pub const LENGTH: usize = 16;

    /// Creates a key from its octets.
    pub fn new(octets: [u8; Key::LENGTH]) -> Key {
        Key(Box::new(octets))
    }

    /// Returns the octets.
    pub fn octets(&self) -> &[u8; Key::LENGTH] {
        &self.0
    }

    /// Returns the octets for filling in place.
    pub fn octets_mut(&mut self) -> &mut [u8; Key::LENGTH] {
        &mut self.0
    }

    /// Overwrites the key with zeros before it is dropped.
    pub fn wipe(&mut self) {
        self.0.zeroize();
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl ZeroizeOnDrop for Key {}

impl From<[u8; Key::LENGTH]> for Key {
    fn from(octets: [u8; Key::LENGTH]) -> Key {
        Key::new(octets)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        let differences = self.0.iter().zip(other.0.iter()).fold(0, |all, (a, b)| all | (a ^ b));
        black_box(differences) == 0
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_comparison_is_constant_time_and_debug_hides_key() {
        let key = Key::new(std::array::from_fn(|at| at as u8));
        for at in 0..Key::LENGTH {
            let mut other = key.clone();
            other.octets_mut()[at] ^= 1;
            assert_ne!(key, other, "octet {at}");
        }
        assert_eq!(key, key.clone());
        assert_eq!(format!("{key:?}"), "Key(secret)");
    }

    #[test]
    fn wiped_key_contains_only_zeros() {
        let mut key = Key::new([7; Key::LENGTH]);
        key.wipe();
        assert_eq!(key, Key::new([0; Key::LENGTH]));
        assert!(std::mem::needs_drop::<Key>(), "it is wiped when it is dropped");
    }
}
