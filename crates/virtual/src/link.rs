//! Treatment of packets by a network: loss, duplication and delay, by a seeded generator.

use std::time::Duration;

use carnet_base::Rng;

/// Conditions of a link. Delays that differ reorder packets.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Probability that a packet is lost.
    pub loss_probability: f64,
    /// Probability that a packet is sent twice.
    pub duplication_probability: f64,
    /// Shortest and longest one-way delay.
    pub delay_range: (Duration, Duration),
}

impl Link {
    /// 10 ms one-way delay, no loss.
    pub const LOSSLESS: Link = Link::with_delay(Duration::from_millis(10));
    /// All packets are lost.
    pub const LOSES_EVERYTHING: Link = Link { loss_probability: 1.0, ..Link::LOSSLESS };

    /// Returns a link with this delay and without loss.
    pub const fn with_delay(delay: Duration) -> Link {
        Link { loss_probability: 0.0, duplication_probability: 0.0, delay_range: (delay, delay) }
    }

    /// Returns the delay of each copy of a packet that arrives; an empty list if the link loses the packet.
    /// The order of the random draws must not change, because seeded schedules depend on it: first
    /// duplication, then for each copy loss and delay.
    pub fn arrival_delays(&self, rng: &mut Rng) -> Vec<Duration> {
        let copies = if rng.is_true_with_probability(self.duplication_probability) { 2 } else { 1 };
        (0..copies)
            .filter_map(|_| {
                let (shortest, longest) = self.delay_range;
                (!rng.is_true_with_probability(self.loss_probability))
                    .then(|| rng.duration_between(shortest, longest))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_link_loses_duplicates_and_delays_packets() {
        let arrivals = |link: Link| {
            let mut rng = Rng::new(1);
            (0..1000).flat_map(|_| link.arrival_delays(&mut rng)).collect::<Vec<Duration>>()
        };
        assert_eq!(arrivals(Link::LOSSLESS), [Duration::from_millis(10); 1000]);
        assert_eq!(arrivals(Link::LOSES_EVERYTHING), []);
        let delay = (Duration::from_millis(5), Duration::from_millis(50));
        let bad = Link { loss_probability: 0.5, duplication_probability: 0.2, delay_range: delay };
        let delays = arrivals(bad);
        // Of 1000 packets, a fifth is sent twice, and half of all copies arrive.
        assert!((500..700).contains(&delays.len()), "{}", delays.len());
        assert!(delays.iter().all(|found| (delay.0..delay.1).contains(found)));
        assert!(delays.windows(2).any(|pair| pair[0] > pair[1]), "no packet was overtaken");
        assert_eq!(delays, arrivals(bad), "equal seeds give equal runs");
    }
}
