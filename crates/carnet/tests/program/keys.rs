//! Keys of RFC 4285 in a running station.

use crate::hosts::{assert_same, possible, seconds, wait_until};
use crate::testbed::{CARE_OF, Testbed};

const OLD: &str = "auth = { spi = 300, key = '000102030405060708090a0b0c0d0e0f' }";
const BOTH: &str = "auth = { spi = 301, key = 'f0e1d2c3b4a5968778695a4b3c2d1e0f', \
                    former = [{ spi = 300, key = '000102030405060708090a0b0c0d0e0f' }] }";
const NEW: &str = "auth = { spi = 301, key = 'f0e1d2c3b4a5968778695a4b3c2d1e0f' }";

/// The three steps of docs/operating.md, there and back again.
#[test]
fn a_key_is_changed_under_traffic_and_no_packet_is_lost() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = bed.start();
    let traffic = bed.echo(1000);
    traffic.flows();
    let before = (bed.agent.snapshot(), bed.router.snapshot());
    let bindings = agent.bindings();
    let acknowledged = || router.counter("mobility.received.binding_acknowledgement");
    for [first, both, last] in [[OLD, BOTH, NEW], [NEW, BOTH, OLD]] {
        let renew = |auth: &str| {
            let count = acknowledged();
            router.reload(&bed.router_config().replace(OLD, auth));
            wait_until("the registration is renewed", seconds(10), || acknowledged() > count);
        };
        agent.reload(&bed.agent_config().replace(OLD, both));
        renew(first);
        renew(last);
        agent.reload(&bed.agent_config().replace(OLD, last));
        renew(last);
    }
    assert_eq!(agent.bindings(), bindings);
    assert_same(&before.0, &bed.agent.snapshot(), "after keys were changed, at the home agent");
    assert_same(&before.1, &bed.router.snapshot(), "after keys were changed, at the mobile router");
    for reason in
        ["unknown_spi", "authentication_failed", "authentication_missing", "rate_limited", "refused"]
    {
        for station in [&agent, &router] {
            assert_eq!(station.counter(&format!("mobility.dropped.{reason}")), 0, "{reason}");
        }
    }
    let report = traffic.stop();
    assert_eq!(report.lost, 0, "{report:?}");
    println!("two changes of a key: {} packets, longest silence {:?}", report.sent, report.silence);

    // And that it is the key that decides: one that the home agent has dropped is nobody's.
    let unknown = agent.counter("mobility.dropped.unknown_spi");
    router.reload(&bed.router_config().replace(OLD, NEW));
    wait_until("it is not believed", seconds(10), || agent.counter("mobility.dropped.unknown_spi") > unknown);
    assert_eq!(agent.bindings()[0].1, CARE_OF[0], "the binding lasts for what is left of it");
}
