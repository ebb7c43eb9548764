//! Hosts of the tests: network namespaces without a name, each with a thread in it.
//!
//! A program that a host starts dies with its thread (`setpriv --pdeathsig`), and the namespace ends with its
//! last program. So nothing stays when a test fails or when the whole run is killed.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

type NamespaceJob = Box<dyn FnOnce() + Send>;

/// Returns the reason why this machine cannot run the tests with hosts; `None` if it can.
fn reason_to_skip() -> Option<String> {
    match thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET)).join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Some(format!("cannot make a network namespace: {error}")),
        Err(_) => return Some("cannot start a thread".into()),
    }
    let tun = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    tun.err().map(|error| format!("cannot open /dev/net/tun: {error}"))
}

/// Returns whether the test can run on this machine. If not, prints the reason, or fails if the test is
/// required.
pub fn can_run_or_report() -> bool {
    let Some(reason) = reason_to_skip() else { return true };
    assert!(std::env::var("CARNET_REQUIRE_ROOT").as_deref() != Ok("1"), "{reason}");
    // The message has a line of its own, because `make test` searches for such lines.
    println!("\nSKIPPED: {reason}");
    false
}

/// Returns how many times slower than usual this machine is, from `CARNET_TEST_SLOW` (for an emulated
/// machine).
pub fn time_factor() -> u32 {
    std::env::var("CARNET_TEST_SLOW").ok().and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

/// A program that ends with the test.
pub struct RunningProgram(pub Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Maximum time that one check of [`wait_for`], with the pause after it, takes on an idle machine.
const LONGEST_TURN: Duration = Duration::from_millis(150);

/// Waits until `check` returns a value; fails with `what` after `limit`. The limit is longer on a slow
/// machine. On a busy machine only a quarter of each long check counts, because the stations wait as well.
pub fn wait_for<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let limit = limit * time_factor();
    let (start, mut counted) = (Instant::now(), Duration::ZERO);
    loop {
        let turn = Instant::now();
        if let Some(found) = check() {
            return found;
        }
        assert!(counted < limit, "not within {limit:?}, {:?} by the clock: {what}", start.elapsed());
        thread::sleep(Duration::from_millis(20));
        let took = turn.elapsed();
        counted += took.min(LONGEST_TURN).max(took / 4);
    }
}

/// Waits until a condition holds, like [`wait_for`].
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, limit, || condition().then_some(()));
}

/// Repeats `call` if a signal interrupts it: the kernel does not restart a call on a socket with a timeout
/// (signal(7)).
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            outcome => return outcome,
        }
    }
}

/// Returns a duration of `count` seconds.
pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns the output of a program as text, for the message of an assertion.
pub fn output_text(output: &Output) -> String {
    format!(
        "{}{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A directory for a test; dropping the value deletes it.
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    pub fn new() -> ScratchFolder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("carnet-program-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a scratch directory");
        ScratchFolder(path)
    }

    pub fn path_of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the names of the files in the directory.
    pub fn file_names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the scratch directory");
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A network namespace, and the thread that keeps it in existence.
pub struct Host {
    thread_id: i32,
    job_sender: Option<mpsc::Sender<NamespaceJob>>,
    thread_handle: Option<JoinHandle<()>>,
}

impl Host {
    /// Creates a namespace with the loopback interface up. Interfaces that the test adds later use no
    /// duplicate address detection, so that it can use their addresses at once.
    pub fn new() -> Host {
        let (jobs, receiver) = mpsc::channel::<NamespaceJob>();
        let (ready, is_ready) = mpsc::channel();
        let handle = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            ready.send(nix::unistd::gettid().as_raw()).expect("the test's thread");
            receiver.into_iter().for_each(|job| job());
        });
        let thread = is_ready.recv().expect("the host's thread");
        let host = Host { thread_id: thread, job_sender: Some(jobs), thread_handle: Some(handle) };
        host.write_sysctl("all/accept_dad", "0");
        host.write_sysctl("default/accept_dad", "0");
        host.run_ip("link set lo up");
        host
    }

    /// Returns the thread ID by which `ip` finds the namespace.
    pub fn thread_id(&self) -> i32 {
        self.thread_id
    }

    /// Runs a function in the namespace. Programs that the function starts stay in the namespace.
    pub fn run_in_namespace<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = mpsc::channel();
        let jobs = self.job_sender.as_ref().expect("a running host");
        jobs.send(Box::new(move || {
            let _ = sender.send(catch_unwind(AssertUnwindSafe(job)));
        }))
        .expect("the host's thread");
        result.recv().expect("the host's thread").unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Starts a program in the namespace. The program is killed when the host ends.
    pub fn spawn_program(
        &self,
        words: &[String],
        adapt: impl FnOnce(&mut Command) + Send + 'static,
    ) -> Child {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(words);
        self.run_in_namespace(move || {
            adapt(&mut command);
            command.spawn().expect("setpriv (Debian package util-linux)")
        })
    }

    /// Runs a program in the namespace, and waits until it ends.
    pub fn run_program(&self, words: &[&str]) -> Output {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.run_in_namespace(move || command.output().expect("the program"))
    }

    /// Runs `ip` in the namespace, and returns its output; `ip` must succeed.
    pub fn run_ip(&self, arguments: &str) -> String {
        let words: Vec<&str> = ["ip"].into_iter().chain(arguments.split_whitespace()).collect();
        let output = self.run_program(&words);
        assert!(output.status.success(), "ip {arguments}: {}", output_text(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs `ip -6` in the namespace for each line.
    pub fn run_ip_batch(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.run_ip(&format!("-6 {line}"));
        }
    }

    /// Creates a pair of interfaces between this host and another host, and sets both up.
    pub fn create_link(&self, own_interface: &str, other: &Host, other_interface: &str) {
        static NEXT_INDEX: AtomicU32 = AtomicU32::new(1000);
        // The two ends need different indexes. With equal indexes, the kernel may delay a change of their
        // carrier by a second (`linkwatch_urgent_event`), if other interfaces of the machine have just
        // changed.
        let index = NEXT_INDEX.fetch_add(2, Ordering::Relaxed);
        let peer = format!("peer name {other_interface} index {} netns {}", index + 1, other.thread_id);
        self.run_ip(&format!("link add {own_interface} index {index} type veth {peer}"));
        self.run_ip(&format!("link set {own_interface} up"));
        other.run_ip(&format!("link set {other_interface} up"));
        if std::env::var("CARNET_TEST_PATH").as_deref() == Ok("xdp") {
            // A veth accepts frames that an XDP program redirects only with GRO. Its own frames must have
            // complete checksums, because a redirected frame cannot carry the mark of a partial checksum.
            for (host, interface) in [(self, own_interface), (other, other_interface)] {
                let words = ["ethtool", "-K", interface, "gro", "on", "tx", "off"].map(str::to_owned);
                let status = host.spawn_program(&words, |_| {}).wait().expect("ethtool");
                assert!(status.success(), "ethtool: {status}");
            }
        }
    }

    /// Waits until the kernel has finished the work that it does after interfaces have come up.
    pub fn wait_until_settled(&self) {
        wait_until("the interfaces are up", seconds(10), || {
            let links = self.run_ip("-o link show").lines().count() - 1;
            let count = |text: &str, pattern: &str| text.matches(pattern).count();
            let routes = self.run_ip("-6 route show table all");
            links == count(&self.run_ip("-o link show"), "LOWER_UP") - 1
                && links == count(&self.run_ip("-6 addr show"), "inet6 fe80")
                && links == count(&routes, "local fe80::")
                && links == count(&routes, "multicast ff00::/8")
                && !self.run_ip("link show").contains("state DOWN")
        });
    }

    /// Reads a setting of this host below `net.ipv6.conf`.
    pub fn read_sysctl(&self, name: &str) -> String {
        let path = format!("/proc/sys/net/ipv6/conf/{name}");
        self.run_in_namespace(move || fs::read_to_string(path).expect("a switch").trim().to_owned())
    }

    /// Writes a setting of this host below `net.ipv6.conf`.
    pub fn write_sysctl(&self, name: &str, value: &'static str) {
        let path = format!("/proc/sys/net/ipv6/conf/{name}");
        self.run_in_namespace(move || fs::write(path, value).expect("a switch"));
    }

    /// Returns whether an IPv6 address answers a ping.
    pub fn can_ping(&self, address: &str) -> bool {
        self.run_program(&["ping", "-6", "-c", "1", "-W", "1", address]).status.success()
    }

    /// Returns whether an IPv4 address answers a ping.
    pub fn can_ping_ipv4(&self, address: &str) -> bool {
        self.run_program(&["ping", "-4", "-c", "1", "-W", "1", address]).status.success()
    }

    /// Returns, as text, all state of the host that carnet may change.
    pub fn kernel_state(&self) -> String {
        let mut text = String::new();
        for what in ["rule", "route show table all", "addr show", "neigh show proxy"] {
            let shown = self.run_ip(&format!("-6 {what}"));
            let mut lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
            if what.starts_with("route") {
                // The kernel lists these entries in the order of their creation, so sort them before
                // comparing.
                lines.sort_unstable();
            }
            text += &format!("== {what}\n{}\n", lines.join("\n"));
        }
        for what in ["rule", "route show table all"] {
            let shown = self.run_ip(&format!("-4 {what}"));
            let mut lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
            lines.sort_unstable();
            text += &format!("== IPv4 {what}\n{}\n", lines.join("\n"));
        }
        let links = self.run_ip("-o link show");
        text += &format!("== link\n{}", self.run_ip("link show"));
        let tc = |arguments: &str| {
            let words: Vec<&str> = ["tc"].into_iter().chain(arguments.split_whitespace()).collect();
            let output = self.run_program(&words);
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        text += &format!("== tc\n{}", tc("qdisc show"));
        let names = links.lines().filter_map(|line| line.split([':', '@']).nth(1));
        for name in names.map(str::trim) {
            text += &tc(&format!("filter show dev {name} ingress"));
            let features = self.run_program(&["ethtool", "-k", name]);
            let features = String::from_utf8_lossy(&features.stdout);
            let gathers =
                features.lines().filter(|line| line.contains("gro") || line.contains("receive-offload"));
            text.extend(gathers.flat_map(|line| [name, " ", line.trim(), "\n"]));
        }
        text + "== switches\n" + &self.run_in_namespace(network_settings)
    }
}

/// Returns every readable setting (sysctl) of every interface.
fn network_settings() -> String {
    let mut lines = Vec::new();
    for interface in fs::read_dir("/proc/sys/net/ipv6/conf").expect("IPv6").flatten() {
        for file in fs::read_dir(interface.path()).expect("an interface").flatten() {
            if let Ok(value) = fs::read_to_string(file.path()) {
                let (interface, file) = (interface.file_name(), file.file_name());
                lines.push(format!("{}.{} {value}", interface.display(), file.display()));
            }
        }
    }
    lines.sort_unstable();
    lines.concat()
}

/// Fails with the lines in which the two snapshots differ.
pub fn assert_same_state(before: &str, after: &str, when: &str) {
    let missing = before.lines().filter(|line| !after.lines().any(|other| other == *line));
    let added = after.lines().filter(|line| !before.lines().any(|other| other == *line));
    let difference: Vec<String> =
        missing.map(|line| format!("- {line}")).chain(added.map(|line| format!("+ {line}"))).collect();
    assert!(before == after, "{when}, the host is not what it was before:\n{}", difference.join("\n"));
}

impl Drop for Host {
    fn drop(&mut self) {
        self.job_sender = None;
        if let Some(handle) = self.thread_handle.take() {
            let _ = handle.join();
        }
    }
}
