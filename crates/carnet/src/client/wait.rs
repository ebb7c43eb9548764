//! `carnet status --wait`: sends requests until a station has reached a state.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use carnet_api::model::{Status, Uplink};
use tokio::time::{Instant, sleep, timeout_at};

use super::{ApiClient, SOCKET_DIRECTORY};
use crate::UNEXPECTED_ANSWER;
use crate::cli::{AwaitedState, Station};

/// Interval between two requests for the status.
const REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// Progress of a station towards the state for which the command waits.
#[derive(Debug, PartialEq, Eq)]
enum WaitProgress {
    Done,
    /// The station has not reached the state, for this reason.
    NotYet(String),
}

/// Waits until a station has reached a state.
///
/// # Errors
/// Returns the reason if the station has not reached the state after `limit`, or can never reach it.
pub async fn wait_until_reached(
    station: &Station,
    wanted: AwaitedState,
    limit: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    let mut last = "no answer".to_owned();
    loop {
        match timeout_at(deadline, request_progress(station, wanted)).await {
            Ok(Ok(WaitProgress::Done)) => return Ok(()),
            Ok(Ok(WaitProgress::NotYet(why))) => last = why,
            Ok(Err(error)) if error.downcast_ref::<StateUnreachable>().is_some() => return Err(error),
            // The station may not have started yet, so the command tries again.
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => {}
        }
        if Instant::now() + REQUEST_INTERVAL >= deadline {
            bail!("the station has not reached the state of --wait after {} s: {last}", limit.as_secs());
        }
        sleep(REQUEST_INTERVAL).await;
    }
}

/// Error: the station can never reach the state.
#[derive(Debug)]
struct StateUnreachable;

impl std::fmt::Display for StateUnreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this station has no mobile router that could be registered")
    }
}

impl std::error::Error for StateUnreachable {}

async fn request_progress(station: &Station, awaited_state: AwaitedState) -> anyhow::Result<WaitProgress> {
    let client = ApiClient::find_station(station.socket.clone(), Path::new(SOCKET_DIRECTORY))?;
    let status = serde_json::from_value(client.get("/v1/status").await?).context(UNEXPECTED_ANSWER)?;
    if awaited_state == AwaitedState::Up {
        return Ok(WaitProgress::Done);
    }
    let uplinks: Vec<Uplink> =
        serde_json::from_value(client.get("/v1/uplinks").await?).context(UNEXPECTED_ANSWER)?;
    Ok(registration_progress(&status, &uplinks).ok_or(StateUnreachable)?)
}

/// Returns the progress of the mobile router's registration; `None` if the station has no mobile router.
fn registration_progress(status: &Status, uplinks: &[Uplink]) -> Option<WaitProgress> {
    let router = status.mobile_router.as_ref()?;
    if router.state == "home" {
        return Some(WaitProgress::Done);
    }
    if router.state != "registered" {
        return Some(WaitProgress::NotYet(format!(
            "the mobile router is {}",
            router.state.replace('_', " ")
        )));
    }
    if router.reachable == Some(false) {
        return Some(WaitProgress::NotYet("no uplink reaches the home agent".to_owned()));
    }
    Some(match uplinks.iter().find(|uplink| uplink.state == "registering") {
        Some(uplink) => WaitProgress::NotYet(format!("{} is being registered", uplink.interface)),
        None => WaitProgress::Done,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn progress_of_state(state: &str, reachable: bool, uplinks: [&str; 2]) -> Option<WaitProgress> {
        let status = json!({"name": "bus", "version": "1", "uptime_s": 1, "roles": ["mobile_router"],
            "mobile_router": {"state": state, "reachable": reachable, "home_address": "2001:db8:1::1234",
                "home_agent": "2001:db8:1::1", "care_of_address": null, "uplink": null, "wanted_uplin\
                    k": null},
            "home_agent": null, "geonet": null});
        let uplink = |state: &&str| {
            json!({"interface": "wlan0", "state": state, "care_of_address": null,
            "bid": null, "priority": 10, "signal_dbm": null, "rtt_ms": null, "loss": null, "active": false})
        };
        let uplinks = serde_json::Value::Array(uplinks.iter().map(uplink).collect());
        let status = serde_json::from_value(status).expect("a status");
        registration_progress(&status, &serde_json::from_value::<Vec<Uplink>>(uplinks).expect("uplinks"))
    }

    #[test]
    fn wait_registered_needs_every_uplink_that_is_up() {
        let done = Some(WaitProgress::Done);
        assert_eq!(progress_of_state("registered", true, ["active", "standby"]), done);
        assert_eq!(progress_of_state("registered", true, ["active", "down: no carrier"]), done);
        assert_eq!(progress_of_state("registered", true, ["active", "silent"]), done);
        assert_eq!(progress_of_state("home", true, ["home", "down: no carrier"]), done);
        for (state, reachable, uplinks, expected) in [
            ("registering", false, ["registering", "registering"], "the mobile router is registering"),
            (
                "disconnected",
                false,
                ["down: no carrier", "down: no carrier"],
                "the mobile router is disconnected",
            ),
            ("registered", false, ["silent", "silent"], "no uplink reaches the home agent"),
            ("registered", true, ["active", "registering"], "wlan0 is being registered"),
        ] {
            let expected = Some(WaitProgress::NotYet(expected.to_owned()));
            assert_eq!(progress_of_state(state, reachable, uplinks), expected, "{state} {uplinks:?}");
        }
    }
}
