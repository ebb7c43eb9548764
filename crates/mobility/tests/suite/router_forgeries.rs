//! Mobile router: hosts of the visited link that forge Router Advertisements (RFC 3756), and routers that
//! advertise in unusual ways (RFC 4861 6.2.3).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Address, NeighbourState};
use carnet_mobility::Event;
use carnet_mobility::mobile_router::Attachment;
use carnet_wire::icmpv6;

use crate::craft::*;
use crate::pair::{Pair, Setup};
use crate::router_candidates::{
    HOME_ROUTER, NETWORK, OTHER_NETWORK, ROUTER_A, ROUTER_B, pair_in_use, routes, sent_on_link, show,
    with_heartbeats,
};
use crate::router_home_links::{FORGER, at_home, hear, no_default_router, registered_at, run_answered};
use crate::setup::{AT_HOME, addresses};

fn next_hop(pair: &Pair, address: &str) -> Option<Ipv6Addr> {
    let router = pair.machine().uplinks()[0].next_hop(addr(address).into())?;
    router.to_string().parse().ok()
}

/// The setups with and without heartbeats, each with and without a Binding Identifier.
fn setups() -> Vec<Setup> {
    let mut setups = Vec::new();
    for setup in [with_heartbeats(), Setup::plain()] {
        for bid in [None, Some(1)] {
            let mut setup = setup.clone();
            setup.routers[0].uplinks[0].bid = bid;
            setups.push(setup);
        }
    }
    setups
}

/// A pair that is registered at [`CARE_OF`] over [`ROUTER_A`]. Packets to [`FORGER`] are lost.
fn visiting(setup: Setup) -> Pair {
    let mut pair = Pair::new(setup);
    show(&mut pair, &[], &[ROUTER_A]);
    pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
    show(&mut pair, &[CARE_OF], &[ROUTER_A]);
    pair.run(5.0);
    assert_eq!(registered_at(&pair), Some(addr(CARE_OF)));
    pair.dead_routers = vec![addr(FORGER)];
    pair.forget();
    pair
}

/// A host on a foreign link forges a default router that advertises the home prefix. The kernel prefers it.
#[test]
fn tunnel_keeps_its_router_when_a_default_router_forges_the_home_prefix() {
    for setup in setups() {
        let mut pair = visiting(setup);
        show(&mut pair, &[CARE_OF, AT_HOME], &[FORGER, ROUTER_A]);
        pair.hear_router("wifi", FORGER, &[HOME_PREFIX]);
        assert!(at_home(&pair));
        let mut left = None;
        for tenth in 0..600 {
            assert_eq!(next_hop(&pair, CARE_OF), Some(addr(ROUTER_A)), "{tenth}");
            assert_eq!(registered_at(&pair), Some(addr(CARE_OF)), "{tenth}");
            run_answered(&mut pair, 100, &[ROUTER_A, FORGER]);
            left = left.or((!at_home(&pair)).then_some(tenth));
        }
        assert!(left.is_some_and(|left| left <= 75), "{left:?} tenths of a second");
    }
}

/// Each router of the home link has its turn: one of them is forged.
#[test]
fn return_is_tried_over_the_next_home_router_when_the_first_one_is_forged() {
    for first in [FORGER, HOME_ROUTER] {
        let mut pair = visiting(Setup::plain());
        let second = if first == FORGER { HOME_ROUTER } else { FORGER };
        pair.detach(0, "wifi");
        pair.run(0.3);
        show(&mut pair, &[AT_HOME], &[first, second]);
        pair.hear_router("wifi", first, &[HOME_PREFIX]);
        pair.hear_router("wifi", second, &[HOME_PREFIX]);
        let both = [FORGER, HOME_ROUTER];
        run_answered(&mut pair, 4500, &both);
        assert!(pair.machine().is_home(), "{first}");
        assert_eq!(pair.bound(), None);
    }
}

/// The home agent is down. The router returns home as soon as the home agent is back, although the visited
/// link's address is still there.
#[test]
fn return_goes_on_after_an_outage_of_the_home_agent() {
    for setup in setups() {
        let mut pair = visiting(setup);
        pair.dead_routers = vec![addr(ROUTER_A)];
        pair.agent_down = true;
        pair.hear_router("wifi", HOME_ROUTER, &[HOME_PREFIX]);
        show(&mut pair, &[CARE_OF, AT_HOME], &[HOME_ROUTER, ROUTER_A]);
        run_answered(&mut pair, 40_000, &[HOME_ROUTER]);
        pair.agent_down = false;
        let mut took = 0;
        while !pair.machine().is_home() {
            run_answered(&mut pair, 100, &[HOME_ROUTER]);
            took += 100;
            assert!(took <= 35_000, "{took} ms");
        }
    }
}

/// Two routers have advertised the home prefix before the kernel's list has them. The one that advertised
/// last answers no probe.
#[test]
fn home_router_that_never_answers_is_left_for_another_one() {
    let mut pair = visiting(with_heartbeats());
    pair.dead_routers.clear();
    pair.detach(0, "wifi");
    show(&mut pair, &[AT_HOME], &[ROUTER_A]);
    pair.hear_router("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    pair.hear_router("wifi", FORGER, &[HOME_PREFIX]);
    show(&mut pair, &[AT_HOME], &[FORGER, HOME_ROUTER]);
    let router = |pair: &Pair| match pair.machine().uplinks()[0].attachment {
        Attachment::Home { router } => router,
        _ => None,
    };
    assert_eq!(router(&pair), Some(addr(FORGER)));
    for second in 1..=20 {
        run_answered(&mut pair, 1000, &[HOME_ROUTER]);
        assert!(second < 2 || router(&pair) == Some(addr(HOME_ROUTER)), "{second}");
    }
    assert!(pair.machine().is_home());
}

/// The operator's address shows the home link. A forged advertisement of the home prefix comes and ends.
#[test]
fn home_link_that_an_address_shows_stays_when_a_forged_home_router_ends() {
    let mut pair = visiting(with_heartbeats());
    pair.detach(0, "wifi");
    pair.tell(0, "wifi", addresses(&["fe80::2", AT_HOME]), routes(&[ROUTER_B]));
    pair.run(2.0);
    assert!(pair.machine().is_home());
    let short = |message: &mut [u8]| {
        no_default_router(message);
        message[20..24].copy_from_slice(&1_u32.to_be_bytes());
    };
    hear(&mut pair, short, FORGER, HOME_PREFIX);
    pair.run(10.0);
    assert!(at_home(&pair) && pair.machine().is_home());
}

/// Forged advertisements in the name of the home router.
#[test]
fn home_link_stays_when_its_router_seems_to_advertise_many_prefixes() {
    let mut pair = visiting(with_heartbeats());
    pair.detach(0, "wifi");
    show(&mut pair, &[AT_HOME], &[HOME_ROUTER]);
    pair.hear_router("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    run_answered(&mut pair, 2000, &[HOME_ROUTER]);
    for index in 0..200 {
        pair.hear_router("wifi", HOME_ROUTER, &[&format!("2001:db8:bad:{index:x}::/64")]);
        run_answered(&mut pair, 10, &[HOME_ROUTER]);
        if index % 40 == 0 {
            // The router answers the Router Solicitation.
            pair.hear_router("wifi", HOME_ROUTER, &[HOME_PREFIX]);
        }
        assert!(at_home(&pair), "{index}");
    }
}

/// Prefixes and addresses that a host on the link has forged.
fn hostile_prefixes(count: u16) -> (Vec<String>, Vec<String>) {
    let prefixes = (0..count).map(|index| format!("2001:db8:bad:{index:x}::/64")).collect();
    (prefixes, (0..count).map(|index| format!("2001:db8:bad:{index:x}::10")).collect())
}

/// Lets a host advertise 15 prefixes in the name of `router`. The kernel has made addresses of them, and
/// prefers `first` of the routers. Packets from these addresses are lost.
fn advertise_hostile_prefixes(pair: &mut Pair, router: &str, first: &str) {
    let (prefixes, hostile) = hostile_prefixes(15);
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    pair.hear_router("wifi", router, &prefixes);
    let all: Vec<&str> = hostile.iter().map(String::as_str).chain([CARE_OF]).collect();
    let second = if first == FORGER { ROUTER_A } else { FORGER };
    show(pair, &all, &[first, second]);
    pair.dead.extend(hostile.iter().map(|address| addr(address)));
}

/// Runs until packets from [`CARE_OF`] leave by [`ROUTER_A`] and the home agent answers, for at most `most`
/// milliseconds. Returns how many of them that took.
fn until_served(pair: &mut Pair, answering: &[&str], most: u32) -> u32 {
    let is_served = |pair: &Pair| {
        registered_at(pair) == Some(addr(CARE_OF))
            && next_hop(pair, CARE_OF) == Some(addr(ROUTER_A))
            && !pair.machine().is_silent(0)
    };
    let mut took = 0;
    while !is_served(pair) && took <= most {
        run_answered(pair, 10, answering);
        took += 10;
    }
    took
}

/// An outage of 2 s, beside 15 forged prefixes.
#[test]
fn service_is_back_soon_after_an_outage_on_a_link_with_many_forged_prefixes() {
    for setup in setups() {
        for (router, first) in [(FORGER, FORGER), (FORGER, ROUTER_A), (ROUTER_A, ROUTER_A)] {
            let mut pair = visiting(setup.clone());
            advertise_hostile_prefixes(&mut pair, router, first);
            for _ in 0..50 {
                run_answered(&mut pair, 100, &[ROUTER_A]);
                assert_eq!(registered_at(&pair), Some(addr(CARE_OF)), "nothing works better");
            }
            pair.dead.push(addr(CARE_OF));
            run_answered(&mut pair, 2000, &[]);
            pair.dead.pop();
            let took = until_served(&mut pair, &[ROUTER_A], 5000);
            assert!(took <= 2000, "{router} {first}: {took} ms");
            for _ in 0..100 {
                run_answered(&mut pair, 1000, &[ROUTER_A]);
                assert_eq!(registered_at(&pair), Some(addr(CARE_OF)));
            }
        }
    }
}

/// An outage of 2 s, beside 12 forged default routers that advertise the prefix of the address.
#[test]
fn service_is_back_soon_after_an_outage_on_a_link_with_many_forged_routers() {
    for setup in setups() {
        let mut pair = visiting(setup);
        let forged: Vec<String> = (1..=12).map(|index| format!("fe80::bad:{index:x}")).collect();
        pair.dead_routers = forged.iter().map(|router| addr(router)).collect();
        forged.iter().for_each(|router| pair.hear_router("wifi", router, &[NETWORK]));
        let all: Vec<&str> = forged.iter().map(String::as_str).chain([ROUTER_A]).collect();
        show(&mut pair, &[CARE_OF], &all);
        let answering = all.clone();
        run_answered(&mut pair, 3000, &answering);
        assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF), addr(ROUTER_A))));
        pair.dead.push(addr(CARE_OF));
        run_answered(&mut pair, 2000, &answering);
        pair.dead.clear();
        let took = until_served(&mut pair, &answering, 5000);
        assert!(took <= 3000, "{took} ms");
    }
}

/// Each proven candidate stays among the few that the router tries.
#[test]
fn candidates_on_a_link_with_many_forged_prefixes_are_few_and_the_proven_one_is_among_the_first_two() {
    let mut pair = visiting(with_heartbeats());
    advertise_hostile_prefixes(&mut pair, FORGER, FORGER);
    pair.dead.push(addr(CARE_OF));
    for turn in 0..200 {
        run_answered(&mut pair, 100, &[]);
        let addresses = pair.machine().uplinks()[0].care_of_addresses();
        assert!(addresses.len() <= 4, "{turn}: {addresses:?}");
        assert!(addresses.iter().take(2).any(|it| *it == addr(CARE_OF)), "{turn}: {addresses:?}");
    }
}

/// A forged default router advertises the prefix of the address in use. The kernel prefers it.
#[test]
fn address_keeps_its_proven_router_when_a_forged_one_advertises_its_prefix() {
    for setup in setups() {
        let mut pair = visiting(setup);
        pair.hear_router("wifi", FORGER, &[NETWORK]);
        show(&mut pair, &[CARE_OF], &[FORGER, ROUTER_A]);
        for _ in 0..600 {
            run_answered(&mut pair, 100, &[ROUTER_A, FORGER]);
            assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF), addr(ROUTER_A))));
            assert_eq!(registered_at(&pair), Some(addr(CARE_OF)));
        }
    }
}

/// At the first registration, no router has carried an answer yet, and the kernel prefers the forged router.
#[test]
fn first_registration_is_tried_over_each_router_of_the_address() {
    for setup in setups() {
        let mut pair = Pair::new(setup);
        pair.dead_routers = vec![addr(FORGER)];
        show(&mut pair, &[], &[FORGER, ROUTER_A]);
        pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
        pair.hear_router("wifi", FORGER, &[NETWORK]);
        show(&mut pair, &[CARE_OF], &[FORGER, ROUTER_A]);
        let took = pair.run_while(8.0, "a registration", |pair| registered_at(pair) != Some(addr(CARE_OF)));
        assert!(took <= Duration::from_secs(4), "{took:?}");
        assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF), addr(ROUTER_A))));
    }
}

/// The home agent is down for longer: the router alternates between the routers of its address.
#[test]
fn router_of_an_address_is_found_again_after_an_outage_of_the_home_agent() {
    for setup in setups() {
        let mut pair = visiting(setup);
        pair.hear_router("wifi", FORGER, &[NETWORK]);
        show(&mut pair, &[CARE_OF], &[FORGER, ROUTER_A]);
        run_answered(&mut pair, 3000, &[ROUTER_A, FORGER]);
        pair.agent_down = true;
        run_answered(&mut pair, 50_000, &[ROUTER_A, FORGER]);
        pair.restart_agent(true);
        pair.agent_down = false;
        assert!(until_served(&mut pair, &[ROUTER_A, FORGER], 70_000) <= 70_000);
    }
}

/// Without heartbeats, a Binding Update tests the new router of the registered address at once.
#[test]
fn registration_is_renewed_at_once_when_its_address_gets_another_router() {
    for is_good in [true, false] {
        for bid in [None, Some(1)] {
            let mut setup = Setup::plain();
            setup.routers[0].uplinks[0].bid = bid;
            let mut pair = visiting(setup);
            pair.hear_router("wifi", ROUTER_B, &[NETWORK]);
            let state = |pair: &mut Pair, neighbour| {
                let mut known = routes(&[ROUTER_A, ROUTER_B]);
                known[0].neighbour = neighbour;
                let own = crate::setup::autoconfigured(&["fe80::2", CARE_OF]);
                pair.tell(0, "wifi", own, known);
            };
            state(&mut pair, NeighbourState::Known);
            run_answered(&mut pair, 2000, &[ROUTER_A]);
            pair.forget();
            if !is_good {
                pair.dead_routers.push(addr(ROUTER_B));
            }
            state(&mut pair, NeighbourState::Failed);
            pair.run(0.3);
            assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF), addr(ROUTER_B))));
            assert_eq!(pair.updates().len(), 1, "{is_good} {bid:?}");
            // The first router answers again.
            state(&mut pair, NeighbourState::Known);
            let took = pair.run_while(8.0, "a registration", |pair| {
                registered_at(pair) != Some(addr(CARE_OF))
                    || pair.machine().uplinks()[0].next_hop(addr(CARE_OF).into()) == Some(addr(FORGER).into())
            });
            assert!(took <= Duration::from_secs(3), "{took:?}");
            if !is_good {
                assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF), addr(ROUTER_A))));
            }
        }
    }
}

/// The operator has configured address and default route. A host advertises the prefix of the address, and is
/// a default router in the kernel's list.
#[test]
fn operator_s_default_route_is_used_when_a_stranger_advertises_the_prefix_of_a_static_address() {
    const OPERATOR_S: &str = "fe80::c";
    for gateways in [[OPERATOR_S, FORGER], [FORGER, OPERATOR_S]] {
        for was_registered in [true, false] {
            let mut pair = Pair::new(Setup::plain());
            pair.dead_routers = vec![addr(FORGER)];
            let known: Vec<Address> = addresses(&["fe80::2", CARE_OF]);
            if was_registered {
                pair.tell(0, "wifi", known.clone(), routes(&[OPERATOR_S]));
                pair.register();
            }
            pair.tell(0, "wifi", known.clone(), routes(&gateways));
            pair.hear_router("wifi", FORGER, &[NETWORK]);
            if was_registered || gateways[0] == OPERATOR_S {
                assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF), addr(OPERATOR_S))), "{gateways:?}");
            }
            run_answered(&mut pair, 5000, &[OPERATOR_S, FORGER]);
            assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF), addr(OPERATOR_S))), "{gateways:?}");
            assert_eq!(registered_at(&pair), Some(addr(CARE_OF)));
        }
    }
}

/// RFC 4861 6.2.3: a router splits its prefixes over several advertisements. It answers a solicitation with
/// all of them, or with one part.
#[test]
fn router_that_splits_its_prefixes_does_not_move_the_uplink() {
    for setup in setups() {
        for apart in [0.02, 0.4, 3.0, 30.0] {
            for answers_in_full in [true, false] {
                let mut pair = visiting(setup.clone());
                pair.hear_router("wifi", ROUTER_A, &[OTHER_NETWORK]);
                show(&mut pair, &[CARE_OF, OTHER_CARE_OF], &[ROUTER_A]);
                let mut moves = Vec::new();
                for turn in 0..40 {
                    let asked = sent_on_link(&pair, icmpv6::types::ROUTER_SOLICITATION).len();
                    if asked > 0 {
                        pair.link.clear();
                        pair.hear_router("wifi", ROUTER_A, &[OTHER_NETWORK]);
                        if answers_in_full {
                            pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
                        }
                    }
                    let before = pair.path();
                    pair.run(apart);
                    if pair.path() != before {
                        moves.push(turn);
                    }
                    let prefix = if turn % 2 == 0 { NETWORK } else { OTHER_NETWORK };
                    pair.hear_router("wifi", ROUTER_A, &[prefix]);
                }
                let most = if answers_in_full { 0 } else { 3 };
                assert!(moves.len() <= most, "{apart} {answers_in_full}: {moves:?}");
                assert!(moves.iter().all(|turn| *turn < 20), "{apart}: {moves:?}");
            }
        }
    }
}

/// Forged advertisements without end of new routers and prefixes, in the name of others and of the router in
/// use. They cause few messages.
#[test]
fn forged_advertisements_without_end_cause_few_messages_and_no_move() {
    for setup in setups() {
        let mut pair = visiting(setup);
        run_answered(&mut pair, 1000, &[ROUTER_A]);
        let mut probes = 0;
        for index in 0..2000_u32 {
            pair.link.clear();
            let source = if index % 3 == 0 { ROUTER_A.into() } else { format!("fe80::bad:{index:x}") };
            pair.hear_router("wifi", &source, &[&format!("2001:db8:bad:{index:x}::/64")]);
            if index % 500 == 0 {
                pair.hear_router("wifi", ROUTER_A, &[NETWORK]);
            }
            probes += pair.link.iter().filter(|(_, from, _)| *from == Some(0)).count();
            run_answered(&mut pair, 10, &[ROUTER_A]);
            probes += pair.link.len();
            assert_eq!(registered_at(&pair), Some(addr(CARE_OF)), "{index}");
        }
        assert!(probes <= 500, "{probes} in 20 s");
        let moves = pair.events.iter().filter(|(_, _, event)| matches!(event, Event::Handover { .. }));
        assert_eq!(moves.count(), 0);
    }
}
