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

type Mac = [u8; 6];

const A: Mac = [2, 0, 0, 0, 0, 0xa];
const B: Mac = [2, 0, 0, 0, 0, 0xb];
const C: Mac = [2, 0, 0, 0, 0, 0xc];

/// An address of a node outside the world.
const ELSEWHERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

fn prefix(text: &str) -> Ipv6Net {
    text.parse().expect("a prefix")
}

fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from(0xfe80_u128 << 112)
        | Ipv6Addr::from(u128::from(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])))
}

fn own(mac: Mac) -> Ipv6Net {
    prefix(&format!("2001:db8:{:x}::/64", mac[5]))
}

fn config(mac: Mac) -> MnppConfig {
    MnppConfig {
        prefixes: vec![own(mac)],
        home_address: format!("2001:db8:1::{:x}", mac[5]).parse().expect("an address"),
        home_agent: "2001:db8:1::1".parse().expect("an address"),
        home_prefix: prefix("2001:db8:1::/64"),
        authorization: Authorization::HomeAgent,
        shortest: 48,
        hops: 1,
        interval: Duration::from_secs(10),
    }
}

/// A station's view of each other station.
#[derive(Debug, Clone, Default)]
struct View(BTreeMap<Mac, StationObservation>);

impl StationObserver for View {
    fn observation(&self, _: Time, station: Mac) -> Option<StationObservation> {
        self.0.get(&station).copied()
    }

    fn link_local(&self, station: Mac) -> Ipv6Addr {
        link_local(station)
    }

    fn has_neighbours(&self) -> bool {
        self.0.values().any(|sight| sight.is_neighbour)
    }
}

/// Vehicles, the radio channel between them, and home agents that deliver to the vehicle that has registered
/// a prefix.
struct World {
    now: Time,
    machines: BTreeMap<Mac, Mnpp>,
    views: BTreeMap<Mac, View>,
    /// Pairs of sender and receiver that are in range.
    air: BTreeSet<(Mac, Mac)>,
    registered: BTreeMap<Ipv6Net, Mac>,
    tunnels: bool,
    /// The routes of each station at its last report of a change.
    told: BTreeMap<Mac, BTreeMap<Ipv6Net, Ipv6Addr>>,
    log: Vec<(Time, Mac, Output)>,
}

impl World {
    fn new(configs: impl IntoIterator<Item = (Mac, MnppConfig)>) -> World {
        let mut world = World {
            now: Time::from_secs(100),
            machines: BTreeMap::new(),
            views: BTreeMap::new(),
            air: BTreeSet::new(),
            registered: BTreeMap::new(),
            tunnels: true,
            told: BTreeMap::new(),
            log: Vec::new(),
        };
        for (mac, config) in configs {
            for prefix in &config.prefixes {
                world.registered.entry(*prefix).or_insert(mac);
            }
            let mut machine = Mnpp::new(config, Rng::new(u64::from(mac[5])));
            machine.handle_station(mac, link_local(mac));
            world.machines.insert(mac, machine);
            world.views.insert(mac, View::default());
        }
        world
    }

    fn pair() -> World {
        World::new([A, B].map(|mac| (mac, config(mac))))
    }

    fn machine(&mut self, mac: Mac) -> &mut Mnpp {
        self.machines.get_mut(&mac).expect("a machine")
    }

    fn settle(&mut self) {
        loop {
            let outputs: Vec<(Mac, Output)> = self
                .machines
                .iter_mut()
                .flat_map(|(mac, machine)| {
                    std::iter::from_fn(|| machine.poll_output())
                        .map(|output| (*mac, output))
                        .collect::<Vec<_>>()
                })
                .collect();
            if outputs.is_empty() {
                for (mac, machine) in &self.machines {
                    let told = self.told.get(mac).cloned().unwrap_or_default();
                    assert_eq!(machine.routes(), told, "{mac:?} has not told of its routes");
                }
                return;
            }
            for (mac, _) in outputs.iter().filter(|(_, output)| *output == Output::Routes) {
                self.told.insert(*mac, self.machines[mac].routes());
            }
            for (from, output) in outputs {
                self.log.push((self.now, from, output.clone()));
                match output {
                    Output::Announce(packet) => {
                        for to in self.machines.keys().copied().collect::<Vec<_>>() {
                            self.deliver(from, to, &packet);
                        }
                    }
                    Output::Straight(to, packet) => self.deliver(from, to, &packet),
                    Output::ThroughTunnel(packet) if self.tunnels => {
                        let (header, test) = test_in(&packet);
                        let owner = self.registered.iter().find(|(net, _)| net.contains(&header.destination));
                        if let Some((_, owner)) = owner {
                            let owner = *owner;
                            let view = self.views[&owner].clone();
                            let now = self.now;
                            self.machine(owner).handle_init(now, header.source, &test, &view);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn deliver(&mut self, from: Mac, to: Mac, packet: &[u8]) {
        if !self.air.contains(&(from, to)) {
            return;
        }
        let now = self.now;
        if let Some(sight) = self.views.get_mut(&to).and_then(|view| view.0.get_mut(&from)) {
            sight.received_at = now;
        }
        let view = self.views[&to].clone();
        let (header, message) = Header::parse_packet(packet).expect("an IPv6 packet");
        assert_eq!(header.source, link_local(from));
        if header.next_header == protocol::MOBILITY {
            assert_eq!(header.destination, link_local(to));
            let (_, test) = test_in(packet);
            let _counted = self.machine(to).handle_straight(now, from, header.source, &test, &view);
        } else {
            nd::check_header(&header, message).expect("as RFC 4861 wants it");
            let advertisement = RouterAdvertisement::parse(message).expect("an advertisement");
            assert_eq!(advertisement.router_lifetime, 0);
            self.machine(to).handle_advertisement(now, from, header.source, &advertisement, &view);
        }
    }

    fn sleep(&mut self, span: Duration) {
        let end = self.now + span;
        self.settle();
        while let Some(due) =
            self.machines.values().filter_map(Mnpp::poll_timeout).min().filter(|due| *due <= end)
        {
            self.now = self.now.max(due);
            for (mac, machine) in &mut self.machines {
                machine.handle_timeout(self.now, &self.views[mac]);
            }
            self.settle();
        }
        self.now = end;
    }

    /// Brings two stations into range.
    fn meet(&mut self, a: Mac, b: Mac) {
        for (from, to) in [(a, b), (b, a)] {
            self.air.insert((from, to));
            let sight = StationObservation {
                received_at: self.now,
                is_neighbour: true,
                stays_in_range: true,
                leaves_range: false,
            };
            self.views.get_mut(&to).expect("a view").0.insert(from, sight);
        }
        for mac in [a, b] {
            let now = self.now;
            self.machine(mac).handle_neighbour(now);
        }
        self.settle();
    }

    fn see(&mut self, who: Mac, whom: Mac, change: impl FnOnce(&mut StationObservation)) {
        let sight = self.views.get_mut(&who).and_then(|view| view.0.get_mut(&whom));
        change(sight.expect("a sight"));
    }

    fn routes(&self, mac: Mac) -> Vec<(Ipv6Net, Ipv6Addr)> {
        self.machines[&mac].routes().into_iter().collect()
    }

    fn reason(&self, mac: Mac) -> Vec<&'static str> {
        self.machines[&mac].prefix_routes().iter().map(|way| way.reason).collect()
    }

    fn dropped(&self, mac: Mac, reason: MnppDrop) -> u64 {
        self.machines[&mac].counters().dropped(reason)
    }

    fn announced(&self, mac: Mac) -> u64 {
        self.machines[&mac].counters().announced
    }
}

fn test_in(packet: &[u8]) -> (Header, PrefixTest) {
    let header = Header::parse(packet).expect("a header");
    let mobility = MobilityHeader::parse_verified(&packet[HEADER_LEN..], header.source, header.destination);
    (header, PrefixTest::parse(&mobility.expect("a Mobility Header")).expect("a test"))
}

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// Announces the prefix `text` to station A, in the name of station `from`.
fn claim(world: &mut World, from: Mac, text: &str, lifetime: u32) {
    let (address, length) = text.split_once('/').expect("a prefix");
    let options = [NdOption::RouteInformation(RouteInformation {
        prefix: address.parse().expect("an address"),
        prefix_length: length.parse().expect("a length"),
        preference: nd::RoutePreference::Medium,
        lifetime,
    })];
    let message = nd::router_advertisement(&nd::RouterAdvertisementRepr {
        options: &options,
        ..nd::RouterAdvertisementRepr::default()
    });
    let advertisement = RouterAdvertisement::parse(&message).expect("an advertisement");
    let (now, view) = (world.now, world.views[&A].clone());
    world.machine(A).handle_advertisement(now, from, link_local(from), &advertisement, &view);
    world.settle();
}

#[test]
fn meeting_vehicles_prove_prefixes_within_announcement_delay() {
    let mut world = World::pair();
    world.meet(A, B);
    world.sleep(ms(150));
    assert_eq!(world.routes(A), [(own(B), link_local(B))]);
    assert_eq!(world.routes(B), [(own(A), link_local(A))]);
    // Each router has sent one Prefix Test Init.
    assert_eq!(world.machines[&A].counters().tests, 1);
    assert_eq!(world.machines[&B].counters().tests_answered, 1);
}

#[test]
fn prefixes_are_announced_only_to_neighbours_once_a_second() {
    let mut world = World::pair();
    world.sleep(Duration::from_secs(60));
    assert_eq!(world.log.len(), 0);
    world.meet(A, B);
    for _ in 0..100 {
        let now = world.now;
        world.machine(A).handle_neighbour(now);
        world.sleep(ms(10));
    }
    assert!((1..=3).contains(&world.announced(A)), "{}", world.announced(A));
    // Announcements follow every 7.5 to 10 s, and probes of unused routes once a second.
    let (before, probes) = (world.announced(A), world.machines[&A].counters().probes);
    world.sleep(Duration::from_secs(100));
    assert!((10..=15).contains(&(world.announced(A) - before)), "{}", world.announced(A) - before);
    let probes = world.machines[&A].counters().probes - probes;
    assert!((80..=110).contains(&probes), "{probes}");
    assert_eq!(world.routes(A).len(), 1);
    // A proof lasts ten minutes and is renewed in time.
    world.sleep(Duration::from_secs(1000));
    assert_eq!(world.routes(A).len(), 1);
    assert_eq!(world.machines[&A].counters().parted, 0);
    assert!((3..=5).contains(&world.machines[&A].counters().tests));
}

#[test]
fn vehicle_cannot_claim_foreign_prefix() {
    let mut world = World::new([A, B, C].map(|mac| (mac, config(mac))));
    world.meet(A, C);
    world.sleep(ms(200));
    // C announces B's network.
    claim(&mut world, C, "2001:db8:b::/64", 60);
    world.sleep(Duration::from_secs(20));
    assert_eq!(world.routes(A), [(own(C), link_local(C))]);
    assert!(world.reason(A).contains(&"not authorized by its home agent"));
    // B, which was asked, now knows of the false announcement.
    assert!(world.dropped(B, MnppDrop::OwnPrefix) > 0);
    let warned = |(_, mac, output): &(Time, Mac, Output)| *mac == B && matches!(output, Output::Event(_));
    assert_eq!(world.log.iter().filter(|entry| warned(entry)).count(), 1);
    // A forged answer does not count: the cookie went to B.
    let forged = PrefixTest {
        kind: PrefixTestKind::Test,
        cookie: 1,
        responder: C,
        requester: A,
        prefix: own(B).network(),
        prefix_length: 64,
    };
    let (now, view) = (world.now, world.views[&A].clone());
    let result = world.machine(A).handle_straight(now, C, link_local(C), &forged, &view);
    assert_eq!(result, Err(MnppDrop::Unasked));
    assert_eq!(world.routes(A).len(), 1);
    // B comes into range: A accepts its route at once, and C's announcement still does not count.
    world.meet(A, B);
    world.sleep(Duration::from_secs(2));
    assert_eq!(world.routes(A), [(own(B), link_local(B)), (own(C), link_local(C))]);
}

#[test]
fn announcements_of_own_or_invalid_prefixes_are_refused() {
    for authorization in [Authorization::HomeAgent, Authorization::Anybody] {
        let mut world = World::new([(A, MnppConfig { authorization, ..config(A) })]);
        let sight = StationObservation {
            received_at: world.now,
            is_neighbour: true,
            stays_in_range: true,
            leaves_range: false,
        };
        world.views.get_mut(&A).expect("a view").0.insert(B, sight);
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
            let before = world.dropped(A, reason);
            claim(&mut world, B, text, 60);
            assert_eq!(world.dropped(A, reason), before + 1, "{text}");
        }
        assert_eq!((world.routes(A).len(), world.reason(A).len()), (0, 0));
    }
}

#[test]
fn mnpp_tables_are_bounded() {
    let mut world = World::new([(A, config(A))]);
    for station in 0..1000u16 {
        let [high, low] = station.to_be_bytes();
        let mac = [2, 1, 0, 0, high, low];
        for net in 0..20 {
            claim(&mut world, mac, &format!("2001:db8:{:x}:{net:x}::/64", 0x100 + station), 60);
        }
    }
    let ways = world.machines[&A].prefix_routes();
    assert_eq!(ways.len(), carnet_mobility::mnpp::MAX_PEERS * carnet_mobility::mnpp::MAX_CLAIMS);
    // No tested prefix belongs to a station in range: the router does not ask the home agents.
    assert_eq!(world.machines[&A].counters().tests, 0);
    // The router does not wake up for stations out of range more often than it checks positions.
    world.sleep(ms(1));
    let due = world.machines[&A].poll_timeout().expect("looks again");
    assert!(due >= world.now + ms(400), "{due}");
    world.sleep(Duration::from_secs(61));
    assert_eq!(world.machines[&A].prefix_routes().len(), 0);
    assert_eq!(world.machines[&A].poll_timeout(), None);
}

#[test]
fn answers_to_prefix_tests_are_rate_limited() {
    let mut world = World::pair();
    world.meet(A, B);
    world.sleep(Duration::from_secs(1));
    let test = PrefixTest {
        kind: PrefixTestKind::Init,
        cookie: 7,
        responder: B,
        requester: A,
        prefix: own(B).network(),
        prefix_length: 64,
    };
    let answered = world.machines[&B].counters().tests_answered;
    let (now, view) = (world.now, world.views[&B].clone());
    for _ in 0..1000 {
        assert!(world.machine(B).handle_init(now, ELSEWHERE, &test, &view));
    }
    assert!(world.machines[&B].counters().tests_answered - answered <= 32);
    // A router does not answer an asker that is out of range.
    let stranger = PrefixTest { requester: C, ..test };
    assert!(world.machine(B).handle_init(now, ELSEWHERE, &stranger, &view));
    assert_eq!(world.dropped(B, MnppDrop::Unreachable), 1);
    // B does not take a Prefix Test Init for another router's prefix; its caller forwards the message.
    let other = PrefixTest { prefix: own(C).network(), ..test };
    assert!(!world.machine(B).handle_init(now, ELSEWHERE, &other, &view));
}

#[test]
fn a_path_that_works_in_one_direction_only_is_not_used() {
    let mut world = World::pair();
    world.meet(A, B);
    world.air.remove(&(A, B));
    for _ in 0..1500 {
        world.sleep(ms(10));
        assert_eq!((world.routes(A), world.routes(B)), (vec![], vec![]));
    }
    // A hears B, whose prefix is proven. B has heard no announcement of A.
    assert_eq!((world.reason(A), world.reason(B)), (vec!["does not answer"], vec![]));
    world.meet(A, B);
    world.sleep(Duration::from_secs(40));
    assert_eq!(world.routes(A).len(), 1);
    // B no longer hears A: the route ends though A hears B.
    world.air.remove(&(A, B));
    for _ in 0..100 {
        world.see(A, B, |sight| sight.received_at += ms(30));
        world.sleep(ms(30));
    }
    assert_eq!(world.routes(A), []);
}

#[test]
fn route_is_removed_before_predicted_end_of_radio_contact() {
    let mut world = World::pair();
    world.meet(A, B);
    world.sleep(Duration::from_secs(2));
    world.see(A, B, |sight| sight.leaves_range = true);
    world.sleep(ms(260));
    assert_eq!((world.routes(A), world.reason(A)), (vec![], vec!["about to leave"]));
    // The route comes back only when the station is well within range again.
    world.see(A, B, |sight| (sight.leaves_range, sight.stays_in_range) = (false, false));
    world.sleep(Duration::from_secs(5));
    assert_eq!((world.routes(A), world.reason(A)), (vec![], vec!["at the edge"]));
    world.see(A, B, |sight| sight.stays_in_range = true);
    world.sleep(ms(600));
    assert_eq!(world.routes(A).len(), 1);
}

/// Sudden silence while packets flow: the router drops the route within the time that the module documents.
#[test]
fn unexpected_end_of_radio_contact_is_detected_by_probes() {
    for offset in 0..25 {
        let mut world = World::pair();
        world.meet(A, B);
        world.sleep(Duration::from_secs(2) + ms(10 * offset));
        for _ in 0..50 {
            let now = world.now;
            world.machine(A).handle_use(now, B);
            world.sleep(ms(10));
        }
        world.air.clear();
        let cut = world.now;
        while !world.routes(A).is_empty() {
            let now = world.now;
            world.machine(A).handle_use(now, B);
            world.sleep(ms(10));
            assert!(world.now.saturating_since(cut) <= ms(660), "{:?}", world.reason(A));
        }
        assert_eq!(world.reason(A), ["does not answer"]);
        let withdrawn = world.log.iter().any(|(_, mac, output)| *mac == A && *output == Output::Withdrawn(B));
        assert!(withdrawn);
        // The station diverts packets that the host still sends to B.
        assert!(world.machines[&A].diverts(B, "2001:db8:b::5".parse().expect("an address")));
        assert!(!world.machines[&A].diverts(B, "2001:db8:c::5".parse().expect("an address")));
        // The router probes B again, at growing intervals.
        let before = world.machines[&A].counters().probes;
        world.sleep(Duration::from_secs(15));
        let probes = world.machines[&A].counters().probes - before;
        assert!((3..=14).contains(&probes), "{probes}");
        world.meet(A, B);
        world.sleep(Duration::from_secs(10));
        assert_eq!(world.routes(A).len(), 1);
    }
}

#[test]
fn link_layer_feedback_ends_route_at_once() {
    let mut world = World::pair();
    world.meet(A, B);
    world.sleep(Duration::from_secs(2));
    let now = world.now;
    world.machine(A).handle_unreachable(now, B);
    assert_eq!(world.routes(A), []);
    world.machine(A).handle_unreachable(now, C);
    world.settle();
    // The fault was temporary: the route is back.
    world.sleep(ms(1600));
    assert_eq!(world.routes(A).len(), 1);
}

#[test]
fn withdrawn_or_expired_announcement_ends_route() {
    let mut world = World::pair();
    world.meet(A, B);
    world.sleep(Duration::from_secs(2));
    let now = world.now;
    world.machine(B).handle_shutdown(now);
    world.settle();
    assert_eq!(world.routes(A), []);
    // The router withdraws refused prefixes, and announces them again when they are valid.
    let mut world = World::pair();
    world.meet(A, B);
    world.sleep(Duration::from_secs(2));
    let now = world.now;
    world.machine(B).set_valid(now, false);
    world.sleep(Duration::from_secs(30));
    assert_eq!(world.routes(A), []);
    let now = world.now;
    world.machine(B).set_valid(now, true);
    world.sleep(Duration::from_secs(2));
    assert_eq!(world.routes(A).len(), 1);
}

#[test]
fn recently_proven_neighbour_needs_no_new_test() {
    let mut world = World::pair();
    world.tunnels = false;
    world.meet(A, B);
    world.sleep(Duration::from_secs(20));
    assert_eq!(world.routes(A), [], "nobody vouches");
    world.tunnels = true;
    world.sleep(Duration::from_secs(9));
    assert_eq!(world.routes(A).len(), 1);
    // The stations are apart for a minute, and meet again without an uplink.
    world.air.clear();
    world.views.values_mut().for_each(|view| view.0.clear());
    world.sleep(Duration::from_secs(60));
    assert_eq!((world.routes(A).len(), world.reason(A).len()), (0, 0));
    world.tunnels = false;
    world.meet(A, B);
    world.sleep(Duration::from_secs(2));
    assert_eq!(world.routes(A).len(), 1);
}

#[test]
fn unverified_peers_are_accepted_if_the_config_allows_them() {
    let anybody = |mac| (mac, MnppConfig { authorization: Authorization::Anybody, ..config(mac) });
    let mut world = World::new([A, B].map(anybody));
    world.tunnels = false;
    world.meet(A, B);
    world.sleep(ms(300));
    assert_eq!(world.routes(A), [(own(B), link_local(B))]);
    assert_eq!(world.machines[&A].counters().tests, 0);
}

/// Random claims, answers and losses: packets go directly only to the owner of a prefix, and no router wakes
/// up without reason.
#[test]
fn in_random_runs_no_node_receives_packets_of_another_node() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut world = World::new([A, B, C].map(|mac| (mac, config(mac))));
        let all = [A, B, C];
        let any = |rng: &mut Rng| all[rng.below(3) as usize];
        for _ in 0..200 {
            let (one, other) = (any(&mut rng), any(&mut rng));
            match rng.below(8) {
                0 if one != other => world.meet(one, other),
                1 if one != other => drop(world.air.remove(&(one, other))),
                2 => drop(world.views.get_mut(&one).map(|view| view.0.remove(&other))),
                3 => world.tunnels = rng.below(4) > 0,
                4 => claim(&mut world, other, &format!("{}", own(any(&mut rng))), rng.below(60) as u32),
                5 => {
                    let kind = [PrefixTestKind::Test, PrefixTestKind::Answer][rng.below(2) as usize];
                    let cookie = rng.u64();
                    let prefix = own(any(&mut rng)).network();
                    let forged = PrefixTest {
                        kind,
                        cookie,
                        responder: other,
                        requester: one,
                        prefix,
                        prefix_length: 64,
                    };
                    let (now, view) = (world.now, world.views[&one].clone());
                    let machine = world.machine(one);
                    let refused = machine.handle_straight(now, other, link_local(other), &forged, &view);
                    assert!(refused.is_err());
                    world.settle();
                }
                _ => {
                    let (log, span) = (world.log.len(), rng.duration(ms(1), ms(3000)));
                    world.sleep(span);
                    let sent = world.log.len() - log;
                    assert!(sent < 40 + span.as_millis() as usize / 10, "{sent} in {span:?}");
                }
            }
            for mac in all {
                for (prefix, next_hop) in world.routes(mac) {
                    assert_eq!(next_hop, link_local(world.registered[&prefix]), "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn a_change_of_the_own_address_withdraws_the_routes() {
    let mut world = World::pair();
    world.meet(A, B);
    world.sleep(Duration::from_secs(1));
    world.machine(A).handle_station(C, link_local(C));
    assert_eq!(world.routes(A), []);
    let outputs: Vec<Output> = std::iter::from_fn(|| world.machine(A).poll_output()).collect();
    assert_eq!(outputs, [Output::Routes, Output::Withdrawn(B)]);
}

/// Beyond one hop only probes count, positions do not: two stations hear each other through a third.
#[test]
fn probes_detect_failure_two_hops_away() {
    let two = |mac| (mac, MnppConfig { hops: 2, ..config(mac) });
    let mut world = World::new([A, B, C].map(two));
    let far = |world: &mut World| {
        for (who, whom) in [(A, C), (C, A)] {
            world.see(who, whom, |sight| {
                (sight.is_neighbour, sight.stays_in_range, sight.leaves_range) = (false, false, true)
            });
        }
    };
    world.meet(A, B);
    world.meet(B, C);
    // B forwards their frames.
    world.meet(A, C);
    far(&mut world);
    world.sleep(Duration::from_secs(3));
    assert_eq!(world.routes(A), [(own(B), link_local(B)), (own(C), link_local(C))]);
    assert_eq!(world.routes(C).len(), 2);
    // B no longer forwards any frames.
    world.air.remove(&(A, C));
    world.air.remove(&(C, A));
    let cut = world.now;
    while world.routes(A).len() > 1 {
        let now = world.now;
        world.machine(A).handle_use(now, C);
        world.sleep(ms(10));
        assert!(world.now.saturating_since(cut) <= ms(660), "{:?}", world.reason(A));
    }
    assert_eq!(world.routes(A), [(own(B), link_local(B))]);
    assert_eq!(world.reason(A), ["reached straight", "does not answer"]);
    // B forwards frames again.
    world.meet(A, C);
    far(&mut world);
    world.sleep(Duration::from_secs(5));
    assert_eq!(world.routes(A).len(), 2);
    // With a limit of one hop, a router ignores stations beyond it.
    let mut world = World::pair();
    world.meet(A, B);
    for (who, whom) in [(A, B), (B, A)] {
        world.see(who, whom, |sight| (sight.is_neighbour, sight.stays_in_range) = (false, false));
    }
    claim(&mut world, B, "2001:db8:b::/64", 60);
    world.sleep(Duration::from_secs(5));
    assert_eq!((world.routes(A), world.reason(A)), (vec![], vec!["not authorized by its home agent"]));
}

/// A router with two prefixes: the second is proven only after the contact began, and lost while the contact
/// lasts.
#[test]
fn routes_follow_the_proofs_of_a_station_that_is_met() {
    let second = prefix("2001:db8:b2::/64");
    let mut both = config(B);
    both.prefixes.push(second);
    let mut world = World::new([(A, config(A)), (B, both)]);
    // At first no router answers for the second prefix.
    world.registered.remove(&second);
    world.meet(A, B);
    world.sleep(Duration::from_secs(2));
    assert_eq!(world.routes(A), [(own(B), link_local(B))]);
    world.registered.insert(second, B);
    world.sleep(Duration::from_secs(20));
    assert_eq!(world.routes(A), [(own(B), link_local(B)), (second, link_local(B))]);
    assert_eq!(world.told[&A].len(), 2);
    // The second prefix moves to another router.
    world.registered.remove(&second);
    world.sleep(Duration::from_secs(620));
    assert_eq!(world.routes(A), [(own(B), link_local(B))]);
    assert_eq!(world.told[&A].len(), 1);
}
