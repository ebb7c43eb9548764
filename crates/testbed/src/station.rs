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
use crate::process::{BackgroundProgram, command_in_node, run_for_output};

/// An event of a station: time of arrival (monotonic), node, content.
pub type StationEvent = (u64, String, Value);

/// Events of all stations.
pub type SharedEvents = Arc<Mutex<Vec<StationEvent>>>;

/// A station of the testbed.
#[derive(Debug)]
pub struct Station {
    /// Node of the station.
    pub node: String,
    /// Time of the start on the monotonic clock, in nanoseconds.
    pub started_at: u64,
    /// The carnet program.
    pub program_path: PathBuf,
    /// Path of the station's socket.
    pub control_socket: PathBuf,
    /// Whether the station is a mobile router or a mobile node.
    pub is_mobile_router: bool,
    /// Interface of IPv6 over GeoNetworking that the station creates.
    pub geonet_interface: Option<String>,
    /// Whether the station is an attacker whose messages no other station may accept.
    pub is_outsider: bool,
    /// Process number of the station.
    pub process_id: u32,
    event_watcher: Option<Child>,
}

/// Settings in a station's config that the lab needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StationSettings {
    /// Path of the station's socket.
    pub control_socket: PathBuf,
    /// Whether the station is a mobile router or a mobile node.
    pub is_mobile_router: bool,
    /// Interface of the station's GeoNetworking; `None` if it has none.
    pub radio_interface: Option<String>,
    /// Interface of IPv6 over GeoNetworking that the station creates.
    pub geonet_interface: Option<String>,
}

impl StationSettings {
    /// Reads the settings from a config file.
    pub fn read_settings(config: &Path) -> anyhow::Result<StationSettings> {
        let text =
            std::fs::read_to_string(config).with_context(|| format!("cannot read {}", config.display()))?;
        StationSettings::parse_settings(&text).with_context(|| config.display().to_string())
    }

    fn parse_settings(text: &str) -> anyhow::Result<StationSettings> {
        let table: toml::Table = toml::from_str(text).context("expected a config in TOML")?;
        let key = |table_name: &str, key: &str| {
            table.get(table_name).and_then(|t| t.get(key)).and_then(|value| value.as_str()).map(str::to_owned)
        };
        let socket = match (key("station", "socket"), key("station", "name")) {
            (Some(socket), _) => socket.into(),
            (None, Some(name)) => Path::new("/run/carnet").join(format!("{name}.sock")),
            (None, None) => bail!("expected station.socket or station.name in the config, found neither"),
        };
        Ok(StationSettings {
            control_socket: socket,
            is_mobile_router: ["mobile_router", "mobile_node"].iter().any(|role| table.contains_key(*role)),
            // A value like `udp:ADDRESS` names no interface.
            radio_interface: key("geonet", "interface").filter(|name| !name.contains(':')),
            geonet_interface: key("geonet", "ipv6_interface"),
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
    ) -> anyhow::Result<(Self, BackgroundProgram)> {
        let StationSettings {
            control_socket: socket,
            is_mobile_router: mobile_router,
            geonet_interface: geonet_ipv6,
            ..
        } = StationSettings::read_settings(config)?;
        let mut command = command_in_node(node, program);
        command.arg("run").arg("--config").arg(config).current_dir(crate::isolate::RUN_DIRECTORY);
        if verbose {
            command.env("RUST_LOG", "debug");
        }
        let started = clock::monotonic_now();
        let daemon = BackgroundProgram::start(&format!("carnet in node {node}"), log, &mut command)?;
        let station = Self {
            node: node.into(),
            started_at: started,
            program_path: program.into(),
            control_socket: socket,
            is_mobile_router: mobile_router,
            geonet_interface: geonet_ipv6,
            is_outsider: false,
            process_id: daemon.process(),
            event_watcher: None,
        };
        Ok((station, daemon))
    }

    /// Returns whether the station's socket accepts connections.
    pub fn is_ready(&self) -> bool {
        std::os::unix::net::UnixStream::connect(&self.control_socket).is_ok()
    }

    fn client_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program_path);
        command.args(words).arg("--socket").arg(&self.control_socket).stdin(Stdio::null());
        command
    }

    /// Starts `carnet watch`, and adds the station's events to `events`.
    pub fn watch_events(&mut self, events: &SharedEvents) -> anyhow::Result<()> {
        let mut child = self
            .client_command(&["watch", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start carnet watch")?;
        let (stream, node, events) = (child.stdout.take(), self.node.clone(), events.clone());
        self.event_watcher = Some(child);
        std::thread::spawn(move || {
            for line in BufReader::new(stream.into_iter().next()?).lines() {
                let at = clock::monotonic_now();
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
    pub fn processor_time_and_memory(&self) -> Option<(f64, f64)> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.process_id)).ok();
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
    pub fn show_json(&self, what: &str) -> anyhow::Result<Value> {
        let text = run_for_output(&mut self.client_command(&["show", what, "--json"]))?;
        serde_json::from_str(&text)
            .with_context(|| format!("carnet show {what} --json printed no JSON: {text}"))
    }

    /// Returns whether the home agent has this number of bindings, all of them registered.
    pub fn has_registered_bindings(&self, bindings: usize) -> anyhow::Result<bool> {
        let shown = self.show_json("bindings")?;
        let list = shown.as_array().context("carnet show bindings --json printed no array")?;
        Ok(list.len() >= bindings && list.iter().all(|b| b["state"] == "registered"))
    }

    /// Returns the interface of the uplink that carries the traffic; `None` without an active uplink.
    pub fn active_uplink(&self) -> Option<String> {
        if !self.is_mobile_router {
            return None;
        }
        let shown = self.show_json("uplinks").ok()?;
        let active = shown.as_array()?.iter().find(|u| u["active"] == true)?;
        Some(active["interface"].as_str()?.to_string())
    }

    /// Runs another command of the program, and waits until it has ended.
    pub fn run_command(&self, words: &[String]) -> anyhow::Result<()> {
        run_for_output(&mut self.client_command(&words.iter().map(String::as_str).collect::<Vec<_>>()))?;
        Ok(())
    }

    /// Runs `carnet handover UPLINK`, for a policy or for all other packets.
    pub fn command_handover(&self, uplink: &str, policy: Option<&str>) -> anyhow::Result<()> {
        let mut command = self.client_command(&["handover", uplink]);
        command.args(policy.iter().flat_map(|name| ["--policy", name]));
        run_for_output(&mut command)?;
        Ok(())
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if let Some(child) = &mut self.event_watcher {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the kind of an event, such as `registered` or `handover`.
pub fn event_kind(event: &Value) -> &str {
    event["event"].as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn station_settings_contain_the_interfaces_of_geonetworking() {
        let text = "[station]\nname = \"car\"\n[geonet]\ninterface = \"wlan1\"\nipv6_interface = \"gn0\"\n";
        let settings = StationSettings::parse_settings(text).expect("is good");
        assert_eq!(settings.control_socket, Path::new("/run/carnet/car.sock"));
        assert_eq!(
            (settings.radio_interface.as_deref(), settings.geonet_interface.as_deref()),
            (Some("wlan1"), Some("gn0"))
        );
        let udp = StationSettings::parse_settings(&text.replace("wlan1", "udp:[::1]:7")).expect("is good");
        assert_eq!((udp.radio_interface, udp.is_mobile_router), (None, false));
        assert!(StationSettings::parse_settings("[station]\n").is_err());
    }
}
