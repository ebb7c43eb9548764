//! Which core does what: pinning threads and processes, and the time that they took.

use anyhow::Context;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The cores that the lab may use, as it found them.
#[derive(Debug, Clone, Copy)]
pub struct Cores {
    all: CpuSet,
    /// The core on which packets are measured: the last one, for the first has most of the interrupts.
    pub measuring: usize,
}

impl Cores {
    /// Those that this thread may run on.
    pub fn of_caller() -> anyhow::Result<Cores> {
        let all = sched_getaffinity(Pid::from_raw(0)).context("cannot tell the cores")?;
        let measuring = (0..CpuSet::count()).rev().find(|core| all.is_set(*core).unwrap_or(false));
        Ok(Cores { all, measuring: measuring.context("there is no core to run on")? })
    }

    /// Puts this thread, and what it starts from now on, onto the one core.
    pub fn pin(&self) -> anyhow::Result<()> {
        self.move_process(0, true)
    }

    /// Puts a process, with all its threads, onto the one core, or lets it run anywhere. Process 0 is this thread.
    pub fn move_process(&self, process: u32, pinned: bool) -> anyhow::Result<()> {
        let mut set = self.all;
        if pinned {
            set = CpuSet::new();
            set.set(self.measuring)?;
        }
        let mut threads = vec![process];
        if process != 0 {
            let folder = format!("/proc/{process}/task");
            threads = std::fs::read_dir(&folder)
                .with_context(|| format!("cannot read {folder}"))?
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .collect();
        }
        for thread in threads {
            sched_setaffinity(Pid::from_raw(thread as i32), &set)
                .with_context(|| format!("cannot move thread {thread}"))?;
        }
        Ok(())
    }
}

/// Load averages over 1, 5 and 15 minutes.
pub fn load() -> [f64; 3] {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = text.split(' ').map(|word| word.parse().unwrap_or(0.0));
    std::array::from_fn(|_| words.next().unwrap_or(0.0))
}
