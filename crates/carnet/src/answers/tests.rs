//! Compares `docs/counters.md` with the counters, and tests which tickets the API shows.

use std::collections::BTreeSet;

use carnet_api::config::Config;
use carnet_base::{DropReason, Rng, Time, WallTime};
use carnet_geonet::GeonetDrop;
use carnet_geonet::dcc::DccDrop;
use carnet_geonet::ipv6_adaptation::Ipv6Drop;
use carnet_geonet::multicast::MulticastDrop;
use carnet_its::ItsDrop;
use carnet_lan::dhcpv4::DhcpDropReason;
use carnet_lan::dhcpv6::Dhcpv6DropReason;
use carnet_lan::dns::DnsDropReason;
use carnet_mobility::MobilityDrop;
use carnet_mobility::direct::DirectDrop;
use carnet_mobility::mnpp::MnppDrop;
use carnet_mobility::nesting::NestingDrop;
use carnet_nemo::TunnelDropReason;
use carnet_security::crypto::{CryptoBackend, PortableBackend, SigningKey};
use carnet_security::keys::EllipticCurve;
use carnet_security::time::{DurationUnit, Time32, Time64, ValidityDuration, ValidityPeriod};
use carnet_security::{SecurityDrop, SecurityPolicy, SecurityStation, SecurityTime, Ticket, pki};
use carnet_station::io::Event;
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::geonet::GnAddress;
use carnet_wire::mobility::BindingStatus;

use crate::lan::LanServices;
use crate::state::StoredLeases;

const COUNTERS_PAGE: &str = include_str!("../../../../docs/counters.md");

/// Returns the counter names in the tables of `docs/counters.md`.
fn counters_on_page() -> BTreeSet<&'static str> {
    let rows = COUNTERS_PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name).collect()
}

fn names_of_reasons<T: DropReason + Copy>(prefix: &str, reasons: &[T]) -> Vec<String> {
    reasons.iter().map(|reason| format!("{prefix}.{}", reason.name())).collect()
}

#[test]
fn api_page_lists_exactly_the_reasons_of_states() {
    let families = [
        ("lan.dhcp.dropped", names_of_reasons("lan.dhcp.dropped", DhcpDropReason::ALL)),
        ("lan.dhcpv6.dropped", names_of_reasons("lan.dhcpv6.dropped", Dhcpv6DropReason::ALL)),
        ("lan.dns.dropped", names_of_reasons("lan.dns.dropped", DnsDropReason::ALL)),
        ("tunnel.dropped", names_of_reasons("tunnel.dropped", TunnelDropReason::ALL)),
        ("mobility.dropped", names_of_reasons("mobility.dropped", MobilityDrop::ALL)),
        ("nesting.dropped", names_of_reasons("nesting.dropped", NestingDrop::ALL)),
        ("direct.dropped", names_of_reasons("direct.dropped", DirectDrop::ALL)),
        ("mnpp.dropped", names_of_reasons("mnpp.dropped", MnppDrop::ALL)),
        ("geonet.dropped", names_of_reasons("geonet.dropped", GeonetDrop::ALL)),
        ("geonet.ipv6.dropped", names_of_reasons("geonet.ipv6.dropped", Ipv6Drop::ALL)),
        ("geonet.dcc.dropped", names_of_reasons("geonet.dcc.dropped", DccDrop::ALL)),
        ("facilities.dropped", names_of_reasons("facilities.dropped", ItsDrop::ALL)),
        ("security.dropped", names_of_reasons("security.dropped", SecurityDrop::ALL)),
        ("geonet.multicast.dropped", names_of_reasons("geonet.multicast.dropped", MulticastDrop::ALL)),
    ];
    for (family, reasons) in families {
        let prefix = format!("{family}.");
        // `docs/counters.md` also lists the drop reasons of the GeoNetworking link. Another crate defines
        // these, so leave them out here.
        let page: BTreeSet<&str> = counters_on_page()
            .into_iter()
            .filter(|name| name.starts_with(&prefix) && !name.starts_with("geonet.dropped.link_"))
            .collect();
        assert_eq!(page, reasons.iter().map(String::as_str).collect(), "{family}");
    }
}

#[test]
fn counters_page_lists_exactly_the_counters() {
    let station = |config| {
        Station::new(config, PersistentState::default(), Rng::new(1), Time::ZERO, WallTime::default())
    };
    let config = Config::parse(CONFIG_WITH_EVERY_ROLE, "whole.toml").expect("a config");
    let mut whole = station(carnet_settings::station_config(&config, Some(GnAddress(2))));
    let entity = SecurityStation::new(
        carnet_security::SecurityConfig::default(),
        Box::new(PortableBackend),
        Box::new(()),
        carnet_base::Rng::new(1),
    );
    whole.start_security(Time::ZERO, WallTime::default(), Box::new(entity));
    let counters = super::counters(&whole, None);
    for name in counters.keys() {
        assert!(counters_on_page().contains(name.as_str()), "{name}");
    }
    for job in [
        "tunnel.",
        "mobility.",
        "mnpp.",
        "geonet.dropped.",
        "geonet.ipv6.",
        "geonet.multicast.",
        "geonet.dcc.",
        "facilities.",
        "security.",
    ] {
        assert!(counters.keys().any(|name| name.starts_with(job)), "{job}");
    }
    let hosts =
        LanServices::new(&config, &StoredLeases::default(), Rng::new(1), (Time::ZERO, WallTime::default()))
            .counters();
    assert!(!hosts.is_empty());
    for (name, _) in hosts {
        assert!(counters_on_page().contains(name.as_str()), "{name}");
    }
    // A station without roles has no counters.
    assert!(super::counters(&station(StationConfig::default()), None).is_empty());
}

/// Of the station's three tickets, one has expired, one signs messages now, and one becomes valid later.
#[test]
fn security_answer_names_only_the_signing_ticket() {
    const HOUR_IN_SECONDS: u64 = 3600;
    let today = 1_795_300_000;
    let wall = WallTime::from_unix_nanos(today * 1_000_000_000);
    let now = SecurityTime { time: Time::ZERO, certificate_time: Time64::from_wall_time(wall, 5) };
    let key =
        |number: u8| PortableBackend.signing_key(EllipticCurve::NistP256, &[number; 32]).expect("a scalar");
    // Returns a validity period of `hours` hours. It begins `begin` hours after the moment 24 hours ago.
    let validity = |begin: u64, hours: u16| {
        let start = Time32(
            now.certificate_time.to_seconds().0 - (24 * HOUR_IN_SECONDS) as u32
                + (begin * HOUR_IN_SECONDS) as u32,
        );
        ValidityPeriod { start, duration: ValidityDuration { unit: DurationUnit::Hours, unit_count: hours } }
    };
    let issue = |key: &dyn SigningKey, issuer, content| {
        pki::issue_certificate(&PortableBackend, key, issuer, content).expect("a certificate")
    };
    let (root_key, authority_key) = (key(0x11), key(0x12));
    let root = issue(
        root_key.as_ref(),
        None,
        pki::root_certificate_content("root", root_key.public_key(), validity(0, 900), None),
    );
    let content =
        pki::authority_certificate_content("aa", authority_key.public_key(), validity(0, 800), None);
    let authority = issue(root_key.as_ref(), Some(&root), content);
    let config = carnet_security::SecurityConfig {
        policy: SecurityPolicy::Strict,
        ..carnet_security::SecurityConfig::default()
    };
    let mut entity =
        SecurityStation::new(config, Box::new(PortableBackend), Box::new(()), carnet_base::Rng::new(1));
    entity.add_root(root.clone()).expect("a root");
    entity.add_authority(now, authority.clone()).expect("an authority");
    let before = SecurityTime {
        certificate_time: now
            .certificate_time
            .saturating_sub(std::time::Duration::from_secs(23 * HOUR_IN_SECONDS)),
        ..now
    };
    let mut names = Vec::new();
    for (number, validity) in [(1, validity(0, 20)), (2, validity(20, 10)), (3, validity(40, 10))] {
        let key = key(number);
        let content = pki::ticket_content(key.public_key(), validity, None, pki::test_applications(false));
        let certificate = issue(authority_key.as_ref(), Some(&authority), content);
        let ticket = Ticket { certificate, key };
        names.push(entity.add_own_ticket(before, ticket).expect("a ticket").to_string());
    }
    let config = Config::parse(CONFIG_WITH_EVERY_ROLE, "whole.toml").expect("a config");
    let config = carnet_settings::station_config(&config, Some(GnAddress(2)));
    let mut station = Station::new(config, PersistentState::default(), Rng::new(1), Time::ZERO, wall);
    assert_eq!(station.security_status(Time::ZERO), None);
    station.start_security(Time::ZERO, wall, Box::new(entity));
    let seen = station.security_status(Time::ZERO).expect("security");
    let ticket = seen.ticket.clone().expect("a ticket");
    assert_eq!((seen.policy.as_str(), ticket.name.as_str()), ("strict", names[1].as_str()));
    assert_eq!((ticket.from, ticket.until), (today - 4 * HOUR_IN_SECONDS, today + 6 * HOUR_IN_SECONDS));
    assert_eq!((seen.tickets_now, seen.tickets_later), (1, 1));
    assert_eq!(seen.tickets_until, Some(today + 26 * HOUR_IN_SECONDS));
    assert_eq!((seen.issuers, seen.signers, seen.queued, seen.queue, seen.parking), (2, 0, 0, 256, 64));
    let json = serde_json::to_string(&seen).expect("JSON");
    assert!(!json.contains(&names[0]) && !json.contains(&names[2]), "{json}");
    // Hours later the third ticket signs messages, and in the end no ticket is valid.
    let at = |hours: u64| {
        let now = Time::from_secs(hours * HOUR_IN_SECONDS);
        station.security_status(now).expect("security").ticket.map(|own| own.name)
    };
    assert_eq!((at(17), at(7), at(27)), (Some(names[2].clone()), None, None));
}

/// Config of a station that has every role.
const CONFIG_WITH_EVERY_ROLE: &str = "
[station]
name = 'whole'

[home_agent]
address = '2001:db8:1::1'
home_prefix = '2001:db8:1::/64'

[mobile_router]
home_address = '2001:db8:2::1234'
home_prefix = '2001:db8:2::/64'
home_agent = '2001:db8:2::1'
prefixes = ['2001:db8:a::/64']
ipv4_prefixes = ['10.42.7.0/24']
dns_forward = ['2001:db8:53::53']
lan = ['lan0']
auth = 'none'

[[mobile_router.uplink]]
interface = 'wlan0'

[geonet]
interface = 'radio'
position = 'fixed:48.8375,2.1008'
ipv6_interface = 'gn0'
mnpp = {}
multicast = { lan = ['lan0'] }
dcc = {}

[facilities]
";

#[test]
fn binding_event_names_the_networks_or_the_ipv4_home_address() {
    let text = |prefixes: &[&str], ipv4: &[&str]| {
        let event = Event::Binding {
            home_address: "2001:db8:1::77".parse().expect("an address"),
            care_of_address: std::net::Ipv4Addr::new(198, 51, 100, 9).into(),
            bid: None,
            prefixes: prefixes.iter().map(|it| it.parse().expect("a prefix")).collect(),
            ipv4_prefixes: ipv4.iter().map(|it| it.parse().expect("an IPv4 prefix")).collect(),
            lifetime_s: 60,
            change: "created".into(),
        };
        crate::answers::event_text(&event)
    };
    let with = |what| format!("binding created: 2001:db8:1::77 at 198.51.100.9 with {what} for 60 s");
    assert_eq!(text(&[], &[]), with("no prefix"));
    assert_eq!(text(&[], &["10.42.7.7/32"]), with("IPv4 home address 10.42.7.7"));
    assert_eq!(text(&[], &["10.42.7.0/24"]), with("10.42.7.0/24"));
    let both = text(&["2001:db8:a::/64"], &["10.42.7.7/32"]);
    assert_eq!(both, with("2001:db8:a::/64, 10.42.7.7/32"));
}

/// RFC 6275 10.3.2: a mobile router repeats a de-registration whose acknowledgement was lost, and the home
/// agent has removed the binding meanwhile.
#[test]
fn refused_deregistration_without_binding_is_no_warning() {
    let refusal = |status: BindingStatus| Event::BindingRefused {
        home_address: "2001:db8:1::42".parse().expect("an address"),
        care_of_address: "2001:db8:a::1".parse::<std::net::Ipv6Addr>().expect("an address").into(),
        status: status.0,
        reason: status.meaning().into(),
    };
    let repeated = refusal(BindingStatus::NOT_HOME_AGENT);
    assert!(!super::is_warning(&repeated));
    assert_eq!(
        super::event_text(&repeated),
        "de-registration of 2001:db8:1::42 from 2001:db8:a::1: it has no such binding any more (status 133)"
    );
    let prohibited = refusal(BindingStatus::PROHIBITED);
    assert!(super::is_warning(&prohibited));
    assert!(super::event_text(&prohibited).starts_with("refused 2001:db8:1::42 at 2001:db8:a::1"));
}
