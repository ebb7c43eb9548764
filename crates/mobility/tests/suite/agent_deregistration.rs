//! Home agent: the end of a binding (RFC 6275 10.3.2, RFC 3963 6.7).

use carnet_mobility::MobilityDrop;
use carnet_wire::mobility::BindingUpdateFlags;

use crate::agent::{TestAgent, config};
use crate::test_messages::*;

fn agent_with_binding() -> TestAgent {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(10));
    agent.forwarding_changes = 0;
    agent
}

#[track_caller]
fn expect_deregistration(agent: &mut TestAgent, update: &TestUpdate) {
    let answer = agent.expect_acceptance(update);
    assert_eq!(answer.lifetime(), 0, "RFC 6275 10.3.2: lifetime zero");
    assert_eq!(answer.sequence(), update.sequence);
    assert!(agent.home_binding().is_none());
    assert!(agent.forwarding_changes > 0);
    assert!(agent.home_agent.bindings().iter().next().is_none());
}

/// TAHI DeReg_LT0_FOREIGN; RFC 6275 10.3.2: de-registration with lifetime 0 from the care-of address.
#[test]
fn deregistration_from_foreign_link_ends_binding() {
    expect_deregistration(
        &mut agent_with_binding(),
        &TestUpdate::implicit_update(11).lifetime(0).with_alternate_care_of_address(CARE_OF_ADDRESS),
    );
}

/// TAHI DeReg_LT0_HOME: de-registration with lifetime 0 from the home address, without a Home Address option.
#[test]
fn deregistration_from_home_link_ends_binding() {
    expect_deregistration(
        &mut agent_with_binding(),
        &TestUpdate::implicit_update(11).sent_on_home_link().lifetime(0),
    );
}

/// TAHI DeReg_LT1_HOME; RFC 3963 6.2: an update de-registers if its lifetime is 0 "or the specified Care-of
/// address matches the Home Address".
#[test]
fn update_with_home_address_as_care_of_address_deregisters() {
    expect_deregistration(
        &mut agent_with_binding(),
        &TestUpdate::implicit_update(11).sent_on_home_link().lifetime(15),
    );
    expect_deregistration(
        &mut agent_with_binding(),
        &TestUpdate::implicit_update(11).with_alternate_care_of_address(HOME_ADDRESS).lifetime(15),
    );
}

/// The home agent sends no acknowledgement to itself, and ends no binding by a message whose source is its
/// own address.
#[test]
fn the_home_agents_own_address_is_no_care_of_address() {
    let mut agent = agent_with_binding();
    for lifetime in [0, 15] {
        let update = TestUpdate::implicit_update(11).lifetime(lifetime);
        assert_eq!(
            agent.expect_drop(&update.clone().from(HOME_AGENT_ADDRESS).to_packet()),
            MobilityDrop::CareOfAddress
        );
        agent.expect_refusal(&update.with_alternate_care_of_address(HOME_AGENT_ADDRESS), 174);
    }
    assert!(agent.home_binding().is_some());
}

/// Conformance item 10; RFC 3963 6.2: "the Home Agent ignores the value of the Mobile Router Flag".
#[test]
fn deregistration_ignores_r_flag() {
    expect_deregistration(&mut agent_with_binding(), &TestUpdate::node_update(11).lifetime(0));
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::node_update(10));
    expect_deregistration(&mut agent, &TestUpdate::implicit_update(11).lifetime(0));
}

/// Conformance items 12 and 13; RFC 3963 6.7: the home agent "MUST" ignore prefix options in a
/// de-registration. It removes all prefixes, implicit ones too.
#[test]
fn deregistration_removes_all_prefixes() {
    expect_deregistration(
        &mut agent_with_binding(),
        &TestUpdate::implicit_update(11).lifetime(0).prefix(SECOND_MOBILE_NETWORK_PREFIX),
    );
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::implicit_update(10));
    expect_deregistration(&mut agent, &TestUpdate::implicit_update(11).lifetime(0));
}

/// Conformance item 37, TAHI DeReg_NotHA4ThisMN; RFC 6275 10.3.2: a de-registration without a binding gets
/// status 133.
#[test]
fn deregistration_without_binding_gets_status_133() {
    let mut agent = TestAgent::new(config());
    agent.expect_refusal(&TestUpdate::implicit_update(1).lifetime(0), 133);
    let mut agent = agent_with_binding();
    agent.expect_acceptance(&TestUpdate::implicit_update(11).lifetime(0));
    agent.expect_refusal(&TestUpdate::implicit_update(12).lifetime(0), 133);
}

/// RFC 6275 9.5.1 applies to de-registrations: an old number ends no binding.
#[test]
fn deregistration_with_old_sequence_number_is_refused() {
    let mut agent = agent_with_binding();
    assert_eq!(agent.expect_refusal(&TestUpdate::implicit_update(10).lifetime(0), 135).sequence(), 10);
}

/// Conformance item 38; RFC 6275 10.3.2: the home agent answers an update from before the de-registration
/// with 135 for `MAX_DELETE_BCE_TIMEOUT`.
#[test]
fn delayed_update_does_not_restore_deregistered_binding() {
    let mut agent = agent_with_binding();
    agent.expect_acceptance(&TestUpdate::implicit_update(12).sent_on_home_link().lifetime(0));
    agent.advance_time(9.5);
    let answer = agent.expect_refusal(&TestUpdate::explicit_update(11), 135);
    assert_eq!(answer.sequence(), 12);
    assert_eq!(answer.destination, addr(CARE_OF_ADDRESS));
    // A Binding Update with a newer number is accepted.
    agent.expect_acceptance(&TestUpdate::explicit_update(13));
}

/// RFC 6275 10.3.2, 9.5.1: after `MAX_DELETE_BCE_TIMEOUT` the home agent deletes the entry and, without a
/// key, forgets the number.
#[test]
fn deregistered_entry_is_forgotten_after_ten_seconds() {
    let mut agent = agent_with_binding();
    agent.expect_acceptance(&TestUpdate::implicit_update(12).lifetime(0));
    agent.advance_time(10.1);
    assert_eq!(agent.home_agent.bindings().sequence(addr(HOME_ADDRESS)), None);
    agent.expect_acceptance(&TestUpdate::explicit_update(3));
}

/// A new registration within `MAX_DELETE_BCE_TIMEOUT` (10 s) keeps its full lifetime.
#[test]
fn registration_soon_after_deregistration_keeps_its_lifetime() {
    let mut agent = agent_with_binding();
    agent.expect_acceptance(&TestUpdate::implicit_update(11).lifetime(0));
    agent.advance_time(5.0);
    agent.expect_acceptance(&TestUpdate::explicit_update(12));
    agent.advance_time(30.0);
    assert!(agent.home_binding().is_some());
}

/// After a de-registration the home agent still accepts packets on their way from the last care-of address,
/// but no longer from the address before it.
#[test]
fn deregistration_ends_grace_period_of_the_care_of_address_before_last() {
    let mut agent = agent_with_binding();
    agent.expect_acceptance(&TestUpdate::explicit_update(11).from(OTHER_CARE_OF_ADDRESS));
    agent.expect_acceptance(&TestUpdate::implicit_update(12).from(OTHER_CARE_OF_ADDRESS).lifetime(0));
    let left = |agent: &TestAgent| {
        let former = agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS));
        assert!(former.len() <= 1);
        former.first().and_then(|path| path.care_of_address.ipv6())
    };
    assert_eq!(left(&agent), Some(addr(OTHER_CARE_OF_ADDRESS)));
    agent.advance_time(5.0);
    assert_eq!(left(&agent), None);
    agent.advance_time(60.0);
}

/// RFC 6275 9.5.4: the home agent answers a de-registration with or without the A flag (10.3.2: "MUST
/// return").
#[test]
fn deregistration_without_a_flag_is_acknowledged() {
    let flags = BindingUpdateFlags { acknowledge: false, ..ROUTER_FLAGS };
    expect_deregistration(
        &mut agent_with_binding(),
        &TestUpdate::implicit_update(11).lifetime(0).with_flags(flags),
    );
}
