//! Mobile router: the link changes under an uplink that keeps its carrier (RFC 6275 11.5.1).

use crate::craft::*;
use crate::pair::{Pair, Setup};

const NETWORK: &str = "2001:db8:f1::/64";
const OTHER_NETWORK: &str = "2001:db8:f2::/64";
/// Default routers of the two networks.
const ROUTER_A: &str = "fe80::a";
const ROUTER_B: &str = "fe80::b";

/// Registered over wifi in the first network, whose router has been heard.
fn in_the_first_network() -> Pair {
    let mut pair = Pair::new(Setup::plain());
    pair.set_interface(0, "wifi", true, &["fe80::2"], &[ROUTER_A]);
    pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
    show(&mut pair, &[CARE_OF], &[ROUTER_A]);
    pair.register();
    pair.run(5.0);
    pair.forget();
    pair
}

fn show(pair: &mut Pair, addresses: &[&str], routers: &[&str]) {
    let mut all = vec!["fe80::2"];
    all.extend(addresses);
    pair.set_interface(0, "wifi", true, &all, routers);
}

fn care_of(pair: &Pair) -> Option<std::net::Ipv6Addr> {
    pair.machine().uplinks()[0].care_of_address()
}

/// The old router is gone, the old address is not: the address of the router that is there.
#[test]
fn another_network_without_loss_of_carrier_is_registered_at_once() {
    let mut pair = in_the_first_network();
    pair.hear_router("wifi", ROUTER_B, &[OTHER_NETWORK]);
    assert_eq!(care_of(&pair), Some(addr(CARE_OF)), "no address there yet");
    show(&mut pair, &[CARE_OF, OTHER_CARE_OF], &[ROUTER_A, ROUTER_B]);
    assert_eq!(care_of(&pair), Some(addr(CARE_OF)), "the old router is still the first");
    show(&mut pair, &[CARE_OF, OTHER_CARE_OF], &[ROUTER_B]);
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF));
    pair.run(0.1);
    assert!(pair.is_registered(0));
    // And back.
    show(&mut pair, &[CARE_OF, OTHER_CARE_OF], &[ROUTER_B, ROUTER_A]);
    assert_eq!(care_of(&pair), Some(addr(OTHER_CARE_OF)));
    show(&mut pair, &[CARE_OF, OTHER_CARE_OF], &[ROUTER_A, ROUTER_B]);
    assert_eq!(care_of(&pair), Some(addr(CARE_OF)));
}

/// In whatever order the kernel and the advertisement tell it.
#[test]
fn the_new_prefix_may_be_heard_last() {
    let mut pair = in_the_first_network();
    show(&mut pair, &[CARE_OF, OTHER_CARE_OF], &[ROUTER_B, ROUTER_A]);
    pair.hear_router("wifi", ROUTER_B, &[OTHER_NETWORK]);
    assert_eq!(care_of(&pair), Some(addr(OTHER_CARE_OF)));
}

/// Both routers advertise the prefix in use: nothing to move for.
#[test]
fn a_second_router_of_the_same_network_changes_nothing() {
    let mut pair = in_the_first_network();
    pair.hear_router("wifi", ROUTER_B, &[NETWORK, OTHER_NETWORK]);
    for routers in [&[ROUTER_A, ROUTER_B][..], &[ROUTER_B, ROUTER_A], &[ROUTER_B]] {
        show(&mut pair, &[CARE_OF, OTHER_CARE_OF], routers);
        assert_eq!(care_of(&pair), Some(addr(CARE_OF)));
    }
    assert!(pair.updates().is_empty());
}

/// An address that nobody advertises, the operator's own, is no worse than before: after what is advertised
/// here, before what was advertised by a router that has gone.
#[test]
fn an_address_of_the_operator_s_is_used_where_nothing_is_advertised() {
    let mut pair = in_the_first_network();
    show(&mut pair, &[CARE_OF, "2001:db8:f9::9"], &[ROUTER_A]);
    assert_eq!(care_of(&pair), Some(addr(CARE_OF)));
    show(&mut pair, &[CARE_OF, "2001:db8:f9::9"], &[ROUTER_B]);
    assert_eq!(care_of(&pair), Some(addr("2001:db8:f9::9")));
}

/// A default route without gateway: whoever was heard last is at the other end.
#[test]
fn a_point_to_point_link_follows_the_router_heard_last() {
    let mut pair = Pair::new(Setup::plain());
    show(&mut pair, &[CARE_OF], &["::"]);
    pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
    pair.register();
    pair.hear_router("wifi", ROUTER_B, &[OTHER_NETWORK]);
    assert_eq!(care_of(&pair), Some(addr(CARE_OF)));
    show(&mut pair, &[CARE_OF, OTHER_CARE_OF], &["::"]);
    assert_eq!(pair.last_update().source, addr(OTHER_CARE_OF));
}
