//! Tshark and carnet read every component of pycrate's CAMs and DENMs of protocol versions 1 and 2 alike.
//!
//! Both readings become a list of leaves in the message's order. A leaf is a name and the value of a number,
//! text, enumeration or string of bits or octets. The length of a list and the alternative of a CHOICE are
//! leaves as well. The tests compare whole lists, so a component that only one of the two reads also fails
//! the test.
//!
//! Messages of carnet contain the few components that pycrate's random messages lack. The tests do not
//! compare:
//!
//! * *companyName*: tshark 4.0.17 treats its size as a constraint of the encoding (see `oracle_tshark`). The
//!   test removes the name from messages that have one.
//! * the width of a BIT STRING of fixed width, which is part of its type.

use std::fmt::Debug;
use std::path::Path;

use carnet_its::uper::{Uper, decode, encode};
use carnet_its::{cam, cdd, denm, version1};
use carnet_wire::btp::port;

use crate::oracle_tshark::{pcap_of_messages, tshark_command};
use crate::vectors::vectors_named;

/// Leaf of a message as carnet reads it: a value with its name.
#[derive(Debug)]
struct NamedValue {
    name: String,
    value: String,
}

/// A value as tshark prints it: its name, and the forms that tshark uses for it.
#[derive(Debug)]
struct DecodedField {
    name: String,
    accepted_values: Vec<String>,
}

/// Returns a name without the differences of spelling between ASN.1, Rust and tshark.
fn normalize_field_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Reads leaves from the [`Debug`] form of a message.
struct DebugTextParser<'a> {
    remaining_text: &'a str,
    parsed_values: Vec<NamedValue>,
}

impl<'a> DebugTextParser<'a> {
    fn named_values(message: &impl Debug) -> Vec<NamedValue> {
        let text = format!("{message:?}");
        let mut shown = DebugTextParser { remaining_text: &text, parsed_values: Vec::new() };
        shown.parse_value("");
        assert_eq!(shown.remaining_text, "");
        shown.parsed_values
    }

    fn skip_token(&mut self, token: &str) -> bool {
        let rest = self.remaining_text.strip_prefix(token);
        self.remaining_text = rest.unwrap_or(self.remaining_text);
        rest.is_some()
    }

    fn expect_token(&mut self, token: &str) {
        assert!(self.skip_token(token), "expected {token:?}, found {:?}", self.remaining_text);
    }

    fn next_word(&mut self) -> &'a str {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '#');
        let end = self.remaining_text.find(|letter| !is_part(letter)).unwrap_or(self.remaining_text.len());
        let (word, rest) = self.remaining_text.split_at(end);
        self.remaining_text = rest;
        word
    }

    fn add_value(&mut self, name: &str, value: impl Into<String>) {
        self.parsed_values.push(NamedValue { name: normalize_field_name(name), value: value.into() });
    }

    /// Reads a value of the component `name`; an item of a list has the name of its type.
    fn parse_value(&mut self, name: &str) {
        if self.skip_token("\"") {
            let (text, rest) = self.remaining_text.split_once('"').unwrap();
            self.remaining_text = rest;
            return self.add_value(name, text);
        }
        if self.skip_token("[") {
            return self.parse_list(name);
        }
        let word = self.next_word();
        let own = if name.is_empty() { word } else { name };
        if self.skip_token(" { ") {
            self.parse_structure(own);
        } else if self.skip_token("(") {
            let is_choice = word != "Some"
                && self.remaining_text.starts_with(|letter: char| letter.is_ascii_uppercase())
                && !self.remaining_text.starts_with("Some(");
            if is_choice {
                self.add_value(own, normalize_field_name(word));
                self.parse_value(word);
            } else {
                self.parse_value(if word == "Some" { name } else { own });
            }
            self.expect_token(")");
        } else {
            match word {
                "None" | "Null" => {}
                "true" => self.add_value(name, "1"),
                "false" => self.add_value(name, "0"),
                _ if word.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                    self.add_value(name, normalize_field_name(word))
                }
                number => self.add_value(name, number),
            }
        }
    }

    /// Reads components, or the width and the value of a BIT STRING.
    fn parse_structure(&mut self, name: &str) {
        if self.skip_token("width: ") {
            let width = self.next_word();
            self.expect_token(", bits: ");
            let bits = self.next_word();
            self.add_value(name, format!("{width}/{bits}"));
            return self.expect_token(" }");
        }
        loop {
            let component = self.next_word();
            self.expect_token(": ");
            self.parse_value(component);
            if !self.skip_token(", ") {
                return self.expect_token(" }");
            }
        }
    }

    /// Reads a value that is a list of items, or an octet string.
    fn parse_list(&mut self, name: &str) {
        if self.remaining_text.starts_with(|first: char| first.is_ascii_digit()) {
            let (octets, rest) = self.remaining_text.split_once(']').unwrap();
            self.remaining_text = rest;
            let octets = octets.split(", ").map(|octet| format!("{:02x}", octet.parse::<u8>().unwrap()));
            return self.add_value(name, octets.collect::<String>());
        }
        let (place, mut count) = (self.parsed_values.len(), 0);
        self.add_value(name, "");
        while !self.skip_token("]") {
            self.parse_value("");
            self.skip_token(", ");
            count += 1;
        }
        self.parsed_values[place].value = format!("{count} items");
    }
}

/// A field in tshark's PDML: a line for its beginning, lines for inner fields, a line for its end.
struct TsharkField {
    name: String,
    /// Text of a field in tshark's output: its name, its value, and the value as a number.
    field_text: String,
    value: String,
    subfields: Vec<TsharkField>,
}

impl TsharkField {
    /// Returns the fields up to the end of the enclosing field.
    fn parse_fields<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<TsharkField> {
        let mut fields = Vec::new();
        while let Some(line) = lines.next().map(str::trim).filter(|line| !line.starts_with("</")) {
            let attribute = |name: &str| {
                let value =
                    line.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
                value.map_or_else(String::new, |(value, _)| value.replace("&lt;", "<"))
            };
            let (name, words, value) = (attribute("name"), attribute("showname"), attribute("show"));
            let parts = if line.is_empty() || line.ends_with("/>") {
                Vec::new()
            } else {
                TsharkField::parse_fields(lines)
            };
            fields.push(TsharkField { name, field_text: words, value, subfields: parts });
        }
        fields
    }

    fn collect_decoded_fields(&self, found: &mut Vec<DecodedField>) {
        assert!(!self.name.starts_with("_ws."), "tshark warns: {}", self.field_text);
        // The field describes the encoding of a value and is no leaf.
        if self.name.starts_with("per.") {
            return;
        }
        let name = normalize_field_name(self.name.rsplit('.').next().unwrap());
        let words = self.field_text.split_once(": ").map_or("", |(_, words)| words);
        if let Some((_, bits)) = words.split_once("[bit length ") {
            let width = bits.split(',').next().unwrap();
            let value = bits.split("decimal value ").nth(1).unwrap().trim_end_matches(']');
            found
                .push(DecodedField { name, accepted_values: vec![value.into(), format!("{width}/{value}")] });
            return;
        }
        if !name.is_empty() && !self.name.ends_with("_element") {
            let word = words.rsplit_once(" (").map_or("", |(word, _)| word);
            let forms = if words.ends_with(" items") || words.ends_with(" item") {
                vec![format!("{} items", self.value)]
            } else {
                vec![self.value.clone(), self.value.replace(':', ""), normalize_field_name(word)]
            };
            found.push(DecodedField { name, accepted_values: forms });
        }
        for part in &self.subfields {
            part.collect_decoded_fields(found);
        }
    }
}

/// Returns the values that tshark reads in each message; `None` if tshark does not run.
fn decode_with_tshark(file: &str, port: u16, messages: &[Vec<u8>]) -> Option<Vec<Vec<DecodedField>>> {
    let mut command = tshark_command()?;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let messages: Vec<_> = messages.iter().map(|message| (port, &message[..])).collect();
    std::fs::write(&path, pcap_of_messages(&messages)).unwrap();
    let output = command.args(["-n", "-T", "pdml", "-r"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let read = text.split("<packet>").skip(1).map(|packet| {
        let mut found = Vec::new();
        for field in TsharkField::parse_fields(&mut packet.trim().lines()) {
            assert_ne!(field.name, "_ws.malformed", "{}", field.field_text);
            if field.name == "its" {
                field.subfields.iter().for_each(|part| part.collect_decoded_fields(&mut found));
            }
        }
        found
    });
    let read: Vec<_> = read.collect();
    assert_eq!(read.len(), messages.len());
    Some(read)
}

/// Asserts that carnet and tshark decode the same values. Returns the number of compared values.
///
/// Ignores the names in `except`.
fn assert_agreement(leaves: Vec<NamedValue>, witnesses: &[DecodedField], except: &[&str]) -> usize {
    let mut witnesses = witnesses.iter().filter(|it| !except.contains(&it.name.as_str())).peekable();
    let mut count = 0;
    for leaf in leaves.into_iter().filter(|it| !except.contains(&it.name.as_str())) {
        let agrees = |witness: &DecodedField| {
            witness.name == leaf.name && witness.accepted_values.contains(&leaf.value)
        };
        // A message omits a component with its DEFAULT value, so tshark does not print it.
        let is_default = leaf.name == "validityduration" && leaf.value == "600";
        if is_default && witnesses.peek().is_none_or(|witness| witness.name != leaf.name) {
            continue;
        }
        let witness = witnesses.next();
        assert!(witness.is_some_and(agrees), "leaf {count}: carnet reads {leaf:?}, tshark {witness:?}");
        count += 1;
    }
    assert!(witnesses.peek().is_none(), "only tshark reads {:?}", witnesses.collect::<Vec<_>>());
    count
}

/// Returns the messages `name` of pycrate's vectors, with a header of this version and message ID.
fn vectors_of_type(name: &str, version: u8, id: u8) -> Vec<Vec<u8>> {
    vectors_named(name).map(|(octets, _)| [&[version, id], &octets[2..]].concat()).collect()
}

/// Compares all messages, which must have at least `least` leaves.
fn compare_with_tshark<T: Uper + Debug>(file: &str, port: u16, messages: &[Vec<u8>], least: usize) {
    let Some(read) = decode_with_tshark(file, port, messages) else { return };
    let read = messages.iter().zip(read);
    let count: usize = read
        .map(|(octets, it)| {
            assert_agreement(DebugTextParser::named_values(&decode::<T>(octets).unwrap()), &it, &[])
        })
        .sum();
    println!("{} messages, {count} leaves", messages.len());
    assert!(count >= least, "{count}");
}

/// Returns pycrate's CAMs of version 2, and CAMs with the containers that pycrate's CAMs lack.
fn cams_of_version_2() -> Vec<Vec<u8>> {
    let mut messages = vectors_of_type("cam1", 2, 2);
    let mut cam = decode::<cam::Cam>(&messages[0]).unwrap();
    let vehicle = cam::EmergencyContainer {
        emergency_priority: Some(cdd::EmergencyPriority::REQUEST_FOR_RIGHT_OF_WAY),
        ..Default::default()
    };
    let vehicle = cam::SpecialVehicleContainer::EmergencyContainer(vehicle);
    cam.cam.cam_parameters.special_vehicle_container = Some(vehicle);
    messages.push(encode(&cam).unwrap());
    messages
}

#[test]
fn tshark_and_carnet_agree_on_cams_of_version_2() {
    compare_with_tshark::<cam::Cam>("agree-cam2.pcap", port::CAM, &cams_of_version_2(), 600);
}

/// Returns pycrate's CAMs of version 1, and CAMs with the containers that pycrate's CAMs lack.
fn cams_of_version_1() -> Vec<Vec<u8>> {
    use version1::cam::{
        DangerousGoodsContainer, EmergencyContainer, SafetyCarContainer, SpecialVehicleContainer,
    };
    use version1::cdd::{CauseCode, DangerousGoodsBasic, EmergencyPriority, SpeedLimit, TrafficRule};
    let mut messages = vectors_of_type("camv1", 1, 2);
    let mut cam = decode::<version1::cam::Cam>(&messages[0]).unwrap();
    for vehicle in [
        SpecialVehicleContainer::DangerousGoodsContainer(DangerousGoodsContainer {
            dangerous_goods_basic: DangerousGoodsBasic::Explosives4,
        }),
        SpecialVehicleContainer::EmergencyContainer(EmergencyContainer {
            incident_indication: Some(CauseCode::default()),
            emergency_priority: Some(EmergencyPriority::REQUEST_FOR_FREE_CROSSING_AT_A_TRAFFIC_LIGHT),
            ..Default::default()
        }),
        SpecialVehicleContainer::SafetyCarContainer(SafetyCarContainer {
            traffic_rule: Some(TrafficRule::PassToLeft),
            speed_limit: Some(SpeedLimit(130)),
            ..Default::default()
        }),
    ] {
        cam.cam.cam_parameters.special_vehicle_container = Some(vehicle);
        messages.push(encode(&cam).unwrap());
    }
    messages
}

#[test]
fn tshark_and_carnet_agree_on_cams_of_version_1() {
    compare_with_tshark::<version1::cam::Cam>("agree-cam1.pcap", port::CAM, &cams_of_version_1(), 500);
}

/// Returns a DENM without the name of a company.
macro_rules! without_company {
    ($type:ty, $octets:expr) => {{
        let mut denm = decode::<$type>(&$octets).unwrap();
        let vehicle = denm.denm.alacarte.as_mut().and_then(|more| more.stationary_vehicle.as_mut());
        let goods = vehicle.and_then(|vehicle| vehicle.carrying_dangerous_goods.as_mut());
        let name = goods.and_then(|goods| goods.company_name.take());
        name.map_or_else(|| $octets.clone(), |_| encode(&denm).unwrap())
    }};
}

#[test]
fn tshark_and_carnet_agree_on_denms_of_version_2() {
    let messages = vectors_of_type("denm1", 2, 1);
    let messages: Vec<_> = messages.iter().map(|it| without_company!(denm::Denm, it)).collect();
    compare_with_tshark::<denm::Denm>("agree-denm2.pcap", port::DENM, &messages, 1000);
}

/// Returns pycrate's DENMs without company names, and one with the components that pycrate's DENMs lack.
fn denms_of_version_1() -> Vec<Vec<u8>> {
    use version1::cdd::{DangerousGoodsExtended, EmergencyActionCode, SpeedLimit};
    use version1::denm::{AlacarteContainer, Denm, RoadWorksContainerExtended, StationaryVehicleContainer};
    let mut denm = decode::<Denm>(&vectors_of_type("denmv1", 1, 1)[0]).unwrap();
    let goods = DangerousGoodsExtended {
        emergency_action_code: Some(EmergencyActionCode("2YE+".into())),
        ..Default::default()
    };
    denm.denm.alacarte = Some(AlacarteContainer {
        road_works: Some(RoadWorksContainerExtended {
            speed_limit: Some(SpeedLimit(80)),
            ..Default::default()
        }),
        stationary_vehicle: Some(StationaryVehicleContainer {
            carrying_dangerous_goods: Some(goods),
            ..Default::default()
        }),
        ..Default::default()
    });
    let messages = vectors_of_type("denmv1", 1, 1);
    let mut messages: Vec<_> = messages.iter().map(|it| without_company!(Denm, it)).collect();
    messages.push(encode(&denm).unwrap());
    messages
}

#[test]
fn tshark_and_carnet_agree_on_denms_of_version_1() {
    compare_with_tshark::<version1::denm::Denm>("agree-denm1.pcap", port::DENM, &denms_of_version_1(), 1000);
}

/// Components whose values or spelling differ between version 1 and version 2; `version1` has the conversion
/// rules.
const CONVERTED_FIELDS: [&str; 8] = [
    "protocolversion",
    "curvaturevalue",
    "laneposition",
    "hardshoulderstatus",
    "outerhardshoulderstatus",
    "drivinglanestatus",
    "phonenumber",
    "protectedzonetype",
];

#[test]
fn version_1_messages_keep_their_values_when_converted_to_version_2() {
    let cams = cams_of_version_1();
    let denms = denms_of_version_1();
    let Some(read) = decode_with_tshark("kept-cam1.pcap", port::CAM, &cams) else { return };
    for (octets, witnesses) in cams.iter().zip(read) {
        let cam = cam::Cam::from_octets(octets).unwrap();
        assert_agreement(DebugTextParser::named_values(&cam), &witnesses, &CONVERTED_FIELDS);
    }
    for (octets, witnesses) in
        denms.iter().zip(decode_with_tshark("kept-denm1.pcap", port::DENM, &denms).unwrap())
    {
        let denm = denm::Denm::from_octets(octets).unwrap();
        assert_agreement(DebugTextParser::named_values(&denm), &witnesses, &CONVERTED_FIELDS);
    }
}
