//! Signed packets in whole stations, in virtual time. The tests cover which stations a receiver trusts, and
//! changes of pseudonyms.

mod common;

use std::time::Duration;

use carnet_base::{DropReason, Rng, Time, WallTime};
use carnet_cits::facilities::FacilitiesSettings;
use carnet_its::cam::{Cam, LowFrequencyContainer};
use carnet_its::cdd::{self, StationId};
use carnet_its::denm::{Denm, SituationContainer};
use carnet_its::sa::AnnouncedService;
use carnet_its::sam::ItsAid;
use carnet_its::uper;
use carnet_security::certificate::Certificate;
use carnet_security::credentials::{CredentialName, Credentials, PrivateKey};
use carnet_security::crypto::{CryptoBackend, PortableBackend, SigningKey, name_of_certificate};
use carnet_security::keys::EllipticCurve;
use carnet_security::message::Envelope;
use carnet_security::permissions::{Psid, PsidSsp};
use carnet_security::pseudonym::{PseudonymStrategy, StationIdentity};
use carnet_security::time::{DurationUnit, Time64, ValidityDuration, ValidityPeriod};
use carnet_security::{
    SecurityConfig, SecurityDrop, SecurityPolicy, SecurityStation, SecurityTime, packet_without_envelope, pki,
};
use carnet_station::io::{
    Area, AreaShape, Command, Delivered, DenmAction, DenmCommand, Event, Frame, GeonetOutput, GeonetRequest,
    GeonetTransport, Input, NemoOutput, Output, Position,
};
use carnet_station::{GeonetSettings, Station, StationConfig};
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{GnAddress, Packet, StationType as GnStationType};

use common::world::NetworkBehaviour;

const START_UNIX_MILLISECONDS: u64 = 1_800_000_000_000;
const BROADCAST_MAC: [u8; 6] = [0xff; 6];

fn wall_time_at(now: Time) -> WallTime {
    WallTime::from_unix_nanos(START_UNIX_MILLISECONDS * 1_000_000 + now.as_nanos())
}

fn certificate_time_at(now: Time) -> Time64 {
    Time64::from_wall_time(wall_time_at(now), 5)
}

/// Returns a validity period from one day before the start until `seconds` after the start.
fn validity_until(seconds: u16) -> ValidityPeriod {
    let start = certificate_time_at(Time::ZERO).saturating_sub(Duration::from_secs(40_000)).to_seconds();
    ValidityPeriod {
        start,
        duration: ValidityDuration { unit: DurationUnit::Seconds, unit_count: 40_000 + seconds },
    }
}

fn key_scalar(number: u8) -> Vec<u8> {
    let mut scalar = vec![number; EllipticCurve::NistP256.octets()];
    scalar[0] = 1;
    scalar
}

fn signing_key(number: u8) -> Box<dyn SigningKey> {
    PortableBackend.signing_key(EllipticCurve::NistP256, &key_scalar(number)).expect("a scalar of the curve")
}

/// A root certificate and an authority; `number` distinguishes several pairs.
struct TestPki {
    root: Certificate,
    authority: Certificate,
    authority_key: Box<dyn SigningKey>,
}

impl TestPki {
    fn new(root: u8, authority: u8) -> TestPki {
        let (root_key, authority_key) = (signing_key(root), signing_key(authority));
        let content =
            pki::root_certificate_content("root", root_key.public_key(), validity_until(20_000), None);
        let root =
            pki::issue_certificate(&PortableBackend, root_key.as_ref(), None, content).expect("signed");
        let content = pki::authority_certificate_content(
            "aa",
            authority_key.public_key(),
            validity_until(20_000),
            None,
        );
        let authority = pki::issue_certificate(&PortableBackend, root_key.as_ref(), Some(&root), content)
            .expect("signed");
        TestPki { root, authority, authority_key }
    }

    fn new_ticket(&self, number: u8, validity: ValidityPeriod) -> (Certificate, PrivateKey) {
        let content = pki::ticket_content(
            signing_key(number).public_key(),
            validity,
            None,
            pki::test_applications(false),
        );
        let issued = pki::issue_certificate(
            &PortableBackend,
            self.authority_key.as_ref(),
            Some(&self.authority),
            content,
        );
        let key =
            PrivateKey::new(EllipticCurve::NistP256, &key_scalar(number)).expect("as long as the curve's");
        (issued.expect("signed"), key)
    }

    /// Returns the credentials of a station that trusts this root, with a ticket of this authority.
    fn station_credentials(&self, ticket: u8) -> Credentials {
        Credentials {
            root_certificates: vec![self.root.clone()],
            authorities: vec![self.authority.clone()],
            revoked_certificates: Vec::new(),
            tickets: vec![self.new_ticket(ticket, validity_until(10_000))],
        }
    }
}

fn security_entity(
    policy: SecurityPolicy,
    credentials: &Credentials,
) -> (Box<SecurityStation>, Vec<(CredentialName, SecurityDrop)>) {
    let config = SecurityConfig { policy, ..SecurityConfig::default() };
    let mut security = SecurityStation::new(config, Box::new(PortableBackend), Box::new(()), Rng::new(7));
    let now = SecurityTime { time: Time::ZERO, certificate_time: certificate_time_at(Time::ZERO) };
    let refused = credentials.add_credentials(&mut security, &PortableBackend, now);
    (Box::new(security), refused)
}

/// Returns the security entity of a station with these tickets. The station changes its pseudonym every 100
/// m, for which it needs two seconds.
fn vehicle_entity(
    pki: &TestPki,
    tickets: Vec<(Certificate, PrivateKey)>,
    longest_lock: u64,
) -> Option<Box<SecurityStation>> {
    let pseudonyms = PseudonymStrategy {
        first_change_distance: (100.0, 100.0),
        later_change_distance: 100.0,
        random_time_after_distance: (Duration::ZERO, Duration::ZERO),
        max_lock_time: Duration::from_secs(longest_lock),
    };
    let config = SecurityConfig {
        policy: SecurityPolicy::Strict,
        pseudonym_strategy: Some(pseudonyms),
        ..SecurityConfig::default()
    };
    let mut security = SecurityStation::new(config, Box::new(PortableBackend), Box::new(()), Rng::new(7));
    let now = SecurityTime { time: Time::ZERO, certificate_time: certificate_time_at(Time::ZERO) };
    let credentials = Credentials { tickets, ..pki.station_credentials(11) };
    assert_eq!(credentials.add_credentials(&mut security, &PortableBackend, now), []);
    Some(Box::new(security))
}

fn strict_entity(credentials: &Credentials) -> Option<Box<SecurityStation>> {
    let (security, refused) = security_entity(SecurityPolicy::Strict, credentials);
    assert_eq!(refused, []);
    Some(security)
}

fn gn_address_of_station(index: usize) -> GnAddress {
    GnAddress::new(false, GnStationType::PassengerCar, [2, 0, 0, 0, 0, index as u8 + 1])
}

/// Returns the service that the first station announces.
fn announced_service() -> AnnouncedService {
    AnnouncedService { its_aid: ItsAid(36), ..AnnouncedService::default() }
}

fn new_station(index: usize, security: Option<Box<SecurityStation>>) -> Station {
    station_with(index, security, Vec::new())
}

fn station_with(
    index: usize,
    security: Option<Box<SecurityStation>>,
    services: Vec<AnnouncedService>,
) -> Station {
    let geonet = GeonetSettings {
        facilities_settings: Some(FacilitiesSettings {
            announced_services: services,
            ..common::facilities_of_passenger_car()
        }),
        ..common::geonet_settings(gn_address_of_station(index))
    };
    let config = StationConfig { geonet: Some(geonet), ..StationConfig::default() };
    let mut station = common::world::station_at_time_zero(config, index as u64);
    if let Some(security) = security {
        station.start_security(Time::ZERO, wall_time_at(Time::ZERO), security);
    }
    station
}

/// A radio that records which frames it carried and which messages stations delivered.
struct RecordingRadio {
    /// Returns whether the station with the second index receives frames of the station with the first index.
    can_receive: fn(usize, usize) -> bool,
    /// Frames that stations have sent, each with the index of its sender.
    sent_frames: Vec<(usize, Frame)>,
    delivered_payloads: Vec<(usize, Delivered)>,
    warnings: Vec<String>,
}

/// Stations that drive in a line.
type LineOfStations = common::world::TestNetwork<RecordingRadio>;

impl NetworkBehaviour for RecordingRadio {
    fn handle_output(road: &mut LineOfStations, from: usize, output: Output) {
        match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                for to in 0..road.stations.len() {
                    let mac = road.stations[to].geonet().expect("a router").address().mid();
                    let is_meant = frame.destination == BROADCAST_MAC || frame.destination == mac;
                    if to != from && is_meant && (road.network_behaviour.can_receive)(from, to) {
                        road.send_now(to, Input::Frame(frame.clone()));
                    }
                }
                road.network_behaviour.sent_frames.push((from, frame));
            }
            Output::Geonet(GeonetOutput::Delivered(delivered)) => {
                road.network_behaviour.delivered_payloads.push((from, delivered))
            }
            Output::Nemo(NemoOutput::Event(Event::Warning { message })) => {
                road.network_behaviour.warnings.push(message)
            }
            _ => {}
        }
    }
}

impl LineOfStations {
    fn new(security: Vec<Option<Box<SecurityStation>>>, reach: fn(usize, usize) -> bool) -> LineOfStations {
        let stations = security.into_iter().enumerate().map(|(index, it)| new_station(index, it));
        let (sent, delivered, warnings) = (Vec::new(), Vec::new(), Vec::new());
        let mut road = LineOfStations::with_stations(
            stations.collect::<Vec<_>>(),
            RecordingRadio { can_receive: reach, sent_frames: sent, delivered_payloads: delivered, warnings },
        );
        road.now = Time::from_secs(5);
        road
    }

    /// Moves all stations for some tenths of a second, by 5 m in each tenth. The stations drive 100 m apart
    /// from each other.
    fn drive_for_tenths_of_second(&mut self, tenths: usize) {
        for _ in 0..tenths {
            let end = self.now + Duration::from_millis(100);
            for index in 0..self.stations.len() {
                let milliseconds =
                    START_UNIX_MILLISECONDS - 1_072_915_200_000 + 5000 + self.now.as_nanos() / 1_000_000;
                let metres = 100 * index as i32 + (self.now.as_nanos() / 20_000_000) as i32;
                let position = Position {
                    timestamp: milliseconds as u32,
                    latitude: 488_375_000 + 90 * metres,
                    longitude: 21_008_000,
                    accurate: true,
                    speed: 5000,
                    heading: 0,
                };
                self.pass_recorded_input(index, Input::Position(position));
            }
            self.run_until(end);
        }
    }

    /// Returns the MID under which the second station knows the first station.
    fn mid_of_first_station(&self) -> [u8; 6] {
        self.stations[0].geonet().expect("a router").address().mid()
    }

    /// Returns the frames that the first station has sent since index `since`, each with the packet in it.
    fn frames_of_first_since(&self, since: usize) -> Vec<(&Frame, Vec<u8>)> {
        let own = self.network_behaviour.sent_frames[since..].iter().filter(|(from, _)| *from == 0);
        own.map(|(_, frame)| (frame, packet_without_envelope(&frame.packet).expect("it is signed"))).collect()
    }

    /// Makes the first station send DENMs about an event for `seconds`.
    fn report_event(&mut self, seconds: u32) {
        let mut denm = Denm::default();
        denm.denm.management.validity_duration = cdd::ValidityDuration(seconds);
        let order = DenmCommand {
            wish: DenmAction::Trigger,
            denm: uper::encode(&denm).expect("encodes"),
            repetition_duration_ms: None,
            repetition_interval_ms: None,
            area: None,
            traffic_class: None,
        };
        self.pass_recorded_input(0, Input::Command(Command::Denm(order)));
    }

    /// Returns the numbers of the stations that station `index` knows: in its location table, and in its
    /// Local Dynamic Map.
    fn known_stations(&self, index: usize) -> (Vec<usize>, Vec<usize>) {
        let table = self.stations[index].geonet().expect("a router").location_table();
        let map = &self.stations[index].facilities().expect("facilities").services().ldm;
        let all = 0..self.stations.len();
        let located =
            |other: &usize| table.iter().any(|(_, entry)| entry.mac() == gn_address_of_station(*other).mid());
        let mapped = |other: &usize| map.station(StationId(*other as u32 + 1)).is_some();
        (all.clone().filter(located).collect(), all.filter(mapped).collect())
    }
}

const fn can_always_receive(_: usize, _: usize) -> bool {
    true
}

#[test]
fn signed_messages_are_accepted() {
    let pki = TestPki::new(1, 2);
    let mut road = LineOfStations::new(
        vec![strict_entity(&pki.station_credentials(11)), strict_entity(&pki.station_credentials(12))],
        can_always_receive,
    );
    road.drive_for_tenths_of_second(30);
    assert_eq!(road.known_stations(0), (vec![1], vec![1]));
    assert_eq!(road.known_stations(1), (vec![0], vec![0]));
    // NH field of the Basic Header: every packet on the air must be a secured packet (EN 302 636-4-1 9.6.1).
    assert!(road.network_behaviour.sent_frames.iter().all(|(_, frame)| frame.packet[0] & 0x0f == 2));
    let (signed, verified) = (road.counter(0, "security.signed"), road.counter(1, "security.verified"));
    assert!(signed > 25 && verified + 2 >= signed, "{signed} {verified}");
    // TS 103 097 7.1.1: once a second a CAM contains the certificate; all other CAMs contain its digest.
    let whole = road.counter(0, "security.with_certificate");
    assert!((3..=8).contains(&whole), "{whole} of {signed}");
    assert!(road.network_behaviour.warnings.is_empty(), "{:?}", road.network_behaviour.warnings);
}

#[test]
fn unsigned_messages_are_rejected() {
    let (pki, strangers, revoked) = (TestPki::new(1, 2), TestPki::new(3, 4), TestPki::new(1, 5));
    let mut trusting = pki.station_credentials(11);
    trusting.revoked_certificates.push(name_of_certificate(&PortableBackend, &revoked.authority));
    let with_ticket_until = |seconds| Credentials {
        tickets: vec![pki.new_ticket(13, validity_until(seconds))],
        ..pki.station_credentials(13)
    };
    // Station 0 receives the frames of the other stations. Station 1 is trusted, 2 does not sign, and 3 has
    // another root. The authority of 4 is revoked, and the ticket of 5 is valid for ten seconds.
    let all = vec![
        strict_entity(&trusting),
        strict_entity(&pki.station_credentials(12)),
        None,
        strict_entity(&strangers.station_credentials(14)),
        strict_entity(&revoked.station_credentials(15)),
        strict_entity(&with_ticket_until(10)),
    ];
    let mut road = LineOfStations::new(all, |from, to| to == 0 && from < 5);
    road.drive_for_tenths_of_second(49);
    // Station 5 sends its last frames while its ticket is still valid; one of them contains the ticket. The
    // frames arrive one second later, when the ticket has expired.
    let last: Vec<Frame> = road
        .network_behaviour
        .sent_frames
        .iter()
        .filter(|(from, _)| *from == 5)
        .map(|(_, frame)| frame.clone())
        .collect();
    road.drive_for_tenths_of_second(10);
    for frame in last.into_iter().rev().take(11) {
        road.pass_recorded_input(0, Input::Frame(frame));
    }
    road.drive_for_tenths_of_second(20);
    assert_eq!(road.known_stations(0), (vec![1], vec![1]));
    for reason in ["unsecured", "unknown_issuer", "revoked", "certificate_expired"] {
        assert!(road.counter(0, &format!("security.dropped.{reason}")) > 0, "{reason}");
    }
    // Without a valid ticket the station sends nothing, and warns once.
    assert_eq!(
        road.network_behaviour.warnings,
        ["the station sends nothing: this station has no ticket that is valid at its position now"]
    );
}

#[test]
fn changed_and_replayed_messages_are_rejected() {
    let pki = TestPki::new(1, 2);
    // The stations are out of range of each other, and the test passes the frames by hand.
    let mut road = LineOfStations::new(
        vec![strict_entity(&pki.station_credentials(11)), strict_entity(&pki.station_credentials(12))],
        |_, _| false,
    );
    road.drive_for_tenths_of_second(12);
    let frames: Vec<Frame> = road
        .network_behaviour
        .sent_frames
        .iter()
        .filter(|(from, _)| *from == 1)
        .map(|(_, frame)| frame.clone())
        .collect();
    let fresh = frames.last().expect("frames").clone();
    let dropped =
        |road: &LineOfStations, reason: &str| road.counter(0, &format!("security.dropped.{reason}"));
    // Change an octet in the position vector, or at the end of the signature.
    for at in [40, fresh.packet.len() - 1] {
        let mut changed = fresh.clone();
        changed.packet[at] ^= 1;
        road.pass_recorded_input(0, Input::Frame(changed));
    }
    assert_eq!(road.known_stations(0), (vec![], vec![]));
    // The messages with a digest wait for the certificate. The first frame of the last second contains the
    // certificate.
    for frame in frames.iter().rev().take(11) {
        road.pass_recorded_input(0, Input::Frame(frame.clone()));
    }
    assert_eq!(road.known_stations(0), (vec![1], vec![1]));
    assert!(dropped(&road, "bad_signature") + dropped(&road, "malformed") >= 2);
    let believed = road.counter(0, "security.verified");
    road.pass_recorded_input(0, Input::Frame(fresh));
    assert_eq!((dropped(&road, "replayed"), road.counter(0, "security.verified")), (1, believed));
    road.drive_for_tenths_of_second(25);
    let late = frames.first().expect("frames").clone();
    road.pass_recorded_input(0, Input::Frame(late));
    assert_eq!((dropped(&road, "too_old"), road.counter(0, "security.verified")), (1, believed));
}

#[test]
fn forwarded_packet_keeps_envelope_of_its_source() {
    let pki = TestPki::new(1, 2);
    let all = (11..14).map(|ticket| strict_entity(&pki.station_credentials(ticket))).collect();
    let mut road = LineOfStations::new(all, |from, to| from.abs_diff(to) == 1);
    road.drive_for_tenths_of_second(15);
    let area = Area {
        shape: AreaShape::Circle,
        latitude: 488_375_000,
        longitude: 21_008_000,
        distance_a: 1000,
        distance_b: 0,
        angle: 0,
    };
    let before = road.network_behaviour.sent_frames.len();
    let request = GeonetRequest {
        transport: GeonetTransport::GeoBroadcast(area),
        next_header: 0,
        store_carry_forward: false,
        traffic_class: 0,
        lifetime_ms: None,
        hop_limit: None,
        payload: b"beware".to_vec(),
    };
    road.pass_recorded_input(0, Input::Geonet(request));
    road.drive_for_tenths_of_second(10);
    let heard: Vec<_> = road
        .network_behaviour
        .delivered_payloads
        .iter()
        .filter(|(_, it)| it.payload == b"beware")
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(heard, [1, 2]);
    assert!(road.counter(1, "security.forwarded") > 0);
    // An attacker replays a message late. The receiver must not accept it as a copy that another station
    // forwarded.
    let copy = road.network_behaviour.sent_frames[before..]
        .iter()
        .find(|(from, _)| *from == 0)
        .expect("the packet")
        .1
        .clone();
    road.drive_for_tenths_of_second(30);
    road.pass_recorded_input(1, Input::Frame(copy));
    assert_eq!(road.counter(1, "security.dropped.replayed"), 1);
}

#[test]
fn station_with_lax_policy_still_rejects_invalid_signatures() {
    let (pki, strangers) = (TestPki::new(1, 2), TestPki::new(3, 4));
    let (lenient, refused) = security_entity(SecurityPolicy::AcceptUnsigned, &pki.station_credentials(11));
    assert_eq!(refused, []);
    let all = vec![Some(lenient), None, strict_entity(&strangers.station_credentials(12))];
    let mut road = LineOfStations::new(all, |_, to| to == 0);
    road.drive_for_tenths_of_second(30);
    assert_eq!(road.known_stations(0), (vec![1], vec![1]));
    assert!(road.counter(0, "security.plain") > 0);
}

fn request_to_port(port: u16, message: &[u8]) -> GeonetRequest {
    GeonetRequest {
        transport: GeonetTransport::SingleHop,
        next_header: 2,
        store_carry_forward: false,
        traffic_class: 0,
        lifetime_ms: None,
        hop_limit: None,
        payload: [&BtpB { destination_port: port, destination_port_info: 0 }.to_octets(), message].concat(),
    }
}

fn with_applications(pki: &TestPki, number: u8, applications: Vec<PsidSsp>) -> Credentials {
    let content =
        pki::ticket_content(signing_key(number).public_key(), validity_until(10_000), None, applications);
    let issued =
        pki::issue_certificate(&PortableBackend, pki.authority_key.as_ref(), Some(&pki.authority), content);
    let own = PrivateKey::new(EllipticCurve::NistP256, &key_scalar(number)).expect("as long as the curve's");
    Credentials { tickets: vec![(issued.expect("signed"), own)], ..pki.station_credentials(number) }
}

#[test]
fn station_signs_each_message_with_its_application_identifier() {
    let pki = TestPki::new(1, 2);
    let sender = with_applications(&pki, 11, pki::test_applications(true));
    let mut road = LineOfStations::new(
        vec![strict_entity(&sender), strict_entity(&pki.station_credentials(12))],
        can_always_receive,
    );
    road.stations[0] = station_with(0, strict_entity(&sender), vec![announced_service()]);
    road.drive_for_tenths_of_second(20);
    assert!(road.counter(0, "facilities.saem.sent") > 0);
    assert!(road.counter(1, "facilities.saem.received") > 0);
    for (port, application) in [
        (port::SPATEM, 137),
        (port::MAPEM, 138),
        (port::IVIM, 139),
        (port::SREM, 140),
        (port::SSEM, 637),
        (port::VAM, 638),
        (port::CPM, 639),
        (port::IMZM, 640),
        (port::SAEM, 540_801),
        (port::RTCMEM, 540_802),
        (4000, 141),
    ] {
        let before = road.network_behaviour.sent_frames.len();
        road.pass_recorded_input(0, Input::Geonet(request_to_port(port, b"anything")));
        let frame = &road.network_behaviour.sent_frames[before].1;
        let Ok(Envelope::Signed(message)) = Envelope::parse(&frame.packet[4..]) else { panic!("{port}") };
        assert_eq!(message.header.psid, Psid(application), "port {port}");
        assert!(
            road.network_behaviour
                .delivered_payloads
                .iter()
                .any(|(at, it)| *at == 1 && it.payload[..2] == port.to_be_bytes()),
            "{port} is believed"
        );
    }
    assert_eq!(road.counter(1, "security.dropped.wrong_application"), 0);
}

#[test]
fn message_beyond_ticket_permissions_is_refused_and_not_sent() {
    let pki = TestPki::new(1, 2);
    let few =
        pki::test_applications(false).into_iter().filter(|it| [Psid::CAM, Psid::DENM].contains(&it.psid));
    let few = with_applications(&pki, 11, few.collect());
    let mut road = LineOfStations::new(
        vec![strict_entity(&few), strict_entity(&pki.station_credentials(12))],
        can_always_receive,
    );
    road.stations[0] = station_with(0, strict_entity(&few), vec![announced_service()]);
    road.drive_for_tenths_of_second(20);
    assert_eq!(
        (road.counter(0, "facilities.saem.sent"), road.counter(1, "facilities.saem.received")),
        (0, 0)
    );
    assert!(road.counter(0, "facilities.unsent") > 0 && road.counter(0, "facilities.cam.sent") > 0);
    let now = road.now;
    let mut refusal =
        |input| road.stations[0].handle_input(now, wall_time_at(now), input).expect_err("refused");
    for (port, name) in [(port::SSEM, "637 (SSEM)"), (port::SAEM, "540801 (SAEM)"), (4000, "141 (GN-MGMT)")] {
        let reason = refusal(Input::Geonet(request_to_port(port, b"anything")));
        assert_eq!(reason, format!("the ticket of this station does not permit application {name}"));
    }
    // The event is road works, which the SSP of an ordinary ticket does not permit.
    let mut denm = Denm::default();
    let mut situation = SituationContainer::default();
    situation.event_type.cause_code = cdd::CauseCodeType::ROADWORKS;
    denm.denm.situation = Some(situation);
    let order = DenmCommand {
        wish: DenmAction::Trigger,
        denm: uper::encode(&denm).expect("encodes"),
        repetition_duration_ms: None,
        repetition_interval_ms: None,
        area: None,
        traffic_class: None,
    };
    let reason = refusal(Input::Command(Command::Denm(order)));
    assert!(reason.contains("application 37 (DENM)"), "{reason}");
    assert_eq!(road.counter(0, "facilities.denm.sent"), 0);
    let told =
        road.network_behaviour.warnings.iter().filter(|warning| warning.contains("540801 (SAEM)")).count();
    assert_eq!(told, 1, "{:?}", road.network_behaviour.warnings);
}

#[test]
fn wrong_clock_of_station_is_reported() {
    let pki = TestPki::new(1, 2);
    let mut road = LineOfStations::new(
        vec![strict_entity(&pki.station_credentials(11)), strict_entity(&pki.station_credentials(12))],
        |_, _| false,
    );
    road.drive_for_tenths_of_second(100);
    // The second station's frames arrive a minute late, so the first station must suspect that its own clock
    // is fast.
    let frames: Vec<Frame> = road
        .network_behaviour
        .sent_frames
        .iter()
        .filter(|(from, _)| *from == 1)
        .map(|(_, frame)| frame.clone())
        .collect();
    assert!(road.network_behaviour.warnings.is_empty(), "{:?}", road.network_behaviour.warnings);
    road.now += Duration::from_secs(50);
    for frame in frames {
        road.now += Duration::from_millis(100);
        road.pass_recorded_input(0, Input::Frame(frame));
    }
    let [warning] = &road.network_behaviour.warnings[..] else {
        panic!("{:?}", road.network_behaviour.warnings)
    };
    assert!(warning.contains("clock seems to be") && warning.contains("ahead of their clocks"), "{warning}");
    let state = road.stations[0].security_status(road.now).expect("security");
    assert!(state.clock_ahead_ms.is_some_and(|ahead| (40_000..=65_000).contains(&ahead)), "{state:?}");
    // A message with the right time ends the clock warning.
    road.network_behaviour.can_receive = can_always_receive;
    road.drive_for_tenths_of_second(20);
    assert_eq!(road.network_behaviour.warnings.len(), 2, "{:?}", road.network_behaviour.warnings);
    assert_eq!(road.stations[0].security_status(road.now).expect("security").clock_ahead_ms, None);
}

#[test]
fn rejected_credentials_are_listed() {
    let (pki, strangers) = (TestPki::new(1, 2), TestPki::new(3, 4));
    let mut credentials = pki.station_credentials(11);
    let (certificate, _) = pki.new_ticket(12, validity_until(100));
    let (_, wrong) = pki.new_ticket(13, validity_until(100));
    credentials.tickets.push((certificate, wrong));
    credentials.tickets.push(strangers.new_ticket(14, validity_until(100)));
    credentials.authorities.push(strangers.authority.clone());
    credentials.root_certificates.push(pki.authority.clone());
    let (_, refused) = security_entity(SecurityPolicy::Strict, &credentials);
    let expected = [
        (CredentialName::Root(1), SecurityDrop::WrongRole),
        (CredentialName::Authority(1), SecurityDrop::UnknownIssuer),
        (CredentialName::Ticket(1), SecurityDrop::BadKey),
        (CredentialName::Ticket(2), SecurityDrop::UnknownIssuer),
    ];
    assert_eq!(refused, expected);
    // The parser reads a valid line of a key file. All other lines in this test are invalid.
    let key = PrivateKey::parse(&format!("nist-p256 {}\n", "11".repeat(32))).expect("a key");
    assert!(key.to_signing_key(&PortableBackend).is_some());
    for line in ["", "nist-p256", "nist-p256 11", "p256 11", &format!("nist-p256 {}zz", "11".repeat(31))] {
        assert_eq!(PrivateKey::parse(line), None, "{line}");
    }
}

/// Returns the station ID in a CAM or a DENM, and the number of path points in a CAM.
fn facilities_ids_in(packet: &[u8]) -> Option<(u32, Option<usize>)> {
    let packet = Packet::parse(packet).expect("a packet");
    let (btp, message) = BtpB::parse(packet.payload).ok()?;
    if btp.destination_port != port::CAM {
        let denm = (btp.destination_port == port::DENM).then(|| Denm::from_octets(message).expect("a DENM"));
        return denm.map(|denm| (denm.header.station_id.0, None));
    }
    let cam = Cam::from_octets(message).expect("a CAM");
    let path = match &cam.cam.cam_parameters.low_frequency_container {
        Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(low)) => Some(low.path_history.0.len()),
        _ => None,
    };
    Some((cam.header.station_id.0, path))
}

/// TS 102 731, TR 103 415: ticket, GN address, link-layer address and station ID change together. Later
/// messages contain no part of the previous identity.
#[test]
fn vehicle_changes_its_pseudonym_while_driving() {
    let pki = TestPki::new(1, 2);
    let tickets: Vec<_> = (11..15).map(|number| pki.new_ticket(number, validity_until(10_000))).collect();
    let names: Vec<_> =
        tickets.iter().map(|(ticket, _)| name_of_certificate(&PortableBackend, ticket)).collect();
    let known: Vec<_> = names.iter().map(|name| StationIdentity::of_ticket(*name).mid).collect();
    let all = vec![vehicle_entity(&pki, tickets, 255), strict_entity(&pki.station_credentials(21))];
    let mut road = LineOfStations::new(all, can_always_receive);
    assert!(known.contains(&road.mid_of_first_station()), "from the start");
    road.drive_for_tenths_of_second(100);
    let mut lives: Vec<[u8; 6]> = Vec::new();
    for (frame, packet) in road.frames_of_first_since(0) {
        let parsed = Packet::parse(&packet).expect("a packet");
        let mid = parsed.extended.source().address.mid();
        assert_eq!(frame.source, mid, "the link's address is the packet's");
        let is_first = lives.last() != Some(&mid);
        if is_first {
            lives.push(mid);
        }
        // The packet carries the digest or the certificate of the ticket that signed it, and nothing of the
        // station's other tickets.
        let has = |octets: &[u8]| frame.packet.windows(octets.len()).any(|window| window == octets);
        for (name, other) in names.iter().zip(&known) {
            assert!(*other == mid || !(has(&name.0) || has(other)), "{mid:02x?} tells of {other:02x?}");
        }
        if let Some((station, path)) = facilities_ids_in(&packet) {
            assert_eq!(station.to_be_bytes(), mid[2..]);
            assert!(!is_first || path.is_none_or(|points| points == 0), "the path of the one before");
        }
    }
    // The vehicle drives 500 m in ten seconds.
    assert!((4..=5).contains(&lives.len()), "{lives:02x?}");
    assert!(lives.windows(2).all(|pair| pair[0] != pair[1]) && lives.iter().all(|life| known.contains(life)));
    assert_eq!(road.counter(0, "security.pseudonyms"), lives.len() as u64 - 1);
    // The second station has accepted all messages, and knows one station for each identity.
    let map = &road.stations[1].facilities().expect("facilities").services().ldm;
    let station = |mid: &[u8; 6]| u32::from_be_bytes([mid[2], mid[3], mid[4], mid[5]]);
    assert!(lives.iter().rev().take(2).all(|life| map.station(StationId(station(life))).is_some()));
    let dropped: u64 = SecurityDrop::ALL
        .iter()
        .map(|reason| road.counter(1, &format!("security.dropped.{}", reason.name())))
        .sum();
    assert_eq!(dropped, 0);
}

#[test]
fn own_active_event_delays_pseudonym_change() {
    let pki = TestPki::new(1, 2);
    let tickets =
        || (11..14).map(|number| pki.new_ticket(number, validity_until(10_000))).collect::<Vec<_>>();
    let mut road = LineOfStations::new(vec![vehicle_entity(&pki, tickets(), 255), None], can_always_receive);
    let first = road.mid_of_first_station();
    road.drive_for_tenths_of_second(5);
    road.report_event(6);
    road.drive_for_tenths_of_second(55);
    assert_eq!(road.mid_of_first_station(), first, "an event goes on");
    road.drive_for_tenths_of_second(10);
    let second = road.mid_of_first_station();
    assert_ne!(second, first, "it is over");
    // An application locks the pseudonym, and then ends the lock.
    road.pass_recorded_input(0, Input::Command(Command::LockPseudonym { for_s: 60 }));
    road.drive_for_tenths_of_second(50);
    assert_eq!(road.mid_of_first_station(), second);
    road.pass_recorded_input(0, Input::Command(Command::LockPseudonym { for_s: 0 }));
    road.drive_for_tenths_of_second(1);
    let third = road.mid_of_first_station();
    assert_ne!(third, second);
    // A command changes the pseudonym at once. A lock ends at the latest after the longest permitted time.
    road.report_event(600);
    road.pass_recorded_input(0, Input::Command(Command::ChangePseudonym));
    assert_ne!(road.mid_of_first_station(), third);
    let mut road = LineOfStations::new(vec![vehicle_entity(&pki, tickets(), 5), None], can_always_receive);
    let first = road.mid_of_first_station();
    road.drive_for_tenths_of_second(5);
    road.report_event(600);
    road.drive_for_tenths_of_second(48);
    assert_eq!(road.mid_of_first_station(), first);
    road.drive_for_tenths_of_second(5);
    assert_ne!(road.mid_of_first_station(), first);
}

#[test]
fn echo_of_former_pseudonym_is_recognised() {
    let pki = TestPki::new(1, 2);
    let tickets: Vec<_> = (11..13).map(|number| pki.new_ticket(number, validity_until(10_000))).collect();
    let mut road = LineOfStations::new(
        vec![vehicle_entity(&pki, tickets, 255), strict_entity(&pki.station_credentials(21))],
        |_, _| false,
    );
    road.drive_for_tenths_of_second(10);
    let before = road.network_behaviour.sent_frames.len();
    road.report_event(600);
    let told = road.frames_of_first_since(before).first().expect("a DENM").0.clone();
    road.pass_recorded_input(0, Input::Command(Command::ChangePseudonym));
    // Another station forwards back a message that the first station sent under its old pseudonym.
    road.pass_recorded_input(0, Input::Frame(Frame { source: gn_address_of_station(1).mid(), ..told }));
    assert_eq!(road.counter(0, "security.dropped.former_pseudonym"), 1);
    assert_eq!(road.counter(0, "security.received"), 1);
    assert!(road.network_behaviour.delivered_payloads.is_empty());
    assert_eq!(road.stations[0].geonet().expect("a router").location_table().iter().count(), 0);
}

#[test]
fn station_without_another_ticket_keeps_its_pseudonym() {
    let pki = TestPki::new(1, 2);
    let one = vec![pki.new_ticket(11, validity_until(10_000))];
    let mut road = LineOfStations::new(
        vec![vehicle_entity(&pki, one, 255), strict_entity(&pki.station_credentials(21))],
        can_always_receive,
    );
    let first = road.mid_of_first_station();
    road.drive_for_tenths_of_second(50);
    assert_eq!((road.mid_of_first_station(), road.counter(0, "security.pseudonyms")), (first, 0));
    let now = road.now;
    let mut order = |index: usize, command| {
        road.stations[index]
            .handle_input(now, wall_time_at(now), Input::Command(command))
            .expect_err("refused")
    };
    assert_eq!(order(0, Command::ChangePseudonym), "this station has no other ticket that is valid now");
    for command in [Command::ChangePseudonym, Command::LockPseudonym { for_s: 1 }] {
        assert!(order(1, command).contains("there is no [security.pseudonyms]"));
    }
    // When a ticket expires, the station changes to another ticket with its own address. Without a valid
    // ticket it sends nothing.
    let two = vec![pki.new_ticket(11, validity_until(10)), pki.new_ticket(12, validity_until(16))];
    let ends: Vec<_> = two
        .iter()
        .map(|(ticket, _)| StationIdentity::of_ticket(name_of_certificate(&PortableBackend, ticket)).mid)
        .collect();
    let mut road = LineOfStations::new(vec![vehicle_entity(&pki, two, 255), None], can_always_receive);
    road.pass_recorded_input(0, Input::Command(Command::LockPseudonym { for_s: 600 }));
    road.drive_for_tenths_of_second(150);
    for (frame, packet) in road.frames_of_first_since(0) {
        assert_eq!(frame.source, Packet::parse(&packet).expect("a packet").extended.source().address.mid());
        assert!(ends.contains(&frame.source));
    }
    assert_eq!(road.mid_of_first_station(), ends[1]);
    assert_eq!(
        road.network_behaviour.warnings,
        ["the station sends nothing: this station has no ticket that is valid at its position now"]
    );
}
