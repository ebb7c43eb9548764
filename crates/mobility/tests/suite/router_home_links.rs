//! Mobile router: home links with several routers, and forged Router Advertisements (RFC 6275 11.5.5, RFC
//! 4861 6.1.2).

use std::net::Ipv6Addr;

use carnet_base::LinkMessage;
use carnet_mobility::Event;
use carnet_mobility::mobile_router::Attachment;
use carnet_wire::{icmpv6, nd};

use crate::agent_and_routers::{AgentAndRouters, PairSetup};
use crate::router_candidates::{
    HOME_ROUTER, OTHER_NETWORK, ROUTER_A, ROUTER_B, VISITED_NETWORK, answer_probe, is_probe, registered_pair,
    set_addresses_and_routes, setup_with_heartbeats,
};
use crate::test_messages::*;
use crate::test_setup::{ADDRESS_ON_HOME_LINK, router_advertisement};

const SECOND_HOME_ROUTER: &str = "fe80::12";
/// A host on a foreign link that advertises the home prefix.
pub const FORGER_ADDRESS: &str = "fe80::66";

/// Advances the time by `millis`. Meanwhile the routers with these addresses answer probes.
pub fn advance_answering_probes(pair: &mut AgentAndRouters, millis: u32, routers: &[&str]) {
    for _ in 0..millis / 10 {
        pair.link_messages.clear();
        pair.advance_seconds(0.01);
        let sent: Vec<LinkMessage> = pair
            .link_messages
            .iter()
            .filter(|(_, from, _)| *from == Some(0))
            .map(|(.., it)| it.clone())
            .collect();
        for probe in sent.iter().filter(|message| is_probe(message)) {
            routers.iter().for_each(|router| answer_probe(pair, router, probe));
        }
    }
}

/// Delivers a Router Advertisement that `change` has altered.
pub fn receive_altered_advertisement(
    pair: &mut AgentAndRouters,
    change: impl Fn(&mut [u8]),
    source: &str,
    prefix: &str,
) {
    let mut message = router_advertisement("wifi", source, &[prefix]);
    change(&mut message.message);
    message.message[2..4].fill(0);
    icmpv6::set_checksum(&mut message.message, addr(source), nd::ALL_NODES);
    pair.run_on_router(0, |machine, now, wall| machine.handle_link_message(now, wall, &message))
        .expect("a right advertisement");
}

/// Sets the router lifetime to 0.
pub fn clear_router_lifetime(message: &mut [u8]) {
    message[6..8].fill(0);
}

pub fn is_at_home(pair: &AgentAndRouters) -> bool {
    matches!(pair.first_router().uplinks()[0].attachment, Attachment::Home { .. })
}

pub fn registered_care_of_address(pair: &AgentAndRouters) -> Option<Ipv6Addr> {
    pair.registered_care_of_address().filter(|bound| pair.path_of_first_router() == Some(*bound))
}

/// Creates a home agent and a router on its home link. The two routers of this link advertise `apart`
/// milliseconds after each other.
fn home_with_two_routers(setup: PairSetup, apart: u32) -> AgentAndRouters {
    let both = [HOME_ROUTER, SECOND_HOME_ROUTER];
    let mut pair = registered_pair(setup);
    pair.detach_uplink(0, "wifi");
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK], &[HOME_ROUTER]);
    advance_answering_probes(&mut pair, apart, &both);
    pair.receive_router_advertisement("wifi", SECOND_HOME_ROUTER, &[HOME_PREFIX]);
    set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK], &both);
    advance_answering_probes(&mut pair, 5000, &both);
    assert!(is_at_home(&pair) && pair.first_router().is_at_home());
    pair
}

#[test]
fn home_link_is_kept_when_one_of_its_two_routers_fails() {
    for apart in [100, 3000, 60_000] {
        for living in [HOME_ROUTER, SECOND_HOME_ROUTER] {
            let mut pair = home_with_two_routers(setup_with_heartbeats(), apart);
            for _ in 0..500 {
                advance_answering_probes(&mut pair, 10, &[living]);
                assert!(is_at_home(&pair), "{apart} {living}");
            }
            let returns = pair.events.iter().filter(|(_, _, event)| matches!(event, Event::AtHome { .. }));
            assert_eq!(returns.count(), 1);
        }
    }
}

/// RFC 6275 11.5.1: a move without loss of carrier. If no router of the new link is heard, each router of the
/// home link has 1.2 s.
#[test]
fn router_leaves_home_link_with_two_silent_home_routers() {
    for apart in [100, 3000, 60_000] {
        for (is_heard, limit) in [(true, 500), (false, 2500)] {
            let mut pair = home_with_two_routers(setup_with_heartbeats(), apart);
            if is_heard {
                pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
                let routers = [HOME_ROUTER, SECOND_HOME_ROUTER, ROUTER_B];
                set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK, OTHER_CARE_OF_ADDRESS], &routers);
            }
            let mut took = 0;
            while is_at_home(&pair) && took <= limit {
                advance_answering_probes(&mut pair, 10, &[ROUTER_B]);
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
            let mut setup = setup_with_heartbeats();
            setup.routers[0].uplinks[0].bid = bid;
            let mut pair = AgentAndRouters::new(setup);
            set_addresses_and_routes(&mut pair, &[], &[ROUTER_A]);
            pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
            set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
            pair.advance_seconds(5.0);
            assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
            pair.dead_addresses.push(addr(HOME_ADDRESS));
            let gateways: &[&str] = if is_default { &[FORGER_ADDRESS, ROUTER_A] } else { &[ROUTER_A] };
            set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK], gateways);
            let change = if is_default { |_: &mut [u8]| () } else { clear_router_lifetime };
            receive_altered_advertisement(&mut pair, change, FORGER_ADDRESS, HOME_PREFIX);
            assert!(is_at_home(&pair));
            for second in 0..600 {
                advance_answering_probes(&mut pair, 1000, &[ROUTER_A]);
                if second % 30 == 0 {
                    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
                }
                assert_eq!(
                    registered_care_of_address(&pair),
                    Some(addr(CARE_OF_ADDRESS)),
                    "{is_default} {bid:?} {second}"
                );
            }
        }
    }
}

/// RFC 4861 6.3.5: a prefix whose valid lifetime has ended is no longer on the link.
#[test]
fn home_link_ends_with_the_valid_lifetime_of_its_prefix() {
    let mut pair = registered_pair(setup_with_heartbeats());
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK], &[ROUTER_A]);
    let short = |message: &mut [u8]| {
        clear_router_lifetime(message);
        for lifetime in [20..24, 24..28] {
            message[lifetime].copy_from_slice(&30_u32.to_be_bytes());
        }
    };
    receive_altered_advertisement(&mut pair, short, HOME_ROUTER, HOME_PREFIX);
    pair.advance_seconds(29.0);
    assert!(is_at_home(&pair));
    pair.advance_seconds(2.0);
    assert!(!is_at_home(&pair));
}

/// The home agent is no default router, and other routers advertise without end.
#[test]
fn flood_of_routers_does_not_end_the_home_link() {
    let mut pair = registered_pair(setup_with_heartbeats());
    pair.detach_uplink(0, "wifi");
    set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK], &[ROUTER_A]);
    receive_altered_advertisement(&mut pair, clear_router_lifetime, HOME_ROUTER, HOME_PREFIX);
    advance_answering_probes(&mut pair, 5000, &[HOME_ROUTER, ROUTER_A]);
    for index in 0..100 {
        let prefix = format!("2001:db8:{index:x}::/64");
        pair.receive_router_advertisement("wifi", &format!("fe80::c:{index:x}"), &[&prefix]);
        advance_answering_probes(&mut pair, 50, &[HOME_ROUTER, ROUTER_A]);
        assert!(is_at_home(&pair), "{index}");
    }
}

/// Returns a pair whose router, registered with a Binding Identifier, has just come home. The home agent does
/// not receive the de-registration.
fn pair_returning_home_with_identifier() -> AgentAndRouters {
    let mut setup = setup_with_heartbeats();
    setup.routers[0].uplinks[0].bid = Some(1);
    let mut pair = AgentAndRouters::new(setup);
    set_addresses_and_routes(&mut pair, &[], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.advance_seconds(5.0);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
    pair.dead_addresses.push(addr(HOME_ADDRESS));
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK], &[ROUTER_A, HOME_ROUTER]);
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    pair
}

/// With Binding Identifiers, the router leaves home before the home agent has answered the de-registration.
#[test]
fn router_with_bids_that_leaves_home_before_the_answer_registers_again() {
    let mut pair = pair_returning_home_with_identifier();
    pair.advance_seconds(1.0);
    assert!(is_at_home(&pair));
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(0.3);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    pair.advance_seconds(120.0);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
}

/// RFC 3963 5.8: until the acknowledgement of the return, traffic leaves by the tunnel.
#[test]
fn router_with_bids_uses_tunnel_until_return_is_acknowledged() {
    let mut pair = pair_returning_home_with_identifier();
    assert!(is_at_home(&pair) && !pair.first_router().is_at_home());
    for _ in 0..20 {
        advance_answering_probes(&mut pair, 100, &[HOME_ROUTER]);
        assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
    }
    pair.dead_addresses.clear();
    advance_answering_probes(&mut pair, 10_000, &[HOME_ROUTER]);
    assert!(pair.first_router().is_at_home());
    advance_answering_probes(&mut pair, 5000, &[HOME_ROUTER]);
    assert_eq!((pair.path_of_first_router(), pair.registered_care_of_address()), (None, None));
}
