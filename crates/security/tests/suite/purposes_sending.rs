//! Test purposes of TS 103 096 for transmission, with the ids of the 2015 suite. The envelopes of that suite
//! had another encoding, so the tests check the fields that replaced its header fields (TS 103 097 V1.3.1).
//! The table in docs/security.md lists the purposes that do not apply.

use carnet_base::Time;
use carnet_security::certificate::{Certificate, CertificateRole, Issuer};
use carnet_security::crypto::{CryptoBackend, PortableBackend, name_of_certificate, signature_input};
use carnet_security::ids::HashedId8;
use carnet_security::keys::EllipticCurve;
use carnet_security::message::{Envelope, Payload, SignedMessage, Signer};
use carnet_security::permissions::Psid;
use carnet_security::region::{CountryAndRegion, GeographicRegion, IdentifiedRegion};
use carnet_security::{SecurityDrop, SecurityTime};
use carnet_wire::geonet::BasicHeader;

use crate::support::*;

fn signed_message_of(octets: &[u8]) -> SignedMessage<'_> {
    assert_eq!(octets[0] & 0x0f, 2, "next header of the Basic Header: secured packet");
    match Envelope::parse(&octets[BasicHeader::LEN..]).unwrap() {
        Envelope::Signed(message) => *message,
        other => panic!("{other:?}"),
    }
}

fn certificate_in(octets: &[u8]) -> Option<Certificate> {
    match signed_message_of(octets).signer {
        Signer::Certificate(certificate) => Some(*certificate),
        _ => None,
    }
}

fn is_signed_by(octets: &[u8], certificate: &Certificate) -> bool {
    let message = signed_message_of(octets);
    let input = signature_input(&PortableBackend, message.hash, message.to_be_signed, certificate.octets());
    PortableBackend
        .verifying_key(&certificate.content().verification_key)
        .unwrap()
        .verify(&input, &message.signature)
}

/// Returns the CAMs that a station sends in one second; the first one carries the certificate.
fn cams_of_one_second(station: &mut TestStation, from: u64) -> Vec<Vec<u8>> {
    (0..10).map(|number| station.signed_cam(now_at_milliseconds(from + 100 * number))).collect()
}

/// The version of the envelope is 3; the test purpose expects the older version 2.
#[test]
fn tc_sec_itss_snd_msg_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    assert_eq!(car.signed_cam(now_at_milliseconds(0))[BasicHeader::LEN], 3);
}

/// The digest is the name of the ticket.
#[test]
fn tc_sec_itss_snd_msg_04_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let name = car.security.current_ticket().unwrap();
    let cams = cams_of_one_second(&mut car, 0);
    assert_eq!(signed_message_of(&cams[1]).signer, Signer::Digest(name));
}

/// A ticket signs messages.
#[test]
fn tc_sec_itss_snd_msg_04_02() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let cams = cams_of_one_second(&mut car, 0);
    let certificate = certificate_in(&cams[0]).unwrap();
    assert_eq!(certificate.certificate_role(), CertificateRole::Ticket);
    assert!(cams.iter().all(|cam| is_signed_by(cam, &certificate)));
}

/// The r of the signature is only an x coordinate.
#[test]
fn tc_sec_itss_snd_msg_05_01() {
    for curve in EllipticCurve::ALL {
        let mut car = TestPki::new(curve).new_car_station();
        let cam = car.signed_cam(now_at_milliseconds(0));
        let behind = 2 * curve.octets() + 1;
        assert_eq!(cam[cam.len() - behind], 0x80, "{curve:?}");
    }
}

/// A CAM has application, time and signer, and no other field.
#[test]
fn tc_sec_itss_snd_cam_02_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    for cam in cams_of_one_second(&mut car, 0) {
        let header = signed_message_of(&cam).header;
        assert!(header.generation_time.is_some());
        assert!(header.generation_location.is_none() && header.expiry_time.is_none());
        assert!(header.encryption_key.is_none() && !header.has_forbidden_field);
        assert!(header.inline_requests.is_empty() && header.requested_certificate.is_none());
    }
}

/// Usually the signer of a CAM is the digest by SHA-256.
#[test]
fn tc_sec_itss_snd_cam_04_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let cams = cams_of_one_second(&mut car, 0);
    assert_eq!(cams.iter().filter(|cam| certificate_in(cam).is_some()).count(), 1);
    let certificate = certificate_in(&cams[0]).unwrap();
    let hash = PortableBackend.hash(EllipticCurve::NistP256.hash(), certificate.octets());
    assert!(
        cams[1..]
            .iter()
            .all(|cam| signed_message_of(cam).signer == Signer::Digest(HashedId8::from_hash(&hash)))
    );
}

/// A CAM carries the certificate if the last CAM with the certificate was sent a second before.
#[test]
fn tc_sec_itss_snd_cam_05_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(0))).is_some());
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(999))).is_none());
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(1_000))).is_some());
}

/// A CAM carries the certificate each second.
#[test]
fn tc_sec_itss_snd_cam_05_02() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let cams: Vec<_> = (0..50).map(|number| car.signed_cam(now_at_milliseconds(100 * number))).collect();
    let with: Vec<_> = (0..50).filter(|number| certificate_in(&cams[*number]).is_some()).collect();
    assert_eq!(with, [0, 10, 20, 30, 40]);
}

/// After a message of a station that it does not know, a station includes its certificate in the next CAM.
#[test]
fn tc_sec_itss_snd_cam_06_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut car, mut stranger) = (pki.new_car_station(), pki.new_car_station());
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(0))).is_some());
    let hello = stranger.signed_cam(now_at_milliseconds(100));
    assert_eq!(receive_packet(&mut car.security, now_at_milliseconds(100), &hello).unwrap().len(), 1);
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(200))).is_some());
    // After a message of a known station, the next CAM does not include the certificate.
    let again = stranger.signed_cam(now_at_milliseconds(250));
    assert_eq!(receive_packet(&mut car.security, now_at_milliseconds(250), &again).unwrap().len(), 1);
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(300))).is_none());
}

/// After each CAM with the certificate, the timer for the next one restarts.
#[test]
fn tc_sec_itss_snd_cam_07_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut car, mut stranger) = (pki.new_car_station(), pki.new_car_station());
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(0))).is_some());
    let hello = stranger.signed_cam(now_at_milliseconds(500));
    receive_packet(&mut car.security, now_at_milliseconds(500), &hello).unwrap();
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(600))).is_some());
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(1_000))).is_none());
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(1_599))).is_none());
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(1_600))).is_some());
}

/// Returns two stations that know each other's certificate, so the next CAM of `car` carries only the digest.
fn stations_that_know_each_other(pki: &mut TestPki) -> (TestStation, TestStation) {
    let (mut car, mut other) = (pki.new_car_station(), pki.new_car_station());
    let hello = car.signed_cam(now_at_milliseconds(0));
    receive_packet(&mut other.security, now_at_milliseconds(0), &hello).unwrap();
    let hello = other.signed_cam(now_at_milliseconds(10));
    receive_packet(&mut car.security, now_at_milliseconds(10), &hello).unwrap();
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(20))).is_some());
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(30))).is_none());
    (car, other)
}

/// A station that receives a request for its certificate includes the certificate in the next CAM.
#[test]
fn tc_sec_itss_snd_cam_08_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut car, mut other) = stations_that_know_each_other(&mut pki);
    let mut newcomer = pki.new_car_station();
    // The new station receives a digest that it does not know, and requests the certificate.
    let digest = car.signed_cam(now_at_milliseconds(100));
    assert_eq!(receive_packet(&mut newcomer.security, now_at_milliseconds(100), &digest), Ok(Vec::new()));
    let asks = newcomer.signed_cam(now_at_milliseconds(110));
    assert_eq!(
        signed_message_of(&asks).header.inline_requests.iter().collect::<Vec<_>>(),
        [car.security.current_ticket().unwrap().last_three_octets()]
    );
    assert_eq!(receive_packet(&mut other.security, now_at_milliseconds(120), &asks).unwrap().len(), 1);
    assert_eq!(receive_packet(&mut car.security, now_at_milliseconds(120), &asks).unwrap().len(), 1);
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(130))).is_some());
}

/// Returns two stations whose authorities differ but have the same root. The first station knows both
/// authorities, the second only its own.
fn stations_of_two_authorities(pki: &mut TestPki) -> (TestStation, TestStation) {
    let mut second = TestPki::with_authority(EllipticCurve::NistP256, |mut content| {
        content.name = Some("second".to_owned());
        content
    });
    let (mut car, foreign) = (pki.new_car_station(), second.new_car_station());
    car.security.add_authority(now_at_milliseconds(0), second.authority.clone()).unwrap();
    (car, foreign)
}

/// A station that receives a request for an authority's certificate, and has this certificate, sends it in a
/// CAM with a digest. (The ETSI test purpose has a chain in the signer, which TS 103 097 V1.3.1 replaces by
/// requestedCertificate.)
#[test]
fn tc_sec_itss_snd_cam_09_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut car, mut foreign) = stations_of_two_authorities(&mut pki);
    let hello = car.signed_cam(now_at_milliseconds(0));
    assert_eq!(receive_packet(&mut foreign.security, now_at_milliseconds(0), &hello), Ok(Vec::new()));
    assert_eq!(foreign.security.waiting_messages(), (0, 1));
    let asks = foreign.signed_cam(now_at_milliseconds(10));
    let wanted: Vec<_> = signed_message_of(&asks).header.inline_requests.iter().collect();
    assert_eq!(wanted, [name_of_certificate(&PortableBackend, &pki.authority).last_three_octets()]);
    assert_eq!(receive_packet(&mut car.security, now_at_milliseconds(10), &asks).unwrap().len(), 1);
    // The first CAM carries the station's own certificate, because a new station has appeared. The next CAM
    // carries the authority's certificate.
    assert!(
        signed_message_of(&car.signed_cam(now_at_milliseconds(100))).header.requested_certificate.is_none()
    );
    let answer = car.signed_cam(now_at_milliseconds(200));
    assert_eq!(signed_message_of(&answer).header.requested_certificate, Some(pki.authority.clone()));
    assert!(certificate_in(&answer).is_none());
    assert!(
        signed_message_of(&car.signed_cam(now_at_milliseconds(300))).header.requested_certificate.is_none()
    );
}

/// A station does not answer a request for a certificate if another station has already sent the certificate.
#[test]
fn station_does_not_repeat_certificate_that_another_station_sent() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut car, mut foreign) = stations_of_two_authorities(&mut pki);
    let (mut other, _) = stations_of_two_authorities(&mut pki);
    let hello = car.signed_cam(now_at_milliseconds(0));
    receive_packet(&mut foreign.security, now_at_milliseconds(0), &hello).unwrap();
    let asks = foreign.signed_cam(now_at_milliseconds(10));
    for station in [&mut car, &mut other] {
        assert_eq!(receive_packet(&mut station.security, now_at_milliseconds(10), &asks).unwrap().len(), 1);
    }
    let introduction = car.signed_cam(now_at_milliseconds(20));
    receive_packet(&mut other.security, now_at_milliseconds(20), &introduction).unwrap();
    let _ = other.signed_cam(now_at_milliseconds(25));
    let answer = car.signed_cam(now_at_milliseconds(100));
    assert!(signed_message_of(&answer).header.requested_certificate.is_some());
    assert_eq!(receive_packet(&mut other.security, now_at_milliseconds(110), &answer).unwrap().len(), 1);
    assert!(
        signed_message_of(&other.signed_cam(now_at_milliseconds(120))).header.requested_certificate.is_none()
    );
}

/// When the station learns an authority, messages that waited for it are verified.
#[test]
fn arriving_authority_releases_waiting_messages() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut car, mut foreign) = stations_of_two_authorities(&mut pki);
    let mut bystander = pki.new_car_station();
    // The receiver knows only the first authority, so messages of the second station wait.
    let asks = foreign.signed_cam(now_at_milliseconds(0));
    assert_eq!(receive_packet(&mut bystander.security, now_at_milliseconds(0), &asks), Ok(Vec::new()));
    let asks = bystander.signed_cam(now_at_milliseconds(10));
    receive_packet(&mut car.security, now_at_milliseconds(10), &asks).unwrap();
    let introduction = car.signed_cam(now_at_milliseconds(20));
    assert_eq!(
        receive_packet(&mut bystander.security, now_at_milliseconds(20), &introduction).unwrap().len(),
        1
    );
    let answer = car.signed_cam(now_at_milliseconds(120));
    let opened = receive_packet(&mut bystander.security, now_at_milliseconds(120), &answer).unwrap();
    let signers: Vec<_> = opened.iter().map(|verified| verified.signer).collect();
    assert_eq!(signers, [car.security.current_ticket().unwrap(), foreign.security.current_ticket().unwrap()]);
}

/// The generation time is the present time, within the certificate's validity.
#[test]
fn tc_sec_itss_snd_cam_10_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let cam = car.signed_cam(now_at_milliseconds(70));
    let validity = certificate_in(&cam).unwrap().content().validity;
    let made = signed_message_of(&cam).header.generation_time.unwrap();
    assert!(validity.contains_time(made));
    assert_eq!(made, now_at_milliseconds(70).certificate_time);
}

/// A CAM has the application of CAM.
#[test]
fn tc_sec_itss_snd_cam_11_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    assert_eq!(signed_message_of(&car.signed_cam(now_at_milliseconds(0))).header.psid, Psid(36));
}

/// After a message with an unknown digest, the next CAM requests the certificate.
#[test]
fn tc_sec_itss_snd_cam_12_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut car, mut stranger) = (pki.new_car_station(), pki.new_car_station());
    let _ = stranger.signed_cam(now_at_milliseconds(0));
    let digest = stranger.signed_cam(now_at_milliseconds(100));
    assert_eq!(receive_packet(&mut car.security, now_at_milliseconds(100), &digest), Ok(Vec::new()));
    let asks = car.signed_cam(now_at_milliseconds(150));
    let wanted: Vec<_> = signed_message_of(&asks).header.inline_requests.iter().collect();
    assert_eq!(wanted, [stranger.security.current_ticket().unwrap().last_three_octets()]);
    // A station requests the certificate again only after another message with the unknown digest.
    assert!(signed_message_of(&car.signed_cam(now_at_milliseconds(250))).header.inline_requests.is_empty());
}

/// The signed payload is not empty.
#[test]
fn tc_sec_itss_snd_cam_14_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let plain = car.plain_cam_packet(now_at_milliseconds(0), &example_cam());
    let cam = car.signed_cam(now_at_milliseconds(0));
    assert_eq!(signed_message_of(&cam).payload, Payload::Data(&plain[BasicHeader::LEN..]));
}

/// The signature is made with the certificate's key over the hashes that the standard requires.
#[test]
fn tc_sec_itss_snd_cam_16_01() {
    for curve in EllipticCurve::ALL {
        let mut car = TestPki::new(curve).new_car_station();
        let cams = cams_of_one_second(&mut car, 0);
        let certificate = certificate_in(&cams[0]).unwrap();
        assert!(cams.iter().all(|cam| is_signed_by(cam, &certificate)), "{curve:?}");
    }
}

/// A DENM has application, generation time and generation location.
#[test]
fn tc_sec_itss_snd_denm_02_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let denm = car.signed_denm(now_at_milliseconds(0));
    let header = signed_message_of(&denm).header;
    assert!(header.generation_time.is_some() && header.generation_location.is_some());
    assert!(header.expiry_time.is_none() && header.inline_requests.is_empty());
}

/// A DENM always carries the certificate.
#[test]
fn tc_sec_itss_snd_denm_03_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    assert!((0..5).all(|number| certificate_in(&car.signed_denm(now_at_milliseconds(number))).is_some()));
    // The certificate in a DENM does not restart the timer of CAMs.
    assert!(certificate_in(&car.signed_cam(now_at_milliseconds(10))).is_some());
}

#[test]
fn tc_sec_itss_snd_denm_04_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let denm = car.signed_denm(now_at_milliseconds(70));
    let made = signed_message_of(&denm).header.generation_time.unwrap();
    assert!(certificate_in(&denm).unwrap().content().validity.contains_time(made));
    assert_eq!(made, now_at_milliseconds(70).certificate_time);
}

/// Returns the regions that the ETSI test purposes name: none, a circle, a rectangle, a polygon, a country.
fn regions_of_each_kind() -> Vec<Option<GeographicRegion>> {
    let square = vec![
        position_at(-500.0, -500.0),
        position_at(-500.0, 500.0),
        position_at(500.0, 500.0),
        position_at(500.0, -500.0),
    ];
    vec![
        None,
        Some(GeographicRegion::Circular { center: HOME_POSITION, radius: 1_000 }),
        Some(GeographicRegion::Rectangular(vec![(position_at(-500.0, 500.0), position_at(500.0, -500.0))])),
        Some(GeographicRegion::Polygonal(square)),
        Some(GeographicRegion::Identified(vec![IdentifiedRegion::CountryOnly(250)])),
    ]
}

fn station_with_region(pki: &mut TestPki, region: Option<GeographicRegion>) -> TestStation {
    let ticket = match region {
        Some(region) => pki.new_ticket_in_region(region),
        None => pki.new_ticket(),
    };
    pki.station_with(ticket)
}

/// The generation location is in the region of the certificate, for each shape.
#[test]
fn tc_sec_itss_snd_denm_05_01_to_05_05() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    for region in regions_of_each_kind() {
        let mut car = station_with_region(&mut pki, region.clone());
        let denm = car.signed_denm(now_at_milliseconds(0));
        let location = signed_message_of(&denm).header.generation_location.unwrap();
        assert_eq!(location.position, HOME_POSITION);
        assert!(region.is_none_or(|region| region.contains_place(location.position, &COUNTRY_OF_HOME)));
    }
}

/// A station does not sign outside the region of its certificate.
#[test]
fn station_outside_region_of_its_ticket_sends_nothing() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    for region in regions_of_each_kind().into_iter().flatten() {
        let mut car = station_with_region(&mut pki, Some(region.clone()));
        car.move_to(position_at(3_000.0, 0.0));
        let plain = car.plain_cam_packet(now_at_milliseconds(0), &example_cam());
        let expected = match region {
            // The place is still in the country.
            GeographicRegion::Identified(_) => Ok(()),
            _ => Err(SecurityDrop::NoTicket),
        };
        assert_eq!(
            car.security.secure_packet(now_at_milliseconds(0), &plain).map(|_| ()),
            expected,
            "{region:?}"
        );
    }
}

/// If the ticket has no region, the region of the authority applies.
#[test]
fn tc_sec_itss_snd_denm_05_06() {
    let mut pki = TestPki::with_authority(EllipticCurve::NistP256, |mut content| {
        content.validity_region = Some(GeographicRegion::Circular { center: HOME_POSITION, radius: 1_000 });
        content
    });
    let mut car = pki.new_car_station();
    let denm = car.signed_denm(now_at_milliseconds(0));
    let location = signed_message_of(&denm).header.generation_location.unwrap();
    assert!(HOME_POSITION.distance_to(location.position) <= 1_000.0);
    car.move_to(position_at(3_000.0, 0.0));
    let plain = car.plain_denm_packet(now_at_milliseconds(100), circle_around_home(500), &example_denm(91));
    assert_eq!(car.security.secure_packet(now_at_milliseconds(100), &plain), Err(SecurityDrop::NoTicket));
}

#[test]
fn tc_sec_itss_snd_denm_06_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    assert_eq!(signed_message_of(&car.signed_denm(now_at_milliseconds(0))).header.psid, Psid(37));
}

#[test]
fn tc_sec_itss_snd_denm_08_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let denm = car.signed_denm(now_at_milliseconds(0));
    assert!(matches!(signed_message_of(&denm).payload, Payload::Data(inside) if !inside.is_empty()));
}

#[test]
fn tc_sec_itss_snd_denm_10_01() {
    for curve in EllipticCurve::ALL {
        let mut car = TestPki::new(curve).new_car_station();
        let denm = car.signed_denm(now_at_milliseconds(0));
        assert!(is_signed_by(&denm, &certificate_in(&denm).unwrap()), "{curve:?}");
    }
}

/// Other packets, here beacons, contain generation time, generation location and certificate.
#[test]
fn tc_sec_itss_snd_genmsg_02_01_and_03_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    for number in 0..3 {
        let beacon = car.signed_beacon(now_at_milliseconds(number));
        let header = signed_message_of(&beacon).header;
        assert_eq!(header.psid, Psid::GN_MGMT);
        assert!(header.generation_time.is_some() && header.generation_location.is_some());
        assert!(certificate_in(&beacon).is_some());
    }
}

#[test]
fn tc_sec_itss_snd_genmsg_04_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let beacon = car.signed_beacon(now_at_milliseconds(70));
    let made = signed_message_of(&beacon).header.generation_time.unwrap();
    assert!(certificate_in(&beacon).unwrap().content().validity.contains_time(made));
    assert_eq!(made, now_at_milliseconds(70).certificate_time);
}

#[test]
fn tc_sec_itss_snd_genmsg_05_01_to_05_05() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    for region in regions_of_each_kind() {
        let mut car = station_with_region(&mut pki, region.clone());
        let location =
            signed_message_of(&car.signed_beacon(now_at_milliseconds(0))).header.generation_location.unwrap();
        assert!(region.is_none_or(|region| region.contains_place(location.position, &COUNTRY_OF_HOME)));
    }
}

#[test]
fn tc_sec_itss_snd_genmsg_05_06() {
    let mut pki = TestPki::with_authority(EllipticCurve::NistP256, |mut content| {
        content.validity_region = Some(GeographicRegion::Circular { center: HOME_POSITION, radius: 1_000 });
        content
    });
    let mut car = pki.new_car_station();
    assert_eq!(
        signed_message_of(&car.signed_beacon(now_at_milliseconds(0)))
            .header
            .generation_location
            .unwrap()
            .position,
        HOME_POSITION
    );
    car.move_to(position_at(3_000.0, 0.0));
    let plain = car.plain_beacon_packet(now_at_milliseconds(10));
    assert_eq!(car.security.secure_packet(now_at_milliseconds(10), &plain), Err(SecurityDrop::NoTicket));
}

#[test]
fn tc_sec_itss_snd_genmsg_06_01_and_07_01() {
    let mut car = TestPki::new(EllipticCurve::NistP256).new_car_station();
    let beacon = car.signed_beacon(now_at_milliseconds(0));
    assert!(matches!(signed_message_of(&beacon).payload, Payload::Data(inside) if !inside.is_empty()));
    assert!(is_signed_by(&beacon, &certificate_in(&beacon).unwrap()));
}

// The following tests check certificates: those that the station sends, and those that its authority issued.

/// Certificates have version 3; the test purposes expect the older version 2.
#[test]
fn tc_sec_snd_cert_01_01_and_01_02() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut car = pki.new_car_station();
    assert_eq!(certificate_in(&car.signed_cam(now_at_milliseconds(0))).unwrap().octets()[1], 3);
    assert_eq!(pki.authority.octets()[1], 3);
}

/// The chain of certificates: each certificate names its issuer and has the issuer's signature.
#[test]
fn tc_sec_snd_cert_02_01_09_01_and_09_02() {
    for curve in EllipticCurve::ALL {
        let mut pki = TestPki::new(curve);
        let ticket = pki.new_ticket().certificate;
        for (below, above) in [(&ticket, &pki.authority), (&pki.authority, &pki.root)] {
            assert_eq!(
                below.issuer(),
                Issuer::Digest(above.hash_algorithm(), name_of_certificate(&PortableBackend, above))
            );
            let input = signature_input(
                &PortableBackend,
                above.hash_algorithm(),
                below.signed_octets(),
                above.octets(),
            );
            let key = PortableBackend.verifying_key(&above.content().verification_key).unwrap();
            assert!(key.verify(&input, below.signature()), "{curve:?}");
        }
    }
}

/// Returns whether an authority with region `region` can issue a certificate with region `below`: no if
/// `below` exceeds `region` or is malformed.
fn issue_ticket_region_below(region: GeographicRegion, below: GeographicRegion) -> Result<(), SecurityDrop> {
    let mut pki = TestPki::with_authority(EllipticCurve::NistP256, |mut content| {
        content.validity_region = Some(region);
        content
    });
    let ticket = pki.new_ticket_in_region(below).certificate;
    let store = pki.receiver_with(strict_config());
    store
        .store()
        .verify_certificate(
            &PortableBackend,
            ticket,
            now_at_milliseconds(0).certificate_time,
            &COUNTRY_OF_HOME,
        )
        .map(|_| ())
}

const CHAIN_INCONSISTENT: Result<(), SecurityDrop> = Err(SecurityDrop::InconsistentChain);

fn rectangle_around_home(half: f64) -> GeographicRegion {
    GeographicRegion::Rectangular(vec![(position_at(-half, half), position_at(half, -half))])
}

#[test]
fn tc_sec_snd_cert_04_01_and_04_02() {
    assert_eq!(issue_ticket_region_below(rectangle_around_home(500.0), rectangle_around_home(400.0)), Ok(()));
    assert_eq!(
        issue_ticket_region_below(rectangle_around_home(500.0), rectangle_around_home(600.0)),
        CHAIN_INCONSISTENT
    );
    // The codec's tests cover the limits: at most six rectangles, and the order of the corners.
    let turned =
        GeographicRegion::Rectangular(vec![(position_at(500.0, -500.0), position_at(-500.0, 500.0))]);
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    assert!(Certificate::parse(pki.new_ticket_in_region(turned).certificate.octets()).is_err());
    let GeographicRegion::Rectangular(one) = rectangle_around_home(100.0) else { return };
    let many = GeographicRegion::Rectangular(one.repeat(7));
    assert!(Certificate::parse(pki.new_ticket_in_region(many).certificate.octets()).is_err());
}

fn polygon_around_home(half: f64, corners: usize) -> GeographicRegion {
    let corner = |number: usize| {
        let (sin, cos) = (number as f64 * std::f64::consts::TAU / corners as f64).sin_cos();
        position_at(half * sin, half * cos)
    };
    GeographicRegion::Polygonal((0..corners).map(corner).collect())
}

#[test]
fn tc_sec_snd_cert_05_01_and_05_02() {
    assert_eq!(
        issue_ticket_region_below(polygon_around_home(500.0, 8), polygon_around_home(400.0, 12)),
        Ok(())
    );
    assert_eq!(
        issue_ticket_region_below(polygon_around_home(500.0, 8), polygon_around_home(600.0, 8)),
        CHAIN_INCONSISTENT
    );
    let bow = vec![
        position_at(-100.0, -100.0),
        position_at(100.0, 100.0),
        position_at(100.0, -100.0),
        position_at(-100.0, 100.0),
    ];
    assert_eq!(
        issue_ticket_region_below(polygon_around_home(500.0, 8), GeographicRegion::Polygonal(bow)),
        CHAIN_INCONSISTENT
    );
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    for corners in [2, 13] {
        let certificate = pki.new_ticket_in_region(polygon_around_home(500.0, corners)).certificate;
        assert!(Certificate::parse(certificate.octets()).is_err(), "{corners}");
    }
}

/// A certificate names countries by number, and the countries of a ticket are among those of its authority.
/// (The ETSI test purpose 06_01 uses the numbers of ISO 3166-1, 06_03 those of the United Nations. TS 103 097
/// V1.3.1 has only the latter.)
#[test]
fn tc_sec_snd_cert_06_03_and_06_04() {
    use IdentifiedRegion::{CountryAndRegions, CountryAndSubregions, CountryOnly};
    let region = |countries: &[IdentifiedRegion]| GeographicRegion::Identified(countries.to_vec());
    let both = region(&[CountryOnly(250), CountryOnly(276)]);
    assert_eq!(issue_ticket_region_below(both.clone(), region(&[CountryOnly(250)])), Ok(()));
    assert_eq!(issue_ticket_region_below(both.clone(), region(&[CountryAndRegions(250, vec![1])])), Ok(()));
    assert_eq!(issue_ticket_region_below(region(&[CountryOnly(250)]), both.clone()), CHAIN_INCONSISTENT);
    assert_eq!(
        issue_ticket_region_below(region(&[CountryAndRegions(250, vec![1])]), region(&[CountryOnly(250)])),
        CHAIN_INCONSISTENT
    );
    let sub = |subregions| region(&[CountryAndSubregions(250, vec![(1, subregions)])]);
    assert_eq!(issue_ticket_region_below(sub(vec![3, 4]), sub(vec![3])), Ok(()));
    assert_eq!(issue_ticket_region_below(sub(vec![3]), sub(vec![3, 4])), CHAIN_INCONSISTENT);
    // carnet has no map of borders, so it cannot decide whether the country lies in the rectangle.
    assert_eq!(
        issue_ticket_region_below(rectangle_around_home(500.0), region(&[CountryOnly(250)])),
        CHAIN_INCONSISTENT
    );
    assert!(
        both.contains_place(HOME_POSITION, &CountryAndRegion { country: 276, region: None, subregion: None })
    );
    assert!(!both.contains_place(HOME_POSITION, &()));
}

/// The keys in a certificate are compressed points, and the r of its signature is an x coordinate.
#[test]
fn tc_sec_snd_cert_07_01_and_08_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    for certificate in [pki.new_ticket().certificate, pki.authority.clone()] {
        let octets = certificate.octets();
        assert_eq!(octets[octets.len() - 65], 0x80);
        let sec1 = certificate.content().verification_key.to_sec1();
        assert!(matches!(sec1[0], 2 | 3));
    }
}

#[test]
fn tc_sec_snd_cert_aa_01_01_02_01_and_04_01() {
    let pki = TestPki::new(EllipticCurve::NistP256);
    assert_eq!(pki.authority.certificate_role(), CertificateRole::Authority);
    assert!(pki.authority.content().name.as_ref().unwrap().len() <= 32);
    assert!(matches!(pki.authority.issuer(), Issuer::Digest(..)));
}

#[test]
fn tc_sec_snd_cert_aa_06_01() {
    let pki = TestPki::new(EllipticCurve::NistP256);
    let validity = pki.authority.content().validity;
    assert!(validity.first_invalid_time() > validity.start.start_of_second());
}

/// A certificate has each application once, and at most 31 applications.
#[test]
fn tc_sec_snd_cert_aa_08_01_and_at_07_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let receiver = pki.receiver_with(strict_config());
    let verify = |certificate: &Certificate| {
        receiver
            .store()
            .verify_certificate(
                &PortableBackend,
                certificate.clone(),
                now_at_milliseconds(0).certificate_time,
                &COUNTRY_OF_HOME,
            )
            .map(|_| ())
    };
    let usual = carnet_security::pki::test_applications(false);
    assert_eq!(verify(&pki.new_ticket().certificate), Ok(()));
    let twice = [usual.clone(), usual[..1].to_vec()].concat();
    assert_eq!(verify(&pki.new_ticket_for_applications(twice).certificate), CHAIN_INCONSISTENT);
    let others = vec![carnet_security::permissions::PsidSsp { psid: Psid(1_000_000), ssp: None }];
    assert_eq!(verify(&pki.new_ticket_for_applications(others).certificate), CHAIN_INCONSISTENT);
    let many: Vec<_> =
        (0..32).map(|psid| carnet_security::permissions::PsidSsp { psid: Psid(psid), ssp: None }).collect();
    assert!(Certificate::parse(pki.new_ticket_for_applications(many).certificate.octets()).is_err());
}

#[test]
fn tc_sec_snd_cert_at_01_01_02_01_and_03_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let ticket = pki.new_ticket().certificate;
    assert_eq!(ticket.certificate_role(), CertificateRole::Ticket);
    assert!(matches!(ticket.issuer(), Issuer::Digest(..)));
    assert_eq!(ticket.content().name, None);
}

/// A ticket is valid at most until the end of its authority's validity.
#[test]
fn tc_sec_snd_cert_at_05_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let long = pki.new_ticket_with(|mut content| {
        content.validity.duration.unit_count = 600;
        content
    });
    let receiver = pki.receiver_with(strict_config());
    let result = receiver.store().verify_certificate(
        &PortableBackend,
        long.certificate,
        now_at_milliseconds(0).certificate_time,
        &COUNTRY_OF_HOME,
    );
    assert_eq!(result.map(|_| ()), CHAIN_INCONSISTENT);
}

/// A ticket that names another authority as its issuer is rejected.
#[test]
fn tc_sec_snd_cert_at_08_01() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let thief = numbered_key(EllipticCurve::NistP256, 0x44);
    let content = pki.new_ticket().certificate.content().clone();
    let certificate = carnet_security::pki::issue_certificate(
        &PortableBackend,
        thief.as_ref(),
        Some(&pki.authority),
        content,
    )
    .unwrap();
    let receiver = pki.receiver_with(strict_config());
    let result = receiver.store().verify_certificate(
        &PortableBackend,
        certificate,
        now_at_milliseconds(0).certificate_time,
        &COUNTRY_OF_HOME,
    );
    assert_eq!(result.map(|_| ()), Err(SecurityDrop::BadCertificateSignature));
}

/// The assurance level of a ticket is at most that of its authority.
#[test]
fn tc_sec_snd_cert_at_09_01() {
    let mut pki = TestPki::with_authority(EllipticCurve::NistP256, |mut content| {
        content.assurance_level = Some(0x60);
        content
    });
    let receiver = pki.receiver_with(strict_config());
    let mut verify = |assurance| {
        let ticket = pki.new_ticket_with(|mut content| {
            content.assurance_level = assurance;
            content
        });
        receiver
            .store()
            .verify_certificate(
                &PortableBackend,
                ticket.certificate,
                now_at_milliseconds(0).certificate_time,
                &COUNTRY_OF_HOME,
            )
            .map(|_| ())
    };
    assert_eq!(verify(Some(0x60)), Ok(()));
    assert_eq!(verify(None), Ok(()));
    assert_eq!(verify(Some(0x80)), CHAIN_INCONSISTENT);
}

/// After a change of pseudonym, the station does not answer requests for the old ticket.
#[test]
fn change_of_ticket_changes_address_and_signer() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut car = pki.new_car_station();
    let second = car.security.add_own_ticket(now_at_milliseconds(0), pki.new_ticket()).unwrap();
    let first = car.security.current_ticket().unwrap();
    let _ = car.signed_cam(now_at_milliseconds(0));
    assert!(car.security.use_ticket(second));
    let cam = car.signed_cam(now_at_milliseconds(20));
    assert_eq!(name_of_certificate(&PortableBackend, &certificate_in(&cam).unwrap()), second);
    assert_ne!(first, second);
    let later = SecurityTime {
        time: Time::from_secs(100_000),
        certificate_time: now_at_milliseconds(86_400_000).certificate_time,
    };
    car.security.remove_expired_tickets(later);
    assert_eq!(car.security.current_ticket(), None);
}
