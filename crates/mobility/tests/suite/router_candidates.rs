//! Mobile router with several addresses and several routers on one uplink (RFC 6724, RFC 8028, RFC 8978). The
//! tests check the router that each address uses. They also check routers that leave without an advertisement
//! (RFC 6275 11.5.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Address, Interface, Ipv4Router, Ipv6Router, LinkMessage, NeighbourState, Rng, Time};
use carnet_mobility::mobile_router::{Attachment, HeartbeatIntervals};
use carnet_mobility::{Event, MobileRouter};
use carnet_wire::{icmpv6, nd};

use crate::agent::WALL_START;
use crate::agent_and_routers::{AgentAndRouters, PairSetup};
use crate::test_messages::*;
use crate::test_setup::{
    ADDRESS_ON_HOME_LINK, addresses, autoconfigured_addresses, link_address_of, router_advertisement,
};

pub const VISITED_NETWORK: &str = "2001:db8:f1::/64";
pub const OTHER_NETWORK: &str = "2001:db8:f2::/64";
pub const ROUTER_A: &str = "fe80::a";
pub const ROUTER_B: &str = "fe80::b";
pub const HOME_ROUTER: &str = "fe80::1";
/// Longest interruption of a move, from the moment at which the new address may be used.
const MAX_OUTAGE: Duration = Duration::from_millis(1500);

/// Returns the setup of a router with heartbeats.
pub fn setup_with_heartbeats() -> PairSetup {
    let mut setup = PairSetup::plain_setup();
    setup.routers[0].liveness = Some(HeartbeatIntervals::default());
    setup
}

pub fn default_routes(gateways: &[&str]) -> Vec<Ipv6Router> {
    gateways.iter().map(|gateway| addr(gateway).into()).collect()
}

/// Gives wifi these addresses and default routes, as the kernel derives them from advertisements.
pub fn set_addresses_and_routes(pair: &mut AgentAndRouters, addresses: &[&str], gateways: &[&str]) {
    let all: Vec<&str> = ["fe80::2"].into_iter().chain(addresses.iter().copied()).collect();
    pair.set_uplink_state(0, "wifi", autoconfigured_addresses(&all), default_routes(gateways));
}

fn registered_care_of_address(pair: &AgentAndRouters) -> Option<Ipv6Addr> {
    pair.first_router().uplinks()[0].care_of_address()
}

/// Returns the care-of address and the router of the uplink's first candidate; `None` without a candidate.
pub fn pair_in_use(pair: &AgentAndRouters) -> Option<(Ipv6Addr, Ipv6Addr)> {
    match pair.first_router().uplinks()[0].attachment {
        Attachment::Foreign { ipv6, .. } => ipv6,
        _ => None,
    }
}

fn next_hop_of(pair: &AgentAndRouters, address: &str) -> Option<IpAddr> {
    pair.first_router().uplinks()[0].next_hop(addr(address).into())
}

/// Creates a home agent and a router that is registered in the first network, whose router has advertised.
pub fn registered_pair(setup: PairSetup) -> AgentAndRouters {
    let mut pair = AgentAndRouters::new(setup);
    set_addresses_and_routes(&mut pair, &[], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.register_router();
    pair.advance_seconds(5.0);
    pair.clear_records();
    pair
}

/// Returns the destinations of the messages of this type that the router has sent on wifi.
pub fn message_destinations_on_link(pair: &AgentAndRouters, kind: u8) -> Vec<Ipv6Addr> {
    let own =
        pair.link_messages.iter().filter(|(_, from, message)| *from == Some(0) && message.message[0] == kind);
    own.map(|(_, _, message)| message.destination).collect()
}

/// Sends a router's answer to a probe on wifi: a Neighbor Solicitation or an Echo Request. Does nothing if
/// the probe is for another router.
pub fn answer_probe(pair: &mut AgentAndRouters, router: &str, probe: &LinkMessage) {
    let is_echo = probe.message[0] == icmpv6::message_type::ECHO_REQUEST;
    match probe.message[0] {
        icmpv6::message_type::NEIGHBOR_SOLICITATION => {
            let target = nd::NeighborSolicitation::parse(&probe.message).expect("a solicitation").target;
            if target == addr(router) {
                answer_solicitation(pair, router);
            }
        }
        _ if is_echo && probe.destination == addr(router) => {
            assert_eq!(probe.peer, Some(link_address_of(probe.destination)));
            let mut message = probe.message.clone();
            message[0] = icmpv6::message_type::ECHO_REPLY;
            receive_router_message(pair, router, 64, message);
        }
        _ => {}
    }
}

/// Returns whether a message is a probe of a router.
pub fn is_probe(message: &LinkMessage) -> bool {
    [icmpv6::message_type::NEIGHBOR_SOLICITATION, icmpv6::message_type::ECHO_REQUEST]
        .contains(&message.message[0])
}

/// Delivers a message of a router on wifi.
fn receive_router_message(pair: &mut AgentAndRouters, router: &str, hop_limit: u8, mut message: Vec<u8>) {
    message[2..4].fill(0);
    icmpv6::set_checksum(&mut message, addr(router), addr("fe80::2"));
    let message = LinkMessage {
        interface: "wifi".into(),
        source: addr(router),
        destination: addr("fe80::2"),
        hop_limit,
        peer: None,
        message,
    };
    pair.run_on_router(0, |machine, now, wall| machine.handle_link_message(now, wall, &message))
        .expect("a right message");
}

/// Sends a router's answer to a Neighbor Solicitation (RFC 4861 7.2.4).
pub fn answer_solicitation(pair: &mut AgentAndRouters, router: &str) {
    let advertisement = nd::NeighborAdvertisement {
        target: addr(router),
        router: true,
        solicited: true,
        override_: false,
        target_link_address: None,
    };
    receive_router_message(pair, router, 255, advertisement.emit());
}

/// RFC 8978: the router comes back with another prefix, and the old prefix is no longer routed. The old
/// address stays preferred, because the kernel does not remove it.
#[test]
fn router_leaves_flash_renumbered_address_once_the_new_one_is_usable() {
    for setup in [setup_with_heartbeats(), PairSetup::plain_setup()] {
        let mut pair = registered_pair(setup);
        pair.link_messages.clear();
        pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
        pair.receive_router_advertisement("wifi", ROUTER_A, &[OTHER_NETWORK]);
        let asked = message_destinations_on_link(&pair, icmpv6::message_type::ROUTER_SOLICITATION);
        assert_eq!(asked, [addr(ROUTER_A)], "the router is asked");
        // The router answers within `MAX_RA_DELAY_TIME`; meanwhile duplicate address detection of the new
        // address runs.
        pair.advance_seconds(0.5);
        pair.receive_router_advertisement("wifi", ROUTER_A, &[OTHER_NETWORK]);
        pair.advance_seconds(0.6);
        set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A]);
        let took = pair.advance_while(5.0, "a new registration", |pair| {
            pair.path_of_first_router() != Some(addr(OTHER_CARE_OF_ADDRESS))
        });
        assert!(took <= Duration::from_millis(50), "{took:?}");
        assert!(pair.is_registered(0));
        let addresses = pair.first_router().uplinks()[0].care_of_addresses();
        assert!(
            addresses.contains(&addr(CARE_OF_ADDRESS).into()),
            "the old one is a candidate still: {addresses:?}"
        );
    }
}

/// The new prefix is advertised. Another router, which has failed, had advertised the old prefix, so no
/// advertisement omits it: the router detects the failure by missing answers.
#[test]
fn router_tries_other_candidates_at_once_when_the_current_one_fails() {
    let mut pair = registered_pair(setup_with_heartbeats());
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    answer_solicitation(&mut pair, ROUTER_A);
    pair.advance_seconds(5.0);
    assert_eq!(
        registered_care_of_address(&pair),
        Some(addr(CARE_OF_ADDRESS)),
        "the kernel's first router still works"
    );
    pair.link_messages.clear();
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    let took = pair.advance_while(5.0, "the other pair", |pair| {
        pair.path_of_first_router() != Some(addr(OTHER_CARE_OF_ADDRESS))
    });
    assert!(took <= MAX_OUTAGE, "{took:?}");
    assert_eq!(pair_in_use(&pair), Some((addr(OTHER_CARE_OF_ADDRESS), addr(ROUTER_B))));
    let asked = message_destinations_on_link(&pair, icmpv6::message_type::ROUTER_SOLICITATION);
    assert!(!asked.is_empty(), "a path that goes silent asks for routers");
    assert!(pair.is_registered(0));
    // The router tries the old address again later, without an interruption.
    for _ in 0..1200 {
        pair.advance_seconds(0.1);
        assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    }
    pair.dead_addresses.clear();
    pair.advance_seconds(250.0);
    assert_eq!(
        pair.path_of_first_router(),
        Some(addr(CARE_OF_ADDRESS)),
        "the router that the kernel prefers works again"
    );
}

/// Two routers advertise one prefix for one address: only the next hop changes.
#[test]
fn second_router_of_a_prefix_takes_over_from_the_silent_first() {
    let mut pair = registered_pair(setup_with_heartbeats());
    pair.receive_router_advertisement("wifi", ROUTER_B, &[VISITED_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    answer_solicitation(&mut pair, ROUTER_A);
    pair.advance_seconds(1.0);
    assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.advance_while(3.0, "the other router", |pair| {
        pair_in_use(pair) != Some((addr(CARE_OF_ADDRESS), addr(ROUTER_B)))
    });
    pair.dead_addresses.clear();
    pair.advance_seconds(2.0);
    assert!(pair.is_registered(0) && !pair.first_router().has_path_failed(0));
}

/// A roam with loss of carrier: the kernel has kept address and default route of the old network.
#[test]
fn address_uses_router_that_advertised_its_prefix_after_link_up() {
    let mut pair = registered_pair(setup_with_heartbeats());
    let before = pair.first_router().uplinks()[0].care_of_addresses();
    assert_eq!(before, [IpAddr::V6(addr(CARE_OF_ADDRESS))]);
    pair.detach_uplink(0, "wifi");
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.advance_seconds(0.3);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    pair.advance_seconds(1.0);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    let took = pair.advance_while(5.0, "a new registration", |pair| {
        pair.path_of_first_router() != Some(addr(OTHER_CARE_OF_ADDRESS))
    });
    assert!(took <= MAX_OUTAGE, "{took:?}");
    assert_eq!(pair_in_use(&pair), Some((addr(OTHER_CARE_OF_ADDRESS), addr(ROUTER_B))));
}

/// Moves wifi to the network of router B and back to that of router A. The kernel has kept the address of A's
/// network, and the default route by B. Packets from [`CARE_OF_ADDRESS`] are lost, for B is on another link.
fn return_by_router_of_other_link(pair: &mut AgentAndRouters) {
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(0.3);
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    set_addresses_and_routes(pair, &[OTHER_CARE_OF_ADDRESS], &[ROUTER_B]);
    pair.advance_seconds(2.0);
    assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    pair.detach_uplink(0, "wifi");
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.advance_seconds(0.3);
    pair.clear_records();
    set_addresses_and_routes(pair, &[CARE_OF_ADDRESS], &[ROUTER_B]);
    assert_eq!(pair_in_use(pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_B))));
}

/// Lets router A advertise. Packets from [`CARE_OF_ADDRESS`] pass this router.
fn advertise_own_router(pair: &mut AgentAndRouters) {
    pair.dead_addresses.clear();
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    set_addresses_and_routes(pair, &[CARE_OF_ADDRESS], &[ROUTER_B, ROUTER_A]);
    assert_eq!(pair_in_use(pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
}

/// The router returns to a link whose address the kernel has kept. The kernel also still has the default
/// route of the link visited in between. So the first Binding Update leaves through the router of that other
/// link, before the router of the present link advertises.
#[test]
fn update_sent_via_wrong_next_hop_is_repeated_when_right_one_advertises() {
    for setup in [setup_with_heartbeats(), PairSetup::plain_setup()] {
        let mut pair = registered_pair(setup);
        return_by_router_of_other_link(&mut pair);
        assert_eq!(pair.last_update().source, addr(CARE_OF_ADDRESS));
        pair.advance_seconds(0.001);
        advertise_own_router(&mut pair);
        let took = pair.advance_while(5.0, "a registration", |pair| !pair.is_registered(0));
        assert!(took <= Duration::from_millis(500), "{took:?}");
    }
}

/// A move without loss of carrier and without heartbeats: the advertisement of the new router makes carnet
/// solicit the router in use.
#[test]
fn new_router_replaces_router_that_answers_no_solicitation() {
    for answers in [false, true] {
        let mut pair = registered_pair(PairSetup::plain_setup());
        pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
        set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
        pair.advance_seconds(0.5);
        if answers {
            answer_solicitation(&mut pair, ROUTER_A);
        }
        pair.advance_seconds(1.5);
        let solicited = message_destinations_on_link(&pair, icmpv6::message_type::NEIGHBOR_SOLICITATION);
        assert_eq!(solicited.len(), if answers { 1 } else { 2 }, "{solicited:?}");
        let expected = if answers { (CARE_OF_ADDRESS, ROUTER_A) } else { (OTHER_CARE_OF_ADDRESS, ROUTER_B) };
        assert_eq!(pair_in_use(&pair), Some((addr(expected.0), addr(expected.1))));
        assert!(pair.is_registered(0));
        if !answers {
            // Router A is on the link again, and advertises.
            pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
            assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
        }
    }
}

/// dhcpcd keeps one default route for each metric: the new router gives an address and no default route.
#[test]
fn advertising_router_without_kernel_route_replaces_silent_default_router() {
    for setup in [setup_with_heartbeats(), PairSetup::plain_setup()] {
        let mut pair = registered_pair(setup);
        pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
        pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
        pair.advance_seconds(1.0);
        set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A]);
        let took = pair.advance_while(5.0, "the newcomer's pair", |pair| {
            pair.path_of_first_router() != Some(addr(OTHER_CARE_OF_ADDRESS))
        });
        assert!(took <= MAX_OUTAGE, "{took:?}");
        assert_eq!(pair_in_use(&pair), Some((addr(OTHER_CARE_OF_ADDRESS), addr(ROUTER_B))));
        pair.advance_seconds(5.0);
        assert!(pair.is_registered(0) && !pair.first_router().has_path_failed(0));
        // Packets through router A arrive again; packets from the second address are lost.
        pair.dead_addresses = vec![addr(OTHER_CARE_OF_ADDRESS)];
        pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
        let took = pair.advance_while(5.0, "the first pair", |pair| {
            pair.path_of_first_router() != Some(addr(CARE_OF_ADDRESS))
        });
        assert!(took <= MAX_OUTAGE, "{took:?}");
        assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
    }
}

/// Default routers in the kernel's list, from the operator or a network manager, come first while they work.
#[test]
fn advertising_router_without_kernel_route_ranks_behind_default_routers() {
    let mut pair = registered_pair(setup_with_heartbeats());
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    answer_solicitation(&mut pair, ROUTER_A);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.advance_seconds(5.0);
    let first = (addr(CARE_OF_ADDRESS), addr(ROUTER_A));
    assert_eq!(pair_in_use(&pair), Some(first));
    assert_eq!(next_hop_of(&pair, OTHER_CARE_OF_ADDRESS), Some(addr(ROUTER_B).into()));
    // The operator's own default route leads to another router than the one that advertised the address:
    // packets take the operator's route.
    set_addresses_and_routes(&mut pair, &[OTHER_CARE_OF_ADDRESS], &["fe80::c"]);
    assert_eq!(pair_in_use(&pair), Some((addr(OTHER_CARE_OF_ADDRESS), addr("fe80::c"))));
    // Without a default route the operator wants none: the uplink is down.
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[]);
    assert_eq!(pair.first_router().uplinks()[0].attachment, Attachment::Down("no default router"));
    // The router lifetime of 1800 s ends.
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.advance_seconds(1750.0);
    let addresses = |pair: &AgentAndRouters| pair.first_router().uplinks()[0].care_of_addresses();
    assert_eq!(addresses(&pair), [IpAddr::V6(addr(CARE_OF_ADDRESS)), addr(OTHER_CARE_OF_ADDRESS).into()]);
    pair.advance_seconds(60.0);
    assert_eq!(addresses(&pair), [IpAddr::V6(addr(CARE_OF_ADDRESS))]);
}

/// An access point or a bridge that has just given carrier may lose the first Router Solicitation.
#[test]
fn router_solicitations_have_short_intervals_after_link_up() {
    let mut pair = registered_pair(PairSetup::plain_setup());
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(0.3);
    pair.link_messages.clear();
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.advance_seconds(30.0);
    let start = pair.link_messages[0].0;
    let solicitations = pair.link_messages.iter().filter(|(_, from, message)| {
        *from == Some(0) && message.message[0] == icmpv6::message_type::ROUTER_SOLICITATION
    });
    let times: Vec<u64> =
        solicitations.map(|(at, ..)| at.saturating_since(start).as_millis() as u64).collect();
    assert_eq!(times, [0, 500, 1000, 2000, 4000, 8000, 16_000]);
}

/// dhcpcd removes the link-local address with the carrier. A router answers a solicitation without source
/// address by multicast, up to 3 s later (RFC 4861 6.2.6).
#[test]
fn router_solicitation_is_sent_once_link_local_address_is_usable() {
    let mut pair = registered_pair(PairSetup::plain_setup());
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(0.3);
    pair.link_messages.clear();
    pair.set_uplink_state(0, "wifi", Vec::new(), default_routes(&[]));
    let link_local = |tentative| {
        let mut known = autoconfigured_addresses(&["fe80::2"]);
        known[0].tentative = tentative;
        known
    };
    pair.set_uplink_state(0, "wifi", link_local(true), default_routes(&[]));
    pair.advance_seconds(1.2);
    pair.set_uplink_state(0, "wifi", link_local(false), default_routes(&[]));
    pair.advance_seconds(0.6);
    let start = pair.link_messages[0].0;
    let solicitations = pair.link_messages.iter().filter(|(_, from, message)| {
        *from == Some(0) && message.message[0] == icmpv6::message_type::ROUTER_SOLICITATION
    });
    let sent: Vec<_> = solicitations
        .map(|(at, _, message)| (at.saturating_since(start).as_millis(), message.source))
        .collect();
    let (none, own) = (Ipv6Addr::UNSPECIFIED, addr("fe80::2"));
    assert_eq!(sent, [(0, none), (500, none), (1000, none), (1200, own), (1700, own)]);
    // carnet does not solicit a router again that has advertised.
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.link_messages.clear();
    pair.set_uplink_state(
        0,
        "wifi",
        autoconfigured_addresses(&[CARE_OF_ADDRESS]),
        default_routes(&[ROUTER_A]),
    );
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.advance_seconds(5.0);
    assert_eq!(
        message_destinations_on_link(&pair, icmpv6::message_type::ROUTER_SOLICITATION),
        [] as [Ipv6Addr; 0]
    );
}

#[test]
fn router_whose_neighbour_entry_has_failed_ranks_last() {
    let mut pair = registered_pair(PairSetup::plain_setup());
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    answer_solicitation(&mut pair, ROUTER_A);
    let state = |pair: &mut AgentAndRouters, neighbour| {
        let mut known = default_routes(&[ROUTER_A, ROUTER_B]);
        known[0].neighbour = neighbour;
        pair.set_uplink_state(
            0,
            "wifi",
            autoconfigured_addresses(&["fe80::2", CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS]),
            known,
        );
        registered_care_of_address(pair)
    };
    assert_eq!(state(&mut pair, NeighbourState::Known), Some(addr(CARE_OF_ADDRESS)));
    assert_eq!(state(&mut pair, NeighbourState::Incomplete), Some(addr(CARE_OF_ADDRESS)));
    assert_eq!(state(&mut pair, NeighbourState::Failed), Some(addr(OTHER_CARE_OF_ADDRESS)));
    assert_eq!(
        state(&mut pair, NeighbourState::Incomplete),
        Some(addr(OTHER_CARE_OF_ADDRESS)),
        "the kernel asks again"
    );
    assert_eq!(state(&mut pair, NeighbourState::Known), Some(addr(CARE_OF_ADDRESS)));
    // The only router is used though the kernel marks it as failed, and the status names it.
    let mut alone = default_routes(&[ROUTER_A]);
    alone[0].neighbour = NeighbourState::Failed;
    pair.set_uplink_state(0, "wifi", autoconfigured_addresses(&["fe80::2", CARE_OF_ADDRESS]), alone);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
    assert_eq!(pair.first_router().uplinks()[0].silent_router(), Some(addr(ROUTER_A).into()));
}

/// RFC 8028 3: two providers on one link, each with a source-specific route. Both addresses keep their
/// routers.
#[test]
fn each_source_address_uses_the_router_of_its_source_specific_route() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    let from = |prefix: &str, gateway: &str| Ipv6Router { source: Some(net(prefix)), ..addr(gateway).into() };
    let known =
        vec![from("fe80::/126", "fe80::c"), from(OTHER_NETWORK, ROUTER_B), from(VISITED_NETWORK, ROUTER_A)];
    pair.set_uplink_state(0, "wifi", addresses(&["fe80::2", CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS]), known);
    pair.register_router();
    assert_eq!(next_hop_of(&pair, CARE_OF_ADDRESS), Some(addr(ROUTER_A).into()));
    assert_eq!(next_hop_of(&pair, OTHER_CARE_OF_ADDRESS), Some(addr(ROUTER_B).into()));
    let uplink = &pair.first_router().uplinks()[0];
    assert_eq!(uplink.care_of_addresses().len(), 2);
    let table = |address: &str| {
        uplink.next_hops().find(|(number, _)| *number == uplink.table_of_address(addr(address).into()))
    };
    assert_eq!(table(CARE_OF_ADDRESS).map(|(_, router)| router), Some(addr(ROUTER_A)));
    assert_eq!(table(OTHER_CARE_OF_ADDRESS).map(|(_, router)| router), Some(addr(ROUTER_B)));
    // `default from fe80::/126` is no default route for a global address.
    pair.set_uplink_state(
        0,
        "wifi",
        addresses(&["fe80::2", CARE_OF_ADDRESS]),
        vec![from("fe80::/126", "fe80::c")],
    );
    assert_eq!(pair.first_router().uplinks()[0].attachment, Attachment::Down("no default router"));
}

/// A router that leaves keeps no routing table, and the others keep theirs: no packet leaves by the router of
/// another address.
#[test]
fn tables_of_routers_do_not_change_while_they_are_used() {
    let mut pair = registered_pair(PairSetup::plain_setup());
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    let tables = |pair: &AgentAndRouters| -> Vec<(usize, Ipv6Addr)> {
        pair.first_router().uplinks()[0].next_hops().collect()
    };
    assert_eq!(tables(&pair), [(0, addr(ROUTER_A)), (1, addr(ROUTER_B))]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_B, ROUTER_A]);
    assert_eq!(tables(&pair), [(0, addr(ROUTER_A)), (1, addr(ROUTER_B))]);
    set_addresses_and_routes(&mut pair, &[OTHER_CARE_OF_ADDRESS], &[ROUTER_B]);
    assert_eq!(tables(&pair), [(1, addr(ROUTER_B))]);
}

/// RFC 6724 5 for the home agent's address as destination; RFC 4862 5.5.4: no deprecated address before
/// another.
#[test]
fn candidates_come_in_the_order_of_source_address_selection() {
    let address = |text: &str| autoconfigured_addresses(&[text]).remove(0);
    let deprecated = |text: &str| Address { deprecated: true, ..address(text) };
    let temporary = |text: &str| Address { temporary: true, ..address(text) };
    let (local, third) = ("fd00:1::10", "2001:db8:f3::10");
    for (known, expected) in [
        (vec![address(local), address(OTHER_CARE_OF_ADDRESS)], OTHER_CARE_OF_ADDRESS),
        (vec![deprecated(CARE_OF_ADDRESS), address(OTHER_CARE_OF_ADDRESS)], OTHER_CARE_OF_ADDRESS),
        (vec![deprecated(CARE_OF_ADDRESS), address(local)], local),
        (vec![temporary(CARE_OF_ADDRESS), address(OTHER_CARE_OF_ADDRESS)], OTHER_CARE_OF_ADDRESS),
        (vec![temporary(CARE_OF_ADDRESS), deprecated(OTHER_CARE_OF_ADDRESS), address(third)], third),
        (vec![temporary("2001:db8:f1::1"), address("2001:db8:f1::2")], "2001:db8:f1::2"),
        (vec![deprecated(CARE_OF_ADDRESS)], CARE_OF_ADDRESS),
    ] {
        let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
        let prefixes = [VISITED_NETWORK, OTHER_NETWORK, "2001:db8:f3::/64", "fd00:1::/64"];
        pair.set_uplink_state(0, "wifi", autoconfigured_addresses(&["fe80::2"]), default_routes(&[ROUTER_A]));
        pair.receive_router_advertisement("wifi", ROUTER_A, &prefixes);
        pair.set_uplink_state(0, "wifi", known.clone(), default_routes(&[ROUTER_A]));
        assert_eq!(registered_care_of_address(&pair), Some(addr(expected)), "{known:?}");
        pair.register_router();
    }
}

/// The first router deprecates its prefix, and the second does not.
#[test]
fn deprecated_address_of_first_router_ranks_behind_address_of_second() {
    let mut pair = registered_pair(PairSetup::plain_setup());
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    let mut known = autoconfigured_addresses(&["fe80::2", CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS]);
    known[1].deprecated = true;
    pair.set_uplink_state(0, "wifi", known, default_routes(&[ROUTER_A, ROUTER_B]));
    assert_eq!(pair_in_use(&pair), Some((addr(OTHER_CARE_OF_ADDRESS), addr(ROUTER_B))));
}

/// RFC 6275 11.5.5: an address that the kernel configured on the home link and has kept does not show that
/// the router is at home.
#[test]
fn kept_home_prefix_address_does_not_identify_the_home_link() {
    let mut pair = registered_pair(PairSetup::plain_setup());
    let home = ADDRESS_ON_HOME_LINK;
    // The router comes home.
    pair.detach_uplink(0, "wifi");
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", "fe80::1", &[HOME_PREFIX]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, home], &[ROUTER_A, "fe80::1"]);
    let attachment = |pair: &AgentAndRouters| pair.first_router().uplinks()[0].attachment;
    assert_eq!(attachment(&pair), Attachment::Home { router: Some(addr("fe80::1")) }, "by the router there");
    // The router leaves home, with and without loss of carrier.
    pair.detach_uplink(0, "wifi");
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, home], &[ROUTER_A, "fe80::1"]);
    assert!(!matches!(attachment(&pair), Attachment::Home { .. }), "nobody advertises it now");
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
    pair.receive_router_advertisement("wifi", "fe80::1", &[HOME_PREFIX]);
    assert!(matches!(attachment(&pair), Attachment::Home { .. }));
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    set_addresses_and_routes(&mut pair, &[home, OTHER_CARE_OF_ADDRESS], &["fe80::1", ROUTER_B]);
    pair.advance_seconds(2.0);
    assert_eq!(
        pair_in_use(&pair),
        Some((addr(OTHER_CARE_OF_ADDRESS), addr(ROUTER_B))),
        "the home router is gone"
    );
    // An address that the operator has configured shows by itself that the router is at home.
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.set_uplink_state(
        0,
        "wifi",
        addresses(&["fe80::2", ADDRESS_ON_HOME_LINK]),
        default_routes(&[ROUTER_A]),
    );
    assert!(matches!(attachment(&pair), Attachment::Home { .. }));
}

/// Creates a home agent and a router at home. It has the autoconfigured address, because [`HOME_ROUTER`]
/// advertises the home prefix.
fn pair_at_home(setup: PairSetup) -> AgentAndRouters {
    let mut pair = registered_pair(setup);
    pair.detach_uplink(0, "wifi");
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    set_addresses_and_routes(&mut pair, &[ADDRESS_ON_HOME_LINK], &[HOME_ROUTER]);
    assert!(is_at_home(&pair));
    pair.link_messages.clear();
    pair
}

fn is_at_home(pair: &AgentAndRouters) -> bool {
    pair.first_router().uplinks()[0].attachment == Attachment::Home { router: Some(addr(HOME_ROUTER)) }
}

/// Lets `seconds` pass. The home link's router answers the probe with number n (from 1 on) if `answered(n)`
/// is true. Returns the number of probes.
fn run_with_answers(pair: &mut AgentAndRouters, seconds: u32, answered: impl Fn(usize) -> bool) -> usize {
    pair.link_messages.clear();
    let mut seen = 0;
    for _ in 0..seconds * 100 {
        pair.advance_seconds(0.01);
        let own =
            pair.link_messages.iter().filter(|(_, from, message)| *from == Some(0) && is_probe(message));
        let sent: Vec<LinkMessage> = own.map(|(_, _, message)| message.clone()).collect();
        while let Some(probe) = sent.get(seen) {
            seen += 1;
            if answered(seen) {
                answer_probe(pair, HOME_ROUTER, probe);
            }
        }
    }
    seen
}

/// RFC 6275 11.5.1 and 11.5.5: at home no heartbeat runs, and the next advertisement of a new link may come
/// late.
#[test]
fn router_leaves_home_link_when_its_home_router_does_not_answer() {
    for (setup, within) in
        [(setup_with_heartbeats(), MAX_OUTAGE), (PairSetup::plain_setup(), Duration::from_millis(2200))]
    {
        let mut pair = pair_at_home(setup);
        run_with_answers(&mut pair, 10, |_| true);
        assert!(is_at_home(&pair) && pair.first_router().is_at_home());
        pair.link_messages.clear();
        let took = pair.advance_while(5.0, "the home link is left", is_at_home);
        assert!(took <= within, "{took:?}");
        let reason = Attachment::Down("the router of the home link does not answer");
        assert_eq!(pair.first_router().uplinks()[0].attachment, reason);
        let asked = message_destinations_on_link(&pair, icmpv6::message_type::ROUTER_SOLICITATION);
        assert_eq!(
            asked,
            [nd::ALL_ROUTERS; 2],
            "the new link's router is asked in doubt, and when that is over"
        );
        // carnet does not solicit a router that it has left.
        pair.link_messages.clear();
        pair.advance_seconds(3.0);
        assert!(!pair.link_messages.iter().any(|(_, from, message)| *from == Some(0) && is_probe(message)));
        pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
        set_addresses_and_routes(
            &mut pair,
            &[ADDRESS_ON_HOME_LINK, OTHER_CARE_OF_ADDRESS],
            &[HOME_ROUTER, ROUTER_B],
        );
        let took = pair.advance_while(5.0, "a registration", |pair| {
            pair.path_of_first_router() != Some(addr(OTHER_CARE_OF_ADDRESS))
        });
        assert!(took <= Duration::from_millis(50), "{took:?}");
    }
}

/// Runs until carnet solicits a router on wifi, and returns how long that took.
fn advance_until_solicited(pair: &mut AgentAndRouters) -> Duration {
    pair.link_messages.clear();
    pair.advance_while(5.0, "a Router Solicitation", |pair| {
        message_destinations_on_link(pair, icmpv6::message_type::ROUTER_SOLICITATION).is_empty()
    })
}

/// RFC 6275 11.5.1: the router of the new link answers a Router Solicitation, and the home router does not.
/// Both a first visit of that link and a second visit after a return home are tested.
#[test]
fn router_leaves_home_link_when_router_of_another_link_answers() {
    for (setup, limit) in [(setup_with_heartbeats(), 500), (PairSetup::plain_setup(), 1200)] {
        let limit = Duration::from_millis(limit);
        let mut pair = pair_at_home(setup);
        for visit in ["first", "second"] {
            run_with_answers(&mut pair, 2, |_| true);
            assert!(is_at_home(&pair) && pair.first_router().is_at_home(), "{visit}");
            let solicited = advance_until_solicited(&mut pair);
            pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
            let left = pair.advance_while(5.0, "the home link is left", is_at_home);
            assert!(solicited + left <= limit, "{visit}: {solicited:?}, {left:?}");
            set_addresses_and_routes(
                &mut pair,
                &[ADDRESS_ON_HOME_LINK, OTHER_CARE_OF_ADDRESS],
                &[HOME_ROUTER, ROUTER_B],
            );
            let took = pair.advance_while(5.0, "a registration", |pair| {
                pair.path_of_first_router() != Some(addr(OTHER_CARE_OF_ADDRESS))
            });
            assert!(took <= Duration::from_millis(50), "{visit}: {took:?}");
            // The router comes home again, without loss of carrier.
            pair.advance_seconds(1.0);
            pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
            set_addresses_and_routes(
                &mut pair,
                &[ADDRESS_ON_HOME_LINK, OTHER_CARE_OF_ADDRESS],
                &[HOME_ROUTER, ROUTER_B],
            );
        }
    }
}

/// Right after the return home, carnet probes the home router and no longer the router of the former link.
#[test]
fn router_leaves_home_link_as_fast_right_after_coming_home() {
    let mut pair = registered_pair(setup_with_heartbeats());
    pair.link_messages.clear();
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK], &[HOME_ROUTER]);
    assert!(is_at_home(&pair));
    pair.advance_seconds(0.02);
    let asked = message_destinations_on_link(&pair, icmpv6::message_type::NEIGHBOR_SOLICITATION);
    assert!(asked.contains(&addr(HOME_ROUTER)), "{asked:?}");
    run_with_answers(&mut pair, 1, |_| true);
    let solicited = advance_until_solicited(&mut pair);
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    let left = pair.advance_while(5.0, "the home link is left", is_at_home);
    assert!(solicited + left <= Duration::from_millis(500), "{solicited:?}, {left:?}");
}

/// The kernel has kept address and default route of the link that the router visited before it came home.
#[test]
fn router_of_formerly_visited_link_ranks_behind_advertising_router() {
    let mut pair = registered_pair(setup_with_heartbeats());
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK], &[ROUTER_A, HOME_ROUTER]);
    run_with_answers(&mut pair, 3, |_| true);
    assert!(is_at_home(&pair) && pair.first_router().is_at_home());
    advance_until_solicited(&mut pair);
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    pair.advance_while(5.0, "the home link is left", is_at_home);
    set_addresses_and_routes(
        &mut pair,
        &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK, OTHER_CARE_OF_ADDRESS],
        &[ROUTER_A, HOME_ROUTER, ROUTER_B],
    );
    assert_eq!(pair_in_use(&pair), Some((addr(OTHER_CARE_OF_ADDRESS), addr(ROUTER_B))));
    // The router is back on the link of router A, which advertises.
    pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    pair.advance_seconds(2.0);
    assert_eq!(pair_in_use(&pair), Some((addr(CARE_OF_ADDRESS), addr(ROUTER_A))));
}

#[test]
fn router_stays_home_when_second_router_advertises_and_answers_are_lost() {
    let mut pair = pair_at_home(setup_with_heartbeats());
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    set_addresses_and_routes(
        &mut pair,
        &[ADDRESS_ON_HOME_LINK, OTHER_CARE_OF_ADDRESS],
        &[HOME_ROUTER, ROUTER_B],
    );
    run_with_answers(&mut pair, 10, |_| true);
    advance_until_solicited(&mut pair);
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    pair.advance_seconds(0.5);
    run_with_answers(&mut pair, 10, |_| true);
    assert!(is_at_home(&pair) && pair.first_router().is_at_home());
    let returns = pair.events.iter().filter(|(_, _, event)| matches!(event, Event::AtHome { .. }));
    assert_eq!(returns.count(), 1);
}

/// RFC 4861 6.3.7: Router Solicitations are limited.
#[test]
fn router_solicitations_stay_rare_while_home_router_misses_answers() {
    let mut pair = pair_at_home(setup_with_heartbeats());
    let solicitations = |pair: &AgentAndRouters| {
        message_destinations_on_link(pair, icmpv6::message_type::ROUTER_SOLICITATION).len()
    };
    run_with_answers(&mut pair, 10, |_| true);
    // The home router answers the Router Solicitations that follow the return home.
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    run_with_answers(&mut pair, 60, |number| number % 4 == 0);
    assert!(is_at_home(&pair) && (1..=15).contains(&solicitations(&pair)), "{}", solicitations(&pair));
    // The home router answers each probe after 200 ms.
    let (mut seen, mut late) = (0, Vec::new());
    pair.link_messages.clear();
    for turn in 0..6000 {
        pair.advance_seconds(0.01);
        let own =
            pair.link_messages.iter().filter(|(_, from, message)| *from == Some(0) && is_probe(message));
        let sent: Vec<LinkMessage> = own.map(|(_, _, message)| message.clone()).collect();
        late.extend(sent[seen..].iter().map(|probe| (turn + 20, probe.clone())));
        seen = sent.len();
        while late.first().is_some_and(|(due, _)| *due <= turn) {
            let (_, probe) = late.remove(0);
            answer_probe(&mut pair, HOME_ROUTER, &probe);
        }
    }
    assert!(is_at_home(&pair) && solicitations(&pair) <= 1, "{}", solicitations(&pair));
}

/// The router comes home without loss of carrier, and the kernel's list has only the visited link's router.
#[test]
fn router_detects_home_link_without_a_kernel_route_to_home_router() {
    let mut pair = registered_pair(setup_with_heartbeats());
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, ADDRESS_ON_HOME_LINK], &[ROUTER_A]);
    assert!(!is_at_home(&pair), "the listed router may answer still");
    let took = pair.advance_while(5.0, "the home link", |pair| !is_at_home(pair));
    assert!(took <= MAX_OUTAGE, "{took:?}");
}

/// A restarted home router advertises, or answers the Router Solicitation.
#[test]
fn router_is_home_again_when_the_home_router_returns() {
    let mut pair = pair_at_home(setup_with_heartbeats());
    run_with_answers(&mut pair, 3, |_| true);
    pair.advance_seconds(3.0);
    assert!(!is_at_home(&pair));
    pair.receive_router_advertisement("wifi", HOME_ROUTER, &[HOME_PREFIX]);
    assert!(is_at_home(&pair));
    run_with_answers(&mut pair, 10, |_| true);
    assert!(is_at_home(&pair) && pair.first_router().is_at_home());
}

#[test]
fn router_stays_home_when_some_answers_are_lost() {
    // Maximum number of probes per minute. At first the home router answers only every fourth probe.
    for (setup, most) in [(setup_with_heartbeats(), 240), (PairSetup::plain_setup(), 60)] {
        let mut pair = pair_at_home(setup);
        run_with_answers(&mut pair, 60, |number| number % 4 == 0);
        assert!(is_at_home(&pair), "one of four solicitations is answered");
        let asked = run_with_answers(&mut pair, 60, |_| true);
        assert!(is_at_home(&pair) && (most * 9 / 10..=most).contains(&asked), "{asked}");
        let returns = pair.events.iter().filter(|(_, _, event)| matches!(event, Event::AtHome { .. }));
        assert_eq!(returns.count(), 1);
    }
}

/// A home router that never answers, as on a point-to-point link. Another router that advertises there still
/// puts the home link in doubt.
#[test]
fn router_stays_home_when_home_router_has_never_answered() {
    let mut pair = pair_at_home(setup_with_heartbeats());
    pair.advance_seconds(60.0);
    assert!(is_at_home(&pair) && pair.first_router().is_at_home());
    let asked = message_destinations_on_link(&pair, icmpv6::message_type::NEIGHBOR_SOLICITATION).len();
    assert!((5..=20).contains(&asked), "{asked}");
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    pair.advance_seconds(1.5);
    assert!(!is_at_home(&pair));
}

/// While the link-local address is tentative no solicitation can leave, so none is unanswered.
#[test]
fn router_stays_home_while_it_can_send_no_solicitation() {
    let mut pair = pair_at_home(setup_with_heartbeats());
    run_with_answers(&mut pair, 3, |_| true);
    pair.link_messages.clear();
    let tentative = |tentative| {
        let mut known = autoconfigured_addresses(&["fe80::2", ADDRESS_ON_HOME_LINK]);
        known[0].tentative = tentative;
        known
    };
    pair.set_uplink_state(0, "wifi", tentative(true), default_routes(&[HOME_ROUTER]));
    pair.advance_seconds(5.0);
    assert!(is_at_home(&pair));
    assert!(!pair.link_messages.iter().any(|(_, from, message)| *from == Some(0) && is_probe(message)));
    pair.set_uplink_state(0, "wifi", tentative(false), default_routes(&[HOME_ROUTER]));
    run_with_answers(&mut pair, 5, |_| true);
    assert!(is_at_home(&pair));
}

/// RFC 6275 7.3 and 11.5.1: a router that misses its announced advertisements is left.
#[test]
fn uplink_leaves_router_that_misses_its_announced_advertisements() {
    let mut pair = registered_pair(PairSetup::plain_setup());
    let mut message = router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
    nd::NdOption::AdvertisementInterval(1000).emit_into(&mut message.message);
    message.message[2..4].fill(0);
    icmpv6::set_checksum(&mut message.message, addr(ROUTER_A), nd::ALL_NODES);
    pair.run_on_router(0, |machine, now, wall| machine.handle_link_message(now, wall, &message))
        .expect("a right advertisement");
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    answer_solicitation(&mut pair, ROUTER_A);
    pair.advance_seconds(2.5);
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
    pair.link_messages.clear();
    pair.advance_seconds(1.0);
    assert_eq!(registered_care_of_address(&pair), Some(addr(OTHER_CARE_OF_ADDRESS)));
    assert!(!message_destinations_on_link(&pair, icmpv6::message_type::ROUTER_SOLICITATION).is_empty());
}

/// RFC 6724 rules 5.5 and 6: the router advertises a unique local prefix, and DHCPv6 gives a global address,
/// which no advertisement names.
#[test]
fn global_dhcpv6_address_ranks_before_advertised_unique_local_address() {
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    set_addresses_and_routes(&mut pair, &[], &[ROUTER_A]);
    pair.receive_router_advertisement("wifi", ROUTER_A, &["fd00:1::/64"]);
    let mut known = autoconfigured_addresses(&["fe80::2", "fd00:1::10", CARE_OF_ADDRESS]);
    known[2].prefix_length = 128;
    pair.set_uplink_state(0, "wifi", known, default_routes(&[ROUTER_A]));
    assert_eq!(registered_care_of_address(&pair), Some(addr(CARE_OF_ADDRESS)));
}

/// The candidate in use is the second one, because the home agent does not answer over the first.
#[test]
fn reload_keeps_the_working_care_of_address_candidate() {
    let mut pair = registered_pair(setup_with_heartbeats());
    pair.receive_router_advertisement("wifi", ROUTER_B, &[OTHER_NETWORK]);
    set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS], &[ROUTER_A, ROUTER_B]);
    answer_solicitation(&mut pair, ROUTER_A);
    pair.advance_seconds(5.0);
    pair.dead_addresses = vec![addr(CARE_OF_ADDRESS)];
    pair.advance_seconds(5.0);
    assert_eq!(pair_in_use(&pair), Some((addr(OTHER_CARE_OF_ADDRESS), addr(ROUTER_B))));
    assert!(pair.is_registered(0));
    pair.reconfigure_router(0);
    for _ in 0..30 {
        pair.advance_seconds(0.1);
        assert_eq!(pair.path_of_first_router(), Some(addr(OTHER_CARE_OF_ADDRESS)));
        assert!(pair.is_registered(0));
    }
    assert_eq!(pair_in_use(&pair), Some((addr(OTHER_CARE_OF_ADDRESS), addr(ROUTER_B))));
}

/// With Binding Identifiers, a Binding Update leaves before the router of the present link advertises, and so
/// by the router of the other link.
#[test]
fn update_with_bid_sent_via_wrong_next_hop_is_sent_again() {
    for mut setup in [setup_with_heartbeats(), PairSetup::plain_setup()] {
        setup.routers[0].uplinks[0].bid = Some(1);
        setup.routers[0].uplinks[1].bid = Some(2);
        let mut pair = AgentAndRouters::new(setup);
        set_addresses_and_routes(&mut pair, &[], &[ROUTER_A]);
        pair.receive_router_advertisement("wifi", ROUTER_A, &[VISITED_NETWORK]);
        set_addresses_and_routes(&mut pair, &[CARE_OF_ADDRESS], &[ROUTER_A]);
        pair.advance_seconds(5.0);
        assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
        return_by_router_of_other_link(&mut pair);
        pair.advance_seconds(0.05);
        assert_eq!(pair.last_update().source, addr(CARE_OF_ADDRESS));
        advertise_own_router(&mut pair);
        let took = pair.advance_while(5.0, "a registration", |pair| {
            pair.registered_care_of_address() != Some(addr(CARE_OF_ADDRESS))
                || pair.path_of_first_router() != pair.registered_care_of_address()
        });
        assert!(took <= Duration::from_millis(500), "{took:?}");
    }
}

// The following tests are about IPv4 addresses and routers of uplinks.

fn parse_ipv4_address(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

/// Returns the care-of address and the router of an interface with these addresses and routes.
fn ipv4_in_use(addresses: &[&str], known: Vec<Ipv4Router>) -> Attachment {
    router_with_ipv4(addresses, known).uplinks()[0].attachment
}

fn router_with_ipv4(addresses: &[&str], known: Vec<Ipv4Router>) -> MobileRouter {
    let mut setup = PairSetup::plain_setup();
    setup.routers[0].home_agent_ipv4 = Some(parse_ipv4_address("192.0.2.1"));
    let mut router = MobileRouter::new(setup.routers.remove(0), &mut Rng::new(1));
    let interface = Interface {
        name: "wifi".into(),
        running: true,
        mtu: 1500,
        ipv4_addresses: addresses.iter().map(|text| text.parse().expect("an address")).collect(),
        ipv4_routers: known,
        ..Interface::default()
    };
    router.handle_interface(Time::from_secs(1), WALL_START, &interface);
    router
}

/// RFC 8028 3 for IPv4: each router has a routing table, and each address uses the table of its router.
#[test]
fn each_ipv4_router_has_a_table_and_each_address_that_of_its_router() {
    let by = |gateway: &str| Ipv4Router::from(parse_ipv4_address(gateway));
    let addresses = ["10.1.0.50/24", "10.3.0.60/24", "10.64.0.9/32"];
    let router = router_with_ipv4(&addresses, vec![by("10.3.0.1"), by("10.1.0.1")]);
    let uplink = &router.uplinks()[0];
    let router_of = |address: &str| {
        let number = uplink.table_of_address(parse_ipv4_address(address).into());
        uplink.ipv4_next_hops().find(|(known, _)| *known == number).map(|(_, router)| router)
    };
    assert_eq!(uplink.ipv4_next_hops().count(), 2);
    assert_eq!(router_of("10.1.0.50"), Some(parse_ipv4_address("10.1.0.1")));
    assert_eq!(router_of("10.3.0.60"), Some(parse_ipv4_address("10.3.0.1")));
    // The default route has no gateway.
    let modem = router_with_ipv4(&["10.64.0.9/32"], vec![by("0.0.0.0")]);
    let next_hops: Vec<_> = modem.uplinks()[0].ipv4_next_hops().collect();
    assert_eq!(next_hops, [(0, parse_ipv4_address("0.0.0.0"))]);
}

#[test]
fn ipv4_care_of_address_is_in_subnet_of_router_or_source_of_route() {
    let is = |address: &str, router: &str| Attachment::Foreign {
        ipv6: None,
        ipv4: Some((parse_ipv4_address(address), parse_ipv4_address(router))),
    };
    let by = |gateway: &str| Ipv4Router::from(parse_ipv4_address(gateway));
    let (first, second) = ("10.1.0.50/24", "10.3.0.60/24");
    assert_eq!(
        ipv4_in_use(&[first, second], vec![by("10.3.0.1"), by("10.1.0.1")]),
        is("10.3.0.60", "10.3.0.1")
    );
    assert_eq!(ipv4_in_use(&[first, second], vec![by("10.1.0.1")]), is("10.1.0.50", "10.1.0.1"));
    let recommends = Ipv4Router { preferred_source: Some(parse_ipv4_address("10.3.0.60")), ..by("10.9.0.1") };
    assert_eq!(ipv4_in_use(&[first, second], vec![recommends]), is("10.3.0.60", "10.9.0.1"));
    let failed = Ipv4Router { neighbour: NeighbourState::Failed, ..by("10.3.0.1") };
    assert_eq!(ipv4_in_use(&[first, second], vec![failed, by("10.1.0.1")]), is("10.1.0.50", "10.1.0.1"));
    // PPP: an address with prefix length 32, and a gateway outside it or none.
    assert_eq!(ipv4_in_use(&["10.64.0.9/32"], vec![by("0.0.0.0")]), is("10.64.0.9", "0.0.0.0"));
}

#[test]
fn uplink_reports_missing_ipv4_default_router() {
    assert_eq!(ipv4_in_use(&["10.2.0.185/24"], vec![]), Attachment::Down("no default router (IPv4)"));
    assert_eq!(ipv4_in_use(&[], vec![]), Attachment::Down("no usable address"));
}

/// A host on the link advertises in the router's name. It omits a prefix and names it again, without end. Few
/// of these advertisements cause a Router Solicitation.
#[test]
fn endless_advertisements_that_omit_prefixes_cause_few_solicitations() {
    let mut pair = registered_pair(PairSetup::plain_setup());
    pair.link_messages.clear();
    for turn in 0..1000 {
        let other = format!("2001:db8:bad:{turn:x}::/64");
        let prefixes = [if turn % 4 == 0 { VISITED_NETWORK } else { &other }, &other];
        pair.receive_router_advertisement("wifi", ROUTER_A, &prefixes);
        pair.advance_seconds(0.002);
    }
    let asked = message_destinations_on_link(&pair, icmpv6::message_type::ROUTER_SOLICITATION).len();
    assert!((1..=5).contains(&asked), "{asked} in 2 s");
}
