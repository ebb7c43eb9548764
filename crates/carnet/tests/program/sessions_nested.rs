//! A mobile router with a key pair on board of another mobile router (nested NEMO), with real programs. The
//! nested router uses plain NEMO, or an address of the link that its parent visits.

use std::net::UdpSocket;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::sessions::{
    PAYLOAD_MARKER, configs_with_keys, is_to_or_from_home_agent, make_key_pair, only_sessions_pass,
};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_AGENT_ADDRESS, Testbed, config_with_station_line, parse_address};
use crate::traffic::{EchoTraffic, PacketSniffer};

const NESTED_HOME_ADDRESS: &str = "2001:db8:1::1235";
const PASSENGER: &str = "2001:db8:b::10";

/// The running programs: home agent, root, and the nested router on the testbed's host on board.
struct NestedRouters {
    bed: Testbed,
    passenger: Host,
    agent: Station,
    root: Station,
    nested: Station,
}

impl NestedRouters {
    fn start(bed: Testbed, nesting: bool) -> NestedRouters {
        let passenger = Host::new();
        bed.host.create_link("in0", &passenger, "eth0");
        passenger.run_ip_batch(
            "addr add 2001:db8:b::10/64 dev eth0
             route add default via 2001:db8:b::1 metric 10",
        );
        passenger.wait_until_settled();
        let (agent, root) = configs_with_keys(&bed);
        let (file, public_key) = make_key_pair(&bed, "nested.key");
        let agent = format!(
            "{agent}\n[[home_agent.mobile_router]]\nhome_address = '{NESTED_HOME_ADDRESS}'\n\
             prefixes = ['2001:db8:b::/64']\nauth = {{ public_key = '{public_key}' }}\n"
        );
        let key_line = root.lines().find(|line| line.starts_with("home_agent_key")).expect("a key");
        let nested = format!(
            "[station]\nname = 'nested'\nsocket = '{}'\n\n[mobile_router]\n\
             home_address = '{NESTED_HOME_ADDRESS}'\nhome_prefix = '2001:db8:1::/64'\n\
             home_agent = '{HOME_AGENT_ADDRESS}'\nprefixes = ['2001:db8:b::/64']\nlifetime = '60s'\n\
             lan = ['in0']\nnesting = {nesting}\n{key_line}\n\n\
             [[mobile_router.uplink]]\ninterface = 'eth0'\n",
            bed.scratch.path_of("nested.sock").display()
        );
        let in_scratch = format!("state_dir = '{}'", bed.scratch.path_of("").display());
        let nested = config_with_station_line(&nested, &in_scratch);
        let nested = config_with_station_line(&nested, &format!("private_key_file = '{file}'"));
        let root = root.replace("lan = ['lan0']\n", &format!("lan = ['lan0']\nnesting = {nesting}\n"));
        let agent = Station::start(&bed.agent, &agent);
        let root = Station::start(&bed.router, &root);
        root.wait_until_registered();
        let nested = Station::start(&bed.host, &nested);
        nested.wait_until_registered();
        NestedRouters { bed, passenger, agent, root, nested }
    }

    /// Returns the care-of address of the nested router.
    fn care_of_address(&self) -> String {
        let bindings = self.agent.bindings();
        let of_nested = bindings.iter().find(|(home, ..)| home == NESTED_HOME_ADDRESS);
        of_nested.map(|(_, care_of, _)| care_of.clone()).unwrap_or_default()
    }

    fn wait_for_care_of(&self, network: &str) {
        wait_until(&format!("a care-of address of {network}"), seconds(20), || {
            self.care_of_address().starts_with(network)
        });
    }

    /// Sends datagrams with the marker in both directions.
    fn send_marked(&self) {
        let ends = [
            (&self.passenger, PASSENGER, &self.bed.core, CORRESPONDENT),
            (&self.bed.core, CORRESPONDENT, &self.passenger, PASSENGER),
        ];
        for (from, source, to, destination) in ends {
            let socket =
                |at: &'static str| move || UdpSocket::bind((parse_address(at), 0)).expect("a socket");
            let (sender, receiver) =
                (from.run_in_namespace(socket(source)), to.run_in_namespace(socket(destination)));
            let port = receiver.local_addr().expect("bound").port();
            receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            // The largest payload makes an IP packet of 1280 octets.
            for length in [PAYLOAD_MARKER.len(), 1000, 1232] {
                let content: Vec<u8> = PAYLOAD_MARKER.iter().copied().cycle().take(length).collect();
                wait_until(&format!("{length} octets arrive at {destination}"), seconds(20), || {
                    let _ = sender.send_to(&content, (parse_address(destination), port));
                    let mut found = [0; 2000];
                    receiver.recv(&mut found).is_ok_and(|count| found[..count] == content)
                });
            }
        }
    }
}

/// Returns the captured packets to and from the home agent. Packets of the correspondent cross `ha` beside
/// the tunnels.
fn tunnelled_packets(packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    packets.into_iter().filter(|packet| is_to_or_from_home_agent(packet)).collect()
}

#[test]
fn nested_router_has_encrypted_sessions_with_and_without_nesting() {
    if !can_run_or_report() {
        return;
    }
    for (nesting, network) in [(false, "2001:db8:a:"), (true, "2001:db8:f1:")] {
        let bed = Testbed::new();
        let sniffer = PacketSniffer::start(&bed.core, &["wlan", "wwan", "ha"]);
        let routers = NestedRouters::start(bed, nesting);
        routers.wait_for_care_of(network);
        routers.send_marked();
        assert!(
            only_sessions_pass(&tunnelled_packets(sniffer.stop()), is_to_or_from_home_agent, 40, 6) > 10,
            "nesting {nesting}"
        );
        for station in [&routers.agent, &routers.root, &routers.nested] {
            let tunnels = station.show_json("tunnels");
            for tunnel in tunnels.as_array().expect("tunnels") {
                assert_eq!(tunnel["encryption"], "encrypted", "{tunnels}");
            }
        }
    }
}

/// The root has routing rules that select packets by UDP port. The rules stay after `kill -9`, and the root
/// removes them when it ends.
#[test]
fn root_removes_its_rules_by_port() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let mut routers = NestedRouters::start(bed, true);
    routers.wait_for_care_of("2001:db8:f1:");
    let rules = |routers: &NestedRouters| -> Vec<String> {
        let all = routers.bed.router.run_ip("-6 rule show");
        let by_port = all.lines().filter(|line| line.contains("sport") || line.contains("dport"));
        by_port.map(str::to_owned).collect()
    };
    let first = rules(&routers);
    println!("{first:#?}");
    assert!(first.len() >= 4 && first.iter().any(|rule| rule.contains("sport 1-4190")), "{first:?}");
    assert!(first.iter().any(|rule| rule.contains("dport 4192-65534")), "{first:?}");
    let config = std::fs::read_to_string(&routers.root.config_file).expect("a config");
    routers.root.end_by_signal(Signal::SIGKILL);
    assert_eq!(rules(&routers), first);
    routers.root = Station::start(&routers.bed.router, &config);
    routers.root.wait_until_registered();
    routers.root.terminate();
    assert_eq!(rules(&routers), Vec::<String>::new());
}

/// The nested router registers an address of the root's next link, which needs a session of its own.
#[test]
fn handover_of_the_root_loses_no_packet_of_a_nested_session() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    // A sniffer sees the packets that arrive at its host.
    let sniffers = [
        PacketSniffer::start(&bed.core, &["wlan", "wwan"]),
        PacketSniffer::start(&bed.router, &["wlan0", "wwan0"]),
    ];
    let routers = NestedRouters::start(bed, true);
    routers.wait_for_care_of("2001:db8:f1:");
    let (from, to) = (parse_address(PASSENGER), parse_address(CORRESPONDENT));
    let traffic = EchoTraffic::start(&routers.passenger, from, &routers.bed.core, to, 500);
    traffic.wait_for_further_answers();
    for (uplink, network) in [("wwan0", "2001:db8:f2:"), ("wlan0", "2001:db8:f1:")] {
        let answer = routers.root.run_command(&["handover", uplink]);
        assert!(answer.status.success(), "{answer:?}");
        routers.wait_for_care_of(network);
        traffic.wait_for_further_answers();
        std::thread::sleep(Duration::from_millis(500));
    }
    let report = traffic.stop();
    println!("{} packets, longest silence {:?}", report.sent_packets, report.longest_silence);
    assert_eq!(report.lost_packets, 0, "{report:?}");
    for sniffer in sniffers {
        assert!(
            only_sessions_pass(&tunnelled_packets(sniffer.stop()), is_to_or_from_home_agent, 40, 6) > 100
        );
    }
}

/// On a narrow visited link, the datagrams of sessions are fragments, which have no port.
#[test]
fn nested_session_passes_a_narrow_link_in_fragments() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    bed.core.run_ip("link set wlan mtu 1300");
    bed.router.run_ip("link set wlan0 mtu 1300");
    let sniffers = [
        (8..24, PacketSniffer::start(&bed.core, &["wlan"])),
        (24..40, PacketSniffer::start(&bed.router, &["wlan0"])),
    ];
    let routers = NestedRouters::start(bed, true);
    routers.wait_for_care_of("2001:db8:f1:");
    let care_of_address = parse_address(&routers.care_of_address()).octets();
    routers.send_marked();
    for (side, sniffer) in sniffers {
        let packets = sniffer.stop();
        assert!(
            !packets.iter().any(|packet| packet.windows(16).any(|octets| octets == &PAYLOAD_MARKER[..16]))
        );
        let is_fragment = |packet: &Vec<u8>| packet[side.clone()] == care_of_address && packet[6] == 44;
        assert!(packets.iter().any(is_fragment), "no fragment by octets {side:?}");
    }
}
