//! Reads and writes key files, which only their owner may read.
//!
//! A key that other users can read is no secret. So the module writes a key into a new file with mode 0600.
//! It refuses to read a file that other users may read or write, that belongs to another user, or that is no
//! regular file. The module checks the file after it has opened it, so that no other program can replace the
//! file in between.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Maximum size of a key file in octets.
const MAX_KEY_FILE_SIZE: u64 = 4096;

/// Writes a key into a new file that only its owner may read.
///
/// # Errors
/// Returns [`io::ErrorKind::AlreadyExists`] if the file exists; otherwise the kernel's error.
pub fn write_key_file(path: &Path, octets: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(octets)?;
    file.sync_all()
}

/// Reads a key file.
///
/// # Errors
/// Returns [`io::ErrorKind::PermissionDenied`] for a file that other users may read or write, or whose owner
/// is neither this user nor root. Returns [`io::ErrorKind::InvalidData`] if the path is no regular file or
/// the file is too long; otherwise the kernel's error. A symbolic link is not followed.
pub fn read_key_file(path: &Path) -> io::Result<Vec<u8>> {
    read_secret_file(path, MAX_KEY_FILE_SIZE)
}

/// Reads a file of secrets with at most `most` octets.
///
/// # Errors
/// Returns the errors of [`read_key_file`].
pub fn read_secret_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ELOOP) => {
                io::Error::new(io::ErrorKind::InvalidData, "expected a file, found a symbolic link")
            }
            _ => error,
        }
    })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "expected a file"));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let message = format!(
            "expected file mode 0600, found {mode:04o}: other users may read or write the file (chmod 600)"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let (owner, user) = (metadata.uid(), nix::unistd::geteuid().as_raw());
    if owner != user && owner != 0 {
        let message = format!("expected a file of user {user}, found one of user {owner}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    // The buffer has the size of the file, because a buffer that grows leaves a part of the key in freed
    // memory.
    let mut octets = Vec::with_capacity(metadata.len().min(most) as usize + 1);
    if file.take(most + 1).read_to_end(&mut octets)? as u64 > most {
        let message = format!("expected a file of at most {most} octets");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says no more by expect")]

    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn key_file_readable_by_others_is_refused() {
        let folder = std::env::temp_dir().join(format!("carnet-key-file-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("key");
        write_key_file(&path, b"secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(read_key_file(&path).unwrap(), b"secret");
        assert_eq!(write_key_file(&path, b"other").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for mode in [0o640, 0o604, 0o620, 0o601, 0o660] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_key_file(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_key_file(&path).unwrap(), b"secret");
        }
        let link = folder.join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(read_key_file(&link).unwrap_err().to_string(), "expected a file, found a symbolic link");
        assert_eq!(read_key_file(&folder).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let long = folder.join("long");
        write_key_file(&long, &[b'x'; 5000]).unwrap();
        assert_eq!(read_key_file(&long).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::remove_dir_all(&folder).unwrap();
    }
}
