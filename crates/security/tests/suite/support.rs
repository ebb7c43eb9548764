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
use carnet_security::crypto::{CryptoBackend, PortableBackend, SigningKey};
use carnet_security::keys::EllipticCurve;
use carnet_security::permissions::PsidSsp;
use carnet_security::region::{CountryAndRegion, GeographicRegion};
use carnet_security::time::{DurationUnit, Time64, ValidityDuration, ValidityPeriod};
use carnet_security::{
    HandledFrame, SecurityConfig, SecurityDrop, SecurityPolicy, SecurityStation, SecurityTime, Ticket,
    VerifiedPacket, pki,
};
use carnet_wire::btp::BtpB;
use carnet_wire::geonet::{
    BasicHeader, BasicNextHeader, CommonNextHeader, ExtendedHeader, GeoArea, GeoAreaShape, GnAddress,
    Lifetime, LongPositionVector, Packet, StationType, Timestamp,
};

/// Position at which the tests' stations are.
pub const HOME_POSITION: Position = Position::new(488_375_000, 21_008_000);
/// The country of the tests: France.
pub const COUNTRY_OF_HOME: CountryAndRegion =
    CountryAndRegion { country: 250, region: None, subregion: None };

/// Returns the time `milliseconds` after the start of the test, on 2026-11-22.
pub fn now_at_milliseconds(milliseconds: u64) -> SecurityTime {
    let date = WallTime::from_unix_nanos((1_795_300_000_000 + milliseconds) * 1_000_000);
    SecurityTime {
        time: Time::from_millis(milliseconds + 1_000_000),
        certificate_time: Time64::from_wall_time(date, 5),
    }
}

/// Returns the position `east` and `north` metres from [`HOME_POSITION`].
pub fn position_at(east: f64, north: f64) -> Position {
    LocalPlane::new(HOME_POSITION).position_at(east, north)
}

/// Returns a validity period of `hours` that begins `before` the start of the test.
pub fn validity_period(before: Duration, hours: u16) -> ValidityPeriod {
    let start = now_at_milliseconds(0).certificate_time.saturating_sub(before).to_seconds();
    ValidityPeriod { start, duration: ValidityDuration { unit: DurationUnit::Hours, unit_count: hours } }
}

/// Returns a validity period of one day that begins an hour before the start of the test.
pub fn validity_of_a_day() -> ValidityPeriod {
    validity_period(Duration::from_secs(3600), 24)
}

/// Returns a private key that depends only on `number`.
pub fn numbered_key(curve: EllipticCurve, number: u8) -> Box<dyn SigningKey> {
    let mut scalar = vec![number; curve.octets()];
    scalar[0] = 1;
    PortableBackend.signing_key(curve, &scalar).unwrap()
}

/// A root and an authority, with their keys.
pub struct TestPki {
    pub curve: EllipticCurve,
    pub root: Certificate,
    pub authority: Certificate,
    pub authority_key: Box<dyn SigningKey>,
    next_key_number: u8,
}

impl TestPki {
    pub fn new(curve: EllipticCurve) -> TestPki {
        TestPki::with_authority(curve, |content| content)
    }

    /// Creates a root and an authority; `change` may change the content of the authority's certificate.
    pub fn with_authority(
        curve: EllipticCurve,
        change: impl FnOnce(ToBeSignedCertificate) -> ToBeSignedCertificate,
    ) -> TestPki {
        let (root_key, authority_key) = (numbered_key(curve, 0x71), numbered_key(curve, 0x72));
        let content = pki::root_certificate_content(
            "root",
            root_key.public_key(),
            validity_period(Duration::from_secs(7200), 1000),
            None,
        );
        let root = pki::issue_certificate(&PortableBackend, root_key.as_ref(), None, content).unwrap();
        let long = validity_period(Duration::from_secs(7000), 500);
        let content =
            change(pki::authority_certificate_content("aa", authority_key.public_key(), long, None));
        let authority =
            pki::issue_certificate(&PortableBackend, root_key.as_ref(), Some(&root), content).unwrap();
        TestPki { curve, root, authority, authority_key, next_key_number: 1 }
    }

    /// Returns a ticket that is valid for a day and everywhere, with the permissions of an ordinary vehicle.
    pub fn new_ticket(&mut self) -> Ticket {
        self.new_ticket_with(|content| content)
    }

    /// Returns a ticket whose content `change` may change before the authority signs it.
    pub fn new_ticket_with(
        &mut self,
        change: impl FnOnce(ToBeSignedCertificate) -> ToBeSignedCertificate,
    ) -> Ticket {
        let key = numbered_key(self.curve, self.next_key_number);
        self.next_key_number += 1;
        let content = change(pki::ticket_content(
            key.public_key(),
            validity_of_a_day(),
            None,
            pki::test_applications(false),
        ));
        let certificate = pki::issue_certificate(
            &PortableBackend,
            self.authority_key.as_ref(),
            Some(&self.authority),
            content,
        )
        .unwrap();
        Ticket { certificate, key }
    }

    /// Returns a ticket with a region.
    pub fn new_ticket_in_region(&mut self, region: GeographicRegion) -> Ticket {
        self.new_ticket_with(|content| ToBeSignedCertificate { validity_region: Some(region), ..content })
    }

    /// Returns a ticket with these application permissions.
    pub fn new_ticket_for_applications(&mut self, applications: Vec<PsidSsp>) -> Ticket {
        self.new_ticket_with(|content| ToBeSignedCertificate {
            application_permissions: applications,
            ..content
        })
    }

    /// Returns a station without own tickets that has the certificates of root and authority.
    pub fn receiver_with(&self, config: SecurityConfig) -> SecurityStation {
        let backend: Box<dyn CryptoBackend> = Box::new(PortableBackend);
        let mut security = SecurityStation::new(config, backend, Box::new(COUNTRY_OF_HOME), Rng::new(7));
        security.add_root(self.root.clone()).unwrap();
        security.add_authority(now_at_milliseconds(0), self.authority.clone()).unwrap();
        security.handle_position(HOME_POSITION, 4096);
        security
    }

    /// Returns a station with this ticket.
    pub fn station_with(&mut self, ticket: Ticket) -> TestStation {
        TestStation::new(self.receiver_with(strict_config()), ticket)
    }

    /// Returns a station with a usual ticket.
    pub fn new_car_station(&mut self) -> TestStation {
        let ticket = self.new_ticket();
        self.station_with(ticket)
    }
}

/// Returns the default configuration with the strict policy.
pub fn strict_config() -> SecurityConfig {
    SecurityConfig { policy: SecurityPolicy::Strict, ..SecurityConfig::default() }
}

/// A station that sends packets.
pub struct TestStation {
    pub security: SecurityStation,
    pub mid: [u8; 6],
    pub position: Position,
    sequence_number: u16,
}

impl TestStation {
    fn new(mut security: SecurityStation, ticket: Ticket) -> TestStation {
        let begins = ticket.certificate.content().validity.start.start_of_second();
        let now = SecurityTime {
            certificate_time: begins.max(now_at_milliseconds(0).certificate_time),
            ..now_at_milliseconds(0)
        };
        let name = security.add_own_ticket(now, ticket).unwrap();
        assert!(security.use_ticket(name));
        let mid = carnet_security::pseudonym::StationIdentity::of_ticket(name).mid;
        security.handle_address(mid);
        TestStation { security, mid, position: HOME_POSITION, sequence_number: 0 }
    }

    pub fn position_vector(&self, now: SecurityTime) -> LongPositionVector {
        LongPositionVector {
            address: GnAddress::new(false, StationType::PassengerCar, self.mid),
            timestamp: Timestamp((now.certificate_time.0 / 1000) as u32),
            latitude: self.position.latitude,
            longitude: self.position.longitude,
            accurate: true,
            speed: 0,
            heading: 0,
        }
    }

    /// Returns an unsigned packet of this station.
    pub fn build_packet(&self, extended: ExtendedHeader, next: CommonNextHeader, payload: &[u8]) -> Vec<u8> {
        let lifetime = Lifetime::from_duration(Duration::from_secs(60));
        let hops = if matches!(extended, ExtendedHeader::Beacon { .. } | ExtendedHeader::SingleHop { .. }) {
            1
        } else {
            10
        };
        Packet::new(extended, next, lifetime, hops, payload).emit()
    }

    pub fn plain_beacon_packet(&self, now: SecurityTime) -> Vec<u8> {
        self.build_packet(
            ExtendedHeader::Beacon { source: self.position_vector(now) },
            CommonNextHeader::Any,
            &[],
        )
    }

    pub fn signed_beacon(&mut self, now: SecurityTime) -> Vec<u8> {
        let plain = self.plain_beacon_packet(now);
        self.security.secure_packet(now, &plain).unwrap()
    }

    pub fn plain_cam_packet(&self, now: SecurityTime, cam: &Cam) -> Vec<u8> {
        let extended =
            ExtendedHeader::SingleHop { source: self.position_vector(now), media_dependent: [0; 4] };
        self.build_packet(extended, CommonNextHeader::BtpB, &btp_packet(2001, &uper::encode(cam).unwrap()))
    }

    pub fn plain_denm_packet(&mut self, now: SecurityTime, area: GeoArea, denm: &Denm) -> Vec<u8> {
        let sequence = self.sequence_number;
        self.sequence_number += 1;
        let extended = ExtendedHeader::GeoBroadcast { sequence, source: self.position_vector(now), area };
        self.build_packet(extended, CommonNextHeader::BtpB, &btp_packet(2002, &uper::encode(denm).unwrap()))
    }

    /// Returns a signed CAM.
    pub fn signed_cam(&mut self, now: SecurityTime) -> Vec<u8> {
        let plain = self.plain_cam_packet(now, &example_cam());
        self.security.secure_packet(now, &plain).unwrap()
    }

    /// Returns a signed DENM about a broken-down vehicle, for a circle around [`HOME_POSITION`].
    pub fn signed_denm(&mut self, now: SecurityTime) -> Vec<u8> {
        let plain = self.plain_denm_packet(now, circle_around_home(500), &example_denm(91));
        self.security.secure_packet(now, &plain).unwrap()
    }

    /// Signs a packet of this station without checking the SSP of the ticket.
    pub fn sign_without_check(&mut self, now: SecurityTime, plain: &[u8]) -> Vec<u8> {
        let packet = Packet::parse(plain).unwrap();
        let psid = carnet_security::inspection::application_of_packet(&packet);
        let envelope = self.security.sign_payload(now, psid, &plain[BasicHeader::LEN..]).unwrap();
        let basic = BasicHeader { next_header: BasicNextHeader::Secured, ..packet.basic };
        [&basic.to_octets()[..], &envelope].concat()
    }

    pub fn move_to(&mut self, position: Position) {
        self.position = position;
        self.security.handle_position(position, 4096);
    }
}

/// Returns a received frame that carries this packet.
pub fn frame_of_packet(packet: &[u8]) -> ReceivedFrame<'_> {
    ReceivedFrame { source: [2, 0, 0, 0, 0, 9], destination: BROADCAST, packet }
}

/// Passes a packet to the security entity, which verifies it at once. Returns the accepted packets, or the
/// reason of the drop.
pub fn receive_packet(
    security: &mut SecurityStation,
    now: SecurityTime,
    packet: &[u8],
) -> Result<Vec<VerifiedPacket>, SecurityDrop> {
    let before = drop_counts(security);
    match security.handle_frame(now, frame_of_packet(packet))? {
        HandledFrame::Ready(verified) => return Ok(vec![verified]),
        HandledFrame::Plain => return Ok(Vec::new()),
        HandledFrame::Queued => {}
    }
    let all: Vec<_> = std::iter::from_fn(|| security.poll_verified(now)).collect();
    let after = drop_counts(security);
    let reason = SecurityDrop::ALL.iter().zip(before).zip(after).find(|((_, before), after)| before != after);
    match reason {
        Some(((reason, _), _)) if all.is_empty() => Err(*reason),
        _ => Ok(all),
    }
}

/// Returns the number of dropped packets for each reason, in the order of `SecurityDrop::ALL`.
pub fn drop_counts(security: &SecurityStation) -> Vec<u64> {
    SecurityDrop::ALL.iter().map(|reason| security.counters().dropped(*reason)).collect()
}

pub fn btp_packet(port: u16, message: &[u8]) -> Vec<u8> {
    let header = BtpB { destination_port: port, destination_port_info: 0 };
    [&header.to_octets(), message].concat()
}

pub fn circle_around_home(radius: u16) -> GeoArea {
    GeoArea {
        shape: GeoAreaShape::Circle,
        latitude: HOME_POSITION.latitude,
        longitude: HOME_POSITION.longitude,
        distance_a: radius,
        distance_b: 0,
        angle: 0,
    }
}

fn its_pdu_header(message_id: MessageId) -> ItsPduHeader {
    ItsPduHeader { message_id, station_id: StationId(77), ..ItsPduHeader::default() }
}

pub fn example_cam() -> Cam {
    let mut cam = Cam { header: its_pdu_header(MessageId::CAM), ..Cam::default() };
    cam.cam.cam_parameters.high_frequency_container =
        HighFrequencyContainer::BasicVehicleContainerHighFrequency(
            BasicVehicleContainerHighFrequency::default(),
        );
    cam
}

/// Returns a DENM with this cause code.
pub fn example_denm(cause: u8) -> Denm {
    let mut denm = Denm { header: its_pdu_header(MessageId::DENM), ..Denm::default() };
    let mut situation = SituationContainer::default();
    situation.event_type.cause_code.0 = cause;
    denm.denm.situation = Some(situation);
    denm
}
