//! Configuration of a member for one seat.

use std::time::Duration;

/// The operator's settings of a seat and of this member.
#[derive(Debug, Clone)]
pub struct SeatConfig {
    /// Name of this member.
    pub member: String,
    /// Names of all members, this one included, in the order of preference for the seat.
    pub members: Vec<String>,
    /// Interval of the leader's signs of life, and longest wait for the answer to a transaction.
    pub beat: Duration,
    /// Time without a sign of life after which the seat is free.
    pub lease: Duration,
    /// Time by which the leader's own lease is shorter than [`Self::lease`].
    pub margin: Duration,
    /// Time for which a home agent continues to forward after its member lost the lease.
    pub patience: Duration,
    /// Time for which a preferred member must have been present before the leader gives it the seat.
    pub settled: Duration,
    /// Time for which this member does not take the seat after its home agent has failed, nor asks for it.
    /// The time doubles each time that the home agent fails again soon. After lost links are back, the member
    /// counts as cut off for the same time.
    pub rest: Duration,
    /// Time for which a leader that is cut off from its routers waits for other members to report that they
    /// are cut off, too. The time must exceed the difference between two members' detection times.
    pub doubt: Duration,
}

impl SeatConfig {
    /// Returns a configuration with times for a store whose members are a few milliseconds apart.
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

    /// Returns the number of members that precede `member` in the order of preference.
    pub(crate) fn rank_of(&self, member: &str) -> usize {
        self.members.iter().position(|one| one == member).unwrap_or(self.members.len())
    }
}
