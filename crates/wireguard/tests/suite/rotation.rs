//! Tests in which either end replaces its key while traffic flows.

use std::time::Duration;

use carnet_wireguard::{Output, PrivateKey, PublicKey, RemotePeer, WireguardDropReason};

use crate::network::{
    HOME_AGENT_PEER, TODAY_UNIX_SECONDS, TestNetwork, home_agent_private_key, new_engine, router_private_key,
    session_path,
};

fn next_router_private_key() -> PrivateKey {
    PrivateKey::from_random([21; 32])
}

fn next_home_agent_private_key() -> PrivateKey {
    PrivateKey::from_random([22; 32])
}

fn remote_peer(public_keys: Vec<PublicKey>) -> RemotePeer {
    RemotePeer { peer_id: HOME_AGENT_PEER, public_keys, preshared_key: None }
}

fn next_and_present_keys(next: PrivateKey, present: PrivateKey) -> Vec<PublicKey> {
    vec![next.public_key(), present.public_key()]
}

/// Sends a payload in each direction, and checks that both arrive.
fn exchange_payloads(network: &mut TestNetwork, text: &str) {
    network.now += Duration::from_millis(1);
    let (up, down) = (network.received_at_home_agent.len(), network.received_at_router.len());
    network.send_to_home_agent(1, text.as_bytes()).expect("a session");
    network.deliver_all_datagrams();
    network.send_to_router(1, text.as_bytes()).expect("a session");
    network.deliver_all_datagrams();
    assert_eq!(
        (network.received_at_home_agent.len(), network.received_at_router.len()),
        (up + 1, down + 1),
        "{text}"
    );
}

/// Returns the receiver index of a datagram that the router sends now. Each session has its own index, so the
/// index shows which session carries the data.
fn session_index_of_next_message(network: &mut TestNetwork) -> Vec<u8> {
    network.send_to_home_agent(1, b"index").expect("a session");
    let datagram = network.datagrams_on_wire.pop_back().expect("a datagram");
    network.deliver_datagram(&datagram);
    datagram.octets[4..8].to_vec()
}

#[test]
fn router_changes_its_key_without_loss() {
    let mut network = TestNetwork::with_established_paths(&[1, 2]);
    let old = session_index_of_next_message(&mut network);
    assert!(network.home_agent_engine.set_peer(
        network.now,
        remote_peer(next_and_present_keys(next_router_private_key(), router_private_key()))
    ));
    network
        .router_engine
        .set_private_keys(network.now, vec![next_router_private_key(), router_private_key()]);
    network.collect_datagrams();
    exchange_before_new_handshakes(&mut network);
    network.deliver_all_datagrams();
    // After the change, a delayed datagram of the old session arrives.
    assert_ne!(session_index_of_next_message(&mut network), old);
    exchange_payloads(&mut network, "side by side");
    assert_eq!(network.home_agent_engine.session_count(), 4);

    network.router_engine.set_private_keys(network.now, vec![next_router_private_key()]);
    assert!(
        network
            .home_agent_engine
            .set_peer(network.now, remote_peer(vec![next_router_private_key().public_key()]))
    );
    exchange_payloads(&mut network, "afterwards");
    assert_eq!((network.router_engine.session_count(), network.home_agent_engine.session_count()), (2, 2));
    assert_eq!(network.router_engine.public_keys(), [next_router_private_key().public_key()]);
}

/// Exchanges payloads before the handshakes of the new keys arrive. Then delivers the handshakes, and a
/// delayed datagram of the old session.
fn exchange_before_new_handshakes(network: &mut TestNetwork) {
    let handshakes: Vec<_> = network.datagrams_on_wire.drain(..).collect();
    assert!(handshakes.iter().all(|datagram| datagram.message_type() == 1) && !handshakes.is_empty());
    exchange_payloads(network, "before");
    network.send_to_home_agent(1, b"late").expect("a session");
    let late = network.datagrams_on_wire.pop_back().expect("a datagram");
    network.datagrams_on_wire.extend(handshakes);
    network.deliver_all_datagrams();
    let before = network.received_at_home_agent.len();
    assert_eq!(network.deliver_datagram(&late), None);
    assert_eq!(network.received_at_home_agent.len(), before + 1);
}

#[test]
fn home_agent_changes_its_key_without_loss() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let old = session_index_of_next_message(&mut network);
    network
        .home_agent_engine
        .set_private_keys(network.now, vec![next_home_agent_private_key(), home_agent_private_key()]);
    exchange_payloads(&mut network, "only the home agent has the key");
    assert!(network.router_engine.set_peer(
        network.now,
        remote_peer(next_and_present_keys(next_home_agent_private_key(), home_agent_private_key()))
    ));
    network.collect_datagrams();
    network.deliver_all_datagrams();
    assert_ne!(session_index_of_next_message(&mut network), old);
    exchange_payloads(&mut network, "side by side");
    assert!(
        network
            .router_engine
            .set_peer(network.now, remote_peer(vec![next_home_agent_private_key().public_key()]))
    );
    network.home_agent_engine.set_private_keys(network.now, vec![next_home_agent_private_key()]);
    exchange_payloads(&mut network, "afterwards");
}

#[test]
fn both_ends_change_their_keys_at_once() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let now = network.now;
    network
        .home_agent_engine
        .set_private_keys(now, vec![next_home_agent_private_key(), home_agent_private_key()]);
    network.router_engine.set_private_keys(now, vec![next_router_private_key(), router_private_key()]);
    exchange_payloads(&mut network, "no end knows the other's key");
    assert!(network.router_engine.set_peer(
        now,
        remote_peer(next_and_present_keys(next_home_agent_private_key(), home_agent_private_key()))
    ));
    assert!(
        network.home_agent_engine.set_peer(
            now,
            remote_peer(next_and_present_keys(next_router_private_key(), router_private_key()))
        )
    );
    network.collect_datagrams();
    network.deliver_all_datagrams();
    exchange_payloads(&mut network, "four pairs");
    let until = network.now + Duration::from_secs(10);
    network.run_until_time(until);
    assert!(
        network.router_engine.set_peer(until, remote_peer(vec![next_home_agent_private_key().public_key()]))
    );
    network.router_engine.set_private_keys(until, vec![next_router_private_key()]);
    assert!(
        network.home_agent_engine.set_peer(until, remote_peer(vec![next_router_private_key().public_key()]))
    );
    network.home_agent_engine.set_private_keys(until, vec![next_home_agent_private_key()]);
    exchange_payloads(&mut network, "one pair");
}

#[test]
fn traffic_uses_old_session_until_the_peer_knows_the_new_key() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let old = session_index_of_next_message(&mut network);
    network
        .router_engine
        .set_private_keys(network.now, vec![next_router_private_key(), router_private_key()]);
    network.collect_datagrams();
    for second in 0..20 {
        let until = network.now + Duration::from_secs(1);
        network.run_until_time(until);
        exchange_payloads(&mut network, "old");
        assert_eq!(session_index_of_next_message(&mut network), old);
        let is_report = |output: &Output| matches!(output, Output::UnknownKey { .. });
        let reports = network.home_agent_outputs.iter().filter(|output| is_report(output)).count();
        assert!(reports == usize::from(second > 10) || second == 10, "{reports} after {second} s");
    }
    assert!(network.home_agent_engine.drop_count(WireguardDropReason::UnknownKey) > 3);
    assert!(!network.router_outputs.iter().any(|output| matches!(output, Output::NoAnswer { .. })));
    assert!(network.home_agent_engine.set_peer(
        network.now,
        remote_peer(next_and_present_keys(next_router_private_key(), router_private_key()))
    ));
    let until = network.now + Duration::from_secs(5);
    network.run_until_time(until);
    assert_ne!(session_index_of_next_message(&mut network), old);
    exchange_payloads(&mut network, "new");
}

/// The router restarts while it replaces its key. The home agent knows only the old key, both keys, or only
/// the new key.
#[test]
fn restarted_router_opens_session_with_old_or_new_key() {
    let (old, new) = (router_private_key().public_key(), next_router_private_key().public_key());
    for known in [vec![old], vec![new, old], vec![new]] {
        let mut network = TestNetwork::with_established_paths(&[1]);
        assert!(network.home_agent_engine.set_peer(network.now, remote_peer(known.clone())));
        let now = network.now + Duration::from_secs(1);
        network.now = now;
        network.router_engine = new_engine(
            router_private_key(),
            30,
            now,
            TODAY_UNIX_SECONDS + 60,
            home_agent_private_key().public_key(),
        );
        network.router_engine.set_private_keys(now, vec![next_router_private_key(), router_private_key()]);
        network.open_session(1);
        network.deliver_all_datagrams();
        exchange_payloads(&mut network, "after the restart");
    }
}

/// The home agent restarts while it replaces its key. The router knows only the old key, both keys, or only
/// the new key.
#[test]
fn restarted_home_agent_opens_session_with_old_or_new_key() {
    let (old, new) = (home_agent_private_key().public_key(), next_home_agent_private_key().public_key());
    for known in [vec![old], vec![new, old], vec![new]] {
        let mut network = TestNetwork::new();
        let now = network.now;
        network
            .home_agent_engine
            .set_private_keys(now, vec![next_home_agent_private_key(), home_agent_private_key()]);
        assert!(network.router_engine.set_peer(now, remote_peer(known)));
        network.open_session(1);
        network.deliver_all_datagrams();
        exchange_payloads(&mut network, "after the restart");
    }
}

#[test]
fn old_key_is_refused_after_the_change() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    assert!(
        network
            .home_agent_engine
            .set_peer(network.now, remote_peer(vec![next_router_private_key().public_key()]))
    );
    assert_eq!(network.home_agent_engine.session_count(), 0);
    network.now += Duration::from_secs(1);
    network.router_engine.renew_handshake(network.now, session_path(1));
    network.collect_datagrams();
    let initiation = network.datagrams_on_wire.pop_front().expect("an initiation");
    assert_eq!(network.deliver_datagram(&initiation), Some(WireguardDropReason::UnknownKey));
}

#[test]
fn handshake_recorded_under_the_old_key_opens_no_session_of_the_new_key() {
    let mut network = TestNetwork::new();
    network.open_session(1);
    let recording = network.datagrams_on_wire[0].clone();
    network.deliver_all_datagrams();
    network
        .home_agent_engine
        .set_private_keys(network.now, vec![next_home_agent_private_key(), home_agent_private_key()]);
    assert_eq!(network.deliver_datagram(&recording), Some(WireguardDropReason::OldTimestamp));
    network.home_agent_engine.set_private_keys(network.now, vec![next_home_agent_private_key()]);
    assert_eq!(network.deliver_datagram(&recording), Some(WireguardDropReason::Mac));
}

#[test]
fn key_of_another_peer_is_refused_as_a_second_key() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let other = RemotePeer {
        peer_id: carnet_wireguard::PeerId(9),
        ..remote_peer(vec![next_router_private_key().public_key()])
    };
    assert!(network.home_agent_engine.set_peer(network.now, other));
    assert!(!network.home_agent_engine.set_peer(
        network.now,
        remote_peer(next_and_present_keys(next_router_private_key(), router_private_key()))
    ));
    exchange_payloads(&mut network, "unchanged");
}

/// The keys of direct routes come from messages, so their number must not grow the memory.
#[test]
fn forgotten_peer_leaves_nothing_behind() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let before = format!("{:?}", network.home_agent_engine);
    for number in 0..100u8 {
        let id = carnet_wireguard::PeerId(100 + u32::from(number));
        let key = PrivateKey::from_random([number ^ 0x80; 32]).public_key();
        let other = RemotePeer { peer_id: id, ..remote_peer(vec![key]) };
        assert!(network.home_agent_engine.set_peer(network.now, other));
        network.home_agent_engine.forget_peer(id);
    }
    assert_eq!(format!("{:?}", network.home_agent_engine), before);
    // Add another remote end. The engine gives its key pair a new pair number, so the router's session is not
    // affected.
    let key = PrivateKey::from_random([0x77; 32]).public_key();
    let other = RemotePeer { peer_id: carnet_wireguard::PeerId(9), ..remote_peer(vec![key]) };
    assert!(network.home_agent_engine.set_peer(network.now, other));
    exchange_payloads(&mut network, "unchanged");
    // The removed router of the network leaves no state behind, and may open a session again.
    network.home_agent_engine.forget_peer(HOME_AGENT_PEER);
    let after = format!("{:?}", network.home_agent_engine);
    assert!(after.contains("peers: 1, sessions: 0, pairs: 1, timestamps: 0"), "{after}");
    assert!(
        network.home_agent_engine.set_peer(network.now, remote_peer(vec![router_private_key().public_key()]))
    );
    network.now += Duration::from_secs(1);
    network.router_engine.renew_handshake(network.now, session_path(1));
    network.collect_datagrams();
    network.deliver_all_datagrams();
    exchange_payloads(&mut network, "again");
}
