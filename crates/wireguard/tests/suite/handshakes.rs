//! Handshakes: retransmission, renewal, clocks, and restarts.

use std::time::Duration;

use carnet_base::Time;
use carnet_wireguard::{Output, WireguardDropReason};

use crate::network::{
    TODAY_UNIX_SECONDS, TestNetwork, home_address, home_agent_private_key, new_engine, router_private_key,
    session_path, uplink_address,
};

#[test]
fn session_carries_payload_that_is_no_ip_packet_in_both_directions() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    for text in ["x", "sixteen octets !", "seventeen octets!"] {
        network.send_to_home_agent(1, text.as_bytes()).expect("session");
        assert_eq!(network.datagrams_on_wire[0].octets.len(), text.len().next_multiple_of(16) + 32);
        network.send_to_router(1, text.as_bytes()).expect("session");
        network.deliver_all_datagrams();
        let (_, down) = network.received_at_router.pop().expect("payload");
        assert_eq!(&down[..text.len()], text.as_bytes());
        assert!(down[text.len()..].iter().all(|&octet| octet == 0), "padding");
        assert_eq!(network.texts_received_at_home_agent().pop(), Some((1, text.to_string())));
    }
}

/// Loses all initiations of the router. Returns the times of the first `count` ones, in milliseconds since
/// the first one.
fn times_of_lost_initiations(network: &mut TestNetwork, count: usize) -> Vec<u128> {
    let mut sent = vec![Duration::ZERO];
    let start = network.now;
    while sent.len() < count {
        let next = network.router_engine.poll_timeout().expect("a retransmission");
        network.datagrams_on_wire.clear();
        network.run_due_timers(next);
        if network.datagrams_on_wire.iter().any(|datagram| datagram.message_type() == 1) {
            sent.push(network.now.saturating_since(start));
        }
    }
    sent.iter().map(Duration::as_millis).collect()
}

#[test]
fn lost_initiation_is_sent_again_after_250_ms_doubling_to_four_seconds() {
    let mut network = TestNetwork::new();
    network.open_session(1);
    let millis = times_of_lost_initiations(&mut network, 9);
    assert_eq!(millis, [0, 250, 750, 1750, 3750, 7750, 11750, 15750, 19750]);
    assert_eq!(network.router_outputs, [Output::NoAnswer { path: session_path(1) }]);
    network.deliver_all_datagrams();
    assert!(
        network.router_engine.is_established(session_path(1))
            && network.home_agent_engine.is_established(session_path(1))
    );
}

/// The report that nothing answers comes as late as on a new path: the home agent of a fleet forgets the
/// route then.
#[test]
fn lost_initiation_on_a_reopened_path_is_sent_again_after_62_ms() {
    let mut network = TestNetwork::new();
    network.reopen_session(1);
    assert_eq!(times_of_lost_initiations(&mut network, 7), [0, 62, 187, 437, 937, 1937, 3937]);
    assert!(network.router_outputs.is_empty());
    assert_eq!(times_of_lost_initiations(&mut network, 2).len(), 2);
    assert_eq!(network.router_outputs, [Output::NoAnswer { path: session_path(1) }]);
}

/// The round trip takes 1.4 s, so the router repeats each initiation before the answer to it arrives.
#[test]
fn handshake_over_a_path_with_a_long_round_trip_completes() {
    let mut network = TestNetwork::new();
    network.open_session(1);
    let mut flying = Vec::new();
    let delay = Duration::from_millis(700);
    for step in 0..1000u64 {
        network.run_due_timers(Time::from_secs(100) + Duration::from_millis(step * 10));
        for datagram in network.datagrams_on_wire.drain(..) {
            flying.push((network.now + delay, datagram));
        }
        let now = network.now;
        let (due, later) = flying.into_iter().partition(|(at, _)| *at <= now);
        flying = later;
        for (_, datagram) in due {
            network.deliver_datagram(&datagram);
        }
        for datagram in network.datagrams_on_wire.drain(..) {
            flying.push((network.now + delay, datagram));
        }
        if network.home_agent_engine.is_established(session_path(1)) {
            assert!(step < 600, "established after {step} steps of 10 ms");
            return;
        }
    }
    panic!("the handshake did not complete");
}

/// The engine renews the session every two minutes. In ten minutes no payload is lost.
#[test]
fn session_with_traffic_is_renewed_without_loss() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let start = network.now;
    for tenth in 1..6000u64 {
        network.run_until_time(start + Duration::from_millis(tenth * 100));
        network.send_to_home_agent(1, b"up").expect("session");
        network.send_to_router(1, b"down").expect("session");
        network.deliver_all_datagrams();
    }
    assert_eq!((network.received_at_home_agent.len(), network.received_at_router.len()), (5999, 5999));
    let accepted =
        network.home_agent_outputs.iter().filter(|output| matches!(output, Output::Accepted { .. })).count();
    assert!((5..=7).contains(&accepted), "{accepted} handshakes in ten minutes");
}

/// A session without traffic ends, and the router opens it again by itself.
#[test]
fn idle_session_of_a_connected_path_is_opened_again() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let start = network.now;
    network.run_until_time(start + Duration::from_secs(1200));
    network.send_to_home_agent(1, b"after the pause").ok();
    network.deliver_all_datagrams();
    network.run_until_time(start + Duration::from_secs(1201));
    network.send_to_home_agent(1, b"after the handshake").expect("session");
    network.deliver_all_datagrams();
    assert_eq!(network.texts_received_at_home_agent().pop(), Some((1, "after the handshake".to_string())));
}

#[test]
fn home_agent_that_has_restarted_gets_a_new_session_by_renewal() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    network.home_agent_engine = new_engine(
        home_agent_private_key(),
        9,
        network.now,
        TODAY_UNIX_SECONDS,
        router_private_key().public_key(),
    );
    network.send_to_home_agent(1, b"lost").expect("session");
    let datagram = network.datagrams_on_wire.pop_front().expect("datagram");
    assert_eq!(network.deliver_datagram(&datagram), Some(WireguardDropReason::NoSession));
    assert!(network.datagrams_on_wire.is_empty(), "a home agent without the session is silent");
    network.now += Duration::from_millis(1);
    network.router_engine.renew_handshake(network.now, session_path(1));
    network.collect_datagrams();
    network.deliver_all_datagrams();
    network.send_to_home_agent(1, b"there").expect("session");
    network.deliver_all_datagrams();
    assert_eq!(network.texts_received_at_home_agent(), [(1, "there".to_string())]);
}

/// A router without a battery clock starts in 1970. The home agent drops its handshakes and reports the old
/// timestamps.
#[test]
fn router_with_a_reset_clock_is_refused_until_it_uses_its_stored_time() {
    let mut network = TestNetwork::with_established_paths(&[1]);
    let newest = network.router_engine.newest_timestamp();
    assert!(
        newest >= Duration::from_secs(TODAY_UNIX_SECONDS)
            && newest < Duration::from_secs(TODAY_UNIX_SECONDS + 1)
    );
    network.home_agent_outputs.clear();

    let now = network.now;
    network.router_engine =
        new_engine(router_private_key(), 10, now, 0, home_agent_private_key().public_key());
    network.open_session(1);
    let datagram = network.datagrams_on_wire.pop_front().expect("initiation");
    assert_eq!(network.deliver_datagram(&datagram), Some(WireguardDropReason::OldTimestamp));
    assert!(network.datagrams_on_wire.is_empty());
    assert_eq!(network.home_agent_outputs, [Output::OldTimestamp { path: session_path(1) }]);

    let date = carnet_wireguard::engine_start_date(Duration::ZERO, Some(newest));
    network.router_engine =
        new_engine(router_private_key(), 11, now, date.as_secs(), home_agent_private_key().public_key());
    network.open_session(1);
    network.deliver_all_datagrams();
    assert!(network.router_engine.is_established(session_path(1)));
}

#[test]
fn handshake_clock_starts_at_the_later_of_clock_and_stored_time() {
    let day = Duration::from_secs(86_400);
    assert_eq!(carnet_wireguard::engine_start_date(day, None), day);
    assert_eq!(carnet_wireguard::engine_start_date(day, Some(day / 2)), day);
    assert_eq!(carnet_wireguard::engine_start_date(day, Some(day)), day + Duration::from_secs(60));
    assert_eq!(carnet_wireguard::engine_start_date(Duration::ZERO, Some(Duration::MAX)), Duration::MAX);
}

#[test]
fn wrong_public_key_gets_no_answer() {
    let mut network = TestNetwork::new();
    network.router_engine = new_engine(
        router_private_key(),
        3,
        network.now,
        TODAY_UNIX_SECONDS,
        router_private_key().public_key(),
    );
    network.open_session(1);
    let datagram = network.datagrams_on_wire.pop_front().expect("initiation");
    assert_eq!(network.deliver_datagram(&datagram), Some(WireguardDropReason::Mac));
    assert!(network.datagrams_on_wire.is_empty());

    // The router uses the right key of the home agent, but the home agent does not know the router's key.
    let mut network = TestNetwork::new();
    network.home_agent_engine.remove_peer(crate::network::HOME_AGENT_PEER);
    network.open_session(1);
    let datagram = network.datagrams_on_wire.pop_front().expect("initiation");
    assert_eq!(network.deliver_datagram(&datagram), Some(WireguardDropReason::UnknownKey));
    assert!(network.datagrams_on_wire.is_empty());
    let remote = router_private_key().public_key();
    assert!(
        matches!(&network.home_agent_outputs[..], [Output::UnknownKey { remote: key, .. }] if *key == remote),
        "{:?}",
        network.home_agent_outputs
    );
}

#[test]
fn wrong_preshared_key_opens_no_session() {
    let mut network = TestNetwork::new();
    let preshared_key = Some(carnet_wireguard::PresharedKey::from_random([5; 32]));
    let peer = carnet_wireguard::RemotePeer {
        peer_id: crate::network::HOME_AGENT_PEER,
        public_keys: vec![router_private_key().public_key()],
        preshared_key: preshared_key.clone(),
    };
    assert!(network.home_agent_engine.set_peer(network.now, peer));
    network.open_session(1);
    network.deliver_all_datagrams();
    assert!(
        !network.router_engine.is_established(session_path(1))
            && !network.home_agent_engine.is_established(session_path(1))
    );
    assert_eq!(network.router_engine.drop_count(WireguardDropReason::Authentication), 1);

    let peer = carnet_wireguard::RemotePeer {
        peer_id: crate::network::HOME_AGENT_PEER,
        public_keys: vec![home_agent_private_key().public_key()],
        preshared_key,
    };
    assert!(network.router_engine.set_peer(network.now, peer));
    network.now += Duration::from_millis(100);
    network.open_session(1);
    network.deliver_all_datagrams();
    assert!(
        network.router_engine.is_established(session_path(1))
            && network.home_agent_engine.is_established(session_path(1))
    );
}

#[test]
fn two_peers_with_one_public_key_are_refused() {
    let mut network = TestNetwork::new();
    let peer = carnet_wireguard::RemotePeer {
        peer_id: carnet_wireguard::PeerId(8),
        public_keys: vec![router_private_key().public_key()],
        preshared_key: None,
    };
    assert!(!network.home_agent_engine.set_peer(network.now, peer));
}

/// The engine drops a message of each type without an answer if the message is truncated or one octet is
/// changed.
#[test]
fn cut_or_changed_messages_of_each_type_are_dropped_silently() {
    let mut network = TestNetwork::new();
    network.open_session(1);
    let mut messages = Vec::new();
    while let Some(datagram) = network.datagrams_on_wire.pop_front() {
        messages.push(datagram.clone());
        network.deliver_datagram(&datagram);
    }
    network.send_to_home_agent(1, b"payload").expect("session");
    messages.extend(network.datagrams_on_wire.drain(..));
    let kinds: Vec<u8> = messages.iter().map(|message| message.message_type()).collect();
    assert_eq!(kinds, [1, 2, 4, 4]);
    for message in &messages {
        for at in 0..message.octets.len() {
            let mut cut = message.clone();
            cut.octets.truncate(at);
            assert!(network.deliver_datagram(&cut).is_some(), "type {} cut at {at}", message.message_type());
            let mut changed = message.clone();
            changed.octets[at] ^= 1;
            // The engine checks the second MAC of a handshake message only under load.
            if message.message_type() <= 2 && at >= message.octets.len() - 16 {
                continue;
            }
            assert!(
                network.deliver_datagram(&changed).is_some(),
                "type {} changed at {at}",
                message.message_type()
            );
        }
    }
    assert!(network.datagrams_on_wire.is_empty(), "no answer");
    assert!(network.received_at_home_agent.is_empty() && network.received_at_router.is_empty());
    // The engine accepts the unchanged last message, but only once.
    let last = messages.pop().expect("message");
    assert_eq!(network.deliver_datagram(&last), None);
    assert_eq!(network.deliver_datagram(&last), Some(WireguardDropReason::Replayed));
    assert_eq!(network.texts_received_at_home_agent(), [(1, "payload".to_string())]);
    assert_eq!((last.source, last.destination), (uplink_address(1), home_address()));
}
