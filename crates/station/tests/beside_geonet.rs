//! A station that is a mobile router and a GeoNetworking router at once.

mod common;

use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_geonet::ipv6_adaptation::Ipv6Config;
use carnet_nemo::forwarding::desired::{ForwardingEntry, TABLE_UNREACHABLE, priority};
use carnet_station::io::{GeonetOutput, Input, NemoOutput, Output, Position};
use carnet_station::{GeonetSettings, PersistentState, Station, StationConfig};
use carnet_wire::geonet::{GnAddress, StationType};

use common::{FIRST_CARE_OF_ADDRESS, interface, router_config};

/// Frames and beacons are far more frequent than the timers of Mobile IPv6. They must not delay these timers.
#[test]
fn busy_geonetworking_router_does_not_delay_mobile_router() {
    let station_address = GnAddress::new(false, StationType::Bus, [2, 0, 0, 0, 0, 1]);
    let config = StationConfig {
        geonet: Some(common::geonet_settings(station_address)),
        ..router_config(&["2001:db8:a::/64"])
    };
    let (wall, start) = (WallTime::from_unix_nanos(1_800_000_000_000_000_000), Time::from_secs(100));
    let mut station = Station::new(config, PersistentState::default(), Rng::new(7), start, wall);
    let (mut advertisements, mut updates, mut frames) = (0, 0, 0);
    let mut tell = |station: &mut Station, now: Time, input: Input| {
        station.handle_input(now, wall + now.saturating_since(start), input).expect("accepted");
        while let Some(output) = station.poll_output() {
            match output {
                Output::Nemo(NemoOutput::Icmpv6(message)) if message.interface == "i0" => advertisements += 1,
                Output::Nemo(NemoOutput::Packet(_)) => updates += 1,
                Output::Geonet(GeonetOutput::Frame(_)) => frames += 1,
                _ => {}
            }
        }
    };
    while station.poll_output().is_some() {}
    tell(&mut station, start, Input::Interface(interface("i0", "2001:db8:a::1", true)));
    tell(&mut station, start, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)));
    for tick in 0..1200u32 {
        let now = start + Duration::from_millis(100) * tick;
        let position = Position {
            timestamp: 1000 + 100 * tick,
            latitude: 488_375_000,
            longitude: 21_008_000,
            accurate: true,
            speed: 0,
            heading: 0,
        };
        tell(&mut station, now, Input::Position(position));
        if station.poll_timeout().is_some_and(|due| due <= now) {
            tell(&mut station, now, Input::Timeout);
        }
    }
    // Expected counts. RFC 4861 6.2.4: three advertisements at intervals of at most 16 s. RFC 6275 11.8:
    // Binding Updates after 1 s, 2 s, 4 s and so on, up to 32 s. One beacon every 3 to 3.75 s.
    assert!(advertisements >= 3, "{advertisements} advertisements");
    assert!((6..=9).contains(&updates), "{updates} Binding Updates");
    assert!((30..=41).contains(&frames), "{frames} beacons");
}

/// A vehicle does not forward packets of other vehicles into its uplinks or its tunnel. The packet filter
/// rules apply to GeoNetworking interfaces that exist, and to interfaces that a Router Advertisement may
/// create later.
#[test]
fn geonetworking_packets_are_forwarded_only_into_the_mobile_network() {
    let ipv6 =
        Ipv6Config { dynamic_interface: Some("gn1".into()), learnt_links: 1, ..common::geonet_ipv6_config() };
    let address = GnAddress::new(false, StationType::Bus, [2, 0, 0, 0, 0, 1]);
    let geonet = |ipv6| GeonetSettings { ipv6_config: ipv6, ..common::geonet_settings(address) };
    let inputs = |config| {
        let wall = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
        let station =
            Station::new(config, PersistentState::default(), Rng::new(7), Time::from_secs(100), wall);
        let rules = station.nemo().desired_entries().filter_map(|entry| match entry {
            ForwardingEntry::Rule(rule) if rule.priority == priority::FROM_STATIONS => Some(rule),
            _ => None,
        });
        let rules = rules.map(|rule| {
            assert_eq!((rule.table, rule.from, rule.to), (TABLE_UNREACHABLE, None, None));
            rule.input_interface.clone().expect("an interface")
        });
        rules.collect::<Vec<String>>()
    };
    let router = || router_config(&["2001:db8:a::/64"]);
    let with = StationConfig { geonet: Some(geonet(Some(ipv6))), ..router() };
    assert_eq!(inputs(with), ["gn0", "gn0-1", "gn0-2", "gn0-3", "gn1"]);
    assert!(inputs(StationConfig { geonet: Some(geonet(None)), ..router() }).is_empty());
    const { assert!(priority::FROM_STATIONS > priority::TO_MOBILE_NETWORK) };
    const { assert!(priority::FROM_STATIONS < priority::FROM_MOBILE_NETWORK) };
}
