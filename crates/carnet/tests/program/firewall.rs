//! The firewall of `docs/operating.md` passes all packets that carnet needs.

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::testbed::{CORRESPONDENT, Testbed};

const OPERATING_PAGE: &str = include_str!("../../../../docs/operating.md");

#[test]
fn router_behind_documented_firewall_registers_and_serves_its_hosts() {
    if !can_run_or_report() {
        return;
    }
    let (_, rules) = OPERATING_PAGE.split_once("```nft\n").expect("a firewall");
    let (rules, _) = rules.split_once("```").expect("its end");
    let bed = Testbed::new();
    let file = bed.scratch.path_of("firewall.nft");
    std::fs::write(&file, rules).expect("a file");
    for host in [&bed.agent, &bed.router] {
        let output = host.run_program(&["nft", "--file", file.to_str().expect("a path")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (agent, router) = bed.start_stations();
    router.wait_until_registered();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    // Control: without the firewall's accept rules no packet passes.
    let chain = ["nft", "flush", "chain", "inet", "carnet", "forward"];
    assert!(bed.agent.run_program(&chain).status.success());
    assert_eq!(agent.show_json("status")["dataplane"], router.show_json("status")["dataplane"]);
    if agent.show_json("status")["dataplane"] == "tun" {
        assert!(!bed.host.can_ping(CORRESPONDENT), "the firewall of the test does nothing");
    }
}
