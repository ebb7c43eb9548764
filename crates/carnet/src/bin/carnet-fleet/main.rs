//! A member of a fleet of home agents.
//!
//! Several machines may be one home agent, a *seat*. Each machine runs this program, once for each seat, in
//! its own network namespace, because a namespace can have only one station. The leader of the seat runs
//! `carnet run` with the home agent's config. An acknowledgement leaves only when etcd has stored the
//! binding. When the leader dies, another member becomes the leader within a second, with all bindings.
//! `carnet_fleet` explains how, and why there are never two leaders.
//!
//! * [`config`] reads the config file, [`keeper`] runs a seat.
//! * [`seat_lock`] ensures that there is one program for each seat in a directory.
//! * [`links`] watches whether the neighbouring routers are reachable.
//! * [`status`] shows the state of a seat.
//! * [`etcd`] communicates with the store; [`access`] reads certificates and passwords for it. [`agent`]
//!   communicates with the home agent's process.
//!
//! Left out: routes to the home agent. A routing daemon on the leader announces them.
#![forbid(unsafe_code)]

mod access;
mod agent;
mod cli;
mod config;
#[path = "../../crash.rs"]
mod crash;
mod etcd;
mod keeper;
mod links;
#[path = "../../log.rs"]
mod log;
#[cfg(test)]
#[path = "../../scratch.rs"]
mod scratch;
mod seat_lock;
mod status;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tracing::info;

use cli::{Cli, Command};
use config::Config;
use etcd::KeyPrefix;
use keeper::{SeatKeeper, StoreLocation};
use seat_lock::SeatLock;

/// Exit status for a mistake in the config.
const EXIT_CONFIG_MISTAKE: u8 = 2;

fn main() -> ExitCode {
    let refuse = |error: anyhow::Error, code: ExitCode| {
        eprintln!("carnet-fleet: {}", log::escape_for_terminal(&format!("{error:#}")));
        code
    };
    let loaded = match Cli::parse().command {
        Command::Check { file } => {
            Config::load_config(&file.path()).and_then(|config| config.check_agent()).map(|warnings| {
                warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
                None
            })
        }
        Command::Status { file, json } => {
            Config::load_config(&file.path()).map(|config| Some((config, Some(json))))
        }
        Command::Run { file, log } => Config::load_config(&file.path())
            .and_then(|config| log::start_log(log.as_deref()).map(|()| Some((config, None)))),
    };
    let (config, shown) = match loaded {
        Ok(Some(asked)) => asked,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return refuse(error, ExitCode::from(EXIT_CONFIG_MISTAKE)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // The task that watches the links cannot move to another thread, so this set keeps its tasks on this
    // thread.
    let here = LocalSet::new();
    let work = async {
        match shown {
            Some(json) => status::show_status(&config, json).await,
            None => {
                crash::install_panic_hook();
                run_keeper(config).await.map(|()| true)
            }
        }
    };
    match runtime.context("cannot start").and_then(|runtime| here.block_on(&runtime, work)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => refuse(error, ExitCode::FAILURE),
    }
}

async fn run_keeper(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let directory = &config.directory;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let _alone = SeatLock::take_lock(directory, &config.seat)?;
    crash::set_report_location(directory, &format!("{}.member", config.seat));
    let servers = config.store_servers()?;
    let (end, ending) = watch::channel(false);
    let place =
        StoreLocation { store_servers: servers, prefix: KeyPrefix::of_seat(&config.fleet, &config.seat) };
    let links =
        config.watched_links().start_watching().await.context("cannot watch the links (links, reach)")?;
    let keeper = SeatKeeper::new(
        config.seat.clone(),
        config.seat_config(),
        random_number()?,
        place,
        config.agent_parameters(),
        links,
    );
    let (reload, reloads) = unbounded_channel();
    let keeper = tokio::spawn(keeper.run_until_end(ending, reloads));
    info!("member {} of the home agent {} is running", config.member, config.seat);
    loop {
        tokio::select! {
            _ = hangup.recv() => {
                let _ = reload.send(());
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    info!("member {} of the home agent {} stops", config.member, config.seat);
    let _ = end.send(true);
    keeper.await?;
    Ok(())
}

/// Returns 64 random bits.
fn random_number() -> anyhow::Result<u64> {
    let mut octets = [0; 8];
    let mut file = std::fs::File::open("/dev/urandom").context("no random numbers")?;
    std::io::Read::read_exact(&mut file, &mut octets)?;
    Ok(u64::from_ne_bytes(octets))
}
