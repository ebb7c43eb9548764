//! Mobile router: home links with several routers, and forged Router Advertisements (RFC 6275 11.5.5, RFC
//! 4861 6.1.2).

use std::net::Ipv6Addr;

use carnet_base::LinkMessage;
use carnet_mobility::Event;
use carnet_mobility::mobile_router::Attachment;
use carnet_wire::{icmpv6, nd};

use crate::craft::*;
use crate::pair::{Pair, Setup};
use crate::router_candidates::{
    HOME_ROUTER, NETWORK, OTHER_NETWORK, ROUTER_A, ROUTER_B, answer_probe, is_probe, registered, show,
    with_heartbeats,
};
use crate::setup::{AT_HOME, router_advertisement};

const SECOND_HOME_ROUTER: &str = "fe80::12";
/// A host on a foreign link that advertises the home prefix.
pub const FORGER: &str = "fe80::66";

/// Lets time pass; these routers answer probes.
pub fn run_answered(pair: &mut Pair, millis: u32, routers: &[&str]) {
    for _ in 0..millis / 10 {
        pair.link.clear();
        pair.run(0.01);
        let sent: Vec<LinkMessage> =
            pair.link.iter().filter(|(_, from, _)| *from == Some(0)).map(|(.., it)| it.clone()).collect();
        for probe in sent.iter().filter(|message| is_probe(message)) {
            routers.iter().for_each(|router| answer_probe(pair, router, probe));
        }
    }
}

/// Hands over a Router Advertisement that `change` has altered.
pub fn hear(pair: &mut Pair, change: impl Fn(&mut [u8]), source: &str, prefix: &str) {
    let mut message = router_advertisement("wifi", source, &[prefix]);
    change(&mut message.message);
    message.message[2..4].fill(0);
    icmpv6::set_checksum(&mut message.message, addr(source), nd::ALL_NODES);
    pair.router_does(0, |machine, now, wall| machine.handle_link_message(now, wall, &message))
        .expect("a right advertisement");
}

/// Sets the router lifetime to 0.
pub fn no_default_router(message: &mut [u8]) {
    message[6..8].fill(0);
}

pub fn at_home(pair: &Pair) -> bool {
    matches!(pair.machine().uplinks()[0].attachment, Attachment::Home { .. })
}

pub fn registered_at(pair: &Pair) -> Option<Ipv6Addr> {
    pair.bound().filter(|bound| pair.path() == Some(*bound))
}

/// A pair on a home link whose two routers advertise this many milliseconds apart.
fn home_with_two_routers(setup: Setup, apart: u32) -> Pair {
    let both = [HOME_ROUTER, SECOND_HOME_ROUTER];
    let mut pair = registered(setup);
    pair.detach(0, "wifi");
    show(&mut pair, &[CARE_OF], &[ROUTER_A]);
    pair.hear_router("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    show(&mut pair, &[AT_HOME], &[HOME_ROUTER]);
    run_answered(&mut pair, apart, &both);
    pair.hear_router("wifi", SECOND_HOME_ROUTER, &[HOME_PREFIX]);
    show(&mut pair, &[AT_HOME], &both);
    run_answered(&mut pair, 5000, &both);
    assert!(at_home(&pair) && pair.machine().is_home());
    pair
}

#[test]
fn home_link_is_kept_when_one_of_its_two_routers_fails() {
    for apart in [100, 3000, 60_000] {
        for living in [HOME_ROUTER, SECOND_HOME_ROUTER] {
            let mut pair = home_with_two_routers(with_heartbeats(), apart);
            for _ in 0..500 {
                run_answered(&mut pair, 10, &[living]);
                assert!(at_home(&pair), "{apart} {living}");
            }
            let returns = pair.events.iter().filter(|(_, _, event)| matches!(event, Event::AtHome { .. }));
            assert_eq!(returns.count(), 1);
        }
    }
}

/// RFC 6275 11.5.1: a move without loss of carrier. If no router of the new link is heard, each router of the
/// home link has 1.2 s.
#[test]
fn router_leaves_home_link_that_has_two_routers() {
    for apart in [100, 3000, 60_000] {
        for (is_heard, limit) in [(true, 500), (false, 2500)] {
            let mut pair = home_with_two_routers(with_heartbeats(), apart);
            if is_heard {
                pair.hear_router("wifi", ROUTER_B, &[OTHER_NETWORK]);
                let routers = [HOME_ROUTER, SECOND_HOME_ROUTER, ROUTER_B];
                show(&mut pair, &[AT_HOME, OTHER_CARE_OF], &routers);
            }
            let mut took = 0;
            while at_home(&pair) && took <= limit {
                run_answered(&mut pair, 10, &[ROUTER_B]);
                took += 10;
            }
            assert!(took <= limit, "{apart} {is_heard}: {took} ms");
        }
    }
}

/// A host on a foreign link advertises the home prefix once. The home agent does not answer there, so the
/// router keeps its registration at the care-of address of that link.
#[test]
fn forged_home_prefix_on_a_foreign_link_does_not_end_the_registration() {
    for is_default in [false, true] {
        for bid in [None, Some(1)] {
            let mut setup = with_heartbeats();
            setup.routers[0].uplinks[0].bid = bid;
            let mut pair = Pair::new(setup);
            show(&mut pair, &[], &[ROUTER_A]);
            pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
            show(&mut pair, &[CARE_OF], &[ROUTER_A]);
            pair.run(5.0);
            assert_eq!(registered_at(&pair), Some(addr(CARE_OF)));
            pair.dead.push(addr(HOME));
            let gateways: &[&str] = if is_default { &[FORGER, ROUTER_A] } else { &[ROUTER_A] };
            show(&mut pair, &[CARE_OF, AT_HOME], gateways);
            let change = if is_default { |_: &mut [u8]| () } else { no_default_router };
            hear(&mut pair, change, FORGER, HOME_PREFIX);
            assert!(at_home(&pair));
            for second in 0..600 {
                run_answered(&mut pair, 1000, &[ROUTER_A]);
                if second % 30 == 0 {
                    pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
                }
                assert_eq!(registered_at(&pair), Some(addr(CARE_OF)), "{is_default} {bid:?} {second}");
            }
        }
    }
}

/// RFC 4861 6.3.5: a prefix whose valid lifetime has ended is no longer on the link.
#[test]
fn home_link_ends_with_the_valid_lifetime_of_its_prefix() {
    let mut pair = registered(with_heartbeats());
    show(&mut pair, &[CARE_OF, AT_HOME], &[ROUTER_A]);
    let short = |message: &mut [u8]| {
        no_default_router(message);
        for lifetime in [20..24, 24..28] {
            message[lifetime].copy_from_slice(&30_u32.to_be_bytes());
        }
    };
    hear(&mut pair, short, HOME_ROUTER, HOME_PREFIX);
    pair.run(29.0);
    assert!(at_home(&pair));
    pair.run(2.0);
    assert!(!at_home(&pair));
}

/// The home agent is no default router, and other routers advertise without end.
#[test]
fn flood_of_routers_does_not_end_the_home_link() {
    let mut pair = registered(with_heartbeats());
    pair.detach(0, "wifi");
    show(&mut pair, &[AT_HOME], &[ROUTER_A]);
    hear(&mut pair, no_default_router, HOME_ROUTER, HOME_PREFIX);
    run_answered(&mut pair, 5000, &[HOME_ROUTER, ROUTER_A]);
    for index in 0..100 {
        let prefix = format!("2001:db8:{index:x}::/64");
        pair.hear_router("wifi", &format!("fe80::c:{index:x}"), &[&prefix]);
        run_answered(&mut pair, 50, &[HOME_ROUTER, ROUTER_A]);
        assert!(at_home(&pair), "{index}");
    }
}

/// Returns a pair whose router, registered with a Binding Identifier, has just come home. The home agent does
/// not receive the de-registration.
fn coming_home_with_identifier() -> Pair {
    let mut setup = with_heartbeats();
    setup.routers[0].uplinks[0].bid = Some(1);
    let mut pair = Pair::new(setup);
    show(&mut pair, &[], &[ROUTER_A]);
    pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
    show(&mut pair, &[CARE_OF], &[ROUTER_A]);
    pair.run(5.0);
    assert_eq!(registered_at(&pair), Some(addr(CARE_OF)));
    pair.dead.push(addr(HOME));
    show(&mut pair, &[CARE_OF, AT_HOME], &[ROUTER_A, HOME_ROUTER]);
    pair.hear_router("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    pair
}

/// With Binding Identifiers, the router leaves home before the home agent has answered the de-registration.
#[test]
fn return_with_identifiers_that_is_broken_off_is_put_right() {
    let mut pair = coming_home_with_identifier();
    pair.run(1.0);
    assert!(at_home(&pair));
    pair.detach(0, "wifi");
    pair.run(0.3);
    show(&mut pair, &[CARE_OF, AT_HOME], &[ROUTER_A]);
    pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
    pair.run(120.0);
    assert_eq!(registered_at(&pair), Some(addr(CARE_OF)));
}

/// RFC 3963 5.8: until the acknowledgement of the return, traffic leaves by the tunnel.
#[test]
fn tunnel_with_identifiers_is_used_until_the_return_is_acknowledged() {
    let mut pair = coming_home_with_identifier();
    assert!(at_home(&pair) && !pair.machine().is_home());
    for _ in 0..20 {
        run_answered(&mut pair, 100, &[HOME_ROUTER]);
        assert_eq!(registered_at(&pair), Some(addr(CARE_OF)));
    }
    pair.dead.clear();
    run_answered(&mut pair, 10_000, &[HOME_ROUTER]);
    assert!(pair.machine().is_home());
    run_answered(&mut pair, 5000, &[HOME_ROUTER]);
    assert_eq!((pair.path(), pair.bound()), (None, None));
}
