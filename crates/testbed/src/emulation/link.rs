//! An emulated link, which consists of two directions, a trace and a signal.

use super::trace::{LinkChange, Trace};
use super::way::{Counters, DirectionProperties, LinkDirection};

/// Properties of a link in both directions, and its signal strength.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkProperties {
    /// Properties of each direction: from the first end to the second, and back.
    pub directions: [DirectionProperties; 2],
    /// Signal strength in dBm, if the link has one.
    pub signal_dbm: Option<f64>,
}

/// An emulated link between two ends.
#[derive(Debug)]
pub struct Link {
    directions: [LinkDirection; 2],
    properties: LinkProperties,
    trace: Trace,
    /// Time in nanoseconds at which the trace began, and the factor for its times; `None` before the trace
    /// begins.
    trace_start: Option<(u64, f64)>,
    /// Index of the next step in the trace.
    next_trace_step: usize,
    /// Signal strength that [`Self::poll_signal`] returned last.
    last_signal_dbm: Option<f64>,
}

impl Link {
    /// Creates an emulated link with these properties. The trace's values at 0 s hold until the trace begins.
    pub fn new(seed: u64, nature: LinkProperties, trace: Trace) -> Self {
        let [there, back] = nature.directions.clone();
        let ways = [LinkDirection::new(seed, there), LinkDirection::new(seed ^ 0x5555_5555_5555_5555, back)];
        let mut link = Self {
            directions: ways,
            properties: nature,
            trace,
            trace_start: None,
            next_trace_step: 0,
            last_signal_dbm: None,
        };
        while let Some((0, change)) =
            link.trace.nth_change(link.next_trace_step).map(|(at, change)| (at, change.clone()))
        {
            link.next_trace_step += 1;
            link.apply_change(0, &change);
        }
        link
    }

    /// Starts the trace at the time `at`, with all its times multiplied by `factor`.
    pub fn start_trace(&mut self, at: u64, factor: f64) {
        self.trace_start = Some((at, factor));
    }

    /// Returns the present properties of the link.
    pub fn properties(&self) -> &LinkProperties {
        &self.properties
    }

    /// Changes the properties until the next step of the trace.
    pub fn set_properties(&mut self, now: u64, nature: LinkProperties) {
        self.handle_timeout(now);
        for (way, properties) in self.directions.iter_mut().zip(&nature.directions) {
            way.set_properties(now, properties.clone());
        }
        self.properties = nature;
    }

    fn apply_change(&mut self, now: u64, change: &LinkChange) {
        let mut nature = self.properties.clone();
        nature.directions.iter_mut().for_each(|properties| change.apply_to(properties));
        nature.signal_dbm = change.signal.or(nature.signal_dbm);
        for (way, properties) in self.directions.iter_mut().zip(&nature.directions) {
            way.set_properties(now, properties.clone());
        }
        self.properties = nature;
    }

    /// Accepts a frame that was sent by the end with the index `from`.
    pub fn enqueue(&mut self, now: u64, from: usize, frame: Vec<u8>) {
        if let Some(way) = self.directions.get_mut(from) {
            way.enqueue(now, frame);
        }
    }

    fn next_step_at(&self) -> Option<u64> {
        let (begin, factor) = self.trace_start?;
        Some(begin + (self.trace.nth_change(self.next_trace_step)?.0 as f64 * factor) as u64)
    }

    /// Executes the steps of the trace up to now.
    pub fn handle_timeout(&mut self, now: u64) {
        while let Some(at) = self.next_step_at().filter(|at| *at <= now) {
            let change = self.trace.nth_change(self.next_trace_step).map(|(_, change)| change.clone());
            self.next_trace_step += 1;
            self.apply_change(at, &change.unwrap_or_default());
        }
    }

    /// Returns the time at which the next frame arrives or the next step of the trace is due; `None` if
    /// neither will happen.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.directions.iter().filter_map(LinkDirection::poll_timeout).chain(self.next_step_at()).min()
    }

    /// Returns the next frame that has arrived by `now`, if any. The result has its arrival time, the index
    /// of the end at which it arrived, and the frame.
    pub fn poll_output(&mut self, now: u64) -> Option<(u64, usize, Vec<u8>)> {
        let [there, back] = &mut self.directions;
        if let Some((at, frame)) = there.poll_output(now) {
            return Some((at, 1, frame));
        }
        back.poll_output(now).map(|(at, frame)| (at, 0, frame))
    }

    /// Returns the signal strength in dBm if it has changed since the last call, otherwise `None`.
    pub fn poll_signal(&mut self) -> Option<f64> {
        let signal = self.properties.signal_dbm.filter(|signal| self.last_signal_dbm != Some(*signal))?;
        self.last_signal_dbm = Some(signal);
        Some(signal)
    }

    /// Returns the counters of the frames that each end sent.
    pub fn counters(&self) -> [Counters; 2] {
        [self.directions[0].counters(), self.directions[1].counters()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{MILLISECOND, SECOND};

    fn link_without_delay() -> Link {
        let trace = "time delay signal\n0 2ms -40\n1 20ms -50\n3 - -50\n4 repeat\n";
        let back = DirectionProperties { jitter: MILLISECOND, ..DirectionProperties::default() };
        let nature = LinkProperties { directions: [DirectionProperties::default(), back], signal_dbm: None };
        Link::new(3, nature, Trace::parse(trace).expect("is good"))
    }

    #[test]
    fn link_trace_changes_the_link_on_schedule() {
        let mut link = link_without_delay();
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
        // The link reports a signal only if it has changed. The trace repeats after 4 s; the factor 0.5 makes
        // this 2 s.
        link.handle_timeout(10 * SECOND + 1900 * MILLISECOND);
        assert_eq!(link.poll_signal(), None);
        link.handle_timeout(12 * SECOND);
        assert_eq!(
            (link.poll_signal(), link.properties().directions[1].delay),
            (Some(-40.0), 2 * MILLISECOND)
        );
        assert_eq!(link.properties().directions[1].jitter, MILLISECOND);
    }

    #[test]
    fn link_directions_have_independent_random_numbers() {
        let mut p = DirectionProperties::default();
        p.loss.random_loss = 0.5;
        let nature = LinkProperties { directions: [p.clone(), p], signal_dbm: None };
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
        assert_eq!(link.counters()[0].lost_frames as usize + out[1].len(), 100);
    }
}
