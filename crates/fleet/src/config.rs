//! Config of a machine (member) that may lead a home agent (seat).

use std::time::Duration;

/// The operator's settings of a seat and of this member.
#[derive(Debug, Clone)]
pub struct LeadershipConfig {
    /// Name of this member.
    pub own_member_name: String,
    /// Names of all members, this one included, in the order of preference for the seat.
    pub member_names: Vec<String>,
    /// Interval at which the leader writes its key, and longest wait for the answer to a transaction.
    pub keep_alive_interval: Duration,
    /// Time without a write of the leader after which another member may become the leader.
    pub lease_duration: Duration,
    /// Difference between [`Self::lease_duration`] and the lease that the leader itself uses, which is
    /// shorter.
    pub lease_margin: Duration,
    /// Time for which a home agent continues to forward after its member has lost the lease.
    pub grace_period: Duration,
    /// Time for which a preferred member must have been a standby before the leader gives the leadership to
    /// it.
    pub fail_back_delay: Duration,
    /// Time after a failure of its home agent for which this member neither takes the leadership nor asks for
    /// it. It doubles if the home agent soon fails again. When lost links are back, the member still counts
    /// as cut off for the same time.
    pub pause_after_failure: Duration,
    /// Time for which a leader that is cut off from the mobile routers waits for reports of other members.
    /// These may be cut off too. The time must exceed the difference between two members' detection times.
    pub wait_while_cut_off: Duration,
}

impl LeadershipConfig {
    /// Returns a configuration with times for a store whose members are a few milliseconds apart.
    pub fn new(member: impl Into<String>, members: Vec<String>) -> LeadershipConfig {
        LeadershipConfig {
            own_member_name: member.into(),
            member_names: members,
            keep_alive_interval: Duration::from_millis(100),
            lease_duration: Duration::from_millis(500),
            lease_margin: Duration::from_millis(100),
            grace_period: Duration::from_secs(10),
            fail_back_delay: Duration::from_secs(30),
            pause_after_failure: Duration::from_secs(5),
            wait_while_cut_off: Duration::from_millis(500),
        }
    }

    /// Returns the number of members that precede `member` in the order of preference.
    pub(crate) fn rank_of(&self, member: &str) -> usize {
        self.member_names.iter().position(|one| one == member).unwrap_or(self.member_names.len())
    }
}
