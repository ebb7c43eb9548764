//! Measures how exactly a station keeps the times of contention-based forwarding (EN 302 636-4-1 V1.4.1 annex
//! F.3).
//!
//! A tester sends GeoBroadcast packets from stations at several distances from the forwarder. The forwarder
//! repeats each after a time that shrinks with the distance. The kernel stamps every frame in both directions
//! on the tester's interface. The difference of the stamps is the time of contention plus all other delay in
//! forwarder and kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;

use super::flood::{FORWARDER_NODE, FORWARDER_POSITION, RADIO_INTERFACE, TESTER_NODE, mac_address_of};
use super::frame::{
    self, BROADCAST_MAC, HEADER_TYPE_OFFSET, Mac, SEQUENCE_NUMBER_OFFSET, SOURCE_MID_OFFSET, SendingStation,
};
use super::node::{self, CarnetStation};
use super::{median, quantile};
use carnet_testbed::clock::{self, MILLISECOND};
use carnet_testbed::frame_socket::{ETHER_TYPE_ALL, FrameSocket, message_headers};

/// Distance in metres from each sender to the forwarder. The last sender is beyond the forwarder's range.
const SENDER_DISTANCES_METRES: [u32; 4] = [250, 500, 900, 1100];
/// MIB parameter `itsGnDefaultMaxCommunicationRange` in metres.
const MAX_COMMUNICATION_RANGE_METRES: f64 = 1000.0;
/// MIB parameters `itsGnCbfMinTime` and `itsGnCbfMaxTime` in milliseconds.
const CONTENTION_TIMES_MS: (f64, f64) = (1.0, 100.0);
/// Radius in metres of the destination area, which contains all senders and the forwarder.
const AREA_RADIUS_METRES: u16 = 1700;
/// Time between two packets; the senders take turns. The sender adds a random time of up to 5 ms, so that the
/// packets are not in step with any other period.
const PAUSE_BETWEEN_PACKETS: u64 = 5 * MILLISECOND;

/// Delays of one sender's packets at the forwarder.
#[derive(Debug, Clone, Serialize)]
pub struct ForwardingDelays {
    /// Distance in metres.
    #[serde(rename = "distance")]
    pub distance_metres: u32,
    /// Time by the formula of annex F.3, in milliseconds.
    #[serde(rename = "formula_ms")]
    pub formula_delay_ms: f64,
    /// Measured median, in milliseconds.
    #[serde(rename = "median_ms")]
    pub median_delay_ms: f64,
    /// Measured 5th percentile, in milliseconds.
    #[serde(rename = "p5_ms")]
    pub p5_delay_ms: f64,
    /// Measured 95th percentile, in milliseconds.
    #[serde(rename = "p95_ms")]
    pub p95_delay_ms: f64,
    /// Measured median minus the time by the formula, in milliseconds.
    #[serde(rename = "error_ms")]
    pub median_error_ms: f64,
    /// Packets that were sent.
    #[serde(rename = "sent")]
    pub sent_packets: usize,
    /// Packets that the forwarder repeated.
    #[serde(rename = "returned")]
    pub forwarded_packets: usize,
}

/// Returns the contention time by EN 302 636-4-1 F.3, in milliseconds.
fn contention_timeout_ms(distance: f64) -> f64 {
    let (least, most) = CONTENTION_TIMES_MS;
    if distance > MAX_COMMUNICATION_RANGE_METRES {
        least
    } else {
        most + (least - most) / MAX_COMMUNICATION_RANGE_METRES * distance
    }
}

/// Measures `count` packets at each distance, in the nodes that [`super::flood`] has built.
pub fn measure_forwarding_delays(program: &Path, count: usize) -> anyhow::Result<Vec<ForwardingDelays>> {
    let (latitude, longitude) = FORWARDER_POSITION.to_degrees();
    let config = format!(
        "interface = '{RADIO_INTERFACE}'\nposition = 'fixed:{latitude},{longitude}'\nbeacon = {{ interval = \
         '1h' \
         }}\n"
    );
    let mut carnet = CarnetStation::start(program, FORWARDER_NODE, None, &config)?;
    announce_senders()?;
    carnet.wait_for_neighbours(SENDER_DISTANCES_METRES.len())?;
    let observer = node::spawn_in_node(TESTER_NODE, None, move || observe_packet_times(count));
    // Wait until the observer has opened its socket, because packets that it misses would be missing in the
    // results.
    std::thread::sleep(Duration::from_millis(200));
    node::run_in_node(TESTER_NODE, move || {
        let link = FrameSocket::open(RADIO_INTERFACE, None)?;
        let mut headers = message_headers();
        let mut random = clock::realtime_now() | 1;
        for sequence in 0..count {
            for distance in SENDER_DISTANCES_METRES {
                let packet = sender_at_distance(distance).geobroadcast_frame(
                    BROADCAST_MAC,
                    FORWARDER_POSITION,
                    AREA_RADIUS_METRES,
                    sequence as u16,
                    &[0xfe; 32],
                );
                link.send(&mut headers, [&packet[..]].into_iter())?;
                // A xorshift generator, whose numbers need not be very random.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                clock::sleep(PAUSE_BETWEEN_PACKETS + random % PAUSE_BETWEEN_PACKETS);
            }
        }
        Ok(())
    })?;
    let times = node::join_thread(observer)?;
    SENDER_DISTANCES_METRES.into_iter().map(|distance| delays_at_distance(distance, count, &times)).collect()
}

fn sender_at_distance(distance: u32) -> SendingStation {
    SendingStation {
        mac: mac_address_of(4, distance as usize),
        position: FORWARDER_POSITION.moved_north(f64::from(distance)),
        timestamp: frame::gn_timestamp(clock::realtime_now()),
    }
}

fn announce_senders() -> anyhow::Result<()> {
    node::run_in_node(TESTER_NODE, || {
        let beacons = SENDER_DISTANCES_METRES.map(|distance| sender_at_distance(distance).beacon_frame());
        FrameSocket::open(RADIO_INTERFACE, None)?
            .send(&mut message_headers(), beacons.iter().map(Vec::as_slice))
    })
}

/// Time of a packet's first frame and of its repetition, in nanoseconds, by source and sequence number.
type PacketTimes = BTreeMap<(Mac, u16), (u64, Option<u64>)>;

/// Records the times of all GeoBroadcast packets until no more arrive.
fn observe_packet_times(count: usize) -> anyhow::Result<PacketTimes> {
    let link = FrameSocket::open(RADIO_INTERFACE, Some(ETHER_TYPE_ALL))?;
    link.enable_timestamps()?;
    link.wait_at_most(Duration::from_secs(1))?;
    let mut times = PacketTimes::new();
    let mut buffer = [0; 2048];
    while let Some((frame, time)) = link.receive_with_timestamp(&mut buffer)? {
        let (Some(&0x40), Some(mid), Some(sequence)) = (
            frame.get(HEADER_TYPE_OFFSET),
            frame.get(SOURCE_MID_OFFSET..SOURCE_MID_OFFSET + 6).and_then(|mid| Mac::try_from(mid).ok()),
            frame
                .get(SEQUENCE_NUMBER_OFFSET..SEQUENCE_NUMBER_OFFSET + 2)
                .and_then(|number| <[u8; 2]>::try_from(number).ok()),
        ) else {
            continue;
        };
        let seen = times.entry((mid, u16::from_be_bytes(sequence))).or_insert((time, None));
        if time > seen.0 {
            seen.1.get_or_insert(time);
        }
    }
    ensure!(
        times.len() <= count * SENDER_DISTANCES_METRES.len(),
        "expected only the station's frames on the benchmark's link, found frames of another program"
    );
    Ok(times)
}

fn delays_at_distance(distance: u32, sent: usize, times: &PacketTimes) -> anyhow::Result<ForwardingDelays> {
    let source = mac_address_of(4, distance as usize);
    let mut measured: Vec<u64> = times
        .iter()
        .filter(|((mid, _), _)| *mid == source)
        .filter_map(|(_, (first, again))| again.map(|again| again - first))
        .collect();
    measured.sort_unstable();
    ensure!(
        !measured.is_empty(),
        "expected forwarded packets, but the station forwarded none from a sender {distance} m away"
    );
    let milliseconds = |nanoseconds: u64| nanoseconds as f64 / MILLISECOND as f64;
    let (formula_ms, median_ms) =
        (contention_timeout_ms(f64::from(distance)), milliseconds(median(measured.clone())));
    Ok(ForwardingDelays {
        distance_metres: distance,
        formula_delay_ms: formula_ms,
        median_delay_ms: median_ms,
        p5_delay_ms: milliseconds(quantile(&measured, 0.05)),
        p95_delay_ms: milliseconds(quantile(&measured, 0.95)),
        median_error_ms: median_ms - formula_ms,
        sent_packets: sent,
        forwarded_packets: measured.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_timeout_follows_the_formula_of_the_standard() {
        let near = |distance: f64, expected: f64| (contention_timeout_ms(distance) - expected).abs() < 1e-9;
        assert!(near(0.0, 100.0) && near(250.0, 75.25) && near(500.0, 50.5) && near(900.0, 10.9));
        assert!(near(1000.0, 1.0) && near(1100.0, 1.0));
    }
}
