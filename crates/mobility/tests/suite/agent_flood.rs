//! A flood of forged Binding Updates: nodes with the key go on registering, the home agent answers few
//! forgeries and keeps no state of them. Rates of the real program are measured elsewhere; here the test sets
//! the clock.

use carnet_base::Rng;
use carnet_mobility::{Authentication, SecurityAssociation};

use crate::agent::{TestAgent, authorized_node, config};
use crate::test_messages::*;

const NODE_COUNT: u16 = 20;
const ROUND_COUNT: u16 = 400;
const FORGED_MESSAGE_COUNT: u64 = 50;
const SECONDS_PER_ROUND: f64 = 0.05;

fn home_address_of(number: u64) -> String {
    format!("2001:db8:1::a:{number:x}")
}

fn agent_of_many_nodes() -> TestAgent {
    let mut config = config();
    config.nodes =
        (0..NODE_COUNT).map(|number| authorized_node(&home_address_of(number.into()), &[])).collect();
    for node in &mut config.nodes {
        node.authentication = Authentication::SharedKey(test_association());
    }
    TestAgent::new(config)
}

#[test]
fn nodes_register_during_a_flood_of_forged_updates() {
    let mut rng = Rng::new(12);
    let mut agent = agent_of_many_nodes();
    let wrong = SecurityAssociation { key: [9; 16].into(), ..test_association() };
    let mut answers = 0;
    for round in 0..ROUND_COUNT {
        for _ in 0..FORGED_MESSAGE_COUNT {
            // Select a home address of an unknown node, of another network, or of a configured node.
            let whose = match rng.number_below(4) {
                0 => home_address_of(u64::from(NODE_COUNT) + rng.number_below(1000)),
                1 => format!("2001:db8:77::{:x}", 1 + rng.number_below(1000)),
                _ => home_address_of(rng.number_below(NODE_COUNT.into())),
            };
            let source =
                format!("2001:db8:{:x}::{:x}", 0x1000 + rng.number_below(0x8000), 1 + rng.number_below(1000));
            let forged = TestUpdate::node_update(rng.random_u16())
                .for_home_address(&whose)
                .from(&source)
                .lifetime(rng.number_below(100) as u16);
            let forged = if rng.is_true_with_probability(0.8) {
                forged.with_signature_by(wrong.clone())
            } else {
                forged
            };
            answers += agent.receive_packet(&forged.to_packet()).len();
        }
        // During the flood a configured node registers with its key and its next number.
        let (whose, sequence) = (home_address_of(u64::from(round % NODE_COUNT)), 1 + round / NODE_COUNT);
        agent.expect_acceptance(&TestUpdate::node_update(sequence).for_home_address(&whose).with_signature());
        agent.advance_time(SECONDS_PER_ROUND);
        agent.events.clear();
    }
    assert_eq!(agent.home_agent.bindings().iter().count(), usize::from(NODE_COUNT));
    assert_eq!(agent.home_agent.stored_bindings(agent.now, agent.wall_time()).len(), usize::from(NODE_COUNT));
    // Maximum number of answers: one status 146 in 10 s per node; for status 132 a burst of 20, then 20 per
    // second in total.
    let seconds = f64::from(ROUND_COUNT) * SECONDS_PER_ROUND;
    let most = f64::from(NODE_COUNT) * (1.0 + seconds / 10.0) + 20.0 + 20.0 * seconds;
    let sent = u64::from(ROUND_COUNT) * FORGED_MESSAGE_COUNT;
    assert!(
        answers > 0 && answers as f64 <= most,
        "{answers} answers to {sent} forgeries, expected {most} at most"
    );
}
