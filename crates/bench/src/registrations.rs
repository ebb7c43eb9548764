//! Measures a home agent at which very many mobile routers register: first all at once, as after a power cut
//! (storm), then in regular refreshes.
//!
//! One sender simulates the routers (`fleet`), on another core than the home agent if the machine has one.
//! The home agent is the real program, alone in its namespace, with authentication (RFC 4285) and its state
//! on the disk. So the home agent sends no acknowledgement before the binding is on the disk. The benchmark
//! reads the home agent's processor time from `/proc`. At the end it kills and restarts the home agent, which
//! must then have every acknowledged binding.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use anyhow::{Context, bail};
use nix::sys::signal::Signal;

use super::Effort;
use super::cores::{Cores, process_seconds};
use super::figures::{RefreshFigure, RegistrationsFigure};
use super::fleet::{Fleet, table, table_with_ipv4};
use super::path::Path;
use super::world::{HOME_AGENT, Programs, World, WorldInterface, station_config};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic};
use carnet_testbed::isolate::{Interrupted, has_to_stop};
use carnet_testbed::process::Daemon;
use carnet_testbed::station::Station;
use carnet_testbed::{console, topology};

/// Lifetime that routers request, in seconds. No binding may end while the home agent restarts.
const LIFETIME: u16 = 600;
/// Seconds after which a router with a lifetime of 60 s renews: after three quarters of the lifetime, as
/// carnet's mobile router does.
const REFRESH: f64 = 45.0;
/// Number of renewals per second that 100,000 routers would send. A smaller fleet sends as many.
const REFRESHES: f64 = 100_000.0 / REFRESH;
/// Number of times that the benchmark fetches the list of bindings of a home agent, a long answer.
const QUESTIONS: usize = 10;
/// Maximum number of Binding Updates in the storm that wait for an answer at a time.
const WINDOW: usize = 2048;
/// Maximum duration of a start in seconds.
const PATIENCE: u64 = 300;
const E0: WorldInterface = WorldInterface { node: "mr", interface: "e0" };

/// Returns the config of a home agent with `routers` routers, each with an IPv4 prefix if `has_ipv4`. Its
/// state file is in `folder`, if given.
pub fn config(
    name: &str,
    path: Path,
    routers: u32,
    has_ipv4: bool,
    folder: Option<&std::path::Path>,
) -> String {
    let mut text = station_config(name, path);
    if let Some(folder) = folder {
        let state = format!("state_dir = \"{}\"\n[dataplane]", folder.display());
        text = text.replacen("[dataplane]", &state, 1);
    }
    let _ = write!(text, "[home_agent]\naddress = \"{HOME_AGENT}\"\nhome_prefix = \"2001:db8:1::/64\"\n");
    // The routers of this benchmark have no tunnel endpoints, so they answer no Echo Requests.
    text.push_str("care_of_test = \"off\"\n");
    text.extend((0..routers).map(if has_ipv4 { table_with_ipv4 } else { table }));
    text
}

/// Returns the resident memory of a process in octets, without memory that is mapped from files.
fn memory(process: u32) -> anyhow::Result<f64> {
    let file = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(number.with_context(|| format!("{file} is not as expected"))? * 1024.0)
}

/// Waits until a station answers. Returns how long that took, in seconds.
pub fn ready(station: &Station, daemon: &mut Daemon) -> anyhow::Result<f64> {
    let start = monotonic();
    while !station.is_ready() {
        daemon.check_running()?;
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        if monotonic() - start > PATIENCE * SECOND {
            bail!("the home agent's process is not ready {PATIENCE} s after its start");
        }
        clock::sleep(5 * MILLISECOND);
    }
    Ok((monotonic() - start) as f64 / 1e9)
}

/// Builds a world and starts its home agent with this config. None of the routers in the config is
/// registered.
pub fn world(name: &str, path: Path, config: &str, programs: &Programs) -> anyhow::Result<(World, f64)> {
    let mut world = World { name: name.into(), stations: Vec::new(), daemons: Vec::new() };
    world.links()?;
    topology::batch(
        Some(&world.node("ha")),
        "route add 2001:dbb::/32 via 2001:db8:f0::2\nroute add 2001:dbc::/32 via 2001:db8:f0::2\n",
    )?;
    // The sender reads the home agent's answers from the link. Blackhole routes keep the mobile router's
    // kernel from answering these packets with errors, which would cost the home agent time.
    topology::batch(
        Some(&world.node("mr")),
        "route add blackhole 2001:dbb::/32\nroute add blackhole 2001:dbc::/32\n",
    )?;
    world.start("ha", config, programs)?;
    let World { stations, daemons, .. } = &mut world;
    let (Some(station), Some(daemon)) = (stations.last(), daemons.last_mut()) else {
        bail!("bug: the home agent's process is missing after its start")
    };
    let seconds = ready(station, daemon).with_context(|| format!("path {}", path.name()))?;
    Ok((world, seconds))
}

/// Measures many registrations over one data path, each with an IPv4 prefix if `has_ipv4`.
fn one(
    path: Path,
    routers: u32,
    has_ipv4: bool,
    effort: &Effort,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<RegistrationsFigure> {
    // Namespaces of a world stay until the end of the run, so each world has a name of its own.
    let name = format!("registrations-{}-{routers}{}", path.name(), if has_ipv4 { "-ipv4" } else { "" });
    // The folder is not under /run, because the measurement includes the disk, and /run is in memory.
    let folder = programs.logs.join(format!("state-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let config = config(&format!("{name}.ha"), path, routers, has_ipv4, Some(&folder));
    let (mut world, start_s) = world(&name, path, &config, programs)?;
    let process = world.daemons.last().context("bug: the process that was just started is missing")?.id();
    let mut fleet = Fleet::new(&world, E0, routers, has_ipv4, LIFETIME)?;
    fleet.prepare();
    let before = memory(process)?;
    let agent_before = process_seconds(process)?;
    // The fleet runs on another core, if the machine has one.
    let alone = cores.avoid_measuring_core().is_ok();
    let storm = fleet.register(WINDOW, None)?;
    let agent_s = process_seconds(process)? - agent_before;
    let after = memory(process)?;
    if storm.lost > 0 || storm.wrong > 0 {
        console::step(&format!("{} lost, {} wrong: {:?}", storm.lost, storm.wrong, fleet.complaint()));
    }
    let seconds = storm.elapsed as f64 / 1e9;
    console::step(&format!(
        "{}: {routers} routers, {seconds:.2} s, the home agent ran {agent_s:.2} s",
        path.name()
    ));
    let mut refresh = RefreshFigure::default();
    for _ in 0..effort.refreshes {
        fleet.prepare();
        let (agent_before, start) = (process_seconds(process)?, monotonic());
        let round = fleet.register(usize::MAX, Some(REFRESHES))?;
        refresh.agent_s += process_seconds(process)? - agent_before;
        refresh.seconds += (monotonic() - start) as f64 / 1e9;
        refresh.acknowledged += round.acknowledged;
        refresh.lost += round.lost;
        refresh.wrong += round.wrong;
        refresh.longest_ms = refresh.longest_ms.max(round.longest as f64 / 1e6);
    }
    // Convert the time per renewal into the share of a core that all routers would need with a lifetime of 60
    // s.
    let each = refresh.agent_s / (refresh.acknowledged.max(1) as f64);
    refresh.share = each * f64::from(routers) / REFRESH;
    let memory_refreshed = memory(process)?;
    cores.pin()?;
    let mut killed = world.daemons.pop().context("bug: the process that was just started is missing")?;
    killed.signal(Signal::SIGKILL);
    killed.wait(10 * SECOND);
    world.stations.clear();
    world.start("ha", &config, programs)?;
    let World { stations, daemons, .. } = &mut world;
    let (Some(station), Some(daemon)) = (stations.last(), daemons.last_mut()) else {
        bail!("bug: the home agent's process is missing after its start")
    };
    let restart_s = ready(station, daemon)?;
    let missing = missing(station, &fleet)?;
    daemon.signal(Signal::SIGTERM);
    daemon.wait(60 * SECOND);
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(RegistrationsFigure {
        path,
        routers,
        has_ipv4,
        own_core: alone,
        start_s,
        seconds,
        per_second: storm.acknowledged as f64 * 1e9 / storm.elapsed.max(1) as f64,
        acknowledged: storm.acknowledged,
        lost: storm.lost,
        wrong: storm.wrong,
        again: storm.again,
        agent_s,
        longest_ms: storm.longest as f64 / 1e6,
        memory_before_mib: before / 1048576.0,
        memory_mib: after / 1048576.0,
        memory_refreshed_mib: memory_refreshed / 1048576.0,
        octets_each: (after - before) / f64::from(routers.max(1)),
        refresh,
        restart_s,
        missing,
    })
}

/// Returns how many acknowledged bindings the home agent does not have, or has in an older state.
fn missing(station: &Station, fleet: &Fleet) -> anyhow::Result<u64> {
    let mut shown = station.show("bindings");
    for _ in 1..QUESTIONS {
        if shown.is_ok() || has_to_stop() {
            break;
        }
        shown = station.show("bindings");
    }
    let shown = shown?;
    let list = shown.as_array().context("carnet show bindings --json printed no array")?;
    let one = |binding: &serde_json::Value| -> Option<(Ipv6Addr, (Ipv6Addr, u64))> {
        let address = |key: &str| binding[key].as_str()?.parse::<Ipv6Addr>().ok();
        Some((address("home_address")?, (address("care_of_address")?, binding["sequence"].as_u64()?)))
    };
    let found: HashMap<Ipv6Addr, (Ipv6Addr, u64)> = list.iter().filter_map(one).collect();
    let has = |who: super::updates::Identity, sequence: u16| {
        found.get(&who.home_address).is_some_and(|(care_of_address, known)| {
            *care_of_address == who.care_of_address && *known >= u64::from(sequence)
        })
    };
    let acknowledged = fleet.acknowledged().filter_map(|(who, sequence)| Some((who, sequence?)));
    Ok(acknowledged.filter(|(who, sequence)| !has(*who, *sequence)).count() as u64)
}

/// Measures the given data paths, except those without carnet. Runs without and with an IPv4 prefix for each
/// router alternate.
pub fn measure(
    paths: &[Path],
    effort: &Effort,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Vec<RegistrationsFigure>> {
    let mut figures = Vec::new();
    for path in paths.iter().copied().filter(|path| matches!(path, Path::Tun | Path::Bpf)) {
        for (routers, has_ipv4) in effort.routers.iter().flat_map(|it| [(*it, false), (*it, true)]) {
            let figure = one(path, routers, has_ipv4, effort, programs, cores)
                .with_context(|| format!("{routers} routers that register, path {}", path.name()))?;
            console::step(&format!(
                "{}: {routers} routers{} registered in {:.2} s, {:.0} a second; {:.0} octets each",
                path.name(),
                if has_ipv4 { " with an IPv4 prefix" } else { "" },
                figure.seconds,
                figure.per_second,
                figure.octets_each
            ));
            figures.push(figure);
        }
    }
    Ok(figures)
}
