//! Sequence numbers, timestamps and the key, which protect against replayed Binding Updates (RFC 6275 9.5.1,
//! RFC 4285 6).

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::status::Status;

use crate::security::DEFAULT_WINDOW;
use crate::sequence::is_later;
use crate::{Authentication, MAX_UPDATE_RATE, MobilityDrop, ReplayProtection, is_newer};

/// A minute in nanoseconds.
const MINUTE: u64 = 60_000_000_000;

/// Sequence numbers and timestamps of the Binding Updates to one home agent. All bindings of a home address
/// share them (RFC 5648 4.1).
#[derive(Debug)]
pub(crate) struct UpdateNumbers {
    /// How router and home agent authenticate their messages.
    pub(crate) authentication: Authentication,
    /// Sequence number of the last Binding Update.
    pub(crate) sequence: u16,
    /// Whether [`Self::sequence`] has been sent. It is false before the first Binding Update of a router
    /// without stored state.
    pub(crate) is_numbered: bool,
    /// Whether the home agent has demanded timestamps (status 145) where the config has none.
    pub(crate) timestamps_demanded: bool,
    /// Difference between the home agent's clock and the router's, from status 144, in nanoseconds.
    pub(crate) clock_offset: i128,
    /// Greatest NTP timestamp sent.
    pub(crate) newest_timestamp: Option<u64>,
    /// Greatest NTP timestamp acknowledged.
    pub(crate) acknowledged_timestamp: Option<u64>,
    /// Times at which Binding Updates of the last second were sent.
    pub(crate) sent_at: VecDeque<Time>,
}

/// Judgement of an acknowledgement by its timestamp and status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The acknowledgement answers the Binding Update.
    Answer,
    /// The home agent objected to the timestamp, which is now corrected: the router repeats the Binding
    /// Update.
    Repeat,
}

impl UpdateNumbers {
    /// Numbers of a router that has sent no Binding Update yet.
    pub(crate) fn new(authentication: Authentication) -> UpdateNumbers {
        UpdateNumbers {
            authentication,
            sequence: 0,
            is_numbered: false,
            timestamps_demanded: false,
            clock_offset: 0,
            newest_timestamp: None,
            acknowledged_timestamp: None,
            sent_at: VecDeque::new(),
        }
    }

    /// Takes over the numbers of the same router under an earlier configuration.
    pub(crate) fn adopt(&mut self, old: &UpdateNumbers) {
        self.sequence = old.sequence;
        self.is_numbered = old.is_numbered;
        self.timestamps_demanded =
            old.timestamps_demanded && self.authentication.association() == old.authentication.association();
        self.clock_offset = old.clock_offset;
        self.newest_timestamp = old.newest_timestamp;
        self.acknowledged_timestamp = old.acknowledged_timestamp;
        self.sent_at.clone_from(&old.sent_at);
    }

    pub(crate) fn update_rate_limit(&mut self, now: Time) -> Option<Time> {
        let second = Duration::from_secs(1);
        while self.sent_at.front().is_some_and(|at| now.saturating_since(*at) >= second) {
            self.sent_at.pop_front();
        }
        let first = self.sent_at.front()?;
        (self.sent_at.len() >= MAX_UPDATE_RATE).then_some(*first + second)
    }

    /// Returns the NTP timestamp for a Message-ID option, if the security association requires one. It is
    /// greater than every one before (RFC 4285 6), also at the same instant or after the clock was set back a
    /// little.
    pub(crate) fn timestamp(&mut self, wall: WallTime) -> Option<u64> {
        self.replay_window()?;
        let clock = self.clock(wall).to_ntp();
        let least = self.newest_timestamp.map_or(clock, |newest| newest.wrapping_add(1));
        let timestamp = if is_later(clock, least) { clock } else { least };
        self.newest_timestamp = Some(timestamp);
        Some(timestamp)
    }

    /// Returns the largest permitted difference between the clocks; `None` without timestamps.
    pub(crate) fn replay_window(&self) -> Option<Duration> {
        match self.authentication.association()?.replay {
            ReplayProtection::Timestamp { window } => Some(window),
            ReplayProtection::Sequence => self.timestamps_demanded.then_some(DEFAULT_WINDOW),
        }
    }

    /// Returns the home agent's clock as far as the router knows it.
    pub(crate) fn clock(&self, wall: WallTime) -> WallTime {
        let nanos = i128::from(wall.as_unix_nanos()) + self.clock_offset;
        WallTime::from_unix_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Applies status 145 (RFC 4285 6): from now on Binding Updates have timestamps. Returns false if they
    /// had them before.
    fn take_up_timestamps(&mut self) -> bool {
        let can = self.authentication.association().is_some() && self.replay_window().is_none();
        self.timestamps_demanded |= can;
        can
    }

    /// Applies status 144: the home agent's clock counts (RFC 4285 6). The home agent names its time to a
    /// second. If that is close enough to the sent timestamp, the clock is right: the timestamp was only
    /// older than another one.
    fn learn_clock(&mut self, wall: WallTime, sent: Option<u64>, told: Option<u64>) {
        let clock = self.clock(wall);
        let date = |timestamp: Option<u64>| Some(WallTime::from_ntp(timestamp?, clock));
        let (Some(window), Some(ours), Some(theirs)) = (self.replay_window(), date(sent), date(told)) else {
            return;
        };
        if theirs.distance(ours) + Duration::from_secs(1) > window {
            self.clock_offset = i128::from(theirs.as_unix_nanos()) - i128::from(wall.as_unix_nanos());
            self.newest_timestamp = self.acknowledged_timestamp;
        }
    }

    /// Returns sequence number and timestamp of a Binding Update that leaves now. A router without stored
    /// state starts from the minutes of its clock, so two starts are as many numbers apart as minutes. A
    /// random number would use up the key's 2^15 numbers (RFC 6275 15.3) in a few starts.
    pub(crate) fn next(&mut self, now: Time, wall: WallTime) -> (u16, Option<u64>) {
        self.sent_at.push_back(now);
        if !self.is_numbered {
            self.sequence = (wall.as_unix_nanos() / MINUTE) as u16;
            self.is_numbered = true;
        }
        self.sequence = self.sequence.wrapping_add(1);
        (self.sequence, self.timestamp(wall))
    }

    /// Takes over the number in status 135. Returns false if the acknowledgement is a duplicate or late: the
    /// last Binding Update has passed that number already.
    pub(crate) fn take_sequence(&mut self, last: u16) -> bool {
        let is_news = !is_newer(self.sequence, last);
        if is_news {
            self.sequence = last;
        }
        is_news
    }

    /// Records the timestamp of an acknowledgement.
    pub(crate) fn timestamp_acknowledged(&mut self, told: Option<u64>) {
        let newest = self.acknowledged_timestamp;
        self.acknowledged_timestamp =
            told.filter(|new| newest.is_none_or(|old| is_later(*new, old))).or(newest);
    }

    /// Judges an acknowledgement by its status and timestamp; `sent` is the timestamp of the Binding Update.
    ///
    /// # Errors
    /// Returns a reason if the acknowledgement has another timestamp.
    pub(crate) fn judge(
        &mut self,
        wall: WallTime,
        status: Status,
        sent: Option<u64>,
        told: Option<u64>,
    ) -> Result<Judgement, MobilityDrop> {
        match status {
            Status::ID_MISMATCH => {
                self.learn_clock(wall, sent, told);
                Ok(Judgement::Repeat)
            }
            Status::MESSAGE_ID_REQUIRED if self.take_up_timestamps() => Ok(Judgement::Repeat),
            _ if sent.is_some() && sent != told => Err(MobilityDrop::Timestamp),
            _ => Ok(Judgement::Answer),
        }
    }
}
