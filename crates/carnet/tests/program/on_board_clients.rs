//! DHCP and DNS clients of other vendors on board: dnsmasq's `dhcp_release`, rdnssd, systemd-networkd, and
//! messages as Android and Windows send them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::Value;

use crate::hosts::{can_run_or_report, output_text, seconds, time_factor, wait_for, wait_until};
use crate::on_board::{add_ipv4_address, has_program, leases_of, on_board_config, run_udhcpc};
use crate::station::Station;
use crate::testbed::Testbed;

const DHCP_CLIENT_VARIANTS_PROGRAM: &str = include_str!("dhcp_habits.py");

/// Returns the path of a file that the machine has, or that `tools/setup.sh test` has installed. Otherwise
/// prints that the file is missing, and returns `None`.
fn find_program(places: &[&str], package: &str) -> Option<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/tools");
    let found = places.iter().map(|place| unpacked.join(place)).find(|place| place.is_file());
    if found.is_none() {
        println!("\nSKIPPED: the program of Debian's package {package} is missing");
    }
    found
}

#[test]
fn dhcp_release_ends_the_lease() {
    if !can_run_or_report() || !has_program("busybox") || !has_program("dhcp_release") {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    let router =
        Station::start(&bed.router, &on_board_config(&bed, "", "dhcp_range = '10.42.4.10-10.42.4.19'"));
    assert_eq!(run_udhcpc(&bed, "tablet").get("ip").map(String::as_str), Some("10.42.4.10"));
    let (mac, address, _) = leases_of(&router)[0].clone();
    // dhcp_release assumes that it runs on the server's machine, and sends to the first address of its
    // interface as the server's address. So give the host the server's address, with a route to the real
    // server.
    for line in [
        "-4 addr add 10.42.4.1/22 dev eth0",
        "-4 addr add 10.42.4.10/32 dev eth0",
        "route del local 10.42.4.1 dev eth0 table local",
        "route add 10.42.4.1/32 dev eth0 src 10.42.4.10",
    ] {
        bed.host.run_ip(line);
    }
    let release = |mac: &str| {
        let output = bed.host.run_program(&["dhcp_release", "eth0", &address, mac]);
        assert!(output.status.success(), "{}", output_text(&output));
    };
    release("02:00:00:00:00:77");
    wait_until("a release by another host", seconds(5), || router.counter("lan.dhcp.dropped.not_owner") == 1);
    assert_eq!(leases_of(&router).len(), 1);
    release(&mac);
    wait_until("the lease is given back", seconds(5), || leases_of(&router).is_empty());
    assert_eq!(router.counter("lan.dhcp.releases"), 1);
}

#[test]
fn rdnssd_and_the_kernel_follow_the_router_advertisements() {
    let Some(rdnssd) = find_program(&["rdnssd", "/sbin/rdnssd", "/usr/sbin/rdnssd"], "rdnssd") else {
        assert_ne!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref(), Ok("1"), "rdnssd is missing");
        return;
    };
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    bed.host.run_ip("-6 addr flush dev eth0 scope global");
    bed.host.run_ip("-6 route del default");
    let (resolv, pid) = (bed.scratch.path_of("resolv"), bed.scratch.path_of("rdnssd.pid"));
    let words = [rdnssd.as_path(), Path::new("-f"), Path::new("-u"), Path::new("root")];
    let more = [Path::new("-r"), &resolv, Path::new("-p"), &pid, Path::new("-H"), Path::new("/bin/true")];
    let words: Vec<String> = words.iter().chain(&more).map(|word| word.display().to_string()).collect();
    let mut daemon = bed.host.spawn_program(&words, |command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    });
    let lan = "dns = ['2001:db8:53::53', '2001:db8:53::54']\nsearch = ['bus.example', 'example']\nmtu = 1400";
    let mut router = Station::start(&bed.router, &on_board_config(&bed, "", lan));
    let read = || std::fs::read_to_string(&resolv).unwrap_or_default();
    let has_line = |line: &str| read().lines().any(|known| known.trim() == line);
    wait_until("rdnssd knows the servers", seconds(20), || {
        has_line("nameserver 2001:db8:53::53") && has_line("nameserver 2001:db8:53::54")
    });
    wait_until("rdnssd knows the domains", seconds(10), || read().contains("search bus.example example"));
    wait_until("the kernel has an address", seconds(10), || {
        bed.host.run_ip("-6 addr show dev eth0 scope global").contains("inet6 2001:db8:a:")
    });
    let routes = bed.host.run_ip("-6 route show default");
    assert!(routes.contains("proto ra") && routes.contains("mtu 1400"), "{routes}");
    // When the router ends, it withdraws the values that it has advertised.
    router.terminate();
    wait_until("rdnssd forgets the servers", seconds(10), || !read().contains("nameserver"));
    wait_until("the kernel has no router", seconds(10), || {
        bed.host.run_ip("-6 route show default").trim().is_empty()
    });
    // SIGTERM also ends the child process of rdnssd.
    let process = Pid::from_raw(i32::try_from(daemon.id()).expect("a process"));
    signal::kill(process, Signal::SIGTERM).expect("rdnssd runs");
    daemon.wait().expect("rdnssd has ended");
}

#[test]
fn networkd_configures_a_host_on_board() {
    let Some(networkd) =
        find_program(&["/lib/systemd/systemd-networkd", "/usr/lib/systemd/systemd-networkd"], "systemd")
    else {
        return;
    };
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    bed.host.run_ip("-6 addr flush dev eth0 scope global");
    bed.host.run_ip("-6 route del default");
    let (network, state) = (bed.scratch.path_of("network"), bed.scratch.path_of("netif"));
    for folder in [&network, &state] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    let file = "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=yes\n\
                [DHCPv4]\nHostname=tablet\nUseDomains=yes\n\
                [IPv6AcceptRA]\nUseDomains=yes\n";
    std::fs::write(network.join("eth0.network"), file).expect("a file");
    // Without udev, systemd-networkd treats interfaces as ready if /sys is read-only. No D-Bus runs here,
    // because it would start other services.
    let script = format!(
        "mount --make-rprivate / && mount -t tmpfs none /run && mkdir -p /run/systemd/netif && \
         mount --bind {} /run/systemd/netif && mkdir -p /run/systemd/netif/leases /run/systemd/netif/links \
         /run/systemd/netif/lldp && chown -R systemd-network /run/systemd/netif && mkdir -p \
         /run/systemd/network && mount --bind {} /run/systemd/network && mount -t sysfs -o ro none /sys && \
         exec {}",
        state.display(),
        network.display(),
        networkd.display()
    );
    let log = bed.scratch.path_of("networkd.log");
    let words = ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned);
    let output = std::fs::File::create(&log).expect("a file");
    let mut daemon = bed.host.spawn_program(&words, move |command| {
        command.env("SYSTEMD_LOG_LEVEL", "debug").stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    });
    let lan = "dns = ['10.42.4.53', '2001:db8:53::53']\nsearch = ['bus.example']\ndhcp_range = \
               '10.42.4.10-10.42.4.19'";
    let router = Station::start(&bed.router, &on_board_config(&bed, "", lan));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let held = wait_for("a lease", seconds(30), || leases_of(&router).first().cloned());
    assert_eq!((held.1.as_str(), held.2.as_str()), ("10.42.4.10", "tablet"));
    let addresses = |family: &str| bed.host.run_ip(&format!("{family} addr show dev eth0 scope global"));
    wait_until("both addresses", seconds(20), || {
        addresses("-4").contains("10.42.4.10/22") && addresses("-6").contains("inet6 2001:db8:a:")
    });
    let of_link = || -> String {
        let files = std::fs::read_dir(state.join("links")).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
    };
    for value in ["10.42.4.53", "2001:db8:53::53", "bus.example"] {
        wait_until(value, seconds(20), || of_link().contains(value));
    }
    wait_until("a reply to DHCPv6", seconds(20), || router.counter("lan.dhcpv6.replies") > 0);
    assert!(bed.host.run_ip("-6 route show default").contains("proto ra"), "{}", said());
    let _ = (daemon.kill(), daemon.wait());
}

#[test]
fn dhcp_clients_that_behave_like_android_and_windows_get_requested_options() {
    let scapy = Command::new("/usr/bin/python3").args(["-c", "import scapy.all"]).output();
    if !scapy.is_ok_and(|output| output.status.success()) {
        assert_ne!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref(), Ok("1"), "scapy is missing");
        println!("\nSKIPPED: scapy is missing");
        return;
    }
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    let lan = "search = ['bus.example']\nmtu = 1400\ndns = ['10.42.4.53']\npref64 = '64:ff9b::/96'\n\
               captive_portal = 'https://portal.example/api'\ndhcp_range = '10.42.4.10-10.42.4.19'\n\
               dhcp_options = ['252 text http://wpad/', '43 hex 0102']";
    let router = Station::start(&bed.router, &on_board_config(&bed, "", lan));
    let script = bed.scratch.path_of("habits.py");
    std::fs::write(&script, DHCP_CLIENT_VARIANTS_PROGRAM).expect("a script");
    let limit = (60 * time_factor()).to_string();
    let words = ["timeout", &limit, "/usr/bin/python3", script.to_str().expect("a path"), "eth0"];
    let output = bed.host.run_program(&words);
    assert!(output.status.success(), "{}\n{}", output_text(&output), router.log_text());
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let outline = |answer: &Value| {
        ["who", "kind", "address", "to_mac", "to"]
            .map(|key| answer[key].to_string().replace('"', ""))
            .join(" ")
    };
    let outlines: Vec<String> = answers.iter().map(outline).collect();
    assert_eq!(
        outlines,
        [
            // A client without rapid commit gets an offer as the answer to DHCPDISCOVER.
            "android 2 10.42.4.10 02:aa:00:00:00:01 10.42.4.10",
            "android 5 10.42.4.10 02:aa:00:00:00:01 10.42.4.10",
            "windows 2 10.42.4.11 ff:ff:ff:ff:ff:ff 255.255.255.255",
            "windows 5 10.42.4.11 ff:ff:ff:ff:ff:ff 255.255.255.255",
            // The server's answer to DHCPINFORM.
            "windows 5 0.0.0.0 02:bb:00:00:00:01 10.42.4.11",
        ]
    );
    let codes = |answer: &Value| {
        let options = answer["options"].as_object().expect("options");
        let mut codes: Vec<u8> = options.keys().filter_map(|code| code.parse().ok()).collect();
        codes.sort_unstable();
        codes
    };
    for android in &answers[..2] {
        assert_eq!(codes(android), [1, 3, 6, 15, 26, 28, 43, 51, 53, 54, 58, 59, 108, 114], "{android}");
    }
    for windows in &answers[2..4] {
        assert_eq!(codes(windows), [1, 3, 6, 15, 43, 51, 53, 54, 58, 59, 61, 119, 252], "{windows}");
        assert_eq!(windows["options"]["61"], "0102bb00000001", "{windows}");
    }
    assert_eq!(codes(&answers[4]), [1, 3, 6, 15, 43, 53, 54, 61, 119, 252], "{}", answers[4]);
    let names: Vec<String> = leases_of(&router).into_iter().map(|(_, _, name)| name).collect();
    assert_eq!(names, ["pixel-7", "desktop-1a2b"]);
}
