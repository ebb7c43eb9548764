//! Home agent: Neighbor Discovery on a real home link (RFC 6275 10.3.1, 10.4.1, RFC 3963 6.2).

use carnet_wire::mobility::BindingUpdateFlags;

use crate::agent::{AGENT_MAC, TestAgent, authorized_node, config};
use crate::test_messages::*;

/// The link-local address that the L flag derives from [`HOME_ADDRESS`].
const HOME_LINK_LOCAL: &str = "fe80::1234";
const WITH_LINK_LOCAL: BindingUpdateFlags = BindingUpdateFlags { link_local: true, ..ROUTER_FLAGS };

/// Conformance item 39, TAHI BU_DAD; RFC 6275 10.3.1: the home address is tested before the first
/// acknowledgement.
#[test]
fn home_agent_acknowledges_after_duplicate_address_detection() {
    let mut agent = TestAgent::on_home_link(config());
    assert!(agent.send_update(&TestUpdate::explicit_update(1)).is_empty());
    assert_eq!(agent.take_dad_targets(), [addr(HOME_ADDRESS)]);
    assert!(agent.home_binding().is_none(), "nothing is forwarded yet");
    assert!(agent.advance_time(0.9).is_empty());
    let answers = agent.advance_time(0.2);
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].status(), answers[0].sequence(), answers[0].lifetime()), (0, 1, 15));
    assert!(agent.home_binding().is_some());
}

/// RFC 6275 10.3.1: the home agent tests the address also on a new link, on which its own address is still
/// tentative.
#[test]
fn home_agent_performs_dad_without_own_link_layer_address() {
    let mut agent = TestAgent::on_fresh_home_link(config());
    assert!(agent.send_update(&TestUpdate::explicit_update(1)).is_empty());
    assert_eq!(agent.take_dad_targets(), [addr(HOME_ADDRESS)]);
    assert!(agent.home_binding().is_none());
    agent.advance_time(1.0);
    assert!(agent.home_binding().is_some());
}

/// RFC 6275 10.4.1: while its link-local address is tentative, the home agent answers solicitations and
/// advertises from its own global address.
#[test]
fn home_agent_defends_home_addresses_before_its_link_local_address_is_usable() {
    let mut agent = TestAgent::on_fresh_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(1.5);
    let told = agent.take_advertisements();
    assert_eq!(
        told.iter().filter(|a| a.target == addr(HOME_ADDRESS) && a.override_ && !a.solicited).count(),
        1
    );
    // Returns the source of the answer to a solicitation.
    let source = |agent: &mut TestAgent, target: &str| {
        agent.link_messages.clear();
        let solicitation = carnet_wire::nd::NeighborSolicitation {
            target: addr(target),
            source_link_address: Some([2, 0, 0, 0, 0, 9]),
        };
        agent.receive_link_message("fe80::9", "ff02::1:ff00:1", solicitation.emit());
        assert_eq!(agent.link_messages.len(), 1, "for {target}");
        let source = agent.link_messages[0].source;
        let said = agent.take_advertisements();
        assert!(said[0].target == addr(target) && said[0].target_link_address == Some(AGENT_MAC));
        source
    };
    for target in [HOME_ADDRESS, HOME_AGENT_ADDRESS] {
        assert_eq!(source(&mut agent, target), addr(HOME_AGENT_ADDRESS));
    }
    agent.set_home_link_running(true);
    assert_eq!(source(&mut agent, HOME_ADDRESS), addr("fe80::1"));
}

/// Conformance item 39: a virtual home link needs no duplicate address detection.
#[test]
fn virtual_home_link_needs_no_duplicate_address_detection() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.advance_time(10.0);
    assert!(agent.link_messages.is_empty());
}

/// Conformance item 39; RFC 6275 10.3.1: duplicate address detection runs "Unless this home agent already has
/// a binding".
#[test]
fn refresh_or_handover_repeats_no_duplicate_address_detection() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(5.0);
    agent.link_messages.clear();
    agent.expect_acceptance(&TestUpdate::explicit_update(2));
    agent.expect_acceptance(&TestUpdate::explicit_update(3).from(OTHER_CARE_OF_ADDRESS));
    assert!(agent.take_dad_targets().is_empty());
}

/// Conformance item 39; RFC 6275 10.3.1: after a conflict the home agent answers with status 134 and does not
/// defend the address.
#[test]
fn home_address_conflict_gets_status_134() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    let answers = agent.send_foreign_advertisement(HOME_ADDRESS);
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].status(), answers[0].sequence()), (134, 1));
    assert_eq!(answers[0].destination, addr(CARE_OF_ADDRESS));
    assert!(agent.advance_time(10.0).is_empty());
    assert!(agent.home_binding().is_none());
    assert!(agent.send_solicitation(HOME_ADDRESS, "fe80::9").is_empty());
    // The other node may leave the link; then the registration succeeds.
    agent.send_update(&TestUpdate::explicit_update(2));
    assert_eq!(agent.advance_time(1.1)[0].status(), 0);
}

/// RFC 4862 5.4.3: another node's duplicate address detection for this address is a conflict as well.
#[test]
fn dad_probe_of_another_node_is_a_conflict() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    let probe =
        carnet_wire::nd::NeighborSolicitation { target: addr(HOME_ADDRESS), source_link_address: None };
    let answers = agent.receive_link_message("::", "ff02::1:ff00:1234", probe.emit());
    assert_eq!(answers[0].status(), 134);
    // A solicitation by a node that resolves the address is no conflict.
    agent.send_update(&TestUpdate::explicit_update(2));
    let look = carnet_wire::nd::NeighborSolicitation {
        target: addr(HOME_ADDRESS),
        source_link_address: Some([2, 0, 0, 0, 0, 9]),
    };
    assert!(agent.receive_link_message("fe80::9", "ff02::1:ff00:1234", look.emit()).is_empty());
    assert_eq!(agent.advance_time(1.1)[0].status(), 0);
}

/// Conformance items 39 and 40; RFC 6275 10.3.1: with the L flag the home agent tests the link-local address
/// too, and a conflict there refuses the registration.
#[test]
fn l_flag_extends_dad_to_the_link_local_address() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1).with_flags(WITH_LINK_LOCAL));
    assert_eq!(agent.take_dad_targets(), [addr(HOME_ADDRESS), addr(HOME_LINK_LOCAL)]);
    assert_eq!(agent.send_foreign_advertisement(HOME_LINK_LOCAL)[0].status(), 134);
    assert!(agent.home_binding().is_none());
}

/// If the update is retransmitted during the test, the home agent sends one probe, and one answer to the last
/// transmission (RFC 6275 11.8).
#[test]
fn home_agent_answers_retransmitted_updates_once_after_dad() {
    let mut agent = TestAgent::on_home_link(config());
    assert!(agent.send_update(&TestUpdate::explicit_update(1)).is_empty());
    agent.advance_time(0.5);
    assert!(agent.send_update(&TestUpdate::explicit_update(2)).is_empty());
    assert_eq!(agent.take_dad_targets().len(), 1);
    // An update with an old number is refused also during the test.
    assert_eq!(agent.send_and_get_acknowledgement(&TestUpdate::explicit_update(2)).status(), 135);
    let answers = agent.advance_time(0.6);
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].status(), answers[0].sequence()), (0, 2));
}

/// RFC 6275 10.3.2: a node that de-registers during the test of its first registration gets no binding.
#[test]
fn deregistration_ends_running_duplicate_address_detection() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(0.3);
    let answer =
        agent.send_and_get_acknowledgement(&TestUpdate::implicit_update(2).sent_on_home_link().lifetime(0));
    assert_eq!((answer.status(), answer.lifetime()), (0, 0));
    assert!(agent.advance_time(20.0).is_empty());
    assert!(agent.home_binding().is_none());
    assert!(agent.take_advertisements().is_empty());
}

/// TAHI BU_NA; RFC 6275 10.4.1, RFC 3963 6.2 (item 15): the home agent multicasts an advertisement, which
/// directs packets of the home link to it.
#[test]
fn home_agent_advertises_home_address_on_home_link() {
    for (update, router) in [(TestUpdate::explicit_update(1), true), (TestUpdate::node_update(1), false)] {
        let mut agent = TestAgent::on_home_link(config());
        agent.send_update(&update);
        agent.advance_time(0.9);
        assert!(agent.take_advertisements().is_empty(), "not before the test is over");
        agent.advance_time(10.0);
        let said = agent.take_advertisements();
        // The home agent sends `MAX_NEIGHBOR_ADVERTISEMENT` (RFC 4861 10) advertisements.
        assert_eq!(said.len(), 3);
        for advertisement in said {
            assert_eq!(advertisement.target, addr(HOME_ADDRESS));
            assert_eq!(advertisement.router, router, "RFC 3963 6.2: R for a mobile router only");
            assert!(advertisement.override_ && !advertisement.solicited);
            assert_eq!(advertisement.target_link_address, Some(AGENT_MAC));
        }
    }
}

/// Conformance item 40, TAHI BU_NA with L; RFC 6275 10.4.1: "MUST do the same for the link-local address".
#[test]
fn link_local_address_with_l_flag_is_advertised_and_defended() {
    let mut agent = TestAgent::on_home_link(config());
    assert!(agent.send_solicitation(HOME_LINK_LOCAL, "fe80::9").is_empty());
    agent.send_update(&TestUpdate::explicit_update(1).with_flags(WITH_LINK_LOCAL));
    agent.advance_time(1.5);
    let targets: Vec<_> = agent.take_advertisements().iter().map(|a| a.target).collect();
    assert_eq!(targets, [addr(HOME_ADDRESS), addr(HOME_LINK_LOCAL)]);
    let said = agent.send_solicitation(HOME_LINK_LOCAL, "fe80::9");
    assert_eq!(said.len(), 1);
    assert!(said[0].router);
}

/// TAHI BU_ND; RFC 6275 10.4.1: the home agent answers solicitations for a bound home address, with the
/// Solicited flag.
#[test]
fn solicitations_for_a_bound_home_address_are_answered() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(5.0);
    agent.link_messages.clear();
    let said = agent.send_solicitation(HOME_ADDRESS, "fe80::9");
    assert_eq!(said.len(), 1);
    assert!(said[0].solicited && said[0].override_ && said[0].router);
    assert_eq!(said[0].target_link_address, Some(AGENT_MAC));
    // RFC 4861 7.2.4: the home agent answers duplicate address detection of the address to all nodes, without
    // the Solicited flag.
    let said = agent.send_solicitation(HOME_ADDRESS, "::");
    assert_eq!(said.len(), 1);
    assert!(!said[0].solicited);
    // Without the L flag the home agent does not answer for the link-local address.
    assert!(agent.send_solicitation(HOME_LINK_LOCAL, "fe80::9").is_empty());
    // The home agent does not answer for an address that no node has registered.
    assert!(agent.send_solicitation("2001:db8:1::5678", "fe80::9").is_empty());
    // RFC 4291 2.7: a multicast address is never a source; an answer would go to the whole group.
    assert!(agent.send_solicitation(HOME_ADDRESS, "ff02::1").is_empty());
}

/// TAHI HA_4_4_1; RFC 6275 10.3.2: after the de-registration the home agent neither advertises nor answers
/// for the address.
#[test]
fn home_agent_sends_no_proxy_advertisement_after_deregistration() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(1.2);
    agent.expect_acceptance(&TestUpdate::implicit_update(2).sent_on_home_link().lifetime(0));
    agent.link_messages.clear();
    assert!(agent.send_solicitation(HOME_ADDRESS, "fe80::9").is_empty());
    agent.advance_time(10.0);
    assert!(agent.take_advertisements().is_empty());
}

/// RFC 6275 10.4.1: after the lifetime the home agent no longer answers for the address.
#[test]
fn home_agent_sends_no_proxy_advertisement_after_binding_expires() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1).lifetime(1));
    agent.advance_time(1.1);
    assert_eq!(agent.send_solicitation(HOME_ADDRESS, "fe80::9").len(), 1);
    agent.advance_time(4.0);
    agent.link_messages.clear();
    assert!(agent.send_solicitation(HOME_ADDRESS, "fe80::9").is_empty());
    agent.advance_time(10.0);
    assert!(agent.take_advertisements().is_empty());
}

/// The home agent always answers for its own address.
#[test]
fn home_agent_answers_solicitations_for_own_address() {
    let mut agent = TestAgent::on_home_link(config());
    let said = agent.send_solicitation(HOME_AGENT_ADDRESS, "fe80::9");
    assert_eq!(said.len(), 1);
    assert!(said[0].router && said[0].solicited);
}

/// RFC 4861 7.1.1, 7.1.2: the home agent drops Neighbor Discovery messages that come from beyond the link.
#[test]
fn neighbor_discovery_from_beyond_the_link_is_ignored() {
    let mut agent = TestAgent::on_home_link(config());
    let solicitation =
        carnet_wire::nd::NeighborSolicitation { target: addr(HOME_AGENT_ADDRESS), source_link_address: None };
    let mut message = solicitation.emit();
    carnet_wire::icmpv6::set_checksum(&mut message, addr("fe80::9"), addr(HOME_AGENT_ADDRESS));
    let mut message = carnet_base::LinkMessage {
        interface: "h0".into(),
        source: addr("fe80::9"),
        destination: addr(HOME_AGENT_ADDRESS),
        hop_limit: 254,
        peer: None,
        message,
    };
    let now = agent.now;
    assert!(agent.home_agent.handle_link_message(now, &message).is_err());
    message.hop_limit = 255;
    message.message[20] ^= 1;
    assert!(agent.home_agent.handle_link_message(now, &message).is_err());
    assert!(agent.take_answers().is_empty() && agent.link_messages.is_empty());
}

/// When the home link comes back, the home agent advertises all registered home addresses again.
#[test]
fn a_home_link_that_comes_back_receives_router_advertisements_again() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(10.0);
    agent.link_messages.clear();
    agent.set_home_link_running(false);
    assert!(agent.send_solicitation(HOME_ADDRESS, "fe80::9").is_empty());
    agent.set_home_link_running(true);
    let targets: Vec<_> = agent.take_advertisements().iter().map(|a| a.target).collect();
    assert!(targets.contains(&addr(HOME_ADDRESS)) && targets.contains(&addr(HOME_AGENT_ADDRESS)));
}

/// A conflict of one of two addresses under test does not refuse the other.
#[test]
fn an_address_conflict_affects_only_its_own_address() {
    let other = "2001:db8:1::5678";
    let mut two = config();
    two.nodes.push(authorized_node(other, &[SECOND_MOBILE_NETWORK_PREFIX]));
    let mut agent = TestAgent::on_home_link(two);
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.send_update(
        &TestUpdate::implicit_update(1)
            .for_home_address(other)
            .from(OTHER_CARE_OF_ADDRESS)
            .prefix(SECOND_MOBILE_NETWORK_PREFIX),
    );
    let answers = agent.send_foreign_advertisement(other);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].routing_home_address, Some(addr(other)));
    assert_eq!(agent.advance_time(1.1)[0].routing_home_address, Some(addr(HOME_ADDRESS)));
    assert!(agent.home_binding().is_some());
}
