//! Encrypted sessions with the members of a fleet.

use nix::sys::signal::Signal;

use super::{MemberProcess, TestFleet, config_with_ipv4};
use crate::hosts::{seconds, wait_for, wait_until};
use crate::sessions::configs_with_keys;
use crate::station::{Station, run_carnet};
use crate::testbed::{HOME_AGENT_ADDRESS, parse_address};
use crate::traffic::PacketSniffer;

/// Returns the IPv6 source and the message type of each WireGuard datagram among the packets.
fn session_messages(packets: &[Vec<u8>]) -> Vec<(std::net::Ipv6Addr, u8)> {
    let udp = packets.iter().filter(|packet| packet.len() > 52 && packet[6] == 17);
    udp.map(|packet| (<[u8; 16]>::try_from(&packet[8..24]).expect("an address").into(), packet[48])).collect()
}

/// Starts a fleet whose members have one private key, and a router with a key.
fn start_with_keys(fleet: &mut TestFleet) -> ([MemberProcess; 2], Station) {
    let (agent, router) = configs_with_keys(&fleet.bed);
    fleet.agent_config = agent;
    let members = std::array::from_fn(|member| {
        let started = fleet.start_member(member);
        if member == 0 {
            wait_for("a home agent", seconds(30), || started.bindings());
        }
        started
    });
    let router = Station::start(&fleet.bed.router, &config_with_ipv4(&router.replace("'60s'", "'600s'")));
    router.wait_until_registered();
    (members, router)
}

/// The new leader begins the handshake by the stored route, and the router's traffic goes on.
#[test]
fn new_leader_of_a_fleet_begins_the_handshakes() {
    let Some(mut fleet) = TestFleet::new() else { return };
    let ([mut anna, bruno], router) = start_with_keys(&mut fleet);
    let sent = router.counter("nemo.bu.sent");
    let echo = fleet.bed.start_echo(1000);
    echo.wait_for_further_answers();
    let sniffer = PacketSniffer::start(&fleet.bed.core, &["hb"]);
    anna.kill();
    fleet.bed.core.run_ip("link set ha down");
    wait_until("the other has the binding", seconds(20), || bruno.has_router_binding());
    echo.wait_for_further_answers();
    let report = echo.stop();
    let messages = session_messages(&sniffer.stop());
    println!("the longest silence: {:?}, messages: {}", report.longest_silence, messages.len());
    let agent = parse_address(HOME_AGENT_ADDRESS);
    assert!(messages.contains(&(agent, 1)), "{messages:?}\n{}", bruno.log());
    assert_eq!(router.counter("nemo.bu.sent"), sent, "{}", bruno.log());
}

fn rotate_keys(config: &str) -> String {
    let changed = run_carnet(&["key", "rotate", "--config", config]);
    assert!(changed.status.success(), "{changed:?}");
    let text = String::from_utf8(changed.stdout).expect("text");
    text.split_whitespace().last().unwrap_or_default().to_owned()
}

/// A router and the home agent change their keys, and then the leader dies. The new leader has both new keys,
/// although it was a standby when the keys changed.
#[test]
fn next_keys_are_valid_at_all_members() {
    let Some(mut fleet) = TestFleet::new() else { return };
    let ([mut anna, bruno], mut router) = start_with_keys(&mut fleet);
    let config = std::fs::read_to_string(&router.config_file).expect("a config");
    rotate_keys(router.config_file.to_str().expect("a path"));
    assert!(anna.log().contains("announced its next public key"), "{}", anna.log());
    let of_agent = rotate_keys(fleet.bed.scratch.path_of("anna.toml").to_str().expect("a path"));
    // From now on the router has no other key than the new one.
    router.end_by_signal(Signal::SIGKILL);
    let router = Station::start(&fleet.bed.router, &config);
    router.wait_until_registered();
    let echo = fleet.bed.start_echo(100);
    echo.wait_for_further_answers();
    anna.kill();
    fleet.bed.core.run_ip("link set ha down");
    wait_until("the other has the binding", seconds(20), || bruno.has_router_binding());
    echo.wait_for_further_answers();
    echo.stop();
    assert!(
        bruno.log().contains(&format!("the public key of this station is {of_agent}")),
        "{}",
        bruno.log()
    );
}
