//! An uplink whose volume is used up.

use std::net::UdpSocket;

use nix::sys::signal::Signal;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::Testbed;

fn active_uplink(router: &Station) -> String {
    let uplinks = router.show_json("uplinks");
    let active =
        uplinks.as_array().and_then(|uplinks| uplinks.iter().find(|uplink| uplink["active"] == true));
    active.and_then(|uplink| uplink["interface"].as_str()).unwrap_or_default().to_owned()
}

/// Sends more than 2 MB over the first uplink, outside of the tunnel.
fn use_up_volume(bed: &Testbed) {
    bed.router.run_in_namespace(|| {
        let socket = UdpSocket::bind("[::]:0").expect("a socket");
        for _ in 0..2000 {
            let _ = socket.send_to(&[0; 1200], "[2001:db8:f1::1]:9");
        }
    });
}

/// The station counts all octets of the interface, from all programs. The count survives a crash.
#[test]
fn used_up_volume_is_remembered_after_crash() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let agent = Station::start(&bed.agent, &bed.agent_config());
    let directory = bed.scratch.path_of("state");
    let plain = bed.router_config();
    let config = plain
        .replacen("[station]\n", &format!("[station]\nstate_dir = '{}'\n", directory.display()), 1)
        .replacen("interface = 'wlan0'\n", "interface = 'wlan0'\nvolume = '2MB'\n", 1);
    assert!(config.contains("volume = '2MB'"), "{config}");
    let mut router = Station::start(&bed.router, &config);
    wait_until("the uplink with a volume to be used", seconds(10), || active_uplink(&router) == "wlan0");
    // Wait until the station has begun to count octets.
    wait_until("a state file", seconds(10), || {
        std::fs::read_to_string(directory.join("router.state")).is_ok_and(|text| text.contains("volumes"))
    });
    use_up_volume(&bed);
    wait_until("the other uplink", seconds(20), || active_uplink(&router) == "wwan0");
    let told = "wlan0: 100 % of its volume of this month is used";
    assert!(router.log_text().contains(told), "{}", router.log_text());

    router.end_by_signal(Signal::SIGKILL);
    let router = Station::start(&bed.router, &config);
    wait_until("an uplink", seconds(10), || !active_uplink(&router).is_empty());
    assert_eq!(active_uplink(&router), "wwan0");
    drop(agent);
}

/// With `volume_action = "stop"` the uplink carries no more packets after the limit, even if no other uplink
/// works.
#[test]
fn an_uplink_with_a_used_up_volume_is_down() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let agent = Station::start(&bed.agent, &bed.agent_config());
    let lines = "interface = 'wlan0'\nvolume = '2MB'\nvolume_action = 'stop'\n";
    let router =
        Station::start(&bed.router, &bed.router_config().replacen("interface = 'wlan0'\n", lines, 1));
    wait_until("the uplink with a volume to be used", seconds(10), || active_uplink(&router) == "wlan0");
    wait_until("counting to begin", seconds(10), || router.show_json("uplinks")[0]["volume_used"].is_u64());
    use_up_volume(&bed);
    wait_until("the uplink to be stopped", seconds(20), || {
        router.show_json("uplinks")[0]["state"] == "down: the volume is used up"
    });
    let told = "uplink wlan0 cannot be used any more: the volume is used up";
    wait_until("it is told", seconds(10), || router.log_text().contains(told));
    wait_until("the other uplink", seconds(20), || active_uplink(&router) == "wwan0");
    bed.router.run_ip("link set wwan0 down");
    wait_until("no uplink", seconds(20), || active_uplink(&router).is_empty());
    assert_eq!(router.show_json("uplinks")[0]["state"], "down: the volume is used up");
    drop(agent);
}
