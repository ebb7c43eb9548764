//! The environment of the members: a store with revisions, transactions and watches, and a network that
//! delays and loses messages and cuts members off. The clocks run at different speeds, and each home agent
//! registers routers without pause.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_fleet::{
    Change, Event, Key, Outcome, Output, RequestId, Role, Seat, SeatConfig, Snapshot, Token, Transaction,
};
use carnet_virtual::Timeline;

/// Future events, in the order of their times.
#[derive(Debug)]
enum Next {
    /// A transaction arrives at the store.
    Asked(usize, u64, RequestId, Transaction),
    /// The outcome of a transaction arrives at the member.
    Told(usize, u64, RequestId, Outcome),
    Hello(usize, u64, String),
    /// A member's request to follow arrives at the store.
    Follow(usize, u64),
    Snapshot(usize, u64, Snapshot),
    Events(usize, u64, u64, Vec<Event>),
    Lost(usize, u64),
    /// The home agent of a member works.
    Works(usize, u64),
    /// The home agent of a member registers a router.
    Registers(usize, u64),
    /// The home agent of a member (first value) fails to start this many times (second value), then starts.
    Fails(usize, u64),
    /// A standby home agent has ended.
    Unready(usize),
    Timeout(usize, u64),
    Start(usize),
    Heal(usize),
    /// The links of a member to its routers are lost or restored.
    Links(usize, bool),
    /// A member detects the change of its links.
    Notices(usize, bool),
}

#[derive(Debug, Default)]
pub struct Store {
    pub revision: u64,
    pub keys: BTreeMap<Key, (u64, String)>,
    /// By member: identifier of the watch that gets events.
    watches: BTreeMap<usize, u64>,
}

/// The home agent of a member.
#[derive(Debug)]
pub struct Agent {
    /// Number of the home agent; the world uses each number once.
    life: u64,
    pub records: BTreeMap<String, String>,
    pub works: bool,
    number: u64,
    waiting: VecDeque<(u64, Vec<Change>)>,
}

#[derive(Debug)]
pub struct Member {
    pub seat: Option<Seat>,
    pub agent: Option<Agent>,
    pub cut: bool,
    /// Whether the member reaches its routers.
    pub linked: bool,
    /// Time until which the member does not reach its routers.
    unlinked: Time,
    /// Whether the home agents of the member never start to work.
    pub broken: bool,
    /// Number of the process; messages for an earlier process are lost.
    life: u64,
    watch: u64,
    /// Deviation of the member's clock rate from the true rate, parts per million; positive if the clock is
    /// fast.
    drift: i64,
    timeout: u64,
}

pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub store: Store,
    pub members: Vec<Member>,
    pub config: fn(&mut SeatConfig),
    /// Share of lost packets without any cut, per thousand.
    pub loss: u64,
    /// Longest delay between a member and the store.
    pub far: Duration,
    agenda: Timeline<Next>,
    numbers: u64,
    /// Acknowledged values by record.
    pub acknowledged: BTreeMap<String, u64>,
    value: u64,
    /// Times at which a member's home agent began or stopped working.
    pub history: Vec<(Time, usize, bool)>,
    pub takeovers: u64,
    pub cuts: u64,
    pub kills: u64,
    pub unlinks: u64,
    /// Whether home agents register less often.
    pub calm: bool,
}

pub const NAMES: [&str; 3] = ["anna", "bruno", "carla"];
const ROUTERS: u64 = 40;
/// Longest time in which a member detects that its links are lost or restored.
pub const NOTICES: Duration = Duration::from_millis(400);

impl World {
    pub fn new(seed: u64, config: fn(&mut SeatConfig)) -> World {
        let mut rng = Rng::new(seed);
        let members = NAMES
            .iter()
            .map(|_| Member {
                seat: None,
                agent: None,
                cut: false,
                linked: true,
                unlinked: Time::ZERO,
                broken: false,
                life: 0,
                watch: 0,
                drift: rng.below(20_000) as i64 - 10_000,
                timeout: 0,
            })
            .collect();
        let mut world = World {
            now: Time::from_secs(1),
            rng,
            store: Store::default(),
            members,
            config,
            loss: 0,
            far: Duration::from_millis(5),
            agenda: Timeline::default(),
            numbers: 0,
            acknowledged: BTreeMap::new(),
            value: 0,
            history: Vec::new(),
            takeovers: 0,
            cuts: 0,
            kills: 0,
            unlinks: 0,
            calm: false,
        };
        for member in 0..NAMES.len() {
            world.at(Duration::ZERO, Next::Start(member));
        }
        world
    }

    fn at(&mut self, after: Duration, next: Next) {
        self.agenda.schedule(self.now + after, next);
    }

    /// Returns the time on a member's clock.
    pub fn clock(&self, member: usize) -> Time {
        let true_time = i128::from(self.now.as_nanos());
        let wrong = true_time + true_time * i128::from(self.members[member].drift) / 1_000_000;
        Time::from_nanos(wrong as u64)
    }

    fn way(&mut self) -> Duration {
        let far = self.far;
        self.rng.duration(Duration::from_micros(100), far)
    }

    fn is_lost(&mut self, member: usize) -> bool {
        self.members[member].cut || self.rng.below(1000) < self.loss
    }

    /// Advances the time by `span`.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(time) = self.agenda.next().filter(|time| *time <= end) {
            self.now = time;
            let next = self.agenda.due(time).expect("an event");
            self.happen(next);
            self.check();
        }
        self.now = end;
    }

    /// Advances the time until `so` is true; returns the elapsed time, or `None` if `so` stays false for
    /// `most`.
    pub fn until(&mut self, most: Duration, so: impl Fn(&World) -> bool) -> Option<Duration> {
        let began = self.now;
        while self.now.saturating_since(began) < most {
            if so(self) {
                return Some(self.now.saturating_since(began));
            }
            self.run(Duration::from_millis(1));
        }
        None
    }

    /// Asserts that at most one member leads by its own clock.
    fn check(&self) {
        let holders: Vec<usize> = (0..self.members.len())
            .filter(|member| {
                let now = self.clock(*member);
                self.members[*member].seat.as_ref().is_some_and(|seat| seat.holds(now))
            })
            .collect();
        assert!(holders.len() <= 1, "{:?}: {holders:?} have one seat", self.now);
    }

    fn alive(&self, member: usize, life: u64) -> bool {
        self.members[member].seat.is_some() && self.members[member].life == life
    }

    fn with(&mut self, member: usize, act: impl FnOnce(&mut Seat, Time)) {
        let now = self.clock(member);
        if let Some(seat) = &mut self.members[member].seat {
            act(seat, now);
        }
        self.carry_out(member);
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Start(member) => self.start(member),
            Next::Heal(member) => {
                self.members[member].cut = false;
                let life = self.members[member].life;
                let way = self.way();
                // The member notices that its watch was cut off, and follows anew.
                self.at(way, Next::Lost(member, life));
            }
            Next::Links(member, are_there) => {
                // Ignore the end of an earlier loss of links while a later loss lasts.
                if are_there && self.now < self.members[member].unlinked {
                    return;
                }
                self.members[member].linked = are_there;
                let notices = self.rng.duration(Duration::from_millis(1), NOTICES);
                self.at(notices, Next::Notices(member, are_there));
            }
            Next::Notices(member, are_there) if self.members[member].linked == are_there => {
                self.with(member, |seat, now| _ = seat.handle_links(now, are_there));
            }
            Next::Asked(member, life, id, transaction) => {
                let outcome = self.transact(transaction);
                let way = self.way();
                let told = if self.is_lost(member) { Outcome::Unknown } else { outcome };
                self.at(way, Next::Told(member, life, id, told));
            }
            Next::Told(member, life, id, outcome) if self.alive(member, life) => {
                self.with(member, |seat, now| seat.handle_outcome(now, id, outcome));
            }
            Next::Hello(member, life, value) if self.alive(member, life) => {
                self.put(vec![(Key::Member(NAMES[member].into()), Some(value))]);
            }
            Next::Follow(member, watch) => {
                let values = self.store.keys.iter().map(|(key, (_, value))| (key.clone(), value.clone()));
                let snapshot = Snapshot {
                    revision: self.store.revision,
                    owner: self.store.keys.get(&Key::Owner).map_or(0, |(revision, _)| *revision),
                    values: values.collect(),
                };
                self.store.watches.insert(member, watch);
                self.at(Duration::ZERO, Next::Snapshot(member, watch, snapshot));
            }
            Next::Snapshot(member, watch, snapshot) if self.members[member].watch == watch => {
                self.with(member, |seat, now| seat.handle_snapshot(now, snapshot));
            }
            Next::Events(member, watch, revision, events)
                if self.members[member].watch == watch && !self.members[member].cut =>
            {
                self.with(member, |seat, now| seat.handle_events(now, revision, events));
            }
            Next::Lost(member, life) if self.alive(member, life) => {
                self.with(member, |seat, now| seat.handle_lost(now));
            }
            Next::Works(member, life) => {
                let here = self.now;
                let Some(agent) = self.members[member].agent.as_mut().filter(|agent| agent.life == life)
                else {
                    return;
                };
                agent.works = true;
                self.history.push((here, member, true));
                self.takeovers += 1;
                self.with(member, |seat, now| seat.handle_working(now));
                self.at(Duration::ZERO, Next::Registers(member, life));
            }
            Next::Registers(member, life) => self.register(member, life),
            Next::Fails(member, life)
                if self.members[member].agent.as_ref().is_some_and(|agent| agent.life == life) =>
            {
                self.fail(member);
            }
            Next::Unready(member) => {
                self.with(member, |seat, now| seat.handle_unready(now));
                self.at(Duration::from_secs(1), Next::Unready(member));
            }
            Next::Timeout(member, number) if self.members[member].timeout == number => {
                self.with(member, |seat, now| seat.handle_timeout(now));
            }
            _ => {}
        }
    }

    fn start(&mut self, member: usize) {
        if self.members[member].seat.is_some() {
            return;
        }
        let mut config = SeatConfig::new(NAMES[member], NAMES.map(str::to_owned).to_vec());
        (self.config)(&mut config);
        let process = self.rng.u64();
        let now = self.clock(member);
        self.members[member].life += 1;
        let mut seat = Seat::new(config, process, now);
        seat.handle_links(now, self.members[member].linked);
        self.members[member].seat = Some(seat);
        self.carry_out(member);
    }

    /// Ends the member's machine together with its home agent.
    pub fn kill(&mut self, member: usize, back_after: Duration) {
        self.kills += 1;
        let works = self.members[member].agent.take().is_some_and(|agent| agent.works);
        if works {
            self.history.push((self.now, member, false));
        }
        self.members[member].seat = None;
        self.members[member].watch = 0;
        self.store.watches.remove(&member);
        self.at(back_after, Next::Start(member));
    }

    /// Cuts a member off from the store.
    pub fn cut(&mut self, member: usize, for_so_long: Duration) {
        if !std::mem::replace(&mut self.members[member].cut, true) {
            self.cuts += 1;
            self.at(for_so_long, Next::Heal(member));
        }
    }

    /// Cuts a member off from its routers.
    pub fn unlink(&mut self, member: usize, for_so_long: Duration) {
        self.unlinks += 1;
        self.members[member].unlinked = self.members[member].unlinked.max(self.now + for_so_long);
        self.at(Duration::ZERO, Next::Links(member, false));
        self.at(for_so_long, Next::Links(member, true));
    }

    fn transact(&mut self, transaction: Transaction) -> Outcome {
        let owner = self.store.keys.get(&Key::Owner);
        let revision = owner.map_or(0, |(revision, _)| *revision);
        if revision != transaction.expected {
            return Outcome::Refused(revision, owner.and_then(|(_, value)| Token::of(value)));
        }
        let mut changes = vec![(Key::Owner, Some(transaction.token.to_text()))];
        changes.extend(transaction.changes.into_iter().map(|(key, value)| (Key::Record(key), value)));
        Outcome::Done(self.put(changes))
    }

    fn put(&mut self, changes: Vec<(Key, Option<String>)>) -> u64 {
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
            events.push(Event { key, value });
        }
        assert!(seen.len() <= 128, "etcd takes no more");
        let octets = |event: &Event| event.value.as_ref().map_or(0, String::len);
        assert!(events.iter().map(octets).sum::<usize>() < 3 << 19, "etcd takes no more");
        for (member, watch) in self.store.watches.clone() {
            // All events of a watch take the same delay, so they arrive in order.
            let delay = Duration::from_micros(500);
            self.at(delay, Next::Events(member, watch, revision, events.clone()));
        }
        revision
    }

    /// The home agent registers a router and commits its record.
    fn register(&mut self, member: usize, life: u64) {
        let router = format!("2001:db8::{:x}", self.rng.below(ROUTERS));
        let many = self.rng.below(10) == 0;
        let seldom = if self.calm { 100 } else { 1 };
        let again = self.rng.duration(Duration::from_millis(1), Duration::from_millis(60)) * seldom;
        let Some(agent) = self.members[member].agent.as_mut().filter(|agent| agent.life == life) else {
            return;
        };
        let mut changes: BTreeMap<String, Option<String>> = BTreeMap::new();
        self.value += 1;
        changes.insert(router, Some(self.value.to_string()));
        if many {
            // The commit has more changes than one transaction holds.
            for other in 0..150 {
                changes.insert(format!("2001:db8:1::{other:x}"), Some(self.value.to_string()));
            }
        }
        agent.number += 1;
        let number = agent.number;
        let changes: Vec<Change> = changes.into_iter().collect();
        agent.waiting.push_back((number, changes.clone()));
        for (key, value) in &changes {
            agent.records.insert(key.clone(), value.clone().expect("there is one"));
        }
        self.with(member, |seat, now| seat.commit(now, number, changes));
        self.at(again, Next::Registers(member, life));
    }

    fn carry_out(&mut self, member: usize) {
        let life = self.members[member].life;
        loop {
            let Some(seat) = &mut self.members[member].seat else { return };
            let Some(output) = seat.poll_output() else { break };
            match output {
                Output::ReadAndWatch => {
                    self.numbers += 1;
                    let watch = self.numbers;
                    self.members[member].watch = watch;
                    self.store.watches.remove(&member);
                    if !self.members[member].cut {
                        let way = self.way();
                        self.at(way, Next::Follow(member, watch));
                    }
                }
                Output::Transact(id, transaction) => {
                    let way = self.way();
                    if self.is_lost(member) {
                        self.at(way, Next::Told(member, life, id, Outcome::Unknown));
                    } else {
                        self.at(way, Next::Asked(member, life, id, transaction));
                    }
                }
                Output::WritePresence(value) => {
                    let way = self.way();
                    if !self.is_lost(member) {
                        self.at(way, Next::Hello(member, life, value));
                    }
                }
                Output::Start(records) => self.start_agent(member, records),
                Output::Stop(_) => {
                    let agent = self.members[member].agent.take().expect("one that runs is stopped");
                    if agent.works {
                        self.history.push((self.now, member, false));
                    }
                }
                Output::Committed(number) => self.acknowledge(member, number),
                Output::Log(_) => {}
            }
        }
        let now = self.clock(member);
        let Some(seat) = &self.members[member].seat else { return };
        let left = seat.next_timeout().saturating_since(now).max(Duration::from_micros(100));
        self.members[member].timeout += 1;
        let number = self.members[member].timeout;
        self.at(left, Next::Timeout(member, number));
    }

    /// Starts a home agent. Asserts that its records have all acknowledged values, or later ones.
    fn start_agent(&mut self, member: usize, records: BTreeMap<String, String>) {
        for (key, value) in &self.acknowledged {
            let found: Option<u64> = records.get(key).and_then(|found| found.parse().ok());
            assert!(
                found.is_some_and(|found| found >= *value),
                "{:?}: {} starts without what was acknowledged: {key} {value}, found {found:?}",
                self.now,
                NAMES[member]
            );
        }
        assert!(self.members[member].agent.is_none(), "one that runs is not started");
        self.numbers += 1;
        let life = self.numbers;
        self.members[member].agent =
            Some(Agent { life, records, works: false, number: 0, waiting: VecDeque::new() });
        let ready = self.rng.duration(Duration::from_millis(20), Duration::from_millis(100));
        let next = if self.members[member].broken { Next::Fails } else { Next::Works };
        self.at(ready, next(member, life));
    }

    fn acknowledge(&mut self, member: usize, number: u64) {
        let Some(agent) = &mut self.members[member].agent else { return };
        while let Some((_, changes)) = agent.waiting.pop_front_if(|(one, _)| *one <= number) {
            for (key, value) in changes {
                let value: u64 = value.expect("there is one").parse().expect("there is one");
                let known = self.acknowledged.entry(key).or_default();
                *known = value.max(*known);
            }
        }
    }

    /// Returns the members whose home agent works.
    pub fn working(&self) -> Vec<usize> {
        let works = |member: &Member| member.agent.as_ref().is_some_and(|agent| agent.works);
        (0..self.members.len()).filter(|member| works(&self.members[*member])).collect()
    }

    pub fn role(&self, member: usize) -> Option<Role> {
        self.members[member].seat.as_ref().map(Seat::role)
    }

    /// Tells a member to end; the member lives until its home agent has ended.
    pub fn retire(&mut self, member: usize) {
        self.with(member, |seat, now| seat.retire(now));
    }

    /// Makes every later home agent of this member fail to get ready.
    pub fn spoil(&mut self, member: usize) {
        self.at(Duration::ZERO, Next::Unready(member));
    }

    /// Commits changes of a member's home agent.
    pub fn commit(&mut self, member: usize, changes: Vec<Change>) {
        self.with(member, |seat, now| seat.commit(now, u64::MAX, changes));
    }

    /// Makes a member give up the seat.
    pub fn give_up(&mut self, member: usize, to: Option<&str>) {
        let to = to.map(str::to_owned);
        self.with(member, |seat, now| seat.give_up(now, to));
    }

    /// Makes the home agent of a member fail.
    pub fn fail(&mut self, member: usize) {
        if self.members[member].agent.take().is_some_and(|agent| agent.works) {
            self.history.push((self.now, member, false));
        }
        self.with(member, |seat, now| seat.handle_ended(now));
    }
}
