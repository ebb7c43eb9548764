//! Handshake messages that wait for their turn, so that data do not wait behind them.
//!
//! A handshake message takes about a thousand times as long as a data message. So the engine only stores a
//! handshake message on arrival. Messages from remote addresses of sessions have a queue of their own. So a
//! flood from other addresses does not displace the renewal of a session.

use std::collections::VecDeque;

use crate::session::DatagramRoute;

/// Largest number of waiting messages from remote addresses of sessions.
const MAX_MESSAGES_FROM_SESSIONS: usize = 256;
/// Largest number of waiting messages from all other addresses.
const MAX_MESSAGES_FROM_OTHERS: usize = 4096;
/// Length of the longest handshake message, the initiation.
const MAX_HANDSHAKE_LENGTH: usize = 148;

/// A handshake message and the route by which it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingHandshake {
    pub(crate) route: DatagramRoute,
    octets: [u8; MAX_HANDSHAKE_LENGTH],
    length: u8,
}

impl WaitingHandshake {
    pub(crate) fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.length)]
    }
}

/// The two queues: for messages from remote addresses of sessions, and for all others.
#[derive(Debug, Default)]
pub(crate) struct HandshakeQueue {
    waiting_from_sessions: VecDeque<WaitingHandshake>,
    waiting_from_others: VecDeque<WaitingHandshake>,
}

impl HandshakeQueue {
    /// Appends a message to the queue for sessions if `of_session` is true, otherwise to the queue for other
    /// addresses. Returns whether the queue had room for it.
    pub(crate) fn push(&mut self, route: DatagramRoute, datagram: &[u8], of_session: bool) -> bool {
        let (queue, most) = match of_session {
            true => (&mut self.waiting_from_sessions, MAX_MESSAGES_FROM_SESSIONS),
            false => (&mut self.waiting_from_others, MAX_MESSAGES_FROM_OTHERS),
        };
        if queue.len() >= most || datagram.len() > MAX_HANDSHAKE_LENGTH {
            return false;
        }
        let mut octets = [0; MAX_HANDSHAKE_LENGTH];
        octets[..datagram.len()].copy_from_slice(datagram);
        queue.push_back(WaitingHandshake { route, octets, length: datagram.len() as u8 });
        true
    }

    /// Removes and returns the next message; `None` if both queues are empty. Messages from addresses of
    /// sessions come first.
    pub(crate) fn pop_next(&mut self) -> Option<WaitingHandshake> {
        self.waiting_from_sessions.pop_front().or_else(|| self.waiting_from_others.pop_front())
    }

    /// Returns whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting_from_sessions.is_empty() && self.waiting_from_others.is_empty()
    }
}
