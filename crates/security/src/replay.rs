//! Messages that were believed once, so that they are not believed again.
//!
//! A message is known by the hash of what was signed. It is kept for as long as it could still be taken for
//! new; where there is no room for that, everything as old as what had to be forgotten counts as seen: a
//! replay is never taken for a new message, rather a late one for a replay. Only messages whose signature was
//! good get in here, so that nobody without a ticket can fill it.
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
    /// What was made until then, and is not known, may have been forgotten.
    forgotten_until: Time64,
}

impl Seen {
    /// With room for so many.
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
            // What is too old is refused for its age anyway, as long as the clock goes on; it may be set
            // back.
            self.forgotten_until = self.forgotten_until.max(first);
            self.order.pop_front();
            self.known.remove(&fingerprint);
        }
        if self.known.insert(message, now).is_none() {
            self.order.push_back((made, message));
        }
    }
}
