//! The carnet stations of a testbed: start them, ask them, listen to their events.
//!
//! The lab uses the program as any operator does: `carnet run`, `carnet show ... --json`, `carnet watch`,
//! `carnet handover`. UNIX sockets are reached by path, whatever the network namespace.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::clock;
use crate::process::{Daemon, in_node, output};

/// An event of a station: when it came (monotonic), from which node, and what.
pub type Event = (u64, String, Value);

/// Where the events of all stations go.
pub type Events = Arc<Mutex<Vec<Event>>>;

/// A station.
#[derive(Debug)]
pub struct Station {
    /// Node that it runs in.
    pub node: String,
    /// When it was started.
    pub started: u64,
    /// The carnet program.
    pub program: PathBuf,
    /// Its socket.
    pub socket: PathBuf,
    /// Whether it is a mobile router, or a mobile node.
    pub mobile_router: bool,
    /// Nobody shall believe it.
    pub outsider: bool,
    /// Its process.
    pub process: u32,
    watch: Option<Child>,
}

/// The socket of a station with this config, and whether it is a mobile router or node.
fn socket_of(config: &Path) -> anyhow::Result<(PathBuf, bool)> {
    let text =
        std::fs::read_to_string(config).with_context(|| format!("cannot read {}", config.display()))?;
    let table: toml::Table =
        toml::from_str(&text).with_context(|| format!("{} is no TOML", config.display()))?;
    let key = |key: &str| table.get("station").and_then(|s| s.get(key)).and_then(|s| s.as_str());
    let mobile_router = ["mobile_router", "mobile_node"].iter().any(|role| table.contains_key(*role));
    match (key("socket"), key("name")) {
        (Some(socket), _) => Ok((socket.into(), mobile_router)),
        (None, Some(name)) => Ok((Path::new("/run/carnet").join(format!("{name}.sock")), mobile_router)),
        (None, None) => bail!("{} has neither station.socket nor station.name", config.display()),
    }
}

/// Whether a station with this config is a mobile router, or a mobile node.
pub fn is_mobile_router(config: &Path) -> anyhow::Result<bool> {
    Ok(socket_of(config)?.1)
}

impl Station {
    /// Starts `carnet run` in a node. The program's output goes to `log`.
    pub fn start(
        program: &Path,
        node: &str,
        config: &Path,
        verbose: bool,
        log: &Path,
    ) -> anyhow::Result<(Self, Daemon)> {
        let (socket, mobile_router) = socket_of(config)?;
        let mut command = in_node(node, program);
        command.arg("run").arg("--config").arg(config).current_dir(crate::isolate::RUN);
        if verbose {
            command.env("RUST_LOG", "debug");
        }
        let started = clock::monotonic();
        let daemon = Daemon::start(&format!("carnet in node {node}"), log, &mut command)?;
        let station = Self {
            node: node.into(),
            started,
            program: program.into(),
            socket,
            mobile_router,
            outsider: false,
            process: daemon.process(),
            watch: None,
        };
        Ok((station, daemon))
    }

    /// True once its socket accepts.
    pub fn is_ready(&self) -> bool {
        std::os::unix::net::UnixStream::connect(&self.socket).is_ok()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--socket").arg(&self.socket).stdin(Stdio::null());
        command
    }

    /// Follows its events.
    pub fn watch(&mut self, events: &Events) -> anyhow::Result<()> {
        let mut child = self
            .command(&["watch", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start carnet watch")?;
        let (stream, node, events) = (child.stdout.take(), self.node.clone(), events.clone());
        self.watch = Some(child);
        std::thread::spawn(move || {
            for line in BufReader::new(stream.into_iter().next()?).lines() {
                let at = clock::monotonic();
                if let Ok(value) = serde_json::from_str(&line.ok()?) {
                    events.lock().unwrap_or_else(PoisonError::into_inner).push((at, node.clone(), value));
                }
            }
            Some(())
        });
        Ok(())
    }

    /// Processor time that it has used, and memory that it has in use: seconds and KiB.
    pub fn usage(&self) -> Option<(f64, f64)> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.process)).ok();
        let status = read("status")?;
        let memory = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        let kib: f64 = memory.split_whitespace().next()?.parse().ok()?;
        // proc(5): after the name in parentheses, user and system time are the 12th and 13th word, in ticks of
        // 10 ms.
        let stat = read("stat")?;
        let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = words.get(11..13)?.iter().filter_map(|w| w.parse::<f64>().ok()).sum();
        Some((ticks / 100.0, kib))
    }

    /// What `carnet show WHAT --json` tells.
    pub fn show(&self, what: &str) -> anyhow::Result<Value> {
        let text = output(&mut self.command(&["show", what, "--json"]))?;
        serde_json::from_str(&text)
            .with_context(|| format!("carnet show {what} --json printed no JSON: {text}"))
    }

    /// True when it holds this number of bindings, all registered.
    pub fn registered(&self, bindings: usize) -> anyhow::Result<bool> {
        let shown = self.show("bindings")?;
        let list = shown.as_array().context("carnet show bindings --json printed no array")?;
        Ok(list.len() >= bindings && list.iter().all(|b| b["state"] == "registered"))
    }

    /// The uplink that carries the traffic.
    pub fn active_uplink(&self) -> Option<String> {
        if !self.mobile_router {
            return None;
        }
        let shown = self.show("uplinks").ok()?;
        let active = shown.as_array()?.iter().find(|u| u["active"] == true)?;
        Some(active["interface"].as_str()?.to_string())
    }

    /// Another command of the program; waits until it has ended.
    pub fn order(&self, words: &[String]) -> anyhow::Result<()> {
        output(&mut self.command(&words.iter().map(String::as_str).collect::<Vec<_>>()))?;
        Ok(())
    }

    /// `carnet handover UPLINK`, of a policy or of everything else.
    pub fn handover(&self, uplink: &str, policy: Option<&str>) -> anyhow::Result<()> {
        let mut command = self.command(&["handover", uplink]);
        command.args(policy.iter().flat_map(|name| ["--policy", name]));
        output(&mut command)?;
        Ok(())
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if let Some(child) = &mut self.watch {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The kind of an event: `registered`, `handover` and so on.
pub fn kind(event: &Value) -> &str {
    event["event"].as_str().unwrap_or("")
}
