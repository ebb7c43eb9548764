//! The strict policy against messages that no station may accept, and against floods.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::Rng;
use carnet_security::config::SecurityConfig;
use carnet_security::crypto::{PortableBackend, signature_input};
use carnet_security::keys::EllipticCurve;
use carnet_security::message::{HeaderInfo, Signer, emit_signed_message, to_be_signed};
use carnet_security::permissions::Psid;
use carnet_security::region::GeographicRegion;
use carnet_security::{HandledFrame, SecurityDrop, SecurityStation, SecurityTime, pki};
use carnet_wire::geonet::BasicHeader;

use crate::support::*;

/// Frames of one kind, and the reasons for which the station may drop them.
struct FrameKind {
    name: &'static str,
    expected_reasons: &'static [SecurityDrop],
    frames: Vec<(SecurityTime, Vec<u8>)>,
}

/// Returns the times of the frames of one kind. Between two kinds there is a pause, in which waiting messages
/// time out.
fn times_of_frames(kind: u64, each: u64) -> impl Iterator<Item = SecurityTime> {
    (0..each).map(move |number| now_at_milliseconds(10_000 + kind * (20 * each + 5_000) + 20 * number))
}

fn invalid_frames_of_each_kind(each: u64) -> (SecurityStation, Vec<FrameKind>) {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut receiver =
        pki.receiver_with(SecurityConfig { verifications_per_second: 1_000_000, ..strict_config() });
    let mut rng = Rng::new(3);
    let mut kinds = Vec::new();
    let mut add = |name, reasons, frames| kinds.push(FrameKind { name, expected_reasons: reasons, frames });

    // Forged frames: an authority that the station does not know issued the certificate.
    let mut others = TestPki::with_authority(EllipticCurve::NistP256, |content| {
        let mut content = content;
        content.name = Some("other".to_owned());
        content
    });
    let mut stranger = others.new_car_station();
    add(
        "another authority",
        &[SecurityDrop::UnknownIssuer],
        times_of_frames(4, each).map(|now| (now, stranger.signed_denm(now))).collect(),
    );

    // Forged frames: a message has the ticket of another station and a signature by the forger's key.
    let victim = pki.new_ticket();
    let thief = numbered_key(EllipticCurve::NistP256, 0x55);
    let station = pki.new_car_station();
    let forge = |now: SecurityTime| {
        let plain = station.plain_cam_packet(now, &example_cam());
        let mut header = HeaderInfo::new(Psid::CAM);
        header.generation_time = Some(now.certificate_time);
        let data = to_be_signed(&plain[BasicHeader::LEN..], &header, &[]);
        let certificate = &victim.certificate;
        let input =
            signature_input(&PortableBackend, EllipticCurve::NistP256.hash(), &data, certificate.octets());
        let signer = Signer::Certificate(Box::new(certificate.clone()));
        let envelope = emit_signed_message(&data, &signer, &thief.sign(&input).unwrap());
        (now, build_secured_packet(&plain, &envelope))
    };
    add("a stolen certificate", &[SecurityDrop::BadSignature], times_of_frames(1, each).map(forge).collect());

    // Forged frames: the ticket names the authority as its issuer, but the ticket's holder signed it.
    let content =
        pki::ticket_content(thief.public_key(), validity_of_a_day(), None, pki::test_applications(true));
    let certificate =
        pki::issue_certificate(&PortableBackend, thief.as_ref(), Some(&pki.authority), content).unwrap();
    let forge = |now: SecurityTime| {
        let plain = station.plain_cam_packet(now, &example_cam());
        let mut header = HeaderInfo::new(Psid::CAM);
        header.generation_time = Some(now.certificate_time);
        let data = to_be_signed(&plain[BasicHeader::LEN..], &header, &[]);
        let input =
            signature_input(&PortableBackend, EllipticCurve::NistP256.hash(), &data, certificate.octets());
        let signer = Signer::Certificate(Box::new(certificate.clone()));
        (
            now,
            build_secured_packet(&plain, &emit_signed_message(&data, &signer, &thief.sign(&input).unwrap())),
        )
    };
    add(
        "a ticket of one's own",
        &[SecurityDrop::BadCertificateSignature],
        times_of_frames(2, each).map(forge).collect(),
    );

    // Frames that were changed in transit: one bit of the CAM is flipped.
    let mut car = pki.new_car_station();
    let changed = times_of_frames(3, each)
        .map(|now| {
            let mut octets = car.signed_cam(now);
            // The octet is within the CAM, behind the GeoNetworking and BTP headers.
            let at = 60 + rng.number_below(20) as usize;
            octets[at] ^= 1 << rng.number_below(8);
            (now, octets)
        })
        .collect();
    let reasons = &[SecurityDrop::BadSignature, SecurityDrop::BadPacket, SecurityDrop::NoServicePermission];
    add("changed on the way", reasons, changed);

    // Replayed frames: messages that the station has already accepted.
    let mut car = pki.new_car_station();
    let mut replayed = Vec::new();
    for now in times_of_frames(0, each) {
        let octets = car.signed_cam(now);
        assert_eq!(receive_packet(&mut receiver, now, &octets).map(|all| all.len()), Ok(1));
        replayed.push((now, octets));
    }
    add("replayed", &[SecurityDrop::Replayed], replayed);

    // Frames that are replayed three seconds later.
    let mut car = pki.new_car_station();
    let old = times_of_frames(5, each).map(|now| {
        (
            SecurityTime {
                certificate_time: now.certificate_time.saturating_add(Duration::from_secs(3)),
                ..now
            },
            car.signed_cam(now),
        )
    });
    add("replayed later", &[SecurityDrop::TooOld], old.collect());

    // Frames of a sender whose clock is five seconds ahead.
    let mut car = pki.new_car_station();
    let ahead = times_of_frames(6, each).map(|now| {
        (
            SecurityTime {
                certificate_time: now.certificate_time.saturating_sub(Duration::from_secs(5)),
                ..now
            },
            car.signed_cam(now),
        )
    });
    add("from the future", &[SecurityDrop::FromTheFuture], ahead.collect());

    // The ticket has expired; the holder's clock is right, but the holder signs nevertheless.
    let over = pki.new_ticket_with(|content| carnet_security::certificate::ToBeSignedCertificate {
        validity: validity_period(Duration::from_secs(7200), 1),
        ..content
    });
    let sign = |now: SecurityTime, ticket: &carnet_security::Ticket| {
        let plain = station.plain_cam_packet(now, &example_cam());
        let mut header = HeaderInfo::new(Psid::CAM);
        header.generation_time = Some(now.certificate_time);
        let data = to_be_signed(&plain[BasicHeader::LEN..], &header, &[]);
        let certificate = &ticket.certificate;
        let input =
            signature_input(&PortableBackend, EllipticCurve::NistP256.hash(), &data, certificate.octets());
        let signer = Signer::Certificate(Box::new(certificate.clone()));
        build_secured_packet(&plain, &emit_signed_message(&data, &signer, &ticket.key.sign(&input).unwrap()))
    };
    add(
        "expired",
        &[SecurityDrop::CertificateExpired],
        times_of_frames(7, each).map(|now| (now, sign(now, &over))).collect(),
    );

    // The sender is outside the region of its ticket.
    let far = GeographicRegion::Circular { center: position_at(20_000.0, 0.0), radius: 5_000 };
    let far = pki.new_ticket_in_region(far);
    add(
        "out of region",
        &[SecurityDrop::OutsideRegion],
        times_of_frames(8, each).map(|now| (now, sign(now, &far))).collect(),
    );

    // The content exceeds the permissions of the ticket: an emergency vehicle.
    let mut car = pki.new_car_station();
    let siren = times_of_frames(9, each)
        .map(|now| {
            let plain = car.plain_denm_packet(now, circle_around_home(500), &example_denm(95));
            (now, car.sign_without_check(now, &plain))
        })
        .collect();
    add("more than allowed", &[SecurityDrop::NoServicePermission], siren);

    // Frames that are truncated at any octet behind the Basic Header.
    let mut car = pki.new_car_station();
    let cut = times_of_frames(10, each)
        .map(|now| {
            let octets = car.signed_denm(now);
            let length = 4 + rng.number_below(octets.len() as u64 - 4) as usize;
            (now, octets[..length].to_vec())
        })
        .collect();
    add("truncated", &[SecurityDrop::Malformed, SecurityDrop::NotInProfile], cut);

    // Unsigned frames.
    add(
        "unsigned",
        &[SecurityDrop::Unsecured],
        times_of_frames(11, each).map(|now| (now, station.plain_cam_packet(now, &example_cam()))).collect(),
    );
    // Sort the kinds by the time of their first frame.
    kinds.sort_by_key(|kind| kind.frames.first().map(|(now, _)| now.time));
    (receiver, kinds)
}

fn build_secured_packet(plain: &[u8], envelope: &[u8]) -> Vec<u8> {
    let mut octets = plain[..BasicHeader::LEN].to_vec();
    octets[0] = octets[0] & 0xf0 | 2;
    octets.extend_from_slice(envelope);
    octets
}

/// The station accepts no frame of any kind, and drops each frame for a reason of its kind. Each kind has
/// `each` frames.
fn assert_no_frame_is_accepted(each: u64) {
    let (mut receiver, kinds) = invalid_frames_of_each_kind(each);
    let before = receiver.counters().verified_packets;
    for kind in kinds {
        let counts = drop_counts(&receiver);
        for (now, octets) in &kind.frames {
            if let Ok(all) = receive_packet(&mut receiver, *now, octets) {
                assert!(all.is_empty(), "{}: believed", kind.name);
            }
        }
        // A message is dropped if its certificate does not arrive.
        let (last, _) = kind.frames.last().unwrap();
        assert!(
            receiver
                .poll_verified(SecurityTime { time: last.time + Duration::from_secs(2), ..*last })
                .is_none()
        );
        let died = drop_counts(&receiver).into_iter().zip(counts).map(|(after, before)| after - before);
        let counts: BTreeMap<_, _> =
            SecurityDrop::ALL.iter().copied().zip(died).filter(|(_, count)| *count > 0).collect();
        println!("{}: {counts:?}", kind.name);
        for reason in counts.keys() {
            assert!(kind.expected_reasons.contains(reason), "{}: {counts:?}", kind.name);
        }
        assert_eq!(counts.values().sum::<u64>(), kind.frames.len() as u64, "{}", kind.name);
    }
    let counters = receiver.counters();
    assert_eq!(counters.verified_packets, before);
    let dropped: u64 = counters.dropped_by_reason().map(|(_, count)| count).sum();
    println!("{dropped} dropped: {:?}", counters.dropped_by_reason().collect::<Vec<_>>());
}

#[test]
fn receiver_rejects_forged_replayed_expired_and_truncated_messages() {
    assert_no_frame_is_accepted(60);
}

#[test]
#[ignore = "10,080 messages: make security"]
fn receiver_rejects_ten_thousand_mutated_messages() {
    assert_no_frame_is_accepted(840);
}

/// A flood of plausible certificates costs no more than the permitted verifications, and the station verifies
/// the warning for this area first.
#[test]
fn flood_costs_at_most_the_permitted_verifications() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let config = SecurityConfig { verifications_per_second: 100, ..strict_config() };
    let mut receiver = pki.receiver_with(config);
    let mut warner = pki.new_car_station();
    let template = pki.new_car_station().signed_cam(now_at_milliseconds(0));
    let mut rng = Rng::new(5);
    let mut believed = Vec::new();
    for millisecond in 0..1_000_u64 {
        let now = now_at_milliseconds(millisecond);
        // Send ten frames per millisecond, each with another signer: the certificate's key differs in a bit.
        for _ in 0..10 {
            let mut octets = template.clone();
            let at = octets.len() - 100 - rng.number_below(30) as usize;
            octets[at] ^= 1 + rng.number_below(255) as u8;
            let _ = receiver.handle_frame(now, frame_of_packet(&octets));
        }
        if millisecond == 500 {
            let octets = warner.signed_denm(now);
            assert_eq!(receiver.handle_frame(now, frame_of_packet(&octets)), Ok(HandledFrame::Queued));
        }
        believed.extend(
            std::iter::from_fn(|| receiver.poll_verified(now)).map(|verified| (millisecond, verified)),
        );
    }
    let counters = receiver.counters();
    assert!(counters.verified_signatures <= 120, "{}", counters.verified_signatures);
    assert!(counters.dropped(SecurityDrop::QueueOverflow) > 5_000);
    assert!(receiver.waiting_messages().0 <= receiver.config().max_queued);
    let [(when, warning)] = believed.as_slice() else { panic!("{believed:?}") };
    assert_eq!(warning.psid, Psid::DENM);
    assert!((500..530).contains(when), "{when}");
}
