//! Sequence numbers, timestamps and the shared key, which protect against replayed Binding Updates (RFC 6275
//! 9.5.1, RFC 4285 6).

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::binding_status::BindingStatus;

use crate::security::DEFAULT_TIMESTAMP_WINDOW;
use crate::sequence::is_later;
use crate::{Authentication, MAX_UPDATE_RATE, MobilityDrop, ReplayProtection, is_newer};

/// A minute in nanoseconds.
const MINUTE_NANOSECONDS: u64 = 60_000_000_000;

/// Sequence numbers and timestamps of the Binding Updates to one home agent. All bindings of a home address
/// share them (RFC 5648 4.1).
#[derive(Debug)]
pub(crate) struct SequenceAndTimestampState {
    /// Method by which router and home agent authenticate their messages.
    pub(crate) authentication: Authentication,
    /// Sequence number of the last Binding Update.
    pub(crate) sequence: u16,
    /// Whether the router has sent [`Self::sequence`]. It is false before the first Binding Update of a
    /// router without stored state.
    pub(crate) has_sent_sequence: bool,
    /// Whether the home agent has demanded timestamps (status 145) although the config has none.
    pub(crate) are_timestamps_demanded: bool,
    /// Home agent's clock minus this router's clock, in nanoseconds, learnt from status 144.
    pub(crate) clock_offset: i128,
    /// Greatest NTP timestamp that the router has sent; `None` before the first one.
    pub(crate) newest_timestamp: Option<u64>,
    /// Greatest NTP timestamp that the home agent has acknowledged; `None` before the first one.
    pub(crate) acknowledged_timestamp: Option<u64>,
    /// Sending times of the Binding Updates of the last second.
    pub(crate) recent_sending_times: VecDeque<Time>,
}

/// Result of the check of an acknowledgement's timestamp and status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimestampVerdict {
    /// The acknowledgement answers the Binding Update.
    Answer,
    /// The home agent refused the timestamp. The clock offset is corrected now, and the router sends the
    /// Binding Update again.
    Repeat,
}

impl SequenceAndTimestampState {
    /// Creates the numbers of a router that has sent no Binding Update yet.
    pub(crate) fn new(authentication: Authentication) -> SequenceAndTimestampState {
        SequenceAndTimestampState {
            authentication,
            sequence: 0,
            has_sent_sequence: false,
            are_timestamps_demanded: false,
            clock_offset: 0,
            newest_timestamp: None,
            acknowledged_timestamp: None,
            recent_sending_times: VecDeque::new(),
        }
    }

    /// Takes over the numbers of the same router under an earlier configuration.
    pub(crate) fn adopt_numbers(&mut self, old: &SequenceAndTimestampState) {
        self.sequence = old.sequence;
        self.has_sent_sequence = old.has_sent_sequence;
        self.are_timestamps_demanded = old.are_timestamps_demanded
            && self.authentication.signing_association() == old.authentication.signing_association();
        self.clock_offset = old.clock_offset;
        self.newest_timestamp = old.newest_timestamp;
        self.acknowledged_timestamp = old.acknowledged_timestamp;
        self.recent_sending_times.clone_from(&old.recent_sending_times);
    }

    pub(crate) fn update_rate_limit(&mut self, now: Time) -> Option<Time> {
        let second = Duration::from_secs(1);
        while self.recent_sending_times.front().is_some_and(|at| now.saturating_since(*at) >= second) {
            self.recent_sending_times.pop_front();
        }
        let first = self.recent_sending_times.front()?;
        (self.recent_sending_times.len() >= MAX_UPDATE_RATE).then_some(*first + second)
    }

    /// Returns the NTP timestamp for a Message-ID option; `None` if the security association requires none.
    /// It is greater than all earlier ones (RFC 4285 6), even at the same instant or after the clock was set
    /// back a little.
    pub(crate) fn next_timestamp(&mut self, wall: WallTime) -> Option<u64> {
        self.timestamp_window()?;
        let clock = self.home_agent_time(wall).to_ntp();
        let least = self.newest_timestamp.map_or(clock, |newest| newest.wrapping_add(1));
        let timestamp = if is_later(clock, least) { clock } else { least };
        self.newest_timestamp = Some(timestamp);
        Some(timestamp)
    }

    /// Returns the maximum permitted difference between the clocks; `None` without timestamps.
    pub(crate) fn timestamp_window(&self) -> Option<Duration> {
        match self.authentication.signing_association()?.replay {
            ReplayProtection::Timestamp { window } => Some(window),
            ReplayProtection::Sequence => self.are_timestamps_demanded.then_some(DEFAULT_TIMESTAMP_WINDOW),
        }
    }

    /// Returns the estimated time of the home agent's clock.
    pub(crate) fn home_agent_time(&self, wall: WallTime) -> WallTime {
        let nanos = i128::from(wall.as_unix_nanos()) + self.clock_offset;
        WallTime::from_unix_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Applies status 145 (RFC 4285 6): all further Binding Updates have timestamps. Returns false if they
    /// already had timestamps.
    fn start_using_timestamps(&mut self) -> bool {
        let can = self.authentication.signing_association().is_some() && self.timestamp_window().is_none();
        self.are_timestamps_demanded |= can;
        can
    }

    /// Applies status 144: from now on the router uses the home agent's clock (RFC 4285 6). The home agent's
    /// answer gives its time in whole seconds. If this time is close to the sent timestamp, the clock is
    /// right, and the timestamp was only older than the last accepted one.
    fn learn_clock_offset(&mut self, wall: WallTime, sent: Option<u64>, told: Option<u64>) {
        let clock = self.home_agent_time(wall);
        let date = |timestamp: Option<u64>| Some(WallTime::from_ntp(timestamp?, clock));
        let (Some(window), Some(ours), Some(theirs)) = (self.timestamp_window(), date(sent), date(told))
        else {
            return;
        };
        if theirs.absolute_difference(ours) + Duration::from_secs(1) > window {
            self.clock_offset = i128::from(theirs.as_unix_nanos()) - i128::from(wall.as_unix_nanos());
            self.newest_timestamp = self.acknowledged_timestamp;
        }
    }

    /// Returns sequence number and timestamp of a Binding Update that leaves now. A router without stored
    /// state starts with the number of minutes of its clock. So from one start to the next the number
    /// advances by the minutes between them. Random start numbers would use up the key's 2^15 numbers (RFC
    /// 6275 15.3) in a few starts.
    pub(crate) fn next_sequence_and_timestamp(&mut self, now: Time, wall: WallTime) -> (u16, Option<u64>) {
        self.recent_sending_times.push_back(now);
        if !self.has_sent_sequence {
            self.sequence = (wall.as_unix_nanos() / MINUTE_NANOSECONDS) as u16;
            self.has_sent_sequence = true;
        }
        self.sequence = self.sequence.wrapping_add(1);
        (self.sequence, self.next_timestamp(wall))
    }

    /// Takes over the sequence number of status 135. Returns false if the acknowledgement is a duplicate or
    /// late, because the last Binding Update already had a greater number.
    pub(crate) fn adopt_sequence_number(&mut self, last: u16) -> bool {
        let is_news = !is_newer(self.sequence, last);
        if is_news {
            self.sequence = last;
        }
        is_news
    }

    /// Records the timestamp of an acknowledgement.
    pub(crate) fn record_acknowledged_timestamp(&mut self, told: Option<u64>) {
        let newest = self.acknowledged_timestamp;
        self.acknowledged_timestamp =
            told.filter(|new| newest.is_none_or(|old| is_later(*new, old))).or(newest);
    }

    /// Checks an acknowledgement by its status and timestamp. `sent` is the timestamp of the Binding Update.
    ///
    /// # Errors
    /// Returns a reason if the acknowledgement has another timestamp.
    pub(crate) fn judge_acknowledgement(
        &mut self,
        wall: WallTime,
        status: BindingStatus,
        sent: Option<u64>,
        told: Option<u64>,
    ) -> Result<TimestampVerdict, MobilityDrop> {
        match status {
            BindingStatus::ID_MISMATCH => {
                self.learn_clock_offset(wall, sent, told);
                Ok(TimestampVerdict::Repeat)
            }
            BindingStatus::MESSAGE_ID_REQUIRED if self.start_using_timestamps() => {
                Ok(TimestampVerdict::Repeat)
            }
            _ if sent.is_some() && sent != told => Err(MobilityDrop::Timestamp),
            _ => Ok(TimestampVerdict::Answer),
        }
    }
}
