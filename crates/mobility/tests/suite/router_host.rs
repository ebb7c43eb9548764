//! A mobile node: a mobile router without a mobile network (RFC 6275 11.7.1, RFC 3963 5.1).

use carnet_mobility::mobile_router::{RegistrationMode, State};

use crate::craft::*;
use crate::pair::{AT_HOME, Pair, Setup};

/// A node for which the home agent has no prefixes.
fn setup() -> Setup {
    let mut setup = Setup::plain();
    for node in &mut setup.agent.nodes {
        node.prefixes = [].into();
    }
    setup.routers[0].mode = RegistrationMode::Host;
    setup.routers[0].prefixes.clear();
    setup
}

fn flags(update: &Seen) -> (bool, bool, bool) {
    let SeenMessage::Update { flags, .. } = &update.message else { panic!("no update") };
    (flags.acknowledge, flags.home_registration, flags.mobile_router)
}

/// RFC 3963 5.1: without the R flag the home agent keeps a mobile node's binding, and its answer lacks the R
/// flag too.
#[test]
fn a_node_registers_without_the_flag_of_routers() {
    let mut pair = Pair::new(setup());
    pair.attach(0, "wifi", CARE_OF);
    pair.register();
    let update = pair.last_update();
    assert_eq!(flags(&update), (true, true, false));
    assert!(update.options().prefixes.is_empty());
    let answer = pair.sent.iter().rfind(|sent| sent.router.is_none()).expect("an acknowledgement");
    assert!(!answer.seen.mobile_router());
    assert_eq!(pair.machine().state(), State::Registered);
    assert_eq!(pair.bound(), Some(addr(CARE_OF)));
}

/// The node moves and refreshes as a router does, and never changes the kind of its registration (status
/// 139).
#[test]
fn a_node_stays_registered_while_it_moves() {
    let mut pair = Pair::new(setup());
    pair.attach_both();
    pair.register();
    pair.detach(0, "wifi");
    pair.run(120.0);
    assert_eq!(pair.bound(), Some(addr(OTHER_CARE_OF)));
    assert!(pair.updates().len() > 2);
    assert!(pair.updates().iter().all(|(_, update)| flags(update) == (true, true, false)));
}

/// RFC 6275 11.5.5: back on the home link the node de-registers from its home address and uses the address
/// itself. The home agent no longer answers for it.
#[test]
fn a_node_comes_home_and_leaves_again() {
    let mut pair = Pair::new(setup().with_home_link());
    pair.attach(0, "cell", OTHER_CARE_OF);
    pair.register();
    pair.run(5.0);
    pair.attach(0, "wifi", AT_HOME);
    pair.run(2.0);
    let update = pair.last_update();
    assert_eq!((update.source, update.home_address, update.lifetime()), (addr(HOME), None, 0));
    assert_eq!(flags(&update), (true, true, false));
    assert_eq!((pair.machine().state(), pair.bound()), (State::Home, None));
    pair.detach(0, "wifi");
    pair.run(3.0);
    assert_eq!(pair.bound(), Some(addr(OTHER_CARE_OF)));
}
