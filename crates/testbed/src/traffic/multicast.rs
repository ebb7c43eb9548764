//! Runs traffic to an IPv6 multicast group: a host in a vehicle sends, and hosts in other vehicles listen.
//!
//! The lab uses sockets of the kernel. A listener joins the group, and its kernel reports that by MLD. The
//! sender's packets leave by the interface that its kernel's multicast route selects. A *stranger* has not
//! joined the group, and records all packets that arrive at its interface. As for GeoNetworking's own
//! broadcasts, the places of the vehicles decide which hosts have to receive a packet.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use socket2::{Domain, Protocol, Socket, Type};

use super::geonet::{
    BroadcastResult, BroadcastResults, MAX_BROADCAST_DURATION, ReceivedBroadcast, SentBroadcast,
    judge_broadcast,
};
use super::probe::{ProbeEndResult, decode_probe, encode_probe};
use crate::clock::{self, SECOND};
use crate::medium::geometry::Point;
use crate::medium::mobility::Track;
use crate::process::{BackgroundProgram, command_in_node};
use crate::scenario::{Multicast, Scenario};

/// UDP port of the first multicast flow of a scenario.
const FIRST_MULTICAST_PORT: u16 = 7900;
/// Hop limit of the packets.
const HOP_LIMIT: u32 = 16;
/// Length in octets of the IPv6 and UDP headers before the payload.
const HEADERS_LENGTH: usize = 48;
/// EtherType of IPv6.
const ETHER_TYPE_IPV6: u16 = 0x86dd;

/// Settings of a sender or listener; also its command line.
#[derive(Debug, Clone, clap::Args)]
pub struct MulticastArgs {
    /// Multicast group.
    #[arg(long)]
    pub group: Ipv6Addr,
    /// UDP port.
    #[arg(long)]
    pub port: u16,
    /// Role of this process.
    #[arg(long, value_enum)]
    pub role: MulticastRole,
    /// Nanoseconds from one packet to the next.
    #[arg(long, default_value_t = SECOND)]
    pub interval: u64,
    /// Monotonic time of the first packet, in nanoseconds.
    #[arg(long, default_value_t = 0)]
    pub start: u64,
    /// Monotonic time of the end, in nanoseconds.
    #[arg(long)]
    pub end: u64,
    /// File for the outcome.
    #[arg(long)]
    pub output: PathBuf,
}

/// Role towards a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MulticastRole {
    /// Sends to the group.
    Sender,
    /// Has joined the group.
    Member,
    /// Has not joined the group, and records the packets on its link.
    Stranger,
}

/// Runs a sender or listener.
pub fn run(args: &MulticastArgs) -> anyhow::Result<()> {
    let outcome = match args.role {
        MulticastRole::Sender => send_packets(args)?,
        MulticastRole::Member => {
            let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
            socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, args.port, 0, 0).into())?;
            socket.join_multicast_v6(&args.group, 0).context("cannot join the group")?;
            receive_packets(&socket, args, 0)?
        }
        MulticastRole::Stranger => {
            // The socket receives every IPv6 packet that arrives at any interface.
            let all = Protocol::from(i32::from(ETHER_TYPE_IPV6.to_be()));
            receive_packets(&Socket::new(Domain::PACKET, Type::DGRAM, Some(all))?, args, HEADERS_LENGTH)?
        }
    };
    let file = std::fs::File::create(&args.output)
        .with_context(|| format!("cannot make {}", args.output.display()))?;
    serde_json::to_writer(std::io::BufWriter::new(file), &outcome)?;
    Ok(())
}

fn send_packets(args: &MulticastArgs) -> anyhow::Result<ProbeEndResult> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_multicast_hops_v6(HOP_LIMIT)?;
    let to = SocketAddrV6::new(args.group, args.port, 0, 0).into();
    let mut outcome = ProbeEndResult::default();
    for seq in 0.. {
        let at = args.start + seq * args.interval;
        if at >= args.end {
            break;
        }
        clock::sleep_until(at);
        let now = clock::monotonic_now();
        outcome.send_times.push(now);
        outcome.refused_packets += u64::from(socket.send_to(&encode_probe(seq, now), &to).is_err());
    }
    Ok(outcome)
}

/// Records the packets that arrive until the end. The payload of a packet begins at `offset` in the received
/// data.
fn receive_packets(socket: &Socket, args: &MulticastArgs, offset: usize) -> anyhow::Result<ProbeEndResult> {
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    // `UdpSocket::recv` also works with the descriptor of a packet socket.
    let socket = std::net::UdpSocket::from(socket.try_clone()?);
    let mut outcome = ProbeEndResult::default();
    let mut octets = [0; 2048];
    while clock::monotonic_now() < args.end {
        let length = match socket.recv(&mut octets) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => bail!(error),
        };
        let at = clock::monotonic_now();
        if let Some(seq) = octets.get(offset..length).and_then(decode_probe) {
            outcome.received_packets.push((seq, at));
        }
    }
    Ok(outcome)
}

/// A listener: the node that serves its host, its program, and its results file.
type ListenerProgram = (String, BackgroundProgram, PathBuf);

/// Running traffic to a multicast group.
#[derive(Debug)]
pub struct RunningMulticast {
    traffic: Multicast,
    sender: BackgroundProgram,
    sender_output: PathBuf,
    members: Vec<ListenerProgram>,
    strangers: Vec<ListenerProgram>,
}

/// Starts the listeners, and the sender for the time of the timetable.
pub fn start(
    number: usize,
    traffic: &Multicast,
    begin: u64,
    end: u64,
    folder: &Path,
) -> anyhow::Result<RunningMulticast> {
    let own = std::env::current_exe()?;
    let run = |node: &str, role: &str| -> anyhow::Result<(BackgroundProgram, PathBuf)> {
        let base = format!("multicast-{}-{node}", traffic.name);
        let output = folder.join(format!("{base}.json"));
        let mut command = command_in_node(node, &own);
        // The sender ends earlier, so that its last packets arrive before the end.
        let until = if role == "sender" { end.saturating_sub(MAX_BROADCAST_DURATION) } else { end };
        command
            .args(["multicast", "--role", role])
            .args(["--group", &traffic.group.get_ref().to_string()])
            .args(["--port", &(usize::from(FIRST_MULTICAST_PORT) + number).to_string()])
            .args(["--interval", &traffic.interval.get_ref().0.to_string()])
            .args(["--start", &begin.to_string(), "--end", &until.to_string()])
            .arg("--output")
            .arg(&output);
        let log = folder.join(format!("{base}.log"));
        Ok((BackgroundProgram::start(&format!("{role} in node {node}"), &log, &mut command)?, output))
    };
    let listeners = |role: &str| -> anyhow::Result<Vec<ListenerProgram>> {
        let hosts = if role == "member" { &traffic.members } else { &traffic.strangers };
        let listener = |(host, carrier): (&toml::Spanned<String>, &toml::Spanned<String>)| {
            let (daemon, output) = run(host.get_ref(), role)?;
            Ok((carrier.get_ref().clone(), daemon, output))
        };
        hosts.iter().map(listener).collect()
    };
    let (members, strangers) = (listeners("member")?, listeners("stranger")?);
    let (sender, sent) = run(traffic.from.get_ref(), "sender")?;
    Ok(RunningMulticast { traffic: traffic.clone(), sender, sender_output: sent, members, strangers })
}

impl RunningMulticast {
    /// Fails if a listener has ended with an error.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        self.members
            .iter_mut()
            .chain(&mut self.strangers)
            .try_for_each(|(_, daemon, _)| daemon.check_not_failed())
    }

    /// Returns the results: receptions by members, and the arrival times of packets at strangers.
    pub fn finish(&mut self, scenario: &Scenario) -> anyhow::Result<(BroadcastResults, Vec<u64>)> {
        let limit = 10 * SECOND;
        self.sender.wait_at_most(limit);
        for (_, daemon, _) in self.members.iter_mut().chain(&mut self.strangers) {
            daemon.wait_at_most(limit);
        }
        let sent = read_result(&self.sender_output)?.send_times;
        let (mut deliveries, mut tracks): (Vec<ReceivedBroadcast>, Vec<&Track>) = (Vec::new(), Vec::new());
        for (node, (carrier, _, output)) in self.members.iter().enumerate() {
            let track = scenario.tracks.get(carrier);
            tracks.push(track.with_context(|| format!("node {carrier} has no radio"))?);
            let received = read_result(output)?.received_packets;
            let delivery = |(seq, at)| {
                Some(ReceivedBroadcast { node, mark: (0, u32::try_from(seq).ok()?), received_at: at })
            };
            deliveries.extend(received.into_iter().filter_map(delivery));
        }
        let (east, north) = self.traffic.center;
        let center = Some(Point { x: east, y: north });
        let radius = self.traffic.radius.get_ref().0;
        let floods: Vec<BroadcastResult> = (0u32..)
            .zip(sent)
            .map(|(number, at)| {
                let mine: Vec<ReceivedBroadcast> =
                    deliveries.iter().filter(|delivery| delivery.mark.1 == number).copied().collect();
                let sent = SentBroadcast { mark: (0, number), sent_at: at, center, is_refused: false };
                judge_broadcast(&sent, &[], radius, scenario.epoch, &tracks, &mine)
            })
            .collect();
        let mut strangers = Vec::new();
        for (_, _, output) in &self.strangers {
            strangers.extend(read_result(output)?.received_packets.into_iter().map(|(_, at)| at));
        }
        let (name, label) = (self.traffic.name.clone(), self.traffic.label.clone());
        Ok((BroadcastResults { name, label, radius, broadcasts: floods }, strangers))
    }
}

fn read_result(file: &Path) -> anyhow::Result<ProbeEndResult> {
    let text =
        std::fs::read(file).with_context(|| format!("multicast traffic left no {}", file.display()))?;
    Ok(serde_json::from_slice(&text)?)
}
