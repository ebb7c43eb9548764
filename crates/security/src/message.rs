//! Secured messages (IEEE 1609.2 6.3, TS 103 097 clause 5): envelopes and their content.
//!
//! [`Envelope::parse`] reads a message in place: payload, header, signer, and the signed octets. It also
//! parses a certificate in the message, to find the end of the certificate. It computes no hash and verifies
//! no signature. [`emit_signed_message`] writes a message.
//!
//! The profile has one level: signed data around unsecured data. So messages do not nest, and a message of a
//! few octets cannot cause deep recursion. The parser recognises encrypted messages, signed certificate
//! requests and external payloads (extDataHash) separately, because each has its own drop reason.

use carnet_geonet::geodesy::Position;

use crate::certificate::Certificate;
use crate::coer::{Error, Reader, Writer};
use crate::ids::{HashedId3, HashedId8};
use crate::keys::{EncryptionKey, HashAlgorithm, Signature};
use crate::permissions::Psid;
use crate::time::Time64;

/// protocolVersion of IEEE 1609.2-2016 and later.
pub const PROTOCOL_VERSION: u8 = 3;

/// Largest number of certificates requested in one message.
pub const MAX_REQUESTED_CERTIFICATES: usize = 16;

/// Place where a station generated a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreeDLocation {
    /// Latitude and longitude; a value outside the globe means "unknown".
    pub position: Position,
    /// Elevation as the standard encodes it: 0.1 m, counted from -409.6 m.
    pub elevation: u16,
}

/// Names of requested certificates, in place in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedCertificates<'a>(&'a [u8]);

impl RequestedCertificates<'_> {
    /// Returns the names of the requested certificates.
    pub fn iter(&self) -> impl Iterator<Item = HashedId3> + '_ {
        self.0.as_chunks::<3>().0.iter().map(|id| HashedId3(*id))
    }

    /// Returns whether the list is empty.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Header of a message, which the signature covers (6.3.9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderInfo<'a> {
    /// Application of the message.
    pub psid: Psid,
    /// Generation time.
    pub generation_time: Option<Time64>,
    /// Time until which the message is valid.
    pub expiry_time: Option<Time64>,
    /// Generation location.
    pub generation_location: Option<ThreeDLocation>,
    /// The header has a p2pcdLearningRequest or a missingCrlIdentifier, which the profile forbids (5.2).
    pub has_forbidden_field: bool,
    /// A key with which other stations may encrypt an answer.
    pub encryption_key: Option<EncryptionKey>,
    /// Names of the certificates that the sender lacks.
    pub inline_requests: RequestedCertificates<'a>,
    /// A certificate that another station has requested.
    pub requested_certificate: Option<Certificate>,
}

const EXTENSION_BIT: u8 = 0x80;
const GENERATION_TIME_BIT: u8 = 0x40;
const EXPIRY_TIME_BIT: u8 = 0x20;
const GENERATION_LOCATION_BIT: u8 = 0x10;
const LEARNING_REQUEST_BIT: u8 = 0x08;
const MISSING_CRL_BIT: u8 = 0x04;
const ENCRYPTION_KEY_BIT: u8 = 0x02;
/// Number of the extension addition inlineP2pcdRequest in HeaderInfo.
const INLINE_REQUEST_ADDITION: usize = 0;
/// Number of the extension addition requestedCertificate in HeaderInfo.
const REQUESTED_CERTIFICATE_ADDITION: usize = 1;
/// Number of additions in IEEE 1609.2-2022.
const ADDITION_COUNT: u8 = 4;

impl<'a> HeaderInfo<'a> {
    /// Returns a header with an application and no other field.
    pub const fn new(psid: Psid) -> HeaderInfo<'a> {
        HeaderInfo {
            psid,
            generation_time: None,
            expiry_time: None,
            generation_location: None,
            has_forbidden_field: false,
            encryption_key: None,
            inline_requests: RequestedCertificates(&[]),
            requested_certificate: None,
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<HeaderInfo<'a>, Error> {
        const TYPE_NAME: &str = "HeaderInfo";
        let present = reader.read_preamble(7, TYPE_NAME)?;
        let mut header = HeaderInfo::new(Psid(reader.read_unsigned("Psid")?));
        if present & GENERATION_TIME_BIT != 0 {
            header.generation_time = Some(Time64(reader.read_u64("generationTime")?));
        }
        if present & EXPIRY_TIME_BIT != 0 {
            header.expiry_time = Some(Time64(reader.read_u64("expiryTime")?));
        }
        if present & GENERATION_LOCATION_BIT != 0 {
            let position = Position::new(reader.read_i32("Latitude")?, reader.read_i32("Longitude")?);
            header.generation_location =
                Some(ThreeDLocation { position, elevation: reader.read_u16("Elevation")? });
        }
        if present & LEARNING_REQUEST_BIT != 0 {
            reader.take_array::<3>("p2pcdLearningRequest")?;
            header.has_forbidden_field = true;
        }
        if present & MISSING_CRL_BIT != 0 {
            let more = reader.read_preamble(1, "MissingCrlIdentifier")? != 0;
            reader.take_octets(5, "MissingCrlIdentifier")?;
            if more {
                reader.skip_additions("MissingCrlIdentifier", |_, _| Ok(()))?;
            }
            header.has_forbidden_field = true;
        }
        if present & ENCRYPTION_KEY_BIT != 0 {
            header.encryption_key = match reader.read_tag("EncryptionKey")? {
                0x80 => Some(EncryptionKey::decode(reader)?),
                _ => return Err(reader.unknown_tag_error("EncryptionKey", "a public key")),
            };
        }
        if present & EXTENSION_BIT != 0 {
            reader.skip_additions(TYPE_NAME, |number, mut content| {
                match number {
                    INLINE_REQUEST_ADDITION => {
                        let count =
                            content.read_quantity(0, MAX_REQUESTED_CERTIFICATES, "SequenceOfHashedId3")?;
                        header.inline_requests =
                            RequestedCertificates(content.take_octets(3 * count, "SequenceOfHashedId3")?);
                    }
                    REQUESTED_CERTIFICATE_ADDITION => {
                        header.requested_certificate = Some(Certificate::decode(&mut content)?);
                    }
                    _ => return Ok(()),
                }
                content.expect_end()
            })?;
        }
        Ok(header)
    }

    fn encode(&self, writer: &mut Writer, requests: &[HashedId3]) {
        let bit = |there: bool, bit: u8| if there { bit } else { 0 };
        let extended = !requests.is_empty() || self.requested_certificate.is_some();
        writer.write_u8(
            bit(extended, EXTENSION_BIT)
                | bit(self.generation_time.is_some(), GENERATION_TIME_BIT)
                | bit(self.expiry_time.is_some(), EXPIRY_TIME_BIT)
                | bit(self.generation_location.is_some(), GENERATION_LOCATION_BIT)
                | bit(self.encryption_key.is_some(), ENCRYPTION_KEY_BIT),
        );
        writer.write_unsigned(self.psid.0);
        if let Some(time) = self.generation_time {
            writer.write_u64(time.0);
        }
        if let Some(time) = self.expiry_time {
            writer.write_u64(time.0);
        }
        if let Some(location) = &self.generation_location {
            writer.write_i32(location.position.latitude);
            writer.write_i32(location.position.longitude);
            writer.write_u16(location.elevation);
        }
        if let Some(key) = &self.encryption_key {
            writer.write_u8(0x80);
            key.encode(writer);
        }
        if extended {
            let bits = bit(!requests.is_empty(), 0x80 >> INLINE_REQUEST_ADDITION)
                | bit(self.requested_certificate.is_some(), 0x80 >> REQUESTED_CERTIFICATE_ADDITION);
            writer.write_octets_with_length(&[8 - ADDITION_COUNT, bits]);
            if !requests.is_empty() {
                writer.write_open_type(|writer| {
                    writer.write_list(requests, |writer, id| writer.write_octets(&id.0))
                });
            }
            if let Some(certificate) = &self.requested_certificate {
                writer.write_open_type(|writer| writer.write_octets(certificate.octets()));
            }
        }
    }
}

/// Signer of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signer {
    /// The holder of the certificate with this name, which is not in the message.
    Digest(HashedId8),
    /// The holder of this certificate, which is in the message.
    Certificate(Box<Certificate>),
    /// A signer without certificate, for certificate requests.
    Itself,
}

/// The signed payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The payload in the message.
    Data(&'a [u8]),
    /// A payload that is not in the message; the message contains only its hash.
    External,
}

/// A signed message, in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedMessage<'a> {
    /// Hash algorithm of the signature.
    pub hash: HashAlgorithm,
    /// The signed payload.
    pub payload: Payload<'a>,
    /// Header of the message.
    pub header: HeaderInfo<'a>,
    /// Signer of the message.
    pub signer: Signer,
    /// The signature.
    pub signature: Signature,
    /// The signed octets, ToBeSignedData.
    pub to_be_signed: &'a [u8],
}

/// Content of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope<'a> {
    /// Unsecured octets.
    Unsecured(&'a [u8]),
    /// A signed message.
    Signed(Box<SignedMessage<'a>>),
    /// An encrypted message.
    Encrypted,
    /// A request for a certificate.
    CertificateRequest,
}

/// Returns the version of an envelope and ignores its other octets; `None` if there are no octets.
pub fn version(octets: &[u8]) -> Option<u8> {
    octets.first().copied()
}

impl<'a> Envelope<'a> {
    /// Decodes an envelope; no octets may follow it.
    ///
    /// # Errors
    ///
    /// An error that names the field and its offset.
    pub fn parse(octets: &'a [u8]) -> Result<Envelope<'a>, Error> {
        Envelope::parse_at_front(octets).map(|(envelope, _)| envelope)
    }

    /// Reads an envelope and returns its length in octets; the octets behind the envelope are padding of the
    /// link.
    ///
    /// # Errors
    /// The errors of [`Self::parse`].
    pub fn parse_at_front(octets: &'a [u8]) -> Result<(Envelope<'a>, usize), Error> {
        const TYPE_NAME: &str = "Ieee1609Dot2Data";
        let mut reader = Reader::new(octets);
        if reader.read_u8("protocolVersion")? != PROTOCOL_VERSION {
            return Err(reader.unknown_tag_error("protocolVersion", "3"));
        }
        let envelope = match reader.read_tag(TYPE_NAME)? {
            0x80 => {
                Envelope::Unsecured(reader.read_octets_with_length(0, usize::from(u16::MAX), TYPE_NAME)?)
            }
            0x81 => Envelope::Signed(Box::new(SignedMessage::decode(&mut reader)?)),
            // The station cannot decrypt the message, and the octets do not say where the message ends. So
            // the message counts as the whole input.
            0x82 => return Ok((Envelope::Encrypted, octets.len())),
            0x83 | 0x84 => return Ok((Envelope::CertificateRequest, octets.len())),
            _ => return Err(reader.unknown_tag_error(TYPE_NAME, "unsecured, signed or encrypted data")),
        };
        Ok((envelope, reader.octets_read()))
    }
}

impl<'a> SignedMessage<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<SignedMessage<'a>, Error> {
        let hash = HashAlgorithm::decode(reader)?;
        let start = reader.octets_read();
        let payload = decode_payload(reader)?;
        let header = HeaderInfo::decode(reader)?;
        let to_be_signed = reader.octets_since(start);
        const TYPE_NAME: &str = "SignerIdentifier";
        let signer = match reader.read_tag(TYPE_NAME)? {
            0x80 => Signer::Digest(HashedId8::decode(reader)?),
            0x81 => {
                // TS 103 097 5.2: the signer has exactly one certificate.
                reader.read_quantity(1, 1, "SequenceOfCertificate")?;
                Signer::Certificate(Box::new(Certificate::decode(reader)?))
            }
            0x82 => Signer::Itself,
            _ => return Err(reader.unknown_tag_error(TYPE_NAME, "a digest, a certificate or self")),
        };
        let (signature, _) = Signature::decode(reader)?;
        Ok(SignedMessage { hash, payload, header, signer, signature, to_be_signed })
    }
}

fn decode_payload<'a>(reader: &mut Reader<'a>) -> Result<Payload<'a>, Error> {
    const TYPE_NAME: &str = "SignedDataPayload";
    let present = reader.read_preamble(3, TYPE_NAME)?;
    if present & 0x80 != 0 || present & 0x60 == 0 {
        return Err(reader.unknown_tag_error(TYPE_NAME, "data or extDataHash"));
    }
    let mut payload = Payload::External;
    if present & 0x40 != 0 {
        if reader.read_u8("protocolVersion")? != PROTOCOL_VERSION {
            return Err(reader.unknown_tag_error("protocolVersion", "3"));
        }
        payload = match reader.read_tag("Ieee1609Dot2Data")? {
            0x80 => Payload::Data(reader.read_octets_with_length(0, usize::from(u16::MAX), TYPE_NAME)?),
            _ => return Err(reader.unknown_tag_error(TYPE_NAME, "unsecured data")),
        };
    }
    if present & 0x20 != 0 {
        let octets = match reader.read_tag("HashedData")? {
            0x80 => 32,
            0x81 => return reader.read_open_type("HashedData").map(|_| Payload::External),
            _ => return Err(reader.unknown_tag_error("HashedData", "a hash by SHA-256 or SHA-384")),
        };
        reader.take_octets(octets, "HashedData")?;
        // 5.2: the profile permits no hash of external data, not even together with data in the message.
        payload = Payload::External;
    }
    Ok(payload)
}

/// Encodes ToBeSignedData of a payload and its header; `requests` are the certificates that the signer lacks.
pub fn to_be_signed(payload: &[u8], header: &HeaderInfo<'_>, requests: &[HashedId3]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::with_capacity(payload.len() + 64));
    writer.write_octets(&[0x40, PROTOCOL_VERSION, 0x80]);
    writer.write_octets_with_length(payload);
    header.encode(&mut writer, requests.get(..MAX_REQUESTED_CERTIFICATES).unwrap_or(requests));
    writer.into_octets()
}

/// Returns the octets of a signed message.
pub fn emit_signed_message(to_be_signed: &[u8], signer: &Signer, signature: &Signature) -> Vec<u8> {
    let mut writer = Writer::new(Vec::with_capacity(to_be_signed.len() + 300));
    writer.write_octets(&[PROTOCOL_VERSION, 0x81]);
    signature.curve().hash().encode(&mut writer);
    writer.write_octets(to_be_signed);
    match signer {
        Signer::Digest(digest) => {
            writer.write_u8(0x80);
            writer.write_octets(&digest.0);
        }
        Signer::Certificate(certificate) => {
            writer.write_octets(&[0x81, 1, 1]);
            writer.write_octets(certificate.octets());
        }
        Signer::Itself => writer.write_u8(0x82),
    }
    signature.encode(&mut writer);
    writer.into_octets()
}
