//! Isolates the testbed from the host by namespaces.
//!
//! The lab starts itself a second time under `unshare`, in new mount, network and process namespaces. Without
//! root it also takes a user namespace in which it is root. Inside, it mounts its own `/run` and `/proc`, so
//! that `ip netns add` and every socket and process stay inside. The inner lab is process 1 of its process
//! namespace. When the inner lab ends, for any reason, the kernel ends every program in the testbed. The
//! namespaces and their content vanish with the last program. Nothing is left on the host.
//!
//! The outer lab holds the other end of the inner lab's standard input. When the outer lab ends, even by
//! `kill -9`, that end closes and the inner lab stops. The connection is a socket, through which the inner
//! lab also sends requests that only the outer lab can execute ([`crate::quota`]).

use std::ffi::OsString;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{SigSet, Signal};

use crate::{clock, quota};

/// Whether the lab isolates the testbed as root or as another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum IsolationMode {
    /// As root.
    Root,
    /// As another user, in a user namespace.
    User,
}

impl IsolationMode {
    /// Returns the mode that fits the user of the lab.
    pub fn of_caller() -> Self {
        if nix::unistd::geteuid().is_root() { Self::Root } else { Self::User }
    }

    /// Returns a description of the mode.
    pub fn description(self) -> &'static str {
        match self {
            Self::Root => "as root",
            Self::User => "without root, in a user namespace",
        }
    }
}

/// Whether the lab has to stop, because the outer lab has ended or received a signal.
static STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Returns whether the lab has to stop.
pub fn has_to_stop() -> bool {
    STOP_REQUESTED.load(Ordering::Relaxed)
}

/// Error of work that ends because the lab has to stop.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Returns the signals that end a program.
fn termination_signals() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set
}

/// Exit status by which the inner lab asks the outer lab to run it again with three times the waiting time.
pub const EXIT_CODE_TO_RUN_AGAIN: u8 = 75;

/// Environment variable with the patience: a factor for the time that the lab waits for stations before
/// vehicles move.
const WAITING_FACTOR_VARIABLE: &str = "CARNET_LAB_PATIENCE";

/// Returns the patience: a factor for the time that the lab waits for stations before vehicles move.
pub fn waiting_time_factor() -> u64 {
    std::env::var(WAITING_FACTOR_VARIABLE)
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1)
        .clamp(1, MAX_WAITING_FACTOR)
}

/// Largest factor for waiting times. If stations are not ready in time even with this factor, the run gets no
/// verdict.
pub const MAX_WAITING_FACTOR: u64 = 9;

/// Calls `then`, in another thread, when a signal demands the end of the program. Only the outer lab calls
/// this, after it has started all its programs, because children inherit the blocked signals.
fn call_on_signal(then: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let set = termination_signals();
    set.thread_block().context("cannot block signals")?;
    std::thread::spawn(move || {
        let _ = set.wait();
        then();
    });
    Ok(())
}

/// Runs carnet-lab once more with the same arguments, in namespaces of its own. Returns its exit status.
pub fn run_isolated(mode: IsolationMode) -> anyhow::Result<ExitCode> {
    if mode == IsolationMode::User {
        check_user_namespace_works()?;
    }
    let own = std::env::current_exe().context("cannot find the lab's own executable")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    if mode == IsolationMode::User {
        command.args(["--user", "--map-root-user"]);
    }
    let word = if mode == IsolationMode::Root { "root" } else { "user" };
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    command.arg("--").arg(own).arg("--inside").arg(word).args(arguments);
    // The inner lab gets a process group of its own, so that Ctrl-C reaches only the outer lab. When this
    // pipe closes, the inner lab stops. A signal would not stop it: process 1 of a namespace ignores signals
    // that it does not handle.
    let (pipe, theirs) = UnixStream::pair().context("cannot make a pipe to the inner lab")?;
    command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
    let mut child = command.spawn().context("cannot start unshare (Debian package util-linux)")?;
    // Drop the command, so that only the inner lab has the other end of the pipe.
    drop(command);
    let requests = pipe.try_clone().context("cannot listen to the inner lab")?;
    call_on_signal(move || drop(pipe.shutdown(Shutdown::Both)))?;
    // Start the thread after the signals are blocked. Otherwise this thread would receive the signals, and
    // they would end the lab.
    let server = std::thread::spawn(move || quota::serve_inner_lab(requests));
    let status = child.wait().context("cannot wait for the inner lab")?;
    let _ = server.join();
    if status.code() == Some(EXIT_CODE_TO_RUN_AGAIN.into()) {
        // Unblock the signals, so that started programs do not inherit the block.
        termination_signals().thread_unblock().context("cannot unblock signals")?;
        let mut lab = Command::new(std::env::current_exe()?);
        lab.args(std::env::args_os().skip(1))
            .env(WAITING_FACTOR_VARIABLE, (waiting_time_factor() * 3).to_string());
        return Err(lab.exec()).context("cannot start the lab again");
    }
    Ok(ExitCode::from(status.code().map_or(1, |c| c as u8)))
}

fn check_user_namespace_works() -> anyhow::Result<()> {
    let probe = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--net", "--", "mount", "-t", "tmpfs", "lab", "/mnt"])
        .output()
        .context("cannot start unshare (Debian package util-linux)")?;
    if probe.status.success() {
        return Ok(());
    }
    bail!(
        "this user may not make namespaces ({}).\n\
         Run the lab as root, or allow user namespaces:\n\
         sysctl kernel.unprivileged_userns_clone=1 (Debian) or \
         kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)",
        String::from_utf8_lossy(&probe.stderr).trim()
    );
}

/// Mounts the inner lab's own `/proc` and `/run`, and starts a thread that stops the lab when the outer lab
/// ends.
pub fn start_inner_lab() -> anyhow::Result<()> {
    std::thread::spawn(|| {
        std::io::stdin().lines().map_while(Result::ok).for_each(quota::handle_answer);
        STOP_REQUESTED.store(true, Ordering::Relaxed);
        // Give the lab 15 s to end after the outer lab has ended; then exit.
        clock::sleep(15 * clock::SECOND);
        std::process::exit(130);
    });
    let none: Option<&str> = None;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)
        .context("cannot mount /proc for the testbed")?;
    mount(Some("carnet-lab"), "/run", Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))
        .context("cannot mount a /run of its own for the testbed")?;
    for folder in ["/run/netns", "/run/carnet", RUN_DIRECTORY] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
    }
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map_err(|error| anyhow::anyhow!(explain_missing_tun(&error)))?;
    Ok(())
}

/// Returns an error message for a missing `/dev/net/tun` that says how to create it.
fn explain_missing_tun(error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "this user may not: run the lab as root, or as root allow everybody, as distributions do \
             (chmod 0666 /dev/net/tun)"
        }
        std::io::ErrorKind::NotFound => "as root: modprobe tun",
        _ => "as root, see whether the kernel has it: modprobe tun",
    };
    format!(
        "cannot open /dev/net/tun for reading and writing, which carnet needs for its interfaces ({error}); \
         {remedy}"
    )
}

/// Folder of the lab's working files, inside the testbed.
pub const RUN_DIRECTORY: &str = "/run/carnet-lab";

/// Fails if a path is below `/run`: the testbed has a `/run` of its own, which hides it.
pub fn check_not_below_run_directory(what: &str, path: &Path) -> anyhow::Result<()> {
    if path.starts_with("/run") {
        bail!(
            "{what} {} is below /run, which the testbed replaces by its own; use another folder",
            path.display()
        );
    }
    Ok(())
}

/// Returns the file that contains the path of the socket of a node's station.
fn socket_path_file(node: &str) -> String {
    format!("{RUN_DIRECTORY}/sockets/{node}")
}

/// Writes the path of the socket of a node's station into its file, for [`open_node_shell`].
pub fn write_control_socket_path(node: &str, socket: &Path) -> anyhow::Result<()> {
    let file = socket_path_file(node);
    std::fs::create_dir_all(format!("{RUN_DIRECTORY}/sockets"))?;
    std::fs::write(&file, socket.as_os_str().as_encoded_bytes())
        .with_context(|| format!("cannot write {file}"))
}

/// Opens a shell in a node of a running lab, in which `carnet` connects to the station of that node. Returns
/// the shell's exit status.
pub fn open_node_shell(scenario: &str, node: &str, command: &[String]) -> anyhow::Result<ExitCode> {
    let Some(pid) = find_inner_lab(scenario) else {
        bail!(
            "no running lab has the scenario {scenario:?}; start it with: carnet-lab run {scenario} --hold"
        );
    };
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &pid.to_string(), "--mount", "--pid"]);
    if IsolationMode::of_caller() == IsolationMode::User {
        enter.args(["--user", "--preserve-credentials"]);
    }
    enter.args(["--", "nsenter", &format!("--net=/run/netns/{node}"), "--"]);
    if let Ok(socket) = std::fs::read_to_string(format!("/proc/{pid}/root{}", socket_path_file(node))) {
        enter.env("CARNET_SOCKET", socket);
    }
    if command.is_empty() {
        enter.arg(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()));
    } else {
        enter.args(command);
    }
    let status = enter.status().context("cannot start nsenter (Debian package util-linux)")?;
    Ok(ExitCode::from(status.code().map_or(1, |c| c as u8)))
}

/// Returns the process number, in the host's namespace, of the inner lab that runs a scenario; `None` if no
/// lab runs it.
fn find_inner_lab(scenario: &str) -> Option<u32> {
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&str> = line.split(|b| *b == 0).filter_map(|w| std::str::from_utf8(w).ok()).collect();
        let inner = Path::new(words.first()?).file_name()? == "carnet-lab"
            && words.get(1) == Some(&"--inside")
            && words.get(3) == Some(&"run")
            && words[4..].iter().any(|word| Path::new(word).file_name() == Path::new(scenario).file_name());
        inner.then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::explain_missing_tun;

    #[test]
    fn error_for_unusable_tun_device_names_the_remedy() {
        let told = explain_missing_tun(&Error::from(ErrorKind::PermissionDenied));
        assert!(told.contains("chmod 0666 /dev/net/tun") && told.contains("as root"), "{told}");
        assert!(explain_missing_tun(&Error::from(ErrorKind::NotFound)).ends_with("modprobe tun"));
    }
}
