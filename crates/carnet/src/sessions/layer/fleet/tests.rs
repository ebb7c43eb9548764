//! Takeovers in virtual time: one home agent with a store, and mobile routers behind a network with a delay.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, Permissions};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use carnet_api::config::Config;
use carnet_base::{Endpoint, Time};
use carnet_mobility::SessionPeer;
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wireguard::{
    DatagramRoute, EngineSettings, Output, PathNumber, PeerId, PrivateKey, PublicKey, ReceivedDatagram,
    RemotePeer, SessionEngine, SessionPath, datagram_length,
};

use super::super::super::{OutgoingDatagram, SessionArrival};
use super::super::{Sessions, UDP_HEADER_LENGTH};
use crate::scratch::ScratchFolder;
use crate::state::{RecordChange, RecordKey};

const AGENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const AGENT_PORT: u16 = 51820;
const ROUTER_PORT: u16 = 4191;
const ONE_WAY_DELAY: Duration = Duration::from_millis(20);
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// Time that a commit takes.
const COMMIT_TIME: Duration = Duration::from_millis(10);
const INITIATION: u8 = 1;
const DATA: u8 = 4;

fn home_agent_peer() -> PeerId {
    PeerId(1)
}

fn path(number: u8) -> SessionPath {
    SessionPath { peer_id: home_agent_peer(), path_number: PathNumber::new(number).expect("a number") }
}

/// The address of an uplink of a router. Each uplink is in a /64 of its own.
fn care_of(router: usize, number: u8, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x10, u16::from(number) << 12 | router as u16, 0, 0, 0, host)
}

fn home_address(router: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, router as u16)
}

fn private_key(seed: u32) -> PrivateKey {
    let mut octets = [9; 32];
    octets[4..8].copy_from_slice(&seed.to_le_bytes());
    PrivateKey::from_random(octets)
}

/// An IPv6 packet without content.
fn inner_packet(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
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

/// A datagram between an uplink of a router and the home agent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OnWire {
    router: usize,
    number: u8,
    to_agent: bool,
    octets: Vec<u8>,
}

struct Router {
    engine: SessionEngine,
    /// Number of packets that came out of its sessions.
    received: usize,
}

struct World {
    now: Time,
    config: Config,
    _scratch: ScratchFolder,
    /// Records that the store has.
    records: BTreeMap<RecordKey, String>,
    gathered: Vec<RecordChange>,
    writing: Option<(Time, Vec<RecordChange>)>,
    commits: u64,
    leader: Sessions,
    routers: Vec<Router>,
    /// Last 16 bits of the care-of addresses of all routers.
    host: u16,
    wire: BTreeMap<(Time, u64), OnWire>,
    sent: u64,
    /// Handshake initiations that routers have sent.
    initiations: Vec<OnWire>,
    /// Number of responses of home agents for each initiation: router and sender index.
    responses: HashMap<(usize, [u8; 4]), usize>,
    /// Routers, each with a path number, whose packets came out of the sessions of the present leader.
    heard: BTreeSet<(usize, u8)>,
    /// Whether the network drops all datagrams.
    is_cut: bool,
    delivered: usize,
    kill_before: Option<usize>,
    /// Time for which the present leader has computed, on one core.
    spent: Duration,
}

impl World {
    fn new(routers: usize) -> World {
        let scratch = ScratchFolder::new();
        let file = scratch.path().join("agent.key");
        fs::write(&file, private_key(0).to_text().as_bytes()).expect("a key");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a mode");
        let mut text = format!(
            "[station]\nname = 'north'\nprivate_key_file = 'agent.key'\n[home_agent]\naddress = '{AGENT}'\n\
             home_prefix = '2001:db8:1::/64'\n"
        );
        for router in 0..routers {
            let (address, key) = (home_address(router), private_key(router as u32 + 1).public_key());
            text += &format!(
                "[[home_agent.mobile_router]]\nhome_address = '{address}'\nauth = {{ public_key = '{key}' \
                 }}\n"
            );
        }
        let file = scratch.path().join("agent.toml");
        fs::write(&file, text).expect("a config");
        let config = Config::load_file(&file).expect("a config");
        let now = Time::from_secs(100);
        let leader = Sessions::new(&config, now, Some(&[])).expect("no records").expect("keys");
        let routers = (0..routers).map(|router| Router { engine: new_router(now, router), received: 0 });
        World {
            now,
            config,
            _scratch: scratch,
            records: BTreeMap::new(),
            gathered: Vec::new(),
            writing: None,
            commits: 0,
            leader,
            routers: routers.collect(),
            host: 1,
            wire: BTreeMap::new(),
            sent: 0,
            initiations: Vec::new(),
            responses: HashMap::new(),
            heard: BTreeSet::new(),
            is_cut: false,
            delivered: 0,
            kill_before: None,
            spent: Duration::ZERO,
        }
    }

    /// Returns a world in which all routers have sessions, each with these path numbers.
    fn with_sessions(routers: usize, numbers: &[u8]) -> World {
        let mut world = World::new(routers);
        for router in 0..routers {
            for number in numbers {
                world.open(router, *number);
            }
            // The handshakes are so far apart that the home agent demands no cookies.
            world.run(Duration::from_millis(3) * numbers.len() as u32);
        }
        world.run(Duration::from_secs(2));
        world.expect_sessions(numbers);
        world
    }

    fn expect_sessions(&mut self, numbers: &[u8]) {
        for (router, number) in self.each_path(numbers) {
            assert!(self.routers[router].engine.is_established(path(number)), "router {router}, {number}");
        }
        assert_eq!(self.established(), self.routers.len() * numbers.len());
    }

    fn each_path(&self, numbers: &[u8]) -> Vec<(usize, u8)> {
        let routers = 0..self.routers.len();
        routers.flat_map(|router| numbers.iter().map(move |number| (router, *number))).collect()
    }

    /// Returns the number of established paths at the leader.
    fn established(&self) -> usize {
        let paths = self.leader.peer_by_home_address.values().flat_map(|peer| {
            let numbers = (0..=PathNumber::MAX_NUMBER).filter_map(PathNumber::new);
            numbers.map(|path_number| SessionPath { peer_id: *peer, path_number })
        });
        paths.filter(|path| self.leader.session_engine.is_established(*path)).count()
    }

    fn open(&mut self, router: usize, number: u8) {
        let route =
            DatagramRoute { socket: u32::from(number), remote: SocketAddr::from((AGENT, AGENT_PORT)) };
        assert!(self.routers[router].engine.open_session(self.now, path(number), route));
        self.collect();
    }

    /// Puts a datagram on the wire.
    fn put(&mut self, datagram: OnWire) {
        self.sent += 1;
        self.wire.insert((self.now + ONE_WAY_DELAY, self.sent), datagram);
    }

    /// Sends a packet from a router.
    fn send_from_router(&mut self, router: usize, number: u8) {
        let packet = inner_packet(home_address(router), AGENT);
        let mut octets = vec![0; datagram_length(packet.len())];
        let engine = &mut self.routers[router].engine;
        if let Ok((_, length)) = engine.send_payload(self.now, path(number), &packet, &mut octets) {
            octets.truncate(length);
            self.put(OnWire { router, number, to_agent: true, octets });
        }
    }

    /// Sends a packet of the home agent to a router.
    fn send_to_router(&mut self, router: usize, number: u8) {
        let ends = (Endpoint::Ipv6(AGENT), Endpoint::Ipv6(care_of(router, number, self.host)));
        let packet = inner_packet(AGENT, home_address(router));
        self.leader.send_inner_packet(self.now, SessionPeer(router as u32), ends, false, &packet);
        self.collect();
    }

    /// Replaces the leader by another member, which has the records of the store.
    fn take_over(&mut self) {
        let records: Vec<(RecordKey, String)> = self.records.clone().into_iter().collect();
        (self.gathered, self.writing, self.commits) = (Vec::new(), None, 0);
        self.leader = Sessions::new(&self.config, self.now, Some(&records)).expect("records").expect("keys");
        self.heard.clear();
        self.spent = Duration::ZERO;
    }

    /// Lets the leader and the routers handle what is due now, and puts their datagrams on the wire.
    fn collect(&mut self) {
        let began = std::time::Instant::now();
        self.leader.handle_due_work(self.now);
        let changes = self.leader.take_changes();
        let number = self.commits + 1 + u64::from(self.writing.is_some());
        self.leader.hold_until(self.now, (!changes.is_empty()).then_some(number));
        self.gathered.extend(changes);
        let mut sent = Vec::new();
        while let Some(datagram) = self.leader.poll_datagram() {
            assert!(matches!(datagram, OutgoingDatagram::Ipv6 { .. }), "{datagram:?}");
            sent.push(self.leader.outgoing_packet_mut().as_slice().to_vec());
        }
        self.spent += began.elapsed();
        if self.writing.is_none() && !self.gathered.is_empty() {
            self.writing = Some((self.now + COMMIT_TIME, std::mem::take(&mut self.gathered)));
        }
        for packet in sent {
            let header = Header::parse(&packet).expect("a header");
            let [.., network, _, _, _, host] = header.destination.segments();
            if host != self.host {
                continue;
            }
            let (router, number) = (usize::from(network & 0xfff), (network >> 12) as u8);
            let octets = packet[HEADER_LEN + UDP_HEADER_LENGTH..].to_vec();
            if octets[0] == super::RESPONSE_TYPE {
                let index = [octets[8], octets[9], octets[10], octets[11]];
                *self.responses.entry((router, index)).or_default() += 1;
            }
            self.put(OnWire { router, number, to_agent: false, octets });
        }
        for router in 0..self.routers.len() {
            while let Some(output) = self.routers[router].engine.poll_output() {
                let Output::Send { route, datagram } = output else { continue };
                let octets: Vec<u8> = datagram.into();
                let on_wire = OnWire { router, number: route.socket as u8, to_agent: true, octets };
                if on_wire.octets[0] == INITIATION {
                    self.initiations.push(on_wire.clone());
                }
                self.put(on_wire);
            }
        }
    }

    fn deliver(&mut self, datagram: &OnWire) {
        let OnWire { router, number, to_agent, octets } = datagram;
        let remote = SocketAddr::from((AGENT, AGENT_PORT));
        if *to_agent {
            let mut packet = PacketBuffer::new();
            packet.copy_from(&in_udp(care_of(*router, *number, self.host), octets));
            let began = std::time::Instant::now();
            let arrival = self.leader.receive_ipv6_packet(self.now, &mut packet);
            self.spent += began.elapsed();
            if let SessionArrival::Packet(from) = arrival {
                assert_eq!(from.session_peer, SessionPeer(*router as u32));
                self.heard.insert((*router, *number));
            }
        } else {
            let mut buffer = vec![0; octets.len()];
            let route = DatagramRoute { socket: u32::from(*number), remote };
            let router = &mut self.routers[*router];
            let received = router.engine.receive_datagram(self.now, route, octets, &mut buffer);
            router.received += usize::from(matches!(received, ReceivedDatagram::Payload { .. }));
            router.engine.handle_waiting_handshakes(self.now, 16);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let wire = self.wire.first_key_value().map(|((at, _), _)| *at);
        let writing = self.writing.as_ref().map(|(at, _)| *at);
        let timers = self.routers.iter().filter_map(|router| router.engine.poll_timeout());
        let ends = timers.chain(self.leader.poll_timeout()).min().map(|at| at.max(self.now));
        [wire, writing, ends].into_iter().flatten().min()
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.next_event().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            if self.writing.as_ref().is_some_and(|(at, _)| *at <= self.now) {
                let (_, changes) = self.writing.take().expect("a commit");
                self.records.extend(changes.into_iter().map(|(key, text)| (key, text.expect("a record"))));
                self.commits += 1;
                self.leader.handle_written(self.now, self.commits);
            }
            while let Some(first) = self.wire.first_entry().filter(|first| first.key().0 <= self.now) {
                let datagram = first.remove();
                if self.kill_before == Some(self.delivered) {
                    self.take_over();
                }
                self.delivered += 1;
                if !self.is_cut {
                    self.deliver(&datagram);
                    self.collect();
                }
            }
            for router in &mut self.routers {
                router.engine.handle_timeout(self.now);
            }
            self.collect();
        }
        self.now = until;
    }

    /// Returns the number of datagrams with this message type that are on the wire from the leader to
    /// routers.
    fn messages_on_wire(&self, kind: u8) -> usize {
        self.wire.values().filter(|datagram| !datagram.to_agent && datagram.octets[0] == kind).count()
    }
}

fn new_router(now: Time, router: usize) -> SessionEngine {
    let mut engine = SessionEngine::new(EngineSettings {
        private_key: private_key(router as u32 + 1),
        random_seed: [router as u8; 32],
        now,
        unix_time_at_start: Duration::from_secs(1_795_737_600),
    });
    let public_keys: Vec<PublicKey> = vec![private_key(0).public_key()];
    assert!(
        engine.set_peer(now, RemotePeer { peer_id: home_agent_peer(), public_keys, preshared_key: None })
    );
    engine
}

/// Returns the IPv6 packet that carries a router's datagram to the home agent.
fn in_udp(source: Ipv6Addr, octets: &[u8]) -> Vec<u8> {
    let length = (octets.len() + UDP_HEADER_LENGTH) as u16;
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: length,
        next_header: protocol::UDP,
        hop_limit: 64,
        source,
        destination: AGENT,
    };
    let mut packet = header.emit().to_vec();
    for field in [ROUTER_PORT, AGENT_PORT, length, 0] {
        packet.extend(field.to_be_bytes());
    }
    packet.extend(octets);
    packet
}

/// The new leader begins the handshakes. After one round trip, each router has a session with the leader.
#[test]
fn new_leader_opens_the_paths_of_1000_routers_in_one_round_trip() {
    let mut world = World::with_sessions(1000, &[1]);
    let before = world.initiations.len();
    world.take_over();
    assert_eq!(world.established(), 0);
    world.run(ROUND_TRIP);
    println!("the leader spent {:?} of one core on 1000 paths", world.spent);
    assert_eq!(world.established(), 1000);
    // The keepalives of the leader arrive, and then the routers' packets.
    world.run(ONE_WAY_DELAY);
    for router in 0..1000 {
        world.send_from_router(router, 1);
    }
    world.run(ONE_WAY_DELAY);
    assert_eq!(world.heard.len(), 1000);
    assert_eq!(world.initiations.len(), before, "no router began a handshake");
}

/// 2000 handshakes are more than a home agent answers in a second without demanding cookies.
#[test]
fn new_leader_opens_two_paths_of_each_of_1000_routers_within_a_second() {
    let mut world = World::with_sessions(1000, &[1, 2]);
    world.take_over();
    world.run(ROUND_TRIP + ONE_WAY_DELAY);
    for router in 0..1000 {
        world.send_from_router(router, 1);
    }
    world.run(ONE_WAY_DELAY);
    assert!(world.heard.len() >= 990, "the first path of each router comes first: {}", world.heard.len());
    world.run(Duration::from_millis(900));
    assert_eq!(world.established(), 2000);
}

/// Packets for a router wait for the handshake of its path.
#[test]
fn packets_that_a_new_leader_gets_before_the_handshake_arrive() {
    let mut world = World::with_sessions(1, &[1]);
    world.take_over();
    for _ in 0..3 {
        world.send_to_router(0, 1);
    }
    assert_eq!(world.routers[0].received, 0);
    world.run(ROUND_TRIP + ONE_WAY_DELAY);
    assert_eq!(world.routers[0].received, 3);
    world.send_to_router(0, 1);
    world.run(ONE_WAY_DELAY);
    assert_eq!(world.routers[0].received, 4);
}

/// All leaders start at the same date of the system clock. So only the stored timestamp makes timestamps
/// grow.
#[test]
fn timestamps_of_successive_leaders_grow() {
    let mut world = World::with_sessions(2, &[1, 2]);
    for takeover in 0..10 {
        let before = world.initiations.len();
        world.take_over();
        world.run(ROUND_TRIP);
        assert_eq!(world.established(), 4, "takeover {takeover}");
        assert_eq!(world.initiations.len(), before, "takeover {takeover}");
        world.run(Duration::from_secs(20));
    }
}

/// Each run kills the leader before another datagram. An attacker has recorded each initiation, and sends
/// each twice to the next leader.
#[test]
fn initiation_gets_one_response_of_all_members_together() {
    let life = |kill_before: Option<usize>| {
        let mut world = World::new(2);
        world.kill_before = kill_before;
        for (router, number) in world.each_path(&[1, 2]) {
            world.open(router, number);
            world.run(Duration::from_millis(4));
        }
        world.run(Duration::from_secs(1));
        for _ in 0..2 {
            for recorded in world.initiations.clone() {
                world.put(recorded);
                world.run(Duration::from_millis(5));
            }
        }
        // A router that gets no answer over a session renews this session.
        for (router, number) in world.each_path(&[1, 2]) {
            world.send_from_router(router, number);
            world.run(ROUND_TRIP);
            if !world.heard.contains(&(router, number)) {
                world.routers[router].engine.renew_handshake(world.now, path(number));
                world.run(Duration::from_secs(1));
            }
        }
        assert!(world.responses.values().all(|count| *count == 1), "{kill_before:?}: {:?}", world.responses);
        world.expect_sessions(&[1, 2]);
        world.delivered
    };
    let steps = life(None);
    assert!((12..100).contains(&steps), "{steps}");
    for at in 0..steps {
        life(Some(at));
    }
}

/// A NAT gives the path of a router another address. The router's next handshake proves the address.
#[test]
fn leader_follows_a_path_that_it_has_opened_to_another_address() {
    let mut world = World::with_sessions(1, &[1]);
    world.take_over();
    world.run(Duration::from_secs(1));
    world.host = 2;
    world.routers[0].engine.renew_handshake(world.now, path(1));
    world.collect();
    world.run(Duration::from_secs(1));
    world.send_from_router(0, 1);
    world.run(Duration::from_secs(1));
    let before = world.initiations.len();
    world.take_over();
    world.run(ROUND_TRIP);
    world.expect_sessions(&[1]);
    assert_eq!(world.initiations.len(), before);
}

/// No router is reachable any more. The leader gives up after a few initiations, and forgets the routes.
#[test]
fn routes_without_an_answer_are_given_up() {
    let mut world = World::with_sessions(20, &[1, 2, 3]);
    world.is_cut = true;
    world.take_over();
    let sent = world.sent;
    world.run(Duration::from_secs(30));
    assert!(world.sent - sent <= 60 * 6, "{}", world.sent - sent);
    assert_eq!(world.leader.session_engine.session_count(), 0);
    assert!(world.leader.pending_packets.is_empty() && world.leader.stored_routes.is_empty());
    assert!(world.records.values().all(|record| !record.contains("routes")), "{:?}", world.records);
    world.take_over();
    world.collect();
    assert_eq!(world.messages_on_wire(INITIATION), 0);
}

/// After a takeover the router renews its session as before, and packets in both directions continue to
/// arrive.
#[test]
fn session_that_a_leader_has_opened_goes_on() {
    let mut world = World::with_sessions(1, &[1]);
    world.take_over();
    for second in 0..400 {
        world.run(Duration::from_secs(1));
        world.heard.clear();
        let received = world.routers[0].received;
        world.send_from_router(0, 1);
        world.send_to_router(0, 1);
        world.run(ROUND_TRIP);
        assert_eq!(world.heard.len(), 1, "second {second}");
        assert_eq!(world.routers[0].received, received + 1, "second {second}");
    }
    assert!(world.wire.values().all(|datagram| datagram.octets[0] == DATA));
}

/// The stored routes may have any content. A new home agent opens each path once, so the number of its
/// sessions is bounded.
#[test]
fn number_of_sessions_that_a_leader_opens_is_bounded() {
    let mut world = World::with_sessions(3, &[1]);
    let key = |router: u32| {
        RecordKey::Session(carnet_api::config::PublicKey(*private_key(router + 1).public_key().octets()))
    };
    let routes: Vec<String> =
        (0..=255).map(|number| format!("\"{number}\":\"[2001:db8:10:{number:x}::1]:4191\"")).collect();
    // Router 77 is not in the config, but the store has a record of it.
    for router in [0, 1, 2, 77] {
        world.records.insert(key(router), format!("{{\"version\":1,\"routes\":{{{}}}}}", routes.join(",")));
    }
    world.is_cut = true;
    world.take_over();
    world.run(Duration::from_secs(1));
    assert_eq!(world.leader.session_engine.session_count(), 3 * 16);
}
