//! Router Advertisements on board have the values of `[[mobile_router.lan]]`: the host's kernel takes the
//! MTU, and tshark reads the other values.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::hosts::{can_run_or_report, output_text, seconds, wait_until};
use crate::testbed::Testbed;

/// Returns whether tshark exists. If not, prints that the test needs it.
fn has_tshark() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        assert_ne!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref(), Ok("1"), "tshark is missing");
        println!("SKIPPED: tshark cannot be run");
    }
    there
}

/// Returns the fields of each Router Advertisement of a capture that passes a filter.
fn fields_of_advertisements(capture: &Path, filter: &str) -> Vec<String> {
    let filter = format!("icmpv6.type == 134 && {filter}");
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(capture).args(["-Y", &filter, "-T", "fields", "-E", "separator=|"]);
    for field in [
        "icmpv6.opt.mtu",
        "icmpv6.opt.prefix",
        "icmpv6.opt.captive_portal",
        "icmpv6.opt.rdnss.lifetime",
        "icmpv6.opt.rdnss",
        "icmpv6.opt.dnssl.lifetime",
        "icmpv6.opt.dnssl",
        "icmpv6.opt.pref64.scaled_lifetime",
        "icmpv6.opt.pref64.prefix",
    ] {
        command.args(["-e", field]);
    }
    // If the capture still runs, the last packet in its file may be incomplete.
    let output = command.output().expect("tshark");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn host_on_board_learns_mtu_dns_nat64_and_portal() {
    if !can_run_or_report() || !has_tshark() {
        return;
    }
    let bed = Testbed::new();
    let capture = bed.scratch.path_of("lan.pcap");
    let words = ["tcpdump", "-i", "eth0", "-U", "-w", capture.to_str().expect("a path"), "icmp6"];
    let mut dump = bed.host.spawn_program(&words.map(str::to_owned), |command| {
        command.stdin(Stdio::null()).stderr(Stdio::null());
    });
    wait_until("the capture begins", seconds(10), || capture.exists());
    let (_agent, router) = bed.start_stations();
    let has = |filter: &str, expected: &str| {
        fields_of_advertisements(&capture, filter).iter().any(|it| it == expected)
    };
    let table = "[[mobile_router.lan]]\ninterface = 'lan0'\nmtu = 1320\ndns = ['2001:db8:53::53', \
                 'fe80::53']\nsearch = ['bus.example', 'example']\npref64 = '64:ff9b::/96'\ncaptive_portal = \
                 'https://portal.example/api'\n";
    let without = bed.router_config().replace("lan = ['lan0']\n", "");
    router.reload(&format!("{without}{table}"));
    assert!(router.log_text().contains("changed mobile_router.lan lan0"), "{}", router.log_text());
    let full = "1320|2001:db8:a::|https://portal.example/api|180|2001:db8:53::53,fe80::53|180|\
                bus.example,example|23|64:ff9b::";
    wait_until("the host hears all", seconds(20), || has("icmpv6.opt.rdnss", full));
    wait_until("the kernel takes the MTU", seconds(10), || bed.host.read_sysctl("eth0/mtu") == "1320");

    // The new config has only one DNS server. carnet must withdraw all other values.
    router.reload(&format!(
        "{without}[[mobile_router.lan]]\ninterface = 'lan0'\nmtu = 1340\ndns = ['fe80::53']\n"
    ));
    let ended = "1340|2001:db8:a::|urn:ietf:params:capport:unrestricted|0,180|2001:db8:53::53,fe80::53|0|\
                 bus.example,example|0|64:ff9b::";
    wait_until("the host hears the end", seconds(20), || has("icmpv6.opt.mtu == 1340", ended));
    wait_until("the kernel takes the MTU", seconds(10), || bed.host.read_sysctl("eth0/mtu") == "1340");
    let _ = (dump.kill(), dump.wait());

    // tshark must report no error in any of the advertisements.
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(&capture);
    command.args(["-Y", "icmpv6.type == 134 && (_ws.malformed || _ws.expert.severity >= 0x600000)"]);
    let output = command.output().expect("tshark");
    assert!(output.stdout.is_empty(), "{}", output_text(&output));
    let all = fields_of_advertisements(&capture, "icmpv6.opt.mtu == 1340");
    assert!(all.iter().filter(|it| *it == ended).count() <= 3, "{all:?}");
}
