//! A member of a fleet no longer reaches its neighbouring routers, but still reaches the store through a
//! separate interface. For example, etcd is in a network that only the machines use.

use std::fs;

use super::{LONG_TIMES_CONFIG, TestFleet, start_members_and_router};
use crate::hosts::{Host, output_text, seconds, wait_until};

/// URL of the store.
const ETCD_URL: &str = "http://[2001:db8:fe::1]:2379";

/// Returns a fleet of three members, each with its own path to the store; `None` without etcd. The leader
/// reaches the core by any of the core's addresses.
fn fleet_of_three() -> Option<TestFleet> {
    let more = format!(
        "links = ['ha0']\nreach = ['2001:db8:f0::1', '2001:db8:f4::1', '2001:db8:f5::1']\n{LONG_TIMES_CONFIG}"
    );
    let fleet = TestFleet::with_etcd(2, |bed| {
        bed.core.run_ip("-6 addr add 2001:db8:fe::1/128 dev lo");
        (ETCD_URL.to_owned(), String::new(), more)
    })?;
    for member in 0..3 {
        let (core, host) = (&fleet.bed.core, fleet.host_of_member(member));
        core.create_link(&format!("e{member}"), host, "e0");
        core.run_ip(&format!("-6 addr add 2001:db8:e{member}::1/64 dev e{member}"));
        host.run_ip_batch(&format!(
            "addr add 2001:db8:e{member}::2/64 dev e0
             route add 2001:db8:fe::1 via 2001:db8:e{member}::1"
        ));
        host.wait_until_settled();
    }
    fleet.bed.core.wait_until_settled();
    Some(fleet)
}

/// Drops all packets from the neighbouring routers to a machine, while the carrier of its interface stays. In
/// production a routing daemon would notice this, and withdraw its route; the test removes the route as well.
fn silence_network(fleet: &TestFleet, host: &Host, net: &str) {
    let file = fleet.bed.scratch.path_of("silence.nft");
    let rules = "add table netdev cut
                 add chain netdev cut in \
                 { type filter hook ingress device ha0 priority -500; policy drop; }\n";
    fs::write(&file, rules).expect("a file");
    let cut = host.run_program(&["nft", "--file", file.to_str().expect("a path")]);
    assert!(cut.status.success(), "{}", output_text(&cut));
    for prefix in ["1", "a"] {
        fleet.bed.core.run_ip(&format!("-6 route del 2001:db8:{prefix}::/64 via 2001:db8:{net}::2"));
    }
}

#[test]
fn leader_cut_off_from_routers_hands_over_to_connected_member() {
    let Some(fleet) = fleet_of_three() else { return };
    let ([anna, bruno, carla], router) = start_members_and_router(&fleet);
    let sent = router.counter("nemo.bu.sent");
    let echo = fleet.bed.start_echo(100);
    echo.wait_for_further_answers();
    let lost = "this member cannot reach the mobile routers";
    // Bruno, which would be the next leader, does not reach its gateway.
    silence_network(&fleet, fleet.host_of_member(1), "f4");
    wait_until("bruno misses his gateway", seconds(20), || bruno.log().contains(lost));
    assert!(anna.bindings().is_some(), "{}", anna.log());
    // The leader's interface loses its carrier.
    fleet.bed.core.run_ip("link set ha down");
    wait_until("carla has the binding", seconds(20), || carla.has_router_binding());
    wait_until("anna has no home agent", seconds(20), || anna.bindings().is_none());
    assert!(anna.log().contains("ha0 is not there, or has no carrier"), "{}", anna.log());
    echo.wait_for_further_answers();
    // The carrier comes back, and then the third member no longer reaches its gateway. The first member
    // becomes the leader again after its links have stayed up for some time.
    fleet.bed.core.run_ip("link set ha up");
    fleet.bed.core.wait_until_settled();
    fleet.bed.core.run_ip("-6 addr add 2001:db8:f0::1/64 dev ha");
    wait_until("anna's links are back", seconds(20), || {
        anna.log().contains("this member reaches the mobile routers again")
    });
    assert!(carla.bindings().is_some(), "{}", carla.log());
    silence_network(&fleet, fleet.host_of_member(2), "f5");
    for prefix in ["1", "a"] {
        fleet.bed.core.run_ip(&format!("-6 route add 2001:db8:{prefix}::/64 via 2001:db8:f0::2"));
    }
    wait_until("anna has the binding", seconds(40), || anna.has_router_binding());
    assert!(carla.log().contains("no neighbour in reach has answered"), "{}", carla.log());
    echo.wait_for_further_answers();
    let report = echo.stop();
    println!("the longest silence: {:?}", report.longest_silence);
    // The mobile router has not registered again, and the member bruno was never the leader.
    assert_eq!(router.counter("nemo.bu.sent"), sent);
    assert!(!bruno.log().contains("this member starts it"), "{}", bruno.log());
}
