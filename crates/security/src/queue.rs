//! Messages before verification: a bounded queue with priorities.
//!
//! Verification costs a thousand times what reading does, so that who floods a channel aims at it. Here only as many
//! messages wait as the operator lets, and the queue decides who goes first and who goes: what warns of something here
//! before what comes from far, before what says where somebody is; and at the same rank those of signers that are
//! known before those whose certificate would have to be verified as well. A full queue gives up what is least, and of
//! equals the oldest: a later CAM is worth more than an earlier one.

use std::collections::VecDeque;

use carnet_base::Time;

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

const RANKS: usize = 4;

/// A message that waits.
#[derive(Debug)]
pub struct Waiting<T> {
    /// Since when.
    pub since: Time,
    /// The message.
    pub message: T,
}

/// The queue.
#[derive(Debug)]
pub struct Queue<T> {
    /// By rank, those of known signers before those of others.
    lanes: [VecDeque<Waiting<T>>; 2 * RANKS],
    length: usize,
    room: usize,
}

impl<T> Queue<T> {
    /// With room for so many.
    pub fn new(room: usize) -> Queue<T> {
        Queue { lanes: std::array::from_fn(|_| VecDeque::new()), length: 0, room }
    }

    /// Takes a message in. What has to go for it, or itself, comes back.
    pub fn push(&mut self, now: Time, rank: Rank, known_signer: bool, message: T) -> Option<T> {
        let lane = 2 * rank as usize + usize::from(!known_signer);
        let mut given_up = None;
        if self.length >= self.room {
            // The lowest lane that has any, if it is not above this one.
            let lowest = self.lanes.iter().rposition(|lane| !lane.is_empty());
            match lowest {
                Some(lowest) if lowest >= lane => {
                    given_up = self.lanes.get_mut(lowest).and_then(VecDeque::pop_front);
                    self.length -= 1;
                }
                _ => return Some(message),
            }
        }
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.push_back(Waiting { since: now, message });
            self.length += 1;
        }
        given_up.map(|waiting| waiting.message)
    }

    /// The next message.
    pub fn pop(&mut self) -> Option<Waiting<T>> {
        let next = self.lanes.iter_mut().find_map(VecDeque::pop_front)?;
        self.length -= 1;
        Some(next)
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}
