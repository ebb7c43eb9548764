//! The carnet stations of a testbed: starts them, sends commands, and receives their events.
//!
//! The lab uses the program as an operator does: `carnet run`, `carnet show ... --json`, `carnet watch`,
//! `carnet handover`. Any network namespace can reach a station's UNIX socket by its path.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::clock;
use crate::process::{Daemon, in_node, output};

/// An event of a station: time of arrival (monotonic), node, content.
pub type Event = (u64, String, Value);

/// Events of all stations.
pub type Events = Arc<Mutex<Vec<Event>>>;

/// A station of the testbed.
#[derive(Debug)]
pub struct Station {
    /// Node of the station.
    pub node: String,
    /// Time of the start on the monotonic clock, in nanoseconds.
    pub started: u64,
    /// The carnet program.
    pub program: PathBuf,
    /// Path of the station's socket.
    pub socket: PathBuf,
    /// Whether the station is a mobile router or a mobile node.
    pub mobile_router: bool,
    /// Interface of IPv6 over GeoNetworking that the station creates.
    pub geonet_ipv6: Option<String>,
    /// Whether the station is an attacker whose messages no other station may accept.
    pub outsider: bool,
    /// Process number of the station.
    pub process: u32,
    watch: Option<Child>,
}

/// Settings in a station's config that the lab needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Path of the station's socket.
    pub socket: PathBuf,
    /// Whether the station is a mobile router or a mobile node.
    pub mobile_router: bool,
    /// Interface of the station's GeoNetworking; `None` if it has none.
    pub radio: Option<String>,
    /// Interface of IPv6 over GeoNetworking that the station creates.
    pub geonet_ipv6: Option<String>,
}

impl Settings {
    /// Reads the settings from a config file.
    pub fn read(config: &Path) -> anyhow::Result<Settings> {
        let text =
            std::fs::read_to_string(config).with_context(|| format!("cannot read {}", config.display()))?;
        Settings::parse(&text).with_context(|| config.display().to_string())
    }

    fn parse(text: &str) -> anyhow::Result<Settings> {
        let table: toml::Table = toml::from_str(text).context("no TOML")?;
        let key = |table_name: &str, key: &str| {
            table.get(table_name).and_then(|t| t.get(key)).and_then(|value| value.as_str()).map(str::to_owned)
        };
        let socket = match (key("station", "socket"), key("station", "name")) {
            (Some(socket), _) => socket.into(),
            (None, Some(name)) => Path::new("/run/carnet").join(format!("{name}.sock")),
            (None, None) => bail!("neither station.socket nor station.name"),
        };
        Ok(Settings {
            socket,
            mobile_router: ["mobile_router", "mobile_node"].iter().any(|role| table.contains_key(*role)),
            // A value like `udp:ADDRESS` names no interface.
            radio: key("geonet", "interface").filter(|name| !name.contains(':')),
            geonet_ipv6: key("geonet", "ipv6_interface"),
        })
    }
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
        let Settings { socket, mobile_router, geonet_ipv6, .. } = Settings::read(config)?;
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
            geonet_ipv6,
            outsider: false,
            process: daemon.process(),
            watch: None,
        };
        Ok((station, daemon))
    }

    /// Returns whether the station's socket accepts connections.
    pub fn is_ready(&self) -> bool {
        std::os::unix::net::UnixStream::connect(&self.socket).is_ok()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--socket").arg(&self.socket).stdin(Stdio::null());
        command
    }

    /// Starts `carnet watch`, and adds the station's events to `events`.
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

    /// Returns the processor time in seconds that the station has used, and its memory in KiB. `None` if the
    /// process has ended.
    pub fn usage(&self) -> Option<(f64, f64)> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.process)).ok();
        let status = read("status")?;
        let memory = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        let kib: f64 = memory.split_whitespace().next()?.parse().ok()?;
        // After the name in parentheses, words 12 and 13 are user and system time, in ticks of 10 ms
        // (proc(5)).
        let stat = read("stat")?;
        let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = words.get(11..13)?.iter().filter_map(|w| w.parse::<f64>().ok()).sum();
        Some((ticks / 100.0, kib))
    }

    /// Returns the output of `carnet show WHAT --json`.
    pub fn show(&self, what: &str) -> anyhow::Result<Value> {
        let text = output(&mut self.command(&["show", what, "--json"]))?;
        serde_json::from_str(&text)
            .with_context(|| format!("carnet show {what} --json printed no JSON: {text}"))
    }

    /// Returns whether the home agent has this number of bindings, all of them registered.
    pub fn registered(&self, bindings: usize) -> anyhow::Result<bool> {
        let shown = self.show("bindings")?;
        let list = shown.as_array().context("carnet show bindings --json printed no array")?;
        Ok(list.len() >= bindings && list.iter().all(|b| b["state"] == "registered"))
    }

    /// Returns the interface of the uplink that carries the traffic; `None` without an active uplink.
    pub fn active_uplink(&self) -> Option<String> {
        if !self.mobile_router {
            return None;
        }
        let shown = self.show("uplinks").ok()?;
        let active = shown.as_array()?.iter().find(|u| u["active"] == true)?;
        Some(active["interface"].as_str()?.to_string())
    }

    /// Runs another command of the program, and waits until it has ended.
    pub fn order(&self, words: &[String]) -> anyhow::Result<()> {
        output(&mut self.command(&words.iter().map(String::as_str).collect::<Vec<_>>()))?;
        Ok(())
    }

    /// Runs `carnet handover UPLINK`, for a policy or for all other packets.
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

/// Returns the kind of an event, such as `registered` or `handover`.
pub fn kind(event: &Value) -> &str {
    event["event"].as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_interfaces_of_geonetworking() {
        let text = "[station]\nname = \"car\"\n[geonet]\ninterface = \"wlan1\"\nipv6_interface = \"gn0\"\n";
        let settings = Settings::parse(text).expect("is good");
        assert_eq!(settings.socket, Path::new("/run/carnet/car.sock"));
        assert_eq!(
            (settings.radio.as_deref(), settings.geonet_ipv6.as_deref()),
            (Some("wlan1"), Some("gn0"))
        );
        let udp = Settings::parse(&text.replace("wlan1", "udp:[::1]:7")).expect("is good");
        assert_eq!((udp.radio, udp.mobile_router), (None, false));
        assert!(Settings::parse("[station]\n").is_err());
    }
}
