//! The position of a station comes from a real gpsd. Behind gpsd, this test or gpsfake acts as the receiver,
//! which may disappear and return.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::air::{FrameReceiver, ReceivedPositionVector};
use crate::hosts::{Host, ScratchFolder, can_run_or_report, seconds, wait_until};
use crate::station::Station;

const ROUTE_LATITUDE: f64 = 48.8375;
/// Longitude of the simulated receiver at the beginning of an hour, in minutes east of two degrees. From
/// there the receiver moves east.
const LONGITUDE_MINUTES_AT_FULL_HOUR: f64 = 6.048;
/// Speed of the receiver in metres per second, which is 20 knots.
const SPEED_METRES_PER_SECOND: f64 = 10.2889;
/// Metres per degree of longitude at this latitude, by WGS 84.
const METRES_PER_DEGREE_LONGITUDE: f64 = 73_416.0;

/// Returns whether gpsd and gpsfake exist. If not, prints that the test needs them, or fails if the test is
/// required.
fn can_run_with_gpsd() -> bool {
    let directories = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    for tool in ["gpsd", "gpsfake"] {
        if !directories.split(':').any(|directory| Path::new(directory).join(tool).exists()) {
            let reason = format!("no {tool} here (Debian packages gpsd and gpsd-clients)");
            assert!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"), "{reason}");
            println!("\nSKIPPED: {reason}");
            return false;
        }
    }
    can_run_or_report()
}

/// Returns the present time in milliseconds since 1970.
fn unix_milliseconds() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis()).expect("a date")
}

fn nmea_sentence(text: &str) -> String {
    format!("${text}*{:02X}\r\n", text.bytes().fold(0, |sum, octet| sum ^ octet))
}

/// Returns the distance that the receiver has moved since the full hour, in degrees to the east.
fn degrees_driven_east(unix_milliseconds: i64) -> f64 {
    (unix_milliseconds.rem_euclid(3_600_000) as f64 / 1000.0) * SPEED_METRES_PER_SECOND
        / METRES_PER_DEGREE_LONGITUDE
}

/// Returns the NMEA sentences that a receiver sends in one cycle at this time.
fn nmea_cycle(unix_milliseconds: i64, fix: bool) -> String {
    let date = Command::new("date")
        .args(["-u", "-d", &format!("@{}", unix_milliseconds.div_euclid(1000)), "+%H%M%S %d%m%y"])
        .output()
        .expect("date");
    let text = String::from_utf8(date.stdout).expect("text");
    let (time, date) = text.trim().split_once(' ').expect("time and date");
    let time = format!("{time}.{:03}", unix_milliseconds.rem_euclid(1000));
    if !fix {
        return nmea_sentence(&format!("GPGGA,{time},,,,,0,00,99.9,,M,,M,,"))
            + &nmea_sentence("GPGSA,A,1,,,,,,,,,,,,,99.9,99.9,99.9")
            + &nmea_sentence(&format!("GPRMC,{time},V,,,,,,,{date},,,N"));
    }
    let east =
        format!("002{:09.6}", LONGITUDE_MINUTES_AT_FULL_HOUR + degrees_driven_east(unix_milliseconds) * 60.0);
    nmea_sentence(&format!("GPGGA,{time},4850.250000,N,{east},E,1,08,0.9,100.0,M,47.0,M,,"))
        + &nmea_sentence("GPGSA,A,3,04,05,09,12,24,25,29,31,,,,,1.8,0.9,1.5")
        + &nmea_sentence(&format!("GPRMC,{time},A,4850.250000,N,{east},E,020.0,090.0,{date},,,A"))
}

/// A simulated receiver behind gpsd, which sends one cycle a second.
struct SimulatedReceiver {
    has_fix: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    /// Milliseconds by which the receiver's clock is ahead.
    milliseconds_ahead: Arc<AtomicI64>,
    stop_sender: Option<mpsc::Sender<()>>,
}

impl SimulatedReceiver {
    fn new(host: &Host) -> SimulatedReceiver {
        let socket = host.run_in_namespace(|| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let (fix, silent, ahead) =
            (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let (stop, stopped) = mpsc::channel::<()>();
        let receiver = SimulatedReceiver {
            has_fix: fix.clone(),
            is_silent: silent.clone(),
            milliseconds_ahead: ahead.clone(),
            stop_sender: Some(stop),
        };
        std::thread::spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_secs(1)) {
                if !silent.load(Ordering::Relaxed) {
                    let at = unix_milliseconds() + ahead.load(Ordering::Relaxed);
                    // While gpsd does not run, the kernel refuses the datagram, so ignore the error.
                    let text = nmea_cycle(at, fix.load(Ordering::Relaxed));
                    let _ = socket.send_to(text.as_bytes(), ("127.0.0.1", 5000));
                }
            }
        });
        receiver
    }
}

impl Drop for SimulatedReceiver {
    fn drop(&mut self) {
        drop(self.stop_sender.take());
    }
}

/// A gpsd, or a gpsfake that runs its own gpsd.
struct Gpsd(Child);

impl Gpsd {
    fn start_gpsd(host: &Host, scratch: &ScratchFolder) -> Gpsd {
        let socket = scratch.path_of("gpsd.sock");
        let words = ["gpsd", "-N", "-n", "-S", "2947", "-F", socket.to_str().expect("a path")];
        Gpsd::spawn(host, &[&words[..], &["udp://127.0.0.1:5000"]].concat())
    }

    /// Starts gpsfake, which replays a recorded log again and again, at twenty cycles a second.
    fn start_gpsfake(host: &Host, log: &Path) -> Gpsd {
        let log = log.to_str().expect("a path");
        Gpsd::spawn(host, &["gpsfake", "-q", "-n", "-c", "0.05", "-P", "2947", log])
    }

    fn spawn(host: &Host, words: &[&str]) -> Gpsd {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Gpsd(host.spawn_program(&words, |command| {
            command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }))
    }

    /// Ends the program by SIGINT, so that gpsfake ends its gpsd, too.
    fn stop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().try_into().expect("a process")), Signal::SIGINT);
        let _ = self.0.wait();
    }
}

impl Drop for Gpsd {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A host for a station and a gpsd, and a receiver of the station's frames.
struct PositionScene {
    host: Host,
    scratch: ScratchFolder,
    frame_receiver: FrameReceiver,
    /// Host at the other end of the station's link.
    _other: Host,
}

impl PositionScene {
    fn new() -> PositionScene {
        let (host, other) = (Host::new(), Host::new());
        host.create_link("radio", &other, "radio");
        PositionScene {
            frame_receiver: FrameReceiver::new(&other),
            host,
            scratch: ScratchFolder::new(),
            _other: other,
        }
    }

    fn start_station(&self) -> Station {
        let config = format!(
            "[station]\nname = 's'\nsocket = '{}'\n[geonet]\ninterface = 'radio'\n\
             position = 'gpsd://[::1]:2947'\nbeacon = {{ interval = '50ms', jitter = '0s' }}\n",
            self.scratch.path_of("s.sock").display()
        );
        Station::start(&self.host, &config)
    }
}

/// Returns the distance in metres between the position in a frame and the receiver's position at that time.
fn position_error_metres(received: &ReceivedPositionVector) -> f64 {
    let expected = 2.0
        + LONGITUDE_MINUTES_AT_FULL_HOUR / 60.0
        + degrees_driven_east(received.received_at_unix_ms - received.age_ms());
    (received.longitude - expected) * METRES_PER_DEGREE_LONGITUDE
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Each packet has the position at its sending time (EN 302 636-4-1 10.2.2). The receiver has one fix a
/// second, and the station sends twenty beacons a second.
#[test]
fn packet_contains_position_of_its_sending_time() {
    if !can_run_with_gpsd() {
        return;
    }
    let scene = PositionScene::new();
    let _receiver = SimulatedReceiver::new(&scene.host);
    let _gpsd = Gpsd::start_gpsd(&scene.host, &scene.scratch);
    let mut station = scene.start_station();
    scene
        .frame_receiver
        .wait_for_beacon("an accurate position", |heard| heard.is_accurate && heard.speed > 5.0);
    let heard = scene.frame_receiver.receive_beacons(seconds(5));
    assert!(heard.len() > 20, "{} beacons", heard.len());
    assert!(heard.iter().all(|beacon| beacon.is_accurate), "{heard:#?}");
    let mut last = 0;
    for beacon in &heard {
        assert!(beacon.timestamp >= last, "{heard:#?}");
        last = beacon.timestamp;
    }
    let ages = median(heard.iter().map(|beacon| beacon.age_ms() as f64).collect());
    let errors = median(heard.iter().map(|beacon| position_error_metres(beacon).abs()).collect());
    // Without dead reckoning, half of the positions would be older than half a second.
    assert!(ages < 300.0, "{ages} ms old");
    assert!(errors < 1.0, "{errors} m off");
    assert!((heard[0].latitude - ROUTE_LATITUDE).abs() < 1e-6, "{heard:#?}");
    station.terminate();
}

#[test]
fn position_accuracy_indicator_is_cleared_without_fix() {
    if !can_run_with_gpsd() {
        return;
    }
    let scene = PositionScene::new();
    let receiver = SimulatedReceiver::new(&scene.host);
    let mut gpsd = Gpsd::start_gpsd(&scene.host, &scene.scratch);
    receiver.has_fix.store(false, Ordering::Relaxed);
    let mut station = scene.start_station();
    // Before the first fix the station sends no beacon.
    assert_eq!(scene.frame_receiver.receive_beacons(seconds(3)), []);
    let state = |station: &Station| station.show_json("status")["geonet"]["position"].clone();
    assert_eq!(state(&station), "no_fix");
    receiver.has_fix.store(true, Ordering::Relaxed);
    let accurate = |heard: &ReceivedPositionVector| heard.is_accurate;
    let inaccurate = |heard: &ReceivedPositionVector| !heard.is_accurate;
    scene.frame_receiver.wait_for_beacon("an accurate position", accurate);

    receiver.has_fix.store(false, Ordering::Relaxed);
    let lost = scene.frame_receiver.wait_for_beacon("no fix", inaccurate);
    assert_eq!(state(&station), "no_fix");
    // Beacons continue without a fix, with the time of their position.
    let after =
        scene.frame_receiver.wait_for_beacon("the time goes on", |h| h.timestamp > lost.timestamp + 500);
    assert!(inaccurate(&after), "{after:?}");
    receiver.has_fix.store(true, Ordering::Relaxed);
    scene.frame_receiver.wait_for_beacon("a fix again", accurate);

    receiver.is_silent.store(true, Ordering::Relaxed);
    scene.frame_receiver.wait_for_beacon("a receiver that has fallen silent", inaccurate);
    wait_until("it is said", seconds(10), || state(&station) == "stale");
    receiver.is_silent.store(false, Ordering::Relaxed);
    scene.frame_receiver.wait_for_beacon("the receiver again", accurate);

    gpsd.stop();
    scene.frame_receiver.wait_for_beacon("no gpsd", inaccurate);
    assert_eq!(state(&station), "disconnected");
    let _gpsd = Gpsd::start_gpsd(&scene.host, &scene.scratch);
    scene.frame_receiver.wait_for_beacon("gpsd again", accurate);
    assert_eq!(state(&station), "fix");
    station.terminate();
}

/// gpsfake plays a log into a pseudo-terminal, as a serial receiver would.
#[test]
fn positions_of_gpsfake_drive_survive_tunnels() {
    if !can_run_with_gpsd() {
        return;
    }
    let scene = PositionScene::new();
    let log = scene.scratch.path_of("drive.nmea");
    let text: String =
        (0..200).map(|second| nmea_cycle(unix_milliseconds() + second * 1000, second % 40 < 20)).collect();
    std::fs::write(&log, text).expect("a log");
    let mut gpsfake = Gpsd::start_gpsfake(&scene.host, &log);
    let mut station = scene.start_station();
    for _ in 0..3 {
        scene.frame_receiver.wait_for_beacon("a fix", |heard| heard.is_accurate);
        scene.frame_receiver.wait_for_beacon("a tunnel", |heard| !heard.is_accurate);
    }
    gpsfake.stop();
    wait_until("gpsd is gone", seconds(20), || {
        station.show_json("status")["geonet"]["position"] == "disconnected"
    });
    let mut gpsfake = Gpsd::start_gpsfake(&scene.host, &log);
    scene.frame_receiver.wait_for_beacon("gpsd again", |heard| heard.is_accurate);
    gpsfake.stop();
    station.terminate();
}

/// The system clock is wrong by an hour, as with a wrong time zone.
#[test]
fn wrong_system_clock_is_reported_once() {
    if !can_run_with_gpsd() {
        return;
    }
    let scene = PositionScene::new();
    let receiver = SimulatedReceiver::new(&scene.host);
    receiver.milliseconds_ahead.store(3_600_000, Ordering::Relaxed);
    let _gpsd = Gpsd::start_gpsd(&scene.host, &scene.scratch);
    let mut station = scene.start_station();
    wait_until("it is said", seconds(20), || station.log_text().contains("the system clock is"));
    // Frames have the time of the receiver, which is right.
    let heard = scene.frame_receiver.receive_beacons(seconds(5));
    assert!(
        heard.iter().any(|beacon| beacon.is_accurate && (beacon.age_ms() + 3_600_000).abs() < 5000),
        "{heard:#?}"
    );
    assert_eq!(station.log_text().matches("the system clock is").count(), 1, "{}", station.log_text());
    station.terminate();
}
