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

use super::Effort;
use super::cores::{Cores, process_seconds};
use super::figures::{AttackFigure, Series};
use super::fleet::{Fleet, identity};
use super::flood::flood;
use super::handover::stream;
use super::packet::{Frame, IPV6, LINK};
use super::path::Path;
use super::registrations::{config, world};
use super::sender::{BATCH, Sender};
use super::sink::Sink;
use super::updates::{Identity, KEY, Signer, checksum, update};
use super::world::{CN, HOME_AGENT, Programs, World, WorldInterface, link_addresses};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic};
use carnet_testbed::console;

/// Number of different frames of each kind of flood. The sender repeats them in turn.
const FRAMES: u32 = 4096;
/// Rate of the stream, as a share of the highest rate without loss.
const SHARE: f64 = 0.3;
/// Size in octets of the stream's packets.
const SIZE: usize = 500;
/// Lifetime that routers request, in seconds.
const LIFETIME: u16 = 600;
/// Time within which the home agent has to answer a router, in nanoseconds.
const IN_TIME: u64 = SECOND;
/// Time that the sender sleeps between batches, in nanoseconds.
const TICK: u64 = 200_000;
/// Maximum number of frames that the sender makes up for after a delay. It skips all further frames.
const DEBT: u64 = 4096;
const E0: WorldInterface = WorldInterface { node: "mr", interface: "e0" };
const C0: WorldInterface = WorldInterface { node: "cn", interface: "c0" };

const PROTOCOL_ICMPV6: u8 = 58;
const PROTOCOL_FRAGMENT: u8 = 44;
/// ICMPv6 type of a Home Agent Address Discovery Request (RFC 6275 6.5).
const DISCOVERY_REQUEST: u8 = 144;
/// The home agents' anycast address of the home prefix (RFC 2526).
const HOME_AGENTS: &str = "2001:db8:1:0:fdff:ffff:ffff:fffe";

/// Kind of the flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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

const KINDS: [Kind; 5] = [Kind::Forged, Kind::Unknown, Kind::Recorded, Kind::Discovery, Kind::Fragments];

impl Kind {
    fn description(self) -> &'static str {
        match self {
            Kind::Forged => "forged Binding Updates",
            Kind::Unknown => "Binding Updates of unknown routers",
            Kind::Recorded => "recorded Binding Updates",
            Kind::Discovery => "discovery requests",
            Kind::Fragments => "first fragments",
        }
    }

    fn frames(self, fleet: &Fleet) -> anyhow::Result<Vec<Frame>> {
        let agent: Ipv6Addr = HOME_AGENT.parse()?;
        let (right, wrong) = (Signer::new(&KEY)?, Signer::new(&[0x77; 16])?);
        let signed = |number: u32, who: Identity, signer: &Signer| {
            let sequence = (number as u16).wrapping_mul(257);
            update(link_addresses(E0), agent, who, sequence, LIFETIME / 4, signer)
        };
        let frame = |number: u32| -> anyhow::Result<Vec<u8>> {
            let from = stranger(number);
            Ok(match self {
                Kind::Forged => {
                    let who = Identity { care_of_address: from, ..identity(number % fleet.len()) };
                    signed(number, who, &wrong)
                }
                Kind::Unknown => {
                    let home_address = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 2, 0, number as u16);
                    let (care_of_address, ipv4_prefix) = (from, None);
                    let who = Identity { home_address, care_of_address, prefix: 7, ipv4_prefix };
                    signed(number, who, &right)
                }
                Kind::Recorded => fleet.recorded(number % fleet.len()),
                Kind::Discovery => discovery_request(from, HOME_AGENTS.parse()?, number as u16),
                Kind::Fragments => {
                    let who = Identity { care_of_address: from, ..identity(number % fleet.len()) };
                    first_fragment(&signed(number, who, &wrong), number)
                }
            })
        };
        (0..FRAMES).map(|number| Ok(Frame::of(frame(number)?))).collect()
    }
}

/// Returns the source address of a frame of the flood: each number gives an address in another network of
/// `2001:dbc::/32`.
fn stranger(number: u32) -> Ipv6Addr {
    Ipv6Addr::from((0x2001_0dbc_u128 << 32 | u128::from(number)) << 64 | 1)
}

/// Returns the Ethernet and IPv6 headers of a packet that the mobile routers' network sends.
fn headers(from: Ipv6Addr, to: Ipv6Addr, next_header: u8, length: usize) -> Vec<u8> {
    let (own, peer) = link_addresses(E0);
    let ip = [0x60, 0, 0, 0, (length >> 8) as u8, length as u8, next_header, 64];
    [&peer[..], &own, &[0x86, 0xdd], &ip, &from.octets(), &to.octets()].concat()
}

fn discovery_request(from: Ipv6Addr, to: Ipv6Addr, number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    // Flag R: the request is for home agents of mobile routers (RFC 3963 7.1).
    let mut message = [DISCOVERY_REQUEST, 0, 0, 0, high, low, 0x80, 0];
    let sum = checksum(from, to, PROTOCOL_ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    [&headers(from, to, PROTOCOL_ICMPV6, message.len())[..], &message].concat()
}

/// Returns the first fragment of a packet. The attacker never sends the others.
fn first_fragment(whole: &[u8], number: u32) -> Vec<u8> {
    let payload = &whole[LINK + IPV6..whole.len() - 8];
    // The Fragment header has offset 0 and the flag M: more fragments follow.
    let mut header = [whole[LINK + 6], 0, 0, 1, 0, 0, 0, 0];
    header[4..].copy_from_slice(&number.to_be_bytes());
    let mut frame = whole[..LINK + IPV6].to_vec();
    frame[LINK + 4..LINK + 6].copy_from_slice(&((header.len() + payload.len()) as u16).to_be_bytes());
    frame[LINK + 6] = PROTOCOL_FRAGMENT;
    [&frame[..], &header, payload].concat()
}

/// Sends frames at `rate` a second until `stop` is set. Returns the number of sent frames and the elapsed
/// nanoseconds.
fn send(sender: &mut Sender, frames: &[Frame], rate: f64, stop: &AtomicBool) -> anyhow::Result<(u64, u64)> {
    let start = monotonic();
    let (mut sent, mut skipped, mut at) = (0_u64, 0_u64, 0_usize);
    while !frames.is_empty() && !stop.load(Ordering::Relaxed) {
        let now = monotonic();
        let due = ((now - start) as f64 * rate / 1e9) as u64;
        let mut debt = due.saturating_sub(sent + skipped);
        skipped += debt.saturating_sub(DEBT);
        debt = debt.min(DEBT);
        while debt > 0 && !stop.load(Ordering::Relaxed) {
            let count = (debt as usize).min(BATCH).min(frames.len() - at);
            let taken = sender.send(&frames[at..], count)?;
            sent += taken as u64;
            debt -= taken.max(1) as u64;
            at = (at + taken) % frames.len();
        }
        clock::sleep_until(now + TICK);
    }
    Ok((sent, monotonic() - start))
}

/// The network, the fleet and the stream of a measurement.
struct AttackedNetwork<'a> {
    path: Path,
    world: &'a World,
    process: u32,
    fleet: Fleet,
    stream: Sender,
    frame: Frame,
    /// Packets per second of the stream.
    rate: f64,
    duration: u64,
    /// Frames per second of the flood.
    attack_rate: f64,
}

impl AttackedNetwork<'_> {
    /// Lets all routers renew their registrations while the stream and the flood of `frames` pass. An empty
    /// list means no flood.
    fn under(&mut self, words: &str, frames: &[Frame]) -> anyhow::Result<AttackFigure> {
        let stop = AtomicBool::new(false);
        self.fleet.prepare();
        let sink = Sink::numbered_at(self.world, E0)?;
        let each_second = f64::from(self.fleet.len()) * 1e9 / self.duration as f64;
        let (agent_before, start) = (process_seconds(self.process)?, monotonic());
        let attack_rate = self.attack_rate;
        let (fleet, process, world) = (&mut self.fleet, self.process, self.world);
        let (round, attack, agent_s, steady) = std::thread::scope(|scope| {
            let flood = scope.spawn(|| send(&mut Sender::one_by_one(world, E0)?, frames, attack_rate, &stop));
            let routers = scope.spawn(|| {
                let round = fleet.register(usize::MAX, Some(each_second));
                let used = process_seconds(process);
                stop.store(true, Ordering::Relaxed);
                anyhow::Ok((round?, used?))
            });
            let steady = stream(&mut self.stream, &sink, &self.frame, self.rate, &stop);
            let ended = |_| anyhow!("bug: the attacker's sending thread panicked");
            let (round, used) = routers.join().map_err(ended)??;
            anyhow::Ok((round, flood.join().map_err(ended)??, used - agent_before, steady?))
        })?;
        let elapsed = (monotonic() - start) as f64 / 1e9;
        console::step(&format!(
            "{}: {words}: {} of {} routers in time, {} of {} packets lost",
            self.path.name(),
            round.acknowledged - round.late,
            self.fleet.len(),
            steady.lost,
            steady.sent
        ));
        if let Some(complaint) = self.fleet.complaint() {
            console::step(complaint);
        }
        Ok(AttackFigure {
            path: self.path,
            kind: words.into(),
            frames: attack.0 as f64 * 1e9 / attack.1.max(1) as f64,
            routers: self.fleet.len(),
            acknowledged: round.acknowledged,
            late: round.late,
            lost: round.lost,
            wrong: round.wrong,
            again: round.again,
            longest_ms: round.longest as f64 / 1e6,
            rate: steady.rate,
            packets: steady.sent,
            packets_lost: steady.lost,
            agent: agent_s / elapsed,
        })
    }
}

/// Measures all kinds of floods on one path.
fn one(path: Path, effort: &Effort, programs: &Programs, cores: &Cores) -> anyhow::Result<Vec<AttackFigure>> {
    let name = format!("attack-{}", path.name());
    let config = config(&format!("{name}.ha"), path, effort.attacked, false, None);
    cores.pin()?;
    let (mut world, _) = world(&name, path, &config, programs)?;
    let process = world.daemons.last().context("bug: the process that was just started is missing")?.id();
    // Ignore the error: on a machine with one core, sender and home agent share it.
    let _ = cores.avoid_measuring_core();
    let mut fleet = Fleet::new(&world, E0, effort.attacked, false, LIFETIME)?;
    fleet.patience = IN_TIME;
    fleet.prepare();
    fleet.register(usize::MAX, None)?;
    let host = Ipv6Addr::from(u128::from(identity(0).prefix) << 64 | 2);
    let frame = Frame::new(link_addresses(C0), None, (CN.parse()?, host), SIZE);
    let mut stream = Sender::in_bursts(&world, C0, &frame)?;
    let sink = Sink::counting_at(&world, E0)?;
    let mut frames = vec![frame.clone()];
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(flood(&mut stream, &sink, &mut frames, 100 * MILLISECOND, |_, _| {})?.rate());
    }
    drop(sink);
    let rate = Series::of(rates).median * SHARE;
    let (duration, attack_rate) = (effort.attack, effort.attack_rate);
    let mut scene =
        AttackedNetwork { path, world: &world, process, fleet, stream, frame, rate, duration, attack_rate };
    let mut figures = vec![scene.under("nothing", &[])?];
    for kind in KINDS {
        let frames = kind.frames(&scene.fleet)?;
        figures.push(scene.under(kind.description(), &frames)?);
    }
    drop(scene);
    if let Some(mut daemon) = world.daemons.pop() {
        daemon.check_running()?;
        daemon.signal(Signal::SIGTERM);
        daemon.wait(60 * SECOND);
    }
    Ok(figures)
}

/// Measures the given data paths, except those without carnet.
pub fn measure(
    paths: &[Path],
    effort: &Effort,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Vec<AttackFigure>> {
    let mut figures = Vec::new();
    for path in paths.iter().copied().filter(|path| matches!(path, Path::Tun | Path::Bpf)) {
        let of_path = one(path, effort, programs, cores);
        figures.extend(of_path.with_context(|| format!("a home agent under attack, path {}", path.name()))?);
    }
    cores.pin()?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_frames_match_their_kind() {
        let agents: Ipv6Addr = HOME_AGENTS.parse().expect("an address");
        let request = discovery_request(stranger(5), agents, 5);
        assert_eq!(request.len(), LINK + IPV6 + 8);
        assert_eq!(checksum(stranger(5), agents, PROTOCOL_ICMPV6, &request[LINK + IPV6..]), 0);
        let signer = Signer::new(&KEY).expect("a key");
        let agent: Ipv6Addr = HOME_AGENT.parse().expect("an address");
        let whole = update(link_addresses(E0), agent, identity(1), 3, 15, &signer);
        let fragment = first_fragment(&whole, 9);
        // RFC 8200 4.5: the length of each fragment but the last is a multiple of eight octets.
        assert_eq!((fragment.len() - LINK - IPV6 - 8) % 8, 0);
        assert_eq!(fragment.len(), whole.len());
        assert_eq!(&fragment[LINK + IPV6..LINK + IPV6 + 8], &[60, 0, 0, 1, 0, 0, 0, 9]);
        assert_eq!(stranger(0x0102_0304).to_string(), "2001:dbc:102:304::1");
    }
}
