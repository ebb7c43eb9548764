//! Replay detection: stores accepted messages so that the station does not accept them again.
//!
//! The hash of the signed octets identifies a message. The store keeps this hash until the station would
//! reject the message as too old. If the store is full, it removes the oldest hash. From then on every
//! message that is not newer than the removed one counts as a replay. So a replay never passes as new, but a
//! late message may count as a replay. The store takes only messages with a valid signature, so a station
//! without a ticket cannot fill it.
//!
//! Copies of a packet over several hops arrive from other forwarders for a while, and the router needs them.
//! A later copy is a replay, because the router may have removed the packet from its duplicate detection.

use std::collections::{BTreeMap, VecDeque};

use carnet_base::Time;

use crate::time::Time64;

/// The first octets of a message's hash.
pub type MessageFingerprint = [u8; 16];

/// Store of accepted messages. A station has one store for single-hop messages and one for all others.
#[derive(Debug)]
pub struct ReplayDetector {
    /// Times at which the messages were accepted.
    accepted_at_by_fingerprint: BTreeMap<MessageFingerprint, Time>,
    messages_by_time: VecDeque<(Time64, MessageFingerprint)>,
    max_messages: usize,
    /// Latest generation time of a message that the store has removed. An unknown message that is not newer
    /// may be a replay of such a message.
    newest_removed_generation_time: Time64,
}

impl ReplayDetector {
    /// Creates a store with room for `room` messages.
    pub const fn new(room: usize) -> ReplayDetector {
        ReplayDetector {
            accepted_at_by_fingerprint: BTreeMap::new(),
            messages_by_time: VecDeque::new(),
            max_messages: room,
            newest_removed_generation_time: Time64(0),
        }
    }

    /// Returns the time at which the station accepted a message; `None` if the store does not have the
    /// message.
    pub fn accepted_at(&self, message: &MessageFingerprint) -> Option<Time> {
        self.accepted_at_by_fingerprint.get(message).copied()
    }

    /// Returns whether the store may already have removed a message with this generation time, so that a
    /// replay cannot be excluded.
    pub fn may_have_been_removed(&self, made: Time64) -> bool {
        made <= self.newest_removed_generation_time
    }

    /// Stores an accepted message. Removes messages with a generation time before `oldest`, because the
    /// station rejects these as too old.
    pub fn insert(&mut self, now: Time, message: MessageFingerprint, made: Time64, oldest: Time64) {
        while let Some(&(first, fingerprint)) = self.messages_by_time.front() {
            let full = self.messages_by_time.len() >= self.max_messages;
            if first >= oldest && !full {
                break;
            }
            // The station rejects removed messages as too old, unless its clock is set back. Store their
            // latest generation time for this case.
            self.newest_removed_generation_time = self.newest_removed_generation_time.max(first);
            self.messages_by_time.pop_front();
            self.accepted_at_by_fingerprint.remove(&fingerprint);
        }
        if self.accepted_at_by_fingerprint.insert(message, now).is_none() {
            self.messages_by_time.push_back((made, message));
        }
    }
}
