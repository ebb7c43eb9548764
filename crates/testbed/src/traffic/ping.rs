//! Parses the output of `ping -D -O`.
//!
//! With `-O` ping prints every unanswered request when it sends the next one. So the lab knows the sending
//! time of each request from the first to the last, even if several in a row have no answer.

use std::collections::BTreeMap;

/// An answer: sequence number, time of arrival (nanoseconds since 1970), round-trip time in milliseconds.
pub type PingAnswer = (u64, u64, f64);

/// Sequence numbers have 16 bits (RFC 4443 4.1).
const SEQUENCE_NUMBER_COUNT: u64 = 1 << 16;

/// The output of a ping.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PingTranscript {
    /// Answers in the order of their arrival.
    pub answers: Vec<PingAnswer>,
    /// Requests without an answer when the next request left: sequence number, and time of the next request
    /// (nanoseconds since 1970).
    pub unanswered_when_next_left: BTreeMap<u64, u64>,
    /// Number of requests, which ping prints at its end.
    pub transmitted_requests: Option<u64>,
}

/// Parses the output of `ping -D -O`.
pub fn parse_transcript(text: &str) -> PingTranscript {
    let mut transcript = PingTranscript::default();
    let mut highest = 0;
    for line in text.lines() {
        if let Some((sequence, at)) = parse_outstanding(line) {
            let sequence = extend_sequence_number(sequence, &mut highest);
            transcript.unanswered_when_next_left.insert(sequence, at);
        } else if let Some((sequence, at, rtt)) = parse_answer(line) {
            transcript.answers.push((extend_sequence_number(sequence, &mut highest), at, rtt));
        } else if let Some((number, _)) = line.split_once(" packets transmitted") {
            transcript.transmitted_requests = number.parse().ok();
        }
    }
    transcript
}

/// Extends a sequence number of 16 bits to the full number that is nearest to the highest number so far.
fn extend_sequence_number(sequence: u64, highest: &mut u64) -> u64 {
    let base = *highest - *highest % SEQUENCE_NUMBER_COUNT + sequence % SEQUENCE_NUMBER_COUNT;
    let number = if base + SEQUENCE_NUMBER_COUNT / 2 < *highest {
        base + SEQUENCE_NUMBER_COUNT
    } else if base > *highest + SEQUENCE_NUMBER_COUNT / 2 && base >= SEQUENCE_NUMBER_COUNT {
        base - SEQUENCE_NUMBER_COUNT
    } else {
        base
    };
    *highest = number.max(*highest);
    number
}

/// Splits a line `[1700000000.123456] ...` into its time, in nanoseconds, and the rest. Returns `None` for
/// other lines.
fn parse_timestamp(line: &str) -> Option<(u64, &str)> {
    let (stamp, rest) = line.strip_prefix('[')?.split_once(']')?;
    let (seconds, micros) = stamp.split_once('.')?;
    let at = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000;
    Some((at, rest.trim_start()))
}

/// Parses `[1700000000.123456] 64 bytes from ADDRESS: icmp_seq=1 ttl=60 time=0.123 ms`. Returns `None` for
/// other lines, and for a second answer to the same request.
fn parse_answer(line: &str) -> Option<PingAnswer> {
    let (at, rest) = parse_timestamp(line)?;
    if rest.contains("DUP!") {
        return None;
    }
    let field = |name: &str| {
        let from = rest.find(name)? + name.len();
        rest[from..].split_whitespace().next()
    };
    Some((field("icmp_seq=")?.parse().ok()?, at, field("time=")?.parse().ok()?))
}

/// Parses `[1700000000.123456] no answer yet for icmp_seq=1`. Returns `None` for other lines.
fn parse_outstanding(line: &str) -> Option<(u64, u64)> {
    let (at, rest) = parse_timestamp(line)?;
    Some((rest.strip_prefix("no answer yet for icmp_seq=")?.trim().parse().ok()?, at))
}

/// All requests of a ping in the order of sending, each with its round-trip time if it was answered. A
/// request that causes an ICMPv6 error counts as lost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PingSeries {
    /// Requests: time of sending in nanoseconds, and round-trip time in milliseconds; `None` without an
    /// answer.
    pub requests: Vec<(u64, Option<f64>)>,
}

impl PingSeries {
    /// Returns the requests of a ping that was started at `started` (monotonic, nanoseconds) and sent one
    /// request per `interval`. `shift` converts wall-clock time to monotonic time.
    pub fn new(transcript: &PingTranscript, shift: i64, started: u64, interval: u64) -> Self {
        let monotonic = |at: u64| at.saturating_add_signed(shift);
        let mut round_trips = BTreeMap::new();
        let mut sent = BTreeMap::new();
        for (sequence, next) in &transcript.unanswered_when_next_left {
            sent.insert(sequence + 1, monotonic(*next));
        }
        for (sequence, at, rtt) in &transcript.answers {
            if round_trips.insert(*sequence, *rtt).is_none() {
                sent.insert(*sequence, monotonic(*at).saturating_sub((rtt * 1e6) as u64));
            }
        }
        let named =
            sent.keys().chain(transcript.unanswered_when_next_left.keys()).max().copied().unwrap_or(0);
        let count = transcript.transmitted_requests.unwrap_or(named);
        if sent.is_empty() && count > 0 {
            sent.insert(1, started);
        }
        let time = |sequence: u64| {
            let before = sent.range(..=sequence).next_back();
            let after = sent.range(sequence..).next();
            match (before, after) {
                (Some((a, from)), Some((b, to))) if b > a => {
                    from + to.saturating_sub(*from) * (sequence - a) / (b - a)
                }
                (Some((a, from)), _) => from + (sequence - a) * interval,
                (None, Some((b, to))) => to.saturating_sub((b - sequence) * interval),
                (None, None) => started,
            }
        };
        let requests = (1..=count).map(|sequence| (time(sequence), round_trips.get(&sequence).copied()));
        Self { requests: requests.collect() }
    }

    /// Returns true if a request that was sent before `end` has no answer.
    pub fn has_unanswered_before(&self, end: u64) -> bool {
        self.requests.iter().any(|(sent, rtt)| *sent < end && rtt.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLISECOND;

    const WALL_TO_MONOTONIC: i64 = -1_700_000_000_000_000_000;

    fn series_of(text: &str) -> Vec<(u64, Option<f64>)> {
        PingSeries::new(&parse_transcript(text), WALL_TO_MONOTONIC, 7, 10 * MILLISECOND).requests
    }

    #[test]
    fn ping_output_lines_are_parsed() {
        let text = "PING 2001:db8::2(2001:db8::2) 56 data bytes\n\
            [1700000000.000100] 64 bytes from 2001:db8::2: icmp_seq=1 ttl=60 time=0.100 ms\n\
            [1700000000.000200] 64 bytes from 2001:db8::2: icmp_seq=1 ttl=60 time=0.200 ms (DUP!)\n\
            [1700000000.030300] 64 bytes from 2001:db8::2: icmp_seq=4 ttl=60 time=0.300 ms\n\
            [1700000000.040000] From 2001:db8::9 icmp_seq=5 Destination unreachable: No route\n\
            [1700000000.050000] no answer yet for icmp_seq=5\n\n\
            --- 2001:db8::2 ping statistics ---\n\
            6 packets transmitted, 2 received, +1 errors, 66.6667% packet loss, time 50ms\n";
        let transcript = parse_transcript(text);
        assert_eq!(transcript.answers.len(), 2);
        assert_eq!(transcript.answers[1], (4, 1_700_000_000_030_300_000, 0.3));
        let at = |ms: u64| ms * MILLISECOND;
        assert_eq!(
            series_of(text),
            [
                (at(0), Some(0.1)),
                (at(10), None),
                (at(20), None),
                (at(30), Some(0.3)),
                (at(40), None),
                (at(50), None)
            ]
        );
    }

    #[test]
    fn requests_before_the_first_and_after_the_last_answer_are_lost() {
        let text = "[1700000000.010000] no answer yet for icmp_seq=1\n\
            [1700000000.020000] no answer yet for icmp_seq=2\n\
            [1700000000.021000] 64 bytes from 2001:db8::2: icmp_seq=3 ttl=60 time=1.00 ms\n\
            [1700000000.040000] no answer yet for icmp_seq=4\n\
            [1700000000.050000] no answer yet for icmp_seq=5\n\
            6 packets transmitted, 1 received, 83.3333% packet loss, time 50ms\n";
        let at = |ms: u64| ms * MILLISECOND;
        let all = series_of(text);
        let sent: Vec<u64> = all.iter().map(|r| r.0).collect();
        assert_eq!(sent, [0, at(10), at(20), at(30), at(40), at(50)]);
        assert_eq!(all.iter().filter(|r| r.1.is_none()).count(), 5);
        // If ping has not printed its number of requests, all requests that it has printed count.
        let cut = text.lines().take(5).collect::<Vec<_>>().join("\n");
        assert_eq!(series_of(&cut).len(), 6);
    }

    #[test]
    fn ping_without_answers_is_all_lost() {
        assert_eq!(series_of("ping: connect: Network is unreachable\n"), []);
        // If ping has printed only its last line, which counts two requests, the first request left at ping's
        // start and the second one interval later.
        let text = "2 packets transmitted, 0 received, 100% packet loss, time 10ms\n";
        assert_eq!(series_of(text), [(7, None), (7 + 10 * MILLISECOND, None)]);
    }

    #[test]
    fn ping_sequence_numbers_wrap_after_16_bits() {
        let mut highest = 65_530;
        let numbers = [65_535, 0, 65_534, 1].map(|sequence| extend_sequence_number(sequence, &mut highest));
        assert_eq!(numbers, [65_535, 65_536, 65_534, 65_537]);
    }
}
