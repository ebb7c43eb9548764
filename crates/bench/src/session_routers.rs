//! Simulates very many mobile routers with key pairs by one sender of real packets. Each router has carnet's
//! own session engine, so its handshakes, retransmissions and cookies are those of a mobile router.
//!
//! Each router has one address and one session. It sends its Binding Updates in the session, and answers the
//! home agent's Echo Requests (test of the care-of address). Addresses and prefixes are those of `fleet`. All
//! routers share one packet socket, which receives only packets to their addresses.
//!
//! A router without an acknowledgement sends the next Binding Update after a second, and doubles the time
//! with each attempt. If its signalling has no answer for 1.2 s, it begins a handshake, as carnet does. One
//! router can also carry a stream of data in both directions.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::bail;
use carnet_base::{Time, TimerTable};
use carnet_wireguard::{
    DatagramRoute, EngineSettings, Output, PathNumber, PeerId, PrivateKey, PublicKey, ReceivedDatagram,
    RemotePeer, SessionEngine, SessionPath, datagram_length,
};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg, sendmmsg};
use socket2::{SockFilter, Socket};

use super::fleet::{CARE_OF_NETWORKS_HIGH_BITS, open_router_socket, router_identity};
use super::packet::{ETHERNET_HEADER_LENGTH, IPV6_HEADER_LENGTH, UDP_HEADER_LENGTH};
use super::updates::{
    echo_reply, parse_acknowledgement_in_session, pseudo_header_checksum, update_in_session,
};
use super::world::{HOME_AGENT_ADDRESS, NodeInterface, TestNetwork, link_addresses};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now, realtime_now};
use carnet_testbed::isolate::{Interrupted, has_to_stop};
use carnet_testbed::process::{command_in_node, run_for_output};
use carnet_testbed::tools;

/// UDP port of the home agent for encrypted tunnels.
pub const TUNNEL_PORT: u16 = 51820;
/// UDP port of a mobile router.
const ROUTER_PORT: u16 = 4191;
/// Maximum number of frames per system call.
const FRAMES_PER_BATCH: usize = 64;
/// Maximum length in octets of a received frame.
const MAX_FRAME_SIZE: usize = 2048;
/// Time until the first retransmission of a Binding Update (RFC 6275 12, INITIAL_BINDACK_TIMEOUT), and the
/// longest time between two (MAX_BINDACK_TIMEOUT).
const FIRST_UPDATE_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_UPDATE_TIMEOUT: Duration = Duration::from_secs(32);
/// Time without an answer to signalling after which a router begins a handshake, and the longest time between
/// two such handshakes.
const SIGNALLING_SILENCE: Duration = Duration::from_millis(1200);
const MAX_SIGNALLING_SILENCE: Duration = Duration::from_secs(15);
/// Time in nanoseconds after which a router counts as late.
const LATE_AFTER: u64 = SECOND;
/// Number of datagrams of the stream that may be due at a time; a late sender skips the others.
const MAX_STREAM_DEBT: u64 = 64;
const DATA_MESSAGE: u8 = 4;
const RESPONSE_MESSAGE: u8 = 2;
const NO_PAYLOAD_LENGTH: usize = 32;

/// Returns the private key of the router with this number.
pub fn router_key(number: u32) -> PrivateKey {
    let mut octets = [0x52; 32];
    octets[8..12].copy_from_slice(&number.to_le_bytes());
    PrivateKey::from_random(octets)
}

/// Returns the private key of the home agent.
pub fn agent_key() -> PrivateKey {
    PrivateKey::from_random([0x41; 32])
}

/// Returns the config table `[[home_agent.mobile_router]]` for the router with this number.
pub fn mobile_router_config(number: u32) -> String {
    let who = router_identity(number);
    let prefix = Ipv6Addr::from(u128::from(who.mobile_network_prefix) << 64);
    format!(
        "[[home_agent.mobile_router]]\nhome_address = \"{}\"\nprefixes = [\"{prefix}/64\"]\n\
         auth = {{ public_key = \"{}\" }}\n",
        who.home_address,
        router_key(number).public_key()
    )
}

/// Creates an engine with one path, to the home agent.
pub fn engine_of(private_key: PrivateKey, seed: u32, agent: PublicKey) -> (SessionEngine, SessionPath) {
    let mut random_seed = [0x5e; 32];
    random_seed[..4].copy_from_slice(&seed.to_le_bytes());
    random_seed[8..16].copy_from_slice(&realtime_now().to_le_bytes());
    let now = time_now();
    let mut engine = SessionEngine::new(EngineSettings {
        private_key,
        random_seed,
        now,
        unix_time_at_start: Duration::from_nanos(realtime_now()),
    });
    let peer_id = PeerId(1);
    engine.set_peer(now, RemotePeer { peer_id, public_keys: vec![agent], preshared_key: None });
    (engine, SessionPath { peer_id, path_number: PathNumber::UNNUMBERED })
}

fn time_now() -> Time {
    Time::from_nanos(monotonic_now())
}

/// Returns the route to the home agent's tunnel port.
pub fn route_to_agent() -> anyhow::Result<DatagramRoute> {
    let address: Ipv6Addr = HOME_AGENT_ADDRESS.parse()?;
    Ok(DatagramRoute { socket: 0, remote: SocketAddr::from((address, TUNNEL_PORT)) })
}

/// Returns the frame of a datagram to the home agent's tunnel port.
pub fn datagram_frame(
    link: ([u8; 6], [u8; 6]),
    source: (Ipv6Addr, u16),
    agent: Ipv6Addr,
    datagram: &[u8],
) -> Vec<u8> {
    let length = UDP_HEADER_LENGTH + datagram.len();
    let mut frame = Vec::with_capacity(ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + length);
    frame.extend_from_slice(&link.1);
    frame.extend_from_slice(&link.0);
    frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, (length >> 8) as u8, length as u8, 17, 64]);
    frame.extend_from_slice(&source.0.octets());
    frame.extend_from_slice(&agent.octets());
    for field in [source.1, TUNNEL_PORT, length as u16, 0] {
        frame.extend_from_slice(&field.to_be_bytes());
    }
    frame.extend_from_slice(datagram);
    let udp = ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH;
    let sum = match pseudo_header_checksum(source.0, agent, 17, &frame[udp..]) {
        0 => 0xffff,
        sum => sum,
    };
    frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Task of each router in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterTask {
    /// Opens a session. The task is done when the session is established.
    OpenSession,
    /// Renews the session by a handshake.
    RenewSession,
    /// Registers, and first opens a session if the router has none. The task is done when the router has the
    /// acknowledgement.
    Register,
}

/// Routers of a round and their rate.
#[derive(Debug, Clone)]
pub struct RoundPlan {
    /// Task of each router.
    pub task: RouterTask,
    /// Numbers of the routers.
    pub routers: std::ops::Range<u32>,
    /// Number of routers that begin per second; `None` for all at once.
    pub rate: Option<f64>,
    /// Time in nanoseconds after which the round ends, whether or not all routers are done.
    pub time_limit: u64,
}

/// Result of a round.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionRound {
    /// Routers that have done their task.
    pub done: u64,
    /// Routers that needed longer than a second.
    pub late: u64,
    /// Routers that had not done their task at the time limit.
    pub lost: u64,
    /// Answers that failed a check.
    pub wrong: u64,
    /// Initiations that the routers sent.
    pub initiations: u64,
    /// Cookie replies that the routers received.
    pub cookie_replies: u64,
    /// Binding Updates that a router had to send again.
    pub repeated_updates: u64,
    /// Time in nanoseconds from the first message to the last router that was done.
    pub elapsed_ns: u64,
    /// Longest time that a router needed, in nanoseconds.
    pub longest_ns: u64,
}

/// A stream of data through the session of one router.
#[derive(Debug)]
pub struct DataStream {
    router: u32,
    packet: Vec<u8>,
    rate: f64,
    /// Packets that the router has sent.
    pub sent: u64,
    /// Packets of the opposite direction that came out of the router's session.
    pub received: u64,
    began_at: u64,
    skipped: u64,
}

impl DataStream {
    /// Creates a stream through the session of a router. The router sends `packet`, from its IP header on,
    /// `rate` times per second.
    pub fn new(router: u32, packet: Vec<u8>, rate: f64) -> DataStream {
        DataStream { router, packet, rate, sent: 0, received: 0, began_at: 0, skipped: 0 }
    }
}

struct SessionRouter {
    engine: SessionEngine,
    path: SessionPath,
    sequence: u16,
    task: Option<RouterTask>,
    began_at: u64,
    update_timeout: Duration,
    next_update_at: Option<Time>,
    next_handshake_at: Option<Time>,
    silence: Duration,
}

/// All routers, and the socket that they share.
pub struct SessionRouters {
    socket: Socket,
    home_agent: Ipv6Addr,
    link: ([u8; 6], [u8; 6]),
    lifetime_seconds: u16,
    routers: Vec<SessionRouter>,
    timers: TimerTable<u32>,
    outgoing: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
    payload: Vec<u8>,
    unfinished: u64,
    first_error: Option<String>,
    /// Data that pass through one of the sessions during a round.
    pub stream: Option<DataStream>,
}

impl SessionRouters {
    /// Creates `number` routers that send through the interface `place` of a test network.
    pub fn new(
        network: &TestNetwork,
        place: NodeInterface,
        number: u32,
        lifetime_seconds: u16,
    ) -> anyhow::Result<SessionRouters> {
        let filter = filter_of_destination(CARE_OF_NETWORKS_HIGH_BITS as u32);
        let socket = open_router_socket(network, place, &filter)?;
        // The routers need single datagrams, as from a network card. So the kernel cuts bursts of the home
        // agent before they leave.
        let sender = network.node_name("ha");
        run_for_output(command_in_node(&sender, tools::path_of_program("ethtool")).args([
            "-K",
            "f0",
            "tx-udp-segmentation",
            "off",
        ]))?;
        let agent = agent_key().public_key();
        let routers = (0..number).map(|number| {
            let (engine, path) = engine_of(router_key(number), number, agent);
            SessionRouter {
                engine,
                path,
                sequence: 0,
                task: None,
                began_at: 0,
                update_timeout: FIRST_UPDATE_TIMEOUT,
                next_update_at: None,
                next_handshake_at: None,
                silence: SIGNALLING_SILENCE,
            }
        });
        Ok(SessionRouters {
            socket,
            home_agent: HOME_AGENT_ADDRESS.parse()?,
            link: link_addresses(place),
            lifetime_seconds,
            routers: routers.collect(),
            timers: TimerTable::new(),
            outgoing: VecDeque::new(),
            buffer: vec![0; FRAMES_PER_BATCH * MAX_FRAME_SIZE],
            payload: vec![0; MAX_FRAME_SIZE],
            unfinished: 0,
            first_error: None,
            stream: None,
        })
    }

    /// Returns the number of routers.
    pub fn len(&self) -> u32 {
        self.routers.len() as u32
    }

    /// Returns what was wrong in the first wrong answer; `None` if all were correct.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Lets the routers of a plan do their task. `wants_more` says whether the round goes on although all
    /// routers are done, for the stream.
    pub fn run_round(
        &mut self,
        plan: &RoundPlan,
        wants_more: impl Fn() -> bool,
    ) -> anyhow::Result<SessionRound> {
        let mut round = SessionRound::default();
        let start = monotonic_now();
        let total = plan.routers.len() as u32;
        let mut begun = 0;
        self.unfinished = 0;
        loop {
            let mut is_busy = self.receive(&mut round, start)?;
            let now = monotonic_now();
            let due = plan.rate.map_or(total, |rate| ((now - start) as f64 * rate / 1e9) as u32).min(total);
            for number in (begun..due).take(FRAMES_PER_BATCH / 4) {
                self.begin(plan.routers.start + number, plan.task, &mut round);
                (begun, is_busy) = (number + 1, true);
            }
            is_busy |= self.handle_timers(&mut round);
            self.send_stream(now);
            is_busy |= self.send_frames()?;
            if begun >= total && self.unfinished == 0 && !wants_more() {
                break;
            }
            if now - start > plan.time_limit {
                break;
            }
            if !is_busy {
                if has_to_stop() {
                    return Err(Interrupted.into());
                }
                clock::sleep(MILLISECOND / 5);
            }
        }
        round.lost = u64::from(total) - round.done;
        for router in &mut self.routers {
            (router.task, router.next_update_at, router.next_handshake_at) = (None, None, None);
        }
        Ok(round)
    }

    /// Receives what the home agent still sends, until nothing arrives for a while.
    pub fn receive_rest(&mut self) -> anyhow::Result<()> {
        let mut last = monotonic_now();
        while monotonic_now() - last < 300 * MILLISECOND {
            if self.receive(&mut SessionRound::default(), last)? {
                last = monotonic_now();
            }
            clock::sleep(MILLISECOND);
        }
        Ok(())
    }

    fn begin(&mut self, number: u32, task: RouterTask, round: &mut SessionRound) {
        let Ok(route) = route_to_agent() else { return };
        let now = time_now();
        let router = &mut self.routers[number as usize];
        (router.task, router.began_at) = (Some(task), now.as_nanos());
        (router.update_timeout, router.silence) = (FIRST_UPDATE_TIMEOUT, SIGNALLING_SILENCE);
        self.unfinished += 1;
        let is_established = router.engine.is_established(router.path);
        match task {
            RouterTask::Register if is_established => {
                router.next_handshake_at = Some(now + router.silence);
                self.send_update(number);
            }
            RouterTask::RenewSession if is_established => router.engine.renew_handshake(now, router.path),
            _ => {
                router.engine.open_session(now, router.path, route);
            }
        }
        self.take_outputs(number, round);
    }

    /// Sends the next Binding Update of a router in its session.
    fn send_update(&mut self, number: u32) {
        let router = &mut self.routers[number as usize];
        router.sequence = router.sequence.wrapping_add(1);
        router.next_update_at = Some(time_now() + router.update_timeout);
        router.update_timeout = (router.update_timeout * 2).min(MAX_UPDATE_TIMEOUT);
        let sequence = router.sequence;
        let lifetime = self.lifetime_seconds / 4;
        let update = update_in_session(self.home_agent, router_identity(number), sequence, lifetime);
        self.encrypt(number, &update);
    }

    fn encrypt(&mut self, number: u32, packet: &[u8]) -> bool {
        let router = &mut self.routers[number as usize];
        let mut datagram = vec![0; datagram_length(packet.len())];
        let sent = router.engine.send_payload(time_now(), router.path, packet, &mut datagram);
        if sent.is_ok() {
            self.push_datagram(number, &datagram);
        }
        sent.is_ok()
    }

    fn push_datagram(&mut self, number: u32, datagram: &[u8]) {
        let source = (router_identity(number).care_of_address, ROUTER_PORT);
        self.outgoing.push_back(datagram_frame(self.link, source, self.home_agent, datagram));
    }

    /// Takes the datagrams and events of a router's engine. Returns whether the engine has sent a datagram
    /// without payload, which confirms a handshake.
    fn take_outputs(&mut self, number: u32, round: &mut SessionRound) -> bool {
        let mut has_confirmed = false;
        while let Some(output) = self.routers[number as usize].engine.poll_output() {
            match output {
                Output::Send { datagram, .. } => {
                    has_confirmed |= datagram[0] == DATA_MESSAGE && datagram.len() == NO_PAYLOAD_LENGTH;
                    round.initiations += u64::from(datagram[0] == 1);
                    self.push_datagram(number, &datagram);
                }
                Output::Established { .. } => {
                    let router = &mut self.routers[number as usize];
                    match router.task {
                        Some(RouterTask::OpenSession) => self.finish(number, round),
                        Some(RouterTask::Register) if router.next_update_at.is_none() => {
                            self.send_update(number)
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let router = &self.routers[number as usize];
        let times = [router.engine.poll_timeout(), router.next_update_at, router.next_handshake_at];
        match times.into_iter().flatten().min() {
            Some(due) => self.timers.set_deadline(number, due),
            None => self.timers.stop_timer(number),
        }
        has_confirmed
    }

    fn finish(&mut self, number: u32, round: &mut SessionRound) {
        let router = &mut self.routers[number as usize];
        if router.task.take().is_none() {
            return;
        }
        (router.next_update_at, router.next_handshake_at) = (None, None);
        let needed = monotonic_now() - router.began_at;
        self.unfinished = self.unfinished.saturating_sub(1);
        round.done += 1;
        round.late += u64::from(needed > LATE_AFTER);
        round.longest_ns = round.longest_ns.max(needed);
    }

    /// Handles the timers that are due. Returns whether there were any.
    fn handle_timers(&mut self, round: &mut SessionRound) -> bool {
        let mut any = false;
        for _ in 0..FRAMES_PER_BATCH {
            let now = time_now();
            let Some(number) = self.timers.pop_expired(now) else { break };
            any = true;
            let router = &mut self.routers[number as usize];
            if router.engine.poll_timeout().is_some_and(|due| due <= now) {
                router.engine.handle_timeout(now);
            }
            if router.next_handshake_at.is_some_and(|due| due <= now) {
                router.silence = (router.silence * 2).min(MAX_SIGNALLING_SILENCE);
                router.next_handshake_at = Some(now + router.silence);
                router.engine.renew_handshake(now, router.path);
            }
            if router.next_update_at.is_some_and(|due| due <= now) {
                round.repeated_updates += 1;
                self.send_update(number);
            }
            self.take_outputs(number, round);
        }
        any
    }

    /// Receives the waiting datagrams. Returns whether there were any.
    fn receive(&mut self, round: &mut SessionRound, start: u64) -> anyhow::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = receive_frames(&self.socket, &mut buffer);
        let lengths = match received {
            Ok(lengths) => lengths,
            Err(Errno::EAGAIN) => Vec::new(),
            Err(error) => bail!("recvmmsg: {error}"),
        };
        for (frame, length) in buffer.chunks(MAX_FRAME_SIZE).zip(&lengths) {
            let done = round.done;
            self.handle_frame(&frame[..*length], round);
            if round.done > done {
                round.elapsed_ns = monotonic_now() - start;
            }
        }
        self.buffer = buffer;
        Ok(!lengths.is_empty())
    }

    fn handle_frame(&mut self, frame: &[u8], round: &mut SessionRound) {
        const UDP: usize = ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH;
        let Some(datagram) = frame.get(UDP + UDP_HEADER_LENGTH..) else { return };
        let address = |at: usize| frame.get(at..at + 16).and_then(|octets| <[u8; 16]>::try_from(octets).ok());
        let (Some(source), Some(destination)) =
            (address(ETHERNET_HEADER_LENGTH + 8), address(ETHERNET_HEADER_LENGTH + 24))
        else {
            return;
        };
        let number = (u128::from_be_bytes(destination) >> 64) as u32;
        if frame[ETHERNET_HEADER_LENGTH + 6] != 17
            || Ipv6Addr::from(source) != self.home_agent
            || number >= self.len()
        {
            return;
        }
        let length = usize::from(u16::from_be_bytes([frame[UDP + 4], frame[UDP + 5]]));
        let datagram = &datagram[..length.saturating_sub(UDP_HEADER_LENGTH).min(datagram.len())];
        let Ok(route) = route_to_agent() else { return };
        let kind = datagram.first().copied().unwrap_or_default();
        round.cookie_replies += u64::from(kind == 3);
        let mut payload = std::mem::take(&mut self.payload);
        let now = time_now();
        let router = &mut self.routers[number as usize];
        let inner = match router.engine.receive_datagram(now, route, datagram, &mut payload) {
            ReceivedDatagram::Payload { payload, .. } => Some(payload.len()),
            ReceivedDatagram::Queued => {
                router.engine.handle_waiting_handshakes(now, 1);
                None
            }
            _ => None,
        };
        let has_confirmed = self.take_outputs(number, round);
        let task = self.routers[number as usize].task;
        if has_confirmed && kind == RESPONSE_MESSAGE && task == Some(RouterTask::RenewSession) {
            self.finish(number, round);
        }
        if let Some(length) = inner {
            self.handle_packet(number, &payload[..length], round);
        }
        self.payload = payload;
    }

    /// Handles a packet that came out of a router's session.
    fn handle_packet(&mut self, number: u32, packet: &[u8], round: &mut SessionRound) {
        if let Some(reply) = echo_reply(packet) {
            self.encrypt(number, &reply);
            return;
        }
        let prefix = router_identity(number).mobile_network_prefix.to_be_bytes();
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.router == number)
            && packet.get(24..32) == Some(&prefix)
        {
            stream.received += 1;
            return;
        }
        let answer = match parse_acknowledgement_in_session(packet, self.home_agent) {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            Err(error) => {
                round.wrong += 1;
                self.first_error.get_or_insert_with(|| format!("{error:#}"));
                return;
            }
        };
        let router = &self.routers[number as usize];
        let (who, lifetime) = (router_identity(number), self.lifetime_seconds / 4);
        // An answer to an earlier attempt is no mistake.
        if answer.sequence != router.sequence {
            return;
        }
        if answer.status != 0 || answer.home_address != who.home_address || answer.lifetime != lifetime {
            round.wrong += 1;
            self.first_error.get_or_insert_with(|| format!("unexpected Binding Acknowledgement: {answer:?}"));
        } else if router.task == Some(RouterTask::Register) {
            self.finish(number, round);
        }
    }

    /// Sends the packets of the stream that are due.
    fn send_stream(&mut self, now: u64) {
        let Some(mut stream) = self.stream.take() else { return };
        if stream.began_at == 0 {
            stream.began_at = now;
        }
        let due = ((now - stream.began_at) as f64 * stream.rate / 1e9) as u64;
        let debt = due.saturating_sub(stream.sent + stream.skipped);
        stream.skipped += debt.saturating_sub(MAX_STREAM_DEBT);
        for _ in 0..debt.min(MAX_STREAM_DEBT) {
            if self.encrypt(stream.router, &stream.packet) {
                stream.sent += 1;
            } else {
                stream.skipped += 1;
            }
        }
        self.stream = Some(stream);
    }

    /// Sends the frames that wait. Returns whether the interface accepted any.
    fn send_frames(&mut self) -> anyhow::Result<bool> {
        let mut any = false;
        while !self.outgoing.is_empty() {
            let count = self.outgoing.len().min(FRAMES_PER_BATCH);
            let mut headers = MultiHeaders::<()>::preallocate(count, None);
            let slices: Vec<[IoSlice<'_>; 1]> =
                self.outgoing.iter().take(count).map(|frame| [IoSlice::new(frame)]).collect();
            let flags = MsgFlags::MSG_DONTWAIT;
            let sent =
                sendmmsg(self.socket.as_raw_fd(), &mut headers, slices.iter(), vec![None; count], [], flags);
            let sent = match sent {
                Ok(sent) => sent.count(),
                Err(Errno::ENOBUFS | Errno::EAGAIN) => return Ok(any),
                Err(error) => bail!("sendmmsg: {error}"),
            };
            self.outgoing.drain(..sent);
            any = true;
        }
        Ok(any)
    }
}

/// Returns a socket filter that accepts IPv6 frames whose destination address begins with these 32 bits.
fn filter_of_destination(first_bits: u32) -> [SockFilter; 4] {
    const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let destination = ETHERNET_HEADER_LENGTH as u32 + 24;
    [
        (LOAD_WORD, 0, 0, destination),
        (JUMP_IF_EQUAL, 0, 1, first_bits),
        (RETURN, 0, 0, 0xffff),
        (RETURN, 0, 0, 0),
    ]
    .map(|(code, jt, jf, k)| SockFilter::new(code as u16, jt, jf, k))
}

/// Receives the frames that have arrived and returns their lengths.
fn receive_frames(socket: &Socket, buffer: &mut [u8]) -> nix::Result<Vec<usize>> {
    let mut headers = MultiHeaders::<()>::preallocate(FRAMES_PER_BATCH, None);
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        buffer.chunks_mut(MAX_FRAME_SIZE).map(|chunk| [IoSliceMut::new(chunk)]).collect();
    let messages =
        recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    Ok(messages.map(|message| message.bytes).collect())
}
