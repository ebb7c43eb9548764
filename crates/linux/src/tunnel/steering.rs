//! The BPF program that selects one of the three queues of the TUN device (`bpf/steering.bpf.c`), and its
//! data.
//!
//! The first queue has forwarded packets, the second control messages of known senders, the third control
//! messages of all other senders. Handshake messages of encrypted sessions are control messages, so a flood
//! of them displaces no data. Known senders are the remote ends of present tunnels, at a home agent the
//! care-of addresses of its bindings. The program's data belong to descriptors of this process and to the
//! device, and vanish with them. Packets of a tunnel inside IPv4 arrive through a socket and not through the
//! device, so the tunnel's end is no known sender.
//!
//! # Order
//!
//! The station handles messages of one source in the order of their arrival, also while the source becomes
//! known or unknown. If a later Binding Update overtook an earlier one, the home agent would refuse the
//! earlier one (RFC 6275 9.5.1, status 135). Within a queue messages keep their order. The program moves a
//! source to another queue only when none of the source's packets is left in the old queue:
//!
//! * The program notes when it last put a packet of the source into its queue.
//! * carnet tells the program a time: all packets that were put into that queue before this time have been
//!   read ([`QueueProgress`]). If the source's last packet is from before that time, its next messages go
//!   into the other queue.
//!
//! carnet finds such a time as follows. The reader notes the present time and waits for
//! [`MAX_QUEUEING_DELAY_NS`]. By then all packets for which the program has selected the queue before the
//! noted time are in the queue. ([`MAX_QUEUEING_DELAY_NS`] is far longer than a processor without interrupts
//! takes between the program and the queue.) Then the reader finds the queue empty, or reads as many packets
//! as the queue holds. After it has handled them, it reports the noted time. The packets of one source reach
//! the program one after the other, as from any network device.
//!
//! A source that sends without a pause stays in its queue. So a flooding source that becomes known stays in
//! the third queue. A router moves to the second queue with the first message after a pause. The pause is
//! half a second plus the time to read a full queue. The reader looks for a pause only after it has read
//! packets. If no packets arrive, a known source stays in the third queue, where nothing delays its messages
//! then.
//!
//! Left out: a recorded message that an attacker sends again from a router's own address enters the router's
//! queue. Only its authentication shows the replay. Such a message does not displace forwarded packets.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use carnet_nemo::forwarding::desired::Tunnel;

use crate::bpf_call::{
    BPF_ANY, BPF_NOEXIST, BpfMap, MAP_TYPE_ARRAY, MAP_TYPE_HASH, PlainMapValue, load_socket_filter,
};
use crate::clock;

use super::DeviceQueue;

/// Upper limit, in nanoseconds, for the time from the program's selection until the packet is in the queue.
const MAX_QUEUEING_DELAY_NS: u64 = 250_000_000;
/// Smallest and largest number of known senders that the maps can have.
const KNOWN_SENDERS_RANGE: (usize, usize) = (1024, 1 << 18);

/// Copy of `struct place` in C: the queue of a sender, and the time of its last packet.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct SenderQueueValue {
    last_packet_at: u64,
    queue_number: u32,
    unused: u32,
}

// SAFETY: every bit pattern is a valid value, and there is no padding.
unsafe impl PlainMapValue for SenderQueueValue {}

/// The loaded BPF program and its maps.
#[derive(Debug)]
pub(crate) struct SteeringProgram {
    program_fd: OwnedFd,
    sender_map: BpfMap<[u8; 16], u32>,
    queue_map: BpfMap<[u8; 16], SenderQueueValue>,
    read_until_map: BpfMap<u32, u64>,
}

impl SteeringProgram {
    /// Loads the program, with maps for `senders` known senders. Control messages of further senders use the
    /// third queue.
    ///
    /// # Errors
    ///
    /// Returns why the kernel refuses the program, in one line.
    pub(crate) fn open(senders: usize) -> Result<SteeringProgram, String> {
        let room = senders.clamp(KNOWN_SENDERS_RANGE.0, KNOWN_SENDERS_RANGE.1) as u32;
        let made =
            |error: std::io::Error| format!("cannot create a BPF map for the steering program: {error}");
        let known = BpfMap::create_map(MAP_TYPE_HASH, room).map_err(made)?;
        let places = BpfMap::create_map(MAP_TYPE_HASH, room).map_err(made)?;
        let read = BpfMap::create_map(MAP_TYPE_ARRAY, DeviceQueue::QUEUE_COUNT).map_err(made)?;
        let fds = carnet_bpf::STEERING_MAPS.map(|name| match name {
            "KNOWN" => known.fd(),
            "PLACES" => places.fd(),
            _ => read.fd(),
        });
        let program = load_socket_filter(carnet_bpf::STEERING, &fds, c"Dual MIT/GPL")
            .map_err(|error| format!("cannot load the steering program: {error}"))?;
        Ok(SteeringProgram {
            program_fd: program,
            sender_map: known,
            queue_map: places,
            read_until_map: read,
        })
    }

    /// Returns the program, to attach it to the device.
    pub(crate) fn program_fd(&self) -> &OwnedFd {
        &self.program_fd
    }

    /// Stores in the program's map that the station has handled all packets of a queue that were put into it
    /// before this time.
    pub(super) fn set_read_until(&self, queue: DeviceQueue, before: u64) {
        let _ = self.read_until_map.put_element(&(queue as u32), &before, BPF_ANY);
    }
}

/// Returns the monotonic time in nanoseconds, from the clock that BPF programs use.
pub(super) fn monotonic_nanoseconds() -> u64 {
    clock::monotonic_time().as_nanos()
}

/// The known senders: remote ends of the station's tunnels. carnet writes them into the program's maps.
#[derive(Debug)]
pub(crate) struct KnownSenders {
    steering: Arc<SteeringProgram>,
    /// Senders whose tunnels are gone but which still have an entry in the map of queues. Each has the time
    /// of the removal of its tunnel; the earliest is first.
    leaving_senders: VecDeque<(Ipv6Addr, u64)>,
}

impl KnownSenders {
    pub(super) fn new(steering: Arc<SteeringProgram>) -> KnownSenders {
        KnownSenders { steering, leaving_senders: VecDeque::new() }
    }

    /// Adds the remote end of a tunnel. `is_new` is false if the tunnel replaces one with the same ends.
    pub(crate) fn add(&mut self, tunnel: &Tunnel, is_new: bool) {
        let Some(address) = tunnel.remote.ipv6().filter(|_| is_new) else { return };
        self.free_removed_entries();
        let (key, SteeringProgram { sender_map: known, queue_map: places, .. }) =
            (address.octets(), &*self.steering);
        let is_there = |error: &io::Error| error.raw_os_error() == Some(libc::EEXIST);
        let result = match known.put_element(&key, &1, BPF_NOEXIST) {
            Ok(()) => {
                // The sender's earlier packets are in the third queue. If the sender still has an entry in
                // the map of queues, leave the entry unchanged.
                let place = SenderQueueValue {
                    last_packet_at: monotonic_nanoseconds(),
                    queue_number: DeviceQueue::OtherSenders as u32,
                    unused: 0,
                };
                places
                    .put_element(&key, &place, BPF_NOEXIST)
                    .or_else(|error| if is_there(&error) { Ok(()) } else { Err(error) })
            }
            Err(error) if is_there(&error) => {
                let tunnels = known.get(&key).unwrap_or(0);
                known.put_element(&key, &tunnels.saturating_add(1), BPF_ANY)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::debug!(
                "cannot give control messages of {address} precedence at the tunnel device: {error}"
            );
        }
    }

    /// Removes the sender of a tunnel.
    pub(crate) fn remove(&mut self, tunnel: &Tunnel) {
        let Some(address) = tunnel.remote.ipv6() else { return };
        let (key, known) = (address.octets(), &self.steering.sender_map);
        let result = match known.get(&key) {
            None => Ok(()),
            Some(0 | 1) => {
                self.leaving_senders.push_back((address, monotonic_nanoseconds()));
                known.remove(&key)
            }
            Some(tunnels) => known.put_element(&key, &(tunnels - 1), BPF_ANY),
        };
        if let Err(error) = result {
            tracing::debug!(
                "cannot end the precedence of control messages of {address} at the tunnel device: {error}"
            );
        }
        self.free_removed_entries();
    }

    /// Frees the map entries of at most two removed senders. Each addition or removal of a sender calls this
    /// function, so the list of removed senders does not grow without limit.
    fn free_removed_entries(&mut self) {
        let SteeringProgram { sender_map: known, queue_map: places, read_until_map: read, .. } =
            &*self.steering;
        let now = monotonic_nanoseconds();
        for _ in 0..2 {
            // After this time, no run of the BPF program is left that found the sender among the known
            // senders.
            let Some((address, _)) =
                self.leaving_senders.pop_front_if(|(_, since)| *since + MAX_QUEUEING_DELAY_NS <= now)
            else {
                return;
            };
            let key = address.octets();
            // Skip a sender that is known again, or whose entry is gone because the list had it twice.
            let Some(place) = places.get(&key).filter(|_| known.get(&key).is_none()) else { continue };
            // The entry is useless if the program would select the same queue without it.
            let is_over = place.queue_number == DeviceQueue::OtherSenders as u32
                || read.get(&place.queue_number).is_some_and(|before| place.last_packet_at < before);
            if is_over {
                let _ = places.remove(&key);
            } else {
                self.leaving_senders.push_back((address, now));
            }
        }
    }
}

/// Finds the time before which all packets of a queue have been read.
#[derive(Debug)]
pub(super) struct QueueProgress {
    /// Time that the reader has noted last, in nanoseconds. The head of the module explains its use.
    noted_time: u64,
    /// Number of packets that were read since all packets from before `noted_time` were in the queue; `None`
    /// while some of these packets may not be in the queue yet.
    packets_since_note: Option<u32>,
}

impl QueueProgress {
    pub(super) fn new(now: u64) -> QueueProgress {
        QueueProgress { noted_time: now, packets_since_note: None }
    }

    /// Counts a packet that was read from the queue.
    pub(super) fn count_packet_read(&mut self) {
        if let Some(count) = &mut self.packets_since_note {
            *count = count.saturating_add(1);
        }
    }

    /// Returns a time before which all packets of the queue have been handled, if it is later than the last
    /// result. `holds` is the capacity of the queue in packets. `is_empty` returns whether the queue is
    /// empty. This function calls it only if fewer than `holds` packets were read since the noted time.
    pub(super) fn handled_until(
        &mut self,
        now: u64,
        holds: u32,
        is_empty: impl FnOnce() -> bool,
    ) -> Option<u64> {
        if now < self.noted_time.saturating_add(MAX_QUEUEING_DELAY_NS) {
            return None;
        }
        let count = *self.packets_since_note.get_or_insert(0);
        if count < holds && !is_empty() {
            return None;
        }
        self.packets_since_note = None;
        Some(std::mem::replace(&mut self.noted_time, now))
    }
}

#[cfg(test)]
mod tests;
