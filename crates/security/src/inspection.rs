//! Checks of a secured packet that need no cryptography (TS 103 097 clauses 5.2 and 7.1). The checks read the
//! packet in place. They find most faults, and take a thousandth of the time of verifying a signature.

use std::time::Duration;

use carnet_geonet::geodesy::{Position, is_inside};
use carnet_wire::btp;
use carnet_wire::geonet::{BasicHeader, CommonNextHeader, ExtendedHeader, Packet};

use crate::SecurityDrop;
use crate::config::SecurityConfig;
use crate::message::{self, Envelope, Payload, SignedMessage, Signer};
use crate::permissions::Psid;
use crate::queue::MessageRank;
use crate::time::Time64;

/// A secured packet that has passed the checks.
#[derive(Debug)]
pub struct CheckedMessage<'a> {
    /// The signed message, with its signer.
    pub message: SignedMessage<'a>,
    /// The packet in the signed message.
    pub packet: Packet<'a>,
    /// Octets of the packet from the Common Header on.
    pub plain_packet: &'a [u8],
    /// Length of the frame without padding, octets.
    pub frame_length: usize,
    /// Generation time of the message.
    pub generation_time: Time64,
    /// Generation location, or the position of the packet's source.
    pub generation_position: Position,
}

/// Returns the application of a packet (TS 102 965). The packet's signer needs the permission for this
/// application only.
pub fn application_of_packet(packet: &Packet<'_>) -> Psid {
    application_of_payload(packet.common.next_header, packet.payload)
}

/// Returns the application of a payload, which includes the BTP header.
pub fn application_of_payload(next_header: CommonNextHeader, payload: &[u8]) -> Psid {
    let port = match next_header {
        CommonNextHeader::BtpA => btp::BtpA::parse(payload).ok().map(|(header, _)| header.destination_port),
        CommonNextHeader::BtpB => btp::BtpB::parse(payload).ok().map(|(header, _)| header.destination_port),
        _ => None,
    };
    // GN_MGMT is the application of beacons, the Location Service, IPv6, and ports without an application of
    // their own.
    port.and_then(Psid::of_port).unwrap_or(Psid::GN_MGMT)
}

/// Returns the message behind the BTP header.
pub fn facilities_message(payload: &[u8]) -> &[u8] {
    payload.get(btp::LEN..).unwrap_or_default()
}

/// Returns whether a packet is sent over a single hop. Then no station forwards it, and a second copy is a
/// replay.
pub const fn is_single_hop(packet: &Packet<'_>) -> bool {
    matches!(packet.extended, ExtendedHeader::Beacon { .. } | ExtendedHeader::SingleHop { .. })
}

/// Reads the octets behind the EtherType, and makes the checks that need no cryptography.
///
/// # Errors
/// The first fault of the packet.
pub fn check_frame<'a>(
    config: &SecurityConfig,
    octets: &'a [u8],
    now: Time64,
    own: Option<Position>,
) -> Result<CheckedMessage<'a>, SecurityDrop> {
    let basic = BasicHeader::parse(octets).map_err(|_| SecurityDrop::BadPacket)?;
    let envelope = octets.get(BasicHeader::LEN..).unwrap_or_default();
    if message::version(envelope).is_some_and(|version| version != message::PROTOCOL_VERSION) {
        return Err(SecurityDrop::WrongVersion);
    }
    let (envelope, length) = Envelope::parse_at_front(envelope)?;
    let length = BasicHeader::LEN + length;
    let message = match envelope {
        Envelope::Signed(message) => *message,
        Envelope::Unsecured(_) => return Err(SecurityDrop::UnsecuredEnvelope),
        Envelope::Encrypted => return Err(SecurityDrop::Encrypted),
        Envelope::CertificateRequest => return Err(SecurityDrop::NotInProfile),
    };
    let inside = match message.payload {
        Payload::External => return Err(SecurityDrop::ExternalPayload),
        Payload::Data([]) => return Err(SecurityDrop::EmptyPayload),
        Payload::Data(inside) => inside,
    };
    if message.signer == Signer::Itself {
        return Err(SecurityDrop::SelfSigned);
    }
    if message.hash != message.signature.curve().hash() {
        return Err(SecurityDrop::AlgorithmMismatch);
    }
    let packet = Packet::parse_after_basic(basic, inside).map_err(|_| SecurityDrop::BadPacket)?;
    let header = &message.header;
    if header.has_forbidden_field {
        return Err(SecurityDrop::ForbiddenHeader);
    }
    let made = header.generation_time.ok_or(SecurityDrop::NoGenerationTime)?;
    if header.psid != application_of_packet(&packet) {
        return Err(SecurityDrop::WrongApplication);
    }
    check_profile(&message)?;
    check_age(config, &packet, made, now)?;
    if header.expiry_time.is_some_and(|expiry| expiry <= now || expiry <= made) {
        return Err(SecurityDrop::Expired);
    }
    let source = packet.extended.source();
    let source_place = Position::new(source.latitude, source.longitude);
    let place = match &header.generation_location {
        Some(location) if !location.position.is_on_earth() => return Err(SecurityDrop::NoGenerationLocation),
        Some(location) => location.position,
        None => source_place,
    };
    if !place.is_on_earth()
        || !source_place.is_on_earth()
        || place.distance_to(source_place) > config.max_displacement
    {
        return Err(SecurityDrop::ImplausiblePosition);
    }
    check_position_time(config, &packet, made)?;
    if let Some(own) = own
        && is_single_hop(&packet)
        && own.distance_to(source_place) > config.max_single_hop_range
    {
        return Err(SecurityDrop::TooFarAway);
    }
    Ok(CheckedMessage {
        message,
        packet,
        plain_packet: inside,
        frame_length: length,
        generation_time: made,
        generation_position: place,
    })
}

/// Checks the profiles of CAM, DENM and other messages (TS 103 097 7.1.1 to 7.1.3).
fn check_profile(message: &SignedMessage<'_>) -> Result<(), SecurityDrop> {
    let header = &message.header;
    let psid = header.psid;
    if psid == Psid::DENM {
        if header.generation_location.is_none() {
            return Err(SecurityDrop::NoGenerationLocation);
        }
        if !matches!(message.signer, Signer::Certificate(_)) {
            return Err(SecurityDrop::NoCertificate);
        }
    }
    let unexpected = match psid {
        Psid::CAM => header.generation_location.is_some() || header.expiry_time.is_some(),
        Psid::DENM => !header.inline_requests.is_empty() || header.requested_certificate.is_some(),
        _ => false,
    };
    let answerable = header.encryption_key.is_some() && matches!(psid, Psid::CAM | Psid::DENM);
    if unexpected || answerable { Err(SecurityDrop::UnexpectedHeader) } else { Ok(()) }
}

fn check_age(
    config: &SecurityConfig,
    packet: &Packet<'_>,
    made: Time64,
    now: Time64,
) -> Result<(), SecurityDrop> {
    let most = if is_single_hop(packet) { config.max_single_hop_age } else { config.max_age };
    if now.saturating_since(made) > most {
        return Err(SecurityDrop::TooOld);
    }
    if made > now.saturating_add(config.max_clock_lead) {
        return Err(SecurityDrop::FromTheFuture);
    }
    Ok(())
}

/// Checks that the time of the source's position is before the generation time. The difference must not
/// exceed the time that a packet may wait at its source.
fn check_position_time(
    config: &SecurityConfig,
    packet: &Packet<'_>,
    made: Time64,
) -> Result<(), SecurityDrop> {
    let signed = carnet_wire::geonet::Timestamp((made.0 / 1000) as u32);
    let waited = signed.milliseconds_since(packet.extended.source().timestamp);
    let tolerance = config.max_position_age.as_millis() as i64;
    let most = if is_single_hop(packet) { Duration::ZERO } else { config.max_age };
    if (-tolerance..=tolerance + most.as_millis() as i64).contains(&waited) {
        Ok(())
    } else {
        Err(SecurityDrop::ImplausibleTime)
    }
}

/// Returns the importance of a packet for this station.
pub fn rank_of_packet(packet: &Packet<'_>, own: Option<Position>) -> MessageRank {
    match &packet.extended {
        ExtendedHeader::GeoBroadcast { area, .. } | ExtendedHeader::GeoAnycast { area, .. }
            if own.is_some_and(|own| is_inside(area, own)) =>
        {
            MessageRank::AreaHere
        }
        ExtendedHeader::SingleHop { .. } => MessageRank::SingleHop,
        ExtendedHeader::Beacon { .. }
        | ExtendedHeader::LocationServiceRequest { .. }
        | ExtendedHeader::LocationServiceReply { .. } => MessageRank::Management,
        _ => MessageRank::MultiHop,
    }
}
