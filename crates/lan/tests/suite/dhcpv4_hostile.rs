//! The DHCP server with hostile clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_lan::dhcpv4::{DhcpDrop, DhcpEvent, Reservation, ServerConfig, arp};
use proptest::prelude::*;

use super::client::*;

#[test]
fn invalid_messages_are_dropped_by_reason() {
    let mut world = World::new(config());
    let valid = Message::new(DISCOVER, 1);
    let with = |at: usize, octet: u8| {
        let mut octets = valid.octets();
        octets[at] = octet;
        octets
    };
    let relayed = Message { giaddr: address(9), ..valid.clone() };
    let group = Message { mac: [1, 0, 0, 0, 0, 1], ..valid.clone() };
    let nobody = Message { mac: [0; 6], ..valid.clone() };
    let decline = Message::new(DECLINE, 1).with_server(SERVER);
    for (octets, reason) in [
        (Vec::new(), DhcpDrop::Malformed),
        (valid.octets()[..239].to_vec(), DhcpDrop::Malformed),
        (with(0, 2), DhcpDrop::Malformed),
        (with(236, 0), DhcpDrop::Malformed),
        (with(242, 99), DhcpDrop::Malformed),
        (with(1, 6), DhcpDrop::LinkAddress),
        (with(2, 16), DhcpDrop::LinkAddress),
        (with(2, 255), DhcpDrop::LinkAddress),
        (group.octets(), DhcpDrop::LinkAddress),
        (nobody.octets(), DhcpDrop::LinkAddress),
        (relayed.octets(), DhcpDrop::Relayed),
        (Message::new(REQUEST, 1).octets(), DhcpDrop::MissingField),
        (Message::new(REQUEST, 1).with_server(SERVER).octets(), DhcpDrop::MissingField),
        (decline.octets(), DhcpDrop::MissingField),
        (decline.wants(address(100)).octets(), DhcpDrop::NotOwner),
        (Message::new(RELEASE, 1).with_source(address(100)).octets(), DhcpDrop::NotOwner),
        (Message::new(INFORM, 1).with_source(Ipv4Addr::new(192, 0, 2, 1)).octets(), DhcpDrop::NotOwner),
    ] {
        let before = world.server.counters().dropped(reason);
        world.server.handle_message(world.now, wall(world.now), &octets);
        assert_eq!(world.server.counters().dropped(reason), before + 1, "{reason} {octets:?}");
        assert_eq!(world.server.poll_output(), None, "{reason}");
    }
    assert_eq!(world.server.room(), (10, 10));
}

/// Random link-layer addresses use up the free addresses. Leases and reservations stay.
#[test]
fn starvation_leaves_leases_and_reservations() {
    let reservation = Reservation { link_address: mac(7), address: address(50), name: None };
    let mut world = World::new(ServerConfig { reservations: vec![reservation], ..config() });
    let mine = world.obtain(1).expect("an address");
    let mut rng = Rng::new(7);
    for _ in 0..20_000 {
        let attacker = 1_000_000 + rng.below(1 << 30) as u32;
        let mut offers = world.send(&Message::new(DISCOVER, attacker));
        offers.extend(world.wait(Duration::from_millis(10)));
        for offer in offers {
            let request = Message { mac: offer.mac, ..Message::new(REQUEST, attacker) };
            world.send(&request.wants(offer.yiaddr).with_server(SERVER));
        }
    }
    assert!(world.events.iter().any(|event| matches!(event, DhcpEvent::PoolExhausted { addresses: 10 })));
    let warnings = world.events.iter().filter(|event| matches!(event, DhcpEvent::PoolExhausted { .. }));
    assert!(warnings.count() <= 5, "one warning a minute");
    assert!(world.server.counters().dropped(DhcpDrop::PoolExhausted) > 10_000);
    assert_eq!(world.send(&Message::new(REQUEST, 1).with_source(mine))[0].kind, ACK);
    assert_eq!(world.obtain(7), Some(address(50)));
    assert_eq!(world.disk.len(), 11);
}

#[test]
fn flood_has_a_limit() {
    let mut world = World::new(config());
    for client in 0..10_000 {
        world.send(&Message::new(DISCOVER, client));
    }
    assert!(world.server.counters().dropped(DhcpDrop::RateLimit) > 5000);
}

/// One step of a random sequence of messages.
#[derive(Debug, Clone)]
enum Step {
    Send(u8, u32, u8, bool),
    Arp(u32, u8),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let kinds = prop::sample::select(vec![DISCOVER, REQUEST, REQUEST, REQUEST, DECLINE, RELEASE, INFORM]);
    prop_oneof![
        12 => (kinds, 0..6u32, 98..112u8, any::<bool>()).prop_map(|(k, c, a, s)| Step::Send(k, c, a, s)),
        1 => (0..8u32, 98..112u8).prop_map(|(client, last)| Step::Arp(client, last)),
        6 => (0..5000u64).prop_map(Step::Wait),
        1 => (0..5_000_000u64).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// Addresses that clients believe they have, each with the client and the end of the lease.
type Leases = BTreeMap<Ipv4Addr, (u32, Time)>;

fn note(leases: &mut Leases, answers: &[Answer], now: Time) {
    for answer in answers.iter().filter(|answer| answer.kind == ACK && !answer.yiaddr.is_unspecified()) {
        let client = answer.transaction;
        if let Some((owner, until)) = leases.get(&answer.yiaddr) {
            assert!(*owner == client || *until <= now, "{} given to {owner} and {client}", answer.yiaddr);
        }
        leases.retain(|_, (owner, _)| *owner != client);
        leases.insert(answer.yiaddr, (client, now + Duration::from_secs(3600)));
    }
}

/// Returns the message of a step.
fn message(kind: u8, client: u32, last: u8, selects: bool) -> Message {
    let message = Message::new(kind, client);
    match kind {
        REQUEST if selects => message.wants(address(last)).with_server(SERVER),
        REQUEST | RELEASE | INFORM => message.with_source(address(last)),
        DECLINE => message.wants(address(last)).with_server(SERVER),
        _ => message,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// No address has two clients after any messages, and after any kill of the program.
    #[test]
    fn no_address_has_two_clients(steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new(config());
        let mut leases = Leases::new();
        for step in steps {
            let answers = match step {
                Step::Send(kind, client, last, selects) => {
                    // The server believes a client that gives its own address up, so the test removes the
                    // lease as well.
                    if kind == RELEASE || kind == DECLINE {
                        leases.retain(|leased, (owner, _)| *owner != client || *leased != address(last));
                    }
                    world.send(&message(kind, client, last, selects))
                }
                Step::Arp(client, last) => {
                    let host = arp::ArpSender { link_address: mac(client), address: address(last) };
                    world.server.handle_arp(world.now, &arp::request(host, SERVER));
                    Vec::new()
                }
                Step::Wait(milliseconds) => {
                    // A lease after a probe begins in this time. The test assumes that it begins at once.
                    let probing = milliseconds.min(500);
                    let (start, answers) = (world.now, world.wait(Duration::from_millis(probing)));
                    note(&mut leases, &answers, start);
                    world.wait(Duration::from_millis(milliseconds - probing))
                }
                Step::Restart => {
                    world = world.restart();
                    Vec::new()
                }
            };
            note(&mut leases, &answers, world.now);
            let held: BTreeSet<Ipv4Addr> =
                world.server.leases(world.now).map(|lease| lease.address).collect();
            prop_assert!(held.len() <= 10);
            prop_assert!(!held.contains(&SERVER));
            prop_assert_eq!(&held, &world.disk.keys().copied().collect::<BTreeSet<_>>());
        }
    }

    /// For any octets, the server answers or counts a reason for the drop.
    #[test]
    fn any_octets_are_counted(
        client in 0..4u32,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        length in 0..400usize,
    ) {
        let mut world = World::new(config());
        let valid = Message::new(DISCOVER, client).with(12, b"name").with(55, &[1, 3, 6]);
        let valid = valid.with(81, b"\0\0\0n");
        let mut octets = valid.octets();
        for (at, octet) in changes {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        octets.truncate(length);
        world.server.handle_message(world.now, wall(world.now), &octets);
        world.server.handle_arp(world.now, &octets);
        let counters = world.server.counters();
        let dropped: u64 = DhcpDrop::ALL.iter().map(|reason| counters.dropped(*reason)).sum();
        let is_answered = world.server.poll_output().is_some();
        prop_assert!(dropped <= 1 && (dropped == 0) == is_answered, "{dropped} {is_answered}");
    }
}
