//! A test environment: a root, an authority, stations with tickets, and packets.

use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_geonet::geodesy::{LocalPlane, Position};
use carnet_geonet::{BROADCAST, ReceivedFrame};
use carnet_its::cam::{BasicVehicleContainerHighFrequency, Cam, HighFrequencyContainer};
use carnet_its::cdd::{ItsPduHeader, MessageId, StationId};
use carnet_its::denm::{Denm, SituationContainer};
use carnet_its::uper;
use carnet_security::certificate::{Certificate, ToBeSignedCertificate};
use carnet_security::crypto::{Backend, Portable, SigningKey};
use carnet_security::keys::Curve;
use carnet_security::permissions::PsidSsp;
use carnet_security::region::{CountryPlace, GeographicRegion};
use carnet_security::time::{DurationUnit, Time64, ValidityDuration, ValidityPeriod};
use carnet_security::{Config, Handled, Now, Policy, Security, SecurityDrop, Ticket, Verified, pki};
use carnet_wire::btp::BtpB;
use carnet_wire::geonet::{
    BasicHeader, BasicNextHeader, CommonNextHeader, ExtendedHeader, GeoArea, GnAddress, Lifetime,
    LongPositionVector, Packet, Shape, StationType, Timestamp,
};

/// Position at which the tests' stations are.
pub const HOME: Position = Position::new(488_375_000, 21_008_000);
/// The country of the tests: France.
pub const COUNTRY: CountryPlace = CountryPlace { country: 250, region: None, subregion: None };

/// Returns the time `milliseconds` after the start of the test, on 2026-11-22.
pub fn at(milliseconds: u64) -> Now {
    let date = WallTime::from_unix_nanos((1_795_300_000_000 + milliseconds) * 1_000_000);
    Now { time: Time::from_millis(milliseconds + 1_000_000), date: Time64::from_wall_time(date, 5) }
}

/// Returns a place, metres east and north of [`HOME`].
pub fn place(east: f64, north: f64) -> Position {
    LocalPlane::new(HOME).position_at(east, north)
}

/// Returns a validity period of `hours` that begins `before` the start of the test.
pub fn validity(before: Duration, hours: u16) -> ValidityPeriod {
    let start = at(0).date.saturating_sub(before).seconds();
    ValidityPeriod { start, duration: ValidityDuration { unit: DurationUnit::Hours, count: hours } }
}

/// Returns a validity period of one day that begins an hour before the start of the test.
pub fn day() -> ValidityPeriod {
    validity(Duration::from_secs(3600), 24)
}

/// Returns a key that a number determines.
pub fn key(curve: Curve, number: u8) -> Box<dyn SigningKey> {
    let mut scalar = vec![number; curve.octets()];
    scalar[0] = 1;
    Portable.signing_key(curve, &scalar).unwrap()
}

/// A root and an authority, with their keys.
pub struct Pki {
    pub curve: Curve,
    pub root: Certificate,
    pub authority: Certificate,
    pub authority_key: Box<dyn SigningKey>,
    next_key: u8,
}

impl Pki {
    pub fn new(curve: Curve) -> Pki {
        Pki::with_authority(curve, |content| content)
    }

    /// Creates a root and an authority whose content `change` has changed.
    pub fn with_authority(
        curve: Curve,
        change: impl FnOnce(ToBeSignedCertificate) -> ToBeSignedCertificate,
    ) -> Pki {
        let (root_key, authority_key) = (key(curve, 0x71), key(curve, 0x72));
        let content =
            pki::root("root", root_key.public_key(), validity(Duration::from_secs(7200), 1000), None);
        let root = pki::issue(&Portable, root_key.as_ref(), None, content).unwrap();
        let long = validity(Duration::from_secs(7000), 500);
        let content = change(pki::authority("aa", authority_key.public_key(), long, None));
        let authority = pki::issue(&Portable, root_key.as_ref(), Some(&root), content).unwrap();
        Pki { curve, root, authority, authority_key, next_key: 1 }
    }

    /// Returns a ticket that is valid for a day and everywhere, with the permissions of an ordinary vehicle.
    pub fn ticket(&mut self) -> Ticket {
        self.ticket_with(|content| content)
    }

    /// Returns a ticket whose content `change` has changed.
    pub fn ticket_with(
        &mut self,
        change: impl FnOnce(ToBeSignedCertificate) -> ToBeSignedCertificate,
    ) -> Ticket {
        let key = key(self.curve, self.next_key);
        self.next_key += 1;
        let content = change(pki::ticket(key.public_key(), day(), None, pki::applications(false)));
        let certificate =
            pki::issue(&Portable, self.authority_key.as_ref(), Some(&self.authority), content).unwrap();
        Ticket { certificate, key }
    }

    /// Returns a ticket with a region.
    pub fn ticket_in(&mut self, region: GeographicRegion) -> Ticket {
        self.ticket_with(|content| ToBeSignedCertificate { region: Some(region), ..content })
    }

    /// Returns a ticket with these permissions.
    pub fn ticket_for(&mut self, applications: Vec<PsidSsp>) -> Ticket {
        self.ticket_with(|content| ToBeSignedCertificate { applications, ..content })
    }

    /// Returns a station without own tickets that has the certificates of root and authority.
    pub fn receiver(&self, config: Config) -> Security {
        let backend: Box<dyn Backend> = Box::new(Portable);
        let mut security = Security::new(config, backend, Box::new(COUNTRY), Rng::new(7));
        security.add_root(self.root.clone()).unwrap();
        security.add_authority(at(0), self.authority.clone()).unwrap();
        security.handle_position(HOME, 4096);
        security
    }

    /// Returns a station with this ticket.
    pub fn station(&mut self, ticket: Ticket) -> Station {
        Station::new(self.receiver(strict()), ticket)
    }

    /// Returns a station with a usual ticket.
    pub fn car(&mut self) -> Station {
        let ticket = self.ticket();
        self.station(ticket)
    }
}

/// Returns the default configuration with the strict policy.
pub fn strict() -> Config {
    Config { policy: Policy::Strict, ..Config::default() }
}

/// A station that sends packets.
pub struct Station {
    pub security: Security,
    pub mid: [u8; 6],
    pub at: Position,
    sequence: u16,
}

impl Station {
    fn new(mut security: Security, ticket: Ticket) -> Station {
        let begins = ticket.certificate.content().validity.start.start();
        let now = Now { date: begins.max(at(0).date), ..at(0) };
        let name = security.add_own_ticket(now, ticket).unwrap();
        assert!(security.use_ticket(name));
        let mid = carnet_security::pseudonym::Identity::of_ticket(name).mid;
        security.handle_address(mid);
        Station { security, mid, at: HOME, sequence: 0 }
    }

    pub fn vector(&self, now: Now) -> LongPositionVector {
        LongPositionVector {
            address: GnAddress::new(false, StationType::PassengerCar, self.mid),
            timestamp: Timestamp((now.date.0 / 1000) as u32),
            latitude: self.at.latitude,
            longitude: self.at.longitude,
            accurate: true,
            speed: 0,
            heading: 0,
        }
    }

    /// Returns an unsigned packet of this station.
    pub fn packet(&self, extended: ExtendedHeader, next: CommonNextHeader, payload: &[u8]) -> Vec<u8> {
        let lifetime = Lifetime::from_duration(Duration::from_secs(60));
        let hops = if matches!(extended, ExtendedHeader::Beacon { .. } | ExtendedHeader::SingleHop { .. }) {
            1
        } else {
            10
        };
        Packet::new(extended, next, lifetime, hops, payload).emit()
    }

    pub fn plain_beacon(&self, now: Now) -> Vec<u8> {
        self.packet(ExtendedHeader::Beacon { source: self.vector(now) }, CommonNextHeader::Any, &[])
    }

    pub fn beacon(&mut self, now: Now) -> Vec<u8> {
        let plain = self.plain_beacon(now);
        self.security.secure(now, &plain).unwrap()
    }

    pub fn plain_cam(&self, now: Now, cam: &Cam) -> Vec<u8> {
        let extended = ExtendedHeader::SingleHop { source: self.vector(now), media_dependent: [0; 4] };
        self.packet(extended, CommonNextHeader::BtpB, &behind_btp(2001, &uper::encode(cam).unwrap()))
    }

    pub fn plain_denm(&mut self, now: Now, area: GeoArea, denm: &Denm) -> Vec<u8> {
        let sequence = self.sequence;
        self.sequence += 1;
        let extended = ExtendedHeader::GeoBroadcast { sequence, source: self.vector(now), area };
        self.packet(extended, CommonNextHeader::BtpB, &behind_btp(2002, &uper::encode(denm).unwrap()))
    }

    /// Returns a signed CAM.
    pub fn cam(&mut self, now: Now) -> Vec<u8> {
        let plain = self.plain_cam(now, &ordinary_cam());
        self.security.secure(now, &plain).unwrap()
    }

    /// Returns a signed DENM about a broken-down vehicle, for a circle around [`HOME`].
    pub fn denm(&mut self, now: Now) -> Vec<u8> {
        let plain = self.plain_denm(now, circle(500), &ordinary_denm(91));
        self.security.secure(now, &plain).unwrap()
    }

    /// Signs a packet of this station without checking the SSP of the ticket.
    pub fn sign_regardless(&mut self, now: Now, plain: &[u8]) -> Vec<u8> {
        let packet = Packet::parse(plain).unwrap();
        let psid = carnet_security::inspection::application_of(&packet);
        let envelope = self.security.sign(now, psid, &plain[BasicHeader::LEN..]).unwrap();
        let basic = BasicHeader { next_header: BasicNextHeader::Secured, ..packet.basic };
        [&basic.to_octets()[..], &envelope].concat()
    }

    pub fn move_to(&mut self, position: Position) {
        self.at = position;
        self.security.handle_position(position, 4096);
    }
}

/// Returns a received frame that carries this packet.
pub fn frame(packet: &[u8]) -> ReceivedFrame<'_> {
    ReceivedFrame { source: [2, 0, 0, 0, 0, 9], destination: BROADCAST, packet }
}

/// Returns the result of a frame if the station may verify at once.
pub fn receive(security: &mut Security, now: Now, packet: &[u8]) -> Result<Vec<Verified>, SecurityDrop> {
    let before = drops(security);
    match security.handle_frame(now, frame(packet))? {
        Handled::Ready(verified) => return Ok(vec![verified]),
        Handled::Plain => return Ok(Vec::new()),
        Handled::Queued => {}
    }
    let all: Vec<_> = std::iter::from_fn(|| security.poll_verified(now)).collect();
    let after = drops(security);
    let reason = SecurityDrop::ALL.iter().zip(before).zip(after).find(|((_, before), after)| before != after);
    match reason {
        Some(((reason, _), _)) if all.is_empty() => Err(*reason),
        _ => Ok(all),
    }
}

/// Returns the numbers of dropped packets, by reason.
pub fn drops(security: &Security) -> Vec<u64> {
    SecurityDrop::ALL.iter().map(|reason| security.counters().dropped(*reason)).collect()
}

pub fn behind_btp(port: u16, message: &[u8]) -> Vec<u8> {
    let header = BtpB { destination_port: port, destination_port_info: 0 };
    [&header.to_octets(), message].concat()
}

pub fn circle(radius: u16) -> GeoArea {
    GeoArea {
        shape: Shape::Circle,
        latitude: HOME.latitude,
        longitude: HOME.longitude,
        distance_a: radius,
        distance_b: 0,
        angle: 0,
    }
}

fn header(message_id: MessageId) -> ItsPduHeader {
    ItsPduHeader { message_id, station_id: StationId(77), ..ItsPduHeader::default() }
}

pub fn ordinary_cam() -> Cam {
    let mut cam = Cam { header: header(MessageId::CAM), ..Cam::default() };
    cam.cam.cam_parameters.high_frequency_container =
        HighFrequencyContainer::BasicVehicleContainerHighFrequency(
            BasicVehicleContainerHighFrequency::default(),
        );
    cam
}

/// Returns a DENM with a cause.
pub fn ordinary_denm(cause: u8) -> Denm {
    let mut denm = Denm { header: header(MessageId::DENM), ..Denm::default() };
    let mut situation = SituationContainer::default();
    situation.event_type.cause_code.0 = cause;
    denm.denm.situation = Some(situation);
    denm
}
