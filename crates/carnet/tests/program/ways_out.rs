//! Packets that do not take the usual way: policies by interface on board, programs of the router itself, and
//! hosts on board that leave by an uplink without the tunnel.

use nix::sys::signal::Signal;

use crate::hosts::{Host, possible, said, seconds, wait_until};
use crate::ipv4::{dual, start_both};
use crate::station::Station;
use crate::testbed::{CARE_OF, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT, Testbed};

const IPV4_PREFIX: &str = "10.42.7.0/24";
const SERVER: &str = "198.51.100.1";

/// Returns the testbed with IPv4 on board and on the outer links. The host has an address of each family.
fn bed() -> Testbed {
    let bed = dual();
    bed.core.ip(&format!("route add {IPV4_PREFIX} via 198.51.100.2"));
    bed.host.ip("addr add 10.42.7.5/24 dev eth0");
    bed.host.ip("route add default via 10.42.7.1");
    bed
}

/// Adds the IPv4 prefix to the config of either end.
fn with_ipv4(config: &str) -> String {
    let prefixes = "prefixes = ['2001:db8:a::/64']\n";
    assert_eq!(config.matches(prefixes).count(), 1);
    config.replace(prefixes, &format!("{prefixes}ipv4_prefixes = ['{IPV4_PREFIX}']\n"))
}

/// Starts both stations. `of_router` are keys of `[mobile_router]`, `rest` further tables.
fn start(bed: &Testbed, path: &str, of_router: &str, rest: &str) -> (Station, Station) {
    let keys = |config: String| {
        with_ipv4(&config).replacen("lan = ['lan0']\n", &format!("lan = ['lan0']\n{of_router}\n"), 1)
    };
    let dataplane = format!("\n[dataplane]\npath = '{path}'\n");
    start_both(bed, |config| with_ipv4(&config) + &dataplane, |config| keys(config) + rest + &dataplane)
}

/// Returns the source address that a program on this host gets for a destination.
fn source(host: &Host, destination: &str) -> String {
    let route = host.ip(&format!("route get {destination}"));
    let mut words = route.split_whitespace();
    words
        .find(|word| *word == "src")
        .map_or_else(|| panic!("{route}"), |_| words.next().unwrap_or_default().into())
}

#[test]
fn programs_of_the_router_take_the_tunnel_if_configured() {
    if !possible() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = bed();
        let before = bed.router.snapshot();
        let (_agent, mut router) = start(&bed, path, "own_traffic = 'tunnel'", "");
        wait_until("IPv4 of the router takes the tunnel", seconds(10), || bed.router.pings_v4(SERVER));
        assert_eq!(source(&bed.router, SERVER), "10.42.7.1");
        assert_eq!(source(&bed.router, CORRESPONDENT), HOME_ADDRESS);
        let sent = || router.counters("tunnel") + router.counters("forwarder.encapsulated");
        let earlier = sent();
        assert!(bed.router.pings(CORRESPONDENT), "{}", router.log());
        assert!(sent() > earlier, "{}", said(&router.ask(&["show", "counters"])));
        // Links of the router, the home agent and packets from an address of an uplink stay outside.
        for near in ["2001:db8:f1::1", HOME_AGENT] {
            assert_eq!(source(&bed.router, near), CARE_OF[0], "{near}");
        }
        assert_eq!(source(&bed.router, "192.0.2.1"), "192.0.2.10");
        let other = bed.router.ip(&format!("route get {CORRESPONDENT} from {}", CARE_OF[1]));
        assert!(other.contains("dev wwan0"), "{other}");
        let marked = bed.router.ip(&format!("route get {CORRESPONDENT} mark 1"));
        assert!(marked.contains("dev wlan0"), "{marked}");
        let output = router.ask(&["handover", "wwan0"]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(bed.router.pings(CORRESPONDENT) && bed.router.pings_v4(SERVER), "{}", router.log());
        assert!(router.end_by(Signal::SIGTERM).status.success(), "{}", router.log());
        assert_eq!(bed.router.snapshot(), before);
    }
}
