//! Reads scenarios: networks to build, programs to run, actions, and expectations.
//!
//! A scenario is a folder with `scenario.toml` and the config files of its nodes, similar to FRR's topotests.
//! It contains data and no code. `scenarios/README.md` describes the keys. This module holds the types,
//! parses them, and checks that every name in them refers to an object. An error has the form `FILE:LINE:COL:
//! message`.

mod check;
mod emulation;
mod metric_names;
mod radio;
mod random;
mod scenario_error;
mod series;
mod traffic;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use crate::emulation::trace::Trace;
use crate::medium::mobility::Track;
use crate::tools;

pub use crate::scenario_values::{BitRate, Duration, LinkEnd, LinkRate, Metres, Octets, Prefix};
pub use emulation::{Emulation, LinkDegradation};
pub use radio::{Medium, NodeRadio};
pub use random::RandomLinkEvents;
pub use traffic::{Direction, Family, GnBroadcast, GnPing, Multicast, Ping, Probe, Replay, Tcp, Traffic};

/// Section name of the metrics of the whole run.
pub const WHOLE_RUN_SECTION: &str = "run";

/// A scenario as in its file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Heading of the report, a few words.
    pub title: String,
    /// Purpose and method of the scenario, one paragraph.
    #[serde(default)]
    pub about: String,
    /// Nodes by name; each is a network namespace.
    pub nodes: BTreeMap<String, Node>,
    /// Links between interfaces of nodes.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Seed of all randomness on emulated links and of random events.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// The radio medium.
    #[serde(default)]
    pub medium: Option<Medium>,
    /// Traffic while the timetable runs.
    #[serde(default)]
    pub traffic: Traffic,
    /// Length of the measurement.
    pub timetable: Timetable,
    /// Actions, in order of time.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// Random events.
    #[serde(default)]
    pub random: Option<Spanned<RandomLinkEvents>>,
    /// Metrics that the lab computes from other metrics.
    #[serde(default)]
    pub derived: Vec<DerivedMetric>,
    /// Expectations that the lab judges after the run.
    #[serde(default)]
    pub expect: Vec<Expectation>,
    /// The numbers at the head of the report.
    #[serde(default)]
    pub headline: Vec<HeadlineMetric>,
    /// Tracks of the nodes with a radio, by name.
    #[serde(skip)]
    pub tracks: BTreeMap<String, Track>,
    /// Traces of emulated links, by index of the link.
    #[serde(skip)]
    pub traces: BTreeMap<usize, Trace>,
    /// Time of second 0 of the tracks, on the monotonic clock in nanoseconds; the lab sets it when the
    /// stations start.
    #[serde(skip)]
    pub epoch: u64,
}

/// A node: a network namespace, its interfaces and its programs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Role, for the topology picture.
    #[serde(default)]
    pub role: String,
    /// Number of nodes in the series that this node describes. `{n}` in its name and values is the number of
    /// each node.
    #[serde(default)]
    pub count: Option<Spanned<u32>>,
    /// Number of the first node of a series.
    #[serde(default)]
    pub first: u32,
    /// Number of this node in its series, if it belongs to a series.
    #[serde(skip)]
    pub series: Option<u32>,
    /// Radio of the node.
    #[serde(default)]
    pub radio: Option<Spanned<NodeRadio>>,
    /// Column and row in the topology picture.
    #[serde(default)]
    pub position: Option<(f64, f64)>,
    /// Whether the node forwards IPv6 and IPv4 without carnet. (carnet turns forwarding on itself.)
    #[serde(default)]
    pub forwarding: bool,
    /// Settings under `/proc/sys`, by dotted name.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Static addresses (`ADDRESS/LENGTH`) by interface.
    #[serde(default)]
    pub addresses: BTreeMap<Spanned<String>, Vec<String>>,
    /// Static routes, as for `ip route add`.
    #[serde(default)]
    pub routes: Vec<String>,
    /// Routes through interfaces that carnet creates; the lab adds them when the stations run.
    #[serde(default)]
    pub station_routes: Vec<String>,
    /// Rules of nftables, as for `nft -f`.
    #[serde(default)]
    pub nft: Option<String>,
    /// Config file of the carnet station in this node.
    #[serde(default)]
    pub carnet: Option<Spanned<String>>,
    /// Name of the PKI that issues this station's ticket. The lab creates a PKI of that name (`carnet-lab
    /// pki`).
    #[serde(default)]
    pub pki: Option<Spanned<String>>,
    /// Whether the station's ticket is revoked.
    #[serde(default)]
    pub revoked: bool,
    /// Whether the node is an attacker, whose messages no station may accept. Metrics do not count it.
    #[serde(default)]
    pub outsider: bool,
    /// Number of registered bindings that this station must have before the timetable starts.
    #[serde(default)]
    pub bindings: usize,
    /// Config file of radvd in this node.
    #[serde(default)]
    pub radvd: Option<Spanned<String>>,
    /// Address that the node must get by autoconfiguration and keep during the run.
    #[serde(default)]
    pub autoconf: Option<Autoconf>,
    /// Interface whose IPv4 address the node must get by DHCP (`busybox udhcpc`), and keep during the run.
    #[serde(default)]
    pub dhcp: Option<Spanned<String>>,
}

/// An autoconfigured address.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Autoconf {
    /// Interface of the address.
    pub interface: Spanned<String>,
    /// Prefix of the address, a /64.
    pub prefix: Prefix,
}

/// A link: two ends joined by a veth pair, or several ends on a bridge.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Ends, written `NODE:INTERFACE`: two, or any number with a bridge.
    pub ends: Vec<Spanned<LinkEnd>>,
    /// Name of the bridge that joins the ends.
    #[serde(default)]
    pub bridge: Option<String>,
    /// Ends of the bridge that reach all ends except each other.
    #[serde(default)]
    pub isolated: Vec<Spanned<LinkEnd>>,
    /// Label of the link, for the topology picture.
    #[serde(default)]
    pub label: String,
    /// Properties of the link, if it is emulated.
    #[serde(default)]
    pub emulation: Option<Spanned<Emulation>>,
}

/// The length of the measurement.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timetable {
    /// Duration of the measurement.
    pub duration: Duration,
    /// Factor of every time in the timetable in a quick run.
    #[serde(default = "default_quick_factor")]
    pub quick: f64,
}

fn default_quick_factor() -> f64 {
    0.5
}

fn default_seed() -> u64 {
    1
}

/// An action of the timetable; exactly one of its optional keys is present.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Short name of the action, to which expectations refer.
    pub name: Spanned<String>,
    /// Description of the action in plain words.
    pub label: String,
    /// Time of the action, from the start of the timetable.
    pub at: Duration,
    /// Does nothing, but begins a new section of the measurement.
    #[serde(default)]
    pub nothing: bool,
    /// Set an interface down.
    #[serde(default)]
    pub link_down: Option<Spanned<LinkEnd>>,
    /// Sets an interface up.
    #[serde(default)]
    pub link_up: Option<Spanned<LinkEnd>>,
    /// Remove the carrier of an interface that stays up.
    #[serde(default)]
    pub carrier_off: Option<Spanned<LinkEnd>>,
    /// Give an interface its carrier back.
    #[serde(default)]
    pub carrier_on: Option<Spanned<LinkEnd>>,
    /// Change the properties of an emulated link.
    #[serde(default)]
    pub degrade: Option<LinkDegradation>,
    /// Let an emulated link, named by an end, accept all frames and deliver none. The carrier stays.
    #[serde(default)]
    pub blackhole: Option<Spanned<LinkEnd>>,
    /// Gives an emulated link the properties of the scenario again, and its carrier.
    #[serde(default)]
    pub restore: Option<Spanned<LinkEnd>>,
    /// Delete all NAT mappings in a node.
    #[serde(default)]
    pub nat_forget: Option<Spanned<String>>,
    /// Run `carnet handover` on a station.
    #[serde(default)]
    pub handover: Option<Handover>,
    /// Run another `carnet` command on a station.
    #[serde(default)]
    pub order: Option<StationCommand>,
    /// Run any command in a node.
    #[serde(default)]
    pub run: Option<RunCommand>,
}

impl Default for Action {
    fn default() -> Self {
        Self {
            name: Spanned::new(0..0, String::new()),
            label: String::new(),
            at: Duration(0),
            nothing: false,
            link_down: None,
            link_up: None,
            carrier_off: None,
            carrier_on: None,
            degrade: None,
            blackhole: None,
            restore: None,
            nat_forget: None,
            handover: None,
            order: None,
            run: None,
        }
    }
}

/// A handover order to a mobile router.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// Node of the mobile router.
    pub station: Spanned<String>,
    /// The uplink to use, or `auto`.
    pub uplink: String,
    /// Name of the policy whose packets move to the uplink; `None` moves the packets of no policy.
    #[serde(default)]
    pub policy: Option<String>,
}

/// A command of the carnet program to a station, for example `drain`. The lab waits until the command ends.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationCommand {
    /// Node of the station.
    pub station: Spanned<String>,
    /// Arguments of `carnet`.
    pub command: Vec<String>,
}

/// A command that the lab runs in a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCommand {
    /// Node in which the command runs.
    pub node: Spanned<String>,
    /// Program and arguments.
    pub command: Vec<String>,
}

/// A metric that the lab computes from two other metrics, in each section that has both. Exactly one of the
/// optional keys selects the operation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedMetric {
    /// Name of the new metric.
    pub name: String,
    /// First metric of the operation.
    pub of: String,
    /// Metric that is added to the first one.
    #[serde(default)]
    pub plus: Option<String>,
    /// Metric that is subtracted from the first one.
    #[serde(default)]
    pub minus: Option<String>,
    /// Metric by which the first one is divided.
    #[serde(default)]
    pub over: Option<String>,
}

/// An expectation: a metric and its bounds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Description of the expectation.
    pub what: String,
    /// Name of the metric.
    pub metric: String,
    /// Action with which the judged section of the run begins; `None` for the whole run.
    #[serde(default)]
    pub after: Option<Spanned<String>>,
    /// Exact value that the metric must have.
    #[serde(default)]
    pub equals: Option<f64>,
    /// Upper bound; a value equal to it fails.
    #[serde(default)]
    pub below: Option<f64>,
    /// Upper bound; a value equal to it passes.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// Lower bound; a value equal to it passes.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// Metric that the lab adds to every bound: a metric of the whole run, or `SECTION/METRIC`.
    #[serde(default)]
    pub plus: Option<String>,
    /// Metric by which the lab multiplies every bound, before it adds `plus`: a metric of the whole run, or
    /// `SECTION/METRIC`.
    #[serde(default)]
    pub times: Option<String>,
    /// Unit, as for a headline; with `yes` the report shows 1 as yes and 0 as no.
    #[serde(default)]
    pub unit: String,
    /// Judge only in a run with `--pcap`, and with tshark installed.
    #[serde(default)]
    pub needs_pcap: bool,
    /// Judge only if the radios report acknowledgements: with `--radio hwsim`.
    #[serde(default)]
    pub needs_feedback: bool,
    /// Whether the lab judges this expectation only if carnet-lab and carnet are optimised builds.
    #[serde(default)]
    pub needs_optimised: bool,
}

/// A number at the head of the report.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadlineMetric {
    /// Label of the number.
    pub label: String,
    /// Name of the metric.
    pub metric: String,
    /// Action with which the section of the value begins; `None` for the whole run.
    #[serde(default)]
    pub after: Option<Spanned<String>>,
    /// Unit of the value: `ms`, `us`, `packets`, `bytes`, `yes` (for 1 and 0), or empty.
    #[serde(default)]
    pub unit: String,
    /// Value of another source for comparison, with the source's name.
    #[serde(default)]
    pub beside: String,
}

/// An error in a scenario, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// File of the error.
    pub file: PathBuf,
    /// Line number, from 1.
    pub line: usize,
    /// Column number, from 1.
    pub column: usize,
    /// Description of the error, with the expected value.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file.display(), self.line, self.column, self.message)
    }
}

impl std::error::Error for ScenarioError {}

/// Reads and checks `scenario.toml` in a folder. `size` replaces the number of nodes in each series.
pub fn load_scenario(folder: &Path, size: Option<u32>) -> anyhow::Result<Scenario> {
    let file = folder.join("scenario.toml");
    let text =
        std::fs::read_to_string(&file).map_err(|e| anyhow::anyhow!("cannot read {}: {e}", file.display()))?;
    Ok(parse_with_series_size(&file, &text, size)?)
}

/// Parses and checks the text of a scenario. Series keep their sizes.
#[cfg(test)]
pub fn parse_scenario(file: &Path, text: &str) -> Result<Scenario, ScenarioError> {
    parse_with_series_size(file, text, None)
}

/// Parses and checks the text of a scenario. `file` is the path of the scenario file; its config files are in
/// the same folder.
fn parse_with_series_size(file: &Path, text: &str, size: Option<u32>) -> Result<Scenario, ScenarioError> {
    let fault = |span: Option<Range<usize>>, message: String| {
        let before = &text[..span.map_or(0, |s| s.start.min(text.len()))];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        ScenarioError {
            file: file.into(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message,
        }
    };
    let mut scenario: Scenario =
        toml::from_str(text).map_err(|e| fault(e.span(), e.message().trim().replace('\n', ", ")))?;
    let wrong = |(span, message)| fault(Some(span), message);
    series::expand_node_series(&mut scenario, text, size).map_err(wrong)?;
    random::expand_random_actions(&mut scenario).map_err(wrong)?;
    check::check_scenario(&scenario, file.parent()).map_err(wrong)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    scenario.traces = emulation::read_traces(&scenario, folder, |span, message| fault(Some(span), message))?;
    scenario.tracks = radio::read_tracks(&scenario, folder, |span, message| fault(Some(span), message))?;
    if let Some((name, message)) = metric_names::find_unknown_metric(&scenario) {
        let at = ['"', '\''].iter().find_map(|quote| text.find(&format!("{quote}{name}{quote}")));
        return Err(fault(at.map(|at| at..at), message));
    }
    Ok(scenario)
}

/// Returns the folder with the scenarios: the given one, otherwise `$CARNET_SCENARIOS`. If neither is set, it
/// is `scenarios` in the working folder or above it, otherwise beside the executable or above it.
pub fn scenarios_folder(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) =
        given.map(Path::to_path_buf).or(std::env::var_os("CARNET_SCENARIOS").map(Into::into))
    {
        anyhow::ensure!(folder.is_dir(), "there is no folder {}", folder.display());
        return Ok(folder.canonicalize()?);
    }
    tools::find_beside_this_program("scenarios", |folder| !scenario_names(folder).is_empty())
        .ok_or_else(|| anyhow::anyhow!("no folder with scenarios found; name one with --scenarios"))
}

/// Returns the names of the scenarios in a folder, sorted.
pub fn scenario_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.path().join("scenario.toml").is_file())
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
mod tests;
