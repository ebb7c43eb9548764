//! Messages before verification: a bounded queue that is fair between senders.
//!
//! Verification costs a thousand times as much as reading, so a flood attack aims at it. The queue has room
//! for only as many messages as the operator permits. It decides which message the station verifies next and
//! which it drops.
//!
//! *The true sender* is unknown before verification. A forger can write any link-layer address into a frame,
//! and the name of any certificate into a message. So the queue only compares these values with messages that
//! were verified before ([`Sender`]):
//!
//! | class | who | one sender is | share |
//! |---|---|---|---|
//! | neighbours | messages with a known ticket's name, from the holder's own address | a ticket | 1/2 |
//! | relayed | messages with a known ticket's name, from another address | one of 64 address groups | 1/4 |
//! | strangers | messages with a ticket that must be verified as well | one of 64 address groups | 1/4 |
//!
//! A ticket is one sender, whatever link-layer addresses its holder uses. A forger gets a neighbour's turn
//! only if it sends the neighbour's name from the neighbour's address. It then uses only the share of this
//! neighbour. With invented names and addresses the forger is one of the unknown senders.
//!
//! *Order.* The classes take turns by their shares, and so do the senders of a class (start-time fair
//! queueing). A sender's `virtual_time` counts how often it was served, and the sender with the least value
//! is served next. A sender that returns after a pause begins at the present value of the other senders.
//! Classes and senders may use the unused share of others. A warning for this area precedes a warning from
//! afar, which precedes a position message. This order always applies among the messages of one sender. Among
//! several senders of a class, a higher rank gives a limited head start
//! ([`MessageRank::max_messages_preceded`]). A sender that always uses its head start gains nothing in the
//! long run.
//!
//! *Overflow.* If the queue is full, it drops a message of the class that is furthest above its share. In
//! this class it selects the sender with the most waiting messages. Of these messages it drops the least
//! important, and among equals the oldest, because a later CAM is worth more than an earlier one. So no
//! sender loses a message to a sender with more waiting messages.
//!
//! Left out: a distinction between true and forged messages with a neighbour's name and address, which needs
//! verification.

use std::cmp::Reverse;
use std::collections::VecDeque;

use carnet_base::Time;
use carnet_geonet::MacAddress;

use crate::ids::HashedId8;

/// Importance of a message. The variants are ordered from the most to the least important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageRank {
    /// A message for the area in which this station is.
    AreaHere,
    /// A packet over several hops that is not for this station's area.
    MultiHop,
    /// Single-hop message of a neighbour, such as a CAM.
    SingleHop,
    /// Message of GeoNetworking itself: a beacon, or a message of the Location Service.
    Management,
}

impl MessageRank {
    /// Returns the largest number of messages of each other sender that a message of this rank may overtake.
    pub const fn max_messages_preceded(self) -> u64 {
        match self {
            MessageRank::AreaHere => MAX_VIRTUAL_TIME_LEAD,
            MessageRank::MultiHop => 8,
            MessageRank::SingleHop => 4,
            MessageRank::Management => 0,
        }
    }
}

const MAX_VIRTUAL_TIME_LEAD: u64 = 16;

/// Sender of a message, as it appears before verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The message is signed with this known ticket, and comes from the link-layer address of the ticket's
    /// holder.
    Neighbour(HashedId8),
    /// The message is signed with a known ticket, but comes from another link-layer address, which is the
    /// value.
    Relayed(MacAddress),
    /// The message is signed with a ticket that this station does not know. The value is the link-layer
    /// address of the sender.
    Stranger(MacAddress),
}

impl Sender {
    const fn class_index(self) -> usize {
        match self {
            Sender::Neighbour(_) => 0,
            Sender::Relayed(_) => 1,
            Sender::Stranger(_) => 2,
        }
    }

    /// Returns the key of the sender's queue in its class: the name of the ticket, or the group of the
    /// link-layer address.
    fn queue_key(self) -> u64 {
        match self {
            Sender::Neighbour(HashedId8(name)) => u64::from_be_bytes(name),
            Sender::Relayed(address) | Sender::Stranger(address) => address_group(address),
        }
    }
}

/// Returns the group (one of 64) to which a link-layer address belongs. The hash needs no secret: an attacker
/// who wants to be in a station's group can use the station's own address.
fn address_group(address: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = address;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

/// Cost of one message for each class. The cost is inversely proportional to the class's share: half, a
/// quarter and a quarter.
const MESSAGE_COST_BY_CLASS: [u64; 3] = [1, 2, 2];

/// A waiting message.
#[derive(Debug)]
pub struct QueuedMessage<T> {
    /// Time at which the message entered the queue.
    pub enqueued_at: Time,
    /// The message.
    pub message: T,
}

/// Waiting messages of a sender, in order of arrival.
#[derive(Debug)]
struct SenderQueue<T> {
    name: u64,
    /// Virtual time at which the sender's next message is due: its start value plus the number of its
    /// verified messages.
    virtual_time: u64,
    waiting_messages: VecDeque<(MessageRank, QueuedMessage<T>)>,
}

impl<T> SenderQueue<T> {
    /// Returns rank and index of the sender's oldest message of the highest rank; `None` if no message waits.
    fn oldest_most_important_message(&self) -> Option<(MessageRank, usize)> {
        self.waiting_messages.iter().enumerate().map(|(place, (rank, _))| (*rank, place)).min()
    }

    /// Returns rank, time and index of the sender's oldest message of the lowest rank; `None` if no message
    /// waits.
    fn oldest_least_important_message(&self) -> Option<(MessageRank, Reverse<Time>, Reverse<usize>)> {
        let all = self.waiting_messages.iter().enumerate();
        all.map(|(place, (rank, waiting))| (*rank, Reverse(waiting.enqueued_at), Reverse(place))).max()
    }

    /// Returns the sort key of the sender: its `virtual_time` less the head start of its first message.
    /// Returns `None` if no message of the sender waits.
    fn sort_key(&self) -> Option<u64> {
        self.oldest_most_important_message()
            .map(|(rank, _)| self.virtual_time + MAX_VIRTUAL_TIME_LEAD - rank.max_messages_preceded())
    }
}

/// Senders of a class, which take turns.
#[derive(Debug)]
struct SenderClass<T> {
    /// Virtual time of the class: the queue serves the class with the least value next. Each served message
    /// adds its [`MESSAGE_COST_BY_CLASS`] to this value.
    next: u64,
    /// Present virtual time of the queue: a new sender starts with this value as its `virtual_time`.
    virtual_clock: u64,
    length: usize,
    sender_queues: Vec<SenderQueue<T>>,
}

impl<T> SenderClass<T> {
    const fn new() -> SenderClass<T> {
        SenderClass { next: 0, virtual_clock: 0, length: 0, sender_queues: Vec::new() }
    }

    fn push(&mut self, name: u64, rank: MessageRank, waiting: QueuedMessage<T>) {
        let clock = self.virtual_clock;
        self.length += 1;
        match self.sender_queues.iter_mut().find(|turn| turn.name == name) {
            Some(turn) => {
                if turn.waiting_messages.is_empty() {
                    turn.virtual_time = turn.virtual_time.max(clock);
                }
                turn.waiting_messages.push_back((rank, waiting));
            }
            None => {
                self.sender_queues.push(SenderQueue {
                    name,
                    virtual_time: clock,
                    waiting_messages: VecDeque::from([(rank, waiting)]),
                });
            }
        }
    }

    fn pop_message(&mut self, most_turns: usize) -> Option<QueuedMessage<T>> {
        let waiting = self.sender_queues.iter_mut().filter_map(|turn| Some((turn.sort_key()?, turn)));
        let (key, turn) = waiting.min_by_key(|(key, _)| *key)?;
        let (_, place) = turn.oldest_most_important_message()?;
        let (_, message) = turn.waiting_messages.remove(place)?;
        turn.virtual_time += 1;
        self.length -= 1;
        self.virtual_clock = self.virtual_clock.max(key.saturating_sub(MAX_VIRTUAL_TIME_LEAD));
        self.remove_idle_senders(most_turns);
        Some(message)
    }

    /// Removes idle senders: senders without waiting messages whose `virtual_time` is not above the start
    /// value. The queue would treat each of them like a new sender. If the class has too many senders,
    /// removes all senders without waiting messages.
    fn remove_idle_senders(&mut self, most_turns: usize) {
        let (clock, many) = (self.virtual_clock, self.sender_queues.len() > most_turns);
        self.sender_queues
            .retain(|turn| !turn.waiting_messages.is_empty() || (turn.virtual_time > clock && !many));
    }

    /// Drops and returns the least important message of the sender with the most waiting messages; `None` if
    /// no message waits.
    fn drop_least_important(&mut self, most_turns: usize) -> Option<T> {
        let turn = self
            .sender_queues
            .iter_mut()
            .max_by_key(|turn| (turn.waiting_messages.len(), turn.oldest_least_important_message()))?;
        let (_, _, Reverse(place)) = turn.oldest_least_important_message()?;
        let (_, waiting) = turn.waiting_messages.remove(place)?;
        self.length -= 1;
        self.remove_idle_senders(most_turns);
        Some(waiting.message)
    }
}

/// The queue of messages before verification.
#[derive(Debug)]
pub struct VerificationQueue<T> {
    classes: [SenderClass<T>; 3],
    virtual_clock: u64,
    length: usize,
    max_messages: usize,
}

impl<T> VerificationQueue<T> {
    /// Creates a queue with room for `room` messages.
    pub const fn new(room: usize) -> VerificationQueue<T> {
        VerificationQueue {
            classes: [SenderClass::new(), SenderClass::new(), SenderClass::new()],
            virtual_clock: 0,
            length: 0,
            max_messages: room,
        }
    }

    /// Adds a message. Returns the dropped message if the queue was full; this may be the added one.
    pub fn push(&mut self, now: Time, sender: Sender, rank: MessageRank, message: T) -> Option<T> {
        let (clock, room) = (self.virtual_clock, self.max_messages);
        let class = self.classes.get_mut(sender.class_index())?;
        if class.length == 0 {
            class.next = class.next.max(clock);
        }
        class.push(sender.queue_key(), rank, QueuedMessage { enqueued_at: now, message });
        self.length += 1;
        if self.length <= room {
            return None;
        }
        let above = self
            .classes
            .iter_mut()
            .zip(MESSAGE_COST_BY_CLASS)
            .max_by_key(|(class, cost)| class.length as u64 * cost);
        let given_up = above.and_then(|(class, _)| class.drop_least_important(2 * room));
        self.length -= usize::from(given_up.is_some());
        given_up
    }

    /// Removes and returns the next message.
    pub fn pop_message(&mut self) -> Option<QueuedMessage<T>> {
        let most_turns = 2 * self.max_messages;
        let waiting =
            self.classes.iter_mut().zip(MESSAGE_COST_BY_CLASS).filter(|(class, _)| class.length > 0);
        let (class, cost) = waiting.min_by_key(|(class, _)| class.next)?;
        let message = class.pop_message(most_turns)?;
        self.virtual_clock = class.next;
        class.next += cost;
        self.length -= 1;
        if self.length == 0 {
            // The queue is empty: forget what each class and sender has used, so that all of them start again
            // with equal shares.
            (self.classes, self.virtual_clock) =
                ([SenderClass::new(), SenderClass::new(), SenderClass::new()], 0);
        }
        Some(message)
    }

    /// Returns the number of waiting messages.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether no message waits.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the number of stored senders, including those without waiting messages.
    pub fn sender_count(&self) -> usize {
        self.classes.iter().map(|class| class.sender_queues.len()).sum()
    }
}
