//! The session of one path: the library's tunnel, its route, and the retransmission of handshakes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carnet_base::{Rate, Time};
use sanstun::{Event, Interface, Tunnel, TunnelConfig};

use crate::timestamp::Clock;
use crate::{Path, Peer, WireguardDrop};

/// First interval after which an initiation without a response is sent again.
pub(crate) const FIRST_RETRANSMISSION: Duration = Duration::from_millis(250);
/// Longest interval. It stays below the library's own of 5 s, so that the library never retransmits.
pub(crate) const LAST_RETRANSMISSION: Duration = Duration::from_secs(4);
/// Initiations without a response after which the engine reports that nothing answers.
const UNANSWERED: u32 = 6;
/// Responses whose routes a session remembers, as the library remembers this number of sessions.
const ANSWERS: usize = 8;
/// Handshakes that a path may begin: 16 at once and 8 a second.
const SHARE: Rate = Rate { burst: 16, interval: Duration::from_millis(125) };

/// Where datagrams of a path go: the caller's number of a socket, and the remote address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route {
    /// The caller's number of the local socket.
    pub socket: u32,
    /// Address and port of the remote end.
    pub remote: SocketAddr,
}

/// Retransmission of an initiation.
#[derive(Debug, Clone, Copy)]
struct Retransmission {
    at: Time,
    interval: Duration,
    /// Initiations of this handshake so far.
    sent: u32,
    /// Whether a cookie has caused an initiation since the last one by the timer. One cookie causes one
    /// initiation, so an attacker who forges cookies causes no flood.
    by_cookie: bool,
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

/// The session of one path.
pub(crate) struct Session {
    pub(crate) tunnel: Tunnel,
    /// `None` before the remote end has confirmed a handshake.
    pub(crate) route: Option<Route>,
    /// Whether the caller asked for the session. This end then keeps it alive and does not move its route.
    pub(crate) wanted: bool,
    /// Whether a check of the timers is due within a second.
    pub(crate) is_check_due: bool,
    established: bool,
    retransmission: Option<Retransmission>,
    /// Index and counter of the newest data message.
    newest: Option<(u32, u64)>,
    /// Where the responses of this end went: the index of each session and its route. Data of this session
    /// from this route prove that the remote end receives there.
    answered: VecDeque<(u32, Route)>,
    /// The last unproven route that was reported.
    reported: Option<Route>,
    /// Time at which the share of handshakes is full again.
    share: Time,
    /// Time in the timestamp of the last initiation.
    stamped: Time,
}

impl Session {
    /// Makes a session without keys. Fails if no secret can be shared with the public key.
    pub(crate) fn new(
        interface: &mut Interface,
        clock: &Clock,
        now: Time,
        peer: &Peer,
    ) -> Result<Session, WireguardDrop> {
        Ok(Session {
            tunnel: tunnel(interface, clock, now, peer)?,
            route: None,
            wanted: false,
            is_check_due: false,
            established: false,
            retransmission: None,
            newest: None,
            answered: VecDeque::new(),
            reported: None,
            share: Time::ZERO,
            stamped: Time::ZERO,
        })
    }

    /// Replaces an expired tunnel by a new one.
    pub(crate) fn replace(
        &mut self,
        interface: &mut Interface,
        clock: &Clock,
        now: Time,
        peer: &Peer,
    ) -> Result<(), WireguardDrop> {
        self.tunnel = tunnel(interface, clock, now, peer)?;
        self.established = false;
        self.retransmission = None;
        self.newest = None;
        self.answered.clear();
        Ok(())
    }

    /// Returns whether both ends have the keys of the session.
    pub(crate) fn is_established(&self) -> bool {
        self.established
    }

    /// Takes a token of the path's share of handshakes.
    pub(crate) fn take_share(&mut self, now: Time) -> bool {
        SHARE.take_tokens(&mut self.share, now, 1)
    }

    /// Begins a handshake unless one is in progress, and returns the initiation.
    pub(crate) fn initiate(&mut self, clock: &Clock, now: Time, path: Path) -> Option<Box<[u8]>> {
        let at = self.stamp(clock, now, path);
        let initiation = self.tunnel.initiate_handshake(at)?;
        self.begin_retransmission(now, FIRST_RETRANSMISSION);
        Some((*initiation).into())
    }

    /// Sends the initiation again at once, with the cookie that has arrived.
    pub(crate) fn initiate_with_cookie(&mut self, clock: &Clock, now: Time, path: Path) -> Option<Box<[u8]>> {
        let retransmission =
            self.retransmission.as_mut().filter(|retransmission| !retransmission.by_cookie)?;
        retransmission.by_cookie = true;
        let at = self.stamp(clock, now, path);
        self.tunnel.restart_handshake(at).map(|initiation| (*initiation).into())
    }

    /// Ends the retransmission: the response has arrived.
    pub(crate) fn finish_handshake(&mut self) {
        self.retransmission = None;
    }

    /// Begins again after the tunnel expired. The interval stays at its longest.
    pub(crate) fn begin_again(&mut self, clock: &Clock, now: Time, path: Path) -> Option<Box<[u8]>> {
        let at = self.stamp(clock, now, path);
        let initiation = self.tunnel.initiate_handshake(at)?;
        self.begin_retransmission(now, LAST_RETRANSMISSION);
        Some((*initiation).into())
    }

    /// Returns the library's time for an initiation: not before `now`, later than that of the last
    /// initiation, and with the path number in its date.
    fn stamp(&mut self, clock: &Clock, now: Time, path: Path) -> Instant {
        self.stamped = clock.marked(now.max(self.stamped + Duration::from_nanos(1)), path.number);
        clock.instant(self.stamped)
    }

    /// Returns the time in the timestamp of the last initiation.
    pub(crate) fn stamped(&self) -> Time {
        self.stamped
    }

    fn begin_retransmission(&mut self, now: Time, interval: Duration) {
        self.retransmission =
            Some(Retransmission { at: now + interval, interval, sent: 1, by_cookie: false });
    }

    /// Marks the data message as received, and returns whether it is the newest one of its session.
    pub(crate) fn is_newest(&mut self, index: u32, counter: u64) -> bool {
        let newer = self.newest.is_none_or(|(known, newest)| known != index || counter > newest);
        if newer {
            self.newest = Some((index, counter));
        }
        newer
    }

    /// Stores where the response of this index went.
    pub(crate) fn remember_answer(&mut self, index: u32, route: Route) {
        if self.answered.len() == ANSWERS {
            self.answered.pop_front();
        }
        self.answered.push_back((index, route));
    }

    /// Returns whether the handshake of this index has proved that the remote end receives by this route.
    pub(crate) fn is_proven(&self, index: u32, route: Route) -> bool {
        self.answered.contains(&(index, route))
    }

    /// Returns whether the unproven route differs from the last one, and stores it.
    pub(crate) fn is_unreported(&mut self, route: Route) -> bool {
        self.reported.replace(route) != Some(route)
    }

    /// Returns the time of the next deadline.
    pub(crate) fn deadline(&self, clock: &Clock) -> Option<Time> {
        let retransmission = self.retransmission.map(|retransmission| retransmission.at);
        let library = self.tunnel.poll_timeout().map(|at| clock.time(at));
        [retransmission, library].into_iter().flatten().min()
    }

    /// Handles the deadlines that are due.
    pub(crate) fn handle_timeout(
        &mut self,
        clock: &Clock,
        now: Time,
        path: Path,
        events: &mut Vec<SessionEvent>,
    ) {
        let marked = self.stamp(clock, now, path);
        if let Some(retransmission) =
            self.retransmission.as_mut().filter(|retransmission| retransmission.at <= now)
        {
            retransmission.interval = (retransmission.interval * 2).min(LAST_RETRANSMISSION);
            retransmission.at = now + retransmission.interval;
            retransmission.by_cookie = false;
            retransmission.sent += 1;
            let sent = retransmission.sent;
            if let Some(initiation) = self.tunnel.restart_handshake(marked) {
                events.push(SessionEvent::Send((*initiation).into()));
            }
            if sent == UNANSWERED {
                events.push(SessionEvent::NoAnswer);
            }
        }
        self.tunnel.handle_timeout(marked);
        self.drain(now, events);
    }

    /// Collects the events of the library.
    pub(crate) fn drain(&mut self, now: Time, events: &mut Vec<SessionEvent>) {
        while let Some(event) = self.tunnel.poll_event() {
            match event {
                // The library renews a session by itself.
                Event::SendHandshakeInitiation(initiation) => {
                    self.begin_retransmission(now, FIRST_RETRANSMISSION);
                    events.push(SessionEvent::Send((*initiation).into()));
                }
                Event::SendKeepalive(keepalive) => events.push(SessionEvent::Send((*keepalive).into())),
                Event::Established { .. } => {
                    self.established = true;
                    events.push(SessionEvent::Established);
                }
                Event::ConnectionExpired => {
                    self.established = false;
                    self.retransmission = None;
                    events.push(SessionEvent::Expired);
                }
            }
        }
    }
}

fn tunnel(interface: &mut Interface, clock: &Clock, now: Time, peer: &Peer) -> Result<Tunnel, WireguardDrop> {
    let mut config = TunnelConfig::default();
    if let Some(key) = &peer.preshared_key {
        config = config.with_preshared_key(key.secret());
    }
    let public_key = sanstun::PublicKey::from(*peer.public_key.octets());
    interface.new_tunnel(public_key, config, clock.instant(now)).map_err(WireguardDrop::from)
}
