//! Messages that were believed once, so that they are not believed again.
//!
//! The hash of the signed octets identifies a message. The store keeps it as long as the message could pass
//! as new. If the store is full, everything as old as the oldest forgotten hash counts as seen. So a replay
//! never passes as new, but a late message may count as a replay. The store takes only messages with a valid
//! signature, so a station without a ticket cannot fill it.
//!
//! Copies of a packet over several hops come for a while, from other forwarders, and the router wants to hear
//! them. A copy that comes later than that is a replay: by then the router may have forgotten the packet.

use std::collections::{BTreeMap, VecDeque};

use carnet_base::Time;

use crate::time::Time64;

/// The first octets of a message's hash.
pub type Fingerprint = [u8; 16];

/// Messages of one kind.
#[derive(Debug)]
pub struct Seen {
    /// When each was believed.
    known: BTreeMap<Fingerprint, Time>,
    order: VecDeque<(Time64, Fingerprint)>,
    room: usize,
    /// Unknown messages that were generated until then may have been forgotten.
    forgotten_until: Time64,
}

impl Seen {
    /// Creates a store with room for `room` messages.
    pub const fn new(room: usize) -> Seen {
        Seen { known: BTreeMap::new(), order: VecDeque::new(), room, forgotten_until: Time64(0) }
    }

    /// When a message was believed, if it was.
    pub fn believed_at(&self, message: &Fingerprint) -> Option<Time> {
        self.known.get(message).copied()
    }

    /// Whether a message that is not known may be one that was forgotten.
    pub fn may_be_forgotten(&self, made: Time64) -> bool {
        made <= self.forgotten_until
    }

    /// Keeps a message; those made before `oldest` are refused for their age and need not be kept.
    pub fn insert(&mut self, now: Time, message: Fingerprint, made: Time64, oldest: Time64) {
        while let Some(&(first, fingerprint)) = self.order.front() {
            let full = self.order.len() >= self.room;
            if first >= oldest && !full {
                break;
            }
            // Too old messages are refused for their age, as long as the clock runs forward; but the clock
            // may be set back.
            self.forgotten_until = self.forgotten_until.max(first);
            self.order.pop_front();
            self.known.remove(&fingerprint);
        }
        if self.known.insert(message, now).is_none() {
            self.order.push_back((made, message));
        }
    }
}
