//! The home agent never accepts a recorded Binding Update again (RFC 6275 15.3), whatever restarts, losses
//! and clock changes occur.
//!
//! A real mobile router and a real home agent, in virtual time. An attacker on the path records every Binding
//! Update. After each step it replays all of them, to the home agent and to one that has just started with
//! the stored state.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::mobile_router::{MobileRouterConfig, StoredSequence};
use carnet_mobility::{
    Authentication, HomeAgent, MobileRouter, MobilityMessage, Output, SecurityAssociation, SharedKeys,
};
use carnet_wire::mobility::ParsedMobilityMessage;
use proptest::prelude::*;

use crate::agent::{WALL_START, authenticated_config};
use crate::test_messages::*;
use crate::test_setup::{addresses, router_config};

const MINUTE_SECONDS: u64 = 60;
const DAY_SECONDS: u64 = 24 * 60 * MINUTE_SECONDS;
/// Maximum number of recordings that the attacker replays at once.
const MAX_REPLAYED_MESSAGES: usize = 40;

/// One step of a schedule.
#[derive(Debug, Clone)]
enum ScheduleStep {
    /// Time passes, and packets arrive.
    Run { seconds: u64 },
    /// Time passes; the network loses Binding Updates, or their answers.
    Lose { seconds: u64, updates: bool },
    /// The router is off for `off` seconds. It starts with its last stored state, with the state before, or
    /// without state.
    RestartRouter { off: u64, with_state: bool, stale: bool },
    /// The home agent restarts with its stored state.
    RestartAgent,
    /// The router's clock is ahead by this many seconds.
    RouterClock { ahead: i64 },
    /// The home agent's clock is ahead by this many seconds.
    AgentClock { ahead: i64 },
    /// The router signs with one of the two keys that the home agent accepts.
    Key { second: bool },
    /// The home agent reloads a config without the node, or with other keys for it (by `meanwhile`), and
    /// later the right config.
    Reload { meanwhile: u8 },
    /// Before each Binding Update of the router, an attacker on the path replays recorded updates to the home
    /// agent, or recorded answers to the router. Both have the addresses of the genuine messages.
    Attack { seconds: u64, updates: bool, answers: bool },
}

fn schedule_step_strategy() -> impl Strategy<Value = ScheduleStep> {
    let clock = -40 * DAY_SECONDS as i64..40 * DAY_SECONDS as i64;
    prop_oneof![
    4 => (1..1200_u64).prop_map(|seconds| ScheduleStep::Run { seconds }),
    2 => (1..100_u64, any::<bool>())
    .prop_map(|(seconds, updates)| ScheduleStep::Lose { seconds, updates }),
    6 => (0..50 * DAY_SECONDS, any::<bool>(), any::<bool>())
    .prop_map(|(off, with_state, stale)| ScheduleStep::RestartRouter { off, with_state, stale }),
    1 => Just(ScheduleStep::RestartAgent),
    1 => clock.clone().prop_map(|ahead| ScheduleStep::RouterClock { ahead }),
    1 => clock.prop_map(|ahead| ScheduleStep::AgentClock { ahead }),
    1 => any::<bool>().prop_map(|second| ScheduleStep::Key { second }),
    1 => (0..3_u8).prop_map(|meanwhile| ScheduleStep::Reload { meanwhile }),
    3 => (1..400_u64, any::<bool>(), any::<bool>())
    .prop_map(|(seconds, updates, answers)| ScheduleStep::Attack {
    seconds,
    updates,
    answers
    }),
    ]
}

fn second_association() -> SecurityAssociation {
    SecurityAssociation { spi: 301, key: [7; 16].into(), ..test_association() }
}

fn agent_config(associations: &[SecurityAssociation]) -> HomeAgentConfig {
    let mut config = authenticated_config();
    let keys = SharedKeys { associations: associations.to_vec(), derives_key_per_agent: false };
    config.nodes[0].authentication = Authentication::SharedKeys(Box::new(keys));
    config
}

struct ReplayedExchange {
    now: Time,
    config: HomeAgentConfig,
    agent: HomeAgent,
    agent_clock_lead: i64,
    router: MobileRouter,
    router_config: MobileRouterConfig,
    router_clock_lead: i64,
    stored_sequences: VecDeque<StoredSequence>,
    /// Every Binding Update that the router has sent. `accepted` has the indices of those that the home agent
    /// accepted.
    recorded_updates: Vec<Vec<u8>>,
    accepted_updates: BTreeSet<usize>,
    /// Every answer that the home agent has sent.
    recorded_answers: Vec<Vec<u8>>,
    rng: Rng,
    loses_packets: Option<bool>,
    replays_updates: bool,
    replays_answers: bool,
}

impl ReplayedExchange {
    fn new() -> ReplayedExchange {
        let config = agent_config(&[test_association(), second_association()]);
        let mut router_config = router_config();
        router_config.authentication = Authentication::SharedKey(test_association());
        let mut rng = Rng::new(1);
        let mut world = ReplayedExchange {
            now: Time::from_secs(1000),
            agent: HomeAgent::new(config.clone()),
            config,
            agent_clock_lead: 0,
            router: MobileRouter::new(router_config.clone(), &mut rng),
            router_config,
            router_clock_lead: 0,
            stored_sequences: VecDeque::new(),
            recorded_updates: Vec::new(),
            accepted_updates: BTreeSet::new(),
            recorded_answers: Vec::new(),
            rng,
            loses_packets: None,
            replays_updates: false,
            replays_answers: false,
        };
        world.attach_router();
        world
    }

    fn wall_time(&self, ahead: i64) -> WallTime {
        let seconds = (WALL_START.as_unix_nanos() / 1_000_000_000).saturating_add_signed(ahead);
        WallTime::from_unix_nanos(seconds * 1_000_000_000) + self.now.saturating_since(Time::ZERO)
    }

    fn attach_router(&mut self) {
        let mut interface = carnet_virtual::running_interface(
            "wifi",
            [2, 0, 0, 0, 1, 0],
            addresses(&["fe80::2", CARE_OF_ADDRESS]),
        );
        interface.routers = vec![addr("fe80::ff").into()];
        let wall = self.wall_time(self.router_clock_lead);
        self.router.handle_interface(self.now, wall, &interface);
        self.exchange_packets();
    }

    /// Carries packets between the router and the home agent until no packet is left.
    fn exchange_packets(&mut self) {
        let mut answers = VecDeque::new();
        loop {
            while let Some(output) = self.router.poll_output() {
                match output {
                    Output::Packet(packet) => {
                        let number = self.recorded_updates.len();
                        let is_update = is_binding_update(&packet);
                        if is_update {
                            if self.replays_updates {
                                self.replay_updates();
                            }
                            self.recorded_updates.push(packet.clone());
                        }
                        if self.loses_packets != Some(true) {
                            let wall = self.wall_time(self.agent_clock_lead);
                            let (accepted, answer) =
                                deliver_to_agent(&mut self.agent, self.now, wall, &packet);
                            self.recorded_answers.extend(answer.iter().cloned());
                            if self.replays_answers {
                                answers.extend(
                                    self.recorded_answers.iter().rev().take(MAX_REPLAYED_MESSAGES).cloned(),
                                );
                            }
                            if accepted && is_update {
                                self.accepted_updates.insert(number);
                            }
                            if self.loses_packets.is_none() {
                                answers.extend(answer);
                            }
                        }
                    }
                    Output::Persist(_) => {
                        self.stored_sequences.push_front(self.router.stored_state());
                        self.stored_sequences.truncate(2);
                    }
                    _ => {}
                }
            }
            let Some(answer) = answers.pop_front() else { return };
            let wall = self.wall_time(self.router_clock_lead);
            let _ = self.router.handle_message(self.now, wall, expect_mobility_message(&answer));
        }
    }

    /// Replays the first and the last recordings to the home agent, which must not accept an accepted update
    /// again.
    fn replay_updates(&mut self) {
        let wall = self.wall_time(self.agent_clock_lead);
        let half = MAX_REPLAYED_MESSAGES / 2;
        let numbers: BTreeSet<usize> = (0..self.recorded_updates.len())
            .filter(|it| *it < half || it + half >= self.recorded_updates.len())
            .collect();
        for number in numbers {
            let (accepted, _) =
                deliver_to_agent(&mut self.agent, self.now, wall, &self.recorded_updates[number]);
            // An update that was lost is new, and the home agent may accept it once.
            assert!(
                !accepted || self.accepted_updates.insert(number),
                "Binding Update {number} is accepted again"
            );
        }
    }

    fn advance_seconds(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            let due = self.router.poll_timeout().into_iter().chain(self.agent.poll_timeout()).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.agent.handle_timeout(self.now);
            while self.agent.poll_output().is_some() {}
            let wall = self.wall_time(self.router_clock_lead);
            self.router.handle_timeout(self.now, wall);
            self.exchange_packets();
        }
        self.now = end;
    }

    /// Restarts the home agent with its stored state, under this config.
    fn restart_agent(&mut self, config: HomeAgentConfig) {
        self.agent = self.restored_agent(config);
    }

    fn restored_agent(&self, config: HomeAgentConfig) -> HomeAgent {
        let wall = self.wall_time(self.agent_clock_lead);
        let stored = self.agent.stored_bindings(self.now, wall);
        // Encodes the state as on the disk.
        let text = serde_json::to_string(&stored).expect("a state");
        let mut agent = HomeAgent::new(config);
        agent.restore(self.now, wall, serde_json::from_str(&text).expect("a state"));
        while agent.poll_output().is_some() {}
        agent
    }

    fn perform_step(&mut self, step: &ScheduleStep) {
        match *step {
            ScheduleStep::Run { seconds } => self.advance_seconds(seconds),
            ScheduleStep::Lose { seconds, updates } => {
                self.loses_packets = Some(updates);
                self.advance_seconds(seconds);
                self.loses_packets = None;
            }
            ScheduleStep::RestartRouter { off, with_state, stale } => {
                self.now += Duration::from_secs(off);
                self.agent.handle_timeout(self.now);
                while self.agent.poll_output().is_some() {}
                self.router = MobileRouter::new(self.router_config.clone(), &mut self.rng);
                let stored = self.stored_sequences.get(usize::from(stale)).or(self.stored_sequences.front());
                if let Some(stored) = stored.filter(|_| with_state) {
                    self.router.restore(*stored);
                }
                self.attach_router();
                self.advance_seconds(1);
            }
            ScheduleStep::RestartAgent => self.restart_agent(self.config.clone()),
            ScheduleStep::Attack { seconds, updates, answers } => {
                (self.replays_updates, self.replays_answers) = (updates, answers);
                self.advance_seconds(seconds);
                (self.replays_updates, self.replays_answers) = (false, false);
            }
            ScheduleStep::RouterClock { ahead } => self.router_clock_lead = ahead,
            ScheduleStep::AgentClock { ahead } => self.agent_clock_lead = ahead,
            ScheduleStep::Key { second } => {
                let key = if second { second_association() } else { test_association() };
                self.router_config.authentication = Authentication::SharedKey(key);
                let new = MobileRouter::new(self.router_config.clone(), &mut self.rng);
                let old = std::mem::replace(&mut self.router, new);
                let wall = self.wall_time(self.router_clock_lead);
                self.router.adopt_state_of(self.now, wall, &old);
                self.exchange_packets();
                self.attach_router();
            }
            ScheduleStep::Reload { meanwhile } => {
                let mut other = agent_config(&[second_association(), test_association()]);
                match meanwhile {
                    0 => other.nodes.clear(),
                    1 => other.nodes[0].authentication = Authentication::SharedKey(second_association()),
                    _ => {}
                }
                self.restart_agent(other);
                self.restart_agent(self.config.clone());
            }
        }
    }

    /// Replays all accepted updates to home agents that have refused nothing yet, and some of them to this
    /// home agent.
    fn replay_to_fresh_agents(&mut self) -> Result<(), TestCaseError> {
        let wall = self.wall_time(self.agent_clock_lead);
        for &number in &self.accepted_updates {
            let mut agent = self.restored_agent(self.config.clone());
            let (accepted, _) = deliver_to_agent(&mut agent, self.now, wall, &self.recorded_updates[number]);
            prop_assert!(
                !accepted,
                "Binding Update {number} of {} is accepted again",
                self.recorded_updates.len()
            );
        }
        for &number in self.accepted_updates.iter().rev().take(3).chain(self.accepted_updates.iter().take(3))
        {
            let (accepted, _) =
                deliver_to_agent(&mut self.agent, self.now, wall, &self.recorded_updates[number]);
            prop_assert!(
                !accepted,
                "Binding Update {number} of {} is accepted again",
                self.recorded_updates.len()
            );
        }
        Ok(())
    }
}

fn expect_mobility_message(packet: &[u8]) -> MobilityMessage<'_> {
    parse_mobility_message(packet).expect("a mobility message")
}

fn is_binding_update(packet: &[u8]) -> bool {
    let message = expect_mobility_message(packet);
    let header = message.verified_header().expect("a Mobility Header");
    matches!(header.message(), Ok(ParsedMobilityMessage::BindingUpdate(_)))
}

/// Gives a packet to a home agent. Returns whether the home agent accepts the Binding Update, and its
/// answers.
fn deliver_to_agent(agent: &mut HomeAgent, now: Time, wall: WallTime, packet: &[u8]) -> (bool, Vec<Vec<u8>>) {
    let _ = agent.handle_message(now, wall, expect_mobility_message(packet));
    let answers: Vec<Vec<u8>> = std::iter::from_fn(|| agent.poll_output())
        .filter_map(|output| match output {
            Output::Packet(packet) => Some(packet),
            _ => None,
        })
        .collect();
    let is_acceptance = |packet: &Vec<u8>| {
        let message = expect_mobility_message(packet);
        let header = message.verified_header().expect("a Mobility Header");
        matches!(header.message(), Ok(ParsedMobilityMessage::BindingAcknowledgement(it)) if it.status < 128)
    };
    (answers.iter().any(is_acceptance), answers)
}

proptest! {
#![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

#[test]
fn no_binding_update_is_accepted_twice(steps in prop::collection::vec(schedule_step_strategy(), 1..40)) {
let mut world = ReplayedExchange::new();
for step in &steps {
world.perform_step(step);
world.replay_to_fresh_agents()?;
}
// In the end the home agent has a binding of the router, whatever it asked of the router before.
world.advance_seconds(300);
prop_assert!(world.agent.bindings().is_bound(addr(HOME_ADDRESS)), "the router is not registered");
world.replay_to_fresh_agents()?;
}
}

/// A router that is switched off for a week at a time, mostly without stored state, and changes its key.
#[test]
fn no_binding_update_is_accepted_twice_over_many_starts() {
    let mut world = ReplayedExchange::new();
    for start in 0..40 {
        world.perform_step(&ScheduleStep::RestartRouter {
            off: 7 * DAY_SECONDS,
            with_state: start % 3 == 0,
            stale: false,
        });
        if start % 10 == 9 {
            world.perform_step(&ScheduleStep::Key { second: start % 20 == 9 });
        }
        world.perform_step(&ScheduleStep::Run { seconds: 100 });
        world.replay_to_fresh_agents().expect("nothing is accepted twice");
        assert!(world.agent.bindings().is_bound(addr(HOME_ADDRESS)), "start {start}");
    }
}
