//! Direct routes to the mobile networks of nearby vehicles: announcements, proofs, begin and end of contacts,
//! in virtual time.

mod hostile;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_mobility::Mnpp;
use carnet_mobility::mnpp::{
    Authorization, MnppConfig, MnppDrop, Output, StationObservation, StationObserver,
};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{MobilityHeader, PrefixTest, PrefixTestKind};
use carnet_wire::nd::{self, NdOption, RouteInformation, RouterAdvertisement};
use ipnet::Ipv6Net;

type MacAddress = [u8; 6];

const A: MacAddress = [2, 0, 0, 0, 0, 0xa];
const B: MacAddress = [2, 0, 0, 0, 0, 0xb];
const C: MacAddress = [2, 0, 0, 0, 0, 0xc];

/// An address that belongs to no vehicle of the test.
const ADDRESS_OUTSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

fn parse_prefix(text: &str) -> Ipv6Net {
    text.parse().expect("a prefix")
}

fn link_local(mac: MacAddress) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from(0xfe80_u128 << 112)
        | Ipv6Addr::from(u128::from(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])))
}

fn own_prefix(mac: MacAddress) -> Ipv6Net {
    parse_prefix(&format!("2001:db8:{:x}::/64", mac[5]))
}

fn config(mac: MacAddress) -> MnppConfig {
    MnppConfig {
        prefixes: vec![own_prefix(mac)],
        home_address: format!("2001:db8:1::{:x}", mac[5]).parse().expect("an address"),
        home_agent: "2001:db8:1::1".parse().expect("an address"),
        home_prefix: parse_prefix("2001:db8:1::/64"),
        authorization: Authorization::HomeAgent,
        shortest_prefix_length: 48,
        announcement_hop_limit: 1,
        announcement_interval: Duration::from_secs(10),
    }
}

/// A station's view of each other station.
#[derive(Debug, Clone, Default)]
struct ObservedStations(BTreeMap<MacAddress, StationObservation>);

impl StationObserver for ObservedStations {
    fn observation(&self, _: Time, station: MacAddress) -> Option<StationObservation> {
        self.0.get(&station).copied()
    }

    fn link_local(&self, station: MacAddress) -> Ipv6Addr {
        link_local(station)
    }

    fn has_neighbours(&self) -> bool {
        self.0.values().any(|sight| sight.is_neighbour)
    }
}

/// Vehicles, the radio channel between them, and home agents that deliver to the vehicle that has registered
/// a prefix.
struct RadioNetwork {
    now: Time,
    routers: BTreeMap<MacAddress, Mnpp>,
    observations: BTreeMap<MacAddress, ObservedStations>,
    /// Pairs of sender and receiver that are in range.
    pairs_in_range: BTreeSet<(MacAddress, MacAddress)>,
    owner_of_prefix: BTreeMap<Ipv6Net, MacAddress>,
    are_tunnels_working: bool,
    /// The routes of each station at its last report of a change.
    reported_routes: BTreeMap<MacAddress, BTreeMap<Ipv6Net, Ipv6Addr>>,
    log: Vec<(Time, MacAddress, Output)>,
}

impl RadioNetwork {
    fn new(configs: impl IntoIterator<Item = (MacAddress, MnppConfig)>) -> RadioNetwork {
        let mut world = RadioNetwork {
            now: Time::from_secs(100),
            routers: BTreeMap::new(),
            observations: BTreeMap::new(),
            pairs_in_range: BTreeSet::new(),
            owner_of_prefix: BTreeMap::new(),
            are_tunnels_working: true,
            reported_routes: BTreeMap::new(),
            log: Vec::new(),
        };
        for (mac, config) in configs {
            for prefix in &config.prefixes {
                world.owner_of_prefix.entry(*prefix).or_insert(mac);
            }
            let mut machine = Mnpp::new(config, Rng::new(u64::from(mac[5])));
            machine.handle_own_addresses(mac, link_local(mac));
            world.routers.insert(mac, machine);
            world.observations.insert(mac, ObservedStations::default());
        }
        world
    }

    fn with_two_vehicles() -> RadioNetwork {
        RadioNetwork::new([A, B].map(|mac| (mac, config(mac))))
    }

    fn router_mut(&mut self, mac: MacAddress) -> &mut Mnpp {
        self.routers.get_mut(&mac).expect("a machine")
    }

    fn deliver_all_outputs(&mut self) {
        loop {
            let outputs: Vec<(MacAddress, Output)> = self
                .routers
                .iter_mut()
                .flat_map(|(mac, machine)| {
                    std::iter::from_fn(|| machine.poll_output())
                        .map(|output| (*mac, output))
                        .collect::<Vec<_>>()
                })
                .collect();
            if outputs.is_empty() {
                for (mac, machine) in &self.routers {
                    let told = self.reported_routes.get(mac).cloned().unwrap_or_default();
                    assert_eq!(machine.routes(), told, "{mac:?} has not told of its routes");
                }
                return;
            }
            for (mac, _) in outputs.iter().filter(|(_, output)| *output == Output::Routes) {
                self.reported_routes.insert(*mac, self.routers[mac].routes());
            }
            for (from, output) in outputs {
                self.log.push((self.now, from, output.clone()));
                match output {
                    Output::Announce(packet) => {
                        for to in self.routers.keys().copied().collect::<Vec<_>>() {
                            self.deliver_message(from, to, &packet);
                        }
                    }
                    Output::Straight(to, packet) => self.deliver_message(from, to, &packet),
                    Output::ThroughTunnel(packet) if self.are_tunnels_working => {
                        let (header, test) = prefix_test_in(&packet);
                        let owner =
                            self.owner_of_prefix.iter().find(|(net, _)| net.contains(&header.destination));
                        if let Some((_, owner)) = owner {
                            let owner = *owner;
                            let view = self.observations[&owner].clone();
                            let now = self.now;
                            self.router_mut(owner).handle_test_init(now, header.source, &test, &view);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn deliver_message(&mut self, from: MacAddress, to: MacAddress, packet: &[u8]) {
        if !self.pairs_in_range.contains(&(from, to)) {
            return;
        }
        let now = self.now;
        if let Some(sight) = self.observations.get_mut(&to).and_then(|view| view.0.get_mut(&from)) {
            sight.received_at = now;
        }
        let view = self.observations[&to].clone();
        let (header, message) = Header::parse_packet(packet).expect("an IPv6 packet");
        assert_eq!(header.source, link_local(from));
        if header.next_header == protocol::MOBILITY {
            assert_eq!(header.destination, link_local(to));
            let (_, test) = prefix_test_in(packet);
            let _counted =
                self.router_mut(to).handle_message_of_station(now, from, header.source, &test, &view);
        } else {
            nd::check_header(&header, message).expect("as RFC 4861 wants it");
            let advertisement = RouterAdvertisement::parse(message).expect("an advertisement");
            assert_eq!(advertisement.router_lifetime, 0);
            self.router_mut(to).handle_advertisement(now, from, header.source, &advertisement, &view);
        }
    }

    fn advance_time(&mut self, span: Duration) {
        let end = self.now + span;
        self.deliver_all_outputs();
        while let Some(due) =
            self.routers.values().filter_map(Mnpp::poll_timeout).min().filter(|due| *due <= end)
        {
            self.now = self.now.max(due);
            for (mac, machine) in &mut self.routers {
                machine.handle_timeout(self.now, &self.observations[mac]);
            }
            self.deliver_all_outputs();
        }
        self.now = end;
    }

    /// Brings two stations into range.
    fn bring_into_range(&mut self, a: MacAddress, b: MacAddress) {
        for (from, to) in [(a, b), (b, a)] {
            self.pairs_in_range.insert((from, to));
            let sight = StationObservation {
                received_at: self.now,
                is_neighbour: true,
                stays_in_range: true,
                leaves_range: false,
            };
            self.observations.get_mut(&to).expect("a view").0.insert(from, sight);
        }
        for mac in [a, b] {
            let now = self.now;
            self.router_mut(mac).handle_new_neighbour(now);
        }
        self.deliver_all_outputs();
    }

    fn change_observation(
        &mut self,
        who: MacAddress,
        whom: MacAddress,
        change: impl FnOnce(&mut StationObservation),
    ) {
        let sight = self.observations.get_mut(&who).and_then(|view| view.0.get_mut(&whom));
        change(sight.expect("a sight"));
    }

    fn routes_of(&self, mac: MacAddress) -> Vec<(Ipv6Net, Ipv6Addr)> {
        self.routers[&mac].routes().into_iter().collect()
    }

    fn route_reasons(&self, mac: MacAddress) -> Vec<&'static str> {
        self.routers[&mac].prefix_routes().iter().map(|way| way.state_reason).collect()
    }

    fn dropped_messages(&self, mac: MacAddress, reason: MnppDrop) -> u64 {
        self.routers[&mac].counters().dropped(reason)
    }

    fn sent_announcements(&self, mac: MacAddress) -> u64 {
        self.routers[&mac].counters().sent_announcements
    }
}

fn prefix_test_in(packet: &[u8]) -> (Header, PrefixTest) {
    let header = Header::parse(packet).expect("a header");
    let mobility = MobilityHeader::parse_verified(&packet[HEADER_LEN..], header.source, header.destination);
    (header, PrefixTest::parse(&mobility.expect("a Mobility Header")).expect("a test"))
}

fn milliseconds(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// Announces the prefix `text` to station A, in the name of station `from`.
fn announce_prefix(world: &mut RadioNetwork, from: MacAddress, text: &str, lifetime: u32) {
    let (address, length) = text.split_once('/').expect("a prefix");
    let options = [NdOption::RouteInformation(RouteInformation {
        prefix: address.parse().expect("an address"),
        prefix_length: length.parse().expect("a length"),
        preference: nd::RoutePreference::Medium,
        lifetime,
    })];
    let message = nd::emit_router_advertisement(&nd::RouterAdvertisementRepr {
        options: &options,
        ..nd::RouterAdvertisementRepr::default()
    });
    let advertisement = RouterAdvertisement::parse(&message).expect("an advertisement");
    let (now, view) = (world.now, world.observations[&A].clone());
    world.router_mut(A).handle_advertisement(now, from, link_local(from), &advertisement, &view);
    world.deliver_all_outputs();
}

#[test]
fn meeting_vehicles_prove_prefixes_within_announcement_delay() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(milliseconds(150));
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B))]);
    assert_eq!(world.routes_of(B), [(own_prefix(A), link_local(A))]);
    // Each router has sent one Prefix Test Init.
    assert_eq!(world.routers[&A].counters().tests, 1);
    assert_eq!(world.routers[&B].counters().answered_tests, 1);
}

#[test]
fn prefixes_are_announced_only_to_neighbours_once_a_second() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.advance_time(Duration::from_secs(60));
    assert_eq!(world.log.len(), 0);
    world.bring_into_range(A, B);
    for _ in 0..100 {
        let now = world.now;
        world.router_mut(A).handle_new_neighbour(now);
        world.advance_time(milliseconds(10));
    }
    assert!((1..=3).contains(&world.sent_announcements(A)), "{}", world.sent_announcements(A));
    // Announcements follow every 7.5 to 10 s, and probes of unused routes once a second.
    let (before, probes) = (world.sent_announcements(A), world.routers[&A].counters().sent_probes);
    world.advance_time(Duration::from_secs(100));
    assert!(
        (10..=15).contains(&(world.sent_announcements(A) - before)),
        "{}",
        world.sent_announcements(A) - before
    );
    let probes = world.routers[&A].counters().sent_probes - probes;
    assert!((80..=110).contains(&probes), "{probes}");
    assert_eq!(world.routes_of(A).len(), 1);
    // A proof lasts ten minutes and is renewed in time.
    world.advance_time(Duration::from_secs(1000));
    assert_eq!(world.routes_of(A).len(), 1);
    assert_eq!(world.routers[&A].counters().ended_routes, 0);
    assert!((3..=5).contains(&world.routers[&A].counters().tests));
}

#[test]
fn vehicle_cannot_claim_foreign_prefix() {
    let mut world = RadioNetwork::new([A, B, C].map(|mac| (mac, config(mac))));
    world.bring_into_range(A, C);
    world.advance_time(milliseconds(200));
    // C announces B's network.
    announce_prefix(&mut world, C, "2001:db8:b::/64", 60);
    world.advance_time(Duration::from_secs(20));
    assert_eq!(world.routes_of(A), [(own_prefix(C), link_local(C))]);
    assert!(world.route_reasons(A).contains(&"not authorized by its home agent"));
    // B has received the Prefix Test Init, and so knows of the false announcement.
    assert!(world.dropped_messages(B, MnppDrop::OwnPrefix) > 0);
    let warned =
        |(_, mac, output): &(Time, MacAddress, Output)| *mac == B && matches!(output, Output::Event(_));
    assert_eq!(world.log.iter().filter(|entry| warned(entry)).count(), 1);
    // A forged answer does not count: the cookie went to B.
    let forged = PrefixTest {
        kind: PrefixTestKind::Test,
        cookie: 1,
        responder: C,
        requester: A,
        prefix: own_prefix(B).network(),
        prefix_length: 64,
    };
    let (now, view) = (world.now, world.observations[&A].clone());
    let result = world.router_mut(A).handle_message_of_station(now, C, link_local(C), &forged, &view);
    assert_eq!(result, Err(MnppDrop::Unasked));
    assert_eq!(world.routes_of(A).len(), 1);
    // B comes into range. A uses the direct route to B at once, and still ignores C's announcement.
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B)), (own_prefix(C), link_local(C))]);
}

#[test]
fn announcements_of_own_or_invalid_prefixes_are_refused() {
    for authorization in [Authorization::HomeAgent, Authorization::Anybody] {
        let mut world = RadioNetwork::new([(A, MnppConfig { authorization, ..config(A) })]);
        let sight = StationObservation {
            received_at: world.now,
            is_neighbour: true,
            stays_in_range: true,
            leaves_range: false,
        };
        world.observations.get_mut(&A).expect("a view").0.insert(B, sight);
        for (text, reason) in [
            ("::/0", MnppDrop::BadPrefix),
            ("::/1", MnppDrop::BadPrefix),
            ("2000::/3", MnppDrop::TooShort),
            ("2001:db8::/32", MnppDrop::TooShort),
            ("2001:db8:a::/64", MnppDrop::OwnPrefix),
            ("2001:db8:a::/48", MnppDrop::OwnPrefix),
            ("2001:db8:a::5/128", MnppDrop::OwnPrefix),
            ("2001:db8:1::/64", MnppDrop::OwnPrefix),
            ("2001:db8:1::1/128", MnppDrop::OwnPrefix),
            ("2001:db8:1::a/128", MnppDrop::OwnPrefix),
            ("fe80::/64", MnppDrop::BadPrefix),
            ("ff02::/64", MnppDrop::BadPrefix),
            ("::1/128", MnppDrop::BadPrefix),
        ] {
            let before = world.dropped_messages(A, reason);
            announce_prefix(&mut world, B, text, 60);
            assert_eq!(world.dropped_messages(A, reason), before + 1, "{text}");
        }
        assert_eq!((world.routes_of(A).len(), world.route_reasons(A).len()), (0, 0));
    }
}

#[test]
fn mnpp_tables_are_bounded() {
    let mut world = RadioNetwork::new([(A, config(A))]);
    for station in 0..1000u16 {
        let [high, low] = station.to_be_bytes();
        let mac = [2, 1, 0, 0, high, low];
        for net in 0..20 {
            announce_prefix(&mut world, mac, &format!("2001:db8:{:x}:{net:x}::/64", 0x100 + station), 60);
        }
    }
    let ways = world.routers[&A].prefix_routes();
    assert_eq!(ways.len(), carnet_mobility::mnpp::MAX_PEERS * carnet_mobility::mnpp::MAX_CLAIMED_PREFIXES);
    // No tested prefix belongs to a station in range: the router does not ask the home agents.
    assert_eq!(world.routers[&A].counters().tests, 0);
    // The router does not wake up for stations out of range more often than it checks positions.
    world.advance_time(milliseconds(1));
    let due = world.routers[&A].poll_timeout().expect("looks again");
    assert!(due >= world.now + milliseconds(400), "{due}");
    world.advance_time(Duration::from_secs(61));
    assert_eq!(world.routers[&A].prefix_routes().len(), 0);
    assert_eq!(world.routers[&A].poll_timeout(), None);
}

#[test]
fn answers_to_prefix_tests_are_rate_limited() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(1));
    let test = PrefixTest {
        kind: PrefixTestKind::Init,
        cookie: 7,
        responder: B,
        requester: A,
        prefix: own_prefix(B).network(),
        prefix_length: 64,
    };
    let answered = world.routers[&B].counters().answered_tests;
    let (now, view) = (world.now, world.observations[&B].clone());
    for _ in 0..1000 {
        assert!(world.router_mut(B).handle_test_init(now, ADDRESS_OUTSIDE, &test, &view));
    }
    assert!(world.routers[&B].counters().answered_tests - answered <= 32);
    // A router does not answer a test of a station that is out of range.
    let stranger = PrefixTest { requester: C, ..test };
    assert!(world.router_mut(B).handle_test_init(now, ADDRESS_OUTSIDE, &stranger, &view));
    assert_eq!(world.dropped_messages(B, MnppDrop::Unreachable), 1);
    // B does not take a Prefix Test Init for another router's prefix; its caller forwards the message.
    let other = PrefixTest { prefix: own_prefix(C).network(), ..test };
    assert!(!world.router_mut(B).handle_test_init(now, ADDRESS_OUTSIDE, &other, &view));
}

#[test]
fn router_does_not_use_radio_path_that_works_in_one_direction_only() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.pairs_in_range.remove(&(A, B));
    for _ in 0..1500 {
        world.advance_time(milliseconds(10));
        assert_eq!((world.routes_of(A), world.routes_of(B)), (vec![], vec![]));
    }
    // A hears B, and B's prefix is proven. But B has received no announcement of A.
    assert_eq!((world.route_reasons(A), world.route_reasons(B)), (vec!["does not answer"], vec![]));
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(40));
    assert_eq!(world.routes_of(A).len(), 1);
    // B no longer hears A: the route ends though A hears B.
    world.pairs_in_range.remove(&(A, B));
    for _ in 0..100 {
        world.change_observation(A, B, |sight| sight.received_at += milliseconds(30));
        world.advance_time(milliseconds(30));
    }
    assert_eq!(world.routes_of(A), []);
}

#[test]
fn route_is_removed_before_predicted_end_of_radio_contact() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    world.change_observation(A, B, |sight| sight.leaves_range = true);
    world.advance_time(milliseconds(260));
    assert_eq!((world.routes_of(A), world.route_reasons(A)), (vec![], vec!["about to leave"]));
    // The route comes back only when the station is well within range again.
    world.change_observation(A, B, |sight| (sight.leaves_range, sight.stays_in_range) = (false, false));
    world.advance_time(Duration::from_secs(5));
    assert_eq!((world.routes_of(A), world.route_reasons(A)), (vec![], vec!["at the edge"]));
    world.change_observation(A, B, |sight| sight.stays_in_range = true);
    world.advance_time(milliseconds(600));
    assert_eq!(world.routes_of(A).len(), 1);
}

/// Sudden silence while packets flow: the router drops the route within the time that the module documents.
#[test]
fn unexpected_end_of_radio_contact_is_detected_by_probes() {
    for offset in 0..25 {
        let mut world = RadioNetwork::with_two_vehicles();
        world.bring_into_range(A, B);
        world.advance_time(Duration::from_secs(2) + milliseconds(10 * offset));
        for _ in 0..50 {
            let now = world.now;
            world.router_mut(A).handle_used_station(now, B);
            world.advance_time(milliseconds(10));
        }
        world.pairs_in_range.clear();
        let cut = world.now;
        while !world.routes_of(A).is_empty() {
            let now = world.now;
            world.router_mut(A).handle_used_station(now, B);
            world.advance_time(milliseconds(10));
            assert!(world.now.saturating_since(cut) <= milliseconds(660), "{:?}", world.route_reasons(A));
        }
        assert_eq!(world.route_reasons(A), ["does not answer"]);
        let withdrawn = world.log.iter().any(|(_, mac, output)| *mac == A && *output == Output::Withdrawn(B));
        assert!(withdrawn);
        // The direct route has ended, so the station sends packets to B into the tunnel, even if the kernel
        // still has the route.
        assert!(world.routers[&A].must_use_tunnel(B, "2001:db8:b::5".parse().expect("an address")));
        assert!(!world.routers[&A].must_use_tunnel(B, "2001:db8:c::5".parse().expect("an address")));
        // The router probes B again, at growing intervals.
        let before = world.routers[&A].counters().sent_probes;
        world.advance_time(Duration::from_secs(15));
        let probes = world.routers[&A].counters().sent_probes - before;
        assert!((3..=14).contains(&probes), "{probes}");
        world.bring_into_range(A, B);
        world.advance_time(Duration::from_secs(10));
        assert_eq!(world.routes_of(A).len(), 1);
    }
}

#[test]
fn link_layer_feedback_ends_route_at_once() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    let now = world.now;
    world.router_mut(A).handle_unreachable_station(now, B);
    assert_eq!(world.routes_of(A), []);
    world.router_mut(A).handle_unreachable_station(now, C);
    world.deliver_all_outputs();
    // The fault was temporary: the router uses the direct route again.
    world.advance_time(milliseconds(1600));
    assert_eq!(world.routes_of(A).len(), 1);
}

#[test]
fn withdrawn_or_expired_announcement_ends_route() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    let now = world.now;
    world.router_mut(B).handle_shutdown(now);
    world.deliver_all_outputs();
    assert_eq!(world.routes_of(A), []);
    // The router withdraws refused prefixes, and announces them again when they are valid.
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    let now = world.now;
    world.router_mut(B).set_may_announce(now, false);
    world.advance_time(Duration::from_secs(30));
    assert_eq!(world.routes_of(A), []);
    let now = world.now;
    world.router_mut(B).set_may_announce(now, true);
    world.advance_time(Duration::from_secs(2));
    assert_eq!(world.routes_of(A).len(), 1);
}

#[test]
fn recently_proven_neighbour_needs_no_new_test() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.are_tunnels_working = false;
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(20));
    assert_eq!(world.routes_of(A), [], "nobody vouches");
    world.are_tunnels_working = true;
    world.advance_time(Duration::from_secs(9));
    assert_eq!(world.routes_of(A).len(), 1);
    // The stations are apart for a minute, and meet again without an uplink.
    world.pairs_in_range.clear();
    world.observations.values_mut().for_each(|view| view.0.clear());
    world.advance_time(Duration::from_secs(60));
    assert_eq!((world.routes_of(A).len(), world.route_reasons(A).len()), (0, 0));
    world.are_tunnels_working = false;
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    assert_eq!(world.routes_of(A).len(), 1);
}

#[test]
fn unverified_peers_are_accepted_if_the_config_allows_them() {
    let anybody = |mac| (mac, MnppConfig { authorization: Authorization::Anybody, ..config(mac) });
    let mut world = RadioNetwork::new([A, B].map(anybody));
    world.are_tunnels_working = false;
    world.bring_into_range(A, B);
    world.advance_time(milliseconds(300));
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B))]);
    assert_eq!(world.routers[&A].counters().tests, 0);
}

/// Random claims, answers and losses: packets go directly only to the owner of a prefix, and no router wakes
/// up without reason.
#[test]
fn packets_go_directly_only_to_the_owner_of_their_prefix_in_random_runs() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut world = RadioNetwork::new([A, B, C].map(|mac| (mac, config(mac))));
        let all = [A, B, C];
        let any = |rng: &mut Rng| all[rng.number_below(3) as usize];
        for _ in 0..200 {
            let (one, other) = (any(&mut rng), any(&mut rng));
            match rng.number_below(8) {
                0 if one != other => world.bring_into_range(one, other),
                1 if one != other => drop(world.pairs_in_range.remove(&(one, other))),
                2 => drop(world.observations.get_mut(&one).map(|view| view.0.remove(&other))),
                3 => world.are_tunnels_working = rng.number_below(4) > 0,
                4 => announce_prefix(
                    &mut world,
                    other,
                    &format!("{}", own_prefix(any(&mut rng))),
                    rng.number_below(60) as u32,
                ),
                5 => {
                    let kind = [PrefixTestKind::Test, PrefixTestKind::Answer][rng.number_below(2) as usize];
                    let cookie = rng.random_u64();
                    let prefix = own_prefix(any(&mut rng)).network();
                    let forged = PrefixTest {
                        kind,
                        cookie,
                        responder: other,
                        requester: one,
                        prefix,
                        prefix_length: 64,
                    };
                    let (now, view) = (world.now, world.observations[&one].clone());
                    let machine = world.router_mut(one);
                    let refused =
                        machine.handle_message_of_station(now, other, link_local(other), &forged, &view);
                    assert!(refused.is_err());
                    world.deliver_all_outputs();
                }
                _ => {
                    let (log, span) =
                        (world.log.len(), rng.duration_between(milliseconds(1), milliseconds(3000)));
                    world.advance_time(span);
                    let sent = world.log.len() - log;
                    assert!(sent < 40 + span.as_millis() as usize / 10, "{sent} in {span:?}");
                }
            }
            for mac in all {
                for (prefix, next_hop) in world.routes_of(mac) {
                    assert_eq!(next_hop, link_local(world.owner_of_prefix[&prefix]), "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn change_of_own_address_withdraws_the_routes_to_neighbours() {
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(1));
    world.router_mut(A).handle_own_addresses(C, link_local(C));
    assert_eq!(world.routes_of(A), []);
    let outputs: Vec<Output> = std::iter::from_fn(|| world.router_mut(A).poll_output()).collect();
    assert_eq!(outputs, [Output::Routes, Output::Withdrawn(B)]);
}

/// Beyond one hop only probes count, positions do not: two stations hear each other through a third.
#[test]
fn probes_detect_failure_two_hops_away() {
    let two = |mac| (mac, MnppConfig { announcement_hop_limit: 2, ..config(mac) });
    let mut world = RadioNetwork::new([A, B, C].map(two));
    let far = |world: &mut RadioNetwork| {
        for (who, whom) in [(A, C), (C, A)] {
            world.change_observation(who, whom, |sight| {
                (sight.is_neighbour, sight.stays_in_range, sight.leaves_range) = (false, false, true)
            });
        }
    };
    world.bring_into_range(A, B);
    world.bring_into_range(B, C);
    // B forwards frames between A and C.
    world.bring_into_range(A, C);
    far(&mut world);
    world.advance_time(Duration::from_secs(3));
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B)), (own_prefix(C), link_local(C))]);
    assert_eq!(world.routes_of(C).len(), 2);
    // B no longer forwards any frames.
    world.pairs_in_range.remove(&(A, C));
    world.pairs_in_range.remove(&(C, A));
    let cut = world.now;
    while world.routes_of(A).len() > 1 {
        let now = world.now;
        world.router_mut(A).handle_used_station(now, C);
        world.advance_time(milliseconds(10));
        assert!(world.now.saturating_since(cut) <= milliseconds(660), "{:?}", world.route_reasons(A));
    }
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B))]);
    assert_eq!(world.route_reasons(A), ["reached straight", "does not answer"]);
    // B forwards frames between A and C again.
    world.bring_into_range(A, C);
    far(&mut world);
    world.advance_time(Duration::from_secs(5));
    assert_eq!(world.routes_of(A).len(), 2);
    // If announcements may pass only one hop, a router ignores stations beyond it.
    let mut world = RadioNetwork::with_two_vehicles();
    world.bring_into_range(A, B);
    for (who, whom) in [(A, B), (B, A)] {
        world.change_observation(who, whom, |sight| {
            (sight.is_neighbour, sight.stays_in_range) = (false, false)
        });
    }
    announce_prefix(&mut world, B, "2001:db8:b::/64", 60);
    world.advance_time(Duration::from_secs(5));
    assert_eq!(
        (world.routes_of(A), world.route_reasons(A)),
        (vec![], vec!["not authorized by its home agent"])
    );
}

/// The second prefix of a router is proven only after the contact has begun, and moves to another router
/// while the contact lasts.
#[test]
fn router_has_routes_only_for_proven_prefixes_of_a_neighbour() {
    let second = parse_prefix("2001:db8:b2::/64");
    let mut both = config(B);
    both.prefixes.push(second);
    let mut world = RadioNetwork::new([(A, config(A)), (B, both)]);
    // At first no router answers for the second prefix.
    world.owner_of_prefix.remove(&second);
    world.bring_into_range(A, B);
    world.advance_time(Duration::from_secs(2));
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B))]);
    world.owner_of_prefix.insert(second, B);
    world.advance_time(Duration::from_secs(20));
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B)), (second, link_local(B))]);
    assert_eq!(world.reported_routes[&A].len(), 2);
    // The second prefix moves to another router.
    world.owner_of_prefix.remove(&second);
    world.advance_time(Duration::from_secs(620));
    assert_eq!(world.routes_of(A), [(own_prefix(B), link_local(B))]);
    assert_eq!(world.reported_routes[&A].len(), 1);
}
