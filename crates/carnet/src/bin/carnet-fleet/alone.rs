//! Ensures that each seat has only one program in a directory. A second program would take the sockets of the
//! first, and end its home agent.
//!
//! A lock on a file (`flock`) ensures that there is only one program; the kernel releases the lock when the
//! process ends. Left out: programs that use other directories.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The lock on the seat's file; dropping the value removes the file.
#[derive(Debug)]
pub struct Alone {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Alone {
    /// Takes the lock of a seat.
    ///
    /// # Errors
    /// Returns an error that names the process with the lock, or an error if the file cannot be created.
    pub fn in_place(directory: &Path, seat: &str) -> anyhow::Result<Alone> {
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
                    // The previous holder may have deleted the file after this process opened it.
                    let own = lock.metadata().with_context(cannot)?;
                    if fs::metadata(&path)
                        .is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
                    {
                        lock.set_len(0).with_context(cannot)?;
                        write!(lock, "{}", std::process::id()).with_context(cannot)?;
                        return Ok(Alone { path, _lock: lock });
                    }
                }
                Err((mut file, Errno::EWOULDBLOCK)) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    bail!(
                        "carnet-fleet keeps the seat {seat} here already: process {holder}, by {}",
                        path.display()
                    );
                }
                Err((_, error)) => return Err(error).with_context(cannot),
            }
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // This process still has the lock at this point, so no other process uses the file.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_and_told_of_the_first() {
        let directory = std::env::temp_dir().join(format!("carnet-fleet-alone-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        // A crash has left this file, so no process has a lock on it.
        fs::write(directory.join("north.lock"), "4711").expect("a file");
        let first = Alone::in_place(&directory, "north").expect("there is none");
        let _other = Alone::in_place(&directory, "south").expect("another seat");
        let refused = Alone::in_place(&directory, "north").expect_err("there is one").to_string();
        let own = format!("keeps the seat north here already: process {}, by ", std::process::id());
        assert!(refused.contains(&own), "{refused}");
        drop(first);
        assert!(!directory.join("north.lock").exists());
        drop(Alone::in_place(&directory, "north").expect("it has gone"));
        fs::remove_dir_all(&directory).expect("nobody uses it");
    }
}
