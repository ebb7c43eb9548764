//! Recorded frames of other implementations.
//!
//! The first three frames are those of real stations, from the test vectors of the crate `geonetworking`
//! 0.4.2 (MIT). Two of them are CAMs of one roadside unit, the first with the certificate and the second with
//! its digest. The third is a DENM signed on a brainpool curve. The last frame is the first one of
//! `vanetza-socktap-security-dummy.pcap`. It is from vanetza v26.02 with default security: the signer is
//! `self` and the signature is zero.

use carnet_security::crypto::{CryptoBackend, PortableBackend, name_of_certificate};
use carnet_security::ids::HashedId8;
use carnet_security::inspection::check_frame;
use carnet_security::keys::EllipticCurve;
use carnet_security::message::{Envelope, Payload, SignedMessage, Signer};
use carnet_security::permissions::{Psid, Ssp};
use carnet_security::time::Time64;
use carnet_security::{SecurityConfig, SecurityDrop};
use carnet_wire::geonet::BasicHeader;

/// A CAM of the roadside unit with its certificate.
const CAM_WITH_CERTIFICATE: &str = "
    120005010381004003805f20500280003b0100140006427e754523303ebe081ff3496605fa994c800002200000000007d100
    0002027e754523be08405ab3064cce288d6986aa6aa000342ed048220fa005adbfe9ea7733ff01fffa00283300001c006900
    4b31f60027804001240002798c75198374810101800300805d5dcbeefbe7d22d3083000000000029849d05860001e0010780
    012481040301fffc80012581050401ffffff80018c81050402ffffe000018d8002027e810201018002027f81020101000203
    ff8080837b2f6b0793c0d889447fa6e3a57a4dca9c3fe83ea525fd11616e0dfde991973981802813798620a729cce67d8d70
    1a26948d64356102d1d199fb58fa7faa70a949f66f1284b5d383cf62a27c3a894573576f5e4aef506ce60df1fe6870050d17
    a0128082df5700e7bf196e1d1dcc9cf7fe5541d453986d9582493cad522655dfcc897c23d28e9e933c769df3f7181b027a0f
    803cfbc237433f8d5b7e837d9e9d38d062e6";
/// Recorded CAM of the same roadside unit, signed with the digest of its certificate.
const CAM_WITH_DIGEST: &str = "
    12000501038100400380542050028000300100140006427e754523303ebed01ff3496805fa9949800c02200000000007d100
    0002027e754523bed0005ab3064d0e288d6926ae6ae000342d9248220fa00098bfe9ea6f33ff01fffa002833004001240002
    798c751b05c680e73f07427e75452380836fc4a94fb0e01dd766c3281dfd380655a84cc446c87b33756d56fc26086b5515ac
    238bfed17021716e6c957c6ef7b5a15f6e8924fc216ed48fc29a5194bad07f";
/// A DENM signed on brainpoolP256r1.
const DENM_ON_BRAINPOOL_CURVE: &str = "
    12001a02038100400380742040010000400200339f00003c00005056a2425e1680b8271c0e3f530930e52f800000001c0e5f
    5a0930dcf103e800000000000007d207d2020100009c3fc3000000008a321442d01704e510b405c13d1b3485a747aaef1fff
    fffe11dbba1f400f01e200400004800060001c73877fda083bc73850012500027927d8b339381c0e3f530930e52f10008101
    0180030080fb9fe6571f7ce7f910830000000000297714d98400a8010280012581050401ffffff80018b81070601c04001ff
    f8808182379e9625d2ddb44ae300f17c1c34b9afb691248a2decf4721f496e470e9886478080d7a0add885ffae3276dbed6b
    905d8d72bef3716bc3f983c665ffda8d16ba472ddf46a738a4d46ddb24acada60890d85bf75bf1c9e806592cfb71c623c4d9
    8b2f81809e35a51638c0be4d457ecf50344bfe89ef37100438ec3360778647b1e59d9bc62ce3b82a24fd39ee04ac90e21999
    6aa13700570c7c60c73072de3dc79ab73260";
/// A CAM of vanetza.
const VANETZA_MESSAGE: &str = "
    12001a010381004003805120500080002d0100800002000000000230c983f51d11629806d08c38800000000000000007d100
    00020200000002871d005a56c9730e434bc703e83e8001b7743e0000012000003fe1ed0403ffe3fff400400124000290fe93
    37caa08280800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
    0000000000000000000000000000000000000000";

pub fn octets_of_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Returns all frames, for other tests.
pub fn recorded_frames() -> Vec<Vec<u8>> {
    [CAM_WITH_CERTIFICATE, CAM_WITH_DIGEST, DENM_ON_BRAINPOOL_CURVE, VANETZA_MESSAGE]
        .map(octets_of_hex)
        .to_vec()
}

fn signed_message_of(frame: &[u8]) -> SignedMessage<'_> {
    match Envelope::parse(&frame[BasicHeader::LEN..]).unwrap() {
        Envelope::Signed(message) => *message,
        other => panic!("expected a signed message, found {other:?}"),
    }
}

/// Returns whether the holder of a certificate signed a message. This also checks the hash algorithm, the
/// canonical form of the certificate, and the curve.
fn is_signed_by(
    message: &SignedMessage<'_>,
    certificate: &carnet_security::certificate::Certificate,
) -> bool {
    let hash = PortableBackend.hash(message.hash, message.to_be_signed);
    let input = [hash, PortableBackend.hash(message.hash, certificate.octets())].concat();
    let key = PortableBackend.verifying_key(&certificate.content().verification_key).unwrap();
    key.verify(&input, &message.signature)
}

#[test]
fn recorded_cam_of_a_roadside_unit_verifies() {
    let frame = octets_of_hex(CAM_WITH_CERTIFICATE);
    let message = signed_message_of(&frame);
    let Signer::Certificate(certificate) = &message.signer else { panic!("no certificate") };
    assert!(is_signed_by(&message, certificate));
    let cam = certificate.content().permission_for(Psid::CAM).unwrap();
    assert_eq!(cam.ssp, Some(Ssp::Bitmap(vec![1, 0xff, 0xfc])));
    assert_eq!(message.header.psid, Psid::CAM);
}

/// The digest in the second CAM is the name of the certificate that the first CAM carries.
#[test]
fn message_with_certificate_digest_verifies() {
    let (with_certificate, with_digest) =
        (octets_of_hex(CAM_WITH_CERTIFICATE), octets_of_hex(CAM_WITH_DIGEST));
    let (first, second) = (signed_message_of(&with_certificate), signed_message_of(&with_digest));
    let Signer::Certificate(certificate) = &first.signer else { panic!("no certificate") };
    let Signer::Digest(digest) = second.signer else { panic!("no digest") };
    assert_eq!(digest, HashedId8([0xe7, 0x3f, 0x07, 0x42, 0x7e, 0x75, 0x45, 0x23]));
    assert_eq!(name_of_certificate(&PortableBackend, certificate), digest);
    assert!(is_signed_by(&second, certificate));
    // The signature of the first message does not verify the second message.
    let wrong = SignedMessage { signature: first.signature, ..second };
    assert!(!is_signed_by(&wrong, certificate));
}

#[test]
fn recorded_denm_on_a_brainpool_curve_verifies() {
    let frame = octets_of_hex(DENM_ON_BRAINPOOL_CURVE);
    let message = signed_message_of(&frame);
    let Signer::Certificate(certificate) = &message.signer else { panic!("no certificate") };
    assert_eq!(certificate.content().verification_key.curve(), EllipticCurve::BrainpoolP256r1);
    assert!(is_signed_by(&message, certificate));
    assert_eq!(message.header.psid, Psid::DENM);
    assert!(message.header.generation_location.is_some());
}

/// The checks without cryptography accept each frame if this station's clock shows the frame's own time.
#[test]
fn recorded_messages_pass_inspection_at_their_time() {
    for (frame, psid) in [
        (CAM_WITH_CERTIFICATE, Psid::CAM),
        (CAM_WITH_DIGEST, Psid::CAM),
        (DENM_ON_BRAINPOOL_CURVE, Psid::DENM),
    ] {
        let frame = octets_of_hex(frame);
        let made = signed_message_of(&frame).header.generation_time.unwrap();
        let inspected = check_frame(&SecurityConfig::default(), &frame, made, None).unwrap();
        assert_eq!((inspected.message.header.psid, inspected.generation_time), (psid, made));
        let later = Time64(made.0 + 700_000_000);
        assert_eq!(
            check_frame(&SecurityConfig::default(), &frame, later, None).unwrap_err(),
            SecurityDrop::TooOld
        );
    }
}

/// The parser accepts the default envelope of vanetza; the inspection then rejects it with a reason of its
/// own.
#[test]
fn unsigned_envelope_of_vanetza_is_rejected() {
    let frame = octets_of_hex(VANETZA_MESSAGE);
    let message = signed_message_of(&frame);
    assert_eq!((message.header.psid, &message.signer), (Psid::CAM, &Signer::Itself));
    assert_eq!(message.header.generation_time, Some(Time64(0x0002_90fe_9337_caa0)));
    assert!(matches!(message.payload, Payload::Data(inside) if inside.len() == 81));
    assert!(message.signature.to_octets().iter().all(|octet| *octet == 0));
    let made = message.header.generation_time.unwrap();
    assert_eq!(
        check_frame(&SecurityConfig::default(), &frame, made, None).unwrap_err(),
        SecurityDrop::SelfSigned
    );
}
