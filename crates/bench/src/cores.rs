//! Pins threads and processes to cores, and reads their processor time.

use anyhow::Context;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use carnet_testbed::clock::monotonic_now;

/// The cores that the lab may use, as the lab found them at its start.
#[derive(Debug, Clone, Copy)]
pub struct Cores {
    allowed_cores: CpuSet,
    /// Core on which packets are measured. It is the last core, because the first core handles most
    /// interrupts.
    pub measuring_core: usize,
}

impl Cores {
    /// Returns the cores that this thread may run on.
    pub fn of_current_thread() -> anyhow::Result<Cores> {
        let all =
            sched_getaffinity(Pid::from_raw(0)).context("cannot read which cores this process may use")?;
        let measuring = (0..CpuSet::count()).rev().find(|core| all.is_set(*core).unwrap_or(false));
        Ok(Cores { allowed_cores: all, measuring_core: measuring.context("there is no core to run on")? })
    }

    /// Pins this thread, and programs that it starts later, to the measuring core.
    pub fn pin_to_measuring_core(&self) -> anyhow::Result<()> {
        self.set_process_pinning(0, true)
    }

    /// Keeps this thread, and programs that it starts later, away from the measuring core.
    ///
    /// # Errors
    /// Fails also if the machine has no other core.
    pub fn avoid_measuring_core(&self) -> anyhow::Result<()> {
        let mut set = self.allowed_cores;
        set.unset(self.measuring_core)?;
        sched_setaffinity(Pid::from_raw(0), &set).context("there is no other core")
    }

    /// Lets this thread, and programs that it starts later, run on any core.
    pub fn allow_all_cores(&self) -> anyhow::Result<()> {
        self.set_process_pinning(0, false)
    }

    /// Returns a core for each of two ends: the first allowed core and the measuring core. They are equal if
    /// the machine has only one core.
    pub fn cores_of_two_ends(&self) -> [usize; 2] {
        let first = (0..CpuSet::count()).find(|core| self.allowed_cores.is_set(*core).unwrap_or(false));
        [first.unwrap_or(self.measuring_core), self.measuring_core]
    }

    /// Pins a process with all its threads to the measuring core, or lets it run on any core. Process 0 is
    /// this thread.
    pub fn set_process_pinning(&self, process: u32, pinned: bool) -> anyhow::Result<()> {
        if pinned {
            return pin_process(process, self.measuring_core);
        }
        set_affinity(process, &self.allowed_cores)
    }
}

/// Pins a process with all its threads to a core. Process 0 is this thread.
pub fn pin_process(process: u32, core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    set_affinity(process, &set)
}

fn set_affinity(process: u32, set: &CpuSet) -> anyhow::Result<()> {
    let mut threads = vec![process];
    if process != 0 {
        let folder = format!("/proc/{process}/task");
        threads = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read {folder}"))?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
    }
    for thread in threads {
        sched_setaffinity(Pid::from_raw(thread as i32), set)
            .with_context(|| format!("cannot move thread {thread}"))?;
    }
    Ok(())
}

/// Clock ticks of `/proc` in a second.
pub const CLOCK_TICKS_PER_SECOND: f64 = 100.0;

/// Returns the seconds that all cores were busy since the start of the machine, from `/proc/stat`.
pub fn busy_processor_seconds() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    parse_busy_seconds(&text).context("/proc/stat is not as expected")
}

/// Parses the seconds that all cores spent in each state: user, nice, system, idle, iowait, irq, softirq and
/// steal. `text` is the content of `/proc/stat`; returns `None` if it is invalid.
fn parse_processor_seconds(text: &str) -> Option<[f64; 8]> {
    let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let seconds: Vec<f64> =
        numbers.take(8).filter_map(|n| Some(n.parse::<f64>().ok()? / CLOCK_TICKS_PER_SECOND)).collect();
    seconds.try_into().ok()
}

fn parse_busy_seconds(text: &str) -> Option<f64> {
    let [user, nice, system, _, _, irq, softirq, _] = parse_processor_seconds(text)?;
    Some(user + nice + system + irq + softirq)
}

/// Observes the processor time of other programs on the machine during a measurement.
#[derive(Debug)]
pub struct ProcessorTimeMeter {
    started_at: u64,
    /// Seconds of user and system time at the begin: of all programs, of a hypervisor's other guests, and of
    /// this process with its ended children.
    seconds_at_start: [f64; 3],
}

impl ProcessorTimeMeter {
    /// Begins to observe the processor time.
    pub fn begin() -> anyhow::Result<ProcessorTimeMeter> {
        Ok(ProcessorTimeMeter { started_at: monotonic_now(), seconds_at_start: spent_processor_seconds()? })
    }

    /// Returns the shares of all cores that other programs, and a hypervisor's other guests, had since
    /// [`Self::begin`]. The caller calls it after all programs that it started have ended. The kernel's
    /// handling of interrupts, in which it forwards packets, counts for no program.
    pub fn busy_shares_of_others(&self) -> anyhow::Result<[f64; 2]> {
        let [all, stolen, own] = spent_processor_seconds()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let time = (monotonic_now() - self.started_at).max(1) as f64 / 1e9 * cores;
        let others = all - self.seconds_at_start[0] - (own - self.seconds_at_start[2]);
        Ok([others, stolen - self.seconds_at_start[1]].map(|seconds| (seconds / time).max(0.0)))
    }
}

fn spent_processor_seconds() -> anyhow::Result<[f64; 3]> {
    let read = |file: &str| std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"));
    let [all, stolen] =
        parse_busy_and_steal_seconds(&read("/proc/stat")?).context("/proc/stat is not as expected")?;
    let own = parse_own_seconds(&read("/proc/self/stat")?).context("/proc/self/stat is not as expected")?;
    Ok([all, stolen, own])
}

fn parse_busy_and_steal_seconds(text: &str) -> Option<[f64; 2]> {
    let [user, nice, system, _, _, _, _, steal] = parse_processor_seconds(text)?;
    Some([user + nice + system, steal])
}

fn parse_own_seconds(text: &str) -> Option<f64> {
    // Fields utime, stime, cutime and cstime.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)? + ticks(16)? + ticks(17)?) / CLOCK_TICKS_PER_SECOND)
}

/// Returns the seconds that a process ran, from `/proc/PID/stat`.
pub fn process_seconds(process: u32) -> anyhow::Result<f64> {
    let file = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    parse_process_seconds(&text).with_context(|| format!("{file} is not as expected"))
}

fn parse_process_seconds(text: &str) -> Option<f64> {
    // Field 2 is the name in parentheses, which may contain any character, so count from its end. Field 14 is
    // utime, field 15 stime.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / CLOCK_TICKS_PER_SECOND)
}

/// Returns the load averages over 1, 5 and 15 minutes.
pub fn load_averages() -> [f64; 3] {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = text.split(' ').map(|word| word.parse().unwrap_or(0.0));
    std::array::from_fn(|_| words.next().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_parsed_from_proc_files() {
        assert_eq!(parse_busy_seconds("cpu  100 20 300 9999 50 6 7 8 0 0\ncpu0 1 2"), Some(4.33));
        let line = "12 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 1 0 9 1 1";
        assert_eq!(parse_process_seconds(line), Some(4.0));
        assert_eq!(parse_process_seconds("12 (x) S 1"), None);
        assert_eq!(
            parse_busy_and_steal_seconds("cpu  100 20 300 9999 50 6 7 8 0 0\ncpu0 1 2"),
            Some([4.2, 0.08])
        );
        let line = "12 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 250 150 75 25 20 0 1 0 9 1 1";
        assert_eq!(parse_own_seconds(line), Some(5.0));
    }
}
