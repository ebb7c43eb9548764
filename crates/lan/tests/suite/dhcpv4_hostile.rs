//! The DHCP server with hostile clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_lan::dhcpv4::{AddressReservation, DhcpDropReason, DhcpEvent, DhcpServerConfig, arp};
use proptest::prelude::*;

use super::client::*;

#[test]
fn invalid_messages_are_dropped_by_reason() {
    let mut world = TestNetwork::new(server_config());
    let valid = MessageBuilder::new(DHCP_DISCOVER, 1);
    let with = |at: usize, octet: u8| {
        let mut octets = valid.octets();
        octets[at] = octet;
        octets
    };
    let relayed = MessageBuilder { giaddr: host_address(9), ..valid.clone() };
    let group = MessageBuilder { mac: [1, 0, 0, 0, 0, 1], ..valid.clone() };
    let nobody = MessageBuilder { mac: [0; 6], ..valid.clone() };
    let decline = MessageBuilder::new(DHCP_DECLINE, 1).with_server(SERVER_ADDRESS);
    for (octets, reason) in [
        (Vec::new(), DhcpDropReason::Malformed),
        (valid.octets()[..239].to_vec(), DhcpDropReason::Malformed),
        (with(0, 2), DhcpDropReason::Malformed),
        (with(236, 0), DhcpDropReason::Malformed),
        (with(242, 99), DhcpDropReason::Malformed),
        (with(1, 6), DhcpDropReason::LinkAddress),
        (with(2, 16), DhcpDropReason::LinkAddress),
        (with(2, 255), DhcpDropReason::LinkAddress),
        (group.octets(), DhcpDropReason::LinkAddress),
        (nobody.octets(), DhcpDropReason::LinkAddress),
        (relayed.octets(), DhcpDropReason::Relayed),
        (MessageBuilder::new(DHCP_REQUEST, 1).octets(), DhcpDropReason::MissingField),
        (
            MessageBuilder::new(DHCP_REQUEST, 1).with_server(SERVER_ADDRESS).octets(),
            DhcpDropReason::MissingField,
        ),
        (decline.octets(), DhcpDropReason::MissingField),
        (decline.with_requested_address(host_address(100)).octets(), DhcpDropReason::NotOwner),
        (
            MessageBuilder::new(DHCP_RELEASE, 1).with_client_address(host_address(100)).octets(),
            DhcpDropReason::NotOwner,
        ),
        (
            MessageBuilder::new(DHCP_INFORM, 1).with_client_address(Ipv4Addr::new(192, 0, 2, 1)).octets(),
            DhcpDropReason::NotOwner,
        ),
    ] {
        let before = world.dhcp_server.counters().dropped_messages(reason);
        world.dhcp_server.handle_message(world.now, wall_time(world.now), &octets);
        assert_eq!(world.dhcp_server.counters().dropped_messages(reason), before + 1, "{reason} {octets:?}");
        assert_eq!(world.dhcp_server.poll_output(), None, "{reason}");
    }
    assert_eq!(world.dhcp_server.total_and_free_addresses(), (10, 10));
}

/// Random link-layer addresses use up the free addresses. Leases and reservations stay.
#[test]
fn starvation_attack_takes_no_lease_or_reservation() {
    let reservation =
        AddressReservation { link_address: client_mac(7), address: host_address(50), name: None };
    let mut world = TestNetwork::new(DhcpServerConfig { reservations: vec![reservation], ..server_config() });
    let mine = world.obtain_address(1).expect("an address");
    let mut rng = Rng::new(7);
    for _ in 0..20_000 {
        let attacker = 1_000_000 + rng.number_below(1 << 30) as u32;
        let mut offers = world.send_message(&MessageBuilder::new(DHCP_DISCOVER, attacker));
        offers.extend(world.advance_time(Duration::from_millis(10)));
        for offer in offers {
            let request = MessageBuilder { mac: offer.mac, ..MessageBuilder::new(DHCP_REQUEST, attacker) };
            world.send_message(&request.with_requested_address(offer.yiaddr).with_server(SERVER_ADDRESS));
        }
    }
    assert!(world.events.iter().any(|event| matches!(event, DhcpEvent::PoolExhausted { addresses: 10 })));
    let warnings = world.events.iter().filter(|event| matches!(event, DhcpEvent::PoolExhausted { .. }));
    assert!(warnings.count() <= 5, "one warning a minute");
    assert!(world.dhcp_server.counters().dropped_messages(DhcpDropReason::PoolExhausted) > 10_000);
    assert_eq!(
        world.send_message(&MessageBuilder::new(DHCP_REQUEST, 1).with_client_address(mine))[0].kind,
        DHCP_ACK
    );
    assert_eq!(world.obtain_address(7), Some(host_address(50)));
    assert_eq!(world.stored_leases.len(), 11);
}

#[test]
fn server_limits_messages_in_flood() {
    let mut world = TestNetwork::new(server_config());
    for client in 0..10_000 {
        world.send_message(&MessageBuilder::new(DHCP_DISCOVER, client));
    }
    assert!(world.dhcp_server.counters().dropped_messages(DhcpDropReason::RateLimit) > 5000);
}

/// One step of a random sequence of messages.
#[derive(Debug, Clone)]
enum ClientStep {
    Send(u8, u32, u8, bool),
    Arp(u32, u8),
    Wait(u64),
    Restart,
}

fn random_step() -> impl Strategy<Value = ClientStep> {
    let kinds = prop::sample::select(vec![
        DHCP_DISCOVER,
        DHCP_REQUEST,
        DHCP_REQUEST,
        DHCP_REQUEST,
        DHCP_DECLINE,
        DHCP_RELEASE,
        DHCP_INFORM,
    ]);
    prop_oneof![
        12 => (kinds, 0..6u32, 98..112u8, any::<bool>())
            .prop_map(|(k, c, a, s)| ClientStep::Send(k, c, a, s)),
        1 => (0..8u32, 98..112u8).prop_map(|(client, last)| ClientStep::Arp(client, last)),
        6 => (0..5000u64).prop_map(ClientStep::Wait),
        1 => (0..5_000_000u64).prop_map(ClientStep::Wait),
        1 => Just(ClientStep::Restart),
    ]
}

/// Leases of which clients have an acknowledgement: for each address the client and the end of the lease.
type BelievedLeases = BTreeMap<Ipv4Addr, (u32, Time)>;

fn note_answers(leases: &mut BelievedLeases, answers: &[ParsedAnswer], now: Time) {
    for answer in answers.iter().filter(|answer| answer.kind == DHCP_ACK && !answer.yiaddr.is_unspecified()) {
        let client = answer.transaction_id;
        if let Some((owner, until)) = leases.get(&answer.yiaddr) {
            assert!(*owner == client || *until <= now, "{} given to {owner} and {client}", answer.yiaddr);
        }
        leases.retain(|_, (owner, _)| *owner != client);
        leases.insert(answer.yiaddr, (client, now + Duration::from_secs(3600)));
    }
}

/// Returns the message of a step.
fn message_of_step(kind: u8, client: u32, last: u8, selects: bool) -> MessageBuilder {
    let message = MessageBuilder::new(kind, client);
    match kind {
        DHCP_REQUEST if selects => {
            message.with_requested_address(host_address(last)).with_server(SERVER_ADDRESS)
        }
        DHCP_REQUEST | DHCP_RELEASE | DHCP_INFORM => message.with_client_address(host_address(last)),
        DHCP_DECLINE => message.with_requested_address(host_address(last)).with_server(SERVER_ADDRESS),
        _ => message,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// No address has two clients after any messages, and after any kill of the program.
    #[test]
    fn server_gives_no_address_to_two_clients(steps in prop::collection::vec(random_step(), 1..150)) {
        let mut world = TestNetwork::new(server_config());
        let mut leases = BelievedLeases::new();
        for step in steps {
            let answers = match step {
                ClientStep::Send(kind, client, last, selects) => {
                    // A client that gives up its address has no lease any more, so remove the lease from the
                    // expected leases as well.
                    if kind == DHCP_RELEASE || kind == DHCP_DECLINE {
                        leases.retain(|leased, (owner, _)| *owner != client || *leased != host_address(last));
                    }
                    world.send_message(&message_of_step(kind, client, last, selects))
                }
                ClientStep::Arp(client, last) => {
                    let host =
                        arp::ArpSender { link_address: client_mac(client), address: host_address(last) };
                    world.dhcp_server.handle_arp(world.now, &arp::arp_request(host, SERVER_ADDRESS));
                    Vec::new()
                }
                ClientStep::Wait(milliseconds) => {
                    // The server may probe an address for up to 500 ms and then lease it. The test counts
                    // such a lease from the start of the wait.
                    let probing = milliseconds.min(500);
                    let (start, answers) = (world.now, world.advance_time(Duration::from_millis(probing)));
                    note_answers(&mut leases, &answers, start);
                    world.advance_time(Duration::from_millis(milliseconds - probing))
                }
                ClientStep::Restart => {
                    world = world.restart_server();
                    Vec::new()
                }
            };
            note_answers(&mut leases, &answers, world.now);
            let held: BTreeSet<Ipv4Addr> =
                world.dhcp_server.active_leases(world.now).map(|lease| lease.address).collect();
            prop_assert!(held.len() <= 10);
            prop_assert!(!held.contains(&SERVER_ADDRESS));
            prop_assert_eq!(&held, &world.stored_leases.keys().copied().collect::<BTreeSet<_>>());
        }
    }

    /// The server answers any octets, or counts the reason for which it drops them.
    #[test]
    fn server_answers_or_counts_every_datagram_it_receives(
        client in 0..4u32,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        length in 0..400usize,
    ) {
        let mut world = TestNetwork::new(server_config());
        let valid = MessageBuilder::new(DHCP_DISCOVER, client).with_option(12, b"name")
            .with_option(55, &[1, 3, 6]);
        let valid = valid.with_option(81, b"\0\0\0n");
        let mut octets = valid.octets();
        for (at, octet) in changes {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        octets.truncate(length);
        world.dhcp_server.handle_message(world.now, wall_time(world.now), &octets);
        world.dhcp_server.handle_arp(world.now, &octets);
        let counters = world.dhcp_server.counters();
        let dropped: u64 = DhcpDropReason::ALL.iter().map(|reason| counters.dropped_messages(*reason)).sum();
        let is_answered = world.dhcp_server.poll_output().is_some();
        prop_assert!(dropped <= 1 && (dropped == 0) == is_answered, "{dropped} {is_answered}");
    }
}
