//! Tests of the sessions between two mobile routers, in virtual time.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_wireguard::PrivateKey;

use super::super::super::OutgoingDatagram;
use super::*;

const START: Time = Time::from_secs(1000);
const MESSAGE_INTERVAL: Duration = Duration::from_millis(250);
/// Number that each router gives to the key of its peer.
const SESSION_PEER: SessionPeer = SessionPeer(1 << 31);
const MARKER: &[u8] = b"MARKER-of-the-payload";

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn care_of_address(router: u8, uplink: u8) -> Ipv6Addr {
    address(&format!("2001:db8:f{router}{uplink}::10"))
}

fn private_key(router: u8) -> PrivateKey {
    PrivateKey::from_random([router + 1; 32])
}

fn public_key(router: u8) -> [u8; 32] {
    *private_key(router).public_key().octets()
}

/// Returns the sessions of a mobile router with a key pair.
fn new_sessions(router: u8) -> Sessions {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder: PathBuf = std::env::temp_dir().join(format!("carnet-direct-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("own.key");
    fs::write(&file, private_key(router).to_text().as_bytes()).expect("a key");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a mode");
    let home_agent_key = private_key(99).public_key();
    let config = format!(
        "[station]\nname = 'r'\nprivate_key_file = '{}'\n[mobile_router]\nhome_address = '2001:db8:1::5'\n\
         home_prefix = '2001:db8:1::/64'\nhome_agent = '2001:db8:1::1'\nprefixes = ['2001:db8:a::/64']\n\
         lan = ['lan0']\nhome_agent_key = '{home_agent_key}'\nuplink = [{{ interface = 'eth0' }}]\n",
        file.display()
    );
    let config = carnet_api::config::Config::parse(&config, "r.toml").expect("a config");
    let _ = fs::remove_dir_all(&folder);
    let mut sessions = Sessions::new(&config, START, None).expect("randomness").expect("keys");
    sessions.set_care_of_addresses(&[care_of_address(router, 0), care_of_address(router, 1)]);
    sessions
}

/// A message about a direct route, with the marker behind its header.
fn direct_route_message(local: Ipv6Addr, remote: Ipv6Addr) -> Vec<u8> {
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: MARKER.len() as u16,
        next_header: protocol::MOBILITY,
        hop_limit: 64,
        source: local,
        destination: remote,
    };
    [&header.emit()[..], MARKER].concat()
}

/// Two routers with a network between them.
struct RouterPair {
    now: Time,
    routers: [Sessions; 2],
    /// Messages that each router has received, by remote address.
    received_from: [Vec<Ipv6Addr>; 2],
    /// Number of delivered datagrams by WireGuard's message type.
    message_counts_by_type: [usize; 5],
}

impl RouterPair {
    fn new() -> RouterPair {
        let mut pair = RouterPair {
            now: START,
            routers: [new_sessions(0), new_sessions(1)],
            received_from: [Vec::new(), Vec::new()],
            message_counts_by_type: [0; 5],
        };
        pair.routers[0].accept_key(START, SESSION_PEER, public_key(1));
        pair.routers[1].accept_key(START, SESSION_PEER, public_key(0));
        pair
    }

    fn send(&mut self, from: usize, local: Ipv6Addr, remote: Ipv6Addr) {
        let packet = direct_route_message(local, remote);
        self.routers[from].send_inner_packet(
            self.now,
            SESSION_PEER,
            (local.into(), remote.into()),
            false,
            &packet,
        );
    }

    /// Returns the datagrams that a router has to send.
    fn take_datagrams(&mut self, from: usize) -> Vec<Vec<u8>> {
        let router = &mut self.routers[from];
        router.handle_due_work(self.now);
        let mut datagrams = Vec::new();
        while let Some(datagram) = router.poll_datagram() {
            assert!(matches!(datagram, OutgoingDatagram::Ipv6 { .. }));
            datagrams.push(router.outgoing_packet_mut().as_slice().to_vec());
        }
        datagrams
    }

    fn deliver(&mut self, to: usize, datagram: &[u8]) {
        assert!(!datagram.windows(MARKER.len()).any(|octets| octets == MARKER), "the marker is in the clear");
        self.message_counts_by_type[usize::from(datagram[48])] += 1;
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(datagram);
        match self.routers[to].receive_ipv6_packet(self.now, &mut buffer) {
            SessionArrival::Packet(SessionPacketOrigin {
                session_peer: SESSION_PEER,
                tunnel_ends: (_, Endpoint::Ipv6(remote)),
                ..
            }) => {
                assert!(buffer.as_slice().windows(MARKER.len()).any(|octets| octets == MARKER));
                self.received_from[to].push(remote);
            }
            SessionArrival::Consumed => {}
            other => panic!("{other:?}"),
        }
    }

    /// Delivers all datagrams of both routers.
    fn deliver_all(&mut self) {
        for _ in 0..10 {
            for from in [0, 1] {
                for datagram in self.take_datagrams(from) {
                    self.deliver(1 - from, &datagram);
                }
            }
        }
    }
}

#[test]
fn first_message_waits_for_the_handshake_and_the_answer_takes_the_same_session() {
    let mut pair = RouterPair::new();
    pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
    pair.deliver_all();
    assert_eq!(pair.received_from[1], [care_of_address(0, 0)]);
    pair.send(1, care_of_address(1, 0), care_of_address(0, 0));
    pair.deliver_all();
    assert_eq!(pair.received_from[0], [care_of_address(1, 0)]);
    assert_eq!(pair.message_counts_by_type[1], 1, "one handshake");
}

#[test]
fn two_routers_that_begin_at_once_both_get_through() {
    let mut pair = RouterPair::new();
    pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
    pair.send(1, care_of_address(1, 0), care_of_address(0, 0));
    let crossing = [pair.take_datagrams(0), pair.take_datagrams(1)];
    for (from, datagrams) in crossing.iter().enumerate() {
        datagrams.iter().for_each(|datagram| pair.deliver(1 - from, datagram));
    }
    pair.deliver_all();
    assert_eq!((pair.received_from[0].len(), pair.received_from[1].len()), (1, 1));
    for _ in 0..100 {
        pair.now += MESSAGE_INTERVAL;
        pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
        pair.send(1, care_of_address(1, 0), care_of_address(0, 0));
        pair.deliver_all();
    }
    assert_eq!((pair.received_from[0].len(), pair.received_from[1].len()), (101, 101));
    assert_eq!(pair.message_counts_by_type[1], 2, "no handshake more");
}

#[test]
fn handover_of_either_end_needs_no_handshake() {
    let mut pair = RouterPair::new();
    pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
    pair.deliver_all();
    pair.send(0, care_of_address(0, 1), care_of_address(1, 0));
    pair.deliver_all();
    pair.send(1, care_of_address(1, 1), care_of_address(0, 1));
    pair.deliver_all();
    assert_eq!(
        pair.received_from,
        [vec![care_of_address(1, 1)], vec![care_of_address(0, 0), care_of_address(0, 1)]]
    );
    assert_eq!(pair.message_counts_by_type[1], 1);
    // The next handshake uses the new addresses.
    pair.now += Duration::from_secs(125);
    pair.send(0, care_of_address(0, 1), care_of_address(1, 1));
    let mut datagrams = pair.take_datagrams(0);
    pair.now += Duration::from_secs(1);
    datagrams.extend(pair.take_datagrams(0));
    let initiation = datagrams.iter().find(|datagram| datagram[48] == 1).expect("a handshake");
    let header = Header::parse(initiation).expect("a header");
    assert_eq!((header.source, header.destination), (care_of_address(0, 1), care_of_address(1, 1)));
}

#[test]
fn end_that_has_restarted_is_found_by_silence() {
    let mut pair = RouterPair::new();
    pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
    pair.deliver_all();
    pair.routers[1] = new_sessions(1);
    pair.routers[1].accept_key(pair.now, SESSION_PEER, public_key(0));
    pair.received_from[1].clear();
    for _ in 0..8 {
        pair.now += MESSAGE_INTERVAL;
        pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
        pair.deliver_all();
    }
    assert!(!pair.received_from[1].is_empty());
    // Now the restarted router sends the first message, and begins the handshake.
    pair.routers[1] = new_sessions(1);
    pair.routers[1].accept_key(pair.now, SESSION_PEER, public_key(0));
    pair.now += SIGNALLING_SILENCE * 2;
    pair.send(1, care_of_address(1, 0), care_of_address(0, 0));
    pair.deliver_all();
    assert_eq!(pair.received_from[0], [care_of_address(1, 0)]);
    pair.received_from[1].clear();
    pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
    pair.deliver_all();
    assert_eq!(pair.received_from[1], [care_of_address(0, 0)], "the answer takes the session that lives");
}

#[test]
fn router_whose_key_is_unknown_gets_no_answer() {
    let mut pair = RouterPair::new();
    pair.routers[1].end_direct(SESSION_PEER);
    for _ in 0..40 {
        pair.now += MESSAGE_INTERVAL;
        pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
        for datagram in pair.take_datagrams(0) {
            pair.deliver(1, &datagram);
        }
        assert!(pair.take_datagrams(1).is_empty());
    }
    assert!(pair.received_from[1].is_empty());
    assert!(
        pair.message_counts_by_type[1] > 3 && pair.message_counts_by_type[4] == 0,
        "{:?}",
        pair.message_counts_by_type
    );
}

#[test]
fn ended_session_carries_no_packet_and_leaves_no_state() {
    let mut pair = RouterPair::new();
    pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
    pair.deliver_all();
    pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
    let last = pair.take_datagrams(0);
    pair.routers[1].end_direct(SESSION_PEER);
    pair.deliver(1, &last[0]);
    assert_eq!(pair.received_from[1].len(), 1);
    pair.send(1, care_of_address(1, 0), care_of_address(0, 0));
    assert!(pair.take_datagrams(1).is_empty());
    assert_eq!(pair.routers[1].session_engine.session_count(), 0);
}

#[test]
fn keys_of_config_and_of_this_station_are_refused() {
    let mut router = new_sessions(0);
    for key in [public_key(0), public_key(99)] {
        router.accept_key(START, SESSION_PEER, key);
        assert!(router.direct_sessions.peers.is_empty());
    }
    router.accept_key(START, SESSION_PEER, public_key(1));
    assert_eq!(router.direct_sessions.peers.len(), 1);
    // A home agent announces the same key as its next key, so the sessions for direct routes end.
    router.release_key(PublicKey::from(public_key(1)));
    assert!(router.direct_sessions.peers.is_empty() && router.direct_sessions.session_by_peer.is_empty());
}

/// A datagram between mobile routers must come from the UDP port of sessions, and go to a care-of address
/// with direct routes.
#[test]
fn datagram_from_another_port_or_to_an_address_without_routes_is_not_opened() {
    let mut pair = RouterPair::new();
    pair.send(0, care_of_address(0, 0), care_of_address(1, 0));
    let mut datagram = pair.take_datagrams(0).remove(0);
    let elsewhere = care_of_address(3, 0).octets();
    let mut foreign = datagram.clone();
    foreign[24..40].copy_from_slice(&elsewhere);
    let mut buffer = PacketBuffer::new();
    buffer.copy_from(&foreign);
    assert_eq!(pair.routers[1].receive_ipv6_packet(pair.now, &mut buffer), SessionArrival::Foreign);
    datagram[40..42].copy_from_slice(&53u16.to_be_bytes());
    pair.deliver(1, &datagram);
    assert!(pair.take_datagrams(1).is_empty());
}
