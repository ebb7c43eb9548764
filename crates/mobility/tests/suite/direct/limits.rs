//! Limits of answers, table entries and computation for each party (RFC 6275 15.4).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_mobility::direct::{DirectDrop, MAX_CANDIDATE_NETWORKS, MAX_PEERS};
use carnet_wire::ipv6::Header;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};
use hmac::{Hmac, KeyInit, Mac};
use ipnet::Ipv6Net;
use sha1::{Digest, Sha1};

use super::direct_route_network::{
    DirectRouteNetwork, address, care_of_address_of, home_address_of, host_address_of, network_of,
    parse_message, prefix,
};
use super::{SECOND, world_with_direct_route};

/// An attacker with its own home agent, who sends anything and receives packets to its home address and its
/// network.
struct AttackingParty {
    home_address: Ipv6Addr,
    care_of_address: Ipv6Addr,
    prefix: Ipv6Net,
}

impl AttackingParty {
    /// Registers with a router, and returns how the router handles the Binding Update. Returns `None` if the
    /// router does not answer the tests before it.
    fn register_with_router(
        &self,
        world: &mut DirectRouteNetwork,
        router: usize,
    ) -> Option<Result<(), DirectDrop>> {
        let from = world.sent_packets_log.len();
        let question = DirectRoute {
            home_address: self.home_address,
            prefixes: vec![self.prefix],
            ..DirectRoute::new(DirectRouteKind::HomeTestInit)
        };
        world.routers[router]
            .handle_tunnelled_message(world.now, self.home_address, host_address_of(router), &question)
            .ok()?;
        let question = DirectRoute {
            home_address: self.home_address,
            care_of_address: self.care_of_address,
            ..DirectRoute::new(DirectRouteKind::CareOfTestInit)
        };
        let ends = (self.care_of_address, care_of_address_of(router, 0));
        world.routers[router].handle_unencrypted_message(world.now, ends.0, ends.1, &question).ok()?;
        world.take_router_outputs(router);
        let tests: BTreeMap<u8, DirectRoute> = world.sent_packets_log[from..]
            .iter()
            .map(|packet| {
                (Header::parse(&packet.octets).expect("a packet").destination, parse_message(&packet.octets))
            })
            .filter(|(to, _)| {
                [self.home_address, self.care_of_address].contains(to) || self.prefix.contains(to)
            })
            .map(|(_, message)| (message.kind as u8, message))
            .collect();
        let of = |kind: DirectRouteKind| tests.get(&(kind as u8));
        let home = of(DirectRouteKind::HomeTest)?;
        let (care_of, prefix) = (of(DirectRouteKind::CareOfTest)?, of(DirectRouteKind::PrefixTest)?);
        let mut hash = Sha1::new();
        for token in [home.keygen_token, care_of.keygen_token, prefix.keygen_token] {
            hash.update(token.to_be_bytes());
        }
        let mut update = DirectRoute {
            sequence: 1,
            lifetime: 105,
            status: 1,
            home_nonce: home.home_nonce,
            care_of_nonce: care_of.care_of_nonce,
            home_address: self.home_address,
            care_of_address: self.care_of_address,
            prefixes: vec![self.prefix],
            ..DirectRoute::new(DirectRouteKind::BindingUpdate)
        };
        let mut mac = <Hmac<Sha1> as KeyInit>::new_from_slice(&hash.finalize()).expect("a key");
        mac.update(&update.octets());
        update.authenticator.copy_from_slice(&mac.finalize().into_bytes()[..12]);
        let result = world.routers[router].handle_unencrypted_message(world.now, ends.0, ends.1, &update);
        world.take_router_outputs(router);
        Some(result)
    }
}

/// Unauthenticated sources that name a bound router do not use up its limit of answers, by any path and from
/// any source address. The router still answers its heartbeats and its handover.
#[test]
fn forged_requests_do_not_limit_registered_peer() {
    let mut world = world_with_direct_route();
    let elsewhere = address("2001:db8:dead::1");
    for round in 0..1000_u64 {
        let init = |kind, care_of_address| DirectRoute {
            home_address: home_address_of(1),
            care_of_address,
            cookie: round,
            ..DirectRoute::new(kind)
        };
        let from = care_of_address_of(1, usize::from(round > 500));
        for source in [elsewhere, from] {
            let (now, router) = (world.now, &mut world.routers[0]);
            let tests = init(DirectRouteKind::CareOfTestInit, source);
            let _ = router.handle_unencrypted_message(now, source, care_of_address_of(0, 0), &tests);
            let heartbeat = init(DirectRouteKind::Heartbeat, source);
            let _ = router.handle_unencrypted_message(now, source, care_of_address_of(0, 0), &heartbeat);
        }
        let question = DirectRoute {
            prefixes: vec![network_of(1)],
            ..init(DirectRouteKind::HomeTestInit, Ipv6Addr::UNSPECIFIED)
        };
        let _ = world.routers[0].handle_tunnelled_message(
            world.now,
            home_address_of(1),
            host_address_of(0),
            &question,
        );
        world.take_router_outputs(0);
        if round == 500 {
            world.set_care_of(1, &[care_of_address_of(1, 1), care_of_address_of(1, 0)]);
        }
        world.advance_time(Duration::from_millis(10));
    }
    assert!(world.dropped_messages(0, DirectDrop::RateLimited) > 1000);
    let route = world.routers[0].routes().next().and_then(|route| route.remote);
    assert_eq!(route, Some(care_of_address_of(1, 1)));
    for (from, to) in [(0, 1), (1, 0)] {
        let seen = world.take_packet_counts(from, to);
        assert_eq!((seen.lost_packets, seen.sent_through_home), (0, 0), "{from}: {seen:?}");
    }
}

/// A heartbeat, and the response to one, counts only with the key of the binding.
#[test]
fn heartbeats_of_direct_route_are_authenticated() {
    let mut world = world_with_direct_route();
    world.filter = Box::new(|_, message| message.kind != DirectRouteKind::HeartbeatResponse);
    world.advance_time(Duration::from_millis(300));
    let last = |kind| {
        world
            .sent_packets_log
            .iter()
            .rev()
            .map(|packet| parse_message(&packet.octets))
            .find(|it| it.kind == kind)
    };
    let mut beats = world
        .sent_packets_log
        .iter()
        .filter(|packet| packet.from == 0)
        .map(|packet| parse_message(&packet.octets));
    let beat = beats.rfind(|message| message.kind == DirectRouteKind::Heartbeat).expect("a heartbeat");
    let mut answers = world
        .sent_packets_log
        .iter()
        .filter(|packet| packet.from == 1)
        .map(|packet| parse_message(&packet.octets));
    let answer = answers.rfind(|message| message.cookie == beat.cookie).expect("an answer");
    assert!(last(DirectRouteKind::HeartbeatResponse).is_some());
    let (now, ends) = (world.now, (care_of_address_of(0, 0), care_of_address_of(1, 0)));
    let forged = DirectRoute { cookie: 5, ..beat };
    assert_eq!(
        world.routers[1].handle_unencrypted_message(now, ends.0, ends.1, &forged),
        Err(DirectDrop::Authenticator)
    );
    let forged = DirectRoute { authenticator: [0; 12], ..answer.clone() };
    assert_eq!(
        world.routers[0].handle_unencrypted_message(now, ends.1, ends.0, &forged),
        Err(DirectDrop::Authenticator)
    );
    assert_eq!(world.routers[0].handle_unencrypted_message(now, ends.1, ends.0, &answer), Ok(()));
}

/// Unauthenticated sources can make a router compute keys of Binding Updates. The router limits these
/// computations; a bound router has its own limit.
#[test]
fn failed_verifications_of_direct_updates_are_limited() {
    let mut world = world_with_direct_route();
    let mut updates = world
        .sent_packets_log
        .iter()
        .filter(|packet| packet.from == 1)
        .map(|packet| parse_message(&packet.octets));
    let update = updates.rfind(|message| message.kind == DirectRouteKind::BindingUpdate);
    let update = update.expect("an update");
    let elsewhere = address("2001:db8:dead::1");
    for (source, most) in [(elsewhere, 100), (care_of_address_of(1, 0), 16)] {
        let forged = DirectRoute { care_of_address: source, authenticator: [1; 12], ..update.clone() };
        let result = |world: &mut DirectRouteNetwork| {
            world.routers[0].handle_unencrypted_message(world.now, source, care_of_address_of(0, 0), &forged)
        };
        if source != elsewhere {
            let again = world.routers[0].handle_unencrypted_message(
                world.now,
                source,
                care_of_address_of(0, 0),
                &update,
            );
            assert_eq!(again, Err(DirectDrop::Sequence), "it was looked at, with the key that it has");
        }
        let results: Vec<_> = (0..5000).map(|_| result(&mut world)).collect();
        let verified = results.iter().filter(|result| **result == Err(DirectDrop::Authenticator)).count();
        assert_eq!(verified, most, "{source}");
        assert!(results[most..].iter().all(|result| *result == Err(DirectDrop::RateLimited)));
    }
}

/// A party with a /48 takes all table entries. A newcomer still gets an entry, and existing routes stay.
#[test]
fn one_network_does_not_fill_the_peer_table() {
    let mut world = DirectRouteNetwork::new(2);
    world.sends_data = false;
    let mut bound = 0;
    for number in 0..2 * MAX_PEERS as u16 {
        let party = AttackingParty {
            home_address: address(&format!("2001:db8:9::{:x}", number + 1)),
            care_of_address: address(&format!("2001:db8:e0::{:x}", number + 1)),
            prefix: prefix(&format!("2001:db8:a4:{number:x}::/64")),
        };
        match party.register_with_router(&mut world, 0).expect("tests") {
            Ok(()) => bound += 1,
            Err(reason) => assert_eq!(reason, DirectDrop::TooMany),
        }
        world.advance_time(Duration::from_millis(100));
    }
    assert!(bound >= MAX_PEERS, "{bound}");
    world.sends_data = true;
    world.advance_time(SECOND * 5);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    assert_eq!(world.take_packet_counts(0, 1).lost_packets + world.take_packet_counts(1, 0).lost_packets, 0);
    assert!(world.routers[0].routes().count() <= MAX_PEERS);
}

/// The networks of one party do not take all table entries for requests.
#[test]
fn requests_are_shared_between_destination_networks() {
    let mut world = DirectRouteNetwork::new(2);
    world.sends_data = false;
    for number in 0..4 * MAX_CANDIDATE_NETWORKS {
        world.now += Duration::from_millis(10);
        world.routers[0].handle_used_destination(world.now, address(&format!("2001:db8:a4:{number:x}::1")));
    }
    for _ in 0..200 {
        world.routers[0].handle_used_destination(world.now, host_address_of(1));
        world.advance_time(Duration::from_millis(100));
    }
    assert!(world.is_direct(0, 1), "although its own question is all that there is");
}
