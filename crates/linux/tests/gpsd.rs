//! Tests positions from a real gpsd, whose receiver is this test or gpsfake.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::cell::Cell;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carnet_linux::clock;
use carnet_linux::position::*;

/// Runs `body` in a separate network namespace, if gpsd and gpsfake are installed.
fn run_with_gpsd<F: Future<Output = ()>>(body: impl FnOnce(ScratchFolder) -> F + Send + 'static) {
    for tool in ["gpsd", "gpsfake"] {
        let directories = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        if !directories.split(':').any(|directory| Path::new(directory).join(tool).exists()) {
            let reason = format!("no {tool} here (Debian packages gpsd and gpsd-clients)");
            assert!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"), "{reason}");
            println!("\nSKIPPED: {reason}");
            return;
        }
    }
    in_new_namespace(body);
}

/// A gpsd whose receivers are UDP ports of this machine.
struct Gpsd(Child);

impl Gpsd {
    fn start_gpsd(scratch: &ScratchFolder, receivers: &[&str]) -> Gpsd {
        let child = Command::new("gpsd")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin")
            .args(["-N", "-n", "-S", "2947", "-F"])
            .arg(scratch.path().join("gpsd.sock"))
            .args(receivers)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Gpsd(child)
    }
}

impl Drop for Gpsd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nmea_sentence(text: &str) -> String {
    format!("${text}*{:02X}\r\n", text.bytes().fold(0, |sum, octet| sum ^ octet))
}

/// Returns a receiver's reports of one cycle. The time in them is `ahead` seconds ahead of this machine's
/// clock in UTC.
fn nmea_cycle(fix: bool, ahead: i64) -> String {
    let unix = (clock::wall_time().as_unix_nanos() / 10_000_000) as i64 + ahead * 100;
    let date =
        Command::new("date").args(["-u", "-d", &format!("@{}", unix / 100), "+%H%M%S %d%m%y"]).output();
    let text = String::from_utf8(date.unwrap().stdout).unwrap();
    let (time, date) = text.trim().split_once(' ').unwrap();
    let time = format!("{time}.{:02}", unix % 100);
    if fix {
        nmea_sentence(&format!("GPGGA,{time},4850.2500,N,00206.0480,E,1,08,0.9,100.0,M,47.0,M,,"))
            + &nmea_sentence("GPGSA,A,3,04,05,09,12,24,25,29,31,,,,,1.8,0.9,1.5")
            + &nmea_sentence(&format!("GPRMC,{time},A,4850.2500,N,00206.0480,E,019.4,090.0,{date},,,A"))
    } else {
        nmea_sentence(&format!("GPGGA,{time},,,,,0,00,99.9,,M,,M,,"))
            + &nmea_sentence("GPGSA,A,1,,,,,,,,,,,,,99.9,99.9,99.9")
            + &nmea_sentence(&format!("GPRMC,{time},V,,,,,,,{date},,,N"))
    }
}

/// A receiver that sends a cycle five times per second.
struct SimulatedReceiver {
    socket: UdpSocket,
    port: u16,
    has_fix: Cell<bool>,
    seconds_ahead: Cell<i64>,
    is_silent: Cell<bool>,
}

impl SimulatedReceiver {
    fn new(port: u16) -> SimulatedReceiver {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        SimulatedReceiver {
            socket,
            port,
            has_fix: Cell::new(true),
            seconds_ahead: Cell::new(0),
            is_silent: Cell::new(false),
        }
    }

    fn send_sentences(&self) {
        if !self.is_silent.get() {
            let text = nmea_cycle(self.has_fix.get(), self.seconds_ahead.get());
            // The send fails as long as gpsd does not listen.
            let _ = self.socket.send_to(text.as_bytes(), ("127.0.0.1", self.port));
        }
    }
}

fn position_source(text: &str) -> PositionSource {
    PositionSource::open(&text.parse().unwrap(), PositionOptions::default()).unwrap()
}

/// Makes the receivers send until an event satisfies `wanted`. Returns all events up to that one.
async fn events_until(
    source: &mut PositionSource,
    receivers: &[&SimulatedReceiver],
    mut wanted: impl FnMut(&PositionEvent) -> bool,
) -> Vec<PositionEvent> {
    let (mut seen, mut spoken) = (Vec::new(), Instant::now() - Duration::from_secs(1));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "not within twenty seconds; seen {seen:#?}");
        if spoken.elapsed() >= Duration::from_millis(200) {
            spoken = Instant::now();
            receivers.iter().for_each(|receiver| receiver.send_sentences());
        }
        // The timeout drops the future repeatedly, as a busy `select!` does.
        if let Ok(event) = tokio::time::timeout(Duration::from_millis(20), source.next_event()).await {
            let done = wanted(&event);
            seen.push(event);
            if done {
                return seen;
            }
        }
    }
}

fn is_fix(event: &PositionEvent) -> bool {
    matches!(event, PositionEvent::Fix(_))
}

fn loss_reasons(events: &[PositionEvent]) -> Vec<&PositionLossReason> {
    let reasons = events.iter().filter_map(|event| match event {
        PositionEvent::Lost { reason } => Some(reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn gpsd_fix_is_reported_lost_and_found_again() {
    run_with_gpsd(|scratch| async move {
        let gpsd = Gpsd::start_gpsd(&scratch, &["udp://127.0.0.1:5000"]);
        let receiver = SimulatedReceiver::new(5000);
        let mut source = position_source("gpsd://[::1]:2947");
        let events = events_until(&mut source, &[&receiver], is_fix).await;
        assert!(events.iter().any(|e| matches!(e, PositionEvent::Connected { .. })), "{events:#?}");
        assert!(events.contains(&PositionEvent::Mode(FixMode::ThreeD)), "{events:#?}");
        let events = events_until(
            &mut source,
            &[&receiver],
            |e| matches!(e, PositionEvent::Fix(f) if f.speed.is_some()),
        )
        .await;
        let Some(PositionEvent::Fix(fix)) = events.last() else { unreachable!() };
        assert!((fix.latitude - 48.8375).abs() < 1e-6 && (fix.longitude - 2.1008).abs() < 1e-6, "{fix:?}");
        // The speed is 19.4 knots to the East.
        assert!(fix.speed.is_some_and(|speed| (speed - 9.98).abs() < 0.01), "{fix:?}");
        assert_eq!(fix.course_degrees, Some(90.0));
        assert_eq!(fix.altitude, Some(147.0));
        assert!(fix.confidence_radius.is_some_and(|radius| radius > 1.0 && radius < 40.0), "{fix:?}");
        assert!(clock::wall_time().absolute_difference(fix.time) < Duration::from_secs(2), "{fix:?}");

        receiver.has_fix.set(false);
        let events =
            events_until(&mut source, &[&receiver], |e| matches!(e, PositionEvent::Lost { .. })).await;
        assert_eq!(loss_reasons(&events), [&PositionLossReason::NoFix]);
        assert!(events.contains(&PositionEvent::Mode(FixMode::None)), "{events:#?}");

        receiver.has_fix.set(true);
        let events = events_until(&mut source, &[&receiver], is_fix).await;
        assert_eq!(loss_reasons(&events), [] as [&PositionLossReason; 0]);

        receiver.is_silent.set(true);
        let start = Instant::now();
        let events =
            events_until(&mut source, &[&receiver], |e| matches!(e, PositionEvent::Lost { .. })).await;
        assert_eq!(loss_reasons(&events), [&PositionLossReason::Stale]);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());

        receiver.is_silent.set(false);
        events_until(&mut source, &[&receiver], is_fix).await;
        drop(gpsd);
    });
}

#[test]
fn connection_follows_restarts_of_gpsd() {
    run_with_gpsd(|scratch| async move {
        let receiver = SimulatedReceiver::new(5000);
        let mut source = position_source("gpsd://[::1]:2947");
        let events = events_until(&mut source, &[], |e| matches!(e, PositionEvent::Lost { .. })).await;
        assert!(matches!(loss_reasons(&events)[..], [PositionLossReason::Disconnected(why)]
                if why.contains("refused")));
        for _ in 0..2 {
            let gpsd = Gpsd::start_gpsd(&scratch, &["udp://127.0.0.1:5000"]);
            let events = events_until(&mut source, &[&receiver], is_fix).await;
            // The source has reported only one failure, although it has tried several times.
            let told = loss_reasons(&events);
            assert!(told.iter().all(|reason| **reason == PositionLossReason::NoDevice), "{told:?}");
            drop(gpsd);
            let events = events_until(&mut source, &[], |e| matches!(e, PositionEvent::Lost { .. })).await;
            assert!(
                matches!(loss_reasons(&events)[..], [PositionLossReason::Disconnected(_)]),
                "{events:#?}"
            );
        }
    });
}

#[test]
fn missing_receiver_is_reported_as_reason() {
    run_with_gpsd(|scratch| async move {
        let gpsd = Gpsd::start_gpsd(&scratch, &[]);
        let mut source = position_source("gpsd://localhost");
        let wanted = |event: &PositionEvent| match event {
            PositionEvent::Lost { reason } => !matches!(reason, PositionLossReason::Disconnected(_)),
            _ => false,
        };
        let events = events_until(&mut source, &[], wanted).await;
        assert_eq!(loss_reasons(&events).last(), Some(&&PositionLossReason::NoDevice));
        drop(gpsd);
    });
}

#[test]
fn reader_follows_one_of_two_gps_receivers() {
    run_with_gpsd(|scratch| async move {
        let gpsd = Gpsd::start_gpsd(&scratch, &["udp://127.0.0.1:5000", "udp://127.0.0.1:5001"]);
        let (good, blind) = (SimulatedReceiver::new(5000), SimulatedReceiver::new(5001));
        blind.has_fix.set(false);
        let mut source = position_source("gpsd://127.0.0.1:2947");
        events_until(&mut source, &[&good, &blind], is_fix).await;
        let mut fixes = 0;
        let events = events_until(&mut source, &[&good, &blind], |e| {
            fixes += u32::from(is_fix(e));
            fixes == 15
        })
        .await;
        assert_eq!(loss_reasons(&events), [] as [&PositionLossReason; 0]);
        drop(gpsd);
    });
}

/// The system clock is wrong by an hour, as with a wrong time zone.
#[test]
fn wrong_and_corrected_system_clock_is_noticed() {
    run_with_gpsd(|scratch| async move {
        let gpsd = Gpsd::start_gpsd(&scratch, &["udp://127.0.0.1:5000"]);
        let receiver = SimulatedReceiver::new(5000);
        receiver.seconds_ahead.set(3600);
        let mut source = position_source("gpsd://[::1]:2947");
        let is_clock = |e: &PositionEvent| matches!(e, PositionEvent::Clock(_));
        let events = events_until(&mut source, &[&receiver], is_clock).await;
        let Some(PositionEvent::Clock(difference)) = events.last() else { unreachable!() };
        assert!(
            difference.is_clock_wrong && (difference.milliseconds_ahead + 3_600_000).abs() < 2000,
            "{difference:?}"
        );
        // Start a new gpsd. The running gpsd would take an earlier time of day for a time of the next day.
        drop(gpsd);
        let gpsd = Gpsd::start_gpsd(&scratch, &["udp://127.0.0.1:5000"]);
        receiver.seconds_ahead.set(0);
        let events = events_until(&mut source, &[&receiver], is_clock).await;
        let Some(PositionEvent::Clock(difference)) = events.last() else { unreachable!() };
        assert!(!difference.is_clock_wrong && difference.milliseconds_ahead.abs() < 2000, "{difference:?}");
        drop(gpsd);
    });
}

/// gpsfake plays a log into a pseudo-terminal, as a serial receiver would.
#[test]
fn gpsfake_drive_gives_its_positions() {
    run_with_gpsd(|scratch| async move {
        let log = scratch.path().join("drive.nmea");
        let text: String = (0..100).map(|second| nmea_cycle(second % 40 < 20, second)).collect();
        std::fs::write(&log, text).unwrap();
        let mut gpsfake = Command::new("gpsfake")
            .args(["-q", "-n", "-c", "0.05", "-P", "2947"])
            .arg(&log)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut source = position_source("gpsd://[::1]:2947");
        events_until(&mut source, &[], is_fix).await;
        let events = events_until(&mut source, &[], |e| {
            *e == PositionEvent::Lost { reason: PositionLossReason::NoFix }
        })
        .await;
        assert!(events.iter().filter(|e| is_fix(e)).count() > 3, "{events:#?}");
        events_until(&mut source, &[], is_fix).await;
        // On this signal gpsfake also ends its gpsd.
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(gpsfake.id().try_into().unwrap()),
            nix::sys::signal::Signal::SIGINT,
        )
        .unwrap();
        gpsfake.wait().unwrap();
        events_until(&mut source, &[], |e| {
            matches!(e, PositionEvent::Lost { reason: PositionLossReason::Disconnected(_) })
        })
        .await;
    });
}
