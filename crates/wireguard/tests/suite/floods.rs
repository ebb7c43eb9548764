//! Floods of handshakes: the engine's work and memory are bounded, unauthenticated sources get no answer, and
//! routers can still register.

use std::net::SocketAddr;
use std::time::Duration;

use carnet_wireguard::{DatagramRoute, Output, ReceivedDatagram, WireguardDropReason};

use crate::network::{
    TODAY_UNIX_SECONDS, TestNetwork, home_agent_private_key, new_engine, session_path, uplink_address,
};

fn random_source(number: u32) -> SocketAddr {
    SocketAddr::from(([10, (number >> 16) as u8, (number >> 8) as u8, number as u8], 1024))
}

/// The attacker does not know the home agent's public key, so its 100,000 handshakes get no answer. A router
/// opens its session and sends at once.
#[test]
fn forged_handshakes_draw_no_answer_and_delay_no_data_or_router() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let mut buffer = [0; 2048];
    let mut forged = [0; 148];
    forged[0] = 1;
    for number in 0..100_000u32 {
        forged[8..12].copy_from_slice(&number.to_le_bytes());
        let route = DatagramRoute { socket: 0, remote: random_source(number) };
        let received = network.home_agent_engine.receive_datagram(network.now, route, &forged, &mut buffer);
        assert!(matches!(
            received,
            ReceivedDatagram::Queued | ReceivedDatagram::Dropped(WireguardDropReason::QueueFull)
        ));
        if number % 1000 == 0 {
            network.send_to_home_agent(1, b"data").expect("session");
            network.deliver_all_datagrams();
            network.home_agent_engine.handle_waiting_handshakes(network.now, 16);
        }
        if number == 50_000 {
            network.open_session(2);
        }
    }
    assert_eq!(network.received_at_home_agent.len(), 100);
    while network.home_agent_engine.has_waiting_handshakes() {
        network.home_agent_engine.handle_waiting_handshakes(network.now, 16);
    }
    assert!(network.home_agent_engine.poll_output().is_none(), "no answer to a stranger");
    let full = network.home_agent_engine.drop_count(WireguardDropReason::QueueFull);
    assert!(full > 50_000, "{full}");
    assert!(full + network.home_agent_engine.drop_count(WireguardDropReason::Mac) >= 100_000);
    network.run_due_timers(network.now + Duration::from_millis(250));
    network.deliver_all_datagrams();
    assert!(network.home_agent_engine.is_established(session_path(2)));
}

/// The attacker knows the public key, but sends from forged addresses. Above 1000 handshakes a second it gets
/// only cookies. A router sends its initiation again with the cookie, and its session opens without a wait.
#[test]
fn routers_open_sessions_at_once_during_a_handshake_flood_with_cookies() {
    let mut network = TestNetwork::new();
    let mut attacker = new_engine(
        carnet_wireguard::PrivateKey::from_random([66; 32]),
        6,
        network.now,
        TODAY_UNIX_SECONDS,
        home_agent_private_key().public_key(),
    );
    attacker.open_session(
        network.now,
        session_path(0),
        DatagramRoute { socket: 0, remote: crate::network::home_address() },
    );
    let Some(Output::Send { datagram, .. }) = attacker.poll_output() else { panic!("no initiation") };
    let mut buffer = [0; 2048];
    let (mut cookies, mut reports) = (0, 0);
    for number in 0..1500 {
        let route = DatagramRoute { socket: 0, remote: random_source(number) };
        network.home_agent_engine.receive_datagram(network.now, route, &datagram, &mut buffer);
        network.home_agent_engine.handle_waiting_handshakes(network.now, 16);
        while let Some(output) = network.home_agent_engine.poll_output() {
            if let Output::UnknownKey { .. } = output {
                reports += 1;
                continue;
            }
            let Output::Send { datagram, .. } = output else { panic!("{output:?}") };
            assert_eq!((datagram[0], datagram.len()), (3, 64), "a cookie, shorter than the handshake");
            cookies += 1;
        }
    }
    assert_eq!((cookies, reports), (500, 1));
    assert_eq!(network.home_agent_engine.drop_count(WireguardDropReason::UnknownKey), 1000);
    assert_eq!(network.home_agent_engine.drop_count(WireguardDropReason::Cookie), 500);

    network.open_session(1);
    let before = network.now;
    network.deliver_all_datagrams();
    assert!(
        network.router_engine.is_established(session_path(1))
            && network.home_agent_engine.is_established(session_path(1))
    );
    assert_eq!(network.now, before, "no time has passed");
    assert_eq!(network.home_agent_engine.drop_count(WireguardDropReason::Cookie), 501);
}

/// An attacker who sees the initiations and knows the public key can forge cookies. The cookies cause at most
/// one additional initiation in each interval of the retransmission.
#[test]
fn forged_cookies_cause_one_initiation_for_each_retransmission_interval() {
    let mut network = TestNetwork::new();
    let mut buffer = [0; 2048];
    network.open_session(1);
    let mut initiations = 1;
    for seed in 0..10 {
        // The attacker's cookies look like those of a home agent that has just started and is under load.
        let Some(initiation) = network.datagrams_on_wire.pop_front() else { break };
        network.home_agent_engine = new_engine(
            home_agent_private_key(),
            100 + seed,
            network.now,
            TODAY_UNIX_SECONDS,
            crate::network::router_private_key().public_key(),
        );
        let route = DatagramRoute { socket: 0, remote: uplink_address(1) };
        for _ in 0..1001 {
            network.home_agent_engine.receive_datagram(network.now, route, &initiation.octets, &mut buffer);
            network.home_agent_engine.handle_waiting_handshakes(network.now, 1);
        }
        while let Some(output) = network.home_agent_engine.poll_output() {
            if let Output::Send { datagram, .. } = output
                && datagram[0] == 3
            {
                let home = DatagramRoute { socket: 1, remote: crate::network::home_address() };
                let received =
                    network.router_engine.receive_datagram(network.now, home, &datagram, &mut buffer);
                assert_eq!(received, ReceivedDatagram::Handled, "the cookie is believed");
            }
        }
        network.collect_datagrams();
        initiations += network.datagrams_on_wire.len();
    }
    assert_eq!(initiations, 2);
}

/// A router under an attacker's control begins handshakes without end. The home agent accepts 16 at once and
/// 8 a second.
#[test]
fn home_agent_limits_authentic_handshakes_of_each_path() {
    let mut network = TestNetwork::new();
    let mut accepted = 0;
    for number in 0..100u8 {
        network.router_engine = new_engine(
            crate::network::router_private_key(),
            number,
            network.now,
            TODAY_UNIX_SECONDS + 100 + u64::from(number),
            home_agent_private_key().public_key(),
        );
        network.open_session(1);
        let initiation = network.datagrams_on_wire.pop_front().expect("initiation");
        accepted += u32::from(network.deliver_datagram(&initiation).is_none());
        network.datagrams_on_wire.clear();
    }
    assert_eq!(accepted, 16);
    assert_eq!(network.home_agent_engine.drop_count(WireguardDropReason::Share), 84);
    assert_eq!(network.home_agent_engine.session_count(), 1);
}

/// The renewal of a session waits in a queue of its own, which a flood from other addresses does not fill.
#[test]
fn session_renewal_succeeds_although_a_flood_fills_the_queue() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let mut buffer = [0; 2048];
    for number in 0..10_000 {
        let mut forged = [0; 148];
        forged[0] = 1;
        let route = DatagramRoute { socket: 0, remote: random_source(number) };
        network.home_agent_engine.receive_datagram(network.now, route, &forged, &mut buffer);
    }
    assert!(network.home_agent_engine.drop_count(WireguardDropReason::QueueFull) > 5000);
    network.now += Duration::from_secs(1);
    network.router_engine.renew_handshake(network.now, session_path(1));
    network.collect_datagrams();
    network.home_agent_outputs.clear();
    let initiation = network.datagrams_on_wire.pop_front().expect("initiation");
    let route = DatagramRoute { socket: 0, remote: initiation.source };
    assert_eq!(
        network.home_agent_engine.receive_datagram(network.now, route, &initiation.octets, &mut buffer),
        ReceivedDatagram::Queued
    );
    network.home_agent_engine.handle_waiting_handshakes(network.now, 1);
    network.collect_datagrams();
    assert!(
        matches!(network.home_agent_outputs[..], [Output::Accepted { .. }]),
        "{:?}",
        network.home_agent_outputs
    );
}
