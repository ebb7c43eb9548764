//! Runs programs in nodes.
//!
//! The lab starts a program in a node's network namespace by `nsenter`. The program has a separate process
//! group, so that Ctrl-C at the terminal reaches only the lab. Its output goes to a log file per program. The
//! lab shows the last lines if the program ends too early.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock::{self, MILLISECOND, SECOND};
use crate::isolate::{Interrupted, has_to_stop};
use crate::tools;

/// Returns a command that will run in a node.
pub fn command_in_node(node: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(tools::path_of_program("nsenter"));
    command.arg(format!("--net=/run/netns/{node}")).arg("--").arg(program);
    command.process_group(0);
    command.stdin(Stdio::null());
    command
}

/// Runs a command until it ends and returns its output. If the command fails, the error contains its output.
pub fn run_for_output(command: &mut Command) -> anyhow::Result<String> {
    let shown = command_line(command);
    let result = command.output().with_context(|| format!("cannot start {shown}"))?;
    if !result.status.success() {
        let said = String::from_utf8_lossy(&result.stderr);
        bail!("{shown}: {} ({})", said.trim(), result.status);
    }
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

/// Returns a command as a user would type it, without the `nsenter` part.
fn command_line(command: &Command) -> String {
    let mut words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|w| w.to_string_lossy().into())
        .collect();
    if let Some(at) = words.iter().position(|w| w == "--").filter(|_| words[0].ends_with("nsenter")) {
        let node = words[1].trim_start_matches("--net=/run/netns/").to_string();
        words.drain(..=at);
        return format!("{} (in node {node})", words.join(" "));
    }
    words.join(" ")
}

/// A program that runs in the background until the lab ends it.
#[derive(Debug)]
pub struct BackgroundProgram {
    /// Name of the program, for example `carnet in mr`.
    pub program_name: String,
    /// Log file of its output.
    pub log_file: PathBuf,
    child: Child,
}

impl BackgroundProgram {
    /// Starts the program with standard output and standard error in `log`.
    pub fn start(what: &str, log: &Path, command: &mut Command) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        let child = command
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {what}"))?;
        Ok(Self { program_name: what.into(), log_file: log.into(), child })
    }

    /// Returns the process number of the program.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process number of the program.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status of the program; `None` while it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Fails if the program has ended. The error contains the last lines of the log.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        self.exit_status().map_or(Ok(()), |status| Err(self.early_end_error(status)))
    }

    /// Fails if the program has ended with an error. A probe may end without an error, because it ends after
    /// the planned length of the timetable. On a busy machine the timetable may take longer.
    pub fn check_not_failed(&mut self) -> anyhow::Result<()> {
        let failed = self.exit_status().filter(|status| !status.success());
        failed.map_or(Ok(()), |status| Err(self.early_end_error(status)))
    }

    fn early_end_error(&self, status: ExitStatus) -> anyhow::Error {
        anyhow!("{} ended ({status}); its last output:\n{}", self.program_name, self.log_tail())
    }

    /// Returns the last lines of the program's log, indented.
    pub fn log_tail(&self) -> String {
        last_log_lines(&self.log_file)
    }

    /// Sends a signal to the program.
    pub fn send_signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// Waits for the end of the program for at most `limit` nanoseconds, then kills it. Returns `None` if it
    /// had to be killed.
    pub fn wait_at_most(&mut self, limit: u64) -> Option<ExitStatus> {
        let until = clock::monotonic_now() + limit;
        while clock::monotonic_now() < until {
            if let Some(status) = self.exit_status() {
                return Some(status);
            }
            clock::sleep(20 * MILLISECOND);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }

    /// Sends `signal` to make the program end, and waits for at most 5 s. Returns `None` if the program had
    /// to be killed.
    pub fn stop(&mut self, signal: Signal) -> Option<ExitStatus> {
        self.send_signal(signal);
        self.wait_at_most(5 * SECOND)
    }
}

impl Drop for BackgroundProgram {
    fn drop(&mut self) {
        if self.exit_status().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns the last lines of a log, indented.
pub fn last_log_lines(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return "  (nothing)".into();
    }
    let from = lines.len().saturating_sub(15);
    lines[from..].iter().map(|l| format!("  | {l}")).collect::<Vec<_>>().join("\n")
}

/// Waits for a condition. Fails if a daemon ends meanwhile, or after the time limit; the error then names the
/// condition.
pub fn wait_until(
    what: &str,
    seconds: u64,
    daemons: &mut [BackgroundProgram],
    mut condition: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let until = clock::monotonic_now() + seconds * SECOND;
    loop {
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        for daemon in daemons.iter_mut() {
            daemon.check_running()?;
        }
        if condition()? {
            return Ok(());
        }
        if clock::monotonic_now() > until {
            let logs: Vec<String> = daemons
                .iter()
                .map(|d| format!("last output of {}:\n{}", d.program_name, d.log_tail()))
                .collect();
            bail!("waited {seconds} s in vain for {what}\n{}", logs.join("\n"));
        }
        clock::sleep(50 * MILLISECOND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a shell with this command and waits until it has ended.
    fn ended_daemon(command: &str) -> BackgroundProgram {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!("carnet-lab-process-{}-{number}", std::process::id()));
        let mut daemon = BackgroundProgram::start("a shell", &log, Command::new("sh").args(["-c", command]))
            .expect("there is a shell");
        assert!(daemon.wait_at_most(60 * SECOND).is_some());
        daemon
    }

    #[test]
    fn program_may_end_successfully_if_permitted() {
        let mut done = ended_daemon("true");
        done.check_not_failed().expect("it has done its work");
        let error = done.check_running().expect_err("it should still be running").to_string();
        assert!(error.starts_with("a shell ended (exit status: 0)"), "{error}");
        std::fs::remove_file(&done.log_file).expect("its log");
    }

    #[test]
    fn failed_program_is_reported_with_last_output() {
        let mut failed = ended_daemon("echo no way; exit 3");
        for error in [failed.check_running(), failed.check_not_failed()] {
            let error = error.expect_err("it failed").to_string();
            assert!(error.contains("exit status: 3") && error.contains("no way"), "{error}");
        }
        std::fs::remove_file(&failed.log_file).expect("its log");
    }
}
