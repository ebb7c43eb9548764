//! A small public key infrastructure for tests and closed fleets: a root, authorities, and tickets.
//!
//! The certificates have the profile of TS 103 097 7.2.1 to 7.2.4. This crate answers no requests over the
//! air, and does not implement enrolment and authorization by TS 102 941. [`issue_certificate`] signs any
//! content, so that tests can make certificates that an authority would not make;
//! [`root_certificate_content`], [`authority_certificate_content`] and [`ticket_content`] make valid
//! contents.

use crate::certificate::{Certificate, Issuer, ToBeSignedCertificate};
use crate::coer::Writer;
use crate::crypto::{CryptoBackend, SigningError, SigningKey, name_of_certificate, signature_input};
use crate::keys::{HashAlgorithm, PublicKey};
use crate::permissions::{
    END_ENTITY_APP, Psid, PsidGroupPermissions, PsidSsp, PsidSspRange, Ssp, SspRange, SubjectPermissions,
};
use crate::region::GeographicRegion;
use crate::time::ValidityPeriod;

/// Returns the application permissions for a test ticket. With `everything`, the SSP have all bits set;
/// otherwise only the bits that every station may have.
pub fn test_applications(everything: bool) -> Vec<PsidSsp> {
    let bitmap = |octets: &[u8]| Some(Ssp::Bitmap(octets.to_vec()));
    // Ordinary stations have no SSP bits of DENM for roadworks, rescue and emergency vehicles.
    let denm = if everything { [1, 0xff, 0xff, 0xff] } else { [1, 0xdf, 0xbf, 0xef] };
    let mut list = vec![
        PsidSsp { psid: Psid::CAM, ssp: bitmap(if everything { &[1, 0xff, 0xfc] } else { &[1, 0, 0] }) },
        PsidSsp { psid: Psid::DENM, ssp: bitmap(&denm) },
    ];
    let others =
        PSIDS_WITHOUT_SSP.iter().filter(|psid| everything || [Psid::GN_MGMT, Psid::SAEM].contains(psid));
    list.extend(others.map(|psid| PsidSsp { psid: *psid, ssp: None }));
    list
}

/// Applications for which this module gives permissions without SSP.
const PSIDS_WITHOUT_SSP: [Psid; 11] = [
    Psid::SPATEM,
    Psid::MAPEM,
    Psid::IVIM,
    Psid::SREM,
    Psid::GN_MGMT,
    Psid::SSEM,
    Psid::VAM,
    Psid::CPM,
    Psid::IMZM,
    Psid::SAEM,
    Psid::RTCMEM,
];

/// Returns the issuing permissions of a root or an authority, for all applications of [`test_applications`].
/// `min_chain_length` is 1 for an authority that issues tickets.
fn test_issuing_permissions(min_chain_length: u8) -> Vec<PsidGroupPermissions> {
    let any = |psid, octets: usize| PsidSspRange {
        application_psid: psid,
        range: Some(SspRange::Bitmap {
            // Only the version octet is fixed; all other SSP bits may have any value.
            value: [vec![1], vec![0xff; octets]].concat(),
            mask: [vec![0xff], vec![0; octets]].concat(),
        }),
    };
    let others = PSIDS_WITHOUT_SSP.iter().map(|psid| PsidSspRange { application_psid: *psid, range: None });
    let list = [any(Psid::CAM, 2), any(Psid::DENM, 3)].into_iter().chain(others).collect();
    vec![PsidGroupPermissions {
        subject: SubjectPermissions::Explicit(list),
        min_chain_length,
        chain_length_range: 0,
        end_entity_types: END_ENTITY_APP,
    }]
}

/// Returns the content of a certificate whose holder issues certificates.
fn issuing_certificate_content(
    name: &str,
    key: PublicKey,
    validity: ValidityPeriod,
    region: Option<GeographicRegion>,
    applications: Vec<PsidSsp>,
    min_chain_length: u8,
) -> ToBeSignedCertificate {
    ToBeSignedCertificate {
        name: Some(name.to_owned()),
        issuing_permissions: test_issuing_permissions(min_chain_length),
        ..ticket_content(key, validity, region, applications)
    }
}

/// Returns the content of a root (7.2.3).
pub fn root_certificate_content(
    name: &str,
    key: PublicKey,
    validity: ValidityPeriod,
    region: Option<GeographicRegion>,
) -> ToBeSignedCertificate {
    let applications = vec![PsidSsp { psid: Psid::CTL, ssp: Some(Ssp::Bitmap(vec![1, 0x38])) }];
    issuing_certificate_content(name, key, validity, region, applications, 2)
}

/// Returns the content of an Authorization Authority (7.2.4).
pub fn authority_certificate_content(
    name: &str,
    key: PublicKey,
    validity: ValidityPeriod,
    region: Option<GeographicRegion>,
) -> ToBeSignedCertificate {
    issuing_certificate_content(name, key, validity, region, Vec::new(), 1)
}

/// Returns the content of a ticket (7.2.1), which has no name.
pub fn ticket_content(
    key: PublicKey,
    validity: ValidityPeriod,
    region: Option<GeographicRegion>,
    applications: Vec<PsidSsp>,
) -> ToBeSignedCertificate {
    ToBeSignedCertificate {
        name: None,
        validity,
        validity_region: region,
        assurance_level: None,
        application_permissions: applications,
        issuing_permissions: Vec::new(),
        encryption_key: None,
        verification_key: key,
    }
}

/// Issues a certificate. `issuer` is the issuer's certificate; `None` for a root, which `key` itself signs.
///
/// # Errors
///
/// The reason why the key could not sign.
pub fn issue_certificate(
    backend: &dyn CryptoBackend,
    key: &dyn SigningKey,
    issuer: Option<&Certificate>,
    content: ToBeSignedCertificate,
) -> Result<Certificate, SigningError> {
    let algorithm: HashAlgorithm = key.public_key().curve().hash();
    let (named, octets) = match issuer {
        Some(issuer) => {
            (Issuer::Digest(issuer.hash_algorithm(), name_of_certificate(backend, issuer)), issuer.octets())
        }
        None => (Issuer::Itself(algorithm), [].as_slice()),
    };
    let mut writer = Writer::default();
    content.encode(&mut writer);
    let input = signature_input(backend, algorithm, writer.as_slice(), octets);
    let signature = key.sign(&input)?;
    Ok(Certificate::new(named, content, signature))
}
