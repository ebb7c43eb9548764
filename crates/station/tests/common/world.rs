//! Stations and the network between them, in virtual time.

use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_station::io::{Input, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_virtual::Timeline;

use super::WALL;

/// Number of steps of the world without any progress of the clock that indicates an endless loop.
const MANY: usize = 100_000;

/// How the kernels and links of a [`World`] treat outputs of the stations, and what a test records.
pub trait Network: Sized {
    /// Executes an output of station `from`, as the kernel and the network would.
    fn carry(world: &mut World<Self>, from: usize, output: Output);

    /// Called for each input before station `to` gets it, so that a test can record it.
    fn note(&mut self, _now: Time, _to: usize, _input: &Input) {}

    /// Called if a station refuses an input, with the reason.
    fn refused(&mut self, reason: &str) {
        panic!("refused: {reason}");
    }
}

/// Stations with a common virtual clock, and the inputs in transit to them.
pub struct World<N> {
    pub now: Time,
    pub stations: Vec<Station>,
    pub net: N,
    /// Inputs in transit, each with the index of its station.
    wire: Timeline<(usize, Input)>,
}

/// Returns a station at time zero.
pub fn station(config: StationConfig, seed: u64) -> Station {
    Station::new(config, PersistentState::default(), Rng::new(seed), Time::ZERO, WALL)
}

/// Returns the counter of this name.
pub fn counter(station: &Station, name: &str) -> u64 {
    let counters = station.counters();
    counters.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Returns the input, converted to the recording's format and back, to test that the format is complete.
pub fn recorded(input: &Input) -> Input {
    let line = serde_json::to_string(input).expect("serialises");
    serde_json::from_str(&line).expect("deserialises")
}

impl<N: Network> World<N> {
    pub fn of(stations: impl Into<Vec<Station>>, net: N) -> World<N> {
        let mut world = World { now: Time::ZERO, stations: stations.into(), net, wire: Timeline::default() };
        world.settle();
        world
    }

    pub fn wall(&self) -> WallTime {
        WALL + self.now.saturating_since(Time::ZERO)
    }

    /// Replaces a station by a new one that starts with this config and stored state.
    pub fn restart(&mut self, index: usize, config: StationConfig, state: PersistentState, seed: u64) {
        self.stations[index] = Station::new(config, state, Rng::new(seed), self.now, self.wall());
        self.settle();
    }

    pub fn reconfigure(&mut self, index: usize, config: StationConfig) {
        let wall = self.wall();
        self.stations[index].reconfigure(self.now, wall, config);
        self.settle();
    }

    pub fn counter(&self, station: usize, name: &str) -> u64 {
        counter(&self.stations[station], name)
    }

    /// Sends an input, which arrives at this moment.
    pub fn deliver(&mut self, to: usize, input: Input) {
        self.send(Duration::ZERO, to, input);
    }

    /// Sends an input, which arrives after a delay.
    pub fn send(&mut self, after: Duration, to: usize, input: Input) {
        self.wire.schedule_at(self.now + after, (to, input));
    }

    /// Passes an input to a station. The world executes its outputs in the next step.
    pub fn feed(&mut self, to: usize, input: Input) {
        self.net.note(self.now, to, &input);
        let wall = self.wall();
        if let Err(reason) = self.stations[to].handle_input(self.now, wall, input) {
            self.net.refused(&reason);
        }
    }

    /// Passes a [`recorded`] input to a station, and executes at once all outputs that follow from it.
    pub fn tell(&mut self, to: usize, input: Input) {
        self.feed(to, recorded(&input));
        self.settle();
    }

    /// Passes an input to a station, like [`World::tell`]. Returns the error if the station refuses it.
    pub fn try_tell(&mut self, to: usize, input: Input) -> Result<(), String> {
        let wall = self.wall();
        let result = self.stations[to].handle_input(self.now, wall, recorded(&input));
        self.settle();
        result
    }

    /// Executes outputs, and delivers the inputs that are due, until no station has an output left.
    pub fn settle(&mut self) {
        for _ in 0..MANY {
            for from in 0..self.stations.len() {
                while let Some(output) = self.stations[from].poll_output() {
                    N::carry(self, from, output);
                }
            }
            let Some((to, input)) = self.wire.pop_due(self.now) else { return };
            self.feed(to, input);
        }
        panic!("the stations never come to rest");
    }

    /// Advances the clock to the next arrival or timer, and runs the stations. Returns false if nothing
    /// happens until `end`.
    pub fn step(&mut self, end: Time) -> bool {
        self.settle();
        let timers = self.stations.iter().filter_map(Station::poll_timeout);
        let Some(next) = timers.chain(self.wire.next_time()).min().filter(|next| *next <= end) else {
            return false;
        };
        self.now = self.now.max(next);
        self.settle();
        for station in 0..self.stations.len() {
            if self.stations[station].poll_timeout().is_some_and(|due| due <= self.now) {
                self.tell(station, Input::Timeout);
            }
        }
        true
    }

    /// Lets time pass until `end`.
    pub fn run_until(&mut self, end: Time) {
        let mut steps = (self.now, 0);
        while self.step(end) {
            steps = if self.now > steps.0 { (self.now, 0) } else { (self.now, steps.1 + 1) };
            assert!(steps.1 < MANY, "time does not pass");
        }
        self.now = end;
    }

    pub fn run(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }
}
