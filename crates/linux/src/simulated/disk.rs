//! A simulated disk. After a power cut it still has all synced writes, and a random part of the other writes.
//!
//! Of the writes since the last sync, a power cut keeps the first ones, and the first octets of the next
//! write. The rest is lost. The same holds for changes of names in the directory. A failed sync may have
//! written some of the pending writes. As on Linux, the next sync does not write the lost ones again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use carnet_base::Rng;

use crate::disk::{Disk, DiskFile};

#[derive(Debug, Clone)]
enum Write {
    Octets(u64, Vec<u8>),
    Length(u64),
}

impl Write {
    /// Performs the write on `content`, at most the given number of octets.
    fn apply(&self, content: &mut Vec<u8>, at_most: usize) {
        match self {
            Write::Length(length) => content.resize(*length as usize, 0),
            Write::Octets(at, octets) => {
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
    /// Content that programs read. The next field is what a power failure leaves.
    content: Vec<u8>,
    content_on_disk: Vec<u8>,
    /// Writes since the last sync, in their order.
    between: Vec<Write>,
    locked: bool,
}

#[derive(Debug, Clone)]
enum Naming {
    Is(PathBuf, u64),
    Gone(PathBuf),
    Renamed(PathBuf, PathBuf),
}

impl Naming {
    /// Returns the directory in which the name changes.
    fn directory(&self) -> Option<&Path> {
        let (Naming::Is(path, _) | Naming::Gone(path) | Naming::Renamed(_, path)) = self;
        path.parent()
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            Naming::Is(path, inode) => drop(names.insert(path.clone(), *inode)),
            Naming::Gone(path) => drop(names.remove(path)),
            Naming::Renamed(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

#[derive(Debug)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    seen: BTreeMap<PathBuf, u64>,
    kept: BTreeMap<PathBuf, u64>,
    between: Vec<Naming>,
    rng: Rng,
    full: bool,
    failure_probability: f64,
    /// Whether the writing process has died.
    is_dead: bool,
}

impl State {
    fn stumble(&mut self) -> io::Result<()> {
        if self.is_dead {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let trouble = self.failure_probability;
        match self.rng.chance(trouble) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }

    /// Writes a random number of the file's pending writes to the disk, beginning with the first.
    fn keep_some(&mut self, inode: u64) {
        let State { inodes, rng, .. } = self;
        let Some(inode) = inodes.get_mut(&inode) else { return };
        let count = rng.below(inode.between.len() as u64 + 1) as usize;
        for (index, write) in std::mem::take(&mut inode.between).iter().enumerate().take(count + 1) {
            let at_most = if index < count { usize::MAX } else { rng.below(200) as usize };
            if index < count || matches!(write, Write::Octets(..)) {
                write.apply(&mut inode.content_on_disk, at_most);
            }
        }
    }
}

/// A simulated disk. Its content survives a restart of the simulated machine.
#[derive(Debug, Clone)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// Creates an empty disk.
    pub fn new(rng: Rng) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(State {
            inodes: BTreeMap::new(),
            next: 1,
            seen: BTreeMap::new(),
            kept: BTreeMap::new(),
            between: Vec::new(),
            rng,
            full: false,
            failure_probability: 0.0,
            is_dead: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread has panicked with this lock")
    }

    /// Sets whether the disk is full, and the probability that a request fails.
    pub fn set_failure_probability(&self, full: bool, trouble: f64) {
        let mut state = self.state();
        (state.full, state.failure_probability) = (full, trouble);
    }

    /// Returns whether a request may fail.
    pub fn is_troubled(&self) -> bool {
        let state = self.state();
        state.full || state.failure_probability > 0.0
    }

    pub(super) fn set_dead(&self, dead: bool) {
        self.state().is_dead = dead;
    }

    /// Ends the process that uses the disk: its locks are released, and its writes stay.
    pub fn abandon(&self) {
        self.state().inodes.values_mut().for_each(|inode| inode.locked = false);
    }

    /// Returns a copy of the disk as it would be after a power cut now. The copy works without faults.
    pub fn after_power_cut(&self) -> SimulatedDisk {
        let mut state = self.state();
        let rng = state.rng.fork();
        let mut copy = State {
            inodes: state.inodes.clone(),
            next: state.next,
            seen: BTreeMap::new(),
            kept: state.kept.clone(),
            between: Vec::new(),
            rng,
            full: false,
            failure_probability: 0.0,
            is_dead: false,
        };
        let count = copy.rng.below(state.between.len() as u64 + 1) as usize;
        state.between.iter().take(count).for_each(|naming| naming.apply(&mut copy.kept));
        copy.seen = copy.kept.clone();
        let inodes: Vec<u64> = copy.inodes.keys().copied().collect();
        for inode in inodes {
            copy.keep_some(inode);
            if let Some(inode) = copy.inodes.get_mut(&inode) {
                (inode.content, inode.locked) = (inode.content_on_disk.clone(), false);
            }
        }
        SimulatedDisk(Arc::new(Mutex::new(copy)))
    }

    /// Returns the length of a file in octets.
    pub fn size(&self, path: &Path) -> usize {
        let state = self.state();
        state.seen.get(path).and_then(|inode| state.inodes.get(inode)).map_or(0, |inode| inode.content.len())
    }

    /// Returns whether a file of this name exists.
    pub fn exists(&self, path: &Path) -> bool {
        self.state().seen.contains_key(path)
    }

    fn file(&self, inode: u64) -> Box<dyn DiskFile> {
        Box::new(SimulatedFile { disk: self.clone(), inode, holds: AtomicBool::new(false) })
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        let inode = self.state().seen.get(path).copied();
        Ok(inode.map(|inode| self.file(inode)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let inode = match state.seen.get(path) {
            Some(inode) => *inode,
            None => {
                state.stumble()?;
                let inode = state.next;
                state.next += 1;
                state.inodes.insert(inode, Inode::default());
                state.seen.insert(path.to_owned(), inode);
                state.between.push(Naming::Is(path.to_owned(), inode));
                inode
            }
        };
        drop(state);
        Ok(self.file(inode))
    }

    fn has_name(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        let open = file.identity()?.1;
        Ok(self.state().seen.get(path) == Some(&open))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let state = self.state();
        Ok(state.seen.get(path).and_then(|inode| state.inodes.get(inode)).map(|inode| inode.content.clone()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.stumble()?;
        let naming = Naming::Renamed(from.to_owned(), to.to_owned());
        naming.apply(&mut state.seen);
        state.between.push(naming);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.seen.contains_key(path) {
            state.stumble()?;
            state.seen.remove(path);
            state.between.push(Naming::Gone(path.to_owned()));
        }
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.stumble()?;
        let State { between, kept, inodes, seen, .. } = &mut *state;
        between
            .extract_if(.., |naming| naming.directory() == Some(path))
            .for_each(|naming| naming.apply(kept));
        // A file also exists if its rename to another directory is still pending.
        let coming =
            |inode: &u64| between.iter().any(|it| matches!(it, Naming::Is(_, named) if named == inode));
        let named = |inode: &u64| kept.values().chain(seen.values()).any(|named| named == inode);
        inodes.retain(|inode, it| it.locked || named(inode) || coming(inode));
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    inode: u64,
    /// Whether this open file holds the lock.
    holds: AtomicBool,
}

impl SimulatedFile {
    fn with<T>(&self, act: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let mut state = self.disk.state();
        state.inodes.get_mut(&self.inode).map(act).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn write(&self, write: Write, at_most: usize) -> io::Result<()> {
        self.with(|inode| {
            let write = match write {
                Write::Octets(at, octets) => Write::Octets(at, octets[..octets.len().min(at_most)].to_vec()),
                length @ Write::Length(_) => length,
            };
            write.apply(&mut inode.content, usize::MAX);
            inode.between.push(write);
        })
    }
}

impl DiskFile for SimulatedFile {
    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((1, self.inode))
    }

    fn read_all(&self) -> io::Result<Vec<u8>> {
        self.with(|inode| inode.content.clone())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.disk.state().stumble()?;
        let octets = self.read_all()?;
        let there = octets.get(at as usize..at as usize + buffer.len());
        buffer.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, octets: &[u8], at: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let (full, state_is_dead, failed) = (state.full, state.is_dead, state.stumble());
        let most = state.rng.below(octets.len() as u64 + 1) as usize;
        drop(state);
        if state_is_dead {
            return failed;
        }
        let fails = full || failed.is_err();
        self.write(Write::Octets(at, octets.to_vec()), if fails { most } else { usize::MAX })?;
        failed?;
        if full { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.state().stumble()?;
        self.write(Write::Length(length), 0)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        if let Err(error) = state.stumble() {
            if !state.is_dead {
                state.keep_some(self.inode);
            }
            return Err(error);
        }
        drop(state);
        self.with(|inode| {
            for write in std::mem::take(&mut inode.between) {
                write.apply(&mut inode.content_on_disk, usize::MAX);
            }
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        let is_free = self.with(|inode| !std::mem::replace(&mut inode.locked, true))?;
        if is_free {
            self.holds.store(true, Relaxed);
        }
        Ok(is_free)
    }

    fn unlock(&self) {
        if self.holds.swap(false, Relaxed) {
            let _ = self.with(|inode| inode.locked = false);
        }
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
