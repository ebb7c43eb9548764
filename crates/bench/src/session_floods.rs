//! Measures a home agent whose tunnel port is flooded with forged handshakes. The figures say whether mobile
//! routers open sessions and register meanwhile, how many packets of two streams are lost, and what the home
//! agent answers.
//!
//! There are two kinds of attackers. The first one does not know the home agent's public key, so the first
//! MAC of its initiations is wrong. The second one knows the key: its initiations are valid, but of keys that
//! no config has. Each frame has a source address of its own. Each kind floods at a fixed rate, and then as
//! fast as the sender can.
//!
//! The mobile routers (`session_routers`) have no session before a flood, so each needs a handshake, and a
//! cookie if the home agent demands it. One router has a session before. It sends a steady stream to the
//! correspondent, and the correspondent sends one to the router's network. Both streams, the routers and the
//! flood enter and leave the home agent by one interface. Flood and routers run on another core than the home
//! agent, if the machine has one.
//!
//! The mobile router's node counts the home agent's answers to the flood by nftables: cookie replies, and all
//! other packets.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use carnet_base::Time;
use carnet_wireguard::{Output, PrivateKey};
use nix::sys::signal::Signal;

use super::MeasurementPlan;
use super::attack::{send_until_stopped, unregistered_address};
use super::cores::{Cores, process_seconds};
use super::figures::SessionFloodFigure;
use super::fleet::router_identity;
use super::handshakes::home_agent_config_with_keys;
use super::packet::{ETHERNET_HEADER_LENGTH, Frame};
use super::path::DataPath;
use super::registrations::build_network;
use super::sender::{FRAMES_PER_BATCH, PacketSource};
use super::session_routers::{
    DataStream, RoundPlan, RouterTask, SessionRouters, agent_key, datagram_frame, engine_of, route_to_agent,
};
use super::sink::PacketSink;
use super::tcp::run_with_input;
use super::world::{
    CORRESPONDENT_ADDRESS, HOME_AGENT_ADDRESS, NodeInterface, Programs, TestNetwork, link_addresses,
};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::console;
use carnet_testbed::process::{command_in_node, run_for_output};
use carnet_testbed::tools;

/// Number of different frames of a flood. The sender repeats them in turn.
const FLOOD_FRAME_COUNT: u32 = 65_536;
/// Number of different initiations of the attacker that knows the key. Each has sources of its own.
const VALID_INITIATION_COUNT: u32 = 1024;
/// Packets per second of each stream.
const STREAM_PACKETS_PER_SECOND: f64 = 5000.0;
/// Size in octets of the packets in the streams.
const STREAM_PACKET_SIZE: usize = 500;
/// Lifetime that routers request, in seconds.
const BINDING_LIFETIME_SECONDS: u16 = 600;
/// Time for which a round waits for routers beyond the flood, in nanoseconds.
const EXTRA_TIME: u64 = 30 * SECOND;
/// Part of the flood's duration in which routers begin.
const BEGIN_SHARE: f64 = 0.8;
const INITIATION_LENGTH: usize = 148;
const ROUTER_UPLINK: NodeInterface = NodeInterface { node: "mr", interface: "e0" };
const CORRESPONDENT_INTERFACE: NodeInterface = NodeInterface { node: "cn", interface: "c0" };

/// Rules that count the home agent's packets to the sources of the flood. The first octet of a cookie reply
/// is 3, and its datagram has 72 octets.
const COUNTING_RULES: &str = "table inet answers\ndelete table inet answers\ntable inet answers {\n\
     counter cookie_replies { }\ncounter others { }\n\
     chain incoming {\ntype filter hook prerouting priority -300;\n\
     ip6 daddr 2001:dbc::/32 udp length 72 @th,64,8 3 counter name cookie_replies drop\n\
     ip6 daddr 2001:dbc::/32 counter name others drop\n}\n}\n";

/// Kind of the flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FloodKind {
    Nothing,
    WithoutKey,
    WithKey,
}

impl FloodKind {
    fn flood_description(self) -> &'static str {
        match self {
            FloodKind::Nothing => "nothing",
            FloodKind::WithoutKey => "without the public key",
            FloodKind::WithKey => "with the public key",
        }
    }

    fn build_frames(self) -> anyhow::Result<Vec<Frame>> {
        let agent: Ipv6Addr = HOME_AGENT_ADDRESS.parse()?;
        let initiations: Vec<Vec<u8>> = match self {
            FloodKind::Nothing => return Ok(Vec::new()),
            FloodKind::WithoutKey => (0..VALID_INITIATION_COUNT).map(random_initiation).collect(),
            FloodKind::WithKey => {
                (0..VALID_INITIATION_COUNT).map(valid_initiation).collect::<Result<_, _>>()?
            }
        };
        let frame = |number: u32| {
            let initiation = &initiations[number as usize % initiations.len()];
            let source = (unregistered_address(number), 1024 + (number % 60_000) as u16);
            Frame::of_octets(datagram_frame(link_addresses(ROUTER_UPLINK), source, agent, initiation))
        };
        Ok((0..FLOOD_FRAME_COUNT).map(frame).collect())
    }
}

/// Returns an initiation with arbitrary content, as a sender without the home agent's key makes it.
fn random_initiation(number: u32) -> Vec<u8> {
    let mut state = u64::from(number) + 1;
    let mut octets = vec![1, 0, 0, 0];
    while octets.len() < INITIATION_LENGTH {
        // The generator xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        octets.extend_from_slice(&state.to_le_bytes());
    }
    octets.truncate(INITIATION_LENGTH);
    octets
}

/// Returns a valid initiation of a key that no config has.
fn valid_initiation(number: u32) -> anyhow::Result<Vec<u8>> {
    let mut octets = [0x7a; 32];
    octets[8..12].copy_from_slice(&number.to_le_bytes());
    let (mut engine, path) =
        engine_of(PrivateKey::from_random(octets), 0x8000_0000 | number, agent_key().public_key());
    engine.open_session(Time::from_nanos(monotonic_now()), path, route_to_agent()?);
    match engine.poll_output() {
        Some(Output::Send { datagram, .. }) => Ok(datagram.into_vec()),
        _ => Err(anyhow!("bug: the attacker's engine sends no initiation")),
    }
}

/// Sends frames without a pause until `stop` is set. Returns the number of sent frames and the elapsed
/// nanoseconds.
fn send_without_pause(
    sender: &mut PacketSource,
    frames: &[Frame],
    stop: &AtomicBool,
) -> anyhow::Result<(u64, u64)> {
    let start = monotonic_now();
    let (mut sent, mut at) = (0_u64, 0_usize);
    while !stop.load(Ordering::Relaxed) {
        let count = FRAMES_PER_BATCH.min(frames.len() - at);
        let taken = sender.send_frames(&frames[at..], count)?;
        if taken == 0 {
            std::thread::yield_now();
        }
        sent += taken as u64;
        at = (at + taken) % frames.len();
    }
    Ok((sent, monotonic_now() - start))
}

/// Network and programs of the measurement.
struct FloodedNetwork<'a> {
    network: &'a TestNetwork,
    process: u32,
    routers: SessionRouters,
    /// Number of the first router that has not yet had a session.
    next_router: u32,
    routers_per_flood: u32,
    duration_ns: u64,
    down_frame: Frame,
}

impl FloodedNetwork<'_> {
    fn read_answers(&self) -> anyhow::Result<[u64; 2]> {
        let node = self.network.node_name("mr");
        let shown = run_for_output(
            command_in_node(&node, tools::path_of_program("nft")).args(["-j", "list", "counters"]),
        )?;
        let value: serde_json::Value = serde_json::from_str(&shown).context("nft printed no JSON")?;
        let objects = value["nftables"].as_array().cloned().unwrap_or_default();
        let count = |name: &str| {
            let found = objects.iter().find(|object| object["counter"]["name"] == name);
            found
                .and_then(|object| object["counter"]["packets"].as_u64())
                .with_context(|| format!("no counter {name}"))
        };
        Ok([count("cookie_replies")?, count("others")?])
    }

    /// Measures one flood at a rate; `None` means as fast as possible.
    fn measure_flood(&mut self, kind: FloodKind, rate: Option<f64>) -> anyhow::Result<SessionFloodFigure> {
        let frames = kind.build_frames()?;
        let node = self.network.node_name("mr");
        run_with_input(
            command_in_node(&node, tools::path_of_program("nft")).args(["-f", "-"]),
            COUNTING_RULES,
        )?;
        let first = self.next_router;
        self.next_router += self.routers_per_flood;
        let sink = PacketSink::attach_counting(self.network, CORRESPONDENT_INTERFACE)?;
        let host = Ipv6Addr::from(u128::from(router_identity(0).mobile_network_prefix) << 64 | 2);
        let up = Frame::new(
            link_addresses(ROUTER_UPLINK),
            None,
            (host, CORRESPONDENT_ADDRESS.parse()?),
            STREAM_PACKET_SIZE,
        );
        let packet = up.octets()[ETHERNET_HEADER_LENGTH..].to_vec();
        self.routers.stream = Some(DataStream::new(0, packet, STREAM_PACKETS_PER_SECOND));
        let seconds = self.duration_ns as f64 / 1e9;
        let plan = RoundPlan {
            task: RouterTask::Register,
            routers: first..self.next_router,
            rate: Some(f64::from(self.routers_per_flood) / (seconds * BEGIN_SHARE)),
            time_limit: self.duration_ns + EXTRA_TIME,
        };
        let (stop, start) = (AtomicBool::new(false), monotonic_now());
        let agent_before = process_seconds(self.process)?;
        let (network, routers, down_frame) = (self.network, &mut self.routers, &self.down_frame);
        let duration = self.duration_ns;
        let (round, flood, down) = std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let mut sender = PacketSource::for_single_frames(network, ROUTER_UPLINK)?;
                match rate {
                    _ if frames.is_empty() => Ok((0, 0)),
                    Some(rate) => send_until_stopped(&mut sender, &frames, rate, &stop),
                    None => send_without_pause(&mut sender, &frames, &stop),
                }
            });
            let down = scope.spawn(|| {
                let mut sender = PacketSource::for_single_frames(network, CORRESPONDENT_INTERFACE)?;
                let frames = std::slice::from_ref(down_frame);
                send_until_stopped(&mut sender, frames, STREAM_PACKETS_PER_SECOND, &stop)
            });
            let round = routers.run_round(&plan, || monotonic_now() - start < duration);
            stop.store(true, Ordering::Relaxed);
            let ended = |_| anyhow!("bug: a sending thread panicked");
            anyhow::Ok((round?, flood.join().map_err(ended)??, down.join().map_err(ended)??))
        })?;
        let agent_core_share =
            (process_seconds(self.process)? - agent_before) * 1e9 / (monotonic_now() - start) as f64;
        self.routers.receive_rest()?;
        clock::sleep(100 * MILLISECOND);
        let stream = self.routers.stream.take().context("bug: the stream is missing")?;
        let [cookie_replies, answers] = self.read_answers()?;
        let arrived = sink.received_packets()?;
        let words = match (kind, rate) {
            (FloodKind::Nothing, _) => kind.flood_description().to_owned(),
            (_, Some(_)) => kind.flood_description().to_owned(),
            (_, None) => format!("{}, as fast as possible", kind.flood_description()),
        };
        let figure = SessionFloodFigure {
            kind: words,
            attack_frames: flood.0,
            attack_frames_per_second: flood.0 as f64 * 1e9 / flood.1.max(1) as f64,
            routers: self.routers_per_flood,
            registered: round.done,
            late_routers: round.late,
            lost_routers: round.lost,
            wrong: round.wrong,
            longest_ms: round.longest_ns as f64 / 1e6,
            cookie_replies,
            answers,
            packets: [stream.sent, down.0],
            packets_lost: [stream.sent.saturating_sub(arrived), down.0.saturating_sub(stream.received)],
            agent_core_share,
        };
        console::print_step(&format!(
            "flood {}: {:.0} a second, {} of {} routers registered, {} late, longest {:.0} ms; {:?} of {:?} \
             packets lost; {} cookie replies, {} other answers",
            figure.kind,
            figure.attack_frames_per_second,
            figure.registered,
            figure.routers,
            figure.late_routers,
            figure.longest_ms,
            figure.packets_lost,
            figure.packets,
            figure.cookie_replies,
            figure.answers
        ));
        if let Some(complaint) = self.routers.first_error() {
            console::print_step(complaint);
        }
        Ok(figure)
    }
}

/// Measures all floods.
pub fn measure_session_floods(
    measurement_plan: &MeasurementPlan,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Vec<SessionFloodFigure>> {
    let (fixed, fastest) = (Some(measurement_plan.attack_frames_per_second), None);
    let floods = [
        (FloodKind::Nothing, fixed),
        (FloodKind::WithoutKey, fixed),
        (FloodKind::WithoutKey, fastest),
        (FloodKind::WithKey, fixed),
        (FloodKind::WithKey, fastest),
    ];
    let floods: Vec<_> = floods
        .into_iter()
        .filter(|(_, rate)| rate.is_some() || measurement_plan.floods_without_pause)
        .collect();
    let routers_per_flood = measurement_plan.attacked_router_count / floods.len() as u32;
    // Router 0 carries the streams.
    let count = 1 + routers_per_flood * floods.len() as u32;
    let name = "session-floods";
    let config = home_agent_config_with_keys(&format!("{name}.ha"), count, None)?;
    cores.pin_to_measuring_core()?;
    let (mut network, _) = build_network(name, DataPath::Tun, &config, programs)?;
    let process = network.daemons.last().context("bug: the home agent has no process")?.process_id();
    // Ignore the error: on a machine with one core, all share this core.
    let _ = cores.avoid_measuring_core();
    let mut routers = SessionRouters::new(&network, ROUTER_UPLINK, count, BINDING_LIFETIME_SECONDS)?;
    let plan = RoundPlan { task: RouterTask::Register, routers: 0..1, rate: None, time_limit: 10 * SECOND };
    let round = routers.run_round(&plan, || false)?;
    anyhow::ensure!(round.done == 1, "the router of the streams does not register: {round:?}");
    let host = Ipv6Addr::from(u128::from(router_identity(0).mobile_network_prefix) << 64 | 2);
    let down_frame = Frame::new(
        link_addresses(CORRESPONDENT_INTERFACE),
        None,
        (CORRESPONDENT_ADDRESS.parse()?, host),
        STREAM_PACKET_SIZE,
    );
    let mut flooded = FloodedNetwork {
        network: &network,
        process,
        routers,
        next_router: 1,
        routers_per_flood,
        duration_ns: measurement_plan.attack_duration,
        down_frame,
    };
    let mut figures = Vec::new();
    for (kind, rate) in floods {
        figures.push(flooded.measure_flood(kind, rate)?);
    }
    drop(flooded);
    if let Some(mut daemon) = network.daemons.pop() {
        daemon.check_running()?;
        daemon.send_signal(Signal::SIGTERM);
        daemon.wait_at_most(60 * SECOND);
    }
    cores.pin_to_measuring_core()?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the attacker that knows the key makes initiations whose first MAC is valid.
    #[test]
    fn attacker_without_the_key_sends_other_initiations_than_one_with_it() {
        let (mut agent, _) = engine_of(agent_key(), 7, PrivateKey::from_random([9; 32]).public_key());
        let drops = |agent: &mut carnet_wireguard::SessionEngine, reason| agent.drop_count(reason);
        let (now, mut buffer) = (Time::from_nanos(monotonic_now()), [0; 256]);
        let route = route_to_agent().expect("an address");
        for (initiation, reason) in [
            (random_initiation(3), carnet_wireguard::WireguardDropReason::Mac),
            (valid_initiation(3).expect("an initiation"), carnet_wireguard::WireguardDropReason::UnknownKey),
        ] {
            assert_eq!(initiation.len(), INITIATION_LENGTH);
            agent.receive_datagram(now, route, &initiation, &mut buffer);
            agent.handle_waiting_handshakes(now, 1);
            assert_eq!(drops(&mut agent, reason), 1, "{reason:?}");
        }
    }
}
