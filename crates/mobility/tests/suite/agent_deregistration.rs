//! Home agent: the end of a binding (RFC 6275 10.3.2, RFC 3963 6.7).

use carnet_mobility::MobilityDrop;
use carnet_wire::mobility::BindingUpdateFlags;

use crate::agent::{Agent, config};
use crate::craft::*;

fn bound() -> Agent {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(10));
    agent.forwarding_changes = 0;
    agent
}

#[track_caller]
fn gone(agent: &mut Agent, update: &Update) {
    let answer = agent.accept(update);
    assert_eq!(answer.lifetime(), 0, "RFC 6275 10.3.2: lifetime zero");
    assert_eq!(answer.sequence(), update.sequence);
    assert!(agent.binding().is_none());
    assert!(agent.forwarding_changes > 0);
    assert!(agent.machine.bindings().iter().next().is_none());
}

/// TAHI DeReg_LT0_FOREIGN; RFC 6275 10.3.2: de-registration with lifetime 0 from the care-of address.
#[test]
fn deregistration_from_foreign_link_ends_binding() {
    gone(&mut bound(), &Update::implicit(11).lifetime(0).alternate(CARE_OF));
}

/// TAHI DeReg_LT0_HOME: de-registration with lifetime 0 from the home address, without a Home Address option.
#[test]
fn deregistration_from_home_link_ends_binding() {
    gone(&mut bound(), &Update::implicit(11).at_home().lifetime(0));
}

/// TAHI DeReg_LT1_HOME; RFC 3963 6.2: "or the specified Care-of address matches the Home Address".
#[test]
fn update_with_home_address_as_care_of_address_deregisters() {
    gone(&mut bound(), &Update::implicit(11).at_home().lifetime(15));
    gone(&mut bound(), &Update::implicit(11).alternate(HOME).lifetime(15));
}

/// The home agent sends no acknowledgement to itself, and ends no binding by a message whose source is its
/// own address.
#[test]
fn the_home_agents_own_address_is_no_care_of_address() {
    let mut agent = bound();
    for lifetime in [0, 15] {
        let update = Update::implicit(11).lifetime(lifetime);
        assert_eq!(agent.ignore(&update.clone().from(AGENT).packet()), MobilityDrop::CareOfAddress);
        agent.refuse(&update.alternate(AGENT), 174);
    }
    assert!(agent.binding().is_some());
}

/// Conformance item 10, design decision 9; RFC 3963 6.2: "the Home Agent ignores the value of the Mobile
/// Router Flag".
#[test]
fn deregistration_ignores_r_flag() {
    gone(&mut bound(), &Update::node(11).lifetime(0));
    let mut agent = Agent::new(config());
    agent.accept(&Update::node(10));
    gone(&mut agent, &Update::implicit(11).lifetime(0));
}

/// Conformance items 12 and 13; RFC 3963 6.7: the home agent "MUST" ignore prefix options in a
/// de-registration. It removes all prefixes, implicit ones too.
#[test]
fn deregistration_removes_all_prefixes() {
    gone(&mut bound(), &Update::implicit(11).lifetime(0).prefix(SECOND_PREFIX));
    let mut agent = Agent::new(config());
    agent.accept(&Update::implicit(10));
    gone(&mut agent, &Update::implicit(11).lifetime(0));
}

/// Conformance item 37, TAHI DeReg_NotHA4ThisMN; RFC 6275 10.3.2: a de-registration without a binding is
/// answered 133.
#[test]
fn deregistration_without_binding_gets_status_133() {
    let mut agent = Agent::new(config());
    agent.refuse(&Update::implicit(1).lifetime(0), 133);
    let mut agent = bound();
    agent.accept(&Update::implicit(11).lifetime(0));
    agent.refuse(&Update::implicit(12).lifetime(0), 133);
}

/// RFC 6275 9.5.1 applies to de-registrations: an old number ends no binding.
#[test]
fn deregistration_with_old_sequence_number_is_refused() {
    let mut agent = bound();
    assert_eq!(agent.refuse(&Update::implicit(10).lifetime(0), 135).sequence(), 10);
}

/// Conformance item 38; RFC 6275 10.3.2: the home agent answers an update from before the de-registration
/// with 135 for `MAX_DELETE_BCE_TIMEOUT`.
#[test]
fn a_late_update_does_not_bring_the_binding_back() {
    let mut agent = bound();
    agent.accept(&Update::implicit(12).at_home().lifetime(0));
    agent.wait(9.5);
    let answer = agent.refuse(&Update::explicit(11), 135);
    assert_eq!(answer.sequence(), 12);
    assert_eq!(answer.destination, addr(CARE_OF));
    // An update with a newer number is accepted.
    agent.accept(&Update::explicit(13));
}

/// RFC 6275 10.3.2, 9.5.1: after that time the home agent deletes the entry and, without a key, forgets the
/// number.
#[test]
fn deregistered_entry_is_forgotten_after_ten_seconds() {
    let mut agent = bound();
    agent.accept(&Update::implicit(12).lifetime(0));
    agent.wait(10.1);
    assert_eq!(agent.machine.bindings().sequence(addr(HOME)), None);
    agent.accept(&Update::explicit(3));
}

/// A new registration within `MAX_DELETE_BCE_TIMEOUT` (10 s) keeps its full lifetime.
#[test]
fn registration_after_deregistration_stays() {
    let mut agent = bound();
    agent.accept(&Update::implicit(11).lifetime(0));
    agent.wait(5.0);
    agent.accept(&Update::explicit(12));
    agent.wait(30.0);
    assert!(agent.binding().is_some());
}

/// After a de-registration the home agent still accepts packets on their way from the last care-of address,
/// but no longer from the address before it.
#[test]
fn deregistration_ends_grace_of_old_care_of_address() {
    let mut agent = bound();
    agent.accept(&Update::explicit(11).from(OTHER_CARE_OF));
    agent.accept(&Update::implicit(12).from(OTHER_CARE_OF).lifetime(0));
    let left = |agent: &Agent| {
        let former = agent.machine.bindings().former(addr(HOME));
        assert!(former.len() <= 1);
        former.first().and_then(|path| path.care_of_address.ipv6())
    };
    assert_eq!(left(&agent), Some(addr(OTHER_CARE_OF)));
    agent.wait(5.0);
    assert_eq!(left(&agent), None);
    agent.wait(60.0);
}

/// RFC 6275 9.5.4: the home agent answers a de-registration with or without the A flag (10.3.2: "MUST
/// return").
#[test]
fn deregistration_without_a_flag_is_acknowledged() {
    let flags = BindingUpdateFlags { acknowledge: false, ..ROUTER };
    gone(&mut bound(), &Update::implicit(11).lifetime(0).flags(flags));
}
