//! A refresh of the binding that changes nothing does not affect traffic.

use crate::hosts::{can_run_or_report, seconds, time_factor, wait_until};
use crate::station::Station;
use crate::testbed::{CARE_OF_ADDRESSES, Testbed};

#[test]
fn renewals_under_load_lose_and_reorder_no_packet() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let agent = Station::start(&bed.agent, &bed.agent_config());
    // The router uses the shortest lifetime. It refreshes its binding after half of the lifetime.
    let config = bed.router_config().replace("lifetime = '60s'", "lifetime = '4s'");
    let router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    let traffic = bed.start_echo(2000);
    traffic.wait_for_further_answers();
    let acknowledged = || router.counter("mobility.received.binding_acknowledgement");
    let writes = || (agent.counter("platform.writes"), router.counter("platform.writes"));
    let (first, before) = (acknowledged(), writes());
    wait_until("twenty refreshes", seconds(120), || {
        std::thread::sleep(seconds(1));
        acknowledged() >= first + 20
    });
    let after = writes();
    let report = traffic.stop();
    println!(
        "{} refreshes: {} packets at 2000/s there and back, {} lost, {} reordered, longest silence {:?}",
        acknowledged() - first,
        report.sent_packets,
        report.lost_packets,
        report.reordered_packets,
        report.longest_silence
    );
    assert_eq!(before, after, "what the stations wrote into the kernel");
    assert_eq!(report.lost_packets, 0, "{report:?}");
    // The kernel reorders packets if it moves a busy sender to another processor, or if a processor of an
    // emulated machine stalls. If the refresh were the cause, every refresh would reorder packets.
    assert!(report.reordered_packets < 10 || time_factor() > 1, "{report:?}");
    assert_eq!(agent.bindings()[0].1, CARE_OF_ADDRESSES[0]);

    // Control: the test notices when the router really changes something.
    bed.router.run_ip("-6 addr del 2001:db8:f2::10/64 dev wwan0");
    wait_until("something is written", seconds(10), || router.counter("platform.writes") > after.1);
}
