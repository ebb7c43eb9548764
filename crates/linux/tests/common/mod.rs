//! Creates network namespaces for tests, and reads the kernel's state in them.
//!
//! Every test runs in its own network namespace, on its own thread. `ip` of iproute2 shows the kernel's
//! state, with which a test compares the expected state. A second namespace for the other end of a link is a
//! [`PeerNamespace`]. A test that may not create namespaces prints that and passes as skipped. With
//! `CARNET_REQUIRE_ROOT=1` it fails.
#![allow(dead_code, clippy::unwrap_used)]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use carnet_linux::{Platform, PlatformConfig, PlatformEvent, WatchedInterface};
use carnet_nemo::forwarding::desired::*;
use carnet_station::io::Interface;
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

/// Returns why the test cannot use namespaces; `None` if it can.
fn reason_to_skip() -> Option<String> {
    if let Err(error) = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET)).join().unwrap() {
        return Some(format!("cannot make a network namespace: {error}"));
    }
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .err()
        .map(|error| format!("cannot open /dev/net/tun: {error}"))
}

/// Runs `body` in a fresh network namespace with the loopback interface up.
pub fn in_new_namespace<F: Future<Output = ()>>(body: impl FnOnce(ScratchFolder) -> F + Send + 'static) {
    if let Some(reason) = reason_to_skip() {
        assert!(std::env::var("CARNET_REQUIRE_ROOT").as_deref() != Ok("1"), "{reason}");
        println!("SKIPPED: {reason}");
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        run_ip("link set lo up");
        in_current_namespace(body);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `body` in the namespace of the calling thread.
pub fn in_current_namespace<F: Future<Output = ()>>(body: impl FnOnce(ScratchFolder) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(body(ScratchFolder::new()));
}

/// A directory that is deleted when the value is dropped.
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new() -> ScratchFolder {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("carnet-linux-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        ScratchFolder(path)
    }

    pub fn undo_file(&self) -> PathBuf {
        self.0.join("undo.json")
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn platform_config(&self) -> PlatformConfig {
        PlatformConfig {
            device_mtu: 1452,
            watched_interfaces: Vec::new(),
            max_known_senders: 0,
            uses_ipsec: false,
            undo_file: self.undo_file(),
        }
    }

    pub fn open_platform(&self) -> Platform {
        Platform::open(self.platform_config()).unwrap()
    }

    pub fn open_platform_watching(&self, name: &str, all_multicast: bool) -> Platform {
        let watched = vec![WatchedInterface { name: name.into(), needs_all_multicast: all_multicast }];
        Platform::open(PlatformConfig { watched_interfaces: watched, ..self.platform_config() }).unwrap()
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A second network namespace, which exists as long as this value.
pub struct PeerNamespace {
    pub thread_id: i32,
    job_sender: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl PeerNamespace {
    pub fn new() -> PeerNamespace {
        let (jobs, receiver) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (ready, is_ready) = mpsc::channel();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            run_ip("link set lo up");
            ready.send(nix::unistd::gettid().as_raw()).unwrap();
            receiver.into_iter().for_each(|job| job());
        });
        PeerNamespace { thread_id: is_ready.recv().unwrap(), job_sender: jobs }
    }

    /// Creates a virtual Ethernet pair, `here` in this namespace and `there` in the peer's, both up. Waits
    /// until packets pass.
    pub fn create_link(&self, here: &str, there: &str) {
        run_ip(&format!("link add {here} type veth peer name {there} netns {}", self.thread_id));
        run_ip(&format!("link set {here} up"));
        let there = there.to_owned();
        self.run_in_namespace(move || {
            run_ip(&format!("link set {there} up"));
            wait_until_link_is_up(&there);
        });
        wait_until_link_is_up(here);
    }

    /// Runs `job` in the peer's namespace.
    pub fn run_in_namespace<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = mpsc::channel();
        self.job_sender
            .send(Box::new(move || {
                let _ = sender.send(job());
            }))
            .unwrap();
        result.recv().expect("the job in the peer's namespace panicked")
    }
}

/// Runs a command that must succeed, and returns its output.
pub fn run_command(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(
        output.status.success(),
        "{command}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

pub fn run_ip(arguments: &str) -> String {
    run_command(&format!("ip {arguments}"))
}

/// Adds an address and waits until the kernel's work queue has made it usable.
pub fn add_address(interface: &str, address: &str) {
    run_ip(&format!("-6 addr add {address} dev {interface} nodad"));
    wait_until_address_is_usable(interface, address.split('/').next().unwrap());
}

/// Waits until the kernel delivers packets to an address of this interface.
pub fn wait_until_address_is_usable(interface: &str, bare: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while run_ip(&format!("-6 route show table local {bare} dev {interface}")).is_empty() {
        assert!(Instant::now() < deadline, "{bare} does not become usable");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until an interface carries packets.
pub fn wait_until_link_is_up(interface: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while run_ip_json(&format!("link show {interface}"))[0]["operstate"] != "UP" {
        assert!(Instant::now() < deadline, "{interface} does not come up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the parsed output of `ip -j`.
pub fn run_ip_json(arguments: &str) -> Vec<Value> {
    let text = run_command(&format!("ip -d -j {arguments}"));
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
}

/// Returns the routes of a table; an empty list for a table that does not exist.
pub fn routes_of_table(table: &str) -> Vec<Value> {
    let output =
        Command::new("ip").args(["-d", "-j", "-6", "route", "show", "table", table]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Returns the lines of `ip`'s output with single blanks.
pub fn trimmed_lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

pub fn policy_rules() -> Vec<String> {
    trimmed_lines(&run_ip("-d -6 rule show"))
}

pub fn read_sysctl(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}")).unwrap().trim().to_owned()
}

pub fn set_sysctl(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}"), value).unwrap();
}

/// Returns all state that carnet may change, for a comparison of before and after.
pub fn kernel_state() -> String {
    let ipv4 = run_ip("-4 rule show") + &run_ip("-4 route show table all");
    let mut state = run_ip("-6 rule show")
        + &run_ip("-6 route show table all")
        + &run_ip("-6 addr show")
        + &run_ip("-br link")
        + &ipv4;
    for entry in std::fs::read_dir("/proc/sys/net/ipv6/conf").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        for setting in ["forwarding", "accept_ra", "proxy_ndp"] {
            let value = read_sysctl(&format!("{name}/{setting}"));
            state += &format!("{name} {setting} {value}\n");
        }
    }
    let mut lines: Vec<&str> = state.lines().filter(|l| !l.contains("valid_lft")).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Handles events until `done` returns true for all events so far. Panics after five seconds.
pub async fn events_until(
    platform: &mut Platform,
    mut done: impl FnMut(&[PlatformEvent]) -> bool,
) -> Vec<PlatformEvent> {
    let mut seen = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done(&seen) {
        assert!(Instant::now() < deadline, "not within thirty seconds; seen {seen:#?}");
        // Wait only a short time for an event, because `done` may depend on state that changes without an
        // event.
        if let Ok(event) = tokio::time::timeout(Duration::from_millis(20), platform.next_event()).await {
            seen.push(event.unwrap());
        }
    }
    seen
}

/// Handles events for the time `span` and returns them.
pub async fn events_during(platform: &mut Platform, span: Duration) -> Vec<PlatformEvent> {
    let start = Instant::now();
    events_until(platform, |_| start.elapsed() >= span).await
}

/// Returns the state of an interface in its last event; `None` without an event about the interface.
pub fn latest_interface_state<'a>(events: &'a [PlatformEvent], name: &str) -> Option<&'a Interface> {
    events.iter().rev().find_map(|event| match event {
        PlatformEvent::Interface(interface) if interface.name == name => Some(interface),
        _ => None,
    })
}

pub fn set_entry(entry: ForwardingEntry) -> EntryChange {
    EntryChange::Set(entry.into())
}

pub fn remove_entry(entry: ForwardingEntry) -> EntryChange {
    EntryChange::Remove(entry.into())
}

/// Returns a route to `"2001:db8::/32"`, with this table and metric. `action` is for example `"v0"`,
/// `"fe80::1 v0"` or `"unreachable"`.
pub fn route_entry(table: u32, destination: &str, metric: u32, action: &str) -> ForwardingEntry {
    let action = match action.split_once(' ') {
        None if action == "unreachable" => RouteAction::Unreachable,
        None => RouteAction::Forward { interface: action.into(), gateway: None },
        Some((gateway, interface)) => {
            RouteAction::Forward { interface: interface.into(), gateway: Some(gateway.parse().unwrap()) }
        }
    };
    ForwardingEntry::Route(Route {
        table,
        destination: destination.parse().unwrap(),
        metric,
        action: action.into(),
        source: None,
    })
}

pub fn address_entry(interface: &str, address: &str) -> ForwardingEntry {
    let (address, prefix_length) = address.split_once('/').unwrap();
    ForwardingEntry::Address(InterfaceAddress {
        interface: interface.into(),
        address: address.parse().unwrap(),
        prefix_length: prefix_length.parse().unwrap(),
        deprecated: false,
    })
}

pub fn setting_entry(interface: &str, name: &str, value: &str) -> ForwardingEntry {
    ForwardingEntry::Setting(Box::new(SysctlSetting {
        interface: interface.into(),
        name: name.into(),
        value: value.into(),
    }))
}

pub fn capture_rule(interface: &str, from: &str, protocol: u8) -> ForwardingEntry {
    ForwardingEntry::Rule(Box::new(Rule {
        priority: priority::TUNNEL_CAPTURE,
        input_interface: Some(interface.into()),
        from: Some(from.parse().unwrap()),
        to: None,
        protocol: Some(protocol),
        table: TABLE_CAPTURE,
        ..Rule::default()
    }))
}

pub fn rule_entry(priority: u32, from: Option<&str>, to: Option<&str>, table: u32) -> ForwardingEntry {
    ForwardingEntry::Rule(Box::new(Rule {
        priority,
        input_interface: None,
        from: from.map(|p| p.parse().unwrap()),
        to: to.map(|p| p.parse().unwrap()),
        table,
        ..Rule::default()
    }))
}

/// Returns the entries of a mobile router with one uplink and one LAN, about one of each kind.
pub fn entries_of_mobile_router(uplink: &str, lan: &str) -> Vec<ForwardingEntry> {
    vec![
        setting_entry(uplink, "accept_ra", "2"),
        setting_entry("all", "forwarding", "1"),
        address_entry(lan, "2001:db8:a::1/64"),
        route_entry(TABLE_CAPTURE, "::/0", 1024, TUNNEL_DEVICE),
        route_entry(TABLE_TUNNEL, "::/0", 1024, TUNNEL_DEVICE),
        route_entry(TABLE_TUNNEL, "::/0", 4096, "unreachable"),
        route_entry(TABLE_UPLINK, "::/0", 1024, &format!("fe80::1 {uplink}")),
        ForwardingEntry::Tunnel(Arc::new(Tunnel {
            end: TunnelEnd::MobileRouter,
            home_address: "2001:db8:1::1234".parse().unwrap(),
            bid: None,
            local: "2001:db8:f1::10".parse().unwrap(),
            remote: "2001:db8:1::1".parse().unwrap(),
            inner: vec!["2001:db8:a::/64".parse().unwrap()],
            transmit: true,
            mtu: 1452,
            session: None,
        })),
        capture_rule(uplink, "2001:db8:1::1/128", 41),
        capture_rule(uplink, "2001:db8:1::1/128", 135),
        capture_rule(uplink, "2001:db8:1::1/128", 44),
        rule_entry(priority::TO_MOBILE_NETWORK, None, Some("2001:db8:a::/64"), TABLE_MAIN),
        rule_entry(priority::FROM_CARE_OF_ADDRESS, Some("2001:db8:f1::10/128"), None, TABLE_UPLINK),
        rule_entry(priority::FROM_MOBILE_NETWORK, Some("2001:db8:a::/64"), None, TABLE_TUNNEL),
        ipv4_route_entry(uplink, Some("10.64.0.1")),
        ipv4_rule_entry(priority::SPECIFIC_IPV4_ROUTES, uplink, "10.2.0.185", TABLE_MAIN),
        ipv4_rule_entry(priority::FROM_CARE_OF_ADDRESS, uplink, "10.2.0.185", TABLE_UPLINK),
    ]
}

/// Returns the IPv4 default route in the table of the first uplink.
pub fn ipv4_route_entry(interface: &str, gateway: Option<&str>) -> ForwardingEntry {
    ForwardingEntry::Ipv4Route(Box::new(Ipv4Route {
        table: TABLE_UPLINK,
        destination: "0.0.0.0/0".parse().unwrap(),
        interface: interface.into(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    }))
}

pub fn ipv4_rule_entry(priority: u32, interface: &str, from: &str, table: u32) -> ForwardingEntry {
    ForwardingEntry::Ipv4Rule(Box::new(Ipv4Rule {
        priority,
        from: from.parse().unwrap(),
        output_interface: interface.into(),
        table,
        without_default: table == TABLE_MAIN,
    }))
}
