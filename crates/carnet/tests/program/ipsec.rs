//! Signalling and data under IPsec (RFC 4877): what an attacker on the path can read, and what the stations
//! refuse.
//!
//! The tests need a kernel with ESP, and strongSwan for the negotiation; `make test-kernel` has both.

use std::fs;
use std::process::Child;
use std::time::Duration;

use crate::hosts::{Host, assert_same_state, can_run_or_report, output_text, seconds, wait_for, wait_until};
use crate::station::{Station, run_carnet};
use crate::testbed::{CARE_OF_ADDRESSES, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT_ADDRESS, Testbed};
use crate::traffic::PacketSniffer;

/// Address of strongSwan's IKE daemon on the home agent's machine.
const IKE_DAEMON_ADDRESS: &str = "2001:db8:f0::2";
/// Home address of another node that the home agent serves.
const OTHER_HOME_ADDRESS: &str = "2001:db8:1::5678";
/// Interfaces of the core on which packets are captured.
const ALL_INTERFACES: &[&str] = &["ha", "wlan", "wwan"];
const CHARON_PROGRAM: &str = "/usr/lib/ipsec/charon";

/// Returns whether the kernel has ESP and the data path permits IPsec. The kernel's tunnel devices do not
/// permit it.
pub fn has_esp() -> bool {
    if !can_run_or_report() || std::env::var("CARNET_TEST_PATH").as_deref() == Ok("kernel") {
        return false;
    }
    let host = Host::new();
    let output = host.run_program(&association_command("::1", "::2", "0x1000", 0));
    let can = output.status.success();
    if !can {
        println!("\nSKIPPED: this kernel has no ESP (make test-kernel has one that does)");
    }
    can
}

fn has_charon() -> bool {
    let can = fs::exists(CHARON_PROGRAM).unwrap_or(false);
    if !can {
        println!("\nSKIPPED: strongSwan is missing (make test-kernel brings it)");
    }
    can
}

/// Returns the `ip` command that adds a manual security association.
fn association_command<'a>(
    source: &'a str,
    destination: &'a str,
    index: &'a str,
    key: usize,
) -> Vec<&'a str> {
    const KEYS: [&str; 2] =
        ["0x000102030405060708090a0b0c0d0e0f10111213", "0x202122232425262728292a2b2c2d2e2f30313233"];
    let ends = ["ip", "xfrm", "state", "add", "src", source, "dst", destination, "proto", "esp"];
    let what =
        ["spi", index, "reqid", "1", "mode", "transport", "aead", "rfc4106(gcm(aes))", KEYS[key], "128"];
    let selector = ["replay-window", "32", "sel", "src", source, "dst", destination];
    [&ends[..], &what, &selector].concat()
}

/// Returns the `ip` command that adds a policy: the kernel must send these packets under ESP.
fn policy_command<'a>(source: &'a str, destination: &'a str) -> Vec<&'a str> {
    let ends =
        ["ip", "xfrm", "policy", "add", "src", source, "dst", destination, "proto", "135", "dir", "out"];
    [&ends[..], &["tmpl", "proto", "esp", "reqid", "1", "mode", "transport"]].concat()
}

fn run_successfully(host: &Host, words: &[&str]) {
    let output = host.run_program(words);
    assert!(output.status.success(), "{words:?}: {}", output_text(&output));
}

/// Adds the security associations between a node and the home agent to one of the two hosts, for both
/// directions.
fn add_associations(host: &Host, local: &str, node: &str, indexes: [&str; 2]) {
    run_successfully(host, &association_command(node, HOME_AGENT_ADDRESS, indexes[0], 0));
    run_successfully(host, &association_command(HOME_AGENT_ADDRESS, node, indexes[1], 1));
    run_successfully(
        host,
        &if local == node {
            policy_command(node, HOME_AGENT_ADDRESS)
        } else {
            policy_command(HOME_AGENT_ADDRESS, node)
        },
    );
}

/// Adds the security associations between the router and the home agent to both hosts.
pub fn protect_signalling(bed: &Testbed) {
    add_associations(&bed.agent, HOME_AGENT_ADDRESS, HOME_ADDRESS, ["0x1001", "0x1002"]);
    add_associations(&bed.router, HOME_ADDRESS, HOME_ADDRESS, ["0x1001", "0x1002"]);
}

/// Returns the configs of the testbed with IPsec instead of shared keys.
pub fn configs_with_ipsec(bed: &Testbed) -> (String, String) {
    let key = "{ spi = 300, key = '000102030405060708090a0b0c0d0e0f' }";
    (bed.agent_config().replace(key, "'ipsec'"), bed.router_config().replace(key, "'ipsec'"))
}

/// Counts the Binding Updates and Acknowledgements in clear text, and the packets under ESP. Finds them by
/// the header behind the Home Address option or type 2 routing header.
fn count_mobility_and_esp(packets: &[Vec<u8>]) -> (usize, usize) {
    let of = |protocol: u8| {
        let is =
            |packet: &&Vec<u8>| packet.len() > 64 && matches!(packet[6], 43 | 60) && packet[40] == protocol;
        packets.iter().filter(is).count()
    };
    (of(135), of(50))
}

#[test]
fn messages_are_protected_by_ipsec_and_unprotected_messages_are_ignored() {
    if !has_esp() {
        return;
    }
    let bed = Testbed::new();
    let before = [bed.agent.kernel_state(), bed.router.kernel_state()];
    let (agent, router) = configs_with_ipsec(&bed);
    let second = format!(
        "\n[[home_agent.mobile_router]]\nhome_address = '{OTHER_HOME_ADDRESS}'\nprefixes = \
         ['2001:db8:b::/64']\nauth = \
         'ipsec'\n"
    );
    let mut agent = Station::start(&bed.agent, &(agent + &second));
    let sniffer = PacketSniffer::start(&bed.core, ALL_INTERFACES);

    // Without a security association no message leaves the router.
    let mut station = Station::start(&bed.router, &router);
    wait_until("the router finds no policy", seconds(20), || {
        station.counter("mobility.dropped.not_protected") > 0
    });
    assert!(station.log_text().contains("the kernel has no IPsec policy for it"), "{}", station.log_text());
    assert_eq!(count_mobility_and_esp(&sniffer.seen_packets()), (0, 0));

    // The home agent does not answer a router without IPsec.
    let plain = router.replace("'ipsec'", "'none'");
    station.reload(&plain);
    wait_until("the home agent drops it", seconds(30), || {
        agent.counter("mobility.dropped.not_protected") > 0
    });
    assert!(agent.log_text().contains("IPsec did not protect it"), "{}", agent.log_text());
    assert!(agent.bindings().is_empty());
    let (clear, protected) = count_mobility_and_esp(&sniffer.seen_packets());
    assert!(clear > 0 && protected == 0, "{clear} in the clear, {protected} under ESP");
    station.reload(&router);

    // The sender also has the keys of another node's security association, and sends its message under that
    // association. The kernel compares the addresses, so the home agent refuses the message.
    add_associations(&bed.agent, HOME_AGENT_ADDRESS, OTHER_HOME_ADDRESS, ["0x2001", "0x2002"]);
    let theft = association_command(HOME_ADDRESS, HOME_AGENT_ADDRESS, "0x2001", 0);
    run_successfully(&bed.router, &theft);
    run_successfully(&bed.router, &policy_command(HOME_ADDRESS, HOME_AGENT_ADDRESS));
    let refused = || {
        let text = bed
            .agent
            .run_in_namespace(|| fs::read_to_string("/proc/thread-self/net/xfrm_stat").unwrap_or_default());
        let line =
            text.lines().find(|line| line.starts_with("XfrmInStateMismatch")).unwrap_or_default().to_owned();
        line.split_whitespace().nth(1).and_then(|count| count.parse::<u32>().ok()).unwrap_or_default()
    };
    wait_until("the home agent's kernel refuses it", seconds(60), || refused() > 0);
    assert!(agent.bindings().is_empty());
    bed.router.run_ip("xfrm state flush");
    bed.router.run_ip("xfrm policy flush");

    // With its own security association the router registers. It uses the same association when it moves to
    // the other uplink.
    add_associations(&bed.agent, HOME_AGENT_ADDRESS, HOME_ADDRESS, ["0x1001", "0x1002"]);
    add_associations(&bed.router, HOME_ADDRESS, HOME_ADDRESS, ["0x1001", "0x1002"]);
    let begin = sniffer.packet_count();
    wait_until("it registers", seconds(60), || station.mobile_router_state() == "registered");
    assert_eq!(agent.bindings()[0].1, CARE_OF_ADDRESSES[0]);
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    assert!(station.run_command(&["handover", "wwan0"]).status.success());
    wait_until("the binding moves", seconds(20), || agent.bindings()[0].1 == CARE_OF_ADDRESSES[1]);
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let (clear, protected) = count_mobility_and_esp(&sniffer.seen_packets()[begin..]);
    // The test expects two updates, each with its acknowledgement. The core both receives and sends each
    // packet; the test counts only the received ones.
    assert!(clear == 0 && protected >= 4, "{clear} in the clear, {protected} under ESP");

    station.terminate();
    assert!(agent.bindings().is_empty(), "the goodbye came under IPsec too");
    agent.terminate();
    for host in [&bed.agent, &bed.router] {
        host.run_ip("xfrm state flush");
        host.run_ip("xfrm policy flush");
    }
    sniffer.stop();
    for (host, (before, name)) in
        [&bed.agent, &bed.router].into_iter().zip(before.iter().zip(["agent", "router"]))
    {
        assert_same_state(before, &host.kernel_state(), name);
    }
}

/// A running strongSwan on one host.
struct StrongSwan<'a> {
    host: &'a Host,
    charon: Child,
    config: String,
    log: String,
}

impl<'a> StrongSwan<'a> {
    /// Starts charon on a host, with the output of `carnet ipsec` for the station's config, and with the
    /// secret that both ends share.
    fn start(bed: &Testbed, host: &'a Host, name: &str, config: &str, data: bool) -> StrongSwan<'a> {
        let at =
            |what: &str| bed.scratch.path_of(&format!("{name}-{what}")).to_str().expect("a path").to_owned();
        fs::write(at("carnet.toml"), config).expect("a config");
        let (file, vici, log) = (at("carnet.toml"), at("vici"), at("charon.log"));
        let words = ["ipsec", "--config", &file, "--gateway", IKE_DAEMON_ADDRESS];
        let output = run_carnet(&[&words[..], if data { &["--data"] } else { &[] }].concat());
        assert!(output.status.success(), "{}", output_text(&output));
        let secret = format!(
            "secrets {{\n ike-test {{\n  id-1 = {HOME_ADDRESS}\n  id-2 = {HOME_AGENT_ADDRESS}\n  secret = \
             \"a \
             secret\"\n }}\n}}\n"
        );
        let text = String::from_utf8(output.stdout).expect("text") + &secret;
        fs::write(at("swanctl.conf"), text).expect("a file");
        let settings = format!(
            "charon {{\n load = random nonce openssl kdf aes sha2 hmac gcm kernel-netlink socket-default \
             vici\n install_routes = no\n install_virtual_ip = no\n filelog {{\n  file {{\n   path = \
             {log}\n   default = 1\n   flush_line = yes\n  }}\n }}\n \
             plugins {{\n  vici {{\n   socket = unix://{vici}\n  }}\n }}\n}}\nswanctl {{\n socket = \
             unix://{vici}\n}}\n"
        );
        fs::write(at("strongswan.conf"), settings).expect("a file");
        // Both hosts share the file system, so each strongSwan needs a `/run` of its own.
        let script = format!("mount -t tmpfs tmpfs /run && exec {CHARON_PROGRAM}");
        let words = ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned);
        let variable = at("strongswan.conf");
        let charon = host.spawn_program(&words, move |command| {
            command.env("STRONGSWAN_CONF", variable).stdin(std::process::Stdio::null());
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        });
        let swan = StrongSwan { host, charon, config: at("strongswan.conf"), log };
        wait_until("charon answers", seconds(20), || fs::exists(&vici).unwrap_or(false));
        swan.run_swanctl(&["--load-all", "--file", &at("swanctl.conf")]);
        swan
    }

    fn run_swanctl(&self, words: &[&str]) -> String {
        let setting = format!("STRONGSWAN_CONF={}", self.config);
        let output = self.host.run_program(&[&["env", &setting, "swanctl"], words].concat());
        assert!(output.status.success(), "{}\n{}", output_text(&output), self.log_text());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the security parameter indexes of the negotiated security associations, sorted.
    fn association_indexes(&self) -> Vec<String> {
        let shown = self.host.run_ip("xfrm state");
        let mut indexes: Vec<String> = shown
            .lines()
            .filter_map(|line| Some(line.split_once(" spi ")?.1.split(' ').next()?.to_owned()))
            .collect();
        indexes.sort();
        indexes
    }

    fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for StrongSwan<'_> {
    fn drop(&mut self) {
        let _ = self.charon.kill();
        let _ = self.charon.wait();
        if std::thread::panicking() {
            let text = self.log_text();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("--- end of {}\n{}", self.log, lines[lines.len().saturating_sub(40)..].join("\n"));
            eprintln!("{}\n{}", self.host.run_ip("xfrm state"), self.host.run_ip("xfrm policy"));
        }
    }
}

#[test]
fn strongswan_negotiates_the_associations_that_carnet_requests() {
    if !has_esp() || !has_charon() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = configs_with_ipsec(&bed);
    let sniffer = PacketSniffer::start(&bed.core, ALL_INTERFACES);
    let _of_agent = StrongSwan::start(&bed, &bed.agent, "agent", &agent, false);
    let of_router = StrongSwan::start(&bed, &bed.router, "router", &router, false);
    let agent = Station::start(&bed.agent, &agent);
    let station = Station::start(&bed.router, &router);
    // The first Binding Update starts the negotiation.
    wait_until("it registers", seconds(60), || station.mobile_router_state() == "registered");
    let indexes = of_router.association_indexes();
    assert!(indexes.len() >= 2, "{indexes:?}");
    for (uplink, care_of_address) in [("wwan0", CARE_OF_ADDRESSES[1]), ("wlan0", CARE_OF_ADDRESSES[0])] {
        assert!(station.run_command(&["handover", uplink]).status.success());
        wait_until("the binding moves", seconds(20), || agent.bindings()[0].1 == care_of_address);
        wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    }
    assert_eq!(of_router.association_indexes(), indexes, "nothing was negotiated anew");

    // The uplink that IKE uses goes down. The Binding Update leaves at once under the present security
    // association, and IKE starts again over the other uplink.
    bed.router.run_ip("link set wlan0 down");
    wait_until("the binding moves", seconds(30), || agent.bindings()[0].1 == CARE_OF_ADDRESSES[1]);
    wait_until("IKE follows", seconds(60), || {
        let shown = of_router.run_swanctl(&["--list-sas"]);
        shown.contains(&format!("@ {}", CARE_OF_ADDRESSES[1])) && shown.contains("INSTALLED, TRANSPORT_PROXY")
    });
    assert_ne!(of_router.association_indexes(), indexes);
    bed.router.run_ip_batch(
        "link set wlan0 up
         addr add 2001:db8:f1::10/64 dev wlan0
         route add default via 2001:db8:f1::1 dev wlan0 metric 100",
    );
    wait_until("the binding moves back", seconds(30), || agent.bindings()[0].1 == CARE_OF_ADDRESSES[0]);
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let (clear, protected) = count_mobility_and_esp(&sniffer.stop());
    assert!(clear == 0 && protected >= 8, "{clear} in the clear, {protected} under ESP");
}

/// Returns the number of packets from or to the mobile network that an attacker on the path can read. They
/// are in a tunnel without ESP, or outside of any tunnel.
fn count_readable_packets(packets: &[Vec<u8>]) -> usize {
    let inside = [0x20, 0x01, 0x0d, 0xb8, 0, 0x0a];
    let is = |packet: &[u8]| {
        packet.len() >= 40 && (packet[8..].starts_with(&inside) || packet[24..].starts_with(&inside))
    };
    packets.iter().filter(|packet| packet[6] == 41 && is(&packet[40..])).count()
}

#[test]
fn ipsec_data_option_encrypts_packets_of_mobile_network() {
    if !has_esp() || !has_charon() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = configs_with_ipsec(&bed);
    // The kernel's IPsec does not see packets that BPF programs forward, so the test uses the TUN device.
    let tun = |config: String| config + "\n[dataplane]\npath = 'tun'\n";
    let (agent, router) = (tun(agent), tun(router));
    let sniffer = PacketSniffer::start(&bed.core, ALL_INTERFACES);
    let _of_agent = StrongSwan::start(&bed, &bed.agent, "agent", &agent, true);
    let of_router = StrongSwan::start(&bed, &bed.router, "router", &router, true);
    let agent = Station::start(&bed.agent, &agent);
    let station = Station::start(&bed.router, &router);
    wait_until("it registers", seconds(60), || station.mobile_router_state() == "registered");
    wait_until("data flow", seconds(60), || bed.host.can_ping(CORRESPONDENT));
    // Packets between the router's own address on board and the hosts on board are not under IPsec.
    assert!(bed.host.can_ping("2001:db8:a::1"));
    let indexes = of_router.association_indexes();
    assert!(station.run_command(&["handover", "wwan0"]).status.success());
    wait_until("the binding moves", seconds(20), || agent.bindings()[0].1 == CARE_OF_ADDRESSES[1]);
    wait_until("data flow", seconds(20), || bed.host.can_ping(CORRESPONDENT));
    // Packets that are larger than the MTU pass in both directions.
    wait_for("large packets arrive", seconds(20), || {
        let words = ["ping", "-6", "-c", "1", "-W", "2", "-s", "3000", CORRESPONDENT];
        bed.host.run_program(&words).status.success().then_some(())
    });
    assert_eq!(of_router.association_indexes(), indexes, "nothing was negotiated anew");
    std::thread::sleep(Duration::from_millis(100));
    let packets = sniffer.stop();
    let tunnelled = packets.iter().filter(|packet| packet[6] == 41).count();
    assert!(tunnelled > 0);
    assert_eq!(count_readable_packets(&packets), 0, "of {tunnelled} packets in the tunnel");
}
