//! The crate `geonetworking` 0.4.2 as independent check: it parses carnet's messages, and verifies the
//! signatures by its own computation of the hash.

use carnet_security::keys::EllipticCurve;
use geonetworking::{Decode, Packet, Validate, ValidationResult};

use crate::support::{TestPki, now_at_milliseconds};

#[test]
fn geonetworking_crate_verifies_carnet_signatures_on_every_curve() {
    // On brainpoolP384r1 the crate hashes with SHA-256, although IEEE 1609.2 5.3.1.2.2 requires SHA-384 for
    // 384-bit signatures. On NIST P-384 the crate uses SHA-384.
    for curve in [EllipticCurve::NistP256, EllipticCurve::BrainpoolP256r1, EllipticCurve::NistP384] {
        let mut pki = TestPki::new(curve);
        let mut car = pki.new_car_station();
        for octets in [
            car.signed_cam(now_at_milliseconds(0)),
            car.signed_denm(now_at_milliseconds(10)),
            car.signed_beacon(now_at_milliseconds(20)),
        ] {
            let read = Packet::decode(octets.as_slice()).unwrap();
            assert_eq!(read.decoded.validate(), Ok(ValidationResult::Success), "{curve:?}");
        }
    }
}
