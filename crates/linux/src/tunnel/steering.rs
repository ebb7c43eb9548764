//! The program that chooses among the three queues of the TUN device (`bpf/steering.bpf.c`), and what it
//! knows.
//!
//! The first queue has forwarded packets, the second control messages of known senders, the third those of
//! all others. Known senders are the other ends of present tunnels, at a home agent the care-of addresses of
//! its bindings. The program's data belong to descriptors of this process and to the device, and go with
//! these. A tunnel inside IPv4 arrives by a socket, not by the device, and is not among them.
//!
//! # Order
//!
//! Messages of one source are handled in the order in which they arrived, also while it becomes known or
//! ceases to be. The home agent refuses a Binding Update that another one overtakes (RFC 6275 9.5.1, status
//! 135). In one queue they are in order. A source changes its queue only when the old one has none of its
//! packets, which the program ensures:
//!
//! * it notes when it has last put something of the source into its queue, and
//! * it is told the time before which all that was put into that queue has been read ([`Progress`]). Only
//!   when the first is earlier does the next message, and do all after it, go elsewhere.
//!
//! The reader notes a time. [`ON_THE_WAY`] later it sees the queue empty or begins to read as many packets as
//! it holds, and handles them. Packets for which the program chose the queue before that time are in it by
//! then. [`ON_THE_WAY`] is far longer than a processor without interrupts spends between the program and the
//! queue. The packets of one source come to the program one after the other, as to any network device.
//!
//! So a source that keeps sending remains where it is: a flooding source that becomes known stays in the
//! third queue. A router moves to the second queue with the first message after a pause. The pause is half a
//! second and as long as it takes to read a full queue. The reader checks when it has read something. Without
//! packets it notices no pause, and then nothing delays the third queue. A flood makes it check.
//!
//! Left out: a recorded message that an attacker sends again from a router's own address is in the router's
//! queue; only its authentication tells. It takes nothing from forwarded packets.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use carnet_station::forwarding::desired::Tunnel;

use crate::bpf_call::{ANY, ARRAY, HASH, Map, NEW, Plain, load_filter};
use crate::clock;

use super::Queue;

/// A packet is in its queue at the latest so long after the program has chosen it.
const ON_THE_WAY: u64 = 250_000_000;
/// Senders for whom there is room at least, and at most.
const ROOM: (usize, usize) = (1024, 1 << 18);

/// `struct place`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Place {
    last: u64,
    queue: u32,
    unused: u32,
}

// SAFETY: every pattern of bits is one, and nothing lies between the fields.
unsafe impl Plain for Place {}

/// The loaded program and its maps.
#[derive(Debug)]
pub(crate) struct Steering {
    program: OwnedFd,
    known: Map<[u8; 16], u32>,
    places: Map<[u8; 16], Place>,
    read: Map<u32, u64>,
}

impl Steering {
    /// Loads the program, with room for `senders` known senders. Further ones stay unknown: their control
    /// messages wait in the third queue.
    ///
    /// # Errors
    /// Why the kernel does not want it, in one line.
    pub(crate) fn open(senders: usize) -> Result<Steering, String> {
        let room = senders.clamp(ROOM.0, ROOM.1) as u32;
        let made = |error: std::io::Error| format!("a map for the program cannot be made: {error}");
        let known = Map::create(HASH, room).map_err(made)?;
        let places = Map::create(HASH, room).map_err(made)?;
        let read = Map::create(ARRAY, Queue::COUNT).map_err(made)?;
        let fds = carnet_bpf::STEERING_MAPS.map(|name| match name {
            "KNOWN" => known.fd(),
            "PLACES" => places.fd(),
            _ => read.fd(),
        });
        let program = load_filter(carnet_bpf::STEERING, &fds, c"Dual MIT/GPL")
            .map_err(|error| format!("the program cannot be loaded: {error}"))?;
        Ok(Steering { program, known, places, read })
    }

    /// The program, for the device.
    pub(crate) fn program(&self) -> &OwnedFd {
        &self.program
    }

    /// Packets that were put into a queue before this time have been read and handled.
    pub(super) fn has_read(&self, queue: Queue, before: u64) {
        let _ = self.read.put(&(queue as u32), &before, ANY);
    }
}

/// The monotonic time of programs.
pub(super) fn now() -> u64 {
    clock::monotonic().as_nanos()
}

/// Tells the program whom the station knows.
#[derive(Debug)]
pub(crate) struct Known {
    steering: Arc<Steering>,
    /// Those without a tunnel whose place is still there, and when that was seen; the earliest first.
    leaving: VecDeque<(Ipv6Addr, u64)>,
}

impl Known {
    pub(super) fn new(steering: Arc<Steering>) -> Known {
        Known { steering, leaving: VecDeque::new() }
    }

    /// There is a tunnel, perhaps instead of one with the same ends.
    pub(crate) fn add(&mut self, tunnel: &Tunnel, is_new: bool) {
        let Some(address) = tunnel.remote.ipv6().filter(|_| is_new) else { return };
        self.forget();
        let (key, Steering { known, places, .. }) = (address.octets(), &*self.steering);
        let is_there = |error: &io::Error| error.raw_os_error() == Some(libc::EEXIST);
        let result = match known.put(&key, &1, NEW) {
            Ok(()) => {
                // Earlier packets are in the third queue. A place that it has not left yet is the right one.
                let place = Place { last: now(), queue: Queue::Strangers as u32, unused: 0 };
                places
                    .put(&key, &place, NEW)
                    .or_else(|error| if is_there(&error) { Ok(()) } else { Err(error) })
            }
            Err(error) if is_there(&error) => {
                let tunnels = known.get(&key).unwrap_or(0);
                known.put(&key, &tunnels.saturating_add(1), ANY)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::debug!("{address} remains a stranger to the tunnel device: {error}");
        }
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, tunnel: &Tunnel) {
        let Some(address) = tunnel.remote.ipv6() else { return };
        let (key, known) = (address.octets(), &self.steering.known);
        let result = match known.get(&key) {
            None => Ok(()),
            Some(0 | 1) => {
                self.leaving.push_back((address, now()));
                known.remove(&key)
            }
            Some(tunnels) => known.put(&key, &(tunnels - 1), ANY),
        };
        if let Err(error) = result {
            tracing::debug!("{address} remains known to the tunnel device: {error}");
        }
        self.forget();
    }

    /// Gives up places of those who have left: as many in each call that they do not gather.
    fn forget(&mut self) {
        let Steering { known, places, read, .. } = &*self.steering;
        let now = now();
        for _ in 0..2 {
            // No program runs any more that has still found it among the known.
            let Some((address, _)) = self.leaving.pop_front_if(|(_, since)| *since + ON_THE_WAY <= now)
            else {
                return;
            };
            let key = address.octets();
            // It may be back, or have been here twice.
            let Some(place) = places.get(&key).filter(|_| known.get(&key).is_none()) else { continue };
            // Without a place the program chooses what it would choose with it.
            let is_over = place.queue == Queue::Strangers as u32
                || read.get(&place.queue).is_some_and(|before| place.last < before);
            if is_over {
                let _ = places.remove(&key);
            } else {
                self.leaving.push_back((address, now));
            }
        }
    }
}

/// Up to which time a queue has been read.
#[derive(Debug)]
pub(super) struct Progress {
    /// A time at which the reader looked.
    mark: u64,
    /// Packets for the queue before that time have arrived, and this number has been read since.
    since: Option<u32>,
}

impl Progress {
    pub(super) fn new(now: u64) -> Progress {
        Progress { mark: now, since: None }
    }

    /// One more has been read.
    pub(super) fn read(&mut self) {
        if let Some(count) = &mut self.since {
            *count = count.saturating_add(1);
        }
    }

    /// The time before which everything has been read and handled, where that is a later one than before.
    /// `holds` is what the queue holds at most; whether it is empty is asked when it matters.
    pub(super) fn look(&mut self, now: u64, holds: u32, is_empty: impl FnOnce() -> bool) -> Option<u64> {
        if now < self.mark.saturating_add(ON_THE_WAY) {
            return None;
        }
        let count = *self.since.get_or_insert(0);
        if count < holds && !is_empty() {
            return None;
        }
        self.since = None;
        Some(std::mem::replace(&mut self.mark, now))
    }
}

#[cfg(test)]
mod tests;
