//! An emulated link, which consists of two directions, a trace and a signal.

use super::trace::{Change, Trace};
use super::way::{Counters, DirectionProperties, LinkDirection};

/// Properties of a link in both directions, and its signal strength.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkProperties {
    /// Properties of each direction: from the first end to the second, and back.
    pub ways: [DirectionProperties; 2],
    /// Signal strength in dBm, if the link has one.
    pub signal: Option<f64>,
}

/// An emulated link between two ends.
#[derive(Debug)]
pub struct Link {
    ways: [LinkDirection; 2],
    nature: LinkProperties,
    trace: Trace,
    /// Begin of the trace in nanoseconds, and the factor of its times.
    begin: Option<(u64, f64)>,
    /// Index of the next step in the trace.
    step: usize,
    /// Signal strength that [`Self::poll_signal`] returned last.
    last_signal: Option<f64>,
}

impl Link {
    /// Creates an emulated link with these properties. The trace's values at 0 s hold until the trace begins.
    pub fn new(seed: u64, nature: LinkProperties, trace: Trace) -> Self {
        let [there, back] = nature.ways.clone();
        let ways = [LinkDirection::new(seed, there), LinkDirection::new(seed ^ 0x5555_5555_5555_5555, back)];
        let mut link = Self { ways, nature, trace, begin: None, step: 0, last_signal: None };
        while let Some((0, change)) = link.trace.step(link.step).map(|(at, change)| (at, change.clone())) {
            link.step += 1;
            link.change(0, &change);
        }
        link
    }

    /// Starts the trace at the time `at`, with all its times multiplied by `factor`.
    pub fn start_trace(&mut self, at: u64, factor: f64) {
        self.begin = Some((at, factor));
    }

    /// Returns the present properties of the link.
    pub fn nature(&self) -> &LinkProperties {
        &self.nature
    }

    /// Changes the properties until the next step of the trace.
    pub fn set(&mut self, now: u64, nature: LinkProperties) {
        self.handle_timeout(now);
        for (way, properties) in self.ways.iter_mut().zip(&nature.ways) {
            way.set(now, properties.clone());
        }
        self.nature = nature;
    }

    fn change(&mut self, now: u64, change: &Change) {
        let mut nature = self.nature.clone();
        nature.ways.iter_mut().for_each(|properties| change.apply(properties));
        nature.signal = change.signal.or(nature.signal);
        for (way, properties) in self.ways.iter_mut().zip(&nature.ways) {
            way.set(now, properties.clone());
        }
        self.nature = nature;
    }

    /// Accepts a frame that was sent by the end with the index `from`.
    pub fn enqueue(&mut self, now: u64, from: usize, frame: Vec<u8>) {
        if let Some(way) = self.ways.get_mut(from) {
            way.enqueue(now, frame);
        }
    }

    fn next_step(&self) -> Option<u64> {
        let (begin, factor) = self.begin?;
        Some(begin + (self.trace.step(self.step)?.0 as f64 * factor) as u64)
    }

    /// Executes the steps of the trace up to now.
    pub fn handle_timeout(&mut self, now: u64) {
        while let Some(at) = self.next_step().filter(|at| *at <= now) {
            let change = self.trace.step(self.step).map(|(_, change)| change.clone());
            self.step += 1;
            self.change(at, &change.unwrap_or_default());
        }
    }

    /// Returns the time at which the next frame arrives or the next step of the trace is due; `None` if
    /// neither will happen.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.ways.iter().filter_map(LinkDirection::poll_timeout).chain(self.next_step()).min()
    }

    /// Returns the next frame that has arrived by `now`, if any. The result has its arrival time, the index
    /// of the end at which it arrived, and the frame.
    pub fn poll_output(&mut self, now: u64) -> Option<(u64, usize, Vec<u8>)> {
        let [there, back] = &mut self.ways;
        if let Some((at, frame)) = there.poll_output(now) {
            return Some((at, 1, frame));
        }
        back.poll_output(now).map(|(at, frame)| (at, 0, frame))
    }

    /// Returns the signal strength in dBm if it has changed since the last call, otherwise `None`.
    pub fn poll_signal(&mut self) -> Option<f64> {
        let signal = self.nature.signal.filter(|signal| self.last_signal != Some(*signal))?;
        self.last_signal = Some(signal);
        Some(signal)
    }

    /// Returns the counters of the frames that each end sent.
    pub fn counters(&self) -> [Counters; 2] {
        [self.ways[0].counters(), self.ways[1].counters()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{MILLISECOND, SECOND};

    fn link() -> Link {
        let trace = "time delay signal\n0 2ms -40\n1 20ms -50\n3 - -50\n4 repeat\n";
        let back = DirectionProperties { jitter: MILLISECOND, ..DirectionProperties::default() };
        let nature = LinkProperties { ways: [DirectionProperties::default(), back], signal: None };
        Link::new(3, nature, Trace::parse(trace).expect("is good"))
    }

    #[test]
    fn link_trace_changes_the_link_on_schedule() {
        let mut link = link();
        assert_eq!((link.poll_signal(), link.poll_signal()), (Some(-40.0), None));
        assert_eq!(link.poll_timeout(), None);
        link.start_trace(10 * SECOND, 0.5);
        assert_eq!(link.poll_timeout(), Some(10 * SECOND + 500 * MILLISECOND));
        link.enqueue(10 * SECOND, 0, vec![0; 60]);
        assert_eq!(link.poll_output(10 * SECOND + MILLISECOND), None);
        let (at, end, _) = link.poll_output(10 * SECOND + 2 * MILLISECOND).expect("has arrived");
        assert_eq!((at, end), (10 * SECOND + 2 * MILLISECOND, 1));
        link.handle_timeout(11 * SECOND);
        assert_eq!(link.poll_signal(), Some(-50.0));
        link.enqueue(11 * SECOND, 1, vec![0; 60]);
        let (at, end, _) = link.poll_output(12 * SECOND).expect("has arrived");
        assert_eq!(end, 0);
        assert!((11_020_000_000..=11_021_000_000).contains(&at), "{at}");
        // The link reports an unchanged signal only once. The trace repeats after 4 s, here multiplied by the
        // factor 0.5.
        link.handle_timeout(10 * SECOND + 1900 * MILLISECOND);
        assert_eq!(link.poll_signal(), None);
        link.handle_timeout(12 * SECOND);
        assert_eq!((link.poll_signal(), link.nature().ways[1].delay), (Some(-40.0), 2 * MILLISECOND));
        assert_eq!(link.nature().ways[1].jitter, MILLISECOND);
    }

    #[test]
    fn link_directions_have_independent_random_numbers() {
        let mut p = DirectionProperties::default();
        p.loss.random = 0.5;
        let nature = LinkProperties { ways: [p.clone(), p], signal: None };
        let mut link = Link::new(3, nature, Trace::default());
        let mut out: [Vec<u8>; 2] = Default::default();
        for n in 0..100 {
            link.enqueue(n, 0, vec![n as u8]);
            link.enqueue(n, 1, vec![n as u8]);
            while let Some((_, end, frame)) = link.poll_output(n) {
                out[end].push(frame[0]);
            }
        }
        assert!(out.iter().all(|o| (30..70).contains(&o.len())) && out[0] != out[1], "{out:?}");
        assert_eq!(link.counters()[0].lost as usize + out[1].len(), 100);
    }
}
