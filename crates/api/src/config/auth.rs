//! `auth`: how a mobile node and its home agent know each other's messages, as types and how it is read.

use std::path::Path;
use std::time::Duration;

use carnet_base::Key;

use super::draft::duration;
use super::errors::Sink;
use super::reader::{At, Table};
use super::{schema, values};

/// RFC 4285 5.1 and 6: a default of 7 s.
const DEFAULT_WINDOW: Duration = Duration::from_secs(7);
/// Keys that a node may have at a time.
const MAX_KEYS: usize = 4;

/// `auth`: how Binding Updates and Acknowledgements are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// Not at all. [`warnings`](super::Config::warnings) says so.
    None,
    /// IPsec between home address and home agent (RFC 4877); an IKE daemon makes its security associations.
    Ipsec,
    /// Mobility message authentication option (RFC 4285 5.1, HMAC-SHA1).
    Mac(Mac),
    /// The same while the key changes: others are accepted beside it. (A home agent may have very many
    /// routers, so that what few have is elsewhere.)
    Changing(Box<Changing>),
}

/// `auth` with a shared key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mac {
    /// Security Parameters Index, 256 or above.
    pub spi: u32,
    /// Shared key.
    pub key: Key,
    /// What holds off replays.
    pub replay: Replay,
    /// Whether the key in use with a home agent is made of this one and that home agent's address; not said
    /// is no, and is not enough where there are several.
    pub per_agent: Option<bool>,
}

/// `auth` with `auth.former`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changing {
    /// The key that is signed with.
    pub mac: Mac,
    /// Those that are accepted as well, one at least, each with an SPI of its own.
    pub former: Vec<FormerKey>,
}

/// One of `auth.former`: what holds for the key beside it holds for this one as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerKey {
    /// Security Parameters Index, 256 or above.
    pub spi: u32,
    /// Shared key.
    pub key: Key,
}

impl Auth {
    /// The shared key that is signed with, and what goes with it.
    pub fn mac(&self) -> Option<&Mac> {
        match self {
            Auth::None | Auth::Ipsec => None,
            Auth::Mac(mac) => Some(mac),
            Auth::Changing(changing) => Some(&changing.mac),
        }
    }

    pub(super) fn wipe_keys(&mut self) {
        match self {
            Auth::None | Auth::Ipsec => {}
            Auth::Mac(mac) => mac.key.wipe(),
            Auth::Changing(changing) => {
                changing.mac.key.wipe();
                changing.former.iter_mut().for_each(|former| former.key.wipe());
            }
        }
    }

    /// The keys that are accepted beside it.
    pub fn former(&self) -> &[FormerKey] {
        match self {
            Auth::Changing(changing) => &changing.former,
            Auth::None | Auth::Ipsec | Auth::Mac(_) => &[],
        }
    }
}

/// `auth.replay`: what holds off replays of a Binding Update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replay {
    /// The sequence number of the Binding Update, nothing else.
    #[default]
    Sequence,
    /// Also a timestamp in a Mobility message replay protection option (RFC 4285 6).
    Timestamp {
        /// Largest difference between the clocks that is accepted.
        window: Duration,
    },
}

/// How Binding Updates are authenticated: it has to be said.
pub(super) fn auth(table: &Table<'_>, sink: &Sink<'_>) -> Option<At<Auth>> {
    const EXPECTED: &str = "authentication to be chosen: { spi = 300, key = \"...\" }, \"ipsec\" or \"none\"";
    let value = table.need("auth", EXPECTED)?;
    let auth = match value.as_str() {
        Some("none") => Some(Auth::None),
        Some("ipsec") => Some(Auth::Ipsec),
        Some(text) => {
            value.refuse(&format!("{text:?} is not known, expected {EXPECTED}"));
            None
        }
        None => mac(&value.table(&schema::AUTH)?, sink),
    };
    auth.map(|auth| At { value: auth, at: value.at() })
}

/// The inline table of `auth`.
fn mac(table: &Table<'_>, sink: &Sink<'_>) -> Option<Auth> {
    let (spi, key) = shared_key(table, "auth", sink);
    let timestamps = match table.get("replay") {
        Some(value) => value.word(&[("sequence", false), ("timestamp", true)], &[]).map(|word| word.value),
        None => Some(false),
    };
    let window = duration(table, "window", DEFAULT_WINDOW, values::window);
    if let (Some(value), Some(false)) = (table.get("window"), timestamps) {
        value.refuse("a window goes with timestamps only, expected replay = \"timestamp\" beside it");
    }
    let per_agent = match table.get("per_agent") {
        Some(value) => value.boolean().map(Some),
        None => Some(None),
    };
    let former = former(table, spi, sink);
    let window = window?;
    let replay = if timestamps? { Replay::Timestamp { window } } else { Replay::Sequence };
    let mac = Mac { spi: spi?.value, key: key?, replay, per_agent: per_agent? };
    let former = former?;
    if former.is_empty() {
        return Some(Auth::Mac(mac));
    }
    Some(Auth::Changing(Box::new(Changing { mac, former })))
}

/// An SPI and its key.
fn shared_key(table: &Table<'_>, path: &str, sink: &Sink<'_>) -> (Option<At<u32>>, Option<Key>) {
    let spi = table
        .need("spi", "an integer from 256 to 4294967295")
        // RFC 4285 5.1: 0 to 255 are reserved.
        .and_then(|value| value.integer(256, u32::MAX));
    let key = match (table.get("key"), table.get("key_file")) {
        (Some(value), None) => value.parse(values::KEY, values::key).map(|key| key.value),
        (None, Some(value)) => value.parse("a path", |text| read_key(text, sink.file())).map(|key| key.value),
        (Some(_), Some(file)) => {
            file.refuse("there is a `key` already, expected one of `key` and `key_file`");
            None
        }
        (None, None) => {
            let message = format!("`{path}.key` is missing, expected {} or a `key_file`", values::KEY);
            sink.push(table.at(), message);
            None
        }
    };
    (spi, key)
}

/// The keys that are accepted beside the one with this SPI. A message says by its SPI which it is signed
/// with, so no two have the same.
fn former(table: &Table<'_>, spi: Option<At<u32>>, sink: &Sink<'_>) -> Option<Vec<FormerKey>> {
    let Some(value) = table.get("former") else { return Some(Vec::new()) };
    let tables = value.tables(&schema::FORMER)?;
    if tables.is_empty() || tables.len() >= MAX_KEYS {
        let most = MAX_KEYS - 1;
        value.refuse(&format!("there are {} keys, expected 1 to {most}, or no `former`", tables.len()));
        return None;
    }
    let mut spis: Vec<At<u32>> = spi.into_iter().collect();
    let keys = tables.iter().map(|table| {
        let (spi, key) = shared_key(table, "auth.former", sink);
        let spi = spi?;
        if let Some(other) = spis.iter().find(|other| other.value == spi.value) {
            let place = sink.place(other.at);
            sink.push(spi.at, format!("{} is the SPI at {place}, expected another", spi.value));
        }
        spis.push(spi);
        Some(FormerKey { spi: spi.value, key: key? })
    });
    // All of them, so that each mistake is told.
    keys.collect::<Vec<_>>().into_iter().collect()
}

/// Reads a key from a file; a relative path starts where the config file is.
fn read_key(text: &str, config_file: &str) -> Result<Key, String> {
    let path = Path::new(config_file).parent().unwrap_or(Path::new("")).join(values::path(text)?);
    let content = std::fs::read_to_string(&path).map_err(|error| {
        format!("cannot read {}: {error}, expected a file with {}", path.display(), values::KEY)
    })?;
    values::key(content.trim_ascii())
}
