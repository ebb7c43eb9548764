//! Builds the networks of an evaluation: the same network twice, for plain routing and for the subject.
//!
//! Two worlds of the benchmark ([`carnet_bench::world`]) stand beside each other, so that both are measured
//! by turns in one run. In the first world, mobile router and home agent are plain routers. In the second
//! world they run `carnet`, or two commands set them up (`--mr`, `--ha`). For GeoNetworking the evaluation
//! uses the testbed of a scenario, which also has hosts with plain routes.

use std::path::Path as File;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::results::MeasuredSubject;
use carnet_bench::path::DataPath;
use carnet_bench::world::{
    CARE_OF_ADDRESS, CORRESPONDENT_ADDRESS, CORRESPONDENT_IPV4_ADDRESS, HOME_AGENT_ADDRESS, Programs,
    TestNetwork,
};
use carnet_testbed::clock::{self, MILLISECOND, SECOND};
use carnet_testbed::isolate::{Interrupted, has_to_stop};
use carnet_testbed::process::{BackgroundProgram, command_in_node, run_for_output};
use carnet_testbed::{tools, topology};

/// Name of the curve of plain routing.
pub const PLAIN_SERIES: &str = "plain";
/// Name of the curve of IPv4 without a tunnel.
pub const IPV4_SERIES: &str = "ipv4";
/// Name of the curve of the implementation under test (the subject).
pub const SUBJECT_SERIES: &str = "subject";
/// Name of the curve of the mobile router's own ping in a handover.
pub const ROUTER_SERIES: &str = "router";

/// Name of an implementation under test that is not carnet.
pub const GIVEN_COMMANDS_NAME: &str = "the given commands";

/// Longest time in seconds within which the given commands must set up the tunnel.
const START_TIMEOUT_SECONDS: u64 = 30;

/// Two hosts that exchange packets.
#[derive(Debug, Clone)]
pub struct HostPair {
    /// Name of the curve that these hosts measure.
    pub series: &'static str,
    /// Node of the host in the mobile network.
    pub host_node: String,
    /// Node of the second host.
    pub peer_node: String,
    /// Address of the second host.
    pub peer_address: String,
}

/// Implementation under test.
#[derive(Debug, Clone)]
pub enum ImplementationUnderTest {
    /// carnet, over the first of these paths that the machine supports.
    Carnet(Vec<DataPath>),
    /// Commands for the mobile router and the home agent.
    Commands { mr: String, ha: String },
}

/// Both networks of an evaluation.
#[derive(Debug)]
pub struct TestNetworks {
    /// Network whose routers only route packets (plain routing).
    pub plain_network: TestNetwork,
    /// Network with the implementation under test (the subject).
    pub subject_network: TestNetwork,
    /// Description of the implementation under test.
    pub subject_description: MeasuredSubject,
    link_rate: Option<String>,
}

impl TestNetworks {
    /// Builds the network with plain routers, and the network with the implementation under test.
    pub fn build_networks(
        contender: &ImplementationUnderTest,
        programs: &Programs,
    ) -> anyhow::Result<TestNetworks> {
        let plain = TestNetwork::build_network("plain", DataPath::Plain, DataPath::Plain, programs)?;
        let (subject, about) = match contender {
            ImplementationUnderTest::Commands { mr, ha } => {
                let about = MeasuredSubject {
                    name: GIVEN_COMMANDS_NAME.into(),
                    mr: Some(mr.clone()),
                    ha: Some(ha.clone()),
                };
                (build_with_given_commands(mr, ha, programs)?, about)
            }
            ImplementationUnderTest::Carnet(paths) => build_first_carnet_path(paths, programs)?,
        };
        Ok(TestNetworks {
            plain_network: plain,
            subject_network: subject,
            subject_description: about,
            link_rate: None,
        })
    }

    /// Returns the pairs of hosts to measure: one with plain routing, and one with the implementation under
    /// test. With `ipv4`, a third pair has IPv4 and plain routing.
    pub fn host_pairs(&self, ipv4: bool) -> Vec<HostPair> {
        let ends = |series, world: &TestNetwork, address: &str| HostPair {
            series,
            host_node: world.node_name("mnn"),
            peer_node: world.node_name("cn"),
            peer_address: address.into(),
        };
        let mut all = vec![
            ends(PLAIN_SERIES, &self.plain_network, CORRESPONDENT_ADDRESS),
            ends(SUBJECT_SERIES, &self.subject_network, CORRESPONDENT_ADDRESS),
        ];
        if ipv4 {
            all.insert(0, ends(IPV4_SERIES, &self.plain_network, CORRESPONDENT_IPV4_ADDRESS));
        }
        all
    }

    /// Limits the access link to this rate in both directions, as an Ethernet cable does, so that preamble,
    /// checksum and gap count.
    pub fn set_link_rate(&mut self, rate: Option<&str>) -> anyhow::Result<()> {
        if self.link_rate.as_deref() == rate {
            return Ok(());
        }
        for world in [&self.plain_network, &self.subject_network] {
            for (role, interface) in [("mr", "e0"), ("ha", "f0")] {
                let mut tc = command_in_node(&world.node_name(role), tools::path_of_program("tc"));
                match rate {
                    // A frame takes 24 octets more on the wire than the kernel counts: preamble, frame check
                    // sequence and gap.
                    Some(rate) => tc
                        .args(["qdisc", "replace", "dev", interface, "root", "stab", "overhead", "24"])
                        .args([
                            "linklayer",
                            "ethernet",
                            "tbf",
                            "rate",
                            rate,
                            "burst",
                            "8kb",
                            "limit",
                            "64kb",
                        ]),
                    None => tc.args(["qdisc", "del", "dev", interface, "root"]),
                };
                run_for_output(&mut tc).context("cannot limit the rate of the access link")?;
            }
        }
        self.link_rate = rate.map(str::to_owned);
        Ok(())
    }

    /// Fails if the user stops the run, or a program of the implementation under test has ended with an
    /// error.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        self.subject_network.daemons.iter_mut().try_for_each(check_daemon_not_failed)
    }

    /// Returns the process numbers of the running programs of the implementation under test.
    pub fn process_ids(&mut self) -> Vec<u32> {
        self.subject_network.daemons.iter_mut().filter_map(running_process_id).collect()
    }

    /// Ends the programs in order, and removes the networks.
    pub fn stop_routers(mut self) -> anyhow::Result<()> {
        terminate_daemons(&mut self.subject_network.daemons);
        for world in [&self.plain_network, &self.subject_network] {
            let nodes =
                ["mnn", "mr", "ha", "cn"].map(|role| format!("netns del {}\n", world.node_name(role)));
            topology::run_ip_batch(None, &nodes.concat())?;
        }
        Ok(())
    }
}

impl Drop for TestNetworks {
    fn drop(&mut self) {
        terminate_daemons(&mut self.subject_network.daemons);
    }
}

/// Makes programs end, together with the programs that they have started. A shell runs each command and does
/// not pass signals on, so the signal goes to the process group.
fn terminate_daemons(daemons: &mut [BackgroundProgram]) {
    for daemon in daemons.iter_mut().rev() {
        if daemon.exit_status().is_none() {
            // Each program leads a group (carnet_testbed::process::command_in_node). Skip a program that has
            // ended, because another group may have its number.
            let _ = killpg(Pid::from_raw(daemon.process_id() as i32), Signal::SIGTERM);
            daemon.stop(Signal::SIGTERM);
        }
    }
}

/// Returns the process number of a program; `None` if the program has ended.
pub fn running_process_id(daemon: &mut BackgroundProgram) -> Option<u32> {
    daemon.exit_status().is_none().then(|| daemon.process_id())
}

/// Fails if the program ended with an error. A command may end successfully after it has set up a network.
fn check_daemon_not_failed(daemon: &mut BackgroundProgram) -> anyhow::Result<()> {
    match daemon.exit_status() {
        Some(status) if !status.success() => {
            bail!(
                "the program {} ended with an error ({status}); its last output:\n{}",
                daemon.program_name,
                daemon.log_tail()
            )
        }
        _ => Ok(()),
    }
}

fn build_first_carnet_path(
    paths: &[DataPath],
    programs: &Programs,
) -> anyhow::Result<(TestNetwork, MeasuredSubject)> {
    let mut refused = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        match TestNetwork::build_network(&format!("subject{number}"), *path, *path, programs) {
            Ok(world) => {
                let name = format!("carnet, path {}", path.name());
                return Ok((world, MeasuredSubject { name, mr: None, ha: None }));
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => refused.push(format!("{}: {error:#}", path.name())),
        }
    }
    bail!("cannot start carnet on any of its data paths:\n{}", refused.join("\n"))
}

/// Builds the network in which the given commands set up the routers.
fn build_with_given_commands(mr: &str, ha: &str, programs: &Programs) -> anyhow::Result<TestNetwork> {
    let mut world = TestNetwork { name: "subject".into(), stations: Vec::new(), daemons: Vec::new() };
    let made = start_commands(&mut world, mr, ha, programs);
    if made.is_err() {
        terminate_daemons(&mut world.daemons);
    }
    made.map(|()| world)
}

fn start_commands(world: &mut TestNetwork, mr: &str, ha: &str, programs: &Programs) -> anyhow::Result<()> {
    world.create_links()?;
    world.add_uplink_routes()?;
    for (role, command) in [("ha", ha), ("mr", mr)] {
        let node = world.node_name(role);
        let log = programs.log_folder.join(format!("{role}.log"));
        let mut shell = command_in_node(&node, "sh");
        shell.args(["-ec", command]).envs(command_environment(role));
        world.daemons.push(BackgroundProgram::start(&format!("the command for {role}"), &log, &mut shell)?);
    }
    let (node, until) = (world.node_name("mnn"), clock::monotonic_now() + START_TIMEOUT_SECONDS * SECOND);
    loop {
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        world.daemons.iter_mut().try_for_each(check_daemon_not_failed)?;
        let mut ping = command_in_node(&node, tools::path_of_program("ping"));
        if run_for_output(ping.args(["-6", "-n", "-c", "1", "-W", "1", CORRESPONDENT_ADDRESS])).is_ok() {
            return Ok(());
        }
        if clock::monotonic_now() > until {
            let said: Vec<String> = world
                .daemons
                .iter()
                .map(|d| format!("last output of {}:\n{}", d.program_name, d.log_tail()))
                .collect();
            bail!(
                "the host on board did not reach the correspondent node {CORRESPONDENT_ADDRESS} within \
                 {START_TIMEOUT_SECONDS} s\n{}",
                said.join("\n")
            );
        }
        clock::sleep(200 * MILLISECOND);
    }
}

/// Returns the environment of a command that describes the network (docs/evaluation.md).
fn command_environment(role: &str) -> Vec<(&'static str, String)> {
    let own = match role {
        "mr" => [("EVAL_UPLINKS", "e0 e1"), ("EVAL_LAN", "i0")],
        _ => [("EVAL_UPLINKS", "f0 f1"), ("EVAL_LAN", "h0")],
    };
    let known = [
        ("EVAL_ROLE", role),
        ("EVAL_HOME_AGENT", HOME_AGENT_ADDRESS),
        ("EVAL_HOME_PREFIX", "2001:db8:1::/64"),
        ("EVAL_HOME_ADDRESS", "2001:db8:1::1234"),
        ("EVAL_MOBILE_NETWORK", "2001:db8:a::/64"),
        ("EVAL_CARE_OF", CARE_OF_ADDRESS),
        ("EVAL_GATEWAY", "2001:db8:f0::1"),
        ("EVAL_CORRESPONDENTS", "2001:db8:c::/64"),
    ];
    own.into_iter().chain(known).map(|(key, value)| (key, value.to_owned())).collect()
}

/// Returns the folder of the scenario whose testbed has two vehicles with `hops` hops between them.
pub fn platoon_scenario_folder(scenarios: &File, hops: usize) -> std::path::PathBuf {
    scenarios.join(if hops == 1 { "v2v-one-hop" } else { "v2v-two-hops" })
}

/// Returns the pairs of hosts in the testbed of two vehicles.
pub fn platoon_host_pairs() -> Vec<HostPair> {
    let ends = |series, host: &str, peer: &str, address: &str| HostPair {
        series,
        host_node: host.into(),
        peer_node: peer.into(),
        peer_address: address.into(),
    };
    vec![
        ends(PLAIN_SERIES, "plain1", "plain2", "2001:db8:b2::100"),
        ends(SUBJECT_SERIES, "mnn1", "mnn2", "2001:db8:a2::100"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn sigterm_reaches_all_processes_of_a_shell_command() {
        let folder = std::env::temp_dir().join(format!("carnet-lab-group-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (ready, told) = (folder.join("ready"), folder.join("told"));
        let inner = format!(
            "trap 'echo > {}; exit' TERM; echo > {}; while :; do sleep 0.05; done",
            told.display(),
            ready.display()
        );
        let mut shell = std::process::Command::new("sh");
        // Let the outer shell wait for the inner shell: it does so only because another command follows.
        shell.args(["-c", &format!("sh -c \"{inner}\"; true")]).process_group(0);
        let mut daemons = vec![
            BackgroundProgram::start("a command", &folder.join("log"), &mut shell)
                .expect("the system has a shell"),
        ];
        let there = |file: &File| {
            let until = clock::monotonic_now() + 60 * SECOND;
            while !file.exists() && clock::monotonic_now() < until {
                clock::sleep(10 * MILLISECOND);
            }
            file.exists()
        };
        assert!(there(&ready), "{}", daemons[0].log_tail());
        terminate_daemons(&mut daemons);
        assert!(there(&told), "{}", daemons[0].log_tail());
        assert!(daemons[0].exit_status().is_some());
        std::fs::remove_dir_all(folder).expect("its folder");
    }
}
