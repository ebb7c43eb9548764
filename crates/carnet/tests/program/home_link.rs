//! A host on the home link sends Router Advertisements, which the home agent's machine receives.

use std::fs;
use std::process::{Child, Stdio};

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::Testbed;

/// Kernel settings with which an interface learns default routes, addresses and on-link routes from Router
/// Advertisements.
const STOPPED_SETTINGS: [&str; 2] = ["home0/accept_ra_defrtr", "home0/accept_ra_pinfo"];
/// A prefix that the advertisements claim to be on the home link.
const ADVERTISED_PREFIX: &str = "2001:db8:bad::/64";

/// A radvd on the home link; dropping the value kills it.
struct Advertiser {
    radvd: Child,
    _host: Host,
}

impl Advertiser {
    /// Starts radvd, which advertises a default router and an on-link network.
    fn start_on(bed: &Testbed, host: Host, interface: &str) -> Advertiser {
        let path = |ending: &str| bed.scratch.path_of(&format!("radvd.{ending}")).display().to_string();
        let config = format!(
            "interface {interface} {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; \
             AdvDefaultLifetime 600; AdvDefaultPreference high; \
             prefix {ADVERTISED_PREFIX} {{ AdvOnLink on; AdvAutonomous off; }}; }};\n"
        );
        fs::write(path("conf"), config).expect("a config");
        let words =
            ["radvd", "-n", "-m", "stderr", "-C", &path("conf"), "-p", &path("pid")].map(str::to_owned);
        let radvd = host.spawn_program(&words, |command| {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        });
        Advertiser { radvd, _host: host }
    }
}

impl Drop for Advertiser {
    fn drop(&mut self) {
        let _ = self.radvd.kill();
        let _ = self.radvd.wait();
    }
}

fn add_home_link(bed: &Testbed) -> String {
    bed.agent_config().replace("[home_agent]\n", "[home_agent]\nhome_link = 'home0'\n")
}

fn setting_values(agent: &Host) -> [String; 2] {
    STOPPED_SETTINGS.map(|name| agent.read_sysctl(name))
}

/// Returns the number of Router Advertisements that the home agent's kernel has received on the home link.
fn received_advertisements(agent: &Host) -> u64 {
    let counts = agent
        .run_in_namespace(|| fs::read_to_string("/proc/thread-self/net/dev_snmp6/home0").expect("counters"));
    let line = counts.lines().find(|line| line.starts_with("Icmp6InRouterAdvertisements"));
    let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    count.expect("a count")
}

/// Returns whether the kernel has learnt a default route, and whether it has learnt an on-link route, from
/// advertisements.
fn has_learnt_routes_and_addresses(agent: &Host) -> [bool; 2] {
    let routes = agent.run_ip("-6 route show dev home0");
    [routes.contains("default via"), routes.contains(ADVERTISED_PREFIX)]
}

#[test]
fn home_agent_ignores_default_routes_advertised_on_home_link() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let elsewhere = Host::new();
    bed.agent.create_link("home0", &elsewhere, "n1");
    bed.agent.run_ip("-6 addr add 2001:db8:1::ff/64 dev home0");
    elsewhere.wait_until_settled();
    bed.agent.wait_until_settled();
    let mut agent = Station::start(&bed.agent, &add_home_link(&bed));
    wait_until("nothing is taken any more", seconds(10), || setting_values(&bed.agent) == ["0", "0"]);
    assert_eq!(agent.show_json("status")["obstacles"].to_string(), "[]");
    let count = received_advertisements(&bed.agent);
    let advertiser = Advertiser::start_on(&bed, elsewhere, "n1");
    wait_until("advertisements come", seconds(30), || received_advertisements(&bed.agent) >= count + 2);
    assert_eq!(
        has_learnt_routes_and_addresses(&bed.agent),
        [false, false],
        "{}",
        bed.agent.run_ip("-6 route show")
    );
    agent.terminate();
    let switches = [setting_values(&bed.agent), STOPPED_SETTINGS.map(|_| "1".to_owned())];
    assert_eq!(switches[0], switches[1], "after the end");
    drop(advertiser);
}

/// A rented server often has only one default route, learnt from an advertisement on the link that becomes
/// its home link. The home agent must keep it.
#[test]
fn home_agent_with_default_route_on_home_link_keeps_it_and_warns() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    bed.agent.run_ip("-6 route del default");
    let elsewhere = Host::new();
    bed.agent.create_link("home0", &elsewhere, "n1");
    elsewhere.wait_until_settled();
    bed.agent.wait_until_settled();
    let _advertiser = Advertiser::start_on(&bed, elsewhere, "n1");
    wait_until("a way out", seconds(30), || has_learnt_routes_and_addresses(&bed.agent) == [true, true]);
    let agent = Station::start(&bed.agent, &add_home_link(&bed));
    let warning = "a Router Advertisement has already given this machine a default route";
    let obstacles = || agent.show_json("status")["obstacles"].to_string();
    wait_until("status warns", seconds(10), || obstacles().contains(warning));
    assert!(agent.log_text().contains(warning), "{}", agent.log_text());
    let count = received_advertisements(&bed.agent);
    wait_until("advertisements come", seconds(30), || received_advertisements(&bed.agent) >= count + 2);
    assert_eq!(
        (setting_values(&bed.agent), has_learnt_routes_and_addresses(&bed.agent)),
        (["1", "1"].map(str::to_owned), [true, true])
    );
}
