//! The DHCP server with clients that follow RFC 2131.

use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_lan::dhcpv4::arp::{self, ArpSender};
use carnet_lan::dhcpv4::{DhcpDrop, DhcpEvent, Reservation, ServerConfig};

use super::client::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn client_without_address_gets_an_offer_after_the_probe_and_an_acknowledgement() {
    let mut world = World::new(config());
    let discover = Message::new(DISCOVER, 1).with(55, &[1, 3, 6, 15, 26, 51, 119]).with(12, b"Camera_1");
    assert_eq!(world.send(&discover), []);
    assert_eq!(world.probes, [address(100)]);
    // If a client sends its message again, the server sends no second ARP request.
    assert_eq!(world.send(&discover), []);
    assert_eq!(world.probes.len(), 1);
    assert_eq!(world.wait(Duration::from_millis(499)), []);
    let offers = world.wait(Duration::from_millis(1));
    let [offer] = &offers[..] else { panic!("{offers:?}") };
    assert_eq!((offer.kind, offer.yiaddr, offer.transaction), (OFFER, address(100), 1));
    // The client has no address and did not request broadcast, so the offer goes to its link-layer address by
    // unicast.
    assert_eq!((offer.datagram.link_destination, offer.datagram.destination), (mac(1), address(100)));
    assert!(world.disk.is_empty());

    let request = Message::new(REQUEST, 1).wants(address(100)).with_server(SERVER).with(12, b"Camera_1");
    let answers = world.send(&request.with(55, &[1, 3, 6, 15, 26, 51, 119]));
    let [ack] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((ack.kind, ack.yiaddr), (ACK, address(100)));
    let value = |code: u8| ack.options.get(&code).map(Vec::as_slice);
    assert_eq!(value(1), Some(&[255, 255, 255, 0][..]));
    assert_eq!(value(3), Some(&SERVER.octets()[..]));
    assert_eq!(value(6), Some(&[10, 42, 7, 53][..]));
    assert_eq!(value(15), Some(&b"bus.example"[..]));
    assert_eq!(value(26), Some(&[5, 120][..]));
    assert_eq!(value(51), Some(&[0, 0, 14, 16][..]));
    assert_eq!(value(58), Some(&[0, 0, 7, 8][..]));
    assert_eq!(value(59), Some(&[0, 0, 12, 78][..]));
    assert_eq!(value(119), Some(&b"\x03bus\x07example\x00"[..]));
    let lease = world.server.leases(world.now).next().expect("a lease");
    assert_eq!((lease.host_name.as_deref(), lease.remaining), (Some("camera-1"), 3600 * SECOND));
    let [DhcpEvent::Leased { address: leased, .. }] = &world.events[..] else { panic!("{:?}", world.events) };
    assert_eq!(*leased, address(100));
}

#[test]
fn client_that_asks_for_broadcast_gets_broadcast_answers() {
    let mut world = World::new(config());
    let discover = Message { broadcast: true, ..Message::new(DISCOVER, 1) };
    world.send(&discover);
    let offers = world.wait(SECOND);
    assert_eq!(offers[0].datagram.destination, Ipv4Addr::BROADCAST);
    assert_eq!(offers[0].datagram.link_destination, [0xff; 6]);
}

#[test]
fn renewal_extends_the_lease_and_is_answered_by_unicast() {
    let mut world = World::new(config());
    let leased = world.obtain(1).expect("an address");
    world.wait(1800 * SECOND);
    let renewal = Message::new(REQUEST, 1).with_source(leased);
    let answers = world.send(&renewal);
    assert_eq!((answers[0].kind, answers[0].datagram.destination), (ACK, leased));
    world.wait(3599 * SECOND);
    assert_eq!(world.server.leases(world.now).count(), 1);
    world.wait(SECOND);
    assert_eq!(world.server.leases(world.now).count(), 0);
    assert!(world.disk.is_empty(), "an ended lease is no longer stored");
}

#[test]
fn renewal_of_a_lost_lease_is_granted_unless_another_client_has_the_address() {
    let mut world = World::new(config());
    let renewal = |client, address| Message::new(REQUEST, client).with_source(address);
    assert_eq!(world.send(&renewal(1, address(104))), []);
    assert_eq!(world.wait(SECOND)[0].kind, ACK);
    assert_eq!(world.send(&renewal(2, address(104)))[0].kind, NAK);
    // The server refuses an address outside of its range, and then an address of another network.
    assert_eq!(world.send(&renewal(3, address(50)))[0].kind, NAK);
    let nak = &world.send(&renewal(3, Ipv4Addr::new(192, 168, 1, 5)))[0];
    assert_eq!((nak.kind, nak.datagram.destination), (NAK, Ipv4Addr::BROADCAST));
}

#[test]
fn client_that_starts_again_keeps_its_address() {
    let mut world = World::new(config());
    let leased = world.obtain(1).expect("an address");
    let reboot = |client, address| Message::new(REQUEST, client).wants(address);
    assert_eq!(world.send(&reboot(1, leased))[0].kind, ACK);
    // The server refuses a wrong address, and then an address of another network.
    assert_eq!(world.send(&reboot(1, address(109)))[0].kind, NAK);
    assert_eq!(world.send(&reboot(2, Ipv4Addr::new(192, 168, 1, 5)))[0].kind, NAK);
    // RFC 2131 4.3.2: a server without record of the client is silent.
    assert_eq!(world.send(&reboot(2, address(105))), []);
    assert_eq!(world.server.counters().dropped(DhcpDrop::UnknownClient), 1);
}

#[test]
fn released_address_goes_to_the_same_client_again() {
    let mut world = World::new(config());
    let first = world.obtain(1).expect("an address");
    world.obtain(2).expect("an address");
    let release = Message::new(RELEASE, 1).with_source(first).with_server(SERVER);
    assert_eq!(world.send(&release), []);
    assert!(!world.disk.contains_key(&first));
    assert!(matches!(world.events.last(), Some(DhcpEvent::Released { .. })));
    assert_ne!(world.obtain(3), Some(first), "addresses that were never used come first");
    assert_eq!(world.obtain(1), Some(first));
    // Another client cannot release the lease.
    world.send(&Message::new(RELEASE, 2).with_source(first).with_server(SERVER));
    assert!(world.disk.contains_key(&first));
    assert_eq!(world.server.counters().dropped(DhcpDrop::NotOwner), 1);
}

#[test]
fn declined_address_rests_and_the_client_gets_another() {
    let mut world = World::new(config());
    let first = world.obtain(1).expect("an address");
    assert_eq!(world.send(&Message::new(DECLINE, 1).wants(first).with_server(SERVER)), []);
    assert!(matches!(world.events.last(), Some(DhcpEvent::InUse { declined: true, .. })));
    assert!(!world.disk.contains_key(&first));
    let others: Vec<_> = (1..=10).map(|client| world.obtain(client)).collect();
    assert!(!others.contains(&Some(first)), "{others:?}");
    assert_eq!(others.iter().flatten().count(), 9);
    world.wait(600 * SECOND);
    assert_eq!(world.obtain(10), Some(first));
}

#[test]
fn address_in_use_is_not_offered() {
    let mut world = World::new(config());
    world.send(&Message::new(DISCOVER, 1));
    let host = ArpSender { link_address: mac(99), address: address(100) };
    world.server.handle_arp(world.now, &arp::request(host, SERVER));
    let offers = world.wait(SECOND);
    assert_eq!(offers.iter().map(|offer| offer.yiaddr).collect::<Vec<_>>(), [address(101)]);
    assert_eq!(world.server.counters().conflicts, 1);
    assert!(matches!(world.events[..], [DhcpEvent::InUse { declined: false, .. }]));
}

#[test]
fn address_that_was_not_offered_is_probed_before_its_acknowledgement() {
    let reservation = Reservation { link_address: mac(4), address: address(50), name: None };
    let mut world = World::new(ServerConfig { reservations: vec![reservation], ..config() });
    let requests = [
        Message::new(REQUEST, 1).wants(address(101)).with_server(SERVER),
        Message::new(REQUEST, 2).with_source(address(102)),
        Message::new(REQUEST, 4).wants(address(50)),
    ];
    for request in &requests {
        assert_eq!(world.send(request), []);
        // The client repeats its message meanwhile.
        assert_eq!(world.send(request), []);
    }
    assert_eq!(world.probes, [address(101), address(102), address(50)]);
    let host = ArpSender { link_address: mac(99), address: address(102) };
    world.server.handle_arp(world.now, &arp::request(host, SERVER));
    let answers: Vec<_> = world.wait(SECOND).iter().map(|it| (it.kind, it.transaction)).collect();
    assert_eq!(answers, [(NAK, 2), (ACK, 4), (ACK, 1)]);
    assert_eq!(world.disk.keys().copied().collect::<Vec<_>>(), [address(50), address(101)]);
    // A lease that has ended is no offer, either: another host may use the address now.
    world.wait(3601 * SECOND);
    assert_eq!(world.send(&Message::new(REQUEST, 1).wants(address(101))), []);
    assert_eq!(world.wait(SECOND)[0].kind, ACK);
}

#[test]
fn answer_of_the_client_itself_is_no_conflict() {
    let mut world = World::new(config());
    world.send(&Message::new(DISCOVER, 1));
    let host = ArpSender { link_address: mac(1), address: address(100) };
    world.server.handle_arp(world.now, &arp::request(host, SERVER));
    assert_eq!(world.wait(SECOND)[0].yiaddr, address(100));
}

#[test]
fn reservation_gives_its_host_the_address_and_no_other_host() {
    let reservation =
        Reservation { link_address: mac(1), address: address(105), name: Some("camera".into()) };
    let mut world = World::new(ServerConfig { reservations: vec![reservation], ..config() });
    let others: Vec<_> = (2..=12).filter_map(|client| world.obtain(client)).collect();
    assert_eq!(others.len(), 9);
    assert!(!others.contains(&address(105)));
    assert_eq!(world.obtain(1), Some(address(105)));
    let lease = world.server.leases(world.now).find(|lease| lease.is_reserved).expect("a lease");
    assert_eq!((lease.address, lease.host_name.as_deref()), (address(105), Some("camera")));
    // The same host requests an address again, with a client identifier.
    let discover = Message::new(DISCOVER, 1).with(61, b"\x00other");
    let offers = [world.send(&discover), world.wait(SECOND)].concat();
    assert_eq!(offers[0].yiaddr, address(105));
}

#[test]
fn client_identifier_goes_before_the_link_layer_address() {
    let mut world = World::new(config());
    let discover = |client| Message::new(DISCOVER, client).with(61, b"\xffidentity");
    world.send(&discover(1));
    let first = world.wait(SECOND)[0].clone();
    let second = [world.send(&discover(2)), world.wait(SECOND)].concat()[0].clone();
    assert_eq!(first.yiaddr, second.yiaddr);
    // RFC 6842: the server returns the client identifier.
    assert_eq!(second.options.get(&61).map(Vec::as_slice), Some(&b"\xffidentity"[..]));
}

#[test]
fn client_that_selects_another_server_frees_its_offer_and_shows_that_server() {
    let mut world = World::new(config());
    world.send(&Message::new(DISCOVER, 1));
    world.wait(SECOND);
    let other = address(2);
    world.send(&Message::new(REQUEST, 1).wants(address(200)).with_server(other));
    assert_eq!(world.server.other_server(), Some(other));
    assert!(matches!(world.events[..], [DhcpEvent::OtherServer { .. }]));
    world.send(&Message::new(REQUEST, 1).wants(address(200)).with_server(other));
    assert_eq!(world.events.len(), 1);
    assert_eq!(world.server.room(), (10, 10));
}

#[test]
fn inform_gets_the_values_without_a_lease() {
    let mut world = World::new(config());
    let answers = world.send(&Message::new(INFORM, 1).with_source(address(20)));
    assert_eq!((answers[0].kind, answers[0].yiaddr), (ACK, Ipv4Addr::UNSPECIFIED));
    assert_eq!(answers[0].datagram.destination, address(20));
    assert_eq!(answers[0].options.get(&51), None);
    assert!(!answers[0].datagram.waits_for_store);
    assert!(world.disk.is_empty());
}

#[test]
fn ipv6_only_option_goes_only_to_a_client_that_names_it() {
    let mut world = World::new(ServerConfig { prefers_ipv6_only: true, ..config() });
    world.send(&Message::new(DISCOVER, 1).with(55, &[1, 3, 108]));
    let offers = world.wait(SECOND);
    assert_eq!(offers[0].options.get(&108).map(Vec::as_slice), Some(&[0, 0, 7, 8][..]));
    world.send(&Message::new(DISCOVER, 2));
    let offers = world.wait(SECOND);
    assert_eq!(offers[0].options.get(&108), None);
}

#[test]
fn answer_has_as_many_options_as_the_client_accepts() {
    let long = |name: u8| format!("{}.example", String::from_utf8(vec![name; 60]).expect("letters"));
    let search: Vec<String> = (b'a'..=b'h').map(long).collect();
    let uri = format!("https://portal.example/{}", "a".repeat(200));
    let mut world = World::new(ServerConfig { search, captive_portal: Some(uri.clone()), ..config() });
    world.send(&Message::new(DISCOVER, 1));
    let offer = world.wait(SECOND)[0].clone();
    assert!(offer.datagram.message.len() <= 548);
    assert_eq!((offer.options.get(&119), offer.options.contains_key(&6)), (None, true));
    world.send(&Message::new(DISCOVER, 2).with(57, &1500u16.to_be_bytes()));
    let offer = world.wait(SECOND)[0].clone();
    // RFC 3396: the search list is longer than one option, so it takes several.
    assert_eq!(offer.options.get(&119).map(Vec::len), Some(8 * (61 + 9)));
    assert_eq!(offer.options.get(&114), Some(&uri.into_bytes()));
}

#[test]
fn leases_survive_a_restart() {
    let mut world = World::new(config());
    let before: Vec<_> = (1..=10).map(|client| world.obtain(client).expect("an address")).collect();
    world.wait(600 * SECOND);
    let mut world = world.restart();
    assert_eq!(world.obtain(99), None, "each address has its client still");
    let after: Vec<_> = (1..=10).map(|client| world.obtain(client).expect("an address")).collect();
    assert_eq!(before, after);
}

#[test]
fn changed_range_ends_an_address_at_its_renewal() {
    let mut world = World::new(config());
    let leased = world.obtain(1).expect("an address");
    let range = (address(200), address(209));
    world.server.reconfigure(ServerConfig { range, ..config() });
    assert_eq!(world.server.leases(world.now).count(), 1);
    assert_eq!(world.send(&Message::new(REQUEST, 1).with_source(leased))[0].kind, NAK);
    assert_eq!(world.obtain(1), Some(address(200)));
    assert_eq!(world.disk.len(), 1);
}

#[test]
fn server_without_address_is_silent() {
    let mut world = World::new(config());
    world.server.set_address(None);
    assert_eq!(world.send(&Message::new(DISCOVER, 1)), []);
    assert_eq!(world.server.counters().dropped(DhcpDrop::NoAddress), 1);
}
