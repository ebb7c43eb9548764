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

use super::frame::{self, GeoPosition, Mac, REMAINING_HOPS_OFFSET, SEQUENCE_NUMBER_OFFSET, SendingStation};
use super::node::{self, CarnetStation};
use carnet_testbed::clock::{self, SECOND};
use carnet_testbed::frame_socket::{
    ETHER_TYPE_GEONETWORKING, FRAMES_PER_BATCH, FrameSocket, message_headers,
};

pub const TESTER_NODE: &str = "gnt";
pub const FORWARDER_NODE: &str = "gnf";
pub const RADIO_INTERFACE: &str = "radio";
/// The forwarder's link-layer address.
const FORWARDER_MAC: Mac = [2, 0, 0, 0, 0xf0, 1];
pub const FORWARDER_POSITION: GeoPosition = GeoPosition { latitude: 488_375_000, longitude: 21_008_000 };
const NEIGHBOUR_COUNT: u8 = 10;
/// Number of sources that take turns, in the cases with many sources. With packets of this size no source
/// reaches `itsGnMaxPacketDataRate` below a million packets per second in total.
const SOURCE_COUNT: usize = 32 * FRAMES_PER_BATCH;
const PAYLOAD_SIZE: usize = 64;
/// Rates to try for loss, as shares of the throughput.
const LOSS_FREE_RATE_STEPS: [f64; 7] = [0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5];

/// Sequence number with which the next trial begins. The forwarder has not received it recently.
static NEXT_SEQUENCE: AtomicU16 = AtomicU16::new(0);

/// A case of the benchmark: kind of packets, and forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardingCase {
    /// The minimal relay, for comparison.
    Relay,
    /// GeoUnicast packets from many sources, forwarded greedily, with all parameters of the standard.
    UnicastManySources,
    /// GeoUnicast packets from one source, forwarded greedily, without packet rate control.
    UnicastOneSource,
    /// GeoBroadcast packets from many sources, forwarded greedily towards an area.
    BroadcastManySources,
}

impl ForwardingCase {
    /// All cases, in the order of a round.
    pub const ALL_CASES: [ForwardingCase; 4] = [
        ForwardingCase::Relay,
        ForwardingCase::UnicastManySources,
        ForwardingCase::UnicastOneSource,
        ForwardingCase::BroadcastManySources,
    ];

    /// Returns a description of the case.
    pub fn case_description(self) -> &'static str {
        match self {
            ForwardingCase::Relay => "packet socket relay (baseline)",
            ForwardingCase::UnicastManySources => "GUC, greedy, 2048 sources",
            ForwardingCase::UnicastOneSource => "GUC, greedy, one source",
            ForwardingCase::BroadcastManySources => "GBC towards an area, greedy, 2048 sources",
        }
    }
}

/// Counts of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct FloodTrial {
    /// Desired number of packets per second; `None` for as many as possible.
    #[serde(rename = "pace")]
    pub packets_per_second: Option<u64>,
    /// Number of packets per second that the tester sent.
    #[serde(rename = "offered")]
    pub offered_packets: u64,
    /// Packets per second that the forwarder sent back.
    #[serde(rename = "forwarded")]
    pub forwarded_packets: u64,
    /// Number of packets that the forwarder did not send back.
    #[serde(rename = "lost")]
    pub lost_packets: u64,
    /// Packets forwarded per second of processor time.
    #[serde(rename = "per_core_second")]
    pub packets_per_core_second: u64,
    /// Share of the time in which the forwarder waited for its core because of other programs, in per cent.
    #[serde(rename = "waited")]
    pub waiting_share: f64,
}

/// Results of a case in one round.
#[derive(Debug, Clone, Serialize)]
pub struct ForwardingRound {
    pub case: ForwardingCase,
    pub throughput: FloodTrial,
    /// First trial without loss; `None` if packets were lost even at the lowest rate.
    #[serde(rename = "loss_free")]
    pub loss_free_trial: Option<FloodTrial>,
    /// Trials with loss.
    #[serde(rename = "lossy")]
    pub trials_with_loss: Vec<FloodTrial>,
    /// carnet's counters of dropped packets, by reason.
    #[serde(rename = "drops")]
    pub drops_by_reason: std::collections::BTreeMap<String, u64>,
}

/// Creates the network namespaces of the two nodes, and the link between them.
pub fn build_nodes() -> anyhow::Result<()> {
    node::run_ip_commands(&format!(
        "netns add {TESTER_NODE}\n\
         netns add {FORWARDER_NODE}\n\
         link add {RADIO_INTERFACE} netns {TESTER_NODE} type veth peer name {RADIO_INTERFACE} \
         address {} netns {FORWARDER_NODE}\n\
         -n {TESTER_NODE} link set {RADIO_INTERFACE} up\n\
         -n {FORWARDER_NODE} link set {RADIO_INTERFACE} up",
        FORWARDER_MAC.map(|octet| format!("{octet:02x}")).join(":")
    ))
}

/// Measures a case once, with `time` nanoseconds for each trial.
pub fn measure_case(case: ForwardingCase, program: &Path, time: u64) -> anyhow::Result<ForwardingRound> {
    let forwarder = TestedForwarder::start_forwarder(case, program)?;
    let before = forwarder.drops_by_reason()?;
    let schedule = forwarder.scheduler_statistics_file()?;
    let throughput = run_trial(case, None, time, &schedule)?;
    let mut round = ForwardingRound {
        case,
        throughput,
        loss_free_trial: None,
        trials_with_loss: Vec::new(),
        drops_by_reason: Default::default(),
    };
    for step in LOSS_FREE_RATE_STEPS {
        let pace = (throughput.forwarded_packets as f64 * step) as u64;
        let trial = run_trial(case, Some(pace), time, &schedule)?;
        if trial.lost_packets == 0 {
            round.loss_free_trial = Some(trial);
            break;
        }
        round.trials_with_loss.push(trial);
    }
    round.drops_by_reason = forwarder.drops_by_reason()?;
    for (name, count) in &before {
        round.drops_by_reason.entry(name.clone()).and_modify(|after| *after -= count);
    }
    round.drops_by_reason.retain(|_, count| *count > 0);
    forwarder.stop_forwarder()?;
    ensure!(
        throughput.forwarded_packets > 0,
        "{}: expected forwarded packets, but the forwarding station sent none",
        case.case_description()
    );
    Ok(round)
}

/// The forwarder under test.
enum TestedForwarder {
    Carnet(CarnetStation),
    Relay { stop: Arc<AtomicBool>, thread: std::thread::JoinHandle<anyhow::Result<()>>, schedule: String },
}

impl TestedForwarder {
    fn start_forwarder(case: ForwardingCase, program: &Path) -> anyhow::Result<TestedForwarder> {
        if case == ForwardingCase::Relay {
            let stop = Arc::new(AtomicBool::new(false));
            let watched = stop.clone();
            let (named, name) = mpsc::channel();
            let thread = node::spawn_in_node(FORWARDER_NODE, Some(0), move || {
                named.send(format!("/proc/self/task/{}/schedstat", nix::unistd::gettid()))?;
                relay_frames(&watched)
            });
            return Ok(TestedForwarder::Relay { stop, thread, schedule: name.recv()? });
        }
        let (latitude, longitude) = FORWARDER_POSITION.to_degrees();
        let mut config = format!(
            "interface = '{RADIO_INTERFACE}'\nposition = 'fixed:{latitude},{longitude}'\nbeacon = {{ \
             interval = \
             '1h' }}\n"
        );
        if case == ForwardingCase::UnicastOneSource {
            config += "mib = { max_packet_data_rate = 0 }\n";
        }
        let mut carnet = CarnetStation::start(program, FORWARDER_NODE, Some(0), &config)?;
        announce_stations()?;
        carnet.wait_for_neighbours(usize::from(NEIGHBOUR_COUNT))?;
        Ok(TestedForwarder::Carnet(carnet))
    }

    fn drops_by_reason(&self) -> anyhow::Result<std::collections::BTreeMap<String, u64>> {
        let TestedForwarder::Carnet(carnet) = self else { return Ok(Default::default()) };
        let counters = carnet.counters()?;
        let all = counters.as_object().into_iter().flatten();
        let drop = |(name, count): (&String, &serde_json::Value)| {
            Some((name.strip_prefix("geonet.dropped.")?.to_owned(), count.as_u64()?))
        };
        Ok(all.filter_map(drop).collect())
    }

    fn scheduler_statistics_file(&self) -> anyhow::Result<String> {
        match self {
            TestedForwarder::Carnet(carnet) => Ok(carnet.scheduler_statistics_file()),
            TestedForwarder::Relay { schedule, .. } => Ok(schedule.clone()),
        }
    }

    fn stop_forwarder(self) -> anyhow::Result<()> {
        match self {
            TestedForwarder::Carnet(_) => Ok(()),
            TestedForwarder::Relay { stop, thread, .. } => {
                stop.store(true, Ordering::Relaxed);
                node::join_thread(thread)
            }
        }
    }
}

/// Returns the link-layer address of station `number` of a kind.
pub fn mac_address_of(kind: u8, number: usize) -> Mac {
    let [high, low] = (number as u16).to_be_bytes();
    [2, 0, 0, kind, high, low]
}

fn neighbour_station(number: u8) -> SendingStation {
    // The stations are 50 m apart, in a line towards the destination.
    let place = FORWARDER_POSITION.moved_north(50.0 * f64::from(number + 1));
    SendingStation {
        mac: mac_address_of(1, number.into()),
        position: place,
        timestamp: frame::gn_timestamp(clock::realtime_now()),
    }
}

/// Sends a beacon of each neighbour.
fn announce_stations() -> anyhow::Result<()> {
    node::run_in_node(TESTER_NODE, || {
        let link = FrameSocket::open(RADIO_INTERFACE, None)?;
        let beacons: Vec<Vec<u8>> =
            (0..NEIGHBOUR_COUNT).map(|number| neighbour_station(number).beacon_frame()).collect();
        link.send(&mut message_headers(), beacons.iter().map(Vec::as_slice))
    })
}

fn has_one_source(case: ForwardingCase) -> bool {
    matches!(case, ForwardingCase::UnicastOneSource | ForwardingCase::Relay)
}

/// Builds the packets of a case: all of them from one source, or each from another source.
fn build_packets(case: ForwardingCase) -> Vec<Vec<u8>> {
    let timestamp = frame::gn_timestamp(clock::realtime_now());
    let far = SendingStation {
        mac: mac_address_of(3, 1),
        position: FORWARDER_POSITION.moved_north(5000.0),
        timestamp,
    };
    // The payload is BTP-B to a port at which no service receives.
    let payload = [0xfe; PAYLOAD_SIZE];
    (0..SOURCE_COUNT)
        .map(|number| {
            let number = if has_one_source(case) { 0 } else { number };
            let source = SendingStation {
                mac: mac_address_of(2, number),
                position: FORWARDER_POSITION.moved_north(-300.0),
                timestamp,
            };
            match case {
                ForwardingCase::BroadcastManySources => {
                    source.geobroadcast_frame(FORWARDER_MAC, far.position, 500, 0, &payload)
                }
                _ => source.unicast_frame(FORWARDER_MAC, &far, 0, &payload),
            }
        })
        .collect()
}

/// Sends packets at this rate, and counts those that the forwarder sends back.
fn run_trial(
    case: ForwardingCase,
    pace: Option<u64>,
    time: u64,
    schedule: &str,
) -> anyhow::Result<FloodTrial> {
    let schedule = schedule.to_owned();
    if case != ForwardingCase::Relay {
        announce_stations()?;
    }
    node::join_thread(node::spawn_in_node(TESTER_NODE, Some(1), move || {
        let link = FrameSocket::open(RADIO_INTERFACE, None)?;
        let mut headers = message_headers();
        let mut all = build_packets(case);
        // Each source numbers its own packets. So with one source the number rises with each packet, and with
        // many sources after a round of all sources.
        let step = u16::from(has_one_source(case));
        let mut sequence = NEXT_SEQUENCE.load(Ordering::Relaxed);
        // Wait until no frame is in transit, because all arriving frames will be counted.
        std::thread::sleep(Duration::from_millis(50));
        let before = node::received_frames(RADIO_INTERFACE)?;
        let ran_before = parse_scheduler_times(&schedule)?;
        let (start, mut sent, mut next) = (clock::monotonic_now(), 0u64, 0usize);
        loop {
            let elapsed = clock::monotonic_now() - start;
            if elapsed >= time {
                break;
            }
            if let Some(pace) = pace {
                let due = u64::try_from(u128::from(elapsed) * u128::from(pace) / u128::from(SECOND))?;
                if due < sent + FRAMES_PER_BATCH as u64 {
                    std::hint::spin_loop();
                    continue;
                }
            }
            let batch = &mut all[next..next + FRAMES_PER_BATCH];
            for frame in batch.iter_mut() {
                frame[SEQUENCE_NUMBER_OFFSET..SEQUENCE_NUMBER_OFFSET + 2]
                    .copy_from_slice(&sequence.to_be_bytes());
                sequence = sequence.wrapping_add(step);
            }
            link.send(&mut headers, batch.iter().map(Vec::as_slice))?;
            sent += FRAMES_PER_BATCH as u64;
            next += FRAMES_PER_BATCH;
            if next == all.len() {
                next = 0;
                sequence = sequence.wrapping_add(1 - step);
            }
        }
        NEXT_SEQUENCE.store(sequence.wrapping_add(1), Ordering::Relaxed);
        let took = clock::monotonic_now() - start;
        let ran_after = parse_scheduler_times(&schedule)?;
        let mut back = 0;
        // Wait until no packet is in transit any more.
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = node::received_frames(RADIO_INTERFACE)? - before;
            if now == back {
                break;
            }
            back = now;
        }
        let per_second = |count: u64| (u128::from(count) * u128::from(SECOND) / u128::from(took)) as u64;
        Ok(FloodTrial {
            packets_per_second: pace,
            offered_packets: per_second(sent),
            forwarded_packets: per_second(back),
            lost_packets: sent.saturating_sub(back),
            packets_per_core_second: (u128::from(back) * u128::from(SECOND)
                / u128::from((ran_after.0 - ran_before.0).max(1)))
                as u64,
            waiting_share: (ran_after.1 - ran_before.1) as f64 * 100.0 / took as f64,
        })
    }))
}

/// Returns how long a process or thread has run, and has waited for a core, in nanoseconds.
fn parse_scheduler_times(schedule: &str) -> anyhow::Result<(u64, u64)> {
    let text = std::fs::read_to_string(schedule).with_context(|| format!("cannot read {schedule}"))?;
    let mut fields = text.split_whitespace().map(str::parse);
    match (fields.next(), fields.next()) {
        (Some(Ok(ran)), Some(Ok(waited))) => Ok((ran, waited)),
        _ => bail!("{schedule}: expected two numbers (run time and wait time of the thread), found {text:?}"),
    }
}

/// Runs the minimal relay until `stop` is set.
fn relay_frames(stop: &AtomicBool) -> anyhow::Result<()> {
    let link = FrameSocket::open(RADIO_INTERFACE, Some(ETHER_TYPE_GEONETWORKING))?;
    link.wait_at_most(Duration::from_millis(100))?;
    let (mut incoming, mut outgoing) = (message_headers(), message_headers());
    let mut frames = vec![vec![0; 2048]; FRAMES_PER_BATCH];
    let mut lengths = Vec::with_capacity(FRAMES_PER_BATCH);
    while !stop.load(Ordering::Relaxed) {
        link.receive(&mut incoming, &mut frames, &mut lengths)?;
        frames.iter_mut().zip(&lengths).for_each(|(frame, _)| {
            frame[..6].copy_from_slice(&mac_address_of(1, 9));
            frame[6..12].copy_from_slice(&FORWARDER_MAC);
            frame[REMAINING_HOPS_OFFSET] = frame[REMAINING_HOPS_OFFSET].saturating_sub(1);
        });
        link.send(&mut outgoing, frames.iter().zip(&lengths).map(|(frame, length)| &frame[..*length]))?;
    }
    Ok(())
}
