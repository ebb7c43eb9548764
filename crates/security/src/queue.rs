//! Messages before verification: a bounded queue that is fair between senders.
//!
//! Verification costs a thousand times what reading does, so that who floods a channel aims at it. Here only
//! as many messages wait as the operator lets, and the queue decides who goes first and who goes.
//!
//! *The true sender* is unknown before verification: a forger writes any link-layer address into a frame, and
//! the name of any certificate into a message. So the queue only compares a message's claims with messages
//! that were verified before ([`Sender`]):
//!
//! | class | who | one of them is | share |
//! |---|---|---|---|
//! | neighbours | the name of a known ticket, from the link-layer address that its own packets come from | a ticket | 1/2 |
//! | relayed | the name of a known ticket, from elsewhere | one of 64 groups of addresses | 1/4 |
//! | strangers | a ticket that would have to be verified as well | one of 64 groups of addresses | 1/4 |
//!
//! A ticket is one sender, whatever link-layer addresses its holder uses. A forger gets into a neighbour's
//! turn only with that neighbour's name and address together, and then takes only that neighbour's share.
//! With invented names and addresses the forger is one of the unknown senders.
//!
//! *Order.* The classes take turns by their shares, and so do the senders of a class (start-time fair
//! queueing). A sender's `next` says how often it was served, and the least goes first; a returning sender
//! begins at the value of the others. Classes and senders use what others leave. A warning for this area goes
//! before one from afar, and that before a position. This order always holds among the messages of one
//! sender. Before those of other senders of the class it holds as if these had been served more often
//! ([`Rank::head_start`]). A sender that always uses its head start has used it up.
//!
//! *Overflow.* If the queue is full, it drops a message of the class that is furthest above its share. There
//! it takes the sender with the most waiting messages. Of these it drops the least important, and of equals
//! the oldest, because a later CAM is worth more than an earlier one. So no sender loses a message to one
//! with more waiting.
//!
//! Left out: telling forged messages of a neighbour's name and address from true ones, which takes the
//! verification.

use std::cmp::Reverse;
use std::collections::VecDeque;

use carnet_base::Time;
use carnet_geonet::MacAddress;

use crate::ids::HashedId8;

/// How much a message counts; the first is the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// For the area in which this station is.
    AreaHere,
    /// Other packets over several hops.
    MultiHop,
    /// Of a neighbour: CAM and whatever else goes a single hop.
    SingleHop,
    /// GeoNetworking's own: beacons, Location Service.
    Management,
}

impl Rank {
    /// How many messages of each other sender a message goes before, at most.
    pub const fn head_start(self) -> u64 {
        match self {
            Rank::AreaHere => LONGEST_HEAD_START,
            Rank::MultiHop => 8,
            Rank::SingleHop => 4,
            Rank::Management => 0,
        }
    }
}

const LONGEST_HEAD_START: u64 = 16;

/// Sender of a message, as far as it is known before verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The holder of this ticket, with the link-layer address that belongs to the ticket.
    Neighbour(HashedId8),
    /// Says that it is of a ticket that is known, but comes from this address.
    Relayed(MacAddress),
    /// Of a ticket that is not known, from this address.
    Stranger(MacAddress),
}

impl Sender {
    const fn class(self) -> usize {
        match self {
            Sender::Neighbour(_) => 0,
            Sender::Relayed(_) => 1,
            Sender::Stranger(_) => 2,
        }
    }

    /// Which turn it has in its class.
    fn turn(self) -> u64 {
        match self {
            Sender::Neighbour(HashedId8(name)) => u64::from_be_bytes(name),
            Sender::Relayed(address) | Sender::Stranger(address) => group(address),
        }
    }
}

/// Returns the group, of 64, of a link-layer address. A secret hash would not help: an attacker who wants a
/// station's group uses its address.
fn group(address: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = address;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

/// By class, what a message costs of its share: half, a quarter and a quarter.
const COSTS: [u64; 3] = [1, 2, 2];

/// A message that waits.
#[derive(Debug)]
pub struct Waiting<T> {
    /// Since when.
    pub since: Time,
    /// The message.
    pub message: T,
}

/// Waiting messages of a sender, in order of arrival.
#[derive(Debug)]
struct Turn<T> {
    name: u64,
    /// Times it was served, and where it began.
    next: u64,
    waiting: VecDeque<(Rank, Waiting<T>)>,
}

impl<T> Turn<T> {
    /// The oldest of those that count most, and how much.
    fn first(&self) -> Option<(Rank, usize)> {
        self.waiting.iter().enumerate().map(|(place, (rank, _))| (*rank, place)).min()
    }

    /// The oldest of those that count least: how much, since when, and which.
    fn last(&self) -> Option<(Rank, Reverse<Time>, Reverse<usize>)> {
        let all = self.waiting.iter().enumerate();
        all.map(|(place, (rank, waiting))| (*rank, Reverse(waiting.since), Reverse(place))).max()
    }

    /// As if it had been served so often, and the head start is the others' way to go.
    fn key(&self) -> Option<u64> {
        self.first().map(|(rank, _)| self.next + LONGEST_HEAD_START - rank.head_start())
    }
}

/// Senders that take turns.
#[derive(Debug)]
struct Class<T> {
    /// Used part of the share, and its start value.
    next: u64,
    /// Where senders begin that come now.
    clock: u64,
    length: usize,
    turns: Vec<Turn<T>>,
}

impl<T> Class<T> {
    const fn new() -> Class<T> {
        Class { next: 0, clock: 0, length: 0, turns: Vec::new() }
    }

    fn push(&mut self, name: u64, rank: Rank, waiting: Waiting<T>) {
        let clock = self.clock;
        self.length += 1;
        match self.turns.iter_mut().find(|turn| turn.name == name) {
            Some(turn) => {
                if turn.waiting.is_empty() {
                    turn.next = turn.next.max(clock);
                }
                turn.waiting.push_back((rank, waiting));
            }
            None => {
                self.turns.push(Turn { name, next: clock, waiting: VecDeque::from([(rank, waiting)]) });
            }
        }
    }

    fn pop(&mut self, most_turns: usize) -> Option<Waiting<T>> {
        let waiting = self.turns.iter_mut().filter_map(|turn| Some((turn.key()?, turn)));
        let (key, turn) = waiting.min_by_key(|(key, _)| *key)?;
        let (_, place) = turn.first()?;
        let (_, message) = turn.waiting.remove(place)?;
        turn.next += 1;
        self.length -= 1;
        self.clock = self.clock.max(key.saturating_sub(LONGEST_HEAD_START));
        self.tidy(most_turns);
        Some(message)
    }

    /// Forgets idle senders that the others have caught up with, and all idle ones if there are too many.
    fn tidy(&mut self, most_turns: usize) {
        let (clock, many) = (self.clock, self.turns.len() > most_turns);
        self.turns.retain(|turn| !turn.waiting.is_empty() || (turn.next > clock && !many));
    }

    /// The sender with the most waiting loses what is least.
    fn give_up(&mut self, most_turns: usize) -> Option<T> {
        let turn = self.turns.iter_mut().max_by_key(|turn| (turn.waiting.len(), turn.last()))?;
        let (_, _, Reverse(place)) = turn.last()?;
        let (_, waiting) = turn.waiting.remove(place)?;
        self.length -= 1;
        self.tidy(most_turns);
        Some(waiting.message)
    }
}

/// The queue.
#[derive(Debug)]
pub struct Queue<T> {
    classes: [Class<T>; 3],
    clock: u64,
    length: usize,
    room: usize,
}

impl<T> Queue<T> {
    /// Creates a queue with room for `room` messages.
    pub const fn new(room: usize) -> Queue<T> {
        Queue { classes: [Class::new(), Class::new(), Class::new()], clock: 0, length: 0, room }
    }

    /// Adds a message. Returns the message that was dropped for it, which may be the same.
    pub fn push(&mut self, now: Time, sender: Sender, rank: Rank, message: T) -> Option<T> {
        let (clock, room) = (self.clock, self.room);
        let class = self.classes.get_mut(sender.class())?;
        if class.length == 0 {
            class.next = class.next.max(clock);
        }
        class.push(sender.turn(), rank, Waiting { since: now, message });
        self.length += 1;
        if self.length <= room {
            return None;
        }
        let above = self.classes.iter_mut().zip(COSTS).max_by_key(|(class, cost)| class.length as u64 * cost);
        let given_up = above.and_then(|(class, _)| class.give_up(2 * room));
        self.length -= usize::from(given_up.is_some());
        given_up
    }

    /// The next message.
    pub fn pop(&mut self) -> Option<Waiting<T>> {
        let most_turns = 2 * self.room;
        let waiting = self.classes.iter_mut().zip(COSTS).filter(|(class, _)| class.length > 0);
        let (class, cost) = waiting.min_by_key(|(class, _)| class.next)?;
        let message = class.pop(most_turns)?;
        self.clock = class.next;
        class.next += cost;
        self.length -= 1;
        if self.length == 0 {
            // No message waits, so all shares start anew.
            (self.classes, self.clock) = ([Class::new(), Class::new(), Class::new()], 0);
        }
        Some(message)
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Senders that are remembered, whether something of theirs waits or not.
    pub fn senders(&self) -> usize {
        self.classes.iter().map(|class| class.turns.len()).sum()
    }
}
