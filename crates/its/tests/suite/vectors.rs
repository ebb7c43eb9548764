//! Messages with random values that pycrate made from the same modules: `tests/pycrate-vectors`.

use std::fmt::Debug;

use carnet_its::release2::cam::{
    Cam, ExtensionContainerId, WrappedExtensionContainer, WrappedExtensionContainers,
};
use carnet_its::release2::cpm::CollectivePerceptionMessage;
use carnet_its::release2::denm::Denm;
use carnet_its::release2::vam::Vam;
use carnet_its::sam::Saem;
use carnet_its::uper::{Uper, decode, encode};
use carnet_its::{cam, denm, version1};

use crate::messages::{RELEASE_2_CAM, RELEASE_2_DENM};
use crate::support::octets_of_hex;

const VECTORS_FILE: &str = include_str!("vectors.txt");

/// Returns the messages of this name: their octets, and the values that pycrate encoded.
pub fn vectors_named(name: &str) -> impl Iterator<Item = (Vec<u8>, Vec<&str>)> {
    VECTORS_FILE.lines().filter_map(move |line| {
        let mut words = line.strip_prefix(name)?.strip_prefix(' ')?.split(' ');
        Some((octets_of_hex(words.next()?), words.collect()))
    })
}

/// carnet decodes the values that pycrate encoded, and encodes them to the same octets, with all additions.
fn check_vectors<T: Uper + Debug>(name: &str) {
    let mut count = 0;
    for (octets, values) in vectors_named(name) {
        let message = decode::<T>(&octets).unwrap();
        if !values.is_empty() {
            assert_eq!(values_in_debug_text(&format!("{message:?}")), values, "{message:#?}");
        }
        assert_eq!(encode(&message).as_deref(), Ok(&octets[..]), "{message:#?}");
        count += 1;
    }
    assert_eq!(count, 15);
}

/// Returns the values in the [`Debug`] form of a message: numbers, texts, and names of values without
/// differences of spelling.
fn values_in_debug_text(shown: &str) -> Vec<String> {
    let mut leaves = Vec::new();
    let mut rest = shown;
    while let Some(first) = rest.chars().next() {
        let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '#');
        let end = match first {
            '"' => rest[1..].find('"').unwrap() + 2,
            _ if is_part(first) => rest.find(|letter| !is_part(letter)).unwrap_or(rest.len()),
            _ => {
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        let (word, behind) = rest.split_at(end);
        rest = behind;
        // A word before `(`, `:` or ` {` is the name of a type, an alternative or a component.
        let is_name = behind.starts_with(['(', ':']) || behind.starts_with(" {");
        if first == '"' {
            leaves.push(word.replace(' ', "_"));
        } else if !is_name && !matches!(word, "None" | "Null") {
            leaves.push(word.replace('_', "").to_lowercase());
        }
    }
    leaves
}

#[test]
fn release_1_messages_of_pycrate_are_decoded() {
    check_vectors::<cam::Cam>("cam1");
    check_vectors::<denm::Denm>("denm1");
}

#[test]
fn protocol_version_1_messages_of_pycrate_are_decoded() {
    check_vectors::<version1::cam::Cam>("camv1");
    check_vectors::<version1::denm::Denm>("denmv1");
}

/// The decoder converts the values of a version 1 message to the units of version 2.
#[test]
fn decoder_recognises_protocol_version_1() {
    let mut curves = 0;
    for (octets, _) in vectors_named("camv1") {
        let (old, new) =
            (decode::<version1::cam::Cam>(&octets).unwrap(), cam::Cam::from_octets(&octets).unwrap());
        assert_eq!(new.header.protocol_version.0, 2);
        let (old, new) = (old.cam.cam_parameters, new.cam.cam_parameters);
        assert_eq!(
            new.basic_container.reference_position.latitude.0,
            old.basic_container.reference_position.latitude.0
        );
        let version1::cam::HighFrequencyContainer::BasicVehicleContainerHighFrequency(old) =
            old.high_frequency_container
        else {
            continue;
        };
        let cam::HighFrequencyContainer::BasicVehicleContainerHighFrequency(new) =
            new.high_frequency_container
        else {
            panic!("{new:?}");
        };
        assert_eq!(new.yaw_rate.yaw_rate_value.0, old.yaw_rate.yaw_rate_value.0);
        match (old.curvature.curvature_value.0, new.curvature.curvature_value.0) {
            (30_001, unavailable) => assert_eq!(unavailable, 1023),
            (thirds, value) => {
                curves += 1;
                let expected = (f64::from(thirds) / 3.0).round().clamp(-1022.0, 1022.0);
                assert_eq!(f64::from(value), expected, "{thirds}");
            }
        }
        // Version 2 counts lanes from the other side of the road than version 1.
        let lane = old.lane_position.map(|lane| lane.0);
        let expected = match lane {
            Some(-1) => Some(-1),
            Some(0) => Some(14),
            _ => None,
        };
        assert_eq!(new.lane_position.map(|lane| lane.0), expected);
    }
    assert!(curves > 0);
    for (octets, _) in vectors_named("denmv1") {
        let (old, new) =
            (decode::<version1::denm::Denm>(&octets).unwrap(), denm::Denm::from_octets(&octets).unwrap());
        let (old, new) = (old.denm, new.denm);
        assert_eq!(new.management.reference_time.0, old.management.reference_time.0);
        let cause = |old: &version1::cdd::CauseCode| (old.cause_code.0, old.sub_cause_code.0);
        assert_eq!(
            new.situation.map(|it| (it.event_type.cause_code.0, it.event_type.sub_cause_code.0)),
            old.situation.map(|it| cause(&it.event_type))
        );
        assert_eq!(new.location.is_some(), old.location.is_some());
        assert_eq!(new.alacarte.is_some(), old.alacarte.is_some());
    }
}

#[test]
fn release_2_messages_of_pycrate_are_decoded() {
    check_vectors::<Cam>("cam");
    check_vectors::<Denm>("denm");
}

#[test]
fn vam_messages_of_pycrate_are_decoded() {
    check_vectors::<Vam>("vam");
}

#[test]
fn cpm_messages_of_pycrate_are_decoded() {
    check_vectors::<CollectivePerceptionMessage>("cpm");
}

#[test]
fn sam_messages_of_pycrate_are_decoded() {
    check_vectors::<Saem>("saem");
}

/// The types of release 1 read messages of release 2, which may have additions.
#[test]
fn release_1_decoder_reads_release_2_messages_of_pycrate() {
    // pycrate chose random values for the header, too; this test needs version 2.
    let of_version_2 = |octets: Vec<u8>| [&[2], &octets[1..]].concat();
    for (octets, _) in vectors_named("cam") {
        let octets = of_version_2(octets);
        let (old, new) = (cam::Cam::from_octets(&octets).unwrap(), Cam::from_octets(&octets).unwrap());
        let (old, new) = (old.cam.cam_parameters.basic_container, new.cam.cam_parameters.basic_container);
        assert_eq!(old.reference_position.latitude.0, new.reference_position.latitude.0);
    }
    for (octets, _) in vectors_named("denm") {
        let octets = of_version_2(octets);
        let (old, new) = (denm::Denm::from_octets(&octets).unwrap(), Denm::from_octets(&octets).unwrap());
        let (old, new) = (old.denm.management, new.denm.management);
        assert_eq!(old.validity_duration.0, new.validity_duration.0);
        assert_eq!(old.station_type.0, new.station_type.0);
    }
}

#[test]
fn release_2_messages_without_additions_equal_release_1_messages() {
    let plain = octets_of_hex(RELEASE_2_CAM[0]);
    let cam = Cam::from_octets(&plain).unwrap();
    assert_eq!((cam.cam.cam_parameters.extension_containers.as_ref(), cam.to_octets()), (None, Ok(plain)));
    let plain = octets_of_hex(RELEASE_2_DENM[0]);
    assert_eq!(Denm::from_octets(&plain).and_then(|denm| denm.to_octets()), Ok(plain));
}

/// The decoder keeps the octets of a container whose number it does not know.
#[test]
fn decoder_keeps_container_with_unknown_number() {
    let mut cam = decode::<Cam>(&vectors_named("cam").next().unwrap().0).unwrap();
    let unknown = WrappedExtensionContainer::Other(ExtensionContainerId(17), b"of a later release".to_vec());
    cam.cam.cam_parameters.extension_containers = Some(WrappedExtensionContainers(vec![unknown]));
    assert_eq!(decode::<Cam>(&cam.to_octets().unwrap()), Ok(cam));
}
