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

use super::super::fleet::{MOBILE_NETWORKS_HIGH_BITS, router_identity};
use super::super::packet::{
    ETHERNET_HEADER_LENGTH, Frame, IPV6_HEADER_LENGTH, SMALLEST_PACKET_LENGTH, UDP_HEADER_LENGTH,
};
use super::super::sender::QdiscBypass;
use super::super::updates::{
    AUTHENTICATION_KEY, MessageAuthenticator, binding_update_frame, parse_binding_acknowledgement,
};
use super::super::world::{CORRESPONDENT_ADDRESS, run_in_node};
use super::world::{ROUTERS_NODE, TestMachines, home_agent_address, link_addresses_of};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::frame_socket::packet_socket;
use carnet_testbed::isolate::{Interrupted, has_to_stop};

/// Maximum number of frames per system call.
const FRAMES_PER_BATCH: usize = 64;
/// Maximum length in octets of a received frame.
const MAX_FRAME_SIZE: usize = 2048;
const SOCKET_BUFFER_SIZE: usize = 16 << 20;
/// Time in nanoseconds after which a router retransmits a Binding Update without acknowledgement.
const RETRANSMISSION_TIMEOUT: u64 = 300 * MILLISECOND;
/// Lifetime that routers request, in units of four seconds.
const BINDING_LIFETIME_UNITS: u16 = 600;
/// Minimum time, in nanoseconds, in which the leadership of a home agent can move to another member and back.
/// A member waits until the lease of the former leader ends, and a lease lasts half a second. If the
/// benchmark ends a home agent, its leadership may move faster ([`Routers::expect_leader_change`]).
const MIN_TIME_UNTIL_SEAT_RETURNS: u64 = 400 * MILLISECOND;
/// Number of latest packets of a flow whose numbers it stores.
const REMEMBERED_PACKETS_PER_FLOW: usize = 8;
/// Status "sequence number out of window" (RFC 6275 6.1.8).
const SEQUENCE_OUT_OF_WINDOW: u8 = 135;
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
    pub last_packet_at: u64,
    /// Longest time in nanoseconds between two packets since [`Routers::start_silence_measurement`].
    pub longest_silence: u64,
    /// Index of the member that forwarded the last packet.
    pub last_member: usize,
    /// The latest packet numbers, each with the member that forwarded the packet.
    recent_packets: [(u32, usize); REMEMBERED_PACKETS_PER_FLOW],
}

#[derive(Debug)]
struct SimulatedRouter {
    seat_index: usize,
    frame_to_mobile_network: Frame,
    frames_from_mobile_network: [Frame; 2],
    /// Sequence number of the router's last Binding Update.
    sent_sequence_number: u16,
    acknowledged_sequence_number: Option<u16>,
    /// Times of the first and the last transmission of the router's Binding Update; `None` if the router does
    /// not wait for an acknowledgement.
    unacknowledged_update: Option<(u64, u64)>,
    /// Time when each of the last 16 Binding Updates was sent, indexed by the last four bits of its sequence
    /// number.
    update_times: [u64; 16],
    flows: [Flow; 2],
    /// Index of the care-of address, 0 or 1, at which the last packet arrived.
    last_care_of_address_index: u16,
}

/// State of a home agent (seat): the member that acknowledges Binding Updates for it.
#[derive(Debug, Clone, Copy, Default)]
struct SeatState {
    current_member: Option<usize>,
    previous_member: Option<usize>,
    leader_since: u64,
}

/// Counts of the packets that the benchmark has received.
#[derive(Debug, Clone, Copy, Default)]
pub struct SenderCounts {
    /// Number of acknowledgements.
    pub acknowledged: u64,
    /// Number of late acknowledgements: they arrived after another member's first acknowledgement, but for
    /// Binding Updates from before it.
    pub late_acknowledgements: u64,
    /// Number of times that two members acknowledged for one home agent at once.
    pub acknowledgements_of_two_members: u64,
    /// Number of answers that failed a check.
    pub wrong_acknowledgements: u64,
    /// Number of sent packets; the sender sends each one to all members.
    pub sent_packets: u64,
    /// Number of packets that two members forwarded.
    pub doubled_packets: u64,
    /// Arrival time in nanoseconds of the last packet that two members forwarded.
    pub last_doubled_packet_at: u64,
    /// Number of times that another member began to acknowledge for a home agent.
    pub leader_changes: u64,
}

/// A link of a member, and whether the sender lets packets pass.
struct MemberPort {
    socket: Socket,
    member_index: usize,
    is_link_to_hosts: bool,
    is_open: bool,
}

/// The routers and their hosts.
pub struct Routers {
    ports: Vec<MemberPort>,
    /// Ports of the members of each home agent (seat): links to routers, and links to hosts.
    ports_of_seats: Vec<[Vec<usize>; 2]>,
    home_agents: Vec<Ipv6Addr>,
    signer: MessageAuthenticator,
    routers: Vec<SimulatedRouter>,
    seat_states: Vec<SeatState>,
    /// Nanoseconds between two packets of a flow.
    pub packet_period: u64,
    /// Binding Updates per second of all routers together.
    pub updates_per_second: f64,
    /// Whether a router takes another care-of address with each Binding Update.
    pub changes_care_of_address: bool,
    /// Whether routers send no Binding Updates: first for routers with an even number, then for those with an
    /// odd number.
    pub halves_without_updates: [bool; 2],
    started_at: u64,
    sent_rounds: u64,
    sent_updates: u64,
    next_router: u32,
    /// Counts of the packets that the benchmark has received.
    pub packet_counts: SenderCounts,
    /// Error in the first wrong acknowledgement; `None` if all were correct.
    pub first_error: Option<String>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Routers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routers").field("seen", &self.packet_counts).finish_non_exhaustive()
    }
}

/// Returns the care-of address of a router's Binding Update with this sequence number. With `moves` it
/// alternates between two addresses.
fn care_of_address(number: u32, sequence: u16, moves: bool) -> Ipv6Addr {
    let last = if moves { sequence & 1 } else { 0 };
    Ipv6Addr::from(u128::from(router_identity(number).care_of_address) + u128::from(last))
}

impl Routers {
    /// Creates `number` routers, with `period` nanoseconds between two packets of each flow.
    pub fn new(machines: &TestMachines, number: u32, period: u64) -> anyhow::Result<Routers> {
        let mut ports = Vec::new();
        let mut of_seat = vec![[Vec::new(), Vec::new()]; machines.seat_count];
        for (at, member) in machines.all_members.iter().enumerate() {
            for (kind, hosts) in [('f', false), ('h', true)] {
                let socket = run_in_node(ROUTERS_NODE, || {
                    let socket = packet_socket(&member.interface_name(kind), Some(libc::ETH_P_IPV6 as u16))?;
                    setsockopt(&socket, SndBufForce, &SOCKET_BUFFER_SIZE)?;
                    setsockopt(&socket, RcvBufForce, &SOCKET_BUFFER_SIZE)?;
                    setsockopt(&socket, QdiscBypass, &true)?;
                    socket.set_nonblocking(true)?;
                    Ok(socket)
                })
                .with_context(|| format!("cannot open a packet socket at {}", member.interface_name(kind)))?;
                of_seat[member.seat_index][usize::from(hosts)].push(ports.len());
                ports.push(MemberPort { socket, member_index: at, is_link_to_hosts: hosts, is_open: true });
            }
        }
        let agents = (0..machines.seat_count)
            .map(|seat| home_agent_address(seat).parse())
            .collect::<Result<Vec<_>, _>>()?;
        let host: Ipv6Addr = CORRESPONDENT_ADDRESS.parse()?;
        let routers = (0..number).map(|number| {
            let (who, seat) = (router_identity(number), number as usize % machines.seat_count);
            let node = Ipv6Addr::from(u128::from(who.mobile_network_prefix) << 64 | 2);
            let [routers, hosts] = [false, true].map(link_addresses_of);
            let up = |sequence| {
                let outer = (care_of_address(number, sequence, true), agents[seat]);
                Frame::new(routers, Some(outer), (node, host), SMALLEST_PACKET_LENGTH)
            };
            SimulatedRouter {
                seat_index: seat,
                frame_to_mobile_network: Frame::new(hosts, None, (host, node), SMALLEST_PACKET_LENGTH),
                frames_from_mobile_network: [up(0), up(1)],
                sent_sequence_number: 0,
                acknowledged_sequence_number: None,
                unacknowledged_update: None,
                update_times: [0; 16],
                flows: [Flow::default(); 2],
                last_care_of_address_index: 0,
            }
        });
        Ok(Routers {
            routers: routers.collect(),
            ports,
            ports_of_seats: of_seat,
            home_agents: agents,
            signer: MessageAuthenticator::new(&AUTHENTICATION_KEY)?,
            seat_states: vec![SeatState::default(); machines.seat_count],
            packet_period: period,
            updates_per_second: 0.0,
            changes_care_of_address: false,
            halves_without_updates: [false; 2],
            started_at: monotonic_now(),
            sent_rounds: 0,
            sent_updates: 0,
            next_router: 0,
            packet_counts: SenderCounts::default(),
            first_error: None,
            buffer: vec![0; FRAMES_PER_BATCH * MAX_FRAME_SIZE],
        })
    }

    /// Returns the number of routers.
    pub fn len(&self) -> u32 {
        self.routers.len() as u32
    }

    /// Returns the flows through a home agent (seat).
    pub fn flows_of_seat(&self, seat: usize) -> impl Iterator<Item = &Flow> {
        self.routers.iter().filter(move |router| router.seat_index == seat).flat_map(|router| &router.flows)
    }

    /// Starts to measure the silences of all flows.
    pub fn start_silence_measurement(&mut self) {
        for flow in self.routers.iter_mut().flat_map(|router| &mut router.flows) {
            flow.longest_silence = 0;
        }
    }

    /// Ends the measurement. A silence that has not ended counts with its length so far.
    pub fn end_silence_measurement(&mut self) {
        let now = monotonic_now();
        for flow in self.routers.iter_mut().flat_map(|router| &mut router.flows) {
            flow.longest_silence = flow.longest_silence.max(now.saturating_sub(flow.last_packet_at));
        }
    }

    /// Blocks all packets between the network and a member, or lets them pass again.
    pub fn set_member_reachable(&mut self, member: usize, open: bool) {
        for port in self.ports.iter_mut().filter(|port| port.member_index == member) {
            port.is_open = open;
        }
    }

    /// Returns the number of routers that wait for an answer.
    pub fn waiting_routers(&self) -> usize {
        self.routers.iter().filter(|router| router.unacknowledged_update.is_some()).count()
    }

    /// Makes all routers send a new Binding Update.
    pub fn send_all_updates(&mut self) {
        let (now, count) = (monotonic_now(), u64::from(self.len()));
        for (number, router) in (0..).zip(&mut self.routers) {
            // Let all routers send now, spread over a tenth of a second.
            let part = number * 100 * MILLISECOND / count;
            router
                .unacknowledged_update
                .get_or_insert((now, (now + part).saturating_sub(RETRANSMISSION_TIMEOUT)));
        }
    }

    /// Runs routers and hosts for `time` nanoseconds.
    pub fn run_for(&mut self, time: u64) -> anyhow::Result<()> {
        let until = monotonic_now() + time;
        self.run_until(until, |_| false).map(drop)
    }

    /// Runs routers and hosts until `is_reached` holds or the time is `end`. Returns whether it holds.
    pub fn run_until(&mut self, end: u64, mut is_reached: impl FnMut(&Self) -> bool) -> anyhow::Result<bool> {
        loop {
            let now = monotonic_now();
            if is_reached(self) {
                return Ok(true);
            }
            if now >= end {
                return Ok(false);
            }
            if has_to_stop() {
                return Err(Interrupted.into());
            }
            self.send_due_packets(now)?;
            self.send_due_updates(now)?;
            let mut any = false;
            for port in 0..self.ports.len() {
                any |= self.receive_frames(port)?;
            }
            if !any {
                clock::sleep(MILLISECOND / 5);
            }
        }
    }

    /// Sends the packets of the flows that are due.
    fn send_due_packets(&mut self, now: u64) -> anyhow::Result<()> {
        let count = self.routers.len() as u64;
        let due =
            (u128::from(now - self.started_at) * u128::from(count) / u128::from(self.packet_period)) as u64;
        // If the sender is late, it makes up for at most one round of packets, and skips the others.
        self.sent_rounds = self.sent_rounds.max(due.saturating_sub(count));
        while self.sent_rounds < due {
            let turns: Vec<u64> =
                (self.sent_rounds..due.min(self.sent_rounds + FRAMES_PER_BATCH as u64)).collect();
            self.sent_rounds += turns.len() as u64;
            let mut numbers: Vec<Vec<usize>> = vec![Vec::new(); self.ports_of_seats.len()];
            for turn in turns {
                let at = (turn % count) as usize;
                let router = &mut self.routers[at];
                let packet = (turn / count) as u32;
                router.frame_to_mobile_network.set_packet_number(packet);
                router
                    .frames_from_mobile_network
                    .iter_mut()
                    .for_each(|frame| frame.set_packet_number(packet));
                numbers[router.seat_index].push(at);
            }
            for (seat, numbers) in numbers.iter().enumerate() {
                self.packet_counts.sent_packets += 2 * numbers.len() as u64;
                for hosts in [false, true] {
                    let frames: Vec<&[u8]> =
                        numbers.iter().map(|at| self.current_frame(*at, hosts).octets()).collect();
                    self.send_frames(seat, hosts, &frames)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the next packet of a router's flow: to the mobile network if `hosts` is true, otherwise from
    /// the mobile network.
    fn current_frame(&self, at: usize, hosts: bool) -> &Frame {
        let router = &self.routers[at];
        if hosts {
            return &router.frame_to_mobile_network;
        }
        if !self.changes_care_of_address {
            return &router.frames_from_mobile_network[0];
        }
        // While a router waits for an answer, it does not know which of its care-of addresses is registered,
        // so it sends from both in turn.
        let sequence = match (router.acknowledged_sequence_number, router.unacknowledged_update) {
            (Some(sequence), None) => sequence,
            _ => (self.sent_rounds / self.routers.len() as u64) as u16,
        };
        &router.frames_from_mobile_network[usize::from(sequence & 1)]
    }

    /// Sends frames to all members that may lead a home agent (seat).
    fn send_frames(&self, seat: usize, hosts: bool, frames: &[&[u8]]) -> anyhow::Result<()> {
        let slices: Vec<[IoSlice<'_>; 1]> = frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        for port in &self.ports_of_seats[seat][usize::from(hosts)] {
            let port = &self.ports[*port];
            if !port.is_open || slices.is_empty() {
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

    fn sends_no_updates(&self, number: u32) -> bool {
        self.halves_without_updates[number as usize & 1]
    }

    /// Sends the Binding Updates that are due.
    fn send_due_updates(&mut self, now: u64) -> anyhow::Result<()> {
        let due = ((now - self.started_at) as f64 * self.updates_per_second / 1e9) as u64;
        self.sent_updates = self.sent_updates.max(due.saturating_sub(FRAMES_PER_BATCH as u64));
        while self.sent_updates < due {
            self.sent_updates += 1;
            let number = self.next_router;
            self.next_router = (number + 1) % self.len();
            if self.routers[number as usize].unacknowledged_update.is_none() && !self.sends_no_updates(number)
            {
                self.send_update(number, now)?;
            }
        }
        for number in 0..self.len() {
            let waits = self.routers[number as usize].unacknowledged_update;
            if waits.is_some_and(|(_, asked)| now >= asked + RETRANSMISSION_TIMEOUT)
                && !self.sends_no_updates(number)
            {
                self.send_update(number, now)?;
            }
        }
        Ok(())
    }

    /// Sends a router's Binding Update with the next sequence number.
    fn send_update(&mut self, number: u32, now: u64) -> anyhow::Result<()> {
        let moves = self.changes_care_of_address;
        let router = &mut self.routers[number as usize];
        router.sent_sequence_number = router.sent_sequence_number.wrapping_add(1);
        let sequence = router.sent_sequence_number;
        router.update_times[usize::from(sequence & 15)] = now;
        router.unacknowledged_update =
            Some((router.unacknowledged_update.map_or(now, |(since, _)| since), now));
        let seat = router.seat_index;
        let mut who = router_identity(number);
        who.care_of_address = care_of_address(number, sequence, moves);
        let frame = binding_update_frame(
            link_addresses_of(false),
            self.home_agents[seat],
            who,
            sequence,
            BINDING_LIFETIME_UNITS,
            &self.signer,
        );
        self.send_frames(seat, false, &[&frame])
    }

    /// Receives the frames that have arrived at a port. Returns whether any frame had arrived.
    fn receive_frames(&mut self, port: usize) -> anyhow::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.receive_batch(port, &mut buffer);
        self.buffer = buffer;
        result
    }

    fn receive_batch(&mut self, port: usize, buffer: &mut [u8]) -> anyhow::Result<bool> {
        let mut any = false;
        loop {
            let lengths: Vec<usize> = {
                let mut headers = MultiHeaders::<()>::preallocate(FRAMES_PER_BATCH, None);
                let mut slices: Vec<[IoSliceMut<'_>; 1]> =
                    buffer.chunks_mut(MAX_FRAME_SIZE).map(|chunk| [IoSliceMut::new(chunk)]).collect();
                let fd = self.ports[port].socket.as_raw_fd();
                match recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
                    Ok(messages) => messages.map(|message| message.bytes).collect(),
                    Err(Errno::EAGAIN | Errno::ENETDOWN) => return Ok(any),
                    Err(error) => bail!("recvmmsg: {error}"),
                }
            };
            any = true;
            let MemberPort { member_index: member, is_link_to_hosts: hosts, is_open: open, .. } =
                self.ports[port];
            if open {
                let now = monotonic_now();
                for (frame, length) in buffer.chunks(MAX_FRAME_SIZE).zip(&lengths) {
                    self.handle_frame(&frame[..*length], member, hosts, now);
                }
            }
            if lengths.len() < FRAMES_PER_BATCH {
                return Ok(any);
            }
        }
    }

    /// Handles a frame that a member sent.
    fn handle_frame(&mut self, frame: &[u8], member: usize, hosts: bool, now: u64) {
        let wide =
            |at: usize| frame.get(at..at + 8).map(|it| u64::from_be_bytes(it.try_into().unwrap_or_default()));
        let number_at =
            |at: usize| frame.get(at..at + 4).map(|it| u32::from_be_bytes(it.try_into().unwrap_or_default()));
        let protocol = frame.get(ETHERNET_HEADER_LENGTH + 6).copied();
        // The kernel of a member that does not lead the home agent may send a packet back unchanged. Skip
        // such a packet.
        let (inner, address) = match (hosts, protocol) {
            (false, Some(PROTOCOL_IPV6)) => (
                ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH,
                ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 24,
            ),
            (true, Some(PROTOCOL_UDP)) => (ETHERNET_HEADER_LENGTH, ETHERNET_HEADER_LENGTH + 8),
            (false, _) => return self.handle_acknowledgement(frame, member, now),
            _ => return,
        };
        let (Some(prefix), Some(number)) =
            (wide(address), number_at(inner + IPV6_HEADER_LENGTH + UDP_HEADER_LENGTH))
        else {
            return;
        };
        let at = prefix as u32 as usize;
        if prefix >> 32 != MOBILE_NETWORKS_HIGH_BITS || at >= self.routers.len() {
            return;
        }
        let router = &mut self.routers[at];
        if !hosts {
            router.last_care_of_address_index = u16::from(frame[ETHERNET_HEADER_LENGTH + 39]) - 1;
        }
        let flow = &mut router.flows[usize::from(hosts)];
        let seen = &mut flow.recent_packets[number as usize % REMEMBERED_PACKETS_PER_FLOW];
        if seen.0 == number && seen.1 != member && flow.last_packet_at > 0 {
            self.packet_counts.doubled_packets += 1;
            self.packet_counts.last_doubled_packet_at = now;
            return;
        }
        *seen = (number, member);
        if flow.last_packet_at > 0 {
            flow.longest_silence = flow.longest_silence.max(now.saturating_sub(flow.last_packet_at));
        }
        (flow.last_packet_at, flow.last_member) = (now, member);
    }

    /// Handles a frame that may be an acknowledgement.
    fn handle_acknowledgement(&mut self, frame: &[u8], member: usize, now: u64) {
        // The source address of an acknowledgement identifies the home agent (seat).
        let Some(source) = frame
            .get(ETHERNET_HEADER_LENGTH + 8..ETHERNET_HEADER_LENGTH + 24)
            .and_then(|it| <[u8; 16]>::try_from(it).ok())
        else {
            return;
        };
        let Some(seat) = self.home_agents.iter().position(|agent| agent.octets() == source) else { return };
        let found = match parse_binding_acknowledgement(frame, self.home_agents[seat], &self.signer) {
            Ok(None) => return,
            Ok(Some(found)) => found,
            Err(error) => return self.record_wrong_acknowledgement(format!("{error:#}")),
        };
        let number = (u128::from(found.home_address) & 0xffff_ffff) as u32;
        let moves = self.changes_care_of_address;
        let Some(router) = self.routers.get_mut(number as usize).filter(|router| router.seat_index == seat)
        else {
            return self
                .record_wrong_acknowledgement(format!("an acknowledgement is for {}", found.home_address));
        };
        let age = router.sent_sequence_number.wrapping_sub(found.sequence);
        if found.status == SEQUENCE_OUT_OF_WINDOW && age < 16 {
            // Ignore the acknowledgement: it belongs to an earlier Binding Update than the last one.
            return;
        }
        let right = found.status == 0
            && age < 16
            && found.care_of_address == care_of_address(number, found.sequence, moves);
        if !right {
            let sent = router.sent_sequence_number;
            return self.record_wrong_acknowledgement(format!(
                "router {number} with the last sequence number {sent} got an \
                 unexpected acknowledgement: {found:?}"
            ));
        }
        let asked = router.update_times[usize::from(found.sequence & 15)];
        if router.acknowledged_sequence_number.is_none_or(|known| is_equal_or_newer(found.sequence, known)) {
            router.acknowledged_sequence_number = Some(found.sequence);
        }
        if found.sequence == router.sent_sequence_number {
            router.unacknowledged_update = None;
        }
        self.packet_counts.acknowledged += 1;
        let voice = &mut self.seat_states[seat];
        if voice.current_member == Some(member) {
            return;
        }
        if voice.current_member.is_some() && asked < voice.leader_since {
            self.packet_counts.late_acknowledgements += 1;
            return;
        }
        if voice.previous_member == Some(member) && now - voice.leader_since < MIN_TIME_UNTIL_SEAT_RETURNS {
            self.packet_counts.acknowledgements_of_two_members += 1;
            let ago = (now - voice.leader_since) / MILLISECOND;
            self.first_error.get_or_insert(format!(
                "seat {seat}: member {member} acknowledged to router {number} what was asked {} ms before; \
                 {:?} had begun to {ago} ms before",
                (now - asked) / MILLISECOND,
                voice.current_member
            ));
        }
        if voice.current_member.is_some() {
            self.packet_counts.leader_changes += 1;
        }
        *voice = SeatState {
            current_member: Some(member),
            previous_member: voice.current_member,
            leader_since: now,
        };
    }

    /// Notes that the benchmark is about to end home agents. Then any member, even the last leader, may
    /// become the leader at once.
    pub fn expect_leader_change(&mut self) {
        self.seat_states.iter_mut().for_each(|voice| voice.previous_member = None);
    }

    fn record_wrong_acknowledgement(&mut self, why: String) {
        self.packet_counts.wrong_acknowledgements += 1;
        self.first_error.get_or_insert(why);
    }

    /// Returns whether every flow had a packet within this time, and no two members forwarded the same packet
    /// in this time.
    pub fn all_flows_have_packets(&self, within: u64) -> bool {
        let now = monotonic_now();
        let recent = self
            .routers
            .iter()
            .flat_map(|router| &router.flows)
            .all(|flow| now - flow.last_packet_at < within);
        recent && now.saturating_sub(self.packet_counts.last_doubled_packet_at) > within
    }

    /// Returns how many flows had a packet within this time.
    pub fn flows_with_packets(&self, within: u64) -> usize {
        let now = monotonic_now();
        self.routers
            .iter()
            .flat_map(|router| &router.flows)
            .filter(|flow| now - flow.last_packet_at < within)
            .count()
    }

    /// Returns the acknowledged bindings of a home agent (seat) that a member lacks. The function compares
    /// the list of the member's home agent, and the care-of addresses to which this home agent sends packets.
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
        for (at, router) in self.routers.iter().enumerate().filter(|(_, router)| router.seat_index == seat) {
            let number = at as u32;
            let Some(acknowledged) = router.acknowledged_sequence_number else { continue };
            let known = shown.get(&router_identity(number).home_address);
            let right = known.is_some_and(|(address, sequence)| {
                is_equal_or_newer(*sequence, acknowledged)
                    && is_equal_or_newer(router.sent_sequence_number, *sequence)
                    && *address == care_of_address(number, *sequence, self.changes_care_of_address)
                    && (!self.changes_care_of_address || router.last_care_of_address_index == *sequence & 1)
                    && router.flows.iter().all(|flow| flow.last_member == member)
            });
            if !right {
                missing.push(format!(
                    "router {number}: acknowledged {acknowledged}, sent {}, the home agent has {known:?}; \
                     packets go to {}, by members {:?}",
                    router.sent_sequence_number,
                    router.last_care_of_address_index,
                    router.flows.map(|flow| flow.last_member)
                ));
            }
        }
        missing
    }

    /// Waits until all routers have an acknowledgement.
    pub fn run_until_all_acknowledged(&mut self, seconds: u64) -> anyhow::Result<bool> {
        self.run_until(monotonic_now() + seconds * SECOND, |all| all.waiting_routers() == 0)
    }
}
