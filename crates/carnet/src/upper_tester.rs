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
use carnet_base::Part;
use carnet_linux::bind_datagrams;
use carnet_station::io::{Area, AreaShape, Delivered, GeonetRequest, GeonetTransport, Position};
use carnet_wire::btp::{BtpA, BtpB};
use carnet_wire::geonet::LongPositionVector;
use tokio::net::UdpSocket;
use tracing::debug;

use crate::geonet::position_of;

/// Whether this program was built with the upper tester. A program for service has none.
pub const UPPER_TESTER: bool = cfg!(feature = "upper-tester");
/// Error for a config with an upper tester if this program has none.
pub const WITHOUT_UPPER_TESTER: &str =
    "[conformance]: this program was built without the feature `upper-tester`, expected no such table";
/// NH values of BTP-A ([`BTP_A`]) and BTP-B ([`BTP_B`]).
const BTP_A: u8 = 1;
const BTP_B: u8 = 2;
/// Bit of SCF in the octet of a traffic class.
const STORE_CARRY_FORWARD: u8 = 0x80;
/// Length of a BTP header in octets.
const BTP_HEADER: usize = 4;
/// Largest message of the tester, in octets.
const LONGEST: usize = 4096;

/// Message that the tester sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
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
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[octet]| octet)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    /// Reads a length and a payload of this length, which must end the message.
    fn payload(&mut self) -> Option<Vec<u8>> {
        let length = self.u16()?;
        (self.0.len() == usize::from(length)).then(|| self.0.to_vec())
    }
}

fn request(transport: GeonetTransport, traffic_class: u8) -> GeonetRequest {
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

impl Message {
    /// Parses a message; `None` if it is malformed or unknown.
    pub fn parse(octets: &[u8]) -> Option<Message> {
        let mut fields = Fields(octets);
        match fields.u8()? {
            0x00 => Some(Message::Initialize),
            0x02 => Some(Message::ChangePosition(fields.i32()?, fields.i32()?)),
            0x04 => Some(Message::ChangePseudonym),
            0x50 => {
                let to = fields.take().map(u64::from_be_bytes)?;
                let (lifetime, traffic_class) = (fields.u16()?, fields.u8()?);
                let request = request(GeonetTransport::GeoUnicast(to), traffic_class);
                let lifetime_ms = Some(lifetime.into());
                Some(Message::Gn(GeonetRequest { lifetime_ms, payload: fields.payload()?, ..request }))
            }
            number @ (0x51 | 0x52) => {
                let shape = match fields.u8()? {
                    0 => AreaShape::Circle,
                    1 => AreaShape::Rectangle,
                    2 => AreaShape::Ellipse,
                    _ => return None,
                };
                let (lifetime, traffic_class) = (fields.u16()?, fields.u8()?);
                let _reserved: [u8; 3] = fields.take()?;
                let area = Area {
                    shape,
                    latitude: fields.i32()?,
                    longitude: fields.i32()?,
                    distance_a: fields.u16()?,
                    distance_b: fields.u16()?,
                    angle: fields.u16()?,
                };
                let transport = match number {
                    0x51 => GeonetTransport::GeoBroadcast(area),
                    _ => GeonetTransport::GeoAnycast(area),
                };
                let request = request(transport, traffic_class);
                let lifetime_ms = Some(lifetime.into());
                Some(Message::Gn(GeonetRequest { lifetime_ms, payload: fields.payload()?, ..request }))
            }
            0x53 => {
                let request = request(GeonetTransport::SingleHop, fields.u8()?);
                Some(Message::Gn(GeonetRequest { payload: fields.payload()?, ..request }))
            }
            0x54 => {
                let hops = fields.u8()?;
                let (lifetime, traffic_class) = (fields.u16()?, fields.u8()?);
                let request = request(GeonetTransport::TopologicallyScoped, traffic_class);
                let (lifetime_ms, hop_limit) = (Some(lifetime.into()), Some(hops));
                Some(Message::Gn(GeonetRequest {
                    lifetime_ms,
                    hop_limit,
                    payload: fields.payload()?,
                    ..request
                }))
            }
            number @ 0x70..=0x72 => {
                let (destination_port, other) = (fields.u16()?, fields.u16()?);
                let (next_header, header) = match number {
                    0x70 => (BTP_A, BtpA { destination_port, source_port: other }.to_octets()),
                    _ => (BTP_B, BtpB { destination_port, destination_port_info: other }.to_octets()),
                };
                let mut payload = header.to_vec();
                if !fields.0.is_empty() {
                    payload.extend(fields.payload()?);
                }
                let request = request(GeonetTransport::SingleHop, 0);
                Some(Message::Btp(GeonetRequest { next_header, payload, ..request }))
            }
            _ => None,
        }
    }
}

/// Message numbers that depend on the version of TR 103 099.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Version {
    #[default]
    V1_3_1,
    V1_5_1,
}

impl Version {
    fn btp_result(self) -> u8 {
        match self {
            Version::V1_3_1 => 0x61,
            Version::V1_5_1 => 0x71,
        }
    }

    fn btp_event(self) -> u8 {
        match self {
            Version::V1_3_1 => 0x63,
            Version::V1_5_1 => 0x73,
        }
    }
}

/// Returns a message that reports a payload for the upper layer.
fn indication(number: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(payload.len()).ok()?;
    Some([&[number], length.to_be_bytes().as_slice(), payload].concat())
}

/// The UDP port for the test system.
#[derive(Debug)]
pub struct UpperTester {
    socket: UdpSocket,
    /// Address to which the upper tester reports payloads: the address of the last tester that sent a
    /// message.
    tester: Option<SocketAddr>,
    version: Version,
    /// Distance of the claimed position from the real position: north and east, in 0.1 microdegree.
    displacement: (i32, i32),
}

impl UpperTester {
    /// Opens the UDP port.
    ///
    /// # Errors
    /// Returns an error if the port cannot be bound, or if this program was built without the upper tester.
    pub fn open(config: &config::Conformance) -> anyhow::Result<UpperTester> {
        if !UPPER_TESTER {
            bail!(WITHOUT_UPPER_TESTER);
        }
        let socket = bind_datagrams(config.upper_tester)
            .and_then(UdpSocket::from_std)
            .with_context(|| format!("conformance.upper_tester: cannot listen at {}", config.upper_tester))?;
        Ok(UpperTester { socket, tester: None, version: Version::default(), displacement: (0, 0) })
    }

    /// Waits for a message of a tester. Safe to cancel.
    async fn receive(&mut self) -> (SocketAddr, Message) {
        let mut buffer = [0; LONGEST];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, tester)) => {
                    let octets = buffer.get(..length).unwrap_or_default();
                    match Message::parse(octets) {
                        Some(message) => {
                            self.tester = Some(tester);
                            match octets.first() {
                                Some(0x71) => self.version = Version::V1_3_1,
                                Some(0x72) => self.version = Version::V1_5_1,
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
    pub fn answer(&self, tester: SocketAddr, message: &Message, success: bool) {
        let number = match message {
            Message::Initialize => 0x01,
            Message::ChangePosition(..) => 0x03,
            Message::ChangePseudonym => 0x05,
            Message::Gn(_) => 0x41,
            Message::Btp(_) => self.version.btp_result(),
        };
        self.send(tester, &[number, success.into()]);
    }

    /// Reports a payload for the upper layer to the tester.
    pub fn delivered(&self, delivered: &Delivered) {
        let Some(tester) = self.tester else { return };
        let payload = &delivered.payload;
        let btp = matches!(delivered.next_header, BTP_A | BTP_B).then(|| payload.get(BTP_HEADER..)).flatten();
        let events = [
            indication(0x55, payload),
            btp.and_then(|payload| indication(self.version.btp_event(), payload)),
        ];
        for event in events.iter().flatten() {
            self.send(tester, event);
        }
    }

    fn send(&self, tester: SocketAddr, octets: &[u8]) {
        if let Err(error) = self.socket.try_send_to(octets, tester) {
            debug!("the tester {tester} gets no answer: {error}");
        }
    }

    /// Ends the displacement of the claimed position. Returns the real position, or `None` if there was no
    /// displacement.
    pub fn initialize(&mut self, now_at: &LongPositionVector) -> Option<Position> {
        let (north, east) = std::mem::take(&mut self.displacement);
        if (north, east) == (0, 0) {
            return None;
        }
        moved(position_of(now_at), north.checked_neg()?, east.checked_neg()?)
    }

    /// Displaces the claimed position further, and returns it. Returns `None` if the result is not on the
    /// globe.
    pub fn displace(&mut self, now_at: &LongPositionVector, north: i32, east: i32) -> Option<Position> {
        let moved = moved(position_of(now_at), north, east)?;
        let (so_far_north, so_far_east) = self.displacement;
        self.displacement = (so_far_north.checked_add(north)?, so_far_east.checked_add(east)?);
        Some(moved)
    }

    /// Converts the real position to the position that the station claims.
    pub fn displaced(&self, position: Position) -> Position {
        let (north, east) = self.displacement;
        moved(position, north, east).unwrap_or(position)
    }
}

/// Returns a position moved north and east by these distances. Returns `None` if the result is not on the
/// globe.
pub fn moved(position: Position, north: i32, east: i32) -> Option<Position> {
    let latitude = position.latitude.checked_add(north)?;
    let longitude = position.longitude.checked_add(east)?;
    let on_globe = latitude.unsigned_abs() <= 900_000_000 && longitude.unsigned_abs() <= 1_800_000_000;
    on_globe.then_some(Position { latitude, longitude, ..position })
}

/// Waits for the next message; without an upper tester it never returns. Safe to cancel.
pub async fn next_message(upper_tester: &mut Part<UpperTester, UPPER_TESTER>) -> (SocketAddr, Message) {
    match upper_tester.get_mut() {
        // Without this condition, the compiler would keep the state of this future in memory, although it is
        // never reached.
        #[cfg(feature = "upper-tester")]
        Some(upper_tester) => upper_tester.receive().await,
        _ => pending().await,
    }
}

#[cfg(all(test, feature = "upper-tester"))]
mod tests;
