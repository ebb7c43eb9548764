//! Runs `carnet denm`.

use anyhow::Context;
use carnet_api::model::Triggered;
use carnet_station::io::DenmAction;
use serde::Deserialize;

use crate::cli::DenmCommand;
use crate::{UNEXPECTED_ANSWER, find_station, print_escaped};

/// Reports an event on the road to the station, and prints the action ID if the event is new.
pub async fn report_event(command: DenmCommand) -> anyhow::Result<()> {
    let (wish, request, station) = command.action.into_request();
    let client = find_station(station)?;
    let path = match wish {
        DenmAction::Trigger => {
            let answer = client.post_for("/v1/denm", &request).await?;
            let id = Triggered::deserialize(&answer).context(UNEXPECTED_ANSWER)?.action_id;
            return print_escaped(&format!("{}:{}\n", id.originating_station_id, id.sequence_number));
        }
        DenmAction::Update => "/v1/denm/update",
        DenmAction::Cancel => "/v1/denm/cancel",
        DenmAction::Negate => "/v1/denm/negate",
    };
    client.post_json(path, &request).await
}
