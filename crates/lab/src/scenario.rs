//! Scenarios: what to build, what to run in it, what happens when, what is expected.
//!
//! A scenario is a folder, in the manner of FRR's topotests: `scenario.toml` and the config files of its
//! nodes. It is data; nothing in it is code. `scenarios/README.md` describes the keys. This module holds
//! the types, reads them, and checks that every name in them refers to something: what is wrong is told as
//! `FILE:LINE:COL: what is wrong`.
//!
//! Left out so far: link emulation (delay, rate, loss). A link has a table of its own so that it can go in
//! there.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, Deserializer};
use toml::Spanned;

use crate::clock::{MILLISECOND, SECOND};

/// A scenario as its file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A few words, the heading of the report.
    pub title: String,
    /// A paragraph: what is shown and how.
    #[serde(default)]
    pub about: String,
    /// Nodes by name; each is a network namespace.
    pub nodes: BTreeMap<String, Node>,
    /// Links between interfaces of nodes.
    #[serde(default)]
    pub links: Vec<Link>,
    /// What flows while the timetable runs.
    #[serde(default)]
    pub traffic: Traffic,
    /// How long the measurement takes.
    pub timetable: Timetable,
    /// What happens meanwhile, in order of time.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// Metrics made of other metrics.
    #[serde(default)]
    pub derived: Vec<Derived>,
    /// What must hold at the end.
    #[serde(default)]
    pub expect: Vec<Expect>,
    /// The numbers at the head of the report.
    #[serde(default)]
    pub headline: Vec<Headline>,
}

/// A node: a network namespace, its interfaces and what runs in it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// What it is, for the topology picture.
    #[serde(default)]
    pub role: String,
    /// Column and row in the topology picture.
    #[serde(default)]
    pub position: Option<(f64, f64)>,
    /// True for a router without carnet; carnet turns forwarding on itself.
    #[serde(default)]
    pub forwarding: bool,
    /// Settings under `/proc/sys`, by dotted name.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Static addresses (`ADDRESS/LENGTH`) by interface.
    #[serde(default)]
    pub addresses: BTreeMap<Spanned<String>, Vec<String>>,
    /// Static routes, as for `ip -6 route add`.
    #[serde(default)]
    pub routes: Vec<String>,
    /// Config file of the carnet station in this node.
    #[serde(default)]
    pub carnet: Option<Spanned<String>>,
    /// The number of bindings that this station must hold, all of them registered, before the run starts.
    #[serde(default)]
    pub bindings: usize,
    /// Config file of radvd in this node.
    #[serde(default)]
    pub radvd: Option<Spanned<String>>,
    /// The address that this node must get by autoconfiguration, and keep.
    #[serde(default)]
    pub autoconf: Option<Autoconf>,
}

/// An address by autoconfiguration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Autoconf {
    /// On this interface.
    pub interface: Spanned<String>,
    /// In this /64.
    pub prefix: Prefix,
}

/// An IPv6 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The address part.
    pub address: Ipv6Addr,
    /// Its length in bits.
    pub length: u8,
}

impl Prefix {
    /// True if the address is in the prefix.
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        let shift = 128 - u32::from(self.length);
        let cut = |a: Ipv6Addr| a.to_bits().checked_shr(shift).unwrap_or(0);
        cut(address) == cut(self.address)
    }
}

/// A link: two ends joined by a veth pair, or several on a bridge.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// `NODE:INTERFACE`, two or, with a bridge, as many as there are.
    pub ends: Vec<Spanned<End>>,
    /// Name of the bridge that joins them.
    #[serde(default)]
    pub bridge: Option<String>,
    /// What the link is, for the topology picture.
    #[serde(default)]
    pub label: String,
}

/// An interface of a node, written `NODE:INTERFACE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Node name.
    pub node: String,
    /// Interface name.
    pub interface: String,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.interface)
    }
}

/// What flows while the timetable runs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Round-trip times by ping.
    #[serde(default)]
    pub ping: Vec<Ping>,
    /// TCP by iperf3, in both directions over one connection each.
    #[serde(default)]
    pub tcp: Vec<Tcp>,
    /// The lab's own one-way probe, in both directions at once.
    #[serde(default)]
    pub probe: Vec<Probe>,
}

/// A ping.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Prefix of its metrics.
    pub name: String,
    /// What it is, for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that pings.
    pub from: Spanned<String>,
    /// Node that answers.
    pub to: Spanned<String>,
    /// Time between two requests.
    pub interval: Duration,
}

/// A TCP transfer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Prefix of its metrics.
    pub name: String,
    /// What it is, for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that opens the connection.
    pub client: Spanned<String>,
    /// Node that listens.
    pub server: Spanned<String>,
    /// Rate limit of each direction in iperf3's notation, for example `20M` (bit/s).
    pub rate: String,
}

/// A one-way probe in both directions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Prefix of its metrics.
    pub name: String,
    /// The two nodes.
    pub between: (Spanned<String>, Spanned<String>),
    /// Packets a second in each direction.
    pub rate: u32,
}

/// The length of the measurement.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timetable {
    /// Whole length.
    pub duration: Duration,
    /// What every time in the timetable is multiplied with in a quick run.
    #[serde(default = "half")]
    pub quick: f64,
}

fn half() -> f64 {
    0.5
}

/// Something that happens at a time. Exactly one of the optional keys says what.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Short name; expectations refer to it.
    pub name: Spanned<String>,
    /// What happens, in plain words.
    pub label: String,
    /// When, from the start of the timetable.
    pub at: Duration,
    /// Nothing: only a new section of the measurement.
    #[serde(default)]
    pub nothing: bool,
    /// Set an interface down.
    #[serde(default)]
    pub link_down: Option<Spanned<End>>,
    /// Set it up again.
    #[serde(default)]
    pub link_up: Option<Spanned<End>>,
    /// `carnet handover` on a station.
    #[serde(default)]
    pub handover: Option<Handover>,
    /// Any command in a node.
    #[serde(default)]
    pub run: Option<RunCommand>,
}

/// An order to a mobile router.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// The node it runs in.
    pub station: Spanned<String>,
    /// The uplink to use, or `auto`.
    pub uplink: String,
}

/// A command in a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCommand {
    /// Node.
    pub node: Spanned<String>,
    /// Program and arguments.
    pub command: Vec<String>,
}

/// A metric that is the difference of two others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derived {
    /// Its name.
    pub name: String,
    /// Minuend.
    pub of: String,
    /// Subtrahend.
    pub minus: String,
}

/// What must hold: a metric and bounds for it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// In plain words.
    pub what: String,
    /// Metric name.
    pub metric: String,
    /// The action in whose section of the run it is taken; without it, over the whole run.
    #[serde(default)]
    pub after: Option<Spanned<String>>,
    /// The value.
    #[serde(default)]
    pub equals: Option<f64>,
    /// Upper bound, itself excluded.
    #[serde(default)]
    pub below: Option<f64>,
    /// Upper bound.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// Lower bound.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// A metric of the whole run that is added to every bound.
    #[serde(default)]
    pub plus: Option<String>,
    /// Unit, as for a headline; `yes` shows 1 as yes and 0 as no.
    #[serde(default)]
    pub unit: String,
    /// Only judged in a run with `--pcap`, and with tshark installed.
    #[serde(default)]
    pub needs_pcap: bool,
}

/// A number at the head of the report.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// What it is.
    pub label: String,
    /// Metric name.
    pub metric: String,
    /// The action in whose section it is taken.
    #[serde(default)]
    pub after: Option<Spanned<String>>,
    /// `ms`, `us`, `packets`, `bytes`, `yes` (for 1 and 0), or nothing.
    #[serde(default)]
    pub unit: String,
}

/// A length of time, written `20s`, `500ms` or `10us`; nanoseconds inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub u64);

impl Duration {
    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / SECOND as f64
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let unit = match &text[digits..] {
            "s" => SECOND,
            "ms" => MILLISECOND,
            "us" => 1000,
            _ => return Err(de::Error::custom(format!("{text:?} is no time, expected for example \"20s\""))),
        };
        let number: f64 = text[..digits]
            .parse()
            .map_err(|_| de::Error::custom(format!("{text:?} is no time, expected for example \"20s\"")))?;
        Ok(Self((number * unit as f64) as u64))
    }
}

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(':') {
            Some((node, interface)) if !node.is_empty() && (1..=15).contains(&interface.len()) => {
                Ok(Self { node: node.into(), interface: interface.into() })
            }
            _ => Err(de::Error::custom(format!("{text:?} is no interface, expected \"NODE:INTERFACE\""))),
        }
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.split_once('/')
            .and_then(|(a, l)| Some(Self { address: a.parse().ok()?, length: l.parse().ok()? }))
            .filter(|p| p.length <= 128)
            .ok_or_else(|| de::Error::custom(format!("{text:?} is no IPv6 prefix")))
    }
}

/// What is wrong with a scenario, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is wrong, what was expected.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file.display(), self.line, self.column, self.message)
    }
}

impl std::error::Error for Fault {}

/// Reads and checks `scenario.toml` in a folder.
pub fn load(folder: &Path) -> anyhow::Result<Scenario> {
    let file = folder.join("scenario.toml");
    let text =
        std::fs::read_to_string(&file).map_err(|e| anyhow::anyhow!("cannot read {}: {e}", file.display()))?;
    Ok(parse(&file, &text)?)
}

/// Reads and checks the text of a scenario; `file` is where it came from and where its config files are.
pub fn parse(file: &Path, text: &str) -> Result<Scenario, Fault> {
    let fault = |span: Option<Range<usize>>, message: String| {
        let before = &text[..span.map_or(0, |s| s.start.min(text.len()))];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        Fault {
            file: file.into(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message,
        }
    };
    let scenario: Scenario =
        toml::from_str(text).map_err(|e| fault(e.span(), e.message().trim().replace('\n', ", ")))?;
    check(&scenario, file.parent()).map_err(|(span, message)| fault(Some(span), message))?;
    Ok(scenario)
}

type Wrong = (Range<usize>, String);

/// Every name must refer to something.
fn check(scenario: &Scenario, folder: Option<&Path>) -> Result<(), Wrong> {
    let names = |known: Vec<&str>| if known.is_empty() { "none".into() } else { known.join(", ") };
    let node = |name: &Spanned<String>| -> Result<&Node, Wrong> {
        scenario.nodes.get(name.get_ref()).ok_or_else(|| {
            let known = names(scenario.nodes.keys().map(String::as_str).collect());
            (name.span(), format!("there is no node {:?}; the nodes are: {known}", name.get_ref()))
        })
    };
    let mut ends: Vec<&End> = Vec::new();
    for link in &scenario.links {
        let at = link.ends.first().map_or(0..0, Spanned::span);
        match (&link.bridge, link.ends.len()) {
            (None, n) if n != 2 => {
                return Err((at, format!("a link without a bridge joins 2 ends, here are {n}")));
            }
            (Some(b), _) if !(1..=11).contains(&b.len()) => {
                return Err((at, format!("bridge name {b:?} must have 1 to 11 characters")));
            }
            _ => {}
        }
        for end in &link.ends {
            let name = Spanned::new(end.span(), end.get_ref().node.clone());
            node(&name)?;
            if ends.contains(&end.get_ref()) {
                return Err((end.span(), format!("{} is on a link already", end.get_ref())));
            }
            ends.push(end.get_ref());
        }
    }
    let interface = |span: Range<usize>, node: &str, interface: &str| -> Result<(), Wrong> {
        if ends.iter().any(|e| e.node == node && e.interface == interface) {
            return Ok(());
        }
        let known = ends.iter().filter(|e| e.node == node).map(|e| e.interface.as_str()).collect();
        Err((span, format!("node {node:?} has no interface {interface:?}; it has: {}", names(known))))
    };
    for (name, n) in &scenario.nodes {
        for i in n.addresses.keys() {
            interface(i.span(), name, i.get_ref())?;
        }
        if let Some(a) = &n.autoconf {
            interface(a.interface.span(), name, a.interface.get_ref())?;
        }
        for config in [&n.carnet, &n.radvd].into_iter().flatten() {
            if let Some(folder) = folder
                && !folder.join(config.get_ref()).is_file()
            {
                return Err((config.span(), format!("there is no file {:?} beside it", config.get_ref())));
            }
        }
    }
    let mut flows: Vec<(&str, &Spanned<String>)> = Vec::new();
    let t = &scenario.traffic;
    flows.extend(t.ping.iter().flat_map(|p| [(p.name.as_str(), &p.from), (p.name.as_str(), &p.to)]));
    flows.extend(t.tcp.iter().flat_map(|p| [(p.name.as_str(), &p.client), (p.name.as_str(), &p.server)]));
    flows.extend(
        t.probe.iter().flat_map(|p| [(p.name.as_str(), &p.between.0), (p.name.as_str(), &p.between.1)]),
    );
    for (flow, end) in flows {
        let n = node(end)?;
        if n.autoconf.is_none() && n.addresses.is_empty() {
            let name = end.get_ref();
            return Err((
                end.span(),
                format!("traffic {flow:?} ends at node {name:?}, which has neither addresses nor autoconf"),
            ));
        }
    }
    let mut last = Duration(0);
    for a in &scenario.actions {
        let what =
            [a.nothing, a.link_down.is_some(), a.link_up.is_some(), a.handover.is_some(), a.run.is_some()];
        if what.iter().filter(|x| **x).count() != 1 {
            let message = "an action has exactly one of nothing, link_down, link_up, handover, run";
            return Err((a.name.span(), message.into()));
        }
        if a.at < last || a.at > scenario.timetable.duration {
            let message = "actions stand in order of time, within the duration of the timetable";
            return Err((a.name.span(), message.into()));
        }
        last = a.at;
        if scenario.actions.iter().filter(|b| b.name.get_ref() == a.name.get_ref()).count() > 1 {
            return Err((a.name.span(), format!("there are two actions {:?}", a.name.get_ref())));
        }
        for end in [&a.link_down, &a.link_up].into_iter().flatten() {
            node(&Spanned::new(end.span(), end.get_ref().node.clone()))?;
            interface(end.span(), &end.get_ref().node, &end.get_ref().interface)?;
        }
        if let Some(h) = &a.handover
            && node(&h.station)?.carnet.is_none()
        {
            return Err((h.station.span(), format!("no carnet runs in node {:?}", h.station.get_ref())));
        }
        if let Some(r) = &a.run {
            node(&r.node)?;
        }
    }
    let action = |name: &Spanned<String>| -> Result<(), Wrong> {
        if scenario.actions.iter().any(|a| a.name.get_ref() == name.get_ref()) {
            return Ok(());
        }
        let known = names(scenario.actions.iter().map(|a| a.name.get_ref().as_str()).collect());
        Err((name.span(), format!("there is no action {:?}; the actions are: {known}", name.get_ref())))
    };
    for name in scenario.expect.iter().filter_map(|e| e.after.as_ref()) {
        action(name)?;
    }
    for name in scenario.headline.iter().filter_map(|h| h.after.as_ref()) {
        action(name)?;
    }
    if let Some(e) = scenario
        .expect
        .iter()
        .find(|e| e.equals.is_none() && e.below.is_none() && e.at_most.is_none() && e.at_least.is_none())
    {
        let at = e.after.as_ref().map_or(0..0, Spanned::span);
        let message = format!("expectation {:?} has none of equals, below, at_most, at_least", e.what);
        return Err((at, message));
    }
    Ok(())
}

/// The scenarios in a folder: names, sorted.
pub fn names(folder: &Path) -> Vec<String> {
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
