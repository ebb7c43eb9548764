//! The test of a new care-of address (`care_of_test`) on the data path. Until the router has answered at the
//! new address, no packet of a correspondent goes there. Some tests keep the old uplink working, in others it
//! fails.

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::ipv4::load_nft_rules;
use crate::station::Station;
use crate::testbed::{CARE_OF_ADDRESSES, Testbed};

/// Installs packet filter rules for packets to the second uplink. They drop the Echo Requests of the care-of
/// test, and count all other tunnel packets. The inner Next Header is octet 6 of the inner header.
fn count_packets_of_uplinks(bed: &Testbed) {
    let to_new = format!("add rule ip6 watch way ip6 daddr {} ip6 nexthdr 41", CARE_OF_ADDRESSES[1]);
    load_nft_rules(
        &bed.core,
        &[
            "add table ip6 watch",
            "add counter ip6 watch data",
            "add chain ip6 watch hole",
            "add rule ip6 watch hole @th,48,8 58 drop",
            "add chain ip6 watch way { type filter hook forward priority 0 ; }",
            &format!("{to_new} jump hole"),
            &format!("{to_new} @th,48,8 != 58 counter name data"),
        ],
    );
}

/// Returns the number of tunnel packets to the second uplink, without those of the care-of test.
fn packets_to_new_care_of_address(bed: &Testbed) -> u64 {
    let output = bed.core.run_program(&["nft", "list", "counter", "ip6", "watch", "data"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let number = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no counter: {text}"))
}

fn binding_has_state(agent: &Station, state: &str) -> bool {
    let binding = &agent.show_json("bindings")[0];
    binding["care_of_address"] == CARE_OF_ADDRESSES[1] && binding["state"] == state
}

#[test]
fn home_agent_sends_no_packet_to_untested_care_of_address_in_handover() {
    if !can_run_or_report() {
        return;
    }
    for breaks in [false, true] {
        let bed = Testbed::new();
        let (agent, router) = bed.start_stations();
        let traffic = bed.start_echo(100);
        traffic.wait_for_further_answers();
        count_packets_of_uplinks(&bed);
        if breaks {
            bed.router.run_ip("link set wlan0 down");
        } else {
            assert!(router.run_command(&["handover", "wwan0"]).status.success());
        }
        wait_until("the new address is untested", seconds(20), || binding_has_state(&agent, "untested"));
        if !breaks {
            // Traffic flows on the old path while the home agent tests the new care-of address.
            traffic.wait_for_further_answers();
        }
        assert!(binding_has_state(&agent, "untested"));
        assert_eq!(packets_to_new_care_of_address(&bed), 0, "break before make: {breaks}");
        load_nft_rules(&bed.core, &["flush chain ip6 watch hole"]);
        wait_until("the new address is tested", seconds(20), || binding_has_state(&agent, "registered"));
        traffic.wait_for_further_answers();
        let carried = packets_to_new_care_of_address(&bed);
        assert!(carried > 0, "break before make: {breaks}");
        let report = traffic.stop();
        let path = &agent.show_json("status")["dataplane"];
        println!("{path}, break before make {breaks}: {carried} packets to the new address, {report:?}");
        assert!(breaks || report.lost_packets == 0, "{report:?}");
    }
}
