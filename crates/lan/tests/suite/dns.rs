//! The DNS forwarder with hosts and servers in virtual time.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_lan::LinkAddress;
use carnet_lan::dns::host_names::{HostNames, NamedHost, OnBoardNetwork};
use carnet_lan::dns::{DnsDropReason, DnsForwarder, DnsQueryClient, DnsQueryId, DnsTransport, Output};
use proptest::prelude::*;

const A: u16 = 1;
const RECORD_TYPE_NS: u16 = 2;
const RECORD_TYPE_SOA: u16 = 6;
const RECORD_TYPE_PTR: u16 = 12;
const RECORD_TYPE_MX: u16 = 15;
const RECORD_TYPE_AAAA: u16 = 28;
const RECORD_TYPE_OPT: u16 = 41;
const RECORD_TYPE_DS: u16 = 43;
const RECORD_TYPE_DNSKEY: u16 = 48;
const RECORD_TYPE_HTTPS: u16 = 65;
const RECORD_TYPE_ANY: u16 = 255;
/// Network of the hosts in most tests.
const FIRST_NETWORK: OnBoardNetwork = OnBoardNetwork { network_number: 1, is_isolated: false };

fn server_address(number: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, number])
}

fn encode_name(text: &str) -> Vec<u8> {
    let labels = text.split('.').filter(|label| !label.is_empty());
    let mut octets: Vec<u8> = labels.flat_map(|it| [&[it.len() as u8], it.as_bytes()].concat()).collect();
    octets.push(0);
    octets
}

/// Returns a DNS message with one question. `counts` are the numbers of records in the other sections, and
/// `records` are the octets of these records.
fn dns_message(id: u16, flags: u16, text: &str, kind: u16, counts: [u16; 3], records: &[u8]) -> Vec<u8> {
    let fields = [id, flags, 1].into_iter().chain(counts);
    let mut octets: Vec<u8> = fields.flat_map(u16::to_be_bytes).collect();
    octets.extend(encode_name(text));
    octets.extend([kind.to_be_bytes(), 1u16.to_be_bytes()].concat());
    octets.extend(records);
    octets
}

fn encode_record(owner: &[u8], kind: u16, class: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut octets = owner.to_vec();
    octets.extend([kind.to_be_bytes(), class.to_be_bytes()].concat());
    octets.extend(ttl.to_be_bytes());
    octets.extend((data.len() as u16).to_be_bytes());
    octets.extend(data);
    octets
}

fn opt_record(size: u16) -> Vec<u8> {
    encode_record(&[0], RECORD_TYPE_OPT, size, 0, &[])
}

fn query_message(id: u16, text: &str, kind: u16) -> Vec<u8> {
    dns_message(id, 0x0100, text, kind, [0, 0, 0], &[])
}

/// Returns a server's answer to a query, with one IPv4 address.
fn answer_message(query: &[u8], text: &str, ttl: u32) -> Vec<u8> {
    let id = u16::from_be_bytes([query[0], query[1]]);
    let records = [encode_record(&[0xc0, 12], A, 1, ttl, &[10, 1, 2, 3]), opt_record(1232)].concat();
    dns_message(id, 0x8180, text, A, [1, 0, 1], &records)
}

/// A forwarder with its clock.
struct TestNetwork {
    dns_forwarder: DnsForwarder,
    now: Time,
    client_count: u64,
}

/// A query that the forwarder has sent to a server.
#[derive(Debug, Clone, PartialEq)]
struct ForwardedQuery {
    query_id: DnsQueryId,
    server_address: IpAddr,
    transport: DnsTransport,
    octets: Vec<u8>,
}

impl TestNetwork {
    fn new(servers: u8) -> TestNetwork {
        let servers = (1..=servers).map(server_address).collect();
        let forwarder = DnsForwarder::new(servers, Rng::new(7));
        TestNetwork { dns_forwarder: forwarder, now: Time::from_secs(1000), client_count: 0 }
    }

    fn take_outputs(&mut self) -> (Vec<ForwardedQuery>, Vec<Vec<u8>>) {
        let (mut asked, mut answers) = (Vec::new(), Vec::new());
        while let Some(output) = self.dns_forwarder.poll_output() {
            match output {
                Output::Ask { query, server, transport, octets } => {
                    asked.push(ForwardedQuery { query_id: query, server_address: server, transport, octets });
                }
                Output::Answer(_, octets) => answers.push(octets),
                Output::Done(_) => {}
            }
        }
        (asked, answers)
    }

    fn send_from_host(
        &mut self,
        host: u8,
        transport: DnsTransport,
        octets: &[u8],
    ) -> (Vec<ForwardedQuery>, Vec<Vec<u8>>) {
        self.send_from_client(host.into(), Some([2, 0, 0, 0, 0, host]), transport, octets)
    }

    /// Passes a query to the forwarder, as a host with this link-layer address sends it. `number` selects the
    /// host's IPv4 address.
    fn send_from_client(
        &mut self,
        number: u16,
        link_address: Option<LinkAddress>,
        transport: DnsTransport,
        octets: &[u8],
    ) -> (Vec<ForwardedQuery>, Vec<Vec<u8>>) {
        let [high, low] = number.to_be_bytes();
        let address = IpAddr::from([10, 42, 7 + high, low]);
        self.client_count += 1;
        let client = DnsQueryClient {
            client_number: self.client_count,
            address,
            link_address,
            network: FIRST_NETWORK,
            transport,
        };
        self.dns_forwarder.handle_query(self.now, client, octets);
        self.take_outputs()
    }

    fn send_query(&mut self, octets: &[u8]) -> (Vec<ForwardedQuery>, Vec<Vec<u8>>) {
        self.send_from_host(9, DnsTransport::Udp, octets)
    }

    fn answer_query(&mut self, asked: &ForwardedQuery, octets: &[u8]) -> (Vec<ForwardedQuery>, Vec<Vec<u8>>) {
        self.dns_forwarder.handle_answer(self.now, asked.query_id, asked.server_address, octets);
        self.take_outputs()
    }

    fn advance_time(&mut self, time: Duration) -> (Vec<ForwardedQuery>, Vec<Vec<u8>>) {
        let end = self.now + time;
        let (mut asked, mut answers) = (Vec::new(), Vec::new());
        while let Some(due) = self.dns_forwarder.poll_timeout().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.dns_forwarder.handle_timeout(self.now);
            let (more, done) = self.take_outputs();
            asked.extend(more);
            answers.extend(done);
        }
        self.now = end;
        (asked, answers)
    }
}

fn response_code(octets: &[u8]) -> u8 {
    octets[3] & 15
}

#[test]
fn forwarder_replaces_query_id_and_restores_it_in_the_answer() {
    let mut world = TestNetwork::new(1);
    let (asked, answers) = world.send_query(&query_message(77, "Www.Example.net", A));
    assert!(answers.is_empty());
    let [asked] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((asked.server_address, asked.transport), (server_address(1), DnsTransport::Udp));
    // The question has the case of the client's letters. carnet's own EDNS extension follows.
    let id = u16::from_be_bytes([asked.octets[0], asked.octets[1]]);
    let expected = dns_message(id, 0x0100, "Www.Example.net", A, [0, 0, 1], &opt_record(1232));
    assert_eq!(asked.octets, expected);
    assert_ne!(id, 77);
    let (more, answers) = world.answer_query(asked, &answer_message(&asked.octets, "Www.Example.net", 300));
    assert!(more.is_empty());
    // The client's query has no EDNS extension, so its answer has none.
    let own = encode_record(&[0xc0, 12], A, 1, 300, &[10, 1, 2, 3]);
    assert_eq!(answers, [dns_message(77, 0x8180, "Www.Example.net", A, [1, 0, 0], &own)]);
}

#[test]
fn forwarder_answers_second_query_from_cache_until_ttl_expires() {
    let mut world = TestNetwork::new(1);
    let (asked, _) = world.send_query(&query_message(1, "www.example.net", A));
    world.answer_query(&asked[0], &answer_message(&asked[0].octets, "www.example.net", 300));
    world.advance_time(Duration::from_secs(100));
    let (asked, answers) = world.send_query(&query_message(2, "WWW.example.net", A));
    assert!(asked.is_empty());
    let own = encode_record(&[0xc0, 12], A, 1, 200, &[10, 1, 2, 3]);
    assert_eq!(answers, [dns_message(2, 0x8180, "WWW.example.net", A, [1, 0, 0], &own)]);
    // A query for another type of record is another question, so the forwarder asks a server.
    assert_eq!(world.send_query(&query_message(3, "www.example.net", RECORD_TYPE_AAAA)).0.len(), 1);
    world.advance_time(Duration::from_secs(200));
    assert_eq!(world.send_query(&query_message(4, "www.example.net", A)).0.len(), 1);
    assert_eq!(world.dns_forwarder.counters().answers_from_cache, 1);
}

#[test]
fn forwarder_caches_nonexistent_name_for_the_zones_negative_ttl() {
    let mut world = TestNetwork::new(1);
    let (asked, _) = world.send_query(&query_message(1, "no.example.net", A));
    let mut data = [encode_name("ns.example.net"), encode_name("mail.example.net")].concat();
    data.extend([1u32, 2, 3, 4, 60].map(u32::to_be_bytes).concat());
    let soa = encode_record(&encode_name("example.net"), RECORD_TYPE_SOA, 1, 3600, &data);
    let id = u16::from_be_bytes([asked[0].octets[0], asked[0].octets[1]]);
    let (_, answers) =
        world.answer_query(&asked[0], &dns_message(id, 0x8183, "no.example.net", A, [0, 1, 0], &soa));
    assert_eq!(response_code(&answers[0]), 3);
    world.advance_time(Duration::from_secs(59));
    assert_eq!(response_code(&world.send_query(&query_message(2, "no.example.net", A)).1[0]), 3);
    world.advance_time(Duration::from_secs(1));
    assert_eq!(world.send_query(&query_message(3, "no.example.net", A)).0.len(), 1);
}

#[test]
fn forwarder_drops_forged_answers_and_accepts_the_real_one() {
    let mut world = TestNetwork::new(2);
    let (asked, _) = world.send_query(&query_message(1, "www.example.net", A));
    let right = answer_message(&asked[0].octets, "www.example.net", 300);
    let mut wrong_id = right.clone();
    wrong_id[0] ^= 1;
    let other_question = answer_message(&asked[0].octets, "www.example.com", 300);
    let mut no_response = right.clone();
    no_response[2] &= 0x7f;
    for forged in [wrong_id, other_question, no_response, right[..20].to_vec(), Vec::new()] {
        let (more, answers) = world.answer_query(&asked[0], &forged);
        assert!(more.is_empty() && answers.is_empty(), "{forged:?}");
    }
    // The forwarder must ignore an answer from another server.
    world.dns_forwarder.handle_answer(world.now, asked[0].query_id, server_address(2), &right);
    assert!(world.take_outputs().1.is_empty());
    assert_eq!(world.dns_forwarder.counters().dropped_messages(DnsDropReason::BadAnswer), 6);
    assert_eq!(world.answer_query(&asked[0], &right).1.len(), 1);
    world.answer_query(&asked[0], &right);
    assert_eq!(world.dns_forwarder.counters().dropped_messages(DnsDropReason::LateAnswer), 1);
}

#[test]
fn forwarder_tries_silent_servers_in_turn_and_then_fails_the_query() {
    let mut world = TestNetwork::new(2);
    let (first, _) = world.send_query(&query_message(1, "www.example.net", A));
    let (asked, answers) = world.advance_time(Duration::from_secs(9));
    let servers: Vec<IpAddr> = first.iter().chain(&asked).map(|asked| asked.server_address).collect();
    assert_eq!(servers, [1, 2, 1, 2, 1, 2].map(server_address));
    assert!(answers.is_empty());
    let (_, answers) = world.advance_time(Duration::from_secs(2));
    assert_eq!((answers.len(), response_code(&answers[0])), (1, 2));
    assert_eq!(world.dns_forwarder.counters().failed_queries, 1);
    // After an answer of the second server, the forwarder asks this server first.
    let (_, _) = world.send_query(&query_message(2, "two.example.net", A));
    let (asked, _) = world.advance_time(Duration::from_secs(1));
    world.answer_query(&asked[0], &answer_message(&asked[0].octets, "two.example.net", 300));
    assert_eq!(
        world.send_query(&query_message(3, "three.example.net", A)).0[0].server_address,
        server_address(2)
    );
}

#[test]
fn forwarder_accepts_answer_to_its_earlier_attempt() {
    let mut world = TestNetwork::new(1);
    let (first, _) = world.send_query(&query_message(1, "www.example.net", A));
    world.advance_time(Duration::from_secs(3));
    assert_eq!(
        world.answer_query(&first[0], &answer_message(&first[0].octets, "www.example.net", 300)).1.len(),
        1
    );
}

#[test]
fn forwarder_repeats_query_over_tcp_after_truncated_answer() {
    let mut world = TestNetwork::new(1);
    let (asked, _) = world.send_query(&query_message(1, "www.example.net", A));
    let mut truncated = answer_message(&asked[0].octets, "www.example.net", 300);
    truncated[2] |= 2;
    let (asked, answers) = world.answer_query(&asked[0], &truncated);
    assert_eq!((asked[0].transport, answers.len()), (DnsTransport::Tcp, 0));
    let many: Vec<u8> =
        (0..100).flat_map(|last| encode_record(&[0xc0, 12], A, 1, 300, &[10, 1, 2, last])).collect();
    let id = u16::from_be_bytes([asked[0].octets[0], asked[0].octets[1]]);
    let whole = dns_message(id, 0x8180, "www.example.net", A, [100, 0, 0], &many);
    let (_, answers) = world.answer_query(&asked[0], &whole);
    // An answer of 1600 octets does not fit into a datagram. The client repeats its query over TCP, and gets
    // the whole answer.
    assert_eq!((answers[0].len(), answers[0][2] & 2), (12 + 21, 2));
    let (_, answers) = world.send_from_host(9, DnsTransport::Tcp, &query_message(1, "www.example.net", A));
    assert_eq!(answers[0].len(), whole.len());
}

#[test]
fn second_truncated_answer_does_not_end_the_query_over_tcp() {
    let mut world = TestNetwork::new(1);
    let (first, _) = world.send_query(&query_message(1, "www.example.net", A));
    let (second, _) = world.advance_time(Duration::from_millis(900));
    let truncated = |asked: &ForwardedQuery| {
        let mut octets = answer_message(&asked.octets, "www.example.net", 300);
        octets[2] |= 2;
        octets
    };
    let (over_tcp, _) = world.answer_query(&first[0], &truncated(&first[0]));
    assert_eq!(over_tcp[0].transport, DnsTransport::Tcp);
    assert_eq!(world.answer_query(&second[0], &truncated(&second[0])), (vec![], vec![]));
    assert_eq!(world.dns_forwarder.counters().dropped_messages(DnsDropReason::BadAnswer), 1);
    let whole = answer_message(&over_tcp[0].octets, "www.example.net", 300);
    let (_, answers) = world.answer_query(&over_tcp[0], &whole);
    assert_eq!((response_code(&answers[0]), answers[0][7]), (0, 1));
}

#[test]
fn forwarder_passes_answer_of_maximum_length_over_tcp() {
    let mut world = TestNetwork::new(1);
    let with_extension = dns_message(1, 0x0100, "www.example.net", A, [0, 0, 1], &opt_record(1232));
    let (asked, _) = world.send_from_host(9, DnsTransport::Tcp, &with_extension);
    let id = u16::from_be_bytes([asked[0].octets[0], asked[0].octets[1]]);
    let head = dns_message(id, 0x8180, "www.example.net", A, [1, 0, 0], &[]);
    let text = encode_record(&[0xc0, 12], 16, 1, 300, &vec![0; 65_535 - head.len() - 12]);
    let whole = [head, text].concat();
    let (_, answers) = world.answer_query(&asked[0], &whole);
    assert_eq!((answers[0].len(), whole.len()), (65_535, 65_535));
    assert_eq!((answers[0][7], &answers[0][10..12]), (1, &[0, 0][..]));
}

#[test]
fn forwarder_drops_answer_with_opt_record_in_answer_section() {
    let mut world = TestNetwork::new(1);
    let (asked, _) = world.send_query(&query_message(1, "www.example.net", A));
    let id = u16::from_be_bytes([asked[0].octets[0], asked[0].octets[1]]);
    let records = [opt_record(1232), encode_record(&[0xc0, 12], A, 1, 300, &[10, 1, 2, 3])].concat();
    let octets = dns_message(id, 0x8180, "www.example.net", A, [2, 0, 0], &records);
    assert_eq!(world.answer_query(&asked[0], &octets), (vec![], vec![]));
    assert_eq!(world.dns_forwarder.counters().dropped_messages(DnsDropReason::BadAnswer), 1);
}

#[test]
fn forwarder_caches_negative_answer_no_longer_than_its_cname() {
    for (flags, minimum, valid) in [(0x8183, 3600, 5), (0x8180, 4, 4)] {
        let mut world = TestNetwork::new(1);
        let (asked, _) = world.send_query(&query_message(1, "www.example.net", A));
        let id = u16::from_be_bytes([asked[0].octets[0], asked[0].octets[1]]);
        let times = [1, 2, 3, 4, minimum].map(u32::to_be_bytes).concat();
        let alias = encode_record(&[0xc0, 12], 5, 1, 5, &[1, b'x', 0xc0, 12]);
        let zone = encode_record(&[0], RECORD_TYPE_SOA, 1, 3600, &[&[0, 0][..], &times].concat());
        let octets = dns_message(id, flags, "www.example.net", A, [1, 1, 0], &[alias, zone].concat());
        let (_, answers) = world.answer_query(&asked[0], &octets);
        assert_eq!(response_code(&answers[0]), flags as u8 & 15);
        world.advance_time(Duration::from_secs(valid - 1));
        assert!(world.send_query(&query_message(2, "www.example.net", A)).0.is_empty(), "{flags:x}");
        world.advance_time(Duration::from_secs(1));
        assert_eq!(world.send_query(&query_message(3, "www.example.net", A)).0.len(), 1, "{flags:x}");
    }
}

#[test]
fn forwarder_sends_one_query_for_equal_questions_of_several_clients() {
    let mut world = TestNetwork::new(1);
    let (asked, _) = world.send_from_host(1, DnsTransport::Udp, &query_message(1, "www.example.net", A));
    for host in 2..10 {
        assert!(
            world
                .send_from_host(host, DnsTransport::Udp, &query_message(host.into(), "www.example.net", A))
                .0
                .is_empty()
        );
    }
    // A host that repeats its query gets only one answer.
    world.send_from_host(2, DnsTransport::Udp, &query_message(2, "www.example.net", A));
    let (_, answers) =
        world.answer_query(&asked[0], &answer_message(&asked[0].octets, "www.example.net", 300));
    let ids: Vec<u8> = answers.iter().map(|answer| answer[1]).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn one_host_cannot_use_up_the_query_limit_of_the_forwarder() {
    let mut world = TestNetwork::new(1);
    for number in 0..200u16 {
        world.send_from_host(
            1,
            DnsTransport::Udp,
            &query_message(number, &format!("n{number}.example.net"), A),
        );
    }
    assert_eq!(world.dns_forwarder.waiting_query_count(), 24);
    assert_eq!(world.dns_forwarder.counters().dropped_messages(DnsDropReason::ClientLimit), 176);
    assert_eq!(
        world.send_from_host(2, DnsTransport::Udp, &query_message(1, "other.example.net", A)).0.len(),
        1
    );
}

#[test]
fn one_host_with_many_addresses_cannot_use_up_the_query_limit() {
    let mut world = TestNetwork::new(1);
    let flood = |world: &mut TestNetwork, link_address: Option<LinkAddress>, first: u16| {
        for number in first..first + 200 {
            let text = format!("n{number}.example.net");
            world.send_from_client(number, link_address, DnsTransport::Udp, &query_message(number, &text, A));
        }
        world.dns_forwarder.waiting_query_count()
    };
    assert_eq!(flood(&mut world, Some([2, 0, 0, 0, 0, 1]), 0), 24);
    assert_eq!(flood(&mut world, None, 200), 24 + 48);
    assert_eq!(world.dns_forwarder.counters().dropped_messages(DnsDropReason::ClientLimit), 176 + 152);
    assert_eq!(
        world.send_from_host(2, DnsTransport::Udp, &query_message(1, "other.example.net", A)).0.len(),
        1
    );
}

#[test]
fn cache_stays_within_its_memory_limit() {
    let mut world = TestNetwork::new(1);
    for number in 0..5000u16 {
        world.now += Duration::from_millis(10);
        let text = format!("n{number}.example.net");
        let (asked, _) = world.send_query(&query_message(number, &text, A));
        world.answer_query(&asked[0], &answer_message(&asked[0].octets, &text, 300 + u32::from(number)));
    }
    let (count, size) = world.dns_forwarder.cache_size();
    assert!(count > 500 && size <= 512 << 10, "{count} {size}");
}

/// Returns a forwarder that knows hosts on board, below these domains.
fn network_with_hosts(domains: &[&str]) -> TestNetwork {
    let mut world = TestNetwork::new(1);
    let prefixes = ["10.42.4.0/22", "2001:db8:a::/62"].map(|prefix| prefix.parse().expect("a prefix"));
    let hosts = [("tablet", 20), ("camera", 21), ("tablet", 22)].into_iter().map(|(name, last)| {
        let (name, ipv4, ipv6) = (name.to_owned(), Ipv4Addr::new(10, 42, 7, last), Vec::new());
        NamedHost { network: FIRST_NETWORK, name, ipv4_address: ipv4, ipv6_addresses: ipv6 }
    });
    let domains = domains.iter().map(|&domain| domain.to_owned()).collect();
    world.dns_forwarder.set_names(HostNames::new(domains, prefixes.to_vec(), hosts));
    world
}

/// Returns code, number of records and octets of an answer that the vehicle itself gives. Returns `None` if
/// the forwarder asks a server.
fn local_answer(world: &mut TestNetwork, text: &str, kind: u16) -> Option<(u8, u8, Vec<u8>)> {
    let (asked, answers) = world.send_query(&query_message(1, text, kind));
    assert_eq!(asked.len() + answers.len(), 1, "{text}");
    answers.into_iter().next().map(|answer| (response_code(&answer), answer[7], answer))
}

/// Returns code and number of records of an answer that the vehicle itself gives; `None` if the forwarder
/// asks a server.
fn code_and_record_count(world: &mut TestNetwork, text: &str, kind: u16) -> Option<(u8, u8)> {
    local_answer(world, text, kind).map(|(code, count, _)| (code, count))
}

const NO_RECORD_ANSWER: Option<(u8, u8)> = Some((0, 0));
const NO_NAME_ANSWER: Option<(u8, u8)> = Some((3, 0));

#[test]
fn forwarder_answers_queries_for_names_of_hosts_on_board() {
    let mut world = network_with_hosts(&["Bus.example"]);
    for text in ["tablet", "Tablet.lan", "tablet.bus.example"] {
        let (code, count, octets) = local_answer(&mut world, text, A).expect("an answer");
        assert_eq!((code, count), (0, 1), "{text}");
        assert!(octets.ends_with(&[0, 4, 10, 42, 7, 20]), "the first host with a name gets it");
        assert_eq!(octets[2] & 4, 4, "authoritative");
    }
    // The vehicle knows no IPv6 address and no other records of this host. Its answer says that the name
    // exists.
    for kind in [RECORD_TYPE_AAAA, RECORD_TYPE_MX, RECORD_TYPE_HTTPS] {
        for text in ["camera", "camera.lan", "camera.bus.example"] {
            assert_eq!(code_and_record_count(&mut world, text, kind), NO_RECORD_ANSWER, "{text}");
        }
    }
    assert_eq!(code_and_record_count(&mut world, "nobody.bus.example", A), None, "a server may know it");
    assert_eq!(code_and_record_count(&mut world, "bus.example", A), None);
    let (code, count, octets) =
        local_answer(&mut world, "21.7.42.10.in-addr.arpa", RECORD_TYPE_PTR).expect("an answer");
    assert_eq!((code, count), (0, 1));
    assert!(octets.ends_with(&encode_name("camera.Bus.example")));
    assert_eq!(code_and_record_count(&mut world, "21.7.42.10.in-addr.arpa", A), NO_RECORD_ANSWER);
}

#[test]
fn forwarder_answers_with_known_ipv6_addresses_of_host_on_board() {
    let mut world = TestNetwork::new(1);
    let ip = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address");
    let prefixes = ["10.42.4.0/22", "2001:db8:a::/64"].map(|prefix| prefix.parse().expect("a prefix"));
    let many: Vec<_> = (1..=20).map(|last| ip(&format!("2001:db8:a::1:{last}"))).collect();
    let own = [ip("fe80::9"), ip("2001:db8:b::9"), ip("2001:db8:a::8"), ip("2001:db8:a::9")];
    let hosts = [("tablet", 20, own.to_vec()), ("other", 21, vec![ip("2001:db8:a::9")]), ("many", 22, many)];
    let hosts = hosts.into_iter().map(|(name, last, ipv6)| NamedHost {
        network: FIRST_NETWORK,
        name: name.to_owned(),
        ipv4_address: Ipv4Addr::new(10, 42, 7, last),
        ipv6_addresses: ipv6,
    });
    world.dns_forwarder.set_names(HostNames::new(vec!["bus.example".into()], prefixes.to_vec(), hosts));
    let (code, count, octets) = local_answer(&mut world, "tablet.lan", RECORD_TYPE_AAAA).expect("an answer");
    assert_eq!((code, count), (0, 2));
    let record = |last: u8| {
        [&[0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16], &ip(&format!("2001:db8:a::{last}")).octets()[..]]
            .concat()
    };
    assert!(octets.ends_with(&[record(8), record(9)].concat()), "{octets:?}");
    assert_eq!(code_and_record_count(&mut world, "tablet.lan", A), Some((0, 1)));
    assert_eq!(code_and_record_count(&mut world, "tablet", RECORD_TYPE_ANY), Some((0, 3)));
    // An answer has at most eight addresses, which fit into a message without the EDNS extension.
    let (_, count, octets) =
        local_answer(&mut world, "many.bus.example", RECORD_TYPE_AAAA).expect("an answer");
    assert!(count == 8 && octets[2] & 2 == 0 && octets.len() <= 512, "{octets:?}");
    // If two hosts have the address, its reverse name is that of the first host.
    let reverse = |text: &str| {
        let digits = format!("{:032x}", u128::from(ip(text)));
        digits.chars().rev().map(|digit| format!("{digit}.")).collect::<String>() + "ip6.arpa"
    };
    let (code, _, octets) =
        local_answer(&mut world, &reverse("2001:db8:a::9"), RECORD_TYPE_PTR).expect("an answer");
    assert!(code == 0 && octets.ends_with(&encode_name("tablet.bus.example")), "{octets:?}");
    assert_eq!(code_and_record_count(&mut world, &reverse("2001:db8:a::7"), RECORD_TYPE_PTR), NO_NAME_ANSWER);
    assert_eq!(code_and_record_count(&mut world, &reverse("2001:db8:b::9"), RECORD_TYPE_PTR), None);
    // Each case says whether the answer to a question depends on the hosts' IPv6 addresses.
    for (text, kind, needs) in [
        ("tablet.lan", RECORD_TYPE_AAAA, true),
        ("tablet", RECORD_TYPE_ANY, true),
        (&reverse("2001:db8:a::7"), RECORD_TYPE_PTR, true),
        ("tablet.lan", A, false),
        ("nobody.lan", RECORD_TYPE_AAAA, false),
        ("www.example.net", RECORD_TYPE_AAAA, false),
        ("20.7.42.10.in-addr.arpa", RECORD_TYPE_PTR, false),
        (&reverse("2001:db8:b::7"), RECORD_TYPE_PTR, false),
    ] {
        assert_eq!(
            world.dns_forwarder.depends_on_ipv6_addresses(FIRST_NETWORK, &query_message(1, text, kind)),
            needs,
            "{text} {kind}"
        );
    }
}

#[test]
fn forwarder_hides_hosts_of_isolated_network_from_other_networks() {
    let isolated = OnBoardNetwork { network_number: 2, is_isolated: true };
    let other = OnBoardNetwork { network_number: 3, is_isolated: false };
    let ip = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address");
    let host = |network, name: &str, last| NamedHost {
        network,
        name: name.to_owned(),
        ipv4_address: Ipv4Addr::new(10, 42, 7, last),
        ipv6_addresses: vec![ip(&format!("2001:db8:a::{last}"))],
    };
    let hosts = [host(FIRST_NETWORK, "camera", 9), host(isolated, "camera", 21), host(isolated, "phone", 22)];
    let mut world = TestNetwork::new(1);
    let prefixes = ["10.42.4.0/22", "2001:db8:a::/64"].map(|prefix| prefix.parse().expect("a prefix"));
    world.dns_forwarder.set_names(HostNames::new(Vec::new(), prefixes.to_vec(), hosts.into_iter()));
    // Returns the last octet of the address in the answer; `None` if the name does not exist.
    let mut asked = |network, text: &str| {
        world.client_count += 1;
        let client = DnsQueryClient {
            client_number: world.client_count,
            address: IpAddr::from([10, 42, 7, 1]),
            link_address: None,
            network,
            transport: DnsTransport::Udp,
        };
        world.dns_forwarder.handle_query(world.now, client, &query_message(1, text, A));
        let (asked, answers) = world.take_outputs();
        assert!(asked.is_empty(), "{text} leaves the vehicle");
        let [answer] = &answers[..] else { panic!("{text}: {answers:?}") };
        (answer[3] & 15 == 0).then(|| answer[answer.len() - 1])
    };
    assert_eq!(asked(FIRST_NETWORK, "camera.lan"), Some(9));
    assert_eq!(asked(other, "camera.lan"), Some(9));
    assert_eq!(asked(isolated, "camera.lan"), Some(21), "a network has its own names");
    assert_eq!((asked(FIRST_NETWORK, "phone.lan"), asked(other, "phone")), (None, None));
    assert_eq!(asked(isolated, "phone.lan"), Some(22));
    let mut reverse = |network, last: u8| {
        world.client_count += 1;
        let (number, transport) = (world.client_count, DnsTransport::Udp);
        let client = DnsQueryClient {
            client_number: number,
            address: IpAddr::from([10, 42, 7, 1]),
            link_address: None,
            network,
            transport,
        };
        let octets = query_message(1, &format!("{last}.7.42.10.in-addr.arpa"), RECORD_TYPE_PTR);
        world.dns_forwarder.handle_query(world.now, client, &octets);
        world.take_outputs().1[0][3] & 15
    };
    assert_eq!(
        (reverse(FIRST_NETWORK, 9), reverse(isolated, 9), reverse(isolated, 22), reverse(other, 22)),
        (0, 3, 0, 3)
    );
    let needs = |network, text| {
        world.dns_forwarder.depends_on_ipv6_addresses(network, &query_message(1, text, RECORD_TYPE_AAAA))
    };
    assert!(needs(isolated, "phone.lan") && !needs(FIRST_NETWORK, "phone.lan"));
}

#[test]
fn forwarder_sends_no_query_about_local_names_upstream() {
    let mut world = network_with_hosts(&["bus.example", "lan"]);
    for text in ["nobody.lan", "x.tablet.lan", "a.b.c.lan", "\u{ff}.lan", "nobody"] {
        for kind in [A, RECORD_TYPE_AAAA, RECORD_TYPE_PTR, RECORD_TYPE_HTTPS, RECORD_TYPE_ANY] {
            assert_eq!(code_and_record_count(&mut world, text, kind), NO_NAME_ANSWER, "{text} {kind}");
        }
    }
    assert_eq!(code_and_record_count(&mut world, "lan", RECORD_TYPE_SOA), NO_RECORD_ANSWER);
    // A validating host needs answers of servers about top-level domains.
    for (text, kind) in [
        ("example", RECORD_TYPE_DS),
        ("example", RECORD_TYPE_DNSKEY),
        ("example", RECORD_TYPE_NS),
        ("", RECORD_TYPE_DNSKEY),
    ] {
        assert_eq!(code_and_record_count(&mut world, text, kind), None, "{text}");
    }
    // The vehicle does not answer queries of another class than that of the Internet.
    for text in ["tablet.lan", "tablet.bus.example", "20.7.42.10.in-addr.arpa"] {
        let mut chaos = query_message(1, text, A);
        *chaos.last_mut().expect("the class") = 3;
        let (asked, answers) = world.send_query(&chaos);
        assert_eq!((asked, answers.len(), response_code(&answers[0])), (Vec::new(), 1, 4));
    }
    // No server anywhere knows these domains.
    for text in ["printer.local", "x.localhost", "a.b.Invalid", "service.onion"] {
        assert_eq!(code_and_record_count(&mut world, text, RECORD_TYPE_AAAA), NO_NAME_ANSWER, "{text}");
    }
    assert_eq!(code_and_record_count(&mut world, "local.example", A), None);
    // If the config has a domain below one of these domains, a server may know the configured domain.
    let mut world = network_with_hosts(&["depot.local"]);
    assert_eq!(code_and_record_count(&mut world, "server.depot.local", A), None);
    assert_eq!(code_and_record_count(&mut world, "server.local", A), NO_NAME_ANSWER);
    let mut world = network_with_hosts(&["depot.lan"]);
    assert_eq!(code_and_record_count(&mut world, "tablet.depot.lan", A), Some((0, 1)));
    assert_eq!(code_and_record_count(&mut world, "server.depot.lan", A), None);
    assert_eq!(code_and_record_count(&mut world, "server.lan", A), NO_NAME_ANSWER);
}

#[test]
fn forwarder_sends_no_reverse_query_about_prefixes_on_board_upstream() {
    let mut world = network_with_hosts(&["bus.example"]);
    let ip6 = |address: &str, digits: usize| {
        let address: std::net::Ipv6Addr = address.parse().expect("an address");
        let text = format!("{:032x}", u128::from(address));
        let labels: Vec<String> = text[..digits].chars().rev().map(String::from).collect();
        format!("{}.ip6.arpa", labels.join("."))
    };
    for (text, expected) in [
        ("99.7.42.10.in-addr.arpa".to_owned(), NO_NAME_ANSWER),
        ("0.4.42.10.in-addr.arpa".to_owned(), NO_NAME_ANSWER),
        // Names between the reverse name of the prefix and the reverse names of its addresses exist, but have
        // no records.
        ("7.42.10.in-addr.arpa".to_owned(), NO_RECORD_ANSWER),
        ("_udp.7.42.10.in-addr.arpa".to_owned(), NO_NAME_ANSWER),
        ("020.7.42.10.in-addr.arpa".to_owned(), NO_NAME_ANSWER),
        ("1.20.7.42.10.in-addr.arpa".to_owned(), NO_NAME_ANSWER),
        (ip6("2001:db8:a::9", 32), NO_NAME_ANSWER),
        (ip6("2001:db8:a:3:ffff::", 32), NO_NAME_ANSWER),
        (ip6("2001:db8:a::", 16), NO_RECORD_ANSWER),
        (ip6("2001:db8:a:1::", 20), NO_RECORD_ANSWER),
        (format!("b._dns-sd.{}", ip6("2001:db8:a::", 16)), NO_NAME_ANSWER),
        (format!("g.{}", ip6("2001:db8:a::", 16)), NO_NAME_ANSWER),
        // Servers know the reverse names of other networks, and of networks that contain more than a prefix
        // on board.
        ("1.8.42.10.in-addr.arpa".to_owned(), None),
        ("42.10.in-addr.arpa".to_owned(), None),
        ("x.42.10.in-addr.arpa".to_owned(), None),
        ("+7.42.10.in-addr.arpa".to_owned(), None),
        ("in-addr.arpa".to_owned(), None),
        ("ip6.arpa".to_owned(), None),
        (ip6("2001:db8:a:4::9", 32), None),
        (ip6("2001:db8:a::", 15), None),
    ] {
        assert_eq!(code_and_record_count(&mut world, &text, RECORD_TYPE_PTR), expected, "{text}");
        assert_eq!(
            code_and_record_count(&mut world, &text.to_uppercase(), RECORD_TYPE_SOA),
            expected,
            "{text}"
        );
    }
}

#[test]
fn forwarder_answers_invalid_queries_with_an_error_or_drops_them() {
    let mut world = TestNetwork::new(1);
    let valid = query_message(5, "www.example.net", A);
    for length in 0..4 {
        assert_eq!(world.send_query(&valid[..length]), (Vec::new(), Vec::new()));
    }
    let code_of = |world: &mut TestNetwork, octets: &[u8]| {
        world.send_query(octets).1.first().map(|answer| response_code(answer))
    };
    assert_eq!(code_of(&mut world, &valid[..20]), Some(1));
    let mut response = valid.clone();
    response[2] |= 0x80;
    assert_eq!(code_of(&mut world, &response), None);
    let mut update = valid.clone();
    update[2] |= 5 << 3;
    assert_eq!(code_of(&mut world, &update), Some(4));
    let mut two_questions = valid.clone();
    two_questions[5] = 2;
    assert_eq!(code_of(&mut world, &two_questions), Some(1));
    // The question has a compression pointer that points to itself.
    let mut pointer = valid[..12].to_vec();
    pointer.extend([0xc0, 12, 0, 1, 0, 1]);
    assert_eq!(code_of(&mut world, &pointer), Some(1));
    assert!(world.dns_forwarder.counters().dropped_messages(DnsDropReason::Malformed) >= 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// For any octets of a host or a server, the forwarder answers, drops or asks a server. Its memory stays
    /// within its limits.
    #[test]
    fn forwarder_keeps_its_limits_for_arbitrary_datagrams(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        length in 0..120usize,
        of_server in any::<bool>(),
    ) {
        let mut world = TestNetwork::new(2);
        let valid = query_message(1, "www.example.net", A);
        let (asked, _) = world.send_query(&valid);
        let mut octets =
            if of_server { answer_message(&asked[0].octets, "www.example.net", 300) } else { valid };
        for (at, octet) in changes {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        octets.truncate(length);
        if of_server {
            let (_, answers) = world.answer_query(&asked[0], &octets);
            prop_assert!(answers.iter().all(|answer| answer.len() <= 512 && answer[..2] == [0, 1]));
        } else {
            let (_, answers) = world.send_query(&octets);
            prop_assert!(answers.iter().all(|answer| answer.len() <= 1232));
        }
        prop_assert!(world.dns_forwarder.waiting_query_count() <= 2);
        world.advance_time(Duration::from_secs(30));
        prop_assert_eq!(world.dns_forwarder.waiting_query_count(), 0);
    }
}
