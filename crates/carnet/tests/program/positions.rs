//! The position of a station comes from a real gpsd. The receiver behind gpsd is this test or gpsfake, and
//! comes and goes.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::air::{Ear, Heard};
use crate::hosts::{Host, Scratch, possible, seconds, wait_until};
use crate::station::Station;

const LATITUDE: f64 = 48.8375;
/// Longitude of the receiver at the beginning of an hour, in minutes east of two degrees. The receiver then
/// moves east.
const MINUTES: f64 = 6.048;
/// Speed of the receiver in metres per second, which is 20 knots.
const SPEED: f64 = 10.2889;
/// Metres per degree of longitude at this latitude, by WGS 84.
const METRES_PER_DEGREE: f64 = 73_416.0;

/// Returns whether gpsd and gpsfake exist. If not, prints that the test needs them, or fails if the test is
/// required.
fn with_gpsd() -> bool {
    let directories = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    for tool in ["gpsd", "gpsfake"] {
        if !directories.split(':').any(|directory| Path::new(directory).join(tool).exists()) {
            let reason = format!("no {tool} here (Debian packages gpsd and gpsd-clients)");
            assert!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"), "{reason}");
            println!("\nSKIPPED: {reason}");
            return false;
        }
    }
    possible()
}

/// Returns the present time in milliseconds since 1970.
fn unix() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis()).expect("a date")
}

fn sentence(text: &str) -> String {
    format!("${text}*{:02X}\r\n", text.bytes().fold(0, |sum, octet| sum ^ octet))
}

/// Returns the distance that the receiver has moved since the full hour, in degrees to the east.
fn way(unix_milliseconds: i64) -> f64 {
    (unix_milliseconds.rem_euclid(3_600_000) as f64 / 1000.0) * SPEED / METRES_PER_DEGREE
}

/// Returns the NMEA sentences that a receiver sends in one cycle at this time.
fn cycle(unix_milliseconds: i64, fix: bool) -> String {
    let date = Command::new("date")
        .args(["-u", "-d", &format!("@{}", unix_milliseconds.div_euclid(1000)), "+%H%M%S %d%m%y"])
        .output()
        .expect("date");
    let text = String::from_utf8(date.stdout).expect("text");
    let (time, date) = text.trim().split_once(' ').expect("time and date");
    let time = format!("{time}.{:03}", unix_milliseconds.rem_euclid(1000));
    if !fix {
        return sentence(&format!("GPGGA,{time},,,,,0,00,99.9,,M,,M,,"))
            + &sentence("GPGSA,A,1,,,,,,,,,,,,,99.9,99.9,99.9")
            + &sentence(&format!("GPRMC,{time},V,,,,,,,{date},,,N"));
    }
    let east = format!("002{:09.6}", MINUTES + way(unix_milliseconds) * 60.0);
    sentence(&format!("GPGGA,{time},4850.250000,N,{east},E,1,08,0.9,100.0,M,47.0,M,,"))
        + &sentence("GPGSA,A,3,04,05,09,12,24,25,29,31,,,,,1.8,0.9,1.5")
        + &sentence(&format!("GPRMC,{time},A,4850.250000,N,{east},E,020.0,090.0,{date},,,A"))
}

/// A receiver behind gpsd that sends one cycle a second.
struct Receiver {
    fix: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    /// Milliseconds by which the receiver's clock is ahead.
    ahead: Arc<AtomicI64>,
    stop: Option<mpsc::Sender<()>>,
}

impl Receiver {
    fn new(host: &Host) -> Receiver {
        let socket = host.run(|| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let (fix, silent, ahead) =
            (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let (stop, stopped) = mpsc::channel::<()>();
        let receiver =
            Receiver { fix: fix.clone(), silent: silent.clone(), ahead: ahead.clone(), stop: Some(stop) };
        std::thread::spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_secs(1)) {
                if !silent.load(Ordering::Relaxed) {
                    let at = unix() + ahead.load(Ordering::Relaxed);
                    // The kernel refuses the datagram while gpsd does not run, so an error does not matter.
                    let text = cycle(at, fix.load(Ordering::Relaxed));
                    let _ = socket.send_to(text.as_bytes(), ("127.0.0.1", 5000));
                }
            }
        });
        receiver
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// A gpsd, or a gpsfake that runs its own gpsd.
struct Gpsd(Child);

impl Gpsd {
    fn start(host: &Host, scratch: &Scratch) -> Gpsd {
        let socket = scratch.path("gpsd.sock");
        let words = ["gpsd", "-N", "-n", "-S", "2947", "-F", socket.to_str().expect("a path")];
        Gpsd::spawn(host, &[&words[..], &["udp://127.0.0.1:5000"]].concat())
    }

    /// Starts gpsfake, which plays a recorded log again and again, twenty cycles a second.
    fn fake(host: &Host, log: &Path) -> Gpsd {
        let log = log.to_str().expect("a path");
        Gpsd::spawn(host, &["gpsfake", "-q", "-n", "-c", "0.05", "-P", "2947", log])
    }

    fn spawn(host: &Host, words: &[&str]) -> Gpsd {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Gpsd(host.spawn(&words, |command| {
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
struct Scene {
    host: Host,
    scratch: Scratch,
    ear: Ear,
    /// Host at the other end of the station's link.
    _other: Host,
}

impl Scene {
    fn new() -> Scene {
        let (host, other) = (Host::new(), Host::new());
        host.link("radio", &other, "radio");
        Scene { ear: Ear::new(&other), host, scratch: Scratch::new(), _other: other }
    }

    fn station(&self) -> Station {
        let config = format!(
            "[station]\nname = 's'\nsocket = '{}'\n[geonet]\ninterface = 'radio'\n\
             position = 'gpsd://[::1]:2947'\nbeacon = {{ interval = '50ms', jitter = '0s' }}\n",
            self.scratch.path("s.sock").display()
        );
        Station::start(&self.host, &config)
    }
}

/// Returns the distance of a position in a frame from the receiver's place at that time, in metres.
fn error(heard: &Heard) -> f64 {
    let expected = 2.0 + MINUTES / 60.0 + way(heard.unix - heard.age());
    (heard.longitude - expected) * METRES_PER_DEGREE
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// EN 302 636-4-1 10.2.2: each packet has the position of its sending time. The receiver has one fix a
/// second, and the station sends twenty beacons a second.
#[test]
fn packet_contains_position_of_its_sending_time() {
    if !with_gpsd() {
        return;
    }
    let scene = Scene::new();
    let _receiver = Receiver::new(&scene.host);
    let _gpsd = Gpsd::start(&scene.host, &scene.scratch);
    let mut station = scene.station();
    scene.ear.wait_for("an accurate position", |heard| heard.accurate && heard.speed > 5.0);
    let heard = scene.ear.beacons(seconds(5));
    assert!(heard.len() > 20, "{} beacons", heard.len());
    assert!(heard.iter().all(|beacon| beacon.accurate), "{heard:#?}");
    let mut last = 0;
    for beacon in &heard {
        assert!(beacon.timestamp >= last, "{heard:#?}");
        last = beacon.timestamp;
    }
    let ages = median(heard.iter().map(|beacon| beacon.age() as f64).collect());
    let errors = median(heard.iter().map(|beacon| error(beacon).abs()).collect());
    // Without dead reckoning, half of the positions would be older than half a second.
    assert!(ages < 300.0, "{ages} ms old");
    assert!(errors < 1.0, "{errors} m off");
    assert!((heard[0].latitude - LATITUDE).abs() < 1e-6, "{heard:#?}");
    station.terminate();
}

#[test]
fn position_accuracy_indicator_is_cleared_without_fix() {
    if !with_gpsd() {
        return;
    }
    let scene = Scene::new();
    let receiver = Receiver::new(&scene.host);
    let mut gpsd = Gpsd::start(&scene.host, &scene.scratch);
    receiver.fix.store(false, Ordering::Relaxed);
    let mut station = scene.station();
    // Before the first fix the station sends no beacon.
    assert_eq!(scene.ear.beacons(seconds(3)), []);
    let state = |station: &Station| station.show("status")["geonet"]["position"].clone();
    assert_eq!(state(&station), "no_fix");
    receiver.fix.store(true, Ordering::Relaxed);
    let accurate = |heard: &Heard| heard.accurate;
    let inaccurate = |heard: &Heard| !heard.accurate;
    scene.ear.wait_for("an accurate position", accurate);

    receiver.fix.store(false, Ordering::Relaxed);
    let lost = scene.ear.wait_for("no fix", inaccurate);
    assert_eq!(state(&station), "no_fix");
    // Beacons continue without a fix, with the time of their position.
    let after = scene.ear.wait_for("the time goes on", |h| h.timestamp > lost.timestamp + 500);
    assert!(inaccurate(&after), "{after:?}");
    receiver.fix.store(true, Ordering::Relaxed);
    scene.ear.wait_for("a fix again", accurate);

    receiver.silent.store(true, Ordering::Relaxed);
    scene.ear.wait_for("a receiver that has fallen silent", inaccurate);
    wait_until("it is said", seconds(10), || state(&station) == "stale");
    receiver.silent.store(false, Ordering::Relaxed);
    scene.ear.wait_for("the receiver again", accurate);

    gpsd.stop();
    scene.ear.wait_for("no gpsd", inaccurate);
    assert_eq!(state(&station), "disconnected");
    let _gpsd = Gpsd::start(&scene.host, &scene.scratch);
    scene.ear.wait_for("gpsd again", accurate);
    assert_eq!(state(&station), "fix");
    station.terminate();
}

/// gpsfake plays a log into a pseudo-terminal, as a serial receiver would.
#[test]
fn positions_of_gpsfake_drive_survive_tunnels() {
    if !with_gpsd() {
        return;
    }
    let scene = Scene::new();
    let log = scene.scratch.path("drive.nmea");
    let text: String = (0..200).map(|second| cycle(unix() + second * 1000, second % 40 < 20)).collect();
    std::fs::write(&log, text).expect("a log");
    let mut gpsfake = Gpsd::fake(&scene.host, &log);
    let mut station = scene.station();
    for _ in 0..3 {
        scene.ear.wait_for("a fix", |heard| heard.accurate);
        scene.ear.wait_for("a tunnel", |heard| !heard.accurate);
    }
    gpsfake.stop();
    wait_until("gpsd is gone", seconds(20), || {
        station.show("status")["geonet"]["position"] == "disconnected"
    });
    let mut gpsfake = Gpsd::fake(&scene.host, &log);
    scene.ear.wait_for("gpsd again", |heard| heard.accurate);
    gpsfake.stop();
    station.terminate();
}

/// The system clock is an hour off, as in the wrong time zone.
#[test]
fn wrong_system_clock_is_reported_once() {
    if !with_gpsd() {
        return;
    }
    let scene = Scene::new();
    let receiver = Receiver::new(&scene.host);
    receiver.ahead.store(3_600_000, Ordering::Relaxed);
    let _gpsd = Gpsd::start(&scene.host, &scene.scratch);
    let mut station = scene.station();
    wait_until("it is said", seconds(20), || station.log().contains("the system clock is"));
    // Sent packets have the time of the receiver, which is right.
    let heard = scene.ear.beacons(seconds(5));
    assert!(
        heard.iter().any(|beacon| beacon.accurate && (beacon.age() + 3_600_000).abs() < 5000),
        "{heard:#?}"
    );
    assert_eq!(station.log().matches("the system clock is").count(), 1, "{}", station.log());
    station.terminate();
}
