//! The crate `geonetworking` 0.4.2 as independent check: it parses carnet's messages, and verifies the
//! signatures by its own computation of the hash.

use carnet_security::keys::Curve;
use geonetworking::{Decode, Packet, Validate, ValidationResult};

use crate::support::{Pki, at};

#[test]
fn it_verifies_what_carnet_signs_on_every_curve() {
    // On brainpoolP384r1 the crate hashes with SHA-256, although IEEE 1609.2 5.3.1.2.2 requires SHA-384 for
    // 384-bit signatures. On NIST P-384 the crate uses SHA-384.
    for curve in [Curve::NistP256, Curve::BrainpoolP256r1, Curve::NistP384] {
        let mut pki = Pki::new(curve);
        let mut car = pki.car();
        for octets in [car.cam(at(0)), car.denm(at(10)), car.beacon(at(20))] {
            let read = Packet::decode(octets.as_slice()).unwrap();
            assert_eq!(read.decoded.validate(), Ok(ValidationResult::Success), "{curve:?}");
        }
    }
}
