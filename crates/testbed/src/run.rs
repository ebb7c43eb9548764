//! Executes a run of a scenario, from the first namespace to the report.
//!
//! A run builds the nodes and starts radvd and carnet. It waits until every station is registered and every
//! autoconfigured address exists, and starts the traffic. Then it executes the timetable, stops all programs,
//! and judges the expectations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use anyhow::Context;
use nix::sys::signal::Signal;

use crate::capture::Captures;
use crate::clock::{self, MILLISECOND, SECOND};
use crate::config_preparation;
use crate::console;
use crate::dhcp;
use crate::emulation::link::LinkProperties;
use crate::emulation::runner::Emulator;
use crate::expect;
use crate::isolate::{self, Interrupted, IsolationMode, has_to_stop};
use crate::machine;
use crate::metrics::{self, RunSection};
use crate::nat;
use crate::process::{BackgroundProgram, command_in_node, run_for_output, wait_until};
use crate::radio::{Medium, RadioKind};
use crate::results::{self, HeadlineValue, PerformedAction, RecordedEvent, Results, SCHEMA_VERSION};
use crate::samples::Samples;
use crate::scenario::{Action, LinkEnd, Node, Prefix, Scenario, WHOLE_RUN_SECTION};
use crate::scenario_pki::ScenarioPki;
use crate::session_keys::ScenarioKeys;
use crate::station::{SharedEvents, Station, StationEvent, StationSettings};
use crate::tools;
use crate::topology;
use crate::traffic::{self, RunningTraffic, TrafficResults};

/// The scenario to run, and the settings of the run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Name of the scenario.
    pub name: String,
    /// Folder of the scenario.
    pub folder: PathBuf,
    /// The carnet program.
    pub carnet: PathBuf,
    /// Folder for report, results, logs and captures.
    pub out: PathBuf,
    /// Whether the lab shortens the timetable.
    pub is_quick: bool,
    /// Factor for every time in the timetable, in place of the scenario's.
    pub time_factor: Option<f64>,
    /// Number of nodes in each series, in place of the scenario's.
    pub series_size: Option<u32>,
    /// Whether to capture packets.
    pub captures_packets: bool,
    /// Whether to keep the testbed up after the run.
    pub hold_until_ctrl_c: bool,
    /// Whether the stations log with all details.
    pub verbose: bool,
    /// Data path of stations whose config names no path.
    pub data_path: Option<String>,
    /// Kind of the radios.
    pub radio: RadioKind,
    /// Whether the machine is slow, so that the lab does not judge times.
    pub is_slow_machine: bool,
    /// How the lab isolates the testbed.
    pub mode: IsolationMode,
}

/// If a scenario has more mobile routers than this number, the lab asks none of them for the state of its
/// uplinks.
const MAX_ROUTERS_TO_ASK: usize = 20;

/// Largest delay of the lab's own wake-ups in milliseconds. Beyond it the run no longer follows the scenario,
/// because the testbed has gone on meanwhile.
const MAX_WAKEUP_DELAY_MS: f64 = 500.0;

/// Ample time in nanoseconds for the start of each station, in a scenario with many stations.
const START_TIME_PER_STATION: u64 = 60 * MILLISECOND;

/// Error of a run whose stations were not ready when vehicles began to move.
#[derive(Debug)]
pub struct SlowStartError;

impl std::fmt::Display for SlowStartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stations were slow to start")
    }
}

impl std::error::Error for SlowStartError {}

/// A running testbed.
pub struct Testbed {
    scenario: Scenario,
    medium: Option<Medium>,
    emulator: Option<Emulator>,
    logs: PathBuf,
    daemons: Vec<BackgroundProgram>,
    stations: Vec<Station>,
    events: SharedEvents,
    /// The kernel's count of packets over each uplink, by node and interface. It is the count at the begin of
    /// the section, or at the node's latest handover.
    packets_by_uplink: BTreeMap<(String, String), u64>,
    /// Number of events of stations that [`Self::reset_counts_after_handovers`] has already handled.
    handled_event_count: usize,
    /// Address of each node to which traffic goes.
    addresses: BTreeMap<String, Ipv6Addr>,
    /// IPv4 address of each node that has one.
    ipv4_addresses: BTreeMap<String, Ipv4Addr>,
    /// Longest delay of the lab's own wake-ups while the timetable ran, in nanoseconds.
    longest_wakeup_delay: u64,
    /// Time in nanoseconds for which vehicles had moved before the timetable began, because the stations
    /// started slowly.
    late_start_duration: u64,
}

/// Runs a scenario inside the namespaces. Returns whether all expectations are met.
pub fn run(plan: &RunPlan) -> anyhow::Result<bool> {
    let mut all = metrics::Metrics::new();
    let (mut bed, captures) = Testbed::start_testbed(plan, &mut all)?;
    let measured = bed.measure(plan)?;
    if plan.hold_until_ctrl_c {
        wait_for_ctrl_c(&plan.name, &bed.scenario)?;
    }
    bed.stop_programs(&mut all);
    let captured = match captures {
        Some(captures) => {
            console::print_step("reading the captures");
            let counts = captures.finish_captures(&bed.scenario, &plan.folder, &bed.addresses)?;
            let read = !counts.is_empty();
            all.entry(WHOLE_RUN_SECTION.into()).or_default().extend(counts);
            if read { Ok(()) } else { Err("tshark is not installed") }
        }
        None => Err("needs --pcap"),
    };
    let results = bed.conclude_run(plan, all, measured, captured);
    write_results(plan, &results)?;
    console::print_summary(&results, &plan.out);
    Ok(results.passed)
}

/// Data that the lab measured during the timetable, for the results.
struct MeasuredData {
    begin: u64,
    end: u64,
    wall_clock_offset: u64,
    actions: Vec<(String, String, u64)>,
    first_active_uplinks: BTreeMap<String, Option<String>>,
    /// Metrics recorded at the end of a section: section, name, value.
    section_end_metrics: Vec<(String, String, f64)>,
    traffic_results: TrafficResults,
    samples: Samples,
}

impl Testbed {
    /// Builds the network of a scenario, starts its programs and waits until they are ready. If the plan
    /// requires captures, also starts these and returns them.
    pub fn start_testbed(
        plan: &RunPlan,
        all: &mut metrics::Metrics,
    ) -> anyhow::Result<(Testbed, Option<Captures>)> {
        let mut scenario = crate::scenario::load_scenario(&plan.folder, plan.series_size)?;
        let logs = plan.out.join("logs");
        std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        console::print_heading(&format!("{}: {}", plan.name, scenario.title));
        console::print_step(&format!("testbed apart from the host, {}", plan.mode.description()));
        let radios = topology::build_network(&scenario, plan.radio)?;
        if plan.data_path.as_deref() == Some("xdp") {
            topology::accept_redirected_frames(&scenario)?;
        }
        console::print_step(&format!("built {} nodes, {} links", scenario.nodes.len(), scenario.links.len()));
        let captures = match plan.captures_packets {
            true => Some(Captures::start_captures(&scenario, plan.mode, &plan.out.join("pcap"), &logs)?),
            false => None,
        };
        if let Some(medium) = &scenario.medium {
            let usual = START_TIME_PER_STATION * scenario.nodes.len() as u64 + medium.settle.0;
            scenario.epoch = clock::monotonic_now() + usual * isolate::waiting_time_factor();
            config_preparation::write_position_traces(&scenario, &plan.out.join("stations"))?;
        }
        let medium = Medium::start(&scenario, scenario.epoch, radios)?;
        if let Some(medium) = &medium {
            console::print_step(&format!("{} radios are on the air", medium.nodes.len()));
        }
        let emulator = Emulator::start(scenario.emulated_links())?;
        let mut bed = Testbed {
            scenario,
            medium,
            emulator,
            logs,
            daemons: Vec::new(),
            stations: Vec::new(),
            events: SharedEvents::default(),
            packets_by_uplink: BTreeMap::new(),
            handled_event_count: 0,
            addresses: BTreeMap::new(),
            ipv4_addresses: BTreeMap::new(),
            longest_wakeup_delay: 0,
            late_start_duration: 0,
        };
        bed.start_programs(plan)?;
        bed.wait_until_ready(all)?;
        Ok((bed, captures))
    }

    /// Fails if a program of the testbed has ended, or the lab has to stop.
    pub fn check_programs(&mut self) -> anyhow::Result<()> {
        self.sleep_and_sample_until(0, &mut RunningTraffic::default(), &mut Samples::default())
    }

    /// Ends the programs and removes the nodes, so that another testbed can use their names.
    pub fn stop_testbed(mut self) -> anyhow::Result<()> {
        self.stop_programs(&mut metrics::Metrics::new());
        let nodes = self.scenario.nodes.keys().map(|node| format!("netns del {node}\n"));
        topology::run_ip_batch(None, &nodes.collect::<String>())
    }

    fn start_programs(&mut self, plan: &RunPlan) -> anyhow::Result<()> {
        for (name, node) in &self.scenario.nodes {
            let Some(config) = &node.radvd else { continue };
            // radvd refuses a config that other users may write, so copy the config. It also refuses an
            // interface without a link-local address: wait until duplicate address detection has ended.
            let copy = Path::new(isolate::RUN_DIRECTORY).join(format!("{name}.radvd.conf"));
            std::fs::copy(plan.folder.join(config.get_ref()), &copy)?;
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600))?;
            wait_until(&format!("addresses in node {name}"), 10, &mut [], || {
                topology::has_finished_duplicate_address_detection(name)
            })?;
            let mut command = command_in_node(name, tools::path_of_program("radvd"));
            command.args(["-n", "-m", "stderr", "-C"]).arg(&copy);
            command.arg("-p").arg(Path::new(isolate::RUN_DIRECTORY).join(format!("{name}.radvd.pid")));
            let log = self.logs.join(format!("{name}-radvd.log"));
            self.daemons.push(BackgroundProgram::start(
                &format!("radvd in node {name}"),
                &log,
                &mut command,
            )?);
        }
        let trust =
            ScenarioPki::create_for_scenario(&self.scenario, &Path::new(isolate::RUN_DIRECTORY).join("pki"))?;
        let key_folder = Path::new(isolate::RUN_DIRECTORY).join("keys");
        let keys = ScenarioKeys::make_for_scenario(&self.scenario, &plan.folder, &plan.carnet, &key_folder)?;
        let mut configs = Vec::new();
        for (name, node) in &self.scenario.nodes {
            let Some(config) = &node.carnet else { continue };
            let config = plan.folder.join(config.get_ref());
            let config = config_preparation::prepare_config(
                &self.scenario,
                name,
                &config,
                plan.data_path.as_deref(),
                &trust,
                &keys,
                &plan.out.join("stations"),
            )?;
            let settings = StationSettings::read_settings(&config)?;
            check_has_radio(&self.scenario, name, settings.radio_interface.as_deref())?;
            configs.push((settings.is_mobile_router, name.clone(), config));
        }
        // Start mobile routers after the home agents. If many programs start at once, a mobile router would
        // take a slow home agent for a missing one.
        configs.sort_by_key(|(mobile_router, ..)| *mobile_router);
        for (mobile_router, name, config) in configs {
            if mobile_router && self.stations.iter().all(|station| !station.is_mobile_router) {
                for station in &self.stations {
                    let what = format!("the socket of carnet in node {}", station.node);
                    wait_until(&what, 30, &mut self.daemons, || Ok(station.is_ready()))?;
                }
            }
            let log = self.logs.join(format!("{name}-carnet.log"));
            let (mut station, daemon) = Station::start(&plan.carnet, &name, &config, plan.verbose, &log)?;
            station.is_outsider = self.scenario.nodes.get(&name).is_some_and(|node| node.outsider);
            isolate::write_control_socket_path(&name, &station.control_socket)?;
            self.daemons.push(daemon);
            self.stations.push(station);
        }
        let running: Vec<&str> = self.daemons.iter().map(|d| d.program_name.as_str()).collect();
        match running.len() {
            0..=12 => console::print_step(&format!("started {}", running.join(", "))),
            n => console::print_step(&format!("started {n} programs")),
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, all: &mut metrics::Metrics) -> anyhow::Result<()> {
        for station in &mut self.stations {
            let what = format!("the socket of carnet in node {}", station.node);
            wait_until(&what, 30, &mut self.daemons, || Ok(station.is_ready()))?;
            let node = self.scenario.nodes.get(&station.node);
            // Skip stations with only a radio, because the lab uses none of their events.
            if station.is_mobile_router || node.is_none_or(|n| n.radio.is_none()) {
                station.watch_events(&self.events)?;
            }
        }
        self.add_station_routes()?;
        for station in &self.stations {
            let bindings = self.scenario.nodes.get(&station.node).map_or(0, |n| n.bindings);
            if bindings == 0 {
                continue;
            }
            let what = format!("{bindings} registered binding(s) at node {}", station.node);
            wait_until(&what, 30, &mut self.daemons, || station.has_registered_bindings(bindings))?;
            let ms = (clock::monotonic_now() - station.started_at) as f64 / 1e6;
            let node = &station.node;
            all.entry(WHOLE_RUN_SECTION.into()).or_default().insert(format!("{node}.ready_ms"), ms);
            console::print_step(&format!("node {node} is registered, {ms:.0} ms after its start"));
        }
        for (name, node) in &self.scenario.nodes {
            let ipv4 = match &node.dhcp {
                Some(interface) => Some(dhcp::obtain_lease(name, interface.get_ref(), &self.logs)?),
                None => node.addresses.values().flatten().find_map(|a| a.split('/').next()?.parse().ok()),
            };
            self.ipv4_addresses.extend(ipv4.map(|address| (name.clone(), address)));
            if let Some(auto) = &node.autoconf {
                let interface = auto.interface.get_ref();
                let mut found = None;
                wait_until(
                    &format!("an autoconfigured address on {name}:{interface}"),
                    20,
                    &mut self.daemons,
                    || {
                        found = topology::address_in(name, interface, &auto.prefix)?;
                        Ok(found.is_some())
                    },
                )?;
                self.addresses.extend(found.map(|a| (name.clone(), a)));
                continue;
            }
            let mut all = node.addresses.values().flatten();
            let address = all.find_map(|a| a.split('/').next()?.parse().ok());
            self.addresses.extend(address.map(|a| (name.clone(), a)));
        }
        let used: Vec<String> = self
            .scenario
            .nodes
            .iter()
            .filter(|(_, n)| n.autoconf.is_some())
            .filter_map(|(n, _)| Some(format!("{n} has {}", self.addresses.get(n)?)))
            .collect();
        if !used.is_empty() {
            console::print_step(&format!("by autoconfiguration: {}", used.join(", ")));
        }
        let leased = self.scenario.nodes.iter().filter(|(_, node)| node.dhcp.is_some());
        let leased: Vec<String> =
            leased.filter_map(|(n, _)| Some(format!("{n} has {}", self.ipv4_addresses.get(n)?))).collect();
        if !leased.is_empty() {
            console::print_step(&format!("by DHCP: {}", leased.join(", ")));
        }
        let linked = |(name, node): (&String, &Node)| {
            let has_link =
                self.scenario.links.iter().flat_map(|l| &l.ends).any(|e| e.get_ref().node == *name);
            (has_link || !node.addresses.is_empty()).then(|| name.clone())
        };
        let names: Vec<String> = self.scenario.nodes.iter().filter_map(linked).collect();
        wait_until("duplicate address detection to end", 10, &mut self.daemons, || {
            Ok(names.iter().all(|n| topology::has_finished_duplicate_address_detection(n).unwrap_or(false)))
        })
    }

    /// Adds the routes through interfaces of the stations. `{ll:NODE}` in a route is the link-local address
    /// of a node on its station's interface of IPv6 over GeoNetworking.
    fn add_station_routes(&mut self) -> anyhow::Result<()> {
        for (name, node) in &self.scenario.nodes {
            let mut commands = String::new();
            for route in &node.station_routes {
                let mut route = route.clone();
                while let Some((before, peer, after)) = parse_named_address(&route) {
                    let station = self.stations.iter().find(|station| station.node == peer);
                    let interface = station.and_then(|station| station.geonet_interface.clone());
                    let interface = interface.with_context(|| {
                        format!(
                            "{{ll:{peer}}} in node {name}: no station with geonet.ipv6_interface is there"
                        )
                    })?;
                    let mut found = None;
                    let what = format!("a link-local address on {peer}:{interface}");
                    wait_until(&what, 30, &mut self.daemons, || {
                        found = topology::address_in(peer, &interface, &LINK_LOCAL_PREFIX)?;
                        Ok(found.is_some())
                    })?;
                    let address = found.context("it is there")?;
                    route = format!("{before}{address}{after}");
                }
                commands += &format!("route add {route}\n");
            }
            if !commands.is_empty() {
                topology::run_ip_batch(Some(name), &commands)?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, plan: &RunPlan) -> anyhow::Result<MeasuredData> {
        let usual = if plan.is_quick { self.scenario.timetable.quick } else { 1.0 };
        let factor = plan.time_factor.unwrap_or(usual);
        let scaled = |ns: u64| (ns as f64 * factor) as u64;
        let mut samples = Samples::default();
        let earliest = clock::monotonic_now() + traffic::TIME_FROM_TRAFFIC_START_TO_TIMETABLE;
        let begin = earliest.max(self.scenario.epoch);
        if self.medium.is_some() && begin > self.scenario.epoch {
            let late = metrics::seconds_since(begin, self.scenario.epoch);
            if late * 1e3 >= MAX_WAKEUP_DELAY_MS
                && isolate::waiting_time_factor() < isolate::MAX_WAITING_FACTOR
            {
                console::print_step(&format!(
                    "the stations were {late:.1} s late; once more, with more time for them"
                ));
                return Err(SlowStartError.into());
            }
            console::print_step(&format!(
                "the stations were slow to start: they will have moved for {late:.1} s"
            ));
            self.late_start_duration = begin - self.scenario.epoch;
        }
        self.sleep_and_sample_until(
            begin - traffic::TIME_FROM_TRAFFIC_START_TO_TIMETABLE,
            &mut RunningTraffic::default(),
            &mut Samples::default(),
        )?;
        let end = begin + scaled(self.scenario.timetable.duration.0);
        let ends = traffic::TrafficEnds {
            addresses: &self.addresses,
            ipv4_addresses: &self.ipv4_addresses,
            stations: &self.stations,
            medium: self.medium.as_ref(),
            folder: &self.logs,
        };
        let mut flows = traffic::start(&self.scenario, ends, begin, end, scaled)?;
        console::print_step(&format!("traffic flows; the timetable takes {} s", (end - begin) / SECOND));
        self.sleep_and_sample_until(begin, &mut flows, &mut Samples::default())?;
        if let Some(emulator) = &self.emulator {
            emulator.start_traces(begin, factor);
        }
        self.longest_wakeup_delay = 0;
        samples.begin_sampling(&self.stations);
        samples.sample_section_border(clock::monotonic_now(), self.medium.as_ref(), self.emulator.as_ref());
        let clock = clock::realtime_now();
        let first_active =
            self.mobile_routers_to_ask().filter_map(|s| Some((s.node.clone(), Some(s.active_uplink()?))));
        let first_active = first_active.collect();
        let mut done: Vec<(String, String, u64)> = Vec::new();
        let mut states = Vec::new();
        self.packets_by_uplink.clear();
        for action in self.scenario.actions.clone() {
            self.sleep_and_sample_until(begin + scaled(action.at.0), &mut flows, &mut samples)?;
            self.record_section_states(done.last(), &mut states);
            let now = clock::monotonic_now();
            samples.sample_section_border(now, self.medium.as_ref(), self.emulator.as_ref());
            console::print_at_time(metrics::seconds_since(now, begin), &action.label);
            self.perform_action(&action)?;
            if action.order.is_some() {
                let took = (clock::monotonic_now() - now) as f64 / 1e6;
                states.push((action.name.get_ref().clone(), "order_ms".into(), took));
            }
            done.push((action.name.get_ref().clone(), action.label.clone(), now));
        }
        self.sleep_and_sample_until(end, &mut flows, &mut samples)?;
        samples.sample_section_border(clock::monotonic_now(), self.medium.as_ref(), self.emulator.as_ref());
        samples.end_sampling(end, &self.stations, self.medium.as_ref(), self.emulator.as_ref());
        self.record_section_states(done.last(), &mut states);
        self.record_whether_addresses_are_kept(&mut states);
        let seen = flows.finish(end, &self.scenario, self.medium.as_ref())?;
        Ok(MeasuredData {
            begin,
            end,
            wall_clock_offset: clock,
            actions: done,
            first_active_uplinks: first_active,
            section_end_metrics: states,
            traffic_results: seen,
            samples,
        })
    }

    /// Waits until `at`, and fails if a program of the testbed ends meanwhile.
    fn sleep_and_sample_until(
        &mut self,
        at: u64,
        flows: &mut RunningTraffic,
        samples: &mut Samples,
    ) -> anyhow::Result<()> {
        loop {
            if has_to_stop() {
                return Err(Interrupted.into());
            }
            for daemon in &mut self.daemons {
                daemon.check_running()?;
            }
            flows.start_due_and_check()?;
            self.reset_counts_after_handovers();
            self.medium.as_mut().map_or(Ok(()), Medium::check_running)?;
            self.emulator.as_mut().map_or(Ok(()), Emulator::check_running)?;
            let now = clock::monotonic_now();
            samples.sample_medium_if_due(now, self.medium.as_ref());
            if now >= at {
                return Ok(());
            }
            let until = at.min(now + 100 * MILLISECOND);
            clock::sleep_until(until);
            self.longest_wakeup_delay =
                self.longest_wakeup_delay.max(clock::monotonic_now().saturating_sub(until));
        }
    }

    fn perform_action(&self, action: &Action) -> anyhow::Result<()> {
        let name = action.name.get_ref();
        let scenario = &self.scenario;
        let done = if let Some(end) = &action.link_down {
            topology::set_link_state(scenario, end.get_ref(), false)
        } else if let Some(end) = &action.link_up {
            topology::set_link_state(scenario, end.get_ref(), true)
        } else if let Some(end) = &action.carrier_off {
            topology::set_carrier(scenario, end.get_ref(), false)
        } else if let Some(end) = &action.carrier_on {
            topology::set_carrier(scenario, end.get_ref(), true)
        } else if let Some(degrade) = &action.degrade {
            self.change_emulated_link(degrade.link.get_ref(), |now, _| degrade.to.get_ref().applied_to(now))
        } else if let Some((radio, walled)) = scenario.enclosure_change_of_action(action) {
            self.medium.iter().for_each(|medium| medium.set_enclosed(radio, walled));
            Ok(())
        } else if let Some(end) = &action.blackhole {
            self.change_emulated_link(end.get_ref(), |now, _| {
                let mut nature = now.clone();
                nature.directions.iter_mut().for_each(|way| way.drops_all_frames = true);
                nature
            })
        } else if let Some(end) = &action.restore {
            let restored = self.change_emulated_link(end.get_ref(), |_, first| first.clone());
            restored.and_then(|()| topology::set_carrier(scenario, end.get_ref(), true))
        } else if let Some(node) = &action.nat_forget {
            nat::delete_nat_mappings(node.get_ref())
        } else if let Some(order) = &action.handover {
            match self.stations.iter().find(|s| s.node == *order.station.get_ref()) {
                Some(station) => station.command_handover(&order.uplink, order.policy.as_deref()),
                None => Ok(()),
            }
        } else if let Some(order) = &action.order {
            match self.stations.iter().find(|s| s.node == *order.station.get_ref()) {
                Some(station) => station.run_command(&order.command),
                None => Ok(()),
            }
        } else if let Some(run) = &action.run {
            let (program, arguments) = run.command.split_first().context("an empty command")?;
            run_for_output(
                command_in_node(run.node.get_ref(), tools::path_of_program(program)).args(arguments),
            )
            .map(|_| ())
        } else {
            Ok(())
        };
        done.with_context(|| format!("action {name} failed"))
    }

    fn change_emulated_link(
        &self,
        end: &LinkEnd,
        new: impl FnOnce(&LinkProperties, &LinkProperties) -> LinkProperties,
    ) -> anyhow::Result<()> {
        self.emulator.as_ref().context("no link is emulated")?.change_link(end, new)
    }

    /// Returns all mobile routers; none if there are more than [`MAX_ROUTERS_TO_ASK`].
    fn mobile_routers_to_ask(&self) -> impl Iterator<Item = &Station> {
        let routers = self.stations.iter().filter(|s| s.is_mobile_router);
        let few = routers.clone().count() <= MAX_ROUTERS_TO_ASK;
        routers.filter(move |_| few)
    }

    /// Sets `packets_by_uplink` to the present counts of each mobile router that has reported a handover. So
    /// packets before the handover do not count for the share of the new uplink. On a busy machine the
    /// handover happens a while after the action that causes it.
    fn reset_counts_after_handovers(&mut self) {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let new = events.get(self.handled_event_count..).unwrap_or_default();
        let moved: BTreeSet<String> =
            new.iter().filter(|event| event.2["event"] == "handover").map(|event| event.1.clone()).collect();
        self.handled_event_count = events.len();
        drop(events);
        let moved: Vec<String> =
            self.mobile_routers_to_ask().map(|s| s.node.clone()).filter(|n| moved.contains(n)).collect();
        for node in moved {
            let Ok(counts) = topology::ipv6_packet_counters(&node) else { continue };
            let counts = counts.into_iter().map(|(interface, count)| ((node.clone(), interface), count));
            self.packets_by_uplink.extend(counts);
        }
    }

    /// Records states at the end of a section: the number of vehicles' networks with a direct route, and the
    /// active uplink. To check the active uplink, also records which share of the packets each uplink
    /// carried. Counts packets since the begin of the section, or since the last handover in it.
    fn record_section_states(
        &mut self,
        last: Option<&(String, String, u64)>,
        states: &mut Vec<(String, String, f64)>,
    ) {
        let section = last.map_or(WHOLE_RUN_SECTION, |(name, _, _)| name);
        let mut carried = std::mem::take(&mut self.packets_by_uplink);
        for station in self.mobile_routers_to_ask() {
            let node = &station.node;
            if let Ok(routes) = station.show_json("routes") {
                let direct =
                    routes.as_array().into_iter().flatten().filter(|route| route["path"] == "direct");
                states.push((section.into(), format!("{node}.direct"), direct.count() as f64));
            }
            let (Ok(uplinks), Ok(counts)) =
                (station.show_json("uplinks"), topology::ipv6_packet_counters(node))
            else {
                continue;
            };
            let mut since: Vec<(&str, u64)> = Vec::new();
            for uplink in uplinks.as_array().into_iter().flatten() {
                let Some(interface) = uplink["interface"].as_str() else { continue };
                let active = f64::from(u8::from(uplink["active"] == true));
                states.push((section.into(), format!("{node}.active.{interface}"), active));
                let now = counts.get(interface).copied().unwrap_or(0);
                let before = carried.insert((node.clone(), interface.to_string()), now);
                since.push((interface, now - before.unwrap_or(0).min(now)));
            }
            let tunnels = station.show_json("tunnels").unwrap_or_default();
            for kind in ["ipv6", "ipv4", "udp"] {
                let of_kind = tunnels.as_array().into_iter().flatten().filter(|t| t["encapsulation"] == kind);
                states.push((section.into(), format!("{node}.tunnels.{kind}"), of_kind.count() as f64));
            }
            let all: u64 = since.iter().map(|s| s.1).sum();
            for (interface, packets) in since.into_iter().filter(|_| all > 0) {
                let share = 100.0 * packets as f64 / all as f64;
                states.push((section.into(), format!("{node}.share.{interface}"), share));
            }
        }
        self.packets_by_uplink = carried;
    }

    /// Records whether each node still has the addresses by autoconfiguration and by DHCP that it had at the
    /// beginning.
    fn record_whether_addresses_are_kept(&self, states: &mut Vec<(String, String, f64)>) {
        let leased = self.scenario.nodes.iter().filter_map(|(name, node)| Some((name, node.dhcp.as_ref()?)));
        for (name, interface) in leased {
            let now = dhcp::obtain_lease(name, interface.get_ref(), &self.logs).ok();
            let same = now.is_some() && now.as_ref() == self.ipv4_addresses.get(name);
            states.push((
                WHOLE_RUN_SECTION.into(),
                format!("ipv4_address.{name}.unchanged"),
                f64::from(u8::from(same)),
            ));
        }
        for (name, node) in &self.scenario.nodes {
            let Some(auto) = &node.autoconf else { continue };
            let now = topology::address_in(name, auto.interface.get_ref(), &auto.prefix).ok().flatten();
            let same = now.is_some() && now.as_ref() == self.addresses.get(name);
            states.push((
                WHOLE_RUN_SECTION.into(),
                format!("address.{name}.unchanged"),
                f64::from(u8::from(same)),
            ));
        }
    }

    /// Ends the stations as an operator would, and records their exit status.
    fn stop_programs(&mut self, all: &mut metrics::Metrics) {
        console::print_step("stopping the stations");
        // Signal all vehicles first, then wait for their end, so that they end together.
        for station in &self.stations {
            let node = self.scenario.nodes.get(&station.node);
            if node.is_some_and(|n| n.series.is_some() || (n.radio.is_some() && !station.is_mobile_router))
                && let Some(daemon) = self.daemons.iter().find(|d| d.process() == station.process_id)
            {
                daemon.send_signal(Signal::SIGTERM);
            }
        }
        for station in self.stations.iter().rev() {
            let what = format!("carnet in node {}", station.node);
            let Some(daemon) = self.daemons.iter_mut().find(|d| d.program_name == what) else { continue };
            let status = daemon.stop(Signal::SIGTERM);
            let code = status.and_then(|s| s.code()).map_or(-1.0, f64::from);
            all.entry(WHOLE_RUN_SECTION.into())
                .or_default()
                .insert(format!("{}.exit_status", station.node), code);
        }
        self.stations.clear();
    }

    fn conclude_run(
        &self,
        plan: &RunPlan,
        mut all: metrics::Metrics,
        measured: MeasuredData,
        captured: Result<(), &str>,
    ) -> Results {
        let MeasuredData {
            begin,
            end,
            wall_clock_offset: clock,
            actions,
            first_active_uplinks: first_active,
            section_end_metrics: states,
            traffic_results: seen,
            samples,
        } = measured;
        let starts: Vec<(String, u64)> = actions.iter().map(|(n, _, at)| (n.clone(), *at)).collect();
        let sections: Vec<RunSection> = metrics::sections_of_run(begin, end, &starts);
        for (section, values) in metrics::traffic_metrics(&seen, &sections) {
            all.entry(section).or_default().extend(values);
        }
        let mut events: Vec<StationEvent> =
            self.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        events.sort_by_key(|e| e.0);
        metrics::add_event_metrics(&mut all, &events, &sections);
        metrics::add_handover_metrics(&mut all, &seen, &events, &(begin..end));
        for (section, name, value) in states {
            all.entry(section).or_default().insert(name, value);
        }
        let late_ms = (self.longest_wakeup_delay.max(self.late_start_duration) as f64 / 1e6)
            .max(samples.longest_delay_ms())
            .max(seen.longest_probe_delay_ms());
        all.entry(WHOLE_RUN_SECTION.into()).or_default().insert("lab.late_ms".into(), late_ms);
        let radios = self.medium.as_ref().map_or(&[][..], |m| &m.nodes);
        samples.add_metrics(&mut all, radios, &sections);
        metrics::add_derived_metrics(&mut all, &self.scenario.derived);
        let expectations = expect::judge_expectations(
            &self.scenario.expect,
            &all,
            &expect::RunProperties {
                captures_are_readable: captured,
                has_feedback: plan.radio == RadioKind::Hwsim,
                is_slow_machine: plan.is_slow_machine,
                is_optimised: !cfg!(debug_assertions),
            },
        );
        let mut warnings = seen.refusals.clone();
        let lost_time = (late_ms >= MAX_WAKEUP_DELAY_MS).then(|| {
            format!(
                "this machine could not keep up: the lab was late by {late_ms:.0} ms (at most \
                 {MAX_WAKEUP_DELAY_MS} \
                     count as nothing)"
            )
        });
        let no_verdict = lost_time.clone().filter(|_| !plan.is_slow_machine);
        warnings.extend(lost_time.filter(|_| plan.is_slow_machine));
        let headline = self.scenario.headline.iter().map(|h| HeadlineValue {
            label: h.label.clone(),
            value: all
                .get(h.after.as_ref().map_or(WHOLE_RUN_SECTION, |a| a.get_ref()))
                .and_then(|m| m.get(&h.metric))
                .copied(),
            unit: h.unit.clone(),
            beside: h.beside.clone(),
        });
        let autoconf = self
            .scenario
            .nodes
            .iter()
            .filter_map(|(n, node)| {
                let interface = node.autoconf.as_ref()?.interface.get_ref().clone();
                Some((n.clone(), (interface, self.addresses.get(n)?.to_string())))
            })
            .collect();
        Results {
            schema_version: SCHEMA_VERSION,
            scenario: plan.name.clone(),
            title: self.scenario.title.clone(),
            about: self.scenario.about.trim().into(),
            mode: plan.mode.description().into(),
            quick: plan.is_quick || plan.time_factor.is_some_and(|factor| factor < 1.0),
            time: clock::format_utc(clock),
            duration_s: metrics::seconds_since(end, begin),
            machine: machine::describe_machine(&plan.carnet, &plan.folder),
            passed: Results::no_expectation_failed(&expectations) && no_verdict.is_none(),
            headline: headline.collect(),
            expectations,
            actions: actions
                .into_iter()
                .map(|(name, label, at)| PerformedAction {
                    name,
                    label,
                    at_s: metrics::seconds_since(at, begin),
                })
                .collect(),
            active: results::active_uplink_periods(&first_active, &events, begin, end),
            events: events
                .into_iter()
                .map(|(at, node, event)| RecordedEvent {
                    at_s: metrics::seconds_since(at, begin),
                    node,
                    event,
                })
                .collect(),
            series: results::Series {
                load: samples.channel_load(begin, end),
                ..results::series_of_run(&seen, begin, end)
            },
            topology: results::topology_of(&self.scenario, &autoconf),
            map: results::map_of_run(&self.scenario, &seen, begin, end),
            flows: results::flow_lines(&self.scenario, all.get(WHOLE_RUN_SECTION)),
            warnings,
            no_verdict,
            metrics: all,
        }
    }
}

/// The prefix fe80::/10 of link-local addresses.
const LINK_LOCAL_PREFIX: Prefix = Prefix { address: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), length: 10 };

/// Splits a route at its first `{ll:NODE}`: the text before it, the node, and the text after it. `None` if
/// the route has no such placeholder.
fn parse_named_address(route: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = route.split_once("{ll:")?;
    let (node, after) = rest.split_once('}')?;
    Some((before, node, after))
}

/// Fails if a station's GeoNetworking config names an interface that the scenario does not give its node. The
/// station would wait for this interface without end.
fn check_has_radio(scenario: &Scenario, node: &str, radio: Option<&str>) -> anyhow::Result<()> {
    let Some(wanted) = radio else { return Ok(()) };
    let linked = scenario.links.iter().flat_map(|link| &link.ends).map(|end| end.get_ref());
    let linked = linked.filter(|end| end.node == node).map(|end| end.interface.as_str());
    let known: Vec<&str> = linked.chain(scenario.radio_of(node)).collect();
    anyhow::ensure!(
        known.contains(&wanted),
        "the config of node {node}: expected one of the node's interfaces ({}) for geonet.interface, found \
         {wanted:?}",
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    );
    Ok(())
}

/// Keeps the testbed up until Ctrl-C.
fn wait_for_ctrl_c(name: &str, scenario: &Scenario) -> anyhow::Result<()> {
    let nodes: Vec<&str> = scenario.nodes.keys().map(String::as_str).collect();
    console::print_step(&format!(
        "the testbed stays up until Ctrl-C; look into it with: carnet-lab shell {name} NODE (nodes: {})",
        nodes.join(", ")
    ));
    while !has_to_stop() {
        clock::sleep(100 * MILLISECOND);
    }
    Ok(())
}

fn write_results(plan: &RunPlan, results: &Results) -> anyhow::Result<()> {
    let file = plan.out.join("results.json");
    let json = File::create(&file).with_context(|| format!("cannot make {}", file.display()))?;
    serde_json::to_writer(std::io::BufWriter::new(json), results)?;
    let file = plan.out.join("report.html");
    std::fs::write(&file, crate::report::html_report(results))
        .with_context(|| format!("cannot make {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_station_on_node_without_its_radio_is_refused() {
        let text = "title='t'\ntimetable.duration='1s'\nmedium.range='9m'\n\
                    [nodes.car]\nradio={interface='wlan1',place=[0,0]}\n[nodes.b]\n[nodes.c]\n\
                    [[links]]\nends=['b:x','c:y']\n";
        let scenario = crate::scenario::parse_scenario(Path::new("s"), text).expect("is good");
        for (node, radio) in [("car", Some("wlan1")), ("b", Some("x")), ("car", None)] {
            check_has_radio(&scenario, node, radio).expect("is there");
        }
        let told = check_has_radio(&scenario, "car", Some("wlan0")).expect_err("is not there").to_string();
        assert!(told.contains("node car: expected") && told.contains("(wlan1)"), "{told}");
    }

    #[test]
    fn scenario_route_may_name_a_node_as_next_hop() {
        let route = "2001:db8::/64 via {ll:car4} dev gn0";
        assert_eq!(parse_named_address(route), Some(("2001:db8::/64 via ", "car4", " dev gn0")));
        assert_eq!(parse_named_address("default via fe80::1"), None);
    }
}
