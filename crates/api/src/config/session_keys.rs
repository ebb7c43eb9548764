//! Keys of the encrypted tunnel (X25519) in the config: base64, as `carnet key` and `wg` write them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use carnet_base::Key;

use super::keys::{Disclosure, ValueKind, text_kind, value_kind};
use super::values;

/// Octets of a key.
const KEY_LENGTH: usize = 32;
/// Characters of a key in base64; the last one is `=`.
const BASE64_KEY_LENGTH: usize = 44;
/// Maximum size of a key file in octets.
const MAX_KEY_FILE_SIZE: u64 = 4096;
/// Default UDP port of encrypted sessions.
pub(super) const DEFAULT_TUNNEL_PORT: u16 = 51_820;
/// Expected value in an error message.
pub(super) const EXPECTED_KEY: &str = "a key of 44 characters (base64, 32 octets), as `carnet key` prints it";

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_LENGTH]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(")?;
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}

/// A private or preshared key, in two halves of 16 octets. Both are overwritten when dropped, and `Debug`
/// does not show them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretKey([Key; 2]);

impl SecretKey {
    fn new(octets: &[u8; KEY_LENGTH]) -> SecretKey {
        let half = |at: usize| Key::new(std::array::from_fn(|index| octets[at + index]));
        SecretKey([half(0), half(KEY_LENGTH / 2)])
    }

    /// Reads a key from a file that only its owner may read.
    ///
    /// # Errors
    /// Returns what is wrong with the file; the text does not contain the key.
    pub fn read(path: &Path) -> Result<SecretKey, String> {
        read_key_file(path)
    }

    /// Returns the octets.
    pub fn octets(&self) -> [u8; KEY_LENGTH] {
        let [first, second] = &self.0;
        std::array::from_fn(|index| match index.checked_sub(KEY_LENGTH / 2) {
            None => first.octets()[index],
            Some(index) => second.octets()[index],
        })
    }

    /// Overwrites the key with zeros.
    pub fn wipe(&mut self) {
        self.0.iter_mut().for_each(Key::wipe);
    }
}

/// The private key of this station, and the next private key while an operator replaces the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateKey {
    /// File of the present key. The next key is in the file with this name and the ending of
    /// [`next_key_file`].
    pub key_file: PathBuf,
    /// The present key.
    pub present_key: SecretKey,
    /// The next key; `None` if its file does not exist.
    pub next_key: Option<SecretKey>,
}

impl PrivateKey {
    /// Reads the key in a file, and the next key beside it.
    ///
    /// # Errors
    /// Returns what is wrong with a file; the text does not contain the key.
    pub fn read(file: PathBuf) -> Result<PrivateKey, String> {
        let next_file = next_key_file(&file);
        let next_exists = next_file.symlink_metadata().is_ok();
        let next_key = next_exists.then(|| read_key_file(&next_file)).transpose()?;
        Ok(PrivateKey { present_key: read_key_file(&file)?, next_key, key_file: file })
    }

    /// Returns the keys, the newest one first.
    pub fn keys_newest_first(&self) -> impl Iterator<Item = &SecretKey> {
        self.next_key.iter().chain([&self.present_key])
    }

    /// Overwrites the keys with zeros.
    pub fn wipe(&mut self) {
        self.next_key.iter_mut().chain([&mut self.present_key]).for_each(SecretKey::wipe);
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
    /// Public keys. A mobile router has one key for all home agents, or one for each, in the order of the
    /// home agents.
    pub public_keys: Vec<PublicKey>,
    /// The preshared key; `None` if the two stations have none.
    pub preshared_key: Option<SecretKey>,
}

/// Type of a config key with a public key.
pub(super) const PUBLIC_KEY_KIND: ValueKind<PublicKey> =
    text_kind("key in base64", EXPECTED_KEY, parse_public_key);
/// Type of a config key with a file that has a private or preshared key. A relative path starts in the config
/// file's directory.
pub(super) const SECRET_KEY_FILE_KIND: ValueKind<SecretKey> =
    value_kind("path", "a path", |value| value.parse("a path", |text| read_secret_key(text, value.file())))
        .with_disclosure(Disclosure::PathOfSecret);

/// Type of a config key with the file of the station's private key.
pub(super) const PRIVATE_KEY_FILE_KIND: ValueKind<PrivateKey> =
    value_kind("path", "a path", |value| value.parse("a path", |text| read_private_key(text, value.file())))
        .with_disclosure(Disclosure::PathOfSecret);

fn read_private_key(text: &str, config_file: &str) -> Result<PrivateKey, String> {
    PrivateKey::read(path_beside_config(text, config_file)?)
}

pub(super) fn parse_public_key(text: &str) -> Result<PublicKey, String> {
    let octets = decode_base64(text)?;
    if octets == [0; KEY_LENGTH] {
        return Err(format!("the key is zero, expected {EXPECTED_KEY}"));
    }
    Ok(PublicKey(octets))
}

/// Returns the path that a config names. A relative path starts in the directory of the config file.
fn path_beside_config(text: &str, config_file: &str) -> Result<PathBuf, String> {
    Ok(Path::new(config_file).parent().unwrap_or(Path::new("")).join(values::parse_path(text)?))
}

fn read_secret_key(text: &str, config_file: &str) -> Result<SecretKey, String> {
    read_key_file(&path_beside_config(text, config_file)?)
}

/// Reads a secret key from a file that only its owner may read. Error messages do not contain the key.
fn read_key_file(path: &Path) -> Result<SecretKey, String> {
    let name = path.display();
    let unreadable = |error| format!("cannot read {name}: {error}, expected a file with {EXPECTED_KEY}");
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "other users may read or write {name} (mode {mode:04o}), expected mode 0600 (chmod 600)"
        ));
    }
    // The capacity holds the whole file, because a buffer that grows leaves copies of the key.
    let mut content = String::with_capacity(MAX_KEY_FILE_SIZE as usize);
    file.take(MAX_KEY_FILE_SIZE).read_to_string(&mut content).map_err(unreadable)?;
    let key = decode_base64(content.trim_ascii()).map(|octets| SecretKey::new(&octets));
    key.map_err(|error| format!("{name}: {error}"))
}

/// Decodes base64 with padding (RFC 4648 4).
fn decode_base64(text: &str) -> Result<[u8; KEY_LENGTH], String> {
    if text.len() != BASE64_KEY_LENGTH {
        return Err(format!("the key has {} characters, expected {EXPECTED_KEY}", text.chars().count()));
    }
    // The decoder needs three octets for each four characters.
    let mut buffer = [0; BASE64_KEY_LENGTH / 4 * 3];
    let decoded = STANDARD.decode_slice(text, &mut buffer);
    let octets = buffer.first_chunk().copied().filter(|_| matches!(decoded, Ok(KEY_LENGTH)));
    octets.ok_or_else(|| format!("the key is no base64, expected {EXPECTED_KEY}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_base64_of_32_octets() {
        // The test vector of RFC 7748 6.1: the public key of Alice.
        let key = parse_public_key("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=").expect("a key");
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
            assert!(parse_public_key(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secret_key_keeps_its_octets_and_is_wiped() {
        let octets: [u8; KEY_LENGTH] = std::array::from_fn(|index| index as u8 + 1);
        let mut key = SecretKey::new(&octets);
        assert_eq!(key.octets(), octets);
        assert_eq!(format!("{key:?}").matches("1").count(), 0, "{key:?}");
        key.wipe();
        assert_eq!(key.octets(), [0; KEY_LENGTH]);
    }
}
