//! A machine with a station: a kernel, a disk, and a process that may die at any step and is then restarted.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_linux::PlatformEvent;
use carnet_linux::simulated::{SimulatedDisk, SimulatedKernel, SimulatedPlatform};
use carnet_nemo::forwarding::forwarder::ForwardingVerdict;
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_station::io::{Command, Input, NemoOutput, Output, StoredStatePart};
use carnet_station::{PersistentState, Station, StationConfig};

use crate::run::MAX_CONSECUTIVE_FAILURES;
use crate::state::{
    CommitQueue, InputOutputs, Journal, JournalWriter, OutputTreatment, RecordChange, record_of_state_part,
    records_to_state,
};

pub const STATE_FILE: &str = "/var/lib/carnet/station.state";
pub const UNDO_FILE: &str = "/run/carnet/station.undo";
/// Pause before a process is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Pause of a process after a kernel error (`run.rs`).
const EVENT_RETRY_DELAY: Duration = Duration::from_millis(100);
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
    pub machine: SimulatedPlatform,
    state_queue: CommitQueue,
    state_writer: JournalWriter,
    /// Commit that the disk is writing: the time at which the disk has finished, its number, and its changes.
    /// `None` if the disk is idle.
    commit_in_progress: Option<(Time, u64, Vec<RecordChange>)>,
    read_events_at: Option<Time>,
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
    pub kernel: SimulatedKernel,
    pub disk: SimulatedDisk,
    pub config: StationConfig,
    pub process: Option<Process>,
    pub next_start_at: Option<Time>,
    /// Nanoseconds by which the machine's clock is ahead of the right time.
    pub clock_ahead: i64,
    /// Number of steps (requests to the kernel and outputs) after which the process ends, and how it ends.
    /// `None` if the process goes on.
    crash_after: Option<(u32, ProcessEnd)>,
    /// Error of the last start of the node, if it failed.
    pub last_start_error: String,
    rng: Rng,
    pub outputs: Vec<NodeOutput>,
}

impl Node {
    pub fn new(config: StationConfig, mut rng: Rng) -> Node {
        Node {
            kernel: SimulatedKernel::new(rng.fork_generator()),
            disk: SimulatedDisk::new(rng.fork_generator()),
            config,
            process: None,
            next_start_at: Some(Time::ZERO),
            clock_ahead: 0,
            crash_after: None,
            last_start_error: String::new(),
            rng,
            outputs: Vec::new(),
        }
    }

    pub fn wall_time(&self, now: Time) -> WallTime {
        let right = 1_800_000_000_000_000_000 + now.saturating_since(Time::ZERO).as_nanos() as i64;
        WallTime::from_unix_nanos((right + self.clock_ahead) as u64)
    }

    /// Returns when the machine's next action is due; `None` if no action is planned.
    pub fn next_action_at(&self, now: Time) -> Option<Time> {
        let Some(process) = &self.process else { return self.next_start_at };
        let writes = match &process.commit_in_progress {
            Some((at, ..)) => Some(*at),
            None => process.state_queue.next_commit_at(),
        };
        let timer = process.station.poll_timeout();
        let all = [process.tick_at, process.read_events_at, timer, writes];
        all.into_iter().flatten().map(|due| due.max(now)).min()
    }

    /// Returns the pending timers as text, for debugging.
    pub fn pending_timers(&self) -> String {
        let of = |it: &Process| {
            (it.tick_at, it.read_events_at, it.station.poll_timeout(), it.state_queue.next_commit_at())
        };
        format!("start {:?}, process {:?}", self.next_start_at, self.process.as_ref().map(of))
    }

    /// Executes the actions of the machine that are due.
    pub fn run_due_actions(&mut self, now: Time) {
        if self.process.is_none() {
            if self.next_start_at.is_some_and(|at| at <= now) {
                self.start_process(now);
            }
            return;
        }
        self.continue_commit(now);
        let Some(process) = &mut self.process else { return };
        if process.tick_at.is_some_and(|at| at <= now) {
            process.machine.advance_one_second();
            process.tick_at = process.machine.has_refused_requests().then(|| now + SECOND);
        }
        if self.process.as_ref().is_some_and(|it| it.station.poll_timeout().is_some_and(|due| due <= now)) {
            self.handle_input(now, Input::Timeout);
        }
        self.handle_kernel_events(now);
    }

    fn start_process(&mut self, now: Time) {
        self.next_start_at = Some(now + RESTART_DELAY);
        let opened = Journal::open_journal(Box::new(self.disk.clone()), Path::new(STATE_FILE), &[]);
        let (journal, found) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.last_start_error = format!("{error:#}");
                return;
            }
        };
        let kept = records_to_state(Path::new(STATE_FILE), found.current_records)
            .expect("what was written can be read");
        self.outputs.push(NodeOutput::Began(kept.clone()));
        let opened = SimulatedPlatform::open(&self.kernel, &self.disk, Path::new(UNDO_FILE));
        let Ok(machine) = opened.map_err(|error| self.last_start_error = error.to_string()) else {
            drop(journal);
            if self.kernel.has_process_died() {
                self.end_process(now, self.crash_after.map_or(ProcessEnd::Killed, |(_, end)| end));
            }
            return;
        };
        self.next_start_at = None;
        // The kernel must have no entry of an earlier process. Entries that this process has just created do
        // not count.
        let stale: Vec<String> =
            self.kernel.leftover_objects().into_iter().filter(|text| !text.contains("carnet0")).collect();
        assert!(stale.is_empty(), "after a start: {stale:#?}");
        let known: Vec<Ipv6Addr> = kept.home_agent.iter().map(|node| node.home_address).collect();
        let wall = self.wall_time(now);
        let station = Station::new(self.config.clone(), kept, self.rng.fork_generator(), now, wall);
        self.process = Some(Process {
            station,
            machine,
            state_queue: CommitQueue::new(),
            state_writer: JournalWriter::new(journal),
            commit_in_progress: None,
            read_events_at: None,
            tick_at: None,
        });
        // As in `StationRunner::new`, the process first stores the state of the station itself. The loop
        // below stores the state of each node.
        self.store_record(now, StoredStatePart::Own);
        for home_address in known {
            let process = self.process.as_ref().expect("runs");
            if process.station.nemo().stored_binding(now, wall, home_address).is_none() {
                self.store_record(now, StoredStatePart::Node(home_address));
            }
        }
        self.begin_commit(now, true);
        self.execute_outputs(now);
        self.handle_kernel_events(now);
    }

    /// Makes the process end after this number of steps: requests to the kernel and outputs.
    pub fn set_crash(&mut self, steps: u32, end: ProcessEnd) {
        self.crash_after = Some((steps, end));
        self.kernel.set_steps_until_death(Some((steps, self.disk.clone())));
    }

    /// Cancels the planned end of the process.
    pub fn cancel_crash(&mut self) {
        self.crash_after = None;
        self.kernel.set_steps_until_death(None);
    }

    /// Counts a step of the process towards its planned end. Returns whether the process ends at this step.
    fn count_step(&mut self, now: Time) -> bool {
        let Some((_, end)) = self.crash_after else { return self.process.is_none() };
        if self.process.is_some() && self.kernel.count_step() {
            self.end_process(now, end);
        }
        self.process.is_none()
    }

    pub fn handle_input(&mut self, now: Time, input: Input) {
        let wall = self.wall_time(now);
        let Some(process) = &mut self.process else { return };
        // The station may refuse the command. An operator would then repeat it.
        let _ = process.station.handle_input(now, wall, input);
        self.execute_outputs(now);
    }

    /// Handles a packet from the tunnel device, as `StationRunner::packet` does.
    pub fn handle_tunnel_packet(&mut self, now: Time, packet: &[u8]) {
        let wall = self.wall_time(now);
        let Some(process) = &mut self.process else { return };
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(packet);
        match process.station.handle_packet(now, wall, &mut buffer) {
            ForwardingVerdict::Forward => self.outputs.push(NodeOutput::Packet(buffer.as_slice().to_vec())),
            ForwardingVerdict::Encapsulate { .. } => panic!("there is no IPv4"),
            ForwardingVerdict::Consumed | ForwardingVerdict::Dropped(_) => self.execute_outputs(now),
        }
    }

    fn store_record(&mut self, now: Time, state_part: StoredStatePart) -> bool {
        let wall = self.wall_time(now);
        let process = self.process.as_mut().expect("runs");
        let (change, holds) =
            record_of_state_part(&process.station, (now, wall), state_part).expect("can be written");
        process.state_queue.set_record(change);
        holds
    }

    /// Executes the outputs of the station, as `StationRunner::carry_out_outputs` does.
    fn execute_outputs(&mut self, now: Time) {
        let mut burst = InputOutputs::default();
        while let Some(output) = self.process.as_mut().and_then(|process| process.station.poll_output()) {
            match burst.treatment_of_next(output) {
                OutputTreatment::Store(kept) => burst.holds_packets |= self.store_record(now, kept),
                OutputTreatment::Hold(packet) => {
                    self.process.as_mut().expect("runs").state_queue.hold_packet(now, packet)
                }
                OutputTreatment::Execute(output) => self.execute_output(now, output),
                OutputTreatment::SendWhenInForce(output) => {
                    self.process.as_mut().expect("runs").machine.commit_changes();
                    self.execute_output(now, output);
                }
            }
            if self.count_step(now) {
                return;
            }
        }
        if let Some(process) = &mut self.process {
            process.machine.commit_changes();
        }
        self.begin_commit(now, burst.changes_data_path);
    }

    fn execute_output(&mut self, now: Time, output: Output) {
        let process = self.process.as_mut().expect("runs");
        match output {
            Output::Nemo(NemoOutput::Forwarding(change)) => {
                let _ = process.machine.apply_change(&change);
                if process.machine.has_refused_requests() && process.tick_at.is_none() {
                    process.tick_at = Some(now + SECOND);
                }
            }
            Output::Nemo(NemoOutput::Packet(packet)) => self.outputs.push(NodeOutput::Packet(packet)),
            _ => {}
        }
    }

    fn begin_commit(&mut self, now: Time, is_urgent: bool) {
        let Some(process) = &mut self.process else { return };
        if let Some((number, changes)) = process.state_queue.take_commit(now, is_urgent) {
            let span = self.rng.duration_between(Duration::ZERO, Duration::from_millis(20));
            process.commit_in_progress = Some((now + span, number, changes));
        }
    }

    /// Ends the current commit if the disk has finished it. Without a current commit, begins the next commit
    /// if its time has come.
    fn continue_commit(&mut self, now: Time) {
        let Some(process) = &mut self.process else { return };
        let Some((at, number, changes)) = process.commit_in_progress.take() else {
            if process.state_queue.next_commit_at().is_some_and(|due| due <= now) {
                self.begin_commit(now, false);
            }
            return;
        };
        if at > now {
            process.commit_in_progress = Some((at, number, changes));
            return;
        }
        process.commit_in_progress = Some((at, number, changes));
        if self.count_step(now) {
            return;
        }
        let Some(process) = &mut self.process else { return };
        let Some((_, number, changes)) = process.commit_in_progress.take() else { return };
        if process.state_writer.write_commit(&changes).is_err() {
            process.commit_in_progress = Some((now + RESTART_DELAY, number, changes));
            return;
        }
        let packets = process.state_queue.release_written(now, number);
        let _ = process.state_writer.compact_if_needed();
        for packet in packets {
            if self.count_step(now) {
                return;
            }
            self.execute_output(now, packet);
        }
        self.begin_commit(now, false);
    }

    /// Handles the events of the kernel, as the program's loop does.
    pub fn handle_kernel_events(&mut self, now: Time) {
        for _ in 0..100 {
            let Some(process) = &mut self.process else { return };
            if process.read_events_at.is_some_and(|at| at > now) || !process.machine.has_pending_work() {
                return;
            }
            process.read_events_at = None;
            match process.machine.poll_events() {
                Ok(events) => {
                    if process.machine.has_refused_requests() && process.tick_at.is_none() {
                        process.tick_at = Some(now + SECOND);
                    }
                    for event in events {
                        if self.count_step(now) {
                            return;
                        }
                        if matches!(event, PlatformEvent::Notice(_)) {
                            continue;
                        }
                        self.handle_input(
                            now,
                            match event {
                                PlatformEvent::Interface(interface) => Input::Interface(interface),
                                PlatformEvent::InterfaceGone { name } => Input::InterfaceGone { name },
                                other => panic!("an event that nobody has thought of: {other:?}"),
                            },
                        );
                    }
                }
                Err(error)
                    if !error.is_fatal()
                        && process.machine.consecutive_failures() <= MAX_CONSECUTIVE_FAILURES =>
                {
                    process.read_events_at = Some(now + EVENT_RETRY_DELAY);
                }
                Err(_) => {
                    self.end_process(now, ProcessEnd::Orderly);
                    return;
                }
            }
            if self.count_step(now) {
                return;
            }
        }
        panic!("the kernel has news for ever");
    }

    /// Asks the process to end.
    pub fn request_shutdown(&mut self, now: Time) {
        self.handle_input(now, Input::Command(Command::Shutdown));
    }

    /// Ends the process as `end` says. The machine restarts it after [`RESTART_DELAY`].
    pub fn end_process(&mut self, now: Time, end: ProcessEnd) {
        self.kernel.set_steps_until_death(None);
        self.crash_after = None;
        self.next_start_at = Some(now + RESTART_DELAY);
        if let Some(process) = self.process.take() {
            self.finish_process(now, process, end);
        }
        self.kernel.end_process();
        self.disk.release_locks();
        if end == ProcessEnd::PowerCut {
            self.disk = self.disk.after_power_cut();
            self.kernel.reboot();
        }
        self.outputs.push(NodeOutput::Ended(end));
    }

    fn finish_process(&mut self, now: Time, mut process: Process, end: ProcessEnd) {
        match end {
            ProcessEnd::Orderly => {
                // An ending process writes waiting changes if the disk takes them at once.
                let now = now + SECOND;
                let commit = process.commit_in_progress.take().map(|(_, number, changes)| (number, changes));
                let mut next = commit.or_else(|| process.state_queue.take_commit(now, true));
                while let Some((number, changes)) = next
                    && process.state_writer.write_commit(&changes).is_ok()
                {
                    self.outputs.extend(
                        process
                            .state_queue
                            .release_written(now, number)
                            .into_iter()
                            .filter_map(packet_of_output),
                    );
                    next = process.state_queue.take_commit(now, true);
                }
                drop(process.state_writer);
                if process.machine.close().is_ok() {
                    let left = self.kernel.leftover_objects();
                    assert!(left.is_empty(), "after an orderly end: {left:#?}");
                    assert!(
                        !self.disk.file_exists(Path::new(UNDO_FILE)),
                        "there is still something to put back"
                    );
                } else if self.disk.may_fail() {
                    // If the kernel refuses to restore the last setting and the disk refuses to record it,
                    // the original value is lost. The check permits this case.
                    self.kernel.accept_own_forwarding();
                }
            }
            ProcessEnd::Killed | ProcessEnd::PowerCut => {
                // The process ends while it writes this commit. In half of the cases the commit still goes to
                // the disk, which may fail.
                if let Some((_, _, changes)) = process.commit_in_progress.take()
                    && self.rng.is_true_with_probability(0.5)
                {
                    self.disk.set_failure_probability(false, 0.4);
                    let _ = process.state_writer.write_commit(&changes);
                    self.disk.set_failure_probability(false, 0.0);
                }
                drop(process);
            }
        }
    }

    /// Returns the number of entries and packets that the process has in memory.
    pub fn entries_in_memory(&self) -> usize {
        self.process
            .as_ref()
            .map_or(0, |process| process.machine.entry_count() + process.state_queue.held_packet_count())
    }
}

fn packet_of_output(output: Output) -> Option<NodeOutput> {
    match output {
        Output::Nemo(NemoOutput::Packet(packet)) => Some(NodeOutput::Packet(packet)),
        _ => None,
    }
}
