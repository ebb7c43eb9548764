//! The carnet program: runs a station, checks its config, and controls a running station.
//!
//! * [`cli`] is the command line; [`check`] checks configs.
//! * [`mod@run`] is the event loop of a station, [`geonet`] its GeoNetworking part. [`http`] serves the API
//!   in tasks of its own, and passes requests to the loop ([`request`]).
//! * [`client`] uses the API of a running station, [`show`] formats the station's answers, [`support`]
//!   archives them.
//! * [`crash`] writes the backtrace of a panic to the log and into a crash report.

#![forbid(unsafe_code)]
// Programs that are built without some features do not use all code.
#![cfg_attr(not(all(feature = "geonet", feature = "replay")), allow(dead_code, unused_imports))]

mod answers;
mod check;
mod cli;
mod client;
mod crash;
mod facilities;
#[cfg(test)]
#[path = "../tests/faults/mod.rs"]
mod faults;
mod geonet;
mod http;
mod ipsec;
#[cfg(feature = "wireguard")]
mod key;
mod lan;
mod log;
mod record;
mod request;
mod run;
#[cfg(test)]
mod scratch;
mod sessions;
mod settings;
mod show;
mod state;
mod support;
#[cfg_attr(not(feature = "upper-tester"), allow(dead_code))]
mod upper_tester;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use carnet_api::config::Config;
use carnet_api::model::{HandoverRequest, PortalRequest, RevokeRequest};
use carnet_linux::WipingAllocator;
use clap::Parser;
use serde_json::Value;

use cli::{Cli, Command};
use client::{ApiClient, SOCKET_DIRECTORY};

/// Allocator that wipes freed memory while the program reads keys.
#[global_allocator]
static ALLOCATOR: WipingAllocator = WipingAllocator;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Check { file } => return check::check_config_file(&file.path()),
        Command::Run { config: path, log, store } => match run::load_config(&path) {
            Ok(config) => match log::start_log(log.as_deref()) {
                Ok(()) => {
                    crash::install_panic_hook();
                    run_station(config, &path, store.as_deref())
                }
                Err(error) => {
                    eprintln!("carnet: {error:#}");
                    return ExitCode::from(check::EXIT_CONFIG_MISTAKE);
                }
            },
            Err(errors) => return check::print_config_errors(&errors),
        },
        Command::Ipsec(wanted) => match Config::load_file(&wanted.config) {
            Ok(config) => ipsec::swanctl_config(&config, &wanted).and_then(|text| print_escaped(&text)),
            Err(errors) => return check::print_config_errors(&errors),
        },
        #[cfg(feature = "wireguard")]
        Command::Key { command: None, out } => key::make_key_pair(out.as_deref()),
        #[cfg(feature = "wireguard")]
        Command::Key { command: Some(cli::KeyCommand::Public { file }), .. } => key::print_public_key(&file),
        #[cfg(feature = "wireguard")]
        Command::Key { command: Some(cli::KeyCommand::Rotate(arguments)), .. } => {
            match carnet_linux::run_with_secrets(|| Config::load_file(&arguments.config)) {
                Ok(config) => {
                    new_runtime().and_then(|runtime| runtime.block_on(key::rotate_key(config, &arguments)))
                }
                Err(errors) => return check::print_config_errors(&errors),
            }
        }
        #[cfg(feature = "replay")]
        Command::Replay { config, recording } => match Config::load_file(&config) {
            Ok(config) => record::replay_recording(&config, &recording, &mut io::stdout().lock()),
            Err(errors) => return check::print_config_errors(&errors),
        },
        command => run_api_command(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The program that reads the pipe has ended, as in `carnet watch | head`. This is no failure of the
        // command.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("carnet: {}", log::escape_for_terminal(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run_station(config: Box<Config>, path: &Path, store: Option<&Path>) -> anyhow::Result<()> {
    new_runtime()?.block_on(run::run_station(config, path, store))
}

/// Runs a command that uses the API of a running station.
fn run_api_command(command: Command) -> anyhow::Result<()> {
    new_runtime()?.block_on(async {
        match command {
            Command::Status { wait, timeout, format, station } => {
                if let Some(wanted) = wait {
                    client::wait::wait_until_reached(&station, wanted, timeout).await?;
                }
                let client = find_station(station)?;
                let answer = client.get("/v1/status").await?;
                if format.json {
                    return print_json(&answer);
                }
                let uplinks = match answer["mobile_router"].is_object() {
                    true => client.get("/v1/uplinks").await?,
                    false => Value::Array(Vec::new()),
                };
                print_escaped(&show::format_status(answer, uplinks).context(UNEXPECTED_ANSWER)?)
            }
            Command::Show { what, format, station } => {
                let answer = find_station(station)?.get(what.path()).await?;
                match format.json {
                    true => print_json(&answer),
                    false => print_escaped(
                        &show::format_answer(what, answer, terminal_width()).context(UNEXPECTED_ANSWER)?,
                    ),
                }
            }
            Command::Watch { format, station } => {
                let mut events = find_station(station)?.follow_events("/v1/events").await?;
                while let Some(event) = events.next().await? {
                    let line = if format.json { event.to_string() } else { show::format_event(&event) };
                    print_escaped(&format!("{line}\n"))?;
                }
                Ok(())
            }
            Command::Handover { uplink, policy, station } => {
                let uplink = (uplink != "auto").then_some(uplink);
                find_station(station)?.post_json("/v1/handover", &HandoverRequest { uplink, policy }).await
            }
            Command::Portal(cli::Portal { uplink, host, duration, dns, end: _, station }) => {
                let for_s = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
                let host = host.map(|host| host.to_string());
                let learns = dns.is_empty() && host.is_some();
                let dns = if learns { client::uplink_dns::dns_servers_of_uplink(&uplink) } else { dns };
                find_station(station)?
                    .post_json("/v1/portal", &PortalRequest { uplink, host, for_s, dns })
                    .await
            }
            Command::Drain(command) => client::drain::drain_home_agent(command).await,
            Command::Revoke { home_address, bid: bids, all: _, station } => {
                let client = find_station(station)?;
                match home_address {
                    Some(home_address) => {
                        client.post_json("/v1/revoke", &RevokeRequest { home_address, bids }).await
                    }
                    None => client::drain::revoke_all(&client).await,
                }
            }
            #[cfg(feature = "geonet")]
            Command::Area(command) => client::geonet::change_area(command).await,
            #[cfg(feature = "geonet")]
            Command::Gnping(command) => client::geonet::ping_target(command).await,
            #[cfg(feature = "geonet")]
            Command::Gnsend(command) => client::geonet::send_packet(command).await,
            #[cfg(feature = "geonet")]
            Command::Gnrecv(command) => client::geonet::print_received(command).await,
            #[cfg(feature = "geonet")]
            Command::Denm(command) => client::facilities::report_event(command).await,
            Command::SupportBundle(command) => support::create_bundle(command).await,
            // `main` has handled these commands before the runtime starts.
            Command::Run { .. } | Command::Check { .. } | Command::Ipsec(_) => Ok(()),
            #[cfg(feature = "wireguard")]
            Command::Key { .. } => Ok(()),
            #[cfg(feature = "replay")]
            Command::Replay { .. } => Ok(()),
        }
    })
}

const UNEXPECTED_ANSWER: &str = "cannot understand the station's answer: does the station run another \
                                 version of carnet?";

fn new_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")
}

fn find_station(station: cli::Station) -> anyhow::Result<ApiClient> {
    ApiClient::find_station(station.socket, Path::new(SOCKET_DIRECTORY))
}

/// Returns the number of columns of the terminal, if the output goes to a terminal.
fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    let (width, _) = stdout.is_terminal().then(|| terminal_size::terminal_size_of(stdout))??;
    Some(width.0.into())
}

/// Prints a text. The text may contain data of other systems, so on a terminal its control characters are
/// escaped.
fn print_escaped(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(log::escape_for_terminal(text).as_bytes())?;
    stdout.flush()?;
    Ok(())
}

fn print_json(value: &Value) -> anyhow::Result<()> {
    print_escaped(&format!("{value:#}\n"))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
