//! One member's view of a seat: whether it leads, when it takes the leadership, and which records of the home
//! agent are stored.
//!
//! **One chain.** The leader writes only by transactions that expect the revision of [`Key::Owner`] that its
//! own last transaction made. Each transaction changes the key, so the transactions take effect one after the
//! other and none twice. A member takes the leadership by such a transaction, too. From then on the store
//! refuses every late transaction of the former leader. Each stored change precedes the change of leader, so
//! the next leader has this change. This order does not depend on clocks and networks. An acknowledgement to
//! a mobile router waits for its transaction. So no acknowledged change is lost, and no two members
//! acknowledge for one seat.
//!
//! **One lease.** A leader without other changes writes its token each [`SeatConfig::beat`]. A member that
//! has seen no change of the token for [`SeatConfig::lease`] takes the leadership; its transaction expects
//! the revision that the member saw. If the member missed a change, the store refuses the transaction. The
//! leader's lease starts when it *sent* the last accepted transaction. This lease is shorter by
//! [`SeatConfig::margin`], because clocks run at different speeds. [`Seat::holds`] becomes false at the end
//! of the lease, before another member's lease can begin.
//!
//! Without the store no member acknowledges or takes over. The home agent continues to forward for
//! [`SeatConfig::patience`] and then stops. An unreachable store usually elects a new leader of its own; an
//! unseen takeover by another member is less likely.
//!
//! **Links.** A member that is cut off from its routers is useless as a leader, though it reaches the store.
//! So a member announces that it is cut off ([`Presence`]), and takes the leadership only if no connected
//! member does. A leader that is cut off gives the leadership to a connected member. It does so after
//! [`SeatConfig::doubt`] at the earliest, and only to a member that has since announced its connection. If a
//! gateway is down for all members, the leader stays. These rules only choose a candidate; the chain decides
//! who leads.
//!
//! When a leader gives up the leadership, the seat is free at once. The seat goes to the named member, or to
//! the first member that takes it. The home agent of the former leader forwards until the next one works, but
//! at most for [`SeatConfig::patience`]. Meanwhile this home agent acknowledges no Binding Update, so mobile
//! routers repeat their Binding Updates.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::Time;

use crate::config::SeatConfig;
use crate::links::Links;
use crate::others::Others;
use crate::retries::Retries;
use crate::store::{
    Change, Event, Key, Outcome, Presence, RequestId, Revision, Snapshot, Token, TokenState, Transaction,
};

/// Largest number of changes in one transaction. etcd permits 128 operations by default, and the token needs
/// one.
const MOST_CHANGES: usize = 100;
/// Largest size of keys and values in one transaction, octets. etcd accepts a request of 1.5 MiB by default.
/// A single change leaves in any size.
const MOST_OCTETS: usize = 1 << 20;
/// Interval at which a standby writes its presence.
const HELLO: Duration = Duration::from_secs(1);

/// Action that the runner must perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Read all keys of the seat and watch them from that revision on. The runner calls
    /// [`Seat::handle_snapshot`], then [`Seat::handle_events`], and ends earlier watches.
    Follow,
    /// Send a transaction; the runner calls [`Seat::handle_outcome`] with the result.
    Transact(RequestId, Transaction),
    /// Write this value to the member's own key, without comparison and without waiting for an answer.
    Hello(String),
    /// Start the home agent with these records; the runner calls [`Seat::handle_working`] when the home agent
    /// works.
    Start(BTreeMap<String, String>),
    /// Stop the home agent for this reason.
    Stop(String),
    /// The store has accepted the commit with this number.
    Written(u64),
    /// Write this text to the log.
    Note(String),
}

/// Present role of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The member has no state of the store yet, or has lost the store.
    Blind,
    /// The member is a standby.
    Waiting,
    /// The member leads.
    Owner,
    /// The member has given up the seat, and its home agent forwards until the next one works.
    Leaving,
}

/// A transaction whose outcome is not known yet.
#[derive(Debug)]
struct Flight {
    /// Number of the last attempt.
    id: RequestId,
    /// Number of the first attempt.
    first: RequestId,
    transaction: Transaction,
    /// Time of the first attempt. A later attempt may find that the first has succeeded.
    sent: Time,
    /// Time of the next attempt.
    again: Time,
    /// Number of the commit that this transaction completes.
    completes: Option<u64>,
}

/// Additional state of the leader.
#[derive(Debug)]
struct Hold {
    /// Revision of [`Key::Owner`] after the member's last transaction.
    revision: Revision,
    /// Revision of the last transaction that took the seat or changed records.
    written: Revision,
    /// End of the lease.
    until: Time,
    /// Time of the last transaction.
    beaten: Time,
    /// Waiting commits, each with the changed records.
    commits: VecDeque<(u64, Vec<Change>)>,
    working: bool,
    /// Whether the member gives up the seat, and to which member.
    leaving: Option<Option<String>>,
}

/// State of the home agent of this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Agent {
    Stopped,
    Runs,
    /// The home agent forwards until this time.
    Until(Time),
}

/// State of one member for one seat.
#[derive(Debug)]
pub struct Seat {
    config: SeatConfig,
    process: u64,
    count: u64,
    next_request: RequestId,
    records: BTreeMap<String, String>,
    /// Revision of the store up to which `records` and `owner` are known.
    known: Option<Revision>,
    /// Revision and token of the owner's key, as last seen.
    owner: (Revision, Option<Token>),
    /// Time at which the owner's key last changed.
    heard: Time,
    others: Others,
    links: Links,
    /// Link state that the member has last announced.
    cut_off: bool,
    /// Time of the next presence.
    hello: Time,
    /// Time of the last presence.
    greeted: Time,
    hold: Option<Hold>,
    flight: Option<Flight>,
    agent: Agent,
    /// Time from which this member may take the seat again.
    rested: Time,
    /// Time from which this member may ask for the seat again.
    shy: Time,
    /// Failures of the home agent.
    failures: Retries,
    /// Time since which the home agent works.
    works: Option<Time>,
    /// Whether this member ends and never leads again.
    retired: bool,
    outputs: VecDeque<Output>,
}

impl Seat {
    /// Creates the state of a member at its start. `process` is a number that no other process ever has, such
    /// as 64 random bits.
    pub fn new(config: SeatConfig, process: u64, now: Time) -> Seat {
        Seat {
            config,
            process,
            count: 0,
            next_request: 1,
            records: BTreeMap::new(),
            known: None,
            owner: (0, None),
            heard: now,
            others: Others::default(),
            links: Links::new(now),
            cut_off: false,
            hello: now,
            greeted: Time::ZERO,
            hold: None,
            flight: None,
            agent: Agent::Stopped,
            rested: now,
            shy: now,
            failures: Retries::default(),
            works: None,
            retired: false,
            outputs: VecDeque::from([Output::Follow]),
        }
    }

    /// Returns the next action.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the role of this member.
    pub fn role(&self) -> Role {
        match (&self.hold, self.known) {
            (Some(hold), _) if hold.leaving.is_none() => Role::Owner,
            _ if self.agent != Agent::Stopped => Role::Leaving,
            (_, Some(_)) => Role::Waiting,
            (_, None) => Role::Blind,
        }
    }

    /// Returns whether this member leads and its lease lasts. No other member's lease lasts at the same time.
    pub fn holds(&self, now: Time) -> bool {
        self.hold.as_ref().is_some_and(|hold| now < hold.until)
    }

    /// Returns the name of the leader, as far as this member knows.
    pub fn owner(&self) -> Option<&str> {
        let token = self.owner.1.as_ref()?;
        (!matches!(token.state, TokenState::Free(_))).then_some(token.member.as_str())
    }

    /// Handles the whole content of the store for this seat.
    pub fn handle_snapshot(&mut self, now: Time, snapshot: Snapshot) {
        self.records.clear();
        self.others = Others::default();
        let mut owner = (snapshot.owner, None);
        for (key, value) in snapshot.values {
            match key {
                Key::Owner => owner.1 = Token::of(&value),
                Key::Record(key) => drop(self.records.insert(key, value)),
                // The next presence shows whether the member is still there.
                Key::Member(_) => {}
            }
        }
        // Without a leader, all members wait from now on, the first of the list for the shortest time.
        if owner.0 != self.owner.0 || owner.0 == 0 {
            self.heard = now;
        }
        self.owner = owner;
        self.known = Some(snapshot.revision);
        self.look(now);
    }

    /// Handles the changes of one revision of the store; all earlier revisions have been handled.
    pub fn handle_events(&mut self, now: Time, revision: Revision, events: Vec<Event>) {
        // Ignore events that are older than the snapshot.
        if self.known.is_none_or(|known| revision <= known) {
            return;
        }
        for event in events {
            match (event.key, event.value) {
                // The answer to the member's own transaction may have arrived before this event.
                (Key::Owner, _) if revision < self.owner.0 => {}
                (Key::Owner, value) => {
                    self.owner =
                        (if value.is_some() { revision } else { 0 }, value.as_deref().and_then(Token::of));
                    self.heard = now;
                    // The leader is not a standby, so remove it from the standbys. After a failure it must be
                    // present again for the settling time.
                    if let Some(token) = &self.owner.1 {
                        self.others.forget(&token.member);
                    }
                }
                (Key::Record(key), Some(value)) => drop(self.records.insert(key, value)),
                (Key::Record(key), None) => drop(self.records.remove(&key)),
                (Key::Member(name), Some(value))
                    if name != self.config.member && self.config.members.contains(&name) =>
                {
                    let cut_off = Presence::of(&value).cut_off;
                    if self.owner() != Some(&name) {
                        self.others.hear(now, name, cut_off);
                    } else if cut_off {
                        // The leader is cut off and asks for a connected member. A member that has just
                        // written its presence answers with the next one.
                        self.hello = self.hello.min(now.max(self.greeted + self.config.beat));
                    }
                }
                (Key::Member(_), _) => {}
            }
        }
        self.known = Some(revision);
        self.look(now);
    }

    /// Handles the loss of the watch of the store.
    pub fn handle_lost(&mut self, _now: Time) {
        self.known = None;
        self.outputs.push_back(Output::Follow);
    }

    /// Handles the outcome of a transaction.
    pub fn handle_outcome(&mut self, now: Time, id: RequestId, outcome: Outcome) {
        let Some(flight) = self.flight.take_if(|flight| (flight.first..=flight.id).contains(&id)) else {
            return;
        };
        match outcome {
            Outcome::Done(revision) => self.done(now, flight, revision),
            // The token is that of an earlier attempt whose outcome was unknown.
            Outcome::Refused(revision, Some(token)) if token == flight.transaction.token => {
                self.done(now, flight, revision);
            }
            Outcome::Refused(revision, token) => self.refused(now, revision, token),
            Outcome::Unknown => self.flight = Some(flight),
        }
        self.look(now);
    }

    /// Handles changes of the home agent's records. The store has accepted all of them when
    /// [`Output::Written`] names this number.
    pub fn commit(&mut self, now: Time, number: u64, changes: Vec<Change>) {
        // A member that has lost or gives up the leadership writes no more changes; the store never gets the
        // waiting changes.
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.leaving.is_none()) {
            hold.commits.push_back((number, changes));
        }
        self.look(now);
    }

    /// Handles the report that the home agent works.
    pub fn handle_working(&mut self, now: Time) {
        if let Some(hold) = &mut self.hold {
            hold.working = true;
            hold.beaten = Time::ZERO;
            self.works = Some(now);
        }
        self.look(now);
    }

    /// Handles the state of the links to the routers, which the member assumes to be connected at the start.
    /// Returns whether the state has changed.
    pub fn handle_links(&mut self, now: Time, are_there: bool) -> bool {
        if !self.links.change(now, are_there, &self.config) {
            return false;
        }
        if !are_there && self.hold.is_some() {
            self.hello = now + self.config.doubt;
        }
        self.look(now);
        true
    }

    /// Handles the end of the home agent by itself. The member gives up the seat and does not take it for a
    /// while.
    pub fn handle_ended(&mut self, now: Time) {
        if self.agent == Agent::Stopped {
            return;
        }
        self.agent = Agent::Stopped;
        self.rested = now + self.config.rest;
        let well = self.works.take().map(|since| now.saturating_since(since));
        self.shy = now + self.failures.pause(well, &self.config);
        if let Some(hold) = &mut self.hold {
            hold.commits.clear();
            hold.leaving = Some(None);
        }
        self.look(now);
    }

    /// Handles the end of a standby home agent. For a while after the last such end, this member neither
    /// takes the leadership nor asks for it.
    pub fn handle_unready(&mut self, now: Time) {
        self.rested = self.rested.max(now + self.config.rest);
        self.look(now);
    }

    /// Gives the leadership to the named member, or to the first that takes it. All committed changes are
    /// stored before.
    pub fn give_up(&mut self, now: Time, to: Option<String>) {
        if let Some(hold) = &mut self.hold {
            hold.leaving = Some(to);
        }
        self.rested = now + self.config.rest;
        self.look(now);
    }

    /// Gives the leadership to the first member that takes it, and never takes it again: this member ends.
    pub fn retire(&mut self, now: Time) {
        self.retired = true;
        self.give_up(now, None);
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`].
    pub fn next_timeout(&self) -> Time {
        let mut next = self.hello;
        let mut at = |time: Time| next = next.min(time);
        if let Some(flight) = &self.flight {
            at(flight.again);
        } else if let Some(hold) = &self.hold {
            at(hold.beaten + self.config.beat);
        } else if self.known.is_some() && !self.retired {
            at(self.free_at());
        }
        if let Some(hold) = &self.hold
            && self.agent == Agent::Runs
        {
            at(hold.until + self.config.patience);
        }
        if let Agent::Until(end) = self.agent {
            at(end);
        }
        if self.cut_off {
            at(self.links.sound_from());
        }
        next
    }

    /// Serves the timers.
    pub fn handle_timeout(&mut self, now: Time) {
        self.look(now);
    }

    fn done(&mut self, now: Time, flight: Flight, revision: Revision) {
        let until = flight.sent + self.config.lease.saturating_sub(self.config.margin);
        // The member may already have seen later changes.
        if revision > self.owner.0 {
            self.owner = (revision, Some(flight.transaction.token.clone()));
            self.heard = now;
        }
        if let TokenState::Free(_) = flight.transaction.token.state {
            self.hold = None;
            return;
        }
        let hold = self.hold.get_or_insert(Hold {
            revision,
            written: revision,
            until,
            beaten: flight.sent,
            commits: VecDeque::new(),
            working: false,
            // If the member was told to end while it took the seat, give the seat up at once.
            leaving: self.retired.then_some(None),
        });
        hold.revision = revision;
        if !flight.transaction.changes.is_empty() {
            hold.written = revision;
        }
        hold.until = hold.until.max(until);
        self.outputs.extend(flight.completes.map(Output::Written));
    }

    /// Handles a refused transaction: the owner's key has changed without this member.
    fn refused(&mut self, now: Time, revision: Revision, token: Option<Token>) {
        if revision > self.owner.0 {
            self.owner = (revision, token);
            self.heard = now;
        }
        // If a store refuses without reason, wait before the next attempt.
        self.rested = self.rested.max(now + self.config.beat);
        if self.hold.take().is_some() {
            let by = self.owner.1.as_ref().map_or("something else", |token| &token.member);
            self.stop(format!("the seat has been taken by {by}"));
        }
    }

    fn stop(&mut self, why: String) {
        if self.agent != Agent::Stopped {
            self.agent = Agent::Stopped;
            self.outputs.push_back(Output::Stop(why));
        }
    }

    /// Returns the time from which this member may take the seat.
    fn free_at(&self) -> Time {
        // A member that is cut off waits until all other members could have tried.
        let rank = self.config.rank_of(&self.config.member) + self.config.members.len() * self.grade();
        let courtesy = self.config.beat / 2 * u32::try_from(rank).unwrap_or(u32::MAX);
        let silence = self.heard + self.config.lease + courtesy;
        let at = match &self.owner {
            (0, _) => self.heard + courtesy,
            (_, Some(Token { state: TokenState::Free(Some(to)), .. })) if *to == self.config.member => {
                self.heard
            }
            (_, Some(Token { state: TokenState::Free(None), .. })) => self.heard + courtesy,
            // An unknown token of a later version also counts as a sign of life.
            _ => silence,
        };
        // While a connected member is present, a member that is cut off waits for it, but at most for
        // `patience`.
        let others = if self.cut_off { self.others.connected_until() } else { Time::ZERO };
        at.max(others.min(at + self.config.patience)).max(self.rested)
    }

    /// Returns a penalty by link state: 0 for connected, 1 for recently restored, 2 for lost links.
    fn grade(&self) -> usize {
        if !self.cut_off {
            0
        } else if self.links.lost().is_none() {
            1
        } else {
            2
        }
    }

    /// Makes all decisions and outputs the resulting actions.
    fn look(&mut self, now: Time) {
        self.look_at_agent(now);
        self.look_at_links(now);
        if let Some(flight) = &mut self.flight {
            if now >= flight.again {
                flight.id = self.next_request;
                self.next_request += 1;
                flight.again = now + self.config.beat;
                self.outputs.push_back(Output::Transact(flight.id, flight.transaction.clone()));
            }
            return;
        }
        if self.hold.is_some() {
            self.go_on(now);
        } else if self.known.is_some() && !self.retired && now >= self.free_at() {
            let (revision, _) = self.owner;
            self.transact(now, revision, TokenState::Starting, Vec::new(), None);
        }
    }

    /// Outputs the presence of this member if it is due.
    fn look_at_links(&mut self, now: Time) {
        let cut_off = !self.links.are_sound(now);
        if std::mem::replace(&mut self.cut_off, cut_off) != cut_off && self.hold.is_none() {
            self.hello = now;
        }
        if now < self.hello {
            return;
        }
        self.hello = now + HELLO;
        let says = match &self.hold {
            None => self.known.is_some() && now >= self.rested.max(self.shy) && !self.retired,
            // A leader asks the other members by its presence.
            Some(hold) => hold.leaving.is_none() && self.doubted().is_some_and(|end| now >= end),
        };
        if says {
            self.greeted = now;
            self.outputs.push_back(Output::Hello(Presence { process: self.process, cut_off }.to_text()));
        }
    }

    /// Returns the time from which this member's links count as lost beyond doubt.
    fn doubted(&self) -> Option<Time> {
        self.links.lost().map(|lost| lost + self.config.doubt)
    }

    /// Starts and stops the home agent.
    fn look_at_agent(&mut self, now: Time) {
        if self.hold.is_some() && matches!(self.agent, Agent::Until(_)) {
            // The home agent ran on without the seat, so its records may be out of date.
            self.stop("the seat has come back".into());
        }
        let writing = self.flight.as_ref().is_some_and(|flight| !flight.transaction.changes.is_empty());
        match (&mut self.hold, self.agent) {
            (Some(hold), Agent::Stopped)
                if hold.leaving.is_none()
                    && now < hold.until
                    && !writing
                    && self.known.is_some_and(|known| known >= hold.written) =>
            {
                self.agent = Agent::Runs;
                self.outputs.push_back(Output::Start(self.records.clone()));
            }
            (Some(hold), Agent::Runs) if now >= hold.until + self.config.patience => {
                hold.working = false;
                hold.commits.clear();
                self.stop("the store has not been reached for too long".into());
            }
            (None, Agent::Runs) => self.agent = Agent::Until(now + self.config.patience),
            (None, Agent::Until(end)) => {
                let next_works =
                    self.owner.1.as_ref().is_some_and(|token| {
                        token.state == TokenState::Working && token.process != self.process
                    });
                if next_works {
                    self.stop("another member has the seat now".into());
                } else if now >= end {
                    self.stop("the seat has been given up".into());
                }
            }
            _ => {}
        }
    }

    /// Decides the next write of the leader.
    fn go_on(&mut self, now: Time) {
        let lost = self.doubted();
        let to = match lost {
            Some(doubted) => self.others.connected(now, doubted, &self.config),
            None => self.others.better(now, &self.config),
        };
        let Some(hold) = &mut self.hold else { return };
        let idle = hold.working && hold.commits.is_empty();
        if hold.leaving.is_none()
            && (idle || lost.is_some())
            && let Some(to) = to
        {
            let why = if lost.is_some() { "reaches its routers" } else { "is to have it" };
            self.outputs.push_back(Output::Note(format!("gives it to {to}, which {why}")));
            hold.leaving = Some(Some(to));
        }
        let state = if hold.working { TokenState::Working } else { TokenState::Starting };
        let revision = hold.revision;
        if let Some((number, changes)) = hold.commits.front_mut() {
            let rest = changes.split_off(as_many_as_fit(changes));
            let piece = std::mem::replace(changes, rest);
            let completes = changes.is_empty().then_some(*number);
            if completes.is_some() {
                hold.commits.pop_front();
            }
            hold.beaten = now;
            self.transact(now, revision, state, piece, completes);
        } else if let Some(to) = &hold.leaving {
            let state = TokenState::Free(to.clone());
            // Another member may take the seat before this member learns that the seat was free.
            hold.until = hold.until.min(now);
            self.transact(now, revision, state, Vec::new(), None);
        } else if now >= hold.beaten + self.config.beat {
            hold.beaten = now;
            self.transact(now, revision, state, Vec::new(), None);
        }
    }

    fn transact(
        &mut self,
        now: Time,
        expected: Revision,
        state: TokenState,
        changes: Vec<Change>,
        completes: Option<u64>,
    ) {
        self.count += 1;
        let token =
            Token { member: self.config.member.clone(), process: self.process, count: self.count, state };
        let transaction = Transaction { expected, token, changes };
        let id = self.next_request;
        self.next_request += 1;
        self.outputs.push_back(Output::Transact(id, transaction.clone()));
        self.flight =
            Some(Flight { id, first: id, transaction, sent: now, again: now + self.config.beat, completes });
    }
}

/// Returns the number of changes that fit one transaction: at least one, if there is any.
fn as_many_as_fit(changes: &[Change]) -> usize {
    let mut octets = 0;
    let fits = |(key, value): &&Change| {
        octets += key.len() + value.as_ref().map_or(0, String::len);
        octets <= MOST_OCTETS
    };
    changes.iter().take(MOST_CHANGES).take_while(fits).count().max(changes.len().min(1))
}
