//! Parsers: any octets go in, and assertions check each parsed value.
//!
//! If the parser has a writer, the parsed value is written and parsed again. A value that changes in this
//! round trip would mean that two stations disagree on it.

use std::fmt::Debug;
use std::hint::black_box;

use carnet_api::config::Config;
use carnet_api::model;
use carnet_base::{Rng, Time, WallTime};
use carnet_fleet::store::{LeaderToken, StoreKey};
use carnet_its::cam::Cam;
use carnet_its::denm::Denm;
use carnet_its::ldm::PartialCam;
use carnet_its::release2;
use carnet_its::sam::Saem;
use carnet_its::uper::{Uper, decode, encode};
use carnet_linux::position::gpsd::{GpsdReport, MAX_LINE_LENGTH, ReportReader};
use carnet_linux::position::position_trace::{PositionTrace, TraceState};
use carnet_security::certificate::Certificate;
use carnet_security::credentials::PrivateKey;
use carnet_security::message::{Envelope, Payload, Signer};
use carnet_settings::recording;
use carnet_station::io::Output;
use carnet_station::{PersistentState, Station};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::stations;

#[path = "../../wire/tests/common/everything.rs"]
mod ipv6_parsing;

#[path = "../../wire/tests/geonet/everything.rs"]
mod geonet_parsing;

pub use ipv6_parsing::{parse_icmpv6 as icmpv6, parse_mobility_header as mobility, parse_packet as ipv6};

/// Parses the octets as a GeoNetworking packet, from its Basic Header on.
pub fn fuzz_geonet(octets: &[u8]) {
    let _ = black_box(geonet_parsing::parse_everything(octets));
    let _ = black_box(carnet_cits::geonetworking::echo::EchoMessage::parse(octets));
}

/// Decodes the octets as a facilities message in UPER. The message names its own type, except a SAM.
pub fn fuzz_messages(octets: &[u8]) {
    check_its_message_round_trip::<Cam>(octets);
    check_its_message_round_trip::<Denm>(octets);
    check_its_message_round_trip::<Saem>(octets);
    check_its_message_round_trip::<release2::cam::Cam>(octets);
    check_its_message_round_trip::<release2::denm::Denm>(octets);
    check_its_message_round_trip::<release2::vam::Vam>(octets);
    check_its_message_round_trip::<release2::cpm::CollectivePerceptionMessage>(octets);
    // If both decoders accept the message, their results agree.
    if let (Ok(glance), Ok(cam)) = (PartialCam::from_octets(octets), carnet_its::ca::parse_cam(octets)) {
        let basic = cam.cam.cam_parameters.basic_container;
        assert_eq!(Some(glance.position), basic.reference_position.position());
        assert_eq!(glance.station_type, basic.station_type);
    }
}

/// Checks that a decoded message can be encoded, and that decoding this encoding gives an equal message.
fn check_its_message_round_trip<T: Uper + PartialEq + Debug>(octets: &[u8]) {
    if let Ok(message) = decode::<T>(octets) {
        let again = encode(&message).expect("values that were decoded can be encoded");
        assert_eq!(decode::<T>(&again).as_ref(), Ok(&message));
    }
}

/// Parses the octets as the envelope of a secured packet (TS 103 097).
pub fn fuzz_envelope(octets: &[u8]) {
    match Envelope::parse(octets) {
        Ok(Envelope::Signed(message)) => {
            if let Payload::Data(data) = message.payload {
                assert!(data.len() <= octets.len());
            }
            assert!(message.header.inline_requests.iter().count() * 3 <= octets.len());
            if let Signer::Certificate(certificate) = &message.signer {
                check_certificate_encoding(certificate);
            }
            if let Some(certificate) = &message.header.requested_certificate {
                check_certificate_encoding(certificate);
            }
        }
        Ok(other) => drop(black_box(format!("{other:?}"))),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses the octets as a certificate, which comes in an envelope or from a file, and as a line of a key
/// file.
pub fn fuzz_certificate(octets: &[u8]) {
    match Certificate::parse(octets) {
        Ok(certificate) => check_certificate_encoding(&certificate),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Some(key) = std::str::from_utf8(octets).ok().and_then(PrivateKey::parse) {
        let line = key.to_line();
        assert_eq!(PrivateKey::parse(&line).expect("just written").to_line(), line);
    }
}

/// Checks that writing a parsed certificate gives the same octets again. Exceptions are the sign of r in its
/// signature, and extensions of later releases: carnet hashes them unchanged but does not write them.
fn check_certificate_encoding(certificate: &Certificate) {
    let written =
        Certificate::new(certificate.issuer(), certificate.content().clone(), *certificate.signature());
    let (written, came) = (written.octets(), certificate.octets());
    match written.iter().zip(came).position(|(written, came)| written != came) {
        None => assert_eq!(written.len(), came.len()),
        // The preamble of the signed data has a bit that says whether extensions follow.
        Some(preamble) => {
            assert_eq!(came[preamble], written[preamble] | 0x80);
            assert!(written.len() < came.len());
            let read = Certificate::parse(written).expect("just written");
            assert_eq!((read.issuer(), read.content()), (certificate.issuer(), certificate.content()));
        }
    }
}

/// Reads the octets as gpsd's output, in pieces; the first octet is the length of a piece.
pub fn fuzz_gpsd(octets: &[u8]) {
    let Some((&piece, octets)) = octets.split_first() else { return };
    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    let mut reader = ReportReader::default();
    reader.push(octets, |report| whole.push(describe_report(report)));
    let mut in_pieces = ReportReader::default();
    for piece in octets.chunks(usize::from(piece).max(1)) {
        in_pieces.push(piece, |report| cut.push(describe_report(report)));
    }
    // Parsing the stream in pieces gives the same result as parsing it at once.
    assert_eq!(whole, cut);
    assert_eq!(reader.counters().valid_lines, in_pieces.counters().valid_lines);
    assert!(reader.counters().overlong_lines as usize * MAX_LINE_LENGTH <= octets.len());
}

fn describe_report(report: GpsdReport) -> String {
    match &report {
        GpsdReport::Tpv(tpv) => {
            if let Some(fix) = tpv.to_fix(Time::ZERO) {
                assert!((-90.0..=90.0).contains(&fix.latitude) && (-180.0..=180.0).contains(&fix.longitude));
                assert!(fix.course_degrees.is_none_or(|track| (0.0..360.0).contains(&track)), "{fix:?}");
            }
        }
        GpsdReport::Pulse(offset) | GpsdReport::TimeOffset(offset) => {
            black_box(offset.clock_difference_ms());
        }
        GpsdReport::Device(device) => drop(black_box(device.is_unused())),
        _ => {}
    }
    format!("{report:?}")
}

/// Reads the octets as a file of positions.
pub fn fuzz_trace(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match PositionTrace::parse(text) {
        Ok(trace) => {
            for seconds in [-1.0, 0.0, 0.5, 1.0, 10.0, 1.8e9, 1e300] {
                if let TraceState::At { latitude, longitude, heading, .. } = trace.state_at(seconds) {
                    assert!((-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude));
                    assert!((0.0..360.0).contains(&heading), "{heading} at {seconds}");
                }
            }
        }
        Err((line, expected, _)) => {
            assert!(line <= text.lines().count().max(1) && !expected.is_empty());
        }
    }
}

/// Reads the octets as a config file. The parser accepts the config, or refuses it with a line and a reason.
/// A station starts with each accepted config.
pub fn fuzz_config(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match Config::parse(text, "c.toml") {
        Ok(config) => {
            let _ = black_box(config.warnings());
            let mut station = Station::new(
                carnet_settings::station_config(&config, Some(stations::GN_ADDRESS)),
                PersistentState::default(),
                Rng::new(1),
                Time::ZERO,
                stations::WALL_TIME_AT_START,
            );
            while station.poll_output().is_some() {}
            let _ = black_box(station.poll_timeout());
        }
        Err(errors) => {
            let errors = errors.to_string();
            assert!(errors.starts_with("c.toml"), "{errors}");
        }
    }
}

/// Parses the octets as the body of a request to the API. The first octet selects the request type. A parsed
/// body is written, and parsing the written body gives an equal value.
pub fn fuzz_requests(octets: &[u8]) {
    let Some((&kind, octets)) = octets.split_first() else { return };
    let reader: fn(&[u8]) -> bool = match kind % 13 {
        0 => check_json_round_trip::<model::HandoverRequest>,
        1 => check_json_round_trip::<model::SignalRequest>,
        2 => check_json_round_trip::<model::DrainRequest>,
        3 => check_json_round_trip::<model::RevokeRequest>,
        4 => check_json_round_trip::<model::Vehicle>,
        5 => check_json_round_trip::<model::DenmRequest>,
        6 => check_json_round_trip::<model::AreaRequest>,
        7 => check_json_round_trip::<model::AreaRemoval>,
        8 => check_json_round_trip::<model::ChannelRequest>,
        9 => check_json_round_trip::<model::GnPingRequest>,
        10 => check_json_round_trip::<model::GnSendRequest>,
        12 => check_json_round_trip::<model::PortalRequest>,
        _ => check_json_round_trip::<model::PseudonymRequest>,
    };
    let _ = reader(octets);
}

fn check_json_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(octets: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<T>(octets) else { return false };
    let text = serde_json::to_vec(&value).expect("each of these types has a JSON form");
    let again = serde_json::from_slice::<T>(&text).expect("it was just written");
    if again != value {
        // serde_json may change the last bit of a floating point number.
        let trees = (serde_json::to_value(&again).ok(), serde_json::to_value(&value).ok());
        let same = matches!(&trees, (Some(again), Some(value)) if is_nearly_equal_json(again, value));
        assert!(same, "{}: {again:?} != {value:?}", String::from_utf8_lossy(&text));
    }
    true
}

/// Returns whether two values differ only in the last bits of floating point numbers.
fn is_nearly_equal_json(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().unwrap_or_default(), other.as_f64().unwrap_or_default());
            (one - other).abs() <= one.abs() * 4.0 * f64::EPSILON
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_nearly_equal_json(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| {
                    other.get(key).is_some_and(|other| is_nearly_equal_json(value, other))
                })
        }
        _ => one == other,
    }
}

/// Reads the octets as a line of a recording, which `carnet replay` and the simulator read. The line goes to
/// a station with every part.
pub fn fuzz_recording(octets: &[u8]) {
    for line in octets.split(|octet| *octet == b'\n').take(64) {
        check_json_round_trip::<Output>(line);
        let _ = black_box(serde_json::from_slice::<recording::RecordingHeader>(line).is_ok());
    }
    stations::fuzz_replay(octets);
}

/// Reads the octets as each kind of record that a station reads from the disk or a store, and that members of
/// a fleet exchange.
pub fn fuzz_records(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    if let Some(key) = StoreKey::of_name(text) {
        assert_eq!(StoreKey::of_name(&key.to_string()), Some(key));
    }
    if let Some(token) = LeaderToken::from_text(text) {
        assert_eq!(LeaderToken::from_text(&token.to_text()), Some(token));
    }
    if check_json_round_trip::<PersistentState>(octets) {
        let state: PersistentState = serde_json::from_slice(octets).expect("just read");
        stations::start_with_stored_state(state, WallTime::from_unix_nanos(0));
        let state: PersistentState = serde_json::from_slice(octets).expect("just read");
        stations::start_with_stored_state(state, stations::WALL_TIME_AT_START);
    }
}
