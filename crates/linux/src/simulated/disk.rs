//! A simulated disk. After a power cut it still has all synced writes, and a random part of the other writes.
//!
//! Of the writes since the last sync, a random number of the first ones survive a power cut. The next write
//! survives in part, and all further writes are lost. Changes of names in the directory survive in the same
//! way. A failed sync may have written some of the pending writes. As on Linux, the next sync does not write
//! the lost ones again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use carnet_base::Rng;

use crate::disk::{Disk, DiskFile};

#[derive(Debug, Clone)]
enum FileWrite {
    Octets(u64, Vec<u8>),
    Length(u64),
}

impl FileWrite {
    /// Performs the write on `content`, at most the given number of octets.
    fn apply_to(&self, content: &mut Vec<u8>, at_most: usize) {
        match self {
            FileWrite::Length(length) => content.resize(*length as usize, 0),
            FileWrite::Octets(at, octets) => {
                let octets = &octets[..octets.len().min(at_most)];
                let (at, end) = (*at as usize, *at as usize + octets.len());
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[at..end].copy_from_slice(octets);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Inode {
    /// Content that programs read.
    visible_content: Vec<u8>,
    /// Content that survives a power failure.
    durable_content: Vec<u8>,
    /// Writes since the last sync, in their order.
    unsynced_writes: Vec<FileWrite>,
    is_locked: bool,
}

#[derive(Debug, Clone)]
enum NameChange {
    Is(PathBuf, u64),
    Gone(PathBuf),
    Renamed(PathBuf, PathBuf),
}

impl NameChange {
    /// Returns the directory in which the name changes.
    fn directory(&self) -> Option<&Path> {
        let (NameChange::Is(path, _) | NameChange::Gone(path) | NameChange::Renamed(_, path)) = self;
        path.parent()
    }

    fn apply_to(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            NameChange::Is(path, inode) => drop(names.insert(path.clone(), *inode)),
            NameChange::Gone(path) => drop(names.remove(path)),
            NameChange::Renamed(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

#[derive(Debug)]
struct DiskState {
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    visible_names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    unsynced_name_changes: Vec<NameChange>,
    rng: Rng,
    is_full: bool,
    failure_probability: f64,
    /// Whether the writing process has died.
    has_process_died: bool,
}

impl DiskState {
    fn fail_at_random(&mut self) -> io::Result<()> {
        if self.has_process_died {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let trouble = self.failure_probability;
        match self.rng.is_true_with_probability(trouble) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }

    /// Writes a random number of the file's pending writes to the disk, beginning with the first.
    fn persist_some_writes(&mut self, inode: u64) {
        let DiskState { inodes, rng, .. } = self;
        let Some(inode) = inodes.get_mut(&inode) else { return };
        let count = rng.number_below(inode.unsynced_writes.len() as u64 + 1) as usize;
        for (index, write) in std::mem::take(&mut inode.unsynced_writes).iter().enumerate().take(count + 1) {
            let at_most = if index < count { usize::MAX } else { rng.number_below(200) as usize };
            if index < count || matches!(write, FileWrite::Octets(..)) {
                write.apply_to(&mut inode.durable_content, at_most);
            }
        }
    }
}

/// A simulated disk. Its content survives a restart of the simulated machine.
#[derive(Debug, Clone)]
pub struct SimulatedDisk(Arc<Mutex<DiskState>>);

impl SimulatedDisk {
    /// Creates an empty disk.
    pub fn new(rng: Rng) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(DiskState {
            inodes: BTreeMap::new(),
            next_inode: 1,
            visible_names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_name_changes: Vec::new(),
            rng,
            is_full: false,
            failure_probability: 0.0,
            has_process_died: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().expect("no thread has panicked with this lock")
    }

    /// Sets whether the disk is full, and the probability that a request fails.
    pub fn set_failure_probability(&self, full: bool, trouble: f64) {
        let mut state = self.state();
        (state.is_full, state.failure_probability) = (full, trouble);
    }

    /// Returns whether requests may fail: the disk is full, or the probability of a failure is above 0.
    pub fn may_fail(&self) -> bool {
        let state = self.state();
        state.is_full || state.failure_probability > 0.0
    }

    pub(super) fn set_process_died(&self, dead: bool) {
        self.state().has_process_died = dead;
    }

    /// Ends the process that uses the disk: its locks are released, and its writes stay.
    pub fn release_locks(&self) {
        self.state().inodes.values_mut().for_each(|inode| inode.is_locked = false);
    }

    /// Returns a copy of the disk as it would be after a power cut at this moment. The copy has no faults.
    pub fn after_power_cut(&self) -> SimulatedDisk {
        let mut state = self.state();
        let rng = state.rng.fork_generator();
        let mut copy = DiskState {
            inodes: state.inodes.clone(),
            next_inode: state.next_inode,
            visible_names: BTreeMap::new(),
            durable_names: state.durable_names.clone(),
            unsynced_name_changes: Vec::new(),
            rng,
            is_full: false,
            failure_probability: 0.0,
            has_process_died: false,
        };
        let count = copy.rng.number_below(state.unsynced_name_changes.len() as u64 + 1) as usize;
        state
            .unsynced_name_changes
            .iter()
            .take(count)
            .for_each(|naming| naming.apply_to(&mut copy.durable_names));
        copy.visible_names = copy.durable_names.clone();
        let inodes: Vec<u64> = copy.inodes.keys().copied().collect();
        for inode in inodes {
            copy.persist_some_writes(inode);
            if let Some(inode) = copy.inodes.get_mut(&inode) {
                (inode.visible_content, inode.is_locked) = (inode.durable_content.clone(), false);
            }
        }
        SimulatedDisk(Arc::new(Mutex::new(copy)))
    }

    /// Returns the length of a file in octets.
    pub fn file_size(&self, path: &Path) -> usize {
        let state = self.state();
        state
            .visible_names
            .get(path)
            .and_then(|inode| state.inodes.get(inode))
            .map_or(0, |inode| inode.visible_content.len())
    }

    /// Returns whether a file of this name exists.
    pub fn file_exists(&self, path: &Path) -> bool {
        self.state().visible_names.contains_key(path)
    }

    fn file(&self, inode: u64) -> Box<dyn DiskFile> {
        Box::new(SimulatedFile { simulated_disk: self.clone(), inode, holds_lock: AtomicBool::new(false) })
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        let inode = self.state().visible_names.get(path).copied();
        Ok(inode.map(|inode| self.file(inode)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let inode = match state.visible_names.get(path) {
            Some(inode) => *inode,
            None => {
                state.fail_at_random()?;
                let inode = state.next_inode;
                state.next_inode += 1;
                state.inodes.insert(inode, Inode::default());
                state.visible_names.insert(path.to_owned(), inode);
                state.unsynced_name_changes.push(NameChange::Is(path.to_owned(), inode));
                inode
            }
        };
        drop(state);
        Ok(self.file(inode))
    }

    fn is_file_at_path(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        let open = file.identity()?.1;
        Ok(self.state().visible_names.get(path) == Some(&open))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let state = self.state();
        Ok(state
            .visible_names
            .get(path)
            .and_then(|inode| state.inodes.get(inode))
            .map(|inode| inode.visible_content.clone()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.fail_at_random()?;
        let naming = NameChange::Renamed(from.to_owned(), to.to_owned());
        naming.apply_to(&mut state.visible_names);
        state.unsynced_name_changes.push(naming);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.visible_names.contains_key(path) {
            state.fail_at_random()?;
            state.visible_names.remove(path);
            state.unsynced_name_changes.push(NameChange::Gone(path.to_owned()));
        }
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.fail_at_random()?;
        let DiskState {
            unsynced_name_changes: between,
            durable_names: kept,
            inodes,
            visible_names: seen,
            ..
        } = &mut *state;
        between
            .extract_if(.., |naming| naming.directory() == Some(path))
            .for_each(|naming| naming.apply_to(kept));
        // A file also counts if its rename into this directory is still pending.
        let coming =
            |inode: &u64| between.iter().any(|it| matches!(it, NameChange::Is(_, named) if named == inode));
        let named = |inode: &u64| kept.values().chain(seen.values()).any(|named| named == inode);
        inodes.retain(|inode, it| it.is_locked || named(inode) || coming(inode));
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    simulated_disk: SimulatedDisk,
    inode: u64,
    /// Whether this open file holds the lock.
    holds_lock: AtomicBool,
}

impl SimulatedFile {
    fn with_inode<T>(&self, act: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let mut state = self.simulated_disk.state();
        state.inodes.get_mut(&self.inode).map(act).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn write_at_most(&self, write: FileWrite, at_most: usize) -> io::Result<()> {
        self.with_inode(|inode| {
            let write = match write {
                FileWrite::Octets(at, octets) => {
                    FileWrite::Octets(at, octets[..octets.len().min(at_most)].to_vec())
                }
                length @ FileWrite::Length(_) => length,
            };
            write.apply_to(&mut inode.visible_content, usize::MAX);
            inode.unsynced_writes.push(write);
        })
    }
}

impl DiskFile for SimulatedFile {
    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((1, self.inode))
    }

    fn read_all(&self) -> io::Result<Vec<u8>> {
        self.with_inode(|inode| inode.visible_content.clone())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.simulated_disk.state().fail_at_random()?;
        let octets = self.read_all()?;
        let there = octets.get(at as usize..at as usize + buffer.len());
        buffer.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, octets: &[u8], at: u64) -> io::Result<()> {
        let mut state = self.simulated_disk.state();
        let (full, state_is_dead, failed) = (state.is_full, state.has_process_died, state.fail_at_random());
        let most = state.rng.number_below(octets.len() as u64 + 1) as usize;
        drop(state);
        if state_is_dead {
            return failed;
        }
        let fails = full || failed.is_err();
        self.write_at_most(FileWrite::Octets(at, octets.to_vec()), if fails { most } else { usize::MAX })?;
        failed?;
        if full { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.simulated_disk.state().fail_at_random()?;
        self.write_at_most(FileWrite::Length(length), 0)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.simulated_disk.state();
        if let Err(error) = state.fail_at_random() {
            if !state.has_process_died {
                state.persist_some_writes(self.inode);
            }
            return Err(error);
        }
        drop(state);
        self.with_inode(|inode| {
            for write in std::mem::take(&mut inode.unsynced_writes) {
                write.apply_to(&mut inode.durable_content, usize::MAX);
            }
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        let is_free = self.with_inode(|inode| !std::mem::replace(&mut inode.is_locked, true))?;
        if is_free {
            self.holds_lock.store(true, Relaxed);
        }
        Ok(is_free)
    }

    fn unlock(&self) {
        if self.holds_lock.swap(false, Relaxed) {
            let _ = self.with_inode(|inode| inode.is_locked = false);
        }
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
