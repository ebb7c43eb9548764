//! Curves, public keys and signatures in their form in messages (IEEE 1609.2 6.3.22 to 6.3.31, 6.4.36 to
//! 6.4.38).
//!
//! Points are compressed, and the r of a signature is only an x coordinate. Hashes cover this canonical form
//! (6.1.2), and TS 103 097 clause 5 requires it. If r arrives as a compressed point, the parser drops the
//! sign of its y coordinate. It rejects an uncompressed point.

use crate::coer::{Error, Reader, Writer};

/// An elliptic curve of the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EllipticCurve {
    /// NIST P-256.
    NistP256,
    /// brainpoolP256r1 (RFC 5639).
    BrainpoolP256r1,
    /// brainpoolP384r1 (RFC 5639).
    BrainpoolP384r1,
    /// NIST P-384.
    NistP384,
}

/// A hash algorithm of the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashAlgorithm {
    /// SHA-256, for curves of 256 bits.
    Sha256,
    /// SHA-384, for curves of 384 bits.
    Sha384,
}

impl HashAlgorithm {
    /// Returns the length of a hash, octets.
    pub const fn octets(self) -> usize {
        match self {
            HashAlgorithm::Sha256 => 32,
            HashAlgorithm::Sha384 => 48,
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<HashAlgorithm, Error> {
        match reader.read_tag("HashAlgorithm")? {
            0 => Ok(HashAlgorithm::Sha256),
            1 => Ok(HashAlgorithm::Sha384),
            _ => Err(reader.unknown_tag_error("HashAlgorithm", "sha256 or sha384")),
        }
    }

    pub(crate) fn encode(self, writer: &mut Writer) {
        writer.write_u8(match self {
            HashAlgorithm::Sha256 => 0,
            HashAlgorithm::Sha384 => 1,
        });
    }
}

impl EllipticCurve {
    /// Every curve, in the order of the tags of its CHOICE.
    pub const ALL: [EllipticCurve; 4] = [
        EllipticCurve::NistP256,
        EllipticCurve::BrainpoolP256r1,
        EllipticCurve::BrainpoolP384r1,
        EllipticCurve::NistP384,
    ];

    /// Returns the length of a coordinate or a scalar, octets.
    pub const fn octets(self) -> usize {
        self.hash().octets()
    }

    /// Returns the hash algorithm of the curve.
    pub const fn hash(self) -> HashAlgorithm {
        match self {
            EllipticCurve::NistP256 | EllipticCurve::BrainpoolP256r1 => HashAlgorithm::Sha256,
            EllipticCurve::BrainpoolP384r1 | EllipticCurve::NistP384 => HashAlgorithm::Sha384,
        }
    }

    /// Returns the name of the curve for display.
    pub const fn name(self) -> &'static str {
        match self {
            EllipticCurve::NistP256 => "NIST P-256",
            EllipticCurve::BrainpoolP256r1 => "brainpoolP256r1",
            EllipticCurve::BrainpoolP384r1 => "brainpoolP384r1",
            EllipticCurve::NistP384 => "NIST P-384",
        }
    }

    /// Returns the name of the curve in files and on command lines.
    pub const fn name_in_files(self) -> &'static str {
        match self {
            EllipticCurve::NistP256 => "nist-p256",
            EllipticCurve::BrainpoolP256r1 => "brainpoolp256r1",
            EllipticCurve::BrainpoolP384r1 => "brainpoolp384r1",
            EllipticCurve::NistP384 => "nist-p384",
        }
    }

    /// Returns the tag of the curve; the CHOICE types of keys and of signatures use the same tags. The
    /// 384-bit curves are later extensions.
    const fn tag(self) -> u8 {
        match self {
            EllipticCurve::NistP256 => 0x80,
            EllipticCurve::BrainpoolP256r1 => 0x81,
            EllipticCurve::BrainpoolP384r1 => 0x82,
            EllipticCurve::NistP384 => 0x83,
        }
    }

    const fn is_extension(self) -> bool {
        matches!(self, EllipticCurve::BrainpoolP384r1 | EllipticCurve::NistP384)
    }

    /// Reads the tag of a CHOICE, then calls `content` to read the value. The value of an extension is inside
    /// an open type.
    fn decode_choice<'a, T>(
        reader: &mut Reader<'a>,
        what: &'static str,
        content: impl FnOnce(&mut Reader<'a>, EllipticCurve, usize) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let tag = reader.read_tag(what)?;
        let curve = EllipticCurve::ALL.into_iter().find(|curve| curve.tag() == tag);
        let curve = curve.ok_or_else(|| reader.unknown_tag_error(what, "a curve of the profile"))?;
        if !curve.is_extension() {
            return content(reader, curve, 0);
        }
        let mut inside = reader.read_open_type(what)?;
        let base = reader.octets_read() - inside.remaining_octets();
        let value = content(&mut inside, curve, base)?;
        inside.expect_end()?;
        Ok(value)
    }

    fn write_choice(self, writer: &mut Writer, content: impl FnOnce(&mut Writer)) {
        writer.write_u8(self.tag());
        if self.is_extension() { writer.write_open_type(content) } else { content(writer) }
    }
}

/// A coordinate or scalar of at most 384 bits, big-endian, in the first octets; the curve gives the length.
type FieldOctets = [u8; 48];

fn to_field_octets(octets: &[u8]) -> FieldOctets {
    let mut field = [0; 48];
    for (to, from) in field.iter_mut().zip(octets) {
        *to = *from;
    }
    field
}

/// A public key: a compressed point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey {
    curve: EllipticCurve,
    is_odd: bool,
    x: FieldOctets,
}

impl PublicKey {
    /// Creates a key from a point in the compressed form of SEC 1 2.3.3: 2 or 3, then the x coordinate.
    /// Returns `None` for octets of another form or length.
    pub fn from_sec1(curve: EllipticCurve, octets: &[u8]) -> Option<PublicKey> {
        match octets.split_first() {
            Some((&sign @ 2..=3, x)) if x.len() == curve.octets() => {
                Some(PublicKey { curve, is_odd: sign == 3, x: to_field_octets(x) })
            }
            _ => None,
        }
    }

    /// Returns the point in the compressed form of SEC 1 2.3.3.
    pub fn to_sec1(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(1 + self.curve.octets());
        octets.push(2 + u8::from(self.is_odd));
        octets.extend_from_slice(self.x());
        octets
    }

    /// Returns the curve of the key.
    pub const fn curve(&self) -> EllipticCurve {
        self.curve
    }

    fn x(&self) -> &[u8] {
        self.x.get(..self.curve.octets()).unwrap_or_default()
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PublicKey, Error> {
        EllipticCurve::decode_choice(reader, "PublicVerificationKey", |reader, curve, _| {
            Self::decode_point(reader, curve)
        })
    }

    fn decode_point(reader: &mut Reader<'_>, curve: EllipticCurve) -> Result<PublicKey, Error> {
        const TYPE_NAME: &str = "EccCurvePoint";
        let odd = match reader.read_tag(TYPE_NAME)? {
            0x82 => false,
            0x83 => true,
            _ => return Err(reader.unknown_tag_error(TYPE_NAME, "a compressed point")),
        };
        Ok(PublicKey {
            curve,
            is_odd: odd,
            x: to_field_octets(reader.take_octets(curve.octets(), TYPE_NAME)?),
        })
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        self.curve.write_choice(writer, |writer| {
            writer.write_u8(0x82 + u8::from(self.is_odd));
            writer.write_octets(self.x());
        });
    }
}

/// A key with which other stations may encrypt (6.3.18), on a 256-bit curve for AES-128-CCM; carnet does not
/// encrypt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EncryptionKey(pub PublicKey);

impl EncryptionKey {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<EncryptionKey, Error> {
        if reader.read_tag("SymmAlgorithm")? != 0 {
            return Err(reader.unknown_tag_error("SymmAlgorithm", "aes128Ccm"));
        }
        let curve = match reader.read_tag("BasePublicEncryptionKey")? {
            0x80 => EllipticCurve::NistP256,
            0x81 => EllipticCurve::BrainpoolP256r1,
            _ => return Err(reader.unknown_tag_error("BasePublicEncryptionKey", "a curve of 256 bits")),
        };
        PublicKey::decode_point(reader, curve).map(EncryptionKey)
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.write_u8(0);
        // The CHOICE of encryption keys uses the same tags as the CHOICE of verification keys, but no open
        // types.
        self.0.encode(writer);
    }
}

/// An ECDSA signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature {
    curve: EllipticCurve,
    r: FieldOctets,
    s: FieldOctets,
}

impl Signature {
    /// Creates a signature from r followed by s, each with the length of the curve's scalars. Returns `None`
    /// for octets of another length.
    pub fn from_octets(curve: EllipticCurve, octets: &[u8]) -> Option<Signature> {
        let (r, s) = octets.split_at_checked(curve.octets())?;
        (s.len() == curve.octets()).then(|| Signature { curve, r: to_field_octets(r), s: to_field_octets(s) })
    }

    /// Returns r followed by s.
    pub fn to_octets(&self) -> Vec<u8> {
        let length = self.curve.octets();
        [self.r.get(..length).unwrap_or_default(), self.s.get(..length).unwrap_or_default()].concat()
    }

    /// Returns the curve of the signature.
    pub const fn curve(&self) -> EllipticCurve {
        self.curve
    }

    /// Reads a signature. Also returns the offset of the tag of r: if r is a compressed point, the canonical
    /// form of the message has another tag there.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<(Signature, usize), Error> {
        const TYPE_NAME: &str = "Signature";
        EllipticCurve::decode_choice(reader, TYPE_NAME, |reader, curve, base| {
            let at = base + reader.octets_read();
            if !matches!(reader.read_tag(TYPE_NAME)?, 0x80 | 0x82 | 0x83) {
                return Err(reader.unknown_tag_error(TYPE_NAME, "x-only or a compressed point"));
            }
            let r = to_field_octets(reader.take_octets(curve.octets(), TYPE_NAME)?);
            let s = to_field_octets(reader.take_octets(curve.octets(), TYPE_NAME)?);
            Ok((Signature { curve, r, s }, at))
        })
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        self.curve.write_choice(writer, |writer| {
            writer.write_u8(0x80);
            writer.write_octets(self.r.get(..self.curve.octets()).unwrap_or_default());
            writer.write_octets(self.s.get(..self.curve.octets()).unwrap_or_default());
        });
    }
}
