//! Certificates (IEEE 1609.2 6.4, TS 103 097 clause 6): the holder's key, and its permissions by content,
//! place and time.
//!
//! A [`Certificate`] stores its octets beside the parsed fields, because hashes and signatures cover the
//! octets. The octets are in canonical form (6.1.2): if the signature's r arrived as a point, they contain
//! only its x coordinate.
//!
//! The profile permits explicit certificates of version 3 with or without a name. They have no revocation
//! data (cracaId and crlSeries are zero) and no permissions to request certificates from others. The parser
//! rejects all other certificates. It skips extensions of later releases, but includes them in the hash.

use std::ops::Range;

use crate::coer::{Error, Reader, Writer};
use crate::ids::HashedId8;
use crate::keys::{EncryptionKey, HashAlgorithm, PublicKey, Signature};
use crate::permissions::{MAX_APPLICATIONS, Psid, PsidGroupPermissions, PsidSsp};
use crate::region::GeographicRegion;
use crate::time::{DurationUnit, Time32, ValidityDuration, ValidityPeriod};

/// Largest size of a certificate, octets: it must fit a frame together with the signed content.
pub const MAX_CERTIFICATE_OCTETS: usize = 1200;

/// Issuer of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Issuer {
    /// The certificate is self-signed: it belongs to a root.
    Itself(HashAlgorithm),
    /// The holder of another certificate: the hash algorithm of that certificate, and its name.
    Digest(HashAlgorithm, HashedId8),
}

impl Issuer {
    fn decode(reader: &mut Reader<'_>) -> Result<Issuer, Error> {
        const TYPE_NAME: &str = "IssuerIdentifier";
        Ok(match reader.read_tag(TYPE_NAME)? {
            0x80 => Issuer::Digest(HashAlgorithm::Sha256, HashedId8::decode(reader)?),
            0x81 => Issuer::Itself(HashAlgorithm::decode(reader)?),
            0x82 => {
                let mut inside = reader.read_open_type(TYPE_NAME)?;
                let issuer = Issuer::Digest(HashAlgorithm::Sha384, HashedId8::decode(&mut inside)?);
                inside.expect_end()?;
                issuer
            }
            _ => return Err(reader.unknown_tag_error(TYPE_NAME, "a digest by SHA-256 or SHA-384, or self")),
        })
    }

    fn encode(self, writer: &mut Writer) {
        match self {
            Issuer::Digest(HashAlgorithm::Sha256, digest) => {
                writer.write_u8(0x80);
                writer.write_octets(&digest.0);
            }
            Issuer::Itself(algorithm) => {
                writer.write_u8(0x81);
                algorithm.encode(writer);
            }
            Issuer::Digest(HashAlgorithm::Sha384, digest) => {
                writer.write_u8(0x82);
                writer.write_open_type(|writer| writer.write_octets(&digest.0));
            }
        }
    }
}

/// Part of a certificate that its issuer signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToBeSignedCertificate {
    /// Name of the holder; an authorization ticket has none (TS 103 097 7.2.1).
    pub name: Option<String>,
    /// Period in which the certificate is valid.
    pub validity: ValidityPeriod,
    /// Region in which the certificate is valid; `None` for everywhere.
    pub validity_region: Option<GeographicRegion>,
    /// Assurance level of the protection of the holder's keys: SubjectAssurance, with the level in the three
    /// highest bits.
    pub assurance_level: Option<u8>,
    /// Permissions of the holder to sign messages.
    pub application_permissions: Vec<PsidSsp>,
    /// Permissions of the holder to issue certificates.
    pub issuing_permissions: Vec<PsidGroupPermissions>,
    /// Key with which other stations may encrypt messages to the holder.
    pub encryption_key: Option<EncryptionKey>,
    /// Key that verifies the holder's signatures.
    pub verification_key: PublicKey,
}

const EXTENSION_BIT: u8 = 0x80;
const REGION_BIT: u8 = 0x40;
const ASSURANCE_BIT: u8 = 0x20;
const APPLICATIONS_BIT: u8 = 0x10;
const ISSUING_BIT: u8 = 0x08;
const REQUESTING_BIT: u8 = 0x04;
const ROLLOVER_BIT: u8 = 0x02;
const ENCRYPTION_BIT: u8 = 0x01;

impl ToBeSignedCertificate {
    fn decode(reader: &mut Reader<'_>) -> Result<ToBeSignedCertificate, Error> {
        const TYPE_NAME: &str = "ToBeSignedCertificate";
        let present = reader.read_preamble(8, TYPE_NAME)?;
        if present & (REQUESTING_BIT | ROLLOVER_BIT) != 0 {
            return Err(
                reader.unknown_tag_error(TYPE_NAME, "no certRequestPermissions and no canRequestRollover")
            );
        }
        let name = match reader.read_tag("CertificateId")? {
            0x81 => {
                let octets = reader.read_octets_with_length(0, 255, "Hostname")?;
                let name = std::str::from_utf8(octets);
                Some(name.map_err(|_| reader.unknown_tag_error("Hostname", "UTF-8"))?.to_owned())
            }
            0x83 => None,
            _ => return Err(reader.unknown_tag_error("CertificateId", "a name or none")),
        };
        // TS 103 097 clause 6: cracaId and crlSeries must be zero.
        if reader.take_array::<3>("cracaId")? != [0; 3] || reader.read_u16("crlSeries")? != 0 {
            return Err(reader.unknown_tag_error(TYPE_NAME, "cracaId 000000 and crlSeries 0"));
        }
        let start = Time32(reader.read_u32("Time32")?);
        let unit = reader.read_tag("Duration")?;
        let unit = unit.checked_sub(0x80).and_then(|unit| DurationUnit::ALL.get(usize::from(unit)));
        let unit = *unit.ok_or_else(|| reader.unknown_tag_error("Duration", "microseconds to years"))?;
        let duration = ValidityDuration { unit, unit_count: reader.read_u16("Duration")? };
        let region = if present & REGION_BIT != 0 { Some(GeographicRegion::decode(reader)?) } else { None };
        let assurance =
            if present & ASSURANCE_BIT != 0 { Some(reader.read_u8("SubjectAssurance")?) } else { None };
        let applications = if present & APPLICATIONS_BIT != 0 {
            reader.read_list(1, MAX_APPLICATIONS, "SequenceOfPsidSsp", PsidSsp::decode)?
        } else {
            Vec::new()
        };
        let issuing = if present & ISSUING_BIT != 0 {
            reader.read_list(1, 8, "SequenceOfPsidGroupPermissions", PsidGroupPermissions::decode)?
        } else {
            Vec::new()
        };
        let encryption_key =
            if present & ENCRYPTION_BIT != 0 { Some(EncryptionKey::decode(reader)?) } else { None };
        if reader.read_tag("VerificationKeyIndicator")? != 0x80 {
            return Err(reader.unknown_tag_error("VerificationKeyIndicator", "a verification key"));
        }
        let verification_key = PublicKey::decode(reader)?;
        if present & EXTENSION_BIT != 0 {
            reader.skip_additions(TYPE_NAME, |_, _| Ok(()))?;
        }
        Ok(ToBeSignedCertificate {
            name,
            validity: ValidityPeriod { start, duration },
            validity_region: region,
            assurance_level: assurance,
            application_permissions: applications,
            issuing_permissions: issuing,
            encryption_key,
            verification_key,
        })
    }

    /// Writes the octets that an issuer signs.
    pub fn encode(&self, writer: &mut Writer) {
        let bit = |there: bool, bit: u8| if there { bit } else { 0 };
        writer.write_u8(
            bit(self.validity_region.is_some(), REGION_BIT)
                | bit(self.assurance_level.is_some(), ASSURANCE_BIT)
                | bit(!self.application_permissions.is_empty(), APPLICATIONS_BIT)
                | bit(!self.issuing_permissions.is_empty(), ISSUING_BIT)
                | bit(self.encryption_key.is_some(), ENCRYPTION_BIT),
        );
        match &self.name {
            Some(name) => {
                writer.write_u8(0x81);
                writer.write_octets_with_length(name.as_bytes());
            }
            None => writer.write_u8(0x83),
        }
        writer.write_octets(&[0; 5]);
        writer.write_u32(self.validity.start.0);
        let unit = self.validity.duration.unit;
        let unit = DurationUnit::ALL.iter().position(|other| *other == unit).unwrap_or_default();
        writer.write_u8(0x80 + unit as u8);
        writer.write_u16(self.validity.duration.unit_count);
        if let Some(region) = &self.validity_region {
            region.encode(writer);
        }
        if let Some(assurance) = self.assurance_level {
            writer.write_u8(assurance);
        }
        if !self.application_permissions.is_empty() {
            writer.write_list(&self.application_permissions, PsidSsp::encode);
        }
        if !self.issuing_permissions.is_empty() {
            writer.write_list(&self.issuing_permissions, PsidGroupPermissions::encode);
        }
        if let Some(key) = &self.encryption_key {
            key.encode(writer);
        }
        writer.write_u8(0x80);
        self.verification_key.encode(writer);
    }

    /// Returns the holder's permission to sign messages of an application; `None` if the holder may not sign
    /// them.
    pub fn permission_for(&self, psid: Psid) -> Option<&PsidSsp> {
        self.application_permissions.iter().find(|application| application.psid == psid)
    }
}

/// A certificate with its octets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    issuer: Issuer,
    to_be_signed: ToBeSignedCertificate,
    signature: Signature,
    octets: Vec<u8>,
    signed_range: Range<usize>,
}

impl Certificate {
    /// Decodes a certificate; no octets may follow it.
    ///
    /// # Errors
    ///
    /// An error that names the field and its offset.
    pub fn parse(octets: &[u8]) -> Result<Certificate, Error> {
        let mut reader = Reader::new(octets);
        let certificate = Certificate::decode(&mut reader)?;
        reader.expect_end()?;
        Ok(certificate)
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Certificate, Error> {
        const TYPE_NAME: &str = "Certificate";
        let start = reader.octets_read();
        if reader.read_preamble(1, TYPE_NAME)? == 0 {
            return Err(reader.unknown_tag_error(TYPE_NAME, "a signature"));
        }
        if reader.read_u8("version")? != 3 {
            return Err(reader.unknown_tag_error("version", "3"));
        }
        if reader.read_tag("CertificateType")? != 0 {
            return Err(reader.unknown_tag_error("CertificateType", "explicit"));
        }
        let issuer = Issuer::decode(reader)?;
        let signed = reader.octets_read();
        let to_be_signed = ToBeSignedCertificate::decode(reader)?;
        let signed = signed - start..reader.octets_read() - start;
        let (signature, r_tag) = Signature::decode(reader)?;
        let found = reader.octets_read() - start;
        if found > MAX_CERTIFICATE_OCTETS {
            let (most, found) = (MAX_CERTIFICATE_OCTETS as u64, found as u64);
            return Err(Error::OutOfRange { what: TYPE_NAME, at: start, least: 0, most, found });
        }
        let mut octets = reader.octets_since(start).to_vec();
        if let Some(tag) = octets.get_mut(r_tag - start) {
            *tag = 0x80;
        }
        Ok(Certificate { issuer, to_be_signed, signature, octets, signed_range: signed })
    }

    /// Creates a certificate from its parts.
    pub fn new(issuer: Issuer, to_be_signed: ToBeSignedCertificate, signature: Signature) -> Certificate {
        let mut writer = Writer::new(Vec::with_capacity(256));
        writer.write_octets(&[0x80, 3, 0]);
        issuer.encode(&mut writer);
        let start = writer.len();
        to_be_signed.encode(&mut writer);
        let signed = start..writer.len();
        signature.encode(&mut writer);
        Certificate { issuer, to_be_signed, signature, octets: writer.into_octets(), signed_range: signed }
    }

    /// Returns the issuer of the certificate.
    pub const fn issuer(&self) -> Issuer {
        self.issuer
    }

    /// Returns the content that the issuer has signed.
    pub const fn content(&self) -> &ToBeSignedCertificate {
        &self.to_be_signed
    }

    /// Returns the signature of the issuer.
    pub const fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the octets of the certificate, in canonical form.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Returns the octets that the issuer signed.
    pub fn signed_octets(&self) -> &[u8] {
        self.octets.get(self.signed_range.clone()).unwrap_or_default()
    }

    /// Returns the algorithm that computes the certificate's name: the hash algorithm of its key's curve
    /// (5.3.9.2).
    pub const fn hash_algorithm(&self) -> HashAlgorithm {
        self.to_be_signed.verification_key.curve().hash()
    }

    /// Returns the role of the certificate, by its permissions (TS 103 097 7.2).
    pub fn certificate_role(&self) -> CertificateRole {
        let content = &self.to_be_signed;
        match self.issuer {
            Issuer::Itself(_) if !content.issuing_permissions.is_empty() => CertificateRole::Root,
            Issuer::Itself(_) => CertificateRole::Other,
            Issuer::Digest(..) if !content.issuing_permissions.is_empty() => CertificateRole::Authority,
            Issuer::Digest(..)
                if content
                    .application_permissions
                    .iter()
                    .any(|item| item.psid == Psid::CERTIFICATE_REQUEST) =>
            {
                CertificateRole::Enrolment
            }
            Issuer::Digest(..) if content.name.is_none() && !content.application_permissions.is_empty() => {
                CertificateRole::Ticket
            }
            Issuer::Digest(..) => CertificateRole::Other,
        }
    }
}

/// Role of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CertificateRole {
    /// Root, which signs itself and the certificates of authorities (7.2.3).
    Root,
    /// Issues certificates: an Authorization Authority or an Enrolment Authority (7.2.4).
    Authority,
    /// Authorization ticket: signs messages (7.2.1).
    Ticket,
    /// Enrolment credential: requests tickets (7.2.2).
    Enrolment,
    /// None of these roles.
    Other,
}
