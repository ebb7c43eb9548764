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

use super::flood::{FORWARDER, HOME, INTERFACE, TESTER, mac};
use super::frame::{self, BROADCAST, HEADER_TYPE, Mac, SEQUENCE, SOURCE_MID, SendingStation};
use super::node::{self, Carnet};
use super::{median, quantile};
use carnet_testbed::clock::{self, MILLISECOND};
use carnet_testbed::frame_socket::{ALL, Link, headers};

/// Distance in metres from each sender to the forwarder. The last sender is beyond the forwarder's range.
const DISTANCES: [u32; 4] = [250, 500, 900, 1100];
/// MIB parameter `itsGnDefaultMaxCommunicationRange` in metres.
const RANGE: f64 = 1000.0;
/// MIB parameters `itsGnCbfMinTime` and `itsGnCbfMaxTime` in milliseconds.
const TIMES: (f64, f64) = (1.0, 100.0);
/// Radius in metres of the destination area, which contains all senders and the forwarder.
const RADIUS: u16 = 1700;
/// Time between two packets; the senders take turns. The sender adds a random time of up to 5 ms, so that the
/// packets are not in step with any other period.
const PAUSE: u64 = 5 * MILLISECOND;

/// Delays of one sender's packets at the forwarder.
#[derive(Debug, Clone, Serialize)]
pub struct Delays {
    /// Distance in metres.
    pub distance: u32,
    /// Time by the formula of annex F.3, in milliseconds.
    pub formula_ms: f64,
    /// Measured median, in milliseconds.
    pub median_ms: f64,
    /// Measured 5th percentile, in milliseconds.
    pub p5_ms: f64,
    /// Measured 95th percentile, in milliseconds.
    pub p95_ms: f64,
    /// Measured median minus the time by the formula, in milliseconds.
    pub error_ms: f64,
    /// Packets that were sent.
    pub sent: usize,
    /// Packets that the forwarder repeated.
    pub returned: usize,
}

/// Returns the contention time by EN 302 636-4-1 F.3, in milliseconds.
fn formula(distance: f64) -> f64 {
    let (least, most) = TIMES;
    if distance > RANGE { least } else { most + (least - most) / RANGE * distance }
}

/// Measures `count` packets at each distance, in the nodes that [`super::flood`] has built.
pub fn measure(program: &Path, count: usize) -> anyhow::Result<Vec<Delays>> {
    let (latitude, longitude) = HOME.degrees();
    let config = format!(
        "interface = '{INTERFACE}'\nposition = 'fixed:{latitude},{longitude}'\nbeacon = {{ interval = '1h' \
         }}\n"
    );
    let mut carnet = Carnet::start(program, FORWARDER, None, &config)?;
    greet()?;
    carnet.wait_for_neighbours(DISTANCES.len())?;
    let observer = node::thread(TESTER, None, move || observe(count));
    // Wait until the observer has opened its socket, because packets that it misses would be missing in the
    // results.
    std::thread::sleep(Duration::from_millis(200));
    node::run_in_node(TESTER, move || {
        let link = Link::open(INTERFACE, None)?;
        let mut headers = headers();
        let mut random = clock::realtime() | 1;
        for sequence in 0..count {
            for distance in DISTANCES {
                let packet = sender(distance).circle(BROADCAST, HOME, RADIUS, sequence as u16, &[0xfe; 32]);
                link.send(&mut headers, [&packet[..]].into_iter())?;
                // A xorshift generator, whose numbers need not be very random.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                clock::sleep(PAUSE + random % PAUSE);
            }
        }
        Ok(())
    })?;
    let times = node::join(observer)?;
    DISTANCES.into_iter().map(|distance| delays(distance, count, &times)).collect()
}

fn sender(distance: u32) -> SendingStation {
    SendingStation {
        mac: mac(4, distance as usize),
        place: HOME.north(f64::from(distance)),
        timestamp: frame::timestamp(clock::realtime()),
    }
}

fn greet() -> anyhow::Result<()> {
    node::run_in_node(TESTER, || {
        let beacons = DISTANCES.map(|distance| sender(distance).beacon());
        Link::open(INTERFACE, None)?.send(&mut headers(), beacons.iter().map(Vec::as_slice))
    })
}

/// Time of a packet's first frame and of its repetition, in nanoseconds, by source and sequence number.
type Times = BTreeMap<(Mac, u16), (u64, Option<u64>)>;

/// Records the times of all GeoBroadcast packets until no more arrive.
fn observe(count: usize) -> anyhow::Result<Times> {
    let link = Link::open(INTERFACE, Some(ALL))?;
    link.stamp()?;
    link.wait_at_most(Duration::from_secs(1))?;
    let mut times = Times::new();
    let mut buffer = [0; 2048];
    while let Some((frame, time)) = link.stamped(&mut buffer)? {
        let (Some(&0x40), Some(mid), Some(sequence)) = (
            frame.get(HEADER_TYPE),
            frame.get(SOURCE_MID..SOURCE_MID + 6).and_then(|mid| Mac::try_from(mid).ok()),
            frame.get(SEQUENCE..SEQUENCE + 2).and_then(|number| <[u8; 2]>::try_from(number).ok()),
        ) else {
            continue;
        };
        let seen = times.entry((mid, u16::from_be_bytes(sequence))).or_insert((time, None));
        if time > seen.0 {
            seen.1.get_or_insert(time);
        }
    }
    ensure!(
        times.len() <= count * DISTANCES.len(),
        "expected only the station's frames on the benchmark's link, found frames of another program"
    );
    Ok(times)
}

fn delays(distance: u32, sent: usize, times: &Times) -> anyhow::Result<Delays> {
    let source = mac(4, distance as usize);
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
    let (formula_ms, median_ms) = (formula(f64::from(distance)), milliseconds(median(measured.clone())));
    Ok(Delays {
        distance,
        formula_ms,
        median_ms,
        p5_ms: milliseconds(quantile(&measured, 0.05)),
        p95_ms: milliseconds(quantile(&measured, 0.95)),
        error_ms: median_ms - formula_ms,
        sent,
        returned: measured.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_timeout_follows_the_formula_of_the_standard() {
        let near = |distance: f64, expected: f64| (formula(distance) - expected).abs() < 1e-9;
        assert!(near(0.0, 100.0) && near(250.0, 75.25) && near(500.0, 50.5) && near(900.0, 10.9));
        assert!(near(1000.0, 1.0) && near(1100.0, 1.0));
    }
}
