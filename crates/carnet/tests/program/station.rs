//! A running station, used as an operator would use it: config file, signals, `carnet show`.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::hosts::{Host, output_text, seconds, wait_for};

/// The program under test.
pub const CARNET_PROGRAM: &str = env!("CARGO_BIN_EXE_carnet");

/// Environment variable with the `dataplane.path` for every station whose config has none.
const PATH_VARIABLE: &str = "CARNET_TEST_PATH";

/// Returns the config with the data path that [`PATH_VARIABLE`] names. A config with its own `[dataplane]`
/// stays unchanged.
pub fn config_with_tested_path(config: &str) -> Cow<'_, str> {
    match std::env::var(PATH_VARIABLE) {
        Ok(path) if !config.contains("[dataplane]") => {
            format!("{config}\n[dataplane]\npath = '{path}'\n").into()
        }
        _ => config.into(),
    }
}

/// How a station has ended.
pub struct StationEnd {
    pub status: ExitStatus,
    pub duration: Duration,
}

/// Runs the carnet program to its end in the namespace of the test, outside of all hosts.
pub fn run_carnet(arguments: &[&str]) -> Output {
    let mut command = Command::new(CARNET_PROGRAM);
    command.args(arguments).env_remove("CARNET_SOCKET").env_remove("RUST_LOG").env_remove("NOTIFY_SOCKET");
    command.output().expect("the program")
}

/// A station that the test has started.
pub struct Station {
    child: Child,
    pub config_file: PathBuf,
    pub control_socket: PathBuf,
    log_file: PathBuf,
}

impl Station {
    /// Starts a station and waits until it is ready. `config` must have a line `socket = '...'` with a path
    /// that ends in `.sock`. The config file and the log are beside the socket.
    pub fn start(host: &Host, config: &str) -> Station {
        Station::start_wrapped(host, config, &[], CARNET_PROGRAM)
    }

    /// Starts another program file as a station, with `wrapper` before it on the command line.
    pub fn start_wrapped(host: &Host, config: &str, wrapper: &[&str], program: &str) -> Station {
        let mut station = Station::spawn_without_wait(host, config, wrapper, program);
        wait_for("the station's socket answers", seconds(20), || {
            if let Some(status) = station.child.try_wait().expect("the child") {
                panic!("the station ended with {status}:\n{}", station.log_text());
            }
            station.run_command(&["status"]).status.success().then_some(())
        });
        station.wait_for_fast_path();
        station
    }

    /// Waits until the fast path that the config demands is loaded.
    pub fn wait_for_fast_path(&self) {
        wait_for("the fast path is loaded", seconds(20), || {
            let status = self.show_json("status");
            let loading = [&status["dataplane_loading"], &status["geonet"]["path_loading"]];
            loading.iter().all(|it| it.is_null()).then_some(())
        });
    }

    /// Starts a station and does not wait until it is ready.
    pub fn spawn_without_wait(host: &Host, config: &str, wrapper: &[&str], program: &str) -> Station {
        let socket = socket_in_config(config);
        let (file, log) = (socket.with_extension("toml"), socket.with_extension("log"));
        fs::write(&file, config_with_tested_path(config).as_bytes()).expect("a config file");
        let output = OpenOptions::new().create(true).append(true).open(&log).expect("a log file");
        let path = file.to_str().expect("a path").to_owned();
        let words: Vec<String> =
            wrapper.iter().copied().chain([program, "run", "--config", &path]).map(str::to_owned).collect();
        let child = host.spawn_program(&words, move |command| {
            let error: File = output;
            command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(error);
            command.env_remove("RUST_LOG").env_remove("JOURNAL_STREAM").env_remove("NOTIFY_SOCKET");
        });
        Station { child, config_file: file, control_socket: socket, log_file: log }
    }

    /// Returns what the station has written to its log so far, in all its runs.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log_file).unwrap_or_default()
    }

    /// Runs a carnet command against the station's API.
    pub fn run_command(&self, arguments: &[&str]) -> Output {
        let socket = self.control_socket.to_str().expect("a path");
        run_carnet(&[arguments, &["--socket", socket]].concat())
    }

    /// Returns the answer of `carnet show WHAT --json`, or of `carnet status --json`.
    pub fn show_json(&self, what: &str) -> Value {
        let arguments =
            if what == "status" { vec!["status", "--json"] } else { vec!["show", what, "--json"] };
        let output = self.run_command(&arguments);
        assert!(output.status.success(), "{what}: {}\n{}", output_text(&output), self.log_text());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Returns the value of a counter; 0 while the counter does not exist.
    pub fn counter(&self, name: &str) -> u64 {
        self.show_json("counters").get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the sum of all counters whose name begins with `beginning`.
    pub fn sum_of_counters(&self, beginning: &str) -> u64 {
        let all = self.show_json("counters");
        let all = all.as_object().expect("an object");
        all.iter().filter(|(name, _)| name.starts_with(beginning)).filter_map(|(_, v)| v.as_u64()).sum()
    }

    /// Returns the mobile router's state, such as `registered`.
    pub fn mobile_router_state(&self) -> String {
        let status = self.show_json("status");
        status["mobile_router"]["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the home agent's bindings: home address, care-of address, prefixes.
    pub fn bindings(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let bindings = self.show_json("bindings");
        let bindings = bindings.as_array().expect("an array");
        bindings
            .iter()
            .map(|b| (text(&b["home_address"]), text(&b["care_of_address"]), b["prefixes"].to_string()))
            .collect()
    }

    /// Waits until the mobile router is registered.
    pub fn wait_until_registered(&self) {
        wait_for("the mobile router is registered", seconds(20), || {
            (self.mobile_router_state() == "registered").then_some(())
        });
    }

    /// Returns the process ID of the station.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }

    /// Returns the resident memory of the station in kB.
    pub fn resident_memory_kb(&self) -> i64 {
        self.memory_in_kb("VmRSS:")
    }

    /// Returns the resident memory in kB without the pages of the program's file, which the kernel can drop
    /// and read again at any time.
    pub fn allocated_memory_kb(&self) -> i64 {
        self.memory_in_kb("RssAnon:")
    }

    fn memory_in_kb(&self, field: &str) -> i64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a living process");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect(field);
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// Returns whether the station still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child").is_none()
    }

    pub fn send_signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("a living process");
    }

    /// Sends a signal to the station and waits until it has ended.
    pub fn end_by_signal(&mut self, signal: Signal) -> StationEnd {
        let start = Instant::now();
        self.send_signal(signal);
        self.wait_for_end(start)
    }

    /// Waits until the station has ended.
    pub fn wait_for_end(&mut self, start: Instant) -> StationEnd {
        let status = wait_for("the station ends", seconds(20), || self.child.try_wait().expect("the child"));
        StationEnd { status, duration: start.elapsed() }
    }

    /// Ends the station by SIGTERM; the station must end successfully.
    pub fn terminate(&mut self) {
        let end = self.end_by_signal(Signal::SIGTERM);
        assert!(end.status.success(), "{}\n{}", end.status, self.log_text());
    }

    /// Writes another config into the file and makes the station read it.
    pub fn reload(&self, config: &str) {
        let before = self.reload_count();
        fs::write(&self.config_file, config_with_tested_path(config).as_bytes()).expect("a config file");
        self.send_signal(Signal::SIGHUP);
        wait_for("the config is read again", seconds(10), || (self.reload_count() > before).then_some(()));
    }

    fn reload_count(&self) -> usize {
        let log = self.log_text();
        log.matches("applied the changed config").count()
            + log
                .matches(
                    "cannot apply the changed \
            config",
                )
                .count()
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log_text();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(30)..].join("\n");
            eprintln!("--- end of the log of {}\n{last}", self.config_file.display());
        }
    }
}

fn socket_in_config(config: &str) -> PathBuf {
    let value = config.split("socket = '").nth(1).and_then(|rest| rest.split('\'').next());
    Path::new(value.expect("a socket in the config")).to_owned()
}
