//! Runs `carnet denm`.

use anyhow::Context;
use carnet_api::model::Triggered;
use carnet_station::io::DenmWish;
use serde::Deserialize;

use crate::cli::DenmCommand;
use crate::{UNEXPECTED, find, print};

/// Reports an event on the road to the station, and prints the action ID if the event is new.
pub async fn denm(command: DenmCommand) -> anyhow::Result<()> {
    let (wish, request, station) = command.action.request();
    let client = find(station)?;
    let path = match wish {
        DenmWish::Trigger => {
            let answer = client.post_for("/v1/denm", &request).await?;
            let id = Triggered::deserialize(&answer).context(UNEXPECTED)?.action_id;
            return print(&format!("{}:{}\n", id.originating_station_id, id.sequence_number));
        }
        DenmWish::Update => "/v1/denm/update",
        DenmWish::Cancel => "/v1/denm/cancel",
        DenmWish::Negate => "/v1/denm/negate",
    };
    client.post(path, &request).await
}
