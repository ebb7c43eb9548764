//! A file of keyed records that survives crashes. The journal only appends to the file, and sometimes
//! compacts it.
//!
//! ```text
//! carnet state 1
//! @ 97 8f31c2d0                                          a commit: octets and CRC-32C of the next lines
//! 2001:db8:1::1234 {"home_address":"2001:db8:1::1234",...}
//! 2001:db8:1::5678 -                                     the record is deleted
//! own {"restart_counter":1800000000}
//! ```
//!
//! In a fleet, etcd also has records of [`RecordKey::Sessions`] and [`RecordKey::Session`].
//!
//! The last line of a key counts. A commit is on the disk entirely or not at all: the next commit begins only
//! when the previous one is on the disk. So if the commit at the end is incomplete, a crash has interrupted
//! it, and no acknowledgement has reported it. The reader truncates it. At any other place, an incomplete
//! commit is damage, and the journal refuses the file. To use half of the replay protection is worse than a
//! start that needs the operator.
//!
//! An embedded database would do more than necessary, and the size of the program is limited. Left out:
//! transactions of several writers, and reading during a write. A lock keeps a second writer out.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use carnet_api::config::PublicKey;
use carnet_linux::disk::{self, Disk, DiskFile};
use ipnet::Ipv6Net;

const FILE_HEADER: &[u8] = b"carnet state 1\n";
/// Octets with which each commit in the file begins.
const COMMIT_MARK: &[u8] = b"@ ";
/// Maximum size of each commit in a compacted file, in octets.
const MAX_COMPACTED_COMMIT_LENGTH: usize = 256 << 10;
/// Number of times that another process may replace the file while this process opens it; after that the
/// opening fails.
const MAX_FILE_REPLACEMENTS: u32 = 8;
/// Number of octets: the journal compacts the file when its outdated records take more octets than the
/// current records and this number together.
const COMPACTION_SLACK: u64 = 256 << 10;

/// Key of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKey {
    /// State of the station without the home agent's nodes.
    Own,
    /// State of one node of the home agent, named by its home address.
    Node(Ipv6Addr),
    /// Lease of an IPv4 address in the mobile network.
    Lease(Ipv4Addr),
    /// Prefix of the mobile network that carnet has delegated to a router on board.
    Delegation(Ipv6Net),
    /// Handshake timestamp and public keys of this station for encrypted sessions, in a fleet.
    Sessions,
    /// Timestamps, routes and keys of a remote end of encrypted sessions, by its public key, in a fleet.
    Session(PublicKey),
}

/// Name of [`RecordKey::Sessions`].
const SESSIONS_NAME: &str = "sessions";
/// Beginning of the name of each [`RecordKey::Session`].
const SESSION_NAME_PREFIX: &str = "session/";

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordKey::Own => f.write_str("own"),
            RecordKey::Node(home_address) => home_address.fmt(f),
            RecordKey::Lease(address) => address.fmt(f),
            RecordKey::Delegation(prefix) => prefix.fmt(f),
            RecordKey::Sessions => f.write_str(SESSIONS_NAME),
            RecordKey::Session(key) => write!(f, "{SESSION_NAME_PREFIX}{}", STANDARD.encode(key.0)),
        }
    }
}

impl FromStr for RecordKey {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<RecordKey> {
        match text {
            "own" => Ok(RecordKey::Own),
            SESSIONS_NAME => Ok(RecordKey::Sessions),
            text if text.starts_with(SESSION_NAME_PREFIX) => {
                let octets = STANDARD.decode(text.trim_start_matches(SESSION_NAME_PREFIX)).ok();
                let octets = octets.and_then(|octets| octets.try_into().ok());
                let octets = octets.with_context(|| format!("{text:?} has no public key"))?;
                Ok(RecordKey::Session(PublicKey(octets)))
            }
            text if text.contains('/') => {
                Ok(RecordKey::Delegation(text.parse().with_context(|| format!("{text:?} is no prefix"))?))
            }
            text => match text.parse().with_context(|| format!("{text:?} is no home address"))? {
                IpAddr::V6(home_address) => Ok(RecordKey::Node(home_address)),
                IpAddr::V4(address) => Ok(RecordKey::Lease(address)),
            },
        }
    }
}

/// New record of a key, one line of text; `None` removes the record.
pub type RecordChange = (RecordKey, Option<String>);

/// Content of an opened file.
#[derive(Debug)]
pub struct JournalContent {
    /// The record of each key.
    pub current_records: Vec<(RecordKey, String)>,
    /// Number of octets of an interrupted commit, which the reader has truncated.
    pub discarded_octets: u64,
}

/// An open journal file.
#[derive(Debug)]
pub struct Journal {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    /// Length of the valid part of the file; a failed commit may have left octets behind it.
    valid_length: u64,
    has_partial_write: bool,
    /// Place of the last commit in the file, until it is written once more; then `None`. The process that
    /// wrote it may have been killed before the commit was on the disk, or after the disk had refused it. In
    /// this case the commit is in the page cache only, and the kernel does not write it again.
    unconfirmed_commit: Option<(u64, usize)>,
    record_positions: RecordPositions,
    parent_directory: ParentDirectory,
}

/// Directory that contains the file's name.
#[derive(Debug)]
struct ParentDirectory {
    disk: Box<dyn Disk>,
    path: PathBuf,
    /// Whether this file has replaced another file, and a crash could still bring the other file back.
    /// Commits count as written only after the directory has been synced.
    needs_sync: bool,
}

impl ParentDirectory {
    fn of_file(disk: Box<dyn Disk>, file: &Path) -> ParentDirectory {
        ParentDirectory { disk, path: disk::directory_of(file).to_owned(), needs_sync: false }
    }

    /// Syncs the directory, so that the name of the file survives a crash.
    fn sync_if_needed(&mut self) -> io::Result<()> {
        if self.needs_sync {
            self.disk.sync_directory(&self.path)?;
            self.needs_sync = false;
        }
        Ok(())
    }
}

/// Offset and length of each key's record in the file.
#[derive(Debug, Default)]
struct RecordPositions {
    position_by_key: HashMap<RecordKey, (u64, u32)>,
    /// Sum of the octets of the current records.
    live_octets: u64,
}

impl Journal {
    /// Opens the file at `path`. If the file does not exist, creates it with the records `first`.
    ///
    /// # Errors
    /// Returns an error if the file is damaged, of another program, or in use, or if the disk fails. The
    /// error's text says what the operator can do.
    pub fn open_journal(
        disk: Box<dyn Disk>,
        path: &Path,
        first: &[RecordChange],
    ) -> anyhow::Result<(Journal, JournalContent)> {
        let mut directory = ParentDirectory::of_file(disk, path);
        let file = match open_locked(&*directory.disk, path)? {
            Some(file) => {
                // An earlier process may have renamed the file and been killed before it synced the
                // directory.
                directory.needs_sync = true;
                file
            }
            None => {
                let mut octets = FILE_HEADER.to_vec();
                octets.extend(encode_commit(first));
                let file = replace_file(path, &mut directory, |file| file.write_at(&octets, 0))?;
                directory
                    .sync_if_needed()
                    .with_context(|| format!("cannot write {}", directory.path.display()))?;
                file
            }
        };
        let octets = file.read_all().with_context(|| format!("cannot read {}", path.display()))?;
        let mut journal = Journal {
            file,
            path: path.to_owned(),
            valid_length: FILE_HEADER.len() as u64,
            has_partial_write: false,
            unconfirmed_commit: None,
            record_positions: RecordPositions::default(),
            parent_directory: directory,
        };
        journal.parse_content(&octets).with_context(|| {
            format!(
                "the state in {} cannot be used, and the station does not start with a part of it. Restore \
                 the file, or move it away: bindings then come back as routers register, but recorded \
                 Binding Updates that somebody sends again are not known as old until then",
                path.display()
            )
        })?;
        let torn = octets.len() as u64 - journal.valid_length;
        if torn > 0 {
            journal.has_partial_write = true;
            journal.repair_end().with_context(|| format!("cannot write {}", path.display()))?;
        }
        let mut records: Vec<(RecordKey, String)> =
            Vec::with_capacity(journal.record_positions.position_by_key.len());
        for (key, (at, length)) in &journal.record_positions.position_by_key {
            let text = octets.get(*at as usize..*at as usize + *length as usize).unwrap_or_default();
            records.push((*key, std::str::from_utf8(text)?.to_owned()));
        }
        Ok((journal, JournalContent { current_records: records, discarded_octets: torn }))
    }

    /// Reads the records in the octets of the file.
    fn parse_content(&mut self, octets: &[u8]) -> anyhow::Result<()> {
        ensure!(
            octets.starts_with(FILE_HEADER),
            "expected {:?} as the first line of a state file, found another",
            FILE_HEADER.escape_ascii().to_string()
        );
        let mut at = FILE_HEADER.len();
        while at < octets.len() {
            let Some((start, lines)) = find_whole_commit(octets, at) else {
                let later = (at + 1..octets.len()).find(|later| find_whole_commit(octets, *later).is_some());
                if let Some(later) = later {
                    bail!(
                        "octets {at} to {later} of the state file are damaged: expected a commit that \
                         matches its checksum"
                    );
                }
                break;
            };
            self.record_positions
                .note_record_positions(start as u64, lines)
                .with_context(|| format!("octet {start}"))?;
            self.unconfirmed_commit = Some((at as u64, start + lines.len() - at));
            at = start + lines.len();
            self.valid_length = at as u64;
        }
        Ok(())
    }

    /// Writes a commit; the commit is on the disk when this function returns. If the function fails, no part
    /// of the commit counts.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn append_commit(&mut self, changes: &[RecordChange]) -> io::Result<()> {
        self.parent_directory.sync_if_needed()?;
        self.repair_end()?;
        let octets = encode_commit(changes);
        self.has_partial_write = true;
        self.file.write_at(&octets, self.valid_length)?;
        self.file.sync_data()?;
        self.has_partial_write = false;
        self.record_positions.note_commit_positions(self.valid_length, &octets)?;
        self.valid_length += octets.len() as u64;
        Ok(())
    }

    /// Truncates a failed commit. Writes the last commit again if that commit may not be on the disk.
    fn repair_end(&mut self) -> io::Result<()> {
        if self.has_partial_write {
            self.file.set_len(self.valid_length)?;
            self.file.sync_data()?;
            self.has_partial_write = false;
        }
        if let Some((at, length)) = self.unconfirmed_commit {
            let mut octets = vec![0; length];
            self.file.read_at(&mut octets, at)?;
            self.file.write_at(&octets, at)?;
            self.file.sync_data()?;
            self.unconfirmed_commit = None;
        }
        Ok(())
    }

    /// Returns whether most records in the file are outdated.
    pub fn needs_compaction(&self) -> bool {
        self.valid_length > 2 * self.record_positions.live_octets + COMPACTION_SLACK
    }

    /// Writes a new file with only the current records. If the write fails, the old file stays. If the disk
    /// refuses to sync the directory, the old file has lost its name already. In this case the next commit
    /// fails instead of this function.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn compact_file(&mut self) -> anyhow::Result<()> {
        let mut old: Vec<(RecordKey, (u64, u32))> =
            self.record_positions.position_by_key.iter().map(|(key, at)| (*key, *at)).collect();
        old.sort_by_key(|(_, place)| *place);
        let (mut end, mut places) = (FILE_HEADER.len() as u64, RecordPositions::default());
        let file = replace_file(&self.path, &mut self.parent_directory, |file| {
            file.write_at(FILE_HEADER, 0)?;
            let (mut piece, mut size) = (Vec::new(), 0);
            for (index, (key, (at, length))) in old.iter().enumerate() {
                let mut value = vec![0; *length as usize];
                self.file.read_at(&mut value, *at)?;
                size += value.len();
                piece.push((*key, Some(String::from_utf8(value).map_err(io::Error::other)?)));
                if size >= MAX_COMPACTED_COMMIT_LENGTH || index + 1 == old.len() {
                    let octets = encode_commit(&piece);
                    file.write_at(&octets, end)?;
                    places.note_commit_positions(end, &octets)?;
                    end += octets.len() as u64;
                    (piece, size) = (Vec::new(), 0);
                }
            }
            Ok(())
        })?;
        (self.file, self.valid_length, self.has_partial_write, self.record_positions) =
            (file, end, false, places);
        self.unconfirmed_commit = None;
        let _ = self.parent_directory.sync_if_needed();
        Ok(())
    }
}

impl RecordPositions {
    /// Stores the offsets of the records in a commit at this offset of the file.
    fn note_commit_positions(&mut self, at: u64, octets: &[u8]) -> io::Result<()> {
        let head = octets.iter().position(|octet| *octet == b'\n').map_or(0, |newline| newline + 1);
        self.note_record_positions(at + head as u64, octets.get(head..).unwrap_or_default())
            .map_err(io::Error::other)
    }

    /// Stores the offsets of the records in a commit whose lines begin at this offset of the file.
    fn note_record_positions(&mut self, mut at: u64, lines: &[u8]) -> anyhow::Result<()> {
        for line in std::str::from_utf8(lines)?.split_inclusive('\n') {
            let (name, value) = line
                .strip_suffix('\n')
                .and_then(|line| line.split_once(' '))
                .context("expected a key and a value")?;
            let key: RecordKey = name.parse()?;
            let length = u32::try_from(value.len())?;
            let whole = |value: u32| name.len() as u64 + u64::from(value) + 2;
            let before = if value == "-" {
                self.position_by_key.remove(&key)
            } else {
                self.live_octets += whole(length);
                self.position_by_key.insert(key, (at + name.len() as u64 + 1, length))
            };
            self.live_octets -= before.map_or(0, |(_, length)| whole(length));
            at += line.len() as u64;
        }
        Ok(())
    }
}

/// Returns the octets of a commit; they are empty if there are no changes.
fn encode_commit(changes: &[RecordChange]) -> Vec<u8> {
    let mut lines = String::new();
    for (key, value) in changes {
        lines += &format!("{key} {}\n", value.as_deref().unwrap_or("-"));
    }
    if lines.is_empty() {
        return Vec::new();
    }
    let mut octets = format!("@ {} {:08x}\n", lines.len(), crc32c(lines.as_bytes())).into_bytes();
    octets.extend(lines.into_bytes());
    octets
}

/// Returns the lines of the commit at an offset, and the offset of its first line. Returns `None` if the
/// commit is incomplete.
fn find_whole_commit(octets: &[u8], at: usize) -> Option<(usize, &[u8])> {
    let rest = octets.get(at..)?.strip_prefix(COMMIT_MARK)?;
    // The first line has the length of the commit, which has at most twenty digits, and the checksum.
    let newline = rest.iter().take(32).position(|octet| *octet == b'\n')?;
    let (length, sum) = std::str::from_utf8(&rest[..newline]).ok()?.split_once(' ')?;
    let length: usize = length.parse().ok()?;
    let lines = rest.get(newline + 1..)?.get(..length)?;
    let is_whole = u32::from_str_radix(sum, 16).ok()? == crc32c(lines) && lines.ends_with(b"\n");
    is_whole.then_some((at + COMMIT_MARK.len() + newline + 1, lines))
}

/// Opens and locks the file of this name, if it exists. Before this process got the lock, the previous owner
/// may have replaced the file by a new one. In this case the lock covers only the old file, so the function
/// opens the new one.
fn open_locked(disk: &dyn Disk, path: &Path) -> anyhow::Result<Option<Box<dyn DiskFile>>> {
    for _ in 0..MAX_FILE_REPLACEMENTS {
        let opened = disk.open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let Some(file) = opened else { return Ok(None) };
        lock_file(&*file, path)?;
        if is_file_at_path(disk, &*file, path)? {
            return Ok(Some(file));
        }
    }
    bail!("another running station has locked the state file {}", path.display())
}

/// Returns whether the path still names this open file.
fn is_file_at_path(disk: &dyn Disk, file: &dyn DiskFile, path: &Path) -> anyhow::Result<bool> {
    disk.is_file_at_path(file, path).with_context(|| format!("cannot read {}", path.display()))
}

/// Replaces a file by a new one. After a crash, either the old or the new file exists, complete. After a sync
/// of the directory it is certain to be the new file. Only the owner may read the file, because it shows
/// where vehicles are.
fn replace_file(
    path: &Path,
    directory: &mut ParentDirectory,
    write: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
) -> anyhow::Result<Box<dyn DiskFile>> {
    let disk = &*directory.disk;
    let new = path.with_extension("new");
    // An interrupted replacement may have left this file. The code below truncates it, unless another process
    // has locked it.
    let file = disk.create(&new).with_context(|| format!("cannot create {}", new.display()))?;
    lock_file(&*file, &new)?;
    ensure!(
        is_file_at_path(disk, &*file, &new)?,
        "another running station has locked the state file {}",
        path.display()
    );
    let written = file.set_len(0).and_then(|()| write(&*file)).and_then(|()| file.sync_all());
    if written.is_err() {
        // The new file is incomplete, so it would only use disk space.
        let _ = disk.remove(&new);
    }
    written.with_context(|| format!("cannot write {}", new.display()))?;
    disk.rename(&new, path).with_context(|| format!("cannot replace {}", path.display()))?;
    directory.needs_sync = true;
    Ok(file)
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing the file is not enough to release its lock: a child process that is just starting has a
        // copy of every open file.
        self.file.unlock();
    }
}

/// Locks a file, so that only one station uses it.
fn lock_file(file: &dyn DiskFile, path: &Path) -> anyhow::Result<()> {
    match file.try_lock() {
        Ok(true) => Ok(()),
        Ok(false) => bail!("another running station has locked the state file {}", path.display()),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Returns the CRC-32C (RFC 3720 B.4) of these octets.
fn crc32c(octets: &[u8]) -> u32 {
    const CRC32C_TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0x82f6_3b78 } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !octets.iter().fold(!0, |sum, octet| sum >> 8 ^ CRC32C_TABLE[usize::from(sum as u8 ^ octet)])
}

#[cfg(test)]
mod tests;
