//! Home agent: mobile network prefixes (RFC 3963 section 6).

use carnet_wire::mobility::{BindingUpdateFlags, MobilityOption};
use ipnet::Ipv6Net;

use crate::agent::{TestAgent, authorized_node, config};
use crate::test_messages::*;

fn forwarded_prefixes(agent: &TestAgent) -> Vec<Ipv6Net> {
    agent.home_binding().map(|binding| binding.prefixes.to_vec()).unwrap_or_default()
}

/// Creates a home agent for one router with two prefixes.
fn agent_with_two_prefixes() -> TestAgent {
    let mut config = config();
    config.nodes =
        vec![authorized_node(HOME_ADDRESS, &[MOBILE_NETWORK_PREFIX, SECOND_MOBILE_NETWORK_PREFIX])];
    TestAgent::new(config)
}

/// Conformance item 1; RFC 3963 6.2, 6.6: the home agent answers with status 0 and the R flag, and forwards
/// the prefix.
#[test]
fn home_agent_forwards_an_authorised_prefix() {
    let mut agent = TestAgent::new(config());
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(1));
    assert!(answer.mobile_router());
    assert_eq!(forwarded_prefixes(&agent), [net(MOBILE_NETWORK_PREFIX)]);
    assert!(agent.forwarding_changes > 0);
}

/// Conformance item 2; RFC 3963 6.2: an update with the R flag and without the H flag gets status 140.
#[test]
fn r_flag_without_h_flag_gets_status_140() {
    let mut agent = TestAgent::new(config());
    let flags = BindingUpdateFlags { home_registration: false, ..ROUTER_FLAGS };
    agent.expect_refusal(&TestUpdate::explicit_update(1).with_flags(flags), 140);
    // The L or K flag beside R does not change the status (a known bug of another home agent).
    let flags = BindingUpdateFlags { link_local: true, key_management: true, ..flags };
    agent.expect_refusal(&TestUpdate::explicit_update(2).with_flags(flags), 140);
}

/// Conformance item 3; RFC 3963 6.6: status 140 from a home agent that is "not configured to support Mobile
/// Routers".
#[test]
fn home_agent_without_routers_answers_r_flag_with_140() {
    let mut hosts = config();
    hosts.nodes = vec![authorized_node(HOME_ADDRESS, &[])];
    let mut agent = TestAgent::new(hosts);
    agent.expect_refusal(&TestUpdate::explicit_update(1), 140);
    agent.expect_refusal(&TestUpdate::implicit_update(2), 140);
    assert!(!agent.expect_acceptance(&TestUpdate::node_update(3)).mobile_router());
}

/// Conformance item 4; RFC 3963 6.2: "MUST discard the Binding Update": status 142, and the registered
/// binding stays.
#[test]
fn foreign_prefix_gets_status_142_and_the_earlier_binding_stays() {
    let mut agent = TestAgent::new(config());
    agent.expect_refusal(&TestUpdate::implicit_update(1).prefix(SECOND_MOBILE_NETWORK_PREFIX), 142);
    assert!(agent.home_binding().is_none());
    agent.expect_acceptance(&TestUpdate::explicit_update(2));
    agent.expect_refusal(
        &TestUpdate::implicit_update(3).prefix(SECOND_MOBILE_NETWORK_PREFIX).from(OTHER_CARE_OF_ADDRESS),
        142,
    );
    assert_eq!(agent.registered_care_of_address(), Some(addr(CARE_OF_ADDRESS)));
    assert_eq!(forwarded_prefixes(&agent), [net(MOBILE_NETWORK_PREFIX)]);
}

/// Conformance item 5; RFC 3963 6.2: if one prefix is invalid, "it MUST NOT forward traffic to any of the
/// prefixes".
#[test]
fn one_invalid_prefix_refuses_both() {
    for update in [
        TestUpdate::explicit_update(1).prefix(SECOND_MOBILE_NETWORK_PREFIX),
        TestUpdate::implicit_update(1).prefix(SECOND_MOBILE_NETWORK_PREFIX).prefix(MOBILE_NETWORK_PREFIX),
    ] {
        let mut agent = TestAgent::new(config());
        agent.expect_refusal(&update, 142);
        assert_eq!(forwarded_prefixes(&agent), []);
    }
}

/// RFC 3963 6.2, 6.6: status 141 for invalid prefixes. One invalid prefix refuses the whole update.
#[test]
fn invalid_prefixes_are_refused_with_status_141() {
    let mut agent = TestAgent::new(config());
    for (prefix, prefix_length) in
        [("2001:db8:a::1", 64), ("::", 0), ("ff0e::", 64), ("fe80::", 64), ("2001:db8:a::", 0)]
    {
        let option = MobilityOption::MobileNetworkPrefix { prefix: addr(prefix), prefix_length };
        agent.expect_refusal(&TestUpdate::implicit_update(1).with_option(option), 141);
        agent.expect_refusal(&TestUpdate::explicit_update(1).with_option(option), 141);
    }
    // The option has a prefix length above 128.
    let mut octets = [0; 18];
    octets[1] = 200;
    octets[2..4].copy_from_slice(&[0x20, 0x01]);
    let option = MobilityOption::Unknown { option_type: 6, data: Box::leak(Box::new(octets)) };
    agent.expect_refusal(&TestUpdate::implicit_update(1).with_option(option), 141);
}

/// A list with too many prefixes is refused and takes no memory.
#[test]
fn too_many_prefixes_get_status_141() {
    let mut agent = TestAgent::new(config());
    let update =
        (0..60).fold(TestUpdate::implicit_update(1), |update, _| update.prefix(MOBILE_NETWORK_PREFIX));
    agent.expect_refusal(&update, 141);
}

/// Conformance item 6; RFC 3963 5.2, 6.2: in implicit mode the home agent forwards the prefixes of the prefix
/// table.
#[test]
fn implicit_mode_forwards_the_configured_prefixes() {
    let mut agent = agent_with_two_prefixes();
    assert!(agent.expect_acceptance(&TestUpdate::implicit_update(1)).mobile_router());
    assert_eq!(forwarded_prefixes(&agent), [net(MOBILE_NETWORK_PREFIX), net(SECOND_MOBILE_NETWORK_PREFIX)]);
}

/// Conformance item 7; RFC 3963 6.2, 6.6: status 143 if the prefix table has no entry for this home address.
#[test]
fn implicit_mode_without_a_prefix_table_entry_gets_status_143() {
    let mut two = config();
    two.nodes = vec![
        authorized_node(HOME_ADDRESS, &[]),
        authorized_node("2001:db8:1::5678", &[SECOND_MOBILE_NETWORK_PREFIX]),
    ];
    TestAgent::new(two).expect_refusal(&TestUpdate::implicit_update(1), 143);
}

/// Conformance item 8; RFC 3963 4.1: without the R flag the home agent forwards only the home address.
#[test]
fn home_agent_forwards_no_prefix_without_the_r_flag() {
    let mut agent = TestAgent::new(config());
    let answer = agent.expect_acceptance(&TestUpdate::node_update(1).prefix(MOBILE_NETWORK_PREFIX));
    assert!(!answer.mobile_router());
    assert_eq!(forwarded_prefixes(&agent), []);
}

/// Conformance item 9; RFC 3963 6.2: an update that sets or clears the R flag of a binding gets status 139.
#[test]
fn refresh_with_changed_r_flag_gets_status_139() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_refusal(&TestUpdate::node_update(2).from(OTHER_CARE_OF_ADDRESS), 139);
    assert_eq!(forwarded_prefixes(&agent), [net(MOBILE_NETWORK_PREFIX)]);
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::node_update(1));
    agent.expect_refusal(&TestUpdate::explicit_update(2), 139);
    assert_eq!(forwarded_prefixes(&agent), []);
}

/// Conformance item 11; RFC 3963 6.2: the home agent stops forwarding a prefix that the refresh does not
/// name.
#[test]
fn home_agent_stops_forwarding_prefix_that_a_refresh_omits() {
    let mut agent = agent_with_two_prefixes();
    agent.expect_acceptance(&TestUpdate::explicit_update(1).prefix(SECOND_MOBILE_NETWORK_PREFIX));
    assert_eq!(forwarded_prefixes(&agent), [net(MOBILE_NETWORK_PREFIX), net(SECOND_MOBILE_NETWORK_PREFIX)]);
    let changes = agent.forwarding_changes;
    agent.expect_acceptance(&TestUpdate::implicit_update(2).prefix(SECOND_MOBILE_NETWORK_PREFIX));
    assert_eq!(forwarded_prefixes(&agent), [net(SECOND_MOBILE_NETWORK_PREFIX)]);
    assert!(agent.forwarding_changes > changes);
}

/// A prefix that the update names twice counts once.
#[test]
fn repeated_prefixes_count_once() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).prefix(MOBILE_NETWORK_PREFIX));
    assert_eq!(forwarded_prefixes(&agent), [net(MOBILE_NETWORK_PREFIX)]);
}

/// RFC 3963 6.1.2: a router may register a part of its prefix, but not a prefix that contains it.
#[test]
fn home_agent_accepts_part_of_own_prefix_but_no_shorter_prefix() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::implicit_update(1).prefix("2001:db8:a:0:8000::/65"));
    assert_eq!(forwarded_prefixes(&agent), [net("2001:db8:a:0:8000::/65")]);
    agent.expect_refusal(&TestUpdate::implicit_update(2).prefix("2001:db8:a::/63"), 142);
    agent.expect_refusal(&TestUpdate::implicit_update(2).prefix("2001:db8::/32"), 142);
}

/// Conformance item 14; RFC 3963 6.2: the home agent serves a home address out of the router's own prefix.
#[test]
fn home_agent_accepts_home_address_inside_the_mobile_network_prefix() {
    let home = "2001:db8:a::1";
    let mut aggregated = config();
    aggregated.nodes = vec![authorized_node(home, &[MOBILE_NETWORK_PREFIX])];
    let mut agent = TestAgent::new(aggregated);
    agent.expect_acceptance(&TestUpdate::explicit_update(1).for_home_address(home));
    assert!(agent.binding_of(home).is_some());
}

/// Conformance item 20; RFC 3963 6.1.2: the home agent refuses a prefix of another router, which keeps it.
#[test]
fn home_agent_refuses_registered_prefix_of_another_router() {
    let other = "2001:db8:1::5678";
    let mut two = config();
    two.nodes.push(authorized_node(other, &[SECOND_MOBILE_NETWORK_PREFIX]));
    let mut agent = TestAgent::new(two);
    agent.expect_acceptance(
        &TestUpdate::implicit_update(1)
            .for_home_address(other)
            .from(OTHER_CARE_OF_ADDRESS)
            .prefix(SECOND_MOBILE_NETWORK_PREFIX),
    );
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_refusal(&TestUpdate::explicit_update(2).prefix(SECOND_MOBILE_NETWORK_PREFIX), 142);
    assert_eq!(*agent.binding_of(other).expect("bound").prefixes, [net(SECOND_MOBILE_NETWORK_PREFIX)]);
    assert_eq!(forwarded_prefixes(&agent), [net(MOBILE_NETWORK_PREFIX)]);
}

// The following tests are about care-of addresses that the home agent refuses (RFC 6275 6.1.8, 9.5.1). RFC
// 4888 2.6 describes routers behind each other.

const SECOND_HOME: &str = "2001:db8:1::5678";
const THIRD_HOME: &str = "2001:db8:1::9abc";
const THIRD_PREFIX: &str = "2001:db8:c::/64";

fn agent_with_three_nodes() -> TestAgent {
    let mut three = config();
    three.nodes.push(authorized_node(SECOND_HOME, &[SECOND_MOBILE_NETWORK_PREFIX]));
    three.nodes.push(authorized_node(THIRD_HOME, &[THIRD_PREFIX]));
    TestAgent::new(three)
}

fn update_of_second_node(sequence: u16, care_of: &str) -> TestUpdate {
    TestUpdate::implicit_update(sequence)
        .for_home_address(SECOND_HOME)
        .with_alternate_care_of_address(care_of)
}

fn update_of_third_node(sequence: u16, care_of: &str) -> TestUpdate {
    TestUpdate::implicit_update(sequence).for_home_address(THIRD_HOME).with_alternate_care_of_address(care_of)
}

/// The home agent refuses its own address and home addresses as care-of addresses with status 174.
#[test]
fn home_agent_refuses_addresses_of_other_nodes_as_care_of_addresses() {
    let mut agent = agent_with_three_nodes();
    for care_of in [HOME_AGENT_ADDRESS, SECOND_HOME, THIRD_HOME] {
        agent.expect_refusal(&TestUpdate::explicit_update(1).with_alternate_care_of_address(care_of), 174);
    }
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_refusal(&TestUpdate::explicit_update(2).with_alternate_care_of_address(SECOND_HOME), 174);
    // The node's own home address as care-of address ends the binding (RFC 6275 9.5.1).
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_alternate_care_of_address(HOME_ADDRESS));
    assert!(agent.home_binding().is_none());
}

/// Packets to a care-of address in the router's own prefix would enter the tunnel again and again.
#[test]
fn home_agent_refuses_care_of_address_inside_the_routers_own_prefix() {
    let mut agent = agent_with_three_nodes();
    agent
        .expect_refusal(&TestUpdate::explicit_update(1).with_alternate_care_of_address("2001:db8:a::5"), 174);
    agent.expect_refusal(&TestUpdate::implicit_update(1).from("2001:db8:a::5"), 174);
}

/// The home agent serves routers behind each other, but refuses a ring of them.
#[test]
fn nested_routers_are_accepted_without_loops() {
    let mut agent = agent_with_three_nodes();
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_acceptance(&update_of_second_node(1, "2001:db8:a::2"));
    agent.expect_acceptance(&update_of_third_node(1, "2001:db8:b::3"));
    // The first router may not move into the network of the third or second router, because both are behind
    // the first one.
    agent
        .expect_refusal(&TestUpdate::explicit_update(2).with_alternate_care_of_address("2001:db8:c::1"), 174);
    agent
        .expect_refusal(&TestUpdate::explicit_update(2).with_alternate_care_of_address("2001:db8:b::1"), 174);
    assert_eq!(agent.registered_care_of_address(), Some(addr(CARE_OF_ADDRESS)));
    // The second router moves elsewhere, so the first may move into the network of the third, which is behind
    // the second. From then on the second may not return into the network of the first.
    agent.expect_acceptance(&update_of_second_node(2, OTHER_CARE_OF_ADDRESS));
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_alternate_care_of_address("2001:db8:c::1"));
    agent.expect_refusal(&update_of_second_node(3, "2001:db8:a::2"), 174);
    // The first router may register from the network of the second, which is not registered. Then the second
    // may not register from the network of the first.
    let mut agent = agent_with_three_nodes();
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_alternate_care_of_address("2001:db8:b::1"));
    agent.expect_refusal(&update_of_second_node(1, "2001:db8:a::2"), 174);
    agent.expect_acceptance(&update_of_second_node(1, OTHER_CARE_OF_ADDRESS));
}

/// The home agent also refuses a ring while it still tests both home addresses on the home link.
#[test]
fn no_tunnel_loop_closes_during_address_test() {
    let mut two = config();
    two.nodes.push(authorized_node(SECOND_HOME, &[SECOND_MOBILE_NETWORK_PREFIX]));
    let mut agent = TestAgent::on_home_link(two);
    assert!(
        agent
            .send_update(&TestUpdate::explicit_update(1).with_alternate_care_of_address("2001:db8:b::1"))
            .is_empty()
    );
    agent.expect_refusal(&update_of_second_node(1, "2001:db8:a::2"), 174);
    agent.advance_time(2.0);
    assert!(agent.home_binding().is_some() && agent.binding_of(SECOND_HOME).is_none());
}
