//! Measures how many packets per second one carnet forwards.
//!
//! The network is two nodes and a veth pair. The tester sends packets for another station and counts the
//! packets that come back. The forwarder has one core for itself, including the kernel's work for it. Beside
//! carnet the benchmark measures a minimal relay, which does the least work of a forwarder with a packet
//! socket. The relay receives batches, changes addresses and hop limit, and sends batches. carnet and the
//! relay take turns.
//!
//! A trial offers packets at a rate for some time. The *throughput* is the number of packets that come back
//! per second under overload. For the *loss-free rate* the benchmark tries falling rates. It is the first
//! rate at which every packet comes back.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use super::frame::{self, Mac, Place, REMAINING_HOPS, SEQUENCE, SendingStation};
use super::node::{self, Carnet};
use carnet_testbed::clock::{self, SECOND};
use carnet_testbed::frame_socket::{BATCH, GEONETWORKING, Link, headers};

pub const TESTER: &str = "gnt";
pub const FORWARDER: &str = "gnf";
pub const INTERFACE: &str = "radio";
/// The forwarder's link-layer address.
const FORWARDER_MAC: Mac = [2, 0, 0, 0, 0xf0, 1];
pub const HOME: Place = Place { latitude: 488_375_000, longitude: 21_008_000 };
const NEIGHBOURS: u8 = 10;
/// Number of sources that take turns, in the cases with many sources. With packets of this size no source
/// reaches `itsGnMaxPacketDataRate` below a million packets per second in total.
const SOURCES: usize = 32 * BATCH;
const PAYLOAD: usize = 64;
/// Rates to try for loss, as shares of the throughput.
const STEPS: [f64; 7] = [0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5];

/// Sequence number with which the next trial begins. The forwarder has not received it recently.
static NEXT_SEQUENCE: AtomicU16 = AtomicU16::new(0);

/// A case of the benchmark: kind of packets, and forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FloodCase {
    /// The minimal relay, for comparison.
    Relay,
    /// GeoUnicast packets from many sources, forwarded greedily, with all parameters of the standard.
    UnicastManySources,
    /// GeoUnicast packets from one source, forwarded greedily, without packet rate control.
    UnicastOneSource,
    /// GeoBroadcast packets from many sources, forwarded greedily towards an area.
    BroadcastManySources,
}

impl FloodCase {
    /// All cases, in the order of a round.
    pub const ALL: [FloodCase; 4] = [
        FloodCase::Relay,
        FloodCase::UnicastManySources,
        FloodCase::UnicastOneSource,
        FloodCase::BroadcastManySources,
    ];

    /// Returns a description of the case.
    pub fn description(self) -> &'static str {
        match self {
            FloodCase::Relay => "packet socket relay (baseline)",
            FloodCase::UnicastManySources => "GUC, greedy, 2048 sources",
            FloodCase::UnicastOneSource => "GUC, greedy, one source",
            FloodCase::BroadcastManySources => "GBC towards an area, greedy, 2048 sources",
        }
    }
}

/// Counts of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Trial {
    /// Desired number of packets per second; `None` for as many as possible.
    pub pace: Option<u64>,
    /// Number of packets per second that the tester sent.
    pub offered: u64,
    /// Packets per second that the forwarder sent back.
    pub forwarded: u64,
    /// Number of packets that the forwarder did not send back.
    pub lost: u64,
    /// Packets forwarded per second of processor time.
    pub per_core_second: u64,
    /// Share of the time in which the forwarder waited for its core because of other programs, in per cent.
    pub waited: f64,
}

/// Results of a case in one round.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    pub case: FloodCase,
    pub throughput: Trial,
    /// First trial without loss; `None` if packets were lost even at the lowest rate.
    pub loss_free: Option<Trial>,
    /// Trials with loss.
    pub lossy: Vec<Trial>,
    /// carnet's counters of dropped packets, by reason.
    pub drops: std::collections::BTreeMap<String, u64>,
}

/// Creates the network namespaces of the two nodes, and the link between them.
pub fn build() -> anyhow::Result<()> {
    node::ip(&format!(
        "netns add {TESTER}\n\
         netns add {FORWARDER}\n\
         link add {INTERFACE} netns {TESTER} type veth peer name {INTERFACE} address {} netns {FORWARDER}\n\
         -n {TESTER} link set {INTERFACE} up\n\
         -n {FORWARDER} link set {INTERFACE} up",
        FORWARDER_MAC.map(|octet| format!("{octet:02x}")).join(":")
    ))
}

/// Measures a case once, with `time` nanoseconds for each trial.
pub fn measure(case: FloodCase, program: &Path, time: u64) -> anyhow::Result<Round> {
    let forwarder = Forwarder::start(case, program)?;
    let before = forwarder.drops()?;
    let schedule = forwarder.schedule()?;
    let throughput = trial(case, None, time, &schedule)?;
    let mut round = Round { case, throughput, loss_free: None, lossy: Vec::new(), drops: Default::default() };
    for step in STEPS {
        let pace = (throughput.forwarded as f64 * step) as u64;
        let trial = trial(case, Some(pace), time, &schedule)?;
        if trial.lost == 0 {
            round.loss_free = Some(trial);
            break;
        }
        round.lossy.push(trial);
    }
    round.drops = forwarder.drops()?;
    for (name, count) in &before {
        round.drops.entry(name.clone()).and_modify(|after| *after -= count);
    }
    round.drops.retain(|_, count| *count > 0);
    forwarder.stop()?;
    ensure!(
        throughput.forwarded > 0,
        "{}: expected forwarded packets, but the forwarding station sent none",
        case.description()
    );
    Ok(round)
}

/// The forwarder under test.
enum Forwarder {
    Carnet(Carnet),
    Relay { stop: Arc<AtomicBool>, thread: std::thread::JoinHandle<anyhow::Result<()>>, schedule: String },
}

impl Forwarder {
    fn start(case: FloodCase, program: &Path) -> anyhow::Result<Forwarder> {
        if case == FloodCase::Relay {
            let stop = Arc::new(AtomicBool::new(false));
            let watched = stop.clone();
            let (named, name) = mpsc::channel();
            let thread = node::thread(FORWARDER, Some(0), move || {
                named.send(format!("/proc/self/task/{}/schedstat", nix::unistd::gettid()))?;
                relay(&watched)
            });
            return Ok(Forwarder::Relay { stop, thread, schedule: name.recv()? });
        }
        let (latitude, longitude) = HOME.degrees();
        let mut config = format!(
            "interface = '{INTERFACE}'\nposition = 'fixed:{latitude},{longitude}'\nbeacon = {{ interval = \
             '1h' }}\n"
        );
        if case == FloodCase::UnicastOneSource {
            config += "mib = { max_packet_data_rate = 0 }\n";
        }
        let mut carnet = Carnet::start(program, FORWARDER, Some(0), &config)?;
        greet()?;
        carnet.wait_for_neighbours(usize::from(NEIGHBOURS))?;
        Ok(Forwarder::Carnet(carnet))
    }

    fn drops(&self) -> anyhow::Result<std::collections::BTreeMap<String, u64>> {
        let Forwarder::Carnet(carnet) = self else { return Ok(Default::default()) };
        let counters = carnet.counters()?;
        let all = counters.as_object().into_iter().flatten();
        let drop = |(name, count): (&String, &serde_json::Value)| {
            Some((name.strip_prefix("geonet.dropped.")?.to_owned(), count.as_u64()?))
        };
        Ok(all.filter_map(drop).collect())
    }

    fn schedule(&self) -> anyhow::Result<String> {
        match self {
            Forwarder::Carnet(carnet) => Ok(carnet.schedule()),
            Forwarder::Relay { schedule, .. } => Ok(schedule.clone()),
        }
    }

    fn stop(self) -> anyhow::Result<()> {
        match self {
            Forwarder::Carnet(_) => Ok(()),
            Forwarder::Relay { stop, thread, .. } => {
                stop.store(true, Ordering::Relaxed);
                node::join(thread)
            }
        }
    }
}

/// Returns the link-layer address of station `number` of a kind.
pub fn mac(kind: u8, number: usize) -> Mac {
    let [high, low] = (number as u16).to_be_bytes();
    [2, 0, 0, kind, high, low]
}

fn neighbour(number: u8) -> SendingStation {
    // The stations are 50 m apart, in a line towards the destination.
    let place = HOME.north(50.0 * f64::from(number + 1));
    SendingStation { mac: mac(1, number.into()), place, timestamp: frame::timestamp(clock::realtime()) }
}

/// Sends a beacon of each neighbour.
fn greet() -> anyhow::Result<()> {
    node::run_in_node(TESTER, || {
        let link = Link::open(INTERFACE, None)?;
        let beacons: Vec<Vec<u8>> = (0..NEIGHBOURS).map(|number| neighbour(number).beacon()).collect();
        link.send(&mut headers(), beacons.iter().map(Vec::as_slice))
    })
}

fn one_source(case: FloodCase) -> bool {
    matches!(case, FloodCase::UnicastOneSource | FloodCase::Relay)
}

/// Builds the packets of a case: all of them from one source, or each from another source.
fn packets(case: FloodCase) -> Vec<Vec<u8>> {
    let timestamp = frame::timestamp(clock::realtime());
    let far = SendingStation { mac: mac(3, 1), place: HOME.north(5000.0), timestamp };
    // The payload is BTP-B to a port at which no service receives.
    let payload = [0xfe; PAYLOAD];
    (0..SOURCES)
        .map(|number| {
            let number = if one_source(case) { 0 } else { number };
            let source = SendingStation { mac: mac(2, number), place: HOME.north(-300.0), timestamp };
            match case {
                FloodCase::BroadcastManySources => source.circle(FORWARDER_MAC, far.place, 500, 0, &payload),
                _ => source.unicast(FORWARDER_MAC, &far, 0, &payload),
            }
        })
        .collect()
}

/// Sends packets at this rate, and counts those that the forwarder sends back.
fn trial(case: FloodCase, pace: Option<u64>, time: u64, schedule: &str) -> anyhow::Result<Trial> {
    let schedule = schedule.to_owned();
    if case != FloodCase::Relay {
        greet()?;
    }
    node::join(node::thread(TESTER, Some(1), move || {
        let link = Link::open(INTERFACE, None)?;
        let mut headers = headers();
        let mut all = packets(case);
        // Each source numbers its own packets. So with one source the number rises with each packet, and with
        // many sources after a round of all sources.
        let step = u16::from(one_source(case));
        let mut sequence = NEXT_SEQUENCE.load(Ordering::Relaxed);
        // Wait until no frame is in transit, because all arriving frames will be counted.
        std::thread::sleep(Duration::from_millis(50));
        let before = node::received_frames(INTERFACE)?;
        let ran_before = ran(&schedule)?;
        let (start, mut sent, mut next) = (clock::monotonic(), 0u64, 0usize);
        loop {
            let elapsed = clock::monotonic() - start;
            if elapsed >= time {
                break;
            }
            if let Some(pace) = pace {
                let due = u64::try_from(u128::from(elapsed) * u128::from(pace) / u128::from(SECOND))?;
                if due < sent + BATCH as u64 {
                    std::hint::spin_loop();
                    continue;
                }
            }
            let batch = &mut all[next..next + BATCH];
            for frame in batch.iter_mut() {
                frame[SEQUENCE..SEQUENCE + 2].copy_from_slice(&sequence.to_be_bytes());
                sequence = sequence.wrapping_add(step);
            }
            link.send(&mut headers, batch.iter().map(Vec::as_slice))?;
            sent += BATCH as u64;
            next += BATCH;
            if next == all.len() {
                next = 0;
                sequence = sequence.wrapping_add(1 - step);
            }
        }
        NEXT_SEQUENCE.store(sequence.wrapping_add(1), Ordering::Relaxed);
        let took = clock::monotonic() - start;
        let ran_after = ran(&schedule)?;
        let mut back = 0;
        // Wait until no packet is in transit any more.
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = node::received_frames(INTERFACE)? - before;
            if now == back {
                break;
            }
            back = now;
        }
        let per_second = |count: u64| (u128::from(count) * u128::from(SECOND) / u128::from(took)) as u64;
        Ok(Trial {
            pace,
            offered: per_second(sent),
            forwarded: per_second(back),
            lost: sent.saturating_sub(back),
            per_core_second: (u128::from(back) * u128::from(SECOND)
                / u128::from((ran_after.0 - ran_before.0).max(1))) as u64,
            waited: (ran_after.1 - ran_before.1) as f64 * 100.0 / took as f64,
        })
    }))
}

/// Returns how long a process or thread has run, and has waited for a core, in nanoseconds.
fn ran(schedule: &str) -> anyhow::Result<(u64, u64)> {
    let text = std::fs::read_to_string(schedule).with_context(|| format!("cannot read {schedule}"))?;
    let mut fields = text.split_whitespace().map(str::parse);
    match (fields.next(), fields.next()) {
        (Some(Ok(ran)), Some(Ok(waited))) => Ok((ran, waited)),
        _ => bail!("{schedule}: expected two numbers (run time and wait time of the thread), found {text:?}"),
    }
}

/// Runs the minimal relay until `stop` is set.
fn relay(stop: &AtomicBool) -> anyhow::Result<()> {
    let link = Link::open(INTERFACE, Some(GEONETWORKING))?;
    link.wait_at_most(Duration::from_millis(100))?;
    let (mut incoming, mut outgoing) = (headers(), headers());
    let mut frames = vec![vec![0; 2048]; BATCH];
    let mut lengths = Vec::with_capacity(BATCH);
    while !stop.load(Ordering::Relaxed) {
        link.receive(&mut incoming, &mut frames, &mut lengths)?;
        frames.iter_mut().zip(&lengths).for_each(|(frame, _)| {
            frame[..6].copy_from_slice(&mac(1, 9));
            frame[6..12].copy_from_slice(&FORWARDER_MAC);
            frame[REMAINING_HOPS] = frame[REMAINING_HOPS].saturating_sub(1);
        });
        link.send(&mut outgoing, frames.iter().zip(&lengths).map(|(frame, length)| &frame[..*length]))?;
    }
    Ok(())
}
