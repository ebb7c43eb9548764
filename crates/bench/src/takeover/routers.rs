//! Simulates the mobile routers, and hosts that exchange packets with hosts in the routers' networks, by one
//! sender of real packets.
//!
//! Each router has a flow in each direction: through the tunnel to its home agent, and from the home agent
//! through the tunnel. The sender sends each packet to all members of the seat at once, which no network
//! would do. So the benchmark always sees which member forwards and acknowledges, and a routing protocol
//! causes no delay. The incoming link identifies the member.
//!
//! A router that moves takes the other care-of address with each Binding Update. The sequence number
//! determines the address.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg, sendmmsg, setsockopt};
use socket2::Socket;

use super::super::fleet::{MOBILE, identity};
use super::super::packet::{Frame, IPV6, LINK, SMALLEST, UDP};
use super::super::sender::QdiscBypass;
use super::super::updates::{KEY, Signer, acknowledgement, update};
use super::super::world::{CN, run_in_node};
use super::world::{Machines, NET, address, hardware};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic};
use carnet_testbed::frame_socket::packet_socket;
use carnet_testbed::isolate::{Interrupted, has_to_stop};

/// Maximum number of frames per system call.
const BATCH: usize = 64;
/// Maximum length in octets of a received frame.
const FRAME: usize = 2048;
const BUFFER: usize = 16 << 20;
/// Time in nanoseconds after which a router retransmits a Binding Update without acknowledgement.
const AGAIN: u64 = 300 * MILLISECOND;
/// Lifetime that routers request, in units of four seconds.
const LIFETIME: u16 = 600;
/// Minimum time, in nanoseconds, in which a seat can move to another member and back, because a lease lasts
/// half a second. If the benchmark ends a home agent, its seat may move faster ([`Routers::expect_change`]).
const THERE_AND_BACK: u64 = 400 * MILLISECOND;
/// Number of latest packets of a flow whose numbers it stores.
const REMEMBERED: usize = 8;
/// Status "sequence number out of window" (RFC 6275 6.1.8).
const OUT_OF_WINDOW: u8 = 135;
const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_UDP: u8 = 17;

/// Returns whether the sequence number `one` is equal to or newer than `than`, by RFC 6275 9.5.1.
pub fn is_equal_or_newer(one: u16, than: u16) -> bool {
    one.wrapping_sub(than) < 0x8000
}

/// State of the packets in one direction between a router and its host.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flow {
    /// Arrival time of the last packet, in nanoseconds.
    pub last_packet: u64,
    /// Longest time in nanoseconds between two packets since [`Routers::watch`].
    pub silence: u64,
    /// Index of the member that forwarded the last packet.
    pub member: usize,
    /// The latest packet numbers, each with the member that forwarded the packet.
    seen: [(u32, usize); REMEMBERED],
}

#[derive(Debug)]
struct Router {
    seat: usize,
    down: Frame,
    up: [Frame; 2],
    /// Sequence number of the router's last Binding Update.
    sent: u16,
    acknowledged: Option<u16>,
    /// While the router waits for an acknowledgement: times of the first and the last transmission of its
    /// Binding Update.
    waits: Option<(u64, u64)>,
    /// Time when each of the last 16 Binding Updates was sent, indexed by the last four bits of its sequence
    /// number.
    asked: [u64; 16],
    flows: [Flow; 2],
    /// Index of the care-of address, 0 or 1, at which the last packet arrived.
    at: u16,
}

/// State of a seat: the member that acknowledges Binding Updates for it.
#[derive(Debug, Clone, Copy, Default)]
struct SeatState {
    member: Option<usize>,
    former: Option<usize>,
    since: u64,
}

/// Counts of the packets that the benchmark has received.
#[derive(Debug, Clone, Copy, Default)]
pub struct SenderCounts {
    /// Number of acknowledgements.
    pub acknowledged: u64,
    /// Number of late acknowledgements: they arrived after another member's first acknowledgement, but for
    /// Binding Updates from before it.
    pub late: u64,
    /// Number of times that two members acknowledged for one seat at once.
    pub two: u64,
    /// Number of answers that failed a check.
    pub wrong: u64,
    /// Number of sent packets; the sender sends each one to all members.
    pub packets: u64,
    /// Number of packets that two members forwarded.
    pub doubled: u64,
    /// Arrival time in nanoseconds of the last packet that two members forwarded.
    pub doubled_at: u64,
    /// Number of times that another member began to acknowledge for a seat.
    pub changes: u64,
}

/// A link of a member, and whether the sender lets packets pass.
struct Port {
    socket: Socket,
    member: usize,
    hosts: bool,
    open: bool,
}

/// The routers and their hosts.
pub struct Routers {
    ports: Vec<Port>,
    /// Ports of each seat: links of its members to routers, and to hosts.
    of_seat: Vec<[Vec<usize>; 2]>,
    agents: Vec<Ipv6Addr>,
    signer: Signer,
    routers: Vec<Router>,
    voices: Vec<SeatState>,
    /// Nanoseconds between two packets of a flow.
    pub period: u64,
    /// Binding Updates per second of all routers together.
    pub rate: f64,
    /// Whether a router changes its care-of address with each Binding Update.
    pub moves: bool,
    /// Whether routers send no Binding Updates: first for routers with an even number, then for those with an
    /// odd number.
    pub silent: [bool; 2],
    started: u64,
    turn: u64,
    asked: u64,
    next: u32,
    /// Counts of the packets that the benchmark has received.
    pub seen: SenderCounts,
    /// Error in the first wrong acknowledgement.
    pub complaint: Option<String>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Routers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routers").field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// Returns the care-of address of a router's Binding Update with this sequence number. With `moves` it
/// alternates between two addresses.
fn care_of(number: u32, sequence: u16, moves: bool) -> Ipv6Addr {
    let last = if moves { sequence & 1 } else { 0 };
    Ipv6Addr::from(u128::from(identity(number).care_of_address) + u128::from(last))
}

impl Routers {
    /// Creates `number` routers, with `period` nanoseconds between two packets of each flow.
    pub fn new(machines: &Machines, number: u32, period: u64) -> anyhow::Result<Routers> {
        let mut ports = Vec::new();
        let mut of_seat = vec![[Vec::new(), Vec::new()]; machines.seats];
        for (at, member) in machines.members.iter().enumerate() {
            for (kind, hosts) in [('f', false), ('h', true)] {
                let socket = run_in_node(NET, || {
                    let socket = packet_socket(&member.end(kind), Some(libc::ETH_P_IPV6 as u16))?;
                    setsockopt(&socket, SndBufForce, &BUFFER)?;
                    setsockopt(&socket, RcvBufForce, &BUFFER)?;
                    setsockopt(&socket, QdiscBypass, &true)?;
                    socket.set_nonblocking(true)?;
                    Ok(socket)
                })
                .with_context(|| format!("cannot open a packet socket at {}", member.end(kind)))?;
                of_seat[member.seat][usize::from(hosts)].push(ports.len());
                ports.push(Port { socket, member: at, hosts, open: true });
            }
        }
        let agents = (0..machines.seats).map(|seat| address(seat).parse()).collect::<Result<Vec<_>, _>>()?;
        let host: Ipv6Addr = CN.parse()?;
        let routers = (0..number).map(|number| {
            let (who, seat) = (identity(number), number as usize % machines.seats);
            let node = Ipv6Addr::from(u128::from(who.prefix) << 64 | 2);
            let [routers, hosts] = [false, true].map(hardware);
            let up = |sequence| {
                let outer = (care_of(number, sequence, true), agents[seat]);
                Frame::new(routers, Some(outer), (node, host), SMALLEST)
            };
            Router {
                seat,
                down: Frame::new(hosts, None, (host, node), SMALLEST),
                up: [up(0), up(1)],
                sent: 0,
                acknowledged: None,
                waits: None,
                asked: [0; 16],
                flows: [Flow::default(); 2],
                at: 0,
            }
        });
        Ok(Routers {
            routers: routers.collect(),
            ports,
            of_seat,
            agents,
            signer: Signer::new(&KEY)?,
            voices: vec![SeatState::default(); machines.seats],
            period,
            rate: 0.0,
            moves: false,
            silent: [false; 2],
            started: monotonic(),
            turn: 0,
            asked: 0,
            next: 0,
            seen: SenderCounts::default(),
            complaint: None,
            buffer: vec![0; BATCH * FRAME],
        })
    }

    /// Returns the number of routers.
    pub fn len(&self) -> u32 {
        self.routers.len() as u32
    }

    /// Returns the flows of a seat.
    pub fn flows(&self, seat: usize) -> impl Iterator<Item = &Flow> {
        self.routers.iter().filter(move |router| router.seat == seat).flat_map(|router| &router.flows)
    }

    /// Starts to measure the silences of all flows.
    pub fn watch(&mut self) {
        for flow in self.routers.iter_mut().flat_map(|router| &mut router.flows) {
            flow.silence = 0;
        }
    }

    /// Ends the measurement. A silence that has not ended counts with its length so far.
    pub fn complete(&mut self) {
        let now = monotonic();
        for flow in self.routers.iter_mut().flat_map(|router| &mut router.flows) {
            flow.silence = flow.silence.max(now.saturating_sub(flow.last_packet));
        }
    }

    /// Blocks all packets between the network and a member, or lets them pass again.
    pub fn block_member(&mut self, member: usize, open: bool) {
        for port in self.ports.iter_mut().filter(|port| port.member == member) {
            port.open = open;
        }
    }

    /// Returns the number of routers that wait for an answer.
    pub fn waiting_routers(&self) -> usize {
        self.routers.iter().filter(|router| router.waits.is_some()).count()
    }

    /// Makes all routers send a new Binding Update.
    pub fn send_all_updates(&mut self) {
        let (now, count) = (monotonic(), u64::from(self.len()));
        for (number, router) in (0..).zip(&mut self.routers) {
            // Let all routers send now, spread over a tenth of a second.
            let part = number * 100 * MILLISECOND / count;
            router.waits.get_or_insert((now, (now + part).saturating_sub(AGAIN)));
        }
    }

    /// Runs routers and hosts for `time` nanoseconds.
    pub fn run_for(&mut self, time: u64) -> anyhow::Result<()> {
        let until = monotonic() + time;
        self.run_until(until, |_| false).map(drop)
    }

    /// Runs routers and hosts until `is_so` holds or the time is `end`. Returns whether it holds.
    pub fn run_until(&mut self, end: u64, mut is_so: impl FnMut(&Self) -> bool) -> anyhow::Result<bool> {
        loop {
            let now = monotonic();
            if is_so(self) {
                return Ok(true);
            }
            if now >= end {
                return Ok(false);
            }
            if has_to_stop() {
                return Err(Interrupted.into());
            }
            self.traffic(now)?;
            self.ask(now)?;
            let mut any = false;
            for port in 0..self.ports.len() {
                any |= self.hear(port)?;
            }
            if !any {
                clock::sleep(MILLISECOND / 5);
            }
        }
    }

    /// Sends the packets of the flows that are due.
    fn traffic(&mut self, now: u64) -> anyhow::Result<()> {
        let count = self.routers.len() as u64;
        let due = (u128::from(now - self.started) * u128::from(count) / u128::from(self.period)) as u64;
        // If the sender is late, it makes up for at most one round of packets, and skips the others.
        self.turn = self.turn.max(due.saturating_sub(count));
        while self.turn < due {
            let turns: Vec<u64> = (self.turn..due.min(self.turn + BATCH as u64)).collect();
            self.turn += turns.len() as u64;
            let mut numbers: Vec<Vec<usize>> = vec![Vec::new(); self.of_seat.len()];
            for turn in turns {
                let at = (turn % count) as usize;
                let router = &mut self.routers[at];
                let packet = (turn / count) as u32;
                router.down.number(packet);
                router.up.iter_mut().for_each(|frame| frame.number(packet));
                numbers[router.seat].push(at);
            }
            for (seat, numbers) in numbers.iter().enumerate() {
                self.seen.packets += 2 * numbers.len() as u64;
                for hosts in [false, true] {
                    let frames: Vec<&[u8]> =
                        numbers.iter().map(|at| self.frame_of(*at, hosts).octets()).collect();
                    self.send(seat, hosts, &frames)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the next packet of a router.
    fn frame_of(&self, at: usize, hosts: bool) -> &Frame {
        let router = &self.routers[at];
        if hosts {
            return &router.down;
        }
        if !self.moves {
            return &router.up[0];
        }
        // While a router waits for an answer, it does not know which of its care-of addresses is registered,
        // so it sends from both in turn.
        let sequence = match (router.acknowledged, router.waits) {
            (Some(sequence), None) => sequence,
            _ => (self.turn / self.routers.len() as u64) as u16,
        };
        &router.up[usize::from(sequence & 1)]
    }

    /// Sends frames to all members of a seat.
    fn send(&self, seat: usize, hosts: bool, frames: &[&[u8]]) -> anyhow::Result<()> {
        let slices: Vec<[IoSlice<'_>; 1]> = frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        for port in &self.of_seat[seat][usize::from(hosts)] {
            let port = &self.ports[*port];
            if !port.open || slices.is_empty() {
                continue;
            }
            let mut headers = MultiHeaders::<()>::preallocate(slices.len(), None);
            let addresses = vec![None; slices.len()];
            let fd = port.socket.as_raw_fd();
            match sendmmsg(fd, &mut headers, slices.iter(), addresses, [], MsgFlags::MSG_DONTWAIT) {
                // Ignore the error: the interface is down or has no room for packets.
                Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::ENETDOWN | Errno::ENXIO) => {}
                Err(error) => bail!("sendmmsg: {error}"),
            }
        }
        Ok(())
    }

    fn is_silent(&self, number: u32) -> bool {
        self.silent[number as usize & 1]
    }

    /// Sends the Binding Updates that are due.
    fn ask(&mut self, now: u64) -> anyhow::Result<()> {
        let due = ((now - self.started) as f64 * self.rate / 1e9) as u64;
        self.asked = self.asked.max(due.saturating_sub(BATCH as u64));
        while self.asked < due {
            self.asked += 1;
            let number = self.next;
            self.next = (number + 1) % self.len();
            if self.routers[number as usize].waits.is_none() && !self.is_silent(number) {
                self.update(number, now)?;
            }
        }
        for number in 0..self.len() {
            let waits = self.routers[number as usize].waits;
            if waits.is_some_and(|(_, asked)| now >= asked + AGAIN) && !self.is_silent(number) {
                self.update(number, now)?;
            }
        }
        Ok(())
    }

    /// Sends a router's Binding Update with the next sequence number.
    fn update(&mut self, number: u32, now: u64) -> anyhow::Result<()> {
        let moves = self.moves;
        let router = &mut self.routers[number as usize];
        router.sent = router.sent.wrapping_add(1);
        let sequence = router.sent;
        router.asked[usize::from(sequence & 15)] = now;
        router.waits = Some((router.waits.map_or(now, |(since, _)| since), now));
        let seat = router.seat;
        let mut who = identity(number);
        who.care_of_address = care_of(number, sequence, moves);
        let frame = update(hardware(false), self.agents[seat], who, sequence, LIFETIME, &self.signer);
        self.send(seat, false, &[&frame])
    }

    /// Receives the frames that have arrived at a port. Returns whether any frame had arrived.
    fn hear(&mut self, port: usize) -> anyhow::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.take(port, &mut buffer);
        self.buffer = buffer;
        result
    }

    fn take(&mut self, port: usize, buffer: &mut [u8]) -> anyhow::Result<bool> {
        let mut any = false;
        loop {
            let lengths: Vec<usize> = {
                let mut headers = MultiHeaders::<()>::preallocate(BATCH, None);
                let mut slices: Vec<[IoSliceMut<'_>; 1]> =
                    buffer.chunks_mut(FRAME).map(|chunk| [IoSliceMut::new(chunk)]).collect();
                let fd = self.ports[port].socket.as_raw_fd();
                match recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
                    Ok(messages) => messages.map(|message| message.bytes).collect(),
                    Err(Errno::EAGAIN | Errno::ENETDOWN) => return Ok(any),
                    Err(error) => bail!("recvmmsg: {error}"),
                }
            };
            any = true;
            let Port { member, hosts, open, .. } = self.ports[port];
            if open {
                let now = monotonic();
                for (frame, length) in buffer.chunks(FRAME).zip(&lengths) {
                    self.frame(&frame[..*length], member, hosts, now);
                }
            }
            if lengths.len() < BATCH {
                return Ok(any);
            }
        }
    }

    /// Handles a frame that a member sent.
    fn frame(&mut self, frame: &[u8], member: usize, hosts: bool, now: u64) {
        let wide =
            |at: usize| frame.get(at..at + 8).map(|it| u64::from_be_bytes(it.try_into().unwrap_or_default()));
        let number_at =
            |at: usize| frame.get(at..at + 4).map(|it| u32::from_be_bytes(it.try_into().unwrap_or_default()));
        let protocol = frame.get(LINK + 6).copied();
        // If a member does not lead the seat, its kernel may send a packet back unchanged. Skip such a
        // packet.
        let (inner, address) = match (hosts, protocol) {
            (false, Some(PROTOCOL_IPV6)) => (LINK + IPV6, LINK + IPV6 + 24),
            (true, Some(PROTOCOL_UDP)) => (LINK, LINK + 8),
            (false, _) => return self.answer(frame, member, now),
            _ => return,
        };
        let (Some(prefix), Some(number)) = (wide(address), number_at(inner + IPV6 + UDP)) else { return };
        let at = prefix as u32 as usize;
        if prefix >> 32 != MOBILE || at >= self.routers.len() {
            return;
        }
        let router = &mut self.routers[at];
        if !hosts {
            router.at = u16::from(frame[LINK + 39]) - 1;
        }
        let flow = &mut router.flows[usize::from(hosts)];
        let seen = &mut flow.seen[number as usize % REMEMBERED];
        if seen.0 == number && seen.1 != member && flow.last_packet > 0 {
            self.seen.doubled += 1;
            self.seen.doubled_at = now;
            return;
        }
        *seen = (number, member);
        if flow.last_packet > 0 {
            flow.silence = flow.silence.max(now.saturating_sub(flow.last_packet));
        }
        (flow.last_packet, flow.member) = (now, member);
    }

    /// Handles a frame that may be an acknowledgement.
    fn answer(&mut self, frame: &[u8], member: usize, now: u64) {
        // The source address of an acknowledgement identifies the seat.
        let Some(source) = frame.get(LINK + 8..LINK + 24).and_then(|it| <[u8; 16]>::try_from(it).ok()) else {
            return;
        };
        let Some(seat) = self.agents.iter().position(|agent| agent.octets() == source) else { return };
        let found = match acknowledgement(frame, self.agents[seat], &self.signer) {
            Ok(None) => return,
            Ok(Some(found)) => found,
            Err(error) => return self.wrong(format!("{error:#}")),
        };
        let number = (u128::from(found.home_address) & 0xffff_ffff) as u32;
        let moves = self.moves;
        let Some(router) = self.routers.get_mut(number as usize).filter(|router| router.seat == seat) else {
            return self.wrong(format!("an acknowledgement is for {}", found.home_address));
        };
        let age = router.sent.wrapping_sub(found.sequence);
        if found.status == OUT_OF_WINDOW && age < 16 {
            // The acknowledgement belongs to an earlier Binding Update than the last one.
            return;
        }
        let right =
            found.status == 0 && age < 16 && found.care_of_address == care_of(number, found.sequence, moves);
        if !right {
            let sent = router.sent;
            return self.wrong(format!(
                "router {number} with the last sequence number {sent} got an \
                 unexpected acknowledgement: {found:?}"
            ));
        }
        let asked = router.asked[usize::from(found.sequence & 15)];
        if router.acknowledged.is_none_or(|known| is_equal_or_newer(found.sequence, known)) {
            router.acknowledged = Some(found.sequence);
        }
        if found.sequence == router.sent {
            router.waits = None;
        }
        self.seen.acknowledged += 1;
        let voice = &mut self.voices[seat];
        if voice.member == Some(member) {
            return;
        }
        if voice.member.is_some() && asked < voice.since {
            self.seen.late += 1;
            return;
        }
        if voice.former == Some(member) && now - voice.since < THERE_AND_BACK {
            self.seen.two += 1;
            let ago = (now - voice.since) / MILLISECOND;
            self.complaint.get_or_insert(format!(
                "seat {seat}: member {member} acknowledged to router {number} what was asked {} ms before; \
                 {:?} had begun to {ago} ms before",
                (now - asked) / MILLISECOND,
                voice.member
            ));
        }
        if voice.member.is_some() {
            self.seen.changes += 1;
        }
        *voice = SeatState { member: Some(member), former: voice.member, since: now };
    }

    /// Notes that home agents are about to be ended: any member, even the last leader, may then take a seat
    /// at once.
    pub fn expect_change(&mut self) {
        self.voices.iter_mut().for_each(|voice| voice.former = None);
    }

    fn wrong(&mut self, why: String) {
        self.seen.wrong += 1;
        self.complaint.get_or_insert(why);
    }

    /// Returns whether every flow had a packet within this time, and whether no packet came from two members.
    pub fn all_flows_have_packets(&self, within: u64) -> bool {
        let now = monotonic();
        let recent =
            self.routers.iter().flat_map(|router| &router.flows).all(|flow| now - flow.last_packet < within);
        recent && now.saturating_sub(self.seen.doubled_at) > within
    }

    /// Returns how many flows had a packet within this time.
    pub fn flows_with_packets(&self, within: u64) -> usize {
        let now = monotonic();
        self.routers
            .iter()
            .flat_map(|router| &router.flows)
            .filter(|flow| now - flow.last_packet < within)
            .count()
    }

    /// Returns the acknowledged bindings of a seat that a member lacks. The function compares the list of its
    /// home agent, and the care-of addresses to which the home agent sends packets.
    pub fn missing_bindings(
        &self,
        seat: usize,
        member: usize,
        bindings: &[serde_json::Value],
    ) -> Vec<String> {
        let one = |binding: &serde_json::Value| -> Option<(Ipv6Addr, (Ipv6Addr, u16))> {
            let address = |key: &str| binding[key].as_str()?.parse::<Ipv6Addr>().ok();
            let sequence = u16::try_from(binding["sequence"].as_u64()?).ok()?;
            Some((address("home_address")?, (address("care_of_address")?, sequence)))
        };
        let shown: BTreeMap<Ipv6Addr, (Ipv6Addr, u16)> = bindings.iter().filter_map(one).collect();
        let mut missing = Vec::new();
        for (at, router) in self.routers.iter().enumerate().filter(|(_, router)| router.seat == seat) {
            let number = at as u32;
            let Some(acknowledged) = router.acknowledged else { continue };
            let known = shown.get(&identity(number).home_address);
            let right = known.is_some_and(|(address, sequence)| {
                is_equal_or_newer(*sequence, acknowledged)
                    && is_equal_or_newer(router.sent, *sequence)
                    && *address == care_of(number, *sequence, self.moves)
                    && (!self.moves || router.at == *sequence & 1)
                    && router.flows.iter().all(|flow| flow.member == member)
            });
            if !right {
                missing.push(format!(
                    "router {number}: acknowledged {acknowledged}, sent {}, the home agent has {known:?}; \
                     packets go to {}, by members {:?}",
                    router.sent,
                    router.at,
                    router.flows.map(|flow| flow.member)
                ));
            }
        }
        missing
    }

    /// Waits until all routers have an acknowledgement.
    pub fn settle(&mut self, seconds: u64) -> anyhow::Result<bool> {
        self.run_until(monotonic() + seconds * SECOND, |all| all.waiting_routers() == 0)
    }
}
