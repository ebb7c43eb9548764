//! The upper tester: the interface through which ETSI's test system controls the station under test.
//!
//! The protocol is that of ETSI TR 103 099 annex C. Each UDP datagram has one message, its number first, and
//! all values are big endian. The module follows public implementations of both ends (ETSI's TTCN-3 suite for
//! GeoNetworking and BTP with its adapters, vanetza's and veloce's upper testers). It has the messages for
//! the station, for GeoNetworking and for BTP:
//!
//! | number | message | what follows |
//! |---|---|---|
//! | 0x00, 0x01 | UtInitialize, its result | digest of a certificate (8), not used |
//! | 0x02, 0x03 | UtChangePosition, its result | position, see below |
//! | 0x04, 0x05 | UtChangePseudonym, its result | another ticket; refused without `[security.pseudonyms]` |
//! | 0x50 | UtGnTrigger GeoUnicast | GN address (8), lifetime in ms (2), traffic class (1), payload |
//! | 0x51, 0x52 | UtGnTrigger GeoBroadcast, GeoAnycast | area, see below; payload |
//! | 0x53 | UtGnTrigger SHB | traffic class (1), payload |
//! | 0x54 | UtGnTrigger TSB | hops (1), lifetime (2), traffic class (1), payload |
//! | 0x41 | result of these | |
//! | 0x55 | UtGnEventInd | length (2), GN payload that was delivered |
//! | 0x70, 0x71 | UtBtpTrigger A, B | destination port (2), source port or destination port info (2) |
//! | 0x61, 0x63 | result of these; UtBtpEventInd | length (2), BTP payload that was delivered |
//!
//! A position is latitude (4) and longitude (4), as differences from the present position in 0.1 microdegree,
//! and elevation (1 or 4), not used. An area is shape (1), lifetime (2), traffic class (1), reserved (3),
//! latitude (4), longitude (4), distances a and b (2, 2) and angle (2).
//!
//! A payload is its length (2 octets) and its octets; a result is one octet, 1 for success. A BTP packet
//! leaves as SHB. A payload behind the ports is an extension of the protocol; if it is missing, the payload
//! is empty. TR 103 099 V1.5.1 has other numbers for BTP: 0x72 for trigger B, 0x71 for the result and 0x73
//! for the event. A tester that has sent 0x72 gets these numbers.
//!
//! Left out: the messages for CAM, DENM, IPv6 over GeoNetworking and security. Every program that reaches the
//! port may control the station. So the config allows addresses that other machines can reach only with an
//! explicit setting.

use std::future::pending;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use carnet_api::config;
use carnet_base::OptionalPart;
use carnet_linux::bind_udp_socket;
use carnet_station::io::{Area, AreaShape, Delivered, GeonetRequest, GeonetTransport, Position};
use carnet_wire::btp::{BtpA, BtpB};
use carnet_wire::geonet::LongPositionVector;
use tokio::net::UdpSocket;
use tracing::debug;

use crate::geonet::position_of;

/// Whether this program was built with the upper tester. A program for production use has none.
pub const UPPER_TESTER_BUILT_IN: bool = cfg!(feature = "upper-tester");
/// Error message for a config with an upper tester if this program was built without it.
pub const WITHOUT_UPPER_TESTER: &str =
    "[conformance]: this program was built without the feature `upper-tester`, expected no such table";
/// NH values of BTP-A ([`BTP_A`]) and BTP-B ([`BTP_B`]).
const BTP_A: u8 = 1;
const BTP_B: u8 = 2;
/// Bit for store-carry-forward (SCF) in the octet of a traffic class.
const STORE_CARRY_FORWARD: u8 = 0x80;
/// Length of a BTP header in octets.
const BTP_HEADER_LENGTH: usize = 4;
/// Largest message of the tester, in octets.
const MAX_MESSAGE_LENGTH: usize = 4096;

/// Message that the tester sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TesterMessage {
    /// Reset the station to its initial state.
    Initialize,
    /// Displace the station's position north and east, in 0.1 microdegree.
    ChangePosition(i32, i32),
    /// Change the station's pseudonym.
    ChangePseudonym,
    /// Send this GeoNetworking packet.
    Gn(GeonetRequest),
    /// Send this BTP packet.
    Btp(GeonetRequest),
}

/// Reads the fields of a message one after the other.
struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    fn take_octets<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn read_u8(&mut self) -> Option<u8> {
        self.take_octets::<1>().map(|[octet]| octet)
    }

    fn read_u16(&mut self) -> Option<u16> {
        self.take_octets().map(u16::from_be_bytes)
    }

    fn read_i32(&mut self) -> Option<i32> {
        self.take_octets().map(i32::from_be_bytes)
    }

    /// Reads a length and a payload, which must fill the rest of the message exactly. Otherwise returns
    /// `None`.
    fn read_payload(&mut self) -> Option<Vec<u8>> {
        let length = self.read_u16()?;
        (self.0.len() == usize::from(length)).then(|| self.0.to_vec())
    }
}

fn geonet_request(transport: GeonetTransport, traffic_class: u8) -> GeonetRequest {
    GeonetRequest {
        transport,
        next_header: 0,
        store_carry_forward: traffic_class & STORE_CARRY_FORWARD != 0,
        traffic_class: traffic_class & !STORE_CARRY_FORWARD,
        lifetime_ms: None,
        hop_limit: None,
        payload: Vec::new(),
    }
}

impl TesterMessage {
    /// Parses a message; `None` if it is malformed or unknown.
    pub fn parse(octets: &[u8]) -> Option<TesterMessage> {
        let mut fields = FieldReader(octets);
        match fields.read_u8()? {
            0x00 => Some(TesterMessage::Initialize),
            0x02 => Some(TesterMessage::ChangePosition(fields.read_i32()?, fields.read_i32()?)),
            0x04 => Some(TesterMessage::ChangePseudonym),
            0x50 => {
                let to = fields.take_octets().map(u64::from_be_bytes)?;
                let (lifetime, traffic_class) = (fields.read_u16()?, fields.read_u8()?);
                let request = geonet_request(GeonetTransport::GeoUnicast(to), traffic_class);
                let lifetime_ms = Some(lifetime.into());
                Some(TesterMessage::Gn(GeonetRequest {
                    lifetime_ms,
                    payload: fields.read_payload()?,
                    ..request
                }))
            }
            number @ (0x51 | 0x52) => {
                let shape = match fields.read_u8()? {
                    0 => AreaShape::Circle,
                    1 => AreaShape::Rectangle,
                    2 => AreaShape::Ellipse,
                    _ => return None,
                };
                let (lifetime, traffic_class) = (fields.read_u16()?, fields.read_u8()?);
                let _reserved: [u8; 3] = fields.take_octets()?;
                let area = Area {
                    shape,
                    latitude: fields.read_i32()?,
                    longitude: fields.read_i32()?,
                    distance_a: fields.read_u16()?,
                    distance_b: fields.read_u16()?,
                    angle: fields.read_u16()?,
                };
                let transport = match number {
                    0x51 => GeonetTransport::GeoBroadcast(area),
                    _ => GeonetTransport::GeoAnycast(area),
                };
                let request = geonet_request(transport, traffic_class);
                let lifetime_ms = Some(lifetime.into());
                Some(TesterMessage::Gn(GeonetRequest {
                    lifetime_ms,
                    payload: fields.read_payload()?,
                    ..request
                }))
            }
            0x53 => {
                let request = geonet_request(GeonetTransport::SingleHop, fields.read_u8()?);
                Some(TesterMessage::Gn(GeonetRequest { payload: fields.read_payload()?, ..request }))
            }
            0x54 => {
                let hops = fields.read_u8()?;
                let (lifetime, traffic_class) = (fields.read_u16()?, fields.read_u8()?);
                let request = geonet_request(GeonetTransport::TopologicallyScoped, traffic_class);
                let (lifetime_ms, hop_limit) = (Some(lifetime.into()), Some(hops));
                Some(TesterMessage::Gn(GeonetRequest {
                    lifetime_ms,
                    hop_limit,
                    payload: fields.read_payload()?,
                    ..request
                }))
            }
            number @ 0x70..=0x72 => {
                let (destination_port, other) = (fields.read_u16()?, fields.read_u16()?);
                let (next_header, header) = match number {
                    0x70 => (BTP_A, BtpA { destination_port, source_port: other }.to_octets()),
                    _ => (BTP_B, BtpB { destination_port, destination_port_info: other }.to_octets()),
                };
                let mut payload = header.to_vec();
                if !fields.0.is_empty() {
                    payload.extend(fields.read_payload()?);
                }
                let request = geonet_request(GeonetTransport::SingleHop, 0);
                Some(TesterMessage::Btp(GeonetRequest { next_header, payload, ..request }))
            }
            _ => None,
        }
    }
}

/// Message numbers that depend on the version of TR 103 099.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ProtocolVersion {
    #[default]
    V1_3_1,
    V1_5_1,
}

impl ProtocolVersion {
    fn btp_result_number(self) -> u8 {
        match self {
            ProtocolVersion::V1_3_1 => 0x61,
            ProtocolVersion::V1_5_1 => 0x71,
        }
    }

    fn btp_event_number(self) -> u8 {
        match self {
            ProtocolVersion::V1_3_1 => 0x63,
            ProtocolVersion::V1_5_1 => 0x73,
        }
    }
}

/// Returns a message that reports a payload for the upper layer; `None` if the payload is too long.
fn indication_message(number: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(payload.len()).ok()?;
    Some([&[number], length.to_be_bytes().as_slice(), payload].concat())
}

/// The UDP port for the test system.
#[derive(Debug)]
pub struct UpperTester {
    socket: UdpSocket,
    /// Address to which the upper tester reports payloads: the source address of the last message from a test
    /// system. `None` before the first message.
    tester_address: Option<SocketAddr>,
    version: ProtocolVersion,
    /// Distance of the claimed position from the real position: north and east, in 0.1 microdegree. A test
    /// system sets this distance.
    position_displacement: (i32, i32),
}

impl UpperTester {
    /// Opens the UDP port.
    ///
    /// # Errors
    /// Returns an error if the port cannot be bound, or if this program was built without the upper tester.
    pub fn open_port(config: &config::Conformance) -> anyhow::Result<UpperTester> {
        if !UPPER_TESTER_BUILT_IN {
            bail!(WITHOUT_UPPER_TESTER);
        }
        let socket = bind_udp_socket(config.upper_tester)
            .and_then(UdpSocket::from_std)
            .with_context(|| format!("conformance.upper_tester: cannot listen at {}", config.upper_tester))?;
        Ok(UpperTester {
            socket,
            tester_address: None,
            version: ProtocolVersion::default(),
            position_displacement: (0, 0),
        })
    }

    /// Waits for a message of a tester. Safe to cancel.
    async fn receive_message(&mut self) -> (SocketAddr, TesterMessage) {
        let mut buffer = [0; MAX_MESSAGE_LENGTH];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, tester)) => {
                    let octets = buffer.get(..length).unwrap_or_default();
                    match TesterMessage::parse(octets) {
                        Some(message) => {
                            self.tester_address = Some(tester);
                            match octets.first() {
                                Some(0x71) => self.version = ProtocolVersion::V1_3_1,
                                Some(0x72) => self.version = ProtocolVersion::V1_5_1,
                                _ => {}
                            }
                            return (tester, message);
                        }
                        None => debug!("the upper tester cannot parse a message from {tester}"),
                    }
                }
                // If a tester has closed its port, the kernel reports this as an error after each datagram to
                // it.
                Err(error) => debug!("the upper tester cannot receive: {error}"),
            }
        }
    }

    /// Sends the result of a message to its tester.
    pub fn send_result(&self, tester: SocketAddr, message: &TesterMessage, success: bool) {
        let number = match message {
            TesterMessage::Initialize => 0x01,
            TesterMessage::ChangePosition(..) => 0x03,
            TesterMessage::ChangePseudonym => 0x05,
            TesterMessage::Gn(_) => 0x41,
            TesterMessage::Btp(_) => self.version.btp_result_number(),
        };
        self.send_octets(tester, &[number, success.into()]);
    }

    /// Reports a payload for the upper layer to the tester.
    pub fn report_delivered(&self, delivered: &Delivered) {
        let Some(tester) = self.tester_address else { return };
        let payload = &delivered.payload;
        let btp = matches!(delivered.next_header, BTP_A | BTP_B)
            .then(|| payload.get(BTP_HEADER_LENGTH..))
            .flatten();
        let events = [
            indication_message(0x55, payload),
            btp.and_then(|payload| indication_message(self.version.btp_event_number(), payload)),
        ];
        for event in events.iter().flatten() {
            self.send_octets(tester, event);
        }
    }

    fn send_octets(&self, tester: SocketAddr, octets: &[u8]) {
        if let Err(error) = self.socket.try_send_to(octets, tester) {
            debug!("the tester {tester} gets no answer: {error}");
        }
    }

    /// Ends the displacement of the claimed position. Returns the real position, or `None` if there was no
    /// displacement.
    pub fn end_displacement(&mut self, now_at: &LongPositionVector) -> Option<Position> {
        let (north, east) = std::mem::take(&mut self.position_displacement);
        if (north, east) == (0, 0) {
            return None;
        }
        move_position(position_of(now_at), north.checked_neg()?, east.checked_neg()?)
    }

    /// Adds a distance to the displacement of the claimed position, and returns this position. Returns `None`
    /// if the result is not on the globe.
    pub fn displace_position(
        &mut self,
        now_at: &LongPositionVector,
        north: i32,
        east: i32,
    ) -> Option<Position> {
        let moved = move_position(position_of(now_at), north, east)?;
        let (so_far_north, so_far_east) = self.position_displacement;
        self.position_displacement = (so_far_north.checked_add(north)?, so_far_east.checked_add(east)?);
        Some(moved)
    }

    /// Converts the real position to the position that the station claims.
    pub fn displaced_position(&self, position: Position) -> Position {
        let (north, east) = self.position_displacement;
        move_position(position, north, east).unwrap_or(position)
    }
}

/// Returns a position moved north and east by these distances. Returns `None` if the result is not on the
/// globe.
pub fn move_position(position: Position, north: i32, east: i32) -> Option<Position> {
    let latitude = position.latitude.checked_add(north)?;
    let longitude = position.longitude.checked_add(east)?;
    let on_globe = latitude.unsigned_abs() <= 900_000_000 && longitude.unsigned_abs() <= 1_800_000_000;
    on_globe.then_some(Position { latitude, longitude, ..position })
}

/// Waits for the next message; without an upper tester it never returns. Safe to cancel.
pub async fn next_message(
    upper_tester: &mut OptionalPart<UpperTester, UPPER_TESTER_BUILT_IN>,
) -> (SocketAddr, TesterMessage) {
    match upper_tester.get_mut() {
        // With this condition, the compiler removes the future in a program without the upper tester, so that
        // it needs no memory.
        #[cfg(feature = "upper-tester")]
        Some(upper_tester) => upper_tester.receive_message().await,
        _ => pending().await,
    }
}

#[cfg(all(test, feature = "upper-tester"))]
mod tests;
