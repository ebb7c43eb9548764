//! Executes the decisions of [`Leadership`] about the leadership of a home agent: writes them to the store,
//! and starts and stops the home agent's process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use carnet_base::Time;
use carnet_fleet::{
    LeaderToken, Leadership, LeadershipConfig, MemberPresence, MemberRole, Output, RequestId, StoreEvent,
    StoreKey, StoreRevision, StoreSnapshot, StoreTransaction, StoreTransactionOutcome,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use crate::agent::{self, AgentParameters, AgentProcess};
use crate::etcd::{EtcdConnection, KeyPrefix, StoreServer};
use crate::links::LinkVerdict;

/// Pause before the restart of a home agent that has ended unexpectedly.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two attempts to watch the store.
const WATCH_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Time without a message of a watch after which the etcd server counts as failed. A standby writes once a
/// second, and a leader more often.
const WATCH_SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// Time between two comparisons of keys that differ.
const KEY_COMPARISON_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of attempts at one transaction that run at the same time.
const MAX_PARALLEL_ATTEMPTS: usize = 4;

/// Message of the tasks that access the store.
#[derive(Debug)]
enum StoreMessage {
    Outcome(RequestId, StoreTransactionOutcome),
    Snapshot(u64, StoreSnapshot),
    Events(u64, BTreeMap<StoreRevision, Vec<StoreEvent>>),
    Lost(u64, String),
}

/// Servers of the store, and the prefix of one home agent's keys.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    /// Servers of the store.
    pub store_servers: Vec<StoreServer>,
    /// Prefix of the seat's keys.
    pub prefix: KeyPrefix,
}

/// State of the home agent's process on this machine.
#[derive(Debug)]
enum AgentProcessState {
    /// No process runs, and none starts before this time. If this member becomes the leader, the next process
    /// gets these records.
    None(Instant, Option<BTreeMap<String, String>>),
    /// The process is started and waits for its records.
    Standby(AgentProcess),
    Active(AgentProcess),
    /// The process is ending. If this member becomes the leader, the next process gets these records.
    Ending(AgentProcess, Option<BTreeMap<String, String>>),
}

/// Executes the decisions about one home agent (seat), with the store and the home agent's process.
pub struct SeatKeeper {
    name: String,
    seat_state: Leadership,
    /// Random number of this carnet-fleet process. It differs from the numbers of earlier processes of this
    /// member.
    process_number: u64,
    started_at: Instant,
    store_location: StoreLocation,
    agent_parameters: AgentParameters,
    transaction_sender: UnboundedSender<(RequestId, StoreTransaction)>,
    store_receiver: UnboundedReceiver<StoreMessage>,
    store_message_sender: UnboundedSender<StoreMessage>,
    watch_task: Option<JoinHandle<()>>,
    watch_number: u64,
    watch_timeout: Duration,
    has_lost_store: bool,
    agent_process: AgentProcessState,
    seat_role: MemberRole,
    member_name: String,
    link_verdict: watch::Receiver<LinkVerdict>,
    /// Results of the checks of a changed config on a standby.
    checked_configs: UnboundedReceiver<Result<(), String>>,
    check_results: UnboundedSender<Result<(), String>>,
    /// Whether another carnet-fleet process uses the name of this member.
    has_rival_process: bool,
    key_comparison: KeyComparison,
}

/// Comparison of this member's private key with that of the fleet.
#[derive(Debug, Default)]
struct KeyComparison {
    /// The fleet's record of public keys at the last comparison; `None` if the fleet had no record.
    compared_record: Option<String>,
    next_comparison_at: Option<Instant>,
    /// Last logged difference between the member's key and the fleet's; `None` if the keys are equal.
    logged_difference: Option<String>,
}

impl SeatKeeper {
    /// Creates a keeper; `links` has the present verdict on this member's links to its neighbouring routers.
    pub fn new(
        name: String,
        config: LeadershipConfig,
        process: u64,
        place: StoreLocation,
        recipe: AgentParameters,
        links: watch::Receiver<LinkVerdict>,
    ) -> SeatKeeper {
        let (transactions, to_make) = unbounded_channel();
        let (from_store, store) = unbounded_channel();
        let (tell_checked, checked) = unbounded_channel();
        tokio::spawn(execute_transactions(
            name.clone(),
            place.clone(),
            config.lease_duration,
            to_make,
            from_store.clone(),
        ));
        SeatKeeper {
            member_name: config.own_member_name.clone(),
            watch_timeout: WATCH_SILENCE_LIMIT + config.keep_alive_interval * 2,
            seat_state: Leadership::new(config, process, Time::ZERO),
            process_number: process,
            name,
            started_at: Instant::now(),
            store_location: place,
            agent_parameters: recipe,
            transaction_sender: transactions,
            store_receiver: store,
            store_message_sender: from_store,
            watch_task: None,
            watch_number: 0,
            has_lost_store: false,
            agent_process: AgentProcessState::None(Instant::now(), None),
            seat_role: MemberRole::WithoutStore,
            link_verdict: links,
            checked_configs: checked,
            check_results: tell_checked,
            has_rival_process: false,
            key_comparison: KeyComparison::default(),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.started_at.elapsed()
    }

    /// Runs until `end` is true. Then the keeper gives up the leadership, and returns when the home agent's
    /// process has ended. `reload` receives requests to read the home agent's config again.
    pub async fn run_until_end(mut self, mut end: watch::Receiver<bool>, mut reload: UnboundedReceiver<()>) {
        let mut ending = false;
        self.handle_link_verdict();
        loop {
            self.compare_keys();
            self.carry_out_actions();
            if ending && !matches!(self.seat_state.role(), MemberRole::Leader | MemberRole::FormerLeader) {
                match &mut self.agent_process {
                    AgentProcessState::None(..) => return,
                    AgentProcessState::Standby(_) => self.stop_agent(),
                    AgentProcessState::Active(_) | AgentProcessState::Ending(..) => {}
                }
            }
            let mut due = self.started_at + Duration::from_nanos(self.seat_state.next_timeout().as_nanos());
            if let AgentProcessState::None(from, _) = &self.agent_process {
                due = due.min(*from);
            }
            due = due.min(self.key_comparison.next_comparison_at.unwrap_or(due));
            tokio::select! {
                Some(news) = self.store_receiver.recv() => self.handle_store_message(news),
                news = next_agent_event(&mut self.agent_process) => self.handle_agent_event(news),
                Ok(()) = self.link_verdict.changed() => self.handle_link_verdict(),
                () = tokio::time::sleep_until(due.into()) => {
                    self.seat_state.handle_timeout(self.now());
                    self.prepare_standby();
                }
                Some(()) = reload.recv() => {
                    self.key_comparison.next_comparison_at = Some(Instant::now());
                    self.reload_agent_config();
                }
                Some(checked) = self.checked_configs.recv() => self.replace_standby(checked),
                _ = end.changed(), if !ending => {
                    ending = true;
                    let now = self.now();
                    self.seat_state.retire_member(now);
                }
            }
        }
    }

    /// Compares the private key with that of the fleet if the record has changed. While the keys differ,
    /// repeats the comparison each second, because the operator may have copied the key file.
    fn compare_keys(&mut self) {
        let record = self.seat_state.stored_record(agent::SESSIONS_RECORD);
        let is_due = self.key_comparison.next_comparison_at.is_some_and(|next| next <= Instant::now());
        if !is_due && record == self.key_comparison.compared_record.as_deref() {
            return;
        }
        self.key_comparison.compared_record = record.map(str::to_owned);
        let compared = self.agent_parameters.compare_keys(self.key_comparison.compared_record.as_deref());
        self.key_comparison.next_comparison_at =
            compared.is_err().then(|| Instant::now() + KEY_COMPARISON_INTERVAL);
        let difference = compared.err();
        let now = self.now();
        self.seat_state.handle_key_comparison(now, difference.is_none());
        if difference != self.key_comparison.logged_difference {
            match &difference {
                Some(why) => error!(
                    "home agent {}: this member does not become the leader while others can: {why}",
                    self.name
                ),
                None => info!(
                    "home agent {}: this member has the private key that the mobile routers expect",
                    self.name
                ),
            }
            self.key_comparison.logged_difference = difference;
        }
    }

    /// Makes the home agent use its changed config. A leader's process reads the config itself. A standby's
    /// process is replaced after a check of the config. A process that starts later reads the changed config
    /// in any case.
    fn reload_agent_config(&self) {
        info!("home agent {}: reloads its config", self.name);
        match &self.agent_process {
            AgentProcessState::Active(agent) => agent.reload_config(),
            AgentProcessState::Standby(_) => {
                let (recipe, tell) = (self.agent_parameters.clone(), self.check_results.clone());
                tokio::task::spawn_blocking(move || {
                    let checked = recipe.check_agent_config().map(drop).map_err(|error| format!("{error:#}"));
                    let _ = tell.send(checked);
                });
            }
            AgentProcessState::None(..) | AgentProcessState::Ending(..) => {}
        }
    }

    /// Replaces the standby's process after the check of the config. If the config has mistakes, the process
    /// stays and uses the config of its start.
    fn replace_standby(&mut self, checked: Result<(), String>) {
        match (checked, &self.agent_process) {
            (Err(why), _) => {
                error!("home agent {}: cannot apply the changed config: {why}", self.name)
            }
            (Ok(()), AgentProcessState::Standby(_)) => {
                info!("home agent {}: the standby process restarts with the changed config", self.name);
                self.stop_agent();
            }
            // The standby's process became active during the check, so it reads the config itself.
            (Ok(()), AgentProcessState::Active(agent)) => agent.reload_config(),
            (Ok(()), AgentProcessState::None(..) | AgentProcessState::Ending(..)) => {}
        }
    }

    /// Starts a standby's process if the pause is over.
    fn prepare_standby(&mut self) {
        if let AgentProcessState::None(from, wanted) = &mut self.agent_process
            && *from <= Instant::now()
        {
            let (agent, wanted) = (AgentProcess::start(self.agent_parameters.clone()), wanted.take());
            self.agent_process = match wanted {
                Some(records) => {
                    agent.begin_with_records(records);
                    AgentProcessState::Active(agent)
                }
                None => AgentProcessState::Standby(agent),
            };
        }
    }

    /// Stops the home agent's process, standby or active.
    fn stop_agent(&mut self) {
        let nothing = AgentProcessState::None(Instant::now(), None);
        self.agent_process = match std::mem::replace(&mut self.agent_process, nothing) {
            AgentProcessState::Active(mut agent) | AgentProcessState::Standby(mut agent) => {
                agent.stop();
                AgentProcessState::Ending(agent, None)
            }
            AgentProcessState::Ending(agent, _) => AgentProcessState::Ending(agent, None),
            AgentProcessState::None(from, _) => AgentProcessState::None(from, None),
        };
    }

    fn handle_store_message(&mut self, message: StoreMessage) {
        let now = self.now();
        match message {
            StoreMessage::Outcome(id, outcome) => self.seat_state.handle_outcome(now, id, outcome),
            StoreMessage::Snapshot(follow, snapshot) if follow == self.watch_number => {
                if std::mem::take(&mut self.has_lost_store) {
                    info!("home agent {}: this member can watch etcd again", self.name);
                }
                self.seat_state.handle_snapshot(now, snapshot);
            }
            StoreMessage::Events(follow, events) if follow == self.watch_number => {
                for (revision, events) in events {
                    self.check_for_second_process(&events);
                    self.seat_state.handle_events(now, revision, events);
                }
            }
            StoreMessage::Lost(follow, why) if follow == self.watch_number => {
                if !std::mem::replace(&mut self.has_lost_store, true) {
                    warn!("home agent {}: this member cannot watch etcd: {why}", self.name);
                }
                self.seat_state.handle_lost_watch(now);
            }
            // Ignore a message about an earlier watch of the store.
            _ => {}
        }
    }

    /// Warns if two machines use the same member name. Other members would take them for one member, and
    /// would not notice the failure of one of them.
    fn check_for_second_process(&mut self, events: &[StoreEvent]) {
        let mut processes = events.iter().filter_map(|event| {
            let value = event.value.as_deref()?;
            match &event.key {
                StoreKey::Member(name) if *name == self.member_name => {
                    Some(MemberPresence::from_text(value).process)
                }
                StoreKey::Owner => {
                    let token = LeaderToken::from_text(value)?;
                    (token.member == self.member_name).then_some(token.process)
                }
                _ => None,
            }
        });
        // Earlier processes of this member no longer write. So a different process number means that a second
        // machine uses the name of this member.
        if processes.any(|process| process != self.process_number)
            && !std::mem::replace(&mut self.has_rival_process, true)
        {
            warn!(
                "home agent {}: another process uses the member name {} too; expected each name on one \
                 machine",
                self.name, self.member_name
            );
        }
    }

    fn handle_link_verdict(&mut self) {
        let verdict = self.link_verdict.borrow_and_update().clone();
        if self.seat_state.handle_router_links(self.now(), verdict.is_ok()) {
            match verdict {
                Ok(()) => info!("home agent {}: this member reaches the mobile routers again", self.name),
                Err(why) => {
                    warn!("home agent {}: this member cannot reach the mobile routers: {why}", self.name)
                }
            }
        }
    }

    fn handle_agent_event(&mut self, event: agent::AgentEvent) {
        let now = self.now();
        match event {
            // An ending process may still report events, which must not count for the next process.
            agent::AgentEvent::Working | agent::AgentEvent::Commit(..)
                if !matches!(self.agent_process, AgentProcessState::Active(_)) => {}
            agent::AgentEvent::Working => {
                info!("home agent {}: its process on this member is active now", self.name);
                self.seat_state.handle_agent_working(now);
            }
            agent::AgentEvent::Commit(number, changes) => {
                self.seat_state.commit_changes(now, number, changes)
            }
            agent::AgentEvent::Ended(why, told) => {
                let nothing = AgentProcessState::None(Instant::now() + RESTART_PAUSE, None);
                match std::mem::replace(&mut self.agent_process, nothing) {
                    AgentProcessState::Ending(_, next) => {
                        if !told {
                            warn!("home agent {}: its process ended with an error: {why}", self.name);
                        }
                        self.agent_process = AgentProcessState::None(Instant::now(), next);
                    }
                    AgentProcessState::Active(_) => {
                        warn!("home agent {}: the active process has ended: {why}", self.name);
                        self.seat_state.handle_agent_ended(now);
                    }
                    AgentProcessState::Standby(_) | AgentProcessState::None(..) => {
                        warn!("home agent {}: the standby process has ended: {why}", self.name);
                        self.seat_state.handle_standby_agent_ended(now);
                    }
                }
            }
        }
    }

    fn carry_out_actions(&mut self) {
        while let Some(output) = self.seat_state.poll_output() {
            match output {
                Output::ReadAndWatch => self.follow_role(),
                Output::Transact(id, transaction) => drop(self.transaction_sender.send((id, transaction))),
                Output::WritePresence(value) => {
                    let (place, key) =
                        (self.store_location.clone(), StoreKey::Member(self.member_name.clone()));
                    tokio::spawn(async move {
                        // Try one server after the other. If all fail, no harm is done: the next write of
                        // this key has the same content.
                        for server in &place.store_servers {
                            let put = async {
                                EtcdConnection::connect_to(server)
                                    .await?
                                    .put_value(&place.prefix, &key, &value)
                                    .await
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
                    let nothing = AgentProcessState::None(Instant::now(), None);
                    self.agent_process = match std::mem::replace(&mut self.agent_process, nothing) {
                        AgentProcessState::Standby(agent) | AgentProcessState::Active(agent) => {
                            agent.begin_with_records(records);
                            AgentProcessState::Active(agent)
                        }
                        AgentProcessState::Ending(agent, _) => {
                            AgentProcessState::Ending(agent, Some(records))
                        }
                        AgentProcessState::None(from, _) => AgentProcessState::None(from, Some(records)),
                    };
                }
                Output::Stop(why) => {
                    info!("home agent {}: this member stops its process: {why}", self.name);
                    self.stop_agent();
                }
                Output::Committed(_) => {
                    if let AgentProcessState::Active(agent) = &self.agent_process {
                        agent.acknowledge_oldest_commit();
                    }
                }
                Output::Log(text) => info!("home agent {}: this member {text}", self.name),
            }
        }
        let role = self.seat_state.role();
        if std::mem::replace(&mut self.seat_role, role) != role {
            let owner = self.seat_state.leader_name().unwrap_or("unknown");
            info!("home agent {}: this member {}; leader: {owner}", self.name, role_name(role));
        }
    }

    fn follow_role(&mut self) {
        if let Some(following) = self.watch_task.take() {
            following.abort();
        }
        let first = self.watch_number == 0;
        self.watch_number += 1;
        let (place, tell, number) =
            (self.store_location.clone(), self.store_message_sender.clone(), self.watch_number);
        let silent = self.watch_timeout;
        self.watch_task = Some(tokio::spawn(async move {
            if !first {
                sleep(WATCH_RETRY_PAUSE).await;
            }
            // Successive watches use different servers.
            let server = &place.store_servers[number as usize % place.store_servers.len()];
            let error = match follow_store(server, &place.prefix, number, silent, &tell).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            let _ = tell.send(StoreMessage::Lost(number, format!("{error:#}")));
        }));
    }
}

fn role_name(role: MemberRole) -> &'static str {
    match role {
        MemberRole::WithoutStore => "has no answer from etcd",
        MemberRole::Standby => "is a standby",
        MemberRole::Leader => "is the leader",
        MemberRole::FormerLeader => "gives the leadership up",
    }
}

async fn next_agent_event(process: &mut AgentProcessState) -> agent::AgentEvent {
    match process {
        AgentProcessState::Standby(agent)
        | AgentProcessState::Active(agent)
        | AgentProcessState::Ending(agent, _) => match agent.events.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        },
        AgentProcessState::None(..) => std::future::pending().await,
    }
}

/// Reads all keys and watches them, and starts again when the watch ends.
async fn follow_store(
    server: &StoreServer,
    prefix: &KeyPrefix,
    number: u64,
    silent: Duration,
    tell: &UnboundedSender<StoreMessage>,
) -> anyhow::Result<std::convert::Infallible> {
    let snapshot = EtcdConnection::connect_to(server).await?.read_seat(prefix).await?;
    let known = snapshot.revision;
    // The watch begins before [`Leadership`] gets the snapshot of all keys, so that the watch misses no
    // change.
    let mut watch = EtcdConnection::connect_to(server).await?.watch_seat(prefix, known).await?;
    tell.send(StoreMessage::Snapshot(number, snapshot))?;
    loop {
        let changes = timeout(silent, watch.next()).await;
        let changes = changes.with_context(|| {
            format!("expected events from etcd at {}, but the watch was silent for too long", server.address)
        })??;
        tell.send(StoreMessage::Events(number, changes))?;
    }
}

/// Executes the transactions one after the other. If a transaction takes too long, `Leadership` repeats it,
/// and this task tries the next server. Earlier attempts continue, because a slow store may answer each of
/// them late.
async fn execute_transactions(
    name: String,
    place: StoreLocation,
    patience: Duration,
    mut to_make: UnboundedReceiver<(RequestId, StoreTransaction)>,
    tell: UnboundedSender<StoreMessage>,
) {
    let (mut attempts, mut connection, mut turn) = (JoinSet::new(), None, 0);
    let mut failing = false;
    loop {
        tokio::select! {
            asked = to_make.recv(), if attempts.len() < MAX_PARALLEL_ATTEMPTS => {
                let Some(mut latest) = asked else { return };
                while let Ok(later) = to_make.try_recv() {
                    latest = later;
                }
                if !attempts.is_empty() {
                    turn += 1;
                }
                let server = place.store_servers[turn % place.store_servers.len()].clone();
                let attempt = attempt_transaction(server, place.prefix.clone(), connection.take(), latest);
                attempts.spawn(async move { timeout(patience, attempt).await.ok() });
            }
            Some(ended) = attempts.join_next() => match ended.ok().flatten() {
                Some(Ok((open, id, outcome))) => {
                    connection = Some(open);
                    // This result decides about the transaction. etcd has executed the other attempts too, or
                    // refuses them now, so their results are not needed.
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
async fn attempt_transaction(
    server: StoreServer,
    prefix: KeyPrefix,
    open: Option<EtcdConnection>,
    (id, transaction): (RequestId, StoreTransaction),
) -> anyhow::Result<(EtcdConnection, RequestId, StoreTransactionOutcome)> {
    let mut open = match open {
        Some(open) => open,
        None => EtcdConnection::connect_to(&server).await?,
    };
    let outcome =
        open.execute_transaction(&prefix, &transaction).await.with_context(|| server.address.clone())?;
    Ok((open, id, outcome))
}

#[cfg(test)]
mod tests;
