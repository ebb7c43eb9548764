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

use crate::oracle_tshark::{capture, tshark};
use crate::vectors::vectors;

/// A value that carnet reads, with its name.
#[derive(Debug)]
struct NamedValue {
    name: String,
    value: String,
}

/// A value as tshark prints it: its name, and the forms that tshark uses for it.
#[derive(Debug)]
struct Witness {
    name: String,
    forms: Vec<String>,
}

/// Returns a name without the differences of spelling between ASN.1, Rust and tshark.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Reads leaves from the [`Debug`] form of a message.
struct DebugText<'a> {
    rest: &'a str,
    leaves: Vec<NamedValue>,
}

impl<'a> DebugText<'a> {
    fn named_values(message: &impl Debug) -> Vec<NamedValue> {
        let text = format!("{message:?}");
        let mut shown = DebugText { rest: &text, leaves: Vec::new() };
        shown.value("");
        assert_eq!(shown.rest, "");
        shown.leaves
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) {
        assert!(self.take(token), "expected {token:?}, found {:?}", self.rest);
    }

    fn word(&mut self) -> &'a str {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '#');
        let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn push(&mut self, name: &str, value: impl Into<String>) {
        self.leaves.push(NamedValue { name: plain(name), value: value.into() });
    }

    /// Reads a value of the component `name`; an item of a list has the name of its type.
    fn value(&mut self, name: &str) {
        if self.take("\"") {
            let (text, rest) = self.rest.split_once('"').unwrap();
            self.rest = rest;
            return self.push(name, text);
        }
        if self.take("[") {
            return self.list(name);
        }
        let word = self.word();
        let own = if name.is_empty() { word } else { name };
        if self.take(" { ") {
            self.structure(own);
        } else if self.take("(") {
            let is_choice = word != "Some"
                && self.rest.starts_with(|letter: char| letter.is_ascii_uppercase())
                && !self.rest.starts_with("Some(");
            if is_choice {
                self.push(own, plain(word));
                self.value(word);
            } else {
                self.value(if word == "Some" { name } else { own });
            }
            self.expect(")");
        } else {
            match word {
                "None" | "Null" => {}
                "true" => self.push(name, "1"),
                "false" => self.push(name, "0"),
                _ if word.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                    self.push(name, plain(word))
                }
                number => self.push(name, number),
            }
        }
    }

    /// Reads components, or the width and the value of a BIT STRING.
    fn structure(&mut self, name: &str) {
        if self.take("width: ") {
            let width = self.word();
            self.expect(", bits: ");
            let bits = self.word();
            self.push(name, format!("{width}/{bits}"));
            return self.expect(" }");
        }
        loop {
            let component = self.word();
            self.expect(": ");
            self.value(component);
            if !self.take(", ") {
                return self.expect(" }");
            }
        }
    }

    /// Reads a value that is a list of items, or an octet string.
    fn list(&mut self, name: &str) {
        if self.rest.starts_with(|first: char| first.is_ascii_digit()) {
            let (octets, rest) = self.rest.split_once(']').unwrap();
            self.rest = rest;
            let octets = octets.split(", ").map(|octet| format!("{:02x}", octet.parse::<u8>().unwrap()));
            return self.push(name, octets.collect::<String>());
        }
        let (place, mut count) = (self.leaves.len(), 0);
        self.push(name, "");
        while !self.take("]") {
            self.value("");
            self.take(", ");
            count += 1;
        }
        self.leaves[place].value = format!("{count} items");
    }
}

/// A field in tshark's PDML: a line for its beginning, lines for inner fields, a line for its end.
struct Field {
    name: String,
    /// Text of a field in tshark's output: its name, its value, and the value as a number.
    words: String,
    value: String,
    parts: Vec<Field>,
}

impl Field {
    /// Returns the fields up to the end of the enclosing field.
    fn all<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<Field> {
        let mut fields = Vec::new();
        while let Some(line) = lines.next().map(str::trim).filter(|line| !line.starts_with("</")) {
            let attribute = |name: &str| {
                let value =
                    line.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
                value.map_or_else(String::new, |(value, _)| value.replace("&lt;", "<"))
            };
            let (name, words, value) = (attribute("name"), attribute("showname"), attribute("show"));
            let parts = if line.is_empty() || line.ends_with("/>") { Vec::new() } else { Field::all(lines) };
            fields.push(Field { name, words, value, parts });
        }
        fields
    }

    fn witnesses(&self, found: &mut Vec<Witness>) {
        assert!(!self.name.starts_with("_ws."), "tshark warns: {}", self.words);
        // The field describes the encoding of a value, not a value.
        if self.name.starts_with("per.") {
            return;
        }
        let name = plain(self.name.rsplit('.').next().unwrap());
        let words = self.words.split_once(": ").map_or("", |(_, words)| words);
        if let Some((_, bits)) = words.split_once("[bit length ") {
            let width = bits.split(',').next().unwrap();
            let value = bits.split("decimal value ").nth(1).unwrap().trim_end_matches(']');
            found.push(Witness { name, forms: vec![value.into(), format!("{width}/{value}")] });
            return;
        }
        if !name.is_empty() && !self.name.ends_with("_element") {
            let word = words.rsplit_once(" (").map_or("", |(word, _)| word);
            let forms = if words.ends_with(" items") || words.ends_with(" item") {
                vec![format!("{} items", self.value)]
            } else {
                vec![self.value.clone(), self.value.replace(':', ""), plain(word)]
            };
            found.push(Witness { name, forms });
        }
        for part in &self.parts {
            part.witnesses(found);
        }
    }
}

/// Returns the values that tshark reads in each message; `None` if tshark does not run.
fn witnesses(file: &str, port: u16, messages: &[Vec<u8>]) -> Option<Vec<Vec<Witness>>> {
    let mut command = tshark()?;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let messages: Vec<_> = messages.iter().map(|message| (port, &message[..])).collect();
    std::fs::write(&path, capture(&messages)).unwrap();
    let output = command.args(["-n", "-T", "pdml", "-r"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let read = text.split("<packet>").skip(1).map(|packet| {
        let mut found = Vec::new();
        for field in Field::all(&mut packet.trim().lines()) {
            assert_ne!(field.name, "_ws.malformed", "{}", field.words);
            if field.name == "its" {
                field.parts.iter().for_each(|part| part.witnesses(&mut found));
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
fn assert_agreement(leaves: Vec<NamedValue>, witnesses: &[Witness], except: &[&str]) -> usize {
    let mut witnesses = witnesses.iter().filter(|it| !except.contains(&it.name.as_str())).peekable();
    let mut count = 0;
    for leaf in leaves.into_iter().filter(|it| !except.contains(&it.name.as_str())) {
        let agrees = |witness: &Witness| witness.name == leaf.name && witness.forms.contains(&leaf.value);
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
fn messages(name: &str, version: u8, id: u8) -> Vec<Vec<u8>> {
    vectors(name).map(|(octets, _)| [&[version, id], &octets[2..]].concat()).collect()
}

/// Compares all messages, which must have at least `least` leaves.
fn compare<T: Uper + Debug>(file: &str, port: u16, messages: &[Vec<u8>], least: usize) {
    let Some(read) = witnesses(file, port, messages) else { return };
    let read = messages.iter().zip(read);
    let count: usize = read
        .map(|(octets, it)| {
            assert_agreement(DebugText::named_values(&decode::<T>(octets).unwrap()), &it, &[])
        })
        .sum();
    println!("{} messages, {count} leaves", messages.len());
    assert!(count >= least, "{count}");
}

/// Returns pycrate's CAMs, and CAMs with the containers that pycrate's CAMs lack.
fn cams_of_version_2() -> Vec<Vec<u8>> {
    let mut messages = messages("cam1", 2, 2);
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
    compare::<cam::Cam>("agree-cam2.pcap", port::CAM, &cams_of_version_2(), 600);
}

/// Returns pycrate's CAMs, and CAMs with the containers that pycrate's CAMs lack.
fn cams_of_version_1() -> Vec<Vec<u8>> {
    use version1::cam::{
        DangerousGoodsContainer, EmergencyContainer, SafetyCarContainer, SpecialVehicleContainer,
    };
    use version1::cdd::{CauseCode, DangerousGoodsBasic, EmergencyPriority, SpeedLimit, TrafficRule};
    let mut messages = messages("camv1", 1, 2);
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
    compare::<version1::cam::Cam>("agree-cam1.pcap", port::CAM, &cams_of_version_1(), 500);
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
    let messages = messages("denm1", 2, 1);
    let messages: Vec<_> = messages.iter().map(|it| without_company!(denm::Denm, it)).collect();
    compare::<denm::Denm>("agree-denm2.pcap", port::DENM, &messages, 1000);
}

/// Returns pycrate's DENMs without company names, and one with the components that pycrate's DENMs lack.
fn denms_of_version_1() -> Vec<Vec<u8>> {
    use version1::cdd::{DangerousGoodsExtended, EmergencyActionCode, SpeedLimit};
    use version1::denm::{AlacarteContainer, Denm, RoadWorksContainerExtended, StationaryVehicleContainer};
    let mut denm = decode::<Denm>(&messages("denmv1", 1, 1)[0]).unwrap();
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
    let messages = messages("denmv1", 1, 1);
    let mut messages: Vec<_> = messages.iter().map(|it| without_company!(Denm, it)).collect();
    messages.push(encode(&denm).unwrap());
    messages
}

#[test]
fn tshark_and_carnet_agree_on_denms_of_version_1() {
    compare::<version1::denm::Denm>("agree-denm1.pcap", port::DENM, &denms_of_version_1(), 1000);
}

/// Components whose values or spelling differ between version 1 and version 2; `version1` has the conversion
/// rules.
const CONVERTED: [&str; 8] = [
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
fn messages_of_version_1_keep_their_values_as_version_2() {
    let cams = cams_of_version_1();
    let denms = denms_of_version_1();
    let Some(read) = witnesses("kept-cam1.pcap", port::CAM, &cams) else { return };
    for (octets, witnesses) in cams.iter().zip(read) {
        let cam = cam::Cam::from_octets(octets).unwrap();
        assert_agreement(DebugText::named_values(&cam), &witnesses, &CONVERTED);
    }
    for (octets, witnesses) in denms.iter().zip(witnesses("kept-denm1.pcap", port::DENM, &denms).unwrap()) {
        let denm = denm::Denm::from_octets(octets).unwrap();
        assert_agreement(DebugText::named_values(&denm), &witnesses, &CONVERTED);
    }
}
