//! Replay detection: stores accepted messages so that the station does not accept them again.
//!
//! The hash of the signed octets identifies a message. The store keeps this hash as long as the message could
//! pass as new. If the store is full, it removes the oldest hash. From then on every message as old as the
//! removed one counts as seen. So a replay never passes as new, but a late message may count as a replay. The
//! store takes only messages with a valid signature, so a station without a ticket cannot fill it.
//!
//! Copies of a packet over several hops arrive from other forwarders for a while, and the router needs them.
//! A later copy is a replay, because the router may have removed the packet from its duplicate detection.

use std::collections::{BTreeMap, VecDeque};

use carnet_base::Time;

use crate::time::Time64;

/// The first octets of a message's hash.
pub type Fingerprint = [u8; 16];

/// Accepted messages of one kind.
#[derive(Debug)]
pub struct Seen {
    /// Times at which the messages were accepted.
    known: BTreeMap<Fingerprint, Time>,
    order: VecDeque<(Time64, Fingerprint)>,
    room: usize,
    /// Latest generation time of a removed message: an unknown message up to this time may be a replay.
    forgotten_until: Time64,
}

impl Seen {
    /// Creates a store with room for `room` messages.
    pub const fn new(room: usize) -> Seen {
        Seen { known: BTreeMap::new(), order: VecDeque::new(), room, forgotten_until: Time64(0) }
    }

    /// Returns the time at which a message was accepted; `None` if it is unknown.
    pub fn believed_at(&self, message: &Fingerprint) -> Option<Time> {
        self.known.get(message).copied()
    }

    /// Returns whether an unknown message may be one that the store has removed.
    pub fn may_be_forgotten(&self, made: Time64) -> bool {
        made <= self.forgotten_until
    }

    /// Stores a message. The station rejects messages made before `oldest` for their age, so the store drops
    /// them.
    pub fn insert(&mut self, now: Time, message: Fingerprint, made: Time64, oldest: Time64) {
        while let Some(&(first, fingerprint)) = self.order.front() {
            let full = self.order.len() >= self.room;
            if first >= oldest && !full {
                break;
            }
            // The station rejects old messages for their age while the clock runs forward. But the clock may
            // be set back.
            self.forgotten_until = self.forgotten_until.max(first);
            self.order.pop_front();
            self.known.remove(&fingerprint);
        }
        if self.known.insert(message, now).is_none() {
            self.order.push_back((made, message));
        }
    }
}
