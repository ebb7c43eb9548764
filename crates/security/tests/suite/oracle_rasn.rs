//! The general codec of rasn with its types of IEEE 1609.2-2022 checks this codec in both directions. The
//! general codec reads carnet's output and writes the same octets again. Both codecs read the same values
//! from messages of other implementations.

use carnet_security::message::{Envelope, Signer};
use proptest::prelude::*;
use rasn_its::ieee1609dot2::{Certificate, Ieee1609Dot2Content, Ieee1609Dot2Data, SignerIdentifier};

use crate::air::recorded_frames;
use crate::codec::{any_certificate, any_signed_message_parts};

proptest! {
    #[test]
    fn rasn_and_carnet_agree_on_certificates(certificate in any_certificate()) {
        let theirs: Certificate = rasn::coer::decode(certificate.octets()).unwrap();
        prop_assert_eq!(rasn::coer::encode(&theirs).unwrap(), certificate.octets());
    }

    #[test]
    fn rasn_and_carnet_agree_on_messages(parts in any_signed_message_parts()) {
        let octets = parts.encode();
        let theirs: Ieee1609Dot2Data = rasn::coer::decode(&octets).unwrap();
        let Ieee1609Dot2Content::SignedData(signed) = &theirs.content else { panic!("not signed") };
        match (&signed.tbs_data.header_info.requested_certificate, &parts.header.requested_certificate) {
            (None, None) => prop_assert_eq!(rasn::coer::encode(&theirs).unwrap(), octets),
            // rasn 0.30 has a bug: if an extension addition has additions itself, rasn writes the inner ones
            // in front of the message.
            (Some(theirs), Some(ours)) => prop_assert_eq!(rasn::coer::encode(theirs).unwrap(), ours.octets()),
            other => panic!("{other:?}"),
        }
    }

    /// carnet's decoder rejects everything that rasn's decoder rejects. It also rejects encodings that rasn
    /// would write differently, because they are not canonical.
    #[test]
    fn decoder_rejects_all_input_that_rasn_rejects(
        certificate in any_certificate(),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut octets = certificate.octets().to_vec();
        let bit = bit.index(octets.len() * 8);
        octets[bit / 8] ^= 0x80 >> (bit % 8);
        if let Ok(ours) = carnet_security::certificate::Certificate::parse(&octets) {
            let theirs: Certificate = rasn::coer::decode(&octets).unwrap();
            let again = rasn::coer::encode(&theirs).unwrap();
            prop_assert_eq!(&again, &octets);
            prop_assert_eq!(ours.octets().len(), octets.len());
        }
    }
}

#[test]
fn station_ignores_unicast_frames_of_other_stations() {
    for frame in recorded_frames() {
        let octets = &frame[4..];
        let Envelope::Signed(ours) = Envelope::parse(octets).unwrap() else { panic!("not signed") };
        let theirs: Ieee1609Dot2Data = rasn::coer::decode(octets).unwrap();
        let Ieee1609Dot2Content::SignedData(signed) = &theirs.content else { panic!("not signed") };
        assert_eq!(rasn::coer::encode(&signed.tbs_data).unwrap(), ours.to_be_signed);
        match (&signed.signer, &ours.signer) {
            (SignerIdentifier::Digest(theirs), Signer::Digest(ours)) => {
                assert_eq!(rasn::coer::encode(theirs).unwrap(), ours.0);
            }
            (SignerIdentifier::Certificate(theirs), Signer::Certificate(ours)) => {
                assert_eq!(rasn::coer::encode(&theirs[0]).unwrap(), ours.octets());
            }
            (SignerIdentifier::SelfSigned(()), Signer::Itself) => {}
            other => panic!("{other:?}"),
        }
    }
}
