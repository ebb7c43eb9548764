//! Records a run, and replays a recording. [`carnet_settings::recording`] describes the file.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use carnet_api::config::Config;
use carnet_base::{Rng, Time, WallTime};
pub use carnet_settings::recording::RecordingHeader;
use carnet_settings::recording::{RecordedInputs, Recording};
use carnet_station::Station;
use carnet_station::io::{Input, Output};
use serde::Serialize;

use crate::settings::security::load_security;

/// Writes a recording, if the config names a file for it.
#[derive(Debug, Default)]
pub struct Recorder(Option<Recording>);

impl Recorder {
    /// Creates a recorder. If `path` is given, it creates the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn create_recorder(path: Option<&Path>, header: &RecordingHeader) -> anyhow::Result<Recorder> {
        let Some(path) = path else { return Ok(Recorder(None)) };
        let recording = Recording::create(path, header)
            .with_context(|| format!("cannot write station.record {}", path.display()))?;
        Ok(Recorder(Some(recording)))
    }

    /// Returns whether the recorder writes a recording. If it does not, the caller need not copy the inputs.
    pub fn is_active(&self) -> bool {
        self.0.is_some()
    }

    /// Writes an input.
    pub fn record_input(&mut self, time: Time, wall: WallTime, input: Input) {
        let written = self.0.as_mut().map(|recording| recording.record_input(time, wall, input));
        self.end_on_write_error(written);
    }

    /// Writes the buffered part of the recording to the file.
    pub fn flush_recording(&mut self) {
        let written = self.0.as_mut().map(Recording::flush);
        self.end_on_write_error(written);
    }

    /// Ends the recording with an entry that has the reason.
    pub fn end_recording(&mut self, reason: &str) {
        if self.0.is_some() {
            self.flush_recording();
            tracing::warn!("station.record: the recording of inputs has ended: {reason}");
            self.0 = None;
        }
    }

    /// Ends the recording after a write error, such as a full disk. The station continues without a
    /// recording.
    fn end_on_write_error(&mut self, written: Option<std::io::Result<()>>) {
        if let Some(Err(error)) = written {
            tracing::error!("station.record: the recording of inputs has ended: {error}");
            self.0 = None;
        }
    }
}

/// Replays a recording and prints every output as a JSON line: `{"time": seconds, "output": ...}`.
///
/// # Errors
/// Returns an error that names the line, if the recording cannot be read.
pub fn replay_recording(config: &Config, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let (header, inputs) = RecordedInputs::open(path)?;
    let start = header.time;
    let security = load_security(config, Rng::independent_of_seed(header.seed), header.wall)?;
    let wall = header.wall;
    let mut station = header.into_station(config);
    if let Some(entity) = security.security_entity {
        station.start_security(start, wall, entity);
    }
    print_outputs(&mut station, start, out)?;
    for line in inputs {
        let line = line?;
        // The recording also has commands that the station refused. The replay refuses them again.
        let _refusal = station.handle_input(line.time, line.wall, line.input);
        print_outputs(&mut station, line.time, out)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct PrintedOutput<'a> {
    time: f64,
    output: &'a Output,
}

fn print_outputs(station: &mut Station, time: Time, out: &mut impl Write) -> anyhow::Result<()> {
    while let Some(output) = station.poll_output() {
        let mut line = serde_json::to_vec(&PrintedOutput { time: time.as_secs_f64(), output: &output })?;
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(())
}
