//! A station whose clock is wrong at the start and right later.

use std::time::Duration;

use carnet_base::Rng;
use carnet_security::credentials::Credentials;
use carnet_security::crypto::PortableBackend;
use carnet_security::keys::EllipticCurve;
use carnet_security::{SecurityDrop, SecurityStation, SecurityTime};

use crate::support::*;

const ONE_YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns the date `count` years after the day of the tests.
fn now_after_years(count: i32) -> SecurityTime {
    let span = ONE_YEAR * count.unsigned_abs();
    let today = now_at_milliseconds(0);
    let date = if count < 0 {
        today.certificate_time.saturating_sub(span)
    } else {
        today.certificate_time.saturating_add(span)
    };
    SecurityTime { certificate_time: date, ..today }
}

/// Returns a station that got the certificates of root and authority at this date.
fn receiver_started_at(pki: &TestPki, now: SecurityTime) -> SecurityStation {
    let mut security = SecurityStation::new(
        strict_config(),
        Box::new(PortableBackend),
        Box::new(COUNTRY_OF_HOME),
        Rng::new(7),
    );
    let credentials = Credentials {
        root_certificates: vec![pki.root.clone()],
        authorities: vec![pki.authority.clone()],
        ..Credentials::default()
    };
    assert_eq!(credentials.add_credentials(&mut security, &PortableBackend, now), []);
    security.handle_position(HOME_POSITION, 4096);
    security
}

fn accepts_frame(security: &mut SecurityStation, now: SecurityTime, frame: &[u8]) -> bool {
    receive_packet(security, now, frame).is_ok_and(|verified| !verified.is_empty())
}

#[test]
fn authority_added_with_wrong_clock_is_accepted_after_correction() {
    for given in [-10, 0, 10] {
        let mut pki = TestPki::new(EllipticCurve::NistP256);
        let mut car = pki.new_car_station();
        let frame = car.signed_beacon(now_at_milliseconds(0));
        let mut receiver = receiver_started_at(&pki, now_after_years(given));
        assert!(!accepts_frame(&mut receiver, now_after_years(10), &frame), "it holds no more");
        let frame = car.signed_beacon(now_at_milliseconds(1000));
        assert!(accepts_frame(&mut receiver, now_at_milliseconds(1000), &frame), "given {given} years after");
    }
}

#[test]
fn ticket_added_with_clock_ahead_signs_after_correction() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    // `car` only gives the link-layer address and the packets: the test replaces its security entity below.
    let mut car = pki.new_car_station();
    let mut late = receiver_started_at(&pki, now_after_years(10));
    let ticket = pki.new_ticket();
    assert_eq!(late.add_own_ticket(now_after_years(10), ticket), Err(SecurityDrop::CertificateExpired));
    assert!(late.max_envelope_octets() > 100, "room for it is left");
    late.handle_address(car.mid);
    car.security = late;
    let plain = car.plain_beacon_packet(now_after_years(10));
    assert_eq!(car.security.secure_packet(now_after_years(10), &plain), Err(SecurityDrop::NoTicket));
    assert!(!car.security.replace_invalid_ticket(now_after_years(5)));
    let plain = car.plain_beacon_packet(now_at_milliseconds(0));
    let signed = car.security.secure_packet(now_at_milliseconds(0), &plain).expect("it holds now");
    assert_ne!(signed, plain);
    assert_eq!(car.security.own_tickets(now_at_milliseconds(0)).len(), 1);
    let mut other = receiver_started_at(&pki, now_at_milliseconds(0));
    assert!(accepts_frame(&mut other, now_at_milliseconds(10), &signed));
    // While the clock is ten years ahead, the ticket counts as expired, so the station does not sign.
    assert_eq!(car.security.secure_packet(now_after_years(10), &plain), Err(SecurityDrop::NoTicket));
}

#[test]
fn invalid_ticket_does_not_sign_after_clock_correction() {
    let (mut pki, mut others) = (
        TestPki::new(EllipticCurve::NistP256),
        TestPki::with_authority(EllipticCurve::NistP256, |mut content| {
            content.assurance_level = Some(0x60);
            content
        }),
    );
    let _ = pki.new_ticket();
    let mut late = receiver_started_at(&pki, now_after_years(10));
    assert_eq!(
        late.add_own_ticket(now_after_years(10), others.new_ticket()),
        Err(SecurityDrop::CertificateExpired)
    );
    assert!(!late.replace_invalid_ticket(now_at_milliseconds(0)));
    assert_eq!(late.own_tickets(now_at_milliseconds(0)), []);
}
