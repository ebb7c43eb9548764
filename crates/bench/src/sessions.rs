//! Measures TCP through encrypted tunnels, with one core for each end.
//!
//! The tunnels take turns in many short rounds:
//!
//! * plain forwarding;
//! * carnet without encryption;
//! * the library `sanstun` alone as a plain WireGuard tunnel (`wireguard_end`), over IPv6 and over IPv4;
//! * carnet with its default config and key pairs, over IPv6 and over IPv4.
//!
//! The packets inside are IPv6 everywhere. The hosts have the same MTU in all test networks, which fits each
//! tunnel.
//!
//! The mobile router and its host share one core. The home agent and its correspondent share another core.
//! The kernel handles a packet on the core of the program that has sent it. So each end has one core for all
//! its work. On a machine with one core both ends share it.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Context;
use carnet_wireguard::{PrivateKey, PublicKey};
use nix::sys::signal::Signal;

use super::MeasurementPlan;
use super::cores::{Cores, pin_process};
use super::figures::{Series, SessionSpeedFigure};
use super::path::{DataPath, SessionLane};
use super::tcp::direction_name;
use super::transfer::run_iperf3;
use super::wireguard_end::READY_MESSAGE;
use super::world::{
    CORRESPONDENT_ADDRESS, HOME_AGENT_ADDRESS, HOST_INTERFACES, NETWORK_OF_CORRESPONDENT, NETWORK_ON_BOARD,
    Programs, TestNetwork,
};
use carnet_testbed::clock::SECOND;
use carnet_testbed::isolate::{Interrupted, RUN_DIRECTORY, has_to_stop};
use carnet_testbed::process::{BackgroundProgram, command_in_node, run_for_output, wait_until};
use carnet_testbed::{console, tools, topology};

/// MTU of the hosts in all lanes: carnet advertises it for an encrypted tunnel over IPv6.
pub const HOST_MTU: usize = 1392;
/// MTU of the devices of the plain WireGuard ends.
const WIREGUARD_MTU: usize = 1408;
/// IPv4 addresses of mobile router and home agent on the link between them.
const IPV4_ENDS: [&str; 2] = ["192.0.2.2", "192.0.2.1"];
/// IPv6 addresses of mobile router and home agent on the link between them.
const IPV6_ENDS: [&str; 2] = ["2001:db8:f0::2", "2001:db8:f0::1"];
/// Numbers from which the keys of mobile router and home agent derive.
const KEY_NUMBERS: [u8; 2] = [2, 1];
const TUNNEL_PORT: u16 = 51820;
/// Time in nanoseconds that a transfer may take beyond its duration.
const END_TIMEOUT: u64 = 5 * SECOND;

/// The network of a lane, its programs, and its results.
struct LaneNetwork {
    lane: SessionLane,
    network: TestNetwork,
    /// Gbit/s of all rounds, up and down.
    rates: [Vec<f64>; 2],
    retransmits: [u64; 2],
    errors: [Option<String>; 2],
}

/// Writes a private key into a file that only root can read, below the run directory. Returns its path.
pub fn write_private_key(name: &str, key: &PrivateKey) -> anyhow::Result<PathBuf> {
    let file = std::path::Path::new(RUN_DIRECTORY).join(format!("{name}.key"));
    std::fs::write(&file, format!("{}\n", key.to_text().as_str()))
        .and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Returns the table `[station]` of a config with a private key, and with default values otherwise.
pub fn station_config_with_key(name: &str, key_file: &std::path::Path) -> String {
    format!(
        "[station]\nname = \"{name}\"\nsocket = \"/run/carnet/{name}.sock\"\nprivate_key_file = \"{}\"\n",
        key_file.display()
    )
}

fn agent_config(name: &str, lane: SessionLane, router_key: PublicKey) -> anyhow::Result<String> {
    let file = write_private_key(name, &PrivateKey::from_random([KEY_NUMBERS[1]; 32]))?;
    let mut text = station_config_with_key(name, &file);
    let _ = write!(
        text,
        "[home_agent]\naddress = \"{HOME_AGENT_ADDRESS}\"\nhome_prefix = \"2001:db8:1::/64\"\n\
         max_lifetime = \"72h\"\n"
    );
    if lane.is_over_ipv4() {
        let _ = writeln!(text, "ipv4_address = \"{}\"", IPV4_ENDS[1]);
    }
    let _ = write!(
        text,
        "[[home_agent.mobile_router]]\nhome_address = \"2001:db8:1::1234\"\n\
         prefixes = [\"{NETWORK_ON_BOARD}\"]\nauth = {{ public_key = \"{router_key}\" }}\n"
    );
    Ok(text)
}

fn router_config(name: &str, lane: SessionLane, agent_key: PublicKey) -> anyhow::Result<String> {
    let file = write_private_key(name, &PrivateKey::from_random([KEY_NUMBERS[0]; 32]))?;
    let mut text = station_config_with_key(name, &file);
    let _ = write!(
        text,
        "[mobile_router]\nhome_address = \"2001:db8:1::1234\"\nhome_prefix = \"2001:db8:1::/64\"\n\
         home_agent = \"{HOME_AGENT_ADDRESS}\"\nhome_agent_key = \"{agent_key}\"\n\
         prefixes = [\"{NETWORK_ON_BOARD}\"]\nlifetime = \"72h\"\nlan = [\"i0\"]\nadvertise = false\n"
    );
    if lane.is_over_ipv4() {
        let _ = writeln!(text, "home_agent_ipv4 = \"{}\"", IPV4_ENDS[1]);
    }
    text.push_str("[[mobile_router.uplink]]\ninterface = \"e0\"\n");
    Ok(text)
}

/// Replaces IPv6 by IPv4 on the link between the routers.
fn use_ipv4_between_routers(network: &TestNetwork) -> anyhow::Result<()> {
    for (role, interface, at) in [("mr", "e0", 0), ("ha", "f0", 1)] {
        let node = network.node_name(role);
        topology::run_ip_batch(Some(&node), &format!("addr flush dev {interface} scope global\n"))?;
        let route =
            if role == "mr" { format!("route add default via {}\n", IPV4_ENDS[1]) } else { String::new() };
        let commands = format!("addr add {}/24 dev {interface}\n{route}", IPV4_ENDS[at]);
        topology::run_ip_batch_of_family("-4", Some(&node), &commands)?;
    }
    Ok(())
}

/// Creates the network of a tunnel, without the programs at its ends.
fn create_network(lane: SessionLane) -> anyhow::Result<TestNetwork> {
    let network = TestNetwork { name: lane.network_name().into(), stations: Vec::new(), daemons: Vec::new() };
    network.create_links()?;
    network.add_uplink_routes()?;
    if lane.is_over_ipv4() {
        use_ipv4_between_routers(&network)?;
    }
    Ok(network)
}

fn build_encrypted_network(lane: SessionLane, programs: &Programs) -> anyhow::Result<TestNetwork> {
    let mut network = create_network(lane)?;
    let [router, agent] = KEY_NUMBERS.map(|number| PrivateKey::from_random([number; 32]).public_key());
    let config = agent_config(&network.node_name("ha"), lane, router)?;
    network.start_station("ha", &config, programs)?;
    let config = router_config(&network.node_name("mr"), lane, agent)?;
    network.start_station("mr", &config, programs)?;
    for station in &network.stations {
        let what = format!("a registered binding at {}", station.node);
        wait_until(&what, 30, &mut network.daemons, || {
            Ok(station.is_ready() && station.has_registered_bindings(1).unwrap_or(false))
        })?;
        let tunnels = station.show_json("tunnels")?;
        anyhow::ensure!(
            tunnels[0]["encryption"] == "encrypted",
            "the tunnel of {} is not encrypted: {tunnels}",
            station.node
        );
    }
    Ok(network)
}

fn build_library_network(lane: SessionLane, programs: &Programs) -> anyhow::Result<TestNetwork> {
    let mut network = create_network(lane)?;
    let addresses = if lane.is_over_ipv4() { IPV4_ENDS } else { IPV6_ENDS };
    let endpoint = |address: &str| {
        if lane.is_over_ipv4() {
            format!("{address}:{TUNNEL_PORT}")
        } else {
            format!("[{address}]:{TUNNEL_PORT}")
        }
    };
    // The home agent's end comes first, so that it is ready when the other end begins the handshake.
    for (role, own, route) in [("ha", 1, NETWORK_ON_BOARD), ("mr", 0, NETWORK_OF_CORRESPONDENT)] {
        let node = network.node_name(role);
        run_for_output(
            command_in_node(&node, "sh").args(["-ec", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"]),
        )?;
        let mut command = command_in_node(&node, std::env::current_exe()?);
        command.arg("wireguard-end");
        for (option, value) in [
            ("--local", endpoint(addresses[own])),
            ("--remote", endpoint(addresses[1 - own])),
            ("--key", KEY_NUMBERS[own].to_string()),
            ("--peer-key", KEY_NUMBERS[1 - own].to_string()),
        ] {
            command.arg(option).arg(value);
        }
        let log = programs.log_folder.join(format!("{node}.log"));
        network.daemons.push(BackgroundProgram::start(
            &format!("WireGuard end in {node}"),
            &log,
            &mut command,
        )?);
        wait_until(&format!("a WireGuard end in {node}"), 30, &mut network.daemons, || {
            Ok(std::fs::read_to_string(&log).unwrap_or_default().contains(READY_MESSAGE))
        })?;
        topology::run_ip_batch(
            Some(&node),
            &format!(
                "link set carnet0 up mtu {WIREGUARD_MTU} txqueuelen 4000\nroute add {route} dev carnet0\n"
            ),
        )?;
    }
    Ok(network)
}

impl LaneNetwork {
    fn build(lane: SessionLane, programs: &Programs, cores: &Cores) -> anyhow::Result<LaneNetwork> {
        let name = lane.network_name();
        let network = match lane {
            SessionLane::Plain => {
                TestNetwork::build_network(name, DataPath::Plain, DataPath::Plain, programs)?
            }
            SessionLane::ClearBpf => {
                TestNetwork::build_network(name, DataPath::Bpf, DataPath::Bpf, programs)?
            }
            SessionLane::ClearTun => {
                TestNetwork::build_network(name, DataPath::Tun, DataPath::Tun, programs)?
            }
            SessionLane::Library | SessionLane::LibraryIpv4 => build_library_network(lane, programs)?,
            SessionLane::Encrypted | SessionLane::EncryptedIpv4 => build_encrypted_network(lane, programs)?,
        };
        // All networks start the home agent first.
        for (daemon, core) in network.daemons.iter().rev().zip(cores.cores_of_two_ends()) {
            pin_process(daemon.process_id(), core)?;
        }
        for (role, interface) in HOST_INTERFACES {
            let mtu = HOST_MTU.to_string();
            run_for_output(
                command_in_node(&network.node_name(role), tools::path_of_program("ip"))
                    .args(["link", "set", interface, "mtu", &mtu]),
            )?;
        }
        console::print_step(&format!("{}: ready", lane.lane_description()));
        Ok(LaneNetwork {
            lane,
            network,
            rates: Default::default(),
            retransmits: [0; 2],
            errors: [None, None],
        })
    }

    /// Makes a transfer in a direction (0 up, 1 down) and adds its result.
    fn measure_transfer(
        &mut self,
        direction: usize,
        measurement_plan: &MeasurementPlan,
        cores: &Cores,
    ) -> anyhow::Result<()> {
        let [router_core, agent_core] = cores.cores_of_two_ends();
        let seconds = measurement_plan.transfer_seconds.to_string();
        let affinity = format!("{router_core},{agent_core}");
        let amount = if measurement_plan.transfer_seconds == 0 { ["-n", "2M"] } else { ["-t", &seconds] };
        let mut arguments: Vec<String> =
            ["-P", "1", "-C", "cubic", "-A", &affinity, amount[0], amount[1]].map(str::to_owned).into();
        if direction == 1 {
            arguments.push("-R".into());
        }
        let [server, client] = ["cn", "mnn"].map(|role| self.network.node_name(role));
        let patience = measurement_plan.transfer_seconds * 2 * SECOND + END_TIMEOUT;
        match run_iperf3(&server, &client, CORRESPONDENT_ADDRESS, &arguments, patience)? {
            Ok(told) => {
                let received = told["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
                self.rates[direction].push(received / 1e9);
                self.retransmits[direction] += told["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0);
            }
            Err(why) => {
                self.rates[direction].push(0.0);
                self.errors[direction] = Some(why);
            }
        }
        for daemon in &mut self.network.daemons {
            daemon.check_running()?;
        }
        Ok(())
    }

    fn stop(&mut self) {
        for daemon in &mut self.network.daemons {
            daemon.send_signal(Signal::SIGTERM);
        }
        for daemon in &mut self.network.daemons {
            daemon.wait_at_most(10 * SECOND);
        }
    }
}

/// Measures TCP in both directions through all lanes, which take turns.
pub fn measure_session_speed(
    measurement_plan: &MeasurementPlan,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Vec<SessionSpeedFigure>> {
    cores.allow_all_cores()?;
    let mut lanes = Vec::new();
    let wanted = SessionLane::ALL_LANES.into_iter().filter(|lane| {
        measurement_plan.session_lanes.is_empty() || measurement_plan.session_lanes.contains(lane)
    });
    for lane in wanted {
        let built = LaneNetwork::build(lane, programs, cores);
        lanes.push(built.with_context(|| format!("cannot build the lane {}", lane.lane_description()))?);
    }
    for round in 0..measurement_plan.transfer_rounds {
        for turn in 0..lanes.len() {
            if has_to_stop() {
                return Err(Interrupted.into());
            }
            let at = (turn + round) % lanes.len();
            for direction in [0, 1] {
                lanes[at].measure_transfer(direction, measurement_plan, cores)?;
            }
        }
    }
    let mut figures = Vec::new();
    for direction in [0, 1] {
        let series = |lane: SessionLane| {
            let lane = lanes.iter().find(|one| one.lane == lane)?;
            Some(Series::of_rounds(lane.rates[direction].clone()))
        };
        let plain = series(SessionLane::Plain);
        for one in &lanes {
            let gbit = Series::of_rounds(one.rates[direction].clone());
            let library = one.lane.library_lane().and_then(series);
            figures.push(SessionSpeedFigure {
                lane: one.lane,
                direction: direction_name(direction == 1),
                ends_have_own_cores: cores.cores_of_two_ends()[0] != cores.cores_of_two_ends()[1],
                ratio_to_plain: plain.as_ref().and_then(|plain| gbit.ratio_to(plain)),
                ratio_to_library: library.as_ref().and_then(|library| gbit.ratio_to(library)),
                library_confidence_limits: library
                    .as_ref()
                    .and_then(|library| gbit.ratios_to(library).confidence_limits()),
                gbit,
                retransmits: one.retransmits[direction],
                error: one.errors[direction].clone(),
            });
        }
    }
    lanes.iter_mut().for_each(LaneNetwork::stop);
    cores.pin_to_measuring_core()?;
    console::print_step("TCP through encrypted tunnels");
    Ok(figures)
}
