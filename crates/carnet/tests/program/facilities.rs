//! The facilities as applications see them. An event of one vehicle reaches the stations in its area over two
//! hops. These stations show the event in their map and among their messages, and a program reacts to it. The
//! CAMs of a vehicle contain the vehicle's own data.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use carnet_its::denm::Denm;
use carnet_its::uper;
use serde_json::{Value, json};

use crate::geonet::StationLine;
use crate::hosts::{can_run_or_report, output_text, seconds, wait_for, wait_until};
use crate::station::{Station, run_carnet};

/// Sends a request in the same way as `curl --unix-socket`.
pub fn http_request(socket: &Path, method: &str, path: &str, body: &Value) -> String {
    let mut stream = UnixStream::connect(socket).expect("the station's socket");
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: carnet\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    // The request must be sent in one write: the station may answer and close the connection before it has
    // read the whole body.
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository").to_owned()
}

/// Returns three stations in a line with facilities: s0 in the west, s2 in the east and in the area "east".
fn start_stations(line: &StationLine) -> [Station; 3] {
    let mut index = 0;
    ["radio", "br0", "radio"].map(|interface| {
        let record = format!("record = '{}'", line.scratch.path_of(&format!("s{index}.jsonl")).display());
        let config = format!(
            "{}\n[facilities]\nvehicle_length = 12.5\n",
            line.station_config(index, interface, &record)
        );
        let config = config.replace("position =", "station_type = 'bus'\nposition =");
        let station = Station::start(&line.hosts[index], &config);
        index += 1;
        station
    })
}

/// Returns the events on the map of a station.
fn events_of(station: &Station) -> Vec<Value> {
    station.show_json("ldm")["events"].as_array().expect("events").clone()
}

/// A program that runs until the test ends, and the file with its output.
struct RunningProgram(Child, PathBuf);

impl RunningProgram {
    fn start(line: &StationLine, name: &str, command: &mut Command) -> RunningProgram {
        let path = line.scratch.path_of(name);
        let out = File::create(&path).expect("a file");
        let error = out.try_clone().expect("a file");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(error).spawn().expect("a program");
        RunningProgram(child, path)
    }

    fn output_so_far(&self) -> String {
        fs::read_to_string(&self.1).expect("a file")
    }

    fn wait_for_output(&self, what: &str) {
        wait_until(&format!("{what:?} is said"), seconds(10), || self.output_so_far().contains(what));
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn an_event_appears_on_the_maps_of_its_area_and_programs_react() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let stations = start_stations(&line);
    let [west, middle, east] = &stations;
    wait_until("the neighbours know each other", seconds(10), || {
        let count = |station: &Station| station.show_json("neighbours").as_array().map(Vec::len);
        [count(west), count(middle), count(east)] == [Some(1), Some(2), Some(1)]
    });
    // CAMs are single-hop broadcasts, so only neighbours are on the map.
    let seen = |station: &Station| station.show_json("ldm")["stations"].as_array().map(Vec::len);
    wait_until("they hear each other's CAMs", seconds(10), || {
        [seen(west), seen(middle), seen(east)] == [Some(1), Some(2), Some(1)]
    });
    let known = west.show_json("ldm")["stations"][0].clone();
    assert_eq!((&known["station_type"], &known["length_m"]), (&"bus".into(), &12.5.into()), "{known}");
    assert_eq!(known["speed_mps"], 0.0, "{known}");

    let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".into());
    let example = repository_root().join("docs/examples/stop-ahead.py");
    let reacts = RunningProgram::start(
        &line,
        "reacts",
        Command::new(&python).arg("-u").arg(&example).arg(&east.control_socket),
    );
    let quiet = RunningProgram::start(
        &line,
        "quiet",
        Command::new(&python).arg("-u").arg(&example).arg(&middle.control_socket),
    );
    // A client gets only messages that arrive after it has connected, so wait until the clients are
    // connected.
    std::thread::sleep(seconds(1));

    let told = west.run_command(&[
        "denm",
        "trigger",
        "stationary_vehicle",
        "--at",
        "48.8375,2.1117",
        "--area",
        "east",
        "--relevance",
        "100m",
        "--every",
        "200ms",
        "--for",
        "1m",
    ]);
    assert!(told.status.success(), "{}", output_text(&told));
    let id = String::from_utf8(told.stdout).expect("text").trim().to_owned();
    let event =
        wait_for("the event is on the map in the east", seconds(10), || events_of(east).first().cloned());
    assert_eq!((&event["cause"], &event["longitude"]), (&94.into(), &2.1117.into()), "{event}");
    assert_eq!(event["relevance_distance_m"], 100, "{event}");
    reacts.wait_for_output("STOP AHEAD at 48.8375, 2.1117");
    assert!(
        output_text(&east.run_command(&["show", "ldm"])).contains(&format!("{id}  stationary_vehicle")),
        "{id}"
    );
    // The middle station has forwarded the event. Its own map does not have the event, because the station is
    // outside of the event's area.
    assert_eq!(events_of(middle), Vec::<Value>::new());
    assert!(events_of(west).is_empty(), "its own is not news to it");

    for (query, expected) in
        [("cause=accident", 0), ("cause=94&type=denm", 1), ("area=everywhere", 1), ("type=cam", 0)]
    {
        let answer = http_request(&east.control_socket, "GET", &format!("/v1/ldm?{query}"), &Value::Null);
        let body: Value = answer
            .split_once("\r\n\r\n")
            .and_then(|(_, body)| serde_json::from_str(body).ok())
            .expect("JSON");
        assert_eq!(body["events"].as_array().map(Vec::len), Some(expected), "{query}: {body}");
    }

    let update = west.run_command(&[
        "denm",
        "update",
        &id,
        "stationary_vehicle",
        "--sub-cause",
        "2",
        "--at",
        "48.8375,2.1117",
        "--area",
        "east",
    ]);
    assert!(update.status.success(), "{}", output_text(&update));
    wait_until("more is known", seconds(10), || {
        events_of(east).first().is_some_and(|event| event["sub_cause"] == 2)
    });
    let theirs = east.run_command(&["denm", "cancel", &id]);
    assert!(
        !theirs.status.success() && output_text(&theirs).contains("does not belong to this station"),
        "{}",
        output_text(&theirs)
    );
    let end = west.run_command(&["denm", "cancel", &id]);
    assert!(end.status.success(), "{}", output_text(&end));
    wait_until("it is over", seconds(10), || events_of(east).is_empty());
    reacts.wait_for_output("the road is free again");
    assert_eq!(quiet.output_so_far(), "", "nothing outside of the area");
    let again = west.run_command(&["denm", "cancel", &id]);
    assert!(
        !again.status.success() && output_text(&again).contains("or it has ended"),
        "{}",
        output_text(&again)
    );
}

/// Returns whether tshark exists. If not, prints that the test needs it.
fn has_tshark() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        assert_ne!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref(), Ok("1"), "tshark is missing");
        println!("SKIPPED: tshark cannot be run");
    }
    there
}

#[test]
fn tshark_decodes_every_field_of_the_stations_messages() {
    if !can_run_or_report() || !has_tshark() {
        return;
    }
    let line = StationLine::new();
    let capture = line.scratch.path_of("air.pcap");
    let words: Vec<String> =
        ["tcpdump", "-i", "radio", "-U", "-w", capture.to_str().expect("a path"), "ether", "proto", "0x8947"]
            .map(str::to_owned)
            .to_vec();
    let mut dump = line.hosts[2].spawn_program(&words, |command| {
        command.stdin(Stdio::null()).stderr(Stdio::null());
    });
    let mut stations = start_stations(&line);
    let [_, middle, east] = &stations;
    let vehicle = json!({"speed_mps": 8.5, "yaw_rate_dps": -4.5, "curvature_per_m": 0.01, "lane": 2,
        "steering_wheel_angle_deg": 15, "lateral_acceleration_mps2": 0.5, "role": "public_transport", "embark\
            ation": true,
        "acceleration_control": ["brake_pedal_engaged"], "exterior_lights": ["left_turn_signal_on"]});
    wait_until("the middle is on the map with its own speed", seconds(10), || {
        let answer = http_request(&middle.control_socket, "PUT", "/v1/vehicle", &vehicle);
        assert!(answer.starts_with("HTTP/1.0 204"), "{answer}");
        east.show_json("ldm")["stations"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["speed_mps"] == 8.5))
    });
    let told = middle.run_command(&[
        "denm",
        "trigger",
        "accident",
        "--sub-cause",
        "2",
        "--quality",
        "5",
        "--validity",
        "2m",
        "--relevance",
        "1km",
        "--direction",
        "upstream",
    ]);
    assert!(told.status.success(), "{}", output_text(&told));
    wait_until("the event is known", seconds(10), || !events_of(east).is_empty());
    let refused = http_request(&middle.control_socket, "PUT", "/v1/vehicle", &json!({"speed_mps": 900}));
    assert!(refused.contains("speed_mps is 900, expected 0 to 163.82"), "{refused}");
    // Of two successive CAMs, at least one has the low-frequency container, whose data changes slowly. So
    // send several CAMs.
    for _ in 0..5 {
        http_request(&middle.control_socket, "PUT", "/v1/vehicle", &vehicle);
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let _ = (dump.kill(), dump.wait());

    let read = |filter: &str, fields: &[&str]| -> Vec<String> {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r"]).arg(&capture).args(["-Y", filter, "-T", "fields", "-E", "separator=|"]);
        for field in fields {
            command.args(["-e", field]);
        }
        let output = command.output().expect("tshark");
        assert!(output.status.success(), "{}", output_text(&output));
        String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
    };
    assert_eq!(
        read("_ws.malformed || _ws.expert.severity >= 0x800000", &["frame.number"]),
        Vec::<String>::new()
    );
    // Read the CAMs that are single-hop broadcasts of traffic class 2 to port 2001.
    let cams = read(
        "its.messageID == 2 && cam.stationType == 6",
        &["geonw.ch.htype", "geonw.ch.tc.id", "btpb.dstport", "its.messageID"],
    );
    assert!(
        !cams.is_empty() && cams.iter().all(|cam| cam == "5|2|2001|2" || cam == "0x50|2|2001|2"),
        "{cams:?}"
    );
    let full = read(
        "its.messageID == 2 && its.speedValue == 850 && cam.vehicleRole",
        &[
            "its.yawRateValue",
            "its.curvatureValue",
            "cam.lanePosition",
            "its.steeringWheelAngleValue",
            "its.vehicleLengthValue",
            "cam.vehicleRole",
        ],
    );
    assert!(full.first().is_some_and(|first| first == "-450|100|2|10|125|1"), "{full:?}");
    let denms = read(
        "its.messageID == 1",
        &[
            "geonw.ch.htype",
            "btpb.dstport",
            "its.causeCode",
            "its.subCauseCode",
            "denm.informationQuality",
            "denm.relevanceDistance",
        ],
    );
    assert!(!denms.is_empty() && denms.iter().all(|denm| denm.contains("|2002|2|2|5|4")), "{denms:?}");

    // The recording contains the commands of applications and the content of all messages. So a replay sends
    // the same octets.
    let on_air = read("its.messageID == 1", &["denm.detectionTime", "denm.referenceTime"]);
    stations[1].terminate();
    let recording = line.scratch.path_of("s1.jsonl");
    let config = stations[1].config_file.to_str().expect("a path");
    let replayed = run_carnet(&["replay", "--config", config, recording.to_str().expect("a path")]);
    assert!(replayed.status.success(), "{}", output_text(&replayed));
    let text = String::from_utf8(replayed.stdout).expect("text");
    let outputs = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let frames: Vec<String> =
        outputs.filter_map(|line| Some(line["output"]["frame"]["packet"].as_str()?.to_owned())).collect();
    // The DENM follows the Basic and Common Header, 44 octets of GeoBroadcast, and the BTP header with the
    // port.
    let sent: Vec<Denm> = frames
        .iter()
        .filter_map(|packet| packet.get(2 * 56..)?.strip_prefix("07d20000"))
        .map(|message| uper::decode(&octets_of_hex(message)).expect("a DENM"))
        .collect();
    let times: Vec<String> = sent
        .iter()
        .map(|denm| denm.denm.management)
        .map(|it| format!("{}|{}", it.detection_time.0, it.reference_time.0))
        .collect();
    assert!(!on_air.is_empty() && on_air.iter().all(|seen| times.contains(seen)), "{on_air:?} {times:?}");
}

fn octets_of_hex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len()).step_by(2).map(|at| digit(at).expect("hexadecimal")).collect()
}

/// Returns whether the broker for the MQTT bridge exists. If not, prints that the test needs it, and the test
/// passes.
fn has_mosquitto() -> bool {
    let there = |name: &str| Command::new(name).arg("--help").output().is_ok();
    let all = there("mosquitto") && there("mosquitto_sub") && there("mosquitto_pub");
    if !all {
        println!("SKIPPED: mosquitto, mosquitto_sub or mosquitto_pub cannot be run");
    }
    all
}

/// Programs on the middle station's host: a broker and its clients.
struct ProgramsOnMiddleHost<'a> {
    line: &'a StationLine,
}

impl<'a> ProgramsOnMiddleHost<'a> {
    fn new(line: &'a StationLine) -> ProgramsOnMiddleHost<'a> {
        line.hosts[1].run_ip("link set lo up");
        ProgramsOnMiddleHost { line }
    }

    fn start(&self, name: &str, words: &[&str]) -> RunningProgram {
        let path = self.line.scratch.path_of(name);
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let out = File::create(&path).expect("a file");
        let child = self.line.hosts[1].spawn_program(&words, move |command| {
            command.stdin(Stdio::null()).stderr(out.try_clone().expect("a file")).stdout(out);
        });
        RunningProgram(child, path)
    }

    /// Starts a broker on port 1883, and waits until the broker listens.
    fn start_broker(&self, name: &str, words: &[&str]) -> RunningProgram {
        let broker = self.start(name, &[&["mosquitto"], words].concat());
        // A broker that still refuses clients listens too, so a client checks that it accepts a message.
        let client = ["mosquitto_pub", "-p", "1883", "-t", "test", "-m", "x"];
        let listens =
            || !output_text(&self.line.hosts[1].run_program(&client)).contains("Connection refused\n");
        wait_until("the broker listens", seconds(10), listens);
        broker
    }

    fn start_bridge(&self, name: &str, station: &Station, more: &[&str]) -> RunningProgram {
        let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".into());
        let program = repository_root().join("packaging/carnet-mqtt");
        let socket = station.control_socket.to_str().expect("a path");
        let broker = ["--broker", "127.0.0.1:1883", "--namespace", "road", "--denm"];
        let program = [&python, "-B", program.to_str().expect("a path"), "--socket", socket];
        self.start(name, &[&program[..], &broker, more].concat())
    }

    fn publish(&self, words: &[&str], text: &str) {
        let how = if text.is_empty() { "-n" } else { "-s" };
        let words = [&["mosquitto_pub", "-p", "1883", how], words].concat();
        let path = self.line.scratch.path_of("published");
        fs::write(&path, text).expect("a file");
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut child = self.line.hosts[1].spawn_program(&words, move |command| {
            command.stdin(File::open(path).expect("a file"));
        });
        assert!(child.wait().expect("it ends").success(), "{words:?}");
    }
}

/// Topic on which gateways publish their DENMs.
const OUT_QUEUE_TOPIC: [&str; 2] = ["-t", "road/outQueue/v2x/denm/centre/1/2"];

/// Returns the present time in the time scale of ITS messages.
fn its_timestamp() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    now.as_millis() as u64 - 1_072_915_195_000
}

/// Returns a gateway's DENM about road works, detected `detected_ago_s` seconds ago and valid for
/// `validity_s` seconds.
fn road_works_event(number: u16, sub_cause: u8, detected_ago_s: u64, validity_s: u64) -> Value {
    let position = json!({"latitude": 488_375_000, "longitude": 21_062_500, "altitude": 800_001});
    let detection = its_timestamp() - 1000 * detected_ago_s;
    let management = json!({"action_id": {"originating_station_id": 999, "sequence_number": number},
        "detection_time": detection, "reference_time": its_timestamp(), "event_position": position,
        "relevance_distance": 4,
        "validity_duration": validity_s});
    json!({"type": "denm", "origin": "global_application", "version": "1.1.3", "source_uuid": "centre",
        "timestamp": 0,
        "message": {"protocol_version": 2, "station_id": 999, "management_container": management,
        "situation_container": {"event_type": {"cause": 3, "subcause": sub_cause}}}})
}

/// Returns the number of road works events with this sub cause on a station's map.
fn count_road_works(station: &Station, sub_cause: u8) -> usize {
    let is_it = |event: &&Value| event["cause"] == 3 && event["sub_cause"] == sub_cause;
    events_of(station).iter().filter(is_it).count()
}

#[test]
fn mqtt_bridge_survives_any_message_and_a_broker_restart() {
    if !can_run_or_report() || !has_mosquitto() {
        return;
    }
    let line = StationLine::new();
    let stations = start_stations(&line);
    let [west, middle, east] = &stations;
    let beside = ProgramsOnMiddleHost::new(&line);
    let folder = line.scratch.path_of("kept");
    fs::create_dir(&folder).expect("a folder");
    let config = line.scratch.path_of("mosquitto.conf");
    let text = "listener 1883 127.0.0.1\nallow_anonymous true\nuser root\npersistence \
                true\nautosave_on_changes true\nautosave_interval 1\n";
    fs::write(&config, format!("{text}persistence_location {}/\n", folder.display())).expect("a file");
    let words = ["-c", config.to_str().expect("a path")];
    let broker = beside.start_broker("broker", &words);

    // The broker has retained three messages: an expired event of last week, a valid event, and an old
    // message about the vehicle (`bus/state`).
    let kept = ["-r", "-t", "road/outQueue/v2x/denm/centre/1/7"];
    beside.publish(&kept, &road_works_event(7, 7, 7 * 86_400, 3600).to_string());
    let kept = ["-r", "-t", "road/outQueue/v2x/denm/centre/1/8"];
    let goes_on = road_works_event(8, 8, 100, 3600);
    beside.publish(&kept, &goes_on.to_string());
    beside.publish(&["-r", "-t", "bus/state"], "{\"speed_mps\": 7.25}");
    let state = line.scratch.path_of("bridge.json");
    let more = ["--vehicle", "bus/state", "--state", state.to_str().expect("a path")];
    let bridge = beside.start_bridge("bridge", middle, &more);
    wait_until("the event that goes on is told", seconds(10), || {
        count_road_works(west, 8) == 1 && count_road_works(east, 8) == 1
    });
    let left = events_of(west).iter().find(|it| it["sub_cause"] == 8).expect("it")["remaining_s"].as_u64();
    assert!(left.is_some_and(|left| (3000..=3500).contains(&left)), "{left:?}");
    bridge.wait_for_output("it is not what the vehicle says now");

    // A message with malformed content must not stop the bridge.
    let nested = "[".repeat(200_000);
    let huge =
        road_works_event(1, 1, 0, 60).to_string().replace("488375000", &format!("1{}", "0".repeat(400)));
    for text in
        ["", "7", "null", "\u{0}", "{\"type\": \"denm\", \"message\": 7}", nested.as_str(), huge.as_str()]
    {
        beside.publish(&OUT_QUEUE_TOPIC, text);
        beside.publish(&["-t", "bus/state"], text);
    }
    let mut works_4 = road_works_event(5, 4, 0, 3600);
    beside.publish(&OUT_QUEUE_TOPIC, &works_4.to_string());
    wait_until("the road works are told", seconds(10), || {
        count_road_works(west, 4) == 1 && count_road_works(east, 4) == 1
    });
    let complaints = bridge.output_so_far().matches("is not taken").count();
    for text in ["{\"type\": \"denm\", \"message\": 8}", "{\"type\": \"denm\", \"message\": 9}", "7"] {
        beside.publish(&OUT_QUEUE_TOPIC, text);
    }

    // After a restart of the broker, an update changes the same event as before, and a termination still ends
    // it.
    wait_until("the broker has kept its state", seconds(10), || folder.join("mosquitto.db").exists());
    drop(broker);
    let connections = bridge.output_so_far().matches("is connected").count();
    let _broker = beside.start_broker("broker2", &words);
    let again = || bridge.output_so_far().matches("is connected").count() > connections;
    wait_until("the bridge is connected again", seconds(30), again);
    works_4["message"]["management_container"]["reference_time"] = (its_timestamp() + 1).into();
    works_4["message"]["situation_container"]["event_type"]["subcause"] = 5.into();
    beside.publish(&OUT_QUEUE_TOPIC, &works_4.to_string());
    wait_until("the update is told", seconds(10), || {
        count_road_works(west, 5) == 1 && count_road_works(west, 4) == 0
    });
    // The bridge logs each reason for refusing a message once, and does not log an unchanged event again.
    assert_eq!(
        bridge.output_so_far().matches("is not taken").count(),
        complaints,
        "{}",
        bridge.output_so_far()
    );
    assert_eq!((count_road_works(west, 8), count_road_works(west, 7)), (1, 0));

    // After a restart of the bridge, an update changes the same event as before, and a termination still ends
    // it.
    drop(bridge);
    let bridge = beside.start_bridge("bridge2", middle, &more);
    bridge.wait_for_output("is connected");
    works_4["message"]["management_container"]["reference_time"] = (its_timestamp() + 2).into();
    works_4["message"]["management_container"]["termination"] = 0.into();
    beside.publish(&OUT_QUEUE_TOPIC, &works_4.to_string());
    wait_until("the road works are over", seconds(10), || {
        count_road_works(west, 5) == 0 && count_road_works(east, 5) == 0
    });
    assert_eq!(count_road_works(west, 8), 1);
}

#[test]
fn mqtt_bridge_reports_refusing_broker_once_with_reason() {
    if !can_run_or_report() || !has_mosquitto() {
        return;
    }
    let line = StationLine::new();
    let stations = start_stations(&line);
    let beside = ProgramsOnMiddleHost::new(&line);
    let config = line.scratch.path_of("mosquitto.conf");
    fs::write(&config, "listener 1883 127.0.0.1\nallow_anonymous false\nuser root\n").expect("a file");
    let words = ["-c", config.to_str().expect("a path")];
    let broker = beside.start_broker("broker", &words);
    let refused = || broker.output_so_far().matches("not authorised").count();
    let before = refused();
    let bridge = beside.start_bridge("bridge", &stations[1], &["--user", "bus"]);
    wait_until("it has tried twice", seconds(30), || refused() >= before + 2);
    assert_eq!(
        bridge.output_so_far().matches("the broker refuses the connection: not authorized").count(),
        1
    );
    assert!(bridge.output_so_far().contains("--user without --tls"), "{}", bridge.output_so_far());
}

#[test]
fn mqtt_bridge_passes_messages_to_broker_and_events_to_station() {
    if !can_run_or_report() || !has_mosquitto() {
        return;
    }
    let line = StationLine::new();
    let stations = start_stations(&line);
    let [west, middle, east] = &stations;
    let beside = ProgramsOnMiddleHost::new(&line);
    let host = &line.hosts[1];
    let _broker = beside.start_broker("broker", &["-p", "1883"]);
    let heard = beside.start("heard", &["mosquitto_sub", "-p", "1883", "-v", "-t", "road/inQueue/v2x/#"]);
    let bridge = beside.start_bridge("bridge", middle, &["--vehicle", "bus/state"]);
    bridge.wait_for_output("s1 is connected");

    // The bridge publishes each message of a station under a topic that contains the station's position, as a
    // quadkey of 22 digits.
    heard.wait_for_output("road/inQueue/v2x/cam/s1/1/2/0/2/2/0/0/");
    let text = heard.output_so_far();
    let (topic, json) = text.lines().next().and_then(|line| line.split_once(' ')).expect("a message");
    assert_eq!(topic.split('/').count(), 5 + 22, "{topic}");
    let cam: Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(
        (&cam["type"], &cam["version"], &cam["source_uuid"]),
        (&"cam".into(), &"1.1.3".into(), &"s1".into())
    );
    assert_eq!(cam["message"]["high_frequency_container"]["vehicle_length"], 125, "{cam}");
    let told = east.run_command(&["denm", "trigger", "accident", "--relevance", "1km"]);
    assert!(told.status.success(), "{}", output_text(&told));
    heard.wait_for_output("road/inQueue/v2x/denm/s1/");

    // Another client of the broker publishes an event. The station sends it to the vehicles around, and later
    // sends its termination.
    let position = json!({"latitude": 488_375_000, "longitude": 21_062_500, "altitude": 800_001});
    let management = json!({"action_id": {"originating_station_id": 999, "sequence_number": 5}, "detection_ti\
        me": 0,
        "reference_time": 0, "event_position": position, "relevance_distance": 4});
    let mut denm = json!({"type": "denm", "origin": "global_application", "version": "1.1.3", "source_uui\
        d": "centre",
        "timestamp": 0, "message": {"protocol_version": 2, "station_id": 999, "management_containe\
            r": management,
        "situation_container": {"event_type": {"cause": 3, "subcause": 4}}}});
    let publish = |text: &str| beside.publish(&OUT_QUEUE_TOPIC, text);
    publish("{\"type\": \"denm\", \"message\": 7}");
    publish(&denm.to_string());
    let works = |station: &Station| {
        events_of(station).iter().filter(|event| event["cause"] == 3 && event["sub_cause"] == 4).count()
    };
    wait_until("the road works are on the maps", seconds(10), || works(west) == 1 && works(east) == 1);
    let bus = ["mosquitto_pub", "-p", "1883", "-t", "bus/state", "-m", "{\"speed_mps\": 7.25}"];
    wait_until("what the bus says is in its CAMs", seconds(10), || {
        assert!(host.run_program(&bus).status.success());
        let known = east.show_json("ldm")["stations"].clone();
        known.as_array().is_some_and(|all| all.iter().any(|one| one["speed_mps"] == 7.25))
    });
    denm["message"]["management_container"]["termination"] = 0.into();
    publish(&denm.to_string());
    wait_until("they are over", seconds(10), || works(west) == 0 && works(east) == 0);
    assert!(bridge.output_so_far().contains("is not taken"), "{}", bridge.output_so_far());
}
