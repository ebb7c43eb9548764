//! Simulates whole machines in which every request can fail at every step, and checks invariants that must
//! hold anyway.
//!
//! A home agent and two mobile routers run for hours of virtual time. Only the kernel and the disk are
//! simulated (`carnet_linux::simulated`). Stations, installers, the octets of netlink, the journal and its
//! queue are real. Packets are lost, doubled and overtake each other. Clocks jump; routers move, and their
//! interfaces come and go. Requests to kernels fail or are executed without an answer, and events are lost.
//! Disks are full or fail sometimes. Operators delete carnet's entries, processes are killed between any two
//! steps, and power is cut. Attackers forge, record and replay messages.
//!
//! The test checks at every step:
//!
//! 1. Every binding was requested by its router, within that router's rights.
//! 2. No packet enters or leaves a tunnel without a binding.
//! 3. Every acknowledged binding survives a power cut at this moment, and the sequence numbers of replay
//!    protection never decrease.
//! 4. carnet changes no setting or entry of an operator. After an orderly end the kernel is as before. After
//!    any other end, the next start removes the remains.
//! 5. Without faults a handover loses no packet in either direction at any time.
//! 6. After the faults the kernels have the desired state and the routers are registered, within a bounded
//!    time. No process then holds more memory than at first.
//!
//! A failure names its seed: `CARNET_SEED=n cargo test -p carnet --bin carnet faults::` repeats only the
//! schedule of that seed, `CARNET_SCHEDULES=n` runs n schedules.

mod node;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::agents::HomeAgentSelectionConfig;
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents};
use carnet_mobility::mobile_router::{MobileRouterConfig, RegistrationMode, UplinkConfig};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_station::io::{Command, Input, NemoOutput, Output};
use carnet_station::{MobileRouterSettings, OwnTraffic, PersistentState, Station, StationConfig};

use carnet_virtual::Link;
use node::{ProcessEnd, STATE_FILE};
use world::{
    HOME_ADDRESSES, HOME_AGENT, MAX_LINK_DELAY, SimulatedNetwork, UPLINKS, care_of_address,
    link_without_faults, mobile_network_prefix,
};

/// Time limit of the recovery after the last fault.
const RECOVERY_TIME_LIMIT: Duration = Duration::from_secs(110);
/// First part of [`RECOVERY_TIME_LIMIT`]. In this time a router that sends no packet may not have noticed
/// that the home agent lost its binding.
const TIME_UNTIL_ROUTERS_SEND: Duration = Duration::from_secs(70);
/// Nanoseconds by which all clocks are set forward after the faults. Before that, no clock was further ahead.
const CLOCK_ADVANCE_NANOSECONDS: i64 = 600_000_000_000;
/// Maximum number of entries and packets that a process has in memory at the end, and maximum number of
/// octets of its journal.
const MAX_ENTRIES_IN_MEMORY: usize = 60;
const MAX_FILE_LENGTH: usize = 700_000;

fn shared_key_authentication(router: usize, replay: ReplayProtection) -> Authentication {
    let key = [7 + router as u8; 16];
    Authentication::SharedKey(SecurityAssociation { spi: 300 + router as u32, key: key.into(), replay })
}

fn random_configs(rng: &mut Rng) -> (StationConfig, [StationConfig; 2]) {
    // With the shortest lifetime the journal grows until the process compacts it.
    let seconds = if rng.is_true_with_probability(0.2) { 12 } else { 60 + rng.number_below(540) };
    let lifetime = Duration::from_secs(seconds);
    let authentication = [0, 1].map(|router| {
        let timestamp = ReplayProtection::Timestamp { window: Duration::from_secs(7) };
        shared_key_authentication(
            router,
            if rng.is_true_with_probability(0.5) { ReplayProtection::Sequence } else { timestamp },
        )
    });
    let home_prefix = world::network_of(HOME_AGENT);
    let nodes = [0, 1].map(|router| AuthorizedNode {
        nat: true,
        care_of_test: true,
        home_address: HOME_ADDRESSES[router],
        prefixes: [mobile_network_prefix(router)].into(),
        authentication: authentication[router].clone(),
    });
    let agent = HomeAgentConfig {
        other_agents: OtherAgents::default(),
        address: HOME_AGENT,
        home_prefix,
        home_network: None,
        home_link: None,
        ndp_proxy: None,
        nat: Default::default(),
        max_lifetime: Duration::from_secs(600),
        force_udp: false,
        ipv4_address: None,
        multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
        nodes: nodes.to_vec(),
    };
    let uplink = |uplink: usize| UplinkConfig {
        interface: UPLINKS[uplink].into(),
        priority: 10 + uplink as u32,
        ..UplinkConfig::default()
    };
    let routers = [0, 1].map(|router| StationConfig {
        mobile_router: Some(MobileRouterSettings {
            router: MobileRouterConfig {
                home_address: HOME_ADDRESSES[router],
                home_prefix,
                home_agent: HOME_AGENT,
                home_agent_ipv4: None,
                probes_portals: false,
                force_udp: false,
                liveness: None,
                policies: Vec::new(),
                ipv4_prefixes: Vec::new(),
                prefixes: vec![mobile_network_prefix(router)],
                mode: RegistrationMode::Explicit,
                lifetime,
                authentication: authentication[router].clone(),
                uplinks: vec![uplink(0), uplink(1)],
            },
            lan: vec!["i0".into()],
            agents: HomeAgentSelectionConfig::default(),
            breakouts: Vec::new(),
            breaks_out_when_away: false,
            own_traffic: OwnTraffic::Uplinks,
            nesting_enabled: false,
            nested_routers: Vec::new(),
            direct_networks: Vec::new(),
            requires_direct_encryption: false,
        }),
        ..StationConfig::default()
    });
    (StationConfig { home_agent: Some(agent), ..StationConfig::default() }, routers)
}

/// Returns a Binding Update that a router signs with its own key, but for the network or the home address of
/// the other router. It may also be a Binding Update of an attacker with another key.
fn update_for_foreign_network(world: &mut SimulatedNetwork, router: usize) -> Option<Vec<u8>> {
    let mut config = world.nodes[1 + router].config.clone();
    let settings = config.mobile_router.as_mut().expect("a router");
    match world.rng.number_below(3) {
        0 => settings.router.prefixes.push(mobile_network_prefix(1 - router)),
        kind => {
            let other = 1 - router;
            (settings.router.home_address, settings.router.prefixes) =
                (HOME_ADDRESSES[other], vec![mobile_network_prefix(other)]);
            let Authentication::SharedKey(own) = &mut settings.router.authentication else { return None };
            if kind == 2 {
                own.spi = 300 + other as u32;
                own.key = [99; 16].into();
            }
        }
    }
    let (now, wall) = (world.now, world.nodes[0].wall_time(world.now));
    let mut thief = Station::new(config, PersistentState::default(), world.rng.fork_generator(), now, wall);
    while thief.poll_output().is_some() {}
    let interface = carnet_station::io::Interface {
        name: UPLINKS[0].into(),
        running: true,
        mtu: 1500,
        addresses: vec![carnet_virtual::configured_address(care_of_address(router, 0, 0))],
        routers: vec![world::ACCESS_ROUTER.into()],
        ..Default::default()
    };
    let _ = thief.handle_input(now, wall, Input::Interface(interface));
    std::iter::from_fn(|| thief.poll_output()).find_map(|output| match output {
        Output::Nemo(NemoOutput::Packet(packet)) => Some(packet),
        _ => None,
    })
}

fn inject_random_fault(world: &mut SimulatedNetwork) {
    let rng = &mut world.rng;
    let (index, router, uplink) =
        (rng.number_below(3) as usize, rng.number_below(2) as usize, rng.number_below(2) as usize);
    let network = rng.number_below(3);
    let end = [ProcessEnd::Orderly, ProcessEnd::Killed, ProcessEnd::PowerCut][rng.number_below(3) as usize];
    match rng.number_below(24) {
        0..=4 => world.attach_uplink(router, uplink, Some(network)),
        5..=6 => world.attach_uplink(router, uplink, None),
        7 => world.remove_uplink_interface(router, uplink),
        8 => {
            if end == ProcessEnd::Orderly && world.rng.is_true_with_probability(0.5) {
                let now = world.now;
                world.nodes[index].request_shutdown(now);
                world.run_for(Duration::from_secs(1));
            }
            world.end_process(index, end);
        }
        9..=10 => {
            let steps = 1 + world.rng.number_below(120) as u32;
            let end = if end == ProcessEnd::Orderly { ProcessEnd::Killed } else { end };
            world.nodes[index].set_crash(steps, end);
        }
        11 => {
            let trouble = world.rng.number_below(40) as f64 / 100.0;
            world.nodes[index].kernel.set_failure_probability(trouble);
        }
        12 => world.nodes[index].kernel.set_failure_probability(0.0),
        13 => {
            let (full, trouble) =
                (world.rng.is_true_with_probability(0.5), world.rng.number_below(30) as f64 / 100.0);
            world.nodes[index].disk.set_failure_probability(full, trouble);
        }
        14 => world.nodes[index].disk.set_failure_probability(false, 0.0),
        15 => world.nodes[index].kernel.lose_events(),
        16..=17 => {
            let number = world.rng.number_below(1000) as usize;
            world.nodes[index].kernel.remove_own_object(number);
        }
        18 => {
            let ahead = [0, 3, 500, -3, -500][world.rng.number_below(5) as usize];
            world.nodes[index].clock_ahead = world.clocks_ahead + ahead * 1_000_000_000;
        }
        19 => {
            let wish = [None, Some("w0"), Some("w1")][world.rng.number_below(3) as usize];
            let uplink = wish.map(str::to_owned);
            world.handle_input(1 + router, Input::Command(Command::Handover { uplink, policy: None }));
        }
        20 => {
            if let Some(packet) = update_for_foreign_network(world, router) {
                world.inject_at_home_agent(packet);
            }
        }
        21 => {
            // Another program changes a setting or rule. It sets no value that carnet sets too, because the
            // test could not know which of the two has set it. The same holds while carnet restores the
            // settings of all interfaces.
            let node = &world.nodes[index];
            let is_running = node.process.is_some();
            if is_running && rng.is_true_with_probability(0.2) {
                node.kernel.restore_local_rule();
            } else if is_running && rng.is_true_with_probability(0.3) {
                node.kernel.set_setting("all", "forwarding", "0");
            } else if is_running && rng.is_true_with_probability(0.5) {
                node.kernel.set_setting("o0", "forwarding", "0");
            } else {
                node.kernel.set_setting("o0", "accept_ra", ["0", "1", "1"][network as usize]);
            }
        }
        _ => world.attack_once(),
    }
}

/// Checks that no packet is lost, in either direction, while a router moves from one uplink to the other.
fn check_lossless_handover(world: &mut SimulatedNetwork, router: usize, new_uplink: usize) {
    let uplink = Some(UPLINKS[new_uplink].to_owned());
    let mut numbers = Vec::new();
    numbers.extend(world.exchange_data_packets(router));
    world.handle_input(1 + router, Input::Command(Command::Handover { uplink, policy: None }));
    let end = world.now + Duration::from_millis(400);
    let pause = Duration::from_millis(7);
    while world.now < end {
        numbers.extend(world.exchange_data_packets(router));
        let next = (world.now + pause).min(end);
        for _ in 0..3 {
            if !world.run_next_event(next) {
                world.now = next;
                break;
            }
        }
    }
    world.run_for(Duration::from_secs(1));
    let lost: Vec<u32> =
        numbers.iter().copied().filter(|number| !world.arrived_packets.contains(number)).collect();
    assert!(lost.is_empty(), "{} of {} packets were lost in a handover: {lost:?}", lost.len(), numbers.len());
    let known = world.nodes[1 + router].process.as_ref().expect("it runs");
    let care_of = known.station.nemo().binding_status(world.now)[0].care_of_address;
    assert_eq!(
        care_of.map(|it| it.to_string()),
        Some(self::care_of_address(router, new_uplink, 0).to_string()),
        "it did not go"
    );
}

/// Ends the faults, and checks the recovery.
fn check_recovery(world: &mut SimulatedNetwork) {
    // A router may have to send its messages several times.
    world.simulated_link = Link { loss_probability: 0.6, ..link_without_faults(MAX_LINK_DELAY) };
    // A home agent that has accepted a message from a clock that was ahead rejects messages with an earlier
    // time (RFC 4285 5). So the test never sets clocks back for good.
    world.clocks_ahead += CLOCK_ADVANCE_NANOSECONDS;
    for node in &mut world.nodes {
        node.kernel.set_failure_probability(0.0);
        node.disk.set_failure_probability(false, 0.0);
        node.clock_ahead = world.clocks_ahead;
    }
    // Routers learn the time of the home agent from its answers.
    for node in &mut world.nodes[1..] {
        node.clock_ahead += [0, 20, -20][world.rng.number_below(3) as usize] * 1_000_000_000;
    }
    for router in 0..2 {
        world.handle_input(1 + router, Input::Command(Command::Handover { uplink: None, policy: None }));
        for uplink in 0..2 {
            world.attach_uplink(router, uplink, Some(0));
        }
    }
    world.run_for(Duration::from_secs(5));
    world.simulated_link = link_without_faults(Duration::from_millis(20 + world.rng.number_below(150)));
    let (patient, end) = (world.now + TIME_UNTIL_ROUTERS_SEND, world.now + RECOVERY_TIME_LIMIT);
    let is_well = |world: &SimulatedNetwork| {
        world.is_registered(0) && world.is_registered(1) && world.kernel_differences().is_empty()
    };
    while world.now < end && !is_well(world) {
        world.run_for(Duration::from_millis(500));
        // After [`TIME_UNTIL_ROUTERS_SEND`], a router that has lost its binding sends a packet, and learns of
        // the loss from the answer.
        if world.now > patient {
            world.exchange_data_packets(0);
            world.exchange_data_packets(1);
        }
    }
    let differences = world.kernel_differences();
    assert!(differences.is_empty(), "kernels are not what they are to be: {differences:#?}");
    let states = [1, 2].map(|index| {
        let process = world.nodes[index].process.as_ref();
        process.and_then(|process| process.station.mobile_router()).map(|machine| machine.state())
    });
    assert!(is_well(world), "not registered: {states:?}");
}

fn run_schedule(seed: u64) {
    let mut rng = Rng::new(seed);
    let (agent, routers) = random_configs(&mut rng);
    let mut world = SimulatedNetwork::new(agent, routers, rng);
    for _ in 0..1 + world.rng.number_below(2) {
        world.simulated_link = Link {
            loss_probability: world.rng.number_below(41) as f64 / 100.0,
            duplication_probability: if world.rng.is_true_with_probability(0.5) { 0.2 } else { 0.0 },
            ..link_without_faults(Duration::from_millis(2 + world.rng.number_below(3000)))
        };
        for _ in 0..world.rng.number_below(50) {
            inject_random_fault(&mut world);
            let longest = Duration::from_secs([1, 20, 900][world.rng.number_below(3) as usize]);
            let pause = world.rng.duration_between(Duration::ZERO, longest);
            world.run_for(pause / 2);
            world.exchange_data_packets(0);
            world.exchange_data_packets(1);
            world.run_for(pause / 2);
        }
        // Cancel the planned ends of processes.
        world.nodes.iter_mut().for_each(node::Node::cancel_crash);
        check_recovery(&mut world);
        // In 130 s the old paths expire, and the other uplinks receive an advertisement.
        world.run_for(Duration::from_secs(130));
        for (router, to) in [(0, 1), (1, 1), (0, 0)] {
            check_lossless_handover(&mut world, router, to);
        }
    }
    for node in &world.nodes {
        let size = node.entries_in_memory();
        assert!(size < MAX_ENTRIES_IN_MEMORY, "{size} entries are remembered");
        let octets = node.disk.file_size(Path::new(STATE_FILE));
        assert!(octets < MAX_FILE_LENGTH, "a file of {octets} octets");
    }
    for index in [1, 2, 0] {
        let now = world.now;
        world.nodes[index].request_shutdown(now);
        world.run_for(Duration::from_secs(1));
        world.end_process(index, ProcessEnd::Orderly);
        let left = world.nodes[index].kernel.leftover_objects();
        assert!(left.is_empty(), "machine {index}, after its end: {left:#?}");
        world.nodes[index].next_start_at = None;
    }
}

/// Number of schedules that the test runs; `CARNET_SCHEDULES` changes it.
const SCHEDULE_COUNT: u64 = match option_env!("CARNET_SCHEDULES") {
    Some(text) => match u64::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("CARNET_SCHEDULES is no number"),
    },
    None => 40,
};

#[test]
fn station_invariants_hold_under_random_faults() {
    if let Some(seed) = option_env!("CARNET_SEED").and_then(|text| text.parse().ok()) {
        return run_schedule(seed);
    }
    for seed in 0..SCHEDULE_COUNT {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_schedule(seed))) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
