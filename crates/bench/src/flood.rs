//! Measures packets per second in a closed loop.
//!
//! The sender keeps at most [`WINDOW`] packets under way: it reads the sink's count, and yields the core
//! while the window is full. So the result is the rate without loss. If a path has a program in user space,
//! the program gets the core whenever it has work. It shares the core with sender and sink. Lost packets do
//! not block the loop: after `PATIENCE` without any arrival the sender counts the packets under way as
//! lost.

use super::packet::Frame;
use super::sender::{BATCH, Sender};
use super::sink::Sink;
use carnet_testbed::clock::{self, MILLISECOND};

/// Largest number of packets in transit.
pub const WINDOW: u64 = 256;
/// Time without an arrival, in nanoseconds, after which packets in transit count as lost.
const PATIENCE: u64 = 100 * MILLISECOND;

/// Counts and duration of a flood of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flood {
    /// Number of packets that the interface accepted.
    pub sent: u64,
    /// Number of packets that the sink received.
    pub received: u64,
    /// Nanoseconds from the first packet sent to the last packet received.
    pub elapsed: u64,
}

impl Flood {
    /// Returns the packets per second.
    pub fn rate(&self) -> f64 {
        self.received as f64 * 1e9 / self.elapsed.max(1) as f64
    }

    /// Returns the number of lost packets.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
}

/// Sends for `duration` nanoseconds. Calls `prepare` before each batch, so that it can write into the frames.
pub fn flood(
    sender: &mut Sender,
    sink: &Sink,
    frames: &mut [Frame],
    duration: u64,
    mut prepare: impl FnMut(&mut [Frame], u64),
) -> anyhow::Result<Flood> {
    let start = clock::monotonic();
    let first = sink.count()?;
    let mut flood = Flood::default();
    let (mut written_off, mut heard) = (0, start);
    loop {
        let received = sink.count()? - first;
        let now = clock::monotonic();
        if received > flood.received {
            flood.received = received;
            flood.elapsed = now - start;
            heard = now;
        }
        let under_way = flood.sent.saturating_sub(received + written_off);
        let over = now - start >= duration;
        if over && under_way == 0 {
            break;
        }
        if now - heard > PATIENCE {
            if over {
                break;
            }
            written_off += under_way;
            heard = now;
        }
        if over || under_way + BATCH as u64 > WINDOW {
            std::thread::yield_now();
            continue;
        }
        prepare(frames, flood.sent);
        flood.sent += sender.send(frames, BATCH)? as u64;
    }
    Ok(flood)
}
