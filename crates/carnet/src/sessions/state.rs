//! Timestamps that outlive a restart: `NAME.sessions` in the state directory.
//!
//! * The newest timestamp of this end. It is in the file before it is 60 s old, and a start adds 60 s
//!   ([`carnet_wireguard::date_at_start`]). So a router without a battery clock sends no timestamp twice.
//! * The newest accepted timestamp of each path, so that a recorded handshake stays old. The home agent
//!   writes them once a minute, and when it stops.
//! * The keys of remote ends that have changed their key since the config was written. They are in the file
//!   before the remote end gets its receipt.
//! * The mobile routers that have used the next key of this end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use carnet_base::Time;
use carnet_linux::disk::{self, KernelDisk};
use carnet_wireguard::{HandshakeTimestamp, PathNumber, PublicKey};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// Age of the stored timestamp above which the file is written again. It is below the 60 s that a start adds.
const MAX_STORED_TIMESTAMP_AGE: Duration = Duration::from_secs(30);
/// Time between two writes of accepted timestamps.
const STORE_INTERVAL: Duration = Duration::from_secs(60);

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct FileContent {
    /// Newest timestamp of this end, in seconds since the UNIX epoch.
    newest: u64,
    /// Accepted timestamps by public key and path number.
    #[serde(default)]
    accepted: BTreeMap<String, BTreeMap<u8, String>>,
    /// Valid public keys of a remote end, the newest one first, by its key in the config.
    #[serde(default)]
    keys: BTreeMap<String, Vec<String>>,
    /// Keys in the config of the mobile routers that have used the next key of this end, by this key.
    #[serde(default)]
    adopted: BTreeMap<String, BTreeSet<String>>,
}

/// The file with the timestamps. Without a state directory, nothing is stored.
#[derive(Debug)]
pub(super) struct StateFile {
    path: Option<PathBuf>,
    file_content: FileContent,
    changed_at: Option<Time>,
    has_failed: bool,
}

impl StateFile {
    /// Reads the file. A damaged file counts as an empty one.
    pub(super) fn read_state_file(directory: Option<&FilePath>, name: &str) -> StateFile {
        let path = directory.map(|directory| directory.join(format!("{name}.sessions")));
        let content = path.as_ref().and_then(|path| {
            let octets = std::fs::read(path).ok()?;
            let content = serde_json::from_slice(&octets);
            content
                .map_err(|error| warn!("cannot use the stored sessions in {}: {error}", path.display()))
                .ok()
        });
        StateFile { path, file_content: content.unwrap_or_default(), changed_at: None, has_failed: false }
    }

    /// Returns the stored timestamp of this end.
    pub(super) fn newest_timestamp(&self) -> Option<Duration> {
        (self.file_content.newest > 0).then(|| Duration::from_secs(self.file_content.newest))
    }

    /// Returns the accepted timestamps of a key.
    pub(super) fn accepted_timestamps(&self, key: PublicKey) -> Vec<(PathNumber, HandshakeTimestamp)> {
        let of_key = self.file_content.accepted.get(&key.to_string());
        let parse = |(number, text): (&u8, &String)| {
            let timestamp = HandshakeTimestamp(u128::from_str_radix(text, 16).ok()?);
            Some((PathNumber::new(*number)?, timestamp))
        };
        of_key.into_iter().flatten().filter_map(parse).collect()
    }

    /// Returns the valid keys of a remote end, the newest one first.
    pub(super) fn valid_keys(&self, config_key: PublicKey) -> Vec<PublicKey> {
        let stored = self.file_content.keys.get(&config_key.to_string()).into_iter().flatten();
        let keys: Vec<PublicKey> = stored.filter_map(|text| text.parse().ok()).take(2).collect();
        if keys.is_empty() { vec![config_key] } else { keys }
    }

    /// Stores the valid keys of a remote end. Returns whether the disk has them.
    pub(super) fn store_valid_keys(&mut self, config_key: PublicKey, keys: &[PublicKey]) -> bool {
        let text = keys.iter().map(PublicKey::to_string).collect();
        let old = self.file_content.keys.insert(config_key.to_string(), text);
        if self.write_file() {
            return true;
        }
        match old {
            Some(old) => self.file_content.keys.insert(config_key.to_string(), old),
            None => self.file_content.keys.remove(&config_key.to_string()),
        };
        false
    }

    /// Returns the keys in the config of the mobile routers that have used the next key of this end.
    pub(super) fn adopters_of(&self, next: PublicKey) -> Vec<PublicKey> {
        let adopted = self.file_content.adopted.get(&next.to_string()).into_iter().flatten();
        adopted.filter_map(|text| text.parse().ok()).collect()
    }

    /// Notes that a mobile router has used the next key of this end. Earlier next keys no longer matter.
    pub(super) fn note_adopter(&mut self, now: Time, next: PublicKey, config_key: PublicKey) {
        self.file_content.adopted.retain(|key, _| *key == next.to_string());
        self.file_content.adopted.entry(next.to_string()).or_default().insert(config_key.to_string());
        self.changed_at.get_or_insert(now);
    }

    /// Stores the newest timestamp of this end, if the stored one is too old.
    pub(super) fn store_newest(&mut self, newest: Duration) {
        if newest.saturating_sub(MAX_STORED_TIMESTAMP_AGE).as_secs() > self.file_content.newest {
            // The next second is never before the timestamp.
            self.file_content.newest = newest.as_secs() + 1;
            self.write_file();
        }
    }

    /// Notes an accepted timestamp.
    pub(super) fn note_accepted(
        &mut self,
        now: Time,
        key: PublicKey,
        number: PathNumber,
        timestamp: HandshakeTimestamp,
    ) {
        let of_key = self.file_content.accepted.entry(key.to_string()).or_default();
        let stored = of_key.entry(number.get()).or_default();
        // With two keys of this end, the handshakes of one remote key need not be in order.
        if u128::from_str_radix(stored, 16).is_ok_and(|stored| stored >= timestamp.0) {
            return;
        }
        *stored = format!("{:x}", timestamp.0);
        self.changed_at.get_or_insert(now);
    }

    /// Writes accepted timestamps that have waited for long enough.
    pub(super) fn store_accepted(&mut self, now: Time) {
        if self.changed_at.is_some_and(|changed| now.saturating_since(changed) >= STORE_INTERVAL) {
            self.write_file();
        }
    }

    /// Writes the file. Returns whether the disk has it.
    pub(super) fn write_file(&mut self) -> bool {
        self.changed_at = None;
        let Some(path) = &self.path else { return false };
        let octets = serde_json::to_vec(&self.file_content).map_err(std::io::Error::from);
        let written = octets.and_then(|octets| disk::replace_file(&KernelDisk, path, &octets));
        if let Err(error) = &written
            && !self.has_failed
        {
            warn!("cannot store the sessions in {}: {error}", path.display());
        }
        self.has_failed = written.is_err();
        written.is_ok()
    }
}
