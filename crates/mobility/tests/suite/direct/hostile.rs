//! Forgeries, recordings and floods: a router accepts nothing without both tokens (RFC 6275 15.4).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::DirectRouteState;
use carnet_mobility::direct::{DirectDrop, MAX_CANDIDATE_NETWORKS, MAX_PEERS};
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};

use super::direct_route_network::{
    DirectRouteNetwork, PacketPath, PacketUnderway, address, care_of_address_of, config, home_address_of,
    host_address_of, network_of, parse_message, prefix,
};
use super::{SECOND, world_with_direct_route};

fn send_again(world: &mut DirectRouteNetwork, packets: Vec<PacketUnderway>) {
    for packet in packets {
        world.send_packet(packet);
    }
}

/// A router claims another router's network: the tokens for this network go to its owner, who drops them.
#[test]
fn peer_cannot_claim_foreign_network() {
    let mut world = DirectRouteNetwork::new(3);
    // Router 2 says that network 1 is its own.
    let mut greedy = config(2);
    greedy.prefixes.push(network_of(1));
    world.routers[2] = DirectRouteState::new(greedy, Rng::new(5));
    world.set_care_of(2, &[care_of_address_of(2, 0)]);
    world.advance_time(SECOND * 60);
    assert!(world.dropped_messages(1, DirectDrop::Unasked) > 0, "its owner gets the tokens");
    for number in [0, 1] {
        let believed = world.routers[number].tunnels();
        assert!(believed.iter().all(|tunnel| tunnel.home_address != home_address_of(2)), "{believed:?}");
    }
}

/// The authenticator of a Binding Update is wrong if the sender lacks a token or uses one of another time.
/// The router ignores such an update.
#[test]
fn an_update_without_every_token_is_ignored() {
    let mut world = DirectRouteNetwork::new(2);
    world.filter = Box::new(|_, message| message.kind != DirectRouteKind::BindingUpdate);
    world.advance_time(SECOND * 2);
    let update = world
        .sent_packets_log
        .iter()
        .find(|packet| parse_message(&packet.octets).kind == DirectRouteKind::BindingUpdate);
    let update = parse_message(&update.expect("an update").octets);
    world.filter = Box::new(|_, _| true);
    for (changed, reason) in [
        (
            DirectRoute { prefixes: vec![network_of(0), prefix("2001:db8:a7::/64")], ..update.clone() },
            DirectDrop::Authenticator,
        ),
        (DirectRoute { home_address: home_address_of(5), ..update.clone() }, DirectDrop::Authenticator),
        (DirectRoute { sequence: update.sequence + 9, ..update.clone() }, DirectDrop::Authenticator),
        (DirectRoute { lifetime: 1, ..update.clone() }, DirectDrop::Authenticator),
        (DirectRoute { lifetime: 0, ..update.clone() }, DirectDrop::Unasked),
        (
            DirectRoute { home_nonce: update.home_nonce.wrapping_sub(1), ..update.clone() },
            DirectDrop::Authenticator,
        ),
        (DirectRoute { home_nonce: update.home_nonce.wrapping_add(1), ..update.clone() }, DirectDrop::Nonce),
        (
            DirectRoute { care_of_nonce: update.care_of_nonce.wrapping_sub(8), ..update.clone() },
            DirectDrop::Nonce,
        ),
        (
            DirectRoute { care_of_address: care_of_address_of(0, 1), ..update.clone() },
            DirectDrop::CareOfAddress,
        ),
        (DirectRoute { authenticator: [0; 12], ..update.clone() }, DirectDrop::Authenticator),
    ] {
        let source = care_of_address_of(0, 0);
        let result = world.routers[1].handle_unencrypted_message(
            world.now,
            source,
            care_of_address_of(1, 0),
            &changed,
        );
        assert_eq!(result, Err(reason), "{changed:?}");
        world.take_router_outputs(1);
        assert!(world.routers[1].tunnels().is_empty());
    }
    let elsewhere = world.routers[1].handle_unencrypted_message(
        world.now,
        care_of_address_of(0, 1),
        care_of_address_of(1, 0),
        &update,
    );
    assert_eq!(elsewhere, Err(DirectDrop::CareOfAddress), "from an address that was not tested");
    let result = world.routers[1].handle_unencrypted_message(
        world.now,
        care_of_address_of(0, 0),
        care_of_address_of(1, 0),
        &update,
    );
    assert_eq!(result, Ok(()));
}

/// A replayed Binding Update changes nothing, neither while the binding lasts nor after its end.
#[test]
fn replayed_direct_route_messages_are_ignored() {
    let mut world = world_with_direct_route();
    let old: Vec<PacketUnderway> = world.sent_packets_log.clone();
    world.set_care_of(0, &[care_of_address_of(0, 1), care_of_address_of(0, 0)]);
    world.advance_time(SECOND);
    let route = |world: &DirectRouteNetwork| world.routers[1].routes().next().and_then(|route| route.remote);
    assert_eq!(route(&world), Some(care_of_address_of(0, 1)));
    send_again(&mut world, old.clone());
    world.advance_time(SECOND);
    assert_eq!(route(&world), Some(care_of_address_of(0, 1)));
    assert!(world.dropped_messages(1, DirectDrop::Sequence) > 0);
    let now = world.now;
    world.routers[0].handle_shutdown(now);
    world.take_router_outputs(0);
    world.sends_data = false;
    world.advance_time(SECOND);
    assert!(world.routers[1].tunnels().is_empty());
    let before = world.dropped_messages(1, DirectDrop::Sequence);
    send_again(&mut world, old.clone());
    world.advance_time(SECOND);
    assert!(world.dropped_messages(1, DirectDrop::Sequence) > before);
    assert!(world.routers[1].tunnels().is_empty());
    world.step_duration = SECOND;
    world.advance_time(SECOND * 700);
    world.step_duration = Duration::from_millis(10);
    send_again(&mut world, old);
    world.advance_time(SECOND);
    assert!(world.routers[1].tunnels().is_empty(), "its nonces are no longer good");
    assert!(world.dropped_messages(1, DirectDrop::Nonce) > 0);
}

/// A router drops answers without an outstanding request, and answers with a wrong cookie.
#[test]
fn answers_without_a_request_are_ignored() {
    let mut world = world_with_direct_route();
    let kinds = [
        DirectRouteKind::HomeTest,
        DirectRouteKind::PrefixTest,
        DirectRouteKind::CareOfTest,
        DirectRouteKind::BindingAcknowledgement,
        DirectRouteKind::HeartbeatResponse,
    ];
    for kind in kinds {
        let message = DirectRoute {
            cookie: 0x1234,
            status: 128,
            home_address: home_address_of(1),
            care_of_address: care_of_address_of(1, 0),
            prefixes: vec![network_of(if kind == DirectRouteKind::PrefixTest { 0 } else { 1 })],
            ..DirectRoute::new(kind)
        };
        let now = world.now;
        let straight = world.routers[0].handle_unencrypted_message(
            now,
            care_of_address_of(1, 0),
            care_of_address_of(0, 0),
            &message,
        );
        assert!(straight.is_err(), "{kind:?}");
        let to = if kind == DirectRouteKind::PrefixTest { host_address_of(0) } else { home_address_of(0) };
        assert!(
            world.routers[0].handle_tunnelled_message(now, home_address_of(1), to, &message).is_err(),
            "{kind:?}"
        );
    }
    world.advance_time(SECOND);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    assert_eq!(world.take_packet_counts(0, 1).lost_packets, 0);
}

/// A router drops an answer with a wrong cookie also while it waits for the right answer.
#[test]
fn answer_without_cookie_of_request_is_ignored() {
    for kind in [
        DirectRouteKind::HomeTest,
        DirectRouteKind::PrefixTest,
        DirectRouteKind::CareOfTest,
        DirectRouteKind::BindingAcknowledgement,
    ] {
        let mut world = DirectRouteNetwork::new(2);
        world.filter = Box::new(move |_, message| message.kind != kind);
        world.advance_time(Duration::from_millis(500));
        let answer = world
            .sent_packets_log
            .iter()
            .rev()
            .find(|packet| packet.from == 1 && parse_message(&packet.octets).kind == kind);
        let packet = answer.expect("an answer that was lost").clone();
        let header = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet");
        let right = parse_message(&packet.octets);
        let wrong = DirectRoute { cookie: right.cookie ^ 1, ..right.clone() };
        for (message, expected) in [(wrong, Err(DirectDrop::Unasked)), (right, Ok(()))] {
            let (now, from, to) = (world.now, header.source, header.destination);
            let result = match packet.packet_path {
                PacketPath::Home => world.routers[0].handle_tunnelled_message(now, from, to, &message),
                PacketPath::Straight => world.routers[0].handle_unencrypted_message(now, from, to, &message),
            };
            assert_eq!(result, expected, "{kind:?}");
        }
    }
}

/// A router drops home agent messages that arrive directly, and direct messages that arrive by the home
/// agents.
#[test]
fn direct_route_message_by_wrong_path_is_ignored() {
    let mut world = DirectRouteNetwork::new(2);
    world.advance_time(SECOND * 2);
    let first: Vec<PacketUnderway> = world.sent_packets_log.clone();
    let mut world = DirectRouteNetwork::new(2);
    world.sends_data = false;
    for packet in first {
        let other =
            if packet.packet_path == PacketPath::Home { PacketPath::Straight } else { PacketPath::Home };
        let message = parse_message(&packet.octets);
        let header = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet");
        let (from, to) = (header.source, header.destination);
        let router = &mut world.routers[1 - packet.from];
        let result = match other {
            PacketPath::Home => router.handle_tunnelled_message(world.now, from, to, &message),
            PacketPath::Straight => router.handle_unencrypted_message(
                world.now,
                from,
                care_of_address_of(1 - packet.from, 0),
                &message,
            ),
        };
        assert_eq!(result, Err(DirectDrop::NotForUs), "{:?}", message.kind);
    }
}

#[test]
fn invalid_prefixes_of_a_peer_are_refused() {
    let mut world = DirectRouteNetwork::new(2);
    let ask = |world: &mut DirectRouteNetwork, source: Ipv6Addr, prefixes: &[&str]| {
        let message = DirectRoute {
            home_address: source,
            prefixes: prefixes.iter().map(|text| prefix(text)).collect(),
            ..DirectRoute::new(DirectRouteKind::HomeTestInit)
        };
        let result =
            world.routers[0].handle_tunnelled_message(world.now, source, host_address_of(0), &message);
        world.take_router_outputs(0);
        result
    };
    let stranger = address("2001:db8:9::9");
    for bad in [
        "::/0",
        "2001:db8:a0::/47",
        "2001:db8:a0::/64",
        "2001:db8:a5::/63",
        "2001:db8:a5::/65",
        "2001:db8:a5::1/128",
        "2001:db8:a0::80/121",
        "2001:db8:b0::/64",
        "2001:db8:1::/64",
        "ff00::/64",
    ] {
        assert_eq!(ask(&mut world, stranger, &[bad]), Err(DirectDrop::BadPrefix), "{bad}");
        assert_eq!(
            ask(&mut world, stranger, &["2001:db8:a5::/64", bad]),
            Err(DirectDrop::BadPrefix),
            "{bad}"
        );
    }
    assert_eq!(ask(&mut world, stranger, &[]), Err(DirectDrop::BadPrefix));
    assert_eq!(ask(&mut world, home_address_of(0), &["2001:db8:a5::/64"]), Err(DirectDrop::HomeAddress));
    assert_eq!(ask(&mut world, host_address_of(0), &["2001:db8:a5::/64"]), Err(DirectDrop::BadPrefix));
    assert!(world.sent_packets_log.is_empty());
    assert_eq!(ask(&mut world, stranger, &["2001:db8:a5::/64", "2001:db8:a6::/64"]), Ok(()));
    assert_eq!(world.sent_packets_log.len(), 3, "an answer, and a test for each");
}

/// A router sends its care-of address only to addresses in the networks of direct routes. A Home Test Init
/// proves nothing about its sender, and a router that was asked has proven nothing before it registers.
#[test]
fn an_unverified_peer_learns_no_care_of_address() {
    let mut world = DirectRouteNetwork::new(1);
    world.sends_data = false;
    let (stranger, claimed) = (address("2001:db8:9::9"), prefix("2001:db8:a5:77::/64"));
    let question = DirectRoute {
        home_address: stranger,
        prefixes: vec![claimed],
        ..DirectRoute::new(DirectRouteKind::HomeTestInit)
    };
    for (at, told) in [(host_address_of(0), vec![network_of(0)]), (home_address_of(0), Vec::new())] {
        world.sent_packets_log.clear();
        assert_eq!(world.routers[0].handle_tunnelled_message(world.now, stranger, at, &question), Ok(()));
        world.take_router_outputs(0);
        for packet in &world.sent_packets_log {
            let to = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet").destination;
            let message = parse_message(&packet.octets);
            match message.kind {
                DirectRouteKind::HomeTest => {
                    assert_eq!((to, message.care_of_address), (stranger, Ipv6Addr::UNSPECIFIED));
                    assert_eq!(message.prefixes, told);
                }
                _ => {
                    assert!(claimed.contains(&to));
                    assert_eq!(message.care_of_address, care_of_address_of(0, 0));
                }
            }
        }
        assert_eq!(world.sent_packets_log.len(), 2);
    }
    let mut world = world_with_direct_route();
    world.step_duration = SECOND;
    world.advance_time(SECOND * 200);
    let questions = world.sent_packets_log.iter().filter(|packet| packet.from == 0);
    let questions = questions.map(|packet| {
        let to = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet").destination;
        (to == home_address_of(1), parse_message(&packet.octets))
    });
    let questions: Vec<_> =
        questions.filter(|(_, message)| message.kind == DirectRouteKind::HomeTestInit).collect();
    assert!(questions.iter().any(|(to_router, _)| *to_router));
    for (to_router, message) in questions {
        let expected = if to_router { care_of_address_of(0, 0) } else { Ipv6Addr::UNSPECIFIED };
        assert_eq!(message.care_of_address, expected);
        assert_eq!(message.authenticator != [0; 12], to_router);
    }
}

/// If an unauthenticated source claims that a router has moved, this router sends no request to the claimed
/// address. So the source learns no care-of address.
#[test]
fn unknown_router_cannot_trigger_requests() {
    let mut world = world_with_direct_route();
    world.is_direct_path_cut = true;
    let elsewhere = address("2001:db8:dead::1");
    let question = DirectRoute {
        home_address: home_address_of(1),
        care_of_address: elsewhere,
        prefixes: vec![network_of(1)],
        ..DirectRoute::new(DirectRouteKind::HomeTestInit)
    };
    for _ in 0..1000 {
        world.advance_time(Duration::from_millis(10));
        let _ = world.routers[0].handle_tunnelled_message(
            world.now,
            home_address_of(1),
            host_address_of(0),
            &question,
        );
        world.take_router_outputs(0);
    }
    assert!(!world.is_direct(0, 1));
    let there = world.sent_packets_log.iter().filter(|packet| {
        let header = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet");
        header.destination == elsewhere
    });
    assert_eq!(there.count(), 0);
}

/// Router 0 asks for router 1's network, and another party answers that the network is its own.
fn world_with_claimed_network() -> DirectRouteNetwork {
    let mut world = DirectRouteNetwork::new(2);
    world.sends_data = false;
    let now = world.now;
    world.routers[0].handle_used_destination(now, host_address_of(1));
    world.routers[0].handle_timeout(now);
    world.take_router_outputs(0);
    let claimant = address("2001:db8:1::66");
    let answer = DirectRoute {
        cookie: parse_message(&world.sent_packets_log[0].octets).cookie,
        home_address: claimant,
        home_nonce: 1,
        prefixes: vec![network_of(1), prefix("2001:db8:a5::/64")],
        ..DirectRoute::new(DirectRouteKind::HomeTest)
    };
    assert_eq!(world.routers[0].handle_tunnelled_message(now, claimant, home_address_of(0), &answer), Ok(()));
    world.take_router_outputs(0);
    let routes: Vec<_> = world.routers[0].routes().collect();
    assert_eq!((routes[0].home_address, &routes[0].prefixes), (claimant, &vec![network_of(1)]));
    world
}

/// A router that only claims a network does not keep the router that proves it from having the route.
#[test]
fn proven_prefix_replaces_unproven_claim() {
    let mut world = world_with_claimed_network();
    for _ in 0..100 {
        world.routers[1].handle_used_destination(world.now, host_address_of(0));
        world.advance_time(Duration::from_millis(100));
    }
    world.step_duration = SECOND;
    for _ in 0..600 {
        world.routers[0].handle_used_destination(world.now, host_address_of(1));
        world.advance_time(SECOND);
    }
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

/// An unproven claim delays requests for a network by at most eight minutes.
#[test]
fn unproven_prefix_claim_expires() {
    let mut world = world_with_claimed_network();
    world.is_home_path_cut = true;
    world.step_duration = SECOND;
    for _ in 0..470 {
        world.routers[0].handle_used_destination(world.now, host_address_of(1));
        world.advance_time(SECOND);
    }
    assert!(!world.is_direct(0, 1));
    world.is_home_path_cut = false;
    for _ in 0..60 {
        world.routers[0].handle_used_destination(world.now, host_address_of(1));
        world.advance_time(SECOND);
    }
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

/// Numbers of nonces never repeat, though their indices do, so a replayed update stays old.
#[test]
fn used_direct_route_update_is_never_accepted_again() {
    let mut world = world_with_direct_route();
    let sent = |packet: &&PacketUnderway| packet.from == 0;
    let mut updates = world.sent_packets_log.iter().filter(sent).map(|packet| parse_message(&packet.octets));
    let update = updates.rfind(|message| message.kind == DirectRouteKind::BindingUpdate).expect("an update");
    let then = world.now;
    let now = world.now;
    world.routers[0].handle_shutdown(now);
    world.take_router_outputs(0);
    world.sends_data = false;
    world.step_duration = SECOND;
    world.advance_time(SECOND * 1500);
    assert!(world.routers[1].tunnels().is_empty());
    for (at, reason) in
        [(world.now, DirectDrop::Nonce), (then + SECOND * 30 * 65_536, DirectDrop::Authenticator)]
    {
        world.routers[1].handle_timeout(at);
        world.take_router_outputs(1);
        let result = world.routers[1].handle_unencrypted_message(
            at,
            care_of_address_of(0, 0),
            care_of_address_of(1, 0),
            &update,
        );
        assert_eq!(result, Err(reason));
    }
    assert!(world.routers[1].tunnels().is_empty());
}

/// A router accepts a refusal only with the number and the key of a Binding Update that it has sent. Refusals
/// of expired nonces need no key, because the other router cannot compute one.
#[test]
fn refusal_needs_valid_key() {
    let mut world = DirectRouteNetwork::new(2);
    world.filter = Box::new(|_, message| message.kind != DirectRouteKind::BindingAcknowledgement);
    world.advance_time(Duration::from_millis(500));
    let mut answers = world
        .sent_packets_log
        .iter()
        .filter(|packet| packet.from == 1)
        .map(|packet| parse_message(&packet.octets));
    let answer = answers.rfind(|message| message.kind == DirectRouteKind::BindingAcknowledgement);
    let answer = answer.expect("an answer that was lost");
    let (now, from, to) = (world.now, care_of_address_of(1, 0), care_of_address_of(0, 0));
    for (status, sequence, reason) in [
        (128, answer.sequence, DirectDrop::Authenticator),
        (130, answer.sequence, DirectDrop::Authenticator),
        (135, answer.sequence, DirectDrop::Authenticator),
        (0, answer.sequence, DirectDrop::Authenticator),
        (136, answer.sequence.wrapping_add(1), DirectDrop::Sequence),
        (138, answer.sequence.wrapping_sub(9), DirectDrop::Sequence),
    ] {
        let forged = DirectRoute { status, sequence, authenticator: [0; 12], ..answer.clone() };
        let result = world.routers[0].handle_unencrypted_message(now, from, to, &forged);
        assert_eq!(result, Err(reason), "{status}");
    }
    assert_eq!(world.routers[0].handle_unencrypted_message(now, from, to, &answer), Ok(()));
}

/// Requests and destinations take bounded memory, and a flood of them does not disturb existing routes.
#[test]
fn flood_of_direct_route_messages_keeps_routes() {
    let mut world = world_with_direct_route();
    let before = world.sent_packets_log.len();
    for round in 0..20_000_u64 {
        let source = address(&format!("2001:db8:7::{:x}", round % 5000 + 1));
        let at = if round % 2 == 0 { host_address_of(0) } else { care_of_address_of(0, 0) };
        let now = world.now;
        if round % 2 == 0 {
            let message = DirectRoute {
                home_address: source,
                prefixes: vec![prefix(&format!("2001:db8:a5:{:x}::/64", round % 60_000))],
                ..DirectRoute::new(DirectRouteKind::HomeTestInit)
            };
            let _ = world.routers[0].handle_tunnelled_message(now, source, at, &message);
        } else {
            let kind =
                if round % 3 == 0 { DirectRouteKind::CareOfTestInit } else { DirectRouteKind::Heartbeat };
            let message =
                DirectRoute { home_address: source, care_of_address: source, ..DirectRoute::new(kind) };
            let _ = world.routers[0].handle_unencrypted_message(now, source, at, &message);
        }
        world.routers[0]
            .handle_used_destination(now, address(&format!("2001:db8:a8:{:x}::1", round % 60_000)));
        world.take_router_outputs(0);
        if round % 10 == 9 {
            world.advance_time(Duration::from_millis(10));
        }
    }
    // In 20 s at most: 50 answers a second to unauthenticated sources, one request a second, and the messages
    // of the route itself.
    let sent = world.sent_packets_log.len() - before;
    assert!(sent < 64 + 1000 + 30 + 20 * 20, "{sent}");
    assert!(world.dropped_messages(0, DirectDrop::RateLimited) > 10_000);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    let seen = (world.take_packet_counts(0, 1), world.take_packet_counts(1, 0));
    assert_eq!(
        (seen.0.lost_packets, seen.0.sent_through_home, seen.1.lost_packets, seen.1.sent_through_home),
        (0, 0, 0, 0),
        "{seen:?}"
    );
    assert!(world.routers[0].routes().count() <= MAX_PEERS);
    const { assert!(MAX_CANDIDATE_NETWORKS <= 128) }
}
