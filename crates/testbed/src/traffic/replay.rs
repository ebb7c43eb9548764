//! Runs an attacker that records GeoNetworking frames and sends them again unchanged. This attack needs
//! neither a certificate nor a key.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::clock::{self, SECOND};
use crate::frame_socket::{ETHER_TYPE_GEONETWORKING, FrameSocket, message_headers};
use crate::process::{BackgroundProgram, command_in_node};
use crate::scenario::{Replay, Scenario};

/// Maximum length of a frame in octets.
const MAX_FRAME_LENGTH: usize = 2048;
/// Maximum number of frames that wait for their replay.
const MAX_WAITING_FRAMES: usize = 4096;

/// Settings of the attacker; also its command line.
#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArgs {
    /// Interface of the attacker's radio.
    #[arg(long)]
    pub interface: String,
    /// Nanoseconds after which a frame is sent again; repeat the option for several replays.
    #[arg(long)]
    pub after: Vec<u64>,
    /// Send only every n-th frame.
    #[arg(long, default_value_t = 1)]
    pub every: u32,
    /// Monotonic time of the end, in nanoseconds.
    #[arg(long)]
    pub end: u64,
    /// File for the outcome.
    #[arg(long)]
    pub output: PathBuf,
}

/// Counts of the attacker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayCounts {
    /// Number of frames that the attacker received.
    #[serde(rename = "heard")]
    pub heard_frames: u64,
    /// Number of frames that the attacker sent.
    #[serde(rename = "sent")]
    pub sent_frames: u64,
}

/// Records and replays frames until the end.
pub fn run_replay(args: &ReplayArgs) -> anyhow::Result<()> {
    // A socket for one EtherType does not receive the frames that this node sends.
    let link = FrameSocket::open(&args.interface, Some(ETHER_TYPE_GEONETWORKING))?;
    link.wait_at_most(Duration::from_millis(5))?;
    link.enable_timestamps()?;
    let (mut headers, mut buffer, mut outcome) =
        (message_headers(), vec![0; MAX_FRAME_LENGTH], ReplayCounts::default());
    // For each delay a queue of frames, in order of their due times.
    let mut lanes: Vec<VecDeque<(u64, Vec<u8>)>> = vec![VecDeque::new(); args.after.len()];
    while clock::monotonic_now() < args.end {
        if let Some((frame, _)) = link.receive_with_timestamp(&mut buffer)? {
            let now = clock::monotonic_now();
            outcome.heard_frames += 1;
            if outcome.heard_frames.is_multiple_of(u64::from(args.every)) {
                for (lane, after) in lanes.iter_mut().zip(&args.after) {
                    if lane.len() < MAX_WAITING_FRAMES {
                        lane.push_back((now + after, frame.to_vec()));
                    }
                }
            }
        }
        let now = clock::monotonic_now();
        for lane in &mut lanes {
            while let Some((_, frame)) = lane.pop_front_if(|(at, _)| *at <= now) {
                link.send(&mut headers, std::iter::once(frame.as_slice()))?;
                outcome.sent_frames += 1;
            }
        }
    }
    let file = std::fs::File::create(&args.output)
        .with_context(|| format!("cannot make {}", args.output.display()))?;
    serde_json::to_writer(file, &outcome)?;
    Ok(())
}

/// A running attacker that replays frames.
#[derive(Debug)]
pub struct RunningReplay {
    /// Prefix of the replay's metrics.
    pub name: String,
    daemon: BackgroundProgram,
    output_file: PathBuf,
}

/// Starts the replay, which runs until the end of the timetable.
pub fn start(scenario: &Scenario, replay: &Replay, end: u64, folder: &Path) -> anyhow::Result<RunningReplay> {
    let node = replay.from.get_ref();
    let radio = scenario.nodes.get(node).and_then(|node| node.radio.as_ref());
    let interface = radio.map(|radio| radio.get_ref().interface.clone()).context("no radio")?;
    let output = folder.join(format!("replay-{}.json", replay.name));
    let mut command = command_in_node(node, std::env::current_exe()?);
    command
        .args(["replay", "--interface", &interface, "--every", &replay.every.to_string()])
        .args(["--end", &end.to_string()])
        .arg("--output")
        .arg(&output);
    for after in &replay.after {
        command.args(["--after", &after.0.to_string()]);
    }
    let log = folder.join(format!("replay-{}.log", replay.name));
    let daemon = BackgroundProgram::start(&format!("replay in node {node}"), &log, &mut command)?;
    Ok(RunningReplay { name: replay.name.clone(), daemon, output_file: output })
}

impl RunningReplay {
    /// Fails if the replay has ended with an error.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        self.daemon.check_not_failed()
    }

    /// Waits for the end of the replay, and returns its counts.
    pub fn finish(&mut self) -> anyhow::Result<ReplayCounts> {
        self.daemon.wait_at_most(10 * SECOND);
        let text = std::fs::read(&self.output_file)
            .with_context(|| format!("the replay left no {}", self.output_file.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }
}
