//! Runs threads and programs in the nodes of the bench, which are network namespaces with links between them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns};
use nix::unistd::Pid;
use serde_json::Value;

use carnet_testbed::isolate::RUN_DIRECTORY;
use carnet_testbed::process::{BackgroundProgram, command_in_node, run_for_output, wait_until};
use carnet_testbed::tools;

/// Runs `ip` in the lab's own namespace, with one command per line.
pub fn run_ip_commands(lines: &str) -> anyhow::Result<()> {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        run_for_output(Command::new(tools::path_of_program("ip")).args(line.split_whitespace()))?;
    }
    Ok(())
}

/// Starts a thread inside a node, pinned to `core` if given.
pub fn spawn_in_node<T: Send + 'static>(
    node: &str,
    core: Option<usize>,
    job: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> JoinHandle<anyhow::Result<T>> {
    let path = format!("/run/netns/{node}");
    std::thread::spawn(move || {
        let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        setns(namespace, CloneFlags::CLONE_NEWNET).with_context(|| format!("cannot enter {path}"))?;
        if let Some(core) = core {
            let mut set = CpuSet::new();
            set.set(core)?;
            // For the kernel, process 0 is this thread.
            sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot use core {core}"))?;
        }
        job()
    })
}

/// Waits for a thread of [`spawn_in_node`].
pub fn join_thread<T>(thread: JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().map_err(|_| anyhow!("bug: a thread of the benchmark panicked"))?
}

/// Runs a function inside a node.
pub fn run_in_node<T: Send + 'static>(
    node: &str,
    job: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    join_thread(spawn_in_node(node, None, job))
}

/// Returns how many frames an interface of this thread's node has received.
pub fn received_frames(interface: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
    let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    packets.with_context(|| format!("the kernel has no counters of {interface}"))
}

/// A running carnet station.
#[derive(Debug)]
pub struct CarnetStation {
    program_path: PathBuf,
    control_socket: String,
    daemon: [BackgroundProgram; 1],
}

impl CarnetStation {
    /// Starts carnet with these lines in the table `[geonet]` of its config, and waits until it answers.
    pub fn start(
        program: &Path,
        node: &str,
        core: Option<usize>,
        geonet: &str,
    ) -> anyhow::Result<CarnetStation> {
        let socket = format!("{RUN_DIRECTORY}/{node}.sock");
        let text = format!("[station]\nname = '{node}'\nsocket = '{socket}'\n[geonet]\n{geonet}");
        let config = format!("{RUN_DIRECTORY}/{node}.toml");
        std::fs::write(&config, text)?;
        let mut command = match core {
            None => command_in_node(node, program),
            Some(core) => {
                let mut command = command_in_node(node, "taskset");
                command.args(["--cpu-list", &core.to_string()]).arg(program);
                command
            }
        };
        command.args(["run", "--config", &config]);
        let log = format!("{RUN_DIRECTORY}/{node}.log");
        let mut daemon =
            [BackgroundProgram::start(&format!("carnet in {node}"), Path::new(&log), &mut command)?];
        wait_until(&format!("carnet in {node}"), 20, &mut daemon, || {
            Ok(std::os::unix::net::UnixStream::connect(&socket).is_ok())
        })?;
        Ok(CarnetStation { program_path: program.into(), control_socket: socket, daemon })
    }

    /// Returns the path of the kernel's file with the station's run time.
    pub fn scheduler_statistics_file(&self) -> String {
        format!("/proc/{}/schedstat", self.daemon[0].process())
    }

    /// Returns a `carnet` command for this station, with these words and `--json`.
    pub fn carnet_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program_path);
        command.args(words).args(["--json", "--socket", &self.control_socket]);
        command
    }

    /// Runs a `carnet` command for this station, and returns the JSON that it prints.
    pub fn query_json(&self, words: &[&str]) -> anyhow::Result<Value> {
        let text = run_for_output(&mut self.carnet_command(words))?;
        serde_json::from_str(&text).with_context(|| format!("carnet {words:?} printed no JSON: {text}"))
    }

    /// Returns the station's counters. A missing counter counts as 0.
    pub fn counters(&self) -> anyhow::Result<Value> {
        self.query_json(&["show", "counters"])
    }

    /// Waits until the station has `count` neighbours.
    pub fn wait_for_neighbours(&mut self, count: usize) -> anyhow::Result<()> {
        let mut command = self.carnet_command(&["show", "neighbours"]);
        wait_until("the neighbours", 20, &mut self.daemon, || {
            let found: Value = serde_json::from_str(&run_for_output(&mut command)?)?;
            Ok(found.as_array().map_or(0, Vec::len) >= count)
        })
    }
}

impl Drop for CarnetStation {
    fn drop(&mut self) {
        for daemon in &mut self.daemon {
            daemon.stop(nix::sys::signal::Signal::SIGTERM);
        }
    }
}
