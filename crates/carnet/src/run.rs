//! The event loop: connects the station, the kernel and the operators with each other.
//!
//! One task owns all state. It waits for the next input (a packet, an event of the kernel, a timer, a
//! request, a signal) and passes it to the station. It executes the outputs of the station in their order, so
//! that a route is in place before the packet that needs it leaves.

mod facilities;
mod geonet;
mod lan;
mod packets;
mod reload;
mod requests;
mod sessions;

use std::collections::BTreeMap;
use std::future::pending;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use carnet_api::config::{Config, ConfigErrors, PrivateKey, Sandbox};
use carnet_api::model;
use carnet_base::{OptionalPart, RateLimiter, Rng, Seed, Time};
use carnet_linux::sandbox::{self, EnforcedLimits, SandboxPlan, drop_all_capabilities_except_file_access};
use carnet_linux::signal_strength::{SignalReader, SignalReport};
use carnet_linux::{
    DatagramReader, DatagramSockets, DatagramWriter, DeadlineAlarm, IpsecSocket, Platform, PlatformEvent,
    ProbeTarget, TunDevice, TunnelReader, TunnelWriter, clock, geonet_path, run_with_secrets,
};
use carnet_nemo::forwarding::desired::{EntryChange, ForwardingEntry, InterfaceAddress};
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_station::io::{
    Command, Event, GeonetOutput, Input, NemoOutput, Output, PortalProbe, StoredStatePart, TunnelTraffic,
};
use carnet_station::{PersistentState, Station};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, interval_at, sleep, timeout};
use tracing::{error, info, warn};

use crate::facilities::Applications;
use crate::geonet::{GEONET_BUILT_IN, Geonet, next_event as next_geonet_event, sleep_until};
use crate::lan::{LanEvent, LanServices};
use crate::record::{Recorder, RecordingHeader};
use crate::sessions::{SESSIONS_BUILT_IN, Sessions};
use crate::settings::security::{LoadedSecurity, load_security};
use crate::state::{
    InputOutputs, OpenedState, OutputTreatment, StandbyEnded, StateStore, StorageLocation, WriterEvent,
    record_of_state_part,
};
use crate::upper_tester::{self, UPPER_TESTER_BUILT_IN, UpperTester};
use crate::{answers, crash, http, log, settings};

use lan::LanEventLimits;
use packets::ReadPause;

/// Time for which a stopping station waits until the home agent acknowledges the de-registration.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which a mostly idle station returns memory to the kernel. Most of this memory is program code
/// that a request, a reload or a registration has used.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Time after the start at which the station first returns memory. It is registered by then, and no longer
/// needs the code that runs only at the start.
const FIRST_IDLE_CHECK: Duration = Duration::from_secs(2);
/// Number of wake-ups by packets during [`IDLE_CHECK_INTERVAL`] below which the station counts as mostly
/// idle.
const MAX_IDLE_WAKE_UPS: u32 = 100;
/// Maximum number of consecutive failures to read the kernel's state with which the station continues. After
/// each failure it pauses for `PAUSE_AFTER_FAILURE`.
pub const MAX_CONSECUTIVE_FAILURES: u32 = 20;
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Number of refused Binding Updates that are logged at once. After that, one refusal is logged per
/// [`REFUSAL_LOG_INTERVAL`], because any host can send Binding Updates. The counters count all refusals.
const REFUSAL_LOG_BURST: u32 = 10;
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum interval between two checks of this machine's settings after events that report a failure.
const SETTINGS_RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Largest number of characters in the message of an event.
const MAX_EVENT_MESSAGE_LENGTH: usize = 1000;
/// Number of the random number stream that the services for hosts on board use.
const LAN_RANDOM_STREAM: u64 = 3;
const MAX_WAITING_REQUESTS: usize = 64;
const EVENT_BUFFER_LENGTH: usize = 1024;

/// Reads a config. No copy of its keys stays in memory except in the config itself.
///
/// # Errors
/// Returns the mistakes in the config file.
pub fn load_config(path: &Path) -> Result<Box<Config>, ConfigErrors> {
    run_with_secrets(|| Config::load_file(path).map(Box::new))
}

/// Reads the private keys again when this process has become the leader. The operator may have replaced them
/// while the process was a standby.
fn read_private_keys_again(config: &mut Config) {
    let Some(key) = &mut config.station.private_key else { return };
    match run_with_secrets(|| PrivateKey::read(key.key_file.clone())) {
        Ok(read) => {
            key.wipe();
            *key = read;
        }
        Err(error) => {
            warn!("this home agent continues with the private key that it read at its start: {error}")
        }
    }
}

/// Sets the state directory of the config to the path of the store. The rest of the program then treats the
/// station as one that stores its state.
fn set_state_directory(config: &mut Config, store: Option<&Path>) {
    if let Some(store) = store {
        config.station.state_dir = store.parent().map(Path::to_owned);
    }
}

/// Runs a station until SIGTERM or SIGINT.
///
/// # Errors
/// Returns an error if the station cannot start, or if the kernel fails repeatedly. Before it returns, the
/// station removes its routes and settings.
pub async fn run_station(mut config: Box<Config>, path: &Path, store: Option<&Path>) -> anyhow::Result<()> {
    set_state_directory(&mut config, store);
    let directory = config.station.socket.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;

    // This check comes before the station uses the undo file beside the socket: that file may belong to
    // another running station.
    http::is_stale_socket(&config.station.socket)?;
    if let Err(error) = geonet_path::remove_leftovers() {
        warn!("cannot remove the network devices that an earlier run of carnet left: {error}");
    }
    if config.has_ipsec() {
        carnet_linux::prepare_ipsec();
    }
    // The process gives up its rights before it has threads, and before it receives any input from outside.
    let (plan, sandbox) = confine_process(&config, path)?;
    // Open the stored state first: if the state is unusable, the station must create nothing.
    let opening = OpenedState::open_storage(
        StorageLocation::from_options(store, config.station.state_dir.as_deref()),
        &config.station.name,
    )?;
    if let Some(directory) = &config.station.state_dir {
        crash::set_report_location(directory, &config.station.name);
    }
    let geonet = match &config.geonet {
        Some(geonet) if GEONET_BUILT_IN => {
            let (wants, uplinks) =
                (settings::geonet_path(&config), settings::interface_roles(&config).uplinks);
            let (undo, facilities) = (settings::link_undo_file(&config), config.facilities.is_some());
            let opened = Geonet::open_link(geonet, &undo, wants, uplinks, facilities);
            open_optional(&config, "GeoNetworking", opened)?
        }
        _ => None,
    };
    let upper_tester = match &config.conformance {
        Some(conformance) => open_optional(&config, "the upper tester", UpperTester::open_port(conformance))?,
        None => None,
    };
    let mut alarm = DeadlineAlarm::new()?;
    let mut sources = settings::signal_sources(&config);
    let mut signals = SignalReader::open(sources.clone());
    let mut counted = settings::counted_uplinks(&config);
    let mut counting = self::octet_count_timer(&config);
    warn_of_own_address(&config);
    let mut platform = open_platform(&config)?;
    // The warnings come after the steps that often fail. If one of these steps fails, the log has only its
    // reason.
    for warning in config.warnings() {
        warn!("{warning}");
    }
    let seed = Seed::Octets(clock::random_octets().context("cannot get randomness from the kernel")?);
    if let Some(platform) = &mut platform {
        start_fast_path(platform, &config, carnet_nemo::Nemo::flow_label_key_of(Rng::from_seed(seed)))?;
        if store.is_some() && platform.path_being_loaded().is_some() {
            let obstacles = platform.wait_for_fast_path().await;
            log_data_path(platform, &config, &obstacles)?;
        }
    }
    // With a store (in a fleet), this call waits until the station becomes the leader. All slow preparations
    // come before it.
    let waits = opening.standby_connection()?;
    let mut opening = tokio::task::spawn_blocking(|| {
        drop_all_capabilities_except_file_access();
        StateStore::open_state(opening)
    });
    let opened = tokio::select! {
    opened = &mut opening => {
    Some(opened?).filter(|opened| !opened.as_ref().is_err_and(|error| error.is::<StandbyEnded>()))
    }
    _ = terminate.recv() => None,
    _ = interrupt.recv() => None,
    };
    let Some(opened) = opened else {
        // The program cannot end while a thread waits for the store. Shutting the socket down ends the wait.
        if let Some(stream) = waits {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        if let Some(Err(error)) = platform.map(Platform::close) {
            error!("{error}");
        }
        return Ok(());
    };
    drop(waits);
    let (state, kept, warning) = opened?;
    if let Some(warning) = warning {
        warn!("{warning}");
    }
    if store.is_some() {
        read_private_keys_again(&mut config);
    }
    // The runner is on the heap, because moving it would leave a copy of the mobile router's key in memory.
    let mut runner = run_with_secrets(|| {
        StationRunner::new(config, platform, OptionalPart::new(geonet), seed, (state, kept)).map(Box::new)
    })?;
    runner.upper_tester = OptionalPart::new(upper_tester);
    (runner.sandbox_plan, runner.enforced_limits) = (plan, sandbox);
    runner.open_session_socket()?;
    runner.drop_bpf_rights();
    runner.carry_out_outputs();
    runner.pass_link_mtu_to_station();
    runner.update_fast_path();
    // Reading config and state needed several times their size. Return this memory now.
    carnet_linux::return_free_memory();
    if let Some(why) = runner.geonet.get_mut().and_then(|geonet| geonet.interfaces.take_failure()) {
        let why = format!("cannot create geonet.ipv6_interface: {why}");
        if runner.platform.is_none() {
            runner.close_station().await;
            bail!(why);
        }
        runner.report_event(&Event::Warning {
            message: format!("the station continues without IPv6 over GeoNetworking: {why}"),
        });
    }
    let (requests, mut inbox) = mpsc::channel(MAX_WAITING_REQUESTS);
    let station = &runner.config.station;
    let server =
        http::serve_api(&station.socket, station.tcp_api.as_ref(), requests, runner.events.clone()).await;
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            runner.close_station().await;
            return Err(error);
        }
    };
    info!(
        "station {} is running; its API socket is {}",
        runner.config.station.name,
        server.socket().display()
    );
    runner.log_encryption();
    runner.pass_own_key_to_station();
    runner.log_sandbox();
    runner.report_uplink_changes();
    runner.warn_of_missing_interfaces();
    // The notification has an effect only if systemd's NOTIFY_SOCKET is in the environment.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    carnet_linux::return_code_pages();
    #[cfg(debug_assertions)]
    if let Some(message) = std::env::var_os("CARNET_TEST_PANIC") {
        panic!("{}", message.display());
    }

    let tunnel = runner.platform.as_ref().map(Platform::tunnel_device);
    let datagrams = runner.platform.as_ref().map(Platform::datagram_sockets);
    let mut protected = runner.ipsec_socket();
    let mut geonet_failures = 0;
    let (mut resting, mut bursts) = (idle_check_timer(), 0);
    let mut probed =
        runner.portal_probes.result_receiver.take().context("the results of probes are taken once")?;
    // Stored leases identify hosts. Read the addresses at which these hosts have answered before this start.
    runner.verify_neighbours(clock::now());
    let result = loop {
        let due = runner.poll_timeout();
        let step = tokio::select! {
        ready = packets_readable(tunnel.as_ref(), runner.read_pause.no_reads_until()) => match ready {
        Ok(()) => {
        bursts += 1;
        runner.read_tunnel_packets().await;
        Ok(())
        }
        Err(error) => Err(anyhow::Error::from(error).context("cannot read from the tunnel device")),
        },
        ready = datagrams_readable(datagrams.as_ref()) => match ready {
        Ok(()) => {
        bursts += 1;
        runner.handle_datagrams().await;
        Ok(())
        }
        Err(error) => Err(anyhow::Error::from(error).context("cannot read from a tunnel socket")),
        },
        ready = protected.readable() => {
        runner.read_protected_messages(&protected);
        ready.map_err(|error| anyhow::Error::from(error).context("cannot read from the raw socket \
                         for messages under IPsec"))
        }
        event = next_event(runner.platform.as_mut()) => match event {
        Ok(PlatformEvent::DataPath(obstacles)) => runner.log_loaded_data_path(&obstacles),
        Ok(event) => {
        runner.process_kernel_event(event);
        Ok(())
        }
        // The failure may be temporary; the next call reads all state of the kernel again.
        Err(error) if runner.may_continue_after_failure() && !error.is_fatal() => {
        error!("cannot handle events of the kernel: {error}; carnet will read the kernel's state again");
        sleep(PAUSE_AFTER_FAILURE).await;
        Ok(())
        }
        Err(error) => Err(error.into()),
        },
        signal = signals.next() => {
        runner.handle_input(match signal {
        SignalReport::Strength { interface, dbm } => Input::Signal { interface, dbm },
        SignalReport::Roaming { interface, roaming } => Input::Roaming { interface, roaming },
        });
        runner.report_uplink_changes();
        Ok(())
        }
        _ = counting.tick(), if !counted.is_empty() => {
        runner.count_interfaces(&counted);
        runner.report_uplink_changes();
        Ok(())
        }
        waited = alarm.wait_until(due) => {
        runner.handle_sessions();
        if runner.is_station_timer_due() {
        runner.count_tunnels();
        runner.handle_input(Input::Timeout);
        }
        waited.map_err(anyhow::Error::from)
        }
        event = next_geonet_event(&mut runner.geonet) => {
        bursts += 1;
        match event.and_then(|event| runner.handle_geonet_event(event)) {
        Ok(()) if runner.geonet_path_refusal.is_some() => runner.handle_missing_geonet_path(),
        Ok(()) => {
        geonet_failures = 0;
        Ok(())
        }
        Err(error) if geonet_failures < MAX_CONSECUTIVE_FAILURES => {
        geonet_failures += 1;
        error!("cannot use the sockets of GeoNetworking: {error}; carnet will try again");
        sleep(PAUSE_AFTER_FAILURE).await;
        Ok(())
        }
        Err(error) if runner.platform.is_some() => {
        runner.stop_geonet(&error.to_string());
        Ok(())
        }
        Err(error) => Err(error.into()),
        }
        }
        event = next_lan_event(&mut runner.lan_services) => {
        runner.handle_lan_event(event);
        Ok(())
        }
        news = runner.state.next_writer_event() => runner.handle_writer_event(news),
        (tester, message) = upper_tester::next_message(&mut runner.upper_tester) => {
        runner.execute_tester_command(tester, message);
        Ok(())
        }
        _ = resting.tick() => {
        if std::mem::take(&mut bursts) < MAX_IDLE_WAKE_UPS {
        carnet_linux::return_free_memory();
        carnet_linux::return_code_pages();
        }
        Ok(())
        }
        Some((interface, probe)) = probed.recv() => {
        runner.portal_probes.is_busy = false;
        runner.handle_input(Input::PortalProbe { interface, probe });
        Ok(())
        }
        Some(request) = inbox.recv() => {
        runner.answer_request(request);
        Ok(())
        }
        _ = hangup.recv() => {
        run_with_secrets(|| runner.reload_config(path, store));
        protected = runner.ipsec_socket();
        let wanted = settings::signal_sources(&runner.config);
        if wanted != sources {
        signals.set_sources(wanted.clone());
        sources = wanted;
        }
        counted = settings::counted_uplinks(&runner.config);
        counting = self::octet_count_timer(&runner.config);
        Ok(())
        }
        _ = terminate.recv() => break Ok(()),
        _ = interrupt.recv() => break Ok(()),
        };
        if let Err(error) = step {
            break Err(error);
        }
    };

    info!("station {} is stopping", runner.config.station.name);
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    if result.is_ok() {
        runner.count_interfaces(&counted);
        runner.handle_input(Input::Command(Command::Shutdown));
        let _ = timeout(SHUTDOWN_TIMEOUT, runner.deregister(tunnel.as_ref(), datagrams.as_ref())).await;
    }
    server.shutdown().await;
    runner.close_station().await;
    result
}

/// Returns a part of the program on which the vehicle's network does not depend. If the part fails to open, a
/// mobile router or home agent continues without it, and the result is `None`. For a station without these
/// roles, the failure is an error.
fn open_optional<T>(config: &Config, what: &str, opened: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match opened {
        Ok(part) => Ok(Some(part)),
        Err(error) if settings::needs_platform(config) => {
            warn!("the station continues without {what} until a restart: {error:#}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Gives up the rights that the station does not need; see [`carnet_linux::sandbox`].
fn confine_process(config: &Config, path: &Path) -> anyhow::Result<(SandboxPlan, Option<EnforcedLimits>)> {
    if config.station.sandbox == Sandbox::Off {
        return Ok((SandboxPlan::default(), None));
    }
    let plan = settings::sandbox::sandbox_plan(config, path);
    let held = sandbox::enter_sandbox(&plan);
    if config.station.sandbox == Sandbox::Required && !held.missing_limits.is_empty() {
        bail!(
            "cannot restrict the process as station.sandbox = \"required\" demands: {}",
            held.missing_limits.join("; ")
        );
    }
    Ok((plan, Some(held)))
}

/// Opens the kernel's networking if the station needs it. A station that does only GeoNetworking needs no
/// tunnel device. It only removes the entries and settings of an earlier run with other roles.
fn open_platform(config: &Config) -> anyhow::Result<Option<Platform>> {
    if settings::needs_platform(config) {
        return Ok(Some(Platform::open(settings::platform_config(config))?));
    }
    if settings::undo_file(config).exists() {
        let cleaned = Platform::open(settings::platform_config(config)).and_then(Platform::close);
        if let Err(error) = cleaned {
            warn!("cannot remove the routes, rules and settings that an earlier run of carnet left: {error}");
        }
    }
    Ok(None)
}

/// Warns if an interface of this machine has the home agent's address. The station then receives no Binding
/// Updates, because the kernel answers them with a Parameter Problem for the Home Address option (RFC 8200
/// 4.2).
fn warn_of_own_address(config: &Config) {
    let Some(agent) = &config.home_agent else { return };
    let is_local = |address: Ipv6Addr| std::net::UdpSocket::bind((address, 0)).is_ok();
    // No machine has the second address, which is in 100::/64 (RFC 6666). If it can be bound too, the kernel
    // permits to bind any address, and the first bind proves nothing.
    if is_local(agent.address) && !is_local(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1)) {
        warn!(
            "this machine has home_agent.address {} on an interface: mobile routers cannot register over \
             IPv6 until you remove it from the interface",
            agent.address
        );
    }
}

/// Returns the timer for checks whether the station is mostly idle.
fn idle_check_timer() -> Interval {
    let mut resting = interval_at(Instant::now() + FIRST_IDLE_CHECK, IDLE_CHECK_INTERVAL);
    resting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    resting
}

/// Waits for packets of the tunnel device. Waits for control messages only from `control_from` on. Without a
/// tunnel device it never returns.
async fn packets_readable(tunnel: Option<&TunDevice>, control_from: Option<Instant>) -> std::io::Result<()> {
    match tunnel {
        Some(tunnel) => tunnel.readable(control_from).await,
        None => pending().await,
    }
}

/// Returns the timer for counting the octets of the uplinks.
fn octet_count_timer(config: &Config) -> Interval {
    let mut counting = interval(settings::counting_interval(config));
    counting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    counting
}

/// Waits for tunnel packets over IPv4 or UDP; without sockets for them it never returns.
async fn datagrams_readable(datagrams: Option<&DatagramSockets>) -> std::io::Result<()> {
    match datagrams {
        Some(datagrams) => datagrams.readable().await,
        None => pending().await,
    }
}

/// Waits for an event of the kernel; without a platform it never returns.
async fn next_event(platform: Option<&mut Platform>) -> carnet_linux::Result<PlatformEvent> {
    match platform {
        Some(platform) => platform.next_event().await,
        None => pending().await,
    }
}

/// Waits for an event of the services for hosts. Returns `None` when one of their timers has run out.
async fn next_lan_event(lan: &mut LanServices) -> Option<LanEvent> {
    let due = lan.poll_timeout();
    tokio::select! {
    event = lan.next_event() => Some(event),
    () = sleep_until(due) => None,
    }
}

/// Starts the fast path that the config allows. While a thread loads programs, the TUN device forwards.
fn start_fast_path(platform: &mut Platform, config: &Config, flow_label_key: u64) -> anyhow::Result<()> {
    let obstacles = platform.open_fast_path(&settings::fast_path_config(config, flow_label_key));
    if let Some(path) = platform.path_being_loaded() {
        info!("all packets take the TUN device until the data path {:?} is loaded", path.name());
    }
    obstacles.map_or(Ok(()), |obstacles| log_data_path(platform, config, &obstacles))
}

/// Logs which data path the station uses.
///
/// # Errors
/// Returns an error if the config demands a data path that the station does not have.
fn log_data_path(
    platform: &Platform,
    config: &Config,
    obstacles: &[(carnet_linux::DataPath, String)],
) -> anyhow::Result<()> {
    let wanted = settings::fast_path_config(config, 0);
    let path = platform.data_path();
    for (obstacle, why) in obstacles {
        info!("cannot use the data path {:?}: {why}", obstacle.name());
    }
    if let (false, Some((obstacle, why))) = (wanted.paths_by_preference.contains(&path), obstacles.last()) {
        bail!(
            "dataplane.path = {:?} cannot be used: {why}; expected {}, or \"auto\"",
            obstacle.name(),
            settings::requirements_of_path(*obstacle)
        );
    }
    info!("packets take the data path {:?}", path.name());
    if path == carnet_linux::DataPath::Kernel && wanted.interface_roles.direct_routes_enabled {
        warn!(
            "direct routes are off: their messages arrive at the kernel's own tunnel devices, where carnet \
             cannot read them"
        );
    }
    Ok(())
}

/// The station, with the parts that execute its outputs.
struct StationRunner {
    /// Config without its keys; the station has the keys that it needs.
    config: Box<Config>,
    station: Station,
    /// The kernel's networking. `None` if the station does only GeoNetworking; then it has no tunnel device
    /// either.
    platform: Option<Platform>,
    /// Encrypted sessions; `None` if all tunnels are in the clear.
    encrypted_sessions: OptionalPart<Sessions, SESSIONS_BUILT_IN>,
    tunnel_reader: Option<TunnelReader>,
    tunnel_writer: Option<TunnelWriter>,
    datagram_reader: Option<DatagramReader>,
    datagram_writer: Option<DatagramWriter>,
    /// Time at which packets woke the program last.
    woken_by_packets_at: Time,
    read_pause: ReadPause,
    /// Whether the platform has executed changes that have not been passed to the fast path yet.
    fast_path_outdated: bool,
    geonet: OptionalPart<Geonet, GEONET_BUILT_IN>,
    /// Applications that send and receive messages; `None` without facilities.
    applications: OptionalPart<Applications, GEONET_BUILT_IN>,
    /// Services for hosts of the mobile network.
    lan_services: LanServices,
    lan_event_limits: LanEventLimits,
    upper_tester: OptionalPart<UpperTester, UPPER_TESTER_BUILT_IN>,
    state: StateStore,
    recorder: Recorder,
    events: broadcast::Sender<Value>,
    started_at: Time,
    /// Rights that the process has kept; `None` if it has given up no rights.
    enforced_limits: Option<EnforcedLimits>,
    sandbox_plan: SandboxPlan,
    packet_buffer: PacketBuffer,
    /// Packet counts of the fast path that were last passed to the station.
    last_tunnel_traffic: Vec<TunnelTraffic>,
    /// Outputs of the frames of a batch that is being received; empty at other times.
    waiting_outputs: Vec<Output>,
    refusal_limiter: RateLimiter,
    /// Uplinks of the config, and whether each was usable at the last check.
    uplink_states: BTreeMap<String, bool>,
    /// Rate limit of checks of this machine's settings after events that report a failure.
    warning_limiter: RateLimiter,
    portal_probes: PortalProbes,
    /// Reason why GeoNetworking cannot use the fast path although the config demands it; otherwise `None`.
    geonet_path_refusal: Option<String>,
}

/// HTTP requests that detect captive portals. One runs at a time, in a task outside of the run loop.
struct PortalProbes {
    result_sender: mpsc::Sender<(String, PortalProbe)>,
    result_receiver: Option<mpsc::Receiver<(String, PortalProbe)>>,
    is_busy: bool,
}

impl PortalProbes {
    fn new() -> PortalProbes {
        let (results, inbox) = mpsc::channel(1);
        PortalProbes { result_sender: results, result_receiver: Some(inbox), is_busy: false }
    }

    /// Starts a request over an uplink. If another request is running, does nothing: the station asks again
    /// later.
    fn begin_probe(&mut self, target: ProbeTarget, uplink: String, sources: Vec<IpAddr>) {
        if !std::mem::replace(&mut self.is_busy, true) {
            let results = self.result_sender.clone();
            tokio::spawn(async move {
                let found = target.request_probe(&uplink, &sources).await;
                let _ = results.send((uplink, found)).await;
            });
        }
    }
}

impl StationRunner {
    fn new(
        mut config: Box<Config>,
        platform: Option<Platform>,
        mut geonet: OptionalPart<Geonet, GEONET_BUILT_IN>,
        seed: Seed,
        (mut state, kept): (StateStore, PersistentState),
    ) -> anyhow::Result<StationRunner> {
        let header = RecordingHeader {
            seed,
            time: clock::now(),
            wall: clock::wall_time(),
            state: kept,
            gn_address: geonet.get().and_then(Geonet::address).map(|address| address.0),
        };
        let furnished = load_security(&config, Rng::independent_of_seed(header.seed), header.wall);
        let LoadedSecurity { security_entity: security, operator_warnings: warnings } = match furnished {
            Ok(furnished) => furnished,
            // If signing fails, the station must not send unsigned packets. It continues without
            // GeoNetworking.
            Err(error) if platform.is_some() => {
                warn!("the station continues without GeoNetworking until a restart: {error:#}");
                if let Some(Err(error)) = geonet.get_mut().map(Geonet::restore_interface) {
                    error!("{error}");
                }
                geonet.take();
                LoadedSecurity { security_entity: None, operator_warnings: Vec::new() }
            }
            Err(error) => return Err(error),
        };
        for warning in warnings {
            warn!("{warning}");
        }
        let recorder = Recorder::create_recorder(config.station.recording_file.as_deref(), &header);
        let recorder = open_optional(&config, "the recording", recorder)?.unwrap_or_default();
        let station_config = settings::station_config(&config, geonet.get().and_then(Geonet::address));
        let records = state.take_session_records();
        let sessions = Sessions::new(&config, header.time, state.is_shared().then_some(&records[..]))?;
        config.wipe_keys();
        let served = settings::home_addresses(&config);
        let (known, others): (Vec<_>, Vec<_>) =
            header.state.home_agent.iter().partition(|node| served.contains(&node.home_address));
        let known: Vec<_> = known.into_iter().map(|node| node.home_address).collect();
        let others: Vec<_> = others.into_iter().cloned().collect();
        let rng = Rng::from_seed(header.seed);
        let mut station = Station::new(station_config, header.state, rng, header.time, header.wall);
        if let Some(entity) = security {
            station.start_security(header.time, header.wall, entity);
        }
        let times = (header.time, header.wall);
        let rng = Rng::from_seed(header.seed).separate_stream(LAN_RANDOM_STREAM);
        let lan = LanServices::new(&config, &state.take_stored_leases(), rng, times);
        let mut runner = StationRunner {
            station,
            lan_services: lan,
            lan_event_limits: LanEventLimits::new(),
            applications: OptionalPart::new(
                config.facilities.as_ref().map(|_| Applications::new(&config.station.name)),
            ),
            config,
            encrypted_sessions: OptionalPart::new(sessions),
            tunnel_reader: platform.as_ref().map(|platform| TunnelReader::new(platform.tunnel_device())),
            tunnel_writer: platform.as_ref().map(|platform| TunnelWriter::new(platform.tunnel_device())),
            datagram_reader: platform
                .as_ref()
                .map(|platform| DatagramReader::new(platform.datagram_sockets())),
            datagram_writer: platform
                .as_ref()
                .map(|platform| DatagramWriter::new(platform.datagram_sockets())),
            woken_by_packets_at: Time::ZERO,
            read_pause: ReadPause::default(),
            fast_path_outdated: false,
            platform,
            geonet,
            upper_tester: OptionalPart::new(None),
            state,
            recorder,
            events: broadcast::channel(EVENT_BUFFER_LENGTH).0,
            started_at: header.time,
            enforced_limits: None,
            sandbox_plan: SandboxPlan::default(),
            packet_buffer: PacketBuffer::new(),
            last_tunnel_traffic: Vec::new(),
            waiting_outputs: Vec::new(),
            refusal_limiter: RateLimiter::new(REFUSAL_LOG_BURST, REFUSAL_LOG_INTERVAL),
            uplink_states: BTreeMap::new(),
            warning_limiter: RateLimiter::new(1, SETTINGS_RECHECK_INTERVAL),
            portal_probes: PortalProbes::new(),
            geonet_path_refusal: None,
        };
        // Store the station's own record, which counts the starts of the home agent. For nodes that the home
        // agent no longer serves, only the replay protection remains; a node without state has no record. If
        // the station has no home agent now, all records remain for a home agent of a later config.
        runner.store_state_part(StoredStatePart::Own);
        let now = |runner: &StationRunner, home_address| {
            runner.station.nemo().stored_binding(header.time, header.wall, home_address)
        };
        for home_address in known {
            if now(&runner, home_address).is_none() {
                runner.store_state_part(StoredStatePart::Node(home_address));
            }
        }
        for stored in others {
            if now(&runner, stored.home_address) != Some(stored.clone()) {
                runner.store_state_part(StoredStatePart::Node(stored.home_address));
            }
        }
        runner.state.commit_changes(true);
        Ok(runner)
    }

    /// Stores a part of the state. Returns `true` if packets that report this part to a peer must wait until
    /// it is on the disk.
    fn store_state_part(&mut self, state_part: StoredStatePart) -> bool {
        if !self.state.is_state_stored() {
            return false;
        }
        match record_of_state_part(&self.station, (clock::now(), clock::wall_time()), state_part) {
            Ok((change, holds)) => {
                self.state.set_record(change);
                holds
            }
            Err(error) => {
                error!("cannot write the bindings to station.state_dir: {error}");
                true
            }
        }
    }

    /// Handles a result of the thread that writes the state: sends the packets that waited for the disk.
    ///
    /// # Errors
    /// Returns an error if the thread cannot store any further state.
    fn handle_writer_event(&mut self, event: WriterEvent) -> anyhow::Result<()> {
        let lost = matches!(event, WriterEvent::Lost(_));
        let written = match event {
            WriterEvent::Written(commit) => Some(commit),
            _ => None,
        };
        if let Some(commit) = written {
            self.lan_services.release_written(clock::now(), commit);
        }
        let (packets, told) = self.state.handle_writer_event(event);
        if lost {
            bail!(told.unwrap_or_default());
        }
        for packet in packets {
            self.carry_out_output(packet);
        }
        if let Some(commit) = written {
            self.release_session_datagrams(commit);
        }
        self.flush_packets();
        if let Some(message) = told {
            self.report_event(&Event::Warning { message });
        }
        Ok(())
    }

    /// Stops GeoNetworking after repeated failures. The vehicle's network continues without it.
    fn stop_geonet(&mut self, why: &str) {
        if let Some(Err(error)) = self.geonet.get_mut().map(Geonet::restore_interface) {
            error!("{error}");
        }
        self.geonet.take();
        let message = format!("GeoNetworking has failed and is off until a restart: {why}");
        self.report_event(&Event::Warning { message });
    }

    /// Handles the case that the config demands a fast path for GeoNetworking but the station has no fast
    /// path. The station ends if it has no other role.
    fn handle_missing_geonet_path(&mut self) -> anyhow::Result<()> {
        let why = self.geonet_path_refusal.take().unwrap_or_default();
        if self.platform.is_none() {
            bail!(why);
        }
        self.stop_geonet(&why);
        Ok(())
    }

    /// Gives up the right to load BPF programs once no program has to be loaded any more.
    fn drop_bpf_rights(&mut self) {
        let path = self
            .platform
            .as_ref()
            .map(|platform| platform.path_being_loaded().unwrap_or(platform.data_path()));
        if let Some(held) = &mut self.enforced_limits
            && (self.sandbox_plan.loads_bpf_programs || self.sandbox_plan.loads_steering_program)
            && !settings::sandbox::loads_programs_later(&self.config, path)
        {
            held.drop_program_loading();
        }
    }

    /// Logs the data path once the programs have been loaded.
    fn log_loaded_data_path(&mut self, obstacles: &[(carnet_linux::DataPath, String)]) -> anyhow::Result<()> {
        if let Some(platform) = &self.platform {
            log_data_path(platform, &self.config, obstacles)?;
        }
        self.drop_bpf_rights();
        // Loading the programs has used code and memory that this process no longer needs. Return this memory
        // now.
        carnet_linux::return_free_memory();
        carnet_linux::return_code_pages();
        Ok(())
    }

    /// Returns whether the station may pause and then continue after it could not read the kernel's state.
    fn may_continue_after_failure(&self) -> bool {
        self.platform
            .as_ref()
            .is_some_and(|platform| platform.consecutive_failures() <= MAX_CONSECUTIVE_FAILURES)
    }

    /// Passes the fast path's packet counts to the station of a mobile router. The fast path's programs count
    /// in shared memory, so reading the counts costs no system call.
    fn count_tunnels(&mut self) {
        if self.station.mobile_router().is_none() {
            return;
        }
        let Some(counted) = self.platform.as_ref().map(Platform::tunnel_traffic) else { return };
        let mut traffic: Vec<TunnelTraffic> = counted
            .into_iter()
            .map(|((local, remote), it)| TunnelTraffic {
                local,
                remote,
                sent: it.encapsulated_packets,
                received: it.decapsulated_packets,
            })
            .collect();
        traffic.sort_by_key(|it| (it.local, it.remote));
        if traffic != self.last_tunnel_traffic {
            self.last_tunnel_traffic.clone_from(&traffic);
            self.handle_input(Input::TunnelTraffic(traffic));
        }
    }

    /// Passes the octet counters of these interfaces to the station.
    fn count_interfaces(&mut self, interfaces: &[String]) {
        for interface in interfaces {
            match self.platform.as_mut().map(|platform| platform.interface_octets(interface)) {
                Some(Ok(Some(octets))) => {
                    self.handle_input(Input::Octets { interface: interface.clone(), octets });
                }
                // Ignore the error: the next reading also includes the octets since the last successful
                // reading.
                Some(Err(error)) => tracing::debug!("{error}"),
                Some(Ok(None)) | None => {}
            }
        }
    }

    /// Returns the socket for Mobility Header messages that IPsec protects.
    fn ipsec_socket(&self) -> IpsecSocket {
        self.platform.as_ref().map(Platform::ipsec_socket).unwrap_or_default()
    }

    /// Logs once which rights the process still has. The operator may be able to complete the sandbox.
    fn log_sandbox(&self) {
        let Some(held) = &self.enforced_limits else {
            warn!("station.sandbox = \"off\": the process keeps all rights with which it was started");
            return;
        };
        for lacking in &held.missing_limits {
            warn!("{lacking}");
        }
        for remark in &held.operator_remarks {
            info!("{remark}");
        }
        let capabilities = if held.remaining_capabilities.is_empty() {
            "none".into()
        } else {
            held.remaining_capabilities.join(" ")
        };
        let landlock = held.landlock_abi.map_or("no Landlock".into(), |abi| format!("Landlock {abi}"));
        let seccomp = if held.seccomp_enabled { "seccomp" } else { "no seccomp" };
        info!("the sandbox is active: capabilities {capabilities}; {landlock}; {seccomp}");
    }

    /// Warns if the machine lacks interfaces of the config, because the operator gets no other message about
    /// them.
    fn warn_of_missing_interfaces(&mut self) {
        for message in settings::missing_interfaces(&self.config) {
            self.report_event(&Event::Warning { message });
        }
    }

    /// Returns, in words, the settings of this machine with which the station cannot work well.
    fn obstacle_messages(&self) -> Vec<String> {
        self.platform.as_ref().map(Platform::obstacle_messages).unwrap_or_default()
    }

    /// Reports an event for each uplink that has become usable or unusable since the last call.
    fn report_uplink_changes(&mut self) {
        let before = std::mem::take(&mut self.uplink_states);
        for uplink in self.station.nemo().uplink_status(clock::now()) {
            let reason = uplink.state.strip_prefix("down: ").map(str::to_owned);
            let usable = reason.is_none();
            let name = uplink.interface;
            if before.get(&name).is_some_and(|before| *before != usable) {
                self.report_event(&Event::Uplink { uplink: name.clone(), usable, reason });
            }
            self.uplink_states.insert(name, usable);
        }
    }

    fn process_kernel_event(&mut self, event: PlatformEvent) {
        let is_of_interface =
            matches!(event, PlatformEvent::Interface(_) | PlatformEvent::InterfaceGone { .. });
        self.handle_kernel_event(event);
        if is_of_interface {
            self.prepare_sessions();
            self.report_uplink_changes();
        }
    }

    fn handle_kernel_event(&mut self, event: PlatformEvent) {
        if let PlatformEvent::Notice(message) = event {
            return self.report_event(&Event::Warning { message });
        }
        if let PlatformEvent::InterfaceGone { name } = &event
            && let Some(message) = settings::obstacle_without_interface(&self.config, name)
        {
            self.report_event(&Event::Warning { message });
        }
        match &event {
            PlatformEvent::Interface(interface) => {
                let router = self.config.mobile_router.as_ref();
                let is_lan = router.is_some_and(|router| {
                    router.lan_interfaces.iter().any(|lan| lan.interface == interface.name)
                });
                self.lan_services.handle_interface(clock::now(), interface, is_lan);
            }
            PlatformEvent::InterfaceGone { name } => self.lan_services.handle_interface_gone(name),
            PlatformEvent::NeighbourReachable { interface, address, link_address } => {
                let now = clock::now();
                self.lan_services.handle_reachable_neighbour(now, interface, *address, *link_address);
            }
            _ => {}
        }
        self.handle_input(match event {
            PlatformEvent::Interface(interface) => Input::Interface(interface),
            PlatformEvent::InterfaceGone { name } => Input::InterfaceGone { name },
            PlatformEvent::TunnelUsed { local, remote } => Input::TunnelUsed { local, remote },
            PlatformEvent::Destinations(destinations) => Input::Destinations(destinations),
            PlatformEvent::Icmpv6(message) => {
                match self.packet_too_big_input(message.destination, &message.message) {
                    Some(report) => report,
                    None => Input::Icmpv6(message),
                }
            }
            PlatformEvent::PacketRules(error) => Input::PacketRules(error),
            PlatformEvent::NeighbourReachable { .. }
            | PlatformEvent::Notice(_)
            | PlatformEvent::DataPath(_) => return,
        });
    }

    fn handle_input(&mut self, input: Input) {
        if let Err(refusal) = self.try_handle_input(input) {
            warn!("{refusal}");
        }
    }

    fn try_handle_input(&mut self, input: Input) -> Result<(), String> {
        // This input may make the station send a packet, which must contain the present position.
        if matches!(input, Input::Timeout | Input::Geonet(_)) {
            self.update_position();
        }
        let (now, wall) = (clock::now(), clock::wall_time());
        if self.recorder.is_active() {
            self.recorder.record_input(now, wall, input.clone());
            self.recorder.flush_recording();
        }
        let result = self.station.handle_input(now, wall, input);
        self.carry_out_outputs();
        result
    }

    /// Executes the outputs of the station in order. Events are logged last, so that an acknowledgement does
    /// not wait for the log.
    fn carry_out_outputs(&mut self) {
        self.carry_out_in_burst();
        self.commit_outdated_fast_path();
    }

    /// Passes the changes that the platform has executed to the fast path. Otherwise the fast path would
    /// forward packets by an outdated state.
    fn commit_outdated_fast_path(&mut self) {
        if std::mem::take(&mut self.fast_path_outdated) {
            self.platform.iter_mut().for_each(Platform::commit_to_fast_path);
        }
    }

    /// Executes the outputs for one packet of a burst. If packets wait for the disk, they leave only after
    /// the burst. The fast path may then get all changes of the burst at once
    /// ([`Self::commit_outdated_fast_path`]). A packet that does not wait for the disk leaves as soon as the
    /// fast path has the earlier changes.
    fn carry_out_in_burst(&mut self) {
        let (mut told, mut burst) = (Vec::new(), InputOutputs::default());
        while let Some(output) = self.station.poll_output() {
            match burst.treatment_of_next(output) {
                OutputTreatment::Store(kept) => burst.holds_packets |= self.store_state_part(kept),
                OutputTreatment::Hold(packet) => self.state.hold_packet(packet),
                OutputTreatment::Execute(Output::Nemo(NemoOutput::Event(event))) => told.push(event),
                OutputTreatment::Execute(output) => {
                    self.flush_packets();
                    self.carry_out_output(output);
                }
                OutputTreatment::SendWhenInForce(output) => {
                    self.fast_path_outdated = true;
                    self.commit_outdated_fast_path();
                    self.flush_packets();
                    self.carry_out_output(output);
                }
            }
        }
        self.state.commit_changes(burst.changes_data_path);
        self.fast_path_outdated |= burst.fast_path_outdated;
        if !burst.holds_packets {
            self.commit_outdated_fast_path();
        }
        for event in &told {
            self.report_event(event);
        }
        if let Some(geonet) = self.geonet.get_mut() {
            if let Some(router) = self.station.geonet()
                && geonet.address() != Some(router.address())
            {
                geonet.set_station_address(clock::now(), router.address());
            }
            geonet.flush_frames();
        }
    }

    fn carry_out_output(&mut self, output: Output) {
        match output {
            Output::Nemo(output) => self.carry_out_nemo_output(output),
            Output::Geonet(output) => self.carry_out_geonet_output(output),
        }
    }

    fn carry_out_nemo_output(&mut self, output: NemoOutput) {
        match output {
            NemoOutput::Forwarding(change) => {
                if let EntryChange::Remove(entry) = &change
                    && let ForwardingEntry::Address(InterfaceAddress { interface, address, .. }) = &**entry
                {
                    info!("removed the address {address} from the interface {interface}");
                }
                if let Some(Err(error)) =
                    self.platform.as_mut().map(|platform| platform.apply_change(&change))
                {
                    error!("{error}");
                }
            }
            NemoOutput::Packet(packet) if self.send_outer_packet_in_session(&packet) => {}
            NemoOutput::Packet(packet) => {
                if let Some(writer) = &mut self.tunnel_writer {
                    writer.write(&packet);
                    writer.flush();
                }
            }
            NemoOutput::Protect { source, destination, label, message } => {
                // Without a security association the kernel drops the message. A sender that needs an answer
                // sends it again.
                if let Err(error) = self.ipsec_socket().send(source, destination, label, &message) {
                    tracing::debug!(
                        "cannot send the message from {source} to {destination} under IPsec: {error}"
                    );
                }
            }
            NemoOutput::Encapsulated { local, remote, packet, may_fragment, session }
                if self.send_encapsulated_packet_in_session(
                    (local, remote),
                    may_fragment,
                    session,
                    &packet,
                ) => {}
            NemoOutput::Encapsulated { local, remote, packet, may_fragment, .. } => {
                if let Some(sender) = &mut self.datagram_writer {
                    sender.write(local, remote, may_fragment, &packet);
                    sender.flush();
                }
            }
            NemoOutput::AcceptSession { session, public_key } => {
                self.prepare_direct_sessions();
                if let (Some(sessions), Ok(key)) = (self.encrypted_sessions.get_mut(), public_key.try_into())
                {
                    sessions.accept_key(clock::now(), session, key);
                }
            }
            NemoOutput::EndSession(session) => {
                self.encrypted_sessions
                    .get_mut()
                    .into_iter()
                    .for_each(|sessions| sessions.end_direct(session));
            }
            NemoOutput::Icmpv6(message) => {
                // If the link has just disappeared, sending fails. The sender of the message sends it again.
                let sent = self.platform.as_mut().map(|platform| platform.send_icmpv6(&message));
                if let Some(Err(error)) = sent {
                    tracing::debug!("{error}");
                }
            }
            NemoOutput::ProbePortal { uplink, sources } => {
                if let Some(target) = settings::probe_target(&self.config) {
                    self.portal_probes.begin_probe(target, uplink, sources);
                }
            }
            NemoOutput::Persist(kept) => {
                self.store_state_part(kept);
            }
            NemoOutput::Event(event) => self.report_event(&event),
        }
    }

    fn carry_out_geonet_output(&mut self, output: GeonetOutput) {
        match output {
            GeonetOutput::Frame(frame) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.send_frame(clock::now(), &frame);
                }
                self.station.recycle_buffer(frame.packet);
            }
            GeonetOutput::Accelerate(told) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.apply_decision(clock::now(), &told);
                }
            }
            GeonetOutput::Delivered(delivered) => {
                if let Some(upper_tester) = self.upper_tester.get() {
                    upper_tester.report_delivered(&delivered);
                }
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_delivered(clock::now(), delivered);
                }
            }
            GeonetOutput::Message(message) => {
                if let Some(applications) = self.applications.get() {
                    let map = self.station.facilities().map(|facilities| &facilities.services().ldm);
                    applications.pass_message(clock::wall_time().as_unix_nanos() / 1_000_000, &message, map);
                }
            }
            GeonetOutput::EventOver(action) => {
                if let Some(applications) = self.applications.get() {
                    applications.report_expired_event(action);
                }
            }
            GeonetOutput::Triggered(action) => {
                if let Some(applications) = self.applications.get_mut() {
                    applications.record_triggered_event(action);
                }
            }
            GeonetOutput::VirtualLink(link) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.interfaces.set_interface(link);
                }
            }
            GeonetOutput::VirtualLinkGone(id) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.interfaces.remove_interface(id);
                }
            }
            GeonetOutput::VirtualFrame(frame) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.interfaces.write_frame(&frame);
                }
            }
            GeonetOutput::Ipv6 { link, destination, source, delivered } => {
                if let Some(upper_tester) = self.upper_tester.get() {
                    upper_tester.report_delivered(&delivered);
                }
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.interfaces.write_packet(link, destination, source, &delivered.payload);
                    geonet.copy_to_listeners(&delivered);
                }
                self.station.recycle_buffer(delivered.payload);
            }
            GeonetOutput::LanPacket { interface, destination, packet } => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.multicast_lans.write_packet(&interface, destination, &packet);
                }
            }
            GeonetOutput::Subscription { group, exclude, sources } => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.multicast_lans.subscribe_group(group, exclude, sources);
                }
            }
            GeonetOutput::Warning(message) => self.report_event(&Event::Warning { message }),
        }
    }

    /// Reads the machine's settings again after an event that reports a failure, because the kernel does not
    /// report all changes of settings. If a setting may be the cause of a warning, returns the warning with
    /// this possible cause.
    fn recheck_machine_settings(&mut self, event: &Event) -> Option<Event> {
        let is_failure = match event {
            Event::Warning { .. } | Event::Deregistered { .. } | Event::BindingRemoved { .. } => true,
            Event::Handover { to, .. } => to.is_none(),
            _ => false,
        };
        let platform = self.platform.as_mut().filter(|_| is_failure)?;
        if self.warning_limiter.try_take_token(clock::now()) {
            platform.recheck_settings();
        }
        let (Event::Warning { message }, Some(obstacle)) =
            (event, platform.obstacle_messages().into_iter().next())
        else {
            return None;
        };
        let is_new = !message.contains(&obstacle);
        is_new.then(|| Event::Warning {
            message: format!("{message} (possible cause on this machine: {obstacle})"),
        })
    }

    fn report_event(&mut self, event: &Event) {
        let explained = self.recheck_machine_settings(event);
        let event = explained.as_ref().unwrap_or(event);
        let quiet = match event {
            Event::BindingRefused { .. } => !self.refusal_limiter.try_take_token(clock::now()),
            Event::Registered { refresh, .. } => *refresh,
            Event::Binding { change, .. } => change == "refreshed",
            _ => false,
        };
        // A home agent renews very many bindings. If no client reads events, do not create their text.
        match event {
            _ if quiet => tracing::debug!("{}", answers::event_text(event)),
            _ if answers::is_warning(event) => warn!("{}", answers::event_text(event)),
            _ => info!("{}", answers::event_text(event)),
        }
        if self.events.receiver_count() > 0
            && let Ok(mut fields) = serde_json::to_value(event)
        {
            // The message may contain text of other systems, so its length is limited.
            if let Some(Value::String(message)) = fields.get_mut("message") {
                *message = log::truncate_to(message, MAX_EVENT_MESSAGE_LENGTH).into_owned();
            }
            let time = Duration::from_nanos(clock::wall_time().as_unix_nanos()).as_secs_f64();
            let _ = self.events.send(model::event(time, fields));
        }
    }

    /// Runs the loop until the home agent has acknowledged the de-registration, or until [`SHUTDOWN_TIMEOUT`]
    /// has passed.
    async fn deregister(&mut self, tunnel: Option<&TunDevice>, datagrams: Option<&DatagramSockets>) {
        let protected = self.ipsec_socket();
        while !self.station.is_quiescent() {
            tokio::select! {
            Ok(()) = packets_readable(tunnel, None) => self.read_tunnel_packets().await,
            Ok(()) = datagrams_readable(datagrams) => self.handle_datagrams().await,
            Ok(()) = protected.readable() => self.read_protected_messages(&protected),
            () = sleep_until(self.poll_timeout()) => {
            self.handle_sessions();
            self.handle_input(Input::Timeout);
            }
            }
        }
    }

    async fn close_station(mut self) {
        self.recorder.flush_recording();
        self.encrypted_sessions.get_mut().into_iter().for_each(Sessions::store_timestamps);
        for packet in self.state.close_storage().await {
            self.carry_out_output(packet);
        }
        self.flush_packets();
        if let Some(Err(error)) = self.geonet.get_mut().map(Geonet::restore_interface) {
            error!("{error}");
        }
        if let Some(Err(error)) = self.platform.map(Platform::close) {
            error!("{error}");
        }
    }
}
