//! Runs three machines that serve as home agents together, with their store (etcd), and causes faults of
//! them.
//!
//! ```text
//!              routers            hosts          store
//!   anna-0   f0 ---- fANNA0   h0 ---- hANNA0   e0 ---- eANNA0 \
//!   anna-1   ...                                        ...    > br0 ---- etcd0 .. etcd2
//!   bruno-0  ...                                        ...   /
//! ```
//!
//! A machine has a network namespace for each seat, like a container, in which `carnet-fleet` runs. The far
//! ends of the links to routers and hosts are all in one node, where [`super::routers`] plays both. The far
//! ends of the links to the store are in a bridge. The list of machines of every seat begins with another
//! machine. So each machine leads a seat while all run.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path as File, PathBuf};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::super::fleet::prefix_table_config;
use super::super::path::DataPath;
use super::super::world::{Programs, station_config};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::isolate::{self, Interrupted, has_to_stop};
use carnet_testbed::process::{BackgroundProgram, command_in_node, run_for_output};
use carnet_testbed::{tools, topology};

/// Names of the machines.
pub const MACHINE_NAMES: [&str; 3] = ["anna", "bruno", "carla"];
/// Time in milliseconds after which a restarted machine becomes leader again. The default of half a minute is
/// too long for many restarts.
const LEADERSHIP_RETURN_MS: u64 = 2000;
/// Maximum time until the store, or a home agent, accepts connections.
const START_TIMEOUT: u64 = 60 * SECOND;
/// Node with the far ends of links to routers and hosts.
pub const ROUTERS_NODE: &str = "takeover.net";
const CORE_NODE: &str = "takeover.core";

/// Returns the address of a seat's home agent.
pub fn home_agent_address(seat: usize) -> String {
    format!("2001:db8:1::{:x}", seat + 1)
}

/// Returns the hardware addresses of the far end and the near end of a member's link to hosts, or to routers.
pub fn link_addresses_of(hosts: bool) -> ([u8; 6], [u8; 6]) {
    let mac = |end| [2, 0, 0, 0, if hosts { 2 } else { 1 }, end];
    (mac(2), mac(1))
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// A member: a `carnet-fleet` and the home agent that it starts.
#[derive(Debug)]
pub struct Member {
    /// Machine of the member, as an index into [`MACHINE_NAMES`].
    pub machine_index: usize,
    /// Index of the home agent (seat) that the member can lead.
    pub seat_index: usize,
    daemon: Option<BackgroundProgram>,
    start_count: usize,
}

impl Member {
    /// Returns the name of the member: its machine and the home agent that it can lead.
    pub fn name(&self) -> String {
        format!("{}-{}", MACHINE_NAMES[self.machine_index], self.seat_index)
    }

    fn node_name(&self) -> String {
        format!("takeover.{}", self.name())
    }

    /// Returns the far end of one of the member's links: `f` to routers, `h` to hosts, `e` to the store.
    pub fn interface_name(&self, kind: char) -> String {
        format!("{kind}{}", self.name())
    }

    fn control_socket(&self) -> PathBuf {
        File::new("/run/carnet").join(format!("{}.sock", self.name()))
    }

    /// Returns the process of the member's home agent, if it runs.
    pub fn agent_processes(&self) -> Vec<Pid> {
        let Some(daemon) = &self.daemon else { return Vec::new() };
        let children = format!("/proc/{0}/task/{0}/children", daemon.process_id());
        let children = fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().filter_map(|one| one.parse().ok()).map(Pid::from_raw).collect()
    }

    /// Sends a signal to `carnet-fleet`, to its home agent, or to both. `carnet-fleet` gets it first, because
    /// it would restart the home agent.
    pub fn signal_processes(&self, keeper: bool, agent: bool, signal: Signal) {
        let agents = self.agent_processes();
        if let Some(daemon) = self.daemon.as_ref().filter(|_| keeper) {
            daemon.send_signal(signal);
        }
        for one in agents.iter().filter(|_| agent) {
            let _ = kill(*one, signal);
        }
    }

    /// Waits until the process has ended after a `kill -9`.
    pub fn reap_process(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait_at_most(20 * SECOND);
        }
    }

    /// Returns whether the process ended without an error; `None` if it still runs.
    pub fn exited_successfully(&mut self) -> Option<bool> {
        let status = self.daemon.as_mut()?.exit_status()?;
        self.daemon = None;
        Some(status.success())
    }

    /// Returns whether the process runs.
    pub fn is_running(&self) -> bool {
        self.daemon.is_some()
    }

    /// Returns the bindings that the member's home agent lists. `None` if the home agent does not answer
    /// within 5 s, as when another member leads the seat.
    pub fn show_bindings(&self, carnet: &File) -> Option<Vec<Value>> {
        // A stopped home agent accepts a connection but does not answer.
        let shown = run_for_output(
            std::process::Command::new("timeout")
                .arg("5")
                .arg(carnet)
                .args(["show", "bindings", "--json", "--socket"])
                .arg(self.control_socket()),
        );
        serde_json::from_str(&shown.ok()?).ok()
    }
}

/// All machines, their members (one for each seat), and the store.
#[derive(Debug)]
pub struct TestMachines {
    /// Data path of the home agents.
    pub path: DataPath,
    /// Number of home agents (seats).
    pub seat_count: usize,
    /// Members of all machines, in the order of machines, then seats.
    pub all_members: Vec<Member>,
    store_servers: Vec<Option<BackgroundProgram>>,
    programs: Programs,
    etcd_program: PathBuf,
    log_folder: PathBuf,
}

/// Returns the path of etcd: the program that `tools/setup.sh` has unpacked, otherwise the one in PATH.
/// `None` if neither exists.
pub fn find_etcd() -> Option<PathBuf> {
    tools::find_beside_this_program("out/tools/etcd", File::is_file).or_else(|| tools::find_program("etcd"))
}

impl TestMachines {
    /// Starts all programs, and waits until each home agent has a leader.
    pub fn start_all(
        path: DataPath,
        seats: usize,
        stores: usize,
        routers: u32,
        programs: &Programs,
    ) -> anyhow::Result<TestMachines> {
        let folder = programs.log_folder.join(format!("takeover-{}", path.name()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let members = (0..MACHINE_NAMES.len()).flat_map(|machine| {
            (0..seats).map(move |seat| Member {
                machine_index: machine,
                seat_index: seat,
                daemon: None,
                start_count: 0,
            })
        });
        let mut machines = TestMachines {
            path,
            seat_count: seats,
            all_members: members.collect(),
            store_servers: (0..stores).map(|_| None).collect(),
            programs: programs.clone(),
            etcd_program: find_etcd()
                .context("cannot find the program etcd; install it with: apt-get install etcd-server")?,
            log_folder: folder,
        };
        machines.create_links()?;
        for server in 0..stores {
            machines.start_store(server)?;
        }
        machines.wait_for_store()?;
        for member in 0..machines.all_members.len() {
            machines.write_member_config(member, routers)?;
            machines.start_member(member)?;
        }
        let until = monotonic_now() + START_TIMEOUT;
        while (0..seats).any(|seat| machines.leader_of_seat(seat).is_none()) {
            if has_to_stop() {
                return Err(Interrupted.into());
            }
            if monotonic_now() > until {
                bail!(
                    "expected a leader for each home agent within 60 s, but one has none; logs in {}",
                    machines.log_folder.display()
                );
            }
            clock::sleep(100 * MILLISECOND);
        }
        Ok(machines)
    }

    fn create_links(&self) -> anyhow::Result<()> {
        let stores: Vec<String> =
            (0..self.store_servers.len()).map(|one| format!("takeover.etcd{one}")).collect();
        let nodes: Vec<String> = self.all_members.iter().map(Member::node_name).collect();
        let mut commands = String::from("link set lo up\n");
        for node in nodes.iter().chain(&stores).map(String::as_str).chain([ROUTERS_NODE, CORE_NODE]) {
            let _ = writeln!(commands, "netns add {node}");
        }
        topology::run_ip_batch(None, &commands)?;
        for node in nodes.iter().chain(&stores).map(String::as_str).chain([ROUTERS_NODE, CORE_NODE]) {
            // The lab plays routers and hosts in this node, so its kernel must not handle IPv6.
            let silent = u8::from(node == ROUTERS_NODE);
            run_for_output(command_in_node(node, "sh").args([
                "-ec",
                &format!(
                    "cd /proc/sys/net/ipv6/conf
                     for key in default all; do
                         echo 0 > $key/accept_dad; echo 0 > $key/dad_transmits; echo {silent} > \
                         $key/disable_ipv6
                     done"
                ),
            ]))?;
        }
        topology::run_ip_batch(
            Some(CORE_NODE),
            "link add br0 type bridge mcast_snooping 0\nlink set br0 up\n",
        )?;
        let mut commands = String::new();
        for member in &self.all_members {
            for (kind, hosts) in [('f', false), ('h', true)] {
                let (far, near) = link_addresses_of(hosts);
                let _ = writeln!(
                    commands,
                    "link add {kind}0 address {} netns {} type veth peer name {} address {} netns \
                     {ROUTERS_NODE}",
                    mac_text(near),
                    member.node_name(),
                    member.interface_name(kind),
                    mac_text(far)
                );
            }
            let _ = writeln!(
                commands,
                "link add e0 netns {} type veth peer name {} netns {CORE_NODE}",
                member.node_name(),
                member.interface_name('e')
            );
        }
        for (at, node) in stores.iter().enumerate() {
            let _ =
                writeln!(commands, "link add e0 netns {node} type veth peer name s{at} netns {CORE_NODE}");
        }
        topology::run_ip_batch(None, &commands)?;
        let (mut net, mut core) = (String::new(), String::new());
        for (at, member) in self.all_members.iter().enumerate() {
            let [routers, hosts] = [false, true].map(|hosts| mac_text(link_addresses_of(hosts).0));
            topology::run_ip_batch(
                Some(&member.node_name()),
                &format!(
                    "link set lo up\nlink set f0 up\nlink set h0 up\nlink set e0 up
                     addr add 2001:db8:f0::1/64 dev f0 nodad
                     addr add 2001:db8:c::1/64 dev h0 nodad
                     addr add 2001:db8:fe::1:{at:x}/64 dev e0 nodad
                     neigh add 2001:db8:f0::2 lladdr {routers} dev f0 nud permanent
                     neigh add 2001:db8:c::2 lladdr {hosts} dev h0 nud permanent
                     route add 2001:dbb::/32 via 2001:db8:f0::2
                     route add blackhole 2001:dba::/32
                     route add blackhole 2001:db8:1::/64 metric 100000\n"
                ),
            )?;
            let _ = writeln!(
                net,
                "link set {} up\nlink set {} up",
                member.interface_name('f'),
                member.interface_name('h')
            );
            let _ = writeln!(core, "link set {0} master br0\nlink set {0} up", member.interface_name('e'));
        }
        for (at, node) in stores.iter().enumerate() {
            topology::run_ip_batch(
                Some(node),
                &format!(
                    "link set lo up\nlink set e0 up\naddr add 2001:db8:fe::{:x}/64 dev e0 nodad\n",
                    at + 0x10
                ),
            )?;
            let _ = writeln!(core, "link set s{at} master br0\nlink set s{at} up");
        }
        topology::run_ip_batch(Some(ROUTERS_NODE), &net)?;
        topology::run_ip_batch(Some(CORE_NODE), &core)
    }

    fn store_url(server: usize, port: u16) -> String {
        format!("http://[2001:db8:fe::{:x}]:{port}", server + 0x10)
    }

    /// Starts a server of the store with its previous data.
    pub fn start_store(&mut self, server: usize) -> anyhow::Result<()> {
        let (clients, peers) = (Self::store_url(server, 2379), Self::store_url(server, 2380));
        let all: Vec<String> = (0..self.store_servers.len())
            .map(|one| format!("s{one}={}", Self::store_url(one, 2380)))
            .collect();
        let mut command = command_in_node(&format!("takeover.etcd{server}"), &self.etcd_program);
        command
            .args(["--name", &format!("s{server}"), "--data-dir"])
            // The folder is on the disk, because the measurement includes the disk's delay.
            .arg(self.log_folder.join(format!("etcd{server}")))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &all.join(","), "--log-level", "error"])
            .args(["--auto-compaction-retention", "1"]);
        let log = self.log_folder.join(format!("etcd{server}.log"));
        self.store_servers[server] =
            Some(BackgroundProgram::start(&format!("etcd {server}"), &log, &mut command)?);
        Ok(())
    }

    /// Kills a server of the store.
    pub fn kill_store(&mut self, server: usize) {
        if let Some(mut daemon) = self.store_servers[server].take() {
            daemon.send_signal(Signal::SIGKILL);
            daemon.wait_at_most(10 * SECOND);
        }
    }

    /// Returns the number of servers of the store.
    pub fn running_store_servers(&self) -> usize {
        self.store_servers.len()
    }

    /// Waits until the store (etcd) accepts connections.
    fn wait_for_store(&mut self) -> anyhow::Result<()> {
        let until = monotonic_now() + START_TIMEOUT;
        for server in 0..self.store_servers.len() {
            let listens = || -> anyhow::Result<bool> {
                let shown = run_for_output(
                    command_in_node(&format!("takeover.etcd{server}"), "sh")
                        .args(["-c", "cat /proc/net/tcp6"]),
                )?;
                // In `/proc/net/tcp6`, `094B` is port 2379 and `0A` the state LISTEN.
                Ok(shown.lines().any(|line| line.contains(":094B ") && line.contains(" 0A ")))
            };
            while !listens()? {
                if let Some(daemon) = &mut self.store_servers[server] {
                    daemon.check_running()?;
                }
                if has_to_stop() {
                    return Err(Interrupted.into());
                }
                if monotonic_now() > until {
                    bail!("expected an etcd server at its client port after 60 s, found none");
                }
                clock::sleep(100 * MILLISECOND);
            }
        }
        Ok(())
    }

    fn member_file(member: &Member, kind: &str) -> PathBuf {
        File::new(isolate::RUN_DIRECTORY).join(format!("{}{kind}.toml", member.name()))
    }

    /// Writes both config files of a member.
    fn write_member_config(&self, member: usize, routers: u32) -> anyhow::Result<()> {
        let member = &self.all_members[member];
        let mut text = station_config(&member.name(), self.path);
        // Turn off tests that need Echo Replies, because the routers of this benchmark do not answer them.
        let _ = write!(
            text,
            "[home_agent]\naddress = \"{}\"\nhome_prefix = \"2001:db8:1::/64\"\nmax_lifetime = \"1h\"\n\
             care_of_test = \"off\"\n",
            home_agent_address(member.seat_index)
        );
        text.extend(
            (0..routers)
                .filter(|one| *one as usize % self.seat_count == member.seat_index)
                .map(prefix_table_config),
        );
        let file = Self::member_file(member, "");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        // The list of members of each home agent begins with another machine.
        let order: Vec<&str> = (0..MACHINE_NAMES.len())
            .map(|one| MACHINE_NAMES[(one + member.seat_index) % MACHINE_NAMES.len()])
            .collect();
        let stores: Vec<String> =
            (0..self.store_servers.len()).map(|one| Self::store_url(one, 2379)).collect();
        let text = format!(
            "member = {:?}\nstore = {stores:?}\ndirectory = \"/run/carnet-fleet-{}\"\nprogram = {:?}\n\
             seat = \"seat{}\"\nconfig = {:?}\nmembers = {order:?}\nlinks = [\"f0\", \
             \"h0\"]\n[times]\nsettled_ms = {LEADERSHIP_RETURN_MS}\n",
            MACHINE_NAMES[member.machine_index],
            member.name(),
            self.programs.carnet_program.display().to_string(),
            member.seat_index,
            file.display().to_string(),
        );
        let file = Self::member_file(member, ".fleet");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Starts a member.
    pub fn start_member(&mut self, member: usize) -> anyhow::Result<()> {
        let member = &mut self.all_members[member];
        let mut command =
            command_in_node(&member.node_name(), self.programs.carnet_program.with_file_name("carnet-fleet"));
        command
            .arg("run")
            .arg("--config")
            .arg(Self::member_file(member, ".fleet"))
            .env_remove("NOTIFY_SOCKET");
        let log = self.log_folder.join(format!("{}.{:03}.log", member.name(), member.start_count));
        member.start_count += 1;
        member.daemon = Some(BackgroundProgram::start(
            &format!("carnet-fleet of {}", member.name()),
            &log,
            &mut command,
        )?);
        Ok(())
    }

    /// Takes a link of a member up or down. `noticed` says that the member's interface loses the carrier;
    /// otherwise the member cannot notice the fault.
    pub fn set_link_state(&self, member: usize, kind: char, up: bool, noticed: bool) -> anyhow::Result<()> {
        let end = self.all_members[member].interface_name(kind);
        let (node, command) = match (kind, noticed, up) {
            ('e', false, true) => (CORE_NODE, format!("link set {end} master br0\n")),
            ('e', false, false) => (CORE_NODE, format!("link set {end} nomaster\n")),
            (_, _, true) => {
                (if kind == 'e' { CORE_NODE } else { ROUTERS_NODE }, format!("link set {end} up\n"))
            }
            (_, _, false) => {
                (if kind == 'e' { CORE_NODE } else { ROUTERS_NODE }, format!("link set {end} down\n"))
            }
        };
        topology::run_ip_batch(Some(node), &command)
    }

    /// Returns the members that report to be the active home agent of this seat, each with its bindings.
    pub fn active_members(&self, seat: usize) -> Vec<(usize, Vec<Value>)> {
        let members = self
            .all_members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.seat_index == seat && member.is_running());
        members
            .filter_map(|(at, member)| Some((at, member.show_bindings(&self.programs.carnet_program)?)))
            .collect()
    }

    /// Writes a member's tunnels and counters into a file in the folder of the logs.
    pub fn write_member_state(&self, member: usize, name: &str) {
        let member = &self.all_members[member];
        let ask = |what| {
            let mut command = std::process::Command::new("timeout");
            command
                .arg("5")
                .arg(&self.programs.carnet_program)
                .args(["show", what, "--json", "--socket"])
                .arg(member.control_socket());
            run_for_output(&mut command).unwrap_or_else(|error| format!("{error:#}"))
        };
        let text = format!("{}\n{}", ask("tunnels"), ask("counters"));
        let _ = fs::write(self.log_folder.join(format!("{name}.{}.json", member.name())), text);
    }

    /// Returns the leader of a seat; `None` if no member leads it, or several do.
    pub fn leader_of_seat(&self, seat: usize) -> Option<usize> {
        match &self.active_members(seat)[..] {
            [(member, _)] => Some(*member),
            _ => None,
        }
    }

    /// Returns the members on a machine.
    pub fn members_on(&self, machine: usize) -> Vec<usize> {
        (0..self.all_members.len()).filter(|one| self.all_members[*one].machine_index == machine).collect()
    }

    /// Returns how often a member became the leader of this home agent, as the logs of the members say.
    pub fn takeovers_in_logs(&self, seat: usize) -> anyhow::Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir(&self.log_folder)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.contains(&format!("-{seat}.")) && path.is_file() {
                let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
                count += text.lines().filter(|line| line.contains(": this member is the leader")).count();
            }
        }
        Ok(count)
    }

    /// Returns the folder of the logs.
    pub fn log_folder_file(&self) -> &File {
        &self.log_folder
    }

    /// Ends all programs.
    pub fn stop_all(mut self) -> anyhow::Result<()> {
        for member in &mut self.all_members {
            // Kill all programs at once. If they ended one after the other, the leadership of each home agent
            // would move twice.
            member.signal_processes(true, true, Signal::SIGKILL);
            member.reap_process();
        }
        for server in 0..self.store_servers.len() {
            self.kill_store(server);
            let _ = fs::remove_dir_all(self.log_folder.join(format!("etcd{server}")));
        }
        let mut commands = String::new();
        for node in self
            .all_members
            .iter()
            .map(Member::node_name)
            .chain((0..self.store_servers.len()).map(|one| format!("takeover.etcd{one}")))
        {
            let _ = writeln!(commands, "netns delete {node}");
        }
        let _ = writeln!(commands, "netns delete {ROUTERS_NODE}\nnetns delete {CORE_NODE}");
        topology::run_ip_batch(None, &commands)
    }
}
