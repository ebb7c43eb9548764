//! Records a run, and reads a recording.
//!
//! A recording is a file of JSON lines. The first line is the [`RecordingHeader`], which has all values of
//! the start except the config. Each following line is a [`RecordedInput`]: an input and its time. The
//! station reads no clock and draws no random number of its own. So the same config and recording give the
//! same outputs, to the octet. The recording does not contain the config, because the config has the keys.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Lines, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use carnet_api::config::Config;
use carnet_base::{Rng, Seed, Time, WallTime};
use carnet_station::io::Input;
use carnet_station::{PersistentState, Station};
use carnet_wire::geonet::GnAddress;
use serde::{Deserialize, Serialize};

/// Start values of a recorded station.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// Seed of the station's random numbers, and so of its secrets.
    pub seed: Seed,
    /// Monotonic time of the start.
    pub time: Time,
    /// Date of the start.
    pub wall: WallTime,
    /// State that an earlier run has stored.
    pub state: PersistentState,
    /// GeoNetworking address of the station at the start; `None` without GeoNetworking, or if the address was
    /// not known yet.
    #[serde(default)]
    pub gn_address: Option<u64>,
}

impl RecordingHeader {
    /// Creates the station from `config` and this header.
    pub fn into_station(self, config: &Config) -> Station {
        let station = crate::station_config(config, self.gn_address.map(GnAddress));
        Station::new(station, self.state, Rng::from_seed(self.seed), self.time, self.wall)
    }
}

/// A line of a recording: one input.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordedInput {
    /// Time of the input.
    pub time: Time,
    /// Date of the input.
    pub wall: WallTime,
    /// The input.
    pub input: Input,
}

/// Number of earlier recordings that are kept when a new recording starts.
pub const MAX_EARLIER_RECORDINGS: u32 = 4;

/// A recording file to which a run is written.
#[derive(Debug)]
pub struct Recording(BufWriter<File>);

impl Recording {
    /// Creates a recording in a new file. Only its owner may read it, because packets are private. The
    /// recordings of the last [`MAX_EARLIER_RECORDINGS`] runs stay beside it, as `PATH.1` (the latest),
    /// `PATH.2` and so on. A recording that ends in a crash is the most valuable one, so a restart must not
    /// destroy it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created or written.
    pub fn create(path: &Path, header: &RecordingHeader) -> io::Result<Recording> {
        let kept = |number: u32| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        // If the path names a special file, for example a pipe, the recording is written to it without
        // renaming it.
        if fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0) {
            for number in (1..MAX_EARLIER_RECORDINGS).rev().filter(|number| kept(*number).exists()) {
                fs::rename(kept(number), kept(number + 1))?;
            }
            fs::rename(path, kept(1))?;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut recording = Recording(BufWriter::new(file));
        recording.write_line(header)?;
        Ok(recording)
    }

    /// Writes an input to the recording.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written; the recording is then useless.
    pub fn record_input(&mut self, time: Time, wall: WallTime, input: Input) -> io::Result<()> {
        self.write_line(&RecordedInput { time, wall, input })
    }

    /// Writes the buffered part of the recording to the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn write_line<T: Serialize>(&mut self, line: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// Reason why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the recording {}", path.display())]
    File {
        /// Path of the recording.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The file with this path is empty.
    #[error("{}: expected a recording, found an empty file", .0.display())]
    Empty(PathBuf),
    /// A line has unexpected content.
    #[error("{}:{line}: expected {expected}", path.display())]
    Line {
        /// Path of the recording.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
        /// Content that the reader expected in the line.
        expected: &'static str,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
}

/// The inputs of a recording, in their order.
#[derive(Debug)]
pub struct RecordedInputs {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
    line_number: usize,
}

impl RecordedInputs {
    /// Opens a recording, and reads its header.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a recording.
    pub fn open(path: &Path) -> Result<(RecordingHeader, RecordedInputs), ReadError> {
        let unreadable = |source| ReadError::File { path: path.to_owned(), source };
        let lines = BufReader::new(File::open(path).map_err(unreadable)?).lines();
        let mut inputs = RecordedInputs { path: path.to_owned(), lines, line_number: 0 };
        let header = inputs.read_line("the header of a recording");
        Ok((header.ok_or_else(|| ReadError::Empty(path.to_owned()))??, inputs))
    }

    fn read_line<T: for<'a> Deserialize<'a>>(
        &mut self,
        expected: &'static str,
    ) -> Option<Result<T, ReadError>> {
        let text = self.lines.next()?;
        self.line_number += 1;
        let (path, line) = (self.path.clone(), self.line_number);
        Some(match text {
            Err(source) => Err(ReadError::File { path, source }),
            Ok(text) => {
                let read = serde_json::from_slice(text.as_bytes());
                read.map_err(|source| ReadError::Line { path, line, expected, source })
            }
        })
    }
}

impl Iterator for RecordedInputs {
    type Item = Result<RecordedInput, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_line("an input")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed is a number as in simulations, or a text of 64 digits from which a station's secrets come.
    #[test]
    fn a_seed_is_a_number_or_64_digits() {
        let digits = "0123456789abcdef".repeat(4);
        let mut octets = [0; 32];
        octets
            .iter_mut()
            .zip([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].into_iter().cycle())
            .for_each(|(octet, value)| *octet = value);
        for (text, seed) in [
            ("7".to_string(), Seed::Number(7)),
            (u64::MAX.to_string(), Seed::Number(u64::MAX)),
            (format!("\"{digits}\""), Seed::Octets(octets)),
        ] {
            assert_eq!(serde_json::from_str::<Seed>(&text).expect("a seed"), seed);
            assert_eq!(serde_json::to_string(&seed).expect("text"), text);
        }
        assert!(serde_json::from_str::<Seed>(&format!("\"{}\"", &digits[2..])).is_err());
    }

    #[test]
    fn new_recording_keeps_earlier_recordings() {
        let folder = std::env::temp_dir().join(format!("carnet-recordings-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("bus-42.jsonl");
        for seed in 1..=7 {
            let header = RecordingHeader { seed: Seed::Number(seed), ..RecordingHeader::default() };
            Recording::create(&path, &header).and_then(|mut recording| recording.flush()).expect("a file");
        }
        let seed = |name: &str| RecordedInputs::open(&folder.join(name)).map(|(header, _)| header.seed).ok();
        let number = |number| Some(Seed::Number(number));
        let names = ["bus-42.jsonl", "bus-42.jsonl.1", "bus-42.jsonl.2", "bus-42.jsonl.4", "bus-42.jsonl.5"];
        assert_eq!(names.map(seed), [number(7), number(6), number(5), number(3), None]);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
