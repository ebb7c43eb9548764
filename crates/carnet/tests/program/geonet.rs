//! GeoNetworking with three stations in a line; the outer stations are out of range of each other.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fast_path::has_strace;
use crate::hosts::{
    Host, ScratchFolder, assert_same_state, can_run_or_report, output_text, seconds, wait_for, wait_until,
};
use crate::station::{CARNET_PROGRAM, Station};

/// Longitudes of the stations, 400 m apart.
const STATION_LONGITUDES: [f64; 3] = [2.1008, 2.10625, 2.1117];
const STATION_LATITUDE: f64 = 48.8375;

pub struct StationLine {
    pub hosts: [Host; 3],
    pub scratch: ScratchFolder,
}

impl StationLine {
    /// Creates the hosts. The host in the middle is a bridge that isolates its two ports from each other.
    pub fn new() -> StationLine {
        let hosts = [Host::new(), Host::new(), Host::new()];
        let [west, middle, east] = &hosts;
        middle.run_ip("link add br0 type bridge mcast_snooping 0");
        for (port, neighbour) in [("w", west), ("e", east)] {
            middle.create_link(port, neighbour, "radio");
            middle.run_ip(&format!("link set {port} master br0"));
            middle.run_ip(&format!("link set {port} type bridge_slave isolated on"));
        }
        middle.run_ip("link set br0 up");
        for (index, (host, interface)) in
            [(west, "radio"), (middle, "br0"), (east, "radio")].iter().enumerate()
        {
            host.run_ip(&format!("addr add 192.0.2.{}/24 dev {interface}", index + 1));
        }
        wait_until("the line stands", seconds(10), || {
            [1, 3].iter().all(|last| middle.can_ping_ipv4(&format!("192.0.2.{last}")))
        });
        wait_until("its addresses can be used", seconds(10), || {
            [(west, "radio"), (middle, "br0"), (east, "radio")].iter().all(|(host, interface)| {
                let shown = host.run_ip(&format!("-6 addr show dev {interface}"));
                shown.contains("fe80::") && !shown.contains("tentative")
            }) && !middle.run_ip("-6 addr show").contains("tentative")
        });
        StationLine { hosts, scratch: ScratchFolder::new() }
    }

    pub fn station_config(&self, index: usize, interface: &str, more: &str) -> String {
        let socket = self.scratch.path_of(&format!("s{index}.sock"));
        let longitude = STATION_LONGITUDES[index];
        format!(
            "[station]\n\
             name = 's{index}'\n\
             socket = '{}'\n\
             {more}\n\
             [geonet]\n\
             interface = '{interface}'\n\
             position = 'fixed:{STATION_LATITUDE},{longitude}'\n\
             beacon = {{ interval = '300ms', jitter = '100ms' }}\n\
             \n\
             [[geonet.area]]\n\
             name = 'everywhere'\n\
             shape = 'circle'\n\
             center = [{STATION_LATITUDE}, {}]\n\
             radius = '1km'\n\
             \n\
             [[geonet.area]]\n\
             name = 'east'\n\
             shape = 'circle'\n\
             center = [{STATION_LATITUDE}, {}]\n\
             radius = '100m'\n",
            socket.display(),
            STATION_LONGITUDES[1],
            STATION_LONGITUDES[2]
        )
    }

    fn start_stations(&self, interfaces: [&str; 3]) -> [Station; 3] {
        let stations =
            [0, 1, 2].map(|i| Station::start(&self.hosts[i], &self.station_config(i, interfaces[i], "")));
        for (station, neighbours) in stations.iter().zip([1, 2, 1]) {
            wait_until("everybody knows the neighbours", seconds(10), || {
                station.show_json("neighbours").as_array().map(Vec::len) == Some(neighbours)
            });
        }
        stations
    }
}

fn gn_address(station: &Station) -> String {
    station.show_json("status")["geonet"]["gn_address"].as_str().expect("an address").to_owned()
}

/// Runs `carnet gnping --json`, and returns its events.
fn run_gnping(station: &Station, target: &str, more: &[&str]) -> Vec<Value> {
    let output = station.run_command(&[&["gnping", target, "--json"], more].concat());
    assert!(output.status.success(), "{}\n{}", output_text(&output), station.log_text());
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn ping_answers(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "answer").collect()
}

/// Returns the median of the round-trip times in milliseconds.
fn median_round_trip_ms(events: &[Value]) -> f64 {
    let mut times: Vec<f64> =
        ping_answers(events).iter().filter_map(|answer| answer["rtt_ms"].as_f64()).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Starts `carnet gnrecv`. Returns the process and the file with its output.
fn start_gnrecv(station: &Station, scratch: &ScratchFolder) -> (Child, std::path::PathBuf) {
    let path = scratch.path_of("received");
    let out = File::create(&path).expect("a file");
    let socket = station.control_socket.to_str().expect("a path").to_owned();
    let child = Command::new(CARNET_PROGRAM)
        .args(["gnrecv", "--socket", &socket])
        .stdin(Stdio::null())
        .stdout(out)
        .spawn()
        .expect("the program");
    (child, path)
}

fn check_stations_reach_each_other(interfaces: [&str; 3], medium: &str) {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let before: Vec<String> = line.hosts.iter().map(Host::kernel_state).collect();
    let mut stations = line.start_stations(interfaces);
    let [west, middle, east] = &stations;

    let neighbours = west.show_json("neighbours");
    assert_eq!(neighbours[0]["gn_address"], gn_address(middle).as_str(), "{neighbours}");
    assert_eq!(neighbours[0]["longitude"], STATION_LONGITUDES[1], "{neighbours}");
    assert!(neighbours[0]["age_ms"].as_u64().is_some_and(|age| age < 3000), "{neighbours}");
    let status = west.show_json("status");
    assert_eq!((&status["geonet"]["position"], &status["roles"][0]), (&"fix".into(), &"geonet".into()));
    let areas = west.show_json("areas");
    assert_eq!((&areas[0]["inside"], &areas[1]["inside"]), (&true.into(), &false.into()), "{areas}");

    let near = run_gnping(west, &gn_address(middle), &["--count", "20", "--interval", "50ms"]);
    let far = run_gnping(west, &gn_address(east), &["--count", "20", "--interval", "50ms"]);
    for (events, hops) in [(&near, 1), (&far, 2)] {
        assert_eq!(events.last(), Some(&serde_json::json!({"event": "done", "sent": 20, "answered": 20})));
        assert!(ping_answers(events).iter().all(|answer| answer["hops"] == hops), "{events:?}");
    }
    println!(
        "gnping over {medium}: median {:.3} ms over 1 hop, {:.3} ms over 2",
        median_round_trip_ms(&near),
        median_round_trip_ms(&far)
    );
    assert!(ping_answers(&far).iter().all(|answer| answer["longitude"] == STATION_LONGITUDES[2]), "{far:?}");
    assert!(west.show_json("locations").as_array().is_some_and(|locations| locations.len() == 2));

    let all = run_gnping(west, "area:everywhere", &["--count", "1", "--timeout", "1s"]);
    let mut hops: Vec<u64> = ping_answers(&all).iter().filter_map(|answer| answer["hops"].as_u64()).collect();
    hops.sort_unstable();
    assert_eq!(hops, [1, 2], "{all:?}");
    let one = run_gnping(west, "area:east", &["--count", "1", "--timeout", "1s"]);
    assert_eq!(ping_answers(&one).len(), 1, "{one:?}");

    let (mut receiver, path) = start_gnrecv(east, &line.scratch);
    let circle = format!("{STATION_LATITUDE},{},100", STATION_LONGITUDES[2]);
    let packet: Value = wait_for("a payload for the circle arrives", seconds(10), || {
        let sent = west.run_command(&[
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
        assert!(sent.status.success(), "{}", output_text(&sent));
        let text = fs::read_to_string(&path).expect("a file");
        text.lines().next().and_then(|line| serde_json::from_str(line).ok())
    });
    let _ = (receiver.kill(), receiver.wait());
    assert_eq!((&packet["type"], &packet["next_header"]), (&"gbc".into(), &"btp-b".into()), "{packet}");
    assert_eq!(packet["port"], 2002, "{packet}");
    assert_eq!((&packet["payload"], &packet["source"]), (&"c0ffee".into(), &gn_address(west).into()));
    assert!(east.counter("geonet.link.received") > 0 && west.counter("geonet.link.sent") > 0);

    // This area moves with the station in the middle. It contains this station and the stations close to it.
    let set = ["area", "convoy", "--around", &gn_address(middle), "--radius", "50m", "--lifetime", "10m"];
    assert!(west.run_command(&set).status.success(), "{}", output_text(&west.run_command(&set)));
    let convoy = run_gnping(west, "area:convoy", &["--count", "1", "--timeout", "1s"]);
    let answered: Vec<&Value> = ping_answers(&convoy).iter().map(|answer| &answer["gn_address"]).collect();
    assert_eq!(answered, [gn_address(middle).as_str()], "{convoy:?}");
    let areas = west.show_json("areas");
    assert_eq!((&areas[2]["name"], &areas[2]["origin"]), (&"convoy".into(), &"api".into()), "{areas}");
    assert_eq!(areas[2]["longitude"], STATION_LONGITUDES[1], "{areas}");
    let theirs = west.run_command(&["area", "east", "--remove"]);
    assert!(
        output_text(&theirs).contains("the config defines the area \"east\""),
        "{}",
        output_text(&theirs)
    );
    assert!(west.run_command(&["area", "convoy", "--remove"]).status.success());
    assert_eq!(west.show_json("areas").as_array().map(Vec::len), Some(2));

    let nobody = west.run_command(&["gnping", "area:nowhere"]);
    assert!(
        !nobody.status.success() && output_text(&nobody).contains("expected the name of an area"),
        "{}",
        output_text(&nobody)
    );
    let silent = west.run_command(&["gnping", "02:00:00:00:00:99", "--count", "1", "--timeout", "300ms"]);
    assert!(
        !silent.status.success() && output_text(&silent).contains("no answer"),
        "{}",
        output_text(&silent)
    );

    let changed = line.station_config(0, interfaces[0], "").replace("radius = '100m'", "radius = '200m'");
    west.reload(&changed);
    assert!(west.log_text().contains("a change in [geonet] needs a restart"), "{}", west.log_text());

    stations.iter_mut().for_each(Station::terminate);
    for (host, before) in line.hosts.iter().zip(&before) {
        assert_same_state(before, &host.kernel_state(), "after the end");
    }
}

#[test]
fn three_stations_in_a_line_over_frames_reach_each_other() {
    check_stations_reach_each_other(["radio", "br0", "radio"], "frames");
}

#[test]
fn three_stations_in_a_line_over_udp_reach_each_other() {
    check_stations_reach_each_other(
        [
            "udp:192.0.2.1:8947,192.0.2.2:8947",
            "udp:192.0.2.2:8947,192.0.2.1:8947,192.0.2.3:8947",
            "udp:192.0.2.3:8947,192.0.2.2:8947",
        ],
        "UDP",
    );
}

/// If the link cannot carry a packet, the station refuses the packet with an error.
#[test]
fn a_packet_that_cannot_be_sent_is_refused() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    line.hosts[0].run_ip("link set radio mtu 600");
    let mut station = Station::start(&line.hosts[0], &line.station_config(0, "radio", ""));
    let octets = |count: usize| "00".repeat(count);
    let send = |arguments: &[&str], count: usize| {
        station.run_command(&[&["gnsend"], arguments, &["--payload", &octets(count)]].concat())
    };
    let here = format!("{STATION_LATITUDE},{},100", STATION_LONGITUDES[0]);
    for (arguments, most) in [
        (&["shb"][..], 560),
        (&["tsb"], 560),
        (&["gbc", "--circle", &here], 544),
        (&["gac", "--circle", &here], 544),
    ] {
        let sent = send(arguments, most);
        assert!(sent.status.success(), "{arguments:?}: {}", output_text(&sent));
        let refused = send(arguments, most + 1);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            output_text(&refused).contains(&format!("expected at most {most} over this link")),
            "{}",
            output_text(&refused)
        );
    }
    assert!(!send(&["guc", "--to", "02:00:00:00:00:99"], 541).status.success());
    assert_eq!(station.counter("geonet.dropped.link_too_long"), 0);

    line.hosts[0].run_ip("link set radio down");
    wait_until("the link is down", seconds(10), || station.show_json("status")["geonet"]["link"] == "down");
    for refused in [send(&["shb"], 1), station.run_command(&["gnping", "area:everywhere", "--count", "1"])] {
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            output_text(&refused).contains("the radio interface of GeoNetworking is down"),
            "{}",
            output_text(&refused)
        );
    }
    // A packet with store-carry-forward may wait until a neighbour appears, so the station accepts it
    // although the link is down.
    let stored = send(&["gbc", "--circle", &here, "--scf"], 1);
    assert!(stored.status.success(), "{}", output_text(&stored));
    station.terminate();
}

/// The recording has the address of the interface, so a replay needs no interface.
#[test]
fn a_recording_replays_every_frame() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let recording = line.scratch.path_of("recording");
    let more = format!("record = '{}'\n", recording.display());
    let mut first = Station::start(&line.hosts[0], &line.station_config(0, "radio", &more));
    let mut second = Station::start(&line.hosts[1], &line.station_config(1, "br0", ""));
    wait_until("a neighbour", seconds(10), || {
        first.show_json("neighbours").as_array().map(Vec::len) == Some(1)
    });
    run_gnping(&first, &gn_address(&second), &["--count", "3", "--interval", "50ms"]);
    let sent = first.counter("geonet.link.sent");
    first.terminate();
    second.terminate();
    let config = first.config_file.to_str().expect("a path");
    let output =
        crate::station::run_carnet(&["replay", "--config", config, recording.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", output_text(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let frames = text.lines().filter(|line| line.contains("\"frame\"")).count() as u64;
    assert!(frames >= sent && frames <= sent + 3, "{frames} frames, {sent} were sent");
    assert_eq!(text.lines().filter(|line| line.contains("\"delivered\"")).count(), 3, "{text}");
}

/// `strace` holds the loading thread at its first load request until the test ends `strace`, as if the
/// processor were very slow.
#[test]
fn station_forwards_frames_while_the_programs_of_the_fast_path_are_being_loaded() {
    if !can_run_or_report() || !has_strace() {
        return;
    }
    let line = StationLine::new();
    let trace = line.scratch.path_of("s1.trace");
    let file = trace.to_str().expect("a path");
    let hold = "inject=bpf:delay_enter=3600s";
    let wrapper = ["strace", "-D", "-f", "-qq", "-o", file, "-e", "trace=bpf", "-e", hold];
    let west = Station::start(&line.hosts[0], &line.station_config(0, "radio", ""));
    let east = Station::start(&line.hosts[2], &line.station_config(2, "radio", ""));
    let config = line.station_config(1, "br0", "") + "[dataplane]\npath = 'bpf'\n";
    let mut middle = Station::spawn_without_wait(&line.hosts[1], &config, &wrapper, CARNET_PROGRAM);
    let held = StoppedProcess(middle.pid());
    let path = |what: &str| middle.show_json("status")["geonet"][what].clone();
    // If the station loaded the programs on its main thread, it would never get ready here.
    wait_until("the station is up", seconds(20), || middle.log_text().contains("station s1 is running"));
    let status = [
        "timeout",
        "10",
        CARNET_PROGRAM,
        "status",
        "--socket",
        middle.control_socket.to_str().expect("a path"),
    ];
    wait_until("it answers", seconds(20), || line.hosts[1].run_program(&status).status.success());
    assert_eq!(path("path_loading"), "bpf");
    for station in [&west, &east] {
        wait_until("the middle one is heard", seconds(20), || station.show_json("neighbours")[0].is_object());
    }
    wait_until("both are heard", seconds(20), || {
        middle.show_json("neighbours").as_array().map(Vec::len) == Some(2)
    });
    let events = run_gnping(&west, &gn_address(&east), &["--count", "5"]);
    assert_eq!(ping_answers(&events).len(), 5, "{events:?}");
    assert_eq!((path("path_loading"), path("path")), ("bpf".into(), "tun".into()));
    drop(held);
    middle.wait_for_fast_path();
    wait_until("the fast path is in use", seconds(20), || path("path") == "bpf");
    middle.terminate();
}

/// Process ID of a process that `strace` holds. Dropping the value kills the process, which would not end by
/// itself.
struct StoppedProcess(i32);

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        let tracer = line.and_then(|line| line.trim().parse().ok()).filter(|tracer| *tracer > 0);
        if let Some(tracer) = tracer {
            let _ = kill(Pid::from_raw(tracer), Signal::SIGKILL);
        }
    }
}
