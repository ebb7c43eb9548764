//! Ensures that each seat (home agent of a fleet) has only one carnet-fleet process in a directory. A second
//! process would take the sockets of the first, and end its home agent.
//!
//! The module takes a lock on a file (`flock`); the kernel releases the lock when the process ends. Left out:
//! processes that use other directories.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The lock on the seat's file; dropping the value removes the file.
#[derive(Debug)]
pub struct SeatLock {
    path: PathBuf,
    _locked_file: Flock<File>,
}

impl SeatLock {
    /// Takes the lock of a seat.
    ///
    /// # Errors
    /// Returns an error that names the process with the lock, or an error if the file cannot be created.
    pub fn take_lock(directory: &Path, seat: &str) -> anyhow::Result<SeatLock> {
        let path = directory.join(format!("{seat}.lock"));
        let cannot = || format!("cannot lock {}", path.display());
        loop {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .with_context(cannot)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut lock) => {
                    // Another process may have deleted the file after this process opened it; then the
                    // lock would be on a deleted file.
                    let own = lock.metadata().with_context(cannot)?;
                    if fs::metadata(&path)
                        .is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
                    {
                        lock.set_len(0).with_context(cannot)?;
                        write!(lock, "{}", std::process::id()).with_context(cannot)?;
                        return Ok(SeatLock { path, _locked_file: lock });
                    }
                }
                Err((mut file, Errno::EWOULDBLOCK)) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    bail!(
                        "another carnet-fleet already runs for the home agent {seat} on this machine: \
                         process {holder} has locked {}",
                        path.display()
                    );
                }
                Err((_, error)) => return Err(error).with_context(cannot),
            }
        }
    }
}

impl Drop for SeatLock {
    fn drop(&mut self) {
        // Remove the file while this process still has the lock, so that it is not the file of another
        // process.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_carnet_fleet_of_a_home_agent_is_refused_naming_the_first() {
        let directory = std::env::temp_dir().join(format!("carnet-fleet-alone-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        // A crash has left this file, so no process has a lock on it.
        fs::write(directory.join("north.lock"), "4711").expect("a file");
        let first = SeatLock::take_lock(&directory, "north").expect("there is none");
        let _other = SeatLock::take_lock(&directory, "south").expect("another seat");
        let refused = SeatLock::take_lock(&directory, "north").expect_err("there is one").to_string();
        let own = format!(
            "already runs for the home agent north on this machine: process {} has locked ",
            std::process::id()
        );
        assert!(refused.contains(&own), "{refused}");
        drop(first);
        assert!(!directory.join("north.lock").exists());
        drop(SeatLock::take_lock(&directory, "north").expect("it has gone"));
        fs::remove_dir_all(&directory).expect("nobody uses it");
    }
}
