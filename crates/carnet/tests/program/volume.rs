//! An uplink whose volume is used up.

use std::net::UdpSocket;

use nix::sys::signal::Signal;

use crate::hosts::{possible, seconds, wait_until};
use crate::station::Station;
use crate::testbed::Testbed;

fn active(router: &Station) -> String {
    let uplinks = router.show("uplinks");
    let active =
        uplinks.as_array().and_then(|uplinks| uplinks.iter().find(|uplink| uplink["active"] == true));
    active.and_then(|uplink| uplink["interface"].as_str()).unwrap_or_default().to_owned()
}

/// The interface's counters say so, whoever has sent; and it is remembered after a crash.
#[test]
fn a_used_up_uplink_is_left_and_stays_so_after_a_crash() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let agent = Station::start(&bed.agent, &bed.agent_config());
    let directory = bed.scratch.path("state");
    let plain = bed.router_config();
    let config = plain
        .replacen("[station]\n", &format!("[station]\nstate_dir = '{}'\n", directory.display()), 1)
        .replacen("interface = 'wlan0'\n", "interface = 'wlan0'\nvolume = '2MB'\n", 1);
    assert!(config.contains("volume = '2MB'"), "{config}");
    let mut router = Station::start(&bed.router, &config);
    wait_until("the uplink with a volume to be used", seconds(10), || active(&router) == "wlan0");
    // Counting has begun.
    wait_until("a state file", seconds(10), || {
        std::fs::read_to_string(directory.join("router.state")).is_ok_and(|text| text.contains("volumes"))
    });
    bed.router.run(|| {
        let socket = UdpSocket::bind("[::]:0").expect("a socket");
        for _ in 0..2000 {
            let _ = socket.send_to(&[0; 1200], "[2001:db8:f1::1]:9");
        }
    });
    wait_until("the other uplink", seconds(20), || active(&router) == "wwan0");

    router.end_by(Signal::SIGKILL);
    let router = Station::start(&bed.router, &config);
    wait_until("an uplink", seconds(10), || !active(&router).is_empty());
    assert_eq!(active(&router), "wwan0");
    drop(agent);
}
