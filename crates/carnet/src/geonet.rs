//! GeoNetworking in a running station: its link, its position, and the requests of operators.

mod areas;
pub mod dcc;
mod fast_path;
pub mod ipv6;
pub mod multicast;
mod pings;
mod sending;

use std::future::pending;
use std::path::Path;

use anyhow::Context;
use carnet_api::config::{self, GeonetAddress};
use carnet_api::model::{
    GeonetStatus, GnNextHeader, GnPingEvent, GnPingRequest, GnReceived, GnStation, GnTarget,
};
use carnet_base::{Part, RateLimiter, Time, WallTime};
use carnet_cits::geonetworking::echo::{self, EchoMessage};
use carnet_cits::position::to_degrees;
use carnet_geonet::ReceivedFrame;
use carnet_geonet::dcc::Gate;
use carnet_linux::frame_link::{FrameLink, LinkEvent, LinkState, MacAddress as Mac};
use carnet_linux::multicast_link::MulticastEvent;
use carnet_linux::position::{
    PositionEvent, PositionLossReason, PositionSource, dead_reckoning::PositionReckoner,
};
use carnet_linux::virtual_link::VirtualLinkEvent;
use carnet_linux::{Result, clock};
use carnet_station::Station;
use carnet_station::io::{Delivered, Frame, GeonetRequest, GeonetTransport, Position, PositionQuality};
use carnet_wire::address::{MacAddress, Octets};
use carnet_wire::btp::{BtpA, BtpB};
use carnet_wire::geonet::{GnAddress, LongPositionVector, Timestamp};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Duration, sleep};
use tracing::{debug, info, warn};

use self::fast_path::FastPath;
use self::ipv6::Interfaces;
use self::multicast::Lans;
use self::pings::Pings;
use crate::settings::{self, GeonetPathChoice};

/// Whether this program was built with GeoNetworking.
pub const GEONET: bool = cfg!(feature = "geonet");
/// Number of payloads in the buffer of a slow reader of `gnrecv`.
const RECEIVED: usize = 1024;
/// Number of log messages about the position that may follow at once. Later, the log has one message for each
/// [`NEWS_INTERVAL`].
const NEWS: u32 = 10;
/// Number of changes of the interface's link-layer address that may follow at once. Later, one change is
/// possible for each [`NEWS_INTERVAL`].
const CHANGES: u32 = 5;
const NEWS_INTERVAL: Duration = Duration::from_secs(10);
/// Largest age of the position in a packet: [`OLDEST`] for a station at rest, [`NEWEST`] for one at high
/// speed.
const OLDEST: Duration = Duration::from_millis(100);
const NEWEST: Duration = Duration::from_millis(10);
/// Longest interval between positions for the facilities: [`LONGEST_CAM_INTERVAL`] at rest,
/// [`CHECK_CAM_GENERATION`] in motion.
const LONGEST_CAM_INTERVAL: Duration = Duration::from_secs(1);
const CHECK_CAM_GENERATION: Duration = Duration::from_millis(100);
/// Speed in m/s below which the station sends a CAM only every second, because it moves less than four metres
/// in that time.
const SLOWEST: f64 = 1.0;

/// Event that [`Geonet::next_event`] returns.
#[derive(Debug)]
pub enum GeonetEvent {
    /// An event of the link.
    Link(LinkEvent),
    /// An event of the positioning.
    Position(PositionEvent),
    /// Requests of pings are due: the caller calls [`Geonet::ping_requests`].
    Ping,
    /// A new position for the router is due: the caller calls [`Geonet::tell`].
    Update,
    /// An event of the virtual interfaces.
    Virtual(VirtualLinkEvent),
    /// A report of the fast path is due: the caller calls [`Geonet::report`].
    Report,
    /// An event of the multicast interfaces.
    Multicast(MulticastEvent),
    /// The programs of the fast path are loaded. If they cannot be loaded and the config demands them, the
    /// value is the reason.
    FastPath(std::result::Result<(), String>),
}

/// A GeoNetworking router with the sockets, the source of positions and the interfaces that it uses.
#[derive(Debug)]
pub struct Geonet {
    link: FrameLink,
    /// Virtual interfaces of IPv6.
    pub interfaces: Interfaces,
    /// Interfaces of the mobile network whose multicast packets go over GeoNetworking.
    pub multicast: Lans,
    /// Maximum payload of a frame on the link, in octets, as the router knows it; `None` before the router
    /// knows it.
    link_mtu: Option<u32>,
    /// Number of octets in the radio's queue of which the router was informed last.
    backlog: u32,
    positions: PositionSource,
    config: config::Geonet,
    /// GN address of the station. The station may derive it from an interface's address; it is `None` until
    /// this interface exists.
    address: Option<GnAddress>,
    /// Link-layer address that the link's interface had last.
    mac_addresses: Mac,
    /// State of the link in the last log message.
    reported_link: Option<LinkState>,
    /// Rate limit of changes of the interface's address, so that two programs do not fight over the address.
    changes: RateLimiter,
    received: broadcast::Sender<GnReceived>,
    pings: Pings,
    /// State of the positioning, in one word.
    state: &'static str,
    reckoner: PositionReckoner,
    /// Whether the station has facilities, so that it needs the quality of positions.
    looks_at_itself: bool,
    quality: PositionQuality,
    /// Time at which the router received its last position.
    reported_at: Option<Time>,
    event_limiter: RateLimiter,
    fast_path: FastPath,
}

impl Geonet {
    /// Opens the link and the source of positions. `undo` is the file with the settings to restore; `wants`
    /// says whether to use a fast path. `uplinks` are those of the mobile router; an interface of IPv6 over
    /// GeoNetworking may be one of them. `facilities` says whether the station has facilities.
    ///
    /// # Errors
    /// Returns an error if the link or the source cannot be opened.
    pub fn open(
        config: &config::Geonet,
        undo: &Path,
        wants: GeonetPathChoice,
        uplinks: Vec<String>,
        facilities: bool,
    ) -> anyhow::Result<Geonet> {
        let seed = clock::random_octets().context("cannot get randomness from the kernel")?;
        let seed = u64::from_ne_bytes(seed);
        let mid = match config.address {
            GeonetAddress::Auto => None,
            GeonetAddress::Managed(address) => Some(address.0),
            GeonetAddress::Anonymous => Some(random_mac(seed)),
        };
        let positions = PositionSource::open(
            &settings::geonet::position(config),
            settings::geonet::position_options(config),
        )?;
        let mut link = FrameLink::open(settings::geonet::link(config, mid))?;
        link.record_address_in_undo_file(undo)?;
        let seen = link.address();
        let mid = mid.or((seen != Mac::default()).then_some(seen));
        if let (None, Some(name)) = (mid, config.interface.name()) {
            warn!(
                "waiting for the interface {name}: the GeoNetworking address is made of its link-layer \
                 address"
            );
        }
        let mut geonet = Geonet {
            link,
            interfaces: Interfaces::open(config.ipv6.is_some(), uplinks)?,
            multicast: Lans::open(config)?,
            link_mtu: None,
            backlog: 0,
            positions,
            address: mid.map(|mid| settings::geonet::gn_address(config, mid)),
            mac_addresses: seen,
            reported_link: None,
            changes: RateLimiter::new(CHANGES, NEWS_INTERVAL),
            config: config.clone(),
            received: broadcast::channel(RECEIVED).0,
            pings: Pings::new(seed as u16),
            state: "no_fix",
            reckoner: PositionReckoner::new(matches!(config.position, config::PositionSource::Fixed(_))),
            looks_at_itself: facilities,
            quality: PositionQuality::default(),
            reported_at: None,
            event_limiter: RateLimiter::new(NEWS, NEWS_INTERVAL),
            fast_path: FastPath::open(wants)?,
        };
        geonet.align(clock::now());
        Ok(geonet)
    }

    /// Returns the station's GN address. The station may derive it from an interface's address; returns
    /// `None` until this interface exists.
    pub fn address(&self) -> Option<GnAddress> {
        self.address
    }

    /// Stores the router's new address, and gives the link's interface the MID of this address.
    pub fn address_is(&mut self, now: Time, address: GnAddress) {
        if self.address != Some(address) {
            self.address = Some(address);
            self.align(now);
        }
    }

    /// Sets the interface's address to the station's address, or warns that the two differ.
    fn align(&mut self, now: Time) {
        self.mac_addresses = self.link.address();
        let Some(wanted) = self.address.map(GnAddress::mid) else { return };
        if self.mac_addresses == wanted || self.link.state() == LinkState::Missing || !self.changes.allow(now)
        {
            return;
        }
        let (has, wants) = (MacAddress(self.mac_addresses), MacAddress(wanted));
        if !self.config.set_link_address {
            warn!(
                "this station receives no unicast frames: the radio has the link-layer address {has}, \
                 expected {wants}"
            );
            return;
        }
        match self.link.set_address(wanted) {
            Ok(()) => info!("changed the link-layer address of the radio from {has} to {wants}"),
            Err(error) => warn!(
                "this station receives no unicast frames, because the radio keeps its link-layer address: \
                 {error}"
            ),
        }
        self.mac_addresses = self.link.address();
    }

    /// Restores the settings of the link's interface.
    pub fn close(&mut self) -> Result<()> {
        self.fast_path.close();
        self.link.flush();
        self.link.restore_link_address()
    }

    /// Waits for the next event. Safe to cancel.
    pub async fn next_event(&mut self) -> Result<GeonetEvent> {
        let ping = self.pings.poll_timeout();
        let report = self.fast_path.poll_timeout();
        let update = self.reported_at.map(|told| told + self.update_interval());
        tokio::select! {
            event = self.link.readable() => event.map(GeonetEvent::Link),
            event = self.positions.next_event() => Ok(GeonetEvent::Position(event)),
            () = until(ping) => Ok(GeonetEvent::Ping),
            () = until(update) => Ok(GeonetEvent::Update),
            () = until(report) => Ok(GeonetEvent::Report),
            event = self.interfaces.next_event() => event.map(GeonetEvent::Virtual),
            event = self.multicast.next_event() => event.map(GeonetEvent::Multicast),
            loaded = self.fast_path.loaded() => Ok(GeonetEvent::FastPath(loaded)),
        }
    }

    /// Receives a batch of frames, and passes each to `take`.
    pub fn receive(&mut self, mut take: impl FnMut(ReceivedFrame<'_>)) -> Result<()> {
        self.link.try_receive(|source, destination, packet| {
            take(ReceivedFrame { source, destination, packet });
        })?;
        Ok(())
    }

    /// Returns frames of this station for which the link reports that no acknowledgement came.
    pub fn unacknowledged(&mut self) -> Result<Vec<Frame>> {
        let (mut frames, source) = (Vec::new(), self.link.address());
        self.link.take_unacknowledged(|destination, packet| {
            frames.push(Frame { source, destination, profile: None, packet: packet.to_vec() });
        })?;
        Ok(frames)
    }

    /// Queues a frame. If the frame cannot be sent, the link counts it.
    pub fn send(&mut self, now: Time, frame: &Frame) {
        // The first frame with a new address must not leave under the previous address: a receiver could link
        // both addresses.
        if self.address.is_some_and(|address| address.mid() != frame.source) {
            self.address_is(now, settings::geonet::gn_address(&self.config, frame.source));
        }
        let _counted = self.link.send_from(frame.destination, frame.profile, &frame.packet);
    }

    /// Sends the frames that [`Geonet::send`] has queued.
    pub fn flush(&mut self) {
        self.link.flush();
    }

    /// Handles a change of the link. If the change gives the station a new address, returns this address for
    /// the router.
    pub fn link_changed(&mut self, now: Time, state: LinkState) -> Option<GnAddress> {
        if self.reported_link != Some(state) {
            self.reported_link = Some(state);
            info!("the radio interface of GeoNetworking is {}", state_word(state));
        }
        let (before, has) = (self.mac_addresses, self.link.address());
        let own = self.address.map(GnAddress::mid);
        if self.config.address == GeonetAddress::Auto
            && has != before
            && has != Mac::default()
            && own != Some(has)
        {
            let address = settings::geonet::gn_address(&self.config, has);
            info!("this station's GeoNetworking address is {address}");
            (self.address, self.mac_addresses) = (Some(address), has);
            return Some(address);
        }
        self.align(now);
        None
    }

    /// Returns the largest payload of a frame of the link, if the link knows it and the router does not have
    /// it yet.
    pub fn new_mtu(&mut self) -> Option<u32> {
        let mtu = Some(self.link.mtu()).filter(|mtu| *mtu > 0);
        if mtu.is_none() || mtu == self.link_mtu {
            return None;
        }
        self.link_mtu = mtu;
        mtu
    }

    /// Converts an event of the positioning to a position for the router and a message for the operator.
    pub fn position(&mut self, now: Time, event: PositionEvent) -> (Option<Position>, Option<String>) {
        let (position, news) = match event {
            PositionEvent::Fix(fix) => {
                if self.state != "fix" && self.event_limiter.allow(now) {
                    info!("the station knows its position: the position receiver reports a fix");
                }
                self.state = "fix";
                self.reckoner.handle_fix(fix);
                (self.tell(now), None)
            }
            PositionEvent::Lost { reason } => {
                self.state = word(&reason);
                self.reckoner.handle_lost();
                (self.tell(now), Some(format!("the station does not know its position: {}", lost(&reason))))
            }
            PositionEvent::Mode(mode) => {
                debug!("the position receiver reports fix mode {mode:?}");
                (None, None)
            }
            PositionEvent::Connected { release } => {
                info!("connected to the position daemon gpsd {release}");
                (None, None)
            }
            PositionEvent::Clock(clock) if clock.is_clock_wrong => (
                None,
                Some(format!("the system clock is {} the receiver's", difference(clock.milliseconds_ahead))),
            ),
            PositionEvent::Clock(_) => (None, Some("the system clock is right again".into())),
            PositionEvent::LeapSeconds(seconds) => {
                (None, Some(format!("{seconds} leap seconds since 2004, by the receiver")))
            }
        };
        (position, news.filter(|_| self.event_limiter.allow(now)))
    }

    /// Returns the present position if the router's position is half a metre or a tenth of a second behind
    /// it; otherwise returns `None`.
    pub fn position_now(&mut self, now: Time) -> Option<Position> {
        let told = self.reported_at?;
        (now.saturating_since(told) >= self.freshness()).then(|| self.tell(now)).flatten()
    }

    /// Returns the number of octets that wait in the link and at the gate of congestion control. Returns
    /// `None` if the number has not changed, or if congestion marking is off.
    pub fn new_backlog(&mut self, station: &Station) -> Option<u32> {
        self.config.ipv6.as_ref()?.congestion_mark?;
        let gate = station.congestion_gate().map_or(0, Gate::backlog_octets);
        let backlog = self.link.backlog_octets().saturating_add(u32::try_from(gate).unwrap_or(u32::MAX));
        (backlog != std::mem::replace(&mut self.backlog, backlog)).then_some(backlog)
    }

    /// Returns the interval between positions for the router. The facilities need a position every four
    /// metres. At speed they get positions as often as the CA service checks whether to send a CAM (EN 302
    /// 637-2 6.1.3, `T_CheckCamGen`).
    fn update_interval(&self) -> Duration {
        let interval = self.config.mib.position_update_interval;
        match self.looks_at_itself {
            true if self.reckoner.speed() >= SLOWEST => interval.min(CHECK_CAM_GENERATION),
            true => interval.min(LONGEST_CAM_INTERVAL),
            false => interval,
        }
    }

    /// Returns the largest age that the position in a packet may have.
    fn freshness(&self) -> Duration {
        let half_a_metre = Duration::try_from_secs_f64(0.5 / self.reckoner.speed()).unwrap_or(OLDEST);
        half_a_metre.clamp(NEWEST, OLDEST)
    }

    /// Returns the present position; `None` before the first fix.
    pub fn tell(&mut self, now: Time) -> Option<Position> {
        let fix = self.reckoner.present_position(now)?;
        self.reported_at = Some(now);
        // The cast from float to integer saturates, so large values do no harm.
        self.quality = PositionQuality {
            confidence_cm: fix.confidence_radius.map(|metres| (metres * 100.0).ceil() as u32),
            altitude_cm: fix.altitude.map(|metres| (metres * 100.0).round() as i32),
            moves: fix.speed.is_some(),
            heads: fix.course_degrees.is_some(),
            lost: self.state != "fix",
        };
        let pai_interval = f64::from(self.config.mib.pai_interval_m);
        let vector = fix.position_vector(self.address?, self.positions.leap_seconds(), pai_interval);
        Some(position_of(&vector))
    }

    /// Returns the quality of the last position.
    pub fn quality(&self) -> PositionQuality {
        self.quality
    }

    /// Handles a payload for the upper layer: passes the answer to a ping to its ping, and any other payload
    /// to the listeners.
    pub fn delivered(&mut self, now: Time, delivered: Delivered) {
        let echo = (delivered.next_header == echo::BTP_B_NEXT_HEADER)
            .then(|| EchoMessage::parse(&delivered.payload));
        match echo.flatten() {
            Some(echo) if echo.is_reply => self.pings.answer(now, &delivered, echo),
            // If no client listens, the program drops the payload.
            _ => drop(self.received.send(received(delivered))),
        }
    }

    /// Passes a payload for the host to the listeners as well.
    pub fn overheard(&self, delivered: &Delivered) {
        if self.received.receiver_count() > 0 {
            let _heard = self.received.send(received(delivered.clone()));
        }
    }

    /// Returns the stream of payloads for `GET /v1/gnrecv`.
    pub fn subscribe(&self) -> broadcast::Receiver<GnReceived> {
        self.received.subscribe()
    }

    /// Returns the requests of pings that are due. If a ping goes to an area that moves, its request has the
    /// present place of the area.
    pub fn ping_requests(&mut self, now: Time, station: &Station) -> Vec<GeonetRequest> {
        let names: Vec<String> = self.pings.areas().map(str::to_owned).collect();
        for name in names {
            if let Ok(area) = self.named(now, &name, station) {
                self.pings.move_area(&name, area);
            }
        }
        self.pings.handle_timeout(now)
    }

    /// Starts a ping; the caller sends its first request.
    ///
    /// # Errors
    /// Returns an error if the target is unknown, the link is down, or too many pings run.
    pub fn ping(
        &mut self,
        now: Time,
        ping: &GnPingRequest,
        station: &Station,
    ) -> std::result::Result<(u16, GeonetRequest, mpsc::Receiver<GnPingEvent>), String> {
        let transport = match &ping.target {
            GnTarget::Station(station) => GeonetTransport::GeoUnicast(station_address(*station)?),
            GnTarget::Area(name) => GeonetTransport::GeoBroadcast(self.named(now, name, station)?),
        };
        self.check_link()?;
        self.pings.start(now, transport, ping)
    }

    /// Removes a ping whose first request the station has refused.
    pub fn abandon(&mut self, identifier: u16) {
        self.pings.abandon(identifier);
    }

    /// Returns the name of the interface for which the router waits, for a log text.
    pub fn awaited(&self) -> String {
        format!("the interface {}", self.config.interface.name().unwrap_or("of the link"))
    }

    /// Returns the GeoNetworking part of `GET /v1/status`.
    pub fn status(&self, station: &Station) -> GeonetStatus {
        let status = station.geonet_plane().map(|plane| plane.status());
        GeonetStatus {
            waits_for: status.is_none().then(|| self.awaited()),
            link: state_word(self.link.state()).into(),
            path: self.fast_path.name().into(),
            path_loading: self.fast_path.loading().map(str::to_owned),
            position: self.state.into(),
            ..status.unwrap_or_default()
        }
    }

    /// Returns the present time of position vectors.
    pub fn timestamp(&self, wall: WallTime) -> Timestamp {
        let milliseconds = i64::try_from(wall.as_unix_nanos() / 1_000_000).unwrap_or(i64::MAX);
        Timestamp::from_unix_milliseconds(milliseconds, self.positions.leap_seconds())
    }

    /// Returns the counters of the link.
    pub fn counters(&mut self) -> Vec<(String, u64)> {
        let link = self.link.counters();
        let drops = link.drops_by_reason().map(|(name, count)| (format!("geonet.dropped.{name}"), count));
        let counts = [
            ("received", link.received_frames),
            ("sent", link.sent_frames),
            ("acknowledged", link.acknowledged_frames),
            ("unacknowledged", link.unacknowledged_frames),
        ];
        let named = counts.map(|(name, count)| (format!("geonet.link.{name}"), count));
        let interfaces = self.interfaces.counters().into_iter().chain(self.multicast.counters());
        named.into_iter().chain(drops).chain(interfaces).chain(self.fast_path.counters()).collect()
    }
}

/// Waits for [`Geonet::next_event`]; without GeoNetworking it never returns.
pub async fn next_event(geonet: &mut Part<Geonet, GEONET>) -> Result<GeonetEvent> {
    match geonet.get_mut() {
        // Without this condition, the compiler would keep the state of this future in memory, although it is
        // never reached.
        #[cfg(feature = "geonet")]
        Some(geonet) => geonet.next_event().await,
        _ => pending().await,
    }
}

/// Waits until `deadline` on the station's clock; without a deadline it never returns.
pub async fn until(deadline: Option<Time>) {
    match deadline {
        Some(deadline) => sleep(deadline.saturating_since(clock::now())).await,
        None => pending().await,
    }
}

fn state_word(state: LinkState) -> &'static str {
    match state {
        LinkState::Up => "up",
        LinkState::Down => "down",
        LinkState::Missing => "missing",
    }
}

/// Returns a random link-layer address. The address is locally administered and not a group address.
fn random_mac(seed: u64) -> Mac {
    let [_, first, rest @ ..] = seed.to_be_bytes();
    let [a, b, c, d, e, _] = rest;
    [first & 0xfc | 2, a, b, c, d, e]
}

/// Returns the MID: the low 48 bits of a GN address.
fn mid(address: u64) -> Mac {
    GnAddress(address).mid()
}

/// Returns the difference of two clocks as a log text.
fn difference(milliseconds: i64) -> String {
    let side = if milliseconds < 0 { "behind" } else { "ahead of" };
    format!("{} ms {side}", milliseconds.unsigned_abs())
}

/// Converts a position vector to a position input of the station.
pub fn position_of(vector: &LongPositionVector) -> Position {
    Position {
        timestamp: vector.timestamp.0,
        latitude: vector.latitude,
        longitude: vector.longitude,
        accurate: vector.accurate,
        speed: vector.speed,
        heading: vector.heading,
    }
}

/// Returns the GN address of a station from an API request. The router uses only the MID in it.
fn station_address(station: GnStation) -> std::result::Result<u64, String> {
    match station {
        GnStation::Address(address) => Ok(address.0),
        GnStation::Mac(MacAddress([a, b, c, d, e, f])) => Ok(u64::from_be_bytes([0, 0, a, b, c, d, e, f])),
        GnStation::Ipv6(address) => station_address(ipv6::station_of(address)?),
    }
}

fn received(delivered: Delivered) -> GnReceived {
    let payload = delivered.payload;
    // If a payload is too short for a BTP header, the client gets all its octets as payload.
    let (port, source_port, port_info, octets) = match delivered.next_header {
        1 => BtpA::parse(&payload)
            .map(|(btp, rest)| (Some(btp.destination_port), Some(btp.source_port), None, rest)),
        2 => BtpB::parse(&payload)
            .map(|(btp, rest)| (Some(btp.destination_port), None, Some(btp.destination_port_info), rest)),
        _ => Ok((None, None, None, &payload[..])),
    }
    .unwrap_or((None, None, None, &payload[..]));
    GnReceived {
        port,
        source_port,
        port_info,
        packet_type: delivered.kind,
        next_header: match delivered.next_header {
            1 => GnNextHeader::BtpA,
            2 => GnNextHeader::BtpB,
            3 => GnNextHeader::Ipv6,
            _ => GnNextHeader::Any,
        },
        source: GnAddress(delivered.source),
        latitude: to_degrees(delivered.latitude),
        longitude: to_degrees(delivered.longitude),
        remaining_hop_limit: delivered.remaining_hop_limit,
        payload: Octets(octets.to_vec()),
    }
}

fn word(reason: &PositionLossReason) -> &'static str {
    match reason {
        PositionLossReason::Disconnected(_) => "disconnected",
        PositionLossReason::NoDevice => "no_device",
        PositionLossReason::NoFix => "no_fix",
        PositionLossReason::Stale => "stale",
        PositionLossReason::Frozen(_) => "frozen",
        PositionLossReason::Unusable(_) => "unusable",
        PositionLossReason::EndOfTrace => "end_of_trace",
    }
}

fn lost(reason: &PositionLossReason) -> String {
    match reason {
        PositionLossReason::Disconnected(why) => why.clone(),
        PositionLossReason::NoDevice => "gpsd has no receiver".into(),
        PositionLossReason::NoFix => "there is no fix".into(),
        PositionLossReason::Stale => "the receiver has fallen silent".into(),
        PositionLossReason::Frozen(device) => {
            format!("the receiver {device:?} repeats one time: it is frozen")
        }
        PositionLossReason::Unusable(mistake) => format!("the receiver claims a fix with {mistake}"),
        PositionLossReason::EndOfTrace => "the trace has come to its end".into(),
    }
}

#[cfg(test)]
mod tests {
    use carnet_station::io::GnPacketType;

    use super::*;

    fn heard(next_header: u8, payload: &[u8]) -> GnReceived {
        received(Delivered {
            kind: GnPacketType::Shb,
            next_header,
            source: 2,
            latitude: 0,
            longitude: 0,
            remaining_hop_limit: 1,
            maximum_hop_limit: 1,
            payload: payload.to_vec(),
        })
    }

    #[test]
    fn listener_receives_payload_without_btp_header() {
        let btp = [0x07, 0xd2, 0x00, 0x05, 0xc0, 0xff];
        for (next_header, octets, port, source_port, port_info, payload) in [
            (1, &btp[..], Some(2002), Some(5), None, &btp[4..]),
            (2, &btp, Some(2002), None, Some(5), &btp[4..]),
            (2, &btp[..4], Some(2002), None, Some(5), &[]),
            (2, &btp[..3], None, None, None, &btp[..3]),
            (0, &btp, None, None, None, &btp),
            (3, &btp, None, None, None, &btp),
        ] {
            let heard = heard(next_header, octets);
            assert_eq!((heard.port, heard.source_port, heard.port_info), (port, source_port, port_info));
            assert_eq!(heard.payload.0, payload);
        }
    }

    #[test]
    fn warning_says_whether_clock_is_behind_or_ahead() {
        assert_eq!(difference(1500), "1500 ms ahead of");
        assert_eq!(difference(-1500), "1500 ms behind");
    }
}
