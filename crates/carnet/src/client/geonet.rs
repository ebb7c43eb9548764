//! Runs `carnet area`, `gnping`, `gnsend` and `gnrecv`.

use anyhow::{Context, bail};
use carnet_api::model::{AreaRemoval, GnPingEvent, GnReceived};
use clap::CommandFactory;
use clap::error::ErrorKind;
use serde::Deserialize;

use crate::cli::{AreaCommand, Cli, GnPing, GnRecv, GnSend};
use crate::{UNEXPECTED_ANSWER, find_station, print_escaped, show};

/// Pings a target, and prints each answer as it arrives. Returns an error if no answer comes.
pub async fn ping_target(command: GnPing) -> anyhow::Result<()> {
    let request = command.to_request();
    let mut events = find_station(command.station)?.post_and_follow("/v1/gnping", &request).await?;
    let mut round_trips = Vec::new();
    while let Some(event) = events.next().await? {
        let json = command.format.json.then(|| event.to_string());
        let event: GnPingEvent = serde_json::from_value(event).context(UNEXPECTED_ANSWER)?;
        let text = match &event {
            GnPingEvent::Answer(answer) => {
                round_trips.push(answer.rtt_ms);
                show::geonet::format_ping_answer(answer)
            }
            GnPingEvent::Timeout { sequence } => format!("{sequence}: no answer"),
            GnPingEvent::Done { sent, answered } => {
                show::geonet::format_ping_summary(&command.target, *sent, *answered, &round_trips)
            }
        };
        print_escaped(&format!("{}\n", json.unwrap_or(text)))?;
        if matches!(event, GnPingEvent::Done { .. }) {
            if round_trips.is_empty() {
                bail!("GeoNetworking ping: no station answered at {}", command.target);
            }
            return Ok(());
        }
    }
    bail!("the station ended the GeoNetworking ping before its last packet")
}

/// Sets or removes an area of the station.
pub async fn change_area(command: AreaCommand) -> anyhow::Result<()> {
    let (station, name) = (command.station.socket.clone(), command.name.clone());
    let area = exit_on_mistake("area", command.into_area_request());
    let client = find_station(crate::cli::Station { socket: station })?;
    match area {
        Some(area) => client.post_json("/v1/areas", &area).await,
        None => client.post_json("/v1/areas/remove", &AreaRemoval { name }).await,
    }
}

/// Ends the program after a mistake on the command line, with the same exit status as clap.
fn exit_on_mistake<T>(command: &str, request: Result<T, String>) -> T {
    request.unwrap_or_else(|mistake| {
        let mut program = Cli::command();
        program.build();
        match program.find_subcommand_mut(command) {
            Some(command) => command.error(ErrorKind::ArgumentConflict, mistake).exit(),
            None => program.error(ErrorKind::ArgumentConflict, mistake).exit(),
        }
    })
}

/// Sends a packet over GeoNetworking.
pub async fn send_packet(command: GnSend) -> anyhow::Result<()> {
    let station = command.station.socket.clone();
    let packet = exit_on_mistake("gnsend", command.into_request());
    find_station(crate::cli::Station { socket: station })?.post_json("/v1/gnsend", &packet).await
}

/// Prints every received payload as a JSON line. Reports on stderr how many payloads were lost.
pub async fn print_received(command: GnRecv) -> anyhow::Result<()> {
    let client = find_station(crate::cli::Station { socket: command.station.socket.clone() })?;
    let mut payloads = client.follow_events("/v1/gnrecv").await?;
    while let Some(payload) = payloads.next().await? {
        if payload.get("event").is_some() {
            eprintln!("carnet: {}", crate::log::escape_for_terminal(&show::format_event(&payload)));
        } else if command.accepts_payload(&GnReceived::deserialize(&payload).context(UNEXPECTED_ANSWER)?) {
            print_escaped(&format!("{payload}\n"))?;
        }
    }
    Ok(())
}
