//! Permissions of a certificate: applications, and the content that its holder may sign (IEEE 1609.2 6.4.27
//! to 6.4.34).
//!
//! An application is a PSID (ETSI calls it ITS-AID). Within an application there are service specific
//! permissions, SSP. The SSP of ETSI are bitmaps (TS 103 097 7.2.1 and the messages' standards). A bitmap has
//! an octet with the version, then a bit for each kind of content. An authority has the ranges of SSP that it
//! may issue.

use std::fmt;

use crate::coer::{Error, Reader, Writer};

/// Number of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Psid(pub u64);

/// Defines the applications from one list: constant, number, name of the message, BTP ports.
macro_rules! applications {
    ($($constant:ident = $number:literal, $name:literal, [$($port:literal)*], $meaning:literal;)*) => {
        impl Psid {
            $(#[doc = concat!($name, ": ", $meaning, ".")]
            pub const $constant: Psid = Psid($number);)*

            /// Returns the application of a BTP port (TS 103 248); `None` if the register has none.
            pub const fn of_port(port: u16) -> Option<Psid> {
                match port {
                    $($($port => Some(Psid::$constant),)*)*
                    _ => None,
                }
            }

            /// Returns the usual name of the application's messages; `None` for an application that carnet
            /// does not know.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Psid::$constant => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}

// The applications of TS 102 965 V2.2.1 and of the register of ISO 5345.
applications! {
    CAM = 36, "CAM", [2001], "cooperative awareness";
    DENM = 37, "DENM", [2002], "decentralized environmental notification";
    SPATEM = 137, "SPATEM", [2004], "traffic light manoeuvre";
    MAPEM = 138, "MAPEM", [2003], "road and lane topology";
    IVIM = 139, "IVIM", [2006], "infrastructure to vehicle information";
    SREM = 140, "SREM", [2007], "traffic light control requests";
    GN_MGMT = 141, "GN-MGMT", [], "beacons, Location Service, IPv6, and what has no number of its own";
    CRL = 622, "CRLM", [2015], "certificate revocation lists";
    CERTIFICATE_REQUEST = 623, "EC/AT request", [2016], "secured certificate requests";
    CTL = 624, "CTLM", [2014], "certificate trust lists";
    SSEM = 637, "SSEM", [2008], "traffic light control status";
    VAM = 638, "VAM", [2018], "vulnerable road user awareness";
    CPM = 639, "CPM", [2009], "collective perception";
    IMZM = 640, "IMZM", [2019], "interference management zones";
    SAEM = 540_801, "SAEM", [2005], "service announcement";
    RTCMEM = 540_802, "RTCMEM", [2013], "GNSS corrections";
}

impl fmt::Display for Psid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Service specific permissions of an application.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ssp {
    /// Octets with a meaning that the application defines.
    Opaque(Vec<u8>),
    /// A bitmap: a version octet, then bits.
    Bitmap(Vec<u8>),
}

/// Largest length of an opaque SSP, octets.
const MAX_OPAQUE_SSP_LENGTH: usize = 255;
/// Largest length of a bitmap, octets (6.4.29a).
const MAX_BITMAP_LENGTH: usize = 31;
/// Largest number of applications in a certificate (test purpose TC_SEC_SND_CERT_AA_08_01).
pub const MAX_APPLICATIONS: usize = 31;

/// An application for which a certificate's holder may sign messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PsidSsp {
    /// The application.
    pub psid: Psid,
    /// Permitted content; with `None`, only content that needs no permission.
    pub ssp: Option<Ssp>,
}

impl PsidSsp {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PsidSsp, Error> {
        const TYPE_NAME: &str = "PsidSsp";
        let has_ssp = reader.read_preamble(1, TYPE_NAME)? != 0;
        let psid = Psid(reader.read_unsigned("Psid")?);
        if !has_ssp {
            return Ok(PsidSsp { psid, ssp: None });
        }
        let ssp = match reader.read_tag("ServiceSpecificPermissions")? {
            0x80 => {
                Ssp::Opaque(reader.read_octets_with_length(0, MAX_OPAQUE_SSP_LENGTH, TYPE_NAME)?.to_vec())
            }
            0x81 => {
                let mut inside = reader.read_open_type(TYPE_NAME)?;
                let bits = inside.read_octets_with_length(0, MAX_BITMAP_LENGTH, "BitmapSsp")?.to_vec();
                inside.expect_end()?;
                Ssp::Bitmap(bits)
            }
            _ => return Err(reader.unknown_tag_error(TYPE_NAME, "an opaque SSP or a bitmap")),
        };
        Ok(PsidSsp { psid, ssp: Some(ssp) })
    }

    pub(crate) fn encode(writer: &mut Writer, value: &PsidSsp) {
        writer.write_u8(if value.ssp.is_some() { 0x80 } else { 0 });
        writer.write_unsigned(value.psid.0);
        match &value.ssp {
            None => {}
            Some(Ssp::Opaque(octets)) => {
                writer.write_u8(0x80);
                writer.write_octets_with_length(octets);
            }
            Some(Ssp::Bitmap(bits)) => {
                writer.write_u8(0x81);
                writer.write_open_type(|writer| writer.write_octets_with_length(bits));
            }
        }
    }
}

/// Range of SSP that an authority may issue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SspRange {
    /// The listed opaque SSP.
    Opaque(Vec<Vec<u8>>),
    /// Any SSP.
    All,
    /// All bitmaps that equal `value` in the bits that are 1 in `mask`.
    Bitmap {
        /// Values of the bits.
        value: Vec<u8>,
        /// Bits that must equal `value`.
        mask: Vec<u8>,
    },
}

impl SspRange {
    fn decode(reader: &mut Reader<'_>) -> Result<SspRange, Error> {
        const TYPE_NAME: &str = "SspRange";
        Ok(match reader.read_tag(TYPE_NAME)? {
            0x80 => SspRange::Opaque(reader.read_list(1, 32, TYPE_NAME, |reader| {
                reader.read_octets_with_length(0, MAX_OPAQUE_SSP_LENGTH, TYPE_NAME).map(<[u8]>::to_vec)
            })?),
            0x81 => SspRange::All,
            0x82 => {
                let mut inside = reader.read_open_type(TYPE_NAME)?;
                let value = inside.read_octets_with_length(1, 32, "sspValue")?.to_vec();
                let mask = inside.read_octets_with_length(1, 32, "sspBitmask")?.to_vec();
                inside.expect_end()?;
                SspRange::Bitmap { value, mask }
            }
            _ => return Err(reader.unknown_tag_error(TYPE_NAME, "opaque, all or a bitmap")),
        })
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            SspRange::Opaque(list) => {
                writer.write_u8(0x80);
                writer.write_list(list, |writer, octets| writer.write_octets_with_length(octets));
            }
            SspRange::All => writer.write_u8(0x81),
            SspRange::Bitmap { value, mask } => {
                writer.write_u8(0x82);
                writer.write_open_type(|writer| {
                    writer.write_octets_with_length(value);
                    writer.write_octets_with_length(mask);
                });
            }
        }
    }

    /// Returns whether an SSP is in the range (6.4.34).
    fn permits_ssp(&self, ssp: Option<&Ssp>) -> bool {
        match (self, ssp) {
            (SspRange::All, _) => true,
            (SspRange::Opaque(list), Some(Ssp::Opaque(octets))) => list.contains(octets),
            (SspRange::Bitmap { value, mask }, Some(Ssp::Bitmap(bits))) => {
                bits.len() == value.len()
                    && value.len() == mask.len()
                    && bits.iter().zip(value).zip(mask).all(|((bit, value), mask)| bit & mask == value & mask)
            }
            // 6.4.34: an absent SSP is in a range that contains the empty SSP.
            (SspRange::Opaque(list), None) => list.iter().any(Vec::is_empty),
            _ => false,
        }
    }

    /// Returns whether every SSP of this range is also in the issuer's range.
    fn is_within(&self, issuer: &SspRange) -> bool {
        match (self, issuer) {
            (_, SspRange::All) => true,
            (SspRange::Opaque(mine), SspRange::Opaque(theirs)) => {
                mine.iter().all(|octets| theirs.contains(octets))
            }
            (SspRange::Bitmap { value, mask }, SspRange::Bitmap { value: their_value, mask: their_mask }) => {
                value.len() == their_value.len()
                    && mask.len() == their_mask.len()
                    // A bit that the issuer's mask fixes must be fixed in this range, too, and to the same
                    // value.
                    && mask.iter().zip(their_mask).all(|(mine, theirs)| mine & theirs == *theirs)
                    && value
                        .iter()
                        .zip(their_value)
                        .zip(their_mask)
                        .all(|((a, b), mask)| a & mask == b & mask)
            }
            _ => false,
        }
    }
}

/// An application that an authority may issue, with its range of SSP.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PsidSspRange {
    /// The application.
    pub application_psid: Psid,
    /// Range of permitted SSP; `None` permits any SSP. IEEE 1609.2-2022 (`Ieee1609Dot2BaseTypes`,
    /// PsidSspRange) says: "If sspRange is omitted, the holder may issue or request certificates for any SSP
    /// for that PSID". Its note at SspRange prefers the omission to an explicit `all`. In drafts before the
    /// edition of 2016, the omission meant only the default SSP.
    pub range: Option<SspRange>,
}

impl PsidSspRange {
    fn range(&self) -> &SspRange {
        self.range.as_ref().unwrap_or(&SspRange::All)
    }
}

/// Applications for which an authority may issue certificates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SubjectPermissions {
    /// The listed applications.
    Explicit(Vec<PsidSspRange>),
    /// All permissions that the authority's own issuer has; for a root, any permission.
    All,
}

/// Permissions that an authority may give in the certificates that it issues, and the permitted length of the
/// chain below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PsidGroupPermissions {
    /// Applications that the permissions cover.
    pub subject: SubjectPermissions,
    /// Smallest permitted number of certificates in the chain below the authority's certificate, including
    /// the end entity's. The number is 1 if the authority issues tickets itself.
    pub min_chain_length: u8,
    /// Number of certificates by which the chain may be longer than `min_chain_length`; 255 (-1 in the
    /// octets) for any number.
    pub chain_length_range: u8,
    /// Permitted use of the end entity's certificate: to sign messages (0x80), to enrol (0x40), or both.
    pub end_entity_types: u8,
}

/// [`PsidGroupPermissions::end_entity_types`]: for certificates that sign messages.
pub const END_ENTITY_APP: u8 = 0x80;
/// [`PsidGroupPermissions::end_entity_types`]: for certificates that request other certificates.
pub const END_ENTITY_ENROL: u8 = 0x40;

impl PsidGroupPermissions {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PsidGroupPermissions, Error> {
        const TYPE_NAME: &str = "PsidGroupPermissions";
        let present = reader.read_preamble(3, TYPE_NAME)?;
        let subject = match reader.read_tag("SubjectPermissions")? {
            0x80 => {
                SubjectPermissions::Explicit(reader.read_list(1, MAX_APPLICATIONS, TYPE_NAME, |reader| {
                    let has_range = reader.read_preamble(1, "PsidSspRange")? != 0;
                    let psid = Psid(reader.read_unsigned("Psid")?);
                    let range = if has_range { Some(SspRange::decode(reader)?) } else { None };
                    Ok(PsidSspRange { application_psid: psid, range })
                })?)
            }
            0x81 => SubjectPermissions::All,
            _ => return Err(reader.unknown_tag_error(TYPE_NAME, "explicit or all")),
        };
        let min_chain_length =
            if present & 0x80 != 0 { reader.read_small_integer(0, 8, "minChainLength")? } else { 1 };
        let chain_length_range = if present & 0x40 != 0 {
            match *reader.read_octets_with_length(1, 8, "chainLengthRange")? {
                [unbounded @ 0xff] => unbounded,
                [range] if range <= 8 => range,
                _ => return Err(reader.unknown_tag_error("chainLengthRange", "-1 to 8")),
            }
        } else {
            0
        };
        let end_entity_types = if present & 0x20 != 0 { reader.read_u8("eeType")? } else { END_ENTITY_APP };
        let value = PsidGroupPermissions { subject, min_chain_length, chain_length_range, end_entity_types };
        // X.696 16: a default value must not be encoded.
        if value.preamble_bits() != present {
            return Err(Error::NotCanonical { what: TYPE_NAME, at: reader.octets_read() });
        }
        Ok(value)
    }

    const fn preamble_bits(&self) -> u8 {
        (if self.min_chain_length != 1 { 0x80 } else { 0 })
            | (if self.chain_length_range != 0 { 0x40 } else { 0 })
            | (if self.end_entity_types != END_ENTITY_APP { 0x20 } else { 0 })
    }

    pub(crate) fn encode(writer: &mut Writer, value: &PsidGroupPermissions) {
        let present = value.preamble_bits();
        writer.write_u8(present);
        match &value.subject {
            SubjectPermissions::Explicit(list) => {
                writer.write_u8(0x80);
                writer.write_list(list, |writer, item| {
                    writer.write_u8(if item.range.is_some() { 0x80 } else { 0 });
                    writer.write_unsigned(item.application_psid.0);
                    if let Some(range) = &item.range {
                        range.encode(writer);
                    }
                });
            }
            SubjectPermissions::All => writer.write_u8(0x81),
        }
        if present & 0x80 != 0 {
            writer.write_octets_with_length(&[value.min_chain_length]);
        }
        if present & 0x40 != 0 {
            writer.write_octets_with_length(&[value.chain_length_range]);
        }
        if present & 0x20 != 0 {
            writer.write_u8(value.end_entity_types);
        }
    }

    /// Returns whether the permissions cover certificates `distance` steps below the authority's; 1 is the
    /// certificate of an end entity.
    const fn covers_distance(&self, distance: u8) -> bool {
        self.min_chain_length <= distance
            && distance <= self.min_chain_length.saturating_add(self.chain_length_range)
    }

    fn range_of(&self, psid: Psid) -> Option<&SspRange> {
        match &self.subject {
            SubjectPermissions::All => Some(&SspRange::All),
            SubjectPermissions::Explicit(list) => {
                list.iter().find(|item| item.application_psid == psid).map(PsidSspRange::range)
            }
        }
    }
}

/// Returns whether an issuer may give these permissions to a certificate that signs messages (5.1.2.4).
pub fn permits_applications(issuer: &[PsidGroupPermissions], applications: &[PsidSsp]) -> bool {
    applications.iter().all(|application| {
        issuer.iter().any(|group| {
            group.covers_distance(1)
                && group.end_entity_types & END_ENTITY_APP != 0
                && group
                    .range_of(application.psid)
                    .is_some_and(|range| range.permits_ssp(application.ssp.as_ref()))
        })
    })
}

/// Returns whether an issuer may give these issuing permissions to an authority (5.1.2.4). Each permission
/// must be one of the issuer's own, with a chain that is shorter by one.
pub fn permits_issuing(issuer: &[PsidGroupPermissions], groups: &[PsidGroupPermissions]) -> bool {
    groups.iter().all(|group| {
        issuer.iter().any(|above| {
            let most = group.min_chain_length.saturating_add(group.chain_length_range).saturating_add(1);
            above.covers_distance(group.min_chain_length.saturating_add(1))
                && above.covers_distance(most)
                && group.end_entity_types & !above.end_entity_types == 0
                && match &group.subject {
                    SubjectPermissions::All => above.subject == SubjectPermissions::All,
                    SubjectPermissions::Explicit(list) => list.iter().all(|item| {
                        above
                            .range_of(item.application_psid)
                            .is_some_and(|theirs| item.range().is_within(theirs))
                    }),
                }
        })
    })
}
