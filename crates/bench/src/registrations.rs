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

use super::MeasurementPlan;
use super::cores::{Cores, process_seconds};
use super::figures::{RefreshFigure, RegistrationsFigure};
use super::fleet::{SimulatedRouters, prefix_table_config, prefix_table_config_with_ipv4};
use super::path::DataPath;
use super::world::{HOME_AGENT_ADDRESS, NodeInterface, Programs, TestNetwork, station_config};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::isolate::{Interrupted, has_to_stop};
use carnet_testbed::process::BackgroundProgram;
use carnet_testbed::station::Station;
use carnet_testbed::{console, topology};

/// Lifetime that routers request, in seconds. No binding may end while the home agent restarts.
const BINDING_LIFETIME_SECONDS: u16 = 600;
/// Seconds after which a router with a lifetime of 60 s renews: after three quarters of the lifetime, as
/// carnet's mobile router does.
const REFRESH_PERIOD_SECONDS: f64 = 45.0;
/// Number of renewals per second that 100,000 routers would send. Fewer routers send the same number per
/// second.
const REFRESHES_PER_SECOND: f64 = 100_000.0 / REFRESH_PERIOD_SECONDS;
/// Maximum number of attempts to fetch a home agent's list of bindings. With many bindings the answer may
/// take too long.
const BINDING_QUERY_ATTEMPTS: usize = 10;
/// Maximum number of Binding Updates in the storm that wait for an answer at a time.
const MAX_UNACKNOWLEDGED_UPDATES: usize = 2048;
/// Maximum duration of a start in seconds.
const START_TIMEOUT_SECONDS: u64 = 300;
const ROUTER_UPLINK: NodeInterface = NodeInterface { node: "mr", interface: "e0" };

/// Returns the config of a home agent with `routers` routers, each with an IPv4 prefix if `has_ipv4`. Its
/// state file is in `folder`, if given.
pub fn home_agent_config(
    name: &str,
    path: DataPath,
    routers: u32,
    has_ipv4: bool,
    folder: Option<&std::path::Path>,
) -> String {
    let mut text = station_config(name, path);
    if let Some(folder) = folder {
        let state = format!("state_dir = \"{}\"\n[dataplane]", folder.display());
        text = text.replacen("[dataplane]", &state, 1);
    }
    let _ =
        write!(text, "[home_agent]\naddress = \"{HOME_AGENT_ADDRESS}\"\nhome_prefix = \"2001:db8:1::/64\"\n");
    // The routers of this benchmark have no tunnel endpoints, so they answer no Echo Requests.
    text.push_str("care_of_test = \"off\"\n");
    text.extend((0..routers).map(if has_ipv4 { prefix_table_config_with_ipv4 } else { prefix_table_config }));
    text
}

/// Returns the resident memory of a process in octets, without memory that is mapped from files.
pub fn resident_memory_octets(process: u32) -> anyhow::Result<f64> {
    let file = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(number.with_context(|| format!("{file} is not as expected"))? * 1024.0)
}

/// Waits until a station answers. Returns how long that took, in seconds.
pub fn wait_until_ready(station: &Station, daemon: &mut BackgroundProgram) -> anyhow::Result<f64> {
    let start = monotonic_now();
    while !station.is_ready() {
        daemon.check_running()?;
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        if monotonic_now() - start > START_TIMEOUT_SECONDS * SECOND {
            bail!("the home agent's process is not ready {START_TIMEOUT_SECONDS} s after its start");
        }
        clock::sleep(5 * MILLISECOND);
    }
    Ok((monotonic_now() - start) as f64 / 1e9)
}

/// Builds a test network and starts its home agent with this config. None of the routers in the config is
/// registered.
pub fn build_network(
    name: &str,
    path: DataPath,
    config: &str,
    programs: &Programs,
) -> anyhow::Result<(TestNetwork, f64)> {
    let mut network = TestNetwork { name: name.into(), stations: Vec::new(), daemons: Vec::new() };
    network.create_links()?;
    topology::run_ip_batch(
        Some(&network.node_name("ha")),
        "route add 2001:dbb::/32 via 2001:db8:f0::2\nroute add 2001:dbc::/32 via 2001:db8:f0::2\n",
    )?;
    // The sender reads the home agent's answers from the link. Blackhole routes keep the mobile router's
    // kernel from answering these packets with errors, which would cost the home agent time.
    topology::run_ip_batch(
        Some(&network.node_name("mr")),
        "route add blackhole 2001:dbb::/32\nroute add blackhole 2001:dbc::/32\n",
    )?;
    network.start_station("ha", config, programs)?;
    let TestNetwork { stations, daemons, .. } = &mut network;
    let (Some(station), Some(daemon)) = (stations.last(), daemons.last_mut()) else {
        bail!("bug: the home agent's process is missing after its start")
    };
    let seconds = wait_until_ready(station, daemon).with_context(|| format!("path {}", path.name()))?;
    Ok((network, seconds))
}

/// Measures many registrations over one data path, each with an IPv4 prefix if `has_ipv4`.
fn measure_router_count(
    path: DataPath,
    routers: u32,
    has_ipv4: bool,
    plan: &MeasurementPlan,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<RegistrationsFigure> {
    // The namespaces of a test network stay until the end of the run, so each test network has a name of its
    // own.
    let name = format!("registrations-{}-{routers}{}", path.name(), if has_ipv4 { "-ipv4" } else { "" });
    // The folder is not under /run, because the measurement includes the disk, and /run is in memory.
    let folder = programs.log_folder.join(format!("state-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let config = home_agent_config(&format!("{name}.ha"), path, routers, has_ipv4, Some(&folder));
    let (mut network, start_s) = build_network(&name, path, &config, programs)?;
    let process =
        network.daemons.last().context("bug: the process that was just started is missing")?.process_id();
    let mut simulated_routers =
        SimulatedRouters::new(&network, ROUTER_UPLINK, routers, has_ipv4, BINDING_LIFETIME_SECONDS)?;
    simulated_routers.prepare_next_updates();
    let before = resident_memory_octets(process)?;
    let agent_before = process_seconds(process)?;
    // The sender of the simulated routers runs on another core, if the machine has one.
    let alone = cores.avoid_measuring_core().is_ok();
    let storm = simulated_routers.register_all(MAX_UNACKNOWLEDGED_UPDATES, None)?;
    let agent_s = process_seconds(process)? - agent_before;
    let after = resident_memory_octets(process)?;
    if storm.lost_routers > 0 || storm.wrong_acknowledgements > 0 {
        console::print_step(&format!(
            "{} lost, {} wrong: {:?}",
            storm.lost_routers,
            storm.wrong_acknowledgements,
            simulated_routers.first_error()
        ));
    }
    let seconds = storm.elapsed_ns as f64 / 1e9;
    console::print_step(&format!(
        "{}: {routers} routers, {seconds:.2} s, the home agent ran {agent_s:.2} s",
        path.name()
    ));
    let mut refresh = RefreshFigure::default();
    for _ in 0..plan.renewals_per_router {
        simulated_routers.prepare_next_updates();
        let (agent_before, start) = (process_seconds(process)?, monotonic_now());
        let round = simulated_routers.register_all(usize::MAX, Some(REFRESHES_PER_SECOND))?;
        refresh.agent_processor_seconds += process_seconds(process)? - agent_before;
        refresh.seconds += (monotonic_now() - start) as f64 / 1e9;
        refresh.acknowledged += round.acknowledged_routers;
        refresh.lost += round.lost_routers;
        refresh.wrong_acknowledgements += round.wrong_acknowledgements;
        refresh.longest_ms = refresh.longest_ms.max(round.longest_acknowledgement_time as f64 / 1e6);
    }
    // Convert the time per renewal into the share of a core that all routers would need with a lifetime of 60
    // s.
    let each = refresh.agent_processor_seconds / (refresh.acknowledged.max(1) as f64);
    refresh.agent_core_share = each * f64::from(routers) / REFRESH_PERIOD_SECONDS;
    let memory_refreshed = resident_memory_octets(process)?;
    cores.pin_to_measuring_core()?;
    let mut killed = network.daemons.pop().context("bug: the process that was just started is missing")?;
    killed.send_signal(Signal::SIGKILL);
    killed.wait_at_most(10 * SECOND);
    network.stations.clear();
    network.start_station("ha", &config, programs)?;
    let TestNetwork { stations, daemons, .. } = &mut network;
    let (Some(station), Some(daemon)) = (stations.last(), daemons.last_mut()) else {
        bail!("bug: the home agent's process is missing after its start")
    };
    let restart_s = wait_until_ready(station, daemon)?;
    let missing = count_missing_bindings(station, &simulated_routers)?;
    daemon.send_signal(Signal::SIGTERM);
    daemon.wait_at_most(60 * SECOND);
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(RegistrationsFigure {
        path,
        routers,
        has_ipv4,
        agent_has_own_core: alone,
        start_s,
        seconds,
        per_second: storm.acknowledged_routers as f64 * 1e9 / storm.elapsed_ns.max(1) as f64,
        acknowledged: storm.acknowledged_routers,
        lost: storm.lost_routers,
        wrong_acknowledgements: storm.wrong_acknowledgements,
        repeated_updates: storm.repeated_updates,
        agent_processor_seconds: agent_s,
        longest_ms: storm.longest_acknowledgement_time as f64 / 1e6,
        memory_before_mib: before / 1048576.0,
        memory_mib: after / 1048576.0,
        memory_refreshed_mib: memory_refreshed / 1048576.0,
        octets_per_binding: (after - before) / f64::from(routers.max(1)),
        refresh,
        restart_s,
        missing_bindings: missing,
    })
}

/// Returns how many acknowledged bindings the home agent does not have, or has in an older state.
fn count_missing_bindings(station: &Station, simulated_routers: &SimulatedRouters) -> anyhow::Result<u64> {
    let mut shown = station.show_json("bindings");
    for _ in 1..BINDING_QUERY_ATTEMPTS {
        if shown.is_ok() || has_to_stop() {
            break;
        }
        shown = station.show_json("bindings");
    }
    let shown = shown?;
    let list = shown.as_array().context("carnet show bindings --json printed no array")?;
    let one = |binding: &serde_json::Value| -> Option<(Ipv6Addr, (Ipv6Addr, u64))> {
        let address = |key: &str| binding[key].as_str()?.parse::<Ipv6Addr>().ok();
        Some((address("home_address")?, (address("care_of_address")?, binding["sequence"].as_u64()?)))
    };
    let found: HashMap<Ipv6Addr, (Ipv6Addr, u64)> = list.iter().filter_map(one).collect();
    let has = |who: super::updates::RouterIdentity, sequence: u16| {
        found.get(&who.home_address).is_some_and(|(care_of_address, known)| {
            *care_of_address == who.care_of_address && *known >= u64::from(sequence)
        })
    };
    let acknowledged = simulated_routers
        .acknowledged_sequence_numbers()
        .filter_map(|(who, sequence)| Some((who, sequence?)));
    Ok(acknowledged.filter(|(who, sequence)| !has(*who, *sequence)).count() as u64)
}

/// Measures the given data paths, except those without carnet. Runs without and with an IPv4 prefix for each
/// router alternate.
pub fn measure_registrations(
    paths: &[DataPath],
    plan: &MeasurementPlan,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Vec<RegistrationsFigure>> {
    let mut figures = Vec::new();
    for path in paths.iter().copied().filter(|path| matches!(path, DataPath::Tun | DataPath::Bpf)) {
        for (routers, has_ipv4) in plan.router_counts.iter().flat_map(|it| [(*it, false), (*it, true)]) {
            let figure = measure_router_count(path, routers, has_ipv4, plan, programs, cores)
                .with_context(|| format!("{routers} routers that register, path {}", path.name()))?;
            console::print_step(&format!(
                "{}: {routers} routers{} registered in {:.2} s, {:.0} a second; {:.0} octets each",
                path.name(),
                if has_ipv4 { " with an IPv4 prefix" } else { "" },
                figure.seconds,
                figure.per_second,
                figure.octets_per_binding
            ));
            figures.push(figure);
        }
    }
    Ok(figures)
}
