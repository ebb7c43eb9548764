//! Signed packets in a station (EN 302 636-4-1 8.6, TS 103 097): `carnet_security`'s security entity is
//! between the link and the router.
//!
//! A frame from the link goes to the entity first, and to the router after validation. A frame from the
//! router passes the entity last, before the link. The entity signs the station's own packets and gives
//! forwarded packets their envelope back. So an unverified packet changes neither the location table nor
//! forwarding, and reaches no service.
//!
//! * *The entity is behind a trait*, so that a station without an entity links no cryptography.
//! * *The date* is that of the last input that had a date, plus the time since that input.
//! * *No fast path*: the programs of a fast path cannot sign, so a station with an entity has no fast path.
//! * *The IPv6 MTU* is smaller than without an entity, by the longest envelope of the station's own packets.
//! * *Pseudonym changes* (`carnet_security::pseudonym`): at each position the station checks whether a change
//!   is due. The whole station changes between two packets: the router, the facilities, and with the router's
//!   address the link and the virtual interfaces. The station drops packets that wait under the old address.
//!   While the station repeats an own event, it delays a change, so that the event's action ID stays. An
//!   application may delay a change as well ([`super::command`]). An operator's order to change takes effect
//!   at once.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;

use carnet_base::{Time, WallTime};
use carnet_geonet::{MacAddress, ReceivedFrame, geodesy};
use carnet_security::inspection::application_of_payload;
use carnet_security::permissions::Psid;
use carnet_security::pseudonym::StationIdentity;
use carnet_security::time::{Time64, ValidityPeriod};
use carnet_security::{
    Counters, HandledFrame, SecurityDrop, SecurityStation, SecurityTime, VerifiedPacket,
    packet_without_envelope,
};
use carnet_wire::btp::BtpB;
use carnet_wire::geonet::{CommonNextHeader, Packet, Timestamp};

use super::status::{self, SecurityTicket};
use crate::position::{Position, PositionQuality};

/// Code of elevation 0, in 0.1 m: the codes begin 409.6 m below the ellipsoid (IEEE 1609.2 6.3.21).
const ELEVATION_OFFSET: i32 = 4096;
/// Code of the largest elevation, which also stands for all higher elevations.
const MAX_ELEVATION_CODE: i32 = 0xefff;

/// A security entity: interface of [`SecurityStation`], so that the station can be built without one.
#[allow(missing_docs, reason = "as of Security")]
pub trait SecurityEntity: Debug + Send {
    fn handle_frame(
        &mut self,
        now: SecurityTime,
        frame: ReceivedFrame<'_>,
    ) -> Result<HandledFrame, SecurityDrop>;
    fn poll_verified(&mut self, now: SecurityTime) -> Option<VerifiedPacket>;
    fn secure(&mut self, now: SecurityTime, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop>;
    fn check_own_message(
        &mut self,
        _: SecurityTime,
        _: CommonNextHeader,
        _: &[u8],
    ) -> Result<(), SecurityDrop> {
        Ok(())
    }
    fn handle_position(&mut self, position: geodesy::Position, elevation: u16);
    fn handle_address(&mut self, mid: MacAddress);
    fn poll_timeout(&self, now: Time) -> Option<Time>;
    fn envelope_overhead(&self) -> usize;
    fn counters(&self) -> &Counters;
    fn status(&self, now: SecurityTime) -> status::Security;
    fn has_pseudonyms(&self) -> bool {
        false
    }
    fn first_identity(&mut self, _: SecurityTime) -> Option<StationIdentity> {
        None
    }
    fn poll_identity(&mut self, _: SecurityTime) -> Option<StationIdentity> {
        None
    }
    fn change_pseudonym(&mut self, _: SecurityTime) -> Option<StationIdentity> {
        None
    }
    fn lock_pseudonym(&mut self, _: Time, _locked: bool) {}
    fn clock_lead_ms(&self, _: Time) -> Option<i64> {
        None
    }
}

impl SecurityEntity for SecurityStation {
    fn handle_frame(
        &mut self,
        now: SecurityTime,
        frame: ReceivedFrame<'_>,
    ) -> Result<HandledFrame, SecurityDrop> {
        SecurityStation::handle_frame(self, now, frame)
    }

    fn poll_verified(&mut self, now: SecurityTime) -> Option<VerifiedPacket> {
        SecurityStation::poll_verified(self, now)
    }

    fn secure(&mut self, now: SecurityTime, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        SecurityStation::secure_packet(self, now, frame)
    }

    fn check_own_message(
        &mut self,
        now: SecurityTime,
        next_header: CommonNextHeader,
        payload: &[u8],
    ) -> Result<(), SecurityDrop> {
        SecurityStation::check_own_message(self, now, next_header, payload)
    }

    fn handle_position(&mut self, position: geodesy::Position, elevation: u16) {
        SecurityStation::handle_position(self, position, elevation);
    }

    fn handle_address(&mut self, mid: MacAddress) {
        SecurityStation::handle_address(self, mid);
    }

    fn poll_timeout(&self, now: Time) -> Option<Time> {
        SecurityStation::poll_timeout(self, now)
    }

    fn envelope_overhead(&self) -> usize {
        SecurityStation::max_envelope_octets(self)
    }

    fn counters(&self) -> &Counters {
        SecurityStation::counters(self)
    }

    fn has_pseudonyms(&self) -> bool {
        self.config().pseudonym_strategy.is_some()
    }

    fn first_identity(&mut self, now: SecurityTime) -> Option<StationIdentity> {
        SecurityStation::first_identity(self, now)
    }

    fn poll_identity(&mut self, now: SecurityTime) -> Option<StationIdentity> {
        SecurityStation::poll_identity(self, now)
    }

    fn change_pseudonym(&mut self, now: SecurityTime) -> Option<StationIdentity> {
        SecurityStation::change_pseudonym(self, now)
    }

    fn lock_pseudonym(&mut self, now: Time, locked: bool) {
        SecurityStation::lock_pseudonym(self, now, locked);
    }

    fn clock_lead_ms(&self, now: Time) -> Option<i64> {
        SecurityStation::clock_lead_ms(self, now)
    }

    fn status(&self, now: SecurityTime) -> status::Security {
        let (issuers, tickets) = self.store().len();
        let (signs, own) = self.own_ticket_validities(now);
        let (queued, parked) = self.waiting_messages();
        let config = self.config();
        let seconds = |date: Time64| date.to_wall_time(leap_seconds()).as_unix_nanos() / 1_000_000_000;
        let begin = |validity: &ValidityPeriod| validity.start.start_of_second();
        let counted = self.counters();
        status::Security {
            policy: config.policy.name().into(),
            ticket: signs.zip(own.first()).map(|(name, own)| SecurityTicket {
                name: name.to_string(),
                from: seconds(begin(own)),
                until: seconds(own.first_invalid_time()),
            }),
            tickets_now: own.iter().filter(|own| own.contains_time(now.certificate_time)).count() as u64,
            tickets_later: own.iter().filter(|own| begin(own) > now.certificate_time).count() as u64,
            tickets_until: own
                .iter()
                .map(ValidityPeriod::first_invalid_time)
                .filter(|end| *end > now.certificate_time)
                .max()
                .map(seconds),
            issuers: issuers as u64,
            signers: tickets as u64,
            queued: queued as u64,
            queue: config.max_queued as u64,
            parked: parked as u64,
            parking: config.max_waiting_for_certificate as u64,
            verifications_per_second: config.verifications_per_second,
            clock_ahead_ms: self
                .clock_lead_ms(now.time)
                .map(|ahead| i32::try_from(ahead).unwrap_or(if ahead > 0 { i32::MAX } else { i32::MIN })),
            received: counted.received_packets,
            verified: counted.verified_packets,
            copies: counted.accepted_copies,
            plain: counted.accepted_unsigned,
            verifications: counted.verified_signatures,
            signed: counted.signed_packets,
            dropped: counted.dropped_by_reason().map(|(reason, count)| (reason.to_owned(), count)).collect(),
        }
    }
}

fn leap_seconds() -> u32 {
    u32::try_from(Timestamp::LEAP_SECONDS).unwrap_or_default()
}

/// Security entity of a station, and further state about signing and verification.
#[derive(Debug)]
pub struct SecurityPlane {
    pub(super) security_entity: Box<dyn SecurityEntity>,
    /// Last date from an input, and the time of that input.
    last_date: (Time, WallTime),
    encoded_elevation: u16,
    missing_ticket_state: MissingTicketState,
    /// Applications that the ticket does not permit, and for which the station has already warned the
    /// operator.
    unpermitted_applications: BTreeSet<Psid>,
    /// Whether the station has already warned the operator about its clock.
    has_warned_about_clock: bool,
    /// Warnings that operators have not received yet.
    pending_warnings: VecDeque<String>,
    /// Time until which an application has locked the pseudonym; `None` without a lock.
    pub(super) locked_until: Option<Time>,
}

/// Reason why the station signs no packet.
const NO_TICKET_ERROR: &str = "this station has no ticket that is valid at its position now";
/// Largest number of unpermitted applications about which operators get warnings.
const MAX_UNPERMITTED_APPLICATIONS: usize = 32;

/// Whether the station drops its own packets because it has no valid ticket, and whether the operator has
/// been warned about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingTicketState {
    None,
    ToBeTold,
    Told,
}

impl SecurityPlane {
    /// Returns the security plane of a station with this entity; `wall` is the date at `now`.
    pub fn new(entity: Box<dyn SecurityEntity>, now: Time, wall: WallTime) -> SecurityPlane {
        let (elevation, silence) = (encode_elevation(0), MissingTicketState::None);
        SecurityPlane {
            security_entity: entity,
            last_date: (now, wall),
            encoded_elevation: elevation,
            missing_ticket_state: silence,
            unpermitted_applications: BTreeSet::new(),
            has_warned_about_clock: false,
            pending_warnings: VecDeque::new(),
            locked_until: None,
        }
    }

    /// Returns the entity.
    pub fn entity(&self) -> &dyn SecurityEntity {
        self.security_entity.as_ref()
    }

    /// Returns the state of the entity, for operators.
    pub fn status(&self, now: Time) -> status::Security {
        self.security_entity.status(self.now(now))
    }

    pub(crate) fn handle_date(&mut self, now: Time, wall: WallTime) {
        self.last_date = (now, wall);
    }

    pub(crate) fn handle_quality(&mut self, quality: &PositionQuality) {
        self.encoded_elevation = encode_elevation(quality.altitude_cm.unwrap_or_default());
    }

    pub(crate) fn handle_position(&mut self, position: &Position) {
        let place = geodesy::Position::new(position.latitude, position.longitude);
        self.security_entity.handle_position(place, self.encoded_elevation);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.security_entity.poll_timeout(self.last_date.0)
    }

    pub(crate) fn envelope_overhead(&self) -> u32 {
        u32::try_from(self.security_entity.envelope_overhead()).unwrap_or(u32::MAX)
    }

    pub(super) fn now(&self, now: Time) -> SecurityTime {
        let (then, wall) = self.last_date;
        let since = u64::try_from(now.saturating_since(then).as_nanos()).unwrap_or(u64::MAX);
        let wall = WallTime::from_unix_nanos(wall.as_unix_nanos().saturating_add(since));
        SecurityTime { time: now, certificate_time: Time64::from_wall_time(wall, leap_seconds()) }
    }

    /// Checks whether the current ticket permits this payload, which includes its BTP header.
    ///
    /// # Errors
    /// Returns the reason if the ticket does not permit the payload, in words for the operator, with the
    /// application's identifier.
    pub(crate) fn check_own_message(
        &mut self,
        now: Time,
        next_header: CommonNextHeader,
        payload: &[u8],
    ) -> Result<(), String> {
        let application = application_of_payload(next_header, payload);
        Err(match self.security_entity.check_own_message(self.now(now), next_header, payload) {
            Ok(()) => return Ok(()),
            Err(SecurityDrop::NoGenerationLocation) => {
                "this station cannot sign: it has no position yet".into()
            }
            Err(SecurityDrop::NoTicket) => NO_TICKET_ERROR.into(),
            Err(SecurityDrop::NoServicePermission) => format!(
                "the SSP of this station's ticket for application {application} do not permit the content \
                 of the message"
            ),
            Err(_) => format!("the ticket of this station does not permit application {application}"),
        })
    }

    /// Checks a message of a service, like [`Self::check_own_message`]. Warns the operator if the ticket does
    /// not permit it.
    pub(crate) fn check_permission_for_service(
        &mut self,
        now: Time,
        next_header: CommonNextHeader,
        payload: &[u8],
    ) -> Result<(), String> {
        let result = self.check_own_message(now, next_header, payload);
        let application = application_of_payload(next_header, payload);
        match &result {
            Err(reason) if reason == NO_TICKET_ERROR => {
                if self.missing_ticket_state == MissingTicketState::None {
                    self.missing_ticket_state = MissingTicketState::ToBeTold;
                }
            }
            Err(reason) => {
                let room = self.unpermitted_applications.len() < MAX_UNPERMITTED_APPLICATIONS;
                if room && self.unpermitted_applications.insert(application) {
                    self.pending_warnings.push_back(format!("messages are not sent: {reason}"));
                }
            }
            Ok(()) => {}
        }
        result
    }

    /// Checks whether the ticket permits this message to a BTP port.
    ///
    /// # Errors
    ///
    /// Returns the reason if it does not. Returns `Ok` without a valid ticket or a position, because the
    /// service decides about these cases.
    pub(crate) fn check_permission_for_message(
        &mut self,
        now: Time,
        port: u16,
        message: &[u8],
    ) -> Result<(), String> {
        let header = BtpB { destination_port: port, destination_port_info: 0 }.to_octets();
        let payload = [&header[..], message].concat();
        match self.security_entity.check_own_message(self.now(now), CommonNextHeader::BtpB, &payload) {
            Ok(()) | Err(SecurityDrop::NoGenerationLocation | SecurityDrop::NoTicket) => Ok(()),
            Err(_) => self.check_own_message(now, CommonNextHeader::BtpB, &payload),
        }
    }

    /// Signs a packet of the router for the link; `mid` is the MID of the router's address. Returns `None` if
    /// the station must not send the packet.
    pub(crate) fn secure_packet(&mut self, now: Time, mid: MacAddress, packet: &[u8]) -> Option<Vec<u8>> {
        self.security_entity.handle_address(mid);
        // The entity counts the packets that it drops.
        let secured = self.security_entity.secure(self.now(now), packet);
        match secured {
            Ok(secured) => {
                self.missing_ticket_state = MissingTicketState::None;
                Some(secured)
            }
            Err(reason) => {
                if reason == SecurityDrop::NoTicket
                    && let Ok(packet) = Packet::parse(packet)
                {
                    // Ignore the result: the check has warned the operator.
                    let _ = self.check_permission_for_service(now, packet.common.next_header, packet.payload);
                }
                None
            }
        }
    }

    /// Validates a frame of the link.
    ///
    /// # Errors
    /// Returns the reason for which the entity has dropped and counted the frame.
    pub(crate) fn handle_frame(
        &mut self,
        now: Time,
        frame: ReceivedFrame<'_>,
    ) -> Result<HandledFrame, SecurityDrop> {
        self.security_entity.handle_frame(self.now(now), frame)
    }

    /// Returns the next packet that the entity has verified.
    pub(crate) fn poll_verified(&mut self, now: Time) -> Option<VerifiedPacket> {
        self.security_entity.poll_verified(self.now(now))
    }

    /// Returns the identity of the ticket with which the station starts, if it has pseudonyms.
    pub(crate) fn first_identity(&mut self, now: Time) -> Option<StationIdentity> {
        self.security_entity.first_identity(self.now(now))
    }

    /// Returns the new identity if a change of the pseudonym is due. `repeats` says whether the station
    /// repeats an own event, which delays a change.
    pub(crate) fn poll_identity(&mut self, now: Time, repeats: bool) -> Option<StationIdentity> {
        if !self.security_entity.has_pseudonyms() {
            return None;
        }
        let locked = repeats || self.locked_until.is_some_and(|until| now < until);
        self.security_entity.lock_pseudonym(now, locked);
        self.security_entity.poll_identity(self.now(now))
    }

    /// Queues a warning if the station's clock differs from the clocks of all neighbours that sign. The
    /// caller calls this function after a frame.
    pub(crate) fn warn_about_wrong_clock(&mut self, now: Time) {
        let ahead = self.security_entity.clock_lead_ms(now);
        if self.has_warned_about_clock == ahead.is_some() {
            return;
        }
        self.has_warned_about_clock = ahead.is_some();
        self.pending_warnings.push_back(match ahead {
            Some(ahead) => {
                let direction = if ahead > 0 { "ahead of" } else { "behind" };
                format!(
                    "all signed messages of other stations have a wrong time: this station's clock seems \
                     to be {} s {direction} their clocks. The stations reject each other's messages: \
                     check this machine's clock",
                    ahead.unsigned_abs() / 1000
                )
            }
            None => "the times of other stations' signed messages agree with this station's clock \
                 again"
                .into(),
        });
    }

    /// Returns the next warning for operators; `None` if no warning waits. While a problem lasts, the station
    /// warns only once.
    pub(crate) fn poll_warning(&mut self) -> Option<String> {
        if self.missing_ticket_state == MissingTicketState::ToBeTold {
            self.missing_ticket_state = MissingTicketState::Told;
            self.pending_warnings.push_back(format!("the station sends nothing: {NO_TICKET_ERROR}"));
        }
        self.pending_warnings.pop_front()
    }
}

/// Returns the encoded elevation of an altitude in centimetres above the ellipsoid.
fn encode_elevation(altitude_cm: i32) -> u16 {
    u16::try_from((altitude_cm / 10).saturating_add(ELEVATION_OFFSET).clamp(0, MAX_ELEVATION_CODE))
        .unwrap_or_default()
}

/// Returns a packet that the link returned, without its envelope: as the router sent it. A packet without an
/// envelope stays unchanged.
pub(crate) fn packet_without_signature(packet: &[u8]) -> Cow<'_, [u8]> {
    packet_without_envelope(packet).map_or(Cow::Borrowed(packet), Cow::Owned)
}
