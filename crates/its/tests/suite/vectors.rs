//! Messages with random values that pycrate made of the same modules: `tests/pycrate-vectors`.

use std::fmt::Debug;

use carnet_its::release2::cam::{
    Cam, ExtensionContainerId, WrappedExtensionContainer, WrappedExtensionContainers,
};
use carnet_its::release2::cpm::CollectivePerceptionMessage;
use carnet_its::release2::denm::Denm;
use carnet_its::release2::vam::Vam;
use carnet_its::sam::Saem;
use carnet_its::uper::{Uper, decode, encode};
use carnet_its::{cam, denm};

use crate::messages::{RELEASE_2_CAM, RELEASE_2_DENM};
use crate::support::hex;

const VECTORS: &str = include_str!("vectors.txt");

/// The octets of the messages of that name, and the values in them.
pub fn vectors(name: &str) -> impl Iterator<Item = (Vec<u8>, Vec<&str>)> {
    VECTORS.lines().filter_map(move |line| {
        let mut words = line.strip_prefix(name)?.strip_prefix(' ')?.split(' ');
        Some((hex(words.next()?), words.collect()))
    })
}

/// What pycrate writes is read with the same values, and written again to the octet, additions and all.
fn check<T: Uper + Debug>(name: &str) {
    let mut count = 0;
    for (octets, values) in vectors(name) {
        let message = decode::<T>(&octets).unwrap();
        if !values.is_empty() {
            assert_eq!(leaves(&format!("{message:?}")), values, "{message:#?}");
        }
        assert_eq!(encode(&message).as_deref(), Ok(&octets[..]), "{message:#?}");
        count += 1;
    }
    assert_eq!(count, 15);
}

/// The values in a message as [`Debug`] shows it: numbers, texts, and names of values without their spelling.
fn leaves(shown: &str) -> Vec<String> {
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
        // A name with something behind it is that of a type, an alternative or a component.
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
fn release_1() {
    check::<cam::Cam>("cam1");
    check::<denm::Denm>("denm1");
}

#[test]
fn release_2() {
    check::<Cam>("cam");
    check::<Denm>("denm");
}

#[test]
fn vulnerable_road_users() {
    check::<Vam>("vam");
}

#[test]
fn collective_perception() {
    check::<CollectivePerceptionMessage>("cpm");
}

#[test]
fn service_announcements() {
    check::<Saem>("saem");
}

/// And with them.
#[test]
fn stations_of_release_1_read_those_of_release_2() {
    for (octets, _) in vectors("cam") {
        let (old, new) = (cam::Cam::from_octets(&octets).unwrap(), Cam::from_octets(&octets).unwrap());
        let (old, new) = (old.cam.cam_parameters.basic_container, new.cam.cam_parameters.basic_container);
        assert_eq!(old.reference_position.latitude.0, new.reference_position.latitude.0);
    }
    for (octets, _) in vectors("denm") {
        let (old, new) = (denm::Denm::from_octets(&octets).unwrap(), Denm::from_octets(&octets).unwrap());
        let (old, new) = (old.denm.management, new.denm.management);
        assert_eq!(old.validity_duration.0, new.validity_duration.0);
        assert_eq!(old.station_type.0, new.station_type.0);
    }
}

#[test]
fn without_additions_messages_of_release_2_are_those_of_release_1() {
    let plain = hex(RELEASE_2_CAM[0]);
    let cam = Cam::from_octets(&plain).unwrap();
    assert_eq!((cam.cam.cam_parameters.extension_containers.as_ref(), cam.to_octets()), (None, Ok(plain)));
    let plain = hex(RELEASE_2_DENM[0]);
    assert_eq!(Denm::from_octets(&plain).and_then(|denm| denm.to_octets()), Ok(plain));
}

/// A container of another number than those that are known is kept.
#[test]
fn a_container_that_nobody_knows_is_kept() {
    let mut cam = Cam::from_octets(&vectors("cam").next().unwrap().0).unwrap();
    let unknown = WrappedExtensionContainer::Other(ExtensionContainerId(17), b"of a later release".to_vec());
    cam.cam.cam_parameters.extension_containers = Some(WrappedExtensionContainers(vec![unknown]));
    assert_eq!(Cam::from_octets(&cam.to_octets().unwrap()), Ok(cam));
}
