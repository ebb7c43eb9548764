//! The session of one path: the library's tunnel, its route, and the retransmission of handshakes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carnet_base::{Time, TokenBucketRate};
use sanstun::{Event, Interface, Tunnel, TunnelConfig};

use crate::timestamp::HandshakeClock;
use crate::{PresharedKey, PublicKey, SessionPath, WireguardDropReason};

/// Interval after which a session first repeats an initiation without a response.
pub(crate) const FIRST_RETRANSMISSION_INTERVAL: Duration = Duration::from_millis(250);
/// First interval of a path that an earlier run of this end had open. The network may still route the remote
/// end's response to the machine that had this end's address before. The interval doubles too, and becomes
/// [`FIRST_RETRANSMISSION_INTERVAL`] with the second retransmission.
pub(crate) const FIRST_REOPENING_INTERVAL: Duration = Duration::from_micros(62_500);
/// Longest interval between two retransmissions of an initiation. The library retransmits after 5 s; with a
/// shorter interval it never does.
pub(crate) const MAX_RETRANSMISSION_INTERVAL: Duration = Duration::from_secs(4);
/// Number of initiations without a response after which the engine reports that the remote end does not
/// answer.
const UNANSWERED_INITIATIONS_BEFORE_REPORT: u32 = 6;
/// Number of handshake responses whose routes a session remembers. The library remembers as many sessions of
/// a tunnel.
const MAX_STORED_ANSWERS: usize = 8;
/// Rate at which a path may begin handshakes: 16 at once and 8 a second.
const HANDSHAKE_RATE: TokenBucketRate =
    TokenBucketRate { burst_size: 16, interval: Duration::from_millis(125) };

/// Destination of the datagrams of a path: the caller's number of a local socket, and the remote address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatagramRoute {
    /// The caller's number of the local socket.
    pub socket: u32,
    /// Address and port of the remote end.
    pub remote: SocketAddr,
}

/// State of the retransmission of an initiation.
#[derive(Debug, Clone, Copy)]
struct InitiationRetransmission {
    next_attempt_at: Time,
    interval: Duration,
    /// Number of initiations of this handshake so far, without those that followed after less than
    /// [`FIRST_RETRANSMISSION_INTERVAL`].
    sent_initiations: u32,
    /// Whether a cookie has already caused an initiation since the last retransmission by the timer. Further
    /// cookies then cause none, so an attacker who forges cookies causes no flood.
    has_answered_cookie: bool,
}

/// Event of a session for the engine.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// The engine sends this datagram to the session's route.
    Send(Box<[u8]>),
    /// Both ends have the keys: the tunnel can carry payloads.
    Established,
    /// Several initiations had no response.
    NoAnswer,
    /// The tunnel has expired; the engine removes it.
    Expired,
}

/// The remote public key of a tunnel, and the preshared key if there is one.
#[derive(Clone, Copy)]
pub(crate) struct RemoteKeys<'k> {
    pub(crate) public_key: PublicKey,
    pub(crate) preshared_key: Option<&'k PresharedKey>,
}

/// The session of one path and one key pair.
pub(crate) struct PathSession {
    /// The peer's key and the uplink, which together name the path.
    pub(crate) path: SessionPath,
    pub(crate) noise_tunnel: Tunnel,
    /// Destination of the session's datagrams; `None` before the remote end has confirmed a handshake.
    pub(crate) route: Option<DatagramRoute>,
    /// Whether the caller has opened the session. If so, this end keeps the session alive and does not change
    /// its route by received messages.
    pub(crate) is_opened_by_caller: bool,
    /// Whether the path sends through this session.
    pub(crate) carries_path_traffic: bool,
    /// Whether a check of the session's timers is scheduled within a second.
    pub(crate) is_session_check_due: bool,
    is_established: bool,
    retransmission: Option<InitiationRetransmission>,
    /// Index and counter in the header of the newest data message; `None` before the first one.
    newest_data_message: Option<(u32, u64)>,
    /// Handshake responses that this end has sent: index of the session in the response, and route of the
    /// response. If data with this index come by this route, the remote end receives there.
    answered_handshakes: VecDeque<(u32, DatagramRoute)>,
    /// Last route that the engine reported to the caller as unproven; `None` before the first report.
    reported_route: Option<DatagramRoute>,
    /// Time at which the token bucket for handshakes is full again.
    handshake_bucket_full_at: Time,
    /// Time that the last initiation has in its timestamp.
    last_timestamp: Time,
}

impl PathSession {
    /// Creates a session without session keys. Fails if X25519 gives no shared secret with the remote public
    /// key.
    pub(crate) fn new(
        path: SessionPath,
        interface: &mut Interface,
        clock: &HandshakeClock,
        now: Time,
        remote: RemoteKeys<'_>,
    ) -> Result<PathSession, WireguardDropReason> {
        Ok(PathSession {
            path,
            noise_tunnel: new_tunnel(interface, clock, now, remote)?,
            route: None,
            is_opened_by_caller: false,
            carries_path_traffic: false,
            is_session_check_due: false,
            is_established: false,
            retransmission: None,
            newest_data_message: None,
            answered_handshakes: VecDeque::new(),
            reported_route: None,
            handshake_bucket_full_at: Time::ZERO,
            last_timestamp: Time::ZERO,
        })
    }

    /// Replaces an expired tunnel by a new one.
    pub(crate) fn replace_tunnel(
        &mut self,
        interface: &mut Interface,
        clock: &HandshakeClock,
        now: Time,
        remote: RemoteKeys<'_>,
    ) -> Result<(), WireguardDropReason> {
        self.noise_tunnel = new_tunnel(interface, clock, now, remote)?;
        self.is_established = false;
        self.retransmission = None;
        self.newest_data_message = None;
        self.answered_handshakes.clear();
        Ok(())
    }

    /// Returns whether both ends have the session keys.
    pub(crate) fn is_established(&self) -> bool {
        self.is_established
    }

    /// Takes a token for one handshake from the path's token bucket. Returns false if the bucket is empty.
    pub(crate) fn take_handshake_token(&mut self, now: Time) -> bool {
        HANDSHAKE_RATE.try_take_tokens(&mut self.handshake_bucket_full_at, now, 1)
    }

    /// Begins a handshake, and returns the initiation; `None` if a handshake is in progress. The first
    /// retransmission follows after `interval`.
    pub(crate) fn begin_handshake(
        &mut self,
        clock: &HandshakeClock,
        now: Time,
        interval: Duration,
    ) -> Option<Box<[u8]>> {
        let at = self.next_initiation_instant(clock, now);
        let initiation = self.noise_tunnel.initiate_handshake(at)?;
        self.begin_retransmission(now, interval);
        Some((*initiation).into())
    }

    /// Returns an initiation with the cookie that has arrived, which the caller sends at once. Returns `None`
    /// if no handshake is in progress, or another cookie has already caused an initiation.
    pub(crate) fn initiate_with_cookie(&mut self, clock: &HandshakeClock, now: Time) -> Option<Box<[u8]>> {
        let retransmission =
            self.retransmission.as_mut().filter(|retransmission| !retransmission.has_answered_cookie)?;
        retransmission.has_answered_cookie = true;
        let at = self.next_initiation_instant(clock, now);
        self.noise_tunnel.restart_handshake(at).map(|initiation| (*initiation).into())
    }

    /// Ends the retransmission, because the response has arrived.
    pub(crate) fn finish_handshake(&mut self) {
        self.retransmission = None;
    }

    /// Begins a handshake after the tunnel has expired, and returns the initiation. The interval between
    /// retransmissions stays at its maximum. Returns `None` if a handshake is already in progress.
    pub(crate) fn restart_handshake(&mut self, clock: &HandshakeClock, now: Time) -> Option<Box<[u8]>> {
        let at = self.next_initiation_instant(clock, now);
        let initiation = self.noise_tunnel.initiate_handshake(at)?;
        self.begin_retransmission(now, MAX_RETRANSMISSION_INTERVAL);
        Some((*initiation).into())
    }

    /// Returns the library's time for an initiation. This time is not before `now` and later than that of the
    /// last initiation, and its date contains the path number.
    fn next_initiation_instant(&mut self, clock: &HandshakeClock, now: Time) -> Instant {
        self.last_timestamp = clock.next_time_with_path_number(
            now.max(self.last_timestamp + Duration::from_nanos(1)),
            self.path.path_number,
        );
        clock.instant_of(self.last_timestamp)
    }

    /// Returns the time that the last initiation has in its timestamp.
    pub(crate) fn last_handshake_timestamp(&self) -> Time {
        self.last_timestamp
    }

    fn begin_retransmission(&mut self, now: Time, interval: Duration) {
        self.retransmission = Some(InitiationRetransmission {
            next_attempt_at: now + interval,
            interval,
            sent_initiations: 1,
            has_answered_cookie: false,
        });
    }

    /// Stores index and counter of a received data message. Returns whether it is the newest one of its
    /// session.
    pub(crate) fn record_newest_data_message(&mut self, index: u32, counter: u64) -> bool {
        let newer = self.newest_data_message.is_none_or(|(known, newest)| known != index || counter > newest);
        if newer {
            self.newest_data_message = Some((index, counter));
        }
        newer
    }

    /// Stores the route to which this end has sent the handshake response with this index.
    pub(crate) fn record_answered_handshake(&mut self, index: u32, route: DatagramRoute) {
        if self.answered_handshakes.len() == MAX_STORED_ANSWERS {
            self.answered_handshakes.pop_front();
        }
        self.answered_handshakes.push_back((index, route));
    }

    /// Returns whether a handshake has proved that the remote end receives by this route: this end has sent
    /// the response with this index there.
    pub(crate) fn is_route_proven(&self, index: u32, route: DatagramRoute) -> bool {
        self.answered_handshakes.contains(&(index, route))
    }

    /// Returns whether an unproven route differs from the last reported one, and stores it as reported.
    pub(crate) fn record_unproven_route(&mut self, route: DatagramRoute) -> bool {
        self.reported_route.replace(route) != Some(route)
    }

    /// Returns the time of the session's next deadline; `None` without a deadline.
    pub(crate) fn next_deadline(&self, clock: &HandshakeClock) -> Option<Time> {
        let retransmission = self.retransmission.map(|retransmission| retransmission.next_attempt_at);
        let library = self.noise_tunnel.poll_timeout().map(|at| clock.time_of_instant(at));
        [retransmission, library].into_iter().flatten().min()
    }

    /// Handles the deadlines of the session that are due.
    pub(crate) fn handle_timeout(
        &mut self,
        clock: &HandshakeClock,
        now: Time,
        events: &mut Vec<SessionEvent>,
    ) {
        let marked = self.next_initiation_instant(clock, now);
        if let Some(retransmission) =
            self.retransmission.as_mut().filter(|retransmission| retransmission.next_attempt_at <= now)
        {
            retransmission.interval = (retransmission.interval * 2).min(MAX_RETRANSMISSION_INTERVAL);
            retransmission.next_attempt_at = now + retransmission.interval;
            retransmission.has_answered_cookie = false;
            let is_counted = retransmission.interval > FIRST_RETRANSMISSION_INTERVAL;
            retransmission.sent_initiations += u32::from(is_counted);
            let sent = retransmission.sent_initiations;
            if let Some(initiation) = self.noise_tunnel.restart_handshake(marked) {
                events.push(SessionEvent::Send((*initiation).into()));
            }
            if sent == UNANSWERED_INITIATIONS_BEFORE_REPORT {
                events.push(SessionEvent::NoAnswer);
            }
        }
        self.noise_tunnel.handle_timeout(marked);
        self.collect_session_events(now, events);
    }

    /// Converts the library's events to events of the session.
    pub(crate) fn collect_session_events(&mut self, now: Time, events: &mut Vec<SessionEvent>) {
        while let Some(event) = self.noise_tunnel.poll_event() {
            match event {
                // The library itself begins the renewal of a session.
                Event::SendHandshakeInitiation(initiation) => {
                    self.begin_retransmission(now, FIRST_RETRANSMISSION_INTERVAL);
                    events.push(SessionEvent::Send((*initiation).into()));
                }
                Event::SendKeepalive(keepalive) => events.push(SessionEvent::Send((*keepalive).into())),
                Event::Established { .. } => {
                    self.is_established = true;
                    events.push(SessionEvent::Established);
                }
                Event::ConnectionExpired => {
                    self.is_established = false;
                    self.retransmission = None;
                    events.push(SessionEvent::Expired);
                }
            }
        }
    }
}

fn new_tunnel(
    interface: &mut Interface,
    clock: &HandshakeClock,
    now: Time,
    remote: RemoteKeys<'_>,
) -> Result<Tunnel, WireguardDropReason> {
    let mut config = TunnelConfig::default();
    if let Some(key) = remote.preshared_key {
        config = config.with_preshared_key(key.to_library_key());
    }
    let public_key = sanstun::PublicKey::from(*remote.public_key.octets());
    interface.new_tunnel(public_key, config, clock.instant_of(now)).map_err(WireguardDropReason::from)
}
