//! Random and mutated octets cause no panic, and no decoded value is outside its type.

use carnet_base::Rng;
use carnet_its::cam::Cam;
use carnet_its::cdd::{StationId, StationType};
use carnet_its::denm::Denm;
use carnet_its::ldm::PartialCam;
use carnet_its::release2::{cam, cpm, denm, vam};
use carnet_its::uper::{Uper, decode, encode};
use carnet_its::{Facilities, facilities};
use carnet_wire::btp::port;
use carnet_wire::geonet::GnAddress;
use proptest::prelude::*;

use crate::messages::{VANETZA_MESSAGES, cam_with_all_fields, denm_with_all_fields};
use crate::support::{circle_around_home, now_at_milliseconds, octets_of_hex};
use crate::vectors::vectors_named;

/// Asserts that a decoded message can be encoded and is decoded to an equal message.
fn check_reencoding<T: Uper + PartialEq + std::fmt::Debug>(octets: &[u8]) -> bool {
    let Ok(message) = decode::<T>(octets) else { return false };
    let again = encode(&message).unwrap();
    assert_eq!(decode::<T>(&again).as_ref(), Ok(&message));
    true
}

/// Returns a message with some octets changed, sometimes truncated.
fn mutate_message(rng: &mut Rng, message: &[u8]) -> Vec<u8> {
    let mut octets = message.to_vec();
    for _ in 0..1 + rng.number_below(4) {
        let place = rng.number_below(octets.len() as u64) as usize;
        octets[place] ^= 1 << rng.number_below(8);
    }
    if rng.is_true_with_probability(0.2) {
        octets.truncate(rng.number_below(octets.len() as u64) as usize);
    }
    octets
}

#[test]
fn mutated_messages_cause_no_panic() {
    let mut rng = Rng::new(1);
    let messages = [
        encode(&cam_with_all_fields()).unwrap(),
        encode(&denm_with_all_fields()).unwrap(),
        octets_of_hex(VANETZA_MESSAGES[0]),
    ];
    let mut understood = 0;
    for round in 0..30_000 {
        let octets = mutate_message(&mut rng, &messages[round % messages.len()]);
        understood +=
            usize::from(check_reencoding::<Cam>(&octets)) + usize::from(check_reencoding::<Denm>(&octets));
        // If partial and full decoding both succeed, they give the same values.
        if let (Ok(glance), Ok(cam)) = (PartialCam::from_octets(&octets), carnet_its::ca::parse_cam(&octets))
        {
            let basic = cam.cam.cam_parameters.basic_container;
            assert_eq!(Some(glance.position), basic.reference_position.position());
            assert_eq!(glance.station_type, basic.station_type);
        }
    }
    assert!(understood > 5000, "the test reaches the inside: {understood}");
}

/// Messages of release 2 have more components to mutate.
#[test]
fn mutated_release_2_messages_cause_no_panic() {
    let mut rng = Rng::new(3);
    let messages: Vec<_> =
        ["cam", "denm", "vam", "cpm"].into_iter().flat_map(vectors_named).map(|(octets, _)| octets).collect();
    let mut understood = 0;
    for round in 0..20_000 {
        let octets = mutate_message(&mut rng, &messages[round % messages.len()]);
        understood += usize::from(check_reencoding::<cam::Cam>(&octets));
        understood += usize::from(check_reencoding::<denm::Denm>(&octets));
        understood += usize::from(check_reencoding::<vam::Vam>(&octets));
        understood += usize::from(check_reencoding::<cpm::CollectivePerceptionMessage>(&octets));
    }
    assert!(understood > 2000, "the test reaches the inside: {understood}");
}

#[test]
fn facilities_survive_random_messages() {
    let mut rng = Rng::new(2);
    let parameters = facilities::FacilitiesParameters {
        delivers_cams: true,
        ..facilities::FacilitiesParameters::default()
    };
    let mut station = Facilities::new(parameters, StationId(1), StationType::PASSENGER_CAR, 3);
    let messages = [
        (port::CAM, encode(&cam_with_all_fields()).unwrap()),
        (port::DENM, encode(&denm_with_all_fields()).unwrap()),
    ];
    let mut taken = 0;
    for round in 0..30_000_u64 {
        let (port, message) = &messages[round as usize % 2];
        let octets = mutate_message(&mut rng, message);
        taken += usize::from(
            station
                .handle_message(
                    now_at_milliseconds(round),
                    *port,
                    &octets,
                    GnAddress(2),
                    Some(circle_around_home(500)),
                )
                .is_ok(),
        );
        if round % 16 == 0 {
            station.handle_timeout(now_at_milliseconds(round));
            while station.poll_output(now_at_milliseconds(round)).is_some() {}
        }
    }
    assert!(taken > 1000, "{taken}");
    let (stations, events) = station.ldm.object_counts();
    assert!(stations <= 4096 && events <= 256 && station.den_service.event_counts().1 <= 256);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn random_octets_are_no_messages(
        octets in prop::collection::vec(any::<u8>(), 0..600),
        denm in any::<bool>(),
    ) {
        check_reencoding::<Cam>(&octets);
        check_reencoding::<Denm>(&octets);
        let _ = PartialCam::from_octets(&octets);
        let mut headed = vec![2, if denm { 1 } else { 2 }];
        headed.extend(octets);
        check_reencoding::<Cam>(&headed);
        check_reencoding::<Denm>(&headed);
        let _ = PartialCam::from_octets(&headed);
    }
}
