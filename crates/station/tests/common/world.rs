//! Stations and the network between them, in virtual time.

use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_station::io::{Input, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_virtual::Timeline;

use super::WALL_TIME;

/// Number of steps at one and the same virtual time after which the test assumes an endless loop.
const MAX_STEPS_WITHOUT_PROGRESS: usize = 100_000;

/// How the kernels and links of a [`TestNetwork`] treat outputs of the stations, and what a test records.
pub trait NetworkBehaviour: Sized {
    /// Executes an output of station `from`, as the kernel and the network would.
    fn handle_output(world: &mut TestNetwork<Self>, from: usize, output: Output);

    /// Called for each input before station `to` gets it, so that a test can record it.
    fn record_input(&mut self, _now: Time, _to: usize, _input: &Input) {}

    /// Called if a station refuses an input, with the reason.
    fn handle_refusal(&mut self, reason: &str) {
        panic!("refused: {reason}");
    }
}

/// Stations with a common virtual clock, and the inputs in transit to them.
pub struct TestNetwork<N> {
    pub now: Time,
    pub stations: Vec<Station>,
    pub network_behaviour: N,
    /// Inputs in transit, each with the index of its station.
    inputs_in_transit: Timeline<(usize, Input)>,
}

/// Returns a station at time zero.
pub fn station_at_time_zero(config: StationConfig, seed: u64) -> Station {
    Station::new(config, PersistentState::default(), Rng::new(seed), Time::ZERO, WALL_TIME)
}

/// Returns the counter of this name.
pub fn counter(station: &Station, name: &str) -> u64 {
    let counters = station.counters();
    counters.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Returns the input, converted to the recording's format and back, to test that the format is complete.
pub fn through_recording_format(input: &Input) -> Input {
    let line = serde_json::to_string(input).expect("serialises");
    serde_json::from_str(&line).expect("deserialises")
}

impl<N: NetworkBehaviour> TestNetwork<N> {
    pub fn with_stations(stations: impl Into<Vec<Station>>, net: N) -> TestNetwork<N> {
        let mut world = TestNetwork {
            now: Time::ZERO,
            stations: stations.into(),
            network_behaviour: net,
            inputs_in_transit: Timeline::default(),
        };
        world.run_until_quiet();
        world
    }

    pub fn wall_time(&self) -> WallTime {
        WALL_TIME + self.now.saturating_since(Time::ZERO)
    }

    /// Replaces a station by a new one that starts with this config and stored state.
    pub fn restart_station(
        &mut self,
        index: usize,
        config: StationConfig,
        state: PersistentState,
        seed: u64,
    ) {
        self.stations[index] = Station::new(config, state, Rng::new(seed), self.now, self.wall_time());
        self.run_until_quiet();
    }

    pub fn reconfigure_station(&mut self, index: usize, config: StationConfig) {
        let wall = self.wall_time();
        self.stations[index].reconfigure(self.now, wall, config);
        self.run_until_quiet();
    }

    pub fn counter(&self, station: usize, name: &str) -> u64 {
        counter(&self.stations[station], name)
    }

    /// Sends an input, which arrives at this moment.
    pub fn send_now(&mut self, to: usize, input: Input) {
        self.send_after(Duration::ZERO, to, input);
    }

    /// Sends an input, which arrives after a delay.
    pub fn send_after(&mut self, after: Duration, to: usize, input: Input) {
        self.inputs_in_transit.schedule_at(self.now + after, (to, input));
    }

    /// Passes an input to a station. The world executes its outputs in the next step.
    pub fn pass_input(&mut self, to: usize, input: Input) {
        self.network_behaviour.record_input(self.now, to, &input);
        let wall = self.wall_time();
        if let Err(reason) = self.stations[to].handle_input(self.now, wall, input) {
            self.network_behaviour.handle_refusal(&reason);
        }
    }

    /// Passes a [`through_recording_format`] input to a station, and executes at once all outputs that follow
    /// from it.
    pub fn pass_recorded_input(&mut self, to: usize, input: Input) {
        self.pass_input(to, through_recording_format(&input));
        self.run_until_quiet();
    }

    /// Passes an input to a station like [`TestNetwork::pass_recorded_input`]. Returns the error if the
    /// station refuses the input.
    pub fn try_recorded_input(&mut self, to: usize, input: Input) -> Result<(), String> {
        let wall = self.wall_time();
        let result = self.stations[to].handle_input(self.now, wall, through_recording_format(&input));
        self.run_until_quiet();
        result
    }

    /// Executes outputs, and delivers the inputs that are due, until no station has an output left.
    pub fn run_until_quiet(&mut self) {
        for _ in 0..MAX_STEPS_WITHOUT_PROGRESS {
            for from in 0..self.stations.len() {
                while let Some(output) = self.stations[from].poll_output() {
                    N::handle_output(self, from, output);
                }
            }
            let Some((to, input)) = self.inputs_in_transit.pop_due_event(self.now) else { return };
            self.pass_input(to, input);
        }
        panic!("the stations never come to rest");
    }

    /// Advances the clock to the next arrival or timer, and runs the stations. Returns false if nothing
    /// happens until `end`.
    pub fn advance_to_next_event(&mut self, end: Time) -> bool {
        self.run_until_quiet();
        let timers = self.stations.iter().filter_map(Station::poll_timeout);
        let Some(next) =
            timers.chain(self.inputs_in_transit.next_event_at()).min().filter(|next| *next <= end)
        else {
            return false;
        };
        self.now = self.now.max(next);
        self.run_until_quiet();
        for station in 0..self.stations.len() {
            if self.stations[station].poll_timeout().is_some_and(|due| due <= self.now) {
                self.pass_recorded_input(station, Input::Timeout);
            }
        }
        true
    }

    /// Lets time pass until `end`.
    pub fn run_until(&mut self, end: Time) {
        let mut steps = (self.now, 0);
        while self.advance_to_next_event(end) {
            steps = if self.now > steps.0 { (self.now, 0) } else { (self.now, steps.1 + 1) };
            assert!(steps.1 < MAX_STEPS_WITHOUT_PROGRESS, "time does not pass");
        }
        self.now = end;
    }

    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }
}
