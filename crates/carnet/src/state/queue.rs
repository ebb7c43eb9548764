//! Decides when the state's changes are written, and which packets wait for them. It has no clock, thread or
//! disk.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_station::Station;
use carnet_station::io::{NemoOutput, Output, StoredStatePart};

use super::journal::{Journal, RecordChange, RecordKey};

/// Least interval between commits that contain no urgent change.
pub const COMMIT_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of packets that wait for the disk. With more packets the queue drops the oldest one, and
/// the receiver of that packet sends its request again.
pub const MAX_HELD_PACKETS: usize = 16_384;
/// Maximum time for which a packet waits for the disk. After `MAX_BINDACK_TIMEOUT` (RFC 6275 12) a router
/// without an answer has sent its update again, and may have another care-of address.
pub const MAX_HOLD_TIME: Duration = Duration::from_secs(32);
/// Number of commits after which a failed compaction is tried again.
const COMMITS_UNTIL_COMPACTION_RETRY: u32 = 1000;

/// Treatment of one output of the station.
#[derive(Debug)]
pub enum OutputTreatment {
    /// The caller stores this part of the state: [`record_of_state_part`].
    Store(StoredStatePart),
    /// The caller holds this packet until the stored changes are on the disk.
    Hold(Output),
    /// The caller executes this output now.
    Execute(Output),
    /// The caller sends this packet when the fast path has the earlier changes of the data path, which the
    /// packet may report. A Binding Acknowledgement acknowledges bindings that are in force (RFC 6275 9.5.4,
    /// 10.3.1).
    SendWhenInForce(Output),
}

/// Outputs of the station that one input has caused. The type distinguishes packets that report a stored
/// change from other outputs.
#[derive(Debug, Default)]
pub struct InputOutputs {
    /// Whether packets now have to wait for the disk.
    pub holds_packets: bool,
    /// Whether the data path has changed. A registration without such a change is not urgent.
    pub changes_data_path: bool,
    /// Whether the fast path lacks some changes of the data path.
    pub fast_path_outdated: bool,
}

impl InputOutputs {
    /// Returns the treatment of the next output of this input.
    pub fn treatment_of_next(&mut self, output: Output) -> OutputTreatment {
        let is_change = matches!(output, Output::Nemo(NemoOutput::Forwarding(_)));
        let is_packet = matches!(
            output,
            Output::Nemo(
                NemoOutput::Packet(_) | NemoOutput::Protect { .. } | NemoOutput::Encapsulated { .. }
            )
        );
        self.changes_data_path |= is_change;
        self.fast_path_outdated |= is_change;
        match output {
            Output::Nemo(NemoOutput::Persist(kept)) => OutputTreatment::Store(kept),
            packet if is_packet && self.holds_packets => OutputTreatment::Hold(packet),
            packet if is_packet && std::mem::take(&mut self.fast_path_outdated) => {
                OutputTreatment::SendWhenInForce(packet)
            }
            output => OutputTreatment::Execute(output),
        }
    }
}

/// Returns the record of a part of the state. Also returns whether packets that report this part wait until
/// the record is on the disk.
///
/// # Errors
/// Returns an error if the state cannot be encoded.
pub fn record_of_state_part(
    station: &Station,
    (now, wall): (Time, WallTime),
    state_part: StoredStatePart,
) -> serde_json::Result<(RecordChange, bool)> {
    Ok(match state_part {
        StoredStatePart::Own => (
            (RecordKey::Own, Some(serde_json::to_string(&station.nemo().current_persistent_state())?)),
            false,
        ),
        StoredStatePart::Node(home_address) => {
            let node = station.nemo().stored_binding(now, wall, home_address);
            let record = node.map(|node| serde_json::to_string(&node)).transpose()?;
            ((RecordKey::Node(home_address), record), true)
        }
    })
}

/// Changes that wait to be written, and the packets that wait for them.
#[derive(Debug)]
pub struct CommitQueue {
    waiting_changes: BTreeMap<RecordKey, Option<String>>,
    /// Whether one of the waiting changes is urgent.
    has_urgent_change: bool,
    /// Earliest time of the next commit that contains no urgent change.
    earliest_commit_at: Time,
    /// Number of the next commit.
    next_commit_number: u64,
    /// Whether the writer is still writing an earlier commit.
    is_writing: bool,
    held_packets: VecDeque<(u64, Time, Output)>,
}

impl CommitQueue {
    /// Returns an empty queue.
    pub fn new() -> CommitQueue {
        CommitQueue {
            waiting_changes: BTreeMap::new(),
            has_urgent_change: false,
            earliest_commit_at: Time::ZERO,
            next_commit_number: 1,
            is_writing: false,
            held_packets: VecDeque::new(),
        }
    }

    /// Sets the new record of a key; `None` removes the record.
    pub fn set_record(&mut self, (key, record): RecordChange) {
        self.waiting_changes.insert(key, record);
    }

    /// Holds a packet until all earlier changes are on the disk. After [`MAX_HOLD_TIME`] the queue drops the
    /// packet.
    pub fn hold_packet(&mut self, now: Time, packet: Output) {
        if self.held_packets.len() >= MAX_HELD_PACKETS {
            self.held_packets.pop_front();
        }
        self.held_packets.push_back((self.next_commit_number, now, packet));
    }

    /// Returns the changes to write now, with the number of their commit. If an earlier commit is still being
    /// written, returns `None`, and the changes wait for the next commit. Without `is_urgent`, changes may
    /// wait for further changes.
    pub fn take_commit(&mut self, now: Time, is_urgent: bool) -> Option<(u64, Vec<RecordChange>)> {
        self.has_urgent_change |= is_urgent && !self.waiting_changes.is_empty();
        if !self.may_commit() || (!self.has_urgent_change && now < self.earliest_commit_at) {
            return None;
        }
        self.earliest_commit_at = now + COMMIT_INTERVAL;
        self.has_urgent_change = false;
        self.is_writing = true;
        let number = self.next_commit_number;
        self.next_commit_number += 1;
        Some((number, std::mem::take(&mut self.waiting_changes).into_iter().collect()))
    }

    /// Returns the number of the commit that contains the waiting changes.
    pub fn next_commit_number(&self) -> u64 {
        self.next_commit_number
    }

    /// Returns the time at which the caller must write the waiting changes; `None` if nothing is due.
    pub fn next_commit_at(&self) -> Option<Time> {
        self.may_commit().then_some(self.earliest_commit_at)
    }

    /// Notes that a commit is on the disk. Returns the packets that may leave now.
    pub fn release_written(&mut self, now: Time, number: u64) -> Vec<Output> {
        self.is_writing = false;
        let count = self.held_packets.iter().take_while(|(needs, ..)| *needs <= number).count();
        let held = self.held_packets.drain(..count);
        held.filter(|(_, since, _)| now < *since + MAX_HOLD_TIME).map(|(.., packet)| packet).collect()
    }

    /// Gives up the current commit, because the store does not answer it.
    pub fn release_all(&mut self) {
        self.is_writing = false;
    }

    /// Returns whether the writer is writing a commit.
    pub fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// Returns the number of packets that wait.
    #[cfg(test)]
    pub fn held_packet_count(&self) -> usize {
        self.held_packets.len()
    }

    /// Returns whether changes wait and no commit is being written.
    fn may_commit(&self) -> bool {
        !self.is_writing && !self.waiting_changes.is_empty()
    }
}

/// Writes commits into a journal, and compacts the journal.
#[derive(Debug)]
pub struct JournalWriter {
    journal: Journal,
    commits_until_compaction: u32,
}

impl JournalWriter {
    /// Creates a writer for a journal.
    pub fn new(journal: Journal) -> JournalWriter {
        JournalWriter { journal, commits_until_compaction: 0 }
    }

    /// Writes a commit; the commit is on the disk when this function returns. If the function fails, no part
    /// of the commit counts, and the caller may try again.
    ///
    /// # Errors
    /// Returns the error of the disk.
    pub fn write_commit(&mut self, changes: &[RecordChange]) -> std::io::Result<()> {
        self.journal.append_commit(changes).or_else(|error| {
            // If the disk is full, outdated records may use the space, so the writer compacts the file.
            if self.journal.needs_compaction() && self.journal.compact_file().is_ok() {
                self.journal.append_commit(changes)
            } else {
                Err(error)
            }
        })
    }

    /// Compacts the file after a commit if most records in the file are outdated.
    ///
    /// # Errors
    /// Returns a message if the attempt failed; the file is still valid then.
    pub fn compact_if_needed(&mut self) -> Result<(), String> {
        self.commits_until_compaction = self.commits_until_compaction.saturating_sub(1);
        if self.commits_until_compaction == 0 && self.journal.needs_compaction() {
            self.journal.compact_file().map_err(|error| {
                self.commits_until_compaction = COMMITS_UNTIL_COMPACTION_RETRY;
                format!("the state cannot be compacted: {error:#}")
            })?;
        }
        Ok(())
    }
}
