//! The machine that a measurement was taken on.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// What a reader needs to know to compare numbers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// Cores that the lab may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Distribution.
    pub system: String,
    /// What `carnet --version` says.
    pub carnet: String,
    /// Commit of the repository around the scenarios, where there is one.
    pub commit: Option<String>,
}

/// Describes this machine and the carnet program.
pub fn describe(carnet: &Path, scenarios: &Path) -> Machine {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let value = |text: &str, key: &str, by: char| {
        text.lines()
            .find(|l| l.starts_with(key))
            .and_then(|l| l.split_once(by))
            .map(|(_, v)| v.trim().to_string())
    };
    let run = |command: &mut Command| {
        let out = command.output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_string()).filter(|s| !s.is_empty())
    };
    let memory = value(&read("/proc/meminfo"), "MemTotal", ':').unwrap_or_default();
    Machine {
        cpu: value(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_else(|| "unknown".into()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory.split(' ').next().and_then(|k| k.parse::<u64>().ok()).unwrap_or(0) / 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().into(),
        system: value(&read("/etc/os-release"), "PRETTY_NAME", '=')
            .map_or_else(|| "unknown".into(), |s| s.trim_matches('"').into()),
        carnet: run(Command::new(carnet).arg("--version")).unwrap_or_else(|| "unknown".into()),
        commit: run(Command::new("git").arg("-C").arg(scenarios).args([
            "-c",
            "safe.directory=*",
            "describe",
            "--always",
            "--dirty",
        ])),
    }
}
