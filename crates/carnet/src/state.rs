//! State that survives a restart and a crash. Each station has one [`journal`] for it in `station.state_dir`.
//! If several machines may be the station, the state is in a [`remote`] store instead.
//!
//! A thread writes the state, so that packets do not wait for the disk. While the thread waits for the disk,
//! further changes gather, and the thread then writes them together. So the more registrations come, the more
//! registrations share one wait (group commit). The station holds a packet that reports a change at the home
//! agent, above all the Binding Acknowledgement, until the change is on the disk. A renewal is not urgent:
//! its wait for the disk costs more than all its other work. So renewals cause at most one commit in 10 ms
//! (`COMMIT_INTERVAL` in `queue`). A new or moved registration waits only for the disk. If the disk refuses a
//! write (it is full), the thread tries again each second, and the station acknowledges nothing meanwhile. So
//! every acknowledged binding survives a crash.
//!
//! The station does not hold packets of a mobile router. After a crash between change and write, the stored
//! sequence number is too low. The home agent then tells the router the next number (RFC 6275 11.7.3, status
//! 135). If the station held these packets, each handover would wait for a slow flash disk.

mod journal;
mod queue;
mod remote;

use std::fs;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use carnet_base::Time;
use carnet_lan::dhcpv4::StoredLease;
use carnet_lan::dhcpv6::delegation::StoredDelegation;
use carnet_linux::disk::KernelDisk;
use carnet_linux::sandbox::drop_all_capabilities_except_file_access;
use carnet_station::PersistentState;
use carnet_station::io::Output;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use journal::JournalContent;
pub use journal::{Journal, RecordChange, RecordKey};
pub use queue::{CommitQueue, InputOutputs, JournalWriter, OutputTreatment, record_of_state_part};
pub use remote::StandbyEnded;
use remote::StoreConnection;

/// Pause between two attempts to write to a disk that refuses writes.
const WRITE_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time for which a stopping station waits for the disk.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Result that the thread reports.
#[derive(Debug, PartialEq, Eq)]
pub enum WriterEvent {
    /// Changes that are not urgent have waited long enough: the caller calls [`StateStore::commit_changes`].
    Due,
    /// The commit with this number, and all commits before it, are on the disk.
    Written(u64),
    /// The disk has refused the commit for this reason; the thread tries again.
    Retrying(String),
    /// A warning for the operator about the stored state.
    Warning(String),
    /// No further commit can be stored, for this reason: the station has to end.
    Lost(String),
}

/// Place where the state is stored.
#[derive(Debug, Clone, Copy)]
pub enum StorageLocation<'a> {
    /// The state is not stored: each start has an empty state.
    NotStored,
    /// The state is in a file in this directory.
    Directory(&'a Path),
    /// The state is in the store of the program that listens at this socket.
    Store(&'a Path),
}

impl<'a> StorageLocation<'a> {
    /// Returns the store if one is given, else the directory if one is given.
    pub fn from_options(store: Option<&'a Path>, directory: Option<&'a Path>) -> StorageLocation<'a> {
        store
            .map(StorageLocation::Store)
            .or(directory.map(StorageLocation::Directory))
            .unwrap_or(StorageLocation::NotStored)
    }
}

/// Medium on which the state is stored: a journal or a store.
#[derive(Debug)]
enum StorageMedium {
    File(Journal),
    Store(StoreConnection),
}

/// An opened file or a connected store whose records have not been read yet.
#[derive(Debug)]
pub struct OpenedState {
    path: PathBuf,
    storage_medium: Option<StorageMedium>,
    stored_records: Vec<(RecordKey, String)>,
    discarded_octets: u64,
}

impl OpenedState {
    /// Opens the file, or connects to the store.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or if the store cannot be reached.
    pub fn open_storage(location: StorageLocation<'_>, name: &str) -> anyhow::Result<OpenedState> {
        Ok(match location {
            StorageLocation::NotStored => OpenedState {
                path: PathBuf::new(),
                storage_medium: None,
                stored_records: Vec::new(),
                discarded_octets: 0,
            },
            StorageLocation::Directory(directory) => {
                let (path, journal, JournalContent { current_records: records, discarded_octets: torn }) =
                    open_journal(directory, name)?;
                OpenedState {
                    path,
                    storage_medium: Some(StorageMedium::File(journal)),
                    stored_records: records,
                    discarded_octets: torn,
                }
            }
            StorageLocation::Store(socket) => {
                let medium = Some(StorageMedium::Store(StoreConnection::connect_to_store(socket)?));
                OpenedState {
                    path: socket.to_owned(),
                    storage_medium: medium,
                    stored_records: Vec::new(),
                    discarded_octets: 0,
                }
            }
        })
    }
}

impl OpenedState {
    /// Returns the socket on which [`StateStore::open_state`] waits for a store, if there is a store.
    /// Shutting this socket down ends the wait.
    ///
    /// # Errors
    /// Returns an error if the process has no free file descriptor.
    pub fn standby_connection(&self) -> io::Result<Option<UnixStream>> {
        match &self.storage_medium {
            Some(StorageMedium::Store(remote)) => remote.shutdown_handle().map(Some),
            _ => Ok(None),
        }
    }
}

/// Waiting changes, and the packets that wait for them. `None` if the state is not stored: then no packet
/// waits.
#[derive(Debug)]
pub struct StateStore(Option<StateWriter>);

#[derive(Debug)]
struct StateWriter {
    commit_sender: Option<SyncSender<(u64, Vec<RecordChange>)>>,
    events: UnboundedReceiver<WriterEvent>,
    writer_thread: Option<JoinHandle<()>>,
    commit_queue: CommitQueue,
    /// Start of the station, which is time zero for the queue.
    started_at: Instant,
    is_failing: bool,
    /// Whether the thread that writes the state has ended.
    has_ended: bool,
    /// Whether other machines use the state, too.
    is_shared: bool,
    /// Leases that were stored at the start, until [`StateStore::take_stored_leases`].
    stored_leases: StoredLeases,
    /// Records of encrypted sessions that were stored at the start, until
    /// [`StateStore::take_session_records`].
    session_records: Vec<(RecordKey, String)>,
}

/// Records of the services for hosts on board.
#[derive(Debug, Default)]
pub struct StoredLeases {
    /// Leases of IPv4 addresses.
    pub addresses: Vec<StoredLease>,
    /// Prefixes that carnet has delegated to routers on board.
    pub prefixes: Vec<StoredDelegation>,
}

impl StateStore {
    /// Opens the state of a station; returns its records and a warning for the operator. If the directory is
    /// missing, creates it. With a store, the function waits until the station becomes the leader.
    ///
    /// # Errors
    /// Returns an error if a record cannot be read or parsed: a station does not start with half of its
    /// state.
    pub fn open_state(opening: OpenedState) -> anyhow::Result<(StateStore, PersistentState, Option<String>)> {
        let OpenedState { path, storage_medium: medium, stored_records: records, discarded_octets: torn } =
            opening;
        let (medium, records) = match medium {
            None => return Ok((StateStore(None), PersistentState::default(), None)),
            Some(StorageMedium::Store(mut remote)) => {
                let records =
                    remote.receive_records().with_context(|| format!("the store {}", path.display()))?;
                (StorageMedium::Store(remote), records)
            }
            Some(file) => (file, records),
        };
        let warning = (torn > 0).then(|| {
            format!(
                "{}: the last {torn} octets are of a commit that a crash interrupted, and were removed; the \
                 home agent has acknowledged nothing of this commit",
                path.display()
            )
        });
        let (leases, records): (Vec<_>, Vec<_>) = records
            .into_iter()
            .partition(|(key, _)| matches!(key, RecordKey::Lease(_) | RecordKey::Delegation(_)));
        let (sessions, records) = records
            .into_iter()
            .partition(|(key, _)| matches!(key, RecordKey::Sessions | RecordKey::Session(_)));
        let loaded = records_to_state(&path, records)?;
        let is_shared = matches!(medium, StorageMedium::Store(_));
        let (commits, to_write) = mpsc::sync_channel(1);
        let (tell, news) = unbounded_channel();
        let thread = || thread::Builder::new().name("state".into());
        let writer = match medium {
            StorageMedium::File(journal) => thread().spawn(move || {
                drop_all_capabilities_except_file_access();
                run_journal_writer(journal, &to_write, &tell)
            }),
            StorageMedium::Store(remote) => {
                let (there, back) = remote.split_halves();
                // The thread that reads answers ends when the connection ends.
                let hearing = thread().spawn(move || receive_answers(back, &tell));
                hearing.and_then(|_| thread().spawn(move || send_commits(there, &to_write)))
            }
        };
        let writer = writer.context("cannot start the thread that writes the state")?;
        let keeping = StateWriter {
            commit_sender: Some(commits),
            events: news,
            writer_thread: Some(writer),
            commit_queue: CommitQueue::new(),
            started_at: Instant::now(),
            is_failing: false,
            has_ended: false,
            is_shared,
            stored_leases: leases_of_records(leases),
            session_records: sessions,
        };
        Ok((StateStore(Some(keeping)), loaded, warning))
    }

    /// Returns whether the state is stored anywhere.
    pub fn is_state_stored(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether other machines use the state, too: members of a fleet.
    pub fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|keeping| keeping.is_shared)
    }

    /// Sets the record of a key; `None` removes it. The next [`Self::commit_changes`] writes it.
    pub fn set_record(&mut self, change: RecordChange) {
        if let Some(keeping) = &mut self.0 {
            keeping.commit_queue.set_record(change);
        }
    }

    /// Returns the leases that were stored at the start; the next call returns none.
    pub fn take_stored_leases(&mut self) -> StoredLeases {
        self.0.as_mut().map(|keeping| std::mem::take(&mut keeping.stored_leases)).unwrap_or_default()
    }

    /// Returns the records of encrypted sessions that the store had when the program started; the next call
    /// returns none.
    pub fn take_session_records(&mut self) -> Vec<(RecordKey, String)> {
        self.0.as_mut().map(|keeping| std::mem::take(&mut keeping.session_records)).unwrap_or_default()
    }

    /// Returns the number of the commit that will contain all changes so far; `None` if the state is not
    /// stored.
    pub fn next_commit(&self) -> Option<u64> {
        self.0.as_ref().map(|keeping| keeping.commit_queue.next_commit_number())
    }

    /// Holds a packet until all earlier changes are on the disk.
    pub fn hold_packet(&mut self, packet: Output) {
        if let Some(keeping) = &mut self.0 {
            keeping.commit_queue.hold_packet(keeping.now(), packet);
        }
    }

    /// Lets the thread write waiting changes if it is idle; otherwise they wait for the next commit. Changes
    /// that are not urgent may wait for further changes. `is_urgent` says whether the changes are urgent.
    pub fn commit_changes(&mut self, is_urgent: bool) {
        let Some(keeping) = self.0.as_mut().filter(|keeping| !keeping.has_ended) else { return };
        let Some(commit) = keeping.commit_queue.take_commit(keeping.now(), is_urgent) else { return };
        let sent = keeping.commit_sender.as_ref().map(|commits| commits.send(commit));
        if !matches!(sent, Some(Ok(()))) {
            keeping.commit_queue.release_all();
        }
    }

    /// Returns the next result of the thread. If the state is not stored, it never returns. Safe to cancel.
    pub async fn next_writer_event(&mut self) -> WriterEvent {
        let Some(keeping) = &mut self.0 else { return pending().await };
        if keeping.has_ended {
            return pending().await;
        }
        // Time at which changes that are not urgent have waited long enough for a commit.
        let due = keeping
            .commit_queue
            .next_commit_at()
            .map(|due| keeping.started_at + due.saturating_since(Time::ZERO));
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        let news = tokio::select! {
        news = keeping.events.recv() => news,
        () = due => return WriterEvent::Due,
        };
        let Some(news) = news else {
            keeping.has_ended = true;
            return WriterEvent::Retrying("the thread that writes the state has ended".into());
        };
        news
    }

    /// Handles a result of the writing thread. Returns the packets that may leave now, and a message for the
    /// log. The log has a message when a failure begins and when it ends, not each second.
    pub fn handle_writer_event(&mut self, event: WriterEvent) -> (Vec<Output>, Option<String>) {
        let Some(keeping) = &mut self.0 else { return (Vec::new(), None) };
        let told = match event {
            WriterEvent::Due => (Vec::new(), None),
            WriterEvent::Retrying(why) => {
                let first = !std::mem::replace(&mut keeping.is_failing, true);
                let told = format!(
                    "cannot write the state; the home agent acknowledges no registration until it can: {why}"
                );
                return (Vec::new(), first.then_some(told));
            }
            WriterEvent::Warning(told) => return (Vec::new(), Some(told)),
            WriterEvent::Lost(told) => {
                // The store does not answer the current commit, and no further commit follows. Give the
                // commit up, so that the station need not wait for it at its end.
                keeping.commit_queue.release_all();
                keeping.has_ended = true;
                return (Vec::new(), Some(told));
            }
            WriterEvent::Written(number) => {
                let recovered = std::mem::take(&mut keeping.is_failing);
                let told = recovered.then(|| "the state is being written again".to_owned());
                (keeping.commit_queue.release_written(keeping.now(), number), told)
            }
        };
        self.commit_changes(false);
        told
    }

    /// Writes the waiting changes, within a time limit. Returns the packets that waited for them.
    pub async fn close_storage(&mut self) -> Vec<Output> {
        self.commit_changes(true);
        let mut packets = Vec::new();
        let rest = async {
            while self.0.as_ref().is_some_and(|keeping| keeping.commit_queue.is_writing()) {
                let news = self.next_writer_event().await;
                packets.extend(self.handle_writer_event(news).0);
            }
        };
        let in_time = tokio::time::timeout(SHUTDOWN_TIMEOUT, rest).await.is_ok();
        if let Some(keeping) = &mut self.0 {
            keeping.commit_sender = None;
            // If the writing thread hangs in the kernel, it ends with the process.
            if let Some(writer) = keeping.writer_thread.take().filter(|_| in_time) {
                let _ = writer.join();
            }
        }
        packets
    }
}

impl StateWriter {
    fn now(&self) -> Time {
        Time::ZERO + self.started_at.elapsed()
    }
}

/// Converts records to the stored state.
///
/// # Errors
/// Returns an error if a record cannot be parsed.
pub fn records_to_state(path: &Path, records: Vec<(RecordKey, String)>) -> anyhow::Result<PersistentState> {
    let mut loaded = PersistentState::default();
    let mut nodes = Vec::new();
    for (key, text) in records {
        let place = || format!("the state in {} cannot be used: {key}", path.display());
        match key {
            RecordKey::Own => loaded = serde_json::from_slice(text.as_bytes()).with_context(place)?,
            RecordKey::Node(_) => nodes.push(serde_json::from_slice(text.as_bytes()).with_context(place)?),
            RecordKey::Lease(_) | RecordKey::Delegation(_) | RecordKey::Sessions | RecordKey::Session(_) => {}
        }
    }
    loaded.home_agent = nodes;
    loaded.home_agent.sort_by_key(|node| node.home_address);
    Ok(loaded)
}

/// Converts records to leases and delegated prefixes. Leaves out a record of another version. A host without
/// a record keeps its address, because the server probes an address before it offers it.
fn leases_of_records(records: Vec<(RecordKey, String)>) -> StoredLeases {
    let mut leases = StoredLeases::default();
    for (key, text) in records {
        let read = match key {
            RecordKey::Delegation(_) => {
                serde_json::from_str(&text).map(|prefix| leases.prefixes.push(prefix))
            }
            _ => serde_json::from_str(&text).map(|lease| leases.addresses.push(lease)),
        };
        if let Err(error) = read {
            warn!("cannot read the stored DHCP lease of {key}, so carnet ignores it: {error}");
        }
    }
    leases
}

/// Opens the journal of a station in a directory.
fn open_journal(directory: &Path, name: &str) -> anyhow::Result<(PathBuf, Journal, JournalContent)> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create station.state_dir {}", directory.display()))?;
    let path = directory.join(format!("{name}.state"));
    let old = directory.join(format!("{name}.json"));
    let first = if path.exists() { Vec::new() } else { read_old_state_file(&old)? };
    let (journal, found) = Journal::open_journal(Box::new(KernelDisk), &path, &first)?;
    // If the old state file stayed, the old state would return when an operator removes the new file.
    let _ = fs::remove_file(&old);
    Ok((path, journal, found))
}

/// Reads the state file of an earlier version. That version rewrote the whole file at each change.
fn read_old_state_file(path: &Path) -> anyhow::Result<Vec<RecordChange>> {
    let octets = match fs::read(path) {
        Ok(octets) => octets,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let state: PersistentState = serde_json::from_slice(&octets)
        .with_context(|| format!("the state in {} cannot be used", path.display()))?;
    let mut changes = Vec::new();
    for node in &state.home_agent {
        changes.push((RecordKey::Node(node.home_address), Some(serde_json::to_string(node)?)));
    }
    let own = PersistentState { home_agent: Vec::new(), ..state };
    changes.push((RecordKey::Own, Some(serde_json::to_string(&own)?)));
    Ok(changes)
}

/// Runs the writing thread of a journal: writes one commit after the other, and repeats each until it
/// succeeds.
fn run_journal_writer(
    journal: Journal,
    commits: &mpsc::Receiver<(u64, Vec<RecordChange>)>,
    event_sender: &UnboundedSender<WriterEvent>,
) {
    let mut writer = JournalWriter::new(journal);
    while let Ok((number, changes)) = commits.recv() {
        while let Err(error) = writer.write_commit(&changes) {
            let _ = event_sender.send(WriterEvent::Retrying(error.to_string()));
            if let Err(RecvTimeoutError::Disconnected) = commits.recv_timeout(WRITE_RETRY_PAUSE) {
                return;
            }
        }
        let _ = event_sender.send(WriterEvent::Written(number));
        if let Err(warning) = writer.compact_if_needed() {
            let _ = event_sender.send(WriterEvent::Warning(warning));
        }
    }
}

/// Runs the thread that sends commits to a store. Commits are numbered from 1, and the store answers them in
/// this order.
fn send_commits(mut sender: remote::CommitSender, commits: &mpsc::Receiver<(u64, Vec<RecordChange>)>) {
    while let Ok((_, changes)) = commits.recv() {
        if sender.send_commit(&changes).is_err() {
            // The thread that reads the answers reports this error.
            return;
        }
    }
}

/// Receives the answers of the store until the connection ends.
fn receive_answers(mut receiver: remote::CommitReceiver, event_sender: &UnboundedSender<WriterEvent>) {
    for number in 1.. {
        if let Err(error) = receiver.next() {
            let told = match error.kind() {
                // The leadership has moved to another machine, or carnet-fleet has been killed.
                io::ErrorKind::UnexpectedEof => "carnet-fleet has closed the connection".to_owned(),
                _ => format!("lost the connection to carnet-fleet: {error}"),
            };
            let _ = event_sender.send(WriterEvent::Lost(told));
            return;
        }
        let _ = event_sender.send(WriterEvent::Written(number));
    }
}

#[cfg(test)]
mod tests;
