//! The station behind the C interface: the object to which a handle of [`crate::ffi`] points. This module
//! uses no pointers.

use std::path::Path;

use carnet_api::config::{Config, SecurityPolicy};
use carnet_base::{Seed, Time, WallTime};
use carnet_geonet::ReceivedFrame;
use carnet_geonet::ipv6_adaptation::HostFrame;
use carnet_settings::recording::{Recording, RecordingHeader};
use carnet_station::Station;
use carnet_station::io::{Frame, Input, Output, VirtualFrame};

/// Options with which a station is created.
#[derive(Debug, Clone)]
pub struct SimulationOptions<'a> {
    /// Text of the config file.
    pub config: &'a str,
    /// GN address of the station. If it is `None`, the config must not have GeoNetworking.
    pub gn_address: Option<u64>,
    /// Seed of all random numbers of the station.
    pub seed: u64,
    /// Simulation time of the start.
    pub now: Time,
    /// Date of the start.
    pub wall_at_start: WallTime,
    /// Path of the recording; `None` without a recording.
    pub recording_path: Option<&'a Path>,
}

/// Reason why the station has refused an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputRefusal {
    /// The caller has not taken all outputs of the previous input.
    NotDrained,
    /// The time of the input is earlier than that of the previous input.
    TimeRunsBackwards,
    /// The station refused the input, or the input cannot be read, or the recording cannot be written. The
    /// text has the reason.
    Refused(String),
}

/// A station that a simulator drives.
#[derive(Debug)]
pub struct SimulatedStation {
    station: Station,
    recording: Option<Recording>,
    /// Simulation time and date of the start.
    started_at: (Time, WallTime),
    now: Time,
    are_outputs_taken: bool,
    /// Octets of the output that the caller took last.
    last_output_octets: Vec<u8>,
}

impl SimulatedStation {
    /// Creates a station. The outputs of its start wait until the caller takes them.
    ///
    /// # Errors
    /// Returns the errors in the config, one line for each, or the reason why the recording cannot be
    /// created.
    pub fn new(options: &SimulationOptions<'_>) -> Result<SimulatedStation, String> {
        let config = Config::parse(options.config, "config")
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        if config.geonet.is_some() && options.gn_address.is_none() {
            return Err("the config has [geonet], expected a GN address".into());
        }
        if config
            .security
            .as_ref()
            .is_some_and(|security| security.unsigned_packet_policy != SecurityPolicy::Off)
        {
            return Err("[security]: a simulated station signs nothing, expected policy = \"off\"".into());
        }
        let header = RecordingHeader {
            seed: Seed::Number(options.seed),
            time: options.now,
            wall: options.wall_at_start,
            gn_address: options.gn_address,
            ..RecordingHeader::default()
        };
        let recording = match options.recording_path {
            None => None,
            Some(path) => {
                let made = Recording::create(path, &header);
                Some(made.map_err(|error| format!("cannot write {}: {error}", path.display()))?)
            }
        };
        Ok(SimulatedStation {
            station: header.into_station(&config),
            recording,
            started_at: (options.now, options.wall_at_start),
            now: options.now,
            are_outputs_taken: false,
            last_output_octets: Vec::new(),
        })
    }

    /// Returns the station that the simulator drives.
    pub fn station(&self) -> &Station {
        &self.station
    }

    fn wall_time(&self, now: Time) -> WallTime {
        self.started_at.1 + now.saturating_since(self.started_at.0)
    }

    /// Checks that the caller has taken all outputs and that time does not run backwards. Then records and
    /// handles the input.
    fn record_and_handle(&mut self, now: Time, input: impl FnOnce() -> Input) -> Result<(), InputRefusal> {
        if !self.are_outputs_taken {
            return Err(InputRefusal::NotDrained);
        }
        if now < self.now {
            return Err(InputRefusal::TimeRunsBackwards);
        }
        self.now = now;
        let wall = self.wall_time(now);
        if let Some(recording) = &mut self.recording {
            recording.record_input(now, wall, input()).map_err(|error| {
                InputRefusal::Refused(format!("the recording cannot be written: {error}"))
            })?;
        }
        self.are_outputs_taken = false;
        Ok(())
    }

    /// Handles a frame that the radio has received.
    ///
    /// # Errors
    /// Returns the reason of a refusal.
    pub fn handle_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) -> Result<(), InputRefusal> {
        self.record_and_handle(now, || Input::Frame(owned_frame(&frame)))?;
        self.station.handle_frame(now, frame);
        Ok(())
    }

    /// Handles a frame of this station that its receiver has not acknowledged.
    ///
    /// # Errors
    /// Returns the reason of a refusal.
    pub fn handle_unacknowledged(&mut self, now: Time, frame: ReceivedFrame<'_>) -> Result<(), InputRefusal> {
        self.handle_input(now, Input::Unacknowledged(owned_frame(&frame)))
    }

    /// Handles a frame that the host has sent on a virtual interface.
    ///
    /// # Errors
    /// Returns the reason of a refusal.
    pub fn handle_host_frame(
        &mut self,
        now: Time,
        link: u32,
        frame: HostFrame<'_>,
    ) -> Result<(), InputRefusal> {
        self.record_and_handle(now, || {
            let HostFrame { destination, source, ether_type, payload } = frame;
            Input::VirtualFrame(VirtualFrame {
                link,
                destination,
                source,
                ether_type,
                payload: payload.to_vec(),
            })
        })?;
        self.station.handle_host_frame(now, link, frame);
        Ok(())
    }

    /// Handles any input of a station.
    ///
    /// # Errors
    /// Returns the reason of a refusal.
    pub fn handle_input(&mut self, now: Time, input: Input) -> Result<(), InputRefusal> {
        self.record_and_handle(now, || input.clone())?;
        let wall = self.wall_time(now);
        self.station.handle_input(now, wall, input).map_err(InputRefusal::Refused)
    }

    /// Returns the next output. The caller gives the output's octets back by [`Self::keep_output_octets`].
    pub fn poll_output(&mut self) -> Option<Output> {
        let taken = std::mem::take(&mut self.last_output_octets);
        if taken.capacity() > 0 {
            self.station.recycle_buffer(taken);
        }
        let output = self.station.poll_output();
        self.are_outputs_taken = output.is_none();
        output
    }

    /// Keeps the octets of an output until the caller takes the next output, and returns them.
    pub fn keep_output_octets(&mut self, octets: Vec<u8>) -> &[u8] {
        self.last_output_octets = octets;
        &self.last_output_octets
    }

    /// Returns the time at which [`Input::Timeout`] is due, which is never in the past; `None` if no timer
    /// runs.
    pub fn next_deadline(&self) -> Option<Time> {
        self.station.poll_timeout().map(|due| due.max(self.now))
    }

    /// Returns all counters by name, in the format of `carnet show counters --json`.
    pub fn counters_json(&self) -> String {
        let counters: serde_json::Map<_, _> =
            self.station.counters().into_iter().map(|(name, count)| (name, count.into())).collect();
        serde_json::Value::Object(counters).to_string()
    }

    /// Writes the recording to its file up to the latest input.
    ///
    /// # Errors
    /// Returns the reason why the recording cannot be written.
    pub fn flush_recording(&mut self) -> Result<(), InputRefusal> {
        match self.recording.as_mut().map(Recording::flush) {
            Some(Err(error)) => {
                Err(InputRefusal::Refused(format!("the recording cannot be written: {error}")))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for SimulatedStation {
    fn drop(&mut self) {
        // A drop cannot report an error. A caller that needs the result calls `flush_recording` before.
        let _too_late = self.flush_recording();
    }
}

fn owned_frame(frame: &ReceivedFrame<'_>) -> Frame {
    Frame {
        source: frame.source,
        profile: None,
        destination: frame.destination,
        packet: frame.packet.to_vec(),
    }
}
