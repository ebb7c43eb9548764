//! Reactive control (TS 102 687 5.3). Every range of the busy ratio has a state, and every state has a time
//! T_off between packets. With every reading the state moves one step towards the state of that ratio.
//!
//! The tables hold for packets whose time on air is at most T_on. A longer packet closes the gate for one
//! T_off for each T_on that it has begun. So the packet uses the share of the channel that the table allows.
//! As with adaptive control the gate closes for at most a second. The standard does not mention packets
//! longer than T_on.
//!
//! Restrictive is the state above 60 % (table A.1) or 65 % (table A.2). At exactly this ratio the state is
//! still active 3.

use std::time::Duration;

use super::MAX_GATE_CLOSED_TIME;

/// The table of annex A that the gate uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// A.1: packets have a time on air of up to 1 ms.
    A1,
    /// A.2: packets have a time on air of up to 500 us.
    A2,
}

/// Least busy ratio in percent and T_off in milliseconds of the states relaxed, active 1 to 3 and
/// restrictive.
type States = [(u8, u64); 5];

const A1: States = [(0, 100), (30, 200), (40, 400), (50, 500), (60, 1000)];
const A2: States = [(0, 50), (30, 100), (40, 200), (50, 250), (65, 1000)];
const NAMES: [&str; 5] = ["relaxed", "active_1", "active_2", "active_3", "restrictive"];

impl Table {
    fn states(self) -> &'static States {
        match self {
            Table::A1 => &A1,
            Table::A2 => &A2,
        }
    }

    fn longest(self) -> Duration {
        Duration::from_micros(match self {
            Table::A1 => 1000,
            Table::A2 => 500,
        })
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Reactive {
    table: Table,
    /// Index of the state, 0 relaxed to 4 restrictive.
    state: usize,
}

impl Reactive {
    /// Creates the state machine in state relaxed.
    pub fn new(table: Table) -> Reactive {
        Reactive { table, state: 0 }
    }

    /// Returns the name of the state.
    pub fn name(&self) -> &'static str {
        NAMES[self.state]
    }

    /// Handles a busy ratio: the state moves one step towards the state of this ratio. Returns whether the
    /// state changed.
    pub(super) fn handle_busy_ratio(&mut self, ratio: f64) -> bool {
        let states = self.table.states();
        let last = states.len() - 1;
        let reached = |(state, (least, _)): (usize, &(u8, u64))| {
            let least = f64::from(*least) / 100.0;
            ratio > least || (ratio == least && state < last)
        };
        let wanted = states.iter().enumerate().rposition(reached).unwrap_or(0);
        let before = self.state;
        // 5.3: only neighbouring states follow each other.
        self.state = if wanted > before { before + 1 } else { before - usize::from(wanted < before) };
        self.state != before
    }

    /// Returns the time for which the gate is closed from the beginning of a packet.
    pub(super) fn closed(&self, on_air: Duration) -> Duration {
        let (_, off_ms) = self.table.states()[self.state];
        let packets = on_air.as_micros().div_ceil(self.table.longest().as_micros()).max(1);
        Duration::from_millis(off_ms)
            .saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX))
            .min(MAX_GATE_CLOSED_TIME)
    }
}
