//! GeoNetworking with three stations in a line; the outer stations are out of range of each other.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fast_path::has_strace;
use crate::hosts::{Host, Scratch, assert_same, possible, said, seconds, wait_for, wait_until};
use crate::station::{PROGRAM, Station};

/// Longitudes of the stations, 400 m apart.
const LONGITUDES: [f64; 3] = [2.1008, 2.10625, 2.1117];
const LATITUDE: f64 = 48.8375;

pub struct Line {
    pub hosts: [Host; 3],
    pub scratch: Scratch,
}

impl Line {
    /// Creates the hosts. The host in the middle is a bridge that isolates its two ports from each other.
    pub fn new() -> Line {
        let hosts = [Host::new(), Host::new(), Host::new()];
        let [west, middle, east] = &hosts;
        middle.ip("link add br0 type bridge mcast_snooping 0");
        for (port, neighbour) in [("w", west), ("e", east)] {
            middle.link(port, neighbour, "radio");
            middle.ip(&format!("link set {port} master br0"));
            middle.ip(&format!("link set {port} type bridge_slave isolated on"));
        }
        middle.ip("link set br0 up");
        for (index, (host, interface)) in
            [(west, "radio"), (middle, "br0"), (east, "radio")].iter().enumerate()
        {
            host.ip(&format!("addr add 192.0.2.{}/24 dev {interface}", index + 1));
        }
        wait_until("the line stands", seconds(10), || {
            [1, 3].iter().all(|last| middle.pings_v4(&format!("192.0.2.{last}")))
        });
        wait_until("its addresses can be used", seconds(10), || {
            [(west, "radio"), (middle, "br0"), (east, "radio")].iter().all(|(host, interface)| {
                let shown = host.ip(&format!("-6 addr show dev {interface}"));
                shown.contains("fe80::") && !shown.contains("tentative")
            }) && !middle.ip("-6 addr show").contains("tentative")
        });
        Line { hosts, scratch: Scratch::new() }
    }

    pub fn config(&self, index: usize, interface: &str, more: &str) -> String {
        let socket = self.scratch.path(&format!("s{index}.sock"));
        let longitude = LONGITUDES[index];
        format!(
            "[station]\n\
             name = 's{index}'\n\
             socket = '{}'\n\
             {more}\n\
             [geonet]\n\
             interface = '{interface}'\n\
             position = 'fixed:{LATITUDE},{longitude}'\n\
             beacon = {{ interval = '300ms', jitter = '100ms' }}\n\
             \n\
             [[geonet.area]]\n\
             name = 'everywhere'\n\
             shape = 'circle'\n\
             center = [{LATITUDE}, {}]\n\
             radius = '1km'\n\
             \n\
             [[geonet.area]]\n\
             name = 'east'\n\
             shape = 'circle'\n\
             center = [{LATITUDE}, {}]\n\
             radius = '100m'\n",
            socket.display(),
            LONGITUDES[1],
            LONGITUDES[2]
        )
    }

    fn start(&self, interfaces: [&str; 3]) -> [Station; 3] {
        let stations = [0, 1, 2].map(|i| Station::start(&self.hosts[i], &self.config(i, interfaces[i], "")));
        for (station, neighbours) in stations.iter().zip([1, 2, 1]) {
            wait_until("everybody knows the neighbours", seconds(10), || {
                station.show("neighbours").as_array().map(Vec::len) == Some(neighbours)
            });
        }
        stations
    }
}

fn address(station: &Station) -> String {
    station.show("status")["geonet"]["gn_address"].as_str().expect("an address").to_owned()
}

/// Runs `carnet gnping --json`, and returns its events.
fn ping(station: &Station, target: &str, more: &[&str]) -> Vec<Value> {
    let output = station.ask(&[&["gnping", target, "--json"], more].concat());
    assert!(output.status.success(), "{}\n{}", said(&output), station.log());
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn answers(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "answer").collect()
}

/// Returns the median of the round-trip times in milliseconds.
fn median(events: &[Value]) -> f64 {
    let mut times: Vec<f64> = answers(events).iter().filter_map(|answer| answer["rtt_ms"].as_f64()).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Starts `carnet gnrecv`. Returns the process and the file with its output.
fn receive(station: &Station, scratch: &Scratch) -> (Child, std::path::PathBuf) {
    let path = scratch.path("received");
    let out = File::create(&path).expect("a file");
    let socket = station.socket.to_str().expect("a path").to_owned();
    let child = Command::new(PROGRAM)
        .args(["gnrecv", "--socket", &socket])
        .stdin(Stdio::null())
        .stdout(out)
        .spawn()
        .expect("the program");
    (child, path)
}

fn works_over(interfaces: [&str; 3], medium: &str) {
    if !possible() {
        return;
    }
    let line = Line::new();
    let before: Vec<String> = line.hosts.iter().map(Host::snapshot).collect();
    let mut stations = line.start(interfaces);
    let [west, middle, east] = &stations;

    let neighbours = west.show("neighbours");
    assert_eq!(neighbours[0]["gn_address"], address(middle).as_str(), "{neighbours}");
    assert_eq!(neighbours[0]["longitude"], LONGITUDES[1], "{neighbours}");
    assert!(neighbours[0]["age_ms"].as_u64().is_some_and(|age| age < 3000), "{neighbours}");
    let status = west.show("status");
    assert_eq!((&status["geonet"]["position"], &status["roles"][0]), (&"fix".into(), &"geonet".into()));
    let areas = west.show("areas");
    assert_eq!((&areas[0]["inside"], &areas[1]["inside"]), (&true.into(), &false.into()), "{areas}");

    let near = ping(west, &address(middle), &["--count", "20", "--interval", "50ms"]);
    let far = ping(west, &address(east), &["--count", "20", "--interval", "50ms"]);
    for (events, hops) in [(&near, 1), (&far, 2)] {
        assert_eq!(events.last(), Some(&serde_json::json!({"event": "done", "sent": 20, "answered": 20})));
        assert!(answers(events).iter().all(|answer| answer["hops"] == hops), "{events:?}");
    }
    println!(
        "gnping over {medium}: median {:.3} ms over 1 hop, {:.3} ms over 2",
        median(&near),
        median(&far)
    );
    assert!(answers(&far).iter().all(|answer| answer["longitude"] == LONGITUDES[2]), "{far:?}");
    assert!(west.show("locations").as_array().is_some_and(|locations| locations.len() == 2));

    let all = ping(west, "area:everywhere", &["--count", "1", "--timeout", "1s"]);
    let mut hops: Vec<u64> = answers(&all).iter().filter_map(|answer| answer["hops"].as_u64()).collect();
    hops.sort_unstable();
    assert_eq!(hops, [1, 2], "{all:?}");
    let one = ping(west, "area:east", &["--count", "1", "--timeout", "1s"]);
    assert_eq!(answers(&one).len(), 1, "{one:?}");

    let (mut receiver, path) = receive(east, &line.scratch);
    let circle = format!("{LATITUDE},{},100", LONGITUDES[2]);
    let packet: Value = wait_for("a payload for the circle arrives", seconds(10), || {
        let sent = west.ask(&[
            "gnsend",
            "gbc",
            "--circle",
            &circle,
            "--next-header",
            "btp-b",
            "--port",
            "2002",
            "--payload",
            "c0ffee",
        ]);
        assert!(sent.status.success(), "{}", said(&sent));
        let text = fs::read_to_string(&path).expect("a file");
        text.lines().next().and_then(|line| serde_json::from_str(line).ok())
    });
    let _ = (receiver.kill(), receiver.wait());
    assert_eq!((&packet["type"], &packet["next_header"]), (&"gbc".into(), &"btp-b".into()), "{packet}");
    assert_eq!(packet["port"], 2002, "{packet}");
    assert_eq!((&packet["payload"], &packet["source"]), (&"c0ffee".into(), &address(west).into()));
    assert!(east.counter("geonet.link.received") > 0 && west.counter("geonet.link.sent") > 0);

    // The area moves with the station in the middle. It contains this station and the stations near it.
    let set = ["area", "convoy", "--around", &address(middle), "--radius", "50m", "--lifetime", "10m"];
    assert!(west.ask(&set).status.success(), "{}", said(&west.ask(&set)));
    let convoy = ping(west, "area:convoy", &["--count", "1", "--timeout", "1s"]);
    let answered: Vec<&Value> = answers(&convoy).iter().map(|answer| &answer["gn_address"]).collect();
    assert_eq!(answered, [address(middle).as_str()], "{convoy:?}");
    let areas = west.show("areas");
    assert_eq!((&areas[2]["name"], &areas[2]["origin"]), (&"convoy".into(), &"api".into()), "{areas}");
    assert_eq!(areas[2]["longitude"], LONGITUDES[1], "{areas}");
    let theirs = west.ask(&["area", "east", "--remove"]);
    assert!(said(&theirs).contains("the config defines the area \"east\""), "{}", said(&theirs));
    assert!(west.ask(&["area", "convoy", "--remove"]).status.success());
    assert_eq!(west.show("areas").as_array().map(Vec::len), Some(2));

    let nobody = west.ask(&["gnping", "area:nowhere"]);
    assert!(
        !nobody.status.success() && said(&nobody).contains("expected the name of an area"),
        "{}",
        said(&nobody)
    );
    let silent = west.ask(&["gnping", "02:00:00:00:00:99", "--count", "1", "--timeout", "300ms"]);
    assert!(!silent.status.success() && said(&silent).contains("no answer"), "{}", said(&silent));

    let changed = line.config(0, interfaces[0], "").replace("radius = '100m'", "radius = '200m'");
    west.reload(&changed);
    assert!(west.log().contains("a change in [geonet] needs a restart"), "{}", west.log());

    stations.iter_mut().for_each(Station::terminate);
    for (host, before) in line.hosts.iter().zip(&before) {
        assert_same(before, &host.snapshot(), "after the end");
    }
}

#[test]
fn three_stations_in_a_line_over_frames_reach_each_other() {
    works_over(["radio", "br0", "radio"], "frames");
}

#[test]
fn three_stations_in_a_line_over_udp_reach_each_other() {
    works_over(
        [
            "udp:192.0.2.1:8947,192.0.2.2:8947",
            "udp:192.0.2.2:8947,192.0.2.1:8947,192.0.2.3:8947",
            "udp:192.0.2.3:8947,192.0.2.2:8947",
        ],
        "UDP",
    );
}

/// The station refuses a packet that the link would not take, with an error.
#[test]
fn a_packet_that_cannot_be_sent_is_refused() {
    if !possible() {
        return;
    }
    let line = Line::new();
    line.hosts[0].ip("link set radio mtu 600");
    let mut station = Station::start(&line.hosts[0], &line.config(0, "radio", ""));
    let octets = |count: usize| "00".repeat(count);
    let send = |arguments: &[&str], count: usize| {
        station.ask(&[&["gnsend"], arguments, &["--payload", &octets(count)]].concat())
    };
    let here = format!("{LATITUDE},{},100", LONGITUDES[0]);
    for (arguments, most) in [
        (&["shb"][..], 560),
        (&["tsb"], 560),
        (&["gbc", "--circle", &here], 544),
        (&["gac", "--circle", &here], 544),
    ] {
        let sent = send(arguments, most);
        assert!(sent.status.success(), "{arguments:?}: {}", said(&sent));
        let refused = send(arguments, most + 1);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            said(&refused).contains(&format!("expected at most {most} over this link")),
            "{}",
            said(&refused)
        );
    }
    assert!(!send(&["guc", "--to", "02:00:00:00:00:99"], 541).status.success());
    assert_eq!(station.counter("geonet.dropped.link_too_long"), 0);

    line.hosts[0].ip("link set radio down");
    wait_until("the link is down", seconds(10), || station.show("status")["geonet"]["link"] == "down");
    for refused in [send(&["shb"], 1), station.ask(&["gnping", "area:everywhere", "--count", "1"])] {
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            said(&refused).contains("the radio interface of GeoNetworking is down"),
            "{}",
            said(&refused)
        );
    }
    // A packet with store-carry-forward may wait until a station appears. So the command accepts such a
    // packet although the link is down.
    let stored = send(&["gbc", "--circle", &here, "--scf"], 1);
    assert!(stored.status.success(), "{}", said(&stored));
    station.terminate();
}

/// The recording has the address of the interface, so a replay needs no interface.
#[test]
fn a_recording_replays_every_frame() {
    if !possible() {
        return;
    }
    let line = Line::new();
    let recording = line.scratch.path("recording");
    let more = format!("record = '{}'\n", recording.display());
    let mut first = Station::start(&line.hosts[0], &line.config(0, "radio", &more));
    let mut second = Station::start(&line.hosts[1], &line.config(1, "br0", ""));
    wait_until("a neighbour", seconds(10), || first.show("neighbours").as_array().map(Vec::len) == Some(1));
    ping(&first, &address(&second), &["--count", "3", "--interval", "50ms"]);
    let sent = first.counter("geonet.link.sent");
    first.terminate();
    second.terminate();
    let config = first.config.to_str().expect("a path");
    let output = crate::station::carnet(&["replay", "--config", config, recording.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let frames = text.lines().filter(|line| line.contains("\"frame\"")).count() as u64;
    assert!(frames >= sent && frames <= sent + 3, "{frames} frames, {sent} were sent");
    assert_eq!(text.lines().filter(|line| line.contains("\"delivered\"")).count(), 3, "{text}");
}

/// `strace` holds the loading thread at its first load request until the test ends `strace`, as if the
/// processor were very slow.
#[test]
fn station_forwards_frames_while_the_programs_of_the_fast_path_are_being_loaded() {
    if !possible() || !has_strace() {
        return;
    }
    let line = Line::new();
    let trace = line.scratch.path("s1.trace");
    let file = trace.to_str().expect("a path");
    let hold = "inject=bpf:delay_enter=3600s";
    let wrapper = ["strace", "-D", "-f", "-qq", "-o", file, "-e", "trace=bpf", "-e", hold];
    let west = Station::start(&line.hosts[0], &line.config(0, "radio", ""));
    let east = Station::start(&line.hosts[2], &line.config(2, "radio", ""));
    let config = line.config(1, "br0", "") + "[dataplane]\npath = 'bpf'\n";
    let mut middle = Station::spawn(&line.hosts[1], &config, &wrapper, PROGRAM);
    let held = Held(middle.pid());
    let path = |what: &str| middle.show("status")["geonet"][what].clone();
    // If the station loaded the programs on its main thread, it would never get ready here.
    wait_until("the station is up", seconds(20), || middle.log().contains("station s1 is running"));
    let status = ["timeout", "10", PROGRAM, "status", "--socket", middle.socket.to_str().expect("a path")];
    wait_until("it answers", seconds(20), || line.hosts[1].output(&status).status.success());
    assert_eq!(path("path_loading"), "bpf");
    for station in [&west, &east] {
        wait_until("the middle one is heard", seconds(20), || station.show("neighbours")[0].is_object());
    }
    wait_until("both are heard", seconds(20), || {
        middle.show("neighbours").as_array().map(Vec::len) == Some(2)
    });
    let events = ping(&west, &address(&east), &["--count", "5"]);
    assert_eq!(answers(&events).len(), 5, "{events:?}");
    assert_eq!((path("path_loading"), path("path")), ("bpf".into(), "tun".into()));
    drop(held);
    middle.accelerated();
    wait_until("the fast path is in use", seconds(20), || path("path") == "bpf");
    middle.terminate();
}

/// Process ID of a process that `strace` holds. Dropping the value kills the process, which would not end by
/// itself.
struct Held(i32);

impl Drop for Held {
    fn drop(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        let tracer = line.and_then(|line| line.trim().parse().ok()).filter(|tracer| *tracer > 0);
        if let Some(tracer) = tracer {
            let _ = kill(Pid::from_raw(tracer), Signal::SIGKILL);
        }
    }
}
