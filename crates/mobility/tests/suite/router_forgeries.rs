//! Mobile router: hosts of the visited link that forge Router Advertisements (RFC 3756), and routers that
//! advertise in unusual ways (RFC 4861 6.2.3).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Address, NeighbourState};
use carnet_mobility::Event;
use carnet_mobility::mobile_router::Attachment;
use carnet_wire::icmpv6;

use crate::agent_and_routers::{AgentAndRouters, PairSetup};
use crate::router_candidates::{
    HOME_ROUTER, OTHER_NETWORK, ROUTER_A, ROUTER_B, VISITED_NETWORK, default_routes,
    message_destinations_on_link, pair_in_use, set_addresses_and_routes, setup_with_heartbeats,
};
use crate::router_home_links::{
    FORGER_ADDRESS, advance_answering_probes, clear_router_lifetime, is_at_home,
    receive_altered_advertisement, registered_care_of_address,
};
use crate::test_messages::*;
use crate::test_setup::{ADDRESS_ON_HOME_LINK, addresses};

fn next_hop_of(pair: &AgentAndRouters, address: &str) -> Option<Ipv6Addr> {
    let router = pair.first_router().uplinks()[0].next_hop(addr(address).into())?;
    router.to_string().parse().ok()
}

/// Returns the setups with and without heartbeats, each with and without a Binding Identifier.
fn all_setups() -> Vec<PairSetup> {
    let mut setups = Vec::new();
    for setup in [setup_with_heartbeats(), PairSetup::plain_setup()] {
        for bid in [None, Some(1)] {
            let mut setup = setup.clone();
            setup.routers[0].uplinks[0].bid = bid;
            setups.push(setup);
        }
    }
    setups
}

/// Creates a home agent and a router that is registered at [`CARE_OF_ADDRESS`] over [`ROUTER_A`]. Packets to
/// [`FORGER_ADDRESS`] are lost.
fn visiting_pair(setup: PairSetup) -> AgentAndRouters {
    let mut pair = AgentAndRouters::new(setup);
    set_addresses_and_routes(&mut pair, &[], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.advance_seconds(5.0);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
    pair.dead_routers = vec![addr(FORGER_ADDRESS)];
    pair.clear_records();
    pair
}

/// A host on a foreign link forges a default router that advertises the home prefix. The kernel prefers it.
#[test]
fn tunnel_keeps_its_router_when_a_default_router_forges_the_home_prefix() {
    for setup in all_setups() {
        let mut pair = visiting_pair(setup);
        set_addresses_and_routes(
            &mut pair,
            &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK],
            &[FORGER_ADDRESS, ROUTER_A],
        );
        pair.receive_router_advertisement("wifi", FORGER_ADDRESS, &[HOME_PREFIX]);
        assert!(is_at_home(&pair));
        let mut left = None;
        for tenth in 0..600 {
            assert_eq!(next_hop_of(&pair, CARE_OF_ADDRESS), Some(addr(ROUTER_A)), "{tenth}");
            assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)), "{tenth}");
            advance_answering_probes(&mut pair, 100, &[ROUTER_A, FORGER_ADDRESS]);
            left = left.or((!is_at_home(&pair)).then_some(tenth));
        }
        assert!(left.is_some_and(|left| left <= 75), "{left:?} tenths of a second");
    }
}

/// The router tries the return over each router of the home link in turn, because one of them is forged.
#[test]
fn router_returns_home_over_next_home_router_if_the_first_is_forged() {
    for first in [FORGER_ADDRESS, HOME_ROUTER] {
        let mut pair = visiting_pair(PairSetup::plain_setup());
        let second = if first == FORGER_ADDRESS { HOME_ROUTER } else { FORGER_ADDRESS };
        pair.detach_uplink(0, "wifi");
        pair.advance_seconds(0.3);
        set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK], &[first, second]);
        pair.receive_router_advertisement("wifi", first, &[HOME_PREFIX]);
        pair.receive_router_advertisement("wifi", second, &[HOME_PREFIX]);
        let both = [FORGER_ADDRESS, HOME_ROUTER];
        advance_answering_probes(&mut pair, 4500, &both);
        assert!(pair.first_router().is_at_home(), "{first}");
        assert_eq!(pair.registered_care_of_address(), None);
    }
}

/// The home agent is down. The router returns home as soon as the home agent is back, although the visited
/// link's address is still there.
#[test]
fn router_completes_return_home_after_an_outage_of_the_home_agent() {
    for setup in all_setups() {
        let mut pair = visiting_pair(setup);
        pair.dead_routers = vec![addr(ROUTER_A)];
        pair.is_agent_down = true;
        pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
        set_addresses_and_routes(
            &mut pair,
            &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK],
            &[HOME_ROUTER, ROUTER_A],
        );
        advance_answering_probes(&mut pair, 40_000, &[HOME_ROUTER]);
        pair.is_agent_down = false;
        let mut took = 0;
        while !pair.first_router().is_at_home() {
            advance_answering_probes(&mut pair, 100, &[HOME_ROUTER]);
            took += 100;
            assert!(took <= 35_000, "{took} ms");
        }
    }
}

/// Two routers have advertised the home prefix before the kernel's list has them. The one that advertised
/// last answers no probe.
#[test]
fn router_leaves_home_router_that_answers_no_probe_for_another() {
    let mut pair = visiting_pair(setup_with_heartbeats());
    pair.dead_routers.clear();
    pair.detach_uplink(0, "wifi");
    set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    pair.receive_router_advertisement("wifi", FORGER_ADDRESS, &[HOME_PREFIX]);
    set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK], &[FORGER_ADDRESS, HOME_ROUTER]);
    let router = |pair: &AgentAndRouters| match pair.first_router().uplinks()[0].attachment {
        Attachment::Home { router } => router,
        _ => None,
    };
    assert_eq!(router(&pair), Some(addr(FORGER_ADDRESS)));
    for second in 1..=20 {
        advance_answering_probes(&mut pair, 1000, &[HOME_ROUTER]);
        assert!(second < 2 || router(&pair) == Some(addr(HOME_ROUTER)), "{second}");
    }
    assert!(pair.first_router().is_at_home());
}

/// The operator's address shows the home link. A forged advertisement of the home prefix comes and ends.
#[test]
fn static_address_identifies_home_link_after_a_forged_home_router_expires() {
    let mut pair = visiting_pair(setup_with_heartbeats());
    pair.detach_uplink(0, "wifi");
    pair.set_uplink_state(
        0,
        "wifi",
        addresses(&["fe80::2", ADDRESS_ON_HOME_LINK]),
        default_routes(&[ROUTER_B]),
    );
    pair.advance_seconds(2.0);
    assert!(pair.first_router().is_at_home());
    let short = |message: &mut [u8]| {
        clear_router_lifetime(message);
        message[20..24].copy_from_slice(&1_u32.to_be_bytes());
    };
    receive_altered_advertisement(&mut pair, short, FORGER_ADDRESS, HOME_PREFIX);
    pair.advance_seconds(10.0);
    assert!(is_at_home(&pair) && pair.first_router().is_at_home());
}

/// A host sends forged advertisements of many prefixes in the name of the home router.
#[test]
fn home_link_stays_when_its_router_seems_to_advertise_many_prefixes() {
    let mut pair = visiting_pair(setup_with_heartbeats());
    pair.detach_uplink(0, "wifi");
    set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK], &[HOME_ROUTER]);
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    advance_answering_probes(&mut pair, 2000, &[HOME_ROUTER]);
    for index in 0..200 {
        pair.receive_router_advertisement("wifi", HOME_ROUTER, &[&format!("2001:db8:bad:{index:x}::/64")]);
        advance_answering_probes(&mut pair, 10, &[HOME_ROUTER]);
        if index % 40 == 0 {
            // The home router answers the Router Solicitation.
            pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
        }
        assert!(is_at_home(&pair), "{index}");
    }
}

/// Prefixes and addresses that a host on the link has forged.
fn hostile_prefixes(count: u16) -> (Vec<String>, Vec<String>) {
    let prefixes = (0..count).map(|index| format!("2001:db8:bad:{index:x}::/64")).collect();
    (prefixes, (0..count).map(|index| format!("2001:db8:bad:{index:x}::10")).collect())
}

/// Lets a host advertise 15 prefixes in the name of `router`. The kernel has made addresses of them, and
/// prefers `first` of the routers. Packets from these addresses are lost.
fn advertise_hostile_prefixes(pair: &mut AgentAndRouters, router: &str, first: &str) {
    let (prefixes, hostile) = hostile_prefixes(15);
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    pair.receive_router_advertisement("wifi", router, &prefixes);
    let all: Vec<&str> = hostile.iter().map(String::as_str).chain([CARE_OF_ADDRESS]).collect();
    let second = if first == FORGER_ADDRESS { ROUTER_A } else { FORGER_ADDRESS };
    set_addresses_and_routes(pair, &all, &[first, second]);
    pair.dead_addresses.extend(hostile.iter().map(|address| addr(address)));
}

/// Runs until packets from [`CARE_OF_ADDRESS`] leave by [`ROUTER_A`] and the home agent answers, for at most
/// `most` milliseconds. Returns how many milliseconds this took.
fn count_probes_until_served(pair: &mut AgentAndRouters, answering: &[&str], most: u32) -> u32 {
    let is_served = |pair: &AgentAndRouters| {
        registered_care_of_address(pair) == Some(addr(CARE_OF_ADDRESS))
            && next_hop_of(pair, CARE_OF_ADDRESS) == Some(addr(ROUTER_A))
            && !pair.first_router().has_path_failed(0)
    };
    let mut took = 0;
    while !is_served(pair) && took <= most {
        advance_answering_probes(pair, 10, answering);
        took += 10;
    }
    took
}

/// The path fails for 2 s, and a host on the link has forged 15 prefixes.
#[test]
fn router_recovers_soon_from_outage_on_link_with_many_forged_prefixes() {
    for setup in all_setups() {
        for (router, first) in
            [(FORGER_ADDRESS, FORGER_ADDRESS), (FORGER_ADDRESS, ROUTER_A), (ROUTER_A, ROUTER_A)]
        {
            let mut pair = visiting_pair(setup.clone());
            advertise_hostile_prefixes(&mut pair, router, first);
            for _ in 0..50 {
                advance_answering_probes(&mut pair, 100, &[ROUTER_A]);
                assert_eq!(
                    registered_care_of_address(&pair),
                    Some(addr(CARE_OF_ADDRESS)),
                    "nothing works better"
                );
            }
            pair.dead_addresses.push(addr(CARE_OF_ADDRESS));
            advance_answering_probes(&mut pair, 2000, &[]);
            pair.dead_addresses.pop();
            let took = count_probes_until_served(&mut pair, &[ROUTER_A], 5000);
            assert!(took <= 2000, "{router} {first}: {took} ms");
            for _ in 0..100 {
                advance_answering_probes(&mut pair, 1000, &[ROUTER_A]);
                assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
            }
        }
    }
}

/// The path fails for 2 s, and a host on the link has forged 12 default routers that advertise the prefix of
/// the address.
#[test]
fn router_recovers_soon_from_outage_on_link_with_many_forged_routers() {
    for setup in all_setups() {
        let mut pair = visiting_pair(setup);
        let forged: Vec<String> = (1..=12).map(|index| format!("fe80::bad:{index:x}")).collect();
        pair.dead_routers = forged.iter().map(|router| addr(router)).collect();
        forged
            .iter()
            .for_each(|router| pair.receive_router_advertisement("wifi", router, &[VISITED_NETWORK]));
        let all: Vec<&str> = forged.iter().map(String::as_str).chain([ROUTER_A]).collect();
        set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &all);
        let answering = all.clone();
        advance_answering_probes(&mut pair, 3000, &answering);
        assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
        pair.dead_addresses.push(addr(CARE_OF_ADDRESS));
        advance_answering_probes(&mut pair, 2000, &answering);
        pair.dead_addresses.clear();
        let took = count_probes_until_served(&mut pair, &answering, 5000);
        assert!(took <= 3000, "{took} ms");
    }
}

/// Each proven candidate stays among the few that the router tries.
#[test]
fn router_keeps_proven_candidate_among_the_first_two_despite_forgeries() {
    let mut pair = visiting_pair(setup_with_heartbeats());
    advertise_hostile_prefixes(&mut pair, FORGER_ADDRESS, FORGER_ADDRESS);
    pair.dead_addresses.push(addr(CARE_OF_ADDRESS));
    for turn in 0..200 {
        advance_answering_probes(&mut pair, 100, &[]);
        let addresses = pair.first_router().uplinks()[0].care_of_addresses();
        assert!(addresses.len() <= 4, "{turn}: {addresses:?}");
        assert!(addresses.iter().take(2).any(|it| *it == addr(CARE_OF_ADDRESS)), "{turn}: {addresses:?}");
    }
}

/// A forged default router advertises the prefix of the address in use. The kernel prefers it.
#[test]
fn address_keeps_its_proven_router_when_a_forged_one_advertises_its_prefix() {
    for setup in all_setups() {
        let mut pair = visiting_pair(setup);
        pair.receive_router_advertisement("wifi", FORGER_ADDRESS, &[VISITED_NETWORK]);
        set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[FORGER_ADDRESS, ROUTER_A]);
        for _ in 0..600 {
            advance_answering_probes(&mut pair, 100, &[ROUTER_A, FORGER_ADDRESS]);
            assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
            assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
        }
    }
}

/// At the first registration the router has no answer over any router yet, and the kernel prefers the forged
/// router.
#[test]
fn first_registration_is_tried_over_each_router_of_the_address() {
    for setup in all_setups() {
        let mut pair = AgentAndRouters::new(setup);
        pair.dead_routers = vec![addr(FORGER_ADDRESS)];
        set_addresses_and_routes(&mut pair, &[], &[FORGER_ADDRESS, ROUTER_A]);
        pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
        pair.receive_router_advertisement("wifi", FORGER_ADDRESS, &[VISITED_NETWORK]);
        set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[FORGER_ADDRESS, ROUTER_A]);
        let took = pair.advance_while(8.0, "a registration", |pair| {
            registered_care_of_address(pair) != Some(addr(CARE_OF_ADDRESS))
        });
        assert!(took <= Duration::from_secs(4), "{took:?}");
        assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
    }
}

/// The home agent is down for longer: the router alternates between the routers of its address.
#[test]
fn router_of_an_address_is_found_again_after_an_outage_of_the_home_agent() {
    for setup in all_setups() {
        let mut pair = visiting_pair(setup);
        pair.receive_router_advertisement("wifi", FORGER_ADDRESS, &[VISITED_NETWORK]);
        set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[FORGER_ADDRESS, ROUTER_A]);
        advance_answering_probes(&mut pair, 3000, &[ROUTER_A, FORGER_ADDRESS]);
        pair.is_agent_down = true;
        advance_answering_probes(&mut pair, 50_000, &[ROUTER_A, FORGER_ADDRESS]);
        pair.restart_agent(true);
        pair.is_agent_down = false;
        assert!(count_probes_until_served(&mut pair, &[ROUTER_A, FORGER_ADDRESS], 70_000) <= 70_000);
    }
}

/// Without heartbeats, a Binding Update tests the new router of the registered address at once.
#[test]
fn registration_is_renewed_at_once_when_its_address_gets_another_router() {
    for is_good in [true, false] {
        for bid in [None, Some(1)] {
            let mut setup = PairSetup::plain_setup();
            setup.routers[0].uplinks[0].bid = bid;
            let mut pair = visiting_pair(setup);
            pair.receive_router_advertisement("wifi", ROUTER_B, &[VISITED_NETWORK]);
            let state = |pair: &mut AgentAndRouters, neighbour| {
                let mut known = default_routes(&[ROUTER_A, ROUTER_B]);
                known[0].neighbour = neighbour;
                let own = crate::test_setup::autoconfigured_addresses(&["fe80::2", CARE_OF_ADDRESS]);
                pair.set_uplink_state(0, "wifi", own, known);
            };
            state(&mut pair, NeighbourState::Known);
            advance_answering_probes(&mut pair, 2000, &[ROUTER_A]);
            pair.clear_records();
            if !is_good {
                pair.dead_routers.push(addr(ROUTER_B));
            }
            state(&mut pair, NeighbourState::Failed);
            pair.advance_seconds(0.3);
            assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_B))));
            assert_eq!(pair.sent_updates().len(), 1, "{is_good} {bid:?}");
            // The first router answers Neighbor Solicitations again.
            state(&mut pair, NeighbourState::Known);
            let took = pair.advance_while(8.0, "a registration", |pair| {
                registered_care_of_address(pair) != Some(addr(CARE_OF_ADDRESS))
                    || pair.first_router().uplinks()[0].next_hop(addr(CARE_OF_ADDRESS).into())
                        == Some(addr(FORGER_ADDRESS).into())
            });
            assert!(took <= Duration::from_secs(3), "{took:?}");
            if !is_good {
                assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
            }
        }
    }
}

/// The operator has configured address and default route. A host advertises the prefix of the address, and is
/// a default router in the kernel's list.
#[test]
fn static_address_keeps_operators_default_route_despite_forged_router() {
    const OPERATOR_ROUTER: &str = "fe80::c";
    for gateways in [[OPERATOR_ROUTER, FORGER_ADDRESS], [FORGER_ADDRESS, OPERATOR_ROUTER]] {
        for was_registered in [true, false] {
            let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
            pair.dead_routers = vec![addr(FORGER_ADDRESS)];
            let known: Vec<Address> = addresses(&["fe80::2", CARE_OF_ADDRESS]);
            if was_registered {
                pair.set_uplink_state(0, "wifi", known.clone(), default_routes(&[OPERATOR_ROUTER]));
                pair.register_router();
            }
            pair.set_uplink_state(0, "wifi", known.clone(), default_routes(&gateways));
            pair.receive_router_advertisement("wifi", FORGER_ADDRESS, &[VISITED_NETWORK]);
            if was_registered || gateways[0] == OPERATOR_ROUTER {
                assert_eq!(
                    pair_in_use(&pair),
                    Some((addr(CARE_OF_ADDRESS), addr(OPERATOR_ROUTER))),
                    "{gateways:?}"
                );
            }
            advance_answering_probes(&mut pair, 5000, &[OPERATOR_ROUTER, FORGER_ADDRESS]);
            assert_eq!(
                pair_in_use(&pair),
                Some((addr(CARE_OF_ADDRESS), addr(OPERATOR_ROUTER))),
                "{gateways:?}"
            );
            assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
        }
    }
}

/// RFC 4861 6.2.3: a router splits its prefixes over several advertisements. It answers a solicitation with
/// all of them, or with one part.
#[test]
fn router_that_splits_its_prefixes_does_not_move_the_uplink() {
    for setup in all_setups() {
        for apart in [0.02, 0.4, 3.0, 30.0] {
            for answers_in_full in [true, false] {
                let mut pair = visiting_pair(setup.clone());
                pair.receive_router_advertisement("wifi", ROUTER_A, &[OTHER_NETWORK]);
                set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A]);
                let mut moves = Vec::new();
                for turn in 0..40 {
                    let asked =
                        message_destinations_on_link(&pair, icmpv6::message_type::ROUTER_SOLICITATION).len();
                    if asked > 0 {
                        pair.link_messages.clear();
                        pair.receive_router_advertisement("wifi", ROUTER_A, &[OTHER_NETWORK]);
                        if answers_in_full {
                            pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
                        }
                    }
                    let before = pair.path_of_first_router();
                    pair.advance_seconds(apart);
                    if pair.path_of_first_router() != before {
                        moves.push(turn);
                    }
                    let prefix = if turn % 2 == 0 { VISITED_NETWORK } else { OTHER_NETWORK };
                    pair.receive_router_advertisement("wifi", ROUTER_A, &[prefix]);
                }
                let most = if answers_in_full { 0 } else { 3 };
                assert!(moves.len() <= most, "{apart} {answers_in_full}: {moves:?}");
                assert!(moves.iter().all(|turn| *turn < 20), "{apart}: {moves:?}");
            }
        }
    }
}

/// An attacker forges advertisements of new routers and prefixes without end, in the name of others and of
/// the router in use. They cause few messages.
#[test]
fn forged_advertisements_without_end_cause_few_messages_and_no_move() {
    for setup in all_setups() {
        let mut pair = visiting_pair(setup);
        advance_answering_probes(&mut pair, 1000, &[ROUTER_A]);
        let mut probes = 0;
        for index in 0..2000_u32 {
            pair.link_messages.clear();
            let source = if index % 3 == 0 { ROUTER_A.into() } else { format!("fe80::bad:{index:x}") };
            pair.receive_router_advertisement("wifi", &source, &[&format!("2001:db8:bad:{index:x}::/64")]);
            if index % 500 == 0 {
                pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
            }
            probes += pair.link_messages.iter().filter(|(_, from, _)| *from == Some(0)).count();
            advance_answering_probes(&mut pair, 10, &[ROUTER_A]);
            probes += pair.link_messages.len();
            assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)), "{index}");
        }
        assert!(probes <= 500, "{probes} in 20 s");
        let moves = pair.events.iter().filter(|(_, _, event)| matches!(event, Event::Handover { .. }));
        assert_eq!(moves.count(), 0);
    }
}
