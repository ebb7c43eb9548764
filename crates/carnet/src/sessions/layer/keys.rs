//! Change of the key of either end without a pause (`docs/tunnel.md`, "Change a key").
//!
//! An end with a next key announces the public key inside the sessions of its present key. The other end
//! stores the announced key, and only then sends a receipt. From then on it accepts both keys. A mobile
//! router opens sessions with the newest keys that it has, and its traffic follows. Each step may be
//! repeated: an end that was killed begins again with the announcement.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_api::config::PrivateKey as ConfigKey;
use carnet_api::model::Keys;
use carnet_base::Time;
use carnet_wireguard::{
    DatagramRoute, KeyPairId, PathNumber, PeerId, PrivateKey, PublicKey, RemotePeer, SessionPath,
};

use super::super::state::StorageResult;
use super::fleet::NextKeys;
use super::{SIGNALLING_SILENCE, Sessions};

/// First octet of a message about keys: four bits for its kind, and the version.
pub(super) const KEY_MESSAGE_FIRST_OCTET: u8 = 0x21;
/// Type of an announcement, in the second octet of the message. `RECEIPT_TYPE` is the type of a receipt.
const ANNOUNCEMENT_TYPE: u8 = 1;
const RECEIPT_TYPE: u8 = 2;
/// Length of a message about keys, in octets: first octet, type, two zeros, and the key.
const KEY_MESSAGE_LENGTH: usize = 4 + 32;
/// Time for which sessions of an old key stay after the new key is in use. It is the lifetime of a session.
const OLD_KEY_LIFETIME: Duration = Duration::from_secs(180);
/// Interval between two announcements to the same remote end.
const ANNOUNCEMENT_INTERVAL: Duration = SIGNALLING_SILENCE;
/// Maximum number of announcements in one turn. `ANNOUNCEMENT_TURN_INTERVAL` is the time between two turns.
const MAX_ANNOUNCEMENTS_PER_TURN: usize = 100;
const ANNOUNCEMENT_TURN_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time between two new keys of a remote end that this station accepts.
const MIN_KEY_CHANGE_INTERVAL: Duration = Duration::from_secs(10);

/// A remote end that has to learn the next key: a mobile router, or a home agent by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct RemoteEnd {
    peer_id: PeerId,
    home_agent: Option<Ipv6Addr>,
}

/// State of the change of this station's key, and of the changes of remote ends' keys.
#[derive(Debug, Default)]
pub(super) struct KeyExchange {
    /// Remote ends that have used the next key of this station.
    ends_on_next_key: BTreeSet<RemoteEnd>,
    /// Remote ends that have stored the next key of this station.
    ends_with_receipt: HashSet<RemoteEnd>,
    /// Time of the last announcement to a remote end.
    announced_at: HashMap<RemoteEnd, Time>,
    next_turn_at: Time,
    /// Time at which the present key of this station becomes invalid; `None` as long as the key files still
    /// have this key.
    present_key_ends_at: Option<Time>,
    /// Remote ends that have used the next key of their peer. Several home agents may be one peer, with one
    /// key.
    confirmed_ends: HashSet<RemoteEnd>,
    /// Time at which the old key of a peer ends.
    old_key_ends_at: BTreeMap<PeerId, Time>,
    /// Time at which a peer's key was stored last.
    key_stored_at: HashMap<PeerId, Time>,
}

fn build_key_message(kind: u8, key: PublicKey) -> [u8; KEY_MESSAGE_LENGTH] {
    let mut octets = [0; KEY_MESSAGE_LENGTH];
    octets[..2].copy_from_slice(&[KEY_MESSAGE_FIRST_OCTET, kind]);
    octets[4..].copy_from_slice(key.octets());
    octets
}

/// Returns type and key of a message about keys; `None` if it is malformed. Only zeros may follow the key, as
/// padding.
fn parse_key_message(payload: &[u8]) -> Option<(u8, PublicKey)> {
    let (octets, padding) = payload.split_first_chunk::<KEY_MESSAGE_LENGTH>()?;
    let (&[kind, typ, 0, 0], key) = octets.split_first_chunk::<4>()? else { return None };
    let key: [u8; 32] = key.try_into().ok()?;
    let is_sound =
        kind == KEY_MESSAGE_FIRST_OCTET && key != [0; 32] && padding.iter().all(|octet| *octet == 0);
    is_sound.then_some((typ, PublicKey::from(key)))
}

/// Returns the private keys of this station in a config, the newest one first.
fn private_keys_of(key: &ConfigKey) -> Vec<PrivateKey> {
    key.keys_newest_first().map(|key| PrivateKey::from_random(key.octets())).collect()
}

impl Sessions {
    /// Sets the private keys of this station. If the present key is no longer among them, its sessions stay
    /// for `OLD_KEY_LIFETIME`.
    pub fn set_private_keys(&mut self, now: Time, key: &ConfigKey) {
        let keys = private_keys_of(key);
        let (known, new) = (self.session_engine.public_keys(), public_keys_of(&keys));
        if known.len() == 2 && new == known[..1] {
            self.key_exchange.present_key_ends_at.get_or_insert(now + OLD_KEY_LIFETIME);
            return;
        }
        if known == new && self.key_exchange.present_key_ends_at.is_none() {
            return;
        }
        self.session_engine.set_private_keys(now, keys);
        let adopted = match new[..] {
            [next, _] => self.state.adopters_of(next),
            _ => Vec::new(),
        };
        let peer = |base: &PublicKey| {
            self.id_by_key.get(base).map(|peer| RemoteEnd { peer_id: *peer, home_agent: None })
        };
        let ends_on_next_key = adopted.iter().filter_map(peer).collect();
        let KeyExchange { confirmed_ends, old_key_ends_at, key_stored_at, .. } =
            std::mem::take(&mut self.key_exchange);
        self.key_exchange = KeyExchange {
            ends_on_next_key,
            confirmed_ends,
            old_key_ends_at,
            key_stored_at,
            ..KeyExchange::default()
        };
    }

    /// Returns whether the sessions already use one of these private keys.
    pub fn has_key_of(&self, key: Option<&ConfigKey>) -> bool {
        let known = self.session_engine.public_keys();
        key.is_some_and(|key| public_keys_of(&private_keys_of(key)).iter().any(|key| known.contains(key)))
    }

    /// Returns the newest public key of this station, by which the station names itself to other mobile
    /// routers; `None` without a key.
    pub fn newest_key(&self) -> Option<[u8; 32]> {
        self.session_engine.public_keys().first().map(|key| *key.octets())
    }

    /// Returns the next key of this station while the station announces it, otherwise `None`.
    fn next_key_to_announce(&self) -> Option<PublicKey> {
        self.session_engine.next_public_key().filter(|_| self.key_exchange.present_key_ends_at.is_none())
    }

    /// Returns the own public keys, and the remote ends that have not used the newest one.
    pub fn key_status(&self) -> Keys {
        let mut public_keys = self.session_engine.public_keys();
        if self.key_exchange.present_key_ends_at.is_some() {
            public_keys.truncate(1);
        }
        Keys {
            public_keys: public_keys.iter().map(PublicKey::to_string).collect(),
            missing: self.ends_without_next_key().into_iter().map(|end| self.remote_end_name(end)).collect(),
        }
    }

    fn remote_end_name(&self, end: RemoteEnd) -> String {
        match end.home_agent {
            Some(address) => format!("home agent {address}"),
            None => self.remote_peers.get(&end.peer_id).map(|remote| remote.name.clone()).unwrap_or_default(),
        }
    }

    fn all_remote_ends(&self) -> BTreeSet<RemoteEnd> {
        let nodes =
            self.peer_by_home_address.values().map(|peer| RemoteEnd { peer_id: *peer, home_agent: None });
        let agents = self.remote_home_agents.iter();
        let agents =
            agents.map(|agent| RemoteEnd { peer_id: agent.peer_id, home_agent: Some(agent.address) });
        nodes.chain(agents).collect()
    }

    fn ends_without_next_key(&self) -> Vec<RemoteEnd> {
        match self.next_key_to_announce() {
            Some(_) => {
                self.all_remote_ends().difference(&self.key_exchange.ends_on_next_key).copied().collect()
            }
            None => Vec::new(),
        }
    }

    /// Returns the remote end of a path, by the socket of its session.
    fn remote_end_of_path(&self, path: SessionPath, socket: u32) -> RemoteEnd {
        let slot = self.session_slots.iter().find(|slot| slot.socket == socket);
        RemoteEnd { peer_id: path.peer_id, home_agent: slot.map(|slot| slot.home_agent.address) }
    }

    /// Returns the established path on which packets of a remote end came last; `None` if no path to it is
    /// established.
    fn established_path_to(&self, end: RemoteEnd) -> Option<(SessionPath, DatagramRoute)> {
        if let Some(address) = end.home_agent {
            let slot = self
                .session_slots
                .iter()
                .filter(|slot| {
                    slot.home_agent.address == address && self.session_engine.is_established(slot.path)
                })
                .max_by_key(|slot| slot.last_packet_at)?;
            return Some((slot.path, DatagramRoute { socket: slot.socket, remote: slot.remote }));
        }
        let numbers = (0..=PathNumber::MAX_NUMBER).filter_map(PathNumber::new);
        let mut paths = numbers.map(|number| SessionPath { peer_id: end.peer_id, path_number: number });
        paths.find_map(|path| {
            let from = self.ends_by_path.get(&path)?.back()?;
            let known = self.paths_by_remote_end.get(from)?.iter().find(|(_, known, _)| *known == path)?;
            Some((path, known.2)).filter(|_| self.session_engine.is_established(path))
        })
    }

    /// Returns the time of the next [`Self::handle_due_key_work`]; `None` if no work about keys is due.
    pub(super) fn next_key_work_at(&self) -> Option<Time> {
        let turn = self
            .next_key_to_announce()
            .filter(|_| !self.ends_without_next_key().is_empty())
            .map(|_| self.key_exchange.next_turn_at);
        [
            turn,
            self.key_exchange.present_key_ends_at,
            self.key_exchange.old_key_ends_at.values().min().copied(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Announces the next key of this station, and removes old keys whose time is over.
    pub(super) fn handle_due_key_work(&mut self, now: Time) {
        if self.key_exchange.present_key_ends_at.is_some_and(|ends| ends <= now) {
            self.session_engine.drop_old_private_keys(now);
            self.key_exchange.present_key_ends_at = None;
        }
        let due =
            self.key_exchange.old_key_ends_at.iter().filter(|(_, at)| **at <= now).map(|(peer, _)| *peer);
        for peer in due.collect::<Vec<_>>() {
            self.key_exchange.old_key_ends_at.remove(&peer);
            self.end_old_key(now, peer);
        }
        let Some(next) = self.next_key_to_announce().filter(|_| self.key_exchange.next_turn_at <= now) else {
            return;
        };
        self.key_exchange.next_turn_at = now + ANNOUNCEMENT_TURN_INTERVAL;
        let mut sent = 0;
        for end in self.ends_without_next_key() {
            let last = self.key_exchange.announced_at.get(&end);
            let is_early = last.is_some_and(|last| now.saturating_since(*last) < ANNOUNCEMENT_INTERVAL);
            if sent >= MAX_ANNOUNCEMENTS_PER_TURN
                || is_early
                || self.key_exchange.ends_with_receipt.contains(&end)
            {
                continue;
            }
            if let Some((path, route)) = self.established_path_to(end) {
                sent += 1;
                self.key_exchange.announced_at.insert(end, now);
                self.encrypt_packet(now, path, route, 0, false, &build_key_message(ANNOUNCEMENT_TYPE, next));
            } else if let Some(address) = end.home_agent {
                self.open_for_announcement(now, address);
            }
        }
    }

    /// Opens a session to a home agent that the mobile router does not use otherwise, to announce the next
    /// key to it. The local address is that of the session with the latest packet.
    fn open_for_announcement(&mut self, now: Time, address: Ipv6Addr) {
        let agent = self.remote_home_agents.iter().find(|agent| agent.address == address).copied();
        let is_open = self.session_slots.iter().any(|slot| slot.home_agent.address == address);
        let local = self
            .session_slots
            .iter()
            .max_by_key(|slot| slot.last_packet_at)
            .map(|slot| (slot.local, slot.remote));
        let (Some(agent), Some((local, remote)), false) = (agent, local, is_open) else { return };
        let there = match (remote, agent.ipv4_address) {
            (std::net::SocketAddr::V6(_), _) => agent.address.into(),
            (std::net::SocketAddr::V4(_), Some(ipv4)) => {
                carnet_base::Endpoint::Udp(std::net::SocketAddrV4::new(ipv4, carnet_mobility::UDP_PORT))
            }
            _ => return,
        };
        self.slot_between(now, local, there);
    }

    /// Handles a message about keys that came out of a session.
    pub(super) fn handle_key_message(
        &mut self,
        now: Time,
        path: SessionPath,
        pair: KeyPairId,
        route: DatagramRoute,
    ) {
        let payload = self.payload.get(..self.payload_length).unwrap_or_default();
        match parse_key_message(payload) {
            Some((ANNOUNCEMENT_TYPE, key)) => {
                if self.store_announced_key(now, path, route, pair, key) {
                    self.encrypt_packet(now, path, route, 0, false, &build_key_message(RECEIPT_TYPE, key));
                }
            }
            Some((RECEIPT_TYPE, key)) if self.next_key_to_announce() == Some(key) => {
                let end = self.remote_end_of_path(path, route.socket);
                self.key_exchange.ends_with_receipt.insert(end);
            }
            _ => self.refused_packets += 1,
        }
    }

    /// Stores the next key that a peer has announced through a session of the key pair `pair`. Returns
    /// whether the key is stored. In a fleet it returns `false`, and [`Self::use_stored_keys`] sends the
    /// receipt when the store has the key.
    fn store_announced_key(
        &mut self,
        now: Time,
        path: SessionPath,
        route: DatagramRoute,
        pair: KeyPairId,
        key: PublicKey,
    ) -> bool {
        let id = path.peer_id;
        let (Some(remote), Some(pair)) = (self.remote_peers.get(&id), self.session_engine.key_pair(pair))
        else {
            return false;
        };
        let old = remote.remote_peer.public_keys.clone();
        if old.contains(&key) {
            return true;
        }
        if self.held_items.has_keys_of(id) {
            return false;
        }
        // Only the newest key in use may announce a next key. As long as no session has used the announced
        // key, the key in use may announce a different one.
        let is_in_use = self.key_exchange.old_key_ends_at.contains_key(&id);
        let is_entitled = old.first() == Some(&pair.remote) || old.last() == Some(&pair.remote) && !is_in_use;
        let is_early = self
            .key_exchange
            .key_stored_at
            .get(&id)
            .is_some_and(|at| now.saturating_since(*at) < MIN_KEY_CHANGE_INTERVAL);
        if !is_entitled || is_early {
            self.refused_packets += 1;
            return false;
        }
        self.key_exchange.key_stored_at.insert(id, now);
        let (config_key, name) = (remote.config_key, remote.name.clone());
        let new = vec![key, pair.remote];
        let taken = format!("cannot use the next public key {key} of the {name}: another end has it");
        if self.session_engine.peer_of(key).is_some() {
            self.log_messages.push_back(taken);
            return false;
        }
        if self.state.is_shared() {
            self.state.store_valid_keys(config_key, &new);
            self.held_items.hold_keys(NextKeys { peer: id, keys: new, path, route });
            return false;
        }
        if !self.set_peer_keys(now, id, &new) {
            self.log_messages.push_back(taken);
            return false;
        }
        if self.state.store_valid_keys(config_key, &new) == StorageResult::Never {
            self.set_peer_keys(now, id, &old);
            self.log_messages.push_back(format!(
                "cannot store the next public key of the {name}: expected a station.state_dir that can be \
                 written"
            ));
            return false;
        }
        self.begin_with_next_key(id, &name, key);
        true
    }

    fn begin_with_next_key(&mut self, id: PeerId, name: &str, key: PublicKey) {
        self.key_exchange.old_key_ends_at.remove(&id);
        self.key_exchange.confirmed_ends.retain(|end| end.peer_id != id);
        self.log_messages.push_back(format!("the {name} announced its next public key {key}"));
    }

    /// Accepts the next key of a peer once the store of the fleet has it, and sends the receipt.
    pub(super) fn use_stored_keys(&mut self, now: Time, next: &NextKeys) {
        let Some(name) = self.remote_peers.get(&next.peer).map(|remote| remote.name.clone()) else { return };
        let key = next.keys.first().copied().filter(|_| self.set_peer_keys(now, next.peer, &next.keys));
        if let Some(key) = key {
            self.begin_with_next_key(next.peer, &name, key);
            self.encrypt_packet(now, next.path, next.route, 0, false, &build_key_message(RECEIPT_TYPE, key));
        }
    }

    /// Replaces the public keys of a peer. Returns `false` if another peer has one of these keys.
    fn set_peer_keys(&mut self, now: Time, id: PeerId, keys: &[PublicKey]) -> bool {
        keys.iter().for_each(|key| self.release_key(*key));
        let Some(remote) = self.remote_peers.get_mut(&id) else { return false };
        let peer = RemotePeer { public_keys: keys.to_vec(), ..remote.remote_peer.clone() };
        let is_set = self.session_engine.set_peer(now, peer.clone());
        if is_set {
            remote.remote_peer = peer;
        }
        is_set
    }

    /// Notes which keys are in use when a session of the key pair `pair` is established.
    pub(super) fn record_keys_in_use(
        &mut self,
        now: Time,
        path: SessionPath,
        pair: KeyPairId,
        route: DatagramRoute,
    ) {
        let Some(pair) = self.session_engine.key_pair(pair) else { return };
        let end = self.remote_end_of_path(path, route.socket);
        if self.next_key_to_announce() == Some(pair.local) && self.key_exchange.ends_on_next_key.insert(end) {
            if let Some(remote) = self.remote_peers.get(&end.peer_id).filter(|_| end.home_agent.is_none()) {
                self.state.record_adopter(now, pair.local, remote.config_key);
            }
            if self.ends_without_next_key().is_empty() {
                self.log_messages
                    .push_back(format!("all remote ends use the next public key {}", pair.local));
            }
        }
        let Some(remote) = self.remote_peers.get(&path.peer_id) else { return };
        let [next, _] = remote.remote_peer.public_keys[..] else { return };
        if next != pair.remote {
            return;
        }
        self.key_exchange.confirmed_ends.insert(end);
        let agents = self.remote_home_agents.iter().filter(|agent| agent.peer_id == path.peer_id);
        let mut ends =
            agents.map(|agent| RemoteEnd { peer_id: agent.peer_id, home_agent: Some(agent.address) });
        if ends.all(|end| self.key_exchange.confirmed_ends.contains(&end)) {
            self.key_exchange.old_key_ends_at.entry(path.peer_id).or_insert(now + OLD_KEY_LIFETIME);
        }
    }

    /// Removes the old key of a peer, so that only its newest key is valid.
    fn end_old_key(&mut self, now: Time, id: PeerId) {
        let Some(remote) = self.remote_peers.get(&id) else { return };
        let (config_key, name) = (remote.config_key, remote.name.clone());
        let [next, _] = remote.remote_peer.public_keys[..] else { return };
        if self.state.store_valid_keys(config_key, &[next]) != StorageResult::Never {
            self.set_peer_keys(now, id, &[next]);
            self.key_exchange.confirmed_ends.retain(|end| end.peer_id != id);
            self.log_messages.push_back(format!(
                "the {name} has changed its public key to {next}; the config may name this key from now on"
            ));
        }
    }
}

fn public_keys_of(keys: &[PrivateKey]) -> Vec<PublicKey> {
    keys.iter().map(PrivateKey::public_key).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs::{self, Permissions};
    use std::net::Ipv6Addr;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path as FilePath, PathBuf};

    use carnet_api::config::{Config, next_key_file};
    use carnet_base::Endpoint;
    use carnet_mobility::SessionPeer;
    use carnet_nemo::forwarding::packet::PacketBuffer;
    use carnet_settings::HOME_AGENT_PEER;
    use carnet_wire::ipv6::Header;

    use super::super::super::{OutgoingDatagram, SessionArrival};
    use super::*;
    use crate::scratch::ScratchFolder;
    use crate::state::{RecordChange, RecordKey};

    const AGENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
    const CARE_OF_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x10, 0, 0, 0, 0, 5);

    /// A station of the test.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum TestEnd {
        Router,
        Agent,
    }

    /// Place of the ends' state. With `Store`, the home agent is a member of a fleet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum StatePlace {
        Nowhere,
        Directory,
        Store,
    }

    /// The store of a fleet. A commit that begins in one step is stored in the next step.
    #[derive(Debug, Default)]
    struct TestStore {
        records: BTreeMap<RecordKey, String>,
        waiting_changes: Vec<RecordChange>,
        commit_in_progress: Option<Vec<RecordChange>>,
        last_commit: u64,
    }

    /// Router and home agent with a network between them, in virtual time. Their files are real.
    struct TestStations {
        state_place: StatePlace,
        store: TestStore,
        scratch: ScratchFolder,
        now: Time,
        router: Sessions,
        agent: Sessions,
        in_flight: VecDeque<(TestEnd, Vec<u8>)>,
        delivered_datagrams: usize,
        /// The end to kill, and the number of delivered datagrams before it is killed; `None` if no end is
        /// killed.
        kill_before_datagram: Option<(TestEnd, usize)>,
        /// Number of packets that came out of the sessions.
        arrived_packets: usize,
    }

    fn write_key_file(file: &FilePath, seed: u8) -> PublicKey {
        let key = PrivateKey::from_random([seed; 32]);
        fs::write(file, key.to_text().as_bytes()).expect("a key");
        fs::set_permissions(file, Permissions::from_mode(0o600)).expect("a mode");
        key.public_key()
    }

    fn ipv6_packet(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: 0,
            next_header: 59,
            hop_limit: 64,
            source,
            destination,
        };
        header.emit().to_vec()
    }

    fn start_sessions(folder: &FilePath, end: TestEnd, now: Time, store: Option<&TestStore>) -> Sessions {
        let file = folder.join(format!("{end:?}.toml"));
        let config = Config::load_file(&file).expect("a config");
        let records = store.map(|store| store.records.clone().into_iter().collect::<Vec<_>>());
        Sessions::new(&config, now, records.as_deref()).expect("good records").expect("keys")
    }

    impl TestStations {
        fn new(state_place: StatePlace) -> TestStations {
            let scratch = ScratchFolder::new();
            let folder = scratch.path().to_owned();
            let router_key = write_key_file(&folder.join("Router.key"), 1);
            let agent_key = write_key_file(&folder.join("Agent.key"), 2);
            let station = |end: TestEnd| {
                let state = match state_place {
                    StatePlace::Nowhere => String::new(),
                    _ => format!("state_dir = '{}'\n", folder.display()),
                };
                format!("[station]\nname = '{end:?}'\n{state}private_key_file = '{end:?}.key'\n")
            };
            let agent = format!(
                "{}[home_agent]\naddress = '{AGENT_ADDRESS}'\nhome_prefix = '2001:db8:1::/64'\n\
                 [[home_agent.mobile_router]]\nhome_address = '2001:db8:1::5'\n\
                 auth = {{ public_key = '{router_key}' }}\n",
                station(TestEnd::Agent)
            );
            let router = format!(
                "{}[mobile_router]\nhome_address = '2001:db8:1::5'\nhome_prefix = '2001:db8:1::/64'\n\
                 home_agent = '{AGENT_ADDRESS}'\nhome_agent_key = '{agent_key}'\n\
                 uplink = [{{ interface = 'u' }}]\n",
                station(TestEnd::Router)
            );
            fs::write(folder.join("Agent.toml"), agent).expect("a config");
            fs::write(folder.join("Router.toml"), router).expect("a config");
            let now = Time::from_secs(100);
            let store = TestStore::default();
            let of_agent = (state_place == StatePlace::Store).then_some(&store);
            let mut stations = TestStations {
                state_place,
                router: start_sessions(&folder, TestEnd::Router, now, None),
                agent: start_sessions(&folder, TestEnd::Agent, now, of_agent),
                store,
                scratch,
                now,
                in_flight: VecDeque::new(),
                delivered_datagrams: 0,
                kill_before_datagram: None,
                arrived_packets: 0,
            };
            stations.prepare_router_session();
            stations.run_for(Duration::from_secs(3));
            stations
        }

        fn key_file(&self, end: TestEnd) -> PathBuf {
            self.scratch.path().join(format!("{end:?}.key"))
        }

        fn sessions_of(&mut self, end: TestEnd) -> &mut Sessions {
            match end {
                TestEnd::Router => &mut self.router,
                TestEnd::Agent => &mut self.agent,
            }
        }

        /// Begins the router's session, as the station does at its start.
        fn prepare_router_session(&mut self) {
            self.router
                .prepare_session(self.now, (Endpoint::Ipv6(CARE_OF_ADDRESS), Endpoint::Ipv6(AGENT_ADDRESS)));
        }

        /// Reads the key files again, as `POST /v1/keys/read` does.
        fn read_key_files(&mut self, end: TestEnd) {
            let key = ConfigKey::read(self.key_file(end)).expect("keys");
            let now = self.now;
            self.sessions_of(end).set_private_keys(now, &key);
        }

        /// Kills a program, and starts it again from its files.
        fn restart(&mut self, end: TestEnd) {
            let is_member = self.state_place == StatePlace::Store && end == TestEnd::Agent;
            (self.store.waiting_changes, self.store.commit_in_progress) = (Vec::new(), None);
            self.store.last_commit = 0;
            let store = is_member.then_some(&self.store);
            *self.sessions_of(end) = start_sessions(self.scratch.path(), end, self.now, store);
            self.prepare_router_session();
        }

        /// Finishes the commit of the store, and begins the next one.
        fn run_commit(&mut self) {
            if let Some(changes) = self.store.commit_in_progress.take() {
                for (key, record) in changes {
                    self.store.records.insert(key, record.expect("no record is removed"));
                }
                self.store.last_commit += 1;
                self.agent.handle_written(self.now, self.store.last_commit);
            }
            let waiting_changes = std::mem::take(&mut self.store.waiting_changes);
            self.store.commit_in_progress = (!waiting_changes.is_empty()).then_some(waiting_changes);
        }

        fn gather_changes(&mut self) {
            let changes = self.agent.take_changes();
            let number = self.store.last_commit + 1 + u64::from(self.store.commit_in_progress.is_some());
            self.agent.hold_until(self.now, (!changes.is_empty()).then_some(number));
            self.store.waiting_changes.extend(changes);
        }

        fn collect_datagrams(&mut self) {
            for end in [TestEnd::Router, TestEnd::Agent] {
                let to = if end == TestEnd::Router { TestEnd::Agent } else { TestEnd::Router };
                let now = self.now;
                let sessions = self.sessions_of(end);
                sessions.handle_due_work(now);
                if end == TestEnd::Agent && self.state_place == StatePlace::Store {
                    self.gather_changes();
                }
                let sessions = self.sessions_of(end);
                let mut sent = Vec::new();
                while let Some(datagram) = sessions.poll_datagram() {
                    assert!(matches!(datagram, OutgoingDatagram::Ipv6 { .. }));
                    sent.push((to, sessions.outgoing_packet_mut().as_slice().to_vec()));
                }
                self.in_flight.extend(sent);
            }
        }

        /// Advances the time, and delivers all datagrams. The router sends signalling once a second, and the
        /// home agent answers.
        fn run_for(&mut self, time: Duration) {
            let until = self.now + time;
            while self.now < until {
                self.now += Duration::from_millis(50);
                if self.now.as_nanos().is_multiple_of(1_000_000_000) {
                    self.router.send_outer_packet(self.now, &ipv6_packet(CARE_OF_ADDRESS, AGENT_ADDRESS));
                }
                self.run_commit();
                self.collect_datagrams();
                while let Some((end, octets)) = self.in_flight.pop_front() {
                    if let Some((victim, at)) = self.kill_before_datagram
                        && at == self.delivered_datagrams
                    {
                        self.kill_before_datagram = None;
                        self.restart(victim);
                    }
                    self.delivered_datagrams += 1;
                    let mut buffer = PacketBuffer::new();
                    buffer.copy_from(&octets);
                    let now = self.now;
                    let arrival = self.sessions_of(end).receive_ipv6_packet(now, &mut buffer);
                    let header = Header::parse(buffer.as_slice()).expect("a header");
                    match arrival {
                        SessionArrival::Packet(_) if header.destination == AGENT_ADDRESS => {
                            let ends = (Endpoint::Ipv6(AGENT_ADDRESS), Endpoint::Ipv6(CARE_OF_ADDRESS));
                            self.agent.send_inner_packet(
                                now,
                                SessionPeer(0),
                                ends,
                                false,
                                &ipv6_packet(AGENT_ADDRESS, CARE_OF_ADDRESS),
                            );
                        }
                        SessionArrival::Packet(_) if header.source != AGENT_ADDRESS => {
                            self.arrived_packets += 1
                        }
                        _ => {}
                    }
                    self.collect_datagrams();
                }
            }
        }

        /// Sends a packet in each direction, and returns whether both arrive.
        fn pass_packets_both_ways(&mut self) -> bool {
            let (host, peer) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
            let (here, there) = (Endpoint::Ipv6(CARE_OF_ADDRESS), Endpoint::Ipv6(AGENT_ADDRESS));
            let before = self.arrived_packets;
            self.router.send_inner_packet(
                self.now,
                HOME_AGENT_PEER,
                (here, there),
                false,
                &ipv6_packet(host, peer),
            );
            self.run_for(Duration::from_millis(50));
            self.agent.send_inner_packet(
                self.now,
                SessionPeer(0),
                (there, here),
                false,
                &ipv6_packet(peer, host),
            );
            self.run_for(Duration::from_millis(50));
            self.arrived_packets == before + 2
        }

        /// Changes the key of an end, as `carnet key rotate` does. Returns the new public key.
        fn rotate_key(&mut self, end: TestEnd, seed: u8) -> PublicKey {
            let file = self.key_file(end);
            let next = write_key_file(&next_key_file(&file), seed);
            self.read_key_files(end);
            for _ in 0..600 {
                self.run_for(Duration::from_millis(100));
                if self.sessions_of(end).ends_without_next_key().is_empty() {
                    break;
                }
            }
            assert_eq!(self.sessions_of(end).key_status().missing, Vec::<String>::new());
            fs::rename(next_key_file(&file), &file).expect("both files");
            self.read_key_files(end);
            next
        }

        /// Returns the keys of `end` that the other end accepts.
        fn accepted_keys(&mut self, end: TestEnd) -> Vec<PublicKey> {
            let other = if end == TestEnd::Router { TestEnd::Agent } else { TestEnd::Router };
            let remotes = &self.sessions_of(other).remote_peers;
            remotes.values().flat_map(|remote| remote.remote_peer.public_keys.clone()).collect()
        }
    }

    fn ends_and_places() -> Vec<(TestEnd, StatePlace)> {
        let places = [StatePlace::Directory, StatePlace::Store];
        places.into_iter().flat_map(|place| [(TestEnd::Router, place), (TestEnd::Agent, place)]).collect()
    }

    #[test]
    fn key_rotation_of_either_end_retires_the_old_key() {
        for (end, place) in ends_and_places() {
            let mut stations = TestStations::new(place);
            assert!(stations.pass_packets_both_ways());
            let old = stations.accepted_keys(end)[0];
            let next = stations.rotate_key(end, 7);
            assert_eq!(stations.accepted_keys(end), [next, old]);
            assert_eq!(stations.sessions_of(end).key_status().public_keys, [next.to_string()]);
            for _ in 0..200 {
                assert!(stations.pass_packets_both_ways());
                stations.run_for(Duration::from_secs(1));
            }
            assert_eq!(stations.accepted_keys(end), [next]);
            assert_eq!(stations.sessions_of(end).session_engine.public_keys(), [next]);
            assert!(stations.pass_packets_both_ways());
            // Both ends start with the keys of their files.
            stations.restart(TestEnd::Agent);
            stations.restart(TestEnd::Router);
            stations.run_for(Duration::from_secs(5));
            assert!(stations.pass_packets_both_ways());
            assert_eq!(stations.accepted_keys(end), [next]);
            // Change the key once more.
            let third = stations.rotate_key(end, 8);
            assert_eq!(stations.accepted_keys(end), [third, next]);
        }
    }

    /// Each run kills one of the ends before one of the datagrams of a key change.
    #[test]
    fn key_rotation_continues_after_either_end_is_killed() {
        /// Changes the key of an end, and returns the number of datagrams of the change.
        fn change_key_with_kill(
            place: StatePlace,
            end: TestEnd,
            victim: Option<TestEnd>,
            at: usize,
        ) -> usize {
            let mut stations = TestStations::new(place);
            let before = stations.delivered_datagrams;
            stations.kill_before_datagram = victim.map(|victim| (victim, before + at));
            let next = stations.rotate_key(end, 7);
            stations.run_for(Duration::from_secs(2));
            let steps = stations.delivered_datagrams - before;
            stations.run_for(Duration::from_secs(20));
            assert!(
                stations.pass_packets_both_ways(),
                "{end:?} changes its key, {victim:?} is killed at {at}, {place:?}"
            );
            assert_eq!(stations.accepted_keys(end)[0], next);
            steps
        }
        for (end, place) in ends_and_places() {
            let steps = change_key_with_kill(place, end, None, 0);
            assert!((8..100).contains(&steps), "{steps}");
            for victim in [TestEnd::Router, TestEnd::Agent] {
                for at in 0..steps {
                    change_key_with_kill(place, end, Some(victim), at);
                }
            }
        }
    }

    #[test]
    fn peer_without_state_directory_accepts_no_next_key() {
        let mut stations = TestStations::new(StatePlace::Nowhere);
        let old = stations.accepted_keys(TestEnd::Router);
        write_key_file(&next_key_file(&stations.key_file(TestEnd::Router)), 7);
        stations.read_key_files(TestEnd::Router);
        stations.run_for(Duration::from_secs(10));
        assert_eq!(stations.accepted_keys(TestEnd::Router), old);
        assert_eq!(stations.router.key_status().missing, [format!("home agent {AGENT_ADDRESS}")]);
        assert!(stations.pass_packets_both_ways());
        let told = std::iter::from_fn(|| stations.agent.poll_message(|_| true))
            .any(|text| text.contains("cannot store"));
        assert!(told);
    }

    /// The home agent accepts a key only from the session of the newest key in use.
    #[test]
    fn home_agent_refuses_key_announced_outside_session_of_present_key() {
        let mut stations = TestStations::new(StatePlace::Directory);
        let old = stations.accepted_keys(TestEnd::Router)[0];
        let next = stations.rotate_key(TestEnd::Router, 7);
        let id = *stations.agent.remote_peers.keys().next().expect("a router");
        let pair = |stations: &TestStations, remote: PublicKey| {
            let pairs = (0..100)
                .filter_map(|pair| Some((pair, stations.agent.session_engine.key_pair(KeyPairId(pair))?)));
            let found = pairs.into_iter().find(|(_, keys)| keys.remote == remote).expect("a pair");
            KeyPairId(found.0)
        };
        let third = PrivateKey::from_random([9; 32]).public_key();
        stations.now += MIN_KEY_CHANGE_INTERVAL;
        let (now, of_old, of_next) = (stations.now, pair(&stations, old), pair(&stations, next));
        let path = SessionPath { peer_id: id, path_number: PathNumber::new(1).expect("a number") };
        let route = stations.agent.session_engine.route(path).expect("a route");
        assert!(!stations.agent.store_announced_key(now, path, route, of_old, third));
        assert_eq!(stations.accepted_keys(TestEnd::Router), [next, old]);
        assert!(stations.agent.store_announced_key(now, path, route, of_next, third));
        assert_eq!(stations.accepted_keys(TestEnd::Router), [third, next]);
        // The third key was never used. So the key in use may replace it, but not within
        // `MIN_KEY_CHANGE_INTERVAL`.
        let fourth = PrivateKey::from_random([10; 32]).public_key();
        assert!(!stations.agent.store_announced_key(now, path, route, of_next, fourth));
        assert!(stations.agent.store_announced_key(
            now + MIN_KEY_CHANGE_INTERVAL,
            path,
            route,
            of_next,
            fourth
        ));
        assert_eq!(stations.accepted_keys(TestEnd::Router), [fourth, next]);
    }

    #[test]
    fn key_message_parser_ignores_zero_padding_and_refuses_other_octets() {
        let key = PublicKey::from([7; 32]);
        let mut padded = build_key_message(ANNOUNCEMENT_TYPE, key).to_vec();
        padded.resize(48, 0);
        assert_eq!(parse_key_message(&padded), Some((ANNOUNCEMENT_TYPE, key)));
        for (at, octet) in [(0, 0x22), (2, 1), (3, 1), (47, 1)] {
            let mut wrong = padded.clone();
            wrong[at] = octet;
            assert_eq!(parse_key_message(&wrong), None, "octet {at}");
        }
        assert_eq!(parse_key_message(&padded[..35]), None);
        assert_eq!(parse_key_message(&build_key_message(RECEIPT_TYPE, PublicKey::from([0; 32]))), None);
    }
}
