//! Describes the machine on which a measurement ran.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Machine data that a reader needs to compare numbers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MachineDescription {
    /// CPU model.
    pub cpu: String,
    /// Whether an emulator executes the instructions, so that times and rates say nothing about real
    /// hardware. Absent in files of earlier versions.
    #[serde(default)]
    pub emulated: bool,
    /// Number of cores that the lab may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Kernel mitigations of processor faults, each with its state. With some of them a packet costs up to
    /// four times as much as with others. Absent in files of earlier versions.
    #[serde(default)]
    pub mitigations: Vec<String>,
    /// Distribution.
    pub system: String,
    /// Output of `carnet --version`.
    pub carnet: String,
    /// Commit of the repository that contains the scenarios, if there is one.
    pub commit: Option<String>,
}

/// QEMU's name for processors that it emulates (TCG is its translator).
const EMULATOR_NAME: &str = "QEMU TCG";

impl MachineDescription {
    /// Returns a text with the processor, and whether it is emulated.
    pub fn processor_text(&self) -> String {
        format!("{}{}, {} cores", self.cpu, if self.emulated { " (emulated)" } else { "" }, self.cores)
    }

    /// Returns [`MachineDescription::mitigations`] in one line.
    pub fn mitigations_text(&self) -> String {
        if self.mitigations.is_empty() { "unknown".into() } else { self.mitigations.join("; ") }
    }

    /// Returns a warning to print before times and rates if the machine is emulated, otherwise `None`.
    pub fn emulation_warning(&self) -> Option<String> {
        self.emulated.then(|| "an emulated machine: times and rates are the emulator's".to_owned())
    }
}

/// Describes this machine and the carnet program.
pub fn describe_machine(carnet: &Path, scenarios: &Path) -> MachineDescription {
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
    let cpu = value(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_else(|| "unknown".into());
    let memory = value(&read("/proc/meminfo"), "MemTotal", ':').unwrap_or_default();
    MachineDescription {
        emulated: cpu.starts_with(EMULATOR_NAME),
        cpu,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory.split(' ').next().and_then(|k| k.parse::<u64>().ok()).unwrap_or(0) / 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().into(),
        mitigations: read_mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
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

/// Returns the name of each processor fault and how the kernel mitigates it. Reads one file per fault in this
/// folder, up to the first semicolon, and skips faults that do not affect the processor.
fn read_mitigations(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<String> = files
        .filter_map(|file| {
            let said = std::fs::read_to_string(file.path()).ok()?;
            let first = said.trim().split(';').next()?.trim().to_owned();
            (first != "Not affected").then(|| format!("{}: {first}", file.file_name().to_string_lossy()))
        })
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_processor_vulnerabilities() {
        let folder = std::env::temp_dir().join(format!("carnet-lab-machine-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for (name, said) in [
            ("spectre_v2", "Mitigation: Retpolines; STIBP: disabled; RSB filling\n"),
            ("meltdown", "Not affected\n"),
            ("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode\n"),
        ] {
            std::fs::write(folder.join(name), said).expect("a file");
        }
        assert_eq!(
            read_mitigations(&folder),
            [
                "spec_rstack_overflow: Vulnerable: Safe RET, no microcode",
                "spectre_v2: Mitigation: Retpolines"
            ]
        );
        std::fs::remove_dir_all(&folder).expect("it goes");
        assert_eq!(read_mitigations(&folder), [""; 0]);
    }
}
