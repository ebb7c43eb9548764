//! `docs/counters.md` against the counters that there are.

use std::collections::BTreeSet;

use carnet_base::{DropReason, Time, WallTime};
use carnet_geonet::GeonetDrop;
use carnet_geonet::ipv6_adaptation::Ipv6Drop;
use carnet_geonet::multicast::MulticastDrop;
use carnet_mobility::MobilityDrop;
use carnet_mobility::mnpp::MnppDrop;
use carnet_mobility::nesting::NestingDrop;
use carnet_station::forwarding::forwarder::TunnelDrop;
use carnet_station::{PersistentState, Station, StationConfig};

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
        ("mnpp.dropped", all("mnpp.dropped", MnppDrop::ALL)),
        ("geonet.dropped", all("geonet.dropped", GeonetDrop::ALL)),
        ("geonet.ipv6.dropped", all("geonet.ipv6.dropped", Ipv6Drop::ALL)),
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
    let station = Station::new(
        StationConfig::default(),
        PersistentState::default(),
        1,
        Time::ZERO,
        WallTime::default(),
    );
    for name in super::counters(&station, None).keys() {
        assert!(page().contains(name.as_str()), "{name}");
    }
}
