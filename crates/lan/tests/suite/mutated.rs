//! The services with 100,000 mutated messages each. They must not panic, and their memory must stay within
//! its limits. Hosts with a lease must keep it.
//!
//! The `Debug` text of a value has each entry of its tables, so the length of the text shows the memory of
//! the value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_lan::dhcpv4::arp::{self, ArpSender};
use carnet_lan::dhcpv6::delegation::{DelegatingInterface, DelegatorConfig, PrefixDelegator};
use carnet_lan::dhcpv6::{Dhcpv6Config, Dhcpv6Server};
use carnet_lan::dns::host_names::{HostNames, NamedHost, OnBoardNetwork};
use carnet_lan::dns::{DnsForwarder, DnsQueryClient, DnsTransport, Output};

use super::client::{self, *};

const MESSAGE_COUNT: usize = 100_000;
/// Values that are limits of length fields or formats, which mutations set.
const BOUNDARY_OCTETS: [u8; 10] = [0, 1, 4, 12, 63, 64, 127, 128, 192, 255];

fn pick_random<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.number_below(from.len() as u64) as usize]
}

/// Changes a message: flips bits, sets octets to limits, cuts, extends, repeats or removes a part, or inserts
/// a part of another message.
fn mutate_message(rng: &mut Rng, octets: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..rng.number_below(6) {
        if octets.is_empty() {
            octets.push(rng.random_u16() as u8);
        }
        let at = rng.number_below(octets.len() as u64) as usize;
        let length = (rng.number_below(24) as usize).min(octets.len() - at);
        match rng.number_below(8) {
            0 | 1 => octets[at] ^= 1 << rng.number_below(8),
            2 | 3 => octets[at] = *pick_random(rng, &BOUNDARY_OCTETS),
            4 => octets.truncate(at),
            5 => octets.resize(octets.len() + rng.number_below(600) as usize, rng.random_u16() as u8),
            6 => {
                let part = octets[at..at + length].to_vec();
                octets.splice(at..at + rng.number_below(2) as usize * length, [part.clone(), part].concat());
            }
            _ => {
                let from = rng.number_below(other.len() as u64) as usize;
                let part = other[from..(from + length).min(other.len())].to_vec();
                octets.splice(at..at + length, part);
            }
        }
    }
    octets.truncate(1600);
}

/// Returns valid messages of clients that may be attackers: about their own addresses and about any other
/// address.
fn dhcp_message(rng: &mut Rng) -> Vec<u8> {
    let kind = *pick_random(
        rng,
        &[
            DHCP_DISCOVER,
            DHCP_DISCOVER,
            DHCP_REQUEST,
            DHCP_REQUEST,
            DHCP_REQUEST,
            DHCP_DECLINE,
            DHCP_RELEASE,
            DHCP_INFORM,
        ],
    );
    let about = host_address(98 + rng.number_below(14) as u8);
    let mut message = MessageBuilder::new(kind, 9000 + rng.number_below(6) as u32);
    message.needs_broadcast = rng.is_true_with_probability(0.5);
    if rng.is_true_with_probability(0.5) {
        message = message.with_client_address(about);
    }
    if rng.is_true_with_probability(0.6) {
        message = message.with_requested_address(about);
    }
    if rng.is_true_with_probability(0.6) {
        message = message.with_server(SERVER_ADDRESS);
    }
    if rng.is_true_with_probability(0.3) {
        message = message.with_option(61, &[0, rng.number_below(4) as u8, 7]);
    }
    let message = message.with_option(12, b"Camera_1").with_option(81, b"\x04\0\0\x04host\x03bus\0");
    let message =
        message.with_option(55, &[1, 3, 6, 15, 26, 108, 114, 119]).with_option(57, &1500u16.to_be_bytes());
    message.octets()
}

#[test]
fn hosts_keep_their_leases_among_mutated_dhcp_messages() {
    /// Numbers of clients whose link-layer addresses no mutated message contains.
    const LEASE_OWNERS: [u32; 4] = [0x5eed_a701, 0x5eed_a702, 0x5eed_a703, 0x5eed_a704];
    let mut world = TestNetwork::new(server_config());
    let mut rng = Rng::new(2131);
    let owned = LEASE_OWNERS.map(|owner| world.obtain_address(owner).expect("an address"));
    let (mut last, mut acknowledged) = (dhcp_message(&mut rng), 0);
    for number in 0..MESSAGE_COUNT {
        let mut octets = dhcp_message(&mut rng);
        let whole = octets.clone();
        mutate_message(&mut rng, &mut octets, &last);
        last = whole;
        let mut answers = world.send_octets(&octets);
        let host = ArpSender {
            link_address: client::client_mac(77),
            address: host_address(98 + rng.number_below(14) as u8),
        };
        let mut packet = arp::arp_request(host, SERVER_ADDRESS).to_vec();
        mutate_message(&mut rng, &mut packet, &last);
        world.dhcp_server.handle_arp(world.now, &packet);
        answers.extend(world.advance_time(Duration::from_millis(rng.number_below(200))));
        acknowledged += answers.iter().filter(|answer| answer.kind == DHCP_ACK).count();
        let stolen = answers.iter().find(|answer| owned.contains(&answer.yiaddr));
        assert_eq!(stolen, None, "message {number}");
        if number % 5000 == 0 {
            for (owner, address) in LEASE_OWNERS.into_iter().zip(owned) {
                let renewal = world
                    .send_message(&MessageBuilder::new(DHCP_REQUEST, owner).with_client_address(address));
                assert_eq!((renewal[0].kind, renewal[0].yiaddr), (DHCP_ACK, address), "message {number}");
            }
            let size = format!("{:?}", world.dhcp_server).len();
            assert!(size < 40_000, "{size} octets of text after {number} messages");
            assert!(
                world.dhcp_server.active_leases(world.now).count() <= 10 && world.stored_leases.len() <= 10
            );
            world = world.restart_server();
        }
        world.events.clear();
        world.probed_addresses.clear();
    }
    // The mutations leave some messages valid.
    assert!(acknowledged > 1000, "{acknowledged}");
}

#[test]
fn routers_keep_their_prefixes_among_mutated_dhcpv6_messages() {
    let mac = [2, 0, 0, 0, 0, 1];
    let ip = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
    let mut server = Dhcpv6Server::new(Dhcpv6Config {
        dns_servers: vec![ip("2001:db8:53::53"); 4],
        search_domains: vec!["bus.example".into(), "example".into()],
        captive_portal: Some("https://portal.example/api".into()),
    });
    let client = [&[0, 1, 0, 14, 0, 1, 0, 1][..], &[7; 10]].concat();
    let own = [0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
    let wanted = [0, 6, 0, 8, 0, 23, 0, 24, 0, 32, 0, 103];
    let address = [&[0, 3, 0, 12][..], &[1; 12]].concat();
    let prefix =
        |last| [&[0, 26, 0, 25][..], &[0; 8], &[64], &[0x20, 1, 0xd, 0xb8, 0, 10, 0, last], &[0; 8]].concat();
    let wish = |iaid, last| [&[0, 25, 0, 41, 0, 0, 0, iaid][..], &[0; 8], &prefix(last)].concat();
    let (wish, other, bare) = (wish(1, 3), wish(2, 9), [&[0, 25, 0, 12, 0, 0][..], &[9; 10]].concat());
    let options: [&[u8]; 12] = [
        &client,
        &client,
        &own,
        &own,
        &wanted,
        &address,
        &[0, 8, 0, 2, 0, 0],
        &[0, 16, 0, 2, 9, 9],
        &wish,
        &wish,
        &other,
        &bare,
    ];
    // The delegator has 15 free prefixes. The first goes to a router whose DUID no mutated message contains.
    let net = |text: &str| text.parse().expect("a prefix");
    let day = Duration::from_secs(86_400);
    let config = DelegatorConfig {
        prefixes: vec![net("2001:db8:a::/60")],
        networks_in_use: vec![net("2001:db8:a::/64")],
        interfaces: vec![DelegatingInterface {
            name: "i0".into(),
            prefix_length: 64,
            delegation_lifetime: day,
            networks_of_other_interfaces: Vec::new(),
        }],
    };
    let wall = WallTime::from_unix_nanos(1_700_000_000_000_000_000);
    let mut delegator = PrefixDelegator::new(config, &[], Time::ZERO, wall);
    let stable = [&[3, 1, 2, 3, 0, 1, 0, 10][..], &[0xee; 10], &own, &[0, 25, 0, 12], &[0xee; 12]].concat();
    let times = (Time::from_secs(1000), wall);
    let reply = server.handle_message(times, ("i0", mac), ip("fe80::ee"), &stable, &mut delegator);
    assert!(reply.is_some_and(|reply| reply.waits_for_store));
    let held = delegator.delegations().next().cloned().expect("a delegation");
    let mut rng = Rng::new(8415);
    let (mut now, mut replies, mut delegations, mut last) = (Time::from_secs(1000), 0u64, 0u64, vec![0]);
    for number in 0..MESSAGE_COUNT {
        let mut octets = vec![
            *pick_random(&mut rng, &[11, 11, 11, 11, 1, 3, 3, 5, 6, 8, 9, 12]),
            1,
            2,
            rng.random_u16() as u8,
        ];
        for _ in 0..rng.number_below(7) {
            octets.extend(*pick_random(&mut rng, &options));
        }
        let whole = octets.clone();
        mutate_message(&mut rng, &mut octets, &last);
        last = whole;
        now += Duration::from_millis(rng.number_below(4));
        let source =
            *pick_random(&mut rng, &[ip("fe80::9"), ip("fe80::9"), ip("2001:db8:a::9"), ip("ff02::1")]);
        let times = (now, wall);
        let reply = server.handle_message(times, ("i0", mac), source, &octets, &mut delegator);
        while delegator.poll_output().is_some() {}
        assert!(delegator.delegations().count() <= 15);
        let Some(reply) = reply.map(|reply| reply.octets) else { continue };
        replies += 1;
        delegations += u64::from(octets[0] != 11);
        let kind = if octets[0] == 1 { 2 } else { 7 };
        assert_eq!((reply[0], &reply[1..4]), (kind, &octets[1..4]), "message {number}");
        assert_eq!(reply[4..18], own, "message {number}");
        assert!(reply.len() <= 1232, "message {number}: {} octets", reply.len());
        assert_eq!(source, ip("fe80::9"));
    }
    assert!(delegator.delegations().any(|delegation| *delegation == held));
    let is_sum = |name: &str| matches!(name, "received" | "replies") || name.starts_with("dropped.");
    let counted: u64 = server.counters().filter(|(name, _)| is_sum(name)).map(|(_, count)| count).sum();
    assert_eq!(counted, 2 * MESSAGE_COUNT as u64 + 2, "each message has a reply or a reason");
    assert!((2000..MESSAGE_COUNT as u64 / 2).contains(&replies), "{replies}");
    assert!(delegations > 500, "{delegations}");
    assert!(format!("{server:?}").len() < 2000 && format!("{delegator:?}").len() < 40_000);
}

fn encode_name(text: &str) -> Vec<u8> {
    let labels = text.split('.').filter(|label| !label.is_empty());
    let mut octets: Vec<u8> = labels.flat_map(|it| [&[it.len() as u8], it.as_bytes()].concat()).collect();
    octets.push(0);
    octets
}

/// Returns a DNS message with these flags, one question and these records.
fn dns_message(id: u16, flags: u16, question: &[u8], counts: [u16; 3], records: &[u8]) -> Vec<u8> {
    let fields = [id, flags, 1].into_iter().chain(counts);
    fields.flat_map(u16::to_be_bytes).chain(question.iter().copied()).chain(records.iter().copied()).collect()
}

fn dns_record(owner: &[u8], kind: u16, class: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let head = [kind.to_be_bytes(), class.to_be_bytes()].concat();
    [owner, &head, &ttl.to_be_bytes(), &(data.len() as u16).to_be_bytes(), data].concat()
}

fn dns_query(rng: &mut Rng) -> Vec<u8> {
    let text = match rng.number_below(8) {
        0 => "tablet.lan".to_owned(),
        1 => "20.7.42.10.in-addr.arpa".to_owned(),
        2 => format!("{:x}.{}ip6.arpa", rng.number_below(16), "0.".repeat(31)),
        3 => "tablet".to_owned(),
        _ => format!("N{}.example.net", rng.number_below(4000)),
    };
    let kind = *pick_random(rng, &[1u16, 28, 12, 6, 65, 255]);
    let question = [encode_name(&text), kind.to_be_bytes().to_vec(), vec![0, 1]].concat();
    let opt = dns_record(&[0], 41, *pick_random(rng, &[0, 512, 1232, 65_535]), 0x8000, &[0, 8, 0, 0]);
    match rng.is_true_with_probability(0.5) {
        true => dns_message(rng.random_u16(), 0x0100, &question, [0, 0, 1], &opt),
        false => dns_message(rng.random_u16(), 0x0110, &question, [0, 0, 0], &[]),
    }
}

/// Returns a valid answer to a query of the forwarder.
fn dns_answer(rng: &mut Rng, query: &[u8]) -> Vec<u8> {
    let id = u16::from_be_bytes([query[0], query[1]]);
    // The forwarder's own extension has 11 octets.
    let question = &query[12..query.len() - 11];
    let ttl = *pick_random(rng, &[0, 1, 300, 86_400, u32::MAX]);
    let alias = dns_record(&[0xc0, 12], 5, 1, ttl, &encode_name("alias.example.org"));
    let address = dns_record(&encode_name("alias.example.org"), 1, 1, ttl, &[192, 0, 2, 9]);
    let data = [&encode_name("ns.example.net")[..], &[0], &[0, 0, 0, 9].repeat(5)].concat();
    let start = dns_record(&encode_name("example.net"), 6, 1, ttl, &data);
    let opt = dns_record(&[0], 41, 1232, 0, &[]);
    match rng.number_below(4) {
        0 => dns_message(id, 0x8183, question, [0, 1, 1], &[start, opt].concat()),
        1 => dns_message(id, 0x8380, question, [0, 0, 0], &[]),
        2 => dns_message(id, 0x8182, question, [0, 0, 1], &opt),
        _ => dns_message(id, 0x81a0, question, [2, 0, 1], &[alias, address, opt].concat()),
    }
}

#[test]
fn forwarder_stays_within_its_bounds_among_mutated_queries_and_answers() {
    let servers = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
    let mut forwarder = DnsForwarder::new(servers.to_vec(), Rng::new(1));
    let prefixes = ["10.42.4.0/22", "2001:db8:a::/64"].map(|prefix| prefix.parse().expect("a prefix"));
    let ipv6 = vec!["2001:db8:a::5".parse().expect("an address")];
    let network = OnBoardNetwork { network_number: 0, is_isolated: false };
    let hosts = [NamedHost {
        network,
        name: "tablet".to_owned(),
        ipv4_address: Ipv4Addr::new(10, 42, 7, 20),
        ipv6_addresses: ipv6,
    }];
    let domains = vec!["bus.example".to_owned()];
    forwarder.set_names(HostNames::new(domains, prefixes.to_vec(), hosts.into_iter()));
    let known = dns_message(7, 0x0100, &[encode_name("tablet.lan"), vec![0, 1, 0, 1]].concat(), [0; 3], &[]);
    let (mut rng, mut now) = (Rng::new(1035), Time::from_secs(1000));
    let (mut queries, mut answers, mut last) = (0, 0, vec![0]);
    // ID and transport of each query of a client, by number. Each query gets at most one answer.
    let mut waiting = std::collections::BTreeMap::new();
    while queries < MESSAGE_COUNT || answers < MESSAGE_COUNT {
        now += Duration::from_millis(rng.number_below(6));
        let mut octets = if queries % 1000 == 0 { known.clone() } else { dns_query(&mut rng) };
        if queries % 1000 != 0 {
            mutate_message(&mut rng, &mut octets, &last);
        }
        let transport = if rng.is_true_with_probability(0.2) { DnsTransport::Tcp } else { DnsTransport::Udp };
        let address = IpAddr::from([10, 42, 7, rng.number_below(200) as u8]);
        let link_address =
            Some([2, 0, 0, 0, 0, rng.number_below(200) as u8]).filter(|_| rng.is_true_with_probability(0.5));
        let client =
            DnsQueryClient { client_number: queries as u64, address, link_address, network, transport };
        waiting.insert(client.client_number, (octets.get(..2).map(<[u8]>::to_vec), transport));
        forwarder.handle_query(now, client, &octets);
        forwarder.handle_timeout(now);
        let mut asked = Vec::new();
        while let Some(output) = forwarder.poll_output() {
            match output {
                Output::Answer(client, answer) => {
                    let (id, transport) = waiting.remove(&client.client_number).expect("one answer a query");
                    assert_eq!(id.as_deref(), Some(&answer[..2]), "query {}", client.client_number);
                    assert!(transport == DnsTransport::Tcp || answer.len() <= 1232);
                    if client.client_number.is_multiple_of(1000) {
                        assert!(answer.ends_with(&[0, 4, 10, 42, 7, 20]), "{answer:?}");
                    }
                }
                Output::Ask { query, server, octets, .. } => asked.push((query, server, octets)),
                Output::Done(_) => {}
            }
            // The test sends several answers to each query, so that forged answers arrive before and after
            // the right one.
            for (query, server, octets) in asked.drain(..) {
                for _ in 0..rng.number_below(5) {
                    let mut answer = dns_answer(&mut rng, &octets);
                    let whole = answer.clone();
                    mutate_message(&mut rng, &mut answer, &last);
                    last = whole;
                    forwarder.handle_answer(now, query, server, &answer);
                    answers += 1;
                }
            }
        }
        assert!(forwarder.waiting_query_count() <= 96);
        assert!(forwarder.cache_size().1 <= 512 << 10);
        queries += 1;
        if queries % 25_000 == 0 {
            let size = format!("{forwarder:?}").len();
            assert!(size < 8 << 20, "{size} octets of text after {queries} queries");
        }
        // Queries that the forwarder drops stay in this map.
        while waiting.len() > 20_000 {
            waiting.pop_first();
        }
    }
    let counters = forwarder.counters();
    assert!(
        counters.server_answers > 10_000
            && counters.answers_from_cache > 1000
            && counters.answers_about_hosts > 1000,
        "{counters:?}"
    );
    for _ in 0..10 {
        now += Duration::from_secs(3);
        forwarder.handle_timeout(now);
    }
    assert_eq!(forwarder.waiting_query_count(), 0);
}
