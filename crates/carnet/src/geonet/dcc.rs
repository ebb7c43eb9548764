//! Congestion control, for operators and for the program that measures the channel load.

use carnet_api::model::{ChannelRequest, Dcc};
use carnet_base::Time;
use carnet_station::Station;
use carnet_station::io::Input;

/// Returns the answer to `GET /v1/dcc`.
///
/// # Errors
/// Returns an error if the station has no congestion control.
pub fn dcc_status(now: Time, station: &Station) -> Result<Dcc, String> {
    let status = station.geonet_plane().and_then(|plane| plane.dcc_status(now));
    status.ok_or_else(|| {
        "this station has no congestion control: there is no [geonet.dcc] in its config".to_owned()
    })
}

/// Converts the body of `POST /v1/channel` to an input of the station.
///
/// # Errors
/// Returns an error if the value is impossible.
pub fn channel_busy_input(channel: &ChannelRequest) -> Result<Input, String> {
    let busy = channel.busy_percent;
    if !(0.0..=100.0).contains(&busy) {
        return Err(format!("busy_percent is {busy}, expected 0 to 100"));
    }
    Ok(Input::ChannelBusy((10.0 * busy).round() as u16))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carnet_base::{Rng, WallTime};
    use carnet_geonet::Mib;
    use carnet_geonet::dcc::GateConfig;
    use carnet_station::{GeonetSettings, PersistentState, StationConfig};
    use carnet_wire::geonet::{GnAddress, StationType};

    use super::*;

    const WALL_TIME: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);

    fn station_with_dcc(dcc: Option<GateConfig>) -> Station {
        let address = Some(GnAddress::new(false, StationType::PassengerCar, [2, 0, 0, 0, 0, 1]));
        let mib = Mib::default();
        let geonet = Some(GeonetSettings {
            router_parameters: mib,
            address,
            ipv6_config: None,
            multicast_config: None,
            facilities_settings: None,
            dcc_config: dcc,
        });
        let config = StationConfig { geonet, ..StationConfig::default() };
        Station::new(config, PersistentState::default(), Rng::new(1), Time::ZERO, WALL_TIME)
    }

    #[test]
    fn dcc_status_rounds_channel_share_to_thousandths() {
        for (percent, thousandths) in [(0.0, 0), (12.34, 123), (12.36, 124), (100.0, 1000)] {
            let input = channel_busy_input(&ChannelRequest { busy_percent: percent });
            assert_eq!(input, Ok(Input::ChannelBusy(thousandths)), "{percent}");
        }
        for percent in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
            let refused = channel_busy_input(&ChannelRequest { busy_percent: percent }).expect_err("refused");
            assert_eq!(refused, format!("busy_percent is {percent}, expected 0 to 100"));
        }
    }

    #[test]
    fn dcc_status_shows_algorithm_and_channel_load() {
        let refused = dcc_status(Time::ZERO, &station_with_dcc(None)).expect_err("refused");
        assert!(refused.contains("no [geonet.dcc]"), "{refused}");
        let mut station =
            station_with_dcc(Some(GateConfig { assumed_busy_ratio: 0.2, ..GateConfig::default() }));
        let now = Time::from_secs(1);
        let shown = dcc_status(now, &station).expect("a gate");
        assert_eq!((shown.algorithm.as_str(), shown.busy_percent, shown.told_ms), ("reactive", 20.0, None));
        station.handle_input(now, WALL_TIME, Input::ChannelBusy(450)).expect("a gate");
        let shown = dcc_status(now + Duration::from_millis(300), &station).expect("a gate");
        assert_eq!((shown.busy_percent, shown.told_ms, shown.duty_cycle_percent), (45.0, Some(300), None));
        // A report of the channel load is too old after one second. Congestion control still uses its value,
        // but the API does not show it as reported.
        let shown = dcc_status(now + Duration::from_millis(1001), &station).expect("a gate");
        assert_eq!((shown.busy_percent, shown.told_ms, shown.waiting), (45.0, None, vec![0; 4]));
    }
}
