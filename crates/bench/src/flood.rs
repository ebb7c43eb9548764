//! Measures packets per second in a closed loop.
//!
//! The sender keeps at most [`MAX_PACKETS_IN_FLIGHT`] packets under way: it reads the sink's count, and
//! yields the core while the window is full. So the result is the rate without loss. If a path has a program
//! in user space, the program gets the core whenever it has work. It shares the core with sender and sink.
//! Lost packets do not block the loop: after `ARRIVAL_TIMEOUT` without any arrival the sender counts the
//! packets under way as lost.

use super::packet::Frame;
use super::sender::{FRAMES_PER_BATCH, PacketSource};
use super::sink::PacketSink;
use carnet_testbed::clock::{self, MILLISECOND};

/// Largest number of packets in transit.
pub const MAX_PACKETS_IN_FLIGHT: u64 = 256;
/// Time without an arrival, in nanoseconds, after which packets in transit count as lost.
const ARRIVAL_TIMEOUT: u64 = 100 * MILLISECOND;

/// Counts and duration of a flood of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FloodResult {
    /// Number of packets that the interface accepted.
    pub sent_packets: u64,
    /// Number of packets that the sink received.
    pub received_packets: u64,
    /// Nanoseconds from the first packet sent to the last packet received.
    pub elapsed_ns: u64,
}

impl FloodResult {
    /// Returns the packets per second.
    pub fn packets_per_second(&self) -> f64 {
        self.received_packets as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Returns the number of lost packets.
    pub fn lost_packets(&self) -> u64 {
        self.sent_packets.saturating_sub(self.received_packets)
    }
}

/// Sends for `duration` nanoseconds. Calls `prepare` before each batch, so that it can write into the frames.
pub fn send_packet_flood(
    sender: &mut PacketSource,
    sink: &PacketSink,
    frames: &mut [Frame],
    duration: u64,
    mut prepare: impl FnMut(&mut [Frame], u64),
) -> anyhow::Result<FloodResult> {
    let start = clock::monotonic_now();
    let first = sink.received_packets()?;
    let mut flood = FloodResult::default();
    let (mut written_off, mut heard) = (0, start);
    loop {
        let received = sink.received_packets()? - first;
        let now = clock::monotonic_now();
        if received > flood.received_packets {
            flood.received_packets = received;
            flood.elapsed_ns = now - start;
            heard = now;
        }
        let under_way = flood.sent_packets.saturating_sub(received + written_off);
        let over = now - start >= duration;
        if over && under_way == 0 {
            break;
        }
        if now - heard > ARRIVAL_TIMEOUT {
            if over {
                break;
            }
            written_off += under_way;
            heard = now;
        }
        if over || under_way + FRAMES_PER_BATCH as u64 > MAX_PACKETS_IN_FLIGHT {
            std::thread::yield_now();
            continue;
        }
        prepare(frames, flood.sent_packets);
        flood.sent_packets += sender.send_frames(frames, FRAMES_PER_BATCH)? as u64;
    }
    Ok(flood)
}
