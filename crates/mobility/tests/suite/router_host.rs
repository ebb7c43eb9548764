//! A mobile node: a mobile router without a mobile network (RFC 6275 11.7.1, RFC 3963 5.1).

use carnet_mobility::mobile_router::{RegistrationMode, State};

use crate::agent_and_routers::{ADDRESS_ON_HOME_LINK, AgentAndRouters, PairSetup};
use crate::test_messages::*;

/// Returns the setup of a node for which the home agent has no prefixes.
fn host_setup() -> PairSetup {
    let mut setup = PairSetup::plain_setup();
    for node in &mut setup.agent.nodes {
        node.prefixes = [].into();
    }
    setup.routers[0].mode = RegistrationMode::Host;
    setup.routers[0].prefixes.clear();
    setup
}

fn flags_of_update(update: &ReceivedPacket) -> (bool, bool, bool) {
    let ReceivedMessage::Update { flags, .. } = &update.message else { panic!("no update") };
    (flags.acknowledge, flags.home_registration, flags.mobile_router)
}

/// RFC 3963 5.1: without the R flag the home agent keeps a mobile node's binding, and its answer lacks the R
/// flag too.
#[test]
fn mobile_node_registers_without_the_r_flag() {
    let mut pair = AgentAndRouters::new(host_setup());
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    let update = pair.last_update();
    assert_eq!(flags_of_update(&update), (true, true, false));
    assert!(update.options().prefixes.is_empty());
    let answer =
        pair.sent_packets.iter().rfind(|sent| sent.sending_router.is_none()).expect("an acknowledgement");
    assert!(!answer.received_packet.mobile_router());
    assert_eq!(pair.first_router().state(), State::Registered);
    assert_eq!(pair.registered_care_of_address(), Some(addr(CARE_OF_ADDRESS)));
}

/// The node moves and refreshes as a router does, and never changes the kind of its registration (status
/// 139).
#[test]
fn mobile_node_stays_registered_while_it_moves() {
    let mut pair = AgentAndRouters::new(host_setup());
    pair.attach_both_uplinks();
    pair.register_router();
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(120.0);
    assert_eq!(pair.registered_care_of_address(), Some(addr(OTHER_CARE_OF_ADDRESS)));
    assert!(pair.sent_updates().len() > 2);
    assert!(pair.sent_updates().iter().all(|(_, update)| flags_of_update(update) == (true, true, false)));
}

/// RFC 6275 11.5.5: back on the home link the node de-registers from its home address and uses the address
/// itself. The home agent no longer answers for it.
#[test]
fn mobile_node_comes_home_and_leaves_again() {
    let mut pair = AgentAndRouters::new(host_setup().with_home_link());
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    pair.register_router();
    pair.advance_seconds(5.0);
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(2.0);
    let update = pair.last_update();
    assert_eq!((update.source, update.home_address, update.lifetime()), (addr(HOME_ADDRESS), None, 0));
    assert_eq!(flags_of_update(&update), (true, true, false));
    assert_eq!((pair.first_router().state(), pair.registered_care_of_address()), (State::Home, None));
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(3.0);
    assert_eq!(pair.registered_care_of_address(), Some(addr(OTHER_CARE_OF_ADDRESS)));
}
