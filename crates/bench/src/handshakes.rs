//! Measures a home agent at which very many mobile routers with key pairs have sessions. All routers open
//! their sessions at once and register. Then they renew registrations and sessions, and come back after a
//! power cut.
//!
//! One sender plays the routers (`session_routers`), on another core than the home agent if the machine has
//! one. The home agent is the real program with its default config, and with its state on the disk. For the
//! power cut the benchmark kills the home agent (`kill -9`) and starts it again. Every router then renews its
//! registration, finds no answer, and begins a handshake. So does the restarted home agent by its stored
//! routes.

use std::fmt::Write as _;

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::Signal;

use super::MeasurementPlan;
use super::cores::{Cores, process_seconds};
use super::figures::{HandshakesFigure, RefreshFigure};
use super::path::DataPath;
use super::registrations::{build_network, resident_memory_octets, wait_until_ready};
use super::session_routers::{
    RoundPlan, RouterTask, SessionRound, SessionRouters, TUNNEL_PORT, agent_key, mobile_router_config,
};
use super::sessions::{station_config_with_key, write_private_key};
use super::world::{HOME_AGENT_ADDRESS, NodeInterface, Programs, TestNetwork};
use carnet_testbed::clock::{SECOND, monotonic_now};
use carnet_testbed::console;

/// Lifetime that routers request, in seconds. No binding may end while the home agent restarts.
const BINDING_LIFETIME_SECONDS: u16 = 600;
/// Seconds after which a router with a lifetime of 60 s renews its registration.
const REFRESH_PERIOD_SECONDS: f64 = 45.0;
/// Seconds after which a session is renewed (REKEY_AFTER_TIME of WireGuard).
const SESSION_PERIOD_SECONDS: f64 = 120.0;
/// Renewals per second in a round of renewals: of registrations, and of sessions. The second number is below
/// the limit above which a home agent demands cookies.
const REFRESHES_PER_SECOND: f64 = 2000.0;
const SESSION_RENEWALS_PER_SECOND: f64 = 500.0;
/// Time in nanoseconds after which a round ends, also if some routers are not done.
const ROUND_TIME_LIMIT: u64 = 300 * SECOND;
const ROUTER_UPLINK: NodeInterface = NodeInterface { node: "mr", interface: "e0" };

/// Returns the config of a home agent with `routers` mobile routers that have key pairs, with its state in
/// `folder`, if given.
pub fn home_agent_config_with_keys(
    name: &str,
    routers: u32,
    folder: Option<&std::path::Path>,
) -> anyhow::Result<String> {
    let file = write_private_key(name, &agent_key())?;
    let mut text = station_config_with_key(name, &file);
    if let Some(folder) = folder {
        let _ = writeln!(text, "state_dir = \"{}\"", folder.display());
    }
    let _ = write!(
        text,
        "[home_agent]\naddress = \"{HOME_AGENT_ADDRESS}\"\nhome_prefix = \"2001:db8:1::/64\"\n\
         tunnel_port = {TUNNEL_PORT}\n"
    );
    text.extend((0..routers).map(mobile_router_config));
    Ok(text)
}

fn check_round(what: &str, round: &SessionRound, routers: &SessionRouters) {
    console::print_step(&format!(
        "{what}: {} routers in {:.2} s, {} lost, {} wrong, {} cookie replies, {} initiations, longest \
         {:.2} s",
        round.done,
        round.elapsed_ns as f64 / 1e9,
        round.lost,
        round.wrong,
        round.cookie_replies,
        round.initiations,
        round.longest_ns as f64 / 1e9
    ));
    if let Some(complaint) = routers.first_error() {
        console::print_step(complaint);
    }
}

/// Lets all routers renew, and returns the result with the share of a core that renewals at this period need.
fn measure_renewals(
    routers: &mut SessionRouters,
    process: u32,
    task: RouterTask,
    rate: f64,
    period_seconds: f64,
) -> anyhow::Result<RefreshFigure> {
    let (agent_before, start) = (process_seconds(process)?, monotonic_now());
    let plan = RoundPlan { task, routers: 0..routers.len(), rate: Some(rate), time_limit: ROUND_TIME_LIMIT };
    let round = routers.run_round(&plan, || false)?;
    check_round(if task == RouterTask::Register { "renewals" } else { "sessions renewed" }, &round, routers);
    let agent_processor_seconds = process_seconds(process)? - agent_before;
    Ok(RefreshFigure {
        seconds: (monotonic_now() - start) as f64 / 1e9,
        acknowledged: round.done,
        lost: round.lost,
        wrong_acknowledgements: round.wrong,
        agent_processor_seconds,
        longest_ms: round.longest_ns as f64 / 1e6,
        agent_core_share: agent_processor_seconds / round.done.max(1) as f64 * f64::from(routers.len())
            / period_seconds,
    })
}

/// Kills the home agent and starts it again, while all routers renew their registrations. Returns the round
/// and three times in seconds. The first is the time until the home agent is ready, the second the time until
/// all routers are registered. The third is the processor time of the new process.
fn measure_power_cut(
    network: &mut TestNetwork,
    config: &str,
    routers: &mut SessionRouters,
    programs: &Programs,
) -> anyhow::Result<(SessionRound, [f64; 3])> {
    let mut killed = network.daemons.pop().context("bug: the home agent has no process")?;
    killed.send_signal(Signal::SIGKILL);
    killed.wait_at_most(10 * SECOND);
    network.stations.clear();
    let start = monotonic_now();
    let plan = RoundPlan {
        task: RouterTask::Register,
        routers: 0..routers.len(),
        rate: None,
        time_limit: ROUND_TIME_LIMIT,
    };
    std::thread::scope(|scope| {
        let fleet = scope.spawn(move || routers.run_round(&plan, || false));
        network.start_station("ha", config, programs)?;
        let TestNetwork { stations, daemons, .. } = network;
        let (Some(station), Some(daemon)) = (stations.last(), daemons.last_mut()) else {
            bail!("bug: the home agent's process is missing after its start")
        };
        let restart_s = wait_until_ready(station, daemon)?;
        let process = daemon.process_id();
        let round = fleet.join().map_err(|_| anyhow!("bug: the thread of the routers panicked"))??;
        let all_s = (round.elapsed_ns as f64 / 1e9).max((monotonic_now() - start) as f64 / 1e9);
        Ok((round, [restart_s, all_s, process_seconds(process)?]))
    })
}

fn measure_router_count(count: u32, programs: &Programs, cores: &Cores) -> anyhow::Result<HandshakesFigure> {
    let name = format!("handshakes-{count}");
    // The folder is not under /run, because the measurement includes the disk, and /run is in memory.
    let folder = programs.log_folder.join(format!("state-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let config = home_agent_config_with_keys(&format!("{name}.ha"), count, Some(&folder))?;
    cores.pin_to_measuring_core()?;
    let (mut network, start_s) = build_network(&name, DataPath::Tun, &config, programs)?;
    let process = network.daemons.last().context("bug: the home agent has no process")?.process_id();
    // The routers run on another core, if the machine has one.
    let alone = cores.avoid_measuring_core().is_ok();
    let mut routers = SessionRouters::new(&network, ROUTER_UPLINK, count, BINDING_LIFETIME_SECONDS)?;
    let before = resident_memory_octets(process)?;
    let agent_before = process_seconds(process)?;
    let plan = |task| RoundPlan { task, routers: 0..count, rate: None, time_limit: ROUND_TIME_LIMIT };
    let sessions = routers.run_round(&plan(RouterTask::OpenSession), || false)?;
    check_round("sessions", &sessions, &routers);
    let sessions_agent_s = process_seconds(process)? - agent_before;
    let with_sessions = resident_memory_octets(process)?;
    let registrations = routers.run_round(&plan(RouterTask::Register), || false)?;
    check_round("registrations", &registrations, &routers);
    let with_bindings = resident_memory_octets(process)?;
    let refresh = measure_renewals(
        &mut routers,
        process,
        RouterTask::Register,
        REFRESHES_PER_SECOND,
        REFRESH_PERIOD_SECONDS,
    )?;
    let renewal = measure_renewals(
        &mut routers,
        process,
        RouterTask::RenewSession,
        SESSION_RENEWALS_PER_SECOND,
        SESSION_PERIOD_SECONDS,
    )?;
    // The new process inherits the core of this thread.
    cores.pin_to_measuring_core()?;
    let fleet_core = cores.avoid_measuring_core();
    let (cut, [restart_s, cut_s, cut_agent_s]) =
        measure_power_cut(&mut network, &config, &mut routers, programs)?;
    drop(fleet_core);
    check_round("after the power cut", &cut, &routers);
    let memory_after_cut = network.daemons.last().map(|daemon| resident_memory_octets(daemon.process_id()));
    if let Some(mut daemon) = network.daemons.pop() {
        daemon.check_running()?;
        daemon.send_signal(Signal::SIGTERM);
        daemon.wait_at_most(60 * SECOND);
    }
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    let mib = |octets: f64| octets / 1_048_576.0;
    let each = |octets: f64| octets / f64::from(count.max(1));
    Ok(HandshakesFigure {
        routers: count,
        agent_has_own_core: alone,
        start_s,
        sessions_s: sessions.elapsed_ns as f64 / 1e9,
        sessions_lost: sessions.lost,
        initiations: sessions.initiations,
        cookie_replies: sessions.cookie_replies,
        sessions_agent_processor_seconds: sessions_agent_s,
        registrations_s: registrations.elapsed_ns as f64 / 1e9,
        registrations_lost: registrations.lost,
        wrong: registrations.wrong + sessions.wrong + cut.wrong,
        memory_before_mib: mib(before),
        memory_mib: mib(with_bindings),
        memory_after_cut_mib: mib(memory_after_cut.transpose()?.unwrap_or(0.0)),
        octets_per_session: each(with_sessions - before),
        octets_per_binding: each(with_bindings - with_sessions),
        refresh,
        renewal,
        restart_s,
        power_cut_s: cut_s,
        power_cut_lost: cut.lost,
        power_cut_longest_s: cut.longest_ns as f64 / 1e9,
        power_cut_agent_processor_seconds: cut_agent_s,
    })
}

/// Measures each number of routers.
pub fn measure_handshakes(
    measurement_plan: &MeasurementPlan,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Vec<HandshakesFigure>> {
    let mut figures = Vec::new();
    for count in measurement_plan.session_router_counts.iter().copied() {
        let figure = measure_router_count(count, programs, cores)
            .with_context(|| format!("{count} routers with sessions"))?;
        console::print_step(&format!(
            "{count} routers: sessions in {:.2} s, {:.0} octets each; after the power cut {:.2} s",
            figure.sessions_s, figure.octets_per_session, figure.power_cut_s
        ));
        figures.push(figure);
    }
    cores.pin_to_measuring_core()?;
    Ok(figures)
}
