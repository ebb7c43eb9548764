//! The station attaches the BPF programs of the fast paths to its interfaces, and detaches them.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

use aya::programs::SchedClassifier;
use aya::programs::tc::TcAttachType;
use carnet_wire::ipv6::{Header, protocol};
use nix::sys::signal::Signal;

use crate::bursts::segment_counts;
use crate::hosts::{Host, assert_same_state, can_run_or_report, output_text, seconds, wait_until};
use crate::station::{CARNET_PROGRAM, Station};
use crate::testbed::{CORRESPONDENT, ON_BOARD_HOST, Testbed, parse_address};

/// Command that removes the capabilities for loading BPF programs.
const WITHOUT_BPF_CALL: [&str; 5] =
    ["setpriv", "--bounding-set", "-bpf,-sys_admin", "--inh-caps", "-bpf,-sys_admin"];

fn config_with_path(config: &str, path: &str) -> String {
    format!("{config}\n[dataplane]\npath = '{path}'\n")
}

/// Returns the names of the programs at the ingress of an interface.
fn attached_programs(host: &Host, interface: &'static str) -> Vec<String> {
    let shown = host.run_program(&["ip", "-d", "link", "show", "dev", interface]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    // A line has the form "prog/xdp id 7 name uplink ...".
    let mut words = shown.split_whitespace().skip_while(|word| *word != "prog/xdp");
    let xdp = words.nth(4).map(str::to_owned);
    let filters = host.run_program(&["tc", "filter", "show", "dev", interface, "ingress"]);
    let filters = String::from_utf8_lossy(&filters.stdout).into_owned();
    // For each program tc prints a line with its handle, and a line with only its priority. Count the lines
    // with a handle.
    let is_one = |line: &&str| line.contains("bpf") && line.contains(" handle ");
    let filters = filters.lines().filter(is_one).map(str::to_owned);
    let tcx =
        host.run_in_namespace(move || match SchedClassifier::query_tcx(interface, TcAttachType::Ingress) {
            Ok((_, programs)) => {
                programs.iter().map(|program| program.name_as_str().unwrap_or("?").to_owned()).collect()
            }
            // The query fails on kernels before 6.6, and if the interface does not exist.
            Err(_) => Vec::new(),
        });
    xdp.into_iter().chain(filters).chain(tcx).collect()
}

/// Returns whether the kernel attaches programs by BPF links, which it removes when the process ends (Linux
/// 6.6).
fn has_tcx(host: &Host) -> bool {
    host.run_in_namespace(|| SchedClassifier::query_tcx("lo", TcAttachType::Ingress).is_ok())
}

fn has_program(host: &Host, interface: &'static str, name: &str) -> bool {
    let programs = attached_programs(host, interface);
    programs.len() == 1 && programs[0].contains(name)
}

const INTERFACES_WITH_PROGRAMS: [(&str, &str); 3] =
    [("lan0", "lan"), ("wlan0", "uplink"), ("wwan0", "uplink")];

/// Returns the number of packets that took the slow path.
fn slow_path_packets(host: &Host) -> u64 {
    let shown = host.run_program(&["ip", "-s", "-j", "link", "show", "dev", "carnet0"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    shown[0]["stats64"]["tx"]["packets"].as_u64().expect("a number")
}

/// The TUN device forwards packets while programs are being loaded. `strace` delays each call that loads a
/// program, as on a slow processor.
#[test]
fn tun_device_forwards_while_fast_path_is_loaded() {
    if !can_run_or_report() || !has_strace() {
        return;
    }
    let bed = Testbed::new();
    let trace = bed.scratch.path_of("router.trace");
    let file = trace.to_str().expect("a path");
    // The delay leaves out the first calls, which load the program of the TUN device and test the kernel.
    let slow = "inject=bpf:delay_enter=200000:when=30+";
    let wrapper = ["strace", "-D", "-f", "-qq", "-o", file, "-e", "trace=bpf", "-e", slow];
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let mut router = Station::spawn_without_wait(&bed.router, &bed.router_config(), &wrapper, CARNET_PROGRAM);
    wait_until("the router answers", seconds(10), || router.run_command(&["status"]).status.success());
    let status = router.show_json("status");
    assert_ne!(status["dataplane"], "bpf", "the station answers before the programs are loaded");
    if status["dataplane_loading"] != "bpf" {
        return;
    }
    router.wait_until_registered();
    let traffic = bed.start_echo(100);
    traffic.wait_for_further_answers();
    assert_eq!(router.show_json("status")["dataplane"], "tun", "so soon nothing is loaded");
    assert!(!router.log_text().contains("packets take the data path"), "{}", router.log_text());
    router.wait_for_fast_path();
    assert_eq!(router.show_json("status")["dataplane"], "bpf");
    assert!(router.log_text().contains("packets take the data path \"bpf\""), "{}", router.log_text());
    let path = || router.show_json("tunnels")[0]["path"].clone();
    wait_until("the tunnel takes it", seconds(5), || path() == "bpf");
    traffic.wait_for_further_answers();
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    println!("served by TUN, then by BPF: {report:?}");
    router.terminate();
}

pub fn has_strace() -> bool {
    let has = std::process::Command::new("strace").arg("-V").output().is_ok();
    if !has {
        println!("\nSKIPPED: no strace");
    }
    has
}

/// Returns the system calls of a trace in the order in which they ended. `strace` prints a call of one thread
/// in two lines if another thread makes a call meanwhile.
fn complete_calls(trace: &str) -> Vec<String> {
    let mut begun: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap_or((line, ""));
        let call = call.trim_start();
        if let Some(begin) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, begin);
        } else if let Some((_, end)) = call.split_once(" resumed>") {
            calls.push(format!("{}{end}", begun.remove(thread).unwrap_or_default()));
        } else {
            calls.push(call.to_owned());
        }
    }
    calls
}

/// Checks the order of the home agent's system calls for routes (`sendto`), for the maps of the fast path
/// (`bpf`) and for packets (`write`).
#[test]
fn home_agent_acknowledges_a_binding_after_the_fast_path_has_it() {
    if !can_run_or_report() || !has_strace() {
        return;
    }
    let bed = Testbed::new();
    let trace = bed.scratch.path_of("agent.trace");
    let file = trace.to_str().expect("a path");
    let wrapper = ["strace", "-D", "-f", "-qq", "-o", file, "-e", "trace=bpf,sendto,write,writev"];
    // With the care-of test, the answer to the test would cause a further change of the maps.
    let config = bed.agent_config().replace("[home_agent]\n", "[home_agent]\ncare_of_test = 'off'\n");
    let agent = Station::start_wrapped(&bed.agent, &config, &wrapper, CARNET_PROGRAM);
    if !matches!(agent.show_json("status")["dataplane"].as_str(), Some("bpf" | "xdp")) {
        return;
    }
    let all_calls = || complete_calls(&fs::read_to_string(&trace).expect("a trace"));
    let begin = all_calls();
    let writes_to = |name: &str| {
        let creates = |call: &&String| {
            call.contains("BPF_MAP_CREATE") && call.contains(&format!("map_name=\"{name}\""))
        };
        let creation = begin.iter().rfind(creates).unwrap_or_else(|| panic!("no map {name}: {begin:#?}"));
        let (_, descriptor) = creation.rsplit_once(" = ").expect("a descriptor");
        format!("bpf(BPF_MAP_UPDATE_ELEM, {{map_fd={descriptor},")
    };
    let [bindings, prefixes] = ["BINDINGS", "PREFIXES"].map(writes_to);
    // A new value of `generation` makes the programs ask the kernel for the routes again. The kernel keeps
    // the first 15 octets of a map's name.
    let generation = writes_to(".data.generatio");
    let is_route = |call: &String| call.contains("RTM_NEWROUTE") || call.contains("RTM_DELROUTE");
    // An acknowledgement is an IPv6 packet with a routing header, from the home agent's address
    // `2001:db8:...`.
    let is_acknowledgement = |call: &String| call.starts_with("write") && call.contains("+@ \\1\\r\\270");
    let check = |when: &str, calls: &[String], maps: &[&String]| {
        let sent = calls.iter().position(is_acknowledgement);
        let sent = sent.unwrap_or_else(|| panic!("{when}: no acknowledgement: {calls:#?}"));
        let (earlier, later) = calls.split_at(sent);
        let last_route = earlier.iter().rposition(is_route);
        let last_route = last_route.unwrap_or_else(|| panic!("{when}: no change of routes: {calls:#?}"));
        for map in maps {
            assert!(earlier.iter().any(|call| call.starts_with(*map)), "{when}: {map}: {calls:#?}");
        }
        let is_renewed = earlier[last_route..].iter().any(|call| call.starts_with(&generation));
        assert!(is_renewed, "{when}: programs still use the former routes: {calls:#?}");
        let is_late =
            |call: &String| is_route(call) || call.starts_with(&bindings) || call.starts_with(&prefixes);
        assert!(!later.iter().any(is_late), "{when}: a change after the acknowledgement: {calls:#?}");
    };
    let before = begin.len();
    let mut router = Station::start(&bed.router, &bed.router_config());
    router.wait_until_registered();
    let calls = all_calls();
    check("registration", &calls[before..], &[&bindings, &prefixes]);
    let before = calls.len();
    router.terminate();
    wait_until("the binding ends", seconds(10), || agent.bindings().is_empty());
    // After the de-registration the tunnel stays for packets in transit, but no route leads into it.
    check("de-registration", &all_calls()[before..], &[]);
}

/// When a new interface without link-layer address appears, the thread that forwards packets must not wait
/// for the kernel's verifier.
#[test]
fn home_agent_loads_no_program_when_an_interface_without_link_address_comes() {
    if !can_run_or_report() || !has_strace() {
        return;
    }
    let bed = Testbed::new();
    let trace = bed.scratch.path_of("agent.trace");
    let file = trace.to_str().expect("a path");
    let wrapper = ["strace", "-D", "-f", "-qq", "-o", file, "-e", "trace=bpf"];
    let agent = Station::start_wrapped(
        &bed.agent,
        &config_with_path(&bed.agent_config(), "bpf"),
        &wrapper,
        CARNET_PROGRAM,
    );
    assert_eq!(agent.show_json("status")["dataplane"], "bpf");
    let calls = || fs::read_to_string(&trace).expect("a trace");
    let before = calls().len();
    bed.agent.run_ip("tuntap add dev bare0 mode tun");
    bed.agent.run_ip("link set bare0 up");
    // Before Linux 6.6, the program is attached as a tc filter.
    let filter = ["tc", "filter", "show", "dev", "bare0", "ingress"];
    let is_attached =
        || calls()[before..].contains("BPF_LINK_CREATE") || !bed.agent.run_program(&filter).stdout.is_empty();
    wait_until("the interface has its program", seconds(20), is_attached);
    let since = calls().split_off(before);
    assert!(!since.contains("BPF_PROG_LOAD"), "{since}");
}

/// The maps of the BPF programs have a fixed size. With more routers, the home agent replaces them by larger
/// maps.
#[test]
fn home_agent_enlarges_maps_for_more_routers() {
    if !can_run_or_report() {
        return;
    }
    for path in ["bpf", "xdp"] {
        let bed = Testbed::new();
        let config = config_with_path(&bed.agent_config(), path);
        let agent = Station::start(&bed.agent, &config);
        let router = Station::start(&bed.router, &config_with_path(&bed.router_config(), path));
        router.wait_until_registered();
        let more: String = (0..100)
            .map(|node| {
                format!(
                    "[[home_agent.mobile_router]]\nhome_address = '2001:db8:1::9:{node:x}'\n\
                     prefixes = ['2001:db8:9:{node:x}::/64']\n\
                     auth = {{ spi = 309, key = '000102030405060708090a0b0c0d0e0f' }}\n"
                )
            })
            .collect();
        let before = bed.agent.run_program(&["ip", "-d", "link", "show", "dev", "ha0"]).stdout;
        agent.reload(&format!("{config}\n{more}"));
        agent.wait_for_fast_path();
        if path == "xdp" {
            // The output contains the ID of the attached program. A new program has another ID.
            assert_ne!(before, bed.agent.run_program(&["ip", "-d", "link", "show", "dev", "ha0"]).stdout);
        }
        assert!(has_program(&bed.agent, "ha0", "agent"), "{:?}", attached_programs(&bed.agent, "ha0"));
        assert_eq!(agent.show_json("status")["dataplane"], path);
        if path == "xdp" {
            // The test does not set up its virtual interfaces to accept frames that XDP redirects. So it
            // sends no traffic on this path.
            continue;
        }
        // The fast path still has the binding that existed before the reload.
        wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
        let before = slow_path_packets(&bed.agent);
        let output = bed.host.run_program(&["ping", "-6", "-c", "20", "-i", "0.05", CORRESPONDENT]);
        assert!(output.status.success());
        assert!(
            slow_path_packets(&bed.agent) - before < 10,
            "{path}: {before} {}",
            slow_path_packets(&bed.agent)
        );
    }
}

#[test]
fn no_bpf_program_remains_after_exit_or_kill() {
    if !can_run_or_report() {
        return;
    }
    for path in ["bpf", "xdp"] {
        let bed = Testbed::new();
        let before = [bed.router.kernel_state(), bed.agent.kernel_state()];
        for signal in [Signal::SIGKILL, Signal::SIGTERM] {
            let mut agent = Station::start(&bed.agent, &config_with_path(&bed.agent_config(), path));
            let mut router = Station::start(&bed.router, &config_with_path(&bed.router_config(), path));
            router.wait_until_registered();
            assert_eq!(router.show_json("status")["dataplane"], path);
            for (interface, name) in INTERFACES_WITH_PROGRAMS {
                assert!(
                    has_program(&bed.router, interface, name),
                    "{:?}",
                    attached_programs(&bed.router, interface)
                );
            }
            assert!(has_program(&bed.agent, "ha0", "agent"), "{:?}", attached_programs(&bed.agent, "ha0"));
            assert!(
                attached_programs(&bed.router, "carnet0").is_empty()
                    && attached_programs(&bed.router, "lo").is_empty()
            );
            router.end_by_signal(signal);
            agent.end_by_signal(signal);
            if signal == Signal::SIGKILL && path == "bpf" && !has_tcx(&bed.router) {
                // With this kernel, a killed station leaves a clsact qdisc on its interfaces, so skip the
                // check below. The next start removes the qdisc.
                continue;
            }
            for (host, interface) in INTERFACES_WITH_PROGRAMS
                .iter()
                .map(|(name, _)| (&bed.router, *name))
                .chain([(&bed.agent, "ha0")])
            {
                wait_until("the kernel has let go of the programs", seconds(5), || {
                    attached_programs(host, interface).is_empty()
                });
            }
        }
        assert_same_state(&before[0], &bed.router.kernel_state(), path);
        assert_same_state(&before[1], &bed.agent.kernel_state(), path);
    }
}

#[test]
fn interfaces_that_appear_later_get_a_bpf_program() {
    if !can_run_or_report() {
        return;
    }
    for path in ["bpf", "xdp"] {
        let bed = Testbed::new();
        bed.router.run_ip("link del wwan0");
        let agent = Station::start(&bed.agent, &config_with_path(&bed.agent_config(), path));
        let router = Station::start(&bed.router, &config_with_path(&bed.router_config(), path));
        router.wait_until_registered();
        let appears = |host: &Host, interface: &'static str, name: &str| {
            wait_until(&format!("{interface} has a program"), seconds(10), || {
                has_program(host, interface, name)
            });
        };
        bed.add_uplink(1);
        appears(&bed.router, "wwan0", "uplink");
        for _ in 0..2 {
            bed.router.run_ip("link del wlan0");
            bed.add_uplink(0);
            appears(&bed.router, "wlan0", "uplink");
            bed.router.run_ip("link del lan0");
            bed.add_lan();
            appears(&bed.router, "lan0", "lan");
        }
        // A home agent attaches its programs to each of its interfaces, also to a new one.
        let other = Host::new();
        bed.agent.create_link("more0", &other, "more1");
        appears(&bed.agent, "more0", "agent");
        // A renamed interface counts as another interface.
        bed.router.run_ip_batch("link set wwan0 down\nlink set wwan0 name other0\nlink set other0 up");
        wait_until("the program is gone", seconds(10), || {
            attached_programs(&bed.router, "other0").is_empty()
        });
        if path == "bpf" {
            // The virtual interfaces at the other ends do not accept redirected frames, so packets to them
            // take the slow path (docs/decisions/0016-bpf-and-xdp.md).
            wait_until("traffic flows", seconds(20), || bed.host.can_ping(CORRESPONDENT));
        }
        assert_eq!(router.show_json("status")["dataplane"], path);
        assert_eq!(agent.show_json("status")["dataplane"], path);
        assert!(!router.log_text().contains("its packets take the slow path"), "{}", router.log_text());
    }
}

#[test]
fn path_auto_uses_another_path_if_kernel_forbids_bpf() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let config = config_with_path(&bed.router_config(), "auto");
    let mut router = Station::start_wrapped(&bed.router, &config, &WITHOUT_BPF_CALL, CARNET_PROGRAM);
    router.wait_until_registered();
    let log = router.log_text();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("cannot use the data path \"bpf\"")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("Operation not permitted"), "{}", lines[0]);
    println!("{}", lines[0]);
    assert_ne!(router.show_json("status")["dataplane"], "bpf");
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    router.terminate();
}

#[test]
fn path_bpf_is_an_error_if_kernel_forbids_bpf() {
    if !can_run_or_report() {
        return;
    }
    for path in ["bpf", "xdp"] {
        let bed = Testbed::new();
        let before = bed.router.kernel_state();
        let config = config_with_path(&bed.router_config(), path);
        let mut router = Station::spawn_without_wait(&bed.router, &config, &WITHOUT_BPF_CALL, CARNET_PROGRAM);
        let end = router.wait_for_end(Instant::now());
        let log = fs::read_to_string(bed.scratch.path_of("router.log")).expect("a log");
        assert_eq!(end.status.code(), Some(1), "{log}");
        let last = log.lines().last().unwrap_or_default();
        assert!(last.contains(&format!("dataplane.path = \"{path}\" cannot be used")), "{log}");
        assert!(last.contains("Operation not permitted") && last.contains("\"auto\""), "{last}");
        // The message names the missing rights, and does not demand another kernel.
        assert!(last.contains("CAP_BPF") && !last.contains("a kernel that allows it"), "{last}");
        println!("{last}");
        assert_same_state(&before, &bed.router.kernel_state(), "after a start that failed");
    }
}

/// A packet with a VLAN tag (IEEE 802.1Q) belongs to another network on the same cable. The programs must
/// pass it to the kernel unchanged.
#[test]
fn fast_path_ignores_packets_of_another_vlan() {
    if !can_run_or_report() {
        return;
    }
    const SEND_TAGGED_PROGRAM: &str = "import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0))
[s.send(bytes.fromhex(sys.argv[1])) for _ in range(20)]";
    for path in ["bpf", "xdp"] {
        let bed = Testbed::new();
        let _agent = Station::start(&bed.agent, &config_with_path(&bed.agent_config(), path));
        let router = Station::start(&bed.router, &config_with_path(&bed.router_config(), path));
        router.wait_until_registered();
        let mac = |host: &Host, interface| -> String {
            let shown = host.run_ip(&format!("-o link show dev {interface}"));
            let address = shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
            address.expect("a link-layer address").replace(':', "")
        };
        let payload = [0x30, 0x39, 0x30, 0x39, 0, 8, 0, 0];
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: 8,
            next_header: protocol::UDP,
            hop_limit: 64,
            source: parse_address(ON_BOARD_HOST),
            destination: parse_address(CORRESPONDENT),
        };
        let packet = [&header.emit()[..], &payload].concat();
        let packet: String = packet.iter().map(|octet| format!("{octet:02x}")).collect();
        let ends = mac(&bed.router, "lan0") + &mac(&bed.host, "eth0");
        let taken = |frame: &str| {
            let before = router.counter("tunnel.encapsulated");
            let output = bed.host.run_program(&["python3", "-c", SEND_TAGGED_PROGRAM, frame]);
            assert!(output.status.success(), "{}", output_text(&output));
            // The programs process a packet while it is being sent. If they had taken these packets, their
            // counters would show this by now.
            std::thread::sleep(seconds(1) / 5);
            router.counter("tunnel.encapsulated") - before
        };
        assert_eq!(taken(&format!("{ends}81000005 86dd{packet}")), 0, "{path}");
        wait_until("those without a tag are taken", seconds(10), || {
            taken(&format!("{ends}86dd{packet}")) >= 20
        });
        assert_eq!(taken(&format!("{ends}81000005 86dd{packet}")), 0, "{path}");
    }
}

/// Packets of a modem have no link-layer header. They too enter and leave the tunnel on the fast path.
#[test]
fn fast_path_serves_uplink_without_ethernet_headers() {
    if !can_run_or_report() {
        return;
    }
    /// Script that connects two TUN devices: packets into one come out of the other.
    const PIPE_PROGRAM: &str = "import fcntl, os, select, struct
def tun(name):
    fd = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(fd, 0x400454ca, struct.pack('16sH22x', name, 0x1001))
    return fd
ends = [tun(b'wwan0'), tun(b'far')]
while True:
    for fd in select.select(ends, [], [])[0]:
        packet = os.read(fd, 70000)
        try: os.write(ends[1 - ends.index(fd)], packet)
        except OSError: pass";
    let bed = Testbed::new();
    bed.router.run_ip("link del wwan0");
    bed.router.run_ip("link del wlan0");
    let words = ["python3", "-c", PIPE_PROGRAM].map(str::to_owned);
    let mut pipe = bed.router.spawn_program(&words, |_| {});
    wait_until("the devices are there", seconds(10), || bed.router.run_ip("link show").contains(" far:"));
    bed.router.run_ip(&format!("link set far netns {}", bed.core.thread_id()));
    bed.router.run_ip_batch(
        "link set wwan0 mtu 1400 up
         addr add 2001:db8:f2::10/64 dev wwan0
         route add default dev wwan0",
    );
    bed.core.run_ip_batch(
        "link set far mtu 1400 up
         addr add 2001:db8:f2::1/64 dev far",
    );
    let agent = Station::start(&bed.agent, &config_with_path(&bed.agent_config(), "bpf"));
    let router = Station::start(&bed.router, &config_with_path(&bed.router_config(), "bpf"));
    router.wait_until_registered();
    assert!(
        has_program(&bed.router, "wwan0", "uplink_bare"),
        "{:?}",
        attached_programs(&bed.router, "wwan0")
    );
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let before = segment_counts(&bed.router);
    for _ in 0..20 {
        assert!(bed.host.can_ping(CORRESPONDENT));
    }
    let after = segment_counts(&bed.router);
    assert!(after.0 - before.0 < 10, "{} packets took the slow path", after.0 - before.0);
    assert!(router.counter("tunnel.decapsulated") >= 20 && agent.counter("tunnel.decapsulated") >= 20);
    let _ = pipe.kill();
    let _ = pipe.wait();
}
