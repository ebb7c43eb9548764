//! A mobile router claims the prefix of another mobile router.

use nix::sys::signal::Signal;

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_ADDRESS, Testbed};
use crate::traffic::PacketSniffer;

const SECOND_NODE_ENTRY: &str = "
[[home_agent.mobile_router]]
home_address = '2001:db8:1::5678'
prefixes = ['2001:db8:b::/64']
auth = { spi = 301, key = '0f0e0d0c0b0a09080706050403020100' }
";

/// Creates a second router and a host behind it. Returns both hosts, and the router's config.
pub fn add_neighbour(bed: &Testbed) -> (Host, Host, String) {
    let (router, host) = (Host::new(), Host::new());
    bed.core.create_link("third", &router, "wlan0");
    bed.core.run_ip("-6 addr add 2001:db8:f3::1/64 dev third");
    router.run_ip_batch("addr add 2001:db8:f3::10/64 dev wlan0\nroute add default via 2001:db8:f3::1");
    router.create_link("lan0", &host, "eth0");
    host.run_ip_batch("addr add 2001:db8:b::10/64 dev eth0\nroute add default via 2001:db8:b::1 metric 10");
    let config = bed.router_config();
    let (config, _) =
        config.split_once("\n[[mobile_router.uplink]]\ninterface = 'wwan0'").expect("two uplinks");
    let config = config
        .replace("router.sock", "thief.sock")
        .replace(HOME_ADDRESS, "2001:db8:1::5678")
        .replace("2001:db8:a::/64", "2001:db8:b::/64")
        .replace("spi = 300", "spi = 301")
        .replace("000102030405060708090a0b0c0d0e0f", "0f0e0d0c0b0a09080706050403020100");
    (router, host, config)
}

/// Content of Router Advertisements: lifetime of the default router, and the valid prefixes.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedAdvertisement {
    router_lifetime: u16,
    prefixes: Vec<Vec<u8>>,
}

fn advertisements_in(packets: &[Vec<u8>]) -> Vec<ReceivedAdvertisement> {
    let is_advertisement = |p: &&Vec<u8>| p.len() >= 56 && p[6] == 58 && p[40] == 134;
    packets.iter().filter(is_advertisement).map(|packet| parse_advertisement(packet)).collect()
}

/// Parses an advertisement; a prefix counts as valid if its preferred lifetime is not 0.
fn parse_advertisement(packet: &[u8]) -> ReceivedAdvertisement {
    let (mut prefixes, mut options) = (Vec::new(), &packet[56..]);
    while options.len() >= 8 && options[1] > 0 && options.len() >= usize::from(options[1]) * 8 {
        let (option, rest) = options.split_at(usize::from(options[1]) * 8);
        if option[0] == 3 && option[8..12] != [0; 4] {
            prefixes.push(option[16..24].to_vec());
        }
        options = rest;
    }
    ReceivedAdvertisement { router_lifetime: u16::from_be_bytes([packet[46], packet[47]]), prefixes }
}

/// Makes the host send Router Solicitations.
fn solicit_advertisement(inside: &Host) {
    inside.run_ip("link set eth0 down");
    inside.run_ip("link set eth0 up");
}

#[test]
fn update_with_prefix_of_another_router_gets_status_142() {
    if !can_run_or_report() {
        return;
    }
    const OWN_PREFIX_OCTETS: [u8; 8] = [0x20, 1, 0xd, 0xb8, 0, 0xb, 0, 0];
    let bed = Testbed::new();
    let agent = Station::start(&bed.agent, &(bed.agent_config() + SECOND_NODE_ENTRY));
    let router = Station::start(&bed.router, &bed.router_config());
    router.wait_until_registered();
    let (other, inside, honest) = add_neighbour(&bed);
    let mut thief = Station::start(&other, &honest);
    let heard = PacketSniffer::start(&inside, &["eth0"]);
    thief.wait_until_registered();
    wait_until("the honest one works", seconds(10), || inside.can_ping(CORRESPONDENT));
    solicit_advertisement(&inside);
    wait_until("an honest router advertises its prefix and itself", seconds(10), || {
        let good = |one: &ReceivedAdvertisement| {
            one.router_lifetime > 0 && one.prefixes == [OWN_PREFIX_OCTETS.to_vec()]
        };
        advertisements_in(&heard.seen_packets()).iter().any(good)
    });
    heard.stop();
    let bindings = agent.bindings();
    assert_eq!(bindings.len(), 2);

    let traffic = bed.start_echo(50);
    traffic.wait_for_further_answers();
    let refused = agent.counter("mobility.dropped.refused");
    let greedy = honest.replace("['2001:db8:b::/64']", "['2001:db8:a::/64']");
    thief.reload(&greedy);
    wait_until("the claim is refused", seconds(10), || thief.mobile_router_state() == "refused");
    assert!(thief.log_text().contains("(status 142)"), "{}", thief.log_text());
    assert!(
        agent.log_text().contains("refused 2001:db8:1::5678 at 2001:db8:f3::10 (status 142)"),
        "{}",
        agent.log_text()
    );
    assert!(agent.counter("mobility.dropped.refused") > refused);
    assert_eq!(agent.bindings(), bindings);
    // The router must not advertise the old prefix, because its new config, which the home agent refused,
    // does not name it. It must not advertise the stolen prefix either.
    std::thread::sleep(seconds(1));
    let heard = PacketSniffer::start(&inside, &["eth0"]);
    solicit_advertisement(&inside);
    wait_until("it answers", seconds(15), || !advertisements_in(&heard.seen_packets()).is_empty());
    for one in advertisements_in(&heard.stop()) {
        assert_eq!(one, ReceivedAdvertisement { router_lifetime: 0, prefixes: Vec::new() });
    }

    // A restart does not help the thief either. It only ends the thief's own binding.
    thief.end_by_signal(Signal::SIGKILL);
    let mut thief = Station::start(&other, &greedy);
    wait_until("the claim is refused again", seconds(10), || thief.mobile_router_state() == "refused");
    assert_eq!(agent.bindings(), bindings);
    thief.terminate();
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "the victim felt it: {report:?}");
    println!("prefix theft: the victim lost {} of {} packets", report.lost_packets, report.sent_packets);

    // With the config of its own prefix, the second router works again.
    let thief = Station::start(&other, &honest);
    thief.wait_until_registered();
    let route = "-6 route add default via 2001:db8:b::1 metric 10";
    if !inside.run_ip("-6 route show default").contains("metric 10 ") {
        inside.run_ip(route);
    }
    if !inside.run_ip("-6 addr").contains("2001:db8:b::10/64") {
        inside.run_ip("-6 addr add 2001:db8:b::10/64 dev eth0");
    }
    wait_until("it works again", seconds(10), || inside.can_ping(CORRESPONDENT));
}
