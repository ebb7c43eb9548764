//! Timestamps that outlive a restart: `NAME.sessions` in the state directory.
//!
//! * The newest timestamp of this end. It is in the file before it is 60 s old, and a start adds 60 s
//!   ([`carnet_wireguard::date_at_start`]). So a router without a battery clock sends no timestamp twice.
//! * The newest accepted timestamp of each path, so that a recorded handshake stays old. The home agent
//!   writes them once a minute, and when it stops.

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use carnet_base::Time;
use carnet_linux::disk::{self, KernelDisk};
use carnet_wireguard::{HandshakeTimestamp, PathNumber, PeerId, PublicKey, SessionPath};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// Age of the stored timestamp above which the file is written again. It is below the 60 s that a start adds.
const AGE: Duration = Duration::from_secs(30);
/// Time between two writes of accepted timestamps.
const INTERVAL: Duration = Duration::from_secs(60);

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// Newest timestamp of this end, in seconds since the UNIX epoch.
    newest: u64,
    /// Accepted timestamps by public key and path number.
    #[serde(default)]
    accepted: BTreeMap<String, BTreeMap<u8, String>>,
}

/// The file with the timestamps. Without a state directory, nothing is stored.
#[derive(Debug)]
pub(super) struct StateFile {
    path: Option<PathBuf>,
    content: Content,
    changed: Option<Time>,
    has_failed: bool,
}

impl StateFile {
    /// Reads the file. A damaged file counts as an empty one.
    pub(super) fn open(directory: Option<&FilePath>, name: &str) -> StateFile {
        let path = directory.map(|directory| directory.join(format!("{name}.sessions")));
        let content = path.as_ref().and_then(|path| {
            let octets = std::fs::read(path).ok()?;
            let content = serde_json::from_slice(&octets);
            content.map_err(|error| warn!("cannot use {}: {error}", path.display())).ok()
        });
        StateFile { path, content: content.unwrap_or_default(), changed: None, has_failed: false }
    }

    /// Returns the stored timestamp of this end.
    pub(super) fn newest(&self) -> Option<Duration> {
        (self.content.newest > 0).then(|| Duration::from_secs(self.content.newest))
    }

    /// Returns the accepted timestamps of a key.
    pub(super) fn accepted(&self, key: PublicKey, peer: PeerId) -> Vec<(SessionPath, HandshakeTimestamp)> {
        let of_key = self.content.accepted.get(&key.to_string());
        let parse = |(number, text): (&u8, &String)| {
            let timestamp = HandshakeTimestamp(u128::from_str_radix(text, 16).ok()?);
            Some((SessionPath { peer_id: peer, path_number: PathNumber::new(*number)? }, timestamp))
        };
        of_key.into_iter().flatten().filter_map(parse).collect()
    }

    /// Stores the newest timestamp of this end, if the stored one is too old.
    pub(super) fn store_newest(&mut self, newest: Duration) {
        if newest.saturating_sub(AGE).as_secs() > self.content.newest {
            // The next second is never before the timestamp.
            self.content.newest = newest.as_secs() + 1;
            self.store();
        }
    }

    /// Notes an accepted timestamp.
    pub(super) fn accept(
        &mut self,
        now: Time,
        key: PublicKey,
        number: PathNumber,
        timestamp: HandshakeTimestamp,
    ) {
        let of_key = self.content.accepted.entry(key.to_string()).or_default();
        of_key.insert(number.get(), format!("{:x}", timestamp.0));
        self.changed.get_or_insert(now);
    }

    /// Writes accepted timestamps that have waited for long enough.
    pub(super) fn store_accepted(&mut self, now: Time) {
        if self.changed.is_some_and(|changed| now.saturating_since(changed) >= INTERVAL) {
            self.store();
        }
    }

    /// Writes the file.
    pub(super) fn store(&mut self) {
        self.changed = None;
        let Some(path) = &self.path else { return };
        let octets = serde_json::to_vec(&self.content).map_err(std::io::Error::from);
        let written = octets.and_then(|octets| disk::replace_file(&KernelDisk, path, &octets));
        if let Err(error) = &written
            && !self.has_failed
        {
            warn!("cannot write {}: {error}", path.display());
        }
        self.has_failed = written.is_err();
    }
}
