//! Messages to hosts that wait until the records of leases and delegated prefixes are on the disk. If the
//! server sent them earlier, a crash could destroy a record. The server could then give the address to a
//! second host.

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::Time;

/// Longest wait of a message. After that time the client has sent its request again.
const MAX_HOLD_TIME: Duration = Duration::from_secs(8);

/// Messages that wait, the oldest first.
#[derive(Debug)]
pub struct HeldMessages<M> {
    waiting_messages: VecDeque<WaitingMessage<M>>,
    max_messages: usize,
}

#[derive(Debug)]
struct WaitingMessage<M> {
    /// Number of the commit that contains the message's records; `None` until the caller has set it.
    commit_number: Option<u64>,
    waiting_since: Time,
    interface: String,
    held_message: M,
}

impl<M> HeldMessages<M> {
    /// Creates a queue with at most `limit` messages.
    pub fn new(max_messages: usize) -> HeldMessages<M> {
        HeldMessages { waiting_messages: VecDeque::new(), max_messages }
    }

    /// Adds a message to an interface. If the queue is full, drops the oldest message. `commit` is the number
    /// of the commit with the message's records. It is `None` if the caller sets the number later
    /// ([`Self::set_commit`]).
    pub fn push(&mut self, now: Time, commit: Option<u64>, interface: String, message: M) {
        if self.waiting_messages.len() >= self.max_messages {
            self.waiting_messages.pop_front();
        }
        self.waiting_messages.push_back(WaitingMessage {
            commit_number: commit,
            waiting_since: now,
            interface,
            held_message: message,
        });
    }

    /// Sets the commit number of the messages that have none.
    pub fn set_commit(&mut self, commit: u64) {
        for held in self.waiting_messages.iter_mut().filter(|held| held.commit_number.is_none()) {
            held.commit_number = Some(commit);
        }
    }

    /// Returns the next message whose commit is on the disk, with its interface; `None` if no message is
    /// ready. `commit` is the last commit on the disk. Drops messages that have waited longer than
    /// [`MAX_HOLD_TIME`].
    pub fn pop_written(&mut self, now: Time, commit: u64) -> Option<(String, M)> {
        let is_written = |held: &WaitingMessage<M>| held.commit_number.is_some_and(|of| of <= commit);
        while let Some(held) = self.waiting_messages.pop_front_if(|held| is_written(held)) {
            if now < held.waiting_since + MAX_HOLD_TIME {
                return Some((held.interface, held.held_message));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_messages_are_sent_in_order_after_their_commit_or_expire() {
        let at = Time::from_secs;
        let mut held = HeldMessages::new(3);
        for message in 0..4 {
            held.push(at(100), Some(message), "eth0".to_owned(), message);
        }
        assert_eq!(held.pop_written(at(101), 0), None, "the oldest is gone");
        assert_eq!(held.pop_written(at(101), 2), Some(("eth0".to_owned(), 1)));
        assert_eq!(held.pop_written(at(101), 2), Some(("eth0".to_owned(), 2)));
        assert_eq!(held.pop_written(at(101), 2), None, "message 3 waits for its commit");
        held.push(at(105), None, "eth1".to_owned(), 9);
        assert_eq!(held.pop_written(at(108), u64::MAX), None, "message 3 is too late, 9 has no commit");
        held.set_commit(4);
        assert_eq!(held.pop_written(at(108), 3), None);
        assert_eq!(held.pop_written(at(108), 4), Some(("eth1".to_owned(), 9)));
    }
}
