//! A running station, used as an operator would use it: config file, signals, `carnet show`.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::hosts::{Host, said, seconds, wait_for};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_carnet");

/// Environment variable with the `dataplane.path` for every station whose config has none.
const PATH: &str = "CARNET_TEST_PATH";

/// Returns the config with the data path that the environment variable names. A config with its own
/// `[dataplane]` stays unchanged.
pub fn with_path(config: &str) -> Cow<'_, str> {
    match std::env::var(PATH) {
        Ok(path) if !config.contains("[dataplane]") => {
            format!("{config}\n[dataplane]\npath = '{path}'\n").into()
        }
        _ => config.into(),
    }
}

/// How a station has ended.
pub struct End {
    pub status: ExitStatus,
    pub took: Duration,
}

/// Runs the carnet program to its end in the namespace of the test, outside of all hosts.
pub fn carnet(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_remove("CARNET_SOCKET").env_remove("RUST_LOG").env_remove("NOTIFY_SOCKET");
    command.output().expect("the program")
}

/// A station that the test has started.
pub struct Station {
    child: Child,
    pub config: PathBuf,
    pub socket: PathBuf,
    log: PathBuf,
}

impl Station {
    /// Starts a station and waits until it is ready. `config` has a line `socket = '...'` with a path that
    /// ends in `.sock`. The config file and the log are beside the socket.
    pub fn start(host: &Host, config: &str) -> Station {
        Station::start_as(host, config, &[], PROGRAM)
    }

    /// Starts another program file as a station, with `wrapper` before it on the command line.
    pub fn start_as(host: &Host, config: &str, wrapper: &[&str], program: &str) -> Station {
        let mut station = Station::spawn(host, config, wrapper, program);
        wait_for("the station's socket answers", seconds(20), || {
            if let Some(status) = station.child.try_wait().expect("the child") {
                panic!("the station ended with {status}:\n{}", station.log());
            }
            station.ask(&["status"]).status.success().then_some(())
        });
        station.accelerated();
        station
    }

    /// Waits until the fast path that the config demands is loaded.
    pub fn accelerated(&self) {
        wait_for("the fast path is loaded", seconds(20), || {
            let status = self.show("status");
            let loading = [&status["dataplane_loading"], &status["geonet"]["path_loading"]];
            loading.iter().all(|it| it.is_null()).then_some(())
        });
    }

    /// Starts a station and does not wait until it is ready.
    pub fn spawn(host: &Host, config: &str, wrapper: &[&str], program: &str) -> Station {
        let socket = socket_of(config);
        let (file, log) = (socket.with_extension("toml"), socket.with_extension("log"));
        fs::write(&file, with_path(config).as_bytes()).expect("a config file");
        let output = OpenOptions::new().create(true).append(true).open(&log).expect("a log file");
        let path = file.to_str().expect("a path").to_owned();
        let words: Vec<String> =
            wrapper.iter().copied().chain([program, "run", "--config", &path]).map(str::to_owned).collect();
        let child = host.spawn(&words, move |command| {
            let error: File = output;
            command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(error);
            command.env_remove("RUST_LOG").env_remove("JOURNAL_STREAM").env_remove("NOTIFY_SOCKET");
        });
        Station { child, config: file, socket, log }
    }

    /// Returns the log of the station so far, of all its runs.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Runs a carnet command against the station's API.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        let socket = self.socket.to_str().expect("a path");
        carnet(&[arguments, &["--socket", socket]].concat())
    }

    /// Returns the answer of `carnet show WHAT --json`, or of `carnet status --json`.
    pub fn show(&self, what: &str) -> Value {
        let arguments =
            if what == "status" { vec!["status", "--json"] } else { vec!["show", what, "--json"] };
        let output = self.ask(&arguments);
        assert!(output.status.success(), "{what}: {}\n{}", said(&output), self.log());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Returns the value of a counter; 0 while the counter does not exist.
    pub fn counter(&self, name: &str) -> u64 {
        self.show("counters").get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the sum of all counters whose name begins with `beginning`.
    pub fn counters(&self, beginning: &str) -> u64 {
        let all = self.show("counters");
        let all = all.as_object().expect("an object");
        all.iter().filter(|(name, _)| name.starts_with(beginning)).filter_map(|(_, v)| v.as_u64()).sum()
    }

    /// Returns the mobile router's state, such as `registered`.
    pub fn state(&self) -> String {
        let status = self.show("status");
        status["mobile_router"]["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the home agent's bindings: home address, care-of address, prefixes.
    pub fn bindings(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let bindings = self.show("bindings");
        let bindings = bindings.as_array().expect("an array");
        bindings
            .iter()
            .map(|b| (text(&b["home_address"]), text(&b["care_of_address"]), b["prefixes"].to_string()))
            .collect()
    }

    /// Waits until the mobile router is registered.
    pub fn registered(&self) {
        wait_for("the mobile router is registered", seconds(20), || {
            (self.state() == "registered").then_some(())
        });
    }

    /// Returns the process ID of the station.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }

    /// Returns the resident memory of the station in kB.
    pub fn resident(&self) -> i64 {
        self.memory("VmRSS:")
    }

    /// Returns the resident memory in kB without the pages of the program's file, which the kernel can drop
    /// and read again at any time.
    pub fn allocated(&self) -> i64 {
        self.memory("RssAnon:")
    }

    fn memory(&self, field: &str) -> i64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a living process");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect(field);
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// Returns whether the station still runs.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().expect("the child").is_none()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("a living process");
    }

    /// Sends a signal to the station and waits until it has ended.
    pub fn end_by(&mut self, signal: Signal) -> End {
        let start = Instant::now();
        self.signal(signal);
        self.wait(start)
    }

    /// Waits until the station has ended.
    pub fn wait(&mut self, start: Instant) -> End {
        let status = wait_for("the station ends", seconds(20), || self.child.try_wait().expect("the child"));
        End { status, took: start.elapsed() }
    }

    /// Ends the station by SIGTERM; the station must end successfully.
    pub fn terminate(&mut self) {
        let end = self.end_by(Signal::SIGTERM);
        assert!(end.status.success(), "{}\n{}", end.status, self.log());
    }

    /// Writes another config into the file and makes the station read it.
    pub fn reload(&self, config: &str) {
        let before = self.reloads();
        fs::write(&self.config, with_path(config).as_bytes()).expect("a config file");
        self.signal(Signal::SIGHUP);
        wait_for("the config is read again", seconds(10), || (self.reloads() > before).then_some(()));
    }

    fn reloads(&self) -> usize {
        let log = self.log();
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
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(30)..].join("\n");
            eprintln!("--- end of the log of {}\n{last}", self.config.display());
        }
    }
}

fn socket_of(config: &str) -> PathBuf {
    let value = config.split("socket = '").nth(1).and_then(|rest| rest.split('\'').next());
    Path::new(value.expect("a socket in the config")).to_owned()
}
