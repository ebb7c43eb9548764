//! Reads signal strengths from plain files: the last line of a file is the signal in dBm.
//!
//! A program may append a line for each value, or replace the file. The module watches the folder of the file
//! (inotify), so that it notices both at once, even if the file does not exist yet. It also reads the file at
//! intervals, because some file systems send no events, and the folder may appear later. A file gives a new
//! value only if a program has written it since the last reading.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use tokio::io::unix::AsyncFd;

use super::PLAUSIBLE_DBM;
use crate::async_descriptor::watch_readable;

/// Number of octets at the end of a file that carnet reads.
const TAIL_LENGTH: u64 = 256;

/// inotify events that report a changed file in a folder.
const FILE_CHANGE_EVENTS: u32 = libc::IN_MODIFY | libc::IN_CLOSE_WRITE | libc::IN_CREATE | libc::IN_MOVED_TO;

/// Values that change when a program writes a file: inode, length, and time (seconds and nanoseconds).
type FileStamp = (u64, u64, i64, i64);

/// A file that contains the signal of an interface.
#[derive(Debug)]
struct SignalFile {
    interface: String,
    path: PathBuf,
    is_watched: bool,
    /// File stamp and signal at the last reading.
    last_reading: Option<(FileStamp, i32)>,
    /// Last logged error about the file, so that carnet logs each error once; `None` if it has logged none
    /// since the last successful reading.
    last_logged_error: Option<String>,
}

/// All files that contain signals, and the inotify descriptor that watches their folders.
#[derive(Debug)]
pub(super) struct SignalFiles {
    signal_files: Vec<SignalFile>,
    inotify_descriptor: Option<AsyncFd<OwnedFd>>,
}

impl SignalFiles {
    /// Watches the files of these interfaces.
    pub(super) fn watch_files(files: Vec<(String, PathBuf)>) -> SignalFiles {
        let sources: Vec<SignalFile> = files
            .into_iter()
            .map(|(interface, path)| SignalFile {
                interface,
                path,
                is_watched: false,
                last_reading: None,
                last_logged_error: None,
            })
            .collect();
        let inotify = if sources.is_empty() { None } else { open_inotify().and_then(watch_readable).ok() };
        let mut files = SignalFiles { signal_files: sources, inotify_descriptor: inotify };
        files.watch_new_folders();
        files
    }

    pub(super) fn is_empty(&self) -> bool {
        self.signal_files.is_empty()
    }

    /// Watches folders that did not exist at the previous attempt.
    fn watch_new_folders(&mut self) {
        let Some(inotify) = &self.inotify_descriptor else { return };
        for source in self.signal_files.iter_mut().filter(|source| !source.is_watched) {
            let folder = source.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let Ok(folder) = CString::new(folder.as_os_str().as_bytes()) else { continue };
            // SAFETY: the descriptor is open as long as `inotify` lives, and the path ends with a zero octet.
            let added = unsafe {
                libc::inotify_add_watch(inotify.get_ref().as_raw_fd(), folder.as_ptr(), FILE_CHANGE_EVENTS)
            };
            source.is_watched = added >= 0;
        }
    }

    /// Returns whether a file in a watched folder has changed since the last call.
    pub(super) fn poll_changes(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(inotify) = &self.inotify_descriptor else { return false };
        let mut changed = false;
        let mut events = [0; 4096];
        while let Poll::Ready(Ok(mut ready)) = inotify.poll_read_ready(cx) {
            match ready.try_io(|fd| nix::unistd::read(fd, &mut events).map_err(io::Error::from)) {
                Ok(Ok(1..)) => changed = true,
                Err(_would_block) => {}
                // inotify has failed, but carnet still reads the files at intervals.
                Ok(_) => break,
            }
        }
        changed
    }

    /// Reads all files. Appends to `found` the interface and signal of each file that was written since the
    /// last call.
    pub(super) fn read_signals(&mut self, found: &mut Vec<(String, i32)>) {
        self.watch_new_folders();
        for source in &mut self.signal_files {
            let read = read_tail(&source.path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => String::new(),
                _ => format!("cannot read {}: {error}", source.path.display()),
            });
            let signal = read.and_then(|(stamp, text)| {
                let dbm = last_signal_in(&text).map_err(|line| {
                    let path = source.path.display();
                    format!("the last line of {path} is {line:?}, expected a signal in dBm such as -61")
                })?;
                Ok(dbm.map(|dbm| (stamp, dbm)))
            });
            match signal {
                Ok(signal) => {
                    source.last_logged_error = None;
                    if source.last_reading != signal {
                        source.last_reading = signal;
                        found.extend(signal.map(|(_, dbm)| (source.interface.clone(), dbm)));
                    }
                }
                Err(complaint) => {
                    if !complaint.is_empty() && source.last_logged_error.as_ref() != Some(&complaint) {
                        tracing::warn!("{complaint}");
                    }
                    source.last_logged_error = Some(complaint);
                }
            }
        }
    }
}

fn open_inotify() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let fd = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the last octets of a file, and the file's stamp from before the reading.
fn read_tail(path: &Path) -> io::Result<(FileStamp, Vec<u8>)> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let stamp = (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_LENGTH)))?;
    let mut text = Vec::new();
    file.take(TAIL_LENGTH).read_to_end(&mut text)?;
    Ok((stamp, text))
}

/// Returns the signal in the last complete line of a text; `None` for an empty text. A line without a line
/// end counts only if the text has no other line.
fn last_signal_in(text: &[u8]) -> Result<Option<i32>, String> {
    let text = String::from_utf8_lossy(text);
    let complete = match text.rfind('\n') {
        Some(end) => &text[..end],
        None => &text,
    };
    let line = complete.trim_end().rsplit('\n').next().unwrap_or("").trim();
    if line.is_empty() {
        return Ok(None);
    }
    let number = line.strip_suffix("dBm").unwrap_or(line).trim().parse::<f64>();
    let dbm = number.ok().filter(|n| n.is_finite()).map(|n| n.round() as i32);
    dbm.filter(|dbm| PLAUSIBLE_DBM.contains(dbm)).map(Some).ok_or_else(|| line.chars().take(40).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_is_the_last_line_of_file() {
        assert_eq!(last_signal_in(b""), Ok(None));
        assert_eq!(last_signal_in(b"\n\n"), Ok(None));
        assert_eq!(last_signal_in(b"-61"), Ok(Some(-61)));
        assert_eq!(last_signal_in(b"-61\n-70.6 dBm\n\n"), Ok(Some(-71)));
        // The last line is incomplete, so the function uses the line before it.
        assert_eq!(last_signal_in(b"-61\n-7"), Ok(Some(-61)));
        assert_eq!(last_signal_in(b"-61\r\n"), Ok(Some(-61)));
    }

    #[test]
    fn signal_file_error_shows_the_invalid_text() {
        for text in ["strong\n", "-500\n", "NaN\n", "1e99\n", "\u{fffd}\n"] {
            assert_eq!(last_signal_in(text.as_bytes()), Err(text.trim().into()));
        }
        assert_eq!(last_signal_in(&[b'x'; 200]).expect_err("is none").len(), 40);
        assert!(last_signal_in(&[0xff, 0xfe, b'\n']).is_err());
    }
}
