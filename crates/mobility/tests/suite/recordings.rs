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
use carnet_wire::mobility::Message;
use proptest::prelude::*;

use crate::agent::{WALL_START, authenticated};
use crate::craft::*;
use crate::setup::{addresses, router_config};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;
/// Maximum number of recordings that the attacker replays at once.
const MAX_PLAYED: usize = 40;

/// One step of a schedule.
#[derive(Debug, Clone)]
enum Step {
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
    /// The home agent's config lacks the node for a while, or first has other keys.
    Reload { meanwhile: u8 },
    /// Before each Binding Update of the router, an attacker on the path replays recorded updates to the home
    /// agent, or recorded answers to the router. Both have the addresses of the genuine messages.
    Attack { seconds: u64, updates: bool, answers: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let clock = -40 * DAY as i64..40 * DAY as i64;
    prop_oneof![
        4 => (1..1200_u64).prop_map(|seconds| Step::Run { seconds }),
        2 => (1..100_u64, any::<bool>()).prop_map(|(seconds, updates)| Step::Lose { seconds, updates }),
        6 => (0..50 * DAY, any::<bool>(), any::<bool>())
            .prop_map(|(off, with_state, stale)| Step::RestartRouter { off, with_state, stale }),
        1 => Just(Step::RestartAgent),
        1 => clock.clone().prop_map(|ahead| Step::RouterClock { ahead }),
        1 => clock.prop_map(|ahead| Step::AgentClock { ahead }),
        1 => any::<bool>().prop_map(|second| Step::Key { second }),
        1 => (0..3_u8).prop_map(|meanwhile| Step::Reload { meanwhile }),
        3 => (1..400_u64, any::<bool>(), any::<bool>()).prop_map(|(seconds, updates, answers)| Step::Attack {
            seconds,
            updates,
            answers
        }),
    ]
}

fn second_key() -> SecurityAssociation {
    SecurityAssociation { spi: 301, key: [7; 16].into(), ..association() }
}

fn agent_config(associations: &[SecurityAssociation]) -> HomeAgentConfig {
    let mut config = authenticated();
    let keys = SharedKeys { associations: associations.to_vec(), per_agent: false };
    config.nodes[0].authentication = Authentication::SharedKeys(Box::new(keys));
    config
}

struct World {
    now: Time,
    config: HomeAgentConfig,
    agent: HomeAgent,
    agent_ahead: i64,
    router: MobileRouter,
    router_config: MobileRouterConfig,
    router_ahead: i64,
    stored: VecDeque<StoredSequence>,
    /// Every Binding Update that the router has sent. `accepted` has the indices of those that the home agent
    /// accepted.
    recorded: Vec<Vec<u8>>,
    accepted: BTreeSet<usize>,
    /// Every answer that the home agent has sent.
    answers: Vec<Vec<u8>>,
    rng: Rng,
    loses: Option<bool>,
    plays_updates: bool,
    plays_answers: bool,
}

impl World {
    fn new() -> World {
        let config = agent_config(&[association(), second_key()]);
        let mut router_config = router_config();
        router_config.authentication = Authentication::SharedKey(association());
        let mut rng = Rng::new(1);
        let mut world = World {
            now: Time::from_secs(1000),
            agent: HomeAgent::new(config.clone()),
            config,
            agent_ahead: 0,
            router: MobileRouter::new(router_config.clone(), &mut rng),
            router_config,
            router_ahead: 0,
            stored: VecDeque::new(),
            recorded: Vec::new(),
            accepted: BTreeSet::new(),
            answers: Vec::new(),
            rng,
            loses: None,
            plays_updates: false,
            plays_answers: false,
        };
        world.attach();
        world
    }

    fn wall(&self, ahead: i64) -> WallTime {
        let seconds = (WALL_START.as_unix_nanos() / 1_000_000_000).saturating_add_signed(ahead);
        WallTime::from_unix_nanos(seconds * 1_000_000_000) + self.now.saturating_since(Time::ZERO)
    }

    fn attach(&mut self) {
        let mut interface =
            carnet_virtual::running_interface("wifi", [2, 0, 0, 0, 1, 0], addresses(&["fe80::2", CARE_OF]));
        interface.routers = vec![addr("fe80::ff").into()];
        let wall = self.wall(self.router_ahead);
        self.router.handle_interface(self.now, wall, &interface);
        self.exchange();
    }

    /// Carries packets between the two until no packet is left.
    fn exchange(&mut self) {
        let mut answers = VecDeque::new();
        loop {
            while let Some(output) = self.router.poll_output() {
                match output {
                    Output::Packet(packet) => {
                        let number = self.recorded.len();
                        let is_update = is_binding_update(&packet);
                        if is_update {
                            if self.plays_updates {
                                self.play_updates();
                            }
                            self.recorded.push(packet.clone());
                        }
                        if self.loses != Some(true) {
                            let wall = self.wall(self.agent_ahead);
                            let (accepted, answer) = receive(&mut self.agent, self.now, wall, &packet);
                            self.answers.extend(answer.iter().cloned());
                            if self.plays_answers {
                                answers.extend(self.answers.iter().rev().take(MAX_PLAYED).cloned());
                            }
                            if accepted && is_update {
                                self.accepted.insert(number);
                            }
                            if self.loses.is_none() {
                                answers.extend(answer);
                            }
                        }
                    }
                    Output::Persist(_) => {
                        self.stored.push_front(self.router.stored());
                        self.stored.truncate(2);
                    }
                    _ => {}
                }
            }
            let Some(answer) = answers.pop_front() else { return };
            let wall = self.wall(self.router_ahead);
            let _ = self.router.handle_message(self.now, wall, message_in(&answer));
        }
    }

    /// Replays the first and the last recordings to the home agent, which must not accept an accepted update
    /// again.
    fn play_updates(&mut self) {
        let wall = self.wall(self.agent_ahead);
        let half = MAX_PLAYED / 2;
        let numbers: BTreeSet<usize> =
            (0..self.recorded.len()).filter(|it| *it < half || it + half >= self.recorded.len()).collect();
        for number in numbers {
            let (accepted, _) = receive(&mut self.agent, self.now, wall, &self.recorded[number]);
            // An update that was lost is new, and the home agent may accept it once.
            assert!(!accepted || self.accepted.insert(number), "Binding Update {number} is accepted again");
        }
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            let due = self.router.poll_timeout().into_iter().chain(self.agent.poll_timeout()).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.agent.handle_timeout(self.now);
            while self.agent.poll_output().is_some() {}
            let wall = self.wall(self.router_ahead);
            self.router.handle_timeout(self.now, wall);
            self.exchange();
        }
        self.now = end;
    }

    /// Restarts the home agent with its stored state, under this config.
    fn restart_agent(&mut self, config: HomeAgentConfig) {
        self.agent = self.fresh_agent(config);
    }

    fn fresh_agent(&self, config: HomeAgentConfig) -> HomeAgent {
        let wall = self.wall(self.agent_ahead);
        let stored = self.agent.stored(self.now, wall);
        // Encodes the state as on the disk.
        let text = serde_json::to_string(&stored).expect("a state");
        let mut agent = HomeAgent::new(config);
        agent.restore(self.now, wall, serde_json::from_str(&text).expect("a state"));
        while agent.poll_output().is_some() {}
        agent
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Run { seconds } => self.run(seconds),
            Step::Lose { seconds, updates } => {
                self.loses = Some(updates);
                self.run(seconds);
                self.loses = None;
            }
            Step::RestartRouter { off, with_state, stale } => {
                self.now += Duration::from_secs(off);
                self.agent.handle_timeout(self.now);
                while self.agent.poll_output().is_some() {}
                self.router = MobileRouter::new(self.router_config.clone(), &mut self.rng);
                let stored = self.stored.get(usize::from(stale)).or(self.stored.front());
                if let Some(stored) = stored.filter(|_| with_state) {
                    self.router.restore(*stored);
                }
                self.attach();
                self.run(1);
            }
            Step::RestartAgent => self.restart_agent(self.config.clone()),
            Step::Attack { seconds, updates, answers } => {
                (self.plays_updates, self.plays_answers) = (updates, answers);
                self.run(seconds);
                (self.plays_updates, self.plays_answers) = (false, false);
            }
            Step::RouterClock { ahead } => self.router_ahead = ahead,
            Step::AgentClock { ahead } => self.agent_ahead = ahead,
            Step::Key { second } => {
                let key = if second { second_key() } else { association() };
                self.router_config.authentication = Authentication::SharedKey(key);
                let new = MobileRouter::new(self.router_config.clone(), &mut self.rng);
                let old = std::mem::replace(&mut self.router, new);
                let wall = self.wall(self.router_ahead);
                self.router.adopt(self.now, wall, &old);
                self.exchange();
                self.attach();
            }
            Step::Reload { meanwhile } => {
                let mut other = agent_config(&[second_key(), association()]);
                match meanwhile {
                    0 => other.nodes.clear(),
                    1 => other.nodes[0].authentication = Authentication::SharedKey(second_key()),
                    _ => {}
                }
                self.restart_agent(other);
                self.restart_agent(self.config.clone());
            }
        }
    }

    /// Replays all accepted updates to home agents that have refused nothing yet, and some of them to this
    /// home agent.
    fn play(&mut self) -> Result<(), TestCaseError> {
        let wall = self.wall(self.agent_ahead);
        for &number in &self.accepted {
            let mut agent = self.fresh_agent(self.config.clone());
            let (accepted, _) = receive(&mut agent, self.now, wall, &self.recorded[number]);
            prop_assert!(!accepted, "Binding Update {number} of {} is accepted again", self.recorded.len());
        }
        for &number in self.accepted.iter().rev().take(3).chain(self.accepted.iter().take(3)) {
            let (accepted, _) = receive(&mut self.agent, self.now, wall, &self.recorded[number]);
            prop_assert!(!accepted, "Binding Update {number} of {} is accepted again", self.recorded.len());
        }
        Ok(())
    }
}

fn message_in(packet: &[u8]) -> MobilityMessage<'_> {
    mobility_message(packet).expect("a mobility message")
}

fn is_binding_update(packet: &[u8]) -> bool {
    let message = message_in(packet);
    let header = message.header().expect("a Mobility Header");
    matches!(header.message(), Ok(Message::BindingUpdate(_)))
}

/// Gives a packet to a home agent. Returns whether the home agent accepts the Binding Update, and its
/// answers.
fn receive(agent: &mut HomeAgent, now: Time, wall: WallTime, packet: &[u8]) -> (bool, Vec<Vec<u8>>) {
    let _ = agent.handle_message(now, wall, message_in(packet));
    let answers: Vec<Vec<u8>> = std::iter::from_fn(|| agent.poll_output())
        .filter_map(|output| match output {
            Output::Packet(packet) => Some(packet),
            _ => None,
        })
        .collect();
    let is_acceptance = |packet: &Vec<u8>| {
        let message = message_in(packet);
        let header = message.header().expect("a Mobility Header");
        matches!(header.message(), Ok(Message::BindingAcknowledgement(it)) if it.status < 128)
    };
    (answers.iter().any(is_acceptance), answers)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn no_binding_update_is_accepted_twice(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.play()?;
        }
        // In the end the home agent has a binding of the router, whatever it asked of the router before.
        world.run(300);
        prop_assert!(world.agent.bindings().is_bound(addr(HOME)), "the router is not registered");
        world.play()?;
    }
}

/// A router that is switched off for a week at a time, mostly without stored state, and changes its key.
#[test]
fn no_binding_update_is_accepted_twice_over_many_starts() {
    let mut world = World::new();
    for start in 0..40 {
        world.take(&Step::RestartRouter { off: 7 * DAY, with_state: start % 3 == 0, stale: false });
        if start % 10 == 9 {
            world.take(&Step::Key { second: start % 20 == 9 });
        }
        world.take(&Step::Run { seconds: 100 });
        world.play().expect("nothing is accepted twice");
        assert!(world.agent.bindings().is_bound(addr(HOME)), "start {start}");
    }
}
