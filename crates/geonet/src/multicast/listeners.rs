//! Multicast listeners of one link: the state of an MLDv2 router (RFC 3810 7.2 to 7.5).
//!
//! Each group has a filter mode, a list of sources, and timers. INCLUDE (A): listeners want only A. EXCLUDE
//! (X, Y): they want all sources but Y. X holds the sources that listeners have requested by name; they
//! matter after the last EXCLUDE listener has left. The router stores each query of the tables in 7.4 ("send
//! Q(...)") with a count. The querier of the link sends the queries that are due.
//!
//! **Bounds.** The router stores [`MAX_GROUPS`] groups and [`MAX_SOURCES`] sources of each. It refuses
//! further groups. A group with more sources counts as EXCLUDE of no source for
//! [`MldTiming::listening_interval`], because forwarding unwanted packets is better than losing wanted ones.
//! The cost of a report depends only on the groups that it names, because any host may send reports without
//! end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mld::{GroupRecord, GroupRecordType};

/// Largest number of groups of one link.
pub const MAX_GROUPS: usize = 256;
/// Largest number of sources of a group, so that one query can name all of them.
pub const MAX_SOURCES: usize = 64;

/// The times and counts of RFC 3810 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MldTiming {
    /// Robustness Variable (9.1), at least 1.
    pub robustness_variable: u8,
    /// Query Interval: time between General Queries (9.2).
    pub query_interval: Duration,
    /// Query Response Interval: longest time for the answer to a General Query (9.3).
    pub query_response_interval: Duration,
    /// Last Listener Query Interval: time between the queries that precede the end of a membership (9.8).
    pub last_listener_query_interval: Duration,
}

impl Default for MldTiming {
    fn default() -> MldTiming {
        MldTiming {
            robustness_variable: 2,
            query_interval: Duration::from_secs(125),
            query_response_interval: Duration::from_secs(10),
            last_listener_query_interval: Duration::from_secs(1),
        }
    }
}

impl MldTiming {
    /// Returns the Multicast Address Listening Interval (9.4): a membership ends if no listener reports it
    /// for this time. The Older Version Host Present Timeout (9.13) is equal.
    pub fn listening_interval(&self) -> Duration {
        self.query_interval * self.robustness_variable.into() + self.query_response_interval
    }

    /// Returns the Other Querier Present Timeout (9.5): after this time without a query, the other querier
    /// counts as gone.
    pub fn other_querier_timeout(&self) -> Duration {
        self.query_interval * self.robustness_variable.into() + self.query_response_interval / 2
    }

    /// Returns the Last Listener Query Time: how long the querier waits for reports before it ends a
    /// membership (9.10).
    pub fn last_listener_query_time(&self) -> Duration {
        self.last_listener_query_interval * self.robustness_variable.into()
    }
}

/// Source filter of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceFilter {
    /// Forward only packets of these sources.
    Include(BTreeSet<Ipv6Addr>),
    /// Forward packets of all sources but these.
    Exclude(BTreeSet<Ipv6Addr>),
}

impl SourceFilter {
    /// Returns the union of both filters (RFC 3810 4.2).
    pub fn union_with(self, other: SourceFilter) -> SourceFilter {
        match (self, other) {
            (SourceFilter::Include(a), SourceFilter::Include(b)) => SourceFilter::Include(&a | &b),
            (SourceFilter::Exclude(a), SourceFilter::Exclude(b)) => SourceFilter::Exclude(&a & &b),
            (SourceFilter::Exclude(not), SourceFilter::Include(only))
            | (SourceFilter::Include(only), SourceFilter::Exclude(not)) => {
                SourceFilter::Exclude(&not - &only)
            }
        }
    }
}

/// A query that the querier must send now (RFC 3810 7.6.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingQuery {
    /// Group of the query.
    pub group: Ipv6Addr,
    /// Sources of the query; empty for a query about the group.
    pub sources: Vec<Ipv6Addr>,
    /// S: other routers that receive the query do not lower their timers.
    pub suppress_router_timers: bool,
}

#[derive(Debug, Default)]
struct GroupState {
    /// Filter Timer; `None` in INCLUDE mode.
    exclude_until: Option<Time>,
    /// Source Timers; [`Time::ZERO`] for a source that EXCLUDE mode excludes.
    source_timers: BTreeMap<Ipv6Addr, Time>,
    /// Older Version Host Present Timer.
    version_1_host_until: Time,
    /// Number of queries still to send about the group.
    group_queries_left: u8,
    /// Number of queries still to send about each source of the group.
    source_queries_left: BTreeMap<Ipv6Addr, u8>,
    /// Time of the next query; `None` if no query is left to send.
    next_query_at: Option<Time>,
    /// Time of the group's entry in [`Listeners::groups_by_timer`].
    timer_scheduled_at: Option<Time>,
}

/// The listeners of a link.
#[derive(Debug, Default)]
pub struct Listeners {
    groups: BTreeMap<Ipv6Addr, Box<GroupState>>,
    /// Groups by the time of their next timer or query; the time may be too early, never too late.
    groups_by_timer: BTreeSet<(Time, Ipv6Addr)>,
    /// Groups whose filter may have changed since the last call of [`Self::take_changed_groups`].
    changed_groups: BTreeSet<Ipv6Addr>,
}

/// Error: the link has no room for another group.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyGroupsError;

impl Listeners {
    /// Handles a group record of a listener report. `is_querier` says whether this router is the querier; the
    /// querier sends queries before it ends a membership.
    ///
    /// # Errors
    ///
    /// The link already has the largest number of groups.
    pub fn handle_record(
        &mut self,
        now: Time,
        timing: &MldTiming,
        record: &GroupRecord<'_>,
        is_querier: bool,
    ) -> Result<(), TooManyGroupsError> {
        let Some(kind) = record.record_type else { return Ok(()) };
        let sources = record.sources.iter().take(MAX_SOURCES + 1).collect();
        self.handle_group_record(now, timing, kind, record.group, sources, is_querier)
    }

    /// Handles a version 1 report as IS_EX({}) (RFC 3810 8.3.2).
    ///
    /// # Errors
    /// The link has no room for the group.
    pub fn handle_report_v1(
        &mut self,
        now: Time,
        timing: &MldTiming,
        group: Ipv6Addr,
    ) -> Result<(), TooManyGroupsError> {
        self.handle_group_record(now, timing, GroupRecordType::IsExclude, group, BTreeSet::new(), false)?;
        if let Some(known) = self.groups.get_mut(&group) {
            known.version_1_host_until = now + timing.listening_interval();
        }
        Ok(())
    }

    /// Handles a version 1 Done message as TO_IN({}).
    pub fn handle_done_v1(&mut self, now: Time, timing: &MldTiming, group: Ipv6Addr, is_querier: bool) {
        if self.groups.contains_key(&group) {
            let _known = self.handle_group_record(
                now,
                timing,
                GroupRecordType::ToInclude,
                group,
                BTreeSet::new(),
                is_querier,
            );
        }
    }

    fn handle_group_record(
        &mut self,
        now: Time,
        timing: &MldTiming,
        kind: GroupRecordType,
        address: Ipv6Addr,
        sources: BTreeSet<Ipv6Addr>,
        is_querier: bool,
    ) -> Result<(), TooManyGroupsError> {
        if !self.groups.contains_key(&address) {
            let nothing = match kind {
                GroupRecordType::IsInclude | GroupRecordType::ToInclude | GroupRecordType::Allow => {
                    sources.is_empty()
                }
                GroupRecordType::Block => true,
                GroupRecordType::IsExclude | GroupRecordType::ToExclude => false,
            };
            if nothing {
                return Ok(());
            }
            if self.groups.len() >= MAX_GROUPS {
                return Err(TooManyGroupsError);
            }
        }
        let group = self.groups.entry(address).or_default();
        group.expire_timers(now);
        let asked = group.handle_record(now, timing, kind, sources);
        if is_querier {
            group.schedule_queries(now, timing, asked);
        }
        self.reschedule_or_remove(address);
        Ok(())
    }

    /// Removes a group without listeners, or stores the time of the group's next timer.
    fn reschedule_or_remove(&mut self, address: Ipv6Addr) {
        let Some(group) = self.groups.get_mut(&address) else { return };
        if let Some(scheduled) = group.timer_scheduled_at.take() {
            self.groups_by_timer.remove(&(scheduled, address));
        }
        self.changed_groups.insert(address);
        if group.is_empty() {
            self.groups.remove(&address);
            return;
        }
        group.timer_scheduled_at = group.next_timer_at();
        self.groups_by_timer.extend(group.timer_scheduled_at.map(|due| (due, address)));
    }

    /// Removes and returns the groups whose filter has changed since the last call.
    pub fn take_changed_groups(&mut self) -> BTreeSet<Ipv6Addr> {
        std::mem::take(&mut self.changed_groups)
    }

    /// Returns the filter of a group; `None` if the group has no listeners.
    pub fn filter_of(&self, group: Ipv6Addr) -> Option<SourceFilter> {
        self.groups.get(&group).map(|group| group.source_filter())
    }

    /// Lowers timers after a query of the link's querier (RFC 3810 7.6.1).
    pub fn handle_query(
        &mut self,
        now: Time,
        time: Duration,
        group: Ipv6Addr,
        sources: impl Iterator<Item = Ipv6Addr>,
    ) {
        let address = group;
        let Some(group) = self.groups.get_mut(&address) else { return };
        let (until, mut about_group) = (now + time, true);
        for source in sources {
            about_group = false;
            if let Some(timer) = group.source_timers.get_mut(&source) {
                *timer = (*timer).min(until);
            }
        }
        if about_group && let Some(filter_until) = &mut group.exclude_until {
            *filter_until = (*filter_until).min(until);
        }
        self.reschedule_or_remove(address);
    }

    /// Cancels all queries, because this router is no longer the querier.
    pub fn cancel_queries(&mut self) {
        for group in self.groups.values_mut() {
            (group.group_queries_left, group.next_query_at) = (0, None);
            group.source_queries_left.clear();
        }
    }

    /// Removes all memberships.
    pub fn clear(&mut self) {
        self.changed_groups.extend(self.groups.keys());
        self.groups_by_timer.clear();
        self.groups.clear();
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.groups_by_timer.first().map(|(due, _)| *due)
    }

    /// Removes expired memberships; returns the queries that are due now.
    pub fn handle_timeout(&mut self, now: Time, timing: &MldTiming) -> Vec<PendingQuery> {
        let mut questions = Vec::new();
        while self.groups_by_timer.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, address)) = self.groups_by_timer.pop_first() else { break };
            if let Some(group) = self.groups.get_mut(&address) {
                group.expire_timers(now);
                if group.next_query_at.is_some_and(|at| at <= now) {
                    group.due_queries(now, timing, address, &mut questions);
                }
            }
            self.reschedule_or_remove(address);
        }
        questions
    }

    /// Returns whether a listener wants packets from this source to this group (RFC 3810 7.3).
    pub fn has_listener(&self, now: Time, group: Ipv6Addr, source: Ipv6Addr) -> bool {
        let Some(group) = self.groups.get(&group) else { return false };
        match group.source_timers.get(&source) {
            Some(timer) => *timer > now,
            None => group.exclude_until.is_some_and(|until| until > now),
        }
    }

    /// Returns every group with its filter and the end of its membership.
    pub fn groups(&self) -> impl Iterator<Item = (Ipv6Addr, SourceFilter, Option<Time>)> {
        self.groups.iter().map(|(address, group)| (*address, group.source_filter(), group.membership_until()))
    }
}

/// Queries that the tables of 7.4 require.
#[derive(Debug, Default)]
struct QueriesToSchedule {
    sources: BTreeSet<Ipv6Addr>,
    queries_group: bool,
}

impl GroupState {
    /// Handles a record by the tables of RFC 3810 7.4.1 and 7.4.2.
    fn handle_record(
        &mut self,
        now: Time,
        timing: &MldTiming,
        kind: GroupRecordType,
        mut given: BTreeSet<Ipv6Addr>,
    ) -> QueriesToSchedule {
        let long = now + timing.listening_interval();
        let mut asked = QueriesToSchedule::default();
        if self.version_1_host_until > now {
            // 8.3.2: a version 1 host does not answer queries about sources.
            match kind {
                GroupRecordType::Block => return asked,
                GroupRecordType::ToExclude => given.clear(),
                _ => {}
            }
        }
        let known: BTreeSet<Ipv6Addr> = self.source_timers.keys().copied().collect();
        let excluded = self.source_timers.iter().filter(|(_, timer)| **timer == Time::ZERO);
        let excluded: BTreeSet<Ipv6Addr> = excluded.map(|(source, _)| *source).collect();
        match (self.exclude_until, kind) {
            (_, GroupRecordType::IsInclude | GroupRecordType::Allow) => {
                self.source_timers.extend(given.iter().map(|source| (*source, long)));
            }
            (None, GroupRecordType::Block) => asked.sources = &known & &given,
            (None, GroupRecordType::ToInclude) => {
                asked.sources = &known - &given;
                self.source_timers.extend(given.iter().map(|source| (*source, long)));
            }
            (None, GroupRecordType::IsExclude | GroupRecordType::ToExclude) => {
                if kind == GroupRecordType::ToExclude {
                    asked.sources = &known & &given;
                }
                self.source_timers.retain(|source, _| given.contains(source));
                self.add(&given, Time::ZERO);
                self.exclude_until = Some(long);
            }
            (Some(filter_until), GroupRecordType::Block) => {
                self.add(&given, filter_until);
                asked.sources = &given - &excluded;
            }
            (Some(_), GroupRecordType::ToInclude) => {
                asked.sources = &(&known - &excluded) - &given;
                asked.queries_group = true;
                self.source_timers.extend(given.iter().map(|source| (*source, long)));
            }
            (Some(filter_until), GroupRecordType::IsExclude | GroupRecordType::ToExclude) => {
                let timer = if kind == GroupRecordType::ToExclude { filter_until } else { long };
                if kind == GroupRecordType::ToExclude {
                    asked.sources = &given - &excluded;
                }
                self.source_timers.retain(|source, _| given.contains(source));
                self.add(&given, timer);
                self.exclude_until = Some(long);
            }
        }
        if self.source_timers.len() > MAX_SOURCES {
            self.source_timers.clear();
            self.exclude_until = Some(long);
            asked.sources.clear();
        }
        asked
    }

    /// Adds the sources that the group does not have yet, with `timer` as their Source Timer.
    fn add(&mut self, sources: &BTreeSet<Ipv6Addr>, timer: Time) {
        for source in sources {
            self.source_timers.entry(*source).or_insert(timer);
        }
    }

    /// Lowers the timers and schedules the queries of RFC 3810 7.6.3. A query that is due within the Last
    /// Listener Query Interval serves further reports, too. So a host that joins and leaves repeatedly does
    /// not cause a query for each report.
    fn schedule_queries(&mut self, now: Time, timing: &MldTiming, asked: QueriesToSchedule) {
        let low = now + timing.last_listener_query_time();
        let count = timing.robustness_variable.max(1);
        let at = Some(self.next_query_at.unwrap_or(now));
        if let (true, Some(filter_until)) = (asked.queries_group, &mut self.exclude_until) {
            *filter_until = (*filter_until).min(low);
            (self.group_queries_left, self.next_query_at) = (count, at);
        }
        for source in asked.sources {
            let Some(timer) = self.source_timers.get_mut(&source).filter(|timer| **timer > low) else {
                continue;
            };
            *timer = low;
            self.source_queries_left.insert(source, count);
            self.next_query_at = at;
        }
    }

    fn due_queries(
        &mut self,
        now: Time,
        timing: &MldTiming,
        group: Ipv6Addr,
        questions: &mut Vec<PendingQuery>,
    ) {
        let low = now + timing.last_listener_query_time();
        let mut about_group = false;
        if let (1.., Some(filter_until)) = (self.group_queries_left, self.exclude_until) {
            self.group_queries_left -= 1;
            about_group = true;
            questions.push(PendingQuery {
                group,
                sources: Vec::new(),
                suppress_router_timers: filter_until > low,
            });
        }
        let GroupState { source_queries_left: ask_sources, source_timers: sources, .. } = self;
        ask_sources.retain(|source, _| sources.get(source).is_some_and(|timer| *timer > now));
        let (wanted, unsure): (Vec<Ipv6Addr>, Vec<Ipv6Addr>) =
            ask_sources.keys().partition(|source| sources.get(*source).is_some_and(|timer| *timer > low));
        ask_sources.values_mut().for_each(|count| *count -= 1);
        ask_sources.retain(|_, count| *count > 0);
        for (sources, suppress) in [(wanted, true), (unsure, false)] {
            // The query with the S flag is about sources whose timers are above the Last Listener Query Time.
            // The querier omits it if it also sends a query about the whole group.
            let spared = suppress && about_group;
            if !(sources.is_empty() || spared) {
                questions.push(PendingQuery { group, sources, suppress_router_timers: suppress });
            }
        }
        let more = self.group_queries_left > 0 || !self.source_queries_left.is_empty();
        self.next_query_at = more.then(|| now + timing.last_listener_query_interval);
    }

    /// Handles timers that have expired (RFC 3810 7.2.3, 7.5).
    fn expire_timers(&mut self, now: Time) {
        if self.exclude_until.is_some_and(|until| until <= now) {
            self.exclude_until = None;
            self.group_queries_left = 0;
        }
        match self.exclude_until {
            Some(_) => self
                .source_timers
                .values_mut()
                .filter(|timer| **timer <= now)
                .for_each(|timer| *timer = Time::ZERO),
            None => self.source_timers.retain(|_, timer| *timer > now),
        }
    }

    fn is_empty(&self) -> bool {
        self.exclude_until.is_none() && self.source_timers.is_empty()
    }

    fn next_timer_at(&self) -> Option<Time> {
        let sources = self.source_timers.values().copied().filter(|timer| *timer > Time::ZERO);
        sources.chain(self.exclude_until).chain(self.next_query_at).min()
    }

    /// Returns the time at which the membership ends if no listener reports it again; `None` if the group has
    /// neither a Filter Timer nor sources.
    fn membership_until(&self) -> Option<Time> {
        self.exclude_until.or_else(|| self.source_timers.values().copied().max())
    }

    fn source_filter(&self) -> SourceFilter {
        match self.exclude_until {
            Some(_) => {
                let excluded = self.source_timers.iter().filter(|(_, timer)| **timer == Time::ZERO);
                SourceFilter::Exclude(excluded.map(|(source, _)| *source).collect())
            }
            None => SourceFilter::Include(self.source_timers.keys().copied().collect()),
        }
    }
}
