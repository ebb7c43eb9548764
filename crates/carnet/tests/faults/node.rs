//! A machine with a station: a kernel, a disk, and a process that may die at any step and is then restarted.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_linux::PlatformEvent;
use carnet_linux::simulated::{Kernel, Machine, SimulatedDisk};
use carnet_nemo::forwarding::forwarder::Verdict;
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_station::io::{Command, Input, Kept, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};

use crate::run::MAX_FAILURES;
use crate::state::{Change, InputOutputs, Journal, OutputTreatment, Queue, Writer, loaded, record_of};

pub const JOURNAL: &str = "/var/lib/carnet/station.state";
pub const UNDO: &str = "/run/carnet/station.undo";
/// Pause before a process is restarted.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause of a process after a kernel error (`run.rs`).
const RECOVERY: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The process gets a request to end, or gives up by itself. It restores all settings.
    Orderly,
    /// `kill -9` ends the process.
    Killed,
    /// The machine loses its power.
    PowerCut,
}

/// A running station, with the parts that execute its outputs.
pub struct Process {
    pub station: Station,
    pub machine: Machine,
    queue: Queue,
    writer: Writer,
    /// Commit that the disk is writing: the time at which the disk has finished, its number, and its changes.
    commit: Option<(Time, u64, Vec<Change>)>,
    look_at: Option<Time>,
    tick_at: Option<Time>,
}

/// An output of a machine that concerns the test: a packet that has left, or an event.
pub enum NodeOutput {
    /// The station has written this packet into the tunnel device.
    Packet(Vec<u8>),
    /// The process has ended, in an orderly way or not.
    Ended(ProcessEnd),
    /// A process has started with this stored state.
    Began(PersistentState),
}

/// A machine with its kernel and disk, and a process if one runs.
pub struct Node {
    pub kernel: Kernel,
    pub disk: SimulatedDisk,
    pub config: StationConfig,
    pub process: Option<Process>,
    pub start_at: Option<Time>,
    /// Nanoseconds by which the machine's clock is ahead of the right time.
    pub clock_ahead: i64,
    /// Number of requests to the kernel and outputs after which the process ends, and the way in which it
    /// ends; `None` if it goes on.
    crash_after: Option<(u32, ProcessEnd)>,
    /// Error of the last start of the node, if it failed.
    pub obstacle: String,
    rng: Rng,
    pub outputs: Vec<NodeOutput>,
}

impl Node {
    pub fn new(config: StationConfig, mut rng: Rng) -> Node {
        Node {
            kernel: Kernel::new(rng.fork()),
            disk: SimulatedDisk::new(rng.fork()),
            config,
            process: None,
            start_at: Some(Time::ZERO),
            clock_ahead: 0,
            crash_after: None,
            obstacle: String::new(),
            rng,
            outputs: Vec::new(),
        }
    }

    pub fn wall(&self, now: Time) -> WallTime {
        let right = 1_800_000_000_000_000_000 + now.saturating_since(Time::ZERO).as_nanos() as i64;
        WallTime::from_unix_nanos((right + self.clock_ahead) as u64)
    }

    /// Returns when the machine's next action is due.
    pub fn due(&self, now: Time) -> Option<Time> {
        let Some(process) = &self.process else { return self.start_at };
        let writes = match &process.commit {
            Some((at, ..)) => Some(*at),
            None => process.queue.due(),
        };
        let timer = process.station.poll_timeout();
        let all = [process.tick_at, process.look_at, timer, writes];
        all.into_iter().flatten().map(|due| due.max(now)).min()
    }

    /// Returns the pending timers as text, for debugging.
    pub fn dues(&self) -> String {
        let of = |it: &Process| (it.tick_at, it.look_at, it.station.poll_timeout(), it.queue.due());
        format!("start {:?}, process {:?}", self.start_at, self.process.as_ref().map(of))
    }

    /// Executes the actions of the machine that are due.
    pub fn serve(&mut self, now: Time) {
        if self.process.is_none() {
            if self.start_at.is_some_and(|at| at <= now) {
                self.start(now);
            }
            return;
        }
        self.write(now);
        let Some(process) = &mut self.process else { return };
        if process.tick_at.is_some_and(|at| at <= now) {
            process.machine.tick();
            process.tick_at = process.machine.is_troubled().then(|| now + SECOND);
        }
        if self.process.as_ref().is_some_and(|it| it.station.poll_timeout().is_some_and(|due| due <= now)) {
            self.input(now, Input::Timeout);
        }
        self.look(now);
    }

    fn start(&mut self, now: Time) {
        self.start_at = Some(now + AGAIN);
        let opened = Journal::open(Box::new(self.disk.clone()), Path::new(JOURNAL), &[]);
        let (journal, found) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.obstacle = format!("{error:#}");
                return;
            }
        };
        let kept = loaded(Path::new(JOURNAL), found.records).expect("what was written can be read");
        self.outputs.push(NodeOutput::Began(kept.clone()));
        let opened = Machine::open(&self.kernel, &self.disk, Path::new(UNDO));
        let Ok(machine) = opened.map_err(|error| self.obstacle = error.to_string()) else {
            drop(journal);
            if self.kernel.is_dead() {
                self.end(now, self.crash_after.map_or(ProcessEnd::Killed, |(_, end)| end));
            }
            return;
        };
        self.start_at = None;
        // The kernel must have no entry of an earlier process, apart from entries that this process has just
        // created.
        let stale: Vec<String> =
            self.kernel.leftovers().into_iter().filter(|text| !text.contains("carnet0")).collect();
        assert!(stale.is_empty(), "after a start: {stale:#?}");
        let known: Vec<Ipv6Addr> = kept.home_agent.iter().map(|node| node.home_address).collect();
        let wall = self.wall(now);
        let station = Station::new(self.config.clone(), kept, self.rng.fork(), now, wall);
        self.process = Some(Process {
            station,
            machine,
            queue: Queue::new(),
            writer: Writer::new(journal),
            commit: None,
            look_at: None,
            tick_at: None,
        });
        // As in `Runner::new`, the process first stores the state of the station itself. The loop below
        // stores the state of each node.
        self.keep(now, Kept::Own);
        for home_address in known {
            let process = self.process.as_ref().expect("runs");
            if process.station.nemo().stored_node(now, wall, home_address).is_none() {
                self.keep(now, Kept::Node(home_address));
            }
        }
        self.begin_commit(now, true);
        self.carry_out(now);
        self.look(now);
    }

    /// Makes the process end after this number of steps: requests to the kernel and outputs.
    pub fn set_crash(&mut self, steps: u32, end: ProcessEnd) {
        self.crash_after = Some((steps, end));
        self.kernel.set_steps_until_death(Some((steps, self.disk.clone())));
    }

    /// Cancels the planned end of the process.
    pub fn put_out(&mut self) {
        self.crash_after = None;
        self.kernel.set_steps_until_death(None);
    }

    /// Counts a step of the process towards its planned end. Returns whether the process ends at this step.
    fn burns(&mut self, now: Time) -> bool {
        let Some((_, end)) = self.crash_after else { return self.process.is_none() };
        if self.process.is_some() && self.kernel.step() {
            self.end(now, end);
        }
        self.process.is_none()
    }

    pub fn input(&mut self, now: Time, input: Input) {
        let wall = self.wall(now);
        let Some(process) = &mut self.process else { return };
        // The station may refuse a command; operators would then repeat it.
        let _ = process.station.handle_input(now, wall, input);
        self.carry_out(now);
    }

    /// Handles a packet from the tunnel device, as `Runner::packet` does.
    pub fn packet(&mut self, now: Time, packet: &[u8]) {
        let wall = self.wall(now);
        let Some(process) = &mut self.process else { return };
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(packet);
        match process.station.handle_packet(now, wall, &mut buffer) {
            Verdict::Forward => self.outputs.push(NodeOutput::Packet(buffer.as_slice().to_vec())),
            Verdict::Encapsulate { .. } => panic!("there is no IPv4"),
            Verdict::Consumed | Verdict::Dropped(_) => self.carry_out(now),
        }
    }

    fn keep(&mut self, now: Time, kept: Kept) -> bool {
        let wall = self.wall(now);
        let process = self.process.as_mut().expect("runs");
        let (change, holds) = record_of(&process.station, (now, wall), kept).expect("can be written");
        process.queue.set(change);
        holds
    }

    /// Executes the outputs of the station, as `Runner::carry_out` does.
    fn carry_out(&mut self, now: Time) {
        let mut burst = InputOutputs::default();
        while let Some(output) = self.process.as_mut().and_then(|process| process.station.poll_output()) {
            match burst.next(output) {
                OutputTreatment::Store(kept) => burst.holds_packets |= self.keep(now, kept),
                OutputTreatment::Hold(packet) => self.process.as_mut().expect("runs").queue.hold(now, packet),
                OutputTreatment::Execute(output) => self.carry(now, output),
                OutputTreatment::SendWhenInForce(output) => {
                    self.process.as_mut().expect("runs").machine.commit();
                    self.carry(now, output);
                }
            }
            if self.burns(now) {
                return;
            }
        }
        if let Some(process) = &mut self.process {
            process.machine.commit();
        }
        self.begin_commit(now, burst.changes_data_path);
    }

    fn carry(&mut self, now: Time, output: Output) {
        let process = self.process.as_mut().expect("runs");
        match output {
            Output::Nemo(NemoOutput::Forwarding(change)) => {
                let _ = process.machine.apply(&change);
                if process.machine.is_troubled() && process.tick_at.is_none() {
                    process.tick_at = Some(now + SECOND);
                }
            }
            Output::Nemo(NemoOutput::Packet(packet)) => self.outputs.push(NodeOutput::Packet(packet)),
            _ => {}
        }
    }

    fn begin_commit(&mut self, now: Time, presses: bool) {
        let Some(process) = &mut self.process else { return };
        if let Some((number, changes)) = process.queue.commit(now, presses) {
            let span = self.rng.duration(Duration::ZERO, Duration::from_millis(20));
            process.commit = Some((now + span, number, changes));
        }
    }

    /// Ends the current commit if the disk has finished it. Without a current commit, begins the next one if
    /// its wait is over.
    fn write(&mut self, now: Time) {
        let Some(process) = &mut self.process else { return };
        let Some((at, number, changes)) = process.commit.take() else {
            if process.queue.due().is_some_and(|due| due <= now) {
                self.begin_commit(now, false);
            }
            return;
        };
        if at > now {
            process.commit = Some((at, number, changes));
            return;
        }
        process.commit = Some((at, number, changes));
        if self.burns(now) {
            return;
        }
        let Some(process) = &mut self.process else { return };
        let Some((_, number, changes)) = process.commit.take() else { return };
        if process.writer.write(&changes).is_err() {
            process.commit = Some((now + AGAIN, number, changes));
            return;
        }
        let packets = process.queue.written(now, number);
        let _ = process.writer.tidy();
        for packet in packets {
            if self.burns(now) {
                return;
            }
            self.carry(now, packet);
        }
        self.begin_commit(now, false);
    }

    /// Handles the events of the kernel, as the program's loop does.
    pub fn look(&mut self, now: Time) {
        for _ in 0..100 {
            let Some(process) = &mut self.process else { return };
            if process.look_at.is_some_and(|at| at > now) || !process.machine.has_news() {
                return;
            }
            process.look_at = None;
            match process.machine.poll() {
                Ok(events) => {
                    if process.machine.is_troubled() && process.tick_at.is_none() {
                        process.tick_at = Some(now + SECOND);
                    }
                    for event in events {
                        if self.burns(now) {
                            return;
                        }
                        if matches!(event, PlatformEvent::Notice(_)) {
                            continue;
                        }
                        self.input(
                            now,
                            match event {
                                PlatformEvent::Interface(interface) => Input::Interface(interface),
                                PlatformEvent::InterfaceGone { name } => Input::InterfaceGone { name },
                                other => panic!("an event that nobody has thought of: {other:?}"),
                            },
                        );
                    }
                }
                Err(error) if !error.is_fatal() && process.machine.failures() <= MAX_FAILURES => {
                    process.look_at = Some(now + RECOVERY);
                }
                Err(_) => {
                    self.end(now, ProcessEnd::Orderly);
                    return;
                }
            }
            if self.burns(now) {
                return;
            }
        }
        panic!("the kernel has news for ever");
    }

    /// Asks the process to end.
    pub fn shut_down(&mut self, now: Time) {
        self.input(now, Input::Command(Command::Shutdown));
    }

    /// Ends the process in the way that `end` names. The machine restarts it later.
    pub fn end(&mut self, now: Time, end: ProcessEnd) {
        self.kernel.set_steps_until_death(None);
        self.crash_after = None;
        self.start_at = Some(now + AGAIN);
        if let Some(process) = self.process.take() {
            self.bury(now, process, end);
        }
        self.kernel.abandon();
        self.disk.abandon();
        if end == ProcessEnd::PowerCut {
            self.disk = self.disk.after_power_cut();
            self.kernel.reboot();
        }
        self.outputs.push(NodeOutput::Ended(end));
    }

    fn bury(&mut self, now: Time, mut process: Process, end: ProcessEnd) {
        match end {
            ProcessEnd::Orderly => {
                // An ending process writes waiting changes if the disk takes them at once.
                let now = now + SECOND;
                let commit = process.commit.take().map(|(_, number, changes)| (number, changes));
                let mut next = commit.or_else(|| process.queue.commit(now, true));
                while let Some((number, changes)) = next
                    && process.writer.write(&changes).is_ok()
                {
                    self.outputs.extend(process.queue.written(now, number).into_iter().filter_map(packet));
                    next = process.queue.commit(now, true);
                }
                drop(process.writer);
                if process.machine.close().is_ok() {
                    let left = self.kernel.leftovers();
                    assert!(left.is_empty(), "after an orderly end: {left:#?}");
                    assert!(!self.disk.exists(Path::new(UNDO)), "there is still something to put back");
                } else if self.disk.is_troubled() {
                    // If the kernel refuses to restore the last setting and the disk refuses to record it,
                    // the original value is lost. The check forgives this case.
                    self.kernel.forgive_forwarding();
                }
            }
            ProcessEnd::Killed | ProcessEnd::PowerCut => {
                // The process may end while it writes this commit.
                if let Some((_, _, changes)) = process.commit.take()
                    && self.rng.chance(0.5)
                {
                    self.disk.set_failure_probability(false, 0.4);
                    let _ = process.writer.write(&changes);
                    self.disk.set_failure_probability(false, 0.0);
                }
                drop(process);
            }
        }
    }

    /// Returns the number of entries and packets that the process has in memory.
    pub fn size(&self) -> usize {
        self.process.as_ref().map_or(0, |process| process.machine.entry_count() + process.queue.held())
    }
}

fn packet(output: Output) -> Option<NodeOutput> {
    match output {
        Output::Nemo(NemoOutput::Packet(packet)) => Some(NodeOutput::Packet(packet)),
        _ => None,
    }
}
