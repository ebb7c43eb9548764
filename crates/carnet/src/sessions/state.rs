//! State of the sessions that outlives a restart: `NAME.sessions` in the state directory, or in a fleet the
//! records [`RecordKey::Sessions`] and [`RecordKey::Session`] in the store of all members.
//!
//! * The newest handshake timestamp of this station. It is stored before it is 60 s old, and a start adds 60
//!   s ([`carnet_wireguard::engine_start_date`]). So a station without a battery clock sends no timestamp
//!   twice, and the timestamps of a fleet do not go back when another member leads.
//! * The newest accepted timestamp of each path, so that a replayed handshake is refused after a
//!   restart, too. With a file, the home agent writes them once a minute, and when it stops. In a fleet it
//!   writes each one, and its response waits until the store has the timestamp.
//! * The route of each path at a home agent, by which the next run or the next leader begins handshakes.
//! * The keys of remote ends that have changed their key since the config was written. They are stored before
//!   the remote end gets its receipt.
//! * The mobile routers that have used the next key of this station.
//! * In a fleet, the public keys of this station with which mobile routers have sessions. The members compare
//!   their keys with these.
//!
//! A record is JSON with the field `version`. Later versions may add fields, which this version ignores. A
//! record with another version is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use carnet_api::config::PublicKey as ConfigKey;
use carnet_base::Time;
use carnet_linux::disk::{self, KernelDisk};
use carnet_wireguard::{HandshakeTimestamp, PathNumber, PublicKey};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::state::{RecordChange, RecordKey};

/// Age of the stored timestamp above which the file is written again. It is below the 60 s that a start adds.
const MAX_STORED_AGE: Duration = Duration::from_secs(30);
/// Time between two writes of accepted timestamps into the file.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);
/// Version of the records.
const RECORD_VERSION: u8 = 1;
/// Maximum number of public keys of one station that are valid at the same time.
const MAX_KEYS: usize = 2;

/// Content of the file, and of all records together.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StateContent {
    /// Newest handshake timestamp of this station, in seconds since the UNIX epoch.
    newest: u64,
    /// Accepted timestamps by public key and path number.
    #[serde(default)]
    accepted: BTreeMap<String, BTreeMap<u8, String>>,
    /// Valid public keys of a remote end, the newest one first, by its key in the config.
    #[serde(default)]
    keys: BTreeMap<String, Vec<String>>,
    /// Mobile routers that have used the next key of this station, by that key. A router is named by its key
    /// in the config.
    #[serde(default)]
    adopted: BTreeMap<String, BTreeSet<String>>,
    /// Addresses and ports of the paths of mobile routers, by their key in the config and path number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    routes: BTreeMap<String, BTreeMap<u8, SocketAddr>>,
    /// Public keys of this station with which mobile routers have sessions, the newest one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    public_keys: Vec<String>,
}

/// Record of this station.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnRecord {
    version: u8,
    /// Newest timestamp of this end, in seconds since the UNIX epoch.
    newest: u64,
    #[serde(default)]
    public_keys: Vec<String>,
}

/// Record of a public key of a remote end. The fields are those of [`StateContent`] for this key.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteRecord {
    version: u8,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    accepted: BTreeMap<u8, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    routes: BTreeMap<u8, SocketAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
    /// Next key of this station that the mobile router has used; `None` if it has used none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adopted: Option<String>,
}

/// Place of the stored state.
#[derive(Debug)]
enum StateMedium {
    Nowhere,
    File(PathBuf),
    /// The store of a fleet. The set has the keys of changed records.
    Store(BTreeSet<RecordKey>),
}

/// When a change is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StorageResult {
    /// The change is on the disk.
    Now,
    /// The store has the change when it has the next commit.
    WithNextCommit,
    /// The change is not stored.
    Never,
}

/// The sessions' state in memory. It outlives a restart in a file or in the store of a fleet.
#[derive(Debug)]
pub(super) struct StoredState {
    storage_medium: StateMedium,
    content: StateContent,
    changed_at: Option<Time>,
    has_failed: bool,
}

fn parse_record<'r, R: Deserialize<'r>>(
    key: &RecordKey,
    text: &'r str,
    version: impl Fn(&R) -> u8,
) -> anyhow::Result<R> {
    let record: R = serde_json::from_str(text)
        .with_context(|| format!("cannot use the record {key} of the encrypted sessions"))?;
    let found = version(&record);
    ensure!(
        found == RECORD_VERSION,
        "cannot use the record {key} of the encrypted sessions: found version {found}, expected \
         {RECORD_VERSION}"
    );
    Ok(record)
}

impl StoredState {
    /// Reads the file in a directory; without a directory nothing is stored. A damaged file counts as an
    /// empty one.
    pub(super) fn read_state_file(directory: Option<&FilePath>, name: &str) -> StoredState {
        let path = directory.map(|directory| directory.join(format!("{name}.sessions")));
        let content = path.as_ref().and_then(|path| {
            let octets = std::fs::read(path).ok()?;
            let content = serde_json::from_slice(&octets);
            content
                .map_err(|error| warn!("cannot use the stored sessions in {}: {error}", path.display()))
                .ok()
        });
        let storage_medium = path.map_or(StateMedium::Nowhere, StateMedium::File);
        StoredState {
            storage_medium,
            content: content.unwrap_or_default(),
            changed_at: None,
            has_failed: false,
        }
    }

    /// Creates the state from the records in a fleet's store.
    ///
    /// # Errors
    /// Returns an error if a record cannot be read.
    pub(super) fn of_records(records: &[(RecordKey, String)]) -> anyhow::Result<StoredState> {
        let mut content = StateContent::default();
        for (key, text) in records {
            match key {
                RecordKey::Sessions => {
                    let own: OwnRecord = parse_record(key, text, |own: &OwnRecord| own.version)?;
                    (content.newest, content.public_keys) = (own.newest, own.public_keys);
                }
                RecordKey::Session(name) => {
                    let RemoteRecord { accepted, routes, keys, adopted, .. } =
                        parse_record(key, text, |remote: &RemoteRecord| remote.version)?;
                    let name = PublicKey::from(name.0).to_string();
                    let valid = |number: &u8| PathNumber::new(*number).is_some();
                    content.accepted.insert(
                        name.clone(),
                        accepted.into_iter().filter(|(number, _)| valid(number)).collect(),
                    );
                    content.routes.insert(
                        name.clone(),
                        routes.into_iter().filter(|(number, _)| valid(number)).collect(),
                    );
                    if !keys.is_empty() {
                        content.keys.insert(name.clone(), keys);
                    }
                    if let Some(next) = adopted {
                        content.adopted.entry(next).or_default().insert(name);
                    }
                }
                RecordKey::Own | RecordKey::Node(_) | RecordKey::Lease(_) | RecordKey::Delegation(_) => {}
            }
        }
        let storage_medium = StateMedium::Store(BTreeSet::new());
        Ok(StoredState { storage_medium, content, changed_at: None, has_failed: false })
    }

    /// Returns whether the state is in the store of a fleet.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.storage_medium, StateMedium::Store(_))
    }

    /// Returns the stored handshake timestamp of this station; `None` if no timestamp is stored.
    pub(super) fn newest_timestamp(&self) -> Option<Duration> {
        (self.content.newest > 0).then(|| Duration::from_secs(self.content.newest))
    }

    /// Returns the accepted timestamps of a key.
    pub(super) fn accepted_timestamps(&self, key: PublicKey) -> Vec<(PathNumber, HandshakeTimestamp)> {
        let of_key = self.content.accepted.get(&key.to_string());
        let parse = |(number, text): (&u8, &String)| {
            let timestamp = HandshakeTimestamp(u128::from_str_radix(text, 16).ok()?);
            Some((PathNumber::new(*number)?, timestamp))
        };
        of_key.into_iter().flatten().filter_map(parse).collect()
    }

    /// Returns the routes of the paths of a mobile router.
    pub(super) fn routes(&self, config_key: PublicKey) -> Vec<(PathNumber, SocketAddr)> {
        let of_key = self.content.routes.get(&config_key.to_string());
        let parse = |(number, remote): (&u8, &SocketAddr)| Some((PathNumber::new(*number)?, *remote));
        of_key.into_iter().flatten().filter_map(parse).collect()
    }

    /// Returns the valid keys of a remote end, the newest one first.
    pub(super) fn valid_keys(&self, config_key: PublicKey) -> Vec<PublicKey> {
        let stored = self.content.keys.get(&config_key.to_string()).into_iter().flatten();
        let keys: Vec<PublicKey> = stored.filter_map(|text| text.parse().ok()).take(MAX_KEYS).collect();
        if keys.is_empty() { vec![config_key] } else { keys }
    }

    /// Stores the valid keys of a remote end.
    pub(super) fn store_valid_keys(&mut self, config_key: PublicKey, keys: &[PublicKey]) -> StorageResult {
        let text = keys.iter().map(PublicKey::to_string).collect();
        let old = self.content.keys.insert(config_key.to_string(), text);
        if self.is_shared() {
            self.mark_peer_record(config_key);
            return StorageResult::WithNextCommit;
        }
        if self.write_file() {
            return StorageResult::Now;
        }
        match old {
            Some(old) => self.content.keys.insert(config_key.to_string(), old),
            None => self.content.keys.remove(&config_key.to_string()),
        };
        StorageResult::Never
    }

    /// Returns the keys in the config of the mobile routers that have used the next key of this station.
    pub(super) fn adopters_of(&self, next: PublicKey) -> Vec<PublicKey> {
        let adopted = self.content.adopted.get(&next.to_string()).into_iter().flatten();
        adopted.filter_map(|text| text.parse().ok()).collect()
    }

    /// Notes that a mobile router has used the next key of this station. Earlier next keys no longer matter.
    pub(super) fn record_adopter(&mut self, now: Time, next: PublicKey, config_key: PublicKey) {
        self.content.adopted.retain(|key, _| *key == next.to_string());
        self.content.adopted.entry(next.to_string()).or_default().insert(config_key.to_string());
        self.mark_peer_changed(now, config_key);
    }

    /// Notes that a mobile router has a session with the key `key` of this station. Forgets proven keys that
    /// are not in `own_keys`, which begins with the newest key.
    pub(super) fn record_used_own_key(&mut self, now: Time, key: PublicKey, own_keys: &[PublicKey]) {
        let is_proven = |own: &&PublicKey| {
            **own == key || self.content.public_keys.iter().any(|known| *known == own.to_string())
        };
        let proven: Vec<String> = own_keys.iter().filter(is_proven).map(PublicKey::to_string).collect();
        if proven != self.content.public_keys {
            self.content.public_keys = proven;
            self.changed_at.get_or_insert(now);
            self.mark_own_record();
        }
    }

    /// Stores the newest handshake timestamp of this station, if the stored one is too old.
    pub(super) fn store_newest(&mut self, newest: Duration) {
        if newest.saturating_sub(MAX_STORED_AGE).as_secs() > self.content.newest {
            // Round up to the next second, so that the stored value is never before the timestamp.
            self.content.newest = newest.as_secs() + 1;
            self.mark_own_record();
            if !self.is_shared() {
                self.write_file();
            }
        }
    }

    /// Stores the timestamp of an accepted handshake, if it is newer than the stored one.
    pub(super) fn record_accepted_timestamp(
        &mut self,
        now: Time,
        key: PublicKey,
        number: PathNumber,
        timestamp: HandshakeTimestamp,
    ) {
        let of_key = self.content.accepted.entry(key.to_string()).or_default();
        let stored = of_key.entry(number.get()).or_default();
        // With two keys of this station, the handshakes of one remote key need not be in order.
        if u128::from_str_radix(stored, 16).is_ok_and(|stored| stored >= timestamp.0) {
            return;
        }
        *stored = format!("{:x}", timestamp.0);
        self.mark_peer_changed(now, key);
    }

    /// Stores the route of a path of a mobile router; `None` removes it. An address belongs to one path only,
    /// so any other path of the router with this address loses its route.
    pub(super) fn set_route(
        &mut self,
        now: Time,
        config_key: PublicKey,
        number: PathNumber,
        remote: Option<SocketAddr>,
    ) {
        let routes = self.content.routes.entry(config_key.to_string()).or_default();
        let before = routes.clone();
        routes.retain(|known, route| *known != number.get() && Some(*route) != remote);
        routes.extend(remote.map(|remote| (number.get(), remote)));
        if *routes != before {
            self.mark_peer_changed(now, config_key);
        }
    }

    /// Removes the routes of a mobile router.
    pub(super) fn clear_routes(&mut self, now: Time, config_key: PublicKey) {
        if self.content.routes.remove(&config_key.to_string()).is_some_and(|routes| !routes.is_empty()) {
            self.mark_peer_changed(now, config_key);
        }
    }

    fn mark_peer_changed(&mut self, now: Time, key: PublicKey) {
        self.changed_at.get_or_insert(now);
        self.mark_peer_record(key);
    }

    fn mark_peer_record(&mut self, key: PublicKey) {
        if let StateMedium::Store(changed) = &mut self.storage_medium {
            changed.insert(RecordKey::Session(ConfigKey(*key.octets())));
        }
    }

    fn mark_own_record(&mut self) {
        if let StateMedium::Store(changed) = &mut self.storage_medium {
            changed.insert(RecordKey::Sessions);
        }
    }

    /// Returns the changed records for the store of a fleet.
    pub(super) fn take_changes(&mut self) -> Vec<RecordChange> {
        let StateMedium::Store(changed) = &mut self.storage_medium else { return Vec::new() };
        let changed = std::mem::take(changed);
        changed.into_iter().filter_map(|key| Some((key, Some(self.record(&key)?)))).collect()
    }

    /// Returns the text of a record.
    fn record(&self, key: &RecordKey) -> Option<String> {
        let content = &self.content;
        let text = match key {
            RecordKey::Session(name) => {
                let name = PublicKey::from(name.0).to_string();
                let adopted = content.adopted.iter().find(|(_, routers)| routers.contains(&name));
                serde_json::to_string(&RemoteRecord {
                    version: RECORD_VERSION,
                    accepted: content.accepted.get(&name).cloned().unwrap_or_default(),
                    routes: content.routes.get(&name).cloned().unwrap_or_default(),
                    keys: content.keys.get(&name).cloned().unwrap_or_default(),
                    adopted: adopted.map(|(next, _)| next.clone()),
                })
            }
            _ => serde_json::to_string(&OwnRecord {
                version: RECORD_VERSION,
                newest: content.newest,
                public_keys: content.public_keys.clone(),
            }),
        };
        text.map_err(|error| tracing::error!("bug: the record {key} cannot be encoded: {error}")).ok()
    }

    /// Writes the changes that have waited for long enough into the file.
    pub(super) fn store_changes(&mut self, now: Time) {
        if !self.is_shared()
            && self.changed_at.is_some_and(|changed| now.saturating_since(changed) >= WRITE_INTERVAL)
        {
            self.write_file();
        }
    }

    /// Writes the file. Returns whether the disk has it.
    pub(super) fn write_file(&mut self) -> bool {
        self.changed_at = None;
        let StateMedium::File(path) = &self.storage_medium else { return false };
        let octets = serde_json::to_vec(&self.content).map_err(std::io::Error::from);
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

#[cfg(test)]
mod tests {
    use carnet_wireguard::PrivateKey;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::scratch::ScratchFolder;

    const NOW: Time = Time::from_secs(1);
    const AGENT_KEY: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";
    const NEXT_KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    fn key(seed: u8) -> PublicKey {
        PrivateKey::from_random([seed; 32]).public_key()
    }

    fn path_number(number: u8) -> PathNumber {
        PathNumber::new(number).expect("in range")
    }

    fn empty_shared_state() -> StoredState {
        StoredState::of_records(&[]).expect("no records")
    }

    fn records(state: &mut StoredState) -> Vec<(RecordKey, String)> {
        state.take_changes().into_iter().map(|(key, text)| (key, text.expect("a record"))).collect()
    }

    fn refusal_of_record(record: &str) -> String {
        let records = [(RecordKey::Session(ConfigKey(*key(1).octets())), record.to_owned())];
        format!("{:#}", StoredState::of_records(&records).expect_err("refused"))
    }

    /// The records have version 1, as the first program with such records wrote them. One record has an
    /// unknown field.
    #[test]
    fn records_of_earlier_versions_are_read() {
        let own = format!(r#"{{"version":1,"newest":1795737600,"public_keys":["{AGENT_KEY}"]}}"#);
        let remote = format!(
            r#"{{"version":1,"accepted":{{"1":"4000000069fb7b40094341"}},"keys":["{NEXT_KEY}"],"#
        ) + &format!(
            r#""routes":{{"1":"[2001:db8::5]:4191","2":"192.0.2.1:4191"}},"adopted":"{AGENT_KEY}","more":7}}"#
        );
        let records = [
            (RecordKey::Sessions, own),
            (RecordKey::Session(ConfigKey(*key(1).octets())), remote),
            (RecordKey::Session(ConfigKey(*key(2).octets())), r#"{"version":1}"#.to_owned()),
        ];
        let state = StoredState::of_records(&records).expect("good records");
        assert_eq!(state.newest_timestamp(), Some(Duration::from_secs(1_795_737_600)));
        assert_eq!(
            state.accepted_timestamps(key(1)),
            [(path_number(1), HandshakeTimestamp(0x40_0000_0069_fb7b_4009_4341))]
        );
        let routes = ["[2001:db8::5]:4191", "192.0.2.1:4191"].map(|route| route.parse().expect("a route"));
        assert_eq!(state.routes(key(1)), [(path_number(1), routes[0]), (path_number(2), routes[1])]);
        assert_eq!(state.valid_keys(key(1))[0].to_string(), NEXT_KEY);
        let next = AGENT_KEY.parse().expect("a key");
        assert_eq!(state.adopters_of(next), [key(1)]);
        assert_eq!((state.routes(key(2)), state.valid_keys(key(2))), (Vec::new(), vec![key(2)]));
    }

    #[test]
    fn file_of_an_earlier_version_is_read() {
        let scratch = ScratchFolder::new();
        let text = r#"{"newest":7,"accepted":{},"keys":{},"adopted":{}}"#;
        std::fs::write(scratch.path().join("bus.sessions"), text).expect("a file");
        let mut state = StoredState::read_state_file(Some(scratch.path()), "bus");
        assert_eq!(state.newest_timestamp(), Some(Duration::from_secs(7)));
        let route = "[2001:db8::5]:4191".parse().expect("a route");
        state.set_route(NOW, key(1), path_number(3), Some(route));
        assert!(state.write_file());
        let state = StoredState::read_state_file(Some(scratch.path()), "bus");
        assert_eq!(state.routes(key(1)), [(path_number(3), route)]);
    }

    #[test]
    fn record_of_another_version_is_refused() {
        assert!(refusal_of_record(r#"{"version":2}"#).contains("found version 2, expected 1"));
        for record in ["", "{}", r#"{"version":1,"routes":{"1":"here"}}"#, r#"{"version":256}"#] {
            assert!(refusal_of_record(record).contains("cannot use the record session/"), "{record}");
        }
    }

    /// A restarted router may give the same address another path number.
    #[test]
    fn address_of_a_router_belongs_to_one_path() {
        let mut state = empty_shared_state();
        let routes =
            ["[2001:db8::5]:4191", "[2001:db8::6]:4191"].map(|route| route.parse().expect("a route"));
        state.set_route(NOW, key(1), path_number(1), Some(routes[0]));
        state.set_route(NOW, key(1), path_number(2), Some(routes[1]));
        state.set_route(NOW, key(1), path_number(3), Some(routes[0]));
        state.set_route(NOW, key(2), path_number(1), Some(routes[0]));
        assert_eq!(state.routes(key(1)), [(path_number(2), routes[1]), (path_number(3), routes[0])]);
        state.set_route(NOW, key(1), path_number(2), None);
        state.take_changes();
        state.set_route(NOW, key(1), path_number(3), Some(routes[0]));
        assert_eq!(state.take_changes(), []);
        state.clear_routes(NOW, key(1));
        assert_eq!((state.routes(key(1)), state.routes(key(2)).len()), (Vec::new(), 1));
        assert_eq!(state.take_changes().len(), 1);
    }

    /// The members compare their keys with those that mobile routers use.
    #[test]
    fn own_key_is_stored_when_a_router_has_used_it() {
        let mut state = empty_shared_state();
        let stored = |state: &mut StoredState| {
            let text = records(state).pop().map(|(_, text)| text)?;
            Some(serde_json::from_str::<OwnRecord>(&text).expect("a record").public_keys)
        };
        let texts = |keys: &[PublicKey]| Some(keys.iter().map(PublicKey::to_string).collect::<Vec<_>>());
        let (old, next) = (key(1), key(2));
        state.record_used_own_key(NOW, old, &[old]);
        assert_eq!(stored(&mut state), texts(&[old]));
        state.record_used_own_key(NOW, old, &[next, old]);
        assert_eq!(stored(&mut state), None);
        state.record_used_own_key(NOW, next, &[next, old]);
        assert_eq!(stored(&mut state), texts(&[next, old]));
        state.record_used_own_key(NOW, next, &[next]);
        assert_eq!(stored(&mut state), texts(&[next]));
    }

    proptest! {
    /// The next leader reads the state that a leader has stored.
    #[test]
    fn records_carry_the_whole_state(
    newest in any::<u32>(),
    timestamps in vec((0..8u8, 0..=PathNumber::MAX_NUMBER, any::<u128>()), 0..30),
    routes in vec((0..8u8, 0..=PathNumber::MAX_NUMBER, any::<(std::net::IpAddr, u16)>()), 0..30),
    next in btree_map(0..8u8, 10..20u8, 0..5),
    adopted in btree_map(0..8u8, Just(()), 0..8),
    ) {
            let mut state = empty_shared_state();
    state.store_newest(Duration::from_secs(newest.into()));
    for (seed, path, timestamp) in &timestamps {
                let timestamp = HandshakeTimestamp(*timestamp);
                state.record_accepted_timestamp(NOW, key(*seed), path_number(*path), timestamp);
    }
    for (seed, path, route) in &routes {
                state.set_route(NOW, key(*seed), path_number(*path), Some((*route).into()));
    }
    for (seed, next) in &next {
    state.store_valid_keys(key(*seed), &[key(*next), key(*seed)]);
    }
    for seed in adopted.keys() {
                state.record_adopter(NOW, key(99), key(*seed));
    }
            state.record_used_own_key(NOW, key(99), &[key(99)]);
    let first = records(&mut state);
    let again = StoredState::of_records(&first).expect("good records");
    prop_assert_eq!(again.newest_timestamp(), state.newest_timestamp());
    prop_assert_eq!(&again.content.public_keys, &state.content.public_keys);
    let mut found = again.adopters_of(key(99));
    found.sort();
    let mut wanted: Vec<PublicKey> = adopted.keys().map(|seed| key(*seed)).collect();
    wanted.sort();
    prop_assert_eq!(found, wanted);
    for seed in 0..8 {
    prop_assert_eq!(again.accepted_timestamps(key(seed)), state.accepted_timestamps(key(seed)));
    prop_assert_eq!(again.routes(key(seed)), state.routes(key(seed)));
    prop_assert_eq!(again.valid_keys(key(seed)), state.valid_keys(key(seed)));
    }
    // Nothing is left to store.
    prop_assert_eq!(state.take_changes(), []);
    }

    #[test]
    fn random_text_is_no_record_and_causes_no_panic(text in ".{0,200}") {
    let _ = StoredState::of_records(&[(RecordKey::Sessions, text.clone())]);
    let _ = StoredState::of_records(&[(RecordKey::Session(ConfigKey([7; 32])), text)]);
    }
    }
}
