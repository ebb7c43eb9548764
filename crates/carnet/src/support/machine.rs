//! Facts about the machine and its kernel: network, BPF programs, log.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::SupportArchive;

/// Time limit for the output of each other program that the command runs.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of lines of the log in the bundle.
const LOG_LINES: &str = "2000";

/// Files of the machine that the bundle copies, each with its name in the bundle.
const MACHINE_FILES: [(&str, &str); 12] = [
    ("machine/kernel.txt", "/proc/version"),
    ("machine/system.txt", "/etc/os-release"),
    ("machine/host.txt", "/proc/sys/kernel/hostname"),
    ("machine/processors.txt", "/proc/cpuinfo"),
    ("machine/memory.txt", "/proc/meminfo"),
    ("machine/load.txt", "/proc/loadavg"),
    ("machine/uptime.txt", "/proc/uptime"),
    ("machine/clock.txt", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("machine/modules.txt", "/proc/modules"),
    ("bpf/unprivileged.txt", "/proc/sys/kernel/unprivileged_bpf_disabled"),
    ("bpf/jit.txt", "/proc/sys/net/core/bpf_jit_enable"),
    ("bpf/lockdown.txt", "/sys/kernel/security/lockdown"),
];

/// Files about the station's process that the bundle copies, below `/proc/PID`.
const PROCESS_FILES: [&str; 5] = ["status", "limits", "smaps_rollup", "cgroup", "cmdline"];

/// Files of the network namespace that the bundle copies, below `/proc/PID/net`.
const NETWORK_FILES: [&str; 10] = [
    "dev",
    "if_inet6",
    "ipv6_route",
    "route",
    "snmp6",
    "snmp",
    "softnet_stat",
    "igmp6",
    "packet",
    "wireless",
];

/// Commands that the bundle runs in the station's network namespace, with file names for their outputs.
const NAMESPACE_COMMANDS: [(&str, &[&str]); 12] = [
    ("network/links.json", &["ip", "-json", "-details", "-statistics", "link"]),
    ("network/addresses.json", &["ip", "-json", "address"]),
    ("network/routes6.txt", &["ip", "-6", "route", "show", "table", "all"]),
    ("network/routes4.txt", &["ip", "-4", "route", "show", "table", "all"]),
    ("network/rules6.txt", &["ip", "-6", "rule"]),
    ("network/rules4.txt", &["ip", "-4", "rule"]),
    ("network/neighbours.txt", &["ip", "neighbour"]),
    ("network/tunnels.txt", &["ip", "-6", "tunnel"]),
    ("network/nftables.txt", &["nft", "list", "ruleset"]),
    ("network/sysctl.txt", &["sysctl", "net.ipv6.conf", "net.ipv4.conf", "net.core"]),
    ("bpf/attached.txt", &["bpftool", "net"]),
    ("bpf/programs.txt", &["bpftool", "prog"]),
];

/// Returns version, features and similar facts about this program.
pub(super) fn program_facts() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "features": {
            "security": cfg!(feature = "security"),
            "bpf": cfg!(feature = "bpf"),
            "geonet": cfg!(feature = "geonet"),
            "replay": cfg!(feature = "replay"),
        },
        "architecture": std::env::consts::ARCH,
        "c_library": if cfg!(target_env = "musl") { "musl" } else { "gnu" },
    })
}

/// Adds all facts about the machine to the bundle. `process` is that of the station, which may have its own
/// network namespace.
pub(super) fn add_machine_facts(bundle: &mut SupportArchive, process: Option<i32>, station: Option<&str>) {
    bundle.add_file("machine/program.json", "this program", format!("{:#}\n", program_facts()));
    for (name, path) in MACHINE_FILES {
        bundle.copy_file(name, path, Path::new(path));
    }
    let types = Path::new("/sys/kernel/btf/vmlinux").exists();
    let facts = json!({
        "kernel_types": types,
        "capabilities_missing_here": carnet_linux::missing_for_bpf(),
        "pinned": file_names_in("/sys/fs/bpf"),
    });
    bundle.add_file("bpf/facts.json", "what BPF programs need", format!("{facts:#}\n"));
    if let Some(process) = process {
        for name in PROCESS_FILES {
            let path = format!("/proc/{process}/{name}");
            bundle.copy_file(&format!("process/{name}.txt"), &path, Path::new(&path));
        }
    }
    let home = process.map_or("self".to_owned(), |process| process.to_string());
    for name in NETWORK_FILES {
        let path = format!("/proc/{home}/net/{name}");
        bundle.copy_file(&format!("network/proc/{name}.txt"), &path, Path::new(&path));
    }
    let within =
        process.filter(|_| is_in_other_namespace(&home)).map(|_| format!("--net=/proc/{home}/ns/net"));
    for (name, words) in NAMESPACE_COMMANDS {
        match &within {
            Some(namespace) => {
                add_command_output(bundle, name, &[&["nsenter", namespace.as_str()], words].concat())
            }
            None => add_command_output(bundle, name, words),
        }
    }
    let unit = format!("carnet@{}.service", station.unwrap_or("*"));
    add_command_output(
        bundle,
        "log/journal.txt",
        &["journalctl", "--no-pager", "--quiet", "--lines", LOG_LINES, "--unit", &unit],
    );
}

/// Returns whether a process has a network namespace other than that of this program.
fn is_in_other_namespace(process: &str) -> bool {
    let space = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let (theirs, ours) = (space(process), space("self"));
    theirs.is_some() && theirs != ours
}

/// Returns the names of the files in a folder.
fn file_names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Runs a command, and adds its output to the bundle.
fn add_command_output(bundle: &mut SupportArchive, name: &str, words: &[&str]) {
    let line = words.join(" ");
    match command_output(words) {
        Ok(octets) => bundle.add_file(name, &line, octets),
        Err(why) => bundle.note_left_out(name, &format!("`{line}`: {why}")),
    }
}

/// Runs a command. Returns its output, or the reason for its failure.
fn command_output(words: &[&str]) -> Result<Vec<u8>, String> {
    let [program, arguments @ ..] = words else { return Err("no command".into()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.env("LC_ALL", "C");
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (done, finished) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut octets = Vec::new();
            let _ = stdout.read_to_end(&mut octets);
            let _ = done.send(octets);
        });
    }
    let octets = finished.recv_timeout(COMMAND_TIMEOUT);
    if octets.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    match octets {
        Err(_) => Err(format!("no end within {} s", COMMAND_TIMEOUT.as_secs())),
        Ok(octets) if status.success() => Ok(octets),
        Ok(_) => Err(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_gives_reason_for_a_failed_command() {
        assert_eq!(command_output(&["printf", "a b"]), Ok(b"a b".to_vec()));
        assert!(command_output(&["no-such-command"]).is_err_and(|why| why.contains("No such file")));
        assert_eq!(command_output(&["false"]), Err("exit status: 1".to_owned()));
    }
}
