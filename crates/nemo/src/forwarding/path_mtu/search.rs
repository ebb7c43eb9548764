//! One search for the largest packet that a path carries: rounds of probes, and the conclusion from them.
//!
//! The first round is one probe of the target size. If the path carries this size, the search ends. If the
//! probe is lost, the second round tries every candidate at once. So one round trip shows how large a packet
//! the path carries. A lost probe says little, because the probe or its answer may be lost for another
//! reason. So the search needs [`MAX_PROBES_PER_SIZE`] lost probes of the target size, while smaller probes
//! of at least two rounds were answered. Only then it calls the target size too large. If smaller probes were
//! lost as well, the search needs twice that number.

use std::time::Duration;

use carnet_base::{Endpoint, Time};
use carnet_wire::ipv6::MIN_MTU;

/// Size in octets that each IPv4 host accepts, possibly in fragments (RFC 1122 3.3.2). Smaller MTUs hardly
/// exist.
const IPV4_BASE_SIZE: u32 = 576;
/// Common MTUs (RFC 8899 5.3.2), with the outer header: jumbo frames, FDDI, Wi-Fi, Ethernet, PPPoE, tunnels
/// of many kinds, IPv6's minimum.
const COMMON_MTUS: [u32; 17] =
    [1280, 1320, 1340, 1360, 1380, 1400, 1420, 1428, 1440, 1460, 1480, 1492, 1500, 2002, 2304, 4352, 9000];

/// Octets that a data message of an encrypted session adds to its payload: header and tag.
const SESSION_OVERHEAD: u32 = 32;
/// Octets of the link header (`docs/tunnel.md`), for which the MTU of an encrypted session leaves room.
const LINK_HEADER_LENGTH: u32 = 16;

/// Limits of the sizes that a search tries, the same for all paths of an encapsulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeLimits {
    /// Size that every path carries (`BASE_PLPMTU` and `MIN_PLPMTU` of RFC 8899 5.1.2), without the outer
    /// header.
    pub base_size: u32,
    /// Octets of the outer header.
    pub overhead_octets: u32,
    /// Whether the path is in encrypted sessions, whose packets are padded to a multiple of 16 octets.
    pub is_encrypted: bool,
}

/// Octets to a multiple of which a session pads.
const SESSION_PADDING: u32 = 16;

/// Returns the largest inner packet for outer packets of `outer` octets to this end. In encrypted sessions
/// it leaves room for the link header of `docs/tunnel.md`.
pub(in crate::forwarding) fn inner_mtu(outer: u32, end: Endpoint, is_encrypted: bool) -> u32 {
    largest_padded_size(outer.saturating_sub(tunnel_overhead(end, is_encrypted)), is_encrypted)
}

/// Returns the octets that come before and after the inner packet.
fn tunnel_overhead(end: Endpoint, is_encrypted: bool) -> u32 {
    if !is_encrypted {
        return end.encapsulation_overhead();
    }
    let header = if end.ipv4().is_some() { 28 } else { 48 };
    header + SESSION_OVERHEAD + LINK_HEADER_LENGTH
}

/// Returns the largest size, not above `size`, that a session carries.
fn largest_padded_size(size: u32, is_encrypted: bool) -> u32 {
    if is_encrypted { size / SESSION_PADDING * SESSION_PADDING } else { size }
}

impl SizeLimits {
    /// Returns the limits of a path to this end, in the clear or in encrypted sessions.
    pub(super) fn for_path(end: Endpoint, is_encrypted: bool) -> SizeLimits {
        let outer = if end.ipv4().is_some() { IPV4_BASE_SIZE } else { MIN_MTU as u32 };
        let overhead = tunnel_overhead(end, is_encrypted);
        SizeLimits { base_size: inner_mtu(outer, end, is_encrypted), overhead_octets: overhead, is_encrypted }
    }

    /// Returns the largest inner packet for an outer packet of `outer` octets.
    pub(super) fn largest_inner_packet(&self, outer: u32) -> u32 {
        largest_padded_size(outer.saturating_sub(self.overhead_octets), self.is_encrypted)
    }
}

/// Number of lost probes of the target size that prove it too large (RFC 8899 5.1.2).
const MAX_PROBES_PER_SIZE: u32 = 3;
/// Number of lost probes of the target size that prove it too large if smaller probes were lost as well.
const MAX_PROBES_PER_SIZE_WITH_LOSS: u32 = 6;
/// Number of rounds without an answer after which the search ends without a result.
const SILENT_ROUNDS_BEFORE_FAILURE: u16 = 5;
/// Largest number of rounds of a search.
const MAX_SEARCH_ROUNDS: u16 = 10;
/// `PROBE_TIMER` until a round trip has been measured. RFC 8899 5.1.1 requires seconds, for paths that share
/// their capacity with probes. During this search large packets are lost, and a round that begins too early
/// costs only a few packets.
const INITIAL_PROBE_TIMEOUT: Duration = Duration::from_millis(250);
const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_PROBE_TIMEOUT: Duration = Duration::from_secs(4);

/// Round-trip time (RFC 6298 2) of a path, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrip {
    smoothed_us: u32,
    variation_us: u32,
}

impl RoundTrip {
    /// Returns the round-trip time after one more measured sample.
    pub(super) fn updated_with_sample(known: Option<RoundTrip>, sample: Duration) -> RoundTrip {
        // A sample above [`MAX_PROBE_TIMEOUT`] does not change the result; the limit prevents an overflow of
        // the sum.
        let sample = sample.min(2 * MAX_PROBE_TIMEOUT).as_micros() as u32;
        let Some(RoundTrip { smoothed_us: smoothed, variation_us: variation }) = known else {
            return RoundTrip { smoothed_us: sample, variation_us: sample / 2 };
        };
        RoundTrip {
            smoothed_us: (smoothed * 7 + sample) / 8,
            variation_us: (variation * 3 + smoothed.abs_diff(sample)) / 4,
        }
    }

    fn probe_timeout(self) -> Duration {
        Duration::from_micros((self.smoothed_us + self.variation_us * 4).into())
    }
}

/// A packet size, and in which rounds its probe was sent and was answered: bit n stands for round n.
#[derive(Debug)]
struct CandidateSize {
    packet_size: u32,
    sent_in_rounds: u16,
    answered_in_rounds: u16,
}

/// Result of a search after the rounds so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchResult {
    /// The search needs a further round.
    Open,
    /// The path carries this size and no larger size.
    Carries(u32),
    /// No probe of the search was answered.
    Silent,
    /// Too few probes were answered to decide.
    Unclear,
}

#[derive(Debug)]
pub(super) struct PathMtuSearch {
    search_token: u64,
    base_size: u32,
    /// Packet sizes that the search tries, in ascending order. The last one is the target size.
    candidate_sizes: Vec<CandidateSize>,
    /// Size in use, if this size is smaller than the target.
    size_in_use: Option<u32>,
    /// Time at which each round was sent.
    rounds_sent_at: Vec<Time>,
}

impl PathMtuSearch {
    /// Creates a search for sizes up to `target`; `current` is the size in use, or the size that an unproven
    /// ICMP message has reported.
    pub(super) fn new(token: u64, limits: SizeLimits, target: u32, current: u32) -> PathMtuSearch {
        let base = limits.base_size;
        let current = Some(current).filter(|current| (base..target).contains(current));
        let common = COMMON_MTUS
            .iter()
            .map(|mtu| limits.largest_inner_packet(*mtu))
            .chain([base])
            .filter(|size| *size < target);
        let mut sizes: Vec<u32> = common.chain(current).chain([target]).collect();
        sizes.sort();
        sizes.dedup();
        let candidates = sizes
            .into_iter()
            .map(|size| CandidateSize { packet_size: size, sent_in_rounds: 0, answered_in_rounds: 0 })
            .collect();
        PathMtuSearch {
            search_token: token,
            base_size: base,
            candidate_sizes: candidates,
            size_in_use: current,
            rounds_sent_at: Vec::new(),
        }
    }

    pub(super) fn search_token(&self) -> u64 {
        self.search_token
    }

    /// Returns the target size: the largest size that the search tries.
    pub(super) fn target_size(&self) -> u32 {
        self.candidate_sizes.last().map_or(self.base_size, |candidate| candidate.packet_size)
    }

    fn largest_answered_size(&self) -> Option<u32> {
        self.candidate_sizes.iter().rev().find(|c| c.answered_in_rounds != 0).map(|c| c.packet_size)
    }

    /// Begins the next round. Returns its number and the packet sizes to send, the target size first.
    pub(super) fn begin_round(&mut self, now: Time) -> (u16, Vec<u32>) {
        let round = u16::try_from(self.rounds_sent_at.len()).unwrap_or(u16::MAX);
        self.rounds_sent_at.push(now);
        let (best, target, base) = (self.largest_answered_size(), self.target_size(), self.base_size);
        let mut sizes = Vec::new();
        for candidate in self.candidate_sizes.iter_mut().rev() {
            let size = candidate.packet_size;
            let wanted = match best {
                // Try the sizes without a result, and one answered size, which shows whether the path still
                // works.
                Some(best) => size >= best,
                None if round == 0 => Some(size) == self.size_in_use,
                None if round == 1 => true,
                // If no probe has been answered, try the smallest size: an answer to it shows that the path
                // works again.
                None => size == base,
            };
            if wanted || size == target {
                candidate.sent_in_rounds |= 1_u16.checked_shl(round.into()).unwrap_or(0);
                sizes.push(size);
            }
        }
        (round, sizes)
    }

    /// Handles the answer to a probe. Returns the round-trip time; `None` if the search has not sent that
    /// probe.
    pub(super) fn handle_answer(&mut self, now: Time, round: u16, size: u32) -> Option<Duration> {
        let bit = 1_u16.checked_shl(round.into())?;
        let sent = self.rounds_sent_at.get(usize::from(round))?;
        let candidate =
            self.candidate_sizes.iter_mut().find(|c| c.packet_size == size && c.sent_in_rounds & bit != 0)?;
        candidate.answered_in_rounds |= bit;
        Some(now.saturating_since(*sent))
    }

    /// Returns how long to wait for the answers of this round.
    pub(super) fn round_timeout(&self, round_trip: Option<RoundTrip>) -> Duration {
        let timeout = round_trip.map_or(INITIAL_PROBE_TIMEOUT, RoundTrip::probe_timeout);
        let silent = if self.largest_answered_size().is_none() {
            self.rounds_sent_at.len().saturating_sub(1)
        } else {
            0
        };
        let timeout = timeout * 2_u32.saturating_pow(u32::try_from(silent).unwrap_or(u32::MAX).min(8));
        timeout.clamp(MIN_PROBE_TIMEOUT, MAX_PROBE_TIMEOUT)
    }

    /// Returns the result of the search. The caller asks for it after each round and each answer.
    pub(super) fn search_result(&self) -> SearchResult {
        let rounds = u16::try_from(self.rounds_sent_at.len()).unwrap_or(u16::MAX);
        let Some(best) = self.largest_answered_size() else {
            return if rounds >= SILENT_ROUNDS_BEFORE_FAILURE {
                SearchResult::Silent
            } else {
                SearchResult::Open
            };
        };
        let target = self.target_size();
        if best == target {
            return SearchResult::Carries(target);
        }
        let lossy = self
            .candidate_sizes
            .iter()
            .any(|c| c.packet_size <= best && c.answered_in_rounds != c.sent_in_rounds);
        let needed = if lossy { MAX_PROBES_PER_SIZE_WITH_LOSS } else { MAX_PROBES_PER_SIZE };
        let lost = |size: u32| {
            self.candidate_sizes
                .iter()
                .find(|c| c.packet_size >= size)
                .map_or(0, |c| c.sent_in_rounds.count_ones())
        };
        let answered_rounds =
            self.candidate_sizes.iter().fold(0, |all, c| all | c.answered_in_rounds).count_ones();
        let proved = answered_rounds >= 2;
        if proved && lost(target) >= needed && lost(best + 1) + 1 >= needed {
            SearchResult::Carries(best)
        } else if rounds < MAX_SEARCH_ROUNDS {
            SearchResult::Open
        } else if proved {
            SearchResult::Carries(best)
        } else {
            SearchResult::Unclear
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE_LIMITS: SizeLimits =
        SizeLimits { base_size: BASE_SIZE, overhead_octets: 40, is_encrypted: false };
    const BASE_SIZE: u32 = 1240;

    /// Runs a search over a path on which packets of up to `mtu` octets pass. `lose` says which of them are
    /// lost all the same, by round and size.
    fn run_search(
        target: u32,
        current: u32,
        mtu: u32,
        lose: impl Fn(u16, u32) -> bool,
    ) -> (SearchResult, u16, usize) {
        let mut search = PathMtuSearch::new(1, SIZE_LIMITS, target, current);
        let (mut now, mut probes) = (Time::ZERO, 0);
        loop {
            let (round, sizes) = search.begin_round(now);
            probes += sizes.len();
            for size in sizes {
                if size <= mtu && !lose(round, size) {
                    assert!(search.handle_answer(now, round, size).is_some());
                }
            }
            now += search.round_timeout(None);
            match search.search_result() {
                SearchResult::Open => {}
                judgement => return (judgement, round + 1, probes),
            }
        }
    }

    #[test]
    fn wide_path_is_confirmed_by_one_probe() {
        assert_eq!(run_search(1460, 1460, 1460, |_, _| false), (SearchResult::Carries(1460), 1, 1));
    }

    #[test]
    fn narrow_path_is_measured_in_three_rounds() {
        for mtu in BASE_SIZE..1460 {
            let (judgement, rounds, probes) = run_search(1460, 1460, mtu, |_, _| false);
            let SearchResult::Carries(size) = judgement else { panic!("{judgement:?}") };
            assert!(size <= mtu && mtu - size < 40, "{size} of {mtu}");
            assert_eq!(rounds, 3);
            assert!(probes <= 27, "{probes}");
        }
    }

    #[test]
    fn each_encapsulation_has_its_own_probe_sizes() {
        let end = |text: &str| text.parse().expect("endpoint");
        for (text, base, overhead) in
            [("2001:db8::1", 1240, 40), ("192.0.2.1", 556, 20), ("udp:192.0.2.1:4191", 548, 28)]
        {
            let limits = SizeLimits::for_path(end(text), false);
            assert_eq!(
                limits,
                SizeLimits { base_size: base, overhead_octets: overhead, is_encrypted: false }
            );
            let mut search = PathMtuSearch::new(1, limits, 1500 - overhead, 1500 - overhead);
            assert_eq!(search.begin_round(Time::ZERO).1, [1500 - overhead]);
            let sizes = search.begin_round(Time::ZERO).1;
            assert!(sizes.contains(&(1400 - overhead)) && sizes.last() == Some(&base), "{sizes:?}");
        }
    }

    /// The expected sizes are those of the table in docs/tunnel.md.
    #[test]
    fn mtu_of_encrypted_tunnel_leaves_room_for_its_headers() {
        let end = |text: &str| text.parse().expect("endpoint");
        for (text, outer, inner) in [
            ("2001:db8::1", 1500, 1392),
            ("udp:192.0.2.1:4191", 1500, 1424),
            ("2001:db8::1", 1280, 1184),
            ("2001:db8::1", 0, 0),
        ] {
            assert_eq!(inner_mtu(outer, end(text), true), inner, "{text} {outer}");
        }
        let limits = SizeLimits::for_path(end("2001:db8::1"), true);
        assert_eq!(
            (limits.base_size, limits.largest_inner_packet(1280), limits.largest_inner_packet(1500)),
            (1184, 1184, 1392)
        );
        let sizes = PathMtuSearch::new(1, limits, 1392, 1392);
        assert!(sizes.candidate_sizes.iter().all(|candidate| candidate.packet_size % 16 == 0));
    }

    #[test]
    fn single_lost_probe_does_not_lower_path_mtu() {
        assert_eq!(run_search(1460, 1460, 1460, |round, _| round == 0).0, SearchResult::Carries(1460));
        assert_eq!(run_search(1460, 1460, 1460, |round, _| round < 4).0, SearchResult::Carries(1460));
    }

    #[test]
    fn two_lost_probes_do_not_lower_mtu_although_smaller_ones_pass() {
        let unlucky = |round: u16, size: u32| size > 1360 && round < 2;
        assert_eq!(run_search(1460, 1360, 1460, unlucky).0, SearchResult::Carries(1460));
    }

    #[test]
    fn lossy_path_needs_more_lost_probes_to_lower_mtu() {
        // The probes of the target size are lost in five rounds, and a small probe once.
        let unlucky = |round: u16, size: u32| (size == 1460 && round < 5) || (size == 1300 && round == 1);
        assert_eq!(run_search(1460, 1460, 1460, unlucky).0, SearchResult::Carries(1460));
        let clean = |round: u16, size: u32| size == 1460 && round < 5;
        assert_eq!(run_search(1460, 1460, 1460, clean).0, SearchResult::Carries(1452));
    }

    #[test]
    fn search_without_answers_lowers_no_mtu() {
        let (judgement, rounds, probes) = run_search(1460, 1460, 0, |_, _| false);
        assert_eq!((judgement, rounds), (SearchResult::Silent, SILENT_ROUNDS_BEFORE_FAILURE));
        assert!(probes <= 20, "{probes}");
        assert_eq!(
            run_search(1460, 1460, 1400, |round, _| round != 1).0,
            SearchResult::Unclear,
            "one round is no proof"
        );
    }

    #[test]
    fn answer_to_an_unsent_probe_is_ignored() {
        let mut search = PathMtuSearch::new(1, SIZE_LIMITS, 1460, 1460);
        search.begin_round(Time::ZERO);
        for (round, size) in [(0, 1452), (1, 1460), (15, 1460), (16, 1460), (u16::MAX, 1460), (0, 0)] {
            assert_eq!(search.handle_answer(Time::ZERO, round, size), None);
        }
        assert_eq!(search.search_result(), SearchResult::Open);
    }
}
