//! The codec alone: the parser reads what the writer writes, and rejects other octets.

use carnet_geonet::geodesy::Position;
use carnet_security::certificate::{Certificate, Issuer, ToBeSignedCertificate};
use carnet_security::coer::{Error, Reader, Writer};
use carnet_security::ids::{HashedId3, HashedId8};
use carnet_security::keys::{EllipticCurve, EncryptionKey, HashAlgorithm, PublicKey, Signature};
use carnet_security::message::{
    Envelope, HeaderInfo, Payload, Signer, ThreeDLocation, emit_signed_message, to_be_signed,
};
use carnet_security::permissions::*;
use carnet_security::region::{GeographicRegion, IdentifiedRegion};
use carnet_security::time::{DurationUnit, Time32, Time64, ValidityDuration, ValidityPeriod};
use proptest::collection::vec;
use proptest::prelude::*;

fn any_curve() -> impl Strategy<Value = EllipticCurve> {
    (0_usize..4).prop_map(|number| EllipticCurve::ALL[number])
}

fn any_public_key(curve: EllipticCurve) -> impl Strategy<Value = PublicKey> {
    (any::<bool>(), vec(any::<u8>(), curve.octets())).prop_map(move |(odd, x)| {
        PublicKey::from_sec1(curve, &[&[2 + u8::from(odd)], x.as_slice()].concat()).unwrap()
    })
}

pub fn any_signature() -> impl Strategy<Value = Signature> {
    any_curve().prop_flat_map(|curve| {
        vec(any::<u8>(), 2 * curve.octets())
            .prop_map(move |octets| Signature::from_octets(curve, &octets).unwrap())
    })
}

fn any_position() -> impl Strategy<Value = Position> {
    (-900_000_000..=900_000_000, -1_799_999_999..=1_800_000_000)
        .prop_map(|(latitude, longitude)| Position::new(latitude, longitude))
}

fn any_identified_region() -> impl Strategy<Value = IdentifiedRegion> {
    prop_oneof![
        any::<u16>().prop_map(IdentifiedRegion::CountryOnly),
        (any::<u16>(), vec(any::<u8>(), 1..4)).prop_map(|(c, r)| IdentifiedRegion::CountryAndRegions(c, r)),
        (any::<u16>(), vec((any::<u8>(), vec(any::<u16>(), 1..3)), 1..3))
            .prop_map(|(c, r)| IdentifiedRegion::CountryAndSubregions(c, r)),
    ]
}

fn any_region() -> impl Strategy<Value = GeographicRegion> {
    let rectangle =
        (any_position(), 1..1000, 1..1000).prop_filter_map("beyond the date line", |(nw, down, right)| {
            let se = Position::new(nw.latitude - down, nw.longitude.checked_add(right)?);
            se.is_on_earth().then_some((nw, se))
        });
    prop_oneof![
        (any_position(), any::<u16>())
            .prop_map(|(center, radius)| GeographicRegion::Circular { center, radius }),
        vec(rectangle, 1..=6).prop_map(GeographicRegion::Rectangular),
        vec(any_position(), 3..=12).prop_map(GeographicRegion::Polygonal),
        vec(any_identified_region(), 1..4).prop_map(GeographicRegion::Identified),
    ]
}

fn any_psid() -> impl Strategy<Value = Psid> {
    prop_oneof![0_u64..200, 200_u64..70_000].prop_map(Psid)
}

fn any_application() -> impl Strategy<Value = PsidSsp> {
    let ssp = prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(Ssp::Opaque),
        vec(any::<u8>(), 0..=31).prop_map(Ssp::Bitmap)
    ];
    (any_psid(), proptest::option::of(ssp)).prop_map(|(psid, ssp)| PsidSsp { psid, ssp })
}

fn any_group_permissions() -> impl Strategy<Value = PsidGroupPermissions> {
    let range = prop_oneof![
        vec(vec(any::<u8>(), 0..4), 1..3).prop_map(SspRange::Opaque),
        Just(SspRange::All),
        (1_usize..=4)
            .prop_flat_map(|n| (vec(any::<u8>(), n), vec(any::<u8>(), n)))
            .prop_map(|(value, mask)| SspRange::Bitmap { value, mask }),
    ];
    let subject = prop_oneof![
        Just(SubjectPermissions::All),
        vec((any_psid(), proptest::option::of(range)), 1..4).prop_map(|list| {
            let item = |(psid, range)| PsidSspRange { application_psid: psid, range };
            SubjectPermissions::Explicit(list.into_iter().map(item).collect())
        })
    ];
    (subject, 0_u8..=8, prop_oneof![0_u8..=8, Just(255)], any::<u8>()).prop_map(
        |(subject, min_chain_length, chain_length_range, end_entity_types)| PsidGroupPermissions {
            subject,
            min_chain_length,
            chain_length_range,
            end_entity_types,
        },
    )
}

prop_compose! {
    fn any_certificate_content()(
        name in proptest::option::of("[a-z]{0,20}"),
        start in any::<u32>(),
        unit in 0_usize..7,
        count in any::<u16>(),
        region in proptest::option::of(any_region()),
        assurance in proptest::option::of(any::<u8>()),
        applications in vec(any_application(), 0..4),
        issuing in vec(any_group_permissions(), 0..3),
        encryption_key in
            proptest::option::of(any_public_key(EllipticCurve::BrainpoolP256r1).prop_map(EncryptionKey)),
        verification_key in any_curve().prop_flat_map(any_public_key),
    ) -> ToBeSignedCertificate {
        let duration = ValidityDuration { unit: DurationUnit::ALL[unit], unit_count: count };
        let validity = ValidityPeriod { start: Time32(start), duration };
        ToBeSignedCertificate {
            name,
            validity,
            validity_region: region,
            assurance_level: assurance,
            application_permissions: applications,
            issuing_permissions: issuing,
            encryption_key,
            verification_key,
        }
    }
}

pub fn any_certificate() -> impl Strategy<Value = Certificate> {
    let digest = any::<[u8; 8]>().prop_map(HashedId8);
    let issuer = prop_oneof![
        Just(Issuer::Itself(HashAlgorithm::Sha256)),
        Just(Issuer::Itself(HashAlgorithm::Sha384)),
        digest.clone().prop_map(|digest| Issuer::Digest(HashAlgorithm::Sha256, digest)),
        digest.prop_map(|digest| Issuer::Digest(HashAlgorithm::Sha384, digest)),
    ];
    (issuer, any_certificate_content(), any_signature())
        .prop_map(|(issuer, content, signature)| Certificate::new(issuer, content, signature))
}

/// Random parts of a message.
#[derive(Debug, Clone)]
pub struct SignedMessageParts {
    pub payload: Vec<u8>,
    pub header: HeaderInfo<'static>,
    pub requests: Vec<HashedId3>,
    pub signer: Signer,
    pub signature: Signature,
}

impl SignedMessageParts {
    pub fn encode(&self) -> Vec<u8> {
        emit_signed_message(
            &to_be_signed(&self.payload, &self.header, &self.requests),
            &self.signer,
            &self.signature,
        )
    }
}

prop_compose! {
    pub fn any_signed_message_parts()(
        payload in vec(any::<u8>(), 1..300),
        psid in any_psid(),
        generation_time in proptest::option::of(any::<u64>().prop_map(Time64)),
        expiry_time in proptest::option::of(any::<u64>().prop_map(Time64)),
        generation_location in proptest::option::of((any_position(), any::<u16>())
            .prop_map(|(position, elevation)| ThreeDLocation { position, elevation })),
        encryption_key in proptest::option::of(
            any_public_key(EllipticCurve::NistP256).prop_map(EncryptionKey)),
        requests in vec(any::<[u8; 3]>().prop_map(HashedId3), 0..4),
        requested_certificate in proptest::option::of(any_certificate()),
        signer in prop_oneof![
            any::<[u8; 8]>().prop_map(|digest| Signer::Digest(HashedId8(digest))),
            any_certificate().prop_map(|certificate| Signer::Certificate(Box::new(certificate))),
            Just(Signer::Itself),
        ],
        signature in any_signature(),
    ) -> SignedMessageParts {
        let mut header = HeaderInfo::new(psid);
        header.generation_time = generation_time;
        header.expiry_time = expiry_time;
        header.generation_location = generation_location;
        header.encryption_key = encryption_key;
        header.requested_certificate = requested_certificate;
        SignedMessageParts { payload, header, requests, signer, signature }
    }
}

proptest! {
    #[test]
    fn certificates_are_read_as_written(certificate in any_certificate()) {
        prop_assert_eq!(Certificate::parse(certificate.octets()), Ok(certificate));
    }

    #[test]
    fn messages_are_read_as_written(parts in any_signed_message_parts()) {
        let octets = parts.encode();
        let Envelope::Signed(read) = Envelope::parse(&octets).unwrap() else { panic!("not signed") };
        prop_assert_eq!(read.payload, Payload::Data(&parts.payload));
        prop_assert_eq!(&read.signer, &parts.signer);
        prop_assert_eq!(&read.signature, &parts.signature);
        prop_assert_eq!(read.header.inline_requests.iter().collect::<Vec<_>>(), parts.requests.clone());
        prop_assert_eq!(read.to_be_signed, to_be_signed(&parts.payload, &parts.header, &parts.requests));
        prop_assert_eq!(read.header.psid, parts.header.psid);
        prop_assert_eq!(read.header.generation_time, parts.header.generation_time);
        prop_assert_eq!(read.header.expiry_time, parts.header.expiry_time);
        prop_assert_eq!(read.header.generation_location, parts.header.generation_location);
        prop_assert_eq!(read.header.encryption_key, parts.header.encryption_key);
        prop_assert_eq!(&read.header.requested_certificate, &parts.header.requested_certificate);
    }

    /// No octets make the reader panic, and a message cut at any octet is rejected.
    #[test]
    fn mutated_certificates_and_messages_cause_no_panic(
        parts in any_signed_message_parts(), cut in any::<prop::sample::Index>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut octets = parts.encode();
        let cut = cut.index(octets.len());
        prop_assert!(Envelope::parse(&octets[..cut]).is_err());
        let bit = bit.index(octets.len() * 8);
        octets[bit / 8] ^= 0x80 >> (bit % 8);
        let _ = Envelope::parse(&octets);
        octets.push(0);
        let _ = Envelope::parse(&octets);
    }

    /// A certificate has one encoding: writing a parsed certificate gives the same octets, except for the
    /// sign of r.
    #[test]
    fn each_value_has_exactly_one_encoding(
        certificate in any_certificate(),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut octets = certificate.octets().to_vec();
        let bit = bit.index(octets.len() * 8);
        octets[bit / 8] ^= 0x80 >> (bit % 8);
        if let Ok(read) = Certificate::parse(&octets) {
            let written = Certificate::new(read.issuer(), read.content().clone(), *read.signature());
            prop_assert_eq!(written.octets(), read.octets());
            let differ = octets.iter().zip(written.octets()).filter(|(a, b)| a != b).count();
            prop_assert!(differ <= 1);
        }
    }

    #[test]
    fn random_octets_are_no_secured_messages(octets in vec(any::<u8>(), 0..400)) {
        let _ = Envelope::parse(&octets);
        let _ = Certificate::parse(&octets);
        let _ = Envelope::parse(&[&[3, 0x81, 0, 0x40, 3, 0x80], octets.as_slice()].concat());
    }

    #[test]
    fn coer_integers_have_one_encoding(number in any::<u64>()) {
        let mut writer = Writer::default();
        writer.write_unsigned(number);
        let octets = writer.into_octets();
        prop_assert_eq!(Reader::new(&octets).read_unsigned("number"), Ok(number));
        let long = [&[octets[0] + 1, 0], &octets[1..]].concat();
        prop_assert!(Reader::new(&long).read_unsigned("number").is_err());
    }
}

#[test]
fn longer_than_necessary_length_is_rejected() {
    for (octets, expected) in [
        (vec![0x05], Ok(5)),
        (vec![0x81, 0x80], Ok(128)),
        (vec![0x82, 0x01, 0x00], Ok(256)),
        (vec![0x81, 0x7f], Err(Error::NotCanonical { what: "x", at: 0 })),
        (vec![0x82, 0x00, 0xff], Err(Error::NotCanonical { what: "x", at: 0 })),
        (vec![0x83, 1, 0, 0], Err(Error::OutOfRange { what: "x", at: 0, least: 1, most: 2, found: 3 })),
        (vec![0x82, 1], Err(Error::Truncated { what: "x", at: 1, expected: 2, found: 1 })),
    ] {
        assert_eq!(Reader::new(&octets).read_length("x"), expected, "{octets:02x?}");
    }
}

/// The parser allocates memory only for list elements that arrive, not for announced ones.
#[test]
fn parser_allocates_only_elements_that_arrive() {
    let octets = [[2, 0xff, 0xff].as_slice(), &[0; 10]].concat();
    let result = Reader::new(&octets).read_list(0, 65_535, "list", |reader| reader.read_u64("element"));
    assert!(matches!(result, Err(Error::Truncated { .. })));
}
