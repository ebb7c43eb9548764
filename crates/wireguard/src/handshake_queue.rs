//! Handshake messages that wait for their turn, so that data do not wait behind them.
//!
//! A handshake costs about a thousand times as much as a data message. So the engine only stores a handshake
//! message on arrival. Messages from addresses of sessions have a queue of their own. So a flood from other
//! addresses does not displace the renewal of a session.

use std::collections::VecDeque;

use crate::session::Route;

/// Messages from addresses of sessions that may wait.
const OF_SESSIONS: usize = 256;
/// Messages from all other addresses that may wait.
const OF_OTHERS: usize = 4096;
/// Length of the longest handshake message, the initiation.
const LONGEST: usize = 148;

/// A handshake message and the route by which it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) route: Route,
    octets: [u8; LONGEST],
    length: u8,
}

impl Waiting {
    pub(crate) fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.length)]
    }
}

/// The two queues.
#[derive(Debug, Default)]
pub(crate) struct HandshakeQueue {
    of_sessions: VecDeque<Waiting>,
    of_others: VecDeque<Waiting>,
}

impl HandshakeQueue {
    /// Appends a message, and returns whether there was room for it.
    pub(crate) fn push(&mut self, route: Route, datagram: &[u8], of_session: bool) -> bool {
        let (queue, most) = match of_session {
            true => (&mut self.of_sessions, OF_SESSIONS),
            false => (&mut self.of_others, OF_OTHERS),
        };
        if queue.len() >= most || datagram.len() > LONGEST {
            return false;
        }
        let mut octets = [0; LONGEST];
        octets[..datagram.len()].copy_from_slice(datagram);
        queue.push_back(Waiting { route, octets, length: datagram.len() as u8 });
        true
    }

    /// Removes and returns the next message: one of a session first.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        self.of_sessions.pop_front().or_else(|| self.of_others.pop_front())
    }

    /// Returns whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.of_sessions.is_empty() && self.of_others.is_empty()
    }
}
