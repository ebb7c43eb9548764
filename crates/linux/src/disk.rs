//! Files for code that must know what a crash leaves of them: the state of a station, and the list of changes
//! to revert ([`crate::Platform`]).
//!
//! In the program they are the kernel's ([`Files`]). Tests with faults use a disk that loses unsynced writes.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Where files are, by name.
pub trait Disk: Debug + Send {
    /// Opens a file to read and write it; `None` if there is no file of this name.
    ///
    /// # Errors
    /// The kernel's answer.
    fn open(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>>;
    /// The same; one that is not there is made, for its owner alone.
    ///
    /// # Errors
    /// The kernel's answer.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Whether an open file is the one of this name.
    ///
    /// # Errors
    /// The kernel's answer.
    fn has_name(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool>;
    /// Reads a file; `None` if there is no file of this name.
    ///
    /// # Errors
    /// The kernel's answer.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Gives a file the name of another, which ends with it.
    ///
    /// # Errors
    /// The kernel's answer.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; a missing file is no error.
    ///
    /// # Errors
    /// The kernel's answer.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names of the files in a directory survive a crash.
    ///
    /// # Errors
    /// The kernel's answer.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Debug + Send {
    /// Which file it is.
    ///
    /// # Errors
    /// The kernel's answer.
    fn identity(&self) -> io::Result<(u64, u64)>;
    /// All that is in it.
    ///
    /// # Errors
    /// The kernel's answer.
    fn read_all(&self) -> io::Result<Vec<u8>>;
    /// Fills the buffer with what begins at an octet.
    ///
    /// # Errors
    /// The kernel's answer.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all of it; after an error a part may be written.
    ///
    /// # Errors
    /// The kernel's answer.
    fn write_at(&self, octets: &[u8], at: u64) -> io::Result<()>;
    /// Cuts it, or fills it with zeros.
    ///
    /// # Errors
    /// The kernel's answer.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Waits until what is in it, and its length, survive a crash.
    ///
    /// # Errors
    /// The kernel's answer.
    fn sync_data(&self) -> io::Result<()>;
    /// Writes the file's data and all its metadata to the disk.
    ///
    /// # Errors
    /// The kernel's answer.
    fn sync_all(&self) -> io::Result<()>;
    /// Locks the file; false if another process holds the lock.
    ///
    /// # Errors
    /// The kernel's answer.
    fn try_lock(&self) -> io::Result<bool>;
    /// Lets others in.
    fn unlock(&self);
}

/// The kernel's.
#[derive(Debug, Clone, Copy)]
pub struct Files;

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl Disk for Files {
    fn open(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        let file = found(OpenOptions::new().read(true).write(true).open(path))?;
        Ok(file.map(|file| Box::new(file) as Box<dyn DiskFile>))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Ok(Box::new(options.open(path)?))
    }

    fn has_name(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        let open = file.identity()?;
        Ok(found(fs::metadata(path))?.is_some_and(|named| (named.dev(), named.ino()) == open))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        found(fs::read(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        found(fs::remove_file(path)).map(drop)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path).and_then(|directory| directory.sync_all())
    }
}

impl DiskFile for File {
    fn identity(&self) -> io::Result<(u64, u64)> {
        self.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut octets = Vec::new();
        Read::read_to_end(&mut &*self, &mut octets)?;
        Ok(octets)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }

    fn write_at(&self, octets: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(octets, at)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }

    fn try_lock(&self) -> io::Result<bool> {
        match File::try_lock(self) {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn unlock(&self) {
        let _ = File::unlock(self);
    }
}

/// The directory of a file.
pub fn directory(of: &Path) -> &Path {
    of.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts a small file in the place of another: after a crash there is one of the two, whole.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, octets: &[u8]) -> io::Result<()> {
    let temporary = path.with_added_extension("new");
    let file = disk.create(&temporary)?;
    file.set_len(0)?;
    file.write_at(octets, 0)?;
    file.sync_all()?;
    disk.rename(&temporary, path)?;
    // Some file systems cannot do this; the rename itself has happened.
    let _ = disk.sync_directory(directory(path));
    Ok(())
}
