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
    DatagramRoute, PairId, PathNumber, PeerId, PrivateKey, PublicKey, RemotePeer, SessionPath,
};

use super::{SILENCE, Sessions};

/// First octet of a message about keys: four bits for its kind, and the version.
pub(super) const KEY_MESSAGE: u8 = 0x21;
/// Types of the message, in its second octet.
const ANNOUNCEMENT: u8 = 1;
const RECEIPT: u8 = 2;
/// Octets of a message: kind, type, two zeros, and the key.
const MESSAGE: usize = 4 + 32;
/// Time for which sessions of an old key stay after the new one is in use: that of a session.
const OVERLAP: Duration = Duration::from_secs(180);
/// Time between two announcements to a remote end.
const REPEAT: Duration = SILENCE;
/// Announcements that one turn sends, and the time between two turns.
const BATCH: usize = 100;
const TURN: Duration = Duration::from_millis(100);
/// Least time between two keys of a remote end that this end stores.
const PAUSE: Duration = Duration::from_secs(10);

/// A remote end that has to learn the next key: a mobile router, or a home agent by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct RemoteEnd {
    peer: PeerId,
    home_agent: Option<Ipv6Addr>,
}

/// State of a change of keys.
#[derive(Debug, Default)]
pub(super) struct KeyExchange {
    /// Remote ends that have used the next key of this end.
    adopted: BTreeSet<RemoteEnd>,
    /// Remote ends that have stored the next key of this end.
    receipts: HashSet<RemoteEnd>,
    /// Time of the last announcement to a remote end.
    announced: HashMap<RemoteEnd, Time>,
    turn: Time,
    /// End of the present key of this end, once the next one is the only one in the files.
    ends: Option<Time>,
    /// Home agents that have used the next key of a peer.
    confirmed: HashSet<RemoteEnd>,
    /// End of the old key of a peer.
    retires: BTreeMap<PeerId, Time>,
    /// Time at which a peer's key was stored last.
    stored: HashMap<PeerId, Time>,
    is_member: bool,
}

impl KeyExchange {
    pub(super) fn of(is_member: bool) -> KeyExchange {
        KeyExchange { is_member, ..KeyExchange::default() }
    }
}

fn message(kind: u8, key: PublicKey) -> [u8; MESSAGE] {
    let mut octets = [0; MESSAGE];
    octets[..2].copy_from_slice(&[KEY_MESSAGE, kind]);
    octets[4..].copy_from_slice(key.octets());
    octets
}

/// Returns type and key of a message; `None` if it is malformed. Zeros follow it.
fn parse(payload: &[u8]) -> Option<(u8, PublicKey)> {
    let (octets, padding) = payload.split_first_chunk::<MESSAGE>()?;
    let (&[kind, typ, 0, 0], key) = octets.split_first_chunk::<4>()? else { return None };
    let key: [u8; 32] = key.try_into().ok()?;
    let is_sound = kind == KEY_MESSAGE && key != [0; 32] && padding.iter().all(|octet| *octet == 0);
    is_sound.then_some((typ, PublicKey::from(key)))
}

/// Returns the own keys of a config, the newest one first.
fn own_keys(key: &ConfigKey) -> Vec<PrivateKey> {
    key.newest_first().map(|key| PrivateKey::from_random(key.octets())).collect()
}

impl Sessions {
    /// Takes the own keys. If the present one has gone, its sessions stay for a while.
    pub fn set_private_keys(&mut self, now: Time, key: &ConfigKey) {
        let keys = own_keys(key);
        let (known, new) = (self.engine.public_keys(), public_keys(&keys));
        if known.len() == 2 && new == known[..1] {
            self.exchange.ends.get_or_insert(now + OVERLAP);
            return;
        }
        if known == new && self.exchange.ends.is_none() {
            return;
        }
        self.engine.set_private_keys(now, keys);
        let adopted = match new[..] {
            [next, _] => self.state.adopted(next),
            _ => Vec::new(),
        };
        let peer =
            |base: &PublicKey| self.ids.get(base).map(|peer| RemoteEnd { peer: *peer, home_agent: None });
        let adopted = adopted.iter().filter_map(peer).collect();
        let KeyExchange { confirmed, retires, stored, is_member, .. } = std::mem::take(&mut self.exchange);
        self.exchange =
            KeyExchange { adopted, confirmed, retires, stored, is_member, ..KeyExchange::default() };
    }

    /// Returns whether one of the own keys is in a config.
    pub fn has_key_of(&self, key: Option<&ConfigKey>) -> bool {
        let known = self.engine.public_keys();
        key.is_some_and(|key| public_keys(&own_keys(key)).iter().any(|key| known.contains(key)))
    }

    /// Returns the next key of this end, while it is announced.
    fn next_key(&self) -> Option<PublicKey> {
        self.engine.next_public_key().filter(|_| self.exchange.ends.is_none())
    }

    /// Returns the own public keys, and the remote ends that have not used the newest one.
    pub fn keys(&self) -> Keys {
        let mut public_keys = self.engine.public_keys();
        if self.exchange.ends.is_some() {
            public_keys.truncate(1);
        }
        Keys {
            public_keys: public_keys.iter().map(PublicKey::to_string).collect(),
            missing: self.missing().into_iter().map(|end| self.name_of(end)).collect(),
        }
    }

    fn name_of(&self, end: RemoteEnd) -> String {
        match end.home_agent {
            Some(address) => format!("home agent {address}"),
            None => self.remotes.get(&end.peer).map(|remote| remote.name.clone()).unwrap_or_default(),
        }
    }

    fn remote_ends(&self) -> BTreeSet<RemoteEnd> {
        let nodes = self.nodes.values().map(|peer| RemoteEnd { peer: *peer, home_agent: None });
        let agents = self.home_agents.iter();
        let agents = agents.map(|agent| RemoteEnd { peer: agent.peer, home_agent: Some(agent.address) });
        nodes.chain(agents).collect()
    }

    fn missing(&self) -> Vec<RemoteEnd> {
        match self.next_key() {
            Some(_) => self.remote_ends().difference(&self.exchange.adopted).copied().collect(),
            None => Vec::new(),
        }
    }

    /// Returns the remote end of a path, by the socket of its session.
    fn remote_end(&self, path: SessionPath, socket: u32) -> RemoteEnd {
        let slot = self.slots.iter().find(|slot| slot.socket == socket);
        RemoteEnd { peer: path.peer_id, home_agent: slot.map(|slot| slot.home_agent.address) }
    }

    /// Returns the established path on which packets of a remote end came last.
    fn path_to(&self, end: RemoteEnd) -> Option<(SessionPath, DatagramRoute)> {
        if let Some(address) = end.home_agent {
            let slot = self
                .slots
                .iter()
                .filter(|slot| slot.home_agent.address == address && self.engine.is_established(slot.path))
                .max_by_key(|slot| slot.used)?;
            return Some((slot.path, DatagramRoute { socket: slot.socket, remote: slot.remote }));
        }
        let numbers = (0..=PathNumber::MAX_NUMBER).filter_map(PathNumber::new);
        let mut paths = numbers.map(|number| SessionPath { peer_id: end.peer, path_number: number });
        paths.find_map(|path| {
            let from = self.ends.get(&path)?.back()?;
            let known = self.paths.get(from)?.iter().find(|(_, known, _)| *known == path)?;
            Some((path, known.2)).filter(|_| self.engine.is_established(path))
        })
    }

    /// Returns the time of the next [`Self::handle_keys`].
    pub(super) fn keys_due(&self) -> Option<Time> {
        let turn = self.next_key().filter(|_| !self.missing().is_empty()).map(|_| self.exchange.turn);
        [turn, self.exchange.ends, self.exchange.retires.values().min().copied()].into_iter().flatten().min()
    }

    /// Announces the next key, and ends old ones.
    pub(super) fn handle_keys(&mut self, now: Time) {
        if self.exchange.ends.is_some_and(|ends| ends <= now) {
            self.engine.drop_old_private_keys(now);
            self.exchange.ends = None;
        }
        let due = self.exchange.retires.iter().filter(|(_, at)| **at <= now).map(|(peer, _)| *peer);
        for peer in due.collect::<Vec<_>>() {
            self.exchange.retires.remove(&peer);
            self.retire(now, peer);
        }
        let Some(next) = self.next_key().filter(|_| self.exchange.turn <= now) else { return };
        self.exchange.turn = now + TURN;
        let mut sent = 0;
        for end in self.missing() {
            let last = self.exchange.announced.get(&end);
            let is_early = last.is_some_and(|last| now.saturating_since(*last) < REPEAT);
            if sent >= BATCH || is_early || self.exchange.receipts.contains(&end) {
                continue;
            }
            if let Some((path, route)) = self.path_to(end) {
                sent += 1;
                self.exchange.announced.insert(end, now);
                self.seal(now, path, route, 0, false, &message(ANNOUNCEMENT, next));
            } else if let Some(address) = end.home_agent {
                self.open_for_announcement(now, address);
            }
        }
    }

    /// Opens a session to a home agent that the mobile router does not use, from an address that it uses.
    fn open_for_announcement(&mut self, now: Time, address: Ipv6Addr) {
        let agent = self.home_agents.iter().find(|agent| agent.address == address).copied();
        let is_open = self.slots.iter().any(|slot| slot.home_agent.address == address);
        let local = self.slots.iter().max_by_key(|slot| slot.used).map(|slot| (slot.local, slot.remote));
        let (Some(agent), Some((local, remote)), false) = (agent, local, is_open) else { return };
        let there = match (remote, agent.ipv4) {
            (std::net::SocketAddr::V6(_), _) => agent.address.into(),
            (std::net::SocketAddr::V4(_), Some(ipv4)) => {
                carnet_base::Endpoint::Udp(std::net::SocketAddrV4::new(ipv4, carnet_mobility::UDP_PORT))
            }
            _ => return,
        };
        self.slot_of(now, local, there);
    }

    /// Handles a message about keys that came out of a session.
    pub(super) fn handle_key_message(
        &mut self,
        now: Time,
        path: SessionPath,
        pair: PairId,
        route: DatagramRoute,
    ) {
        let payload = self.payload.get(..self.payload_length).unwrap_or_default();
        match parse(payload) {
            Some((ANNOUNCEMENT, key)) => {
                if self.learn_key(now, path.peer_id, pair, key) {
                    self.seal(now, path, route, 0, false, &message(RECEIPT, key));
                }
            }
            Some((RECEIPT, key)) if self.next_key() == Some(key) => {
                let end = self.remote_end(path, route.socket);
                self.exchange.receipts.insert(end);
            }
            _ => self.refused += 1,
        }
    }

    /// Stores the next key of a peer that came through a session of `pair`. Returns whether the key is
    /// stored.
    fn learn_key(&mut self, now: Time, id: PeerId, pair: PairId, key: PublicKey) -> bool {
        let (Some(remote), Some(pair)) = (self.remotes.get(&id), self.engine.key_pair(pair)) else {
            return false;
        };
        let old = remote.peer.public_keys.clone();
        if old.contains(&key) {
            return true;
        }
        // Only the newest key in use names its successor. A next key that was never used has no say, and an
        // end may replace it.
        let is_in_use = self.exchange.retires.contains_key(&id);
        let is_entitled = old.first() == Some(&pair.remote) || old.last() == Some(&pair.remote) && !is_in_use;
        let is_early = self.exchange.stored.get(&id).is_some_and(|at| now.saturating_since(*at) < PAUSE);
        if !is_entitled || is_early {
            self.refused += 1;
            return false;
        }
        self.exchange.stored.insert(id, now);
        let (base, name) = (remote.key, remote.name.clone());
        if self.exchange.is_member {
            self.messages.push_back(format!(
                "refused the next public key {key} of the {name}: the members of a fleet do not share such \
                 keys, so the config has to name it"
            ));
            return false;
        }
        let new = vec![key, pair.remote];
        if !self.set_keys(now, id, &new) {
            self.messages
                .push_back(format!("cannot use the next public key {key} of the {name}: another end has it"));
            return false;
        }
        if !self.state.set_keys(base, &new) {
            self.set_keys(now, id, &old);
            self.messages.push_back(format!(
                "cannot store the next public key of the {name}: expected a station.state_dir that can be \
                 written"
            ));
            return false;
        }
        self.exchange.retires.remove(&id);
        self.exchange.confirmed.retain(|end| end.peer != id);
        self.messages.push_back(format!("the {name} announced its next public key {key}"));
        true
    }

    /// Gives a peer other public keys. Fails if another peer has one of them.
    fn set_keys(&mut self, now: Time, id: PeerId, keys: &[PublicKey]) -> bool {
        let Some(remote) = self.remotes.get_mut(&id) else { return false };
        let peer = RemotePeer { public_keys: keys.to_vec(), ..remote.peer.clone() };
        let is_set = self.engine.set_peer(now, peer.clone());
        if is_set {
            remote.peer = peer;
        }
        is_set
    }

    /// Notes which keys are in use: a session of this pair is established.
    pub(super) fn use_keys(&mut self, now: Time, path: SessionPath, pair: PairId, route: DatagramRoute) {
        let Some(pair) = self.engine.key_pair(pair) else { return };
        let end = self.remote_end(path, route.socket);
        if self.next_key() == Some(pair.local) && self.exchange.adopted.insert(end) {
            if let Some(remote) = self.remotes.get(&end.peer).filter(|_| end.home_agent.is_none()) {
                self.state.adopt(now, pair.local, remote.key);
            }
            if self.missing().is_empty() {
                self.messages.push_back(format!("all remote ends use the next public key {}", pair.local));
            }
        }
        let Some(remote) = self.remotes.get(&path.peer_id) else { return };
        let [next, _] = remote.peer.public_keys[..] else { return };
        if next != pair.remote {
            return;
        }
        self.exchange.confirmed.insert(end);
        let agents = self.home_agents.iter().filter(|agent| agent.peer == path.peer_id);
        let mut ends = agents.map(|agent| RemoteEnd { peer: agent.peer, home_agent: Some(agent.address) });
        if ends.all(|end| self.exchange.confirmed.contains(&end)) {
            self.exchange.retires.entry(path.peer_id).or_insert(now + OVERLAP);
        }
    }

    /// Ends the old key of a peer.
    fn retire(&mut self, now: Time, id: PeerId) {
        let Some(remote) = self.remotes.get(&id) else { return };
        let (base, name) = (remote.key, remote.name.clone());
        let [next, _] = remote.peer.public_keys[..] else { return };
        if self.state.set_keys(base, &[next]) {
            self.set_keys(now, id, &[next]);
            self.exchange.confirmed.retain(|end| end.peer != id);
            self.messages.push_back(format!(
                "the {name} has changed its public key to {next}; the config may name this key from now on"
            ));
        }
    }
}

fn public_keys(keys: &[PrivateKey]) -> Vec<PublicKey> {
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
    use carnet_settings::HOME_AGENT;
    use carnet_wire::ipv6::Header;

    use super::super::super::{Arrival, Datagram};
    use super::*;
    use crate::scratch::Scratch;

    const AGENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
    const CARE_OF: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x10, 0, 0, 0, 0, 5);

    /// An end of the test.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum End {
        Router,
        Agent,
    }

    /// Router and home agent with a network between them, in virtual time. Their files are real.
    struct World {
        scratch: Scratch,
        now: Time,
        router: Sessions,
        agent: Sessions,
        wire: VecDeque<(End, Vec<u8>)>,
        delivered: usize,
        /// The end that is killed before a datagram is delivered.
        kill: Option<(End, usize)>,
        /// Packets that came out of the sessions.
        arrived: usize,
    }

    fn write_key(file: &FilePath, seed: u8) -> PublicKey {
        let key = PrivateKey::from_random([seed; 32]);
        fs::write(file, key.to_text().as_bytes()).expect("a key");
        fs::set_permissions(file, Permissions::from_mode(0o600)).expect("a mode");
        key.public_key()
    }

    fn packet(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
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

    fn sessions(folder: &FilePath, end: End, now: Time) -> Sessions {
        let file = folder.join(format!("{end:?}.toml"));
        let config = Config::load(&file).expect("a config");
        Sessions::new(&config, now, false).expect("randomness").expect("keys")
    }

    impl World {
        fn new(with_state: bool) -> World {
            let scratch = Scratch::new();
            let folder = scratch.path().to_owned();
            let router_key = write_key(&folder.join("Router.key"), 1);
            let agent_key = write_key(&folder.join("Agent.key"), 2);
            let station = |end: End| {
                let state = match with_state {
                    true => format!("state_dir = '{}'\n", folder.display()),
                    false => String::new(),
                };
                format!("[station]\nname = '{end:?}'\n{state}private_key_file = '{end:?}.key'\n")
            };
            let agent = format!(
                "{}[home_agent]\naddress = '{AGENT}'\nhome_prefix = '2001:db8:1::/64'\n\
                 [[home_agent.mobile_router]]\nhome_address = '2001:db8:1::5'\n\
                 auth = {{ public_key = '{router_key}' }}\n",
                station(End::Agent)
            );
            let router = format!(
                "{}[mobile_router]\nhome_address = '2001:db8:1::5'\nhome_prefix = '2001:db8:1::/64'\n\
                 home_agent = '{AGENT}'\nhome_agent_key = '{agent_key}'\nuplink = [{{ interface = 'u' }}]\n",
                station(End::Router)
            );
            fs::write(folder.join("Agent.toml"), agent).expect("a config");
            fs::write(folder.join("Router.toml"), router).expect("a config");
            let now = Time::from_secs(100);
            let mut world = World {
                router: sessions(&folder, End::Router, now),
                agent: sessions(&folder, End::Agent, now),
                scratch,
                now,
                wire: VecDeque::new(),
                delivered: 0,
                kill: None,
                arrived: 0,
            };
            world.prepare();
            world.run(Duration::from_secs(3));
            world
        }

        fn file(&self, end: End) -> PathBuf {
            self.scratch.path().join(format!("{end:?}.key"))
        }

        fn end(&mut self, end: End) -> &mut Sessions {
            match end {
                End::Router => &mut self.router,
                End::Agent => &mut self.agent,
            }
        }

        /// Begins the session of the router, as at a start.
        fn prepare(&mut self) {
            self.router.prepare(self.now, (Endpoint::Ipv6(CARE_OF), Endpoint::Ipv6(AGENT)));
        }

        /// Reads the key files again, as `POST /v1/keys/read` does.
        fn read_keys(&mut self, end: End) {
            let key = ConfigKey::read(self.file(end)).expect("keys");
            let now = self.now;
            self.end(end).set_private_keys(now, &key);
        }

        /// Kills a program, and starts it again from its files.
        fn restart(&mut self, end: End) {
            *self.end(end) = sessions(self.scratch.path(), end, self.now);
            self.prepare();
        }

        fn collect(&mut self) {
            for end in [End::Router, End::Agent] {
                let to = if end == End::Router { End::Agent } else { End::Router };
                let now = self.now;
                let sessions = self.end(end);
                sessions.handle(now);
                let mut sent = Vec::new();
                while let Some(datagram) = sessions.poll_datagram() {
                    assert!(matches!(datagram, Datagram::Ipv6 { .. }));
                    sent.push((to, sessions.wire().as_slice().to_vec()));
                }
                self.wire.extend(sent);
            }
        }

        /// Lets the time pass, and delivers all datagrams. The router signals once a second, and the home
        /// agent answers.
        fn run(&mut self, time: Duration) {
            let until = self.now + time;
            while self.now < until {
                self.now += Duration::from_millis(50);
                if self.now.as_nanos().is_multiple_of(1_000_000_000) {
                    self.router.send_packet(self.now, &packet(CARE_OF, AGENT));
                }
                self.collect();
                while let Some((end, octets)) = self.wire.pop_front() {
                    if let Some((victim, at)) = self.kill
                        && at == self.delivered
                    {
                        self.kill = None;
                        self.restart(victim);
                    }
                    self.delivered += 1;
                    let mut buffer = PacketBuffer::new();
                    buffer.copy_from(&octets);
                    let now = self.now;
                    let arrival = self.end(end).receive_packet(now, &mut buffer);
                    let header = Header::parse(buffer.as_slice()).expect("a header");
                    match arrival {
                        Arrival::Packet(_) if header.destination == AGENT => {
                            let ends = (Endpoint::Ipv6(AGENT), Endpoint::Ipv6(CARE_OF));
                            self.agent.send(now, SessionPeer(0), ends, false, &packet(AGENT, CARE_OF));
                        }
                        Arrival::Packet(_) if header.source != AGENT => self.arrived += 1,
                        _ => {}
                    }
                    self.collect();
                }
            }
        }

        /// Sends a packet in each direction, and returns whether both arrive.
        fn exchange(&mut self) -> bool {
            let (host, peer) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
            let (here, there) = (Endpoint::Ipv6(CARE_OF), Endpoint::Ipv6(AGENT));
            let before = self.arrived;
            self.router.send(self.now, HOME_AGENT, (here, there), false, &packet(host, peer));
            self.run(Duration::from_millis(50));
            self.agent.send(self.now, SessionPeer(0), (there, here), false, &packet(peer, host));
            self.run(Duration::from_millis(50));
            self.arrived == before + 2
        }

        /// Changes the key of an end, as `carnet key rotate` does. Returns the new public key.
        fn rotate(&mut self, end: End, seed: u8) -> PublicKey {
            let file = self.file(end);
            let next = write_key(&next_key_file(&file), seed);
            self.read_keys(end);
            for _ in 0..600 {
                self.run(Duration::from_millis(100));
                if self.end(end).missing().is_empty() {
                    break;
                }
            }
            assert_eq!(self.end(end).keys().missing, Vec::<String>::new());
            fs::rename(next_key_file(&file), &file).expect("both files");
            self.read_keys(end);
            next
        }

        /// Returns the keys that the other end accepts.
        fn accepted(&mut self, end: End) -> Vec<PublicKey> {
            let other = if end == End::Router { End::Agent } else { End::Router };
            let remotes = &self.end(other).remotes;
            remotes.values().flat_map(|remote| remote.peer.public_keys.clone()).collect()
        }
    }

    #[test]
    fn key_of_either_end_changes_and_the_old_one_ends() {
        for end in [End::Router, End::Agent] {
            let mut world = World::new(true);
            assert!(world.exchange());
            let old = world.accepted(end)[0];
            let next = world.rotate(end, 7);
            assert_eq!(world.accepted(end), [next, old]);
            assert_eq!(world.end(end).keys().public_keys, [next.to_string()]);
            for _ in 0..200 {
                assert!(world.exchange());
                world.run(Duration::from_secs(1));
            }
            assert_eq!(world.accepted(end), [next]);
            assert_eq!(world.end(end).engine.public_keys(), [next]);
            assert!(world.exchange());
            // Both ends start with the keys of their files.
            world.restart(End::Agent);
            world.restart(End::Router);
            world.run(Duration::from_secs(5));
            assert!(world.exchange());
            assert_eq!(world.accepted(end), [next]);
            // The next change.
            let third = world.rotate(end, 8);
            assert_eq!(world.accepted(end), [third, next]);
        }
    }

    /// `kill -9` of each end before each datagram of a change.
    #[test]
    fn change_of_a_key_that_a_kill_interrupts_continues() {
        /// Changes the key of an end, and returns the number of datagrams of the change.
        fn change(end: End, victim: Option<End>, at: usize) -> usize {
            let mut world = World::new(true);
            let before = world.delivered;
            world.kill = victim.map(|victim| (victim, before + at));
            let next = world.rotate(end, 7);
            world.run(Duration::from_secs(2));
            let steps = world.delivered - before;
            world.run(Duration::from_secs(20));
            assert!(world.exchange(), "{end:?} changes its key, {victim:?} is killed at {at}");
            assert_eq!(world.accepted(end)[0], next);
            steps
        }
        for end in [End::Router, End::Agent] {
            let steps = change(end, None, 0);
            assert!((8..100).contains(&steps), "{steps}");
            for victim in [End::Router, End::Agent] {
                for at in 0..steps {
                    change(end, Some(victim), at);
                }
            }
        }
    }

    #[test]
    fn end_without_a_state_directory_accepts_no_next_key() {
        let mut world = World::new(false);
        let old = world.accepted(End::Router);
        write_key(&next_key_file(&world.file(End::Router)), 7);
        world.read_keys(End::Router);
        world.run(Duration::from_secs(10));
        assert_eq!(world.accepted(End::Router), old);
        assert_eq!(world.router.keys().missing, [format!("home agent {AGENT}")]);
        assert!(world.exchange());
        let told =
            std::iter::from_fn(|| world.agent.poll_message()).any(|text| text.contains("cannot store"));
        assert!(told);
    }

    /// The home agent accepts a key only from the session of the newest key in use.
    #[test]
    fn key_that_the_present_key_does_not_announce_is_refused() {
        let mut world = World::new(true);
        let old = world.accepted(End::Router)[0];
        let next = world.rotate(End::Router, 7);
        let id = *world.agent.remotes.keys().next().expect("a router");
        let pair = |world: &World, remote: PublicKey| {
            let pairs = (0..100).filter_map(|pair| Some((pair, world.agent.engine.key_pair(PairId(pair))?)));
            let found = pairs.into_iter().find(|(_, keys)| keys.remote == remote).expect("a pair");
            PairId(found.0)
        };
        let third = PrivateKey::from_random([9; 32]).public_key();
        world.now += PAUSE;
        let (now, of_old, of_next) = (world.now, pair(&world, old), pair(&world, next));
        assert!(!world.agent.learn_key(now, id, of_old, third));
        assert_eq!(world.accepted(End::Router), [next, old]);
        assert!(world.agent.learn_key(now, id, of_next, third));
        assert_eq!(world.accepted(End::Router), [third, next]);
        // The third key was never used: the key in use may replace it, but not at once.
        let fourth = PrivateKey::from_random([10; 32]).public_key();
        assert!(!world.agent.learn_key(now, id, of_next, fourth));
        assert!(world.agent.learn_key(now + PAUSE, id, of_next, fourth));
        assert_eq!(world.accepted(End::Router), [fourth, next]);
    }

    #[test]
    fn message_about_keys_is_read_with_its_padding_only() {
        let key = PublicKey::from([7; 32]);
        let mut padded = message(ANNOUNCEMENT, key).to_vec();
        padded.resize(48, 0);
        assert_eq!(parse(&padded), Some((ANNOUNCEMENT, key)));
        for (at, octet) in [(0, 0x22), (2, 1), (3, 1), (47, 1)] {
            let mut wrong = padded.clone();
            wrong[at] = octet;
            assert_eq!(parse(&wrong), None, "octet {at}");
        }
        assert_eq!(parse(&padded[..35]), None);
        assert_eq!(parse(&message(RECEIPT, PublicKey::from([0; 32]))), None);
    }
}
