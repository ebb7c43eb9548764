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
use carnet_base::{OptionalPart, RateLimiter, Time, WallTime};
use carnet_cits::geonetworking::echo::{self, EchoMessage};
use carnet_cits::position::to_degrees;
use carnet_geonet::ReceivedFrame;
use carnet_geonet::dcc::DccGate;
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

use self::fast_path::GeonetFastPath;
use self::ipv6::VirtualInterfaces;
use self::multicast::MulticastLans;
use self::pings::RunningPings;
use crate::settings::{self, GeonetPathChoice};

/// Whether this program was built with GeoNetworking.
pub const GEONET_BUILT_IN: bool = cfg!(feature = "geonet");
/// Number of payloads in the buffer of a slow reader of `gnrecv`.
const RECEIVED_BUFFER_LENGTH: usize = 1024;
/// Number of log messages about the position that may follow each other without a pause. Later, the log has
/// one message for each [`POSITION_LOG_INTERVAL`].
const POSITION_LOG_BURST: u32 = 10;
/// Number of changes of the interface's link-layer address that may follow each other without a pause. Later,
/// one change is possible for each [`POSITION_LOG_INTERVAL`].
const ADDRESS_CHANGE_BURST: u32 = 5;
const POSITION_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Largest age of the position in a packet: [`MAX_POSITION_AGE`] for a station at rest,
/// [`MAX_POSITION_AGE_IN_MOTION`] for one at high speed.
const MAX_POSITION_AGE: Duration = Duration::from_millis(100);
const MAX_POSITION_AGE_IN_MOTION: Duration = Duration::from_millis(10);
/// Longest interval between positions for the facilities: [`LONGEST_CAM_INTERVAL`] at rest,
/// [`CAM_CHECK_INTERVAL`] in motion.
const LONGEST_CAM_INTERVAL: Duration = Duration::from_secs(1);
const CAM_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Speed in m/s below which the station sends one CAM per second, because it moves less than four metres in
/// that time.
const MAX_SPEED_AT_REST: f64 = 1.0;

/// Event that [`Geonet::next_event`] returns.
#[derive(Debug)]
pub enum GeonetEvent {
    /// An event of the link.
    Link(LinkEvent),
    /// An event of the positioning.
    Position(PositionEvent),
    /// A ping has to send a request: the caller calls [`Geonet::ping_requests`].
    Ping,
    /// The router needs a new position: the caller calls [`Geonet::report_position`].
    Update,
    /// An event of the virtual interfaces.
    Virtual(VirtualLinkEvent),
    /// The counts of the fast path have to be read: the caller calls [`Geonet::take_report`].
    Report,
    /// An event of the multicast interfaces.
    Multicast(MulticastEvent),
    /// The kernel has loaded the programs of the fast path, or has refused them. The value is the reason of a
    /// refusal if the config demands the fast path.
    FastPath(std::result::Result<(), String>),
}

/// A GeoNetworking router with the sockets, the source of positions and the interfaces that it uses.
#[derive(Debug)]
pub struct Geonet {
    frame_link: FrameLink,
    /// Virtual interfaces of IPv6.
    pub interfaces: VirtualInterfaces,
    /// Interfaces of the mobile network whose multicast packets go over GeoNetworking.
    pub multicast_lans: MulticastLans,
    /// Maximum payload of a frame on the link, in octets, that this module last reported to the router;
    /// `None` before the first report.
    link_mtu: Option<u32>,
    /// Number of octets in the radio's queue that this module last reported to the router.
    radio_backlog: u32,
    position_source: PositionSource,
    config: config::Geonet,
    /// GN address of the station. The station may derive it from an interface's address; it is `None` until
    /// this interface exists.
    address: Option<GnAddress>,
    /// Link-layer address of the link's interface at the last check.
    station_mac: Mac,
    /// State of the link in the last log message.
    reported_link_state: Option<LinkState>,
    /// Rate limit of changes of the interface's address. Without it, carnet and another program could set the
    /// address in turn without end.
    address_change_limiter: RateLimiter,
    payload_sender: broadcast::Sender<GnReceived>,
    running_pings: RunningPings,
    /// State of the positioning, in one word.
    positioning_state: &'static str,
    position_reckoner: PositionReckoner,
    /// Whether the station has facilities. If so, it needs the quality of positions, and checks whether to
    /// send a CAM.
    checks_cam_generation: bool,
    position_quality: PositionQuality,
    /// Time at which the router received its last position; `None` before the first position.
    position_reported_at: Option<Time>,
    position_log_limiter: RateLimiter,
    fast_path: GeonetFastPath,
}

impl Geonet {
    /// Opens the link and the source of positions. `undo` is the file with the settings to restore; `wants`
    /// says whether to use a fast path. `uplinks` are those of the mobile router; an interface of IPv6 over
    /// GeoNetworking may be one of them. `facilities` says whether the station has facilities.
    ///
    /// # Errors
    /// Returns an error if the link or the source cannot be opened.
    pub fn open_link(
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
            &settings::geonet::position_source_config(config),
            settings::geonet::position_options(config),
        )?;
        let mut link = FrameLink::open(settings::geonet::frame_link_config(config, mid))?;
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
            frame_link: link,
            interfaces: VirtualInterfaces::open_links(config.ipv6.is_some(), uplinks)?,
            multicast_lans: MulticastLans::open_links(config)?,
            link_mtu: None,
            radio_backlog: 0,
            position_source: positions,
            address: mid.map(|mid| settings::geonet::gn_address(config, mid)),
            station_mac: seen,
            reported_link_state: None,
            address_change_limiter: RateLimiter::new(ADDRESS_CHANGE_BURST, POSITION_LOG_INTERVAL),
            config: config.clone(),
            payload_sender: broadcast::channel(RECEIVED_BUFFER_LENGTH).0,
            running_pings: RunningPings::new(seed as u16),
            positioning_state: "no_fix",
            position_reckoner: PositionReckoner::new(matches!(
                config.position_source,
                config::PositionSource::Fixed(_)
            )),
            checks_cam_generation: facilities,
            position_quality: PositionQuality::default(),
            position_reported_at: None,
            position_log_limiter: RateLimiter::new(POSITION_LOG_BURST, POSITION_LOG_INTERVAL),
            fast_path: GeonetFastPath::start_loading(wants)?,
        };
        geonet.align_interface_address(clock::now());
        Ok(geonet)
    }

    /// Returns the station's GN address. The station may derive it from an interface's address; returns
    /// `None` until this interface exists.
    pub fn address(&self) -> Option<GnAddress> {
        self.address
    }

    /// Stores the router's new GN address, and sets the link-layer address of the link's interface to its
    /// MID.
    pub fn set_station_address(&mut self, now: Time, address: GnAddress) {
        if self.address != Some(address) {
            self.address = Some(address);
            self.align_interface_address(now);
        }
    }

    /// Sets the interface's link-layer address to that of the station, or warns that the two differ.
    fn align_interface_address(&mut self, now: Time) {
        self.station_mac = self.frame_link.address();
        let Some(wanted) = self.address.map(GnAddress::mid) else { return };
        if self.station_mac == wanted
            || self.frame_link.state() == LinkState::Missing
            || !self.address_change_limiter.try_take_token(now)
        {
            return;
        }
        let (has, wants) = (MacAddress(self.station_mac), MacAddress(wanted));
        if !self.config.set_link_address {
            warn!(
                "this station receives no unicast frames: the radio has the link-layer address {has}, \
                 expected {wants}"
            );
            return;
        }
        match self.frame_link.set_address(wanted) {
            Ok(()) => info!("changed the link-layer address of the radio from {has} to {wants}"),
            Err(error) => warn!(
                "this station receives no unicast frames, because the radio keeps its link-layer address: \
                 {error}"
            ),
        }
        self.station_mac = self.frame_link.address();
    }

    /// Restores the settings of the link's interface.
    pub fn restore_interface(&mut self) -> Result<()> {
        self.fast_path.detach_programs();
        self.frame_link.flush();
        self.frame_link.restore_link_address()
    }

    /// Waits for the next event. Safe to cancel.
    pub async fn next_event(&mut self) -> Result<GeonetEvent> {
        let ping = self.running_pings.poll_timeout();
        let report = self.fast_path.poll_timeout();
        let update = self.position_reported_at.map(|told| told + self.position_update_interval());
        tokio::select! {
            event = self.frame_link.readable() => event.map(GeonetEvent::Link),
            event = self.position_source.next_event() => Ok(GeonetEvent::Position(event)),
            () = sleep_until(ping) => Ok(GeonetEvent::Ping),
            () = sleep_until(update) => Ok(GeonetEvent::Update),
            () = sleep_until(report) => Ok(GeonetEvent::Report),
            event = self.interfaces.next_event() => event.map(GeonetEvent::Virtual),
            event = self.multicast_lans.next_event() => event.map(GeonetEvent::Multicast),
            loaded = self.fast_path.wait_until_programs_loaded() => Ok(GeonetEvent::FastPath(loaded)),
        }
    }

    /// Receives a batch of frames, and passes each to `take`.
    pub fn receive_frames(&mut self, mut take: impl FnMut(ReceivedFrame<'_>)) -> Result<()> {
        self.frame_link.try_receive(|source, destination, packet| {
            take(ReceivedFrame { source, destination, packet });
        })?;
        Ok(())
    }

    /// Returns the frames of this station that the radio sent without getting an acknowledgement.
    pub fn take_unacknowledged(&mut self) -> Result<Vec<Frame>> {
        let (mut frames, source) = (Vec::new(), self.frame_link.address());
        self.frame_link.take_unacknowledged_frames(|destination, packet| {
            frames.push(Frame { source, destination, profile: None, packet: packet.to_vec() });
        })?;
        Ok(frames)
    }

    /// Queues a frame. If the frame cannot be sent, the link counts it.
    pub fn send_frame(&mut self, now: Time, frame: &Frame) {
        // The first frame with a new link-layer address must not leave while the interface still has the
        // previous one. A receiver could otherwise link the two addresses.
        if self.address.is_some_and(|address| address.mid() != frame.source) {
            self.set_station_address(now, settings::geonet::gn_address(&self.config, frame.source));
        }
        let _counted = self.frame_link.send_with_profile(frame.destination, frame.profile, &frame.packet);
    }

    /// Sends the frames that [`Geonet::send_frame`] has queued.
    pub fn flush_frames(&mut self) {
        self.frame_link.flush();
    }

    /// Handles a change of the link. If the change gives the station a new address, returns this address for
    /// the router.
    pub fn handle_link_change(&mut self, now: Time, state: LinkState) -> Option<GnAddress> {
        if self.reported_link_state != Some(state) {
            self.reported_link_state = Some(state);
            info!("the radio interface of GeoNetworking is {}", link_state_name(state));
        }
        let (before, has) = (self.station_mac, self.frame_link.address());
        let own = self.address.map(GnAddress::mid);
        if self.config.address == GeonetAddress::Auto
            && has != before
            && has != Mac::default()
            && own != Some(has)
        {
            let address = settings::geonet::gn_address(&self.config, has);
            info!("this station's GeoNetworking address is {address}");
            (self.address, self.station_mac) = (Some(address), has);
            return Some(address);
        }
        self.align_interface_address(now);
        None
    }

    /// Returns the largest payload of a frame on the link, if it differs from the value last reported to the
    /// router.
    pub fn take_changed_mtu(&mut self) -> Option<u32> {
        let mtu = Some(self.frame_link.mtu()).filter(|mtu| *mtu > 0);
        if mtu.is_none() || mtu == self.link_mtu {
            return None;
        }
        self.link_mtu = mtu;
        mtu
    }

    /// Converts an event of the positioning to a position for the router, and to a log message for the
    /// operator.
    pub fn convert_position_event(
        &mut self,
        now: Time,
        event: PositionEvent,
    ) -> (Option<Position>, Option<String>) {
        let (position, news) = match event {
            PositionEvent::Fix(fix) => {
                if self.positioning_state != "fix" && self.position_log_limiter.try_take_token(now) {
                    info!("the station knows its position: the position receiver reports a fix");
                }
                self.positioning_state = "fix";
                self.position_reckoner.handle_fix(fix);
                (self.report_position(now), None)
            }
            PositionEvent::Lost { reason } => {
                self.positioning_state = loss_reason_name(&reason);
                self.position_reckoner.handle_position_loss();
                (
                    self.report_position(now),
                    Some(format!("the station does not know its position: {}", loss_reason_text(&reason))),
                )
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
                Some(format!(
                    "the system clock is {} the receiver's",
                    clock_difference_text(clock.milliseconds_ahead)
                )),
            ),
            PositionEvent::Clock(_) => (None, Some("the system clock is right again".into())),
            PositionEvent::LeapSeconds(seconds) => {
                (None, Some(format!("{seconds} leap seconds since 2004, by the receiver")))
            }
        };
        (position, news.filter(|_| self.position_log_limiter.try_take_token(now)))
    }

    /// Returns the present position if the router's position is too old: after half a metre, and at the
    /// latest after a tenth of a second. Otherwise returns `None`, as before the first position.
    pub fn present_position(&mut self, now: Time) -> Option<Position> {
        let told = self.position_reported_at?;
        (now.saturating_since(told) >= self.max_position_age()).then(|| self.report_position(now)).flatten()
    }

    /// Returns the number of octets that wait in the radio's queue and in congestion control. Returns `None`
    /// if the number has not changed, or if congestion marking is off.
    pub fn take_changed_backlog(&mut self, station: &Station) -> Option<u32> {
        self.config.ipv6.as_ref()?.congestion_mark?;
        let gate = station.congestion_gate().map_or(0, DccGate::backlog_octets);
        let backlog =
            self.frame_link.backlog_octets().saturating_add(u32::try_from(gate).unwrap_or(u32::MAX));
        (backlog != std::mem::replace(&mut self.radio_backlog, backlog)).then_some(backlog)
    }

    /// Returns the interval between positions for the router. The facilities need a position every four
    /// metres. At speed they get positions as often as the CA service checks whether to send a CAM (EN 302
    /// 637-2 6.1.3, `T_CheckCamGen`).
    fn position_update_interval(&self) -> Duration {
        let interval = self.config.mib_parameters.position_update_interval;
        match self.checks_cam_generation {
            true if self.position_reckoner.speed() >= MAX_SPEED_AT_REST => interval.min(CAM_CHECK_INTERVAL),
            true => interval.min(LONGEST_CAM_INTERVAL),
            false => interval,
        }
    }

    /// Returns the largest age that the position in a packet may have.
    fn max_position_age(&self) -> Duration {
        let half_a_metre =
            Duration::try_from_secs_f64(0.5 / self.position_reckoner.speed()).unwrap_or(MAX_POSITION_AGE);
        half_a_metre.clamp(MAX_POSITION_AGE_IN_MOTION, MAX_POSITION_AGE)
    }

    /// Returns the present position; `None` before the first fix.
    pub fn report_position(&mut self, now: Time) -> Option<Position> {
        let fix = self.position_reckoner.present_position(now)?;
        self.position_reported_at = Some(now);
        // The cast from float to integer saturates, so large values do no harm.
        self.position_quality = PositionQuality {
            confidence_cm: fix.confidence_radius.map(|metres| (metres * 100.0).ceil() as u32),
            altitude_cm: fix.altitude.map(|metres| (metres * 100.0).round() as i32),
            moves: fix.speed.is_some(),
            heads: fix.course_degrees.is_some(),
            lost: self.positioning_state != "fix",
        };
        let pai_interval = f64::from(self.config.mib_parameters.pai_interval_m);
        let vector = fix.position_vector(self.address?, self.position_source.leap_seconds(), pai_interval);
        Some(position_of(&vector))
    }

    /// Returns the quality of the last position.
    pub fn position_quality(&self) -> PositionQuality {
        self.position_quality
    }

    /// Handles a payload for the upper layer. An answer to a ping goes to that ping; any other payload goes
    /// to the clients of `GET /v1/gnrecv`.
    pub fn handle_delivered(&mut self, now: Time, delivered: Delivered) {
        let echo = (delivered.next_header == echo::BTP_B_NEXT_HEADER)
            .then(|| EchoMessage::parse(&delivered.payload));
        match echo.flatten() {
            Some(echo) if echo.is_reply => self.running_pings.handle_answer(now, &delivered, echo),
            // If no client listens, the program drops the payload.
            _ => drop(self.payload_sender.send(received_payload(delivered))),
        }
    }

    /// Passes a copy of a payload for the host to the clients of `GET /v1/gnrecv`.
    pub fn copy_to_listeners(&self, delivered: &Delivered) {
        if self.payload_sender.receiver_count() > 0 {
            let _heard = self.payload_sender.send(received_payload(delivered.clone()));
        }
    }

    /// Returns the stream of payloads for `GET /v1/gnrecv`.
    pub fn subscribe_payloads(&self) -> broadcast::Receiver<GnReceived> {
        self.payload_sender.subscribe()
    }

    /// Returns the requests that the pings have to send now. If the target of a ping is an area that moves,
    /// the request has the area's present position.
    pub fn ping_requests(&mut self, now: Time, station: &Station) -> Vec<GeonetRequest> {
        let names: Vec<String> = self.running_pings.area_names().map(str::to_owned).collect();
        for name in names {
            if let Ok(area) = self.area_by_name(now, &name, station) {
                self.running_pings.move_area(&name, area);
            }
        }
        self.running_pings.handle_timeout(now)
    }

    /// Starts a ping; the caller sends its first request.
    ///
    /// # Errors
    /// Returns an error if the target is unknown, the link is down, or too many pings run.
    pub fn start_ping(
        &mut self,
        now: Time,
        ping: &GnPingRequest,
        station: &Station,
    ) -> std::result::Result<(u16, GeonetRequest, mpsc::Receiver<GnPingEvent>), String> {
        let transport = match &ping.target {
            GnTarget::Station(station) => GeonetTransport::GeoUnicast(station_address(*station)?),
            GnTarget::Area(name) => GeonetTransport::GeoBroadcast(self.area_by_name(now, name, station)?),
        };
        self.check_link()?;
        self.running_pings.start_ping(now, transport, ping)
    }

    /// Removes a ping whose first request the station has refused.
    pub fn abandon_ping(&mut self, identifier: u16) {
        self.running_pings.abandon_ping(identifier);
    }

    /// Returns the name of the interface that the router needs but that does not exist yet, for a log text.
    pub fn awaited_interface(&self) -> String {
        format!("the interface {}", self.config.interface.name().unwrap_or("of the link"))
    }

    /// Returns the GeoNetworking part of `GET /v1/status`.
    pub fn geonet_status(&self, station: &Station) -> GeonetStatus {
        let status = station.geonet_plane().map(|plane| plane.status());
        GeonetStatus {
            waits_for: status.is_none().then(|| self.awaited_interface()),
            link: link_state_name(self.frame_link.state()).into(),
            path: self.fast_path.name().into(),
            path_loading: self.fast_path.path_being_loaded().map(str::to_owned),
            position: self.positioning_state.into(),
            ..status.unwrap_or_default()
        }
    }

    /// Returns the present time as a timestamp of a position vector.
    pub fn timestamp(&self, wall: WallTime) -> Timestamp {
        let milliseconds = i64::try_from(wall.as_unix_nanos() / 1_000_000).unwrap_or(i64::MAX);
        Timestamp::from_unix_milliseconds(milliseconds, self.position_source.leap_seconds())
    }

    /// Returns the counters of the link.
    pub fn counters(&mut self) -> Vec<(String, u64)> {
        let link = self.frame_link.counters();
        let drops = link.drops_by_reason().map(|(name, count)| (format!("geonet.dropped.{name}"), count));
        let counts = [
            ("received", link.received_frames),
            ("sent", link.sent_frames),
            ("acknowledged", link.acknowledged_frames),
            ("unacknowledged", link.unacknowledged_frames),
        ];
        let named = counts.map(|(name, count)| (format!("geonet.link.{name}"), count));
        let interfaces = self.interfaces.counters().into_iter().chain(self.multicast_lans.counters());
        named.into_iter().chain(drops).chain(interfaces).chain(self.fast_path.counters()).collect()
    }
}

/// Waits for [`Geonet::next_event`]; without GeoNetworking it never returns.
pub async fn next_event(geonet: &mut OptionalPart<Geonet, GEONET_BUILT_IN>) -> Result<GeonetEvent> {
    match geonet.get_mut() {
        // With this condition, the compiler removes the future in a program without GeoNetworking, so that it
        // needs no memory.
        #[cfg(feature = "geonet")]
        Some(geonet) => geonet.next_event().await,
        _ => pending().await,
    }
}

/// Waits until `deadline` on the station's clock; without a deadline it never returns.
pub async fn sleep_until(deadline: Option<Time>) {
    match deadline {
        Some(deadline) => sleep(deadline.saturating_since(clock::now())).await,
        None => pending().await,
    }
}

fn link_state_name(state: LinkState) -> &'static str {
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
fn mid_of_address(address: u64) -> Mac {
    GnAddress(address).mid()
}

/// Returns the difference of two clocks as a log text.
fn clock_difference_text(milliseconds: i64) -> String {
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
        GnStation::Ipv6(address) => station_address(ipv6::station_of_address(address)?),
    }
}

fn received_payload(delivered: Delivered) -> GnReceived {
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

fn loss_reason_name(reason: &PositionLossReason) -> &'static str {
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

fn loss_reason_text(reason: &PositionLossReason) -> String {
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

    fn payload_with(next_header: u8, payload: &[u8]) -> GnReceived {
        received_payload(Delivered {
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
            let heard = payload_with(next_header, octets);
            assert_eq!((heard.port, heard.source_port, heard.port_info), (port, source_port, port_info));
            assert_eq!(heard.payload.0, payload);
        }
    }

    #[test]
    fn warning_says_whether_clock_is_behind_or_ahead() {
        assert_eq!(clock_difference_text(1500), "1500 ms ahead of");
        assert_eq!(clock_difference_text(-1500), "1500 ms behind");
    }
}
