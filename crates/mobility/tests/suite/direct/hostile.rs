//! Forgeries, recordings and floods: a router accepts nothing without both tokens (RFC 6275 15.4).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::Direct;
use carnet_mobility::direct::{DirectDrop, MAX_CANDIDATES, MAX_PEERS};
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};

use super::world::{Packet, Way, World, address, care_of, config, home, host, network, prefix, read};
use super::{SECOND, met};

fn resend(world: &mut World, packets: Vec<Packet>) {
    for packet in packets {
        world.send(packet);
    }
}

/// A router claims another router's network: the tokens for it go to the owner, who did not ask.
#[test]
fn peer_cannot_claim_foreign_network() {
    let mut world = World::new(3);
    // Router 2 says that network 1 is its own.
    let mut greedy = config(2);
    greedy.prefixes.push(network(1));
    world.routers[2] = Direct::new(greedy, Rng::new(5));
    world.set_care_of(2, &[care_of(2, 0)]);
    world.run(SECOND * 60);
    assert!(world.dropped(1, DirectDrop::Unasked) > 0, "its owner gets the tokens");
    for number in [0, 1] {
        let believed = world.routers[number].tunnels();
        assert!(believed.iter().all(|tunnel| tunnel.home_address != home(2)), "{believed:?}");
    }
}

/// A Binding Update that lacks a token, or has a token of another time, has another key.
#[test]
fn an_update_without_every_token_is_ignored() {
    let mut world = World::new(2);
    world.filter = Box::new(|_, message| message.kind != DirectRouteKind::BindingUpdate);
    world.run(SECOND * 2);
    let update = world.log.iter().find(|packet| read(&packet.octets).kind == DirectRouteKind::BindingUpdate);
    let update = read(&update.expect("an update").octets);
    world.filter = Box::new(|_, _| true);
    for (changed, reason) in [
        (
            DirectRoute { prefixes: vec![network(0), prefix("2001:db8:a7::/64")], ..update.clone() },
            DirectDrop::Authenticator,
        ),
        (DirectRoute { home_address: home(5), ..update.clone() }, DirectDrop::Authenticator),
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
        (DirectRoute { care_of_address: care_of(0, 1), ..update.clone() }, DirectDrop::CareOfAddress),
        (DirectRoute { authenticator: [0; 12], ..update.clone() }, DirectDrop::Authenticator),
    ] {
        let source = care_of(0, 0);
        let result = world.routers[1].handle_straight(world.now, source, care_of(1, 0), &changed);
        assert_eq!(result, Err(reason), "{changed:?}");
        world.drain(1);
        assert!(world.routers[1].tunnels().is_empty());
    }
    let elsewhere = world.routers[1].handle_straight(world.now, care_of(0, 1), care_of(1, 0), &update);
    assert_eq!(elsewhere, Err(DirectDrop::CareOfAddress), "from an address that was not tested");
    let result = world.routers[1].handle_straight(world.now, care_of(0, 0), care_of(1, 0), &update);
    assert_eq!(result, Ok(()));
}

/// A replayed Binding Update changes nothing, neither while the binding lasts nor after its end.
#[test]
fn replayed_direct_route_messages_are_ignored() {
    let mut world = met();
    let old: Vec<Packet> = world.log.clone();
    world.set_care_of(0, &[care_of(0, 1), care_of(0, 0)]);
    world.run(SECOND);
    let route = |world: &World| world.routers[1].routes().next().and_then(|route| route.remote);
    assert_eq!(route(&world), Some(care_of(0, 1)));
    resend(&mut world, old.clone());
    world.run(SECOND);
    assert_eq!(route(&world), Some(care_of(0, 1)));
    assert!(world.dropped(1, DirectDrop::Sequence) > 0);
    let now = world.now;
    world.routers[0].handle_shutdown(now);
    world.drain(0);
    world.sending = false;
    world.run(SECOND);
    assert!(world.routers[1].tunnels().is_empty());
    let before = world.dropped(1, DirectDrop::Sequence);
    resend(&mut world, old.clone());
    world.run(SECOND);
    assert!(world.dropped(1, DirectDrop::Sequence) > before);
    assert!(world.routers[1].tunnels().is_empty());
    world.step = SECOND;
    world.run(SECOND * 700);
    world.step = Duration::from_millis(10);
    resend(&mut world, old);
    world.run(SECOND);
    assert!(world.routers[1].tunnels().is_empty(), "its nonces are no longer good");
    assert!(world.dropped(1, DirectDrop::Nonce) > 0);
}

/// A router drops answers without an outstanding request, and answers with a wrong cookie.
#[test]
fn answers_without_a_request_are_ignored() {
    let mut world = met();
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
            home_address: home(1),
            care_of_address: care_of(1, 0),
            prefixes: vec![network(if kind == DirectRouteKind::PrefixTest { 0 } else { 1 })],
            ..DirectRoute::new(kind)
        };
        let now = world.now;
        let straight = world.routers[0].handle_straight(now, care_of(1, 0), care_of(0, 0), &message);
        assert!(straight.is_err(), "{kind:?}");
        let to = if kind == DirectRouteKind::PrefixTest { host(0) } else { home(0) };
        assert!(world.routers[0].handle_inner(now, home(1), to, &message).is_err(), "{kind:?}");
    }
    world.run(SECOND);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    assert_eq!(world.seen(0, 1).lost, 0);
}

/// A router drops an answer with a wrong cookie also while it awaits the answer.
#[test]
fn answer_without_cookie_of_request_is_ignored() {
    for kind in [
        DirectRouteKind::HomeTest,
        DirectRouteKind::PrefixTest,
        DirectRouteKind::CareOfTest,
        DirectRouteKind::BindingAcknowledgement,
    ] {
        let mut world = World::new(2);
        world.filter = Box::new(move |_, message| message.kind != kind);
        world.run(Duration::from_millis(500));
        let answer =
            world.log.iter().rev().find(|packet| packet.from == 1 && read(&packet.octets).kind == kind);
        let packet = answer.expect("an answer that was lost").clone();
        let header = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet");
        let right = read(&packet.octets);
        let wrong = DirectRoute { cookie: right.cookie ^ 1, ..right.clone() };
        for (message, expected) in [(wrong, Err(DirectDrop::Unasked)), (right, Ok(()))] {
            let (now, from, to) = (world.now, header.source, header.destination);
            let result = match packet.way {
                Way::Home => world.routers[0].handle_inner(now, from, to, &message),
                Way::Straight => world.routers[0].handle_straight(now, from, to, &message),
            };
            assert_eq!(result, expected, "{kind:?}");
        }
    }
}

/// A router drops home agent messages that arrive directly, and direct messages that arrive by the home
/// agents.
#[test]
fn direct_route_message_by_wrong_path_is_ignored() {
    let mut world = World::new(2);
    world.run(SECOND * 2);
    let first: Vec<Packet> = world.log.clone();
    let mut world = World::new(2);
    world.sending = false;
    for packet in first {
        let other = if packet.way == Way::Home { Way::Straight } else { Way::Home };
        let message = read(&packet.octets);
        let header = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet");
        let (from, to) = (header.source, header.destination);
        let router = &mut world.routers[1 - packet.from];
        let result = match other {
            Way::Home => router.handle_inner(world.now, from, to, &message),
            Way::Straight => router.handle_straight(world.now, from, care_of(1 - packet.from, 0), &message),
        };
        assert_eq!(result, Err(DirectDrop::NotForUs), "{:?}", message.kind);
    }
}

#[test]
fn invalid_prefixes_of_a_peer_are_refused() {
    let mut world = World::new(2);
    let ask = |world: &mut World, source: Ipv6Addr, prefixes: &[&str]| {
        let message = DirectRoute {
            home_address: source,
            prefixes: prefixes.iter().map(|text| prefix(text)).collect(),
            ..DirectRoute::new(DirectRouteKind::HomeTestInit)
        };
        let result = world.routers[0].handle_inner(world.now, source, host(0), &message);
        world.drain(0);
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
    assert_eq!(ask(&mut world, home(0), &["2001:db8:a5::/64"]), Err(DirectDrop::HomeAddress));
    assert_eq!(ask(&mut world, host(0), &["2001:db8:a5::/64"]), Err(DirectDrop::BadPrefix));
    assert!(world.log.is_empty());
    assert_eq!(ask(&mut world, stranger, &["2001:db8:a5::/64", "2001:db8:a6::/64"]), Ok(()));
    assert_eq!(world.log.len(), 3, "an answer, and a test for each");
}

/// A router sends its care-of address only to addresses in the networks of direct routes. A Home Test Init
/// proves nothing about its sender, and a router that was asked has proven nothing before it registers.
#[test]
fn an_unverified_peer_learns_no_care_of_address() {
    let mut world = World::new(1);
    world.sending = false;
    let (stranger, claimed) = (address("2001:db8:9::9"), prefix("2001:db8:a5:77::/64"));
    let question = DirectRoute {
        home_address: stranger,
        prefixes: vec![claimed],
        ..DirectRoute::new(DirectRouteKind::HomeTestInit)
    };
    for (at, told) in [(host(0), vec![network(0)]), (home(0), Vec::new())] {
        world.log.clear();
        assert_eq!(world.routers[0].handle_inner(world.now, stranger, at, &question), Ok(()));
        world.drain(0);
        for packet in &world.log {
            let to = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet").destination;
            let message = read(&packet.octets);
            match message.kind {
                DirectRouteKind::HomeTest => {
                    assert_eq!((to, message.care_of_address), (stranger, Ipv6Addr::UNSPECIFIED));
                    assert_eq!(message.prefixes, told);
                }
                _ => {
                    assert!(claimed.contains(&to));
                    assert_eq!(message.care_of_address, care_of(0, 0));
                }
            }
        }
        assert_eq!(world.log.len(), 2);
    }
    let mut world = met();
    world.step = SECOND;
    world.run(SECOND * 200);
    let questions = world.log.iter().filter(|packet| packet.from == 0);
    let questions = questions.map(|packet| {
        let to = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet").destination;
        (to == home(1), read(&packet.octets))
    });
    let questions: Vec<_> =
        questions.filter(|(_, message)| message.kind == DirectRouteKind::HomeTestInit).collect();
    assert!(questions.iter().any(|(to_router, _)| *to_router));
    for (to_router, message) in questions {
        let expected = if to_router { care_of(0, 0) } else { Ipv6Addr::UNSPECIFIED };
        assert_eq!(message.care_of_address, expected);
        assert_eq!(message.authenticator != [0; 12], to_router);
    }
}

/// If an unauthenticated source claims that a router has moved, this router sends no request to the claimed
/// address. So the source learns no care-of address.
#[test]
fn unknown_router_cannot_trigger_requests() {
    let mut world = met();
    world.cut = true;
    let elsewhere = address("2001:db8:dead::1");
    let question = DirectRoute {
        home_address: home(1),
        care_of_address: elsewhere,
        prefixes: vec![network(1)],
        ..DirectRoute::new(DirectRouteKind::HomeTestInit)
    };
    for _ in 0..1000 {
        world.run(Duration::from_millis(10));
        let _ = world.routers[0].handle_inner(world.now, home(1), host(0), &question);
        world.drain(0);
    }
    assert!(!world.is_direct(0, 1));
    let there = world.log.iter().filter(|packet| {
        let header = carnet_wire::ipv6::Header::parse(&packet.octets).expect("a packet");
        header.destination == elsewhere
    });
    assert_eq!(there.count(), 0);
}

/// Router 0 asks for router 1's network, and another party answers that the network is its own.
fn claimed() -> World {
    let mut world = World::new(2);
    world.sending = false;
    let now = world.now;
    world.routers[0].handle_use(now, host(1));
    world.routers[0].handle_timeout(now);
    world.drain(0);
    let claimant = address("2001:db8:1::66");
    let answer = DirectRoute {
        cookie: read(&world.log[0].octets).cookie,
        home_address: claimant,
        home_nonce: 1,
        prefixes: vec![network(1), prefix("2001:db8:a5::/64")],
        ..DirectRoute::new(DirectRouteKind::HomeTest)
    };
    assert_eq!(world.routers[0].handle_inner(now, claimant, home(0), &answer), Ok(()));
    world.drain(0);
    let routes: Vec<_> = world.routers[0].routes().collect();
    assert_eq!((routes[0].home_address, &routes[0].prefixes), (claimant, &vec![network(1)]));
    world
}

/// A router that only claims a network does not keep the router that proves it from having the route.
#[test]
fn proven_prefix_replaces_unproven_claim() {
    let mut world = claimed();
    for _ in 0..100 {
        world.routers[1].handle_use(world.now, host(0));
        world.run(Duration::from_millis(100));
    }
    world.step = SECOND;
    for _ in 0..600 {
        world.routers[0].handle_use(world.now, host(1));
        world.run(SECOND);
    }
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

/// An unproven claim delays requests for a network by at most eight minutes.
#[test]
fn unproven_prefix_claim_expires() {
    let mut world = claimed();
    world.home_cut = true;
    world.step = SECOND;
    for _ in 0..470 {
        world.routers[0].handle_use(world.now, host(1));
        world.run(SECOND);
    }
    assert!(!world.is_direct(0, 1));
    world.home_cut = false;
    for _ in 0..60 {
        world.routers[0].handle_use(world.now, host(1));
        world.run(SECOND);
    }
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

/// Numbers of nonces never repeat, though their indices do, so a replayed update stays old.
#[test]
fn used_direct_route_update_is_never_accepted_again() {
    let mut world = met();
    let sent = |packet: &&Packet| packet.from == 0;
    let mut updates = world.log.iter().filter(sent).map(|packet| read(&packet.octets));
    let update = updates.rfind(|message| message.kind == DirectRouteKind::BindingUpdate).expect("an update");
    let then = world.now;
    let now = world.now;
    world.routers[0].handle_shutdown(now);
    world.drain(0);
    world.sending = false;
    world.step = SECOND;
    world.run(SECOND * 1500);
    assert!(world.routers[1].tunnels().is_empty());
    for (at, reason) in
        [(world.now, DirectDrop::Nonce), (then + SECOND * 30 * 65_536, DirectDrop::Authenticator)]
    {
        world.routers[1].handle_timeout(at);
        world.drain(1);
        let result = world.routers[1].handle_straight(at, care_of(0, 0), care_of(1, 0), &update);
        assert_eq!(result, Err(reason));
    }
    assert!(world.routers[1].tunnels().is_empty());
}

/// A refusal needs the key of the Update and must answer an Update that was sent. Statuses for which no key
/// can exist are excepted.
#[test]
fn refusal_needs_valid_key() {
    let mut world = World::new(2);
    world.filter = Box::new(|_, message| message.kind != DirectRouteKind::BindingAcknowledgement);
    world.run(Duration::from_millis(500));
    let mut answers = world.log.iter().filter(|packet| packet.from == 1).map(|packet| read(&packet.octets));
    let answer = answers.rfind(|message| message.kind == DirectRouteKind::BindingAcknowledgement);
    let answer = answer.expect("an answer that was lost");
    let (now, from, to) = (world.now, care_of(1, 0), care_of(0, 0));
    for (status, sequence, reason) in [
        (128, answer.sequence, DirectDrop::Authenticator),
        (130, answer.sequence, DirectDrop::Authenticator),
        (135, answer.sequence, DirectDrop::Authenticator),
        (0, answer.sequence, DirectDrop::Authenticator),
        (136, answer.sequence.wrapping_add(1), DirectDrop::Sequence),
        (138, answer.sequence.wrapping_sub(9), DirectDrop::Sequence),
    ] {
        let forged = DirectRoute { status, sequence, authenticator: [0; 12], ..answer.clone() };
        let result = world.routers[0].handle_straight(now, from, to, &forged);
        assert_eq!(result, Err(reason), "{status}");
    }
    assert_eq!(world.routers[0].handle_straight(now, from, to, &answer), Ok(()));
}

/// Requests and destinations take bounded memory, and a flood of them does not disturb existing routes.
#[test]
fn flood_of_direct_route_messages_keeps_routes() {
    let mut world = met();
    let before = world.log.len();
    for round in 0..20_000_u64 {
        let source = address(&format!("2001:db8:7::{:x}", round % 5000 + 1));
        let at = if round % 2 == 0 { host(0) } else { care_of(0, 0) };
        let now = world.now;
        if round % 2 == 0 {
            let message = DirectRoute {
                home_address: source,
                prefixes: vec![prefix(&format!("2001:db8:a5:{:x}::/64", round % 60_000))],
                ..DirectRoute::new(DirectRouteKind::HomeTestInit)
            };
            let _ = world.routers[0].handle_inner(now, source, at, &message);
        } else {
            let kind =
                if round % 3 == 0 { DirectRouteKind::CareOfTestInit } else { DirectRouteKind::Heartbeat };
            let message =
                DirectRoute { home_address: source, care_of_address: source, ..DirectRoute::new(kind) };
            let _ = world.routers[0].handle_straight(now, source, at, &message);
        }
        world.routers[0].handle_use(now, address(&format!("2001:db8:a8:{:x}::1", round % 60_000)));
        world.drain(0);
        if round % 10 == 9 {
            world.run(Duration::from_millis(10));
        }
    }
    // In 20 s: 50 answers a second to unauthenticated sources, one request a second, and the messages of the
    // route itself.
    let sent = world.log.len() - before;
    assert!(sent < 64 + 1000 + 30 + 20 * 20, "{sent}");
    assert!(world.dropped(0, DirectDrop::RateLimited) > 10_000);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    let seen = (world.seen(0, 1), world.seen(1, 0));
    assert_eq!((seen.0.lost, seen.0.home, seen.1.lost, seen.1.home), (0, 0, 0, 0), "{seen:?}");
    assert!(world.routers[0].routes().count() <= MAX_PEERS);
    const { assert!(MAX_CANDIDATES <= 128) }
}
