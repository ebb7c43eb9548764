//! Queue of frames to send.
//!
//! Each frame has a priority (`SO_PRIORITY`), by which an interface with several queues selects one. The
//! priority is an option of the socket. So the queue sets it whenever the next frame has another priority,
//! and sends only frames of one priority in one system call.

use std::io;
use std::net::SocketAddr;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{SockAddr, Socket};

use super::receive_batch;
use super::{FrameCounters, FrameDropReason, MAX_FRAMES_PER_CALL};

/// Maximum number of frames that wait. A longer queue would make a radio send outdated positions.
const MAX_WAITING_FRAMES: usize = 8 * MAX_FRAMES_PER_CALL;

/// Frames in sending order, concatenated.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    octets: Vec<u8>,
    /// Position in `octets` at which each frame ends.
    frame_ends: Vec<usize>,
    /// Priority of each frame.
    frame_priorities: Vec<u16>,
    /// Priority that the socket has now; `None` if unknown.
    socket_priority: Option<u16>,
    /// Number of frames at the front that are already sent or dropped.
    finished_frames: usize,
    /// Number of peers to which the first frame of the queue has been sent already.
    finished_peers: usize,
    /// Whether the kernel accepted the first frame of the queue for one of these peers.
    sent_to_any_peer: bool,
    /// Whether the kernel had no room for further frames at the last attempt.
    pub(super) is_blocked: bool,
}

impl SendQueue {
    pub(super) fn len(&self) -> usize {
        self.frame_ends.len() - self.finished_frames
    }

    /// Returns the number of octets of all waiting frames.
    pub(super) fn waiting_octets(&self) -> u32 {
        u32::try_from(self.octets.len() - self.frame_start(self.finished_frames)).unwrap_or(u32::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MAX_WAITING_FRAMES
    }

    /// Appends a frame that consists of these parts. Priority 0 is the default of a socket.
    pub(super) fn push_frame(&mut self, priority: u16, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.octets.extend_from_slice(part));
        self.frame_ends.push(self.octets.len());
        self.frame_priorities.push(priority);
    }

    /// Drops all waiting frames, because the link has no socket any more.
    pub(super) fn drop_all_frames(&mut self, counters: &mut FrameCounters) {
        counters.count_drop(FrameDropReason::Down, self.len() as u64);
        self.octets.clear();
        self.frame_ends.clear();
        self.frame_priorities.clear();
        // The next socket may be a new one, whose priority is unknown.
        self.socket_priority = None;
        (self.finished_frames, self.finished_peers, self.sent_to_any_peer, self.is_blocked) =
            (0, 0, false, false);
    }

    /// Sends frames until the kernel has no room or the queue is empty. Each frame goes to each peer, or
    /// without peers to the socket's bound destination.
    pub(super) fn flush_frames(
        &mut self,
        socket: &Socket,
        peers: &[SocketAddr],
        counters: &mut FrameCounters,
    ) {
        let peers: Vec<SockAddr> = peers.iter().map(|peer| SockAddr::from(*peer)).collect();
        let copies = peers.len().max(1);
        self.is_blocked = false;
        while !self.is_empty() {
            let mut messages: [(&[u8], Option<&SockAddr>); MAX_FRAMES_PER_CALL] =
                [(&[], None); MAX_FRAMES_PER_CALL];
            let mut count = 0;
            let first = self.finished_frames * copies + self.finished_peers;
            let priority = self.frame_priorities[self.finished_frames];
            if self.socket_priority != Some(priority) {
                // Without the right to set a priority, frames leave with the socket's present priority.
                let _ = setsockopt(socket, sockopt::Priority, &i32::from(priority));
                self.socket_priority = Some(priority);
            }
            let alike = self.frame_priorities[self.finished_frames..]
                .iter()
                .take_while(|other| **other == priority)
                .count();
            for (message, number) in messages.iter_mut().zip(first..(self.finished_frames + alike) * copies) {
                *message = (self.frame_octets(number / copies), peers.get(number % copies));
                count += 1;
            }
            match receive_batch::send_messages(socket, &messages[..count]) {
                Ok(sent) => (0..sent).for_each(|_| self.count_sent_message(copies, true, counters)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) if peers.is_empty() => {
                        return self.drop_all_frames(counters);
                    }
                    // The kernel refused the first message of the batch.
                    _ => self.count_sent_message(copies, false, counters),
                },
            }
        }
        // Moves the remaining frames to the front.
        let gone = self.frame_start(self.finished_frames);
        self.octets.drain(..gone);
        self.frame_ends.drain(..self.finished_frames);
        self.frame_priorities.drain(..self.finished_frames);
        self.frame_ends.iter_mut().for_each(|end| *end -= gone);
        self.finished_frames = 0;
    }

    fn frame_start(&self, frame: usize) -> usize {
        frame.checked_sub(1).map_or(0, |before| self.frame_ends[before])
    }

    fn frame_octets(&self, frame: usize) -> &[u8] {
        &self.octets[self.frame_start(frame)..self.frame_ends[frame]]
    }

    /// Counts one message as accepted or refused by the kernel. After the last message of a frame, counts the
    /// frame as sent or refused.
    fn count_sent_message(&mut self, copies: usize, taken: bool, counters: &mut FrameCounters) {
        self.sent_to_any_peer |= taken;
        self.finished_peers += 1;
        if self.finished_peers == copies {
            match self.sent_to_any_peer {
                true => counters.sent_frames += 1,
                false => counters.count_drop(FrameDropReason::Refused, 1),
            }
            self.finished_frames += 1;
            self.finished_peers = 0;
            self.sent_to_any_peer = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use socket2::{Domain, Type};

    use super::*;

    fn received_messages(socket: &Socket) -> Vec<Vec<u8>> {
        let mut buffer = [0; 2000];
        std::iter::from_fn(|| {
            std::io::Read::read(&mut &*socket, &mut buffer).ok().map(|n| buffer[..n].to_vec())
        })
        .collect()
    }

    /// The receiving socket has room for only a few messages until the test reads them.
    #[test]
    fn refused_frames_wait_and_are_sent_once_in_order() {
        let (here, there) = Socket::pair(Domain::UNIX, Type::DGRAM, None).expect("socket pair");
        here.set_nonblocking(true).expect("nonblocking");
        // For a size of 1 the kernel sets the smallest buffer that it allows.
        here.set_send_buffer_size(1).expect("send buffer");
        there.set_nonblocking(true).expect("nonblocking");
        let (mut queue, mut counters) = (SendQueue::default(), FrameCounters::default());
        let mut sent = Vec::new();
        let mut arrived = Vec::new();
        let mut was_blocked = 0;
        for round in 0..10u8 {
            for number in 0..40u8 {
                let frame = vec![round; 1 + usize::from(number)];
                queue.push_frame(0, &[&frame[..1], &frame[1..]]);
                sent.push(frame);
            }
            queue.flush_frames(&here, &[], &mut counters);
            was_blocked += u32::from(queue.is_blocked);
            assert_eq!(queue.is_blocked, !queue.is_empty());
            arrived.extend(received_messages(&there));
        }
        assert!(was_blocked > 5, "{was_blocked}");
        while !queue.is_empty() {
            queue.flush_frames(&here, &[], &mut counters);
            arrived.extend(received_messages(&there));
        }
        assert_eq!(arrived, sent);
        assert_eq!(counters.sent_frames, 400);
        assert!(queue.octets.is_empty() && queue.frame_ends.is_empty());
    }

    /// The queue sends each frame with its own priority and keeps their order.
    #[test]
    fn each_frame_is_sent_with_its_priority() {
        let (here, there) = Socket::pair(Domain::UNIX, Type::DGRAM, None).expect("socket pair");
        here.set_nonblocking(true).expect("nonblocking");
        here.set_send_buffer_size(1).expect("send buffer");
        there.set_nonblocking(true).expect("nonblocking");
        let priority =
            |socket: &Socket| nix::sys::socket::getsockopt(socket, sockopt::Priority).expect("SO_PRIORITY");
        let (mut queue, mut counters) = (SendQueue::default(), FrameCounters::default());
        // Priorities up to 6 need no privilege.
        let priorities: Vec<u16> = (0..200u16).map(|number| number / 7 % 4 * 2).collect();
        for (number, priority) in (0..200u8).zip(&priorities) {
            queue.push_frame(*priority, &[&[number; 50]]);
        }
        let mut arrived: Vec<Vec<u8>> = Vec::new();
        let mut seen = Vec::new();
        while !queue.is_empty() {
            queue.flush_frames(&here, &[], &mut counters);
            arrived.extend(received_messages(&there));
            // The socket now has the priority of the first frame that waits. If no frame waits, the socket
            // has the priority of the last frame.
            let next = arrived.len().min(priorities.len() - 1);
            assert_eq!(priority(&here), i32::from(priorities[next]), "{next}");
            seen.push(priorities[next]);
        }
        assert_eq!(arrived, (0..200u8).map(|number| vec![number; 50]).collect::<Vec<_>>());
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 1, "{seen:?}");
        // After [`SendQueue::drop_all_frames`], the queue sets the priority again, because the socket may be
        // new.
        queue.push_frame(6, &[b"lost"]);
        queue.drop_all_frames(&mut counters);
        nix::sys::socket::setsockopt(&here, sockopt::Priority, &3).expect("SO_PRIORITY");
        queue.push_frame(priorities[199], &[b"frame"]);
        queue.flush_frames(&here, &[], &mut counters);
        assert_eq!(priority(&here), i32::from(priorities[199]));
    }

    /// An unreachable peer does not keep other peers from getting frames.
    #[test]
    fn each_frame_goes_to_each_peer_and_a_refusal_costs_only_that_message() {
        let receivers: Vec<UdpSocket> =
            (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").expect("socket")).collect();
        let mut peers: Vec<SocketAddr> =
            receivers.iter().map(|receiver| receiver.local_addr().expect("address")).collect();
        // The kernel refuses port 0 with EINVAL.
        peers.insert(1, "127.0.0.1:0".parse().expect("address"));
        let socket = Socket::from(UdpSocket::bind("127.0.0.1:0").expect("socket"));
        let (mut queue, mut counters) = (SendQueue::default(), FrameCounters::default());
        for number in 0..100u8 {
            queue.push_frame(0, &[&[number]]);
        }
        // A frame of this size does not fit into a datagram, so the kernel refuses it.
        queue.push_frame(0, &[&[7; 70_000]]);
        queue.push_frame(0, &[&[100]]);
        queue.flush_frames(&socket, &peers, &mut counters);
        assert!(queue.is_empty());
        assert_eq!((counters.sent_frames, counters.dropped_frames(FrameDropReason::Refused)), (101, 1));
        for receiver in receivers {
            receiver.set_nonblocking(true).expect("nonblocking");
            let mut buffer = [0; 10];
            let numbers: Vec<u8> =
                std::iter::from_fn(|| receiver.recv(&mut buffer).ok().map(|_| buffer[0])).collect();
            assert_eq!(numbers, (0..=100).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn dropped_frames_are_counted() {
        let (mut queue, mut counters) = (SendQueue::default(), FrameCounters::default());
        for _ in 0..MAX_WAITING_FRAMES {
            assert!(!queue.is_full());
            queue.push_frame(0, &[b"frame"]);
        }
        assert!(queue.is_full());
        queue.drop_all_frames(&mut counters);
        assert!(queue.is_empty());
        assert_eq!(counters.dropped_frames(FrameDropReason::Down), MAX_WAITING_FRAMES as u64);
    }
}
