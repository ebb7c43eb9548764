//! Signed packets in a station (EN 302 636-4-1 8.6, TS 103 097): the security entity of `carnet_security`
//! between the link and the router.
//!
//! A frame of the link goes to the entity first, and to the router after validation. A frame of the router
//! goes through the entity last. The entity signs the station's own packets and gives forwarded packets their
//! envelope back. So an unverified packet changes neither the location table nor forwarding, and reaches no
//! service.
//!
//! * *The entity is behind a trait*, so that a station without an entity links no cryptography.
//! * *The date* is that of the last input that had a date, plus the time since that input.
//! * *No fast path*: the programs of a fast path do not sign.
//! * *The IPv6 MTU* is smaller by the longest envelope of the station's own packets.
//! * *Pseudonym changes* (`carnet_security::pseudonym`): at each position the station checks whether a change
//!   is due. The whole station changes between two packets: the router, the facilities, and with the router's
//!   address the link and the virtual interfaces. The station drops packets that wait under the old address.
//!   While the station repeats an own event, it delays a change, so that the event's action ID stays. An
//!   application may delay a change as well ([`crate::io::Command::LockPseudonym`]). An operator's order to
//!   change takes effect at once.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use carnet_base::{SmallMap, Time, WallTime};
use carnet_geonet::{MacAddress, ReceivedFrame, geodesy};
use carnet_security::ids::HashedId8;
use carnet_security::inspection::application_of_payload;
use carnet_security::permissions::Psid;
use carnet_security::pseudonym::Identity;
use carnet_security::time::{Time64, ValidityPeriod};
use carnet_security::{Counters, Handled, Now, Security, SecurityDrop, Verified, unwrapped};
use carnet_wire::btp::BtpB;
use carnet_wire::geonet::{CommonNextHeader, Packet, Timestamp};

use super::Geonet;
use crate::geonet_io::{Position, PositionQuality};
use crate::io::{Event, Output};

/// Offset of encoded elevations, in 0.1 m: elevations begin 409.6 m below the ellipsoid (IEEE 1609.2 6.3.21).
const LOWEST: i32 = 4096;
/// Code of the largest elevation and of all elevations above it.
const HIGHEST: i32 = 0xefff;

/// Interface of a security entity, see [`Security`].
#[allow(missing_docs, reason = "as of Security")]
pub trait SecurityEntity: Debug + Send {
    fn handle_frame(&mut self, now: Now, frame: ReceivedFrame<'_>) -> Result<Handled, SecurityDrop>;
    fn poll_verified(&mut self, now: Now) -> Option<Verified>;
    fn secure(&mut self, now: Now, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop>;
    fn check_own(&mut self, _: Now, _: CommonNextHeader, _: &[u8]) -> Result<(), SecurityDrop> {
        Ok(())
    }
    fn handle_position(&mut self, position: geodesy::Position, elevation: u16);
    fn handle_address(&mut self, mid: MacAddress);
    fn poll_timeout(&self, now: Time) -> Option<Time>;
    fn overhead(&self) -> usize;
    fn counters(&self) -> &Counters;
    fn state(&self, now: Now) -> SecurityState;
    fn has_pseudonyms(&self) -> bool {
        false
    }
    fn first_identity(&mut self, _: Now) -> Option<Identity> {
        None
    }
    fn poll_identity(&mut self, _: Now) -> Option<Identity> {
        None
    }
    fn change_pseudonym(&mut self, _: Now) -> Option<Identity> {
        None
    }
    fn lock_pseudonym(&mut self, _: Time, _locked: bool) {}
    fn clock_ahead(&self, _: Time) -> Option<i64> {
        None
    }
}

/// State of a security entity, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityState {
    /// Policy for received messages.
    pub policy: carnet_security::Policy,
    /// Ticket that signs: its name, and its validity period. `None` if no ticket can sign now.
    pub ticket: Option<(HashedId8, WallTime, WallTime)>,
    /// Number of own tickets that are valid now, and number of own tickets that become valid later.
    pub own_tickets: (usize, usize),
    /// End of validity of the own ticket that is valid for longest.
    pub until: Option<WallTime>,
    /// Number of known root certificates and authorities.
    pub issuers: usize,
    /// Number of known tickets of other stations.
    pub tickets: usize,
    /// Number of messages that wait for verification, and the largest such number.
    pub queued: (usize, usize),
    /// Number of messages that wait for a certificate, and the largest such number.
    pub parked: (usize, usize),
    /// Largest number of verifications in a second.
    pub verifications_per_second: u32,
    /// Milliseconds by which the station's clock is ahead of the clocks of all neighbours that sign; `None`
    /// if the clock of one neighbour agrees.
    pub clock_ahead_ms: Option<i64>,
}

impl SecurityEntity for Security {
    fn handle_frame(&mut self, now: Now, frame: ReceivedFrame<'_>) -> Result<Handled, SecurityDrop> {
        Security::handle_frame(self, now, frame)
    }

    fn poll_verified(&mut self, now: Now) -> Option<Verified> {
        Security::poll_verified(self, now)
    }

    fn secure(&mut self, now: Now, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        Security::secure(self, now, frame)
    }

    fn check_own(
        &mut self,
        now: Now,
        next_header: CommonNextHeader,
        payload: &[u8],
    ) -> Result<(), SecurityDrop> {
        Security::check_own(self, now, next_header, payload)
    }

    fn handle_position(&mut self, position: geodesy::Position, elevation: u16) {
        Security::handle_position(self, position, elevation);
    }

    fn handle_address(&mut self, mid: MacAddress) {
        Security::handle_address(self, mid);
    }

    fn poll_timeout(&self, now: Time) -> Option<Time> {
        Security::poll_timeout(self, now)
    }

    fn overhead(&self) -> usize {
        Security::overhead(self)
    }

    fn counters(&self) -> &Counters {
        Security::counters(self)
    }

    fn has_pseudonyms(&self) -> bool {
        self.config().pseudonyms.is_some()
    }

    fn first_identity(&mut self, now: Now) -> Option<Identity> {
        Security::first_identity(self, now)
    }

    fn poll_identity(&mut self, now: Now) -> Option<Identity> {
        Security::poll_identity(self, now)
    }

    fn change_pseudonym(&mut self, now: Now) -> Option<Identity> {
        Security::change_pseudonym(self, now)
    }

    fn lock_pseudonym(&mut self, now: Time, locked: bool) {
        Security::lock_pseudonym(self, now, locked);
    }

    fn clock_ahead(&self, now: Time) -> Option<i64> {
        Security::clock_ahead(self, now)
    }

    fn state(&self, now: Now) -> SecurityState {
        let (issuers, tickets) = self.store().len();
        let (signs, own) = self.own_validities(now);
        let (queued, parked) = self.waiting();
        let config = self.config();
        let wall = |date: Time64| date.to_wall_time(leap_seconds());
        let begin = |validity: &ValidityPeriod| validity.start.start();
        SecurityState {
            policy: config.policy,
            ticket: signs.zip(own.first()).map(|(name, own)| (name, wall(begin(own)), wall(own.end()))),
            own_tickets: (
                own.iter().filter(|own| own.contains(now.date)).count(),
                own.iter().filter(|own| begin(own) > now.date).count(),
            ),
            until: own.iter().map(ValidityPeriod::end).filter(|end| *end > now.date).max().map(wall),
            issuers,
            tickets,
            queued: (queued, config.most_queued),
            parked: (parked, config.most_parked),
            verifications_per_second: config.verifications_per_second,
            clock_ahead_ms: self.clock_ahead(now.time),
        }
    }
}

fn leap_seconds() -> u32 {
    u32::try_from(Timestamp::LEAP_SECONDS).unwrap_or_default()
}

/// The security entity of a station, and the state that the station keeps beside it.
#[derive(Debug)]
pub(crate) struct Secured {
    entity: Box<dyn SecurityEntity>,
    /// Date of the last input with a date, and the time of that input.
    date: (Time, WallTime),
    elevation: u16,
    silence: Silence,
    /// Applications that the ticket does not permit, and about which operators have got a warning.
    unpermitted: SmallMap<Psid, ()>,
    /// Whether operators have got a warning about the station's clock.
    told_of_clock: bool,
    /// Warnings that operators have not received yet.
    warnings: VecDeque<String>,
    /// Time until which an application has locked the pseudonym; `None` without a lock.
    locked_until: Option<Time>,
}

/// Error for an order about pseudonyms if the station has no pseudonyms.
const NO_PSEUDONYMS: &str =
    "this station does not change its pseudonym: there is no [security.pseudonyms] in its config";

/// Reason why the station signs no packet.
const NO_TICKET: &str = "no ticket of this station holds here and now";
/// Largest number of unpermitted applications about which operators get warnings.
const MOST_UNPERMITTED: usize = 32;

/// Whether the station drops its own packets because no ticket can sign them, and whether operators have got
/// a warning about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    None,
    ToBeTold,
    Told,
}

impl Secured {
    pub(crate) fn new(entity: Box<dyn SecurityEntity>, now: Time, wall: WallTime) -> Secured {
        let (elevation, silence) = (elevation(0), Silence::None);
        Secured {
            entity,
            date: (now, wall),
            elevation,
            silence,
            unpermitted: SmallMap::new(),
            told_of_clock: false,
            warnings: VecDeque::new(),
            locked_until: None,
        }
    }

    pub(crate) fn entity(&self) -> &dyn SecurityEntity {
        self.entity.as_ref()
    }

    /// Returns the state of the entity, for operators.
    pub(crate) fn state(&self, now: Time) -> SecurityState {
        self.entity.state(self.now(now))
    }

    pub(super) fn handle_date(&mut self, now: Time, wall: WallTime) {
        self.date = (now, wall);
    }

    pub(super) fn handle_quality(&mut self, quality: &PositionQuality) {
        self.elevation = elevation(quality.altitude_cm.unwrap_or_default());
    }

    pub(super) fn handle_position(&mut self, position: &Position) {
        let place = geodesy::Position::new(position.latitude, position.longitude);
        self.entity.handle_position(place, self.elevation);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.entity.poll_timeout(self.date.0)
    }

    pub(super) fn overhead(&self) -> u32 {
        u32::try_from(self.entity.overhead()).unwrap_or(u32::MAX)
    }

    fn now(&self, now: Time) -> Now {
        let (then, wall) = self.date;
        let since = u64::try_from(now.saturating_since(then).as_nanos()).unwrap_or(u64::MAX);
        let wall = WallTime::from_unix_nanos(wall.as_unix_nanos().saturating_add(since));
        Now { time: now, date: Time64::from_wall_time(wall, leap_seconds()) }
    }

    /// Checks whether the current ticket permits this payload, which includes its BTP header.
    ///
    /// # Errors
    /// Returns the reason if not, in words for the operator, with the application's identifier.
    pub(super) fn check_own(
        &mut self,
        now: Time,
        next_header: CommonNextHeader,
        payload: &[u8],
    ) -> Result<(), String> {
        let application = application_of_payload(next_header, payload);
        Err(match self.entity.check_own(self.now(now), next_header, payload) {
            Ok(()) => return Ok(()),
            Err(SecurityDrop::NoGenerationLocation) => {
                "nothing can be signed: this station knows no position yet".into()
            }
            Err(SecurityDrop::NoTicket) => NO_TICKET.into(),
            Err(SecurityDrop::NoServicePermission) => format!(
                "the SSP of this station's ticket for application {application} do not cover what the \
                 message says"
            ),
            Err(_) => format!("the ticket of this station does not allow application {application}"),
        })
    }

    /// Checks a message of a service, like [`Self::check_own`]. The service does not use the reason, so a
    /// warning reports it to the operator.
    pub(super) fn check_service(
        &mut self,
        now: Time,
        next_header: CommonNextHeader,
        payload: &[u8],
    ) -> Result<(), String> {
        let result = self.check_own(now, next_header, payload);
        let application = application_of_payload(next_header, payload);
        match &result {
            Err(reason) if reason == NO_TICKET => {
                if self.silence == Silence::None {
                    self.silence = Silence::ToBeTold;
                }
            }
            Err(reason) => {
                let room = self.unpermitted.len() < MOST_UNPERMITTED;
                if room && self.unpermitted.insert(application, ()).is_none() {
                    self.warnings.push_back(format!("messages are not sent: {reason}"));
                }
            }
            Ok(()) => {}
        }
        result
    }

    /// Checks whether the ticket permits this message to a BTP port.
    ///
    /// # Errors
    /// Returns the reason if not, as [`Self::check_own`] does. Without a valid ticket or without a position
    /// it returns `Ok`, because the service decides about these cases.
    pub(super) fn check_message(&mut self, now: Time, port: u16, message: &[u8]) -> Result<(), String> {
        let header = BtpB { destination_port: port, destination_port_info: 0 }.to_octets();
        let payload = [&header[..], message].concat();
        match self.entity.check_own(self.now(now), CommonNextHeader::BtpB, &payload) {
            Ok(()) | Err(SecurityDrop::NoGenerationLocation | SecurityDrop::NoTicket) => Ok(()),
            Err(_) => self.check_own(now, CommonNextHeader::BtpB, &payload),
        }
    }

    /// Signs a packet of the router for the link; `mid` is the MID of the router's address. Returns `None` if
    /// the station must not send the packet.
    pub(super) fn secure(&mut self, now: Time, mid: MacAddress, packet: &[u8]) -> Option<Vec<u8>> {
        self.entity.handle_address(mid);
        // The entity counts the packets that it drops.
        let secured = self.entity.secure(self.now(now), packet);
        match secured {
            Ok(secured) => {
                self.silence = Silence::None;
                Some(secured)
            }
            Err(reason) => {
                if reason == SecurityDrop::NoTicket
                    && let Ok(packet) = Packet::parse(packet)
                {
                    // The result does not matter here: the check only queues the warning.
                    let _ = self.check_service(now, packet.common.next_header, packet.payload);
                }
                None
            }
        }
    }

    /// Warns, after a frame, if the station's clock differs from the clocks of all neighbours that sign.
    fn look_at_clock(&mut self, now: Time) {
        let ahead = self.entity.clock_ahead(now);
        if self.told_of_clock == ahead.is_some() {
            return;
        }
        self.told_of_clock = ahead.is_some();
        self.warnings.push_back(match ahead {
            Some(ahead) => {
                let direction = if ahead > 0 { "ahead of" } else { "behind" };
                format!(
                    "all signed messages of other stations are out of time: this station's clock seems to be \
                     {} s {direction} theirs; nothing of theirs is believed, nor will they believe what it \
                     signs",
                    ahead.unsigned_abs() / 1000
                )
            }
            None => "signed messages of other stations are in time again".into(),
        });
    }

    /// Returns a warning for operators, once for each period of the problem.
    pub(super) fn poll_warning(&mut self) -> Option<Event> {
        if self.silence == Silence::ToBeTold {
            self.silence = Silence::Told;
            self.warnings.push_back(format!("nothing is sent: {NO_TICKET}"));
        }
        self.warnings.pop_front().map(|message| Event::Warning { message })
    }
}

/// Returns the encoded elevation of an altitude in centimetres above the ellipsoid.
fn elevation(altitude_cm: i32) -> u16 {
    u16::try_from((altitude_cm / 10).saturating_add(LOWEST).clamp(0, HIGHEST)).unwrap_or_default()
}

/// Returns a packet from the link in the form that the router has sent: without the envelope.
pub(super) fn opened(packet: &[u8]) -> Cow<'_, [u8]> {
    unwrapped(packet).map_or(Cow::Borrowed(packet), Cow::Owned)
}

impl Geonet {
    /// Starts to sign and verify packets. With pseudonyms, the station takes the address of its ticket.
    pub(crate) fn secure(&mut self, now: Time, mut secured: Secured) {
        let identity = secured.entity.first_identity(secured.now(now));
        self.secured = Some(secured);
        self.become_another(now, identity);
    }

    /// Changes the pseudonym if a change is due. Before the call, the caller has sent the messages of the
    /// present position.
    pub(super) fn look_at_pseudonym(&mut self, now: Time) {
        let telling = self.facilities.as_ref().is_some_and(|facilities| facilities.is_telling());
        let Some(secured) = self.secured.as_mut().filter(|secured| secured.entity.has_pseudonyms()) else {
            return;
        };
        let locked = telling || secured.locked_until.is_some_and(|until| now < until);
        secured.entity.lock_pseudonym(now, locked);
        let identity = secured.entity.poll_identity(secured.now(now));
        self.become_another(now, identity);
    }

    /// Changes the pseudonym now, even if an application has locked it.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub(crate) fn handle_pseudonym_change(&mut self, now: Time) -> Result<(), String> {
        let secured = self.with_pseudonyms()?;
        let identity = secured.entity.change_pseudonym(secured.now(now));
        if identity.is_none() {
            return Err("there is no other ticket of this station that holds now".into());
        }
        self.become_another(now, identity);
        Ok(())
    }

    /// Locks the pseudonym for a time span; an empty span ends the lock.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub(crate) fn handle_pseudonym_lock(&mut self, now: Time, span: Duration) -> Result<(), String> {
        self.with_pseudonyms()?.locked_until = Some(now + span);
        Ok(())
    }

    fn with_pseudonyms(&mut self) -> Result<&mut Secured, String> {
        let secured = self.secured.as_mut().filter(|secured| secured.entity.has_pseudonyms());
        secured.ok_or_else(|| NO_PSEUDONYMS.into())
    }

    fn become_another(&mut self, now: Time, identity: Option<Identity>) {
        let Some(identity) = identity else { return };
        let address = identity.gn_address(self.address.station_type());
        if let Some(facilities) = &mut self.facilities {
            facilities.follow(address);
        }
        self.handle_address(now, address);
    }

    pub(crate) fn secured(&self) -> Option<&Secured> {
        self.secured.as_ref()
    }

    /// Handles a frame of the link if the station verifies packets.
    pub(super) fn handle_secured_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        let Some(secured) = &mut self.secured else { return };
        // The entity counts the frames that it drops.
        match secured.entity.handle_frame(secured.now(now), frame) {
            Ok(Handled::Plain) => self.route_frame(now, frame),
            Ok(Handled::Ready(copy)) => self.route_frame(now, copy.frame()),
            Ok(Handled::Queued) | Err(_) => {}
        }
        self.take_verified(now);
        if let Some(secured) = &mut self.secured {
            secured.look_at_clock(now);
            self.outputs.extend(secured.poll_warning().map(Output::Event));
        }
    }

    /// Passes the packets that the entity has verified to the router.
    pub(super) fn take_verified(&mut self, now: Time) {
        while let Some(secured) = &mut self.secured
            && let Some(verified) = secured.entity.poll_verified(secured.now(now))
        {
            self.route_frame(now, verified.frame());
        }
    }
}
