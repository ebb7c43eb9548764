//! Keys of the encrypted tunnel (X25519) in the config: base64, as `carnet key` and `wg` write them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use carnet_base::Key;

use super::keys::{Disclosure, Kind, text, value};
use super::values;

/// Octets of a key.
const OCTETS: usize = 32;
/// Characters of a key in base64; the last one is `=`.
const CHARACTERS: usize = 44;
/// Maximum size of a key file in octets.
const MAX_FILE: u64 = 4096;
/// Expected value in an error message.
pub(super) const EXPECTED: &str = "a key of 44 characters (base64, 32 octets), as `carnet key` prints it";

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; OCTETS]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(")?;
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}

/// A private or preshared key. Its two halves are wiped, and `Debug` does not show them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretKey([Key; 2]);

impl SecretKey {
    fn new(octets: &[u8; OCTETS]) -> SecretKey {
        let half = |at: usize| Key::new(std::array::from_fn(|index| octets[at + index]));
        SecretKey([half(0), half(OCTETS / 2)])
    }

    /// Returns the octets.
    pub fn octets(&self) -> [u8; OCTETS] {
        let [first, second] = &self.0;
        std::array::from_fn(|index| match index.checked_sub(OCTETS / 2) {
            None => first.octets()[index],
            Some(index) => second.octets()[index],
        })
    }

    pub(super) fn wipe(&mut self) {
        self.0.iter_mut().for_each(Key::wipe);
    }
}

/// The private key of this station, and the next one while the key is exchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateKey {
    /// File of the present key. The next key is in the file with this name and the ending of
    /// [`next_key_file`].
    pub file: PathBuf,
    /// The present key.
    pub present: SecretKey,
    /// The next key; `None` if its file does not exist.
    pub next: Option<SecretKey>,
}

impl PrivateKey {
    /// Reads the key in a file, and the next key beside it.
    ///
    /// # Errors
    /// Returns what is wrong with a file; the text does not contain the key.
    pub fn read(file: PathBuf) -> Result<PrivateKey, String> {
        let next = next_key_file(&file);
        let is_there = next.symlink_metadata().is_ok();
        let next = is_there.then(|| read_key(&next)).transpose()?;
        Ok(PrivateKey { present: read_key(&file)?, next, file })
    }

    /// Returns the keys, the newest one first.
    pub fn newest_first(&self) -> impl Iterator<Item = &SecretKey> {
        self.next.iter().chain([&self.present])
    }

    /// Overwrites the keys with zeros.
    pub fn wipe(&mut self) {
        self.next.iter_mut().chain([&mut self.present]).for_each(SecretKey::wipe);
    }
}

/// Returns the file of the next key for the file of the present one.
pub fn next_key_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".next");
    PathBuf::from(name)
}

/// The keys of one remote end of encrypted sessions, or of several home agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKeys {
    /// Public keys. A mobile router has one for all home agents, or one for each in their order.
    pub public_keys: Vec<PublicKey>,
    /// The preshared key, if both ends have one.
    pub preshared_key: Option<SecretKey>,
}

/// Type of a config key with a public key.
pub(super) const PUBLIC_KEY: Kind<PublicKey> = text("key in base64", EXPECTED, public_key);
/// Type of a config key with a file that has a private or preshared key. A relative path starts in the config
/// file's directory.
pub(super) const SECRET_KEY_FILE: Kind<SecretKey> =
    value("path", "a path", |value| value.parse("a path", |text| read_file(text, value.file())))
        .disclosed(Disclosure::PathOfSecret);

/// Type of a config key with the file of the station's private key.
pub(super) const PRIVATE_KEY_FILE: Kind<PrivateKey> =
    value("path", "a path", |value| value.parse("a path", |text| private_key(text, value.file())))
        .disclosed(Disclosure::PathOfSecret);

fn private_key(text: &str, config_file: &str) -> Result<PrivateKey, String> {
    PrivateKey::read(beside(text, config_file)?)
}

pub(super) fn public_key(text: &str) -> Result<PublicKey, String> {
    let octets = decode(text)?;
    if octets == [0; OCTETS] {
        return Err(format!("the key is zero, expected {EXPECTED}"));
    }
    Ok(PublicKey(octets))
}

/// Returns the path that a config names. A relative path starts in the directory of the config file.
fn beside(text: &str, config_file: &str) -> Result<PathBuf, String> {
    Ok(Path::new(config_file).parent().unwrap_or(Path::new("")).join(values::path(text)?))
}

fn read_file(text: &str, config_file: &str) -> Result<SecretKey, String> {
    read_key(&beside(text, config_file)?)
}

/// Reads a secret key from a file that only its owner may read. Error messages do not contain the key.
fn read_key(path: &Path) -> Result<SecretKey, String> {
    let name = path.display();
    let unreadable = |error| format!("cannot read {name}: {error}, expected a file with {EXPECTED}");
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "other users may read or write {name} (mode {mode:04o}), expected mode 0600 (chmod 600)"
        ));
    }
    // The capacity holds the whole file, because a buffer that grows leaves copies of the key.
    let mut content = String::with_capacity(MAX_FILE as usize);
    file.take(MAX_FILE).read_to_string(&mut content).map_err(unreadable)?;
    let key = decode(content.trim_ascii()).map(|octets| SecretKey::new(&octets));
    key.map_err(|error| format!("{name}: {error}"))
}

/// Decodes base64 with padding (RFC 4648 4).
fn decode(text: &str) -> Result<[u8; OCTETS], String> {
    if text.len() != CHARACTERS {
        return Err(format!("the key has {} characters, expected {EXPECTED}", text.chars().count()));
    }
    // The decoder wants room for three octets for each four characters.
    let mut room = [0; CHARACTERS / 4 * 3];
    let decoded = STANDARD.decode_slice(text, &mut room);
    let octets = room.first_chunk().copied().filter(|_| matches!(decoded, Ok(OCTETS)));
    octets.ok_or_else(|| format!("the key is no base64, expected {EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_base64_of_32_octets() {
        // RFC 7748 6.1: the public key of Alice.
        let key = public_key("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=").expect("a key");
        assert_eq!(
            format!("{key:?}"),
            "PublicKey(8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a)"
        );
        for text in [
            "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTm==",
            "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmp=",
            "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTm-=",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbT",
            "",
        ] {
            assert!(public_key(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secret_key_keeps_its_octets_and_is_wiped() {
        let octets: [u8; OCTETS] = std::array::from_fn(|index| index as u8 + 1);
        let mut key = SecretKey::new(&octets);
        assert_eq!(key.octets(), octets);
        assert_eq!(format!("{key:?}").matches("1").count(), 0, "{key:?}");
        key.wipe();
        assert_eq!(key.octets(), [0; OCTETS]);
    }
}
