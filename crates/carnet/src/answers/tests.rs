//! `docs/counters.md` against the counters that there are.

use std::collections::BTreeSet;

use carnet_api::config::Config;
use carnet_base::{DropReason, Rng, Time, WallTime};
use carnet_geonet::GeonetDrop;
use carnet_geonet::dcc::DccDrop;
use carnet_geonet::ipv6_adaptation::Ipv6Drop;
use carnet_geonet::multicast::MulticastDrop;
use carnet_its::ItsDrop;
use carnet_mobility::MobilityDrop;
use carnet_mobility::direct::DirectDrop;
use carnet_mobility::mnpp::MnppDrop;
use carnet_mobility::nesting::NestingDrop;
use carnet_security::crypto::Portable;
use carnet_security::{Security, SecurityDrop};
use carnet_station::forwarding::forwarder::TunnelDrop;
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::geonet::GnAddress;

const PAGE: &str = include_str!("../../../../docs/counters.md");

/// The names in the tables of the page.
fn page() -> BTreeSet<&'static str> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name).collect()
}

fn all<T: DropReason + Copy>(prefix: &str, reasons: &[T]) -> Vec<String> {
    reasons.iter().map(|reason| format!("{prefix}.{}", reason.name())).collect()
}

#[test]
fn the_page_has_every_reason_and_no_other() {
    let families = [
        ("tunnel.dropped", all("tunnel.dropped", TunnelDrop::ALL)),
        ("mobility.dropped", all("mobility.dropped", MobilityDrop::ALL)),
        ("nesting.dropped", all("nesting.dropped", NestingDrop::ALL)),
        ("direct.dropped", all("direct.dropped", DirectDrop::ALL)),
        ("mnpp.dropped", all("mnpp.dropped", MnppDrop::ALL)),
        ("geonet.dropped", all("geonet.dropped", GeonetDrop::ALL)),
        ("geonet.ipv6.dropped", all("geonet.ipv6.dropped", Ipv6Drop::ALL)),
        ("geonet.dcc.dropped", all("geonet.dcc.dropped", DccDrop::ALL)),
        ("facilities.dropped", all("facilities.dropped", ItsDrop::ALL)),
        ("security.dropped", all("security.dropped", SecurityDrop::ALL)),
        ("geonet.multicast.dropped", all("geonet.multicast.dropped", MulticastDrop::ALL)),
    ];
    for (family, reasons) in families {
        let prefix = format!("{family}.");
        // The link's reasons stand among the router's; the platform's crate has them.
        let page: BTreeSet<&str> = page()
            .into_iter()
            .filter(|name| name.starts_with(&prefix) && !name.starts_with("geonet.dropped.link_"))
            .collect();
        assert_eq!(page, reasons.iter().map(String::as_str).collect(), "{family}");
    }
}

#[test]
fn the_page_has_what_a_station_counts() {
    let station = |config| {
        Station::new(config, PersistentState::default(), Rng::new(1), Time::ZERO, WallTime::default())
    };
    let config = Config::parse(WHOLE, "whole.toml").expect("a config");
    let mut whole = station(carnet_settings::station(&config, Some(GnAddress(2))));
    let entity = Security::new(
        carnet_security::Config::default(),
        Box::new(Portable),
        Box::new(()),
        carnet_base::Rng::new(1),
    );
    whole.secure(Time::ZERO, WallTime::default(), Box::new(entity));
    let counters = super::counters(&whole, None);
    for name in counters.keys() {
        assert!(page().contains(name.as_str()), "{name}");
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
    // What it does not do it does not count.
    assert!(super::counters(&station(StationConfig::default()), None).is_empty());
}

/// A station with every job.
const WHOLE: &str = "
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
