//! Random networks: loss, repetition, reordering, and changed octets.

use std::time::Duration;

use proptest::prelude::*;

use crate::network::{Network, path};

/// Fate of the next datagram on the wire.
#[derive(Debug, Clone)]
enum Step {
    Deliver,
    Lose,
    Repeat,
    /// The first datagram moves behind the last one.
    Delay,
    /// One octet changes.
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

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Deliver),
        2 => Just(Step::Lose),
        2 => Just(Step::Repeat),
        2 => Just(Step::Delay),
        2 => (0usize..200, 1u8..=255).prop_map(|(at, by)| Step::Change { at, by }),
        6 => (1u8..=3, any::<bool>()).prop_map(|(number, down)| Step::Send { number, down }),
        1 => (1u8..=3).prop_map(|number| Step::Renew { number }),
        2 => (1u64..20_000).prop_map(|millis| Step::Wait { millis }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Each payload arrives at most once, unchanged, and on its own path. Afterwards the paths work.
    #[test]
    fn payloads_arrive_once_and_unchanged_over_random_networks(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut network = Network::new();
        for number in [1, 2, 3] {
            network.connect(number);
        }
        let mut sent = 0u32;
        for step in steps {
            match step {
                Step::Deliver => {
                    if let Some(datagram) = network.wire.pop_front() {
                        network.deliver(&datagram);
                    }
                }
                Step::Lose => {
                    network.wire.pop_front();
                }
                Step::Repeat => {
                    if let Some(datagram) = network.wire.pop_front() {
                        network.deliver(&datagram);
                        network.deliver(&datagram);
                    }
                }
                Step::Delay => {
                    if let Some(datagram) = network.wire.pop_front() {
                        network.wire.push_back(datagram);
                    }
                }
                Step::Change { at, by } => {
                    if let Some(datagram) = network.wire.front_mut() {
                        let at = at % datagram.octets.len();
                        datagram.octets[at] ^= by;
                    }
                }
                Step::Send { number, down } => {
                    sent += 1;
                    let text = format!("{number} {sent}");
                    let _ = match down {
                        true => network.send_down(number, text.as_bytes()),
                        false => network.send(number, text.as_bytes()),
                    };
                    network.collect();
                }
                Step::Renew { number } => {
                    network.router.renew(network.now, path(number));
                    network.collect();
                }
                Step::Wait { millis } => {
                    let now = network.now + Duration::from_millis(millis);
                    network.tick(now);
                }
            }
            prop_assert!(network.wire.len() < 1000 && network.home.sessions() <= 3);
        }
        let mut payloads: Vec<_> = network.at_home.iter().chain(&network.at_router).collect();
        let all = payloads.len();
        for (path, payload) in &payloads {
            let text = String::from_utf8_lossy(payload);
            let number = text.split(' ').next().and_then(|number| number.parse().ok());
            prop_assert_eq!(number, Some(path.number.get()), "{}", text);
        }
        payloads.sort();
        payloads.dedup();
        prop_assert_eq!(payloads.len(), all, "a payload arrived twice");

        // The network works again: within a few seconds each path carries payloads.
        network.wire.clear();
        network.at_home.clear();
        for number in [1, 2, 3] {
            network.router.renew(network.now, path(number));
        }
        network.collect();
        let later = network.now + Duration::from_secs(6);
        network.run_until(later);
        for number in [1, 2, 3] {
            network.send(number, b"again").expect("session");
        }
        network.deliver_all();
        prop_assert_eq!(network.at_home.len(), 3);
    }
}
