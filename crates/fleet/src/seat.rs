//! One member's view of a seat: whether it leads, when it takes the leadership, and which records of the home
//! agent are stored.
//!
//! **One chain.** The leader writes only by transactions that expect [`Key::Owner`] as its own last one left
//! it. Each transaction changes the key, so they take effect one after the other and none twice. A member
//! takes the leadership by such a transaction, too. From then on the store refuses every late transaction of
//! the former leader. Each stored change precedes the change of leader, so the next leader has it. That holds
//! whatever clocks and networks do. An acknowledgement to a mobile router waits for its transaction. So no
//! acknowledged change is lost, and no two members acknowledge for one seat.
//!
//! **One lease.** A leader that writes nothing else writes its token each [`SeatConfig::beat`]. A member that
//! has seen no change of it for [`SeatConfig::lease`] takes the leadership and expects the key as it saw it.
//! If it missed a change, the store refuses. The leader's lease starts when it *sent* what the store has
//! accepted. It is shorter by [`SeatConfig::margin`], because clocks run at different speeds. At its end
//! [`Seat::holds`] ends, before another member's lease can begin.
//!
//! Without the store no member acknowledges or takes over. The home agent continues to forward for
//! [`SeatConfig::patience`] and then stops. It is more likely that the store elects a new leader than that an
//! unseen member has taken over.
//!
//! **Links.** A member that is cut off from its routers is useless as a leader, though it reaches the store.
//! So it announces that ([`Presence`]), and takes the leadership only if no connected member does. A leader
//! that is cut off gives it to a connected member. It does so after [`SeatConfig::doubt`] at the earliest,
//! and only to a member that has since announced its connection. If a gateway is down for all members, the
//! leader stays. None of this decides who leads: the chain does.
//!
//! A leadership that is given up is free at once. It goes to the named member or to the first that takes it.
//! The home agent of the former leader forwards until the next one works, but at most for
//! [`SeatConfig::patience`]. It acknowledges nothing meanwhile, so mobile routers repeat their Binding
//! Updates.

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

/// Changes in one transaction; etcd takes 128 by default, and one is the owner's key.
const MOST_CHANGES: usize = 100;
/// Octets of their keys and values; etcd takes a request of 1.5 MiB by default. A single change is sent
/// however long it is.
const MOST_OCTETS: usize = 1 << 20;
/// How often a member that waits says so.
const HELLO: Duration = Duration::from_secs(1);

/// Action that the runner shall perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Read all keys of the seat and watch them from that revision: [`Seat::handle_snapshot`], then
    /// [`Seat::handle_events`]. The runner ends earlier watches.
    Follow,
    /// Send a transaction; [`Seat::handle_outcome`] tells what became of it.
    Transact(RequestId, Transaction),
    /// Say to the store how this member is: its key and this value, without comparison or answer.
    Hello(String),
    /// Start the home agent with these records. [`Seat::handle_working`] tells when it works.
    Start(BTreeMap<String, String>),
    /// Stop it: why.
    Stop(String),
    /// A commit of the home agent's is stored.
    Written(u64),
    /// Something for the log.
    Note(String),
}

/// Present role of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It knows nothing yet, or has lost the store.
    Blind,
    /// It follows what another does, or waits for the seat.
    Waiting,
    /// It has the seat.
    Owner,
    /// It has given the seat up, and its home agent forwards until the next one works.
    Leaving,
}

/// A transaction under way.
#[derive(Debug)]
struct Flight {
    /// Of the last attempt.
    id: RequestId,
    /// Of the first.
    first: RequestId,
    transaction: Transaction,
    /// When it was sent first. A later attempt may find that the first has been made.
    sent: Time,
    /// When it is sent again.
    again: Time,
    /// The commit that is whole with it.
    completes: Option<u64>,
}

/// Additional state of the leader.
#[derive(Debug)]
struct Hold {
    /// Of [`Key::Owner`], as our last transaction left it.
    revision: Revision,
    /// Of the last one that took the seat or changed records.
    written: Revision,
    /// When the lease ends.
    until: Time,
    /// When the last transaction was sent.
    beaten: Time,
    /// Commits that wait, with the records that change.
    commits: VecDeque<(u64, Vec<Change>)>,
    working: bool,
    /// Whether the seat is being given up, and to whom.
    leaving: Option<Option<String>>,
}

/// How the home agent of this member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Agent {
    Stopped,
    Runs,
    /// It forwards until then.
    Until(Time),
}

/// See the module.
#[derive(Debug)]
pub struct Seat {
    config: SeatConfig,
    process: u64,
    count: u64,
    next_request: RequestId,
    records: BTreeMap<String, String>,
    /// The store's revision up to which `records` and `owner` are known.
    known: Option<Revision>,
    /// The owner's key as it was last seen.
    owner: (Revision, Option<Token>),
    /// When it was seen to change.
    heard: Time,
    others: Others,
    links: Links,
    /// Link state that the member has announced last.
    cut_off: bool,
    /// When it is said next how this member is.
    hello: Time,
    /// When it was said last.
    greeted: Time,
    hold: Option<Hold>,
    flight: Option<Flight>,
    agent: Agent,
    /// When this member may take the seat again.
    rested: Time,
    /// When it may ask for it again.
    shy: Time,
    /// How often its home agent has failed.
    failures: Retries,
    /// Since when it works.
    works: Option<Time>,
    /// Whether it never will.
    retired: bool,
    outputs: VecDeque<Output>,
}

impl Seat {
    /// A member that begins. `process` is a number that no other process ever had or will have, as of 64
    /// random bits.
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

    /// Whether this member has the seat, and its lease lasts: no other has one then.
    pub fn holds(&self, now: Time) -> bool {
        self.hold.as_ref().is_some_and(|hold| now < hold.until)
    }

    /// Returns the leader, as far as this member knows.
    pub fn owner(&self) -> Option<&str> {
        let token = self.owner.1.as_ref()?;
        (!matches!(token.state, TokenState::Free(_))).then_some(token.member.as_str())
    }

    /// Takes all that the store has.
    pub fn handle_snapshot(&mut self, now: Time, snapshot: Snapshot) {
        self.records.clear();
        self.others = Others::default();
        let mut owner = (snapshot.owner, None);
        for (key, value) in snapshot.values {
            match key {
                Key::Owner => owner.1 = Token::of(&value),
                Key::Record(key) => drop(self.records.insert(key, value)),
                // Whether it is there still its next one tells.
                Key::Member(_) => {}
            }
        }
        // Without a leader all members begin now, the first of the list before the others.
        if owner.0 != self.owner.0 || owner.0 == 0 {
            self.heard = now;
        }
        self.owner = owner;
        self.known = Some(snapshot.revision);
        self.look(now);
    }

    /// Takes what the store has changed in one revision, after all before it.
    pub fn handle_events(&mut self, now: Time, revision: Revision, events: Vec<Event>) {
        // Events from before a snapshot are late.
        if self.known.is_none_or(|known| revision <= known) {
            return;
        }
        for event in events {
            match (event.key, event.value) {
                // The answer to a transaction may have been faster.
                (Key::Owner, _) if revision < self.owner.0 => {}
                (Key::Owner, value) => {
                    self.owner =
                        (if value.is_some() { revision } else { 0 }, value.as_deref().and_then(Token::of));
                    self.heard = now;
                    // The leader is no standby, so it is forgotten here. If it fails, its time of settling
                    // begins anew.
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
                        // The leader is cut off and asks for a member that is not. A member that has just
                        // written answers with its next entry.
                        self.hello = self.hello.min(now.max(self.greeted + self.config.beat));
                    }
                }
                (Key::Member(_), _) => {}
            }
        }
        self.known = Some(revision);
        self.look(now);
    }

    /// Takes note that the store is no longer watched.
    pub fn handle_lost(&mut self, _now: Time) {
        self.known = None;
        self.outputs.push_back(Output::Follow);
    }

    /// Takes note of what became of a transaction.
    pub fn handle_outcome(&mut self, now: Time, id: RequestId, outcome: Outcome) {
        let Some(flight) = self.flight.take_if(|flight| (flight.first..=flight.id).contains(&id)) else {
            return;
        };
        match outcome {
            Outcome::Done(revision) => self.done(now, flight, revision),
            // The token of an earlier attempt with an unknown result.
            Outcome::Refused(revision, Some(token)) if token == flight.transaction.token => {
                self.done(now, flight, revision);
            }
            Outcome::Refused(revision, token) => self.refused(now, revision, token),
            Outcome::Unknown => self.flight = Some(flight),
        }
        self.look(now);
    }

    /// Takes changes of the home agent's records, all of which are stored when [`Output::Written`] names this
    /// number.
    pub fn commit(&mut self, now: Time, number: u64, changes: Vec<Change>) {
        // A member that has lost the leadership or gives it up writes nothing more. Changes that wait for it
        // are never stored.
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.leaving.is_none()) {
            hold.commits.push_back((number, changes));
        }
        self.look(now);
    }

    /// Takes note that the home agent works.
    pub fn handle_working(&mut self, now: Time) {
        if let Some(hold) = &mut self.hold {
            hold.working = true;
            hold.beaten = Time::ZERO;
            self.works = Some(now);
        }
        self.look(now);
    }

    /// Takes note whether this member is connected to its routers: at first it is thought to be.
    /// Says whether that is news.
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

    /// Takes note that the home agent has ended by itself. The seat is given up, and not taken for a while.
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

    /// When [`Self::handle_timeout`] has something to do.
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

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Time) {
        self.look(now);
    }

    fn done(&mut self, now: Time, flight: Flight, revision: Revision) {
        let until = flight.sent + self.config.lease.saturating_sub(self.config.margin);
        // The member may have seen later changes already.
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
            // It was being taken when this member was told to end.
            leaving: self.retired.then_some(None),
        });
        hold.revision = revision;
        if !flight.transaction.changes.is_empty() {
            hold.written = revision;
        }
        hold.until = hold.until.max(until);
        self.outputs.extend(flight.completes.map(Output::Written));
    }

    /// The chain has gone on without us.
    fn refused(&mut self, now: Time, revision: Revision, token: Option<Token>) {
        if revision > self.owner.0 {
            self.owner = (revision, token);
            self.heard = now;
        }
        // A store that refuses what it should not is not asked again at once.
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

    /// When this member may take the seat.
    fn free_at(&self) -> Time {
        // A member that is cut off lets all others try first.
        let rank = self.config.rank_of(&self.config.member) + self.config.members.len() * self.grade();
        let courtesy = self.config.beat / 2 * u32::try_from(rank).unwrap_or(u32::MAX);
        let silence = self.heard + self.config.lease + courtesy;
        let at = match &self.owner {
            (0, _) => self.heard + courtesy,
            (_, Some(Token { state: TokenState::Free(Some(to)), .. })) if *to == self.config.member => {
                self.heard
            }
            (_, Some(Token { state: TokenState::Free(None), .. })) => self.heard + courtesy,
            // Also of a token that a later version wrote: it may be a sign of life.
            _ => silence,
        };
        // It does not come at all while there is one that is not cut off, unless that one does not come,
        // either.
        let others = if self.cut_off { self.others.connected_until() } else { Time::ZERO };
        at.max(others.min(at + self.config.patience)).max(self.rested)
    }

    /// How little use this member is for routers.
    fn grade(&self) -> usize {
        if !self.cut_off {
            0
        } else if self.links.lost().is_none() {
            1
        } else {
            2
        }
    }

    /// Does what there is to do: the one place where something is decided.
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

    /// Says how this member is.
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
            // By this it asks the others.
            Some(hold) => hold.leaving.is_none() && self.doubted().is_some_and(|end| now >= end),
        };
        if says {
            self.greeted = now;
            self.outputs.push_back(Output::Hello(Presence { process: self.process, cut_off }.to_text()));
        }
    }

    /// Since when it is beyond doubt that this member's links are lost.
    fn doubted(&self) -> Option<Time> {
        self.links.lost().map(|lost| lost + self.config.doubt)
    }

    /// Starts and stops the home agent.
    fn look_at_agent(&mut self, now: Time) {
        if self.hold.is_some() && matches!(self.agent, Agent::Until(_)) {
            // The records of this home agent may be out of date.
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
            // Another may have it before we know that it could.
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

/// How many of these go in one transaction: at least one, if there is one.
fn as_many_as_fit(changes: &[Change]) -> usize {
    let mut octets = 0;
    let fits = |(key, value): &&Change| {
        octets += key.len() + value.as_ref().map_or(0, String::len);
        octets <= MOST_OCTETS
    };
    changes.iter().take(MOST_CHANGES).take_while(fits).count().max(changes.len().min(1))
}
