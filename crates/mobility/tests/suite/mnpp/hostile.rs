//! Attackers in radio range, or anywhere, who want to cut off others or to get their packets.

use carnet_mobility::mnpp::{MAX_CLAIMED_PREFIXES, MAX_PEERS};

use super::*;

const OBSERVATION_IN_RANGE: StationObservation = StationObservation {
    received_at: Time::ZERO,
    is_neighbour: true,
    stays_in_range: true,
    leaves_range: false,
};

fn mac_of_forged_station(number: u16) -> MacAddress {
    let [high, low] = number.to_be_bytes();
    [2, 0xff, 0, 0, high, low]
}

/// Makes the forged station `station` announce `nets` prefixes to A, from within A's radio range.
fn claim_prefixes(world: &mut RadioNetwork, station: u16, nets: usize) {
    world
        .observations
        .get_mut(&A)
        .expect("a view")
        .0
        .insert(mac_of_forged_station(station), OBSERVATION_IN_RANGE);
    for net in 0..nets {
        announce_prefix(
            world,
            mac_of_forged_station(station),
            &format!("2001:db8:{:x}:{net:x}::/64", 0x1000 + station),
            60,
        );
    }
}

fn prefix_test(kind: PrefixTestKind, asker: MacAddress, responder: MacAddress) -> PrefixTest {
    let prefix =
        if kind == PrefixTestKind::Init { own_prefix(responder).network() } else { Ipv6Addr::UNSPECIFIED };
    let prefix_length = if kind == PrefixTestKind::Init { 64 } else { 0 };
    PrefixTest { kind, cookie: 7, responder, requester: asker, prefix, prefix_length }
}

/// Returns the Prefix Test Inits that A has sent to the home agents since entry `from` of the log.
fn tests_sent_by_a(world: &RadioNetwork, from: usize) -> Vec<(Header, PrefixTest)> {
    let asked = world.log[from..].iter().filter_map(|(_, mac, output)| match output {
        Output::ThroughTunnel(packet) if *mac == A => Some(prefix_test_in(packet)),
        _ => None,
    });
    asked.collect()
}

/// Returns the cookie of a Prefix Test Init to A, as the tested station does.
fn answer_prefix_test(world: &mut RadioNetwork, asked: &PrefixTest) -> Result<(), MnppDrop> {
    let test = PrefixTest { kind: PrefixTestKind::Test, ..*asked };
    let (now, view) = (world.now, world.observations[&A].clone());
    let from = asked.responder;
    let result = world.router_mut(A).handle_message_of_station(now, from, link_local(from), &test, &view);
    world.deliver_all_outputs();
    result
}

#[test]
fn prefix_tests_of_one_station_limit_no_other() {
    let mut world = RadioNetwork::new([A, B, C].map(|mac| (mac, config(mac))));
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    for station in 0..4 {
        world
            .observations
            .get_mut(&B)
            .expect("a view")
            .0
            .insert(mac_of_forged_station(station), OBSERVATION_IN_RANGE);
    }
    for round in 0..500u16 {
        let (now, view) = (world.now, world.observations[&B].clone());
        for _ in 0..20 {
            let from = mac_of_forged_station(round % 4);
            let probe = prefix_test(PrefixTestKind::Probe, from, B);
            let _counted =
                world.router_mut(B).handle_message_of_station(now, from, link_local(from), &probe, &view);
            world.router_mut(B).handle_test_init(
                now,
                ADDRESS_OUTSIDE,
                &prefix_test(PrefixTestKind::Init, from, B),
                &view,
            );
        }
        if round == 100 {
            // Probes do not hinder tests, and tests that use up their limit do not hinder probes.
            world.bring_into_range(B, C);
        }
        world.router_mut(A).handle_used_station(now, B);
        world.advance_time(milliseconds(10));
        assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B))], "{round}");
    }
    assert_eq!(world.routes_of(C), [(own_prefix(B), link_local(B))]);
    assert_eq!(world.routes_of(B).len(), 2);
    assert!(world.dropped_messages(B, MnppDrop::RateLimited) > 5000);
}

/// An attacker anywhere asks B a thousand times a second in A's name.
#[test]
fn forged_test_requests_do_not_limit_named_station() {
    let mut world = RadioNetwork::with_two_vehicles();
    let flood = |world: &mut RadioNetwork| {
        let (now, view) = (world.now, world.observations[&B].clone());
        for _ in 0..10 {
            world.router_mut(B).handle_test_init(
                now,
                ADDRESS_OUTSIDE,
                &prefix_test(PrefixTestKind::Init, A, B),
                &view,
            );
        }
        world.advance_time(milliseconds(10));
    };
    (0..50).for_each(|_| flood(&mut world));
    world.bring_into_range(A, B);
    (0..300).for_each(|_| flood(&mut world));
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B))]);
    assert!(world.dropped_messages(B, MnppDrop::RateLimited) > 100);
}

#[test]
fn forged_addresses_do_not_limit_known_stations() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    for station in 0..500u16 {
        world
            .observations
            .get_mut(&B)
            .expect("a view")
            .0
            .insert(mac_of_forged_station(station), OBSERVATION_IN_RANGE);
        let (now, view, from) = (world.now, world.observations[&B].clone(), mac_of_forged_station(station));
        for _ in 0..20 {
            let probe = prefix_test(PrefixTestKind::Probe, from, B);
            let _counted =
                world.router_mut(B).handle_message_of_station(now, from, link_local(from), &probe, &view);
        }
        world.router_mut(A).handle_used_station(now, B);
        world.advance_time(milliseconds(10));
        assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B))], "{station}");
    }
}

#[test]
fn flood_of_stations_replaces_only_its_own_entries() {
    let mut world = RadioNetwork::new([A, B, C].map(|mac| (mac, config(mac))));
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    // C is in range, but no router has its prefix registered yet.
    world.owner_of_prefix.remove(&own_prefix(C));
    world.bring_into_range(A, C);
    world.advance_time(Duration::from_secs(1));
    for station in 0..1000 {
        claim_prefixes(&mut world, station, 1);
    }
    let ways = world.routers[&A].prefix_routes();
    assert_eq!(ways.len(), MAX_PEERS);
    for mac in [B, C] {
        assert!(ways.iter().any(|way| way.station == mac), "{mac:?}");
    }
    // The attackers do not keep C from being tested.
    world.owner_of_prefix.insert(own_prefix(C), C);
    world.advance_time(Duration::from_secs(15));
    assert_eq!(world.routes_of(A).len(), 2);
}

/// The table is full of stations that only claim prefixes. A new station gets an entry as soon as they have
/// failed their tests, and gets its own test although they claim again and again.
#[test]
fn new_station_replaces_stations_that_failed_their_prefix_test() {
    // Z comes last in the order of addresses.
    const Z: MacAddress = [0xfe, 0xff, 0, 0, 0, 0x1f];
    let mut world = RadioNetwork::new([A, Z].map(|mac| (mac, config(mac))));
    for station in 0..MAX_PEERS as u16 {
        claim_prefixes(&mut world, station, MAX_CLAIMED_PREFIXES);
    }
    let keep = |world: &mut RadioNetwork| {
        for station in 0..MAX_PEERS as u16 {
            let is_there = world.routers[&A]
                .prefix_routes()
                .iter()
                .any(|way| way.station == mac_of_forged_station(station));
            if is_there {
                claim_prefixes(world, station, MAX_CLAIMED_PREFIXES);
            }
        }
    };
    // Wait for 512 prefixes with four tests each, at ten tests a second.
    for _ in 0..10 {
        keep(&mut world);
        world.advance_time(Duration::from_secs(25));
    }
    keep(&mut world);
    world.bring_into_range(A, Z);
    // Further stations come while Z waits for its test.
    for station in 1000..1050 {
        claim_prefixes(&mut world, station, 1);
        world.advance_time(milliseconds(200));
    }
    assert_eq!(world.routes_of(A), [(own_prefix(Z), link_local(Z))]);
}

/// Attackers make up ever more stations while an honest one comes: a station with an entry keeps it until its
/// answer arrives.
#[test]
fn flood_does_not_prevent_proof_of_real_neighbour() {
    const Z: MacAddress = [0xfe, 0xff, 0, 0, 0, 0x1f];
    let mut world = RadioNetwork::new([A, Z].map(|mac| (mac, config(mac))));
    // Delay the answer, which comes through the home agents.
    world.are_tunnels_working = false;
    let mut station = 0u16;
    let mut flood = |world: &mut RadioNetwork| {
        claim_prefixes(world, station, 1);
        world.advance_time(milliseconds(20 + u64::from(station) * 7919 % 61));
        station += 1;
    };
    (0..MAX_PEERS).for_each(|_| flood(&mut world));
    world.bring_into_range(A, Z);
    let last_test = |world: &RadioNetwork| {
        tests_sent_by_a(world, 0).into_iter().map(|(_, test)| test).rfind(|test| test.responder == Z)
    };
    let mut answered = None;
    // 20 forged stations a second appear, at irregular times.
    for _ in 0..1200 {
        flood(&mut world);
        let test = last_test(&world);
        if test != answered {
            (0..4).for_each(|_| flood(&mut world));
            let _in_time = answer_prefix_test(&mut world, &test.expect("a test"));
            answered = test;
        }
    }
    assert_eq!(world.routes_of(A), [(own_prefix(Z), link_local(Z))]);
}

#[test]
fn router_accepts_answer_to_last_or_previous_prefix_test() {
    for (late, accepted) in [(0, false), (1, true), (2, true)] {
        let mut world = RadioNetwork::with_two_vehicles();
        world.are_tunnels_working = false;
        world.bring_into_range(A, B);
        world.advance_time(Duration::from_secs(4));
        let asked = tests_sent_by_a(&world, 0);
        assert_eq!(asked.len(), 3, "at once, after 1 s, after 2 s more");
        let result = answer_prefix_test(&mut world, &asked[late].1);
        assert_eq!(result, if accepted { Ok(()) } else { Err(MnppDrop::Unasked) });
        // The router accepts an answer only once.
        assert_eq!(answer_prefix_test(&mut world, &asked[2].1).is_ok(), !accepted);
        world.advance_time(milliseconds(200));
        assert_eq!(world.routes_of(A).len(), 1);
    }
}

#[test]
fn router_without_tunnel_sends_no_prefix_test() {
    let mut world = RadioNetwork::with_two_vehicles();
    let now = world.now;
    world.router_mut(A).handle_tunnel_presence(now, false);
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(100));
    assert_eq!(world.routers[&A].counters().tests, 0);
    let now = world.now;
    world.router_mut(A).handle_tunnel_presence(now, true);
    world.advance_time(milliseconds(100));
    assert_eq!((world.routes_of(A).len(), world.routers[&A].counters().tests), (1, 1));
}

/// An attacker may own one /64 of a shorter prefix. So an answer from one address does not prove that a
/// neighbour owns the whole prefix.
#[test]
fn proof_of_part_of_prefix_is_not_enough() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.are_tunnels_working = false;
    world.observations.get_mut(&A).expect("a view").0.insert(C, OBSERVATION_IN_RANGE);
    let owned = parse_prefix("2001:db8:c::/50");
    let mut destinations = BTreeSet::new();
    for round in 0..600 {
        let log = world.log.len();
        announce_prefix(&mut world, C, "2001:db8:c::/48", 60);
        world.advance_time(milliseconds(if round == 0 { 0 } else { 1000 }));
        let mut next = tests_sent_by_a(&world, log);
        while let Some((header, test)) = next.pop() {
            assert!(parse_prefix("2001:db8:c::/48").contains(&header.destination));
            destinations.insert(header.destination);
            if owned.contains(&header.destination) {
                let log = world.log.len();
                answer_prefix_test(&mut world, &test).expect("the cookie");
                next.extend(tests_sent_by_a(&world, log));
            }
        }
        assert!(world.route_reasons(A).contains(&"not authorized by its home agent"), "{round}");
    }
    // Each test goes to another address of the prefix.
    assert_eq!(destinations.len() as u64, world.routers[&A].counters().tests);
    assert!(destinations.iter().any(|to| owned.contains(to)));
}

#[test]
fn proof_of_whole_short_prefix_is_accepted() {
    let short = parse_prefix("2001:db8:b::/48");
    let mut world =
        RadioNetwork::new([(A, config(A)), (B, MnppConfig { prefixes: vec![short], ..config(B) })]);
    world.bring_into_range(A, B);
    world.advance_time(milliseconds(500));
    assert_eq!(world.routes_of(A), [(short, link_local(B))]);
    assert_eq!(world.routers[&A].counters().tests, 8);
    // The prefix of a single host is tested too.
    let host = parse_prefix("2001:db8:b::5/128");
    let mut world =
        RadioNetwork::new([(A, config(A)), (B, MnppConfig { prefixes: vec![host], ..config(B) })]);
    world.bring_into_range(A, B);
    world.advance_time(milliseconds(500));
    assert_eq!(world.routes_of(A), [(host, link_local(B))]);
}

/// A Prefix Test Init for a part of an own network, or for a prefix around it, does not reach the mobile
/// network.
#[test]
fn tests_of_own_prefix_are_not_forwarded() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(1));
    let (now, view) = (world.now, world.observations[&A].clone());
    let ask = |world: &mut RadioNetwork, text: &str, responder: MacAddress| {
        let asked = parse_prefix(text);
        let test = PrefixTest {
            prefix: asked.network(),
            prefix_length: asked.prefix_len(),
            ..prefix_test(PrefixTestKind::Init, B, responder)
        };
        let log = world.log.len();
        let taken = world.router_mut(A).handle_test_init(now, ADDRESS_OUTSIDE, &test, &view);
        world.deliver_all_outputs();
        let answered = world.log[log..].iter().any(|(_, _, output)| matches!(output, Output::Straight(..)));
        (taken, answered)
    };
    assert_eq!(ask(&mut world, "2001:db8:a::/64", A), (true, true));
    let refused = world.dropped_messages(A, MnppDrop::OwnPrefix);
    let touching = ["2001:db8:a::/48", "2001:db8:a::/65", "2001:db8:a:0:8000::/65", "2001:db8:a::5/128"];
    for text in touching {
        assert_eq!(ask(&mut world, text, A), (true, false), "{text}");
        assert_eq!(ask(&mut world, text, C), (true, false), "{text}");
    }
    assert_eq!(world.dropped_messages(A, MnppDrop::OwnPrefix), refused + 2 * touching.len() as u64);
    // The caller forwards a Prefix Test Init for a foreign prefix to its destination.
    assert_eq!(ask(&mut world, "2001:db8:a:1::/64", A), (false, false));
    assert_eq!(world.routers[&A].counters().answered_tests, 2);
}
