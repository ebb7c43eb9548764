//! The firewall of `docs/operating.md` passes all packets that carnet needs.

use crate::hosts::{possible, seconds, wait_until};
use crate::testbed::{CORRESPONDENT, Testbed};

const PAGE: &str = include_str!("../../../../docs/operating.md");

#[test]
fn behind_the_documented_firewall_a_router_registers_and_its_hosts_have_a_network() {
    if !possible() {
        return;
    }
    let (_, rules) = PAGE.split_once("```nft\n").expect("a firewall");
    let (rules, _) = rules.split_once("```").expect("its end");
    let bed = Testbed::new();
    let file = bed.scratch.path("firewall.nft");
    std::fs::write(&file, rules).expect("a file");
    for host in [&bed.agent, &bed.router] {
        let output = host.output(&["nft", "--file", file.to_str().expect("a path")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (agent, router) = bed.start();
    router.registered();
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    // Without the firewall's rules no packet passes.
    let chain = ["nft", "flush", "chain", "inet", "carnet", "forward"];
    assert!(bed.agent.output(&chain).status.success());
    assert_eq!(agent.show("status")["dataplane"], router.show("status")["dataplane"]);
    if agent.show("status")["dataplane"] == "tun" {
        assert!(!bed.host.pings(CORRESPONDENT), "the firewall of the test does nothing");
    }
}
