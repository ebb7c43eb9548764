//! What `ping -D` prints, read.

/// An answer: sequence number, time of arrival (nanoseconds since 1970), round-trip time in milliseconds.
pub type Answer = (u64, u64, f64);

/// Reads the answers in the output of `ping -D`.
pub fn parse(text: &str) -> Vec<Answer> {
    text.lines().filter_map(parse_line).collect()
}

/// A line is `[1700000000.123456] 64 bytes from ADDRESS: icmp_seq=1 ttl=60 time=0.123 ms`.
fn parse_line(line: &str) -> Option<Answer> {
    let (stamp, rest) = line.strip_prefix('[')?.split_once(']')?;
    let (seconds, micros) = stamp.split_once('.')?;
    let at = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000;
    if rest.contains("DUP!") {
        return None;
    }
    let field = |name: &str| {
        let from = rest.find(name)? + name.len();
        rest[from..].split_whitespace().next()
    };
    Some((field("icmp_seq=")?.parse().ok()?, at, field("time=")?.parse().ok()?))
}

/// A ping seen whole: requests by time of sending, each with its round-trip time if it was answered. The
/// time of sending of an unanswered request is put between those of its neighbours.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Time of sending in nanoseconds, round-trip time in milliseconds.
    pub requests: Vec<(u64, Option<f64>)>,
}

impl Series {
    /// Orders answers by request; `shift` is added to their wall-clock times.
    pub fn new(answers: &[Answer], shift: i64) -> Self {
        let mut known: Vec<(u64, u64, f64)> = answers
            .iter()
            .map(|(seq, at, rtt)| (*seq, at.saturating_add_signed(shift) - (rtt * 1e6) as u64, *rtt))
            .collect();
        known.sort_by_key(|k| k.0);
        known.dedup_by_key(|k| k.0);
        let mut requests = Vec::new();
        for pair in known.windows(2) {
            let ((s1, t1, rtt), (s2, t2, _)) = (pair[0], pair[1]);
            requests.push((t1, Some(rtt)));
            for missing in s1 + 1..s2 {
                requests.push((t1 + t2.saturating_sub(t1) * (missing - s1) / (s2 - s1), None));
            }
        }
        requests.extend(known.last().map(|(_, t, rtt)| (*t, Some(*rtt))));
        Self { requests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ping_are_read() {
        let text = "PING 2001:db8::2(2001:db8::2) 56 data bytes\n\
            [1700000000.000100] 64 bytes from 2001:db8::2: icmp_seq=1 ttl=60 time=0.100 ms\n\
            [1700000000.000200] 64 bytes from 2001:db8::2: icmp_seq=1 ttl=60 time=0.200 ms (DUP!)\n\
            [1700000000.030300] 64 bytes from 2001:db8::2: icmp_seq=4 ttl=60 time=0.300 ms\n\
            [1700000000.040000] From 2001:db8::9 icmp_seq=5 Destination unreachable: No route\n\n\
            --- 2001:db8::2 ping statistics ---\n";
        let answers = parse(text);
        assert_eq!(answers.len(), 2);
        assert_eq!(answers[1], (4, 1_700_000_000_030_300_000, 0.3));
        let series = Series::new(&answers, -1_700_000_000_000_000_000);
        assert_eq!(
            series.requests,
            [(0, Some(0.1)), (10_000_000, None), (20_000_000, None), (30_000_000, Some(0.3))]
        );
    }

    #[test]
    fn nothing_answered() {
        assert_eq!(Series::new(&[], 0), Series::default());
    }
}
