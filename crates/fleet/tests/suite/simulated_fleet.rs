//! The environment of the members: a store with revisions, transactions and watches, and a network that
//! delays and loses messages and cuts members off. The clocks run at different speeds, and each home agent
//! registers mobile routers without pause.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_fleet::{
    LeaderToken, Leadership, LeadershipConfig, MemberRole, Output, RecordChange, RequestId, StoreEvent,
    StoreKey, StoreSnapshot, StoreTransaction, StoreTransactionOutcome,
};
use carnet_virtual::Timeline;

/// Future events, in the order of their times.
#[derive(Debug)]
enum ScheduledEvent {
    /// A transaction arrives at the store.
    Asked(usize, u64, RequestId, StoreTransaction),
    /// The outcome of a transaction arrives at the member.
    Told(usize, u64, RequestId, StoreTransactionOutcome),
    Hello(usize, u64, String),
    /// A member's request to watch the keys of its seat arrives at the store.
    Follow(usize, u64),
    Snapshot(usize, u64, StoreSnapshot),
    Events(usize, u64, u64, Vec<StoreEvent>),
    Lost(usize, u64),
    /// The home agent of a member works.
    Works(usize, u64),
    /// The home agent of a member registers a mobile router.
    Registers(usize, u64),
    /// The home agent of a member (first value) fails to start this many times (second value), then starts.
    Fails(usize, u64),
    /// A standby home agent has ended.
    Unready(usize),
    Timeout(usize, u64),
    Start(usize),
    Heal(usize),
    /// The links between a member and the mobile routers are lost or restored.
    Links(usize, bool),
    /// A member detects the change of its links.
    Notices(usize, bool),
}

#[derive(Debug, Default)]
pub struct Store {
    pub revision: u64,
    pub keys: BTreeMap<StoreKey, (u64, String)>,
    /// For each member, the identifier of the watch whose events it gets.
    watch_by_member: BTreeMap<usize, u64>,
}

/// The home agent of a member.
#[derive(Debug)]
pub struct Agent {
    /// Number of the home agent; the world uses each number once.
    agent_number: u64,
    pub records: BTreeMap<String, String>,
    pub is_working: bool,
    last_commit_number: u64,
    pending_commits: VecDeque<(u64, Vec<RecordChange>)>,
}

#[derive(Debug)]
pub struct Member {
    pub seat: Option<Leadership>,
    pub agent: Option<Agent>,
    pub is_cut_off_from_store: bool,
    /// Whether the member reaches the mobile routers.
    pub reaches_routers: bool,
    /// Time until which the member does not reach the mobile routers.
    links_lost_until: Time,
    /// Whether the home agents of the member never start to work.
    pub agents_fail_to_start: bool,
    /// Number of the process; messages for an earlier process are lost.
    process_number: u64,
    watch_number: u64,
    /// Deviation of the member's clock rate from the true rate, parts per million; positive if the clock is
    /// fast.
    clock_drift_ppm: i64,
    timeout_number: u64,
}

pub struct SimulatedFleet {
    pub now: Time,
    pub rng: Rng,
    pub store: Store,
    pub members: Vec<Member>,
    pub configure: fn(&mut LeadershipConfig),
    /// Share of lost packets without any cut, per thousand.
    pub loss_per_mille: u64,
    /// Longest delay between a member and the store.
    pub max_delay: Duration,
    scheduled_events: Timeline<ScheduledEvent>,
    last_agent_number: u64,
    /// Acknowledged values by record.
    pub acknowledged_values: BTreeMap<String, u64>,
    last_record_value: u64,
    /// Each change of a member's home agent: time, member, and whether the home agent began (`true`) or
    /// stopped working.
    pub agent_history: Vec<(Time, usize, bool)>,
    pub takeover_count: u64,
    pub cut_off_count: u64,
    pub kill_count: u64,
    pub link_loss_count: u64,
    /// Whether the home agents register mobile routers a hundred times less often.
    pub registers_rarely: bool,
}

pub const MEMBER_NAMES: [&str; 3] = ["anna", "bruno", "carla"];
const ROUTER_COUNT: u64 = 40;
/// Longest time in which a member detects that its links are lost or restored.
pub const MAX_LINK_DETECTION_TIME: Duration = Duration::from_millis(400);

impl SimulatedFleet {
    pub fn new(seed: u64, config: fn(&mut LeadershipConfig)) -> SimulatedFleet {
        let mut rng = Rng::new(seed);
        let members = MEMBER_NAMES
            .iter()
            .map(|_| Member {
                seat: None,
                agent: None,
                is_cut_off_from_store: false,
                reaches_routers: true,
                links_lost_until: Time::ZERO,
                agents_fail_to_start: false,
                process_number: 0,
                watch_number: 0,
                clock_drift_ppm: rng.number_below(20_000) as i64 - 10_000,
                timeout_number: 0,
            })
            .collect();
        let mut world = SimulatedFleet {
            now: Time::from_secs(1),
            rng,
            store: Store::default(),
            members,
            configure: config,
            loss_per_mille: 0,
            max_delay: Duration::from_millis(5),
            scheduled_events: Timeline::default(),
            last_agent_number: 0,
            acknowledged_values: BTreeMap::new(),
            last_record_value: 0,
            agent_history: Vec::new(),
            takeover_count: 0,
            cut_off_count: 0,
            kill_count: 0,
            link_loss_count: 0,
            registers_rarely: false,
        };
        for member in 0..MEMBER_NAMES.len() {
            world.schedule_after(Duration::ZERO, ScheduledEvent::Start(member));
        }
        world
    }

    fn schedule_after(&mut self, after: Duration, next: ScheduledEvent) {
        self.scheduled_events.schedule_at(self.now + after, next);
    }

    /// Returns the time on a member's clock.
    pub fn clock_of_member(&self, member: usize) -> Time {
        let true_time = i128::from(self.now.as_nanos());
        let wrong = true_time + true_time * i128::from(self.members[member].clock_drift_ppm) / 1_000_000;
        Time::from_nanos(wrong as u64)
    }

    fn random_delay(&mut self) -> Duration {
        let far = self.max_delay;
        self.rng.duration_between(Duration::from_micros(100), far)
    }

    fn is_message_lost(&mut self, member: usize) -> bool {
        self.members[member].is_cut_off_from_store || self.rng.number_below(1000) < self.loss_per_mille
    }

    /// Advances the time by `span`.
    pub fn advance_time(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(time) = self.scheduled_events.next_event_at().filter(|time| *time <= end) {
            self.now = time;
            let next = self.scheduled_events.pop_due_event(time).expect("an event");
            self.handle_event(next);
            self.check_single_leader();
        }
        self.now = end;
    }

    /// Advances the time until `so` is true; returns the elapsed time, or `None` if `so` stays false for
    /// `most`.
    pub fn advance_until(
        &mut self,
        most: Duration,
        so: impl Fn(&SimulatedFleet) -> bool,
    ) -> Option<Duration> {
        let began = self.now;
        while self.now.saturating_since(began) < most {
            if so(self) {
                return Some(self.now.saturating_since(began));
            }
            self.advance_time(Duration::from_millis(1));
        }
        None
    }

    /// Asserts that at most one member leads by its own clock.
    fn check_single_leader(&self) {
        let holders: Vec<usize> = (0..self.members.len())
            .filter(|member| {
                let now = self.clock_of_member(*member);
                self.members[*member].seat.as_ref().is_some_and(|seat| seat.holds_leadership(now))
            })
            .collect();
        assert!(holders.len() <= 1, "{:?}: {holders:?} have one seat", self.now);
    }

    fn is_process_running(&self, member: usize, life: u64) -> bool {
        self.members[member].seat.is_some() && self.members[member].process_number == life
    }

    fn with_leadership(&mut self, member: usize, act: impl FnOnce(&mut Leadership, Time)) {
        let now = self.clock_of_member(member);
        if let Some(seat) = &mut self.members[member].seat {
            act(seat, now);
        }
        self.perform_outputs(member);
    }

    fn handle_event(&mut self, next: ScheduledEvent) {
        match next {
            ScheduledEvent::Start(member) => self.start_member(member),
            ScheduledEvent::Heal(member) => {
                self.members[member].is_cut_off_from_store = false;
                let life = self.members[member].process_number;
                let way = self.random_delay();
                // The member notices that its watch has ended, and starts a new one.
                self.schedule_after(way, ScheduledEvent::Lost(member, life));
            }
            ScheduledEvent::Links(member, are_there) => {
                // Ignore the end of an earlier loss of links while a later loss lasts.
                if are_there && self.now < self.members[member].links_lost_until {
                    return;
                }
                self.members[member].reaches_routers = are_there;
                let notices = self.rng.duration_between(Duration::from_millis(1), MAX_LINK_DETECTION_TIME);
                self.schedule_after(notices, ScheduledEvent::Notices(member, are_there));
            }
            ScheduledEvent::Notices(member, are_there)
                if self.members[member].reaches_routers == are_there =>
            {
                self.with_leadership(member, |seat, now| _ = seat.handle_router_links(now, are_there));
            }
            ScheduledEvent::Asked(member, life, id, transaction) => {
                let outcome = self.apply_transaction(transaction);
                let way = self.random_delay();
                let told =
                    if self.is_message_lost(member) { StoreTransactionOutcome::Unknown } else { outcome };
                self.schedule_after(way, ScheduledEvent::Told(member, life, id, told));
            }
            ScheduledEvent::Told(member, life, id, outcome) if self.is_process_running(member, life) => {
                self.with_leadership(member, |seat, now| seat.handle_outcome(now, id, outcome));
            }
            ScheduledEvent::Hello(member, life, value) if self.is_process_running(member, life) => {
                self.write_keys(vec![(StoreKey::Member(MEMBER_NAMES[member].into()), Some(value))]);
            }
            ScheduledEvent::Follow(member, watch) => {
                let values = self.store.keys.iter().map(|(key, (_, value))| (key.clone(), value.clone()));
                let snapshot = StoreSnapshot {
                    revision: self.store.revision,
                    owner_revision: self
                        .store
                        .keys
                        .get(&StoreKey::Owner)
                        .map_or(0, |(revision, _)| *revision),
                    keys_with_values: values.collect(),
                };
                self.store.watch_by_member.insert(member, watch);
                self.schedule_after(Duration::ZERO, ScheduledEvent::Snapshot(member, watch, snapshot));
            }
            ScheduledEvent::Snapshot(member, watch, snapshot)
                if self.members[member].watch_number == watch =>
            {
                self.with_leadership(member, |seat, now| seat.handle_snapshot(now, snapshot));
            }
            ScheduledEvent::Events(member, watch, revision, events)
                if self.members[member].watch_number == watch
                    && !self.members[member].is_cut_off_from_store =>
            {
                self.with_leadership(member, |seat, now| seat.handle_events(now, revision, events));
            }
            ScheduledEvent::Lost(member, life) if self.is_process_running(member, life) => {
                self.with_leadership(member, |seat, now| seat.handle_lost_watch(now));
            }
            ScheduledEvent::Works(member, life) => {
                let here = self.now;
                let Some(agent) =
                    self.members[member].agent.as_mut().filter(|agent| agent.agent_number == life)
                else {
                    return;
                };
                agent.is_working = true;
                self.agent_history.push((here, member, true));
                self.takeover_count += 1;
                self.with_leadership(member, |seat, now| seat.handle_agent_working(now));
                self.schedule_after(Duration::ZERO, ScheduledEvent::Registers(member, life));
            }
            ScheduledEvent::Registers(member, life) => self.register_router(member, life),
            ScheduledEvent::Fails(member, life)
                if self.members[member].agent.as_ref().is_some_and(|agent| agent.agent_number == life) =>
            {
                self.fail_agent(member);
            }
            ScheduledEvent::Unready(member) => {
                self.with_leadership(member, |seat, now| seat.handle_standby_agent_ended(now));
                self.schedule_after(Duration::from_secs(1), ScheduledEvent::Unready(member));
            }
            ScheduledEvent::Timeout(member, number) if self.members[member].timeout_number == number => {
                self.with_leadership(member, |seat, now| seat.handle_timeout(now));
            }
            _ => {}
        }
    }

    fn start_member(&mut self, member: usize) {
        if self.members[member].seat.is_some() {
            return;
        }
        let mut config =
            LeadershipConfig::new(MEMBER_NAMES[member], MEMBER_NAMES.map(str::to_owned).to_vec());
        (self.configure)(&mut config);
        let process = self.rng.random_u64();
        let now = self.clock_of_member(member);
        self.members[member].process_number += 1;
        let mut seat = Leadership::new(config, process, now);
        seat.handle_router_links(now, self.members[member].reaches_routers);
        self.members[member].seat = Some(seat);
        self.perform_outputs(member);
    }

    /// Ends the member's machine together with its home agent.
    pub fn kill_member(&mut self, member: usize, back_after: Duration) {
        self.kill_count += 1;
        let works = self.members[member].agent.take().is_some_and(|agent| agent.is_working);
        if works {
            self.agent_history.push((self.now, member, false));
        }
        self.members[member].seat = None;
        self.members[member].watch_number = 0;
        self.store.watch_by_member.remove(&member);
        self.schedule_after(back_after, ScheduledEvent::Start(member));
    }

    /// Cuts a member off from the store.
    pub fn cut_off_from_store(&mut self, member: usize, for_so_long: Duration) {
        if !std::mem::replace(&mut self.members[member].is_cut_off_from_store, true) {
            self.cut_off_count += 1;
            self.schedule_after(for_so_long, ScheduledEvent::Heal(member));
        }
    }

    /// Gives a member the private key of the fleet, or another private key.
    pub fn set_key_of_member(&mut self, member: usize, is_of_fleet: bool) {
        self.with_leadership(member, |seat, now| seat.handle_key_comparison(now, is_of_fleet));
    }

    /// Cuts a member off from the mobile routers.
    pub fn cut_off_from_routers(&mut self, member: usize, for_so_long: Duration) {
        self.link_loss_count += 1;
        self.members[member].links_lost_until =
            self.members[member].links_lost_until.max(self.now + for_so_long);
        self.schedule_after(Duration::ZERO, ScheduledEvent::Links(member, false));
        self.schedule_after(for_so_long, ScheduledEvent::Links(member, true));
    }

    fn apply_transaction(&mut self, transaction: StoreTransaction) -> StoreTransactionOutcome {
        let owner = self.store.keys.get(&StoreKey::Owner);
        let revision = owner.map_or(0, |(revision, _)| *revision);
        if revision != transaction.expected_owner_revision {
            return StoreTransactionOutcome::Refused(
                revision,
                owner.and_then(|(_, value)| LeaderToken::from_text(value)),
            );
        }
        let mut changes = vec![(StoreKey::Owner, Some(transaction.token.to_text()))];
        changes.extend(transaction.changes.into_iter().map(|(key, value)| (StoreKey::Record(key), value)));
        StoreTransactionOutcome::Done(self.write_keys(changes))
    }

    fn write_keys(&mut self, changes: Vec<(StoreKey, Option<String>)>) -> u64 {
        self.store.revision += 1;
        let revision = self.store.revision;
        let mut events = Vec::new();
        let mut seen = BTreeSet::new();
        for (key, value) in changes {
            assert!(seen.insert(key.clone()), "etcd takes no key twice");
            match &value {
                Some(value) => drop(self.store.keys.insert(key.clone(), (revision, value.clone()))),
                None => drop(self.store.keys.remove(&key)),
            }
            events.push(StoreEvent { key, value });
        }
        assert!(seen.len() <= 128, "etcd takes no more");
        let octets = |event: &StoreEvent| event.value.as_ref().map_or(0, String::len);
        assert!(events.iter().map(octets).sum::<usize>() < 3 << 19, "etcd takes no more");
        for (member, watch) in self.store.watch_by_member.clone() {
            // All events of a watch take the same delay, so they arrive in order.
            let delay = Duration::from_micros(500);
            self.schedule_after(delay, ScheduledEvent::Events(member, watch, revision, events.clone()));
        }
        revision
    }

    /// The home agent registers a mobile router and commits its record.
    fn register_router(&mut self, member: usize, life: u64) {
        let router = format!("2001:db8::{:x}", self.rng.number_below(ROUTER_COUNT));
        let many = self.rng.number_below(10) == 0;
        let seldom = if self.registers_rarely { 100 } else { 1 };
        let again = self.rng.duration_between(Duration::from_millis(1), Duration::from_millis(60)) * seldom;
        let Some(agent) = self.members[member].agent.as_mut().filter(|agent| agent.agent_number == life)
        else {
            return;
        };
        let mut changes: BTreeMap<String, Option<String>> = BTreeMap::new();
        self.last_record_value += 1;
        changes.insert(router, Some(self.last_record_value.to_string()));
        if many {
            // The commit has more changes than one transaction holds.
            for other in 0..150 {
                changes.insert(format!("2001:db8:1::{other:x}"), Some(self.last_record_value.to_string()));
            }
        }
        agent.last_commit_number += 1;
        let number = agent.last_commit_number;
        let changes: Vec<RecordChange> = changes.into_iter().collect();
        agent.pending_commits.push_back((number, changes.clone()));
        for (key, value) in &changes {
            agent.records.insert(key.clone(), value.clone().expect("there is one"));
        }
        self.with_leadership(member, |seat, now| seat.commit_changes(now, number, changes));
        self.schedule_after(again, ScheduledEvent::Registers(member, life));
    }

    fn perform_outputs(&mut self, member: usize) {
        let life = self.members[member].process_number;
        loop {
            let Some(seat) = &mut self.members[member].seat else { return };
            let Some(output) = seat.poll_output() else { break };
            match output {
                Output::ReadAndWatch => {
                    self.last_agent_number += 1;
                    let watch = self.last_agent_number;
                    self.members[member].watch_number = watch;
                    self.store.watch_by_member.remove(&member);
                    if !self.members[member].is_cut_off_from_store {
                        let way = self.random_delay();
                        self.schedule_after(way, ScheduledEvent::Follow(member, watch));
                    }
                }
                Output::Transact(id, transaction) => {
                    let way = self.random_delay();
                    if self.is_message_lost(member) {
                        self.schedule_after(
                            way,
                            ScheduledEvent::Told(member, life, id, StoreTransactionOutcome::Unknown),
                        );
                    } else {
                        self.schedule_after(way, ScheduledEvent::Asked(member, life, id, transaction));
                    }
                }
                Output::WritePresence(value) => {
                    let way = self.random_delay();
                    if !self.is_message_lost(member) {
                        self.schedule_after(way, ScheduledEvent::Hello(member, life, value));
                    }
                }
                Output::Start(records) => self.start_agent(member, records),
                Output::Stop(_) => {
                    let agent = self.members[member].agent.take().expect("one that runs is stopped");
                    if agent.is_working {
                        self.agent_history.push((self.now, member, false));
                    }
                }
                Output::Committed(number) => self.acknowledge_commits(member, number),
                Output::Log(_) => {}
            }
        }
        let now = self.clock_of_member(member);
        let Some(seat) = &self.members[member].seat else { return };
        let left = seat.next_timeout().saturating_since(now).max(Duration::from_micros(100));
        self.members[member].timeout_number += 1;
        let number = self.members[member].timeout_number;
        self.schedule_after(left, ScheduledEvent::Timeout(member, number));
    }

    /// Starts a home agent. Asserts that its records have all acknowledged values, or later ones.
    fn start_agent(&mut self, member: usize, records: BTreeMap<String, String>) {
        for (key, value) in &self.acknowledged_values {
            let found: Option<u64> = records.get(key).and_then(|found| found.parse().ok());
            assert!(
                found.is_some_and(|found| found >= *value),
                "{:?}: {} starts without what was acknowledged: {key} {value}, found {found:?}",
                self.now,
                MEMBER_NAMES[member]
            );
        }
        assert!(self.members[member].agent.is_none(), "one that runs is not started");
        self.last_agent_number += 1;
        let life = self.last_agent_number;
        self.members[member].agent = Some(Agent {
            agent_number: life,
            records,
            is_working: false,
            last_commit_number: 0,
            pending_commits: VecDeque::new(),
        });
        let ready = self.rng.duration_between(Duration::from_millis(20), Duration::from_millis(100));
        let next = if self.members[member].agents_fail_to_start {
            ScheduledEvent::Fails
        } else {
            ScheduledEvent::Works
        };
        self.schedule_after(ready, next(member, life));
    }

    fn acknowledge_commits(&mut self, member: usize, number: u64) {
        let Some(agent) = &mut self.members[member].agent else { return };
        while let Some((_, changes)) = agent.pending_commits.pop_front_if(|(one, _)| *one <= number) {
            for (key, value) in changes {
                let value: u64 = value.expect("there is one").parse().expect("there is one");
                let known = self.acknowledged_values.entry(key).or_default();
                *known = value.max(*known);
            }
        }
    }

    /// Returns the members whose home agent works.
    pub fn members_with_working_agent(&self) -> Vec<usize> {
        let works = |member: &Member| member.agent.as_ref().is_some_and(|agent| agent.is_working);
        (0..self.members.len()).filter(|member| works(&self.members[*member])).collect()
    }

    pub fn role_of_member(&self, member: usize) -> Option<MemberRole> {
        self.members[member].seat.as_ref().map(Leadership::role)
    }

    /// Tells a member to end; the member lives until its home agent has ended.
    pub fn retire_member(&mut self, member: usize) {
        self.with_leadership(member, |seat, now| seat.retire_member(now));
    }

    /// Makes every later home agent of this member fail to get ready.
    pub fn make_standby_agents_end(&mut self, member: usize) {
        self.schedule_after(Duration::ZERO, ScheduledEvent::Unready(member));
    }

    /// Commits changes of a member's home agent.
    pub fn commit_changes(&mut self, member: usize, changes: Vec<RecordChange>) {
        self.with_leadership(member, |seat, now| seat.commit_changes(now, u64::MAX, changes));
    }

    /// Makes a member give up the seat.
    pub fn give_up_leadership(&mut self, member: usize, to: Option<&str>) {
        let to = to.map(str::to_owned);
        self.with_leadership(member, |seat, now| seat.give_up_leadership(now, to));
    }

    /// Makes the home agent of a member fail.
    pub fn fail_agent(&mut self, member: usize) {
        if self.members[member].agent.take().is_some_and(|agent| agent.is_working) {
            self.agent_history.push((self.now, member, false));
        }
        self.with_leadership(member, |seat, now| seat.handle_agent_ended(now));
    }
}
