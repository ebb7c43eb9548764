//! Runs traffic over GeoNetworking: pings, and broadcasts to a circle.
//!
//! A broadcast carries a mark, by which the lab recognises it. The medium counts the broadcast's frames on
//! the air, and `gnrecv` reports it at every station. The places of the nodes decide which nodes have to
//! receive it. A node is *inside* if it is at least 5 m inside the circle at three times. These are the time
//! of sending, a second before and a second after it. (A station learns its position once a second.) A node
//! is *outside* if it is at least 5 m outside the circle at these times. Other nodes do not count.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};

use super::TIME_FROM_TRAFFIC_START_TO_TIMETABLE;
use crate::api::{self, RequestRefused};
use crate::clock::{self, MILLISECOND, SECOND};
use crate::medium::geometry::{MapOrigin, Point};
use crate::medium::mobility::Track;
use crate::packet_mark::{PacketMark, find_packet_mark, marked_payload};
use crate::process::last_log_lines;
use crate::radio::{self, Medium, PacketTransmissions};
use crate::scenario::{GnBroadcast, GnPing, Scenario};
use crate::station::Station;

/// Distance in metres from the edge of a circle below which a node is neither inside nor outside.
const AREA_EDGE_METRES: f64 = 5.0;
/// Maximum age of a station's position in nanoseconds.
const POSITION_UPDATE_INTERVAL: u64 = SECOND;
/// Maximum time that a broadcast may take, in nanoseconds.
pub(super) const MAX_BROADCAST_DURATION: u64 = SECOND;
/// Time in nanoseconds that a station may take to report a missing answer.
const LATE_REPORT_MARGIN: u64 = 200 * MILLISECOND;
/// Begin of a station's error text if it has not sent a packet; the reason follows.
const NOT_SENT_MESSAGE: &str = "the packet was not sent: ";
/// Stack size in octets of a thread that only reads lines.
const THREAD_STACK_SIZE: usize = 256 << 10;

fn octets_of_hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len() / 2).map_while(|n| digit(2 * n)).collect()
}

/// Duration of a road event in seconds. Stations do not cancel the events, so with one event per second ten
/// events exist at the same time.
const VALIDITY_SECONDS: u64 = 10;

/// A broadcast that was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct SentBroadcast {
    /// Mark that identifies the broadcast: the mark in its payload, or the event's name (station and number).
    pub mark: PacketMark,
    /// Time of sending on the monotonic clock, in nanoseconds.
    pub sent_at: u64,
    /// Centre of the circle; `None` if it is around the sender and the sender has no position.
    pub center: Option<Point>,
    /// Whether the station refused to send the broadcast, for example without a position. The broadcast then
    /// counts as lost.
    pub is_refused: bool,
}

/// A delivery of a broadcast, with the index of the receiver's track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceivedBroadcast {
    pub(super) node: usize,
    pub(super) mark: PacketMark,
    pub(super) received_at: u64,
}

/// JSON lines that a program printed, each with the time at which the lab read it.
type TimedLines = Arc<Mutex<Vec<(u64, Value)>>>;

/// Running traffic over GeoNetworking.
#[derive(Debug, Default)]
pub struct RunningGeonetTraffic {
    running_pings: Vec<RunningGnPing>,
    broadcast_senders: Vec<(GnBroadcast, JoinHandle<Vec<SentBroadcast>>)>,
    received_broadcasts: Arc<Mutex<Vec<ReceivedBroadcast>>>,
    /// Road events that have appeared on the maps of nodes.
    events_of_local_dynamic_map: Arc<Mutex<Vec<ReceivedBroadcast>>>,
    map_object_counts: Option<Arc<Mutex<MapObjectCounts>>>,
    /// Packets that stations refused to send: number by reason.
    refusals_by_reason: RefusalsByReason,
    /// Error because of which the lab could not send a broadcast, if any.
    first_failure: Arc<Mutex<Option<String>>>,
    stop: Arc<AtomicBool>,
}

/// Number of refusals by reason.
type RefusalsByReason = Arc<Mutex<BTreeMap<String, u64>>>;

/// Numbers of objects (nodes and events) on the maps of the stations, summed over all readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MapObjectCounts {
    /// Number of objects that stations have sent.
    pub objects_of_stations: u64,
    /// Number of objects that outsiders have sent.
    pub objects_of_outsiders: u64,
}

/// Observed results of a broadcast.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BroadcastResults {
    /// Prefix of the broadcast's metrics.
    pub name: String,
    /// Label for the legend.
    pub label: String,
    /// Radius of the circle in metres.
    pub radius: f64,
    /// Result of each packet.
    pub broadcasts: Vec<BroadcastResult>,
}

/// Result of one broadcast packet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BroadcastResult {
    /// Time of sending (monotonic).
    pub sent_at: u64,
    /// Centre of the circle; `None` if the sender had no place.
    pub center: Option<Point>,
    /// Whether the station refused to send the packet.
    pub is_refused: bool,
    /// Number of nodes inside the circle, except the sender.
    pub receivers_inside: u64,
    /// Number of nodes inside the circle that received the packet.
    pub received_inside: u64,
    /// Number of repeated deliveries to a node.
    pub duplicates: u64,
    /// Number of nodes outside the circle that received the packet.
    pub received_outside: u64,
    /// Number of frames that carried the packet; each try counts.
    pub transmissions: u64,
    /// Unicast frames among `transmissions`.
    pub unicast: u64,
    /// Number of nodes that sent the packet.
    pub senders: u64,
    /// Milliseconds until the first delivery to each node inside the circle.
    pub delays_ms: Vec<f64>,
}

/// A request of a ping: time of sending, and for each answer the round-trip time in milliseconds and the
/// number of hops.
pub type PingRequest = (u64, Vec<(f64, u64)>);

/// Observed results of a ping over GeoNetworking.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GnPings {
    /// Prefix of the ping's metrics.
    pub name: String,
    /// Label for the legend.
    pub label: String,
    /// Requests that were answered, or whose time has passed without an answer.
    pub requests: Vec<PingRequest>,
}

/// Starts all traffic over GeoNetworking. The timetable begins at `begin` and ends at `end`. Logs go to
/// `folder`.
pub fn start(
    scenario: &Scenario,
    stations: &[Station],
    medium: Option<&Medium>,
    begin: u64,
    end: u64,
    folder: &Path,
) -> anyhow::Result<RunningGeonetTraffic> {
    let mut flows = RunningGeonetTraffic::default();
    let traffic = &scenario.traffic;
    let nodes = radio::nodes_with_radio(scenario);
    let station = |name: &str| {
        stations.iter().find(|s| s.node == name).with_context(|| format!("no carnet runs in node {name:?}"))
    };
    for denm in [false, true] {
        if !traffic.gnbroadcast.iter().any(|broadcast| broadcast.denm == denm) {
            continue;
        }
        for (number, node) in nodes.iter().enumerate() {
            let Ok(station) = station(node) else { continue };
            if station.is_outsider {
                continue;
            }
            match denm {
                false => {
                    listen_for_broadcasts(number, &station.control_socket, flows.received_broadcasts.clone())?
                }
                true => watch_local_dynamic_map(
                    number,
                    &station.control_socket,
                    flows.events_of_local_dynamic_map.clone(),
                )?,
            }
        }
    }
    if stations.iter().any(|station| station.is_outsider) {
        let maps = Arc::new(Mutex::new(MapObjectCounts::default()));
        watch_for_outsiders(medium, stations, &maps, &flows.stop)?;
        flows.map_object_counts = Some(maps);
    }
    let intervals = traffic.gnbroadcast.iter().map(|broadcast| broadcast.interval.get_ref().0);
    let offsets = sending_offsets(&intervals.collect::<Vec<u64>>());
    for (flow, (broadcast, offset)) in traffic.gnbroadcast.iter().zip(offsets).enumerate() {
        let from = broadcast.from.get_ref();
        let (Some(track), Some(medium)) = (scenario.tracks.get(from), &scenario.medium) else { continue };
        let sender = BroadcastSender {
            flow_number: flow as u32,
            broadcast: broadcast.clone(),
            socket: station(from)?.control_socket.clone(),
            track: track.clone(),
            origin: medium.origin_of_coordinates(),
            stop: flows.stop.clone(),
            refusals: flows.refusals_by_reason.clone(),
            failure: flows.first_failure.clone(),
        };
        let epoch = scenario.epoch;
        let thread = std::thread::Builder::new().stack_size(THREAD_STACK_SIZE);
        let thread = thread.spawn(move || sender.send_broadcasts(epoch, begin + offset, end))?;
        flows.broadcast_senders.push((broadcast.clone(), thread));
    }
    for ping in &traffic.gnping {
        let station = station(ping.from.get_ref())?;
        let to = ping.to.get_ref();
        let target = match medium.and_then(|medium| medium.radio_address(to)) {
            Some(mac) => radio::format_mac(mac),
            None => to.clone(),
        };
        let milliseconds = |d: u64| format!("{}ms", d / MILLISECOND);
        let interval = ping.interval.get_ref().0;
        let count =
            ((end - begin + TIME_FROM_TRAFFIC_START_TO_TIMETABLE) / interval + 10).min(65_535).to_string();
        let mut arguments = vec!["gnping".into(), target, "--json".into(), "--count".into(), count];
        arguments.extend(["--interval".into(), milliseconds(interval)]);
        arguments.extend(["--timeout".into(), milliseconds(ping.timeout.0)]);
        arguments.extend(["--socket".into(), station.control_socket.display().to_string()]);
        let log = folder.join(format!("gnping-{}.log", ping.name));
        std::fs::write(&log, "").with_context(|| format!("cannot make {}", log.display()))?;
        let mut pinging = RunningGnPing {
            ping: ping.clone(),
            gnping_program: station.program_path.clone(),
            arguments,
            log_file: log,
            child: None,
            started_at: 0,
            next_start_at: 0,
            event_lines: Vec::new(),
            refused_requests_due_at: Vec::new(),
        };
        pinging.start_program()?;
        flows.running_pings.push(pinging);
    }
    Ok(flows)
}

/// A running `carnet gnping`. The lab restarts it if its station refuses the first request.
#[derive(Debug)]
struct RunningGnPing {
    ping: GnPing,
    gnping_program: PathBuf,
    arguments: Vec<String>,
    /// Path of the program's log.
    log_file: PathBuf,
    child: Option<Child>,
    started_at: u64,
    /// Time in nanoseconds at which the lab starts the program again, if it is not running.
    next_start_at: u64,
    /// Output of each run of the program.
    event_lines: Vec<TimedLines>,
    /// Due times of requests that the station refused.
    refused_requests_due_at: Vec<u64>,
}

impl RunningGnPing {
    fn start_program(&mut self) -> anyhow::Result<()> {
        let log = std::fs::OpenOptions::new().append(true).open(&self.log_file)?;
        let mut command = Command::new(&self.gnping_program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        self.started_at = clock::monotonic_now();
        let mut child = command.spawn().context("cannot start carnet gnping")?;
        let events = TimedLines::default();
        let (stream, into) = (child.stdout.take(), events.clone());
        self.child = Some(child);
        self.event_lines.push(events);
        std::thread::Builder::new().stack_size(THREAD_STACK_SIZE).spawn(move || {
            for line in stream.into_iter().flat_map(|s| BufReader::new(s).lines()).map_while(Result::ok) {
                let at = clock::monotonic_now();
                if let Ok(event) = serde_json::from_str(&line) {
                    into.lock().unwrap_or_else(PoisonError::into_inner).push((at, event));
                }
            }
        })?;
        Ok(())
    }

    /// Restarts gnping if the station has refused its first request. This request, and those that were due
    /// until now, count as lost. Fails if gnping has ended for another reason.
    fn restart_or_check(&mut self, refusals: &RefusalsByReason) -> anyhow::Result<()> {
        let now = clock::monotonic_now();
        let Some(child) = &mut self.child else {
            return if now >= self.next_start_at { self.start_program() } else { Ok(()) };
        };
        // gnping ends successfully when it has sent all its requests.
        let Some(status) = child.try_wait()?.filter(|status| !status.success()) else { return Ok(()) };
        let (name, node) = (&self.ping.name, self.ping.from.get_ref());
        let said = std::fs::read_to_string(&self.log_file).unwrap_or_default();
        let last = said.lines().last().unwrap_or_default();
        let Some((_, reason)) = last.split_once(NOT_SENT_MESSAGE) else {
            bail!(
                "gnping {name} in node {node} ended ({status}); it said last:\n{}",
                last_log_lines(&self.log_file)
            );
        };
        let told = format!("{name}: requests were not sent: {reason}");
        let interval = self.ping.interval.get_ref().0.max(1);
        let mut at = self.started_at;
        while at <= now {
            self.refused_requests_due_at.push(at);
            *refusals.lock().unwrap_or_else(PoisonError::into_inner).entry(told.clone()).or_default() += 1;
            at += interval;
        }
        (self.child, self.next_start_at) = (None, at);
        Ok(())
    }

    fn end_program(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the requests and answers.
    fn ping_requests(&self) -> Vec<PingRequest> {
        let mut all: Vec<PingRequest> =
            self.refused_requests_due_at.iter().map(|at| (*at, Vec::new())).collect();
        for events in &self.event_lines {
            let events = events.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(parse_ping_requests(&events, self.ping.timeout.0));
        }
        all.sort_by_key(|request| request.0);
        all
    }
}

/// Records the marked payloads that a station delivers, until the station ends.
fn listen_for_broadcasts(
    node: usize,
    socket: &Path,
    deliveries: Arc<Mutex<Vec<ReceivedBroadcast>>>,
) -> anyhow::Result<()> {
    let events = api::follow_events(socket, "/v1/gnrecv")?;
    std::thread::Builder::new().stack_size(THREAD_STACK_SIZE).spawn(move || {
        for event in events {
            let at = clock::monotonic_now();
            let payload = event["payload"].as_str().map(octets_of_hex).unwrap_or_default();
            if let Some(mark) = find_packet_mark(&payload) {
                let delivery = ReceivedBroadcast { node, mark, received_at: at };
                deliveries.lock().unwrap_or_else(PoisonError::into_inner).push(delivery);
            }
        }
    })?;
    Ok(())
}

/// Records the events that enter the map of a station, with their time, until the station ends.
fn watch_local_dynamic_map(
    node: usize,
    socket: &Path,
    events: Arc<Mutex<Vec<ReceivedBroadcast>>>,
) -> anyhow::Result<()> {
    let messages = api::follow_events(socket, "/v1/messages?type=denm")?;
    let socket = socket.to_owned();
    std::thread::Builder::new().stack_size(THREAD_STACK_SIZE).spawn(move || {
        for message in messages {
            let Some(mark) =
                packet_mark_of_action_id(&message["message"]["management_container"]["action_id"])
            else {
                continue;
            };
            let map = api::get(&socket, "/v1/ldm?type=denm").unwrap_or_default();
            let at = clock::monotonic_now();
            let all = map["events"].as_array().map(Vec::as_slice).unwrap_or_default();
            if all.iter().any(|event| packet_mark_of_action_id(&event["action_id"]) == Some(mark)) {
                events.lock().unwrap_or_else(PoisonError::into_inner).push(ReceivedBroadcast {
                    node,
                    mark,
                    received_at: at,
                });
            }
        }
    })?;
    Ok(())
}

/// Searches the maps of all stations twice a second for objects of outsiders. The data of a CAM stays on a
/// map for more than half a second.
fn watch_for_outsiders(
    medium: Option<&Medium>,
    stations: &[Station],
    maps: &Arc<Mutex<MapObjectCounts>>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    // If a config has no station ID, the station ID is the last four octets of the GN address.
    let number = |node: &String| {
        let [_, _, id @ ..] = medium?.radio_address(node)?;
        Some(u64::from(u32::from_be_bytes(id)))
    };
    let (outside, inside): (Vec<&Station>, Vec<&Station>) = stations.iter().partition(|s| s.is_outsider);
    let outsiders: Vec<u64> = outside.iter().filter_map(|station| number(&station.node)).collect();
    let sockets: Vec<PathBuf> = inside.iter().map(|station| station.control_socket.clone()).collect();
    let (maps, stop) = (maps.clone(), stop.clone());
    std::thread::Builder::new().stack_size(THREAD_STACK_SIZE).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            for socket in &sockets {
                let Ok(map) = api::get(socket, "/v1/ldm") else { continue };
                let list = |name: &str| map[name].as_array().cloned().unwrap_or_default();
                let named = list("stations").into_iter().map(|station| station["station_id"].as_u64());
                let told = list("events")
                    .into_iter()
                    .map(|event| event["action_id"]["originating_station_id"].as_u64());
                let mut maps = maps.lock().unwrap_or_else(PoisonError::into_inner);
                for id in named.chain(told).flatten() {
                    match outsiders.contains(&id) {
                        true => maps.objects_of_outsiders += 1,
                        false => maps.objects_of_stations += 1,
                    }
                }
            }
            clock::sleep(SECOND / 2);
        }
    })?;
    Ok(())
}

/// Returns the name of an event (station and sequence number) as a mark; `None` if `id` has no such numbers.
fn packet_mark_of_action_id(id: &Value) -> Option<PacketMark> {
    let number = |name: &str| u32::try_from(id[name].as_u64()?).ok();
    Some((number("originating_station_id")?, number("sequence_number")?))
}

/// Minimum common period of broadcasts, in nanoseconds, for which the lab keeps their packets apart. With a
/// shorter period their packets meet anyway.
const MIN_COMMON_PERIOD: u64 = 10 * MILLISECOND;

/// Returns the time from the begin of the timetable to the first packet of each broadcast, from the intervals
/// of the broadcasts. With these times no two packets are ever sent at once. Otherwise nodes with an idle
/// channel would transmit both at once, and no node would receive either of them. The times of all packets
/// repeat with the greatest common divisor of the intervals, so each broadcast has its own part of that
/// period.
fn sending_offsets(intervals: &[u64]) -> Vec<u64> {
    let common = intervals.iter().copied().fold(0, greatest_common_divisor);
    let parts = (intervals.len() as u64 + 4).max(20);
    let offset = |(flow, interval): (u64, &u64)| {
        let period = if common >= MIN_COMMON_PERIOD { common } else { *interval };
        (u128::from(period) * u128::from(flow + 1) / u128::from(parts)) as u64
    };
    (0..).zip(intervals).map(offset).collect()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

struct BroadcastSender {
    flow_number: u32,
    broadcast: GnBroadcast,
    socket: PathBuf,
    track: Track,
    origin: MapOrigin,
    stop: Arc<AtomicBool>,
    refusals: RefusalsByReason,
    failure: Arc<Mutex<Option<String>>>,
}

impl BroadcastSender {
    /// Sends the packets until `end`, the first at `first`.
    fn send_broadcasts(self, epoch: u64, first: u64, end: u64) -> Vec<SentBroadcast> {
        let mut all = Vec::new();
        let interval = self.broadcast.interval.get_ref().0;
        for number in 0.. {
            let at = first + u64::from(number) * interval;
            while clock::monotonic_now() < at && !self.stop.load(Ordering::Relaxed) {
                clock::sleep_until(at.min(clock::monotonic_now() + 50 * MILLISECOND));
            }
            if at + MAX_BROADCAST_DURATION > end || self.stop.load(Ordering::Relaxed) {
                break;
            }
            let now = clock::monotonic_now();
            let place = self.track.position_at(seconds_since(now, epoch));
            let mark = (self.flow_number, number);
            let Some(center) = self.broadcast.center.map(|(x, y)| Point { x, y }).or(place) else {
                self.count_refusal("the vehicle is not there yet, or any more");
                all.push(SentBroadcast { mark, sent_at: now, center: None, is_refused: true });
                continue;
            };
            let (latitude, longitude) = self.origin.to_degrees(center);
            let radius = self.broadcast.radius.get_ref().0.round();
            let place = json!({"latitude": latitude, "longitude": longitude});
            let area = json!({"circle": {
                "latitude": latitude, "longitude": longitude, "radius_m": radius as u64}});
            let sent = if self.broadcast.denm {
                // Cause code 94 is a stationary vehicle.
                let event =
                    json!({"cause": 94, "position": place, "area": area, "validity_s": VALIDITY_SECONDS});
                api::post_json(&self.socket, "/v1/denm", &event).and_then(|made| {
                    packet_mark_of_action_id(&made["action_id"]).context("the event has no name")
                })
            } else {
                let packet = json!({
                    "transport": {"type": "gbc", "area": area},
                    "payload": marked_payload(mark, *self.broadcast.size.get_ref()),
                    "lifetime_ms": MAX_BROADCAST_DURATION / MILLISECOND * 10,
                });
                api::post_json(&self.socket, "/v1/gnsend", &packet).map(|_| mark)
            };
            match sent {
                Ok(mark) => {
                    all.push(SentBroadcast { mark, sent_at: now, center: Some(center), is_refused: false })
                }
                Err(error)
                    if error.downcast_ref().is_some_and(|refused: &RequestRefused| refused.status == 409) =>
                {
                    self.count_refusal(
                        &error.downcast_ref().map_or(String::new(), |r: &RequestRefused| r.reason.clone()),
                    );
                    all.push(SentBroadcast { mark, sent_at: now, center: Some(center), is_refused: true });
                }
                Err(error) => {
                    let told = format!("broadcast {} failed: {error:#}", self.broadcast.name);
                    *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
                    break;
                }
            }
        }
        all
    }
}

impl BroadcastSender {
    /// Counts a packet that the station refused to send.
    fn count_refusal(&self, said: &str) {
        let reason = said.rsplit_once(NOT_SENT_MESSAGE).map_or(said, |(_, reason)| reason);
        let told = format!("{}: packets were not sent: {reason}", self.broadcast.name);
        *self.refusals.lock().unwrap_or_else(PoisonError::into_inner).entry(told).or_default() += 1;
    }
}

fn seconds_since(at: u64, epoch: u64) -> f64 {
    (at as f64 - epoch as f64) / 1e9
}

impl RunningGeonetTraffic {
    /// Fails if a program has ended too early, or has failed.
    pub fn restart_or_check(&mut self) -> anyhow::Result<()> {
        for pinging in &mut self.running_pings {
            pinging.restart_or_check(&self.refusals_by_reason)?;
        }
        match self.first_failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => bail!(failure),
            None => Ok(()),
        }
    }

    /// Returns the refusals so far, with their reasons.
    pub fn refusal_messages(&self) -> Vec<String> {
        let refusals = self.refusals_by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.iter().map(|(told, count)| format!("{told} ({count} times)")).collect()
    }

    /// Returns how many objects the maps of the stations had so far; `None` if the scenario has no outsiders.
    pub fn map_object_counts(&self) -> Option<MapObjectCounts> {
        Some(*self.map_object_counts.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until every ping request is answered or has timed out, then ends the traffic and returns the
    /// results. `end` is the end of the timetable. `on_air` has the medium's counts of transmissions.
    pub fn finish(
        mut self,
        scenario: &Scenario,
        end: u64,
        on_air: &BTreeMap<PacketMark, PacketTransmissions>,
    ) -> anyhow::Result<(Vec<GnPings>, Vec<BroadcastResults>)> {
        self.stop.store(true, Ordering::Relaxed);
        let longest = self.running_pings.iter().map(|pinging| pinging.ping.timeout.0).max();
        if let Some(timeout) = longest {
            clock::sleep_until(end + timeout + LATE_REPORT_MARGIN);
        }
        let mut pings = Vec::new();
        for pinging in &mut self.running_pings {
            pinging.end_program();
            let (name, label) = (pinging.ping.name.clone(), pinging.ping.label.clone());
            pings.push(GnPings { name, label, requests: pinging.ping_requests() });
        }
        let deliveries = self.received_broadcasts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let events = self.events_of_local_dynamic_map.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut broadcasts = Vec::new();
        let tracks: Vec<&Track> = scenario.tracks.values().collect();
        for (broadcast, thread) in std::mem::take(&mut self.broadcast_senders) {
            let name = broadcast.name.clone();
            let sent = thread.join().map_err(|_| anyhow!("the sender of broadcast {name} panicked"))?;
            // Leave out the sender, and attackers (outsiders).
            let apart = |name: &String| {
                name == broadcast.from.get_ref() || scenario.nodes.get(name).is_some_and(|node| node.outsider)
            };
            let apart: Vec<usize> =
                (0..).zip(scenario.tracks.keys()).filter(|(_, name)| apart(name)).map(|(n, _)| n).collect();
            let radius = broadcast.radius.get_ref().0;
            let judge = |sent: &SentBroadcast| {
                let mark = sent.mark;
                let deliveries = if broadcast.denm { &events } else { &deliveries };
                let mine: Vec<ReceivedBroadcast> =
                    deliveries.iter().filter(|d| d.mark == mark).copied().collect();
                let flood = judge_broadcast(sent, &apart, radius, scenario.epoch, &tracks, &mine);
                let on_air = on_air.get(&mark).filter(|_| !broadcast.denm).cloned().unwrap_or_default();
                BroadcastResult {
                    transmissions: on_air.transmissions,
                    unicast: on_air.unicast,
                    senders: on_air.sending_radios.len() as u64,
                    ..flood
                }
            };
            let floods = sent.iter().map(judge).collect();
            broadcasts.push(BroadcastResults {
                name,
                label: broadcast.label.clone(),
                radius,
                broadcasts: floods,
            });
        }
        Ok((pings, broadcasts))
    }
}

impl Drop for RunningGeonetTraffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.running_pings.iter_mut().for_each(RunningGnPing::end_program);
    }
}

/// Determines which nodes should have received a broadcast, and which of them did. The nodes in `apart` do
/// not count.
pub(super) fn judge_broadcast(
    sent: &SentBroadcast,
    apart: &[usize],
    radius: f64,
    epoch: u64,
    tracks: &[&Track],
    deliveries: &[ReceivedBroadcast],
) -> BroadcastResult {
    let mut flood = BroadcastResult {
        sent_at: sent.sent_at,
        center: sent.center,
        is_refused: sent.is_refused,
        ..BroadcastResult::default()
    };
    let Some(center) = sent.center else { return flood };
    let distance =
        |track: &Track, at: u64| track.position_at(seconds_since(at, epoch)).map(|p| p.distance_to(center));
    let times = [
        sent.sent_at.saturating_sub(POSITION_UPDATE_INTERVAL),
        sent.sent_at,
        sent.sent_at + MAX_BROADCAST_DURATION,
    ];
    for (node, track) in tracks.iter().enumerate().filter(|(n, _)| !apart.contains(n)) {
        let distances = times.map(|at| distance(track, at));
        let inside = distances.iter().all(|d| d.is_some_and(|d| d <= radius - AREA_EDGE_METRES));
        let outside = distances.iter().all(|d| d.is_none_or(|d| d >= radius + AREA_EDGE_METRES));
        let mut arrivals: Vec<u64> =
            deliveries.iter().filter(|d| d.node == node).map(|d| d.received_at).collect();
        arrivals.sort_unstable();
        flood.receivers_inside += u64::from(inside);
        flood.duplicates += arrivals.len().saturating_sub(1) as u64;
        if let Some(first) = arrivals.first() {
            flood.received_inside += u64::from(inside);
            flood.received_outside += u64::from(outside);
            if inside {
                flood.delays_ms.push(first.saturating_sub(sent.sent_at) as f64 / 1e6);
            }
        }
    }
    flood
}

/// Returns the requests from the output of `carnet gnping --json`. Each line has the time at which the lab
/// read it.
fn parse_ping_requests(events: &[(u64, Value)], timeout: u64) -> Vec<PingRequest> {
    let mut all: BTreeMap<u64, PingRequest> = BTreeMap::new();
    for (at, event) in events {
        let Some(sequence) = event["sequence"].as_u64() else { continue };
        if event["event"] == "answer" {
            let (Some(rtt), Some(hops)) = (event["rtt_ms"].as_f64(), event["hops"].as_u64()) else {
                continue;
            };
            let sent = at.saturating_sub((rtt * 1e6) as u64);
            all.entry(sequence).or_insert((sent, Vec::new())).1.push((rtt, hops));
        } else if event["event"] == "timeout" {
            all.entry(sequence).or_insert((at.saturating_sub(timeout), Vec::new()));
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_hexadecimal_text_is_parsed_as_no_octets() {
        assert_eq!(octets_of_hex("0a0b"), [10, 11]);
        assert!(octets_of_hex("0g").is_empty());
    }

    /// At the time of sending, one node leaves the circle of 200 m, one has no position and one has just
    /// disappeared. The others are at 0 (the sender), 100, 198 and 300 m from the centre.
    #[test]
    fn expected_broadcast_receivers_follow_positions() {
        let at = |x: f64| Point { x, y: 0.0 };
        let fixed = [0.0, 100.0, 198.0, 300.0].map(|x| Track::fixed_at(at(x)));
        let leaves = Track::moving(vec![(0.0, at(190.0)), (1.0, at(220.0))]).expect("is good");
        let left = Track::moving(vec![(-1.0, at(190.0)), (0.0, at(220.0))]).expect("is good");
        let gone = Track::appearing_and_disappearing(vec![(5.0, at(0.0))]).expect("is good");
        let tracks: Vec<&Track> = fixed.iter().chain([&leaves, &gone, &left]).collect();
        let sent =
            SentBroadcast { mark: (0, 0), sent_at: 7 * SECOND, center: Some(at(0.0)), is_refused: false };
        let deliveries = |nodes: &[usize]| -> Vec<ReceivedBroadcast> {
            let delivery = |(n, node): (usize, &usize)| ReceivedBroadcast {
                node: *node,
                mark: (0, 0),
                received_at: 7 * SECOND + (n as u64 + 1) * MILLISECOND,
            };
            nodes.iter().enumerate().map(delivery).collect()
        };
        let judge = |nodes: &[usize]| {
            let flood = judge_broadcast(&sent, &[0], 200.0, 7 * SECOND, &tracks, &deliveries(nodes));
            (
                flood.receivers_inside,
                flood.received_inside,
                flood.duplicates,
                flood.received_outside,
                flood.delays_ms,
            )
        };
        assert_eq!(judge(&[]), (1, 0, 0, 0, vec![]));
        assert_eq!(judge(&[2, 1, 4]), (1, 1, 0, 0, vec![2.0]));
        assert_eq!(judge(&[4, 6]), (1, 0, 0, 0, vec![]));
        assert_eq!(judge(&[1, 1, 3, 5]), (1, 1, 1, 2, vec![1.0]));
    }

    #[test]
    fn two_broadcasts_are_never_sent_at_the_same_time() {
        for intervals in [&[500, 250][..], &[250, 500], &[1000, 1000, 1000, 1000], &[500, 1000], &[100; 40]] {
            let intervals: Vec<u64> = intervals.iter().map(|interval| interval * MILLISECOND).collect();
            let offsets = sending_offsets(&intervals);
            let sent_by = |flow: usize| (0..100).map(move |n| (flow, n));
            let mut times: Vec<u64> = (0..intervals.len())
                .flat_map(sent_by)
                .map(|(flow, number)| offsets[flow] + number * intervals[flow])
                .collect();
            times.sort_unstable();
            let apart = times.windows(2).map(|pair| pair[1] - pair[0]).min();
            assert!(apart >= Some(2 * MILLISECOND), "{intervals:?}: {apart:?}");
            assert!(offsets.iter().zip(&intervals).all(|(offset, interval)| offset < interval));
        }
        assert_eq!(sending_offsets(&[]), [0; 0]);
        assert_eq!(sending_offsets(&[7, u64::MAX]), [0, u64::MAX / 10]);
    }

    #[test]
    fn gnping_requests_are_matched_with_answers() {
        let answer = |sequence: u64, rtt: f64, hops: u64| {
            json!({"event": "answer", "sequence": sequence, "rt\
            t_ms": rtt, "hops": hops})
        };
        let events = [
            (10 * MILLISECOND, answer(1, 4.0, 2)),
            (12 * MILLISECOND, answer(1, 6.0, 3)),
            (1100 * MILLISECOND, json!({"event": "timeout", "sequence": 2})),
            (1200 * MILLISECOND, json!({"event": "done", "sent": 2, "answered": 1})),
        ];
        let requests = parse_ping_requests(&events, SECOND);
        assert_eq!(requests, [(6 * MILLISECOND, vec![(4.0, 2), (6.0, 3)]), (100 * MILLISECOND, vec![])]);
    }
}
