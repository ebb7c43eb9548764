//! The session of one path: the library's tunnel, its route, and the retransmission of handshakes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carnet_base::{Rate, Time};
use sanstun::{Event, Interface, Tunnel, TunnelConfig};

use crate::timestamp::HandshakeClock;
use crate::{PresharedKey, PublicKey, SessionPath, WireguardDropReason};

/// First interval after which an initiation without a response is sent again.
pub(crate) const FIRST_RETRANSMISSION: Duration = Duration::from_millis(250);
/// Longest interval. It stays below the library's own of 5 s, so that the library never retransmits.
pub(crate) const LAST_RETRANSMISSION: Duration = Duration::from_secs(4);
/// Initiations without a response after which the engine reports that nothing answers.
const UNANSWERED_BEFORE_REPORT: u32 = 6;
/// Responses whose routes a session remembers, as the library remembers this number of sessions.
const MAX_REMEMBERED_ANSWERS: usize = 8;
/// Handshakes that a path may begin: 16 at once and 8 a second.
const HANDSHAKE_RATE: Rate = Rate { burst: 16, interval: Duration::from_millis(125) };

/// Where datagrams of a path go: the caller's number of a socket, and the remote address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatagramRoute {
    /// The caller's number of the local socket.
    pub socket: u32,
    /// Address and port of the remote end.
    pub remote: SocketAddr,
}

/// Retransmission of an initiation.
#[derive(Debug, Clone, Copy)]
struct InitiationRetransmission {
    next_attempt_at: Time,
    interval: Duration,
    /// Initiations of this handshake so far.
    sent_initiations: u32,
    /// Whether a cookie has caused an initiation since the last one by the timer. One cookie causes one
    /// initiation, so an attacker who forges cookies causes no flood.
    is_for_cookie: bool,
}

/// Result of a session's timers, in the order in which they occurred.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// Send this datagram to the route.
    Send(Box<[u8]>),
    /// The first session of the tunnel is confirmed.
    Established,
    /// Several initiations had no response.
    NoAnswer,
    /// The tunnel has expired; the engine removes it.
    Expired,
}

/// The remote keys of a tunnel.
#[derive(Clone, Copy)]
pub(crate) struct RemoteKeys<'k> {
    pub(crate) public_key: PublicKey,
    pub(crate) preshared_key: Option<&'k PresharedKey>,
}

/// The session of one path and one pair of keys.
pub(crate) struct PathSession {
    /// The peer's key and the uplink, which together name the path.
    pub(crate) path: SessionPath,
    pub(crate) noise_tunnel: Tunnel,
    /// `None` before the remote end has confirmed a handshake.
    pub(crate) route: Option<DatagramRoute>,
    /// Whether the caller asked for the session. This end then keeps it alive and does not move its route.
    pub(crate) is_wanted: bool,
    /// Whether the path sends through this session.
    pub(crate) is_current: bool,
    /// Whether a check of the timers is due within a second.
    pub(crate) is_check_due: bool,
    is_established: bool,
    retransmission: Option<InitiationRetransmission>,
    /// Index and counter of the newest data message.
    newest_data_message: Option<(u32, u64)>,
    /// Where the responses of this end went: the index of each session and its route. Data of this session
    /// from this route prove that the remote end receives there.
    answered_handshakes: VecDeque<(u32, DatagramRoute)>,
    /// The last unproven route that was reported.
    reported_route: Option<DatagramRoute>,
    /// Time at which the share of handshakes is full again.
    handshakes_full_at: Time,
    /// Time in the timestamp of the last initiation.
    last_timestamp: Time,
}

impl PathSession {
    /// Makes a session without keys. Fails if no secret can be shared with the public key.
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
            is_wanted: false,
            is_current: false,
            is_check_due: false,
            is_established: false,
            retransmission: None,
            newest_data_message: None,
            answered_handshakes: VecDeque::new(),
            reported_route: None,
            handshakes_full_at: Time::ZERO,
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

    /// Returns whether both ends have the keys of the session.
    pub(crate) fn is_established(&self) -> bool {
        self.is_established
    }

    /// Takes a token of the path's share of handshakes.
    pub(crate) fn take_handshake_share(&mut self, now: Time) -> bool {
        HANDSHAKE_RATE.take_tokens(&mut self.handshakes_full_at, now, 1)
    }

    /// Begins a handshake unless one is in progress, and returns the initiation.
    pub(crate) fn begin_handshake(&mut self, clock: &HandshakeClock, now: Time) -> Option<Box<[u8]>> {
        let at = self.instant_for_timestamp(clock, now);
        let initiation = self.noise_tunnel.initiate_handshake(at)?;
        self.begin_retransmission(now, FIRST_RETRANSMISSION);
        Some((*initiation).into())
    }

    /// Sends the initiation again at once, with the cookie that has arrived.
    pub(crate) fn initiate_with_cookie(&mut self, clock: &HandshakeClock, now: Time) -> Option<Box<[u8]>> {
        let retransmission =
            self.retransmission.as_mut().filter(|retransmission| !retransmission.is_for_cookie)?;
        retransmission.is_for_cookie = true;
        let at = self.instant_for_timestamp(clock, now);
        self.noise_tunnel.restart_handshake(at).map(|initiation| (*initiation).into())
    }

    /// Ends the retransmission: the response has arrived.
    pub(crate) fn finish_handshake(&mut self) {
        self.retransmission = None;
    }

    /// Begins again after the tunnel expired. The interval stays at its longest.
    pub(crate) fn restart_handshake(&mut self, clock: &HandshakeClock, now: Time) -> Option<Box<[u8]>> {
        let at = self.instant_for_timestamp(clock, now);
        let initiation = self.noise_tunnel.initiate_handshake(at)?;
        self.begin_retransmission(now, LAST_RETRANSMISSION);
        Some((*initiation).into())
    }

    /// Returns the library's time for an initiation: not before `now`, later than that of the last
    /// initiation, and with the path number in its date.
    fn instant_for_timestamp(&mut self, clock: &HandshakeClock, now: Time) -> Instant {
        self.last_timestamp = clock
            .next_marked_time(now.max(self.last_timestamp + Duration::from_nanos(1)), self.path.path_number);
        clock.instant_of(self.last_timestamp)
    }

    /// Returns the time in the timestamp of the last initiation.
    pub(crate) fn last_timestamp(&self) -> Time {
        self.last_timestamp
    }

    fn begin_retransmission(&mut self, now: Time, interval: Duration) {
        self.retransmission = Some(InitiationRetransmission {
            next_attempt_at: now + interval,
            interval,
            sent_initiations: 1,
            is_for_cookie: false,
        });
    }

    /// Marks the data message as received, and returns whether it is the newest one of its session.
    pub(crate) fn is_newest(&mut self, index: u32, counter: u64) -> bool {
        let newer = self.newest_data_message.is_none_or(|(known, newest)| known != index || counter > newest);
        if newer {
            self.newest_data_message = Some((index, counter));
        }
        newer
    }

    /// Stores where the response of this index went.
    pub(crate) fn remember_answer(&mut self, index: u32, route: DatagramRoute) {
        if self.answered_handshakes.len() == MAX_REMEMBERED_ANSWERS {
            self.answered_handshakes.pop_front();
        }
        self.answered_handshakes.push_back((index, route));
    }

    /// Returns whether the handshake of this index has proved that the remote end receives by this route.
    pub(crate) fn is_proven(&self, index: u32, route: DatagramRoute) -> bool {
        self.answered_handshakes.contains(&(index, route))
    }

    /// Returns whether the unproven route differs from the last one, and stores it.
    pub(crate) fn is_unreported(&mut self, route: DatagramRoute) -> bool {
        self.reported_route.replace(route) != Some(route)
    }

    /// Returns the time of the next deadline.
    pub(crate) fn next_deadline(&self, clock: &HandshakeClock) -> Option<Time> {
        let retransmission = self.retransmission.map(|retransmission| retransmission.next_attempt_at);
        let library = self.noise_tunnel.poll_timeout().map(|at| clock.time(at));
        [retransmission, library].into_iter().flatten().min()
    }

    /// Handles the deadlines that are due.
    pub(crate) fn handle_timeout(
        &mut self,
        clock: &HandshakeClock,
        now: Time,
        events: &mut Vec<SessionEvent>,
    ) {
        let marked = self.instant_for_timestamp(clock, now);
        if let Some(retransmission) =
            self.retransmission.as_mut().filter(|retransmission| retransmission.next_attempt_at <= now)
        {
            retransmission.interval = (retransmission.interval * 2).min(LAST_RETRANSMISSION);
            retransmission.next_attempt_at = now + retransmission.interval;
            retransmission.is_for_cookie = false;
            retransmission.sent_initiations += 1;
            let sent = retransmission.sent_initiations;
            if let Some(initiation) = self.noise_tunnel.restart_handshake(marked) {
                events.push(SessionEvent::Send((*initiation).into()));
            }
            if sent == UNANSWERED_BEFORE_REPORT {
                events.push(SessionEvent::NoAnswer);
            }
        }
        self.noise_tunnel.handle_timeout(marked);
        self.collect_events(now, events);
    }

    /// Collects the events of the library.
    pub(crate) fn collect_events(&mut self, now: Time, events: &mut Vec<SessionEvent>) {
        while let Some(event) = self.noise_tunnel.poll_event() {
            match event {
                // The library renews a session by itself.
                Event::SendHandshakeInitiation(initiation) => {
                    self.begin_retransmission(now, FIRST_RETRANSMISSION);
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
