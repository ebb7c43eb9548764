//! The DHCP server with clients that follow RFC 2131.

use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_lan::dhcpv4::arp::{self, ArpSender};
use carnet_lan::dhcpv4::{AddressReservation, DhcpDropReason, DhcpEvent, DhcpServerConfig};

use super::client::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn server_probes_address_before_offer_and_then_acknowledges_it() {
    let mut world = TestNetwork::new(server_config());
    let discover = MessageBuilder::new(DHCP_DISCOVER, 1)
        .with_option(55, &[1, 3, 6, 15, 26, 51, 119])
        .with_option(12, b"Camera_1");
    assert_eq!(world.send_message(&discover), []);
    assert_eq!(world.probed_addresses, [host_address(100)]);
    // If the client repeats its message, the server sends no second ARP request.
    assert_eq!(world.send_message(&discover), []);
    assert_eq!(world.probed_addresses.len(), 1);
    assert_eq!(world.advance_time(Duration::from_millis(499)), []);
    let offers = world.advance_time(Duration::from_millis(1));
    let [offer] = &offers[..] else { panic!("{offers:?}") };
    assert_eq!((offer.kind, offer.yiaddr, offer.transaction_id), (DHCP_OFFER, host_address(100), 1));
    // The client has no address and did not request broadcast, so the offer goes to its link-layer address by
    // unicast.
    assert_eq!(
        (offer.server_message.link_destination, offer.server_message.destination),
        (client_mac(1), host_address(100))
    );
    assert!(world.stored_leases.is_empty());

    let request = MessageBuilder::new(DHCP_REQUEST, 1)
        .with_requested_address(host_address(100))
        .with_server(SERVER_ADDRESS)
        .with_option(12, b"Camera_1");
    let answers = world.send_message(&request.with_option(55, &[1, 3, 6, 15, 26, 51, 119]));
    let [ack] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((ack.kind, ack.yiaddr), (DHCP_ACK, host_address(100)));
    let value = |code: u8| ack.options.get(&code).map(Vec::as_slice);
    assert_eq!(value(1), Some(&[255, 255, 255, 0][..]));
    assert_eq!(value(3), Some(&SERVER_ADDRESS.octets()[..]));
    assert_eq!(value(6), Some(&[10, 42, 7, 53][..]));
    assert_eq!(value(15), Some(&b"bus.example"[..]));
    assert_eq!(value(26), Some(&[5, 120][..]));
    assert_eq!(value(51), Some(&[0, 0, 14, 16][..]));
    assert_eq!(value(58), Some(&[0, 0, 7, 8][..]));
    assert_eq!(value(59), Some(&[0, 0, 12, 78][..]));
    assert_eq!(value(119), Some(&b"\x03bus\x07example\x00"[..]));
    let lease = world.dhcp_server.active_leases(world.now).next().expect("a lease");
    assert_eq!((lease.host_name.as_deref(), lease.remaining_time), (Some("camera-1"), 3600 * SECOND));
    let [DhcpEvent::Leased { address: leased, .. }] = &world.events[..] else { panic!("{:?}", world.events) };
    assert_eq!(*leased, host_address(100));
}

#[test]
fn server_broadcasts_answers_to_client_with_broadcast_flag() {
    let mut world = TestNetwork::new(server_config());
    let discover = MessageBuilder { needs_broadcast: true, ..MessageBuilder::new(DHCP_DISCOVER, 1) };
    world.send_message(&discover);
    let offers = world.advance_time(SECOND);
    assert_eq!(offers[0].server_message.destination, Ipv4Addr::BROADCAST);
    assert_eq!(offers[0].server_message.link_destination, [0xff; 6]);
}

#[test]
fn server_answers_renewal_by_unicast_and_extends_the_lease() {
    let mut world = TestNetwork::new(server_config());
    let leased = world.obtain_address(1).expect("an address");
    world.advance_time(1800 * SECOND);
    let renewal = MessageBuilder::new(DHCP_REQUEST, 1).with_client_address(leased);
    let answers = world.send_message(&renewal);
    assert_eq!((answers[0].kind, answers[0].server_message.destination), (DHCP_ACK, leased));
    world.advance_time(3599 * SECOND);
    assert_eq!(world.dhcp_server.active_leases(world.now).count(), 1);
    world.advance_time(SECOND);
    assert_eq!(world.dhcp_server.active_leases(world.now).count(), 0);
    assert!(world.stored_leases.is_empty(), "an ended lease is no longer stored");
}

#[test]
fn server_renews_unknown_lease_if_its_address_is_free() {
    let mut world = TestNetwork::new(server_config());
    let renewal = |client, address| MessageBuilder::new(DHCP_REQUEST, client).with_client_address(address);
    assert_eq!(world.send_message(&renewal(1, host_address(104))), []);
    assert_eq!(world.advance_time(SECOND)[0].kind, DHCP_ACK);
    assert_eq!(world.send_message(&renewal(2, host_address(104)))[0].kind, DHCP_NAK);
    // The server refuses an address outside of its range, and then an address of another network.
    assert_eq!(world.send_message(&renewal(3, host_address(50)))[0].kind, DHCP_NAK);
    let nak = &world.send_message(&renewal(3, Ipv4Addr::new(192, 168, 1, 5)))[0];
    assert_eq!((nak.kind, nak.server_message.destination), (DHCP_NAK, Ipv4Addr::BROADCAST));
}

#[test]
fn client_that_starts_again_keeps_its_address() {
    let mut world = TestNetwork::new(server_config());
    let leased = world.obtain_address(1).expect("an address");
    let reboot = |client, address| MessageBuilder::new(DHCP_REQUEST, client).with_requested_address(address);
    assert_eq!(world.send_message(&reboot(1, leased))[0].kind, DHCP_ACK);
    // The server refuses a wrong address, and then an address of another network.
    assert_eq!(world.send_message(&reboot(1, host_address(109)))[0].kind, DHCP_NAK);
    assert_eq!(world.send_message(&reboot(2, Ipv4Addr::new(192, 168, 1, 5)))[0].kind, DHCP_NAK);
    // RFC 2131 4.3.2: a server without record of the client is silent.
    assert_eq!(world.send_message(&reboot(2, host_address(105))), []);
    assert_eq!(world.dhcp_server.counters().dropped_messages(DhcpDropReason::UnknownClient), 1);
}

#[test]
fn released_address_goes_to_the_same_client_again() {
    let mut world = TestNetwork::new(server_config());
    let first = world.obtain_address(1).expect("an address");
    world.obtain_address(2).expect("an address");
    let release = MessageBuilder::new(DHCP_RELEASE, 1).with_client_address(first).with_server(SERVER_ADDRESS);
    assert_eq!(world.send_message(&release), []);
    assert!(!world.stored_leases.contains_key(&first));
    assert!(matches!(world.events.last(), Some(DhcpEvent::Released { .. })));
    assert_ne!(world.obtain_address(3), Some(first), "addresses that were never used come first");
    assert_eq!(world.obtain_address(1), Some(first));
    // Another client cannot release the lease.
    world.send_message(
        &MessageBuilder::new(DHCP_RELEASE, 2).with_client_address(first).with_server(SERVER_ADDRESS),
    );
    assert!(world.stored_leases.contains_key(&first));
    assert_eq!(world.dhcp_server.counters().dropped_messages(DhcpDropReason::NotOwner), 1);
}

#[test]
fn server_withholds_declined_address_and_offers_client_another() {
    let mut world = TestNetwork::new(server_config());
    let first = world.obtain_address(1).expect("an address");
    assert_eq!(
        world.send_message(
            &MessageBuilder::new(DHCP_DECLINE, 1).with_requested_address(first).with_server(SERVER_ADDRESS)
        ),
        []
    );
    assert!(matches!(world.events.last(), Some(DhcpEvent::InUse { declined: true, .. })));
    assert!(!world.stored_leases.contains_key(&first));
    let others: Vec<_> = (1..=10).map(|client| world.obtain_address(client)).collect();
    assert!(!others.contains(&Some(first)), "{others:?}");
    assert_eq!(others.iter().flatten().count(), 9);
    world.advance_time(600 * SECOND);
    assert_eq!(world.obtain_address(10), Some(first));
}

#[test]
fn server_does_not_offer_address_in_use() {
    let mut world = TestNetwork::new(server_config());
    world.send_message(&MessageBuilder::new(DHCP_DISCOVER, 1));
    let host = ArpSender { link_address: client_mac(99), address: host_address(100) };
    world.dhcp_server.handle_arp(world.now, &arp::arp_request(host, SERVER_ADDRESS));
    let offers = world.advance_time(SECOND);
    assert_eq!(offers.iter().map(|offer| offer.yiaddr).collect::<Vec<_>>(), [host_address(101)]);
    assert_eq!(world.dhcp_server.counters().address_conflicts, 1);
    assert!(matches!(world.events[..], [DhcpEvent::InUse { declined: false, .. }]));
}

#[test]
fn address_that_was_not_offered_is_probed_before_its_acknowledgement() {
    let reservation =
        AddressReservation { link_address: client_mac(4), address: host_address(50), name: None };
    let mut world = TestNetwork::new(DhcpServerConfig { reservations: vec![reservation], ..server_config() });
    let requests = [
        MessageBuilder::new(DHCP_REQUEST, 1)
            .with_requested_address(host_address(101))
            .with_server(SERVER_ADDRESS),
        MessageBuilder::new(DHCP_REQUEST, 2).with_client_address(host_address(102)),
        MessageBuilder::new(DHCP_REQUEST, 4).with_requested_address(host_address(50)),
    ];
    for request in &requests {
        assert_eq!(world.send_message(request), []);
        // The client repeats its message while the server probes the address.
        assert_eq!(world.send_message(request), []);
    }
    assert_eq!(world.probed_addresses, [host_address(101), host_address(102), host_address(50)]);
    let host = ArpSender { link_address: client_mac(99), address: host_address(102) };
    world.dhcp_server.handle_arp(world.now, &arp::arp_request(host, SERVER_ADDRESS));
    let answers: Vec<_> = world.advance_time(SECOND).iter().map(|it| (it.kind, it.transaction_id)).collect();
    assert_eq!(answers, [(DHCP_NAK, 2), (DHCP_ACK, 4), (DHCP_ACK, 1)]);
    assert_eq!(
        world.stored_leases.keys().copied().collect::<Vec<_>>(),
        [host_address(50), host_address(101)]
    );
    // After the lease has ended, the server probes the address before it acknowledges it, because another
    // host may use the address now.
    world.advance_time(3601 * SECOND);
    assert_eq!(
        world.send_message(&MessageBuilder::new(DHCP_REQUEST, 1).with_requested_address(host_address(101))),
        []
    );
    assert_eq!(world.advance_time(SECOND)[0].kind, DHCP_ACK);
}

#[test]
fn arp_answer_of_the_client_itself_is_no_address_conflict() {
    let mut world = TestNetwork::new(server_config());
    world.send_message(&MessageBuilder::new(DHCP_DISCOVER, 1));
    let host = ArpSender { link_address: client_mac(1), address: host_address(100) };
    world.dhcp_server.handle_arp(world.now, &arp::arp_request(host, SERVER_ADDRESS));
    assert_eq!(world.advance_time(SECOND)[0].yiaddr, host_address(100));
}

#[test]
fn server_gives_reserved_address_only_to_its_host() {
    let reservation = AddressReservation {
        link_address: client_mac(1),
        address: host_address(105),
        name: Some("camera".into()),
    };
    let mut world = TestNetwork::new(DhcpServerConfig { reservations: vec![reservation], ..server_config() });
    let others: Vec<_> = (2..=12).filter_map(|client| world.obtain_address(client)).collect();
    assert_eq!(others.len(), 9);
    assert!(!others.contains(&host_address(105)));
    assert_eq!(world.obtain_address(1), Some(host_address(105)));
    let lease = world.dhcp_server.active_leases(world.now).find(|lease| lease.is_reserved).expect("a lease");
    assert_eq!((lease.address, lease.host_name.as_deref()), (host_address(105), Some("camera")));
    // The same host requests an address again, with a client identifier.
    let discover = MessageBuilder::new(DHCP_DISCOVER, 1).with_option(61, b"\x00other");
    let offers = [world.send_message(&discover), world.advance_time(SECOND)].concat();
    assert_eq!(offers[0].yiaddr, host_address(105));
}

#[test]
fn server_identifies_client_by_identifier_before_link_layer_address() {
    let mut world = TestNetwork::new(server_config());
    let discover = |client| MessageBuilder::new(DHCP_DISCOVER, client).with_option(61, b"\xffidentity");
    world.send_message(&discover(1));
    let first = world.advance_time(SECOND)[0].clone();
    let second = [world.send_message(&discover(2)), world.advance_time(SECOND)].concat()[0].clone();
    assert_eq!(first.yiaddr, second.yiaddr);
    // RFC 6842: the server returns the client identifier.
    assert_eq!(second.options.get(&61).map(Vec::as_slice), Some(&b"\xffidentity"[..]));
}

#[test]
fn server_withdraws_offer_and_reports_other_server_that_client_selects() {
    let mut world = TestNetwork::new(server_config());
    world.send_message(&MessageBuilder::new(DHCP_DISCOVER, 1));
    world.advance_time(SECOND);
    let other = host_address(2);
    world.send_message(
        &MessageBuilder::new(DHCP_REQUEST, 1).with_requested_address(host_address(200)).with_server(other),
    );
    assert_eq!(world.dhcp_server.other_server(), Some(other));
    assert!(matches!(world.events[..], [DhcpEvent::OtherServer { .. }]));
    world.send_message(
        &MessageBuilder::new(DHCP_REQUEST, 1).with_requested_address(host_address(200)).with_server(other),
    );
    assert_eq!(world.events.len(), 1);
    assert_eq!(world.dhcp_server.total_and_free_addresses(), (10, 10));
}

#[test]
fn server_answers_dhcp_inform_without_a_lease() {
    let mut world = TestNetwork::new(server_config());
    let answers =
        world.send_message(&MessageBuilder::new(DHCP_INFORM, 1).with_client_address(host_address(20)));
    assert_eq!((answers[0].kind, answers[0].yiaddr), (DHCP_ACK, Ipv4Addr::UNSPECIFIED));
    assert_eq!(answers[0].server_message.destination, host_address(20));
    assert_eq!(answers[0].options.get(&51), None);
    assert!(!answers[0].server_message.waits_for_store);
    assert!(world.stored_leases.is_empty());
}

#[test]
fn ipv6_only_option_goes_only_to_a_client_that_names_it() {
    let mut world = TestNetwork::new(DhcpServerConfig { prefers_ipv6_only: true, ..server_config() });
    world.send_message(&MessageBuilder::new(DHCP_DISCOVER, 1).with_option(55, &[1, 3, 108]));
    let offers = world.advance_time(SECOND);
    assert_eq!(offers[0].options.get(&108).map(Vec::as_slice), Some(&[0, 0, 7, 8][..]));
    world.send_message(&MessageBuilder::new(DHCP_DISCOVER, 2));
    let offers = world.advance_time(SECOND);
    assert_eq!(offers[0].options.get(&108), None);
}

#[test]
fn answer_has_as_many_options_as_the_client_accepts() {
    let long = |name: u8| format!("{}.example", String::from_utf8(vec![name; 60]).expect("letters"));
    let search: Vec<String> = (b'a'..=b'h').map(long).collect();
    let uri = format!("https://portal.example/{}", "a".repeat(200));
    let mut world = TestNetwork::new(DhcpServerConfig {
        search_domains: search,
        captive_portal: Some(uri.clone()),
        ..server_config()
    });
    world.send_message(&MessageBuilder::new(DHCP_DISCOVER, 1));
    let offer = world.advance_time(SECOND)[0].clone();
    assert!(offer.server_message.message_octets.len() <= 548);
    assert_eq!((offer.options.get(&119), offer.options.contains_key(&6)), (None, true));
    world.send_message(&MessageBuilder::new(DHCP_DISCOVER, 2).with_option(57, &1500u16.to_be_bytes()));
    let offer = world.advance_time(SECOND)[0].clone();
    // RFC 3396: the search list is longer than one option, so it takes several.
    assert_eq!(offer.options.get(&119).map(Vec::len), Some(8 * (61 + 9)));
    assert_eq!(offer.options.get(&114), Some(&uri.into_bytes()));
}

#[test]
fn leases_survive_restart_of_server() {
    let mut world = TestNetwork::new(server_config());
    let before: Vec<_> = (1..=10).map(|client| world.obtain_address(client).expect("an address")).collect();
    world.advance_time(600 * SECOND);
    let mut world = world.restart_server();
    assert_eq!(world.obtain_address(99), None, "each address has its client still");
    let after: Vec<_> = (1..=10).map(|client| world.obtain_address(client).expect("an address")).collect();
    assert_eq!(before, after);
}

#[test]
fn server_refuses_renewal_of_address_outside_changed_range() {
    let mut world = TestNetwork::new(server_config());
    let leased = world.obtain_address(1).expect("an address");
    let range = (host_address(200), host_address(209));
    world.dhcp_server.reconfigure(DhcpServerConfig { address_range: range, ..server_config() });
    assert_eq!(world.dhcp_server.active_leases(world.now).count(), 1);
    assert_eq!(
        world.send_message(&MessageBuilder::new(DHCP_REQUEST, 1).with_client_address(leased))[0].kind,
        DHCP_NAK
    );
    assert_eq!(world.obtain_address(1), Some(host_address(200)));
    assert_eq!(world.stored_leases.len(), 1);
}

#[test]
fn server_without_address_is_silent() {
    let mut world = TestNetwork::new(server_config());
    world.dhcp_server.set_address(None);
    assert_eq!(world.send_message(&MessageBuilder::new(DHCP_DISCOVER, 1)), []);
    assert_eq!(world.dhcp_server.counters().dropped_messages(DhcpDropReason::NoAddress), 1);
}
