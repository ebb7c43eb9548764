//! Access routers that appear, disappear or change their prefix. The router must find its care-of address and
//! its next hop each time.
//!
//! ```text
//!   agent ha0 --- ha core a1 - core0 ar1 lan --- p1 [n1]
//!         home0 - ph
//!   [home] a2 - core0 ar2 lan --- p2 [n2] pw --- wlan0 router
//!                                                            pc --- wwan0
//! ```
//!
//! \[n1\], \[n2\] and \[home\] are bridges of a switch. The tests move a port of the router from one bridge
//! to another.
//!
//! radvd's advertisements cause stateless autoconfiguration, with duplicate address detection. The kernel
//! keeps addresses and routes of a network that the router has left; the tests do not flush them.

use std::cell::{Cell, RefCell};
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::hosts::{Host, can_run_or_report, seconds, wait_for, wait_until};
use crate::ipsec;
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, Testbed};
use crate::traffic::EchoTraffic;

/// Maximum outage of a move, counted from the moment at which the new address is usable. On a busy machine
/// [`wait_for`] allows more.
const MOVE_TIME_LIMIT: Duration = Duration::from_millis(1500);

struct RoamingTestbed {
    bed: Testbed,
    switch: Host,
    access_routers: [Host; 2],
    running_radvd: RefCell<Vec<(String, Child)>>,
    /// Number of radvd processes that were started.
    advertiser_count: Cell<u32>,
}

fn network_prefix(number: u32) -> String {
    format!("2001:db8:f{number}::/64")
}

impl RoamingTestbed {
    fn new() -> RoamingTestbed {
        let bed = Testbed::new();
        let (switch, access) = (Host::new(), [Host::new(), Host::new()]);
        bed.router.run_ip("link del wlan0");
        bed.router.run_ip("link del wwan0");
        for bridge in ["n1", "n2", "home"] {
            switch.run_ip(&format!("link add {bridge} type bridge"));
            switch.run_ip(&format!("link set {bridge} up"));
        }
        for (number, host) in access.iter().enumerate() {
            let number = number + 1;
            bed.core.create_link(&format!("a{number}"), host, "core0");
            bed.core.run_ip(&format!("-6 addr add 2001:db8:e{number}::1/64 dev a{number}"));
            host.run_ip(&format!("-6 addr add 2001:db8:e{number}::2/64 dev core0"));
            host.run_ip(&format!("-6 route add default via 2001:db8:e{number}::1"));
            host.write_sysctl("all/forwarding", "1");
            switch.create_link(&format!("p{number}"), host, "lan");
            switch.run_ip(&format!("link set p{number} master n{number}"));
        }
        switch.create_link("ph", &bed.agent, "home0");
        switch.run_ip("link set ph master home");
        bed.agent.run_ip("-6 addr add 2001:db8:1::ff/64 dev home0");
        let roads = RoamingTestbed {
            bed,
            switch,
            access_routers: access,
            running_radvd: RefCell::default(),
            advertiser_count: Cell::new(0),
        };
        for host in roads.access_routers.iter().chain([&roads.bed.agent]) {
            host.wait_until_settled();
        }
        roads
    }

    /// Adds an uplink to the router, on the network of an access router. The uplink has duplicate address
    /// detection.
    fn add_uplink(&self, port: &str, interface: &str, bridge: &str) {
        self.switch.create_link(port, &self.bed.router, interface);
        self.bed.router.write_sysctl(&format!("{interface}/accept_dad"), "1");
        self.switch.run_ip(&format!("link set {port} master {bridge}"));
    }

    /// Adds a prefix to the network of an access router, and a route to this prefix through the access
    /// router.
    fn add_route(&self, access: usize, number: u32) {
        self.access_routers[access].run_ip(&format!("-6 addr add 2001:db8:f{number}::1/64 dev lan"));
        let via = format!("via 2001:db8:e{}::2", access + 1);
        self.bed.core.run_ip(&format!("-6 route replace {} {via}", network_prefix(number)));
    }

    /// Starts radvd on an interface. Kills an earlier radvd there, so that it cannot send a final
    /// advertisement.
    fn start_radvd(&self, host: &Host, name: &str, interface: &str, prefix: &str, lifetime: u32) {
        let mut advertisers = self.running_radvd.borrow_mut();
        if let Some(position) = advertisers.iter().position(|(other, _)| other == name) {
            let (_, mut old) = advertisers.remove(position);
            old.kill().expect("radvd");
            old.wait().expect("radvd");
        }
        let path = |ending: &str| self.bed.scratch.path_of(&format!("{name}.{ending}")).display().to_string();
        let config = format!(
            "interface {interface} {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; \
             AdvDefaultLifetime {lifetime}; prefix {prefix} {{ AdvOnLink on; AdvAutonomous on; }}; }};\n"
        );
        fs::write(path("conf"), config).expect("a config");
        // A killed radvd has a child process, which keeps the PID file locked for a while. So each radvd has
        // its own PID file.
        let started = self.advertiser_count.get() + 1;
        self.advertiser_count.set(started);
        let pid = path(&format!("{started}.pid"));
        let words = ["radvd", "-n", "-m", "stderr", "-C", &path("conf"), "-p", &pid].map(str::to_owned);
        let radvd = host.spawn_program(&words, |command| {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        });
        advertisers.push((name.to_owned(), radvd));
    }

    fn advertise_network(&self, access: usize, number: u32, lifetime: u32) {
        let name = format!("ar{}", access + 1);
        self.start_radvd(&self.access_routers[access], &name, "lan", &network_prefix(number), lifetime);
    }

    /// The access router returns with another prefix, and does not withdraw the old one (RFC 8978).
    fn renumber(&self, access: usize, old: u32, new: u32, lifetime: u32) {
        self.access_routers[access].run_ip(&format!("-6 addr del 2001:db8:f{old}::1/64 dev lan"));
        self.bed.core.run_ip(&format!("-6 route replace unreachable {}", network_prefix(old)));
        self.add_route(access, new);
        self.advertise_network(access, new, lifetime);
    }

    /// Moves a port of the router to another network. If `down` is given, the port first has no carrier for
    /// that time.
    fn move_uplink(&self, port: &str, bridge: &str, down: Option<Duration>) {
        match down {
            Some(time) => {
                self.switch.run_ip(&format!("link set {port} down"));
                self.switch.run_ip(&format!("link set {port} master {bridge}"));
                std::thread::sleep(time);
                self.switch.run_ip(&format!("link set {port} up"));
            }
            None => {
                self.switch.run_ip(&format!("link set {port} master {bridge}"));
            }
        }
    }

    /// Waits until an uplink has a usable address of a prefix, and then until traffic flows. Returns how long
    /// the second wait took.
    fn wait_until_traffic_resumes(&self, traffic: &EchoTraffic, interface: &str, prefix: &str) -> Duration {
        let question = format!("-6 -o addr show dev {interface} to {prefix} -tentative");
        wait_until("the new address may be used", seconds(20), || {
            !self.bed.router.run_ip(&question).is_empty()
        });
        let (start, before) = (Instant::now(), traffic.answered_packets());
        wait_for("traffic flows", MOVE_TIME_LIMIT, || {
            (traffic.answered_packets() > before + 2).then_some(())
        });
        start.elapsed()
    }

    /// Starts both stations: the home agent on a real home link, and the router with these uplinks.
    fn start(&self, uplinks: &[&str]) -> (Station, Station) {
        self.start_with(uplinks, (self.bed.agent_config(), self.bed.router_config()))
    }

    /// Starts both stations with these uplinks and configs.
    fn start_with(&self, uplinks: &[&str], (agent, router): (String, String)) -> (Station, Station) {
        let config = agent.replace("[home_agent]\n", "[home_agent]\nhome_link = 'home0'\n");
        let agent = Station::start(&self.bed.agent, &config);
        let (before, _) = router.split_once("[[mobile_router.uplink]]").expect("uplinks");
        let tables = uplinks.iter().enumerate().map(|(number, interface)| {
            let (bid, priority) = (number + 1, 10 * (number + 1));
            format!(
                "[[mobile_router.uplink]]\ninterface = '{interface}'\npriority = {priority}\nbid = {bid}\n"
            )
        });
        let router = Station::start(&self.bed.router, &format!("{before}{}", tables.collect::<String>()));
        router.wait_until_registered();
        (agent, router)
    }
}

impl Drop for RoamingTestbed {
    fn drop(&mut self) {
        for (_, radvd) in self.running_radvd.get_mut() {
            let _ = radvd.kill();
            let _ = radvd.wait();
        }
    }
}

/// The router has only one uplink, so all traffic depends on the new address.
#[test]
fn renumbering_of_the_only_uplink_costs_only_detection_time() {
    if !can_run_or_report() {
        return;
    }
    let roads = RoamingTestbed::new();
    roads.add_route(0, 1);
    roads.advertise_network(0, 1, 1800);
    roads.add_uplink("pw", "wlan0", "n1");
    let (_agent, _router) = roads.start(&["wlan0"]);
    let traffic = roads.bed.start_echo(100);
    traffic.wait_for_further_answers();
    for (old, new) in [(1, 3), (3, 5)] {
        roads.renumber(0, old, new, 1800);
        let took = roads.wait_until_traffic_resumes(&traffic, "wlan0", &network_prefix(new));
        println!(
            "renumbered from {} to {}: traffic after {took:?}",
            network_prefix(old),
            network_prefix(new)
        );
        let kept = roads.bed.router.run_ip(&format!("-6 -o addr show dev wlan0 to {}", network_prefix(old)));
        assert!(!kept.is_empty(), "the kernel's address was removed");
    }
    let report = traffic.stop();
    println!("{report:?}");
}

/// Each uplink gets a new prefix in turn, while the other uplink carries the traffic.
#[test]
fn router_stays_connected_while_both_uplinks_are_renumbered_in_turn() {
    if !can_run_or_report() {
        return;
    }
    let roads = RoamingTestbed::new();
    for (access, port, interface, bridge) in [(0, "pw", "wlan0", "n1"), (1, "pc", "wwan0", "n2")] {
        let number = access as u32 + 1;
        roads.add_route(access, number);
        roads.advertise_network(access, number, 1800);
        roads.add_uplink(port, interface, bridge);
    }
    let (agent, _router) = roads.start(&["wlan0", "wwan0"]);
    let bound = |number: u32| {
        let network = format!("2001:db8:f{number}:");
        agent.bindings().iter().any(|binding| binding.1.starts_with(&network))
    };
    wait_until("both uplinks are registered", seconds(20), || bound(1) && bound(2));
    let traffic = roads.bed.start_echo(100);
    traffic.wait_for_further_answers();
    for (access, interface, old, new) in [(0, "wlan0", 1, 3), (1, "wwan0", 2, 4)] {
        roads.renumber(access, old, new, 1800);
        let took = roads.wait_until_traffic_resumes(&traffic, interface, &network_prefix(new));
        println!("{interface} renumbered: traffic {took:?} after the new address may be used");
        wait_until("the new address is registered", seconds(20), || bound(new));
    }
    let report = traffic.stop();
    println!("both renumbered: {report:?}");
    assert!(report.longest_silence < seconds(3) + 2 * report.longest_send_stall, "{report:?}");
}

/// RFC 8028 3, BCP 38: two providers are on one link, with source-specific routes as in OpenWrt.
#[test]
fn each_of_two_providers_on_a_link_receives_only_its_own_source_addresses() {
    if !can_run_or_report() {
        return;
    }
    let roads = RoamingTestbed::new();
    roads.switch.run_ip("link set p2 master n1");
    roads.add_uplink("pw", "wlan0", "n1");
    for (access, host) in roads.access_routers.iter().enumerate() {
        let number = access as u32 + 1;
        roads.add_route(access, number);
        let shown = host.run_ip("-6 -o addr show dev lan scope link");
        let link_local = shown.split_whitespace().nth(3).and_then(|net| net.split('/').next());
        let via = link_local.expect("a link-local address").to_owned();
        // These rules count packets that leave with the addresses of the other provider, except multicast
        // Neighbor Solicitations.
        let rules = format!(
            "table inet t {{ chain c {{ type filter hook prerouting priority 0; iifname lan ip6 saddr {} ip6 \
             daddr != ff00::/8 counter; }}; }}",
            network_prefix(3 - number)
        );
        let output = host.run_program(&["nft", &rules]);
        assert!(output.status.success(), "{output:?}");
        roads.bed.router.run_ip(&format!("-6 addr add 2001:db8:f{number}::10/64 dev wlan0 nodad"));
        let route = format!("-6 route add default from {} via {via} dev wlan0", network_prefix(number));
        roads.bed.router.run_ip(&route);
    }
    // This source-specific route is for link-local sources only, so it must not be used for a global address.
    roads.bed.router.run_ip("-6 route add default from fe80::/126 via fe80::77 dev wlan0 metric 1");
    let (agent, router) = roads.start(&["wlan0"]);
    let bound = || agent.bindings().first().map(|binding| binding.1.clone()).unwrap_or_default();
    let first = bound();
    let traffic = roads.bed.start_echo(100);
    traffic.wait_for_further_answers();
    // The provider in use loses its connectivity without any sign to the router.
    let (dead, alive) = if first == "2001:db8:f1::10" { (1, 2) } else { (2, 1) };
    roads.access_routers[dead - 1].run_ip("-6 route replace blackhole default metric 1");
    let expected = format!("2001:db8:f{alive}::10");
    wait_until("the other provider's address is registered", seconds(10), || bound() == expected);
    traffic.wait_for_further_answers();
    let report = traffic.stop();
    println!("from one provider to the other: {report:?}");
    for host in &roads.access_routers {
        let output = host.run_program(&["nft", "list", "ruleset"]);
        let rules = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(rules.contains("counter packets 0 bytes 0"), "{rules}\n{}", router.log_text());
    }
}

/// Moves the router to another access network and back, then home and away again.
fn check_moves_between_networks(roads: &RoamingTestbed, (agent, router): &(Station, Station), lifetime: u32) {
    let short_loss = Some(Duration::from_millis(300));
    let traffic = roads.bed.start_echo(100);
    traffic.wait_for_further_answers();
    let state = || router.show_json("uplinks")[0]["state"].as_str().unwrap_or_default().to_owned();
    for (step, bridge, down, network) in [
        ("to another network, carrier lost", "n2", short_loss, network_prefix(2)),
        ("back, carrier lost", "n1", short_loss, network_prefix(1)),
        ("to another network, carrier kept", "n2", None, network_prefix(2)),
        ("home, carrier lost", "home", short_loss, "2001:db8:1::/64".into()),
        ("away, carrier lost", "n1", short_loss, network_prefix(1)),
        ("home, carrier kept", "home", None, "2001:db8:1::/64".into()),
        ("away, carrier kept", "n2", None, network_prefix(2)),
    ] {
        let start = Instant::now();
        roads.move_uplink("pw", bridge, down);
        let home = bridge == "home";
        // The kernel keeps old addresses, so a usable address alone does not prove the move. Wait until the
        // router has noticed the move.
        wait_until(&format!("{step}: it is noticed"), seconds(20), || match home {
            true => state() == "home",
            false => {
                let (bound, network) = (agent.bindings(), network.replace(":/64", ""));
                bound.first().is_some_and(|binding| binding.1.starts_with(&network))
            }
        });
        let noticed = start.elapsed();
        let took = roads.wait_until_traffic_resumes(&traffic, "wlan0", &network);
        println!("lifetime {lifetime} s, {step}: {noticed:?} until it is registered, traffic {took:?} later");
    }
    wait_until("the correspondent answers", seconds(10), || roads.bed.host.can_ping(CORRESPONDENT));
    println!("lifetime {lifetime} s: {:?}", traffic.stop());
}

/// Returns two access networks and a home link; the router has an uplink in the first access network.
fn testbed_with_three_networks(lifetime: u32) -> RoamingTestbed {
    let roads = RoamingTestbed::new();
    for (access, number) in [(0, 1), (1, 2)] {
        roads.add_route(access, number);
        roads.advertise_network(access, number, lifetime);
    }
    roads.start_radvd(&roads.bed.agent, "home", "home0", "2001:db8:1::/64", lifetime);
    roads.add_uplink("pw", "wlan0", "n1");
    roads
}

/// The test uses advertisements with a short router lifetime, and with a usual one.
#[test]
fn move_to_another_network_costs_only_detection_time() {
    if !can_run_or_report() {
        return;
    }
    for lifetime in [9, 1800] {
        let roads = testbed_with_three_networks(lifetime);
        let stations = roads.start(&["wlan0"]);
        check_moves_between_networks(&roads, &stations, lifetime);
    }
}

/// The router moves while IPsec protects its messages. The security association is for the home address (RFC
/// 4877 4.1), so it stays the same.
#[test]
fn move_under_ipsec_costs_only_detection_time() {
    if !ipsec::has_esp() {
        return;
    }
    for lifetime in [9, 1800] {
        let roads = testbed_with_three_networks(lifetime);
        ipsec::protect_signalling(&roads.bed);
        let stations = roads.start_with(&["wlan0"], ipsec::configs_with_ipsec(&roads.bed));
        check_moves_between_networks(&roads, &stations, lifetime);
    }
}

/// The router leaves home without losing the carrier, and the router on the home link no longer answers (RFC
/// 6275 11.5.1). At the first visit the kernel has no address of the visited network. At the second visit it
/// still has the address of the first visit.
#[test]
fn leaving_home_without_carrier_loss_costs_only_duplicate_address_detection() {
    if !can_run_or_report() {
        return;
    }
    let roads = testbed_with_three_networks(1800);
    let (agent, router) = roads.start(&["wlan0"]);
    let traffic = roads.bed.start_echo(100);
    traffic.wait_for_further_answers();
    let state = || router.show_json("uplinks")[0]["state"].as_str().unwrap_or_default().to_owned();
    for visit in ["first", "second"] {
        roads.move_uplink("pw", "home", None);
        wait_until("it is at home", seconds(20), || state() == "home" && agent.bindings().is_empty());
        // Wait before the next move, because the router sends at most three Binding Updates a second (RFC
        // 6275 11.8).
        let before = traffic.answered_packets();
        wait_until("traffic flows at home", seconds(20), || traffic.answered_packets() > before + 150);
        let start = Instant::now();
        roads.move_uplink("pw", "n2", None);
        let usable = "-6 -o addr show dev wlan0 to 2001:db8:f2::/64 -tentative";
        wait_until("the address may be used", seconds(20), || !roads.bed.router.run_ip(usable).is_empty());
        let waited = start.elapsed();
        // The home agent's duplicate address detection for the home address takes a second (RFC 6275 10.3.1).
        wait_until("the new address is registered", 4 * MOVE_TIME_LIMIT, || !agent.bindings().is_empty());
        traffic.wait_for_further_answers();
        println!("{visit} visit: the address after {waited:?}, traffic after {:?}", start.elapsed());
    }
    println!("{:?}", traffic.stop());
}
