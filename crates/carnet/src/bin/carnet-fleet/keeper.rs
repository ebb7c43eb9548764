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

use crate::agent::{self, Agent, Recipe};
use crate::etcd::{Connection, Prefix, Server};
use crate::links::Verdict;

/// Pause before a restart after a home agent has ended unexpectedly.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between two attempts to watch the store.
const AGAIN: Duration = Duration::from_millis(200);
/// Time without a message after which the server of a watch counts as gone. A standby writes every second,
/// and a leader more often.
const SILENT: Duration = Duration::from_secs(3);
/// Largest number of simultaneous attempts at one transaction.
const ATTEMPTS: usize = 4;

/// Message of the store's task to the keeper.
#[derive(Debug)]
enum FromStore {
    Outcome(RequestId, Outcome),
    Snapshot(u64, Snapshot),
    Events(u64, BTreeMap<Revision, Vec<Event>>),
    Lost(u64, String),
}

/// Servers of the store, and the keys of a seat.
#[derive(Debug, Clone)]
pub struct Place {
    /// Servers of the store.
    pub servers: Vec<Server>,
    /// Prefix of the seat's keys.
    pub prefix: Prefix,
}

/// State of the home agent's process on this machine.
#[derive(Debug)]
enum Process {
    /// The seat starts no process before this time. If this member becomes the leader, the next process gets
    /// these records.
    None(Instant, Option<BTreeMap<String, String>>),
    /// The process is started and waits for its records.
    Waits(Agent),
    Runs(Agent),
    /// The process is ending. If this member becomes the leader, the next process gets these records.
    Ends(Agent, Option<BTreeMap<String, String>>),
}

/// A seat with its store and the home agent's process.
pub struct Keeper {
    name: String,
    seat: Seat,
    /// Number of this program's process, different from the numbers of other processes of this member.
    number: u64,
    began: Instant,
    place: Place,
    recipe: Recipe,
    transactions: UnboundedSender<(RequestId, Transaction)>,
    store: UnboundedReceiver<FromStore>,
    from_store: UnboundedSender<FromStore>,
    following: Option<JoinHandle<()>>,
    follows: u64,
    silent: Duration,
    blind: bool,
    process: Process,
    role: Role,
    member: String,
    links: watch::Receiver<Verdict>,
    /// Results of the config checks for a reload on a standby.
    checked: UnboundedReceiver<Result<(), String>>,
    tell_checked: UnboundedSender<Result<(), String>>,
    /// Whether another process claims to be this member.
    doubled: bool,
}

impl Keeper {
    /// Creates a keeper, with the present verdict on the links.
    pub fn new(
        name: String,
        config: SeatConfig,
        process: u64,
        place: Place,
        recipe: Recipe,
        links: watch::Receiver<Verdict>,
    ) -> Keeper {
        let (transactions, to_make) = unbounded_channel();
        let (from_store, store) = unbounded_channel();
        let (tell_checked, checked) = unbounded_channel();
        tokio::spawn(make(name.clone(), place.clone(), config.lease, to_make, from_store.clone()));
        Keeper {
            member: config.member.clone(),
            silent: SILENT + config.beat * 2,
            seat: Seat::new(config, process, Time::ZERO),
            number: process,
            name,
            began: Instant::now(),
            place,
            recipe,
            transactions,
            store,
            from_store,
            following: None,
            follows: 0,
            blind: false,
            process: Process::None(Instant::now(), None),
            role: Role::Blind,
            links,
            checked,
            tell_checked,
            doubled: false,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Runs until `end`. Then the keeper gives the seat up first, and returns when the home agent's process
    /// has ended. `reload` brings requests to read the home agent's config again.
    pub async fn run(mut self, mut end: watch::Receiver<bool>, mut reload: UnboundedReceiver<()>) {
        let mut ending = false;
        self.hear_links();
        loop {
            self.carry_out();
            if ending && !matches!(self.seat.role(), Role::Owner | Role::Leaving) {
                match &mut self.process {
                    Process::None(..) => return,
                    Process::Waits(_) => self.stop(),
                    Process::Runs(_) | Process::Ends(..) => {}
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

    /// Makes the home agent use its changed config. The process of a leader reads the config again itself.
    /// The keeper replaces the process of a standby after a check of the config. A process that starts later
    /// reads the new config anyway.
    fn reload(&self) {
        info!("seat {}: the home agent's config is read again", self.name);
        match &self.process {
            Process::Runs(agent) => agent.reload(),
            Process::Waits(_) => {
                let (recipe, tell) = (self.recipe.clone(), self.tell_checked.clone());
                tokio::task::spawn_blocking(move || {
                    let checked = recipe.check().map(drop).map_err(|error| format!("{error:#}"));
                    let _ = tell.send(checked);
                });
            }
            Process::None(..) | Process::Ends(..) => {}
        }
    }

    /// Replaces the waiting process after the check of the config. If the config has mistakes, the process
    /// stays, with the config of its start.
    fn renew(&mut self, checked: Result<(), String>) {
        match (checked, &self.process) {
            (Err(why), _) => error!("seat {}: the home agent's config is not taken over: {why}", self.name),
            (Ok(()), Process::Waits(_)) => {
                info!("seat {}: another home agent waits, by that config", self.name);
                self.stop();
            }
            // The process became active while its config was checked.
            (Ok(()), Process::Runs(agent)) => agent.reload(),
            (Ok(()), Process::None(..) | Process::Ends(..)) => {}
        }
    }

    /// Starts a home agent that waits for its records, if the pause is over.
    fn prepare(&mut self) {
        if let Process::None(from, wanted) = &mut self.process
            && *from <= Instant::now()
        {
            let (agent, wanted) = (Agent::start(self.recipe.clone()), wanted.take());
            self.process = match wanted {
                Some(records) => {
                    agent.begin(records);
                    Process::Runs(agent)
                }
                None => Process::Waits(agent),
            };
        }
    }

    /// Ends the home agent's process, whether it waits or is active.
    fn stop(&mut self) {
        let nothing = Process::None(Instant::now(), None);
        self.process = match std::mem::replace(&mut self.process, nothing) {
            Process::Runs(mut agent) | Process::Waits(mut agent) => {
                agent.stop();
                Process::Ends(agent, None)
            }
            Process::Ends(agent, _) => Process::Ends(agent, None),
            Process::None(from, _) => Process::None(from, None),
        };
    }

    fn hear_store(&mut self, news: FromStore) {
        let now = self.now();
        match news {
            FromStore::Outcome(id, outcome) => self.seat.handle_outcome(now, id, outcome),
            FromStore::Snapshot(follow, snapshot) if follow == self.follows => {
                if std::mem::take(&mut self.blind) {
                    info!("seat {}: the store can be reached again", self.name);
                }
                self.seat.handle_snapshot(now, snapshot);
            }
            FromStore::Events(follow, events) if follow == self.follows => {
                for (revision, events) in events {
                    self.look_for_doubles(&events);
                    self.seat.handle_events(now, revision, events);
                }
            }
            FromStore::Lost(follow, why) if follow == self.follows => {
                if !std::mem::replace(&mut self.blind, true) {
                    warn!("seat {}: the store cannot be followed: {why}", self.name);
                }
                self.seat.handle_lost(now);
            }
            // The keeper has given this attempt up, so its result has no effect.
            _ => {}
        }
    }

    /// Warns if two machines have the same member name. Other members take the two for one member, and do not
    /// notice when one of the machines fails.
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
        // A process of an earlier run writes no more, so another number means a second machine.
        if processes.any(|process| process != self.number) && !std::mem::replace(&mut self.doubled, true) {
            warn!("seat {}: another process says that it is the member {}, too", self.name, self.member);
        }
    }

    fn hear_links(&mut self) {
        let verdict = self.links.borrow_and_update().clone();
        if self.seat.handle_links(self.now(), verdict.is_ok()) {
            match verdict {
                Ok(()) => info!("seat {}: routers can be reached again", self.name),
                Err(why) => warn!("seat {}: routers cannot be reached: {why}", self.name),
            }
        }
    }

    fn hear_agent(&mut self, news: agent::News) {
        let now = self.now();
        match news {
            // An ending process may still report events; these events do not count for the next process.
            agent::News::Working | agent::News::Commit(..) if !matches!(self.process, Process::Runs(_)) => {}
            agent::News::Working => {
                info!("seat {}: the home agent works", self.name);
                self.seat.handle_working(now);
            }
            agent::News::Commit(number, changes) => self.seat.commit(now, number, changes),
            agent::News::Ended(why, told) => {
                let nothing = Process::None(Instant::now() + PAUSE, None);
                match std::mem::replace(&mut self.process, nothing) {
                    Process::Ends(_, next) => {
                        if !told {
                            warn!("seat {}: the home agent: {why}", self.name);
                        }
                        self.process = Process::None(Instant::now(), next);
                    }
                    Process::Runs(_) => {
                        warn!("seat {}: the home agent has ended: {why}", self.name);
                        self.seat.handle_ended(now);
                    }
                    Process::Waits(_) | Process::None(..) => {
                        warn!("seat {}: a home agent that waits has ended: {why}", self.name);
                        self.seat.handle_unready(now);
                    }
                }
            }
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.seat.poll_output() {
            match output {
                Output::Follow => self.follow(),
                Output::Transact(id, transaction) => drop(self.transactions.send((id, transaction))),
                Output::Hello(value) => {
                    let (place, key) = (self.place.clone(), Key::Member(self.member.clone()));
                    tokio::spawn(async move {
                        // If a write is lost, the next write has the same content, so no harm is done.
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
                    info!("seat {}: starts the home agent with {} records", self.name, records.len());
                    let nothing = Process::None(Instant::now(), None);
                    self.process = match std::mem::replace(&mut self.process, nothing) {
                        Process::Waits(agent) | Process::Runs(agent) => {
                            agent.begin(records);
                            Process::Runs(agent)
                        }
                        Process::Ends(agent, _) => Process::Ends(agent, Some(records)),
                        Process::None(from, _) => Process::None(from, Some(records)),
                    };
                }
                Output::Stop(why) => {
                    info!("seat {}: stops the home agent: {why}", self.name);
                    self.stop();
                }
                Output::Written(_) => {
                    if let Process::Runs(agent) = &self.process {
                        agent.written();
                    }
                }
                Output::Note(text) => info!("seat {}: {text}", self.name),
            }
        }
        let role = self.seat.role();
        if std::mem::replace(&mut self.role, role) != role {
            let owner = self.seat.owner().unwrap_or("nobody");
            info!("seat {}: {} now; {owner} has it", self.name, words(role));
        }
    }

    fn follow(&mut self) {
        if let Some(following) = self.following.take() {
            following.abort();
        }
        let first = self.follows == 0;
        self.follows += 1;
        let (place, tell, number) = (self.place.clone(), self.from_store.clone(), self.follows);
        let silent = self.silent;
        self.following = Some(tokio::spawn(async move {
            if !first {
                sleep(AGAIN).await;
            }
            // Each attempt to watch the keys uses another server.
            let server = &place.servers[number as usize % place.servers.len()];
            let error = match follow(server, &place.prefix, number, silent, &tell).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            let _ = tell.send(FromStore::Lost(number, format!("{error:#}")));
        }));
    }
}

fn words(role: Role) -> &'static str {
    match role {
        Role::Blind => "knows nothing",
        Role::Waiting => "waits",
        Role::Owner => "has the seat",
        Role::Leaving => "gives the seat up",
    }
}

async fn agent_news(process: &mut Process) -> agent::News {
    match process {
        Process::Waits(agent) | Process::Runs(agent) | Process::Ends(agent, _) => {
            match agent.news.recv().await {
                Some(news) => news,
                None => std::future::pending().await,
            }
        }
        Process::None(..) => std::future::pending().await,
    }
}

/// Reads all keys, then watches them, and repeats this endlessly.
async fn follow(
    server: &Server,
    prefix: &Prefix,
    number: u64,
    silent: Duration,
    tell: &UnboundedSender<FromStore>,
) -> anyhow::Result<std::convert::Infallible> {
    let snapshot = Connection::to(server).await?.read(prefix).await?;
    let known = snapshot.revision;
    // The watch begins before the seat gets the snapshot, so that no change is missed.
    let mut watch = Connection::to(server).await?.watch(prefix, known).await?;
    tell.send(FromStore::Snapshot(number, snapshot))?;
    loop {
        let changes = timeout(silent, watch.next()).await;
        let changes = changes.with_context(|| format!("{} says nothing any more", server.place))??;
        tell.send(FromStore::Events(number, changes))?;
    }
}

/// Executes one transaction after the other. If a transaction takes too long, the seat repeats it, and then
/// this task tries the next server. Earlier attempts continue, because a slow store answers each attempt
/// late.
async fn make(
    name: String,
    place: Place,
    patience: Duration,
    mut to_make: UnboundedReceiver<(RequestId, Transaction)>,
    tell: UnboundedSender<FromStore>,
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
                    // The other attempts have been executed, or etcd will never execute them; the same holds
                    // for repeated transactions.
                    attempts = JoinSet::new();
                    while to_make.try_recv().is_ok() {}
                    if std::mem::take(&mut failing) {
                        info!("seat {name}: the store takes transactions again");
                    }
                    if tell.send(FromStore::Outcome(id, outcome)).is_err() {
                        return;
                    }
                }
                Some(Err(error)) => {
                    turn += 1;
                    if !std::mem::replace(&mut failing, true) {
                        warn!("seat {name}: the store does not take a transaction: {error:#}");
                    }
                }
                // No answer came in time, so the next attempt goes to the next server.
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
    let outcome = open.transact(&prefix, &transaction).await.with_context(|| server.place.clone())?;
    Ok((open, id, outcome))
}

#[cfg(test)]
mod tests;
