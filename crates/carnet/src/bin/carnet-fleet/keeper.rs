//! The keeper of a seat executes the decisions of [`Seat`], with the store and the home agent's process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use carnet_base::Time;
use carnet_fleet::{
    Event, Key, Outcome, Output, Presence, RequestId, Revision, Role, Seat, SeatConfig, Snapshot, Token,
    Transaction,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use crate::agent::{self, Agent, AgentParameters};
use crate::etcd::{Connection, Prefix, Server};
use crate::links::Verdict;

/// Pause before the restart of a home agent that has ended unexpectedly.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between two attempts to watch the store.
const AGAIN: Duration = Duration::from_millis(200);
/// Time without a message of a watch after which the etcd server counts as failed. A standby writes every
/// second, and a leader more often.
const SILENT: Duration = Duration::from_secs(3);
/// Maximum number of attempts at one transaction that run at the same time.
const ATTEMPTS: usize = 4;

/// Message of the tasks that access the store.
#[derive(Debug)]
enum StoreMessage {
    Outcome(RequestId, Outcome),
    Snapshot(u64, Snapshot),
    Events(u64, BTreeMap<Revision, Vec<Event>>),
    Lost(u64, String),
}

/// Servers of the store, and the prefix of a seat's keys.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    /// Servers of the store.
    pub servers: Vec<Server>,
    /// Prefix of the seat's keys.
    pub prefix: Prefix,
}

/// State of the home agent's process on this machine.
#[derive(Debug)]
enum Process {
    /// No process runs, and none starts before this time. If this member becomes the leader, the next process
    /// gets these records.
    None(Instant, Option<BTreeMap<String, String>>),
    /// The process is started and waits for its records.
    Standby(Agent),
    Active(Agent),
    /// The process is ending. If this member becomes the leader, the next process gets these records.
    Ending(Agent, Option<BTreeMap<String, String>>),
}

/// The keeper: one seat, with its store and the home agent's process.
pub struct Keeper {
    name: String,
    seat: Seat,
    /// Random number of this carnet-fleet process. It differs from the numbers of earlier processes of this
    /// member.
    number: u64,
    began: Instant,
    store_location: StoreLocation,
    agent_parameters: AgentParameters,
    transactions: UnboundedSender<(RequestId, Transaction)>,
    store: UnboundedReceiver<StoreMessage>,
    from_store: UnboundedSender<StoreMessage>,
    watch_task: Option<JoinHandle<()>>,
    watch_number: u64,
    watch_timeout: Duration,
    lost_store: bool,
    process: Process,
    role: Role,
    member: String,
    links: watch::Receiver<Verdict>,
    /// Results of the checks of a changed config on a standby.
    checked: UnboundedReceiver<Result<(), String>>,
    check_results: UnboundedSender<Result<(), String>>,
    /// Whether another carnet-fleet process uses the name of this member.
    has_rival_process: bool,
}

impl Keeper {
    /// Creates a keeper; `links` has the present verdict on this member's links to its routers.
    pub fn new(
        name: String,
        config: SeatConfig,
        process: u64,
        place: StoreLocation,
        recipe: AgentParameters,
        links: watch::Receiver<Verdict>,
    ) -> Keeper {
        let (transactions, to_make) = unbounded_channel();
        let (from_store, store) = unbounded_channel();
        let (tell_checked, checked) = unbounded_channel();
        tokio::spawn(make(name.clone(), place.clone(), config.lease, to_make, from_store.clone()));
        Keeper {
            member: config.member.clone(),
            watch_timeout: SILENT + config.keep_alive_interval * 2,
            seat: Seat::new(config, process, Time::ZERO),
            number: process,
            name,
            began: Instant::now(),
            store_location: place,
            agent_parameters: recipe,
            transactions,
            store,
            from_store,
            watch_task: None,
            watch_number: 0,
            lost_store: false,
            process: Process::None(Instant::now(), None),
            role: Role::WithoutStore,
            links,
            checked,
            check_results: tell_checked,
            has_rival_process: false,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Runs until `end` is true. Then the keeper gives up the leadership, and returns when the home agent's
    /// process has ended. `reload` receives requests to read the home agent's config again.
    pub async fn run(mut self, mut end: watch::Receiver<bool>, mut reload: UnboundedReceiver<()>) {
        let mut ending = false;
        self.hear_links();
        loop {
            self.carry_out();
            if ending && !matches!(self.seat.role(), Role::Leader | Role::FormerLeader) {
                match &mut self.process {
                    Process::None(..) => return,
                    Process::Standby(_) => self.stop(),
                    Process::Active(_) | Process::Ending(..) => {}
                }
            }
            let mut due = self.began + Duration::from_nanos(self.seat.next_timeout().as_nanos());
            if let Process::None(from, _) = &self.process {
                due = due.min(*from);
            }
            tokio::select! {
                Some(news) = self.store.recv() => self.hear_store(news),
                news = agent_news(&mut self.process) => self.hear_agent(news),
                Ok(()) = self.links.changed() => self.hear_links(),
                () = tokio::time::sleep_until(due.into()) => {
                    self.seat.handle_timeout(self.now());
                    self.prepare();
                }
                Some(()) = reload.recv() => self.reload(),
                Some(checked) = self.checked.recv() => self.renew(checked),
                _ = end.changed(), if !ending => {
                    ending = true;
                    let now = self.now();
                    self.seat.retire(now);
                }
            }
        }
    }

    /// Makes the home agent use its changed config. A leader's process reads the config itself. A standby's
    /// process is replaced after a check of the config. A process that starts later reads the changed config
    /// in any case.
    fn reload(&self) {
        info!("home agent {}: reloads its config", self.name);
        match &self.process {
            Process::Active(agent) => agent.reload(),
            Process::Standby(_) => {
                let (recipe, tell) = (self.agent_parameters.clone(), self.check_results.clone());
                tokio::task::spawn_blocking(move || {
                    let checked = recipe.check().map(drop).map_err(|error| format!("{error:#}"));
                    let _ = tell.send(checked);
                });
            }
            Process::None(..) | Process::Ending(..) => {}
        }
    }

    /// Replaces the standby's process after the check of the config. If the config has mistakes, the process
    /// stays and uses the config of its start.
    fn renew(&mut self, checked: Result<(), String>) {
        match (checked, &self.process) {
            (Err(why), _) => {
                error!("home agent {}: cannot apply the changed config: {why}", self.name)
            }
            (Ok(()), Process::Standby(_)) => {
                info!("home agent {}: the standby process restarts with the changed config", self.name);
                self.stop();
            }
            // The standby's process became active during the check, so it reads the config itself.
            (Ok(()), Process::Active(agent)) => agent.reload(),
            (Ok(()), Process::None(..) | Process::Ending(..)) => {}
        }
    }

    /// Starts a standby's process if the pause is over.
    fn prepare(&mut self) {
        if let Process::None(from, wanted) = &mut self.process
            && *from <= Instant::now()
        {
            let (agent, wanted) = (Agent::start(self.agent_parameters.clone()), wanted.take());
            self.process = match wanted {
                Some(records) => {
                    agent.begin(records);
                    Process::Active(agent)
                }
                None => Process::Standby(agent),
            };
        }
    }

    /// Stops the home agent's process, standby or active.
    fn stop(&mut self) {
        let nothing = Process::None(Instant::now(), None);
        self.process = match std::mem::replace(&mut self.process, nothing) {
            Process::Active(mut agent) | Process::Standby(mut agent) => {
                agent.stop();
                Process::Ending(agent, None)
            }
            Process::Ending(agent, _) => Process::Ending(agent, None),
            Process::None(from, _) => Process::None(from, None),
        };
    }

    fn hear_store(&mut self, news: StoreMessage) {
        let now = self.now();
        match news {
            StoreMessage::Outcome(id, outcome) => self.seat.handle_outcome(now, id, outcome),
            StoreMessage::Snapshot(follow, snapshot) if follow == self.watch_number => {
                if std::mem::take(&mut self.lost_store) {
                    info!("home agent {}: this member can watch etcd again", self.name);
                }
                self.seat.handle_snapshot(now, snapshot);
            }
            StoreMessage::Events(follow, events) if follow == self.watch_number => {
                for (revision, events) in events {
                    self.look_for_doubles(&events);
                    self.seat.handle_events(now, revision, events);
                }
            }
            StoreMessage::Lost(follow, why) if follow == self.watch_number => {
                if !std::mem::replace(&mut self.lost_store, true) {
                    warn!("home agent {}: this member cannot watch etcd: {why}", self.name);
                }
                self.seat.handle_lost(now);
            }
            // The keeper no longer waits for this attempt, so it ignores the result.
            _ => {}
        }
    }

    /// Warns if two machines use the same member name. Other members would take them for one member, and
    /// would not notice the failure of one of them.
    fn look_for_doubles(&mut self, events: &[Event]) {
        let mut processes = events.iter().filter_map(|event| {
            let value = event.value.as_deref()?;
            match &event.key {
                Key::Member(name) if *name == self.member => Some(Presence::of(value).process),
                Key::Owner => {
                    let token = Token::of(value)?;
                    (token.member == self.member).then_some(token.process)
                }
                _ => None,
            }
        });
        // An earlier process of this member writes no more, so another number shows a second machine with its
        // name.
        if processes.any(|process| process != self.number)
            && !std::mem::replace(&mut self.has_rival_process, true)
        {
            warn!(
                "home agent {}: another process uses the member name {} too; expected each name on one \
                 machine",
                self.name, self.member
            );
        }
    }

    fn hear_links(&mut self) {
        let verdict = self.links.borrow_and_update().clone();
        if self.seat.handle_links(self.now(), verdict.is_ok()) {
            match verdict {
                Ok(()) => info!("home agent {}: this member reaches the mobile routers again", self.name),
                Err(why) => {
                    warn!("home agent {}: this member cannot reach the mobile routers: {why}", self.name)
                }
            }
        }
    }

    fn hear_agent(&mut self, news: agent::AgentEvent) {
        let now = self.now();
        match news {
            // An ending process may still report events, which must not count for the next process.
            agent::AgentEvent::Working | agent::AgentEvent::Commit(..)
                if !matches!(self.process, Process::Active(_)) => {}
            agent::AgentEvent::Working => {
                info!("home agent {}: its process on this member is active now", self.name);
                self.seat.handle_working(now);
            }
            agent::AgentEvent::Commit(number, changes) => self.seat.commit(now, number, changes),
            agent::AgentEvent::Ended(why, told) => {
                let nothing = Process::None(Instant::now() + PAUSE, None);
                match std::mem::replace(&mut self.process, nothing) {
                    Process::Ending(_, next) => {
                        if !told {
                            warn!("home agent {}: its process ended with an error: {why}", self.name);
                        }
                        self.process = Process::None(Instant::now(), next);
                    }
                    Process::Active(_) => {
                        warn!("home agent {}: the active process has ended: {why}", self.name);
                        self.seat.handle_ended(now);
                    }
                    Process::Standby(_) | Process::None(..) => {
                        warn!("home agent {}: the standby process has ended: {why}", self.name);
                        self.seat.handle_unready(now);
                    }
                }
            }
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.seat.poll_output() {
            match output {
                Output::ReadAndWatch => self.follow(),
                Output::Transact(id, transaction) => drop(self.transactions.send((id, transaction))),
                Output::WritePresence(value) => {
                    let (place, key) = (self.store_location.clone(), Key::Member(self.member.clone()));
                    tokio::spawn(async move {
                        // The next write of the presence has the same content, so a lost write does no harm.
                        for server in &place.servers {
                            let put = async {
                                Connection::to(server).await?.put(&place.prefix, &key, &value).await
                            };
                            if matches!(timeout(Duration::from_secs(1), put).await, Ok(Ok(()))) {
                                return;
                            }
                        }
                    });
                }
                Output::Start(records) => {
                    info!(
                        "home agent {}: this member makes its process active, with {} records from etcd",
                        self.name,
                        records.len()
                    );
                    let nothing = Process::None(Instant::now(), None);
                    self.process = match std::mem::replace(&mut self.process, nothing) {
                        Process::Standby(agent) | Process::Active(agent) => {
                            agent.begin(records);
                            Process::Active(agent)
                        }
                        Process::Ending(agent, _) => Process::Ending(agent, Some(records)),
                        Process::None(from, _) => Process::None(from, Some(records)),
                    };
                }
                Output::Stop(why) => {
                    info!("home agent {}: this member stops its process: {why}", self.name);
                    self.stop();
                }
                Output::Committed(_) => {
                    if let Process::Active(agent) = &self.process {
                        agent.written();
                    }
                }
                Output::Log(text) => info!("home agent {}: this member {text}", self.name),
            }
        }
        let role = self.seat.role();
        if std::mem::replace(&mut self.role, role) != role {
            let owner = self.seat.owner().unwrap_or("unknown");
            info!("home agent {}: this member {}; leader: {owner}", self.name, words(role));
        }
    }

    fn follow(&mut self) {
        if let Some(following) = self.watch_task.take() {
            following.abort();
        }
        let first = self.watch_number == 0;
        self.watch_number += 1;
        let (place, tell, number) = (self.store_location.clone(), self.from_store.clone(), self.watch_number);
        let silent = self.watch_timeout;
        self.watch_task = Some(tokio::spawn(async move {
            if !first {
                sleep(AGAIN).await;
            }
            // Successive watches use different servers.
            let server = &place.servers[number as usize % place.servers.len()];
            let error = match follow(server, &place.prefix, number, silent, &tell).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            let _ = tell.send(StoreMessage::Lost(number, format!("{error:#}")));
        }));
    }
}

fn words(role: Role) -> &'static str {
    match role {
        Role::WithoutStore => "has no answer from etcd",
        Role::Standby => "is a standby",
        Role::Leader => "is the leader",
        Role::FormerLeader => "gives the leadership up",
    }
}

async fn agent_news(process: &mut Process) -> agent::AgentEvent {
    match process {
        Process::Standby(agent) | Process::Active(agent) | Process::Ending(agent, _) => {
            match agent.events.recv().await {
                Some(news) => news,
                None => std::future::pending().await,
            }
        }
        Process::None(..) => std::future::pending().await,
    }
}

/// Reads all keys and watches them, and starts again when the watch ends.
async fn follow(
    server: &Server,
    prefix: &Prefix,
    number: u64,
    silent: Duration,
    tell: &UnboundedSender<StoreMessage>,
) -> anyhow::Result<std::convert::Infallible> {
    let snapshot = Connection::to(server).await?.read(prefix).await?;
    let known = snapshot.revision;
    // The watch begins before the seat gets the snapshot of all keys, so that the watch misses no change.
    let mut watch = Connection::to(server).await?.watch(prefix, known).await?;
    tell.send(StoreMessage::Snapshot(number, snapshot))?;
    loop {
        let changes = timeout(silent, watch.next()).await;
        let changes = changes.with_context(|| {
            format!("expected events from etcd at {}, but the watch was silent for too long", server.address)
        })??;
        tell.send(StoreMessage::Events(number, changes))?;
    }
}

/// Executes the transactions one after the other. If a transaction takes too long, the seat repeats it, and
/// this task tries the next server. Earlier attempts continue, because a slow store may answer each of them
/// late.
async fn make(
    name: String,
    place: StoreLocation,
    patience: Duration,
    mut to_make: UnboundedReceiver<(RequestId, Transaction)>,
    tell: UnboundedSender<StoreMessage>,
) {
    let (mut attempts, mut connection, mut turn) = (JoinSet::new(), None, 0);
    let mut failing = false;
    loop {
        tokio::select! {
            asked = to_make.recv(), if attempts.len() < ATTEMPTS => {
                let Some(mut latest) = asked else { return };
                while let Ok(later) = to_make.try_recv() {
                    latest = later;
                }
                if !attempts.is_empty() {
                    turn += 1;
                }
                let server = place.servers[turn % place.servers.len()].clone();
                let attempt = attempt(server, place.prefix.clone(), connection.take(), latest);
                attempts.spawn(async move { timeout(patience, attempt).await.ok() });
            }
            Some(ended) = attempts.join_next() => match ended.ok().flatten() {
                Some(Ok((open, id, outcome))) => {
                    connection = Some(open);
                    // etcd has executed the other attempts, or their condition fails now, so their results
                    // are not needed.
                    attempts = JoinSet::new();
                    while to_make.try_recv().is_ok() {}
                    if std::mem::take(&mut failing) {
                        info!("home agent {name}: etcd accepts this member's transactions again");
                    }
                    if tell.send(StoreMessage::Outcome(id, outcome)).is_err() {
                        return;
                    }
                }
                Some(Err(error)) => {
                    turn += 1;
                    if !std::mem::replace(&mut failing, true) {
                        warn!("home agent {name}: etcd does not accept this member's transaction: {error:#}");
                    }
                }
                // No answer arrived in time, so the next attempt uses the next server.
                None => turn += 1,
            },
        }
    }
}

/// Makes one attempt at a transaction.
async fn attempt(
    server: Server,
    prefix: Prefix,
    open: Option<Connection>,
    (id, transaction): (RequestId, Transaction),
) -> anyhow::Result<(Connection, RequestId, Outcome)> {
    let mut open = match open {
        Some(open) => open,
        None => Connection::to(&server).await?,
    };
    let outcome = open.transact(&prefix, &transaction).await.with_context(|| server.address.clone())?;
    Ok((open, id, outcome))
}

#[cfg(test)]
mod tests;
