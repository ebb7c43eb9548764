//! Recording a run, and playing it again.
//!
//! A recording is a file of JSON lines. The first line is the [`Header`] with everything that a station is
//! started with besides its config; each following one is a [`Line`]: an input and when it came. Because the
//! station reads no clock and draws no random number of its own, the same config and recording give the same
//! outputs, to the octet. The config is not in the recording: it holds the keys.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use carnet_api::config::Config;
use carnet_base::{Time, WallTime};
use carnet_station::io::{Input, Output};
use carnet_station::{PersistentState, Station};
use carnet_wire::geonet::GnAddress;
use serde::{Deserialize, Serialize};

use crate::settings;

/// What a station is started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Header {
    /// Seed of its randomness.
    pub seed: u64,
    /// Monotonic time of the start.
    pub time: Time,
    /// Date of the start.
    pub wall: WallTime,
    /// What an earlier run left.
    pub state: PersistentState,
    /// The GN address, where the station is a GeoNetworking router: it may not be in the config.
    #[serde(default)]
    pub gn_address: Option<u64>,
}

/// One input.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    time: Time,
    wall: WallTime,
    input: Input,
}

/// Writes a recording, or nothing when none is wanted.
#[derive(Debug)]
pub struct Recorder(Option<BufWriter<File>>);

impl Recorder {
    /// A recorder into a new file, readable by its owner only: packets are private.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: Option<&Path>, header: &Header) -> anyhow::Result<Recorder> {
        let Some(path) = path else { return Ok(Recorder(None)) };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot write station.record {}", path.display()))?;
        let mut recorder = Recorder(Some(BufWriter::new(file)));
        recorder.line(header);
        Ok(recorder)
    }

    /// Whether anything is recorded, so that inputs need not be copied in vain.
    pub fn is_active(&self) -> bool {
        self.0.is_some()
    }

    /// Writes an input.
    pub fn record(&mut self, time: Time, wall: WallTime, input: Input) {
        self.line(&Line { time, wall, input });
    }

    /// Writes out what is buffered.
    pub fn flush(&mut self) {
        if let Some(Err(error)) = self.0.as_mut().map(Write::flush) {
            self.give_up(&error.into());
        }
    }

    fn line<T: Serialize>(&mut self, line: &T) {
        let Some(file) = &mut self.0 else { return };
        let written = serde_json::to_writer(&mut *file, line).map_err(anyhow::Error::from);
        if let Err(error) = written.and_then(|()| Ok(file.write_all(b"\n")?)) {
            self.give_up(&error);
        }
    }

    /// Ends the recording, with the reason.
    pub fn end(&mut self, reason: &str) {
        if self.0.is_some() {
            self.flush();
            tracing::warn!("the recording ends here: {reason}");
            self.0 = None;
        }
    }

    /// A full disk ends the recording, not the station.
    fn give_up(&mut self, error: &anyhow::Error) {
        tracing::error!("the recording ends here: {error}");
        self.0 = None;
    }
}

/// Plays a recording and prints every output as a JSON line: `{"time": seconds, "output": ...}`.
///
/// # Errors
/// When the recording cannot be read, with the line that is wrong.
pub fn replay(config: &Config, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = BufReader::new(file).lines().enumerate();
    let place = |number: usize| format!("{}:{}", path.display(), number + 1);
    let (number, first) = lines.next().with_context(|| format!("{}: empty", path.display()))?;
    let header: Header = serde_json::from_str(&first.with_context(|| place(number))?)
        .with_context(|| format!("{}: expected the header of a recording", place(number)))?;
    let station_config = settings::station(config, header.gn_address.map(GnAddress));
    let mut station = Station::new(station_config, header.state, header.seed, header.time, header.wall);
    print_outputs(&mut station, header.time, out)?;
    for (number, line) in lines {
        let line: Line = serde_json::from_str(&line.with_context(|| place(number))?)
            .with_context(|| format!("{}: expected an input", place(number)))?;
        // A refused command was refused when it was recorded, too.
        let _refusal = station.handle_input(line.time, line.wall, line.input);
        print_outputs(&mut station, line.time, out)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Printed<'a> {
    time: f64,
    output: &'a Output,
}

fn print_outputs(station: &mut Station, time: Time, out: &mut impl Write) -> anyhow::Result<()> {
    while let Some(output) = station.poll_output() {
        serde_json::to_writer(&mut *out, &Printed { time: time.as_secs_f64(), output: &output })?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
