//! The extended headers (clause 9.8): the fields that depend on the type of packet.

use super::fields::{field_at, set_field_at};
use super::{Error, GeoArea, GeoAreaShape, GnAddress, HeaderType, LongPositionVector, ShortPositionVector};

/// Extended header, by type of packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExtendedHeader {
    /// Beacon (clause 9.8.6), 24 octets.
    Beacon {
        /// SO PV: position vector of the source.
        source: LongPositionVector,
    },
    /// SHB (clause 9.8.4), 28 octets.
    SingleHop {
        /// SO PV: position vector of the source.
        source: LongPositionVector,
        /// Octets of the access layer (EN 302 636-4-2: channel load and power); zero on access layers other
        /// than ITS-G5.
        media_dependent: [u8; 4],
    },
    /// TSB (clause 9.8.3), 28 octets.
    TopologicallyScoped {
        /// SN: sequence number of the packet.
        sequence: u16,
        /// SO PV: position vector of the source.
        source: LongPositionVector,
    },
    /// GUC (clause 9.8.2), 48 octets.
    GeoUnicast {
        /// SN: sequence number of the packet.
        sequence: u16,
        /// SO PV: position vector of the source.
        source: LongPositionVector,
        /// DE PV: position vector of the destination.
        destination: ShortPositionVector,
    },
    /// GBC (clause 9.8.5), 44 octets.
    GeoBroadcast {
        /// SN: sequence number of the packet.
        sequence: u16,
        /// SO PV: position vector of the source.
        source: LongPositionVector,
        /// Destination area: all stations in the area are destinations.
        area: GeoArea,
    },
    /// GAC (clause 9.8.5), 44 octets.
    GeoAnycast {
        /// SN: sequence number of the packet.
        sequence: u16,
        /// SO PV: position vector of the source.
        source: LongPositionVector,
        /// Destination area: any station in it is the destination.
        area: GeoArea,
    },
    /// Location Service request (clause 9.8.7), 36 octets.
    LocationServiceRequest {
        /// SN: sequence number of the packet.
        sequence: u16,
        /// SO PV: position vector of the source.
        source: LongPositionVector,
        /// Address of the station whose position the requester seeks.
        request: GnAddress,
    },
    /// Location Service reply (clause 9.8.8), 48 octets.
    LocationServiceReply {
        /// SN: sequence number of the packet.
        sequence: u16,
        /// SO PV: the position of the requested station.
        source: LongPositionVector,
        /// DE PV: the position of the requester.
        destination: ShortPositionVector,
    },
}

impl ExtendedHeader {
    /// Reads the extended header of `header_type` from the octets behind the Common Header.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer octets than the type requires, [`Error::HeaderType`] for
    /// [`HeaderType::Any`] and [`HeaderType::Unknown`].
    pub fn parse(header_type: HeaderType, octets: &[u8]) -> Result<ExtendedHeader, Error> {
        Ok(match header_type {
            HeaderType::Beacon => {
                let octets = first_octets::<24>(octets, "beacon header")?;
                ExtendedHeader::Beacon { source: LongPositionVector::from_octets(octets) }
            }
            HeaderType::SingleHop => {
                let octets = first_octets::<28>(octets, "SHB header")?;
                ExtendedHeader::SingleHop {
                    source: LongPositionVector::from_octets(&field_at::<0, 24, 28>(octets)),
                    media_dependent: field_at::<24, 4, 28>(octets),
                }
            }
            HeaderType::TopologicallyScoped => {
                let octets = first_octets::<28>(octets, "TSB header")?;
                let (sequence, source) = sequence_and_source(octets);
                ExtendedHeader::TopologicallyScoped { sequence, source }
            }
            HeaderType::GeoUnicast => {
                let octets = first_octets::<48>(octets, "GUC header")?;
                let (sequence, source) = sequence_and_source(octets);
                let destination = ShortPositionVector::from_octets(&field_at::<28, 20, 48>(octets));
                ExtendedHeader::GeoUnicast { sequence, source, destination }
            }
            HeaderType::GeoBroadcast(shape) => {
                let octets = first_octets::<44>(octets, "GBC header")?;
                let (sequence, source) = sequence_and_source(octets);
                ExtendedHeader::GeoBroadcast { sequence, source, area: parse_area(shape, octets) }
            }
            HeaderType::GeoAnycast(shape) => {
                let octets = first_octets::<44>(octets, "GAC header")?;
                let (sequence, source) = sequence_and_source(octets);
                ExtendedHeader::GeoAnycast { sequence, source, area: parse_area(shape, octets) }
            }
            HeaderType::LocationServiceRequest => {
                let octets = first_octets::<36>(octets, "LS request header")?;
                let (sequence, source) = sequence_and_source(octets);
                let request = GnAddress(u64::from_be_bytes(field_at::<28, 8, 36>(octets)));
                ExtendedHeader::LocationServiceRequest { sequence, source, request }
            }
            HeaderType::LocationServiceReply => {
                let octets = first_octets::<48>(octets, "LS reply header")?;
                let (sequence, source) = sequence_and_source(octets);
                let destination = ShortPositionVector::from_octets(&field_at::<28, 20, 48>(octets));
                ExtendedHeader::LocationServiceReply { sequence, source, destination }
            }
            HeaderType::Any | HeaderType::Unknown(_) => {
                return Err(Error::HeaderType {
                    expected: "1/0, 2/0, 3/0 to 3/2, 4/0 to 4/2, 5/0, 5/1, 6/0 or 6/1",
                    found: header_type,
                });
            }
        })
    }

    /// Returns the length of the header, octets.
    #[expect(clippy::len_without_is_empty, reason = "no extended header is empty")]
    pub const fn len(&self) -> usize {
        match self {
            ExtendedHeader::Beacon { .. } => 24,
            ExtendedHeader::SingleHop { .. } | ExtendedHeader::TopologicallyScoped { .. } => 28,
            ExtendedHeader::LocationServiceRequest { .. } => 36,
            ExtendedHeader::GeoBroadcast { .. } | ExtendedHeader::GeoAnycast { .. } => 44,
            ExtendedHeader::GeoUnicast { .. } | ExtendedHeader::LocationServiceReply { .. } => 48,
        }
    }

    /// HT and HST of the header.
    pub const fn header_type(&self) -> HeaderType {
        match self {
            ExtendedHeader::Beacon { .. } => HeaderType::Beacon,
            ExtendedHeader::SingleHop { .. } => HeaderType::SingleHop,
            ExtendedHeader::TopologicallyScoped { .. } => HeaderType::TopologicallyScoped,
            ExtendedHeader::GeoUnicast { .. } => HeaderType::GeoUnicast,
            ExtendedHeader::GeoBroadcast { area, .. } => HeaderType::GeoBroadcast(area.shape),
            ExtendedHeader::GeoAnycast { area, .. } => HeaderType::GeoAnycast(area.shape),
            ExtendedHeader::LocationServiceRequest { .. } => HeaderType::LocationServiceRequest,
            ExtendedHeader::LocationServiceReply { .. } => HeaderType::LocationServiceReply,
        }
    }

    /// SO PV: position vector of the source; every type has this field.
    pub const fn source(&self) -> &LongPositionVector {
        match self {
            ExtendedHeader::Beacon { source }
            | ExtendedHeader::SingleHop { source, .. }
            | ExtendedHeader::TopologicallyScoped { source, .. }
            | ExtendedHeader::GeoUnicast { source, .. }
            | ExtendedHeader::GeoBroadcast { source, .. }
            | ExtendedHeader::GeoAnycast { source, .. }
            | ExtendedHeader::LocationServiceRequest { source, .. }
            | ExtendedHeader::LocationServiceReply { source, .. } => source,
        }
    }

    /// SN: sequence number; `None` for beacons and SHB, which have none.
    pub const fn sequence(&self) -> Option<u16> {
        match self {
            ExtendedHeader::Beacon { .. } | ExtendedHeader::SingleHop { .. } => None,
            ExtendedHeader::TopologicallyScoped { sequence, .. }
            | ExtendedHeader::GeoUnicast { sequence, .. }
            | ExtendedHeader::GeoBroadcast { sequence, .. }
            | ExtendedHeader::GeoAnycast { sequence, .. }
            | ExtendedHeader::LocationServiceRequest { sequence, .. }
            | ExtendedHeader::LocationServiceReply { sequence, .. } => Some(*sequence),
        }
    }

    /// DE PV: position vector of the destination of a GUC or LS reply; `None` for other types.
    pub const fn destination(&self) -> Option<&ShortPositionVector> {
        match self {
            ExtendedHeader::GeoUnicast { destination, .. }
            | ExtendedHeader::LocationServiceReply { destination, .. } => Some(destination),
            _ => None,
        }
    }

    /// Area of a GBC or GAC; `None` for other types.
    pub const fn area(&self) -> Option<&GeoArea> {
        match self {
            ExtendedHeader::GeoBroadcast { area, .. } | ExtendedHeader::GeoAnycast { area, .. } => Some(area),
            _ => None,
        }
    }

    /// Returns a buffer with room for the longest header, and the length of this header.
    pub(super) fn to_octets(self) -> ([u8; 48], usize) {
        let mut octets = [0; 48];
        match self {
            ExtendedHeader::Beacon { source } => set_field_at::<0, 24, 48>(&mut octets, source.to_octets()),
            ExtendedHeader::SingleHop { source, media_dependent } => {
                set_field_at::<0, 24, 48>(&mut octets, source.to_octets());
                set_field_at::<24, 4, 48>(&mut octets, media_dependent);
            }
            ExtendedHeader::TopologicallyScoped { sequence, source } => {
                write_sequence_and_source(&mut octets, sequence, &source);
            }
            ExtendedHeader::GeoUnicast { sequence, source, destination }
            | ExtendedHeader::LocationServiceReply { sequence, source, destination } => {
                write_sequence_and_source(&mut octets, sequence, &source);
                set_field_at::<28, 20, 48>(&mut octets, destination.to_octets());
            }
            ExtendedHeader::GeoBroadcast { sequence, source, area }
            | ExtendedHeader::GeoAnycast { sequence, source, area } => {
                write_sequence_and_source(&mut octets, sequence, &source);
                set_field_at::<28, 4, 48>(&mut octets, area.latitude.to_be_bytes());
                set_field_at::<32, 4, 48>(&mut octets, area.longitude.to_be_bytes());
                set_field_at::<36, 2, 48>(&mut octets, area.distance_a.to_be_bytes());
                set_field_at::<38, 2, 48>(&mut octets, area.distance_b.to_be_bytes());
                set_field_at::<40, 2, 48>(&mut octets, area.angle.to_be_bytes());
            }
            ExtendedHeader::LocationServiceRequest { sequence, source, request } => {
                write_sequence_and_source(&mut octets, sequence, &source);
                set_field_at::<28, 8, 48>(&mut octets, request.0.to_be_bytes());
            }
        }
        (octets, self.len())
    }
}

fn first_octets<'a, const N: usize>(octets: &'a [u8], what: &'static str) -> Result<&'a [u8; N], Error> {
    octets.first_chunk().ok_or(Error::Truncated { what, needed: N, found: octets.len() })
}

/// Reads SN, two reserved octets and SO PV: the beginning of every header with a sequence number.
fn sequence_and_source<const L: usize>(octets: &[u8; L]) -> (u16, LongPositionVector) {
    let sequence = u16::from_be_bytes(field_at::<0, 2, L>(octets));
    (sequence, LongPositionVector::from_octets(&field_at::<4, 24, L>(octets)))
}

fn write_sequence_and_source(octets: &mut [u8; 48], sequence: u16, source: &LongPositionVector) {
    set_field_at::<0, 2, 48>(octets, sequence.to_be_bytes());
    set_field_at::<4, 24, 48>(octets, source.to_octets());
}

fn parse_area(shape: GeoAreaShape, octets: &[u8; 44]) -> GeoArea {
    GeoArea {
        shape,
        latitude: i32::from_be_bytes(field_at::<28, 4, 44>(octets)),
        longitude: i32::from_be_bytes(field_at::<32, 4, 44>(octets)),
        distance_a: u16::from_be_bytes(field_at::<36, 2, 44>(octets)),
        distance_b: u16::from_be_bytes(field_at::<38, 2, 44>(octets)),
        angle: u16::from_be_bytes(field_at::<40, 2, 44>(octets)),
    }
}
