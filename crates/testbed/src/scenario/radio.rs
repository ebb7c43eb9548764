//! Reads the radio medium of a scenario, the radios of its nodes, and their places.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::scenario_error::{ErrorAtPlace, join_quoted_names};
use super::{Action, BitRate, Duration, LinkEnd, Metres, Scenario, ScenarioError};
use crate::medium::channel::ChannelParameters;
use crate::medium::geometry::{MapOrigin, Point, check_degrees};
use crate::medium::mobility::{Track, TrackFileError, fcd, ns2};
use crate::medium::propagation::Propagation;
use crate::medium::timing::Airtime;
use crate::packet_mark::MARK_LENGTH;

/// The radio medium.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// Seed of all random decisions.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Latitude and longitude of the origin of the map.
    #[serde(default = "default_map_origin")]
    pub origin: Spanned<(f64, f64)>,
    /// Distance up to which a frame is readable, without shadowing.
    pub range: Metres,
    /// Distance up to which a frame is sensed and disturbs other frames; `range` if absent.
    #[serde(default)]
    pub sense_range: Option<Spanned<Metres>>,
    /// Path loss exponent.
    #[serde(default = "default_path_loss_exponent")]
    pub exponent: Spanned<f64>,
    /// Standard deviation of the shadowing in dB; 0 for none.
    #[serde(default = "default_loss_probability")]
    pub shadowing_db: Spanned<f64>,
    /// Distance after which a moving node gets another value of the shadowing.
    #[serde(default = "default_decorrelation_distance")]
    pub decorrelation: Metres,
    /// Margin in dB by which a frame must be stronger than all others to survive a collision. With `None`
    /// every overlapping frame is lost.
    #[serde(default)]
    pub capture_db: Option<f64>,
    /// Share of the receivable frames that are lost at random.
    #[serde(default = "default_loss_probability")]
    pub loss: Spanned<f64>,
    /// Bit rate.
    #[serde(default = "default_bit_rate")]
    pub bit_rate: BitRate,
    /// Maximum number of frames that wait in a radio.
    #[serde(default = "default_queue_length")]
    pub queue: Spanned<usize>,
    /// Minimum time from the start of the stations to the begin of the timetable. Until then no node moves.
    #[serde(default = "default_settling_time")]
    pub settle: Duration,
}

fn default_seed() -> u64 {
    1
}

fn default_map_origin() -> Spanned<(f64, f64)> {
    Spanned::new(0..0, (48.8375, 2.1008))
}

fn default_path_loss_exponent() -> Spanned<f64> {
    Spanned::new(0..0, 2.0)
}

fn default_loss_probability() -> Spanned<f64> {
    Spanned::new(0..0, 0.0)
}

fn default_decorrelation_distance() -> Metres {
    Metres(25.0)
}

fn default_bit_rate() -> BitRate {
    BitRate(6_000_000)
}

fn default_queue_length() -> Spanned<usize> {
    Spanned::new(0..0, 64)
}

fn default_settling_time() -> Duration {
    Duration(5 * crate::clock::SECOND)
}

/// The radio of a node, with its movement: exactly one of `place`, `waypoints`, `ns2`, `fcd`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRadio {
    /// Name of the interface.
    pub interface: String,
    /// Fixed place: metres to the east and north of the origin.
    #[serde(default)]
    pub place: Option<(f64, f64)>,
    /// Waypoints: seconds, metres to the east, metres to the north.
    #[serde(default)]
    pub waypoints: Option<Vec<(f64, f64, f64)>>,
    /// A movement file of ns-2.
    #[serde(default)]
    pub ns2: Option<Ns2Movement>,
    /// Floating car data of SUMO.
    #[serde(default)]
    pub fcd: Option<FcdMovement>,
    /// In a series, offset in metres of each node from the previous node.
    #[serde(default)]
    pub step: (f64, f64),
    /// Offset in metres that is added to all positions of the movement.
    #[serde(default)]
    pub shift: (f64, f64),
}

/// A node of a movement file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ns2Movement {
    /// Path of the file.
    pub file: Spanned<String>,
    /// The number N in `$node_(N)`; for a series, the number of its first node.
    pub node: u32,
}

/// A vehicle in floating car data.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FcdMovement {
    /// Path of the file.
    pub file: Spanned<String>,
    /// Id of the vehicle.
    pub vehicle: String,
    /// Whether x and y are longitude and latitude.
    #[serde(default)]
    pub geo: bool,
    /// Time in the file, in seconds, at which the timetable begins.
    #[serde(default)]
    pub begin: f64,
}

impl Medium {
    /// Returns the parameters of the channel.
    pub fn channel_parameters(&self) -> ChannelParameters {
        let range = self.range.0;
        ChannelParameters {
            seed: self.seed,
            propagation: Propagation {
                range_metres: range,
                sense_range_metres: self.sense_range.as_ref().map_or(range, |s| s.get_ref().0),
                path_loss_exponent: *self.exponent.get_ref(),
                shadowing_db: *self.shadowing_db.get_ref(),
                decorrelation_metres: self.decorrelation.0,
                seed: self.seed,
            },
            capture_threshold_db: self.capture_db,
            loss_probability: *self.loss.get_ref(),
            airtime: Airtime::new(self.bit_rate.0),
            queue_length: *self.queue.get_ref(),
        }
    }

    /// Returns the position of the map's origin.
    pub fn origin_of_coordinates(&self) -> MapOrigin {
        let (latitude, longitude) = *self.origin.get_ref();
        MapOrigin::new(latitude, longitude)
    }
}

/// Checks the medium, the radios and the traffic over them. Adds the radios' interfaces to `ends`.
pub(super) fn check_radios(scenario: &Scenario, ends: &mut Vec<LinkEnd>) -> Result<(), ErrorAtPlace> {
    if let Some(medium) = &scenario.medium {
        check_medium(medium)?;
    }
    for (name, node) in &scenario.nodes {
        let Some(radio) = &node.radio else { continue };
        let wrong = |message: String| Err((radio.span(), message));
        if scenario.medium.is_none() {
            return wrong(format!("node {name:?} has a radio, but the scenario has no [medium]"));
        }
        let radio = radio.get_ref();
        if !(1..=15).contains(&radio.interface.len()) {
            return wrong(format!("interface name {:?} must have 1 to 15 characters", radio.interface));
        }
        let end = LinkEnd { node: name.clone(), interface: radio.interface.clone() };
        if ends.contains(&end) {
            return wrong(format!("{end} is on a link already"));
        }
        ends.push(end);
        let ways =
            [radio.place.is_some(), radio.waypoints.is_some(), radio.ns2.is_some(), radio.fcd.is_some()];
        if ways.iter().filter(|w| **w).count() != 1 {
            return wrong("a radio has exactly one of place, waypoints, ns2, fcd".into());
        }
        if let Some(waypoints) = &radio.waypoints
            && Track::moving(waypoint_track(waypoints)).is_none()
        {
            return wrong("waypoints are [SECONDS, EAST, NORTH], at least one, in order of time".into());
        }
    }
    check_traffic(scenario)
}

fn check_medium(medium: &Medium) -> Result<(), ErrorAtPlace> {
    let (latitude, longitude) = *medium.origin.get_ref();
    if !(-85.0..=85.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
        return Err((medium.origin.span(), "origin is [LATITUDE, LONGITUDE], not near a pole".into()));
    }
    if let Some(sense) = &medium.sense_range
        && sense.get_ref() < &medium.range
    {
        return Err((sense.span(), "sense_range is shorter than range".into()));
    }
    let within = |value: &Spanned<f64>, name: &str, low: f64, high: f64| {
        if (low..=high).contains(value.get_ref()) {
            return Ok(());
        }
        Err((value.span(), format!("{name} is {}, expected {low} to {high}", value.get_ref())))
    };
    within(&medium.exponent, "exponent", 1.0, 8.0)?;
    within(&medium.shadowing_db, "shadowing_db", 0.0, 20.0)?;
    within(&medium.loss, "loss", 0.0, 1.0)?;
    if !(1..=10_000).contains(medium.queue.get_ref()) {
        let message = format!("queue is {}, expected 1 to 10000", medium.queue.get_ref());
        return Err((medium.queue.span(), message));
    }
    Ok(())
}

fn check_traffic(scenario: &Scenario) -> Result<(), ErrorAtPlace> {
    let station = |name: &Spanned<String>| -> Result<(), ErrorAtPlace> {
        let is_one = |node: &super::Node| node.radio.is_some() && node.carnet.is_some();
        if scenario.nodes.get(name.get_ref()).is_some_and(is_one) {
            return Ok(());
        }
        let stations = scenario.nodes.iter().filter(|(_, n)| is_one(n)).map(|(name, _)| name.as_str());
        let known: Vec<&str> = stations.collect();
        let known = if known.len() > 12 {
            format!("{} ...", known[..12].join(", "))
        } else {
            join_quoted_names(known)
        };
        let message = format!("no node {:?} has a radio and carnet; those that do: {known}", name.get_ref());
        Err((name.span(), message))
    };
    let interval = |interval: &Spanned<Duration>| {
        if interval.get_ref().seconds() >= 0.01 {
            return Ok(());
        }
        Err((interval.span(), "expected an interval of 10ms or more".to_string()))
    };
    for ping in &scenario.traffic.gnping {
        station(&ping.from)?;
        if !ping.to.get_ref().starts_with("area:") {
            station(&ping.to)?;
        }
        interval(&ping.interval)?;
    }
    for broadcast in &scenario.traffic.gnbroadcast {
        station(&broadcast.from)?;
        if let (Some(medium), Some((x, y))) = (&scenario.medium, broadcast.center) {
            check_degrees(medium.origin_of_coordinates().to_degrees(Point { x, y })).map_err(|wrong| {
                (broadcast.from.span(), format!("the centre of broadcast {:?}: {wrong}", broadcast.name))
            })?;
        }
        interval(&broadcast.interval)?;
        if broadcast.radius.get_ref().0 > 1784.0 {
            let message = "no circle is larger than 10 square kilometres: expected a radius up to 1784m";
            return Err((broadcast.radius.span(), message.into()));
        }
        if !(MARK_LENGTH..=1300).contains(broadcast.size.get_ref()) {
            let message = format!("size is {}, expected {} to 1300", broadcast.size.get_ref(), MARK_LENGTH);
            return Err((broadcast.size.span(), message));
        }
    }
    for replay in &scenario.traffic.replay {
        let is_one = |node: &super::Node| node.radio.is_some() && node.carnet.is_none();
        if !scenario.nodes.get(replay.from.get_ref()).is_some_and(is_one) {
            let message = format!("no node {:?} has a radio and no carnet", replay.from.get_ref());
            return Err((replay.from.span(), message));
        }
        if replay.every == 0 || replay.after.is_empty() {
            return Err((
                replay.from.span(),
                "expected an `every` of 1 or more, and times in `after`".into(),
            ));
        }
    }
    for multicast in &scenario.traffic.multicast {
        for host in multicast.members.keys().chain(multicast.strangers.keys()).chain([&multicast.from]) {
            if !scenario.nodes.contains_key(host.get_ref()) {
                return Err((host.span(), format!("there is no node {:?}", host.get_ref())));
            }
        }
        multicast.members.values().chain(multicast.strangers.values()).try_for_each(station)?;
        interval(&multicast.interval)?;
        if !multicast.group.get_ref().is_multicast() {
            let message = format!("{} is no multicast address", multicast.group.get_ref());
            return Err((multicast.group.span(), message));
        }
    }
    Ok(())
}

fn waypoint_track(waypoints: &[(f64, f64, f64)]) -> Vec<(f64, Point)> {
    waypoints.iter().map(|(t, x, y)| (*t, Point { x: *x, y: *y })).collect()
}

/// Returns the tracks of all nodes with a radio. Reads the movement files in `folder`.
pub(super) fn read_tracks(
    scenario: &Scenario,
    folder: &Path,
    fault: impl Fn(std::ops::Range<usize>, String) -> ScenarioError,
) -> Result<BTreeMap<String, Track>, ScenarioError> {
    let Some(origin) = scenario.medium.as_ref().map(Medium::origin_of_coordinates) else {
        return Ok(BTreeMap::new());
    };
    let mut tracks = BTreeMap::new();
    let mut ns2_files: BTreeMap<&str, BTreeMap<u32, Track>> = BTreeMap::new();
    let mut fcd_files: BTreeMap<(&str, bool), BTreeMap<String, Track>> = BTreeMap::new();
    let read = |name: &Spanned<String>| {
        let file = folder.join(name.get_ref());
        std::fs::read_to_string(&file)
            .map(|text| (file, text))
            .map_err(|e| fault(name.span(), format!("cannot read {:?} beside it: {e}", name.get_ref())))
    };
    let mistake = |file: &Path, m: TrackFileError| ScenarioError {
        file: file.into(),
        line: m.line,
        column: 1,
        message: m.message,
    };
    for (name, node) in &scenario.nodes {
        let Some(spanned) = &node.radio else { continue };
        let radio = spanned.get_ref();
        let track = if let Some((x, y)) = radio.place {
            Some(Track::fixed_at(Point { x, y }))
        } else if let Some(waypoints) = &radio.waypoints {
            Track::moving(waypoint_track(waypoints))
        } else if let Some(ns2) = &radio.ns2 {
            let key = ns2.file.get_ref().as_str();
            let tracks = match ns2_files.entry(key) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let (file, text) = read(&ns2.file)?;
                    new.insert(ns2::parse(&text).map_err(|m| mistake(&file, m))?)
                }
            };
            let missing = || fault(ns2.file.span(), format!("{key} has no $node_({})", ns2.node));
            Some(tracks.get(&ns2.node).ok_or_else(missing)?.clone())
        } else if let Some(fcd) = &radio.fcd {
            let key = (fcd.file.get_ref().as_str(), fcd.geo);
            let tracks = match fcd_files.entry(key) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let (file, text) = read(&fcd.file)?;
                    let geo = fcd.geo.then_some(&origin);
                    new.insert(fcd::parse(&text, geo).map_err(|m| mistake(&file, m))?)
                }
            };
            let missing = || fault(fcd.file.span(), format!("{} has no vehicle {:?}", key.0, fcd.vehicle));
            Some(tracks.get(&fcd.vehicle).ok_or_else(missing)?.clone().shifted_earlier(fcd.begin))
        } else {
            None
        };
        let track = track.ok_or_else(|| fault(spanned.span(), format!("node {name:?} is nowhere")))?;
        let track = track.shifted_in_space(radio.shift.0, radio.shift.1);
        track
            .check_positions(&origin)
            .map_err(|wrong| fault(spanned.span(), format!("node {name:?} {wrong}")))?;
        tracks.insert(name.clone(), track);
    }
    Ok(tracks)
}
impl Scenario {
    /// Returns whether an end is the radio of a node.
    pub(super) fn is_radio(&self, end: &LinkEnd) -> bool {
        let radio = self.nodes.get(&end.node).and_then(|node| node.radio.as_ref());
        radio.is_some_and(|radio| radio.get_ref().interface == end.interface)
    }

    /// Returns the radio interface of a node; `None` if it has no radio.
    pub fn radio_of(&self, node: &str) -> Option<&str> {
        Some(self.nodes.get(node)?.radio.as_ref()?.get_ref().interface.as_str())
    }

    /// Returns the node whose radio an action puts behind a wall (true), or whose wall it removes (false).
    /// `None` if the action changes no radio's wall.
    pub fn enclosure_change_of_action<'a>(&self, action: &'a Action) -> Option<(&'a str, bool)> {
        let ends = [(&action.blackhole, true), (&action.restore, false)];
        let (end, walled) =
            ends.into_iter().find_map(|(end, walled)| Some((end.as_ref()?.get_ref(), walled)))?;
        self.is_radio(end).then_some((end.node.as_str(), walled))
    }
}
