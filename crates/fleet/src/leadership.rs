//! One member's view of a seat: whether it leads, when it takes the leadership, and which records of the home
//! agent are stored.
//!
//! **One chain.** The leader writes only by transactions that expect the revision of [`StoreKey::Owner`] that
//! its own last transaction made. Each transaction changes the key, so the transactions take effect one after
//! the other and none twice. A member takes the leadership by such a transaction, too. From then on the store
//! refuses every late transaction of the former leader. Each stored change precedes the change of leader, so
//! the next leader has this change. This order does not depend on clocks and networks. An acknowledgement to
//! a mobile router waits for its transaction. So no acknowledged change is lost, and no two members
//! acknowledge for one seat.
//!
//! **One lease.** A leader without other changes writes its token each
//! [`LeadershipConfig::keep_alive_interval`]. A member that has seen no change of the token for
//! [`LeadershipConfig::lease_duration`] takes the leadership; its transaction expects the revision that the
//! member saw. If the member missed a change, the store refuses the transaction. The leader's lease starts
//! when it *sent* the last accepted transaction. This lease is shorter by [`LeadershipConfig::lease_margin`],
//! because clocks run at different speeds. [`Leadership::holds_leadership`] becomes false at the end of the
//! lease, before another member's lease can begin.
//!
//! Without the store no member acknowledges or takes over. The home agent continues to forward for
//! [`LeadershipConfig::grace_period`] and then stops. Usually the store is unreachable only because its
//! servers elect a leader of their own. An unseen takeover by another member is less likely.
//!
//! **Links.** A member that is cut off from the mobile routers is useless as a leader, even if it reaches the
//! store. So a member announces that it is cut off ([`MemberPresence`]), and takes the leadership only if no
//! connected member does. A leader that is cut off gives the leadership to a connected member. It does so
//! after [`LeadershipConfig::wait_while_cut_off`] at the earliest, and only to a member that has since
//! announced its connection. If a gateway is down for all members, the leader stays. These rules only choose
//! a candidate; the chain decides who leads.
//!
//! **Key.** No mobile router has a session with a member whose private key is not that of the fleet. Such a
//! member counts as cut off, and waits for [`LeadershipConfig::grace_period`] before it takes a free seat.
//!
//! When a leader gives up the leadership, the seat is free at once. The seat goes to the named member, or to
//! the first member that takes it. The home agent of the former leader forwards until the next one works, but
//! at most for [`LeadershipConfig::grace_period`]. Meanwhile this home agent acknowledges no Binding Update,
//! so mobile routers repeat their Binding Updates.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::Time;

use crate::config::LeadershipConfig;
use crate::failure_pauses::FailurePauses;
use crate::other_members::OtherMembers;
use crate::router_links::RouterLinks;
use crate::store::{
    LeaderToken, MemberPresence, RecordChange, RequestId, StoreEvent, StoreKey, StoreRevision, StoreSnapshot,
    StoreTransaction, StoreTransactionOutcome, TokenState,
};

/// Maximum number of changes in one transaction. etcd permits 128 operations by default, and the token needs
/// one.
const MAX_TRANSACTION_CHANGES: usize = 100;
/// Maximum size of keys and values in one transaction, in octets. etcd accepts a request of 1.5 MiB by
/// default. A single change is sent even if it is larger.
const MAX_TRANSACTION_OCTETS: usize = 1 << 20;
/// Interval at which a standby writes its presence.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Action that the runner must perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Read all keys of the seat and watch them from that revision on. The runner calls
    /// [`Leadership::handle_snapshot`], then [`Leadership::handle_events`], and ends earlier watches.
    ReadAndWatch,
    /// Send a transaction; the runner calls [`Leadership::handle_outcome`] with the result.
    Transact(RequestId, StoreTransaction),
    /// Write this value to the member's own key, without comparison and without waiting for an answer.
    WritePresence(String),
    /// Start the home agent with these records; the runner calls [`Leadership::handle_agent_working`] when
    /// the home agent works.
    Start(BTreeMap<String, String>),
    /// Stop the home agent for this reason.
    Stop(String),
    /// The store has accepted the commit with this number.
    Committed(u64),
    /// Write this text to the log.
    Log(String),
}

/// Present role of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberRole {
    /// The member has not read the state of the store yet, or has lost the store.
    WithoutStore,
    /// The member is a standby.
    Standby,
    /// The member leads.
    Leader,
    /// The member has given up the leadership. Its home agent forwards until the next leader's home agent
    /// works.
    FormerLeader,
}

/// A transaction whose outcome is not known yet.
#[derive(Debug)]
struct OutstandingTransaction {
    /// Number of the last attempt.
    last_request: RequestId,
    /// Number of the first attempt.
    first_request: RequestId,
    transaction: StoreTransaction,
    /// Time of the first attempt. A later attempt may find that the first has succeeded.
    first_sent_at: Time,
    /// Time of the next attempt.
    next_attempt_at: Time,
    /// Number of the commit that this transaction completes; `None` if the transaction completes none.
    completed_commit: Option<u64>,
}

/// Additional state of the leader.
#[derive(Debug)]
struct LeaderState {
    /// Revision of [`StoreKey::Owner`] after the member's last transaction.
    owner_revision: StoreRevision,
    /// Revision of the last transaction that took the leadership or changed records.
    last_change_revision: StoreRevision,
    /// End of the lease.
    lease_ends_at: Time,
    /// Time of the last transaction.
    last_transaction_at: Time,
    /// Commits that the store does not have yet, each with its changed records.
    commits: VecDeque<(u64, Vec<RecordChange>)>,
    is_agent_working: bool,
    /// To which member this member gives the leadership; `Some(None)` to any member. `None` if this member
    /// keeps the leadership.
    leadership_passes_to: Option<Option<String>>,
}

/// State of the home agent of this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentState {
    Stopped,
    Running,
    /// The home agent forwards until this time.
    ForwardsUntil(Time),
}

/// State of one member of a seat.
#[derive(Debug)]
pub struct Leadership {
    config: LeadershipConfig,
    process_number: u64,
    transaction_count: u64,
    next_request_id: RequestId,
    stored_records: BTreeMap<String, String>,
    /// Revision of the store up to which this member knows the records and the owner of the seat; `None`
    /// before the first snapshot and while the watch is lost.
    known_revision: Option<StoreRevision>,
    /// Revision and token of the leader's key at the last change that this member has seen.
    owner_token: (StoreRevision, Option<LeaderToken>),
    /// Time of the last change of the leader's key.
    leader_changed_at: Time,
    other_members: OtherMembers,
    router_links: RouterLinks,
    /// Time since which this member has another private key than the fleet; `None` while the keys are equal.
    other_key_since: Option<Time>,
    /// Whether this member's last presence said that it is cut off from the mobile routers.
    announced_cut_off: bool,
    /// Time at which this member writes its next presence.
    next_presence_at: Time,
    /// Time at which this member wrote its last presence.
    last_presence_at: Time,
    leader_state: Option<LeaderState>,
    outstanding_transaction: Option<OutstandingTransaction>,
    agent_state: AgentState,
    /// Time from which this member may take the leadership again.
    may_lead_from: Time,
    /// Time from which this member may ask for the leadership again.
    may_request_leadership_from: Time,
    /// Failures of the home agent.
    agent_failures: FailurePauses,
    /// Time since which this member's home agent works; `None` while it does not work.
    agent_works_since: Option<Time>,
    /// Whether this member is ending, so that it never leads again.
    is_retiring: bool,
    outputs: VecDeque<Output>,
}

impl Leadership {
    /// Creates the state of a member at its start. `process` is a number that no other process has, such as
    /// 64 random bits.
    pub fn new(config: LeadershipConfig, process: u64, now: Time) -> Leadership {
        Leadership {
            config,
            process_number: process,
            transaction_count: 0,
            next_request_id: 1,
            stored_records: BTreeMap::new(),
            known_revision: None,
            owner_token: (0, None),
            leader_changed_at: now,
            other_members: OtherMembers::default(),
            router_links: RouterLinks::new(now),
            other_key_since: None,
            announced_cut_off: false,
            next_presence_at: now,
            last_presence_at: Time::ZERO,
            leader_state: None,
            outstanding_transaction: None,
            agent_state: AgentState::Stopped,
            may_lead_from: now,
            may_request_leadership_from: now,
            agent_failures: FailurePauses::default(),
            agent_works_since: None,
            is_retiring: false,
            outputs: VecDeque::from([Output::ReadAndWatch]),
        }
    }

    /// Returns the next action that the caller must perform; `None` if no action is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the role of this member.
    pub fn role(&self) -> MemberRole {
        match (&self.leader_state, self.known_revision) {
            (Some(hold), _) if hold.leadership_passes_to.is_none() => MemberRole::Leader,
            _ if self.agent_state != AgentState::Stopped => MemberRole::FormerLeader,
            (_, Some(_)) => MemberRole::Standby,
            (_, None) => MemberRole::WithoutStore,
        }
    }

    /// Returns whether this member leads and its lease has not ended. No two members have a lease at the same
    /// time.
    pub fn holds_leadership(&self, now: Time) -> bool {
        self.leader_state.as_ref().is_some_and(|hold| now < hold.lease_ends_at)
    }

    /// Returns the name of the leader, as far as this member knows; `None` if the seat is free or the leader
    /// is unknown.
    pub fn leader_name(&self) -> Option<&str> {
        let token = self.owner_token.1.as_ref()?;
        (!matches!(token.state, TokenState::Free(_))).then_some(token.member.as_str())
    }

    /// Handles the whole content of the store for this seat.
    pub fn handle_snapshot(&mut self, now: Time, snapshot: StoreSnapshot) {
        self.stored_records.clear();
        self.other_members = OtherMembers::default();
        let mut owner = (snapshot.owner_revision, None);
        for (key, value) in snapshot.keys_with_values {
            match key {
                StoreKey::Owner => owner.1 = LeaderToken::from_text(&value),
                StoreKey::Record(key) => drop(self.stored_records.insert(key, value)),
                // Ignore a stored presence, which may be old. Only the next presence shows whether the member
                // is alive.
                StoreKey::Member(_) => {}
            }
        }
        // Without a leader all members wait from now on; the first member of the list waits for the
        // shortest time.
        if owner.0 != self.owner_token.0 || owner.0 == 0 {
            self.leader_changed_at = now;
        }
        self.owner_token = owner;
        self.known_revision = Some(snapshot.revision);
        self.decide_actions(now);
    }

    /// Handles the changes of one revision of the store. The caller has passed all earlier revisions before.
    pub fn handle_events(&mut self, now: Time, revision: StoreRevision, events: Vec<StoreEvent>) {
        // Ignore events that are older than the snapshot.
        if self.known_revision.is_none_or(|known| revision <= known) {
            return;
        }
        for event in events {
            match (event.key, event.value) {
                // Ignore an event that is older than the answer to the member's own transaction.
                (StoreKey::Owner, _) if revision < self.owner_token.0 => {}
                (StoreKey::Owner, value) => {
                    self.owner_token = (
                        if value.is_some() { revision } else { 0 },
                        value.as_deref().and_then(LeaderToken::from_text),
                    );
                    self.leader_changed_at = now;
                    // The leader is not a standby, so it is removed from the list of standbys. After a
                    // failure it must be present for the fail-back delay again.
                    if let Some(token) = &self.owner_token.1 {
                        self.other_members.remove_member(&token.member);
                    }
                }
                (StoreKey::Record(key), Some(value)) => drop(self.stored_records.insert(key, value)),
                (StoreKey::Record(key), None) => drop(self.stored_records.remove(&key)),
                (StoreKey::Member(name), Some(value))
                    if name != self.config.own_member_name && self.config.member_names.contains(&name) =>
                {
                    let cut_off = MemberPresence::from_text(&value).cut_off;
                    if self.leader_name() != Some(&name) {
                        self.other_members.handle_presence(now, name, cut_off);
                    } else if cut_off {
                        // The leader is cut off and asks for a connected member, so write the next presence
                        // soon. A member that has just written its presence waits for the minimum interval.
                        self.next_presence_at = self
                            .next_presence_at
                            .min(now.max(self.last_presence_at + self.config.keep_alive_interval));
                    }
                }
                (StoreKey::Member(_), _) => {}
            }
        }
        self.known_revision = Some(revision);
        self.decide_actions(now);
    }

    /// Handles the loss of the watch of the store.
    pub fn handle_lost_watch(&mut self, _now: Time) {
        self.known_revision = None;
        self.outputs.push_back(Output::ReadAndWatch);
    }

    /// Handles the outcome of a transaction.
    pub fn handle_outcome(&mut self, now: Time, id: RequestId, outcome: StoreTransactionOutcome) {
        let Some(flight) = self
            .outstanding_transaction
            .take_if(|flight| (flight.first_request..=flight.last_request).contains(&id))
        else {
            return;
        };
        match outcome {
            StoreTransactionOutcome::Done(revision) => {
                self.handle_accepted_transaction(now, flight, revision)
            }
            // The token is that of an earlier attempt whose outcome was unknown.
            StoreTransactionOutcome::Refused(revision, Some(token)) if token == flight.transaction.token => {
                self.handle_accepted_transaction(now, flight, revision);
            }
            StoreTransactionOutcome::Refused(revision, token) => {
                self.handle_refused_transaction(now, revision, token)
            }
            StoreTransactionOutcome::Unknown => self.outstanding_transaction = Some(flight),
        }
        self.decide_actions(now);
    }

    /// Handles changes of the home agent's records. The store has accepted all of them when
    /// [`Output::Committed`] names this number.
    pub fn commit_changes(&mut self, now: Time, number: u64, changes: Vec<RecordChange>) {
        // A member that has lost the leadership, or gives it up, writes no more changes. So the store
        // never gets changes that still wait.
        if let Some(hold) = self.leader_state.as_mut().filter(|hold| hold.leadership_passes_to.is_none()) {
            hold.commits.push_back((number, changes));
        }
        self.decide_actions(now);
    }

    /// Handles the report that the home agent works.
    pub fn handle_agent_working(&mut self, now: Time) {
        if let Some(hold) = &mut self.leader_state {
            hold.is_agent_working = true;
            hold.last_transaction_at = Time::ZERO;
            self.agent_works_since = Some(now);
        }
        self.decide_actions(now);
    }

    /// Handles the state of the links to the mobile routers. At the start the member assumes that they are
    /// connected. Returns whether the state has changed.
    pub fn handle_router_links(&mut self, now: Time, are_there: bool) -> bool {
        if !self.router_links.handle_link_change(now, are_there, &self.config) {
            return false;
        }
        if !are_there && self.leader_state.is_some() {
            self.next_presence_at = now + self.config.wait_while_cut_off;
        }
        self.decide_actions(now);
        true
    }

    /// Handles a comparison of this member's private key with that of the fleet. At the start the member
    /// assumes that they are equal.
    pub fn handle_key_comparison(&mut self, now: Time, is_of_fleet: bool) {
        if is_of_fleet != self.other_key_since.is_none() {
            self.other_key_since = (!is_of_fleet).then_some(now);
            self.decide_actions(now);
        }
    }

    /// Returns the value of a record of the home agent in the store, as far as this member knows; `None` if
    /// the store has no such record.
    pub fn stored_record(&self, key: &str) -> Option<&str> {
        self.stored_records.get(key).map(String::as_str)
    }

    /// Handles an unexpected end of the home agent. The member gives up the leadership and does not take it
    /// for a while.
    pub fn handle_agent_ended(&mut self, now: Time) {
        if self.agent_state == AgentState::Stopped {
            return;
        }
        self.agent_state = AgentState::Stopped;
        self.may_lead_from = now + self.config.pause_after_failure;
        let well = self.agent_works_since.take().map(|since| now.saturating_since(since));
        self.may_request_leadership_from = now + self.agent_failures.next_pause(well, &self.config);
        if let Some(hold) = &mut self.leader_state {
            hold.commits.clear();
            hold.leadership_passes_to = Some(None);
        }
        self.decide_actions(now);
    }

    /// Handles the end of a standby home agent. For a while after the last such end, this member neither
    /// takes the leadership nor asks for it.
    pub fn handle_standby_agent_ended(&mut self, now: Time) {
        self.may_lead_from = self.may_lead_from.max(now + self.config.pause_after_failure);
        self.decide_actions(now);
    }

    /// Gives the leadership to the named member, or to the first that takes it. The store has all commits
    /// before.
    pub fn give_up_leadership(&mut self, now: Time, to: Option<String>) {
        if let Some(hold) = &mut self.leader_state {
            hold.leadership_passes_to = Some(to);
        }
        self.may_lead_from = now + self.config.pause_after_failure;
        self.decide_actions(now);
    }

    /// Gives the leadership to the first member that takes it. This member ends and never leads again.
    pub fn retire_member(&mut self, now: Time) {
        self.is_retiring = true;
        self.give_up_leadership(now, None);
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`].
    pub fn next_timeout(&self) -> Time {
        let mut next = self.next_presence_at;
        let mut at = |time: Time| next = next.min(time);
        if let Some(flight) = &self.outstanding_transaction {
            at(flight.next_attempt_at);
        } else if let Some(hold) = &self.leader_state {
            at(hold.last_transaction_at + self.config.keep_alive_interval);
        } else if self.known_revision.is_some() && !self.is_retiring {
            at(self.may_take_leadership_at());
        }
        if let Some(hold) = &self.leader_state
            && self.agent_state == AgentState::Running
        {
            at(hold.lease_ends_at + self.config.grace_period);
        }
        if let AgentState::ForwardsUntil(end) = self.agent_state {
            at(end);
        }
        if self.announced_cut_off && self.other_key_since.is_none() {
            at(self.router_links.links_connected_from());
        }
        next
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.decide_actions(now);
    }

    fn handle_accepted_transaction(
        &mut self,
        now: Time,
        flight: OutstandingTransaction,
        revision: StoreRevision,
    ) {
        let until =
            flight.first_sent_at + self.config.lease_duration.saturating_sub(self.config.lease_margin);
        // Keep the newer owner: an event of a later change may have arrived before the outcome of this
        // transaction.
        if revision > self.owner_token.0 {
            self.owner_token = (revision, Some(flight.transaction.token.clone()));
            self.leader_changed_at = now;
        }
        if let TokenState::Free(_) = flight.transaction.token.state {
            self.leader_state = None;
            return;
        }
        let hold = self.leader_state.get_or_insert(LeaderState {
            owner_revision: revision,
            last_change_revision: revision,
            lease_ends_at: until,
            last_transaction_at: flight.first_sent_at,
            commits: VecDeque::new(),
            is_agent_working: false,
            // If the member was asked to end while its transaction was outstanding, it gives up the
            // leadership at once.
            leadership_passes_to: self.is_retiring.then_some(None),
        });
        hold.owner_revision = revision;
        if !flight.transaction.changes.is_empty() {
            hold.last_change_revision = revision;
        }
        hold.lease_ends_at = hold.lease_ends_at.max(until);
        self.outputs.extend(flight.completed_commit.map(Output::Committed));
    }

    /// Handles a refused transaction: another member has changed the leader's key.
    fn handle_refused_transaction(&mut self, now: Time, revision: StoreRevision, token: Option<LeaderToken>) {
        if revision > self.owner_token.0 {
            self.owner_token = (revision, token);
            self.leader_changed_at = now;
        }
        // If the store refuses although the key is unchanged, the member waits before the next attempt.
        self.may_lead_from = self.may_lead_from.max(now + self.config.keep_alive_interval);
        if self.leader_state.take().is_some() {
            let by = self.owner_token.1.as_ref().map_or("another program", |token| &token.member);
            self.stop_agent(format!("{by} has taken the leadership"));
        }
    }

    fn stop_agent(&mut self, why: String) {
        if self.agent_state != AgentState::Stopped {
            self.agent_state = AgentState::Stopped;
            self.outputs.push_back(Output::Stop(why));
        }
    }

    /// Returns the time from which this member may take the leadership.
    fn may_take_leadership_at(&self) -> Time {
        // A member that is cut off waits until all other members could have taken the leadership.
        let rank = self.config.rank_of(&self.config.own_member_name)
            + self.config.member_names.len() * self.takeover_delay_factor();
        let courtesy = self.config.keep_alive_interval / 2 * u32::try_from(rank).unwrap_or(u32::MAX);
        let silence = self.leader_changed_at + self.config.lease_duration + courtesy;
        let at = match &self.owner_token {
            (0, _) => self.leader_changed_at + courtesy,
            (_, Some(LeaderToken { state: TokenState::Free(Some(to)), .. }))
                if *to == self.config.own_member_name =>
            {
                self.leader_changed_at
            }
            (_, Some(LeaderToken { state: TokenState::Free(None), .. })) => self.leader_changed_at + courtesy,
            // A token that this version of carnet cannot read also shows that the leader is alive.
            _ => silence,
        };
        // A member that is cut off waits for a connected member that is present, but at most for the grace
        // period.
        let others = if self.announced_cut_off { self.other_members.connected_until() } else { Time::ZERO };
        let others = if self.other_key_since.is_some() { Time::MAX } else { others };
        at.max(others.min(at + self.config.grace_period)).max(self.may_lead_from)
    }

    /// Returns by how much the link state delays a takeover: 0 for connected links, 1 for links restored
    /// lately, 2 for lost links. Another key than that of the fleet counts as 3.
    fn takeover_delay_factor(&self) -> usize {
        if self.other_key_since.is_some() {
            3
        } else if !self.announced_cut_off {
            0
        } else if self.router_links.links_lost_since().is_none() {
            1
        } else {
            2
        }
    }

    /// Makes all decisions and outputs the resulting actions.
    fn decide_actions(&mut self, now: Time) {
        self.start_or_stop_agent(now);
        self.output_due_presence(now);
        if let Some(flight) = &mut self.outstanding_transaction {
            if now >= flight.next_attempt_at {
                flight.last_request = self.next_request_id;
                self.next_request_id += 1;
                flight.next_attempt_at = now + self.config.keep_alive_interval;
                self.outputs.push_back(Output::Transact(flight.last_request, flight.transaction.clone()));
            }
            return;
        }
        if self.leader_state.is_some() {
            self.decide_next_write(now);
        } else if self.known_revision.is_some() && !self.is_retiring && now >= self.may_take_leadership_at() {
            let (revision, _) = self.owner_token;
            self.send_transaction(now, revision, TokenState::Starting, Vec::new(), None);
        }
    }

    /// Outputs the presence of this member if it is due.
    fn output_due_presence(&mut self, now: Time) {
        let has_other_key = self.other_key_since.is_some();
        let cut_off = has_other_key || !self.router_links.are_links_connected(now);
        if std::mem::replace(&mut self.announced_cut_off, cut_off) != cut_off && self.leader_state.is_none() {
            self.next_presence_at = now;
        }
        if now < self.next_presence_at {
            return;
        }
        self.next_presence_at = now + PRESENCE_INTERVAL;
        let says = match &self.leader_state {
            None => {
                self.known_revision.is_some()
                    && now >= self.may_lead_from.max(self.may_request_leadership_from)
                    && !self.is_retiring
            }
            // A leader that is cut off writes its presence to ask the other members whether they are
            // connected.
            Some(hold) => {
                hold.leadership_passes_to.is_none()
                    && self.link_loss_counts_at().is_some_and(|end| now >= end)
            }
        };
        if says {
            self.last_presence_at = now;
            self.outputs.push_back(Output::WritePresence(
                MemberPresence { process: self.process_number, cut_off, has_other_key }.to_text(),
            ));
        }
    }

    /// Returns when this leader's lost links, or its private key that is not the fleet's, begin to count.
    /// Returns `None` if the links are connected, and the key is that of the fleet.
    fn link_loss_counts_at(&self) -> Option<Time> {
        let since = self.router_links.links_lost_since().into_iter().chain(self.other_key_since).min();
        since.map(|since| since + self.config.wait_while_cut_off)
    }

    /// Starts and stops the home agent.
    fn start_or_stop_agent(&mut self, now: Time) {
        if self.leader_state.is_some() && matches!(self.agent_state, AgentState::ForwardsUntil(_)) {
            // The home agent continued while another member led, so its records may be outdated.
            self.stop_agent("this member leads again, and the home agent's records may be outdated".into());
        }
        let writing = self
            .outstanding_transaction
            .as_ref()
            .is_some_and(|flight| !flight.transaction.changes.is_empty());
        match (&mut self.leader_state, self.agent_state) {
            (Some(hold), AgentState::Stopped)
                if hold.leadership_passes_to.is_none()
                    && now < hold.lease_ends_at
                    && !writing
                    && self.known_revision.is_some_and(|known| known >= hold.last_change_revision) =>
            {
                self.agent_state = AgentState::Running;
                self.outputs.push_back(Output::Start(self.stored_records.clone()));
            }
            (Some(hold), AgentState::Running) if now >= hold.lease_ends_at + self.config.grace_period => {
                hold.is_agent_working = false;
                hold.commits.clear();
                self.stop_agent("the store was unreachable for longer than the grace period".into());
            }
            (None, AgentState::Running) => {
                self.agent_state = AgentState::ForwardsUntil(now + self.config.grace_period)
            }
            (None, AgentState::ForwardsUntil(end)) => {
                let next_works = self.owner_token.1.as_ref().is_some_and(|token| {
                    token.state == TokenState::Working && token.process != self.process_number
                });
                if next_works {
                    self.stop_agent("another member is the leader now".into());
                } else if now >= end {
                    self.stop_agent("the member has given the leadership up".into());
                }
            }
            _ => {}
        }
    }

    /// Decides the next write of the leader.
    fn decide_next_write(&mut self, now: Time) {
        let lost = self.link_loss_counts_at();
        let to = match lost {
            Some(doubted) => self.other_members.connected_member(now, doubted, &self.config),
            None => self.other_members.preferred_member(now, &self.config),
        };
        let Some(hold) = &mut self.leader_state else { return };
        let idle = hold.is_agent_working && hold.commits.is_empty();
        if hold.leadership_passes_to.is_none()
            && (idle || lost.is_some())
            && let Some(to) = to
        {
            let why = match lost {
                Some(_) if self.other_key_since.is_some() => "has the private key of the fleet",
                Some(_) => "reaches its routers",
                None => "precedes this member in the list",
            };
            self.outputs.push_back(Output::Log(format!("gives the leadership to {to}, which {why}")));
            hold.leadership_passes_to = Some(Some(to));
        }
        let state = if hold.is_agent_working { TokenState::Working } else { TokenState::Starting };
        let revision = hold.owner_revision;
        if let Some((number, changes)) = hold.commits.front_mut() {
            let rest = changes.split_off(changes_per_transaction(changes));
            let piece = std::mem::replace(changes, rest);
            let completes = changes.is_empty().then_some(*number);
            if completes.is_some() {
                hold.commits.pop_front();
            }
            hold.last_transaction_at = now;
            self.send_transaction(now, revision, state, piece, completes);
        } else if let Some(to) = &hold.leadership_passes_to {
            let state = TokenState::Free(to.clone());
            // End the lease before the transaction leaves, because another member may take the leadership
            // before its outcome arrives here.
            hold.lease_ends_at = hold.lease_ends_at.min(now);
            self.send_transaction(now, revision, state, Vec::new(), None);
        } else if now >= hold.last_transaction_at + self.config.keep_alive_interval {
            hold.last_transaction_at = now;
            self.send_transaction(now, revision, state, Vec::new(), None);
        }
    }

    fn send_transaction(
        &mut self,
        now: Time,
        expected: StoreRevision,
        state: TokenState,
        changes: Vec<RecordChange>,
        completes: Option<u64>,
    ) {
        self.transaction_count += 1;
        let token = LeaderToken {
            member: self.config.own_member_name.clone(),
            process: self.process_number,
            count: self.transaction_count,
            state,
        };
        let transaction = StoreTransaction { expected_owner_revision: expected, token, changes };
        let id = self.next_request_id;
        self.next_request_id += 1;
        self.outputs.push_back(Output::Transact(id, transaction.clone()));
        self.outstanding_transaction = Some(OutstandingTransaction {
            last_request: id,
            first_request: id,
            transaction,
            first_sent_at: now,
            next_attempt_at: now + self.config.keep_alive_interval,
            completed_commit: completes,
        });
    }
}

/// Returns how many changes fit into one transaction: at least one, if there are changes.
fn changes_per_transaction(changes: &[RecordChange]) -> usize {
    let mut octets = 0;
    let fits = |(key, value): &&RecordChange| {
        octets += key.len() + value.as_ref().map_or(0, String::len);
        octets <= MAX_TRANSACTION_OCTETS
    };
    changes.iter().take(MAX_TRANSACTION_CHANGES).take_while(fits).count().max(changes.len().min(1))
}
