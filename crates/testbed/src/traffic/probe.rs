//! Sends and receives the packets of the lab's own one-way probe.
//!
//! A process in each of two nodes sends UDP packets at a fixed rate and receives the packets of the other
//! process. A packet carries its sequence number and the monotonic time of sending. Both ends run on the same
//! kernel and so on the same clock, which makes the one-way delay exact. The sender sleeps until absolute
//! times, which keeps the rate without drift and without using a whole core. After a delay it sends all
//! packets that are due at once. Each packet leaves at a random moment of its own slot; at 1000 packets per
//! second a slot is a millisecond. Packets at equal intervals could be in step with other traffic or with a
//! timer of the kernel. They would meet this traffic always or never, which would be no fair sample (RFC 2330
//! 11.1).

use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use nix::sys::prctl;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::stats::PacketFlow;
use crate::clock::{self, MILLISECOND, SECOND};

/// Mark at the head of every packet.
const PROBE_MAGIC: &[u8; 8] = b"carnetpb";
/// Length in octets of a probe packet without padding.
const PROBE_HEADER_LENGTH: usize = 24;
/// Time in nanoseconds for which the receiver waits for late packets after the last packet.
const LATE_PACKET_WAIT: u64 = SECOND;

/// Settings of one end of a probe; also its command line.
#[derive(Debug, Clone, clap::Args)]
pub struct ProbeArgs {
    /// Address of the other end of the probe.
    #[arg(long)]
    pub peer: Ipv6Addr,
    /// UDP port of both ends.
    #[arg(long)]
    pub port: u16,
    /// Packets per second.
    #[arg(long)]
    pub rate: u32,
    /// Octets of data in each packet, at least 24.
    #[arg(long, default_value_t = 64)]
    pub size: u16,
    /// Number of packets.
    #[arg(long)]
    pub count: u64,
    /// Only listen, for as long as sending would take.
    #[arg(long)]
    pub mute: bool,
    /// Monotonic time of the first packet, in nanoseconds.
    #[arg(long)]
    pub start: u64,
    /// File for the outcome.
    #[arg(long)]
    pub output: PathBuf,
}

/// Results of one end of a probe.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ProbeEndResult {
    /// Sending time of each packet, by sequence number.
    #[serde(rename = "sent")]
    pub send_times: Vec<u64>,
    /// Packets that the kernel refused to send.
    #[serde(rename = "refused")]
    pub refused_packets: u64,
    /// Sequence number and time of arrival of the other end's packets.
    #[serde(rename = "received")]
    pub received_packets: Vec<(u64, u64)>,
}

pub(super) fn encode_probe(seq: u64, at: u64) -> [u8; PROBE_HEADER_LENGTH] {
    let mut packet = [0; PROBE_HEADER_LENGTH];
    packet[..8].copy_from_slice(PROBE_MAGIC);
    packet[8..16].copy_from_slice(&seq.to_be_bytes());
    packet[16..24].copy_from_slice(&at.to_be_bytes());
    packet
}

pub(super) fn decode_probe(packet: &[u8]) -> Option<u64> {
    let seq = packet.strip_prefix(PROBE_MAGIC)?.get(..8)?;
    Some(u64::from_be_bytes(seq.try_into().ok()?))
}

/// Runs one end of a probe.
pub fn run_probe(args: &ProbeArgs) -> anyhow::Result<()> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    // The kernel may give less: it limits the buffer to net.core.rmem_max, which has room for hundreds of
    // packets.
    socket.set_recv_buffer_size(4 << 20)?;
    socket.set_read_timeout(Some(std::time::Duration::from_millis(100)))?;
    socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, args.port, 0, 0).into())?;
    let socket = std::net::UdpSocket::from(socket);
    let done = AtomicBool::new(false);
    let mut outcome = ProbeEndResult::default();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive_probes(&socket, &done));
        let (sent, refused) = send_probes(&socket, args);
        clock::sleep(LATE_PACKET_WAIT);
        done.store(true, Ordering::Relaxed);
        outcome = ProbeEndResult {
            send_times: sent,
            refused_packets: refused,
            received_packets: receiver.join().unwrap_or_default(),
        };
    });
    let file = std::fs::File::create(&args.output)
        .with_context(|| format!("cannot make {}", args.output.display()))?;
    serde_json::to_writer(std::io::BufWriter::new(file), &outcome)?;
    Ok(())
}

/// Returns the sending time of a packet, in nanoseconds from the start. The time is within the packet's slot.
/// A hash of the packet's number (SplitMix64) selects it, so it is the same in every run.
fn planned_send_time(seq: u64, rate: u32) -> u64 {
    let slot = SECOND / u64::from(rate.max(1));
    let mut z = (seq + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seq * SECOND / u64::from(rate.max(1)) + (z ^ (z >> 31)) % slot
}

/// Returns the longest delay of a packet's departure in nanoseconds, among the packets due from `start` on.
pub fn longest_sending_delay(sent: &[u64], start: u64, rate: u32) -> u64 {
    let late = |(seq, at): (u64, &u64)| at.saturating_sub(start + planned_send_time(seq, rate));
    (0..).zip(sent).map(late).max().unwrap_or(0)
}

fn send_probes(socket: &std::net::UdpSocket, args: &ProbeArgs) -> (Vec<u64>, u64) {
    // Set the timer slack to 1 us, in place of the usual 50 us.
    let _ = prctl::set_timerslack(1000);
    let peer = SocketAddrV6::new(args.peer, args.port, 0, 0);
    let mut packet = vec![0; usize::from(args.size).max(PROBE_HEADER_LENGTH)];
    let mut sent = Vec::with_capacity(args.count as usize);
    let mut refused = 0;
    if args.mute {
        clock::sleep_until(args.start + planned_send_time(args.count, args.rate));
        return (sent, 0);
    }
    for seq in 0..args.count {
        clock::sleep_until(args.start + planned_send_time(seq, args.rate));
        let now = clock::monotonic_now();
        sent.push(now);
        // The receiver counts a packet that the kernel refuses as lost, because it never arrives.
        if let Some(head) = packet.first_chunk_mut() {
            *head = encode_probe(seq, now);
        }
        refused += u64::from(socket.send_to(&packet, peer).is_err());
    }
    (sent, refused)
}

fn receive_probes(socket: &std::net::UdpSocket, done: &AtomicBool) -> Vec<(u64, u64)> {
    let mut received = Vec::with_capacity(1 << 17);
    let mut buffer = vec![0; usize::from(u16::MAX)];
    while !done.load(Ordering::Relaxed) {
        // Ignore an error: it is the timeout, or an ICMPv6 error about a packet of this end.
        let Ok((length, _)) = socket.recv_from(&mut buffer) else { continue };
        let now = clock::monotonic_now();
        if let Some(seq) = decode_probe(&buffer[..length]) {
            received.push((seq, now));
        }
    }
    received
}

/// Reads the results of both ends, and returns the two directions: first to second, second to first.
pub fn read_results(first: &Path, second: &Path) -> anyhow::Result<[PacketFlow; 2]> {
    let load = |file: &Path| -> anyhow::Result<ProbeEndResult> {
        let text = std::fs::read(file)
            .with_context(|| format!("the probe did not end in time: it left no {}", file.display()))?;
        Ok(serde_json::from_slice(&text)?)
    };
    let (a, b) = (load(first)?, load(second)?);
    Ok([
        PacketFlow { send_times: a.send_times, received_packets: b.received_packets },
        PacketFlow { send_times: b.send_times, received_packets: a.received_packets },
    ])
}

/// Returns the longest time that an end runs after its first packet, in nanoseconds.
pub fn longest_probe_run_time(count: u64, rate: u32) -> u64 {
    count * SECOND / u64::from(rate) + LATE_PACKET_WAIT + 200 * MILLISECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_packets_contain_their_number() {
        assert_eq!(decode_probe(&encode_probe(77, 1)), Some(77));
        assert_eq!(decode_probe(b"carnetpb"), None);
        assert_eq!(decode_probe(&[0; PROBE_HEADER_LENGTH]), None);
    }

    #[test]
    fn probe_packets_have_fixed_send_times() {
        let within: Vec<u64> =
            (0..1000).map(|seq| planned_send_time(seq, 1000) - seq * MILLISECOND).collect();
        assert!(within.iter().all(|at| *at < MILLISECOND));
        // The packets are spread over their slots: about 100 leave in each tenth of a slot.
        for tenth in 0..10 {
            let count = within.iter().filter(|at| **at * 10 / MILLISECOND == tenth).count();
            assert!((60..140).contains(&count), "{count} in tenth {tenth}");
        }
    }

    #[test]
    fn probe_lateness_counts_from_send_time() {
        let sent: Vec<u64> =
            (0..100).map(|seq| 7 + planned_send_time(seq, 1000) + u64::from(seq == 50) * SECOND).collect();
        assert_eq!(
            (
                longest_sending_delay(&sent, 7, 1000),
                longest_sending_delay(&sent[..50], 7, 1000),
                longest_sending_delay(&[], 7, 1000)
            ),
            (SECOND, 0, 0)
        );
    }

    #[test]
    fn probe_works_in_both_directions_over_loopback() {
        let folder = std::env::temp_dir().join(format!("carnet-lab-probe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let args = ProbeArgs {
            peer: Ipv6Addr::LOCALHOST,
            port: 47_311,
            size: 1900,
            rate: 1000,
            count: 50,
            mute: false,
            start: clock::monotonic_now() + 20 * MILLISECOND,
            output: folder.join("a"),
        };
        run_probe(&args).expect("the loopback is there");
        // The socket sends to itself, so it receives its own packets.
        let [flow, _] = read_results(&args.output, &args.output).expect("was written");
        let stats = flow.statistics_of(&(0..u64::MAX));
        assert_eq!((stats.sent_packets, stats.lost_packets, stats.duplicated_packets), (50, 0, 0));
        assert!(stats.sorted_delays.iter().all(|d| *d < SECOND));
        std::fs::remove_dir_all(&folder).expect("remove");
    }
}
