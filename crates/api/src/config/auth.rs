//! `auth`: authentication between a mobile node and its home agent, as types, with its reader.

use std::path::Path;
use std::time::Duration;

use carnet_mobility::ReplayProtection;

use super::keys::{
    DeclaredKey, Disclosure, Key, OptionalKey, Section, TableKey, ValueKind, computed_key, integer_kind,
    key_with_default, optional_key, required_key, table_array, text_kind, value_kind, words_kind,
};
use super::reader::{Located, LocatedValue};
use super::session_keys::{PublicKey, SecretKey, SessionKeys};
use super::table::Table;
use super::{kinds, session_keys, values};

/// Maximum number of shared keys that a node may have at a time: the key that signs, and those of
/// `auth.former`.
const MAX_FORMER_KEYS: usize = 4;

/// `auth`: how Binding Updates and Acknowledgements are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// No authentication. [`warnings`](super::Config::warnings) reports it.
    None,
    /// IPsec between home address and home agent (RFC 4877). An IKE daemon sets up the security associations.
    Ipsec,
    /// Mobility message authentication option (RFC 4285 5.1, HMAC-SHA1).
    Mac(SharedKeyAuth),
    /// Messages inside encrypted sessions (`docs/tunnel.md`). The keys are in a `Box`, so that the other
    /// variants stay small.
    Sessions(Box<SessionKeys>),
    /// Mobility message authentication option with several keys, while an operator changes the key. The keys
    /// are in a `Box`: a home agent may have very many routers, and few of them change their key.
    Changing(Box<AuthWithFormerKeys>),
}

/// `auth` with a shared key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedKeyAuth {
    /// Security Parameters Index, 256 or above.
    pub spi: u32,
    /// Shared key.
    pub shared_key: carnet_base::Key,
    /// Protection against replays.
    pub replay_protection: ReplayProtection,
    /// Whether each home agent has its own key, derived from this key and the home agent's address. `None`
    /// means no, which is an error if there are several home agents.
    pub differs_per_home_agent: Option<bool>,
}

/// Shared keys while an operator changes the key: the key that signs, and the keys of `auth.former`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthWithFormerKeys {
    /// Key that signs messages.
    pub signing_key: SharedKeyAuth,
    /// Other keys whose signatures the node accepts, at least one, each with its own SPI.
    pub former_keys: Vec<FormerKey>,
}

/// One key of `auth.former`. The replay protection and other values of `auth` apply to this key too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerKey {
    /// Security Parameters Index, 256 or above.
    pub spi: u32,
    /// Shared key.
    pub former_key: carnet_base::Key,
}

impl Auth {
    /// Returns the shared key with which the node signs, with its SPI and replay protection; `None` without a
    /// shared key.
    pub fn shared_key_auth(&self) -> Option<&SharedKeyAuth> {
        match self {
            Auth::None | Auth::Ipsec | Auth::Sessions(_) => None,
            Auth::Mac(mac) => Some(mac),
            Auth::Changing(changing) => Some(&changing.signing_key),
        }
    }

    /// Returns the keys of encrypted sessions; `None` without sessions.
    pub fn session_keys(&self) -> Option<&SessionKeys> {
        match self {
            Auth::Sessions(keys) => Some(keys),
            _ => None,
        }
    }

    pub(super) fn wipe_keys(&mut self) {
        match self {
            Auth::None | Auth::Ipsec => {}
            Auth::Sessions(keys) => keys.preshared_key.iter_mut().for_each(SecretKey::wipe),
            Auth::Mac(mac) => mac.shared_key.wipe(),
            Auth::Changing(changing) => {
                changing.signing_key.shared_key.wipe();
                changing.former_keys.iter_mut().for_each(|former| former.former_key.wipe());
            }
        }
    }

    /// Returns the keys of `auth.former`, which the node accepts but does not sign with.
    pub fn former_keys(&self) -> &[FormerKey] {
        match self {
            Auth::Changing(changing) => &changing.former_keys,
            Auth::None | Auth::Ipsec | Auth::Mac(_) | Auth::Sessions(_) => &[],
        }
    }
}

/// Text after "expected" in the error message for a wrong `auth`.
pub(super) const EXPECTED_AUTH: &str = "authentication to be chosen: { public_key = \"...\" }, \
                                   { spi = 300, key = \"...\" }, \"ipsec\" or \"none\"";

/// Type of the config key `auth`: an inline table, or `"none"` or `"ipsec"`.
pub(super) const AUTH_KIND: ValueKind<Auth> =
    value_kind("auth", EXPECTED_AUTH, read_auth).with_table(&AUTH_TABLE, &["none", "ipsec"]);

/// RFC 4285 5.1: 0 to 255 are reserved.
const SPI_KIND: ValueKind<u32> = integer_kind(256, 4_294_967_295);
const SHARED_KEY_KIND: ValueKind<carnet_base::Key> =
    text_kind("32 hexadecimal digits", EXPECTED_KEY, parse_shared_key).with_disclosure(Disclosure::Secret);
/// A file with a key; a relative path starts in the config file's directory.
const KEY_FILE_KIND: ValueKind<carnet_base::Key> =
    value_kind("path", "a path", |value| value.parse("a path", |text| read_key_file(text, value.file())))
        .with_disclosure(Disclosure::PathOfSecret);

static PUBLIC_KEY: OptionalKey<PublicKey> = optional_key(
    "public_key",
    session_keys::PUBLIC_KEY_KIND,
    "Public key of the mobile router, as `carnet key` prints it. Signalling and traffic of this router then
     travel in encrypted sessions, see [tunnel](tunnel.md). Give no other key but `preshared_key_file`. No two
     routers have the same public key. A mobile router has `home_agent_key` instead.",
);
static PRESHARED_KEY_FILE: OptionalKey<SecretKey> = optional_key(
    "preshared_key_file",
    session_keys::SECRET_KEY_FILE_KIND,
    "A file, mode 0600, with a key that both ends share beside their key pairs, as `wg genpsk` makes it. It
     protects recorded traffic against later quantum computers.",
);
static SPI_KEY: OptionalKey<u32> = optional_key(
    "spi",
    SPI_KIND,
    "Security Parameters Index: the number of this key. Required without `public_key`.",
);
static SHARED_KEY: OptionalKey<carnet_base::Key> = optional_key(
    "key",
    SHARED_KEY_KIND,
    "The shared key, a string. Give either this or `key_file`. Every user who can read the config can read
     this key.",
);
static KEY_FILE_OF_AUTH: OptionalKey<carnet_base::Key> = optional_key(
    "key_file",
    KEY_FILE_KIND,
    "A file with the shared key, 32 hexadecimal digits; a relative path starts in the directory of the config
     file.",
);
static REPLAY_PROTECTION_KEY: Key<bool> = key_with_default(
    "replay",
    words_kind(&[("sequence", false), ("timestamp", true)]),
    "\"sequence\"",
    r#"What stops replayed Binding Updates. `"sequence"`: their sequence number, kept in `station.state_dir`.
       `"timestamp"`: from the first Binding Update on also the time, which needs clocks that agree. With
       `"sequence"` a key lasts for 32,768 numbers; see [When a key has used up its
       numbers](operating.md#when-a-key-has-used-up-its-numbers)."#,
);
static REPLAY_WINDOW: Key<Duration> = key_with_default(
    "window",
    kinds::duration_kind(parse_replay_window),
    "\"7s\"",
    r#"With `replay = "timestamp"`: how far the clocks may differ. RFC 4285 advises more than 3 s."#,
);
static DIFFERS_PER_HOME_AGENT: OptionalKey<bool> = computed_key(
    "per_agent",
    kinds::BOOLEAN_KIND,
    "false",
    "Whether both ends derive a key of their own for each home agent, from this key and the home agent's
     address. It has to be the same at both ends. See below.",
);
static FORMER_KEYS: TableKey = table_array(
    "former",
    &FORMER_KEY_TABLE,
    "Up to three more keys that this end accepts, `[{ ... }]` with the keys of [auth.former](#authformer).
     They serve to change a key.",
);

/// Keys of the inline table `auth`.
static AUTH_TABLE: Section = Section::new(
    "auth",
    "auth",
    &[
        &PUBLIC_KEY,
        &PRESHARED_KEY_FILE,
        &SPI_KEY,
        &SHARED_KEY,
        &KEY_FILE_OF_AUTH,
        &REPLAY_PROTECTION_KEY,
        &REPLAY_WINDOW,
        &DIFFERS_PER_HOME_AGENT,
        &FORMER_KEYS,
    ],
);

static FORMER_SPI: Key<u32> =
    required_key("spi", SPI_KIND, "Security Parameters Index, different from the others of this router.");
static FORMER_SHARED_KEY: OptionalKey<carnet_base::Key> =
    optional_key("key", SHARED_KEY_KIND, "The shared key. Give either this or `key_file`.");
static FORMER_KEY_FILE: OptionalKey<carnet_base::Key> =
    optional_key("key_file", KEY_FILE_KIND, "A file with the shared key, as in `auth`.");

/// Keys of the config table `auth.former`.
static FORMER_KEY_TABLE: Section =
    Section::new("auth.former", "auth.former", &[&FORMER_SPI, &FORMER_SHARED_KEY, &FORMER_KEY_FILE]);

fn read_auth(value: &LocatedValue<'_>) -> Option<Auth> {
    match value.as_str() {
        Some("none") => Some(Auth::None),
        Some("ipsec") => Some(Auth::Ipsec),
        Some(text) => {
            value.report_error(&format!("{text:?} is not known, expected {EXPECTED_AUTH}"));
            None
        }
        None => {
            let table = Table::of_value(&AUTH_TABLE, value)?;
            match table.value_of_key(&PUBLIC_KEY) {
                Some(_) => read_session_keys(&table),
                None => read_shared_key_auth(&table),
            }
        }
    }
}

/// Reads `auth` if it is an inline table with a public key.
fn read_session_keys(table: &Table<'_>) -> Option<Auth> {
    let public_key = table.read_key(&PUBLIC_KEY);
    let preshared_key = table.read_key(&PRESHARED_KEY_FILE);
    let others: [&dyn DeclaredKey; 7] = [
        &SPI_KEY,
        &SHARED_KEY,
        &KEY_FILE_OF_AUTH,
        &REPLAY_PROTECTION_KEY,
        &REPLAY_WINDOW,
        &DIFFERS_PER_HOME_AGENT,
        &FORMER_KEYS,
    ];
    let unused: Vec<LocatedValue<'_>> = others.iter().filter_map(|key| table.value_of_key(*key)).collect();
    for value in &unused {
        value.report_error("found this key beside `public_key`, expected one of the two");
    }
    let keys = SessionKeys { public_keys: vec![public_key??], preshared_key: preshared_key? };
    unused.is_empty().then(|| Auth::Sessions(Box::new(keys)))
}

/// Reads `auth` if it is an inline table with shared keys.
fn read_shared_key_auth(table: &Table<'_>) -> Option<Auth> {
    if let (Some(value), Some(_)) =
        (table.value_of_key(&PRESHARED_KEY_FILE), table.read_key(&PRESHARED_KEY_FILE))
    {
        value.report_error("found no `public_key` beside it, expected both");
    }
    let spi = match table.find_key_with_offset(&SPI_KEY) {
        Some(None) => {
            table.report_missing(&SPI_KEY, &SPI_KEY.value_form().expected_text());
            None
        }
        read => read.flatten(),
    };
    let key = read_shared_key(table, &SHARED_KEY, &KEY_FILE_OF_AUTH);
    let timestamps = table.read_key(&REPLAY_PROTECTION_KEY);
    let window = table.read_key(&REPLAY_WINDOW);
    if let (Some(value), Some(false)) = (table.value_of_key(&REPLAY_WINDOW), timestamps) {
        value.report_error("a window needs timestamps, expected replay = \"timestamp\" beside it");
    }
    let per_agent = table.read_key(&DIFFERS_PER_HOME_AGENT);
    let former = read_former_keys(table, spi);
    let window = window?;
    let replay =
        if timestamps? { ReplayProtection::Timestamp { window } } else { ReplayProtection::Sequence };
    let mac = SharedKeyAuth {
        spi: spi?.value,
        shared_key: key?,
        replay_protection: replay,
        differs_per_home_agent: per_agent?,
    };
    let former = former?;
    if former.is_empty() {
        return Some(Auth::Mac(mac));
    }
    Some(Auth::Changing(Box::new(AuthWithFormerKeys { signing_key: mac, former_keys: former })))
}

/// Reads a key from its table, or from the file that the table names.
fn read_shared_key(
    table: &Table<'_>,
    key: &OptionalKey<carnet_base::Key>,
    file: &OptionalKey<carnet_base::Key>,
) -> Option<carnet_base::Key> {
    match (table.value_of_key(key), table.value_of_key(file)) {
        (Some(_), None) => table.read_key(key)?,
        (None, Some(_)) => table.read_key(file)?,
        (Some(_), Some(file)) => {
            file.report_error("found both `key` and `key_file`, expected one of them");
            None
        }
        (None, None) => {
            table.report_missing(key, &format!("{} or a `key_file`", EXPECTED_KEY));
            None
        }
    }
}

/// Reads the keys of `auth.former`. Each key needs a different SPI, because a received message says by its
/// SPI which key signed it.
fn read_former_keys(table: &Table<'_>, spi: Option<Located<u32>>) -> Option<Vec<FormerKey>> {
    let Some(value) = table.value_of_key(&FORMER_KEYS) else { return Some(Vec::new()) };
    let tables = table.subtables(&FORMER_KEYS)?;
    if tables.is_empty() || tables.len() >= MAX_FORMER_KEYS {
        let most = MAX_FORMER_KEYS - 1;
        value.report_error(&format!("there are {} keys, expected 1 to {most}, or no `former`", tables.len()));
        return None;
    }
    let mut spis: Vec<Located<u32>> = spi.into_iter().collect();
    let keys = tables.iter().map(|table| {
        let spi = table.read_key_with_offset(&FORMER_SPI);
        let key = read_shared_key(table, &FORMER_SHARED_KEY, &FORMER_KEY_FILE);
        let spi = spi?;
        if let Some(other) = spis.iter().find(|other| other.value == spi.value) {
            let place = table.error_sink().format_position(other.offset);
            table
                .error_sink()
                .push(spi.offset, format!("{} is the SPI at {place}, expected another", spi.value));
        }
        spis.push(spi);
        Some(FormerKey { spi: spi.value, former_key: key? })
    });
    // Read all keys before checking for failures, so that every error is reported.
    keys.collect::<Vec<_>>().into_iter().collect()
}

/// Reads a key from a file; a relative path starts in the config file's directory.
fn read_key_file(text: &str, config_file: &str) -> Result<carnet_base::Key, String> {
    let path = Path::new(config_file).parent().unwrap_or(Path::new("")).join(values::parse_path(text)?);
    let content = std::fs::read_to_string(&path).map_err(|error| {
        format!("cannot read {}: {error}, expected a file with {}", path.display(), EXPECTED_KEY)
    })?;
    parse_shared_key(content.trim_ascii())
}

/// Parses the largest permitted difference between a message's timestamp and the home agent's clock. The
/// difference must be above zero.
fn parse_replay_window(text: &str) -> Result<Duration, String> {
    match values::parse_duration(text)? {
        Duration::ZERO => Err(format!("{text:?} is too short, expected a duration above zero")),
        window => Ok(window),
    }
}

/// Expected value in an error message: a key.
const EXPECTED_KEY: &str = "32 hexadecimal digits (16 octets)";

/// Parses a shared key. Its error messages do not contain the key.
fn parse_shared_key(text: &str) -> Result<carnet_base::Key, String> {
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(format!("the key has the character {bad:?}, expected {EXPECTED_KEY}"));
    }
    let wrong = || format!("the key has {} digits, expected {EXPECTED_KEY}", text.len());
    if text.len() != 32 {
        return Err(wrong());
    }
    let mut key = carnet_base::Key::new([0; carnet_base::Key::LENGTH]);
    for (octet, digits) in key.octets_mut().iter_mut().zip(text.as_bytes().chunks(2)) {
        *octet = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .ok_or_else(wrong)?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_keys_never_appear_in_error_messages() {
        let octets: [u8; 16] = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(parse_shared_key("00112233445566778899aabbccddEEFF"), Ok(carnet_base::Key::new(octets)));
        assert_eq!(
            parse_shared_key("0011"),
            Err("the key has 4 digits, expected 32 hexadecimal digits (16 octets)".into())
        );
        let message = parse_shared_key("0123456789abcdef0123456789abcdeg");
        assert_eq!(
            message,
            Err("the key has the character 'g', expected 32 hexadecimal digits (16 octets)".into())
        );
        assert!(parse_shared_key(&"é".repeat(16)).is_err());
    }
}
