//! Simulates very many mobile routers by one sender of real packets. The sender sends Binding Updates through
//! a packet socket, and checks every acknowledgement (addresses, MAC, checksum, status, sequence number).
//!
//! Each router has its own home address, care-of address and prefix. All care-of addresses are behind one
//! neighbour of the home agent. A router without an answer after [`RETRANSMISSION_TIMEOUT`] sends a new
//! Binding Update with the next sequence number (RFC 6275 11.8).

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use anyhow::{Context, anyhow, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg, sendmmsg, setsockopt};
use socket2::{SockFilter, Socket};
use std::io::{IoSlice, IoSliceMut};

use super::sender::QdiscBypass;
use super::updates::{
    AUTHENTICATION_KEY, IPV4_PREFIX_LENGTH, MessageAuthenticator, RouterIdentity, binding_update_frame,
    parse_binding_acknowledgement,
};
use super::world::{HOME_AGENT_ADDRESS, NodeInterface, TestNetwork, link_addresses, run_in_node};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::frame_socket::packet_socket;
use carnet_testbed::isolate::{Interrupted, has_to_stop};

/// Maximum number of frames per system call.
const FRAMES_PER_BATCH: usize = 64;
/// Size of the socket's buffer in octets, for each direction.
const SOCKET_BUFFER_SIZE: usize = 64 << 20;
/// Default time in nanoseconds after which a router retransmits a Binding Update without acknowledgement.
const RETRANSMISSION_TIMEOUT: u64 = 3 * SECOND;
/// Number of attempts after which a router counts as lost.
const MAX_ATTEMPTS: u8 = 10;
/// Maximum length in octets of a received frame.
const MAX_FRAME_SIZE: usize = 2048;

/// Status 135 of a Binding Acknowledgement (RFC 6275 6.1.8).
const SEQUENCE_OUT_OF_WINDOW: u8 = 135;

/// The first half of all mobile network prefixes, `2001:dba::/32`.
pub(super) const MOBILE_NETWORKS_HIGH_BITS: u64 = 0x2001_0dba;
/// The first half of all care-of addresses, `2001:dbb::/32`.
pub(super) const CARE_OF_NETWORKS_HIGH_BITS: u64 = 0x2001_0dbb;

/// Returns addresses and key of the router with this number.
pub fn router_identity(number: u32) -> RouterIdentity {
    let network = |first: u64| first << 32 | u64::from(number);
    RouterIdentity {
        home_address: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 1, (number >> 16) as u16, number as u16),
        care_of_address: Ipv6Addr::from(u128::from(network(CARE_OF_NETWORKS_HIGH_BITS)) << 64 | 1),
        mobile_network_prefix: network(MOBILE_NETWORKS_HIGH_BITS),
        ipv4_prefix: None,
    }
}

/// Returns the IPv4 prefix of the router with this number. It is one of the 262,144 prefixes of 26 bits in
/// 10.0.0.0/8.
fn ipv4_prefix(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(10 << 24 | (number << (32 - u32::from(IPV4_PREFIX_LENGTH)) & 0x00ff_ffff))
}

/// Returns the config table `[[home_agent.mobile_router]]` for the router with this number.
pub fn prefix_table_config(number: u32) -> String {
    let RouterIdentity { home_address, mobile_network_prefix: prefix, .. } = router_identity(number);
    let prefix = Ipv6Addr::from(u128::from(prefix) << 64);
    let key: String = AUTHENTICATION_KEY.iter().map(|octet| format!("{octet:02x}")).collect();
    format!(
        "[[home_agent.mobile_router]]\nhome_address = \"{home_address}\"\nprefixes = [\"{prefix}/64\"]\n\
         auth = {{ spi = {}, key = \"{key}\" }}\n",
        super::updates::SPI
    )
}

/// Returns the config table of the router with this number, which also has an IPv4 prefix.
pub fn prefix_table_config_with_ipv4(number: u32) -> String {
    prefix_table_config(number)
        + &format!("ipv4_prefixes = [\"{}/{IPV4_PREFIX_LENGTH}\"]\n", ipv4_prefix(number))
}

#[derive(Debug, Clone)]
struct SimulatedRouter {
    binding_update_frame: Vec<u8>,
    /// Sequence number of the router's last Binding Update.
    sent_sequence_number: u16,
    /// Sequence number of the last acknowledgement to this router; `None` before the first one.
    acknowledged_sequence_number: Option<u16>,
    awaits_acknowledgement: bool,
    attempt_count: u8,
    /// Time in nanoseconds of the router's first attempt in this round.
    first_sent_at: u64,
}

/// Result of a round in which routers registered.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegistrationRound {
    /// Number of routers that received an acknowledgement.
    pub acknowledged_routers: u64,
    /// Routers without an acknowledgement after all attempts.
    pub lost_routers: u64,
    /// Number of answers that failed a check.
    pub wrong_acknowledgements: u64,
    /// Number of Binding Updates that a router had to retransmit.
    pub repeated_updates: u64,
    /// Time in nanoseconds from the first Binding Update to the last acknowledgement.
    pub elapsed_ns: u64,
    /// Maximum time that a router waited, in nanoseconds.
    pub longest_acknowledgement_time: u64,
    /// Routers that waited longer than [`SimulatedRouters::retransmission_timeout`].
    pub late_routers: u64,
}

/// Opens the packet socket of simulated routers, for IPv6 frames at an interface of a test network. The
/// socket receives only frames that `filter` accepts; an empty filter accepts all.
pub fn open_router_socket(
    network: &TestNetwork,
    place: NodeInterface,
    filter: &[SockFilter],
) -> anyhow::Result<Socket> {
    let node = network.node_name(place.node);
    run_in_node(&node, || {
        let socket = packet_socket(place.interface, Some(libc::ETH_P_IPV6 as u16))?;
        if !filter.is_empty() {
            socket.attach_filter(filter)?;
        }
        setsockopt(&socket, SndBufForce, &SOCKET_BUFFER_SIZE)?;
        setsockopt(&socket, RcvBufForce, &SOCKET_BUFFER_SIZE)?;
        setsockopt(&socket, QdiscBypass, &true)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    })
    .with_context(|| format!("cannot open a packet socket at {} of {node}", place.interface))
}

/// All simulated routers, and the socket that they share.
#[derive(Debug)]
pub struct SimulatedRouters {
    socket: Socket,
    home_agent: Ipv6Addr,
    link_addresses: ([u8; 6], [u8; 6]),
    signer: MessageAuthenticator,
    lifetime_seconds: u16,
    /// Whether each router registers an IPv4 prefix, too.
    has_ipv4: bool,
    /// Time in nanoseconds after which a router retransmits a Binding Update without acknowledgement.
    pub retransmission_timeout: u64,
    routers: Vec<SimulatedRouter>,
    /// Attempts that wait for an answer, oldest first: start time, router, sequence number. An answered
    /// attempt stays in the queue until [`Self::retransmission_timeout`] has passed.
    pending_updates: VecDeque<(u64, u32, u16)>,
    /// Number of routers that wait for an answer.
    unacknowledged_count: usize,
    /// Error in the first wrong acknowledgement; `None` if all were correct.
    first_error: Option<String>,
}

impl SimulatedRouters {
    /// Creates `number` routers that send through the interface `place` of a test network. Each requests a
    /// lifetime of `lifetime` seconds. With `has_ipv4` each also registers an IPv4 prefix.
    pub fn new(
        network: &TestNetwork,
        place: NodeInterface,
        number: u32,
        has_ipv4: bool,
        lifetime: u16,
    ) -> anyhow::Result<SimulatedRouters> {
        let socket = open_router_socket(network, place, &[])?;
        let mut simulated_routers = SimulatedRouters {
            socket,
            home_agent: HOME_AGENT_ADDRESS.parse()?,
            link_addresses: link_addresses(place),
            signer: MessageAuthenticator::new(&AUTHENTICATION_KEY)?,
            lifetime_seconds: lifetime / 4,
            has_ipv4,
            retransmission_timeout: RETRANSMISSION_TIMEOUT,
            routers: Vec::with_capacity(number as usize),
            pending_updates: VecDeque::new(),
            unacknowledged_count: 0,
            first_error: None,
        };
        for number in 0..number {
            let frame = simulated_routers.build_update_frame(number, 0);
            simulated_routers.routers.push(SimulatedRouter {
                binding_update_frame: frame,
                sent_sequence_number: 0,
                acknowledged_sequence_number: None,
                awaits_acknowledgement: false,
                attempt_count: 0,
                first_sent_at: 0,
            });
        }
        Ok(simulated_routers)
    }

    fn build_update_frame(&self, number: u32, sequence: u16) -> Vec<u8> {
        let who = RouterIdentity {
            ipv4_prefix: self.has_ipv4.then(|| ipv4_prefix(number)),
            ..router_identity(number)
        };
        binding_update_frame(
            self.link_addresses,
            self.home_agent,
            who,
            sequence,
            self.lifetime_seconds,
            &self.signer,
        )
    }

    /// Returns the number of routers.
    pub fn len(&self) -> u32 {
        self.routers.len() as u32
    }

    /// Returns each router with the sequence number of its last acknowledgement; `None` for a router without
    /// an acknowledgement.
    pub fn acknowledged_sequence_numbers(&self) -> impl Iterator<Item = (RouterIdentity, Option<u16>)> {
        self.routers
            .iter()
            .enumerate()
            .map(|(at, router)| (router_identity(at as u32), router.acknowledged_sequence_number))
    }

    /// Returns what was wrong in the first wrong acknowledgement; `None` if all were correct.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Returns the octets of a router's last Binding Update.
    pub fn last_update_packet(&self, number: u32) -> Vec<u8> {
        self.routers[number as usize].binding_update_frame.clone()
    }

    /// Encodes the next Binding Update of each router in advance, so that the measurement excludes the
    /// encoding.
    pub fn prepare_next_updates(&mut self) {
        for number in 0..self.len() {
            self.prepare_next_update(number);
        }
    }

    fn prepare_next_update(&mut self, number: u32) {
        let sequence = self.routers[number as usize].sent_sequence_number.wrapping_add(1);
        let frame = self.build_update_frame(number, sequence);
        let router = &mut self.routers[number as usize];
        (router.sent_sequence_number, router.binding_update_frame) = (sequence, frame);
    }

    /// Lets each router register once, with the Binding Update from [`Self::prepare_next_updates`]. At most
    /// `window` routers wait for an answer at a time. If `rate` is given, at most that number of routers
    /// begin per second.
    pub fn register_all(&mut self, window: usize, rate: Option<f64>) -> anyhow::Result<RegistrationRound> {
        let mut round = RegistrationRound::default();
        let start = monotonic_now();
        let total = self.len();
        let mut next = 0_u32;
        let mut batch: Vec<u32> = Vec::with_capacity(FRAMES_PER_BATCH);
        let mut buffer = vec![0; FRAMES_PER_BATCH * MAX_FRAME_SIZE];
        loop {
            let heard = self.receive_acknowledgements(&mut buffer, &mut round)?;
            let now = monotonic_now();
            if heard {
                round.elapsed_ns = now - start;
            }
            let due =
                rate.map_or(total, |rate| ((now - start) as f64 * rate / 1e9).min(f64::from(total)) as u32);
            let room = window.saturating_sub(self.unacknowledged_count).min(FRAMES_PER_BATCH) as u32;
            batch.clear();
            batch.extend(next..due.min(next + room).max(next));
            let fresh = batch.len();
            self.retransmit_overdue_updates(now, &mut batch, &mut round);
            let taken = self.send_updates(now, &batch)?;
            next += taken.min(fresh) as u32;
            for number in batch.iter().skip(taken.max(fresh)) {
                // The interface had no room for a repeated Binding Update. Make its time of sending so old
                // that the router repeats it as soon as possible.
                let router = &self.routers[*number as usize];
                self.pending_updates.push_front((
                    now.saturating_sub(self.retransmission_timeout),
                    *number,
                    router.sent_sequence_number,
                ));
            }
            if next >= total && self.unacknowledged_count == 0 {
                return Ok(round);
            }
            if !heard && taken == 0 {
                if has_to_stop() {
                    return Err(Interrupted.into());
                }
                clock::sleep(MILLISECOND / 5);
            }
        }
    }

    /// Sends again the Binding Updates of routers that have waited longer than
    /// [`Self::retransmission_timeout`].
    fn retransmit_overdue_updates(&mut self, now: u64, batch: &mut Vec<u32>, round: &mut RegistrationRound) {
        while batch.len() < FRAMES_PER_BATCH
            && let Some((since, number, sequence)) = self.pending_updates.front().copied()
        {
            let router = &self.routers[number as usize];
            let waits = router.awaits_acknowledgement && router.sent_sequence_number == sequence;
            if waits && now - since < self.retransmission_timeout {
                return;
            }
            self.pending_updates.pop_front();
            if !waits {
                continue;
            }
            if router.attempt_count >= MAX_ATTEMPTS {
                self.routers[number as usize].awaits_acknowledgement = false;
                self.unacknowledged_count -= 1;
                round.lost_routers += 1;
                continue;
            }
            self.prepare_next_update(number);
            round.repeated_updates += 1;
            batch.push(number);
        }
    }

    /// Sends the Binding Updates of these routers. Returns the number of messages that the interface
    /// accepted.
    fn send_updates(&mut self, now: u64, batch: &[u32]) -> anyhow::Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        let mut headers = MultiHeaders::<()>::preallocate(batch.len(), None);
        let slices: Vec<[IoSlice<'_>; 1]> = batch
            .iter()
            .map(|number| [IoSlice::new(&self.routers[*number as usize].binding_update_frame)])
            .collect();
        let addresses = vec![None; batch.len()];
        let sent = sendmmsg(
            self.socket.as_raw_fd(),
            &mut headers,
            slices.iter(),
            addresses,
            [],
            MsgFlags::MSG_DONTWAIT,
        );
        let sent = match sent {
            Ok(sent) => sent.count(),
            Err(Errno::ENOBUFS | Errno::EAGAIN) => 0,
            Err(error) => bail!("sendmmsg: {error}"),
        };
        for number in &batch[..sent] {
            let router = &mut self.routers[*number as usize];
            if !std::mem::replace(&mut router.awaits_acknowledgement, true) {
                self.unacknowledged_count += 1;
                (router.attempt_count, router.first_sent_at) = (0, now);
            }
            router.attempt_count += 1;
            self.pending_updates.push_back((now, *number, router.sent_sequence_number));
        }
        Ok(sent)
    }

    /// Receives the waiting acknowledgements. Returns whether there were any.
    fn receive_acknowledgements(
        &mut self,
        buffer: &mut [u8],
        round: &mut RegistrationRound,
    ) -> anyhow::Result<bool> {
        let mut any = false;
        loop {
            let lengths = match self.receive_frames(buffer) {
                Ok(lengths) => lengths,
                Err(Errno::EAGAIN) => return Ok(any),
                Err(error) => bail!("recvmmsg: {error}"),
            };
            for (frame, length) in buffer.chunks(MAX_FRAME_SIZE).zip(&lengths) {
                any |= self.handle_acknowledgement(&frame[..*length], round);
            }
            if lengths.len() < FRAMES_PER_BATCH {
                return Ok(any);
            }
        }
    }

    /// Receives the frames that have arrived and returns their lengths.
    fn receive_frames(&self, buffer: &mut [u8]) -> nix::Result<Vec<usize>> {
        let mut headers = MultiHeaders::<()>::preallocate(FRAMES_PER_BATCH, None);
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffer.chunks_mut(MAX_FRAME_SIZE).map(|chunk| [IoSliceMut::new(chunk)]).collect();
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let messages = recvmmsg(fd, &mut headers, slices.iter_mut(), flags, None)?;
        Ok(messages.map(|message| message.bytes).collect())
    }

    /// Checks a received frame; true if it is an acknowledgement for a waiting router.
    fn handle_acknowledgement(&mut self, frame: &[u8], round: &mut RegistrationRound) -> bool {
        let judged = parse_binding_acknowledgement(frame, self.home_agent, &self.signer).and_then(|found| {
            // Skip answers to the Binding Updates of a flood, whose care-of addresses are in another prefix.
            let found = found.filter(|found| {
                found.care_of_address.octets().starts_with(&CARE_OF_NETWORKS_HIGH_BITS.to_be_bytes()[4..])
            });
            let Some(found) = found else { return Ok(None) };
            let number = (u128::from(found.home_address) & 0xffff_ffff) as u32;
            let router = self.routers.get(number as usize);
            let router = router.filter(|_| router_identity(number).home_address == found.home_address);
            let router = router.ok_or_else(|| {
                anyhow!(
                    "a Binding Acknowledgement names the home address {}, which no simulated router has",
                    found.home_address
                )
            })?;
            ensure!(
                found.care_of_address == router_identity(number).care_of_address,
                "the Binding Acknowledgement for {} went to the care-of address {}, which that router lacks",
                found.home_address,
                found.care_of_address
            );
            // An answer to an earlier attempt counts as late, not as wrong.
            let age = router.sent_sequence_number.wrapping_sub(found.sequence);
            ensure!(
                age < u16::from(MAX_ATTEMPTS),
                "the Binding Acknowledgement has sequence number {}, expected {}",
                found.sequence,
                router.sent_sequence_number
            );
            // The home agent rejects an attempt that arrives after a later attempt, and a replayed Binding
            // Update, with status 135.
            let overtaken =
                age > 0 || (!router.awaits_acknowledgement && found.status == SEQUENCE_OUT_OF_WINDOW);
            ensure!(
                found.status == 0 || overtaken,
                "the Binding Acknowledgement has status {}, expected 0 (accepted)",
                found.status
            );
            ensure!(
                found.status != 0 || found.lifetime == self.lifetime_seconds,
                "the Binding Acknowledgement grants lifetime {}, expected the requested one",
                found.lifetime
            );
            let ipv4_status = self.has_ipv4.then_some(0);
            ensure!(
                found.status != 0 || found.ipv4_status == ipv4_status,
                "the Binding Acknowledgement has the IPv4 status {:?}, expected {ipv4_status:?}",
                found.ipv4_status
            );
            Ok((found.status == 0).then_some((number, found.sequence, age)))
        });
        match judged {
            Ok(Some((number, sequence, age))) => {
                let router = &mut self.routers[number as usize];
                router.acknowledged_sequence_number = Some(sequence);
                let done = router.awaits_acknowledgement && age == 0;
                if done {
                    router.awaits_acknowledgement = false;
                    self.unacknowledged_count -= 1;
                    round.acknowledged_routers += 1;
                    let waited = monotonic_now() - router.first_sent_at;
                    round.longest_acknowledgement_time = round.longest_acknowledgement_time.max(waited);
                    round.late_routers += u64::from(waited > self.retransmission_timeout);
                }
                done
            }
            Ok(None) => false,
            Err(error) => {
                round.wrong_acknowledgements += 1;
                self.first_error.get_or_insert_with(|| format!("{error:#}"));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_router_has_addresses_of_its_own() {
        let who = router_identity(0x0001_86a0);
        assert_eq!(who.home_address.to_string(), "2001:db8:1::1:1:86a0");
        assert_eq!(who.care_of_address.to_string(), "2001:dbb:1:86a0::1");
        assert!(
            prefix_table_config(0x0001_86a0).contains("prefixes = [\"2001:dba:1:86a0::/64\"]"),
            "{}",
            prefix_table_config(0x0001_86a0)
        );
    }
}
