//! Panics: writes a backtrace to the log, and a crash report for `carnet support-bundle`.
//!
//! The hook writes backtrace and report while the thread that panics still has its stack. It writes to stderr
//! directly, because that thread may hold a lock of the log. A crash report is a file
//! `NAME.crash.SECONDS.txt` in `station.state_dir`, readable for its owner only. A station has at most
//! [`MAX_CRASH_REPORTS`] reports of [`MAX_REPORT_LENGTH`] octets each; a new report replaces the oldest one.
//! A report has the place and message of the panic and the names of functions, but no arguments and no memory
//! contents. The `Debug` output of no type shows a key, so no message contains a key.

use std::backtrace::Backtrace;
use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use carnet_linux::clock;

use crate::log;

/// Maximum number of crash reports of a station.
const MAX_CRASH_REPORTS: usize = 4;
/// Maximum size of a crash report, in octets.
const MAX_REPORT_LENGTH: usize = 64 << 10;
/// Maximum number of characters of a panic's message in a report.
const MAX_PANIC_MESSAGE_LENGTH: usize = 1000;
/// Number of panics of one process that get a backtrace. If the process survives panics (unwinding), a peer
/// may be able to cause many.
const MAX_BACKTRACES: u32 = 4;

/// Directory of the crash reports, and the station's name in their file names.
static REPORT_LOCATION: OnceLock<(PathBuf, String)> = OnceLock::new();
static PANIC_COUNT: AtomicU32 = AtomicU32::new(0);

/// Installs the hook, which writes a backtrace of each panic to the log.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let first = PANIC_COUNT.fetch_add(1, Ordering::Relaxed) < MAX_BACKTRACES;
        let text = describe_panic(panic, first.then(Backtrace::force_capture).as_ref());
        let _ = io::stderr().lock().write_all(text.as_bytes());
        if let Some((directory, station)) = REPORT_LOCATION.get().filter(|_| first)
            && let Err(error) = write_report(directory, station, unix_seconds(), &text)
        {
            let _ = writeln!(io::stderr().lock(), "carnet: cannot write a crash report: {error}");
        }
    }));
}

/// Makes the hook also write a crash report of each panic into a directory, under the name of the station.
pub fn set_report_location(directory: &Path, station: &str) {
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let _ = REPORT_LOCATION.set((directory, station.to_owned()));
}

/// Returns the paths of a station's crash reports in a directory, the oldest first.
///
/// # Errors
/// Returns an error if the directory cannot be read.
pub fn report_paths(directory: &Path, station: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = name.strip_prefix(station).and_then(|rest| rest.strip_prefix(".crash."));
        if let Some(number) = number.and_then(|rest| rest.strip_suffix(".txt")?.parse::<u64>().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn unix_seconds() -> u64 {
    clock::wall_time().as_unix_nanos() / 1_000_000_000
}

/// Writes a crash report, and removes the oldest reports if there are too many.
fn write_report(directory: &Path, station: &str, seconds: u64, text: &str) -> io::Result<()> {
    let known = report_paths(directory, station)?;
    for path in known.iter().take((known.len() + 1).saturating_sub(MAX_CRASH_REPORTS)) {
        fs::remove_file(path)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    // If a report of the same second exists, the new report takes the next number.
    for number in seconds..seconds + MAX_CRASH_REPORTS as u64 {
        match options.open(directory.join(format!("{station}.crash.{number}.txt"))) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(mut file) => {
                file.write_all(text.as_bytes())?;
                return file.sync_all();
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns the lines about a panic. The panic's message becomes one line, so that it cannot look like a line
/// of the log.
fn describe_panic(panic: &PanicHookInfo<'_>, backtrace: Option<&Backtrace>) -> String {
    let mut text = BoundedText(String::new());
    let thread = std::thread::current();
    let message =
        log::as_single_line(panic.payload_as_str().unwrap_or("no message"), MAX_PANIC_MESSAGE_LENGTH);
    // `BoundedText` cuts the text at its maximum size, so a long text is no error here.
    let _ = write!(
        text,
        "carnet {} panicked, {} seconds after 1970, in thread {}",
        env!("CARGO_PKG_VERSION"),
        unix_seconds(),
        thread.name().unwrap_or("without a name")
    );
    let _ = panic.location().map_or(Ok(()), |place| write!(text, ", at {place}"));
    let _ = writeln!(text, ": {message}");
    if let Some(backtrace) = backtrace {
        let _ = writeln!(text, "backtrace:\n{backtrace}");
    }
    text.0
}

/// A text of at most [`MAX_REPORT_LENGTH`] octets; the backtrace of a deep stack may be longer.
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_REPORT_LENGTH {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::scratch::ScratchFolder;

    #[test]
    fn station_keeps_four_private_crash_reports() {
        let scratch = ScratchFolder::new();
        for name in ["bus.state", "bus.crash.x.txt", "bus-42.crash.5.txt", "bus.crash.6.txt.old"] {
            fs::write(scratch.path().join(name), "").expect("a file of something else");
        }
        for at in [9, 10, 10, 11, 30, 31] {
            write_report(scratch.path(), "bus", at, &format!("panic {at}")).expect("a report");
        }
        let found = report_paths(scratch.path(), "bus").expect("reports");
        let texts: Vec<_> = found.iter().map(|path| fs::read_to_string(path).expect("a report")).collect();
        assert_eq!(texts, ["panic 10", "panic 11", "panic 30", "panic 31"]);
        for path in &found {
            assert_eq!(fs::metadata(path).expect("a report").mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(scratch.path()).expect("a directory").count(), 4 + MAX_CRASH_REPORTS);
    }

    #[test]
    fn crash_report_is_cut_at_its_limit() {
        let mut text = BoundedText(String::new());
        while writeln!(text, "a frame").is_ok() {}
        assert!((MAX_REPORT_LENGTH - 8..=MAX_REPORT_LENGTH).contains(&text.0.len()), "{}", text.0.len());
    }
}
