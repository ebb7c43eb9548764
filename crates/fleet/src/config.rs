//! Configuration of a member for one seat.

use std::time::Duration;

/// The operator's settings of a seat and of this member.
#[derive(Debug, Clone)]
pub struct SeatConfig {
    /// This member's name.
    pub member: String,
    /// All members, this one too, in the order in which they are to have the seat.
    pub members: Vec<String>,
    /// Between two signs of life of the owner, and the longest wait for the answer to a transaction.
    pub beat: Duration,
    /// Silence after which the seat is free.
    pub lease: Duration,
    /// By how much the owner's own lease is shorter.
    pub margin: Duration,
    /// How long a home agent forwards that has lost its lease.
    pub patience: Duration,
    /// How long a member that is to have the seat has to have been there before it is given it.
    pub settled: Duration,
    /// How long this member does not take the seat after its home agent has failed. It does not ask to be
    /// given it, either: for so long at first, and twice as long each time that it fails soon after. So long
    /// it counts as cut off, too, when its links are back.
    pub rest: Duration,
    /// Time for which a leader that is cut off from its routers waits for other members to report the same.
    /// It is longer than the difference between two members' detection times.
    pub doubt: Duration,
}

impl SeatConfig {
    /// The times that fit a store whose members are a few milliseconds from each other.
    pub fn new(member: impl Into<String>, members: Vec<String>) -> SeatConfig {
        SeatConfig {
            member: member.into(),
            members,
            beat: Duration::from_millis(100),
            lease: Duration::from_millis(500),
            margin: Duration::from_millis(100),
            patience: Duration::from_secs(10),
            settled: Duration::from_secs(30),
            rest: Duration::from_secs(5),
            doubt: Duration::from_millis(500),
        }
    }

    /// How many members come before this one.
    pub(crate) fn rank_of(&self, member: &str) -> usize {
        self.members.iter().position(|one| one == member).unwrap_or(self.members.len())
    }
}
