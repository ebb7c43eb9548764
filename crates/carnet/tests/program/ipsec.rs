//! Messages and data under IPsec (RFC 4877): packets that an attacker on the path sees, and packets that the
//! stations refuse.
//!
//! The tests need a kernel with ESP, and strongSwan for the negotiation; `make test-kernel` has both.

use std::fs;
use std::process::Child;
use std::time::Duration;

use crate::hosts::{Host, assert_same, possible, said, seconds, wait_for, wait_until};
use crate::station::{Station, carnet};
use crate::testbed::{CARE_OF, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT, Testbed};
use crate::traffic::Sniffer;

/// Address of strongSwan's IKE daemon on the home agent's machine.
const GATEWAY: &str = "2001:db8:f0::2";
/// Home address of another node that the home agent serves.
const OTHER: &str = "2001:db8:1::5678";
/// Interfaces of the core on which packets are captured.
const EVERYWHERE: &[&str] = &["ha", "wlan", "wwan"];
const CHARON: &str = "/usr/lib/ipsec/charon";

/// Returns whether the kernel has ESP and the data path permits IPsec. The kernel's tunnel devices do not
/// permit it.
pub fn has_esp() -> bool {
    if !possible() || std::env::var("CARNET_TEST_PATH").as_deref() == Ok("kernel") {
        return false;
    }
    let host = Host::new();
    let output = host.output(&association("::1", "::2", "0x1000", 0));
    let can = output.status.success();
    if !can {
        println!("\nSKIPPED: this kernel has no ESP (make test-kernel has one that does)");
    }
    can
}

fn has_charon() -> bool {
    let can = fs::exists(CHARON).unwrap_or(false);
    if !can {
        println!("\nSKIPPED: strongSwan is missing (make test-kernel brings it)");
    }
    can
}

/// Returns the `ip` command that adds a manual security association.
fn association<'a>(source: &'a str, destination: &'a str, index: &'a str, key: usize) -> Vec<&'a str> {
    const KEYS: [&str; 2] =
        ["0x000102030405060708090a0b0c0d0e0f10111213", "0x202122232425262728292a2b2c2d2e2f30313233"];
    let ends = ["ip", "xfrm", "state", "add", "src", source, "dst", destination, "proto", "esp"];
    let what =
        ["spi", index, "reqid", "1", "mode", "transport", "aead", "rfc4106(gcm(aes))", KEYS[key], "128"];
    let selector = ["replay-window", "32", "sel", "src", source, "dst", destination];
    [&ends[..], &what, &selector].concat()
}

/// Returns the `ip` command that adds a policy: the kernel must send these packets under ESP.
fn policy<'a>(source: &'a str, destination: &'a str) -> Vec<&'a str> {
    let ends =
        ["ip", "xfrm", "policy", "add", "src", source, "dst", destination, "proto", "135", "dir", "out"];
    [&ends[..], &["tmpl", "proto", "esp", "reqid", "1", "mode", "transport"]].concat()
}

fn must(host: &Host, words: &[&str]) {
    let output = host.output(words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
}

/// Adds the security associations between a node and the home agent to one of the two hosts, for both
/// directions.
fn associate(host: &Host, local: &str, node: &str, indexes: [&str; 2]) {
    must(host, &association(node, HOME_AGENT, indexes[0], 0));
    must(host, &association(HOME_AGENT, node, indexes[1], 1));
    must(host, &if local == node { policy(node, HOME_AGENT) } else { policy(HOME_AGENT, node) });
}

/// Adds the security associations between the router and the home agent to both hosts.
pub fn protect(bed: &Testbed) {
    associate(&bed.agent, HOME_AGENT, HOME_ADDRESS, ["0x1001", "0x1002"]);
    associate(&bed.router, HOME_ADDRESS, HOME_ADDRESS, ["0x1001", "0x1002"]);
}

/// Returns the configs of the testbed with IPsec instead of shared keys.
pub fn configs(bed: &Testbed) -> (String, String) {
    let key = "{ spi = 300, key = '000102030405060708090a0b0c0d0e0f' }";
    (bed.agent_config().replace(key, "'ipsec'"), bed.router_config().replace(key, "'ipsec'"))
}

/// Counts the Binding Updates and Acknowledgements in clear text, and the packets under ESP. It looks at the
/// header behind the Home Address option or type 2 routing header.
fn messages(packets: &[Vec<u8>]) -> (usize, usize) {
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
    let before = [bed.agent.snapshot(), bed.router.snapshot()];
    let (agent, router) = configs(&bed);
    let second = format!(
        "\n[[home_agent.mobile_router]]\nhome_address = '{OTHER}'\nprefixes = ['2001:db8:b::/64']\nauth = \
         'ipsec'\n"
    );
    let mut agent = Station::start(&bed.agent, &(agent + &second));
    let sniffer = Sniffer::start(&bed.core, EVERYWHERE);

    // Without a security association no message leaves the router.
    let mut station = Station::start(&bed.router, &router);
    wait_until("the router finds no policy", seconds(20), || {
        station.counter("mobility.dropped.not_protected") > 0
    });
    assert!(station.log().contains("the kernel has no IPsec policy for it"), "{}", station.log());
    assert_eq!(messages(&sniffer.heard()), (0, 0));

    // The home agent does not answer a router without IPsec.
    let plain = router.replace("'ipsec'", "'none'");
    station.reload(&plain);
    wait_until("the home agent drops it", seconds(30), || {
        agent.counter("mobility.dropped.not_protected") > 0
    });
    assert!(agent.log().contains("IPsec did not protect it"), "{}", agent.log());
    assert!(agent.bindings().is_empty());
    let (clear, protected) = messages(&sniffer.heard());
    assert!(clear > 0 && protected == 0, "{clear} in the clear, {protected} under ESP");
    station.reload(&router);

    // The sender also has the keys of another node's security association, and sends a message under it. The
    // home agent must refuse the message, because the kernel compares the addresses.
    associate(&bed.agent, HOME_AGENT, OTHER, ["0x2001", "0x2002"]);
    let theft = association(HOME_ADDRESS, HOME_AGENT, "0x2001", 0);
    must(&bed.router, &theft);
    must(&bed.router, &policy(HOME_ADDRESS, HOME_AGENT));
    let refused = || {
        let text =
            bed.agent.run(|| fs::read_to_string("/proc/thread-self/net/xfrm_stat").unwrap_or_default());
        let line =
            text.lines().find(|line| line.starts_with("XfrmInStateMismatch")).unwrap_or_default().to_owned();
        line.split_whitespace().nth(1).and_then(|count| count.parse::<u32>().ok()).unwrap_or_default()
    };
    wait_until("the home agent's kernel refuses it", seconds(60), || refused() > 0);
    assert!(agent.bindings().is_empty());
    bed.router.ip("xfrm state flush");
    bed.router.ip("xfrm policy flush");

    // With its own security association the router registers. It moves from one uplink to the other under
    // this security association.
    associate(&bed.agent, HOME_AGENT, HOME_ADDRESS, ["0x1001", "0x1002"]);
    associate(&bed.router, HOME_ADDRESS, HOME_ADDRESS, ["0x1001", "0x1002"]);
    let begin = sniffer.count();
    wait_until("it registers", seconds(60), || station.state() == "registered");
    assert_eq!(agent.bindings()[0].1, CARE_OF[0]);
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    assert!(station.ask(&["handover", "wwan0"]).status.success());
    wait_until("the binding moves", seconds(20), || agent.bindings()[0].1 == CARE_OF[1]);
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    let (clear, protected) = messages(&sniffer.heard()[begin..]);
    // The test expects two updates, each with its acknowledgement. The core receives and sends each packet,
    // and only received packets count.
    assert!(clear == 0 && protected >= 4, "{clear} in the clear, {protected} under ESP");

    station.terminate();
    assert!(agent.bindings().is_empty(), "the goodbye came under IPsec too");
    agent.terminate();
    for host in [&bed.agent, &bed.router] {
        host.ip("xfrm state flush");
        host.ip("xfrm policy flush");
    }
    sniffer.stop();
    for (host, (before, name)) in
        [&bed.agent, &bed.router].into_iter().zip(before.iter().zip(["agent", "router"]))
    {
        assert_same(before, &host.snapshot(), name);
    }
}

/// A running strongSwan on one host.
struct Swan<'a> {
    host: &'a Host,
    charon: Child,
    config: String,
    log: String,
}

impl<'a> Swan<'a> {
    /// Starts charon on a host, with the output of `carnet ipsec` for the station's config, and with the
    /// secret that both ends share.
    fn start(bed: &Testbed, host: &'a Host, name: &str, config: &str, data: bool) -> Swan<'a> {
        let at =
            |what: &str| bed.scratch.path(&format!("{name}-{what}")).to_str().expect("a path").to_owned();
        fs::write(at("carnet.toml"), config).expect("a config");
        let (file, vici, log) = (at("carnet.toml"), at("vici"), at("charon.log"));
        let words = ["ipsec", "--config", &file, "--gateway", GATEWAY];
        let output = carnet(&[&words[..], if data { &["--data"] } else { &[] }].concat());
        assert!(output.status.success(), "{}", said(&output));
        let secret = format!(
            "secrets {{\n ike-test {{\n  id-1 = {HOME_ADDRESS}\n  id-2 = {HOME_AGENT}\n  secret = \"a \
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
        let script = format!("mount -t tmpfs tmpfs /run && exec {CHARON}");
        let words = ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned);
        let variable = at("strongswan.conf");
        let charon = host.spawn(&words, move |command| {
            command.env("STRONGSWAN_CONF", variable).stdin(std::process::Stdio::null());
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        });
        let swan = Swan { host, charon, config: at("strongswan.conf"), log };
        wait_until("charon answers", seconds(20), || fs::exists(&vici).unwrap_or(false));
        swan.swanctl(&["--load-all", "--file", &at("swanctl.conf")]);
        swan
    }

    fn swanctl(&self, words: &[&str]) -> String {
        let setting = format!("STRONGSWAN_CONF={}", self.config);
        let output = self.host.output(&[&["env", &setting, "swanctl"], words].concat());
        assert!(output.status.success(), "{}\n{}", said(&output), self.said());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the security parameter indexes of the negotiated security associations, sorted.
    fn indexes(&self) -> Vec<String> {
        let shown = self.host.ip("xfrm state");
        let mut indexes: Vec<String> = shown
            .lines()
            .filter_map(|line| Some(line.split_once(" spi ")?.1.split(' ').next()?.to_owned()))
            .collect();
        indexes.sort();
        indexes
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Swan<'_> {
    fn drop(&mut self) {
        let _ = self.charon.kill();
        let _ = self.charon.wait();
        if std::thread::panicking() {
            let text = self.said();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("--- end of {}\n{}", self.log, lines[lines.len().saturating_sub(40)..].join("\n"));
            eprintln!("{}\n{}", self.host.ip("xfrm state"), self.host.ip("xfrm policy"));
        }
    }
}

#[test]
fn strongswan_negotiates_the_associations_that_carnet_requests() {
    if !has_esp() || !has_charon() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = configs(&bed);
    let sniffer = Sniffer::start(&bed.core, EVERYWHERE);
    let _of_agent = Swan::start(&bed, &bed.agent, "agent", &agent, false);
    let of_router = Swan::start(&bed, &bed.router, "router", &router, false);
    let agent = Station::start(&bed.agent, &agent);
    let station = Station::start(&bed.router, &router);
    // The first Binding Update starts the negotiation.
    wait_until("it registers", seconds(60), || station.state() == "registered");
    let indexes = of_router.indexes();
    assert!(indexes.len() >= 2, "{indexes:?}");
    for (uplink, care_of_address) in [("wwan0", CARE_OF[1]), ("wlan0", CARE_OF[0])] {
        assert!(station.ask(&["handover", uplink]).status.success());
        wait_until("the binding moves", seconds(20), || agent.bindings()[0].1 == care_of_address);
        wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    }
    assert_eq!(of_router.indexes(), indexes, "nothing was negotiated anew");

    // The uplink that IKE uses goes down. The Binding Update leaves at once under the present security
    // association, and IKE begins again.
    bed.router.ip("link set wlan0 down");
    wait_until("the binding moves", seconds(30), || agent.bindings()[0].1 == CARE_OF[1]);
    wait_until("IKE follows", seconds(60), || {
        let shown = of_router.swanctl(&["--list-sas"]);
        shown.contains(&format!("@ {}", CARE_OF[1])) && shown.contains("INSTALLED, TRANSPORT_PROXY")
    });
    assert_ne!(of_router.indexes(), indexes);
    bed.router.batch(
        "link set wlan0 up
         addr add 2001:db8:f1::10/64 dev wlan0
         route add default via 2001:db8:f1::1 dev wlan0 metric 100",
    );
    wait_until("the binding moves back", seconds(30), || agent.bindings()[0].1 == CARE_OF[0]);
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    let (clear, protected) = messages(&sniffer.stop());
    assert!(clear == 0 && protected >= 8, "{clear} in the clear, {protected} under ESP");
}

/// Returns the packets from or to the mobile network that an attacker on the path can read. They are in a
/// tunnel without ESP, or outside of a tunnel.
fn readable(packets: &[Vec<u8>]) -> usize {
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
    let (agent, router) = configs(&bed);
    // The kernel's IPsec does not see packets that BPF programs forward, so the test uses the TUN device.
    let tun = |config: String| config + "\n[dataplane]\npath = 'tun'\n";
    let (agent, router) = (tun(agent), tun(router));
    let sniffer = Sniffer::start(&bed.core, EVERYWHERE);
    let _of_agent = Swan::start(&bed, &bed.agent, "agent", &agent, true);
    let of_router = Swan::start(&bed, &bed.router, "router", &router, true);
    let agent = Station::start(&bed.agent, &agent);
    let station = Station::start(&bed.router, &router);
    wait_until("it registers", seconds(60), || station.state() == "registered");
    wait_until("data flow", seconds(60), || bed.host.pings(CORRESPONDENT));
    // Packets between the router's own address on board and its hosts are not under IPsec.
    assert!(bed.host.pings("2001:db8:a::1"));
    let indexes = of_router.indexes();
    assert!(station.ask(&["handover", "wwan0"]).status.success());
    wait_until("the binding moves", seconds(20), || agent.bindings()[0].1 == CARE_OF[1]);
    wait_until("data flow", seconds(20), || bed.host.pings(CORRESPONDENT));
    // Packets that are larger than the MTU pass in both directions.
    wait_for("large packets arrive", seconds(20), || {
        let words = ["ping", "-6", "-c", "1", "-W", "2", "-s", "3000", CORRESPONDENT];
        bed.host.output(&words).status.success().then_some(())
    });
    assert_eq!(of_router.indexes(), indexes, "nothing was negotiated anew");
    std::thread::sleep(Duration::from_millis(100));
    let packets = sniffer.stop();
    let tunnelled = packets.iter().filter(|packet| packet[6] == 41).count();
    assert!(tunnelled > 0);
    assert_eq!(readable(&packets), 0, "of {tunnelled} packets in the tunnel");
}
