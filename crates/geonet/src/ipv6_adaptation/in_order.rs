//! Reordering buffer: delivers packets of a source in the order in which the source sent them, within a
//! limited wait.
//!
//! When the path between two stations becomes shorter, packets on the new path overtake packets on the old
//! path. TCP takes the reordering for loss. The sequence number of GeoNetworking shows that numbers are
//! missing. A gap alone says little: one series of numbers serves all packets of the source, so the missing
//! packets may be for other stations. One of three rules ([`Rule`]) decides whether the packets of a gap are
//! expected. The first rule requires a shorter path, the second a changed path (TCP over Geo-routing for High
//! Mobility: "a change of hop count tells a change of path"). The third rule requires only the gap. With the
//! first two rules no packet waits on a steady path. The module computes the hold time from the lateness of
//! earlier packets: SRTT + 4 VAR, as in TCP's timer, and at most the bound. The module delivers a packet at
//! once if it arrives after the hold time.
//!
//! Left out: broadcasts, which arrive over many paths at once and are not streams.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::Time;

/// Largest number of sources.
const SOURCES: usize = 256;
/// Largest number of waiting packets of one source.
const WAITING: usize = 128;
/// Shortest hold time: the resolution of the timers.
const SHORTEST: Duration = Duration::from_millis(1);

/// Rule for a packet that leaves a gap of numbers: when it waits for the missing packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rule {
    /// The packet waits if it came over fewer hops than the packet before: over as many or more hops it has
    /// seldom overtaken another packet.
    #[default]
    Shorter,
    /// The packet waits if it came over another number of hops, the paper's rule: a longer path may have less
    /// load.
    Changed,
    /// The packet always waits: right for a source that sends (almost) only to this station.
    Always,
}

impl Rule {
    /// Returns whether a packet that came over `hops` hops waits, after a packet that came over `before`
    /// hops.
    pub(super) fn waits(self, before: u8, hops: u8) -> bool {
        match self {
            Rule::Shorter => hops < before,
            Rule::Changed => hops != before,
            Rule::Always => true,
        }
    }
}

#[derive(Debug)]
struct Waiting<T> {
    sequence: u16,
    hops: u8,
    since: Time,
    item: T,
}

#[derive(Debug)]
struct Source<T> {
    /// Number of the latest delivered packet, and its hops.
    latest: u16,
    hops: u8,
    /// Time of the last packet of the source.
    heard: Time,
    /// Waiting packets in the order of their numbers.
    waiting: VecDeque<Waiting<T>>,
    /// SRTT and VAR of the lateness of packets for which another packet waited.
    lateness: Option<(Duration, Duration)>,
}

/// Holds back packets that have overtaken others.
#[derive(Debug)]
pub struct InOrder<T> {
    rule: Rule,
    bound: Duration,
    sources: BTreeMap<u64, Box<Source<T>>>,
    /// Number of packets that had to wait.
    pub held: u64,
    /// Number of packets that arrived after the module had delivered later ones.
    pub late: u64,
}

impl<T> InOrder<T> {
    /// Creates a buffer: packets wait according to `rule`, at most for `bound`.
    pub fn new(rule: Rule, bound: Duration) -> InOrder<T> {
        InOrder { rule, bound, sources: BTreeMap::new(), held: 0, late: 0 }
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.sources.values().filter_map(|source| source.due(self.bound)).min()
    }

    /// Accepts a packet of a source with its sequence number and hops; passes the packets to deliver now to
    /// `out`.
    pub fn push(
        &mut self,
        now: Time,
        source: u64,
        sequence: u16,
        hops: u8,
        item: T,
        out: &mut impl FnMut(T),
    ) {
        let rule = self.rule;
        let Some(known) = self.sources.get_mut(&source) else {
            self.make_room();
            if self.sources.len() >= SOURCES {
                // All sources have waiting packets, so none can make room.
                out(item);
                return;
            }
            let lateness = None;
            let waiting = VecDeque::new();
            let known = Source { latest: sequence, hops, heard: now, waiting, lateness };
            self.sources.insert(source, Box::new(known));
            out(item);
            return;
        };
        known.heard = now;
        match ahead(sequence, known.latest) {
            // The module no longer waited for this packet, or the source has restarted.
            ..=0 => {
                self.late += 1;
                if known.waiting.is_empty() && ahead(sequence, known.latest) < -(WAITING as i16) {
                    (known.latest, known.hops) = (sequence, hops);
                }
                out(item);
            }
            1 => {
                known.learn(now);
                (known.latest, known.hops) = (sequence, hops);
                out(item);
                known.release(None, out);
            }
            _ if known.waiting.is_empty() && !rule.waits(known.hops, hops) => {
                (known.latest, known.hops) = (sequence, hops);
                out(item);
            }
            _ => {
                let before = |waiting: &Waiting<T>| ahead(waiting.sequence, sequence) < 0;
                let at = known.waiting.partition_point(before);
                if at == 0 && !known.waiting.is_empty() {
                    known.learn(now);
                }
                known.waiting.insert(at, Waiting { sequence, hops, since: now, item });
                self.held += 1;
                if known.waiting.len() > WAITING {
                    let first = known.waiting.front().map(|first| first.sequence);
                    known.release(first, out);
                }
            }
        }
    }

    /// Delivers the packets whose hold time has ended, and the packets behind them.
    pub fn handle_timeout(&mut self, now: Time, out: &mut impl FnMut(T)) {
        for source in self.sources.values_mut() {
            while source.due(self.bound).is_some_and(|due| due <= now) {
                let wait = source.wait(self.bound);
                let over = source.waiting.iter().rev().find(|waiting| waiting.since + wait <= now);
                let Some(over) = over.map(|over| over.sequence) else { break };
                source.release(Some(over), out);
            }
        }
    }

    /// Removes all sources; passes the waiting packets to `out`.
    pub fn clear(&mut self, out: &mut impl FnMut(T)) {
        for source in std::mem::take(&mut self.sources).into_values() {
            source.waiting.into_iter().for_each(|waiting| out(waiting.item));
        }
    }

    /// Removes the source without packets for the longest time if the table is full; only a source without
    /// waiting packets.
    fn make_room(&mut self) {
        if self.sources.len() < SOURCES {
            return;
        }
        let idle = self.sources.iter().filter(|(_, source)| source.waiting.is_empty());
        if let Some(oldest) = idle.min_by_key(|(_, source)| source.heard).map(|(oldest, _)| *oldest) {
            self.sources.remove(&oldest);
        }
    }
}

impl<T> Source<T> {
    fn wait(&self, bound: Duration) -> Duration {
        let learnt = self.lateness.map_or(bound, |(mean, variation)| mean + variation * 4);
        learnt.max(SHORTEST).min(bound)
    }

    fn due(&self, bound: Duration) -> Option<Time> {
        let first = self.waiting.iter().map(|waiting| waiting.since).min()?;
        Some(first + self.wait(bound))
    }

    /// Updates the lateness when a missing packet arrives for which others wait.
    fn learn(&mut self, now: Time) {
        let Some(since) = self.waiting.iter().map(|waiting| waiting.since).min() else { return };
        let late = now.saturating_since(since);
        // RFC 6298 2, with the weights of TCP.
        self.lateness = Some(match self.lateness {
            None => (late, late / 2),
            Some((mean, variation)) => (mean * 7 / 8 + late / 8, variation * 3 / 4 + mean.abs_diff(late) / 4),
        });
    }

    /// Delivers waiting packets up to a number, and those that follow without a gap.
    fn release(&mut self, up_to: Option<u16>, out: &mut impl FnMut(T)) {
        while let Some(first) = self.waiting.front() {
            let is_over = up_to.is_some_and(|last| ahead(first.sequence, last) <= 0);
            if !is_over && ahead(first.sequence, self.latest) != 1 {
                break;
            }
            let Some(first) = self.waiting.pop_front() else { break };
            (self.latest, self.hops) = (first.sequence, first.hops);
            out(first.item);
        }
    }
}

/// Returns by how much a number is ahead of another one, modulo 2^16.
fn ahead(sequence: u16, of: u16) -> i16 {
    sequence.wrapping_sub(of) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(50);

    fn ms(count: u64) -> Time {
        Time::from_millis(1000 + count)
    }

    /// Pushes packets of time, number and hops; returns the numbers delivered by then.
    fn pushed(order: &mut InOrder<u16>, packets: &[(u64, u16, u8)]) -> Vec<u16> {
        let mut out = Vec::new();
        for (at, sequence, hops) in packets {
            order.handle_timeout(ms(*at), &mut |item| out.push(item));
            order.push(ms(*at), 7, *sequence, *hops, *sequence, &mut |item| out.push(item));
        }
        out
    }

    #[test]
    fn on_a_steady_path_nothing_waits() {
        let mut order = InOrder::new(Rule::Shorter, BOUND);
        // The missing packets were for other stations: packets over as many or more hops do not wait.
        assert_eq!(
            pushed(&mut order, &[(0, 1, 2), (1, 2, 2), (2, 5, 2), (3, 9, 3), (4, 10, 3)]),
            [1, 2, 5, 9, 10]
        );
        assert_eq!((order.poll_timeout(), order.held), (None, 0));
    }

    #[test]
    fn what_has_overtaken_waits_for_what_it_overtook() {
        let mut order = InOrder::new(Rule::Shorter, BOUND);
        let packets = [(0, 1, 3), (1, 4, 2), (2, 5, 2), (3, 2, 3), (4, 3, 3), (5, 6, 2)];
        assert_eq!(pushed(&mut order, &packets), [1, 2, 3, 4, 5, 6]);
        assert_eq!((order.held, order.late), (2, 0));
        assert_eq!(order.poll_timeout(), None);
    }

    #[test]
    fn other_rules_wait_more_often() {
        // A packet over one hop more and a packet over the same hops leave gaps: 2 and 3, then 6 and 7 arrive
        // late.
        let packets =
            [(0, 1, 2), (1, 4, 3), (2, 2, 2), (3, 3, 2), (4, 5, 3), (5, 8, 3), (6, 6, 3), (7, 7, 3)];
        let under = |rule| {
            let mut order = InOrder::new(rule, BOUND);
            (pushed(&mut order, &packets), order.held)
        };
        assert_eq!(under(Rule::Shorter), (vec![1, 4, 2, 3, 5, 8, 6, 7], 0));
        assert_eq!(under(Rule::Changed), (vec![1, 2, 3, 4, 5, 8, 6, 7], 1));
        assert_eq!(under(Rule::Always), (vec![1, 2, 3, 4, 5, 6, 7, 8], 2));
        // Under every rule the hold time is limited, because packets for other stations never arrive.
        for rule in [Rule::Shorter, Rule::Changed, Rule::Always] {
            let mut order = InOrder::new(rule, BOUND);
            assert_eq!(pushed(&mut order, &[(0, 1, 3), (1, 9, 2)]), [1]);
            assert_eq!(order.poll_timeout(), Some(ms(51)));
            let mut out = Vec::new();
            order.handle_timeout(ms(51), &mut |item| out.push(item));
            assert_eq!(out, [9]);
        }
    }

    #[test]
    fn nothing_waits_longer_than_the_bound() {
        let mut order = InOrder::new(Rule::Shorter, BOUND);
        assert_eq!(pushed(&mut order, &[(0, 1, 3), (10, 4, 2), (20, 5, 2)]), [1]);
        assert_eq!(order.poll_timeout(), Some(ms(60)));
        let mut out = Vec::new();
        order.handle_timeout(ms(59), &mut |item| out.push(item));
        assert!(out.is_empty());
        order.handle_timeout(ms(60), &mut |item| out.push(item));
        assert_eq!(out, [4, 5], "what follows without a gap goes with it");
        assert_eq!(pushed(&mut order, &[(61, 2, 3)]), [2], "too late is not never");
        assert_eq!(order.late, 1);
    }

    #[test]
    fn the_wait_is_learnt() {
        let mut order = InOrder::new(Rule::Shorter, BOUND);
        assert_eq!(pushed(&mut order, &[(0, 1, 3), (1, 3, 2), (5, 2, 3)]), [1, 2, 3]);
        // Lateness 4 ms and variation 2 ms give a hold time of 12 ms.
        assert_eq!(pushed(&mut order, &[(10, 4, 3), (11, 6, 2)]), [4]);
        assert_eq!(order.poll_timeout(), Some(ms(23)));
        // A lateness of 40 ms would give 120 ms; the bound limits the hold time.
        let mut order = InOrder::new(Rule::Shorter, BOUND);
        assert_eq!(
            pushed(&mut order, &[(0, 1, 3), (1, 3, 2), (41, 2, 3), (50, 4, 3), (51, 6, 2)]),
            [1, 2, 3, 4]
        );
        assert_eq!(order.poll_timeout(), Some(ms(101)));
    }

    #[test]
    fn numbers_go_round_and_sources_begin_anew() {
        let mut order = InOrder::new(Rule::Shorter, BOUND);
        assert_eq!(
            pushed(&mut order, &[(0, 65_534, 3), (1, 1, 2), (2, 65_535, 3), (3, 0, 3)]),
            [65_534, 65_535, 0, 1]
        );
        let mut order = InOrder::new(Rule::Shorter, BOUND);
        assert_eq!(
            pushed(&mut order, &[(0, 5000, 3), (1, 0, 3), (2, 1, 2), (3, 3, 1), (4, 2, 2)]),
            [5000, 0, 1, 2, 3]
        );
    }

    #[test]
    fn many_wait_and_many_speak_within_bounds() {
        let mut order = InOrder::new(Rule::Shorter, BOUND);
        pushed(&mut order, &[(0, 1, 9)]);
        let flood: Vec<(u64, u16, u8)> = (0..1000).map(|number| (1, 3 + 2 * number, 1)).collect();
        assert!(pushed(&mut order, &flood).len() >= 1000 - WAITING);
        assert!(order.sources[&7].waiting.len() <= WAITING);
        for source in 0..10_000 {
            order.push(ms(2), source, 1, 1, 1, &mut |_| {});
        }
        assert!(order.sources.len() <= SOURCES && order.sources.contains_key(&9999));
        let mut rest = 0;
        order.clear(&mut |_| rest += 1);
        assert!(rest > 0 && order.poll_timeout().is_none());
    }
}
