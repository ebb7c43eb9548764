//! Random networks: loss, repetition, reordering, and changed octets.

use std::time::Duration;

use proptest::prelude::*;

use crate::network::{TestNetwork, session_path};

/// Action of the network on the next datagram.
#[derive(Debug, Clone)]
enum DatagramFate {
    Deliver,
    Lose,
    Repeat,
    /// The datagram moves behind the last one on the wire.
    Delay,
    /// One octet of the datagram changes.
    Change {
        at: usize,
        by: u8,
    },
    Send {
        number: u8,
        down: bool,
    },
    Renew {
        number: u8,
    },
    Wait {
        millis: u64,
    },
}

fn random_fate() -> impl Strategy<Value = DatagramFate> {
    prop_oneof![
        6 => Just(DatagramFate::Deliver),
        2 => Just(DatagramFate::Lose),
        2 => Just(DatagramFate::Repeat),
        2 => Just(DatagramFate::Delay),
        2 => (0usize..200, 1u8..=255).prop_map(|(at, by)| DatagramFate::Change { at, by }),
        6 => (1u8..=3, any::<bool>()).prop_map(|(number, down)| DatagramFate::Send { number, down }),
        1 => (1u8..=3).prop_map(|number| DatagramFate::Renew { number }),
        2 => (1u64..20_000).prop_map(|millis| DatagramFate::Wait { millis }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Over random networks, each payload arrives at most once, unchanged, and on its own path. Afterwards
    /// all paths carry payloads again.
    #[test]
    fn payloads_arrive_at_most_once_and_unchanged_over_random_networks(
        steps in proptest::collection::vec(random_fate(), 1..120),
    ) {
        let mut network = TestNetwork::new();
        for number in [1, 2, 3] {
            network.open_session(number);
        }
        let mut sent = 0u32;
        for step in steps {
            match step {
                DatagramFate::Deliver => {
                    if let Some(datagram) = network.datagrams_on_wire.pop_front() {
                        network.deliver_datagram(&datagram);
                    }
                }
                DatagramFate::Lose => {
                    network.datagrams_on_wire.pop_front();
                }
                DatagramFate::Repeat => {
                    if let Some(datagram) = network.datagrams_on_wire.pop_front() {
                        network.deliver_datagram(&datagram);
                        network.deliver_datagram(&datagram);
                    }
                }
                DatagramFate::Delay => {
                    if let Some(datagram) = network.datagrams_on_wire.pop_front() {
                        network.datagrams_on_wire.push_back(datagram);
                    }
                }
                DatagramFate::Change { at, by } => {
                    if let Some(datagram) = network.datagrams_on_wire.front_mut() {
                        let at = at % datagram.octets.len();
                        datagram.octets[at] ^= by;
                    }
                }
                DatagramFate::Send { number, down } => {
                    sent += 1;
                    let text = format!("{number} {sent}");
                    let _ = match down {
                        true => network.send_to_router(number, text.as_bytes()),
                        false => network.send_to_home_agent(number, text.as_bytes()),
                    };
                    network.collect_datagrams();
                }
                DatagramFate::Renew { number } => {
                    network.router_engine.renew_handshake(network.now, session_path(number));
                    network.collect_datagrams();
                }
                DatagramFate::Wait { millis } => {
                    let now = network.now + Duration::from_millis(millis);
                    network.run_due_timers(now);
                }
            }
            prop_assert!(network.datagrams_on_wire.len() < 1000
                && network.home_agent_engine.session_count() <= 3);
        }
        let mut payloads: Vec<_> = network.received_at_home_agent.iter().chain(&network.received_at_router)
            .collect();
        let all = payloads.len();
        for (path, payload) in &payloads {
            let text = String::from_utf8_lossy(payload);
            let number = text.split(' ').next().and_then(|number| number.parse().ok());
            prop_assert_eq!(number, Some(path.path_number.get()), "{}", text);
        }
        payloads.sort();
        payloads.dedup();
        prop_assert_eq!(payloads.len(), all, "a payload arrived twice");

        // The network works again: within a few seconds each path carries payloads.
        network.datagrams_on_wire.clear();
        network.received_at_home_agent.clear();
        for number in [1, 2, 3] {
            network.router_engine.renew_handshake(network.now, session_path(number));
        }
        network.collect_datagrams();
        let later = network.now + Duration::from_secs(6);
        network.run_until_time(later);
        for number in [1, 2, 3] {
            network.send_to_home_agent(number, b"again").expect("session");
        }
        network.deliver_all_datagrams();
        prop_assert_eq!(network.received_at_home_agent.len(), 3);
    }
}
