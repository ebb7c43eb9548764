//! A station that is a mobile router and a GeoNetworking router at once.

mod common;

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_geonet::Mib;
use carnet_station::io::{Input, Output, Position};
use carnet_station::{GeonetSettings, PersistentState, Station, StationConfig};
use carnet_wire::geonet::{GnAddress, StationType};

use common::{FIRST, interface, router_config};

/// Frames and beacons come far more often than anything of Mobile IPv6 is due.
#[test]
fn a_busy_geonetworking_router_lets_the_mobile_router_have_its_turn() {
    let station_address = GnAddress::new(false, StationType::Bus, [2, 0, 0, 0, 0, 1]);
    let config = StationConfig {
        geonet: Some(GeonetSettings { mib: Mib::default(), address: Some(station_address), ipv6: None }),
        ..router_config(&["2001:db8:a::/64"])
    };
    let (wall, start) = (WallTime::from_unix_nanos(1_800_000_000_000_000_000), Time::from_secs(100));
    let mut station = Station::new(config, PersistentState::default(), 7, start, wall);
    let (mut advertisements, mut updates, mut frames) = (0, 0, 0);
    let mut tell = |station: &mut Station, now: Time, input: Input| {
        station.handle_input(now, wall + now.saturating_since(start), input).expect("accepted");
        while let Some(output) = station.poll_output() {
            match output {
                Output::Icmpv6(message) if message.interface == "i0" => advertisements += 1,
                Output::Packet(_) => updates += 1,
                Output::Frame(_) => frames += 1,
                _ => {}
            }
        }
    };
    while station.poll_output().is_some() {}
    tell(&mut station, start, Input::Interface(interface("i0", "2001:db8:a::1", true)));
    tell(&mut station, start, Input::Interface(interface("w0", FIRST, true)));
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
    // RFC 4861 6.2.4: three advertisements at most 16 s apart; RFC 6275 11.8: a second, two, four and so on up
    // to 32 from one Binding Update to the next; a beacon every 3 to 3.75 s.
    assert!(advertisements >= 3, "{advertisements} advertisements");
    assert!((6..=9).contains(&updates), "{updates} Binding Updates");
    assert!((30..=41).contains(&frames), "{frames} beacons");
}
