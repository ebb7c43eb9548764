//! The paths of one key: each path has its own session, and a handshake of one path opens no session of
//! another.

use std::time::Duration;

use carnet_wireguard::{DatagramRoute, Output, WireguardDropReason};

use crate::network::{
    DatagramOnWire, TODAY_UNIX_SECONDS, TestNetwork, home_address, home_agent_private_key, new_engine,
    router_private_key, session_path, uplink_address,
};

#[test]
fn handshakes_of_two_paths_that_overtake_each_other_are_both_answered() {
    let mut network = TestNetwork::new();
    for number in [1, 2, 3] {
        network.open_session(number);
        network.now += Duration::from_millis(40);
    }
    let initiations: Vec<DatagramOnWire> = network.datagrams_on_wire.drain(..).collect();
    for initiation in initiations.iter().rev() {
        assert_eq!(network.deliver_datagram(initiation), None);
    }
    network.deliver_all_datagrams();
    for number in [1, 2, 3] {
        assert!(
            network.router_engine.is_established(session_path(number))
                && network.home_agent_engine.is_established(session_path(number))
        );
        assert_eq!(
            network.home_agent_engine.route(session_path(number)).expect("route").remote,
            uplink_address(number)
        );
    }
    for number in [1, 2, 3] {
        network.send_to_home_agent(number, format!("over {number}").as_bytes()).expect("session");
    }
    network.deliver_all_datagrams();
    let expected: Vec<(u8, String)> = [1, 2, 3].map(|number| (number, format!("over {number}"))).into();
    assert_eq!(network.texts_received_at_home_agent(), expected);
}

/// An attacker replays a recorded handshake. It knows the home agent's public key, so it can also write
/// another index and the MAC that belongs to it. The home agent drops all copies.
#[test]
fn home_agent_drops_replayed_handshake_on_every_path() {
    let mut network = TestNetwork::with_established_paths(&[2]);
    network.now += Duration::from_secs(1);
    network.open_session(1);
    let recording = network.datagrams_on_wire[0].clone();
    network.deliver_all_datagrams();
    network.home_agent_outputs.clear();
    let stranger = "203.0.113.9:9".parse().expect("address");
    for index in [None, Some(0u32), Some(2), Some(0x0200_0000)] {
        let mut copy = DatagramOnWire { source: stranger, ..recording.clone() };
        if let Some(index) = index {
            copy.octets[4..8].copy_from_slice(&index.to_le_bytes());
            crate::noise::write_mac1(&mut copy.octets, home_agent_private_key().public_key());
        }
        assert_eq!(network.deliver_datagram(&copy), Some(WireguardDropReason::OldTimestamp), "{index:?}");
        assert!(network.datagrams_on_wire.is_empty(), "no answer to a recording");
    }
    assert!(
        network
            .home_agent_outputs
            .iter()
            .all(|output| *output == Output::OldTimestamp { path: session_path(1) })
    );
    for number in [1, 2] {
        network.send_to_router(number, b"still here").expect("session");
        assert_eq!(
            network.datagrams_on_wire.pop_back().expect("datagram").destination,
            uplink_address(number)
        );
    }
}

#[test]
fn restarted_home_agent_drops_handshake_recorded_before_the_restart() {
    let mut network = TestNetwork::new();
    network.open_session(1);
    let recording = network.datagrams_on_wire[0].clone();
    network.deliver_all_datagrams();
    let restart = |network: &mut TestNetwork| {
        network.home_agent_engine = new_engine(
            home_agent_private_key(),
            12,
            network.now,
            TODAY_UNIX_SECONDS,
            router_private_key().public_key(),
        );
    };
    let accepted = network.home_agent_outputs.iter().find_map(|output| match output {
        Output::Accepted { path, timestamp, .. } => Some((*path, *timestamp)),
        _ => None,
    });
    let (accepted_path, timestamp) = accepted.expect("an accepted handshake");
    assert_eq!((accepted_path, timestamp.path_number()), (session_path(1), 1));

    restart(&mut network);
    network.home_agent_engine.restore_timestamp(
        router_private_key().public_key(),
        accepted_path.path_number,
        timestamp,
    );
    assert_eq!(network.deliver_datagram(&recording), Some(WireguardDropReason::OldTimestamp));

    // Without the stored timestamps the home agent answers the replayed handshake. But no session opens,
    // because the attacker does not have the private key.
    restart(&mut network);
    assert_eq!(network.deliver_datagram(&recording), None);
    assert_eq!(network.datagrams_on_wire.len(), 1);
    assert!(!network.home_agent_engine.is_established(session_path(1)));
    assert!(network.home_agent_engine.route(session_path(1)).is_none());
}

/// An attacker on the path withholds an initiation of the router and sends it from its own address. The home
/// agent still sends the session's data to the router's address.
#[test]
fn unconfirmed_initiation_from_another_address_moves_no_session() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    network.now += Duration::from_secs(1);
    network.router_engine.renew_handshake(network.now, session_path(1));
    network.collect_datagrams();
    let mut initiation = network.datagrams_on_wire.pop_front().expect("initiation");
    initiation.source = "203.0.113.9:9".parse().expect("address");
    assert_eq!(network.deliver_datagram(&initiation), None);
    assert_eq!(network.datagrams_on_wire.pop_front().expect("response").destination, initiation.source);
    network.send_to_router(1, b"down").expect("session");
    assert_eq!(network.datagrams_on_wire.pop_front().expect("datagram").destination, uplink_address(1));
}

/// A NAT gives the router another port. The home agent sends to the new port only after a test: a router
/// under an attacker's control could forge the address of a victim.
#[test]
fn data_from_another_address_move_no_session_before_a_test() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    network.home_agent_outputs.clear();
    network.send_to_home_agent(1, b"first").expect("session");
    let delayed = network.datagrams_on_wire.pop_front().expect("datagram");
    for text in [b"second", b"third "] {
        network.send_to_home_agent(1, text).expect("session");
        let mut moved = network.datagrams_on_wire.pop_front().expect("datagram");
        moved.source = "198.51.100.77:1024".parse().expect("address");
        assert_eq!(network.deliver_datagram(&moved), None);
    }
    assert_eq!(network.deliver_datagram(&delayed), None);
    let route = DatagramRoute { socket: 0, remote: "198.51.100.77:1024".parse().expect("address") };
    assert_eq!(network.home_agent_outputs, [Output::Elsewhere { path: session_path(1), route }]);
    assert_eq!(network.received_at_home_agent.len(), 3, "the payloads count all the same");
    assert_eq!(network.home_agent_engine.route(session_path(1)).expect("route").remote, uplink_address(1));

    let mut test = [0; 64];
    assert_eq!(
        network.home_agent_engine.encrypt_for_other_route(
            network.now,
            session_path(1),
            b"sixteen octets !",
            &mut test
        ),
        Ok(48)
    );
    network.home_agent_engine.set_path_route(session_path(1), route);
    network.send_to_router(1, b"down").expect("session");
    assert_eq!(network.datagrams_on_wire.pop_front().expect("datagram").destination, route.remote);
}

/// The home agent sends the response to the source of the handshake. Only a router that receives the response
/// can confirm it, which proves the address.
#[test]
fn session_moves_to_a_new_address_when_its_handshake_is_confirmed() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    network.home_agent_outputs.clear();
    network.now += Duration::from_secs(1);
    network.router_engine.renew_handshake(network.now, session_path(1));
    network.collect_datagrams();
    let elsewhere = "198.51.100.77:1024".parse().expect("address");
    let mut initiation = network.datagrams_on_wire.pop_front().expect("initiation");
    initiation.source = elsewhere;
    network.deliver_datagram(&initiation);
    let mut response = network.datagrams_on_wire.pop_front().expect("response");
    assert_eq!(response.destination, elsewhere);
    response.destination = uplink_address(1);
    network.deliver_datagram(&response);
    let mut keepalive = network.datagrams_on_wire.pop_front().expect("keepalive");
    keepalive.source = elsewhere;
    network.deliver_datagram(&keepalive);
    let route = DatagramRoute { socket: 0, remote: elsewhere };
    assert!(
        network.home_agent_outputs.contains(&Output::Moved { path: session_path(1), route }),
        "{:?}",
        network.home_agent_outputs
    );
    assert_eq!(network.home_agent_engine.route(session_path(1)), Some(route));
}

#[test]
fn router_does_not_follow_the_home_agent_to_another_address() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    network.send_to_router(1, b"down").expect("session");
    let mut down = network.datagrams_on_wire.pop_front().expect("datagram");
    down.source = "203.0.113.9:9".parse().expect("address");
    assert_eq!(network.deliver_datagram(&down), None);
    assert_eq!(network.router_engine.route(session_path(1)).expect("route").remote, home_address());
}

#[test]
fn path_numbers_range_from_0_to_15() {
    let numbers: Vec<u8> = (0..=15).collect();
    let network = TestNetwork::with_established_paths(&numbers);
    assert_eq!(network.home_agent_engine.session_count(), 16);
    assert_eq!(carnet_wireguard::PathNumber::new(16), None);
}

#[test]
fn removed_peer_loses_its_sessions_and_keeps_its_timestamps() {
    let mut network = TestNetwork::new();
    network.open_session(1);
    let recording = network.datagrams_on_wire[0].clone();
    network.deliver_all_datagrams();
    network.home_agent_engine.remove_peer(crate::network::HOME_AGENT_PEER);
    assert_eq!(network.home_agent_engine.session_count(), 0);
    network.send_to_home_agent(1, b"late").expect("session");
    let datagram = network.datagrams_on_wire.pop_front().expect("datagram");
    assert_eq!(network.deliver_datagram(&datagram), Some(WireguardDropReason::NoSession));
    let peer = carnet_wireguard::RemotePeer {
        peer_id: crate::network::HOME_AGENT_PEER,
        public_keys: vec![router_private_key().public_key()],
        preshared_key: None,
    };
    assert!(network.home_agent_engine.set_peer(network.now, peer));
    assert_eq!(network.deliver_datagram(&recording), Some(WireguardDropReason::OldTimestamp));
}
