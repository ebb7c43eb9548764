//! Reactive control (TS 102 687 5.3). Every range of the busy ratio has a state, and every state has a time
//! T_off between packets. With every reading the state moves one step towards the state of the measured
//! ratio.
//!
//! The tables hold for packets whose time on air is at most T_on. After a longer packet, the gate is closed
//! for one T_off for each T_on, whole or begun, of its time on air. So a long packet uses the share of the
//! channel that the table allows. As with adaptive control the gate closes for at most a second. The standard
//! does not mention packets longer than T_on.
//!
//! The state is restrictive above a ratio of 60 % (table A.1) or 65 % (table A.2). At exactly this ratio the
//! state is active 3.

use std::time::Duration;

use super::MAX_GATE_CLOSED_TIME;

/// The table of annex A that the gate uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReactiveTable {
    /// A.1: packets have a time on air of up to 1 ms.
    A1,
    /// A.2: packets have a time on air of up to 500 us.
    A2,
}

/// Least busy ratio in percent and T_off in milliseconds of the states relaxed, active 1 to 3 and
/// restrictive.
type StateTable = [(u8, u64); 5];

const STATES_OF_TABLE_A1: StateTable = [(0, 100), (30, 200), (40, 400), (50, 500), (60, 1000)];
const STATES_OF_TABLE_A2: StateTable = [(0, 50), (30, 100), (40, 200), (50, 250), (65, 1000)];
const STATE_NAMES: [&str; 5] = ["relaxed", "active_1", "active_2", "active_3", "restrictive"];

impl ReactiveTable {
    fn state_table(self) -> &'static StateTable {
        match self {
            ReactiveTable::A1 => &STATES_OF_TABLE_A1,
            ReactiveTable::A2 => &STATES_OF_TABLE_A2,
        }
    }

    fn longest_off_time(self) -> Duration {
        Duration::from_micros(match self {
            ReactiveTable::A1 => 1000,
            ReactiveTable::A2 => 500,
        })
    }
}

/// State machine of reactive control.
#[derive(Debug)]
pub struct ReactiveControl {
    table: ReactiveTable,
    /// Index of the state, 0 relaxed to 4 restrictive.
    state_index: usize,
}

impl ReactiveControl {
    /// Creates the state machine in state relaxed.
    pub fn new(table: ReactiveTable) -> ReactiveControl {
        ReactiveControl { table, state_index: 0 }
    }

    /// Returns the name of the state.
    pub fn name(&self) -> &'static str {
        STATE_NAMES[self.state_index]
    }

    /// Handles a busy ratio: the state moves one step towards the state of this ratio. Returns whether the
    /// state changed.
    pub(super) fn handle_busy_ratio(&mut self, ratio: f64) -> bool {
        let states = self.table.state_table();
        let last = states.len() - 1;
        let reached = |(state, (least, _)): (usize, &(u8, u64))| {
            let least = f64::from(*least) / 100.0;
            ratio > least || (ratio == least && state < last)
        };
        let wanted = states.iter().enumerate().rposition(reached).unwrap_or(0);
        let before = self.state_index;
        // 5.3: only neighbouring states follow each other.
        self.state_index = if wanted > before { before + 1 } else { before - usize::from(wanted < before) };
        self.state_index != before
    }

    /// Returns the time for which the gate is closed from the beginning of a packet.
    pub(super) fn gate_closed_time(&self, on_air: Duration) -> Duration {
        let (_, off_ms) = self.table.state_table()[self.state_index];
        let packets = on_air.as_micros().div_ceil(self.table.longest_off_time().as_micros()).max(1);
        Duration::from_millis(off_ms)
            .saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX))
            .min(MAX_GATE_CLOSED_TIME)
    }
}
