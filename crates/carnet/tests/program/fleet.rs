//! Two machines are one home agent, with etcd. When a machine dies, its link goes down, and the core loses
//! its route through this machine. The core's route through the other machine exists from the start.

mod access;
mod doubles;
mod links;
mod sessions;
mod status;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::hosts::{Host, can_run_or_report, seconds, wait_for, wait_until};
use crate::keys::{NEW_AND_OLD_KEY, NEW_KEY, OLD_KEY};
use crate::station::{CARNET_PROGRAM, Station, config_with_tested_path, run_carnet};
use crate::testbed::{HOME_ADDRESS, Testbed};

const FLEET_PROGRAM: &str = env!("CARGO_BIN_EXE_carnet-fleet");
const MEMBER_NAMES: [&str; 3] = ["anna", "bruno", "carla"];

/// Returns the path of etcd, also if `tools/setup.sh test` has installed it. Without etcd it prints this and
/// returns `None`.
fn find_etcd() -> Option<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/tools/etcd");
    let tool = if unpacked.exists() { unpacked } else { "etcd".into() };
    let found = Command::new(&tool).arg("--version").output().is_ok();
    assert!(found || std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"), "etcd is missing");
    if !found {
        println!("\nSKIPPED: etcd is missing (tools/setup.sh test)");
    }
    found.then_some(tool)
}

/// The testbed with further machines for the home agent, and with the store on the core.
struct TestFleet {
    bed: Testbed,
    standby_hosts: Vec<Host>,
    etcd_process: Child,
    /// URL of the store, for the members' configs.
    etcd_url: String,
    /// Further lines of the members' configs.
    further_config: String,
    /// Config of the home agent.
    agent_config: String,
}

/// Times of a fleet that are so long that no member loses the leadership because the test machine is slow.
const LONG_TIMES_CONFIG: &str = "[times]\nlease_ms = 120000\npatience_ms = 120000\n";

/// URL of the store.
const ETCD_URL: &str = "http://[2001:db8:c::1]:2379";

impl TestFleet {
    fn new() -> Option<TestFleet> {
        TestFleet::with_etcd(1, |_| (ETCD_URL.to_owned(), String::new(), String::new()))
    }

    /// Starts a fleet with `others` further machines. The function `store` prepares etcd on the testbed. It
    /// returns the URL of etcd, further arguments for etcd, and further lines for the members' configs.
    fn with_etcd(
        others: usize,
        store: impl FnOnce(&Testbed) -> (String, String, String),
    ) -> Option<TestFleet> {
        if !can_run_or_report() {
            return None;
        }
        let etcd = find_etcd()?;
        let bed = Testbed::new();
        let others: Vec<Host> = (0..others).map(|_| Host::new()).collect();
        for (other, (far, net, metric)) in others.iter().zip([("hb", "f4", 2048), ("hc", "f5", 3072)]) {
            bed.core.create_link(far, other, "ha0");
            bed.core.run_ip(&format!("-6 addr add 2001:db8:{net}::1/64 dev {far}"));
            for prefix in ["1", "a"] {
                let route = format!("2001:db8:{prefix}::/64 via 2001:db8:{net}::2 metric {metric}");
                bed.core.run_ip(&format!("-6 route add {route}"));
            }
            other.run_ip_batch(&format!(
                "addr add 2001:db8:{net}::2/64 dev ha0
                 route add default via 2001:db8:{net}::1"
            ));
        }
        for host in others.iter().chain([&bed.core]) {
            host.wait_until_settled();
        }
        let place = bed.scratch.path_of("etcd");
        let (urls, options, more) = store(&bed);
        let url = urls.split(',').next().expect("one").to_owned();
        let line = format!(
            "{} --data-dir {} --listen-client-urls {urls} --advertise-client-urls {url} --listen-peer-urls \
             http://[::1]:2380 --log-level error {options}",
            etcd.display(),
            place.display()
        );
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let store = bed.core.spawn_program(&words, |command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        });
        Some(TestFleet {
            agent_config: bed.agent_config(),
            bed,
            standby_hosts: others,
            etcd_process: store,
            etcd_url: url,
            further_config: more,
        })
    }

    fn host_of_member(&self, member: usize) -> &Host {
        member.checked_sub(1).map_or(&self.bed.agent, |other| &self.standby_hosts[other])
    }

    /// Writes the config of a member. Returns the path of the config.
    fn write_member_config(&self, member: usize) -> PathBuf {
        let name = MEMBER_NAMES[member];
        let path = |kind: &str| self.bed.scratch.path_of(&format!("{name}{kind}"));
        let agent = self.agent_config.replace("agent.sock", &format!("{name}.sock"));
        fs::write(path(".toml"), config_with_tested_path(&config_with_ipv4(&agent)).as_bytes())
            .expect("a config file");
        let config = format!(
            "member = '{name}'\nstore = ['{}']\ndirectory = '{}'\nprogram = '{CARNET_PROGRAM}'\n\
             seat = 'north'\nconfig = '{name}.toml'\nmembers = {:?}\n{}",
            self.etcd_url,
            path(".run").display(),
            &MEMBER_NAMES[..=self.standby_hosts.len()],
            self.further_config
        );
        fs::write(path(".fleet.toml"), config).expect("a config file");
        path(".fleet.toml")
    }

    /// Starts a member. Its home agent opens its socket only as the leader.
    fn start_member(&self, member: usize) -> MemberProcess {
        self.start_member_with_config(member, &self.write_member_config(member))
    }

    /// Starts a member with an existing config file.
    fn start_member_with_config(&self, member: usize, config: &Path) -> MemberProcess {
        let name = MEMBER_NAMES[member];
        let path = |kind: &str| self.bed.scratch.path_of(&format!("{name}{kind}"));
        let log = path(".log");
        let words = [FLEET_PROGRAM, "run", "--config", config.to_str().expect("a path")].map(str::to_owned);
        let output = fs::OpenOptions::new().create(true).append(true).open(&log).expect("a log file");
        let child = self.host_of_member(member).spawn_program(&words, move |command| {
            command.env_remove("RUST_LOG").env_remove("NOTIFY_SOCKET");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        });
        MemberProcess { child, log_file: log, control_socket: path(".sock"), state_directory: path(".run") }
    }
}

impl Drop for TestFleet {
    fn drop(&mut self) {
        let _ = self.etcd_process.kill();
        let _ = self.etcd_process.wait();
    }
}

/// A running member of the fleet.
struct MemberProcess {
    child: Child,
    log_file: PathBuf,
    control_socket: PathBuf,
    /// Directory of the sockets between the member and its home agent.
    state_directory: PathBuf,
}

impl MemberProcess {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log_file).unwrap_or_default()
    }

    /// Returns the bindings of the member's home agent, if it is active.
    fn bindings(&self) -> Option<Vec<Value>> {
        let socket = self.control_socket.to_str().expect("a path");
        let output = run_carnet(&["show", "bindings", "--json", "--socket", socket]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    fn has_router_binding(&self) -> bool {
        self.bindings().is_some_and(|all| all.iter().any(|one| one["home_address"] == HOME_ADDRESS))
    }

    /// Kills the member and its home agent with SIGKILL, so that neither removes its entries from the kernel.
    fn kill(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.pid());
        let agents = fs::read_to_string(children).expect("the children");
        // The member is killed first, because it would restart its home agent.
        kill(self.pid(), Signal::SIGKILL).expect("the member");
        for agent in agents.split_whitespace() {
            let _ = kill(Pid::from_raw(agent.parse().expect("a number")), Signal::SIGKILL);
        }
        self.child.wait().expect("the member");
    }

    fn terminate(&mut self) {
        kill(self.pid(), Signal::SIGTERM).expect("the member");
        let status = self.child.wait().expect("the member");
        assert!(status.success(), "{status}\n{}", self.log());
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- end of the log {}\n{}", self.log_file.display(), self.log());
        }
    }
}

/// Adds an IPv4 prefix to the mobile network in the config of a member or of the router.
fn config_with_ipv4(config: &str) -> String {
    let prefixes = "prefixes = ['2001:db8:a::/64']\n";
    config.replacen(prefixes, &format!("{prefixes}ipv4_prefixes = ['10.42.7.0/24']\n"), 1)
}

/// Starts the members and the router. Waits until the preferred member is the leader and has the router's
/// binding.
fn start_members_and_router<const MEMBERS: usize>(fleet: &TestFleet) -> ([MemberProcess; MEMBERS], Station) {
    let members = std::array::from_fn(|member| {
        let started = fleet.start_member(member);
        if member == 0 {
            wait_for("a home agent", seconds(30), || started.bindings());
        }
        started
    });
    // The long lifetime ensures that the router sends no refresh during the test.
    let config = fleet.bed.router_config().replace("'60s'", "'600s'");
    let router = Station::start(&fleet.bed.router, &config_with_ipv4(&config));
    router.wait_until_registered();
    for waits in &members[1..] {
        assert!(waits.bindings().is_none(), "{}", waits.log());
    }
    (members, router)
}

#[test]
fn standby_takes_over_bindings_of_a_dead_machine() {
    let Some(fleet) = TestFleet::new() else { return };
    // The correspondent reaches the IPv4 mobile network through the second machine only.
    fleet.bed.core.run_ip("addr add 198.51.100.1/24 dev hb");
    fleet.standby_hosts[0].run_ip("addr add 198.51.100.2/24 dev ha0");
    fleet.bed.core.run_ip("route add 10.42.7.0/24 via 198.51.100.2");
    fleet.bed.host.run_ip("addr add 10.42.7.5/24 dev eth0");
    fleet.bed.host.run_ip("route add default via 10.42.7.1");
    let ([mut anna, bruno], router) = start_members_and_router(&fleet);
    let sent = router.counter("nemo.bu.sent");
    let echo = fleet.bed.start_echo(100);
    echo.wait_for_further_answers();
    assert!(!fleet.bed.host.can_ping_ipv4("198.51.100.1"), "before the take-over");
    anna.kill();
    fleet.bed.core.run_ip("link set ha down");
    wait_until("the other has the binding", seconds(20), || bruno.has_router_binding());
    // No router has registered again at the new leader.
    assert_eq!(router.counter("nemo.bu.sent"), sent, "{}", bruno.log());
    echo.wait_for_further_answers();
    let bindings = bruno.bindings().expect("an active home agent");
    assert_eq!(bindings[0]["ipv4_prefixes"].to_string(), "[\"10.42.7.0/24\"]");
    wait_until("IPv4 takes the new leader", seconds(10), || fleet.bed.host.can_ping_ipv4("198.51.100.1"));
    let report = echo.stop();
    println!("the longest silence: {:?}", report.longest_silence);
}

/// A store server without power closes no connection, and an open watch does not notice the loss. Without a
/// time limit the member would never learn of later changes, and could become the leader without the records.
#[test]
fn member_with_silently_lost_etcd_watch_becomes_leader() {
    let Some(fleet) = TestFleet::new() else { return };
    let (mut members, _router) = start_members_and_router::<2>(&fleet);
    let found =
        fleet.host_of_member(1).run_program(&["ss", "-Htn", "state", "established", "dport", "=", ":2379"]);
    let found = String::from_utf8(found.stdout).expect("text");
    let ports: Vec<&str> =
        found.lines().filter_map(|line| line.split_whitespace().nth(2)?.rsplit(':').next()).collect();
    assert!(!ports.is_empty(), "bruno watches: {found:?}");
    let rules = format!(
        "add table inet cut\n\
         add chain inet cut in {{ type filter hook input priority 0; }}\n\
         add rule inet cut in tcp dport {{ {} }} drop\n",
        ports.join(", ")
    );
    let file = fleet.bed.scratch.path_of("cut.nft");
    fs::write(&file, rules).expect("a file");
    let cut = fleet.host_of_member(1).run_program(&["nft", "--file", file.to_str().expect("a path")]);
    assert!(cut.status.success(), "{}", String::from_utf8_lossy(&cut.stderr));
    members[0].kill();
    fleet.bed.core.run_ip("link set ha down");
    wait_until("the other has the binding", seconds(30), || members[1].has_router_binding());
}

/// Without the store the home agent acknowledges no registration, but traffic continues. When the store is
/// back, both work.
#[test]
fn without_the_store_traffic_flows_and_registrations_wait() {
    let Some(mut fleet) = TestFleet::new() else { return };
    fleet.further_config = LONG_TIMES_CONFIG.to_owned();
    let ([anna, _bruno], router) = start_members_and_router(&fleet);
    let echo = fleet.bed.start_echo(50);
    echo.wait_for_further_answers();
    let store = Pid::from_raw(fleet.etcd_process.id().cast_signed());
    // The log may have messages about an unreachable store from the start of the members, so look only at new
    // lines.
    let before = anna.log().len();
    kill(store, Signal::SIGSTOP).expect("etcd");
    wait_until("the store is missed", seconds(20), || anna.log()[before..].contains("cannot watch etcd"));
    router.run_command(&["handover", "wwan0"]);
    echo.wait_for_further_answers();
    kill(store, Signal::SIGCONT).expect("etcd");
    wait_until("the new care-of address", seconds(30), || {
        anna.bindings().is_some_and(|all| all.iter().any(|one| one["care_of_address"] == "2001:db8:f2::10"))
    });
    echo.wait_for_further_answers();
    echo.stop();
}

/// A member that stops passes its leadership on: its home agent ends when the home agent of the other member
/// is active.
#[test]
fn stopping_leader_hands_leadership_over() {
    let Some(fleet) = TestFleet::new() else { return };
    let ([mut anna, bruno], _router) = start_members_and_router(&fleet);
    anna.terminate();
    assert!(bruno.has_router_binding(), "{}\n{}", anna.log(), bruno.log());
    assert!(!anna.control_socket.exists());
    let left: Vec<_> =
        fs::read_dir(&anna.state_directory).expect("its folder").flatten().map(|file| file.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let log = anna.log();
    assert!(log.contains("another member is the leader now"), "{log}");
}

/// The operator follows the three steps of docs/operating.md. The leader's home agent reads its config again.
/// The standby's waiting home agent is replaced by a new one, which does not start with outdated records or
/// with an old config.
#[test]
fn a_key_is_changed_on_all_members_and_no_packet_is_lost() {
    let Some(fleet) = TestFleet::new() else { return };
    let ([mut anna, bruno], router) = start_members_and_router(&fleet);
    let config = fleet.bed.router_config().replace("'60s'", "'600s'");
    let acknowledged = || router.counter("mobility.received.binding_acknowledgement");
    let renew = |auth: &str| {
        let count = acknowledged();
        router.reload(&config.replace(OLD_KEY, auth));
        wait_until("the registration is renewed", seconds(20), || acknowledged() > count);
    };
    let change = |from: &str, to: &str| {
        for (name, member) in MEMBER_NAMES.iter().zip([&anna, &bruno]) {
            let file = fleet.bed.scratch.path_of(&format!("{name}.toml"));
            let before = fs::read_to_string(&file).expect("a config file");
            assert!(before.contains(from), "{before}");
            fs::write(&file, before.replace(from, to)).expect("a config file");
            kill(member.pid(), Signal::SIGHUP).expect("the member");
        }
    };
    let echo = fleet.bed.start_echo(1000);
    echo.wait_for_further_answers();
    let says = |count: usize, text: &str| bruno.log().matches(text).count() == count;
    // The second and third home agent of the member bruno must wait for records.
    let read_again = |count| {
        anna.log().matches("applied the changed config").count() == count
            && says(count + 1, "packets take the data path")
    };
    change(OLD_KEY, NEW_AND_OLD_KEY);
    wait_until("the new key is known beside the old one", seconds(10), || read_again(1));
    renew(NEW_KEY);
    change(NEW_AND_OLD_KEY, NEW_KEY);
    wait_until("the old key is not known any more", seconds(10), || read_again(2));
    renew(NEW_KEY);
    let report = echo.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");

    assert!(says(2, "the standby process restarts with the changed config"), "{}", bruno.log());
    let file = fleet.bed.scratch.path_of("bruno.toml");
    let good = fs::read_to_string(&file).expect("a config file");
    fs::write(&file, format!("{good}\n[half an edit\n")).expect("a config file");
    kill(bruno.pid(), Signal::SIGHUP).expect("the member");
    wait_until("it is refused", seconds(10), || says(1, "changed config: config: expected the config"));

    anna.terminate();
    fleet.bed.core.run_ip("link set ha down");
    assert!(bruno.has_router_binding(), "{}", bruno.log());
    router.reload(&config);
    wait_until("the key that was dropped is refused", seconds(20), || bruno.log().contains("its SPI is"));
    assert!(says(1, "cannot apply the changed config"), "{}", bruno.log());
    renew(NEW_KEY);
}

/// A home agent that waits for its records ends on a signal, although its parent sends nothing. Another
/// program sends the signal.
#[test]
fn a_standby_home_agent_stops_on_request() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let config = bed.scratch.path_of("agent.toml");
    fs::write(&config, config_with_tested_path(&bed.agent_config()).as_bytes()).expect("a config file");
    let socket = bed.scratch.path_of("store");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let words = [CARNET_PROGRAM, "run", "--config", config.to_str().expect("a path"), "--store"];
    let mut words = words.map(str::to_owned).to_vec();
    words.push(socket.to_str().expect("a path").to_owned());
    let mut child = bed.agent.spawn_program(&words, |command| {
        command.stdin(Stdio::null());
    });
    let (_stream, _) = listener.accept().expect("the home agent");
    let tasks = format!("/proc/{}/task", child.id());
    let waits = || {
        // The home agent waits for its records as soon as it has a second thread, which reads them.
        let threads = fs::read_dir(&tasks).expect("the threads").count();
        (threads > 1).then_some(())
    };
    wait_for("a home agent that waits", seconds(30), waits);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("the home agent");
    wait_until("it has ended", seconds(30), || child.try_wait().expect("the home agent").is_some());
    assert!(child.wait().expect("the home agent").success());
    assert!(bed.agent.run_ip("-6 route show proto 135").is_empty());
}

/// carnet-fleet refuses an unusable config at once, with the place of the mistake.
#[test]
fn a_config_with_a_mistake_is_refused() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let agent = bed.scratch.path_of("north.toml");
    fs::write(&agent, bed.agent_config()).expect("a config file");
    let good = &format!(
        "member = 'anna'\nstore = ['http://[::1]:2379']\nseat = 'north'\nconfig = 'north.toml'\nmembers = \
         ['anna']\nprogram = '{CARNET_PROGRAM}'\n"
    );
    let file = bed.scratch.path_of("fleet.toml");
    let checked = |text: &str| {
        fs::write(&file, text).expect("a config file");
        let output = Command::new(FLEET_PROGRAM).arg("check").arg(&file).output().expect("the program");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    assert_eq!(checked(good), (Some(0), String::new()));
    for (from, to, said) in [
        ("http://[::1]:2379", "[::1]:2379", "expected https://HOST:PORT or http://HOST:PORT"),
        ("http://[::1]:2379", "http://2001:db8:fe::1:2379", "an address of IPv6 in brackets"),
        ("http://[::1]:2379", "http://:2379", "expected https://HOST:PORT or http://HOST:PORT"),
        ("members = ['anna']", "members = ['bruno']", "members: expected the name of this member, \"anna\""),
        ("members = ['anna']", "members = ['anna', 'anna']", "expected each member once, found"),
        ("member = 'anna'", "member = 'an/na'", "expected a name of letters"),
        ("store", "stores", "unknown field `stores`"),
        ("seat", "links = ['']\nseat", "links: expected names of network interfaces, found \"\""),
        ("seat", "reach = ['ff02::1%eth0']\nseat", "reach: expected unicast addresses of IPv6"),
        (
            "seat",
            "reach = ['fe80::1']\nseat",
            "reach: expected unicast addresses of IPv6, link-local ones with",
        ),
        (
            "members = ['anna']",
            "members = ['anna']\ntimes = { reach_ms = 50 }",
            "expected a reach_ms of at least 100, found 50",
        ),
        (
            "members = ['anna']",
            "members = ['anna']\ntimes = { lease_ms = 100 }",
            "lease_ms of at least four times beat_ms, found beat_ms 100 and lease_ms 100",
        ),
        ("north.toml", "absent.toml", "absent.toml: cannot read"),
        (CARNET_PROGRAM, "/nowhere/carnet", "program: cannot run /nowhere/carnet"),
    ] {
        let (status, text) = checked(&good.replacen(from, to, 1));
        assert!(status == Some(2) && text.contains(said), "{to}: {status:?} {text}");
    }
    // carnet-fleet also refuses a mistake in the home agent's config.
    for (text, said) in [
        (bed.agent_config().replace("0c0d0e0f", ""), "north.toml:"),
        (bed.router_config(), "config: expected [home_agent] in "),
    ] {
        fs::write(&agent, text).expect("a config file");
        let (status, text) = checked(good);
        assert!(status == Some(2) && text.contains(said), "{status:?} {text}");
    }
}
