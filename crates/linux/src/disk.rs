//! File access with guarantees about the content after a crash. Its users are a station's stored state and
//! the list of kernel changes to revert ([`crate::Platform`]).
//!
//! The program uses the kernel's file systems ([`KernelDisk`]). Fault tests use a simulated disk that loses
//! unsynced writes.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A file system that finds files by name.
pub trait Disk: Debug + Send {
    /// Opens a file for reading and writing; `None` if no file has this name.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn open(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>>;
    /// Opens a file for reading and writing. Creates a missing file, readable only by its owner.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Returns whether the path leads to this open file.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn is_file_at_path(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool>;
    /// Reads a file; `None` if no file has this name.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Renames a file to `to`, and replaces a file with that name.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; a missing file is no error.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Writes the file names of a directory to the disk (fsync), so that they survive a crash.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Debug + Send {
    /// Returns device and inode of the file.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn identity(&self) -> io::Result<(u64, u64)>;
    /// Returns the whole content of the file.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    fn read_all(&self) -> io::Result<Vec<u8>>;
    /// Fills the buffer with the file's octets from the position `at` on.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all `octets` at the offset `at`. After an error, the file may contain a part of them.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    fn write_at(&self, octets: &[u8], at: u64) -> io::Result<()>;
    /// Shortens the file, or extends it with zeros.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Writes the content and the length of the file to the disk (fdatasync), so that they survive a crash.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    fn sync_data(&self) -> io::Result<()>;
    /// Writes the file's data and all its metadata to the disk.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn sync_all(&self) -> io::Result<()>;
    /// Locks the file; false if another process holds the lock.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn try_lock(&self) -> io::Result<bool>;
    /// Unlocks the file.
    fn unlock(&self);
}

/// The kernel's file systems.
#[derive(Debug, Clone, Copy)]
pub struct KernelDisk;

fn none_if_not_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl Disk for KernelDisk {
    fn open(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        let file = none_if_not_found(OpenOptions::new().read(true).write(true).open(path))?;
        Ok(file.map(|file| Box::new(file) as Box<dyn DiskFile>))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Ok(Box::new(options.open(path)?))
    }

    fn is_file_at_path(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        let open = file.identity()?;
        Ok(none_if_not_found(fs::metadata(path))?.is_some_and(|named| (named.dev(), named.ino()) == open))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        none_if_not_found(fs::read(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        none_if_not_found(fs::remove_file(path)).map(drop)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        match File::open(path).and_then(|directory| directory.sync_all()) {
            // Some file systems cannot write a single directory to the disk. They have no better answer.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            result => result,
        }
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

/// Returns the directory of a file.
pub fn directory_of(of: &Path) -> &Path {
    of.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces a small file. After a crash the name has the old or the new content, complete. Only the owner may
/// read a new file.
///
/// # Errors
/// Returns the kernel's error. The old file then stays.
pub fn replace_file(disk: &dyn Disk, path: &Path, octets: &[u8]) -> io::Result<()> {
    let temporary = path.with_added_extension("new");
    let file = disk.create(&temporary)?;
    file.set_len(0)?;
    file.write_at(octets, 0)?;
    file.sync_all()?;
    disk.rename(&temporary, path)?;
    // Some file systems cannot sync a directory. The file has its new name anyway.
    let _ = disk.sync_directory(directory_of(path));
    Ok(())
}
