//! `carnet drain`, which starts a drain and shows its progress, and `carnet revoke --all`.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::{Context, bail};
use carnet_api::model::{Binding, Drain, DrainRequest, RevokeRequest, Role};

use super::ApiClient;
use crate::{UNEXPECTED_ANSWER, cli, find_station, print_escaped};

/// Interval between two requests for the progress of a drain.
const STATUS_REQUEST_INTERVAL: Duration = Duration::from_millis(200);

/// Starts a drain and waits for its end, or ends a drain.
pub async fn drain_home_agent(command: cli::Drain) -> anyhow::Result<()> {
    let client = find_station(command.station)?;
    if command.end {
        return client.post_json("/v1/drain/end", &()).await;
    }
    let within_s = u32::try_from(command.within.as_secs()).unwrap_or(u32::MAX);
    client.post_json("/v1/drain", &DrainRequest { to: command.to, within_s }).await?;
    let mut shown = None;
    loop {
        let answer = client.get("/v1/drain").await?;
        let drain: Option<Drain> = serde_json::from_value(answer).context(UNEXPECTED_ANSWER)?;
        let Some(drain) = drain else { bail!("the drain has ended early: an operator has cancelled it") };
        let left = drain.left.len();
        if shown.replace(left) != Some(left) {
            let to: Vec<String> = drain.to.iter().map(ToString::to_string).collect();
            print_escaped(&format!(
                "{left} of {} mobile routers still registered here; they go to {}\n",
                drain.routers,
                to.join(", ")
            ))?;
        }
        match drain.state.as_str() {
            "running" => tokio::time::sleep(STATUS_REQUEST_INTERVAL).await,
            "done" => return Ok(()),
            _ => {
                let left: Vec<String> = drain.left.iter().map(ToString::to_string).collect();
                bail!(
                    "the drain's time is over, and these mobile routers are still registered: {}",
                    left.join(", ")
                )
            }
        }
    }
}

/// Revokes the bindings of all mobile routers that are registered now. It is no error if a router
/// de-registers in the meantime.
pub async fn revoke_all(client: &ApiClient) -> anyhow::Result<()> {
    let registered = async || -> anyhow::Result<BTreeSet<Ipv6Addr>> {
        let answer = client.get("/v1/bindings").await?;
        let bindings: Vec<Binding> = serde_json::from_value(answer).context(UNEXPECTED_ANSWER)?;
        let here = bindings.into_iter().filter(|binding| binding.role == Role::HomeAgent);
        Ok(here.map(|binding| binding.home_address).collect())
    };
    let all = registered().await?;
    for home_address in &all {
        let revoke = RevokeRequest { home_address: *home_address, bids: Vec::new() };
        if let Err(error) = client.post_json("/v1/revoke", &revoke).await
            && registered().await?.contains(home_address)
        {
            return Err(error);
        }
    }
    print_escaped(&format!("{} mobile routers\n", all.len()))
}
