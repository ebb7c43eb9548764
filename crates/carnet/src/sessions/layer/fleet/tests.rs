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

const AGENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const AGENT_PORT: u16 = 51820;
const ROUTER_PORT: u16 = 4191;
const ONE_WAY_DELAY: Duration = Duration::from_millis(20);
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// Time that a commit takes.
const COMMIT_TIME: Duration = Duration::from_millis(10);
const INITIATION_TYPE: u8 = 1;
const DATA_TYPE: u8 = 4;

fn home_agent_peer() -> PeerId {
    PeerId(1)
}

fn session_path(number: u8) -> SessionPath {
    SessionPath { peer_id: home_agent_peer(), path_number: PathNumber::new(number).expect("a number") }
}

/// The address of an uplink of a router. Each uplink is in a /64 of its own.
fn care_of_address(router: usize, number: u8, host_part: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x10, u16::from(number) << 12 | router as u16, 0, 0, 0, host_part)
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
struct WireDatagram {
    router: usize,
    number: u8,
    to_agent: bool,
    octets: Vec<u8>,
}

struct TestRouter {
    engine: SessionEngine,
    /// Number of packets that came out of its sessions.
    received_packets: usize,
}

struct TakeoverNetwork {
    now: Time,
    config: Config,
    _scratch: ScratchFolder,
    /// Records that the store has.
    records: BTreeMap<RecordKey, String>,
    waiting_changes: Vec<RecordChange>,
    commit_in_progress: Option<(Time, Vec<RecordChange>)>,
    commit_count: u64,
    leader: Sessions,
    routers: Vec<TestRouter>,
    /// Last 16 bits of the care-of addresses of all routers.
    host_part: u16,
    wire: BTreeMap<(Time, u64), WireDatagram>,
    sent_datagrams: u64,
    /// Handshake initiations that routers have sent.
    initiations: Vec<WireDatagram>,
    /// Number of responses of home agents for each initiation: router and sender index.
    response_count_by_initiation: HashMap<(usize, [u8; 4]), usize>,
    /// Routers, each with a path number, whose packets came out of the sessions of the present leader.
    authenticated_paths: BTreeSet<(usize, u8)>,
    /// Whether the network drops all datagrams.
    drops_all_datagrams: bool,
    delivered_datagrams: usize,
    kill_before_datagram: Option<usize>,
    /// Time for which the present leader has computed, on one core.
    leader_processing_time: Duration,
}

impl TakeoverNetwork {
    fn new(routers: usize) -> TakeoverNetwork {
        let scratch = ScratchFolder::new();
        let file = scratch.path().join("agent.key");
        fs::write(&file, private_key(0).to_text().as_bytes()).expect("a key");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a mode");
        let mut text = format!(
            "[station]\nname = 'north'\nprivate_key_file = 'agent.key'\n[home_agent]\naddress = \
             '{AGENT_ADDRESS}'\nhome_prefix = '2001:db8:1::/64'\n"
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
        let routers =
            (0..routers).map(|router| TestRouter { engine: new_router(now, router), received_packets: 0 });
        TakeoverNetwork {
            now,
            config,
            _scratch: scratch,
            records: BTreeMap::new(),
            waiting_changes: Vec::new(),
            commit_in_progress: None,
            commit_count: 0,
            leader,
            routers: routers.collect(),
            host_part: 1,
            wire: BTreeMap::new(),
            sent_datagrams: 0,
            initiations: Vec::new(),
            response_count_by_initiation: HashMap::new(),
            authenticated_paths: BTreeSet::new(),
            drops_all_datagrams: false,
            delivered_datagrams: 0,
            kill_before_datagram: None,
            leader_processing_time: Duration::ZERO,
        }
    }

    /// Returns a network in which all routers have sessions, each with these path numbers.
    fn with_sessions(routers: usize, numbers: &[u8]) -> TakeoverNetwork {
        let mut network = TakeoverNetwork::new(routers);
        for router in 0..routers {
            for number in numbers {
                network.open_session(router, *number);
            }
            // The handshakes are so far apart that the home agent demands no cookies.
            network.run_for(Duration::from_millis(3) * numbers.len() as u32);
        }
        network.run_for(Duration::from_secs(2));
        network.expect_sessions(numbers);
        network
    }

    fn expect_sessions(&mut self, numbers: &[u8]) {
        for (router, number) in self.each_path(numbers) {
            assert!(
                self.routers[router].engine.is_established(session_path(number)),
                "router {router}, {number}"
            );
        }
        assert_eq!(self.established_path_count(), self.routers.len() * numbers.len());
    }

    fn each_path(&self, numbers: &[u8]) -> Vec<(usize, u8)> {
        let routers = 0..self.routers.len();
        routers.flat_map(|router| numbers.iter().map(move |number| (router, *number))).collect()
    }

    /// Returns the number of established paths at the leader.
    fn established_path_count(&self) -> usize {
        let paths = self.leader.peer_by_home_address.values().flat_map(|peer| {
            let numbers = (0..=PathNumber::MAX_NUMBER).filter_map(PathNumber::new);
            numbers.map(|path_number| SessionPath { peer_id: *peer, path_number })
        });
        paths.filter(|path| self.leader.session_engine.is_established(*path)).count()
    }

    fn open_session(&mut self, router: usize, number: u8) {
        let route = DatagramRoute {
            socket: u32::from(number),
            remote: SocketAddr::from((AGENT_ADDRESS, AGENT_PORT)),
        };
        assert!(self.routers[router].engine.open_session(self.now, session_path(number), route));
        self.collect();
    }

    /// Puts a datagram on the wire.
    fn put_on_wire(&mut self, datagram: WireDatagram) {
        self.sent_datagrams += 1;
        self.wire.insert((self.now + ONE_WAY_DELAY, self.sent_datagrams), datagram);
    }

    /// Sends a packet from a router.
    fn send_from_router(&mut self, router: usize, number: u8) {
        let packet = inner_packet(home_address(router), AGENT_ADDRESS);
        let mut octets = vec![0; datagram_length(packet.len())];
        let engine = &mut self.routers[router].engine;
        if let Ok((_, length)) = engine.send_payload(self.now, session_path(number), &packet, &mut octets) {
            octets.truncate(length);
            self.put_on_wire(WireDatagram { router, number, to_agent: true, octets });
        }
    }

    /// Sends a packet of the home agent to a router.
    fn send_to_router(&mut self, router: usize, number: u8) {
        let ends =
            (Endpoint::Ipv6(AGENT_ADDRESS), Endpoint::Ipv6(care_of_address(router, number, self.host_part)));
        let packet = inner_packet(AGENT_ADDRESS, home_address(router));
        self.leader.send_inner_packet(self.now, SessionPeer(router as u32), ends, false, &packet);
        self.collect();
    }

    /// Replaces the leader by another member, which has the records of the store.
    fn take_over(&mut self) {
        let records: Vec<(RecordKey, String)> = self.records.clone().into_iter().collect();
        (self.waiting_changes, self.commit_in_progress, self.commit_count) = (Vec::new(), None, 0);
        self.leader = Sessions::new(&self.config, self.now, Some(&records)).expect("records").expect("keys");
        self.authenticated_paths.clear();
        self.leader_processing_time = Duration::ZERO;
    }

    /// Lets the leader and the routers handle what is due now, and puts their datagrams on the wire.
    fn collect(&mut self) {
        let began = std::time::Instant::now();
        self.leader.handle_due_work(self.now);
        let changes = self.leader.take_changes();
        let number = self.commit_count + 1 + u64::from(self.commit_in_progress.is_some());
        self.leader.hold_until(self.now, (!changes.is_empty()).then_some(number));
        self.waiting_changes.extend(changes);
        let mut sent = Vec::new();
        while let Some(datagram) = self.leader.poll_datagram() {
            assert!(matches!(datagram, OutgoingDatagram::Ipv6 { .. }), "{datagram:?}");
            sent.push(self.leader.outgoing_packet_mut().as_slice().to_vec());
        }
        self.leader_processing_time += began.elapsed();
        if self.commit_in_progress.is_none() && !self.waiting_changes.is_empty() {
            self.commit_in_progress =
                Some((self.now + COMMIT_TIME, std::mem::take(&mut self.waiting_changes)));
        }
        for packet in sent {
            let header = Header::parse(&packet).expect("a header");
            let [.., network, _, _, _, host] = header.destination.segments();
            if host != self.host_part {
                continue;
            }
            let (router, number) = (usize::from(network & 0xfff), (network >> 12) as u8);
            let octets = packet[HEADER_LEN + UDP_HEADER_LENGTH..].to_vec();
            if octets[0] == super::RESPONSE_TYPE {
                let index = [octets[8], octets[9], octets[10], octets[11]];
                *self.response_count_by_initiation.entry((router, index)).or_default() += 1;
            }
            self.put_on_wire(WireDatagram { router, number, to_agent: false, octets });
        }
        for router in 0..self.routers.len() {
            while let Some(output) = self.routers[router].engine.poll_output() {
                let Output::Send { route, datagram } = output else { continue };
                let octets: Vec<u8> = datagram.into();
                let on_wire = WireDatagram { router, number: route.socket as u8, to_agent: true, octets };
                if on_wire.octets[0] == INITIATION_TYPE {
                    self.initiations.push(on_wire.clone());
                }
                self.put_on_wire(on_wire);
            }
        }
    }

    fn deliver(&mut self, datagram: &WireDatagram) {
        let WireDatagram { router, number, to_agent, octets } = datagram;
        let remote = SocketAddr::from((AGENT_ADDRESS, AGENT_PORT));
        if *to_agent {
            let mut packet = PacketBuffer::new();
            packet.copy_from(&udp_packet_to_agent(care_of_address(*router, *number, self.host_part), octets));
            let began = std::time::Instant::now();
            let arrival = self.leader.receive_ipv6_packet(self.now, &mut packet);
            self.leader_processing_time += began.elapsed();
            if let SessionArrival::Packet(from) = arrival {
                assert_eq!(from.session_peer, SessionPeer(*router as u32));
                self.authenticated_paths.insert((*router, *number));
            }
        } else {
            let mut buffer = vec![0; octets.len()];
            let route = DatagramRoute { socket: u32::from(*number), remote };
            let router = &mut self.routers[*router];
            let received = router.engine.receive_datagram(self.now, route, octets, &mut buffer);
            router.received_packets += usize::from(matches!(received, ReceivedDatagram::Payload { .. }));
            router.engine.handle_waiting_handshakes(self.now, 16);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let wire = self.wire.first_key_value().map(|((at, _), _)| *at);
        let writing = self.commit_in_progress.as_ref().map(|(at, _)| *at);
        let timers = self.routers.iter().filter_map(|router| router.engine.poll_timeout());
        let ends = timers.chain(self.leader.poll_timeout()).min().map(|at| at.max(self.now));
        [wire, writing, ends].into_iter().flatten().min()
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.next_event().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            if self.commit_in_progress.as_ref().is_some_and(|(at, _)| *at <= self.now) {
                let (_, changes) = self.commit_in_progress.take().expect("a commit");
                self.records.extend(changes.into_iter().map(|(key, text)| (key, text.expect("a record"))));
                self.commit_count += 1;
                self.leader.handle_written(self.now, self.commit_count);
            }
            while let Some(first) = self.wire.first_entry().filter(|first| first.key().0 <= self.now) {
                let datagram = first.remove();
                if self.kill_before_datagram == Some(self.delivered_datagrams) {
                    self.take_over();
                }
                self.delivered_datagrams += 1;
                if !self.drops_all_datagrams {
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
fn udp_packet_to_agent(source: Ipv6Addr, octets: &[u8]) -> Vec<u8> {
    let length = (octets.len() + UDP_HEADER_LENGTH) as u16;
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: length,
        next_header: protocol::UDP,
        hop_limit: 64,
        source,
        destination: AGENT_ADDRESS,
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
    let mut network = TakeoverNetwork::with_sessions(1000, &[1]);
    let before = network.initiations.len();
    network.take_over();
    assert_eq!(network.established_path_count(), 0);
    network.run_for(ROUND_TRIP);
    println!("the leader spent {:?} of one core on 1000 paths", network.leader_processing_time);
    assert_eq!(network.established_path_count(), 1000);
    // The keepalives of the leader arrive, and then the routers' packets.
    network.run_for(ONE_WAY_DELAY);
    for router in 0..1000 {
        network.send_from_router(router, 1);
    }
    network.run_for(ONE_WAY_DELAY);
    assert_eq!(network.authenticated_paths.len(), 1000);
    assert_eq!(network.initiations.len(), before, "no router began a handshake");
}

/// 2000 handshakes are more than a home agent answers in a second without demanding cookies.
#[test]
fn new_leader_opens_two_paths_of_each_of_1000_routers_within_a_second() {
    let mut network = TakeoverNetwork::with_sessions(1000, &[1, 2]);
    network.take_over();
    network.run_for(ROUND_TRIP + ONE_WAY_DELAY);
    for router in 0..1000 {
        network.send_from_router(router, 1);
    }
    network.run_for(ONE_WAY_DELAY);
    assert!(
        network.authenticated_paths.len() >= 990,
        "the first path of each router comes first: {}",
        network.authenticated_paths.len()
    );
    network.run_for(Duration::from_millis(900));
    assert_eq!(network.established_path_count(), 2000);
}

/// Packets for a router wait for the handshake of its path.
#[test]
fn packets_that_a_new_leader_gets_before_the_handshake_arrive() {
    let mut network = TakeoverNetwork::with_sessions(1, &[1]);
    network.take_over();
    for _ in 0..3 {
        network.send_to_router(0, 1);
    }
    assert_eq!(network.routers[0].received_packets, 0);
    network.run_for(ROUND_TRIP + ONE_WAY_DELAY);
    assert_eq!(network.routers[0].received_packets, 3);
    network.send_to_router(0, 1);
    network.run_for(ONE_WAY_DELAY);
    assert_eq!(network.routers[0].received_packets, 4);
}

/// All leaders start at the same date of the system clock. So only the stored timestamp makes timestamps
/// grow.
#[test]
fn timestamps_of_successive_leaders_grow() {
    let mut network = TakeoverNetwork::with_sessions(2, &[1, 2]);
    for takeover in 0..10 {
        let before = network.initiations.len();
        network.take_over();
        network.run_for(ROUND_TRIP);
        assert_eq!(network.established_path_count(), 4, "takeover {takeover}");
        assert_eq!(network.initiations.len(), before, "takeover {takeover}");
        network.run_for(Duration::from_secs(20));
    }
}

/// Each run kills the leader before another datagram. An attacker has recorded each initiation, and sends
/// each twice to the next leader.
#[test]
fn initiation_gets_one_response_of_all_members_together() {
    let life = |kill_before_datagram: Option<usize>| {
        let mut network = TakeoverNetwork::new(2);
        network.kill_before_datagram = kill_before_datagram;
        for (router, number) in network.each_path(&[1, 2]) {
            network.open_session(router, number);
            network.run_for(Duration::from_millis(4));
        }
        network.run_for(Duration::from_secs(1));
        for _ in 0..2 {
            for recorded in network.initiations.clone() {
                network.put_on_wire(recorded);
                network.run_for(Duration::from_millis(5));
            }
        }
        // A router that gets no answer over a session renews this session.
        for (router, number) in network.each_path(&[1, 2]) {
            network.send_from_router(router, number);
            network.run_for(ROUND_TRIP);
            if !network.authenticated_paths.contains(&(router, number)) {
                network.routers[router].engine.renew_handshake(network.now, session_path(number));
                network.run_for(Duration::from_secs(1));
            }
        }
        assert!(
            network.response_count_by_initiation.values().all(|count| *count == 1),
            "{kill_before_datagram:?}: {:?}",
            network.response_count_by_initiation
        );
        network.expect_sessions(&[1, 2]);
        network.delivered_datagrams
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
    let mut network = TakeoverNetwork::with_sessions(1, &[1]);
    network.take_over();
    network.run_for(Duration::from_secs(1));
    network.host_part = 2;
    network.routers[0].engine.renew_handshake(network.now, session_path(1));
    network.collect();
    network.run_for(Duration::from_secs(1));
    network.send_from_router(0, 1);
    network.run_for(Duration::from_secs(1));
    let before = network.initiations.len();
    network.take_over();
    network.run_for(ROUND_TRIP);
    network.expect_sessions(&[1]);
    assert_eq!(network.initiations.len(), before);
}

/// No router is reachable any more. The leader gives up after a few initiations, and forgets the routes.
#[test]
fn routes_without_an_answer_are_given_up() {
    let mut network = TakeoverNetwork::with_sessions(20, &[1, 2, 3]);
    network.drops_all_datagrams = true;
    network.take_over();
    let sent = network.sent_datagrams;
    network.run_for(Duration::from_secs(30));
    assert!(network.sent_datagrams - sent <= 60 * 8, "{}", network.sent_datagrams - sent);
    assert_eq!(network.leader.session_engine.session_count(), 0);
    assert!(network.leader.pending_packets.is_empty() && network.leader.stored_routes.is_empty());
    assert!(network.records.values().all(|record| !record.contains("routes")), "{:?}", network.records);
    network.take_over();
    network.collect();
    assert_eq!(network.messages_on_wire(INITIATION_TYPE), 0);
}

/// After a takeover the router renews its session as before, and packets in both directions continue to
/// arrive.
#[test]
fn session_that_a_leader_has_opened_goes_on() {
    let mut network = TakeoverNetwork::with_sessions(1, &[1]);
    network.take_over();
    for second in 0..400 {
        network.run_for(Duration::from_secs(1));
        network.authenticated_paths.clear();
        let received = network.routers[0].received_packets;
        network.send_from_router(0, 1);
        network.send_to_router(0, 1);
        network.run_for(ROUND_TRIP);
        assert_eq!(network.authenticated_paths.len(), 1, "second {second}");
        assert_eq!(network.routers[0].received_packets, received + 1, "second {second}");
    }
    assert!(network.wire.values().all(|datagram| datagram.octets[0] == DATA_TYPE));
}

/// The stored routes may have any content. A new home agent opens each path once, so the number of its
/// sessions is bounded.
#[test]
fn number_of_sessions_that_a_leader_opens_is_bounded() {
    let mut network = TakeoverNetwork::with_sessions(3, &[1]);
    let key = |router: u32| {
        RecordKey::Session(carnet_api::config::PublicKey(*private_key(router + 1).public_key().octets()))
    };
    let routes: Vec<String> =
        (0..=255).map(|number| format!("\"{number}\":\"[2001:db8:10:{number:x}::1]:4191\"")).collect();
    // Router 77 is not in the config, but the store has a record of it.
    for router in [0, 1, 2, 77] {
        network.records.insert(key(router), format!("{{\"version\":1,\"routes\":{{{}}}}}", routes.join(",")));
    }
    network.drops_all_datagrams = true;
    network.take_over();
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.leader.session_engine.session_count(), 3 * 16);
}
