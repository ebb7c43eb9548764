//! Decides what to write, which changes wait to be written together, and which packets wait for them, without
//! a clock, a thread or a disk.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_station::Station;
use carnet_station::io::{Kept, Output};

use super::journal::{Change, Journal, Key};

/// Between the beginnings of two commits of which nothing presses.
pub const TOGETHER: Duration = Duration::from_millis(10);
/// So many packets wait for the disk; beyond it the oldest is lost, and who waits for it asks again.
pub const HELD: usize = 16_384;
/// Longest wait of a packet for the disk. After `MAX_BINDACK_TIMEOUT` (RFC 6275 12) a router without an
/// answer has sent again, and may be at another place.
pub const STALE: Duration = Duration::from_secs(32);
/// Commits between two attempts to write the file anew, where one has failed.
const NOT_AT_ONCE: u32 = 1000;

/// Treatment of an output.
#[derive(Debug)]
pub enum Next {
    /// Something of the station is to be kept: [`record_of`].
    Keep(Kept),
    /// A packet that waits until what was kept is on the disk.
    Hold(Output),
    /// It is carried out now.
    Carry(Output),
    /// A packet that leaves when the fast path has the earlier changes of the data path, which it may report.
    /// A Binding Acknowledgement acknowledges what is in force (RFC 6275 9.5.4, 10.3.1).
    CarryInForce(Output),
}

/// The outputs that follow from one input: those that tell of what is kept are told from the others.
#[derive(Debug, Default)]
pub struct Burst {
    /// Packets wait from now on.
    pub holds: bool,
    /// The data path changes: a registration that changes nothing has time.
    pub changes: bool,
    /// The fast path does not have all changes of the data path yet.
    pub behind: bool,
}

impl Burst {
    /// Returns the treatment of the next output.
    pub fn next(&mut self, output: Output) -> Next {
        let is_change = matches!(output, Output::Forwarding(_));
        self.changes |= is_change;
        self.behind |= is_change;
        match output {
            Output::Persist(kept) => Next::Keep(kept),
            packet @ (Output::Packet(_) | Output::Protect { .. } | Output::Encapsulated { .. })
                if self.holds =>
            {
                Next::Hold(packet)
            }
            packet @ (Output::Packet(_) | Output::Protect { .. } | Output::Encapsulated { .. })
                if std::mem::take(&mut self.behind) =>
            {
                Next::CarryInForce(packet)
            }
            output => Next::Carry(output),
        }
    }
}

/// Returns the record of a part of the station, and whether packets that report it wait until it is on the
/// disk.
///
/// # Errors
/// When it cannot be put into words.
pub fn record_of(
    station: &Station,
    (now, wall): (Time, WallTime),
    kept: Kept,
) -> serde_json::Result<(Change, bool)> {
    Ok(match kept {
        Kept::Own => ((Key::Own, Some(serde_json::to_string(&station.own_state())?)), false),
        Kept::Node(home_address) => {
            let node = station.stored_node(now, wall, home_address);
            let record = node.map(|node| serde_json::to_string(&node)).transpose()?;
            ((Key::Node(home_address), record), true)
        }
    })
}

/// The changes that wait, and what waits for them.
#[derive(Debug)]
pub struct Queue {
    waiting: BTreeMap<Key, Option<String>>,
    /// Whether any of it shall not wait for others.
    pressing: bool,
    /// When the next commit may begin of which nothing presses.
    earliest: Time,
    /// The number of the commit that these will be.
    number: u64,
    /// Whether an earlier one is on its way.
    writing: bool,
    held: VecDeque<(u64, Time, Output)>,
}

impl Queue {
    /// Nothing waits.
    pub fn new() -> Queue {
        Queue {
            waiting: BTreeMap::new(),
            pressing: false,
            earliest: Time::ZERO,
            number: 1,
            writing: false,
            held: VecDeque::new(),
        }
    }

    /// Sets the record of a key; `None` removes it.
    pub fn set(&mut self, (key, record): Change) {
        self.waiting.insert(key, record);
    }

    /// Holds a packet until all that was [`Self::set`] is on the disk, if that is soon enough.
    pub fn hold(&mut self, now: Time, packet: Output) {
        if self.held.len() >= HELD {
            self.held.pop_front();
        }
        self.held.push_back((self.number, now, packet));
    }

    /// Returns the changes to write now, with their number, if no earlier commit is under way; else they go
    /// with the next ones. Changes that are not urgent may wait for more.
    pub fn commit(&mut self, now: Time, presses: bool) -> Option<(u64, Vec<Change>)> {
        self.pressing |= presses && !self.waiting.is_empty();
        if !self.may_commit() || (!self.pressing && now < self.earliest) {
            return None;
        }
        self.earliest = now + TOGETHER;
        self.pressing = false;
        self.writing = true;
        let number = self.number;
        self.number += 1;
        Some((number, std::mem::take(&mut self.waiting).into_iter().collect()))
    }

    /// Returns the time at which waiting changes are due.
    pub fn due(&self) -> Option<Time> {
        self.may_commit().then_some(self.earliest)
    }

    /// Takes note that a commit is on the disk; gives the packets that may go.
    pub fn written(&mut self, now: Time, number: u64) -> Vec<Output> {
        self.writing = false;
        let count = self.held.iter().take_while(|(needs, ..)| *needs <= number).count();
        let held = self.held.drain(..count);
        held.filter(|(_, since, _)| now < *since + STALE).map(|(.., packet)| packet).collect()
    }

    /// The store does not answer the commit under way.
    pub fn give_up(&mut self) {
        self.writing = false;
    }

    /// Whether a commit is on its way.
    pub fn is_writing(&self) -> bool {
        self.writing
    }

    /// How many packets wait.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether there is anything to write, and nothing on its way.
    fn may_commit(&self) -> bool {
        !self.writing && !self.waiting.is_empty()
    }
}

/// Writes commits into a journal.
#[derive(Debug)]
pub struct Writer {
    journal: Journal,
    until_compaction: u32,
}

impl Writer {
    /// One that has written nothing yet.
    pub fn new(journal: Journal) -> Writer {
        Writer { journal, until_compaction: 0 }
    }

    /// Writes a commit; it is on the disk when this returns. When it fails, nothing of it is, and it may be
    /// tried again.
    ///
    /// # Errors
    /// The disk's answer.
    pub fn write(&mut self, changes: &[Change]) -> std::io::Result<()> {
        self.journal.append(changes).or_else(|error| {
            // Outdated records may be what takes the room.
            if self.journal.is_wasteful() && self.journal.compact().is_ok() {
                self.journal.append(changes)
            } else {
                Err(error)
            }
        })
    }

    /// After a commit was written: writes the file anew where that is worth it.
    ///
    /// # Errors
    /// A message about a failed attempt; the file is still good.
    pub fn tidy(&mut self) -> Result<(), String> {
        self.until_compaction = self.until_compaction.saturating_sub(1);
        if self.until_compaction == 0 && self.journal.is_wasteful() {
            self.journal.compact().map_err(|error| {
                self.until_compaction = NOT_AT_ONCE;
                format!("the state cannot be written anew: {error:#}")
            })?;
        }
        Ok(())
    }
}
