//! Tests of direct routes through encrypted sessions. A router accepts the public key of another one together
//! with its prefixes, and the routers send each other nothing in the clear.

use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::DirectRouteState;
use carnet_mobility::direct::{DirectDrop, MAX_SESSION_KEYS};
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};

use super::SECOND;
use super::direct_route_network::{
    DirectRouteNetwork, PacketPath, PacketUnderway, SessionKeys, address, care_of_address_of, config,
    encrypted_config, home_address_of, host_address_of, key_of, network_of, parse_message,
};

/// Returns a network of two routers that have an encrypted direct route to each other.
fn world_with_encrypted_route() -> DirectRouteNetwork {
    let mut world = DirectRouteNetwork::encrypted(2);
    world.advance_time(SECOND * 3);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    world.clear_packet_counts();
    world
}

fn assert_nothing_in_the_clear(world: &DirectRouteNetwork) {
    let mut direct =
        world.sent_packets_log.iter().filter(|packet| packet.packet_path == PacketPath::Straight);
    assert!(direct.all(|packet| packet.session.is_some()), "a message between the routers in the clear");
}

#[test]
fn direct_route_with_keys_is_encrypted_from_its_first_message() {
    let mut world = DirectRouteNetwork::encrypted(2);
    world.advance_time(SECOND * 5);
    for (from, to) in [(0, 1), (1, 0)] {
        let counts = world.take_packet_counts(from, to);
        assert_eq!(counts.lost_packets, 0, "{counts:?}");
        assert!(counts.sent_through_home < 60 && counts.sent_directly > 400, "{counts:?}");
        let route = world.routers[from].routes().next().expect("a route");
        assert!(route.is_direct && route.is_encrypted);
        let tunnels = world.routers[from].tunnels();
        let keys = &world.accepted_keys[from];
        assert!(!tunnels.is_empty());
        assert!(tunnels.iter().all(|it| it.session.and_then(|it| keys.get(&it)) == Some(&key_of(to))));
    }
    assert_nothing_in_the_clear(&world);
}

#[test]
fn handover_of_each_router_through_sessions_loses_no_packet() {
    let mut world = world_with_encrypted_route();
    for number in [0, 1] {
        world.set_care_of(number, &[care_of_address_of(number, 1), care_of_address_of(number, 0)]);
        world.advance_time(SECOND);
        world.set_care_of(number, &[care_of_address_of(number, 1)]);
        world.advance_time(SECOND * 10);
    }
    // Both routers change their care-of address at the same time.
    for number in [0, 1] {
        world.set_care_of(number, &[care_of_address_of(number, 0), care_of_address_of(number, 1)]);
    }
    world.advance_time(SECOND * 10);
    for (from, to) in [(0, 1), (1, 0)] {
        let counts = world.take_packet_counts(from, to);
        assert_eq!((counts.lost_packets, counts.sent_through_home), (0, 0), "{from}");
        let local = world.routers[from].routes().next().and_then(|route| route.local);
        assert_eq!(local, Some(care_of_address_of(from, 0)));
    }
    assert_nothing_in_the_clear(&world);
}

/// A router without encrypted sessions, or with an earlier version, sends no public key. The other router's
/// status and log say so.
#[test]
fn router_without_key_gets_no_direct_route_and_the_status_says_why() {
    let routers = vec![
        DirectRouteState::new(encrypted_config(0), Rng::new(7)),
        DirectRouteState::new(config(1), Rng::new(8)),
    ];
    let mut world = DirectRouteNetwork::with_routers(routers);
    world.advance_time(SECOND * 30);
    assert!(!world.is_direct(0, 1) && !world.is_direct(1, 0));
    let route = world.routers[0].routes().next().expect("the status of the other router");
    assert_eq!(route.reason, "it has no key for an encrypted route");
    let warned: Vec<usize> = world.warnings.iter().map(|(router, _)| *router).collect();
    assert_eq!(warned, [0], "once: {:?}", world.warnings);
    assert!(world.warnings[0].1.contains("no direct route to the mobile router"), "{:?}", world.warnings);
    assert!(world.dropped_messages(0, DirectDrop::NoKey) > 0, "it does not answer requests without a key");
    let direct =
        world.sent_packets_log.iter().filter(|packet| packet.packet_path == PacketPath::Straight).count();
    assert_eq!(direct, 0, "no care-of address of the routers gets a message");
    assert_eq!(world.take_packet_counts(0, 1).lost_packets + world.take_packet_counts(1, 0).lost_packets, 0);
}

/// Router 2 names the key of router 0 as its own, or a key whose private part it does not have.
#[test]
fn router_that_names_a_foreign_key_gets_no_route() {
    let mut world = DirectRouteNetwork::encrypted(3);
    // Without the private key, the sessions of router 2 have another key than the one that it names.
    world.own_keys[2] = vec![[99; 32]];
    world.routers[2] = DirectRouteState::new(encrypted_config(2), Rng::new(5));
    world.routers[2].handle_own_key(world.now, key_of(0));
    world.set_care_of(2, &[care_of_address_of(2, 0)]);
    world.advance_time(SECOND * 60);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    for number in [0, 1] {
        assert!(!world.is_direct(number, 2));
        let tunnels = world.routers[number].tunnels();
        assert!(tunnels.iter().all(|tunnel| tunnel.home_address != home_address_of(2)), "{tunnels:?}");
    }
}

/// Returns a network that has lost the first Binding Update from router 0 to router 1. Also returns the
/// direct route of router 0, which sent this update.
fn world_with_lost_update() -> (DirectRouteNetwork, DirectRoute) {
    let mut world = DirectRouteNetwork::encrypted(2);
    world.filter = Box::new(|_, message| message.kind != DirectRouteKind::BindingUpdate);
    world.advance_time(SECOND * 2);
    world.filter = Box::new(|_, _| true);
    let of_router = |packet: &&PacketUnderway| {
        packet.from == 0 && parse_message(&packet.octets).kind == DirectRouteKind::BindingUpdate
    };
    let update = parse_message(&world.sent_packets_log.iter().find(of_router).expect("an update").octets);
    (world, update)
}

#[test]
fn binding_update_with_another_key_or_session_is_refused() {
    let (mut world, update) = world_with_lost_update();
    let (now, ends) = (world.now, (care_of_address_of(0, 0), care_of_address_of(1, 0)));
    let session_of = |world: &DirectRouteNetwork, key| {
        world.accepted_keys[1].iter().find(|(_, known)| **known == key).map(|(number, _)| *number)
    };
    let own = session_of(&world, key_of(0)).expect("a session");
    // An attacker that asks with its own home address, prefix and public key gets a session.
    let question = DirectRoute {
        cookie: 5,
        home_address: home_address_of(5),
        prefixes: vec![network_of(5)],
        public_key: Some([77; 32]),
        ..DirectRoute::new(DirectRouteKind::HomeTestInit)
    };
    let asked =
        world.routers[1].handle_tunnelled_message(now, home_address_of(5), host_address_of(1), &question);
    assert_eq!(asked, Ok(()));
    world.take_router_outputs(1);
    let foreign = session_of(&world, [77; 32]).expect("a session");
    let with_key = |key| DirectRoute { public_key: key, ..update.clone() };
    for (message, session, reason) in [
        (update.clone(), None, DirectDrop::NotInSession),
        (update.clone(), Some(foreign), DirectDrop::NotInSession),
        (with_key(Some([77; 32])), Some(own), DirectDrop::NotInSession),
        // The authenticator of the Binding Update was computed for another public key.
        (with_key(Some([77; 32])), Some(foreign), DirectDrop::Authenticator),
        (with_key(None), Some(own), DirectDrop::NoKey),
        (with_key(Some(key_of(1))), Some(own), DirectDrop::NoKey),
    ] {
        let result = world.routers[1].handle_direct_message(now, session, ends.0, ends.1, &message);
        assert_eq!(result, Err(reason), "{message:?}");
        world.take_router_outputs(1);
        assert!(world.routers[1].tunnels().is_empty());
    }
    assert_eq!(world.routers[1].handle_direct_message(now, Some(own), ends.0, ends.1, &update), Ok(()));
    assert!(!world.routers[1].tunnels().is_empty());
}

/// An attacker repeats recorded messages in the sessions of their sender. The router refuses them by their
/// sequence numbers and nonces.
#[test]
fn replayed_proof_changes_nothing() {
    let mut world = world_with_encrypted_route();
    let recording = world.sent_packets_log.clone();
    world.set_care_of(0, &[care_of_address_of(0, 1), care_of_address_of(0, 0)]);
    world.advance_time(SECOND * 6);
    let before = world.routers[1].tunnels();
    for packet in recording.clone() {
        world.send_packet(packet);
    }
    world.advance_time(SECOND);
    assert_eq!(world.routers[1].tunnels(), before);
    assert!(world.dropped_messages(1, DirectDrop::Sequence) > 0);
    // The router drops the same messages in the clear before it reads them.
    let in_the_clear = recording.into_iter().filter(|packet| packet.packet_path == PacketPath::Straight);
    for packet in in_the_clear {
        world.send_packet(PacketUnderway { session: None, ..packet });
    }
    let counted = world.dropped_messages(1, DirectDrop::NotInSession);
    world.advance_time(SECOND);
    assert!(world.dropped_messages(1, DirectDrop::NotInSession) > counted);
    assert_eq!(world.routers[1].tunnels(), before);
}

#[test]
fn router_that_has_restarted_gets_an_encrypted_route_again() {
    let mut world = world_with_encrypted_route();
    world.accepted_keys[1].clear();
    world.routers[1] = DirectRouteState::new(encrypted_config(1), Rng::new(99));
    world.routers[1].handle_own_key(world.now, key_of(1));
    world.set_care_of(1, &[care_of_address_of(1, 0)]);
    world.advance_time(SECOND * 10);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    assert_nothing_in_the_clear(&world);
}

/// Router 0 gets a new public key. It ends the direct route and sets it up again with the new key.
#[test]
fn route_follows_a_new_key_without_loss() {
    let mut world = world_with_encrypted_route();
    world.own_keys[0].insert(0, [55; 32]);
    world.routers[0].handle_own_key(world.now, [55; 32]);
    world.take_router_outputs(0);
    world.advance_time(SECOND * 10);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    let session = world.routers[1].tunnels()[0].session.expect("a session");
    assert_eq!(world.accepted_keys[1][&session], [55; 32]);
    assert_eq!(world.take_packet_counts(0, 1).lost_packets + world.take_packet_counts(1, 0).lost_packets, 0);
}

/// A router that does not know its own public key yet neither asks other routers nor answers them.
#[test]
fn router_is_silent_until_its_key_is_known() {
    let mut world = DirectRouteNetwork::encrypted(2);
    world.routers[0] = DirectRouteState::new(encrypted_config(0), Rng::new(5));
    world.set_care_of(0, &[care_of_address_of(0, 0)]);
    world.advance_time(SECOND * 3);
    assert!(world.sent_packets_log.iter().all(|packet| packet.from != 0));
    world.routers[0].handle_own_key(world.now, key_of(0));
    world.advance_time(SECOND * 60);
    assert!(world.is_direct(0, 1));
}

#[test]
fn route_and_its_sessions_end_when_no_packet_uses_them() {
    let mut world = world_with_encrypted_route();
    world.sends_data = false;
    world.step_duration = SECOND;
    world.advance_time(SECOND * 1300);
    for number in [0, 1] {
        assert_eq!(world.routers[number].routes().count(), 0);
        assert!(world.accepted_keys[number].is_empty(), "{:?}", world.accepted_keys[number]);
    }
    let sent = world.sent_packets_log.len();
    world.advance_time(SECOND * 600);
    assert_eq!(world.sent_packets_log.len(), sent, "silence");
}

/// A flood of requests with different public keys fills the router's table of keys, but does not end its
/// direct route.
#[test]
fn flood_of_keys_is_bounded_and_ends_no_session_in_use() {
    let mut world = world_with_encrypted_route();
    for number in 0..2000u64 {
        let mut key = [3; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        let source = address(&format!("2001:db8:99::{:x}", number + 1));
        let question = DirectRoute {
            cookie: number,
            home_address: source,
            prefixes: vec![network_of(9)],
            public_key: Some(key),
            ..DirectRoute::new(DirectRouteKind::HomeTestInit)
        };
        let _ = world.routers[0].handle_tunnelled_message(world.now, source, host_address_of(0), &question);
        world.take_router_outputs(0);
        assert!(world.accepted_keys[0].len() <= MAX_SESSION_KEYS);
        world.advance_time(Duration::from_millis(10));
    }
    assert_eq!(world.accepted_keys[0].len(), MAX_SESSION_KEYS);
    let counts = world.take_packet_counts(0, 1);
    assert_eq!((counts.lost_packets, counts.sent_through_home), (0, 0));
    world.advance_time(SECOND * 60);
    assert_eq!(world.accepted_keys[0].len(), 1, "the unused keys expire");
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

/// A router that has a session but has passed no test has no tokens. So its Binding Update opens no direct
/// route.
#[test]
fn session_of_a_stranger_opens_no_route() {
    let mut world = DirectRouteNetwork::encrypted(3);
    world.sends_data = false;
    let question = DirectRoute {
        home_address: home_address_of(2),
        prefixes: vec![network_of(2)],
        public_key: Some(key_of(2)),
        ..DirectRoute::new(DirectRouteKind::HomeTestInit)
    };
    let asked = world.routers[0].handle_tunnelled_message(
        world.now,
        home_address_of(2),
        host_address_of(0),
        &question,
    );
    assert_eq!(asked, Ok(()));
    world.take_router_outputs(0);
    world.accepted_keys[2].insert(carnet_mobility::SessionPeer(1), key_of(0));
    let update = DirectRoute {
        sequence: 1,
        lifetime: 100,
        home_address: home_address_of(2),
        care_of_address: care_of_address_of(2, 0),
        prefixes: vec![network_of(2)],
        public_key: Some(key_of(2)),
        ..DirectRoute::new(DirectRouteKind::BindingUpdate)
    };
    let octets = update.emit_packet(care_of_address_of(2, 0), care_of_address_of(0, 0), 64);
    let session = Some(SessionKeys { sender: key_of(2), receiver: key_of(0) });
    world.send_packet(PacketUnderway { from: 2, packet_path: PacketPath::Straight, session, octets });
    world.advance_time(SECOND);
    assert!(world.routers[0].tunnels().is_empty());
    let reasons = [DirectDrop::Nonce, DirectDrop::Authenticator];
    assert_eq!(reasons.map(|reason| world.dropped_messages(0, reason)).iter().sum::<u64>(), 1);
}
