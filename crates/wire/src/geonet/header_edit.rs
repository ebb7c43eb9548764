//! Changes of a forwarder to a received packet (clauses 10.3.8 to 10.3.12).
//!
//! The functions change RHL and LT of any packet, also of a secured one, because both fields are in the Basic
//! Header. They change the DE PV of a GUC or an LS reply if the destination is a neighbour with a newer
//! position (annex C.3). All functions take the octets behind the EtherType. A function that fails leaves the
//! octets unchanged.

use super::{
    BasicHeader, BasicNextHeader, CommonHeader, Error, HeaderType, Lifetime, LongPositionVector,
    ShortPositionVector,
};

/// Writes RHL, the remaining hop limit.
///
/// # Errors
/// [`Error::Truncated`] if the packet is shorter than a Basic Header.
pub fn set_remaining_hop_limit(packet: &mut [u8], remaining_hop_limit: u8) -> Result<(), Error> {
    let [_, _, _, field] = basic_header_mut(packet)?;
    *field = remaining_hop_limit;
    Ok(())
}

/// Writes LT, the lifetime.
///
/// # Errors
/// [`Error::Truncated`] if the packet is shorter than a Basic Header.
pub fn set_lifetime(packet: &mut [u8], lifetime: Lifetime) -> Result<(), Error> {
    let [_, _, field, _] = basic_header_mut(packet)?;
    *field = lifetime.0;
    Ok(())
}

/// Offset of DE PV in a GUC or an LS reply: behind the two headers, SN, two reserved octets and SO PV.
const DESTINATION_OFFSET: usize = BasicHeader::LEN + CommonHeader::LEN + 4 + LongPositionVector::LEN;

/// Writes DE PV of a GUC or an LS reply. The function refuses a secured packet, because the signature covers
/// DE PV.
///
/// # Errors
/// [`Error::Version`], [`Error::Secured`] and [`Error::BasicNextHeader`] as in [`super::Packet::parse`];
/// [`Error::HeaderType`] for a packet without DE PV; [`Error::Truncated`] if the packet ends before DE PV.
pub fn set_destination(packet: &mut [u8], destination: &ShortPositionVector) -> Result<(), Error> {
    match BasicHeader::parse(packet)?.next_header {
        BasicNextHeader::Any | BasicNextHeader::Common => {}
        BasicNextHeader::Secured => return Err(Error::Secured),
        BasicNextHeader::Unknown(found) => return Err(Error::BasicNextHeader { found }),
    }
    let common = CommonHeader::parse(packet.get(BasicHeader::LEN..).unwrap_or_default())?;
    match common.header_type {
        HeaderType::GeoUnicast | HeaderType::LocationServiceReply => {}
        found => return Err(Error::HeaderType { expected: "2/0 or 6/1", found }),
    }
    let found = packet.len();
    let field = packet.get_mut(DESTINATION_OFFSET..DESTINATION_OFFSET + ShortPositionVector::LEN);
    let field = field.ok_or(Error::Truncated {
        what: "destination position vector",
        needed: DESTINATION_OFFSET + ShortPositionVector::LEN,
        found,
    })?;
    field.copy_from_slice(&destination.to_octets());
    Ok(())
}

fn basic_header_mut(packet: &mut [u8]) -> Result<&mut [u8; 4], Error> {
    let found = packet.len();
    packet.first_chunk_mut().ok_or(Error::Truncated { what: "basic header", needed: BasicHeader::LEN, found })
}
