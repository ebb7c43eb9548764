//! Measures a home agent under a flood from unauthenticated sources. The figures say whether its mobile
//! routers still register, and how many packets of a stream are lost meanwhile.
//!
//! The routers are a `fleet`. They renew one after the other during a flood of one kind. The flood runs on
//! another core than the home agent if the machine has one. At the same time a steady stream passes the home
//! agent to one of the routers. The benchmark first measures without a flood. A router without an answer
//! sends again after a second (RFC 6275 12, INITIAL_BINDACK_TIMEOUT), so a lost Binding Update shows as a
//! longer wait.
//!
//! All packets enter the home agent by the interface to the routers. Each frame of a flood has a source
//! address of another network. Left out: frames that end inside a header, of which `make fuzz` has millions;
//! attacks from the home network.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use nix::sys::signal::Signal;

use super::MeasurementPlan;
use super::cores::{Cores, process_seconds};
use super::figures::{AttackFigure, Series};
use super::fleet::{SimulatedRouters, router_identity};
use super::flood::send_packet_flood;
use super::handover::send_stream;
use super::packet::{ETHERNET_HEADER_LENGTH, Frame, IPV6_HEADER_LENGTH};
use super::path::DataPath;
use super::registrations::{build_network, home_agent_config};
use super::sender::{FRAMES_PER_BATCH, PacketSource};
use super::sink::PacketSink;
use super::updates::{
    AUTHENTICATION_KEY, MessageAuthenticator, RouterIdentity, binding_update_frame, pseudo_header_checksum,
};
use super::world::{
    CORRESPONDENT_ADDRESS, HOME_AGENT_ADDRESS, NodeInterface, Programs, TestNetwork, link_addresses,
};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::console;

/// Number of different frames of each kind of flood. The sender repeats them in turn.
const ATTACK_FRAME_COUNT: u32 = 4096;
/// Rate of the stream of packets through the home agent during a flood, as a share of the highest rate
/// without loss.
const ATTACK_RATE_SHARE: f64 = 0.3;
/// Size in octets of the packets in the stream that passes the home agent during a flood.
const STREAM_FRAME_SIZE: usize = 500;
/// Lifetime that routers request, in seconds.
const BINDING_LIFETIME_SECONDS: u16 = 600;
/// Time within which the home agent has to answer a router, in nanoseconds.
const ACKNOWLEDGEMENT_TIME_LIMIT: u64 = SECOND;
/// Time that the sender sleeps between batches, in nanoseconds.
const SEND_INTERVAL_NS: u64 = 200_000;
/// Maximum number of frames that the sender makes up for after a delay. It skips all further frames.
const MAX_FRAMES_BEHIND_SCHEDULE: u64 = 4096;
const ROUTER_UPLINK: NodeInterface = NodeInterface { node: "mr", interface: "e0" };
const CORRESPONDENT_INTERFACE: NodeInterface = NodeInterface { node: "cn", interface: "c0" };

const PROTOCOL_ICMPV6: u8 = 58;
const PROTOCOL_FRAGMENT: u8 = 44;
/// ICMPv6 type of a Home Agent Address Discovery Request (RFC 6275 6.5).
const HOME_AGENT_DISCOVERY_REQUEST: u8 = 144;
/// The home agents' anycast address of the home prefix (RFC 2526).
const HOME_AGENTS_ANYCAST_ADDRESS: &str = "2001:db8:1:0:fdff:ffff:ffff:fffe";

/// Kind of the flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttackKind {
    /// Binding Updates of the routers with a MAC that is wrong.
    Forged,
    /// Binding Updates of routers that the home agent does not know.
    Unknown,
    /// Binding Updates that the routers have sent earlier.
    Recorded,
    /// Home Agent Address Discovery Requests (DHAAD).
    Discovery,
    /// First fragments of Binding Updates; the attacker never sends the other fragments.
    Fragments,
}

const ATTACK_KINDS: [AttackKind; 5] = [
    AttackKind::Forged,
    AttackKind::Unknown,
    AttackKind::Recorded,
    AttackKind::Discovery,
    AttackKind::Fragments,
];

impl AttackKind {
    fn flood_description(self) -> &'static str {
        match self {
            AttackKind::Forged => "forged Binding Updates",
            AttackKind::Unknown => "Binding Updates of unknown routers",
            AttackKind::Recorded => "recorded Binding Updates",
            AttackKind::Discovery => "discovery requests",
            AttackKind::Fragments => "first fragments",
        }
    }

    fn build_frames(self, simulated_routers: &SimulatedRouters) -> anyhow::Result<Vec<Frame>> {
        let agent: Ipv6Addr = HOME_AGENT_ADDRESS.parse()?;
        let (right, wrong) =
            (MessageAuthenticator::new(&AUTHENTICATION_KEY)?, MessageAuthenticator::new(&[0x77; 16])?);
        let signed = |number: u32, who: RouterIdentity, signer: &MessageAuthenticator| {
            let sequence = (number as u16).wrapping_mul(257);
            binding_update_frame(
                link_addresses(ROUTER_UPLINK),
                agent,
                who,
                sequence,
                BINDING_LIFETIME_SECONDS / 4,
                signer,
            )
        };
        let frame = |number: u32| -> anyhow::Result<Vec<u8>> {
            let from = unregistered_address(number);
            Ok(match self {
                AttackKind::Forged => {
                    let who = RouterIdentity {
                        care_of_address: from,
                        ..router_identity(number % simulated_routers.len())
                    };
                    signed(number, who, &wrong)
                }
                AttackKind::Unknown => {
                    let home_address = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 2, 0, number as u16);
                    let (care_of_address, ipv4_prefix) = (from, None);
                    let who = RouterIdentity {
                        home_address,
                        care_of_address,
                        mobile_network_prefix: 7,
                        ipv4_prefix,
                    };
                    signed(number, who, &right).to_vec()
                }
                AttackKind::Recorded => {
                    simulated_routers.last_update_packet(number % simulated_routers.len())
                }
                AttackKind::Discovery => {
                    build_discovery_request(from, HOME_AGENTS_ANYCAST_ADDRESS.parse()?, number as u16)
                }
                AttackKind::Fragments => {
                    let who = RouterIdentity {
                        care_of_address: from,
                        ..router_identity(number % simulated_routers.len())
                    };
                    build_first_fragment(&signed(number, who, &wrong), number)
                }
            })
        };
        (0..ATTACK_FRAME_COUNT).map(|number| Ok(Frame::of_octets(frame(number)?))).collect()
    }
}

/// Returns the source address of a frame of the flood: each number gives an address in another network of
/// `2001:dbc::/32`.
pub(super) fn unregistered_address(number: u32) -> Ipv6Addr {
    Ipv6Addr::from((0x2001_0dbc_u128 << 32 | u128::from(number)) << 64 | 1)
}

/// Returns the Ethernet and IPv6 headers of a packet that the mobile routers' network sends.
fn ipv6_header_octets(from: Ipv6Addr, to: Ipv6Addr, next_header: u8, length: usize) -> Vec<u8> {
    let (own, peer) = link_addresses(ROUTER_UPLINK);
    let ip = [0x60, 0, 0, 0, (length >> 8) as u8, length as u8, next_header, 64];
    [&peer[..], &own, &[0x86, 0xdd], &ip, &from.octets(), &to.octets()].concat()
}

fn build_discovery_request(from: Ipv6Addr, to: Ipv6Addr, number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    // Flag R: the request is for home agents of mobile routers (RFC 3963 7.1).
    let mut message = [HOME_AGENT_DISCOVERY_REQUEST, 0, 0, 0, high, low, 0x80, 0];
    let sum = pseudo_header_checksum(from, to, PROTOCOL_ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    [&ipv6_header_octets(from, to, PROTOCOL_ICMPV6, message.len())[..], &message].concat()
}

/// Returns the first fragment of a packet. The attacker never sends the others.
fn build_first_fragment(whole: &[u8], number: u32) -> Vec<u8> {
    let payload = &whole[ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH..whole.len() - 8];
    // The Fragment header has offset 0 and the flag M: more fragments follow.
    let mut header = [whole[ETHERNET_HEADER_LENGTH + 6], 0, 0, 1, 0, 0, 0, 0];
    header[4..].copy_from_slice(&number.to_be_bytes());
    let mut frame = whole[..ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH].to_vec();
    frame[ETHERNET_HEADER_LENGTH + 4..ETHERNET_HEADER_LENGTH + 6]
        .copy_from_slice(&((header.len() + payload.len()) as u16).to_be_bytes());
    frame[ETHERNET_HEADER_LENGTH + 6] = PROTOCOL_FRAGMENT;
    [&frame[..], &header, payload].concat()
}

/// Sends frames at `rate` a second until `stop` is set. Returns the number of sent frames and the elapsed
/// nanoseconds.
pub(super) fn send_until_stopped(
    sender: &mut PacketSource,
    frames: &[Frame],
    rate: f64,
    stop: &AtomicBool,
) -> anyhow::Result<(u64, u64)> {
    let start = monotonic_now();
    let (mut sent, mut skipped, mut at) = (0_u64, 0_u64, 0_usize);
    while !frames.is_empty() && !stop.load(Ordering::Relaxed) {
        let now = monotonic_now();
        let due = ((now - start) as f64 * rate / 1e9) as u64;
        let mut debt = due.saturating_sub(sent + skipped);
        skipped += debt.saturating_sub(MAX_FRAMES_BEHIND_SCHEDULE);
        debt = debt.min(MAX_FRAMES_BEHIND_SCHEDULE);
        while debt > 0 && !stop.load(Ordering::Relaxed) {
            let count = (debt as usize).min(FRAMES_PER_BATCH).min(frames.len() - at);
            let taken = sender.send_frames(&frames[at..], count)?;
            sent += taken as u64;
            debt -= taken.max(1) as u64;
            at = (at + taken) % frames.len();
        }
        clock::sleep_until(now + SEND_INTERVAL_NS);
    }
    Ok((sent, monotonic_now() - start))
}

/// The network, the simulated routers and the stream of a measurement.
struct AttackedNetwork<'a> {
    path: DataPath,
    test_network: &'a TestNetwork,
    carnet_process: u32,
    simulated_routers: SimulatedRouters,
    legitimate_stream: PacketSource,
    legitimate_frame: Frame,
    /// Packets per second of the stream.
    legitimate_rate: f64,
    duration_ns: u64,
    /// Frames per second of the flood.
    attack_rate: f64,
}

impl AttackedNetwork<'_> {
    /// Lets all routers renew their registrations while the stream and the flood of `frames` pass. An empty
    /// list means no flood.
    fn measure_during_flood(&mut self, words: &str, frames: &[Frame]) -> anyhow::Result<AttackFigure> {
        let stop = AtomicBool::new(false);
        self.simulated_routers.prepare_next_updates();
        let sink = PacketSink::attach_reading_numbers(self.test_network, ROUTER_UPLINK)?;
        let each_second = f64::from(self.simulated_routers.len()) * 1e9 / self.duration_ns as f64;
        let (agent_before, start) = (process_seconds(self.carnet_process)?, monotonic_now());
        let attack_rate = self.attack_rate;
        let (simulated_routers, process, network) =
            (&mut self.simulated_routers, self.carnet_process, self.test_network);
        let (round, attack, agent_s, steady) = std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                send_until_stopped(
                    &mut PacketSource::for_single_frames(network, ROUTER_UPLINK)?,
                    frames,
                    attack_rate,
                    &stop,
                )
            });
            let routers = scope.spawn(|| {
                let round = simulated_routers.register_all(usize::MAX, Some(each_second));
                let used = process_seconds(process);
                stop.store(true, Ordering::Relaxed);
                anyhow::Ok((round?, used?))
            });
            let steady = send_stream(
                &mut self.legitimate_stream,
                &sink,
                &self.legitimate_frame,
                self.legitimate_rate,
                &stop,
            );
            let ended = |_| anyhow!("bug: the attacker's sending thread panicked");
            let (round, used) = routers.join().map_err(ended)??;
            anyhow::Ok((round, flood.join().map_err(ended)??, used - agent_before, steady?))
        })?;
        let elapsed = (monotonic_now() - start) as f64 / 1e9;
        console::print_step(&format!(
            "{}: {words}: {} of {} routers in time, {} of {} packets lost",
            self.path.name(),
            round.acknowledged_routers - round.late_routers,
            self.simulated_routers.len(),
            steady.lost_packets,
            steady.sent_packets
        ));
        if let Some(complaint) = self.simulated_routers.first_error() {
            console::print_step(complaint);
        }
        Ok(AttackFigure {
            path: self.path,
            kind: words.into(),
            attack_frames_per_second: attack.0 as f64 * 1e9 / attack.1.max(1) as f64,
            routers: self.simulated_routers.len(),
            acknowledged: round.acknowledged_routers,
            late_routers: round.late_routers,
            lost: round.lost_routers,
            wrong: round.wrong_acknowledgements,
            repeated_updates: round.repeated_updates,
            longest_ms: round.longest_acknowledgement_time as f64 / 1e6,
            rate: steady.packets_per_second,
            packets: steady.sent_packets,
            packets_lost: steady.lost_packets,
            agent_core_share: agent_s / elapsed,
        })
    }
}

/// Measures all kinds of floods on one path.
fn measure_floods_over_path(
    path: DataPath,
    plan: &MeasurementPlan,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Vec<AttackFigure>> {
    let name = format!("attack-{}", path.name());
    let config = home_agent_config(&format!("{name}.ha"), path, plan.attacked_router_count, false, None);
    cores.pin_to_measuring_core()?;
    let (mut network, _) = build_network(&name, path, &config, programs)?;
    let process =
        network.daemons.last().context("bug: the process that was just started is missing")?.process_id();
    // Ignore the error: on a machine with one core, sender and home agent share this core.
    let _ = cores.avoid_measuring_core();
    let mut simulated_routers = SimulatedRouters::new(
        &network,
        ROUTER_UPLINK,
        plan.attacked_router_count,
        false,
        BINDING_LIFETIME_SECONDS,
    )?;
    simulated_routers.retransmission_timeout = ACKNOWLEDGEMENT_TIME_LIMIT;
    simulated_routers.prepare_next_updates();
    simulated_routers.register_all(usize::MAX, None)?;
    let host = Ipv6Addr::from(u128::from(router_identity(0).mobile_network_prefix) << 64 | 2);
    let frame = Frame::new(
        link_addresses(CORRESPONDENT_INTERFACE),
        None,
        (CORRESPONDENT_ADDRESS.parse()?, host),
        STREAM_FRAME_SIZE,
    );
    let mut stream = PacketSource::for_bursts(&network, CORRESPONDENT_INTERFACE, &frame)?;
    let sink = PacketSink::attach_counting(&network, ROUTER_UPLINK)?;
    let mut frames = vec![frame.clone()];
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(
            send_packet_flood(&mut stream, &sink, &mut frames, 100 * MILLISECOND, |_, _| {})?
                .packets_per_second(),
        );
    }
    drop(sink);
    let rate = Series::of_rounds(rates).median * ATTACK_RATE_SHARE;
    let (duration, attack_rate) = (plan.attack_duration, plan.attack_frames_per_second);
    let mut scene = AttackedNetwork {
        path,
        test_network: &network,
        carnet_process: process,
        simulated_routers,
        legitimate_stream: stream,
        legitimate_frame: frame,
        legitimate_rate: rate,
        duration_ns: duration,
        attack_rate,
    };
    let mut figures = vec![scene.measure_during_flood("nothing", &[])?];
    for kind in ATTACK_KINDS {
        let frames = kind.build_frames(&scene.simulated_routers)?;
        figures.push(scene.measure_during_flood(kind.flood_description(), &frames)?);
    }
    drop(scene);
    if let Some(mut daemon) = network.daemons.pop() {
        daemon.check_running()?;
        daemon.send_signal(Signal::SIGTERM);
        daemon.wait_at_most(60 * SECOND);
    }
    Ok(figures)
}

/// Measures the given data paths, except those without carnet.
pub fn measure_attacks(
    paths: &[DataPath],
    plan: &MeasurementPlan,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Vec<AttackFigure>> {
    let mut figures = Vec::new();
    for path in paths.iter().copied().filter(|path| matches!(path, DataPath::Tun | DataPath::Bpf)) {
        let of_path = measure_floods_over_path(path, plan, programs, cores);
        figures.extend(of_path.with_context(|| format!("a home agent under attack, path {}", path.name()))?);
    }
    cores.pin_to_measuring_core()?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_frames_match_their_kind() {
        let agents: Ipv6Addr = HOME_AGENTS_ANYCAST_ADDRESS.parse().expect("an address");
        let request = build_discovery_request(unregistered_address(5), agents, 5);
        assert_eq!(request.len(), ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 8);
        assert_eq!(
            pseudo_header_checksum(
                unregistered_address(5),
                agents,
                PROTOCOL_ICMPV6,
                &request[ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH..]
            ),
            0
        );
        let signer = MessageAuthenticator::new(&AUTHENTICATION_KEY).expect("a key");
        let agent: Ipv6Addr = HOME_AGENT_ADDRESS.parse().expect("an address");
        let whole =
            binding_update_frame(link_addresses(ROUTER_UPLINK), agent, router_identity(1), 3, 15, &signer);
        let fragment = build_first_fragment(&whole, 9);
        // RFC 8200 4.5: the length of each fragment but the last is a multiple of eight octets.
        assert_eq!((fragment.len() - ETHERNET_HEADER_LENGTH - IPV6_HEADER_LENGTH - 8) % 8, 0);
        assert_eq!(fragment.len(), whole.len());
        assert_eq!(
            &fragment[ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH
                ..ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 8],
            &[60, 0, 0, 1, 0, 0, 0, 9]
        );
        assert_eq!(unregistered_address(0x0102_0304).to_string(), "2001:dbc:102:304::1");
    }
}
