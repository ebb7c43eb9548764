//! Test purposes of TS 103 096 for reception, with the ids of the 2015 suite. Where a purpose changes a
//! header field of the old encoding, the test changes the field that replaced it. The table in
//! docs/security.md lists the purposes whose field has no replacement.

use carnet_security::certificate::{Certificate, ToBeSignedCertificate};
use carnet_security::config::{SecurityConfig, SecurityPolicy};
use carnet_security::crypto::{PortableBackend, SigningKey, signature_input};
use carnet_security::keys::EllipticCurve;
use carnet_security::message::{HeaderInfo, Signer, ThreeDLocation, emit_signed_message, to_be_signed};
use carnet_security::permissions::{Psid, PsidSsp, Ssp};
use carnet_security::region::{GeographicRegion, IdentifiedRegion};
use carnet_security::{HandledFrame, SecurityDrop, SecurityTime, Ticket, pki};
use carnet_wire::geonet::BasicHeader;

use crate::support::*;

/// A message that may contain faults that no carnet station makes.
struct FaultyMessage<'a> {
    plain_packet: Vec<u8>,
    header: HeaderInfo<'static>,
    signer: Signer,
    signing_key: &'a dyn SigningKey,
    certificate: Certificate,
}

impl<'a> FaultyMessage<'a> {
    /// Returns a valid CAM with its certificate.
    fn valid_cam(station: &TestStation, now: SecurityTime, ticket: &'a Ticket) -> FaultyMessage<'a> {
        let mut header = HeaderInfo::new(Psid::CAM);
        header.generation_time = Some(now.certificate_time);
        FaultyMessage {
            plain_packet: station.plain_cam_packet(now, &example_cam()),
            header,
            signer: Signer::Certificate(Box::new(ticket.certificate.clone())),
            signing_key: ticket.key.as_ref(),
            certificate: ticket.certificate.clone(),
        }
    }

    /// Returns a valid DENM.
    fn valid_denm(station: &mut TestStation, now: SecurityTime, ticket: &'a Ticket) -> FaultyMessage<'a> {
        let mut odd = FaultyMessage::valid_cam(station, now, ticket);
        odd.header.psid = Psid::DENM;
        odd.header.generation_location = Some(ThreeDLocation { position: station.position, elevation: 4096 });
        odd.plain_packet = station.plain_denm_packet(now, circle_around_home(500), &example_denm(91));
        odd
    }

    fn signed_data(&self) -> Vec<u8> {
        to_be_signed(&self.plain_packet[BasicHeader::LEN..], &self.header, &[])
    }

    fn encode(&self) -> Vec<u8> {
        self.build_envelope_around(&self.signed_data())
    }

    /// Returns an envelope that contains the given ToBeSignedData.
    fn build_envelope_around(&self, data: &[u8]) -> Vec<u8> {
        let algorithm = self.certificate.hash_algorithm();
        let input = signature_input(&PortableBackend, algorithm, data, self.certificate.octets());
        self.secured_frame(&emit_signed_message(data, &self.signer, &self.signing_key.sign(&input).unwrap()))
    }

    fn secured_frame(&self, envelope: &[u8]) -> Vec<u8> {
        let mut octets = self.plain_packet[..BasicHeader::LEN].to_vec();
        octets[0] = octets[0] & 0xf0 | 2;
        octets.extend_from_slice(envelope);
        octets
    }
}

/// Returns a receiver, a sender, and a ticket of the sender.
fn receiver_sender_and_ticket() -> (carnet_security::SecurityStation, TestStation, Ticket) {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    (pki.receiver_with(strict_config()), pki.new_car_station(), pki.new_ticket())
}

/// Returns the receiver's result for a CAM that `change` has changed before signing.
fn receive_changed_cam(change: impl FnOnce(&mut FaultyMessage<'_>)) -> Result<usize, SecurityDrop> {
    let (mut receiver, station, ticket) = receiver_sender_and_ticket();
    let mut odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    change(&mut odd);
    receive_packet(&mut receiver, now_at_milliseconds(0), &odd.encode()).map(|all| all.len())
}

/// Returns the receiver's result for a DENM that `change` has changed before signing.
fn receive_changed_denm(change: impl FnOnce(&mut FaultyMessage<'_>)) -> Result<usize, SecurityDrop> {
    let (mut receiver, mut station, ticket) = receiver_sender_and_ticket();
    let mut odd = FaultyMessage::valid_denm(&mut station, now_at_milliseconds(0), &ticket);
    change(&mut odd);
    receive_packet(&mut receiver, now_at_milliseconds(0), &odd.encode()).map(|all| all.len())
}

/// Returns the receiver's result for a CAM whose octets `change` has changed after signing; offsets start at
/// the envelope.
fn receive_with_changed_octets(change: impl FnOnce(&mut Vec<u8>)) -> Result<usize, SecurityDrop> {
    let (mut receiver, station, ticket) = receiver_sender_and_ticket();
    let odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    let mut envelope = odd.encode()[BasicHeader::LEN..].to_vec();
    change(&mut envelope);
    receive_packet(&mut receiver, now_at_milliseconds(0), &odd.secured_frame(&envelope)).map(|all| all.len())
}

/// The receiver accepts a CAM with the certificate.
#[test]
fn tc_sec_itss_rcv_cam_01_01_bv() {
    for curve in EllipticCurve::ALL {
        let mut pki = TestPki::new(curve);
        let (mut receiver, mut car) = (pki.receiver_with(strict_config()), pki.new_car_station());
        let plain = car.plain_cam_packet(now_at_milliseconds(0), &example_cam());
        let all =
            receive_packet(&mut receiver, now_at_milliseconds(0), &car.signed_cam(now_at_milliseconds(0)))
                .unwrap();
        // The router gets the packets exactly as their source made them.
        assert_eq!(all.iter().map(|verified| verified.packet.clone()).collect::<Vec<_>>(), [plain]);
        assert_eq!(
            (all[0].psid, Some(all[0].signer)),
            (Psid::CAM, car.security.current_ticket()),
            "{curve:?}"
        );
    }
}

/// The receiver accepts a CAM that names a known certificate by its digest. A CAM with an unknown digest
/// waits for the certificate.
#[test]
fn tc_sec_itss_rcv_cam_01_02_bv() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut receiver, mut car) = (pki.receiver_with(strict_config()), pki.new_car_station());
    let (first, second, third) = (
        car.signed_cam(now_at_milliseconds(0)),
        car.signed_cam(now_at_milliseconds(100)),
        car.signed_cam(now_at_milliseconds(200)),
    );
    assert_eq!(receive_packet(&mut receiver, now_at_milliseconds(100), &second), Ok(Vec::new()));
    // When the certificate arrives, the receiver also delivers the message that waited for it.
    let all = receive_packet(&mut receiver, now_at_milliseconds(110), &first).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(receive_packet(&mut receiver, now_at_milliseconds(200), &third).unwrap().len(), 1);
    // The receiver drops a message whose certificate does not arrive.
    let (_, lost) = {
        let mut other = pki.new_car_station();
        (other.signed_cam(now_at_milliseconds(300)), other.signed_cam(now_at_milliseconds(310)))
    };
    assert_eq!(receive_packet(&mut receiver, now_at_milliseconds(310), &lost), Ok(Vec::new()));
    assert!(receiver.poll_verified(now_at_milliseconds(1_600)).is_none());
    assert_eq!(receiver.counters().dropped(SecurityDrop::UnknownSigner), 1);
}

/// The signer field holds a certificate chain. The test purpose accepts it, but TS 103 097 V1.3.1 5.2 permits
/// exactly one certificate, so the receiver rejects it.
#[test]
fn tc_sec_itss_rcv_cam_01_03_bv() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut receiver, station, ticket) =
        (pki.receiver_with(strict_config()), pki.new_car_station(), pki.new_ticket());
    let odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    let octets = odd.encode();
    let signer = [&[0x81, 1, 1], ticket.certificate.octets()].concat();
    let from = octets.windows(signer.len()).position(|part| part == signer).unwrap();
    let chain = [
        &octets[..from],
        &[0x81, 1, 2],
        ticket.certificate.octets(),
        pki.authority.octets(),
        &octets[from + signer.len()..],
    ];
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &chain.concat()),
        Err(SecurityDrop::Malformed)
    );
}

/// The receiver rejects versions below and above 3.
#[test]
fn tc_sec_itss_rcv_cam_02_01_bo_and_02_02_bo() {
    for version in [0, 1, 2, 4, 255] {
        assert_eq!(
            receive_with_changed_octets(|envelope| envelope[0] = version),
            Err(SecurityDrop::WrongVersion)
        );
    }
}

/// The receiver rejects a message without signer. (The format cannot express more than one signer, 04_01.)
#[test]
fn tc_sec_itss_rcv_cam_04_02_bo() {
    assert_eq!(receive_changed_cam(|odd| odd.signer = Signer::Itself), Err(SecurityDrop::SelfSigned));
}

/// The receiver rejects a message without generation time.
#[test]
fn tc_sec_itss_rcv_cam_04_04_bo() {
    assert_eq!(
        receive_changed_cam(|odd| odd.header.generation_time = None),
        Err(SecurityDrop::NoGenerationTime)
    );
}

/// The receiver ignores additions of other releases. The ETSI test purposes test this with the standard
/// deviation of the time.
#[test]
fn tc_sec_itss_rcv_cam_04_08_bo_and_04_09_bo() {
    let (mut receiver, station, ticket) = receiver_sender_and_ticket();
    let odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    let mut data = odd.signed_data();
    // The preamble of the header follows the payload. Set the preamble's bit for an addition, here
    // pduFunctionalType.
    let header = data.len() - (1 + 2 + 8);
    assert_eq!(data[header..header + 3], [0x40, 1, 36]);
    data[header] |= 0x80;
    data.extend_from_slice(&[2, 4, 0x20, 1, 1]);
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &odd.build_envelope_around(&data))
            .map(|all| all.len()),
        Ok(1)
    );
}

/// The receiver rejects a CAM with another application.
#[test]
fn tc_sec_itss_rcv_cam_07_01_bo() {
    for psid in [Psid::DENM, Psid::GN_MGMT, Psid(1_000_000)] {
        assert_eq!(receive_changed_cam(|odd| odd.header.psid = psid), Err(SecurityDrop::WrongApplication));
    }
}

/// The receiver rejects an empty payload.
#[test]
fn tc_sec_itss_rcv_cam_09_02_bo() {
    assert_eq!(
        receive_changed_cam(|odd| odd.plain_packet.truncate(BasicHeader::LEN)),
        Err(SecurityDrop::EmptyPayload)
    );
}

/// The receiver rejects unsecured data in an envelope.
#[test]
fn tc_sec_itss_rcv_cam_09_03_bo() {
    let (mut receiver, station, ticket) = receiver_sender_and_ticket();
    let odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    let inside = &odd.plain_packet[BasicHeader::LEN..];
    let envelope = [&[3, 0x80, inside.len() as u8], inside].concat();
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &odd.secured_frame(&envelope)),
        Err(SecurityDrop::UnsecuredEnvelope)
    );
    // The receiver also rejects the packet without an envelope.
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &odd.plain_packet),
        Err(SecurityDrop::Unsecured)
    );
}

/// The receiver rejects encrypted data.
#[test]
fn tc_sec_itss_rcv_cam_09_04_bo() {
    assert_eq!(receive_with_changed_octets(|envelope| envelope[1] = 0x82), Err(SecurityDrop::Encrypted));
}

/// The receiver rejects a payload outside the message.
#[test]
fn tc_sec_itss_rcv_cam_09_05_bo() {
    let (mut receiver, station, ticket) = receiver_sender_and_ticket();
    let odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    let data = odd.signed_data();
    let header = &data[data.len() - (1 + 2 + 8)..];
    let external = [&[0x20, 0x80], [7; 32].as_slice(), header].concat();
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &odd.build_envelope_around(&external)),
        Err(SecurityDrop::ExternalPayload)
    );
}

/// The receiver rejects a signed or encrypted message inside a signed one.
#[test]
fn tc_sec_itss_rcv_cam_09_06_bo() {
    for inner in [0x81, 0x82] {
        // The payload of the outer message is an envelope; set the tag of its content to signed or encrypted.
        assert_eq!(
            receive_with_changed_octets(|envelope| {
                assert_eq!(envelope[3..6], [0x40, 3, 0x80]);
                envelope[5] = inner;
            }),
            Err(SecurityDrop::NotInProfile)
        );
    }
}

/// The receiver rejects a message without a signature. It ignores a second signature after the first.
#[test]
fn tc_sec_itss_rcv_cam_10_01_bo_and_10_02_bo() {
    assert_eq!(
        receive_with_changed_octets(|envelope| envelope.truncate(envelope.len() - 66)),
        Err(SecurityDrop::Malformed)
    );
    // Octets after the signature are not part of the message: a link may leave any octets after a frame.
    assert_eq!(
        receive_with_changed_octets(|envelope| envelope.extend_from_within(envelope.len() - 66..)),
        Ok(1)
    );
}

/// The receiver rejects a signature whose key is not that of the certificate in the message.
#[test]
fn tc_sec_itss_rcv_cam_11_01_bo() {
    let thief = numbered_key(EllipticCurve::NistP256, 0x33);
    let (mut receiver, station, ticket) = receiver_sender_and_ticket();
    let odd = FaultyMessage {
        signing_key: thief.as_ref(),
        ..FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket)
    };
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &odd.encode()),
        Err(SecurityDrop::BadSignature)
    );
}

/// The receiver rejects a signature whose key is not that of the certificate that the digest names.
#[test]
fn tc_sec_itss_rcv_cam_11_02_bo() {
    let (mut receiver, mut station, ticket) = receiver_sender_and_ticket();
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &station.signed_cam(now_at_milliseconds(0)))
            .unwrap()
            .len(),
        1
    );
    let mut odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(10), &ticket);
    odd.signer = Signer::Digest(station.security.current_ticket().unwrap());
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(10), &odd.encode()),
        Err(SecurityDrop::BadSignature)
    );
}

/// Returns the receiver's result for a CAM signed with a certificate of this content, which is not a ticket.
fn receive_cam_with_certificate_content(
    content: impl FnOnce(&dyn SigningKey) -> ToBeSignedCertificate,
) -> Result<usize, SecurityDrop> {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut receiver, station) = (pki.receiver_with(strict_config()), pki.new_car_station());
    let key = numbered_key(EllipticCurve::NistP256, 0x66);
    let content = content(key.as_ref());
    let certificate =
        pki::issue_certificate(&PortableBackend, pki.authority_key.as_ref(), Some(&pki.authority), content)
            .unwrap();
    let ticket = Ticket { certificate, key };
    let odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    receive_packet(&mut receiver, now_at_milliseconds(0), &odd.encode()).map(|all| all.len())
}

/// The receiver rejects an enrolment credential as signer.
#[test]
fn tc_sec_itss_rcv_cam_12_01_bo() {
    let enrolment = |key: &dyn SigningKey| {
        let request = PsidSsp { psid: Psid::CERTIFICATE_REQUEST, ssp: Some(Ssp::Bitmap(vec![1, 0xc0])) };
        ToBeSignedCertificate {
            name: Some("station".to_owned()),
            ..pki::ticket_content(key.public_key(), validity_of_a_day(), None, vec![request])
        }
    };
    assert_eq!(receive_cam_with_certificate_content(enrolment), Err(SecurityDrop::WrongRole));
}

/// The receiver rejects an authority as signer.
#[test]
fn tc_sec_itss_rcv_cam_12_02_bo() {
    let authority = |key: &dyn SigningKey| {
        pki::authority_certificate_content("aa", key.public_key(), validity_of_a_day(), None)
    };
    assert_eq!(receive_cam_with_certificate_content(authority), Err(SecurityDrop::WrongRole));
}

/// The receiver rejects a CAM whose header has a field outside the profile.
#[test]
fn receiver_rejects_cam_with_generation_location_or_expiry() {
    let place = ThreeDLocation { position: HOME_POSITION, elevation: 4096 };
    assert_eq!(
        receive_changed_cam(|odd| odd.header.generation_location = Some(place)),
        Err(SecurityDrop::UnexpectedHeader)
    );
    assert_eq!(
        receive_changed_cam(|odd| {
            odd.header.expiry_time = Some(now_at_milliseconds(10_000).certificate_time);
        }),
        Err(SecurityDrop::UnexpectedHeader)
    );
}

/// Returns one region of each shape that the ETSI test purposes name: circle, rectangle, polygon, country.
fn regions_of_purposes() -> [GeographicRegion; 4] {
    let square = |half: f64| {
        vec![
            position_at(-half, -half),
            position_at(-half, half),
            position_at(half, half),
            position_at(half, -half),
        ]
    };
    [
        GeographicRegion::Circular { center: HOME_POSITION, radius: 500 },
        GeographicRegion::Rectangular(vec![(position_at(-500.0, 500.0), position_at(500.0, -500.0))]),
        GeographicRegion::Polygonal(square(500.0)),
        GeographicRegion::Identified(vec![IdentifiedRegion::CountryOnly(250)]),
    ]
}

#[test]
fn tc_sec_itss_rcv_denm_01_01_bv() {
    assert_eq!(receive_changed_denm(|_| {}), Ok(1));
}

#[test]
fn tc_sec_itss_rcv_denm_01_02_bv_to_01_05_bv() {
    for region in regions_of_purposes() {
        let mut pki = TestPki::new(EllipticCurve::NistP256);
        let ticket = pki.new_ticket_in_region(region.clone());
        let (mut receiver, mut car) = (pki.receiver_with(strict_config()), pki.station_with(ticket));
        assert_eq!(
            receive_packet(&mut receiver, now_at_milliseconds(0), &car.signed_denm(now_at_milliseconds(0)))
                .map(|all| all.len()),
            Ok(1),
            "{region:?}"
        );
    }
}

#[test]
fn tc_sec_itss_rcv_denm_02_01_bo_and_02_02_bo() {
    let (mut receiver, mut station, ticket) = receiver_sender_and_ticket();
    let octets = FaultyMessage::valid_denm(&mut station, now_at_milliseconds(0), &ticket).encode();
    for version in [2, 4] {
        let mut octets = octets.clone();
        octets[BasicHeader::LEN] = version;
        assert_eq!(
            receive_packet(&mut receiver, now_at_milliseconds(0), &octets),
            Err(SecurityDrop::WrongVersion)
        );
    }
}

#[test]
fn tc_sec_itss_rcv_denm_07_01_bo() {
    assert_eq!(receive_changed_denm(|odd| odd.header.psid = Psid::CAM), Err(SecurityDrop::WrongApplication));
    assert_eq!(
        receive_changed_denm(|odd| odd.header.psid = Psid::GN_MGMT),
        Err(SecurityDrop::WrongApplication)
    );
}

/// The receiver rejects a DENM made outside the region of its ticket, for each shape.
#[test]
fn tc_sec_itss_rcv_denm_08_01_bo_to_08_04_bo() {
    for region in regions_of_purposes() {
        let mut pki = TestPki::new(EllipticCurve::NistP256);
        let region = match region {
            // The region is another country.
            GeographicRegion::Identified(_) => {
                GeographicRegion::Identified(vec![IdentifiedRegion::CountryOnly(276)])
            }
            other => other,
        };
        let ticket = pki.new_ticket_in_region(region.clone());
        let (mut receiver, mut station) = (pki.receiver_with(strict_config()), pki.new_car_station());
        station.position = position_at(800.0, 0.0);
        let octets = FaultyMessage::valid_denm(&mut station, now_at_milliseconds(0), &ticket).encode();
        assert_eq!(
            receive_packet(&mut receiver, now_at_milliseconds(0), &octets),
            Err(SecurityDrop::OutsideRegion),
            "{region:?}"
        );
    }
}

/// The receiver checks the profile of DENM: a generation location and the certificate are required.
#[test]
fn receiver_rejects_denm_without_location_or_certificate() {
    assert_eq!(
        receive_changed_denm(|odd| odd.header.generation_location = None),
        Err(SecurityDrop::NoGenerationLocation)
    );
    let unknown = carnet_geonet::geodesy::Position::new(900_000_001, 1_800_000_001);
    let unknown = ThreeDLocation { position: unknown, elevation: 4096 };
    assert_eq!(
        receive_changed_denm(|odd| odd.header.generation_location = Some(unknown)),
        Err(SecurityDrop::NoGenerationLocation)
    );
    assert_eq!(
        receive_changed_denm(|odd| odd.signer = Signer::Digest(carnet_security::ids::HashedId8([1; 8]))),
        Err(SecurityDrop::NoCertificate)
    );
}

/// The receiver rejects a DENM that has expired, one from the future, and one whose generation location is
/// far from the packet's source.
#[test]
fn receiver_rejects_denm_with_impossible_time_or_position() {
    assert_eq!(
        receive_changed_denm(|odd| odd.header.expiry_time = Some(now_at_milliseconds(0).certificate_time)),
        Err(SecurityDrop::Expired)
    );
    assert_eq!(
        receive_changed_denm(|odd| odd.header.expiry_time = Some(now_at_milliseconds(1).certificate_time)),
        Ok(1)
    );
    let far = ThreeDLocation { position: position_at(6_000.0, 0.0), elevation: 4096 };
    assert_eq!(
        receive_changed_denm(|odd| odd.header.generation_location = Some(far)),
        Err(SecurityDrop::ImplausiblePosition)
    );
    let (mut receiver, mut station, ticket) = receiver_sender_and_ticket();
    station.position = position_at(6_000.0, 0.0);
    let odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &odd.encode()),
        Err(SecurityDrop::TooFarAway)
    );
    station.position = HOME_POSITION;
    // The time of the packet's position is ten minutes later than the generation time in the signed header.
    let plain = station.plain_cam_packet(now_at_milliseconds(600_000), &example_cam());
    let odd = FaultyMessage {
        plain_packet: plain,
        ..FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket)
    };
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &odd.encode()),
        Err(SecurityDrop::ImplausibleTime)
    );
}

/// Service specific permissions, bit by bit: the certificate must have the bit of the cause.
#[test]
fn each_cause_code_needs_its_ssp_bit() {
    const CAUSE_CODES: [u8; 24] =
        [1, 2, 3, 6, 9, 10, 11, 12, 14, 15, 17, 18, 19, 26, 27, 91, 92, 93, 94, 95, 96, 97, 98, 99];
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut receiver = pki.receiver_with(strict_config());
    for (number, cause) in CAUSE_CODES.into_iter().enumerate() {
        let mut bits = [1, 0xff, 0xff, 0xff];
        bits[1 + number / 8] &= !(0x80 >> (number % 8));
        let all = vec![PsidSsp { psid: Psid::DENM, ssp: Some(Ssp::Bitmap(bits.to_vec())) }];
        let ticket = pki.new_ticket_for_applications(all);
        let mut car = pki.station_with(ticket);
        let now = now_at_milliseconds(10 * number as u64);
        let plain = car.plain_denm_packet(now, circle_around_home(500), &example_denm(cause));
        // The station refuses to sign content that its own ticket does not permit.
        assert_eq!(car.security.secure_packet(now, &plain), Err(SecurityDrop::NoTicket), "cause {cause}");
        let octets = car.sign_without_check(now, &plain);
        assert_eq!(
            receive_packet(&mut receiver, now, &octets),
            Err(SecurityDrop::NoServicePermission),
            "cause {cause}"
        );
        let other = CAUSE_CODES[(number + 1) % 24];
        let plain = car.plain_denm_packet(now, circle_around_home(500), &example_denm(other));
        let octets = car.security.secure_packet(now, &plain).unwrap();
        assert_eq!(receive_packet(&mut receiver, now, &octets).map(|all| all.len()), Ok(1), "cause {other}");
    }
}

/// The receiver rejects a message of an application that the ticket lacks.
#[test]
fn ticket_without_permission_for_an_application_signs_none_of_its_messages() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let denm_only = pki::test_applications(false)[1..2].to_vec();
    let ticket = pki.new_ticket_for_applications(denm_only);
    let (mut receiver, station) = (pki.receiver_with(strict_config()), pki.new_car_station());
    let odd = FaultyMessage::valid_cam(&station, now_at_milliseconds(0), &ticket);
    assert_eq!(
        receive_packet(&mut receiver, now_at_milliseconds(0), &odd.encode()),
        Err(SecurityDrop::NoPermission)
    );
}

/// The station ignores octets that follow the envelope in a frame, and does not forward them.
#[test]
fn octets_after_the_envelope_are_ignored() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut source, mut forwarder) = (pki.new_car_station(), pki.new_car_station());
    for (number, behind) in [1, 4, 60].into_iter().enumerate() {
        let now = now_at_milliseconds(10 * number as u64);
        let denm = source.signed_denm(now);
        let longer = [&denm[..], &vec![0xa5; behind]].concat();
        let verified = receive_packet(&mut forwarder.security, now, &longer).unwrap();
        assert_eq!(verified.len(), 1, "{behind}");
        let passed_on = forwarder.security.secure_packet(now, &verified[0].packet).unwrap();
        assert_eq!(passed_on, denm, "{behind}");
    }
}

/// A station that accepts unsigned packets still refuses packets with a wrong signature.
#[test]
fn each_policy_accepts_or_rejects_unsigned_packets() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut car = pki.new_car_station();
    let plain = car.plain_cam_packet(now_at_milliseconds(0), &example_cam());
    let good = car.signed_cam(now_at_milliseconds(0));
    let mut bad = car.signed_cam(now_at_milliseconds(10));
    let last = bad.len() - 1;
    bad[last] ^= 1;
    let try_all = |policy| {
        let mut receiver = pki.receiver_with(SecurityConfig { policy, ..SecurityConfig::default() });
        receive_packet(&mut receiver, now_at_milliseconds(0), &good).unwrap();
        [&plain, &good, &bad].map(|octets| {
            match receiver.handle_frame(now_at_milliseconds(20), frame_of_packet(octets)) {
                Ok(HandledFrame::Plain) => Ok("plain"),
                Ok(HandledFrame::Ready(_)) => Ok("ready"),
                Ok(HandledFrame::Queued) => match receiver.poll_verified(now_at_milliseconds(20)) {
                    Some(_) => Ok("verified"),
                    None => Ok("not believed"),
                },
                Err(reason) => Err(reason),
            }
        })
    };
    use SecurityDrop::{Replayed, Unsecured};
    assert_eq!(try_all(SecurityPolicy::Off), [Ok("plain"), Ok("plain"), Ok("plain")]);
    assert_eq!(try_all(SecurityPolicy::AcceptUnsigned), [Ok("plain"), Err(Replayed), Ok("not believed")]);
    assert_eq!(try_all(SecurityPolicy::Strict), [Err(Unsecured), Err(Replayed), Ok("not believed")]);
}

/// A forwarder sends the envelope of the source with the router's changes to the Basic Header. Received
/// copies cost no verification.
#[test]
fn forwarder_keeps_the_envelope_that_the_source_signed() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let (mut source, mut forwarder, mut receiver) =
        (pki.new_car_station(), pki.new_car_station(), pki.receiver_with(strict_config()));
    let denm = source.signed_denm(now_at_milliseconds(0));
    let mut opened =
        receive_packet(&mut forwarder.security, now_at_milliseconds(5), &denm).unwrap().remove(0).packet;
    carnet_wire::geonet::set_remaining_hop_limit(&mut opened, 9).unwrap();
    let passed_on = forwarder.security.secure_packet(now_at_milliseconds(10), &opened).unwrap();
    assert_eq!(passed_on[3], 9);
    assert_eq!(passed_on[BasicHeader::LEN..], denm[BasicHeader::LEN..]);
    assert_eq!(receive_packet(&mut receiver, now_at_milliseconds(20), &passed_on).unwrap().len(), 1);
    let verifications = receiver.counters().verified_signatures;
    assert!(matches!(
        receiver.handle_frame(now_at_milliseconds(25), frame_of_packet(&denm)),
        Ok(HandledFrame::Ready(_))
    ));
    assert_eq!(
        (receiver.counters().verified_signatures, receiver.counters().accepted_copies),
        (verifications, 1)
    );
    // The station does not forward an unsigned packet.
    let stranger =
        source.plain_denm_packet(now_at_milliseconds(30), circle_around_home(500), &example_denm(91));
    assert_eq!(
        forwarder.security.secure_packet(now_at_milliseconds(30), &stranger),
        Err(SecurityDrop::EnvelopeForgotten)
    );
}
