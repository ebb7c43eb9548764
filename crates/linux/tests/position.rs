//! Tests positions without a receiver: the parser of gpsd's reports, the tracker, traces and dead reckoning.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_linux::position::dead_reckoning::{
    MAX_TIME_WITHOUT_FIX, PAI_INTERVAL_M, PositionReckoner, confidence_after, fix_after, is_accurate,
    position_after,
};
use carnet_linux::position::fix_tracker::{CLOCK_WARNING_DELAY, FixTracker};
use carnet_linux::position::gpsd::{GpsdReport, MAX_LINE_LENGTH, ReportReader, watch_command};
use carnet_linux::position::position_trace::{PositionTrace, TracePlayer, TraceState};
use carnet_linux::position::*;
use carnet_wire::geonet::GnAddress;
use geographiclib_rs::{DirectGeodesic, Geodesic, InverseGeodesic};
use proptest::prelude::*;

/// Lines that were captured from gpsd 3.22.
const VERSION_REPORT: &str =
    r#"{"class":"VERSION","release":"3.22","rev":"3.22","proto_major":3,"proto_minor":14}"#;
const TPV_REPORT: &str = concat!(
    r#"{"class":"TPV","device":"/dev/pts/1","mode":3,"time":"2026-11-21T12:00:00.000Z","ept":0.005,"#,
    r#""lat":48.837500000,"lon":2.100800000,"altHAE":147.0000,"altMSL":100.0000,"alt":100.0000,"#,
    r#""epv":34.500,"track":90.0000,"magtrack":90.7544,"magvar":0.8,"speed":9.980,"climb":0.000,"#,
    r#""epc":69.00,"geoidSep":47.000,"eph":17.100,"sep":34.200}"#
);
const NO_FIX_REPORT: &str =
    r#"{"class":"TPV","device":"/dev/pts/1","mode":1,"time":"2026-11-21T12:00:01.000Z"}"#;
const TOFF_REPORT: &str = concat!(
    r#"{"class":"TOFF","device":"/dev/pts/1","real_sec":1795262400, "real_nsec":0,"#,
    r#""clock_sec":1795262400,"clock_nsec":350000000}"#
);
const GST_REPORT: &str =
    r#"{"class":"GST","device":"/dev/pts/1","rms":6.000,"major":3.000,"lat":2.500,"lon":2.100}"#;
const DEVICES_REPORT: &str = concat!(
    r#"{"class":"DEVICES","devices":[{"class":"DEVICE","path":"/dev/pts/1","driver":"NMEA0183","#,
    r#""activated":"2026-11-21T22:49:15.716Z","bps":4800}]}"#
);
/// 2026-11-21T12:00:00Z in milliseconds.
const NOON_UNIX_MILLISECONDS: u64 = 1_795_262_400_000;

fn parse_reports(octets: &[u8]) -> (Vec<GpsdReport>, ReportReader) {
    let (mut reader, mut reports) = (ReportReader::default(), Vec::new());
    reader.push(octets, |report| reports.push(report));
    (reports, reader)
}

fn parse_report(line: &str) -> GpsdReport {
    serde_json::from_str(line).unwrap()
}

fn wall_time(milliseconds: u64) -> WallTime {
    WallTime::from_unix_nanos(milliseconds * 1_000_000)
}

fn fix_of(line: &str) -> Option<PositionFix> {
    match parse_report(line) {
        GpsdReport::Tpv(tpv) => tpv.to_fix(Time::from_secs(7)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn gpsd_session_is_parsed_in_pieces_of_any_size() {
    let session = [VERSION_REPORT, DEVICES_REPORT, GST_REPORT, "", TPV_REPORT, TOFF_REPORT, NO_FIX_REPORT]
        .join("\r\n")
        + "\n";
    let (whole, reader) = parse_reports(session.as_bytes());
    assert_eq!((whole.len(), reader.counters().valid_lines, reader.counters().invalid_lines), (6, 6, 0));
    assert!(matches!(&whole[0], GpsdReport::Version { release } if release == "3.22"));
    assert_eq!(whole[2], GpsdReport::Other);
    for size in [1, 2, 3, 7, 100] {
        let (mut reader, mut pieces) = (ReportReader::default(), Vec::new());
        session.as_bytes().chunks(size).for_each(|piece| reader.push(piece, |report| pieces.push(report)));
        assert_eq!(pieces, whole, "in pieces of {size}");
    }
}

#[test]
fn gpsd_fix_is_converted_to_geonetworking_units() {
    let fix = fix_of(TPV_REPORT).unwrap();
    let expected = PositionFix {
        received_at: Time::from_secs(7),
        time: wall_time(NOON_UNIX_MILLISECONDS),
        latitude: 48.8375,
        longitude: 2.1008,
        altitude: Some(147.0),
        speed: Some(9.98),
        course_degrees: Some(90.0),
        climb_rate: Some(0.0),
        fix_mode: FixMode::ThreeD,
        confidence_radius: Some(17.1),
    };
    assert_eq!(fix, expected);
    let vector = fix.position_vector(GnAddress(5), 5, PAI_INTERVAL_M);
    // The expected value was computed by hand from the standard.
    assert_eq!(vector.timestamp.0, 0x2F3F_A188);
    assert_eq!((vector.latitude, vector.longitude), (488_375_000, 21_008_000));
    assert_eq!((vector.speed, vector.heading, vector.accurate), (998, 900, true));
}

#[test]
fn headings_and_speeds_are_limited_to_the_position_vector_fields() {
    let mut fix = fix_of(TPV_REPORT).unwrap();
    for (track, expected) in [(0.0, 0), (359.94, 3599), (359.96, 0), (359.999_999, 0), (180.05, 1801)] {
        fix.course_degrees = Some(track);
        assert_eq!(fix.position_vector(GnAddress(0), 5, PAI_INTERVAL_M).heading, expected, "{track}");
    }
    fix.speed = Some(1000.0);
    assert_eq!(fix.position_vector(GnAddress(0), 5, PAI_INTERVAL_M).speed, i16::MAX);
    (fix.course_degrees, fix.speed, fix.confidence_radius) = (None, None, None);
    let vector = fix.position_vector(GnAddress(0), 5, PAI_INTERVAL_M);
    assert_eq!((vector.speed, vector.heading, vector.accurate), (0, 0, false));
}

#[test]
fn report_without_fix_gives_no_fix() {
    assert_eq!(fix_of(NO_FIX_REPORT), None);
    for (from, to) in [
        (r#""lat":48.837500000"#, r#""lat":91"#),
        (r#""lat":48.837500000,"#, ""),
        (r#""lon":2.100800000"#, r#""lon":-180.1"#),
        (r#""time":"2026-11-21T12:00:00.000Z","#, ""),
        ("2026-11-21T", "yesterday at "),
        (r#""mode":3"#, r#""mode":0"#),
        (r#""mode":3,"#, ""),
    ] {
        let line = TPV_REPORT.replace(from, to);
        assert_ne!(line, TPV_REPORT);
        assert_eq!(fix_of(&line), None, "{line}");
    }
    // If a field other than the position has an absurd value, the fix omits the field.
    let line = TPV_REPORT
        .replace(r#""speed":9.980"#, r#""speed":-3"#)
        .replace(r#""track":90.0000"#, r#""track":1e9"#);
    let fix = fix_of(&line).unwrap();
    assert_eq!((fix.speed, fix.course_degrees), (None, None));
    let diagonal = TPV_REPORT.replace(r#""eph":17.100"#, r#""epx":3,"epy":4"#);
    assert_eq!(fix_of(&diagonal).unwrap().confidence_radius, Some(5.0));
    assert_eq!(fix_of(&TPV_REPORT.replace(r#""eph":17.100,"#, "")).unwrap().confidence_radius, None);
}

#[test]
fn invalid_gpsd_lines_are_counted_and_long_ones_cut() {
    let mut input = b"hello\n{}\n[1]\nnull\n\xff\xfe\n{\"class\":\"TPV\",\"lat\":\"north\"}\n".to_vec();
    input.extend(vec![b'x'; 3 * MAX_LINE_LENGTH]);
    input.extend(format!("\n{TPV_REPORT}\n").bytes());
    let (found, reader) = parse_reports(&input);
    assert!(matches!(&found[..], [GpsdReport::Tpv(_)]), "{found:?}");
    assert_eq!((reader.counters().invalid_lines, reader.counters().overlong_lines), (6, 1));
}

#[test]
fn reader_can_follow_one_named_receiver() {
    assert_eq!(watch_command(None), "?WATCH={\"enable\":true,\"json\":true,\"pps\":true};\n");
    let command = watch_command(Some("/dev/tty\"A"));
    let json = command.strip_prefix("?WATCH=").and_then(|c| c.strip_suffix(";\n")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap()["device"], "/dev/tty\"A");
}

proptest! {
#[test]
fn random_octets_do_not_panic_the_reader(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
parse_reports(&octets);
}

/// The test mutates a valid gpsd session. All reports that the reader returns are valid, and it still parses
/// the next valid line.
#[test]
fn mutated_gpsd_sessions_give_valid_reports(
edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..8),
) {
let lines = [VERSION_REPORT, DEVICES_REPORT, TPV_REPORT, TOFF_REPORT, NO_FIX_REPORT];
let mut session = lines.join("\n").into_bytes();
for (index, octet, kind) in edits {
let at = index.index(session.len());
match kind {
0 => session[at] = octet,
1 => session.insert(at, octet),
_ => { session.remove(at); }
}
}
let mut reader = ReportReader::default();
let mut tracker = FixTracker::new(PositionOptions::default());
session.push(b'\n');
session.extend(TPV_REPORT.bytes());
session.push(b'\n');
let mut last = None;
reader.push(&session, |report| {
tracker.handle_report(Time::from_secs(1), wall_time(NOON_UNIX_MILLISECONDS), &report, true);
last = Some(report);
});
prop_assert_eq!(last, Some(parse_report(TPV_REPORT)));
while let Some(event) = tracker.poll_event() {
if let PositionEvent::Fix(fix) = event {
prop_assert!(fix.latitude.abs() <= 90.0 && fix.longitude.abs() <= 180.0);
prop_assert!(fix.course_degrees.is_none_or(|track| (0.0..360.0).contains(&track)));
prop_assert!(fix.position_vector(GnAddress(0), 5, PAI_INTERVAL_M).is_on_globe());
}
}
}

/// The expected positions are on a geodesic, computed with an error of nanometres.
#[test]
fn dead_reckoning_follows_the_geodesic(
latitude in -80.0..80.0f64, longitude in -180.0..180.0f64,
speed in 0.0..100.0f64, track in 0.0..360.0f64, seconds in 0.0..10.0f64,
) {
let (lat, lon) = position_after(latitude, longitude, speed, track, Duration::from_secs_f64(seconds));
prop_assert!((-180.0..=180.0).contains(&lon));
let earth = Geodesic::wgs84();
let (true_lat, true_lon) = earth.direct(latitude, longitude, track, speed * seconds);
let error: f64 = earth.inverse(lat, lon, true_lat, true_lon);
// Tolerated error in metres for a path of one kilometre. It is larger near the poles, where the circles of
// latitude are more curved.
let limit = if latitude.abs() < 60.0 { 0.15 } else { 0.6 };
prop_assert!(error < limit, "{} m off", error);
}

#[test]
fn random_text_does_not_panic_trace_parser(text in "[0-9lost#. \n-]{0,80}") {
if let Ok(trace) = PositionTrace::parse(&text) {
for seconds in [0.0, 0.5, 3.0, 1e10] {
trace.state_at(seconds);
}
}
}
}

#[test]
fn position_is_accurate_only_with_confidence_below_half_the_interval() {
    for (confidence, expected) in [
        (None, false),
        (Some(0.0), true),
        (Some(39.99), true),
        (Some(40.0), false),
        (Some(f64::NAN), false),
        (Some(f64::INFINITY), false),
        (Some(-1.0), false),
    ] {
        assert_eq!(is_accurate(confidence, PAI_INTERVAL_M), expected, "{confidence:?}");
    }
}

#[test]
fn confidence_of_reckoned_position_gets_worse() {
    let mut fix = fix_of(TPV_REPORT).unwrap();
    fix.confidence_radius = Some(5.0);
    assert_eq!(confidence_after(5.0, Duration::ZERO), 5.0);
    assert!(is_accurate(fix_after(&fix, Duration::from_secs(4)).confidence_radius, PAI_INTERVAL_M));
    assert!(!is_accurate(fix_after(&fix, Duration::from_millis(4200)).confidence_radius, PAI_INTERVAL_M));
    let later = fix_after(&fix, Duration::from_secs(2));
    assert_eq!(
        (later.received_at, later.time),
        (Time::from_secs(9), wall_time(NOON_UNIX_MILLISECONDS + 2000))
    );
    let distance: f64 =
        Geodesic::wgs84().inverse(fix.latitude, fix.longitude, later.latitude, later.longitude);
    assert!((distance - 19.96).abs() < 1e-3, "{distance}");
    // A receiver at rest reports no track.
    fix.course_degrees = None;
    assert_eq!(fix_after(&fix, Duration::from_secs(2)).latitude, fix.latitude);
}

#[test]
fn reckoning_goes_across_the_antimeridian_and_not_across_the_pole() {
    let (_, longitude) = position_after(0.0, 179.9999, 30.0, 90.0, Duration::from_secs(1));
    assert!(longitude < -179.99, "{longitude}");
    let (latitude, longitude) = position_after(90.0, 0.0, 30.0, 0.0, Duration::from_secs(1000));
    assert!(latitude == 90.0 && longitude.is_finite());
}

/// A tracker and the clocks that drive it.
struct TrackerDriver {
    tracker: FixTracker,
    now: Time,
    /// Time of the system clock minus the receiver's time, in milliseconds.
    clock_difference_ms: i64,
    /// Number of reports so far. Each report has a time one millisecond after the previous one.
    report_count: u64,
}

impl TrackerDriver {
    fn new() -> TrackerDriver {
        let tracker = FixTracker::new(PositionOptions::default());
        TrackerDriver { tracker, now: Time::from_secs(100), clock_difference_ms: 0, report_count: 0 }
    }

    fn take_events(&mut self) -> Vec<PositionEvent> {
        std::iter::from_fn(|| self.tracker.poll_event()).collect()
    }

    fn receive_line(&mut self, line: &str) -> Vec<PositionEvent> {
        self.report_count += 1;
        let line = line.replace("12:00:00.000Z", &format!("12:00:00.{:03}Z", self.report_count));
        let wall = wall_time(
            ((NOON_UNIX_MILLISECONDS + self.report_count) as i64 + self.clock_difference_ms) as u64,
        );
        self.tracker.handle_report(self.now, wall, &parse_report(&line), true);
        self.take_events()
    }

    fn advance_clock(&mut self, milliseconds: u64) -> Vec<PositionEvent> {
        self.now += Duration::from_millis(milliseconds);
        self.tracker.handle_timeout(self.now);
        self.take_events()
    }

    fn clock_difference_after(&mut self, line: &str) -> Option<ClockDifference> {
        self.advance_clock(1000);
        self.receive_line(line).iter().find_map(|event| match event {
            PositionEvent::Clock(difference) => Some(*difference),
            _ => None,
        })
    }
}

#[test]
fn reader_reports_loss_of_position_once_with_reason() {
    let mut driven = TrackerDriver::new();
    driven.tracker.handle_connected(driven.now);
    assert_eq!(driven.advance_clock(2999), []);
    assert_eq!(driven.advance_clock(1), [PositionEvent::Lost { reason: PositionLossReason::Stale }]);
    assert_eq!(
        driven.receive_line(NO_FIX_REPORT),
        [PositionEvent::Lost { reason: PositionLossReason::NoFix }]
    );
    assert_eq!(driven.receive_line(NO_FIX_REPORT), []);
    let events = driven.receive_line(TPV_REPORT);
    assert!(
        matches!(events[..], [PositionEvent::Mode(FixMode::ThreeD), PositionEvent::Fix(_)]),
        "{events:?}"
    );
    let events = driven.receive_line(&TPV_REPORT.replace(r#""mode":3"#, r#""mode":2"#));
    assert!(matches!(events[..], [PositionEvent::Mode(FixMode::TwoD), PositionEvent::Fix(_)]), "{events:?}");
    let gone = r#"{"class":"DEVICE","path":"/dev/pts/1","activated":0}"#;
    let no_device = PositionEvent::Lost { reason: PositionLossReason::NoDevice };
    assert_eq!(driven.receive_line(gone), [PositionEvent::Mode(FixMode::None), no_device]);
    driven.tracker.handle_disconnected("refused".into());
    driven.tracker.handle_disconnected("refused".into());
    assert_eq!(driven.take_events().len(), 1);
    assert_eq!(driven.tracker.poll_timeout(), None);
}

#[test]
fn incomplete_fix_does_not_prolong_last_fix() {
    let mut driven = TrackerDriver::new();
    driven.receive_line(TPV_REPORT);
    assert_eq!(driven.advance_clock(2000), []);
    assert_eq!(driven.receive_line(&TPV_REPORT.replace(r#""lat":48.837500000,"#, "")), []);
    assert_eq!(driven.tracker.incomplete_reports(), 1);
    let reason = PositionLossReason::Unusable("no latitude".into());
    assert_eq!(driven.advance_clock(1000).last(), Some(&PositionEvent::Lost { reason }));
}

#[test]
fn second_gps_receiver_takes_over_when_the_first_is_silent() {
    let mut driven = TrackerDriver::new();
    let other = TPV_REPORT.replace("pts/1", "pts/2");
    driven.receive_line(TPV_REPORT);
    assert_eq!(driven.receive_line(&other), []);
    assert_eq!(driven.receive_line(&NO_FIX_REPORT.replace("pts/1", "pts/2")), []);
    driven.advance_clock(3000);
    assert!(driven.receive_line(&other).iter().any(|event| matches!(event, PositionEvent::Fix(_))));
    assert_eq!(driven.receive_line(TPV_REPORT), []);
}

#[test]
fn reader_reports_leap_second_and_ignores_outdated_offset() {
    let mut driven = TrackerDriver::new();
    let with = |leap: i64| TPV_REPORT.replace(r#""ept""#, &format!(r#""leapseconds":{leap},"ept""#));
    for old in [0, 16, 18] {
        driven.receive_line(&with(old));
        assert_eq!(driven.tracker.leap_seconds(), 5);
    }
    assert!(driven.receive_line(&with(19)).contains(&PositionEvent::LeapSeconds(6)));
    assert_eq!(driven.tracker.leap_seconds(), 6);
}

#[test]
fn lasting_wrong_clock_is_reported_once() {
    let mut driven = TrackerDriver::new();
    // A difference within the delay of a receiver's report does not count as a wrong clock.
    driven.clock_difference_ms = 1500;
    assert!((0..5).all(|_| driven.clock_difference_after(TPV_REPORT).is_none()));
    driven.clock_difference_ms = -5000;
    let told: Vec<_> = (0..10).filter_map(|_| driven.clock_difference_after(TPV_REPORT)).collect();
    assert_eq!(
        told,
        [ClockDifference { milliseconds_ahead: -5000, is_precise: false, is_clock_wrong: true }]
    );
    // A program sets the clock to another wrong time.
    driven.clock_difference_ms = 60_000;
    assert_eq!(
        (0..10)
            .filter_map(|_| driven.clock_difference_after(TPV_REPORT))
            .map(|d| d.milliseconds_ahead)
            .collect::<Vec<_>>(),
        [60_000]
    );
    driven.clock_difference_ms = 300;
    let told: Vec<_> = (0..10).filter_map(|_| driven.clock_difference_after(TPV_REPORT)).collect();
    assert_eq!(told, [ClockDifference { milliseconds_ahead: 300, is_precise: false, is_clock_wrong: false }]);
}

/// Old reports arrive all at once, as after the process was stopped for a while.
#[test]
fn burst_of_old_reports_does_not_indicate_wrong_clock() {
    let mut driven = TrackerDriver::new();
    for age in (0..30).rev() {
        driven.clock_difference_ms = age * 1000;
        assert!(
            !driven.receive_line(TPV_REPORT).iter().any(|event| matches!(event, PositionEvent::Clock(_)))
        );
    }
    assert_eq!(driven.clock_difference_after(TPV_REPORT), None);
    assert!(CLOCK_WARNING_DELAY >= Duration::from_secs(1));
}

#[test]
fn pulse_per_second_takes_precedence_over_report() {
    let mut driven = TrackerDriver::new();
    let pulse = TOFF_REPORT.replace("TOFF", "PPS").replace("350000000", "150000000");
    // The time in a report differs by 1.9 s, which is within the tolerance. The pulse differs by 0.15 s,
    // which exceeds the pulse's tolerance.
    driven.clock_difference_ms = 1900;
    driven.receive_line(&pulse);
    driven.receive_line(TOFF_REPORT);
    let told: Vec<_> = (0..5).filter_map(|_| driven.clock_difference_after(TPV_REPORT)).collect();
    assert_eq!(told, [ClockDifference { milliseconds_ahead: 150, is_precise: true, is_clock_wrong: true }]);
    // A pulse of a gpsd on another machine says nothing about the clock of this machine.
    let mut remote = TrackerDriver::new();
    remote.tracker.handle_report(remote.now, wall_time(NOON_UNIX_MILLISECONDS), &parse_report(&pulse), false);
    assert!((0..5).all(|_| remote.clock_difference_after(TPV_REPORT).is_none()));
}

fn position_of_trace(trace: &PositionTrace, seconds: f64) -> (f64, f64, f64, f64) {
    match trace.state_at(seconds) {
        TraceState::At { latitude, longitude, speed, heading } => (latitude, longitude, speed, heading),
        other => panic!("{seconds}: {other:?}"),
    }
}

fn is_nearly_equal(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn trace_positions_are_interpolated() {
    let trace =
        PositionTrace::parse("# a drive\n 1 48 2 10 350\n\n3 48.0 2.001 20 10 # faster\n4 48.001 2.001\n")
            .unwrap();
    assert_eq!(trace.state_at(0.9), TraceState::Lost);
    assert_eq!(position_of_trace(&trace, 1.0), (48.0, 2.0, 10.0, 350.0));
    let (latitude, longitude, speed, heading) = position_of_trace(&trace, 2.0);
    assert!(
        is_nearly_equal(latitude, 48.0)
            && is_nearly_equal(longitude, 2.0005)
            && is_nearly_equal(speed, 15.0)
            && is_nearly_equal(heading, 0.0)
    );
    // The second line has no speed and heading, so they follow from the positions: 111 m to the North in one
    // second.
    let (.., speed, heading) = position_of_trace(&trace, 3.5);
    assert!((speed - 111.2).abs() < 0.1 && is_nearly_equal(heading, 0.0), "{speed} {heading}");
    assert!(matches!(trace.state_at(4.0), TraceState::At { .. }));
    assert_eq!(trace.state_at(4.1), TraceState::Ended);
}

#[test]
fn trace_crosses_antimeridian_and_can_lose_the_fix() {
    let trace = PositionTrace::parse("0 0 179.999\n2 0 -179.999\n3 lost\n5 1 1\n6 lost\n").unwrap();
    let (_, longitude, speed, heading) = position_of_trace(&trace, 1.0);
    assert!(
        is_nearly_equal(longitude.abs(), 180.0)
            && is_nearly_equal(heading, 90.0)
            && (speed - 111.2).abs() < 0.1
    );
    assert!(position_of_trace(&trace, 1.5).1 < -179.99);
    assert_eq!(trace.state_at(3.0), TraceState::Lost);
    assert_eq!(trace.state_at(4.9), TraceState::Lost);
    assert_eq!(position_of_trace(&trace, 5.5), (1.0, 1.0, 0.0, 0.0));
    assert_eq!(trace.state_at(6.0), TraceState::Lost);
    assert_eq!(trace.state_at(6.1), TraceState::Ended);
}

#[test]
fn trace_errors_name_the_line() {
    for (text, line, expected) in [
        ("", 1, "at least one line"),
        ("# nothing\n", 1, "at least one line"),
        ("0 1 2\n0 1 2\n", 2, "more seconds"),
        ("0 1\n", 1, "seconds latitude longitude"),
        ("0 1 2 3\n", 1, "seconds latitude longitude"),
        ("0 1 2 3 4 5\n", 1, "seconds latitude longitude"),
        ("-1 1 2\n", 1, "seconds, 0"),
        ("NaN 1 2\n", 1, "seconds, 0"),
        ("0 91 2\n", 1, "latitude"),
        ("0 1 181\n", 1, "longitude"),
        ("0 1 2 -3 4\n", 1, "speed"),
        ("0 1 2 3 361\n", 1, "heading"),
    ] {
        let (found, why, _) = PositionTrace::parse(text).unwrap_err();
        assert!(found == line && why.contains(expected), "{text:?}: {found} {why}");
    }
}

fn options_with_interval(milliseconds: u64) -> PositionOptions {
    PositionOptions { interval: Duration::from_millis(milliseconds), ..PositionOptions::default() }
}

#[test]
fn a_trace_is_played_on_its_schedule() {
    let trace = PositionTrace::parse("1 48 2\n2 48 2.001\n").unwrap();
    let mut player = TracePlayer::new(trace, &options_with_interval(500));
    let (mut now, mut told) = (Time::from_secs(50), Vec::new());
    while player.next_event_due(now) != Time::MAX {
        now = player.next_event_due(now);
        told.extend(player.next_due_event(now, wall_time(NOON_UNIX_MILLISECONDS)));
    }
    let kinds: Vec<_> = told
        .iter()
        .map(|event| match event {
            PositionEvent::Fix(fix) => format!("fix {:.4}", fix.longitude),
            PositionEvent::Mode(mode) => format!("{mode:?}"),
            PositionEvent::Lost { reason } => format!("{reason:?}"),
            other => format!("{other:?}"),
        })
        .collect();
    let expected = ["NoFix", "TwoD", "fix 2.0000", "fix 2.0005", "fix 2.0010", "None", "EndOfTrace"];
    assert_eq!(kinds, expected);
    assert_eq!(now, Time::from_millis(52_500));
}

/// Several stations that start at different times move in step.
#[test]
fn absolute_trace_follows_the_clock() {
    let trace = PositionTrace::parse("1795262400 48 2\n1795262410 48 2.01\n").unwrap();
    assert!(trace.uses_unix_time());
    let mut player = TracePlayer::new(trace, &options_with_interval(1000));
    assert_eq!(
        player.next_due_event(Time::ZERO, wall_time(NOON_UNIX_MILLISECONDS + 5000)),
        Some(PositionEvent::Mode(FixMode::TwoD))
    );
    let Some(PositionEvent::Fix(fix)) =
        player.next_due_event(Time::ZERO, wall_time(NOON_UNIX_MILLISECONDS + 5000))
    else {
        panic!("no fix")
    };
    assert!(is_nearly_equal(fix.longitude, 2.005), "{fix:?}");
}

#[test]
fn position_sources_open_by_their_config_text() {
    let directory = std::env::temp_dir().join(format!("carnet-position-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("drive.trace");
    std::fs::write(&file, "0 48 2\n0.25 48 2.001\n").unwrap();
    let open = |text: &str| PositionSource::open(&text.parse().unwrap(), options_with_interval(100));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut source = open(&format!("trace:{}", file.display())).unwrap();
        let mut fixes = 0;
        loop {
            match source.next_event().await {
                PositionEvent::Fix(fix) => {
                    fixes += 1;
                    assert!(
                        fix.time.absolute_difference(carnet_linux::clock::wall_time())
                            < Duration::from_secs(1)
                    );
                }
                PositionEvent::Lost { reason } => break assert_eq!(reason, PositionLossReason::EndOfTrace),
                _ => {}
            }
        }
        assert!((1..=3).contains(&fixes), "{fixes}");
        // After the end of the trace, the source returns no further event.
        assert!(tokio::time::timeout(Duration::from_millis(300), source.next_event()).await.is_err());
        let mut source = open("fixed:48.8375,2.1008").unwrap();
        assert_eq!(source.next_event().await, PositionEvent::Mode(FixMode::TwoD));
        assert!(matches!(source.next_event().await, PositionEvent::Fix(fix) if fix.speed == Some(0.0)));
        assert_eq!(source.leap_seconds(), 5);
    });
    std::fs::write(&file, "0 48 2\nsomewhere\n").unwrap();
    let error = open(&format!("trace:{}", file.display())).unwrap_err().to_string();
    assert!(error.contains("drive.trace:2: expected seconds"), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
    let error = open(&format!("trace:{}", file.display())).unwrap_err().to_string();
    assert!(error.contains("cannot read the trace") && error.contains("drive.trace"), "{error}");
}

#[test]
fn position_and_time_advance_between_fixes() {
    let mut reckoner = PositionReckoner::new(false);
    assert_eq!(reckoner.present_position(Time::from_secs(1)), None);
    let fix = fix_of(TPV_REPORT).unwrap();
    reckoner.handle_fix(fix.clone());
    assert_eq!(reckoner.present_position(Time::from_secs(7)), Some(fix.clone()));
    let half = reckoner.present_position(Time::from_secs(7) + Duration::from_millis(500)).unwrap();
    assert_eq!(half.time, wall_time(NOON_UNIX_MILLISECONDS + 500));
    // 9.98 m/s to the East: 4.99 m are 68 microdegrees at this latitude.
    assert!((half.longitude - fix.longitude - 68.0e-6).abs() < 0.2e-6, "{half:?}");
    assert_eq!(half.confidence_radius, Some(17.1 + 0.5));
    // The next fix arrives 300 ms later than it should. The computed time and position do not step back.
    let late = PositionFix {
        received_at: Time::from_secs(7) + Duration::from_millis(800),
        time: wall_time(NOON_UNIX_MILLISECONDS + 400),
        longitude: fix.longitude + 54.4e-6,
        ..fix.clone()
    };
    reckoner.handle_fix(late);
    let next = reckoner.present_position(Time::from_secs(7) + Duration::from_millis(800)).unwrap();
    assert_eq!(next.time, wall_time(NOON_UNIX_MILLISECONDS + 501));
    assert!(next.longitude > half.longitude && next.longitude < half.longitude + 1e-6, "{next:?}");
    // A receiver's time was set back by an hour. The reckoner accepts the new time.
    let back = PositionFix {
        received_at: Time::from_secs(9),
        time: wall_time(NOON_UNIX_MILLISECONDS - 3_600_000),
        ..fix
    };
    reckoner.handle_fix(back.clone());
    assert_eq!(reckoner.present_position(Time::from_secs(9)), Some(back));
}

#[test]
fn reckoning_without_fix_is_inaccurate_and_ends() {
    let fix = fix_of(TPV_REPORT).unwrap();
    let mut reckoner = PositionReckoner::new(false);
    reckoner.handle_fix(fix.clone());
    reckoner.handle_position_loss();
    let soon = reckoner.present_position(Time::from_secs(8)).unwrap();
    assert_eq!(
        (soon.confidence_radius, soon.speed, soon.time),
        (None, Some(9.98), wall_time(NOON_UNIX_MILLISECONDS + 1000))
    );
    let end = reckoner.present_position(Time::from_secs(7) + MAX_TIME_WITHOUT_FIX).unwrap();
    let later = reckoner.present_position(Time::from_secs(107)).unwrap();
    assert_eq!((later.latitude, later.longitude), (end.latitude, end.longitude));
    assert_eq!(
        (later.speed, later.course_degrees, later.time),
        (None, None, wall_time(NOON_UNIX_MILLISECONDS + 100_000))
    );
    reckoner.handle_fix(PositionFix { received_at: Time::from_secs(108), ..fix.clone() });
    assert_eq!(reckoner.present_position(Time::from_secs(108)).unwrap().confidence_radius, Some(17.1));
    // The confidence of a station at rest does not change.
    let mut stays = PositionReckoner::new(true);
    stays.handle_fix(PositionFix { speed: Some(0.0), ..fix });
    assert_eq!(stays.present_position(Time::from_secs(60)).unwrap().confidence_radius, Some(17.1));
}

/// Returns a TPV of a receiver with this time; `place` has the fields of the position.
fn tpv_report(time: &str, place: &str) -> GpsdReport {
    let motion = r#""speed":10.0,"track":90.0"#;
    parse_report(&format!(
        r#"{{"class":"TPV","device":"/dev/ttyUSB0","mode":3,"time":"{time}",{place},{motion}}}"#
    ))
}

const POSITION_FIELDS: &str = r#""lat":48.8375,"lon":2.1008"#;

/// A tracker that gets a report every 500 ms, and its events.
struct TrackerListener {
    tracker: FixTracker,
    now: Time,
    fix_count: usize,
    loss_reasons: Vec<PositionLossReason>,
    clock_differences: Vec<ClockDifference>,
}

impl TrackerListener {
    fn new() -> TrackerListener {
        let mut tracker = FixTracker::new(PositionOptions::default());
        tracker.handle_connected(Time::from_secs(1));
        TrackerListener {
            tracker,
            now: Time::from_secs(1),
            fix_count: 0,
            loss_reasons: Vec::new(),
            clock_differences: Vec::new(),
        }
    }

    fn receive_report(&mut self, report: &GpsdReport) {
        self.now += Duration::from_millis(500);
        self.tracker.handle_timeout(self.now);
        // The system clock advances with the simulated time. At first, the receiver's clock does so, too.
        let clock = wall_time(NOON_UNIX_MILLISECONDS + self.now.as_nanos() / 1_000_000 - 1500);
        self.tracker.handle_report(self.now, clock, report, true);
        while let Some(event) = self.tracker.poll_event() {
            match event {
                PositionEvent::Fix(_) => self.fix_count += 1,
                PositionEvent::Lost { reason } => self.loss_reasons.push(reason),
                PositionEvent::Clock(clock) => self.clock_differences.push(clock),
                _ => {}
            }
        }
    }

    fn receive_reports(&mut self, from: u64, count: u64) {
        for step in from..from + count {
            let (second, fraction) = (step / 2, if step % 2 == 0 { "000" } else { "500" });
            let time = format!("2026-11-21T12:{:02}:{:02}.{fraction}Z", second / 60, second % 60);
            self.receive_report(&tpv_report(&time, POSITION_FIELDS));
        }
    }
}

#[test]
fn receiver_that_repeats_one_time_loses_the_fix() {
    let mut listening = TrackerListener::new();
    listening.receive_reports(0, 10);
    assert_eq!((listening.fix_count, &listening.loss_reasons[..]), (10, &[][..]));
    for _ in 0..40 {
        listening.receive_report(&tpv_report("2026-11-21T12:00:04.500Z", POSITION_FIELDS));
    }
    assert_eq!(listening.fix_count, 10);
    assert_eq!(listening.loss_reasons, [PositionLossReason::Frozen("/dev/ttyUSB0".into())]);
    assert_eq!(listening.clock_differences, [], "the clock is right");
    // The receiver's reports have the right time again.
    listening.receive_reports(50, 4);
    assert_eq!((listening.fix_count, listening.loss_reasons.len()), (14, 1));
}

#[test]
fn receiver_after_time_jump_is_used_once_time_advances() {
    let mut listening = TrackerListener::new();
    listening.receive_reports(120, 10);
    listening.receive_reports(0, 20);
    assert!(
        listening.fix_count > 20 && listening.loss_reasons.len() == 1,
        "{} {:?}",
        listening.fix_count,
        listening.loss_reasons
    );
    // An old report among new reports is no new fix.
    let before = listening.fix_count;
    listening.receive_reports(20, 2);
    listening.receive_reports(3, 1);
    listening.receive_reports(22, 2);
    assert_eq!((listening.fix_count, listening.loss_reasons.len()), (before + 4, 1));
}

#[test]
fn impossible_fix_is_refused_until_a_valid_fix() {
    let good = "2026-11-21T12:00:04.500Z";
    for (time, place, words) in [
        (good, r#""lat":91.0,"lon":2.1"#, "latitude 9.1e1"),
        (good, r#""lat":1e308,"lon":2.1"#, "latitude 1e308"),
        (good, r#""lat":48.0,"lon":-180.1"#, "longitude"),
        (good, r#""lat":0.0,"lon":0.0"#, "latitude 0 and longitude 0"),
        (good, r#""lat":48.0"#, "no longitude"),
        ("1970-01-01T00:00:00.000Z", POSITION_FIELDS, "time"),
        ("2003-12-31T23:59:59.000Z", POSITION_FIELDS, "time"),
        ("9999-12-31T23:59:59.000Z", POSITION_FIELDS, "time"),
        ("2026-13-01T00:00:00.000Z", POSITION_FIELDS, "time"),
        ("soon\\r\\n2026-11-26 INFO forged", POSITION_FIELDS, "time \"soon\\r\\n"),
        ("", POSITION_FIELDS, "time"),
    ] {
        let mut listening = TrackerListener::new();
        listening.receive_reports(0, 4);
        for _ in 0..20 {
            listening.receive_report(&tpv_report(time, place));
        }
        let [PositionLossReason::Unusable(told)] = &listening.loss_reasons[..] else {
            panic!("{time} {place}: {:?}", listening.loss_reasons)
        };
        assert!(told.contains(words) && !told.contains('\n'), "{told:?}");
        assert_eq!((listening.fix_count, &listening.clock_differences[..]), (4, &[][..]));
        listening.receive_reports(30, 4);
        assert_eq!(listening.fix_count, 8, "{time} {place}");
    }
}
